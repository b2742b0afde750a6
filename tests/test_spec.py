"""The map from requirement to test is whole, and its reader notices every way it can be wrong."""

import functools
import json
from pathlib import Path

import pytest
import spec

GOOD = {
    "docs/one.md": "- **B-001** [must] First.\n- **B-002** [must] Second.\n",
    "docs/two.md": "- **R-001** [should] Third.\n",
    "docs/edge-cases.md": "- **E-001** a → b\n",
    "docs/owners.md": "| capability | ids | list |\n|---|---|---|\n| spine | 2 | B-001..002 |\n| use | 1 | R-001 |\n",
    "tests/test_it.py": '@pytest.mark.covers("B-001", "E-001")\ndef test_it(): ...\n',
}


@functools.cache
def read_here() -> spec.Spec:
    """Both sides of this repository."""
    return spec.read(spec.ROOT / "docs/requirements", spec.ROOT / "tests")


@pytest.fixture
def check(tmp_path: Path):
    """Writes the good tree with some files replaced; returns main's exit code for it."""

    def run(changes: dict[str, str], *arguments: str) -> int:
        for name, text in (GOOD | changes).items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return spec.main(list(arguments), tmp_path / "docs", tmp_path / "tests")

    return run


@pytest.mark.covers("R-207")
def test_this_repository_has_no_contradictions():
    assert read_here().problems == []


def test_every_requirement_is_read():
    owners = read_here().owners
    assert sum(len(ids) for name, ids in owners.items() if name != spec.EDGES) == 185 + 208 + 287 + 129
    assert len(owners["spine"]) == 62
    assert len(owners[spec.EDGES]) == 331


def test_good_tree_passes_and_lists_what_is_missing(check, capsys):
    assert check({}) == 0
    assert capsys.readouterr().out.splitlines() == [
        "spine         1 of 2     missing B-002",
        "use           0 of 1     missing R-001",
        "edge-cases    1 of 1   ",
        "all           2 of 4",
    ]


def _marked(arguments: str) -> dict[str, str]:
    return {"tests/test_it.py": f"@pytest.mark.covers({arguments})\ndef test_it(): ...\n"}


@pytest.mark.covers("R-207")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (_marked('"B-003"'), "test_it.py:1: covers names B-003, which no document defines"),
        (_marked('"b-001"'), "test_it.py:1: covers names b-001, which no document defines"),
        ({"docs/three.md": "- **B-001** [must] Again.\n"}, "B-001 is defined 2 times: one.md, three.md"),
        ({"docs/two.md": "- **R-001** x\n- **R-002** [must] New.\n"}, "R-002 is owned by nobody"),
        ({"docs/owners.md": "| spine | 2 | B-001..002 |\n| use | 2 | B-002; R-001 |\n"}, "B-002 is owned by spine and by use"),
        ({"docs/owners.md": "| spine | 3 | B-001..003 |\n| use | 1 | R-001 |\n"}, "spine owns B-003, which no document defines"),
        ({"docs/owners.md": "| spine | 9 | B-001..002 |\n| use | 1 | R-001 |\n"}, "spine says 9 ids and lists 2"),
        (_marked("ID"), "test_it.py:1: covers takes literal ids"),
        (_marked("*['B-001']"), "test_it.py:1: covers takes literal ids"),
        (_marked("id='B-001'"), "test_it.py:1: covers takes literal ids"),
        (_marked(""), "test_it.py:1: covers takes literal ids"),
        ({"tests/test_it.py": "mark = pytest.mark.covers\n"}, "test_it.py:1: covers takes literal ids"),
    ],
)
def test_contradiction_fails(check, capsys, changes, complaint):
    assert check(changes) == 1
    problems = [line for line in capsys.readouterr().out.splitlines() if line.startswith("problem: ")]
    assert any(complaint in problem for problem in problems), problems


@pytest.mark.covers("R-207")
def test_strict_fails_while_an_id_has_no_test(check):
    assert check({}, "--strict", "--owner", "spine") == 1
    assert check({}, "--strict", "--owner", spec.EDGES) == 0


def test_marks_inside_parameters_and_modules_count(check, capsys):
    text = 'pytestmark = pytest.mark.covers("B-001")\nX = [pytest.param(1, marks=pytest.mark.covers("B-002"))]\n'
    assert check({"tests/test_it.py": text}, "--strict", "--owner", "spine") == 0


def test_json_report_names_the_owner_asked_for(check, capsys):
    assert check({}, "--json", "--owner", "spine") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {"owners": {"spine": {"total": 2, "covered": 1, "uncovered": ["B-002"]}}, "problems": []}


def test_unknown_owner_is_bad_usage(check, capsys):
    assert check({}, "--owner", "spline") == 2
    assert "no owner spline; there are spine, use" in capsys.readouterr().err


def test_ranges_survive_the_round_trip():
    ids = spec.expand("B-001..003, B-007; R-202")
    assert ids == ["B-001", "B-002", "B-003", "B-007", "R-202"]
    assert spec.shorten(ids) == "B-001..003, B-007, R-202"
