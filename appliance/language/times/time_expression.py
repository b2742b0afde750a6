"""Where a time is read: a sentence of a person, and what it says about when, as a rule, a day or a change of one.

In a sentence the rest is what it is about. No word that speaks of time may be left there: then, as where words contradict each
other, or where something would have to be guessed, it is `BadInput` with what was not understood. What a text means that is all
about time is for `frequencies`. A time may be changed ("an hour later", "make it quarter to seven", "better on Friday"), or stand
beside another day. Pure: the present moment is an argument.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace as replace_dataclass
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language.times import grammar, readings, recurrence, rules, timezones
from appliance.language.times.dates import Moment
from appliance.language.times.frequencies import (
    compile_condition,
    compile_tokens,
    mended,
    parse_tokens,
    require_ahead,
    require_possible,
    without_stop,
)
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.readings import TimeReading
from appliance.language.times.recurrence import Rule
from appliance.language.times.reductions import Time, UnclearTime, Unread, reduced
from appliance.language.times.timezones import LOCAL
from appliance.language.times.tokenizer import Token, tokens

MAX_TOKENS = 200  # of a sentence that may be about time: each is looked at with all behind it
MAX_MENDED = 100  # words of a sentence whose spelling is looked at
QUOTES = '"“”„«»'
MAX_SHOWN = 100  # characters of what was not understood
# Words beside which a time belongs to something else: "a gift for Monday", "the day before Easter".
BESIDE = frozenset({"for", "before", "after", "until", "between", "except", "condition", "start", "only", "from", "or"})
# Kinds of which none may be left in the text of a reminder, unless the word may be another one as well.
TIMELY = frozenset({"adverb", "clock", "date", "day", "digits_nth", "every", "every_part", "feast_of", "month", "time"})
TIMELY |= {"two_dates", "weekday", "weekdays", "weekends", "workdays"}
ALARMS = frozenset({"wake", "alarm", "timer"})
WHEN = TIMELY | {"length", "in", "part", "in_part", "number", "unit", "next", "this", "ampm", "noon"}
# Kinds that belong to a time beside which they stand.
ATTACHED = frozenset(
    {"after_next", "ahead", "ampm", "and_a_half", "and_half", "and_quarter", "half", "half_to", "hour_mark", "long", "or"}
)
ATTACHED |= {"less_quarter", "past", "quarter_of", "times", "unit", "vague", "zone"}
PARTS = frozenset({"part", "in_part", "noon"})
EVENT_ENDS = frozenset({"link", "comma", "colon", "stop", "filler"})
AT = frozenset({"at", "by", "before", "after", "around", "until", "in"})
FOR = frozenset({"for"})
BREAKS = frozenset({"comma", "stop", "dash"})
LEADING = frozenset({"the", "next", "coming", "around"})
BEFORE_NUMBERS = frozenset({"at", "by", "before", "after", "around", "until", "past"})


class TimeExpression(Struct, frozen=True):
    """What a sentence says about when, and about what: the rule, None for none; the words that say when; and the rest."""

    text: str
    when: str = ""
    rule: Rule | None = None
    shift: tuple[float, int] | None = None  # instead: so many seconds and months before or after what is said around it
    clock: tuple[int, int] = (0, 0)  # and the time of day of it
    event: str = ""  # beside which it is, where the sentence names that: "the concert"
    is_clock: bool = False  # a time of day is all it says: neither a day nor how often


def split(
    said: str, lexicon: Lexicon, now_ms: int, zone: str = LOCAL, *, is_ahead: bool = False, is_early: bool = False
) -> TimeExpression:
    """What a sentence is about, and the rule of when that is to be; no rule where it has no time in it.

    `is_ahead`: a bare length of time is from now on, as that of a timer; `is_early`: a bare hour is in the morning, as that of an
    alarm. BadInput for a time that has passed or cannot be, and where a word about time is left that was not understood.
    """
    said = " ".join(said.split())
    zone = timezones.require(zone)
    made = _Sentence(said, lexicon, now_ms, zone, is_ahead, is_early)
    try:
        found = made.expression()
    except BadInput as error:
        _require_spelled(said, "", lexicon, now_ms, zone)
        raise error
    _require_spelled(said, found.when, lexicon, now_ms, zone)
    return found


def _require_spelled(said: str, when: str, lexicon: Lexicon, now_ms: int, zone: str) -> None:
    """BadInput for a sentence that would name a longer time if it were spelled rightly."""
    meant = mended(said, lexicon) if len(said.split()) <= MAX_MENDED else said
    if meant == said:
        return
    try:
        other = _Sentence(meant, lexicon, now_ms, zone, False, False).expression()
    except BadInput:
        return
    if len(other.when.split()) > len(when.split()):
        raise UnclearTime("mistyped", said=said[:MAX_SHOWN], meant=f"{other.text} {other.when}".rstrip())


def _joined(runs: Sequence[Sequence[Token]]) -> list[Token]:
    """Runs of tokens as one, with a gap between each two."""
    gap = Token(0, 0, {"gap": ""})
    return [token for number, run in enumerate(runs) for token in ([gap] if number else []) + list(run)]


class _Sentence:
    """A sentence that is taken apart."""

    def __init__(self, said: str, lexicon: Lexicon, now_ms: int, zone: str, is_ahead: bool, is_early: bool) -> None:
        self._said, self._lexicon, self._now_ms, self._zone = said, lexicon, now_ms, zone
        self._tokens = reduced(tokens(said, lexicon))
        if (count := sum(token.kinds.keys() != {"plain"} for token in self._tokens)) > MAX_TOKENS:
            raise UnclearTime("long", count=str(count))
        self._is_ahead, self._is_early = is_ahead, is_early
        self._default = ""  # what an alarm is for, where nothing is said
        self._gone: set[int] = set()  # tokens that ask for the reminder
        self._when: list[tuple[int, int]] = []  # runs of tokens that say when
        self._spans: set[int] = set()  # tokens that say how long something takes

    def expression(self) -> TimeExpression:
        self._read_asking()
        self._find_runs()
        if not self._when:
            text = self._text()
            require_ahead(self._tokens, self._said)
            return TimeExpression(text or self._default)
        if (reading := self._shift()) is not None:
            ((hour, minute),) = rules.named_times(reading)
            when, event = self._words(), self._event()
            text = self._text() or event or self._default
            return TimeExpression(text, when, None, reading.shift, (hour, minute), event)
        rule = self._rule()
        self._require_understood(rule)
        is_clock = all(self._is_clock(self._tokens[a:b]) for a, b in self._when)
        return TimeExpression(self._text() or self._default, self._words(), rule, is_clock=is_clock)

    def _words(self) -> str:
        """The words that say when."""
        return " ".join(self._said[self._tokens[a].start : self._tokens[b - 1].end] for a, b in self._when)

    def _shift(self) -> TimeReading | None:
        """What the sentence says to be so long before or after something else than a day."""
        try:
            reading, _ = parse_tokens([token for a, b in self._when for token in self._tokens[a:b]], self._now_ms, self._zone)
        except (Unread, BadInput, ValueError, OverflowError):
            return None
        plain = replace_dataclass(reading, shift=None, times=[], part="")
        is_one = reading.shift is not None and len(reading.times) < 2 and plain == TimeReading(reading.now)
        return reading if is_one else None

    def _event(self) -> str:
        """What stands right behind "an hour before", up to the word that links the text to it; it is no part of the text then."""
        start = end = self._when[-1][1]
        while end < len(self._tokens) and not EVENT_ENDS & self._tokens[end].kinds.keys():
            end += 1
        self._gone.update(range(start, end))
        return self._said[self._tokens[start].start : self._tokens[end - 1].end] if end > start else ""

    def _read_asking(self) -> None:
        """The words that ask to be reminded, and those of an alarm: they are before anything else that is no time."""
        if self._is_ahead or self._is_early:
            self._say_at(0)
        for at, token in enumerate(self._tokens):
            kinds = token.kinds
            is_first = all(grammar.is_glue(one) for one in self._tokens[:at])
            if "ask" in kinds or (is_first and ALARMS & kinds.keys()):
                self._gone.update(range(at + 1) if is_first else (at,))
                for kind in ALARMS & kinds.keys():
                    self._default, self._is_ahead = " ".join(kinds[kind]), True
                    self._is_early = kind != "timer"
                    self._say_at(at + 1)
                return
            if not (grammar.is_glue(token) or kinds.keys() & (WHEN | {"for", "until"})):
                return

    def _say_at(self, at: int) -> None:
        """Behind "set an alarm for" a bare hour is a time, and a bare length one from now on, also behind "at"."""
        while at < len(self._tokens) and {"for", "colon"} & self._tokens[at].kinds.keys():
            self._gone.add(at)
            at += 1
        behind = self._tokens[at + 1].kinds if at + 1 < len(self._tokens) else {}
        if "length" in behind and "at" in self._tokens[at].kinds and not (self._is_early and "time" in behind):
            self._gone.add(at)

    def _find_runs(self) -> None:
        """Which tokens say when: strong fragments, and weak ones right beside them."""
        self._read_bare()
        found = list(grammar.fragments(self._tokens))
        taken: list[tuple[int, int]] = []
        for one in found:
            if self._gone & set(range(one.start, one.end)) or any(a <= one.start < b for a, b in taken):
                continue
            if all(grammar.is_glue(token) for token in self._tokens[one.start : one.end]):
                continue
            if not any(b == one.start for _, b in taken) and self._is_of_another(one.start):
                continue
            if self._is_attribute(one):
                continue
            if one.is_weak and not any(self._is_joined(b, one.start) for _, b in taken) and not self._is_before_strong(one, found):
                continue
            taken.append((one.start, one.end))
        self._add_end(found, taken)
        for a, b in sorted(taken):
            if self._when and self._is_joined(self._when[-1][1], a) and self._gone.isdisjoint(range(self._when[-1][1], a)):
                self._when[-1] = (self._when[-1][0], b)
            else:
                self._when.append((a, b))

    def _add_end(self, found: Sequence[grammar.Fragment], taken: list[tuple[int, int]]) -> None:
        """When what repeats ends, said apart from the rest: "every day at 8 to take the pills until Christmas".

        What would end before its second time says how long something takes: it stays in the text.
        """
        runs = [list(self._tokens[a:b]) for a, b in sorted(taken)]
        if not runs or (known := self._compile_runs(runs)) is None or known.kind == "once":
            return
        for one in found:
            sides = (range(one.start), range(one.end, len(self._tokens)))
            is_outer = any(all(at in self._gone or grammar.is_glue(self._tokens[at]) for at in side) for side in sides)
            if one.production.handler not in grammar.ENDS or (one.start, one.end) in taken or not is_outer:
                continue
            if self._compile_runs([*runs, list(self._tokens[one.start : one.end])]) is not None:
                taken.append((one.start, one.end))
            elif "length" in self._tokens[one.end - 1].kinds:
                self._spans.add(one.end - 1)

    def _compile_runs(self, runs: Sequence[Sequence[Token]]) -> Rule | None:
        """The rule of runs of tokens; None for none, and for one that has passed."""
        try:
            return compile_tokens(_joined(runs), self._said, self._now_ms, self._zone, False)
        except BadInput:
            return None

    def _read_bare(self) -> None:
        """A bare hour or length of time where one is asked for: "set a timer for 10 minutes", "wake me at half past 6"."""
        for at, token in enumerate(self._tokens):
            time = token.kinds.get("time")
            if self._is_early and isinstance(time, Time) and not time.half:
                self._tokens[at] = Token(token.start, token.end, {**token.kinds, "time": replace(time, half="24", is_loose=False)})
        for at, token in enumerate(self._tokens):
            if at in self._gone or grammar.is_glue(token):
                continue
            kinds, before = token.kinds, self._tokens[at - 1].kinds if at else {}
            is_time = self._is_early and "time" in kinds
            if self._is_ahead and "length" in kinds and not is_time and not {"in", "after", "every"} & before.keys():
                self._tokens[at] = Token(token.start, token.end, {"from_now": kinds["length"]})
            elif self._is_early and "number" in kinds and (not at or at - 1 in self._gone or "at" in before):
                self._tokens[at] = Token(token.start, token.end, {"time": Time(int(kinds["number"]), 0, "24")})
            elif self._is_early:
                continue
            return

    def _is_of_another(self, start: int) -> bool:
        """Whether the word before says that a time belongs to something else: "a gift for Monday"."""
        before = start - 1
        while before >= 0 and before not in self._gone and "the" in self._tokens[before].kinds:
            before -= 1
        if before < 0 or before in self._gone:
            return False
        if "for" in self._tokens[before].kinds and all(one in self._gone for one in range(before)):
            self._gone.add(before)  # it begins the sentence: "for Friday: call the vet"
            return False
        return bool(BESIDE & self._tokens[before].kinds.keys())

    def _is_attribute(self, one: grammar.Fragment) -> bool:
        """Whether an adverb says what kind of thing another word is: "the weekly report"."""
        if "adverb" not in self._tokens[one.start].kinds or not one.start or one.start - 1 in self._gone:
            return False
        return bool({"the", "one"} & self._tokens[one.start - 1].kinds.keys())

    def _is_joined(self, end: int, start: int) -> bool:
        return end <= start and all(at in self._gone or grammar.is_glue(self._tokens[at]) for at in range(end, start))

    def _is_before_strong(self, one: grammar.Fragment, found: Sequence[grammar.Fragment]) -> bool:
        """Whether a strong fragment stands right behind a weak one: "Sat 9am"."""
        return (
            any(other.start == one.end and not other.is_weak for other in found) and "number" not in self._tokens[one.start].kinds
        )

    def _rule(self) -> Rule:
        """The rule of the runs; BadInput where they are not one time."""
        if (condition := self._condition()) is not None:
            return self._conditional(*condition)
        runs = [list(self._tokens[a:b]) for a, b in self._when]
        joined = _joined(runs)
        require_possible(joined, self._said)
        kinds = [self._said_by(run) for run in runs]
        if any(sum(letter in one for one in kinds) > 1 for letter in "TDR"):
            words = ", ".join(self._said[run[0].start : run[-1].end] for run in runs)[:MAX_SHOWN]
            raise UnclearTime("several", said=words)
        rule = compile_tokens(joined, self._said, self._now_ms, self._zone, False)
        if rule is None:
            require_ahead(joined, self._said)
            words = " ".join(self._said[run[0].start : run[-1].end] for run in runs)[:MAX_SHOWN]
            raise UnclearTime("unread", said=words)
        return rule

    def _said_by(self, run: Sequence[Token]) -> str:
        """Whether tokens name a time of day (T), a day (D), and how often (R)."""
        try:
            reading, _ = parse_tokens(run, self._now_ms, self._zone)
        except (Unread, BadInput, ValueError, OverflowError):
            return "TDR"
        days = reading.days or reading.dates or reading.ordinals or reading.date or reading.month or reading.week
        said = ("T" if reading.times or reading.window else "") + ("D" if days else "")
        return said + ("R" if reading.is_repeated or reading.step else "")

    def _is_clock(self, run: Sequence[Token]) -> bool:
        """Whether tokens name a time of day, or a part of one, and nothing else."""
        said = self._said_by(run)
        return said == "T" or (not said and any(PARTS & token.kinds.keys() for token in run))

    def _condition(self) -> tuple[int, int, int] | None:
        """The run behind which a condition or an exception stands, and the tokens of that; None where there is none."""
        for number, (_, end) in enumerate(self._when):
            start = end
            while start < len(self._tokens) and {"comma", "and"} & self._tokens[start].kinds.keys():
                start += 1
            if start < len(self._tokens) and {"condition", "except", "only"} & self._tokens[start].kinds.keys():
                return number, start, self._end_of_condition(start)
        return None

    def _end_of_condition(self, start: int) -> int:
        """Where a condition ends: at the word that links the time to the text; an exception behind its last day."""
        if "condition" in self._tokens[start].kinds:
            return next((at for at in range(start + 1, len(self._tokens)) if "link" in self._tokens[at].kinds), len(self._tokens))
        last = start + 1
        while last < len(self._tokens) and (
            grammar.is_glue(self._tokens[last]) or {"for", "length"} & self._tokens[last].kinds.keys() or self._is_time(last)
        ):
            last += 1
        while last > start + 1 and grammar.is_glue(self._tokens[last - 1]):
            last -= 1
        return last

    def _conditional(self, number: int, start: int, last: int) -> Rule:
        """A rule without the days that are taken away, or with a condition."""
        kept = [one for at, one in enumerate(self._when) if at <= number or one[0] >= last]
        head = [token for a, b in kept for token in self._tokens[a:b]]
        said = self._said[self._tokens[kept[0][0]].start : self._tokens[max(last, kept[-1][1]) - 1].end]
        rule = compile_condition([*head, *self._tokens[start:last]], said, self._now_ms, self._zone, False)
        if rule is None:
            raise UnclearTime("unread", said=said[:MAX_SHOWN])
        kept[number] = (kept[number][0], last)
        self._when = kept
        return rule

    def _is_time(self, at: int) -> bool:
        return any(one.start <= at < one.end for one in grammar.fragments(self._tokens))

    def _rest(self) -> Iterator[int]:
        """The tokens of the text."""
        taken = {at for a, b in self._when for at in range(a, b)} | self._gone
        yield from (at for at in range(len(self._tokens)) if at not in taken)

    def _require_understood(self, rule: Rule) -> None:
        """BadInput where the text still speaks of time, or where what repeats would end."""
        rest = list(self._rest())
        aside = self._aside(rest)
        said = "".join(self._said_by(self._tokens[a:b]) for a, b in self._when)
        has_hour, is_regular = "T" in said, rule.kind != "once"
        for at in rest:
            token, behind = self._tokens[at], self._tokens[at + 1].kinds if at + 1 in rest else {}
            kinds: Set[str] = token.kinds.keys()
            word = self._said[token.start : token.end]
            if not kinds and word.lower().endswith(("'s", "’s")) and (entry := self._lexicon.match([word.lower()[:-2]])):
                kinds = entry.kinds.keys() & (TIMELY | {"unsure"})
            is_sure = "unsure" not in kinds
            is_compound = at > 1 and "dash" in self._tokens[at - 1].kinds  # "Tokio-Zeit"
            is_beside = self._stands_beside(at) or "ahead" in kinds and self._stands_beside(at - (2 if is_compound else 1))
            signs = (
                is_sure and TIMELY & kinds and not {"time", "length"} <= kinds,
                BEFORE_NUMBERS & kinds and "link" not in kinds and "number" in behind and "length" not in behind,
                "next" in kinds and "unit" in behind,
                not has_hour and PARTS & kinds and self._is_behind(at, AT),
                not has_hour and said and {"after", "around", "before"} & kinds and "link" not in kinds and self._stands_beside(at),
                is_regular and "length" in kinds and at not in self._spans and ("long" in behind or self._is_behind(at, FOR)),
                is_beside and ATTACHED & kinds and not {"unsure", "after", "before"} & kinds,
                {"until", "start", "except"} & kinds and "link" not in kinds and self._stands_beside(at),
                is_regular and is_sure and "until" in kinds and "link" not in kinds,
                is_regular and {"except", "start"} & kinds and at > 0 and "comma" in self._tokens[at - 1].kinds,
                "length" in kinds and at not in self._spans and self._is_clause(at),
                not has_hour and "dot_clock" in kinds and self._stands_beside(at),  # "tuesday 11.15"
                "before" in kinds and "link" not in kinds and at > 0 and self._is_unit(at - 1),  # "a week's notice"
                self._is_torn(at),
                at == rest[0] and aside and ({"and", "or"} & kinds or not has_hour and {"at", "by"} & kinds),
                word in aside.split() and (word.isdigit() or "ahead" in kinds),
            )
            if any(signs):
                raise UnclearTime("also", said=aside if signs[-1] or signs[-2] else word)
        if is_regular:
            self._require_whole(rule)

    def _is_torn(self, at: int) -> bool:
        """Whether a token is the rest of a time: "5ish", "6-30", "on 12 and 14 March"; or a condition that begins the sentence."""
        kinds, before, after = (self._tokens[one].kinds if 0 <= one < len(self._tokens) else {} for one in (at, at - 1, at + 1))
        is_behind = any(b == at for _, b in self._when)
        if is_behind and "glued" in kinds and not {"comma", "stop", "colon"} & kinds.keys():
            return True
        if "condition" in kinds and all(one in self._gone or grammar.is_glue(self._tokens[one]) for one in range(at)):
            return True
        if "number" not in kinds:
            return False
        joins = {"and", "or", "comma", "dash"}
        is_before = bool(joins & after.keys()) and any(a == at + 2 for a, _ in self._when)
        return is_behind or is_before or bool(joins & before.keys()) and any(b == at - 1 for _, b in self._when)

    def _is_unit(self, at: int) -> bool:
        """Whether a token is a length of time, or one with an ending: "week's"."""
        token = self._tokens[at]
        entry = self._lexicon.match([self._said[token.start : token.end].lower().replace("’", "'").removesuffix("'s")])
        return "length" in token.kinds or entry is not None and "unit" in entry.kinds

    def _is_clause(self, at: int) -> bool:
        """Whether a token stands alone between marks: "21 days" of "at half nine, 21 days, then stop"."""
        behind = at + 1
        while behind < len(self._tokens) and {"filler", "only"} & self._tokens[behind].kinds.keys():
            behind += 1
        ends = behind == len(self._tokens) or bool(BREAKS & self._tokens[behind].kinds.keys())
        return ends and at > 0 and bool(BREAKS & self._tokens[at - 1].kinds.keys())

    def _aside(self, rest: Sequence[int]) -> str:
        """What a text begins with that is not what the time is linked to: "at close of business on Friday to pay"."""
        links = [number for number, at in enumerate(rest) if "link" in self._tokens[at].kinds]
        if not links or not links[0]:
            return ""
        last = next((one for one, after in zip(rest, rest[1 : links[0] + 1]) if after != one + 1), rest[links[0] - 1])
        return self._said[self._tokens[rest[0]].start : self._tokens[last].end]

    def _is_behind(self, at: int, wanted: Set[str]) -> bool:
        """Whether a word of these kinds stands before a token, at most "the next" between them."""
        while at and LEADING & self._tokens[at - 1].kinds.keys() - wanted:
            at -= 1
        kinds = self._tokens[at - 1].kinds.keys() if at > 0 else set()
        return bool(wanted & kinds) and not {"around", "link"} <= kinds  # "about lunch with Tom"

    def _stands_beside(self, at: int) -> bool:
        """Whether a token stands right before or behind the time."""
        return any(self._is_joined(b, at) for _, b in self._when) or any(self._is_joined(at + 1, a) for a, _ in self._when)

    def _require_whole(self, rule: Rule) -> None:
        """BadInput for what repeats on a day that has a name of its own: "yearly on my birthday"."""
        a, b = self._when[-1]
        if b >= len(self._tokens) or "on" not in self._tokens[b].kinds or b in self._gone:
            return
        is_daily = rule.kind == "interval" or rule.base.endswith(" * * *")
        if not is_daily and "D" not in self._said_by(self._tokens[a:b]):
            raise UnclearTime("which_day", said=self._said[self._tokens[b].start :][:MAX_SHOWN])

    def _text(self) -> str:
        """What is left of the sentence, without the words that linked it to the time."""
        rest = list(self._rest())
        if len(rest) > 1 and "vague" in self._tokens[rest[0]].kinds and "link" in self._tokens[rest[1]].kinds:
            rest.pop(0)  # a time that nobody knows: "soon to buy milk"
        while rest and {"link", "comma", "colon", "dash"} & self._tokens[rest[0]].kinds.keys():
            rest.pop(0)
        while rest and ({"comma", "colon", "and", "stop", "filler", "dash"} & self._tokens[rest[-1]].kinds.keys()):
            rest.pop()
        pieces: list[str] = []
        for number, at in enumerate(rest):
            token = self._tokens[at]
            end = token.end
            if number + 1 < len(rest) and rest[number + 1] == at + 1:
                end = self._tokens[at + 1].start
            piece = self._said[token.start : end]
            pieces.append(piece if rest[number + 1 : number + 2] == [at + 1] else f"{piece} ")
        text = " ".join("".join(pieces).split()).replace(" ,", ",").strip(" ,")
        text = text.strip(QUOTES) if sum(map(text.count, QUOTES)) == 1 else text  # the other one stood at the time
        return self._lexicon.without_elision(text)


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
        raise UnclearTime("unread", said=said) from None
    if made.kind == "once" and recurrence.at(made) <= now_ms:
        raise UnclearTime("passed", said=said)
    return made


def _shifted(reading: TimeReading, rule: Rule, at: datetime) -> Rule:
    assert reading.shift is not None
    seconds, months = reading.shift
    if rule.kind == "once":
        return _once(readings.moved(at, seconds, months), rule.zone)
    moved = at + timedelta(seconds=seconds)
    if months or moved.date() != at.date() or moved.second:
        raise Unread
    return _at_clock(rule, moved.hour, moved.minute)


def _replaced(reading: TimeReading, rule: Rule, at: datetime) -> Rule:
    if reading.end is not None and reading == TimeReading(reading.now, end=reading.end) and rule.kind in recurrence.REPEATED:
        return recurrence.ending(rule, int(reading.end.replace(tzinfo=timezones.find(rule.zone)).timestamp() * 1000))
    has_clock = bool(reading.times or reading.part)
    is_regular = rule.kind in ("cron", "cadence", "interval")
    if reading.length is not None or reading.window or (reading.step or (0, "day"))[1] in ("second", "minute", "hour"):
        return rules.build(reading, rule.zone, False)
    days = reading.days or reading.dates or reading.date or reading.month or reading.week or reading.ordinals
    is_same_step = reading.step is None or rule.kind == "cron" and reading.step == (1, _step_of(rule))
    if has_clock and is_same_step and not (days or reading.months or (reading.is_repeated and reading.step is None)):
        return _with_clock(reading, rule, at)
    if not has_clock:
        reading.times = [Time(at.hour, at.minute, "24", second=at.second if rule.kind == "once" else 0)]
    is_of_month = bool(reading.dates) and not reading.months and rule.kind == "cron" and _step_of(rule) == "month"
    if is_regular and (reading.days or is_of_month) and not (reading.date or reading.step):
        reading.is_repeated = True
    return rules.build(reading, rule.zone, False)


def _step_of(rule: Rule) -> str:
    """The unit of time that a line of cron repeats in."""
    _, _, day, month, weekday = rule.base.split(" ")
    return "year" if month != "*" else "month" if day != "*" or "#" in weekday else "week" if weekday != "*" else "day"


def _with_clock(reading: TimeReading, rule: Rule, at: datetime) -> Rule:
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


def beside(found: TimeExpression, base: Moment, zone: str) -> Rule | None:
    """The moment so long before or after another one; None for half an hour before a day, which is at no time of it."""
    assert found.shift is not None
    seconds, months = found.shift
    at = readings.moved(base.at.replace(tzinfo=None), seconds, months)
    if not base.has_clock and seconds % DAY_S:
        return None
    if not base.has_clock:
        at = at.replace(hour=found.clock[0], minute=found.clock[1])
    return _once(at, zone)
