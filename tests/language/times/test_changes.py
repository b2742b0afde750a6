"""Times that are changed, and times so long before or after another that is said around them, or was just answered."""

from datetime import datetime
from typing import Any

import pytest
from test_program_or_model import ask, text_of  # noqa: F401

from appliance.errors import BadInput
from appliance.language.languages import Languages
from appliance.language.times import dates, recurrence, time_expression
from appliance.language.times.timezones import LOCAL
from appliance.records import Outcome

LEXICONS = {one.name: one.lexicon for one in Languages().all}
NOW = datetime(2026, 11, 23, 9, 5)
NOW_MS = int(NOW.timestamp() * 1000)
MATCH = "Away match on 12 December against Landau."


def at(*parts: int) -> str:
    moment = datetime(*parts) if len(parts) > 3 else datetime(*parts, 9)  # type: ignore[arg-type, misc]
    return recurrence.once(int(moment.timestamp() * 1000)).spec


def when(said: str, *about: str, language: str = "en") -> str | None:
    """The moment of what is so long before a day, "" where no day is known, None where nothing is before anything."""
    lexicon = LEXICONS[language]
    try:
        found = time_expression.split(said, lexicon, NOW_MS)
    except BadInput:
        return None
    if found.shift is None or found.event:
        return None
    is_clock = found.shift[0] % time_expression.DAY_S != 0
    bases = filter(None, (dates.nearest(text, lexicon, NOW, is_clock=is_clock) for text in about))
    made = (time_expression.beside(found, base, LOCAL) for base in bases)
    return next((rule.spec for rule in made if rule is not None), "")


@pytest.mark.parametrize(
    ("said", "day"),
    [
        ("remind me 2 days before", (2026, 12, 10)),
        ("remind me the day before at 6pm to pack", (2026, 12, 11, 18)),
        ("the evening before", (2026, 12, 11, 18)),
        ("a week before that, please", (2026, 12, 5)),
        ("three days in advance at 8:30", (2026, 12, 9, 8, 30)),
        ("2 days before Christmas", None),  # of a day of its own
        ("the day before yesterday", None),
        ("before lunch", None),
    ],
)
def test_english(said: str, day: tuple[int, ...] | None) -> None:
    assert when(said, "", MATCH) == (day and at(*day))


@pytest.mark.parametrize(
    ("said", "language", "about", "day"),
    [
        ("einen tag vorher um 18 uhr daran", "de", "Das Spiel ist am 12. Dezember.", (2026, 12, 11, 18)),
        ("zwei Tage davor", "de", MATCH.replace("December", "Dezember").replace(" on 12", " am 12."), (2026, 12, 10)),
        ("am Vorabend", "de", "Das Spiel ist am 12. Dezember.", (2026, 12, 11, 18)),
        ("am Vorabend der Wahl", "de", "Das Spiel ist am 12. Dezember.", None),
        ("deux jours avant", "fr", "Le match est le 12 décembre.", (2026, 12, 10)),
        ("la veille à 18h", "fr", "Le match est le 12 décembre.", (2026, 12, 11, 18)),
        ("dos días antes", "es", "El partido es el 12 de diciembre.", (2026, 12, 10)),
        ("dos días antes de Navidad", "es", "El partido es el 12 de diciembre.", None),
    ],
)
def test_other_languages(said: str, language: str, about: str, day: tuple[int, ...] | None) -> None:
    assert when(said, about, language=language) == (day and at(*day))


def test_the_nearest_text_with_a_day_counts() -> None:
    assert when("2 days before", "nothing", "on 5 December", MATCH) == at(2026, 12, 3)
    assert when("2 days before", "nothing at all") == ""
    assert when("the day before", "the plumber comes on Friday") == at(2026, 11, 26)
    assert when("a quarter of an hour before", "the call is at 11 am") == at(2026, 11, 23, 10, 45)


def test_hours_before_are_counted_from_a_clock_that_was_said_in_the_half_of_the_day_that_is_meant() -> None:
    assert when("half an hour before", "I have to be at the school at 3 on Friday") == at(2026, 11, 27, 14, 30)
    assert when("two hours before", "the party is on Saturday") == ""  # of which hour of it?
    assert when("half an hour before", "I have to be there on Friday by bus 3") == ""


# -- changes ------------------------------------------------------------------------------------------

MORNING, EVENING = at(2026, 11, 25, 8), at(2026, 11, 25, 18, 30)


@pytest.mark.parametrize(
    ("rule", "said", "made"),
    [
        (MORNING, "an hour later", at(2026, 11, 25, 9)),
        (MORNING, "half an hour earlier", at(2026, 11, 25, 7, 30)),
        (MORNING, "two days later", at(2026, 11, 27, 8)),
        (MORNING, "quarter to seven", at(2026, 11, 25, 6, 45)),
        (EVENING, "quarter to seven", at(2026, 11, 25, 18, 45)),
        (EVENING, "to 7:15", at(2026, 11, 25, 19, 15)),
        (EVENING, "07:15", at(2026, 11, 25, 7, 15)),
        (EVENING, "at 9 in the morning", at(2026, 11, 25, 9)),
        (EVENING, "9", at(2026, 11, 25, 21)),
        (EVENING, "Friday", at(2026, 11, 27, 18, 30)),
        (EVENING, "tomorrow at 10:00", at(2026, 11, 24, 10)),
        (EVENING, "3 December", at(2026, 12, 3, 18, 30)),
        (EVENING, "in 20 minutes", at(2026, 11, 23, 9, 25) + recurrence.COUNTED),
        (EVENING, "every Friday", "30 18 * * 5"),
        ("0 9 * * *", "quarter past ten", "15 10 * * *"),
        ("30 18 * * 1-5", "an hour earlier", "30 17 * * 1-5"),
        ("0 18 * * 1", "Tuesday", "0 18 * * 2"),
        ("0 18 * * 1", "Tuesday at 8", "0 8 * * 2"),
        ("0 9 3 * *", "every month at 8", "0 8 3 * *"),
        ("0 9 3 * *", "on the 5th", "0 9 5 * *"),
        ("0 18 * * 1", "every week at 10", "0 22 * * 1"),
        ("daily from 2026-11-23T09:00:00", "10:30", "daily from 2026-11-23T10:30:00"),
    ],
)
def test_what_is_not_said_stays(rule: str, said: str, made: str) -> None:
    known = recurrence.read_written(rule)
    assert known is not None
    next_ms = recurrence.after(known, NOW_MS)
    assert next_ms is not None
    assert time_expression.changed(said, LEXICONS["en"], known, next_ms, NOW_MS).spec == made


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("0 8,20 * * *", "at 9"),
        ("0 23 * * *", "2 hours later"),
        (MORNING, "two weeks earlier"),
        (MORNING, "the blue one"),
        ("0 8 * * *", "two weeks later"),
    ],
)
def test_a_change_that_cannot_be_told_is_refused(rule: str, said: str) -> None:
    known = recurrence.read_written(rule)
    assert known is not None
    with pytest.raises(BadInput) as caught:
        time_expression.changed(said, LEXICONS["en"], known, recurrence.after(known, NOW_MS) or 0, NOW_MS)
    assert said in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("language", "said", "made"),
    [
        ("de", "auf halb acht", at(2026, 11, 25, 19, 30)),
        ("de", "eine Stunde später", at(2026, 11, 25, 19, 30)),
        ("de", "Freitag", at(2026, 11, 27, 18, 30)),
        ("fr", "une heure plus tard", at(2026, 11, 25, 19, 30)),
        ("es", "una hora más tarde", at(2026, 11, 25, 19, 30)),
    ],
)
def test_changes_in_other_languages(language: str, said: str, made: str) -> None:
    known = recurrence.read_written(EVENING)
    assert known is not None
    assert time_expression.changed(said, LEXICONS[language], known, recurrence.at(known), NOW_MS).spec == made


@pytest.mark.parametrize(
    "line",
    [
        "0 9 * * 1-5",
        "every 90",
        MORNING,
        MORNING + recurrence.COUNTED,
        "3 days from 2026-11-23T09:00:00",
        "0 9 * * * | every day at 9 unless it rains",
    ],
)
def test_a_rule_that_was_written_is_the_same_when_it_is_read(line: str) -> None:
    rule = recurrence.read_written(line, "Europe/Berlin")
    assert rule is not None and recurrence.written(rule) == line
    assert recurrence.read_written("every day at 9") is None and recurrence.read_written("tomorrow") is None


# -- in a conversation ----------------------------------------------------------------------------------


def call_of(ask: Any, *said: str) -> tuple[str, str]:  # noqa: F811
    _, _, tools = ask(*said, act=lambda call: Outcome(200, "ok", "set"))
    (call,) = tools.called
    assert call.name == "remind"
    return call.arguments["text"], call.arguments["when"]


def test_a_reminder_before_what_was_just_said(ask: Any) -> None:  # noqa: F811
    made = call_of(ask, "we play against Landau on 12 December, remind me 2 days before")
    assert made == ("we play against Landau on 12 December", at(2026, 12, 10))


def test_a_reminder_before_what_was_just_answered(ask: Any) -> None:  # noqa: F811
    before = ("when is the next away match", f"{MATCH} [box://notes/club.md]")
    assert call_of(ask, *before, "remind me the day before at 6pm to pack the chess clock") == (
        "pack the chess clock",
        at(2026, 12, 11, 18),
    )
    assert call_of(ask, *before, "remind me of that a week before") == (MATCH.strip("."), at(2026, 12, 5))
    assert call_of(ask, *before, "Erinnere mich einen Tag vorher um 18 Uhr daran")[1] == at(2026, 12, 11, 18)


def test_without_a_day_it_asks_when(ask: Any) -> None:  # noqa: F811
    steps, _, tools = ask("remind me the day before at 6pm to pack the chess clock")
    assert tools.called == [] and text_of(steps).startswith("When should I remind you of ")
    steps, _, tools = ask("Erinnere mich einen Tag vorher um 18 Uhr daran")
    assert tools.called == [] and text_of(steps).startswith("Wann soll ich")
