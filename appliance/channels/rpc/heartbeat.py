"""What the owl does and says unasked, at the local socket: the heartbeat, and who wants to hear of nothing for a while.

Whoever calls mutes only what is for themselves.
"""

import pwd
from collections.abc import Callable
from typing import Annotated, Any

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range


class Vigil:
    """The method table."""

    def __init__(
        self,
        view: Callable[[str], dict[str, Any]],
        beat: Callable[[bool], list[dict[str, Any]]],
        mute: Callable[[str, int], int],
    ) -> None:
        self._view = view
        self._beat = beat
        self._mute = mute

    @method("heartbeat.view", access="all")
    def view(self, call: Call) -> dict[str, Any]:
        """What is looked after when, what is wrong with HEARTBEAT.md, quiet hours, and the caller's mute and preferred channel."""
        return self._view(_context(call))

    @method("heartbeat.beat", is_long=True)
    def beat(
        self, call: Call, is_now: Annotated[bool, "everything at once, whatever the time; otherwise only what is due"] = False
    ) -> dict[str, Any]:
        """Look after what HEARTBEAT.md says; `beats` has section, outcome and text of each look."""
        return {"beats": self._beat(is_now)}

    @method("notify.mute", access="own")
    def mute(
        self, call: Call, until_ms: Annotated[int, Range(0, 2**53), "hold back what was not asked for until then; 0 ends it"] = 0
    ) -> dict[str, Any]:
        """Hear of nothing for a while but answers and reminders; what is held back comes afterwards, all at once."""
        return {"until_ms": self._mute(_context(call), until_ms)}


def _context(call: Call) -> str:
    try:
        return f"user:{pwd.getpwuid(call.uid).pw_name}"
    except KeyError:
        return f"user:{call.uid}"
