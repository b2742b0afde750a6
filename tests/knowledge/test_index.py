"""The index: words at commit, vectors that stay with their text, undo, crashes, and the check that all of it agrees."""

import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from stores import new_store
from test_database import a_run, child

from appliance.errors import Conflict
from appliance.knowledge import chunking
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import By, Draft, Entries
from appliance.knowledge.index import Passages, embedded, hash_of, packed, words
from appliance.knowledge.search import Search, Vector
from appliance.store.database import Row, Store

PAGE = "# Owls\n\n" + "The barn owl hunts at dusk.\n" * 15 + "\n# Cats\n\n" + "The cat sleeps all day long.\n" * 15


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def passages(store: Store) -> Passages:
    return Passages(store)


@pytest.fixture
def entries(store: Store, passages: Passages) -> Entries:
    return Entries(store, passages.index)


def vector(text: str, dimension: int = 384) -> list[float]:
    """A unit vector that only the text decides."""
    dice = random.Random(text)
    values = [dice.gauss(0, 1) for _ in range(dimension)]
    size = math.sqrt(sum(value * value for value in values))
    return [value / size for value in values]


def embed(passages: Passages, model: str = "m", dimension: int = 384) -> list[str]:
    """Give every chunk its vector; the texts that were embedded."""
    done: list[str] = []
    while batch := passages.waiting():
        passages.store_vectors(model, [(chunk, vector(chunk.text, dimension)) for chunk in batch])
        done += [chunk.text for chunk in batch]
    return done


def rows(store: Store, ref: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = store.rows(
        "SELECT c.id, c.seq FROM chunks c JOIN entries e ON e.id = c.entry WHERE e.path = ? ORDER BY c.seq", (ref,)
    )
    return found


# -- words ------------------------------------------------------------------------------------------


@pytest.mark.covers("B-109")
def test_words_are_indexed_in_the_transaction_of_the_write(store: Store, entries: Entries, passages: Passages) -> None:
    with pytest.raises(ZeroDivisionError), store.write(durable=True):
        entries.set("memory://owl", "hoot")
        assert store.value("SELECT COUNT(*) FROM chunks_fts WHERE chunks_fts MATCH 'hoot'") == 1
        1 / 0  # noqa: B018
    assert (store.rows("SELECT * FROM chunks"), store.rows("SELECT * FROM chunks_fts")) == ([], [])
    made = entries.set("memory://owl", "hoot")
    assert store.value("SELECT COUNT(*) FROM chunks_fts WHERE chunks_fts MATCH 'hoot'") == 1
    assert store.rows("SELECT * FROM pending") == [] and passages.problems() == []
    assert made.indexed_ms is not None and entries.get("memory://owl").indexed_ms == made.indexed_ms


@pytest.mark.covers("B-092", "E-208")
def test_a_changed_text_has_new_chunks_and_none_of_the_old(store: Store, entries: Entries, passages: Passages) -> None:
    first = entries.set("memory://page", PAGE)
    old = rows(store, "memory://page")
    assert len(old) == len(passages.chunks_of(first)) == 2
    time.sleep(0.002)
    second = entries.set("memory://page", PAGE.replace("dusk", "dawn").replace("sleeps", "dozes"))
    new = rows(store, "memory://page")
    assert not {key for key, _ in old} & {key for key, _ in new} and [seq for _, seq in new] == list(range(len(new)))
    assert store.value("SELECT COUNT(*) FROM chunks_fts WHERE chunks_fts MATCH 'dusk OR sleeps'") == 0
    assert (second.indexed_ms or 0) > (first.indexed_ms or 0)
    assert passages.problems() == []


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE chunks SET hash = x'00' WHERE seq = 0",
        "UPDATE chunks SET stop = stop - 3 WHERE seq = 0",
        "DELETE FROM chunks_fts",
    ],
)
def test_a_short_look_finds_what_is_wrong_in_its_sample(store: Store, entries: Entries, passages: Passages, harm: str) -> None:
    entries.set("memory://page", PAGE)
    entries.set("memory://odd", "Käuzin, 42 и ещё")
    assert passages.problems(sample=10) == []
    with store.write() as execute:
        execute(harm)
    assert "does not agree with the entries" in passages.problems(sample=10)[0]


@pytest.mark.covers("B-092")
def test_chunks_are_unique_within_an_entry(store: Store, entries: Entries) -> None:
    entries.set("memory://owl", "hoot")
    with pytest.raises(Exception, match="UNIQUE"), store.write() as execute:
        execute("INSERT INTO chunks (entry, seq, start, stop, hash) SELECT entry, seq, 0, 1, x'00' FROM chunks")


@pytest.mark.covers("B-109", "E-208")
def test_what_is_not_text_has_no_chunks(store: Store, entries: Entries, passages: Passages) -> None:
    entries.put("agent:/owl.png", Content(blob=b"\x89PNG owl", title="Owl"))
    entries.make_folder("agent:/owls")
    assert store.rows("SELECT * FROM chunks") == [] and passages.problems() == []
    entries.set("memory://owl", "hoot")
    entries.put("memory://owl", Content(blob=b"\x00\x01"))
    assert store.rows("SELECT * FROM chunks") == [] and passages.problems() == []


def test_what_nobody_looks_for_is_not_indexed(store: Store, entries: Entries, passages: Passages) -> None:
    entries.set("log://1/1/set", "the owl was written", scope="run:r1")
    entries.set("memory://form", "say who the owl is", attributes={"is_blank": True})
    assert store.rows("SELECT * FROM chunks") == [] and passages.problems() == []
    entries.set("memory://form", "say who the owl is", attributes={"is_blank": False})
    assert len(store.rows("SELECT * FROM chunks")) == 1


def test_an_entry_without_a_text_is_known_by_its_name(store: Store, entries: Entries) -> None:
    entries.set("memory://owls/barn", "", title="Tyto alba")
    assert (
        [hit.ref for hit in Search(store).find("alba")] == ["memory://owls/barn"] == [hit.ref for hit in Search(store).find("barn")]
    )


@pytest.mark.covers("B-109")
@pytest.mark.parametrize("has_hook", [True, False])
def test_every_kind_of_change_is_findable_before_the_next_search(store: Store, has_hook: bool) -> None:
    passages = Passages(store)
    entries, finder = Entries(store, passages.index if has_hook else None), Search(store, passages)

    def found(word: str) -> list[str]:
        assert passages.problems() == []
        return sorted(hit.ref for hit in finder.find(word))

    entries.set("memory://a", "one owl")
    entries.copy("memory://a", "memory://b")
    assert found("owl") == ["memory://a", "memory://b"]
    entries.move("memory://a", "memory://meadow")
    assert found("meadow") == ["memory://meadow"] and found("owl") == ["memory://b", "memory://meadow"]
    entries.remove("memory://b")
    assert found("owl") == ["memory://meadow"]
    entries.mirror([Draft("box://c", "Owl", "hoot", {})], ["memory://meadow"], writer="folder")
    assert found("owl") == found("hoot") == ["box://c"]
    entries.put("box://c", Content(description="a strigiform"))
    assert found("strigiform") == ["box://c"]
    run = a_run(store)
    entries.set("memory://c", "a sparrow", run=run)
    entries.set("box://c", "quiet", run=run)
    assert (found("sparrow"), found("hoot")) == (["memory://c"], [])
    with store.write(durable=True):
        store.take_back(run, "undo")
    assert (found("sparrow"), found("hoot"), found("quiet")) == ([], ["box://c"], [])


def test_what_is_pending_is_indexed_in_bounded_transactions(store: Store) -> None:
    plain, passages = Entries(store), Passages(store)
    for number in range(150):
        plain.set(f"memory://{number}", f"owl {number}")
    assert passages.counts().pending == 150
    stops = iter([False, True])
    assert passages.catch_up(lambda: next(stops)) == 64
    assert passages.counts().pending == 86 and passages.catch_up() == 86
    assert passages.counts().chunks == 150 and passages.problems() == []


# -- what a vector stands for -----------------------------------------------------------------------


@pytest.mark.covers("B-090")
def test_the_embedded_text_names_title_description_and_source(entries: Entries, passages: Passages) -> None:
    entries.put("agent:/notes/owl.md", Content(body="It hoots.", title="Owl", description="A bird of the night."))
    [waiting] = passages.waiting()
    assert waiting.text == "Owl\nA bird of the night.\nSource: agent:/notes/owl.md\nIt hoots."
    entries.put("agent:/notes/owl.md", Content(title="", description=""))
    assert [one.text for one in passages.waiting()] == ["Source: agent:/notes/owl.md\nIt hoots."]


@pytest.mark.covers("E-207", "B-089")
def test_indexed_and_embedded_text_begin_with_the_end_of_the_chunk_before(entries: Entries, passages: Passages) -> None:
    text = "\n".join(f"line {n} {'.' * 40}" for n in range(60))
    entry = entries.set("memory://lines", text)
    found = passages.chunks_of(entry)
    for n, chunk in enumerate(found):
        last = text[found[n - 1].start : found[n - 1].stop].split("\n")[-2:] if n else []
        wanted = "\n".join(["Source: memory:/lines", *last, text[chunk.start : chunk.stop]])
        assert embedded(entry, found, n) == wanted
        assert words(entry, found, n)[2].startswith("\n".join(last))
    short = entries.set("memory://short", "one\ntwo")
    assert embedded(short, passages.chunks_of(short), 0) == "Source: memory:/short\none\ntwo"


def test_a_vector_stays_while_its_text_stays(store: Store, entries: Entries, passages: Passages) -> None:
    entries.set("memory://page", PAGE)
    count = len(embed(passages))
    entries.set("memory://page", PAGE)
    entries.put("memory://page", Content(attributes={"x": 1}))
    assert embed(passages) == []
    entries.set("memory://page", PAGE + "\nA new last line about mice.")
    assert 1 <= len(embed(passages)) < count
    entries.move("memory://page", "memory://book")
    assert len(embed(passages)) >= count  # its source is another one
    assert passages.problems() == []


def test_a_vector_that_comes_too_late_is_dropped(store: Store, entries: Entries, passages: Passages) -> None:
    entries.set("memory://owl", "hoot")
    batch = passages.waiting()
    entries.set("memory://owl", "quiet")
    assert passages.store_vectors("m", [(chunk, vector("hoot")) for chunk in batch]) == 0
    assert passages.counts().vectors == 0 and passages.problems() == []


@pytest.mark.covers("B-094", "E-209")
def test_vectors_of_another_model_or_length_are_refused(entries: Entries, passages: Passages) -> None:
    entries.set("memory://owl", "hoot")
    embed(passages, "old")
    entries.set("memory://cat", "purr")
    for model, dimension in (("new", 384), ("old", 8)):
        with pytest.raises(Conflict, match="stored vectors are of old") as error:
            embed(passages, model, dimension)
        assert "reembed" in error.value.hint
    assert passages.forget_vectors() == 2 and passages.embedder() is None
    assert len(embed(passages, "new", 8)) == 2
    known = passages.embedder()
    assert known and (known.model, known.dimension) == ("new", 8) and passages.problems() == []


def test_room_of_deleted_vectors_is_got_back(store: Store, entries: Entries, passages: Passages) -> None:
    with store.write(durable=True):
        for number in range(1600):
            entries.set(f"memory://{number}", f"owl {number}")
    embed(passages)
    before = store.rows("SELECT rowid, embedding FROM chunks_vec WHERE (rowid - 1) % 8 = 0")
    assert not passages.tidy()
    with store.write(durable=True):
        for number in range(1600):
            if number % 8:
                entries.remove(f"memory://{number}")
    slots = "SELECT SUM(size) FROM chunks_vec_chunks"
    assert store.value(slots) >= 1600 and passages.tidy()
    assert store.value(slots) < 500 and passages.counts().vectors == 200 and passages.problems() == []
    assert sorted(store.rows("SELECT rowid, embedding FROM chunks_vec")) == sorted(before) and not passages.tidy()


def test_a_copy_of_the_database_has_the_index_too(store: Store, entries: Entries, passages: Passages, tmp_path: Path) -> None:
    entries.set("memory://page", PAGE)
    entries.set("memory://owl", "hoot")
    embed(passages)
    entries.remove("memory://page")
    store.snapshot(tmp_path / "copy.db")
    copy = Store.open(tmp_path / "copy.db")
    wanted = Vector("m", vector(embedded(entries.get("memory://owl"), passages.chunks_of(entries.get("memory://owl")), 0)))
    assert [hit.kind for hit in Search(copy).search("", wanted).hits] == ["meaning"]
    assert Passages(copy).problems() == [] and Passages(copy).counts() == passages.counts()
    copy.close()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=4, max_size=64))
def test_packed_vectors_keep_their_length_and_their_direction(values: list[float]) -> None:
    size = math.sqrt(sum(value * value for value in values))
    assume(size > 0.01)
    unit = [value / size for value in values]
    back = [byte - 256 if byte > 127 else byte for byte in packed(unit)]
    assert len(back) == len(unit) and all(abs(b / 127 - u) < 0.01 for b, u in zip(back, unit))


# -- other chunks -----------------------------------------------------------------------------------


def test_chunks_of_a_model_replace_those_of_the_structure(store: Store, entries: Entries, passages: Passages) -> None:
    entry = entries.set("memory://page", PAGE)
    assert [one.path for one in passages.to_propose("model", 5)] == ["memory://page"]
    made = chunking.proposed(PAGE, [(1, 17), (18, 34)])
    assert passages.replace(entry, made, "model") and passages.chunks_of(entry) == made
    assert passages.to_propose("model", 5) == [] and passages.problems() == []
    changed = entries.set("memory://page", PAGE + "more")
    assert not passages.replace(entry, made, "model")
    assert passages.chunks_of(changed) == chunking.structured(PAGE + "more")


# -- agreement --------------------------------------------------------------------------------------

DAMAGE = {
    "words are gone": "INSERT INTO chunks_fts(chunks_fts) VALUES ('delete-all')",
    "words of another text": "DELETE FROM chunks_fts WHERE rowid = 1; "
    "INSERT INTO chunks_fts(rowid, head, text, near) VALUES (1, '', 'x', '')",
    "words after its text": "DELETE FROM chunks_fts WHERE rowid = 1; INSERT INTO chunks_fts(rowid, head, text, near) "
    "VALUES (1, 'Owl memory://owl', 'The barn owl hunts. And sleeps.', '')",
    "words in another order": "DELETE FROM chunks_fts WHERE rowid = 1; INSERT INTO chunks_fts(rowid, head, text, near) "
    "VALUES (1, 'Owl memory://owl', 'The owl barn hunts.', '')",
    "words of nothing": "INSERT INTO chunks_fts(rowid, head, text, near) VALUES (999, '', 'x', '')",
    "a vector is gone": "DELETE FROM chunks_vec WHERE rowid = 1",
    "a vector of nothing": "INSERT INTO chunks_vec(rowid, embedding) VALUES (999, vec_int8(zeroblob(384)))",
    "a chunk elsewhere": "UPDATE chunks SET stop = stop - 1 WHERE id = 1",
    "a chunk is gone": "DELETE FROM chunks WHERE id = 1",
    "another hash": "UPDATE chunks SET hash = x'00' WHERE id = 1",
}


@pytest.mark.parametrize("case", DAMAGE)
def test_disagreement_is_noticed_and_made_anew(store: Store, entries: Entries, passages: Passages, case: str) -> None:
    entries.set("memory://owl", "The barn owl hunts.", title="Owl")
    entries.set("memory://page", PAGE)
    embed(passages)
    assert passages.problems() == [] and store.problems() == []
    with store.write() as execute:
        for statement in DAMAGE[case].split("; "):
            execute(statement)
    assert passages.problems() and all("index" in problem for problem in passages.problems())
    passages.rebuild()
    assert passages.problems() == [] and store.problems() == []
    assert len(embed(passages)) <= 1  # the others kept their vectors
    assert [hit.ref for hit in Search(store).find("owls cats")] == ["memory://page", "memory://owl"]


def test_chunks_of_an_earlier_length_stay_until_all_is_made_anew(store: Store) -> None:
    earlier = Passages(store, chunk_chars=800)
    entry = Entries(store, earlier.index).set("memory://page", "An owl hoots at dusk.\n\n" * 200)
    with store.write() as execute:
        execute("UPDATE chunks SET chunker = 'structure'")
    passages = Passages(store)
    long = passages.chunks_of(entry)
    assert passages.problems() == [] and [one.path for one in passages.to_propose("model", 5)] == ["memory://page"]
    passages.rebuild()
    assert len(passages.chunks_of(entry)) > len(long) and passages.problems() == []
    assert store.value("SELECT COUNT(*) FROM chunks WHERE chunker = 'structure'") == 0


def test_odd_texts_agree_too(entries: Entries, passages: Passages) -> None:
    texts = [
        "\x00nul\x00",
        "𞤀𞤁 adlam",
        "² ½ ①",
        "हिन्दी",
        "日本語のテキスト",
        "ﬁne ﬂour",
        "é\u0301e\u0301",
        "🦉🦉",
        "a_b-c.d",
        "ß İ ı",
        '"*^:(',
    ]
    for number, text in enumerate(texts):
        entries.set(f"memory://{number}", text, title=text.replace("\x00", ""))
    assert passages.problems() == []


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=400))
def test_any_text_can_be_indexed_and_agrees(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    store = new_store(tmp_path_factory.mktemp("any") / "owlbox.db")
    passages = Passages(store)
    Entries(store, passages.index).set("memory://any", text)
    assert passages.problems() == []
    store.close()


WRITER = """
    import random
    from appliance.knowledge.entries import Entries
    from appliance.knowledge.index import Passages
    store = Store.open(path)
    passages = Passages(store)
    entries, dice, number = Entries(store, passages.index), random.Random(sys.argv[2]), 0
    while True:
        number += 1
        ref = f"memory://{dice.randrange(6)}"
        with store.write(durable=True):
            if dice.random() < 0.2 and entries.find(ref):
                entries.remove(ref)
            else:
                entries.set(ref, f"the owl of line {number} hoots\\n" * dice.randrange(1, 60))
        batch = passages.waiting(8)
        passages.store_vectors("m", [(chunk, [dice.random() / 10 for _ in range(384)]) for chunk in batch])
        print(number, flush=True)
"""


@pytest.mark.covers("B-092")
def test_a_kill_leaves_old_or_new_chunks_and_everything_agrees(store: Store, passages: Passages) -> None:
    for seed, after_s in enumerate((0.02, 0.05, 0.09, 0.14, 0.2, 0.31)):
        writer = child(WRITER, store.path, seed)
        assert writer.stdout is not None and writer.stdout.readline()
        time.sleep(after_s)
        writer.kill()
        writer.communicate()
        assert store.problems() == []
        assert Passages(store).problems() == []


def test_several_processes_index_at_once(store: Store, passages: Passages) -> None:
    code = WRITER.replace("while True:", "while number < 40:")
    writers = [child(code, store.path, seed) for seed in (1, 2, 3)]
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
    assert passages.problems() == [] and store.problems() == []


def test_the_end_of_a_run_takes_its_entries_out_of_the_index(store: Store, entries: Entries, passages: Passages) -> None:
    run = a_run(store)
    entries.set("known://owl", "hoot", scope=f"run:{run}")
    embed(passages)
    with store.write() as execute:
        execute("DELETE FROM runs WHERE id = ?", (run,))
    assert passages.counts().chunks == 0 and passages.problems() == []


def test_writers_are_told_apart_by_the_history_not_by_the_index(entries: Entries, passages: Passages) -> None:
    entries.put("memory://owl", Content(body="hoot"), By("model"))
    assert [change.writer for change in entries.changes("memory://owl")] == ["model"] and passages.problems() == []


# -- while others write -----------------------------------------------------------------------------


class Racing(Store):
    """A store in which something happens before a certain query."""

    before = ""

    def rows(self, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        if self.before and self.before in sql:
            self.before = ""
            self.happen()
        return super().rows(sql, bindings)

    def happen(self) -> None:
        raise NotImplementedError


class Removing(Racing):
    def happen(self) -> None:
        Entries(self).remove("memory://page")


class Changing(Racing):
    def happen(self) -> None:
        Entries(self, Passages(self).index).set("memory://page", "Something else, and more.\n\n" + PAGE)


@pytest.fixture(params=[Removing, Changing])
def racing(store: Store, entries: Entries, request: pytest.FixtureRequest) -> Iterator[Racing]:
    entries.set("memory://page", PAGE)
    made = request.param(store.path)
    yield made
    made.close()


@pytest.mark.parametrize("moment", ["FROM entries WHERE id", "FROM chunks WHERE entry"])
def test_no_vector_is_made_of_a_text_that_changes_meanwhile(racing: Racing, moment: str) -> None:
    racing.before = moment
    batch = Passages(racing).waiting()
    assert racing.before == "" and all(hash_of(waiting.text) == waiting.hash for waiting in batch)
    Passages(racing).store_vectors("m", [(waiting, vector(waiting.text)) for waiting in batch])
    embed(Passages(racing))
    assert Passages(racing).problems() == []


@pytest.mark.parametrize("moment", ["SELECT id, path", "indexed_words GROUP", "expected_words GROUP"])
def test_a_change_meanwhile_is_no_disagreement(racing: Racing, moment: str) -> None:
    racing.before = moment
    assert Passages(racing).problems() == [] and racing.before == ""


def test_texts_that_go_meanwhile_are_left_out(store: Store, entries: Entries) -> None:
    entries.set("memory://page", PAGE)
    for ask in (lambda p: p.to_propose("model", 5), lambda p: list(p.undescribed(10))):
        racing = Removing(store.path)
        racing.before = "FROM entries WHERE id"
        assert ask(Passages(racing)) == []
        racing.close()
        entries.set("memory://page", PAGE)
