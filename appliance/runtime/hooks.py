"""Hooks: named places where others may listen, decide or change a value, in an order that priorities fix.

Lower priorities come first, equal ones in the order in which they were added. What a handler raises is logged
and contained: the others run, and a value stays as it was before. Pure: knows nothing of what any name means,
and does not promise that a handler is quick.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from appliance.runtime.events import Events

LOG = logging.getLogger(__name__)
PRIORITY = 10
T = TypeVar("T")
Handler = Callable[..., Any]


class HandlerFailed(Struct, frozen=True):
    """A handler raised, or returned what cannot be the value."""

    name: str
    handler: Handler
    error: BaseException


class Hooks:
    """The handlers of one process, by name; a name nobody listens to does nothing."""

    def __init__(self, events: Events | None = None) -> None:
        """`HandlerFailed` is published for each handler that raised."""
        self._guard = threading.Lock()
        self._handlers: dict[str, tuple[tuple[int, Handler], ...]] = {}
        self.events = events or Events()

    def add(self, name: str, handler: Handler, priority: int = PRIORITY) -> Callable[[], None]:
        """Have a handler called under this name; returns what takes it away again."""
        mine = (priority, handler)
        with self._guard:
            self._handlers[name] = tuple(sorted((*self._handlers.get(name, ()), mine), key=lambda one: one[0]))

        def remove() -> None:
            with self._guard:
                self._handlers[name] = tuple(one for one in self._handlers.get(name, ()) if one is not mine)

        return remove

    def names(self) -> list[str]:
        """The names somebody listens to."""
        with self._guard:
            return sorted(name for name, handlers in self._handlers.items() if handlers)

    def has(self, name: str) -> bool:
        """Whether somebody listens to a name: what is only made for listeners need not be made without."""
        return bool(self._handlers.get(name))

    def tell(self, name: str, *given: Any) -> None:
        """An event: every handler is called, what they return does not matter."""
        for handler in self._handlers_of(name):
            self._call_handler(name, handler, given)

    def handle(self, name: str, *given: Any) -> bool:
        """A chain: handlers are called until one returns False; False when one did."""
        return all(self._call_handler(name, handler, given) is not False for handler in self._handlers_of(name))

    def filter(self, name: str, value: T, *given: Any) -> T:
        """A value after every handler has had it and returned what it shall be, of its own type.

        One that raises, or returns something else, leaves it as it was; a list does for a tuple.
        """
        for handler in self._handlers_of(name):
            made = self._call_handler(name, handler, (value, *given), otherwise=value)
            if isinstance(value, tuple) and isinstance(made, list):
                made = tuple(made)
            if isinstance(made, type(value)):
                value = made
            else:
                what = f"it returned {type(made).__name__}, not {type(value).__name__}"
                LOG.error("a handler of %s: %s: %r", name, what, handler)
                self.events.publish(HandlerFailed(name, handler, TypeError(what)))
        return value

    def _handlers_of(self, name: str) -> list[Handler]:
        with self._guard:
            return [handler for _, handler in self._handlers.get(name, ())]

    def _call_handler(self, name: str, handler: Handler, given: tuple[Any, ...], otherwise: Any = None) -> Any:
        try:
            return handler(*given)
        except (Exception, SystemExit) as error:  # hook events are a boundary: one plugin ends nobody's turn, nor the core
            LOG.exception("a handler of %s failed", name)
            self.events.publish(HandlerFailed(name, handler, error))
            return otherwise
