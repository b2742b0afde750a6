"""The queue's rows: tasks, what they wait for, and every attempt at them.

Owns `tasks`, `task_deps` and `task_attempts`. A claim is one conditional statement: of any number of workers
one gets the task. Whatever a worker does to its task afterwards holds only while it still has that very claim,
so one that was taken for dead and comes back changes nothing. A task's end is handed to `TaskSettled` events within its
transaction. Not promised: that a claim survives a power cut before the next durable write; then the task is
pending again. Knows nothing about processes or models; `work.tick` works on one, `work.worker` keeps workers alive.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from appliance import clock
from appliance.agent.loop_events import TaskDecided
from appliance.clock import now_ms
from appliance.errors import Conflict, NotFound, StoreError
from appliance.runtime import crash_points
from appliance.runtime.crash_points import CrashPoint
from appliance.runtime.events import Events
from appliance.store import visibility, wall_clock
from appliance.store.database import Store
from appliance.work.task_values import COLUMNS, LINKED, TEXT_OF, Counted, check, malformed, named, numbers, task_of
from appliance.work.task_values import MAX_TEXT as MAX_TEXT
from appliance.work.task_values import Priority as Priority
from appliance.work.task_values import Status as Status
from appliance.work.task_values import Task as Task

LOG = logging.getLogger(__name__)
Outcome = Literal["complete", "failed", "waiting"]
Open = Literal["open"]  # the three in which a task has not ended
MAX_DEATHS = 3  # of a task's workers; then it waits for a person
CANCELLED = "cancelled"
OVERDUE = "its deadline passed before it was begun"
SLOW = "it took too long"
URGENCY = "CASE priority WHEN 'high' THEN 0 WHEN 'medium' THEN 1 ELSE 2 END"  # as the index tasks_ready has it
OVERDUE_ONES = "status = 'pending' AND deadline_ms <= ?"
# Those of a deactivated person wait until the person is active again.
SERVED = "NOT EXISTS (SELECT 1 FROM persons WHERE persons.name = tasks.person AND deactivated_ms IS NOT NULL)"
READY = f"status = 'pending' AND open_blockers = 0 AND {SERVED}"
BACK = "status = 'pending', claimed_by = NULL, claimed_ms = NULL, waiting_reason = '', failure = '', output = '', ended_ms = NULL"

Execute = Callable[..., list[tuple[Any, ...]]]


class NewTask(Struct, frozen=True):
    """A task to be added. The same `key` gives the first one again; `run` is the thread whose undo takes it back."""

    name: str
    description: str = ""
    priority: str = "medium"
    blocked_by: Sequence[int] = ()
    context_ids: Sequence[str] = ()
    deadline_ms: int | None = None
    person: str = ""
    session: str = ""
    origin: str | None = None
    key: str | None = None
    run: str = ""


class Claim(Struct, frozen=True):
    """That a worker has a task: `number` counts the task's attempts, so no two claims are ever the same."""

    task: Task
    worker: str
    number: int


class Attempt(Struct, frozen=True):
    """One try at a task; without `ended_ms` it goes on."""

    number: int
    worker: str
    run: str
    outcome: str
    started_ms: int
    ended_ms: int | None


class TaskAdded(Struct, frozen=True):
    """A task was stored."""

    task: Task


class TaskSettled(Struct, frozen=True):
    """A task became complete, failed or waiting, within that transaction."""

    task: Task


class TaskChanged(Struct, frozen=True):
    """A task, as it was before, is to be stopped or may begin now: whoever can tell workers does."""

    task: Task


class TaskRows:
    """Reads and writes the queue. Publishes `TaskAdded`, `TaskSettled` and `TaskChanged`; hears what was decided for a run."""

    def __init__(self, store: Store, events: Events | None = None, *, passed: crash_points.Passed = crash_points.nobody) -> None:
        self._store = store
        self._events = events or Events()
        self._passed = passed
        self._events.subscribe(TaskDecided, self._record_decision)
        self._malformed: set[int] = set()  # rows that cannot be used, each reported once

    # -- reading ------------------------------------------------------------------------------------

    def find(self, task: int) -> Task | None:
        """A task by its number; None when there is none, StoreError when its row makes no sense."""
        try:
            row = self._store.row(f"SELECT {COLUMNS}, {LINKED} FROM tasks WHERE id = ?{visibility.own_people('person')}", (task,))
        except StoreError as error:
            if isinstance(error.__cause__, UnicodeDecodeError):
                raise malformed(task, "a text is not UTF-8") from None
            raise
        return None if row is None else task_of(row)

    def get(self, task: int) -> Task:
        found = self.find(task)
        if found is None:
            raise NotFound(f"no task {task}", hint="owlbox task list shows them")
        return found

    def list_tasks(self, *, status: str = "", priority: str = "", person: str = "", limit: int = 20, offset: int = 0) -> list[Task]:
        """Tasks, newest first; only those of a status, priority or person. Malformed ones are left out with a warning.

        The status "open" stands for every one in which a task has not ended.
        """
        rows = self._store.rows(
            "SELECT id FROM tasks WHERE (?1 IN ('', status) OR (?1 = 'open' AND status NOT IN ('complete', 'failed'))) "
            f"AND ?2 IN ('', priority) AND ?3 IN ('', person){visibility.own_people('person')} "
            "ORDER BY created_ms DESC, id DESC LIMIT ?4 OFFSET ?5",
            (status, priority, person, limit, offset),
        )
        return self._valid_tasks(int(row[0]) for row in rows)

    def counts(self) -> dict[str, int]:
        """The number of tasks in each state."""
        rows = self._store.rows(f"SELECT status, COUNT(*) FROM tasks WHERE 1{visibility.own_people('person')} GROUP BY status")
        found: dict[str, int] = dict(rows)
        return {status: found.get(status, 0) for status in get_args(Status)}

    def predecessors(self, task: int) -> list[Task]:
        """The complete tasks that one waited for, in the order given; somebody else's output is nobody's business."""
        rows = self._store.rows(
            "SELECT b.id FROM task_deps d JOIN tasks t ON t.id = d.task JOIN tasks b ON b.id = d.blocker "
            "WHERE d.task = ? AND b.status = 'complete' AND t.person IN ('', b.person) ORDER BY d.id",
            (task,),
        )
        return self._valid_tasks(int(row[0]) for row in rows)

    def blocking(self, task: int) -> list[int]:
        """The tasks that cannot begin before this one is complete."""
        return [int(row[0]) for row in self._store.rows("SELECT task FROM task_deps WHERE blocker = ? ORDER BY task", (task,))]

    def attempts(self, task: int) -> list[Attempt]:
        """Every try at a task, oldest first."""
        columns = "number, worker, COALESCE(run, ''), outcome, started_ms, ended_ms"
        rows = self._store.rows(f"SELECT {columns} FROM task_attempts WHERE task = ? ORDER BY number", (task,))
        return [Attempt(*row) for row in rows]

    def has_worker(self) -> bool:
        """True while some worker that takes any task runs, by the kernel's word."""
        rows = self._store.rows("SELECT process FROM workers WHERE status = 'running' AND mode = 'persist'")
        return any(clock.is_alive(str(process)) for (process,) in rows)

    # -- what people and models do --------------------------------------------------------------------

    def add(self, new: NewTask) -> Task:
        """A new pending task; BadInput for values that cannot be, Conflict when it would wait for itself."""
        name, blocked_by = named(new.name), numbers(new.blocked_by)
        check(new.priority, new.description, new.deadline_ms)
        context_ids = json.dumps([str(ref) for ref in new.context_ids], ensure_ascii=False)
        with self._store.write(run=new.run, durable=True) as execute:
            if known := (execute("SELECT id FROM tasks WHERE key = ?", (new.key,)) if new.key else []):
                return self.get(int(known[0][0]))
            now = now_ms()
            columns = "name, description, priority, deadline_ms, counted_ms, context_ids, person, session, origin, key, "
            columns += "created_ms, updated_ms"
            counted_ms = now if isinstance(new.deadline_ms, Counted) else None
            values: tuple[Any, ...] = (name, new.description, new.priority, new.deadline_ms, counted_ms, context_ids)
            values = (*values, new.person, new.session, new.origin, new.key)
            marks = ", ".join("?" * 12)
            task = int(execute(f"INSERT INTO tasks ({columns}) VALUES ({marks}) RETURNING id", (*values, now, now))[0][0])
            self._set_blockers(execute, task, blocked_by)
            made = self.get(task)
        self._passed(CrashPoint.TASK_ADDED)
        self._events.publish(TaskAdded(made))
        return made

    def update(
        self,
        task: int,
        *,
        name: str | None = None,
        description: str | None = None,
        priority: str | None = None,
        blocked_by: Sequence[int] | None = None,
        deadline_ms: int | None = None,
        run: str = "",
    ) -> Task:
        """Change a pending task; what is None stays, and a `deadline_ms` of 0 takes the deadline away."""
        given = {"name": None if name is None else named(name), "description": description, "priority": priority}
        given = {column: value for column, value in given.items() if value is not None}
        check(priority or "medium", description or "", deadline_ms or None)
        with self._store.write(run=run, durable=True) as execute:
            found = self.get(task)
            if not given and blocked_by is None and deadline_ms is None:
                return found
            if found.status != "pending":
                raise Conflict(f"task {task} is {found.status}, only a pending one can be changed", hint=f"reset task {task} first")
            changes: dict[str, Any] = {**given, "updated_ms": max(now_ms(), found.updated_ms + 1)}
            if deadline_ms is not None:
                changes["deadline_ms"] = deadline_ms or None
                changes["counted_ms"] = changes["updated_ms"] if isinstance(deadline_ms, Counted) else None
            words = ", ".join(f"{column} = ?" for column in changes)
            execute(f"UPDATE tasks SET {words} WHERE id = ?", (*changes.values(), task))
            if blocked_by is not None:
                self._set_blockers(execute, task, numbers(blocked_by))
            changed = self.get(task)
        self._events.publish(TaskChanged(changed))
        return changed

    def delete(self, task: int, *, run: str = "") -> list[int]:
        """Delete a task that is not being worked on; the tasks that waited for it, which now never begin by themselves."""
        with self._store.write(run=run, durable=True) as execute:
            rows = execute(f"SELECT status, claimed_by FROM tasks WHERE id = ?{visibility.own_people('person')}", (task,))
            if not rows:
                raise NotFound(f"no task {task}", hint="owlbox task list shows them")
            status, worker = rows[0]
            if status == "in_progress":
                raise Conflict(f"task {task} is being worked on by worker {worker}", hint=f"reset or cancel task {task} first")
            execute("DELETE FROM tasks WHERE id = ?", (task,))
        return self.blocking(task)

    def reset(self, task: int, *, run: str = "") -> Task:
        """Begin anew: pending whatever it was, without claim, reason and output; a worker that has it loses it."""
        run = self._undo_run(task, run)
        with self._store.write(run=run, durable=True) as execute:
            self._undo_run(task, run, is_begun=True)
            before, now = self.get(task), now_ms()
            execute(
                "UPDATE task_attempts SET outcome = 'reset', ended_ms = COALESCE(ended_ms, ?1) WHERE task = ?2 "
                "AND number = (SELECT MAX(number) FROM task_attempts WHERE task = ?2)",
                (now, task),
            )
            execute(
                f"UPDATE tasks SET {BACK}, cancel_ms = NULL, deaths = 0, updated_ms = ?1, "
                "deadline_ms = CASE WHEN deadline_ms > ?1 THEN deadline_ms END WHERE id = ?2",
                (now, task),
            )
            found = self.get(task)
        self._events.publish(TaskChanged(before))
        return found

    def cancel(self, task: int, *, run: str = "") -> Task:
        """Give a task up: failed at once, or as soon as its worker has stopped; Conflict for one that has ended."""
        run = self._undo_run(task, run)
        with self._store.write(run=run, durable=True) as execute:
            found = self._require_unended(task, run)
            if found.status != "in_progress":
                return self._settle_task(execute, found, "failed", CANCELLED)
            now = now_ms()
            execute("UPDATE tasks SET cancel_ms = COALESCE(cancel_ms, ?1), updated_ms = ?1 WHERE id = ?2", (now, task))
            found = self.get(task)
        self._events.publish(TaskChanged(found))
        return found

    def complete(self, task: int, *, run: str = "") -> Task:
        """A person has done it: complete; Conflict for one that has ended or is being worked on."""
        with self._store.write(run=run, durable=True) as execute:
            found = self._require_unended(task, run)
            if found.status == "in_progress":
                raise Conflict(f"a worker is at task {task}", hint="wait for it, or cancel it")
            return self._settle_task(execute, found, "complete", "")

    # -- what workers do ------------------------------------------------------------------------------

    def is_work(self, now: int | None = None) -> bool:
        """True when `claim` has something to do: a task that can begin, or one whose deadline has passed."""
        return any(self._look(now or now_ms()))

    def claim(self, worker: str, only: int | None = None, now: int | None = None) -> Claim | None:
        """The most urgent, then oldest task that can begin, for this worker alone; None when there is none.

        With `only`, that task or none. Tasks whose deadline has passed become failed first; rows that make no
        sense are left out with a warning.
        """
        at_ms = now_ms() if now is None else now
        wanted = f"SELECT id FROM tasks WHERE {READY} AND {{valid}} "
        wanted += f"ORDER BY {URGENCY}, id LIMIT 1" if only is None else f"AND id = {int(only)}"
        while True:
            is_ready, is_overdue = self._look(at_ms)
            if is_overdue and not wall_clock.held_ms(self._store, clock.up_ms()):
                self._expire_overdue(at_ms)
            if not is_ready:
                return None
            try:
                with self._store.write() as execute:
                    claim = self._claim_next(execute, worker, wanted.format(valid=self._valid_condition()), at_ms)
            except StoreError:
                known = len(self._malformed)
                self._valid_tasks(row[0] for row in self._store.rows(wanted.format(valid=self._valid_condition())))
                if len(self._malformed) == known:
                    raise
                continue  # without the row that makes no sense
            if claim is not None:
                self._passed(CrashPoint.TASK_CLAIMED)
            return claim

    def attach(self, claim: Claim, run: str) -> None:
        """Note in which thread the task is worked on; Conflict when the claim is lost."""
        with self._store.write() as execute:
            self._require_held(claim)
            execute("UPDATE task_attempts SET run = ? WHERE task = ? AND number = ?", (run, claim.task.id, claim.number))

    def holds(self, claim: Claim) -> bool:
        """True while the worker still has the task."""
        return self._find_held(claim) is not None

    def finish(self, claim: Claim, status: Outcome, text: str) -> Task:
        """The task's end, or what it waits for; Conflict when the claim is lost."""
        with self._store.write(durable=True) as execute:
            done = self._settle_held(execute, claim, status, text[:MAX_TEXT])
        self._passed(CrashPoint.TASK_SETTLED)
        return done

    def _record_decision(self, decided: TaskDecided) -> None:
        decided.is_found = self.decided(decided.run, decided.failure)

    def decided(self, run: str, failure: str = "") -> bool:
        """What a task waits for in its thread is decided: it is pending again, or failed; False when none waits there."""
        with self._store.write(durable=True) as execute:
            last = "SELECT id FROM task_attempts a WHERE a.task = t.id AND a.number = t.attempts AND a.run = ?"
            rows = execute(f"SELECT id FROM tasks t WHERE status = 'waiting' AND EXISTS ({last})", (run,))
            for (task,) in rows:
                if failure:
                    self._settle_task(execute, self.get(task), "failed", failure)
                else:
                    execute(f"UPDATE tasks SET {BACK}, updated_ms = ? WHERE id = ?", (now_ms(), task))
        return bool(rows)

    def resume(self, reason: str) -> int:
        """How many tasks are pending again that waited with a reason that holds this text."""
        with self._store.write(durable=True) as execute:
            where = "status = 'waiting' AND instr(waiting_reason, ?) > 0"
            return len(execute(f"UPDATE tasks SET {BACK}, updated_ms = ? WHERE {where} RETURNING id", (now_ms(), reason)))

    def claim_of(self, run: str) -> Claim | None:
        """The claim under which a thread works on a task, lost or not; None when it works on none."""
        row = self._store.row("SELECT task, worker, number FROM task_attempts WHERE run = ? ORDER BY id DESC LIMIT 1", (run,))
        return None if row is None else Claim(self.get(int(row[0])), str(row[1]), int(row[2]))

    def give_back(self, claim: Claim, why: str) -> bool:
        """Somebody else may do it, and it is nobody's fault: pending again. False when the claim is lost already."""
        with self._store.write(durable=True) as execute:
            held = self._find_held(claim)
            if held is not None:
                self._reopen_task(execute, held, why)
        return held is not None

    def release(self, worker: str, why: str) -> list[Task]:
        """The tasks of a worker that has died are pending again; one whose worker died three times waits for a person."""
        with self._store.write(durable=True) as execute:
            rows = execute("SELECT id FROM tasks WHERE claimed_by = ? AND status = 'in_progress' ORDER BY id", (worker,))
            return [self._release_dead(execute, task, why) for task in self._release_claimed(execute, rows, why)]

    def release_stale(self, before_ms: int, is_slow: Callable[[str], bool | None] = lambda worker: None) -> list[Task]:
        """Tasks claimed before a moment are pending again, as if their workers, which hang, had died.

        `is_slow` knows better than the wall clock, which may have been set, for the workers it does not answer None for.
        """
        claimed = "SELECT id, claimed_by, claimed_ms FROM tasks INDEXED BY tasks_claimed WHERE status = 'in_progress' ORDER BY id"

        def stale(rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
            return [row for row in rows if ((row[2] or 0) < before_ms if (known := is_slow(str(row[1]))) is None else known)]

        if not stale(self._store.rows(claimed)):
            return []  # the usual case costs no write
        with self._store.write(durable=True) as execute:
            return [
                self._release_dead(execute, task, SLOW) for task in self._release_claimed(execute, stale(execute(claimed)), SLOW)
            ]

    # -- inside ---------------------------------------------------------------------------------------

    def _undo_run(self, task: int, run: str, is_begun: bool = False) -> str:
        """The run whose undo takes a change back: none for a task in progress, because a lost claim must never come back."""
        if not run or self.get(task).status != "in_progress":
            return run
        if is_begun:
            raise Conflict(f"a worker has just begun with task {task}", hint="do it once more")
        return ""

    def _require_unended(self, task: int, run: str) -> Task:
        """A task that is still to be done; Conflict for one that has ended."""
        self._undo_run(task, run, is_begun=True)
        if (found := self.get(task)).status in ("complete", "failed"):
            raise Conflict(f"task {task} is {found.status} already", hint=f"task {task} can be reset or deleted")
        return found

    def _valid_tasks(self, tasks: Iterable[int]) -> list[Task]:
        """Those of the tasks that exist and make sense."""
        found = []
        for task in tasks:
            try:
                found.append(self.find(task))
            except StoreError as error:
                self._skip_task(task, error)
        return [task for task in found if task is not None]

    def _release_claimed(self, execute: Execute, rows: Iterable[Sequence[Any]], why: str) -> list[Task]:
        """Those of the claimed tasks that make sense; the others are pending at once, or nobody could ever delete them."""
        ids = [int(row[0]) for row in rows]
        found = self._valid_tasks(ids)
        for task in set(ids).difference(one.id for one in found):
            self._close_attempt(execute, task, why, now_ms())
            execute(f"UPDATE tasks SET {BACK} WHERE id = ?", (task,))
        return found

    def _skip_task(self, task: int, error: StoreError) -> None:
        if task not in self._malformed:
            LOG.warning("task left out: %s", error)
            self._malformed.add(task)

    def _valid_condition(self) -> str:
        """A condition that leaves out the rows known to make no sense."""
        return f"id NOT IN ({', '.join(map(str, sorted(self._malformed)))})" if self._malformed else "TRUE"

    def _look(self, at_ms: int) -> tuple[bool, bool]:
        """Whether a task can begin, and whether the deadline of one has passed; costs no write."""
        valid = self._valid_condition()
        ready, overdue = f"{READY} AND {valid}", f"{OVERDUE_ONES} AND {valid}"
        sql = f"SELECT EXISTS (SELECT 1 FROM tasks WHERE {ready}), EXISTS (SELECT 1 FROM tasks WHERE {overdue})"
        is_ready, is_overdue = self._store.rows(sql, (at_ms,))[0]
        return bool(is_ready), bool(is_overdue)

    def _overdue_tasks(self, at_ms: int) -> list[int]:
        sql = f"SELECT id FROM tasks WHERE {OVERDUE_ONES} AND {self._valid_condition()} ORDER BY deadline_ms"
        return [int(row[0]) for row in self._store.rows(sql, (at_ms,))]

    def move(self, leap: wall_clock.Leap) -> None:
        """Let deadlines that were counted by a clock that was wrong move with it; call inside the write that notes the leap."""
        with self._store.write() as execute:
            sql = "UPDATE tasks SET deadline_ms = deadline_ms + ?1, counted_ms = counted_ms + ?1 WHERE counted_ms BETWEEN ?2 AND ?3"
            execute(sql, (leap.by_ms, leap.since_ms, leap.until_ms))

    def _expire_overdue(self, at_ms: int) -> None:
        with self._store.write(durable=True) as execute:
            for task in self._valid_tasks(self._overdue_tasks(at_ms)):
                self._settle_task(execute, task, "failed", OVERDUE)

    def _claim_next(self, execute: Execute, worker: str, wanted: str, at_ms: int) -> Claim | None:
        """Take the task that a query finds; StoreError when its row makes no sense."""
        rows = execute(
            "UPDATE tasks SET status = 'in_progress', claimed_by = ?1, claimed_ms = ?2, updated_ms = ?2, attempts = attempts + 1, "
            f"cancel_ms = NULL, ended_ms = NULL WHERE id = ({wanted}) AND {READY} RETURNING {COLUMNS}, {LINKED}",
            (worker, at_ms),
        )
        if not rows:
            return None
        task = task_of(rows[0])
        sql = "INSERT INTO task_attempts (task, number, worker, started_ms) VALUES (?, ?, ?, ?)"
        execute(sql, (task.id, task.attempts, worker, at_ms))
        return Claim(task, worker, task.attempts)

    def _find_held(self, claim: Claim) -> Task | None:
        """The task as it is now, None when the claim is lost."""
        task = self.find(claim.task.id)
        is_held = task is not None and (task.status, task.claimed_by, task.attempts) == ("in_progress", claim.worker, claim.number)
        return task if is_held else None

    def _require_held(self, claim: Claim) -> Task:
        held = self._find_held(claim)
        if held is None:
            now = self.find(claim.task.id)
            how = "it is gone" if now is None else f"it is {now.status}" + (" elsewhere" if now.status == "in_progress" else "")
            raise Conflict(f"task {claim.task.id} is not worked on here any more: {how}", hint="nothing was changed; stop here")
        return held

    def _settle_task(self, execute: Execute, task: Task, status: Outcome, text: str) -> Task:
        (row,) = self._write_end(execute, status, text, "id = ?", (task.id,))
        return self._close_task(execute, task_of(row), text if text == CANCELLED else status)

    def _settle_held(self, execute: Execute, claim: Claim, status: Outcome, text: str) -> Task:
        """The same in one statement with the check that the worker still has the task; Conflict when it has not."""
        where = f"id = ? AND status = 'in_progress' AND claimed_by = ? AND attempts = ?{visibility.own_people('person')}"
        rows = self._write_end(execute, status, text, where, (claim.task.id, claim.worker, claim.number))
        if not rows:
            self._require_held(claim)
        return self._close_task(execute, task_of(rows[0]), text if text == CANCELLED else status)

    def _write_end(self, execute: Execute, status: Outcome, text: str, where: str, which: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Write the end of the task that a condition names; its row afterwards."""
        now, texts = now_ms(), {"output": "", "failure": "", "waiting_reason": "", TEXT_OF[status]: text}
        return execute(
            "UPDATE tasks SET status = ?, claimed_by = NULL, claimed_ms = NULL, cancel_ms = NULL, "
            f"output = ?, failure = ?, waiting_reason = ?, ended_ms = ?, updated_ms = ? WHERE {where} "
            f"RETURNING {COLUMNS}, {LINKED}",
            (status, *texts.values(), None if status == "waiting" else now, now, *which),
        )

    def _close_task(self, execute: Execute, done: Task, outcome: str) -> Task:
        """Close the attempt of a task that has just ended, and publish the end."""
        self._close_attempt(execute, done.id, outcome, done.updated_ms)
        self._events.publish(TaskSettled(done))
        return done

    def _reopen_task(self, execute: Execute, task: Task, why: str, deaths: int = 0) -> Task:
        """Pending again; a task that was to be cancelled is that now."""
        if task.cancel_ms is not None:
            return self._settle_task(execute, task, "failed", CANCELLED)
        now = now_ms()
        self._close_attempt(execute, task.id, why, now)
        execute(f"UPDATE tasks SET {BACK}, deaths = deaths + ?, updated_ms = ? WHERE id = ?", (deaths, now, task.id))
        return self.get(task.id)

    def _release_dead(self, execute: Execute, task: Task, why: str) -> Task:
        """What becomes of a task whose worker died, or hangs. Whoever is idle is told: it looks by itself every five minutes."""
        self._store.after(lambda: self._events.publish(TaskChanged(task)))
        task = self._reopen_task(execute, task, why, deaths=1)
        if task.status != "pending" or task.deaths < MAX_DEATHS:
            return task
        tries = [one for one in self.attempts(task.id) if one.ended_ms is not None][-MAX_DEATHS:]
        told = "; ".join(f"attempt {one.number}: {self._last_step(one.run)}, then {one.outcome}" for one in tries)
        return self._settle_task(execute, task, "waiting", f"its worker died {task.deaths} times. {told}. Reset it to try again.")

    def _last_step(self, run: str) -> str:
        """The last event of a thread, in a few words."""
        row = self._store.row("SELECT seq, kind, tool FROM events WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)) if run else None
        if row is None:
            return f"thread {run}, nothing recorded" if run else "no thread yet"
        return f"thread {run}, step {row[0]} ({f'{row[1]} {row[2]}'.strip()})"

    def _close_attempt(self, execute: Execute, task: int, outcome: str, at_ms: int) -> None:
        execute("UPDATE task_attempts SET outcome = ?, ended_ms = ? WHERE task = ? AND ended_ms IS NULL", (outcome, at_ms, task))

    def _set_blockers(self, execute: Execute, task: int, blockers: Sequence[int]) -> None:
        """Let a task wait for exactly these; Conflict when it would wait for itself."""
        known = {int(row[0]) for row in execute("SELECT blocker FROM task_deps WHERE task = ?", (task,))}
        for blocker in sorted(known.difference(blockers)):
            execute("DELETE FROM task_deps WHERE task = ? AND blocker = ?", (task, blocker))
        for blocker in blockers:
            if blocker not in known:
                if visibility.asking() is not None:
                    self.get(blocker)  # nobody waits for what they may not see
                execute("INSERT INTO task_deps (task, blocker) VALUES (?, ?)", (task, blocker))
        circle = self.circle(task)
        if circle:
            way = " → ".join(map(str, circle))
            raise Conflict(f"task {task} would wait for itself: {way}", hint="leave one of these out of blocked_by")

    def circle(self, task: int) -> list[int]:
        """The way on which a task waits for itself, from it to it; [] when it does not."""
        came: dict[int, int] = {}
        waiting = [task]
        while waiting:
            current = waiting.pop(0)
            for (blocker,) in self._store.rows("SELECT blocker FROM task_deps WHERE task = ?", (current,)):
                if blocker == task:
                    way = [task, current]
                    while way[-1] != task:
                        way.append(came[way[-1]])
                    return way[::-1]
                if blocker not in came:
                    came[blocker] = current
                    waiting.append(blocker)
        return []
