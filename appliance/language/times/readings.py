"""What the words of a text have said about when, and what each kind of phrase adds to it.

A handler notes what a phrase says in a `Reading`; what contradicts what was noted before is `Unread`. Which phrases there are,
`grammar` knows; what moments are meant, `rules`. Holds no words of a language. Pure.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from appliance.language.times import lexicon, recurrence, reductions, timezones
from appliance.language.times.reductions import Time, UnclearTime, Unread
from appliance.language.times.tokenizer import Match

DAY = timedelta(days=1)
LATE_H = 9  # from then on a Saturday's "this weekend" is Sunday
WORKDAYS, WEEKEND = frozenset({1, 2, 3, 4, 5}), frozenset({0, 6})
WEEK = (7 * 86_400, 0)


@dataclass
class TimeReading:
    """What the tokens have said so far. Days of the week are those of cron: Sunday is 0."""

    now: datetime
    times: list[Time] = field(default_factory=list)
    days: set[int] = field(default_factory=set)
    ordinals: set[str] = field(default_factory=set)  # of days of the week in a month: 1#2, 5L
    dates: set[str] = field(default_factory=set)  # days of the month: 15, L, LW
    months: set[int] = field(default_factory=set)
    step: tuple[int, str] | None = None  # every so many units
    window: tuple[int, int] | None = None  # minutes since midnight; the end may be on the next day
    anchor: int | None = None  # a minute of the day that is counted from
    length: tuple[float, int] | None = None  # in so many seconds and months
    shift: tuple[float, int] | None = None  # so much before (negative) or after what is said around it
    date: datetime | None = None  # one day
    month_day: tuple[int, int] | None = None  # the same without its year
    month: datetime | None = None  # the first day of a month of a year
    week: datetime | None = None  # the Monday of a week
    start: datetime | None = None  # the first day of what repeats
    end: datetime | None = None  # and its last moment
    lasting: tuple[float, int] | None = None  # or so many seconds and months from its first time on
    times_a_day: int = 0  # twice a day: at the times that are named, else at usual ones
    minute: int | None = None  # past every hour
    part: str = ""  # of the day, which also says what "at 7" means
    is_repeated: bool = False
    is_once: bool = False
    is_today: bool = False
    is_past: bool = False
    is_open: bool = False  # one of several: "an hour or two"
    zone: str = ""
    order: str = field(default="", compare=False)  # in which times (T) and days (D) were said


Handler = Callable[[TimeReading, Match], None]


def always(days: frozenset[int] = frozenset(), **facts: bool) -> Handler:
    """A handler for words that always say the same: these days of the week and these facts, or nothing about when."""

    def add(reading: TimeReading, match: Match) -> None:
        reading.days |= days
        vars(reading).update(facts)

    return add


def unread(reading: TimeReading, match: Match) -> None:
    """What nobody can know: of which month is the second Tuesday?"""
    raise Unread


def set_step(reading: TimeReading, count: float, unit: str) -> None:
    if count != int(count):
        if unit != "hour":
            raise Unread
        count, unit = count * 60, "minute"
    if reading.step is not None or count < 1:
        raise Unread
    reading.step, reading.is_repeated = (int(count), "day" if unit == "night" else unit), True


def every_unit(reading: TimeReading, match: Match) -> None:
    set_step(reading, 1, match.get("unit") or match.get("single"))


def every_amount(reading: TimeReading, match: Match) -> None:
    set_step(reading, *match.get("amount"))


def every_length(reading: TimeReading, match: Match) -> None:
    seconds, months = match.get("length")
    if months:
        raise Unread
    set_step(reading, seconds, "second")


def adverb(reading: TimeReading, match: Match) -> None:
    count, unit, *part = match.get("adverb")
    set_step(reading, int(count), unit)
    for one in part:
        note_part(reading, one)


def other_unit(reading: TimeReading, match: Match) -> None:
    count = 2 if match.has("other") else match.get("nth")
    if count < 2:
        raise Unread
    set_step(reading, count, match.get("unit"))


def other_day(reading: TimeReading, match: Match) -> None:
    """Every other Tuesday."""
    count = 2 if match.has("other") else match.get("nth")
    if count < 2:
        raise Unread
    set_step(reading, count, "week")
    reading.days.add(weekday(match))


def weekday(match: Match) -> int:
    return int(match.get("weekday", match.get("weekdays")))


def per_unit(reading: TimeReading, match: Match) -> None:
    """Twice a day, three times an hour, once a week."""
    count = int(match.get("times") or match.get("number"))
    unit = match.get("unit") or match.get("single")
    if unit == "day" and count > 1:
        reading.times_a_day = count
        set_step(reading, 1, "day")
    elif count == 1:
        set_step(reading, 1, unit)
    elif unit == "hour" and count and 60 % count == 0:
        set_step(reading, 60 // count, "minute")
    else:
        raise Unread


def this_weekend(reading: TimeReading, match: Match) -> None:
    """Saturday, or what is left of it."""
    now = reading.now
    is_late = now.isoweekday() == 6 and now.hour >= LATE_H
    day = next_day(now, 0) if is_late else now if now.isoweekday() in (6, 7) else next_day(now, 6)
    one_date(reading, day + timedelta(days=7) if match.has("next") else day)


def day_range(reading: TimeReading, match: Match) -> None:
    first, last = (int(day) for day in match.all("weekday") + match.all("weekdays"))
    reading.is_repeated = True
    reading.days |= {(first + i) % 7 for i in range((last - first) % 7 + 1)}


def weekdays(reading: TimeReading, match: Match) -> None:
    """Mondays, every Monday: again and again."""
    reading.is_repeated = True
    one_weekday(reading, match)


def one_weekday(reading: TimeReading, match: Match) -> None:
    """Monday: in a list of days, or the next one."""
    reading.days.add(weekday(match))
    part = match.get("part") or match.get("parts") or match.side("weekday", "with_part") or match.side("weekdays", "with_part")
    if part:
        note_part(reading, part)


def next_weekday(reading: TimeReading, match: Match) -> None:
    day = next_day(reading.now, weekday(match))
    is_this_week = day.isocalendar()[:2] == reading.now.isocalendar()[:2]
    one_date(reading, day + timedelta(days=7) if match.has("next") and is_this_week else day)
    if part := match.get("part") or match.side("weekday", "with_part"):
        note_part(reading, part)


def weekday_after_next(reading: TimeReading, match: Match) -> None:
    """Also "Tuesday week" and "Tuesday in a week"."""
    if match.get("length", WEEK) != WEEK:
        raise Unread
    one_date(reading, next_day(reading.now, weekday(match)) + timedelta(days=7))


def last_weekday(reading: TimeReading, match: Match) -> None:
    day = next_day(reading.now, weekday(match)) - timedelta(days=7)
    reading.is_past = True
    one_date(reading, day - timedelta(days=7) if day.date() == reading.now.date() else day)


def some_part(reading: TimeReading, match: Match) -> None:
    note_part(reading, match.get("part") or match.get("in_part"))


def every_part(reading: TimeReading, match: Match) -> None:
    reading.is_repeated = True
    note_part(reading, match.get("part") or match.get("parts") or match.get("every_part")[0])


def this_part(reading: TimeReading, match: Match) -> None:
    some_part(reading, match)
    reading.is_today = True
    one_date(reading, reading.now)


def note_part(reading: TimeReading, part: str) -> None:
    if reading.part and reading.part != part:
        if {reading.part, part} != {"afternoon", "late_afternoon"}:
            raise Unread
    reading.part = part


def clock(reading: TimeReading, match: Match) -> None:
    time = match.get("time")
    if time.second and match.has("in"):  # in 1:30:15 is a length of time
        raise Unread
    reading.times.append(time)


def hour(reading: TimeReading, match: Match) -> None:
    """At 7, which a part of the day may make 19:00."""
    hour = match.get("number")
    if hour != int(hour):
        raise Unread
    reading.times.append(reductions.bare(int(hour)))


def more_hours(reading: TimeReading, match: Match) -> None:
    """And 5, after a time."""
    if not reading.times:
        raise Unread
    hour(reading, match)


def this_time(reading: TimeReading, match: Match) -> None:
    reading.times.append(Time(reading.now.hour, reading.now.minute, "24"))


def bounds(match: Match) -> list[Time]:
    kinds = [token.kinds for token in match.tokens[match.start : match.end]]
    return [
        one["time"] if "time" in one else reductions.bare(int(one["number"])) for one in kinds if {"time", "number"} & one.keys()
    ]


def window(reading: TimeReading, match: Match) -> None:
    """From one time of day to another; over midnight where both say in which half of the day they are."""
    if reading.window is not None:
        raise Unread
    first, last = bounds(match)
    if first.second or last.second:
        raise Unread
    start, end = first.hour * 60 + first.minute, last.hour * 60 + last.minute
    if first.is_loose and last.half == "pm" and start + 720 < end:
        start += 720  # from 2 to 4pm
    if last.half == "24" and end == 0:
        end = 24 * 60 - 1
    if end < start and not last.half and last.is_loose and first.half in ("", "am"):
        end += 720  # from 9 to 5
    if end <= start:
        is_sure = end + 720 <= start or all(time.half or not time.is_loose for time in (first, last))
        if not is_sure or end == start:
            raise Unread
        end += 24 * 60
    reading.window = (start, end)


def anchor(reading: TimeReading, match: Match) -> None:
    """Starting at 8am."""
    if reading.anchor is not None:
        raise Unread
    (time,) = bounds(match)
    if time.second:
        raise Unread
    reading.anchor = time.hour * 60 + time.minute


def office_hours(reading: TimeReading, match: Match) -> None:
    if reading.window is not None:
        raise Unread
    reading.window = (9 * 60, 17 * 60)
    reading.days = reading.days or set(WORKDAYS)
    reading.is_repeated = True


def ahead(reading: TimeReading, match: Match) -> None:
    if reading.length is not None:
        raise Unread
    reading.length = match.get("length")


def from_now(reading: TimeReading, match: Match) -> None:
    if reading.length is not None:
        raise Unread
    reading.length = match.get("from_now")


def ago(reading: TimeReading, match: Match) -> None:
    reading.is_past = True
    seconds, months = match.get("length")
    one_date(reading, moved(reading.now, -seconds, -months))


def relative_day(reading: TimeReading, match: Match) -> None:
    days, *part = match.get("day")
    count = int(days)
    reading.is_today, reading.is_past = count == 0, count < 0
    one_date(reading, reading.now + timedelta(days=count))
    for one in [*part, *match.all("part")]:
        note_part(reading, one)


def next_unit(reading: TimeReading, match: Match) -> None:
    now, unit = reading.now, match.all("unit")[-1]
    if unit == "week":
        reading.week = now + timedelta(days=7 - now.weekday())
    elif unit == "month":
        reading.month = (now.replace(day=1) + timedelta(days=32)).replace(day=1)
    elif unit == "year":
        one_date(reading, now.replace(year=now.year + 1, month=1, day=1))
    else:
        raise Unread


def this_unit(reading: TimeReading, match: Match) -> None:
    """This week, this month: nothing but where the day is."""
    now, unit = reading.now, match.all("unit")[-1]
    if unit == "week":
        reading.week = now - timedelta(days=now.weekday())
    elif unit == "month":
        reading.month = now.replace(day=1)
    elif unit != "year":
        raise Unread


def past_unit(reading: TimeReading, match: Match) -> None:
    reading.is_past = True


def edge_of(reading: TimeReading, match: Match) -> None:
    """The end or the beginning of the month, of the week or of the year."""
    now, unit, is_end = reading.now, match.get("unit"), match.has("end_of")
    if match.has("every"):
        if unit != "month":
            raise Unread
        reading.is_repeated = True
        reading.dates.add("L" if is_end else "1")
        return
    if unit == "month":
        first = (now.replace(day=1) + timedelta(days=32)).replace(day=1)
        if match.has("next"):
            reading.month = first
            reading.dates.add("L" if is_end else "1")
        elif reading.is_repeated:
            reading.dates.add("L" if is_end else "1")
        elif is_end:
            one_date(reading, first - timedelta(days=1))
        else:
            raise Unread
    elif unit == "week" and is_end:
        one_date(reading, now + timedelta(days=6 - now.weekday() + (7 if match.has("next") else 0)))
    elif unit == "year" and is_end and not match.has("next"):
        one_date(reading, now.replace(month=12, day=31))
    else:
        raise Unread


def edge_of_month(reading: TimeReading, match: Match) -> None:
    """The end or the beginning of a month that is named, the next one to come."""
    now, number = reading.now, int(match.get("month"))
    years = (now.year, now.year + 1)
    firsts = [now.replace(year=year, month=number, day=1) for year in years]
    days = [moved(first, 0, 1) - DAY for first in firsts] if match.has("end_of") else firsts
    one_date(reading, next(day for day in days if day.date() >= now.date()))


def calendar_date(reading: TimeReading, match: Match) -> None:
    """3 December, December 24th, each year where it repeats."""
    if match.has("every"):
        reading.is_repeated = True
    year, month, day = match.get("date") or match.get("dot_date")
    read_date(reading, day, month, year)


def slash_date(reading: TimeReading, match: Match) -> None:
    """12/24 and 24/12; which of 5/6 is the month nobody can know."""
    year, first, second = match.get("two_dates")
    if first <= 12 and second <= 12 and first != second:
        raise UnclearTime("two_days", said=f"{first}/{second}")
    day, month = (first, second) if second <= 12 else (second, first)
    read_date(reading, day, month, year)


def read_date(reading: TimeReading, day: int, month: int, said_year: int | None) -> None:
    """A day of a month, of each year where it repeats, else the next one."""
    if not 1 <= month <= 12:
        raise Unread
    if said_year is None and (reading.is_repeated or (reading.step or (0, ""))[1] == "year"):
        reading.is_repeated = True
        if reading.months and reading.months != {month}:
            raise Unread
        reading.months.add(month)
        reading.dates.add(str(day))
        return
    this = reading.now.year
    for year in [said_year] if said_year else range(this, this + 9):  # 29 February comes at least every eight
        with suppress(ValueError):
            date = reading.now.replace(year=year, month=month, day=day)
            if said_year or date.date() >= reading.now.date():
                reading.month_day = None if said_year else (month, day)
                one_date(reading, date)
                return
    raise Unread


def feast(reading: TimeReading, match: Match) -> None:
    """A day of the calendar with a name of its own: the next one, or each year's where that is the same day."""
    year, rule = match.get("feast_of")
    if match.has("every") or (reading.step or (0, ""))[1] == "year":
        month, _, day = rule.partition("-")
        if not (month.isdecimal() and day.isdecimal()):
            raise Unread
        reading.is_repeated = True
        reading.months.add(int(month))
        reading.dates.add(str(int(day)))
        return
    now = reading.now
    found = lexicon.day_of(rule, year or now.year)
    if year is None and found < now.date():
        found = lexicon.day_of(rule, now.year + 1)
    one_date(reading, now.replace(year=found.year, month=found.month, day=found.day))


def of_month(reading: TimeReading, match: Match) -> None:
    """First Monday, last weekday, last day of the month; first and third Monday; the 3rd Friday of next month."""
    for number in nths(match):
        if match.has("weekday") or match.has("weekdays"):
            day = weekday(match)
            reading.ordinals.add(f"{day}L" if number == -1 else f"{day}#{number}")
        elif match.has("workday"):
            if number != -1:
                raise Unread  # no cron line says "the first weekday"
            reading.dates.add("LW")
        else:
            reading.dates.add("L" if number == -1 else str(number))
    if match.has("month"):
        reading.months.add(int(match.get("month")))
        reading.is_repeated |= match.has("every")
        return
    if match.has("next") or match.has("this"):
        next_unit(reading, match) if match.has("next") else this_unit(reading, match)
        return
    reading.is_repeated = True


def of_every_month(reading: TimeReading, match: Match) -> None:
    """Every month on a day that was said; Unread where none was: it is no day by itself."""
    if not (reading.dates or reading.ordinals or reading.days):
        raise Unread
    reading.is_repeated = True


def nths(match: Match) -> list[int]:
    return [int(token.kinds["nth"]) for token in match.tokens[match.start : match.end] if "nth" in token.kinds]


def nth_days(reading: TimeReading, match: Match) -> None:
    """On the 15th, on the 1st and the 15th: of this month or the next, or of every month."""
    for number in nths(match):
        if not 1 <= number <= 31:
            raise Unread
        reading.dates.add(str(number))
    if match.has("every") and match.has("month"):
        reading.months.add(int(match.get("month")))
    if match.has("next"):
        next_unit(reading, match)
    elif match.has("this"):
        this_unit(reading, match)
    elif match.has("every") or match.has("unit"):
        reading.is_repeated = True


def months(reading: TimeReading, match: Match) -> None:
    if match.has("every") and reading.step is None:
        reading.step = (1, "year")
    months = [int(month) for month in match.all("month")]
    if match.has("until") or match.has("dash"):
        first, last = months
        reading.months |= {(first + i - 1) % 12 + 1 for i in range((last - first) % 12 + 1)}
    else:
        reading.months |= set(months)


def past_every_hour(reading: TimeReading, match: Match) -> None:
    minute = (
        30 if match.has("half") else 15 if match.has("quarter") else 0 if match.has("on_the_hour") else int(match.get("number"))
    )
    reading.minute = 60 - minute if match.has("to") else minute
    if reading.minute > 59:
        raise Unread
    reading.is_repeated = True
    reading.step = reading.step or (1, "hour")


def zone(reading: TimeReading, match: Match) -> None:
    name = match.get("zone")
    if reading.zone or not timezones.is_known(name):
        raise Unread
    reading.zone = name


def shift(reading: TimeReading, match: Match) -> None:
    """Two days before, an hour later: of what is said around it."""
    seconds, months = match.get("length") or one_unit(match.get("unit") or "day")
    sign = -1 if match.has("before") or match.has("earlier") else 1
    if reading.shift is not None:
        raise Unread
    reading.shift = (sign * seconds, sign * months)
    for kind in ("part", "in_part"):
        if match.has(kind):
            note_part(reading, match.get(kind))


def that_day(reading: TimeReading, match: Match) -> None:
    """The day that is said around it."""
    if reading.shift is not None:
        raise Unread
    reading.shift = (0.0, 0)


def eve(reading: TimeReading, match: Match) -> None:
    """The day before what is said around it, or the evening."""
    if reading.shift is not None:
        raise Unread
    reading.shift = (-86_400, 0)
    if match.get("eve") != "day":
        note_part(reading, match.get("eve"))


def one_unit(unit: str | None) -> tuple[float, int]:
    if unit in ("day", "night", None):
        return 86_400, 0
    if unit == "week":
        return 7 * 86_400, 0
    raise Unread


def next_day(now: datetime, day: int) -> datetime:
    """The next such day of the week after today."""
    return now + timedelta(days=(day - now.isoweekday() % 7 - 1) % 7 + 1)


def moved(day: datetime, seconds: float, months: int) -> datetime:
    """So much later, months first; the last day of a month that is shorter."""
    return recurrence.months_later(day, months) + timedelta(seconds=seconds)


def one_date(reading: TimeReading, date: datetime) -> None:
    if reading.date is not None and reading.date.date() != date.date():
        raise Unread
    reading.date = date
