"""What a task may be: its name as one line, numbers of other tasks, how urgent and how long, and by when.

BadInput names the value and what would do. Knows no rows.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from appliance import clock
from appliance.clock import now_ms
from appliance.errors import BadInput

Priority = Literal["low", "medium", "high"]
MAX_NAME = 200
MAX_TEXT = 100_000  # characters of a description or an output
MAX_BLOCKERS = 1000


def named(name: str) -> str:
    """A task's name as one line."""
    name = " ".join(name.split())
    if not 1 <= len(name) <= MAX_NAME:
        raise BadInput(f"name has {len(name)} characters", hint=f"use 1 to {MAX_NAME}; more goes into the description")
    return name


def numbers(tasks: Sequence[int]) -> list[int]:
    """Numbers of tasks, each once."""
    found = list(dict.fromkeys(tasks))
    wrong = [task for task in found if not 0 < task < 2**63]
    if wrong or len(found) > MAX_BLOCKERS:
        what = f"blocked_by names task {wrong[0]}" if wrong else f"blocked_by names {len(found)} tasks"
        raise BadInput(what, hint=f"use numbers of tasks, at most {MAX_BLOCKERS}; owlbox task list shows them")
    return found


def check(priority: str, description: str, deadline_ms: int | None) -> None:
    """BadInput for values that cannot be."""
    if priority not in get_args(Priority):
        raise BadInput(f"priority {priority!r}", hint="use low, medium or high")
    if len(description) > MAX_TEXT:
        raise BadInput(f"description has {len(description)} characters", hint=f"use at most {MAX_TEXT}")
    if deadline_ms is not None and deadline_ms <= now_ms():
        raise BadInput(f"the deadline {clock.iso(deadline_ms)} has passed", hint="give a later one, or none")
