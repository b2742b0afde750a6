"""Requests dropped as files: done once whatever happens, on behalf of their folder alone, and never a trap."""

import json
import os
import random
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import needs
from process import Box, a_box
from test_database import child, until
from test_outbox import Post

from appliance.channels.drop_folder import KEEP_BAD, MAX_BYTES, Drops
from appliance.errors import Busy
from appliance.ingest.watcher import Watch
from appliance.records import Event
from appliance.runtime.crash_points import CrashPoint
from appliance.sessions.outbox import DeliveryPatience
from appliance.work.tasks import TaskRows

__all__ = ["a_box"]
NOBODY = 65534
HELLO = {"kind": "message", "text": "hello"}


class Yard(Post):
    """A home's drop folder with everything behind it."""

    def __init__(self, root: Path, patience: DeliveryPatience | None = None, **more: Any) -> None:
        super().__init__(root / "owlbox.db", patience)
        self.tasks = TaskRows(self.store)
        self.drops = Drops(root / "drop", self.store, self.runs, self.outbox, self.tasks, **more)
        self.drops.prepare()

    def folder(self, name: str = "users/ann") -> Path:
        folder = self.drops.root / name
        folder.mkdir(exist_ok=True)
        return folder

    def drop(self, request: object, name: str = "a.json", folder: str = "users/ann") -> Path:
        """Leave a file as a careful program does; it was written ten seconds ago."""
        path = self.folder(folder) / name
        path.with_name(".half").write_bytes(request if isinstance(request, bytes) else json.dumps(request).encode())
        wrote_ns = time.time_ns() - 10**10
        os.utime(path.with_name(".half"), ns=(wrote_ns, wrote_ns))
        return path.with_name(".half").rename(path)

    def texts(self) -> list[str]:
        return [p.notification.text for p in reversed(self.outbox.list_postings(limit=1000))]

    def why(self, name: str = "a.json", folder: str = "users/ann") -> str:
        assert (self.folder(folder) / "bad" / name).is_symlink() or (self.folder(folder) / "bad" / name).exists()
        return (self.folder(folder) / "bad" / f"{name}.why").read_text()

    def is_clear(self, folder: str = "users/ann") -> bool:
        return [path.name for path in self.folder(folder).iterdir() if path.name != "bad"] == []


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def a_call(yard: Yard, sender: str = "ann") -> str:
    """A thread in which a tool call was recorded and has no result."""
    run = yard.runs.begin(yard.session("local", sender), "chat").id
    prompt = yard.runs.append(Event(run=run, kind="message", role="user", content="hi"))
    yard.runs.start_loop(loop := yard.runs.enqueue(run, prompt.id, "c-1"))
    yard.runs.append(Event(run=run, kind="tool_use", role="assistant", content="", tool="sh", call_id="call_1", correlation="c-1"))
    yard.runs.leave(loop)
    with yard.store.write() as execute:  # the process that answers is gone
        execute("UPDATE loops SET process = 'boot/1/1' WHERE id = ?", (loop,))
    return run


# -- what a file may ask for ------------------------------------------------------------------------


@pytest.mark.covers("A-021")
def test_a_message_becomes_a_letter_of_its_folder(yard: Yard) -> None:
    session = yard.session("local")
    run = yard.runs.begin(session, "chat").id
    yard.drop({**HELLO, "channel": "mail", "session": session, "run": run, "metadata": {"subject": "hoot"}})
    yard.drop({**HELLO, "text": "to all"}, folder="groups/7")
    assert yard.drops.take_files() == 2 and yard.is_clear() and yard.is_clear("groups/7")
    group, ann = yard.outbox.list_postings()
    assert (ann.notification.person, ann.notification.context, ann.notification.channel, ann.notification.session) == (
        "ann",
        "user:ann",
        "mail",
        session,
    )
    assert (ann.notification.run, ann.notification.metadata, ann.notification.text) == (run, {"subject": "hoot"}, "hello")
    assert ann.notification.marks == group.notification.marks == (("agent", "a file in drop/"),)
    assert (group.notification.person, group.notification.context, group.notification.text) == ("group:7", "group:7", "to all")


@pytest.mark.covers("A-021")
def test_a_task_is_added_for_its_folder(yard: Yard) -> None:
    request = {
        "kind": "task",
        "name": "water the plants",
        "priority": "high",
        "description": "all of them",
        "context_ids": ["box://a"],
    }
    yard.drop(request)
    yard.drop({**request, "name": "and the cactus", "blocked_by": [1]}, "b.json")
    assert yard.drops.take_files() == 2
    later, first = yard.tasks.list_tasks()
    assert (first.name, first.priority, first.description, first.context_ids, first.person) == (
        ("water the plants", "high", "all of them", ("box://a",), "ann")
    )
    assert later.blocked_by == (first.id,)


@pytest.mark.covers("A-021")
def test_a_late_result_ends_its_call_before_the_run_is_mended(yard: Yard) -> None:
    run = a_call(yard)
    yard.drop({"kind": "result", "run": run, "call_id": "call_1", "content": "an owl", "status": 200})
    assert yard.drops.take_files() == 1 and yard.is_clear()
    event = yard.runs.events(run)[-1]
    assert (event.kind, event.role, event.tool, event.call_id, event.content) == ("tool_result", "tool", "sh", "call_1", "an owl")
    assert (event.status, event.outcome, event.correlation) == (200, "ok", "c-1")
    yard.runs.recover(lambda event: None)
    assert [e.kind for e in yard.runs.events(run)] == ["message", "tool_use", "tool_result", "status_change"]
    assert yard.runs.get(run).origins == ("agent",), "another program wrote it"


def test_a_result_nobody_waits_for_is_logged_and_removed(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    run = a_call(yard)
    yard.runs.recover(lambda event: None)
    count = len(yard.runs.events(run))
    yard.drop({"kind": "result", "run": run, "call_id": "call_1", "content": "too late"})
    yard.drop({"kind": "result", "run": run, "call_id": "call_9", "content": "never asked"}, "b.json")
    assert yard.drops.take_files() == 2 and yard.is_clear()
    assert len(yard.runs.events(run)) == count and caplog.text.count("nobody waits for the result") == 2


def test_a_result_of_a_call_that_is_being_waited_for_is_not_recorded_twice(yard: Yard) -> None:
    run = a_call(yard)
    yard.runs.recover(lambda event: None)
    loop = yard.runs.enqueue(run, yard.runs.append(Event(run=run, kind="message", role="user", content="again")).id, "c")
    yard.runs.start_loop(loop)
    yard.runs.append(Event(run=run, kind="tool_use", role="assistant", content="", tool="sh", call_id="call_1"))
    yard.drop({"kind": "result", "run": run, "call_id": "call_1", "content": "an owl"})
    assert yard.drops.take_files() == 1
    assert yard.runs.events(run)[-1].kind == "tool_use"


# -- once -------------------------------------------------------------------------------------------


@pytest.mark.covers("A-021")
@pytest.mark.parametrize("step", [CrashPoint.DROP_TAKEN, CrashPoint.DROP_REMOVED])
@pytest.mark.parametrize("kind", ["message", "task", "result"])
def test_killed_at_any_step_a_request_is_done_once(tmp_path: Path, kind: str, step: CrashPoint) -> None:
    yard = Yard(tmp_path)
    run = a_call(yard)
    long_name = "x" * 250
    requests = {
        "message": HELLO,
        "task": {"kind": "task", "name": "once"},
        "result": {"kind": "result", "run": run, "call_id": "call_1", "content": "an owl"},
    }
    yard.drop(requests[kind], long_name)
    code = """
        import os, signal
        from test_drop_folder import Yard
        def passed(step):
            if step.name == sys.argv[2]:
                os.kill(os.getpid(), signal.SIGKILL)
        Yard(path.parent, passed=passed).drops.take_files()
    """
    process = child(code, tmp_path / "owlbox.db", step.name)
    process.wait(60)
    assert process.returncode == -9, process.communicate()
    yard.drops.take_files()
    yard.drops.take_files()
    assert yard.is_clear()
    done = {
        "message": len(yard.texts()),
        "task": len(yard.tasks.list_tasks()),
        "result": sum(e.kind == "tool_result" for e in yard.runs.events(run)),
    }
    assert done[kind] == 1


def test_the_same_words_in_a_new_file_are_a_new_request_but_the_same_id_is_not(yard: Yard) -> None:
    for _ in range(2):
        yard.drop(HELLO)
        yard.drops.take_files()
    assert yard.texts() == ["hello", "hello"]
    for name in ("b.json", "c.json"):
        yard.drop({**HELLO, "id": "oven-7", "text": "hot"}, name)
        yard.drops.take_files()
    yard.drop({**HELLO, "id": "oven-7", "text": "for bob"}, folder="users/bob")
    yard.drops.take_files()
    assert yard.texts() == ["hello", "hello", "hot", "for bob"]


def test_requests_of_a_folder_are_done_in_the_order_they_were_written(yard: Yard) -> None:
    numbers = list(range(20))
    random.Random(7).shuffle(numbers)
    for i in numbers:
        path = yard.drop({**HELLO, "text": str(i)}, f"{random.Random(i).random()}.json")
        os.utime(path, ns=(i * 10**9, i * 10**9))
    assert yard.drops.take_files() == 20 and yard.texts() == [str(i) for i in range(20)]


def test_a_file_that_is_being_written_is_left_alone(yard: Yard) -> None:
    (yard.folder() / ".hidden.json").write_text("{")
    (yard.folder() / "half.json.tmp").write_text("{")
    assert yard.drops.take_files() == 0
    half = yard.folder() / "late.json"
    with half.open("w") as file:
        file.write('{"kind": "message", ')
        file.flush()
        with pytest.raises(Busy, match="being written"):
            yard.drops.take_files()
        yard.drop(HELLO, "late.json")  # another one of its name waits until that is done
        with pytest.raises(Busy):
            yard.drops.take_files()
        file.write('"text": "slow"}')
    assert yard.drops.take_files() == 2
    assert sorted(yard.texts()) == ["hello", "slow"] and not (yard.folder() / "bad").exists()


@pytest.mark.covers("A-193")
def test_what_the_queue_has_no_room_for_stays(tmp_path: Path) -> None:
    yard = Yard(tmp_path, DeliveryPatience(max_waiting=1))
    yard.drop(HELLO), yard.drop({**HELLO, "text": "second"}, "b.json"), yard.drop({"kind": "task", "name": "t"}, "c.json")
    with pytest.raises(Busy, match="queue full"):
        yard.drops.take_files()
    assert yard.texts() == ["hello"] and len(yard.tasks.list_tasks()) == 1 and not (yard.folder() / "bad").exists()
    yard.outbox.clear("")
    assert yard.drops.take_files() == 1 and yard.texts() == ["hello", "second"]


# -- on whose behalf --------------------------------------------------------------------------------


@pytest.mark.covers("A-189")
@pytest.mark.parametrize("claim", ["user:bob", "bob", "group:7", "", None, 7])
def test_a_file_that_speaks_for_another_context_is_refused(yard: Yard, claim: object) -> None:
    yard.drop({**HELLO, "context": claim})
    yard.drop({**HELLO, "context": "user:ann", "text": "mine"}, "b.json")
    assert yard.drops.take_files() == 1 and yard.texts() == ["mine"]
    assert "cannot speak for" in yard.why()


@pytest.mark.covers("A-189")
@pytest.mark.parametrize("kind", ["message", "task", "result"])
def test_sessions_and_threads_of_others_are_refused_like_those_that_are_not_there(yard: Yard, kind: str) -> None:
    run = a_call(yard, "bob")
    yard.session("local", "ann")
    base = {
        "message": HELLO,
        "task": {"kind": "task", "name": "t"},
        "result": {"kind": "result", "call_id": "call_1", "content": "x"},
    }
    count = len(yard.runs.events(run))
    yard.drop({**base[kind], "run": run}, "a.json")
    yard.drop({**base[kind], "run": "no-such"}, "b.json")
    if kind != "result":
        yard.drop({**base[kind], "session": "local:bob"}, "c.json")
        yard.drop({**base[kind], "person": "bob"}, "d.json")
    assert yard.drops.take_files() == 0 and yard.texts() == [] and yard.tasks.list_tasks() == []
    assert len(yard.runs.events(run)) == count
    assert yard.why().replace(run, "X") == yard.why("b.json").replace("no-such", "X") == "user:ann has no thread X\n"


# -- what is no request -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"kind": "message", "text": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[]", "not a JSON object"),
        ({}, "unknown kind None"),
        ({"kind": "reboot"}, "unknown kind 'reboot' (use message, task, result)"),
        ({"kind": ["message"]}, "unknown kind"),
        ({"kind": "message"}, "text: is required"),
        ({"kind": "message", "text": " "}, "needs text"),
        ({"kind": "message", "text": 7}, "text: Expected `str`"),
        ({**HELLO, "attachment": "/etc/passwd"}, "attachment: unknown argument"),
        ({**HELLO, "key": "k"}, "key: unknown argument"),
        ({**HELLO, "id": "x" * 201}, "id is not a text"),
        (b'{"kind": "message", "text": "\\ud800"}', "half a character"),
        ({"kind": "task", "name": "t", "priority": "urgent"}, "priority"),
        ({"kind": "task", "name": ""}, "name"),
        ({"kind": "task", "name": "t", "blocked_by": ["x"]}, "blocked_by"),
        ({"kind": "result", "run": "r", "call_id": "c", "content": "", "status": 7}, "status"),
        (b" " * (MAX_BYTES + 1), "the limit is 1000000"),
    ],
    ids=str,
)
def test_nonsense_is_put_aside_with_the_reason(yard: Yard, request_: object, why: str) -> None:
    yard.drop(request_)
    yard.drop(HELLO, "b.json")
    assert yard.drops.take_files() == 1 and yard.is_clear()
    assert why in yard.why() and yard.texts() == ["hello"] and yard.tasks.list_tasks() == []
    assert yard.drops.take_files() == 0


def _link(folder: Path, secret: Path) -> None:
    (folder / "a.json").symlink_to(secret)


def _second_name(folder: Path, secret: Path) -> None:
    os.link(secret, folder / "a.json")


def _pipe(folder: Path, secret: Path) -> None:
    os.mkfifo(folder / "a.json")


def _folder(folder: Path, secret: Path) -> None:
    (folder / "a.json").mkdir()


@pytest.mark.parametrize("trap", [_link, _second_name, _pipe, _folder])
def test_traps_are_put_aside_unread(yard: Yard, tmp_path: Path, trap: Callable[[Path, Path], None]) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({**HELLO, "text": "a secret"}))
    trap(yard.folder(), secret)
    yard.drop(HELLO, "b.json")
    assert yard.drops.take_files() == 1 and yard.texts() == ["hello"]
    assert yard.is_clear() and yard.why() and secret.exists()


def test_a_file_that_may_not_be_read_is_put_aside(runtime: Path) -> None:
    """Root may read everything: so it is another user who takes it, in a process that has opened all it needs before."""
    pid = os.fork()
    if pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return
    code = 1
    try:
        yard = Yard(runtime)
        yard.drop(HELLO).chmod(0)
        yard.drop(HELLO, "b.json")
        assert yard.texts() == []
        if os.geteuid() == 0:
            for path in (runtime, *runtime.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
            os.setgroups([]), os.setgid(NOBODY), os.setuid(NOBODY)
        assert yard.drops.take_files() == 1 and yard.texts() == ["hello"]
        assert yard.is_clear() and "Permission denied" in yard.why()
        code = 0
    finally:
        os._exit(code)


@needs(root=True)  # nobody else can give files away
def test_a_file_of_another_owner_is_refused(yard: Yard) -> None:
    os.chown(yard.drop(HELLO), 12345, -1)
    assert yard.drops.take_files() == 0 and "belongs to user 12345" in yard.why()


def test_linked_folders_and_a_linked_bad_are_not_entered(yard: Yard, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.json").write_text(json.dumps(HELLO))
    (yard.drops.root / "users/eve").symlink_to(elsewhere)
    yard.drop(b"nonsense")
    (yard.folder() / "bad").symlink_to(elsewhere)
    yard.drop(HELLO, "b.json")
    assert yard.drops.take_files() == 1 and yard.texts() == ["hello"]
    assert [path.name for path in elsewhere.iterdir()] == ["a.json"]


def test_bad_files_keep_their_names_apart_and_do_not_pile_up(yard: Yard) -> None:
    for text in (b"one", b"two"):
        yard.drop(text)
        yard.drops.take_files()
    assert (yard.folder() / "bad/a.json").read_bytes() == b"one" and (yard.folder() / "bad/a.json.1").read_bytes() == b"two"
    for i in range(KEEP_BAD + 20):
        yard.drop(b"x", f"n{i}")
    yard.drops.take_files()
    assert len(list((yard.folder() / "bad").iterdir())) == 2 * KEEP_BAD


ANY = st.none() | st.integers() | st.text() | st.lists(st.integers()) | st.sampled_from(["message", "task", "result"])
NEARLY = st.dictionaries(st.sampled_from(["kind", "text", "name", "run", "id"]), ANY).map(lambda d: json.dumps(d).encode())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(raw=st.binary(max_size=60) | NEARLY)
def test_any_file_ends_as_done_or_put_aside(yard: Yard, raw: bytes) -> None:
    path = yard.drop(raw)
    done = yard.drops.take_files()
    assert yard.is_clear() and not path.exists() and done in (0, 1)


def test_missing_folders_are_no_requests(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db")
    assert Drops(tmp_path / "none", post.store, post.runs, post.outbox, TaskRows(post.store)).take_files() == 0


# -- when -------------------------------------------------------------------------------------------


def test_the_watcher_of_the_box_tells_of_drops_too(yard: Yard, tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    told: list[str] = []

    def take(paths: list[Path]) -> None:
        told.extend(path.name for path in paths if path.is_relative_to(box))
        if any(path.is_relative_to(yard.drops.root) for path in paths):
            yard.drops.take_files()

    watch = Watch(box, lambda: (), take, (yard.drops.root,))  # type: ignore[arg-type]
    watch.start()
    try:
        until(lambda: watch.state == "watching" and watch.is_idle)
        yard.drop(HELLO, folder="users/new")  # a folder made just now
        (box / "note.md").write_text("hoot")
        until(lambda: yard.texts() == ["hello"] and told == ["note.md"])
        yard.drop({**HELLO, "text": "again"}, folder="users/new")
        until(lambda: yard.texts() == ["hello", "again"] and yard.is_clear("users/new"))
    finally:
        watch.stop()


def leave(box: Box, name: str, request: dict[str, Any]) -> None:
    """Leave a request of ann's as a program of the box does."""
    folder = box.home.drop / "users/ann"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".half").write_text(json.dumps(request))
    (folder / ".half").rename(folder / name)


@pytest.mark.covers("A-021")
def test_a_core_does_what_was_left_while_it_was_down_and_while_it_runs(box: Box) -> None:
    core = box.serve()
    run = core.call("message.send", text="hi", wait=False)["run"]
    until(lambda: core.call("outbox.list", status="sent"))  # nobody waited for the answer
    person = core.call("core.status")["sessions"][0]["person"]
    core.kill()
    folder = box.home.drop / "users" / person
    folder.mkdir()
    request = {"kind": "message", "text": "The oven is hot.", "run": run}
    (folder / "a.json").write_text(json.dumps(request))
    leave(box, "b.json", {"kind": "task", "name": "water the plants"})
    core = box.serve()
    until(lambda: [e["content"] for e in core.call("thread.view", id=run)["events"]][2:] == ["The oven is hot."])
    assert core.call("core.status")["queue"]["tasks"]["pending"] == 1
    (folder / "c.json.tmp").write_text(json.dumps({**request, "text": "It is cold."}))
    (folder / "c.json.tmp").rename(folder / "c.json")
    until(lambda: [e["content"] for e in core.call("thread.view", id=run)["events"]][3:] == ["It is cold."])
    letters = core.call("outbox.list")
    assert [(one["status"], one["via"], one["may_repeat"]) for one in letters] == [("sent", "local", False)] * 3
    assert list(folder.iterdir()) == [] and core.stop() == 0


@pytest.mark.covers("A-021")
def test_a_late_result_left_while_the_core_was_down_is_in_the_thread_after_its_start(box: Box) -> None:
    yard = Yard(box.home.root)
    run = a_call(yard)
    yard.drop({"kind": "result", "run": run, "call_id": "call_1", "content": "an owl"})
    yard.store.close()
    core = box.serve()
    events = core.call("thread.view", id=run)["events"]
    assert [(e["kind"], e["content"]) for e in events[2:3]] == [("tool_result", "an owl")]
    assert core.stop() == 0


def test_the_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        yard = Yard(tmp_path)
    finally:
        os.umask(before)
    made = [yard.drops.root, *(yard.drops.root / name for name in ("users", "groups"))]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3
