"""What the end of a loop, task or job means for the schedule that began it, and who is told of tasks and failed schedules.

Subscribes to their ends and works within the transactions that store these. Its person hears of a failure, and with the first
admin of a pause (A-245). Owns no table.
"""

import os
from collections.abc import Callable

from appliance.agent.loop_events import LoopStored
from appliance.errors import NotFound
from appliance.language.request_texts import FOR_PERSON
from appliance.runtime.events import Events
from appliance.runtime.settings import System
from appliance.runtime.users import user_name
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.runs import Runs
from appliance.work.effects import LOCAL, NORMAL, NOW, ScheduleEffects
from appliance.work.firing import Firing
from appliance.work.jobs import DONE, JobEnded
from appliance.work.lineage import Lineage
from appliance.work.schedules import Schedule, key
from appliance.work.tasks import Task, TaskSettled
from appliance.work.work_events import ScheduleFailed, SchedulePaused

STATES = {"complete": "done", "failed": "failed", "waiting": "waits for you"}
ENDED = {"complete": True, "failed": False}


class ScheduleOutcomes:
    """Ends firings, and puts notifications about schedules."""

    def __init__(
        self, firing: Firing, effects: ScheduleEffects, lineage: Lineage, settings: Callable[[], System], events: Events
    ) -> None:
        self._firing = firing
        self._effects = effects
        self._lineage = lineage
        self._settings = settings
        self._rows = firing.schedules
        self._marks = effects.runs.marks
        events.subscribe(LoopStored, self._loop_stored)
        events.subscribe(JobEnded, self._job_ended)
        events.subscribe(ScheduleFailed, self._notify_failed)
        events.subscribe(SchedulePaused, self._notify_paused)

    def task_ended(self, task: Task) -> bool:
        """Within the transaction that ended a task; False when nobody is to be told of it."""
        found = self._lineage.of_task(task.id)
        if found is None:
            return True
        known = self._mark_outcome(found[0], f"task:{task.id}", *self._marks.runs_of([task.id]))
        is_ok = ENDED.get(task.status)
        if is_ok is not None and (not is_ok or self._lineage.are_complete(key(*found))):
            self._firing.ended(*found, is_ok, task.text)
        if known is None or task.status == "waiting":
            return True
        return known.mode != "silent" and known.notify.on_success and bool(is_ok)

    def channel_of(self, task: Task) -> str:
        """The channel that the schedule of a task names; "" for none."""
        found = self._lineage.of_task(task.id)
        known = self._rows.find(found[0]) if found is not None else None
        return known.notify.channel if known is not None else ""

    def _loop_stored(self, stored: LoopStored) -> None:
        """A loop may have answered a schedule's message."""
        loop, end = stored.loop, stored.end
        if end.status != 202 and (found := self._lineage.of_loop(loop.id)) is not None:
            self._mark_outcome(found[0], f"run:{loop.run}")
            self._firing.ended(*found, end.status == 200, end.message or end.outcome)

    def _job_ended(self, ended: JobEnded) -> None:
        """A job's result is told, if it was a schedule's and is to be told."""
        job = ended.job
        from_schedule = job.correlation.startswith("schedule:")
        found = self._lineage.parsed(job.correlation) if from_schedule else None
        if found is None:
            return
        known = self._mark_outcome(found[0], f"run:{job.run}")
        self._firing.ended(*found, job.status == DONE, job.result or job.outcome)
        if known is not None and job.status == DONE and known.mode != "silent" and known.notify.on_success and job.result.strip():
            notification = self._effects.notification(known, job.correlation, f"{known.name}:\n{job.result}", NORMAL)
            self._effects.outbox.put(notification, sources=(f"schedule:{known.ref}", f"run:{job.run}"))

    def _mark_outcome(self, schedule: int, *sources: str) -> Schedule | None:
        """Mark what is recorded as the outcome of a schedule's firings with these subjects' marks; the schedule."""
        known = self._rows.find(schedule)
        if known is not None:
            self._marks.inherit(f"firing:{known.ref}", *sources)
        return known

    def _notify_failed(self, failed: ScheduleFailed) -> None:
        known = failed.schedule
        self._send_notice(
            known, f"{key(known.id, failed.due_ms)}:failed", f"Schedule {known.name} ({known.ref}) failed: {failed.why}", NORMAL
        )

    def _notify_paused(self, paused: SchedulePaused) -> None:
        """Its person and the admin hear that it does not run any more."""
        known = paused.schedule
        count = known.state.failures
        text = (
            f"Schedule {known.name} ({known.ref}) failed {count} times in a row and is paused: {paused.why}\n"
            f"Resume it with: owlbox schedule enable {known.ref}"
        )
        name = f"{key(known.id, known.state.last_due_ms or 0)}:paused"
        self._send_notice(known, name, text, NOW)
        for admin in self._settings().admin_users[:1]:
            if admin != known.person:
                self._send_notice(known, f"{name}:{admin}", text, NOW, admin)

    def _send_notice(self, known: Schedule, name: str, text: str, urgency: str, person: str = "") -> None:
        notification = self._effects.notification(known, name, text, urgency)
        if person:
            notification = type(notification)(name, person, text, metadata=notification.metadata)
        if notification.person:
            self._effects.outbox.put(notification, sources=(f"schedule:{known.ref}", f"firing:{known.ref}"))


class TaskNotices:
    """Puts them into the outbox."""

    def __init__(self, runs: Runs, outbox: Outbox, outcomes: ScheduleOutcomes, events: Events) -> None:
        self._runs = runs
        self._outbox = outbox
        self._outcomes = outcomes
        events.subscribe(TaskSettled, self._notify_settled)

    def _notify_settled(self, settled: TaskSettled) -> None:
        task = settled.task
        is_told = self._outcomes.task_ended(task)
        is_own = (task.status == "waiting" and FOR_PERSON in task.text) or (task.status == "complete" and not task.text)
        if not is_told or is_own:  # what a person does, and what they did themselves
            return
        context, channel = "", ""
        try:
            context = str(self._runs.session(task.session)["context"])
        except NotFound:
            # Asked for at the command line, outside of every conversation: whoever is connected here is told.
            channel = LOCAL if task.session.partition(":")[0] in ("", LOCAL) else ""
        key = f"task:{task.id}:{task.attempts}:{task.status}"
        channel = self._outcomes.channel_of(task) or channel
        text = f"Task {task.id} ({task.name}) {STATES.get(task.status, task.status)}:\n{task.text}"
        person = task.person or user_name(os.getuid())
        sources = (f"task:{task.id}", *self._runs.marks.runs_of([task.id]))
        self._outbox.put(Notification(key, person, text, context, task.session, channel, run=task.origin), sources=sources)
