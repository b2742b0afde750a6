"""Voters in order: what ends a loop, and how."""

from typing import Any

import pytest

from appliance.agent.stop_conditions import ON, AnswerOutcome, CallEffect, Caps, Past, Verdict, judge, of_error
from appliance.errors import Cancelled, Lost, NotFound, OwlError, ProviderError, TooLarge

GOOD, BAD = CallEffect("set"), CallEffect("set", 404, "not_found")


def turn(*effects: CallEffect, text: str = "", **more: Any) -> AnswerOutcome:
    return AnswerOutcome(text, effects, **more)


def update(claim: int, text: str = "so it stands", **more: Any) -> CallEffect:
    return CallEffect("update", claim=claim, text=text, **more)


def judged(*turns: AnswerOutcome, caps: Caps = Caps()) -> Verdict:
    """The verdict after the last of these turns; none of those before may have ended it."""
    past = Past()
    for number, one in enumerate(turns, 1):
        past = past.after(one)
        verdict = judge(past, one, caps)
        assert number == len(turns) or not verdict.is_over, f"turn {number} ended it: {verdict}"
    return verdict


def ended(*turns: AnswerOutcome, caps: Caps = Caps()) -> tuple[int, str]:
    verdict = judged(*turns, caps=caps)
    assert verdict.is_over
    return verdict.status, verdict.outcome


@pytest.mark.covers("R-068")
@pytest.mark.parametrize(("status", "end"), [(200, (200, "ok")), (204, (200, "ok")), (422, (200, "cannot_comply"))])
def test_an_update_may_end_it(status: int, end: tuple[int, str]) -> None:
    verdict = judged(turn(GOOD, update(status)))
    assert (verdict.status, verdict.outcome) == end and verdict.text == ("" if status == 204 else "so it stands")


@pytest.mark.covers("R-068", "R-071", "E-127")
def test_an_update_of_102_and_commands_alone_go_on() -> None:
    assert judged(turn(GOOD, update(102))) == ON == judged(turn(GOOD)) == judged(turn(GOOD, text="I set it."))


@pytest.mark.covers("R-070", "E-137")
def test_the_last_of_several_updates_decides() -> None:
    assert ended(turn(update(102), update(200))) == (200, "ok")
    assert judged(turn(update(200), update(102))) == ON


@pytest.mark.covers("R-069", "E-136")
@pytest.mark.parametrize("effects", [(BAD, update(200)), (update(200), BAD), (update(422), BAD), (GOOD, BAD, update(204))])
def test_an_update_beside_a_failure_is_void_and_it_goes_on(effects: tuple[CallEffect, ...]) -> None:
    verdict = judged(turn(*effects))
    assert verdict.is_overridden and not verdict.is_over


@pytest.mark.covers("B-032")
def test_a_call_that_ends_the_work_ends_it_whatever_was_asked_for_after_it() -> None:
    done = CallEffect("complete_task", is_terminal=True)
    assert ended(turn(GOOD, done, CallEffect("set", 424, "aborted"))) == (200, "ok")
    assert judged(turn(BAD, CallEffect("complete_task", 409, "conflict", is_terminal=True))) == ON


@pytest.mark.covers("R-071", "E-126")
def test_words_without_a_command_are_the_answer() -> None:
    assert ended(turn(text="It is full.")) == (200, "ok")


@pytest.mark.covers("R-072", "E-128")
def test_words_beside_a_command_that_could_not_be_read_are_none() -> None:
    assert judged(turn(text="I look.", trouble="a tool call could not be read", is_malformed=True)) == ON


@pytest.mark.covers("R-073", "R-074", "E-135")
def test_three_bad_turns_in_a_row_end_it_and_a_clean_one_ends_the_row() -> None:
    assert ended(turn(BAD), turn(BAD), turn(BAD)) == (499, "strikes")
    assert judged(turn(BAD), turn(BAD), turn(GOOD), turn(BAD), turn(BAD)) == ON
    assert ended(turn(BAD), turn(), turn(GOOD, trouble="a quote was missing in the tag set")) == (499, "strikes")


@pytest.mark.covers("R-004")
def test_a_turn_is_one_strike_however_much_failed_in_it() -> None:
    past = Past().after(turn(BAD, BAD, BAD, CallEffect("get", 424, "aborted"), trouble="and a quote was missing"))
    assert past.strikes == 1 and past.after(turn(BAD)).strikes == 2 and past.after(turn(GOOD)).strikes == 0


@pytest.mark.covers("R-077", "E-127")
def test_three_answers_with_nothing_in_them_end_it() -> None:
    assert ended(turn(), turn(text=" \n"), turn(), caps=Caps(strikes=99)) == (499, "strikes")


@pytest.mark.covers("R-075", "E-129", "E-130", "E-133")
@pytest.mark.parametrize(("marks", "is_over"), [("aaa", True), ("ababab", True), ("abcabcabc", True), ("abcdef", False)])
def test_a_circle_ends_it_and_says_nothing_before(marks: str, is_over: bool) -> None:
    verdict = judged(*[turn(GOOD, mark=mark) for mark in marks])
    assert (verdict.outcome == "cycle" and verdict.status == 499) if is_over else verdict == ON


@pytest.mark.covers("R-077", "E-134")
def test_standing_still_ends_it() -> None:
    same = [turn(GOOD, mark=str(n), touched=frozenset({"a.txt", str(n)})) for n in range(5)]
    assert ended(*same) == (499, "stagnation")
    assert judged(*[turn(GOOD, mark=str(n), touched=frozenset({str(n)})) for n in range(6)]) == ON
    said = [turn(GOOD, update(102, "still at it"), mark=str(n)) for n in range(3)]
    assert ended(*said) == (499, "stagnation")
    assert judged(*[turn(GOOD, update(102, str(n)), mark=str(n)) for n in range(3)]) == ON


@pytest.mark.covers("R-040", "E-246")
def test_caps_end_it() -> None:
    assert ended(*[turn(GOOD, mark=str(n)) for n in range(99)]) == (499, "max_turns")
    assert ended(turn(*[GOOD] * 10), caps=Caps(commands=10)) == (499, "too_many_commands")
    assert ended(turn(*[GOOD] * 10, update(200)), caps=Caps(commands=10)) == (200, "ok"), "an end comes before a cap"


@pytest.mark.covers("R-002")
@pytest.mark.parametrize(
    ("error", "is_begun", "end"),
    [
        (Cancelled("stopped"), True, (499, "cancelled")),
        (TooLarge("413"), False, (500, "too_large")),
        (Lost("gone"), True, (499, "interrupted")),
        (Lost("gone"), False, (500, "connection_lost")),
        (NotFound("no model"), True, (500, "not_found")),
        (ProviderError("no route", outcome="provider_not_available", kind="network"), False, (500, "offline")),
        (ProviderError("silent", outcome="provider_timeout", kind="network"), False, (500, "provider_timeout")),
        (ProviderError("cut", outcome="stream_error", kind="network"), True, (499, "interrupted")),
    ],
)
def test_what_ends_it_from_outside(error: OwlError, is_begun: bool, end: tuple[int, str]) -> None:
    verdict = of_error(error, is_begun=is_begun)
    assert verdict.is_over and (verdict.status, verdict.outcome) == end and error.message in verdict.text
