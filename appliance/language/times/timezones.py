"""Names of time zones, what they mean on this box, and what time it is elsewhere.

A name is `local` (the box's own zone), `UTC`, an offset such as `+05:30`, or a name of the zone database such as
`Europe/Berlin`. `find` answers for every name, because a row that is stored already must run: an unknown one is UTC,
and `is_known` says so. Cities are the names of zones ("Tokyo"), countries those of the database's own table; a language file adds
names as its language has them. Knows nothing about schedules. Not promised: that a box without the zone database knows more than
its own zone.
"""

import os
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from appliance.errors import BadInput
from appliance.language.languages import strip_accents

LOCAL = "local"
LOCALTIME = Path("/etc/localtime")
OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")


def find(name: str) -> tzinfo:
    """The zone of a name; UTC for one that nobody knows."""
    return _find_zone(name) or UTC


def is_known(name: str) -> bool:
    """Whether a name means a zone."""
    return _find_zone(name) is not None


def require(name: str) -> str:
    """The name of a zone as given, `local` for none; BadInput for one that nobody knows."""
    name = name.strip() or LOCAL
    if _find_zone(name) is None:
        raise BadInput(f"time zone {name!r} is not known", hint="use local, UTC, +05:30 or a name such as Europe/Berlin")
    return name


def name_of(zone: tzinfo | None) -> str:
    """The name of a zone that `find` finds, `local` for none."""
    if zone is None:
        return LOCAL
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    minutes = int((zone.utcoffset(None) or timedelta()).total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def resolve_local(name: str) -> str:
    """The name of a zone for those who may be elsewhere; `local` stays only where this box knows its rules and no name."""
    zone = _find_zone(name) if name in ("", LOCAL) else None
    return name_of(zone) if isinstance(zone, ZoneInfo) and zone.key else name


def _find_zone(name: str) -> tzinfo | None:
    if name in ("", LOCAL):
        return _local_zone()
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if found := OFFSET.fullmatch(name):
        hours, minutes = int(found[2]), int(found[3])
        if hours > 23 or minutes > 59:
            return None
        span = timedelta(hours=hours, minutes=minutes)
        return timezone(-span if found[1] == "-" else span)
    return _load_zone(name)


def _load_zone(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None  # OSError: a folder of the database, such as Europe


def _local_zone() -> tzinfo:
    """The box's own zone, with its rules for summer time where they can be read."""
    if (name := os.environ.get("TZ", "").removeprefix(":")) and (found := _load_zone(name)) is not None:
        return found
    try:
        place = str(LOCALTIME.resolve(strict=True))
        _, is_named, name = place.partition("/zoneinfo/")
        if is_named and (found := _load_zone(name)) is not None:
            return found
        with LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


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
    return strip_accents(text.strip(" .!?")).lower()
