"""What is remembered of each person and group: records kept as entries, one owner's never shown to another.

A record is the entry `memory://TOPIC/NAME` of what everybody shares, `memory://user/ID/TOPIC/NAME` or `memory://group/ID/...`
of a context; what is known about it lies in the entry's attributes. Every function takes the owner and looks at that
owner's records alone. Before something is written, a record that says the same is looked for and brought up to date instead.
Expired records are removed before anything is read. Full text and vectors are those of entries.
"""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, Conflict, NotFound, TooLarge
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import Content, Entry
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search, words_of
from appliance.language.word_forms import find_same
from appliance.memory.memory_record import (
    GENERAL,
    MAX_FILE_BYTES,
    MAX_TAGS,
    Kind,
    MemoryRecord,
    check_topic,
    require_owner,
    topic_folder,
)
from appliance.store import visibility

SCHEME = "memory://"
NOTES = "notes"  # the topic of what was remembered without one
MOST_COMPARED = 2000
TEXT_LIMIT = MAX_FILE_BYTES - 2048  # the rest of a file is its metadata
SAID_BY = "said_by"  # of a record's attributes: who said it, where that is not its owner
EVERYBODY = ""

MOST_HITS = 200  # of everything, among which an owner's are looked for

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
Order = Literal["newest", "importance"]


class Topic(Struct, frozen=True):
    """A topic and how many records it has."""

    name: str
    count: int


class Memories:
    """Reads and writes records."""

    def __init__(self, entries: Entries, passages: Passages, finder: Search, embed: Embed = lambda texts: ()) -> None:
        """`embed` gives a vector for each text, and none where no model can."""
        self._entries = entries
        self._passages = passages
        self._finder = finder
        self._embed = embed
        self._guard = threading.Lock()
        self._due_ms = 0  # when the next record expires, as far as is known; 0: look first

    # -- writing ----------------------------------------------------------------------------------

    def write(
        self,
        owner: str,
        text: str,
        *,
        title: str = "",
        topic: str = "",
        kind: Kind = "note",
        tags: Sequence[str] = (),
        importance: int = 5,
        confidence: float = 1.0,
        source: str = "",
        ttl_s: int = 0,
        by: By = By(),
        attributes: dict[str, Any] | None = None,
    ) -> tuple[MemoryRecord, bool]:
        """Remember something of an owner; gives the record and whether it is new: one that says the same is updated.

        With `SAID_BY` among its attributes it is somebody's own saying, and no other's is updated by it.
        """
        _check_owner(owner)
        self._check_text(text, importance, confidence, ttl_s)
        folder = topic_folder(check_topic(topic)) if topic else NOTES
        said_by = str((attributes or {}).get(SAID_BY, ""))
        with self._guard:
            self._sweep()
            if (same := self._find_same(owner, text, said_by, is_noted=folder == NOTES)) is not None:
                return self._update(owner, same, text, tags, importance, confidence, by), False
            at_ms = now_ms()
            record = MemoryRecord(
                new_id(),
                text,
                title or _title(text),
                "user",
                owner,
                kind,
                folder,
                tuple(tags)[:MAX_TAGS],
                {},
                importance,
                confidence,
            )
            record = replace(record, source=source, ttl_s=ttl_s, created_ms=at_ms, updated_ms=at_ms)
            stored = self._put(self._free_ref(owner, folder, record.title), record, by, attributes or {})
            if ttl_s:
                self._due_ms = min(self._due_ms or record.expires_ms, record.expires_ms)
            return _record(stored, owner), True

    def restore(self, record: MemoryRecord, by: By = By()) -> MemoryRecord:
        """Keep a record as it was written into a file, with its id and its times; it replaces the one that has its id."""
        _check_owner(record.owner)
        self._check_text(record.text, record.importance, record.confidence, record.ttl_s)
        folder = topic_folder(check_topic(record.topic))
        with self._guard:
            entry = self._find(record.owner, record.id)
            ref = entry.path if entry is not None else self._free_ref(record.owner, folder, record.title or _title(record.text))
            kept = self._put(ref, replace(record, topic=folder), by, {"updated_ms": record.updated_ms})
            self._due_ms = 0
            return _record(kept, record.owner)

    def rewrite(self, owner: str, key: str, text: str, by: By = By()) -> MemoryRecord:
        """Give a record another text; its id, topic and marks stay."""
        with self._guard:
            entry = self._require(owner, key)
            before = _record(entry, owner)
            record = replace(before, text=text, title=_title(text), version=before.version + 1)
            return _record(self._put(entry.path, record, by, {}), owner)

    def forget(self, owner: str, key: str) -> MemoryRecord:
        """Remove a record, its passages, vectors and history; gives what it was. NotFound for one that is not the owner's."""
        with self._guard:
            entry = self._require(owner, key)
            self._entries.forget(entry.path)
            self._passages.purge_words()
            return _record(entry, owner)

    def sweep(self) -> int:
        """Remove records that have expired; how many there were."""
        with self._guard:
            self._due_ms = 0
            return self._sweep()

    # -- reading ----------------------------------------------------------------------------------

    def read(self, owner: str, key: str) -> MemoryRecord | None:
        """A record by its id or reference, None for one that there is not, or is another's."""
        self._sweep_due()
        entry = self._find(owner, key)
        return None if entry is None else _record(entry, owner)

    def list_records(
        self, owner: str, *, topic: str = "", kind: str = "", tag: str = "", least_importance: int = 1, order: Order = "newest"
    ) -> list[MemoryRecord]:
        """An owner's records."""
        self._sweep_due()
        found = [_record(entry, owner) for entry in self._owned(owner)]
        found = [
            one
            for one in found
            if (not topic or one.topic == topic_folder(topic))
            and (not kind or one.kind == kind)
            and (not tag or tag in one.tags)
            and one.importance >= least_importance
        ]
        return sorted(found, key=lambda one: (-one.importance if order == "importance" else 0, -one.updated_ms, one.id))

    def listed(self, owner: str, mark: str) -> list[MemoryRecord]:
        """An owner's records that have a mark among their attributes, oldest first."""
        self._sweep_due()
        return [_record(entry, owner) for entry in self._owned(owner) if entry.attributes.get(mark)]

    def search(self, owner: str, query: str, limit: int = 10) -> list[MemoryRecord]:
        """An owner's records that fit some words, best first."""
        self._sweep_due()
        if not words_of(query):
            raise BadInput(f"nothing to search for in {query!r}", hint="use words that name the thing")
        mine = {entry.path: entry for entry in self._owned(owner)}
        hits = self._finder.find(query, limit=MOST_HITS, is_model=False) if mine else []
        return [_record(mine[hit.ref], owner) for hit in hits if hit.ref in mine][:limit]

    def refs(self, owner: str) -> dict[str, str]:
        """The reference of each of an owner's records, by id."""
        return {_record(entry, owner).id: entry.path for entry in self._owned(owner)}

    # -- topics -----------------------------------------------------------------------------------

    def topics(self, owner: str) -> list[Topic]:
        """An owner's topics by name, with their counts."""
        counts: dict[str, int] = {}
        for one in self.list_records(owner):
            counts[one.topic] = counts.get(one.topic, 0) + 1
        return [Topic(name, counts[name]) for name in sorted(counts)]

    def rename_topic(self, owner: str, old: str, new: str) -> int:
        """Give a topic another name; how many records moved. NotFound, or Conflict where the new one has records."""
        names = {one.name for one in self.topics(owner)}
        if topic_folder(new) in names:
            raise Conflict(f"there is a topic {topic_folder(new)} already", hint="merge them", outcome="already_exists")
        return self.merge_topics(owner, old, new)

    def merge_topics(self, owner: str, old: str, new: str) -> int:
        """Move all records of a topic into another; how many moved."""
        folder = topic_folder(check_topic(new))
        with self._guard:
            moved = [entry for entry in self._owned(owner) if _record(entry, owner).topic == topic_folder(old)]
            if not moved:
                raise NotFound(f"no topic {topic_folder(old)}", hint="owlbox memory topics lists them")
            for entry in moved:
                record = replace(_record(entry, owner), topic=folder)
                target = self._free_ref(owner, folder, record.title)
                self._entries.move(entry.path, target)
                self._put(target, record, By(), {})
            return len(moved)

    # -- inside -----------------------------------------------------------------------------------

    @staticmethod
    def _check_text(text: str, importance: int, confidence: float, ttl_s: int) -> None:
        if not text.strip():
            raise BadInput("there is nothing to remember", hint="say what")
        if len(text.encode()) > TEXT_LIMIT:
            raise TooLarge(f"a memory of {len(text.encode())} bytes is too long", hint="keep it as a note: write_note")
        if not 1 <= importance <= 10 or not 0 <= confidence <= 1 or ttl_s < 0:
            raise BadInput(
                f"importance {importance}, confidence {confidence:g} or ttl {ttl_s} is out of range",
                hint="1 to 10, 0 to 1, 0 for ever",
            )

    def _owned(self, owner: str) -> list[Entry]:
        _check_owner(owner)
        found = self._entries.owned(SCHEME, owner)
        return [entry for entry in found if not entry.is_folder]

    def _find(self, owner: str, key: str) -> Entry | None:
        for entry in self._owned(owner):
            if key in (entry.path, entry.uid, entry.attributes.get("id")):
                return entry
        return None

    def _require(self, owner: str, key: str) -> Entry:
        found = self._find(owner, key)
        if found is None:
            # The same words for what is another's: whether it exists is nobody's business.
            raise NotFound(f"nothing is remembered as {key}", hint="owlbox memory list shows what is")
        return found

    def _find_same(self, owner: str, text: str, said_by: str, *, is_noted: bool) -> Entry | None:
        others = [entry for entry in self._owned(owner) if entry.attributes.get(SAID_BY, "") == said_by][-MOST_COMPARED:]
        number = find_same(text, [entry.body for entry in others])
        if number is None and others and not is_noted:
            # Vectors are asked for the few that share words: a write does not wait for a thousand of them.
            words = set(words_of(text))
            near = sorted(others, key=lambda entry: -len(words & set(words_of(entry.body))))[:4]
            vectors = self._embed([text, *(entry.body for entry in near)])
            if len(vectors) == len(near) + 1:
                cosines = [sum(a * b for a, b in zip(vectors[0], vector)) for vector in vectors[1:]]
                number = find_same(text, [entry.body for entry in near], cosines)
                others = near
        return None if number is None else others[number]

    def _update(
        self, owner: str, entry: Entry, text: str, tags: Sequence[str], importance: int, confidence: float, by: By
    ) -> MemoryRecord:
        before = _record(entry, owner)
        record = replace(
            before,
            text=text,
            tags=tuple(dict.fromkeys((*before.tags, *tags)))[:MAX_TAGS],
            importance=max(before.importance, importance),
            confidence=max(before.confidence, confidence),
            version=before.version + 1,
            updated_ms=now_ms(),
        )
        return _record(self._put(entry.path, record, by, {}), owner)

    def _put(self, ref: str, record: MemoryRecord, by: By, more: dict[str, Any]) -> Entry:
        found = self._entries.find(ref)
        # The time of the last change is the entry's own, but for what came out of a file.
        attributes = {**(found.attributes if found else {}), **_attributes(record), "updated_ms": 0, **more}
        content = Content(body=record.text, title=record.title, attributes=attributes)
        return self._entries.put(ref, content, by, audience=record.owner)

    def _free_ref(self, owner: str, folder: str, title: str) -> str:
        kind, _, name = owner.partition(":")
        base = f"{SCHEME}{kind}/{name}/{folder}" if owner else f"{SCHEME}{folder}"
        slug = "-".join(words_of(title)[:8])[:60] or "note"
        ref, number = f"{base}/{slug}", 1
        while self._entries.is_taken(ref):
            number += 1
            ref = f"{base}/{slug}-{number}"
        return ref

    def _sweep_due(self) -> None:
        if not self._due_ms or now_ms() >= self._due_ms:
            with self._guard:
                self._sweep()

    def _sweep(self) -> int:
        """Remove what has expired, whoever's it is; call with the guard held."""
        at_ms = self._entries.age_limit()
        if self._due_ms and at_ms < self._due_ms:
            return 0
        next_ms, gone = 0, 0
        with visibility.restricted(None), visibility.showing(""):
            for path, given in self._entries.attributes(SCHEME).items():
                expires_ms = given.get("expires_ms")
                if not isinstance(expires_ms, int) or not expires_ms:
                    continue
                if at_ms >= expires_ms:
                    self._entries.forget(path)
                    gone += 1
                else:
                    next_ms = min(next_ms or expires_ms, expires_ms)
        self._due_ms = next_ms or 2**62
        if gone:
            self._passages.purge_words()
        return gone


def _check_owner(owner: str) -> None:
    """BadInput for what is neither everybody's nor a context's."""
    if owner == EVERYBODY:
        return
    kind, _, name = owner.partition(":")
    if require_owner(kind, name)[1] != name:
        raise BadInput(f"owner {owner!r} names nobody", hint="it is user:ID or group:ID")


def _attributes(record: MemoryRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "kind": record.kind,
        "topic": record.topic,
        "tags": list(record.tags),
        "labels": dict(record.labels),
        "importance": record.importance,
        "confidence": record.confidence,
        "is_verified": record.is_verified,
        "version": record.version,
        "source": record.source,
        "ttl_s": record.ttl_s,
        "created_ms": record.created_ms,
        "expires_ms": record.expires_ms,
    }


def _record(entry: Entry, owner: str) -> MemoryRecord:
    """The record in an entry, also in one that `remember` or a person wrote without any of its attributes."""
    given = entry.attributes
    parts = entry.path.removeprefix(SCHEME).split("/")
    folder = parts[2] if owner and len(parts) > 3 else parts[0] if len(parts) > 1 else GENERAL
    return MemoryRecord(
        id=str(given.get("id") or entry.uid),
        text=entry.body,
        title=entry.title or "",
        scope="group" if owner.startswith("group:") else "user",
        owner=owner,
        kind=given.get("kind") or "note",
        topic=str(given.get("topic") or folder),
        tags=tuple(given.get("tags") or ()),
        labels=dict(given.get("labels") or {}),
        importance=int(given.get("importance") or 5),
        confidence=float(given.get("confidence", 1.0)),
        is_verified=given.get("is_verified") is True,
        version=int(given.get("version") or 1),
        source=str(given.get("source") or ""),
        ttl_s=int(given.get("ttl_s") or 0),
        created_ms=int(given.get("created_ms") or entry.created_ms),
        updated_ms=int(given.get("updated_ms") or entry.updated_ms),
    )


def _title(text: str) -> str:
    line = " ".join(re.split(r"\n", text.strip())[0].split())
    return line if len(line) <= 80 else line[:77] + "..."
