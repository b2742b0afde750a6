"""A sentence as tokens: each with its place in the sentence, and the kinds that it may be.

Numbers, dates and clocks in digits are read alike in all languages; words are looked up in the lexicon of one. A token that is
nothing about time has no kinds. What a run of tokens means is for `grammar`. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from appliance.language.times import timezones
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.words import WORD

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
        made = _named_zone(said, at) if at in index and said[at].isalpha() else None
        if made is None:
            made = _numeric(plain, at) if plain[at].isdecimal() and not plain[at - 1 : at].isdecimal() else None
        if made is None:
            if at not in index:
                at += 1
                continue
            made = _word(plain, [(start, spans[start]) for start in starts[index[at] : index[at] + 8]], lexicon)
        glued = {"glued": ""} if found and found[-1].end == made.start else {}
        found.append(Token(made.start, made.end, {**made.kinds, **glued}))
        at = made.end
    return found


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
