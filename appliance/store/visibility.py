"""Whose eyes a thread works for: one person's or group's, or nobody's in particular.

What a run writes down belongs to the context it works in, and no other context is shown it (A-010); what people write
themselves, and what lies in box/, is the house's. While a thread works for a context, `only` adds to a query over
entries the condition that keeps the others' out. Outside of every context, as for a person at the command line,
nothing is kept out and queries stay as they are. Where people are told apart, `restricted` keeps others' sessions and runs
from a caller at the socket in the same way. Knows nothing about what contexts there are.
"""

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

_CALLER: contextvars.ContextVar[frozenset[str] | None] = contextvars.ContextVar("caller", default=None)
_CONTEXT: contextvars.ContextVar[str] = contextvars.ContextVar("audience", default="")


def current() -> str:
    """The context that this thread works for, "" for none in particular."""
    return _CONTEXT.get()


@contextmanager
def showing(context: str) -> Iterator[None]:
    """Work for a context for the length of a with block."""
    token = _CONTEXT.set(context)
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def asking() -> frozenset[str] | None:
    """The contexts that whoever asks is in; None for an admin, and for the core itself, who see all."""
    return _CALLER.get()


@contextmanager
def restricted(contexts: frozenset[str] | None) -> Iterator[None]:
    """Show no sessions and runs but those of these contexts for the length of a with block; None restricts nothing."""
    token = _CALLER.set(contexts)
    try:
        yield
    finally:
        _CALLER.reset(token)


def asked_for(context: int | float | str | bytes | None) -> int:
    """SQL function: 1 when whoever asks may be shown sessions and runs of a context."""
    contexts = _CALLER.get()
    return int(contexts is None or context in contexts)


def own_sessions(column: str) -> str:
    """The condition, with its AND, for rows that belong to a session: none where all may be shown."""
    return "" if _CALLER.get() is None else f" AND {column} IN (SELECT id FROM sessions WHERE asked_for(context))"


def seen(context: int | float | str | bytes | None) -> int:
    """SQL function: 1 when what belongs to a context ("": to everybody) may be shown to the present one."""
    now = _CONTEXT.get()
    return int(not now or not context or context == now)


def only(alias: str = "") -> str:
    """The condition, with its AND, for rows of `entries` that may be shown; "" where all may be."""
    column = f"{alias}.audience" if alias else "audience"
    return f" AND ({column} = '' OR seen({column}))" if _CONTEXT.get() else ""
