"""Sentences of a note with what they stand below."""

from appliance.knowledge.note_lines import read

NOTE = """# Heating

A Vaillant. It hangs in the attic.

## Pressure
Should be 1.5 bar when cold.

## Before winter
- [x] fill up
- [ ] bleed the radiators
"""


def test_a_sentence_carries_the_heading_it_stands_below_and_not_the_title() -> None:
    found = {line.text: line.heading for line in read(NOTE, "Heating")}
    assert found["Should be 1.5 bar when cold."] == "Pressure"
    assert found["It hangs in the attic."] == ""
    assert "Pressure" not in found and found["bleed the radiators"] == "Before winter"


def test_a_sentence_knows_its_line_and_an_item_its_box() -> None:
    lines = {line.text: line for line in read(NOTE, "Heating")}
    assert lines["It hangs in the attic."].whole == "A Vaillant. It hangs in the attic."
    assert (lines["fill up"].is_done, lines["bleed the radiators"].is_done, lines["A Vaillant."].is_done) == (True, False, None)
    assert lines["fill up"].group == lines["bleed the radiators"].group != lines["A Vaillant."].group


def test_a_short_line_above_a_list_is_its_heading() -> None:
    lines = read("To see\n- Fram\n- the opera\n\nWe fly on Monday.\n- one\n", "Oslo")
    assert [(line.text, line.heading) for line in lines] == [
        ("Fram", "To see"),
        ("the opera", "To see"),
        ("We fly on Monday.", ""),
        ("one", ""),
    ]


def test_rows_of_a_table_are_items_below_their_heading() -> None:
    lines = read("## Medicine\n| Name | Dose |\n|---|---|\n| A | 5 mg |\n| B | 2 mg |\n")
    assert [(line.text, line.heading, line.is_item) for line in lines] == [
        ("Name: A; Dose: 5 mg", "Medicine", True),
        ("Name: B; Dose: 2 mg", "Medicine", True),
    ]


def test_a_wrapped_line_goes_on_in_the_next() -> None:
    text = "We called three glaziers about the cracked pane in the stairwell and\ntook the second one.\nHe came in May.\n"
    assert [line.text for line in read(text)] == [
        "We called three glaziers about the cracked pane in the stairwell and took the second one.",
        "He came in May.",
    ]


def test_headings_lie_inside_each_other_and_an_empty_one_stays_a_sentence() -> None:
    lines = read("# School\n## Ravi\n### Locker\n217\n## Juno\n", "School")
    assert [(line.text, line.heading) for line in lines] == [("217", "Ravi: Locker"), ("Juno", "")]


def test_stars_of_strong_words_are_taken_off() -> None:
    assert [line.text for line in read("**3 Sept** Rain.\n* item **one**\n")] == ["3 Sept Rain.", "item one"]


def test_what_is_no_sentence_by_itself_ends_the_one_before() -> None:
    assert [line.text for line in read("Six hours a year. Done: 4.\n")] == ["Six hours a year. Done: 4."]
