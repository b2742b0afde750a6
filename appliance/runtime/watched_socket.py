"""Sockets that never outlive a deadline: connection, handshake, sending and reading, each ended by time or cancellation.

Every wait is made of short slices, so that a server that sends a byte now and then holds nobody, nor does one that is
always ready; or of one slice, which a cancellation ends together with the connection. Certificates and names are always
verified. Knows nothing about HTTP, nor which addresses may be reached.
"""

import errno
import math
import os
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import DeadlineExceeded, HttpError, TooLarge
from appliance.runtime.host_lookup import SLICE_S, Deadline

TRY_S = 5.0  # for one of several addresses
PART_BYTES = 1 << 16

T = TypeVar("T")


class ConnectionWatch:
    """What a connection may still do: its deadline, and how many bytes may come, None for any number."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.allowed_bytes: int | None = None

    def in_time(self, sock: socket.socket, act: Callable[[], T]) -> T:
        """What `act` returns, which waits on the socket: in slices, so that time and cancellation are noticed."""
        deadline = self.deadline
        if math.isinf(deadline.slice_s) and isinstance(deadline.cancel, CancelToken):
            return _until_cancelled(sock, deadline, deadline.cancel, act)
        silent_s = monotonic_s() + deadline.silence_s
        while True:
            sock.settimeout(min(deadline.slice_s, deadline.left_s()))
            try:
                return act()
            except TimeoutError:
                if monotonic_s() < silent_s:
                    continue
            raise HttpError(f"{self.deadline.what}: silent for {self.deadline.silence_s:g} s", stage="silence", hint="try again")

    def count(self, size: int) -> None:
        """So many bytes came; TooLarge when these are more than may."""
        if self.allowed_bytes is not None:
            self.allowed_bytes -= size
            if self.allowed_bytes < 0:
                raise TooLarge(f"{self.deadline.what}: the server sends more than it may", hint="ask another server")


def _until_cancelled(sock: socket.socket, deadline: Deadline, cancel: CancelToken, act: Callable[[], T]) -> T:
    """What `act` returns in one wait; Cancelled, and the connection is of no use any more, when the token is set meanwhile."""
    sock.settimeout(deadline.left_s())
    forget = cancel.then(partial(_end_connection, sock))
    try:
        found = act()
    except TimeoutError:
        raise DeadlineExceeded(f"{deadline.what} took too long", hint="allow more time") from None
    except OSError:
        deadline.left_s()  # it failed because we ended it
        raise
    finally:
        forget()
    deadline.left_s()  # nothing came because we ended it
    return found


def _end_connection(sock: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of TLS, which another thread is in the middle of


class Watched(socket.socket):
    """A socket whose every wait is watched, once there is a watch."""

    watch: ConnectionWatch | None = None

    def recv_into(self, buffer: Any, nbytes: int | None = 0, flags: int = 0) -> int:
        """Some bytes, 0 at the end."""
        receive = super().recv_into
        size = nbytes or memoryview(buffer).nbytes
        if self.watch is None:
            return receive(buffer, size, flags)
        count = self.watch.in_time(self, lambda: receive(buffer, size, flags))
        self.watch.count(count)
        return count

    def recv(self, bufsize: int = PART_BYTES, flags: int = 0) -> bytes:
        """Some bytes, none at the end."""
        receive = super().recv
        return receive(bufsize, flags) if self.watch is None else self.watch.in_time(self, lambda: receive(bufsize, flags))

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send everything."""
        left = memoryview(data).cast("B")
        while left:
            send = partial(super().send, left[:PART_BYTES], flags)
            left = left[send() if self.watch is None else self.watch.in_time(self, send) :]


class WatchedTls(Watched, ssl.SSLSocket):
    """The same with TLS."""


class WatchedContext(ssl.SSLContext):
    """What makes such sockets; the handshake is watched too."""

    sslsocket_class = WatchedTls

    def wrap_socket(self, sock: socket.socket, *args: Any, **named: Any) -> ssl.SSLSocket:
        """Speak TLS on a connected socket."""
        watch = sock.watch if isinstance(sock, Watched) else None
        made = super().wrap_socket(sock, *args, **{**named, "do_handshake_on_connect": False})
        assert isinstance(made, WatchedTls) and watch is not None
        made.watch = watch
        try:
            watch.in_time(made, made.do_handshake)
        except BaseException:
            made.close()
            raise
        return made


def trusting(authorities: Path | None, *, only_these: bool) -> WatchedContext:
    """Who may vouch for a server: the system's authorities, certifi's where it has none, and a file's."""
    context = WatchedContext(ssl.PROTOCOL_TLS_CLIENT)  # which verifies certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not only_these:
        context.load_default_certs()
        known = [Path(path) for path in ssl.get_default_verify_paths()[:2] if path]
        if not any(path.is_file() or (path.is_dir() and any(path.iterdir())) for path in known):
            import certifi  # hardly any system needs it

            context.load_verify_locations(certifi.where())
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except OSError as error:
            raise HttpError(f"{authorities}: {error.strerror or error}", stage="authorities", why=str(authorities)) from None
    return context


def dial(addresses: Sequence[str], port: int, watch: ConnectionWatch) -> socket.socket:
    """A connection to the first address that takes it; OSError of the last that did not."""
    failure = OSError("no address")
    for i, address in enumerate(addresses):
        deadline = watch.deadline if i == len(addresses) - 1 else watch.deadline.within(TRY_S)
        made = Watched(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            code = made.connect_ex((address, port))
            if code == errno.EINPROGRESS:
                poll = select.poll()
                poll.register(made, select.POLLOUT)
                while not poll.poll(1000 * min(SLICE_S, deadline.left_s())):
                    pass
                code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.watch = watch
                return made
            failure = OSError(code, os.strerror(code))
        except DeadlineExceeded:
            made.close()
            watch.deadline.left_s()
            failure = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            continue
        except BaseException:
            made.close()
            raise
        made.close()
    raise failure
