"""What a found sentence is by the form of its question."""

import pytest
from msgspec.structs import replace

from appliance.language.evidence import Evidence, Sentence
from appliance.language.languages import Languages
from appliance.language.planning.answers import is_doubtful, is_one_of_several, quote, without_equal_numbers

DOSE = Sentence("dose: 5 mg", "box://notes/medicine.md", "Medicine", 0.7, missing=("rang",))
CALL = Sentence("Ada rang at 5.", "box://notes/log.md", "Log", 0.6)


@pytest.mark.parametrize("question", ["who rang at 5?", "who rang at 5 pm?", "wer hat um 5 angerufen?"])
def test_a_number_alone_that_equals_a_time_is_no_answer(question: str) -> None:
    assert without_equal_numbers(Evidence((DOSE, CALL), ("rang", "5")), question).best == (CALL,)


def test_a_number_that_is_asked_for_stays() -> None:
    found = Evidence((DOSE, CALL), ("dose", "5"))
    assert without_equal_numbers(found, "what is the dose of 5 pills?") == found
    assert without_equal_numbers(found, "which dose is taken at 5?").best == (DOSE, CALL)


SOWN, BLIGHT = (
    Sentence(text, "box://notes/log.txt", "log", score) for text, score in (("sowed quinces", 0.8), ("blight, 3 removed", 0.6))
)
COLOUR = Sentence("Quinces are yellow.", "box://notes/fruit.md", "Fruit", 0.7)
HAPPENED = [
    "What happened to the quinces?",
    "Whatever became of the quinces?",
    "What went wrong with the quinces?",
    "Was ist mit den Quitten passiert?",
    "Was wurde aus den Quitten?",
    "Qu'est-il arrivé aux coings ?",
    "Que sont devenus les coings ?",
    "¿Qué pasó con los membrillos?",
]


@pytest.mark.parametrize("question", HAPPENED)
def test_one_of_several_facts_about_a_thing_is_not_said_to_be_what_happened(question: str) -> None:
    assert is_one_of_several(Evidence((SOWN, BLIGHT), ("quinces",)), question)
    assert not is_one_of_several(Evidence((BLIGHT, COLOUR), ("quinces",)), question)  # one note tells one thing of it
    assert not is_one_of_several(Evidence((SOWN, replace(BLIGHT, score=0.2)), ("quinces",)), question)


@pytest.mark.parametrize("question", ["What colour are the quinces?", "Who sowed the quinces?", "What do quinces need?"])
def test_a_question_about_anything_else_is_answered_by_the_best_fact(question: str) -> None:
    assert not is_one_of_several(Evidence((SOWN, BLIGHT), ("quinces",)), question)


def test_what_is_near_is_shown_with_its_line_where_that_is_short() -> None:
    line = "The piano is a Bechstein. It went to the school."
    one, two = (Sentence(text, "box://notes/a.md", "A", score, whole=line) for text, score in zip(line.split(". "), (0.7, 0.6)))
    assert quote("nearest", Evidence((one, two)), Languages().english).text.count(line) == 1
    long = f"{line} {'It was heavy. ' * 20}"
    shown = quote("nearest", Evidence((replace(one, whole=long), replace(two, whole=long, score=0.1))), Languages().english)
    assert "Bechstein" in shown.text and "went" not in shown.text


READ = Sentence("Titel: Tschick; Gelesen: ja", "box://notes/books.csv", "books", 0.9, is_item=True)


@pytest.mark.parametrize("question", ["which book have I not read?", "welches Buch habe ich nicht gelesen?"])
def test_what_is_not_so_of_a_row_is_told_by_counting_rows_and_not_by_the_nearest(question: str) -> None:
    assert is_doubtful(Evidence((READ,), ("book", "read")), question)
    assert not is_doubtful(Evidence((READ,), ("book", "read")), question.replace("not ", "").replace("nicht ", ""))
