"""Names of time zones, and what they mean on this box.

A name is `local` (the box's own zone), `UTC`, an offset such as `+05:30`, or a name of the zone database such as
`Europe/Berlin`. `find` answers for every name, because a row that is stored already must run: an unknown one is UTC,
and `is_known` says so. Knows nothing about schedules. Not promised: that a box without the zone database knows more
than its own zone.
"""

import os
import re
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from appliance.errors import BadInput

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
    if not is_known(name):
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
