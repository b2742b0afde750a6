"""What time it is elsewhere: the zones of a city or a country by its name, from the time zone database that Python uses anyway.

Cities are the names of zones ("Tokyo"), countries those of the database's own table; a language file adds names as its language
has them. Reads files of the database at the first question and keeps nothing else. Pure otherwise.
"""

import unicodedata
import zoneinfo
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path

REGIONS = ("Africa/", "America/", "Antarctica/", "Arctic/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/")
PACKAGE = "tzdata.zoneinfo"  # where the system has no database
MOST_SHOWN = 4


def times(place: str, now: datetime, names: Mapping[str, str]) -> list[tuple[str, datetime]]:
    """The time in a place by the names of its zones, the first of each difference to here; none for a place nobody knows.

    `names` are those of a language, in lower case, with the name of a zone or the code of a country.
    """
    zones = _zones_of(_plain(names.get(place.strip().lower(), place)))
    found: dict[float, tuple[str, datetime]] = {}
    for zone in zones:
        there = now.astimezone(zoneinfo.ZoneInfo(zone))
        offset = there.utcoffset()
        if offset is not None:
            found.setdefault(offset.total_seconds(), (zone.rsplit("/", 1)[-1].replace("_", " "), there))
    return list(found.values())[:MOST_SHOWN]


def _zones_of(place: str) -> list[str]:
    cities, countries = _places()
    if "/" in place:
        place = place.rsplit("/", 1)[-1].replace("_", " ")
    return [cities[place]] if place in cities else countries.get(place.removeprefix("the "), [])


@lru_cache(maxsize=1)
def _places() -> tuple[Mapping[str, str], Mapping[str, list[str]]]:
    """Zones by cities, and by countries and their codes; the zones of a country in the order of the table, the largest first."""
    cities = {
        _plain(zone.rsplit("/", 1)[-1].replace("_", " ")): zone
        for zone in zoneinfo.available_timezones()
        if zone.startswith(REGIONS)
    }
    codes: dict[str, list[str]] = {}
    for code, _, zone, *_ in _rows("zone.tab"):
        codes.setdefault(code.lower(), []).append(zone)
    countries = dict(codes)
    for code, name, *_ in _rows("iso3166.tab"):
        for one in (name, *name.replace(")", "").split(" (")):
            countries.setdefault(_plain(one), codes.get(code.lower(), []))
    return cities, countries


def _rows(name: str) -> Iterator[list[str]]:
    """The lines of a table of the database; none where there is no such file."""
    for folder in zoneinfo.TZPATH:
        if (path := Path(folder) / name).is_file():
            text = path.read_text("utf-8")
            break
    else:
        try:
            text = (resources.files(PACKAGE) / name).read_text("utf-8")
        except (ModuleNotFoundError, FileNotFoundError):
            return
    yield from (line.split("\t") for line in text.splitlines() if line and not line.startswith("#"))


def _plain(text: str) -> str:
    """Letters without accents, in lower case."""
    letters = unicodedata.normalize("NFKD", text.strip(" .!?"))
    return "".join(one for one in letters if not unicodedata.combining(one)).lower()
