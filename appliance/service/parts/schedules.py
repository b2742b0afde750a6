"""Builds what fires schedules in one process: rows, effects, conditions, outcomes, and the timekeeper of a core.

`ScheduleRunner` knows which process fires what: a running core nearly everything, one beside it only what needs neither core
nor model. Owns no table.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from appliance.agent.taint_tracking import Origins
from appliance.clock import now_ms, up_ms
from appliance.errors import OwlError
from appliance.prompt.packet import Packets
from appliance.records import Model
from appliance.runtime import log, paths
from appliance.runtime.events import Events
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.service import broker_lending
from appliance.service.parts.base import BaseParts
from appliance.service.parts.queue import QueueParts
from appliance.sessions.people import PersonActivated
from appliance.store.wall_clock import CLOCKLESS_MS
from appliance.work.conditions import Judge
from appliance.work.effects import ScheduleEffects, SystemJobs
from appliance.work.firing import ALONE, BESIDE, CORE, Firing, FiringEffect, Here
from appliance.work.outcomes import ScheduleOutcomes, TaskNotices
from appliance.work.schedule_service import Timetable
from appliance.work.schedules import Act, Schedule, ScheduleRows
from appliance.work.timer import Timekeeper
from appliance.work.work_events import OthersWrote, RemindersWanted, ScheduleChanged

LOG = logging.getLogger(__name__)
ERRORS = "scheduler-errors.log"
LOGGERS = ("work.firing", "work.timer", "work.conditions", "work.effects", "service.parts.schedules")


class ScheduleRunner:
    """Fires what is due, in a process that stays or in one that comes and goes."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str],
        firing: Firing,
        system_jobs: SystemJobs,
        settings: Callable[[], Config],
        events: Events,
    ) -> None:
        self._home = home
        self._environ = environ
        self._system_jobs = system_jobs
        self._settings = settings
        self._keeper: Timekeeper | None = None
        self.firing = firing
        self.rows = firing.schedules
        events.subscribe(ScheduleChanged, lambda changed: self.note_change())
        events.subscribe(PersonActivated, lambda decided: self.note_change())

    def start(self) -> None:
        """From now on this process fires what is due."""
        self._system_jobs.stay()
        self._keeper = Timekeeper(self.firing, lambda: self._settings().scheduler.poll_ms / 1000)
        self._keeper.start()

    def wake(self) -> None:
        """Something about schedules has changed."""
        if self._keeper is not None:
            self._keeper.wake()

    def note_change(self) -> None:
        """Schedules were changed here: whoever sleeps until the next one has to know."""
        if self._keeper is not None:
            self._keeper.wake()
        elif self._has_core():
            broker_lending.tell(self._home, self._environ)

    def trigger(self, known: Schedule) -> str:
        """Run a schedule at once and return the outcome."""
        return self.firing.trigger(known, now_ms(), self._here())

    def is_due(self) -> bool:
        """True when `round` has something to do; writes nothing."""
        next_ms, now = self.rows.next_ms(), now_ms()
        return next_ms is not None and next_ms <= now and bool(self.firing.due(now, self._here()))

    def left(self) -> int:
        """The number of due schedules that only a running core can do."""
        now = now_ms()
        return len(self.firing.due(now)) - len(self.firing.due(now, self._here()))

    def round(self) -> int:
        """Fire what is due and end, for processes that come and go; how many. A running core does most of it itself."""
        if self.firing.follow_clock(now_ms(), up_ms()):
            return 0
        if self._keeper is None and ((self.rows.next_ms() or 0) < CLOCKLESS_MS or not self.is_due()):
            self._settle_clock()  # what a clock that was never set made due fires nothing
            if not self.is_due():
                return 0
        count = self.firing.round(now_ms(), self._here())
        if count:
            self.note_change()
        return count

    def remind(self) -> int:
        """Fire what needs neither a core nor a model, for a command that looks whether its person is to be told something."""
        if self.firing.follow_clock(now_ms(), up_ms()) or not self.is_due():
            return 0
        if (self.rows.next_ms() or 0) < CLOCKLESS_MS:
            self._settle_clock()
        return self.firing.round(now_ms(), BESIDE, later=lambda known: None)

    def close(self) -> None:
        """Fire nothing more."""
        if self._keeper is not None:
            self._keeper.close()
        self._system_jobs.close()

    def _settle_clock(self) -> None:
        """A schedule whose time is far ahead may be one of a clock that was set."""
        if self.rows.next_ms() is not None:
            self.rows.correct_due(now_ms())

    def _here(self) -> Here:
        return CORE if self._keeper is not None else BESIDE if self._has_core() else ALONE

    def _has_core(self) -> bool:
        """True while another process serves this home."""
        if self._keeper is not None:
            return False
        try:
            return paths.find_core(self._home, self._environ).exists()
        except (OwlError, PermissionError):
            return False


class ScheduleParts:
    """Schedules of one core: their rows, what they do, and who fires them."""

    def __init__(self, base: BaseParts, queue: QueueParts, model: Model, packets: Packets, origins: Origins) -> None:
        settings, runs, outbox = base.settings, base.runs, queue.outbox
        self.rows = ScheduleRows(base.store, runs.process)
        self.effects = ScheduleEffects(outbox, queue.tasks, runs)
        self.judge = Judge(model, packets.relevant, origins.carried, runs.marks)
        effects: dict[Act, FiringEffect] = {
            "reminder": FiringEffect(self.effects.remind, is_inside=True),
            "tasks": FiringEffect(self.effects.plan, is_inside=True),
        }
        keys = lambda: settings().scheduler  # noqa: E731
        self.firing = Firing(base.store, self.rows, effects, keys, self.judge.judge, base.events)
        self.system_jobs = SystemJobs(self.firing)
        self.firing.register("system", FiringEffect(self.system_jobs.begin, is_inside=False))
        self.runner = ScheduleRunner(base.home, base.environ, self.firing, self.system_jobs, settings, base.events)
        system = lambda: settings().system  # noqa: E731
        self.timetable = Timetable(base.store, self.rows, runs.marks, system, self.runner.trigger, base.events)
        lineage = self.timetable.lineage
        self.outcomes = ScheduleOutcomes(self.firing, self.effects, lineage, lambda: settings().system, base.events)
        self.task_notices = TaskNotices(runs, outbox, self.outcomes, base.events)
        base.events.subscribe(OthersWrote, lambda wrote: self.runner.wake())
        base.events.subscribe(RemindersWanted, lambda wanted: self.runner.remind())
        self._log = log.beside(base.home.logs / ERRORS, LOGGERS, base.redactor)

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"timetable": self.timetable}

    def close(self) -> None:
        """Fire nothing more."""
        self.judge.close()
        self.runner.close()
        log.without(self._log, LOGGERS)
