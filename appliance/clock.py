"""Time and identity: the only module that reads the clock, makes ids, or names this process.

Times are integer milliseconds since 1970 (UTC); deadlines use the monotonic clock, so a clock that
jumps (a Pi has no battery) never fires them early. Ids are UUID version 7: they sort by creation, to
the millisecond.
"""

import heapq
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

UTC_NAMES = ("UTC", "GMT", "Z")
ZONES = "/usr/share/zoneinfo"  # where the C library looks


def now_ms() -> int:
    """Wall clock in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds on a clock that never jumps; only differences mean anything."""
    return time.monotonic()


def up_ms() -> int:
    """Milliseconds since the machine started, with those that it slept: what the wall clock is compared with."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def sleep_s(seconds: float) -> None:
    """Block this thread; waits that must be interruptible use an Event instead."""
    time.sleep(seconds)


def iso(at_ms: int) -> str:
    """UTC time stamp such as 2026-11-21T22:23:00.123Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000)) + f".{at_ms % 1000:03d}Z"


def local_time(at_ms: int) -> str:
    """A moment as people read it in the zone of this process, such as 2026-11-21 23:23:00."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def use_zone(name: str) -> bool:
    """Show moments in this zone from now on: an IANA name, UTC or +HH:MM; "local" is that of the machine.

    False for a name that the machine does not know: moments are shown in UTC then.
    """
    if name in ("", "local"):
        return True
    if name[0] in "+-":
        name = f"<{name.replace(':', '')}>{'-' if name[0] == '+' else '+'}{name[1:]}"  # POSIX counts westwards
    is_offset = name[0] == "<"
    is_known = is_offset or name.upper() in UTC_NAMES or os.path.isfile(os.path.join(os.environ.get("TZDIR") or ZONES, name))
    name = name if is_known else "UTC"
    if os.environ.get("TZ") != name:
        os.environ["TZ"] = name
        time.tzset()
    return is_known


def local_hms() -> str:
    """The local time of day such as 23:04:59."""
    return time.strftime("%H:%M:%S")


def new_id() -> str:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
    return _uuid((now_ms() << 80) | int.from_bytes(os.urandom(10), "big"), 7)


def correlation_id() -> str:
    """A random UUID version 4, one per inbound request (A-271)."""
    return _uuid(int.from_bytes(os.urandom(16), "big"), 4)


def _uuid(value: int, version: int) -> str:
    """The text of a UUID; by hand, because importing uuid costs as much as the rest of this module."""
    value = (value & ~(0xF << 76)) | (version << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Process(NamedTuple):
    """A process that cannot be confused with a later one: boot, pid and start time in clock ticks."""

    boot_id: str
    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """True while exactly this process (not a reused pid, not one before a reboot) exists."""
        return self.boot_id == boot_id() and self.start_ticks >= 0 and _start_ticks(self.pid) == self.start_ticks

    def encode(self) -> str:
        """The text kept in `process` columns."""
        return f"{self.boot_id}/{self.pid}/{self.start_ticks}"


def is_alive(process: str) -> bool:
    """True while the process that `Process.encode` described still exists; False for ""."""
    boot, _, rest = process.partition("/")
    pid, _, ticks = rest.partition("/")
    return bool(ticks) and Process(boot, int(pid), int(ticks)).is_alive()


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process(pid: int) -> Process:
    """The identity of a process that exists now; of one that is gone already, an identity that is never alive."""
    return Process(boot_id(), pid, _start_ticks(pid))


def this_process() -> Process:
    """The identity of the calling process."""
    return process(os.getpid())


def _start_ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    # The command name may contain spaces and brackets: count fields after the last ')'.
    fields = stat.rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


class CancelToken(threading.Event):
    """A stop sign that can also run callbacks when it is set, so a thread blocked elsewhere can be woken."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def then(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` once, when the token is set, or at once if it already is. Returns what forgets it again.

        Whoever does one thing of many under a token that lives longer forgets it at the end: it keeps what it refers to.
        """
        with self._guard:
            if not self.is_set():
                self._callbacks.append(callback)
                return lambda: self._forget(callback)
        callback()
        return _nothing

    def _forget(self, callback: Callable[[], None]) -> None:
        with self._guard:
            self._callbacks = [one for one in self._callbacks if one is not callback]

    def set(self) -> None:
        """Set the sign; callbacks run in the calling thread, first come first served."""
        with self._guard:
            super().set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def _nothing() -> None:
    """There is nothing to forget."""


class Alarms:
    """Calls functions at moments in the future from one thread that sleeps exactly until the next one.

    With nothing due the thread is parked: no polling. Callbacks must be quick; one that raises is reported
    by `threading.excepthook`, and the alarms after it still ring.
    """

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._next = 0
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, callback: Callable[[], None]) -> int:
        """Call `callback` in `seconds`; returns a handle for `cancel`."""
        with self._wake:
            self._next += 1
            heapq.heappush(self._heap, (monotonic_s() + seconds, self._next, callback))
            if self._thread is None:
                self._start()
            if self._heap[0][1] == self._next:  # else the thread sleeps on: every request sets an alarm that never rings
                self._wake.notify()
            return self._next

    def cancel(self, handle: int) -> None:
        """Forget an alarm; one that already rang is ignored."""
        with self._wake:
            live = [entry for entry in self._heap if entry[1] != handle]
            if len(live) != len(self._heap):
                self._heap = live
                heapq.heapify(self._heap)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                self._next_due()()
        finally:
            self._start()  # a callback raised, which ends this thread

    def _next_due(self) -> Callable[[], None]:
        """Wait for the next alarm and take it."""
        with self._wake:
            while True:
                while not self._heap:
                    self._wake.wait()
                due, _, callback = self._heap[0]
                wait = due - monotonic_s()
                if wait <= 0:
                    heapq.heappop(self._heap)
                    return callback
                self._wake.wait(wait)
