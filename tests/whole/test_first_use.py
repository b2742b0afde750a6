"""The first use as a person has it: a note is dropped in, ssh opens the screen or a browser the page, the small model answers."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import browser as browsers
import pytest
from browser import ENTER, browsing
from mail_servers import free_port
from model_fixtures import ONE_THREAD, model_file, model_home  # noqa: F401
from needs import needs
from process import Box, clean_environ, end, until
from sshd import looking, opened

from appliance.clock import sleep_s
from appliance.models import catalogue
from appliance.runtime.paths import Home
from appliance.upkeep import home_setup

pytestmark = [needs("sshd", "ssh", "ssh-keygen", "tmux"), pytest.mark.model]
NOTE = "# Garage\n\nThe garage door code is kept by Ada, the neighbour. She lives at number 12.\n"
SHORT = {  # how much it says is not the question here
    "OWLBOX__AGENTS__ASSISTANT__TEMPERATURE": "0",
    "OWLBOX__AGENTS__ASSISTANT__MAX_ITERATIONS": "4",
    "OWLBOX__MODELS__MAX_OUTPUT_TOKENS": "60",
}


@pytest.fixture(name="box")
def a_real_box(model_home: Home, tmp_path: Path, runtime: Path) -> Iterator[Box]:  # noqa: F811
    """A home as `make` leaves it, with the bundled model."""
    home = Home(tmp_path / "home")
    home_setup.init(home)
    file = catalogue.entries()["smollm2"].file
    (home.models / file).hardlink_to(model_home.models / file)
    made = Box(home, {**clean_environ(tmp_path, runtime), **SHORT, **ONE_THREAD})
    yield made
    for child in made.children:
        end(child)


def test_a_note_is_talked_about_over_ssh_and_a_killed_core_is_survived(box: Box, runtime: Path) -> None:
    core = box.serve()
    (box.home.box / "notes/garage.md").write_text(NOTE)
    until(lambda: "notes/garage.md" in box.run("search", "garage").stdout, "the note is found")
    with opened(box, runtime) as door, looking(door) as screen:
        until(lambda: "Which language would you like to use" in screen.text(), "the first questions are asked")
        screen.type("/skip")
        until(lambda: "no questions" in screen.text(), "they end")
        screen.type("who keeps the garage door code?")
        until(lambda: len(messages(box)) >= 2, "the answer is stored", 120)
        until(lambda: set(words(messages(box)[-1])[-8:]) <= set(words(screen.text())), "what is stored is shown")
        before = len(messages(box))
        screen.tmux("send-keys", "-l", "where does she live")
        until(lambda: "where does she live" in screen.text(), "what is typed is shown")
        core.kill()
        until(lambda: "core away" in screen.text(), "the loss is shown")
        assert "where does she live" in screen.text()
        box.serve()
        until(lambda: "core away" not in screen.text() and "●" in screen.text(), "it has found the new core")
        assert "where does she live" in screen.text()
        screen.type("")
        until(lambda: len(messages(box)) >= before + 2, "the next answer comes", 120)
        assert len(screen.text().splitlines()) <= 24
    newest = box.json("thread", "list", "--limit", "1")[0]["id"]
    offered = [event["input"]["relevant"] for event in box.events(newest) if "relevant" in (event["input"] or {})]
    assert messages(box)[0] == "who keeps the garage door code?"
    assert "[box://notes/garage.md]" in offered[0] and "kept by Ada" in offered[0]  # whether it says so is the model's affair


def messages(box: Box) -> list[str]:
    """What was said in the newest thread, once nobody is answering in it; how its loop ended is the model's affair."""
    (newest,) = box.json("thread", "list", "--limit", "1") or [{"id": "", "status": 0}]
    said = [e["content"] for e in box.events(newest["id"]) if e["kind"] == "message"] if newest["id"] else []
    return said if newest["status"] >= 200 else []


def words(text: str) -> list[str]:
    """The words of a text without the marks and lines that a screen may change."""
    return re.findall(r"[A-Za-z]{2,}", text)


@pytest.mark.covers("A-179")
@pytest.mark.skipif(not browsers.CHROMIUM or not browsers.DRIVER, reason="no chromium with chromedriver here")
def test_the_answer_of_the_bundled_model_streams_into_the_page(box: Box) -> None:
    port = free_port()
    box.environ |= {"OWLBOX__CHANNELS__WEB__ENABLED": "true", "OWLBOX__CHANNELS__WEB__PORT": str(port)}
    core = box.serve()
    until(lambda: is_listening(port), "the page is served")
    with browsing() as browser:
        browser.open(core.call("login.invite", person="ann")["address"])
        browser.shows("New conversation")
        browser.type("#text", "Write two sentences about owls." + ENTER)
        newest = "return [...document.querySelectorAll('#log .assistant')].at(-1)?.textContent ?? ''"
        seen: list[str] = []
        until(lambda: bool(core.call("thread.list", limit=1)), "the message has come")
        while not seen or core.call("thread.list", limit=1)[0]["status"] in (100, 102):
            text = str(browser.run(newest))
            seen += [text] if text and text not in seen else []
            sleep_s(0.05)
        assert len(seen) > 3 and len(seen[-1]) > 40, f"it comes in pieces: {seen}"
        assert browser.problems() == []


def is_listening(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
