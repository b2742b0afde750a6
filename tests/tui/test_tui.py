"""The full screen against a real core with a scripted model: what a person sees and what the core gets."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from process import ROOT, Box, Core, a_box, script, until  # noqa: F401
from screens import FOLDER, Seen, show

from appliance.clock import monotonic_s
from appliance.records import Event
from appliance.sessions.runs import Runs
from appliance.tui import commands, theme
from appliance.tui.composer import Composer
from appliance.tui.connection import Link, pauses
from appliance.tui.message_widgets import Said, ToolBox
from appliance.tui.owl.face import Owl
from appliance.tui.sender import Ended, Outgoing, Sender, Talk

HUGE = 80  # paragraphs of an answer
PLAY = '''
[[turns]]
match = "garden"
tool_calls = [{name = "search", arguments = {query = "peas garden"}}]
[[turns]]
match = "garden"
text = """Peas go in **March** [box://notes/garden.md].

- sow them *early*
- cover them at night, because they do not like frost and neither do you when you have to sow them again

| what | when |
|---|---|
| peas | March |

```
peas = "in"
```
"""
chunk_size = 20
chunk_delay_s = 0.01
[[turns]]
match = "slow"
repeat = true
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
chunk_size = 4
chunk_delay_s = 0.4
[[turns]]
match = "endless"
repeat = true
text = "ENDLESS"
chunk_size = 4
chunk_delay_s = 0.4
[[turns]]
match = "long"
repeat = true
text = """1

2

3

4

5

6

7

8

9

10

11

12

13"""
[[turns]]
match = "huge"
repeat = true
text = """HUGE"""
[[turns]]
match = "doze"
tool_calls = [{name = "use", arguments = {tool = "sleep", arguments = {seconds = 300}}}]
[[turns]]
match = "doze"
text = "Awake again."
[[turns]]
match = "broken"
repeat = true
error = "too_large"
[[turns]]
repeat = true
text = "Hoot hoot."
'''.replace("HUGE", "\n\n".join(f"paragraph {n}" for n in range(HUGE))).replace("ENDLESS", "one two three" + " and on" * 200)
GARDEN = "# Garden\n\nPeas go into the garden in March.\n"


@pytest.fixture
def core(box: Box) -> Iterator[Core]:
    """A core with one note of its own."""
    (box.home.box / "notes").mkdir(exist_ok=True)
    (box.home.box / "notes/garden.md").write_text(GARDEN)
    script(box, PLAY)
    yield box.serve()


def environ(**more: str) -> dict[str, str]:
    return {"TERM": "xterm-256color", "LANG": "C.UTF-8", **more}


def answers(core: Core, thread: str = "") -> list[str]:
    """What was said in a thread (the newest one), in order."""
    thread = thread or core.call("thread.list", limit=1)[0]["id"]
    return [e["content"] for e in core.call("thread.view", id=thread)["events"] if e["kind"] == "message"]


def test_chat_shows_markdown_sources_and_tools(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected("Esc Back")
        await seen.same_in_both("first")
        await seen.type("what about the garden")
        await seen.shows("peas =", "context")
        await seen.same_as("chat")
        await seen.press("ctrl+t")
        await seen.press("ctrl+home")
        await seen.shows("notes/garden.md (Garden)")
        await seen.pilot.click(ToolBox)
        await seen.until(lambda: not seen.app.query_one(ToolBox).is_open, "the box is closed")
        seen.app.action_open_ref("box://notes/garden.md")
        await seen.shows("into the garden in March")
        await seen.press("f8")
        await seen.shows("messages: 1;", "can be used", "0 on")
        await seen.same_as("help")

    show(environ(), core.box.runtime, scenario)
    assert len(answers(core)) == 2


def test_answer_can_neither_steer_the_terminal_nor_use_markup(core: Core):
    text = "a\\u001b]0;owned\\u0007 b\\u009b2J c\\u202ed [red]bare[/red] [@click=app.exit]x[/]"
    script(core.box, f'[[turns]]\nrepeat = true\ntext = "{text}"\n')
    core.stop()
    again = core.box.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("hello")
        await seen.shows(r"a\u{1b}]0;owned\u{7} b\u{9b}2J c\u{202e}d [red]bare[/red]", "[@click=app.exit]x[/]")
        assert all(line.isprintable() for line in seen.lines())
        await seen.press("f5")
        await seen.until(lambda: all(line.isprintable() for line in seen.lines()), "the preview is calm too")

    show(environ(), again.box.runtime, scenario)


def test_wide_screen(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("what about the garden")
        await seen.shows("peas =", "context")
        await seen.same_as("chat-120x40")
        await seen.press("f8")
        await seen.shows("messages: 1;", "can be used", "0 on")
        await seen.same_as("help-120x40")

    show(environ(), core.box.runtime, scenario, (120, 40))


@pytest.mark.covers("E-325")
def test_commands_run_here_and_messages_queue_while_an_answer_streams(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("endless please")
        await seen.shows("one two", "thinking")
        await seen.type("/status")
        await seen.type("second")
        await seen.shows("broker    running", "second  (queued)")
        assert seen.app.query_one(Owl).mood in ("thinking", "reading")
        await seen.press("escape")
        await seen.shows("Esc again stops the answer")
        await seen.press("escape")
        await seen.shows("Stopped.", "Hoot hoot.")
        said = [str(said._words) for said in seen.app.query(Said)]
        assert said == ["endless please", "second"]

    show(environ(), core.box.runtime, scenario)
    words = answers(core)
    assert words[0] == "endless please" and words[1].startswith("one two") and words[2:] == ["second", "Hoot hoot."]


@pytest.mark.covers("B-176")
@pytest.mark.parametrize("is_early", [False, True], ids=["asleep", "before it sleeps"])
def test_a_message_that_is_typed_wakes_an_answer_that_sleeps(core: Core, is_early: bool) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("doze please")
        if not is_early:
            await seen.until(lambda: bool(seen.app.query(ToolBox)), "it sleeps")
        await seen.type("wake up")
        await seen.type("and this later")
        await seen.shows("Awake again.", "Hoot hoot.")
        await seen.until(lambda: seen.app.chat.running is None, "all are answered")
        assert [str(said._words) for said in seen.app.query(Said)] == ["doze please", "wake up", "and this later"]
        assert "queued" not in seen.text() and "sending" not in seen.text()

    began_s = monotonic_s()
    show(environ(), core.box.runtime, scenario)
    assert monotonic_s() - began_s < 60
    assert answers(core) == ["doze please", "wake up", "Awake again.", "Hoot hoot.", "and this later", "Hoot hoot."]


def test_input_has_lines_history_and_a_menu(core: Core):
    async def scenario(seen: Seen) -> None:
        composer = seen.app.query_one(Composer)
        await seen.is_connected()
        await seen.press("a", "ctrl+j", "b", "backslash", "enter", "c")
        assert composer.text == "a\nb\nc" and composer.size.height == 3
        await seen.press(*["ctrl+j"] * 7)
        assert composer.size.height == 6
        composer.replace_text("")
        await seen.type("first")
        await seen.type("second")
        await seen.press("d", "up", "up")
        assert composer.text == "first"
        await seen.press("down", "down")
        assert composer.text == "d"
        composer.replace_text("")
        await seen.press("slash")
        await seen.shows("/status")
        await seen.press("R", "tab")
        assert composer.text == "/resume "
        composer.replace_text("")
        await seen.press("slash", "h", "enter")
        await seen.shows("Everywhere")
        await seen.press("escape")
        assert composer.has_focus and composer.text == ""

    show(environ(), core.box.runtime, scenario)


def test_reader_who_scrolled_up_is_left_there(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("long")
        await seen.shows("13", "context")
        await seen.type("endless")
        await seen.shows("one two")
        await seen.press("pageup", "pageup")
        before = seen.app.chat.transcript.scroll_y
        await seen.pilot.pause(1.0)
        assert seen.app.chat.transcript.scroll_y == before < seen.app.chat.transcript.max_scroll_y
        await seen.press("ctrl+end")
        await seen.shows("three")

    show(environ(), core.box.runtime, scenario)


def test_failed_answer_is_one_line(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("broken")
        await seen.shows("the script says: too_large")
        await seen.same_in_both("failed")
        assert seen.text().count("the script says") == 1

    show(environ(), core.box.runtime, scenario)


@pytest.mark.covers("E-236", "B-167")
def test_threads_are_filtered_resumed_and_deleted_after_asking(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("what about the garden")
        await seen.shows("peas =", "context")
        await seen.type("/new")
        await seen.type("good evening")
        await seen.shows("Hoot hoot.", "context")
        await seen.press("f5")
        await seen.shows("● ", "what about the garden")
        await seen.shows("▌ good evening")
        await seen.same_in_both("threads")
        await seen.press("d")
        await seen.shows("this thread is open in the chat")
        await seen.press("slash", *"GARD")
        await seen.until(lambda: "  now good evening" not in seen.text(), "the filter works")
        await seen.press("enter")
        await seen.shows("▌ what about the garden")
        await seen.press("enter")
        await seen.shows("✔ search", "resumed")  # earlier tool calls are there too
        assert "peas =" in seen.text()
        await seen.press("f5", "escape", "home", "d")
        await seen.shows("Delete “good evening” and everything said in it? Press d again")
        await seen.press("d")
        await seen.shows("deleted “good evening”")

    show(environ(), core.box.runtime, scenario)
    assert [t["title"] for t in core.call("thread.list")] == ["what about the garden"]


def test_entries_are_shown_and_searched(core: Core):
    until(lambda: core.call("entry.list", prefix="box://notes/") != [], "the note is an entry")

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.pilot.click("#tab-context")
        await seen.shows("garden.md", "entries.")
        await seen.press("slash", *"peas", "enter")
        await seen.shows("Garden", "Peas go into the garden")
        await seen.same_in_both("context")
        await seen.press("escape")
        await seen.shows("box:/")
        await seen.press("1")
        await seen.shows("I am your owl")

    show(environ(), core.box.runtime, scenario)


def test_tasks_are_added_filtered_done_again_cancelled_and_deleted(core: Core):
    def call(name: str, **arguments: object) -> dict[str, Any]:
        outcome: dict[str, Any] = core.call("tool.call", name=name, arguments=arguments)
        return outcome

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f4")
        await seen.shows("No tasks yet.")
        await seen.press("a", *"water the roses", "space", "minus", "space", *"both beds", "enter")
        await seen.shows("1. water the roses", "pending · medium", "both beds")
        await seen.press("a", *"count [b]owls[/b]", "enter")
        await seen.shows("2. count [b]owls[/b]")
        await seen.same_in_both("tasks")
        await seen.press("enter")
        await seen.shows("task 2 has not started yet")
        await seen.press("x")
        await seen.shows("✗   2", "Failed: cancelled", "(Esc closes)")
        await seen.press("escape")  # the banner: the end of a task is told to whoever asked for it
        await seen.press("f")
        await seen.shows("state: pending")
        await seen.until(lambda: "owls" not in seen.text(), "only what is pending")
        await seen.press("f", "f", "f", "f", "f", "p")
        await seen.shows("priority: high", "No task matches the filter.")
        await seen.press("escape")
        await seen.shows("✗   2")
        await seen.press("home")
        await seen.shows("Failed: cancelled")
        await seen.press("e")
        await seen.shows("·   2")
        await seen.press("d", "up", "d")
        await seen.shows("Delete task 1")  # another one is not deleted by the second press
        await seen.press("down", "d")
        await seen.shows("Delete task 2")
        await seen.press("d")
        await seen.until(lambda: "owls" not in "\n".join(seen.lines()[2:-2]), "it is gone")

    show(environ(), core.box.runtime, scenario)
    assert [(t["id"], t["status"]) for t in call("list_tasks")["data"]["tasks"]] == [(1, "pending")]


def test_worker_does_a_task_and_its_thread_opens_in_the_chat(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f7")
        await seen.shows("No worker has been started.")
        await seen.press("4", "a", *"say hoot", "enter")
        await seen.shows("1. say hoot")
        await seen.press("7", "o")
        await seen.shows("once", "has begun")
        await seen.press("escape", "f7", "l")  # F7: Escape leads to the chat where that message is gone already
        await seen.shows("○ ", "[[tick-end]]")
        await seen.press("x")
        await seen.shows("is stopped already")
        await seen.press("4")
        await seen.shows("✓   1", "Hoot hoot.", "attempt 1 complete")
        await seen.press("enter")
        await seen.shows("say hoot", "resumed")

    show(environ(), core.box.runtime, scenario)


def test_screen_comes_before_the_core_and_help_needs_none(box: Box):
    async def scenario(seen: Seen) -> None:
        await seen.shows("○ connecting", "next try", "owlbox doctor shows why")
        await seen.same_in_both("connecting")
        assert seen.app.query_one(Owl).mood == "starting"
        await seen.press("f8")
        await seen.shows("Everywhere")

    show(environ(), box.runtime, scenario)


@pytest.mark.covers("A-022")
def test_core_that_dies_loses_nothing_typed_or_queued(core: Core):
    async def scenario(seen: Seen) -> None:
        composer = seen.app.query_one(Composer)
        await seen.is_connected()
        await seen.type("endless one")
        await seen.shows("one two")
        await seen.type("second")
        await seen.press(*"typed")
        core.kill()
        await seen.shows("○ core away", "next try")
        await seen.pilot.pause(1.0)
        composer.replace_text("third")
        await seen.press("enter")
        composer.replace_text("typed")
        core.box.serve()
        await seen.shows("●", "The answer was interrupted")
        await seen.until(lambda: seen.text().count("Hoot hoot.") == 2, "both are answered")
        assert composer.text == "typed"

    show(environ(), core.box.runtime, scenario)
    words = [w for w in answers(Core(core.box, core.child)) if not w.startswith("one")]
    assert words == ["endless one", "second", "Hoot hoot.", "third", "Hoot hoot."]


def test_answer_is_read_from_the_record_when_only_the_connection_broke(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("slow one")
        await seen.shows("one two")
        for open_one in list(seen.app.link._open):
            open_one.close()
        await seen.shows("seventeen", "context")
        assert seen.text().count("one two") == 1

    show(environ(), core.box.runtime, scenario)
    assert len(answers(core)) == 2


def test_message_is_accepted_once_however_often_it_is_sent(core: Core):
    news: list[object] = []
    link = Link(str(core.box.runtime / "core.sock"), lambda contact: None, lambda: "")
    link._up.set()
    sender, message = Sender(link, news.append), Outgoing("hello", Talk())
    for _ in range(2):
        message.is_accepted = False
        sender.queue_message(message)
    sender.close()
    sender.run()
    assert [n.status for n in news if isinstance(n, Ended)] == [200, 200]
    assert answers(core) == ["hello", "Hoot hoot."]


def test_unread_thread_is_resumed_from_its_end_and_read_backwards(core: Core):
    thread = core.call("message.send", text="message 0")["run"]
    with core.box.store() as store, store.write():
        record = Runs(store, "test").record
        for number in range(1, 35):
            record.append(Event(thread, "message", "user", f"message {number}"))
            record.append(Event(thread, "message", "assistant", "Hoot hoot."))

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type(f"/resume {thread}")
        await seen.shows("▌ message 34")
        for _ in range(12):  # back page by page, to where there is no earlier one
            await seen.press("pageup")
            await seen.pilot.pause(0.3)
            if "▲" not in seen.text() and seen.app.chat.transcript.oldest == 1:
                break
        await seen.press("pageup", "pageup", "pageup")
        await seen.shows("▌ message 0")
        assert [said._words for said in seen.app.query(Said)][0] == "message 0"

    show(environ(), core.box.runtime, scenario)


def test_old_messages_leave_the_screen_and_can_be_fetched_again(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        few = len(seen.app.query("*"))
        for number in range(4):
            await seen.type(f"huge {number}")
            await seen.until(lambda n=number: len(answers(core)) == 2 * n + 2 and seen.app.chat.running is None, "it is answered")
        assert len(seen.app.query("*")) < few + 3 * HUGE  # four such answers have four times as many
        await seen.press("ctrl+home")
        await seen.shows("▌ huge 0", "paragraph 1")
        assert len(seen.app.query("*")) < few + 3 * HUGE  # the last things said stay, however large

    show(environ(), core.box.runtime, scenario)


def test_tiny_terminals_do_not_break_it(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.type("long")
        for size in ((3, 2), (20, 5)):
            await seen.pilot.resize_terminal(*size)
            for key in ("f2", "f3", "f4", "f5", "f6", "f7", "f8", "f1"):
                await seen.press(key)
        await seen.pilot.resize_terminal(80, 24)
        await seen.shows("13", "context")

    show(environ(), core.box.runtime, scenario, (3, 2))


def test_an_empty_list_says_so_on_a_narrow_terminal_too(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f6")
        await seen.shows("Nothing is scheduled.", "remind me to call Ada in")
        await seen.pilot.resize_terminal(80, 24)
        await seen.shows("│ Nothing is scheduled.")
        lists = (("f2", "tools"), ("f4", "tasks"), ("f5", "threads"), ("f6", "schedules"), ("f7", "workers"))
        for width, height, end in ((80, 24, ""), (120, 40, "-120x40")):  # two changes of size in place of ten
            await seen.pilot.resize_terminal(width, height)
            for key, name in lists:
                await seen.press(key)
                await seen.same_as(f"empty-{name}{end}")
        await seen.pilot.resize_terminal(80, 24)
        await seen.press("f1")
        core.kill()
        await seen.shows("○ core away", "next try")
        await seen.same_in_both("away")

    show(environ(), core.box.runtime, scenario, (50, 14))


def test_ascii_terminal_gets_ascii_only(core: Core):
    until(lambda: core.call("entry.list", prefix="box://notes/") != [], "the note is an entry")

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("what about the garden")
        await seen.shows("peas =", "%)")
        assert seen.text().isascii()
        await seen.same_as("chat-ascii")
        for key in ("f2", "f3", "f4", "f5", "f6", "f7", "f8"):
            await seen.press(key)
            assert seen.text().isascii()

    show(environ(LANG="C", NO_COLOR="1"), core.box.runtime, scenario)


def test_unforeseen_error_is_logged_and_ends_the_screen(box: Box, caplog: pytest.LogCaptureFixture):
    async def scenario(seen: Seen) -> None:
        seen.app.call_later(lambda: 1 // 0)
        await seen.pilot.pause(0.5)

    logging.getLogger("appliance").propagate = True
    with pytest.raises(ZeroDivisionError):
        show(environ(), box.runtime, scenario)
    assert "the screen failed" in caplog.text


# -- without a screen ---------------------------------------------------------------------------------


@pytest.mark.covers("A-022")
def test_pauses_double_from_a_fifth_of_a_second_to_ten():
    longest, shortest = pauses(lambda: 1.0), pauses(lambda: 0.0)
    assert [next(longest) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert [round(next(shortest), 3) for _ in range(8)] == [0.15, 0.3, 0.6, 1.2, 2.4, 4.8, 7.5, 7.5]


def test_link_lets_everybody_go_when_it_is_closed(box: Box):
    link = Link(str(box.runtime / "core.sock"), lambda contact: None, lambda: "")
    link.close()
    began_s = monotonic_s()
    link.stay_connected()
    assert link.wait() is False and link.pause(60) is False and monotonic_s() - began_s < 20


@pytest.mark.covers("E-235", "B-159")
@pytest.mark.parametrize(
    ("value", "is_dark"),
    [
        *(("15;0", True), ("0;15", False), ("12;8", False), ("0;6", True), ("0;7", False)),
        *(("1;2;0", True), ("0;default;15", False), ("15;default;6", True), ("x", True), ("0;", True), ("0;-7", True), ("", True)),
    ],
)
def test_background_is_known_from_colorfgbg(value: str, is_dark: bool):
    assert theme.is_dark({"COLORFGBG": value}) is is_dark


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"TERM": "xterm-256color"}, "owl-night"),
        ({"TERM": "xterm", "COLORTERM": "truecolor", "COLORFGBG": "0;15"}, "owl-day"),
        ({"TERM": "xterm"}, "owl-plain"),
        ({"TERM": "linux"}, "owl-plain"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "owl-plain"),
    ],
)
def test_theme_fits_the_terminal(given: dict[str, str], name: str):
    assert theme.theme(given) == name


@pytest.mark.covers("B-159")
def test_chosen_theme_goes_before_the_background_and_nothing_known_means_dark():
    light, dark = ({"TERM": "xterm-256color", "COLORFGBG": value} for value in ("0;15", "15;0"))
    assert theme.theme(light, "dark") == "owl-night" and theme.theme(dark, "light") == "owl-day"
    assert theme.is_dark({}) and theme.theme({**dark, theme.CHOSEN: "contrast"}) == "owl-contrast"


@pytest.mark.parametrize(
    ("given", "is_utf8"),
    [
        ({}, True),
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "en_US.ISO-8859-1"}, False),
    ],
)
def test_encoding_is_read_from_the_environment(given: dict[str, str], is_utf8: bool):
    assert theme.is_utf8(given) is is_utf8


def test_letters_keep_their_width():
    ascii_only = theme.letters({"LANG": "C"})
    assert ascii_only is not None
    assert ascii_only.text("│ ✔ größe … 火曜") == "| + gro?e . ????"
    console = theme.letters({"TERM": "linux"})
    assert console is not None
    assert console.text("│ ✔ größe …") == "│ + größe …"
    assert theme.letters({"TERM": "xterm", "LANG": "C.UTF-8"}) is None


def test_commands_are_told_from_messages():
    assert [c.name for c in commands.matching("/STA")] == ["status"]
    assert commands.matching("hello") == () and commands.matching("/resume ") == ()
    assert commands.split("/resume abc") == ("resume", "abc")
    assert commands.split("/etc/passwd is a file") is None and commands.split("hello") is None


def test_tool_box_opens_with_result():
    event = {"tool": "search", "input": {"query": "x" * 80}, "content": "found", "status": 200, "outcome": "ok", "duration_ms": 3}
    made = ToolBox(event)
    made.finish(event)
    assert str(made.content).startswith("✔ search(") and "…" in str(made.content) and str(made.content).endswith("· 3 ms\n  found")
    made.open(True)
    assert str(made.content).endswith("\nfound") and "x" * 80 in str(made.content)


def test_a_failed_tool_says_so_in_words_and_not_in_json():
    shape = {"is_error": True, "error_type": "not_found", "message": "there is no note a", "next_action_hint": "search finds notes"}
    event = {"tool": "read", "input": {"ref": "a"}, "status": 404, "outcome": "not_found", "duration_ms": 3}
    made = ToolBox(event)
    made.finish({**event, "content": json.dumps(shape)})
    assert str(made.content).endswith("· not_found: there is no note a (search finds notes)")
    made.open(True)
    assert str(made.content).endswith("\nthere is no note a (search finds notes)")
    for odd in ('{"is_error": tr', '{"is_error": true}', "plain words"):
        made.finish({**event, "content": odd})
        assert str(made.content).endswith(f"\n{odd}")


def test_ctrl_c_stops_then_clears_then_leaves(core: Core):
    async def scenario(seen: Seen) -> None:
        composer = seen.app.query_one(Composer)
        await seen.is_connected()
        await seen.type("endless please")
        await seen.shows("one two", "thinking")
        composer.replace_text("half a line")
        await seen.press("ctrl+c")
        await seen.shows("Stopped.")
        assert composer.text == "half a line" and seen.app.is_running
        await seen.press("ctrl+c")
        assert composer.text == "" and seen.app.is_running
        await seen.press("ctrl+c")
        await seen.until(lambda: not seen.app.is_running, "it has left")

    show(environ(), core.box.runtime, scenario)


@pytest.mark.parametrize(("page", "name"), [("tui", "chat"), ("tui", "schedules"), ("ssh", "first")])
def test_document_shows_the_screens_as_they_are(page: str, name: str):
    assert (FOLDER / f"{name}.txt").read_text().rstrip("\n") in (ROOT / f"docs/guides/{page}.md").read_text()
