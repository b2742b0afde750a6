"""Memory for people and clients: list, search, show, write, forget, topics, and the file form of a record.

A caller sees what everybody shares and what is their own, and nobody else's. An admin may name another owner. Forgetting removes
the text, its passages, vectors and history; conversations in which it was said, and backups, keep what they hold.
"""

from collections.abc import Callable
from typing import Annotated, TypedDict

from msgspec.structs import replace

from appliance.errors import NotFound, Refused
from appliance.knowledge.change_log import By
from appliance.memory.memories import EVERYBODY, Memories, Topic
from appliance.memory.memory_document import MemoryDocument
from appliance.memory.memory_record import Kind, MemoryRecord, from_markdown, to_markdown
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.store import visibility

Owner = Annotated[str, "user:ID or group:ID; empty for yours and everybody's"]
Key = Annotated[str, "its id or reference, as `memory list` shows it"]


class MemoryLine(TypedDict):
    """A record and its reference."""

    ref: str
    record: MemoryRecord


class MemoryFile(TypedDict):
    """A record, its reference, and the Markdown file that it is."""

    ref: str
    record: MemoryRecord
    file: str


class WrittenMemory(TypedDict):
    """What was remembered; not new where a record that says the same was brought up to date."""

    ref: str
    record: MemoryRecord
    is_new: bool


class MemoryService:
    """Memory at the socket."""

    def __init__(self, memories: Memories, document: MemoryDocument, people: Callable[[], int]) -> None:
        """`people` says how many people and groups talk here."""
        self._memories = memories
        self._document = document
        self._people = people

    @method("memory.list", access="all")
    def list_records(
        self,
        call: Call,
        owner: Owner = "",
        topic: str = "",
        kind: str = "",
        tag: str = "",
        least_importance: Annotated[int, Range(1, 10)] = 1,
        limit: Annotated[int, Range(1, 10_000)] = 100,
        query: Annotated[str, "words"] = "",
    ) -> list[MemoryLine]:
        """List memories, newest first, or those that some words find, best first."""
        found: list[MemoryLine] = []
        for one in self._owners(call, owner):
            refs = self._memories.refs(one)
            records = self._memories.list_records(one, topic=topic, kind=kind, tag=tag, least_importance=least_importance)
            if query:
                fitting = {record.id for record in records}
                records = [record for record in self._memories.search(one, query, limit) if record.id in fitting]
            found += [MemoryLine(ref=refs[record.id], record=record) for record in records]
        return (found if query else sorted(found, key=lambda line: -line["record"].updated_ms))[:limit]

    @method("memory.view", access="all")
    def view(self, call: Call, key: Key, owner: Owner = "") -> MemoryFile:
        """One record, and the same as a Markdown file."""
        one, record = self._require(call, key, owner)
        return MemoryFile(ref=self._memories.refs(one)[record.id], record=record, file=to_markdown(record))

    @method("memory.import", access="all")
    def restore(
        self, call: Call, file: Annotated[str, "a Markdown file, as `memory show` prints it"], owner: Owner = ""
    ) -> WrittenMemory:
        """Keep a memory as a file has it, with its id and its times."""
        record = from_markdown(file)
        chosen = owner or record.owner or self.default_owner(call)
        self._require_allowed(call, chosen, is_writing=True)
        before = self._memories.read(chosen, record.id)
        kept = self._memories.restore(replace(record, owner=chosen))
        if before is not None and before.text != kept.text:
            self._document.replace_line(chosen, before.text, kept.text)
        return WrittenMemory(ref=self._memories.refs(chosen)[kept.id], record=kept, is_new=before is None)

    @method("memory.write", access="all")
    def write(
        self,
        call: Call,
        text: str,
        title: str = "",
        topic: str = "",
        kind: Kind = "note",
        tags: tuple[str, ...] = (),
        importance: Annotated[int, Range(1, 10)] = 5,
        ttl_s: Annotated[int, Range(0, 10**9), "seconds until it is forgotten; 0 for never"] = 0,
        owner: Owner = "",
    ) -> WrittenMemory:
        """Remember something; updates a memory that says the same."""
        chosen = owner or self.default_owner(call)
        self._require_allowed(call, chosen, is_writing=True)
        before = {one.id: one.text for one in self._memories.list_records(chosen)}
        record, is_new = self._memories.write(
            chosen,
            text,
            title=title,
            topic=topic,
            kind=kind,
            tags=tags,
            importance=importance,
            ttl_s=ttl_s,
            source="client",
            by=By(),
        )
        if not is_new and before.get(record.id, text) != text:
            self._document.replace_line(chosen, before[record.id], text)
        return WrittenMemory(ref=self._memories.refs(chosen)[record.id], record=record, is_new=is_new)

    @method("memory.forget", access="all")
    def forget(self, call: Call, key: Key, owner: Owner = "") -> MemoryRecord:
        """Forget one memory with its history."""
        one, record = self._require(call, key, owner)
        self._require_allowed(call, one, is_writing=True)
        gone = self._memories.forget(one, record.id)
        self._document.replace_line(one, gone.text)  # the file after the record: a line that came back would be a new one
        return gone

    @method("memory.topics", access="all")
    def topics(self, call: Call, owner: Owner = "") -> list[Topic]:
        """The topics with their counts."""
        counts: dict[str, int] = {}
        for one in self._owners(call, owner):
            for topic in self._memories.topics(one):
                counts[topic.name] = counts.get(topic.name, 0) + topic.count
        return [Topic(name, counts[name]) for name in sorted(counts)]

    @method("memory.move_topic", access="all")
    def move_topic(
        self,
        call: Call,
        old: Annotated[str, "the topic, as `memory topics` shows it"],
        new: Annotated[str, "what it is called from now on"],
        is_merging: Annotated[bool, "into a topic that there is"] = False,
        owner: Owner = "",
    ) -> int:
        """Rename a topic, or merge it into another; how many records moved."""
        chosen = owner or self.default_owner(call)
        self._require_allowed(call, chosen, is_writing=True)
        move = self._memories.merge_topics if is_merging else self._memories.rename_topic
        return move(chosen, old, new)

    def default_owner(self, call: Call) -> str:
        """Whose a new record is: everybody's on a box of one person, else the caller's."""
        return EVERYBODY if self._people() <= 1 else visibility.current() or f"user:{caller_name(call)}"

    def _owners(self, call: Call, owner: str) -> list[str]:
        """The owners whose records the caller asked for and may see."""
        if owner:
            self._require_allowed(call, owner)
            return [owner]
        return [EVERYBODY, visibility.current() or f"user:{caller_name(call)}"]

    def _require(self, call: Call, key: str, owner: str) -> tuple[str, MemoryRecord]:
        for one in self._owners(call, owner):
            if (record := self._memories.read(one, key)) is not None:
                return one, record
        raise NotFound(f"nothing is remembered as {key}", hint="owlbox memory list shows what is")

    def _require_allowed(self, call: Call, owner: str, *, is_writing: bool = False) -> None:
        contexts = visibility.asking()
        if contexts is None or owner in contexts:
            return
        if owner == EVERYBODY and not is_writing:
            return
        # The same words whether such a person exists or not.
        raise Refused("that memory is not yours", hint="leave the owner out for your own")
