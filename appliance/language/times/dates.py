"""Days and moments of the calendar that a text names, past ones as well, and questions about them that a program computes.

A text is read as a day or a moment: a feast of the language file, "the 3rd of May", "Friday at 5 pm", "90 days ago", "the Sunday
after next". A text with any other word in it is none: what the notes may know ("until my holiday") is not computed. Not promised:
feasts by the moon but for Easter. Pure; the present moment is an argument.
"""

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language.languages import Language
from appliance.language.times import grammar, readings, rules
from appliance.language.times.frequencies import is_rule, without_stop
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.readings import TimeReading
from appliance.language.times.reductions import Unread, reduced
from appliance.language.times.tokenizer import Token, tokens


class Moment(Struct, frozen=True):
    """A day, or with `has_clock` a time on it; without `has_day` it is the next of that time."""

    at: datetime
    has_clock: bool = False
    has_day: bool = True


WEEKDAYS = frozenset({"weekday", "weekdays"})


def read(said: str, language: Language, now: datetime, *, may_be_named: bool = False) -> Moment | None:
    """The day or the moment that a text names; None where it names none, several, or anything else as well.

    `may_be_named`: what is on that day may stand before it, "our concert on 13 December".
    """
    found = without_stop(reduced(tokens(" ".join(said.split()), language.lexicon)))
    if may_be_named:
        first = next((one.start for one in grammar.fragments(found) if not one.is_weak), 0)
        if first and "on" in found[first].kinds or first and "time" not in found[first].kinds:
            found = found[first:]
    return _moment(found, now)


def nearest(said: str, lexicon: Lexicon, now: datetime, *, is_clock: bool = False, about: Collection[str] = ()) -> Moment | None:
    """The day that a text names among other words, a day of the week only where it names no other; with `is_clock` the time on it.

    Of several it is the first that stands behind what it is about, as far as the text has those words.
    """
    said = " ".join(said.split())
    found = reduced(tokens(said, lexicon))
    start = max((said.lower().rfind(word) for word in about), default=0)
    runs = [found[one.start : one.end] for one in grammar.fragments(found) if not one.is_weak]
    runs.sort(key=lambda run: run[0].start < start)
    read = [(run, made) for run in runs if (made := _moment(run, now)) is not None]
    days = [run for run, made in read if not made.has_clock]
    days.sort(key=lambda run: any(WEEKDAYS & token.kinds.keys() for token in run))
    day = next(iter(days), [])
    if not is_clock:
        return _moment(day, now) if day else None
    clock = next((run for run, made in read if made.has_clock), [])
    return _moment(sorted([*day, *clock], key=lambda token: token.start), now) if clock else None


def _moment(found: list[Token], now: datetime) -> Moment | None:
    try:
        made = _moment_of(grammar.parse(found, now.replace(tzinfo=None)))
    except (Unread, BadInput, ValueError, OverflowError):
        return None
    return None if made is None else replace(made, at=made.at.replace(tzinfo=now.tzinfo))


def _moment_of(reading: TimeReading) -> Moment | None:
    now = reading.now
    more = (reading.is_open, reading.is_repeated, reading.step, reading.window, reading.shift, reading.start, reading.end)
    if any(more) or reading.lasting or reading.minute is not None:
        return None
    if reading.length is not None:
        seconds, months = reading.length
        if reading.date or reading.days or reading.times:
            return None
        at = readings.moved(now, seconds, months)
        return Moment(at, True) if seconds % 86_400 else Moment(_midnight(at))
    reading.times = rules.after_noon(reading)
    clock = rules.named_times(reading) if reading.times or reading.part else []
    if len(clock) > 1 or len(reading.days) > 1 or len(reading.dates) > 1:
        return None
    rules.place_days(reading)
    day, has_day = reading.date, True
    hour, minute = clock[0] if clock else (0, 0)
    if day is not None and not rules.is_that_day(reading):
        return None
    if reading.days and reading.dates:
        return None  # "Friday the 6th": of which month?
    if day is None and reading.days:
        day = readings.next_day(now, next(iter(reading.days)))
        if clock and (early := day - timedelta(days=7)).replace(hour=hour % 24, minute=minute) > now:
            day = early
    elif day is None and reading.dates:
        day = _next_numbered(now, next(iter(reading.dates)))
    elif day is None and clock:
        day = now if now.replace(hour=hour % 24, minute=minute, second=0, microsecond=0) > now else now + timedelta(days=1)
        has_day = False
    if day is None or reading.months or reading.ordinals:
        return None
    return Moment(_midnight(day) + timedelta(hours=hour, minutes=minute), bool(clock), has_day)


def _next_numbered(now: datetime, which: str) -> datetime:
    """The next day of this number."""
    month = now.replace(day=1)
    for _ in range(12):
        try:
            day = rules.day_in_month(month, which)
        except Unread:
            day = None
        if day is not None and day.date() >= now.date():
            return day
        month = (month + timedelta(days=32)).replace(day=1)
    raise Unread


def next_year_of(moment: Moment, now: datetime) -> Moment:
    """The next day of the calendar that a past one comes again on, as birthdays do."""
    at, local = moment.at, now.replace(tzinfo=moment.at.tzinfo)
    while at < local:
        at = readings.moved(at, 0, 12)
    return replace(moment, at=at)


def _midnight(day: datetime) -> datetime:
    return day.replace(hour=0, minute=0, second=0, microsecond=0)


REFERENCE = datetime(2024, 1, 1, 12)  # a moment for telling whether a text is a day at all; the year is a leap year


def is_moment(text: str, language: Language, *, may_be_named: bool = False) -> bool:
    """Whether a text names a day or a time, whichever."""
    return read(text, language, REFERENCE, may_be_named=may_be_named) is not None


def is_time(text: str, language: Language) -> bool:
    """The same, or how often something is."""
    return is_moment(text, language) or is_rule(text, language.lexicon, int(REFERENCE.timestamp() * 1000))


class NamedDay(Struct, frozen=True):
    """A day that a text names: what it is called in the name of a note, and the other words of the text."""

    pattern: "re.Pattern[str]"
    rest: str


def day_in(text: str, language: Language, now: datetime) -> NamedDay | None:
    """The one day of the calendar that is named among other words, of any year where none is said; None for none or several."""
    found = reduced(tokens(text, language.lexicon))
    days = [token for token in found if {"date", "day"} & token.kinds.keys()]
    if len(days) != 1:
        return None
    said = days[0].kinds
    if "date" in said:
        year, month, day = said["date"]
    else:
        at = now + timedelta(days=int(said["day"][0]))
        year, month, day = at.year, at.month, at.day
    return NamedDay(
        re.compile(rf"\b{year or '[12][0-9]{3}'}-{month:02}-{day:02}(?![0-9])"), text[: days[0].start] + text[days[0].end :]
    )


def spelled(moment: datetime, language: Language) -> str:
    """A day in words: "Friday, 18 December 2026"."""
    weekday = language.phrase("weekdays").split()[moment.weekday()]
    month = language.phrase("months").split()[moment.month - 1]
    return language.say("day_form", weekday=weekday, day=str(moment.day), month=month, year=str(moment.year))


def distance(start: Moment, end: Moment, language: Language, *, in_weeks: bool = False) -> str:
    """How far two moments are apart, in whole days, or down to minutes where a time was said."""
    if end.has_clock or start.has_clock:
        minutes = abs(int((_utc(end.at) - _utc(start.at)).total_seconds()) // 60)
        parts = [(minutes // 1440, "day"), (minutes // 60 % 24, "hour"), (minutes % 60, "minute")]
    else:
        days = abs((end.at.date() - start.at.date()).days)
        parts = [(days // 7, "week"), (days % 7, "day")] if in_weeks and days >= 7 else [(days, "day")]
    said = [_counted(number, unit, language) for number, unit in parts if number]
    return " ".join(said) or _counted(0, parts[-1][1], language)


def _utc(at: datetime) -> datetime:
    """In UTC where its zone is known, so that an hour is an hour when the clocks change."""
    return at if at.tzinfo is None else at.astimezone(UTC)


def _counted(number: int, unit: str, language: Language) -> str:
    one, many = language.phrase(f"{unit}_words").split()
    return f"{number} {one if number == 1 else many}"
