"""The way to the core: one watched connection that says whether it is there, and calls on their own ones.

`keep` runs in a thread of its own and is parked while the core is there. When it goes, `keep` tries
again: 0.2 s, doubling to 10 s, each a little shorter by chance, so that many screens do not come back at
the same moment (A-022). Knows nothing about screens; what it learns goes to `tell`, called in its thread.
"""

import logging
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from appliance.clock import use_zone
from appliance.errors import DeadlineExceeded, Lost, OwlError
from appliance.runtime.rpc_client import Client, is_for_another, read_identity

LOG = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
HELLO_S, GREETING_S = 10.0, 5.0  # for the core to greet: the one connection that says it is there, any other
CALL_S = 20.0
NAME = "tui"
AWAY, DOCTOR = "the core is away", "owlbox doctor shows why"
ORDINARY_S = 2.0  # pause before the next attempt, up to which it may just be starting


@dataclass(frozen=True)
class Contact:
    """Whether the core is there; `why` says what is wrong, `wait_s` when it is tried again.

    `last_words` are those of a core that we started and that ended badly.
    """

    is_up: bool
    why: str = ""
    wait_s: float = 0.0
    last_words: str = ""


def pauses(chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Seconds to wait before each new attempt, without end."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s * (0.75 + 0.25 * chance())
        pause_s = min(LONGEST_PAUSE_S, pause_s * 2)


class Link:
    """Reaches the core at a socket path."""

    def __init__(
        self, path: str, tell: Callable[[Contact], None], revive: Callable[[], str], environ: Mapping[str, str] = os.environ
    ) -> None:
        self.path = path
        self._environ = environ
        self._tell = tell
        self._revive = revive
        self.identity = read_identity(environ)
        self._closing = threading.Event()
        self._hurry = threading.Event()
        self._up = threading.Event()
        self._guard = threading.Lock()
        self._open: set[Client] = set()

    @property
    def is_up(self) -> bool:
        """True while the core is connected."""
        return self._up.is_set()

    @property
    def is_closing(self) -> bool:
        """True from the moment the screen is left."""
        return self._closing.is_set()

    def stay_connected(self) -> None:
        """Stay connected until `close`; `revive` is asked before each new attempt and may say what is wrong."""
        waits = pauses()
        while not self._closing.is_set():
            why = "the core closed the connection"
            try:
                self._attend_core()
                waits = pauses()  # it was there
            except Lost as error:
                why = error.hint or error.message
            except OwlError as error:
                why = str(error)
            if self._closing.is_set():
                return
            last_words, wait_s = self._revive(), next(waits)
            why = last_words or (why if why != DOCTOR or wait_s > ORDINARY_S else "")
            LOG.info("core is away: %s", why, extra={"wait_s": round(wait_s, 2)})
            self._tell(Contact(False, why, wait_s, last_words))
            self._hurry.wait(wait_s)
            self._hurry.clear()

    def hurry(self) -> None:
        """Try again now."""
        self._hurry.set()

    def wait(self) -> bool:
        """Block until the core is there; False when the screen is left instead."""
        self._up.wait()
        return not self._closing.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait, but not beyond the end; False when the screen is left."""
        return not self._closing.wait(seconds)

    def call(self, method: str, params: dict[str, Any] | None = None, deadline_s: float = CALL_S) -> Any:
        """The result of one call; its error is raised."""
        with self.client() as client:
            return client.call(method, params, deadline_s=deadline_s)

    @contextmanager
    def client(self, timeout_s: float = GREETING_S) -> Iterator[Client]:
        """A connection that `close` ends too, whoever is waiting on it."""
        try:
            client = Client(self.path, name=NAME, identity=self.identity, timeout_s=timeout_s)
        except DeadlineExceeded:
            raise Lost(f"the core does not answer within {timeout_s:g} s") from None
        except Lost:
            raise Lost(AWAY, hint=DOCTOR) from None
        use_zone(str(client.server.get("zone", "")))
        with self._track_open(client):
            yield client

    @property
    def is_for_another(self) -> bool:
        """True where this screen works for somebody behind ssh: then it touches no file of the machine."""
        return is_for_another(self._environ)

    @property
    def context(self) -> str:
        """Whom this screen works for, `user:NAME` or `group:NAME`; "" for whoever opened it."""
        return self.identity.get("context", "")

    def act_for(self, context: str) -> None:
        """Work for a group from now on, or with "" as at first: whatever is open is opened anew."""
        self.identity = {**read_identity(self._environ), **({"context": context} if context else {})}
        with self._guard:
            left = list(self._open)
        for one in left:
            one.close()
        self.hurry()

    def close(self) -> None:
        """Hang up everywhere and let every waiting thread go."""
        self._closing.set()
        self._hurry.set()
        self._up.set()
        with self._guard:
            left = list(self._open)
        for one in left:
            one.close()

    def _attend_core(self) -> None:
        """Greet the core and return when it goes; raises what keeps us from greeting it."""
        with self.client(HELLO_S) as client:
            self._up.set()
            self._tell(Contact(True))
            try:
                client.wait_for_end()
            finally:
                if not self._closing.is_set():
                    self._up.clear()

    @contextmanager
    def _track_open(self, one: Client) -> Iterator[None]:
        with self._guard:
            self._open.add(one)
        try:
            if self._closing.is_set():
                raise Lost("the screen is being left")
            yield
        finally:
            with self._guard:
                self._open.discard(one)
            one.close()
