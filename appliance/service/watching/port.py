"""A port of this machine alone that answers /metrics and /health, for programs that cannot use the local socket.

Speaks as much HTTP as that takes: one GET a connection, nothing of it is kept. Requests by another name than this machine's are
refused, so that no page of a browser reads the figures. Open only when `metrics.port` says so.
"""

import logging
import socket
import threading
from collections.abc import Callable, Mapping

from appliance.errors import OwlError, Unavailable

LOG = logging.getLogger(__name__)
HERE = "127.0.0.1"
REQUEST_BYTES, WAIT_S = 4096, 5.0
NAMES = (HERE, "localhost", "[::1]")
Answer = Callable[[], tuple[int, str]]
REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Port:
    """The listening port; `pages` are functions that give a status and a text, by path."""

    def __init__(self, number: int, pages: Mapping[str, Answer]) -> None:
        self._number = number
        self._pages = pages
        self._listener: socket.socket | None = None

    def open(self) -> int:
        """Listen from now on; the number of the port."""
        try:
            self._listener = socket.create_server((HERE, self._number), backlog=8)
        except OSError as error:
            message = f"metrics.port {self._number} cannot be opened: {error.strerror}"
            raise Unavailable(message, hint="another program has it: owlbox config set metrics.port NUMBER") from None
        threading.Thread(target=self._serve, args=(self._listener,), name="metrics-port", daemon=True).start()
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed
            with connection:
                connection.settimeout(WAIT_S)
                try:
                    status, text = self._answer(connection.recv(REQUEST_BYTES).decode("latin-1"))
                    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    body = text.encode()
                    connection.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                except OSError:
                    continue  # who asked has left, or said nothing

    def _answer(self, request: str) -> tuple[int, str]:
        first, *headers = request.split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return 400, "this is no HTTP request\n"
        hosts = [line.partition(":")[2].strip().lower() for line in headers if line.lower().startswith("host:")]
        if hosts and (hosts[0].rpartition(":")[0] or hosts[0]) not in NAMES and hosts[0] not in NAMES:
            return 403, "only by a name of this machine\n"
        if words[0] != "GET":
            return 405, "only GET\n"
        page = self._pages.get(words[1].partition("?")[0])
        if page is None:
            return 404, f"there are {', '.join(self._pages)}\n"
        try:
            return page()
        except OwlError as error:
            LOG.error("metrics could not be read: %s", error)
            return 503, f"{error.message}\n"
