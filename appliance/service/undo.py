"""Takes back everything that a run changed in what the assistant knows and in what it is to do, or nothing.

A run's changes are kept by `store`, one set for each transaction; they are inverted, newest first, in one
transaction, which is a run itself and can be taken back too. What those changed to whom it handed work goes with it,
unless it alone is asked for. What somebody changed after the run, or a worker has begun, is never overwritten: then
nothing is changed and each such entry or task is named. What the run saw of entries that go is gone with them, and does
not come back when they do. Files of the workspace and of box/ follow their entries. Not taken back: what was said, sent,
or done elsewhere outside of the database. Knows nothing about how rows are compared.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import iso, new_id
from appliance.errors import Conflict
from appliance.knowledge.change_log import By, Changes
from appliance.knowledge.entries import Entries, Entry
from appliance.knowledge.files import Followers
from appliance.records import Event
from appliance.runtime.events import Events
from appliance.runtime.methods import Call, method
from appliance.runtime.users import caller_name
from appliance.sessions.runs import Run, Runs
from appliance.store.database import Clash, Store
from appliance.work.jobs import Jobs
from appliance.work.schedules import Schedule, ScheduleRows
from appliance.work.tasks import Task, TaskRows
from appliance.work.work_events import ScheduleChanged

NAMED = 10  # entries and tasks that an error names
OF_TASKS = ("tasks", "task_deps")
BESIDE = (*OF_TASKS, "schedules")  # what is no entry


class UndoneChange(Struct, frozen=True):
    """An entry or a task that an undo changed: `how` is gone, back, changed or moved; `path` is where it is, or was."""

    path: str
    scope: str
    how: str
    kind: str = "entry"


class UndoObstacle(Struct, frozen=True):
    """What stands in the way of an undo: an entry or task that is not as the run left it, and who changed it last."""

    path: str
    scope: str
    how: str  # changed, gone or taken
    verb: str = ""
    writer: str = ""
    run: str = ""
    at_ms: int = 0
    kind: str = "entry"

    def __str__(self) -> str:
        who = f" by {self.writer}" if self.writer else ""
        where = f" in thread {self.run[-8:]}" if self.run else ""
        when = f" at {iso(self.at_ms)[:16]}" if self.at_ms else ""
        return f"{self.path} ({self.verb or self.how}{who}{where}{when})"


class Undone(Struct, frozen=True):
    """The result of an undo: `by` is its own run, "" when nothing was undone.

    `helpers` are the runs to which it handed work and whose changes are among these.
    """

    run: str
    by: str = ""
    is_dry_run: bool = False
    changes: tuple[UndoneChange, ...] = ()
    later: tuple[UndoObstacle, ...] = ()
    helpers: tuple[str, ...] = ()


class _NothingDone(Exception):
    """Leaves a transaction so that it is rolled back."""


class Undo:
    """Takes runs back."""

    def __init__(
        self,
        store: Store,
        entries: Entries,
        runs: Runs,
        files: Sequence[Followers] = (),
        events: Events | None = None,
    ) -> None:
        self._store = store
        self._entries = entries
        self._runs = runs
        self._files = files
        self._changes = Changes(store)
        self._tasks = TaskRows(store)
        self._schedules = ScheduleRows(store)
        self._jobs = Jobs(store, "")
        self._events = events or Events()

    @method("run.undo", access="own")
    def undo_for_caller(
        self,
        run: str,
        is_dry_run: Annotated[bool, "only show what would change, or what prevents it"] = False,
        is_alone: Annotated[bool, "without the changes of its helpers"] = False,
        *,
        call: Call,
    ) -> Undone:
        """Take back everything a thread and its helpers changed in entries, or nothing: a conflict names what was changed since.

        `by` is the thread that took it back, which can be undone too; empty when there was nothing to take back.
        """
        return self.undo(run, caller_name(call), is_dry_run=is_dry_run, is_alone=is_alone)

    def undo(self, ref: str, sender: str = "", *, is_dry_run: bool = False, is_alone: bool = False) -> Undone:
        """Take a run back with the work it handed to others, or without with `is_alone`; or only say what that would do.

        Conflict names what was changed since, and when the run is being answered or taken back already.
        """
        run = self._runs.get(ref)
        by = new_id()
        done = Undone(run.id, is_dry_run=is_dry_run)
        ids = [key for table, keys in self._store.changed_by(run.id).items() if table == "entries" for key in keys]
        paths = [entry.path for entry in self._entries.by_ids(ids).values()]
        for files in self._files:
            files.refresh_files(paths)
        try:
            with self._store.write(run=by, durable=True):
                helpers = () if is_alone else self._helpers(run.id)
                self._check(run, (run.id, *helpers))
                done = replace(done, helpers=tuple(one for one in helpers if self._store.changed_by(one)))
                done = self._take_back(run, by, done)
                if is_dry_run or done.later or not done.by:
                    raise _NothingDone
                self._record(run, done, sender)
        except _NothingDone:
            done = replace(done, by="")
        else:
            self._events.publish(ScheduleChanged())
        if done.later and not is_dry_run:
            raise _refusal(run, done.later)
        return done

    def _helpers(self, run: str) -> tuple[str, ...]:
        """The runs of those to whom this one handed work, all of which must have ended: else Conflict."""
        jobs = self._jobs.jobs_of(run)
        if busy := next((job.id for job in jobs if not job.is_over), ""):
            hint = f"wait for it, or stop it first: owlbox job stop {busy}"
            raise Conflict(f"job {busy}, which thread {run} handed out, has not ended", hint=hint)
        # A job is forgotten in time, the note about it never.
        noted = [str((e.input or {}).get("run") or "") for e in self._runs.events(run, roles=("system",)) if e.kind == "delegate"]
        found = dict.fromkeys((*noted, *(job.run for job in jobs)))
        return tuple(one for one in found if one and self._runs.has_run(one))

    def _check(self, run: Run, family: Sequence[str]) -> None:
        """Conflict while a run is being answered, and when all that it and its helpers did is taken back already."""
        if self._runs.is_answering(run.id):
            raise Conflict(f"thread {run.id} is being answered right now", hint="wait for it, or stop it first")
        undone_by = next((by for one in family if (by := self._store.undone_by(one))), "")
        if undone_by and not any(self._store.changed_by(one) for one in family):
            raise Conflict(f"thread {run.id} is taken back already", hint=f"owlbox undo {undone_by} brings it back")

    def _take_back(self, run: Run, by: str, done: Undone) -> Undone:
        family = (run.id, *done.helpers)
        keys: dict[str, list[int]] = {}
        for table, rows in ((table, rows) for one in family for table, rows in self._store.changed_by(one).items()):
            keys[table] = sorted({*keys.get(table, []), *rows})
        if not keys:
            return done
        ids = sorted({key for table, rows in keys.items() if table not in BESIDE for key in rows})  # a blob has its entry's key
        numbers = keys.get("tasks", [])  # what a task waits for changes with the task
        before, planned = self._entries.by_ids(ids), self._planned(numbers)
        timed = self._timed(keys.get("schedules", []))
        clashes = self._store.take_back(run.id, by, done.helpers)
        now = self._planned(numbers)
        again = [number for number, task in now.items() if number not in planned or task.blocked_by != planned[number].blocked_by]
        circles = [] if clashes else [number for number in again if self._tasks.circle(number)]
        clashes += [Clash("tasks", number, "waits for itself", {}, {}) for number in circles]
        if clashes:
            of_tasks = [clash for clash in clashes if clash.table in OF_TASKS]
            of_time = [clash for clash in clashes if clash.table == "schedules"]
            of_entries = [clash for clash in clashes if clash.table not in BESIDE]
            later = (*(self._named(family, of_entries, before) if of_entries else ()), *_named_tasks(of_tasks, planned))
            later += tuple(_named_schedule(clash, timed.get(clash.key)) for clash in of_time)
            return replace(done, later=later)
        after = self._entries.restored(before, ids, By("client", by), family)
        for entry in after if not done.is_dry_run else ():
            old = before.get(entry.id)
            for files in self._files:
                files.restore(old, None if old is entry else entry)
        changes = [self._how(before.get(entry.id), entry) for entry in after]
        planned_now = _schedules_changed(timed, self._timed(keys.get("schedules", [])))
        return replace(done, by=by, changes=(*changes, *_tasks_changed(planned, now), *planned_now))

    def _planned(self, numbers: Sequence[int]) -> dict[int, Task]:
        """Those of these tasks that exist, by number."""
        found = {number: self._tasks.find(number) for number in numbers}
        return {number: task for number, task in found.items() if task is not None}

    def _timed(self, numbers: Sequence[int]) -> dict[int, Schedule]:
        """Those of these schedules that exist, by number."""
        found = {number: self._schedules.find(number) for number in numbers}
        return {number: one for number, one in found.items() if one is not None}

    def _how(self, old: Entry | None, entry: Entry) -> UndoneChange:
        if old is None:
            how = "back"
        elif old is entry:
            how = "gone"
        else:
            how = "changed" if old.path == entry.path else "moved"
        return UndoneChange(entry.path, entry.scope, how)

    def _record(self, run: Run, done: Undone, sender: str) -> None:
        """The undo as a run of the same person, ended at once."""
        self._runs.begin(run.session, "ask", title=f"undo of {run.title or run.id}"[:60], run_id=done.by)
        also = f", with {len(done.helpers)} that it had handed work to" if done.helpers else ""
        said = f"took back what thread {run.id} had changed{also}: {_counted(done.changes)}"
        self._runs.append(Event(done.by, "status_change", "system", said, sender_id=sender))
        self._runs.end(done.by, "done")

    def _named(self, family: Sequence[str], clashes: Sequence[Clash], before: dict[int, Entry]) -> tuple[UndoObstacle, ...]:
        """Who changed what, one for each entry, by path."""
        found: dict[tuple[str, str], UndoObstacle] = {}
        known = {clash.key for clash in clashes if clash.table == "entries"}
        for clash in clashes:
            if clash.table == "entries" or (clash.table and clash.key not in known):  # bytes tell less than their entry
                later = self._later(family, clash, before.get(clash.key))
                found.setdefault((later.scope, later.path), later)
        return tuple(found[key] for key in sorted(found)) or (UndoObstacle("the database", "", "changed"),)

    def _later(self, family: Sequence[str], clash: Clash, entry: Entry | None) -> UndoObstacle:
        scope, path = self._place(family, clash, entry)
        last = next((c for c in self._changes.changes_of(scope, path, 1) if c.run not in family), None)
        if last is None:
            return UndoObstacle(path, scope, clash.reason)
        return UndoObstacle(path, scope, clash.reason, last.verb, last.writer, last.run, last.at_ms)

    def _place(self, family: Sequence[str], clash: Clash, entry: Entry | None) -> tuple[str, str]:
        """Scope and path of the entry that is not as it was."""
        wanted = clash.wanted.get("path") if clash.reason == "taken" else None
        if entry is not None:
            return entry.scope, str(wanted or entry.path)
        known = {**clash.left, **clash.wanted}
        if "path" in known and "scope" in known:
            return str(known["scope"]), str(wanted or known["path"])
        left = (self._changes.left(run, str(clash.left.get("hash"))) for run in family)
        return next((place for place in left if place), ("", f"entry {clash.key}, which is gone"))


def _named_tasks(clashes: Sequence[Clash], planned: dict[int, Task]) -> tuple[UndoObstacle, ...]:
    """How the tasks stand that are not as they were, by number."""
    reasons: dict[int, str] = {}
    for clash in clashes:
        key = clash.key if clash.table == "tasks" else int(clash.wanted.get("task") or clash.left.get("task") or 0)
        reasons.setdefault(key, clash.reason)
    found = []
    for number, reason in sorted(reasons.items()):
        task = planned.get(number)
        if task is None:
            found.append(UndoObstacle(f"task {number}", "", reason, kind="task"))
        else:
            how = task.status.replace("_", " ") if reason == "changed" else reason
            at_ms = task.updated_ms
            found.append(UndoObstacle(_titled(task), "", how, writer=task.claimed_by or "", at_ms=at_ms, kind="task"))
    return tuple(found)


def _tasks_changed(before: dict[int, Task], after: dict[int, Task]) -> tuple[UndoneChange, ...]:
    """The result for each task, by number."""
    found = []
    for number in sorted({*before, *after}):
        old, new = before.get(number), after.get(number)
        how = "gone" if new is None else "back" if old is None else "changed"
        task = new or old
        if task is not None and old != new:
            found.append(UndoneChange(_titled(task), "", how, kind="task"))
    return tuple(found)


def _named_schedule(clash: Clash, known: Schedule | None) -> UndoObstacle:
    """How a schedule stands that is not as it was."""
    if known is None:
        return UndoObstacle(f"schedule {clash.key:08x}", "", clash.reason, kind="schedule")
    return UndoObstacle(f"schedule {known.ref}: {known.name}", "", clash.reason, at_ms=known.updated_ms, kind="schedule")


def _schedules_changed(before: dict[int, Schedule], after: dict[int, Schedule]) -> tuple[UndoneChange, ...]:
    """The result for each schedule."""
    found = []
    for number in sorted({*before, *after}):
        old, new = before.get(number), after.get(number)
        how = "gone" if new is None else "back" if old is None else "changed"
        if (one := new or old) is not None and old != new:
            found.append(UndoneChange(f"schedule {one.ref}: {one.name}", "", how, kind="schedule"))
    return tuple(found)


def _titled(task: Task) -> str:
    return f"task {task.id}: {task.name}"


def _counted(changes: Sequence[UndoneChange | UndoObstacle]) -> str:
    """The numbers of entries and tasks, in words."""
    kinds = [one.kind for one in changes]
    words = {"entry": ("entry", "entries"), "task": ("task", "tasks"), "schedule": ("schedule", "schedules")}
    said = [f"{n} {words[kind][n != 1]}" for kind in words if (n := kinds.count(kind)) or (kind == "entry" and not kinds)]
    return " and ".join(said)


def _refusal(run: Run, later: Sequence[UndoObstacle]) -> Conflict:
    named = ", ".join(str(one) for one in later[:NAMED])
    more = f" and {len(later) - NAMED} more" if len(later) > NAMED else ""
    return Conflict(
        f"thread {run.id} is not taken back, {_counted(later)} {'was' if len(later) == 1 else 'were'} changed since: {named}{more}",
        hint="undo the later thread first, or change these by hand",
    )
