"""Records of memory in the database: written once, found, expired, forgotten, and nobody else's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_store

from appliance.clock import now_ms
from appliance.errors import BadInput, Conflict, NotFound, TooLarge
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.memory.memories import Memories
from appliance.store import visibility
from appliance.store.database import Store

ADA, BOB, HOME = "user:ada", "user:bob", "group:home"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def entries(store: Store) -> Entries:
    return Entries(store, Passages(store).index)


@pytest.fixture
def memories(store: Store, entries: Entries) -> Memories:
    passages = Passages(store)
    return Memories(entries, passages, Search(store, passages))


@pytest.mark.covers("A-230", "A-240")
def test_a_record_is_written_read_found_listed_and_forgotten(memories: Memories) -> None:
    made, is_new = memories.write(
        ADA, "Green tea at five.", topic="Drinks", kind="preference", tags=["tea"], importance=7, source="chat"
    )
    assert is_new and memories.read(ADA, made.id) == made and memories.read(ADA, "none") is None
    other, _ = memories.write(ADA, "The car is blue.", topic="things")
    assert memories.list_records(ADA) == [other, made] and memories.list_records(ADA, order="importance") == [made, other]
    assert (
        memories.list_records(ADA, topic="drinks")
        == memories.list_records(ADA, kind="preference")
        == memories.list_records(ADA, tag="tea")
        == [made]
    )
    assert (
        memories.list_records(ADA, least_importance=6) == memories.search(ADA, "tea") == [made]
        and memories.search(ADA, "lamp") == []
    )
    assert memories.forget(ADA, made.id) == made and memories.list_records(ADA) == [other]
    with pytest.raises(NotFound):
        memories.forget(ADA, made.id)


@pytest.mark.covers("A-235", "A-268")
def test_no_owner_sees_counts_or_forgets_what_is_another_s(memories: Memories, entries: Entries) -> None:
    mine, _ = memories.write(ADA, "The safe is behind the picture.")
    ours, _ = memories.write(HOME, "The safe is behind the picture.")
    everybody, _ = memories.write("", "The safe is behind the picture.")
    assert len({mine.id, ours.id, everybody.id}) == 3, "one owner's record is never merged with another's"
    for owner, own in ((ADA, [mine]), (HOME, [ours]), ("", [everybody]), (BOB, []), ("user:home", [])):
        assert memories.list_records(owner) == own and memories.search(owner, "safe picture") == own
        assert sum(topic.count for topic in memories.topics(owner)) == len(own)
    for key in (mine.id, memories.refs(ADA)[mine.id]):
        assert memories.read(BOB, key) is None and memories.read("", key) is None
        with pytest.raises(NotFound) as theirs:
            memories.forget(BOB, key)
        with pytest.raises(NotFound) as nobodys:
            memories.forget(BOB, "m-0")
        assert theirs.value.message.replace(key, "") == nobodys.value.message.replace("m-0", "")
    ref = memories.refs(ADA)[mine.id]
    with visibility.showing(BOB):
        assert memories.list_records(ADA) == [], "not even by its owner's name"
        with pytest.raises(NotFound):
            entries.get(ref)
    for owner in ("ada", "all:ada", "user:", "user:../ada", "user:a/b"):
        with pytest.raises(BadInput):
            memories.list_records(owner)


@pytest.mark.covers("A-231")
def test_what_has_expired_is_gone_for_every_reader(memories: Memories, entries: Entries) -> None:
    short, _ = memories.write(ADA, "Milk is in the car.", ttl_s=1)
    longer, _ = memories.write(ADA, "Bread is in the box.", ttl_s=3600)
    assert short.expires_ms == short.created_ms + 1000 and memories.read(ADA, short.id) == short
    while now_ms() < short.expires_ms:
        pass
    assert memories.list_records(ADA) == [longer] and memories.read(ADA, short.id) is None and memories.search(ADA, "milk") == []
    assert entries.owned("memory://", ADA)[0].body == longer.text and memories.sweep() == 0


def test_the_same_thing_is_remembered_once(memories: Memories) -> None:
    first, _ = memories.write(ADA, "I like green tea.", tags=["tea"], importance=4)
    again, is_new = memories.write(ADA, "I like green tea", tags=["drink"], importance=8)
    assert not is_new and again.id == first.id and (again.version, again.importance, again.tags) == (2, 8, ("tea", "drink"))
    assert again.text == "I like green tea" and len(memories.list_records(ADA)) == 1
    for text in ("I do not like green tea.", "I like green tea number 7."):
        assert memories.write(ADA, text)[1]


def test_meaning_counts_where_vectors_are_at_hand(store: Store, entries: Entries) -> None:
    same = Memories(entries, Passages(store), Search(store, Passages(store)), embed=lambda texts: [(1.0, 0.0)] * len(texts))
    same.write(ADA, "My sister lives in town now.", topic="facts")
    assert not same.write(ADA, "My sister lives in the city now.", topic="facts")[1]
    assert same.write(ADA, "My sister lives in Rome now.", topic="facts")[1]


@pytest.mark.covers("A-237")
def test_topics_are_listed_renamed_merged_and_deleted(memories: Memories) -> None:
    memories.write(ADA, "Tea is green.", topic="drinks")
    memories.write(ADA, "Coffee is black.", topic="drinks")
    memories.write(ADA, "The car is blue.", topic="things")
    memories.write(BOB, "Milk is white.", topic="drinks")
    assert [(t.name, t.count) for t in memories.topics(ADA)] == [("drinks", 2), ("things", 1)]
    with pytest.raises(Conflict) as caught:
        memories.rename_topic(ADA, "drinks", "Things")
    assert caught.value.outcome == "already_exists"
    with pytest.raises(NotFound):
        memories.rename_topic(ADA, "none", "other")
    assert memories.rename_topic(ADA, "drinks", "Hot drinks") == 2
    assert [(t.name, t.count) for t in memories.topics(ADA)] == [("hot-drinks", 2), ("things", 1)]
    assert memories.merge_topics(ADA, "hot-drinks", "things") == 2 and len(memories.list_records(ADA, topic="things")) == 3
    assert len(memories.list_records(BOB)) == 1


def test_what_is_no_memory_is_refused(memories: Memories) -> None:
    for text, more in (
        ("  ", {}),
        ("x", {"importance": 11}),
        ("x", {"confidence": 2.0}),
        ("x", {"ttl_s": -1}),
        ("x", {"topic": "../a"}),
    ):
        with pytest.raises(BadInput):
            memories.write(ADA, text, **more)  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        memories.write(ADA, "x" * (100 << 10))


@pytest.mark.covers("A-240", "A-233")
def test_forgetting_leaves_no_byte_of_it_in_the_file(tmp_path: Path) -> None:
    store = new_store(tmp_path / "forget.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    memories = Memories(entries, passages, Search(store, passages))
    made, _ = memories.write(ADA, "The zyxwvut is under the qponmlk.")
    memories.write(ADA, "The zyxwvut is under the qponmlk!")
    entries.put(
        memories.refs(ADA)[made.id],
        Content(body="gone zyxwvut"),
        By(),
    )
    memories.write(ADA, "Something else stays.")
    memories.forget(ADA, made.id)
    assert passages.counts().chunks == 1
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"Something else stays" in left
    for word in (b"zyxwvut", b"qponmlk"):
        assert word not in left, word
