"""Patterns of people and models: which kind one is, whether it fits a text, where, and what replaces it.

The kind is read from the shape: `/…/flags` is a regular expression (flags gimsux); `$.name`, `$..name`
and `$[…]` are JSONPath; `//…` and absolute paths with a predicate or an axis are XPath 1.0; what holds
`*`, `?`, `[…]`, `{a,b}` or `!(…)` is a glob; the rest is literal text, and so are `+`, `(` and `)`.
JSONPath finds nothing in what is not JSON, XPath nothing in what is not XML; names in XML are read without
their namespaces, and a document that declares entities is not read at all.

No pattern runs longer than its timeout, by more than one step over the text: `regex` has a timeout of
its own, which counts the processor time of this process, and the two path languages look at a `Watch` for
every node they visit. What a deadline cannot bound, memory, is bounded by the sizes below. Knows nothing
of sed forms, entries or SQL.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from appliance.errors import BadInput, TooLarge
from appliance.text import globs
from appliance.text.pattern_limits import PatternWatch, bounded, short

# regex, jsonpaths and xpaths are imported where they are used: 15, 60 and 170 ms that few commands need.
if TYPE_CHECKING:
    import regex

TIMEOUT_S = 1.0
PATTERN_LIMIT = 2048  # characters
TEXT_LIMIT = 10_000_000  # characters that a regular expression or a glob reads, or a replacement may make

_REGEX = re.compile(r"/((?!\*)(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/([gimsux]*)")
_JSONPATH = re.compile(r"\$(?:\.\.?(?:[^\W\d]|[*\[])|\[(?:['\"*?:]|-?\d))")
_AXIS = (
    "(?:ancestor|ancestor-or-self|attribute|child|descendant|descendant-or-self|following|following-sibling|namespace"
    "|parent|preceding|preceding-sibling|self)::"
)
_NODE = r"(?:text|node|comment|processing-instruction)\([^()]*\)"
_NAME = r"@?(?:[\w.-]+(?::[\w.-]+)?|\*)"
_STEPS = re.compile(rf"(?://?(?:{_AXIS})?(?:{_NODE}|{_NAME})\0*)+")  # \0 stands for a predicate
_ANY_AXIS = re.compile(rf"/{_AXIS}")
_PREDICATE = re.compile(r"\[[^\[\]\0]+(?:\0[^\[\]\0]*)*\]")
_DEEP_XPATH = re.compile(r"//[\w*@.(]")
_RECURSION = re.compile(r"(?<!\\)\(\?(?:R|[+-]?\d+|&\w+|P>\w+)\)")
_REFERENCE = re.compile(r"\\(\d{1,2}|[nt\\])|\\g<(\w+)>|\$(\d{1,2}|[&$])")


class PatternHit(Struct, frozen=True):
    """What a search found: the text, and where it begins, which a value from JSON or XML does not say."""

    text: str
    index: int | None


class _Engine(Protocol):
    """One kind of pattern, compiled."""

    def matches(self, subject: str, watch: PatternWatch) -> bool: ...

    def search(self, subject: str, watch: PatternWatch) -> PatternHit | None: ...

    def replace(self, subject: str, replacement: str, is_all: bool | None, watch: PatternWatch) -> str | None: ...


class Pattern:
    """A pattern compiled once, for any number of texts and threads; BadInput when it is not valid."""

    def __init__(self, text: str, timeout_s: float = TIMEOUT_S) -> None:
        if len(text) > PATTERN_LIMIT:
            message = f"the pattern {short(text)} has {len(text):,} characters, {PATTERN_LIMIT:,} are allowed"
            raise BadInput(message, hint="use a shorter one")
        self.text = text
        self.timeout_s = timeout_s
        self.kind = kind_of(text)
        try:
            self._engine = _ENGINES[self.kind](text)
        except RecursionError:
            raise BadInput(f"the pattern {short(text)} is nested too deeply", hint="use a simpler one") from None

    def matches(self, subject: str | None) -> bool:
        """Whether the pattern fits: literals and globs the whole text, the others something in it. None never does."""
        return subject is not None and self._engine.matches(subject, self._start_watch())

    def search(self, subject: str | None) -> PatternHit | None:
        """The first place in the text that fits, or None."""
        return None if subject is None else self._engine.search(subject, self._start_watch())

    def replace(self, subject: str | None, replacement: str, *, is_all: bool | None = None) -> str | None:
        """The text with what fits replaced, or None when nothing fits; paths into JSON and XML cannot replace.

        Every place, but only the first for a regular expression without `g`; `is_all` overrides that. For a
        regular expression `\\1`, `$1`, `\\g<name>` and `$&` mean groups, where there are such groups.
        """
        return None if subject is None else self._engine.replace(subject, replacement, is_all, self._start_watch())

    def _start_watch(self) -> PatternWatch:
        return PatternWatch(self.text, self.timeout_s)


@lru_cache(maxsize=128)
def compiled(text: str, timeout_s: float = TIMEOUT_S) -> Pattern:
    """The same as Pattern(text, timeout_s), remembered for the next text it is asked about."""
    return Pattern(text, timeout_s)


def kind_of(text: str) -> str:
    """What the shape of a pattern says it is: regex, jsonpath, xpath, glob or literal."""
    if (parts := _REGEX.fullmatch(text)) and len(set(parts[2])) == len(parts[2]):
        return "regex"
    if _JSONPATH.match(text):
        return "jsonpath"
    if _DEEP_XPATH.match(text) or _is_absolute_xpath(text):
        return "xpath"
    return "glob" if globs.is_glob(text) else "literal"


def _is_absolute_xpath(text: str) -> bool:
    if not text.startswith("/") or "\0" in text:
        return False
    steps, before = text, ""
    while steps != before:
        steps, before = _PREDICATE.sub("\0", steps), steps
    return _STEPS.fullmatch(steps) is not None and ("\0" in steps or _ANY_AXIS.search(steps) is not None)


# -- text: literal, regular expression, glob ------------------------------------------------------


class _Literal:
    def __init__(self, text: str) -> None:
        self._text = text

    def matches(self, subject: str, watch: PatternWatch) -> bool:
        return subject == self._text

    def search(self, subject: str, watch: PatternWatch) -> PatternHit | None:
        index = subject.find(self._text)
        return None if index < 0 else PatternHit(self._text, index)

    def replace(self, subject: str, replacement: str, is_all: bool | None, watch: PatternWatch) -> str | None:
        limit = 1 if is_all is False else -1
        count = min(subject.count(self._text), 1) if limit == 1 else subject.count(self._text)
        _bounded_result(len(subject) + count * (len(replacement) - len(self._text)))
        return subject.replace(self._text, replacement, limit) if count else None


class _Regular:
    def __init__(self, text: str) -> None:
        parts = _REGEX.fullmatch(text)
        assert parts is not None
        if _RECURSION.search(parts[1]):  # half a gigabyte within a second, 2026-11-22
            raise BadInput(f"the pattern {short(text)} calls itself", hint="write the repetition out, or use * and +")
        self._compiled = _compile_pattern(parts[1], parts[2].replace("g", "").replace("u", ""), text)
        self._is_global = "g" in parts[2]

    def matches(self, subject: str, watch: PatternWatch) -> bool:
        return self.search(subject, watch) is not None

    def search(self, subject: str, watch: PatternWatch) -> PatternHit | None:
        return _search_pattern(self._compiled, subject, watch)

    def replace(self, subject: str, replacement: str, is_all: bool | None, watch: PatternWatch) -> str | None:
        is_global = self._is_global if is_all is None else is_all
        return _substitute_matches(self._compiled, subject, lambda match: _expand_references(replacement, match), is_global, watch)


class _Glob:
    """As a whole a glob is a path: `*` stops at `/`. Inside a text it stops at the end of a line as well,
    and where the text holds the glob itself, letter by letter, that place is meant."""

    def __init__(self, text: str) -> None:
        self._literal = _Literal(text)
        self._whole = _compile_pattern(globs.whole(text), "s", text)
        self._inside = _compile_pattern(globs.inside(text), "s", text)

    def matches(self, subject: str, watch: PatternWatch) -> bool:
        bounded(subject, TEXT_LIMIT, "the text")
        try:
            return self._whole.match(subject, timeout=watch.left_s()) is not None
        except TimeoutError:
            raise watch.over() from None

    def search(self, subject: str, watch: PatternWatch) -> PatternHit | None:
        return self._literal.search(subject, watch) or _search_pattern(self._inside, subject, watch)

    def replace(self, subject: str, replacement: str, is_all: bool | None, watch: PatternWatch) -> str | None:
        found = self._literal.replace(subject, replacement, is_all, watch)
        if found is not None:
            return found
        return _substitute_matches(self._inside, subject, lambda match: replacement, is_all is not False, watch)


def _compile_pattern(expression: str, flags: str, text: str) -> "regex.Pattern[str]":
    import regex

    try:
        return regex.compile(f"(?{flags}){expression}" if flags else expression)
    except (regex.error, OverflowError, ValueError) as error:
        raise BadInput(f"the pattern {short(text)} is not valid: {error}", hint="fix it, or write it as plain text") from None


def _search_pattern(pattern: "regex.Pattern[str]", subject: str, watch: PatternWatch) -> PatternHit | None:
    bounded(subject, TEXT_LIMIT, "the text")
    try:
        match = pattern.search(subject, timeout=watch.left_s())
    except TimeoutError:
        raise watch.over() from None
    return None if match is None else PatternHit(match.group(), match.start())


def _substitute_matches(
    pattern: "regex.Pattern[str]",
    subject: str,
    make: Callable[["regex.Match[str]"], str],
    is_all: bool,
    watch: PatternWatch,
) -> str | None:
    bounded(subject, TEXT_LIMIT, "the text")
    size = len(subject)

    def one(match: "regex.Match[str]") -> str:
        nonlocal size
        made = make(match)
        size += len(made) - (match.end() - match.start())
        _bounded_result(size)
        watch.left_s()
        return made

    try:
        result, count = pattern.subn(one, subject, count=0 if is_all else 1, timeout=watch.left_s())
    except TimeoutError:
        raise watch.over() from None
    return result if count else None


def _expand_references(replacement: str, match: "regex.Match[str]") -> str:
    """The replacement with its references filled in; one to a group that is not there stays as it is written."""
    size = 0

    def one(reference: "re.Match[str]") -> str:
        nonlocal size
        name = reference[1] or reference[2] or reference[3]
        plain = {"n": "\n", "t": "\t", "\\": "\\", "$": "$"}.get(name) if reference[2] is None else None
        if plain is not None:
            return plain
        key: int | str = 0 if name == "&" else int(name) if name.isdecimal() else name
        try:
            text = match.group(key) or ""
        except IndexError:
            return reference[0]
        size += len(text)
        _bounded_result(size)
        return text

    return _REFERENCE.sub(one, replacement)


def _bounded_result(size: int) -> None:
    if size > TEXT_LIMIT:
        raise TooLarge(f"the replaced text would pass {TEXT_LIMIT:,} characters", hint="replace less at once")


# -- paths into JSON and XML ----------------------------------------------------------------------


class _Selector(Protocol):
    """A compiled path: the text of each value that it selects."""

    name: str

    def values(self, subject: str, watch: PatternWatch) -> Iterator[str]: ...


class _Selected:
    def __init__(self, text: str, selector: _Selector) -> None:
        self._text = text
        self._selector = selector

    def matches(self, subject: str, watch: PatternWatch) -> bool:
        return self.search(subject, watch) is not None

    def search(self, subject: str, watch: PatternWatch) -> PatternHit | None:
        return next((PatternHit(value, None) for value in self._selector.values(subject, watch)), None)

    def replace(self, subject: str, replacement: str, is_all: bool | None, watch: PatternWatch) -> str | None:
        message = f"the pattern {short(self._text)} is {self._selector.name}, which finds values and cannot replace text"
        raise BadInput(message, hint="replace plain text or a /regular expression/")


def _json_path(text: str) -> _Selected:
    from appliance.text.jsonpaths import JsonPathSelector

    return _Selected(text, JsonPathSelector(text))


def _select_xpath(text: str) -> _Selected:
    from appliance.text.xpaths import XPathSelector

    return _Selected(text, XPathSelector(text))


_ENGINES: dict[str, Callable[[str], _Engine]] = {
    "literal": _Literal,
    "regex": _Regular,
    "glob": _Glob,
    "jsonpath": _json_path,
    "xpath": _select_xpath,
}
