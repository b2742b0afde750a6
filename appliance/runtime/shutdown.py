"""An orderly end: states, hooks, and components closed in order, all within a total limit.

Each hook gets 5 s and is then left behind; one that raises is logged and the rest goes on (A-274 to
A-276). Knows nothing about what it closes.
"""

import logging
import threading
from collections.abc import Callable
from typing import Literal

from appliance.clock import monotonic_s
from appliance.errors import AlreadyRunning

LOG = logging.getLogger(__name__)
SLOW_S = 1.0  # a step that takes longer is named in the log
State = Literal["running", "initiated", "stopping", "complete"]
Step = tuple[str, Callable[[], None]]


TOTAL_S, HOOK_S = 30.0, 5.0  # longest time of a shutdown, and of one of its hooks


class Shutdown:
    """Runs `before` hooks, closes components, runs `after` hooks; each list in the order of registration."""

    def __init__(self, total_s: float = TOTAL_S, hook_s: float = HOOK_S) -> None:
        self.state: State = "running"
        self.reason = ""
        self._total_s = total_s
        self._hook_s = hook_s
        self._guard = threading.Lock()
        self._before: list[Step] = []
        self._components: list[Step] = []
        self._after: list[Step] = []

    def before(self, name: str, hook: Callable[[], None]) -> None:
        """Run a hook before anything is closed."""
        self._before.append((name, hook))

    def component(self, name: str, close: Callable[[], None]) -> None:
        """Close this after the components registered earlier: dependents first."""
        self._components.append((name, close))

    def after(self, name: str, hook: Callable[[], None]) -> None:
        """Run a hook when everything is closed."""
        self._after.append((name, hook))

    def initiate(self, reason: str) -> None:
        """Ask for the end; AlreadyRunning the second time."""
        with self._guard:
            if self.state != "running":
                raise AlreadyRunning(f"shutdown already initiated: {self.reason}")
            self.state, self.reason = "initiated", reason
        LOG.info("shutdown initiated: %s", reason)

    def run(self) -> list[str]:
        """Do it; returns the names of steps that failed or were cut off. Call after `initiate`, once."""
        end_s = monotonic_s() + self._total_s
        self.state = "stopping"
        bad = [name for name, hook in self._before if not self._run_bounded(name, hook, end_s, self._hook_s)]
        bad += [name for name, close in self._components if not self._run_bounded(name, close, end_s, self._total_s / 2)]
        bad += [name for name, hook in self._after if not self._run_bounded(name, hook, end_s, self._hook_s)]
        self.state = "complete"
        LOG.info("shutdown complete: %s", self.reason, extra={"unfinished": bad})
        return bad

    def _run_bounded(self, name: str, step: Callable[[], None], end_s: float, limit_s: float) -> bool:
        done: list[bool] = []

        def work() -> None:
            try:
                step()
                done.append(True)
            except Exception:
                LOG.exception("shutdown step %s failed", name)
                done.append(False)

        began_s = monotonic_s()
        thread = threading.Thread(target=work, name=f"shutdown-{name}", daemon=True)
        thread.start()
        thread.join(max(0.05, min(limit_s, end_s - monotonic_s())))
        if not done:
            LOG.error("shutdown step %s did not end in time and is left behind", name)
        elif (took_s := monotonic_s() - began_s) > SLOW_S:
            LOG.warning("shutdown step %s took %.1f s", name, took_s)
        return done == [True]
