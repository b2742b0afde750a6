"""Which time zone an answer in words names."""

import pytest

from appliance.channels.interview import find_timezone

ANSWERS = {
    "Berlin": "Europe/Berlin",
    "I live in Berlin, Germany": "Europe/Berlin",
    "Germany": "Europe/Berlin",
    "new york": "America/New_York",
    "Ich wohne in Zürich.": "Europe/Zurich",
    "europe/paris": "Europe/Paris",
    "Buenos Aires": "America/Argentina/Buenos_Aires",
    "UTC": "UTC",
    "UTC+2": "+02:00",
    "-3:30": "-03:30",
    "United States": "",
    "the west": "",
    "I met you": "",
    "at home": "",
    "+99": "",
    "": "",
}


@pytest.mark.parametrize(("text", "zone"), ANSWERS.items())
def test_an_answer_names_one_zone_or_none(text: str, zone: str) -> None:
    assert find_timezone(text) == zone
