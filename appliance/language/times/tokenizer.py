"""A sentence as tokens, each with its place in the sentence and the kinds that it may be, and patterns over such tokens.

Numbers, dates and clocks in digits are read alike in all languages; words are looked up in the lexicon of one. A token that is
nothing about time has no kinds. `every [other] weekday` matches by the kinds of tokens, whatever the language: `kind` is a token
of that kind, `kind=value` one of that value, `~kind` one that stands right behind the one before it, `!kind` that no such token
follows; `[...]` may be left out, `(a|b)` is a choice, `*` behind either repeats it. Patterns are compiled to regular expressions
over the tokens written as text. What a run of tokens means is for `grammar`. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from msgspec import Struct

from appliance.language.times import timezones
from appliance.language.times.lexicon import WORD, Lexicon

MARKS = {
    ",": "comma",
    ";": "comma",
    "/": "comma",
    "(": "comma",
    ")": "comma",
    "&": "and",
    "@": "at",
    "-": "dash",
    "–": "dash",
    "—": "dash",
    ":": "colon",
}
MARKS |= {".": "stop", "!": "stop", "?": "stop", "…": "stop"}
LONGEST_SHORT = 5  # letters of a word that a full stop may belong to: "Tues."
ZONE = re.compile(r"[A-Za-z]+/[A-Za-z_]+(?:/[A-Za-z_]+)?")
WITH_STOP = ("weekday", "month", "unit", "ampm")
YEARS = range(1900, 2200)
NUMERIC: tuple[tuple[str, "re.Pattern[str]"], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("date", r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?!\d)(?:[tT](?=\d))?"),
        ("date", r"(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})(?!\d)"),
        ("clock", r"(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2}))?(?::(?P<rest>\d+))*(?!\d)"),
        ("slash", r"(?P<a>\d{1,2})/(?P<b>\d{1,2})(?:/(?P<y>\d{4}))?(?!\d)"),
        ("date", r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?:(?P<y>\d{4})(?!\d))?"),
        ("dotted", r"(?P<a>\d{1,2})\.(?P<b>\d{2})(?![\d.]\d)"),
        ("decimal", r"\d{1,4}[.,]\d(?!\d)"),
        ("number", r"\d+"),
    )
)


class Token(Struct, frozen=True):
    """A word, a number, or what the grammar made of several: the span in the sentence, and the kinds with their values."""

    start: int
    end: int
    kinds: Mapping[str, Any]


def tokens(said: str, lexicon: Lexicon) -> list[Token]:
    """The tokens of a sentence in one language."""
    plain = said.lower().replace("’", "'")
    if len(plain) != len(said):  # a letter whose small form is longer: places would not fit
        plain = said.replace("’", "'")
    found: list[Token] = []
    at, size = 0, len(plain)
    spans = {match.start(): match.end() for match in WORD.finditer(plain)}
    starts = sorted(spans)
    index = {start: number for number, start in enumerate(starts)}
    while at < size:
        if plain[at].isspace():
            at += 1
            continue
        made = _named_zone(said, at) if "/" in said and at in index and said[at].isalpha() else None
        if made is None:
            made = _numeric(plain, at) if plain[at].isdecimal() and not plain[at - 1 : at].isdecimal() else None
        if made is None:
            if at not in index:
                at += 1
                continue
            made = _word(plain, [(start, spans[start]) for start in starts[index[at] : index[at] + 8]], lexicon)
        if found and "dash" in found[-1].kinds and _joins_clock(found, made, plain):
            found.pop()
        glued = {"glued": ""} if found and found[-1].end == made.start else {}
        found.append(Token(made.start, made.end, {**made.kinds, **glued}))
        at = made.end
    return found


def _joins_clock(found: Sequence[Token], made: Token, plain: str) -> bool:
    """Whether the last token is the hyphen of a time in words: "four-thirty", "half-past six"; "nine-five" may be a span."""
    dash = found[-1]
    if len(found) < 2 or found[-2].end != dash.start or dash.end != made.start or not plain[made.start].isalpha():
        return False
    is_minute = int(made.kinds.get("number", 0)) >= LEAST_SPOKEN_MINUTE and "number" in found[-2].kinds
    return is_minute or bool({"past", "to", "and_half", "and_quarter"} & made.kinds.keys())


def _named_zone(said: str, at: int) -> Token | None:
    """A zone by its name in the database: Europe/London."""
    found = ZONE.match(said, at)
    if found is None:
        return None
    name = "/".join("_".join(word.capitalize() for word in part.split("_")) for part in found[0].split("/"))
    return Token(at, found.end(), {"zone": name}) if timezones.is_known(name) else None


def _numeric(plain: str, at: int) -> Token | None:
    for kind, pattern in NUMERIC:
        if (match := pattern.match(plain, at)) is None:
            continue
        parts = {name: int(value) for name, value in match.groupdict().items() if value}
        if kind == "number":
            return Token(at, match.end(), _number_kinds(match[0]))
        if kind == "decimal":
            return Token(at, match.end(), {"decimal": float(match[0].replace(",", "."))})
        if kind == "date":
            return Token(at, match.end(), {"date": (parts.get("y"), parts["m"], parts["d"])})
        if kind == "dotted":
            dates = {"dot_date": (None, parts["b"], parts["a"])} if 1 <= parts["b"] <= 12 else {}
            value = float(match[0])
            return Token(at, match.end(), {"dot_clock": (parts["a"], parts["b"]), "decimal": value, **dates})
        return Token(at, match.end(), {kind: parts, **({"zero": ""} if plain[at] == "0" else {})})
    return None


def _number_kinds(digits: str) -> dict[str, Any]:
    kinds: dict[str, Any] = {"number": int(digits[:9]), "digits": digits}
    if len(digits) == 2:
        kinds["two"] = int(digits)
    if len(digits) == 4 and int(digits[:2]) < 24 and int(digits[2:]) < 60:
        kinds["hhmm"] = (int(digits[:2]), int(digits[2:]))
    if len(digits) == 4 and int(digits) in YEARS:
        kinds["year"] = int(digits)
    return kinds


def _word(plain: str, spans: list[tuple[int, int]], lexicon: Lexicon) -> Token:
    words = [plain[start:end] for start, end in spans]
    start, end = spans[0]
    if (entry := lexicon.match(words)) is None:
        kind = MARKS.get(words[0])
        return Token(start, end, {kind: ""} if kind else {})
    end = spans[len(entry.words) - 1][1]
    is_short = len(entry.words) == 1 and len(words[0]) <= LONGEST_SHORT and any(kind in entry.kinds for kind in WITH_STOP)
    if is_short and plain[end : end + 1] == "." and end + 1 < len(plain):
        end += 1
    return Token(start, end, {**({MARKS[words[0]]: ""} if words[0] in MARKS else {}), **entry.kinds})


LEAST_SPOKEN_MINUTE = 10  # behind an hour
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
