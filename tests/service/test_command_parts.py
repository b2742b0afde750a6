"""Commands in runs: the scripted model over the real broker, decisions, channels that grow, and how they end."""

import json
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from process import clean_environ
from record_tools import replace
from stores import let_chats_do_all, new_home
from test_database import until
from test_scenarios import CHAT, ENTRIES, WILD, Stage, Told, script

from appliance.agent.command_output import CommandEnd
from appliance.agent.tool_messages import Postbox, ToolMessage
from appliance.agent.toolbox import Caller
from appliance.clock import CancelToken, new_id, now_ms
from appliance.errors import BadInput, Conflict, DiskFull, NotFound, Refused, TooLarge, Unavailable
from appliance.knowledge.verb_arguments import Look
from appliance.knowledge.views import Actor
from appliance.policy.audit_log import AuditQuery
from appliance.records import Inbound, RunSettings, Terms, ToolCall
from appliance.runtime.methods import LocalCall, find_methods
from appliance.runtime.paths import Home
from appliance.runtime.settings import Orchestrator
from appliance.runtime.subscriptions import Notice, Signal
from appliance.sandbox.workspace import Workbench, WorkspaceJob
from appliance.service.core import Core

pytestmark = needs("bwrap", "perl")
YOLO_CHAT = RunSettings(approval="auto")
SILENT = RunSettings(layout="entries", no_proposals=True)


def native(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": "use", "arguments": {"tool": name, "arguments": arguments}}]}


ANSWERS: dict[str, Sequence[Any]] = {
    "accepted": ["<sh>echo out; echo err >&2; exit 3</sh>", "Done."],
    "refused": ["<sh>echo no</sh>", "never said"],
    "never": ["<sh>echo never</sh>", "It did not run."],
    "left": ["<sh>echo left</sh>", "never said"],
    "filled": ["<sh>echo filled</sh>", "never said"],
    **dict.fromkeys(("abort", "complete", "elsewhere"), ["<sh>echo begun; sleep 60</sh>", "It runs."]),
    "stopped": ["<sh>echo begun; sleep 60</sh>", "It runs."],
    "printed": ["<sh>date</sh>", "It is noon."],
    "long": ["<sh>echo first; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3; echo line $i; done; sleep 60</sh>", "It runs."],
    "yolo": ["<sh>echo a; echo b >&2</sh><env>ls; touch x</env>", "Done."],
    "yolo-fails": ["<sh>echo a; exit 4</sh>", "It failed."],
    "yolo-long": ["<sh>echo begun; sleep 60</sh>", "never said"],
    **dict.fromkeys(("cancel-yolo", "cancel-auto"), ["<sh>echo begun; sleep 60</sh>", "It was stopped."]),
    "asked": ["<sh>touch asked</sh>", "I may not."],
    "learns": ['<set path="known://rain">It rains.</set>', "It is too long."],
    "silent": ["<sh>touch silent</sh>", "I may not."],
    "blocked": ["<sh>sudo ls</sh>", "I may not."],
    "blocked-2": ["<sh>sudo ls</sh>", "I may not."],
    "chat": [native("exec", command="echo from the chat; exit 2"), "It said so."],
    "chat-long": [native("exec", command="echo begun; sleep 60"), "It was stopped."],
    "chat-yolo": [native("exec", command="echo at once"), "It said so."],
    "chat-files": [native("write_file", path="a.txt", content="kept"), native("read_file", path="a.txt"), "Written."],
    "yolo-sees": ['<set path="seen.md">new</set><sh>cat seen.md</sh><rm path="seen.md"/><sh>ls</sh>', "Done."],
    "workspace": [native("write_file", path="plan.md", content="new"), "Written."],
    "edited": [native("write_file", path="plan.md", content="mine"), "It had changed."],
    "edited-2": [native("edit_file", path="plan.md", old_text="old", new_text="new"), "It had changed."],
    "edited-3": [native("write_file", path="not/yet.md", content="mine"), "It is there now."],
    "script": [native("exec", command="cd sub && bash job.sh; true"), "It ran."],
    "script-edited": [native("exec", command="bash job.sh"), "It had changed."],
    "script-late": [native("exec", command="yes | head -n 1; bash job.sh"), "It had changed."],
    "fork": ["<sh>echo a; sleep 1</sh>", "It runs."],
    "task": [native("exec", command="echo at work"), "Done."],
    "message": [native("message", content="Look!"), "Sent."],
}


@contextmanager
def opened(folder: Path, **keys: str) -> Iterator[Stage]:
    runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir(0o700)
    home = Home(folder / "home")
    if not home.database.exists():
        new_home(home)
        let_chats_do_all(home)
    given = {"OWLBOX__MODELS__SCRIPT": script(folder, ANSWERS), "OWLBOX__MODELS__CONTEXT": "200000"}
    given |= {f"OWLBOX__{name}": value for name, value in keys.items()}
    core = Core(home, clean_environ(folder, runtime) | given, process="cli", is_shared=False)
    core.recover()
    yield Stage(core)
    assert core.close("the test is over") == []
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with opened(tmp_path_factory.mktemp("workshop")) as made:
        yield made


def channels(stage: Stage, run: str) -> dict[str, tuple[str, int, str, str]]:
    """The channels of a run: state, status, visibility, and body."""
    sql = "SELECT path, state, status, visibility, body FROM run_entries WHERE run = ? AND (path LIKE 'sh:%' OR path LIKE 'env:%')"
    return {path: tuple(rest) for path, *rest in stage.core.store.rows(f"{sql} ORDER BY path", (run,))}  # type: ignore[misc]


def ended(stage: Stage, run: str) -> None:
    until(lambda: channels(stage, run) and all(status != 102 for _, status, _, _ in channels(stage, run).values()))


def decided(stage: Stage, told: Told, decision: Any = "accept", output: str = "") -> Told:
    return stage.decide(told, decision, output)[0]


# -- a run that is shown its entries --------------------------------------------------------------------


@pytest.mark.covers("R-097", "R-098", "R-099", "R-096", "R-094")
def test_an_accepted_command_runs_into_two_channels(stage: Stage) -> None:
    told = stage.ask("[accepted] Run it.")
    (ref,) = stage.waiting(told.run)
    assert told.end.status == 202 and ref.startswith("log://turn_1/sh/") and channels(stage, told.run) == {}
    after = decided(stage, told)
    ended(stage, told.run)
    slug = ref.rpartition("/")[2]
    found = channels(stage, told.run)
    assert found == {
        f"sh://turn_1/{slug}_1": ("failed", 500, "summarized", "out\n"),
        f"sh://turn_1/{slug}_2": ("failed", 500, "summarized", "err\n"),
    }
    state, status, body = stage.log(told.run)[ref]
    assert (state, status) == ("resolved", 200) and body.startswith("exit code 3 after ") and "_1: 4 bytes" in body
    assert "out\n" not in body and "err\n" not in body and after.said == "Done."
    given = stage.core.entries.get(ref, scope=f"run:{told.run}").attributes
    assert given["exit_code"] == 3 and given["duration_ms"] > 0 and set(given["channels"].values()) == {4}


@pytest.mark.covers("R-097")
def test_a_rejected_command_has_no_channels(stage: Stage) -> None:
    told = stage.ask("[refused] Run it.")
    (ref,) = stage.waiting(told.run)
    decided(stage, told, "reject")
    assert channels(stage, told.run) == {} and stage.log(told.run)[ref][:2] == ("failed", 403)


@pytest.mark.covers("R-098")
def test_what_a_client_ran_itself_goes_into_the_channel(stage: Stage) -> None:
    told = stage.ask("[printed] What time is it?")
    (ref,) = stage.waiting(told.run)
    after = decided(stage, told, output="12:00")
    found = [(status, body) for _, status, _, body in channels(stage, told.run).values()]
    assert found == [(200, "12:00"), (200, "")] and "12:00" not in stage.log(told.run)[ref][2]
    assert after.said == "It is noon." and "12:00" in after.events("tool_result")[0].content


@pytest.mark.covers("R-102", "R-101", "R-097", "R-099", "R-100", "R-176", "R-184", "A-279")
def test_a_command_grows_is_sampled_and_is_cancelled(stage: Stage) -> None:
    told = stage.ask("[long] Run it.")
    after = decided(stage, told)
    assert after.said == "It runs." and after.end.status == 200  # the run did not wait for it
    (first, second) = channels(stage, told.run)
    until(lambda: "line 3" in channels(stage, told.run)[first][3])
    assert [found[:2] for found in channels(stage, told.run).values()] == [("streaming", 102)] * 2
    actor = Actor("model", told.run, *stage.core.runs.moment(told.run))
    tail = stage.core.verbs.get(actor, first, Look(line=-1))
    assert tail.status == 200 and tail.message.splitlines()[1].startswith("line ")
    assert stage.core.verbs.get(actor, first, Look(line=1, limit=1)).message.splitlines()[1] == "first"
    entry = stage.core.entries.get(first, scope=f"run:{told.run}")
    stage.core.views.demote(actor, [entry.id])
    assert channels(stage, told.run)[first][:3] == ("streaming", 102, "archived")
    assert stage.core.commands.executions.tails()[0]["tail"].count("\n") <= 2
    heard = stage.core.queue.notices.subscribe("")
    assert call(stage, "stream.cancel", run=told.run, path=first, reason="enough") == {"stopped": 1}
    ended(stage, told.run)
    assert [found[:2] for found in channels(stage, told.run).values()] == [("cancelled", 499)] * 2
    assert "line 3" in channels(stage, told.run)[first][3]
    notice, signal = heard.take(30), heard.take(30)
    stage.core.queue.notices.leave(heard)
    assert isinstance(notice, Notice) and notice.run == told.run and notice.text.startswith("stopped: echo first")
    assert signal == Signal("ada", "stream.cancelled", {"run": told.run, "path": first, "reason": "enough"})
    with pytest.raises(Conflict):
        call(stage, "stream.append", run=told.run, path=first, text="more")
    with pytest.raises(Conflict):
        call(stage, "stream.complete", run=told.run, path=first)
    with pytest.raises(NotFound):
        call(stage, "stream.cancel", run=told.run, path=first)
    with pytest.raises(NotFound):
        call(stage, "stream.cancel", run=told.run, path="sh://turn_9/none_1")
    assert [found[:2] for found in channels(stage, told.run).values()] == [("cancelled", 499)] * 2
    assert stage.core.commands.sandbox.health()["running"] == 0 and second.endswith("_2")


@pytest.mark.covers("R-094", "R-096")
def test_a_run_that_asks_nobody_runs_commands_at_once(stage: Stage) -> None:
    told = stage.ask("[yolo] Run it.", WILD)
    assert told.deeds == "sh:200 env:200" and told.said == "Done."
    found = channels(stage, told.run)
    assert [(path.partition(":")[0], path[-1], status, body) for path, (_, status, _, body) in found.items()] == [
        ("env", "1", 500, ""),
        ("env", "2", 500, "touch: cannot touch 'x': Read-only file system\n"),
        ("sh", "1", 200, "a\n"),
        ("sh", "2", 200, "b\n"),
    ]
    assert {status for _, status, _ in stage.log(told.run).values()} == {200}
    told = stage.ask("[yolo-fails] Run it.", WILD)
    assert told.deeds == "sh:200" and [status for _, status, _, _ in channels(stage, told.run).values()] == [500, 500]


@pytest.mark.covers("R-099", "R-100", "R-176")
@pytest.mark.parametrize("way", ["abort", "complete", "elsewhere"])
def test_a_command_whose_end_is_told_runs_no_longer(stage: Stage, way: str) -> None:
    told = stage.ask(f"[{way}] Run it.")
    (ref,) = stage.waiting(told.run)
    decided(stage, told)
    until(lambda: stage.core.commands.sandbox.health()["running"] == 1)
    first = next(iter(channels(stage, told.run)))
    heard = stage.core.queue.notices.subscribe("")
    if way == "elsewhere":  # as another process does it: nothing of ours is told
        stage.core.commands.streams.end(told.run, first, CommandEnd(-1, 0, "the lid was closed", is_stopped=True))
    elif way == "abort":
        call(stage, "stream.complete", run=told.run, path=first, reason="the lid was closed")
    else:
        call(stage, "stream.complete", run=told.run, path=first, exit_code=7, duration_ms=1500)
    state = ("failed", 500) if way == "complete" else ("cancelled", 499)
    assert [found[:2] for found in channels(stage, told.run).values()] == [state] * 2
    until(lambda: stage.core.commands.sandbox.health()["running"] == 0)
    _, status, body = stage.log(told.run)[ref]
    said = body.partition(";")[0]
    if way == "complete":
        assert (status, said) == (200, "exit code 7 after 1.5 s")
    else:
        assert status == 499 and re.fullmatch(r"stopped after \d+\.\d s: the lid was closed", said), said
    if way == "abort":
        heard.take(30)
        assert heard.take(30) == Signal("ada", "stream.cancelled", {"run": told.run, "path": first, "reason": "the lid was closed"})
    stage.core.queue.notices.leave(heard)


@pytest.mark.covers("R-184", "R-099", "R-176")
@pytest.mark.parametrize(("way", "settings"), [("yolo", WILD), ("auto", RunSettings(layout="entries", approval="auto"))])
def test_a_command_that_nobody_had_to_allow_is_cancelled_with_its_reason(stage: Stage, way: str, settings: RunSettings) -> None:
    heard = stage.core.queue.notices.subscribe("")
    stopped = []

    def stop() -> None:
        until(lambda: stage.core.commands.sandbox.health()["running"] == 1)
        run = stage.core.runs.list_runs(limit=1)[0].id
        stopped.append(call(stage, "stream.cancel", run=run, path=next(iter(channels(stage, run))), reason="enough"))

    stopper = threading.Thread(target=stop)
    stopper.start()
    told = stage.ask(f"[cancel-{way}] Run it.", settings)
    stopper.join(60)
    first = next(iter(channels(stage, told.run)))
    assert stopped == [{"stopped": 1}]
    assert [found[:2] for found in channels(stage, told.run).values()] == [("cancelled", 499)] * 2
    [said] = [body.partition(";")[0] for _, status, body in stage.log(told.run).values() if status == 499]
    assert re.fullmatch(r"stopped after \d+\.\d s: enough", said), said
    heard.take(30)
    assert heard.take(30) == Signal("ada", "stream.cancelled", {"run": told.run, "path": first, "reason": "enough"})
    stage.core.queue.notices.leave(heard)


@pytest.mark.covers("A-279", "R-099")
def test_a_run_that_is_stopped_ends_its_command(stage: Stage) -> None:
    def stop() -> None:
        until(lambda: stage.core.commands.sandbox.health()["running"] == 1)
        run = stage.core.runs.list_runs(limit=1)[0].id
        assert stage.core.inbox.abort(run)

    stopper = threading.Thread(target=stop)
    stopper.start()
    told = stage.ask("[yolo-long] Run it.", WILD)
    stopper.join(60)
    ended(stage, told.run)
    assert told.end.status == 499 and [found[:2] for found in channels(stage, told.run).values()] == [("cancelled", 499)] * 2
    assert stage.core.commands.sandbox.health()["running"] == 0
    background = stage.ask("[stopped] Run it.")
    decided(stage, background)
    until(lambda: stage.core.commands.sandbox.health()["running"] == 1)
    assert stage.inbox.abort(background.run)
    ended(stage, background.run)
    until(lambda: not stage.inbox.abort(background.run))


@pytest.mark.covers("R-097")
@pytest.mark.parametrize(
    ("name", "settings", "mode"),
    [("asked", WILD, "ask"), ("silent", SILENT, "act"), ("blocked", WILD, "act"), ("blocked-2", ENTRIES, "act")],
)
def test_a_command_that_may_not_run_is_neither_proposed_nor_run(stage: Stage, name: str, settings: RunSettings, mode: Any) -> None:
    told = stage.ask(f"[{name}] Run it.", settings, mode)
    assert channels(stage, told.run) == {} and stage.waiting(told.run) == [] and told.end.status == 200


@pytest.mark.covers("R-099")
def test_what_a_process_that_is_gone_left_open_is_ended(stage: Stage) -> None:
    told = stage.ask("[left] Run it.")
    (ref,) = stage.waiting(told.run)
    streams, views = stage.core.commands.streams, stage.core.views
    actor = Actor("client", told.run, *stage.core.runs.moment(told.run))
    stage.core.verbs.resolve(actor, ref, True, "")
    stream = streams.begin(actor, "sh", ref)
    assert streams.clear() == 0  # we are alive
    for path in stream.channels.values():
        entry = stage.core.entries.get(path, scope=f"run:{told.run}")
        stage.core.entries.set(path, "some", scope=f"run:{told.run}", attributes={**entry.attributes, "process": "1:1:gone"})
        views.resolve(told.run, entry.id, "streaming", 102)
    assert streams.running(told.run) == [(told.run, stream.output)] and streams.clear() == 1
    assert [found[:2] for found in channels(stage, told.run).values()] == [("cancelled", 499)] * 2
    assert stage.log(told.run)[ref][1] == 499 and "interrupted" in stage.log(told.run)[ref][2]
    stage.inbox.abort(told.run)


@pytest.mark.covers("R-099", "R-100", "R-176")
def test_a_client_may_fill_channels_itself(stage: Stage) -> None:
    told = stage.ask("[filled] Run it.")
    (ref,) = stage.waiting(told.run)
    actor = Actor("client", told.run, *stage.core.runs.moment(told.run))
    stage.core.verbs.resolve(actor, ref, True, "")
    stream = stage.core.commands.streams.begin(actor, "sh", ref)
    assert call(stage, "stream.append", run=told.run, path=stream.output, text="one\n") == {"bytes": 4}
    assert call(stage, "stream.append", run=told.run, path=stream.output, text="two\n") == {"bytes": 8}
    assert call(stage, "stream.list")[0]["tail"] == "one\ntwo"
    call(stage, "stream.complete", run=told.run, path=stream.output, reason="the lid was closed")
    assert channels(stage, told.run)[stream.output] == ("cancelled", 499, "summarized", "one\ntwo\n")
    assert "the lid was closed" in stage.log(told.run)[ref][2]
    with pytest.raises(Conflict):
        stage.core.commands.streams.end(told.run, stream.output, CommandEnd())
    stage.inbox.abort(told.run)


def call(stage: Stage, method: str, **params: Any) -> Any:
    """A method of the socket, called as it is there."""
    return find_methods(stage.core.commands.methods)[method].call(LocalCall(), **params)


def test_a_fork_sees_the_end_of_what_its_parent_began(stage: Stage) -> None:
    told = stage.ask("[fork] Run it.")
    decided(stage, told)
    child = stage.core.control.branches.fork(told.run, alias="").id
    assert {status for _, status, _, _ in channels(stage, child).values()} == {102}
    ended(stage, told.run)
    assert {status for _, status, _, _ in channels(stage, child).values()} == {200}


@pytest.mark.covers("R-099")
def test_what_was_accepted_and_never_begun_says_so(stage: Stage) -> None:
    """As a core leaves it that is killed between the two."""
    told = stage.ask("[never] Run it.")
    (ref,) = stage.waiting(told.run)
    actor = Actor("client", told.run, *stage.core.runs.moment(told.run))
    stage.core.verbs.resolve(actor, ref, True, "")
    after = stage.heard(Told(told.run, told.loop), lambda: stage.core.approvals.go_on(told.run))
    assert after.deeds == "sh:499" and "not done: interrupted" in after.events("tool_result")[0].content


# -- a chat ---------------------------------------------------------------------------------------------


@pytest.mark.covers("A-140", "R-097")
def test_a_chat_waits_for_its_command_and_reads_what_it_said(stage: Stage) -> None:
    told = stage.ask("[chat] Run it.", CHAT)
    assert told.end.status == 202 and len(stage.waiting(told.run)) == 1
    after, resolved = stage.decide(told, "accept")
    assert resolved.status == 102 and resolved.waits == ()
    (result,) = after.events("tool_result")
    assert result.content.startswith("from the chat\n[exit code 2 after ") and after.said == "It said so."


@pytest.mark.covers("A-279")
def test_a_chat_that_is_stopped_while_it_waits_ends_its_command(stage: Stage) -> None:
    told = stage.ask("[chat-long] Run it.", CHAT)
    (ref,) = stage.waiting(told.run)
    resolved = stage.core.approvals.resolve(ref, told.run, "accept")
    assert resolved.status == 102
    until(lambda: stage.core.commands.sandbox.health()["running"] == 1)
    assert stage.inbox.abort(told.run)
    ended(stage, told.run)
    assert stage.core.commands.sandbox.health()["running"] == 0
    assert [found[1] for found in channels(stage, told.run).values()] == [499, 499]
    until(lambda: stage.core.runs.paused_loop(told.run) is None)


@pytest.mark.covers("A-140")
def test_a_chat_that_asks_nobody_has_no_channels(stage: Stage) -> None:
    told = stage.ask("[chat-yolo] Run it.", YOLO_CHAT)
    assert "at once\n[exit code 0]" in told.events("tool_result")[0].content and channels(stage, told.run) == {}


@pytest.mark.covers("A-135", "S-078")
def test_files_of_the_conversation_need_nobodys_word(stage: Stage) -> None:
    told = stage.ask("[chat-files] Write it.", CHAT)
    assert told.deeds == "use:200 use:200" and told.events("tool_result")[1].content == "kept"


@pytest.mark.covers("R-097")
def test_a_change_of_the_workspace_waits_and_is_made_when_it_is_accepted(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "plan.md").write_text("old")
    with opened(tmp_path, SANDBOX__WORKSPACE=str(root)) as stage:
        told = stage.ask("[workspace] Write it.", CHAT)
        assert told.end.status == 202 and (root / "plan.md").read_text() == "old"
        after = decided(stage, told)
        assert (root / "plan.md").read_text() == "new" and after.said == "Written."
        assert after.events("tool_result")[0].content == "Wrote 3 bytes to plan.md"
        unattended = Terms(is_attended=False, role="worker")
        for name, given in (("write_file", {"path": "plan.md", "content": "x"}), ("exec", {"command": "rm plan.md"})):
            found = stage.core.toolbox.dispatch(ToolCall("c", name, given), told.run, CancelToken(), "local:ada", terms=unattended)
            assert found.status == 403 and "needs approval" in found.message and found.hint.startswith("wait_task")
        assert (root / "plan.md").read_text() == "new"


@pytest.mark.covers("R-085", "R-089")
def test_a_command_of_the_same_answer_sees_what_was_accepted_before_it(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "seen.md").write_text("old")
    with opened(tmp_path, SANDBOX__WORKSPACE=str(root)) as stage:
        told = stage.ask("[yolo-sees] Do it.", WILD)
        assert told.deeds == "set:200 sh:200 rm:200 sh:200" and list(root.iterdir()) == []
        found = [body for path, (_, _, _, body) in channels(stage, told.run).items() if path.endswith("_1")]
        assert found == ["new", ""]


@pytest.mark.covers("E-328")
def test_a_file_that_was_edited_since_a_change_was_proposed_is_left_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "not").mkdir(parents=True)
    plan, later = root / "plan.md", root / "not" / "yet.md"
    with opened(tmp_path, SANDBOX__WORKSPACE=str(root)) as stage:
        for name, file, was, now in (
            ("edited", plan, "old", "his"),
            ("edited-2", plan, "old", "his old text"),
            ("edited-3", later, None, "his"),
        ):
            if was is not None:
                file.write_text(was)
            told = stage.ask(f"[{name}] Write it.", CHAT)
            assert told.end.status == 202
            file.write_text(now)
            after, resolved = stage.decide(told, "accept")
            hashes = [sha256(text.encode()).hexdigest() if text is not None else "none" for text in (was, now)]
            assert (resolved.outcome.status, resolved.outcome.outcome) == (409, "conflict")
            assert "its hash was {}, now it is {}".format(*hashes) in resolved.outcome.message
            assert after.deeds == "use:409" and hashes[1] in after.events("tool_result")[0].content
            assert file.read_text() == now and after.said.startswith("It ")


def test_a_card_shows_what_a_command_will_run(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "job.sh").write_text("echo one\n. ./more\n# \u202ehidden\u200b\n")
    (root / "sub" / "more.sh").write_text("echo two\n")
    (root / "beside.txt").write_text("is not named")
    with opened(tmp_path, SANDBOX__WORKSPACE=str(root)) as stage:
        told = stage.ask("[script] Run it.", CHAT)
        (ref,) = stage.waiting(told.run)
        card = stage.core.approvals.show(ref, told.run).text
        job = sha256((root / "sub" / "job.sh").read_bytes()).hexdigest()
        assert card.startswith("It will not run if one of these files is changed before:\n  sub/job.sh: ")
        assert f"sha256 {job[:16]}\n  | echo one\n" in card and "\n  sub/more.sh: 9 bytes, sha256 " in card
        assert "| # \\u{202e}hidden\\u{200b}\n" in card and "beside" not in card
        assert card.endswith("\nCommand:\ncd sub && bash job.sh; true")
        (root / "beside.txt").write_text("was changed meanwhile, which is nobody's business")
        assert stage.decide(told, "accept")[0].events("tool_result")[0].content.startswith("one\n")


def test_a_command_of_many_lines_cannot_pass_for_a_card_with_files(stage: Stage) -> None:
    forged = "It will not run if one of these files is changed before:\n  none.sh: 3 bytes, sha256 0\nCommand:\nls"
    caller = Caller("", CancelToken(), "local:ada")
    text, approved = stage.core.commands.executions.described(caller, "exec", forged)
    assert text == f"Command:\n{forged}" and approved == {}
    assert stage.core.commands.executions.described(caller, "exec", "ls")[0] == "ls"


@pytest.mark.covers("E-328")
@pytest.mark.parametrize("change", ["script", "what it reads", "a new file"])
def test_a_command_whose_files_were_changed_since_it_was_shown_does_not_run(tmp_path: Path, change: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "job.sh").write_text("bash ./inner.sh; cat note\n")
    (root / "inner.sh").write_text("echo harmless\n")
    with opened(tmp_path, SANDBOX__WORKSPACE=str(root)) as stage:
        told = stage.ask("[script-edited] Run it.", CHAT)
        assert told.end.status == 202
        name = {"script": "job.sh", "what it reads": "inner.sh", "a new file": "note"}[change]
        (root / name).write_text("touch evil\n")
        after, resolved = stage.decide(told, "accept")
        assert (resolved.outcome.status, resolved.outcome.outcome) == (409, "conflict")
        assert f"{name} has changed since it was proposed" in resolved.outcome.message
        assert not (root / "evil").exists() and after.said == "It had changed."


def test_a_file_that_is_changed_after_the_decision_keeps_its_command_from_running(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "job.sh").write_text("echo harmless\n")
    with opened(tmp_path, SANDBOX__WORKSPACE=str(root), SANDBOX__MAX_CONCURRENT="1") as stage:
        unharmed = stage.ask("[script-late] Run it.", CHAT)
        bench, caller = stage.core.commands.bench, CancelToken()
        job = WorkspaceJob("exec", "shell", caller, unharmed.run and "local:ada", unharmed.run, Terms(), 30)
        command = "yes | head -n 1; bash job.sh"
        approved = {name: one["sha256"] for name, one in bench.named_files(job, command).items()}
        assert list(approved) == ["job.sh"]
        order = bench.bound(bench.prepared(job, command), command, approved)
        done = bench.carry_out(job, command, order)
        assert (done.stdout, done.stderr, done.exit_code) == (b"y\nharmless\n", b"", 0)
        (root / "job.sh").write_text("touch evil\n")
        done = bench.carry_out(job, command, replace(order, execution=new_id()))
        assert done.stderr == b"not run: changed since it was approved: job.sh\n" and done.exit_code == 125
        assert not (root / "evil").exists()


def test_who_works_without_anybody_runs_what_stays_in_the_sandbox(stage: Stage) -> None:
    told = stage.ask("[chat-yolo] Run it.", YOLO_CHAT)
    unattended = Terms(is_attended=False, role="worker")
    found = stage.core.toolbox.dispatch(
        ToolCall("c", "exec", {"command": "echo alone"}), told.run, CancelToken(), "local:ada", terms=unattended
    )
    assert (found.status, found.message) == (200, "alone\n[exit code 0]")


# -- messages -------------------------------------------------------------------------------------------


@pytest.mark.covers("A-141", "E-311")
def test_a_message_of_the_model_becomes_a_letter(stage: Stage) -> None:
    told = stage.ask("[message] Tell me.", CHAT)
    assert told.events("tool_result")[0].content == "Sent."
    sql = "SELECT person, text, session, run, json_extract(metadata, '$.type') FROM outbox WHERE key LIKE 'message:%'"
    assert stage.core.store.rows(sql) == [("ada", "Look!", "local:ada", told.run, "notification")]


@pytest.mark.covers("A-141")
def test_a_file_goes_with_a_message(stage: Stage) -> None:
    core, box = stage.core, stage.core.base.home.box
    runs, post = core.runs, core.commands.postbox
    with core.store.write():
        runs.touch_session(Inbound("local", "gil", "hi", new_id(), now_ms()))
    for name, text in (("manuals/Boiler manual.pdf", "%PDF"), ("manuals/boiler bill.txt", "9"), ("users/ben/boiler.md", "his")):
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_text(text)
    core.entries.set("agent://plan", "Feed the owl.")
    (core.commands.bench.folder("local:gil")).mkdir(parents=True)
    (core.commands.bench.folder("local:gil") / "own.txt").write_text("mine")

    def sent(file: str) -> tuple[str, str, str]:
        made = post.send(ToolMessage("", file=file), session="local:gil")
        sql = "SELECT attachment, text FROM outbox WHERE key = ?"
        [(attachment, text)] = core.store.rows(sql, (f"message:{made.id}",))
        kept = core.commands.bench.folder("local:gil") / str(attachment).removeprefix("/work/")
        return made.file, str(text), kept.read_text()

    assert sent("boiler manual") == ("Boiler manual.pdf", "Boiler manual.pdf", "%PDF")
    assert sent("box://manuals/boiler bill.txt") == ("boiler bill.txt", "boiler bill.txt", "9")
    assert sent("/work/own.txt") == ("own.txt", "own.txt", "mine")
    assert sent("agent://plan") == ("plan.txt", "plan.txt", "Feed the owl.")
    (box / "manuals/Boiler manual.pdf").write_text("%PDF 2")
    assert sent("boiler manual")[2] == "%PDF 2"
    for file, error in (("boiler", Conflict), ("users/ben/boiler.md", NotFound), ("../owlbox.db", NotFound), ("", BadInput)):
        with pytest.raises(error):
            post.send(ToolMessage("", file=file), session="local:gil")
    with pytest.raises(BadInput):
        post.send(ToolMessage("", file="/work/../../../owlbox.db"), session="local:gil")


@pytest.mark.covers("A-141", "E-311")
def test_a_message_has_a_size_a_target_and_a_rate(stage: Stage) -> None:
    gate, outbox, runs = stage.core.policy.gate, stage.core.outbox, stage.core.runs
    with stage.core.store.write():
        runs.touch_session(Inbound("local", "bob", "hi", new_id(), now_ms()))
    post = Postbox(outbox, gate, runs.person, stage.core.commands.postbox._files, per_minute=4)
    assert post.send(ToolMessage("x" * 10_240), session="local:ada").target == "core"
    for content, error in (
        ("x" * 10_241, TooLarge),
        ("é" * 5_121, TooLarge),
        ("", BadInput),
        (" ", BadInput),
    ):
        with pytest.raises(error):
            post.send(ToolMessage(content), session="local:ada")
    for other in (ToolMessage("hi", "person:bob"), ToolMessage("hi", session="local:bob")):
        with pytest.raises(Refused, match=r"^ipc.allow \(message\): it may not send to person:bob"):
            post.send(other, session="local:ada")
    (row, *_) = stage.core.policy.ledger.listing(AuditQuery("policy_"))
    assert (row.kind, row.rule) == ("policy_denied", "ipc.allow")
    with pytest.raises(BadInput):
        post.send(ToolMessage("hi", "everybody"), session="local:ada")
    gate.set_session("local:ada", '[ipc]\nallow = ["person:bob"]', "ada")
    assert post.send(ToolMessage("hi", "person:bob", "alarm"), session="local:ada").person == "bob"
    assert post.send(ToolMessage("second"), session="local:ada").person == "ada"
    gate.lift_session("local:ada", "ada")
    post.send(ToolMessage("third"), session="local:ada")
    with pytest.raises(Unavailable) as caught:
        post.send(ToolMessage("fourth"), session="local:ada")
    assert caught.value.outcome == "rate_limited"
    post.send(ToolMessage("of another conversation"), session="local:bob")


@pytest.mark.covers("R-202")
@pytest.mark.parametrize(("limit", "status", "kept"), [("4", 413, None), ("5", 200, "It rains.")])
def test_the_longest_piece_of_knowledge_is_as_configured(tmp_path: Path, limit: str, status: int, kept: str | None) -> None:
    with opened(tmp_path, BUDGET__ENTRY_TOKEN_LIMIT=limit) as stage:
        told = stage.ask("[learns] Learn.", RunSettings(approval="auto", layout="entries"))
        [logged] = [one for ref, (_, one, _) in stage.log(told.run).items() if ref.startswith("log://turn_1/set/")]
        found = stage.core.store.value("SELECT body FROM entries WHERE path = 'known://rain'")
        assert (logged, found) == (status, kept)


@pytest.mark.covers("A-016")
def test_no_tool_is_run_on_a_full_disk(stage: Stage) -> None:
    core = stage.core
    full = replace(core.base.settings(), orchestrator=Orchestrator(disk_refuse=0.0))
    commands, gate = core.commands, core.policy.gate
    given = gate, core.policy.ledger, commands.sandbox, core.runs.person, commands.packages.scripts, core.base.redactor.clean
    bench = Workbench(core.base.home.root / "sessions", lambda: full, *given)
    job = WorkspaceJob("exec", "shell", CancelToken(), "local:ada", "", Terms(role="coder"), 30)
    with pytest.raises(DiskFull, match="% full: exec was not run"):
        bench.carry_out(job, "echo x > full.txt", bench.prepared(job, "echo x > full.txt"))
    assert not list(core.base.home.root.rglob("full.txt"))
    commands.bench.carry_out(job, "echo x > full.txt", commands.bench.prepared(job, "echo x > full.txt"))
    assert list(core.base.home.root.rglob("full.txt")), "with room it is run"


@pytest.mark.covers("A-269")
def test_shared_folder_is_written_by_admins_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    listed = json.dumps([{"path": str(shared), "mode": "readwrite", "kind": "project"}])
    with opened(tmp_path, SANDBOX__MOUNTS=listed, SYSTEM__ADMIN_USERS='["bob"]') as stage:
        for person, is_writer in (("ada", False), ("bob", True)):
            session = f"local:{person}"
            with stage.core.store.write():
                stage.core.runs.open_session(session, person, f"user:{person}")
            job = WorkspaceJob("exec", "shell", CancelToken(), session, "", Terms(role="coder"), 30)
            told = {
                one.source: one.is_writable for one in stage.core.commands.bench.judge(job, "true").mounts if one.kind == "bind"
            }
            assert told == {str(shared): is_writer}, person
