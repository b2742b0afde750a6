"""What the documents show is what happens: every fenced block marked `console` is typed into a box of its own.

A line that begins with `$ ` is typed by a shell; the lines below it are what it says, on either stream, in this order. `…` stands
for whatever is different each time. A command that fails says so in its own words, so a block may show that too.
"""

import re
import shlex

import pytest
from process import ROOT, Box, a_box  # noqa: F401

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCKS = [
    pytest.param(found.group(1), id=f"{page.name}:{page.read_text(encoding='utf-8')[: found.start()].count(chr(10)) + 2}")
    for page in PAGES
    for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
]


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Each command with the lines that are to follow it; a command goes on where its line ends within quotes."""
    found: list[tuple[str, list[str]]] = []
    is_open = False
    for line in block.splitlines():
        if is_open:
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif line:
            found[-1][1].append(line)
        if is_open or line.startswith("$ "):
            try:
                shlex.split(found[-1][0])
                is_open = False
            except ValueError:
                is_open = True
    return found


@pytest.mark.parametrize("block", BLOCKS)
def test_what_a_document_shows_is_what_happens(box: Box, block: str) -> None:
    for command, wanted in steps(block):
        words = shlex.split(command)
        assert words[0] == "owlbox", f"only owlbox is run here: {command}"
        done = box.run(*words[1:])
        told = [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines()]
        patterns = [".*".join(re.escape(part) for part in " ".join(line.split()).split("…")) for line in wanted]
        at = -1
        for pattern, line in zip(patterns, wanted, strict=True):
            later = [i for i, one in enumerate(told) if i > at and re.fullmatch(pattern, one)]
            assert later, f"{command}\nsays {told}\nand not {line!r}"
            at = later[0]


def test_the_documents_show_something() -> None:
    assert len(BLOCKS) >= 2
