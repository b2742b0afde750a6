"""The caller's side of the socket: one connection, one request at a time, streamed notifications.

The one client: the command line, the screen, the HTTP server, editors' sessions, workers and the core's way to its broker use it.
The methods, with schemas of their arguments and results, are what `discover` says; a test holds every call of this package
against them. Starts no threads (but one
timer when a call is cancelled). Knows nothing about what the methods mean. Retrying is the caller's business.
"""

import select
import threading
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any

from appliance import __version__
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded, Lost, TooLarge
from appliance.runtime import jsonrpc

CANCEL_GRACE_S = 3.0
CONTEXT = "OWLBOX_CONTEXT"  # for whom an admin acts: user:NAME or group:NAME; --user and --group set it
SSH_KEY = "OWLBOX_SSH_KEY"  # the key that sshd has checked; `owlbox door` sets it
IDENTITY = (("ssh_key", SSH_KEY), ("context", CONTEXT))
STARTING_S = 30.0  # for a core that is just being started: systemd holds its socket, and a Pi reads Python from a card

Notification = tuple[str, dict[str, Any]]


def read_identity(environ: Mapping[str, str]) -> dict[str, str]:
    """What hello says of who is behind this process: the key with which sshd let them in, and for whom an admin acts."""
    return {name: environ[variable] for name, variable in IDENTITY if environ.get(variable)}


def is_for_another(environ: Mapping[str, str]) -> bool:
    """True in a process of `owlbox door`: it works for whoever came in, with rights on files not theirs."""
    return SSH_KEY in environ


class Client:
    """A greeted connection to a core or a broker."""

    def __init__(
        self,
        path: str,
        *,
        name: str,
        token: str = "",
        timeout_s: float = 5.0,
        context: str = "",
        identity: Mapping[str, str] | None = None,
    ) -> None:
        """`context` is that of another person or a group, for an admin who acts for them; `identity` is that of `read_identity`."""
        self.path = path
        self.timeout_s = timeout_s
        self._next_id = 0
        self._hang_up: threading.Timer | None = None
        self._wire = jsonrpc.connect(path, timeout_s)
        try:
            hello = {"client": name, "version": __version__, "token": token, "context": context, **(identity or {})}
            self.server = self.call("hello", hello)
            jsonrpc.check_version(str(self.server.get("version") or __version__), __version__, str(self.server.get("name")))
        except BaseException:
            self._wire.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def is_fresh(self) -> bool:
        """True while the server has not hung up; only between two requests."""
        poll = select.poll()
        try:
            poll.register(self._wire.sock, select.POLLIN)
        except ValueError:
            return False  # it was closed
        return not poll.poll(0)

    def close(self) -> None:
        """Hang up; the server cancels what this connection still had running."""
        self._wire.close()

    def wait_for_end(self) -> None:
        """Block until the server hangs up, or another thread closes this; nothing else may be asked meanwhile."""
        self._wire.wait_at_most(None)
        for _ in self._wire.lines():
            pass

    def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        correlation: str = "",
        idle: tuple[float, Callable[[], None]] | None = None,
    ) -> Any:
        """The method's result; the server's error is raised here as the same class. `idle` is that of `stream`."""
        stream = self.stream(method, params, deadline_s=deadline_s, correlation=correlation, idle=idle)
        while True:
            try:
                next(stream)
            except StopIteration as end:
                return end.value

    def begin(
        self,
        method: str,
        params: dict[str, Any],
        *,
        deadline_s: float,
        correlation: str = "",
        idle: tuple[float, Callable[[], None]] | None = None,
    ) -> Callable[[], Any]:
        """Send a request now; what is returned waits for its result, as `call` does. Nothing else may be asked before."""
        request_id = self._send_request(method, params, deadline_s, correlation)

        def wait() -> Any:
            answers = self._read_answers(method, request_id, deadline_s, idle)
            while True:
                try:
                    next(answers)
                except StopIteration as end:
                    return end.value

        return wait

    def stream(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        correlation: str = "",
        cancel: CancelToken | None = None,
        idle: tuple[float, Callable[[], None]] | None = None,
    ) -> Generator[Notification, None, Any]:
        """Notifications as they come; the generator returns the method's result.

        Setting `cancel` asks the server to stop; the generator then ends with the server's answer, or
        after `CANCEL_GRACE_S` with Cancelled when the server does not even answer that.
        `deadline_s` bounds the whole call; after each `idle` seconds of silence its function is called,
        and an error it raises ends the call.
        """
        request_id = self._send_request(method, params or {}, deadline_s, correlation)
        forget = None if cancel is None else cancel.then(lambda: self._cancel_request(request_id))
        try:
            return (yield from self._read_answers(method, request_id, deadline_s, idle))
        except Lost:
            if cancel is not None and cancel.is_set():
                raise Cancelled("stopped; the other side had not answered yet") from None
            raise
        finally:
            if forget is not None:
                forget()
            self._stop_waiting()

    def _send_request(self, method: str, params: dict[str, Any], deadline_s: float | None, correlation: str) -> int:
        self._next_id += 1
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        if deadline_s is not None:
            frame["deadline_s"] = deadline_s
        if correlation:
            frame["correlation"] = correlation
        self._wire.send(frame)
        return self._next_id

    def _read_answers(
        self, method: str, request_id: int, deadline_s: float | None, idle: tuple[float, Callable[[], None]] | None
    ) -> Generator[Notification, None, Any]:
        limit_s = self.timeout_s if deadline_s is None else deadline_s
        end_s = monotonic_s() + limit_s
        lines = self._wire.lines()
        while True:
            # Two seconds of grace: the server knows the deadline too and its own answer is better.
            left_s = end_s + (0 if deadline_s is None else 2) - monotonic_s()
            self._wire.wait_at_most(max(0.001, left_s if idle is None else min(left_s, idle[0])))
            try:
                line = next(lines, None)
            except TimeoutError:
                lines = self._wire.lines()  # a generator that raised is spent; the wire keeps the bytes
                if idle is not None and left_s > idle[0]:
                    idle[1]()
                    continue
                self.close()
                raise DeadlineExceeded(f"no answer to {method} within {limit_s:g} s", hint="is it overloaded or hung?") from None
            if line is None:
                raise Lost(f"connection lost during {method}", hint="it may be restarting; try again")
            if isinstance(line, TooLarge):
                raise line
            answer = jsonrpc.decode(line)
            if "method" in answer:
                yield str(answer["method"]), dict(answer.get("params") or {})
            elif answer.get("id") == request_id:
                if "error" in answer:
                    jsonrpc.raise_error(answer["error"])
                return answer.get("result")
            elif answer.get("id") is None and "error" in answer:
                jsonrpc.raise_error(answer["error"])  # not about our request: no room for us, or a frame it could not read

    def _cancel_request(self, request_id: int) -> None:
        """Ask the server to stop; hang up when it stays silent, for it may be hung itself."""
        try:
            self._wire.send({"jsonrpc": "2.0", "method": "cancel", "params": {"id": request_id}})
        except Lost:
            return  # the reader sees the lost connection and says so
        self._hang_up = threading.Timer(CANCEL_GRACE_S, self.close)
        self._hang_up.daemon = True
        self._hang_up.start()

    def _stop_waiting(self) -> None:
        if self._hang_up is not None:
            self._hang_up.cancel()
            self._hang_up = None
