"""English about time, read as a rule: "every weekday at 7am", "in 20 minutes", "last Friday of the month at 5pm".

A text is a rule only when every word of it was understood (`idioms`). What follows "unless", "until" and the like stays a
condition, if it does not only take days or months away: the rest says when it is to be judged. Anything else is a `text`
rule, which a model judges. So a rule never says more than what was written. Times of day that are left out are those of
`DAYPARTS`, and `MORNING_H` where there is no hint at all. Pure: the present moment is an argument.
"""

import re
from dataclasses import replace
from datetime import datetime, timedelta

from appliance import timing, zones
from appliance.errors import BadInput
from appliance.idioms import CLOCK, DAYPARTS, MORNING_H, SECONDS, Reading, Unread, next_day, normal, parse
from appliance.timing import Rule
from appliance.zones import LOCAL

CONDITION = (
    r"unless|except|excluding|apart from|other than|but (?:not|only|skip)|only if|only when|only on|if|when|whenever|while|"
    r"as long as|provided|until|till|starting|beginning|from now|skip(?:ping)?|not on|without"
)
TAIL = re.compile(rf"^(?P<head>.*?),? \(?(?P<tail>(?:{CONDITION})\b.*?)\)?$")
EXCEPT = re.compile(
    r"^(?:except(?: for)?|excluding|apart from|other than|but not|but skip|skip(?:ping)?|not on)(?: on| in| the)* (?P<what>.*)$"
)
ONLY = re.compile(r"^(?:but only|only) on (?P<what>.*)$")
REMIND = re.compile(r"^(?:please )?remind (?:me|us)(?:,? please)?:? (?:to |that |about |of )?", re.IGNORECASE)
CRON = re.compile(r"(?=.*[\d*])(?:[\d*/,#LW-]+|[A-Z]{3}(?:[-,][A-Z]{3})*)(?: (?:[\d*/,#LW-]+|[A-Z]{3}(?:[-,][A-Z]{3})*)){4}", re.I)
MAX_CHARS = 500
MAX_MONTHS = 1200  # of "in ... years"
MAX_WORDS = 24  # that may say when, at one end of a text
CLOCKED = re.compile(rf"\b(?:at|by) \d|\b{CLOCK}")


def read(said: str, now_ms: int, zone: str = LOCAL, *, is_frequency: bool = True) -> Rule:
    """What a text means: a rule, a rule with a condition, or a `text` that has to be judged as a whole.

    A bare time such as "at 7am" is every day for a frequency, and the next time otherwise. BadInput for a moment that has passed.
    """
    said = " ".join(said.split())
    if not said:
        raise BadInput("a schedule needs a time", hint="say when, such as: every weekday at 7am")
    if len(said) > MAX_CHARS:
        raise BadInput(f"a time of {len(said)} characters", hint=f"say it in at most {MAX_CHARS}")
    zone = zones.require(zone)
    try:
        return timing.simple(said, zone)
    except BadInput:
        if CRON.fullmatch(said):  # no words that a model could judge
            raise
    plain = normal(said)
    if (rule := _compile(plain, now_ms, zone, is_frequency)) is not None:
        return rule
    if (split := TAIL.match(plain)) is not None and (head := _compile(split["head"], now_ms, zone, is_frequency)) is not None:
        if (narrowed := _narrowed(split, now_ms, zone, is_frequency)) is not None:
            return narrowed
        if head.kind in ("cron", "cadence", "interval") and not CLOCKED.search(split["tail"]):
            return replace(head, condition=said)
    return timing.text(said, zone)


def split(said: str, now_ms: int, zone: str = LOCAL) -> tuple[str, str]:
    """What a text says, and the words of it at its end or beginning that say when; "" for the second where none do."""
    said = REMIND.sub("", " ".join(said.split()).rstrip(" .!"))
    words = said.split(" ")
    count, most = len(words), min(len(words) - 1, MAX_WORDS)
    cuts = [(words[:i], words[i:]) for i in range(count - most, count)] + [(words[i:], words[:i]) for i in range(most, 0, -1)]
    for rest, when in cuts:
        if _compile(normal(" ".join(when)), now_ms, zone, False) is not None:
            what = re.sub(r"^(?:to|that|about)\s+", "", REMIND.sub("", " ".join(rest).strip(" ,")), flags=re.IGNORECASE)
            return what, " ".join(when).strip(" ,")
    return said, ""


def _narrowed(split: "re.Match[str]", now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """The rule without the days, months or hours that its tail takes away; None when that is not all the tail says."""
    found, is_only = EXCEPT.match(split["tail"]), False
    if found is None:
        found, is_only = ONLY.match(split["tail"]), True
    if found is None:
        return None
    try:
        kept = parse(split["head"], now_ms, zone)
        less = parse(found["what"], now_ms, zone)
    except (Unread, ValueError, OverflowError):
        return None
    if not kept.times and not kept.part:  # every day except Sunday at 8pm
        kept.times, kept.part, less.times, less.part = less.times, less.part, [], ""
    is_stepped = kept.step is not None and kept.step != (1, "d") and kept.step[1] not in ("mi", "h")
    is_odd = is_stepped or kept.ordinals or kept.dates or kept.date
    if replace(less, days=set(), months=set(), is_repeated=False) != Reading(less.now) or is_odd:
        return None
    days, months = kept.days or set(range(7)), kept.months or set(range(1, 13))
    if less.days:
        kept.days = days & less.days if is_only else days - less.days
    if less.months:
        kept.months = months & less.months if is_only else months - less.months
    kept.is_repeated = True
    if not (less.days or less.months) or (less.days and not kept.days) or (less.months and not kept.months):
        return None
    try:
        return _built(kept, now_ms, zone, is_frequency)
    except Unread:
        return None


def _compile(plain: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    try:
        return _built(parse(plain, now_ms, zone), now_ms, zone, is_frequency)
    except Unread:
        return None
    except (ValueError, OverflowError):
        raise BadInput(f"{plain!r} is too far away", hint="say an earlier time") from None


# -- from words to a rule -----------------------------------------------------------------------------


def _built(reading: Reading, now_ms: int, zone: str, is_frequency: bool) -> Rule:
    zone = reading.zone or zone
    if reading.zone:
        reading.now = datetime.fromtimestamp(now_ms / 1000, zones.find(zone)).replace(tzinfo=None)
    is_loose = not (reading.is_repeated or reading.span_s is not None or reading.date or reading.dates or reading.months)
    has_when = bool(reading.times or reading.part)
    if not is_frequency and is_loose and (reading.days or has_when):
        return _single(reading, zone, _nearest(reading))
    if reading.span_s is not None:
        return _in_a_while(reading, now_ms, zone)
    if reading.date is not None:
        if reading.is_repeated or reading.days or reading.dates or reading.step or reading.window:
            raise Unread
        return _single(reading, zone, reading.date)
    if not is_frequency and reading.dates and not reading.is_repeated:
        return _single(reading, zone, _date_ahead(reading))
    if is_loose and not reading.days and not has_when:
        raise Unread
    return _repeated(reading, zone)


def _in_a_while(reading: Reading, now_ms: int, zone: str) -> Rule:
    others = replace(reading, span_s=None, span_months=0, times=[], part="", zone="")
    assert reading.span_s is not None
    if reading.span_months > MAX_MONTHS:
        raise OverflowError
    has_time = bool(reading.times or reading.part)
    if others != Reading(reading.now) or (has_time and reading.span_s % 86_400):
        raise Unread
    if not has_time and not reading.span_months:
        return timing.once(now_ms + reading.span_s * 1000, zone)
    first = int(reading.now.replace(tzinfo=zones.find(zone)).timestamp() * 1000)
    step = timing.cadence(f"{reading.span_months} months", first, 0, zone) if reading.span_months else None
    moment = timing.after(step, first) if step is not None else first
    assert moment is not None
    day = datetime.fromtimestamp(moment / 1000, zones.find(zone)).replace(tzinfo=None) + timedelta(seconds=reading.span_s)
    if not has_time:
        return _moment(day, zone)
    return _single(reading, zone, day)


def _single(reading: Reading, zone: str, day: datetime) -> Rule:
    """Once, on one day."""
    times = _times(reading)
    if len(times) != 1 or reading.window or reading.minute is not None or reading.ordinals:
        raise Unread
    return _moment(day.replace(hour=times[0][0], minute=times[0][1], second=0, microsecond=0), zone, reading.now)


def _moment(local: datetime, zone: str, now: datetime | None = None) -> Rule:
    if now is not None and local <= now:
        if local.date() == now.date():
            raise BadInput(f"{local:%H:%M} today has passed", hint="say tomorrow, or a later time")
        raise BadInput(f"{local:%Y-%m-%d %H:%M} has passed", hint="say a later time")
    return timing.once(int(local.replace(tzinfo=zones.find(zone)).timestamp() * 1000), zone)


def _nearest(reading: Reading) -> datetime:
    """The next day on which the time, on one of the days of the week, is still to come."""
    times = _times(reading)
    for ahead in range(8):
        day = reading.now + timedelta(days=ahead)
        fits = not reading.days or (day.isoweekday() % 7) in reading.days
        if fits and day.replace(hour=times[0][0], minute=times[0][1], second=0, microsecond=0) > reading.now:
            return day
    raise Unread


def _date_ahead(reading: Reading) -> datetime:
    if len(reading.dates) != 1 or not next(iter(reading.dates)).isdigit() or reading.months:
        raise Unread
    times, day = _times(reading), int(next(iter(reading.dates)))
    month = reading.now.replace(day=1)
    for _ in range(13):
        try:
            date = month.replace(day=day, hour=times[0][0], minute=times[0][1], second=0, microsecond=0)
            if date > reading.now:
                return date
        except ValueError:
            pass
        month = (month + timedelta(days=32)).replace(day=1)
    raise Unread


def _repeated(reading: Reading, zone: str) -> Rule:
    count, unit = reading.step or (1, "d")
    if reading.minute is not None:
        if (count, unit) != (1, "h") or reading.times:
            raise Unread
        hours = f"{reading.window[0][0]}-{reading.window[1][0]}" if reading.window else "*"
        return _cron(reading, [(str(reading.minute), hours)], zone)
    if unit in ("s", "mi", "h"):
        return _within_day(reading, count * SECONDS[unit], zone)
    if reading.window is not None:
        raise Unread
    times = _times(reading)
    if unit == "d" and count == 1:
        return _cron(reading, _lines(times), zone)
    if unit == "w" and count == 1:
        reading.days = reading.days or {1}
        return _cron(reading, _lines(times), zone)
    if unit == "mo" and count == 1:
        if not (reading.dates or reading.ordinals):
            if reading.days:
                raise Unread
            reading.dates.add("1")
        return _cron(reading, _lines(times), zone)
    if unit == "y" and count == 1:
        reading.months = reading.months or {1}
        reading.dates = reading.dates or ({"1"} if not (reading.ordinals or reading.days) else set())
        return _cron(reading, _lines(times), zone)
    return _stepped(reading, count, unit, times, zone)


def _within_day(reading: Reading, step_s: int, zone: str) -> Rule:
    """Every so many minutes or hours: an interval, or the times of day when there is a window or days."""
    if reading.times or reading.part:
        raise Unread
    is_bounded = reading.window or reading.days or reading.months or reading.dates or reading.ordinals
    if not is_bounded:
        return timing.interval(step_s, zone)
    if step_s % 60 or step_s > 86_400:
        raise Unread
    first, last = reading.window or ((0, 0), (23, 59))
    minutes = range(first[0] * 60 + first[1], last[0] * 60 + last[1] + 1, step_s // 60)
    return _cron(reading, _lines([divmod(minute, 60) for minute in minutes]), zone)


def _stepped(reading: Reading, count: int, unit: str, times: list[tuple[int, int]], zone: str) -> Rule:
    """Every so many days, weeks or months: steps from the first day that fits."""
    if len(times) != 1 or reading.ordinals or reading.months or len(reading.days) > 1 or len(reading.dates) > 1:
        raise Unread
    if unit == "f":
        count, unit = count * 2, "w"
    if unit == "y":
        count, unit = count * 12, "mo"
    if (reading.days and unit != "w") or (reading.dates and unit != "mo"):
        raise Unread
    first = reading.now.replace(hour=times[0][0], minute=times[0][1], second=0, microsecond=0)
    if reading.days:
        first = next_day(first - timedelta(days=1), next(iter(reading.days)))
    if reading.dates:
        if not (date := next(iter(reading.dates))).isdigit() or int(date) > 28:
            raise Unread
        first = first.replace(day=int(date))
        if first <= reading.now:
            first = (first.replace(day=1) + timedelta(days=32)).replace(day=int(date))
    elif first <= reading.now:
        first += timedelta(days=7 if reading.days else 1)
    words = {"d": "days", "w": "weeks", "mo": "months"}
    step = "biweekly" if (count, unit) == (2, "w") else f"{count} {words[unit]}"
    return timing.cadence(step, int(first.replace(tzinfo=zones.find(zone)).timestamp() * 1000), 0, zone)


def _lines(times: list[tuple[int, int]]) -> list[tuple[str, str]]:
    """Minute and hour fields of cron for times of day, as few lines as there are sets of minutes."""
    by_hour: dict[int, set[int]] = {}
    for hour, minute in times:
        by_hour.setdefault(hour, set()).add(minute)
    by_minutes: dict[tuple[int, ...], list[int]] = {}
    for hour, minutes in sorted(by_hour.items()):
        by_minutes.setdefault(tuple(sorted(minutes)), []).append(hour)
    return [(_field(list(minutes)), _field(hours)) for minutes, hours in by_minutes.items()]


def _field(values: list[int]) -> str:
    """Numbers as cron writes them: 9-17, 0-20/5, or one by one."""
    if len(values) > 2 and len(steps := {b - a for a, b in zip(values, values[1:], strict=False)}) == 1:
        step = steps.pop()
        return f"{values[0]}-{values[-1]}" + (f"/{step}" if step > 1 else "")
    return ",".join(map(str, values))


def _cron(reading: Reading, lines: list[tuple[str, str]], zone: str) -> Rule:
    months = _field(sorted(reading.months)) if reading.months and len(reading.months) < 12 else "*"
    if reading.date is not None or (reading.dates and (reading.days or reading.ordinals)) or (reading.ordinals and reading.days):
        raise Unread
    when = ",".join(sorted(reading.dates, key=lambda d: (not d.isdigit(), int(d) if d.isdigit() else 0))) or "*"
    days = ",".join(sorted(reading.ordinals)) or (_field(sorted(reading.days)) if 0 < len(reading.days) < 7 else "*")
    try:
        return timing.cron(" ; ".join(f"{minute} {hour} {when} {months} {days}" for minute, hour in lines), zone)
    except BadInput:
        raise Unread from None


def _times(reading: Reading) -> list[tuple[int, int]]:
    """The times of day that were named, or those that the part of the day or nothing at all means."""
    part = reading.part.rstrip("s") if reading.part not in DAYPARTS else reading.part
    found = []
    for hour, minute in reading.times:
        if minute < 0:  # a bare hour
            is_late = part in ("afternoon", "evening", "night", "dinner") and 1 <= hour < 12
            hour, minute = (hour + 12 if is_late else hour), 0
        elif part in ("afternoon", "evening", "night") and hour < 12 and hour >= 1:
            hour += 12
        elif part == "morning" and hour >= 12:
            raise Unread
        found.append((hour, minute))
    return list(dict.fromkeys(found)) or [DAYPARTS.get(part, (MORNING_H, 0))]
