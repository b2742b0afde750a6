"""English about time, read as a rule: "every weekday at 7am", "in 20 minutes", "last Friday of the month at 5pm".

A text is a rule only when every word of it was understood (`language.times.english_idioms`). What follows "unless", "until" and
the like stays a condition, if it does not only take days or months away: the rest says when it is to be judged.
Anything else is refused, with the nearest time that it may have been meant as; only what asks for it ("judged: every full
moon") is a `text` rule, which a model judges. So a rule never says more than what was written. Times of day
that are left out are those of `DAYPARTS`, and `MORNING_H` where there is no hint at all. Pure: the present moment is
an argument.
"""

import re
from dataclasses import replace as replace_dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language.times import english_spelling, english_times, recurrence, timezones
from appliance.language.times.english_idioms import SECONDS, Reading, next_day, parse
from appliance.language.times.english_times import CLOCK, UNIT, Unread, normal
from appliance.language.times.recurrence import Rule
from appliance.language.times.timezones import LOCAL

CONDITION = (
    r"unless|except|excluding|apart from|other than|but (?:not|only|skip)|only if|only when|only on|if|when|whenever|while|"
    r"as long as|provided|until|till|starting|beginning|from now|skip(?:ping)?|not on|without"
)
TAIL = re.compile(rf"^(?P<head>.*?),? \(?(?P<tail>(?:{CONDITION})\b.*?)\)?$")
EXCEPT = re.compile(
    r"^(?:except(?: for)?|excluding|apart from|other than|but not|but skip|skip(?:ping)?|not on)(?: on| in| the)* (?P<what>.*)$"
)
ONLY = re.compile(r"^(?:but only|only) on (?P<what>.*)$")
CRON = re.compile(r"(?=.*[\d*])(?:[\d*/,#LW-]+|[A-Z]{3}(?:[-,][A-Z]{3})*)(?: (?:[\d*/,#LW-]+|[A-Z]{3}(?:[-,][A-Z]{3})*)){4}", re.I)
STARS = re.compile(r"(?:^|\s)(?:\*|\*/\d+)(?:\s|$)")  # of cron, with too many fields or too few
MACROS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}
MACROS |= {"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
# Words that leave nothing to judge when there are no others.
EMPTY = {*"every each at on in by from to and or until till between the of am pm once a an st nd rd th o clock".split()}
BOTH = re.compile(r"(?:,? and|[,;&]|,? then) ")
MAX_CHARS = 500
MAX_MONTHS = 1200  # of "in ... years"
EARLY_H = 6  # until then it is still last night
MAX_CUTS = 12  # places at which a text may be two
JUDGED = re.compile(
    r"^(?:judged?(?: by (?:a|the) model)?\s*[:,]|(?:when|if) (?:a|the) model judges(?: that)?:?)\s+(?P<what>\S.*)$", re.I
)
BACKWARDS = re.compile(rf"(?<![\w-])(?:-|minus )\d+(?:\.\d+)? ?{UNIT}\b|\b(?:every|each|in|after) 0 {UNIT}\b")
GONE = re.compile(rf"\b(?:yesterday|the day before yesterday|last (?:night|week|month|year)|\d+ {UNIT} ago)(?!['\w])")
EXAMPLES = "say when, such as: every weekday at 7am, in 20 minutes"
LATER = "say when it is to be, such as: tomorrow at noon, every Monday at 9"
CLOCKED = re.compile(rf"\b(?:at|by) \d|\b{CLOCK}")


def read(said: str, now_ms: int, zone: str = LOCAL, *, is_frequency: bool = True) -> Rule:
    """What a text means: a rule, a rule with a condition, or, where it asks for that, a `text` that is judged as a whole.

    A bare time such as "at 7am" is every day for a frequency, and the next time otherwise. BadInput for a moment that has
    passed, and for what is no time, with what may have been meant.
    """
    said = " ".join(said.split())
    if not said:
        raise BadInput("a schedule needs a time", hint="say when, such as: every weekday at 7am")
    if len(said) > MAX_CHARS:
        raise BadInput(f"a time of {len(said)} characters", hint=f"say it in at most {MAX_CHARS}")
    zone = timezones.require(zone)
    if (asked := JUDGED.match(said)) is not None:
        return recurrence.text(asked["what"], zone)
    if said.lower() in MACROS:
        return recurrence.cron(MACROS[said.lower()], zone)
    try:
        return recurrence.simple(said, zone)
    except BadInput:
        if CRON.fullmatch(said) or STARS.search(said) or re.match("@[A-Za-z]", said):  # no words that a model could judge
            raise
    plain = normal(said)
    if (rule := compiled(said, now_ms, zone, is_frequency=is_frequency)) is not None:
        return rule
    if wrong := english_times.impossible(plain):
        raise BadInput(f"there is no {wrong}", hint="say a time such as 7:30 or 5pm, and a day that the calendar has")
    require_ahead(plain)
    if (rule := _compile_condition(said, plain, now_ms, zone, is_frequency)) is not None:
        return rule
    meant = english_spelling.mended(said)
    if meant != said and _is_rule(meant, now_ms, zone, is_frequency):
        raise BadInput(f"{said!r} is no time that is known", hint=f"did you mean: {meant}")
    if EMPTY.issuperset(re.findall(r"[^\W\d_]+", plain)):
        raise BadInput(f"{said!r} names no time", hint=f"{EXAMPLES}, 24 December at 6pm")
    judged = f"; or have a model judge it: judged: {said}" if is_frequency else ""
    raise BadInput(f"no rule says when {said!r} is", hint=f"{EXAMPLES}, tomorrow at noon{judged}")


def require_ahead(plain: str) -> None:
    """BadInput for a text that says when it was, or counts backwards."""
    if found := BACKWARDS.search(plain):
        raise BadInput(f"{found[0]!r} is no time to come", hint="say how often, or in how long, such as: every 5 minutes")
    if found := GONE.search(plain):
        raise BadInput(f"{found[0]} has passed", hint=LATER)


def _compile_condition(said: str, plain: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """A rule with a condition, which a model judges at its times; or without the days that it takes away."""
    if (split := TAIL.match(plain)) is None or (head := _compile_plain(split["head"], now_ms, zone, is_frequency)) is None:
        return None
    if (narrowed := _compile_narrowed(split, now_ms, zone, is_frequency)) is not None:
        return narrowed
    is_free = head.kind in ("cron", "cadence", "interval") and not CLOCKED.search(split["tail"])
    return replace(head, condition=said) if is_free else None


def _is_rule(said: str, now_ms: int, zone: str, is_frequency: bool) -> bool:
    """Whether a text is a rule, if only one whose moment has passed."""
    try:
        known = compiled(said, now_ms, zone, is_frequency=is_frequency)
        return known is not None or _compile_condition(said, normal(said), now_ms, zone, is_frequency) is not None
    except BadInput:
        return True


def compiled(said: str, now_ms: int, zone: str = LOCAL, *, is_frequency: bool = False) -> Rule | None:
    """The rule that a text is, without any model; None when it is none."""
    plain = normal(said)
    return _compile_plain(plain, now_ms, zone, is_frequency) or _compile_halves(plain, now_ms, zone, is_frequency)


def _compile_narrowed(split: "re.Match[str]", now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
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
    if replace_dataclass(less, days=set(), months=set(), is_repeated=False) != Reading(less.now) or is_odd:
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
        return _build_rule(kept, now_ms, zone, is_frequency)
    except Unread:
        return None


def _compile_plain(plain: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    try:
        return _build_rule(parse(plain, now_ms, zone), now_ms, zone, is_frequency)
    except Unread:
        return None
    except (ValueError, OverflowError):
        raise BadInput(f"{plain!r} is too far away", hint="say an earlier time") from None


def _compile_halves(plain: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """Weekdays at 8 and weekends at 10: rules in one, each with times of its own, which all are said in the same order."""
    found: list[tuple[Rule, str]] = []
    end = len(plain)
    for cut in reversed([*BOTH.finditer(plain)][:MAX_CUTS]):
        half = _compile_half(plain[cut.end() : end], now_ms, zone, True)
        if half is not None and all(half[1] == order for _, order in found):
            found, end = [half, *found], cut.start()
    first = _compile_half(plain[:end], now_ms, zone, is_frequency) if found else None
    if first is None or any(rule.zone != first[0].zone or order != first[1] for rule, order in found):
        return None
    try:
        return recurrence.cron(recurrence.BETWEEN.join(rule.spec for rule, _ in [first, *found]), first[0].zone)
    except BadInput:
        return None


def _compile_half(plain: str, now_ms: int, zone: str, is_frequency: bool) -> tuple[Rule, str] | None:
    """One of several rules, and the order of its words; None for what names no time of day."""
    plain = f"at {plain}" if plain[:1].isdigit() else plain
    try:
        reading = parse(plain, now_ms, zone)
        rule = _build_rule(reading, now_ms, zone, is_frequency)
    except (Unread, BadInput, ValueError, OverflowError):
        return None
    return (rule, reading.order) if rule.kind == "cron" and "T" in reading.order else None


# -- from words to a rule -----------------------------------------------------------------------------


def _build_rule(reading: Reading, now_ms: int, zone: str, is_frequency: bool) -> Rule:
    zone = reading.zone or zone
    if reading.zone:
        reading.now = datetime.fromtimestamp(now_ms / 1000, timezones.find(zone)).replace(tzinfo=None)
    if reading.is_once and (reading.is_repeated or reading.step):
        raise Unread
    is_frequency = is_frequency and not reading.is_once
    if reading.month_day and reading.step == (1, "y"):  # 5 June every year
        month, day = reading.month_day
        reading.date, reading.months, reading.dates = None, {month}, {str(day)}
    is_loose = not (reading.is_repeated or reading.span_s is not None or reading.date or reading.dates or reading.months)
    has_when = bool(reading.times or reading.part)
    if not is_frequency and is_loose and (reading.days or has_when):
        return _nearest_rule(reading, zone)
    if reading.span_s is not None:
        return _in_a_while(reading, now_ms, zone)
    if reading.date is not None:
        if reading.is_repeated or reading.days or reading.dates or reading.step or reading.window:
            raise Unread
        return _single_rule(reading, zone, reading.date)
    if not is_frequency and reading.dates and not reading.is_repeated:
        return _date_ahead(reading, zone)
    if not is_frequency and len(reading.months) == 1 and reading == Reading(reading.now, months=reading.months):
        return _month_ahead(reading, zone)
    if is_loose and not reading.days and not has_when:
        raise Unread
    return _repeated_rule(reading, zone)


def _in_a_while(reading: Reading, now_ms: int, zone: str) -> Rule:
    others = replace_dataclass(reading, span_s=None, span_months=0, times=[], part="", zone="", is_once=False)
    assert reading.span_s is not None
    if reading.span_months > MAX_MONTHS:
        raise OverflowError
    has_time = bool(reading.times or reading.part)
    if others != Reading(reading.now) or (has_time and reading.span_s % 86_400):
        raise Unread
    if not has_time and not reading.span_months:
        return recurrence.once(now_ms + reading.span_s * 1000, zone)
    first = int(reading.now.replace(tzinfo=timezones.find(zone)).timestamp() * 1000)
    step = recurrence.cadence(f"{reading.span_months} months", first, 0, zone) if reading.span_months else None
    moment = recurrence.after(step, first) if step is not None else first
    assert moment is not None
    day = datetime.fromtimestamp(moment / 1000, timezones.find(zone)).replace(tzinfo=None) + timedelta(seconds=reading.span_s)
    if not has_time:
        return _moment_rule(day, zone)
    return _single_rule(reading, zone, day)


def _single_rule(reading: Reading, zone: str, day: datetime) -> Rule:
    """Once, on one day; what is said of tonight may be behind midnight."""
    if reading.window or reading.minute is not None or reading.ordinals or reading.anchor is not None:
        raise Unread
    if reading.is_today and not (reading.times or reading.part) and day.date() == reading.now.date():
        raise BadInput("today has many times", hint="say which, such as: today at 6pm, in 20 minutes")
    times = _named_times(reading)
    if len(times) != 1:
        raise BadInput("several times of one day", hint="say one of them at a time, or every day at 9 and 17")
    hour, minute = times[0]
    if reading.is_today and reading.times:
        is_midnight = (hour, minute) == (0, 0)
        is_loose = reading.times[0].is_loose and not reading.part and hour < 12
        if is_midnight or (is_loose and day.replace(hour=hour, minute=minute, second=0, microsecond=0) <= reading.now):
            hour += 24 if is_midnight else 12
        elif hour >= 24 and reading.now.hour < EARLY_H:  # tonight at 2, said at 1
            hour -= 24
    return _moment_rule(_at_time(day, hour, minute), zone, reading.now)


def _at_time(day: datetime, hour: int, minute: int) -> datetime:
    return day.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=hour, minutes=minute)


def _moment_rule(local: datetime, zone: str, now: datetime | None = None) -> Rule:
    if now is not None and local <= now:
        if local.date() == now.date():
            raise BadInput(f"{local:%H:%M} today has passed", hint="say tomorrow, or a later time")
        raise BadInput(f"{local:%Y-%m-%d %H:%M} has passed", hint="say a later time")
    return recurrence.once(int(local.replace(tzinfo=timezones.find(zone)).timestamp() * 1000), zone)


def _nearest_rule(reading: Reading, zone: str) -> Rule:
    """The next moment at which the time, on that day of the week, is still to come: an hour with nothing said may be either."""
    times = _named_times(reading)
    if len(reading.days) > 1 or len(times) > 1:
        what = "days" if len(reading.days) > 1 else "times"
        raise BadInput(
            f"{what} of which only one can be next", hint="say one of them, or every such as: every Monday and Friday at 9"
        )
    if reading.window or reading.step or reading.minute is not None or reading.ordinals or reading.anchor is not None:
        raise Unread
    hours = [times[0][0]]
    if not reading.days and not reading.part and reading.times[0].is_loose and hours[0] < 12:
        hours.append(hours[0] + 12)
    for ahead in range(-1, 8):  # last night goes on until the morning
        for hour in hours:
            day = reading.now + timedelta(days=ahead)
            fits = not reading.days or (day.isoweekday() % 7) in reading.days
            if fits and (local := _at_time(day, hour, times[0][1])) > reading.now:
                return _moment_rule(local, zone)
    raise Unread


def _date_ahead(reading: Reading, zone: str) -> Rule:
    if len(reading.dates) != 1 or not next(iter(reading.dates)).isdecimal() or reading.months:
        raise Unread
    month, day = reading.now.replace(day=1), int(next(iter(reading.dates)))
    for _ in range(13):
        try:
            return _single_rule(reading, zone, month.replace(day=day))
        except (ValueError, BadInput):
            month = (month + timedelta(days=32)).replace(day=1)
    raise Unread


def _month_ahead(reading: Reading, zone: str) -> Rule:
    """In May: its first day."""
    first = reading.now.replace(day=1, month=next(iter(reading.months)))
    try:
        return _single_rule(reading, zone, first)
    except BadInput:
        return _single_rule(reading, zone, first.replace(year=first.year + 1))


def _repeated_rule(reading: Reading, zone: str) -> Rule:
    count, unit = reading.step or (1, "d")
    if reading.minute is not None:
        if (count, unit) != (1, "h") or reading.times:
            raise Unread
        hours = f"{reading.window[0] // 60}-{reading.window[1] // 60}" if reading.window else "*"
        return _cron_rule(reading, [(str(reading.minute), hours)], zone)
    if unit in ("s", "mi", "h"):
        return _within_day(reading, count * SECONDS[unit], zone)
    if reading.window is not None or reading.anchor is not None:
        raise Unread
    if reading.months and not (reading.is_repeated or reading.step or reading.days or reading.dates or reading.ordinals):
        raise Unread  # in June: on which of its days?
    times = _behind_midnight(reading, _named_times(reading))
    if unit == "d" and count == 1:
        return _cron_rule(reading, _cron_fields(times), zone)
    if unit == "w" and count == 1:
        reading.days = reading.days or {1}
        return _cron_rule(reading, _cron_fields(times), zone)
    if unit == "mo" and count == 1:
        if not (reading.dates or reading.ordinals):
            if reading.days:
                raise Unread
            reading.dates.add("1")
        return _cron_rule(reading, _cron_fields(times), zone)
    if unit == "y" and count == 1:
        reading.months = reading.months or {1}
        reading.dates = reading.dates or ({"1"} if not (reading.ordinals or reading.days) else set())
        return _cron_rule(reading, _cron_fields(times), zone)
    return _stepped_rule(reading, count, unit, times, zone)


def _within_day(reading: Reading, step_s: int, zone: str) -> Rule:
    """Every so many minutes or hours: an interval, or the times of day when there is a window or days."""
    if reading.times or reading.part:
        raise Unread
    is_bounded = reading.window or reading.days or reading.months or reading.dates or reading.ordinals
    if reading.anchor is not None:
        if reading.window or step_s % 60 or 86_400 % step_s:
            raise Unread
        reading.window = (reading.anchor % (step_s // 60), 24 * 60 - 1)
    elif not is_bounded:
        return recurrence.interval(step_s, zone)
    if step_s % 60 or step_s > 86_400:
        raise Unread
    first, last = reading.window or (0, 24 * 60 - 1)
    if last >= 24 * 60 and (reading.days or reading.dates or reading.ordinals):
        raise Unread  # the hours behind midnight: of which day?
    minutes = sorted({minute % (24 * 60) for minute in range(first, last + 1, step_s // 60)})
    return _cron_rule(reading, _cron_fields([divmod(minute, 60) for minute in minutes]), zone)


def _behind_midnight(reading: Reading, times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Saturday night at 1 is Sunday at 01:00."""
    late = [hour >= 24 for hour, _ in times]
    if any(late) and reading.days:
        if not all(late):
            raise Unread
        reading.days = {(day + 1) % 7 for day in reading.days}
    elif any(late) and (reading.dates or reading.ordinals or reading.months):
        raise Unread
    return sorted((hour % 24, minute) for hour, minute in times) if any(late) else times


def _stepped_rule(reading: Reading, count: int, unit: str, times: list[tuple[int, int]], zone: str) -> Rule:
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
        if not (date := next(iter(reading.dates))).isdecimal() or int(date) > 28:
            raise Unread
        first = first.replace(day=int(date))
        if first <= reading.now:
            first = (first.replace(day=1) + timedelta(days=32)).replace(day=int(date))
    elif first <= reading.now:
        first += timedelta(days=7 if reading.days else 1)
    words = {"d": "days", "w": "weeks", "mo": "months"}
    step = "biweekly" if (count, unit) == (2, "w") else f"{count} {words[unit]}"
    return recurrence.cadence(step, int(first.replace(tzinfo=timezones.find(zone)).timestamp() * 1000), 0, zone)


def _cron_fields(times: list[tuple[int, int]]) -> list[tuple[str, str]]:
    """Minute and hour fields of cron for times of day, as few lines as there are sets of minutes."""
    by_hour: dict[int, set[int]] = {}
    for hour, minute in times:
        by_hour.setdefault(hour, set()).add(minute)
    by_minutes: dict[tuple[int, ...], list[int]] = {}
    for hour, minutes in sorted(by_hour.items()):
        by_minutes.setdefault(tuple(sorted(minutes)), []).append(hour)
    return [(_cron_field(list(minutes)), _cron_field(hours)) for minutes, hours in by_minutes.items()]


def _cron_field(values: list[int]) -> str:
    """Numbers as cron writes them: 9-17, 0-20/5, or one by one."""
    if len(values) > 2 and len(steps := {b - a for a, b in zip(values, values[1:], strict=False)}) == 1:
        step = steps.pop()
        return f"{values[0]}-{values[-1]}" + (f"/{step}" if step > 1 else "")
    return ",".join(map(str, values))


def _cron_rule(reading: Reading, lines: list[tuple[str, str]], zone: str) -> Rule:
    months = _cron_field(sorted(reading.months)) if reading.months and len(reading.months) < 12 else "*"
    if reading.date is not None or (reading.dates and (reading.days or reading.ordinals)) or (reading.ordinals and reading.days):
        raise Unread
    when = ",".join(sorted(reading.dates, key=lambda d: (not d.isdecimal(), int(d) if d.isdecimal() else 0))) or "*"
    days = ",".join(sorted(reading.ordinals)) or (_cron_field(sorted(reading.days)) if 0 < len(reading.days) < 7 else "*")
    try:
        return recurrence.cron(" ; ".join(f"{minute} {hour} {when} {months} {days}" for minute, hour in lines), zone)
    except BadInput:
        raise Unread from None


def _named_times(reading: Reading) -> list[tuple[int, int]]:
    """The times of day that were named, or those that the part of the day or nothing at all means; 24 and more: a day later."""
    return english_times.within(reading.times, reading.part)
