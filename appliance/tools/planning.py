"""Tools for tasks: work that is written down, done later by a worker, and told to who asked for it.

A model sees and changes the tasks of the person it talks with and no others, not even by their numbers; a person
on the command line sees all. What a thread creates and changes here its undo takes back. complete_task, fail_task
and wait_task end the work on the task that the calling thread works on, and change nothing once it is not theirs.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from appliance.agent.toolbox import Caller, tool
from appliance.clock import iso, now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.work.tasks import Claim, NewTask, Priority, Status, Task, Tasks

Number = Annotated[int, Range(1, 2**53), "the task's number"]
Name = Annotated[str, Range(1, 200), "what is to be done, in a few words"]
Description = Annotated[str, "everything needed to do it"]
Why = Annotated[str, Range(1, 10_000), "why, in words for the person who asked"]
When = Annotated[str, "done before: +30m, +2h, +3d, or 2030-01-31T18:00 in local time"]
UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
ALL = ""  # whose tasks somebody outside of every thread sees
HINT = "nobody works on tasks now: owlbox worker start --persist"


@dataclass(frozen=True)
class Planned:
    """A task that was written down; `has_worker` says whether somebody takes tasks now."""

    id: int
    name: str
    status: str
    priority: str
    blocked_by: tuple[int, ...]
    missing: tuple[int, ...]
    has_worker: bool

    def text(self) -> str:
        """One line, and what is in the way."""
        lines = [f"Added task {self.id}: {self.name} ({self.priority})"]
        if self.missing:
            lines.append(f"It cannot begin: there is no task {', '.join(map(str, self.missing))}.")
        if not self.has_worker:
            lines.append(f"It waits; {HINT}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Change:
    """What became of a task."""

    id: int
    name: str
    status: str
    note: str

    def text(self) -> str:
        """One line."""
        return f"Task {self.id} ({self.name}): {self.note}"


@dataclass(frozen=True)
class Deleted:
    """A task that is gone, and the tasks that waited for it."""

    id: int
    blocking: tuple[int, ...]

    def text(self) -> str:
        """One line, and who waits for ever."""
        note = f"\nTask {', '.join(map(str, self.blocking))} waited for it and cannot begin now." if self.blocking else ""
        return f"Deleted task {self.id}{note}"


@dataclass(frozen=True)
class Line:
    """A task in a list."""

    id: int
    name: str
    priority: str
    status: str
    blocked_by: tuple[int, ...]
    open_blockers: int
    created_ms: int

    def text(self) -> str:
        """One line."""
        waits = f", after {', '.join(map(str, self.blocked_by))}" if self.open_blockers else ""
        return f"{self.id}. {self.name} ({self.status}, {self.priority}{waits})"


@dataclass(frozen=True)
class Listed:
    """Some tasks, newest first."""

    tasks: tuple[Line, ...]
    has_more: bool

    def text(self) -> str:
        """One line a task."""
        if not self.tasks:
            return "No tasks."
        return "\n".join([*(task.text() for task in self.tasks), *(["(there are more: offset)"] if self.has_more else [])])


@dataclass(frozen=True)
class Try:
    """One attempt at a task."""

    number: int
    worker: str
    thread: str
    outcome: str
    started_ms: int
    ended_ms: int | None


@dataclass(frozen=True)
class Viewed:
    """Everything about a task."""

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
    blocked_by: tuple[int, ...]
    open_blockers: int
    blocking: tuple[int, ...]
    context_ids: tuple[str, ...]
    deadline_ms: int | None
    cancel_ms: int | None
    deaths: int
    person: str
    origin: str | None
    thread: str
    attempts: tuple[Try, ...]
    created_ms: int
    updated_ms: int
    ended_ms: int | None

    def text(self) -> str:
        """Every field that says something, one a line; long texts last."""
        facts = {
            "status": self.status,
            "priority": self.priority,
            "cancelled": _moment(self.cancel_ms) and f"wanted at {_moment(self.cancel_ms)}",
            "done before": _moment(self.deadline_ms),
            "after": ", ".join(map(str, self.blocked_by)) + (f" ({self.open_blockers} not complete)" if self.open_blockers else ""),
            "before": ", ".join(map(str, self.blocking)),
            "context": ", ".join(self.context_ids),
            "worker": self.claimed_by and f"{self.claimed_by} since {_moment(self.claimed_ms)}",
            "for": self.person,
            "asked in": self.origin and f"thread {self.origin}",
            "created": _moment(self.created_ms),
            "ended": _moment(self.ended_ms),
        }
        lines = [f"{self.id}. {self.name}", *(f"{name}: {fact}" for name, fact in facts.items() if fact)]
        for one in self.attempts:
            thread = f", thread {one.thread}" if one.thread else ""
            lines.append(f"attempt {one.number}: {_moment(one.started_ms)}, {one.outcome or 'goes on'}{thread}")
        texts = {"about": self.description, "output": self.output, "failure": self.failure, "waits": self.waiting_reason}
        return "\n".join([*lines, *(f"{name}: {text}" for name, text in texts.items() if text)])


# -- tools --------------------------------------------------------------------------------------------


@tool(group="planning", command="task add", menu=("chat",))
def create_task(
    name: Name,
    description: Description = "",
    priority: Annotated[Priority, "how urgent it is"] = "medium",
    blocked_by: Annotated[tuple[int, ...], "numbers of tasks that must be complete before"] = (),
    deadline: When = "",
    context_ids: Annotated[tuple[str, ...], "references to what it is about"] = (),
    *,
    tasks: Tasks,
    runs: Runs,
    caller: Caller,
) -> Planned:
    """Have work done later, in the background."""
    session = _session(runs, caller)
    made = tasks.add(
        NewTask(
            name,
            description,
            priority,
            blocked_by,
            context_ids,
            _deadline(deadline),
            person=_person(runs, session),
            session=session,
            origin=caller.run or None,
            run=caller.run,
        )
    )
    missing = tuple(task for task in made.blocked_by if _seen(task, tasks, runs, caller) is None)
    return Planned(made.id, made.name, made.status, made.priority, made.blocked_by, missing, tasks.has_worker())


@tool(group="planning", command="task update", menu=())
def update_task(
    id: Number,
    name: Annotated[str | None, "another name"] = None,
    description: Annotated[str | None, "another description"] = None,
    priority: Annotated[Priority | None, "another priority"] = None,
    blocked_by: Annotated[tuple[int, ...] | None, "exactly these tasks must be complete before; an empty list for none"] = None,
    deadline: Annotated[str | None, "another deadline, as create_task takes it; empty for none"] = None,
    *,
    tasks: Tasks,
    runs: Runs,
    caller: Caller,
) -> Viewed:
    """Change a task that has not begun."""
    _get(id, tasks, runs, caller)
    changed = tasks.update(
        id,
        name=name,
        description=description,
        priority=priority,
        blocked_by=blocked_by,
        deadline_ms=None if deadline is None else _deadline(deadline) or 0,
        run=caller.run,
    )
    return _view(changed, tasks, runs, caller)


@tool(group="planning", command="task delete", menu=())
def delete_task(id: Number, *, tasks: Tasks, runs: Runs, caller: Caller) -> Deleted:
    """Delete a task that nobody works on."""
    if caller.run:
        _get(id, tasks, runs, caller)
    return Deleted(id, tuple(tasks.delete(id, run=caller.run)))


@tool(group="planning", command="task list", is_read_only=True, menu=())
def list_tasks(
    status: Annotated[Status | Literal[""], "only in this state"] = "",
    priority: Annotated[Priority | Literal[""], "only of this priority"] = "",
    limit: Annotated[int, Range(1, 1000), "how many to show"] = 20,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    *,
    tasks: Tasks,
    runs: Runs,
    caller: Caller,
) -> Listed:
    """List tasks, newest first."""
    person = _person(runs, _session(runs, caller)) if caller.run else ALL
    if caller.run and not person:
        return Listed((), False)
    found = tasks.listing(status=status, priority=priority, person=person, limit=limit + 1, offset=offset)
    lines = (Line(t.id, t.name, t.priority, t.status, t.blocked_by, t.open_blockers, t.created_ms) for t in found[:limit])
    return Listed(tuple(lines), len(found) > limit)


@tool(group="planning", command="task view", is_read_only=True, menu=())
def view_task(id: Number, *, tasks: Tasks, runs: Runs, caller: Caller) -> Viewed | None:
    """Read everything about a task."""
    found = _seen(id, tasks, runs, caller)
    return None if found is None else _view(found, tasks, runs, caller)


@tool(group="planning", command="task reset", menu=())
def reset_task(id: Number, *, tasks: Tasks, runs: Runs, caller: Caller) -> Change:
    """Begin a task anew: pending again, without claim, reason and output."""
    before = _get(id, tasks, runs, caller)
    _is_not_own(id, tasks, caller)
    now = tasks.reset(id, run=caller.run)
    return Change(id, now.name, now.status, f"{before.status} before, pending now")


@tool(group="planning", command="task cancel", menu=())
def cancel_task(id: Number, *, tasks: Tasks, runs: Runs, caller: Caller) -> Change:
    """Give a task up, also one that is being worked on."""
    _get(id, tasks, runs, caller)
    _is_not_own(id, tasks, caller)
    now = tasks.cancel(id, run=caller.run)
    return Change(id, now.name, now.status, "cancelled" if now.status == "failed" else "its worker is told to stop")


@tool(group="planning", command="task done", menu=())
def finish_task(id: Number, *, tasks: Tasks, runs: Runs, caller: Caller) -> Change:
    """Mark a task as done that the person has done themselves."""
    _get(id, tasks, runs, caller)
    _is_not_own(id, tasks, caller)
    return _end(tasks.complete(id, run=caller.run), "done")


@tool(group="planning", is_terminal=True, menu=("worker",))
def complete_task(
    summary: Annotated[str, Range(1, 100_000), "the result, for the person who asked"], *, tasks: Tasks, caller: Caller
) -> Change:
    """The task is done; summary is its result."""
    return _end(tasks.finish(_claim(tasks, caller), "complete", summary), "complete")


@tool(group="planning", is_terminal=True, menu=("worker",))
def fail_task(reason: Why, *, tasks: Tasks, caller: Caller) -> Change:
    """The task cannot be done."""
    return _end(tasks.finish(_claim(tasks, caller), "failed", reason), "failed")


@tool(group="planning", is_terminal=True, menu=("worker",))
def wait_task(reason: Why, *, tasks: Tasks, caller: Caller) -> Change:
    """The task cannot go on before a person has done something."""
    return _end(tasks.finish(_claim(tasks, caller), "waiting", reason), "waits")


# -- whose ------------------------------------------------------------------------------------------


def _session(runs: Runs, caller: Caller) -> str:
    """The session of the run, or of the person outside of any."""
    return caller.session or (runs.get(caller.run).session if caller.run else "")


def _person(runs: Runs, session: str) -> str:
    """Whose session it is; one that has not begun belongs to who would begin it."""
    return runs.person(session) or session.partition(":")[2]


def _seen(task: int, tasks: Tasks, runs: Runs, caller: Caller) -> Task | None:
    """A task as far as the caller may know of it."""
    found = tasks.find(task)
    if found is None or not caller.run:
        return found
    person = _person(runs, _session(runs, caller))
    return found if person and found.person == person else None


def _get(task: int, tasks: Tasks, runs: Runs, caller: Caller) -> Task:
    found = _seen(task, tasks, runs, caller)
    if found is None:
        raise NotFound(f"no task {task}", hint="list_tasks shows them" if caller.run else "owlbox task list shows them")
    return found


def _claim(tasks: Tasks, caller: Caller) -> Claim:
    claim = tasks.claim_of(caller.run) if caller.run else None
    if claim is None:
        raise Conflict("no task is being worked on here", hint="reset_task and cancel_task change a task from outside")
    return claim


def _is_not_own(task: int, tasks: Tasks, caller: Caller) -> None:
    """A model that works on a task ends it in one of the three ways, so that whoever asked is told."""
    claim = tasks.claim_of(caller.run) if caller.run else None
    if claim is not None and claim.task.id == task:
        raise Conflict(f"task {task} is the one that is worked on here", hint="complete_task, fail_task or wait_task ends it")


# -- inside -----------------------------------------------------------------------------------------


def _end(task: Task, note: str) -> Change:
    return Change(task.id, task.name, task.status, note)


def _view(task: Task, tasks: Tasks, runs: Runs, caller: Caller) -> Viewed:
    blocking = tuple(other for other in tasks.blocking(task.id) if _seen(other, tasks, runs, caller) is not None)
    tries = tuple(Try(a.number, a.worker, a.run, a.outcome, a.started_ms, a.ended_ms) for a in tasks.attempts(task.id))
    same = {name: getattr(task, name) for name in Viewed.__dataclass_fields__ if hasattr(task, name) and name != "attempts"}
    return Viewed(**same, blocking=blocking, thread=task.run, attempts=tries)


def _moment(at_ms: int | None) -> str:
    return "" if at_ms is None else f"{iso(at_ms)[:16].replace('T', ' ')} UTC"


def _deadline(text: str) -> int | None:
    """A moment as milliseconds: so long from now, or a local time; None for ""."""
    if not text.strip():
        return None
    span = re.fullmatch(r"\+(\d{1,6})([mhd])", text.strip())
    if span:
        return now_ms() + int(span[1]) * UNITS_MS[span[2]]
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadInput(f"deadline {text!r}", hint="use +30m, +2h, +3d or a time such as 2030-01-31T18:00") from None
