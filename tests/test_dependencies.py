"""The table of packages in CONTRIBUTING.md says of each one that is installed where it is used, and it is so; each has a reason."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = "requests textual apsw sqlite-vss llama-cpp-python tomli-w watchfiles systemd-python".split()
IMPORTED_AS = {
    "PyYAML": "yaml",
    "python-jsonpath": "jsonpath",
    "pyspellchecker": "spellchecker",
    "systemd-python": "systemd",
    "llama-cpp-python": "llama_cpp",
    "markdown-it-py": "markdown_it",
    "IMAPClient": "imapclient",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## The packages\n")[2].partition("\n## ")[0]
ROWS = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in SECTION.splitlines() if line.startswith("| ")]
TABLE = {package: (where, why) for package, where, why in ROWS if package != "package"}


def names(needs: Iterable[str]) -> list[str]:
    return [re.split(r"[\[<>=;~ ]", need)[0] for need in needs]


def test_the_table_has_every_package_that_a_box_may_have_and_no_other() -> None:
    extras = [need for extra, needs in PROJECT["optional-dependencies"].items() if extra != "dev" for need in needs]
    assert sorted(TABLE) == sorted({*names(PROJECT["dependencies"]), *names(extras)})
    assert list(TABLE)[: len(NAMED)] == NAMED and all(why for package, (_, why) in TABLE.items() if package not in NAMED)


@pytest.mark.parametrize("package", TABLE)
def test_a_package_is_used_where_the_table_says(package: str) -> None:
    module = IMPORTED_AS.get(package, package.lower().replace("-", "_"))
    places = re.findall(r"`([^`]+)`", TABLE[package][0])
    assert places
    for place in places:
        path = ROOT / "appliance" / place
        files = [path.with_suffix(".py")] if not path.is_dir() else sorted(path.rglob("*.py"))
        found = rf'^\s*(from|import) {module}\b|"{module}"'
        assert any(re.search(found, file.read_text(), re.MULTILINE) for file in files), f"{place} does not import {module}"


def test_each_line_of_a_dependency_says_what_it_is_for() -> None:
    lines = (ROOT / "pyproject.toml").read_text().partition("[project]")[2].splitlines()
    for before, line in zip(lines, lines[1:], strict=False):
        if re.match(r'\s+"[\w-]+(\[\w+\])?[<>=;]|\w+ = \["[\w-]+[<>=]', line):
            assert "#" in line or before.lstrip().startswith(("#", '"')), line
