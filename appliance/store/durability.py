"""Whether a thread does what a person asked for: then each of its commits is on the disk before it is acknowledged.

Who serves a call of the method table says so with `asked`, in a context variable; `Store.write` reads it. Work that a call
leaves to other threads is not covered: they write what must last in durable transactions of their own, unless whoever starts
them hands `is_asked` on. Knows nothing about transactions.
"""

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

_IS_ASKED: contextvars.ContextVar[bool] = contextvars.ContextVar("asked", default=False)


def is_asked() -> bool:
    """True while this thread does what a person asked for."""
    return _IS_ASKED.get()


@contextmanager
def asked(is_so: bool = True) -> Iterator[None]:
    """Do what a person asked for, for the length of a with block."""
    token = _IS_ASKED.set(is_so)
    try:
        yield
    finally:
        _IS_ASKED.reset(token)
