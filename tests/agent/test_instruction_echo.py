"""Answers that recite the instructions of their model, however they come in pieces."""

import pytest

from appliance.agent.instruction_echo import InstructionEcho

RULES = "You are a helpful assistant on a small computer at home. Answer in the language of the question, in short sentences."
TOOL = "search(query): Find notes by their words."


def passed(text: str, size: int) -> tuple[str, bool]:
    echo = InstructionEcho([RULES, TOOL])
    shown = "".join(echo.feed(text[at : at + size]) for at in range(0, len(text), size)) + echo.finish()
    assert shown == echo.said
    return shown, echo.is_over


@pytest.mark.parametrize("size", [1, 3, 7, 500])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (RULES, ""),
        ("I am a helpful assistant on a small computer at home.", None),
        ("Answer in the language of owls: find notes by their words, in short sentences. Yes", None),
        ("", None),
    ],
)
def test_a_recital_ends_the_answer_and_a_few_common_words_do_not(text: str, shown: str | None, size: int) -> None:
    assert passed(text, size) == ((text, False) if shown is None else (shown, True))


def test_only_what_may_become_a_recital_is_held_back() -> None:
    echo = InstructionEcho([RULES])
    assert echo.feed("You ") == "" and echo.feed("see ow") == "You see ow"
    assert echo.feed("ls on a ") == "ls on a " and echo.feed("small ") == ""
    assert echo.feed("moonlit field") == "small moonlit field"


def test_a_recital_behind_words_loses_no_more_than_its_first_ones() -> None:
    shown, is_over = passed(f"Of course I can tell: {RULES}", 4)
    assert is_over and shown.startswith("Of course I can tell: ") and len(shown) <= len("Of course I can tell: You are ")
