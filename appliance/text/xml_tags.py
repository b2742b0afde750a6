"""XML-like tags in a model's text: where a tool's tag begins, its attributes, where its body ends.

Only the names it is told about are tags; everything else that looks like one is prose. Bodies are opaque:
whatever stands between a tag and its close is handed on byte for byte. What is mended here: an attribute
whose quote was never closed, a tag that was never closed, a close with another tool's name. Knows nothing
about what a tool does with its arguments.
"""

import re
from bisect import bisect_left
from collections.abc import Collection

from msgspec import Struct

from appliance.text.scanner import Source

ATTRIBUTE = re.compile(r"([^\s=<>\"'“”`/]+)([ \t]*=[ \t]*)?")
UNQUOTED = re.compile(r"[^\s<>\"'`]*")
QUOTES = {'"': '"', "'": "'", "“": "”"}
VALUE_STOP = re.compile(r"[<>\n]")
NEXT_ATTRIBUTE = re.compile(r"\s[\w-]+\s*=\s*[\"']")
ANY_CLOSE = re.compile(r"</[A-Za-z][^<>\n]{0,60}>")
SAME_LINE_CHARS = 400  # how far on its line a backtick is looked for


class Tag(Struct, frozen=True):
    """An opening tag. `is_closed` when it has no body, `is_cut` when it breaks off and means nothing."""

    name: str
    start: int
    end: int
    attributes: dict[str, str | None]
    is_closed: bool = False
    is_cut: bool = False
    notes: tuple[str, ...] = ()


class Body(Struct, frozen=True):
    """What stands between a tag and its close, None for nothing, and where the whole element ends."""

    text: str | None
    end: int
    notes: tuple[str, ...] = ()


class Close(Struct, frozen=True):
    name: str
    start: int
    end: int


class Tags:
    """The tags of one text: `tag` is the `pattern` of known names, `flags` are words that may stand without a value."""

    def __init__(self, source: Source, tag: re.Pattern[str] | None, flags: Collection[str]) -> None:
        self._source = source
        self._flags = flags
        self._pattern = tag
        self._tags: dict[int, Tag | None] = {}
        self._pairs: dict[int, Close] = {}
        self._strays: list[Close] = []
        self._closes: dict[str, list[Close]] = {}
        self._is_paired = False

    def at(self, at: int) -> Tag | Close | None:
        """The tag of a known name that begins at `at`; None for prose."""
        match = self._pattern.match(self._source.text, at) if self._pattern else None
        if match is None:
            return None
        return self._read_close(match) if match.group(1) else self._read_tag(match)

    def body(self, tag: Tag, is_wanted: bool) -> Body:
        """What an opened tag encloses. A tag without its own close takes text only if a body `is_wanted`."""
        if tag.is_closed:
            return Body(None, tag.end)
        self._pair_closes()
        if close := self._pairs.get(tag.start):
            return Body(self._source.text[tag.end : close.start], close.end)
        text, following = self._source.text, self._source.after_blanks(tag.end)
        if (other := ANY_CLOSE.match(text, following)) is not None:
            return Body(None, other.end(), (f"the tag {tag.name} was closed by another name",))
        if isinstance(self.at(following), Tag):
            return Body(None, tag.end, (f"the tag {tag.name} was closed where the next one began",))
        note = (f"the tag {tag.name} was not closed",)
        if not is_wanted or following == len(text):
            return Body(None, tag.end, note)
        ends = (_first_close(self._closes.get(tag.name.casefold(), []), tag.end), _first_close(self._strays, tag.end))
        nearest = min((c for c in ends if c is not None), key=lambda c: c.start, default=None)
        if nearest is not None:
            return Body(text[tag.end : nearest.start], nearest.end, note)
        return Body(text[tag.end :], len(text), note)

    # -- closes ---------------------------------------------------------------------------------------

    def _pair_closes(self) -> None:
        """Find each tag's own close once, innermost first; a tag in a code span or in an attribute pairs with nothing."""
        if self._is_paired or self._pattern is None:
            return
        self._is_paired = True
        opened: dict[str, list[int]] = {}
        attributes_end = 0  # what stands in the quotes of an attribute is its value
        for match in self._pattern.finditer(self._source.text):
            name = match.group(2).casefold()
            if match.start() < attributes_end:
                continue
            if match.group(1):
                close = self._read_close(match)
                self._closes.setdefault(name, []).append(close)
                if self._is_in_code(match):
                    continue
                if opened.get(name):
                    self._pairs[opened[name].pop()] = close
                else:
                    self._strays.append(close)
            elif not self._is_in_code(match):
                tag = self._read_tag(match)
                if tag is not None and not tag.notes and not tag.is_cut:
                    attributes_end = tag.end
                if tag is not None and not tag.is_closed:
                    opened.setdefault(name, []).append(match.start())

    def _is_in_code(self, match: re.Match[str]) -> bool:
        text = self._source.text
        before = text[max(0, match.start() - SAME_LINE_CHARS) : match.start()].rpartition("\n")[2]
        after = text[match.end() : match.end() + SAME_LINE_CHARS].partition("\n")[0]
        return before.count("`") % 2 == 1 and "`" in after

    def _read_close(self, match: re.Match[str]) -> Close:
        end = self._source.after_blanks(match.end())
        is_whole = self._source.text.startswith(">", end)
        return Close(match.group(2), match.start(), end + 1 if is_whole else match.end())

    # -- attributes -----------------------------------------------------------------------------------

    def _read_tag(self, match: re.Match[str]) -> Tag | None:
        if match.start() not in self._tags:
            self._tags[match.start()] = Attributes(self._source, match, self._flags).tag()
        return self._tags[match.start()]


class Attributes:
    """Reads one tag's attributes, mending what can be mended."""

    def __init__(self, source: Source, match: re.Match[str], flags: Collection[str]) -> None:
        self._source = source
        self._start, self._name, self._at = match.start(), match.group(2), match.end()
        self._flags = flags
        self._found: dict[str, str | None] = {}
        self._notes: list[str] = []
        self._doubtful: tuple[int, str, dict[str, str | None]] | None = None  # a value that holds what looks like a tag
        self._is_again = False
        self._valued_end = 0

    def tag(self) -> Tag | None:
        """The tag, or None when this is prose after all."""
        text = self._source.text
        while True:
            before, self._at = self._at, self._source.after_blanks(self._at)
            is_torn = text.count("\n", before, self._at) > 1  # no tag goes on after a blank line
            if text.startswith(("/>", ">"), self._at):
                is_closed = text.startswith("/", self._at)
                return self._build_tag(self._at + 1 + is_closed, is_closed)
            if is_torn or self._at >= len(text) or text[self._at] in ("<", "`"):
                if self._doubtful is None or self._is_again:
                    return self._end_unclosed()
                self._is_again = True
                self._at, name, self._found = self._doubtful
                self._mend_value(name)
            elif (match := ATTRIBUTE.match(text, self._at)) is None:
                self._at += 1
            elif match.group(2):
                self._at = match.end()
                self._read_value(match.group(1).lower())
                self._valued_end = abs(self._at)
            else:
                self._at = match.end()
                self._found.setdefault(match.group(1).lower(), None)
            if self._at < 0:  # a value was mended at the end of its line, and so is the tag
                return self._build_tag(-self._at, False)

    def _build_tag(self, end: int, is_closed: bool, is_cut: bool = False) -> Tag:
        return Tag(self._name, self._start, end, self._found, is_closed, is_cut, tuple(dict.fromkeys(self._notes)))

    def _end_unclosed(self) -> Tag | None:
        """A tag without its `>`: words in it that no tool knows make it prose, unless a value comes before them."""
        is_wordy = any(value is None and name not in self._flags for name, value in self._found.items())
        if is_wordy and not self._valued_end:
            return None
        if not is_wordy and (self._at >= len(self._source.text) or not self._found):
            return self._build_tag(self._at, True, is_cut=True)
        self._notes.append(f"an end was missing in the tag {self._name}")
        if is_wordy:
            self._found = {name: value for name, value in self._found.items() if value is not None or name in self._flags}
            return self._build_tag(self._valued_end, True)
        return self._build_tag(self._at, False)

    def _read_value(self, name: str) -> None:
        text, start = self._source.text, self._at
        quote = text[start : start + 1]
        if quote not in QUOTES or not quote:
            bare = UNQUOTED.match(text, start)
            end = bare.end() if bare else start
            if text.startswith("/>", end - 1):
                end -= 1
            self._found.setdefault(name, text[start:end])
            self._at = end
            return
        end, is_escaped = self._source.find(QUOTES[quote], start + 1), False
        while end < len(text) and text[end - 1] == "\\" and not text.startswith(("/>", ">"), end + 1):
            end, is_escaped = self._source.find(QUOTES[quote], end + 1), True
        if end >= len(text) or text[end + 1 : end + 2].strip(" \t\r\n/>"):
            self._mend_value(name)
            return
        value = text[start + 1 : end]
        if self._doubtful is None and VALUE_STOP.search(value):
            self._doubtful = (start, name, dict(self._found))
        self._found.setdefault(name, value.replace("\\" + quote, quote) if is_escaped else value)
        self._at = end + 1

    def _mend_value(self, name: str) -> None:
        """A value whose quote does not close where it should: up to the next attribute, tag or line."""
        text, start = self._source.text, self._at + 1
        stopped = VALUE_STOP.search(text, start)
        stop = stopped.start() if stopped else len(text)
        segment, quote = text[start:stop], QUOTES[text[self._at]]
        following = NEXT_ATTRIBUTE.search(segment)
        self._notes.append(f"a quote was missing in the tag {self._name}")
        if following is not None:
            value, self._at = segment[: following.start()], start + following.start()
        elif quote in segment:
            value, self._at = segment[: segment.rindex(quote)], start + segment.rindex(quote) + 1
        else:
            is_closed = segment.endswith("/") and text.startswith(">", stop)
            value, self._at = segment[: len(segment) - is_closed].rstrip(), stop - is_closed
        self._found.setdefault(name, value)
        if text.startswith("\n", stop) and self._at == stop:
            self._at = -stop


def pattern(names: Collection[str]) -> re.Pattern[str] | None:
    """What a tag of one of these names begins with; None without names."""
    if not names:
        return None
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"<(/?)({either})(?=[\s/>]|\Z)", re.IGNORECASE)


def _first_close(closes: list[Close], at: int) -> Close | None:
    place = bisect_left(closes, at, key=lambda c: c.start)
    return closes[place] if place < len(closes) else None
