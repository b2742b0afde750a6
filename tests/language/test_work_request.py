"""What a piece of work asks for, read back from its text, and summaries made of a text's own sentences."""

from appliance.language import request_texts
from appliance.language.planning import results

GARDEN = (
    "The garden has three beds and a pear tree. The roses in the garden need water every second day. I like tea. "
    "Compost goes on the beds of the garden in March. The tap of the garden is behind the shed."
)


def test_a_task_is_read_with_its_texts() -> None:
    text = "Task: Summarise this text\n\nfor Ada\n\nTexts that belong to the task:\n[box://notes/a.md]\nRoses need water."
    found = request_texts.read(text)
    assert (found.name, found.description, found.texts, found.has_more) == (
        "Summarise this text",
        "for Ada",
        "Roses need water.",
        False,
    )
    assert [wording for wording, _ in found.wordings] == ["for Ada", "Summarise this text: for Ada"]


def test_results_of_other_tasks_and_a_form_are_more_than_one_sentence() -> None:
    assert request_texts.read("Task: Join them\n\nPredecessor Task Outputs:\n[task 1: a]\nx").has_more
    assert request_texts.read("Summarise this.\n\nAnswer in this form: JSON").has_more


def test_work_that_is_no_task_has_its_text_below_or_above() -> None:
    found = request_texts.read("A long text.\n\nSummarise this text")
    assert found.wordings == (("A long text.\n\nSummarise this text", ""), ("Summarise this text", "A long text."))


def test_a_list_to_look_after_is_read_line_by_line() -> None:
    text = "Read it.\n\n<HEARTBEAT.md>\n- [ ] list my tasks\n* the door\n\n</HEARTBEAT.md>"
    assert request_texts.listed(text) == ["list my tasks", "the door"]
    assert request_texts.listed("no list") == []


def test_a_summary_is_made_of_sentences_of_the_text_in_their_order() -> None:
    said = results.summary(GARDEN, {"the", "a", "i", "of", "in", "on", "has", "is", "and"})
    sentences = [one + "." for one in GARDEN.rstrip(".").split(". ")]
    chosen = [one for one in sentences if one in said]
    assert said == " ".join(chosen) and 1 <= len(chosen) <= 3 and "tea" not in said


def test_a_summary_of_one_sentence_or_none_is_that() -> None:
    assert results.summary("Roses need water", ()) == "Roses need water"
    assert results.summary("Dear Petra,\nthe roses need water. Come soon.", (), most=1) == "the roses need water."
    assert results.summary("# Roses\n\n\n", ()) == ""
