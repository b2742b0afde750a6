"""Logging in and out: a one-time invite or a password becomes a session, whose token is a cookie that scripts cannot read.

The core keeps sessions, passwords and invites, and limits attempts; here are their forms of HTTP. An invite stands behind the
`#` of its address, so that no log and no Referer holds it; the page sends it in a body.
"""

from typing import Any

from appliance.clock import now_ms
from appliance.errors import BadInput, Refused
from appliance.http.core_link import CoreLink
from appliance.http.message import Request, Response
from appliance.http.server import route
from appliance.http.site import Site

MAX_CREDENTIAL = 512
ANSWER_BYTES = 4096


class LoginRoutes:
    """Routes of logins."""

    def __init__(self, site: Site, core: CoreLink) -> None:
        self._site = site
        self._core = core

    @route("POST", "/login", access="open", max_body=ANSWER_BYTES)
    def log_in(self, request: Request) -> Response:
        """Begin a session with {"invite"} or {"person", "password"}; the answer sets the cookie."""
        if not request.header("origin"):
            raise Refused("a login must say where it comes from", hint="send the header Origin")
        given = request.json()
        about = {"agent": request.header("user-agent")[:200], "address": request.address}
        if "invite" in given:
            made = self._core.call("login.redeem", {"invite": _text(given, "invite"), **about})
        else:
            known = {"name": _text(given, "person"), "password": _text(given, "password")}
            made = self._core.call("login.enter", {**known, **about})
        if old := request.cookies().get(self._site.cookie, ""):
            self._core.call("login.leave", {"token": old})
        left_s = max(0, (int(made["expires_ms"]) - now_ms()) // 1000)
        return Response.of_json({"person": made["person"]}, headers=[("Set-Cookie", self._cookie(str(made["token"]), left_s))])

    @route("POST", "/logout")
    def log_out(self, request: Request) -> Response:
        """End the session whose cookie came."""
        self._core.call("login.leave", {"token": request.session})
        return Response.of_json({}, headers=[("Set-Cookie", self._cookie("", 0)), ("Clear-Site-Data", '"storage"')])

    @route("GET", "/session", access="open")
    def show_session(self, request: Request) -> Response:
        """Who is logged in and the zone of the box, "" for nobody: no error, since every visit begins with this question."""
        try:
            return Response.of_json(self._core.show_login(request.cookies().get(self._site.cookie, "")))
        except Refused:
            return Response.of_json({"person": ""})

    def _cookie(self, token: str, age_s: int) -> str:
        secure = "; Secure" if self._site.is_encrypted else ""
        return f"{self._site.cookie}={token}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CREDENTIAL:
        raise BadInput(f"{name} must be a text of 1 to {MAX_CREDENTIAL} characters")
    return value
