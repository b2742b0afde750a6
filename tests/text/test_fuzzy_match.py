"""Inexact quotes find their lines, the replacement fits in, and what is not there is not guessed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.clock import monotonic_s
from appliance.errors import Conflict, OwlError, TooLarge
from appliance.text.fuzzy_match import MAX_CHARS, EditedText, fuzzy, remove

INDENTED = ("the indentation of the replacement was adapted to the text",)
TEXTS = st.text("\n\n ab\t\r\u2028{}", max_size=40)


@pytest.mark.covers("R-134", "E-077")
@pytest.mark.parametrize(
    ("text", "search", "replacement", "result"),
    [
        ("one\ntwo\nthree\n", "two", "2", "one\n2\nthree\n"),
        ("one\ntwo\nthree\n", "two\n", "2", "one\n2\nthree\n"),
        ("one\ntwo\nthree\n", "two", "2\n", "one\n2\nthree\n"),
        ("one\ntwo", "two\n", "2\n", "one\n2"),
        ("one\ntwo\nthree\n", "one\ntwo", "1\n\n2", "1\n\n2\nthree\n"),
        ("one\ntwo\nthree\n", "two", "", "one\nthree\n"),
        ("one\ntwo", "two", "", "one"),
        ("one", "one", "", ""),
        ("\ttab\n", "\ttab", "  spaces", "  spaces\n"),
        ("two\na two b\n", "two", "2", "2\na two b\n"),  # the whole line, not the piece behind it
        ("say hello twice\n", "hello", "good day", "say good day twice\n"),
        ("a\u2028b\nc\n", "a\u2028b", "x", "x\nc\n"),
    ],
)
def test_what_is_quoted_exactly_is_replaced_without_a_warning(text: str, search: str, replacement: str, result: str) -> None:
    assert fuzzy(text, search, replacement) == EditedText(result, (), 1)


@pytest.mark.covers("R-134", "E-071")
@pytest.mark.parametrize(
    ("text", "search", "result", "line"),
    [
        ("x\na\nx\nb\nx\nc\n", "x", "x\na\nx\nb\nY\nc\n", 5),
        ("  x  1\nx 1 \n\tx 1\n", "x  1", "  x  1\nx 1 \n\tY\n", 3),
        ("ax bx cx.\n", "x", "ax bx cY.\n", 1),
    ],
    ids=["whole lines", "but for white space", "inside a line"],
)
def test_the_last_of_several_is_edited_and_the_count_is_told(text: str, search: str, result: str, line: int) -> None:
    edited = fuzzy(text, search, "Y")
    assert edited.text == result
    assert edited.warnings[0] == f"the text to replace occurs 3 times; the last one, at line {line}, was edited"


@pytest.mark.covers("E-072", "R-134")
def test_a_text_with_tabs_gets_tabs() -> None:
    text = "def f():\n\tif x:\n\t\treturn 1\n\treturn 2\n"
    edited = fuzzy(text, "if x:\n    return 1", "if x:\n    if y:\n        return 3\n    return 1")
    assert edited == EditedText("def f():\n\tif x:\n\t\tif y:\n\t\t\treturn 3\n\t\treturn 1\n\treturn 2\n", INDENTED, 1)


def test_a_text_with_spaces_gets_spaces() -> None:
    text = "def f():\n  if x:\n    return 1\n"
    assert (
        fuzzy(text, "if x:\n\treturn 1", "if y:\n\treturn 2\n\t\tdeeper").text == "def f():\n  if y:\n    return 2\n      deeper\n"
    )


@pytest.mark.covers("E-074", "R-134")
@pytest.mark.parametrize(
    ("text", "search", "replacement", "result"),
    [
        ("    foo\nend\n", "foo", "foo\n  bar\n    baz", "    foo\n      bar\n        baz\nend\n"),
        ("  foo\n", "      foo", "      foo\n        bar", "  foo\n    bar\n"),  # quoted too deep
        ("    foo\n", "  foo", "bar\n  foo", "  bar\n    foo\n"),  # one line stands out
        ("    if:\n        go\n", "if:\ngo", "if:\nfresh\ngo", "    if:\n    fresh\n        go\n"),  # a kept line keeps its depth
        ("\n    foo\n", "foo", "a\n\nb", "\n    a\n\n    b\n"),  # no white space on blank lines
    ],
)
def test_inner_indentation_stays(text: str, search: str, replacement: str, result: str) -> None:
    assert fuzzy(text, search, replacement) == EditedText(result, INDENTED, 1)


@pytest.mark.covers("E-073", "R-134")
@pytest.mark.parametrize(
    ("search", "replacement"),
    [
        ("a\nb", "X"),
        ("a\n\n\n\nb", "X"),
        ("\na\n\nb\n\n", "\nX\n\n"),
        ("\n\n\na\nb\n\n\n", "\n\n\nX\n\n\n"),
        ("a   \nb", "X"),
        ("\ta\n \nb", "\tX"),
    ],
)
def test_blank_lines_and_white_space_do_not_matter(search: str, replacement: str) -> None:
    assert fuzzy("0\n\na\n\nb\n\n1\n", search, replacement).text == "0\n\nX\n\n1\n"


def test_white_space_inside_a_line_matters_least_and_is_told() -> None:
    edited = fuzzy("if(x){\n  go();\n}\n", "if (x) {", "if (y) {")
    assert edited.text == "if (y) {\n  go();\n}\n"
    assert edited.warnings == ("the text to replace differs in white space inside its lines",)


@pytest.mark.parametrize(
    ("text", "search", "replacement", "result"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n"),
        ("a\r\nb\r\nc", "b\nc", "x\ny", "a\r\nx\r\ny"),
        ("a\nb\nc\n", "a\r\nb\r\n", "x\r\ny\r\n", "x\ny\nc\n"),
    ],
)
def test_line_ends_stay_as_the_text_has_them(text: str, search: str, replacement: str, result: str) -> None:
    assert fuzzy(text, search, replacement).text == result


@pytest.mark.covers("R-135", "E-076")
@pytest.mark.parametrize("search", ["", "   ", " \n\t\n"])
def test_an_empty_search_appends(search: str) -> None:
    assert fuzzy("one", search, "two") == EditedText("one\ntwo", (), 1)
    assert fuzzy("one\n", search, "two\n") == EditedText("one\ntwo\n", (), 1)
    assert fuzzy("", search, "two") == EditedText("two", (), 1)


@pytest.mark.covers("E-075", "R-134", "R-125")
@pytest.mark.parametrize("search", ["three", "one\nthree", "two\none", "o n e x", "One"])
def test_what_is_in_the_text_in_no_form_is_a_conflict(search: str) -> None:
    with pytest.raises(Conflict, match="nothing was changed") as caught:
        fuzzy("one\ntwo\n", search, "x")
    assert caught.value.status == 409


def test_a_half_right_quote_is_told_where_it_was_right() -> None:
    with pytest.raises(Conflict) as caught:
        fuzzy("zero\n\tone\ntwo\n", "one\nthree", "x")
    assert "line 2" in caught.value.hint


def test_removing_takes_the_line_with_it_but_heals_nothing() -> None:
    assert remove("a\nb\nc\n", "b") == EditedText("a\nc\n", (), 1)
    assert remove("a big dog\n", "big ") == EditedText("a dog\n", (), 1)
    assert remove("b\na\nb\n", "b").warnings
    for region in (" b", "B", ""):
        with pytest.raises(Conflict):
            remove("a\nb\n", region)


def test_texts_that_are_too_long_are_refused() -> None:
    long = "x" * (MAX_CHARS + 1)
    for parts in ((long, "x", "y"), ("x", long, "y"), ("x", "x", long), ("y" * MAX_CHARS, "", "x")):
        with pytest.raises(TooLarge):
            fuzzy(*parts)


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("a\n" * 125_000, "\nb\n" + "a\n" * 62_500),
        ("a\n" * 125_000, " a\n" * 62_500 + "b"),
        ("aa " * 125_000, "aa b"),
        ("\n".join(" " * i + "q" for i in range(750)), "\n".join(" " * i + " r" for i in range(750))),
    ],
)
def test_no_text_makes_the_search_slow(text: str, search: str) -> None:
    begun = monotonic_s()
    with pytest.raises(Conflict):
        fuzzy(text, search, "x")
    assert monotonic_s() - begun < 5  # a quadratic way takes minutes


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_anything_is_an_edit_or_an_error_of_ours(text: str, search: str, replacement: str) -> None:
    try:
        edited = fuzzy(text, search, replacement)
    except OwlError as error:
        assert error.status == 409 and error.hint
        assert search not in text
    else:
        assert edited.count == 1


@given(st.lists(st.sampled_from(["a", "\tb", "  c", "", "d e"]), min_size=1, max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_replacing_lines_by_themselves_changes_nothing(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    first = data.draw(st.integers(0, len(lines) - 1))
    quoted = "\n".join(lines[first : data.draw(st.integers(first, len(lines))) + 1])
    if quoted.strip():
        assert fuzzy(text, quoted, quoted).text == text
