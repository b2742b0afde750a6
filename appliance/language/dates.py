"""Questions about the calendar, which a program computes and a small model makes up: which day something is, and how far away.

A text is read as a day or a moment: a feast of the language file, "the 3rd of May", "Friday at 5 pm", "in three weeks", "the
Sunday after next". Other languages are put into English first (`foreign_times`). A text with any other word in it is none: what
the notes may know ("until my holiday") is not computed. Not promised: feasts by the moon but for Easter. Pure; the present moment
is an argument.
"""

import calendar
import re
from datetime import UTC, date, datetime, time, timedelta

from msgspec import Struct

from appliance.language import foreign_times
from appliance.language.languages import Language

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = tuple(name.lower() for name in calendar.month_name[1:])
WEEKDAY = "|".join(sorted((*WEEKDAYS, *(name[:3] for name in WEEKDAYS), "tues", "thurs"), key=len, reverse=True))
MONTH = "|".join(sorted((*MONTHS, *(name[:3] for name in MONTHS), "sept"), key=len, reverse=True))
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
UNIT = r"(?P<unit>minute|min|hour|day|night|week|fortnight|month|year)s?"
COUNT = rf"(?P<count>\d{{1,4}}|an?|half an|{'|'.join(NUMBERS[1:])}|fifteen|twenty|thirty|ninety|hundred)"
COUNTS = {"a": 1, "an": 1, "fifteen": 15, "twenty": 20, "thirty": 30, "ninety": 90, "hundred": 100}
COUNTS |= {word: number for number, word in enumerate(NUMBERS)}
NTH = {word: number for number, word in enumerate("first second third fourth fifth".split(), 1)}
HOUR = r"(?P<h>\d{1,2})(?:[:.](?P<m>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?(?: o'clock)?"
CLOCK = re.compile(rf"(?:^|[\s,]+)(?:at )?(?:(?P<word>noon|midday|midnight)|{HOUR})$")
YEAR = r"(?:,? (?P<year>\d{4}))?"
DAY_MONTH = re.compile(rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<month>{MONTH}){YEAR}")
MONTH_DAY = re.compile(rf"(?P<month>{MONTH}) (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?{YEAR}")
NTH_MONTH = re.compile(rf"(?P<nth>first|second|third|fourth|fifth)(?: of)? (?P<month>{MONTH}){YEAR}")
ISO = re.compile(r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})")
DOTTED = re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})?")
OF_MONTH = re.compile(r"(?P<day>\d{1,2})(?:st|nd|rd|th)")
OF_WEEK = re.compile(rf"(?:(?:this|coming) )?(?P<weekday>{WEEKDAY})")
NEXT = re.compile(rf"next (?P<weekday>{WEEKDAY})|(?P<other>{WEEKDAY}) next")
AFTER_NEXT = re.compile(rf"(?P<weekday>{WEEKDAY}) after next|next next (?P<other>{WEEKDAY})")
LAST = re.compile(rf"last (?P<weekday>{WEEKDAY})")
AHEAD = re.compile(
    rf"(?:today )?in {COUNT} {UNIT}(?: time)?|{COUNT.replace('count', 'n')} {UNIT.replace('unit', 'u')} (?:from|after) (?P<base>.+)"
)
AGO = re.compile(rf"{COUNT} {UNIT} (?:ago|before (?P<base>.+))")
RELATIVE = {"today": 0, "tonight": 0, "now": 0, "tomorrow": 1, "day after tomorrow": 2, "yesterday": -1, "day before yesterday": -2}
END_OF = re.compile(r"(?:the )?end of (?:the |this )?(?P<what>year|month|week)")
ARTICLE = re.compile(r"^(?:the|on|it's|it is|le|la|el|der|den|dem|das|die|zum|am|au|al|du|del|les|los|las) ")
MOST_DEPTH = 3
FARTHEST_DAYS = 400_000
REFERENCE = datetime(2024, 1, 1, 12)  # a moment for telling whether a text is a day at all; the year is a leap year


class Moment(Struct, frozen=True):
    """A day, or with `has_clock` a time on it."""

    at: datetime
    has_clock: bool = False


def read(text: str, language: Language, now: datetime, *, may_be_named: bool = False) -> Moment | None:
    """The moment that a text names in the language it is in; None where it names none, or anything else as well.

    `may_be_named`: what is on that day may stand before it, "our concert on 13 December".
    """
    said = _bare(text)
    on = max((said.rfind(word) + len(word) for word in (" on ", " am ", " le ", " el ") if word in said), default=0)
    for part in dict.fromkeys((said, said[on:] if may_be_named else said)):
        if (found := _feast(part, language, now)) is not None:
            return found
        if language.name != "en":
            part = foreign_times.translated(part, language) or part
        try:
            if (found := _read_english(_bare(part), now, language)) is not None:
                return found
        except (ValueError, OverflowError):
            continue  # the 31st of June
    return None


def read_english(said: str, now: datetime) -> Moment | None:
    """The moment that a text names in English; None for any other text."""
    try:
        return _read_english(_bare(said), now, None)
    except (ValueError, OverflowError):
        return None


def is_moment(text: str, language: Language, *, may_be_named: bool = False) -> bool:
    """Whether a text names a day or a time, whichever."""
    return read(text, language, REFERENCE, may_be_named=may_be_named) is not None


def spelled(moment: datetime, language: Language) -> str:
    """A day in words: "Friday, 18 December 2026"."""
    weekday = language.phrases["weekdays"].split()[moment.weekday()]
    month = language.phrases["months"].split()[moment.month - 1]
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
    one, many = language.phrases[f"{unit}_words"].split()
    return f"{number} {one if number == 1 else many}"


def _bare(text: str) -> str:
    said = " ".join(text.lower().replace("’", "'").replace(",", " ").strip(" ?.!¿¡").split())
    while (shorter := ARTICLE.sub("", said)) != said:
        said = shorter
    return said


def _feast(said: str, language: Language | None, now: datetime) -> Moment | None:
    """A day of the calendar with a name of its own: the next one, or that of a year."""
    found = re.fullmatch(
        r"(?P<name>.+?)(?: (?P<year>\d{4}))?", re.sub(r" (?:this year|dieses jahr|cette année|este año)$", "", said)
    )
    rule = language.days.get(_bare(found["name"])) if found is not None and language is not None else None
    if found is None or rule is None:
        return None
    year = int(found["year"] or now.year)
    day = _day_of(rule, year)
    if found["year"] is None and day < now.date():
        day = _day_of(rule, year + 1)
    return Moment(_midnight(day, now))


def _day_of(rule: str, year: int) -> date:
    """`12-25`, `easter+1`, or `sunday-4 12-25`: so many such weekdays before a day."""
    if rule.startswith("easter"):
        return _easter(year) + timedelta(days=int(rule.removeprefix("easter") or 0))
    if " " in rule:
        weekday, before = rule.split(" ")
        name, count = weekday.rsplit("-", 1)
        day = _day_of(before, year)
        back = (day.weekday() - WEEKDAYS.index(name)) % 7 or 7
        return day - timedelta(days=back + 7 * (int(count) - 1))
    month, number = rule.split("-")
    return date(year, int(month), int(number))


def _easter(year: int) -> date:
    """Easter Sunday of the Gregorian calendar (the anonymous algorithm of 1876)."""
    golden, century, rest = year % 19, year // 100, year % 100
    leap, skipped = divmod(century, 4)
    lunar = (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + century - leap - lunar + 15) % 30
    weekday = (32 + 2 * skipped + 2 * (rest // 4) - epact - rest % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def _read_english(said: str, now: datetime, language: Language | None, depth: int = 0) -> Moment | None:
    if depth > MOST_DEPTH or not said:
        return None
    if (day := _read_day(said, now, language, depth)) is not None:
        return day
    clock = CLOCK.search(said)
    if clock is None:
        return None
    at = _clock(clock)
    before = re.sub(r"(?:^|[\s,]+)at$", "", said[: clock.start()]).strip(" ,")
    if at is None or (not before and not (clock["word"] or clock["half"] or clock["m"] or "at " in clock[0])):
        return None  # a bare number
    if not before:
        moment = datetime.combine(now.date(), at, now.tzinfo)
        return Moment(moment if moment > now else moment + timedelta(days=1), has_clock=True)
    day = _read_day(_bare(before), now, language, depth) or _feast(_bare(before), language, now)
    if day is None or day.has_clock:
        return None
    moment = datetime.combine(day.at.date(), at, now.tzinfo)
    is_week_ahead = OF_WEEK.fullmatch(_bare(before)) and moment - timedelta(days=7) > now  # "Friday 5 pm" on a Friday morning
    return Moment(moment - timedelta(days=7) if is_week_ahead else moment, has_clock=True)


def _clock(found: "re.Match[str]") -> time | None:
    if found["word"]:
        return time(0) if found["word"] == "midnight" else time(12)
    hour, minute = int(found["h"]), int(found["m"] or 0)
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].startswith("p") else 0)
    return time(hour % 24, minute) if hour <= 24 and minute < 60 else None


def _read_day(said: str, now: datetime, language: Language | None, depth: int) -> Moment | None:
    """A day without a time, or a moment so long from now."""
    today = now.date()
    if said in RELATIVE:
        return Moment(_midnight(today + timedelta(days=RELATIVE[said]), now))
    if said in ("new year", "next year"):
        return Moment(_midnight(date(today.year + 1, 1, 1), now))
    if found := END_OF.fullmatch(said):
        last = calendar.monthrange(today.year, today.month)[1]
        ends = {"year": date(today.year, 12, 31), "month": today.replace(day=last)}
        return Moment(_midnight(ends.get(found["what"], today + timedelta(days=6 - today.weekday())), now))
    for pattern in (DAY_MONTH, MONTH_DAY, ISO, DOTTED, NTH_MONTH):
        if found := pattern.fullmatch(said):
            return Moment(_midnight(_dated(found.groupdict(), today), now))
    if found := OF_MONTH.fullmatch(said):
        return Moment(_midnight(_of_month(int(found["day"]), today), now))
    for pattern, weeks in ((OF_WEEK, 0), (NEXT, 0), (AFTER_NEXT, 1), (LAST, -1)):
        if found := pattern.fullmatch(said):
            name = next(word for word in found.groups() if word)
            ahead = (_weekday(name) - today.weekday()) % 7 or (7 if weeks >= 0 else 0)
            return Moment(_midnight(today + timedelta(days=ahead + 7 * weeks), now))
    if found := AHEAD.fullmatch(said):
        return _shifted(found["count"] or found["n"], found["unit"] or found["u"], found["base"], 1, now, language, depth)
    if found := AGO.fullmatch(said):
        return _shifted(found["count"], found["unit"], found["base"], -1, now, language, depth)
    return None


def _shifted(
    count: str, unit: str, base: str | None, sign: int, now: datetime, language: Language | None, depth: int
) -> Moment | None:
    """So much after or before a day; after now where none is said."""
    start: Moment | None = Moment(now)
    if base:
        start = _feast(_bare(base), language, now) or _read_english(_bare(base), now, language, depth + 1)
    if start is None:
        return None
    number = sign * (int(count) if count.isdecimal() else COUNTS.get(count, 0))
    if unit.startswith(("min", "hour")):
        minutes = number if unit.startswith("min") else 60 * number
        minutes = sign * 30 if count == "half an" else minutes
        return Moment(start.at + timedelta(minutes=minutes), has_clock=True)
    if unit in ("month", "year"):
        month = start.at.month - 1 + number * (12 if unit == "year" else 1)
        year, month = start.at.year + month // 12, month % 12 + 1
        day = date(year, month, min(start.at.day, calendar.monthrange(year, month)[1]))
    else:
        days = number * {"week": 7, "fortnight": 14}.get(unit, 1)
        if abs(days) > FARTHEST_DAYS:
            return None
        day = start.at.date() + timedelta(days=days)
    return Moment(_midnight(day, now))


def _dated(parts: dict[str, str | None], today: date) -> date:
    """A day of a month: of the year that is said, else the next there is."""
    month, day = parts["month"] or "", int(parts.get("day") or NTH.get(parts.get("nth") or "", 0))
    number = int(month) if month.isdecimal() else next(n for n, name in enumerate(MONTHS, 1) if name.startswith(month[:3]))
    if parts["year"]:
        return date(int(parts["year"]), number, day)
    for year in range(today.year, today.year + 9):  # the 29th of February
        if day <= calendar.monthrange(year, number)[1] and (found := date(year, number, day)) >= today:
            return found
    raise ValueError(f"no {day} {month}")


def _of_month(day: int, today: date) -> date:
    """The next day of this number."""
    year, month = today.year, today.month
    for _ in range(12):
        if day <= calendar.monthrange(year, month)[1] and (found := date(year, month, day)) >= today:
            return found
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    raise ValueError(f"no {day} in any month")


def _weekday(name: str) -> int:
    return next(number for number, one in enumerate(WEEKDAYS) if one.startswith(name[:3]))


def _midnight(day: date, now: datetime) -> datetime:
    return datetime.combine(day, time(0), now.tzinfo)
