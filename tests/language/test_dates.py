"""What a text says about the calendar, in four languages, and units put into each other."""

from datetime import datetime

import pytest

from appliance.language import arithmetic
from appliance.language.languages import Languages
from appliance.language.planning import computed
from appliance.language.router import Router
from appliance.language.times import dates

LANGUAGES = Languages()
ENGLISH = LANGUAGES.english
ROUTER = Router(LANGUAGES, lambda texts: ())
NOW = datetime(2026, 11, 27, 20, 50)  # a Friday


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("Christmas", "2026-12-25 00:00"),
        ("Christmas Eve 2027", "2027-12-24 00:00"),
        ("Easter", "2027-03-28 00:00"),
        ("Good Friday 2024", "2024-03-29 00:00"),
        ("the first Sunday of Advent", "2026-11-29 00:00"),
        ("the 3rd of May", "2027-05-03 00:00"),
        ("29 February", "2028-02-29 00:00"),
        ("the 24th", "2026-12-24 00:00"),
        ("Friday at 5 pm", "2026-12-04 17:00"),
        ("Friday 10 pm", "2026-11-27 22:00"),
        ("next Monday", "2026-11-30 00:00"),
        ("the Sunday after next", "2026-12-06 00:00"),
        ("in three weeks", "2026-12-18 00:00"),
        ("two weeks before Christmas", "2026-12-11 00:00"),
        ("90 days from now", "2027-02-25 00:00"),
        ("3 months from today", "2027-02-27 00:00"),
        ("6 pm", "2026-11-28 18:00"),
        ("the end of the month", "2026-11-30 00:00"),
    ],
)
def test_a_day_or_a_moment_is_read(text: str, day: str) -> None:
    found = dates.read(text, ENGLISH, NOW)
    assert found is not None and f"{found.at:%Y-%m-%d %H:%M}" == day


@pytest.mark.parametrize(
    "text", ["my holiday", "31 June", "the boiler man comes", "5", "", "2027-02-30", "the Christmas party", "spring"]
)
def test_what_names_no_day_is_none(text: str) -> None:
    assert dates.read(text, ENGLISH, NOW) is None


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many days until Christmas?", "28 days until Friday, 25 December 2026."),
        ("how many weeks is it until Easter?", "17 weeks 2 days until Sunday, 28 March 2027."),
        ("how long until Friday 5 pm", "6 days 20 hours 10 minutes until Friday, 4 December 2026 17:00."),
        ("How long until our concert on 13 December at 7 pm?", "15 days 22 hours 10 minutes until Sunday, 13 December 2026 19:00."),
        ("how many days since the 3rd of May", "208 days since Sunday, 3 May 2026."),
        ("how many days are there between 3 May and 10 June?", "38 days from Monday, 3 May 2027 to Thursday, 10 June 2027."),
        ("what date is in three weeks?", "Friday, 18 December 2026."),
        ("what day of the week is the 3rd of May", "Monday, 3 May 2027."),
        ("which week is it", "It is week 48 of 2026."),
        ("wie viele tage noch bis heiligabend", "Noch 27 Tage bis Donnerstag, 24. Dezember 2026."),
        ("was ist in 10 tagen für ein datum", "Montag, 7. Dezember 2026."),
        ("welche kw haben wir", "Es ist Kalenderwoche 48 (2026)."),
        ("combien de jours avant Noël ?", "Encore 28 jours jusqu'au vendredi 25 décembre 2026."),
        ("quel jour tombe le 14 juillet ?", "mercredi 14 juillet 2027."),
        ("cuántos días faltan para navidad?", "Faltan 28 días para el viernes, 25 de diciembre de 2026."),
        ("qué fecha es dentro de dos semanas", "viernes, 11 de diciembre de 2026."),
        ("what is 15 % of 80", "15 % of 80 = 12"),
        ("2,500 divided by 4", "2,500 divided by 4 = 625"),
        ("15 prozent von 1.200", "15 prozent von 1.200 = 180"),
        ("el 15% de 240", "15% de 240 = 36"),
        ("3.5 kg in pounds", "3.5 kg = 7.716 lb"),
        ("whats 5/8 of an inch in mm", "0.625 in = 15.88 mm"),
        ("what's 100 f in c", "100 °F = 37.78 °C"),
        ("wieviel sind 10 zoll in cm", "10 in = 25.4 cm"),
    ],
)
def test_questions_about_the_calendar_sums_and_units_are_computed(question: str, answer: str) -> None:
    intent = ROUTER.cue(question)
    said = computed.answer(intent, NOW) if intent is not None else None
    assert said is not None and getattr(said, "text", "") == answer


@pytest.mark.parametrize(
    "question",
    ["How many days until my holiday?", "how long until the bread is done", "what day is the bin collected", "5 kg in metres"],
)
def test_what_is_no_matter_of_the_calendar_is_left_to_the_notes(question: str) -> None:
    intent = ROUTER.cue(question)
    assert intent is None or computed.answer(intent, NOW) is None


def test_a_separator_between_thousands_is_none_between_other_digits() -> None:
    assert arithmetic.without_separators("1,234,567 and 1,5 and 1,2345", ENGLISH.signs) == "1234567 and 1,5 and 1,2345"


def test_units_of_two_kinds_are_not_put_into_each_other() -> None:
    assert (
        arithmetic.converted("3 kg in metres", ENGLISH) == ("", "")
        and arithmetic.converted("3 pounds in kg", ENGLISH)[1] == "1.361 kg"
    )
