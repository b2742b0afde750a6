"""A wire that can be cut: a relay on loopback that ends a chosen request after so many bytes, or before its answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOST_ANSWER = -1


class Relay:
    """Passes bytes to a port; `cuts` are words of the next requests that are cut, and after how many bytes of each."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.cuts: list[tuple[bytes, int]] = []
        self.done: list[tuple[bytes, int]] = []
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Listen no more, and hang up."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._port), 10)
                self._open += [near, far]
                is_deaf = threading.Event()
                threading.Thread(target=self._pass_requests, args=(near, far, is_deaf), daemon=True).start()
                threading.Thread(target=self._pass_answers, args=(near, far, is_deaf), daemon=True).start()

    def _pass_requests(self, near: socket.socket, far: socket.socket, is_deaf: threading.Event) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                if self.cuts and self.cuts[0][0] in data:
                    cut = self.cuts.pop(0)
                    self.done.append(cut)
                    if cut[1] != LOST_ANSWER:
                        far.sendall(data[: cut[1]])
                        break
                    is_deaf.set()
                far.sendall(data)
        self._hang_up(near, far)

    def _pass_answers(self, near: socket.socket, far: socket.socket, is_deaf: threading.Event) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                if is_deaf.is_set():
                    break
                near.sendall(data)
        self._hang_up(near, far)

    def _hang_up(self, *ends: socket.socket) -> None:
        for one in ends:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    """One that ends with the block."""
    made = Relay(port)
    try:
        yield made
    finally:
        made.close()
