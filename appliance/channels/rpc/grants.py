"""Grants at the local socket: what marked runs may do without asking again. No model can change them.

Beside `rpc` because one table would pass 600 lines. Whoever may open the socket may grant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import user_name

Kind = Literal["exec", "web", "search", "send", "call", "secret", "schedule", "skill", "document", "plugin"]


@dataclass(frozen=True)
class Wanted:
    """A grant that somebody asks for."""

    person: str
    kind: str
    target: str
    origins: tuple[str, ...]
    lasts: str
    by: str


@dataclass(frozen=True)
class Acts:
    """What the core does for these methods."""

    add: Callable[[Wanted], dict[str, Any]]
    revoke: Callable[[int, str], dict[str, Any]]
    listing: Callable[[bool], list[dict[str, Any]]]


class Grants:
    """The method table of grants."""

    def __init__(self, acts: Acts) -> None:
        self._acts = acts

    @method("grant.list")
    def listing(
        self, call: Call, all: Annotated[bool, "those that were revoked or have expired, too"] = False
    ) -> list[dict[str, Any]]:
        """What marked threads may do without asking, newest first."""
        return self._acts.listing(all)

    @method("grant.add", access="own")
    def add(
        self,
        call: Call,
        kind: Annotated[Kind, "what is approved"],
        target: Annotated[str, Range(1, 2000), "host, mcp:NAME, person:NAME, command; may be a pattern, * for all"],
        origins: Annotated[list[str], "on account of whose texts: web:HOST, mcp:NAME, mail, document, skill:NAME, any"],
        lasts: Annotated[str, "such as 12h or 7d"] = "7d",
        person: Annotated[str, "in whose threads; empty is yourself"] = "",
    ) -> dict[str, Any]:
        """Let such calls pass without asking, for a while."""
        user = user_name(call.uid)
        return self._acts.add(Wanted(person or user, kind, target, tuple(origins), lasts, user))

    @method("grant.revoke")
    def revoke(self, call: Call, id: Annotated[int, Range(1, 2**62), "its number"]) -> dict[str, Any]:
        """Ask again from now on."""
        return self._acts.revoke(id, user_name(call.uid))
