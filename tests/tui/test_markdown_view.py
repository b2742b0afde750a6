"""Answers and notes as Markdown on the screen: numbers as they were written, and lines of an answer where they ended."""

import asyncio

import pytest
from textual.app import App, ComposeResult
from textual.widgets._markdown import MarkdownBullet, MarkdownParagraph

from appliance.tui.export_html import render_page
from appliance.tui.markdown_view import Prose, answer_parser, parser

TASKS = "3. eggs (pending, medium)\n1. milk (pending, medium)"
DONE = "On your list: milk\nOn your list: eggs"


def shown(text: str, *, is_answer: bool) -> tuple[list[str], list[str]]:
    """The marks before the items, and the paragraphs."""

    class Screen(App[None]):
        def compose(self) -> ComposeResult:
            yield Prose(text, answer_parser if is_answer else parser)

    async def look() -> tuple[list[str], list[str]]:
        screen = Screen()
        async with screen.run_test() as pilot:
            await pilot.pause()
            marks = [one.symbol.strip() for one in screen.query(MarkdownBullet)]
            return marks, [str(one.content) for one in screen.query(MarkdownParagraph)]

    return asyncio.run(look())


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        (TASKS, ["3.", "1."]),
        ("1. one\n1. two\n1. three", ["1.", "2.", "3."]),
        ("9. nine\n10. ten", ["9.", "10."]),
        ("- one\n- two", ["•", "•"]),
    ],
)
def test_items_have_the_numbers_that_were_written(text: str, marks: list[str]) -> None:
    assert shown(text, is_answer=True)[0] == marks


def test_a_line_of_an_answer_ends_where_it_ended_and_one_of_a_note_goes_on() -> None:
    assert shown(DONE, is_answer=True)[1] == [DONE]
    assert shown(DONE, is_answer=False)[1] == [DONE.replace("\n", " ")]


def test_a_page_of_a_thread_keeps_both() -> None:
    event = {"kind": "message", "role": "assistant", "content": f"{DONE}\n\n{TASKS}", "call_id": ""}
    page = render_page("Talk", [event])
    assert "milk<br />\nOn your list: eggs" in page and '<li value="3">eggs' in page and '<li value="1">milk' in page
