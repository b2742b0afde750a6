"""A text to be read from left to right: where things are found in it.

Every question is answered in time linear in the text, however often it is asked going forward. Knows nothing
about what the text says.
"""

import re
from collections.abc import Callable

from msgspec import Struct, field

CONTAINER = r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*"  # what list items and block quotes put before the words of a line
PREFIX = re.compile(CONTAINER)
MAX_PREFIX_CHARS = 40
PARAGRAPH_END = re.compile(rf"\n[ \t]*\n|\n{CONTAINER}(?:```|~~~)|(?<![`\n])```+[\w+#-]*[ \t]*(?=\n)")
CODE = re.compile(r"`|~~~|<!--|<(?:pre|code|samp|kbd|tt|xmp)(?=[\s>])", re.IGNORECASE)
TICKS = re.compile("`+")
BLANKS = re.compile(r"\s*")


class Source(Struct):
    """A text with a memory of where things were last found, so that looking again costs nothing."""

    text: str
    has_failed: bool = False  # something in it could not be read: from then on reading is strict
    has_options: bool = False  # what could not be read was looked at for what it may have been
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _places: dict[str, dict[str, list[int]]] = field(default_factory=dict)

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
        """The next place from `at` on where a code span or a fence may begin; of a fence behind a prefix, its line."""
        since, place = self._seen.get("code", (1, 0))
        if not since <= at <= place:
            found = CODE.search(self.text, at)
            place = found.start() if found else len(self.text)
            self._seen["code"] = (at, place)
        line = self.text.rfind("\n", max(at, place - MAX_PREFIX_CHARS), place) + 1
        return line if line and PREFIX.fullmatch(self.text, line, place) else place

    def places(self, kind: str, build: Callable[[], dict[str, list[int]]]) -> dict[str, list[int]]:
        """Places in the text that are looked for once, under the name of their kind."""
        if kind not in self._places:
            self._places[kind] = build()
        return self._places[kind]

    def line_end(self, at: int) -> int:
        return self.find("\n", at)

    def ticks(self, length: int) -> list[int]:
        """Where exactly so many backticks stand together."""
        return self.places("ticks", self._index_ticks).get(str(length), [])

    def _index_ticks(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for match in TICKS.finditer(self.text):
            found.setdefault(str(len(match.group())), []).append(match.start())
        return found

    def after_blanks(self, at: int) -> int:
        """The first place from `at` on that is not white space."""
        match = BLANKS.match(self.text, at)
        return match.end() if match else at


class Hopeless(ValueError):
    """Not readable; everything before `at` was looked at."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at
