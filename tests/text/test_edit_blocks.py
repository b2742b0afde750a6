"""Which bodies are edits, which are just text, and what the edits are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.clock import monotonic_s
from appliance.errors import BadInput, OwlError, TooLarge
from appliance.text.edit_blocks import Operation, Sed, parse_markers, parse_sed

WHOLE = "replace"


def plain(body: str) -> list[Operation]:
    return [Operation(WHOLE, body)]


@pytest.mark.covers("R-121", "R-122", "R-124", "E-058", "E-060")
@pytest.mark.parametrize(
    "form", ["<<{0} hello {0}", "<<{0}\nhello\n{0}", "<<{0}\r\nhello\r\n{0}\n", " \n<<{0}  \nhello\n  {0}", "<p><<{0}\nhello {0}"]
)
@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("NEW", "new"),
        ("REPLACE", WHOLE),
        ("PREPEND", "prepend"),
        ("APPEND", "append"),
        ("DELETE", "delete"),
        ("NEW1", "new"),
        ("APPEND_the_rest", "append"),
        ("DELETEx", "delete"),
        ("REPLACE2", WHOLE),
    ],
)
def test_the_keyword_selects_what_is_done(form: str, word: str, kind: str) -> None:
    body = form.format(word)
    assert [(o.kind, o.text, o.search) for o in parse_markers(body)] == [(kind, "hello", None)]


@pytest.mark.covers("R-124", "E-058")
@pytest.mark.parametrize("word", ["EOF", "DOC1", "X", "Text_2", "Search"])
@pytest.mark.parametrize("form", ["<<{0} text {0}", "\n<<{0}\ntext\n{0}\n"])
def test_any_other_word_is_an_envelope_of_the_whole_text(form: str, word: str) -> None:
    assert parse_markers(form.format(word)) == plain("text")


@pytest.mark.covers("R-122", "E-048")
@pytest.mark.parametrize(
    "body",
    [
        "<<SEARCH old SEARCH <<REPLACE new REPLACE",
        "<<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE",
        "<<SEARCH1\nold\nSEARCH1\n\n\n<<REPLACE_b\nnew\nREPLACE_b\n",
        "Here is the change:\n<<SEARCH old SEARCH\n<<REPLACE new REPLACE\nDone.",
        "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\r\nold\r\n=======\r\nnew\r\n>>>>>>> REPLACE\r\n",
    ],
)
def test_search_and_replace_are_one_edit(body: str) -> None:
    assert parse_markers(body) == [Operation("search_replace", "new", "old")]


@pytest.mark.covers("E-049")
def test_several_edits_come_in_order() -> None:
    block = "<<<<<<< SEARCH\nd\n=======\ne\n>>>>>>> REPLACE"
    body = f"<<DELETE a DELETE\n<<SEARCH b SEARCH <<REPLACE c REPLACE\n{block}\n<<APPEND f APPEND"
    assert parse_markers(body) == [
        Operation("delete", "a"),
        Operation("search_replace", "c", "b"),
        Operation("search_replace", "e", "d"),
        Operation("append", "f"),
    ]


@pytest.mark.covers("R-116", "E-051")
@pytest.mark.parametrize("length", [5, 6, 7, 9, 20])
def test_block_markers_may_have_any_length_from_five(length: int) -> None:
    body = f"{'<' * length} SEARCH\nold\n{'=' * length}\nnew\n{'>' * length} REPLACE"
    assert parse_markers(body) == [Operation("search_replace", "new", "old")]


@pytest.mark.covers("R-116", "E-051")
def test_shorter_runs_are_no_markers() -> None:
    body = "<<<< SEARCH\nold\n====\nnew\n>>>> REPLACE"
    assert parse_markers(body) == plain(body)


@pytest.mark.covers("R-116", "E-052")
@pytest.mark.parametrize("body", ["=======\nnew\n\nfile\n>>>>>>> REPLACE", "\n<<<<< REPLACE\nnew\n\nfile\n>>>>> REPLACE\n"])
def test_a_block_with_only_the_new_half_is_a_new_text(body: str) -> None:
    assert parse_markers(body) == [Operation("new", "new\n\nfile", None)]


@pytest.mark.parametrize(
    ("body", "search", "text"),
    [
        ("<<<<<<< SEARCH\n=======\nnew\n>>>>>>> REPLACE", "", "new"),
        ("<<<<<<< SEARCH\nold\n=======\n>>>>>>> REPLACE", "old", ""),
        ("<<<<<<< SEARCH\n  old\n\n=======\n\n  new\n>>>>>>> REPLACE", "  old\n", "\n  new"),
        ("<<<<<<< SEARCH\nTitle\n=====\n=======\nName\n====\n>>>>>>> REPLACE", "Title\n=====", "Name\n===="),
        ("<<SEARCH\n  old\n\nSEARCH\n<<REPLACE\n\n  new\nREPLACE", "  old\n", "\n  new"),
        ("<<SEARCH SEARCH <<REPLACE REPLACE", "", ""),
        ("<<SEARCH\nSEARCH\n<<REPLACE\nREPLACE", "", ""),
        ("<<SEARCH   old  SEARCH <<REPLACE x REPLACE", "  old ", "x"),
    ],
)
def test_text_between_markers_keeps_every_character_of_its_own(body: str, search: str, text: str) -> None:
    assert parse_markers(body) == [Operation("search_replace", text, search)]


@pytest.mark.covers("R-125", "E-056", "E-057")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<<SEARCH\nold\nSEARCH", "not followed by <<REPLACE"),
        ("<<SEARCH old SEARCH and then <<REPLACE new REPLACE", "not followed by <<REPLACE"),
        ("<<SEARCH old SEARCH <<APPEND new APPEND", "not followed by <<REPLACE"),
        ("<<SEARCH old", "<<SEARCH is never closed"),
        ("<<REPLACE hello", "<<REPLACE is never closed"),
        ("<<REPLACE hello REPLACE1", "<<REPLACE is never closed"),
        ("<<REPLACE hello REPLACE.", "<<REPLACE is never closed"),
        ("<<REPLACE1 hello REPLACE", "<<REPLACE1 is never closed"),
        ("<<EOF hello", "<<EOF is never closed"),
        ("<<NEW", "<<NEW is never closed"),
        ("first <<APPEND\nmore", "<<APPEND is never closed"),
        ("<<DELETE DELETE", "names nothing"),
        ("<<<<<<< SEARCH\nold\n=======\nnew\n", "never closed"),
        ("<<<<<<< SEARCH\nold\n>>>>>>> REPLACE", "no line ======="),
        ("<<<<<<< SEARCH\na\n=======\n<<<<<<< SEARCH\nb\n=======\nc\n>>>>>>> REPLACE", "never closed"),
        ("<<REPLACE please REPLACE the battery REPLACE", "inside of its own text"),
        ("<<EOF one EOF two EOF", "inside of its own text"),
        ("<<EOF one EOF two", "inside of its own text"),
    ],
)
def test_half_an_edit_is_an_error_that_says_what_is_missing(body: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        parse_markers(body)
    assert caught.value.hint


@pytest.mark.covers("R-127", "E-061", "R-121", "R-124")
@pytest.mark.parametrize(
    "body",
    [
        "vec<<SEARCH",
        "v.push(vec<<SEARCH it SEARCH)",
        "x<<REPLACE y REPLACE",
        "<<search a search",
        "<< SEARCH a SEARCH",
        "<<1A b 1A",
        "<<SEARCH> a",
        "<<'EOF'\na\nEOF",
        "<<<REPLACE a REPLACE",
        "#!/bin/sh\ncat <<EOF\nhello\nEOF\necho done\n",
        "std::cout <<Name <<End ;",
        "Title\n=======\n\ntext\n",
        "=====\nTitle\n=====\n",
        "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main\n",
        "just text\n",
        "",
        "   \n",
    ],
)
def test_what_only_looks_like_a_marker_is_text(body: str) -> None:
    assert parse_markers(body) == plain(body)


@pytest.mark.covers("R-126", "E-062")
@pytest.mark.parametrize(
    "body",
    [
        "<<:::known://a/b\ntext\n:::known://a/b",
        "<<:::notes.md <<SEARCH a SEARCH <<REPLACE b REPLACE :::notes.md",
        "see\n<<:::notes.md\n<<EOF\n:::notes.md\n",
        "<<APPEND x APPEND\n<<:::notes.md\ntext\n:::notes.md",
    ],
)
def test_a_packet_rendering_is_stored_as_it_is(body: str) -> None:
    assert parse_markers(body) == plain(body)


@pytest.mark.covers("R-126")
def test_a_rendering_inside_an_edit_is_text_of_the_edit() -> None:
    rendering = "<<:::a\ntext\n:::a"
    assert parse_markers(f"<<DELETE\n{rendering}\nDELETE") == [Operation("delete", rendering)]
    assert parse_markers("<<:::a is never closed <<APPEND b APPEND") == [Operation("append", "b")]


@pytest.mark.covers("R-128", "E-059")
@pytest.mark.parametrize("word", ["DOC1", "REPLACE1", "NEW_doc", "SEARCHES"])
def test_a_suffix_lets_the_text_hold_markers(word: str) -> None:
    inner = "The word SEARCH, and:\n<<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE\n<<<<<<< SEARCH"
    body = f"<<{word}\n{inner}\n{word}" + (" <<REPLACE x REPLACE" if word == "SEARCHES" else "")
    (operation,) = parse_markers(body)
    assert inner in (operation.text, operation.search)


@pytest.mark.covers("R-128")
def test_the_hint_of_an_unclosed_marker_tells_how_to_keep_it_as_text() -> None:
    text = "cout <<NEWLINE <<flush;"
    with pytest.raises(BadInput) as caught:
        parse_markers(text)
    assert "wrap all of it in <<DOC1 and DOC1" in caught.value.hint
    assert parse_markers(f"<<DOC1\n{text}\nDOC1") == plain(text)


def test_two_envelopes_are_two_edits() -> None:
    assert parse_markers("<<A one A\n<<B two B <<APPEND three APPEND") == [
        *plain("one"),
        *plain("two"),
        Operation("append", "three"),
    ]


def test_too_many_edits_are_refused() -> None:
    for body in ("<<APPEND a APPEND " * 201, "=====\na\n>>>>> REPLACE\n" * 201, "s/a/b/;" * 201):
        with pytest.raises(TooLarge, match="200"):
            parse_markers(body)


@given(st.text(" \n\tabc.,<>=:/", max_size=60))
@settings(max_examples=300, deadline=None)
def test_text_without_markers_is_kept_whole(body: str) -> None:
    assert parse_markers(body) == plain(body)


PIECES = ["<<", "SEARCH", "REPLACE", "EOF", "DELETE", " ", "\n", "<<<<<", "=====", ">>>>>", ":::a", "s/a/b/", ";", "word", "\r"]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=40))
@settings(max_examples=250, deadline=None)
def test_any_text_is_edits_or_an_error_of_ours_and_loses_nothing(body: str) -> None:
    try:
        found = parse_markers(body)
    except OwlError as error:
        assert error.hint
        return
    assert found and all(o.text in body and (o.search or "") in body for o in found)
    if not any(sign in body for sign in ("<<", "=====", "s")):
        assert found == plain(body)


@pytest.mark.parametrize(
    "body",
    [
        "x <<EOF a " * 25_000,
        " <<:::a b" * 25_000,
        " <<:::a :::b" * 25_000,
        "<<NEW " + " " * 250_000 + "NEW",
        "<<<<<< \t\t" * 25_000,
        "=====\n" * 50_000,
        "<<<<<<< SEARCH\n" + "=====\n" * 50_000 + ">>>>>>> REPLACE",
        "s/" + "\\a" * 125_000,
        "s/a/b" + ";s" * 125_000 + "/",
        "s/a/b" + "; " * 125_000 + "/",
    ],
)
def test_no_body_makes_reading_slow(body: str) -> None:
    begun = monotonic_s()
    try:
        parse_markers(body)
    except OwlError as error:
        assert error.message
    assert monotonic_s() - begun < 8  # a quadratic way takes longer


# -- sed --------------------------------------------------------------------------------------------


def sed(old: str, new: str, flags: str = "") -> Sed:
    return Sed(old, new, "g" in flags, "i" in flags, "r" in flags)


@pytest.mark.covers("R-133", "E-063", "E-064", "E-065", "E-067", "E-068")
@pytest.mark.parametrize(
    ("text", "old", "new", "flags"),
    [
        ("s/30/80/", "30", "80", ""),
        ("s/h/w/gi", "h", "w", "gi"),
        ("s/h/w/I", "h", "w", "i"),
        ("s/old/new", "old", "new", ""),
        ("s/old/", "old", "", ""),
        ("s/x;//", "x;", "", ""),
        ("s/a+/b/r", "a+", "b", "r"),
        ("s/a+/b/Eg", "a+", "b", "rg"),
        ("s|a|b|", "a", "b", ""),
        ("s#a/b#c#", "a/b", "c", ""),
        ("s,a,b,", "a", "b", ""),
        ("s;a;b;", "a", "b", ""),
        (r"s/a \/ 4/b \/ 4/", "a / 4", "b / 4", ""),
        (r"s|a\|b|c|", "a|b", "c", ""),
        (r"s/a\\/b/", r"a\\", "b", ""),
        ("s/7 - a =$/7 - 3 = 4/", "7 - a =$", "7 - 3 = 4", ""),
        ("  s/a b/c d/\n", "a b", "c d", ""),
        ("s/ä/ö/", "ä", "ö", ""),
    ],
)
def test_one_substitution_is_read(text: str, old: str, new: str, flags: str) -> None:
    assert parse_sed(text) == [sed(old, new, flags)]
    assert parse_markers(text) == [Operation("sed", text)]


@pytest.mark.covers("R-133", "E-066")
@pytest.mark.parametrize(
    "text",
    [
        "s/a/b/;s/c/d/",
        "s/a/b/ s/c/d/",
        "s/a/b/\ns/c/d/",
        "s/a/b/ ; \n s|c|d|;",
        "s/a/b;s/c/d",
        "s/a/b\ns/c/d",
        "s/a/b\r\ns/c/d\r\n",
        "s/a/b/;s/c/d",
        "s/a/b s/c/d/",
    ],
)
def test_a_chain_is_several_substitutions(text: str) -> None:
    assert parse_sed(text) == [sed("a", "b"), sed("c", "d")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "s/",
        "s/he is here",
        "s/a\nb/c/",
        "sad",
        "s a b ",
        "s1a1b1",
        r"s\a\b\ ".strip(),
        "s'il vous plaît, n'oubliez pas",
        "s, well, ok",
        "s/a/b/ and more words",
        "s/usr/lib/python3/site.py",
        "x s/a/b/",
        "1s/a/b/",
    ],
)
def test_what_is_not_all_sed_is_text(text: str) -> None:
    assert parse_sed(text) is None
    assert parse_markers(text) == plain(text)


@pytest.mark.parametrize(("text", "words"), [("s//x/", "nothing to search"), ("s/a/b/2", "flags 2"), ("s/a/b/gp", "flags p")])
def test_sed_that_we_cannot_do_is_an_error(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_sed(text)


@given(st.text("s/|;\\ab gi\n&1", max_size=30).map(lambda t: "s/" + t))
@settings(max_examples=250, deadline=None)
def test_any_text_is_sed_or_not_or_an_error_of_ours(text: str) -> None:
    try:
        found = parse_sed(text)
    except OwlError as error:
        assert error.hint
    else:
        assert found is None or all(s.pattern for s in found)


FIELDS = st.text("ab/|.$^ \\", min_size=1, max_size=6).filter(lambda t: not t.endswith("\\") and "\\\\" not in t and "\\/" not in t)


@given(FIELDS, FIELDS, st.sampled_from(["", "g", "gi"]))
@settings(max_examples=200, deadline=None)
def test_a_substitution_with_escaped_delimiters_reads_back(old: str, new: str, flags: str) -> None:
    text = "s/" + old.replace("/", "\\/") + "/" + new.replace("/", "\\/") + "/" + flags
    assert parse_sed(text) == [sed(old, new, flags)]
