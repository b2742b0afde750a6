"""JSON-RPC 2.0 in newline-delimited frames: codec, error mapping, a framed socket.

Standard library only, so the command line starts quickly. Knows nothing about who serves what: the
server side is `runtime.rpc_server`, the caller's side is `runtime.rpc_client`. Two members go beyond the standard, both
optional in a request: `correlation` (UUID v4 that every log line of the work repeats) and
`deadline_s`. Batches are refused.
"""

import errno
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from appliance.errors import BadInput, Lost, NotFound, OwlError, ProviderError, Refused, TooLarge, from_outcome

MAX_MESSAGE = 2000  # characters of an error, which may quote what was wrong
MAX_FRAME_BYTES = 4 * 1024 * 1024
SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
WATCHER = "core-watch"  # what the core calls itself when it only asks whether its broker is well
NOBODY = -1  # the user and group of a caller that the kernel knows nothing of
MAX_PATH_BYTES = 107  # sun_path of Linux, without its final NUL

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, SERVER_ERROR = -32700, -32600, -32601, -32602, -32000


class Peer(NamedTuple):
    """Who is at the other end, as the kernel says; `groups` are the further ones, besides `gid`.

    `person` names somebody who came another way and was authenticated by the server of that way; the kernel knows no user
    for them, so that their `uid` is NOBODY.
    """

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    person: str = ""
    login: str = ""  # the session that the person logged in to, where there is one


def encode(frame: dict[str, Any]) -> bytes:
    """One frame as bytes; TooLarge beyond the limit."""
    data = json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
    if len(data) > MAX_FRAME_BYTES:
        raise TooLarge(f"frame of {len(data)} bytes is over {MAX_FRAME_BYTES}", hint="ask for less at once")
    return data


def decode(line: bytes) -> dict[str, Any]:
    """The object in one frame; BadInput says what is wrong with the bytes."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"frame is not JSON: {error}") from None
    if not isinstance(frame, dict):
        raise BadInput(f"frame must be an object, got {type(frame).__name__}", hint="batches are not supported")
    return frame


def error_frame(request_id: Any, error: OwlError, code: int | None = None) -> dict[str, Any]:
    """The error response for a request."""
    if code is None:
        code = INVALID_PARAMS if isinstance(error, BadInput) else SERVER_ERROR
    message, hint = (text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…" for text in (error.message, error.hint))
    data: dict[str, Any] = {"status": error.status, "outcome": error.outcome, "hint": hint}
    if isinstance(error, ProviderError):
        data |= {"kind": error.kind, "retry_after_s": error.retry_after_s}
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, "data": data}}


def raise_error(error: dict[str, Any]) -> None:
    """Raise what an error response carries, as the same class the server raised."""
    data = error.get("data") or {}
    if error.get("code") == METHOD_NOT_FOUND:
        raise NotFound(str(error.get("message")), hint=str(data.get("hint", "")))
    outcome, message, hint = str(data.get("outcome", "failed")), str(error.get("message")), str(data.get("hint", ""))
    raised = from_outcome(outcome, message, hint)
    if raised.outcome != outcome:  # a label of one's own, which no class has
        raised = (Refused if data.get("status") == Refused.status else OwlError)(message, hint=hint, outcome=outcome)
        raised.status = int(data.get("status") or raised.status)
    if isinstance(raised, ProviderError):
        raised.kind, raised.retry_after_s = data.get("kind", ""), data.get("retry_after_s")
    raise raised


def check_version(other: str, own: str, who: str) -> None:
    """Refused when another process speaks another major version of the methods than we do."""
    if other.partition(".")[0] != own.partition(".")[0]:
        hint = "restart the core after an update, and use the owlbox that belongs to it"
        raise Refused(f"{who} is of version {other:.40}, this is {own}: they do not understand each other", hint=hint)


def check_path(path: str) -> str:
    """A socket path that the kernel accepts, or BadInput with its length and what to do."""
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise BadInput(
            f"socket path is {size} bytes, the kernel allows {MAX_PATH_BYTES}: {path}",
            hint="set RUNTIME_DIRECTORY or XDG_RUNTIME_DIR to a shorter folder",
        )
    return path


def connect(path: str, timeout_s: float = 5.0) -> "Wire":
    """A connection to the socket at `path`; Lost when nobody answers there, Refused when a stranger does."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The kernel's own limit: with Python's, connecting fails at once while the server's queue of callers is full.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _pack_timeval(timeout_s))
        sock.connect(check_path(path))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _pack_timeval(0))
    except OSError as error:
        sock.close()
        raise Lost(f"nothing answers at {path}: {error.strerror or error}", hint="owlbox status shows what is running") from None
    except BaseException:
        sock.close()
        raise
    wire = Wire(sock)
    try:
        _check_server(path, wire.peer().uid)
    except BaseException:
        wire.close()
        raise
    return wire


def _pack_timeval(seconds: float) -> bytes:
    """A time as the kernel's struct timeval; 0 is no limit."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


def _check_server(path: str, uid: int) -> None:
    """Refused unless the server is us, root (systemd listens for our services), or whoever the socket's folder belongs to."""
    if uid in (os.getuid(), 0):
        return
    try:
        owners = {os.stat(path).st_uid, os.stat(os.path.dirname(path) or ".").st_uid}
    except OSError as error:
        raise Lost(f"nothing answers at {path}: {error.strerror}") from None
    if uid not in owners or not owners <= {uid, 0}:
        raise Refused(f"user {uid} answers at {path}, which is not theirs", hint="another user made that socket; remove it")


class Wire:
    """A connected socket that speaks frames. Sending is safe from several threads, reading from one."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._skipped = 0  # bytes of an oversized frame that were thrown away already
        self._guard = threading.Lock()
        self._users = 0  # threads that may be in a call of the socket
        self._is_closed = False

    def peer(self) -> Peer:
        """Process, user and groups at the other end when it connected (SO_PEERCRED, SO_PEERGROUPS)."""
        pid, uid, gid = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        try:
            raw = self.sock.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 1024)  # the most that Python allows
        except OSError:
            raw = b""  # more than 256 groups
        return Peer(pid, uid, gid, struct.unpack(f"{len(raw) // 4}I", raw))

    def send(self, frame: dict[str, Any]) -> None:
        """Send one frame whole; Lost when the other end is gone."""
        data = encode(frame)
        try:
            with self._sending, self._use_socket():
                self.sock.sendall(data)
        except OSError as error:
            self.close()
            raise Lost(f"connection lost while sending: {error.strerror or error}") from None

    def wait_at_most(self, seconds: float | None) -> None:
        """Set the timeout of `lines` from now on, None for none.

        On a wire that was closed meanwhile that says nothing, its end comes by itself.
        """
        try:
            with self._use_socket():
                self.sock.settimeout(seconds)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise

    def lines(self) -> Iterator[bytes | TooLarge]:
        """Frames as bytes until the other end closes; an oversized one comes as the error to answer with.

        A cut-off last frame is dropped. TimeoutError passes through when the socket has a timeout.
        """
        while True:
            end = self._buffer.find(b"\n")
            while end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                if self._skipped or len(line) > MAX_FRAME_BYTES:
                    size, self._skipped = self._skipped + len(line), 0
                    yield TooLarge(f"frame of {size} bytes is over {MAX_FRAME_BYTES}")
                elif line.strip():
                    yield line
                end = self._buffer.find(b"\n")
            if len(self._buffer) > MAX_FRAME_BYTES:
                self._skipped += len(self._buffer)
                self._buffer.clear()
            try:
                with self._use_socket():
                    data = self.sock.recv(65536)
            except TimeoutError:
                raise
            except OSError as error:
                if error.errno in (errno.ECONNRESET, errno.EBADF, errno.ENOTCONN, errno.EPIPE):
                    return
                raise
            if not data:
                return
            self._buffer += data

    def close(self) -> None:
        """Close for good; a reader blocked in another thread sees the end."""
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other end closed first
            self._let_go()

    @contextmanager
    def _use_socket(self) -> Iterator[None]:
        """Keeps the socket's number while a call is on its way into the kernel: another socket that got it would be waited for."""
        with self._guard:
            if self._is_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._users += 1
        try:
            yield
        finally:
            with self._guard:
                self._users -= 1
                self._let_go()

    def _let_go(self) -> None:
        if self._is_closed and not self._users:
            self.sock.close()
