"""Keys that work from everywhere, the queue of what waits to be sent, and commands that need the whole screen: against one core."""

import base64
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from process import Box, Core, script, standing_core, until
from screens import Seen, show

from appliance.channels.rpc import live
from appliance.clock import monotonic_s, sleep_s
from appliance.tui import commands
from appliance.tui.composer import Composer
from appliance.tui.export_html import render_page
from appliance.tui.message_widgets import Said, Thought
from appliance.tui.sender import Buffer
from appliance.tui.status_view import status_lines

ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
PLAY = '''
[[turns]]
match = "stuck"
repeat = true
text = "at last"
delay_s = 600
[[turns]]
match = "think"
repeat = true
reasoning = "First I count the owls.\\n\\nThen I say so."
text = "Two owls."
[[turns]]
match = "prepare"
reasoning = "First I look."
chunk_delay_s = 1.5
tool_calls = [{name = "search", arguments = {query = "owls"}}]
[[turns]]
match = "code"
repeat = true
text = """See:

```
owls = 2
```
"""
[[turns]]
match = "write a file"
tool_calls = [{name = "set", arguments = {path = "plan.md", body = "# Plan"}}]
[[turns]]
repeat = true
text = "Hoot hoot."
'''

NEEDY = """---
name: needy
description: needs a program
metadata: {"requires": {"bins": ["no-such-program"]}}
---
Do it.
"""
MATRIX = """
[channels.matrix]
enabled = true
homeserver = "http://127.0.0.1:9"
user = "@owl:here"
token = "x"
"""


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    def prepare(box: Box) -> None:
        script(box, PLAY)
        (box.home.box / "roles").mkdir(parents=True, exist_ok=True)
        (box.home.box / "roles/assistant.md").write_text("---\npreset: open\n---\n")
        (box.home.box / "skills/needy").mkdir(parents=True)
        (box.home.box / "skills/needy/SKILL.md").write_text(NEEDY)
        with box.home.config.open("a") as config:
            config.write(MATRIX)

    with standing_core(prepare) as made:
        for text in ("first words", "second words"):
            made.call("message.send", text=text)
        made.call("group.change", group="family")
        yield made


def see(core: Core, scenario: Any, size: tuple[int, int] = (80, 24)) -> None:
    show(ENVIRON, core.box.runtime, scenario, size)


async def say(seen: Seen, text: str) -> None:
    seen.app.query_one(Composer).replace_text(text)
    await seen.press("enter")


def copied(seen: Seen) -> list[str]:
    """What is copied from now on, as the terminal is told it."""
    found: list[str] = []
    driver = seen.app._driver
    write = driver.write

    def listen(data: str) -> None:
        if data.startswith("\x1b]52;c;"):
            found.append(base64.b64decode(data.removeprefix("\x1b]52;c;").rstrip("\a")).decode())
        write(data)

    driver.write = listen
    return found


@pytest.mark.covers("B-162")
def test_what_is_queued_is_chosen_edited_and_deleted(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        composer = seen.app.query_one(Composer)
        await seen.is_connected()
        await say(seen, "stuck please")
        await seen.shows("thinking")
        for text in ("one more", "to be edited", "to be deleted"):
            await say(seen, text)
        await seen.shows("to be deleted  (queued)")
        await seen.press("ctrl+k")
        await seen.shows("queued: ^E edits it")
        seen.app._forget_notice()
        await seen.same_in_both("queue")
        await seen.press("ctrl+x")
        await seen.shows("deleted from the queue")
        await seen.press("ctrl+k", "ctrl+e")
        await seen.until(lambda: composer.text == "to be edited", "it is in the input")
        await seen.press("ctrl+j", "x")
        assert composer.text == "to be edited\nx"  # nothing is chosen: a new line
        await seen.press("enter", "escape", "escape")
        await seen.until(lambda: seen.text().count("Hoot hoot.") == 2, "both were answered")
        assert [said.words for said in seen.app.query(Said)] == ["stuck please", "one more", "to be edited\nx"]

    see(core, scenario)


@pytest.mark.covers("A-174", "A-176", "A-173")
def test_threads_are_gone_to_by_keys_from_any_tab(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f8", "ctrl+l")
        await seen.shows("second words", "a new thread")
        await seen.press(*"first", "enter")
        await seen.shows("▌ first words", "resumed")
        await seen.press("ctrl+l")
        await seen.shows("● first words")
        await seen.press(*"words")  # those of this test alone
        await seen.until(lambda: "a new thread" not in seen.text(), "the others have left the list")
        seen.app._forget_notice()
        await seen.same_in_both("picker")
        await seen.press("escape")
        await seen.press("ctrl+l", *"zz")
        await seen.shows("nothing has these words")
        await seen.press("enter", "escape", "ctrl+p")
        await seen.shows("▌ second words")
        await seen.press("ctrl+n")
        await seen.shows("▌ first words")
        seen.app.link.path += "x"  # nobody answers there
        await seen.press("ctrl+l")
        await seen.shows("the others cannot be listed", "● first words")
        await seen.press("escape")
        await seen.press("ctrl+d")
        await seen.until(lambda: not seen.app.is_running, "it has left")

    see(core, scenario)


@pytest.mark.covers("B-157", "A-173")
def test_all_that_can_be_done_is_found_and_what_was_said_is_copied_without_a_mouse(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        told = copied(seen)
        await say(seen, "code please")
        await seen.shows("owls = 2", "context")
        await seen.press("ctrl+g")
        await seen.shows("type what you want to do", "Tools")
        await seen.same_in_both("palette")
        await seen.press(*"sched", "enter")
        assert seen.app._active_panel.LABEL == "Schedules"
        await seen.press("ctrl+g", *"copy", "enter")
        await seen.shows("code: owls = 2", "you: code please")
        await seen.same_in_both("copy")
        await seen.press(*"owls", "enter")
        await seen.shows("copied 9 characters")
        assert told == ["owls = 2\n"]
        await seen.press("ctrl+g", *"/rename", "enter")
        assert seen.app.query_one(Composer).text == "/rename "

    see(core, scenario)


@pytest.mark.covers("A-173")
def test_thoughts_are_folded_and_a_decision_is_reached_from_any_tab(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "think of owls")
        await seen.shows("… First I count the owls. Then I say so.", "Two owls.")
        order = [type(child).__name__ for child in seen.app.chat.transcript.children if not child.has_class("-hello")]
        assert order == ["Said", "Thought", "Prose"]
        await seen.press("ctrl+t")
        await seen.until(lambda: seen.app.query_one(Thought).size.height == 3, "it is unfolded")
        await seen.press("ctrl+t")
        await say(seen, "write a file")
        await seen.shows("waiting for you")
        await seen.press("f4", "ctrl+o")
        await seen.until(lambda: seen.app.chat.waits.has_focus, "the card has the focus")
        await seen.press("r")
        await seen.shows("rejected")

    see(core, scenario)


@pytest.mark.covers("B-156", "A-173")
def test_thoughts_show_as_they_come_and_a_call_before_it_is_whole(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "prepare something")
        await seen.shows("… First I look.", "⟳ Preparing tool call: search…")
        await seen.shows("✔ search", "… First I look.", "Hoot hoot.")
        assert "Preparing" not in seen.text()
        order = [type(child).__name__ for child in seen.app.chat.transcript.children if not child.has_class("-hello")]
        assert order == ["Said", "Thought", "ToolBox", "Prose"]

    see(core, scenario)


@pytest.mark.covers("B-156")
def test_text_that_streams_is_passed_on_at_most_every_50_ms_and_none_is_lost() -> None:
    written: list[tuple[float, str]] = []
    buffer = Buffer(lambda text, is_thought: written.append((monotonic_s(), text)))
    pieces = 0
    while len(written) < 3:
        buffer.add("owl ")
        pieces += 1
        sleep_s(0.005)
    buffer.add("end", True)
    buffer.flush()
    assert "".join(text for _, text in written) == "owl " * pieces + "end"
    assert all(later - sooner >= 0.05 for (sooner, _), (later, _) in pairwise(written[:3]))


@pytest.mark.covers("B-158")
def test_title_follows_what_another_process_calls_the_thread(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "what is this called")
        await seen.shows("Hoot hoot.", "context", "· what is this called")
        with apsw.Connection(str(core.box.home.database)) as other:  # as a worker that gives it a title would
            other.execute("UPDATE runs SET title = 'renamed elsewhere' WHERE id = ?", (seen.app.attached(),))
        await seen.shows("· renamed elsewhere")
        assert live.TITLE_S <= 5.0

    see(core, scenario)


@pytest.mark.covers("S-125", "S-009", "S-126")
def test_sessions_channels_schedules_and_skills_are_read_on_the_screen_and_in_the_shell(core: Core) -> None:
    def is_failing() -> bool:
        return next(one for one in core.call("channel.list") if one["name"] == "matrix")["state"] == "failing"

    until(is_failing, "the channel has tried")
    sessions = core.call("session.list")
    ours = next(one for one in sessions if one["id"].startswith("local:") and not one["context"].startswith("group:"))
    count, me = ours["messages"], ours["id"]

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f8")
        await seen.shows("schedules         0 on", "cannot; /skills", "no connection to http://127.0.0.1:9")
        total = sum(one["messages"] for one in sessions)
        await seen.shows(f"sessions          {len(sessions)}, messages: {total}")
        await seen.press("f1")
        await say(seen, "/channels")
        await seen.shows("matrix     failing, no connection to", "webhook    off")
        await say(seen, "/skills")
        await seen.shows("✘ needy cannot be used: CLI: no-such-program")
        await say(seen, "/sessions")
        await seen.shows("type to find a session", f"messages: {count},")
        await seen.press(*"local", "enter")
        await seen.shows("resumed")
        await say(seen, "/new")
        await seen.pilot.resize_terminal(80, 24)
        await say(seen, "/sessions")
        await seen.shows("type to find a session")
        await seen.press(*me)
        await seen.until(lambda: "group:family" not in seen.text(), "the others have left the list")
        seen.app._forget_notice()
        await seen.until(lambda: "resumed" not in seen.text(), "the notice is gone")
        await seen.same_in_both("sessions")
        await seen.press("escape")

    see(core, scenario, (120, 40))
    told = {name: core.box.run(name, "list").stdout for name in ("session", "channel", "skill", "schedule")}
    assert f" {count} " in told["session"] and "Connection refused" in told["channel"]
    assert "no-such-program" in told["skill"] and told["schedule"]


@pytest.mark.covers("A-173")
def test_another_role_answers_and_what_was_told_can_be_read_again(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "/notices")
        await seen.shows("no notifications yet")
        await say(seen, "who are you")
        await seen.shows("Hoot hoot.", "context")
        seen.app.query_one(Composer).replace_text("/role ")
        await seen.shows("researcher", "NAME]: who answers in this thread")
        assert "heartbeat" not in seen.text()
        await say(seen, "/role researcher")
        await seen.shows("researcher answers in this thread from your next message on")
        seen.app._forget_notice()
        await seen.shows(" as researcher")
        assert core.call("thread.view", id=seen.app.attached())["thread"]["role"] == "researcher"
        await say(seen, "/role heartbeat")
        await seen.shows("no role 'heartbeat' that talks with you")
        await say(seen, "/role assistant")
        await seen.shows("assistant answers in this thread")
        seen.app._forget_notice()
        await seen.until(lambda: "● script" in seen.text() and " as researcher" not in seen.text(), "it is the assistant again")

    see(core, scenario)


@pytest.mark.covers("A-177")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10)])
def test_talk_keeps_its_lines_however_long_the_input_is(core: Core, size: tuple[int, int]) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.shows("●")
        seen.app.query_one(Composer).replace_text("line\n" * 20)
        await seen.pilot.pause()
        assert seen.app.chat.transcript.size.height >= max(5, size[1] - 11)
        await seen.pilot.resize_terminal(60, 12)
        await seen.shows("Chat  2  3  4")

    see(core, scenario, size)


@pytest.mark.covers("A-172", "A-173")
def test_a_thread_is_written_as_a_page_and_a_group_is_worked_for(core: Core, tmp_path: Path) -> None:
    page = tmp_path / "page.html"

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "/export")
        await seen.shows("/export: send a message first")
        await say(seen, "hello <b>owl</b>")
        await seen.shows("Hoot hoot.", "context")
        await say(seen, f"/export {page}")
        await seen.shows("wrote")
        await say(seen, f"/export {tmp_path}/no/page.html")
        await seen.shows("cannot be written")
        await say(seen, "/status")
        await seen.shows("MB", "s of CPU", "channels", "local:")
        await say(seen, "/group nobody")
        await seen.shows("there is no group 'nobody'")
        await say(seen, "/group family")
        await seen.shows("this screen works for group family")
        await seen.until(lambda: seen.app.link.is_up, "it is connected again")
        await say(seen, "dinner at eight")
        await seen.shows("Hoot hoot.", "context")
        await say(seen, "/group")
        await seen.shows("for yourself again")
        await say(seen, ":q")
        await seen.until(lambda: not seen.app.is_running, "it has left")

    see(core, scenario)
    text = page.read_text()
    assert "hello &lt;b&gt;owl&lt;/b&gt;" in text and "Hoot hoot." in text and page.stat().st_mode & 0o077 == 0
    sessions = {one["id"]: one["context"] for one in core.call("session.list")}
    assert sessions["local:group:family"] == "group:family"


@pytest.mark.covers("B-160", "B-161", "A-175")
def test_the_menu_opens_only_for_a_command_and_up_brings_back_what_the_thread_was_told(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        composer = seen.app.query_one(Composer)
        await seen.is_connected()
        await seen.press("enter", "space", "enter")
        assert not seen.app.query(Said)  # nothing was typed, nothing is sent
        seen.app.resume(core.call("thread.list", type="chat", limit=50)[-1]["id"])
        await seen.shows("▌ first words")
        composer.replace_text("")
        await seen.press("up")
        assert composer.text == "first words"
        composer.replace_text("")
        await seen.press("slash")
        await seen.shows("/skills")
        assert seen.app.chat.query_one("Menu").size.height == 8
        seen.app._forget_notice()
        await seen.same_in_both("menu")
        await seen.press("R", "E", "S", "tab")
        assert composer.text == "/resume "
        composer.replace_text("")
        await seen.press("slash", "s", "t", "a", "enter")
        await seen.shows("version")
        await seen.press("x", "slash")
        assert not seen.app.chat.query_one("Menu").is_open

    see(core, scenario)


@pytest.mark.covers("A-178")
def test_a_person_with_standard_rights_sees_what_there_is() -> None:
    status = {"version": "1", "pid": 0, "uptime_s": 3, "sessions": [{"id": "local:ann", "status": "active"}]}
    lines = status_lines(status | {"local": {"model": "m", "tier": "tiny", "basis": "measured"}}, 0, "")
    assert "session   local:ann, active" in lines and not any(line.startswith("home") for line in lines)


def test_a_page_has_no_markup_of_its_authors() -> None:
    event = {"kind": "message", "role": "assistant", "call_id": "", "at_ms": 0, "status": 200}
    texts = ("<script>x()</script>", "[a](javascript:x())", "![p](https://x/y.png)", "[ok](https://example.org)")
    page = render_page("<i>", [{**event, "content": text} for text in texts])
    assert "<script" not in page and 'href="javascript' not in page and "<img" not in page and 'href="https://example.org"' in page
    assert "<title>&lt;i&gt;</title>" in page and "default-src 'none'" in page


def test_a_skill_is_called_by_either_name() -> None:
    assert commands.split("/skill:garden now") == commands.split("/garden now") == ("garden", "now")
