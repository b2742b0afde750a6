"""The latest calls of the socket's methods and what came of them, for people and tests: who asked, what, with which outcome.

Kept in memory and gone with the process: the lasting record is the line `request` of each in the log, which has the same
values, and a row for each would be a write to the disk for each. Arguments are in neither: they are people's own words.
"""

import threading
from collections import deque
from typing import Annotated, Literal

from msgspec import Struct

from appliance.runtime.methods import method
from appliance.runtime.signatures import Range

MOST = 2000


class CallRecord(Struct, frozen=True):
    """One call: `outcome` "ok" or that of its error, whose words are in `error`."""

    at_ms: int
    sender: str
    method: str
    outcome: str
    ms: int = 0
    correlation: str = ""
    error: str = ""


class CallLog:
    """Remembers the latest calls."""

    def __init__(self, most: int = MOST) -> None:
        self._guard = threading.Lock()
        self._calls: deque[CallRecord] = deque(maxlen=most)

    def note(self, call: CallRecord) -> None:
        """A call is over."""
        with self._guard:
            self._calls.append(call)

    @method("call.list", is_quiet=True)
    def list_calls(
        self,
        limit: Annotated[int, Range(1, MOST), "how many to show"] = 100,
        name: Annotated[str, "only this method, or those that begin with it and a dot"] = "",
        only: Annotated[Literal["", "failed"], "failed: only those that ended with an error"] = "",
    ) -> list[CallRecord]:
        """The latest calls of methods since the core began, newest first: who asked, what came of it, how long it took."""
        with self._guard:
            calls = list(self._calls)
        wanted = (
            one
            for one in reversed(calls)
            if (not name or one.method == name or one.method.startswith(f"{name}.")) and (not only or one.outcome != "ok")
        )
        return [one for one, _ in zip(wanted, range(limit), strict=False)]
