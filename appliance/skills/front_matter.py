"""The front matter of a skill as people and other tools write it: lines that YAML refuses are read as the text they are.

Most skills of other tools are read by readers that take a line for `name: text`: a description with ": ", "@", "[beta]" or "\\d"
in it, or one that goes on in the next line, is text to them. What YAML takes, YAML reads. Pure.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from appliance.errors import BadInput
from appliance.text import markdown

KEY = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*))?$")
BLOCK = re.compile(r"[|>][+-]?\d?[+-]?$")  # a text in lines of its own
MAX_DEPTH = 5


def read(text: str) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Front matter, body, and a note for each line that was taken as text; BadInput for what cannot be read even so."""
    try:
        return *markdown.split(text), ()
    except BadInput as error:
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        head = markdown.front(text)
        if not head:
            raise
        notes: list[str] = []
        source = "\n".join(_loosened(head.rstrip("\n").split("\n")[1:-1], 2, notes, 0))
        try:
            front, _ = markdown.split(f"---\n{source}\n---\n")
        except BadInput:
            raise error from None  # its line is one of the file
        return front, text[len(head) :].lstrip("\n"), tuple(notes)


def _loosened(lines: list[str], first: int, notes: list[str], depth: int) -> Iterator[str]:
    """The same lines with those that YAML refuses as quoted text; `first` is the number of the first one in the file."""
    lines = [re.sub(r"^[ ]*\t[ \t]*", lambda at: at[0].expandtabs(2), line) for line in lines]
    starts = [number for number, line in enumerate(lines) if KEY.match(line)]
    yield from lines[: starts[0]] if starts else lines
    for at, end in zip(starts, [*starts[1:], len(lines)]):
        block = lines[at:end]
        found = KEY.match(block[0])
        if found is None or _is_yaml(block):
            yield from block
            continue
        value = (found[2] or "").strip()
        below = [line for line in block[1:] if line.strip()]
        if not value and below and all(line.startswith(" ") for line in below) and depth < MAX_DEPTH:
            indent = min(len(line) - len(line.lstrip()) for line in below)
            yield block[0]
            inner = [line[indent:] for line in block[1:]]
            if inner[0].startswith("- ") and not any(KEY.match(line) for line in inner):
                for line in inner:
                    yield " " * indent + (f"- {_quoted(line[2:])}" if line.startswith("- ") else line)
                notes.append(f"line {first + at}: {found[1]} is read as a list of texts")
            else:
                yield from (" " * indent + line for line in _loosened(inner, first + at + 1, notes, depth + 1))
            continue
        parts = [*([] if BLOCK.match(value) else [value]), *(line.strip() for line in block[1:])]
        yield f"{found[1]}: {_quoted(' '.join(filter(None, parts)))}"
        notes.append(f"line {first + at}: {found[1]} is no YAML, and read as text")


def _is_yaml(lines: list[str]) -> bool:
    try:
        markdown.split("---\n" + "\n".join(lines) + "\n---\n")
    except BadInput:
        return False
    return True


def _quoted(text: str) -> str:
    """A text as YAML takes it, without the quotes that it may have already."""
    said = text.strip()
    if len(said) > 1 and said[0] == said[-1] and said[0] in "\"'":
        said = said[1:-1]
    return json.dumps(said, ensure_ascii=False)
