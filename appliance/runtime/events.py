"""Typed events inside one process: a part publishes what happened in it, the parts built on top of it subscribe.

A handler is called in the publisher's thread, at once, in the order of subscription. What it raises reaches the publisher, so
that what follows from an event within a transaction is part of that transaction. For plugins there is `hooks`, which contains
what handlers raise. The classes of events stand where they are published. Knows none of them.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E")


class Events:
    """The subscriptions of one core, by the class of the event."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._handlers: dict[type, tuple[Callable[[Any], object], ...]] = {}

    def subscribe(self, kind: type[E], handler: Callable[[E], object]) -> None:
        """Have a handler called with every event of exactly this class from now on."""
        with self._guard:
            self._handlers[kind] = (*self._handlers.get(kind, ()), handler)

    def has(self, kind: type) -> bool:
        """Whether somebody subscribed to events of this class: one that costs something to make need not be made without."""
        return bool(self._handlers.get(kind))

    def publish(self, event: object) -> None:
        """Call every handler of the event's class; returns when the last one has."""
        for handler in self._handlers.get(type(event), ()):  # the tuple is replaced, never changed
            handler(event)
