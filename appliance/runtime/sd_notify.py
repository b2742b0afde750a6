"""What systemd and a service say to each other: readiness, state, the watchdog, sockets handed over.

Speaks through systemd-python when it is installed, as in images, else over the datagram socket itself (sd_notify(3),
sd_listen_fds(3)). Without systemd every call does nothing. Knows nothing about what a service does; it
never says "alive" by itself, only when the caller's main thread asks and its own socket answers.
"""

import contextlib
import faulthandler
import logging
import os
import pwd
import socket
from collections.abc import Mapping

from appliance.clock import monotonic_s
from appliance.errors import DeadlineExceeded, Lost, OwlError
from appliance.runtime import jsonrpc

try:
    from systemd import daemon  # type: ignore[attr-defined,unused-ignore]
except ImportError:  # also in a checkout, whose folder systemd/ is found but has no such module
    daemon = None

LOG = logging.getLogger(__name__)
FIRST_FD = 3
# Meant for the process systemd started: a child of ours must not see them.
PRIVATE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "JOURNAL_STREAM")


class Notifier:
    """This process's word to systemd; `interval_s` is how often `pulse` is due, None when nobody watches."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._is_own = self._address == os.environ.get("NOTIFY_SOCKET")
        self.interval_s = _interval_s(environ)
        if self.interval_s is not None:
            # The watchdog ends a hung service with SIGABRT: leave every thread's stack in the journal.
            with contextlib.suppress(OSError, ValueError):
                faulthandler.enable()

    def ready(self, status: str) -> None:
        """The service is up: its socket answers."""
        self._send_lines("READY=1", _status_line(status))

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send_lines(_status_line(status))

    def reloading(self) -> None:
        """The configuration is being read again; `ready` says when that is over."""
        self._send_lines("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_s() * 1_000_000)}")

    def stopping(self, reason: str) -> None:
        """The orderly end has begun."""
        self._send_lines("STOPPING=1", _status_line(f"stopping: {reason}"))

    def pulse(self, path: str) -> bool:
        """Say that we live if the socket at `path` answers; call it from the thread that must not hang."""
        try:
            ping(path, min(5.0, self.interval_s or 5.0))
        except (Lost, DeadlineExceeded) as error:
            LOG.error("our own socket does not answer, the watchdog is not told that we live: %s", error)
            return False
        self._send_lines("WATCHDOG=1")
        return True

    def _send_lines(self, *lines: str) -> None:
        if not self._address:
            return
        text = "\n".join(lines)
        # "@" stands for the zero byte that begins the name of an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            if daemon is not None and self._is_own:
                daemon.notify(text)
                return
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(2)
                sock.connect(address)
                sock.sendall(text.encode("utf-8", "replace"))
        except OSError as error:
            LOG.warning("systemd was not told %s: %s", lines[0], error.strerror or error)


def given_socket(environ: Mapping[str, str]) -> socket.socket | None:
    """The listening socket systemd opened for us, None when it opened none; OwlError when it is not one of ours."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = environ.get("LISTEN_FDS", "")
    if count in ("", "0"):
        return None
    if count != "1":
        raise OwlError(f"systemd handed over {count} sockets, one is expected", hint="check the .socket units")
    os.set_inheritable(FIRST_FD, False)
    sock = socket.socket(fileno=FIRST_FD)
    is_right = sock.family == socket.AF_UNIX and sock.type == socket.SOCK_STREAM
    if not is_right or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        raise OwlError("the socket from systemd is not a listening Unix stream socket", hint="use ListenStream=/run/...")
    return sock


def ping(path: str, limit_s: float) -> None:
    """Return when a listener at `path` says anything at all; Lost or DeadlineExceeded when it does not."""
    wire = jsonrpc.connect(path, limit_s)
    try:
        wire.sock.settimeout(limit_s)
        wire.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        if next(wire.lines(), None) is None:
            raise Lost(f"{path} hung up instead of answering")
    except TimeoutError:
        raise DeadlineExceeded(f"{path} did not answer a ping within {limit_s:g} s") from None
    finally:
        wire.close()


def is_service(environ: Mapping[str, str]) -> bool:
    """True when systemd reads this process's output, so that the log belongs in the journal."""
    return "NOTIFY_SOCKET" in environ and "JOURNAL_STREAM" in environ


def user_id(name: str) -> int:
    """The id of a user named in a unit."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise OwlError(f"there is no user {name}", hint="systemd-sysusers makes the users of the units") from None


def _interval_s(environ: Mapping[str, str]) -> float | None:
    """Half the time after which systemd takes us for hung."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 2_000_000 if text.isdecimal() and int(text) > 0 else None


def _status_line(status: str) -> str:
    return "STATUS=" + " ".join(status.split())
