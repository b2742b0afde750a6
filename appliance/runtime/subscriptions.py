"""Mailboxes, and what connected clients are told beside their answers: something has arrived that they did not ask for just now.

A hub without threads: whoever follows has a mailbox and reads it in a thread of their own. Nothing is kept for those
who do not follow; what matters stands in a thread or in the log. Knows nothing about sockets or the database.
"""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct

MAX_WAITING = 200
T = TypeVar("T")


class Stir(Struct, frozen=True):
    """Something was written: whoever shows rows of the database may look again."""


class Notice(Struct, frozen=True):
    """A text for a person, and where it stands: the thread and the number of its event, if it stands in one.

    `key` is its letter's: what stands before its first colon says what it is about.
    """

    person: str
    text: str
    run: str = ""
    seq: int = 0
    at_ms: int = 0
    key: str = ""


class Signal(Struct, frozen=True):
    """Another notification for those of a person's clients that follow: its name and its parameters."""

    person: str
    method: str
    params: dict[str, Any]


class Box(Generic[T]):
    """What one listener has not read yet, who reads it in a thread of their own: each thing once, in its order."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._items: deque[T] = deque()
        self._is_closed = False

    def put(self, item: T) -> None:
        """Never blocks."""
        with self._wake:
            self._add_item(item)
            self._wake.notify()

    def close(self) -> None:
        """Wake the listener for the last time."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    @property
    def is_closed(self) -> bool:
        """True when nothing more comes, and everything was read."""
        with self._wake:
            return self._is_closed and not self._items

    def take(self, timeout_s: float | None = None) -> T | None:
        """The next thing, waiting for it; None when there was none in time, or nothing more comes."""
        with self._wake:
            self._wake.wait_for(lambda: self._items or self._is_closed, timeout_s)
            return self._items.popleft() if self._items else None

    def __iter__(self) -> Iterator[T]:
        while (item := self.take()) is not None:
            yield item

    def _add_item(self, item: T) -> None:
        self._items.append(item)


class Lookout(Box[Notice | Stir | Signal]):
    """What a screen has not seen yet: what its person is told, and that something was written, the latter once.

    A program that only follows is no screen: what it is told nobody has seen.
    """

    def __init__(self, person: str, *, is_screen: bool = True) -> None:
        super().__init__()
        self.person = person
        self.is_screen = is_screen

    def _add_item(self, item: Notice | Stir | Signal) -> None:
        if isinstance(item, Stir) and item in self._items:
            return
        if len(self._items) > MAX_WAITING:
            self._items.popleft()
        self._items.append(item)


class Mailbox(Box[Notice | Signal]):
    """What one follower has not read yet: the newest 200; `lost` counts the older ones that a slow one missed."""

    def __init__(self, person: str) -> None:
        super().__init__()
        self.person = person
        self.lost = 0

    def _add_item(self, item: Notice | Signal) -> None:
        if len(self._items) >= MAX_WAITING:
            self._items.popleft()
            self.lost += 1
        self._items.append(item)


class Notices:
    """Who follows."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._boxes: list[Mailbox] = []
        self._lookouts: tuple[Lookout, ...] = ()

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

    def look_out(self, person: str, *, is_screen: bool = True) -> Lookout:
        """Everything for a person from now on, and when something was written: for a screen, or for a program that follows."""
        box = Lookout(person, is_screen=is_screen)
        with self._guard:
            self._lookouts = (*self._lookouts, box)
        return box

    def blink(self, box: Lookout) -> None:
        """The screen is gone."""
        box.close()
        with self._guard:
            self._lookouts = tuple(one for one in self._lookouts if one is not box)

    def stir(self) -> None:
        """Something was written; called after every commit, so it costs nothing while no screen is open."""
        for box in self._lookouts:
            box.put(Stir())

    def put(self, notice: Notice | Signal) -> int:
        """Tell those who follow; how many."""
        boxes, screens = self._boxes_for(notice.person), [box for box in self._lookouts if box.person == notice.person]
        for box in boxes:
            box.put(notice)
        for screen in screens:
            screen.put(notice)
        return len(boxes) + len(screens)

    def has_screen(self, person: str) -> bool:
        """True when this person looks at a screen that is connected."""
        return any(box.is_screen and box.person == person for box in self._lookouts)

    def is_followed(self, person: str) -> bool:
        """True when somebody would be told."""
        return bool(self._boxes_for(person)) or self.has_screen(person)

    def _boxes_for(self, person: str) -> list[Mailbox]:
        with self._guard:
            return [box for box in self._boxes if box.person in ("", person)]
