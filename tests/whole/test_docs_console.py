"""What the documents show is what happens: every fenced block marked `console` is typed into a box of its own.

A line that begins with `$ ` is typed by a shell; the lines below it are what it says, on either stream, in this order. `…` stands
for whatever is different each time. A command that fails says so in its own words, so a block may show that too.
"""

import re
import shlex

import doc_pages
import pytest
from process import ROOT, Box, a_box, script  # noqa: F401

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = (ROOT / "README.md", *doc_pages.PAGES)
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


@pytest.mark.covers("R-031")
def test_a_run_is_cancelled_through_its_address_with_exit_code_0(box: Box) -> None:
    assert box.run("entry", "set", "run://errand", "look", "--attributes", '{"model": "local"}').returncode == 0
    done = box.run("entry", "set", "run://errand", "", "--attributes", '{"state": "cancelled"}')
    assert (done.returncode, done.stderr) == (0, "") and "run errand" in done.stdout


@pytest.mark.covers("R-068")
def test_a_status_that_no_update_has_is_answered_with_those_it_has(box: Box) -> None:
    script(
        box,
        """[[turns]]\ntext = '<update status="156">half way</update>'\n[[turns]]\ntext = '<update status="200">done</update>'\n""",
    )
    core = box.serve()
    done = core.call("run.act", prompt="go", model="local", wait=True)
    results = [event["content"] for event in box.events(done["run"]) if event["kind"] == "tool_result"]
    assert "'156', expected 102, 200, 204, 422" in results[0] and done["status"] == 200
