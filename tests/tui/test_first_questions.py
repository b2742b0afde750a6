"""The first questions on the full screen: asked when it opens, answered to a real core, left for the next time by Esc."""

from collections.abc import Iterator

import pytest
from process import Box as Installation
from process import Core, a_shared_box  # noqa: F401
from screens import Seen, show

from appliance.ingest import prompt_documents
from appliance.runtime import config
from appliance.tui.composer import Composer

ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def core(shared_box: Installation) -> Iterator[Core]:
    yield shared_box.serve()


@pytest.mark.covers("S-046")
def test_questions_are_asked_on_the_screen_and_a_place_sets_the_time_zone(core: Core) -> None:
    async def later(seen: Seen) -> None:
        await seen.shows("1/6 Which language would you like to use:")
        await seen.same_in_both("first-question")
        await seen.type("English")
        await seen.shows("2/6 What would you like me to call you?", "/back goes back")
        await seen.press("escape")
        await seen.shows("the other questions next time", "Put notes (Markdown)", "Ask the owl")

    async def to_the_end(seen: Seen) -> None:
        await seen.shows("2/6 What would you like me to call you?")
        for answer, shown in (("", "3/6"), ("Hedwig", "4/6"), ("I live in Berlin", "Time zone: Europe/Berlin."), ("", "6/6")):
            await seen.type(answer)
            await seen.shows(shown)
        await seen.pilot.resize_terminal(40, 10)
        await seen.shows("How should I talk")
        await seen.type("short")
        await seen.pilot.resize_terminal(80, 24)
        await seen.shows("Thank you.", "Put notes (Markdown)")
        await seen.type("hello")
        await seen.shows("Hoot hoot.")

    show(ENVIRON, core.box.runtime, later, is_asking=True)
    show(ENVIRON, core.box.runtime, to_the_end, is_asking=True)
    home = core.box.home
    assert not (home.box / "BOOTSTRAP.md").exists() and "- Your name: Hedwig" in (home.box / "IDENTITY.md").read_text()
    assert config.load(home, {}).system.timezone == "Europe/Berlin"
    assert core.call("core.reload")["changed"] == "", "it is in force already"


def test_what_is_typed_already_is_no_answer(core: Core) -> None:
    (core.box.home.box / "BOOTSTRAP.md").write_text(prompt_documents.shipped("BOOTSTRAP"))

    async def scenario(seen: Seen) -> None:
        seen.app.query_one(Composer).text = "hello"
        await seen.shows("│ hello", "●")
        await seen.until(lambda: not seen.app._is_asking, "the core was asked")
        await seen.pilot.pause()
        assert len(seen.app.screen_stack) == 1

    show(ENVIRON, core.box.runtime, scenario, is_asking=True)
