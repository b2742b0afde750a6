"""What this room needs of the rooms above it, as ports: stored notes and the search over them.

`knowledge.entries.Entries` and `knowledge.search.Search` are what they are filled with. The vectors of texts come as a function,
and the model is never called here: a plan says what it is to be asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol


class StoredNote(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def created_ms(self) -> int: ...


class ListedNote(Protocol):
    @property
    def ref(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def updated_ms(self) -> int: ...


class Notes(Protocol):
    def find(self, ref: str) -> StoredNote | None: ...

    def list_lines(self, prefix: str = "", *, limit: int = 100) -> Sequence[ListedNote]: ...


class FoundPassage(Protocol):
    """A passage that was found in a note, with the reference of the note."""

    @property
    def ref(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def snippet(self) -> str: ...


class NoteSearch(Protocol):
    def find_passages(
        self, query: str, *, limit: int, without: Sequence[str], has_meaning: bool = True, chars: int = 0
    ) -> Sequence[FoundPassage]:
        """The best passages, at most two of a note, each with the text around it up to so many characters."""
        ...

    def count_passages(self) -> int: ...

    def frequencies(self, words: Iterable[str]) -> Mapping[str, int]:
        """In how many passages each word is."""
        ...


class NamedEvent(Protocol):
    """One time of an event of a calendar; `state` says that its server does not know it yet."""

    @property
    def title(self) -> str: ...
    @property
    def start(self) -> datetime: ...
    @property
    def end(self) -> datetime: ...
    @property
    def ref(self) -> str: ...
    @property
    def is_day(self) -> bool: ...
    @property
    def place(self) -> str: ...
    @property
    def state(self) -> str: ...


class EventCalendar(Protocol):
    """The events of all calendars that may be shown."""

    def is_known(self) -> bool: ...

    def has_account(self) -> bool: ...

    def between(self, first: datetime, last: datetime) -> Sequence[NamedEvent]: ...

    def coming(self) -> Sequence[NamedEvent]:
        """The next time of each event."""
        ...


class OutsideLookups(Protocol):
    """What may be looked up elsewhere, where somebody has switched it on: weather, feeds, exchange_rates, home_assistant."""

    def is_on(self, name: str) -> bool: ...

    def names(self, name: str) -> Sequence[str]:
        """What one of them knows by name: feeds, or devices and rooms."""
        ...
