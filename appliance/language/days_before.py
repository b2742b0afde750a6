"""So many days before something: "2 days before", "the evening before", of a date that is said around it or was just answered.

The reader of times knows no date but the one it is given: it would take the date itself, or tomorrow. Pure; the present moment is
an argument.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from appliance.language import dates, foreign_times
from appliance.language.languages import Language

COUNTS = {
    **dict.fromkeys(("a", "one", "einen", "ein", "eine", "un", "une", "una", "uno"), 1),
    **dict.fromkeys(("two", "zwei", "deux", "dos"), 2),
    **dict.fromkeys(("three", "drei", "trois", "tres"), 3),
    **dict.fromkeys(("four", "vier", "quatre", "cuatro"), 4),
    **dict.fromkeys(("five", "fünf", "cinq", "cinco"), 5),
    **dict.fromkeys(("six", "sechs", "seis"), 6),
    **dict.fromkeys(("seven", "sieben", "sept", "siete"), 7),
}
COUNT = rf"(?P<count>\d{{1,2}}|{'|'.join(COUNTS)})"
# Behind "before" nothing may follow but what is to be thought of, or a time.
END = r"(?=\s*(?:$|[,.!?]|(?:at|to|about|of|that|and|please|pls|around|so)\b))"
SPANS = {
    "en": rf"{COUNT} (?P<unit>day|week)s? (?:before(?:hand)?|earlier|ahead|in advance)(?: (?:that|it|then))?{END}"
    rf"|the (?P<part>day|evening|morning|night) before(?:hand)?(?: (?:that|it|then))?{END}",
    "de": rf"{COUNT} (?P<unit>tag|woche)(?:en?)? (?:vorher|davor|zuvor|im voraus)"
    r"|(?:am |den )?(?P<part>tag|abend|morgen) (?:vorher|davor|zuvor)|am vor(?P<other>tag|abend)(?! (?:von|vor|des|der)\b)",
    "fr": rf"{COUNT} (?P<unit>jour|semaine)s? (?:avant|à l['’]avance)(?! (?:le|la|les|de|du|que)\b)"
    r"|la veille(?: au (?P<part>soir))?(?! de\b)|le jour d['’]avant",
    "es": rf"{COUNT} (?P<unit>día|semana)s? antes(?! de\b)"
    r"|(?:el|la) (?P<part>día|tarde|noche) (?:antes|anterior)(?! de\b)|la víspera(?! de\b)",
}
HOURS = {"evening": 18, "abend": 18, "soir": 18, "tarde": 17, "night": 20, "noche": 20}
DAY = re.compile("|".join(re.sub(r"\?P<\w+>", "?:", one.pattern) for one in (dates.DAY_MONTH, dates.MONTH_DAY, dates.ISO)))
WEEKDAY = re.compile(rf"\b(?:on |next |this )?(?:{dates.WEEKDAY})\b")
CLOCK = re.compile(
    r"[\s,]*\b(?:at|around|by) (?P<clock>\d{1,2}(?:[:.]\d{2})?\s*(?:[ap]\.?m\b\.?)?|noon|midday|midnight)(?=\W|$)", re.IGNORECASE
)


class Before(Struct, frozen=True):
    """A day before another: `when` in English, "" where no day is known; what is said beside it, and where the day is from."""

    when: str
    rest: str = ""
    about: str = ""


def read(said: str, about: Sequence[str], language: Language, now: datetime) -> Before | None:
    """What a text says to be so many days before; None where it says nothing like that.

    `about` has texts that may name the day, the likeliest first.
    """
    pattern = SPANS.get(language.name)
    found = re.search(rf"\b(?:{pattern})", said, re.IGNORECASE) if pattern else None
    if found is None:
        return None
    parts = found.groupdict()
    part = (parts.get("part") or parts.get("other") or "").lower()
    days = _count(parts.get("count") or "") * (7 if (parts.get("unit") or "").lower().startswith(("w", "sem")) else 1)
    rest, clock = _parted(f"{said[: found.start()].rstrip(' ,')} {said[found.end() :].lstrip(' ,')}".strip(), language)
    clock = clock or (f"at {HOURS[part]}:00" if part in HOURS else "")
    for text in about:
        if (day := _day_in(text, language, now)) is not None:
            day -= timedelta(days=days)
            return Before(f"on {day.day} {day:%B} {day.year} {clock}".strip(), rest, text)
    return Before("", rest)


def _count(word: str) -> int:
    return int(word) if word.isdecimal() else COUNTS.get(word.lower(), 1)


def _parted(text: str, language: Language) -> tuple[str, str]:
    """What a text says beside its time of day, and that in English."""
    if language.name == "en":
        found = CLOCK.search(text)
        return (CLOCK.sub("", text, count=1).strip(), f"at {found['clock']}") if found is not None else (text, "")
    what, when = foreign_times.parted(text, language)
    return (what, when) if when.startswith("at ") else (text, "")


def _day_in(text: str, language: Language, now: datetime) -> datetime | None:
    """The first day that a text names, or a day of the week where it names no other."""
    for pattern in (DAY, WEEKDAY):
        for found in pattern.finditer(text.lower()):
            if (moment := dates.read_english(found[0], now)) is not None:
                return moment.at
    _, when = foreign_times.parted(text, language)
    moment = dates.read_english(re.sub(r"\bat \d.*$", "", when), now) if when else None
    return moment.at if moment is not None and not moment.has_clock else None
