"""Lines at the end of a note: added in the form that the note has there, and taken off again. Pure.

A note that ends in a list gets items of that list: the same mark, an open box beside boxes, the next number. Any other note gets a
paragraph. Nothing else of a note is changed.
"""

import re
from collections.abc import Sequence

from appliance.errors import Conflict

ITEM = re.compile(r"^(?P<space>\s*)(?P<mark>[-*+]|(?P<number>\d{1,4})(?P<dot>[.)]))(?P<gap>\s+)(?P<box>\[[ xX]\]\s+)?")


def is_list(body: str) -> bool:
    """Whether a note ends in a list."""
    return _last_item(body) is not None


def added(body: str, lines: Sequence[str]) -> str:
    """A note with these lines behind it."""
    kept, last = body.rstrip(), _last_item(body)
    if last is None:
        made = "\n\n".join(line.strip() for line in lines)
        return f"{kept}\n\n{made}\n" if kept else f"{made}\n"
    made = "\n".join(_item(last, at, line.strip()) for at, line in enumerate(lines, 1))
    return f"{kept}\n{made}\n"


def taken_off(body: str, lines: Sequence[str]) -> str:
    """A note without the lines that `added` put behind it; Conflict when it does not end in them any more."""
    rows = body.rstrip().split("\n")
    for line in reversed(lines):
        while rows and not rows[-1].strip():
            rows.pop()
        if not rows or ITEM.sub("", rows[-1], count=1).strip() != ITEM.sub("", line.strip(), count=1).strip():
            raise Conflict(f"the note does not end in {line!r}", hint="somebody changed it since")
        rows.pop()
    return "\n".join(rows).rstrip() + "\n"


def _last_item(body: str) -> "re.Match[str] | None":
    row = next((row for row in reversed(body.rstrip().split("\n")) if row.strip()), "")
    return ITEM.match(row)


def _item(last: "re.Match[str]", at: int, text: str) -> str:
    mark = f"{int(last['number']) + at}{last['dot']}" if last["number"] else last["mark"]
    return f"{last['space']}{mark}{last['gap']}{'[ ] ' if last['box'] else ''}{text}"
