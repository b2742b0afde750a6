"""Lines added to the end of a note in the form it has, and taken off again."""

import pytest

from appliance.errors import Conflict
from appliance.language.items import added, is_list, taken_off


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("# A\n\n- one\n", "# A\n\n- one\n- two\n- three\n"),
        ("# A\n\n- [x] one\n", "# A\n\n- [x] one\n- [ ] two\n- [ ] three\n"),
        ("# A\n\n1. one\n9. nine\n\n\n", "# A\n\n1. one\n9. nine\n10. two\n11. three\n"),
        ("  * one", "  * one\n  * two\n  * three\n"),
        ("# A\n\nA sentence.\n", "# A\n\nA sentence.\n\ntwo\n\nthree\n"),
        ("", "two\n\nthree\n"),
    ],
)
def test_lines_take_the_form_of_the_note_and_come_off_again(body: str, after: str) -> None:
    assert added(body, ["two", "three"]) == after
    assert taken_off(after, ["two", "three"]).strip() == body.strip()


def test_lines_that_are_not_the_last_stay() -> None:
    with pytest.raises(Conflict):
        taken_off("- one\n- two\n- mine\n", ["two"])


def test_a_note_is_a_list_when_its_last_line_is_an_item() -> None:
    assert is_list("# A\n- one\n") and not is_list("- one\n\nA sentence.\n") and not is_list("")
