"""What time it is elsewhere, by the names of cities and countries in four languages."""

from datetime import UTC, datetime

import pytest

from appliance.language.languages import Languages
from appliance.language.planning import computed
from appliance.language.router import Router
from appliance.language.times import timezones

LANGUAGES = Languages()
ROUTER = Router(LANGUAGES, lambda texts: ())
NOON = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)


def answer(text: str) -> str:
    intent = ROUTER.cue(text)
    assert intent is not None and intent.name == "time_in", intent
    plan = computed.answer(intent, NOON)
    return plan.text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("what time is it in tokyo", "It is 21:00 in Tokyo, Friday."),
        ("Can you tell me what time it is in New York right now?", "It is 07:00 in New York, Friday."),
        ("What's the time in Japan?", "It is 21:00 in Japan, Friday."),
        ("what time is it now in the UK?", "It is 12:00 in The UK, Friday."),
        ("what is the time in San Francisco", "It is 04:00 in San Francisco, Friday."),
        ("Wie spät ist es in Tokio?", "In Tokio ist es 21:00, Freitag."),
        ("Wie viel Uhr ist es gerade in Wien?", "In Wien ist es 13:00, Freitag."),
        ("Quelle heure est-il à Londres ?", "Il est 12:00 à Londres, vendredi."),
        ("¿Qué hora es en Nueva York?", "Son las 07:00 en Nueva York, viernes."),
        (
            "What time is it in Narnia?",
            "I do not know the time in Narnia. Name a large city near it, for example: What time is it in Tokyo?",
        ),
    ],
)
def test_the_time_elsewhere(text: str, said: str) -> None:
    assert answer(text).lower() == said.lower()


def test_a_country_with_several_zones_has_several_times() -> None:
    lines = answer("What time is it in the United States?").split("\n")
    assert lines[0] == "It is 07:00 in New York, Friday." and len(lines) == timezones.MOST_SHOWN
    assert len({line.split()[2] for line in lines}) == len(lines)


def test_a_city_is_written_as_it_is() -> None:
    assert answer("what time is it in new york") == "It is 07:00 in New York, Friday."


def test_a_day_may_have_changed_there() -> None:
    assert timezones.times("Auckland", NOON, {})[0][1].date() > NOON.date()


@pytest.mark.parametrize("name", ["uk", "usa", "tokio", "londres", "parís", "schweiz", "munich"])
def test_every_name_of_a_place_leads_to_a_zone(name: str) -> None:
    names = {place: zone for language in LANGUAGES.all for place, zone in language.places.items()}
    assert timezones.times(name, NOON, names)
    assert all(timezones.times(place, NOON, names) for place in names), [p for p in names if not timezones.times(p, NOON, names)]


@pytest.mark.parametrize("text", ["What time is it?", "what time is it now", "Wie spät ist es?"])
def test_the_time_here_stays_that(text: str) -> None:
    intent = ROUTER.cue(text)
    assert intent is not None and intent.name == "time"
