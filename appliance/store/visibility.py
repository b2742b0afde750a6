"""For whom a thread works: the present person, their context, and what rows they may be shown.

A context is `user:NAME` or `group:NAME`. What a run writes belongs to the context it works in, and no other context is shown
it (A-010); what people write themselves, and what lies in box/, belongs to everybody. `only` adds to a query over entries the
condition that leaves other contexts out. `asked_by` restricts what a caller is shown: each query over rows of sessions, persons
or contexts adds `own_sessions`, `own_people` or `own_contexts`, which are empty for an admin and for the core itself.
This is the only place that decides what belongs to whom; it uses context variables, so a thread that works for a caller
has to take them over. Knows nothing about which persons and groups there are.
"""

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

_CALLER: contextvars.ContextVar[frozenset[str] | None] = contextvars.ContextVar("caller", default=None)
_CONTEXT: contextvars.ContextVar[str] = contextvars.ContextVar("audience", default="")
_PERSON: contextvars.ContextVar[str] = contextvars.ContextVar("person", default="")


def current() -> str:
    """The context that this thread works for, "" for none in particular."""
    return _CONTEXT.get()


def person() -> str:
    """The person who asks, "" where nobody was told apart: then it is the user of the calling process."""
    return _PERSON.get()


@contextmanager
def showing(context: str) -> Iterator[None]:
    """Work for a context for the length of a with block; whoever is restricted to others stays in the present one."""
    contexts = _CALLER.get()
    token = _CONTEXT.set(context if contexts is None or context in contexts else _CONTEXT.get())
    try:
        yield
    finally:
        _CONTEXT.reset(token)


@contextmanager
def asked_by(person: str, context: str, contexts: frozenset[str] | None) -> Iterator[None]:
    """Work for a person in a context for the length of a with block, and show only rows of `contexts`; None restricts nothing."""
    token = _PERSON.set(person)
    try:
        with restricted(contexts), showing(context):
            yield
    finally:
        _PERSON.reset(token)


def asking() -> frozenset[str] | None:
    """The contexts that whoever asks is in; None for an admin, and for the core itself, who see all."""
    return _CALLER.get()


@contextmanager
def restricted(contexts: frozenset[str] | None) -> Iterator[None]:
    """Show no rows but those of these contexts for the length of a with block; None restricts nothing."""
    token = _CALLER.set(contexts)
    try:
        yield
    finally:
        _CALLER.reset(token)


def asked_for(context: int | float | str | bytes | None) -> int:
    """SQL function: 1 when whoever asks may be shown rows of a context."""
    contexts = _CALLER.get()
    return int(contexts is None or context in contexts)


def own_sessions(column: str) -> str:
    """The condition, with its AND, for rows that belong to a session: none where all may be shown."""
    return "" if _CALLER.get() is None else f" AND {column} IN (SELECT id FROM sessions WHERE asked_for(context))"


def own_people(column: str) -> str:
    """The condition, with its AND, for rows of a person, or of a `group:NAME`; rows of nobody are an admin's."""
    owner = f"IIF({column} GLOB 'group:*', {column}, 'user:' || {column})"
    return "" if _CALLER.get() is None else f" AND asked_for({owner})"


def own_contexts(column: str) -> str:
    """The condition, with its AND, for rows that belong to a context; rows of none are an admin's."""
    return "" if _CALLER.get() is None else f" AND asked_for({column})"


def seen(context: int | float | str | bytes | None) -> int:
    """SQL function: 1 when what belongs to a context ("": to everybody) may be shown to the present one."""
    now = _CONTEXT.get()
    return int(not now or not context or context == now)


def only(alias: str = "") -> str:
    """The condition, with its AND, for rows of `entries` that may be shown; "" where all may be."""
    column = f"{alias}.audience" if alias else "audience"
    return f" AND ({column} = '' OR seen({column}))" if _CONTEXT.get() else ""
