"""How many sandboxes run at once, over all processes of one home: first come, first served, and cancellable.

Within a process a queue; between processes one lock file a slot, which the kernel frees when its holder ends,
however it ends. Knows nothing about what runs in a slot.
"""

import fcntl
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.clock import monotonic_s
from appliance.errors import Busy, Cancelled
from appliance.records import Cancel

LOOK_S = 0.05  # how soon a cancel, or a slot freed by another process, is noticed


class Slots:
    """A number of slots, kept in a folder when other processes share them."""

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self.limit = limit
        self._folder = folder
        self._change = threading.Condition()
        self._queue: deque[object] = deque()
        self._running = 0

    @property
    def running(self) -> int:
        """The number of slots that this process holds."""
        return self._running

    @property
    def waiting(self) -> int:
        """The number of calls of this process that wait for a slot."""
        return len(self._queue)

    @contextmanager
    def take(self, cancel: Cancel, wait_s: float) -> Iterator[None]:
        """Hold one slot; Cancelled when `cancel` is set before, Busy when none was free for `wait_s`."""
        ticket, end_s = object(), monotonic_s() + wait_s
        with self._change:
            self._queue.append(ticket)
        try:
            lock = self._wait_slot(ticket, cancel, end_s)
        finally:
            with self._change:
                self._queue.remove(ticket)
                self._change.notify_all()
        try:
            yield
        finally:
            if lock >= 0:
                os.close(lock)
            with self._change:
                self._running -= 1
                self._change.notify_all()

    def _wait_slot(self, ticket: object, cancel: Cancel, end_s: float) -> int:
        """The descriptor that holds a slot of the folder, -1 without a folder; counts it as running."""
        with self._change:
            while True:
                if cancel.is_set():
                    raise Cancelled("cancelled while it waited for a sandbox")
                if self._queue[0] is ticket and self._running < self.limit:
                    lock = self._lock_slot()
                    if lock is not None:
                        self._running += 1
                        return lock
                if monotonic_s() >= end_s:
                    raise Busy(f"all {self.limit} sandboxes are in use", hint="try again later, or raise sandbox.max_concurrent")
                self._change.wait(LOOK_S)

    def _lock_slot(self) -> int | None:
        if self._folder is None:
            return -1
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(self.limit):
            handle = os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
            else:
                return handle
        return None
