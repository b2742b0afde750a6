"""The thread of a core that knows what time it is: it sleeps until the next schedule is due, fires, and sleeps again.

Parked while nothing is active; else it looks at least every `poll_s`, because the wall clock may be set: a Pi has no clock
of its own, starts behind and leaps when it hears the time. A leap has the schedules put right before anything is fired, and one
ahead is not believed for half a minute (`Firing.follow_clock`). What a model must judge, and jobs of the system, have a
thread of their own, so that no reminder is late for them.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from appliance.clock import now_ms, up_ms
from appliance.errors import OwlError
from appliance.runtime.periodic import RETRY_S, Rounds
from appliance.work.firing import Firing
from appliance.work.schedules import Schedule

LOG = logging.getLogger(__name__)
SHORTEST_S = 0.01


class Timekeeper:
    """Fires schedules in a thread; `now` and `up` are the wall clock and the one since the machine started, in milliseconds."""

    def __init__(
        self,
        firing: Firing,
        poll_s: Callable[[], float],
        *,
        now: Callable[[], int] = now_ms,
        up: Callable[[], int] = up_ms,
    ) -> None:
        self._firing = firing
        self._poll_s = poll_s
        self._now = now
        self._up = up
        self._rounds = Rounds("timekeeper", self.fire_due, "schedules", LOG)
        self._lock = threading.Lock()
        self._judging: set[int] = set()
        self._judges = ThreadPoolExecutor(1, thread_name_prefix="judge")
        self._is_begun = False

    def start(self) -> None:
        """Begin with what was due meanwhile, and what a dead process left."""
        self._rounds.start()

    def wake(self) -> None:
        """Something about schedules has changed; never blocks."""
        self._rounds.wake()

    def close(self, limit_s: float = 5.0) -> None:
        """Begin nothing more, and wait for what is being begun."""
        self._rounds.stop()
        with self._lock:
            self._judges.shutdown(wait=False, cancel_futures=True)
        self._rounds.join(limit_s)

    def fire_due(self) -> float | None:
        """Fire what is due; for how long there is nothing to do then, None until somebody wakes us."""
        now = self._now()
        held_s = self._follow_clock(now)
        if held_s > 0:
            return held_s
        self._firing.round(now, later=self._start_judging)
        with self._lock:
            busy = frozenset(self._judging)
        next_ms = self._firing.schedules.next_ms(busy)
        if next_ms is None:
            return self._poll_s() if busy else None
        wait_s = (next_ms - self._now()) / 1000
        if wait_s <= 0 and next_ms <= now:
            return RETRY_S  # others hold it, or it may not run yet
        return min(max(wait_s, SHORTEST_S), self._poll_s())

    # -- inside -------------------------------------------------------------------------------------

    def _follow_clock(self, now: int) -> float:
        """At the start, and after the clock was set, put right what does not fit it; for how long nothing is to be fired."""
        held_s = self._firing.follow_clock(now, self._up()) / 1000
        if not self._is_begun:
            self._firing.recover(now)
            self._firing.schedules.correct_due(now)
            self._is_begun = True
        return held_s

    def _start_judging(self, known: Schedule) -> None:
        with self._lock:
            if known.id in self._judging or self._rounds.is_closing:
                return
            self._judging.add(known.id)
            self._judges.submit(self._judge_schedule, known)

    def _judge_schedule(self, known: Schedule) -> None:
        try:
            self._firing.judge(known, self._now())
        except OwlError as error:
            LOG.error("schedule %s (%s): %s", known.ref, known.name, error)
        except Exception:
            LOG.exception("schedule %s (%s)", known.ref, known.name)
        finally:
            with self._lock:
                self._judging.discard(known.id)
            self.wake()
