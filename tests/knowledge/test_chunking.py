"""Chunks: where a text is cut, that nothing is lost, and what a model may propose."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import DeadlineExceeded, Unavailable
from appliance.knowledge import chunking
from appliance.knowledge.chunking import Chunk

ANYTHING = settings(max_examples=200, deadline=None)
PIECES = st.sampled_from(
    [
        "# Owls\n",
        "## Food\n",
        "\n",
        "\n\n",
        "word ",
        "A sentence. ",
        "| a | b |\n",
        "```\ncode\n",
        "```\n",
        "Ada: hello\n",
        "Bob: so\n",
        "x" * 900,
        "---\n",
        "🦉",
        "é",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=60).map("".join))


def bodies(text: str, found: list[Chunk]) -> list[str]:
    return [text[chunk.start : chunk.stop] for chunk in found]


def cut(text: str) -> list[str]:
    return bodies(text, chunking.structured(text))


@ANYTHING
@given(text=TEXTS, is_prose=st.booleans())
def test_nothing_but_white_space_is_lost_and_nothing_is_there_twice(text: str, is_prose: bool) -> None:
    found = chunking.structured(text, is_prose=is_prose)
    assert "".join("".join(bodies(text, found)).split()) == "".join(text.split())
    assert all(a.stop <= b.start for a, b in zip(found, found[1:]))
    assert [chunk.seq for chunk in found] == list(range(len(found)))
    assert all(len(body) <= chunking.TARGET_CHARS * chunking.BLOCK * 2 for body in bodies(text, found))
    assert found == chunking.structured(text, is_prose=is_prose)


@pytest.mark.covers("B-089", "E-204")
@pytest.mark.parametrize("text", ["x" * 150, "# A\n\none\n\n# B\n\ntwo", "Ada: a\nBob: b\nAda: c\nBob: d", "a\n" * 99])
def test_a_short_text_is_one_chunk(text: str) -> None:
    assert chunking.structured(text) == [Chunk(0, 0, len(text))]


@pytest.mark.parametrize("text", ["", "   ", "\n\n\t\n", " " * 5000])
def test_a_blank_text_has_none(text: str) -> None:
    assert chunking.structured(text) == []


@pytest.mark.covers("B-089", "E-205")
@pytest.mark.parametrize("letter", ["x", "é", "🦉", "owl ", "An owl. "])
def test_one_endless_line_is_cut_into_pieces(letter: str) -> None:
    text = letter * (50_000 // len(letter))
    found = chunking.structured(text)
    assert all(0 < chunk.stop - chunk.start <= 15_000 for chunk in found) and len(found) > 3
    assert [chunk.seq for chunk in found] == list(range(len(found)))
    assert "".join(bodies(text, found)).replace(" ", "") == text.replace(" ", "")


def test_words_and_sentences_stay_whole_where_they_can() -> None:
    sentence = "The barn owl hunts at dusk over the meadow behind the house. "
    assert all(body.endswith(".") for body in cut(sentence * 100))
    assert all(set(body.split()) == {"owls"} for body in cut("owls " * 1000))


def test_headings_begin_chunks_and_are_known_by_their_path() -> None:
    text = "\n\n".join(["# Owls", "o" * 300, "## Food", "mice " * 60, "## Sleep", "day " * 80, "# Cats", "c" * 300])
    found = chunking.structured(text)
    assert [chunk.heading for chunk in found] == ["Owls", "Owls > Food", "Owls > Sleep", "Cats"]
    assert [body.split("\n")[0] for body in bodies(text, found)] == ["# Owls", "## Food", "## Sleep", "# Cats"]


def test_headings_that_are_underlined_count_too() -> None:
    text = "Owls\n====\n\n" + "o" * 300 + "\n\nFood\n----\n\n" + "mice " * 60
    assert [chunk.heading for chunk in chunking.structured(text)] == ["Owls", "Owls > Food"]


def test_a_heading_never_ends_a_chunk() -> None:
    text = "a" * 700 + "\n\n# Next\n\n" + "b" * 700
    assert [body[:6] for body in cut(text)] == ["aaaaaa", "# Next"]


def test_short_sections_share_a_chunk() -> None:
    assert len(cut("\n\n".join(f"# Day {n}\n\nrain" for n in range(40)))) < 8


@pytest.mark.parametrize("fence", ["```", "~~~~"])
def test_code_and_tables_stay_whole_where_they_fit(fence: str) -> None:
    code = f"{fence}python\n# not a heading\n\n" + "x = 1\n\n" * 200 + fence
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 150
    text = f"Before.\n\n{code}\n\nBetween.\n\n{table}\nAfter."
    found = cut(text)
    assert any(code in body for body in found) and any(table.strip() in body for body in found)
    assert all(chunk.heading == "" for chunk in chunking.structured(text))


def test_long_code_is_cut_between_its_lines() -> None:
    lines = [f"print({n}) # {'-' * (n % 60)}" for n in range(400)]
    found = cut("```\n" + "\n".join(lines) + "\n```")
    assert len(found) > 2 and {line for body in found for line in body.split("\n")} == {*lines, "```"}


def test_source_code_has_no_headings() -> None:
    text = "# a comment\n" + "x = 1\n" * 200
    assert {chunk.heading for chunk in chunking.structured(text, is_prose=False)} == {""}


CHAT = "# 3 May\n" + "\n".join(f"{'Ada' if n % 2 else 'Bob'}: message {n} about the garden" for n in range(12)) + "\n"


def test_a_conversation_is_cut_into_messages() -> None:
    found = chunking.structured(CHAT)
    assert len(found) == 12 and [chunk.who for chunk in found[:3]] == ["Bob", "Ada", "Bob"]
    assert {chunk.heading for chunk in found} == {"3 May"}
    assert bodies(CHAT, found)[0] == "# 3 May\nBob: message 0 about the garden"


def test_a_message_of_several_lines_is_one() -> None:
    text = CHAT + "Ada: and then\nit rained\n\nfor a week\nBob: oh"
    assert cut(text)[-2:] == ["Ada: and then\nit rained\n\nfor a week", "Bob: oh"]


@pytest.mark.parametrize("line", ["**Ada**: hi there", "- Ada: hi there", "Ada (3 May): hi there", "**Ada (noon):** hi there"])
def test_messages_may_be_written_in_several_ways(line: str) -> None:
    text = "\n".join(f"{line if n % 2 else line.replace('Ada', 'Bob')} {n}" for n in range(20))
    assert {chunk.who for chunk in chunking.structured(text)} == {"Ada", "Bob"}


@pytest.mark.parametrize(
    "text",
    [
        "Name: Ada\nPhone: 12\nStreet: Elm\nTown: Bree\nMail: a@b\n" * 1 + "x" * 300,
        "Note: it rains. " * 40,
        "There was: a list\n" * 3 + "And prose without any speaker at all, on and on.\n" * 20,
    ],
)
def test_other_texts_with_colons_are_no_conversation(text: str) -> None:
    assert {chunk.who for chunk in chunking.structured(text)} == {""}


@pytest.mark.covers("B-089", "E-207")
def test_what_is_near_a_chunk_are_two_lines_of_its_neighbours() -> None:
    text = "\n".join(f"line {n} {'.' * 40}" for n in range(60))
    found = chunking.structured(text)
    lines = [body.split("\n") for body in bodies(text, found)]
    assert chunking.before(text, found, 0) == "" and chunking.after(text, found, len(found) - 1) == ""
    assert chunking.before(text, found, 1) == "\n".join(lines[0][-2:])
    assert chunking.after(text, found, 0) == "\n".join(lines[1][:2])
    endless = "x" * 9000
    assert len(chunking.before(endless, chunking.structured(endless), 1)) == chunking.NEAR_CHARS


# -- by a model -------------------------------------------------------------------------------------

LONG = "\n".join(f"line {n} about owls and their food" for n in range(1, 41))


@pytest.mark.covers("B-089")
def test_a_model_may_propose_the_lines() -> None:
    asked: list[str] = []

    def propose(numbered: str) -> list[tuple[int, int]]:
        asked.append(numbered)
        return [(1, 10), (12, 40)]

    found, how = chunking.by_model(LONG, propose)
    assert how == "model" and asked[0].startswith("1: line 1 about")
    assert [body.split(" about")[0] for body in bodies(LONG, found)] == ["line 1", "line 12"]
    assert "line 11" in bodies(LONG, found)[0]


@pytest.mark.covers("B-089", "E-204")
def test_a_model_is_not_asked_about_a_short_text() -> None:
    def propose(numbered: str) -> list[tuple[int, int]]:
        raise AssertionError(numbered)

    assert chunking.by_model("x" * 150, propose)[0] == [Chunk(0, 0, 150)]


@pytest.mark.covers("B-089", "E-206")
@pytest.mark.parametrize("ranges", [[], [(0, 5)], [(5, 4)], [(1, 41)], [(1, 20), (15, 40)], [(20, 30), (1, 5)]])
def test_nonsense_of_a_model_falls_back_to_the_structure(ranges: list[tuple[int, int]]) -> None:
    found, how = chunking.by_model(LONG, lambda numbered: ranges)
    assert found == chunking.structured(LONG) and how not in ("", "model")


@pytest.mark.covers("B-089", "E-206")
def test_a_model_that_is_late_falls_back_and_one_that_is_missing_is_an_error() -> None:
    def late(numbered: str) -> list[tuple[int, int]]:
        raise DeadlineExceeded("ten seconds")

    def missing(numbered: str) -> list[tuple[int, int]]:
        raise Unavailable("no model", hint="owlbox model add smollm2")

    assert chunking.by_model(LONG, late) == (chunking.structured(LONG), "ten seconds")
    with pytest.raises(Unavailable, match="no model"):
        chunking.by_model(LONG, missing)


@pytest.mark.covers("B-089", "E-205")
def test_too_long_a_proposal_is_cut() -> None:
    text = "\n".join("owls and more owls" for _ in range(2000))
    found, how = chunking.by_model(text, lambda numbered: [(1, 1000), (1001, 2000)])
    assert how == "model" and max(chunk.stop - chunk.start for chunk in found) <= 15_000
    assert "".join("".join(bodies(text, found)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "# a" + " " * 20_000 + "x\n" + "y" * 300,
        "# " + "a # " * 20_000 + "x\n" + "y" * 300,
        "# owls\n" * 20_000,
        "owls\n====\n" * 20_000,
        "```\n" * 50_000,
        "~~~x\n```y\n" * 20_000,
        "| owl " * 50_000,
        " " * 300_000,
        "x" * 300_000,
    ],
    ids=["spaces", "marks", "headings", "underlined", "fences", "two fences", "table", "blank", "one line"],
)
def test_strange_texts_are_cut_like_others(text: str) -> None:
    found = chunking.structured(text)  # each once took minutes, or came out in one piece
    assert all(chunk.stop - chunk.start <= 2 * chunking.TARGET_CHARS * chunking.BLOCK for chunk in found)
    assert "".join("".join(text[c.start : c.stop].split()) for c in found) == "".join(text.split())


@pytest.mark.parametrize(
    ("line", "title"),
    [("# Owls", "Owls"), ("## Owls ##", "Owls"), ("#\tOwls  # ", "Owls"), ("# C#", "C"), ("# #1 owl", "#1 owl"), ("# #", "")],
)
def test_a_heading_is_read_without_its_marks(line: str, title: str) -> None:
    assert chunking.structured(f"{line}\n{'y ' * 150}")[0].heading == title


def test_a_heading_stays_with_a_long_block_below_it() -> None:
    code = "```\n" + "x = 1\n" * 330 + "```"
    text = f"{'y ' * 150}\n\n# Owls\n\n{code}"
    assert [text[c.start : c.stop].split("\n")[0][:6] for c in chunking.structured(text)] == ["y y y ", "# Owls"]
