"""Every `owlbox` line in a code block of the documents is a command line that exists, and is run where that does no harm.

A block marked `console` is run with its results by `test_docs_console`. Of any other block, fenced or indented, each line that
calls `owlbox` is read with the real parser, then typed into a home with a running core and a scripted model, and must end with
exit code 0. What is not run stands in `NOT_RUN` with its reason. A line with a placeholder such as ID is read, and not run. What a
command says is compared in `console` blocks only; results elsewhere stand in `NOT_COMPARED` with their reason.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import doc_pages
import pytest
from process import ROOT, Box, a_shared_box  # noqa: F401

from appliance.cli import main

PAGES = (ROOT / "README.md", *doc_pages.PAGES)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
SHOWN = re.compile(r"^\$ owlbox .*\n(?!\$ )", re.MULTILINE)
CALL = re.compile(r"^(?:\$ )?(?:[^#`]*\| *)?(?:sudo (?:-u owlbox )?)?owlbox( .*)?$")
PLACEHOLDER = re.compile(r"^(?:[A-Z]{2,}|64a55013)$")
# The beginning of a command line, and why it is not run here.
NOT_RUN = {
    "owlbox": "opens the full screen",
    "owlbox init": "there is a home already",
    "owlbox chat": "talks until its end of input",
    "owlbox logs --level": "goes on until it is stopped",
    "owlbox status --watch": "goes on until it is stopped",
    "owlbox task list --watch": "goes on until it is stopped",
    "owlbox people add-key": "wants the key of another computer",
    "owlbox people remove-key": "wants the key of another computer",
    "owlbox model": "downloads, removes or measures a model",
    "owlbox mcp add": "wants a program or a server that is not here",
    "owlbox mcp exec": "wants a server that is not here",
    "owlbox context add https://": "wants the network",
    "owlbox channel subscribe ntfy": "tells a server that is not here",
    "owlbox secret set": "asks for a secret on a terminal",
    "owlbox secret rotate --to": "asks for a passphrase, or wants systemd",
    "owlbox secret show": "shows a secret to a terminal only",
    **dict.fromkeys([f"owlbox channel enable {name}" for name in ("weather", "feeds", "exchange_rates")], "asks the internet"),
    "owlbox config set channels.home_assistant.token": "names a secret that is not here",
    "owlbox channel test home_assistant": "wants a server that is not here",
    "owlbox channel enable home_assistant": "wants a server that is not here",
    "owlbox worker run": "waits for tasks",
    "owlbox worker start": "leaves a process behind",
    "owlbox restore": "wants that no core runs",
    "owlbox backup --to": "names a disk that is not here",
    "owlbox config set backups.": "names a disk, a server or a file that is not here",
    "owlbox backup --encrypt": "asks for a passphrase, or names a disk that is not here",
    "owlbox update": "wants the key of who makes updates",
    "owlbox nuke threads --yes": "wants that no core runs",
    "owlbox heartbeat --now": "asks a model about everything",
}
# Pages that show results outside of `console` blocks, and why.
NOT_COMPARED = {"mcp.md": "the server is not here", "taint.md": "the page is on the web"}
# What a command ends with that is not 0, as its page says.
EXITS: dict[str, int | tuple[int, ...]] = {
    "owlbox policy test sudo ls": 4,
    "owlbox nuke threads": 1,
    "owlbox channel unsubscribe 3f2a": 3,
    "owlbox entry trust box://notes/garage.md 3f2a9c0d1e4b5a67": 1,  # the hash of another text
    "owlbox doctor": (0, 1),  # a key that another page has set may wait for a restart
} | {f"owlbox channel {action} {name}": 2 for action in ("test", "enable") for name in ("email", "matrix", "slack")}  # without keys


def lines_of(text: str) -> Iterator[str]:
    """Lines of code blocks that are not run by `test_docs_console`."""
    for found in FENCED.finditer(text):
        if found.group(1) == "":
            yield from re.sub(r"\\\n *", "", found.group(2)).splitlines()
    for found in INDENTED.finditer(FENCED.sub("", text)):
        yield from (line[4:] for line in found.group().splitlines())


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where each command line of the documents stands, and its words."""
    for page in PAGES:
        for line in lines_of(page.read_text(encoding="utf-8")):
            if called := CALL.match(line):
                text = re.split(r"  +|(?:^|(?<= ))#", (called.group(1) or "").strip())[0]
                yield page.name, ["owlbox", *shlex.split(re.sub(r"[\[\]]", "", text))]


COMMANDS = list(commands())


def reason(words: list[str]) -> str:
    """Why a command is not run; "" for one that is."""
    line = " ".join(words)
    return next((why for start, why in NOT_RUN.items() if line == start or start != "owlbox" and line.startswith(start)), "")


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[f"{page}:{' '.join(words)}" for page, words in COMMANDS])
def test_every_command_line_in_a_document_can_be_read(page: str, words: list[str]) -> None:
    given = ["1" if PLACEHOLDER.match(word) else word for word in words[1:]]
    main.parser(given).parse_args(given)


@pytest.fixture(name="served", scope="module")
def a_served_box(shared_box: Box) -> Box:
    """A home with a note, a secret and a core."""
    (shared_box.home.box / "notes").mkdir(exist_ok=True)
    (shared_box.home.box / "notes/garage.md").write_text("# Garage\n\nAda keeps the code.\n", encoding="utf-8")
    shared_box.serve().call("session.create", channel="local", sender="ann")
    folder = Path(shared_box.environ["HOME"])
    for name in ("notes", "Documents"):
        (folder / name).mkdir()
        (folder / name / "roof.md").write_text("The roof leaks.\n", encoding="utf-8")
    for words in (
        ("entry", "set", "agent:/house/pump", "The pump is old."),
        ("secret", "set", "llm/openai"),
    ):
        done = shared_box.run(*words, text="sk-example")
        assert done.returncode == 0, done.stderr
    return shared_box


@pytest.mark.parametrize("name", sorted({page for page, _ in COMMANDS}))
def test_what_a_document_tells_to_type_succeeds(served: Box, name: str) -> None:
    failed = []
    for page, words in COMMANDS:
        if page == name and not reason(words) and not any(map(PLACEHOLDER.match, words)):
            done = served.run(*(word.replace("~", served.environ["HOME"]) for word in words[1:]))
            expected = EXITS.get(" ".join(words), 0)
            if done.returncode not in (expected if isinstance(expected, tuple) else (expected,)):
                failed.append((words, done.returncode, done.stdout[-300:], done.stderr[-300:]))
    assert failed == []


def test_every_reason_is_needed() -> None:
    lines = [" ".join(words) for _, words in COMMANDS]
    assert [start for start in NOT_RUN if not any(line == start or line.startswith(f"{start}") for line in lines)] == []


def test_results_are_shown_in_blocks_that_are_compared() -> None:
    shown = {
        page.name
        for page in PAGES
        for kind, text in FENCED.findall(page.read_text(encoding="utf-8"))
        if kind == "" and SHOWN.search(text)
    }
    assert shown == set(NOT_COMPARED), "mark the block as console, or say in NOT_COMPARED why it cannot be run"
