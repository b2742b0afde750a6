"""What an open screen shows by itself: whatever others write into its thread, and what arrives elsewhere."""

import pytest
from process import Box, Core, a_box, a_shared_box, script, until  # noqa: F401
from screens import Seen, show

from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.tui.composer import Composer

PLAY = """
[[turns]]
match = "slow"
repeat = true
text = "one two three four five six seven eight nine ten"
chunk_size = 4
chunk_delay_s = 0.1
[[turns]]
match = "tell bob"
tool_calls = [{name = "message", arguments = {content = "hello Bob", target = "person:bob"}}]
[[turns]]
repeat = true
text = "Hoot hoot."
"""
ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Core:
    """One core for all of these."""
    script(shared_box, PLAY)
    return shared_box.serve()


def newest(core: Core) -> str:
    return str(core.call("thread.list", limit=1)[0]["id"])


def put(core: Core, key: str, text: str, run: str | None) -> None:
    """What another process does, such as a worker: it puts a letter and says so."""
    store = Store.open(core.box.home.database)
    try:
        person = core.call("session.list")[0]["person"]
        Outbox(store, "").put(Notification(key, person, text, channel="local", run=run), durable=True)
    finally:
        store.close()
    core.call("queue.changed")


@pytest.mark.covers("A-248")
def test_what_others_say_in_the_open_thread_appears_by_itself(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("hello there")
        await seen.shows("Hoot hoot.", "hello there")
        thread = newest(core)
        core.call("message.send", text="from another door", thread=thread, wait=False)
        await seen.until(lambda: seen.text().count("Hoot hoot.") == 2, "the second answer")
        await seen.shows("from another door")
        put(core, "reminder:1", "The kettle is on.", thread)
        await seen.shows("The kettle is on.  (Esc closes)")
        await seen.until(lambda: seen.app.chat.running is None, "nothing runs")
        await seen.same_in_both("banner")
        await seen.pilot.press("escape")
        await seen.until(lambda: "Esc closes" not in seen.text(), "the banner is closed")
        await seen.until(lambda: seen.app.chat.running is None, "nothing runs")
        assert [seen.text().count(words) for words in ("hello there", "from another door", "The kettle is on.")] == [
            2,
            1,
            1,
        ]

    show(ENVIRON, core.box.runtime, scenario)


def test_what_arrives_during_an_answer_is_shown_after_it_and_once(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("slow please")
        await seen.shows("one two")
        core.call("message.send", text="me too", thread=newest(core), wait=False)
        await seen.shows("nine ten", "me too", "Hoot hoot.")
        lines = seen.text()
        assert lines.index("nine ten") < lines.index("me too") < lines.index("Hoot hoot.")
        assert lines.count("me too") == 1 and lines.count("nine ten") == 1

    show(ENVIRON, core.box.runtime, scenario)


def test_what_arrives_elsewhere_is_named_until_it_is_opened(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        core.call("message.send", text="an older talk", wait=True)
        other = newest(core)
        await seen.type("hello there")
        await seen.shows("Hoot hoot.")
        put(core, "reminder:2", "Water the plants.", other)
        await seen.shows("Water the plants.  (Esc closes)", "new in 1 thread, F5")
        await seen.pilot.press("escape")
        seen.app.resume(other)
        await seen.shows("an older talk", "Water the plants.")
        await seen.until(lambda: "new in 1" not in seen.text(), "nothing is new")
        put(core, "reminder:3", "A letter of no thread.", None)
        await seen.shows("A letter of no thread.")

    show(ENVIRON, core.box.runtime, scenario)


def test_what_came_while_no_screen_was_open_is_on_the_next_one_once(core: Core):
    core.call("message.send", text="hello", kind="ask", wait=True)
    put(core, "schedule:x:1", "Reminder: nap", None)
    until(lambda: [one["text"] for one in core.call("notice.list", is_waiting=True)] == ["Reminder: nap"], "it is delivered")

    async def scenario(seen: Seen) -> None:
        await seen.shows("Reminder: nap  (Esc closes)")
        await seen.press("escape")
        seen.app.query_one(Composer).replace_text("/notices")
        await seen.press("enter")
        await seen.shows("type to search notifications")
        await seen.press(*"nap")
        await seen.until(lambda: "kettle" not in seen.text(), "the others have left the list")
        await seen.same_in_both("notices")
        await seen.press("escape")
        await seen.until(lambda: core.call("notice.list", is_waiting=True) == [], "it was shown")

    show(ENVIRON, core.box.runtime, scenario)


def test_what_was_missed_while_the_core_was_away_is_shown_when_it_is_back(box: Box):
    script(box, PLAY)
    first = box.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("hello there")
        await seen.shows("Hoot hoot.")
        thread = newest(first)
        first.stop()
        await seen.shows("core away")
        again = box.serve()
        put(again, "reminder:4", "You were away.", thread)
        await seen.shows("You were away.")

    show(ENVIRON, box.runtime, scenario)


def test_a_held_call_names_whose_text_it_was_and_d_lets_the_like_pass(core: Core):
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("hello there")
        await seen.shows("Hoot hoot.")
        with core.box.store() as store:
            Runs(store, "").taint(newest(core), "web", "https://evil.example/x")
        await seen.type("tell bob")
        await seen.shows("because of", "evil.example")
        await seen.press("ctrl+o")
        await seen.shows("accept for 7 days")
        await seen.same_in_both("held")
        await seen.press("d")
        await seen.until(lambda: len(core.call("grant.list")) > 0, "it is remembered")
        await seen.until(lambda: seen.app.chat.running is None, "the answer has ended")

    show(ENVIRON, core.box.runtime, scenario)
