"""Where a time is read: a sentence of a person, and what it says about when, as a rule, a day or a change of one.

The words come from the lexicon of a language, the tokens from `tokenizer` and `reductions`, what runs of them mean from
`grammar`, and the rule from `rules`. A text is a rule only when every word of it was understood; in a sentence the rest is what it
is about. No word that speaks of time may be left there: then, as where words contradict each other, or where something would
have to be guessed, it is `BadInput` with what was not understood. What follows "unless" and the like stays a condition, which a
model judges, if it does not only take days or months away. Pure: the present moment is an argument.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace as replace_dataclass
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language.times import clock_times, grammar, misspelled, recurrence, rules, timezones
from appliance.language.times.clock_times import Time, Unread
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.patterns import Encoded
from appliance.language.times.readings import Reading
from appliance.language.times.recurrence import Rule
from appliance.language.times.reductions import reduced
from appliance.language.times.timezones import LOCAL
from appliance.language.times.tokenizer import Token, tokens

CRON = re.compile(r"(?=.*[\d*])(?:[\d*/,#LW-]+|[A-Z]{3}(?:[-,][A-Z]{3})*)(?: (?:[\d*/,#LW-]+|[A-Z]{3}(?:[-,][A-Z]{3})*)){4}", re.I)
STARS = re.compile(r"(?:^|\s)(?:\*|\*/\d+)(?:\s|$)")  # of cron, with too many fields or too few
MACROS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}
MACROS |= {"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
MAX_CHARS = 500
MAX_TOKENS = 200  # of a sentence that may be about time: each is looked at with all behind it
MAX_MENDED = 100  # words of a sentence whose spelling is looked at
MAX_SHOWN = 100  # characters of what was not understood
MAX_CUTS = 12  # places at which a text may be two
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
EXAMPLES = "say when, such as: every weekday at 7am, in 20 minutes"
LATER = "say when it is to be, such as: tomorrow at noon, every Monday at 9"
CONDITIONS = ("condition", "except", "only", "until")
# Words beside which a time belongs to something else: "a gift for Monday", "the day before Easter".
BESIDE = frozenset({"for", "before", "after", "until", "between", "except", "condition", "start", "only", "from", "or"})
# Kinds of which none may be left in the text of a reminder, unless the word may be another one as well.
TIMELY = frozenset({"adverb", "clock", "date", "day", "digits_nth", "every", "every_part", "feast_of", "month", "time"})
TIMELY |= {"two_dates", "weekday", "weekdays", "weekends", "workdays"}
ALARMS = frozenset({"wake", "alarm", "timer"})
WHEN = TIMELY | {"length", "in", "part", "in_part", "number", "unit", "next", "this", "ampm", "noon"}
# Kinds that belong to a time beside which they stand.
ATTACHED = frozenset({"after_next", "ahead", "ampm", "and_a_half", "and_half", "half", "half_to", "hour_mark", "long", "or"})
ATTACHED |= {"past", "quarter_of", "times", "unit", "vague", "zone"}
PARTS = frozenset({"part", "in_part", "noon"})
AT = frozenset({"at", "by", "before", "after", "around", "until", "in"})
FOR = frozenset({"for"})
LEADING = frozenset({"the", "next", "coming", "around"})
BEFORE_NUMBERS = frozenset({"at", "by", "before", "after", "around", "until", "past"})


class TimeExpression(Struct, frozen=True):
    """What a sentence says about when, and about what: the rule, None for none; the words that say when; and the rest."""

    text: str
    when: str = ""
    rule: Rule | None = None
    shift: tuple[float, int] | None = None  # instead: so many seconds and months before or after what is said around it
    clock: tuple[int, int] = (0, 0)  # and the time of day of it


# -- whole texts --------------------------------------------------------------------------------------


def read(said: str, lexicon: Lexicon, now_ms: int, zone: str = LOCAL, *, is_frequency: bool = True) -> Rule:
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
    if said.lower() in MACROS:
        return recurrence.cron(MACROS[said.lower()], zone)
    try:
        return recurrence.simple(said, zone)
    except BadInput:
        if CRON.fullmatch(said) or STARS.search(said) or re.match("@[A-Za-z]", said):  # no words that a model could judge
            raise
    found = tokens(said, lexicon)
    if "judged" in found[0].kinds and len(found) > 1:
        return recurrence.text(said[found[0].end :].lstrip(" ,:"), zone)
    found = without_stop(reduced(found))
    if (rule := _compile(found, said, now_ms, zone, is_frequency)) is not None:
        return rule
    _require_possible(found, said)
    _require_ahead(found, said)
    if (rule := _compile_condition(found, said, now_ms, zone, is_frequency)) is not None:
        return rule
    meant = misspelled.mended(said, lexicon)
    if meant != said and _is_rule(meant, lexicon, now_ms, zone, is_frequency):
        raise BadInput(f"{said!r} is no time that is known", hint=f"did you mean: {meant}")
    if all(grammar.is_glue(token) or "number" in token.kinds or "every" in token.kinds for token in found):
        raise BadInput(f"{said!r} names no time", hint=f"{EXAMPLES}, 24 December at 6pm")
    judged = f"; or have a model judge it: judged: {said}" if is_frequency else ""
    raise BadInput(f"no rule says when {said!r} is", hint=f"{EXAMPLES}, tomorrow at noon{judged}")


def _is_rule(said: str, lexicon: Lexicon, now_ms: int, zone: str, is_frequency: bool) -> bool:
    """Whether a text is a rule, if only one whose moment has passed."""
    found = without_stop(reduced(tokens(said, lexicon)))
    try:
        known = _compile(found, said, now_ms, zone, is_frequency)
        return known is not None or _compile_condition(found, said, now_ms, zone, is_frequency) is not None
    except BadInput:
        return True


def without_stop(found: list[Token]) -> list[Token]:
    while found and ("stop" in found[-1].kinds or "comma" in found[-1].kinds):
        found = found[:-1]
    while found and "comma" in found[0].kinds:
        found = found[1:]
    return found


def _compile(found: Sequence[Token], said: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """The rule that tokens are, all of them; None when they are none."""
    try:
        return _compile_plain(found, now_ms, zone, is_frequency) or _compile_halves(found, now_ms, zone, is_frequency)
    except (ValueError, OverflowError):
        raise BadInput(f"{said!r} is too far away", hint="say an earlier time") from None


def _compile_plain(found: Sequence[Token], now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    try:
        reading, zone = _parsed(found, now_ms, zone)
        return rules.build(reading, zone, is_frequency)
    except Unread:
        return None


def _parsed(found: Sequence[Token], now_ms: int, zone: str) -> tuple[Reading, str]:
    """What the tokens say at that moment, in the zone that they name, and that zone."""
    named = next((str(token.kinds["zone"]) for token in found if "zone" in token.kinds), zone)
    if not timezones.is_known(named):
        raise Unread
    now, here = (datetime.fromtimestamp(now_ms / 1000, timezones.find(name)).replace(tzinfo=None) for name in (named, zone))
    reading = grammar.parse(found, now)
    if reading.is_today and now.date() != here.date():
        raise Unread  # whose today?
    return reading, named


def _compile_halves(found: Sequence[Token], now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """Weekdays at 8 and weekends at 10: rules in one, each with times of its own, which all are said in the same order."""
    made: list[tuple[Rule, str]] = []
    end = len(found)
    joints = [at for at in range(1, len(found) - 1) if {"and", "comma"} & found[at].kinds.keys()][:MAX_CUTS]
    for cut in reversed(joints):
        half = _compile_half(found[cut + 1 : end], now_ms, zone, True)
        if half is not None and all(half[1] == order for _, order in made):
            made, end = [half, *made], cut
    first = _compile_half(found[:end], now_ms, zone, is_frequency) if made else None
    if first is None or any(rule.zone != first[0].zone or order != first[1] for rule, order in made):
        return None
    try:
        return recurrence.cron(recurrence.BETWEEN.join(rule.spec for rule, _ in [first, *made]), first[0].zone)
    except BadInput:
        return None


def _compile_half(found: Sequence[Token], now_ms: int, zone: str, is_frequency: bool) -> tuple[Rule, str] | None:
    """One of several rules, and the order of its words; None for what names no time of day."""
    if found and "number" in found[0].kinds:
        found = [Token(found[0].start, found[0].start, {"at": ""}), *found]
    try:
        reading, zone = _parsed(found, now_ms, zone)
        rule = rules.build(reading, zone, is_frequency)
    except (Unread, BadInput, ValueError, OverflowError):
        return None
    return (rule, reading.order) if rule.kind == "cron" and "T" in reading.order else None


def _compile_condition(found: Sequence[Token], said: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """A rule with a condition, which a model judges at its times; or without the days that it takes away."""
    kinds = CONDITIONS if is_frequency else ("condition", "except", "only")
    cut = next((at for at, token in enumerate(found) if at and kinds & token.kinds.keys()), None)
    if cut is None or (head := _compile_plain(without_stop(list(found[:cut])), now_ms, zone, is_frequency)) is None:
        return None
    if (narrowed := _compile_narrowed(found[:cut], found[cut:], now_ms, zone, is_frequency)) is not None:
        return narrowed
    has_clock = any("time" in token.kinds for token in found[cut:])
    if has_clock or head.kind not in ("cron", "cadence", "interval") or (not is_frequency and "condition" not in found[cut].kinds):
        return None
    return replace(head, condition=said)


def _compile_narrowed(head: Sequence[Token], tail: Sequence[Token], now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """The rule without the days, months or hours that its tail takes away; None when that is not all the tail says."""
    is_only = "only" in tail[0].kinds and "except" not in tail[0].kinds
    if "except" not in tail[0].kinds and not is_only:
        return None
    try:
        kept, zone = _parsed(without_stop(list(head)), now_ms, zone)
        less, _ = _parsed([token for token in tail[1:] if "for" not in token.kinds], now_ms, zone)
        if not kept.times and not kept.part:  # every day except Sunday at 8pm
            kept.times, kept.part, less.times, less.part = less.times, less.part, [], ""
        is_stepped = kept.step is not None and kept.step != (1, "day") and kept.step[1] not in ("minute", "hour")
        is_odd = is_stepped or kept.ordinals or kept.dates or kept.date
        plain = replace_dataclass(less, days=set(), months=set(), step=None, is_repeated=False)
        if plain != Reading(less.now) or is_odd or (less.step not in (None, (1, "year"))):
            return None
        days, months = kept.days or set(range(7)), kept.months or set(range(1, 13))
        if less.days:
            kept.days = days & less.days if is_only else days - less.days
        if less.months:
            kept.months = months & less.months if is_only else months - less.months
        kept.is_repeated = True
        if not (less.days or less.months) or (less.days and not kept.days) or (less.months and not kept.months):
            return None
        return rules.build(kept, zone, is_frequency)
    except (Unread, ValueError, OverflowError):
        return None


def _require_possible(found: Sequence[Token], said: str) -> None:
    """BadInput for a time or a day which no clock and no calendar has."""
    for at, token in enumerate(found):
        end = token.end
        is_wrong = False
        if "clock" in token.kinds:
            is_wrong = not clock_times.is_possible(token.kinds["clock"])
        elif "date" in token.kinds:
            _, month, day = token.kinds["date"]
            is_wrong = not 1 <= month <= 12 or not 1 <= day <= LONGEST_MONTHS[month - 1]
        elif "number" in token.kinds and at + 1 < len(found) and "ampm" in found[at + 1].kinds:
            is_wrong, end = token.kinds["number"] > 12, found[at + 1].end
        if is_wrong:
            wrong = said[token.start : end].lower()
            raise BadInput(f"there is no {wrong}", hint="say a time such as 7:30 or 5pm, and a day that the calendar has")


def _require_ahead(found: Sequence[Token], said: str) -> None:
    """BadInput for tokens that say when it was, or count backwards."""
    for at, token in enumerate(found):
        following = found[at + 1].kinds if at + 1 < len(found) else {}
        if ({"dash", "minus"} & token.kinds.keys() and "length" in following and "glued" not in token.kinds) or (
            "length" in token.kinds and token.kinds["length"] == (0, 0)
        ):
            end = found[at + 1].end if "length" not in token.kinds else token.end
            raise BadInput(
                f"{said[token.start : end]!r} is no time to come", hint="say how often, or in how long, such as: every 5 minutes"
            )
    for one in grammar.fragments(found):
        reading = Reading(datetime(2024, 1, 1, 12))
        try:
            match = Encoded(found).match(one.production.pattern, one.start)
            assert match is not None
            one.production.handler(reading, match)
        except (Unread, BadInput, ValueError, OverflowError):
            continue
        is_owned = said[found[one.end - 1].end :].startswith(("'", "’"))
        if reading.is_past and not is_owned:
            raise BadInput(f"{said[found[one.start].start : found[one.end - 1].end]} has passed", hint=LATER)


# -- sentences ------------------------------------------------------------------------------------------


def split(
    said: str, lexicon: Lexicon, now_ms: int, zone: str = LOCAL, *, is_ahead: bool = False, is_early: bool = False
) -> TimeExpression:
    """What a sentence is about, and the rule of when that is to be; no rule where it names no time.

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
    meant = misspelled.mended(said, lexicon) if len(said.split()) <= MAX_MENDED else said
    if meant == said:
        return
    try:
        other = _Sentence(meant, lexicon, now_ms, zone, False, False).expression()
    except BadInput:
        return
    if len(other.when.split()) > len(when.split()):
        raise BadInput(f"{said[:MAX_SHOWN]!r} says no time that is known", hint=f"did you mean: {other.text} {other.when}".rstrip())


class _Sentence:
    """A sentence that is taken apart."""

    def __init__(self, said: str, lexicon: Lexicon, now_ms: int, zone: str, is_ahead: bool, is_early: bool) -> None:
        self._said, self._lexicon, self._now_ms, self._zone = said, lexicon, now_ms, zone
        self._tokens = reduced(tokens(said, lexicon))
        if (count := sum(token.kinds.keys() != {"plain"} for token in self._tokens)) > MAX_TOKENS:
            raise BadInput(f"{count} words that may be about time", hint="say what and when in fewer, and the rest in a note")
        self._is_ahead, self._is_early = is_ahead, is_early
        self._default = ""  # what an alarm is for, where nothing is said
        self._gone: set[int] = set()  # tokens that ask for the reminder
        self._when: list[tuple[int, int]] = []  # runs of tokens that say when

    def expression(self) -> TimeExpression:
        self._read_asking()
        self._find_runs()
        if not self._when:
            text = self._text()
            _require_ahead(self._tokens, self._said)
            return TimeExpression(text or self._default)
        if (reading := self._shift()) is not None:
            ((hour, minute),) = rules.named_times(reading)
            return TimeExpression(self._text() or self._default, self._words(), None, reading.shift, (hour, minute))
        rule = self._rule()
        self._require_understood(rule)
        return TimeExpression(self._text() or self._default, self._words(), rule)

    def _words(self) -> str:
        """The words that say when."""
        return " ".join(self._said[self._tokens[a].start : self._tokens[b - 1].end] for a, b in self._when)

    def _shift(self) -> Reading | None:
        """What the sentence says to be so long before or after something that it does not name."""
        try:
            reading, _ = _parsed([token for a, b in self._when for token in self._tokens[a:b]], self._now_ms, self._zone)
        except (Unread, BadInput, ValueError, OverflowError):
            return None
        plain = replace_dataclass(reading, shift=None, times=[], part="")
        is_one = reading.shift is not None and len(reading.times) < 2 and plain == Reading(reading.now)
        end = self._when[-1][1]
        is_named = end < len(self._tokens) and not {"link", "comma", "stop", "filler"} & self._tokens[end].kinds.keys()
        return reading if is_one and not is_named else None

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
            if not (grammar.is_glue(token) or kinds.keys() & WHEN):
                return

    def _say_at(self, at: int) -> None:
        """Behind "set an alarm for" a bare hour is a time, and a bare length one from now on."""
        while at < len(self._tokens) and {"for", "colon"} & self._tokens[at].kinds.keys():
            self._gone.add(at)
            at += 1

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
        for a, b in sorted(taken):
            if self._when and self._is_joined(self._when[-1][1], a):
                self._when[-1] = (self._when[-1][0], b)
            else:
                self._when.append((a, b))

    def _read_bare(self) -> None:
        """A bare hour or length of time where one is asked for: "set a timer for 10 minutes", "wake me at 6"."""
        for at, token in enumerate(self._tokens):
            if at in self._gone or grammar.is_glue(token):
                continue
            kinds, before = token.kinds, self._tokens[at - 1].kinds if at else {}
            if self._is_ahead and "length" in kinds and not {"in", "after", "every"} & before.keys():
                self._tokens[at] = Token(token.start, token.end, {"from_now": kinds["length"]})
            elif self._is_early and "number" in kinds and (not at or at - 1 in self._gone or "at" in before):
                self._tokens[at] = Token(token.start, token.end, {"time": Time(int(kinds["number"]), 0, "24")})
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
        gap = Token(0, 0, {"gap": ""})
        joined = [token for number, run in enumerate(runs) for token in ([gap] if number else []) + run]
        _require_possible(joined, self._said)
        kinds = [self._said_by(run) for run in runs]
        if any(sum(letter in one for one in kinds) > 1 for letter in "TD"):
            words = ", ".join(self._said[run[0].start : run[-1].end] for run in runs)[:MAX_SHOWN]
            raise BadInput(f"several times are named: {words}", hint="say one reminder at a time")
        rule = _compile(joined, self._said, self._now_ms, self._zone, False)
        if rule is None:
            _require_ahead(joined, self._said)
            words = " ".join(self._said[run[0].start : run[-1].end] for run in runs)[:MAX_SHOWN]
            raise BadInput(f"{words!r} is no time that is understood", hint=LATER)
        return rule

    def _said_by(self, run: Sequence[Token]) -> str:
        """Whether tokens name a time of day (T), a day (D), or both."""
        try:
            reading, _ = _parsed(run, self._now_ms, self._zone)
        except (Unread, BadInput, ValueError, OverflowError):
            return "TD"
        days = reading.days or reading.dates or reading.ordinals or reading.date or reading.month or reading.week
        return ("T" if reading.times or reading.window else "") + ("D" if days else "")

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
        rule = _compile_condition([*head, *self._tokens[start:last]], said, self._now_ms, self._zone, False)
        if rule is None:
            raise BadInput(f"{said[:MAX_SHOWN]!r} is no time that is understood", hint=LATER)
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
        has_hour = any("T" in self._said_by(self._tokens[a:b]) for a, b in self._when)
        for at in rest:
            token, behind = self._tokens[at], self._tokens[at + 1].kinds if at + 1 in rest else {}
            kinds: Set[str] = token.kinds.keys()
            word = self._said[token.start : token.end]
            if not kinds and word.lower().endswith(("'s", "’s")) and (entry := self._lexicon.match([word.lower()[:-2]])):
                kinds = entry.kinds.keys() & (TIMELY | {"unsure"})
            is_sure = "unsure" not in kinds
            is_beside = self._stands_beside(at) or "ahead" in kinds and self._stands_beside(at - 1)
            signs = (
                is_sure and TIMELY & kinds and not {"time", "length"} <= kinds,
                BEFORE_NUMBERS & kinds and "link" not in kinds and "number" in behind and "length" not in behind,
                "next" in kinds and "unit" in behind or "of_time" in kinds,
                not has_hour and PARTS & kinds and self._is_behind(at, AT),
                rule.kind != "once" and "length" in kinds and ("long" in behind or self._is_behind(at, FOR)),
                is_beside and ATTACHED & kinds and not {"unsure", "after", "before"} & kinds,
                {"until", "start", "except"} & kinds and "link" not in kinds and self._stands_beside(at),
                self._is_torn(at),
            )
            if any(signs):
                raise BadInput(f"{word!r} says when as well, and is not understood", hint=LATER)
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

    def _is_behind(self, at: int, wanted: Set[str]) -> bool:
        """Whether a word of these kinds stands before a token, at most "the next" between them."""
        while at and LEADING & self._tokens[at - 1].kinds.keys() - wanted:
            at -= 1
        return at > 0 and bool(wanted & self._tokens[at - 1].kinds.keys())

    def _stands_beside(self, at: int) -> bool:
        """Whether a token stands right before or behind the time."""
        return any(self._is_joined(b, at) for _, b in self._when) or any(self._is_joined(at + 1, a) for a, _ in self._when)

    def _require_whole(self, rule: Rule) -> None:
        """BadInput for what repeats on a day that has a name of its own: "yearly on my birthday"."""
        a, b = self._when[-1]
        if rule.kind == "once" or b >= len(self._tokens) or "on" not in self._tokens[b].kinds or b in self._gone:
            return
        if self._said_by(self._tokens[a:b]) in ("", "T"):
            raise BadInput(f"on which day of the calendar is {self._said[self._tokens[b].start :][:MAX_SHOWN]!r}?", hint=LATER)

    def _text(self) -> str:
        """What is left of the sentence, without the words that linked it to the time."""
        rest = list(self._rest())
        while rest and ({"link", "comma", "colon", "dash"} & self._tokens[rest[0]].kinds.keys()):
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
        return self._lexicon.without_elision(text)
