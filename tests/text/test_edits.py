"""Edits carried out: by line, exact, by markers, by sed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Conflict, DeadlineExceeded, OwlError, TooLarge
from appliance.text import edits
from appliance.text.edits import (
    EditedText,
    LinePatch,
    Operation,
    Sed,
    apply_markers,
    apply_sed,
    exact,
    parse_markers,
    parse_sed,
    patch_lines,
)
from appliance.text.fuzzy_match import MAX_CHARS

TEXT = "one\ntwo\nthree\nfour\n"


def edit(text: str | None, body: str) -> str:
    return apply_markers(text, parse_markers(body)).text


def run_sed(text: str, commands: str) -> str | None:
    found = parse_sed(commands)
    assert found is not None
    return apply_sed(text, found)


# -- lines --------------------------------------------------------------------------------------------


@pytest.mark.covers("B-078")
@pytest.mark.parametrize(
    ("patches", "result"),
    [
        ([(2, 3, "X")], "one\nX\nfour\n"),
        ([(2, 2, "X\nY\n")], "one\nX\nY\nthree\nfour\n"),
        ([(1, 0, "zero")], "zero\none\ntwo\nthree\nfour\n"),
        ([(3, 0, "X")], "one\ntwo\nX\nthree\nfour\n"),
        ([(3, 0, "\n")], "one\ntwo\n\nthree\nfour\n"),
        ([(2, 3, "")], "one\nfour\n"),
        ([(1, 4, "")], ""),
        ([(3, 99, "X")], "one\ntwo\nX\n"),
        ([(5, 5, "five")], "one\ntwo\nthree\nfour\nfive\n"),
        ([(99, 0, "five")], "one\ntwo\nthree\nfour\nfive\n"),
        ([(98, 98, "five"), (99, 99, "six")], "one\ntwo\nthree\nfour\nfive\nsix\n"),
        ([(1, 1, "1\n1\n1"), (3, 3, "3"), (4, 4, "")], "1\n1\n1\ntwo\n3\n"),  # numbers mean the text as it was
        ([(4, 4, ""), (1, 1, "1\n1\n1"), (3, 3, "3")], "1\n1\n1\ntwo\n3\n"),
        ([(2, 0, "a"), (2, 2, "X"), (2, 0, "b")], "one\na\nb\nX\nthree\nfour\n"),
        ([(2, 0, "")], TEXT),
        ([], TEXT),
    ],
)
def test_patches_change_the_lines_they_name(patches: list[tuple[int, int, str]], result: str) -> None:
    assert patch_lines(TEXT, [LinePatch(*p) for p in patches]) == result


@pytest.mark.covers("B-078")
@pytest.mark.parametrize(
    ("text", "patch", "result"),
    [
        ("", (1, 0, "a"), "a"),
        ("", (1, 1, "a\n"), "a\n"),
        ("a\nb", (2, 2, "B"), "a\nB"),
        ("a\nb", (2, 2, "B\n"), "a\nB\n"),
        ("a\nb", (3, 0, "c"), "a\nb\nc"),
        ("a\nb", (1, 1, "A\n"), "A\nb"),
        ("a\r\nb\u2028c\x0bd\r\n", (1, 1, "x"), "x\nb\u2028c\x0bd\r\n"),
    ],
)
def test_the_end_of_the_text_stays_as_it_is_or_as_the_patch_says(text: str, patch: tuple[int, int, str], result: str) -> None:
    assert patch_lines(text, [LinePatch(*patch)]) == result


@pytest.mark.covers("B-078")
@pytest.mark.parametrize(
    ("patches", "words"),
    [
        ([(2, 3, "a"), (3, 4, "b")], "two patches change line 3"),
        ([(1, 4, "a"), (2, 2, "b")], "two patches change line 2"),
        ([(2, 2, "a"), (2, 2, "b")], "two patches change line 2"),
        ([(1, 3, "a"), (2, 0, "b")], "two patches change line 2"),
        ([(0, 0, "a")], "lines 0 to 0"),
        ([(3, 2, "a")], "lines 3 to 2"),
        ([(1, -1, "a")], "lines 1 to -1"),
    ],
)
def test_patches_that_cannot_be_meant_are_refused(patches: list[tuple[int, int, str]], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        patch_lines(TEXT, [LinePatch(*p) for p in patches])


@given(st.text("a\n\r\x0b\u2028", max_size=30) | st.text(max_size=20))
def test_no_patches_change_nothing(text: str) -> None:
    assert patch_lines(text, []) == text


@given(
    st.text("ab\n", max_size=20),
    st.lists(st.builds(LinePatch, st.integers(-1, 9), st.integers(-1, 9), st.text("x\n", max_size=4)), max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_patches_from_the_bottom_up_give_the_same(text: str, patches: list[LinePatch]) -> None:
    try:
        result = patch_lines(text, patches)
    except OwlError:
        return
    total = text.removesuffix("\n").count("\n") + 1 if text else 0
    lines = text.removesuffix("\n").split("\n") if text else []

    def place(at: int) -> tuple[int, int, int]:
        p = patches[at]
        is_behind = p.start_line > total
        return min(p.start_line, total + 1), p.start_line if is_behind else p.end_line >= p.start_line, at

    for p in [patches[at] for at in sorted(range(len(patches)), key=place, reverse=True)]:
        first = min(p.start_line - 1, total)
        lines[first : max(first, min(p.end_line, total))] = p.content.removesuffix("\n").split("\n") if p.content else []
    assert result in ("\n".join(lines), "\n".join([*lines, ""]))


def test_too_many_patches_or_too_long_a_text_are_refused() -> None:
    with pytest.raises(TooLarge):
        patch_lines("", [LinePatch(1, 0, "")] * 10_001)
    with pytest.raises(TooLarge):
        patch_lines("x" * MAX_CHARS, [LinePatch(1, 0, "y")])


# -- exact ----------------------------------------------------------------------------------------------


def test_exact_replaces_all_and_counts_them() -> None:
    assert exact("a b a", "a", "c") == EditedText("c b c", (), 2)
    assert exact("a\nb", "\n", "") == EditedText("ab", (), 1)


def test_exact_replaces_the_first_when_asked_for_one() -> None:
    assert exact("a b a", "a", "c", is_all=False) == EditedText(
        "c b a", ("the text to replace occurs 2 times; the first one was edited",), 1
    )
    assert exact("a b", "a", "c", is_all=False) == EditedText("c b", (), 1)


@pytest.mark.parametrize(
    ("old", "error"), [("", BadInput), ("c", Conflict), ("A", Conflict), ("a  b", Conflict), (" a b", Conflict)]
)
def test_exact_heals_nothing(old: str, error: type[OwlError]) -> None:
    with pytest.raises(error):
        exact("a b", old, "x")


def test_exact_does_not_blow_up() -> None:
    with pytest.raises(TooLarge, match="replace less"):
        exact("a" * 100_000, "a", "b" * 100_000)


# -- markers --------------------------------------------------------------------------------------------


@pytest.mark.covers("R-122", "E-053", "E-054", "E-058", "E-060")
@pytest.mark.parametrize(
    ("text", "body", "result"),
    [
        ("old\n", "<<NEW fresh NEW", "fresh"),
        (None, "<<NEW fresh NEW", "fresh"),
        ("old\n", "<<REPLACE\nfresh\n\nREPLACE", "fresh\n"),
        (None, "<<REPLACE fresh REPLACE", "fresh"),
        ("old\n", "<<EOF fresh EOF", "fresh"),
        ("old", "<<APPEND\nmore\nAPPEND", "old\nmore"),
        ("old\n", "<<APPEND more APPEND", "old\nmore"),
        (None, "<<APPEND more APPEND", "more"),
        ("old\n", "<<PREPEND first PREPEND", "first\nold\n"),
        (None, "<<PREPEND first PREPEND", "first"),
        ("a\nb\nc\n", "<<DELETE\nb\nDELETE", "a\nc\n"),
        ("a big dog", "<<DELETE big  DELETE", "a dog"),
        ("old\n", "no marker\n", "no marker\n"),
        (None, "", ""),
    ],
)
def test_each_kind_of_marker_does_its_work(text: str | None, body: str, result: str) -> None:
    assert edit(text, body) == result


@pytest.mark.covers("E-048", "R-122", "R-116")
def test_a_pair_replaces_the_lines_it_quotes() -> None:
    body = "<<<<<<< SEARCH\ntwo\nthree\n=======\n2\n>>>>>>> REPLACE"
    assert apply_markers(TEXT, parse_markers(body)) == EditedText("one\n2\nfour\n", (), 1)


@pytest.mark.covers("R-123", "E-049", "E-050")
def test_each_edit_sees_what_the_ones_before_it_left() -> None:
    body = "<<SEARCH two SEARCH <<REPLACE fresh line REPLACE\n<<SEARCH fresh line SEARCH <<REPLACE 2 REPLACE\n<<DELETE four DELETE"
    assert apply_markers(TEXT, parse_markers(body)) == EditedText("one\n2\nthree\n", (), 3)


@pytest.mark.covers("R-116", "E-052")
def test_attributes_and_half_blocks_are_the_same_operations() -> None:
    assert apply_markers(TEXT, [Operation("search_replace", "2", "two")]).text == TEXT.replace("two", "2")
    assert apply_markers(TEXT, [Operation("search_replace", "all new", None)]).text == "all new"
    assert edit(None, "=======\nnew file\n>>>>>>> REPLACE") == "new file"


@pytest.mark.covers("R-125", "E-055")
@pytest.mark.parametrize(
    ("text", "body"),
    [
        (TEXT, "<<DELETE five DELETE"),
        (TEXT, "<<DELETE One DELETE"),
        (TEXT, "<<SEARCH five SEARCH <<REPLACE 5 REPLACE"),
        (TEXT, "<<APPEND five APPEND <<SEARCH six SEARCH <<REPLACE 6 REPLACE"),
        (TEXT, "s/five/5/"),
        (TEXT, "s/one/1/;s/five/5/"),
        (None, "<<DELETE one DELETE"),
        (None, "<<SEARCH one SEARCH <<REPLACE 1 REPLACE"),
        (None, "s/one/1/"),
        (TEXT, "s/tw.$/2/"),
        ("", "<<SEARCH one SEARCH <<REPLACE 1 REPLACE"),
    ],
)
def test_what_is_not_there_is_a_soft_conflict(text: str | None, body: str) -> None:
    with pytest.raises(Conflict) as caught:
        edit(text, body)
    assert caught.value.status == 409 and caught.value.hint


@pytest.mark.covers("R-135", "E-076")
def test_an_empty_search_appends_and_creates() -> None:
    assert edit("old", "<<SEARCH SEARCH <<REPLACE more REPLACE") == "old\nmore"
    assert edit(None, "<<SEARCH SEARCH <<REPLACE more REPLACE") == "more"


def test_warnings_of_all_edits_are_told() -> None:
    edited = apply_markers("a\nx\na\n\tb\n", parse_markers("<<DELETE a DELETE <<SEARCH b SEARCH <<REPLACE c REPLACE"))
    assert edited.text == "a\nx\n\tc\n" and len(edited.warnings) == 2 and edited.count == 2


def test_sed_that_finds_nothing_tells_of_the_flag() -> None:
    with pytest.raises(Conflict) as caught:
        edit(TEXT, "s/tw.$/2/")
    assert "flag r" in caught.value.hint
    assert edit(TEXT, "s/tw.$/2/r") == TEXT.replace("two", "2")


def test_sed_is_an_edit_like_others() -> None:
    assert apply_markers("a c", parse_markers("s/a/b/;s/c/d/")) == EditedText("b d", (), 2)
    with pytest.raises(BadInput, match="no sed"):
        apply_markers("a", [Operation("sed", "hello")])


def test_too_many_operations_are_refused() -> None:
    with pytest.raises(TooLarge):
        apply_markers("", [Operation("append", "x")] * 201)


PIECES = [
    "<<SEARCH ",
    " SEARCH ",
    "<<REPLACE ",
    " REPLACE ",
    "<<DELETE ",
    " DELETE",
    "<<APPEND ",
    " APPEND ",
    "one",
    "two\n",
    "s/one/2/",
    "\n",
]


@given(st.none() | st.text("one two\n", max_size=20), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@settings(max_examples=250, deadline=None)
def test_any_body_is_an_edit_or_an_error_of_ours(text: str | None, body: str) -> None:
    try:
        edited = apply_markers(text, parse_markers(body))
    except OwlError as error:
        assert error.status in (400, 409) and error.hint
    else:
        assert edited.count >= 1


# -- sed ------------------------------------------------------------------------------------------------


@pytest.mark.covers("R-133", "E-063", "E-064", "E-065", "E-066", "E-067", "E-068")
@pytest.mark.parametrize(
    ("text", "commands", "result"),
    [
        ("age 30, 30", "s/30/80/", "age 80, 30"),
        ("age 30, 30", "s/30/80/g", "age 80, 80"),
        ("Hh", "s/h/w/gi", "ww"),
        ("Hh", "s/h/w/i", "wh"),
        ("Hh", "s/h/w/", "Hw"),
        ("ÄäßẞİI", "s/ä/x/gi", "xxßẞİI"),
        ("an old dog", "s/old/new", "an new dog"),
        ("x;y", "s/x;//", "y"),
        ("a/b", "s#a/b#c#", "c"),
        ("a|b", r"s|a\|b|c|", "c"),
        ("ac", "s/a/b/;s/c/d/", "bd"),
        ("ac", "s/a/b/ s/c/d/", "bd"),
        ("ac", "s/a/b/\ns/c/d/", "bd"),
        ("a", "s/a/b/;s/b/c/", "c"),
        ("x = a / 4", r"s/a \/ 4/b \/ 4/", "x = b / 4"),
        ("5 - a =$ 7 - a =$", "s/7 - a =$/7 - 3 = 4/", "5 - a =$ 7 - 3 = 4"),
        ("^a.*", "s/^a.*/b/", "b"),  # literally there: no regular expression
        ("a.b axb", "s/a.b/c/g", "c axb"),
        ("f(a|b)", "s/(a|b)/x/", "fx"),
        ("one", r"s/one/\1 & \n/", r"\1 & \n"),  # literal patterns have literal replacements
    ],
)
def test_substitutions_are_literal(text: str, commands: str, result: str) -> None:
    assert run_sed(text, commands) == result


@pytest.mark.covers("R-133", "E-068")
@pytest.mark.parametrize(
    "commands",
    [
        "s/foo$/x/",
        "s/^bar/x/",
        "s/b.r/x/",
        "s/fo?o/x/",
        "s/costs (about) 5/x/",
        r"s/\beta/x/",
        "s/[1]/x/",
        "s/x|bar/y/",
        "s/[a-/x/",
        "s/.*(/x/",
    ],
)
def test_anchors_and_chance_signs_are_no_regular_expression(commands: str) -> None:
    assert run_sed("bar foo\ncosts about 5 1 eta", commands) is None


@pytest.mark.covers("R-133")
@pytest.mark.parametrize(
    ("commands", "result"),
    [
        (r"s/v\d+/v9/", "v9.2 b\nend v7\n"),
        (r"s/v\d+/v9/g", "v9.2 b\nend v9\n"),
        (r"s/V\d+$/v9/i", "v1.2 b\nend v9\n"),
        ("s/v[0-9].*/x/", "x\nend v7\n"),
        ("s/^(end|stop).*/x/", "v1.2 b\nx\n"),
        (r"s/(v\d)\.(\d)/\2-\1 [&] \& \\ \n\t\q/", "2-v1 [v1.2] & \\ \n\t\\q b\nend v7\n"),
        (r"s/(end) (v7)/\2 \1/", "v1.2 b\nv7 end\n"),
        ("s/b$/x/r", "v1.2 x\nend v7\n"),
        ("s/^/> /rg", "> v1.2 b\n> end v7\n> "),
        ("s/e?nd/x/E", "v1.2 b\nx v7\n"),
        (r"s/(x)?end/<\1>/r", "v1.2 b\n<> v7\n"),
        ("s/nothing.*/x/", None),
    ],
)
def test_unmistakable_signs_and_the_flag_mean_a_regular_expression(commands: str, result: str | None) -> None:
    assert run_sed("v1.2 b\nend v7\n", commands) == result


@pytest.mark.covers("R-133")
@pytest.mark.parametrize(
    "commands", ["s/(/x/r", "s/" + "(" * 499 + "/x/r", "s/" + "a" * 501 + "/x/r", r"s/(a)/\2/r", "s/a{99999999999999999999}/x/r"]
)
def test_a_bad_regular_expression_is_bad_input(commands: str) -> None:
    with pytest.raises(BadInput):
        run_sed("a(b", commands)


@pytest.mark.covers("R-133")
def test_a_regular_expression_ends_within_its_time() -> None:
    begun = monotonic_s()
    with pytest.raises(DeadlineExceeded, match="longer than 1 s"):
        run_sed("a" * 400 + "!", "s/(a|aa|a)+b?$/x/r")
    assert monotonic_s() - begun < 60


@pytest.mark.parametrize("commands", ["s/a/aaaa/g;" * 40, "s/a/aaaa/gi;" * 40, f"s/a/{'&' * 2000}/gr;" * 2])
def test_a_chain_cannot_blow_the_text_up(commands: str) -> None:
    with pytest.raises(TooLarge):
        run_sed("a" * 1000, commands)


@pytest.mark.covers("R-133")
def test_case_blind_search_in_a_long_text_is_quick() -> None:
    begun = monotonic_s()
    assert run_sed("aA" * 500_000, "s/" + "a" * 100_000 + "b/x/gi") is None
    assert run_sed("aÄ" * 500_000, "s/Ä/b/gi") == "ab" * 500_000
    assert monotonic_s() - begun < 60


def test_an_empty_pattern_made_by_hand_is_bad_input() -> None:
    with pytest.raises(BadInput):
        apply_sed("a", [Sed("", "x", True, False)])


SIGNS = st.text("ab()[]{}*+?|.^$\\d1,-&:<>P=!#", max_size=14)


@given(SIGNS, SIGNS, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=250, deadline=None)
def test_any_substitution_works_or_is_an_error_of_ours(old: str, new: str, is_global: bool, is_blind: bool, is_regex: bool) -> None:
    try:
        apply_sed("aabb ab (a) [b] 11", [Sed(old, new, is_global, is_blind, is_regex)])
    except OwlError as error:
        assert error.hint


def test_every_way_to_edit_is_found_in_one_place() -> None:
    assert all(hasattr(edits, name) for name in edits.__all__)
    assert edits.apply(edits.diff("a\n", "b\n"), "a\n") == "b\n"
