"""A text that goes in circles is noticed; ordinary lists, tables and code are not, and neither is a chorus."""

import pytest
from process import ROOT

from appliance.providers.sampling import FEWEST, PLAIN_FEWEST, WORDS, Repeats

TABLE = "| day | tea | cake |\n|---|---|---|\n" + "".join(f"| {n} | yes | no |\n" for n in range(300))
BOXES = "".join(f"- [ ] call number {n} and ask for the price\n" for n in range(200))
CODE = "".join(f"    if kind == {n}:\n        return make({n}, colour=None, size=None)\n" for n in range(150))
MATRIX = "[\n" + "  [0, 0, 0, 0, 0, 0, 0, 0],\n" * 8 + "]\n"
RULER = "=" * 120 + "\nTitle\n" + "-" * 120 + "\n"
SONG = "Row, row, row your boat, gently down the stream.\nMerrily, merrily, merrily, merrily, life is but a dream.\n" * 3


def told_at(text: str, size: int = 5) -> int | None:
    """Where a text that comes in small pieces is said to circle."""
    repeats = Repeats()
    return next((at + size for at in range(0, len(text), size) if repeats.feed(text[at : at + size])), None)


@pytest.mark.parametrize("text", [TABLE, BOXES, CODE, MATRIX, RULER, SONG, "ha " * 40, "no! " * 20, ""])
def test_what_people_ask_for_is_never_ended(text: str) -> None:
    assert told_at(text) is None


@pytest.mark.parametrize("suffix", ["md", "py", "toml", "service"])
def test_nothing_that_was_written_in_this_repository_is_ended(suffix: str) -> None:
    folders = ("appliance", "docs", "systemd", "skills", ".")
    paths = [p for f in folders for p in (ROOT / f).glob(f"*.{suffix}" if f == "." else f"**/*.{suffix}")]
    assert paths or suffix == "toml"
    found = {p.name: told_at(p.read_text(), 400) for p in paths}
    assert {name: at for name, at in found.items() if at is not None} == {}


@pytest.mark.parametrize(
    "block",
    [
        "The owl sits in the tree. ",
        "yes ",
        "- buy milk\n",
        "I am sorry, but I cannot help you with that, because I am a small model and know nothing of gardens. "
        "Please ask somebody who has one, or look into a book about them. ",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 300])
def test_the_same_over_and_over_is_noticed_soon(block: str, size: int) -> None:
    begun = "Here is what I know about it, in my own words. "
    at = told_at(begun + block * 400, size)
    assert at is not None and at < len(begun) + max(15 * FEWEST, 8 * len(block)) + size
    assert len(WORDS.findall((begun + block * 400)[:at])) > FEWEST


def test_rows_of_numbers_may_be_longer() -> None:
    at = told_at("0, " * 2000)
    assert at is not None and at > PLAIN_FEWEST
