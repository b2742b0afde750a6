"""One spelling of an address for people: `notes/x.md` in box/, `/srv/a.txt` on the disk, else `memory:/a`; typed as shown."""

import io

import pytest

from appliance.console.terminal import AnswerPrinter
from appliance.errors import OwlError
from appliance.text.references import as_typed, for_people, parse_ref

KNOWN = (
    ("box://notes/garden.md", "notes/garden.md"),
    ("disk://srv/a b.txt", "/srv/a b.txt"),
    ("memory://notes/tea", "memory:/notes/tea"),
    ("agent://plans/may.md", "agent:/plans/may.md"),
)


@pytest.mark.parametrize(("stored", "shown"), KNOWN)
def test_an_address_is_shown_in_one_spelling_that_is_understood_again(stored: str, shown: str) -> None:
    assert for_people(stored) == for_people(stored.replace("://", ":/")) == shown
    assert parse_ref(as_typed(shown)) == stored


def test_addresses_in_a_text_are_shown_so_and_nothing_else_is_changed() -> None:
    text = "It is with Ada. [box://notes/garage.md] See disk:/srv/b.txt, https://box.example/a, C:/box://, mailbox:/x and box: /."
    assert for_people(text) == text.replace("box://notes", "notes").replace("disk:/srv", "/srv")


@pytest.mark.parametrize("kept", ["", "box:/a.md", "memory:/a", "https://owls.example/a", "0192d1c6-0000-7000-8000-000000000001"])
def test_what_names_its_drive_or_an_item_is_taken_as_it_is(kept: str) -> None:
    assert as_typed(kept) == kept


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_an_address_that_comes_in_pieces_is_shown_whole(size: int) -> None:
    text, out = "Ask about a box. [box://notes/a.md]\nAnd a skill: [memory:/notes/b]", io.StringIO()
    answer = AnswerPrinter(out, None)
    for at in range(0, len(text), size):
        answer.listen("delta", {"text": text[at : at + size]})
    answer.end_line()
    assert out.getvalue() == "Ask about a box. [notes/a.md]\nAnd a skill: [memory:/notes/b]\n"


def test_a_path_that_goes_up_is_refused_as_before() -> None:
    with pytest.raises(OwlError):
        parse_ref(as_typed("../../etc/passwd"))
