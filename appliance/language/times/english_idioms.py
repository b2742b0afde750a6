"""The words of English about time: each idiom as a pattern, and what it says.

`parse` takes a text apart from left to right; a word that no idiom knows, or one that contradicts another, is
`Unread`. What comes out says nothing yet about when: `language.times.english_rules` makes a rule of it. The order of the idioms
matters: longer ones first.
"""

import functools
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from appliance.errors import BadInput
from appliance.language.times import english_times, timezones
from appliance.language.times.english_times import CLOCK, DAY, MONTH, MONTHS, PART, TIME, UNIT, Time, Unread

PER_DAY = {2: (9, 18), 3: (8, 13, 18), 4: (8, 12, 16, 20)}
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WORKDAYS, WEEKEND = frozenset({1, 2, 3, 4, 5}), frozenset({0, 6})
ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1, "other": 2}
ORDINAL = r"(?:first|second|third|fourth|fifth|last|[1-5](?:st|nd|rd|th))"
ADVERBS = {"hourly": (1, "hours"), "daily": (1, "days"), "nightly": (1, "days"), "weekly": (1, "weeks"), "monthly": (1, "months")}
ADVERBS |= {"yearly": (1, "years"), "annually": (1, "years"), "quarterly": (3, "months"), "bimonthly": (2, "months")}
ADVERBS |= {"fortnightly": (1, "fortnight"), "biweekly": (1, "fortnight")}
SECONDS = {"s": 1, "mi": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "f": 14 * 86_400}
SPAN = rf"(?:\d+(?:\.5)?) {UNIT}(?:(?: and|,)? \d+ {UNIT})*"
BOUND = english_times.BOUND
HOUR = rf"(?:{CLOCK}|noon|midnight|\d{{1,2}})(?![\d:])"


@dataclass
class Reading:
    """What the words of a text have said so far."""

    now: datetime
    times: list[Time] = field(default_factory=list)
    days: set[int] = field(default_factory=set)
    ordinals: set[str] = field(default_factory=set)  # of days of the week in a month: 1#2, 5L
    dates: set[str] = field(default_factory=set)  # days of the month: 15, L, LW
    months: set[int] = field(default_factory=set)
    step: tuple[int, str] | None = None  # every so many units
    window: tuple[int, int] | None = None  # minutes since midnight; the end may be on the next day
    anchor: int | None = None  # a minute of the day that is counted from
    span_s: int | None = None  # in so long
    span_months: int = 0
    date: datetime | None = None  # one day
    month_day: tuple[int, int] | None = None  # the same without its year
    minute: int | None = None  # past every hour
    part: str = ""  # of the day, which also says what "at 7" means
    is_repeated: bool = False
    is_once: bool = False
    is_today: bool = False
    zone: str = ""
    order: str = field(default="", compare=False)  # in which times (T) and days (D) were said


# -- words ------------------------------------------------------------------------------------------

Handler = Callable[[Reading, "re.Match[str]"], None]


def _make_handler(days: frozenset[int] = frozenset(), **facts: bool) -> Handler:
    """A handler for words that always say the same: these days of the week and these facts, or nothing about when."""

    def note(reading: Reading, found: "re.Match[str]") -> None:
        reading.days |= days
        vars(reading).update(facts)

    return note


def _set_step(reading: Reading, count: int, unit: str) -> None:
    if reading.step is not None or count < 1:
        raise Unread
    reading.step, reading.is_repeated = (count, _unit_letter(unit)), True


def _every_units(reading: Reading, found: "re.Match[str]") -> None:
    count = float(found["count"])
    unit = found["unit"]
    if count != int(count):
        if _unit_letter(unit) != "h":
            raise Unread
        count, unit = count * 60, "minutes"
    _set_step(reading, int(count), unit)


def _every_span(reading: Reading, found: "re.Match[str]") -> None:
    """Every 2 hours and 30 minutes."""
    total = 0
    for count, unit in re.findall(rf"(\d+) ({UNIT})", found["span"]):
        if (kind := _unit_letter(unit)) not in ("s", "mi", "h"):
            raise Unread
        total += int(count) * SECONDS[kind]
    _set_step(reading, total, "seconds")


def _every_unit(reading: Reading, found: "re.Match[str]") -> None:
    _set_step(reading, 1, found["unit"])


def _parse_ordinal(word: str) -> int:
    """Which one: 2 for other, second and 2nd, -1 for last."""
    return ORDINALS.get(word) or int(re.sub(r"\D", "", word))


def _other_unit(reading: Reading, found: "re.Match[str]") -> None:
    if (count := _parse_ordinal(found["ordinal"])) < 2:
        raise Unread
    _set_step(reading, count, found["unit"])


def _other_day(reading: Reading, found: "re.Match[str]") -> None:
    """Every other Tuesday."""
    if (count := _parse_ordinal(found["ordinal"])) < 2:
        raise Unread
    _set_step(reading, count, "weeks")
    reading.days.add(_day_index(found["day"]))


def _read_adverb(reading: Reading, found: "re.Match[str]") -> None:
    word = re.sub(r"[ -]", "", found[0])
    if word == "nightly":
        _read_part(reading, "night")
    _set_step(reading, *ADVERBS[word])


def _per_day(reading: Reading, found: "re.Match[str]") -> None:
    count = {"once": 1, "twice": 2}.get(found["count"]) or int(found["count"].split()[0])
    unit = _unit_letter(found["unit"])
    if unit == "d" and count in PER_DAY and not reading.times:
        reading.times += [Time(hour, 0, "24") for hour in PER_DAY[count]]
        _set_step(reading, 1, "day")
    elif count == 1:
        _set_step(reading, 1, found["unit"])
    elif unit == "h" and count and 60 % count == 0:
        _set_step(reading, 60 // count, "minutes")
    else:
        raise Unread


def _this_weekend(reading: Reading, found: "re.Match[str]") -> None:
    """Saturday, or what is left of it."""
    now = reading.now
    is_late = now.isoweekday() == 6 and now.hour >= english_times.MORNING_H
    _one_date(reading, next_day(now, 0) if is_late else now if now.isoweekday() in (6, 7) else next_day(now, 6))


def _day_range(reading: Reading, found: "re.Match[str]") -> None:
    first, last = _day_index(found["first"]), _day_index(found["last"])
    reading.is_repeated = True
    reading.days |= {(first + i) % 7 for i in range((last - first) % 7 + 1)}


def _read_days(reading: Reading, found: "re.Match[str]") -> None:
    """Mondays: again and again."""
    reading.is_repeated = True
    reading.days.add(_day_index(found["day"]))


def _one_day(reading: Reading, found: "re.Match[str]") -> None:
    """Monday: in a list of days, or the next one."""
    reading.days.add(_day_index(found["day"]))


def _next_weekday(reading: Reading, found: "re.Match[str]") -> None:
    day = next_day(reading.now, _day_index(found["day"]))
    is_this_week = day.isocalendar()[:2] == reading.now.isocalendar()[:2]
    _one_date(reading, day + timedelta(days=7) if found["which"] == "next" and is_this_week else day)


def _part_of(reading: Reading, found: "re.Match[str]") -> None:
    _read_part(reading, found["part"])


def _every_part(reading: Reading, found: "re.Match[str]") -> None:
    reading.is_repeated = True
    _read_part(reading, found["part"].rstrip("s") if found["part"] != "s" else "")


def _read_part(reading: Reading, part: str) -> None:
    if reading.part and reading.part != part:
        raise Unread
    reading.part = part


def _read_time(reading: Reading, found: "re.Match[str]") -> None:
    reading.times.append(english_times.clock(found["time"]))


def _bare_hour(reading: Reading, found: "re.Match[str]") -> None:
    """At 7, which a part of the day may make 19:00."""
    reading.times.append(english_times.bare(int(found["hour"])))


def _more_times(reading: Reading, found: "re.Match[str]") -> None:
    """And 5, after a time."""
    if not reading.times:
        raise Unread
    _bare_hour(reading, found)


def _read_window(reading: Reading, found: "re.Match[str]") -> None:
    """From one time of day to another; over midnight where both say in which half of the day they are."""
    if reading.window is not None:
        raise Unread
    first, last = english_times.bound(found["first"]), english_times.bound(found["last"])
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


def _read_anchor(reading: Reading, found: "re.Match[str]") -> None:
    """Starting at 8am."""
    if reading.anchor is not None:
        raise Unread
    time = english_times.bound(found["time"].strip())
    reading.anchor = time.hour * 60 + time.minute


def _office_hours(reading: Reading, found: "re.Match[str]") -> None:
    if reading.window is not None:
        raise Unread
    reading.window = (9 * 60, 17 * 60)
    reading.days = reading.days or {1, 2, 3, 4, 5}
    reading.is_repeated = True


def _in_span(reading: Reading, found: "re.Match[str]") -> None:
    if reading.span_s is not None:
        raise Unread
    total = 0.0
    for count, unit in re.findall(rf"(\d+(?:\.5)?) ({UNIT})", found["span"]):
        kind = _unit_letter(unit)
        if kind in ("mo", "y"):
            reading.span_months += int(float(count)) * (12 if kind == "y" else 1)
        else:
            total += float(count) * SECONDS[kind]
    reading.span_s = int(total)


def _relative_day(reading: Reading, found: "re.Match[str]") -> None:
    word = found[0]
    days = {"today": 0, "tonight": 0, "tomorrow": 1}.get(word.split()[-1], 0)
    if "after tomorrow" in word:
        days = 2
    if word.endswith("tonight"):
        _read_part(reading, "night")
    reading.is_today = days == 0
    _one_date(reading, reading.now + timedelta(days=days))


def _this_part(reading: Reading, found: "re.Match[str]") -> None:
    _read_part(reading, found["part"])
    reading.is_today = True
    _one_date(reading, reading.now)


def _next_unit(reading: Reading, found: "re.Match[str]") -> None:
    now = reading.now
    if found["unit"] == "week":
        _one_date(reading, now + timedelta(days=7 - now.weekday()))
    elif found["unit"] == "month":
        _one_date(reading, (now.replace(day=1) + timedelta(days=32)).replace(day=1))
    else:
        _one_date(reading, now.replace(year=now.year + 1, month=1, day=1))


def _end_of(reading: Reading, found: "re.Match[str]") -> None:
    """The end of the month."""
    if reading.is_repeated or found["every"]:
        reading.is_repeated = True
        reading.dates.add("L")
        return
    _one_date(reading, (reading.now.replace(day=1) + timedelta(days=32)).replace(day=1) - timedelta(days=1))


def _month_date(reading: Reading, found: "re.Match[str]") -> None:
    """3 December, December 24th, each year where it repeats."""
    month, day = MONTHS.index(found["month"][:3]) + 1, int(re.sub(r"\D", "", found["day"]))
    if re.match(r"every|each", found[0]):
        reading.is_repeated = True
    _read_date(reading, day, month, found["year"])


def _numeric_date(reading: Reading, found: "re.Match[str]") -> None:
    """24.12. and 24.12.2026."""
    _read_date(reading, int(found["day"]), int(found["month"]), found["year"])


def _slash_date(reading: Reading, found: "re.Match[str]") -> None:
    """12/24 and 24/12; which of 5/6 is the month nobody can know."""
    first, second = int(found["first"]), int(found["second"])
    if first <= 12 and second <= 12 and first != second:
        raise BadInput(f"{found[0]!r} may be two days", hint="write the month's name, or YYYY-MM-DD")
    day, month = (first, second) if second <= 12 else (second, first)
    _read_date(reading, day, month, found["year"])


def _read_date(reading: Reading, day: int, month: int, said_year: str | None) -> None:
    """A day of a month, of each year where it repeats, else the next one."""
    if not 1 <= month <= 12:
        raise Unread
    if reading.is_repeated or (reading.step or (0, ""))[1] == "y":
        reading.is_repeated = True
        if reading.months and reading.months != {month}:
            raise Unread
        reading.months.add(month)
        reading.dates.add(str(day))
        return
    this = reading.now.year
    for year in [int(said_year)] if said_year else range(this, this + 9):  # 29 February comes at least every eight
        with suppress(ValueError):
            date = reading.now.replace(year=year, month=month, day=day)
            if said_year or date.date() >= reading.now.date():
                reading.month_day = None if said_year else (month, day)
                _one_date(reading, date)
                return
    raise Unread


def _iso_date(reading: Reading, found: "re.Match[str]") -> None:
    try:
        _one_date(reading, reading.now.replace(year=int(found["year"]), month=int(found["month"]), day=int(found["day"])))
    except ValueError:
        raise Unread from None


def _of_month(reading: Reading, found: "re.Match[str]") -> None:
    """First Monday, last weekday, last day of the month; first and third Monday: the first, whose day comes with the third."""
    reading.is_repeated = True
    number, what = _parse_ordinal(found["ordinal"]), found["day"]
    if re.fullmatch(DAY, what):
        day = _day_index(what)
        reading.ordinals.add(f"{day}L" if number == -1 else f"{day}#{number}")
    elif what == "day":
        reading.dates.add("L" if number == -1 else str(number))
    elif number == -1:
        reading.dates.add("LW")
    else:
        raise Unread  # no cron line says "the first weekday"


def _day_of_month(reading: Reading, found: "re.Match[str]") -> None:
    _bare_date(reading, found)
    reading.is_repeated = True


def _bare_date(reading: Reading, found: "re.Match[str]") -> None:
    """On the 15th: of this month or the next, or of every month."""
    day = int(re.sub(r"\D", "", found["date"]))
    if not 1 <= day <= 31:
        raise Unread
    reading.dates.add(str(day))


def _read_month(reading: Reading, found: "re.Match[str]") -> None:
    if re.match(r"every|each", found[0]) and reading.step is None:
        reading.step = (1, "y")
    reading.months.add(MONTHS.index(found["month"][:3]) + 1)


def _month_range(reading: Reading, found: "re.Match[str]") -> None:
    first, last = (MONTHS.index(found[name][:3]) for name in ("first", "last"))
    reading.months |= {(first + i) % 12 + 1 for i in range((last - first) % 12 + 1)}


def _read_minute(reading: Reading, found: "re.Match[str]") -> None:
    word = found["minute"]
    minute = {"on": 0, "half": 30, "quarter": 15, "quarter to": 45}.get(word)
    reading.minute = int(word) if minute is None else minute
    if reading.minute > 59:
        raise Unread
    reading.is_repeated = True
    reading.step = reading.step or (1, "h")


def _read_zone(reading: Reading, found: "re.Match[str]") -> None:
    name = {"utc": "UTC", "gmt": "UTC"}.get(found["zone"], found["zone"])
    name = "/".join("_".join(w.capitalize() for w in part.split("_")) for part in name.split("/")) if "/" in name else name
    if reading.zone or not timezones.is_known(name):
        raise Unread
    reading.zone = name


JOIN = r"(?:,? and |, ?| & |,? or )"
# In this order: what is longer, and says more, first.
WORDS: tuple[tuple[str, Handler], ...] = (
    (r"(?:please|sharp|exactly|then|again|local time|as well)", _make_handler()),
    (r"(?:just |only )?(?:once|one time)(?= (?:on|at|in|tomorrow|today|next|this)\b|$)", _make_handler(is_once=True)),
    (r"(?P<zone>utc|gmt|[a-z]+/[a-z_]+(?:/[a-z_]+)?)(?: time)?", _read_zone),
    (r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?P<t>t(?=\d))?", _iso_date),
    (r"(?:on )?(?P<year>20\d\d)/(?P<month>\d{1,2})/(?P<day>\d{1,2})", _iso_date),
    (r"(?:on )?(?P<first>\d{1,2})/(?P<second>\d{1,2})(?:/(?P<year>20\d\d))?", _slash_date),
    (rf"(?:in|after) (?P<span>{SPAN})(?: from now)?(?: time)?", _in_span),
    (rf"(?P<span>{SPAN}) from now", _in_span),
    (r"(?P<count>once|twice|\d+ times|1) (?:an? |per |each |every )(?:1 )?(?P<unit>day|hour|week|month|year)", _per_day),
    (r"(?:every |each )?(?P<minute>on) the hour(?: every hour)?", _read_minute),
    (r"(?:at )?(?P<minute>\d{1,2}) (?:minutes )?past (?:the|every|each) hour", _read_minute),
    (r"(?:at )?(?P<minute>half|quarter to|quarter) past (?:the|every|each) hour", _read_minute),
    (r"(?:every hour |hourly )at (?:minute |:)(?P<minute>\d{1,2})", _read_minute),
    (r"at (?:minute |:)(?P<minute>\d{2})(?: of every hour)?", _read_minute),
    (rf"(?:every|each) (?P<span>\d+ {UNIT}(?:(?: and|,)? \d+ {UNIT})+)", _every_span),
    (rf"(?:every|each) (?P<count>\d+(?:\.5)?)(?:-| )?(?P<unit>{UNIT})", _every_units),
    (rf"(?:starting|beginning)(?: at| from)? (?P<time>{HOUR})", _read_anchor),
    (rf"from (?P<time>{HOUR})(?: on)?(?! ?(?:-|and\b|to\b|un?till?\b|through\b))", _read_anchor),
    (r"(?:on )?(?P<day>\d{1,2})\.(?P<month>1[0-2]|0?[1-9])(?:\.(?P<year>20\d\d)?)?(?! ?[ap]m)", _numeric_date),
    (
        r"(?:every|each|on) ?(?P<ordinal>other|second|third|fourth|[2-9](?:nd|rd|th)) "
        r"(?P<unit>(?:minute|hour|day|week|month|year)s?)(?! of)",
        _other_unit,
    ),
    (rf"(?:every|each) (?P<ordinal>other) (?P<day>{DAY})s?", _other_day),
    (
        rf"(?:every|each) (?P<ordinal>second|third|fourth|2nd|3rd|4th) (?P<day>{DAY})(?! (?:of|in|each|every|monthly)\b)",
        _other_day,
    ),
    (rf"(?P<day>{DAY})s? every (?P<ordinal>other|second|third) week", _other_day),
    (
        rf"(?:on |every |each )*(?:the )?(?P<ordinal>{ORDINAL})(?={JOIN}(?:the )?{ORDINAL} (?P<day>{DAY}))",
        _of_month,
    ),
    (
        rf"(?:on |at |every |each )*(?:the )?(?:very )?(?P<ordinal>{ORDINAL}) "
        rf"(?P<day>{DAY}|day|weekday|working day|work ?day|business day)s?"
        rf"(?: (?:of|in) (?:the|each|every|a|1) month| of the month| each month| every month| monthly| of(?= {MONTH}))?",
        _of_month,
    ),
    (r"(?:at |on )?(?:the )?(?P<every>)end of (?:the|this) month", _end_of),
    (r"(?:at |on )?(?:the )?(?P<every>end) of (?:each|every) month", _end_of),
    (
        r"(?:of|in) (?:the|each|every) month|(?:each|every) month(?= (?:on|at) the (?:first|last|\d))",
        _make_handler(is_repeated=True),
    ),
    (
        r"(?:every |each |on |all )*(?:weekdays?|work(?:ing)? ?days?|business days?)",
        _make_handler(WORKDAYS, is_repeated=True),
    ),
    (r"(?:this|the coming) weekend|on the weekend(?=$| at)", _this_weekend),
    (r"(?:every |each |on |at |the |all )*weekends?", _make_handler(WEEKEND, is_repeated=True)),
    (r"(?:during|in|within) (?:the )?(?:working|work|office|business) hours", _office_hours),
    (r"(?:every |on |at )*(?:the )?(?P<date>\d{1,2}(?:st|nd|rd|th)?) (?:day )?(?:of|in) (?:the|each|every|1) month", _day_of_month),
    (
        rf"(?:on |the |every |each )*(?P<day>\d{{1,2}}(?:st|nd|rd|th)?) (?:of )?(?P<month>{MONTH})\.?"
        r"(?:,? (?P<year>20\d\d))?(?! ?(?:-|to|through) )",
        _month_date,
    ),
    (
        rf"(?:on |the |every |each )*(?P<month>{MONTH})\.? (?:the )?(?P<day>\d{{1,2}}(?:st|nd|rd|th)?)"
        r"(?!\d|[:h.]\d| ?[ap]m)(?:,? (?P<year>20\d\d))?",
        _month_date,
    ),
    (r"(?:on )?(?:day (?P<date>\d{1,2}))", _day_of_month),
    (rf"(?:on |from |every |each )*(?P<first>{DAY})s? ?(?:-|to|through|thru|until) ?(?P<last>{DAY})s?", _day_range),
    (rf"(?:on )?(?P<which>next|this|the coming|coming) (?P<day>{DAY})", _next_weekday),
    (rf"(?:every |each )+(?P<day>{DAY})s?", _read_days),
    (rf"(?:on )?(?P<day>{DAY}s)", _read_days),
    (rf"(?:on )?(?P<day>{DAY})(?= (?P<part>morning|afternoon|evening|night)s)", _read_days),
    (rf"(?:on )?(?P<day>{DAY})", _one_day),
    (r"the day after tomorrow|day after tomorrow|(?:later )?(?:today|tonight|tomorrow)", _relative_day),
    (rf"(?:this|later this) (?P<part>{PART})", _this_part),
    (r"(?:early |first thing )?next (?P<unit>week|month|year)", _next_unit),
    (rf"(?:in |during )?(?P<first>{MONTH})(?: to | through | ?- ?)(?P<last>{MONTH})", _month_range),
    (rf"(?:(?:in|every|each|during) )?(?P<month>{MONTH})", _read_month),
    (
        rf"(?:between|from)(?: the hours of)? (?P<first>{BOUND}) ?(?:and|to|until|till|-|through) ?(?P<last>{BOUND})",
        _read_window,
    ),
    (rf"(?P<first>{BOUND}) ?(?:-|to|until|till) ?(?P<last>{BOUND})", _read_window),
    (rf"(?:every|each) (?P<part>{PART})s?", _every_part),
    (rf"(?:at |by |around |about |@ ?)*(?P<time>{TIME})", _read_time),
    (rf"(?:first thing )?(?:in the|at|on the|for|over|during the|of the|the) (?P<part>{PART})", _part_of),
    (r"(?:in the |on |at )?(?P<part>(?:morning|afternoon|evening|night)s)", _every_part),
    (rf"(?P<part>{PART})", _part_of),
    (r"every quarter", lambda reading, found: _set_step(reading, 3, "months")),
    (r"every(?: 1)? (?:single )?(?P<unit>minute|hour|day|week|fortnight|month|year)", _every_unit),
    (r"each(?: 1)? (?:and every )?(?P<unit>minute|hour|day|week|month|year)", _every_unit),
    (r"hourly|daily|weekly|monthly|yearly|annually|fortnightly|bi-?weekly|bi-?monthly|nightly|quarterly", _read_adverb),
    (r"(?:every|each)(?= (?:the )?\d{1,2}(?:st|nd|rd|th))", _make_handler(is_repeated=True)),
    (r"(?:on )?(?:the )?(?P<date>\d{1,2}(?:st|nd|rd|th))", _bare_date),
    (r"(?:at|@) ?(?P<hour>\d{1,2})(?![\d:.])", _bare_hour),
    (r"(?P<hour>\d{1,2})(?![\d:.])", _more_times),
    (r"and(?: on| at| in)?|,|&|or|on|at", _make_handler()),
)


@functools.cache
def _patterns() -> "tuple[tuple[re.Pattern[str], Handler], ...]":
    """The idioms, compiled when the first time is read: 12 ms that a start does not need."""
    return tuple((re.compile(rf"(?:{pattern})(?=$|[ ,&-]|(?<=\dt)\d)"), handler) for pattern, handler in WORDS)


def parse(plain: str, now_ms: int, zone: str) -> Reading:
    reading = Reading(datetime.fromtimestamp(now_ms / 1000, timezones.find(zone)).replace(tzinfo=None))
    place = 0
    while place < len(plain):
        if plain[place] == " ":
            place += 1
            continue
        for pattern, handler in _patterns():
            if found := pattern.match(plain, place):
                before = _count_said(reading)
                handler(reading, found)
                reading.order = _order_after(reading, before)
                place = found.end()
                break
        else:
            raise Unread
    if len(reading.order) > 3:
        raise Unread  # Mondays at 9 and Fridays at 10: which belongs to which only the halves say
    return reading


def _count_said(reading: Reading) -> tuple[object, object]:
    days = (len(reading.days), len(reading.dates), len(reading.ordinals), reading.date)
    return (len(reading.times), reading.part, reading.window), days


def _order_after(reading: Reading, before: tuple[object, object]) -> str:
    """The order in which times and days were said, with one more of them."""
    order = reading.order
    for letter, was, now in zip("TD", before, _count_said(reading), strict=True):
        if was != now and not order.endswith(letter):
            order += letter
    return order


# -- pieces -----------------------------------------------------------------------------------------


def _unit_letter(word: str) -> str:
    return word[:2] if word[:2] in ("mi", "mo") else word[0]


def _day_index(word: str) -> int:
    return DAYS.index(word[:3])


def next_day(now: datetime, day: int) -> datetime:
    """The next such day of the week after today."""
    return now + timedelta(days=(day - now.isoweekday() % 7 - 1) % 7 + 1)


def _one_date(reading: Reading, date: datetime) -> None:
    if reading.date is not None and reading.date.date() != date.date():
        raise Unread
    reading.date = date
