"""Typing errors mended word by word."""

import pytest

from appliance.language.languages import Language, Languages
from appliance.language.planning.rewriting import mended

DAYS = ("Monday", "Wednesday")


def named(name: str) -> Language:
    """A language by its name; one without words where it is none of ours."""
    return next((one for one in Languages().all if one.name == name), Language(name, {}, {}, {}, {}, {}, {}, {}, {}, {}, ()))


@pytest.mark.parametrize(
    ("language", "text", "right"),
    [
        ("en", "Wensday is the busyest day in our ofice", "Wednesday is the busiest day in our office"),
        ("en", "Tommorow we wil meet at the resturant.", "Tomorrow we will meet at the restaurant."),
        ("en", "I recieve teh letter from Priya Okafor.", "I receive the letter from Priya Okafor."),
        ("en", "It's 4711ab, isn't it? NASA", "It's 4711ab, isn't it? NASA"),
        ("de", "Ich habe gestren einen Breif geschriben.", "Ich habe gestern einen Brief geschrieben."),
        ("xx", "Whatewer it is", "Whatewer it is"),
    ],
)
def test_words_are_mended_and_sentences_stay(language: str, text: str, right: str) -> None:
    assert mended(text, named(language), DAYS) == right


def test_a_word_of_the_notes_is_no_typing_error() -> None:
    assert mended("The wifi is down", named("en"), (), {"wifi"}.__contains__) == "The wifi is down"
    assert mended("The wifi is down", named("en")) != "The wifi is down"
