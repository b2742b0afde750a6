"""The time zone that a person's answer names, such as "Berlin", "I live in New York", "UTC+2" or "Japan".

Reads the names of the zone database and the countries of its tables. A country with several zones that do not keep the
same time names none, and neither does a word that is part of several names. Not promised: names of places that are not in
the database, and names in other languages than English.
"""

import re
import unicodedata
from datetime import datetime
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from appliance.language.times import timezones

OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])\s*(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
WORD = re.compile(r"[^\W\d_]+")
# Names that no person says, and regions that are called by a point of the compass.
OTHERS = ("Etc/", "SystemV/", "posix/", "right/", "Brazil/", "Canada/", "Chile/", "Mexico/", "US/")
COMPASS = ("/East", "/North", "/South", "/West")
LEAST_LETTERS = 4  # of a name that is looked for within a sentence: three are also words, such as "MET"
MOST_WORDS = 4  # of a name
SEASONS = tuple(datetime(2026, month, 1) for month in (1, 7))


def find_timezone(text: str) -> str:
    """The name of the zone, as `system.timezone` takes it; "" when the answer names none, or several."""
    whole = " ".join(text.split()).strip(" .!")
    if found := OFFSET.fullmatch(whole):
        offset = f"{found[1]}{int(found[2]):02}:{found[3] or '00'}"
        return offset if timezones.is_known(offset) else ""
    if whole.lower() in ("utc", "gmt", "z"):
        return "UTC"
    zones = [name for name in sorted(available_timezones()) if not name.startswith(OTHERS) and not name.endswith(COMPASS)]
    exact = next((name for name in zones if name.lower() == whole.lower().replace(" ", "_")), "")
    return exact or _find_in_words(whole, zones)


def _find_in_words(text: str, zones: list[str]) -> str:
    """The zone whose city or country stands in a sentence; longer names are looked for first."""
    cities: dict[tuple[str, ...], list[str]] = {}
    for name in zones:
        cities.setdefault(_words(name.rpartition("/")[2]), []).append(name)
    places = _countries(set(zones)) | {words: first for words, (first, *others) in cities.items() if _agree(first, others)}
    words = _words(text)
    for length in range(min(MOST_WORDS, len(words)), 0, -1):
        for at in range(len(words) - length + 1):
            part = words[at : at + length]
            if part in places and (len("".join(part)) >= LEAST_LETTERS or part == words):
                return places[part]
    return ""


def _words(name: str) -> tuple[str, ...]:
    """Lower-case words without accents, so that Zürich and São Paulo are found."""
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return tuple(word.lower() for word in WORD.findall(letters))


def _countries(zones: set[str]) -> dict[tuple[str, ...], str]:
    """Countries in which all zones keep the same time."""
    found: dict[str, list[str]] = {}
    for code, _, zone, *_ in _rows("zone.tab"):
        if zone in zones:
            found.setdefault(code, []).append(zone)
    named = {code: name for code, name, *_ in _rows("iso3166.tab")}
    return {_words(named[code]): first for code, (first, *others) in found.items() if code in named and _agree(first, others)}


def _agree(first: str, others: list[str]) -> bool:
    """Whether zones have the same time in winter and in summer."""
    wanted = [day.astimezone(ZoneInfo(first)).utcoffset() for day in SEASONS] if others else []
    return all([day.astimezone(ZoneInfo(one)).utcoffset() for day in SEASONS] == wanted for one in others)


def _rows(name: str) -> list[list[str]]:
    """The rows of a table of the zone database, none where it has no tables."""
    path = next((path for folder in TZPATH if (path := Path(folder) / name).is_file()), None)
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    return [[*line.split("\t"), "", ""] for line in lines if line and not line.startswith("#")]
