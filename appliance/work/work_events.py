"""What is published about tasks, jobs, schedules and the worker that does them, for the parts built on top of these.

Published with `runtime.events`; each class says when. Nothing here decides anything.
"""

from msgspec import Struct

from appliance.work.schedules import Schedule
from appliance.work.tasks import Task


class TaskRunBegun(Struct, frozen=True):
    """A run for a task was begun, within that transaction; `relevant` are the passages in its first message."""

    run: str
    task: Task
    relevant: str


class WorkStarting(Struct, frozen=True):
    """A worker has found something to do and is about to need a model."""


class WorkDone(Struct, frozen=True):
    """A worker did something: others may go on with what became possible."""


class WorkerIdle(Struct, frozen=True):
    """A worker sleeps for a while: what only work needs may be given back."""


class OthersWrote(Struct, frozen=True):
    """Another process says that it did something: it may have written entries, and left work to this one."""


class RemindersWanted(Struct, frozen=True):
    """A person who asks is told of what became due, without a core that fires and sends it."""


class ScheduleChanged(Struct, frozen=True):
    """Schedules were changed in this process: whoever sleeps until the next one has to know."""


class ScheduleFailed(Struct, frozen=True):
    """A firing failed, within the transaction that records it, and its person is to be told."""

    schedule: Schedule
    due_ms: int
    why: str


class SchedulePaused(Struct, frozen=True):
    """A schedule was paused after too many failures, within that transaction."""

    schedule: Schedule
    why: str
