"""What the owl knows: one row per reference, text unchanged, found by its words the moment it is there."""

import functools
import hashlib
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_tools import replace
from stores import new_store
from test_database import a_run, child, finished, killed

from appliance.errors import BadInput, Conflict, NotFound, OwlError, PathConflict, Refused, TooLarge
from appliance.knowledge.contents import MAX_BLOB_BYTES
from appliance.knowledge.entries import MAX_BODY_BYTES, MAX_PATH, PROJECT, By, Content, Draft, Entries, parse_ref
from appliance.knowledge.search import Search, words_of
from appliance.store.database import Store
from appliance.text import edits

ANYTHING = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def entries(store: Store) -> Entries:
    return Entries(store)


def found(store: Store, query: str, **more: object) -> list[str]:
    return [hit.ref for hit in Search(store).find(query, **more)]  # type: ignore[arg-type]


# -- references -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "path"),
    [
        ("memory://notes/garden", "memory://notes/garden"),
        ("disk:/a", "disk://a"),
        ("disk:/a/b c", "disk://a/b c"),
        ("  notes/a.md\n", "notes/a.md"),
        ("https://example.org/a:b", "https://example.org/a:b"),
        ("e\u0301", "é"),
        ("a..b/c", "a..b/c"),
        ("C:/x", "C:/x"),
    ],
)
def test_reference_is_stored_in_one_form(ref: str, path: str) -> None:
    assert parse_ref(ref) == path
    assert parse_ref(path) == path


@pytest.mark.parametrize("ref", ["", "  ", "x" * (MAX_PATH + 1), "a\0b", "a\nb", "../x", "memory://a/../b", "half\ud800"])
def test_what_cannot_be_a_reference_is_bad_input(ref: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_ref(ref)
    assert caught.value.hint


@given(st.text())
def test_reading_a_reference_twice_changes_nothing(ref: str) -> None:
    try:
        path = parse_ref(ref)
    except BadInput:
        return
    assert parse_ref(path) == path


# -- writing and reading ----------------------------------------------------------------------------


def test_second_set_keeps_id_birth_title_and_attributes(entries: Entries) -> None:
    first = entries.set("memory://owl", "hoot", title="Owl", attributes={"wings": 2})
    second = entries.set("memory://owl", "tu-whit", writer="model")
    assert (second.id, second.created_ms, second.title, second.attributes) == (first.id, first.created_ms, "Owl", {"wings": 2})
    assert (second.body, second.writer) == ("tu-whit", "model")
    assert second.hash != first.hash
    assert entries.count() == 1


def test_same_body_again_writes_nothing(store: Store, entries: Entries) -> None:
    first = entries.set("memory://owl", "hoot", title="Owl")
    log = store.path.with_name("owlbox.db-wal")
    size = log.stat().st_size
    assert entries.set("memory://owl", "hoot") == entries.set("memory://owl", "hoot", title="Owl") == first
    assert log.stat().st_size == size
    assert entries.set("memory://owl", "hoot", title="Barn owl").title == "Barn owl"


def test_scopes_do_not_see_each_other(store: Store, entries: Entries) -> None:
    entries.set("memory://owl", "of the project")
    entries.set("memory://owl", "of ann", scope="user:ann")
    assert (entries.get("memory://owl").body, entries.get("memory://owl", scope="user:ann").body) == ("of the project", "of ann")
    assert found(store, "ann") == []
    assert found(store, "ann", scopes=("user:ann",)) == ["memory://owl"]
    assert found(store, "ann", scopes=()) == []


@pytest.mark.covers("B-054", "B-083")
@ANYTHING
@given(body=st.text(), title=st.text(min_size=1, max_size=200), value=st.text())
def test_any_text_comes_back_unchanged(store: Store, entries: Entries, body: str, title: str, value: str) -> None:
    entries.set("memory://any", body, title=title, attributes={value: value})
    entry = entries.get("memory://any")
    assert (entry.body, entry.title, entry.attributes) == (body, title, {value: value})


@pytest.mark.covers("B-054")
@pytest.mark.parametrize("text", ["a\0b", "🦉 '\"; --", "a\r\nb\n", "\ufeffx", "\0"])
def test_special_characters_come_back_and_leave_the_index_sound(store: Store, entries: Entries, text: str) -> None:
    entries.set("memory://any", text)
    entries.set("memory://any", text + "more")
    assert entries.get("memory://any").body == text + "more"
    entries.remove("memory://any")
    assert store.problems() == []


@pytest.mark.parametrize(
    ("body", "error"),
    [("x" * (MAX_BODY_BYTES + 1), TooLarge), ("ü" * (MAX_BODY_BYTES // 2 + 1), TooLarge), ("half \ud800", BadInput)],
    ids=["too long", "too many bytes", "half a character"],
)
def test_body_that_cannot_be_kept_leaves_the_old_one(entries: Entries, body: str, error: type[OwlError]) -> None:
    entries.set("memory://owl", "hoot")
    with pytest.raises(error):
        entries.set("memory://owl", body)
    assert entries.get("memory://owl").body == "hoot"


def test_missing_entry_names_its_neighbours(entries: Entries) -> None:
    for number in range(7):
        entries.set(f"memory://birds/{number}", "hoot")
    entries.set("memory://fish", "blub")
    with pytest.raises(NotFound) as caught:
        entries.get("memory://birds/deep/down/owl")
    assert caught.value.hint == "nearby: " + ", ".join(f"memory://birds/{n}" for n in range(5))
    with pytest.raises(NotFound) as caught:
        entries.get("disk:/owl")
    assert caught.value.hint == "search finds entries by their words"


def test_removed_entry_is_gone_from_the_index_too(store: Store, entries: Entries) -> None:
    entries.set("memory://owl", "hoot")
    entries.remove("memory://owl")
    assert (entries.find("memory://owl"), entries.count(), found(store, "hoot")) == (None, 0, [])
    with pytest.raises(NotFound):
        entries.remove("memory://owl")


@pytest.mark.covers("B-054", "B-083", "R-030")
@pytest.mark.parametrize("body", ["", "x" * 300_000, "ü🦉" * 9000, "\n", "one\r\ntwo\n\n", "a\0b\tc"])
def test_texts_of_every_shape_come_back_unchanged(entries: Entries, body: str) -> None:
    made = entries.set("agent:/notes/any", body)
    assert made.body == entries.get("agent:/notes/any").body == body
    assert made.hash == hashlib.sha256(body.encode()).hexdigest()
    assert entries.set("agent:/notes/any", body + "!").body == body + "!"
    assert entries.set("agent:/notes/any", "").body == ""  # and it is still there


@pytest.mark.covers("R-005", "R-014", "E-109")
@ANYTHING
@given(value=JSON)
def test_attributes_come_back_unchanged_and_stay_until_replaced(entries: Entries, value: Any) -> None:
    entries.put("memory://any", Content("x", attributes={"value": value}))
    assert repr(entries.set("memory://any", "y").attributes) == repr(json.loads(json.dumps({"value": value}, sort_keys=True)))
    assert entries.put("memory://any", Content(attributes={})).attributes == {}


@pytest.mark.covers("R-005")
@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        (["a"], BadInput),
        ("text", BadInput),
        ({1: "a"}, BadInput),
        ({"a": math.nan}, BadInput),
        ({"a": math.inf}, BadInput),
        ({"a": object()}, BadInput),
        ({"a": "\ud800"}, BadInput),
        ({"a": functools.reduce(lambda inner, _: [inner], range(2000), 0)}, BadInput),
        ({"a": "x" * 65_536}, TooLarge),
    ],
    ids=["list", "text", "number as key", "nan", "infinite", "object", "half a character", "deep", "big"],
)
def test_attributes_must_be_a_json_object_of_some_size(entries: Entries, attributes: Any, error: type[OwlError]) -> None:
    with pytest.raises(error, match="attributes") as caught:
        entries.put("memory://owl", Content("hoot", attributes=attributes))
    assert caught.value.hint
    assert entries.find("memory://owl") is None


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (Content("x" * 50_000_000), TooLarge),
        (Content(blob=bytes(MAX_BLOB_BYTES + 1)), TooLarge),
        (Content("x", title="t" * 201), TooLarge),
        (Content("x", description="d" * 2001), TooLarge),
        (Content("x", source_url="u" * 2049), TooLarge),
        (Content("x", title="\ud800"), BadInput),
        (Content("x", blob=b"x"), BadInput),
        (Content("x", mime="inode/directory"), BadInput),
    ],
    ids=["50 MB", "big blob", "title", "description", "url", "half a character", "text and bytes", "folder with text"],
)
def test_what_an_entry_cannot_hold_is_refused_and_nothing_is_written(
    store: Store, entries: Entries, content: Content, error: type[OwlError]
) -> None:
    with pytest.raises(error) as caught:
        entries.put("memory://owl", content)
    assert caught.value.hint
    assert (entries.count(), store.value("SELECT COUNT(*) FROM changes")) == (0, 0)


@pytest.mark.covers("B-071")
def test_every_field_is_kept_and_changed_alone(entries: Entries) -> None:
    full = Content("hoot", None, "Owl", "a bird", "text/markdown", "https://x.org/owl", {"wings": 2})
    made = entries.put("agent:/owl.md", full, By("model", "r1"))
    assert (made.title, made.description, made.mime, made.source_url) == ("Owl", "a bird", "text/markdown", "https://x.org/owl")
    assert (made.is_textual, made.indexed_ms, made.writer, made.run) == (True, None, "model", "r1")
    assert len(made.uid) == 36 and made.created_ms == made.updated_ms > 0
    changed = entries.put("agent:/owl.md", Content(description=""))
    assert replace(changed, updated_ms=0, writer="", run="") == replace(made, description="", updated_ms=0, writer="", run="")
    assert entries.by_uid(made.uid) == changed
    assert entries.by_uid("stranger") is None


def test_new_text_makes_what_an_index_knows_stale(store: Store, entries: Entries) -> None:
    for content, is_kept in ((Content(attributes={"a": 1}), True), (Content("hoot"), True), (Content("tu-whit"), False)):
        entries.set("memory://owl", "hoot")
        with store.write() as execute:
            execute("UPDATE entries SET indexed_ms = 7")
        assert (entries.put("memory://owl", content).indexed_ms == 7) is is_kept


@pytest.mark.covers("B-071", "R-017")
@pytest.mark.parametrize(
    ("ref", "is_text", "mime"),
    [
        ("agent:/a.md", True, "text/markdown"),
        ("agent:/a", True, "text/plain"),
        ("box://notes/a", True, "text/markdown"),
        ("agent:/data.json", True, "application/json"),
        ("agent:/fake.png", True, "text/plain"),
        ("url:/https://example.com", True, "text/plain"),
        ("agent:/owl.PNG", False, "image/png"),
        ("agent:/owl", False, "application/octet-stream"),
        ("disk:/a/b.pdf", False, "application/pdf"),
    ],
)
def test_mime_type_is_guessed_from_the_name(entries: Entries, ref: str, is_text: bool, mime: str) -> None:
    made = entries.put(ref, Content("x") if is_text else Content(blob=b"\0\xff"))
    assert (made.mime, made.is_textual) == (mime, is_text)
    assert made.hash == hashlib.sha256(b"x" if is_text else b"\0\xff").hexdigest()


@pytest.mark.covers("B-071")
def test_bytes_are_kept_beside_the_entry_and_go_with_it(store: Store, entries: Entries) -> None:
    made = entries.put("agent:/owl.png", Content(blob=bytes(range(256)) * 999))
    assert (made.body, made.is_textual, entries.blob(made)) == ("", False, bytes(range(256)) * 999)
    assert [line.size_bytes for line in entries.list_lines("agent:/")] == [256 * 999]
    assert entries.put("agent:/owl.png", Content(title="Owl")).mime == "image/png"
    assert entries.changes("agent:/owl.png")[0].size_bytes == 256 * 999
    assert entries.blob(entries.put("agent:/owl.png", Content(blob=b""))) == b""
    text = entries.set("agent:/owl.png", "no picture any more")
    assert (text.is_textual, text.mime, store.value("SELECT COUNT(*) FROM blobs")) == (True, "text/plain", 0)
    with pytest.raises(NotFound, match="holds no bytes"):
        entries.blob(text)
    entries.put("agent:/owl.png", Content(blob=b"x"))
    entries.remove("agent:/owl.png")
    assert store.value("SELECT COUNT(*) FROM blobs") == 0
    assert store.problems() == []


# -- collisions -------------------------------------------------------------------------------------


@pytest.mark.covers("B-068", "B-077", "E-187", "E-188")
def test_strict_create_names_what_is_there_and_overwriting_keeps_its_identity(entries: Entries) -> None:
    first = entries.put("agent:/owl", Content("hoot", title="Owl"), if_exists="error")
    with pytest.raises(PathConflict, match=first.uid) as caught:
        entries.put("agent://owl", Content("other"), if_exists="error")
    assert (caught.value.outcome, caught.value.uid, caught.value.status) == ("path_conflict", first.uid, 409)
    assert "another path" in caught.value.hint
    second = entries.put("agent:/owl", Content("other"))
    assert (second.id, second.uid, second.created_ms, second.body) == (first.id, first.uid, first.created_ms, "other")
    elsewhere = entries.put("disk:/owl", Content("on another drive"), if_exists="error")
    assert elsewhere.uid != first.uid and entries.count() == 2


@pytest.mark.covers("B-182")
@pytest.mark.parametrize(("is_there", "expected"), [(True, "0" * 64), (True, ""), (False, "0" * 64)])
def test_write_over_something_else_than_was_read_is_refused(entries: Entries, is_there: bool, expected: str) -> None:
    if is_there:
        entries.set("memory://owl", "hoot")
    with pytest.raises(Conflict, match="since it was read") as caught:
        entries.put("memory://owl", Content("mine"), expected_hash=expected)
    assert caught.value.hint
    left = entries.find("memory://owl")  # what was removed is not brought back, what is there stays
    assert left.body == "hoot" if left else not is_there


@pytest.mark.covers("B-182")
def test_write_over_what_was_read_goes_through(entries: Entries) -> None:
    read = entries.put("memory://owl", Content("hoot"), expected_hash="")
    assert entries.put("memory://owl", Content("mine"), expected_hash=read.hash).body == "mine"
    with pytest.raises(Conflict):
        entries.put("memory://owl", Content("late"), expected_hash=read.hash)


@pytest.mark.covers("B-182")
def test_of_many_who_read_the_same_only_one_writes(store: Store, entries: Entries) -> None:
    read = entries.set("memory://owl", "hoot")

    def write(number: int) -> bool:
        try:
            entries.put("memory://owl", Content(f"by {number}"), expected_hash=read.hash)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(8))) == 1
    assert len(entries.changes("memory://owl")) == 2


@pytest.mark.covers("R-025")
def test_run_cannot_override_what_is_global(entries: Entries) -> None:
    entries.set("known://law", "for all", scope="global")
    entries.set("known://mine", "of the run", scope="run:r1")
    for attempt in (
        lambda: entries.set("known://law", "mine", scope="run:r1"),
        lambda: entries.copy("known://mine", "known://law", scope="run:r1"),
        lambda: entries.move("known://mine", "known://law", scope="run:r1"),
        lambda: entries.make_folder("known://law", scope="run:r1"),
    ):
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.status == 403
    assert entries.find("known://law", scope="run:r1") is None
    assert entries.set("known://law", "of the project").body == "of the project"  # no run's copy


@pytest.mark.covers("R-011")
def test_scopes_are_checked_and_apart(entries: Entries) -> None:
    for scope in ("global", "project:1", "project:2", "run:r1", "user:ann"):
        assert entries.set(f"memory://{'x' if scope == 'global' else 'y'}", scope, scope=scope).scope == scope
    with pytest.raises(BadInput, match="there is no scope 'project'"):
        entries.set("memory://y", "", scope="project")
    assert entries.count() == 5


# -- history ----------------------------------------------------------------------------------------


@pytest.mark.covers("R-013")
def test_every_change_is_in_the_history_once(store: Store, entries: Entries) -> None:
    first = entries.set("memory://owl", "hoot\nhoot\n", writer="client")
    entries.set("memory://owl", "hoot\nhoot\n")
    second = entries.put("memory://owl", Content("hoot\ntu-whit\n"), By("model", "r1", "edit"))
    entries.put("memory://owl", Content(title="Owl"))
    entries.remove("memory://owl", By("model", "r2"))
    told = entries.changes("memory:/owl")
    assert [(c.verb, c.writer, c.run) for c in told] == [
        ("rm", "model", "r2"),
        ("set", "client", ""),
        ("edit", "model", "r1"),
        ("set", "client", ""),
    ]
    assert [(c.before_hash, c.after_hash) for c in told] == [
        (second.hash, ""),
        (second.hash, second.hash),
        (first.hash, second.hash),
        ("", first.hash),
    ]
    assert [c.size_bytes for c in told] == [0, 13, 13, 10]
    assert told[1].patch == "" and "-hoot\n+tu-whit\n" in told[2].patch
    assert edits.apply(told[0].patch, "hoot\ntu-whit\n") == ""
    assert edits.apply(told[2].patch, edits.apply(told[3].patch, "")) == "hoot\ntu-whit\n"
    assert entries.changes("memory:/owl", limit=1) == told[:1]
    assert entries.changes("memory:/owl", scope="user:ann") == []


@pytest.mark.parametrize("is_big", [False, True])
def test_patch_that_would_be_long_is_left_out(entries: Entries, is_big: bool) -> None:
    lines = [f"line {number} of a long note" for number in range(50_000 if is_big else 2000)]
    entries.set("memory://long", "\n".join(lines))
    entries.set("memory://long", "\n".join(["new first line", *lines[1:]]))
    entries.set("memory://long", "\n".join(reversed(lines)))
    reversed_, small, new = (c.patch for c in entries.changes("memory://long"))
    assert (reversed_, new, "+new first line" in small) == ("", "", not is_big)


def test_history_forgets_the_oldest(store: Store, entries: Entries) -> None:
    with store.write(durable=True):
        for number in range(105):
            entries.set("memory://owl", str(number))
            entries.set("memory://other", "hoot")
    told = entries.changes("memory://owl", limit=1000)
    assert len(told) == 100 and "+104" in told[0].patch and "+5" in told[-1].patch
    assert len(entries.changes("memory://other")) == 1


def test_true_and_one_are_two_things(entries: Entries) -> None:
    entries.put("memory://owl", Content("x", attributes={"a": 1}))
    assert entries.put("memory://owl", Content(attributes={"a": True})).attributes["a"] is True
    assert len(entries.changes("memory://owl")) == 2


def test_mirror_tells_of_changes_of_the_text_alone(entries: Entries) -> None:
    for text, at in (("hoot\n", 1), ("hoot\n", 2), ("tu-whit\n", 3)):
        entries.mirror([Draft("box://owl.md", "Owl", text, {"at": at})], writer="folder")
    assert entries.get("box://owl.md").attributes == {"at": 3}
    entries.mirror([], ["box://owl.md", "box://never.md"], writer="folder")
    told = entries.changes("box://owl.md")
    assert [(c.verb, c.writer, bool(c.patch)) for c in told] == [("mirror", "folder", flag) for flag in (True, True, False)]
    assert entries.count() == 0


def test_mirrored_file_takes_the_place_of_a_folder(entries: Entries) -> None:
    entries.make_folder("box://owl")
    entries.mirror([Draft("box://owl", "Owl", "hoot", {})], writer="folder")
    found = entries.get("box://owl")
    assert (found.body, found.is_textual, found.mime) == ("hoot", True, "text/markdown")


# -- copying, moving, removing ----------------------------------------------------------------------


@pytest.mark.covers("B-080")
def test_copy_has_the_content_and_a_life_of_its_own(entries: Entries) -> None:
    made = entries.put("agent:/a.png", Content(blob=b"\xff", title="A", attributes={"x": 1}, source_url="https://x.org"))
    copy = entries.copy("agent:/a.png", "disk:/b/a.png", By("model", "r1"))
    assert (copy.title, copy.attributes, copy.source_url, copy.hash) == ("A", {"x": 1}, "https://x.org", made.hash)
    assert entries.blob(copy) == b"\xff" and copy.uid != made.uid and copy.run == "r1"
    entries.set("agent:/a.png", "text now")
    assert entries.blob(entries.get("disk:/b/a.png")) == b"\xff"
    assert [(c.verb, c.writer) for c in entries.changes("disk:/b/a.png")] == [("cp", "model")]


@pytest.mark.covers("B-080")
@pytest.mark.parametrize("verb", ["copy", "move"])
def test_target_that_is_there_is_kept_unless_told_otherwise(store: Store, entries: Entries, verb: str) -> None:
    act = getattr(entries, verb)
    source, there = entries.set("agent:/a", "new\n"), entries.put("agent:/b", Content(blob=b"old"))
    with pytest.raises(PathConflict, match=there.uid):
        act("agent:/a", "agent:/b")
    assert (entries.blob(entries.get("agent:/b")), entries.get("agent:/a")) == (b"old", source)
    done = act("agent:/a", "agent:/b", is_overwrite=True)
    assert (done.body, done.uid) == ("new\n", there.uid if verb == "copy" else source.uid)
    assert entries.changes("agent:/b")[0].before_hash == there.hash
    assert store.value("SELECT COUNT(*) FROM blobs") == 0
    assert (entries.find("agent:/a") is None) is (verb == "move")
    with pytest.raises(NotFound):
        act("agent:/never", "agent:/c")
    with pytest.raises(BadInput, match="source and target"):
        act("agent:/b", "agent://b", is_overwrite=True)
    assert store.problems() == []


@pytest.mark.covers("B-080")
def test_move_keeps_identity_birth_views_and_index_time(store: Store, entries: Entries) -> None:
    made = entries.set("agent:/owl", "hoot")
    run = a_run(store)
    with store.write() as execute:
        execute("UPDATE entries SET indexed_ms = 7")
        execute(VIEW, (run, made.id, 200, "resolved", ""))
    moved = entries.move("agent:/owl", "disk:/birds/owl.md", By("model"))
    assert (moved.id, moved.uid, moved.created_ms, moved.indexed_ms) == (made.id, made.uid, made.created_ms, 7)
    assert store.rows("SELECT run, path FROM run_entries") == [(run, "disk://birds/owl.md")]
    assert found(store, "birds") == found(store, "hoot") == ["disk://birds/owl.md"]
    [left], [come] = entries.changes("agent:/owl", limit=1), entries.changes("disk:/birds/owl.md")
    assert (left.verb, left.before_hash, left.after_hash) == ("mv", made.hash, "")
    assert (come.verb, come.before_hash, come.after_hash) == ("mv", "", made.hash)
    assert left.patch == come.patch == "rename from agent://owl\nrename to disk://birds/owl.md\n"


def test_removing_a_folder_goes_by_whole_names(store: Store, entries: Entries) -> None:
    for ref in ("agent:/a", "agent:/a/b", "agent:/a/c/d", "agent:/ab", "agent:/a.md", "memory:/a/b"):
        entries.put(ref, Content(blob=b"x"))
    below = entries.under("agent:/a/")
    assert below == ["agent://a", "agent://a/b", "agent://a/c/d"]
    for path in below:
        entries.remove(path, By("model"))
    assert [line.ref for line in entries.list_lines()] == ["agent://a.md", "agent://ab", "memory://a/b"]
    assert entries.changes("agent:/a/b")[0].verb == "rm"
    assert entries.under("agent:/") == ["agent://a.md", "agent://ab"]
    for path in entries.under("agent:/"):
        entries.remove(path)
    assert entries.under("agent:/") == []
    assert store.value("SELECT COUNT(*) FROM blobs") == 1
    assert store.problems() == []


def test_folder_is_made_once_and_holds_no_text(entries: Entries) -> None:
    made, is_new = entries.make_folder("agent:/birds/", By("model"))
    assert (made.path, made.mime, made.is_textual, made.body, is_new) == ("agent://birds", "inode/directory", False, "", True)
    assert made.is_folder
    assert entries.make_folder("agent:/birds") == (made, False)
    assert len(entries.changes("agent:/birds")) == 1
    with pytest.raises(Conflict, match="is a folder"):
        entries.set("agent:/birds", "hoot")
    entries.set("agent:/birds/owl", "hoot")
    with pytest.raises(PathConflict):
        entries.make_folder("agent:/birds/owl")
    with pytest.raises(PathConflict):
        entries.copy("agent:/birds/owl", "agent:/birds", is_overwrite=True)
    assert entries.copy("agent:/birds", "agent:/fish").is_folder


@pytest.mark.covers("R-013")
def test_all_join_a_transaction_and_are_taken_back_with_it(store: Store, entries: Entries) -> None:
    entries.set("memory://a", "before")
    before = [entries.list_lines(), entries.changes("memory://a")]
    by = By("model", "r1")
    with pytest.raises(BadInput, match="no"), store.write(run="r1", durable=True):
        entries.put("memory://a", Content("after"), by)
        entries.copy("memory://a", "memory://b", by)
        entries.move("memory://a", "memory://c", by)
        entries.make_folder("memory://d", by)
        entries.put("memory://e", Content(blob=b"x"), by)
        entries.remove("memory://e", by)
        entries.mirror([Draft("box://f", "F", "text", {})], writer="folder")
        raise BadInput("no")
    assert [entries.list_lines(), entries.changes("memory://a")] == before
    assert (store.value("SELECT COUNT(*) FROM changes"), store.value("SELECT COUNT(*) FROM changesets")) == (1, 0)


KILLED = """
    from appliance.knowledge.entries import By, Content, Entries
    store = Store.open(path)
    with store.write(durable=True):
        Entries(store).set("memory://owl", "half of it")
        Entries(store).remove("memory://other")
        print("written", flush=True)
        sys.stdin.read()  # until it is killed
"""


@pytest.mark.covers("S-128")
def test_crash_in_the_middle_of_a_write_leaves_the_old_content(store: Store, entries: Entries) -> None:
    entries.set("memory://owl", "the old text")
    entries.set("memory://other", "still here")
    killed(child(KILLED, store.path), after="written")
    assert (entries.get("memory://owl").body, entries.get("memory://other").body) == ("the old text", "still here")
    assert (found(store, "half"), len(entries.changes("memory://owl"))) == ([], 1)
    assert entries.set("memory://owl", "new").body == "new"
    assert store.problems() == []


# -- what the tables themselves refuse --------------------------------------------------------------

VIEW = "INSERT INTO views (run, entry, status, state, outcome, visibility, updated_ms) VALUES (?, ?, ?, ?, ?, 'summarized', 1)"


@pytest.mark.covers("R-009", "R-010", "E-101")
@pytest.mark.parametrize(
    ("status", "state", "outcome", "is_fine"),
    [
        (100, "streaming", "", True),
        (599, "failed", "not_found", True),
        (499, "cancelled", "aborted", True),
        (99, "resolved", "", False),
        (600, "resolved", "", False),
        ("text", "resolved", "", False),
        (200.5, "resolved", "", False),
        (200, "resolved", "not_found", False),
        (200, "done", "", False),
    ],
)
def test_status_and_outcome_of_a_view(
    store: Store, entries: Entries, status: object, state: str, outcome: str, is_fine: bool
) -> None:
    run, entry = a_run(store), entries.set("memory://owl", "hoot")
    if is_fine:
        with store.write() as execute:
            execute(VIEW, (run, entry.id, status, state, outcome))
    else:
        with pytest.raises(OwlError, match="constraint|cannot store"), store.write() as execute:
            execute(VIEW, (run, entry.id, status, state, outcome))
    assert store.value("SELECT COUNT(*) FROM views") == is_fine


@pytest.mark.covers("R-016", "R-005")
def test_joined_view_is_for_reading(store: Store, entries: Entries) -> None:
    run, entry = a_run(store), entries.set("memory://owl", "hoot", attributes={"a": 1})
    with store.write() as execute:
        execute(VIEW, (run, entry.id, 102, "streaming", ""))
    columns = "run, path, body, attributes, visibility, state, outcome, writer, scope, status, turn, loop, writes"
    assert store.rows(f"SELECT {columns} FROM run_entries") == [
        (run, "memory://owl", "hoot", '{"a": 1}', "summarized", "streaming", "", "client", PROJECT, 102, 0, 0, 0)
    ]
    for attempt in ("UPDATE run_entries SET body = 'x'", "DELETE FROM run_entries", "INSERT INTO run_entries (body) VALUES ('x')"):
        with pytest.raises(OwlError, match="cannot modify run_entries because it is a view"), store.write() as execute:
            execute(attempt)


@pytest.mark.covers("R-006", "R-018")
def test_table_has_a_limit_for_paths_and_no_column_for_tokens(store: Store) -> None:
    with pytest.raises(OwlError, match="constraint"), store.write() as execute:
        execute(
            "INSERT INTO entries (scope, path, hash, writer, created_ms, updated_ms) VALUES ('global', ?, '', '', 1, 1)",
            ("x" * (MAX_PATH + 1),),
        )
    columns = store.rows("SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'")
    assert [name for table, name in columns if table in ("entries", "blobs", "views") and "token" in name] == []


def test_entries_of_a_run_go_with_it(store: Store, entries: Entries) -> None:
    run = a_run(store)
    entries.put("known://a", Content(blob=b"x"), scope=f"run:{run}")
    entries.set("memory://a", "stays")
    with store.write() as execute:
        execute("DELETE FROM runs WHERE id = ?", (run,))
    assert [store.value(f"SELECT COUNT(*) FROM {table}") for table in ("entries", "changes", "blobs")] == [1, 1, 0]
    assert store.problems() == []


# -- searching --------------------------------------------------------------------------------------


@pytest.mark.covers("B-006")
def test_another_process_finds_an_entry_at_once(store: Store, entries: Entries) -> None:
    entries.set("memory://owl", "The barn owls were hooting")
    code = 'from appliance.knowledge.search import Search; print(Search(Store.open(path)).find("HOOT")[0].ref)'
    assert finished(child(code, store.path)) == "memory://owl"


@pytest.mark.parametrize(
    ("query", "refs"),
    [
        ("hooting owl", ["memory://owl"]),
        ("OWLS!", ["memory://owl"]),
        ("cafe", ["memory://café"]),
        ("café", ["memory://café"]),
        ("what is the", []),
        ("", []),
        ('"* AND NEAR( OR -x:', []),
        ("title:owl", ["memory://owl"]),
        ("7", ["memory://café"]),
    ],
)
def test_search_by_words(store: Store, entries: Entries, query: str, refs: list[str]) -> None:
    entries.set("memory://owl", "It hoots at night.", title="Owl")
    entries.set("memory://café", "Opens at 7. Crème brûlée.")
    assert found(store, query) == refs


def test_change_moves_the_words_with_it(store: Store, entries: Entries) -> None:
    entries.set("memory://bird", "an owl")
    entries.set("memory://bird", "a sparrow")
    assert (found(store, "owl"), found(store, "sparrow")) == ([], ["memory://bird"])


def test_best_comes_first_and_the_limit_holds(store: Store, entries: Entries) -> None:
    for number in range(9):
        entries.set(
            f"memory://{number}", "somewhere far down this long text there is an owl " * (number % 3 + 1) + "and much else " * 30
        )
    entries.set("memory://best", "hoot", title="Owl")
    assert found(store, "owl", limit=3)[0] == "memory://best"
    assert len(found(store, "owl", limit=3)) == 3
    scores = [hit.score for hit in Search(store).find("owl", limit=20)]
    assert scores == sorted(scores, reverse=True) and len(scores) == 10


@ANYTHING
@given(query=st.text())
def test_no_query_breaks_the_search(store: Store, query: str) -> None:
    assert Search(store).find(query) == []
    assert len(words_of(query)) <= 32
