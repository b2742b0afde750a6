"""Parts of a day: active hours and quiet hours, on a local clock that is changed twice a year."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from appliance.errors import BadInput
from appliance.work.day_windows import next_ms, window

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp() * 1000)


@pytest.mark.covers("S-072", "E-270")
@pytest.mark.parametrize(
    ("start", "until", "now", "is_in"),
    [
        ("22:00", "06:00", "23:30", True),
        ("22:00", "06:00", "05:59", True),
        ("22:00", "06:00", "06:00", False),
        ("22:00", "06:00", "21:59", False),
        ("09:00", "17:00", "09:00", True),
        ("09:00", "17:00", "17:00", False),
        ("00:00", "24:00", "00:00", True),
        ("00:00", "24:00", "23:59", True),
        ("08:00", "08:00", "08:00", False),
        ("22:00", "24:00", "23:59", True),
        ("22:00", "24:00", "00:00", False),
    ],
)
def test_start_is_inside_and_end_is_not(start: str, until: str, now: str, is_in: bool):
    assert window(start, until).has(at(f"2026-05-04T{now}"), UTC) is is_in


@pytest.mark.covers("S-072")
def test_hours_are_those_of_the_zone():
    assert window("09:00", "17:00").has(at("2026-07-01T07:30"), BERLIN)
    assert not window("09:00", "17:00").has(at("2026-01-01T07:30"), BERLIN)


@pytest.mark.parametrize("text", ["9", "24:01", "25:00", "12:60", "", "noon"])
def test_what_is_no_time_of_day_is_refused(text: str):
    with pytest.raises(BadInput, match="not a time of day"):
        window(text, "10:00")


def test_end_of_a_window_follows_the_local_clock():
    night = window("22:00", "07:00")
    assert night.end_ms(at("2026-05-04T23:00", BERLIN), BERLIN) == at("2026-05-05T07:00", BERLIN)
    # An hour is left out in the night to 2026-03-29 and comes twice in that to 2026-10-25.
    assert night.end_ms(at("2026-03-28T23:00", BERLIN), BERLIN) - at("2026-03-28T23:00", BERLIN) == 7 * 3_600_000
    assert night.end_ms(at("2026-10-24T23:00", BERLIN), BERLIN) - at("2026-10-24T23:00", BERLIN) == 9 * 3_600_000
    assert next_ms(150, at("2026-03-29T00:00", BERLIN), BERLIN) == at("2026-03-29T01:30")
