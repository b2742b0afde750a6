"""Patterns over tokens: `every [other] weekday` matches by the kinds of tokens, whatever the language.

`kind` is a token of that kind, `kind=value` one of that value, `~kind` one that stands right behind the one before it, `!kind`
that no such token follows; `[...]` may be left out, `(a|b)` is a choice, `*` behind either repeats it. Compiled to regular
expressions over the tokens written as text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from appliance.language.times.tokenizer import Token

# A choice of single tokens that repeats: the first that fits is taken for good, or a token of two kinds would double the work.
REPEATED = re.compile(r"\([^()\[\]\s]+\)(?=\*)")
PART = re.compile(r"\s+|[\[\]()|*]|[!~]*[a-z_]+(?:=[\w#-]+)?")


class Match:
    """The tokens that a pattern matched, by their kinds."""

    def __init__(self, tokens: Sequence[Token], found: "re.Match[str]", names: dict[str, str], start: int, end: int) -> None:
        self.start, self.end = start, end
        self._found = [(int(value), names[name]) for name, value in found.groupdict().items() if value is not None]
        self._found.sort()
        self.tokens = tokens

    def all(self, kind: str) -> list[Any]:
        """The values of the tokens of a kind, in their order."""
        return [self.tokens[at].kinds.get(kind) for at, name in self._found if name == kind]

    def get(self, kind: str, default: Any = None) -> Any:
        return next(iter(self.all(kind)), default)

    def has(self, kind: str) -> bool:
        return any(name == kind for _, name in self._found)

    def side(self, kind: str, name: str) -> Any:
        """Another kind of the token that was matched as one."""
        return next((self.tokens[at].kinds.get(name) for at, one in self._found if one == kind), None)


class Encoded:
    """Tokens as text, with the place at which each begins."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.places: list[int] = []
        parts, place = [], 0
        for number, token in enumerate(tokens):
            self.places.append(place)
            kinds = [f"{kind},{kind}={_plain(value)}" for kind, value in token.kinds.items()]
            parts.append(f"{number}:,{','.join(kinds)},;")
            place += len(parts[-1])
        self.places.append(place)
        self._numbers = {place: number for number, place in enumerate(self.places)}
        self.text = "".join(parts)

    def match(self, pattern: str, at: int) -> Match | None:
        """What a pattern matches from a token on."""
        expression, names = compiled(pattern)
        if (found := expression.match(self.text, self.places[at])) is None or found.end() == found.start():
            return None
        return Match(self.tokens, found, names, at, self._numbers[found.end()])


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) else ""


@lru_cache(maxsize=512)
def compiled(pattern: str) -> tuple["re.Pattern[str]", dict[str, str]]:
    """The regular expression of a pattern, and the kind that each of its groups is of."""
    names: dict[str, str] = {}
    numbers = count()
    return re.compile("".join(_pieces(pattern, names, numbers))), names


def _pieces(pattern: str, names: dict[str, str], numbers: Iterator[int]) -> Iterator[str]:
    repeated = {found.start() for found in REPEATED.finditer(pattern)}
    for found in PART.finditer(pattern):
        one = found[0]
        if one.isspace():
            continue
        if found.start() in repeated:
            yield "(?>"
            continue
        if one in "[](|)*":
            yield {"[": "(?:", "]": ")?", "(": "(?:", ")": ")", "|": "|", "*": "*"}[one]
            continue
        bare = one.lstrip("!~")
        if one.startswith("!"):
            yield rf"(?!\d+:[^;]*,{re.escape(bare)},)"
            continue
        group = f"g{next(numbers)}"
        names[group] = bare.partition("=")[0]
        glued = "(?=[^;]*,glued,)" if one.startswith("~") else ""
        yield rf"(?P<{group}>\d+):{glued}[^;]*,{re.escape(bare)},[^;]*;"


def first_kinds(pattern: str) -> frozenset[str]:
    """The kinds of token with which a pattern may begin."""
    found, _ = _first(iter(PART.findall(pattern)))
    return frozenset(found)


def _first(parts: Iterator[str]) -> tuple[set[str], bool]:
    """The kinds that may stand first up to the bracket that ends here, and whether there may be none."""
    found: set[str] = set()
    is_open, is_empty = True, False  # whether this choice is still at its beginning, and whether one may be nothing
    last: tuple[set[str], bool] | None = None
    for part in parts:
        if part.isspace() or part.startswith("!"):
            continue
        if part in "])":
            break
        if part == "|":
            is_empty, is_open, last = is_empty or is_open, True, None
        elif part == "*":
            is_open = is_open or last is not None
        elif part in "[(":
            kinds, may_lack = _first(parts)
            last = None
            if is_open:
                found |= kinds
                last = (kinds, True)
                is_open = may_lack or part == "["
        else:
            last = None
            if is_open:
                found.add(part.lstrip("~").partition("=")[0])
                is_open, last = False, (found, True)
    return found, is_empty or is_open
