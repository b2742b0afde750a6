"""When events happen: repetition, exceptions, moved instances, zones and summer time; and files that want to do harm."""

from datetime import UTC, datetime, timedelta
from time import process_time
from zoneinfo import ZoneInfo

import pytest

from appliance.text import event_recurrence, icalendar
from appliance.text.event_recurrence import RuleWork

ZONE = ZoneInfo("Europe/Berlin")
OUTLOOK = """BEGIN:VTIMEZONE
TZID:W. Europe Standard Time
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
"""


def file(*events: str, zone: str = "") -> str:
    inside = "".join(f"BEGIN:VEVENT\nUID:{number}\nSUMMARY:E{number}\n{one}\nEND:VEVENT\n" for number, one in enumerate(events))
    return f"BEGIN:VCALENDAR\n{zone}{inside}END:VCALENDAR\n"


def times(text: str, first: str = "2026-01-01", last: str = "2027-01-01") -> list[str]:
    begin, end = (datetime.fromisoformat(one).replace(tzinfo=ZONE) for one in (first, last))
    found = icalendar.occurrences(icalendar.events(text, ZONE), begin, end, RuleWork())
    return [f"{one.event.title} {one.start.astimezone(ZONE):%m-%d %H:%M}" for one in found]


# Each beginning at 09:30 on Wednesday, 7 January 2026; checked against python-dateutil (2026-11-29, 12,000 random rules).
RULES = (
    ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=4", "01-07 01-19 01-21 02-02"),
    ("FREQ=MONTHLY;BYDAY=-1FR;COUNT=3", "01-30 02-27 03-27"),
    ("FREQ=MONTHLY;BYMONTHDAY=31;COUNT=3", "01-31 03-31 05-31"),
    ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=3", "01-30 02-27 03-31"),
    ("FREQ=DAILY;INTERVAL=10;UNTIL=20260201", "01-07 01-17 01-27"),
    ("FREQ=YEARLY;BYMONTH=3;BYDAY=2SU", "03-08"),
    ("FREQ=YEARLY;BYYEARDAY=100", "04-10"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "05-11"),
    ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", ""),
    ("FREQ=SECONDLY", "01-07"),
    ("FREQ=WEEKLY;BYDAY=XX", "01-07"),
    ("nonsense", "01-07"),
)


@pytest.mark.parametrize(("rule", "days"), RULES)
def test_a_rule_gives_its_days(rule: str, days: str) -> None:
    found = times(file(f"DTSTART;TZID=Europe/Berlin:20260107T093000\nRRULE:{rule}"))
    assert [one.split()[1] for one in found] == days.split()


def test_a_local_hour_stays_when_the_clocks_change_and_one_elsewhere_does_not() -> None:
    weekly = "DTSTART;TZID={}:20260320T{}00\nRRULE:FREQ=WEEKLY;COUNT=3"
    assert times(file(weekly.format("Europe/Berlin", "0930"))) == ["E0 03-20 09:30", "E0 03-27 09:30", "E0 04-03 09:30"]
    assert times(file(weekly.format("America/New_York", "0930"))) == ["E0 03-20 14:30", "E0 03-27 14:30", "E0 04-03 15:30"]
    assert times(file(weekly.format("W. Europe Standard Time", "0930"), zone=OUTLOOK))[2] == "E0 04-03 09:30"
    assert times(file("DTSTART;TZID=/mozilla.org/20070129_1/Asia/Tokyo:20260320T093000")) == ["E0 03-20 01:30"]
    assert times(file("DTSTART;TZID=Nowhere:20260320T093000")) == ["E0 03-20 09:30"]


def test_exceptions_added_days_and_moved_instances_count() -> None:
    start = "DTSTART;TZID=Europe/Berlin:20260107T093000\nRRULE:FREQ=WEEKLY;COUNT=4\n"
    text = file(start + "EXDATE;TZID=Europe/Berlin:20260114T093000\nRDATE;TZID=Europe/Berlin:20260110T120000")
    moved = (
        "BEGIN:VEVENT\nUID:0\nRECURRENCE-ID:20260121T083000Z\nDTSTART:20260122T083000Z\nSUMMARY:moved\nEND:VEVENT\nEND:VCALENDAR"
    )
    text = text.replace("END:VCALENDAR", moved)
    assert times(text) == ["E0 01-07 09:30", "E0 01-10 12:00", "moved 01-22 09:30", "E0 01-28 09:30"]
    assert times(file(start + "EXDATE;VALUE=DATE:20260107,20260128\nSTATUS:CONFIRMED")) == ["E0 01-14 09:30", "E0 01-21 09:30"]
    assert times(file(start + "STATUS:CANCELLED")) == []


def test_whole_days_end_before_their_end_and_long_events_last_into_the_day() -> None:
    text = file("DTSTART;VALUE=DATE:20260401\nDTEND;VALUE=DATE:20260403", "DTSTART:20260401T200000Z\nDURATION:PT10H")
    assert times(text, "2026-04-02", "2026-04-03") == ["E0 04-01 00:00", "E1 04-01 22:00"]
    assert times(text, "2026-04-03", "2026-04-04") == []


MAX_BYTES = 2 * 1024 * 1024  # of a file
HOSTILE = (
    "DTSTART:19000101T000000Z\nRRULE:FREQ=DAILY;COUNT=999999999;BYMONTH=2;BYMONTHDAY=30",
    "DTSTART:00010101T000000Z\nRRULE:FREQ=YEARLY;BYDAY=" + ",".join(["MO"] * 399),
    "DTSTART:20260101T000000Z\nRRULE:FREQ=DAILY;BYHOUR="
    + ",".join(map(str, range(24)))
    + ";BYMINUTE="
    + ",".join(map(str, range(60))),
    "DTSTART:20260101T000000Z\nEXDATE:" + ",".join(["20260101T000000Z"] * 9000),
    "DTSTART:99991231T235959Z\nDURATION:P99999D",
    "DTSTART;TZID=../../../etc/passwd:20260101T000000",
    "DTSTART:20260101T000000Z\nRRULE:FREQ=WEEKLY;INTERVAL=0",
    "DTSTART:20260101T000000Z\nDURATION:-PT1H\nSUMMARY:" + "x" * 100_000,
    "DTSTART:20261301T000000Z",
)


@pytest.mark.parametrize("event", HOSTILE)
def test_what_wants_to_do_harm_costs_little(event: str) -> None:
    began = process_time()
    times(file(*[event] * min(100, MAX_BYTES // len(event))))
    assert process_time() - began < 15


def test_work_on_rules_has_an_end_that_other_events_do_not_feel() -> None:
    known = icalendar.events(file(*[HOSTILE[0]] * 500, "DTSTART:20260301T090000Z"), ZONE)
    found = icalendar.occurrences(known, datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), RuleWork(1000))
    assert [one.event.title for one in found] == ["E500"]


def test_control_characters_and_lines_are_no_part_of_a_title() -> None:
    text = file("DTSTART:20260301T090000Z").replace("SUMMARY:E0", "SUMMARY:a\\nb\x1b[31m\u202ec")
    [event] = icalendar.events(text, ZONE)
    assert event.title == "a b [31m c"


def test_an_event_is_written_as_it_is_read() -> None:
    start = datetime(2026, 3, 29, 1, 30, tzinfo=ZONE)
    made = icalendar.CalendarEvent(
        "u1", "VEVENT", "Ä; b, \\c " * 12, start, start.astimezone(UTC) + timedelta(hours=1), place="x\ny"
    )
    text = icalendar.written(made, start)
    [read] = icalendar.events(text, ZONE)
    assert (read.title, read.start, read.end, read.place) == (
        made.title.strip(),
        start.astimezone(UTC),
        start.astimezone(UTC) + timedelta(hours=1),
        "x y",
    )
    assert max(len(line.encode()) for line in text.split("\r\n")) <= 75
    assert event_recurrence.read("FREQ=DAILY;INTERVAL=x") is None
