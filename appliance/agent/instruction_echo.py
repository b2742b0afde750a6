"""Notices when an answer begins to recite the instructions that its model was given, before a person sees them.

Weak models answer with their own system text or list of tools. What streams is passed on as it comes; FEW words that stand in the
instructions in the same order are held back until the run of them ends, at the beginning of an answer already the first word of a
sentence of theirs. A run of MOST words ends the answer. Pure.
"""

import re
from collections.abc import Iterable

FEW = 3  # words in a row that are held back
MOST = 12  # words in a row that nobody writes by chance
BREAK = re.compile(r"[.!?:;\n]")
WORD = re.compile(r"[\w'’-]+")


class InstructionEcho:
    """What may be shown of an answer. Once `is_over`, nothing more is worth reading."""

    def __init__(self, instructions: Iterable[str]) -> None:
        self._places: dict[str, list[int]] = {}  # where each word stands; no run goes from one text to the next
        self._firsts: set[int] = set()  # where sentences begin
        self._first_words: set[str] = set()
        place = 0
        for text in instructions:
            end = 0
            for found in WORD.finditer(text):
                self._places.setdefault(found[0].lower(), []).append(place)
                if not end or BREAK.search(text, end, found.start()):
                    self._firsts.add(place)
                    self._first_words.add(found[0].lower())
                place, end = place + 1, found.end()
            place += 1
        self._text = ""  # all that came
        self._starts: list[int] = []  # where its whole words begin
        self._read = 0  # up to where it was read
        self._shown = 0  # up to where it was passed on
        self._runs: dict[int, int] = {}  # how many words in a row end at a place
        self.is_over = False

    @property
    def said(self) -> str:
        """All text that was passed on."""
        return self._text[: self._shown]

    def feed(self, text: str) -> str:
        """Take what came; what may be shown now."""
        if self.is_over:
            return ""
        self._text += text
        for found in WORD.finditer(self._text, self._read):
            if found.end() == len(self._text):
                break  # it may go on
            if self._extend_run(found) >= MOST:
                self.is_over = True
                return self._pass_on(self._starts[-MOST])
        rest = WORD.search(self._text, self._read)
        if not self.said.strip() and (begun := self._count_begun(rest)):
            return self._pass_on(self._starts[-begun] if self._starts else rest.start() if rest is not None else 0)
        run = max(self._runs.values(), default=0)
        return self._pass_on(self._starts[-run] if run >= FEW else len(self._text))

    def finish(self) -> str:
        """Return the text that was held back and turned out to be no echo."""
        return "" if self.is_over else self._pass_on(len(self._text))

    def _count_begun(self, rest: "re.Match[str] | None") -> int:
        """How many words an answer has that begins as a sentence of the instructions does."""
        found = max((run for place, run in self._runs.items() if place - run + 1 in self._firsts), default=0)
        word = rest[0].lower() if rest is not None and not self._starts else ""
        return found or int(bool(word) and any(one.startswith(word) for one in self._first_words))

    def _extend_run(self, found: "re.Match[str]") -> int:
        """The length of the longest run of the instructions' words that ends at this word."""
        word = found[0].lower()
        self._runs = {place: self._runs.get(place - 1, 0) + 1 for place in self._places.get(word, ())}
        self._starts.append(found.start())
        self._read = found.end()
        return max(self._runs.values(), default=0)

    def _pass_on(self, end: int) -> str:
        start, self._shown = self._shown, max(self._shown, end)
        return self._text[start : self._shown]
