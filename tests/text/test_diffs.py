"""Unified diffs: what they look like, that they lead back, and that no input makes them slow."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Conflict, OwlError, TooLarge
from appliance.text.diffs import apply, diff, merge_view
from appliance.text.fuzzy_match import MAX_CHARS

LINES = "".join(f"line {i}\n" for i in range(1, 21))
SEPARATORS = "\n\n\nab \r\x0b\x0c\x1c\x85\u2028\\+-@"
TEXTS = st.text(SEPARATORS, max_size=60) | st.text(max_size=30)


def test_a_diff_looks_as_everybody_knows_it() -> None:
    after = LINES.replace("line 10\n", "LINE 10\n").replace("line 20\n", "")
    assert diff(LINES, after, "notes/a.md") == (
        "--- a/notes/a.md\n+++ b/notes/a.md\n"
        "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+LINE 10\n line 11\n line 12\n line 13\n"
        "@@ -17,4 +17,3 @@\n line 17\n line 18\n line 19\n-line 20\n"
    )


@pytest.mark.parametrize(
    ("before", "after", "hunk"),
    [
        ("", "a\n", "@@ -0,0 +1 @@\n+a\n"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\nb", "A\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file\n"),
        ("a\r\nb\n", "a\nb\n", "@@ -1,2 +1,2 @@\n-a\r\n+a\n b\n"),
    ],
)
def test_ends_of_texts_are_written_as_patch_writes_them(before: str, after: str, hunk: str) -> None:
    assert diff(before, after) == f"--- before\n+++ after\n{hunk}"
    assert apply(diff(before, after), before) == after


def test_equal_texts_have_no_diff_and_no_patch_changes_nothing() -> None:
    assert diff("a\n", "a\n", "x") == "" and apply("", "a\n") == "a\n"


def test_context_is_as_wide_as_asked() -> None:
    after = LINES.replace("line 10\n", "x\n")
    assert diff(LINES, after, context=0).endswith("@@ -10 +10 @@\n-line 10\n+x\n")
    assert diff(LINES, after, context=99).count("\n ") == 19
    with pytest.raises(BadInput, match="-1"):
        diff("a", "b", context=-1)


def test_a_name_cannot_forge_a_patch() -> None:
    patch = diff("a\n", "b\n", "x\n@@ -1 +1 @@\n-a\n+evil")
    assert apply(patch, "a\n") == "b\n"


@given(TEXTS, TEXTS, st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_a_diff_leads_from_one_text_to_the_other(before: str, after: str, context: int) -> None:
    assert apply(diff(before, after, "n", context), before) == after


@given(st.lists(st.sampled_from("abc"), max_size=40), st.lists(st.sampled_from("abc"), max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_diff_of_repetitive_texts_leads_over_too(before: list[str], after: list[str]) -> None:
    old, new = "\n".join(before), "\n".join(after)
    assert apply(diff(old, new), old) == new


@given(st.text("@-+ 1,0\\\nab", max_size=60), TEXTS)
@settings(max_examples=300, deadline=None)
def test_a_broken_patch_is_an_error_of_ours(patch: str, before: str) -> None:
    for given_patch in (patch, f"@@ -1 +1 @@\n{patch}"):
        try:
            apply(given_patch, before)
        except OwlError as error:
            assert error.message and error.hint


@pytest.mark.parametrize(
    ("patch", "before", "error", "words"),
    [
        ("hello", "a\n", BadInput, "not a unified diff"),
        ("@@ -1 +1 @@\n-b\n+c\n", "a\n", Conflict, "line 1"),
        ("@@ -9 +9 @@\n-a\n+c\n", "a\n", Conflict, "line 9"),
        ("@@ -9,0 +9 @@\n+c\n", "a\n", Conflict, "does not fit"),
        ("@@ -0 +1 @@\n-a\n+c\n", "a\n", BadInput, "out of order"),
        ("@@ -2 +2 @@\n-b\n+c\n@@ -1 +1 @@\n-a\n+c\n", "a\nb\n", BadInput, "out of order"),
        ("@@ -1 +1 @@\n-a\n", "a\n", BadInput, "ends inside"),
        ("@@ -1 +1 @@\n-a\n-b\n+c\n", "a\nb\n", BadInput, "does not fit its hunk"),
        ("@@ -1 +1 @@\n-a\n?b\n", "a\n", BadInput, "does not fit its hunk"),
        ("@@ -1 +1 @@\n-a\n+b\n--- a/other\n", "a\n", BadInput, "one text at a time"),
        ("@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n", "a\nc\n", Conflict, "goes on"),
        ("@@ -1,0 +2 @@\n+b\n", "a", Conflict, "goes on"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(patch: str, before: str, error: type[OwlError], words: str) -> None:
    with pytest.raises(error, match=words):
        apply(patch, before)


def test_a_patch_is_read_as_git_writes_it_and_as_mail_leaves_it() -> None:
    patch = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@ def f():\n a\n\n-b\n+c"
    assert apply(patch, "a\n\nb\n") == "a\n\nc\n"


def test_texts_that_are_too_long_are_refused() -> None:
    for call in (lambda t: diff(t, ""), lambda t: diff("", t), lambda t: apply("x", t), lambda t: merge_view(t, "")):
        with pytest.raises(TooLarge, match="split it"):
            call("x" * (MAX_CHARS + 1))


def _many(count: int, words: int) -> str:
    return "".join(f"{random.randrange(words)}\n" for _ in range(count))


@pytest.mark.parametrize("kind", ["scattered", "reversed", "two words", "stretches", "blank lines"])
def test_no_text_makes_a_diff_slow(kind: str) -> None:
    random.seed(7)
    before = "".join(f"line {i} {'x' * 90}\n" for i in range(6_000))
    lines = before.split("\n")
    if kind == "scattered":
        after = "\n".join("changed" if i % 37 == 0 else line for i, line in enumerate(lines))
    elif kind == "reversed":
        after = "\n".join(reversed(lines))
    elif kind == "two words":
        before, after = _many(6_000, 2), _many(6_000, 2)
    elif kind == "stretches":
        before, after = ("".join(f"{_many(30, 2)}anchor {i}\n" for i in range(200)) for _ in range(2))
    else:
        before, after = "\n" * 250_000, "\n" * 125_000 + "x" + "\n" * 125_000
    begun = monotonic_s()
    patch = diff(before, after)
    assert monotonic_s() - begun < 8  # a quadratic way takes minutes
    assert apply(patch, before) == after


def test_a_large_text_with_small_changes_has_a_small_diff() -> None:
    lines = [f"line {i}\n" if i % 3 else "\n" for i in range(20_000)]
    before = "".join(lines)
    for at in range(100, 20_000, 1000):
        lines[at] = "changed\n"
    lines.insert(5, "fresh\n")
    patch = diff(before, "".join(lines))
    assert patch.count("\n+") == 22 and patch.count("\n-") == 20  # with one header line; each change is one line


@pytest.mark.parametrize(
    ("before", "after", "view"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", "a\n<<<<<<< before\nb\n=======\nB\n>>>>>>> after\nc\n"),
        ("a", "b", "<<<<<<< before\na\n=======\nb\n>>>>>>> after\n"),
        ("", "b\n", "<<<<<<< before\n=======\nb\n>>>>>>> after\n"),
        ("same\n", "same\n", "same\n"),
        ("=======\na\n", "=======\n", "=======\n<<<<<<<< before\na\n========\n>>>>>>>> after\n"),
    ],
)
def test_a_change_is_shown_as_conflict_blocks(before: str, after: str, view: str) -> None:
    assert merge_view(before, after) == view


@given(TEXTS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_both_texts_can_be_read_from_the_view(before: str, after: str) -> None:
    sides: tuple[list[str], list[str]] = ([], [])
    view = merge_view(before, after)
    size = max((len(line) - len(" before") for line in view.split("\n") if line.endswith("< before")), default=0)
    at = (0, 1)
    for line in view.removesuffix("\n").split("\n") if view else []:
        if size and line == "<" * size + " before":
            at = (0,)  # type: ignore[assignment]
        elif size and line == "=" * size:
            at = (1,)  # type: ignore[assignment]
        elif size and line == ">" * size + " after":
            at = (0, 1)
        else:
            for side in at:
                sides[side].append(line)
    assert "\n".join(sides[0]) == before.removesuffix("\n") and "\n".join(sides[1]) == after.removesuffix("\n")
