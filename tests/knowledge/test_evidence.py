"""The sentences that speak to a question, by their words alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.evidence import Evidence, Finder
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.prompt.routing.languages import Languages

NOTES = {
    "vpn": "Ask Tom for new keys. The address inside is 10.8.0.14.",
    "plan": "Idea: Slovenia, two weeks in July.",
    "haus": "Der Schornsteinfeger, Herr Brandl, kommt jedes Jahr im März.",
    "neighbours": "Number 12: Ada Lindqvist, retired, waters the plants.",
    "flat": "Landlord: Mr. Bianchi, 555-0109. The rent is 1,140 euros.",
    "beds": "| Bed | 2026 | 2027 |\n|---|---|---|\n| B | beans | kale |\n| C | garlic | potatoes |\n",
    "car": "It was washed at the station in June.",
}


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Evidence]:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    for name, body in NOTES.items():
        entries.set(f"box://notes/{name}.md", body, title=name.title(), writer="folder")
    languages = Languages()
    words = languages.function_words(), languages.pointing_words(), languages.alike_words
    return Finder(Search(store, passages), entries, lambda texts: (), *words).find_evidence


def test_a_surname_is_another_word_beside_the_name(find: Callable[[str], Evidence]) -> None:
    assert find("What is Tom's surname?").score < 0
    assert find("What is Ada's surname?").best[0].text.startswith("Number 12: Ada Lindqvist")


def test_a_place_that_only_the_question_names_is_no_sure_answer(find: Callable[[str], Evidence]) -> None:
    assert find("Where is Slovenia?").score < find("Which idea is there for Slovenia?").score


def test_a_name_is_that_word_and_no_longer_one(find: Callable[[str], Evidence]) -> None:
    assert find("Where is Slov?").best == () or find("Where is Slov?").best[0].coverage == 0


def test_a_row_of_a_table_is_found_with_the_headings_of_its_columns(find: Callable[[str], Evidence]) -> None:
    assert find("What grows in bed C in 2027?").best[0].text == "Bed: C; 2026: garlic; 2027: potatoes"


def test_a_compound_is_found_by_words_of_everyday_life(find: Callable[[str], Evidence]) -> None:
    assert "rent is 1,140" in find("Wie viel kostet die Wohnungsmiete?").best[0].text


def test_a_typing_error_in_a_word_without_meaning_is_no_word_that_is_missing(find: Callable[[str], Evidence]) -> None:
    assert find("Who shuold water the plants?").words == find("Who should water the plants?").words


def test_what_something_did_cost_is_an_amount_of_money(find: Callable[[str], Evidence]) -> None:
    assert find("What did washing the car cost?").score <= 0
    assert find("What is the rent?").best[0].text == "The rent is 1,140 euros."


@pytest.mark.parametrize(
    ("question", "held"),
    [
        ("Who do we rent from?", "Bianchi"),
        ("Wie heißt unser Vermieter?", "Bianchi"),
        ("When does the chimney sweep come?", "Brandl"),
        ("Quand vient le ramoneur ?", "Brandl"),
    ],
)
def test_words_that_speak_of_the_same_find_it_in_another_language(
    find: Callable[[str], Evidence], question: str, held: str
) -> None:
    assert held in find(question).best[0].text


def test_a_compound_is_collected_by_the_words_it_is_made_of(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    entries.set("box://notes/garage.md", "The garage code is 4471.", title="Garage", writer="folder")
    languages = Languages()
    words = languages.function_words(), languages.pointing_words(), languages.alike_words
    finder = Finder(Search(store, passages), entries, lambda texts: (), *words)
    assert [one.text for one in finder.collect("Garagencode")] == ["The garage code is 4471."]


def test_what_the_person_said_is_no_sentence_of_a_note(find: Callable[..., Evidence]) -> None:
    found = find("Which tailor made my coat?", said=["My coat is green."])
    assert found.best[0].ref == "" and found.score > 0 == found.note_score
    assert find("Who has the address inside?").note_score > 0
