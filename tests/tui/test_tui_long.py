"""A thread of 10,000 events on the screen: opened at its end, read to its beginning and back, never drawn as a whole."""

from collections.abc import Iterator
from time import process_time

import pytest
from process import Box, Core, script, standing_core
from screens import Seen, show

from appliance.records import Event
from appliance.sessions.runs import Runs
from appliance.tui.message_widgets import Said

EVENTS = 10_000
OPEN_S = 1.0  # of a processor, like PAGE_S
PAGE_S = 0.5  # of a processor, from a key until all that it sets going is drawn, more events among it
ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
ANSWER = "It is **so**:\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    """A core with one long thread, called long."""

    def prepare(box: Box) -> None:
        script(box, '[[turns]]\nrepeat = true\ntext = "Hoot."\n')

    with standing_core(prepare) as made:
        thread = made.call("message.send", text="the very first")["run"]
        made.call("run.config", run=thread, alias="long")
        with made.box.store() as store, store.write():
            runs = Runs(store, "test")
            for number in range(1, EVENTS // 4):
                call = f"c{number}"
                runs.record.append(Event(thread, "message", "user", f"question {number}"))
                runs.record.append(Event(thread, "tool_use", "assistant", "", tool="search", input={"query": "x"}, call_id=call))
                runs.record.append(Event(thread, "tool_result", "tool", "found", tool="search", call_id=call))
                runs.record.append(Event(thread, "message", "assistant", ANSWER))
            runs.record.append(Event(thread, "message", "user", "the very last"))
        yield made


def test_a_thread_of_ten_thousand_events_opens_at_once_and_scrolls_without_lag(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        room, times = seen.app.chat.transcript, []
        seen.app.resume("long")
        await seen.shows("the very last")  # the parser of Markdown is loaded once
        seen.app.resume("long")
        began_s = process_time()
        seen.app.chat.talk.title = ""
        await seen.until(lambda: bool(seen.app.chat.talk.title) and "the very last" in seen.text(), "it is open")
        opened_s = process_time() - began_s
        for _ in range(12):
            before = process_time()  # of this process: others may keep the computer busy
            await seen.pilot.press("pageup")
            times.append(process_time() - before)
        most = len(room.query("*"))
        assert room.oldest < 9_980 and not room.is_at_end
        await seen.press("ctrl+home")
        await seen.shows("▌ the very first")
        for _ in range(8):
            await seen.pilot.press("pagedown")
        await seen.until(lambda: room.oldest > 1, "the beginning has left the window")
        numbers = [int(said._words.split()[-1]) for said in room.query(Said) if said._words.startswith("question")]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        await seen.press("ctrl+end")
        await seen.shows("the very last")
        times.sort()
        print(f"opened in {opened_s:.2f} s, a page in {times[len(times) // 2]:.3f} s, at most {times[-1]:.3f} s, {most} widgets")
        assert opened_s < OPEN_S and times[len(times) // 2] < PAGE_S and most < 400

    show(ENVIRON, core.box.runtime, scenario)


def test_what_is_said_far_above_the_end_stands_below_it(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        seen.app.resume("long")
        await seen.shows("the very last")
        await seen.press("ctrl+home")
        await seen.shows("▌ the very first")
        core.call("message.send", text="from elsewhere", thread="long")
        assert "from elsewhere" not in seen.text()
        await seen.type("here I am")
        await seen.shows("from elsewhere", "here I am", "Hoot.")
        assert seen.app.chat.transcript.is_at_end

    show(ENVIRON, core.box.runtime, scenario)
