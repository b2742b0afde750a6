"""Roles and the work that was handed to them, at the local socket.

Beside `rpc` because one table would pass 600 lines. Whoever may open the socket may look and stop; no model can.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Name = Annotated[str, Range(1, 40), "the role's name"]
Id = Annotated[str, Range(8, 8), "the job's number, eight letters and digits"]
Status = Literal["", "waiting", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class Cast:
    """What the core does for these methods."""

    listing: Callable[[], list[dict[str, Any]]]
    view: Callable[[str], dict[str, Any]]
    jobs: Callable[[str, int], list[dict[str, Any]]]
    job: Callable[[str], dict[str, Any]]
    stop: Callable[[str], dict[str, Any]]


class Roles:
    """The method table of roles and jobs."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast

    @method("role.list", access="all")
    def listing(self, call: Call) -> list[dict[str, Any]]:
        """Every role as it holds now: those that ship, then those of `box/roles/`."""
        return self._cast.listing()

    @method("role.view", access="all")
    def view(self, call: Call, name: Name) -> dict[str, Any]:
        """One role with its words, the tools it has and those it is shown, and what is wrong with its file."""
        return self._cast.view(name)

    @method("job.list")
    def jobs(
        self,
        call: Call,
        status: Annotated[Status, "only in this state"] = "",
        limit: Annotated[int, Range(1, 1000), "how many"] = 20,
    ) -> list[dict[str, Any]]:
        """Work that was handed to a role, newest first, with its result."""
        return self._cast.jobs(status, limit)

    @method("job.view")
    def job(self, call: Call, id: Id) -> dict[str, Any]:
        """One piece of such work."""
        return self._cast.job(id)

    @method("job.stop")
    def stop(self, call: Call, id: Id) -> dict[str, Any]:
        """End the work on it; what it has completed stays."""
        return self._cast.stop(id)
