"""A run's packets at the local socket: what fills them, what was sent, and a summary on request.

Beside `rpc` because one table would pass 600 lines. Whoever may open the socket may look; no model can.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Run = Annotated[str, "its name or id, or the beginning or end of the id"]


@dataclass(frozen=True)
class Looks:
    """What the core does for these methods."""

    size: Callable[[str], dict[str, Any]]
    copy: Callable[[str, int], dict[str, Any]]
    compact: Callable[[str], dict[str, Any]]


class Glance:
    """The method table of packets."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    @method("run.packet", access="own")
    def packet(self, call: Call, run: Run) -> dict[str, Any]:
        """What fills the packet that would be sent now; nothing is lowered for it.

        `tokens` and `table` count tokens, `ceiling` is how many it may have; `part_chars` counts the characters of each named part.
        """
        return self._looks.size(run)

    @method("run.copy", access="own")
    def copy(
        self, call: Call, run: Run, turn: Annotated[int, Range(0, 10_000_000), "which turn; 0 is the newest"] = 0
    ) -> dict[str, Any]:
        """What a turn's model was sent and said, word for word, where `runs.copies` keeps that."""
        return self._looks.copy(run, turn)

    @method("run.compact", access="own", is_long=True)
    def compact(self, call: Call, run: Run) -> dict[str, Any]:
        """Summarize the older part of a conversation for its model; the originals stay."""
        return self._looks.compact(run)
