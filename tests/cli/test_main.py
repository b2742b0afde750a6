"""The command line, end to end: real homes, real processes, a scripted model."""

import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import quick
from process import PLAY, Box, a_box, clean_environ, left_over, script, tree, until  # noqa: F401

from appliance.clock import sleep_s
from appliance.records import Event
from appliance.runtime import paths
from appliance.runtime.jsonrpc import Wire
from appliance.runtime.paths import Home
from appliance.runtime.rpc_server import listen
from appliance.runtime.settings import Config
from appliance.sessions.runs import Runs

IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


# -- init -------------------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path, runtime: Path) -> Box:
    """A place where no home is yet."""
    return Box(Home(tmp_path / "new"), clean_environ(tmp_path, runtime))


MADE = """\
owlbox.toml owlbox.db .gitignore box/SOUL.md box/IDENTITY.md box/USER.md box/AGENTS.md box/HEARTBEAT.md box/BOOTSTRAP.md
box/skills box/roles box/users box/groups box/notes models sessions logs backups""".split()


@pytest.mark.covers("B-148", "A-210")
def test_init_makes_everything_in_one_folder_that_is_private(empty: Box) -> None:
    assert empty.run("init").returncode == 0
    assert [name for name in MADE if not (empty.home.root / name).exists()] == []
    assert empty.home.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.covers("B-148")
def test_init_sets_no_key_names_mcp_and_ignores_the_database(empty: Box) -> None:
    empty.run("init")
    text = empty.home.config.read_text()
    assert '\nkey = ""' not in text and "[tools.mcp.NAME]" in text
    subprocess.run(["git", "init", "-q", str(empty.home.root)], check=True)
    status = subprocess.run(
        ["git", "-C", str(empty.home.root), "status", "--short", "-uall"], capture_output=True, text=True, check=True
    )
    assert "box/SOUL.md" in status.stdout and "owlbox.db" not in status.stdout


def test_every_line_of_the_first_configuration_can_be_used(empty: Box) -> None:
    empty.run("init")
    lines = empty.home.config.read_text().splitlines()
    keys = [line.removeprefix("#") if re.match(r"#[\w\[]", line) else line for line in lines]
    empty.home.config.write_text("\n".join(keys))
    assert empty.run("status").returncode == 0


@pytest.mark.covers("B-148")
def test_init_refuses_an_existing_home_and_never_overwrites(box: Box) -> None:
    (box.home.box / "SOUL.md").write_text("I am mine.")
    (box.home.box / "USER.md").unlink()
    box.home.config.write_text("[models]\nthreads = 3\n")
    refused = box.run("init")
    assert refused.returncode == 1 and "--force" in refused.stderr and not (box.home.box / "USER.md").exists()
    assert box.run("init", "--force").returncode == 0
    assert (box.home.box / "SOUL.md").read_text() == "I am mine." and "threads = 3" in box.home.config.read_text()
    assert (box.home.box / "USER.md").exists()


def test_init_leaves_a_folder_with_other_things_alone(empty: Box) -> None:
    empty.home.root.mkdir()
    (empty.home.root / "taxes.txt").write_text("1")
    refused = empty.run("init")
    assert refused.returncode == 1 and "not empty" in refused.stderr
    assert os.listdir(empty.home.root) == ["taxes.txt"]


def test_a_path_in_which_no_database_could_be_is_refused_before_anything_is_made(tmp_path: Path, runtime: Path) -> None:
    root = tmp_path / "a"
    while len(bytes(root)) < paths.MAX_HOME_BYTES - 250:
        root = root / ("a" * 100)
    root = root / ("a" * (paths.MAX_HOME_BYTES - len(bytes(root)) - 1)) / "b"
    (tmp_path / "link").symlink_to(root)
    for place in (root, tmp_path / "link"):
        for command in ("init", "serve", "status"):
            done = Box(Home(place), clean_environ(tmp_path, runtime)).run(command)
            assert done.returncode == 2 and "has 402 bytes, at most 400" in done.stderr and "shorter path" in done.stderr
    assert not (tmp_path / "a").exists()
    longest = Box(Home(root.parent), clean_environ(tmp_path, runtime))
    assert longest.run("init").returncode == 0
    assert longest.run("backup").returncode == 0


@pytest.mark.covers("B-151", "B-152")
def test_two_homes_share_nothing_and_nothing_is_written_elsewhere(tmp_path: Path, runtime: Path) -> None:
    environ = clean_environ(tmp_path, runtime)
    one, two = (Box(Home(tmp_path / name), dict(environ)) for name in ("one", "two"))
    for box in (one, two):
        assert box.run("init").returncode == 0
        script(box, PLAY)
    one.run("remember", "the key is under the mat", "--title", "key")
    core = one.serve()
    try:
        assert one.run("ask", "hello").stdout == two.run("ask", "hello").stdout == "Hoot hoot.\n"
        alone = two.json("status")
        assert (alone["core"], alone["state"], alone["pid"], alone["uptime_s"]) == ("not running", "not running", None, 0)
        assert one.json("status")["core"] == "running"
    finally:
        assert core.stop() == 0
    assert "under the mat" not in two.run("search", "mat").stdout and "mat" in one.run("search", "mat").stdout
    assert len(one.json("thread", "list")) == len(two.json("thread", "list")) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "person", "two"]
    assert tree(Path(environ["HOME"])) == {}


# -- asking -----------------------------------------------------------------------------------------


@pytest.mark.covers("B-171")
def test_a_script_replaces_every_model_without_key_or_network(box: Box) -> None:
    script(box, 'title = "T"\n[[turns]]\nmatch = "two"\ntext = "second"\n[[turns]]\ntext = "first"\n')
    assert not list(box.home.models.glob("*.gguf"))
    done = [box.run("ask", word).stdout for word in ("one", "two")]
    assert done == ["first\n", "second\n"]


@pytest.mark.covers("B-171")
def test_turns_are_used_in_order_and_titles_use_none(box: Box) -> None:
    script(box, 'otherwise = "none left"\n[[turns]]\ntext = "first"\n[[turns]]\nchunks = ["sec", "ond"]\n')
    core = box.serve()
    assert [box.run("ask", f"question {i}").stdout for i in range(3)] == ["first\n", "second\n", "none left\n"]
    assert core.stop() == 0


@pytest.mark.covers("S-004", "B-171")
def test_a_scripted_call_runs_the_real_tool_and_is_recorded(box: Box) -> None:
    call = 'tool_calls = [{name = "remember", arguments = {text = "the bin goes out on Monday", title = "bin"}}]'
    script(box, f'[[turns]]\n{call}\n[[turns]]\ntext = "Kept."\n')
    answer = box.json("ask", "keep that the bin goes out on Monday")
    assert answer["answer"] == "Kept."
    kinds = [(e["kind"], e["role"]) for e in box.events(answer["run"])]
    assert kinds == [("message", "user"), ("tool_use", "assistant"), ("tool_result", "tool"), ("message", "assistant")]
    assert "Monday" in box.run("search", "bin").stdout


def test_a_question_may_come_through_a_pipe(box: Box) -> None:
    script(box, '[[turns]]\nmatch = "Sum up[^\\\\S]+.*line two"\ntext = "both"\n')
    assert box.run("ask", "Sum", "up", text="line one line two\n").stdout == "both\n"
    assert box.run("ask", text="hello").returncode == 0


@pytest.mark.covers("S-100")
def test_ask_streams_while_the_model_speaks(box: Box) -> None:
    child = box.start("ask", "slow one")
    assert child.stdout is not None
    first = os.read(child.stdout.fileno(), 4)
    assert first == b"one " and child.poll() is None
    assert child.stdout.read().endswith(b"fourteen\n") and child.wait(60) == 0
    assert left_over(box) == []  # it ends what it started


def test_a_reader_that_leaves_is_no_traceback(box: Box) -> None:
    child = box.start("ask", "slow one")
    assert child.stdout is not None and child.stderr is not None
    os.read(child.stdout.fileno(), 1)
    child.stdout.close()
    child.wait(60)
    assert child.stderr.read() == b""
    child.stdout = None


@pytest.mark.covers("E-325")
def test_slash_commands_in_chat_are_done_here_and_not_sent(box: Box) -> None:
    lines = "/help\n/status\n/threads\nhello\n/nosuch\n/new\nagain\n/quit\nnever\n"
    done = box.run("chat", text=lines)
    assert done.returncode == 0 and done.stdout == "Hoot hoot.\nHoot hoot.\n"
    assert "broker" in done.stderr and "unknown command /nosuch" in done.stderr
    threads = box.json("thread", "list")
    assert sorted(t["title"] for t in threads) == ["again", "hello"]
    assert all([e["content"] for e in box.events(t["id"])] == [t["title"], "Hoot hoot."] for t in threads)


def test_chat_goes_on_in_a_thread(box: Box) -> None:
    assert box.run("chat", "-p", "first", text="second\n").stdout == "Hoot hoot.\nHoot hoot.\n"
    (thread,) = box.json("thread", "list")
    box.run("chat", "--thread", thread["id"][-8:], text="third\n")
    assert [e["content"] for e in box.events(thread["id"]) if e["role"] == "user"] == ["first", "second", "third"]


@pytest.mark.covers("B-005")
def test_everything_else_answers_while_one_long_answer_goes_on(box: Box) -> None:
    core = box.serve()
    long = box.start("ask", "stuck")
    until(lambda: core.call("core.status")["answering"] == 1, "the long answer goes on")
    assert box.run("remember", "tea at four", "--title", "tea").returncode == 0
    assert "tea" in box.run("search", "tea").stdout
    assert box.json("thread", "list")[0]["status"] == 102
    (thread,) = box.json("thread", "list")
    assert core.call("run.stop", run=thread["id"])["stopped"] is True
    assert long.wait(60) == 1
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"


def test_stopping_with_ctrl_c_keeps_what_was_said(box: Box) -> None:
    core = box.serve()
    child = box.start("ask", "endless one")
    assert child.stdout is not None
    os.read(child.stdout.fileno(), 4)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 1
    until(lambda: core.call("core.status")["answering"] == 0, "the answer stops")
    (thread,) = box.json("thread", "list")
    said = box.events(thread["id"])
    assert thread["outcome"] == "cancelled" and said[1]["content"].startswith("one ")


# -- threads ----------------------------------------------------------------------------------------


LISTS: list[tuple[list[str], list[str]]] = [
    ([], ["two", "one", "talk"]),
    (["--type", "ask"], ["two", "one"]),
    (["--type", "chat"], ["talk"]),
    (["--limit", "1"], ["two"]),
    (["--limit", "1", "--offset", "1"], ["one"]),
]


@pytest.mark.covers("B-056")
def test_thread_list_newest_first_by_type_and_by_page(box: Box) -> None:
    box.run("chat", text="talk\n")
    box.run("ask", "one")
    box.run("ask", "two")
    for words, titles in LISTS:
        assert [t["title"] for t in box.json("thread", "list", *words)] == titles
    assert [line.split()[-1] for line in box.run("thread", "list").stdout.splitlines()] == ["title", "two", "one", "talk"]


@pytest.mark.covers("B-056")
def test_thread_view_shows_all_or_some_roles(box: Box) -> None:
    run = box.json("ask", "what is this?")["run"]
    whole, some = (box.run("thread", "view", run, *more).stdout for more in ([], ["--only", "assistant,tool"]))
    assert "what is this?" in whole.split("\n", 1)[1] and "Hoot hoot." in whole
    assert "Hoot hoot." in some and "user" not in some.split("\n", 1)[1]


@pytest.mark.covers("B-056")
def test_thread_delete_takes_its_events_along(box: Box) -> None:
    run, other = (box.json("ask", word)["run"] for word in ("one", "two"))
    assert box.json("thread", "delete", run) == {"run": run, "events": 2}
    with box.store() as store:
        assert store.value("SELECT COUNT(*) FROM events WHERE run = ?", (run,)) == 0
    assert [t["id"] for t in box.json("thread", "list")] == [other]


@pytest.mark.covers("B-056")
@pytest.mark.parametrize("action", ["view", "delete", "follow"])
def test_an_unknown_thread_is_an_error(box: Box, action: str) -> None:
    done = box.run("thread", action, "feedbeef")
    assert done.returncode == 3 and "feedbeef" in done.stderr and done.stdout == ""


@pytest.mark.covers("B-056")
def test_follow_shows_the_newest_open_thread_and_ends_with_it(box: Box) -> None:
    core = box.serve()
    box.run("chat", text="an older one that stays open\n")
    asked = box.start("ask", "endless one")
    assert asked.stdout is not None and os.read(asked.stdout.fileno(), 4) == b"one "
    follower = box.start("thread", "follow", "--interval", "100")
    assert follower.stdout is not None
    shown = follower.stdout.readline()
    while b"endless one" not in shown:
        shown += follower.stdout.readline()
    core.call("run.stop", run=core.call("thread.list")[0]["id"])
    assert asked.wait(60) == 1 and follower.wait(60) == 0
    shown += follower.stdout.read()
    assert b"     one" in shown and b"cancelled: stopped" in shown and b"older" not in shown


@pytest.mark.covers("B-056")
def test_follow_of_an_ended_thread_ends_at_once_and_none_open_is_an_error(box: Box) -> None:
    run = box.json("ask", "hello")["run"]
    events = [json.loads(line) for line in box.run("thread", "follow", run, "--json").stdout.splitlines()]
    assert [e["seq"] for e in events] == [1, 2]
    assert box.run("thread", "follow").returncode == 3


def test_a_huge_thread_is_shown_page_by_page_and_a_huge_event_cut(box: Box) -> None:
    run = box.json("ask", "hello")["run"]
    with box.store() as store, store.write():
        runs = Runs(store, "")
        for n in range(450):
            runs.append(Event(run=run, kind="message", role="user", content=f"{n} " + "\x01" * 5000))
        runs.append(Event(run=run, kind="tool_result", role="tool", content="z" * 5_000_000))
    core = box.serve()
    events = box.events(run)
    assert [e["seq"] for e in events] == list(range(1, 454)) and events[2]["content"].startswith("0 \x01")
    assert events[-1]["content"].endswith("\n[cut: 100000 of 5000000 characters shown]")
    assert box.run("thread", "view", run).stdout.count(" · message\n") == 452
    page = core.call("thread.view", id=run, limit=2)
    assert page["has_more"] and [e["seq"] for e in page["events"]] == [1, 2]


def test_an_answer_larger_than_a_frame_arrives_cut(box: Box) -> None:
    script(box, f'[[turns]]\ntext = "{"z" * 5_000_000}"\nchunk_size = 500_000\n')
    core = box.serve()
    got = box.run("ask", "say much").stdout
    assert len(got) == 5_000_001
    assert core.call("thread.list")[0]["status"] == 200


def test_what_the_model_says_never_steers_a_terminal(box: Box) -> None:
    script(box, '[[turns]]\nrepeat = true\ntext = "a\\u001b]0;owned\\u0007b\\u009b2Jc\\u202ed\\te"\nchunk_size = 1\n')
    assert box.run("ask", "hi").stdout == "a\x1b]0;owned\x07b\x9b2Jc\u202ed\te\n"
    run = box.json("thread", "list")[0]["id"]
    for words in (["ask", "hi"], ["thread", "view", run], ["thread", "follow", run], ["thread", "view", run, "--json"]):
        terminal, end = os.openpty()
        with open(terminal, "rb", buffering=0) as out:
            assert quick.popen(box.command(*words), env=box.environ, stdin=subprocess.DEVNULL, stdout=end).wait(180) == 0
            os.close(end)
            said = out.read(65536).decode()
        assert "owned" in said and not set(said) & set("\x1b\x07\x9b\u202e"), words


# -- prompt -----------------------------------------------------------------------------------------


def test_prompt_size_is_shown_by_part(box: Box) -> None:
    size = box.json("prompt-size")
    assert size["static"] == sum(n for name, n in size["groups"].items() if name != "person")
    shown = box.run("prompt-size").stdout
    assert all(name in shown for name in ("instructions", "tools", "documents", "skills", "person"))


def test_the_persons_own_text_is_counted_apart(box: Box) -> None:
    before = box.json("prompt-size")["groups"]
    (box.home.box / "USER.md").write_text("# User\n\nAda lives in London and keeps bees.\n")
    after = box.json("prompt-size")["groups"]
    assert before["person"] == 0 < after["person"] and after["documents"] == before["documents"]


# -- the shape of things ------------------------------------------------------------------------------


def test_json_and_home_may_stand_anywhere(box: Box) -> None:
    root = str(box.home.root)
    after = [*box.command()[:3], "status", "--json", "--home", root]
    plain = subprocess.run(after, capture_output=True, env=box.environ, check=True)
    assert json.loads(plain.stdout)["home"] == root
    environ = {**box.environ, "OWLBOX_HOME": root}
    other = subprocess.run([*box.command()[:3], "--json", "status"], capture_output=True, env=environ, check=True)
    assert json.loads(other.stdout)["home"] == root


def test_commands_work_side_by_side_without_a_core(box: Box) -> None:
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda i=i: codes.append(box.run("remember", f"thing {i}", "--title", f"thing {i}").returncode))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0, 0, 0, 0] and len(box.json("entry", "list", "memory://")) == 4


def test_no_heavy_package_is_imported_to_ask_a_running_core(box: Box) -> None:
    core = box.serve()
    words = box.command("status")
    words[1:1] = ["-X", "importtime"]
    done = subprocess.run(words, capture_output=True, text=True, env=box.environ, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "appliance.runtime.rpc_client" in loaded
    assert not loaded & {
        "apsw",
        "msgspec",
        "yaml",
        "llama_cpp",
        "numpy",
        "textual",
        "appliance.service.daemon",
        "appliance.runtime.config",
    }
    assert core.stop() == 0


@pytest.mark.covers("A-185")
def test_handed_in_without_a_core_is_answered_when_one_starts(box: Box) -> None:
    done = box.run("ask", "--later", "are you there?")
    assert done.returncode == 0
    (run,) = IDS.findall(done.stdout)
    assert box.json("thread", "list")[0]["status"] == 100
    core = box.serve()
    until(lambda: core.call("thread.view", id=run)["thread"]["status"] == 200, "it is answered")
    assert core.call("thread.view", id=run)["events"][-1]["content"] == "Hoot hoot."


def test_defaults_hold_without_a_configuration_file(box: Box) -> None:
    box.home.config.unlink()
    assert box.json("status")["default_pool"] == Config().models.pool


# -- a core that goes away ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_question_that_waits_when_the_core_stops_is_said_to_be_kept(box: Box, form: list[str]) -> None:
    core = box.serve()
    first = box.start("ask", "stuck")
    until(lambda: core.call("core.status")["answering"] == 1, "one is answered")
    second = box.start("ask", "and this?", *form)
    until(lambda: core.call("core.status")["answering"] == 2, "one waits")
    assert core.stop() == 0 and first.wait(60) == 1 and second.wait(60) == 5
    assert second.stdout is not None and second.stderr is not None
    if form:
        assert json.loads(second.stdout.read())["status"] == 100
    else:
        said = second.stderr.read().decode()
        assert re.fullmatch(f"owlbox: kept: it will be answered after the restart: owlbox thread view {IDS.pattern}\n", said)


def test_a_core_that_is_just_being_started_is_waited_for(box: Box) -> None:
    """systemd holds its socket meanwhile: whoever calls has a connection, and no greeting for a while."""
    box.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = paths.core_socket(box.runtime)
    server = listen(path)
    child = box.start("thread", "list")
    wire = Wire(server.accept()[0])
    lines = wire.lines()
    hello = json.loads(next(lines))  # type: ignore[arg-type]
    sleep_s(6)
    assert child.poll() is None
    wire.send({"jsonrpc": "2.0", "id": hello["id"], "result": {}})
    assert json.loads(next(lines))["method"] == "thread.list"  # type: ignore[arg-type]
    wire.close()
    server.close()


def test_a_question_that_a_dying_core_did_not_accept_is_asked_again(box: Box) -> None:
    box.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = paths.core_socket(box.runtime)
    server = listen(path)
    child = box.start("ask", "hello")
    wire = Wire(server.accept()[0])
    lines = wire.lines()
    hello = json.loads(next(lines))  # type: ignore[arg-type]
    wire.send({"jsonrpc": "2.0", "id": hello["id"], "result": {}})
    asked = json.loads(next(lines))  # type: ignore[arg-type]
    while asked["method"] != "message.send":  # what waits for the person is asked for first
        wire.send({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        asked = json.loads(next(lines))  # type: ignore[arg-type]
    server.close()
    path.unlink()
    wire.close()
    assert child.stdout is not None and child.wait(60) == 0 and child.stdout.read() == b"Hoot hoot.\n"
    with box.store() as store:
        assert store.value("SELECT group_concat(message_id) FROM inbox").endswith(asked["params"]["message_id"])
        assert store.value("SELECT COUNT(*) FROM inbox") == 1
