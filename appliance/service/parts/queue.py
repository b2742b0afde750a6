"""Builds the queue of one core: outbox, tasks, workers, channels and their delivery.

A task that is added wakes idle workers, a worker that did something tells the core, a changed task nudges its worker. Owns no
table, waits for nothing.
"""

import logging
import os
from typing import Annotated, Any

from appliance.agent.loop_events import TaskReady
from appliance.channels.delivery import OutboxSender
from appliance.channels.drop_folder import Drops
from appliance.channels.local import LOCAL, Local
from appliance.channels.quiet_hours import Quiet
from appliance.channels.rpc.live import LiveMethods
from appliance.clock import new_id
from appliance.errors import OwlError, Refused
from appliance.records import Event
from appliance.runtime.methods import Call, method
from appliance.runtime.settings import WorkerSettings
from appliance.runtime.signatures import Range
from appliance.runtime.subscriptions import Notices
from appliance.service import broker_lending
from appliance.service.broker_lending import SharedBroker
from appliance.service.broker_process import BrokerHandle
from appliance.service.parts.base import BaseParts
from appliance.sessions.outbox import DeliveryPatience, Notification, Outbox
from appliance.sessions.people import PersonActivated
from appliance.sessions.preferred_channel import PreferredChannel
from appliance.store.process_registry import ProcessRegistry
from appliance.store.process_registry import Worker as DeadWorker
from appliance.store.wall_clock import Leap
from appliance.work.tasks import TaskAdded, TaskChanged, TaskRows
from appliance.work.tick import DueSchedules, TickParts, Ticks
from appliance.work.work_events import OthersWrote, RemindersWanted, WorkDone, WorkerIdle, WorkStarting
from appliance.work.worker import WorkerLoop, WorkerOptions
from appliance.work.worker_control import WorkerManager
from appliance.work.worker_log import Phases

LOG = logging.getLogger(__name__)
Worker = Annotated[str, Range(1, 64), "its id, or the beginning or end of it"]


class QueueParts:
    """Tasks, workers and notifications of one core."""

    def __init__(self, base: BaseParts, broker: BrokerHandle) -> None:
        store, runs, settings = base.store, base.runs, base.settings
        self._base = base
        self._broker = broker
        self.outbox = Outbox(
            store, runs.process, DeliveryPatience(settings().outbox.retry_s, settings().outbox.retry_max_s), base.events
        )
        self.notices = Notices()
        look_s = lambda: settings().orchestrator.result_poll_ms / 1000  # noqa: E731
        self.live = LiveMethods(runs, self.notices, self.outbox, self._deliver, look_s)
        store.on_commit(self.notices.stir)
        self.tasks = TaskRows(store, base.events, passed=base.passed)
        self.roster = ProcessRegistry(store, base.leases, base.runtime / "workers")
        self.crew = WorkerManager(base.home, base.environ, store, self.roster, self.tasks, self._pace)
        self.channel = Local(self.outbox, runs, self.notices)
        self.quiet = Quiet(store, settings)
        preferred = PreferredChannel(base.home.box).find
        self.courier = OutboxSender(
            self.outbox,
            preferred=preferred,
            is_told=base.people.is_told,
            quiet=self.quiet,
            notices=self.notices,
            passed=base.passed,
        )
        self.courier.register(LOCAL, self.channel)
        self.drops = Drops(base.home.drop, store, runs, self.outbox, self.tasks, passed=base.passed)
        for move in (self.quiet.move, self.outbox.move, self.tasks.move):
            base.events.subscribe(Leap, move)
        base.events.subscribe(TaskAdded, lambda added: self.changed())
        base.events.subscribe(PersonActivated, lambda decided: self.changed())
        base.events.subscribe(TaskChanged, self._nudge)
        base.events.subscribe(TaskReady, lambda ready: self.changed())
        base.events.subscribe(WorkStarting, lambda starting: self._start_broker())
        base.events.subscribe(WorkerIdle, lambda idle: self._rest_broker())
        base.events.subscribe(WorkDone, lambda done: self._tell())

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"tasks": self.tasks, "crew": self.crew}

    def build_shift(self, post: WorkerOptions, phases: Phases, parts: TickParts, schedules: DueSchedules | None) -> WorkerLoop:
        """A worker of these parts; run it from the main thread of its own process."""
        ticks = Ticks(parts, self._pace, phases, schedules=schedules, passed=self._base.passed)
        return WorkerLoop(post, self.roster, self.crew, self._base.runs, ticks, self._pace, phases)

    def counts(self) -> dict[str, Any]:
        """How many `tasks`, `workers` and notifications (`outbox`) there are in each state."""
        return {"tasks": self.tasks.counts(), "workers": self.crew.counts(), "outbox": self.outbox.counts()}

    def tell(self, person: str, text: str) -> None:
        """A line for a person that nobody asked for just now, in their last thread and on their screen."""
        self.outbox.put(Notification(f"told:{new_id()}", person, text, session=f"{LOCAL}:{person}", channel=LOCAL), durable=True)
        self.changed()

    def changed(self) -> None:
        """Something was added to the queue or has ended in it: idle workers poll, notifications are sent."""
        try:
            self.crew.wake()
        except OwlError as error:
            LOG.warning("workers were not told of new work: %s", error)
        self.courier.wake()
        self.notices.stir()

    def take_drops(self) -> None:
        """Do what was left as files, for the one core of a home; before `recover`, so that a late result finds its call open."""
        self.drops.prepare()
        try:
            self.drops.take_files()
        except OwlError as error:
            LOG.error("not everything in drop/ could be taken: %s", error)
        self.changed()  # told of a task before it was committed, a worker may have found nothing

    def close(self) -> None:
        """Begin to send nothing more, and wait for what is being sent."""
        if not self.courier.close():
            LOG.warning("a channel did not end in time")

    # -- what follows from what -----------------------------------------------------------------------

    def _pace(self) -> WorkerSettings:
        return self._base.settings().workers

    def _start_broker(self) -> None:
        """A worker has a broker while there is something to do."""
        if isinstance(self._broker, SharedBroker):
            self._broker.start()

    def _rest_broker(self) -> None:
        if isinstance(self._broker, SharedBroker):
            self._broker.rest()

    def _nudge(self, changed: TaskChanged) -> None:
        """A task is to be stopped, or may begin now."""
        try:
            self.crew.nudge(changed.task)
        except OwlError as error:
            LOG.warning("the worker of task %d was not told: %s", changed.task.id, error)
        self.changed()

    def _tell(self) -> None:
        """As a worker: let the core know what changed, and without one the other workers."""
        if not broker_lending.tell(self._base.home, self._base.environ):
            self.changed()

    # -- methods --------------------------------------------------------------------------------------

    @method("queue.changed", access="all", is_quiet=True)
    def hear_of_change(self) -> dict[str, Any]:
        """Say that another process has stored notifications or tasks: idle workers and the sender look for them."""
        self.changed()
        self._base.events.publish(OthersWrote())
        return {}

    def _deliver(self) -> None:
        """Without a core nobody has fired and sent what became due: a person who asks is told of it now."""
        if not self.courier.is_started:
            self._base.events.publish(RemindersWanted())
            self.courier.flush()

    @method("worker.stop")
    def stop_worker(self, id: Worker, is_forced: Annotated[bool, "kill it"] = False) -> dict[str, Any]:
        """Stop a worker; its task goes back to the queue. `state` is "stopping" when that takes longer than a moment."""
        stopped = self.crew.kill(id) if is_forced else self.crew.stop(id)
        if is_forced:
            self._base.runs.recover(_ignore)
        self.changed()  # what it held is given back
        return stopped

    @method("worker.reap")
    def reap_workers(self) -> list[DeadWorker]:
        """Mark workers that have died or are silent for too long as dead, and give back what they held; those marked."""
        dead = self.crew.reap()
        self._base.runs.recover(_ignore)
        if dead:
            self.changed()
        return dead

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


def _ignore(event: Event) -> None:
    """Nobody listens to what a dead worker left."""
