"""Going round in circles: fingerprints, periods, stagnation."""

from itertools import cycle, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.agent.stop_conditions import fingerprint, period, stagnant, touched
from appliance.records import ToolCall


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"id-{name}", name, arguments)


@pytest.mark.covers("E-131", "R-075")
def test_the_order_of_commands_in_a_turn_means_nothing() -> None:
    one, two = call("get", path="a"), call("set", path="b", body="x")
    assert fingerprint([one, two]) == fingerprint([two, one]) == fingerprint([two, one, two])
    assert fingerprint([call("set", body="x", path="b")]) == fingerprint([two]), "nor that of arguments"
    assert fingerprint([]) == "" and fingerprint([one]) != fingerprint([two])


@pytest.mark.covers("R-076", "E-132")
def test_any_attribute_makes_another_turn() -> None:
    shown, hidden = (fingerprint([call("set", path="a", visibility=v)]) for v in ("visible", "archived"))
    assert shown != hidden
    marks = [shown, hidden] * 3
    assert period(marks) == 2 and period(marks[:5]) == 0


@pytest.mark.covers("R-075", "E-129", "E-130", "E-133")
@pytest.mark.parametrize(
    ("marks", "found"),
    [
        *[("aaa", 1), ("aa", 0), ("ababab", 2), ("ababa", 0), ("abcabcabc", 3), ("abcdabcdabcd", 4), ("abcdeabcdeabcde", 0)],
        *[("abcdef", 0), ("xyzaaa", 1), ("aaab", 0), ("xababab", 2), ("", 0)],
    ],
)
def test_a_pattern_of_at_most_four_turns_is_found_at_its_third_repetition(marks: str, found: int) -> None:
    assert period(list(marks)) == found


def test_turns_without_commands_are_no_pattern() -> None:
    assert period(["", "", ""]) == 0 and period(["a", "", "a", "", "a", ""]) == 0


@given(st.lists(st.text("ab", min_size=1), min_size=1, max_size=4), st.lists(st.text("cd", min_size=1), max_size=5))
@settings(max_examples=100, deadline=None)
def test_whatever_came_before_three_repetitions_are_found(pattern: list[str], before: list[str]) -> None:
    found = period([*before, *pattern * 3])
    assert 1 <= found <= len(pattern)


@pytest.mark.covers("R-077", "E-134")
def test_one_path_in_five_turns_is_stagnation_whatever_is_done_with_it() -> None:
    turns = [touched([call("set", path="known://x", body=str(n)), call("get", path=f"known://{n}")]) for n in range(5)]
    assert stagnant(turns) == "known://x" and stagnant(turns[:4]) == ""
    assert stagnant([touched([call("set", path=f"known://{n}")]) for n in range(6)]) == ""
    assert stagnant([*turns[:2], touched([]), *turns[2:]]) == "" and stagnant([touched([]), *turns]) == "known://x"


def test_reading_on_is_not_standing_still() -> None:
    assert stagnant([touched([call("read", ref="box://long.md", line=1 + 200 * n)]) for n in range(9)]) == ""
    assert stagnant([touched([call("read", ref="box://long.md")]) for _ in range(5)]) == "box://long.md"


@given(st.integers(1, 4), st.integers(3, 5))
@settings(max_examples=50, deadline=None)
def test_a_pattern_is_found_no_later_than_its_repetitions(length: int, repetitions: int) -> None:
    marks = list(islice(cycle("abcd"[:length]), length * repetitions))
    assert period(marks, repetitions) == length and period(marks[:-1], repetitions) == 0
