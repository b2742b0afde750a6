"""The indexer: vectors in the background, what it does without a model or with another one, and a core that finds by meaning."""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from process import Box, a_box, until  # noqa: F401
from stores import new_store
from test_inbox import Voice, echo

from appliance.clock import monotonic_s
from appliance.errors import BadInput, DeadlineExceeded, Lost, OwlError, Unavailable
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.indexer import AT_A_TIME, Indexer, answering, ranges_of
from appliance.knowledge.search import Search
from appliance.models import catalogue
from appliance.prompt.packet import Packets
from appliance.records import Ask, Cancel, Finish, Piece
from appliance.runtime.settings import ContextSettings

PAGE = "\n".join(f"line {n} about owls and what they eat" for n in range(1, 61))


@dataclass
class Encoder:
    """Embeds by hashing; may be told to fail, or to wait."""

    model: str = "m"
    error: OwlError | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[int, bool]] = field(default_factory=list)
    alike: set[str] = field(default_factory=set)  # texts that mean the same

    def __post_init__(self) -> None:
        self.gate.set()

    def __call__(self, texts: Sequence[str], deadline_s: float, is_background: bool) -> tuple[str, list[list[float]]]:
        self.asked.append((len(texts), is_background))
        self.gate.wait(120)
        if self.error is not None:
            raise self.error
        return self.model, [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        if any(one in text for one in self.alike):
            return [0.25] * 16
        signs = hashlib.sha512(text.encode()).digest()[:16]
        return [0.25 if byte % 2 else -0.25 for byte in signs]


class NoSkills:
    """Skills port without any."""

    def lines(self) -> Sequence[str]:
        return ()


class Desk:
    """A store with an index and somebody who works at it."""

    def __init__(self, path: Path) -> None:
        self.store = new_store(path)
        self.encoder = Encoder()
        self.said: list[tuple[str, str]] = []
        self.answer: str | OwlError = ""
        self.passages = Passages(self.store, lambda: self.indexer.wake())
        self.entries = Entries(self.store, self.passages.index)
        self.indexer = self.working()

    def working(self, **options: object) -> Indexer:
        self.indexer = Indexer(self.passages, self.entries, self.encoder, self.say, ContextSettings(**options))  # type: ignore[arg-type]
        return self.indexer

    def say(self, instructions: str, text: str) -> str:
        self.said.append((instructions, text))
        if isinstance(self.answer, OwlError):
            raise self.answer
        return self.answer

    def is_done(self) -> bool:
        counts = self.passages.counts()
        return counts.pending == 0 and counts.vectors == counts.chunks > 0


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "owlbox.db")
    yield made
    made.encoder.gate.set()
    made.indexer.stop()
    made.store.close()


# -- in the background ------------------------------------------------------------------------------


def test_a_write_wakes_it_and_the_vector_follows(desk: Desk) -> None:
    desk.indexer.start()
    with desk.store.write(durable=True):
        desk.entries.set("memory://owl", "hoot")
        desk.entries.set("memory://cat", "purr")
    until(desk.is_done, "both have a vector")
    desk.entries.set("memory://dog", "bark")
    until(lambda: desk.is_done() and desk.passages.counts().chunks == 3, "the third has one too")
    assert all(is_background for _, is_background in desk.encoder.asked) and desk.passages.problems() == []


def test_what_waited_before_the_start_is_done(desk: Desk) -> None:
    Entries(desk.store).set("memory://owl", "hoot")
    desk.indexer.start()
    until(desk.is_done, "it has words and a vector")
    assert (desk.indexer.status().state, desk.indexer.status().model) == ("parked", "m")


def test_a_slow_model_keeps_neither_a_write_nor_a_search_waiting(desk: Desk) -> None:
    desk.encoder.gate.clear()
    desk.indexer.start()
    desk.entries.set("memory://owl", "hoot")
    until(lambda: bool(desk.encoder.asked), "the model is asked")
    desk.entries.set("memory://owl2", "hoot again")
    assert len(Search(desk.store, desk.passages).find("hoot")) == 2 and desk.passages.counts().vectors == 0
    assert desk.indexer.status().state == "working"
    desk.encoder.gate.set()
    until(desk.is_done, "vectors")


@pytest.mark.covers("B-094")
def test_texts_are_embedded_in_batches(desk: Desk) -> None:
    for n in range(70):
        desk.entries.set(f"memory://{n}", f"owl {n}")
    assert desk.indexer.index_pending().vectors == 70
    assert desk.encoder.asked == [(32, True), (32, True), (6, True)]
    desk.indexer.index_pending()
    assert len(desk.encoder.asked) == 3


def test_a_batch_that_takes_too_long_is_tried_smaller(desk: Desk) -> None:
    for n in range(40):
        desk.entries.set(f"memory://{n}", f"owl {n}")
    desk.encoder.error = DeadlineExceeded("embed took longer than 300 s")
    for _ in range(4):
        with pytest.raises(DeadlineExceeded):
            desk.indexer.index_pending()
    assert [number for number, _ in desk.encoder.asked] == [32, 8, 2, 1]
    desk.encoder.error = None
    assert desk.indexer.index_pending().vectors == 40


@pytest.mark.covers("E-209")
def test_without_anything_to_embed_no_model_is_asked(desk: Desk) -> None:
    desk.indexer.index_pending()
    assert desk.indexer.vector("hoot") == (None, "found by words alone: no vectors are made yet") and desk.encoder.asked == []


def test_without_a_model_it_is_quiet_until_it_is_told(desk: Desk) -> None:
    desk.encoder.error = Unavailable("no embedding model", hint="owlbox model add minilm")
    desk.entries.set("memory://owl", "hoot")
    for _ in range(3):
        desk.indexer.index_pending()
    assert len(desk.encoder.asked) == 1 and "no embedding model" in desk.indexer.status().state
    assert Search(desk.store, desk.passages).find("hoot")[0].ref == "memory://owl"
    desk.encoder.error = None
    desk.indexer.retry()
    assert desk.indexer.index_pending().vectors == 1 and desk.indexer.status().state == "not running"


def test_what_passes_is_tried_again(desk: Desk) -> None:
    desk.encoder.error = Lost("the broker restarts")
    desk.entries.set("memory://owl", "hoot")
    with pytest.raises(Lost):
        desk.indexer.index_pending()
    desk.indexer.start()
    until(lambda: len(desk.encoder.asked) >= 2, "the thread has tried, too")
    until(lambda: "the broker restarts" in desk.indexer.status().state, "it says why it waits")
    desk.encoder.error = None
    desk.entries.set("memory://cat", "purr")
    until(desk.is_done, "a write makes it try again")
    until(lambda: desk.indexer.status().state == "parked", "nothing is left")


@pytest.mark.covers("B-094", "E-209")
def test_another_model_is_noticed_and_reembedding_makes_all_anew(desk: Desk) -> None:
    for n in range(40):
        desk.entries.set(f"memory://{n}", f"owl {n}")
    desk.indexer.index_pending()
    desk.encoder.model = "better"
    desk.entries.set("memory://new", "hoot")
    assert desk.indexer.index_pending().vectors == 40 and "reembed" in desk.indexer.status().state
    vector, _ = desk.indexer.vector("hoot")
    found = Search(desk.store, desk.passages).search("hoot", vector)
    assert [hit.ref for hit in found.hits] == ["memory://new"] and "reembed" in found.note
    for _ in range(3):
        desk.indexer.vector("hoot")
        desk.indexer.index_pending()
    assert [count for count, _ in desk.encoder.asked[2:]] == [1, 1, 1, 1, 1]  # not a batch for every search
    asked = len(desk.encoder.asked)
    assert desk.indexer.reembed() == 41 and desk.passages.counts().vectors == 0
    assert desk.indexer.index_pending().vectors == 41 and desk.encoder.asked[asked:] == [(32, True), (9, True)]
    assert desk.indexer.status().model == "better" and desk.passages.problems() == []


def test_a_query_is_embedded_at_once_or_says_why_not(desk: Desk) -> None:
    desk.entries.set("memory://owl", "hoot")
    desk.indexer.index_pending()
    vector, why = desk.indexer.vector("hoot")
    assert vector and vector.model == "m" and why == "" and desk.encoder.asked[-1] == (1, False)
    desk.encoder.error = Unavailable("no memory")
    assert desk.indexer.vector("hoot") == (None, "found by words alone: no memory")


# -- at once, or not at all -------------------------------------------------------------------------


def test_a_vector_for_an_answer_comes_at_once(desk: Desk) -> None:
    desk.indexer.brief_s = 60
    assert desk.indexer.brief("hoot") is None and desk.encoder.asked == []
    desk.entries.set("memory://owl", "hoot")
    desk.indexer.index_pending()
    vector = desk.indexer.brief("hoot")
    assert vector and vector.model == "m" and desk.encoder.asked[-1] == (1, False)
    desk.encoder.error = Lost("no broker")
    assert desk.indexer.brief("hoot") is None


def test_no_answer_waits_for_a_model_that_is_slow(desk: Desk) -> None:
    desk.entries.set("memory://owl", "hoot")
    desk.indexer.index_pending()
    desk.encoder.gate.clear()
    asked = len(desk.encoder.asked)
    started_s = monotonic_s()
    for _ in range(AT_A_TIME + 3):
        assert desk.indexer.brief("hoot") is None
    assert monotonic_s() - started_s < 20 and len(desk.encoder.asked) == asked + AT_A_TIME  # the others were not even asked
    desk.encoder.gate.set()
    until(lambda: desk.indexer.brief("hoot") is not None, "those that hung have made room")


def test_what_is_shown_with_a_question_is_found_by_meaning_too(desk: Desk) -> None:
    desk.indexer.brief_s = 60
    finder = Search(desk.store, desk.passages, embed=desk.indexer.brief)
    desk.encoder.alike = {"Where does puss rest?", "The kitten sleeps on the sofa."}
    desk.entries.set("memory://pets", "The kitten sleeps on the sofa.")
    desk.entries.set("memory://tax", "Returns are due in May.")
    packets = Packets(list, finder, NoSkills())
    assert packets.relevant("Where does puss rest?") == ""
    desk.indexer.index_pending()
    assert packets.relevant("Where does puss rest?") == "Notes:\n- The kitten sleeps on the sofa. [memory://pets]"
    asked = len(desk.encoder.asked)
    assert packets.relevant("What is it?") == "" and len(desk.encoder.asked) == asked  # nothing but stop words
    desk.encoder.gate.clear()
    desk.indexer.brief_s = 0.3
    assert packets.relevant("Where does puss rest?") == "" and "Returns" in packets.relevant("Which returns are due?")


# -- a small model ----------------------------------------------------------------------------------


@pytest.mark.covers("B-089")
def test_a_model_cuts_texts_when_that_is_wanted(desk: Desk) -> None:
    desk.answer = "Here: [[1, 20], [21, 60]]"
    entry = desk.entries.set("memory://page", PAGE)
    desk.entries.set("memory://short", "hoot")
    desk.working(chunker="model").index_pending()
    assert [PAGE[c.start : c.stop].split(" about")[0] for c in desk.passages.chunks_of(entry)] == ["line 1", "line 21"]
    assert len(desk.said) == 1 and desk.is_done() and desk.passages.problems() == []
    desk.indexer.index_pending()
    assert len(desk.said) == 1


@pytest.mark.covers("B-089", "E-206")
@pytest.mark.parametrize("answer", ["", "I cannot do that.", "[[5, 3]]", BadInput("late")])
def test_what_the_model_cannot_cut_stays_cut_by_structure(desk: Desk, answer: str | OwlError) -> None:
    desk.answer = answer
    entry = desk.entries.set("memory://page", PAGE)
    before = desk.passages.chunks_of(entry)
    desk.working(chunker="model").index_pending()
    desk.indexer.index_pending()
    assert desk.passages.chunks_of(entry) == before and len(desk.said) == 1 and desk.is_done()


@pytest.mark.covers("E-206")
def test_no_model_to_cut_with_is_said(desk: Desk) -> None:
    desk.answer = Unavailable("no model can answer", hint="owlbox model add smollm2")
    desk.entries.set("memory://page", PAGE)
    assert desk.working(chunker="model").index_pending().vectors > 1
    assert "no model can answer" in desk.indexer.status().note
    desk.answer = "[[1, 20], [21, 60]]"
    desk.indexer.index_pending()
    assert desk.indexer.status().note == "" and desk.passages.counts().chunks == 2


@pytest.mark.covers("B-093")
def test_texts_are_described_when_that_is_wanted(desk: Desk) -> None:
    desk.answer = "Owls \n and their food."
    desk.entries.set("memory://page", PAGE * 10)
    desk.entries.set("memory://short", "hoot")
    desk.entries.put("memory://known", Content(body=PAGE, description="mine"))
    desk.indexer.index_pending()
    assert desk.said == []
    desk.working(describe=True).index_pending()
    assert desk.entries.get("memory://page").description == "Owls and their food."
    assert [desk.entries.get(f"memory://{name}").description for name in ("short", "known")] == ["", "mine"]
    assert [len(text) for _, text in desk.said] == [8000] and desk.is_done() and desk.passages.problems() == []
    assert [h.ref for h in Search(desk.store).find("food")][:1] == ["memory://page"]


@pytest.mark.covers("B-089", "B-093")
def test_the_small_model_has_ten_seconds_in_the_background() -> None:
    def late(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield Piece("half an ")
        raise DeadlineExceeded("too late")

    prompt, slow = Voice(echo), Voice(late)
    assert answering(prompt, lambda: "small")("Say what it is about.", "owls") == "slwo"  # type: ignore[arg-type]
    (asked,) = prompt.asks
    assert 5 < asked.deadline_s <= 10 and asked.is_background and asked.tools == ()
    assert answering(slow, lambda: "small")("Say what it is about.", "owls") == "", "half an answer is none"  # type: ignore[arg-type]


@pytest.mark.covers("B-093")
@pytest.mark.parametrize("answer", ["", Unavailable("no model")])
def test_without_a_model_there_is_no_description(desk: Desk, answer: str | OwlError) -> None:
    desk.answer = answer
    desk.entries.set("memory://page", PAGE)
    desk.working(describe=True).index_pending()
    assert desk.entries.get("memory://page").description == "" and desk.is_done()


@pytest.mark.parametrize(
    ("said", "ranges"),
    [
        ("[[1, 2], [3,4]]", [(1, 2), (3, 4)]),
        ("```json\n[[1,2],]\n```", [(1, 2)]),
        ("[1, 2]", []),
        ("[]", []),
        ("no", []),
        ("[[1, x]]", []),
    ],
)
def test_ranges_are_read_from_an_answer(said: str, ranges: list[tuple[int, int]]) -> None:
    assert ranges_of(said) == ranges


# -- a core with the real model ---------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.covers("B-108", "B-111", "B-094", "B-091")
def test_a_core_finds_by_meaning_and_makes_vectors_anew(box: Box) -> None:
    catalogue.add(box.home, "minilm", lambda stage, done, total: None)
    for document in box.home.box.glob("*.md"):
        document.unlink()  # they are long, and say nothing of what is asked
    box.environ["OWLBOX__SKILLS__ENABLED"] = "false"  # nor do they
    core = box.serve()
    box.run("context", "write", "agent:/pets", "Our kitten sleeps on the sofa all day.")
    box.run("context", "write", "agent:/money", "The tax return is due in May; the receipts are in the blue folder.")
    box.run("context", "write", "agent:/part", "Order number XQ7-1143 for the pump.")

    def is_done() -> bool:
        status = core.call("core.status")["search"]
        return bool(status["vectors"] == status["chunks"] > 2 and status["pending"] == 0)

    until(is_done, "everything has a vector")
    hits = box.json("context", "search", "cats and where they rest", "-k", "3")["hits"]
    assert (hits[0]["ref"], hits[0]["kind"]) == ("agent:/pets", "meaning") and len(hits) <= 3
    found = box.json("search", "cats and where they rest")["hits"]
    assert (found[0]["ref"], found[0]["kind"]) == ("agent://pets", "meaning") and len(found) <= 5

    def is_shown() -> bool:
        thread = box.json("ask", "Where do cats rest?")["run"]
        return "Our kitten sleeps on the sofa" in box.events(thread)[0]["input"]["relevant"]

    until(is_shown, "it is shown to the model, with no word in common")  # but to no question for which the vector comes late
    assert box.json("context", "search", "xq7-1143")["hits"][0]["ref"] == "agent:/part"
    said = box.run("context", "search", "when do we pay taxes", "--top-k", "1")
    assert said.stdout.startswith("agent:/money ") and "due in May" in said.stdout
    assert box.json("context", "search", "kitten", "--drive", "memory")["hits"] == []
    with box.store() as store:  # as a worker does: another process, which then says that it did something
        Entries(store, Passages(store).index).set("agent://worker", "A lynx was seen in the wood.")
    assert not is_done()
    core.call("queue.changed")
    until(is_done, "what a worker wrote has a vector too")
    assert box.run("context", "reembed").returncode == 0
    until(is_done, "and again")
    assert "with a vector" in box.run("context", "info", "agent:/pets", "--passages").stdout
    assert core.stop() == 0
    assert box.json("context", "search", "cats and where they rest")["hits"][0]["ref"] == "agent:/pets"
    assert box.run("context", "reembed").returncode == 0 and box.json("status")["search"]["vectors"] > 2


@pytest.mark.covers("B-111")
def test_a_command_finds_by_words_where_there_is_no_embedding_model(box: Box) -> None:
    box.run("context", "write", "agent:/owl", "The barn owl hunts at dusk.")
    found = box.json("context", "search", "owl", "--threshold", "0.5")
    assert [hit["ref"] for hit in found["hits"]] == ["agent:/owl"] and found["note"]
    assert [hit["ref"] for hit in box.json("context", "search", "owl", "--fusion", "rrf")["hits"]] == ["agent:/owl"]
    assert box.run("context", "search", "zebra").stdout.startswith("Nothing found for 'zebra'.")
    assert box.run("context", "search", " ").returncode == 2
