"""Delegation: the work of jobs is begun, watched over and brought home, side by side in threads of this process.

Each attempt at a job is a run of its own in the session of whoever asked, as a role that sees its documents, what is
asked and its tools, and nothing of the conversation. Whoever waits holds no thread that work needs: children wait for
nobody, so nobody starves. A job's end, its result, the note in the asking run and a notification about it are one transaction,
that of the end of its loop. Owns no table; knows nothing about sockets. Not promised: that work which a dead process
had begun is done again; whoever asked is told what was completed.
"""

import heapq
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from appliance.agent.loop import Loops
from appliance.agent.loop_events import LoopStored
from appliance.agent.stop_conditions import OFFLINE
from appliance.clock import Alarms, CancelToken, correlation_id
from appliance.errors import NotFound, OwlError
from appliance.language.request_texts import FORM
from appliance.policy.taint_marks import CARRIED
from appliance.prompt.roles import CHILD, Role, Roles
from appliance.records import Event, LoopEnded, RunSettings
from appliance.runtime import log
from appliance.runtime.settings import DelegationSettings as Keys
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.runs import DONE as ANSWERED
from appliance.sessions.runs import PROPOSED, STOPPED, Loop, Runs, Start
from appliance.work.jobs import CANCELLED, DONE, FAILED, RUNNING, WAITING, Job, JobAdded, Jobs, JobStopping

LOG = logging.getLogger(__name__)
TITLE_CHARS = 60
MAX_NAMED = 12  # completed calls that a failure names
FRONT, BEHIND = 6, 4  # pieces of work at a time (A-094: 10): long work leaves room for what somebody waits for
ATTEMPTS, RETRY_MAX_S = 3, 10.0  # tries when a model cannot be reached, and the longest pause between two
# Through no fault of the work: worth another try, unless something has been changed by then.
PASSING = ("connection_lost", "provider_timeout", "stream_error", "busy", "unavailable", "upstream_error", "rate_limited", OFFLINE)
TOO_LONG = "timeout"
TASK = "tick"  # the kind of runs in which tasks are worked on
NOBODY = "it needs approval, and nobody is here to give it"


class _Attempt(Struct):
    """One try at a job. `why` says what made it stop; `is_last` that its end is the job's."""

    job: Job
    role: Role
    cancel: CancelToken = field(default_factory=CancelToken)
    why: str = ""
    is_last: bool = True
    end: LoopEnded | None = None

    @property
    def limit_s(self) -> float:
        """The seconds that a job may take, 0 for no limit."""
        return self.job.given.timeout_s or self.role.timeout_s

    @property
    def reason(self) -> str:
        """Why it was stopped, in words."""
        return f"it took longer than {self.limit_s:g} s" if self.why == TOO_LONG else self.why

    def stop(self, why: str) -> None:
        """The first reason stays."""
        self.why = self.why or why
        self.cancel.set()


class _Line:
    """Work that waits for a thread: the highest rank first, then what came first."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._guard = threading.Lock()
        self._waiting: list[tuple[int, int, str]] = []
        self._count = 0

    def put(self, rank: int, name: str, work: Callable[[str], object]) -> None:
        """Have something done under a name when its turn comes."""
        with self._guard:
            self._count += 1
            heapq.heappush(self._waiting, (-rank, self._count, name))
        self._pool.submit(self._run_next, work)

    def _run_next(self, work: Callable[[str], object]) -> None:
        with self._guard:
            *_, name = heapq.heappop(self._waiting)
        work(name)

    def close(self) -> None:
        """Wait until all of it is done."""
        self._pool.shutdown(wait=True)


class Delegation:
    """Does jobs. `is_lasting` is for a process that stays: others leave to it what nobody waits for."""

    places = (FRONT, BEHIND)

    def __init__(
        self,
        runs: Runs,
        jobs: Jobs,
        roles: Roles,
        loops: Loops,
        outbox: Outbox,
        keys: Callable[[], Keys],
        *,
        is_lasting: bool = True,
    ) -> None:
        self._store = jobs.store
        self._runs = runs
        self._jobs = jobs
        self._roles = roles
        self._driver = loops
        self._outbox = outbox
        self._keys = keys
        self._is_lasting = is_lasting
        self._guard = threading.Lock()
        self._mine: dict[str, _Attempt] = {}  # by job, from the moment it is ours
        self._loops: dict[int, _Attempt] = {}
        self._alarms = Alarms()
        self._is_closing = False
        self._front = _Line(self.places[0], "job")
        self._behind = _Line(self.places[1], "job-behind")
        loops.events.subscribe(JobAdded, lambda added: self.start(added.job))
        loops.events.subscribe(JobStopping, lambda stopping: self.stop(stopping.job))
        loops.events.subscribe(LoopStored, self._loop_stored)

    # -- for whoever asks ---------------------------------------------------------------------------

    def start(self, job: Job) -> None:
        """Begin a job when there is a thread for it; one that nobody waits for is left to a process that stays."""
        is_behind = job.priority == "background"
        with self._guard:
            is_left = self._is_closing or (is_behind and not self._is_lasting)
            if not is_left:
                self._mine[job.id] = _Attempt(job, Role(CHILD))
                (self._behind if is_behind else self._front).put(job.given.rank, job.id, self._run_job)
        if is_left:
            self._jobs.release(job.id)

    def stop(self, job_id: str, why: str = "stopped") -> None:
        """End the work on a job, or let it not begin: one that nobody has begun ends at once, whoever's it is."""
        with self._guard:
            attempt = self._mine.get(job_id)
        if attempt is not None:
            attempt.stop(why)
        job = self._jobs.get(job_id)
        if job.status == WAITING:
            with self._store.write(durable=True):
                if self._jobs.get(job_id).status == WAITING:
                    self._end_job(job, CANCELLED, "cancelled", self._describe_failure(job, why))
            self._jobs.committed()

    def _loop_stored(self, stored: LoopStored) -> None:
        """In the transaction that ends any loop: it knows the outcome of the work it waited for; a job's own ends the job."""
        loop, end = stored.loop, stored.end
        if not (end.status == STOPPED and self._is_closing):  # then the person is told after the next start
            self._jobs.mark_heard(loop.run)
        if end.status == STOPPED and not self._is_closing and self._runs.get(loop.run).kind != TASK:
            self._stop_those_of(loop.run)
        attempt = self._loops.get(loop.id)
        if attempt is not None:
            attempt.end = end
            attempt.is_last = not self._is_worth_again(attempt, loop, end)
            if attempt.is_last:
                self._settle_job(attempt, loop.id, end)

    def recover(self) -> None:
        """See to what a process left behind that is gone; writes nothing when there is nothing."""
        for job in self._jobs.left():
            if job.status == RUNNING:
                with self._store.write(durable=True):
                    self._end_job(job, FAILED, "interrupted", self._describe_failure(job, "it was cut off when the owl ended"))
                LOG.warning("job %s of role %s was cut off and is marked so", job.id, job.role)
        for job in self._jobs.unheard():
            with self._store.write(durable=True):
                if self._jobs.mark_told(job.id):
                    self._notify_caller(job)
        self.begin_waiting()

    def begin_waiting(self) -> None:
        """Begin what other processes have left to us."""
        if not self._is_lasting:
            return
        for job in self._jobs.left():
            if job.status == WAITING and (mine := self._jobs.take_job(job.id)) is not None:
                self.start(mine)

    def close(self) -> None:
        """Stop what runs, leave what has not begun to the next process, wait for both."""
        with self._guard:
            self._is_closing = True
            mine = list(self._mine.values())
        for attempt in mine:
            attempt.stop("shutdown")
        self._front.close()
        self._behind.close()

    # -- working ------------------------------------------------------------------------------------

    def _run_job(self, job_id: str) -> None:
        with self._guard:
            first = self._mine[job_id]
        try:
            with log.correlated(first.job.correlation or correlation_id()):
                self._run_attempts(first)
        except OwlError as error:
            LOG.error("job %s: %s", job_id, error)
            self._fail_job(first.job, error)
        except Exception:  # the last line of a thread of ours: whoever waits is told all the same
            LOG.exception("job %s failed", job_id)
            self._fail_job(first.job, OwlError("internal error"))
        finally:
            with self._guard:
                self._mine.pop(job_id, None)
            self._jobs.committed()

    def _run_attempts(self, attempt: _Attempt) -> None:
        """One attempt after another, until one is the last, all of them within the time that the job has."""
        if not self._is_put_off(attempt):
            attempt.role = self._role_of(attempt.job)
            alarm = self._alarms.after(attempt.limit_s, lambda: attempt.stop(TOO_LONG)) if attempt.limit_s else None
            try:
                self._repeat_attempts(attempt)
            finally:
                if alarm is not None:
                    self._alarms.cancel(alarm)

    def _repeat_attempts(self, attempt: _Attempt) -> None:
        for number in range(1, ATTEMPTS + 1):
            if self._is_put_off(attempt):
                return
            self._run_attempt(attempt, is_last=number == ATTEMPTS)
            if attempt.is_last:
                return
            pause_s = min(RETRY_MAX_S, self._keys().retry_s * 2.0 ** (number - 1))
            LOG.warning("job %s is tried again in %g s", attempt.job.id, pause_s)
            attempt.cancel.wait(pause_s)
        self._is_put_off(attempt)

    def _is_put_off(self, attempt: _Attempt) -> bool:
        """Whether it was stopped between two attempts, or before the first."""
        if not attempt.cancel.is_set():
            return False
        if self._is_closing and attempt.job.status == WAITING:
            self._jobs.release(attempt.job.id)
            return True
        status, outcome = (FAILED, "timeout") if attempt.why == TOO_LONG else (CANCELLED, "cancelled")
        with self._store.write(durable=True):
            self._end_job(attempt.job, status, outcome, self._describe_failure(attempt.job, attempt.reason or "stopped"))
        return True

    def _run_attempt(self, attempt: _Attempt, *, is_last: bool) -> None:
        job = attempt.job
        attempt.is_last, attempt.end = is_last, None
        loop = self._begin_run(attempt)
        attempt.job = self._jobs.get(job.id)
        self._loops[loop.id] = attempt
        try:
            end = self._driver.answer(loop, attempt.cancel, attempt.role)
            if attempt.end is None:  # the database did not let its end be recorded
                attempt.end = end
            if attempt.is_last and not self._jobs.get(job.id).is_over:
                with self._store.write(durable=True):
                    self._settle_job(attempt, loop.id, end)
            if end.status == PROPOSED:
                self._runs.end_paused(loop, STOPPED, "unattended")
        finally:
            del self._loops[loop.id]

    def _role_of(self, job: Job) -> Role:
        """As whom a job is done: the role, with what the order says instead."""
        given = job.given
        found = self._roles.child("" if job.role == CHILD else job.role, given.text)
        tools = found.tools if given.tools is None else given.tools
        return replace(found, tools=tools, is_background=job.priority == "background")

    def _begin_run(self, attempt: _Attempt) -> Loop:
        """A run with its first message and its loop begun: all of it, or nothing of it."""
        job, role = attempt.job, attempt.role
        parent = self._runs.get(job.parent) if job.parent else None
        settings = replace(parent.settings if parent else RunSettings(), model="", persona="", layout="chat", temperature=None)
        said = " ".join(job.task.split())
        title = f"{role.name}: {said if len(said) <= TITLE_CHARS else said[: TITLE_CHARS - 1] + '…'}"
        with self._store.write(durable=True):
            session = self._session_of(job)
            run = self._runs.begin(session, "child", title=title, start=Start(role=role.name, settings=settings))
            if parent is not None:
                self._runs.marks.inherit(f"run:{run.id}", f"run:{parent.id}")
            self._runs.marks.take(f"run:{run.id}", job.given.marks)
            prompt = self._runs.append(Event(run.id, "message", "user", child_prompt(job), correlation=log.correlation()))
            loop_id = self._runs.enqueue(run.id, prompt.id, log.correlation(), job.given.mode)
            self._jobs.begin(job.id, run.id)
            self._runs.start_loop(loop_id)  # at once: a prompt that only waits is one that the core would answer as a chat
            return self._runs.loop(loop_id)

    def _session_of(self, job: Job) -> str:
        """Where the work is done: where it was asked for, else in a session of its own."""
        try:
            return str(self._runs.session(job.session)["id"])
        except NotFound:
            made = job.session or f"task:job-{job.id}"
            self._runs.open_session(made, made.partition(":")[2], f"user:{made.partition(':')[2]}")
            return made

    # -- how it ended -------------------------------------------------------------------------------

    def _is_worth_again(self, attempt: _Attempt, loop: Loop, end: LoopEnded) -> bool:
        """Whether trying again may help, and would do nothing twice."""
        if attempt.is_last or attempt.why or end.outcome not in PASSING:
            return False
        return all(self._driver.is_read_only(event.tool) for event in self._runs.events(loop.run) if event.kind == "tool_use")

    def _settle_job(self, attempt: _Attempt, loop_id: int, end: LoopEnded) -> None:
        """Record a job's end. Call inside a transaction."""
        job, why = attempt.job, attempt.why
        if end.status == ANSWERED:
            self._end_job(job, DONE, "ok", self._runs.answer_text(loop_id).strip() or "(no words)")
            return
        if end.status == PROPOSED:
            self._end_job(job, FAILED, "permission", self._describe_failure(job, f"{NOBODY}: {end.message}"))
            return
        if why == TOO_LONG:
            self._end_job(job, FAILED, "timeout", self._describe_failure(job, attempt.reason))
            return
        status = CANCELLED if end.outcome in ("cancelled", "stopped") else FAILED
        reason = "the owl was shut down" if why == "shutdown" else end.message or end.outcome
        self._end_job(job, status, end.outcome, self._describe_failure(job, reason))

    def _end_job(self, job: Job, status: str, outcome: str, result: str) -> None:
        """The end of a job, and what follows from it. Call inside a transaction."""
        ended = self._jobs.end(job.id, status, outcome, result)
        if ended is None:
            return
        if ended.parent:
            names = ("task", "run", "priority")
            given = {"agent": ended.role, "job": ended.id, **{name: getattr(ended, name) for name in names}}
            given |= {CARRIED: marks} if (marks := self._runs.marks.carried(f"run:{ended.run}")) else {}
            number = 200 if status == DONE else 499 if status == CANCELLED else 500
            event = Event(ended.parent, "delegate", "system", ended.describe_end(), tool=ended.tool, input=given, status=number)
            with suppress(NotFound):  # its thread was deleted
                self._runs.append(replace(event, outcome=outcome, duration_ms=round(ended.duration_s * 1000)))
        if ended.priority == "background" and not ended.is_told and self._jobs.mark_told(ended.id):
            self._notify_caller(ended)
        LOG.info("job %s: %s", ended.id, outcome, extra={"role": ended.role, "run": ended.run, "result": status})

    def _notify_caller(self, job: Job) -> None:
        """A notification to whoever asked."""
        try:
            session = self._runs.session(job.session)
        except NotFound:
            return
        if session["person"]:
            notification = Notification(
                f"job:{job.id}", session["person"], job.describe_end(), session["context"], job.session, run=job.parent or None
            )
            self._outbox.put(replace(notification, correlation=job.correlation), sources=(f"run:{job.run}",))

    def _describe_failure(self, job: Job, why: str) -> str:
        """Why it failed, and what was completed all the same (A-017)."""
        run = self._jobs.get(job.id).run
        done = completed(self._runs.events(run)) if run else []
        if not done:
            return f"{why.rstrip('.')}. Nothing was completed."
        return f"{why.rstrip('.')}. Completed before that, and not taken back: {'; '.join(done)}."

    def _fail_job(self, job: Job, error: OwlError) -> None:
        """It could not even be begun, or its end was lost."""
        try:
            with self._store.write(durable=True):
                self._end_job(job, FAILED, error.outcome, self._describe_failure(job, str(error)))
        except OwlError as again:
            LOG.error("the end of job %s could not be recorded: %s", job.id, again)

    def _stop_those_of(self, run: str) -> None:
        """What a run has set to work does not outlive its being stopped, but for what it does not wait for."""
        with self._guard:
            mine = [one for one in self._mine.values() if one.job.parent == run and one.job.priority == "normal"]
        for attempt in mine:
            attempt.stop("stopped")


def child_prompt(job: Job) -> str:
    """What a child reads: what was given beside, then the task, then how the answer is wanted (S-088)."""
    given = job.given
    parts = [given.context.strip(), job.task.strip()]
    if given.form.strip():
        parts.append(f"{FORM}{given.form.strip()}")
    return "\n\n".join(part for part in parts if part)


def completed(events: list[Event]) -> list[str]:
    """The calls of a run that were completed, each with its main argument."""
    given = {event.call_id: event for event in events if event.kind == "tool_use"}
    done = []
    for event in events:
        if event.kind != "tool_result" or event.status >= 400:
            continue
        call = given.get(event.call_id)
        name, values = event.tool, (call.input or {}) if call else {}
        if name == "use" and isinstance(inner := values.get("arguments"), dict):
            name, values = str(values.get("tool") or name), inner
        about = next((str(value) for value in values.values() if isinstance(value, str)), "")
        about = " ".join(about.split())
        done.append(f"{name}({about if len(about) <= 60 else about[:59] + '…'})")
    return [*done[:MAX_NAMED], *([f"and {len(done) - MAX_NAMED} more"] if len(done) > MAX_NAMED else [])]
