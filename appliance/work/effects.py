"""What schedules do when they are due, within the transaction of their firing: remind, put tasks in the queue.

A reminder is a notification to the thread in which it was asked for, without any model. Tasks, their order among each other
included, are known by the firing's key, so that none is there twice. Messages are those of `channels.scheduled_messages`. What a
model wrote here is text for a task, and says nothing about who is told. Jobs of the installation itself, such as maintenance,
are tried four times; a process that stays runs them in a thread of their own, one after another. Owns no table.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from appliance.clock import CancelToken
from appliance.errors import Exhausted, NotFound, OwlError
from appliance.sessions.outbox import Notification, Outbox, context_of
from appliance.sessions.runs import Runs
from appliance.work import rules_in_words
from appliance.work.conditions import WantedTask
from appliance.work.firing import Done, Due, Firing
from appliance.work.schedules import Schedule
from appliance.work.tasks import NewTask, TaskRows

LOG = logging.getLogger(__name__)
RETRIES, RETRY_S = 3, 1.0
SystemJob = Callable[[Due], str]  # the outcome, in words
MAX_WAITING = 1000  # tasks in the queue, to which schedules add no more: without a worker they would pile up for ever
LOCAL = "local"  # the channel
NOW, NORMAL = "now", "normal"  # of notifications: whether quiet hours hold it back


class ScheduleEffects:
    """Brings them about."""

    def __init__(self, outbox: Outbox, tasks: TaskRows, runs: Runs) -> None:
        self.outbox = outbox
        self.runs = runs
        self._tasks = tasks

    # -- within the transaction -----------------------------------------------------------------------

    def remind(self, due: Due) -> Done:
        """A notification with the text; late ones say so."""
        known = due.schedule
        text = f"Reminder: {known.action.text or known.name}"
        if due.late_ms:
            text += f"\n(It was due on {rules_in_words.moment(due.due_ms, known.rule.zone)}.)"
        self.outbox.put(self.notification(known, due.key, text, NOW), sources=(f"schedule:{known.ref}",))
        return Done("reminded")

    def plan(self, due: Due) -> Done:
        """The tasks that the action names, or that the model wants, or one by the schedule's own name."""
        known = due.schedule
        if self._tasks.counts().get("pending", 0) >= MAX_WAITING:
            raise Exhausted(f"{MAX_WAITING} tasks wait already", hint="owlbox worker list: somebody has to do them")
        made: list[int] = []
        for place, wanted in enumerate(_wanted_tasks(due)):
            task = self._tasks.add(
                NewTask(
                    wanted.name,
                    wanted.description,
                    wanted.priority,
                    [made[before] for before in wanted.depends_on if 0 <= before < place],
                    person=known.person,
                    session=known.session,
                    origin=self.thread(known) or None,
                    key=f"{due.key}:{place}",
                )
            )
            marks = self.runs.marks
            marks.inherit(f"task:{task.id}", f"schedule:{known.ref}")
            marks.take(f"task:{task.id}", due.verdict.marks if due.verdict is not None else ())
            made.append(task.id)
        return Done(f"task {', '.join(map(str, made))}", "running")

    # -- notifications --------------------------------------------------------------------------------------

    def notification(self, known: Schedule, key: str, text: str, urgency: str) -> Notification:
        """A text about a schedule for whoever it belongs to, in the thread where it was asked for, else in their last one.

        Who has never talked here is told when they are connected.
        """
        has_talked = self.outbox.addresses(known.context or context_of(known.person))
        return Notification(
            key,
            known.person,
            text,
            known.context,
            known.session,
            known.notify.channel or ("" if has_talked else LOCAL),
            run=self.thread(known) or self.latest_chat(known.session) or None,
            metadata={"schedule": known.ref, "urgency": urgency},
        )

    def thread(self, known: Schedule, session: str = "") -> str:
        """The thread that a schedule was made in, if it is still there, and in the session when one is given."""
        try:
            run = self.runs.get(known.source) if known.source else None
        except NotFound:
            return ""
        return run.id if run is not None and session in ("", run.session) else ""

    def latest_chat(self, session: str) -> str:
        """The newest chat of a session; "" for none."""
        found = self.runs.list_runs(kind="chat", session=session, limit=1) if session else []
        return found[0].id if found else ""


class SystemJobs:
    """Runs what is registered under a name."""

    def __init__(self, firing: Firing) -> None:
        self._firing = firing
        self._jobs: dict[str, SystemJob] = {}
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="system-jobs")
        self._cancel = CancelToken()
        self._is_lasting = False

    def register(self, name: str, job: SystemJob) -> None:
        """Have a job begun under this name."""
        self._jobs[name] = job

    def stay(self) -> None:
        """This process stays: jobs run in the background from now on."""
        self._is_lasting = True

    def begin(self, due: Due) -> Done:
        """The effect of a schedule: begin the job that it names."""
        name = str(due.schedule.action.details.get("job", ""))
        job = self._jobs.get(name)
        if job is None:
            return Done(f"there is no job {name!r} here", "skipped")
        if self._is_lasting:
            self._threads.submit(self._run_job, due, job)
        else:
            self._run_job(due, job)
        return Done(f"job {name}", "running")

    def close(self) -> None:
        """Begin nothing more, and try nothing again."""
        self._cancel.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run_job(self, due: Due, job: SystemJob) -> None:
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
                if attempt == RETRIES or self._cancel.wait(RETRY_S):
                    break
        finally:
            self._firing.ended(known.id, due.due_ms, is_ok, said)


def _wanted_tasks(due: Due) -> Sequence[WantedTask]:
    known = due.schedule
    given = known.action.details.get("tasks") or ()
    if given:
        return [
            WantedTask(
                str(task.get("name") or known.name),
                str(task.get("description") or ""),
                str(task.get("priority") or "medium"),
                tuple(task.get("depends_on") or ()),
            )
            for task in given
        ]
    if due.verdict is not None and due.verdict.tasks:
        return due.verdict.tasks
    return [WantedTask(known.name, known.description)]
