"""What is published about loops and the runs they belong to, for the rooms above: channels, work, service.

Published with `runtime.events`; each class says when. Nothing here decides anything.
"""

from msgspec import Struct

from appliance.records import CallPreparing, Delta, Event, Inbound, LoopEnded, Terms, Thinking
from appliance.sessions.runs import Loop

Shown = Delta | Thinking | CallPreparing | Event | LoopEnded  # what a subscriber of a loop receives


class MessageComing(Struct, frozen=True):
    """A message is about to be stored; what its answer will need may be asked for meanwhile."""


class MessageAccepted(Struct, frozen=True):
    """A message was stored, within that transaction; `relevant` are the passages that are shown to the model with it."""

    run: str
    inbound: Inbound
    relevant: str


class TurnStarting(Struct, frozen=True):
    """The model is about to be asked in a run, on these terms."""

    run: str
    terms: Terms


class LoopStored(Struct, frozen=True):
    """The end of a loop is being stored, within that transaction: status 202 when it waits for a decision."""

    loop: Loop
    end: LoopEnded


class LoopPaused(Struct, frozen=True):
    """A loop of a run was put down and waits: what it waits for may have been decided before."""

    run: str


class LoopReady(Struct, frozen=True):
    """A loop that waited for a decision is to be continued."""

    loop: int


class LoopProgress(Struct, frozen=True):
    """A loop that waits has something new for its listeners."""

    loop: int
    item: Shown


class RunFreed(Struct, frozen=True):
    """A waiting loop has ended: queued prompts of its run may begin."""

    run: str


class TaskDecided(Struct):
    """What the task of a run waited for is decided, within that transaction; with a `failure` the task ends.

    The owner of tasks sets `is_found` when a task waited there.
    """

    run: str
    failure: str
    is_found: bool = False


class TaskReady(Struct, frozen=True):
    """A task may go on: a worker has something to do."""


class BackgroundWorkEnded(Struct, frozen=True):
    """A command or call that a person approved has ended; the run's loop may have waited for it."""

    run: str


class CommandStopped(Struct, frozen=True):
    """A command in the background was stopped, whose output goes to a channel; its person is told.

    `command` is "" for one that a client runs.
    """

    run: str
    command: str
    path: str = ""
    reason: str = ""


class CallsAbandoned(Struct, frozen=True):
    """A run was ended with calls recorded that will not be run."""

    run: str
