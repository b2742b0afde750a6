"""Which entries hold words of strangers: marked when they are written, copied, moved, restored or mirrored, until they are trusted.

Says which texts are looked at and by what; the marks themselves, and the hashes by which words are known again, are
`policy.taint_marks`. Each method is called within the transaction of the change that it follows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.errors import BadInput, Conflict, Refused
from appliance.knowledge.contents import Entry, digest
from appliance.policy.taint import INSIDE, OUTSIDE, Mark, of_path
from appliance.policy.taint_marks import Marks, read_marks
from appliance.records import Marked
from appliance.store.database import Store
from appliance.text.fences import is_origin
from appliance.text.references import locator_of, scheme_of

KNOWN_BY_NAME = ("skill", *(scheme for scheme, origin in OUTSIDE.items() if origin not in INSIDE))  # which say what they are
SAID_BY_KIND = ("box", "calendar", "contacts")  # whose files say by their kind who wrote them
LEAST_HASH = 16  # digits that a person gives of what they were shown
FEW_CHARS = 60  # too few for words that are known again by themselves
ORIGIN, AUTHOR = "origin", "author"  # attributes of a file that says by its kind who wrote it


class EntryMarks:
    """Marks entries."""

    def __init__(self, store: Store) -> None:
        self._marks = Marks(store)

    def of(self, entry: Entry) -> tuple[Mark, ...]:
        """The marks of an entry."""
        return self._marks.of(f"entry:{entry.id}")

    def recognize(self, entry: Entry, before: Entry | None, source: str = "") -> None:
        """Mark an entry that holds words of strangers, also in the `source` it is read from; not for what stood there unmarked.

        A file that says by its kind who wrote it is marked as theirs (`of_author`) and as nobody's else.
        """
        scheme = scheme_of(entry.path)
        is_said = scheme in SAID_BY_KIND and is_origin(str(entry.attributes.get(ORIGIN) or ""))
        if not is_said and not entry.scope.startswith("run:") and scheme not in KNOWN_BY_NAME:
            own = () if before is None or self.of(before) else (_around(before), before.body)
            self._marks.recognize(f"entry:{entry.id}", entry.body, _around(entry), source, own=own)

    def take(self, entry: Entry, marks: Marked, before: Entry | None = None) -> None:
        """Mark an entry with what it was made of, and know its words again, but for what stood there unmarked."""
        own = before.body if before is not None and not self.of(before) else ""
        self._marks.take(f"entry:{entry.id}", marks)
        self._marks.keep_words(entry.body, [Mark(*pair) for pair in read_marks(marks)], own)

    def taken_back(self, entry: Entry, since_ms: int, runs: Sequence[str], by: str) -> None:
        """The changes of these runs since a time are taken back by another run, and with them the marks that an entry got for them.

        That run has them meanwhile: when it is taken back itself, they come back.
        """
        self._marks.take_off(f"entry:{entry.id}", since_ms, f"run:{by}")
        self._marks.inherit(f"entry:{entry.id}", *(f"run:{run}" for run in runs))

    def keep_own(self, entry: Entry) -> None:
        """Remember the text of an entry without marks that goes: it may come back under another name."""
        if not self.of(entry):
            self._marks.keep_own(entry.body)

    def keep_text(self, entry: Entry, source: str) -> None:
        """Know the text of an entry that is marked again as a whole, and that of its file; its parts may be one's own."""
        for text in (entry.body, source):
            self._marks.keep_text(text, self.of(entry))

    def of_author(self, entry: Entry, before: Mapping[str, Any]) -> None:
        """Mark an entry whose file says by its kind that somebody else wrote it, once for each text and author."""
        origin, author = (str(entry.attributes.get(name) or "") for name in (ORIGIN, AUTHOR))
        if origin and (origin, author) != (before.get(ORIGIN), before.get(AUTHOR, "")):
            self.take(entry, ((origin, author),))

    def is_needed(self, run: str) -> bool:
        """Whether anything is marked that entries could be marked by: the run that writes them, or others."""
        return self._marks.has_entries() or bool(run and self._marks.of(f"run:{run}"))

    def inherit(self, made: Entry, source: Entry) -> Entry:
        """The entry itself, marked with the origin marks of its source."""
        mark = of_path(source.path)
        marks = (*(() if mark is None else (mark,)), *self.of(source))
        self.take(made, tuple((one.origin, one.source) for one in marks))
        return made

    def written(self, entry: Entry, run: str, before: str) -> None:
        """Mark an entry whose text a run wrote; `before` is what stood there."""
        self._marks.inherit(f"entry:{entry.id}", f"run:{run}")
        self.added(entry, run, before)

    def added(self, entry: Entry, run: str, before: str) -> None:
        """Know again what a marked run has added to a text a few words at a time; more at once is known by what it called."""
        if len(entry.body) - len(before) < FEW_CHARS and (marks := self._marks.of(f"run:{run}")):
            self._marks.keep_words(entry.body, marks, before)

    def trust(self, entry: Entry, shown: str) -> tuple[Mark, ...]:
        """Take the marks off an entry and its text, for which a person answers; which ones they were.

        `shown` is what `hash_shown` said of the entry that the person read: Conflict when it is another by now. Refused for what
        says by its path that it is somebody else's.
        """
        if scheme_of(entry.path) in KNOWN_BY_NAME:
            hint = "owlbox skill trust" if entry.path.startswith("skill:") else "write what you trust as a note of your own"
            raise Refused(f"{entry.path} is a copy of what others wrote", hint=hint)
        view = f"owlbox entry view {entry.path} shows it and its hash"
        if len(shown) < LEAST_HASH:
            raise BadInput(f"{shown!r} is not a hash of a text: it has {LEAST_HASH} digits or more", hint=view)
        if not hash_shown(entry).startswith(shown):
            raise Conflict(f"{entry.path} is not as you were shown it: nothing was changed", hint=f"read it again: {view}")
        return self._marks.trust(f"entry:{entry.id}", entry.body, _around(entry))


def _around(entry: Entry) -> str:
    """The path, title, description and attributes of an entry as one text."""
    said = (locator_of(entry.path), entry.title, entry.description, *(str(value) for value in entry.attributes.values()))
    return "\n".join(said)


def hash_shown(entry: Entry) -> str:
    """The hash of all that a person is shown of an entry."""
    return digest("\0".join((entry.title, entry.description, entry.hash)).encode())
