"""Search: words, meaning and both, filters, snippets; what many words find, and what a query may not break."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import new_store

from appliance.errors import BadInput
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.schemes import Scheme, Schemes
from appliance.knowledge.search import Found, Hit, Search, SearchOptions, SearchScope, Vector, snippet, words_of
from appliance.store.database import Store

ANYTHING = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
DIMENSION = 16


class Library:
    """Entries with vectors of our choice: an entry about a topic has the vector of the topic."""

    def __init__(self, path: Path) -> None:
        self.store = new_store(path)
        self.passages = Passages(self.store)
        self.entries = Entries(self.store, self.passages.index)
        self.search = Search(self.store, self.passages, lambda: ["Ada", "Bob"])

    def add(self, ref: str, text: str, about: str = "", likeness: float = 1.0, **more: str) -> None:
        """An entry whose chunks are so much about a topic, and otherwise about nothing else here."""
        self.entries.put(ref, Content(body=text, **more))  # type: ignore[arg-type]
        batch = self.passages.waiting(1000)
        self.passages.store_vectors("m", [(chunk, mixed(about or chunk.text, chunk.text, likeness)) for chunk in batch])

    def ask(self, query: str, about: str = "", **looks: object) -> list[Hit]:
        vector = Vector("m", topic(about)) if about else None
        where = looks.pop("where", SearchScope())
        return list(self.search.search(query, vector, where=where, looks=SearchOptions(**looks)).hits)  # type: ignore[arg-type]

    def refs(self, query: str, about: str = "", **looks: object) -> list[str]:
        return [hit.ref for hit in self.ask(query, about, **looks)]


def topic(name: str) -> list[float]:
    """A unit vector for a topic; two topics have nothing to do with each other."""
    topics = ("birds", "taxes", "garden", "music")
    values = [0.0] * DIMENSION
    if name in topics:
        values[topics.index(name)] = 1.0
        return values
    dice = random.Random(name)
    values[len(topics) :] = [dice.gauss(0, 1) for _ in range(DIMENSION - len(topics))]
    size = math.sqrt(sum(value * value for value in values))
    return [value / size for value in values]


def mixed(one: str, other: str, share: float) -> list[float]:
    """A unit vector whose cosine to the first topic is `share`."""
    rest = math.sqrt(1 - share * share)
    return [share * a + rest * b for a, b in zip(topic(one), topic(f"text {other}"))]


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    made = Library(tmp_path / "owlbox.db")
    yield made
    made.store.close()


# -- both lists -------------------------------------------------------------------------------------


@pytest.mark.covers("B-106", "E-210")
@pytest.mark.parametrize("fusion", ["convex", "rrf"])
def test_hits_of_words_of_meaning_and_of_both_are_all_found_once(library: Library, fusion: str) -> None:
    library.add("memory://words", "The heron waits at the pond.")
    library.add("memory://meaning", "Wings and feathers.", "birds")
    library.add("memory://both", "A heron flies.", "birds")
    found = library.ask("heron", "birds", fusion=fusion)
    assert {(hit.ref, hit.kind) for hit in found} == {
        ("memory://words", "words"),
        ("memory://meaning", "meaning"),
        ("memory://both", "both"),
    }
    assert found[0].ref == "memory://both" and found[0].score > found[1].score
    if fusion == "rrf":
        assert found[0].score == round(1 / 61 + 1 / 61, 3) or found[0].score == round(1 / 61 + 1 / 62, 3)


@pytest.mark.covers("B-106")
def test_ranks_are_joined_with_the_constant_sixty(library: Library) -> None:
    library.add("memory://a", "heron heron heron", "birds")
    assert library.ask("heron", "birds", fusion="rrf")[0].score == round(2 / 61, 3)
    assert library.ask("heron", fusion="rrf")[0].score == round(1 / 61, 3)


@pytest.mark.covers("B-106")
def test_a_hit_has_reference_title_score_and_snippet(library: Library) -> None:
    library.add("memory://long", "Nothing here. " * 20 + "\n\n" + "The heron waits at the pond. " * 30, title="Long")
    [hit] = library.ask("heron pond")
    assert (hit.ref, hit.title, hit.kind) == ("memory://long", "Long", "words")
    assert hit.score == round(hit.score, 3) and 0 < hit.score <= 1
    assert "heron" in hit.snippet and 100 < len(hit.snippet) <= 304 and hit.line == 3


@pytest.mark.covers("B-106")
def test_passages_of_one_entry_are_one_hit(library: Library) -> None:
    library.add("memory://book", "\n\n".join(f"# Part {n}\n\n{'The heron waits. ' * 30}" for n in range(10)), "birds")
    library.add("memory://page", "A heron.")
    assert sorted(library.refs("heron", "birds")) == ["memory://book", "memory://page"]


@pytest.mark.covers("B-108")
def test_meaning_finds_what_shares_no_word_and_words_what_means_something_else(library: Library) -> None:
    library.add("memory://plumage", "Feathers of many colours.", "birds")
    library.add("memory://code", "The part number is XQ7-1143.", "taxes")
    for n in range(20):
        library.add(f"memory://{n}", f"Something else, {n}.")
    assert library.refs("sparrow", "birds") == ["memory://plumage"]
    assert library.refs("xq7-1143", "birds")[0] == "memory://code"


@pytest.mark.covers("E-211")
def test_an_unrelated_query_finds_nothing(library: Library) -> None:
    for n in range(30):
        library.add(f"memory://{n}", f"The tomatoes want water, {n} litres.", "garden")
    assert library.refs("quarterly invoices", "taxes") == []
    library.add("memory://bill", "Pay it.", "taxes", 0.3)
    assert library.refs("quarterly invoices", "taxes") == ["memory://bill"]


@pytest.mark.covers("E-212")
def test_of_two_hundred_vectors_the_nearest_five_come_in_order(library: Library) -> None:
    order = list(range(200))
    random.Random(3).shuffle(order)
    for n in order:
        library.add(f"memory://{n:03}", f"text number {n}", "music", 1 - n / 250)
    assert library.refs("", "music", limit=5) == [f"memory://{n:03}" for n in range(5)]
    scores = [hit.score for hit in library.ask("", "music", limit=5)]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.covers("B-094", "E-209")
@pytest.mark.parametrize("vector", [Vector("other", [1.0] + [0.0] * 15), Vector("m", [1.0] + [0.0] * 7)])
def test_a_vector_that_does_not_fit_leaves_the_words_and_says_so(library: Library, vector: Vector) -> None:
    library.add("memory://heron", "The heron waits.", "birds")
    library.add("memory://other", "Feathers.", "birds")
    found = library.search.search("heron", vector)
    assert [hit.ref for hit in found.hits] == ["memory://heron"] and "reembed" in found.note
    assert library.search.search("heron", Vector("m", topic("birds"))).note == ""


def test_without_vectors_words_are_enough(library: Library) -> None:
    library.entries.set("memory://heron", "The heron waits.")
    assert not library.search.has_vectors()
    assert library.refs("heron", "birds") == ["memory://heron"]


def test_a_lowest_score_leaves_out_the_rest(library: Library) -> None:
    library.add("memory://best", "heron heron", title="Heron")
    library.add("memory://least", "a pond, and in the far corner of it, between reeds and stones, a heron")
    assert len(library.ask("heron")) == 2 and [h.ref for h in library.ask("heron", least=0.99)] == ["memory://best"]


def test_an_unknown_fusion_is_refused(library: Library) -> None:
    with pytest.raises(BadInput, match="fusion"):
        library.ask("heron", fusion="best")


# -- words ------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["heron", "pond", "tax", "owl", "reed", "frog", "the"]), min_size=1, max_size=4, unique=True)


@pytest.mark.covers("B-107", "E-211")
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(WORDS, min_size=1, max_size=12), query=WORDS)
def test_many_words_never_find_less_than_one_of_them(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], query: list[str]
) -> None:
    library = Library(tmp_path_factory.mktemp("words") / "owlbox.db")
    for n, text in enumerate(texts):
        library.entries.set(f"memory://{n}", " ".join(text))
    every = set(library.refs(" ".join(query), limit=50))
    assert all(set(library.refs(word, limit=50)) <= every for word in query)
    library.store.close()


@pytest.mark.covers("B-107")
def test_a_book_full_of_a_word_keeps_nothing_else_out(library: Library) -> None:
    library.entries.set("memory://book", "\n\n".join("pond heron " * 60 for _ in range(300)))
    for n in range(5):
        library.entries.set(f"memory://{n}", "pond, only once, in a text with a number of other words in it")
    alone, both = library.refs("pond"), library.refs("heron pond")
    assert len(alone) == 6 and len(library.refs("heron")) == 1 and len(both) == 6


@pytest.mark.covers("B-109")
def test_a_search_sees_what_another_wrote_without_an_index(library: Library) -> None:
    Entries(library.store).set("memory://heron", "The heron waits.")
    assert library.refs("heron") == ["memory://heron"]


@ANYTHING
@given(query=st.text(max_size=80))
def test_no_query_is_a_syntax_error(library: Library, query: str) -> None:
    library.entries.set("memory://heron", "heron")
    assert isinstance(library.search.search(query), Found)


@pytest.mark.parametrize(
    "query", ['"', "heron AND", "NEAR(heron, 2)", "text:heron*", "^heron", "(heron", "heron -pond", "{head} : heron"]
)
def test_operators_are_words(library: Library, query: str) -> None:
    library.entries.set("memory://heron", "The heron waits.")
    assert library.refs(query) == (["memory://heron"] if "heron" in query else [])


@pytest.mark.parametrize(
    ("query", "words"),
    [("What is the Owl's food?", ["owl", "food"]), ("हिन्दी", ["हिन्दी"]), ("cafe\u0301", ["café"]), ("x 7 é", ["7"]), ("a-b_c", [])],
)
def test_words_of_a_query(query: str, words: list[str]) -> None:
    assert words_of(query) == words


@pytest.mark.parametrize("query", ["", " ", "x" * 10_000, "heron " * 2000, " ".join(f"w{n}" for n in range(3000)), '"' * 10_000])
def test_a_query_may_be_empty_or_ten_thousand_characters_long(library: Library, query: str) -> None:
    library.add("memory://heron", "heron", "birds")
    found = library.refs(query, "birds")
    assert found == ["memory://heron"] and library.refs(query) == (found if "heron" in query else [])
    assert [hit.ref for hit in library.search.find(query)] == library.refs(query)


# -- people -----------------------------------------------------------------------------------------

CHAT = "# 3 May\n" + "".join(
    f"Ada: my pond has {n} herons\nBob: your pond has {n} herons\nCleo: no pond, {n} cats and a long story of them\n"
    for n in range(8)
)


def test_the_messages_of_the_person_that_is_named_come_first(library: Library) -> None:
    library.add("memory://chat", CHAT)
    ranked = library.search.ranked("How many herons did Bob see in the pond?")
    speakers = dict(library.store.rows("SELECT id, who FROM chunks"))
    assert {speakers[key] for key, _ in ranked[:8]} == {"Bob"}


REST = "Ada: rain, rain and nothing but rain for weeks\nBob: nothing but clouds and wind over here\n" * 4


def test_a_message_that_says_it_comes_before_one_that_asks_for_it(library: Library) -> None:
    library.add("memory://says", f"{REST}Bob: the heron did come.\nAda: well")
    library.add("memory://asks", f"{REST}Bob: did the heron come?\nAda: well")
    assert library.refs("heron") == ["memory://says", "memory://asks"], "of equals the newest comes first"


def test_a_message_that_answers_a_question_counts_more_than_a_remark(library: Library) -> None:
    answer = "Bob: it nests in the alder beside the old mill, as it does every spring"
    library.add("memory://answers", f"{REST}Ada: where is the heron?\n{answer}")
    library.add("memory://remarks", f"{REST}Ada: there is the heron.\n{answer}")
    assert library.refs("heron mill") == ["memory://answers", "memory://remarks"], "of equals the newest comes first"


def test_a_message_counts_more_where_others_of_its_conversation_fit(library: Library) -> None:
    library.add("memory://together", f"Bob: a heron by a pond\n{REST}Bob: pond\nAda: well")
    library.add("memory://alone", f"Bob: a heron by a pond\n{REST}Bob: rain\nAda: well")
    assert library.refs("heron pond") == ["memory://together", "memory://alone"], "of equals the newest comes first"


def test_names_are_known_and_left_out_of_what_is_embedded(library: Library) -> None:
    library.add("memory://chat", CHAT)
    assert set(library.search.names()) == {"Ada", "Bob", "Cleo"}
    assert library.search.question("Where is Cleo's cat, Bob?") == "Where is cat, ?"
    assert library.search.question("Ada") == "Ada" and library.search.question("Adam sings") == "Adam sings"


def test_what_must_be_found_at_once_is_found_by_meaning_when_its_vector_is_there(library: Library) -> None:
    asked: list[str] = []

    def embed(question: str) -> Vector | None:
        asked.append(question)
        return Vector("m", topic("birds")) if "sparrow" in question else None

    finder = Search(library.store, library.passages, lambda: ["Bob"], embed=embed)
    assert finder.find("Bob's robin") == [] and asked == []  # there are no vectors at all
    library.add("memory://plumage", "Feathers of many colours.", "birds")
    library.entries.set("memory://word", "A robin.")
    assert [(hit.ref, hit.kind) for hit in finder.find("Bob's sparrow")] == [("memory://plumage", "meaning")]
    assert [(hit.ref, hit.kind) for hit in finder.find("Bob's robin")] == [("memory://word", "words")]
    assert finder.find("what is it") == [] and asked == ["sparrow", "robin"]


def test_what_models_may_not_see_is_found_for_people_alone(library: Library) -> None:
    schemes = Schemes()
    schemes.register(Scheme("private", is_visible_to_model=False, category="data"))
    finder = Search(library.store, library.passages, schemes=schemes)
    library.entries.set("private://diary", "heron")
    library.entries.set("memory://heron", "heron")
    assert [hit.ref for hit in finder.find("heron")] == ["memory://heron"]
    assert {hit.ref for hit in finder.find("heron", is_model=False)} == {"memory://heron", "private://diary"}


# -- where ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("about", ["", "birds"])
def test_filters_narrow_words_and_meaning_alike(library: Library, about: str) -> None:
    for ref in ("memory://a/heron", "memory://ab", "agent://a/heron", "notes/heron.md"):
        library.add(ref, f"heron of {ref}", "birds")
    library.entries.set("memory://ann", "heron of ann", scope="user:ann")
    library.add("memory://last", "heron at last", "birds")
    every = {"memory://a/heron", "memory://ab", "agent://a/heron", "notes/heron.md", "memory://last"}

    def refs(**where: object) -> set[str]:
        return set(library.refs("heron", about, where=SearchScope(**where)))  # type: ignore[arg-type]

    assert refs() == every
    assert refs(folder="memory://a") == refs(folder="memory://a/") == {"memory://a/heron"}
    assert refs(folder="memory://ab") == {"memory://ab"}
    assert refs(schemes=("agent",)) == {"agent://a/heron"} and refs(schemes=("file", "agent")) == {
        "agent://a/heron",
        "notes/heron.md",
    }
    assert refs(hidden=("memory",)) == {"agent://a/heron", "notes/heron.md"}
    assert refs(scopes=("user:ann",)) == {"memory://ann"} and refs(scopes=("user:bob",)) == refs(scopes=()) == set()
    with library.store.write() as execute:
        execute("UPDATE entries SET updated_ms = 1000 WHERE path = 'memory://ab'")
    assert refs(until_ms=2000) == {"memory://ab"} and refs(since_ms=2000) == every - {"memory://ab"}
    assert refs(since_ms=1000, until_ms=1001) == {"memory://ab"} and refs(until_ms=1000) == set()


def test_documents_of_the_prompt_can_be_left_out(library: Library) -> None:
    library.entries.set("box://soul", "heron", attributes={"is_document": True})
    library.entries.set("box://heron", "heron")
    assert {h.ref for h in library.search.find("heron")} == {"box://soul", "box://heron"}
    assert [h.ref for h in library.search.find("heron", has_documents=False)] == ["box://heron"]


def test_few_hits_are_found_among_many_elsewhere(library: Library) -> None:
    for n in range(400):
        library.entries.set(f"memory://{n}", "heron heron heron", scope="user:ann")
    library.entries.set("memory://mine", "in a long text with a lot of other words in it there is one heron")
    assert library.refs("heron") == ["memory://mine"]


def test_near_vectors_elsewhere_keep_no_nearest_out(library: Library) -> None:
    for n in range(250):
        library.entries.put(f"memory://{n}", Content(body=f"theirs {n}"), scope="user:ann")
        batch = library.passages.waiting()
        library.passages.store_vectors("m", [(chunk, topic("birds")) for chunk in batch])
    library.add("memory://mine", "Feathers.", "birds", 0.9)
    assert library.refs("sparrow", "birds") == ["memory://mine"]


# -- snippets ---------------------------------------------------------------------------------------


def test_a_snippet_shows_where_the_words_are(library: Library) -> None:
    text = "First line. " * 60 + "The herons were waiting at the pond. " + "Last line. " * 60
    shown = snippet(text, ["heron", "wait"], SearchOptions(marks=("[", "]")))
    assert "[herons] were [waiting] at the pond" in shown and shown.startswith("… ") and shown.endswith(" …")
    assert len(shown) <= 300 + 4 + 4
    assert snippet("Short\n\n  text", ["heron"], SearchOptions()) == "Short text"
    assert snippet("", ["heron"], SearchOptions()) == ""


@ANYTHING
@given(text=st.text(max_size=500), word=st.text(min_size=1, max_size=5), chars=st.integers(10, 400))
def test_a_snippet_is_part_of_its_text(text: str, word: str, chars: int) -> None:
    shown = snippet(text, words_of(word), SearchOptions(snippet_chars=chars))
    assert shown.removeprefix("… ").removesuffix(" …") in " ".join(text.split()) and len(shown) <= chars + 4


def test_several_passages_of_one_item_are_found_when_that_is_asked_for(library: Library) -> None:
    library.entries.set("memory://book", "\n\n".join(f"# Part {n}\n\nThe heron waits. {f'word{n} ' * 80}" for n in range(6)))
    library.entries.set("memory://page", "A heron.")
    assert library.refs("heron", per_item=3).count("memory://book") == 3 and len(library.refs("heron", per_item=3)) == 4
    assert len({hit.line for hit in library.ask("heron", per_item=3) if hit.ref == "memory://book"}) == 3


def test_what_is_around_a_passage_fills_the_room_it_leaves_and_is_not_shown_twice(library: Library) -> None:
    said = [f"{'Ada' if n % 2 else 'Bob'}: remark {n} about nothing in particular" for n in range(40)]
    said[20], said[21] = "Bob: the heron came", "Ada: a heron, really?"
    library.entries.set("memory://talk", "\n".join(said))
    hits = library.ask("heron", per_item=3)
    assert {hit.snippet for hit in hits[:2]} == {"Ada: a heron, really?", "Bob: the heron came"} and len(hits) == 3
    (hit,) = library.ask("heron", per_item=3, has_context=True, snippet_chars=400)
    assert "heron came Ada: a heron, really? Bob: remark 22" in hit.snippet and 300 < len(hit.snippet) <= 404
    assert set(hit.snippet.split()) <= set(" ".join(said).split()) | {"…"}  # whole words alone
    (hit,) = library.ask("heron", per_item=3, has_context=True, snippet_chars=4000)
    assert hit.snippet == " ".join(said)


def test_a_nul_character_hides_nothing_behind_it(library: Library) -> None:
    library.entries.set("memory://nul", "First\x00 line\n\n" + "Some words. " * 45 + "\n\nA heron at the end.")
    (hit,) = library.ask("heron")
    assert hit.line == 5 and hit.snippet.endswith("heron at the end.")
    (hit,) = library.ask("heron", has_context=True, snippet_chars=600)
    assert hit.line == 5 and hit.snippet.endswith("Some words. A heron at the end.")


# -- when the index cannot be written ---------------------------------------------------------------


def test_while_another_writes_long_what_is_indexed_is_found_and_the_rest_is_named(library: Library) -> None:
    library.entries.set("memory://owl", "hoot")
    Entries(library.store).set("memory://late", "hoot")
    other = Store.open(library.store.path)
    with other.write():
        found = library.search.search("hoot")
        assert [hit.ref for hit in found.hits] == ["memory://owl"] and "written last" in found.note
        assert [hit.ref for hit in library.search.find("hoot")] == ["memory://owl"]
    found = library.search.search("hoot")
    assert len(found.hits) == 2 and found.note == ""
    other.close()


def test_very_much_that_waits_is_not_waited_for(library: Library) -> None:
    others = Entries(library.store)
    with library.store.write(durable=True):
        for number in range(3):
            others.set(f"memory://{number}", "hoot")
    found = Search(library.store, library.passages, patience_s=-1).search("hoot")
    assert found == Found((), "3 items are not looked at: their words are not indexed yet")
    assert len(library.search.find("hoot")) == 3


def test_many_names_of_people_do_not_slow_a_search(library: Library) -> None:
    names = [f"Person {n}x" for n in range(1000)]
    finder = Search(library.store, library.passages, lambda: names)
    library.entries.set("memory://talk", "Person 7x: I like tea\nBob: Me too\n" * 20)
    assert finder.question("what did Person 7x like") == "what did like"
    assert finder.search("what did Person 7x like").hits[0].ref == "memory://talk"
