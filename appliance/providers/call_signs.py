"""Where an answer begins to be a call: by a mark at the beginning of a line, by {, or by a fence that names a tool.

Pure; looks at text as it grows. A mark inside of words or of a fenced block is prose: somebody may have asked about it. Small
models answer with JSON in a fence whatever format they are told of; that is a call once it has named one of the tools.
"""

import re
from collections.abc import Sequence
from enum import Enum

# What may still become the JSON of a call in a fence: each part may be all there is yet.
FENCED = re.compile(
    r"`{0,3}|```(?:j|js|jso|json|t|to|too|tool|tool_|tool_c|tool_ca|tool_cal|tool_call)?"
    r'|```(?:json|tool_call)?\s*(?:\{\s*(?:"(?:n|na|nam|name)?|"name"\s*(?::\s*(?:"(?P<name>[^"\n]{0,80}))?)?)?)?'
)
NAMED = re.compile(r'(?:```(?:json|tool_call)?\s*)?\{\s*"name"\s*:\s*"(?P<name>[^"\n]{1,80})"')
BARE = re.compile(r'\{\s*(?:"(?:n|na|nam|name)?|"name"\s*(?::\s*(?:"(?P<name>[^"\n]{0,80}))?)?)?')


class Sign(Enum):
    """What some text is so far."""

    PROSE = "prose"
    WAIT = "wait"  # it may become a call
    MARK = "mark"  # a call in the family's own format
    FENCE = "fence"  # a call as loose JSON, in a fence or without one


class Signs:
    """The texts with which calls of some tools begin."""

    def __init__(self, marks: Sequence[str], names: Sequence[str], *, is_bare: bool) -> None:
        """`is_bare`: text that begins with { is a call, whatever it goes on with."""
        self._marks = [mark for mark in marks if mark]
        self._names = names
        self.is_bare = is_bare

    def of(self, text: str, said: str) -> tuple[Sign, int]:
        """What `text` is, behind what was already `said`, and where that begins; blanks before a call belong to it."""
        if not said.strip():
            begun = text.lstrip()
            if self.is_bare and begun.startswith("{"):
                return Sign.MARK, 0
            if not begun:
                return Sign.WAIT, 0
            sign = self._first_sign(begun)
            if sign is not Sign.PROSE:
                return sign, 0
        for mark in self._marks:
            at = text.find(mark)
            if at >= 0 and self._is_apart(said + text[:at]):
                return Sign.MARK, at if (said + text[:at]).strip() else 0
        held = max((_count_overlap(text, mark) for mark in self._marks), default=0)
        return (Sign.WAIT, len(text) - held) if held else (Sign.PROSE, len(text))

    def _first_sign(self, text: str) -> Sign:
        """What begins an answer: JSON that names one of the tools, or what may become it."""
        named = NAMED.match(text)
        if named is not None:
            return Sign.FENCE if named["name"] in self._names else Sign.PROSE
        found = FENCED.fullmatch(text) or BARE.fullmatch(text)
        if found is None:
            return Sign.PROSE
        return Sign.WAIT if any(name.startswith(found["name"] or "") for name in self._names) else Sign.PROSE

    @staticmethod
    def _is_apart(before: str) -> bool:
        """Whether a mark that comes after this text begins a line outside of a fenced block."""
        return not before.rpartition("\n")[2].strip() and before.count("```") % 2 == 0


def _count_overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` that begins `mark`."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)
