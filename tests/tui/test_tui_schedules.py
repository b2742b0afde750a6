"""The tab of schedules: made, shown with the next times, paused, done now, deleted."""

import os
import time
from collections.abc import Iterator

import pytest
from process import Box, Core, a_shared_box, script  # noqa: F401
from screens import Seen, show

ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
PLAY = '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n'


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Iterator[Core]:
    """A core in another zone than this machine's, which the screen takes over; afterwards this process has its own again."""
    script(shared_box, PLAY)
    shared_box.environ["TZ"] = "Asia/Kolkata"
    before = os.environ.get("TZ")
    yield shared_box.serve()
    os.environ.pop("TZ", None)
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def keys(text: str) -> list[str]:
    return [{" ": "space", "-": "minus", ":": "colon", ",": "comma"}.get(letter, letter) for letter in text]


def own(core: Core) -> list[tuple[str, str]]:
    found = core.call("tool.call", name="list_schedules", arguments={})["data"]["schedules"]
    return sorted((one["name"], one["status"]) for one in found if one["type"] == "scheduled")


def clear(core: Core) -> None:
    for one in core.call("tool.call", name="list_schedules", arguments={})["data"]["schedules"]:
        if one["type"] == "scheduled":
            core.call("tool.call", name="delete_schedule", arguments={"id": one["id"]})


def test_schedules_are_made_paused_and_deleted(core: Core):
    clear(core)

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f6")
        await seen.shows("Nothing is scheduled.")
        await seen.press("o")
        await seen.shows("built-in schedules are shown")
        await seen.press("o")
        await seen.shows("built-in schedules are hidden")
        await seen.press("a", *keys("read the news - every weekday at 7am - all of them"), "enter")
        await seen.shows("● ", "read the news", "Next", "all of them")
        await seen.press("a", *keys("remind me to call Ada on 5 January 2035 at 9am"), "enter")
        await seen.shows("call Ada", "Fri 05 Jan 2035 09:00")
        await seen.press("home")
        await seen.until(lambda: seen.text().count("7:00") + seen.text().count("07:00") >= 5, "the next five times")
        seen.app._forget_notice()
        await seen.same_in_both("schedules")
        await seen.press("e")
        await seen.shows("‖ ")
        assert ("read the news", "paused") in own(core)
        await seen.press("e")
        await seen.until(lambda: "‖ " not in seen.text(), "it goes on")
        await seen.press("t")
        await seen.shows("Was")
        await seen.press("d")
        await seen.shows("Delete the schedule “read the news”? Press d again")
        await seen.press("d")
        await seen.until(lambda: len(own(core)) == 1, "it is gone")
        await seen.press("a", *keys("nonsense without a time"), "enter")
        await seen.shows("has no time in it")
        await seen.until(lambda: seen.lines()[1].strip() == "nonsense without a time", "it is back in the line, to be mended")
        await seen.press(*keys(" - every day at 6pm"), "enter")
        await seen.shows("at 18:00 every day")
        await seen.press("e")
        await seen.shows("nonsense without a time: ")

    show(ENVIRON, core.box.runtime, scenario)


def test_a_schedule_of_somebody_else_s_thread_opens_where_it_was_asked_for(core: Core):
    clear(core)
    core.call("message.send", text="hello there")

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.press("f6", "a", *keys("stretch - every day at 6pm"), "enter")
        await seen.shows("stretch")
        await seen.press("enter")
        await seen.shows("not created in a thread")

    show(ENVIRON, core.box.runtime, scenario)
