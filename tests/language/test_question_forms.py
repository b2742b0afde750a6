"""What a found sentence is by the form of its question."""

import pytest

from appliance.language.evidence import Evidence, Sentence
from appliance.language.planning.answers import without_equal_numbers

DOSE = Sentence("dose: 5 mg", "box://notes/medicine.md", "Medicine", 0.7, missing=("rang",))
CALL = Sentence("Ada rang at 5.", "box://notes/log.md", "Log", 0.6)


@pytest.mark.parametrize("question", ["who rang at 5?", "who rang at 5 pm?", "wer hat um 5 angerufen?"])
def test_a_number_alone_that_equals_a_time_is_no_answer(question: str) -> None:
    assert without_equal_numbers(Evidence((DOSE, CALL), ("rang", "5")), question).best == (CALL,)


def test_a_number_that_is_asked_for_stays() -> None:
    found = Evidence((DOSE, CALL), ("dose", "5"))
    assert without_equal_numbers(found, "what is the dose of 5 pills?") == found
    assert without_equal_numbers(found, "which dose is taken at 5?").best == (DOSE, CALL)
