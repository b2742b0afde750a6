"""The parts about time, built once and tied together: schedules, what they do when they are due, and who is told.

Here stands what follows from what: the end of a task, a turn or a job ends the firing that began it, a schedule that keeps
failing is paused and its person told, a change wakes the timekeeper. Owns no table. Apart from `service.core`, which builds
everything else, as `office` is for the queue.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from appliance.channels.delivery import Courier
from appliance.channels.inbox import Inbox
from appliance.clock import Alarms, CancelToken, now_ms
from appliance.errors import NotFound, OwlError
from appliance.records import Inbound, LoopEnded, Marked, Model
from appliance.runtime import log, paths
from appliance.runtime.settings import Config
from appliance.service import broker_lending
from appliance.service.queue_parts import Ground, Office
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import RUNNING, Loop
from appliance.work.conditions import Judge, Verdict
from appliance.work.effects import NORMAL, NOW, Effects, Hands
from appliance.work.firing import ALONE, BESIDE, CORE, Done, Due, Effect, Firing, Here, Told
from appliance.work.jobs import DONE, Given, Job, Jobs, Order
from appliance.work.schedule_service import Bounds, Timetable
from appliance.work.schedules import CLOCKLESS_MS, Gates, Schedule, Schedules, key
from appliance.work.tasks import Task, Tasks
from appliance.work.tick import Schedules as Ticking
from appliance.work.timer import Timekeeper

LOG = logging.getLogger(__name__)
ERRORS = "scheduler-errors.log"
LOGGERS = ("work.firing", "work.timer", "work.conditions", "service.schedule_parts")
ROLE = "worker"  # of a prompt that names none
RETRIES, RETRY_S = 3, 1.0  # of a job of the owl's own
ENDED = {"complete": True, "failed": False}
SystemJob = Callable[[Due], str]


class Around(Struct, frozen=True):
    """What schedules act on; `known` gives passages about a text, `marked` the marks of such passages."""

    settings: Callable[[], Config]
    outbox: Outbox
    tasks: Tasks
    inbox: Inbox
    jobs: Jobs
    model: Model
    known: Callable[[str], str]
    marked: Callable[[str], Marked]
    courier: Courier
    redactor: log.Redactor


class Hours:
    """Schedules of one core. `jobs` are what the owl does by itself at its time, by name."""

    def __init__(self, ground: Ground, settings: Callable[[], Config]) -> None:
        self._ground = ground
        self._settings = settings
        self.rows = Schedules(ground.store, ground.runs.process)
        self.timetable = Timetable(ground.store, self.rows, ground.runs.marks, self._bounds)
        self.jobs: dict[str, SystemJob] = {}
        self.preferred: Callable[[str], str] = lambda context: ""  # by which channel a context would rather be told
        self._firing: Firing | None = None
        self._effects: Effects | None = None
        self._keeper: Timekeeper | None = None
        self._around: Around | None = None
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="hours")
        self._log: logging.Handler | None = None
        self.cancel = CancelToken()
        self._alarms = Alarms()

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"timetable": self.timetable}

    def tie(self, around: Around, office: Office) -> None:
        """Have schedules do things with these."""
        self._around = around
        self.timetable.changed = self._changed
        office.is_told, office.told_by, office.schedules = self.task_ended, self.told_by, Ticking(self.is_due, self.round)
        office.remind = self.remind
        ground, runs = self._ground, self._ground.runs

        def accept(message: Inbound, correlation: str) -> int:
            return around.inbox.accept(message, correlation).loop

        hands = Hands(
            *(around.outbox, around.tasks, runs, accept, self._start_loop),
            is_open=lambda channel: channel in around.courier.channels(),
        )
        self._effects = effects = Effects(hands)
        judge = Judge(around.model, around.known, around.marked)
        self._firing = Firing(
            ground.store,
            self.rows,
            {
                "reminder": Effect(effects.remind, is_inside=True),
                "tasks": Effect(effects.plan, is_inside=True),
                "message": Effect(effects.say, is_inside=False, needs_core=True),
                "prompt": Effect(self._prompt, is_inside=False, needs_core=True),
                "system": Effect(self._system, is_inside=False),
            },
            self._gates,
            Told(self._tell_paused, self._tell_failed),
            lambda known, now: self._judge(judge, known, now),
        )
        self.timetable.trigger = lambda known: self.firing.trigger(known, now_ms(), self._here())
        around.jobs.ended.append(self.job_ended)
        self._log = log.beside(self._ground.home.logs / ERRORS, LOGGERS, around.redactor)

    @property
    def firing(self) -> Firing:
        """What fires them."""
        assert self._firing is not None, "tied later"
        return self._firing

    # -- when it is time ------------------------------------------------------------------------------

    def start(self) -> None:
        """From now on this process fires what is due."""
        self._keeper = Timekeeper(self.firing, lambda: self._settings().scheduler.poll_ms / 1000)
        self._keeper.start()

    def wake(self) -> None:
        """Something about schedules has changed."""
        if self._keeper is not None:
            self._keeper.wake()

    def is_due(self) -> bool:
        """True when `round` has something to do; writes nothing."""
        next_ms, now = self.rows.next_ms(), now_ms()
        return next_ms is not None and next_ms <= now and bool(self.firing.due(now, self._here()))

    def left(self) -> int:
        """How many are due that only a running core does."""
        now = now_ms()
        return len(self.firing.due(now)) - len(self.firing.due(now, self._here()))

    def round(self) -> int:
        """Fire what is due and end, for processes that come and go; how many. A running core does most of it itself."""
        if self._keeper is None and ((self.rows.next_ms() or 0) < CLOCKLESS_MS or not self.is_due()):
            self._settle_clock()  # what a clock that was never set made due fires nothing
            if not self.is_due():
                return 0
        count = self.firing.round(now_ms(), self._here())
        if count:
            self._changed()
        return count

    def remind(self) -> int:
        """Fire what needs neither a core nor a model, for a command that looks whether its person is to be told something."""
        if not self.is_due():
            return 0
        if (self.rows.next_ms() or 0) < CLOCKLESS_MS:
            self._settle_clock()
        return self.firing.round(now_ms(), BESIDE, later=lambda known: None)

    def close(self) -> None:
        """Fire nothing more."""
        self.cancel.set()
        if self._keeper is not None:
            self._keeper.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        if self._log is not None:
            log.without(self._log, LOGGERS)

    # -- ends -----------------------------------------------------------------------------------------

    def loop_ended(self, loop: Loop, end: LoopEnded) -> None:
        """Within the transaction that ended a loop: it may have answered a schedule's message."""
        if end.status != 202 and (found := self.timetable.lineage.of_loop(loop.id)) is not None:
            self._mark_outcome(found[0], f"run:{loop.run}")
            self.firing.ended(*found, end.status == 200, end.message or end.outcome)

    def task_ended(self, task: Task) -> bool:
        """Within the transaction that ended a task; False when nobody is to be told of it."""
        found = self.timetable.lineage.of_task(task.id)
        if found is None:
            return True
        known = self._mark_outcome(found[0], f"task:{task.id}", *self._ground.runs.marks.runs_of([task.id]))
        is_ok = ENDED.get(task.status)
        if is_ok is not None and (not is_ok or self.timetable.lineage.are_complete(key(*found))):
            self.firing.ended(*found, is_ok, task.text)
        if known is None or task.status == "waiting":
            return True
        return known.mode != "silent" and known.notify.on_success and bool(is_ok)

    def told_by(self, task: Task) -> str:
        """The channel that the schedule of a task names; "" for none."""
        found = self.timetable.lineage.of_task(task.id)
        known = self.rows.find(found[0]) if found is not None else None
        return known.notify.channel if known is not None else ""

    def job_ended(self, job: Job) -> None:
        """Within the transaction that ended a job: its result is told, if it was a schedule's and is to be told."""
        from_schedule = job.correlation.startswith("schedule:")
        found = self.timetable.lineage.parsed(job.correlation) if from_schedule else None
        if found is None or self._effects is None:
            return
        known = self._mark_outcome(found[0], f"run:{job.run}")
        self.firing.ended(*found, job.status == DONE, job.result or job.outcome)
        if known is not None and job.status == DONE and known.mode != "silent" and known.notify.on_success and job.result.strip():
            letter = self._effects.letter(known, job.correlation, f"{known.name}:\n{job.result}", NORMAL)
            self._needed.outbox.put(letter, sources=(f"schedule:{known.ref}", f"run:{job.run}"))

    # -- inside -------------------------------------------------------------------------------------

    @property
    def _needed(self) -> Around:
        assert self._around is not None, "tied later"
        return self._around

    def _start_loop(self, loop: int) -> None:
        """Have a schedule's message answered, and no longer than it may take (A-245)."""
        inbox = self._needed.inbox
        inbox.start(loop)
        self._alarms.after(self._settings().scheduler.timeout_s, lambda: self._end_slow(loop))

    def _end_slow(self, loop: int) -> None:
        try:
            found = self._ground.runs.loop(loop)
            if found.status == RUNNING and not self.cancel.is_set():
                LOG.error("the answer to a schedule's message took too long and is stopped", extra={"run": found.run})
                self._needed.inbox.abort(found.run)
        except OwlError as error:
            LOG.error("an answer that takes too long could not be stopped: %s", error)

    def _changed(self) -> None:
        """Schedules were changed here: whoever sleeps until the next one has to know."""
        if self._keeper is not None:
            self._keeper.wake()
        elif self._has_core():
            broker_lending.tell(self._ground.home, self._ground.environ)

    def _bounds(self) -> Bounds:
        settings = self._settings()
        return Bounds(settings.system.timezone, settings.scheduler.max_per_person, settings.system.admin_users)

    def _gates(self) -> Gates:
        keys = self._settings().scheduler
        rest_ms, stale_ms, judge_ms = (round(s * 1000) for s in (keys.min_interval_s, keys.claim_stale_s, keys.judge_s))
        return Gates(rest_ms, stale_ms, judge_ms, keys.max_failures)

    def _judge(self, judge: Judge, known: Schedule, now: int) -> Verdict:
        verdict = judge.ask(known, now, self.cancel)
        self._ground.runs.marks.take(f"firing:{known.ref}", verdict.marks)  # its reason is recorded as what came of it
        return verdict

    def _mark_outcome(self, schedule: int, *sources: str) -> Schedule | None:
        """Mark what is recorded as the outcome of a schedule's firings with these subjects' marks; the schedule."""
        known = self.rows.find(schedule)
        if known is not None:
            self._ground.runs.marks.inherit(f"firing:{known.ref}", *sources)
        return known

    def _settle_clock(self) -> None:
        """A schedule whose time is far ahead may be one of a clock that was set."""
        next_ms = self.rows.next_ms()
        if next_ms is not None:
            self.rows.mend(now_ms(), self._gates())

    def _here(self) -> Here:
        return CORE if self._keeper is not None else BESIDE if self._has_core() else ALONE

    def _has_core(self) -> bool:
        """True while another process serves this home."""
        if self._keeper is not None:
            return False
        try:
            return paths.find_core(self._ground.home, self._ground.environ).exists()
        except (OwlError, PermissionError):
            return False

    def _prompt(self, due: Due) -> Done:
        """A piece of work under a role, in the conversation or apart from it."""
        known, around, runs = due.schedule, self._needed, self._ground.runs
        assert self._effects is not None
        if known.mode == "session" and (session := self._latest(known)):
            return self._effects.say_in(due, session)
        if self.timetable.lineage.has_job(due.key):
            return Done("begun already", "running")
        session = known.session if self._exists(known.session) else f"local:{known.person or 'owl'}"
        with self._ground.store.write():
            if not self._exists(session):
                runs.open_session(session, known.person, known.context or f"user:{known.person}")
        text = known.action.text or known.name
        given = Given(timeout_s=self._settings().scheduler.timeout_s, marks=runs.marks.carried(f"schedule:{known.ref}"))
        whose = {"session": session, "tool": "schedule", "correlation": due.key}
        job = around.jobs.add(Order(known.role or ROLE, text, given, **whose, priority="background", is_told=True))
        return Done(f"job {job.id}", "running")

    def _latest(self, known: Schedule) -> str:
        """The conversation that was used last on the channel that is wanted, else on any (A-247)."""
        context = known.context or f"user:{known.person}"
        wanted = known.notify.channel or self.preferred(context)
        there = self._needed.courier.at(context, wanted) if wanted else []
        return next((one.session for one in (*there, *self._needed.outbox.addresses(context)) if one.session), "")

    def _exists(self, session: str) -> bool:
        try:
            return bool(session) and bool(self._ground.runs.session(session))
        except NotFound:
            return False

    def _system(self, due: Due) -> Done:
        """One of the owl's own jobs, in the thread for these; in a process that ends soon, here and now."""
        name = str(due.schedule.action.details.get("job", ""))
        job = self.jobs.get(name)
        if job is None:
            return Done(f"there is no job {name!r} here", "skipped")
        if self._keeper is None:
            self._work(due, job)
        else:
            self._workers.submit(self._work, due, job)
        return Done(f"job {name}", "running")

    def _work(self, due: Due, job: SystemJob) -> None:
        known, is_ok = due.schedule, False
        said = "internal error"
        try:
            for attempt in range(RETRIES + 1):
                try:
                    said, is_ok = job(due), True
                    break
                except OwlError as error:
                    said = str(error)
                    LOG.warning("job of schedule %s, attempt %d: %s", known.ref, attempt + 1, error)
                if attempt == RETRIES or self.cancel.wait(RETRY_S):
                    break
        finally:
            self.firing.ended(known.id, due.due_ms, is_ok, said)

    def _tell_failed(self, known: Schedule, due_ms: int, why: str) -> None:
        self._tell(known, f"{key(known.id, due_ms)}:failed", f"Schedule {known.name} ({known.ref}) failed: {why}", NORMAL)

    def _tell_paused(self, known: Schedule, why: str) -> None:
        """Its person and the admin hear that it does not run any more (A-245)."""
        count = known.state.failures
        text = (
            f"Schedule {known.name} ({known.ref}) failed {count} times in a row and is paused: {why}\n"
            f"Resume it with: owlbox schedule enable {known.ref}"
        )
        name = f"{key(known.id, known.state.last_due_ms or 0)}:paused"
        self._tell(known, name, text, NOW)
        for admin in self._settings().system.admin_users[:1]:
            if admin != known.person:
                self._tell(known, f"{name}:{admin}", text, NOW, admin)

    def _tell(self, known: Schedule, name: str, text: str, urgency: str, person: str = "") -> None:
        assert self._effects is not None
        letter = self._effects.letter(known, name, text, urgency)
        if person:
            letter = type(letter)(name, person, text, metadata=letter.metadata)
        if letter.person:
            self._needed.outbox.put(letter, sources=(f"schedule:{known.ref}", f"firing:{known.ref}"))
