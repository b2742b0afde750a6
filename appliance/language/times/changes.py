"""A time that is changed: "an hour later", "make it quarter to seven", "better on Friday"; and one beside another day. Pure."""

import re
from datetime import datetime, timedelta

from appliance.errors import BadInput
from appliance.language.times import grammar, moments, readings, recurrence, rules, timezones
from appliance.language.times.clock_times import Time, Unread
from appliance.language.times.frequencies import LATER, without_stop
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.readings import Reading
from appliance.language.times.recurrence import Rule
from appliance.language.times.reductions import reduced
from appliance.language.times.time_expression import TimeExpression
from appliance.language.times.tokenizer import Token, tokens

ONE_TIME = re.compile(r"(\d{1,2}) (\d{1,2}) (.+)")  # a line of cron with one time of day
DAY_S = 86_400


def changed(said: str, lexicon: Lexicon, rule: Rule, next_ms: int, now_ms: int) -> Rule:
    """The rule with another clock, another day or both; what is not said stays. BadInput where that cannot be told."""
    zone = timezones.find(rule.zone)
    now, at = (datetime.fromtimestamp(ms / 1000, zone).replace(tzinfo=None) for ms in (now_ms, next_ms))
    found = without_stop(reduced(tokens(" ".join(said.split()), lexicon)))
    while found and "link" in found[0].kinds:
        found = found[1:]
    if len(found) == 1 and "number" in found[0].kinds and "time" not in found[0].kinds:  # make it 9
        found = [Token(0, 0, {"at": ""}), *found]
    try:
        reading = grammar.parse(found, now)
        made = _shifted(reading, rule, at) if reading.shift is not None else _replaced(reading, rule, at)
        if rule.end_ms is not None and made.kind in recurrence.REPEATED and made.end_ms is None:
            made = recurrence.ending(made, rule.end_ms)
    except (Unread, ValueError, OverflowError):
        raise BadInput(f"{said!r} is no time that is understood", hint=LATER) from None
    if made.kind == "once" and recurrence.at(made) <= now_ms:
        raise BadInput(f"{said!r} has passed", hint="say a later time, such as: tomorrow at noon")
    return made


def _shifted(reading: Reading, rule: Rule, at: datetime) -> Rule:
    assert reading.shift is not None
    seconds, months = reading.shift
    if rule.kind == "once":
        return _once(readings.moved(at, seconds, months), rule.zone)
    moved = at + timedelta(seconds=seconds)
    if months or moved.date() != at.date() or moved.second:
        raise Unread
    return _at_clock(rule, moved.hour, moved.minute)


def _replaced(reading: Reading, rule: Rule, at: datetime) -> Rule:
    if reading.end is not None and reading == Reading(reading.now, end=reading.end) and rule.kind in recurrence.REPEATED:
        return recurrence.ending(rule, int(reading.end.replace(tzinfo=timezones.find(rule.zone)).timestamp() * 1000))
    has_clock = bool(reading.times or reading.part)
    is_regular = rule.kind in ("cron", "cadence", "interval")
    if reading.length is not None or reading.window or (reading.step or (0, "day"))[1] in ("second", "minute", "hour"):
        return rules.build(reading, rule.zone, False)
    days = reading.days or reading.dates or reading.date or reading.month or reading.week or reading.step or reading.ordinals
    if has_clock and not (days or reading.months or reading.is_repeated):
        return _with_clock(reading, rule, at)
    if not has_clock:
        reading.times = [Time(at.hour, at.minute, "24", second=at.second if rule.kind == "once" else 0)]
    if is_regular and reading.days and not (reading.date or reading.step):
        reading.is_repeated = True
    return rules.build(reading, rule.zone, False)


def _with_clock(reading: Reading, rule: Rule, at: datetime) -> Rule:
    """Another time of day; one that may be in either half of the day stays in the half that it was in."""
    if len(reading.times) > 1:
        raise Unread
    ((hour, minute),) = rules.named_times(reading)
    hour %= 24
    time = reading.times[0] if reading.times else None
    if time is not None and not reading.part and time.half not in ("am", "pm", "24") and not time.is_written:
        hour = hour % 12 + (12 if at.hour >= 12 else 0)
    second = time.second if time is not None else 0
    if rule.kind == "once":
        return _once(at.replace(hour=hour, minute=minute, second=second, microsecond=0), rule.zone)
    return _at_clock(rule, hour, minute)


def _once(local: datetime, zone: str) -> Rule:
    return recurrence.once(int(local.replace(tzinfo=timezones.find(zone)).timestamp() * 1000), zone)


def _at_clock(rule: Rule, hour: int, minute: int) -> Rule:
    """A rule that repeats, at another time of day; Unread for one that has several."""
    if rule.kind == "cron" and (found := ONE_TIME.fullmatch(rule.base)) is not None and recurrence.BETWEEN not in rule.base:
        made = recurrence.cron(f"{minute} {hour} {found[3]}", rule.zone)
    elif rule.kind == "cadence":
        step, _, first = rule.base.partition(" from ")
        day = datetime.fromisoformat(first.partition(" +")[0])
        first = day.replace(hour=hour, minute=minute).isoformat(timespec="seconds")
        made = recurrence.make_rule("cadence", f"{step} from {first}", rule.zone)
    else:
        raise Unread
    return recurrence.make_rule(made.kind, made.spec, made.zone, rule.condition)


def beside(found: TimeExpression, text: str, lexicon: Lexicon, now: datetime, zone: str) -> Rule | None:
    """The moment so long before or after the one that a text names; None where it names none."""
    assert found.shift is not None
    seconds, months = found.shift
    base = moments.nearest(text, lexicon, now, is_clock=abs(seconds) % DAY_S != 0)
    if base is None:
        return None
    at = readings.moved(base.at.replace(tzinfo=None), seconds, months)
    if not base.has_clock:
        at = at.replace(hour=found.clock[0], minute=found.clock[1])
    return _once(at, zone)
