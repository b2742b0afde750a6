"""How often each tool was called, how the calls ended and how long they took. In memory, since the process began.

Pure but for the clock. A call counts once it is started: what a policy refused or what had wrong arguments was none.
"""

import threading

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.records import Outcome


class Tally(Struct, frozen=True):
    """The calls of one tool. `running` are not in the other numbers yet."""

    total: int = 0
    success: int = 0
    failed: int = 0
    timeout: int = 0
    cancelled: int = 0
    duration_ms: int = 0
    last_ms: int | None = None
    running: int = 0
    is_broken: bool = False  # the last call ended by an error of the tool itself

    @property
    def average_ms(self) -> float:
        """The mean of what the calls took; 0 without any."""
        return round(self.duration_ms / self.total, 1) if self.total else 0.0


class Tallies:
    """The numbers of all tools, safe from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._found: dict[str, Tally] = {}

    def begin(self, name: str) -> None:
        """A call was started."""
        with self._guard:
            tally = self._found.get(name, Tally())
            self._found[name] = replace(tally, running=tally.running + 1, last_ms=now_ms())

    def end(self, name: str, outcome: Outcome, duration_ms: int) -> None:
        """A call that was started has ended so."""
        field = "success"
        if outcome.is_error:
            field = {499: "cancelled", 504: "timeout"}.get(outcome.status, "failed")
        with self._guard:
            tally = self._found.get(name)
            if tally is None:
                return  # forgotten while it ran
            counted = {field: getattr(tally, field) + 1}
            self._found[name] = replace(
                tally,
                total=tally.total + 1,
                duration_ms=tally.duration_ms + duration_ms,
                running=tally.running - 1,
                is_broken=outcome.status == 500,
                **counted,
            )

    def of(self, name: str) -> Tally:
        with self._guard:
            return self._found.get(name, Tally())

    def forget(self, name: str) -> None:
        """A tool is offered no more."""
        with self._guard:
            self._found.pop(name, None)
