"""Jobs: pieces of work that one run hands to another, and their results.

Owns the `jobs` table. A job is written down before anything of it is begun, and its end with its result before anybody
is told, so that neither dies with a process. Whoever waits here sleeps until it has ended. Who does the work is told by
`JobAdded`, and is `work.delegation`. Knows nothing about models, tools or roles but their names. Not promised: that a job which a
dead process had begun is done again; what it had completed is in its run.
"""

import json
import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from appliance.clock import CancelToken, is_alive, monotonic_s, new_id, now_ms
from appliance.errors import Conflict, NotFound
from appliance.records import Cancel, Marked, Mode, from_plain, to_plain
from appliance.runtime.events import Events
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.store import visibility, wall_clock
from appliance.store.database import Row, Store

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
OPEN = "status IN ('waiting', 'running')"  # as the index has it
COLUMNS = (
    "id, tool, role, task, given, session, parent, run, priority, status, outcome, result, is_told, attempts, process, "
    "correlation, created_ms, started_ms, ended_ms"
)
DAY_MS = 86_400_000
FOLLOW_S = 1.0
Id = Annotated[str, Range(8, 8), "the job's number, eight letters and digits"]
STOP_S = 5.0  # for work that was told to end
Priority = Literal["normal", "background"]
USUAL = 2  # the rank of work for which nobody says how urgent it is, of 1 to 4


class JobTerms(Struct, frozen=True):
    """What a job is given beside its task. `tools` None leaves them to the role; `text` stands in for the role's own words.

    `timeout_s` 0 leaves it to the role. `marks` are those of untrusted texts that the task was made of. Of those that
    wait for a thread the one with the highest `rank` begins first.
    """

    context: str = ""
    form: str = ""
    operation: str = ""
    timeout_s: float = 0
    tools: tuple[str, ...] | None = None
    text: str | None = None
    mode: Mode = "act"
    marks: Marked = ()
    rank: int = USUAL


class JobOrder(Struct, frozen=True):
    """What is wanted. `session` says for whom, and in whose folder; `parent` is the run that asks, "" for none.

    In the background its result is told to the person of the session, unless `is_told`: then somebody else sees to that.
    """

    role: str
    task: str
    given: JobTerms = JobTerms()
    session: str = ""
    parent: str = ""
    priority: Priority = "normal"
    tool: str = "prompt"
    is_told: bool = False
    correlation: str = ""


class Job(JobOrder, frozen=True, kw_only=True):
    """A job as it stands; `run` is where its work is recorded, the newest of its attempts."""

    id: str
    run: str = ""
    status: str = WAITING
    outcome: str = ""
    result: str = ""
    attempts: int = 0
    process: str = ""
    created_ms: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """True once it has ended, however."""
        return self.status not in (WAITING, RUNNING)

    @property
    def duration_s(self) -> float:
        """The seconds that the job took, or has taken so far."""
        return max(0, (self.ended_ms or now_ms()) - (self.started_ms or self.created_ms)) / 1000

    def describe_end(self) -> str:
        """In words for whoever asked: who did what, how long it took, the outcome (A-096)."""
        what = f" ({self.given.operation})" if self.given.operation else ""
        if self.status == DONE:
            return f"{self.role}{what} finished in {self.duration_s:.1f} s:\n{self.result}"
        word = "was stopped" if self.status == CANCELLED else "failed"
        return f"{self.role}{what} {word} after {self.duration_s:.1f} s: {self.result}"


class JobAdded(Struct, frozen=True):
    """A job was stored: whoever does jobs may begin it."""

    job: Job


class JobStopping(Struct, frozen=True):
    """The work on a job is to end."""

    job: str


class JobEnded(Struct, frozen=True):
    """A job has ended, within that transaction."""

    job: Job


class Jobs:
    """Reads and writes jobs. Publishes `JobAdded`, `JobStopping` and `JobEnded`."""

    def __init__(self, store: Store, process: str, events: Events | None = None) -> None:
        self.store = store
        self.process = process
        self._events = events or Events()
        self._changed = threading.Condition()

    # -- asking for work ----------------------------------------------------------------------------

    def add(self, order: JobOrder) -> Job:
        """Write down what is wanted, durably, and have it begun; returns at once."""
        made = Job(**asdict(order), id=new_id()[-8:], process=self.process, created_ms=now_ms())
        with self.store.write(durable=True) as execute:
            execute(
                "INSERT INTO jobs (id, tool, role, task, given, session, parent, priority, status, is_told, process, correlation, "
                "created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, ?, ?)",
                (
                    *(made.id, made.tool, made.role, made.task, json.dumps(to_plain(made.given), ensure_ascii=False), made.session),
                    *(made.parent or None, made.priority, made.is_told, made.process, made.correlation, made.created_ms),
                ),
            )
        self._events.publish(JobAdded(made))
        return made

    def halt(self, job_id: str) -> None:
        """Have the work on a job end; does not wait for that."""
        self._events.publish(JobStopping(job_id))

    def wait(self, ids: Sequence[str], cancel: Cancel, timeout_s: float | None = None) -> list[Job]:
        """These jobs, once all have ended, or a stop, or so much time has passed. NotFound for one that is none."""
        end_s = None if timeout_s is None else monotonic_s() + timeout_s
        forget = cancel.then(self._wake_waiting) if isinstance(cancel, CancelToken) else None
        try:
            while True:
                with self._changed:
                    found = [self.get(one) for one in ids]
                    left_s = None if end_s is None else end_s - monotonic_s()
                    if all(job.is_over for job in found) or cancel.is_set() or (left_s is not None and left_s <= 0):
                        return found
                    # What another process does is no event here.
                    pause_s = None if all(job.process in ("", self.process) for job in found) else FOLLOW_S
                    self._changed.wait(min((s for s in (left_s, pause_s) if s is not None), default=None))
        finally:
            if forget is not None:
                forget()

    def _wake_waiting(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def cancel(self, job_id: str) -> Job:
        """Have the work on a job end, and wait a moment for that; Conflict when it has ended, or another process does it."""
        if (found := self.get(job_id)).is_over:
            raise Conflict(f"job {job_id} has ended: {found.status}", hint=f"owlbox job view {job_id} shows the outcome")
        self.halt(job_id)
        found = self.get(job_id)
        if not found.is_over and found.process not in ("", self.process):
            hint = f"end what waits for it: owlbox thread abort {found.parent}"
            raise Conflict(f"job {job_id} is done by another process", hint=hint)
        return self.wait([job_id], CancelToken(), STOP_S)[0]

    # -- for people ---------------------------------------------------------------------------------

    @method("job.list")
    def list_plain(
        self,
        status: Annotated[Literal["", "waiting", "running", "done", "failed", "cancelled"], "only in this state"] = "",
        limit: Annotated[int, Range(1, 1000), "how many"] = 20,
    ) -> list[dict[str, Any]]:
        """Work that was handed to a role, newest first, with its result."""
        return [job_data(job) for job in self.list_jobs(status, limit)]

    @method("job.view")
    def view_plain(self, id: Id) -> dict[str, Any]:
        """One piece of such work."""
        return job_data(self.get(id))

    @method("job.stop")
    def stop_plain(self, id: Id) -> dict[str, Any]:
        """Stop a job; what it has completed stays."""
        return job_data(self.cancel(id))

    # -- looking ------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Job:
        found = self._select_jobs("id = ?", (job_id,))
        if not found:
            raise NotFound(f"no job {job_id}")
        return found[0]

    def find(self, job_id: str) -> Job | None:
        return next(iter(self._select_jobs("id = ?", (job_id,))), None)

    def jobs_of(self, parent: str, tool: str = "") -> list[Job]:
        """The jobs that a run has handed out, oldest first."""
        return self._select_jobs("parent = ?1 AND ?2 IN ('', tool) ORDER BY created_ms, rowid", (parent, tool))

    def of_run(self, run: str) -> Job | None:
        """The job that a run works on; None for any other run."""
        return next(iter(self._select_jobs("run = ?", (run,))), None)

    def left(self) -> list[Job]:
        """Jobs that have not ended and that no live process works on, oldest first."""
        found = self._select_jobs(f"{OPEN} ORDER BY created_ms, rowid", ())
        return [job for job in found if not job.process or (job.process != self.process and not is_alive(job.process))]

    def unheard(self) -> list[Job]:
        """Jobs that have ended, of which the one that waited died before it heard of it."""
        found = self._select_jobs(
            f"NOT ({OPEN}) AND is_told = 0 AND priority = 'normal' AND tool = 'delegate' ORDER BY ended_ms", ()
        )
        return [job for job in found if job.process != self.process and not is_alive(job.process)]

    def list_jobs(self, status: str = "", limit: int = 20) -> list[Job]:
        """Jobs, newest first."""
        return self._select_jobs("?1 IN ('', status) ORDER BY created_ms DESC, rowid DESC LIMIT ?2", (status, limit))

    def counts(self) -> dict[str, int]:
        """The number of jobs in each status that has any."""
        return {str(s): int(n) for s, n in self.store.rows("SELECT status, COUNT(*) FROM jobs GROUP BY status ORDER BY status")}

    # -- doing it -----------------------------------------------------------------------------------

    def take_job(self, job_id: str) -> Job | None:
        """This process takes a job that none has begun; None when another process took it."""
        with self.store.write() as execute:
            sql = "UPDATE jobs SET process = ? WHERE id = ? AND status = 'waiting' RETURNING 1"
            is_mine = bool(execute(sql, (self.process, job_id)))
        return self.get(job_id) if is_mine else None

    def release(self, job_id: str) -> None:
        """This process will not begin it: the next one may."""
        with self.store.write() as execute:
            execute("UPDATE jobs SET process = '' WHERE id = ? AND status = 'waiting' AND process = ?", (job_id, self.process))

    def begin(self, job_id: str, run: str) -> Job:
        """An attempt begins, recorded in a run; Conflict when it was stopped meanwhile. Call inside a transaction."""
        with self.store.write() as execute:
            sql = (
                "UPDATE jobs SET status = 'running', run = ?, attempts = attempts + 1, process = ?, "
                f"started_ms = COALESCE(started_ms, ?) WHERE id = ? AND {OPEN} RETURNING 1"
            )
            if not execute(sql, (run, self.process, now_ms(), job_id)):
                raise Conflict(f"job {job_id} has ended", hint="ask again")
        return self.get(job_id)

    def end(self, job_id: str, status: str, outcome: str, result: str) -> Job | None:
        """It has ended; None when it had before. Call inside a transaction: what follows from it is part of that."""
        with self.store.write(durable=True) as execute:
            sql = f"UPDATE jobs SET status = ?, outcome = ?, result = ?, ended_ms = ? WHERE id = ? AND {OPEN} RETURNING 1"
            if not execute(sql, (status, outcome, result, now_ms(), job_id)):
                return None
            ended = self.get(job_id)
            self._events.publish(JobEnded(ended))
        return ended

    def committed(self) -> None:
        """The end of a job is on record: who waits may look."""
        self._wake_waiting()

    def mark_told(self, job_id: str) -> bool:
        """Whoever waited has heard of it; False when that was so before."""
        with self.store.write() as execute:
            return bool(execute("UPDATE jobs SET is_told = 1 WHERE id = ? AND is_told = 0 RETURNING 1", (job_id,)))

    def mark_heard(self, parent: str) -> None:
        """The run that waited for its work has gone on with the outcome. Call inside a transaction."""
        with self.store.write() as execute:
            sql = "UPDATE jobs SET is_told = 1 WHERE parent = ? AND is_told = 0 AND priority = 'normal' AND tool = 'delegate'"
            execute(sql, (parent,))

    def forget(self, keep_days: float, now: int = 0) -> int:
        """Delete what ended so long ago; how many. Writes nothing for none."""
        before_ms = wall_clock.age_limit(self.store, now or None) - int(keep_days * DAY_MS)
        if not self.store.value(f"SELECT 1 FROM jobs WHERE ended_ms {wall_clock.OLD} ? LIMIT 1", (before_ms,)):
            return 0
        with self.store.write() as execute:
            return len(execute(f"DELETE FROM jobs WHERE ended_ms {wall_clock.OLD} ? RETURNING id", (before_ms,)))

    def _select_jobs(self, where: str, bindings: Sequence[Any]) -> list[Job]:
        return [
            _job_from_row(row)
            for row in self.store.rows(
                f"SELECT {COLUMNS} FROM jobs WHERE 1{visibility.own_sessions('session')} AND {where}", bindings
            )
        ]


def _job_from_row(row: Row) -> Job:
    values: dict[str, Any] = dict(zip(COLUMNS.split(", "), row, strict=True))
    values |= {"given": from_plain(JobTerms, json.loads(values["given"])), "is_told": bool(values["is_told"])}
    values |= {"parent": values["parent"] or "", "run": values["run"] or ""}
    return Job(**values)


def job_data(job: Job) -> dict[str, Any]:
    """A job as JSON-ready values."""
    return {**to_plain(job), "duration_s": job.duration_s}
