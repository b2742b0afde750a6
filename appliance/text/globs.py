"""Globs as regular expressions: `*`, `**`, `?`, classes, braces and `!()`.

`*` and `?` stop at a slash and `**` does not; `**/` is any number of folders, none included. `{a,b}` and
`{1..9}` are choices, `!(a|b)` is what is neither, up to the end of the step. A backslash takes the meaning
from the character after it. Brackets that are empty, braces and `!()` with a quote or a line break are plain
text, for those come from JSON and source code; so are `+`, `(` and `)`. Knows nothing of the engine that
runs the result.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from appliance.errors import BadInput

EXPRESSION_LIMIT = 20_000  # characters of the regular expression that a glob becomes
RANGE_LIMIT = 1000  # numbers in {1..9}

_CLASS = re.compile(r"\[([!^]?)((?:\[:[a-z]+:\]|[^\]])+)\]")
_POSIX = re.compile(r"\[:(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit):\]")
_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})")


def is_glob(text: str) -> bool:
    """Whether anything in the text has a meaning beyond itself."""
    return any(not isinstance(part, str) for part in _parse_glob(text))


def whole(text: str) -> str:
    """The regular expression, for a match with `.` for every character, that a whole path has to fit."""
    return _emit_regex(_parse_glob(text), r"\Z", "[^/]", ".")


def inside(text: str) -> str:
    """The regular expression that finds such a place in a text, within one line."""
    return _emit_regex(_parse_glob(text), "", r"[^/\n]", r"[^\n]")


class _Char(Struct, frozen=True):
    """A character that was escaped."""

    value: str


class _Stars(Struct, frozen=True):
    count: int
    is_folder: bool  # it is a whole step, with the slash after it


class _One(Struct, frozen=True):
    """`?`, or a class as a regular expression."""

    expression: str


class _Choice(Struct, frozen=True):
    choices: "tuple[_Parts, ...]"
    is_not: bool


_Part = str | _Char | _Stars | _One | _Choice
_Parts = tuple[_Part, ...]


def _parse_glob(text: str) -> _Parts:
    try:
        return _parse_part(text, 0, len(text), _pair_brackets(text))
    except RecursionError:
        raise BadInput("the glob has too many brackets in each other", hint="use fewer {} and !()") from None


def _pair_brackets(text: str) -> dict[int, int]:
    """Where each bracket of `{…}` and `(…)` closes."""
    closes, waiting, i = {}, [], 0
    while i < len(text):
        if text[i] == "\\":
            i += 1
        elif text[i] in "{(":
            waiting.append(i)
        elif text[i] in "})" and waiting and text[waiting[-1]] + text[i] in ("{}", "()"):
            closes[waiting.pop()] = i
        i += 1
    return closes


def _parse_part(text: str, i: int, end: int, closes: dict[int, int]) -> _Parts:
    parts: list[_Part] = []
    while i < end:
        part, i = _parse_one(text, i, end, closes)
        parts.append(part)
    return tuple(parts)


def _parse_one(text: str, i: int, end: int, closes: dict[int, int]) -> tuple[_Part, int]:
    char = text[i]
    if char == "\\" and i + 1 < end and text[i + 1] in "*?[]{}!()|,\\":
        # A backslash before a backslash is no sign of a glob: \\server\share is a path.
        return (_Char(text[i + 1]) if text[i + 1] in "*?[{!" else text[i : i + 2]), i + 2
    if char == "*":
        stop = i
        while stop < end and text[stop] == "*":
            stop += 1
        is_folder = stop - i > 1 and text[stop : stop + 1] == "/" and stop < end and (i == 0 or text[i - 1] in "/{(|,")
        return _Stars(stop - i, is_folder), stop + is_folder
    if char == "?":
        return _One(""), i + 1
    if char == "[" and (found := _CLASS.match(text, i, end)):
        return _One(_class_regex(found[1], found[2])), found.end()
    if char == "{" or text.startswith("!(", i):
        start = i + (char == "!")
        close = closes.get(start, end)
        if close < end and (choices := _parse_choices(text, start + 1, close, closes, char == "!")):
            return _Choice(choices, char == "!"), close + 1
    return char, i + 1


def _parse_choices(text: str, start: int, end: int, closes: dict[int, int], is_not: bool) -> tuple[_Parts, ...]:
    """The parts of `{a,b}`, `{1..9}` or `!(a|b)`; none when it is plain text after all, as in JSON or a call."""
    inner = text[start:end]
    if not inner or '"' in inner or "\n" in inner:
        return ()
    if not is_not and (found := _RANGE.fullmatch(inner)):
        first, last = int(found[1]), int(found[2])
        if abs(last - first) >= RANGE_LIMIT:
            raise BadInput(f"the range {{{inner}}} is too long", hint=f"{RANGE_LIMIT:,} numbers are allowed")
        step = 1 if last >= first else -1
        return tuple((str(n),) for n in range(first, last + step, step))
    cuts, i = [start - 1], start
    while i < end:
        if text[i] == "\\":
            i += 1
        elif i in closes:
            i = closes[i]
        elif text[i] == ("|" if is_not else ","):
            cuts.append(i)
        i += 1
    if len(cuts) == 1 and not is_not:
        return ()
    return tuple(_parse_part(text, a + 1, b, closes) for a, b in zip(cuts, [*cuts[1:], end]))


def _class_regex(negation: str, inner: str) -> str:
    """`[!a-z]` as a regular expression; a class never takes a slash."""
    made, i = [], 0
    while i < len(inner):
        if named := _POSIX.match(inner, i):
            made.append(named[0])
            i = named.end()
            continue
        first, i = inner[i], i + 1
        last = first
        if i + 1 < len(inner) and inner[i] == "-":
            last, i = inner[i + 1], i + 2
        if first <= last:  # a range the wrong way round holds nothing
            made.append(re.escape(first) if first == last else f"{re.escape(first)}-{re.escape(last)}")
    if not made:
        return "(?!/)." if negation else "(?!)"
    return f"(?!/)[{'^' if negation else ''}{''.join(made)}]"


def _emit_regex(parts: Iterable[_Part], after: str, one: str, many: str) -> str:
    """A regular expression for these parts and then `after`; built from the end, for `!()` looks ahead to it.

    No part repeats what another repeats but `*` itself, so that backtracking stays polynomial.
    """
    made = after
    for part in reversed(tuple(parts)):
        match part:
            case str():
                made = re.escape(part) + made
            case _Char():
                made = re.escape(part.value) + made
            case _Stars(count=1):
                made = f"{one}*{made}"
            case _Stars():
                made = (f"(?:{one}*/)*" if part.is_folder else f"{many}*") + made
            case _One():
                made = (part.expression or one) + made
            case _Choice(is_not=True):
                barred = "|".join(_emit_regex(choice, "", one, many) for choice in part.choices)
                made = f"(?!(?:{barred}){made}){one}*{made}"
            case _Choice():
                if any(isinstance(inner, _Choice) and inner.is_not for choice in part.choices for inner in choice):
                    made = f"(?:{'|'.join(_emit_regex(choice, made, one, many) for choice in part.choices)})"
                else:
                    made = f"(?:{'|'.join(_emit_regex(choice, '', one, many) for choice in part.choices)}){made}"
        if len(made) > EXPRESSION_LIMIT:
            raise BadInput("the glob has too many parts in each other", hint="use fewer {} and !()")
    return made
