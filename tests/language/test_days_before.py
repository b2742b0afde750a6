"""Reminders so many days before a day that is said around them, or was just answered."""

from datetime import datetime
from typing import Any

import pytest
from test_guide import ask, text_of  # noqa: F401

from appliance.language import days_before
from appliance.language.languages import Languages
from appliance.records import Outcome

LANGUAGES = Languages()
NOW = datetime(2026, 11, 23, 9, 5)
MATCH = "Away match on 12 December against Landau."


def when(said: str, *about: str, language: str = "en") -> str | None:
    found = days_before.read(said, about, next(one for one in LANGUAGES.all if one.name == language), NOW)
    return None if found is None else found.when


@pytest.mark.parametrize(
    ("said", "day"),
    [
        ("remind me 2 days before", "on 10 December 2026"),
        ("remind me the day before at 6pm to pack", "on 11 December 2026 at 6pm"),
        ("the evening before", "on 11 December 2026 at 18:00"),
        ("a week before that, please", "on 5 December 2026"),
        ("three days in advance at 8:30", "on 9 December 2026 at 8:30"),
        ("2 days before Christmas", None),  # of a day of its own
        ("the day before yesterday", None),
        ("before lunch", None),
        ("half an hour before", None),
    ],
)
def test_english(said: str, day: str | None) -> None:
    assert when(said, "", MATCH) == day


@pytest.mark.parametrize(
    ("said", "language", "about", "day"),
    [
        ("einen tag vorher um 18 uhr daran", "de", "Das Spiel ist am 12. Dezember.", "on 11 December 2026 at 18:00"),
        ("zwei Tage davor", "de", MATCH, "on 10 December 2026"),
        ("am Vorabend", "de", MATCH, "on 11 December 2026 at 18:00"),
        ("am Vorabend der Wahl", "de", MATCH, None),
        ("deux jours avant", "fr", "Le match est le 12 décembre.", "on 10 December 2026"),
        ("la veille à 18h", "fr", MATCH, "on 11 December 2026 at 18:00"),
        ("dos días antes", "es", "El partido es el 12 de diciembre.", "on 10 December 2026"),
        ("dos días antes de Navidad", "es", MATCH, None),
    ],
)
def test_other_languages(said: str, language: str, about: str, day: str | None) -> None:
    assert when(said, about, language=language) == day


def test_the_nearest_text_with_a_day_counts() -> None:
    assert when("2 days before", "nothing", "on 5 December", MATCH) == "on 3 December 2026"
    assert when("2 days before", "nothing at all") == ""
    assert when("the day before", "the plumber comes on Friday") == "on 26 November 2026"


def call_of(ask: Any, *said: str) -> tuple[str, str]:  # noqa: F811
    _, _, tools = ask(*said, act=lambda call: Outcome(200, "ok", "set"))
    (call,) = tools.called
    assert call.name == "remind"
    return call.arguments["text"], call.arguments["when"]


def test_a_reminder_before_what_was_just_said(ask: Any) -> None:  # noqa: F811
    made = call_of(ask, "we play against Landau on 12 December, remind me 2 days before")
    assert made == ("we play against Landau on 12 December", "on 10 December 2026")


def test_a_reminder_before_what_was_just_answered(ask: Any) -> None:  # noqa: F811
    before = ("when is the next away match", f"{MATCH} [box://notes/club.md]")
    assert call_of(ask, *before, "remind me the day before at 6pm to pack the chess clock") == (
        "pack the chess clock",
        "on 11 December 2026 at 6pm",
    )
    assert call_of(ask, *before, "remind me of that a week before") == (MATCH.strip("."), "on 5 December 2026")
    assert call_of(ask, *before, "Erinnere mich einen Tag vorher um 18 Uhr daran")[1] == "on 11 December 2026 at 18:00"


def test_without_a_day_it_asks_when(ask: Any) -> None:  # noqa: F811
    steps, _, tools = ask("remind me the day before at 6pm to pack the chess clock")
    assert tools.called == [] and text_of(steps).startswith("When should I remind you of that?")
    steps, _, tools = ask("Erinnere mich einen Tag vorher um 18 Uhr daran")
    assert tools.called == [] and text_of(steps).startswith("Wann soll ich")
