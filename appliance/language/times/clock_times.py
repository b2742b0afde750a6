"""Times of day as they were said, and which hours they mean once the whole text is known.

"At 7" is 19:00 in the evening, "12" at night is midnight, "8 and 9pm" are both in the evening. What contradicts itself, such as
9am in the evening, is `Unread`. Knows no words, no days and no rules. Pure.
"""

from collections.abc import Iterable, Mapping
from itertools import product

from msgspec import Struct

MORNING_H = 9
MOST_TIMES = 12  # that may be said, where some could be in either half of the day
# When a part of the day is meant to begin, where nothing else is said.
DAYPARTS = {"morning": (8, 0), "noon": (12, 0), "afternoon": (14, 0), "late_afternoon": (17, 0), "evening": (18, 0)}
DAYPARTS |= {"night": (21, 0), "midnight": (0, 0), "dawn": (6, 0), "breakfast": (8, 0), "lunch": (12, 0), "dinner": (18, 0)}
# What each part of the day makes of an hour from 1 to 12 with nothing said, and which of 24 may be said with it.
OPEN = {
    "morning": {hour: hour for hour in range(1, 12)},
    "afternoon": {12: 12} | {hour: hour + 12 for hour in range(1, 8)},
    "evening": {hour: hour + 12 for hour in range(4, 12)},
    "dinner": {hour: hour + 12 for hour in range(4, 12)},
    "noon": {12: 12} | {hour: hour + 12 for hour in (1, 2)} | {11: 11},
    "night": {12: 24} | {hour: hour + 12 for hour in range(6, 12)} | {hour: hour + 24 for hour in range(1, 6)},
}
FIXED = {
    "morning": {hour: hour for hour in range(12)},
    "afternoon": {hour: hour for hour in range(12, 20)},
    "evening": {hour: hour for hour in range(16, 24)},
    "dinner": {hour: hour for hour in range(16, 24)},
    "noon": {hour: hour for hour in range(11, 15)},
    "night": {hour: hour for hour in range(18, 24)} | {hour: hour + 24 for hour in range(6)},
}
OPEN["late_afternoon"], FIXED["late_afternoon"] = OPEN["afternoon"], FIXED["afternoon"]


class Unread(Exception):
    """These words are no time that the grammar knows."""


class Time(Struct, frozen=True):
    """A time of day as it was said: `half` is am, pm, 24 or "" for neither; a `loose` one may be in either half of the day."""

    hour: int
    minute: int = 0
    half: str = ""
    is_loose: bool = False
    second: int = 0
    is_written: bool = False  # as 07:30, which is in the morning, or as midnight


def bare(hour: int) -> Time:
    """An hour with nothing else said."""
    return check(hour, 0, "", is_loose=True)


def check(hour: int, minute: int, half: str, *, is_loose: bool) -> Time:
    """A time of day that a clock has; Unread for any other."""
    if half:
        if not 1 <= hour <= 12:
            raise Unread
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour == 24 and minute == 0:
        return Time(0, 0, "24")
    if hour > 23 or minute > 59:
        raise Unread
    return Time(hour, minute, half or ("24" if not 1 <= hour <= 12 else ""), is_loose and not half and 1 <= hour <= 12)


def is_possible(parts: Mapping[str, int]) -> bool:
    """Whether a clock shows these digits; `rest` are some that stood behind the seconds, or in their place and were not two."""
    hour, minute, second = parts["h"], parts.get("min", 0), parts.get("s", 0)
    return (hour < 24 or (hour, minute, second) == (24, 0, 0)) and minute < 60 and second < 60 and "rest" not in parts


def earlier(time: Time, minutes: int) -> Time:
    """So much earlier, in the same half of the day as the hour that was said; over midnight where that is known."""
    total = time.hour * 60 + time.minute - minutes
    if not time.half and not 60 <= total < 13 * 60:
        total %= 12 * 60  # ten to one
        total += 12 * 60 if total < 60 else 0
    hour, minute = divmod(total % 1440, 60)
    return Time(hour, minute, "24" if time.half else "", time.is_loose, time.second)


def within(times: Iterable[Time], part: str) -> list[tuple[int, int]]:
    """Hours and minutes of times at a part of the day; 24 and more are hours of the next day, as at night they are."""
    times = list(times)
    if part in OPEN:
        found = []
        for time in times:
            hour = (FIXED if time.half else OPEN)[part].get(time.hour)
            if hour is None and not time.half and time.hour > 12:
                hour = FIXED[part].get(time.hour)
            if hour is None:
                raise Unread
            found.append((hour, time.minute))
    else:
        found = _assign_halves(times)
    return list(dict.fromkeys(found)) or [DAYPARTS.get(part, (MORNING_H, 0))]


def _assign_halves(times: list[Time]) -> list[tuple[int, int]]:
    """Hours beside ones with am or pm: 9, 12 and 3pm; 8 and 9pm; 9am, 1 and 5pm."""
    plain = [(time.hour, time.minute) for time in times]
    if not any(time.half in ("am", "pm") for time in times) or not any(time.is_loose for time in times):
        return plain
    if len(times) > MOST_TIMES:
        raise Unread
    choices: list[tuple[tuple[int, int], ...]] = []
    following = ""
    for time in reversed(times):
        following = time.half or following
        either = ((time.hour, time.minute), (time.hour + 12, time.minute))
        is_either = time.is_loose and time.hour < 12
        choices.insert(0, (either[::-1] if following == "pm" else either) if is_either else either[:1])
    for made in product(*choices):
        if all(a < b for a, b in zip(made, made[1:], strict=False)):
            return list(made)
    raise Unread
