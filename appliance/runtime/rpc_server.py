"""The server's side of the socket: listens, greets, dispatches marked methods, streams, enforces deadlines.

Transport and manners only: what the methods do, and who may say hello, is handed in. Idle cost is
zero: one thread is parked in accept, one per connection in recv. Quick methods share a pool; those marked long have threads of
their own, so that waiting for answers never holds up a question or the shutdown. Every request is logged with its sender,
operation and result (A-188). Not promised: order of answers on one connection.
"""

import errno
import logging
import os
import select
import socket
import stat
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.clock import Alarms, CancelToken, correlation_id, monotonic_s, now_ms, sleep_s
from appliance.errors import BadInput, Busy, Conflict, DeadlineExceeded, Lost, OwlError, Refused, TooLarge, Unavailable
from appliance.runtime import jsonrpc, log
from appliance.runtime.jsonrpc import Peer, Wire
from appliance.runtime.methods import Method, MethodMark, MethodTable
from appliance.runtime.rpc.call_log import FORGETTING, CallLog, CallRecord, caller_of
from appliance.runtime.rpc.places import Places
from appliance.store import disk_faults

LOG = logging.getLogger(__name__)
SEND_TIMEOUT_S = 30
REFUSED_S = 1.0
MAX_REFUSED = 32  # callers at a time who are told why there is no place for them; others are hung up on
GREETING_S = 5.0  # for a caller to say hello in
MAX_SILENT = 8  # connections of one user that have not said hello; the oldest gives its place to the next one
MAX_SERVED = 8  # quick requests of one connection at a time: those of a caller who does not read hold up a thread each
ACCEPT_PAUSE_S = 0.2
CLOSING_S = 0.5  # how soon somebody who waits for a turn sees that we stop
MAX_DEADLINE_S = 7 * 86400.0
MAX_CORRELATION = 64
MAX_NAME = 80  # of a method or client, in the log
MAX_ERROR = 300  # characters of an error among the latest calls
MAX_CONTEXT = 200
WATCHED = ("hello", "ping", "status")  # what the core's watch over its broker asks
BEFORE_HELLO = ("ping", "discover", "hello")
# Failures of accept that pass: out of descriptors or memory, or a caller that left meanwhile.
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)

Gate = Callable[[Peer, dict[str, Any]], Peer | None]  # who a caller works as from now on; None for as whom the kernel says


class ServedCall:
    """One request being served: who asks, how to stream back, when to stop."""

    def __init__(self, connection: "RpcConnection", request_id: Any, correlation: str) -> None:
        self.connection = connection
        self.id = request_id
        self.correlation = correlation
        self.cancel = CancelToken()
        self._answered = threading.Lock()
        self.is_answered = False
        self.has_expired = False

    @property
    def peer(self) -> Peer:
        """Process, user and group of the caller."""
        return self.connection.peer

    @property
    def uid(self) -> int:
        """The caller's user id, as the kernel says; NOBODY for one who was authenticated otherwise."""
        return self.connection.peer.uid

    @property
    def person(self) -> str:
        """The person who was authenticated by other means than the kernel."""
        return self.connection.peer.person

    @property
    def login(self) -> str:
        """The session that the person logged in to."""
        return self.connection.peer.login

    @property
    def client(self) -> str:
        """The name that the caller gave itself in hello."""
        return self.connection.client

    @property
    def context(self) -> str:
        """The context that the caller asked for in hello."""
        return self.connection.context

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
            self._send_frame(frame)
        except TooLarge as too_large:
            self._send_frame(jsonrpc.error_frame(self.id, too_large))
        except (TypeError, ValueError, RecursionError):
            LOG.exception("a result is not JSON")
            self._send_frame(jsonrpc.error_frame(self.id, OwlError("the result cannot be sent", hint="the log has the details")))

    def _send_frame(self, frame: dict[str, Any]) -> None:
        try:
            self.connection.wire.send(frame)
        except Lost:
            self.cancel.set()


class RpcConnection:
    """One client: its wire, its name after hello, and the calls it has running."""

    def __init__(self, wire: Wire, peer: Peer) -> None:
        self.wire = wire
        self.peer = peer
        self.client = ""
        self.context = ""
        self.greeting_alarm = 0
        self.calls: set[ServedCall] = set()
        self.served = threading.Semaphore(MAX_SERVED)

    def find(self, request_id: object) -> ServedCall | None:
        """The call with this id that is not answered yet; notifications have none and cannot be found."""
        return next((c for c in list(self.calls) if request_id is not None and c.id == request_id and not c.is_answered), None)


class Listener:
    """Serves marked methods on a Unix socket, and to connections that are handed to it, until closed."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        name: str,
        gate: Gate,
        table: MethodTable | None = None,
        calls: CallLog | None = None,
        alarms: Alarms,
        deadline_s: float = 30.0,
        threads: int = 32,
        max_long: int = 32,
        max_connections: int = 64,
        is_given: bool = False,
        owners: Collection[int] = (),
        zone: Callable[[], str] = lambda: "",
    ) -> None:
        """Places and threads are kept for the users in `owners`, beside ourselves and root, whatever others do.

        `deadline_s` is for calls that name none, but not for those of long methods: an answer takes as long as it takes. `zone` is
        the one that moments are shown in, told in the answer to hello.
        """
        self.sock = sock
        self.name = name
        self._gate = gate
        self.table = table or MethodTable()
        self._calls = calls
        self._alarms = alarms
        self._deadline_s = deadline_s
        self._max_connections = max_connections
        self._places = Places({0, os.getuid(), *owners}, connections=max_connections, long_calls=max_long, threads=threads)
        self._refusing = threading.BoundedSemaphore(MAX_REFUSED)
        self._max_long = max_long
        self._zone = zone
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"{name}-call")
        self._guard = threading.Lock()
        self._connections: dict[RpcConnection, None] = {}  # in the order in which they came
        self._is_closing = False
        self._running = 0  # requests that are being served
        self._end: Callable[[], None] | None = None
        self._is_over = False
        # A socket that systemd gave us outlives us: callers wait in it for the next core. It must not be shut
        # down, which would close it for systemd too (2026-11-21), so the accepting thread is woken by a bell.
        self._is_given = is_given
        self._wake_sender, self._wake_receiver = socket.socketpair()

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Offer a function under a name; Conflict when the name is taken."""
        self.table.add(name, Method(getattr(function, "rpc", MethodMark(name)), function))

    def offer(self, *owners: object) -> None:
        """Offer every function that the owners marked with `@method`."""
        self.table.offer(*owners)

    def hang_up(self, is_meant: Callable[[Peer], bool]) -> None:
        """End the connections of those who are meant, with what they have running."""
        with self._guard:
            ended = list(self._connections)
        ended = [one for one in ended if is_meant(one.peer)]
        for connection in ended:
            connection.wire.close()  # its thread cancels what runs

    def start(self) -> None:
        """Begin to accept, in a thread of its own."""
        knocks = select.poll()
        knocks.register(self.sock, select.POLLIN)
        knocks.register(self._wake_receiver, select.POLLIN)
        threading.Thread(target=self._accept_connections, args=(knocks,), name=f"{self.name}-accept", daemon=True).start()

    def accept_at(self, sock: socket.socket) -> None:
        """Accept at this socket instead: nobody can come to the old one any more, and who waits there sleeps on."""
        old, self.sock = self.sock, sock
        self.start()
        old.close()

    def stop_accepting(self) -> None:
        """No new connections; running calls go on."""
        self._is_closing = True
        self._wake_sender.close()
        try:
            if not self._is_given:
                self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # a listening socket that nobody used may refuse shutdown
        self.sock.close()

    def end_when_idle(self, end: Callable[[], None]) -> bool:
        """Asked by a request: call `end` once none runs any more, and serve none after that; True when only the asking one does."""
        with self._guard:
            self._end = end
            self._is_over = self._is_over or self._running <= 1
            return self._is_over

    def close(self) -> None:
        """Stop accepting, hang up on everybody, cancel what runs."""
        self.stop_accepting()
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            for call in list(connection.calls):
                call.cancel.set()
            connection.wire.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _accept_connections(self, knocks: select.poll) -> None:
        while True:
            if any(number == self._wake_receiver.fileno() for number, _ in knocks.poll()):
                self._wake_receiver.close()
                return
            try:
                sock, _ = self.sock.accept()
            except OSError as error:
                if self._is_closing:
                    return
                LOG.error("accept failed on %s: %s", self.name, error)
                if error.errno not in PASSING:
                    return
                sleep_s(ACCEPT_PAUSE_S)
                continue
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT_S.to_bytes(8, "little") + bytes(8))
            wire = Wire(sock)
            connection = RpcConnection(wire, wire.peer())
            is_admitted = self._admit_connection(connection)
            if not is_admitted and not self._refusing.acquire(blocking=False):
                connection.wire.close()
                continue
            work, served = (self._read_lines, (connection,)) if is_admitted else (self._refuse_connection, (wire,))
            try:
                threading.Thread(target=work, args=served, name=f"{self.name}-read", daemon=True).start()
            except RuntimeError as error:  # no thread to be had: this caller is lost, the next one may be luckier
                LOG.error("a caller of %s is turned away: %s", self.name, error)
                self._forget_connection(connection)
                connection.wire.close()
                if not is_admitted:
                    self._refusing.release()

    def _admit_connection(self, connection: RpcConnection) -> bool:
        """Give a caller a place, for a few seconds until it says hello; False when there is none."""
        uid, person = connection.peer.uid, connection.peer.person
        with self._guard:
            silent = [one for one in self._connections if not one.client and (one.peer.uid, one.peer.person) == (uid, person)]
            free = self._places.free_connections(connection.peer, len(self._connections))
            is_admitted = free > 0 or (bool(silent) and len(silent) >= MAX_SILENT)
            if is_admitted:
                self._connections[connection] = None
            spare = silent[0] if is_admitted and len(silent) >= MAX_SILENT else None
        if spare is not None:
            spare.wire.close()  # its thread takes it off the list
        if is_admitted:
            connection.greeting_alarm = self._alarms.after(GREETING_S, lambda: self._hang_up_on_silence(connection))
        return is_admitted

    def _take_peer(self, connection: RpcConnection, peer: Peer) -> None:
        """A connection works as whoever it has named; Busy when they have too many already."""
        with self._guard:
            self._places.require_connection(peer, [one.peer for one in self._connections if one is not connection])
            connection.peer = peer

    def _hang_up_on_silence(self, connection: RpcConnection) -> None:
        if not connection.client:
            self._log_request(connection, "?", "no hello")
            connection.wire.close()

    def _forget_connection(self, connection: RpcConnection) -> None:
        self._alarms.cancel(connection.greeting_alarm)
        with self._guard:
            self._connections.pop(connection, None)

    def _full(self) -> OwlError:
        return Unavailable(f"{self._max_connections} clients are connected already", hint="close one and try again")

    def _refuse_connection(self, wire: Wire) -> None:
        """Say why and wait a moment for its first words: hanging up before they came would lose the reason."""
        try:
            wire.send(jsonrpc.error_frame(None, self._full()))
            wire.wait_at_most(REFUSED_S)
            next(wire.lines(), None)
        except (Lost, OSError):
            pass  # it did not wait, or has nothing to say
        wire.close()
        self._refusing.release()

    def _read_lines(self, connection: RpcConnection) -> None:
        try:
            for line in connection.wire.lines():
                if isinstance(line, TooLarge):
                    self._log_request(connection, "?", line.outcome)
                    connection.wire.send(jsonrpc.error_frame(None, line, jsonrpc.INVALID_REQUEST))
                    continue
                self._receive_line(connection, line)
        except Lost:
            pass  # it hung up while we answered
        finally:
            self._forget_connection(connection)
            for call in list(connection.calls):
                call.cancel.set()
            connection.wire.close()

    def _receive_line(self, connection: RpcConnection, line: bytes) -> None:
        try:
            frame = jsonrpc.decode(line)
        except BadInput as error:
            code = jsonrpc.INVALID_REQUEST if "must be an object" in error.message else jsonrpc.PARSE_ERROR
            self._log_request(connection, "?", error.outcome)
            connection.wire.send(jsonrpc.error_frame(None, error, code))
            return
        request_id, name, params = frame.get("id"), frame.get("method"), frame.get("params", {})
        if not isinstance(name, str) or isinstance(request_id, bool) or not isinstance(request_id, str | int | None):
            bad = BadInput("request needs a method (text) and an id (text or integer)")
            self._log_request(connection, name if isinstance(name, str) else "?", bad.outcome)
            connection.wire.send(jsonrpc.error_frame(None, bad, jsonrpc.INVALID_REQUEST))
            return
        call = ServedCall(connection, request_id, _correlation_of(frame))
        if not isinstance(params, dict):
            self._decline_call(call, name, BadInput(f"params must be an object, got {type(params).__name__}"))
            return
        if name == "cancel":
            running = connection.find(params.get("id"))
            if running is not None:
                running.cancel.set()
            with log.correlated(call.correlation):
                self._log_request(connection, name, "ok")
            call.answer({"cancelled": running is not None})
            return
        if name in BEFORE_HELLO:
            self._serve_call(call, name, params, None)
            return
        if connection.find(request_id) is not None:
            self._decline_call(call, name, Conflict(f"id {request_id!r} is already in use on this connection"))
            return
        try:
            mark = self.table.mark(name)
            default_s = MAX_DEADLINE_S if mark is not None and mark.is_long else self._deadline_s
            limit_s = _limit_s(frame.get("deadline_s"), default_s)
        except BadInput as error:
            self._decline_call(call, name, error)
            return
        self._submit_call(call, name, params, limit_s)

    def _submit_call(self, call: ServedCall, name: str, params: dict[str, Any], limit_s: float) -> None:
        """Serve in the pool, or in its own thread; the deadline counts from now, so that one which waits its turn ends too."""

        def expire() -> None:
            # In a thread of its own: sending to a caller that does not read would hold up every other alarm.
            late = threading.Thread(target=self._expire_call, args=(call, name, limit_s), name=f"{self.name}-late", daemon=True)
            try:
                late.start()
            except RuntimeError as error:
                LOG.error("%s is late and cannot be told: %s", name, error)
                call.has_expired = True
                call.cancel.set()

        with self._guard:
            is_over = self._is_over
            self._running += not is_over
        if is_over:
            call.connection.wire.close()  # it asks again whoever serves next
            return
        mark = self.table.mark(name)
        is_long = mark is not None and mark.is_long
        if is_long and not self._places.take_long(call.peer):
            most = f"{self._max_long} long calls such as {name}, or a person's share of them, are open already"
            self._decline_call(call, name, Busy(most, hint="try again when one of them has ended"))
            self._end_request()
            return
        if not is_long and not self._wait_for_turn(call):
            self._end_request()
            return
        call.connection.calls.add(call)
        alarm = self._alarms.after(limit_s, expire)
        try:
            if is_long:
                work = (call, name, params, alarm)
                threading.Thread(target=self._serve_long, args=work, name=f"{self.name}-long", daemon=True).start()
            else:
                self._pool.submit(self._serve_quick, call, name, params, alarm)
        except RuntimeError as error:
            self._alarms.cancel(alarm)
            call.connection.calls.discard(call)
            if is_long:
                self._places.leave_long(call.peer)
            self._end_request()  # its turn ends when the pool, which keeps it, finds a thread
            why = "is shutting down" if self._is_closing else f"has no room: {error}"
            self._decline_call(call, name, Unavailable(f"{self.name} {why}", hint="try again in a moment"))

    def _serve_long(self, call: ServedCall, name: str, params: dict[str, Any], alarm: int) -> None:
        try:
            self._serve_call(call, name, params, alarm)
        finally:
            self._places.leave_long(call.peer)

    def _serve_quick(self, call: ServedCall, name: str, params: dict[str, Any], alarm: int) -> None:
        try:
            self._serve_call(call, name, params, alarm)
        finally:
            for turns in self._turns_of(call):
                turns.release()

    def _turns_of(self, call: ServedCall) -> list[threading.Semaphore]:
        """What a quick request waits for: one of its connection's turns, and those that others than owners share."""
        return [call.connection.served, *self._places.quick_turns(call.peer)]

    def _wait_for_turn(self, call: ServedCall) -> bool:
        """Read nothing more of this caller until the request can be served; False when we stop meanwhile."""
        taken: list[threading.Semaphore] = []
        for turns in self._turns_of(call):
            while not turns.acquire(timeout=CLOSING_S):
                if self._is_closing:
                    for one in taken:
                        one.release()
                    return False
            taken.append(turns)
        return True

    def _decline_call(self, call: ServedCall, name: str, error: OwlError) -> None:
        """Answer a request that is not run, and log it like the others."""
        with log.correlated(call.correlation):
            self._log_request(call.connection, name, error.outcome, error=error.message)
        call.answer(error=error)

    def _log_request(
        self,
        connection: RpcConnection,
        name: str,
        outcome: str,
        ms: int = 0,
        error: str = "",
        params: object = None,
        result: object = None,
    ) -> None:
        """The log line of a request (A-188), and its row among the latest calls."""
        peer = connection.peer
        who = f"person={peer.person}" if peer.person else f"pid={peer.pid} uid={peer.uid}"
        # A watch that asks twice a minute whether all is well is no news, and would wear the card; nor is one who looks on.
        mark = self.table.mark(name)
        is_watch = connection.client == jsonrpc.WATCHER and name in WATCHED and outcome == "ok"
        is_quiet = is_watch or (name == "ping" and peer.pid == os.getpid()) or (mark is not None and mark.is_quiet)
        sender, name = f"{connection.client or '?'} {who}", name[:MAX_NAME]
        told = {"sender": sender, "operation": name, "result": outcome, "ms": ms}
        LOG.log(logging.DEBUG if is_quiet else logging.INFO, "request", extra=told)
        is_known = connection.client or name == "hello"  # what nobody said hello for is in the log alone
        if self._calls is not None and is_known and not (is_quiet and outcome == "ok"):
            record = CallRecord(now_ms(), sender, name, outcome, ms, log.correlation(), error[:MAX_ERROR])
            self._calls.note(caller_of(peer.person, peer.uid), record, params, result)

    def _serve_call(self, call: ServedCall, name: str, params: dict[str, Any], alarm: int | None) -> None:
        log.correlate(call.correlation)
        started_s, outcome, said, result = monotonic_s(), "ok", "", None
        try:
            # A pool that found no thread keeps the request, which was declined, and hands it to the next free one.
            if not (call.has_expired or call.is_answered):
                result = self._run_method(call, name, params)
                call.answer(result)
        except OwlError as given:
            error = disk_faults.explain_fault(given) or given
            outcome, said = error.outcome, error.message
            call.answer(
                error=error, code=jsonrpc.METHOD_NOT_FOUND if name not in self.table and error.outcome == "not_found" else None
            )
        except Exception as problem:
            if fault := disk_faults.explain_fault(problem):
                outcome, said = fault.outcome, fault.message
                LOG.error("%s failed: %s", name, fault)
                call.answer(error=fault)
                return
            outcome, said = "failed", "failed inside"
            LOG.exception("%s failed", name)
            call.answer(error=OwlError(f"{name} failed inside {self.name}", hint="the log has the details"))
        finally:
            if alarm is not None:
                self._alarms.cancel(alarm)
            is_counted = call in call.connection.calls  # one that was declined, and run all the same, is counted no longer
            call.connection.calls.discard(call)
            if is_counted:
                self._end_request()
            outcome = DeadlineExceeded.outcome if call.has_expired else outcome
            self._log_request(call.connection, name, outcome, round((monotonic_s() - started_s) * 1000), said, params, result)
            log.correlate("")

    def _end_request(self) -> None:
        """A request less runs; with the last one the end comes, if it is waited for."""
        with self._guard:
            self._running -= 1
            is_last = self._end is not None and not self._running
            self._is_over = self._is_over or is_last
        if is_last and self._end is not None:
            self._end()

    def _expire_call(self, call: ServedCall, name: str, deadline_s: float) -> None:
        call.has_expired = True
        call.cancel.set()
        call.answer(error=DeadlineExceeded(f"{name} took longer than {deadline_s:g} s"))

    def _run_method(self, call: ServedCall, name: str, params: dict[str, Any]) -> Any:
        if name == "ping":
            return {"pid": os.getpid(), "name": self.name}
        if name == "discover":
            return {"name": self.name, "version": __version__, **self.table.describe()}
        if name == "hello":
            jsonrpc.check_version(str(params.get("version") or __version__), __version__, "the caller")
            self._take_peer(call.connection, self._gate(call.peer, params) or call.peer)
            call.connection.client = str(params.get("client") or "unnamed")[:MAX_NAME]
            call.connection.context = str(params.get("context") or "")[:MAX_CONTEXT]
            self._alarms.cancel(call.connection.greeting_alarm)
            return {"name": self.name, "version": __version__, "pid": os.getpid(), "zone": self._zone()}
        if not call.connection.client:
            raise Refused(f"say hello before {name}", hint='first request: hello {"client": NAME, "token": TOKEN}')
        if self._calls is not None and name in FORGETTING:
            self._calls.flush()
        return self.table.call(call, name, params)


def _correlation_of(frame: dict[str, Any]) -> str:
    """The caller's correlation id if it is fit for a log line, else a new one."""
    given = frame.get("correlation")
    is_fit = isinstance(given, str) and 0 < len(given) <= MAX_CORRELATION and given.isprintable()
    return str(given) if is_fit else correlation_id()


def _limit_s(given: Any, default_s: float) -> float:
    """How long a request may take; BadInput for what is no number. An alarm set to infinity would break the clock."""
    if given is None:
        return default_s
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        raise BadInput(f"deadline_s must be a number of seconds, got {given!r:.40}")
    return float(min(max(given, 0), MAX_DEADLINE_S))


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
