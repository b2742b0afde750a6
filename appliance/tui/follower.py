"""What comes by itself: the thread on the screen as others write into it, and what its person is told elsewhere.

One connection in a thread of its own, parked while nothing happens. `show` says which thread is looked at now; what
arrives goes to `tell` as one of the classes below. A core that is away is found again, and what was missed is read then.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.errors import Busy, Cancelled, DeadlineExceeded, Lost, NotFound, OwlError
from appliance.runtime.rpc_client import Client
from appliance.tui.connection import Link

LOG = logging.getLogger(__name__)
FOLLOW_S = 86_400.0
AGAIN_S = 1.0
LATER_S = 15.0  # after the core was too busy to tell, or too old to know how


@dataclass(frozen=True)
class Came:
    """An event that was stored in the thread on the screen."""

    thread: str
    event: dict[str, Any]


@dataclass(frozen=True)
class Stands:
    """How the thread on the screen stands now: id, status, outcome, last_seq, title."""

    state: dict[str, Any]


@dataclass(frozen=True)
class Told:
    """Something for this person: text, and where it stands (run, seq), if anywhere."""

    notice: dict[str, Any]


Sight = Came | Stands | Told


class Follower:
    """Follows one thread at a time."""

    def __init__(self, link: Link, tell: Callable[[Sight], None]) -> None:
        self._link = link
        self._tell = tell
        self._guard = threading.Lock()
        self._thread, self._after, self._number = "", 0, 0
        self._client: Client | None = None

    @property
    def thread(self) -> str:
        """The thread that is looked at."""
        return self._thread

    def show(self, thread: str, after: int) -> None:
        """Look at this thread from now on, beginning behind an event; "" for none."""
        with self._guard:
            self._thread, self._after = thread, after
            self._number += 1
            client, self._client = self._client, None
        if client is not None:
            client.close()  # `run` begins anew

    def run(self) -> None:
        """Follow until the screen is left."""
        while self._link.wait():
            number = self._number
            try:
                self._follow_core()
            except (Lost, DeadlineExceeded, Cancelled) as error:  # the last: the core ends, and may be quick to say so
                if number == self._number and not self._pause_after(AGAIN_S, error):
                    return
            except NotFound as error:
                if number == self._number and "thread" in error.message and self._thread:
                    self.show("", 0)
                elif number == self._number and not self._pause_after(LATER_S, error):
                    return
            except Busy as error:
                if not self._pause_after(LATER_S, error):
                    return
            except OwlError as error:
                if not self._pause_after(LATER_S, error):
                    return

    def _pause_after(self, seconds: float, error: OwlError) -> bool:
        LOG.info("what comes by itself is not told: %s", error)
        return self._link.pause(seconds)

    def _follow_core(self) -> None:
        with self._link.client() as client:
            with self._guard:
                self._client = client
                thread, after, number = self._thread, self._after, self._number
            for name, value in client.stream("thread.follow", {"id": thread, "after": after}, deadline_s=FOLLOW_S):
                self._handle_notice(name, value, thread, number)
        self.show("", 0) if thread and number == self._number else None

    def _handle_notice(self, name: str, value: dict[str, Any], thread: str, number: int) -> None:
        if name == "notice":
            self._tell(Told(value))
            return
        with self._guard:
            if number != self._number:
                return
            if name == "event":
                self._after = int(value["seq"])
        if name == "event":
            self._tell(Came(thread, value))
        elif name == "thread":
            self._tell(Stands(value))
