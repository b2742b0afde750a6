"""Days and moments of the calendar that a text names, past ones as well: "the Sunday after next", "90 days ago". Pure."""

from datetime import datetime, timedelta

from msgspec import Struct

from appliance.errors import BadInput
from appliance.language.times import grammar, readings, rules
from appliance.language.times.clock_times import Unread
from appliance.language.times.frequencies import without_stop
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.readings import Reading
from appliance.language.times.reductions import reduced
from appliance.language.times.tokenizer import Token, tokens


class Moment(Struct, frozen=True):
    """A day, or with `has_clock` a time on it."""

    at: datetime
    has_clock: bool = False


def read(said: str, lexicon: Lexicon, now: datetime, *, may_be_named: bool = False) -> Moment | None:
    """The day or the moment that a text names; None where it names none, several, or anything else as well.

    `may_be_named`: what is on that day may stand before it, "our concert on 13 December".
    """
    found = without_stop(reduced(tokens(" ".join(said.split()), lexicon)))
    if may_be_named:
        first = next((one.start for one in grammar.fragments(found) if not one.is_weak), 0)
        if first and "on" in found[first].kinds or first and "time" not in found[first].kinds:
            found = found[first:]
    return _moment(found, now)


def nearest(said: str, lexicon: Lexicon, now: datetime, *, is_clock: bool = False) -> Moment | None:
    """The first day that a text names among other words, a day of the week only where it names no other; or the first clock."""
    found = reduced(tokens(" ".join(said.split()), lexicon))
    runs = list(grammar.fragments(found))
    if is_clock:
        said_times = [found[one.start : one.end] for one in runs if not one.is_weak]
        return _moment([token for run in said_times for token in run], now) if said_times else None
    for is_weekday in (False, True):
        for one in runs:
            run = found[one.start : one.end]
            if one.is_weak or any("weekday" in token.kinds or "weekdays" in token.kinds for token in run) != is_weekday:
                continue
            if (made := _moment(run, now)) is not None and not made.has_clock:
                return made
    return None


def _moment(found: list[Token], now: datetime) -> Moment | None:
    try:
        made = _moment_of(grammar.parse(found, now.replace(tzinfo=None)))
    except (Unread, BadInput, ValueError, OverflowError):
        return None
    return None if made is None else Moment(made.at.replace(tzinfo=now.tzinfo), made.has_clock)


def _moment_of(reading: Reading) -> Moment | None:
    now = reading.now
    if (
        reading.is_open
        or reading.is_repeated
        or reading.step
        or reading.window
        or reading.shift
        or reading.start
        or reading.end
        or reading.lasting
        or reading.minute is not None
    ):
        return None
    if reading.length is not None:
        seconds, months = reading.length
        if reading.date or reading.days or reading.times:
            return None
        at = readings.moved(now, seconds, months)
        return Moment(at, True) if seconds % 86_400 else Moment(_midnight(at))
    clock = rules.named_times(reading) if reading.times or reading.part else []
    if len(clock) > 1 or len(reading.days) > 1 or len(reading.dates) > 1:
        return None
    rules.place_days(reading)
    day = reading.date
    hour, minute = clock[0] if clock else (0, 0)
    if day is not None and not rules.is_that_day(reading):
        return None
    if day is None and reading.days:
        day = readings.next_day(now, next(iter(reading.days)))
        if clock and (early := day - timedelta(days=7)).replace(hour=hour % 24, minute=minute) > now:
            day = early
    elif day is None and reading.dates:
        day = _next_numbered(now, next(iter(reading.dates)))
    elif day is None and clock:
        day = now if now.replace(hour=hour % 24, minute=minute, second=0, microsecond=0) > now else now + timedelta(days=1)
    if day is None or reading.months or reading.ordinals:
        return None
    return Moment(_midnight(day) + timedelta(hours=hour, minutes=minute), bool(clock))


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


def _midnight(day: datetime) -> datetime:
    return day.replace(hour=0, minute=0, second=0, microsecond=0)
