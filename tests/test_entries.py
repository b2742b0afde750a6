"""What the owl knows: one row per reference, text unchanged, found by its words the moment it is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_store import child, finished

from appliance.entries import MAX_BODY_BYTES, MAX_PATH, Entries, parse_ref
from appliance.errors import BadInput, NotFound, OwlError, TooLarge
from appliance.search import Search, words_of
from appliance.store import Store

ANYTHING = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.create(tmp_path / "owlbox.db")
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
        ("C:/x", "C://x"),
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


@pytest.mark.covers("B-054")
@ANYTHING
@given(body=st.text(), title=st.text(min_size=1), value=st.text())
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


# -- searching --------------------------------------------------------------------------------------


@pytest.mark.covers("B-006")
def test_another_process_finds_an_entry_at_once(store: Store, entries: Entries) -> None:
    entries.set("memory://owl", "The barn owls were hooting")
    code = 'from appliance.search import Search; print(Search(Store.open(path)).find("HOOT")[0].ref)'
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
            f"memory://{number}", "somewhere far down this long text there is an owl " * (number + 1) + "and much else " * 30
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
