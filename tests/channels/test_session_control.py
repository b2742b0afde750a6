"""What people do with runs, through the methods and commands: queue, abort, name, set, address, write out and read in."""

import json
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from spoken import spoken
from stores import new_store
from test_database import until
from test_inbox import Desk, Speech, Voice, call_then_echo, echo, until_stopped

from appliance import clock
from appliance.channels import session_control
from appliance.channels.rpc.run_state import RunStates
from appliance.channels.rpc.sessions import SessionMethods
from appliance.channels.rpc.threads import ThreadMethods
from appliance.cli import main
from appliance.cli import session as annals
from appliance.errors import BadInput, Conflict, NotFound, Refused, Unavailable
from appliance.knowledge.views import Views
from appliance.records import Ask, Cancel, Delta, Event, Finish, LoopEnded, Piece, Route
from appliance.runtime.methods import LocalCall, Method, find_methods
from appliance.runtime.paths import Home
from appliance.runtime.users import user_name
from appliance.sessions.runs import Runs
from appliance.store.database import Store


class Bench:
    """A desk whose record can be called like a client does."""

    def __init__(self, store: Store, speech: Speech = echo) -> None:
        self.desk = Desk(store, Voice(speech))
        self.runs, self.inbox = self.desk.runs, self.desk.inbox
        self.control = session_control.build(store, self.runs, self.inbox, Views(store), self._plan)
        self.methods = self.table()
        self.told: list[tuple[str, dict[str, Any]]] = []

    def _plan(self, pool: str) -> list[Route]:
        if pool == "nowhere":
            raise NotFound("there is no pool or route nowhere")
        if pool == "away":
            raise Unavailable("no answer from there just now")
        return list(self.desk.model.plan(pool))

    def table(self) -> dict[str, Method]:
        control = self.control
        table = SessionMethods(control, RunStates(self.runs, Views(self.desk.store)))
        threads = ThreadMethods(self.inbox, self.runs, None, control.require_model)
        return find_methods(table, threads, control, self.runs, control.branches, control.transcripts)

    def call(self, method: str, **params: object) -> Any:
        return self.methods[method].call(LocalCall(lambda name, value: self.told.append((name, value))), **params)

    def texts(self, run: str) -> list[str]:
        return [e.content for e in self.runs.events(run) if e.kind == "message"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store)


# -- asking -----------------------------------------------------------------------------------------


@pytest.mark.covers("R-034")
def test_model_is_needed_and_must_exist(bench: Bench, store: Store) -> None:
    with pytest.raises(BadInput, match="no model is given"):
        bench.call("run.ask", prompt="hi")
    with pytest.raises(NotFound, match="nowhere"):
        bench.call("run.act", prompt="hi", model="nowhere")
    assert store.value("SELECT COUNT(*) FROM runs") == 0
    for wrong in (
        {"temperature": 3},
        {"context_limit": 5},
        {"temperature": "hot"},
        {"no_web": "yes"},
        {"wings": 2},
        {"is_yolo": 1},
    ):
        with pytest.raises(BadInput):
            bench.call("run.ask", prompt="hi", model="double", settings=wrong)


def test_a_talk_is_set_to_no_model_that_is_not_there_and_to_one_that_is_away(bench: Bench, store: Store) -> None:
    run = bench.call("run.act", prompt="hi", model="double")["run"]
    count = store.value("SELECT COUNT(*) FROM runs")
    with pytest.raises(NotFound, match="nowhere"):
        bench.call("run.config", run=run, settings={"model": "nowhere"})
    with pytest.raises(NotFound, match="nowhere"):
        ThreadMethods(bench.inbox, bench.runs, None, bench.control.require_model).send(LocalCall(), "hi", model="nowhere")
    assert store.value("SELECT COUNT(*) FROM runs") == count and bench.runs.get(run).settings.model == "double"
    for name in ("away", ""):
        assert bench.call("run.config", run=run, settings={"model": name})["settings"]["model"] == name


@pytest.mark.covers("E-148", "R-175")
def test_a_request_without_a_model_or_for_a_run_that_is_not_there_begins_nothing(bench: Bench, store: Store) -> None:
    with pytest.raises(BadInput, match="no model is given"):
        bench.call("run.ask", prompt="hi")
    for more in ({}, {"fork": True}):
        with pytest.raises(NotFound, match="nobody"):
            bench.call("run.act", prompt="hi", model="double", run="nobody", **more)
    for method, more in (("run.inject", {"text": "hi"}), ("run.stop", {}), ("run.config", {}), ("run.config", {"alias": "x"})):
        with pytest.raises(NotFound, match="nobody"):
            bench.call(method, run="nobody", **more)
    assert store.value("SELECT (SELECT COUNT(*) FROM runs) + (SELECT COUNT(*) FROM loops)") == 0 and bench.told == []


@pytest.mark.covers("R-002", "R-032", "R-034", "R-174")
def test_request_is_answered_in_a_run_that_keeps_what_it_was_set_to(bench: Bench) -> None:
    given = {"temperature": 0.3, "persona": "a poet", "no_web": True}
    done = bench.call("run.ask", prompt="hoot", model="double", settings=given)
    assert (done["status"], done["outcome"]) == (200, "ok")
    run = bench.runs.get(done["run"])
    assert (run.settings.layout, run.settings.persona, run.settings.no_web) == ("entries", "a poet", True)
    assert run.alias.startswith("double_") and done["alias"] == run.alias
    assert [loop["mode"] for loop in bench.runs.loops_of(run.id)] == ["ask"]
    again = bench.call("run.act", prompt="more", model="double", run=run.alias)
    assert (again["run"], again["status"]) == (run.id, 200)
    assert [(loop["mode"], loop["status"]) for loop in bench.runs.loops_of(run.id)] == [("ask", 200), ("act", 200)]
    forked = bench.call("run.act", prompt="aside", model="double", run=run.alias, fork=True, alias="aside")
    assert bench.runs.get("aside").parent == run.id and forked["run"] != run.id
    assert [name for name, _ in bench.told].count("accepted") == 3


def test_refused_or_repeated_request_leaves_no_fork_and_no_other_settings(bench: Bench, store: Store) -> None:
    run = bench.call("run.act", prompt="one", model="double")["run"]
    for wrong in ({"temperature": 3}, {"persona": "a judge"}):
        with pytest.raises(BadInput):
            bench.call("run.act", prompt="two", model="double", run=run, fork=True, settings=wrong)
    with pytest.raises(BadInput, match="empty"):
        bench.call("run.act", prompt=" ", model="double", run=run, settings={"temperature": 1})
    assert store.value("SELECT COUNT(*) FROM runs") == 1 and bench.runs.get(run).settings.temperature is None
    first, second = (bench.call("run.act", prompt="two", model="double", run=run, fork=True, message_id="m") for _ in "ab")
    assert first["run"] == second["run"] != run and second["is_new"] is False
    assert store.value("SELECT COUNT(*) FROM runs") == 2


@pytest.mark.covers("R-037")
def test_prompt_sent_while_one_is_active_is_queued_and_answers_100(store: Store) -> None:
    bench = Bench(store, until_stopped)
    first = bench.call("run.act", prompt="one", model="double", wait=False)
    until(lambda: bench.runs.queue(first["run"])[0].status == 102)
    second = bench.call("run.act", prompt="two", model="double", run=first["run"], wait=False)
    third = bench.call("run.act", prompt="three", model="double", run=first["run"], wait=False)
    assert (second["status"], third["status"]) == (100, 100)
    fourth = bench.call("run.ask", prompt="four", model="double", run=first["run"])  # nor is it waited for
    assert fourth["status"] == 100
    assert [(loop.id, loop.status) for loop in bench.runs.queue(first["run"])] == [
        (first["loop"], 102),
        (second["loop"], 100),
        (third["loop"], 100),
        (fourth["loop"], 100),
    ]
    for loop in (first, second, third, fourth):  # first come, first served
        until(lambda loop=loop: bench.runs.loop(loop["loop"]).status == 102)  # type: ignore[misc]
        assert bench.call("run.stop", run=first["run"], is_queue_kept=True)["stopped"]
        until(lambda loop=loop: bench.runs.loop(loop["loop"]).status == 499)  # type: ignore[misc]


@pytest.mark.covers("R-038")
def test_abort_ends_only_the_current_loop_and_stop_ends_all(store: Store) -> None:
    bench = Bench(store, until_stopped)
    run = bench.call("run.act", prompt="one", model="double", wait=False)["run"]
    assert bench.call("run.stop", run=bench.desk.accept("idle").run, is_queue_kept=True)["stopped"] is False
    more = [bench.call("run.act", prompt=text, model="double", run=run, wait=False) for text in ("two", "three")]
    loops = [done["loop"] for done in more]
    until(lambda: bench.runs.queue(run)[0].status == 102)
    bench.call("run.stop", run=run, is_queue_kept=True)
    until(lambda: [loop.status for loop in bench.runs.queue(run)] == [102, 100])
    assert bench.runs.get(run).status == 102
    bench.inbox.stop(run)
    until(lambda: bench.runs.queue(run) == [])
    assert [bench.runs.loop(loop).status for loop in loops] == [499, 499]


@pytest.mark.covers("E-151", "R-174")
def test_what_is_queued_is_answered_after_an_abort(store: Store) -> None:
    speeches = iter((until_stopped, echo, echo))

    def speak(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield from next(speeches)(ask, cancel)

    bench = Bench(store, speak)
    first = bench.call("run.act", prompt="one", model="double", wait=False)
    until(lambda: bool(store.value("SELECT COUNT(*) FROM loops WHERE draft <> ''")))
    later = [bench.call("run.act", prompt=text, model="double", run=first["run"], wait=False) for text in ("two", "three")]
    assert [told["status"] for told in later] == [100, 100]
    assert bench.call("run.stop", run=first["run"], is_queue_kept=True) == {"run": first["run"], "stopped": True}
    until(lambda: bench.inbox.busy() == 0 and bench.runs.queue(first["run"]) == [])
    assert [bench.runs.loop(told["loop"]).status for told in (first, *later)] == [499, 200, 200]
    said = [e for e in bench.runs.events(first["run"]) if e.role == "assistant" and e.kind == "message"]
    assert [e.status for e in said] == [499, 200, 200]
    assert "two"[::-1] in said[1].content and "three"[::-1] in said[2].content


@pytest.mark.covers("E-152", "R-088", "R-175")
@pytest.mark.parametrize("layout", ["entries", "chat"])
def test_an_idle_run_begins_with_what_is_injected_and_a_busy_one_has_it_next(store: Store, layout: str) -> None:
    is_reached, may_go, speeches = threading.Event(), threading.Event(), iter((echo, call_then_echo, echo))

    def look(cancel: Cancel) -> str:
        is_reached.set()
        assert may_go.wait(60)
        return "an owl"

    def speak(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield from next(speeches)(ask, cancel)

    bench = Bench(store, speak)
    bench.desk.tools.look = look
    try:
        if layout == "entries":
            run = bench.call("run.act", prompt="one", model="double")["run"]
        else:
            run = bench.desk.accept("one", sender=user_name(os.getuid())).run
            bench.inbox.start_waiting()
        until(lambda: bench.runs.queue(run) == [] and bench.inbox.busy() == 0)
        begun = bench.call("run.inject", run=run, text="Look.")
        assert begun["status"] == 102 and is_reached.wait(60)
        at_once = bench.call("run.inject", run=run, text="And this?")  # nothing waits for the loop, which is held up
        assert at_once["status"] == 102 and bench.runs.loop(begun["loop"]).status == 102
    finally:
        may_go.set()
    until(lambda: bench.runs.queue(run) == [] and bench.inbox.busy() == 0)
    ends = [(loop["id"], loop["status"], loop["outcome"], len(loop["turns"])) for loop in bench.runs.loops_of(run)][1:]
    assert ends == [(begun["loop"], 200, "ok", 2), (at_once["loop"], 200, "injected", 0)]
    (event,) = [e for e in bench.runs.events(run) if e.kind == "message" and e.content == "And this?"]
    last = bench.runs.events(run)[-1]
    assert last.seq > event.seq and "And this?"[::-1] in last.content, "the loop that was busy is shown it in its next turn"


def test_earlier_prompt_goes_first_whoever_starts_first(store: Store) -> None:
    bench = Bench(store)
    first = bench.desk.accept("one")
    second = bench.desk.accept("two", thread=first.run)
    bench.inbox.start(second.loop)
    bench.inbox.start(first.loop)
    until(lambda: bench.inbox.busy() == 0)
    answers = [e.content for e in bench.runs.events(first.run) if e.role == "assistant"]
    assert answers == ["eno", "owt"]


def test_ones_own_conversation_is_closed_only_for_good(bench: Bench) -> None:
    mine = f"local:{user_name(os.getuid())}"
    bench.desk.accept("one", sender=mine.removeprefix("local:"))
    with pytest.raises(Refused, match="your own conversation") as caught:
        bench.call("session.change", id=mine, status="closed")
    assert "session archive" in caught.value.hint and "--final" in caught.value.hint
    assert bench.call("session.change", id=mine, status="closed", is_final=True)["status"] == "closed"
    assert bench.call("session.change", id=mine, status="closed")["status"] == "closed"


def test_closing_a_session_ends_what_waits_in_it_and_no_fork_is_made_there(bench: Bench, store: Store) -> None:
    waits = bench.desk.accept("one")  # recorded, and never begun
    assert bench.call("session.change", id="local:ann", status="closed")["status"] == "closed"
    assert (bench.runs.loop(waits.loop).status, bench.runs.queue(waits.run)) == (499, [])
    for method, more in (("run.fork", {}), ("run.jump", {"seq": 0})):
        with pytest.raises(Conflict, match="is closed"):
            bench.call(method, run=waits.run, **more)
    put_down = bench.desk.accept("two", sender="bob")
    bench.runs.start_loop(put_down.loop)
    bench.runs.pause_loop(bench.runs.loop(put_down.loop))
    bench.call("session.change", id="local:bob", status="archived")
    assert bench.call("run.fork", run=put_down.run)["session"] == "local:bob", "what is put away may be forked"


def test_what_another_process_answers_cannot_be_stopped_here_and_says_so(bench: Bench, store: Store) -> None:
    made = bench.desk.accept("one")
    other = subprocess.Popen(["sleep", "60"])
    try:
        elsewhere = Runs(store, clock.process(other.pid).encode())
        elsewhere.start_loop(made.loop)
        with pytest.raises(Conflict, match="another process") as error:
            bench.call("run.stop", run=made.run, is_queue_kept=True)
        assert "Ctrl+C" in error.value.hint
        with pytest.raises(Conflict, match="another process"):
            bench.inbox.stop(made.run)
    finally:
        other.kill()
        other.wait()
    assert bench.call("run.stop", run=made.run, is_queue_kept=True)["stopped"] is False


@pytest.mark.covers("R-043")
def test_any_client_may_use_any_run_of_the_same_user(bench: Bench) -> None:
    made = bench.call("run.act", prompt="one", model="double", alias="shared")
    another = bench.table()
    call = LocalCall(lambda name, value: None, client="another")
    done = another["run.act"].call(call, prompt="two", model="double", run="shared", wait=True)
    assert (done["run"], done["status"]) == (made["run"], 200)
    for method, more in (("run.view", {}), ("run.config", {"settings": {"no_web": True}}), ("run.config", {"alias": "renamed"})):
        assert another[method].call(call, run=made["run"], **more)
    assert bench.runs.get("renamed").settings.no_web


@pytest.mark.covers("R-031")
def test_write_to_a_runs_address_starts_it_and_a_cancelled_state_aborts_it(store: Store) -> None:
    bench = Bench(store, until_stopped)
    outcome = bench.call("run.write", ref="run://errand", body="go", attributes={"model": "double", "noWeb": True, "mode": "ask"})
    assert (outcome["status"], outcome["outcome"]) == (100, "queued")
    run = bench.runs.get("errand")
    assert (run.settings.model, run.settings.no_web, bench.runs.queue(run.id)[0].mode) == ("double", True, "ask")
    until(lambda: bench.runs.queue(run.id)[0].status == 102)
    assert bench.call("run.write", ref="run://errand", attributes={"state": "cancelled"})["status"] == 200  # the write succeeded
    until(lambda: bench.runs.get("errand").status == 499)
    assert bench.control.start("run://errand", "again", {}).status == 100  # the model is known by now
    until(lambda: bench.runs.get("errand").status == 102)
    bench.inbox.stop(run.id)
    until(lambda: bench.inbox.busy() == 0)
    with pytest.raises(BadInput, match="nothing to do"):
        bench.call("run.write", ref="run://errand")
    with pytest.raises(BadInput, match="no model"):
        bench.call("run.write", ref="run://unknown", body="go")


def test_persona_stays_and_settings_change(bench: Bench) -> None:
    made = bench.call("run.act", prompt="one", model="double", settings={"persona": "a poet"})
    with pytest.raises(BadInput, match="persona it began with"):
        bench.call("run.config", run=made["run"], settings={"persona": "a judge"})
    assert bench.call("run.config", run=made["run"], settings={"temperature": 1})["settings"]["temperature"] == 1
    assert bench.call("run.config", run=made["run"])["settings"]["persona"] == "a poet"
    with pytest.raises(Conflict, match="another run"):
        bench.call("run.config", run=bench.desk.accept("x").run, alias=made["alias"])


@pytest.mark.covers("A-215", "A-216")
def test_branches_are_seen_grown_and_walked_by_method(bench: Bench) -> None:
    run = bench.call("run.act", prompt="one", model="double", alias="tree")["run"]
    bench.call("run.act", prompt="left", model="double", run=run)
    bench.call("run.jump", run=run, seq=2)
    bench.call("run.act", prompt="right", model="double", run=run)
    assert [(b["text"], b["is_head"]) for b in bench.call("run.tree", run=run)] == [("one", False), ("right", True)]
    path = bench.call("run.path", run=run)
    assert [e["content"] for e in path["events"] if e["kind"] == "message"][::2] == ["one", "right"] and not path["has_more"]
    assert bench.call("run.path", run=run, limit=1)["has_more"]
    fork = bench.call("run.fork", run=run, seq=2, alias="fork")
    assert bench.call("run.view", run=run)["forks"] == [{"id": fork["id"], "alias": "fork"}]


@pytest.mark.covers("S-037")
def test_history_is_the_callers_own(bench: Bench) -> None:
    done = bench.call("run.act", prompt="one", model="double")
    bench.desk.answer("not mine", sender="somebody else")
    told = bench.call("history.list")
    assert [(t["role"], t["run"]) for t in told] == [("user", done["run"]), ("assistant", done["run"])]
    assert (told[0]["text"], told[1]["sender"]) == ("one", "assistant")
    assert [t["label"] for t in told] == ["[local / owner]", "[local / assistant]"]


# -- answers that cannot be kept --------------------------------------------------------------------


@pytest.mark.covers("S-014", "E-247")
def test_answer_that_cannot_be_kept_is_delivered_and_kept_later(tmp_path: Path) -> None:
    new_store(tmp_path / "owlbox.db").close()
    store = Store.open(tmp_path / "owlbox.db", busy_delays_ms=(5,))
    lock = apsw.Connection(str(store.path))

    def speak(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield Piece("The answer")
        if spoken(ask.messages[-1].content) == "first":
            lock.execute("BEGIN IMMEDIATE")  # from now on nothing can be written
        yield Finish("stop", provider="double", model="d")

    bench = Bench(store, speak)
    heard = list(bench.desk.ask("first"))
    run = bench.runs.list_runs()[0].id
    assert heard[-1] == LoopEnded(200, "ok")
    assert "".join(item.text for item in heard if isinstance(item, Delta)) == "The answer"
    assert [item.content for item in heard if isinstance(item, Event) and item.kind == "message"] == ["The answer"]
    assert bench.texts(run) == ["first"]
    lock.execute("ROLLBACK")
    bench.desk.answer("second", thread=run)
    until(lambda: bench.inbox.busy() == 0)
    assert sorted(bench.texts(run)) == ["The answer", "The answer", "first", "second"]
    assert [loop["status"] for loop in bench.runs.loops_of(run)] == [200, 200]
    assert [t["model"] for t in bench.runs.turns(run)] == ["d", "d"]
    lock.close()
    store.close()


@pytest.mark.covers("A-105")
def test_other_model_is_told_while_it_answers(store: Store) -> None:
    def speak(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield Piece("hoot")
        yield Finish("stop", provider="double", model=spoken(ask.messages[-1].content))

    bench = Bench(store, speak)
    run = bench.desk.accept("owl")
    bench.inbox.start(run.loop)
    until(lambda: bench.inbox.busy() == 0)
    heard = bench.desk.answer("lark", thread=run.run)
    [event] = [item for item in heard if isinstance(item, Event) and item.kind == "model_change"]
    assert event.input == {"previous": "double/owl", "new": "double/lark"}
    assert [m.content for m in bench.runs.recent(run.run, 80)] == ["owl", "hoot", "lark", "hoot"]


# -- files ------------------------------------------------------------------------------------------


class Way:
    """A reach that calls the bench."""

    is_remote = False

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def call(self, method: str, params: dict[str, Any] | None = None, listen: Any = None) -> Any:
        if listen is None:
            return self._bench.call(method, **(params or {}))
        self._bench.told.clear()
        result = self._bench.call(method, **(params or {}))
        for name, value in self._bench.told:
            listen(name, value)
        return result

    def stop(self, run: str) -> None:
        self._bench.inbox.stop(run)

    def close(self) -> None:
        pass


@pytest.mark.covers("A-218", "A-220")
def test_export_is_one_private_file_whole_or_not_at_all(bench: Bench, tmp_path: Path) -> None:
    bench.desk.answer("y" * 90_000)
    target = tmp_path / "deep" / "er" / "ann.jsonl"
    assert annals.write_stream(Way(bench), {"id": "local:ann"}, str(target)) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    lines = target.read_text("utf-8").splitlines()
    assert len(json.loads(next(line for line in lines if '"role": "user"' in line))["content"]) == 90_000
    before = target.read_bytes()
    with pytest.raises(NotFound):
        annals.write_stream(Way(bench), {"id": "local:nobody"}, str(target))
    assert target.read_bytes() == before and [p.name for p in target.parent.iterdir()] == ["ann.jsonl"]


@pytest.mark.covers("A-024", "A-025", "A-219", "A-220", "E-253")
def test_folder_of_files_is_read_as_far_as_it_can_be(bench: Bench, tmp_path: Path) -> None:
    bench.desk.answer("one")
    folder = tmp_path / "sessions" / "user"
    annals.write_stream(Way(bench), {"id": "local:ann"}, str(folder / "good.jsonl"))
    (folder / "bad.jsonl").write_bytes(b"\xff\xfe nonsense\n{half\n")
    (folder / "notes.txt").write_text("not ours")
    found = annals.files([str(tmp_path / "sessions")])
    assert [Path(one).name for one in found] == ["bad.jsonl", "good.jsonl"]
    assert annals.files([str(tmp_path / "nothing here")]) == []  # nothing to restore is no error
    other = Bench(new_store(tmp_path / "other.db"))
    damaged = 0
    for path in found:
        for lines, bad in annals.parts(open(path, "rb")):
            damaged += bad + other.call("session.import", lines=lines)["damaged"]
    assert damaged == 2
    assert [s["id"] for s in other.call("session.list")] == ["local:ann"]
    assert other.texts(other.runs.list_runs()[0].id) == ["one", "eno"]


def test_commands_do_all_of_it(bench: Bench, home: Home, runtime: Path, monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    bench.call("run.act", prompt="one", model="double", alias="first")
    bench.call("run.fork", run="first", alias="fork")
    target = tmp_path / "ann.jsonl"
    annals.write_stream(Way(bench), {"id": bench.runs.sessions()[0]["id"]}, str(target))
    session = bench.runs.sessions()[0]["id"]
    new_store(home.database).close()
    home.config.write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))

    def owlbox(*words: str, code: int = 0) -> str:
        assert main.main(["--home", str(home.root), *words]) == code
        out, err = capsys.readouterr()
        return str(out if code == 0 else err)

    assert "1 sessions, 2 threads" in owlbox("session", "import", str(target))
    assert "0 sessions, 0 threads" in owlbox("session", "import", str(target))
    assert "nothing to restore" in owlbox("session", "import", str(tmp_path / "nowhere"))
    assert session in owlbox("session", "list", "--status", "idle")
    assert "fork" in owlbox("run", "tree", "first") and "forked off: " in owlbox("run", "view", "fork")
    changed = owlbox("run", "config", "first", "temperature=0.5", "no-web=true")
    assert "temperature 0.5, approval review, layout entries, no web" in changed
    assert "no web" not in owlbox("run", "config", "first", "no_web=false")
    assert "use 0 to 2" in owlbox("run", "config", "first", "temperature=9", code=2)
    assert "renamed" in owlbox("run", "rename", "first", "renamed")
    assert "third" in owlbox("run", "fork", "renamed", "--at", "1", "--name", "third")
    assert "renamed" in owlbox("run", "jump", "renamed", "1")
    assert "nothing is being answered" in owlbox("run", "abort", "renamed")
    assert owlbox("thread", "export", "third").count('"type": "run"') == 2
    assert owlbox("session", "export", session) != ""
    [path] = json.loads(owlbox("--json", "session", "export", "--all", str(tmp_path / "all")))
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700 == stat.S_IMODE((tmp_path / "all").stat().st_mode)
    assert "is archived" in owlbox("session", "archive", session) and "is active" in owlbox("session", "resume", session)
    assert "close it first" in owlbox("session", "delete", session, code=1)
    assert "is closed" in owlbox("session", "close", session, "--final") and "deleted" in owlbox("session", "delete", session)
    assert "no sessions" in owlbox("session", "list")
    assert "is not a date" in owlbox("session", "list", "--after", "soon", code=2)
