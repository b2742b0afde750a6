"""The server's way to the core: logins asked for with rights of its own, everything else with the token of whoever is logged in.

This process has no rights beyond those of its user. A connection that says hello with a session's token works for the person
whose session it is; the core says who that is. Knows nothing about HTTP.
"""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from appliance.errors import Lost, Refused, Unavailable
from appliance.runtime.jsonrpc import Wire, connect
from appliance.runtime.rpc_client import Client

CALL_S = 20.0
STREAM_S = 3600.0
NAME = "web"
WHO = "login.check"


class CoreLink:
    """Connections to the core, wherever it listens now."""

    def __init__(self, find: Callable[[], Path]) -> None:
        self._find = find

    def call(self, method: str, params: dict[str, Any], session: str = "") -> Any:
        """The result of one call, for whoever is logged in or for this process itself; Unavailable while no core runs."""
        try:
            with Client(str(self._find()), name=NAME, token=session, timeout_s=CALL_S) as client:
                return client.call(method, params)
        except Lost:
            raise Unavailable("the core is not running", hint="it may be restarting; try again") from None

    def stream(self, method: str, params: dict[str, Any], session: str) -> Generator[tuple[str, dict[str, Any]], None, Any]:
        """Notifications of one call as they come, then its result; closing it hangs up, which cancels the call."""
        try:
            with Client(str(self._find()), name=NAME, token=session, timeout_s=CALL_S) as client:
                return (yield from client.stream(method, params, deadline_s=STREAM_S))
        except Lost:
            raise Unavailable("the core is not running", hint="it may be restarting; try again") from None

    def check_login(self, session: str) -> str:
        """The person whose session a token belongs to; Refused for an unknown token."""
        return self.show_login(session)["person"]

    def show_login(self, session: str) -> dict[str, str]:
        """The person, and the zone in which the core shows moments."""
        if not session:
            raise _not_logged_in()
        try:
            with Client(str(self._find()), name=NAME, timeout_s=CALL_S) as client:
                person = client.call(WHO, {"token": session})["person"]
                return {"person": str(person), "zone": str(client.server.get("zone", ""))}
        except Refused:
            raise _not_logged_in() from None
        except Lost:
            raise Unavailable("the core is not running", hint="it may be restarting; try again") from None

    def open(self) -> Wire:
        """A connection on which nothing was said yet; Unavailable while no core runs."""
        try:
            return connect(str(self._find()))
        except Lost:
            raise Unavailable("the core is not running", hint="it may be restarting; try again") from None


def _not_logged_in() -> Refused:
    error = Refused("nobody is logged in", hint="log in", outcome="not_logged_in")
    error.status = 401
    return error
