"""The words of English about time: each idiom as a pattern, and what it says.

`parse` takes a text apart from left to right; a word that no idiom knows, or one that contradicts another, is `Unread`.
What comes out says nothing yet about when: `phrases` makes a rule of it. The order of the idioms matters: longer ones first.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from appliance import zones

MORNING_H = 9
DAYPARTS = {"morning": (8, 0), "noon": (12, 0), "midday": (12, 0), "lunchtime": (12, 0), "afternoon": (14, 0), "evening": (18, 0)}
DAYPARTS |= {"night": (21, 0), "midnight": (0, 0), "dawn": (6, 0), "breakfast": (8, 0), "lunch": (12, 0), "dinner": (18, 0)}
PER_DAY = {2: ((9, 0), (18, 0)), 3: ((8, 0), (13, 0), (18, 0)), 4: ((8, 0), (12, 0), (16, 0), (20, 0))}
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DAY = r"(?:sun|mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?)(?:day)?"
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1, "other": 2}
ORDINAL = r"(?:first|second|third|fourth|fifth|last|[1-5](?:st|nd|rd|th))"
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
TENS = {"fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90}
UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|h|days?|weeks?|fortnights?|months?|years?)"
SECONDS = {"s": 1, "mi": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "f": 14 * 86_400}
SPAN = rf"(?:\d+(?:\.5)?) {UNIT}(?:(?: and|,)? \d+ {UNIT})*"
CLOCK = r"(?:\d{1,2}(?:[:.h]\d{2})? ?(?:am|pm)|\d{1,2}[:h]\d{2}|\d{1,2} o'clock)"
PART = "|".join(DAYPARTS)
PAST = r"(?:half past|quarter past|quarter to|(?:five|ten|twenty|\d{1,2})(?: minutes)? (?:past|to)) \d{1,2}(?: ?[ap]m)?"
TIME = rf"(?:{CLOCK}|{PAST}|noon|midday|midnight)"
BOUND = rf"(?:{TIME}|\d{{1,2}})"


@dataclass
class Reading:
    """What the words of a text have said so far."""

    now: datetime
    times: list[tuple[int, int]] = field(default_factory=list)
    days: set[int] = field(default_factory=set)
    ordinals: set[str] = field(default_factory=set)  # of days of the week in a month: 1#2, 5L
    dates: set[str] = field(default_factory=set)  # days of the month: 15, L, LW
    months: set[int] = field(default_factory=set)
    step: tuple[int, str] | None = None  # every so many units
    window: tuple[tuple[int, int], tuple[int, int]] | None = None
    span_s: int | None = None  # in so long
    span_months: int = 0
    date: datetime | None = None  # one day
    minute: int | None = None  # past every hour
    part: str = ""  # of the day, which also says what "at 7" means
    is_repeated: bool = False
    zone: str = ""


class Unread(Exception):
    """This text is no rule."""


# -- words ------------------------------------------------------------------------------------------


def normal(said: str) -> str:
    """A text in the few forms that the patterns know: small letters, numbers as digits."""
    plain = f" {said.lower()} ".replace("’", "'").replace("–", "-").replace("—", "-")
    plain = re.sub(r"\b([ap])\. ?m\.?(?=[ ,;)])", r"\1m", plain)
    plain = re.sub(r"[.!?;]+ *$", " ", plain)
    plain = re.sub(r"\bhalf (?:an )?hour(?:ly)?\b", "30 minutes", plain)
    plain = re.sub(r"\b(?:a )?quarter of an hour\b|\bquarter hour\b", "15 minutes", plain)
    plain = re.sub(r"\b(?:an? |the )?couple (?:of )?", "2 ", plain)
    plain = re.sub(r"\b(?:an|a|one) hour and a half\b|\bone and a half hours\b|\b1 and a half hours\b", "90 minutes", plain)
    plain = re.sub(r"\ba dozen\b", "12", plain)
    plain = re.sub(rf"\b({'|'.join(TENS)})\b", lambda m: str(TENS[m[1]]), plain)
    plain = re.sub(rf"\b({'|'.join(NUMBERS)})\b", lambda m: str(NUMBERS.index(m[1])), plain)
    plain = re.sub(rf"\b(in|after|for|every|each|per) an? (?={UNIT}\b)", r"\1 1 ", plain)
    plain = re.sub(rf"\ban? ({UNIT}) from\b", r"1 \1 from", plain)
    plain = re.sub(r"\bonce (?:every )?(?=(?:an?|per|each|every) |\d)", lambda m: "every " if "every" in m[0] else "once ", plain)
    plain = re.sub(r"(\d)(min|mins|minutes|hrs?|h|hours|days?|weeks|secs?|seconds|months)\b(?!\d)", r"\1 \2", plain)
    return " ".join(plain.split()).strip(" ,")


Handler = Callable[[Reading, "re.Match[str]"], None]


def _repeat(reading: Reading, found: "re.Match[str]") -> None:
    reading.is_repeated = True


def _skip(reading: Reading, found: "re.Match[str]") -> None:
    """A word that says nothing about when."""


def _set_step(reading: Reading, count: int, unit: str) -> None:
    if reading.step is not None or count < 1:
        raise Unread
    reading.step, reading.is_repeated = (count, _unit(unit)), True


def _every_units(reading: Reading, found: "re.Match[str]") -> None:
    count = float(found["count"])
    unit = found["unit"]
    if count != int(count):
        if _unit(unit) != "h":
            raise Unread
        count, unit = count * 60, "minutes"
    _set_step(reading, int(count), unit)


def _every_unit(reading: Reading, found: "re.Match[str]") -> None:
    _set_step(reading, 1, found["unit"])


def _other_unit(reading: Reading, found: "re.Match[str]") -> None:
    word = found["ordinal"]
    count = ORDINALS.get(word) or int(re.sub(r"\D", "", word))
    if count < 2:
        raise Unread
    _set_step(reading, count, found["unit"])


def _other_day(reading: Reading, found: "re.Match[str]") -> None:
    """Every other Tuesday."""
    word = found["ordinal"]
    count = ORDINALS.get(word) or int(re.sub(r"\D", "", word))
    if count < 2 or reading.step is not None:
        raise Unread
    reading.step, reading.is_repeated = (count, "w"), True
    reading.days |= {_day(found["day"])}


def _adverb(reading: Reading, found: "re.Match[str]") -> None:
    word = re.sub(r"[ -]", "", found[0])
    unit = {"hourly": "h", "daily": "d", "weekly": "w", "monthly": "mo", "yearly": "y", "annually": "y", "fortnightly": "f"}
    unit |= {"biweekly": "f", "nightly": "d", "quarterly": "q", "bimonthly": "b"}
    if word == "nightly":
        _part(reading, "night")
    if word in ("quarterly", "bimonthly"):
        _set_step(reading, 3 if word == "quarterly" else 2, "months")
    else:
        _set_step(reading, 1, {"h": "hours", "d": "days", "w": "weeks", "mo": "months", "y": "years", "f": "fortnight"}[unit[word]])


def _per_day(reading: Reading, found: "re.Match[str]") -> None:
    count = {"once": 1, "twice": 2}.get(found["count"]) or int(found["count"].split()[0])
    unit = _unit(found["unit"])
    if unit == "d" and count in PER_DAY and not reading.times:
        reading.times += PER_DAY[count]
        _set_step(reading, 1, "day")
    elif count == 1:
        _set_step(reading, 1, found["unit"])
    elif unit == "h" and count and 60 % count == 0:
        _set_step(reading, 60 // count, "minutes")
    else:
        raise Unread


def _weekdays(reading: Reading, found: "re.Match[str]") -> None:
    reading.is_repeated = True
    reading.days |= {1, 2, 3, 4, 5}


def _weekend(reading: Reading, found: "re.Match[str]") -> None:
    reading.is_repeated = True
    reading.days |= {0, 6}


def _this_weekend(reading: Reading, found: "re.Match[str]") -> None:
    _one_date(reading, next_day(reading.now, 6))


def _day_range(reading: Reading, found: "re.Match[str]") -> None:
    first, last = _day(found["first"]), _day(found["last"])
    reading.is_repeated = True
    reading.days |= {(first + i) % 7 for i in range((last - first) % 7 + 1)}


def _days(reading: Reading, found: "re.Match[str]") -> None:
    """Mondays: again and again."""
    reading.is_repeated = True
    reading.days.add(_day(found["day"]))


def _one_day(reading: Reading, found: "re.Match[str]") -> None:
    """Monday: in a list of days, or the next one."""
    reading.days.add(_day(found["day"]))


def _next_weekday(reading: Reading, found: "re.Match[str]") -> None:
    day = next_day(reading.now, _day(found["day"]))
    is_this_week = day.isocalendar()[:2] == reading.now.isocalendar()[:2]
    _one_date(reading, day + timedelta(days=7) if found["which"] == "next" and is_this_week else day)


def _part_of(reading: Reading, found: "re.Match[str]") -> None:
    _part(reading, found["part"])


def _every_part(reading: Reading, found: "re.Match[str]") -> None:
    reading.is_repeated = True
    _part(reading, found["part"].rstrip("s") if found["part"] != "s" else "")


def _part(reading: Reading, part: str) -> None:
    if reading.part and reading.part != part:
        raise Unread
    reading.part = part


def _time(reading: Reading, found: "re.Match[str]") -> None:
    reading.times.append(_clock(found["time"]))


def _bare_hour(reading: Reading, found: "re.Match[str]") -> None:
    """At 7, which a part of the day may make 19:00."""
    hour = int(found["hour"])
    if hour > 24:
        raise Unread
    reading.times.append((hour % 24, -1))


def _more_times(reading: Reading, found: "re.Match[str]") -> None:
    """And 5, after a time."""
    if not reading.times:
        raise Unread
    _bare_hour(reading, found)


def _window(reading: Reading, found: "re.Match[str]") -> None:
    if reading.window is not None:
        raise Unread
    first, last = _bound(found["first"]), _bound(found["last"])
    if found["first"].isdigit() and found["last"].endswith("pm") and (first[0] + 12, 0) < last:
        first = (first[0] + 12, 0)  # from 2 to 4pm
    if last < first and found["first"].rstrip("am ").isdigit() and found["last"].isdigit():
        last = (last[0] + 12, last[1])  # from 9 to 5
    if last <= first:
        raise Unread
    reading.window = (first, last)


def _office_hours(reading: Reading, found: "re.Match[str]") -> None:
    if reading.window is not None:
        raise Unread
    reading.window = ((9, 0), (17, 0))
    reading.days = reading.days or {1, 2, 3, 4, 5}
    reading.is_repeated = True


def _in_span(reading: Reading, found: "re.Match[str]") -> None:
    if reading.span_s is not None:
        raise Unread
    total = 0.0
    for count, unit in re.findall(rf"(\d+(?:\.5)?) ({UNIT})", found["span"]):
        kind = _unit(unit)
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
    if word == "tonight":
        _part(reading, "night")
    _one_date(reading, reading.now + timedelta(days=days))


def _this_part(reading: Reading, found: "re.Match[str]") -> None:
    _part(reading, found["part"])
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
    if reading.is_repeated or (reading.step or (0, ""))[1] == "y" or re.match(r"every|each", found[0]):
        reading.is_repeated = True
        if reading.months and reading.months != {month}:
            raise Unread
        reading.months.add(month)
        reading.dates.add(str(day))
        return
    this = reading.now.year
    for year in [int(found["year"])] if found["year"] else range(this, this + 9):  # 29 February comes at least every eight
        with suppress(ValueError):
            date = reading.now.replace(year=year, month=month, day=day)
            if found["year"] or date.date() >= reading.now.date():
                _one_date(reading, date)
                return
    raise Unread


def _iso_date(reading: Reading, found: "re.Match[str]") -> None:
    try:
        _one_date(reading, reading.now.replace(year=int(found["year"]), month=int(found["month"]), day=int(found["day"])))
    except ValueError:
        raise Unread from None


def _of_month(reading: Reading, found: "re.Match[str]") -> None:
    """First Monday, last weekday, last day: of the month."""
    reading.is_repeated = True
    number = ORDINALS.get(found["ordinal"]) or int(found["ordinal"][0])
    what = found["day"]
    if re.fullmatch(DAY, what):
        day = _day(what)
        reading.ordinals.add(f"{day}L" if number == -1 else f"{day}#{number}")
    elif what == "day":
        reading.dates.add("L" if number == -1 else str(number))
    elif number == -1:
        reading.dates.add("LW")
    else:
        raise Unread  # no cron line says "the first weekday"


def _more_ordinals(reading: Reading, found: "re.Match[str]") -> None:
    """First and third Monday: the first, whose day comes with the third."""
    number = ORDINALS.get(found["ordinal"]) or int(found["ordinal"][0])
    day = _day(found["day"])
    reading.is_repeated = True
    reading.ordinals.add(f"{day}L" if number == -1 else f"{day}#{number}")


def _day_of_month(reading: Reading, found: "re.Match[str]") -> None:
    day = int(re.sub(r"\D", "", found["date"]))
    if not 1 <= day <= 31:
        raise Unread
    reading.is_repeated = True
    reading.dates.add(str(day))


def _bare_date(reading: Reading, found: "re.Match[str]") -> None:
    """On the 15th: of this month or the next, or of every month."""
    day = int(re.sub(r"\D", "", found["date"]))
    if not 1 <= day <= 31:
        raise Unread
    reading.dates.add(str(day))


def _month(reading: Reading, found: "re.Match[str]") -> None:
    reading.months.add(MONTHS.index(found["month"][:3]) + 1)


def _month_range(reading: Reading, found: "re.Match[str]") -> None:
    first, last = (MONTHS.index(found[name][:3]) for name in ("first", "last"))
    reading.months |= {(first + i) % 12 + 1 for i in range((last - first) % 12 + 1)}


def _every_month(reading: Reading, found: "re.Match[str]") -> None:
    reading.is_repeated = True


def _minute(reading: Reading, found: "re.Match[str]") -> None:
    word = found["minute"]
    reading.minute = {"on": 0, "half": 30, "quarter": 15, "quarter to": 45}.get(word, -1)
    if reading.minute < 0:
        reading.minute = int(word)
    if reading.minute > 59:
        raise Unread
    reading.is_repeated = True
    reading.step = reading.step or (1, "h")


def _zone(reading: Reading, found: "re.Match[str]") -> None:
    name = {"utc": "UTC", "gmt": "UTC"}.get(found["zone"], found["zone"])
    name = "/".join("_".join(w.capitalize() for w in part.split("_")) for part in name.split("/")) if "/" in name else name
    if reading.zone or not zones.is_known(name):
        raise Unread
    reading.zone = name


JOIN = r"(?:,? and |, ?| & |,? or )"
# In this order: what is longer, and says more, first.
WORDS: tuple[tuple[str, Handler], ...] = (
    (r"(?:please|sharp|exactly|then|again|(?:once|one time)(?= (?:on|at|in|tomorrow|today))|local time|as well)", _skip),
    (r"(?P<zone>utc|gmt|[a-z]+/[a-z_]+(?:/[a-z_]+)?)(?: time)?", _zone),
    (r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?P<t>t(?=\d))?", _iso_date),
    (rf"(?:in|after) (?P<span>{SPAN})(?: from now)?(?: time)?", _in_span),
    (rf"(?P<span>{SPAN}) from now", _in_span),
    (r"(?P<count>once|twice|\d+ times|1) (?:an? |per |each |every )(?:1 )?(?P<unit>day|hour|week|month|year)", _per_day),
    (r"(?:every |each )?(?P<minute>on) the hour(?: every hour)?", _minute),
    (r"(?:at )?(?P<minute>\d{1,2}) (?:minutes )?past (?:the|every|each) hour", _minute),
    (r"(?:at )?(?P<minute>half|quarter to|quarter) past (?:the|every|each) hour", _minute),
    (r"(?:every hour |hourly )at (?:minute |:)(?P<minute>\d{1,2})", _minute),
    (r"at (?:minute |:)(?P<minute>\d{2})(?: of every hour)?", _minute),
    (rf"(?:every|each) (?P<count>\d+(?:\.5)?)(?:-| )?(?P<unit>{UNIT})", _every_units),
    (
        r"(?:every|each|on) ?(?P<ordinal>other|second|third|fourth|[2-9](?:nd|rd|th)) "
        r"(?P<unit>(?:minute|hour|day|week|month|year)s?)(?! of)",
        _other_unit,
    ),
    (rf"(?:every|each) (?P<ordinal>other) (?P<day>{DAY})s?", _other_day),
    (rf"(?:every|each) (?P<ordinal>second|third) (?P<day>{DAY})(?! of)", _other_day),
    (rf"(?P<day>{DAY})s? every (?P<ordinal>other|second|third) week", _other_day),
    (
        rf"(?:on |every |each )*(?:the )?(?P<ordinal>{ORDINAL})(?={JOIN}(?:the )?{ORDINAL} (?P<day>{DAY}))",
        _more_ordinals,
    ),
    (
        rf"(?:on |at |every |each )*(?:the )?(?:very )?(?P<ordinal>{ORDINAL}) "
        rf"(?P<day>{DAY}|day|weekday|working day|work ?day|business day)s?"
        r"(?: (?:of|in) (?:the|each|every|a|1) month| of the month| each month| every month| monthly)?",
        _of_month,
    ),
    (r"(?:at |on )?(?:the )?(?P<every>)end of (?:the|this) month", _end_of),
    (r"(?:at |on )?(?:the )?(?P<every>end) of (?:each|every) month", _end_of),
    (r"(?:of|in) (?:the|each|every) month|(?:each|every) month(?= (?:on|at) the (?:first|last|\d))", _every_month),
    (r"(?:every |each |on |all )*(?:weekdays?|work(?:ing)? ?days?|business days?)", _weekdays),
    (r"(?:this|the coming) weekend|on the weekend(?=$| at)", _this_weekend),
    (r"(?:every |each |on |at |the |all )*weekends?", _weekend),
    (r"(?:during|in|within) (?:the )?(?:working|work|office|business) hours", _office_hours),
    (r"(?:on )?(?:the )?(?P<date>\d{1,2}(?:st|nd|rd|th)?) (?:day )?(?:of|in) (?:the|each|every|1) month", _day_of_month),
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
    (rf"(?:every |each )+(?P<day>{DAY})s?", _days),
    (rf"(?:on )?(?P<day>{DAY}s)", _days),
    (rf"(?:on )?(?P<day>{DAY})(?= (?P<part>morning|afternoon|evening|night)s)", _days),
    (rf"(?:on )?(?P<day>{DAY})", _one_day),
    (r"the day after tomorrow|day after tomorrow|(?:later )?(?:today|tonight|tomorrow)", _relative_day),
    (rf"(?:this|later this) (?P<part>{PART})", _this_part),
    (r"(?:early |first thing )?next (?P<unit>week|month|year)", _next_unit),
    (rf"(?:in |during )?(?P<first>{MONTH})(?: to | through | ?- ?)(?P<last>{MONTH})", _month_range),
    (rf"(?:(?:in|every|each|during) )?(?P<month>{MONTH})", _month),
    (
        rf"(?:between|from)(?: the hours of)? (?P<first>{BOUND}) ?(?:and|to|until|till|-|through) ?(?P<last>{BOUND})",
        _window,
    ),
    (rf"(?P<first>{BOUND}) ?(?:-|to|until|till) ?(?P<last>{BOUND})", _window),
    (rf"(?:every|each) (?P<part>{PART})s?", _every_part),
    (rf"(?:at |by |around |about |@ ?)*(?P<time>{TIME})", _time),
    (rf"(?:first thing )?(?:in the|at|on the|for|over|during the|of the|the) (?P<part>{PART})", _part_of),
    (r"(?:in the |on |at )?(?P<part>(?:morning|afternoon|evening|night)s)", _every_part),
    (rf"(?P<part>{PART})", _part_of),
    (r"every quarter", lambda reading, found: _set_step(reading, 3, "months")),
    (r"every(?: 1)? (?:single )?(?P<unit>minute|hour|day|week|fortnight|month|year)", _every_unit),
    (r"each(?: 1)? (?:and every )?(?P<unit>minute|hour|day|week|month|year)", _every_unit),
    (r"hourly|daily|weekly|monthly|yearly|annually|fortnightly|bi-?weekly|bi-?monthly|nightly|quarterly", _adverb),
    (r"(?:every|each)(?= (?:the )?\d{1,2}(?:st|nd|rd|th))", _repeat),
    (r"(?:on )?(?:the )?(?P<date>\d{1,2}(?:st|nd|rd|th))", _bare_date),
    (r"(?:at|@) ?(?P<hour>\d{1,2})(?![\d:.])", _bare_hour),
    (r"(?P<hour>\d{1,2})(?![\d:.])", _more_times),
    (r"and(?: on| at| in)?|,|&|or|on|at", _skip),
)
PATTERNS = tuple((re.compile(rf"(?:{pattern})(?=$|[ ,&-]|(?<=\dt)\d)"), handler) for pattern, handler in WORDS)


def parse(plain: str, now_ms: int, zone: str) -> Reading:
    reading = Reading(datetime.fromtimestamp(now_ms / 1000, zones.find(zone)).replace(tzinfo=None))
    place = 0
    while place < len(plain):
        if plain[place] == " ":
            place += 1
            continue
        for pattern, handler in PATTERNS:
            if found := pattern.match(plain, place):
                handler(reading, found)
                place = found.end()
                break
        else:
            raise Unread
    return reading


# -- pieces -----------------------------------------------------------------------------------------


def _clock(said: str) -> tuple[int, int]:
    """A time of day: 7am, 7:30 pm, 19:00, half past 7, noon."""
    if said in DAYPARTS:
        return DAYPARTS[said]
    if found := re.fullmatch(r"(half|quarter|five|ten|twenty|\d{1,2})(?: minutes)? (past|to) (\d{1,2})(?: ?([ap]m))?", said):
        minutes = {"half": 30, "quarter": 15}.get(found[1]) or int(found[1])
        hour, _ = _clock(f"{found[3]}:00" if not found[4] else f"{found[3]}{found[4]}")
        total = hour * 60 + (minutes if found[2] == "past" else -minutes)
        return divmod(total % 1440, 60)
    found = re.fullmatch(r"(\d{1,2})(?:[:.h](\d{2}))? ?(am|pm|o'clock)?", said)
    if found is None:
        raise Unread
    hour, minute, half = int(found[1]), int(found[2] or 0), found[3]
    if half in ("am", "pm"):
        if not 1 <= hour <= 12:
            raise Unread
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour == 24 and minute == 0:
        hour = 0
    if hour > 23 or minute > 59:
        raise Unread
    return hour, minute


def _bound(said: str) -> tuple[int, int]:
    """One end of a window; a bare number is an hour."""
    if said.isdigit():
        if int(said) > 24:
            raise Unread
        return (23, 59) if int(said) == 24 else (int(said), 0)
    return (23, 59) if said == "midnight" else _clock(said)


def _unit(word: str) -> str:
    return word[:2] if word[:2] in ("mi", "mo") else word[0]


def _day(word: str) -> int:
    return DAYS.index(word[:3])


def next_day(now: datetime, day: int) -> datetime:
    """The next such day of the week after today."""
    return now + timedelta(days=(day - now.isoweekday() % 7 - 1) % 7 + 1)


def _one_date(reading: Reading, date: datetime) -> None:
    if reading.date is not None and reading.date.date() != date.date():
        raise Unread
    reading.date = date
