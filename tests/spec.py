"""Which requirement has a test: ids defined in docs/requirements against the `covers` marks of tests.

Owns the reading of both, by text and syntax tree alone; nothing is imported or run, so a mark counts
even where its test is skipped, and whether the test would really fail is for a reviewer to judge.

    python tests/spec.py [--owner NAME] [--json] [--strict]

Leaves with 1 when the two contradict each other (see `Spec.problems`), with --strict also when an id
of the chosen owner has no test.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EDGES = "edge-cases"  # E ids have no owner: each goes with the capability it concerns

DEFINITION = re.compile(r"^- \*\*([A-Z]-\d{3})\*\*", re.MULTILINE)
OWNER_ROW = re.compile(r"^\| ([a-z]+) \| (\d+) \| (.+) \|$", re.MULTILINE)
RANGE = re.compile(r"([A-Z])-(\d{3})(?:\.\.(\d{3}))?")


@dataclass
class Spec:
    """What the documents ask for, what the tests claim, and where the two contradict each other."""

    owners: dict[str, list[str]] = field(default_factory=dict)
    covered: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def uncovered(self, owner: str) -> list[str]:
        """Ids of this owner that no test names, in order."""
        return [id_ for id_ in self.owners[owner] if id_ not in self.covered]

    def to_json(self, owners: list[str]) -> str:
        """The report as JSON, for these owners."""
        table = {
            name: {"total": len(self.owners[name]), "covered": len(self.owners[name]) - len(left), "uncovered": left}
            for name in owners
            for left in [self.uncovered(name)]
        }
        return json.dumps({"owners": table, "problems": self.problems}, indent=2)

    def to_text(self, owners: list[str]) -> str:
        """The report as lines, for these owners."""
        lines = []
        for name in owners:
            left, total = self.uncovered(name), len(self.owners[name])
            missing = f"  missing {shorten(left)}" if left else ""
            lines.append(f"{name:<11}{total - len(left):>4} of {total:<4}{missing}")
        total = len({id_ for ids in self.owners.values() for id_ in ids})
        lines.append(f"{'all':<11}{len(self.covered):>4} of {total}")
        return "\n".join([*lines, *(f"problem: {problem}" for problem in self.problems)])


def definitions(folder: Path) -> list[tuple[str, str]]:
    """Every (id, document) that the documents define, in reading order."""
    return [(id_, path.name) for path in sorted(folder.glob("*.md")) for id_ in DEFINITION.findall(path.read_text("utf-8"))]


def expand(text: str) -> list[str]:
    """The ids that a list such as "B-001..003, B-007; R-202" names, in its order."""
    found = []
    for letter, first, last in RANGE.findall(text):
        found += [f"{letter}-{number:03d}" for number in range(int(first), int(last or first) + 1)]
    return found


def shorten(ids: list[str]) -> str:
    """The opposite of `expand`: neighbours become ranges."""
    spans: list[list[str]] = []
    for id_ in ids:
        if spans and spans[-1][-1][0] == id_[0] and int(id_[2:]) == int(spans[-1][-1][2:]) + 1:
            spans[-1].append(id_)
        else:
            spans.append([id_])
    return ", ".join(span[0] if len(span) == 1 else f"{span[0]}..{span[-1][2:]}" for span in spans)


def marks(path: Path) -> Iterator[tuple[int, str | None]]:
    """Every (line, id) that `covers` marks of a test file name; id is None where it is not a literal."""
    called: list[ast.expr] = []
    named: list[ast.expr] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.expr) and is_covers(node):
            named.append(node)
        elif isinstance(node, ast.Call) and is_covers(node.func):
            called.append(node.func)
            if node.keywords or not node.args:
                yield node.lineno, None
            for argument in node.args:
                literal = argument.value if isinstance(argument, ast.Constant) else None
                yield argument.lineno, literal if isinstance(literal, str) else None
    for expression in named:
        if expression not in called:
            yield expression.lineno, None


def is_covers(node: ast.AST) -> bool:
    """True for the expression `....mark.covers`, whatever it is called on."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "covers"
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    )


def read(documents: Path, tests: Path) -> Spec:
    """Both sides, compared."""
    spec = Spec()
    defined = definitions(documents)
    known = {id_ for id_, _ in defined}
    for id_, count in Counter(id_ for id_, _ in defined).items():
        if count > 1:
            spec.problems.append(f"{id_} is defined {count} times: {', '.join(name for key, name in defined if key == id_)}")
    _read_owners(documents / "owners.md", known, spec)
    for path in sorted(tests.rglob("*.py")):
        for line, named in marks(path):
            where = f"{path.relative_to(tests.parent)}:{line}"
            if named is None:
                spec.problems.append(f"{where}: covers takes literal ids, at least one, called as pytest.mark.covers")
            elif named not in known:
                spec.problems.append(f"{where}: covers names {named}, which no document defines")
            else:
                spec.covered.setdefault(named, []).append(where)
    return spec


def _read_owners(path: Path, known: set[str], spec: Spec) -> None:
    owner_of: dict[str, str] = {}
    for name, count, text in OWNER_ROW.findall(path.read_text("utf-8")):
        ids = expand(text)
        spec.owners[name] = ids
        if len(ids) != int(count):
            spec.problems.append(f"{path.name}: {name} says {count} ids and lists {len(ids)}")
        for id_ in ids:
            if id_ not in known:
                spec.problems.append(f"{path.name}: {name} owns {id_}, which no document defines")
            if id_ in owner_of:
                spec.problems.append(f"{id_} is owned by {owner_of[id_]} and by {name}")
            owner_of[id_] = name
    edges = sorted(id_ for id_ in known if id_.startswith("E-"))
    spec.problems += [f"{id_} is owned by nobody" for id_ in sorted(known - set(owner_of) - set(edges))]
    if edges:
        spec.owners[EDGES] = edges


def main(arguments: list[str], documents: Path = ROOT / "docs/requirements", tests: Path = ROOT / "tests") -> int:
    """Print the report; 0 when nothing is wrong, 1 when something is, 2 for an owner that does not exist."""
    parser = argparse.ArgumentParser(prog="tests/spec.py", description="Requirement ids that tests cover, per owner.")
    parser.add_argument("--owner", help="only this capability")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--strict", action="store_true", help="an id without a test is a failure too")
    chosen = parser.parse_args(arguments)
    spec = read(documents, tests)
    if chosen.owner and chosen.owner not in spec.owners:
        print(f"no owner {chosen.owner}; there are {', '.join(spec.owners)}", file=sys.stderr)
        return 2
    owners = [chosen.owner] if chosen.owner else list(spec.owners)
    print(spec.to_json(owners) if chosen.json else spec.to_text(owners))
    is_incomplete = chosen.strict and any(spec.uncovered(name) for name in owners)
    return 1 if spec.problems or is_incomplete else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
