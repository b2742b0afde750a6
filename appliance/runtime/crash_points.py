"""The moments in the life of a message, a letter and a task after which a process may be killed and all is still well.

Whoever carries the work past one of them says so to a callable it was given; in production nobody listens. A
test ends the process at each, so a step that is named here and never passed, or the other way round, is found.
"""

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """In the order of their lives."""

    # a message
    RECEIVED = "the message has come, nothing of it is recorded"
    ACCEPTED = "the message is recorded, not yet acknowledged"
    LOOP_STARTED = "its answer is begun"
    TURN_BEGUN = "the model is about to be called"
    CALL_RECORDED = "a tool call is recorded, not yet run"
    CALL_DONE = "the tool has run, its result is not recorded"
    RESULT_RECORDED = "the result is recorded"
    ANSWERED = "the answer's text is recorded"
    LOOP_ENDED = "the answer is complete, and a notification put if nobody listened"
    # a letter
    LETTER_TAKEN = "a notification is marked as being sent, the channel has not seen it"
    LETTER_DELIVERED = "the channel has the notification, that is not recorded"
    LETTER_SENT = "the notification is recorded as sent"
    # a task
    TASK_ADDED = "a task is recorded"
    TASK_CLAIMED = "a worker has claimed it, there is no run yet"
    TASK_ATTACHED = "its run has begun, the prompt waits"
    TASK_SETTLED = "its end is recorded with the notification about it, the run has not ended"
    TICK_ENDED = "the worker is done with it"
    # a request that was dropped as a file
    DROP_TAKEN = "what the file asks for is recorded, the file is still there"
    DROP_REMOVED = "the file is gone"


Passed = Callable[[CrashPoint], None]


def nobody(step: CrashPoint) -> None:
    """Nobody wants to know."""
