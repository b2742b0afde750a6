"""When an event of a calendar comes again: recurrence rules of iCalendar (RFC 5545), in local time without a zone.

Pure. Rules by the day, week, month and year with all their BY parts but BYSECOND; of faster ones the first time alone is known.
Nothing here is unbounded: a rule is asked between two moments, looks at so many periods and gives so many times, and what cannot be
read is a rule that never repeats. Knows nothing about zones, exceptions or moved instances.
"""

import calendar
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from itertools import product

from msgspec import Struct

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
MAX_PERIODS = 20_000  # that are looked at for one question: 50 years of days
MAX_TIMES = 1000  # that one rule gives
MAX_VALUES = 400  # of one BY part: a year has 366 days
MAX_CLOCKS = 96  # times of day, of BYHOUR and BYMINUTE
COSTS = {"DAILY": 1, "WEEKLY": 2, "MONTHLY": 8, "YEARLY": 60}  # of looking at one period, about 8 microseconds each (2026-11-29)
MAX_WORK = 150_000  # such costs of all rules of one question


class RuleWork:
    """How much work the rules of one question may still make: about a second, however many rules a stranger sends."""

    def __init__(self, most: int = MAX_WORK) -> None:
        self._left = most

    def take(self, cost: int) -> bool:
        """Whether so much may still be done."""
        self._left -= cost
        return self._left >= 0


class RecurrenceRule(Struct, frozen=True):
    """A rule that was read; `days` are weekdays with a number ("the last Friday"), 0 for each."""

    frequency: str
    interval: int = 1
    count: int = 0
    until: datetime | None = None
    days: tuple[tuple[int, int], ...] = ()
    month_days: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    weeks: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    week_start: int = 0


def read(text: str, until: datetime | None = None) -> RecurrenceRule | None:
    """The rule of a text, with its end in local time; None for one that is not understood."""
    parts = {name.strip().upper(): value.strip().upper() for name, _, value in (one.partition("=") for one in text.split(";"))}
    if parts.get("FREQ") not in FREQUENCIES:
        return None
    try:
        interval, count = int(parts.get("INTERVAL", "1")), int(parts.get("COUNT", "0"))
        if not 1 <= interval <= 10_000 or count < 0:
            return None
        return RecurrenceRule(
            parts["FREQ"],
            *(interval, count, until),
            days=tuple(dict.fromkeys(_weekday(one) for one in _values(parts, "BYDAY"))),
            month_days=_numbers(parts, "BYMONTHDAY", 31),
            months=_numbers(parts, "BYMONTH", 12),
            year_days=_numbers(parts, "BYYEARDAY", 366),
            weeks=_numbers(parts, "BYWEEKNO", 53),
            hours=_numbers(parts, "BYHOUR", 23),
            minutes=_numbers(parts, "BYMINUTE", 59),
            places=_numbers(parts, "BYSETPOS", 366),
            week_start=DAYS.index(parts.get("WKST", "MO")),
        )
    except ValueError:
        return None


def _values(parts: Mapping[str, str], name: str) -> list[str]:
    values = [one for one in parts.get(name, "").split(",") if one]
    if len(values) > MAX_VALUES:
        raise ValueError(name)
    return values


def _numbers(parts: Mapping[str, str], name: str, most: int) -> tuple[int, ...]:
    numbers = tuple(dict.fromkeys(int(one) for one in _values(parts, name)))
    if any(abs(one) > most for one in numbers):
        raise ValueError(name)
    return numbers


def _weekday(text: str) -> tuple[int, int]:
    return int(text[:-2] or 0), DAYS.index(text[-2:])


def times(rule: RecurrenceRule, start: datetime, first: datetime, last: datetime, work: RuleWork) -> Iterator[datetime]:
    """The times from `first` on and before `last`, in order; `start` is that of the first event, by which a bare rule goes."""
    clocks = _clocks(rule, start)
    begin = 0 if rule.count or first <= start else max(0, _period_of(rule, start, first) - 1)
    seen = given = 0
    for number in range(begin, begin + MAX_PERIODS):
        found = _days_of(rule, start, number) if work.take(COSTS[rule.frequency] + len(clocks) - 1) else None
        if found is None:
            return  # beyond the calendar, or of what may be done
        day, days = found
        moments = sorted(datetime.combine(one, clock) for one in set(days) for clock in clocks)
        if rule.places:
            moments = sorted({moments[at - 1 if at > 0 else at] for at in rule.places if at and abs(at) <= len(moments)})
        for moment in moments:
            if moment < start:
                continue
            seen += 1
            is_over = (rule.count and seen > rule.count) or (rule.until is not None and moment > rule.until)
            if is_over or moment >= last or given == MAX_TIMES:
                return
            if moment >= first and work.take(1):
                given += 1
                yield moment
        if datetime.combine(day, time.min) >= last:
            return


def _clocks(rule: RecurrenceRule, start: datetime) -> list[time]:
    hours, minutes = rule.hours or (start.hour,), rule.minutes or (start.minute,)
    return [time(abs(hour), abs(minute), start.second) for hour, minute in product(hours, minutes)][:MAX_CLOCKS]


def _period_of(rule: RecurrenceRule, start: datetime, at: datetime) -> int:
    """The number of the period that a moment is in."""
    if rule.frequency in ("DAILY", "WEEKLY"):
        step = rule.interval * (7 if rule.frequency == "WEEKLY" else 1)
        return (at.date() - start.date()).days // step
    months = (at.year - start.year) * 12 + at.month - start.month
    return months // (rule.interval * (12 if rule.frequency == "YEARLY" else 1))


def _days_of(rule: RecurrenceRule, start: datetime, number: int) -> tuple[date, list[date]] | None:
    """The first day of a period and the days in it that the rule names; None beyond the end of the calendar."""
    steps = number * rule.interval
    try:
        if rule.frequency == "DAILY":
            day = start.date() + timedelta(days=steps)
            return day, [day] if _is_named(rule, day) else []
        if rule.frequency == "WEEKLY":
            day = start.date() - timedelta(days=(start.weekday() - rule.week_start) % 7) + timedelta(weeks=steps)
            named = {weekday for _, weekday in rule.days} or {start.weekday()}
            week = [day + timedelta(days=one) for one in range(7)]
            return day, [one for one in week if one.weekday() in named and (not rule.months or one.month in rule.months)]
        if rule.frequency == "MONTHLY":
            months = start.year * 12 + start.month - 1 + steps
            day = date(months // 12, months % 12 + 1, 1)
            is_asked = not rule.months or day.month in rule.months
            return day, _days_of_month(rule, start, day) if is_asked else []
        day = date(start.year + steps, 1, 1)
        return day, _days_of_year(rule, start, day.year)
    except (OverflowError, ValueError):
        return None


def _is_named(rule: RecurrenceRule, day: date) -> bool:
    """Whether a day passes every BY part."""
    length, of_year = calendar.monthrange(day.year, day.month)[1], day.timetuple().tm_yday
    year = 366 if calendar.isleap(day.year) else 365
    return (
        (not rule.months or day.month in rule.months)
        and (not rule.month_days or bool({day.day, day.day - length - 1} & set(rule.month_days)))
        and (not rule.year_days or bool({of_year, of_year - year - 1} & set(rule.year_days)))
        and (not rule.days or day.weekday() in {weekday for _, weekday in rule.days})
    )


def _days_of_month(rule: RecurrenceRule, start: datetime, first: date) -> list[date]:
    days = [first.replace(day=one) for one in range(1, calendar.monthrange(first.year, first.month)[1] + 1)]
    if not rule.days and not rule.month_days:
        return [day for day in days if day.day == start.day]
    found = set(days)
    if rule.month_days:
        found &= {days[one - 1 if one > 0 else one] for one in rule.month_days if one and abs(one) <= len(days)}
    if rule.days:
        found &= set(_weekdays(rule, days))
    return list(found)


def _days_of_year(rule: RecurrenceRule, start: datetime, year: int) -> list[date]:
    first = date(year, 1, 1)
    days = [first + timedelta(days=one) for one in range(366 if calendar.isleap(year) else 365)]
    if rule.year_days:
        chosen = {days[one - 1 if one > 0 else one] for one in rule.year_days if one and abs(one) <= len(days)}
        return [day for day in chosen if not rule.days or day.weekday() in {weekday for _, weekday in rule.days}]
    if rule.weeks:
        named = {weekday for _, weekday in rule.days} or {start.weekday()}
        # A week belongs to the year in which it has four days, whatever day it begins on.
        begin = first - timedelta(days=(first.weekday() - rule.week_start) % 7)
        begin += timedelta(days=7 if (first - begin).days > 3 else 0)
        after = date(year + 1, 1, 1)
        count = 53 if (after - (begin + timedelta(weeks=52))).days >= 4 else 52
        weeks = {one if one > 0 else count + 1 + one for one in rule.weeks}
        chosen = {begin + timedelta(weeks=one - 1, days=day) for one in weeks if 1 <= one <= count for day in range(7)}
        return [day for day in chosen if day.weekday() in named]
    if rule.months or rule.month_days:
        months = rule.months or (range(1, 13) if rule.month_days else (start.month,))
        return [day for month in months if month > 0 for day in _days_of_month(rule, start, date(year, month, 1))]
    if rule.days:
        return _weekdays(rule, days)
    return [day for day in days if (day.month, day.day) == (start.month, start.day)]


def _weekdays(rule: RecurrenceRule, days: list[date]) -> list[date]:
    """The days of a month or a year that BYDAY names."""
    found: list[date] = []
    for number, weekday in rule.days:
        these = [day for day in days if day.weekday() == weekday]
        if number == 0:
            found += these
        elif abs(number) <= len(these):
            found.append(these[number - 1 if number > 0 else number])
    return found
