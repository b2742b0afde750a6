"""One connection that never outlives its deadline: connect, TLS, send and read, each ended by time or a stop sign.

Sockets are not blocking; every wait ends at the deadline and looks at the stop sign meanwhile, so that a server that
sends a byte now and then cannot hold anybody. Certificates are always verified. Knows nothing about HTTP, names, nor
which addresses may be reached.
"""

import errno
import io
import os
import select
import socket
import ssl
from pathlib import Path

from appliance.errors import DeadlineExceeded, TooLarge
from appliance.web.dns import SLICE_S, Deadline


def trust(authorities: Path | None = None) -> ssl.SSLContext:
    """Who may vouch for a server: the system's authorities, those that come with requests where it has none, and a file's."""
    context = ssl.create_default_context()
    known = [Path(path) for path in ssl.get_default_verify_paths()[:2] if path]
    if not any(path.is_file() or any(path.iterdir()) for path in known):
        import certifi  # hardly any system needs it

        context.load_verify_locations(certifi.where())
    if authorities is not None:
        context.load_verify_locations(authorities)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class Wire(io.RawIOBase):
    """A connection to one address. `makefile` makes it what http.client takes for a socket."""

    def __init__(self, address: str, port: int, deadline: Deadline, try_s: float | None = None) -> None:
        """Connect, within `try_s` if it is given; OSError when nobody answers there."""
        super().__init__()
        self._deadline = deadline if try_s is None else deadline.within(try_s)
        self._allowed_bytes: int | None = None
        self._socket: socket.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            code = self._socket.connect_ex((address, port))
            if code == errno.EINPROGRESS:
                self._wait(select.POLLOUT)
                code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self._deadline = deadline
        except DeadlineExceeded:
            self.close()
            deadline.left_s()
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        except BaseException:
            self.close()
            raise

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from here on, with a server whose certificate is for `host`; ssl.SSLError otherwise."""
        secured = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
        self._socket = secured
        while True:
            try:
                secured.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)

    def send_all(self, data: bytes) -> None:
        """Send everything."""
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except (ssl.SSLWantWriteError, BlockingIOError):
                self._wait(select.POLLOUT)

    def allow(self, size_bytes: int | None) -> None:
        """From here on so many bytes may come, or any number: TooLarge for more."""
        self._allowed_bytes = size_bytes

    def makefile(self, mode: str) -> io.BufferedReader:
        """The connection as a file to read."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Some bytes, 0 at the end."""
        while True:
            self._deadline.left_s()  # a server that is always ready does not get around it
            try:
                count = self._socket.recv_into(buffer)
            except (ssl.SSLWantReadError, BlockingIOError):
                self._wait(select.POLLIN)
                continue
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
                continue
            if self._allowed_bytes is not None:
                self._allowed_bytes -= count
                if self._allowed_bytes < 0:
                    raise TooLarge(f"{self._deadline.what}: the server sends more than it may", hint="fetch another page")
            return count

    def close(self) -> None:
        """End the connection at once."""
        self._socket.close()
        super().close()

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        while not poll.poll(1000 * min(SLICE_S, self._deadline.left_s())):
            pass
