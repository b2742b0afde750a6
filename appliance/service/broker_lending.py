"""A worker's way to a model: the running core's broker, lent by the core, else a broker of its own.

Asked again before each piece of work and whenever the broker does not answer, because cores come and go. The
token of a core's broker is told over the core's socket to its own user alone and kept in memory (A-186). A broker
of systemd knows us by our user, and is always there. Knows nothing about what the model is asked.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from appliance.errors import DeadlineExceeded, OwlError
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
from appliance.service.broker_process import BrokerHandle

LOG = logging.getLogger(__name__)
CALL_S = 10.0


class SharedBroker:
    """Keeper of a broker that may be somebody else's; `make` makes one of our own."""

    def __init__(self, home: Home, environ: Mapping[str, str], make: Callable[[], BrokerHandle]) -> None:
        self._home = home
        self._environ = environ
        self._make = make
        self._guard = threading.Lock()
        self._own: BrokerHandle | None = None
        self._lent: tuple[Path, str] | None = None
        self.restarts = 0
        self.last_end = ""  # the core's says its own

    @property
    def socket(self) -> Path:
        """Where it listens."""
        if self._lent is not None:
            return self._lent[0]
        return self._mine().socket

    @property
    def token(self) -> str:
        """The token by which the lending core knows us."""
        return self._lent[1] if self._lent is not None else self._mine().token

    @property
    def is_borrowed(self) -> bool:
        """True while it is the core's, which renews it itself."""
        return self._lent is not None

    def is_running(self) -> bool:
        """True when there is one to ask."""
        return self._lent is not None or (self._own is not None and self._own.is_running())

    def start(self) -> None:
        """Borrow the core's, or start our own."""
        self.choose()
        if self._lent is None:
            self._mine().start()

    def choose(self, reason: str = "") -> None:
        """Take the core's broker if there is a core, and end our own then; with a reason the core revives its own."""
        lent = self._ask(reason)
        with self._guard:
            if lent != self._lent:
                LOG.info("the broker is %s", "the core's" if lent else "our own")
            self._lent = lent
            spare, self._own = (self._own, None) if lent is not None else (None, self._own)
        if spare is not None:
            spare.stop()

    def revive(self, reason: str) -> str:
        """Make sure that there is one, whoever has to; the last words of our own when it ends at every start."""
        self.choose(reason)
        return "" if self._lent is not None else self._mine().revive(reason)

    def ended(self) -> str:
        """The reason why our own broker ended, "" for a lent one."""
        return "" if self._lent is not None or self._own is None else self._own.ended()

    def rest(self) -> None:
        """There is nothing to do for a while: our own broker ends, and its memory is free."""
        with self._guard:
            spare, self._own = self._own, None
        if spare is not None:
            spare.stop()

    def stop(self) -> None:
        """End our own; the core's is not ours to end."""
        self.rest()

    def _ask(self, reason: str) -> tuple[Path, str] | None:
        try:
            with core_of(self._home, self._environ) as client:
                told = client.call("core.broker", {"reason": reason}, deadline_s=CALL_S)
        except DeadlineExceeded:
            return self._lent  # it is busy: a second model in memory would not help it
        except (OwlError, PermissionError) as error:
            LOG.debug("no core lends its broker: %s", error)
            return None
        return Path(told["socket"]), str(told["token"])

    def _mine(self) -> BrokerHandle:
        with self._guard:
            if self._own is None:
                self._own = self._make()
            return self._own


def core_of(home: Home, environ: Mapping[str, str]) -> Client:
    """A connection to the running core of a home; Lost when there is none."""
    return Client(str(paths.find_core(home, environ)), name="worker")


def tell(home: Home, environ: Mapping[str, str]) -> bool:
    """Let a running core know that there are notifications to send and tasks to begin; False when there is none."""
    try:
        with core_of(home, environ) as client:
            client.call("queue.changed", deadline_s=CALL_S)
    except (OwlError, PermissionError) as error:
        LOG.debug("no core to tell: %s", error)
        return False
    return True
