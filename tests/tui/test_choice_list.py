"""Keys that come faster than the screen: a dialog is answered once, and a list that is not drawn yet is paged."""

import asyncio

from textual.app import App, ComposeResult
from textual.widgets import Input
from textual.widgets.option_list import Option

from appliance.tui.choice_list import Rows
from appliance.tui.picker import Item, Picker


class Face(App[None]):
    """A list, and a dialog before it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str | None] = []

    def compose(self) -> ComposeResult:
        yield Rows()

    def on_mount(self) -> None:
        self.push_screen(Picker("Choose", [Item("a", "one"), Item("b", "two")]), self.answers.append)


def test_a_second_return_that_was_on_its_way_answers_nothing() -> None:
    async def scenario() -> None:
        face = Face()
        async with face.run_test() as pilot:
            await pilot.pause()
            box = face.screen.query_one(Input)
            for _ in range(2):
                box.post_message(Input.Submitted(box, "", None))
            await pilot.pause()
            await pilot.pause()
            assert face.answers == ["a"] and len(face.screen_stack) == 1

    asyncio.run(scenario())


def test_a_list_that_was_just_filled_is_paged() -> None:
    async def scenario() -> None:
        face = Face()
        async with face.run_test() as pilot:
            rows = face.screen_stack[0].query_one(Rows)
            rows.display = False
            await pilot.pause()
            rows.add_options([Option(str(number)) for number in range(3)])
            rows.highlighted = 1
            rows.action_page_up()
            rows.action_page_down()
            assert rows.highlighted == 1
            rows.display = True
            await pilot.pause()
            rows.action_page_down()
            assert rows.highlighted == 2

    asyncio.run(scenario())
