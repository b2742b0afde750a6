"""Where a text that is a time and nothing else becomes a rule: "every weekday at 7am unless I'm away".

The words come from the lexicon of a language, the tokens from `tokenizer` and `reductions`, what runs of them mean from
`grammar`, and the rule from `rules`. A text is a rule only when every word of it was understood; what follows "unless" and the
like stays a condition, which a model judges, if it does not only take days or months away. A misspelled word is a guess, which is
for the person to confirm. Pure: the present moment is an argument.
"""

import re
from collections.abc import Sequence
from dataclasses import replace as replace_dataclass
from datetime import datetime

from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language.times import grammar, recurrence, reductions, rules, timezones
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.readings import TimeReading
from appliance.language.times.recurrence import Rule
from appliance.language.times.reductions import UnclearTime, Unread, reduced
from appliance.language.times.timezones import LOCAL
from appliance.language.times.tokenizer import Encoded, Token, tokens
from appliance.language.word_forms import distance

MAX_CHARS = 500
MAX_CUTS = 12  # places at which a text may be two
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
CONDITIONS = ("condition", "except", "only", "until")
MIN_CHARS, LONG_CHARS = 4, 7  # of a word that may have one wrong letter, or two
WORD = re.compile(r"[^\W\d_]{4,13}(?:'[^\W\d_]+)?")


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
    try:
        return recurrence.cron(said, zone) if said.startswith("@") else recurrence.simple(said, zone)
    except BadInput:
        if recurrence.WORDLESS.search(said):  # no words that a model could judge
            raise
    found = tokens(said, lexicon)
    if "judged" in found[0].kinds and len(found) > 1:
        return recurrence.text(said[found[0].end :].lstrip(" ,:"), zone)
    found = without_stop(reduced(found))
    if (rule := compile_tokens(found, said, now_ms, zone, is_frequency)) is not None:
        return rule
    require_possible(found, said)
    require_ahead(found, said)
    if (rule := compile_condition(found, said, now_ms, zone, is_frequency)) is not None:
        return rule
    meant = mended(said, lexicon)
    if meant != said and is_rule(meant, lexicon, now_ms, zone, is_frequency):
        raise UnclearTime("mistyped", said=said, meant=meant)
    if all(grammar.is_glue(token) or "number" in token.kinds or "every" in token.kinds for token in found):
        raise UnclearTime("none", said=said)
    raise UnclearTime("unruled" if is_frequency else "unread", said=said)


def is_rule(said: str, lexicon: Lexicon, now_ms: int, zone: str = LOCAL, is_frequency: bool = True) -> bool:
    """Whether a text is a rule, if only one whose moment has passed."""
    found = without_stop(reduced(tokens(said, lexicon)))
    try:
        known = compile_tokens(found, said, now_ms, zone, is_frequency)
        return known is not None or compile_condition(found, said, now_ms, zone, is_frequency) is not None
    except BadInput:
        return True


def without_stop(found: list[Token]) -> list[Token]:
    while found and ("stop" in found[-1].kinds or "comma" in found[-1].kinds):
        found = found[:-1]
    while found and "comma" in found[0].kinds:
        found = found[1:]
    return found


def compile_tokens(found: Sequence[Token], said: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    """The rule that tokens are, all of them; None when they are none."""
    try:
        return _compile_plain(found, now_ms, zone, is_frequency) or _compile_halves(found, now_ms, zone, is_frequency)
    except (ValueError, OverflowError):
        raise UnclearTime("far", said=said) from None


def _compile_plain(found: Sequence[Token], now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
    try:
        reading, zone = parse_tokens(found, now_ms, zone)
        return rules.build(reading, zone, is_frequency)
    except Unread:
        return None


def parse_tokens(found: Sequence[Token], now_ms: int, zone: str) -> tuple[TimeReading, str]:
    """What the tokens say at that moment, in the zone that they name, and that zone."""
    named = next((str(token.kinds["zone"]) for token in found if "zone" in token.kinds), zone)
    if named != zone and not timezones.is_known(named):
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
    """One of several rules, and the order of its words; None for what has no time in it of day."""
    if found and "number" in found[0].kinds:
        found = [Token(found[0].start, found[0].start, {"at": ""}), *found]
    try:
        reading, zone = parse_tokens(found, now_ms, zone)
        rule = rules.build(reading, zone, is_frequency)
    except (Unread, BadInput, ValueError, OverflowError):
        return None
    is_plain = rule.kind == "cron" and rule.end_ms is None
    return (rule, reading.order) if is_plain and "T" in reading.order else None


def compile_condition(found: Sequence[Token], said: str, now_ms: int, zone: str, is_frequency: bool) -> Rule | None:
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
        kept, zone = parse_tokens(without_stop(list(head)), now_ms, zone)
        less, _ = parse_tokens([token for token in tail[1:] if "for" not in token.kinds], now_ms, zone)
        if not kept.times and not kept.part:  # every day except Sunday at 8pm
            kept.times, kept.part, less.times, less.part = less.times, less.part, [], ""
        is_stepped = kept.step is not None and kept.step != (1, "day") and kept.step[1] not in ("minute", "hour")
        is_odd = is_stepped or kept.ordinals or kept.dates or kept.date
        plain = replace_dataclass(less, days=set(), months=set(), step=None, is_repeated=False)
        if plain != TimeReading(less.now) or is_odd or (less.step not in (None, (1, "year"))):
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


def require_possible(found: Sequence[Token], said: str) -> None:
    """BadInput for a time or a day which no clock and no calendar has."""
    for at, token in enumerate(found):
        end = token.end
        is_wrong = False
        if "clock" in token.kinds:
            is_wrong = not reductions.is_possible(token.kinds["clock"])
        elif "date" in token.kinds:
            _, month, day = token.kinds["date"]
            is_wrong = not 1 <= month <= 12 or not 1 <= day <= LONGEST_MONTHS[month - 1]
        elif "number" in token.kinds and at + 1 < len(found) and "ampm" in found[at + 1].kinds:
            is_wrong, end = token.kinds["number"] > 12, found[at + 1].end
        if is_wrong:
            raise UnclearTime("impossible", said=said[token.start : end].lower())


def require_ahead(found: Sequence[Token], said: str) -> None:
    """BadInput for tokens that say when it was, or count backwards."""
    for at, token in enumerate(found):
        following = found[at + 1].kinds if at + 1 < len(found) else {}
        if ({"dash", "minus"} & token.kinds.keys() and "length" in following and "glued" not in token.kinds) or (
            "length" in token.kinds and token.kinds["length"] == (0, 0)
        ):
            end = found[at + 1].end if "length" not in token.kinds else token.end
            raise UnclearTime("backwards", said=said[token.start : end])
    for one in grammar.fragments(found):
        reading = TimeReading(datetime(2024, 1, 1, 12))
        try:
            match = Encoded(found).match(one.production.pattern, one.start)
            assert match is not None
            one.production.handler(reading, match)
        except (Unread, BadInput, ValueError, OverflowError):
            continue
        is_owned = said[found[one.end - 1].end :].startswith(("'", "’"))
        if reading.is_past and not is_owned:
            raise UnclearTime("passed", said=said[found[one.start].start : found[one.end - 1].end])


def mended(said: str, lexicon: Lexicon) -> str:
    """The text with the nearest word about time for each near miss: a guess, which is for the person to confirm."""

    def correct(found: "re.Match[str]") -> str:
        word = found[0].lower()
        if len(word) < MIN_CHARS or word in lexicon.words:
            return found[0]
        most = 2 if len(word) >= LONG_CHARS else 1
        near = [
            (count, target[-1] != word[-1], target)
            for target in lexicon.long_words
            if abs(len(target) - len(word)) <= most
            and (target[0] == word[0] or word[1:2] == target[:1])
            and (count := distance(word, target, most)) <= most
        ]
        return min(near)[2] if near else found[0]

    return WORD.sub(correct, said)
