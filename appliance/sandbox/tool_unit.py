"""Carries an order to the tool unit and its output back: both ends of the socket between core and tool.

systemd holds the socket, lets only the core's user open it, and starts one `owlbox-tool@.service` for each
connection, as a user that owns nothing. That process runs `main` here: it takes one order, carries it out with
`sandbox.runner` and ends. Lines of JSON: the order; then "taken", pieces of output as they come, and "done" or
"error". Whoever hangs up, or stops sending, cancels. Not taken is safe to try again, taken is not.
"""

import base64
import contextlib
import json
import os
import pwd
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.clock import monotonic_s
from appliance.errors import BadInput, OwlError, Refused, Unavailable, from_outcome
from appliance.sandbox import bubblewrap, control_group, landlock, runner
from appliance.sandbox.bubblewrap import Bind, Execution, Limits, SandboxOrder

if TYPE_CHECKING:
    from appliance.records import Cancel  # brings msgspec, which the tool unit would load for every call

Show = Callable[[int, bytes], None]
LOOK_S = 0.05
TAKE_S = 20.0  # starting a unit on a busy small box
GRACE_S = 30.0  # beyond an order's own time: making the sandbox and ending it
MAX_LINE_BYTES = 64 << 20
USER = "owlbox-tool"


# -- the core's end ---------------------------------------------------------------------------------


def send(path: Path, order: SandboxOrder, core: str, cancel: "Cancel", show: Show | None = None) -> Execution:
    """Have the tool unit carry out an order; Unavailable with outcome not_started when it never took it."""
    if order.folder is not None:
        _share_folder(order.folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
        began_s = monotonic_s()
        try:
            sock.settimeout(TAKE_S)
            sock.connect(str(path))
            sock.sendall(_json_line({"order": _pack_order(order), "core": core}))
        except OSError as error:
            message, hint = f"the tool unit does not answer at {path}: {error}", "systemctl status owlbox-tool.socket"
            raise Unavailable(message, hint=hint, outcome=runner.NOT_STARTED) from error
        return _Reply(sock, order, began_s, show).wait(cancel)


class _Reply:
    """The response to one order."""

    def __init__(self, sock: socket.socket, order: SandboxOrder, began_s: float, show: Show | None) -> None:
        self._sock = sock
        self._order = order
        self._began_s = began_s
        self._show = show
        self._streams = {1: bytearray(), 2: bytearray()}
        self._is_taken = False

    def wait(self, cancel: "Cancel") -> Execution:
        """Read until it is over; the unit ends the command in time, and we do not wait for ever if it does not."""
        is_told = False
        for frame in _read_frames(self._sock):
            if frame is None:
                if cancel.is_set() and not is_told:
                    is_told = True
                    with contextlib.suppress(OSError):
                        self._sock.shutdown(socket.SHUT_WR)
                self._check_time()
            elif "error" in frame:
                raise _error_of(frame["outcome"], frame["error"], frame["hint"])
            elif "done" in frame:
                return self._build_execution(**frame["done"])
            elif "taken" in frame:
                self._is_taken = True
            else:
                data = base64.b64decode(frame["data"])
                self._streams[frame["stream"]] += data
                if self._show is not None:
                    self._show(frame["stream"], data)
        if not self._is_taken:
            raise Unavailable("the tool unit hung up", hint="journalctl -u 'owlbox-tool@*'", outcome=runner.NOT_STARTED)
        return self._end_lost("the tool unit ended before the command did")

    def _check_time(self) -> None:
        passed_s = monotonic_s() - self._began_s
        if not self._is_taken and passed_s > TAKE_S:
            raise Unavailable(f"the tool unit has not begun within {TAKE_S:g} s", outcome=runner.NOT_STARTED)
        if passed_s > self._order.limits.timeout_s + TAKE_S + GRACE_S:
            raise Unavailable("the tool unit does not end", hint="journalctl -u 'owlbox-tool@*'")

    def _build_execution(self, **told: Any) -> Execution:
        out, err = (bytes(stream) for stream in self._streams.values())
        return Execution(self._order.execution, stdout=out, stderr=err, **told)

    def _end_lost(self, error: str) -> Execution:
        duration_ms = round(1000 * (monotonic_s() - self._began_s))
        return self._build_execution(status="failed", exit_code=-1, duration_ms=duration_ms, error=error, is_cut=False)


def _error_of(outcome: str, message: str, hint: str) -> OwlError:
    if outcome == runner.NOT_STARTED:
        return Unavailable(message, hint=hint, outcome=outcome)
    return from_outcome(outcome, message, hint)


def _share_folder(folder: Path) -> None:
    """Let the tool's user write to a folder and reach it; that its group is the tool's is inherited (tmpfiles.conf)."""
    for path, mode in ((folder, 0o770), (folder.parent, 0o710)):
        info = path.stat()
        if info.st_uid == os.geteuid() and info.st_mode & mode != mode:
            path.chmod(mode)


def user_id() -> int:
    """The id of the user the tool unit runs as, -1 where there is none."""
    try:
        return pwd.getpwnam(USER).pw_uid
    except KeyError:
        return -1


# -- the tool's end ---------------------------------------------------------------------------------


def main() -> int:
    """Carry out the one order that comes over standard input, a socket; the program of owlbox-tool@.service."""
    with socket.socket(fileno=os.dup(0)) as sock:
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        try:
            check_peer(sock, os.environ.get("OWLBOX_CORE_USER", ""))
            order, core = _receive_order(sock)
            bubblewrap.check(order)
            if reason := bubblewrap.missing():
                raise Unavailable(reason, outcome=runner.NOT_STARTED)
            answer: dict[str, Any] = {"done": _carry_out(sock, order, core)}
        except OwlError as error:
            answer = {"error": error.message, "outcome": error.outcome, "hint": error.hint}
        except ConnectionError:
            return 1  # nobody is left to be told
        with contextlib.suppress(OSError):
            sock.sendall(_json_line(answer))
    return 0


def _carry_out(sock: socket.socket, order: SandboxOrder, core: str) -> dict[str, Any]:
    sock.sendall(_json_line({"taken": order.execution}))
    caller = _Caller(sock)
    means = runner.Means(core, landlock.version(), control_group.find())
    done = asdict(runner.run(order, means, caller, caller.show))
    return {name: done[name] for name in ("status", "exit_code", "duration_ms", "error", "is_cut")}


class _Caller:
    """The core, as long as it is there: gone or no longer sending means cancel."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._is_gone = False

    def is_set(self) -> bool:
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_gone:
            # Nothing more is ever sent to us: whatever can be read is the end.
            self._is_gone = bool(self._poll.poll(None if timeout is None else 1000 * timeout))
        return self._is_gone

    def show(self, stream: int, data: bytes) -> None:
        """Send a piece of output on."""
        try:
            self._sock.sendall(_json_line({"stream": stream, "data": base64.b64encode(data).decode()}))
        except OSError:
            self._is_gone = True


def check_peer(sock: socket.socket, user: str) -> None:
    """Refused unless the kernel says that the core's user is calling; without a name, our own."""
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    try:
        wanted = pwd.getpwnam(user).pw_uid if user else os.geteuid()
    except KeyError:
        raise Refused(f"there is no user {user}", hint="OWLBOX_CORE_USER in owlbox-tool@.service") from None
    if uid != wanted:
        raise Refused(f"user {uid} may not have tools run")


def _receive_order(sock: socket.socket) -> tuple[SandboxOrder, str]:
    sock.settimeout(TAKE_S)
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = sock.recv(1 << 16)
        if not piece or len(data) > MAX_LINE_BYTES:
            raise BadInput("no whole order came")
        data += piece
    try:
        raw = json.loads(data)
        return _unpack_order(raw["order"]), str(raw["core"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"an order that cannot be read: {error}") from error


# -- what both know -------------------------------------------------------------------------------


def _pack_order(order: SandboxOrder) -> dict[str, Any]:
    raw = asdict(order)
    raw["stdin"] = base64.b64encode(order.stdin).decode()
    raw["files"] = {path: base64.b64encode(content).decode() for path, content in order.files.items()}
    raw["folder"] = str(order.folder) if order.folder is not None else ""
    raw["binds"] = [{**bind, "source": str(bind["source"])} for bind in raw["binds"]]
    raw["environ"] = dict(order.environ)
    return raw


def _unpack_order(raw: dict[str, Any]) -> SandboxOrder:
    return SandboxOrder(
        **{
            **raw,
            "argv": tuple(raw["argv"]),
            "stdin": base64.b64decode(raw["stdin"]),
            "files": {path: base64.b64decode(content) for path, content in raw["files"].items()},
            "folder": Path(raw["folder"]) if raw["folder"] else None,
            "binds": tuple(Bind(**{**bind, "source": Path(bind["source"])}) for bind in raw["binds"]),
            "limits": Limits(**raw["limits"]),
        }
    )


def _json_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _read_frames(sock: socket.socket) -> Iterator[dict[str, Any] | None]:
    """Every frame that comes, and None whenever none came for a moment; ends when the other end hangs up."""
    sock.settimeout(LOOK_S)
    data = bytearray()
    while True:
        try:
            piece = sock.recv(1 << 16)
        except TimeoutError:
            yield None
            continue
        except OSError:
            return
        if not piece:
            return
        data += piece
        while (end := data.find(b"\n")) >= 0:
            frame = json.loads(bytes(data[:end]))
            del data[: end + 1]
            yield frame
        yield None  # a stream without end must not keep a cancel from being seen


if __name__ == "__main__":
    sys.exit(main())
