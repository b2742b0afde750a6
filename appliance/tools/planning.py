"""Tools for tasks: work that is written down, done later by a worker, and told to who asked for it.

A model sees and changes the tasks of the person it talks with and no others, not even by their numbers; a person
on the command line sees all. What a thread creates and changes here its undo takes back. complete_task, fail_task
and wait_task end the work on the task that the calling thread works on, and change nothing once it is not theirs.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, TypedDict, cast

from msgspec.structs import asdict

from appliance.agent.dispatch import person_of, session_of
from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, tool
from appliance.clock import iso, now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.work.task_values import Counted
from appliance.work.tasks import Attempt, Claim, NewTask, Open, Priority, Status, Task, TaskRows

Number = Annotated[int, Range(1, 2**53), "the task's number"]
Name = Annotated[str, Range(1, 200), "what is to be done, in a few words"]
Description = Annotated[str, "everything needed to do it"]
Why = Annotated[str, Range(1, 10_000), "why, in words for the person who asked"]
When = Annotated[str, "done before: +30m, +2h, +3d, or 2030-01-31T18:00 in local time"]
UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
ALL = ""  # whose tasks somebody outside of every thread sees
WITHOUT_WORKER = "It waits until a worker runs. To start one: owlbox worker start --persist"


class TaskView(Task, frozen=True, kw_only=True):
    """A task with what its row does not hold: of those it waits for some are `missing`; `has_worker` says if somebody works."""

    blocking: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    tries: tuple[Attempt, ...] = ()
    has_worker: bool = False


class DeletedTask(TypedDict):
    """A task that is gone, and the tasks that waited for it."""

    id: int
    blocking: tuple[int, ...]


class TaskLine(TypedDict):
    id: int
    name: str
    priority: str
    status: str
    blocked_by: tuple[int, ...]
    open_blockers: int
    created_ms: int
    ended_ms: int | None


class ListedTasks(TypedDict):
    tasks: list[TaskLine]
    has_more: bool


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
    tasks: TaskRows,
    runs: Runs,
    caller: Caller,
) -> Reply[TaskView]:
    """Have work done later, in the background."""
    session = session_of(runs, caller)
    made = tasks.add(
        NewTask(
            name,
            description,
            priority,
            blocked_by,
            context_ids,
            _parse_deadline(deadline),
            person=person_of(runs, session),
            session=session,
            origin=caller.run or None,
            run=caller.run,
        )
    )
    missing = tuple(task for task in made.blocked_by if _find_visible(task, tasks, runs, caller) is None)
    data = TaskView(**asdict(made), missing=missing, has_worker=tasks.has_worker())
    lines = [f"Added task {made.id}: {made.name} ({made.priority})"]
    lines += [f"It cannot begin: there is no task {', '.join(map(str, missing))}."] if missing else []
    is_told = caller.run != "" and tasks.counts()["pending"] > 1  # with the first of them
    lines += [] if data.has_worker or is_told else [WITHOUT_WORKER]
    return Reply(data, "\n".join(lines))


@tool(group="planning", command="task update", menu=())
def update_task(
    id: Number,
    name: Annotated[str | None, "another name"] = None,
    description: Annotated[str | None, "another description"] = None,
    priority: Annotated[Priority | None, "another priority"] = None,
    blocked_by: Annotated[tuple[int, ...] | None, "exactly these tasks must be complete before; an empty list for none"] = None,
    deadline: Annotated[str | None, "another deadline, as create_task takes it; empty for none"] = None,
    status: Annotated[
        Literal["pending", "cancelled", "complete"] | None, "alone: begin it anew, give it up, or the person has done it themselves"
    ] = None,
    *,
    tasks: TaskRows,
    runs: Runs,
    caller: Caller,
) -> Reply[TaskView]:
    """Change a task that has not begun, begin one anew, give it up, or mark it as done by the person themselves."""
    before = _get_visible(id, tasks, runs, caller)
    if status is not None:
        if any(given is not None for given in (name, description, priority, blocked_by, deadline)):
            raise BadInput("status goes alone", hint="change the rest in a call of its own", outcome="invalid_arguments")
        return _change_status(before, status, tasks, runs, caller)
    changed = tasks.update(
        id,
        name=name,
        description=description,
        priority=priority,
        blocked_by=blocked_by,
        deadline_ms=None if deadline is None else _parse_deadline(deadline) or 0,
        run=caller.run,
    )
    return _view_reply(changed, tasks, runs, caller)


@tool(group="planning", command="task delete", menu=())
def delete_task(id: Number, *, tasks: TaskRows, runs: Runs, caller: Caller) -> Reply[DeletedTask]:
    """Delete a task that nobody works on."""
    if caller.run:
        _get_visible(id, tasks, runs, caller)
    blocking = tuple(tasks.delete(id, run=caller.run))
    note = f"\nTask {', '.join(map(str, blocking))} waited for it and cannot begin now." if blocking else ""
    return Reply({"id": id, "blocking": blocking}, f"Deleted task {id}{note}")


@tool(group="planning", command="task list", is_read_only=True, menu=())
def list_tasks(
    status: Annotated[Status | Open | Literal[""], "only in this state; open: all that have not ended"] = "",
    priority: Annotated[Priority | Literal[""], "only of this priority"] = "",
    limit: Annotated[int, Range(1, 1000), "how many to show"] = 20,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    *,
    tasks: TaskRows,
    runs: Runs,
    caller: Caller,
) -> Reply[ListedTasks]:
    """List tasks, newest first."""
    person = person_of(runs, session_of(runs, caller)) if caller.run else ALL
    found: Sequence[Task] = ()
    if person or not caller.run:
        found = tasks.list_tasks(status=status, priority=priority, person=person, limit=limit + 1, offset=offset)
    shown, has_more = found[:limit], len(found) > limit
    rows = []
    for task in shown:
        waits = f", after {', '.join(map(str, task.blocked_by))}" if task.open_blockers else ""
        state = "waits for you" if task.status == "waiting" else task.status
        rows.append(f"{task.id}. {task.name} ({state}, {task.priority}{waits})")
    rows += ["What a task waits for: view it."] if any(task.status == "waiting" for task in shown) else []
    text = "\n".join([*rows, *(["(there are more: offset)"] if has_more else [])])
    lines = [{name: getattr(task, name) for name in TaskLine.__annotations__} for task in shown]
    return Reply({"tasks": cast(list[TaskLine], lines), "has_more": has_more}, text or "No tasks.")


@tool(group="planning", command="task view", is_read_only=True, menu=())
def view_task(id: Number, *, tasks: TaskRows, runs: Runs, caller: Caller) -> Reply[TaskView] | None:
    """Read everything about a task."""
    found = _find_visible(id, tasks, runs, caller)
    return None if found is None else _view_reply(found, tasks, runs, caller)


@tool(group="planning", is_terminal=True, menu=("worker",))
def complete_task(
    summary: Annotated[str, Range(1, 100_000), "the result, for the person who asked"], *, tasks: TaskRows, caller: Caller
) -> Reply[Task]:
    """The task is done; summary is its result."""
    return _change_reply(tasks.finish(_require_claim(tasks, caller), "complete", summary), "complete")


@tool(group="planning", is_terminal=True, menu=("worker",))
def fail_task(reason: Why, *, tasks: TaskRows, caller: Caller) -> Reply[Task]:
    """The task cannot be done."""
    return _change_reply(tasks.finish(_require_claim(tasks, caller), "failed", reason), "failed")


@tool(group="planning", is_terminal=True, menu=("worker",))
def wait_task(reason: Why, *, tasks: TaskRows, caller: Caller) -> Reply[Task]:
    """The task cannot go on before a person has done something."""
    return _change_reply(tasks.finish(_require_claim(tasks, caller), "waiting", reason), "waits")


def _change_status(before: Task, status: str, tasks: TaskRows, runs: Runs, caller: Caller) -> Reply[TaskView]:
    """A task is begun anew, given up or done by somebody from outside; what became of it is said."""
    _is_not_own(before.id, tasks, caller)
    change = {"pending": tasks.reset, "cancelled": tasks.cancel, "complete": tasks.complete}[status]
    now = change(before.id, run=caller.run)
    ended = "cancelled" if now.status == "failed" else "its worker is told to stop"
    note = {"pending": f"{before.status} before, pending now", "cancelled": ended, "complete": "done"}[status]
    return _view_reply(now, tasks, runs, caller)._replace(text=f"Task {now.id} ({now.name}): {note}")


# -- whose ------------------------------------------------------------------------------------------


def _find_visible(task: int, tasks: TaskRows, runs: Runs, caller: Caller) -> Task | None:
    """A task as far as the caller may know of it."""
    found = tasks.find(task)
    if found is None or not caller.run:
        return found
    person = person_of(runs, session_of(runs, caller))
    return found if person and found.person == person else None


def _get_visible(task: int, tasks: TaskRows, runs: Runs, caller: Caller) -> Task:
    found = _find_visible(task, tasks, runs, caller)
    if found is None:
        raise NotFound(f"no task {task}", hint="list_tasks shows them" if caller.run else "owlbox task list shows them")
    return found


def _require_claim(tasks: TaskRows, caller: Caller) -> Claim:
    claim = tasks.claim_of(caller.run) if caller.run else None
    if claim is None:
        raise Conflict("no task is being worked on here", hint="update_task changes a task from outside")
    return claim


def _is_not_own(task: int, tasks: TaskRows, caller: Caller) -> None:
    """A model that works on a task ends it in one of the three ways, so that whoever asked is told."""
    claim = tasks.claim_of(caller.run) if caller.run else None
    if claim is not None and claim.task.id == task:
        raise Conflict(f"task {task} is the one that is worked on here", hint="complete_task, fail_task or wait_task ends it")


# -- inside -----------------------------------------------------------------------------------------


def _change_reply(task: Task, note: str) -> Reply[Task]:
    return Reply(task, f"Task {task.id} ({task.name}): {note}")


def _view_reply(task: Task, tasks: TaskRows, runs: Runs, caller: Caller) -> Reply[TaskView]:
    """Every field of a task that says something, one a line; long texts last."""
    blocking = tuple(other for other in tasks.blocking(task.id) if _find_visible(other, tasks, runs, caller) is not None)
    facts = {
        "status": task.status,
        "priority": task.priority,
        "cancelled": _format_time(task.cancel_ms) and f"wanted at {_format_time(task.cancel_ms)}",
        "done before": _format_time(task.deadline_ms),
        "after": ", ".join(map(str, task.blocked_by)) + (f" ({task.open_blockers} not complete)" if task.open_blockers else ""),
        "before": ", ".join(map(str, blocking)),
        "context": ", ".join(task.context_ids),
        "worker": task.claimed_by and f"{task.claimed_by} since {_format_time(task.claimed_ms)}",
        "for": task.person,
        "asked in": task.origin and f"thread {task.origin}",
        "created": _format_time(task.created_ms),
        "ended": _format_time(task.ended_ms),
    }
    lines = [f"{task.id}. {task.name}", *(f"{name}: {fact}" for name, fact in facts.items() if fact)]
    tries = tuple(tasks.attempts(task.id))
    for a in tries:
        thread = f", thread {a.run}" if a.run else ""
        lines.append(f"attempt {a.number}: {_format_time(a.started_ms)}, {a.outcome or 'goes on'}{thread}")
    texts = {"about": task.description, "output": task.output, "failure": task.failure, "waits": task.waiting_reason}
    lines += [f"{name}: {text}" for name, text in texts.items() if text]
    return Reply(TaskView(**asdict(task), blocking=blocking, tries=tries, has_worker=tasks.has_worker()), "\n".join(lines))


def _format_time(at_ms: int | None) -> str:
    return "" if at_ms is None else f"{iso(at_ms)[:16].replace('T', ' ')} UTC"


def _parse_deadline(text: str) -> int | None:
    """A moment as milliseconds: so long from now, or a local time; None for ""."""
    if not text.strip():
        return None
    span = re.fullmatch(r"\+(\d{1,6})([mhd])", text.strip())
    if span:
        return Counted(now_ms() + int(span[1]) * UNITS_MS[span[2]])
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadInput(f"deadline {text!r}", hint="use +30m, +2h, +3d or a time such as 2030-01-31T18:00") from None
