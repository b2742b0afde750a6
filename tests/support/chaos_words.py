"""The words that may be told when something goes wrong: sentences of the program's own, found in its source, and no others.

Every text of at least two words in `appliance/` is a template, with anything where a value is put in. What Python, SQLite or
the kernel would say has none; and of our own sentences those are out that only say that we do not know (`NEVER`).
"""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

NEVER = re.compile(
    r"Traceback|internal error|the log has the details|failed inside|\bErrno\b|\b\w+Error:|object at 0x|NoneType"
    r"|SQLITE_|disk I/O error|database is locked|constraint failed|malformed"
)
LEAST_WORDS = 2
WORD = re.compile(r"[^\W\d_]{2,}")
VALUE = "\0"
DOCSTRING = re.compile(r'"""[\s\S]*?"""')
JOINT = re.compile(r'"\s*\n\s*f?"')  # between two parts of one text
TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
FIELD = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")


class Templates:
    """The sentences of a source tree."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def problem(self, text: str) -> str:
        """What is wrong with something that was told; "" when nothing is."""
        if found := NEVER.search(text):
            return f"says {found.group()!r}"
        return "" if self._is_known(text) else "is no sentence of the program"

    def _is_known(self, text: str) -> bool:
        parts = [text, *re.split(r"\n|; |: |, (?=owlbox )|\. (?=[A-Z])", text)]
        whole, pieces = parts[0], [part for part in parts[1:] if len(WORD.findall(part)) >= LEAST_WORDS]
        return self._fits(whole) or bool(pieces) and all(self._fits(piece) for piece in pieces)

    def _fits(self, text: str) -> bool:
        return any(anchor in text and re.fullmatch(pattern, text, re.DOTALL) for anchor, pattern in self._patterns)

    @cached_property
    def _patterns(self) -> list[tuple[str, str]]:
        """Each template with its longest piece, which is looked for first."""
        found = {text for path in self._source.rglob("*.py") for text in _texts(path.read_text())}
        made = []
        for text in found:
            pieces = text.split(VALUE)
            anchor = max(pieces, key=len)
            if len(WORD.findall(anchor)) >= LEAST_WORDS:
                made.append((anchor, ".*".join(map(re.escape, pieces))))
        return made


def _texts(source: str) -> Iterator[str]:
    """Every text in a module but for its docstrings, with VALUE for each value; parsing would take half a minute."""
    joined = JOINT.sub("", DOCSTRING.sub("", source))
    for text in TEXT.findall(joined):
        text = FIELD.sub(VALUE, text.replace('\\"', '"').replace("\\n", "\n"))
        yield text
        yield from re.split(r"; |\n", text)
