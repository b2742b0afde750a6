"""The sentences that speak to a question, by their words alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Evidence, Finder, weigh
from appliance.language.languages import Languages

NOTES = {
    "vpn": "Ask Tom for new keys. The address inside is 10.8.0.14.",
    "plan": "Idea: Slovenia, two weeks in July.",
    "haus": "Der Schornsteinfeger, Herr Brandl, kommt jedes Jahr im März.",
    "neighbours": "Number 12: Ada Lindqvist, retired, waters the plants.",
    "flat": "Landlord: Mr. Bianchi, 555-0109. The rent is 1,140 euros.",
    "beds": "| Bed | 2026 | 2027 |\n|---|---|---|\n| B | beans | kale |\n| C | garlic | potatoes |\n",
    "car": "It was washed at the station in June.",
    "heating": "# Heating\n\nA Vaillant.\n\n## Pressure\nShould be 1.5 bar when cold.\n\n## Service\nIn September.\n",
    "camper": "# Camper\n\n## Packing list\n- [x] awning pegs\n- [ ] head torch\n- [ ] levelling ramps\n",
    "loan": "# Mortgage\n\n184,000 left, fixed until 2029. Account 5520 at the Sparkasse.\n",
    "walk": "12 May: with Torvald to the lake.\nOn the way home Torvald lost a glove.\n",
    "gp": "Blood group B negative.\n",
    "club": "Extractor borrowed from the club in July.\n",
    "theft": "Bicycle stolen at the station!\n",
    "steuer": "# Steuer\n\n- [ ] Spendenquittungen\n- [x] Lohnzettel\n- [ ] Fahrten zur Arbeit\n",
    "school": "Best friend: Rasmus. His mother is Gerda, 0152 3344.\n",
    "trip": "Paid the ferry. It leaves Harlingen at nine.\n",
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


def test_the_line_is_quoted_whole_whose_other_sentence_has_a_word_that_means_the_same(find: Callable[[str], Evidence]) -> None:
    best = find("Who is the mum of the best friend?").best
    assert all("Gerda" in one.quoted for one in best if one.title == "School") and any(one.title == "School" for one in best)


def test_a_place_that_only_the_question_names_is_no_sure_answer(find: Callable[[str], Evidence]) -> None:
    assert find("Where is Slovenia?").score < find("Which idea is there for Slovenia?").score


@pytest.mark.parametrize(
    ("note", "is_place"),
    [
        ("Water: the pump will be switched off on 30 November.", False),
        ("Water: Ada is ill and has to rest.", False),
        ("Water: hall, left of the door.", True),
        ("Water: the stopcock is under the sink.", True),
        ("Water: boiler room", True),
    ],
)
def test_a_label_with_a_clause_behind_it_says_where_only_if_the_clause_does(tmp_path: Path, note: str, is_place: bool) -> None:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    entries.set("box://notes/house.md", note, title="House", writer="folder")
    languages = Languages()
    words = languages.function_words(), languages.pointing_words(), languages.alike_words
    finder = Finder(Search(store, passages), entries, lambda texts: (), *words)
    assert (finder.find_evidence("Where do I turn off the water?").score > 0) is is_place


def test_a_name_is_that_word_and_no_longer_one(find: Callable[[str], Evidence]) -> None:
    assert find("Where is Slov?").best == () or find("Where is Slov?").best[0].coverage == 0


def test_a_row_of_a_table_is_found_with_the_headings_of_its_columns(find: Callable[[str], Evidence]) -> None:
    assert find("What grows in bed C in 2027?").best[0].text == "Bed: C; 2026: garlic; 2027: potatoes"


def test_a_row_of_a_file_of_values_is_found_and_quoted_with_the_names_of_its_columns(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    rows = "".join(f"2025-{month:02},rent {n},{n},\n" for month in range(1, 13) for n in range(20))
    for name, more in (("kitten", ""), ("pony", rows)):  # a long file is looked at where it was found
        text = f"month,category,amount_eur,note\n{more}2026-10,{name} vet,230,crown\n"
        entries.set(f"box://notes/{name}.csv", text, title=name, writer="folder")
    languages = Languages()
    words = languages.function_words(), languages.pointing_words(), languages.alike_words
    finder = Finder(Search(store, passages), entries, lambda texts: (), *words)
    for name in ("kitten", "pony"):
        best = finder.find_evidence(f"How much was the {name} vet?").best[0]
        assert best.quoted == f"month: 2026-10; category: {name} vet; amount eur: 230; note: crown"


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


def test_a_fact_below_a_heading_is_found_by_it_and_quoted_with_it(find: Callable[[str], Evidence]) -> None:
    best = find("What pressure should the heating have?").best[0]
    assert best.quoted == "Pressure: Should be 1.5 bar when cold."


def test_what_a_list_is_asked_for_by_its_heading_is_answered_by_all_of_it(find: Callable[[str], Evidence]) -> None:
    assert find("What is on the packing list of the camper?").best[0].quoted == (
        "Packing list:\n- [x] awning pegs\n- head torch\n- levelling ramps"
    )
    assert find("What is still to pack on the packing list?").best[0].items == ("head torch", "levelling ramps")


def test_an_item_that_has_more_of_the_question_than_the_others_is_meant_alone(find: Callable[[str], Evidence]) -> None:
    best = find("Is a torch on the packing list?").best[0]
    assert (best.text, best.items) == ("head torch", ())


def test_items_are_counted_where_it_is_asked_how_many(find: Callable[[str], Evidence]) -> None:
    assert find("How many things are on the packing list?").best[0].quoted.startswith("3 Packing list:\n- [x] awning pegs")


def test_an_amount_may_stand_without_its_currency_beside_a_word_for_it(find: Callable[[str], Evidence]) -> None:
    assert find("How much do we owe for the mortgage?").best[0].text.startswith("184,000 left")
    assert not any(one.score > 0 and "5520" in one.text for one in find("How much did the account cost?").best)


def test_a_name_in_small_letters_that_a_sentence_does_not_have_speaks_against_it(find: Callable[[str], Evidence]) -> None:
    assert find("where did torvald lose the glove").certainty > find("where did sparkasse lose the glove").certainty
    assert find("torvalds glove").best[0].missing == find("glove of torvald").best[0].missing == ()


def test_what_is_asked_about_in_another_sentence_of_the_line_is_quoted_with_it(find: Callable[[str], Evidence]) -> None:
    assert find("When does the ferry leave Harlingen?").best[0].quoted == "Paid the ferry. It leaves Harlingen at nine."


def test_a_question_without_a_word_of_its_own_asks_about_the_one_before(find: Callable[..., Evidence]) -> None:
    assert "12 May" in find("and when?", about="Who walked to the lake with Torvald?").best[0].text


def test_words_with_a_hyphen_are_taken_apart_where_no_note_has_them(find: Callable[[str], Evidence]) -> None:
    assert find("Was kostet die Camper-Wohnung?").words == ("kostet", "camper", "wohnung")
    assert find("Où avons-nous le gant ?").words == ("gant",)


def test_two_letters_of_a_name_in_each_others_place_are_a_typing_error(find: Callable[[str], Evidence]) -> None:
    assert "torvald" in find("Where did Tovrald lose the glove?").words


def test_who_is_answered_by_somebody_and_not_by_a_thing_with_a_capital_letter(find: Callable[[str], Evidence]) -> None:
    assert find("Who stole the bike?").score < 0.62
    assert find("Who is the club with the extractor?").score < find("Who lent the extractor?").score
    assert find("Who lent the extractor?").best[0].text == "Extractor borrowed from the club in July."


def test_notes_in_another_language_are_looked_for_by_whole_words(find: Callable[[str], Evidence]) -> None:
    best = find("What is still missing for the taxes?").best[0]
    assert best.items == ("Spendenquittungen", "Fahrten zur Arbeit")


def test_a_woman_who_does_it_is_found_by_the_word_for_a_man(find: Callable[[str], Evidence]) -> None:
    assert "Brandl" in find("Wann kommt die Schornsteinfegerin?").best[0].text


def test_what_counts_against_a_sentence_never_speaks_for_it() -> None:
    assert weigh({"missing_kind_penalty": 1.0}) < weigh({"missing_name_penalty": 1.0}) < weigh({"missing_word_penalty": 1.0}) < 0
    assert round(weigh({"coverage": 1.0, "similarity": 1.0}), 2) == 1  # the scale that the thresholds are on
