"""The web page: its files, and the WebSocket that carries the core's JSON-RPC for whoever is logged in.

Each WebSocket is one connection to the core, which gets the session's token in `hello` and grants what that person may do. Texts
are passed on as they are, one frame each; the browser may not say `hello` itself. Files are those of `static/`, read once.

A one-time invite or a password becomes a session, whose token is a cookie that scripts cannot read. The core keeps sessions,
passwords and invites, and limits attempts. An invite stands behind the `#` of its address, so that no log and no Referer holds it.
"""

import hashlib
import logging
import socket
import threading
from importlib import resources
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request as Handshake
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.sync.connection import Connection

from appliance import __version__
from appliance.clock import now_ms
from appliance.errors import BadInput, Lost, NotFound, OwlError, Refused, TooLarge
from appliance.http.core_link import CoreLink
from appliance.http.message import HttpMessage, Response, send
from appliance.http.server import route
from appliance.http.site import Site
from appliance.runtime import jsonrpc
from appliance.runtime.jsonrpc import Wire

LOG = logging.getLogger(__name__)
MAX_TEXT_BYTES = 2 * 1024 * 1024  # of one frame from a browser
QUEUE = 4  # frames of a browser that wait
PING_S = 50.0  # so that proxies keep the connection, and one that has gone is noticed
CLOSE_S = 2.0
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/manifest+json",
}
GOING, UNWANTED, RESTARTING = 1001, 1008, 1012  # why a WebSocket is closed
MAX_CREDENTIAL = 512
ANSWER_BYTES = 4096


class LoginRoutes:
    """Routes of logins."""

    def __init__(self, site: Site, core: CoreLink) -> None:
        self._site = site
        self._core = core

    @route("POST", "/login", access="open", max_body=ANSWER_BYTES)
    def log_in(self, request: HttpMessage) -> Response:
        """Begin a session with {"invite"} or {"person", "password"}; the answer sets the cookie."""
        if not request.header("origin"):
            raise Refused("a login must say where it comes from", hint="send the header Origin")
        given = request.json()
        about = {"agent": request.header("user-agent")[:200], "address": request.address}
        if "invite" in given:
            made = self._core.call("login.enter", {"invite": _text(given, "invite"), **about})
        else:
            known = {"name": _text(given, "person"), "password": _text(given, "password")}
            made = self._core.call("login.enter", {**known, **about})
        if old := request.cookies().get(self._site.cookie, ""):
            self._core.call("login.leave", {"token": old})
        left_s = max(0, (int(made["expires_ms"]) - now_ms()) // 1000)
        return Response.of_json({"person": made["person"]}, headers=[("Set-Cookie", self._cookie(str(made["token"]), left_s))])

    @route("POST", "/logout")
    def log_out(self, request: HttpMessage) -> Response:
        """End the session whose cookie came."""
        self._core.call("login.leave", {"token": request.session})
        return Response.of_json({}, headers=[("Set-Cookie", self._cookie("", 0)), ("Clear-Site-Data", '"storage"')])

    @route("GET", "/session", access="open")
    def show_session(self, request: HttpMessage) -> Response:
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


class PageRoutes:
    """Routes of the web page."""

    def __init__(self, core: CoreLink) -> None:
        self._core = core
        self._files = _read_files()

    @route("GET", "/", access="open")
    def show_file(self, request: HttpMessage) -> Response:
        """A file of the page; what is not asked again by a browser that has it."""
        name = request.path.removeprefix("/") or "index.html"
        if name not in self._files:
            raise NotFound(f"nothing is at {request.path[:200]}")
        data, tag = self._files[name]
        headers = (("Cache-Control", "no-cache"), ("ETag", tag))
        if request.header("if-none-match") == tag:
            return Response(304, b"", KINDS[name.rpartition(".")[2]], headers)
        return Response(200, data, KINDS[name.rpartition(".")[2]], headers)

    @route("GET", "/rpc", upgrades=True)
    def carry_frames(self, request: HttpMessage, sock: socket.socket) -> None:
        """The core's JSON-RPC, a frame each way as one text message; `?context=group:NAME` works for a group."""
        protocol = ServerProtocol(max_size=MAX_TEXT_BYTES, logger=LOG)
        headers = Headers([(name.title(), value) for name, value in request.headers.items()])
        answer = protocol.accept(Handshake(request.target, headers, request.method))
        if answer.status_code != 101:
            raise BadInput("this is a WebSocket", hint="open / in a browser")
        wire = self._core.open()
        try:
            _greet(wire, request.session, request.query.get("context", ""))
            send(sock, answer.serialize())
            sock.settimeout(None)
            _relay(sock, wire)
        finally:
            wire.close()


def _greet(wire: Wire, session: str, context: str) -> None:
    """Say hello for whoever is logged in; the core's error is raised."""
    params = {"client": "web", "version": __version__, "token": session, "context": context}
    wire.send({"jsonrpc": "2.0", "id": "hello", "method": "hello", "params": params})
    for line in wire.lines():
        if isinstance(line, TooLarge):
            raise line
        answer = jsonrpc.decode(line)
        if "error" in answer:
            jsonrpc.raise_error(answer["error"])
        return
    raise Lost("the core hung up")


def _relay(sock: socket.socket, wire: Wire) -> None:
    """Pass frames on until one side ends: what the browser says here, the way back in a thread that ends with the wire."""
    opened = ServerProtocol(state=OPEN, max_size=MAX_TEXT_BYTES, logger=LOG)
    made = Connection(sock, opened, ping_interval=PING_S, ping_timeout=PING_S, close_timeout=CLOSE_S, max_queue=QUEUE)
    made.start_keepalive()
    back = threading.Thread(target=_carry_back, args=(wire, made), name="http-back", daemon=True)
    back.start()
    try:
        for text in made:
            wire.send(_checked(text))
    except (ConnectionClosed, Lost, OSError):
        pass  # a browser that leaves is no error
    except OwlError as error:
        LOG.warning("a page is hung up on: %s", error)
        made.close(UNWANTED, "not a frame of this page")
    finally:
        wire.close()
        back.join(CLOSE_S)
        made.close(GOING)


def _checked(text: str | bytes) -> dict[str, object]:
    """A frame that may go to the core: an object that is not hello."""
    frame = jsonrpc.decode(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    if frame.get("method") == "hello":
        raise BadInput("hello is said already")
    return frame


def _carry_back(wire: Wire, made: Connection) -> None:
    """What the core says, to the browser; when the core ends, the browser is told to come again."""
    try:
        for line in wire.lines():
            if not isinstance(line, TooLarge):
                made.send(line.decode("utf-8", "replace"))
        made.close(RESTARTING, "the core has ended")
    except (ConnectionClosed, Lost, OSError):
        wire.close()


def _read_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page by name, with the tag of their contents."""
    found = {}
    for one in resources.files("appliance.http").joinpath("static").iterdir():
        if one.name.rpartition(".")[2] in KINDS:
            data = one.read_bytes()
            found[one.name] = (data, f'"{hashlib.sha256(data).hexdigest()[:24]}"')
    return found
