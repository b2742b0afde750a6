"""The methods of the core for programs that speak HTTP: whom a request is from, and one call with what it streams.

Two ways: in the core's own process for its Unix socket, where the kernel says who asks or a token does; and from the process of
the HTTP server over the core's socket, where only a token does. Knows nothing about what the programs speak.

Webhooks that come in are read here, bounded, and handed to the core, which judges their signature.
"""

import threading
from collections.abc import Callable, Generator
from typing import Any, Protocol

from appliance.errors import BadInput, OwlError, Refused
from appliance.http.core_link import CoreLink
from appliance.http.message import HttpMessage, Response
from appliance.http.server import route
from appliance.runtime.jsonrpc import Peer
from appliance.runtime.methods import LocalCall, MethodTable
from appliance.runtime.rpc_client import Notification
from appliance.runtime.subscriptions import Box

CLIENT = "program"
PREFIX = "owl-"  # of the tokens of programs
Told = Generator[Notification, None, Any]
Gate = Callable[[Peer, dict[str, Any]], Peer | None]
MAX_BODY_BYTES = 64 * 1024
HEADERS = {"message_id": "x-owlbox-id", "timestamp": "x-owlbox-timestamp", "signature": "x-owlbox-signature"}
PATH = "/hooks/"


class ProgramCalls(Protocol):
    """A way to the core for requests of programs."""

    def stream(self, request: HttpMessage, method: str, params: dict[str, Any]) -> Told:
        """Notifications as they come, then the method's result; closing it cancels the call."""
        ...

    def call(self, request: HttpMessage, method: str, params: dict[str, Any]) -> Any:
        """The result alone."""
        ...


def token_of(request: HttpMessage) -> str:
    """The bearer token of a request, "" for none."""
    kind, _, token = request.header("authorization").partition(" ")
    return token.strip()[:128] if kind.lower() == "bearer" else ""


def no_token() -> Refused:
    """The response to a request without a valid token."""
    error = Refused("this needs a token", hint="owlbox people token NAME makes one", outcome="not_logged_in")
    error.status = 401
    return error


class TokenCalls:
    """Over the core's socket, with the token that the request brings."""

    def __init__(self, core: CoreLink) -> None:
        self._core = core

    def stream(self, request: HttpMessage, method: str, params: dict[str, Any]) -> Told:
        """As `ProgramCalls` says."""
        if not (token := token_of(request)):
            raise no_token()
        return self._core.stream(method, params, token)

    def call(self, request: HttpMessage, method: str, params: dict[str, Any]) -> Any:
        """As `ProgramCalls` says."""
        return take_result(self.stream(request, method, params))


class DirectCalls:
    """In the core's own process: the Unix socket's peer, or whoever the token stands for."""

    def __init__(self, table: MethodTable, gate: Gate) -> None:
        """`gate` says as whom a caller works who brings a token or none; Refused for a stranger."""
        self._table = table
        self._gate = gate
        self._guard = threading.Lock()
        self._running: dict[LocalCall, Peer] = {}

    def stream(self, request: HttpMessage, method: str, params: dict[str, Any]) -> Told:
        """As `ProgramCalls` says."""
        if request.peer is None:
            raise no_token()
        token = token_of(request)
        # Clients of this interface must send some token; without a good one it is whoever the kernel says.
        who = self._gate(request.peer, {"token": token} if token.startswith(PREFIX) else {}) or request.peer
        box: Box[Notification] = Box()
        call = LocalCall(lambda name, value: box.put((name, value)), client=CLIENT, uid=who.uid, person=who.person)
        return self._watched(who, call, _run_beside(lambda: self._table.call(call, method, params), call, box))

    def call(self, request: HttpMessage, method: str, params: dict[str, Any]) -> Any:
        """As `ProgramCalls` says."""
        return take_result(self.stream(request, method, params))

    def hang_up(self, is_meant: Callable[[Peer], bool]) -> None:
        """Cancel what runs for those who are meant."""
        with self._guard:
            running = list(self._running.items())
        for call, who in running:
            if is_meant(who):
                call.cancel.set()

    def _watched(self, who: Peer, call: LocalCall, told: Told) -> Told:
        with self._guard:
            self._running[call] = who
        try:
            return (yield from told)
        finally:
            with self._guard:
                del self._running[call]


def take_result(told: Told) -> Any:
    """The result at the end of a stream, whose notifications nobody wants."""
    while True:
        try:
            next(told)
        except StopIteration as end:
            return end.value


def _run_beside(work: Callable[[], Any], call: LocalCall, box: Box[Notification]) -> Told:
    """Run a call in a thread of its own and hand on what it tells; its error is raised here."""
    done: list[Any] = []
    failed: list[OwlError] = []

    def run() -> None:
        try:
            done.append(work())
        except OwlError as error:
            failed.append(error)
        finally:
            box.close()

    thread = threading.Thread(target=run, name="program-call", daemon=True)
    thread.start()
    try:
        yield from box
    finally:
        call.cancel.set()  # over, or nobody listens any more
    thread.join()
    if failed:
        raise failed[0]
    if not done:
        raise OwlError("the request failed inside the core", hint="the log has the details")
    return done[0]


class HookRoutes:
    """The route of webhooks, whatever way there is to the core."""

    def __init__(self, call: Callable[[HttpMessage, str, dict[str, Any]], Any]) -> None:
        self._call = call

    @route("POST", PATH, access="open", max_body=MAX_BODY_BYTES)
    def receive(self, request: HttpMessage) -> Response:
        """A message of the source that the path names."""
        given = {name: request.header(header) for name, header in HEADERS.items()}
        missing = [HEADERS[name] for name, value in given.items() if not value]
        source = request.path.removeprefix(PATH)
        if missing or not source or "/" in source:
            raise BadInput(f"not a signed webhook: {', '.join(missing) or 'no source'} is missing", hint="docs/guides/programs.md")
        try:
            body = request.body.decode()
        except UnicodeDecodeError:
            raise BadInput("the body is no text", hint="send JSON in UTF-8") from None
        self._call(request, "webhook.receive", {**given, "source": source, "body": body})
        return Response.of_json({"is_taken": True}, 202)
