"""A thread that looks, sleeps until it is woken or its time has come, and looks again.

Owns the thread and the sleeping; what it looks at, and for how long there is nothing to do then, is its caller's. A look that
fails is logged in its caller's log and tried again, so that no trouble of one moment ends the thread. Nothing is polled.
"""

import logging
import threading
from collections.abc import Callable

from appliance.errors import OwlError

RETRY_S = 5.0  # after a look that failed


class Rounds:
    """Calls `look`, which says for how long to sleep, None until somebody wakes it; when it fails, `log` says that `what` wait."""

    def __init__(self, name: str, look: Callable[[], float | None], what: str, log: logging.Logger) -> None:
        self._look = look
        self._what = what
        self._log = log
        self._wake = threading.Condition()
        self._is_rung = False
        self.is_closing = False
        self._thread = threading.Thread(target=self._run_rounds, name=name, daemon=True)

    def start(self) -> None:
        """Look at once, and from then on."""
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """There may be something to do; never blocks."""
        with self._wake:
            self._is_rung = True
            self._wake.notify_all()

    def stop(self) -> None:
        """Begin no other look; never blocks."""
        with self._wake:
            self.is_closing = True
            self._wake.notify_all()

    def join(self, limit_s: float) -> None:
        """Wait for the look that is going on."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, limit_s))

    def _run_rounds(self) -> None:
        wait_s: float | None = None
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._is_rung or self.is_closing, wait_s)
                if self.is_closing:
                    return
                self._is_rung = False
            try:
                wait_s = self._look()
            except OwlError as error:
                self._log.error("%s wait, trying again in %g s: %s", self._what, RETRY_S, error)
                wait_s = RETRY_S
            except Exception:  # noqa: BLE001 - the last line of a thread of ours
                self._log.exception("%s wait, trying again in %g s", self._what, RETRY_S)
                wait_s = RETRY_S
