"""Follows a grammar byte by byte: what may come next, and what must.

Reads the part of llama.cpp's GBNF that `grammar` writes: rules, literals, classes of ASCII characters,
groups, |, ?, *, + and {m,n}. llama.cpp follows a grammar too, but takes 0.6 ms to check a token and 20 ms
to mask one, more for lengths, and cannot say that only one text may follow. States are made when they
are reached and kept, so that a second visit costs a dictionary. Pure.

Not promised: a grammar with left recursion, or with a repeated part that may be empty, does not end.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
SYMBOL = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<times>\{\d+(?:,\d*)?\})|(?P<name>[\w-]+)|(?P<mark>.))'
)
LETTER = re.compile(r"\\x([0-9A-Fa-f]{2})|\\(.)|(.)", re.DOTALL)
ASCII = (1 << 128) - 1
# The bytes of one character above ASCII, as UTF-8 has them: ranges of the first, the second, and how many more.
WIDE = (
    (0xC2, 0xDF, 0x80, 0xBF, 0),
    (0xE0, 0xE0, 0xA0, 0xBF, 1),
    (0xE1, 0xEC, 0x80, 0xBF, 1),
    (0xED, 0xED, 0x80, 0x9F, 1),
    (0xEE, 0xEF, 0x80, 0xBF, 1),
    (0xF0, 0xF0, 0x90, 0xBF, 2),
    (0xF1, 0xF3, 0x80, 0xBF, 2),
    (0xF4, 0xF4, 0x80, 0x8F, 2),
)


class Bytes(Struct, frozen=True, eq=False):
    """One byte out of a set, which is kept as bits."""

    bits: int


class GrammarRow(Struct, frozen=True, eq=False):
    """Parts one after the other."""

    parts: tuple[Any, ...]


class GrammarChoice(Struct, frozen=True, eq=False):
    """One of several."""

    options: tuple[Any, ...]


class Times(Struct, frozen=True, eq=False):
    """A part so many times; `most` -1 is without end."""

    part: Any
    least: int
    most: int


class GrammarRule(Struct, frozen=True, eq=False):
    """Another rule, by name: rules may contain themselves."""

    name: str


# What is left to match: (part, the rest of it); None is nothing. Equal ones are one object.
Rest = tuple[Any, Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class GrammarState:
    """Every way to go on from here, each begun by a set of bytes, and the places already seen from here."""

    ways: tuple[tuple[Bytes, Rest], ...]
    may_end: bool
    seen: dict[int, "GrammarState | None"]

    @property
    def is_over(self) -> bool:
        """True where nothing may follow."""
        return self.may_end and not self.ways


class Grammar:
    """A parsed grammar; `begin` is the place before its first byte."""

    def __init__(self, gbnf: str, start: str = "root") -> None:
        lines = (line.partition("::=") for line in gbnf.split("\n") if "::=" in line)
        self._rules = {name.strip(): _RuleReader(body).whole() for name, _, body in lines}
        self._rests: dict[tuple[int, int], Rest] = {}
        self._times: dict[tuple[int, int, int], Times] = {}
        self._places: dict[tuple[int, ...], GrammarState] = {}
        self.begin = self._expand_rests([self._intern_rest(self._rules[start], None)])

    def step(self, place: GrammarState, byte: int) -> GrammarState | None:
        """The place after one more byte; None when the grammar forbids it."""
        if byte not in place.seen:
            rests = [rest for part, rest in place.ways if part.bits >> byte & 1]
            place.seen[byte] = self._expand_rests(rests) if rests else None
        return place.seen[byte]

    def walk(self, place: GrammarState | None, data: bytes) -> GrammarState | None:
        """The place after these bytes; None when the grammar forbids them."""
        for byte in data:
            place = self.step(place, byte) if place else None
        return place

    def must(self, place: GrammarState) -> tuple[bytes, GrammarState]:
        """The bytes that are the only way to go on, and the place after them."""
        found = bytearray()
        while place.ways and not place.may_end:
            bits = functools.reduce(lambda a, way: a | way[0].bits, place.ways, 0)
            after = self.step(place, bits.bit_length() - 1)
            if bits & (bits - 1) or after is None:
                break
            found.append(bits.bit_length() - 1)
            place = after
        return bytes(found), place

    def _intern_rest(self, part: Any, after: Rest) -> Rest:
        return self._rests.setdefault((id(part), id(after)), (part, after))

    def _expand_rests(self, rests: Iterable[Rest]) -> GrammarState:
        """Replace what stands first by its parts until a set of bytes stands there."""
        todo, ways, may_end = list(rests), dict[int, Any](), False
        while todo:
            rest = todo.pop()
            if rest is None:
                may_end = True
            elif isinstance(rest[0], Bytes):
                ways[id(rest)] = rest
            else:
                todo += self._open_part(*rest)
        return self._places.setdefault((may_end, *sorted(ways)), GrammarState(tuple(ways.values()), may_end, {}))

    def _open_part(self, part: Any, after: Rest) -> Iterator[Rest]:
        if isinstance(part, GrammarRule):
            yield self._intern_rest(self._rules[part.name], after)
        elif isinstance(part, GrammarRow):
            yield functools.reduce(lambda tail, one: self._intern_rest(one, tail), reversed(part.parts), after)
        elif isinstance(part, GrammarChoice):
            yield from (self._intern_rest(option, after) for option in part.options)
        else:
            if part.least <= 0:
                yield after
            if part.most != 0:
                yield self._intern_rest(part.part, self._intern_rest(self._decrement_times(part), after))

    def _decrement_times(self, part: Times) -> Times:
        least, most = max(0, part.least - 1), max(-1, part.most - 1)
        if (least, most) == (part.least, part.most):
            return part
        return self._times.setdefault((id(part.part), least, most), Times(part.part, least, most))


class _RuleReader:
    """Parses the body of one rule."""

    def __init__(self, body: str) -> None:
        self._symbols = [(found.lastgroup or "", found[found.lastgroup or 0]) for found in SYMBOL.finditer(body.strip())]
        self._at = 0

    def whole(self) -> Any:
        """Everything up to the end or a closing bracket."""
        options = [self._read_row()]
        while self._take_mark("|"):
            options.append(self._read_row())
        return options[0] if len(options) == 1 else GrammarChoice(tuple(options))

    def _take_mark(self, mark: str) -> bool:
        is_there = self._at < len(self._symbols) and self._symbols[self._at] == ("mark", mark)
        self._at += is_there
        return is_there

    def _read_row(self) -> Any:
        parts: list[Any] = []
        while self._at < len(self._symbols) and self._symbols[self._at][1] not in ("|", ")"):
            kind, text = self._symbols[self._at]
            self._at += 1
            if kind == "times" or text in ("*", "+", "?"):
                parts[-1] = Times(parts[-1], *_parse_bounds(text))
            else:
                parts.append(self._read_part(kind, text))
        return parts[0] if len(parts) == 1 else GrammarRow(tuple(parts))

    def _read_part(self, kind: str, text: str) -> Any:
        if kind == "text":
            data = "".join(c for c, _ in _read_letters(text[1:-1])).encode("utf-8", "replace")
            return GrammarRow(tuple(Bytes(1 << byte) for byte in data))
        if kind == "set":
            return _parse_set(text[1:-1])
        if kind == "name":
            return GrammarRule(text)
        group = self.whole()
        self._take_mark(")")
        return group


def _parse_bounds(text: str) -> tuple[int, int]:
    if text in ("*", "+", "?"):
        return (1 if text == "+" else 0), (1 if text == "?" else -1)
    low, comma, high = text.strip("{}").partition(",")
    return int(low), int(high) if high else (-1 if comma else int(low))


def _read_letters(text: str) -> Iterator[tuple[str, bool]]:
    """Each character, and whether it was written with a backslash."""
    for code, escaped, plain in LETTER.findall(text):
        yield (chr(int(code, 16)) if code else ESCAPES.get(escaped, escaped) or plain), not plain


def _bit_span(low: int, high: int) -> int:
    return ((1 << (high - low + 1)) - 1) << low


def _parse_set(text: str) -> Any:
    is_negated = text.startswith("^")
    letters = list(_read_letters(text[is_negated:]))
    bits = at = 0
    while at < len(letters):
        low = high = ord(letters[at][0])
        if at + 2 < len(letters) and letters[at + 1] == ("-", False):
            high, at = ord(letters[at + 2][0]), at + 2
        at += 1
        bits |= _bit_span(low, high)
    if not is_negated:
        return Bytes(bits)
    more = Bytes(_bit_span(0x80, 0xBF))
    wide = (GrammarRow((Bytes(_bit_span(a, b)), Bytes(_bit_span(c, d)), *[more] * n)) for a, b, c, d, n in WIDE)
    return GrammarChoice((Bytes(ASCII & ~bits), *wide))
