"""The queue's parts of a core, built once and tied together: tasks, workers, letters, and who is told of what.

Here stands what follows from what: a task that ends puts a letter to whoever asked for it, a task that is added wakes
idle workers, a worker that did something tells the core. Owns no table, waits for nothing. Apart from `service.core`, which
builds everything else: one file would pass 600 lines.
"""

import logging
import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from appliance.channels.connections import Connections
from appliance.channels.delivery import Courier
from appliance.channels.drop_folder import Drops
from appliance.channels.local import LOCAL, Local
from appliance.channels.rpc.live import Live
from appliance.errors import NotFound, OwlError, Refused
from appliance.records import Event, LoopEnded
from appliance.runtime.crash_points import Passed, Step
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.settings import Workers
from appliance.runtime.signatures import Range
from appliance.runtime.subscriptions import Notices
from appliance.service import broker_lending
from appliance.service.broker_lending import Lender
from appliance.service.broker_process import Keeper
from appliance.sessions.outbox import Letter, Outbox, Patience
from appliance.sessions.runs import Loop, Runs
from appliance.store.database import Store
from appliance.store.process_registry import Leases, Roster
from appliance.store.process_registry import Worker as Buried
from appliance.work.tasks import Task, Tasks
from appliance.work.tick import Parts, Schedules, Ticks
from appliance.work.worker import Post, Shift, Ties
from appliance.work.worker_control import Crew
from appliance.work.worker_log import Phases

LOG = logging.getLogger(__name__)
Worker = Annotated[str, Range(1, 64), "its id, or the beginning or end of it"]
STATES = {"complete": "done", "failed": "failed", "waiting": "waits for you"}


class Ground(Struct, frozen=True):
    """What the queue stands on."""

    home: Home
    environ: Mapping[str, str]
    runtime: Path
    store: Store
    leases: Leases
    runs: Runs


class Office:
    """Tasks, workers and letters of one core."""

    def __init__(
        self,
        ground: Ground,
        pace: Callable[[], Workers],
        patience: Patience,
        broker: Keeper,
        passed: Passed,
        wrote: Callable[[], None] = lambda: None,
    ) -> None:
        """`wrote` is told when another process may have written entries."""
        self._ground = ground
        self._wrote = wrote
        self._pace = pace
        self._broker = broker
        self._passed = passed
        store, runs = ground.store, ground.runs
        self.outbox = Outbox(store, runs.process, patience)
        self.notices = Notices()
        self.live = Live(runs, self.notices, self.outbox, self._deliver)
        store.written = self.notices.stir
        self.tasks = Tasks(store, settled=self._settled, nudge=self._nudge, passed=self._task_passed)
        self.roster = Roster(store, ground.leases, ground.runtime / "workers")
        self.crew = Crew(ground.home, ground.environ, store, self.roster, self.tasks, pace)
        self.door = Local(self.outbox, runs, self.notices)
        self.courier = Courier(self.outbox, passed=passed)
        self.courier.register(LOCAL, self.door)
        self.connections = Connections(self.courier)
        self.drops = Drops(ground.home.drop, store, runs, self.outbox, self.tasks, passed=passed)
        self.ticks: Ticks | None = None
        self.schedules: Schedules | None = None
        self.is_told: Callable[[Task], bool] = bool  # of the end of a task: whether anybody is to hear of it
        self.remind: Callable[[], object] = lambda: None  # fires what needs neither a core nor a model
        self.told_by: Callable[[Task], str] = lambda task: ""  # and by which channel, where that was said

    def shift(self, post: Post, phases: Phases, parts: Parts, refresh: Callable[[], None], *, is_scheduling: bool = True) -> Shift:
        """A worker of these parts, calling `refresh` before each piece of work; run it from the main thread of its own process."""
        schedules = self.schedules if is_scheduling else None
        broker = self._broker
        start, rest = (broker.start, broker.rest) if isinstance(broker, Lender) else (_nothing, _nothing)

        def prepare() -> None:
            refresh()
            start()

        self.ticks = Ticks(parts, self._pace, phases, schedules=schedules, prepare=prepare, passed=self._passed)

        def leave_off() -> None:
            parts.loops.is_closing = True

        ties = Ties(self.roster, self.crew, self._ground.runs, self._tell, rest, leave_off)
        return Shift(post, ties, self.ticks, self._pace, phases)

    def ended(self, loop: Loop, end: LoopEnded) -> bool:
        """Within the transaction that ended a loop: settles the task it was for; False when it was for none."""
        return self.ticks is not None and self.ticks.ended(loop, end)

    @method("queue.counts", access="all", is_quiet=True)
    def counts(self) -> dict[str, Any]:
        """How many `tasks`, `workers` and `letters` there are in each state."""
        return {"tasks": self.tasks.counts(), "workers": self.crew.counts(), "letters": self.outbox.counts()}

    def changed(self) -> None:
        """Something was added to the queue or has ended in it: idle workers look, letters leave."""
        try:
            self.crew.wake()
        except OwlError as error:
            LOG.warning("workers were not told of new work: %s", error)
        self.outbox.bell()
        self.notices.stir()

    def take_drops(self) -> None:
        """Do what was left as files, for the one core of a home; before `recover`, so that a late result finds its call open."""
        self.drops.prepare()
        try:
            self.drops.take()
        except OwlError as error:
            LOG.error("not everything in drop/ could be taken: %s", error)
        self.changed()  # told of a task before it was committed, a worker may have found nothing

    def close(self) -> None:
        """Begin to send nothing more, and wait for what is being sent."""
        self.connections.close()
        if not self.courier.close():
            LOG.warning("a channel did not end in time")

    # -- what follows from what -----------------------------------------------------------------------

    def _task_passed(self, step: Step) -> None:
        self._passed(step)
        if step is Step.TASK_ADDED:
            self.changed()

    def _nudge(self, task: Task) -> None:
        """A task is to be stopped, or may begin now."""
        try:
            self.crew.nudge(task)
        except OwlError as error:
            LOG.warning("the worker of task %d was not told: %s", task.id, error)
        self.changed()

    def _settled(self, task: Task) -> None:
        """Within the transaction that ended a task: who asked for it is told, once for each attempt and state."""
        if not self.is_told(task):
            return
        context, channel = "", ""
        try:
            context = str(self._ground.runs.session(task.session)["context"])
        except NotFound:
            # Asked for at the command line, outside of every conversation: whoever is connected here is told.
            channel = LOCAL if task.session.partition(":")[0] in ("", LOCAL) else ""
        key = f"task:{task.id}:{task.attempts}:{task.status}"
        channel = self.told_by(task) or channel
        text = f"Task {task.id} ({task.name}) {STATES.get(task.status, task.status)}:\n{task.text}"
        person = task.person or _owner()
        sources = (f"task:{task.id}", *self._ground.runs.marks.runs_of([task.id]))
        self.outbox.put(Letter(key, person, text, context, task.session, channel, run=task.origin), sources=sources)

    def _tell(self) -> None:
        """As a worker: let the core know what changed, and without one the other workers."""
        if not broker_lending.tell(self._ground.home, self._ground.environ):
            self.changed()

    # -- methods --------------------------------------------------------------------------------------

    @method("queue.changed", access="all", is_quiet=True)
    def hear_of_change(self) -> dict[str, Any]:
        """Say that another process has stored notifications or tasks: idle workers and the sender look for them."""
        self.changed()
        self._wrote()
        return {}

    def _deliver(self) -> None:
        """Without a core nobody has fired and sent what became due: a person who asks is told of it now."""
        if not self.courier.is_started:
            self.remind()
            self.courier.flush()

    @method("worker.stop")
    def stop_worker(self, id: Worker) -> dict[str, Any]:
        """Ask a worker to stop; it gives back what it holds. `state` is "stopping" when that takes longer than a moment."""
        stopped = self.crew.stop(id)
        self.changed()  # what it held is given back
        return stopped

    @method("worker.kill")
    def kill_worker(self, id: Worker) -> dict[str, Any]:
        """End a worker at once; what it held is pending again."""
        killed = self.crew.kill(id)
        self._ground.runs.recover(_ignore)
        self.changed()
        return killed

    @method("worker.reap")
    def reap_workers(self) -> list[Buried]:
        """Bury workers that have died or are silent for too long, and give back what they held; those buried."""
        buried = self.crew.reap()
        self._ground.runs.recover(_ignore)
        if buried:
            self.changed()
        return buried

    @method("core.broker", access="all", is_quiet=True)
    def lend_broker(
        self, reason: Annotated[str, 'empty only asks; "needed" starts it; anything else says that it is sick'] = "", *, call: Call
    ) -> dict[str, str]:
        """Where the core's broker listens and what it asks for, for workers of the core's own user. Never kept anywhere."""
        if call.uid != os.getuid():
            raise Refused("the broker is lent to the core's own user alone", hint="ask the core instead")
        if reason:
            self._broker.revive(reason)
        return {"socket": str(self._broker.socket), "token": self._broker.token}


def _owner() -> str:
    """Who runs this process; by number when it has no name, as in a container: the end of a task must not fail for that."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _nothing() -> None:
    """There is nothing to do."""


def _ignore(event: Event) -> None:
    """Nobody listens to what a dead worker left."""
