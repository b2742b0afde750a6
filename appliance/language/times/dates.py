"""Questions about the calendar, which a program computes and a small model makes up: which day something is, and how far away.

A text is read as a day or a moment: a feast of the language file, "the 3rd of May", "Friday at 5 pm", "in three weeks", "the
Sunday after next", by the grammar of `language.times`. A text with any other word in it is none: what the notes may know ("until
my holiday") is not computed. Not promised: feasts by the moon but for Easter. Pure; the present moment is an argument.
"""

import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from appliance.language.languages import Language
from appliance.language.times import moments
from appliance.language.times.moments import Moment
from appliance.language.times.reductions import reduced
from appliance.language.times.tokenizer import tokens

REFERENCE = datetime(2024, 1, 1, 12)  # a moment for telling whether a text is a day at all; the year is a leap year


def read(text: str, language: Language, now: datetime, *, may_be_named: bool = False) -> Moment | None:
    """The moment that a text names in the language it is in; None where it names none, or anything else as well.

    `may_be_named`: what is on that day may stand before it, "our concert on 13 December".
    """
    return moments.read(text, language.lexicon, now, may_be_named=may_be_named)


def is_moment(text: str, language: Language, *, may_be_named: bool = False) -> bool:
    """Whether a text names a day or a time, whichever."""
    return read(text, language, REFERENCE, may_be_named=may_be_named) is not None


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
