"""The pictures in docs/captures/ show the screen as it is: those of the scripted model are played again, all are looked into."""

import re

import pytest
from captures import FOLDER, ROOT, scripted_captures, words_of

AGAIN = "make captures writes them anew"
SHOWN = sorted(path.stem for path in FOLDER.glob("*.svg"))


def known(text: str) -> str:
    """A picture without the names in it, which are made of all that it shows."""
    return re.sub(r"\bterminal-\d+", "terminal", text)


@pytest.mark.covers("B-172")
def test_scenes_played_again_give_the_same_files() -> None:
    taken = scripted_captures()
    assert set(taken) <= set(SHOWN), AGAIN
    for name, (picture, text) in taken.items():
        assert known((FOLDER / f"{name}.txt").read_text(encoding="utf-8")) == known(text), AGAIN
        assert known((FOLDER / f"{name}.svg").read_text(encoding="utf-8")) == known(picture), AGAIN


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_says_what_its_text_says_and_fetches_nothing(name: str) -> None:
    picture = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert "".join(words_of(picture)) == "".join((FOLDER / f"{name}.txt").read_text(encoding="utf-8").split())
    assert not re.search(r"url\(|href|@import|<script", picture.replace("url(#", "")), "it needs nothing from elsewhere"


def test_every_picture_is_shown_and_the_readme_opens_with_one() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.match(r"# Owlbox\n\n!\[[^\]]+\]\(docs/captures/small-model\.svg\)\n", readme)
    pages = readme + "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert [name for name in SHOWN if f"captures/{name}.svg" not in pages] == []
