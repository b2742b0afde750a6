"""Rules about time in words, as people are shown them: "at 07:00 on weekdays", and moments with their day.

What it says of a rule is complete; a cron line without plain words is shown as it is. Pure. Knows nothing about who reads it.
"""

from datetime import datetime, timedelta

from appliance.language.times import recurrence, timezones
from appliance.language.times.recurrence import BETWEEN, Rule
from appliance.language.times.timezones import LOCAL

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
ORDINALS = ("", "first", "second", "third", "fourth", "fifth")
SPANS = ((7 * 86_400, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
STEPS = {"biweekly": "2 weeks", "hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "yearly": "year"}
MOST_TIMES = 6
EVERY_DAY = "every day"


def words(rule: Rule) -> str:
    if rule.kind == "text":
        return "when a model judges that it is time"
    if rule.kind == "interval":
        said = f"every {span(int(rule.base))}"
    elif rule.kind == "once":
        said = f"once, on {moment(recurrence.at(rule), rule.zone)}"
    elif rule.kind == "cadence":
        said = _cadence_words(rule.base)
    else:
        said = _cron_words(rule.base)
    if rule.end_ms is not None:
        said += f", until {_end(rule.end_ms, rule.zone)}"
    if rule.zone != LOCAL and rule.kind in ("once", "cron", "cadence"):
        said += f" ({rule.zone})" if timezones.is_known(rule.zone) else f" ({rule.zone} is not known: UTC)"
    return f"{said}, if a model judges so" if rule.condition else said


def moment(at_ms: int, zone: str = LOCAL) -> str:
    """A moment with its day: Mon 2026-11-23 07:00; with seconds where it has some."""
    at = datetime.fromtimestamp(at_ms / 1000, timezones.find(zone))
    return at.strftime("%a %Y-%m-%d %H:%M:%S" if at.second else "%a %Y-%m-%d %H:%M")


def _end(at_ms: int, zone: str) -> str:
    """The last day, or the last moment where that is within one."""
    said = moment(at_ms, zone)
    return said.removesuffix(" 23:59:59")


def span(seconds: int) -> str:
    """A length of time behind "every": 90 minutes, 2 hours, day."""
    size, name = next((size, name) for size, name in SPANS if seconds % size == 0)
    return name if seconds == size else f"{seconds // size} {name}s"


def _cadence_words(spec: str) -> str:
    step, _, rest = spec.partition(" from ")
    first, _, jitter = rest.partition(" +")
    at = datetime.fromisoformat(first) + timedelta(seconds=int(jitter.partition(" ")[0] or 0))
    said = STEPS.get(step, step.removeprefix("1 "))
    if "hour" in said:
        return f"every {said}, at {at:%M} past"
    day = f" on {at:%A}" if "week" in said else f" on the {_ordinal_word(at.day)}" if "month" in said else ""
    day = f" on {at.day} {MONTHS[at.month - 1]}" if "year" in said else day
    return f"every {said}{day} at {at:%H:%M}"


def _cron_words(spec: str) -> str:
    """Lines that differ only in their times as one sentence."""
    found: dict[str, list[str]] = {}
    for line in spec.split(BETWEEN):
        minute, hour, date, month, day = line.split(" ")
        days, times = _days_words(date, month, day), _times_words(minute, hour)
        if days is None or times is None:
            return f"by cron: {spec}"
        found.setdefault(days, []).append(times)
    return "; ".join(_build_sentence(times, days) for days, times in found.items())


def _build_sentence(times: list[str], days: str) -> str:
    is_all_day = days == EVERY_DAY and all(one.startswith("every") and " from " not in one for one in times)
    return _join_words(times) if is_all_day else f"{_join_words(times)} {days}"


def _times_words(minute: str, hour: str) -> str | None:
    """The time fields of a line; None where there are no plain words."""
    minutes, hours = _parse_numbers(minute, 0, 59), _parse_numbers(hour, 0, 23)
    if minutes is None or hours is None:
        return None
    if minute == "*" and hour == "*":
        return "every minute"
    if hour == "*":
        if minute.startswith("*/") and 60 % int(minute[2:]) == 0:
            return f"every {span(int(minute[2:]) * 60)}"
        return f"every hour at {_join_words([f'{m:02}' for m in minutes])} past"
    if len(minutes) * len(hours) <= MOST_TIMES:
        return "at " + _join_words([f"{h:02}:{m:02}" for h in hours for m in minutes])
    return _regular_words(minutes, hours)


def _regular_words(minutes: list[int], hours: list[int]) -> str | None:
    """Times at the same distance from each other; None for others."""
    apart = {b - a for a, b in zip(hours, hours[1:], strict=False)}
    if len(minutes) == 1 and len(apart) == 1:
        step = min(apart)
        every = "every hour" if step == 1 else f"every {step} hours"
        return f"{every} from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[0]:02}"
    between = {b - a for a, b in zip(minutes, [*minutes[1:], minutes[0] + 60], strict=True)}
    if len(between) == 1 and apart <= {1}:
        return f"every {min(between)} minutes from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"
    return None


def _days_words(date: str, month: str, day: str) -> str | None:
    """The date fields of a line; None where there are no plain words."""
    months = _parse_numbers(month, 1, 12)
    if months is None or (date != "*" and day != "*"):
        return None
    said = EVERY_DAY
    if date != "*":
        parts = [_date_words(part) for part in date.split(",")]
        if None in parts:
            return None
        said = f"on the {_join_words([part for part in parts if part])}" + (" of the month" if month == "*" else "")
    elif day != "*":
        found = _weekday_words(day)
        if found is None:
            return None
        said = found
    return said if month == "*" else f"{said} {'of' if date != '*' else 'in'} {_join_words([MONTHS[m - 1] for m in months])}"


def _date_words(part: str) -> str | None:
    special = {"L": "last day", "LW": "last weekday"}
    return special.get(part) or (_ordinal_word(int(part)) if part.isdecimal() else None)


def _weekday_words(day: str) -> str | None:
    if "#" in day or "L" in day:
        parts = []
        for part in day.split(","):
            if not part[0].isdigit() or not (part.endswith("L") or part[1:2] == "#"):
                return None
            parts.append(f"{'last' if part.endswith('L') else ORDINALS[int(part[2])]} {DAYS[int(part[0]) % 7]}")
        return f"on the {_join_words(parts)} of the month"
    numbers = _parse_numbers(day, 0, 7)
    if numbers is None:
        return None
    known = sorted({number % 7 for number in numbers})
    if known == [1, 2, 3, 4, 5]:
        return "on weekdays"
    if known == [0, 6]:
        return "at weekends"
    return "on " + _join_words([f"{DAYS[number]}s" for number in (*(k for k in known if k), *(k for k in known if not k))])


def _parse_numbers(part: str, first: int, last: int) -> list[int] | None:
    """What a field of digits, ranges and steps holds; None for names and the rest."""
    found: set[int] = set()
    for one in part.split(","):
        area, _, step = one.partition("/")
        low, is_range, high = area.partition("-")
        if area == "*":
            low, high = str(first), str(last)
        elif not is_range:
            high = str(last) if step else low
        if not (low.isdecimal() and high.isdecimal() and (not step or step.isdecimal())):
            return None
        found |= set(range(int(low), int(high) + 1, int(step or 1)))
    return sorted(found)


def _ordinal_word(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _join_words(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
