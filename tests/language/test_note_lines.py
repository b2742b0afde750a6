"""Sentences of a note with what they stand below."""

import pytest

from appliance.language.sentences import read

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


VAULT = """---
title: Bea
tags: [person, project/home]
phone: 0160555
opens: 12:30
pays_cash: yes
---
Knows [[Tom]], ordered from [[Holzhof Lange#Doors|Lange]]. #todo/waiting ![[plan.png]] ^order

> [!warning] Gas
> Close the pipe first.

Paint #a3b2c1, C# and pot #7.
"""


@pytest.mark.parametrize(
    "text",
    [
        "tags: person, project/home",
        "phone: 0160555",
        "opens: 12:30",
        "pays cash: yes",
        "Knows Tom, ordered from Lange.",
        "todo waiting plan.png",
        "Gas",
        "Close the pipe first.",
        "Paint #a3b2c1, C# and pot #7.",
    ],
)
def test_fields_links_and_tags_of_a_note_are_read_as_words(text: str) -> None:
    assert text in [line.text for line in read(VAULT, "Bea")]


@pytest.mark.parametrize(
    ("note", "texts"),
    [
        ("---\nphone: [0160\n---\nTom", ["phone: [0160", "Tom"]),
        ("---\n- Tom\n---\nBea", ["- Tom", "Bea"]),
        ("---\nTom lives here.", ["---", "Tom lives here."]),
        ("\ufeff---\r\nphone: 1\r\n---\r\nBea", ["phone: 1", "Bea"]),
        ("---\nphone:\n---\nBea", ["Bea"]),
    ],
)
def test_front_matter_that_is_none_loses_no_fact(note: str, texts: list[str]) -> None:
    assert [line.text for line in read(note)] == texts
