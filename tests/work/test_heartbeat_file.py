"""HEARTBEAT.md as text: what needs looking after, and sections with a cadence."""

import pytest

from appliance.work.heartbeat_file import is_actionable, is_quiet, read


@pytest.mark.covers("S-071", "E-268")
@pytest.mark.parametrize(
    ("line", "is_so"),
    [
        ("", False),
        ("   ", False),
        ("# Title", False),
        ("### Deeper", False),
        ("<!-- note -->", False),
        ("- [ ]", False),
        ("* [ ] ", False),
        ("- [x] done", False),
        ("* [X] done", False),
        ("- [ ] call", True),
        ("* [ ] call", True),
        ("- [x]done?", False),
        ("plain words", True),
        ("- a list", True),
        ("#nospace", True),
        ("<!-- begins", True),
    ],
)
def test_what_needs_looking_after(line: str, is_so: bool):
    assert is_actionable(line) is is_so


@pytest.mark.covers("S-073", "E-271")
@pytest.mark.parametrize(
    ("answer", "is_dropped"),
    [
        ("HEARTBEAT_OK", True),
        (" HEARTBEAT_OK \n", True),
        ("HEARTBEAT_OK\nmore", True),
        ("more\nHEARTBEAT_OK", True),
        ("a HEARTBEAT_OK b", False),
        ("more\nHEARTBEAT_OK\nmore", False),
        ("", True),
        (" \n", True),
        ("The door is open.", False),
    ],
)
def test_an_answer_that_says_nothing(answer: str, is_dropped: bool):
    assert is_quiet(answer, "HEARTBEAT_OK") is is_dropped


FILE = """# Heartbeat

- [ ] is the door shut?

## Mail
Cadence: Daily
Prompt: Look at the mail.
Name who wrote.

And what about.

## Weather
- prompt: What is the weather?
- CADENCE: hourly

## Broken
Cadence: daily

## Odd
Cadence: fortnightly
Prompt: x

## Home
- [ ] water the plants

## Last
Cadence: monthly
Prompt:
  First line.
"""


@pytest.mark.covers("A-251")
def test_sections_have_a_cadence_and_a_prompt():
    found = read(FILE)
    assert [(one.title, one.cadence, one.prompt) for one in found.sections] == [
        ("Mail", "daily", "Look at the mail.\nName who wrote.\n\nAnd what about."),
        ("Weather", "hourly", "What is the weather?"),
        ("Last", "monthly", "First line."),
    ]
    assert len(found.problems) == 2
    assert "'Broken'" in found.problems[0] and "no Prompt" in found.problems[0]
    assert "'Odd'" in found.problems[1] and "fortnightly" in found.problems[1] and "biweekly" in found.problems[1]


@pytest.mark.covers("S-071")
def test_lines_outside_of_sections_are_the_checklist():
    found = read(FILE)
    assert found.lines == ("- [ ] is the door shut?", "- [ ] water the plants")
    assert "## Home" in found.text and "Look at the mail" not in found.text
    assert read("# T\n\n## Mail\nCadence: daily\nPrompt: x\n").lines == ()


@pytest.mark.covers("A-253")
def test_hash_of_a_section_is_that_of_its_content():
    one, two = read(FILE), read(FILE.replace("is the door shut?", "else"))
    assert [s.hash for s in one.sections] == [s.hash for s in two.sections]
    three = read(FILE.replace("Look at the mail", "Look at mail"))
    assert [a.hash == b.hash for a, b in zip(one.sections, three.sections, strict=True)] == [False, True, True]
