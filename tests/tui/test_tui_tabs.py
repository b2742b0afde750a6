"""The tabs of the screen against one core: what each shows, its filters, and what stays when another one is looked at."""

from collections.abc import Iterator
from typing import Any

import pytest
from process import Box, Core, script, standing_core, until
from screens import Seen, show
from textual.widgets import Log, OptionList

from appliance.tui.app import PANELS
from appliance.tui.composer import Composer
from appliance.tui.message_widgets import ToolBox, describe_result, tool_name

ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
PLAY = """
[[turns]]
match = "garden"
tool_calls = [{name = "search", arguments = {query = "peas garden"}}]
[[turns]]
match = "garden"
tool_calls = [{name = "read", arguments = {ref = "box://notes/nothing.md"}}]
[[turns]]
match = "garden"
text = "Peas go in March."
[[turns]]
match = "water"
tool_calls = [{name = "complete_task", arguments = {summary = "WATERED"}}]
[[turns]]
match = "sow"
tool_calls = [{name = "complete_task", arguments = {summary = "SOWN: two rows of peas"}}]
[[turns]]
repeat = true
text = "Hoot hoot."
"""
NOTES = {
    "garden.md": "# Garden\n\nPeas go into the garden in March.\n",
    "plain.txt": "# no heading\n",
}


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    """One core for all, with notes, tasks, schedules and threads of each kind."""

    def prepare(box: Box) -> None:
        folder = box.home.box / "notes"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in NOTES.items():
            (folder / name).write_text(text)
        script(box, PLAY)

    with standing_core(prepare) as made:
        until(lambda: len(made.call("entry.list", prefix="box://notes/")) == len(NOTES), "the notes are entries")
        made.call("entry.set", ref="shelf/old.md", body="# Old\n\nNobody needs this any more.\n")
        made.call("message.send", text="what about the garden")
        made.call("message.send", text="only a question", kind="ask")
        tool(made, "create_task", name="sow the peas", priority="high")
        tool(made, "create_task", name="water them", blocked_by=[1])
        for _ in range(2):
            assert made.box.run("worker", "run").returncode == 0
        made.call("notice.seen", keys=[one["key"] for one in made.call("notice.list", is_waiting=True)])
        tool(made, "create_schedule", name="read the news", frequency="every weekday at 7am")
        tool(made, "create_schedule", name="sweep", frequency="every day at 6pm")
        yield made


def tool(core: Core, name: str, /, **arguments: Any) -> dict[str, Any]:
    outcome: dict[str, Any] = core.call("tool.call", name=name, arguments=arguments)
    assert int(outcome["status"]) < 400, outcome
    return outcome


def see(core: Core, scenario: Any, size: tuple[int, int] = (80, 24)) -> None:
    show(ENVIRON, core.box.runtime, scenario, size)


@pytest.mark.covers("B-154", "B-155", "B-170")
def test_tabs_stand_in_order_and_keep_what_was_chosen_in_them(core: Core) -> None:
    labels = [panel.LABEL for panel in PANELS]
    assert labels == ["Chat", "Tools", "Context", "Tasks", "Threads", "Schedules", "Workers", "Help"]

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        for label in [*labels[1:], labels[0]]:
            await seen.press("tab")
            assert seen.app._active_panel.LABEL == label
        await seen.press("5", "8")
        assert seen.app._active_panel.LABEL == "Chat" and seen.app.query_one(Composer).text == "58"
        await seen.press("f8")
        await seen.shows("Here", "thread", "none yet", "/srv/owlbox", "workers", "stopped")
        await seen.press("4")
        await seen.shows("water them", "sow the peas")
        await seen.press("f", "f", "f", "f", "end")
        await seen.shows("state: complete", "SOWN: two")
        await seen.press("6", "down")
        await seen.shows("sweep", "Next")
        chosen = seen.app._active_panel.query_one(OptionList).highlighted
        await seen.press("4")
        await seen.shows("state: complete", "SOWN")
        await seen.press("6")
        assert seen.app._active_panel.query_one(OptionList).highlighted == chosen == 1
        await seen.press("escape")
        assert seen.app._active_panel.LABEL == "Chat"
        await seen.press("ctrl+c", "ctrl+c")
        await seen.until(lambda: not seen.app.is_running, "it has left")

    see(core, scenario)


@pytest.mark.covers("B-163", "B-164", "B-185", "E-237")
@pytest.mark.parametrize(("size", "name"), [((80, 24), "tools"), ((120, 40), "tools-120x40")])
def test_every_call_is_there_in_full(core: Core, size: tuple[int, int], name: str) -> None:
    thread = next(one for one in core.call("thread.list") if "garden" in one["title"])["id"]

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f2")
        await seen.shows("No thread is open in the chat.")
        seen.app.resume(thread)
        await seen.shows("✔ search", "✘ read", "Peas go in March.")
        assert [box._tool for box in seen.app.query(ToolBox)] == ["search", "read"]
        await seen.press("f2")
        await seen.shows("✘", "read", "not_found", "Given", "ref: box://notes/nothing.md")
        await seen.press("down")
        await seen.shows("query: peas garden", "go into the garden")
        seen.app._forget_notice()
        await seen.same_as(name)
        await seen.press("f", "f", "f")
        await seen.shows("state: ok")
        await seen.press("f", "f", "slash", *"zzz")
        await seen.shows("No call matches the filter.")

    see(core, scenario, size)


@pytest.mark.covers("B-165", "B-179")
def test_an_entry_is_found_read_and_deleted_by_two_presses(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f3")
        await seen.shows("garden.md", "plain.txt")
        seen.app.action_open_ref("box://notes/plain.txt")
        await seen.shows("# no heading")
        seen.app.action_open_ref("box://notes/garden.md")
        await seen.until(lambda: "# Garden" not in seen.text() and "Peas go into" in seen.text(), "Markdown is rendered")
        await seen.press("home", "d")
        await seen.shows("go to an entry first")
        await seen.press("slash", *"nobody needs", "enter")
        await seen.shows("Nobody needs this")
        await seen.press("d")
        await seen.shows("Delete shelf/old.md? Press d again")
        assert core.call("entry.list", prefix="shelf/old")
        await seen.press("d")
        await seen.shows("deleted shelf/old.md")
        await seen.press("escape", "backspace")
        await seen.until(lambda: "old.md" not in "\n".join(seen.lines()[:-2]), "it has left the tree")
        seen.app.action_open_ref("box://notes/garden.md")
        await seen.press("slash", *"peas", "enter")
        await seen.shows("  # Garden Peas")
        await seen.press("d", "d")
        await seen.shows("it mirrors a file: edit the file in")

    see(core, scenario)


@pytest.mark.covers("B-166")
def test_a_task_shows_what_came_before_it(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f4", "home")
        await seen.shows("2. water them", "From 1. sow the peas, complete", "SOWN: two rows of peas")
        await seen.press("p")
        await seen.shows("priority: high", "1. sow the peas")
        await seen.until(lambda: "water them" not in seen.text(), "only what is urgent")

    see(core, scenario)


@pytest.mark.covers("B-167")
def test_threads_of_one_type_are_shown_with_what_was_said(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f5")
        await seen.shows("only a question", "what about the garden")
        await seen.press("f", "f")
        await seen.shows("type: ask", "▌ only a question", "Hoot hoot.")
        await seen.until(lambda: "the garden" not in seen.text(), "only questions")
        await seen.press("f")
        await seen.shows("type: tick", "sow the peas")
        await seen.press("escape")
        await seen.shows("what about the garden")

    see(core, scenario)


@pytest.mark.covers("B-168")
def test_a_schedule_is_switched_off_and_filtered(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f6")
        await seen.shows("read the news", "sweep")
        await seen.press("end", "e")
        await seen.shows("‖")
        await seen.press("f")
        await seen.shows("enabled: yes")
        await seen.until(lambda: seen.text().count("sweep") + seen.text().count("read the news") == 2, "one is left")
        await seen.press("f")
        await seen.shows("enabled: no", "‖")

    see(core, scenario)


@pytest.mark.covers("B-169")
def test_a_worker_is_shown_with_its_log_which_can_be_scrolled(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f7")
        await seen.shows("stopped", "does a single task", "pid", "started", "none: it ran in a terminal")
        await seen.same_in_both("workers")
        await seen.press("o")
        await seen.shows("has begun")
        await seen.press("f", "f")
        await seen.shows("status: stopped")
        await seen.press("f")
        await seen.shows("No worker matches the filter.")
        await seen.press("escape", "home", "l")
        await seen.shows("worker")
        log = seen.app.query_one(Log)
        await seen.until(lambda: log.line_count > 0, "the log is there")
        await seen.until(lambda: "▸" not in seen.text() and "●" not in "\n".join(seen.lines()[:-2]), "the worker has ended")
        seen.app._forget_notice()
        log.clear()
        log.write_lines([f"line {number}" for number in range(200)])
        await seen.press("G")
        await seen.shows("line 199")
        await seen.same_in_both("worker-log")
        await seen.press("k")
        top = log.scroll_y
        log.write_line("line 200", scroll_end=log.max_scroll_y - log.scroll_y < 2)
        await seen.press("K", "J")
        assert log.scroll_y == top
        await seen.press("g")
        assert log.scroll_y == 0
        await seen.press("l")
        await seen.shows("does a single task")

    see(core, scenario)


@pytest.mark.covers("B-163", "B-156")
def test_tools_of_servers_and_long_results_are_named_for_people() -> None:
    assert tool_name("mcp_exec", {"server": "git", "tool": "log"}) == "git / log"
    assert tool_name("git_log", {}, {"input": {"origin": "mcp:git"}}) == "git / log"
    assert tool_name("use", {"tool": "exec", "arguments": {"command": "ls"}}) == "exec"
    paged = {"content": "[lr_3: this result has 42123 characters, in 6 pages of 8000. It begins:]\nx", "status": 200}
    assert describe_result(paged) == "Paginated for LLM [42K, 6pg]"
    given = {"tool": "read", "input": {"ref": "x" * 80}, "content": "y" * 300, "status": 200, "outcome": "ok", "duration_ms": 3}
    box = ToolBox(given)
    box._draw_call()
    assert str(box.content).startswith("⟳ read("), "it runs"
    box.finish(given)
    head, below = str(box.content).split("\n")
    assert head.startswith("✔ read(") and head.endswith("…) · 3 ms") and len(head) < 80 and len(below.strip()) == 120
