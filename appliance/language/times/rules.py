"""From what a text says about when to the rule that it means: moments, intervals, lines of cron, calendar steps.

Times of day that are left out are those of `DAYPARTS`, and `MORNING_H` where there is no hint at all. Which hours times of day mean
that were said is known once the whole text is: "at 7" is 19:00 in the evening, "12" at night is midnight, "8 and 9pm" are both in
the evening. What contradicts itself, such as 9am in the evening, or what no rule says, is `Unread`; a moment that has passed is
`BadInput`. Knows no words. Pure.
"""

from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from itertools import product

from appliance.errors import BadInput
from appliance.language.times import recurrence, timezones
from appliance.language.times.readings import TimeReading, moved, next_day
from appliance.language.times.recurrence import Rule
from appliance.language.times.reductions import SECONDS, Time, UnclearTime, Unread

MAX_MONTHS = 1200  # of "in ... years"
PER_DAY = {2: (9, 18), 3: (8, 13, 18), 4: (8, 12, 16, 20)}  # hours, where something is wanted so often and no time is named
EARLY_H = 6  # until then it is still last night
AFTERNOON = range(1, 6)  # hours with nothing else said at which hardly anybody has something to do at night
STEP_UNITS = {"day": "days", "week": "weeks", "month": "months"}
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


def build(reading: TimeReading, zone: str, is_frequency: bool) -> Rule:
    """The rule of what was read; a bare time is every day for a frequency, and the next one otherwise."""
    if reading.is_open:
        raise UnclearTime("only_one")
    if reading.times_a_day:
        _place_times(reading)
    if reading.end is not None or reading.lasting is not None:
        return _ended(reading, zone, is_frequency)
    if reading.shift is not None or (reading.is_once and (reading.is_repeated or reading.step)):
        raise Unread
    is_frequency = is_frequency and not reading.is_once
    if reading.month_day and reading.step == (1, "year"):  # 5 June every year
        month, day = reading.month_day
        reading.date, reading.months, reading.dates = None, {month}, {str(day)}
    is_single = not (is_frequency or reading.is_repeated or reading.step)
    if is_single and reading.months and (reading.ordinals or {"L", "LW"} & reading.dates):
        _place_in_month(reading)
    place_days(reading)
    is_loose = not (reading.is_repeated or reading.length is not None or reading.date or reading.dates or reading.months)
    has_when = bool(reading.times or reading.part)
    if not is_frequency and not (is_loose and not reading.days):
        reading.times = after_noon(reading)
    if not is_frequency and is_loose and (reading.days or has_when):
        return _nearest_rule(reading, zone)
    if reading.length is not None:
        return _in_a_while(reading, zone)
    if reading.date is not None:
        is_odd = reading.is_repeated or reading.dates or reading.step or reading.window or reading.ordinals
        if is_odd or reading.months - {reading.date.month} or not is_that_day(reading):
            raise Unread
        return _single_rule(reading, zone, reading.date)
    if not is_frequency and reading.dates and not reading.is_repeated:
        return _date_ahead(reading, zone)
    if not is_frequency and len(reading.months) == 1 and reading == TimeReading(reading.now, months=reading.months):
        return _month_ahead(reading, zone)
    if is_loose and not reading.days and not has_when:
        raise Unread
    if any(time.second for time in reading.times):
        raise Unread
    return _from_start(_repeated_rule(reading, zone), reading, zone)


def _ended(reading: TimeReading, zone: str, is_frequency: bool) -> Rule:
    """A rule with its end; a bare time, or a day of the week, comes again and again until then."""
    end, lasting = reading.end, reading.lasting
    has_date = reading.length is not None or reading.date or reading.dates or reading.months or reading.month or reading.week
    reading = replace(reading, end=None, lasting=None, is_repeated=reading.is_repeated or not has_date)
    rule = build(reading, zone, is_frequency)
    if rule.kind not in recurrence.REPEATED:
        raise Unread
    place = timezones.find(zone)
    first = recurrence.after(rule, _ms_of(reading.now, place))
    if lasting is not None and first is not None:
        seconds, months = lasting
        end = moved(reading.now, seconds, months)
        if rule.kind != "interval" and (months or seconds % 86_400 == 0):  # whole days, the first of them that of the first time
            day = datetime.fromtimestamp(first / 1000, place).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
            end = moved(day, seconds - 1, months)
    assert end is not None
    made = recurrence.ending(rule, _ms_of(end, place))
    times = recurrence.upcoming(made, _ms_of(reading.now, place), 2)
    if not times or (lasting is not None and len(times) < 2):
        raise Unread  # "for 20 minutes" says how long something takes
    return made


def _ms_of(local: datetime, place: tzinfo) -> int:
    return int(local.replace(tzinfo=place).timestamp() * 1000)


def _from_start(rule: Rule, reading: TimeReading, zone: str) -> Rule:
    """The rule as it is where it begins no earlier than it was said to; else steps from the first day that fits."""
    if reading.start is None:
        return rule
    place = timezones.find(zone)
    day = reading.start.replace(hour=0, minute=0, second=0, microsecond=0)
    start_ms, now_ms = _ms_of(day, place), _ms_of(reading.now, place)
    first = recurrence.after(rule, now_ms) if rule.kind in ("cron", "cadence") else None
    if first is None:
        raise Unread
    if first >= start_ms and rule.kind == "cron":
        return rule
    step = rule.spec.partition(" from ")[0]
    if rule.kind == "cron":
        date, month, weekday = (
            "* * *" if recurrence.BETWEEN in rule.spec or "," in rule.spec else rule.spec.split(" ", 2)[2]
        ).split()
        steps = {(False, False): "daily", (False, True): "weekly", (True, False): "monthly"}
        step = steps.get((date.isdecimal(), weekday.isdecimal()), "")
        is_other = month != "*" or (date != "*" and not date.isdecimal()) or (weekday != "*" and not weekday.isdecimal())
        if not step or is_other or recurrence.BETWEEN in rule.spec or "," in rule.spec or "-" in rule.spec:
            raise Unread
        first = recurrence.after(rule, start_ms - 1)
    else:
        at = datetime.fromtimestamp(first / 1000, place)
        day = next_day(day - timedelta(days=1), next(iter(reading.days))) if reading.days else day
        first = int(_at_time(day, at.hour, at.minute).replace(tzinfo=place).timestamp() * 1000)
    assert first is not None
    return recurrence.cadence(step, first, 0, zone)


def is_that_day(reading: TimeReading) -> bool:
    """Whether a day of the week that was said beside a date is that of the date."""
    assert reading.date is not None
    return not reading.days or reading.days == {reading.date.isoweekday() % 7}


def after_noon(reading: TimeReading) -> list[Time]:
    """Hours that may be in either half of the day: "on Saturday at 2" is 14:00."""
    times = reading.times
    if reading.part or reading.is_today or any(time.half in ("am", "pm") for time in times):
        return times
    return [
        Time(time.hour + 12, time.minute, "24", second=time.second) if time.is_loose and time.hour in AFTERNOON else time
        for time in times
    ]


def place_days(reading: TimeReading) -> None:
    """Puts the day of a week or of a month that was named, such as next month, in its place."""
    if reading.week is not None and reading.month is not None:
        raise Unread
    if reading.week is not None:
        if reading.is_repeated or reading.dates or reading.ordinals or len(reading.days) > 1:
            raise Unread
        day = reading.week
        if reading.days:
            day += timedelta(days=(next(iter(reading.days)) - 1) % 7)
        elif day <= reading.now:
            raise Unread  # this week: on which of its days?
        _set_date(reading, day)
    if reading.month is not None:
        if reading.is_repeated or len(reading.dates) + len(reading.ordinals) > 1 or reading.days:
            raise Unread
        if not (reading.dates or reading.ordinals) and reading.month <= reading.now:
            raise Unread
        _set_date(reading, day_in_month(reading.month, next(iter([*reading.dates, *reading.ordinals]), "1")))
        reading.dates, reading.ordinals = set(), set()
    reading.week = reading.month = None


def _place_in_month(reading: TimeReading) -> None:
    """The second Saturday in December is one day, the next one."""
    which = {*reading.dates, *reading.ordinals}
    if len(which) > 1 or len(reading.months) > 1 or reading.month is not None:
        raise Unread
    first = reading.now.replace(day=1, month=reading.months.pop())
    is_over = day_in_month(first, *which).date() < reading.now.date()
    reading.month = first.replace(year=first.year + is_over)


def _set_date(reading: TimeReading, day: datetime) -> None:
    if reading.date is not None and reading.date.date() != day.date():
        raise Unread
    reading.date = day


def day_in_month(first: datetime, which: str) -> datetime:
    """The day of a month as cron names it: 15, L, LW, 5#3, 5L."""
    last = (first.replace(day=1) + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    if which.isdecimal():
        if int(which) > last.day:
            raise Unread
        return first.replace(day=int(which))
    if which in ("L", "LW"):
        back = max(0, last.isoweekday() - 5) if which == "LW" else 0
        return last - timedelta(days=back)
    if which.endswith("L"):
        return last - timedelta(days=(last.isoweekday() - int(which[0])) % 7)
    day, _, number = which.partition("#")
    start = first.replace(day=1)
    found = start + timedelta(days=(int(day) - start.isoweekday()) % 7 + 7 * (int(number) - 1))
    if found.month != start.month:
        raise Unread
    return found


def _in_a_while(reading: TimeReading, zone: str) -> Rule:
    others = replace(reading, length=None, times=[], part="", zone="", is_once=False)
    assert reading.length is not None
    seconds, months = reading.length
    if months > MAX_MONTHS:
        raise OverflowError
    has_time = bool(reading.times or reading.part)
    if others != TimeReading(reading.now) or (has_time and seconds % 86_400):
        raise Unread
    start = reading.now.replace(tzinfo=timezones.find(zone))
    if not has_time and not months:
        return recurrence.once(int(start.timestamp() * 1000) + int(seconds * 1000), zone, is_counted=True)
    day = moved(reading.now, seconds, months)
    if has_time:
        return _single_rule(reading, zone, day)
    return recurrence.once(int(day.replace(tzinfo=timezones.find(zone)).timestamp() * 1000), zone, is_counted=True)


def _single_rule(reading: TimeReading, zone: str, day: datetime) -> Rule:
    """Once, on one day; what is said of tonight may be behind midnight."""
    if reading.window or reading.minute is not None or reading.ordinals or reading.anchor is not None:
        raise Unread
    if reading.is_today and not (reading.times or reading.part) and day.date() == reading.now.date():
        raise UnclearTime("today")
    times = named_times(reading)
    _require_one_midnight(reading)
    if len(times) != 1:
        raise UnclearTime("only_one")
    hour, minute = times[0]
    if reading.is_today and reading.times:
        is_midnight = (hour, minute) == (0, 0)
        is_loose = reading.times[0].is_loose and not reading.part and hour < 12
        if is_midnight or (is_loose and day.replace(hour=hour, minute=minute, second=0, microsecond=0) <= reading.now):
            hour += 24 if is_midnight else 12
        elif hour >= 24 and reading.now.hour < EARLY_H:  # tonight at 2, said at 1
            hour -= 24
    second = reading.times[0].second if reading.times else 0
    return _moment_rule(_at_time(day, hour, minute, second), zone, reading.now)


def _require_one_midnight(reading: TimeReading) -> None:
    """BadInput for the midnight of a day: that before it, or that behind it?"""
    is_named = any(time.is_written and (time.hour, time.minute) == (0, 0) for time in reading.times)
    if is_named and not reading.is_today and (reading.days or reading.date or reading.dates):
        raise UnclearTime("midnight")


def _at_time(day: datetime, hour: int, minute: int, second: int = 0) -> datetime:
    return day.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=hour, minutes=minute, seconds=second)


def _moment_rule(local: datetime, zone: str, now: datetime | None = None) -> Rule:
    if now is not None and local <= now:
        raise UnclearTime("passed", said=f"{local:%H:%M}" if local.date() == now.date() else f"{local:%Y-%m-%d %H:%M}")
    return recurrence.once(int(local.replace(tzinfo=timezones.find(zone)).timestamp() * 1000), zone)


def _nearest_rule(reading: TimeReading, zone: str) -> Rule:
    """The next moment at which the time, on that day of the week, is still to come: an hour with nothing said may be either."""
    times = named_times(reading)
    _require_one_midnight(reading)
    if len(reading.days) > 1 or len(times) > 1:
        raise UnclearTime("only_one")
    if reading.window or reading.step or reading.minute is not None or reading.ordinals or reading.anchor is not None:
        raise Unread
    hours = [times[0][0]]
    if not reading.days and not reading.part and reading.times[0].is_loose and hours[0] < 12:
        hours.append(hours[0] + 12)
    second = reading.times[0].second if reading.times else 0
    for ahead in range(-1, 8):  # last night goes on until the morning
        for hour in hours:
            day = reading.now + timedelta(days=ahead)
            fits = not reading.days or (day.isoweekday() % 7) in reading.days
            if fits and (local := _at_time(day, hour, times[0][1], second)) > reading.now:
                return _moment_rule(local, zone)
    raise Unread


def _date_ahead(reading: TimeReading, zone: str) -> Rule:
    if len(reading.dates) != 1 or not next(iter(reading.dates)).isdecimal() or reading.months:
        raise Unread
    month, day = reading.now.replace(day=1), int(next(iter(reading.dates)))
    for _ in range(13):
        try:
            rule = _single_rule(reading, zone, at := month.replace(day=day))
        except (ValueError, BadInput):
            month = (month + timedelta(days=32)).replace(day=1)
            continue
        if reading.days and reading.days != {at.isoweekday() % 7}:
            break  # Friday the 6th, which is a Sunday
        return rule
    raise Unread


def _month_ahead(reading: TimeReading, zone: str) -> Rule:
    """In May: its first day."""
    first = reading.now.replace(day=1, month=next(iter(reading.months)))
    try:
        return _single_rule(reading, zone, first)
    except BadInput:
        return _single_rule(reading, zone, first.replace(year=first.year + 1))


def _repeated_rule(reading: TimeReading, zone: str) -> Rule:
    count, unit = reading.step or (1, "day")
    if reading.minute is not None:
        if (count, unit) != (1, "hour") or reading.times:
            raise Unread
        hours = f"{reading.window[0] // 60}-{reading.window[1] // 60}" if reading.window else "*"
        return _cron_rule(reading, [(str(reading.minute), hours)], zone)
    if unit in ("second", "minute", "hour"):
        return _within_day(reading, count * SECONDS[unit], zone)
    if reading.window is not None or reading.anchor is not None:
        raise Unread
    if reading.months and not (reading.is_repeated or reading.step or reading.days or reading.dates or reading.ordinals):
        raise Unread  # in June: on which of its days?
    times = _behind_midnight(reading, named_times(reading))
    if unit == "day" and count == 1:
        return _cron_rule(reading, _cron_fields(times), zone)
    if unit == "week" and count == 1:
        reading.days = reading.days or {1}
        return _cron_rule(reading, _cron_fields(times), zone)
    if unit == "month" and count == 1:
        if not (reading.dates or reading.ordinals):
            if reading.days:
                raise Unread
            reading.dates.add("1")
        return _cron_rule(reading, _cron_fields(times), zone)
    if unit == "year" and count == 1:
        reading.months = reading.months or {1}
        reading.dates = reading.dates or ({"1"} if not (reading.ordinals or reading.days) else set())
        return _cron_rule(reading, _cron_fields(times), zone)
    return _stepped_rule(reading, count, unit, times, zone)


def _within_day(reading: TimeReading, step_s: int, zone: str) -> Rule:
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


def _behind_midnight(reading: TimeReading, times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Saturday night at 1 is Sunday at 01:00."""
    late = [hour >= 24 for hour, _ in times]
    if any(late) and reading.days:
        if not all(late):
            raise Unread
        reading.days = {(day + 1) % 7 for day in reading.days}
    elif any(late) and (reading.dates or reading.ordinals or reading.months):
        raise Unread
    return sorted((hour % 24, minute) for hour, minute in times) if any(late) else times


def _stepped_rule(reading: TimeReading, count: int, unit: str, times: list[tuple[int, int]], zone: str) -> Rule:
    """Every so many days, weeks or months: steps from the first day that fits."""
    if len(times) != 1 or reading.ordinals or reading.months or len(reading.days) > 1 or len(reading.dates) > 1:
        raise Unread
    if unit == "fortnight":
        count, unit = count * 2, "week"
    if unit in ("year", "quarter"):
        count, unit = count * (12 if unit == "year" else 3), "month"
    if (reading.days and unit != "week") or (reading.dates and unit != "month"):
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
    step = "biweekly" if (count, unit) == (2, "week") else f"{count} {STEP_UNITS[unit]}"
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


def _cron_rule(reading: TimeReading, lines: list[tuple[str, str]], zone: str) -> Rule:
    months = _cron_field(sorted(reading.months)) if reading.months and len(reading.months) < 12 else "*"
    if reading.date is not None or (reading.dates and (reading.days or reading.ordinals)) or (reading.ordinals and reading.days):
        raise Unread
    when = ",".join(sorted(reading.dates, key=lambda d: (not d.isdecimal(), int(d) if d.isdecimal() else 0))) or "*"
    days = ",".join(sorted(reading.ordinals)) or (_cron_field(sorted(reading.days)) if 0 < len(reading.days) < 7 else "*")
    try:
        return recurrence.cron(" ; ".join(f"{minute} {hour} {when} {months} {days}" for minute, hour in lines), zone)
    except BadInput:
        raise Unread from None


def _place_times(reading: TimeReading) -> None:
    """The times of day of what comes several times a day: as many as were named, or the usual ones where none was."""
    count, reading.times_a_day = reading.times_a_day, 0
    if not reading.times:
        if count not in PER_DAY:
            raise Unread
        reading.times = [Time(hour, 0, "24") for hour in PER_DAY[count]]
    elif len(reading.times) != count:
        raise UnclearTime("count", count=str(count), named=str(len(reading.times)))


def named_times(reading: TimeReading) -> list[tuple[int, int]]:
    """The times of day that were named, or those that the part of the day or nothing at all means; 24 and more: a day later."""
    times, part = reading.times, reading.part
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
