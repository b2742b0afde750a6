"""The server's side of the socket: listens, greets, dispatches marked methods, streams, enforces deadlines.

Transport and manners only: what the methods do, and who may say hello, is handed in. Idle cost is
zero: one thread is parked in accept, one per connection in recv. Every request is logged with its
sender, operation and result (A-188). Not promised: order of answers on one connection.
"""

import logging
import os
import socket
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from appliance import __version__, jsonrpc, log
from appliance.clock import Alarms, CancelToken, correlation_id, monotonic_s
from appliance.errors import BadInput, Conflict, DeadlineExceeded, Lost, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.jsonrpc import Peer, Wire
from appliance.signatures import Signature, signature

LOG = logging.getLogger(__name__)
SEND_TIMEOUT_S = 30
BEFORE_HELLO = ("ping", "discover", "hello")

Gate = Callable[[Peer, dict[str, Any]], None]


class Call:
    """One request being served: who asks, how to stream back, when to stop."""

    def __init__(self, connection: "Connection", request_id: Any, correlation: str) -> None:
        self.connection = connection
        self.id = request_id
        self.correlation = correlation
        self.cancel = CancelToken()
        self._answered = threading.Lock()
        self.is_answered = False

    @property
    def peer(self) -> Peer:
        """Process, user and group of the caller."""
        return self.connection.peer

    @property
    def uid(self) -> int:
        """The caller's user id, as the kernel says."""
        return self.connection.peer.uid

    @property
    def client(self) -> str:
        """What the caller called itself in hello."""
        return self.connection.client

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification to the caller; Lost when it has gone."""
        self.connection.wire.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, result: Any = None, error: OwlError | None = None, code: int | None = None) -> None:
        """Send the response once; a second answer (work that outlived its deadline) is dropped."""
        with self._answered:
            if self.is_answered:
                return
            self.is_answered = True
        if self.id is None:
            return
        frame = {"jsonrpc": "2.0", "id": self.id, "result": result}
        if error is not None:
            frame = jsonrpc.error_frame(self.id, error, code)
        try:
            self.connection.wire.send(frame)
        except Lost:
            self.cancel.set()
        except TooLarge as too_large:
            self.connection.wire.send(jsonrpc.error_frame(self.id, too_large))


class Connection:
    """One client: its wire, its name after hello, and the calls it has running."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.peer = wire.peer()
        self.client = ""
        self.calls: dict[Any, Call] = {}


class Listener:
    """Serves marked methods on a Unix socket until closed."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        name: str,
        gate: Gate,
        alarms: Alarms,
        deadline_s: float = 30.0,
        threads: int = 32,
        max_connections: int = 64,
    ) -> None:
        self.sock = sock
        self.name = name
        self._gate = gate
        self._alarms = alarms
        self._deadline_s = deadline_s
        self._max_connections = max_connections
        self._methods: dict[str, tuple[Callable[..., Any], Signature]] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"{name}-call")
        self._guard = threading.Lock()
        self._connections: set[Connection] = set()
        self._is_closing = False

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Offer a function under a name; Conflict when the name is taken."""
        if name in self._methods:
            raise Conflict(f"method {name} is offered twice")
        self._methods[name] = (function, signature(function, skip=("self", "call")))

    def offer(self, *owners: object) -> None:
        """Offer every function that the owners marked with `@jsonrpc.method`."""
        for owner in owners:
            for name, function in jsonrpc.marked(owner).items():
                self.add(name, function)

    def start(self) -> None:
        """Begin to accept, in a thread of its own."""
        threading.Thread(target=self._accept, name=f"{self.name}-accept", daemon=True).start()

    def stop_accepting(self) -> None:
        """No new connections; running calls go on."""
        self._is_closing = True
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # a listening socket that nobody used may refuse shutdown
        self.sock.close()

    def close(self) -> None:
        """Stop accepting, hang up on everybody, cancel what runs."""
        self.stop_accepting()
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            for call in list(connection.calls.values()):
                call.cancel.set()
            connection.wire.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _accept(self) -> None:
        while not self._is_closing:
            try:
                sock, _ = self.sock.accept()
            except OSError as error:
                if not self._is_closing:
                    LOG.error("accept failed on %s: %s", self.name, error)
                return
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT_S.to_bytes(8, "little") + bytes(8))
            connection = Connection(Wire(sock))
            with self._guard:
                is_full = len(self._connections) >= self._max_connections
                if not is_full:
                    self._connections.add(connection)
            if is_full:
                full = Unavailable(f"{self._max_connections} clients are connected already", hint="close one and try again")
                connection.wire.send(jsonrpc.error_frame(None, full))
                connection.wire.close()
                continue
            threading.Thread(target=self._read, args=(connection,), name=f"{self.name}-read", daemon=True).start()

    def _read(self, connection: Connection) -> None:
        try:
            for line in connection.wire.lines():
                if isinstance(line, TooLarge):
                    connection.wire.send(jsonrpc.error_frame(None, line, jsonrpc.INVALID_REQUEST))
                    continue
                self._receive(connection, line)
        except Lost:
            pass  # it hung up while we answered
        finally:
            with self._guard:
                self._connections.discard(connection)
            for call in list(connection.calls.values()):
                call.cancel.set()
            connection.wire.close()

    def _receive(self, connection: Connection, line: bytes) -> None:
        try:
            frame = jsonrpc.decode(line)
        except BadInput as error:
            code = jsonrpc.INVALID_REQUEST if "must be an object" in error.message else jsonrpc.PARSE_ERROR
            connection.wire.send(jsonrpc.error_frame(None, error, code))
            return
        request_id, name, params = frame.get("id"), frame.get("method"), frame.get("params", {})
        if not isinstance(name, str) or (request_id is not None and not isinstance(request_id, str | int)):
            connection.wire.send(
                jsonrpc.error_frame(
                    None, BadInput("request needs a method (text) and an id (text or integer)"), jsonrpc.INVALID_REQUEST
                )
            )
            return
        call = Call(connection, request_id, str(frame.get("correlation") or correlation_id()))
        if not isinstance(params, dict):
            call.answer(error=BadInput(f"params must be an object, got {type(params).__name__}"))
            return
        if name == "cancel":
            running = connection.calls.get(params.get("id"))
            if running is not None:
                running.cancel.set()
            call.answer({"cancelled": running is not None})
            return
        if name in BEFORE_HELLO:
            self._serve(call, name, params, None)
            return
        if request_id is not None and request_id in connection.calls:
            call.answer(error=Conflict(f"id {request_id!r} is already in use on this connection"))
            return
        connection.calls[request_id] = call
        deadline_s = frame.get("deadline_s", self._deadline_s)
        self._pool.submit(self._serve, call, name, params, deadline_s if isinstance(deadline_s, int | float) else self._deadline_s)

    def _serve(self, call: Call, name: str, params: dict[str, Any], deadline_s: float | None) -> None:
        log.correlate(call.correlation)
        started_s, outcome = monotonic_s(), "ok"
        alarm = None if deadline_s is None else self._alarms.after(deadline_s, lambda: self._expire(call, name, deadline_s))
        try:
            call.answer(self._run(call, name, params))
        except OwlError as error:
            outcome = error.outcome
            call.answer(
                error=error, code=jsonrpc.METHOD_NOT_FOUND if name not in self._methods and error.outcome == "not_found" else None
            )
        except Exception:
            outcome = "failed"
            LOG.exception("%s failed", name)
            call.answer(error=OwlError(f"{name} failed inside {self.name}", hint="the log has the details"))
        finally:
            if alarm is not None:
                self._alarms.cancel(alarm)
            call.connection.calls.pop(call.id, None)
            peer = call.peer
            LOG.info(
                "request",
                extra={
                    "sender": f"{call.connection.client or '?'} pid={peer.pid} uid={peer.uid}",
                    "operation": name,
                    "result": outcome,
                    "ms": round((monotonic_s() - started_s) * 1000),
                },
            )
            log.correlate("")

    def _expire(self, call: Call, name: str, deadline_s: float) -> None:
        call.cancel.set()
        call.answer(error=DeadlineExceeded(f"{name} took longer than {deadline_s:g} s"))

    def _run(self, call: Call, name: str, params: dict[str, Any]) -> Any:
        if name == "ping":
            return {"pid": os.getpid(), "name": self.name}
        if name == "discover":
            return {n: {"doc": (f.__doc__ or "").strip(), "params": s.schema()} for n, (f, s) in sorted(self._methods.items())}
        if name == "hello":
            self._gate(call.peer, params)
            call.connection.client = str(params.get("client") or "unnamed")[:80]
            return {"name": self.name, "version": __version__, "pid": os.getpid()}
        if not call.connection.client:
            raise Refused(f"say hello before {name}", hint='first request: hello {"client": NAME, "token": TOKEN}')
        if name not in self._methods:
            raise NotFound(f"unknown method {name}", hint="discover lists the methods")
        function, sign = self._methods[name]
        return function(call, **sign.bind(params))


def listen(path: Path, mode: int = 0o660) -> socket.socket:
    """A bound listening socket; a stale file of a dead server is replaced, a live one is AlreadyRunning's business."""
    jsonrpc.check_path(str(path))
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise BadInput(f"{path} is in the way and is not a socket", hint="move it away")
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o777 & ~mode)
    try:
        sock.bind(str(path))
    finally:
        os.umask(previous)
    sock.listen(64)
    return sock
