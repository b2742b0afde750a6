"""A talk from its beginning to its end: resumed with what tools did, cleared, left, slept through, and results piped."""

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process import boxed, script, until
from test_scenarios import CHAT, Stage, Told, opened

from appliance import tools
from appliance.agent.toolbox import read_tool
from appliance.clock import CancelToken, new_id, now_ms
from appliance.console.line_talk import Paper, chat
from appliance.records import Delta, Inbound, Message, ToolCall
from appliance.runtime.methods import LocalCall, find_methods

OFFERED = (
    *("create_task", "list_tasks", "view_task", "update_task", "delete_task"),
    *("list_threads", "view_thread", "context_search", "context_info", "context_tree", "context_refresh"),
    *("context_grep", "search_semantic", "context_read", "read_large_result", "spawn_worker", "search_history"),
    *("mcp_list_tools", "mcp_info", "mcp_exec", "create_schedule", "list_schedules"),
)
NOT_OFFERED = ("complete_task", "fail_task", "wait_task")


def used(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": "use", "arguments": {"tool": tool, "arguments": arguments}}]}


ANSWERS: dict[str, Any] = {
    "look": [{"tool_calls": [{"name": "search", "arguments": {"query": "garden"}}]}, "Nothing about a garden."],
    "again": ["As I said, nothing."],
    "anew": ["A new talk."],
    "once-more": ["Here I am."],
    "nap": [used("sleep", seconds=1), "Rested."],
    "doze": [used("sleep", seconds=3600), "Awake."],
    "waker": ["Good morning."],
    "left": ["Bye."],
    "pieces": [{"text": "One two three.", "chunk_size": 4, "chunk_delay_s": 0.05}],
    "letter": [{"text": "One two three.", "chunk_size": 4}],
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with opened(tmp_path_factory.mktemp("talk"), ANSWERS) as made:
        yield made


class Way:
    """The method table of a stage as the line-by-line chat reaches it."""

    is_remote = False

    def __init__(self, stage: Stage) -> None:
        self._methods, self._stage = find_methods(*stage.core.offered), stage

    def call(self, method: str, params: dict[str, Any] | None = None, listen: Any = None) -> Any:
        if method == "notice.list":  # served by the core's own table, and empty here
            return []
        return self._methods[method].call(LocalCall(listen or (lambda name, value: None)), **(params or {}))

    def stop(self, run: str) -> None:
        self._stage.inbox.stop(run)


def talk(stage: Stage, *lines: str, thread: str = "") -> tuple[str, str]:
    """What is said aloud and aside when these lines are typed."""
    out, aside, left = io.StringIO(), io.StringIO(), list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    assert chat(Way(stage), thread, read, Paper(out, aside)) == 0  # type: ignore[arg-type]
    return out.getvalue(), aside.getvalue()


def newest(stage: Stage) -> Any:
    return stage.core.runs.list_runs(limit=1)[0]


# -- begun, resumed, cleared, left ---------------------------------------------------------------------


@pytest.mark.covers("B-135", "B-132")
def test_what_is_left_is_marked_as_ended_and_says_how_to_go_on(stage: Stage) -> None:
    _, aside = talk(stage, "[look] What of the garden?")
    run = newest(stage)
    assert run.ended_ms and aside.rstrip().endswith(f"Thread {run.id} ended.\nContinue with: owlbox chat --thread {run.id}")
    out, aside = talk(stage, "[again] And now?", thread=run.id)
    assert "As I said" in out and stage.core.runs.get(run.id).ended_ms and stage.core.runs.get(run.id).last_seq > run.last_seq


@pytest.mark.covers("B-132", "E-237")
def test_a_resumed_thread_shows_and_sends_the_calls_of_tools_in_their_order(stage: Stage) -> None:
    run = next(one for one in stage.core.runs.list_runs() if one.title.startswith("[look]"))
    _, aside = talk(stage, f"/resume {run.id}")
    lines = aside.splitlines()
    wanted = ("> [look] What of the garden?", '· search(query="garden")', "  Nothing about a garden.")
    places = [lines.index(text) for text in wanted]
    assert places == sorted(places)
    sent = stage.core.runs.recent(run.id, 80)
    kinds = [(m.role, bool(m.tool_calls)) for m in sent[:4]]
    assert kinds == [("user", False), ("assistant", True), ("tool", False), ("assistant", False)]
    assert isinstance(sent[0], Message) and sent[1].tool_calls[0].id == sent[2].tool_call_id


@pytest.mark.covers("B-134")
def test_clear_ends_the_thread_and_the_next_words_begin_another_one_in_the_same_session(stage: Stage) -> None:
    run = next(one for one in stage.core.runs.list_runs() if one.title.startswith("[look]"))
    out, aside = talk(stage, "/clear", "[anew] Hello.", thread=run.id)
    made = newest(stage)
    assert made.id != run.id and made.session == stage.core.runs.get(made.id).session and "A new talk." in out
    assert f"--thread {run.id}" in aside and f"--thread {made.id}" in aside
    out, _ = talk(stage, "[once-more] Still there?", thread=run.id)
    assert "Here I am." in out, "what was cleared can be gone on with"


def test_a_thread_that_is_being_answered_is_not_ended(stage: Stage) -> None:
    accepted = stage.inbox.accept(Inbound("local", "dora", "[left] Bye.", new_id(), now_ms(), settings=CHAT), new_id())
    run = accepted.run
    stage.heard(Told(run, accepted.loop), lambda: stage.inbox.start(accepted.loop))
    assert stage.core.runs.leave_off(run) and stage.core.runs.leave_off(run)
    first = stage.core.runs.get(run).ended_ms
    assert first and stage.core.runs.leave_off(run) and stage.core.runs.get(run).ended_ms == first


@pytest.mark.covers("B-132", "B-135", "B-134")
def test_the_command_takes_a_thread_and_a_first_message(tmp_path: Path, runtime: Path) -> None:
    with boxed(tmp_path, runtime) as box:
        script(box, '[[turns]]\nmatch = "Hello"\ntext = "Hoot."\n[[turns]]\nmatch = "now"\ntext = "Hoot again."\n')
        first = box.run("chat", "--plain", "-p", "Hello.")
        thread = box.json("thread", "list")[0]["id"]
        assert "Hoot." in first.stdout and f"Continue with: owlbox chat --thread {thread}" in first.stderr
        second = box.run("chat", "--plain", "--thread-id", thread, text="And now?\n")
        assert "Hoot again." in second.stdout and "> Hello." in second.stderr and len(box.json("thread", "list")) == 1


def test_with_json_each_answer_is_one_line_and_nothing_else_is_said_aloud(tmp_path: Path, runtime: Path) -> None:
    with boxed(tmp_path, runtime) as box:
        script(
            box,
            '[[turns]]\nmatch = "Hello"\ntext = "Hoot\\nhoot."\n[[turns]]\nmatch = "look"\n'
            'tool_calls = [{name = "search", arguments = {query = "x"}}]\n[[turns]]\nmatch = "look"\ntext = "Nothing."\n'
            '[[turns]]\nmatch = "fail"\nerror = "failed"\n',
        )
        done = box.run("chat", "--json", "-p", "Hello.", text="look\n/threads\nfail\n/resume nowhere\n")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 0 and len(lines) == 4, done
        first, second, third, fourth = lines
        assert (first["status"], first["answer"], second["answer"]) == (200, "Hoot\nhoot.", "Nothing.")
        assert first["run"] == second["run"] == third["run"] and third["status"] == 500 and third["answer"] == ""
        assert fourth["error"]["message"] == "no thread nowhere" and fourth["error"]["hint"]
        assert f"Continue with: owlbox chat --thread {first['run']}" in done.stderr and "· search" in done.stderr


@pytest.mark.covers("E-249")
def test_who_listens_hears_each_piece_and_who_does_not_gets_one_letter(stage: Stage) -> None:
    told = stage.ask("[pieces] Count.", CHAT)
    pieces = [item.text for item in told.items if isinstance(item, Delta)]
    assert len(pieces) > 1 and "".join(pieces) == told.said == "One two three."
    alone = stage.inbox.accept(Inbound("local", "gus", "[letter] Count.", new_id(), now_ms(), settings=CHAT), new_id())
    stage.inbox.start(alone.loop)
    until(lambda: stage.core.runs.loop(alone.loop).status == 200, "the answer")
    letters = stage.core.store.rows("SELECT text FROM outbox WHERE run = ?", (alone.run,))
    assert letters == [("One two three.",)]


# -- which tools ---------------------------------------------------------------------------------------


@pytest.mark.covers("B-133")
def test_a_talk_reaches_its_tools_through_a_small_menu_and_no_others(stage: Stage) -> None:
    box = stage.core.toolbox
    menu = [spec.name for spec in box.specs()]
    reached = {name for names in box.groups("chat").values() for name in names} | set(menu)
    known = {one.mark.name for one in map(read_tool, tools.load())}
    assert len(menu) <= 8 and {"use", "tool_help"} <= set(menu)
    assert set(OFFERED) <= known
    assert {name for name in OFFERED if not name.startswith("mcp_")} <= reached, "those of servers are told of when there are any"
    assert not set(NOT_OFFERED) & reached


# -- sleeping ------------------------------------------------------------------------------------------


@pytest.mark.covers("B-176")
def test_it_sleeps_as_long_as_it_said(stage: Stage) -> None:
    told = stage.ask("[nap] Wait a second.", CHAT)
    assert told.deeds == "use:200" and "Slept 1 s." in told.events("tool_result")[0].content and told.said == "Rested."


@pytest.mark.covers("B-176")
def test_a_message_of_the_person_wakes_it(stage: Stage) -> None:
    sleeper = stage.inbox.accept(Inbound("local", "eve", "[doze] Wait an hour.", new_id(), now_ms(), settings=CHAT), new_id())
    told = Told(sleeper.run, sleeper.loop)
    asleep = threading.Event()
    remove = stage.core.hooks.add("tool.before", lambda call, run: asleep.set() if call.name == "sleep" else None)

    def begin() -> None:
        stage.inbox.start(sleeper.loop)
        assert asleep.wait(60)
        other = stage.inbox.accept(Inbound("local", "frank", "[waker] Not for eve.", new_id(), now_ms()), new_id())
        assert not stage.core.runs.is_awaited("local:eve"), "another person's message wakes nobody"
        stage.inbox.start(other.loop)
        mine = stage.inbox.accept(Inbound("local", "eve", "[waker] Wake up.", new_id(), now_ms(), sleeper.run), new_id())
        stage.inbox.start(mine.loop)

    stage.heard(told, begin)
    remove()
    assert told.said == "Awake." and "Woken after" in told.events("tool_result")[0].content


@pytest.mark.covers("B-176")
@pytest.mark.parametrize("seconds", [0, 3601, "a while"])
def test_it_sleeps_neither_shorter_nor_longer(stage: Stage, seconds: Any) -> None:
    run = newest(stage).id
    assert stage.core.toolbox.dispatch(ToolCall("1", "sleep", {"seconds": seconds}), run, CancelToken()).status == 400


def test_a_stop_ends_the_sleep(stage: Stage) -> None:
    cancel = CancelToken()
    threading.Timer(0.3, cancel.set).start()
    outcome = stage.core.toolbox.dispatch(ToolCall("1", "sleep", {"seconds": 3600}), newest(stage).id, cancel)
    assert outcome.outcome == "cancelled"


# -- piping --------------------------------------------------------------------------------------------


def pipe(stage: Stage, tool: str, path: str = "agent:/piped.md", **more: Any) -> Any:
    run = newest(stage).id
    call = ToolCall("1", "pipe_to_context", {"tool": tool, "path": path, **more})
    return stage.core.toolbox.dispatch(call, run, CancelToken())


@pytest.mark.covers("B-177")
def test_a_long_result_is_kept_whole_and_only_its_beginning_is_shown(stage: Stage) -> None:
    text = "\n".join(f"line {n} of many" for n in range(3000))
    stage.core.entries.set("box://long.md", text, writer="system")
    outcome = pipe(stage, "read", arguments={"ref": "box://long.md", "limit": 2000})
    kept = stage.core.entries.get("agent://piped.md").body
    assert outcome.status == 200 and len(kept) > 9000 and kept.startswith("line 0 of many")
    shown = outcome.message.partition("They begin:\n")[2].partition("\n[")[0]
    assert shown == kept[:200] and f"[{len(kept) - 200} more characters" in outcome.message


@pytest.mark.covers("B-177")
def test_what_is_there_is_kept_unless_it_may_be_replaced(stage: Stage) -> None:
    stage.core.entries.set("agent://there.md", "mine")
    assert pipe(stage, "list_tasks", "agent:/there.md").status == 409
    assert stage.core.entries.get("agent://there.md").body == "mine"
    assert pipe(stage, "list_tasks", "agent:/there.md", overwrite=True).status == 200
    assert stage.core.entries.get("agent://there.md").body == "No tasks."


@pytest.mark.covers("B-177")
@pytest.mark.parametrize("tool", ["pipe_to_context", "tool_help", "ask_user", "complete_task", "sleep", "context_write"])
def test_some_tools_are_not_piped(stage: Stage, tool: str) -> None:
    assert pipe(stage, tool, "agent:/never.md").status == 403
    assert stage.core.entries.find("agent://never.md") is None


@pytest.mark.covers("B-177")
def test_a_failure_is_shown_and_nothing_is_kept(stage: Stage) -> None:
    assert pipe(stage, "read", "agent:/never.md", arguments={"ref": "box://nothing"}).status == 404
    assert pipe(stage, "read", "agent:/never.md", arguments={}).status == 400
    assert pipe(stage, "fly", "agent:/never.md").status == 404
    assert stage.core.entries.find("agent://never.md") is None
