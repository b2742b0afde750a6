"""What looks through vectors: one contract for sqlite-vec, which keeps them, and for the extra beside it."""

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stores import new_store

from appliance.errors import Unavailable
from appliance.knowledge import vss_index
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages, packed
from appliance.knowledge.indexer import Indexer
from appliance.knowledge.search import Search, Vector
from appliance.knowledge.vss_index import VectorState, Vss
from appliance.store.database import Store

DIMENSION = 24


def vector(text: str) -> list[float]:
    """A unit vector that only the text decides; in 24 dimensions hardly any is near another."""
    dice = random.Random(text)
    values = [dice.gauss(0, 1) for _ in range(DIMENSION)]
    size = math.sqrt(sum(value * value for value in values))
    return [value / size for value in values]


class Desk:
    """Entries whose vectors are made of their text, with or without an index beside."""

    def __init__(self, path: Path, beside: Vss | None) -> None:
        self.store = new_store(path)
        self.passages = Passages(self.store)
        self.entries = Entries(self.store, self.passages.index)
        self.beside = beside
        self.indexer = Indexer(
            self.passages, self.entries, lambda texts, *_: ("m", [vector(t.split("\n")[-1]) for t in texts]), beside=beside
        )
        self.search = Search(self.store, self.passages, beside=beside)

    def fill(self, count: int) -> None:
        """Texts with vectors."""
        for number in range(count):
            self.entries.set(f"memory://{number}", f"text {number}")
        self.work()

    def work(self) -> None:
        """Do what waits; an index beside is made whenever it is not of now."""
        if self.beside is not None:
            self.beside._next_s = 0.0
        self.indexer.index_pending()

    def near(self, text: str, limit: int = 5) -> list[tuple[str, float]]:
        """What a search by meaning alone finds."""
        ranked = self.search.ranked("", Vector("m", vector(text)))[:limit]
        paths = dict(self.store.rows("SELECT c.id, e.path FROM chunks c JOIN entries e ON e.id = c.entry"))
        return [(paths[key], round(score, 3)) for key, score in ranked]


def _beside() -> Vss:
    folder = vss_index.installed()
    if folder is None:
        pytest.skip("needs the extra: pip install -e '.[vss]'")
    made = Vss(folder)
    try:
        made.make(VectorState(1, 1, 1, 1), [(1, packed(vector("x")))])
    except Unavailable as error:
        pytest.skip(str(error))
    made.close()
    return made


@pytest.fixture(params=["sqlite-vec", "sqlite-vss"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "owlbox.db", _beside() if request.param == "sqlite-vss" else None)
    yield made
    made.indexer.stop()
    made.store.close()


def test_the_nearest_come_first_and_no_more_than_asked_for(desk: Desk) -> None:
    desk.fill(300)
    found = desk.near("text 7", 20)
    expected = sorted((-sum(a * b for a, b in zip(vector("text 7"), vector(f"text {n}"))), n) for n in range(300))
    assert [path for path, _ in found[:3]] == [f"memory://{n}" for _, n in expected[:3]]
    assert len(found) == 20 and {path for path, _ in found[:10]} <= {f"memory://{n}" for _, n in expected[:14]}


def test_an_empty_index_has_no_answer(desk: Desk) -> None:
    assert desk.near("text 7") == []
    desk.work()
    assert desk.near("text 7") == []


@pytest.mark.parametrize("change", ["add", "remove", "rewrite", "reembed"])
def test_what_changed_is_found_as_it_is_now(desk: Desk, change: str) -> None:
    desk.fill(50)
    assert desk.near("text 7", 1)[0][0] == "memory://7"
    make: dict[str, Callable[[], object]] = {
        "add": lambda: desk.entries.set("memory://new", "text 7 again"),
        "remove": lambda: desk.entries.remove("memory://7"),
        "rewrite": lambda: desk.entries.set("memory://7", "something else"),
        "reembed": lambda: desk.indexer.reembed(),
    }
    make[change]()
    found = dict(desk.near("text 7", 50))  # with what was made before
    assert ("memory://7" in found) == (change == "add") and bool(found) == (change != "reembed")
    desk.work()
    found = dict(desk.near("text 7", 50))
    assert ("memory://7" in found) == (change in ("add", "reembed"))
    assert desk.near("text 7 again", 1)[0] == ("memory://new", 0.4) or change != "add"


def test_both_give_the_same_scores(tmp_path: Path) -> None:
    plain, beside = Desk(tmp_path / "a.db", None), Desk(tmp_path / "b.db", _beside())
    for one in (plain, beside):
        one.fill(200)
    for n in range(0, 200, 20):
        assert plain.near(f"text {n}", 30) == beside.near(f"text {n}", 30)
    assert beside.beside and beside.beside.nearest(beside.passages.state(), packed(vector("x")), 5) is not None
    for one in (plain, beside):
        one.indexer.stop()
        one.store.close()


def test_libraries_that_do_not_load_leave_sqlite_vec(tmp_path: Path) -> None:
    folder = tmp_path / "sqlite_vss"
    folder.mkdir()
    (folder / "vector0.so").write_bytes(b"not a library")
    desk = Desk(tmp_path / "owlbox.db", Vss(folder))
    desk.fill(10)
    assert desk.near("text 7", 1) == [("memory://7", 0.4)]
    with pytest.raises(Unavailable, match="sqlite-vss does not load"):
        Vss(folder).make(VectorState(1, 1, 1, 1), [(1, b"\x01")])
    desk.store.close()


def test_an_index_that_takes_long_to_make_is_not_made_for_every_write(tmp_path: Path) -> None:
    made = Vss(tmp_path)
    assert (
        made.is_due(VectorState(1, 5, 5, 15))
        and not made.is_due(VectorState(1, 0, 0, 0))
        and not made.is_due(VectorState(1, vss_index.MOST + 1, 1, 1))
    )
    assert made.nearest(VectorState(1, 5, 5, 15), b"\x01", 5) is None


def test_which_vectors_there_are_is_known_without_reading_them(store: Store) -> None:
    passages = Passages(store)
    entries = Entries(store, passages.index)
    assert passages.state() == VectorState(0, 0, 0, 0)
    for n in range(3):
        entries.set(f"memory://{n}", f"text {n}")
    passages.store_vectors("m", [(chunk, vector(chunk.text)) for chunk in passages.waiting()])
    state, rows = passages.vectors()
    assert state == passages.state() == VectorState(1, 3, 3, 6) and dict(rows)[3] == packed(vector(passages_text(2)))


def passages_text(number: int) -> str:
    return f"Source: memory:/{number}\ntext {number}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()
