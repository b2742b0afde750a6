"""How many typing errors lie between two words."""

import random

import pytest

from appliance.language.word_forms import distance


@pytest.mark.parametrize(
    ("a", "b", "errors"),
    [
        ("owl", "owl", 0),
        ("owl", "ow", 1),
        ("owl", "howl", 1),
        ("owl", "oil", 1),
        ("owl", "olw", 1),
        ("", "ow", 2),
        ("remnid", "remind", 1),
        ("tomorow", "tomorrow", 1),
        ("calender", "calnedar", 2),
        ("barn", "owls", 4),
    ],
)
def test_errors_are_counted_and_too_many_are_told_as_one_more_than_asked(a: str, b: str, errors: int) -> None:
    for most in (1, 2, 3):
        assert distance(a, b, most) == distance(b, a, most) == min(errors, most + 1)


def test_what_both_words_begin_and_end_with_changes_nothing() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        a, b, start, end = ("".join(chance.choices("abc", k=chance.randrange(5))) for _ in range(4))
        for most in (1, 2):
            assert distance(start + a + end, start + b + end, most) == distance(a, b, most), (start, a, b, end)
