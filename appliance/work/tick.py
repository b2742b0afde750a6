"""One tick of a worker: stale claims back, schedules, one claim, one loop of the model, the task's end.

Owns no table. A task's end is recorded in the transaction that ends its thread's loop, or before, by the tool that
the model called; what ended so is not ended again. What keeps a worker from its work through no fault of the task
(it is stopped, the model's process goes away) gives the claim back. Knows nothing about processes and signals:
`work.worker` calls this in a thread and interrupts it. Not promised: that a tool which hears no stop ends in time.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from appliance.agent.loop import Loops, Subscription
from appliance.agent.loop_events import LoopPaused, LoopStored
from appliance.agent.stop_conditions import OFFLINE
from appliance.clock import Alarms, CancelToken, correlation_id, monotonic_s, now_ms
from appliance.errors import Conflict, NotFound, OwlError, StoreError, Unavailable
from appliance.language.request_texts import NEEDS_MODEL
from appliance.models.tiers import Tiers
from appliance.prompt.packet import Packets
from appliance.prompt.roles import WORKER, Role, Roles
from appliance.records import Event, LoopEnded, Model, Route
from appliance.runtime import log
from appliance.runtime.crash_points import CrashPoint, Passed, nobody
from appliance.runtime.settings import WorkerSettings
from appliance.sessions.runs import DONE, PROPOSED, WAITING, Loop, Runs
from appliance.store.database import Store
from appliance.store.process_registry import ProcessRegistry
from appliance.work.briefing import Briefing
from appliance.work.tasks import CANCELLED, Claim, TaskRows
from appliance.work.work_events import TaskRunBegun, WorkStarting
from appliance.work.worker_log import Phases

LOG = logging.getLogger(__name__)
STALE_TICKS = 3  # a claim is stale after so many longest ticks (B-023)
MARGIN = 0.9  # of that, after which a worker ends its own tick
READ = 0.5  # of the model's window, for the first message
CHANNEL = "task"
NO_CALL = "(The answer ended without a call of complete_task, fail_task or wait_task, so it was taken as the result.)"
MAX_TURNS = "Max turns exceeded"
UNDECIDED = "a change waits for a decision (owlbox entry waiting)"
STOPPED, LOST = "its worker was stopped", "the claim was lost"
# Through no fault of the task: our own process, the model's, or the database.
OURS = ("busy", "disk_full")
BLAMELESS = ("interrupted", "connection_lost", "provider_timeout", "stream_error", *OURS)
INTERRUPTED, UNBEGUN = "interrupted", "could not be begun"
WAITS = "it waits for the network"
UNKNOWN = LoopEnded(500, "failed", "internal error")
MAX_INTERRUPTIONS = 3  # a task that ends the model's process each time, or fits nowhere, is not begun for ever


class TickParts(Struct, frozen=True):
    """The parts that a tick works with.

    Without a `roster` nobody knows how long a claim is held, without `tiers` every model is able, and without `roles`
    tasks are done as the role that ships.
    """

    store: Store
    tasks: TaskRows
    runs: Runs
    loops: Loops
    model: Model
    packets: Packets
    briefing: Briefing
    roster: ProcessRegistry | None = None
    tiers: Tiers | None = None
    roles: Roles | None = None


class DueSchedules(Protocol):
    """Schedules that make tasks; asked before a task is claimed."""

    def is_due(self) -> bool:
        """Whether `round` has something to do; writes nothing."""
        ...

    def round(self) -> int:
        """Fire what is due; how many."""
        ...


class NoSchedules:
    """For a worker that only works on tasks."""

    def is_due(self) -> bool:
        """None is."""
        return False

    def round(self) -> int:
        """None."""
        return 0


class TickJob(Struct):
    """The task a worker has now; `why` says what made it stop."""

    claim: Claim
    loop: Loop
    cancel: CancelToken = field(default_factory=CancelToken)
    why: str = ""
    end: LoopEnded = UNKNOWN

    def stop(self, why: str) -> None:
        """End the model's work; the first reason stays."""
        self.why = self.why or why
        self.cancel.set()


def unseen(is_held: bool) -> None:
    """Nobody looks."""


class Ticks:
    """Works on tasks, one at a time; `interrupt` and `check_claim` may be called from other threads."""

    def __init__(
        self,
        parts: TickParts,
        pace: Callable[[], WorkerSettings],
        phases: Phases,
        *,
        schedules: DueSchedules | None = None,
        alarms: Alarms | None = None,
        passed: Passed = nobody,
    ) -> None:
        self._parts = parts
        self._pace = pace
        self._phases = phases
        self._schedules = schedules or NoSchedules()
        self._alarms = alarms or Alarms()
        self.events = parts.loops.events
        self._passed = passed
        self._guard = threading.Lock()
        self._job: TickJob | None = None
        self._unsettled: dict[int, TickJob] = {}  # by loop
        self._unreturned: list[Callable[[], object]] = []  # claims that the database did not let us give back
        self._is_stopping = False
        self._number = 0
        self.failed: int | None = None  # the task that failed in the last tick
        self.was_interrupted = False  # the last tick, by something that trying again at once would not mend
        self.events.subscribe(LoopStored, self._loop_stored)

    def tick(self, worker: str, only: int | None = None, hold: Callable[[bool], None] = unseen) -> bool:
        """One round; True when there was a task to work on. Unavailable when no model can be asked: nothing is claimed.

        `hold` is told before a claim is made, and when none is held any more.
        """
        self._number += 1
        self.was_interrupted, self.failed = False, None
        started_s, did_work = monotonic_s(), False
        self._phases.say("tick-start", f"#{self._number}")
        try:
            self._parts.loops.pay_all()
            for job in list(self._unsettled.values()):
                self._make_sure(job)
            self._return_claims()
            self._release_stale()
            if self._has_schedules(only):
                self._phases.say("evaluating-schedules")
                self._schedules.round()
            if only is None:
                self._resume_waiting()
            did_work = self._work_once(worker, only, hold)
        finally:
            spent_s = monotonic_s() - started_s
            self._phases.say("tick-end", f"#{self._number} {spent_s:.1f}s didWork={'true' if did_work else 'false'}")
            if did_work:
                self._passed(CrashPoint.TICK_ENDED)
        return did_work

    def is_due(self, only: int | None = None) -> bool:
        """True when a tick would have something to do; writes nothing when it would not."""
        self._release_stale()
        return self._has_schedules(only) or self._is_due(only)

    def is_busy(self) -> bool:
        """True while a claim is held."""
        return self._job is not None or bool(self._unsettled or self._unreturned)

    def interrupt(self, why: str) -> None:
        """End what is being worked on, and begin nothing more when the worker is `STOPPED`."""
        with self._guard:
            self._is_stopping = self._is_stopping or why == STOPPED
            job = self._job
        if job is not None:
            job.stop(why)

    def check_claim(self) -> None:
        """See whether somebody wants the task stopped, or it is no longer ours."""
        job = self._job
        if job is None:
            return
        try:
            task = self._parts.tasks.find(job.claim.task.id)
        except StoreError:
            return  # seen when it ends
        if task is not None and task.attempts == job.claim.number:
            if task.status in ("complete", "failed", "waiting"):
                return  # a tool has ended it, and the loop is about to
            if task.status == "in_progress" and task.claimed_by == job.claim.worker:
                if task.cancel_ms is not None:
                    job.stop(CANCELLED)
                return
        job.stop(LOST)

    def begin_close(self) -> None:
        """Record every stop from now on as caused by the end of this process."""
        self._parts.loops.begin_close()

    def _loop_stored(self, stored: LoopStored) -> None:
        """In the transaction that ends a loop: one of ours ends its task."""
        job = self._unsettled.get(stored.loop.id)
        if job is not None:
            self._settle_task(job, stored.end)

    # -- inside ---------------------------------------------------------------------------------------

    def _release_stale(self) -> None:
        limit_s = STALE_TICKS * self._pace().max_tick_s

        def is_slow(worker: str) -> bool | None:
            held_s = None if self._parts.roster is None else self._parts.roster.held_s(worker)
            return None if held_s is None else held_s > limit_s

        for task in self._parts.tasks.release_stale(now_ms() - round(limit_s * 1000), is_slow):
            LOG.warning("task %d was claimed for too long and is %s again", task.id, task.status)

    def _resume_waiting(self) -> None:
        """Tasks that took a more capable model are pending again once one can be asked."""
        if not any(NEEDS_MODEL in task.waiting_reason for task in self._parts.tasks.list_tasks(status="waiting", limit=1000)):
            return
        try:
            routes = self._parts.model.plan("")
        except Unavailable:
            return
        if routes and (self._parts.tiers is None or self._parts.tiers.of(routes[0]) == "able"):
            LOG.info("%d tasks go on with %s", self._parts.tasks.resume(NEEDS_MODEL), routes[0].name)

    def _has_schedules(self, only: int | None) -> bool:
        return only is None and self._schedules.is_due()

    def _work_once(self, worker: str, only: int | None, hold: Callable[[bool], None]) -> bool:
        self._phases.say("claiming-task")
        if not self._is_due(only):
            return False
        self.events.publish(WorkStarting())
        routes = self._parts.model.plan("")
        hold(True)
        try:
            claim = None if self._is_stopping else self._parts.tasks.claim(worker, only)
            if claim is None:
                return False
            LOG.info("task %d claimed", claim.task.id, extra={"worker": worker, "attempt": claim.number})
            with log.correlated(correlation_id()):
                self._carry_out(claim, routes[0])
            return True
        finally:
            if not self.is_busy():
                hold(False)

    def _is_due(self, only: int | None) -> bool:
        if only is None:
            return self._parts.tasks.is_work()
        task = self._parts.tasks.find(only)
        if task is None:
            self._phases.note(f"there is no task {only}: nothing claimed")
        elif task.status != "pending":
            self._phases.note(f"task {only} is {task.status}: nothing claimed")
        elif task.open_blockers:
            self._phases.note(f"task {only} waits for {task.open_blockers} others: nothing claimed")
        else:
            return True
        return False

    def _carry_out(self, claim: Claim, route: Route) -> None:
        loop, why, is_its_own = None, "internal error", True
        try:
            loop = self._begin_loop(claim, route)
        except OwlError as error:
            why, is_its_own = error.message, not isinstance(error, Unavailable)
            if not isinstance(error, Conflict | NotFound):
                raise
        finally:
            if loop is None:
                LOG.error("task %d %s: %s", claim.task.id, UNBEGUN, why)
                self._unreturned.append(partial(self._give_up, claim, f"{UNBEGUN}: {why}", is_its_own))
                self._return_claims()
        if loop is None:
            return
        job = TickJob(claim, loop)
        self._unsettled[loop.id] = job
        with self._guard:
            self._job = job
            if self._is_stopping:
                job.stop(STOPPED)
        self._passed(CrashPoint.TASK_ATTACHED)
        try:
            self._answer_job(job)
        finally:
            with self._guard:
                self._job = None

    def _give_up(self, claim: Claim, why: str, is_its_own: bool) -> None:
        """A claim on which nothing was begun: pending again, failed when the task is to blame, time after time."""
        tasks = self._parts.tasks
        if is_its_own and self._count_streak(claim, UNBEGUN) + 1 >= MAX_INTERRUPTIONS:
            if tasks.holds(claim):
                tasks.finish(claim, "failed", f"it {why}")
        else:
            tasks.give_back(claim, why)

    def _return_claims(self) -> None:
        """Give back what is not worked on; with the next tick what a full or busy database keeps us from."""
        for give_up in list(self._unreturned):
            try:
                give_up()
            except OwlError as error:
                LOG.error("a claim is given back later: %s", error)
            else:
                self._unreturned.remove(give_up)

    def _begin_loop(self, claim: Claim, route: Route) -> Loop:
        """The task's thread with its first message, begun: all of it, or nothing of it. One that was put down goes on."""
        parts, task = self._parts, claim.task
        for loop in parts.runs.queue(task.run) if task.run else ():
            if loop.seq == 1 and loop.status == WAITING:  # what it waited for is decided
                with parts.store.write(durable=True):
                    parts.runs.open_session(loop.session, task.person, self._owning_context(task.person, task.session))
                    parts.tasks.attach(claim, loop.run)
                    parts.runs.start_loop(loop.id)
                    return parts.runs.loop(loop.id)
        text = parts.briefing.text(claim, int(route.window * READ * parts.packets.divisor))
        relevant = parts.packets.relevant(f"{task.name} {task.description}"[:2000])
        session, correlation = f"{CHANNEL}:{task.id}", log.correlation()
        with parts.store.write(durable=True):
            parts.runs.open_session(session, task.person, self._owning_context(task.person, task.session))
            run = parts.runs.begin(session, "tick", title=f"Working: {task.name}", task=task.id)
            self.events.publish(TaskRunBegun(run.id, task, relevant))
            given: dict[str, Any] | None = {"relevant": relevant} if relevant else None
            first = Event(run.id, "message", "user", text, input=given, channel=CHANNEL, correlation=correlation)
            prompt = parts.runs.append(first)
            loop_id = parts.runs.enqueue(run.id, prompt.id, correlation)
            parts.tasks.attach(claim, run.id)
            # Begun at once: a prompt that only waits is one that the core would answer as a chat.
            parts.runs.start_loop(loop_id)
            return parts.runs.loop(loop_id)

    def _owning_context(self, person: str, session: str) -> str:
        """Whose task it is: the person's or group's in whose conversation it was asked for."""
        try:
            found = self._parts.runs.session(session) if session else {}
        except NotFound:
            found = {}
        return str(found.get("context") or f"user:{person}")

    def _answer_job(self, job: TickJob) -> None:
        parts, pace = self._parts, self._pace()
        limit_s = STALE_TICKS * pace.max_tick_s * MARGIN
        alarms = [self._alarms.after(limit_s, lambda: job.stop(f"it took longer than {limit_s:.0f} s (workers.max_tick_s)"))]
        if (deadline_ms := job.claim.task.deadline_ms) is not None:
            left_s = max(0.0, (deadline_ms - now_ms()) / 1000)
            alarms.append(self._alarms.after(left_s, lambda: job.stop("its deadline passed")))
        told = parts.loops.feed.subscribe(job.loop.id)
        listener = threading.Thread(target=self._show_events, args=(told,), name="phases", daemon=True)
        listener.start()
        end = UNKNOWN
        try:
            end = parts.loops.answer(job.loop, job.cancel, self._task_role(pace.max_turns))
        finally:
            for alarm in alarms:
                self._alarms.cancel(alarm)
            parts.loops.feed.put(job.loop.id, end)
            parts.loops.feed.leave(job.loop.id, told)
            listener.join(5)
            job.end = end
            self._make_sure(job)
            if end.status == PROPOSED:
                self.events.publish(LoopPaused(job.loop.run))

    def _task_role(self, turns: int) -> Role:
        """As whom a task is done."""
        if self._parts.roles is not None:
            return self._parts.roles.queue(turns)
        return Role(WORKER, max_turns=turns, is_background=True, menu=WORKER)

    def _show_events(self, told: Subscription) -> None:
        try:
            for item in told:
                self._phases.show(item)
        except OSError as error:
            LOG.warning("no subscriber is left: %s", error)

    def _make_sure(self, job: TickJob) -> None:
        """Settle what the end of the loop did not: its thread was deleted, or the database was busy."""
        try:
            if self._parts.tasks.holds(job.claim):
                with self._parts.store.write(durable=True):
                    self._settle_task(job, job.end)
            self._unsettled.pop(job.loop.id, None)
        except OwlError as error:
            LOG.error("the end of task %d is kept for later: %s", job.claim.task.id, error)

    def _settle_task(self, job: TickJob, end: LoopEnded) -> None:
        """Record how the task stands, unless a tool has, or it is not ours any more. Call inside a transaction."""
        parts, claim = self._parts, job.claim
        try:
            if parts.tasks.holds(claim):
                status, text = self._decide_end(job, end)
                if status == "pending":
                    parts.tasks.give_back(claim, text)
                else:
                    parts.tasks.finish(claim, status, text)
            task = parts.tasks.find(claim.task.id)
        except StoreError as error:
            LOG.error("task %d: %s", claim.task.id, error)
            task = None
        is_ours = task is not None and task.attempts == claim.number
        became = f"in_progress -> {task.status}" if task is not None and is_ours else f"left as it is: {LOST}"
        self.failed = claim.task.id if task is not None and is_ours and task.status == "failed" else None
        change = Event(job.loop.run, "status_change", "system", f"task {claim.task.id}: {became}")
        try:
            parts.runs.append(change)
        except NotFound:
            pass  # its thread was deleted
        LOG.info("task %d: %s", claim.task.id, became, extra={"result": end.outcome, "run": job.loop.run})

    def _decide_end(self, job: TickJob, end: LoopEnded) -> tuple[Literal["pending", "complete", "failed", "waiting"], str]:
        """The end of a task whose model called no tool to end it."""
        is_stopped = job.why == STOPPED or end.outcome == "stopped"
        if is_stopped and end.status != DONE:  # what was finished just in time need not be done twice
            return "pending", STOPPED
        if job.why and not is_stopped:
            return "failed", job.why
        if end.status == DONE:
            said = self._parts.runs.answer_text(job.loop.id).strip()
            return "complete", f"{said}\n\n{NO_CALL}" if said else NO_CALL
        if end.status == PROPOSED:
            return "waiting", f"{UNDECIDED}: {end.message or 'see its thread'}. It goes on once that is decided."
        if end.outcome == "max_turns":
            return "failed", MAX_TURNS
        if end.outcome == OFFLINE:  # however long that takes: nobody is to blame
            self.was_interrupted = True
            return "pending", f"{WAITS}: {end.message}"
        if end.outcome in BLAMELESS:
            self.was_interrupted = True
            if end.outcome in OURS or self._count_streak(job.claim, INTERRUPTED) + 1 < MAX_INTERRUPTIONS:
                return "pending", f"{INTERRUPTED}: {end.message or end.outcome}"
            return "failed", f"it was interrupted {MAX_INTERRUPTIONS} times, the last time: {end.message or end.outcome}"
        return "failed", end.message or end.outcome

    def _count_streak(self, claim: Claim, how: str) -> int:
        """How many attempts right before this one ended like that: the model's process gone, or never begun."""
        before = [one.outcome for one in self._parts.tasks.attempts(claim.task.id) if one.number < claim.number]
        return next((i for i, outcome in enumerate(reversed(before)) if not outcome.startswith(how)), len(before))
