"""Requests to one service: so many a minute and so many at a time; those beyond wait, first come first served.

Counts when a request begins, over the sixty seconds before. Waiting is parked, never polled, and ends with a stop or
the deadline. Knows nothing about what is asked.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded

MINUTE_S = 60.0


class Load(Struct, frozen=True):
    """The load of a service: requests begun in the last minute, open, and waiting."""

    minute: int
    open: int
    waiting: int


class Throttle:
    """Lets requests through; `period_s` is the minute, `now` its clock."""

    def __init__(
        self, name: str, per_minute: int, concurrent: int, *, period_s: float = MINUTE_S, now: Callable[[], float] = monotonic_s
    ) -> None:
        self._name = name
        self._most = per_minute
        self._concurrent = concurrent
        self._period_s = period_s
        self._now = now
        self._changed = threading.Condition()
        self._begun: deque[float] = deque()
        self._queue: deque[object] = deque()
        self._open = 0

    def load(self) -> Load:
        """The present load."""
        with self._changed:
            self._forget_old()
            return Load(len(self._begun), self._open, len(self._queue))

    @contextmanager
    def turn(self, cancel: CancelToken, deadline_s: float) -> Iterator[None]:
        """One request for the length of a with block; Cancelled or DeadlineExceeded when it may not begin in time."""
        end_s, me = self._now() + deadline_s, object()
        forget = cancel.then(self._wake_waiting)
        with self._changed:
            self._queue.append(me)
            try:
                self._wait_turn(me, cancel, end_s, deadline_s)
                self._begun.append(self._now())
                self._open += 1
            finally:
                forget()
                self._queue.remove(me)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def _wait_turn(self, me: object, cancel: CancelToken, end_s: float, deadline_s: float) -> None:
        """Until it is this one's turn."""
        while True:
            if cancel.is_set():
                raise Cancelled(f"stopped while waiting for {self._name}")
            wait_s = self._left_s(me)
            if wait_s == 0:
                return
            left_s = end_s - self._now()
            if left_s <= 0:
                raise DeadlineExceeded(
                    f"{self._name} had no room for this request within {round(deadline_s, 1):g} s",
                    hint=f"providers.{self._name}.requests_per_minute is {self._most}, .concurrent is {self._concurrent}",
                )
            self._changed.wait(left_s if wait_s is None else min(wait_s, left_s))

    def _left_s(self, me: object) -> float | None:
        """How long this one has to wait at least: 0 for not at all, None until another one has ended or begun."""
        self._forget_old()
        if self._queue[0] is not me or self._open >= self._concurrent:
            return None
        if len(self._begun) < self._most:
            return 0.0
        return max(0.001, self._begun[0] + self._period_s - self._now())

    def _forget_old(self) -> None:
        while self._begun and self._begun[0] <= self._now() - self._period_s:
            self._begun.popleft()

    def _wake_waiting(self) -> None:
        with self._changed:
            self._changed.notify_all()
