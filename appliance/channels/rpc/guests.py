"""Other agents at the local socket: what they may call, asked by `owlbox mcp-serve` on behalf of who started it.

Whoever may open the socket may do more than any guest, so nothing here guards against the caller itself: it says how
little the guest behind it may do. Beside `rpc` because one table would pass 600 lines.
"""

import os
import pwd
from collections.abc import Callable
from typing import Annotated, Any

from appliance.clock import CancelToken
from appliance.records import Outcome, to_plain
from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Adds = Annotated[bool, "whether it may add tasks"]
Ask = Callable[[str, str, bool, str, dict[str, Any], CancelToken], Outcome]  # person, agent, may_add, tool, arguments, cancel


class GuestDoor:
    """The method table of guests."""

    def __init__(self, listing: Callable[[bool], list[dict[str, Any]]], ask: Ask) -> None:
        self._listing = listing
        self._ask = ask

    @method("guest.tools", access="own", is_quiet=True)
    def tools(self, call: Call, may_add: Adds = False) -> list[dict[str, Any]]:
        """The tools that another agent may call: `name`, `description`, `schema`, `is_read_only`."""
        return self._listing(may_add)

    @method("guest.call", access="own")
    def call(
        self,
        call: Call,
        name: Annotated[str, Range(1, 200), "the tool"],
        arguments: dict[str, Any],
        agent: Annotated[str, Range(0, 200), "what it calls itself"] = "",
        may_add: Adds = False,
        person: Annotated[str, Range(0, 64), "for whom; only the core's own user may name another person"] = "",
    ) -> dict[str, Any]:
        """Run one tool for another agent; noted in the audit with what it asked for."""
        who = person if person and call.uid in (os.getuid(), 0) else _name(call.uid)
        plain: dict[str, Any] = to_plain(self._ask(who, agent, may_add, name, arguments, call.cancel))
        return plain


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
