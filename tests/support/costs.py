"""CPU seconds of every test, with those of all processes it started: what `suite.py --costs` writes down.

A test file's process adopts what its tests leave behind, and has a nest of its own, so that all of it is found below it in
/proc. What is shared belongs to the test that asked first. A process that outlives its test goes on costing others.
What the nest itself uses is left out: in a run of everything all files share one.
"""

import contextlib
import ctypes
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import quick

PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")
DEAREST_FILES, DEAREST_TESTS = 30, 60


class Costs:
    """A plugin of pytest that writes down what each test of one file costs, a line each: seconds, a tab, the test."""

    def __init__(self, path: Path) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        quick.nest.cache_clear()
        self._path, self._left_out_s = path, 0.0
        self._before_s = self._spent_s()

    def pytest_collection_finish(self) -> None:
        self._write("(collecting)")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid.partition("::")[2])

    def pytest_unconfigure(self) -> None:
        if nest := _nest():
            own, _ = _used_s(nest)
            quick.nest().close()
            quick.nest.cache_clear()
            self._left_out_s = own
        self._write("(afterwards)")

    def _write(self, name: str) -> None:
        now_s = self._spent_s()
        with self._path.open("a") as file:
            file.write(f"{now_s - self._before_s:.2f}\t{name}\n")
        self._before_s = self._spent_s()  # looking costs, too

    def _spent_s(self) -> float:
        """What this process and its descendants have used, with those that ended and were waited for; not the nest itself."""
        nest = _nest()
        used = ((pid, *_used_s(pid)) for pid in _tree(os.getpid()))
        return sum(ended + (own if pid != nest else 0) for pid, own, ended in used) - self._left_out_s


def _nest() -> int:
    """The process that bears others, or 0."""
    return quick.nest().pid if quick.nest.cache_info().currsize else 0


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _used_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and those of its children that ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        return own / TICKS, ended / TICKS
    return 0.0, 0.0


def keep(path: Path, name: str, found: Path) -> None:
    """Append what the tests of one file cost to the list."""
    with path.open("a") as file:
        for line in found.read_text().splitlines():
            cost, _, test = line.partition("\t")
            file.write(f"{cost}\t{name}\t{test}\n")


def report(path: Path) -> None:
    """Sort the list, the dearest first, and print the head of it."""
    lines = sorted(path.read_text().splitlines(), key=lambda line: -float(line.split("\t")[0]))
    path.write_text("".join(f"{line}\n" for line in lines))
    files: dict[str, float] = defaultdict(float)
    for line in lines:
        files[line.split("\t")[1]] += float(line.split("\t")[0])
    print("\nThe dearest files, in CPU seconds with all processes that they started:")
    for name, cost in sorted(files.items(), key=lambda one: -one[1])[:DEAREST_FILES]:
        print(f"{cost:7.1f}  {name}")
    print("\nThe dearest tests:")
    for line in lines[:DEAREST_TESTS]:
        cost, name, test = line.split("\t", 2)
        print(f"{float(cost):7.1f}  {name}::{test[:100]}")
    print(f"\n{sum(files.values()):.0f} CPU seconds altogether; all of it is in {path}")
