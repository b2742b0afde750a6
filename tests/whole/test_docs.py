"""The reference documents are what the code says, and the README names only what exists."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import PAGES as WRITTEN

from appliance.cli import main
from appliance.console import help_pages
from appliance.reference import docs

ROOT = Path(__file__).parents[2]
PAGES = docs.pages(main.whole_parser())


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_page_in_docs_is_what_the_code_says(name: str) -> None:
    path = ROOT / "docs" / name
    assert path.exists() and path.read_text(encoding="utf-8") == PAGES[name], "run: make docs"


def test_the_makefile_asks_nothing_of_pip_that_debian_12_has_not() -> None:
    lines = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert lines and not [line for line in lines if " -C " in line], "pip 23.0 knows --config-settings only"


@pytest.mark.covers("A-285")
def test_what_is_left_of_a_danger_is_said() -> None:
    page = (ROOT / "docs/background/taint.md").read_text(encoding="utf-8").partition("## What is not promised")[2]
    assert "Data may be encoded into addresses" in page and "text of a skill may manipulate the assistant" in page


def test_the_pages_name_every_command_method_and_table() -> None:
    assert all(f"`owlbox {word}`" in PAGES["reference/commands.md"] for word in ("ask", "thread follow", "doctor", "search"))
    assert all(f"`{word}`" in PAGES["reference/methods.md"] for word in ("message.send", "thread.view", "generate", "plan"))
    assert "CREATE TABLE events" in PAGES["reference/tables.md"] and "`remember`" in PAGES["reference/tools.md"]


def test_the_page_of_methods_names_every_method_and_notification_of_the_core() -> None:
    brokers = ROOT / "appliance" / "secrets" / "vault_methods.py"  # what only the core asks the broker is not offered to programs
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "appliance").rglob("*.py") if path != brokers)
    methods = re.findall(r'^    @method\("([^"]+)"', code, re.MULTILINE)
    told = re.findall(r'\bnotify\("([^"]+)"', code)
    assert len(methods) > 100 and [name for name in methods if f"### `{name}`" not in PAGES["reference/methods.md"]] == []
    assert told and [name for name in told if f"| `{name}` |" not in PAGES["reference/methods.md"]] == []


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", *sorted(str(page.relative_to(ROOT)) for page in WRITTEN)])
def test_only_commands_that_exist_are_named(name: str) -> None:
    known = set(re.findall(r"^## `owlbox ([^`]+)`", PAGES["reference/commands.md"], re.MULTILINE))
    text = (ROOT / name).read_text(encoding="utf-8")
    quoted = re.findall(r"`owlbox ([^`]+)`", text) + re.findall(r"^(?:.*\| )?owlbox ([a-z].*)$", text, re.MULTILINE)
    for words in quoted:
        first, *rest = help_pages.meant([word for word in words.split() if word != "..."]) or ["ask"]
        assert first in known or first.startswith("-"), f"{name} names owlbox {words}"
        actions = {k.split()[1] for k in known if k.startswith(f"{first} ")}
        assert not actions or not rest or rest[0] in actions, f"{name} names owlbox {words}"


def test_every_target_the_readme_names_is_in_the_makefile() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"`make ([a-z]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(named) <= set(targets)


def test_the_index_names_every_document_and_no_page_links_to_nothing() -> None:
    pages = [*ROOT.glob("*.md"), *WRITTEN]
    links = {page: re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")) for page in pages}
    index = ROOT / "docs/README.md"
    named = {(index.parent / link).resolve() for link in links[index]}
    assert [page for page in WRITTEN if page not in named] == [index]
    assert [(page.name, link) for page, found in links.items() for link in found if not (page.parent / link).exists()] == []


def test_each_wall_of_the_threat_model_names_tests_that_exist() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    walls = re.findall(r"^\| (\d+) \|.*$", page, re.MULTILINE)
    named = {
        number: re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", line)
        for number, line in re.findall(r"^\| (\d+) \|(.*)$", page, re.MULTILINE)
    }
    assert walls == [str(number + 1) for number in range(len(walls))] and all(named.values())
    for path, test in (one for found in named.values() for one in found):
        assert f"def {test or 'test_'}" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"
    numbers = re.findall(r"\| ([\d, ]+) \|$", page.partition("## The walls")[0], re.MULTILINE)
    assert {one for some in numbers for one in some.split(", ")} <= set(walls)


def test_each_guide_begins_with_the_three_commands_that_most_people_want() -> None:
    for page in sorted((ROOT / "docs/guides").glob("*.md")):
        text = page.read_text(encoding="utf-8").partition("\n## ")[0]
        first = re.match(r"# [^\n]*\n\n(?:!\[[^\n]*\n\n)?```\n(.*?)```", text, re.DOTALL)
        assert first and len(first.group(1).splitlines()) >= 3, page.name


def wordless(made: argparse.ArgumentParser) -> Iterator[str]:
    """Commands and arguments of which --help would say nothing."""
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from (f"{made.prog} {one.dest}" for one in action._choices_actions if not one.help)
            for one in action.choices.values():
                yield from wordless(one)
        elif not action.help:
            yield f"{made.prog} {action.dest}"


def test_help_says_something_of_every_command_and_argument() -> None:
    assert list(wordless(main.whole_parser())) == []


FIRST_WEEK = "home note question reminder task worker model person channel thread skill backup".split()
LATER = re.compile(r"\b(entry|entries|packets?|pools?|tiers?|taint(?:ed)?|moments?)\b", re.IGNORECASE)
BEGINNINGS = "folder schedules queue people backup channels local-models skills memory talk tui trouble".split()


def test_what_a_person_reads_first_needs_the_nouns_of_the_first_week_alone() -> None:
    guides = [(ROOT / f"docs/guides/{name}.md").read_text(encoding="utf-8").partition("\n## ")[0] for name in BEGINNINGS]
    whole = [ROOT / "README.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]
    texts = [*guides, *(page.read_text(encoding="utf-8") for page in whole), help_pages.first_page()]
    for text in texts:
        read = re.sub(r"```.*?```|\]\([^)]*\)|`[^`]*`", "", text, flags=re.DOTALL)
        assert LATER.findall(read) == [], read[:200]
    listed = (ROOT / "docs/tutorials/first-steps.md").read_text(encoding="utf-8").rpartition("The words you have met")[2]
    assert len(FIRST_WEEK) == 12 and [noun for noun in FIRST_WEEK if noun not in listed] == []
