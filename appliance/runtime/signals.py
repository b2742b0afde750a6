"""Signals as something to wait for, in the main thread of a process.

Through the wake-up descriptor, which is written when a signal comes: a handler that fills a queue may be
called too late when it comes just before the wait, and the core slept on (2026-11-21). Knows nothing about
what a signal means to whoever waits.
"""

import signal
import socket
from collections.abc import Iterable

RUNG = 0  # no signal has this number


class Signals:
    """These signals no longer end the process; `wait` tells of them."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._before = {number: signal.signal(number, lambda number, frame: None) for number in numbers}
        self._fd_before = signal.set_wakeup_fd(self._wake_sender.fileno(), warn_on_full_buffer=False)

    def wait(self, limit_s: float | None) -> int | None:
        """The next signal's number, `RUNG` when another thread rang; None when there is none in time."""
        self._wake_receiver.settimeout(limit_s)
        try:
            return self._wake_receiver.recv(1)[0]
        except (TimeoutError, BlockingIOError):
            return None

    def ring(self) -> None:
        """Wake whoever waits; from any thread."""
        try:
            self._wake_sender.send(bytes([RUNG]))
        except OSError:
            pass  # full of things to wake up for, or nobody waits any more

    def close(self) -> None:
        """Signals do again what they did before."""
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._wake_sender.close()
        self._wake_receiver.close()
