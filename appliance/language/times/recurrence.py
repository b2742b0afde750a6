"""When something is due: rules, and the moments they name. Pure: the moment to look from is an argument.

A rule is a kind, a text and a time zone. `cron` is one or more lines of five fields, joined by " ; "; `interval` so
many seconds; `once` a moment as ISO 8601, with `COUNTED` behind it when it was counted from the clock, as "in 20 minutes"
is; `cadence` a calendar step from a first local time, with a delay that was drawn once; `text` is nobody's rule: it has to
be judged. A rule with a `condition` names moments at which that is judged. What repeats may end: `UNTIL` and its last moment
stand behind the text then.
Summer time is cron's as Debian has it: a fixed time that a spring night leaves out happens right after the gap, and one
that an autumn night has twice happens the first time; what repeats within the hour goes on through both.
Intervals count real seconds. Times are milliseconds since 1970.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from cronsim import CronSim, CronSimError
from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language.times import timezones
from appliance.language.times.timezones import LOCAL

Kind = Literal["cron", "interval", "once", "cadence", "text"]
Word = Literal["hourly", "daily", "weekly", "biweekly", "monthly"]
STEPS: dict[str, tuple[int, str]] = {
    "hourly": (1, "hours"),
    "daily": (1, "days"),
    "weekly": (1, "weeks"),
    "biweekly": (2, "weeks"),
    "monthly": (1, "months"),
    "yearly": (12, "months"),
}
CADENCE = re.compile(
    r"(?:(?P<word>[a-z]+)|(?P<count>\d{1,4}) (?P<unit>hours|days|weeks|months)) from (?P<first>\S+)(?: \+(?P<jitter>\d+) s)?"
)
ISO_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?[+-]\d{2}:\d{2}(?: counted)?")
COUNTED = " counted"
UNTIL = " until "
REPEATED = ("cron", "interval", "cadence")
MACROS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}
MACROS |= {"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
FIELD = r"(?:[\d*/,#LW-]+|[A-Z]{3}(?:[-,][A-Z]{3})*)"
# Five fields of cron, stars with too many or too few, or a name such as @daily.
WORDLESS = re.compile(rf"^(?=.*[\d*]){FIELD}(?: {FIELD}){{4}}$|(?:^|\s)(?:\*|\*/\d+)(?:\s|$)|^@[A-Z]", re.IGNORECASE)
BETWEEN = " ; "  # lines of one cron rule
MAX_LINES = 24
MAX_INTERVAL_S = 10 * 366 * 86_400
FORMS = "five fields such as '0 9 * * 1-5', or 'every N' with N seconds"
FAR_YEAR, LAST_YEAR = 9000, 9998


class Rule(Struct, frozen=True):
    """When something is due. `condition` is judged at each of these moments; so is all of a `text`, now and then."""

    kind: Kind
    spec: str
    zone: str = LOCAL
    condition: str = ""

    @property
    def is_judged(self) -> bool:
        """True when a model has a word in it."""
        return self.kind == "text" or bool(self.condition)

    @property
    def is_counted(self) -> bool:
        """True for a moment that was counted from the time of the clock, and is no date."""
        return self.kind == "once" and self.spec.endswith(COUNTED)

    @property
    def base(self) -> str:
        """Its text without its end."""
        return self.spec.partition(UNTIL)[0] if self.kind in REPEATED else self.spec

    @property
    def end_ms(self) -> int | None:
        """The last moment at which it may be due; None where it has no end."""
        end = self.spec.partition(UNTIL)[2] if self.kind in REPEATED else ""
        return int(datetime.fromisoformat(end).timestamp() * 1000) if end else None

    @property
    def fingerprint(self) -> str:
        """What its moments follow from."""
        return f"{self.kind}|{self.spec}|{self.zone}"


# -- making rules -----------------------------------------------------------------------------------


def cron(spec: str, zone: str = LOCAL) -> Rule:
    """A rule of one or more cron lines, or of `@daily`; BadInput for one that cannot be read, or that never happens."""
    lines = [" ".join(line.upper().split()) for line in MACROS.get(spec.lower(), spec).split(";")]
    for line in lines:
        if len(line.split(" ")) != 5:
            raise BadInput(f"{line!r} is no cron line of five fields", hint=f"use {FORMS}")
        try:
            next(CronSim(line, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration) as error:
            why = str(error) or "it never happens"
            raise BadInput(f"{line!r} is no cron line: {why}", hint=f"use {FORMS}") from None
    if len(lines) > MAX_LINES:
        raise BadInput(f"{len(lines)} cron lines in one rule", hint=f"use at most {MAX_LINES}")
    return Rule("cron", BETWEEN.join(dict.fromkeys(lines)), timezones.require(zone))


def interval(seconds: int, zone: str = LOCAL) -> Rule:
    """A rule that is due every so many seconds."""
    if not 0 < seconds <= MAX_INTERVAL_S:
        raise BadInput(f"every {seconds} seconds", hint=f"use 1 to {MAX_INTERVAL_S}")
    return Rule("interval", str(seconds), timezones.require(zone))


def once(at_ms: int, zone: str = LOCAL, *, is_counted: bool = False) -> Rule:
    """A rule that is due at one moment; `is_counted`: so long after the clock's now, whatever day that was."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return Rule("once", moment + (COUNTED if is_counted else ""), timezones.require(zone))


def cadence(step: str, first_ms: int, jitter_s: int = 0, zone: str = LOCAL) -> Rule:
    """A rule of calendar steps, `weekly` or `3 days`, from a first moment on, always so many seconds later."""
    local = _local_time(first_ms, timezones.find(timezones.require(zone))).replace(tzinfo=None)
    later = f" +{jitter_s} s" if jitter_s else ""
    rule = Rule("cadence", f"{step} from {local.isoformat(timespec='seconds')}{later}", zone or LOCAL)
    _parse_cadence(rule.spec)
    return rule


def ending(rule: Rule, end_ms: int) -> Rule:
    """A rule that repeats until a moment and not after it."""
    assert rule.kind in REPEATED
    return replace(rule, spec=f"{rule.base}{UNTIL}{datetime.fromtimestamp(end_ms / 1000, UTC).isoformat(timespec='seconds')}")


def simple(text: str, zone: str = LOCAL) -> Rule:
    """A rule written as cron's five fields or as `every N`, and nothing else."""
    words = text.split()
    if len(words) == 2 and words[0].lower() == "every" and re.fullmatch(r"\d{1,9}", words[1]) and int(words[1]) > 0:
        return interval(int(words[1]), zone)
    if len(words) == 5 and "every" not in text.lower():
        return cron(text, zone)
    raise BadInput(f"schedule {text!r} is not valid", hint=f"use {FORMS}")


def written(rule: Rule) -> str:
    """A rule in one line, as `read_written` takes it: its text, and behind a bar its condition."""
    spec = f"every {rule.spec}" if rule.kind == "interval" else rule.spec
    return f"{spec} | {rule.condition}" if rule.condition else spec


def read_written(line: str, zone: str = LOCAL) -> Rule | None:
    """The rule that `written` wrote; None for any other text."""
    spec, _, condition = line.partition(" | ")
    spec, _, end = spec.partition(UNTIL)
    made: Rule | None = None
    if ISO_MOMENT.fullmatch(spec):
        made = replace(make_rule("once", spec), zone=timezones.require(zone))
    elif CADENCE.fullmatch(spec):
        made = make_rule("cadence", spec, timezones.require(zone))
    else:
        try:
            made = simple(spec, zone)
        except BadInput:
            return None
    if end and (made.kind not in REPEATED or not ISO_MOMENT.fullmatch(end)):
        return None
    return replace(made, spec=f"{made.spec}{UNTIL}{end}" if end else made.spec, condition=condition.strip())


def text(said: str, zone: str = LOCAL) -> Rule:
    """What only a model can judge."""
    return Rule("text", said, timezones.require(zone))


def make_rule(kind: str, spec: str, zone: str = LOCAL, condition: str = "") -> Rule:
    """A rule as it was stored or handed in; BadInput when it makes no sense."""
    rule = Rule(kind, spec, zone, condition) if kind in get_args(Kind) else None  # type: ignore[arg-type]
    try:
        if rule is None:
            raise ValueError(f"kind {kind!r}")
        if kind == "cron":
            rule = replace(rule, spec=cron(rule.base).spec + spec[len(rule.base) :])
        elif kind == "interval":
            interval(int(rule.base))
        elif kind == "once":
            at(rule)
        elif kind == "cadence":
            _parse_cadence(rule.base)
        _ = rule.end_ms
    except ValueError as error:
        raise BadInput(f"{kind} rule {spec!r}: {error}", hint=f"kinds are {', '.join(get_args(Kind))}") from None
    return rule


# -- asking them ------------------------------------------------------------------------------------


def at(rule: Rule) -> int:
    """The moment of a rule that is due once."""
    return int(datetime.fromisoformat(rule.spec.removesuffix(COUNTED)).timestamp() * 1000)


def after(rule: Rule, at_ms: int) -> int | None:
    """The first moment later than `at_ms`, None when there is none; an interval counts from there, a text has none.

    BadInput for a rule that makes no sense, which only one that was changed behind our back does.
    """
    try:
        return within(rule, _next_after(rule, at_ms))
    except (CronSimError, ValueError) as error:
        raise BadInput(f"{rule.kind} rule {rule.spec!r} makes no sense: {error}", hint="give the schedule another time") from None


def within(rule: Rule, at_ms: int | None) -> int | None:
    """A moment of a rule; None behind its end."""
    return None if at_ms is None or (rule.end_ms is not None and at_ms > rule.end_ms) else at_ms


def _next_after(rule: Rule, at_ms: int) -> int | None:
    if rule.kind == "text":
        return None
    if rule.kind == "interval":
        return at_ms + int(rule.base) * 1000
    if rule.kind == "once":
        return moment if (moment := at(rule)) > at_ms else None
    zone = timezones.find(rule.zone)
    if rule.kind == "cadence":
        return _after_cadence(rule.base, at_ms, zone)
    found = [_after_line(line, at_ms, zone) for line in rule.base.split(BETWEEN)]
    return min((moment for moment in found if moment is not None), default=None)


def upcoming(rule: Rule, at_ms: int, count: int = 5) -> list[int]:
    """The next moments."""
    found: list[int] = []
    while len(found) < count and (moment := after(rule, found[-1] if found else at_ms)) is not None:
        found.append(moment)
    return found


# -- inside -----------------------------------------------------------------------------------------


def _local_time(at_ms: int, zone: object) -> datetime:
    """The local time of a moment, in whole milliseconds."""
    return datetime.fromtimestamp(at_ms // 1000, zone)  # type: ignore[arg-type]


def _after_line(line: str, at_ms: int, zone: object) -> int | None:
    """When one cron line is due next. Behind a repeated hour cronsim may step back into it: such moments are passed over."""
    start = _local_time(at_ms, zone)
    if start.year >= FAR_YEAR:
        return None
    for found in CronSim(line, start):
        moment = int(found.timestamp()) * 1000
        if moment > at_ms:
            return moment
    return None


def _parse_cadence(spec: str) -> tuple[int, str, datetime, int]:
    """Count, unit, first local time and delay in seconds of a cadence."""
    found = CADENCE.fullmatch(spec)
    step = STEPS.get(found["word"]) if found and found["word"] else None
    if found and found["unit"] and int(found["count"]):
        step = (int(found["count"]), found["unit"])
    try:
        if found is None or step is None:
            raise ValueError(spec)
        first = datetime.fromisoformat(found["first"])
    except ValueError:
        raise BadInput(f"cadence {spec!r}", hint=f"use {', '.join(STEPS)} or '3 days', from a first local time") from None
    return *step, first.replace(tzinfo=None), int(found["jitter"] or 0)


def _after_cadence(spec: str, at_ms: int, zone: object) -> int | None:
    count, unit, first, jitter_s = _parse_cadence(spec)
    if unit == "hours":  # real ones, whatever the clocks show
        start_ms = int((first.replace(tzinfo=zone).timestamp() + jitter_s) * 1000)  # type: ignore[arg-type]
        step_ms = count * 3_600_000
        return start_ms + max(0, (at_ms - start_ms) // step_ms + 1) * step_ms
    for number in _step_numbers(count, unit, first, _local_time(at_ms - jitter_s * 1000, zone).replace(tzinfo=None)):
        local = _add_step(first, count * number, unit)
        if local.year >= FAR_YEAR:
            return None
        moment = int(local.replace(tzinfo=zone).timestamp() + jitter_s) * 1000  # type: ignore[arg-type]
        if moment > at_ms:
            return moment
    return None


def _step_numbers(count: int, unit: str, first: datetime, now: datetime) -> Iterator[int]:
    """The numbers of steps that may come next, from a little before `now` on."""
    days = {"hours": 1 / 24, "days": 1, "weeks": 7, "months": 31}[unit] * count
    start = max(0, int((now - first).total_seconds() / 86_400 / days) - 2)
    yield from range(start, start + 1000)


def _add_step(first: datetime, count: int, unit: str) -> datetime:
    return months_later(first, count) if unit == "months" else first + timedelta(**{unit: count})


def months_later(day: datetime, months: int) -> datetime:
    """The same day so many months later, the last one of a month that is shorter."""
    number = day.month - 1 + months
    year, month = day.year + number // 12, number % 12 + 1
    if not 1 <= year <= LAST_YEAR:
        raise OverflowError(f"year {year}")
    last = ((datetime(year, month, 28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)).day
    return day.replace(year=year, month=month, day=min(day.day, last))
