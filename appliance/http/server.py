"""Serves HTTP routes in threads: listens, limits, checks Host, Origin and login, answers, and hands sockets to WebSockets.

To add a route, mark a method of an object and give that object to `HttpServer` in `process`:

    class Clock:
        @route("GET", "/clock")
        def tell_time(self, request: Request) -> Response:
            return Response.of_json({"person": request.person, "now": now_ms()})

`access` says who gets there. "person": whoever is logged in; `request.person` is their name and `request.session` what `hello`
at the core's socket takes as its token, so that the core itself grants what that person may do. "open": everybody; the method
checks what it needs by itself (a bearer token, a signature) and looks at no cookie. A path that ends in "/" stands for all below
it; the longest one that fits is taken. `max_body` is how many bytes a body may have. A method with `upgrades=True` gets the
connected socket as well, `(request, sock)`, before anything was answered, and owns it until it returns. Errors of the tree
become JSON with their status; a streamed answer is a `Response` whose body is an iterator of bytes, sent as they come. Headers
of a response come before those of `FIXED`, so that a page may have a Content-Security-Policy of its own.

Checked here, before any route: Host is one of ours (DNS rebinding), Origin is one of ours where there is one and is there where
a login's cookie could act (other sites' pages), sizes, times, and how many connections one address and one person may have, and
all who have not said what they want: the oldest of these gives its place to the next, so that silence keeps nobody out. A request
is one connection. Not done here: logins themselves (`login_routes`), and what a person may do (the core).
"""

import inspect
import logging
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import BadInput, Busy, DeadlineExceeded, Lost, NotFound, OwlError, Refused
from appliance.http.message import (
    HEAD_S,
    MAX_BODY_BYTES,
    HttpMessage,
    Response,
    read_body,
    read_head,
    status_of,
    write_response,
)
from appliance.http.site import Site
from appliance.runtime.jsonrpc import Wire
from appliance.text.urls import network_of

LOG = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])
SEND_S = 30  # for a peer to take what it is sent
ACCEPT_PAUSE_S = 0.2
LEAST_OF_ONE = 4  # connections of one person: what a page in a browser needs
MIN_SILENT = 4  # connections whose request is still coming
MAX_LOGGED = 200  # characters of a path
SAFE = ("GET", "HEAD")
FIXED = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ("Cache-Control", "no-store"),
)


class HttpRoute(NamedTuple):
    """The method, path and options that `@route` records."""

    method: str
    path: str
    access: Literal["person", "open"]
    max_body: int
    upgrades: bool


def route(
    method: str,
    path: str,
    *,
    access: Literal["person", "open"] = "person",
    max_body: int = MAX_BODY_BYTES,
    upgrades: bool = False,
) -> Callable[[F], F]:
    """Mark a method as what answers requests for a path. Marks only; nothing is registered."""

    def mark(function: F) -> F:
        function.route = HttpRoute(method, path, access, max_body, upgrades)  # type: ignore[attr-defined]
        return function

    return mark


class FoundRoute(NamedTuple):
    """A route with the function that serves it."""

    mark: HttpRoute
    function: Callable[..., Any]


@dataclass(eq=False)
class HttpCaller:
    """Who is at the other end of a connection, as far as it is known; `is_heard` once its request is there and may be served."""

    sock: socket.socket
    network: str
    person: str = ""
    is_heard: bool = False


class HttpServer:
    """Answers requests at a listening socket until closed."""

    def __init__(
        self,
        sock: socket.socket,
        site: Site,
        routes: Sequence[object],
        *,
        check_login: Callable[[str], str],
        tls: ssl.SSLContext | None = None,
        max_connections: int = 64,
        max_of_one: int = 24,
    ) -> None:
        """`check_login` is the person of a session's token, and raises Refused for a token that is none."""
        self.sock = sock
        self.site = site
        self._check_login = check_login
        self._tls = tls
        self._max_connections = max_connections
        self._max_of_one = max_of_one
        self._max_silent = max(MIN_SILENT, max_connections // 4)
        self._routes: dict[tuple[str, str], FoundRoute] = {}
        for owner in routes:
            self._add_routes(owner)
        self._guard = threading.Lock()
        self._open: list[HttpCaller] = []  # in the order in which they came
        self._is_closing = False
        self._wake_sender, self._wake_receiver = socket.socketpair()

    def _add_routes(self, owner: object) -> None:
        for name, _ in inspect.getmembers(type(owner), lambda one: isinstance(getattr(one, "route", None), HttpRoute)):
            function = getattr(owner, name)
            mark: HttpRoute = function.route
            if (mark.method, mark.path) in self._routes:
                raise ValueError(f"two routes answer {mark.method} {mark.path}")
            self._routes[mark.method, mark.path] = FoundRoute(mark, function)

    # -- connections --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to accept, in a thread of its own."""
        threading.Thread(target=self._accept_connections, name="http-accept", daemon=True).start()

    def accept_at(self, sock: socket.socket) -> None:
        """Accept at this socket instead: nobody can come to the old one any more, and who waits there sleeps on."""
        old, self.sock = self.sock, sock
        self.start()
        old.close()

    def close(self) -> None:
        """Accept nothing more and hang up on everybody."""
        self._is_closing = True
        self._wake_sender.close()
        self.sock.close()
        with self._guard:
            connected = [caller.sock for caller in self._open]
        for sock in connected:
            _hang_up(sock)

    def _accept_connections(self) -> None:
        knocks = select.poll()
        knocks.register(self.sock, select.POLLIN)
        knocks.register(self._wake_receiver, select.POLLIN)
        while not any(number == self._wake_receiver.fileno() for number, _ in knocks.poll()):
            try:
                sock, peer = self.sock.accept()
            except OSError as error:
                if self._is_closing:
                    return
                LOG.error("accept failed: %s", error)
                sleep_s(ACCEPT_PAUSE_S)
                continue
            address = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
            if (caller := self._admit(sock, network_of(address))) is None:
                LOG.warning("connection refused", extra={"sender": address, "result": "too many connections"})
                sock.close()
                continue
            try:
                threading.Thread(target=self._serve_socket, args=(caller, address), name="http", daemon=True).start()
            except RuntimeError as error:  # no thread to be had: this caller is lost, the next one may be luckier
                LOG.error("a caller is turned away: %s", error)
                self._forget(caller)
        self._wake_receiver.close()

    def _admit(self, sock: socket.socket, network: str) -> HttpCaller | None:
        """Give a connection a place; None when there is none for it."""
        with self._guard:
            of_one = sum(caller.network == network for caller in self._open)
            # Behind a proxy everybody comes from its address.
            if of_one >= self._max_of_one and not self.site.is_proxied:
                return None
            silent = [caller for caller in self._open if not caller.is_heard]
            if len(silent) < self._max_silent and len(self._open) >= self._max_connections:
                return None
            spare = silent[0] if len(silent) >= self._max_silent else None
            if spare is not None:
                self._open.remove(spare)
            self._open.append(caller := HttpCaller(sock, network))
        if spare is not None:
            _hang_up(spare.sock)  # its thread closes it
        return caller

    def _hear(self, caller: HttpCaller, person: str) -> None:
        """Keep the place of a caller whose request may be served; Busy when there are enough, of this person or of all."""
        with self._guard:
            heard = [one for one in self._open if one.is_heard]
            of_one = sum(one.person == person for one in heard) if person else 0
            free = self._max_connections - self._max_silent - len(heard)
            # As many stay free as one person has: whoever comes next has a place, whoever acts together.
            if free <= 0 or (person and (of_one >= self._max_of_one or of_one >= max(free, LEAST_OF_ONE))):
                raise Busy("too many connections are open", hint="close other windows of this page, or try again in a moment")
            caller.person, caller.is_heard = person, True

    def _forget(self, caller: HttpCaller) -> None:
        with self._guard:
            if caller in self._open:
                self._open.remove(caller)
        caller.sock.close()

    def _serve_socket(self, caller: HttpCaller, address: str) -> None:
        try:
            caller.sock.settimeout(HEAD_S)
            if self._tls is not None:
                caller.sock = self._tls.wrap_socket(caller.sock, server_side=True)
            self._serve_request(caller, address)
        except (OSError, Lost) as error:
            LOG.debug("connection of %s ended: %s", address, error)
        finally:
            _hang_up(caller.sock)
            self._forget(caller)

    # -- one request --------------------------------------------------------------------------------

    def _serve_request(self, caller: HttpCaller, address: str) -> None:
        started_s, request, person, sock = monotonic_s(), None, "", caller.sock
        try:
            request, begun = read_head(sock)
            peer = Wire(sock).peer() if sock.family == socket.AF_UNIX else None
            request = replace(request, address=self._address_of(request, address), peer=peer)
            found = self._find_route(request)
            self._check_origin(request, found.mark)
            if found.mark.access == "person":
                session = request.cookies().get(self.site.cookie, "")
                person = self._check_login(session)
                request = replace(request, person=person, session=session)
                self._hear(caller, person)
            request = replace(request, body=read_body(sock, request, begun, found.mark.max_body))
            if found.mark.access == "open":
                self._hear(caller, "")
            sock.settimeout(SEND_S)
            if found.mark.upgrades:
                found.function(request, sock)
                self._log(request, address, person, "closed", started_s)
                return
            response: Response = found.function(request)
        except (Lost, DeadlineExceeded) as error:
            if request is not None or isinstance(error, DeadlineExceeded):
                self._log(request, address, person, error.outcome, started_s)
            return
        except OwlError as error:
            response = Response.of_error(error, status_of(error))
        except Exception:
            LOG.exception("a request failed")
            response = Response.of_error(OwlError("the request failed inside the server", hint="the log has the details"))
        self._log(request, address, person, str(response.status), started_s)
        sock.settimeout(SEND_S)
        write_response(sock, response, FIXED, has_body=request is None or request.method != "HEAD")

    def _find_route(self, request: HttpMessage) -> FoundRoute:
        if request.header("host").lower() not in self.site.hosts:
            raise _failure(421, "wrong_host", f"this is not {request.header('host')[:80]!r}", f"open {self.site.address}")
        method = "GET" if request.method == "HEAD" else request.method
        fitting = [
            path for _, path in self._routes if request.path == path or (path.endswith("/") and request.path.startswith(path))
        ]
        if not fitting or ".." in request.path.split("/") or "\0" in request.path:
            raise NotFound(f"nothing is at {request.path[:MAX_LOGGED]}")
        path = max(fitting, key=len)
        if (found := self._routes.get((method, path))) is None:
            raise _failure(405, "wrong_method", f"{request.method} is not what {path} takes")
        return found

    def _check_origin(self, request: HttpMessage, mark: HttpRoute) -> None:
        """Refuse what another site's page asks for: with a foreign Origin, or without one where a cookie could act."""
        origin = request.header("origin")
        if origin and origin.lower() not in self.site.origins:
            raise Refused(f"{origin[:80]} may not call this server")
        is_acting = mark.upgrades or request.method not in SAFE
        if mark.access == "person" and not origin and is_acting:
            raise Refused("a request that changes something must say where it comes from", hint="send the header Origin")
        if mark.access == "person" and request.header("sec-fetch-site") in ("cross-site", "same-site"):
            raise Refused("another site's page asked for this")

    def _address_of(self, request: HttpMessage, address: str) -> str:
        """Whom to count a request for: behind a proxy the last address that it has added."""
        told = request.header("x-forwarded-for").rpartition(",")[2].strip() if self.site.is_proxied else ""
        return told[:64] or address

    def _log(self, request: HttpMessage | None, address: str, person: str, result: str, started_s: float) -> None:
        """One line for each request, served or refused; without its query, which may hold a secret."""
        asked = f"{request.method} {request.path[:MAX_LOGGED]}" if request else "?"
        sender = f"{request.address if request else address}{f' person={person}' if person else ''}"
        is_bad = result.isdigit() and int(result) >= 400
        extra = {"sender": sender, "operation": asked, "result": result, "ms": round((monotonic_s() - started_s) * 1000)}
        LOG.log(logging.WARNING if is_bad else logging.INFO, "request", extra=extra)


def _failure(status: int, outcome: str, message: str, hint: str = "") -> OwlError:
    error = OwlError(message, hint=hint, outcome=outcome)
    error.status = status
    return error


def _hang_up(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other end closed first


def listen(host: str, port: int) -> socket.socket:
    """A bound listening socket; BadInput says why there can be none."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=64)
    except OSError as error:
        number = error.errno or 0  # below 0 where a name is not known
        raise BadInput(
            f"cannot listen at {host} port {port}: {os.strerror(number) if number > 0 else error.strerror or error}",
            hint="choose a free one from 1024 on: owlbox config set channels.web.port NUMBER",
        ) from None
