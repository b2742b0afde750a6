"""The grammar of times: which runs of tokens say something about when, and what each of them says.

A production is a pattern over the kinds of tokens and a handler of `readings`. `fragments` finds the runs in a sentence, `parse`
reads tokens that are all about time. Holds no words of a language. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from msgspec import Struct

from appliance.language.times import readings, reductions, tokenizer
from appliance.language.times.readings import WEEKEND, WORKDAYS, Handler, TimeReading
from appliance.language.times.reductions import Unread
from appliance.language.times.tokenizer import Encoded, Match, Token


class Production(Struct, frozen=True):
    """A pattern and its handler. A weak one only counts right beside another."""

    pattern: str
    handler: Handler
    is_weak: bool = False


class Fragment(Struct, frozen=True):
    """A run of tokens that says something about when."""

    start: int
    end: int
    is_weak: bool
    production: Production


def _start(reading: TimeReading, match: Match) -> None:
    """Starting tomorrow, starting next month: the first day of what repeats."""
    inner = TimeReading(reading.now)
    _read_tokens(match.tokens[match.start + 1 : match.end], inner)
    reading.start = inner.week or inner.month or inner.date
    if inner.days and reading.start is None:
        reading.start = readings.next_day(reading.now, next(iter(inner.days)))
    if reading.start is None:
        raise Unread
    if inner.times or inner.part:
        reading.times += inner.times
        readings.note_part(reading, inner.part or reading.part)


def _end(reading: TimeReading, match: Match) -> None:
    """Until Christmas, until Friday: the last day of what repeats; of a week or a month that is named, the day before it."""
    inner = TimeReading(reading.now)
    _read_tokens(match.tokens[match.start + 1 : match.end], inner)
    day = inner.date
    if inner.days:
        day = readings.next_day(reading.now, next(iter(inner.days)))
    elif inner.months:
        ahead = (min(inner.months) - reading.now.month - 1) % 12 + 1
        day = readings.moved(reading.now.replace(day=1), 0, ahead) - readings.DAY
    elif inner.week or inner.month:
        day = (inner.week or inner.month or reading.now) - readings.DAY
    if day is None or inner.times or inner.part or reading.end is not None or reading.lasting is not None:
        raise Unread
    reading.end = day.replace(hour=23, minute=59, second=59, microsecond=0)


def _lasting(reading: TimeReading, match: Match) -> None:
    """For a week, for the next ten days."""
    if reading.end is not None or reading.lasting is not None:
        raise Unread
    reading.lasting = match.get("length") or readings.one_unit(match.get("unit"))


def _beside(reading: TimeReading, match: Match) -> None:
    """Ten minutes before five, two days before Christmas, three weeks after Easter."""
    seconds, months = match.get("length") or readings.one_unit(match.get("unit"))
    sign = -1 if match.has("before") else 1
    at = next(place for place in range(match.start, match.end) if {"before", "after"} & match.tokens[place].kinds.keys())
    inner, rest = TimeReading(reading.now), match.tokens[at + 1 : match.end]
    if len(rest) == 1 and "number" in rest[0].kinds and "time" not in rest[0].kinds:
        inner.times.append(reductions.bare(int(rest[0].kinds["number"])))
    else:
        _read_tokens(rest, inner)
    if inner.times and not (inner.date or inner.days or inner.dates or inner.part):
        (time,) = inner.times
        if months or seconds % 60:
            raise Unread
        reading.times.append(reductions.earlier(time, -sign * int(seconds // 60)))
        return
    day = inner.date
    if day is None and len(inner.days) == 1:
        day = readings.next_day(reading.now, next(iter(inner.days)))
    if day is None or inner.times or seconds % 86_400:
        raise Unread
    if match.has("part"):
        readings.note_part(reading, match.get("part"))
    readings.one_date(reading, readings.moved(day, sign * seconds, sign * months))


M = "(on|at|in|by|around|the)*"  # what may stand before a time, and says nothing that counts
EVERY = "(every|on|the|at|in)*"
BOUND = "(time|number)"
PRODUCTIONS: tuple[Production, ...] = tuple(
    Production(pattern, handler, is_weak)
    for is_weak, rows in (
        (
            False,
            (
                ("zone", readings.zone),
                (f"{M} date", readings.calendar_date),
                ("on dot_date", readings.calendar_date),
                ("[on] every [the] date", readings.calendar_date),
                (f"{M} two_dates", readings.slash_date),
                ("(every|on|at|the)* feast_of", readings.feast),
                ("(in|after) [the] [next] length [ahead]", readings.ahead),
                ("length ahead", readings.ahead),
                ("from_now", readings.from_now),
                ("ago length", readings.ago),
                ("(times|number times_word) (per|every|one)* (unit|single)", readings.per_unit),
                ("times (unit|single)", readings.per_unit),
                ("[every unit=hour] on_the_hour [every unit=hour]", readings.past_every_hour),
                ("[at] number [unit=minute] (past|to) [the] [every] unit=hour", readings.past_every_hour),
                ("[at] (half|quarter) (past|to) [the] [every] unit=hour", readings.past_every_hour),
                ("every unit=hour at (half|quarter) (past|to)", readings.past_every_hour),
                ("every unit=hour at minute_mark number", readings.past_every_hour),
                ("every amount", readings.every_amount),
                ("every length", readings.every_length),
                (f"start [(at|from)] {BOUND}", readings.anchor),
                ("start (on|from|at|the)* (day|date|weekday|next weekday|next unit|nth month|weekday date) [at time]", _start),
                ("every (other|nth) unit !of", readings.other_unit),
                ("on other unit=day", readings.other_unit),
                ("every (other|nth) weekday !of !every", readings.other_day),
                ("(weekday|weekdays) every (other|nth) unit=week", readings.other_day),
                (
                    f"{EVERY} nth ((comma|and|the|on)* nth)* (weekday|weekdays|unit=day|workday) "
                    "(of|in|on|the|every|this|next|per)* (unit=month|single=month|month)",
                    readings.of_month,
                ),
                ("(on|the)* last weekday !of !in", readings.last_weekday),
                (f"{EVERY} nth ((comma|and|the|on)* nth)* (weekday|workday) !of !in", readings.unread),
                ("(every|on|the|at|in|by)* (end_of|start_of) (of|the|this|next|every)* unit", readings.edge_of),
                ("(on|the|at|in|by)* (end_of|start_of) [of] month", readings.edge_of_month),
                ("(every|on|the|at)* workdays", readings.always(WORKDAYS, is_repeated=True)),
                ("(every|on|at)* workday", readings.always(WORKDAYS, is_repeated=True)),
                ("(on|at|the|this|next|coming)* weekend", readings.this_weekend),
                ("(every|on|at|the)* weekends", readings.always(WEEKEND, is_repeated=True)),
                ("every weekend", readings.always(WEEKEND, is_repeated=True)),
                ("[in] [the] office_hours", readings.office_hours),
                (
                    f"{EVERY} nth ((comma|and|the|on)* nth)* [unit=day] (of|in|on|the|every|this|next|per)* unit=month [next]",
                    readings.nth_days,
                ),
                ("(every|on|the)* digits_nth ((comma|and|the|on)* digits_nth)* [[of] every unit=month]", readings.nth_days),
                ("every (the)* nth ((comma|and|the|on)* nth)* !weekday !unit !workday !number", readings.nth_days),
                ("(on|from|every)* (weekday|weekdays) (dash|until) (weekday|weekdays)", readings.day_range),
                ("(on|the|by)* (next|this|coming) weekday [part]", readings.next_weekday),
                ("(on|the|by)* weekday (next|coming) [part]", readings.next_weekday),
                ("(on|the)* (weekday after_next|after_next weekday)", readings.weekday_after_next),
                ("(on|the)* weekday (unit=week !number|in length)", readings.weekday_after_next),
                ("(on|the)* weekday last", readings.last_weekday),
                ("(every|on|the)* weekdays [part]", readings.weekdays),
                ("every [the] weekday [part]", readings.weekdays),
                ("[on] weekday parts", readings.weekdays),
                (f"{M} weekday [part]", readings.one_weekday),
                ("(by|later|the|on)* day [part]", readings.relative_day),
                ("(this|later this) (part|in_part)", readings.this_part),
                ("(at|in|by)* same_time", readings.this_time),
                ("(by|at|in|the)* next unit", readings.next_unit),
                ("[the] unit next", readings.next_unit),
                ("(in|by|on)* this unit", readings.this_unit),
                ("last (unit|part)", readings.past_unit),
                ("(in|on|every) month", readings.months),
                ("[in] month (until|dash) month", readings.months),
                (f"(between|from) {BOUND} (and|until|dash) {BOUND} !unit", readings.window),
                ("every part", readings.every_part),
                ("every_part", readings.every_part),
                ("(in|at|on|the)* parts", readings.every_part),
                (f"{M} time", readings.clock),
                ("(in|at|on|by|the|of)* in_part", readings.some_part),
                ("(in|at|on|of) [the] part", readings.some_part),
                ("every [one] (unit|single)", readings.every_unit),
                ("adverb", readings.adverb),
                ("(at|around) number !unit !month !times_word !minute_mark", readings.hour),
                ("[on] [the] (length|one unit|unit) (before|after) [the] (time|number !unit)", _beside),
                ("[on] [the] (length|one unit|unit) (before|after) (on|the)* (date|feast_of|weekday|day)", _beside),
                ("[the] part before (on|the|at)* (date|feast_of|weekday|day)", _beside),
                ("length (before|later|earlier|after)", readings.shift),
                ("[on] that_day", readings.that_day),
                ("length ago", readings.ago),
                ("[on] [the] (unit=day|part|in_part|unit=night) before", readings.shift),
                ("eve !of", readings.eve),
                ("once", readings.always(is_once=True)),
            ),
        ),
        (
            True,
            (
                (f"from {BOUND} !dash !until !and", readings.anchor),
                (f"{BOUND} (dash|until) {BOUND} !unit", readings.window),
                # "On Sunday to march": a word that joins a deed as well says no end.
                ("!link until (the|on)* (date|feast_of|day|weekday|next weekday|month|next unit)", _end),
                ("!link until (the|on)* (end_of|start_of) (of|the|this|next)* (unit|month)", _end),
                ("for [the] next unit", _lasting),
                ("for (the|next)* length", _lasting),
                ("length long", _lasting),
                ("dot_date", readings.calendar_date),
                ("by number", readings.hour),
                ("number !unit !month !times_word", readings.more_hours),
                ("nth", readings.nth_days),
                ("part", readings.some_part),
                ("month", readings.months),
                ("[of] every unit=month", readings.of_every_month),
                ("(filler|and|comma|on|at|the|or|of|stop|gap)", readings.always()),
            ),
        ),
    )
    for pattern, handler in rows
)
ENDS = (_end, _lasting)
GLUE = frozenset({"filler", "and", "comma", "on", "at", "the", "or", "gap", "of", "stop"})


# -- reading tokens -----------------------------------------------------------------------------------


def parse(tokens: Sequence[Token], now: datetime) -> TimeReading:
    """What tokens say that are all about time; Unread where one of them is not."""
    reading = TimeReading(now)
    _read_tokens(tokens, reading)
    if len(reading.order) > 3:
        raise Unread  # Mondays at 9 and Fridays at 10: which belongs to which only the halves say
    return reading


def _read_tokens(tokens: Sequence[Token], reading: TimeReading) -> None:
    encoded, at = Encoded(tokens), 0
    while at < len(tokens):
        found = _longest(encoded, at)
        if found is None:
            raise Unread
        production, match = found
        before = _count_said(reading)
        production.handler(reading, match)
        reading.is_open = reading.is_open or match.has("or")
        for letter, was, now in zip("TD", before, _count_said(reading), strict=True):
            reading.order += letter if was != now and not reading.order.endswith(letter) else ""
        at = match.end


def _longest(encoded: Encoded, at: int) -> tuple[Production, Match] | None:
    """The production that takes most tokens from here, the first of those that take as many."""
    best: tuple[Production, Match] | None = None
    kinds, possible = encoded.tokens[at].kinds, _by_first_kind()
    if kinds:
        for _, production in sorted({one for kind in kinds for one in possible.get(kind, ())}, key=lambda one: one[0]):
            if (match := encoded.match(production.pattern, at)) is not None and (best is None or match.end > best[1].end):
                best = (production, match)
    return best


@lru_cache(maxsize=1)
def _by_first_kind() -> Mapping[str, Sequence[tuple[int, Production]]]:
    """The productions by the kinds with which they may begin, with their place in the table."""
    found: dict[str, list[tuple[int, Production]]] = {}
    for number, production in enumerate(PRODUCTIONS):
        for kind in tokenizer.first_kinds(production.pattern):
            found.setdefault(kind, []).append((number, production))
    return found


def fragments(tokens: Sequence[Token]) -> Iterator[Fragment]:
    """The runs of tokens of a sentence that say something about when, in their order; those that are glue alone are left out."""
    encoded, at = Encoded(tokens), 0
    while at < len(tokens):
        found = _longest(encoded, at)
        if found is None:
            at += 1
            continue
        production, match = found
        is_unsure = all("unsure" in token.kinds for token in tokens[at : match.end])  # a time only beside others: "sat", "may"
        yield Fragment(at, match.end, production.is_weak or is_unsure, production)
        at = match.end


def is_glue(token: Token) -> bool:
    """Whether a token only joins others."""
    return bool(GLUE & token.kinds.keys()) and not {"nth", "number", "part", "unit", "weekday"} & token.kinds.keys()


def _count_said(reading: TimeReading) -> tuple[object, object]:
    days = (len(reading.days), len(reading.dates), len(reading.ordinals), reading.date)
    return (len(reading.times), reading.part, reading.window), days
