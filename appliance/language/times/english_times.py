"""Times of day in English, and English in the few forms that are easy to read: small letters, numbers as digits.

A time is kept as it was said until the whole text is known: "at 7" is 19:00 in the evening, "12" at night is midnight, "8 and
9pm" are both in the evening. What contradicts itself, such as 9am in the evening, is `Unread`. Knows no days and no rules. Pure.
"""

import re
from collections.abc import Iterable
from itertools import product

from msgspec import Struct

MORNING_H = 9
MOST_TIMES = 12  # that may be said, where some could be in either half of the day
DAYPARTS = {"morning": (8, 0), "noon": (12, 0), "midday": (12, 0), "lunchtime": (12, 0), "afternoon": (14, 0), "evening": (18, 0)}
DAYPARTS |= {"night": (21, 0), "midnight": (0, 0), "dawn": (6, 0), "breakfast": (8, 0), "lunch": (12, 0), "dinner": (18, 0)}
DAY = r"(?:sun|mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?)(?:day)?"
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
LONGEST = dict(zip(MONTHS, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
TENS = {"fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90}
NTH = {"first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th"}
UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|h|days?|weeks?|fortnights?|months?|years?)"
CLOCK = r"(?:\d{1,2}(?:[:.h]\d{2})? ?(?:am|pm)|\d{1,2}[:h]\d{2}|\d{1,2} o'clock)"
PART = "|".join(DAYPARTS)
PAST = r"(?:half past|quarter past|quarter to|(?:five|ten|twenty|\d{1,2})(?: minutes)? (?:past|to)) \d{1,2}(?: ?[ap]m)?"
EARLIER = rf"\d{{1,2}} (?:minutes?|mins?|hours?) before (?:{CLOCK}|\d{{1,2}}|noon|midnight)"
TIME = rf"(?:{EARLIER}|{CLOCK}|{PAST}|noon|midday|midnight)"
BOUND = rf"(?:{TIME}|\d{{1,2}})"
# What each part of the day makes of an hour from 1 to 12 with nothing said, and which of 24 may be said with it.
OPEN = {
    "morning": {hour: hour for hour in range(1, 12)},
    "afternoon": {12: 12} | {hour: hour + 12 for hour in range(1, 8)},
    "evening": {hour: hour + 12 for hour in range(4, 12)},
    "dinner": {hour: hour + 12 for hour in range(4, 12)},
    "night": {12: 24} | {hour: hour + 12 for hour in range(6, 12)} | {hour: hour + 24 for hour in range(1, 6)},
}
FIXED = {
    "morning": {hour: hour for hour in range(12)},
    "afternoon": {hour: hour for hour in range(12, 20)},
    "evening": {hour: hour for hour in range(16, 24)},
    "dinner": {hour: hour for hour in range(16, 24)},
    "night": {hour: hour for hour in range(18, 24)} | {hour: hour + 24 for hour in range(6)},
}


class Unread(Exception):
    """This text is no rule."""


class Time(Struct, frozen=True):
    """A time of day as it was said: `half` is am, pm, 24 or "" for neither; a `loose` one may be in either half of the day."""

    hour: int
    minute: int = 0
    half: str = ""
    is_loose: bool = False


# -- texts ------------------------------------------------------------------------------------------


def normal(said: str) -> str:
    """A text in the few forms that the patterns know."""
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
    plain = re.sub(r"\bonce (?=(?:hourly|daily|weekly|monthly|yearly|annually)\b)", "", plain)
    plain = re.sub(r"(\d)h(\d+)m(?:ins?)?\b", r"\1 hours \2 minutes", plain)
    plain = re.sub(r"(\d)(min|mins|minutes|hrs?|h|hours|days?|weeks|secs?|seconds|months)\b(?!\d)", r"\1 \2", plain)
    plain = re.sub(r"(?<=\d)([ms])\b", lambda m: " minutes" if m[1] == "m" else " seconds", plain)
    plain = re.sub(r"\b((?:every|each) hour|hourly),? at (half|quarter) past(?! \d)", r"\2 past every hour", plain)
    plain = re.sub(rf"\b(at|by|around|about) (\d\d?) (15|20|30|40|45|50)\b(?! {UNIT}\b| times)", r"\1 \3 past \2", plain)
    plain = re.sub(r"\b(at|by) ([01]\d|2[0-3])([0-5]\d)\b(?!:)(?: ?(?:hours|hrs|h)\b)?", r"\1 \2:\3", plain)
    plain = re.sub(r"\b(at|by) (\d\d?)\.([0-5]\d)\b(?!\.|\d| ?[ap]m)", r"\1 \2:\3", plain)
    return " ".join(_shorten_days(plain).split()).strip(" ,")


def _shorten_days(plain: str) -> str:
    """Days of the week and of the month in fewer words."""
    plain = re.sub(r"\bm-f\b", "mon-fri", plain)
    plain = re.sub(rf"\b({DAY}s?)/(?={DAY})", r"\1, ", plain)
    plain = re.sub(rf"\ball (?={DAY}s\b|weekdays|weekends)", "every ", plain)
    plain = re.sub(rf"^ only (?=on |{DAY}|weekdays|weekends)", " ", plain)
    plain = re.sub(r"\b(\w+day|weekend)(s?) only\b(?! (?:if|when))", r"\1\2", plain)
    plain = re.sub(rf"\bby (?=(?:next |this )?{DAY}\b|tomorrow|tonight)", "", plain)
    plain = re.sub(r"\bfirst thing tomorrow(?: morning)?\b", "tomorrow morning", plain)
    plain = re.sub(r"\b(?:beginning|start) of (?=(?:the|this|each|every) month\b)", "1st of ", plain)
    plain = re.sub(rf"\b({'|'.join(NTH)}) (?=(?:of|in) (?:the|each|every|1) month\b)", lambda m: f"{NTH[m[1]]} ", plain)
    return re.sub(r"\bon the first (?=$)", "on the 1st ", plain)


def impossible(plain: str) -> str:
    """The first words of a text that name a time or a day which no clock and no calendar has; "" for none."""
    for found in re.finditer(r"\b(\d{1,2}):(\d{2})\b|\b(\d{1,2}) ?[ap]m\b", plain):
        if int(found[3] or found[1]) > (12 if found[3] else 24) or int(found[2] or 0) > 59:
            return found[0]
    for found in re.finditer(
        rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({MONTH})\b|\b({MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)", plain
    ):
        if int(found[1] or found[4]) > LONGEST[(found[2] or found[3])[:3]]:
            return found[0]
    return ""


# -- times ------------------------------------------------------------------------------------------


def clock(said: str) -> Time:
    """A time of day: 7am, 7:30 pm, 19:00, half past 7, noon."""
    if said in DAYPARTS:
        return Time(*DAYPARTS[said], "24")
    if found := re.fullmatch(r"(\d+) (min|hour)\w* before (.*)", said):
        return _subtract_minutes(bound(found[3]), int(found[1]) * (60 if found[2] == "hour" else 1))
    if found := re.fullmatch(r"(half|quarter|five|ten|twenty|\d{1,2})(?: minutes)? (past|to) (\d{1,2})(?: ?([ap]m))?", said):
        minutes = {"half": 30, "quarter": 15}.get(found[1]) or int(found[1])
        whole = _check_time(int(found[3]), 0, found[4] or "", is_loose=True)
        return (
            whole if found[2] == "past" and not minutes else _subtract_minutes(whole, -minutes if found[2] == "past" else minutes)
        )
    found = re.fullmatch(r"(\d{1,2})(?:[:.h](\d{2}))? ?(am|pm|o'clock)?", said)
    if found is None:
        raise Unread
    half = found[3] if found[3] in ("am", "pm") else ""
    return _check_time(int(found[1]), int(found[2] or 0), half, is_loose=found[3] == "o'clock")


def bare(hour: int) -> Time:
    """An hour with nothing else said."""
    return _check_time(hour, 0, "", is_loose=True)


def bound(said: str) -> Time:
    """One end of a window; a bare number is an hour."""
    return bare(int(said)) if said.isdecimal() else clock(said)


def _check_time(hour: int, minute: int, half: str, *, is_loose: bool) -> Time:
    if half:
        if not 1 <= hour <= 12:
            raise Unread
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour == 24 and minute == 0:
        return Time(0, 0, "24")
    if hour > 23 or minute > 59:
        raise Unread
    return Time(hour, minute, half or ("24" if not 1 <= hour <= 12 else ""), is_loose and not half and 1 <= hour <= 12)


def _subtract_minutes(time: Time, minutes: int) -> Time:
    """So much earlier, in the same half of the day as the hour that was said; over midnight where that is known."""
    total = time.hour * 60 + time.minute - minutes
    if not time.half and not 60 <= total < 13 * 60:
        total %= 12 * 60  # ten to one
        total += 12 * 60 if total < 60 else 0
    hour, minute = divmod(total % 1440, 60)
    return Time(hour, minute, "24" if time.half else "", time.is_loose)


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
