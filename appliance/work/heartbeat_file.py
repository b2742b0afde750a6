"""What HEARTBEAT.md says: lines to look after at each beat, and sections with a cadence of their own.

A line is nothing to look after when it is blank, a heading, a comment of one line, a box that is ticked, or an empty box;
everything else is. A section is a `##` heading with `Cadence:` and `Prompt:` below it; such sections are left out of the
lines, and so are those that only look like one, which are named as problems. Pure.
"""

import hashlib
import re
from collections.abc import Iterator

from msgspec import Struct

CADENCES = ("hourly", "daily", "weekly", "biweekly", "monthly")
HEADING = re.compile(r"##(?!#)\s*(.*)")
NOTHING = (re.compile(r"\s*"), re.compile(r"\s*#{1,6}(\s.*)?"), re.compile(r"\s*<!--.*-->\s*"), re.compile(r"\s*[-*] \[ \]\s*"))
TICKED = re.compile(r"\s*[-*] \[[xX]\].*")
FIELD = re.compile(r"\s*(?:-\s+)?(cadence|prompt)\s*:\s*(.*)", re.IGNORECASE)


class Section(Struct, frozen=True):
    """One thing with a cadence of its own; `hash` changes with what it says."""

    title: str
    cadence: str
    prompt: str

    @property
    def hash(self) -> str:
        """Of title, cadence and prompt."""
        return hashlib.sha256("\0".join((self.title, self.cadence, self.prompt)).encode()).hexdigest()[:16]


class Checklist(Struct, frozen=True):
    """A whole file: `text` is what stands outside of sections, `lines` those of it that need looking after."""

    text: str
    lines: tuple[str, ...]
    sections: tuple[Section, ...]
    problems: tuple[str, ...]


def read(text: str) -> Checklist:
    """What a file says; a section that cannot be used is a problem and keeps no other one from being used."""
    outside: list[str] = []
    sections: list[Section] = []
    problems: list[str] = []
    for title, lines in _split_sections(text):
        fields = _read_fields(lines)
        if title is None or not fields:
            outside += lines if title is None else [f"## {title}", *lines]
            continue
        cadence, prompt = fields.get("cadence", "").lower(), fields.get("prompt", "")
        if not title:
            problems.append("a section of HEARTBEAT.md has no title")
        elif not cadence or not prompt:
            lacking = " and ".join(name for name, value in (("Cadence", cadence), ("Prompt", prompt)) if not value)
            problems.append(f"section {title!r} of HEARTBEAT.md has no {lacking}")
        elif cadence not in CADENCES:
            problems.append(f"section {title!r} of HEARTBEAT.md has an unknown cadence {cadence!r}: use {', '.join(CADENCES)}")
        elif title in {one.title for one in sections}:
            problems.append(f"HEARTBEAT.md has two sections {title!r}: the first one counts")
        else:
            sections.append(Section(title, cadence, prompt))
    return Checklist("\n".join(outside), tuple(filter(is_actionable, outside)), tuple(sections), tuple(problems))


def is_actionable(line: str) -> bool:
    """Whether a line is something to look after."""
    return not (TICKED.fullmatch(line) or any(pattern.fullmatch(line) for pattern in NOTHING))


def is_quiet(answer: str, token: str) -> bool:
    """Whether an answer says that nothing needs attention: nothing at all, or the token alone, first or last line."""
    lines = [line.strip() for line in answer.strip().splitlines()]
    return not lines or bool(token) and token in (lines[0], lines[-1])


def _split_sections(text: str) -> Iterator[tuple[str | None, list[str]]]:
    """What stands before the first `##` heading, with None, then each heading with what is below it."""
    title: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if found := HEADING.fullmatch(line):
            yield title, lines
            title, lines = found[1].strip(), []
        else:
            lines.append(line)
    yield title, lines


def _read_fields(lines: list[str]) -> dict[str, str]:
    """Cadence and prompt; the prompt goes on to the end of the section, unless the cadence comes after it."""
    fields: dict[str, str] = {}
    here = ""
    for line in lines:
        found = FIELD.fullmatch(line)
        if found and found[1].lower() not in fields:
            here = found[1].lower()
            fields[here] = found[2].strip()
        elif here == "prompt":
            fields["prompt"] += f"\n{line.rstrip()}"
    return {name: value.strip() for name, value in fields.items()}
