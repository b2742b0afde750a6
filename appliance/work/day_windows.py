"""A part of each day: from a time of day until another, the end itself excluded; over midnight when it ends before it begins.

Equal times mean never, 24:00 is the end of the day. Pure: the moment and the zone are arguments. Days are those of the
local clock, so a night with an hour twice is an hour longer.
"""

import re
from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from appliance.errors import BadInput

TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)|24:00")
DAY_MIN = 24 * 60


class DayWindow(Struct, frozen=True):
    """Minutes since midnight; `until` is the first minute outside."""

    start: int
    until: int

    @property
    def is_always(self) -> bool:
        """True when every moment is inside."""
        return self.start == 0 and self.until == DAY_MIN

    def has(self, at_ms: int, zone: tzinfo) -> bool:
        """Whether a moment is inside."""
        local = datetime.fromtimestamp(at_ms / 1000, zone)
        minute = local.hour * 60 + local.minute
        if self.start <= self.until:
            return self.start <= minute < self.until
        return minute >= self.start or minute < self.until

    def end_ms(self, at_ms: int, zone: tzinfo) -> int:
        """When the window that a moment is in ends."""
        return next_ms(self.until % DAY_MIN, at_ms, zone)


def window(start: str, until: str) -> DayWindow:
    """A window from two times of day, HH:MM."""
    return DayWindow(minutes(start), minutes(until))


def minutes(text: str) -> int:
    """Minutes since midnight of a time of day; BadInput for what is none."""
    found = TIME.fullmatch(text.strip())
    if not found:
        raise BadInput(f"{text!r} is not a time of day", hint="use HH:MM between 00:00 and 24:00")
    return DAY_MIN if found[1] is None else int(found[1]) * 60 + int(found[2])


def next_ms(minute: int, at_ms: int, zone: tzinfo) -> int:
    """The next moment after `at_ms` at which the local clock shows this minute of the day, or has just jumped over it."""
    local = datetime.fromtimestamp(at_ms / 1000, zone)
    for day in range(3):
        date = local.date() + timedelta(days=day)
        there = datetime(date.year, date.month, date.day, minute // 60, minute % 60, tzinfo=zone)
        found = int(there.timestamp() * 1000)
        if found > at_ms:
            return found
    return at_ms + DAY_MIN * 60_000
