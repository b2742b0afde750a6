"""What becomes of a schedule that is due: claimed once, its effect made sure of, its end recorded.

A reminder and tasks are written in the transaction of the firing. A message, a prompt and a job of the system are begun
right after it, by a key that makes a second beginning harmless; whoever finds such a firing of a dead process begins it
again. A failing schedule is logged and counted, and never keeps the others from their time. Owns no table: rows are those of
`schedules`. Knows nothing about threads and sleeping (`work.timer`), nor about how each effect is brought about.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from appliance.errors import BadInput, Busy, DiskFault, OwlError, StoreError, Unavailable
from appliance.runtime.events import Events
from appliance.runtime.settings import SchedulerSettings
from appliance.store import wall_clock
from appliance.store.database import Store
from appliance.work import schedules as rows
from appliance.work.conditions import ConditionVerdict
from appliance.work.schedules import Act, Schedule, ScheduleRows
from appliance.work.work_events import ScheduleFailed, SchedulePaused

LOG = logging.getLogger(__name__)
RETRY_MS = 300_000  # after a model could not be asked
LATE_MS = 300_000  # what is later says so
Here = Literal["core", "alone", "beside"]  # which process fires: the core, one without a core, one beside it
CORE: Here = "core"
ALONE: Here = "alone"
BESIDE: Here = "beside"
NOT_NOW = (Busy, DiskFault, StoreError)  # nothing has happened, and it is tried again


class Due(Struct, frozen=True):
    """A schedule at a time that it is due, and what a model had to say of it."""

    schedule: Schedule
    due_ms: int
    now_ms: int
    verdict: ConditionVerdict | None = None

    @property
    def key(self) -> str:
        """What follows from it is known by this."""
        return rows.key(self.schedule.id, self.due_ms)

    @property
    def late_ms(self) -> int:
        """How late it is; 0 for less than is worth a word."""
        return late if (late := self.now_ms - self.due_ms) > LATE_MS else 0


class Done(Struct, frozen=True):
    """What an effect came to so far: `running` when its end is told later."""

    outcome: str
    status: Literal["running", "done", "skipped"] = "done"


class FiringEffect(Struct, frozen=True):
    """How an action is brought about: either within the transaction of the firing, or by its key after it.

    What `needs_core` goes on after its firing for longer than a process that comes and goes.
    """

    make: Callable[[Due], Done]
    is_inside: bool
    needs_core: bool = False


class Firing:
    """Fires what is due. Publishes `SchedulePaused` and `ScheduleFailed`."""

    def __init__(
        self,
        store: Store,
        schedules: ScheduleRows,
        effects: Mapping[Act, FiringEffect],
        keys: Callable[[], SchedulerSettings],
        judge: Callable[[Schedule, int], ConditionVerdict],
        events: Events | None = None,
    ) -> None:
        self._store = store
        self.schedules = schedules
        self._effects = dict(effects)
        self.keys = keys
        self._judge = judge
        self._events = events or Events()

    def register(self, action: Act, effect: FiringEffect) -> None:
        """Have an action brought about by this from now on."""
        self._effects[action] = effect

    def follow_clock(self, now: int, up_ms: int) -> int:
        """Move what was counted by the wall clock, when it was set: here, and through the event `Leap`, in one transaction.

        Returns for how many milliseconds nothing is to be fired: a clock that was set ahead may be set back at once.
        """
        if self._store.is_read_only or not wall_clock.has_leapt(self._store, now, up_ms):
            return wall_clock.held_ms(self._store, up_ms)
        with self._store.write(durable=True):
            leap = wall_clock.note(self._store, now, up_ms)
            if leap is not None:
                LOG.warning("the clock was set by %+.1f s", leap.by_ms / 1000)
                count = self.schedules.correct_due(now, leap)
                LOG.info("%d schedules were counted again", count)
                self._events.publish(leap)
        if held_ms := wall_clock.held_ms(self._store, up_ms):
            LOG.warning("nothing is fired for %.0f s: the clock was set ahead, or is not set yet", held_ms / 1000)
        return held_ms

    # -- a round ------------------------------------------------------------------------------------

    def due(self, now: int, here: Here = CORE) -> list[Schedule]:
        """Those that are due and may be done here, or whose state has to be mended; what is left stays due."""
        return [
            known for known in self.schedules.due(now) if self._may_begin(known, here) or known.state.rule != known.rule.fingerprint
        ]

    def round(self, now: int, here: Here = CORE, later: Callable[[Schedule], object] | None = None) -> int:
        """Fire everything that is due and may be done `here`; how many. What has to be judged goes to `later` when given."""
        count, is_mended = 0, False
        for known in self.due(now, here):
            try:
                if (known.state.next_ms or now + 1) > now or known.state.rule != known.rule.fingerprint:
                    if not is_mended:  # mends all of them
                        self.schedules.correct_due(now)
                    is_mended = True
                elif not known.rule.is_judged:
                    count += self.fire(known, now)
                elif later is not None:
                    later(known)
                else:
                    count += self.judge(known, now)
            except BadInput:
                self.schedules.correct_due(now)  # its rule makes no sense: it is left out from now on
            except OwlError as error:
                LOG.error("schedule %s (%s): %s", known.ref, known.name, error)
        return count

    def fire(
        self, known: Schedule, now: int, *, due_ms: int = 0, verdict: ConditionVerdict | None = None, is_asked: bool = False
    ) -> bool:
        """Do what a schedule is for, once for its due time; False when that is done already, or it may not run yet."""
        due = Due(known, due_ms or known.state.next_ms or now, now, verdict)
        effect = self._effects.get(known.action.kind)
        if effect is None:
            return self._give_up(due, f"nobody does {known.action.kind} here", is_asked)
        try:
            if effect.is_inside:
                return self._fire_inside(due, effect, is_asked)
        except NOT_NOW:
            raise
        except OwlError as first:
            LOG.warning("schedule %s (%s) is tried once more: %s", known.ref, known.name, first)
            try:
                return self._fire_inside(due, effect, is_asked)
            except NOT_NOW:
                raise
            except OwlError as error:
                return self._give_up(due, str(error), is_asked)
        if not self.schedules.take_firing(known, due.due_ms, now, self.keys(), is_asked=is_asked):
            return False
        self._begin_effect(due, effect)
        return True

    def judge(self, known: Schedule, now: int, *, is_asked: bool = False) -> bool:
        """Have a model judge whether a schedule is due, and fire it then; False when it is not, or judged elsewhere."""
        if not self.schedules.claim(known, now, self.keys()):
            return False
        due_ms = known.state.next_ms or now
        try:
            verdict = self._judge(known, now)
        except OwlError as error:
            LOG.error("schedule %s (%s) could not be judged: %s", known.ref, known.name, error)
            self.schedules.release(known.id, next_ms=now + RETRY_MS, said=f"could not be judged: {error}", now=now)
            return False
        except BaseException:
            self.schedules.release(known.id)
            raise
        LOG.info("schedule %s is %s: %s", known.ref, "due" if verdict.is_due else "not due", verdict.reasoning)
        if not verdict.is_due:
            self.schedules.pass_over(known, due_ms, now, verdict.reasoning or "not due")
            return False
        try:
            return self.fire(known, now, due_ms=due_ms, verdict=verdict)
        finally:
            self.schedules.release(known.id)  # a firing has done so; whatever kept it from firing has not (B-046)

    def trigger(self, known: Schedule, now: int, here: Here = CORE) -> str:
        """Fire it now because a person says so, whatever its rule says (B-049); the outcome in words."""
        if not self._may_begin(known, here):
            what = f"schedule {known.ref} is a {known.action.kind}, which goes on after this process has ended"
            raise Unavailable(what, hint="only a running core does it: owlbox serve, then owlbox schedule trigger")
        verdict, note = None, ""
        if known.rule.is_judged and known.action.kind == "tasks" and not known.action.details.get("tasks"):
            try:
                verdict = self._judge(known, now)
                note = verdict.reasoning
            except OwlError as error:
                note = f"no model could be asked: {error.message}"
        self.fire(known, now, due_ms=now, verdict=verdict, is_asked=True)
        last = next(iter(self.schedules.firings(known.id, 1)), None)
        said = f"{last.status}: {last.outcome}" if last is not None and last.outcome else "done"
        return f"{said} ({note})" if note else said

    # -- ends ---------------------------------------------------------------------------------------

    def ended(self, schedule: int, due_ms: int, is_ok: bool, outcome: str) -> None:
        """How a firing ended that was running. Within the transaction of what ended, or alone; nothing the second time."""
        with self._store.write(durable=True):
            known = self.schedules.find(schedule)
            paused = self.schedules.end(schedule, due_ms, "done" if is_ok else "failed", outcome, self.keys())
            if known is None or is_ok:
                return
            LOG.error("schedule %s (%s) failed: %s", known.ref, known.name, outcome)
            if paused is not None:
                self._events.publish(SchedulePaused(paused, outcome))
            elif known.notify.on_failure and known.mode != "silent":
                self._events.publish(ScheduleFailed(known, due_ms, outcome))

    def recover(self, now: int) -> int:
        """Begin again what a dead process had claimed and perhaps not begun; how many. Writes nothing when there is none."""
        count = 0
        for known, due_ms in self.schedules.left_running():
            effect = self._effects.get(known.action.kind)
            if effect is not None and not effect.is_inside and self.schedules.adopt(known.id, due_ms):
                count += 1
                self._begin_effect(Due(known, due_ms, now), effect)
        return count

    # -- inside -------------------------------------------------------------------------------------

    def _may_begin(self, known: Schedule, here: Here) -> bool:
        effect = self._effects.get(known.action.kind)
        return here == CORE or (effect is not None and (effect.is_inside or (here == ALONE and not effect.needs_core)))

    def _fire_inside(self, due: Due, effect: FiringEffect, is_asked: bool) -> bool:
        with self._store.write(durable=True):
            if not self.schedules.take_firing(due.schedule, due.due_ms, due.now_ms, self.keys(), is_asked=is_asked):
                return False
            self._log_done(due, effect.make(due))
        return True

    def _begin_effect(self, due: Due, effect: FiringEffect) -> None:
        """An effect after the transaction of its firing: tried twice, then a failure."""
        for attempt in (1, 2):
            try:
                self._log_done(due, effect.make(due))
                return
            except OwlError as error:
                LOG.warning("schedule %s (%s), attempt %d: %s", due.schedule.ref, due.schedule.name, attempt, error)
                failure = str(error)
        self.ended(due.schedule.id, due.due_ms, False, failure)

    def _log_done(self, due: Due, done: Done) -> None:
        if done.status == "skipped":
            LOG.warning("schedule %s (%s) is skipped: %s", due.schedule.ref, due.schedule.name, done.outcome)
        if done.status != "running":
            self.schedules.end(due.schedule.id, due.due_ms, done.status, done.outcome, self.keys())

    def _give_up(self, due: Due, why: str, is_asked: bool) -> bool:
        with self._store.write(durable=True):
            if not self.schedules.take_firing(due.schedule, due.due_ms, due.now_ms, self.keys(), is_asked=is_asked):
                return False
            self.ended(due.schedule.id, due.due_ms, False, why)
        return True
