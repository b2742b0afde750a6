"""The first step of the grammar: runs of tokens that are one clock time, one length of time or one date become one token.

"Quarter to seven", "7 Uhr 15" and "sept heures et quart" are each a token of kind `time`; "two and a half hours" a `length`;
"the 3rd of May 2027" a `date`. What may be both keeps both kinds. Holds no words of a language. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from appliance.errors import BadInput
from appliance.language.languages import FIRST, Language, read_shipped
from appliance.language.times.tokenizer import Encoded, Match, Token

STEP = " | "  # in a phrase, between what is wrong with a time and the next step


class Unread(Exception):
    """These words are no time that the grammar knows."""


class UnclearTime(BadInput):
    """A time that is not understood, that there is not, or that has passed; the parts fill the gaps of its phrase `time_NAME`."""

    def __init__(self, name: str, **parts: str) -> None:
        self.phrase, self.parts = f"time_{name}", parts
        message, _, hint = read_shipped(FIRST)["phrases"][self.phrase].format(**parts).partition(STEP)
        super().__init__(message, hint=hint)

    def said_in(self, language: Language) -> tuple[str, str]:
        """What is wrong and the next step, in a language."""
        message, _, hint = language.say(self.phrase, **self.parts).partition(STEP)
        return message, hint


class Time(Struct, frozen=True):
    """A time of day as it was said: `half` is am, pm, 24 or "" for neither; a `loose` one may be in either half of the day."""

    hour: int
    minute: int = 0
    half: str = ""
    is_loose: bool = False
    second: int = 0
    is_written: bool = False  # as 07:30, which is in the morning, or as midnight


def bare(hour: int) -> Time:
    """An hour with nothing else said."""
    return check(hour, 0, "", is_loose=True)


def check(hour: int, minute: int, half: str, *, is_loose: bool) -> Time:
    """A time of day that a clock has; Unread for any other."""
    if half:
        if not 1 <= hour <= 12:
            raise Unread
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour == 24 and minute == 0:
        return Time(0, 0, "24")
    if hour > 23 or minute > 59:
        raise Unread
    return Time(hour, minute, half or ("24" if not 1 <= hour <= 12 else ""), is_loose and not half and 1 <= hour <= 12)


def is_possible(parts: Mapping[str, int]) -> bool:
    """Whether a clock shows these digits; `rest` are some that stood behind the seconds, or in their place and were not two."""
    hour, minute, second = parts["h"], parts.get("min", 0), parts.get("s", 0)
    return (hour < 24 or (hour, minute, second) == (24, 0, 0)) and minute < 60 and second < 60 and "rest" not in parts


def earlier(time: Time, minutes: int) -> Time:
    """So much earlier, in the same half of the day as the hour that was said; over midnight where that is known."""
    total = time.hour * 60 + time.minute - minutes
    if not time.half and not 60 <= total < 13 * 60:
        total %= 12 * 60  # ten to one
        total += 12 * 60 if total < 60 else 0
    hour, minute = divmod(total % 1440, 60)
    return Time(hour, minute, "24" if time.half else "", time.is_loose, time.second)


SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "night": 86_400, "week": 7 * 86_400, "fortnight": 14 * 86_400}
MONTHS = {"month": 1, "quarter": 3, "year": 12}
SPOKEN_MINUTES = (5, 10, 20, 25)  # "ten to eight", not "nine to five"
FULL_MINUTES = (15, 20, 25, 30, 35, 40, 45, 50, 55)  # "six thirty"
CLOCK_MARKS = frozenset({"at", "around", "by", "comma", "day", "ask", "weekday"})
REPEATING = frozenset({"every", "every_part", "adverb", "weekdays", "workdays", "weekends", "parts"})
Kinds = Mapping[str, Any]
Reduction = tuple[str, Callable[[Match], Kinds]]


def reduced(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with times, lengths and dates as one token each.

    Beside what repeats a word that may mean either says until when it does, and not by when: "bis Freitag jeden Morgen".
    """
    found = list(tokens)
    for level in LEVELS:
        found = _reduce(found, level)
    if any(REPEATING & token.kinds.keys() for token in found):
        return [_without(token, "by") if {"by", "until"} <= token.kinds.keys() else token for token in found]
    return found


def _without(token: Token, kind: str) -> Token:
    return Token(token.start, token.end, {name: value for name, value in token.kinds.items() if name != kind})


def _reduce(tokens: list[Token], level: Sequence[Reduction]) -> list[Token]:
    encoded, made, at = Encoded(tokens), [], 0
    while at < len(tokens):
        token, end = tokens[at], at + 1
        for pattern, read in level if tokens[at].kinds else ():
            if (match := encoded.match(pattern, at)) is None or match.end < end or (match.end == end and match.end - at > 1):
                continue
            try:
                kinds = read(match)
            except Unread:
                continue
            if kinds and (match.end > end or token is tokens[at]):
                whole = kinds if match.end - at > 1 else {**tokens[at].kinds, **kinds}
                glued = {"glued": ""} if "glued" in tokens[at].kinds else {}
                token, end = Token(tokens[at].start, tokens[match.end - 1].end, {**whole, **glued}), match.end
        made.append(token)
        at = end
    return made


# -- lengths of time --------------------------------------------------------------------------------


AND_PART = frozenset({"and_a_half", "and_half", "and_quarter"})


def _length(match: Match) -> Kinds:
    """So many units, and more of smaller ones."""
    seconds, months, amounts = 0.0, 0, []
    count: float | None = None
    for token in match.tokens[match.start : match.end]:
        kinds = token.kinds
        if "unit" in kinds and count is not None:
            unit = kinds["unit"]
            if unit in MONTHS:
                if count != int(count):
                    raise Unread
                months += int(count) * MONTHS[unit]
            else:
                seconds += count * SECONDS[unit]
            amounts.append((count, unit))
            count = None
        elif "number" in kinds or "decimal" in kinds:
            count = kinds["number"] if "number" in kinds else kinds["decimal"]
        elif AND_PART & kinds.keys():
            part = 0.25 if "and_quarter" in kinds else 0.5
            if count is not None:
                count += part
            else:  # an hour and a half
                before, unit = amounts[-1]
                if unit in MONTHS:
                    raise Unread
                seconds += part * SECONDS[unit]
                amounts[-1] = before + part, unit
        elif "one" in kinds:
            count = 1
    if count is not None:  # 1h30
        if [unit for _, unit in amounts] != ["hour"]:
            raise Unread
        seconds += count * 60
        amounts.append((count, "minute"))
    made: dict[str, Any] = {"length": (seconds, months)}
    if len(amounts) == 1:
        made["amount"] = amounts[0]
        if amounts[0][0] == 1:
            made["single"] = amounts[0][1]
    return made


def _named_length(match: Match) -> Kinds:
    count, unit = match.get("span")
    return {"length": (float(count) * SECONDS[unit], 0), "amount": (float(count), unit)}


LENGTHS: tuple[Reduction, ...] = (
    ("[one] span", _named_length),
    ("(number|decimal|one) (and_a_half|and_quarter) unit !weekday", _length),
    ("(number|one) unit (and_a_half|and_half|and_quarter)", _length),
    ("(number|decimal|one) unit !weekday", _length),
    ("(number|decimal|one) unit ([comma] [and] number unit)*", _length),
    ("number unit=hour ~two", _length),
)


# -- times of day -----------------------------------------------------------------------------------


def _time(hour: float, minute: float = 0, half: str = "", *, is_loose: bool = False) -> Time:
    if hour != int(hour) or minute != int(minute):
        raise Unread
    return check(int(hour), int(minute), half, is_loose=is_loose)


def _clock(match: Match) -> Kinds:
    parts = match.get("clock")
    if not is_possible(parts):
        raise Unread
    time = _time(parts["h"], parts.get("min", 0), match.get("ampm", ""))
    token = match.tokens[match.start]
    is_written = "zero" in token.kinds
    is_loose = 0 < time.hour < 6 and not time.half and not is_written  # 3:15, where 03:15 is at night
    return {"time": Time(time.hour, time.minute, time.half, is_loose, parts.get("s", 0), is_written)}


def _hour(match: Match) -> Kinds:
    """Seven o'clock, 18 Uhr 30, 14h30, 7 pm: what may be a length of time as well stays one."""
    numbers = match.all("number") + match.all("two")  # the hour, and the minutes
    time = _time(numbers[0], sum(numbers[1:2]), match.get("ampm", ""), is_loose=True)
    made: dict[str, Any] = {"time": time}
    if match.side("hour_mark", "unit") == "hour":
        made["length"] = (numbers[0] * 3600 + sum(numbers[1:2]) * 60, 0)
        if len(numbers) == 1:
            made["amount"] = (numbers[0], "hour")
            made |= {"single": "hour"} if numbers[0] == 1 else {}
    return made


def _dotted(match: Match) -> Kinds:
    hour, minute = match.get("dot_clock")
    return {"time": _time(hour, minute, match.get("ampm", ""))}


def _written(match: Match) -> Kinds:
    return {"time": _time(*match.get("hhmm"))}


def _noon(match: Match) -> Kinds:
    hour = int(match.get("noon"))
    later = 30 if match.has("and_half") else 15 if match.has("and_quarter") else -15 if match.has("less_quarter") else 0
    time = Time(hour, 0, "24", is_written=hour == 0)
    return {"time": earlier(time, -later) if later else time}


def _beside_noon(match: Match) -> Kinds:
    """Quarter past noon, half past midnight, quarter to twelve at night."""
    minutes = 30 if match.has("half") else 15
    return {"time": earlier(Time(int(match.get("noon")), 0, "24"), minutes if match.has("to") else -minutes)}


def _beside(match: Match) -> Kinds:
    """Half past, quarter to, ten to, ten past an hour; "half seven" is half past seven."""
    numbers = match.all("number")
    minutes = 30 if match.has("half") else 15 if match.has("quarter") else numbers.pop(0)
    if not 0 < minutes < 60:
        raise Unread
    is_before = match.has("to")
    before = match.tokens[match.start - 1].kinds if match.start else {}
    if not (is_before or match.has("past")) and "digits" in match.tokens[match.end - 1].kinds and not CLOCK_MARKS & before.keys():
        raise Unread  # half 10 eggs
    if not (match.has("unit") or match.has("quarter") or match.has("half")):
        is_digits = "digits" in match.tokens[match.start].kinds and match.start > 0
        if is_digits and not CLOCK_MARKS & before.keys():  # pages 10 to 20
            raise Unread
        if is_before and (minutes not in SPOKEN_MINUTES or {"from", "between"} & before.keys()):
            raise Unread
    hour = _time(numbers[0], 0, match.get("ampm", ""), is_loose=True)
    minutes = minutes if is_before else -minutes
    if match.has("half_to"):
        minutes += 30
    return {"time": earlier(hour, int(minutes))}


def _parts_to(match: Match) -> Kinds:
    """Halb sieben is 6:30, dreiviertel sieben 6:45, viertel sieben 6:15."""
    hour = _time(match.get("number"), 0, "", is_loose=True)
    minutes = 30 if match.has("half_to") else 15 if match.has("three_quarters") else 45
    return {"time": earlier(hour, minutes)}


def _behind(match: Match) -> Kinds:
    """Sept heures et demie, ocho menos cuarto, huit heures moins vingt."""
    numbers = match.all("number")
    hour = _time(numbers[0], 0, match.get("ampm", ""), is_loose=True)
    later = (
        30 if match.has("and_half") else 15 if match.has("and_quarter") else -15 if match.has("less_quarter") else -int(numbers[1])
    )
    made: dict[str, Any] = {"time": earlier(hour, -later)}
    if match.side("hour_mark", "unit") == "hour" and later > 0:  # in two hours and a half
        made |= {"length": (numbers[0] * 3600.0 + later * 60, 0), "amount": (numbers[0] + later / 60, "hour")}
    return made


def _spoken(match: Match) -> Kinds:
    hour, minute = match.all("number")
    if minute not in FULL_MINUTES:
        raise Unread
    return {"time": _time(hour, minute, match.get("ampm", ""), is_loose=True)}


TIMES: tuple[Reduction, ...] = (
    ("clock [(ampm|hour_mark)]", _clock),
    ("number hour_mark !number", _hour),
    ("number hour_mark two !unit", _hour),
    ("number ampm", _hour),
    ("number [hour_mark] (and_half|and_quarter|less_quarter|less number) !unit", _behind),
    ("dot_clock (ampm|hour_mark)", _dotted),
    ("at dot_clock [(ampm|hour_mark)]", _dotted),
    ("at hhmm [hour_mark]", _written),
    ("hhmm hour_mark", _written),
    ("noon [(and_half|and_quarter|less_quarter)]", _noon),
    ("(half|quarter) (past|to) noon", _beside_noon),
    ("(half|quarter) (past|to) number [hour_mark] [ampm]", _beside),
    ("half number [hour_mark] [ampm] !unit", _beside),
    ("number [unit=minute] (past|to) number [hour_mark] [ampm] !unit", _beside),
    ("number [unit=minute] (past|to) half_to number", _beside),
    ("(half_to|three_quarters|quarter_of) number [hour_mark]", _parts_to),
    ("number number [ampm] !unit !times_word", _spoken),
)


# -- dates ------------------------------------------------------------------------------------------


def _nth(match: Match) -> Kinds:
    if match.side("suffix", "stop") is not None and match.end == len(match.tokens):
        raise Unread  # the full stop of the sentence
    return {"nth": match.get("number", match.get("ordinal")), "digits_nth": ""}


def _numbered(match: Match) -> Kinds:
    """A day of the month by its bare number, in languages that have it so: "le 15"."""
    if not 1 <= match.get("number") <= 31:
        raise Unread
    return {"nth": match.get("number"), "digits_nth": ""}


def _ordinal(match: Match) -> Kinds:
    return {"nth": match.get("ordinal")}


def _date(match: Match) -> Kinds:
    day = match.get("nth", match.get("number"))
    if day is None or not 1 <= day <= 31:
        raise Unread
    return {"date": (match.get("year"), int(match.get("month")), int(day))}


def _slash(match: Match) -> Kinds:
    parts = match.get("slash")
    return {"two_dates": (parts.get("y"), parts["a"], parts["b"])}


def _feast(match: Match) -> Kinds:
    return {"feast_of": (match.get("year"), match.get("feast"))}


LEVELS: tuple[tuple[Reduction, ...], ...] = (
    (
        ("number ~suffix !number", _nth),
        ("ordinal", _ordinal),
        ("numbered number !number !unit !month !hour_mark !minute_mark !times_word !ampm", _numbered),
    ),
    TIMES,
    (
        ("(nth|number) [of] [the] month [[(of|comma)] year]", _date),
        ("month [the] (nth|number) [[comma] year] !ampm !hour_mark !unit", _date),
        ("slash", _slash),
        ("feast [year]", _feast),
    ),
    LENGTHS,
)
