"""The first use as a person has it: a note is dropped in, ssh opens the screen, the small model answers from it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home  # noqa: F401
from needs import needs
from process import Box, clean_environ, end, until
from sshd import Screen, looking, opened

from appliance import catalogue, onboard
from appliance.places import Home

pytestmark = [needs("sshd", "ssh", "ssh-keygen", "tmux"), pytest.mark.model]
NOTE = "# Garage\n\nThe garage door code is kept by Ada, the neighbour. She lives at number 12.\n"
PICTURES = os.environ.get("OWLBOX_SCREENS_TO")  # where to write what the screen showed, for docs/ssh.md


@pytest.fixture(name="box")
def a_real_box(model_home: Home, tmp_path: Path, runtime: Path) -> Iterator[Box]:  # noqa: F811
    """A home as `make` leaves it, with the bundled model."""
    home = Home(tmp_path / "home")
    onboard.init(home)
    file = catalogue.entries()["smollm2"].file
    (home.models / file).hardlink_to(model_home.models / file)
    made = Box(home, {**clean_environ(tmp_path, runtime), "OWLBOX__MODELS__TEMPERATURE": "0"})
    yield made
    for child in made.children:
        end(child)


def test_a_note_is_talked_about_over_ssh_and_a_killed_core_is_survived(box: Box, runtime: Path) -> None:
    core = box.serve()
    (box.home.box / "notes/garage.md").write_text(NOTE)
    until(lambda: "box://notes/garage.md" in box.run("search", "garage").stdout, "the note is found")
    with opened(box, runtime) as door, looking(door) as screen:
        until(lambda: "connected" in screen.text() or "SmolLM2" in screen.text(), "the screen is there")
        screen.type("who keeps the garage door code?")
        until(lambda: "[box://notes/garage.md]" in screen.text() and "Ada" in screen.text(), "the answer names its note", 120)
        keep(screen, "answer")
        until(lambda: len(messages(box)) == 2, "the answer is stored")
        screen.tmux("send-keys", "-l", "where does she live")
        core.kill()
        until(lambda: "core away" in screen.text(), "the loss is shown")
        assert "where does she live" in screen.text()
        keep(screen, "lost")
        box.serve()
        until(lambda: "core away" not in screen.text() and "●" in screen.text(), "it has found the new core")
        assert "where does she live" in screen.text()
        screen.type("")
        until(lambda: len(messages(box)) == 4, "the next answer comes", 120)
        assert len(screen.text().splitlines()) <= 24
    said = messages(box)
    assert said[0] == "who keeps the garage door code?" and "[box://notes/garage.md]" in said[1]


def messages(box: Box) -> list[str]:
    """What was said in the newest thread, once nobody is answering in it."""
    newest = box.json("thread", "list", "--limit", "1")[0]
    said = [e["content"] for e in box.events(newest["id"]) if e["kind"] == "message"]
    return said if newest["status"] == 200 else []


def keep(screen: Screen, name: str) -> None:
    """Write the screen down when somebody wants to see it."""
    if PICTURES:
        (Path(PICTURES) / f"{name}.txt").write_text(screen.text())
