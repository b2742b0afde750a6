"""What a task may be: its name as one line, numbers of other tasks, how urgent and how long, by when; and a row as a task.

BadInput names the value and what would do. Knows no queries.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from appliance import clock
from appliance.clock import now_ms
from appliance.errors import BadInput, StoreError

Priority = Literal["low", "medium", "high"]
MAX_NAME = 200
MAX_TEXT = 100_000  # characters of a description or an output
MAX_BLOCKERS = 1000
Status = Literal["pending", "in_progress", "waiting", "complete", "failed"]
TEXT_OF = {"complete": "output", "failed": "failure", "waiting": "waiting_reason"}
COLUMNS = (
    "id, name, description, priority, status, waiting_reason, failure, output, claimed_by, claimed_ms, attempts, deaths, "
    "deadline_ms, cancel_ms, context_ids, person, session, origin, open_blockers, created_ms, updated_ms, ended_ms"
)
REFS = COLUMNS.split(", ").index("context_ids")
LINKED = (
    "(SELECT json_group_array(blocker) FROM (SELECT blocker FROM task_deps WHERE task = tasks.id ORDER BY id)), "
    "(SELECT run FROM task_attempts WHERE task = tasks.id ORDER BY number DESC LIMIT 1)"
)


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


class Counted(int):
    """A moment that was counted from now on: it moves when the clock is set, and a date does not."""


class Task(Struct, frozen=True):
    """One piece of work; `run` is the thread of the last attempt, `origin` the one it was asked for in, "" for none."""

    id: int
    name: str
    description: str
    priority: Priority
    status: Status
    waiting_reason: str
    failure: str
    output: str
    claimed_by: str | None
    claimed_ms: int | None
    attempts: int
    deaths: int
    deadline_ms: int | None
    cancel_ms: int | None
    context_ids: tuple[str, ...]
    person: str
    session: str
    origin: str | None
    open_blockers: int
    created_ms: int
    updated_ms: int
    ended_ms: int | None
    blocked_by: tuple[int, ...] = ()
    run: str = ""

    @property
    def text(self) -> str:
        """What its state has to say: the output, why it failed, or what it waits for."""
        return str(getattr(self, TEXT_OF[self.status])) if self.status in TEXT_OF else ""


def task_of(row: Sequence[Any]) -> Task:
    """A row of COLUMNS and LINKED as a task, whose fields have that order; StoreError when it makes no sense."""
    refs = [] if row[REFS] == "[]" else json.loads(row[REFS])
    if not isinstance(refs, list) or not all(isinstance(ref, str) for ref in refs):
        raise malformed(row[0], f"context_ids is {row[REFS][:100]}")
    if not row[1].strip():
        raise malformed(row[0], "it has no name")
    blocked_by = () if row[-2] == "[]" else tuple(json.loads(row[-2]))
    return Task(*(*row[:REFS], tuple(refs), *row[REFS + 1 : -2], blocked_by, row[-1] or ""))


def malformed(task: int, what: str) -> StoreError:
    return StoreError(f"task {task} is malformed: {what}", hint=f"owlbox task delete {task}, then add it again")
