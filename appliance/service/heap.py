"""What the core's memory is made of: few heaps of the C library, and nothing kept for long that nobody uses.

Python keeps up to 2,000 freed tuples of each size for reuse until it next looks through all objects for garbage. A core that makes
none comes to that once in ten thousand requests or never, and kept 2 MB more after each hundred thousand rows (2026-11-29).
"""

import ctypes
import gc
import logging

from appliance.clock import monotonic_s
from appliance.runtime.periodic import Rounds
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
M_ARENA_MAX, HEAPS = -8, 2  # of mallopt
M_MMAP_THRESHOLD, LARGE_BYTES = -3, 128 * 1024
EVERY_S = 60.0  # between two looks through what is free


def share_heaps() -> None:
    """Let the C library use two heaps for all threads: with one of its own for each, a busy core kept 40 MB more (2026-11-23).

    What is large goes back to the system when it is freed: by default the first that does raises the limit, and all later ones
    lie in the heaps, which grew by 2 MB at each peak of a busy hour while what was used stayed level (2026-11-28).

    Only glibc knows this; elsewhere nothing happens. To be called before there are threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, HEAPS)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def free_unused() -> None:
    """Give back what Python keeps for reuse, and what of the heaps is free."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class HeapCare:
    """Frees what is unused once a minute while a store is written to; a core that does nothing is not woken up."""

    def __init__(self, store: Store, every_s: float = EVERY_S) -> None:
        self._rounds = Rounds("heap", free_unused, "unused memory", LOG)
        self._every_s = every_s
        self._last_s = monotonic_s()
        store.on_commit(self._note_use)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """Free nothing more."""
        self._rounds.stop()

    def _note_use(self) -> None:
        if (now_s := monotonic_s()) - self._last_s >= self._every_s:
            self._last_s = now_s
            self._rounds.wake()
