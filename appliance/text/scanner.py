"""A text to be read from left to right: where things are found in it, and which parts of it are code.

Every question is answered in time linear in the text, however often it is asked going forward. Knows nothing
about what the text says.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field

FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([^\n`]*)(?:\n|\Z)")
FENCE_END = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})[ \t]*$", re.MULTILINE)
PARAGRAPH_END = re.compile(r"\n[ \t]*\n|\n {0,3}(?:```|~~~)")
TICKS = re.compile("`+")
BLANKS = re.compile(r"\s*")


@dataclass
class Source:
    """A text with a memory of where things were last found, so that looking again costs nothing."""

    text: str
    has_failed: bool = False  # something in it could not be read: from then on reading is strict
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _ticks: dict[int, list[int]] | None = None

    def find(self, token: str, at: int) -> int:
        """The first place of a token from `at` on; the length of the text when there is none."""
        since, place = self._seen.get(token, (1, 0))
        if not since <= at <= place:
            place = self.text.find(token, at)
            place = len(self.text) if place < 0 else place
            self._seen[token] = (at, place)
        return place

    def paragraph_end(self, at: int) -> int:
        """Where the next blank line or fence begins; the length of the text when there is none."""
        since, place = self._seen.get("\n\n", (1, 0))
        if not since <= at <= place:
            blank = PARAGRAPH_END.search(self.text, at)
            place = blank.start() if blank else len(self.text)
            self._seen["\n\n"] = (at, place)
        return place

    def before_code(self, at: int, end: int) -> int:
        """`end`, or where code may begin before it: what is given up must not take half of a span or a fence with it."""
        return max(at, min(end, self.code(at)))

    def code(self, at: int) -> int:
        """The next place from `at` on where a code span or a fence may begin; of an indented fence, its line."""
        place = min(self.find("`", at), self.find("~~~", at))
        line = self.text.rfind("\n", max(at, place - 4), place) + 1  # more than three spaces make no fence
        return line if line and not self.text[line:place].strip(" ") else place

    def line_end(self, at: int) -> int:
        """Where the line of `at` ends."""
        return self.find("\n", at)

    def ticks(self, length: int) -> list[int]:
        """Where exactly so many backticks stand together."""
        if self._ticks is None:
            self._ticks = {}
            for match in TICKS.finditer(self.text):
                self._ticks.setdefault(len(match.group()), []).append(match.start())
        return self._ticks.get(length, [])

    def after_blanks(self, at: int) -> int:
        """The first place from `at` on that is not white space."""
        match = BLANKS.match(self.text, at)
        return match.end() if match else at


class Hopeless(ValueError):
    """Not readable; everything before `at` was looked at."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True)
class Fence:
    """A fenced block: its label, where its content lies, where it ends, and whether its end was written."""

    label: str
    start: int
    stop: int
    end: int
    is_closed: bool


def fence(source: Source, at: int) -> Fence | None:
    """The fenced block that opens at `at`; None when that is no line's beginning or no fence."""
    text = source.text
    before = text[max(0, at - 4) : at]
    if before.rpartition("\n")[2].strip(" ") or (at >= 4 and "\n" not in before):
        return None
    opened = FENCE.match(text, at)
    if opened is None:
        return None
    label = (opened.group(2).split() or [""])[0].lower()
    for closed in FENCE_END.finditer(text, opened.end()):
        if closed.group(1)[0] == opened.group(1)[0] and len(closed.group(1)) >= len(opened.group(1)):
            return Fence(label, opened.end(), closed.start(), closed.end(), True)
    return Fence(label, opened.end(), len(text), len(text), False)


def span_end(source: Source, at: int, length: int) -> int:
    """Where the code span that opens with so many backticks ends; behind them when it has no end in its paragraph."""
    places = source.ticks(length)
    place = bisect_left(places, at + length)
    is_closed = place < len(places) and places[place] < source.paragraph_end(at)
    return places[place] + length if is_closed else at + length
