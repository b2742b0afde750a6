"""The full screen in a browser, at /screen: Textual's own browser terminal, behind the login of the web page.

The terminal's script, style and font are those of textual-serve as it is installed; the page around them is ours. Each WebSocket is
one screen process that works for whoever is logged in; when the browser goes, it ends. Downloads, which our screen has none of,
are not carried.
"""

import json
import logging
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from functools import partial
from importlib import resources
from pathlib import Path

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request as Handshake
from websockets.server import ServerProtocol
from websockets.sync.connection import Connection

from appliance.channels.http.core_link import CoreLink
from appliance.channels.http.message import Request, Response, send
from appliance.channels.http.relay import relaying
from appliance.channels.http.screen_process import ScreenProcess
from appliance.channels.http.server import route
from appliance.channels.http.site import Site
from appliance.errors import BadInput, Busy, NotFound, Refused

LOG = logging.getLogger(__name__)
MAX_TEXT_BYTES = 256 * 1024  # of what is typed or pasted at once
# Our page, and what textual-serve has: path below /screen/ to file and kind.
OWN = {"": ("screen.html", "text/html; charset=utf-8"), "screen.css": ("screen.css", "text/css; charset=utf-8"),
       "screen.js": ("screen.js", "text/javascript; charset=utf-8")}  # fmt: skip
TEXTUAL = {
    "textual.js": ("js/textual.js", "text/javascript; charset=utf-8"),
    "xterm.css": ("css/xterm.css", "text/css; charset=utf-8"),
    "mono.ttf": ("fonts/RobotoMono-VariableFont_wght.ttf", "font/ttf"),
}
# The terminal writes its sizes and colours as styles of elements.
POLICY = (
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
)
SOCKET = "@SOCKET@"


class ScreenRoutes:
    """Routes of the terminal page; at most `most` screens at a time."""

    def __init__(self, site: Site, core: CoreLink, home: Path, environ: Mapping[str, str], most: int) -> None:
        self._site = site
        self._core = core
        self._home = home
        self._environ = environ
        self._most = most
        self._guard = threading.Lock()
        self._open: Counter[str] = Counter()  # by person

    @route("GET", "/screen", access="open")
    def show_page(self, request: Request) -> Response:
        """The page with the terminal in it; whoever is not logged in is sent to where that is done."""
        try:
            self._core.check_login(request.cookies().get(self._site.cookie, ""))
        except Refused:
            return Response(303, b"", "text/plain", (("Location", "/"),))
        return self.show_file(request)

    @route("GET", "/screen/")
    def show_file(self, request: Request) -> Response:
        """One of its files."""
        name = request.path.removeprefix("/screen").removeprefix("/")
        if name in OWN:
            file, kind = OWN[name]
            data = resources.files("appliance.channels.http").joinpath("static", file).read_bytes()
        elif name in TEXTUAL:
            file, kind = TEXTUAL[name]
            data = resources.files("textual_serve").joinpath("static", file).read_bytes()
        else:
            raise NotFound(f"nothing is at {request.path[:200]}")
        if not name:
            scheme = "wss" if self._site.is_encrypted else "ws"
            data = data.replace(SOCKET.encode(), f"{scheme}://{request.header('host')}/screen/ws".encode())
        # The page itself is not kept: a browser that keeps it to go back to would keep its screen running.
        return Response(200, data, kind, (POLICY, ("Cache-Control", "no-cache" if name else "no-store")))

    @route("GET", "/screen/ws", upgrades=True)
    def carry_screen(self, request: Request, sock: socket.socket) -> None:
        """A screen of its own, drawn in the browser: `?width=80&height=24` is its size in letters."""
        protocol = ServerProtocol(max_size=MAX_TEXT_BYTES, logger=LOG)
        headers = Headers([(name.title(), value) for name, value in request.headers.items()])
        answer = protocol.accept(Handshake(request.target, headers, request.method))
        if answer.status_code != 101:
            raise BadInput("this is a WebSocket", hint="open /screen in a browser")
        self._take_place(request.person)
        try:
            self._core.open().close()  # else the screen would start a core of its own
            columns, rows = (_size(request.query.get(name, ""), usual) for name, usual in (("width", 80), ("height", 24)))
            send(sock, answer.serialize())
            sock.settimeout(None)
            screen = ScreenProcess(self._home, self._environ, request.session, columns, rows)
            _relay(sock, screen)
        finally:
            with self._guard:
                self._open[request.person] -= 1

    def _take_place(self, person: str) -> None:
        """Busy when all screens are open, or more than half of them by one person."""
        with self._guard:
            if self._open.total() >= self._most or self._open[person] > self._most // 2:
                raise Busy("no more screens may be open in browsers", hint="close one, or raise channels.web.screens")
            self._open[person] += 1


def _relay(sock: socket.socket, screen: ScreenProcess) -> None:
    """Carry what is typed and what is drawn until one side ends."""
    with relaying(sock, MAX_TEXT_BYTES, partial(_carry_back, screen), screen.close) as made:
        try:
            for text in made:
                _hand_over(text, screen, made)
        except BadInput as error:
            LOG.warning("a screen is hung up on: %s", error)


def _hand_over(text: str | bytes, screen: ScreenProcess, made: Connection) -> None:
    """One message of the browser's terminal: a list of its kind and what belongs to it."""
    try:
        kind, *given = json.loads(text)
        if kind == "stdin":
            screen.type(str(given[0]))
        elif kind == "resize":
            screen.resize(int(given[0]["width"]), int(given[0]["height"]))
        elif kind in ("focus", "blur"):
            screen.tell({"type": kind})
        elif kind == "ping":
            made.send(json.dumps(["pong", given[0]]))
    except (ValueError, TypeError, KeyError, IndexError):
        raise BadInput("a message is not one of the terminal's") from None


def _carry_back(screen: ScreenProcess, made: Connection) -> None:
    """What is drawn, to the browser; when the screen is left, the page says so."""
    try:
        for kind, body in screen.packets():
            if kind == b"D":
                made.send(body)
            elif kind == b"M" and (meta := json.loads(body)).get("type") == "open_url":
                made.send(json.dumps(["open_url", {"url": str(meta.get("url", "")), "new_tab": True}]))
        made.close()
    except (ConnectionClosed, OSError):
        pass  # the browser has gone


def _size(text: str, usual: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 6 else usual
