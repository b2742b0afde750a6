"""References: one stored form, the form they are shown in, slugs, and where a URL is kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, OwlError
from appliance.text.references import (
    MAX_PATH,
    display,
    folder_of,
    is_file_backed,
    is_ref,
    is_under,
    locator_of,
    parse_ref,
    route_url,
    scheme_of,
    slug,
    unique_slug,
)

MANY = settings(max_examples=200, deadline=None)
ODD = st.text(st.sampled_from("ab:/. ,?%_-~\\\0\n\u0301\ud800éA1")) | st.text()

# -- stored form ------------------------------------------------------------------------------------


@pytest.mark.covers("B-068", "E-189", "R-006")
@pytest.mark.parametrize(
    ("ref", "path"),
    [
        ("disk:/a", "disk://a"),
        ("disk:///a", "disk://a"),
        ("google-docs:/1x_Y-z", "google-docs://1x_Y-z"),
        ("a_1-b:/c", "a_1-b://c"),
        ("memory://notes/garden", "memory://notes/garden"),
        ("known://", "known://"),
        ("disk:/", "disk://"),
        ("notes/a.md", "notes/a.md"),
        ("/etc/hosts", "/etc/hosts"),
        ("disk:relative", "disk:relative"),
        ("BAD:/x", "BAD:/x"),
        ("1st:/x", "1st:/x"),
        ("C:\\d\\f", "C:\\d\\f"),
        ("known://x://y", "known://x://y"),
        ("url:/https://x.org/a//b?q=1", "url://https://x.org/a//b?q=1"),
        ("url:/https://x.org/a/../b#c", "url://https://x.org/a/../b#c"),
        ("https://x.org/a/../b", "https://x.org/a/../b"),
    ],
)
def test_every_spelling_has_one_stored_form(ref: str, path: str) -> None:
    assert parse_ref(ref) == parse_ref(path) == path


@pytest.mark.covers("B-069")
@pytest.mark.parametrize(
    ("shown", "drive", "locator"),
    [
        ("disk:/home/ann/a b.md", "disk", "home/ann/a b.md"),
        ("url:/https://x.org/a//b?q=1&r=é#top", "url", "https://x.org/a//b?q=1&r=é#top"),
        ("url:/http://[::1]:80/..", "url", "http://[::1]:80/.."),
        ("agent:/notes/x", "agent", "notes/x"),
        ("google-docs:/1x_Y-z", "google-docs", "1x_Y-z"),
        ("github:/owner/repo/docs/a.md", "github", "owner/repo/docs/a.md"),
    ],
)
def test_references_of_the_five_drives_round_trip(shown: str, drive: str, locator: str) -> None:
    path = parse_ref(shown)
    assert (scheme_of(path), locator_of(path), display(path), is_ref(shown)) == (drive, locator, shown, True)


@pytest.mark.covers("R-007", "E-096")
@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("known://a", "known"),
        ("known://", "known"),
        ("known://x://y", "known"),
        ("known://ref://x", "known"),
        ("C:\\d\\f", None),
        ("key:value", None),
        ("notes/a.md", None),
        ("", None),
        (None, None),
        ("://x", None),
    ],
)
def test_scheme_is_what_stands_before_the_first_mark(path: str | None, scheme: str | None) -> None:
    assert scheme_of(path) == scheme


@pytest.mark.covers("B-068", "E-189")
@pytest.mark.parametrize("text", ["disk:relative", "BAD:/x", "notes/a.md", "", "disk", ":/a", "a b:/c", "disk:/../x", "disk:/a\0"])
def test_what_is_not_a_reference(text: str) -> None:
    assert not is_ref(text)


@pytest.mark.covers("B-181", "R-006")
@pytest.mark.parametrize(
    ("ref", "complaint"),
    [
        ("a\0b", "control character"),
        ("disk:/a\0b", "control character"),
        ("../a", "may not go up"),
        ("/a/../../etc", "may not go up"),
        ("disk:/a/..", "may not go up"),
        ("agent:/a/../b", "may not go up"),
        ("x" * (MAX_PATH + 1), f"has {MAX_PATH + 1} characters, the limit is {MAX_PATH}"),
        ("disk:/" + "x" * 4097, "the limit is 2048"),
        ("d:/" + "x" * (MAX_PATH - 3), "the limit is 2048"),  # one more in its stored form
        ("half\ud800", "half a character"),
        (" \n ", "is empty"),
    ],
)
def test_paths_that_are_refused(ref: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint) as caught:
        parse_ref(ref)
    assert caught.value.hint


@pytest.mark.covers("B-181")
def test_names_are_in_nfc_and_the_longest_path_fits() -> None:
    assert parse_ref("disk:/e\u0301") == "disk://é"
    assert parse_ref("x" * MAX_PATH) == "x" * MAX_PATH
    assert parse_ref("disk:/a..b/...") == "disk://a..b/..."


@pytest.mark.covers("R-006")
@MANY
@given(ODD)
def test_any_text_is_a_stable_path_or_bad_input(text: str) -> None:
    try:
        path = parse_ref(text)
    except BadInput:
        return
    assert 0 < len(path) <= MAX_PATH
    assert parse_ref(path) == path == parse_ref(display(path))


@MANY
@given(ODD)
def test_no_text_breaks_what_asks_about_it(text: str) -> None:
    for ask in (is_ref, scheme_of, locator_of, display, is_file_backed, slug, route_url, folder_of):
        ask(text)
    try:
        parse_ref(route_url(text))
    except OwlError:
        pass


@pytest.mark.parametrize(
    ("path", "shown"),
    [("known://a", "known:/a"), ("https://x.org/a", "https://x.org/a"), ("notes/a", "notes/a"), ("BAD://a", "BAD://a")],
)
def test_what_cannot_be_written_as_a_drive_is_shown_as_it_is(path: str, shown: str) -> None:
    assert display(path) == shown


@pytest.mark.parametrize(("path", "is_file"), [("a/b", True), ("disk://a", True), ("url://https://x", False), ("known://a", False)])
def test_file_backed_paths(path: str, is_file: bool) -> None:
    assert is_file_backed(path) is is_file


@pytest.mark.parametrize(
    ("path", "folder", "is_in"),
    [
        ("agent://a/b", "agent://a", True),
        ("agent://a/b", "agent://a/", True),
        ("agent://a", "agent://a", True),
        ("agent://ab", "agent://a", False),
        ("agent://a", "agent://", True),
        ("memory://a", "agent://", False),
        ("/a", "/", True),
        ("a/b", "a", True),
    ],
)
def test_lying_in_a_folder_goes_by_whole_names(path: str, folder: str, is_in: bool) -> None:
    assert is_under(path, folder) is is_in


# -- slugs ------------------------------------------------------------------------------------------


@pytest.mark.covers("E-097", "E-098")
@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Hello World", "Hello_World"),
        ("a,b c,d", "a/b_c/d"),
        ("/x//y/", "x/y"),
        ("", ""),
        (",/,", ""),
        ("What's?", "What's%3F"),
        ("a://b", "a%3A/b"),
        ("../a/./b", "%2E%2E/a/%2E/b"),
        ("line\nline\0", "line%0Aline%00"),
        ("é", "%C3%A9"),
    ],
)
def test_slug(text: str, made: str) -> None:
    assert slug(text) == made


@pytest.mark.covers("E-097")
def test_slug_is_of_the_first_eighty_characters() -> None:
    assert slug("x" * 100) == "x" * 80


@pytest.mark.covers("E-099")
def test_same_slug_again_gets_a_number_and_no_text_the_time() -> None:
    taken: set[str] = set()
    for wanted in ("Hello_World", "Hello_World_2", "Hello_World_3"):
        assert unique_slug("Hello World", taken.__contains__) == wanted
        taken.add(wanted)
    now = unique_slug(" /, /".replace(" ", ""), taken.__contains__)
    assert now.isdecimal() and len(now) == 13
    assert unique_slug("", lambda s: s.isdecimal()).endswith("_2")


@MANY
@given(ODD)
def test_every_slug_makes_a_reference(text: str) -> None:
    made = unique_slug(text, lambda s: False)
    assert parse_ref(f"known://{made}") == f"known://{made}"


# -- URLs -------------------------------------------------------------------------------------------


@pytest.mark.covers("B-070", "E-190")
@pytest.mark.parametrize(
    ("url", "ref"),
    [
        ("https://docs.google.com/document/d/1aB_c-D/edit?usp=sharing", "google-docs:/1aB_c-D"),
        ("https://docs.google.com/spreadsheets/d/1aB/edit#gid=0", "google-docs:/1aB"),
        ("https://docs.google.com/presentation/d/1aB", "google-docs:/1aB"),
        ("https://docs.google.com/document/u/0/d/1aB/edit", "google-docs:/1aB"),
        ("https://docs.google.com/a/example.org/document/d/1aB/edit", "google-docs:/1aB"),
        ("https://docs.google.com/forms/d/e/1aB/viewform", "url:/https://docs.google.com/forms/d/e/1aB/viewform"),
        ("https://github.com/o/r", "github:/o/r"),
        ("https://www.github.com/o/r/", "github:/o/r"),
        ("https://github.com/o/r.git", "github:/o/r"),
        ("https://github.com/o/r/blob/main/docs/a.md#L3", "github:/o/r/docs/a.md"),
        ("https://github.com/o/r/tree/main/docs", "github:/o/r/docs"),
        ("https://github.com/o/r/tree/main", "github:/o/r"),
        ("https://github.com/o/r/raw/main/a.md", "github:/o/r/a.md"),
        ("https://github.com/o/r/raw/refs/heads/main/a.md", "github:/o/r/a.md"),
        ("https://raw.githubusercontent.com/o/r/main/docs/a.md", "github:/o/r/docs/a.md"),
        ("https://github.com/o/r/issues/7", "url:/https://github.com/o/r/issues/7"),
        ("https://github.com/settings/profile", "url:/https://github.com/settings/profile"),
        ("https://github.com/o", "url:/https://github.com/o"),
        ("https://x.org/a//b?q=1", "url:/https://x.org/a//b?q=1"),
        ("https://docs.google.com.evil.org/document/d/1", "url:/https://docs.google.com.evil.org/document/d/1"),
        ("http://[bad", "url:/http://[bad"),
        ("not a url", "url:/not a url"),
        ("", "url:/"),
    ],
)
def test_url_is_routed_to_its_drive(url: str, ref: str) -> None:
    assert route_url(url) == ref
    assert is_ref(ref)


@pytest.mark.covers("B-070")
def test_name_of_the_server_that_fetched_it_may_decide() -> None:
    assert route_url("https://git.example.org/o/r/blob/main/a.md", "GitHub-Enterprise") == "github:/o/r/a.md"
    assert route_url("https://x.org/document/d/1aB/edit", "google_docs") == "google-docs:/1aB"
    assert route_url("https://x.org/page", "google-docs") == "url:/https://x.org/page"
