"""What goes wrong in `chaos.py`, one thing at a time, by weights.

Core, workers, broker, bridge and web process are killed, hung and stopped, one by one and together; the disk runs full, takes no
writes or loses in a power cut what was not flushed; the clock is set, stands at 1970 or at the last shutdown, and leaps.
"""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from chaos_arena import Arena
from process import left_over, send

from appliance.clock import monotonic_s, now_ms, sleep_s

DAY_S = 86_400
OFF_S = (0, 3600, -3600, 3 * DAY_S, -2 * DAY_S, 90, -90)
UNPLUGGED_S = 15.0  # as long as it may take until nothing of the disk is open
WEIGHTS = {
    "kill a worker": 5.0,
    "kill the core": 1,
    "kill the broker": 1,
    "kill core and broker": 1,
    "kill the web process": 1,
    "kill the bridge": 1,
    "set the clock": 3,
    "fill the disk": 2,
    "hang a worker": 1,
    "stop a worker": 1,
    "stop the core": 0.5,
    "take no writes": 1.5,
    "cut the power": 1.5,
}
OF_THE_CORE = ("kill the core", "stop the core", "kill core and broker", "take no writes", "cut the power")


class Faults:
    """Hurts an arena."""

    def __init__(self, arena: Arena) -> None:
        self._arena, self._dice = arena, arena.dice
        self.weights = {what: weight for what, weight in WEIGHTS.items() if arena.disk.can_lose or what != "cut the power"}

    def hurt(self) -> None:
        """One thing, at random."""
        arena = self._arena
        [what] = self._dice.choices(list(self.weights), list(self.weights.values()))
        if what in OF_THE_CORE and self._dice.random() < 0.7 and not arena.is_up():
            return  # killed at its start it is often enough: it also has to do something
        workers, brokers = arena.pids("busy") or arena.pids("workers"), arena.pids("brokers")
        number = signal.SIGKILL if what.startswith("kill") else signal.SIGTERM
        if what == "set the clock":
            arena.set_clock(self._dice.choice((*OFF_S, DAY_S - now_ms() // 1000)))
        elif what == "fill the disk":
            self._fill(0.3 + self._dice.random() * 1.5)
        elif what == "take no writes":
            self._take_no_writes(2 + self._dice.random() * 2)
        elif what == "cut the power":
            self.cut_power()
        elif what == "hang a worker":
            self._hang(workers)
        elif what == "kill core and broker":
            for pid in (arena.core_pid(), *brokers):
                arena.send(what, pid, number)
        elif what.endswith("the core"):
            arena.send(what, arena.core_pid(), number)
        else:
            found = {
                "kill the broker": brokers,
                "kill the web process": arena.child_pids(r" web$"),
                "kill the bridge": arena.child_pids(r"appliance\.mcp\.bridge"),
            }.get(what, workers)
            arena.send(what, self._dice.choice(found) if found else None, number)

    def _hang(self, workers: list[int]) -> None:
        """A worker stands still until it is taken for dead, and comes back."""
        if workers:
            pid = self._dice.choice(workers)
            self._arena.send("hang a worker", pid, signal.SIGSTOP)
            self._later(4.5, lambda: self._arena.send("wake it", pid, signal.SIGCONT))

    def _fill(self, seconds: float) -> None:
        """Nothing can be written for a while."""
        arena = self._arena
        arena.note(f"fill the disk: {seconds:.1f} s")
        arena.disk.fill()
        arena.is_over.wait(seconds)
        arena.disk.empty()

    def _take_no_writes(self, seconds: float) -> None:
        """The power goes, and the disk takes no writes for a while, during which core and workers are started on it."""
        arena = self._arena
        if not self._unplug(lambda: arena.disk.remount("ro")):
            return
        arena.note(f"take no writes: {seconds:.1f} s")
        arena.is_over.wait(seconds)
        with arena.reading:
            assert arena.disk.remount("rw")
            arena.open_store()

    def cut_power(self) -> None:
        """The power goes, and comes back to a clock that has stood still at best; then it is set right while all runs."""
        arena = self._arena
        with arena.keeping, arena.starting, arena.reading:
            if not self._unplug(lambda: arena.disk.cut(self._dice.randrange(1 << 30))):
                return
            arena.promises.commands.clear()  # what a command has written, nobody has flushed
            arena.open_store()
        arena.note("cut the power")
        if self._dice.random() < 0.5:
            arena.set_clock(-self._dice.choice((60, 3600, 3 * DAY_S)))
            self._later(2 + 4 * self._dice.random(), lambda: arena.is_over.is_set() or arena.set_clock(0))

    def _unplug(self, act: Callable[[], bool]) -> bool:
        """Kill everything and do something to the disk that nobody uses; after it the database is closed. False: not possible."""
        arena = self._arena
        with arena.keeping, arena.starting, arena.reading:
            arena.close_store()
            end_s = monotonic_s() + UNPLUGGED_S
            while True:
                for line in left_over(arena.box):
                    with suppress(ProcessLookupError):
                        send(int(line.split()[0]), signal.SIGKILL)
                if not left_over(arena.box) and act():
                    return True
                if monotonic_s() > end_s:
                    arena.note("the disk is in use")
                    arena.open_store()
                    return False
                sleep_s(0.1)

    @staticmethod
    def _later(seconds: float, act: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
