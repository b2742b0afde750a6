"""When Python looks for objects that only refer to each other.

Loading the modules of the core makes 90,000 objects, none of which is garbage: to look through them took a twentieth of the time,
and each look through all that a process holds stops it for 20 ms (2026-11-27).
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Load modules in a with block: nothing is looked through meanwhile, and what is there at its end never again.

    Where all of them had been loaded before, nothing changes: real garbage would stay for good, each time.
    """
    count = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > count:
            gc.freeze()
        gc.enable()
