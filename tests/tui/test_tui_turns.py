"""Turns on the screen: what waits for a decision, what fills a packet, branches, and the commands that are typed."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from needs import needs
from process import ROOT, Box, Core, a_box, script, standing_core  # noqa: F401
from screens import FOLDER, Seen, show
from stores import let_chats_do_all
from textual.app import App
from textual.content import Content

from appliance.errors import Conflict
from appliance.tui import approvals, branch_tree, command_runner, commands, packet_meter
from appliance.tui.composer import Composer, Menu
from appliance.tui.follower import Came
from appliance.tui.panel import named
from appliance.tui.shown_text import Shown, readable

FILE_PLAY = """
[[turns]]
match = "plan NAME"
tool_calls = [{name = "set", arguments = {path = "NAME.md", body = "# Plan\\n\\nBeans in April.\\n-- at night [b]bold[/b]\\n"}}]
[[turns]]
match = "plan NAME"
tool_calls = [{name = "set", arguments = {path = "NAME.md", search = "Beans in April.\\n-- at night", body = '''
Beans in May, which is a line so long that it has to be broken on a narrow screen.
++'''}}]
[[turns]]
match = "plan NAME"
text = "The plan NAME is written."
"""
PLAY = (
    "".join(FILE_PLAY.replace("NAME", name) for name in ("first", "ascii", "behind", "late", "hidden"))
    + """
[[turns]]
match = "make two"
[[turns.tool_calls]]
name = "set"
arguments = {path = "one.txt", body = "hello\\n"}
[[turns.tool_calls]]
name = "set"
arguments = {path = "two.txt", body = "hello two\\n"}
[[turns]]
match = "make two"
text = "Both are there."
[[turns]]
match = "paint it"
tool_calls = [{name = "set", arguments = {path = "door.md", body = "green"}}]
[[turns]]
match = "paint it"
text = "The door is painted now."
chunk_size = 4
chunk_delay_s = 0.4
[[turns]]
match = "remove two"
tool_calls = [{name = "rm", arguments = {path = "*.txt"}}]
[[turns]]
match = "remove two"
text = "Both are gone."
[[turns]]
match = "count for me"
[[turns.tool_calls]]
name = "use"
arguments.tool = "exec"
arguments.arguments.command = "echo one; sleep 1; echo [b]two[/b]; until ls go; do sleep 0.3; done 2>/dev/null"
[[turns]]
match = "count for me"
text = "Counted."
[[turns]]
match = "dig here"
[[turns.tool_calls]]
name = "use"
arguments.tool = "exec"
arguments.arguments.command = "echo dug"
[[turns]]
match = "colour"
repeat = true
tool_calls = [{name = "ask_user", arguments = {question = "Which [b]colour[/b]?", options = "red;blue"}}]
[[turns]]
match = "slow"
repeat = true
text = "SLOW"
chunk_size = 4
chunk_delay_s = 0.2
[[turns]]
repeat = true
text = "Hoot hoot."
""".replace("SLOW", "one two three four " * 60)
)
ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    """One core for all: each test has threads and files of its own."""

    def prepare(box: Box) -> None:
        script(box, PLAY)
        let_chats_do_all(box.home)

    with standing_core(prepare) as made:
        yield made


def see(core: Core, scenario: Any, size: tuple[int, int] = (80, 24), **environ: str) -> None:
    show({**ENVIRON, **environ}, core.box.runtime, scenario, size)


async def say(seen: Seen, text: str) -> None:
    """Type a line at once and send it: key by key takes a second of a slow machine."""
    seen.app.query_one(Composer).replace_text(text)
    await seen.press("enter")


def newest(core: Core) -> dict[str, Any]:
    found: dict[str, Any] = core.call("thread.list", limit=1)[0]
    return found


def results(core: Core, thread: str) -> list[str]:
    """What came of a thread's calls."""
    return [e["outcome"] for e in core.call("thread.view", id=thread)["events"] if e["kind"] == "tool_result"]


def text_of(core: Core, ref: str) -> str:
    found: str = core.call("entry.get", ref=ref)["message"]
    return found


# -- what waits ---------------------------------------------------------------------------------------


@pytest.mark.covers("R-086", "R-090")
def test_change_of_a_file_is_shown_accepted_and_the_next_one_rejected(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "plan first")
        await seen.shows("? set first.md", "+Beans in April.", "+-- at night [b]bold[/b]", "1 waiting for you")
        await seen.press("a")
        assert seen.app.query_one(Composer).text == "a", "what is typed for the input decides nothing"
        await seen.press("backspace", "ctrl+o", "a")
        await seen.shows("✔ set(", "--- at night", "+Beans in May", "│ screen.")
        assert text_of(core, "first.md").startswith("# Plan\n\nBeans in April.")
        assert seen.app.query_one(Composer).has_focus
        await seen.shows("1 waiting for you")
        await seen.same_in_both("waits")
        await seen.press("ctrl+o", "w", *"too", "space", *"late", "enter")
        await seen.shows("✘ set(", "rejected")
        await seen.until(lambda: not seen.app.chat.waits.display, "the card is gone")
        await seen.until(lambda: seen.app.chat.running is None, "it has ended")

    see(core, scenario)
    thread = newest(core)
    assert (thread["status"], thread["outcome"]) == (200, "rejected")
    assert results(core, thread["id"]) == ["ok", "rejected"]
    told = [e["content"] for e in core.call("thread.view", id=thread["id"])["events"] if e["kind"] == "tool_result"]
    assert "first.md: rejected: too late" in told[1], "the model is told why"
    assert "April" in text_of(core, "first.md") and core.call("entry.waiting") == []


def test_an_answer_that_goes_on_after_a_card_stands_once(core: Core) -> None:
    """It streams to whoever decided, and what follows the thread hears of it as well, often sooner: that waits for its end."""

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "paint it")
        await seen.shows("? set door.md", "1 waiting for you")
        await seen.press("ctrl+o", "a")
        await seen.until(lambda: seen.app.chat.transcript.is_answering, "it is being answered")
        heard = {"seq": 10_000, "kind": "message", "role": "assistant", "content": "Heard beside it.", "correlation": "x"}
        await seen.app.chat.onlooker.handle_sight(Came(seen.app.chat.talk.thread, heard))
        await seen.shows("The door is painted now.", "Heard beside it.")
        before, answer, after = seen.text().partition("The door is painted now.")
        assert "Heard beside it." in after and "The door" not in after, seen.text()

    see(core, scenario)


@needs("bwrap", "perl")
def test_what_a_command_says_is_seen_while_it_runs(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await say(seen, "count for me")
        await seen.shows("1 waiting for you", "? exec echo one")
        await seen.press("ctrl+o", "a")
        await seen.shows("⟳ exec(", "· [b]two[/b]")
        for folder in core.box.home.root.glob("sessions/*/data"):
            (folder / "go").touch()
        await seen.shows("✔ exec(", "Counted.")

    see(core, scenario)


@needs("bwrap")
def test_a_call_that_waits_is_not_taken_for_interrupted_when_its_thread_is_opened(core: Core) -> None:
    core.call("message.send", text="dig here")

    async def scenario(seen: Seen) -> None:
        await seen.shows("● ", "1 waiting for you, /waiting")
        await say(seen, "/waiting")
        await seen.shows("▌ dig here", "? exec echo dug", "? exec(", "· waits for you")
        assert "interrupted" not in seen.text()
        await seen.press("ctrl+o", "r")
        await seen.shows("✘ exec(", "rejected")

    see(core, scenario)


def test_wide_screen_shows_the_same_card(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "plan ascii")
        await seen.shows("? set ascii.md", "+Beans in April.", "waiting for you")
        assert seen.text().isascii()
        await seen.same_as("waits-ascii")
        await say(seen, "/budget")
        await seen.shows("tokens, ")
        assert seen.text().isascii()
        await say(seen, "/stop")
        await seen.until(lambda: not seen.app.chat.waits.display, "nothing waits any more")
        await seen.shows("x set(")

    see(core, scenario, (120, 40), LANG="C", NO_COLOR="1")
    assert newest(core)["status"] == 499


@pytest.mark.covers("R-092")
def test_question_is_answered_by_typing_by_number_and_by_key(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "which colour")
        await seen.shows("The owl asks", "Which [b]colour[/b]?", "1. red", "type the answer below")
        await seen.same_in_both("question")
        await say(seen, "green, rather")
        await seen.shows("▌ green, rather", "The owl asks")
        await say(seen, "2")
        await seen.shows("▌ blue", "The owl asks")
        await seen.press("ctrl+o", "9", "1")
        await seen.shows("▌ red", "The owl asks")
        await say(seen, "/approve")
        await seen.shows("/approve ANSWER")
        await say(seen, "/reject no")
        await seen.until(lambda: not seen.app.chat.waits.display and seen.app.chat.running is None, "it is over")

    see(core, scenario)
    thread = newest(core)
    said = [e["content"] for e in core.call("thread.view", id=thread["id"])["events"] if e["kind"] == "tool_result"]
    assert said[:3] == ["green, rather", "blue", "red"] and thread["outcome"] == "rejected"


def test_several_are_leafed_through_and_those_decided_elsewhere_disappear(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "make two")
        await seen.shows("? set one.txt")
        await say(seen, "/approve")
        await seen.shows("? set two.txt")
        await say(seen, "/approve")
        await seen.shows("Both are there.")
        await say(seen, "/new")
        await say(seen, "remove two")
        await seen.shows("? rm one.txt  1 of 2", "-hello")
        await seen.press("ctrl+o", "right")
        await seen.shows("? rm two.txt  2 of 2", "-hello two")
        await seen.press("right")
        await seen.shows("1 of 2")
        thread, card = seen.app.chat.talk.thread, seen.app.chat.waits
        card._at = 1  # as after the key and before the core has told what that one is
        card.action_decide("accept")
        card._at = 0
        assert len(core.call("entry.waiting", run=thread)) == 2, "what was not shown is not decided"
        core.call("run.resolve", ref="one.txt", run=thread)
        await seen.until(lambda: "? rm two.txt" in seen.text() and "of 2" not in seen.text(), "the other one is left")
        core.call("run.resolve", ref="two.txt", run=thread)
        await seen.shows("Both are gone.", "✔ rm(")
        await seen.until(lambda: not seen.app.chat.waits.display and seen.app.query_one(Composer).has_focus, "nothing waits")

    see(core, scenario)


def test_card_that_is_hidden_gives_the_keys_to_the_input_at_once(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "plan hidden")
        await seen.shows("? set hidden.md")
        card, screen = seen.app.chat.waits, seen.app.screen
        for hide in (card.clear, lambda: card.refresh_waiting(""), lambda: card._take_listing([])):
            await seen.press("ctrl+o")
            await seen.until(lambda: screen.focused is card, "the card has the focus")
            hide()
            assert not card.display and screen.focused is seen.app.query_one(Composer), "before Textual hears of it"
            card.refresh_waiting(seen.app.chat.talk.thread)
            await seen.until(lambda: card.display, "it is back")
        await seen.press("ctrl+o", "r")
        await seen.until(lambda: seen.app.chat.running is None and not card.display, "it has ended")

    see(core, scenario)


def test_decision_of_somebody_quicker_stands(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "plan late")
        await seen.shows("? set late.md")
        core.call("run.resolve", ref="late.md", run=seen.app.chat.talk.thread, action="reject")
        await seen.press("ctrl+o", "a")
        await seen.shows("✘ set(")
        await seen.until(lambda: seen.app.chat.running is None, "it has ended")

    see(core, scenario)
    assert newest(core)["outcome"] == "rejected"


def test_message_that_waits_behind_a_decision_is_answered_after_it(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "plan behind")
        await seen.shows("? set behind.md")
        await say(seen, "good evening")
        await seen.shows("▌ good evening")
        for _ in range(2):
            await seen.shows("? set behind.md")
            await seen.press("ctrl+o", "a")
            await seen.until(lambda: not seen.app.chat.waits.holds_focus, "it is decided")
            await seen.pilot.pause(0.5)
        await seen.shows("The plan behind is written.", "Hoot hoot.")
        await seen.until(lambda: seen.app.chat.running is None, "both have ended")

    see(core, scenario)


def test_what_waits_in_another_thread_is_counted_marked_and_gone_to(core: Core) -> None:
    core.call("message.send", text="which colour")

    async def scenario(seen: Seen) -> None:
        await seen.shows("● ", "1 waiting for you, /waiting")
        await say(seen, "good evening")
        await seen.shows("Hoot hoot.")
        await say(seen, "/approve")
        await seen.shows("nothing to approve here; /waiting shows")
        await seen.press("f5")
        await seen.shows("?   now which colour")
        await seen.press("escape")
        await say(seen, "/waiting")
        await seen.shows("▌ which colour", "The owl asks")
        await say(seen, "/waiting")
        await seen.until(lambda: seen.app.chat.waits.has_focus, "the keys go to the card")
        await seen.press("escape")
        assert seen.app.query_one(Composer).has_focus
        await say(seen, "/abort")
        await seen.until(lambda: not seen.app.chat.waits.display, "nothing waits any more")

    see(core, scenario)


@pytest.mark.covers("A-022")
def test_what_waits_survives_the_core(box: Box) -> None:
    script(box, PLAY)
    core = box.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "which colour")
        await seen.shows("The owl asks")
        core.kill()
        await seen.shows("○ core away")
        script(box, PLAY.replace("which", "before"))
        box.serve()
        await seen.shows("● ")
        await say(seen, "2")
        await seen.shows("▌ blue")

    show(ENVIRON, box.runtime, scenario)


@pytest.mark.parametrize("size", [(40, 10), (20, 5)])
def test_tiny_terminals_can_decide(core: Core, size: tuple[int, int]) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.until(lambda: seen.app.link.is_up, "connected")
        await say(seen, "which colour")
        await seen.until(lambda: seen.app.chat.waits.display, "it asks")
        await say(seen, "/budget")
        await seen.press("ctrl+o", "r")
        await seen.until(lambda: not seen.app.chat.waits.display and seen.app.chat.running is None, "it is over")

    see(core, scenario, size)
    assert newest(core)["outcome"] == "rejected"


# -- the budget ---------------------------------------------------------------------------------------


@pytest.mark.covers("B-178")
def test_budget_is_shown_and_follows_the_thread(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "/budget")
        await seen.shows("nothing has been said yet")
        await say(seen, "good morning")
        await seen.shows("Hoot hoot.")
        await seen.press("ctrl+b")
        await seen.shows("system", "conversation          2", "free", "layout chat")
        assert "░" in seen.text() and "free" in seen.text()
        seen.app._forget_notice()
        await seen.same_in_both("budget")
        await say(seen, "good night")
        await seen.shows("conversation          4")
        await say(seen, "/budget")
        await seen.until(lambda: "conversation  " not in seen.text(), "it is hidden")

    see(core, scenario)


# -- branches and threads -----------------------------------------------------------------------------


@pytest.mark.covers("A-216")
def test_tree_goes_back_to_a_message_and_to_the_old_branch_and_forks(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        chat = seen.app.chat
        await seen.is_connected()
        await say(seen, "tulips")
        await seen.shows("Hoot hoot.")
        await say(seen, "roses")
        await seen.until(lambda: seen.text().count("Hoot hoot.") == 2 and chat.running is None, "both are answered")
        first = chat.talk.thread
        await say(seen, "/tree")
        await seen.shows("● tulips  to 4", "▌   3 roses", "Enter continues there")
        await seen.same_in_both("tree")
        await seen.press("down", "enter")
        await seen.until(lambda: seen.app.query_one(Composer).text == "roses", "it can be said anew")
        await seen.shows("the old branch stays")
        await seen.until(lambda: seen.text().count("Hoot hoot.") == 1, "the old answer is off the screen")
        await seen.press(*"bush", "enter")
        await seen.shows("▌ rosesbush")
        await seen.until(lambda: seen.text().count("Hoot hoot.") == 2 and chat.running is None, "it is answered")
        await say(seen, "/tree")
        await seen.shows("tulips  to 4", "● rosesbush  from 2, to 6")
        await seen.press("up", "enter")
        await seen.shows("▌ roses", "resumed")
        await seen.until(lambda: "rosesbush" not in seen.text(), "the other branch is off the screen")
        await say(seen, "/tree")
        await seen.shows("rosesbush  from")
        await seen.press("f")
        await seen.until(lambda: chat.talk.thread != first, "a thread of its own")
        await seen.shows("this is the new thread", "▌ roses")

    see(core, scenario)
    assert newest(core)["parent"] is not None


def test_thread_is_forked_renamed_found_by_its_name_and_compacted_with_an_error(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "daisies")
        await seen.shows("Hoot hoot.")
        await say(seen, "/rename two words")
        await seen.shows("'two words' cannot be a run's name", "letters, digits and _")
        await say(seen, "/rename meadow")
        await seen.shows("this thread is meadow now")
        await say(seen, "/fork meadow_again")
        await seen.shows("this is the new thread meadow_again")
        await seen.until(lambda: seen.app.chat.talk.title == "meadow_again: daisies", "it has the new name")
        await say(seen, "/fork 99")
        await seen.shows("has no event 99")
        await say(seen, "/approval auto")
        await seen.shows("auto: it does what the policy allows")
        await say(seen, "/approval")
        await seen.shows("approval auto:")
        await say(seen, "/approval never")
        await seen.shows("/approval never: use ask, review or auto")
        await say(seen, "/model nowhere")
        await seen.shows("nowhere")
        await say(seen, "/new")
        await seen.press("slash", *"resume", "space", *"meadow_a")
        await seen.shows("meadow_again: daisies")
        await seen.press("enter")
        await seen.shows("resumed meadow_again: daisies")
        await say(seen, "/resume meadow")
        await seen.shows("resumed meadow: daisies")
        await seen.press("f5")
        await seen.shows("meadow_again: daisies")

    see(core, scenario)


def test_word_to_a_working_owl_and_the_end_of_its_answer(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, "slow please")
        await seen.shows("one two")
        await say(seen, "/inject by the way")
        await seen.shows("reads it at its next step")
        await say(seen, "/abort")
        await seen.shows("Stopped.")
        await say(seen, "/stop")
        await seen.until(lambda: seen.app.chat.running is None, "all has ended")

    see(core, scenario)


def test_archived_session_says_so_and_comes_back(core: Core) -> None:
    thread = core.call("message.send", text="for later")["run"]

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await say(seen, f"/resume {thread}")
        await seen.shows("▌ for later")
        await say(seen, "/archive")
        await seen.shows("is archived; your next message reopens it")
        await say(seen, "/sessions")
        await seen.shows("archived, messages: ")
        await seen.press("escape")
        await say(seen, f"/resume {thread}")
        await seen.shows("its session is archived, your next message reopens it")
        await say(seen, "back again")
        await seen.shows("▌ back again")
        await seen.until(lambda: core.call("session.list")[0]["status"] == "active", "it is active")

    see(core, scenario)


IMPOSSIBLE = (
    ("/frok", "unknown command /frok (did you mean /fork?)"),
    ("/zzz", "unknown command /zzz; /help lists commands, /skills what else"),
    ("/rename x", "/rename: send a message first"),
    ("/tree", "/tree: send a message first"),
    ("/new house", "/new takes nothing after it, not 'house'"),
    ("/resume nowhere", "no thread nowhere"),
)


def test_command_that_cannot_be_says_why(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        for typed, told in IMPOSSIBLE:
            await say(seen, typed)
            await seen.shows(told)

    see(core, scenario)


@pytest.mark.covers("B-124", "E-222", "E-226", "E-227")
def test_skills_are_offered_beside_commands_and_called(core: Core) -> None:
    folder = core.box.home.box / "skills"
    folder.mkdir(exist_ok=True)
    (folder / "brew.md").write_text("---\ndescription: Brew tea.\narguments:\n  - name: sort\n---\nBrew $sort.")
    core.call("core.reload")

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        seen.app.query_one(Composer).focus()
        seen.app.query_one(Composer).replace_text("/bre")  # at once, as a paste
        await seen.shows("/brew [sort]")
        seen.app.query_one(Composer).replace_text("")
        await seen.press(*"hello")
        assert not seen.app.query_one(Menu).is_open
        seen.app.query_one(Composer).replace_text("")
        await seen.press("slash")
        await seen.shows("/help")
        await seen.press(*"BRE")
        await seen.shows("/brew [sort]")
        await seen.press("enter")
        assert seen.app.query_one(Composer).text == "/brew ", "it waits for words"
        assert not seen.app.query_one(Menu).is_open
        await seen.press(*"green", "enter")
        await seen.shows("▌ /brew green")
        await say(seen, "/SKILLS")
        await seen.shows("/summarize")

    see(core, scenario)


# -- without a screen ---------------------------------------------------------------------------------


def test_proposal_is_told_in_full_over_the_socket(core: Core) -> None:
    thread = core.call("message.send", text="which colour")["run"]
    ref = core.call("entry.waiting", run=thread)[0]["ref"]
    found = core.call("run.proposal", ref=ref, run=thread)
    assert (found["action"], found["options"], found["patch"], found["is_file_change"]) == ("ask_user", ["red", "blue"], "", False)
    assert found["text"].startswith("Which [b]colour[/b]?\n1. red")
    with pytest.raises(Conflict, match="is not what you were shown"):
        core.call("run.resolve", ref=ref, run=thread, action="accept", output="red", digest="0" * 64)
    assert core.call("run.proposal", ref=ref, run=thread)["digest"] == found["digest"]
    core.call("run.stop", run=thread)


def test_difference_hides_no_line() -> None:
    full = {
        "action": "set",
        "patch": "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- at night\n+++ [b]\n",
        "text": "",
        "ref": "log://a",
        "run": "r",
    }
    assert [line.plain for line in approvals.body(full)] == ["@@ -1,2 +1,2 @@", "--- at night", "+++ [b]"]
    long = approvals.body({**full, "patch": "", "text": "x" * 20_000})
    assert long[-1].plain == "… 4000 more characters: owlbox entry get log://a --thread r"


def test_text_that_stands_there_already_is_not_drawn_again() -> None:
    class Counted(Shown):
        drawn = 0

        def render(self) -> Any:
            self.drawn += 1
            return super().render()

    class One(App[None]):
        def compose(self) -> Iterator[Counted]:
            yield Counted("hoot", id="one")

    async def scenario() -> None:
        app = One()
        async with app.run_test() as pilot:
            shown = app.query_one(Counted)
            for words in ("hoot", Content("hoot"), Content.styled("hoot", "bold"), "a\u200bb"):
                shown.update(words)
                await pilot.pause()
                before = shown.drawn
                for _ in range(3):
                    shown.update(words)
                    await pilot.pause()
                assert shown.drawn == before
                shown.update(Content.styled(words if isinstance(words, str) else words.plain, "italic"))
                await pilot.pause()
                assert shown.drawn > before, "another style is another text"

    asyncio.run(scenario())


def test_title_names_source_and_destination() -> None:
    full = {"action": "mv", "source": "a.txt", "subject": "b\n.txt"}
    assert approvals.title(full) == r"mv a.txt → b\n.txt"


@pytest.mark.covers("B-178")
def test_meter_sums_up_what_has_no_room_and_warns() -> None:
    lines = [{"scheme": f"s{n}", "count": 1, "tokens": 100 - n} for n in range(10)]
    table = {"lines": lines, "summarized": 2, "summarized_tokens": 5, "system": 50, "usage": 1000, "free": -100}
    found = {"table": table, "ceiling": 900, "is_over": True, "route": "r", "layout": "entries", "notes": ["left out"]}
    shown = [line.plain for line in packet_meter.rows(found)]
    assert "1000 of 900 tokens, 111 %" in shown[0] and "░" not in shown[0]
    assert shown[-4].split() == ["3", "more", "3", "276", "31", "%"] and shown[-3].startswith("summarized")
    assert shown[-2].split() == ["free", "-100"] and shown[-1] == "left out"
    endless = packet_meter.rows({**found, "table": {**table, "free": None}, "ceiling": None, "is_over": False})
    assert endless[0].plain.startswith("1000 tokens, no limit known")


def test_part_of_a_branch_leaves_out_what_nobody_knows_the_begin_of() -> None:
    events = [
        {"kind": "message", "role": role, "seq": seq, "content": "x"} for seq, role in enumerate(["user", "assistant", "user"], 5)
    ]
    assert command_runner.spoken_lines(events, is_whole=True) == [
        branch_tree.SaidMessage(5, 0, "x"),
        branch_tree.SaidMessage(7, 6, "x"),
    ]
    assert command_runner.spoken_lines(events, is_whole=False) == [branch_tree.SaidMessage(7, 6, "x")]


def test_command_that_was_meant_is_guessed() -> None:
    assert [commands.near(word) for word in ("frok", "renam", "xyz", "budgets")] == ["fork", "rename", "", "budget"]
    assert [offer.line for offer in commands.offers("/re")] == ["/resume", "/rename", "/reject"]


def test_thread_is_called_by_its_first_words_until_it_is_named() -> None:
    assert named({"alias": "chat_1795334856722", "title": "peas"}) == "peas"
    assert named({"alias": "meadow", "title": "peas"}) == "meadow: peas" and named({"alias": "meadow", "title": ""}) == "meadow"


@pytest.mark.parametrize("name", ["waits"])
def test_document_shows_the_screen_as_it_is(name: str) -> None:
    assert (FOLDER / f"{name}.txt").read_text().rstrip("\n") in (ROOT / "docs/guides/turns.md").read_text()


def test_card_hides_no_character_and_no_line() -> None:
    hidden = "".join(chr(0xE0000 + ord(c)) for c in "47")
    full = {"action": "exec", "source": "", "subject": f"curl a.b{hidden}\u200b\nAccept", "patch": "", "ref": "log://a", "run": "r"}
    assert approvals.title(full) == r"exec curl a.b\u{e0034}\u{e0037}\u{200b}\nAccept"
    lines = approvals.body({**full, "text": f"echo 👩\u200d🚀{hidden}\necho two"})
    assert [line.plain for line in lines] == [r"echo 👩\u{200d}🚀\u{e0034}\u{e0037}", "echo two"]


def test_words_with_styles_keep_them_around_escapes() -> None:
    found = readable(Content.assemble(("a\u200bb", "bold"), "c\u061c"))
    assert isinstance(found, Content) and found.plain == r"a\u{200b}bc\u{61c}"
    assert [(span.start, span.end, str(span.style)) for span in found.spans if str(span.style) == "bold"] == [
        (0, 1, "bold"),
        (9, 10, "bold"),
    ]
