"""Words after `/name`."""

from pathlib import Path

import pytest

from appliance.errors import BadInput
from appliance.skills.arguments import has_placeholders, render, split_arguments, usage_of
from appliance.skills.skill_file import Skill, parse_skill


def skill(body: str, arguments: str = "") -> Skill:
    return parse_skill(Path("box/skills/review.md"), f"---\ndescription: x\n{arguments}\n---\n{body}")


DECLARED = """arguments:
  - name: file
    required: true
  - name: focus
    default: bugs
  - name: note
"""


@pytest.mark.covers("B-121", "E-218")
def test_words_are_split_and_quoted_parts_stay_together() -> None:
    assert split_arguments('a.ts  security "a b.ts" ""') == ["a.ts", "security", "a b.ts", ""]
    found = skill("one=$1 two=$2 all=$ARGUMENTS")
    assert render(found, "a.ts security") == "one=a.ts two=security all=a.ts security"
    assert render(found, '"a b.ts" x') == 'one=a b.ts two=x all="a b.ts" x'


@pytest.mark.covers("B-120", "E-220", "E-221")
def test_longer_names_win_and_only_identifiers_count() -> None:
    dates = "arguments:\n  - name: start\n  - name: start_date\n"
    assert render(skill("$start $start_date $starting $10", dates), "a b") == "a b $starting a0"
    assert render(skill("$1bad $1", "arguments:\n  - name: 1bad\n"), "x") == "xbad x"
    assert render(skill("[$2] [$nothing]"), "x") == "[] [$nothing]"


@pytest.mark.covers("B-122", "E-219")
def test_defaults_and_what_is_missing() -> None:
    found = skill("$file $focus [$note]", DECLARED)
    assert render(found, "a.py") == "a.py bugs []" and render(found, "a.py speed now") == "a.py speed [now]"
    with pytest.raises(BadInput, match=r"Usage: /review <file> \[focus=bugs\] \[note\]"):
        render(found, "")
    assert render(skill("$file", "arguments:\n  - name: file\n    required: true\n    default: all\n"), "") == "all"
    assert usage_of(skill("x")) == "/review"


def test_what_was_typed_is_no_placeholder_and_is_never_lost() -> None:
    assert render(skill("$1 and $2"), "$2 x") == "$2 and x"
    assert render(skill("Look it over."), " the door ") == "Look it over.\n\nthe door"
    assert render(skill("Look it over."), "") == "Look it over."


@pytest.mark.covers("E-227")
def test_whether_a_command_waits_for_words() -> None:
    assert has_placeholders(skill("$1")) and has_placeholders(skill("$file", DECLARED)) and has_placeholders(skill("$ARGUMENTS"))
    assert not has_placeholders(skill("costs $ 10, $files"))
