"""Mailboxes, and what connected clients are told beside their answers: something has arrived that they did not ask for just now.

A hub without threads: whoever follows has a mailbox and reads it in a thread of their own. Nothing is kept for those
who do not follow; what matters stands in a thread or in the log. Knows nothing about sockets or the database.
"""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_WAITING = 200
T = TypeVar("T")


@dataclass(frozen=True)
class Notice:
    """A text for a person, and where it stands: the thread and the number of its event, if it stands in one."""

    person: str
    text: str
    run: str = ""
    seq: int = 0
    at_ms: int = 0


class Box(Generic[T]):
    """What one listener has not read yet, who reads it in a thread of their own: each thing once, in its order."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._items: deque[T] = deque()
        self._is_closed = False

    def put(self, item: T) -> None:
        """Never blocks."""
        with self._wake:
            self._add(item)
            self._wake.notify()

    def close(self) -> None:
        """Wake the listener for the last time."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._wake:
                while not self._items and not self._is_closed:
                    self._wake.wait()
                if not self._items:
                    return
                item = self._items.popleft()
            yield item

    def _add(self, item: T) -> None:
        self._items.append(item)


class Mailbox(Box[Notice]):
    """What one follower has not read yet: the newest 200; `lost` counts the older ones that a slow one missed."""

    def __init__(self, person: str) -> None:
        super().__init__()
        self.person = person
        self.lost = 0

    def _add(self, item: Notice) -> None:
        if len(self._items) >= MAX_WAITING:
            self._items.popleft()
            self.lost += 1
        self._items.append(item)


class Notices:
    """Who follows."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._boxes: list[Mailbox] = []

    def subscribe(self, person: str = "") -> Mailbox:
        """Everything for a person from now on; for everybody when none is named."""
        box = Mailbox(person)
        with self._guard:
            self._boxes.append(box)
        return box

    def leave(self, box: Mailbox) -> None:
        """No longer interested."""
        box.close()
        with self._guard:
            self._boxes = [one for one in self._boxes if one is not box]

    def put(self, notice: Notice) -> int:
        """Tell those who follow; how many."""
        boxes = self._for(notice.person)
        for box in boxes:
            box.put(notice)
        return len(boxes)

    def is_followed(self, person: str) -> bool:
        """True when somebody would be told."""
        return bool(self._for(person))

    def _for(self, person: str) -> list[Mailbox]:
        with self._guard:
            return [box for box in self._boxes if box.person in ("", person)]
