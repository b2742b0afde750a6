"""Rules about time: what can be one, and which moments each names; summer time, zones, cadences."""

import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import BadInput
from appliance.language.times import recurrence, timezones
from appliance.language.times.recurrence import Rule

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = BERLIN, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezones.find(zone), fold=fold).timestamp() * 1000)


def shown(rule: Rule, at_ms: int, count: int = 3) -> list[str]:
    zone = timezones.find(rule.zone)
    return [
        datetime.fromtimestamp(one / 1000, zone).strftime("%m-%d %H:%M%z")[:-2] for one in recurrence.upcoming(rule, at_ms, count)
    ]


@pytest.mark.covers("S-058", "E-260")
@pytest.mark.parametrize(
    "said", ["every 0", "every -5", "every x", "nonsense", "* * * *", "* * * * * *", "61 * * * *", "", "every", "@daily"]
)
def test_only_five_fields_and_every_n_are_simple(said: str) -> None:
    with pytest.raises(BadInput) as caught:
        recurrence.simple(said)
    assert "0 9 * * 1-5" in caught.value.hint and "every N" in caught.value.hint


@pytest.mark.covers("S-058", "A-242")
@pytest.mark.parametrize(
    ("said", "kind"), [("every 60", "interval"), ("0 9 * * 1-5", "cron"), ("*/5 * * * *", "cron"), ("0 9 * * MON", "cron")]
)
def test_simple_rules(said: str, kind: str) -> None:
    assert recurrence.simple(said).kind == kind


@pytest.mark.parametrize("line", ["0 0 31 2 *", "0 0 30 FEB *"])
def test_a_line_that_never_happens_is_refused(line: str) -> None:
    with pytest.raises(BadInput):
        recurrence.cron(line)


@pytest.mark.covers("S-061", "E-261")
@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("UTC", timedelta(0)),
        ("+05:30", timedelta(hours=5, minutes=30)),
        ("-03:00", timedelta(hours=-3)),
        ("+25:00", timedelta(0)),
        ("+05:60", timedelta(0)),
        ("Mars/Base", timedelta(0)),
        ("Europe", timedelta(0)),
        ("../../etc/passwd", timedelta(0)),
        ("Asia/Kolkata", timedelta(hours=5, minutes=30)),
    ],
)
def test_a_zone_that_nobody_knows_is_utc(name: str, offset: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # and not the box's own
    assert timezones.find(name).utcoffset(datetime(2026, 1, 1)) == offset


@pytest.mark.covers("S-061")
@pytest.mark.parametrize("name", ["+25:00", "Mars/Base", "Europe", "12:00"])
def test_a_new_rule_in_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="not known"):
        recurrence.cron("0 9 * * *", name)


@pytest.mark.covers("S-061", "E-261")
def test_local_is_the_zone_of_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert shown(recurrence.cron("0 9 * * *"), ms("2026-07-01 00:00", "America/New_York"), 1) == ["07-01 09:00-04"]
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    if Path("/etc/localtime").exists() and "TZ" not in os.environ:
        at = datetime(2026, 1, 15, 12)
        assert timezones.find("local").utcoffset(at) == at.astimezone().utcoffset()


@pytest.mark.covers("S-060", "E-259")
def test_a_cron_line_is_due_at_its_minute_and_not_again() -> None:
    rule = recurrence.cron("0 9 * * *", BERLIN)
    at = ms("2026-11-23 09:00")
    assert recurrence.after(rule, at - 60_000) == at and recurrence.after(rule, at - 1) == at
    assert recurrence.after(rule, at) == ms("2026-11-24 09:00")


def test_several_lines_are_one_rule() -> None:
    rule = recurrence.cron("0 9 * * *;30 17 * * 5 ;  0 9 * * *", BERLIN)
    assert rule.spec == "0 9 * * * ; 30 17 * * 5"
    assert shown(rule, ms("2026-11-27 08:00")) == ["11-27 09:00+01", "11-27 17:30+01", "11-28 09:00+01"]


# -- summer time ------------------------------------------------------------------------------------


def test_a_time_that_spring_leaves_out_happens_right_after_the_gap() -> None:
    rule = recurrence.cron("30 2 * * *", BERLIN)
    assert shown(rule, ms("2026-03-28 03:00")) == ["03-29 03:00+02", "03-30 02:30+02", "03-31 02:30+02"]


def test_a_time_that_autumn_has_twice_happens_the_first_time() -> None:
    rule = recurrence.cron("30 2 * * *", BERLIN)
    assert shown(rule, ms("2026-10-25 01:00"), 2) == ["10-25 02:30+02", "10-26 02:30+01"]


def test_asked_within_the_repeated_hour_no_rule_goes_back() -> None:
    rule = recurrence.cron("30 2 * * *", BERLIN)
    second = ms("2026-10-25 02:15", fold=1)
    assert recurrence.after(rule, second) == ms("2026-10-26 02:30")


def test_what_repeats_within_the_hour_goes_on_through_both() -> None:
    rule = recurrence.cron("*/30 * * * *", BERLIN)
    start = ms("2026-10-25 01:30")
    assert shown(rule, start, 5) == ["10-25 02:00+02", "10-25 02:30+02", "10-25 02:00+01", "10-25 02:30+01", "10-25 03:00+01"]


def test_an_interval_counts_real_seconds() -> None:
    rule = recurrence.interval(3600, BERLIN)
    assert recurrence.after(rule, ms("2026-03-29 01:30")) == ms("2026-03-29 03:30")


# -- cadences ---------------------------------------------------------------------------------------


@pytest.mark.covers("A-242")
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("hourly", ["03-27 10:00+01", "03-27 11:00+01", "03-27 12:00+01"]),
        ("daily", ["03-28 09:00+01", "03-29 09:00+02", "03-30 09:00+02"]),
        ("weekly", ["04-03 09:00+02", "04-10 09:00+02", "04-17 09:00+02"]),
        ("biweekly", ["04-10 09:00+02", "04-24 09:00+02", "05-08 09:00+02"]),
        ("monthly", ["04-27 09:00+02", "05-27 09:00+02", "06-27 09:00+02"]),
        ("10 days", ["04-06 09:00+02", "04-16 09:00+02", "04-26 09:00+02"]),
        ("6 months", ["09-27 09:00+02", "03-27 09:00+01", "09-27 09:00+02"]),
    ],
)
def test_a_cadence_keeps_its_time_of_day(step: str, expected: list[str]) -> None:
    rule = recurrence.cadence(step, ms("2026-03-27 09:00"), 0, BERLIN)
    assert shown(rule, ms("2026-03-27 09:00")) == expected


def test_a_monthly_cadence_of_the_31st_takes_the_last_day_and_comes_back() -> None:
    rule = recurrence.cadence("monthly", ms("2026-01-31 09:00"), 0, BERLIN)
    assert shown(rule, ms("2026-01-31 09:00")) == ["02-28 09:00+01", "03-31 09:00+02", "04-30 09:00+02"]


def test_jitter_is_part_of_the_rule_and_drawn_once() -> None:
    rule = recurrence.cadence("daily", ms("2026-11-22 09:00"), 754, BERLIN)
    assert shown(rule, ms("2026-11-22 10:00"), 2) == ["11-23 09:12+01", "11-24 09:12+01"]
    assert recurrence.make_rule(rule.kind, rule.spec, rule.zone) == rule


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("cadence", "sometimes from 2026-01-01"),
        ("cadence", "0 days from 2026-01-01"),
        ("once", "soon"),
        ("odd", "x"),
        ("interval", "0"),
        ("interval", "x"),
    ],
)
def test_a_stored_rule_that_makes_no_sense_is_refused(kind: str, spec: str) -> None:
    with pytest.raises(BadInput):
        recurrence.make_rule(kind, spec)


def test_a_moment_that_has_passed_is_never_due() -> None:
    assert recurrence.after(recurrence.once(1000), 1000) is None and recurrence.upcoming(recurrence.once(1000), 999) == [1000]


@given(
    at=st.integers(0, 4_000_000_000),
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    zone=st.sampled_from([BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "+05:30"]),
)
def test_the_next_moment_is_always_later_and_within_a_day_and_an_hour(at: int, minute: int, hour: int, zone: str) -> None:
    found = recurrence.after(recurrence.cron(f"{minute} {hour} * * *", zone), at * 1000)
    assert found is not None and at * 1000 < found <= at * 1000 + 26 * 3_600_000
