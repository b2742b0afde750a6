"""Every test file in a process of its own, as many at once as are asked for: what `make test` runs.

    python tests/suite.py [-n 4] [--costs LIST] [FILE ...] [-- OPTIONS OF PYTEST]

Each file is a fork of a process that has loaded pytest and the product already, and nothing collects the tests of
another file: on two cores the workers of xdist spent a minute on that. The slowest files begin first, and further ones
while a third of the machine has nothing to do: most tests wait most of their time. What failed is
shown whole when its file ends, and named once more at the end, with what was left out and why. A file that crashes,
hangs, leaves early or has no test in it has failed. The last line is `N passed, N failed`, and `, N skipped` if any was.
A few tests that failed are run once more when nothing else runs: what passes then was the machine's haste, or a race that
wants to be found, so it is named as `ONLY ALONE` with what it said beside the others; what fails again has failed.
Not for looking for one failure: that is `pytest`.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import costs
import pytest
import quick
import stores
from conftest import SLOW, compile_package, hear
from hypothesis.internal.conjecture import providers
from recorded_disk import hide_mounts

from appliance.language.languages import Languages
from appliance.language.router import Router

TESTS = Path(__file__).parent
LIMIT_S = 1200.0  # a file that takes longer hangs
HEAVY = ("hypothesis", "screens", "process", "loopback", "record_tools")  # what many files would import, each for itself
LEAST_MB = 8000  # of free memory, for tests to write there
SECOND_LOOKS = 5  # tests that may be run once more; where more fail, it is no accident
PASSED, FAILED, SKIPPED, FINISHED = b"p", b"f", b"s", b"."
LOOK_TICKS = 100 * (os.cpu_count() or 1)  # a second
WORDS = ["-q", "-rfEs", "--tb=short", "--color=no", "--same-examples"]
WORDS += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:xdist.looponfail"]
WORDS += ["-W", "ignore:Module already imported"]  # by us, for all files


@dataclass
class Running:
    """A file being tested."""

    path: Path
    folder: Path
    began_s: float
    only: tuple[str, ...] = ()  # tests of it, when not all
    handle: int = -1

    @property
    def lasts_s(self) -> float:
        return time.monotonic() - self.began_s

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def results(self) -> Path:
        """A letter for each result, written as it comes: a crash takes none of them away."""
        return self.folder / "results"

    @property
    def failures(self) -> Path:
        """The tests that failed by their names within the file, a line each."""
        return self.folder / "failures"

    @property
    def costs(self) -> Path:
        """What each test cost, a line each, where that is asked for."""
        return self.folder / "costs"


class Tally:
    """A plugin of pytest that writes results down."""

    def __init__(self, handle: int, failures: Path) -> None:
        self._handle, self._failures = handle, failures
        self._letter = PASSED

    def pytest_runtest_logstart(self) -> None:
        self._letter = PASSED

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One letter a test: what fails and cannot be tidied up failed once."""
        if report.failed:
            self._letter = FAILED
        elif report.skipped and self._letter != FAILED:
            self._letter = SKIPPED
        if report.when == "teardown":
            os.write(self._handle, self._letter)
            if self._letter == FAILED:
                with self._failures.open("a") as names:
                    names.write(report.nodeid.partition("::")[2] + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            os.write(self._handle, FAILED)
        elif report.skipped:
            os.write(self._handle, SKIPPED)

    def pytest_unconfigure(self) -> None:
        os.write(self._handle, FINISHED)


class Suite:
    """All files, so many at once; what failed."""

    def __init__(self, files: list[Path], options: list[str], scratch: Path, costs_path: Path | None = None) -> None:
        self._waiting = sorted(files, key=lambda path: (SLOW.index(path.stem) if path.stem in SLOW else len(SLOW), path.stem))
        self._options, self._scratch, self._costs_path = options, scratch, costs_path
        self._running: dict[int, Running] = {}
        self._failed: dict[str, list[str]] = {}
        self._left_out: list[str] = []
        self._again: dict[Path, tuple[str, ...]] = {}
        self._counts: Counter[bytes] = Counter()
        self._looked = _ticks()
        self._took_s = 0.0

    def run(self, count: int) -> None:
        """Test everything."""
        began_s = time.monotonic()
        while self._waiting or self._running:
            while self._waiting and self._has_room(count):
                self._begin(self._waiting.pop(0))
            self._rest()
        self._look_again()
        self._took_s = time.monotonic() - began_s

    def sum_up(self) -> int:
        """Say what was left out, what failed, and how many; the exit code."""
        for line in self._left_out:
            print(line)
        for lines in self._failed.values():
            print("\n".join(lines))
        counts = self._counts
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"\nEverything took {self._took_s:.0f} s, CPU {used.ru_utime + used.ru_stime:.0f} s.")
        skipped = f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else ""
        print(f"{counts[PASSED]} passed, {counts[FAILED]} failed{skipped}", flush=True)
        return 1 if self._failed or not counts[PASSED] else 0

    def _has_room(self, count: int) -> bool:
        """True when a file may begin: `count` of them always, and as many again, one by one, while the machine is idle."""
        if len(self._running) < count:
            return True
        now, before = _ticks(), self._looked
        passed = now[0] - before[0]
        if len(self._running) >= 2 * count or passed < LOOK_TICKS:
            return False
        self._looked = now
        return now[1] - before[1] > passed / 3

    def _look_again(self) -> None:
        """Run the few tests that failed once more, one after the other, with the machine to themselves."""
        few = self._again if sum(map(len, self._again.values())) <= SECOND_LOOKS else {}
        for path, names in few.items():
            before, said = self._counts.copy(), self._failed.pop(path.name)
            self._begin(path, names)
            while self._running:
                self._rest()
            passed = self._counts[PASSED] - before[PASSED]
            self._counts = before
            if path.name not in self._failed and passed == len(names):  # else it left itself out this time
                self._left_out += [line.replace("FAILED", "ONLY ALONE", 1).replace("ERROR", "ONLY ALONE", 1) for line in said]
                self._counts += Counter({PASSED: passed})
                self._counts[FAILED] -= passed
            else:
                self._failed.setdefault(path.name, said)

    def _begin(self, path: Path, only: tuple[str, ...] = ()) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"{path.stem}-", dir=self._scratch))
        made = Running(path, folder, time.monotonic(), only)
        pid = os.fork()
        if pid == 0:
            _test(made, self._options, self._costs_path is not None)
        made.handle = os.pidfd_open(pid)
        self._running[pid] = made
        self._looked = _ticks()

    def _rest(self) -> None:
        """Until a file has ended; one that hangs is ended."""
        ends = select.poll()
        for running in self._running.values():
            ends.register(running.handle, select.POLLIN)
        ends.poll(1000)
        for running in self._running.values():
            if running.lasts_s > LIMIT_S:
                signal.pidfd_send_signal(running.handle, signal.SIGKILL)
        while True:
            if not self._running:
                return
            pid, status, used = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            done = self._running.pop(pid, None)
            if done is not None:  # else an orphan of a test, which came to us
                os.close(done.handle)
                self._ended(done, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)

    def _ended(self, done: Running, code: int, cpu_s: float) -> None:
        text = done.output.read_text(errors="replace")
        lines = text.rstrip().splitlines() or [""]
        self._left_out += [line for line in lines if line.startswith("SKIPPED")]
        results = done.results.read_bytes() if done.results.exists() else b""
        found = Counter(results[i : i + 1] for i in range(len(results)))
        trouble = self._trouble(done, code, found)
        if trouble or code not in (0, 5):
            print(text, flush=True)
            summary = text.rpartition(" short test summary info ")[2].splitlines()  # a log may have such lines, too
            named = [line for line in summary if line.startswith(("FAILED", "ERROR "))]
            self._failed[done.path.name] = [*named, *([f"FAILED {done.path}: {trouble}"] if trouble else [])]
            found[FAILED] += bool(trouble)
            names = done.failures.read_text().splitlines() if done.failures.exists() else []
            if not trouble and not done.only and len(names) == found[FAILED] == len(set(names)):
                self._again[done.path] = tuple(names)
        self._counts.update(found)
        if self._costs_path and done.costs.exists():
            costs.keep(self._costs_path, done.path.name, done.costs)
        took = f"{done.lasts_s:6.1f} s, CPU {cpu_s:5.1f} s"  # without what the nest bore for it
        print(f"{done.path.name:32} {took}   {trouble or lines[-1].strip('= ')}", flush=True)
        shutil.rmtree(done.folder, ignore_errors=True)

    def _trouble(self, done: Running, code: int, found: Counter[bytes]) -> str:
        """What is wrong with a file besides tests that failed, or ""."""
        if done.lasts_s > LIMIT_S:
            return f"not done after {LIMIT_S:.0f} s"
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        if not found[FINISHED]:
            return f"left before its tests were done, with exit code {code}"
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            return "" if self._options else "no tests in it"
        if code == 0 and found[FAILED]:
            return "a failure that pytest says nothing of"
        return f"exit code {code}" if code and not found[FAILED] else ""


def _test(running: Running, options: list[str], has_costs: bool) -> None:
    """Be the process that tests one file; does not return."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(running.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        quick.have_children()
        results = os.open(running.results, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        arguments = [*WORDS, f"--basetemp={running.folder / 'tmp'}", *options]
        wanted = [f"{running.path.resolve()}::{name}" for name in running.only] or [str(running.path)]
        plugins = [Tally(results, running.failures), *([costs.Costs(running.costs)] if has_costs else [])]
        code = pytest.main([*arguments, *wanted], plugins=plugins)
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ticks() -> tuple[int, int]:
    """What has passed since the machine began, of all its processors, and how much of that they had nothing to do."""
    words = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    return sum(map(int, words)), int(words[3]) + int(words[4])


def _load() -> None:
    """Import what every file needs: the product, and all that pytest loads to test nothing."""
    hear()
    compile_package()
    quick.load()
    for name in HEAVY:
        importlib.import_module(name)
    stores.with_skills()
    _read_everyday()
    providers._get_local_constants()  # of the whole product, which hypothesis would collect in every file that uses it
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*WORDS, str(TESTS / "conftest.py")])
    gc.collect()
    gc.freeze()  # what all share is not looked at, and so not copied


def _read_everyday() -> None:
    """Have everyday sentences read once: the templates that they meet are compiled for all files, ten milliseconds each."""
    router = Router(Languages(), lambda texts: ())
    lines = (TESTS / "language/requests/asking.jsonl").read_text(encoding="utf-8").splitlines()[::10]
    asking = [str(json.loads(line)["text"]) for line in lines]
    for text in [*asking, *(TESTS / "language/requests/not_asking.txt").read_text(encoding="utf-8").splitlines()[::25]]:
        router.cue(text)


def _end_all() -> None:
    """End what is left of the tests: without parents, such processes came to us, and so do those that they leave."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():
        for pid in map(int, left):
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
            if words:  # none: it has ended
                print(f"still running: {words[:150]}", flush=True)
            os.kill(pid, signal.SIGKILL)  # ours, and not collected yet
            os.waitpid(pid, 0)


def _scratch_folder() -> Path:
    """Where the tests write: in memory, where we may mount and there is plenty, because they wait for a disk most of all.

    Mounted for us and our children alone, so that it is gone with us, however we end. What a test proves of disks it proves on
    disks of its own; a file that is run by itself, by `pytest`, writes to the disk that is there.
    """
    folder = Path(tempfile.mkdtemp(prefix="owl-tests-", dir="/tmp"))
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free_mb = int(lines["MemAvailable"].split()[0]) >> 10
    if os.geteuid() == 0 and free_mb >= LEAST_MB:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            hide_mounts()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={free_mb // 2}m,mode=0700", "tmpfs", str(folder)], check=True)
    return folder


def _runtime_folders() -> set[Path]:
    """What a process of ours makes that was not told where its sockets belong."""
    return set(Path("/tmp").glob(f"owlbox-{os.getuid()}-*"))


def main() -> int:
    if quick.PADDING not in sys.argv:  # room for the words of processes that are forked from here
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every file compiles itself and its helpers, at every run
        os.execve(sys.executable, [*sys.orig_argv, quick.PADDING], {**os.environ, "PADDING": quick.PADDING})
    os.environ.pop("PADDING", None)
    sys.argv.remove(quick.PADDING)
    parser = argparse.ArgumentParser(description="run every test file in a process of its own")
    parser.add_argument(
        "-n", type=int, default=4, metavar="COUNT", help="how many at once (4); twice as many while the machine is idle"
    )
    parser.add_argument(
        "--costs", type=Path, metavar="LIST", help="measure the CPU seconds of each test, and write them to this file"
    )
    parser.add_argument("files", nargs="*", type=Path, help="test files (all)")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    given, options = parser.parse_args(words[:at]), words[at + 1 :]
    _load()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # in good order
    ctypes.CDLL(None).prctl(costs.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = _runtime_folders()
    if given.costs:
        given.costs.write_text("")
    scratch = _scratch_folder()
    quick.nest()  # one for all
    suite = Suite(given.files or list(TESTS.rglob("test_*.py")), options, scratch, given.costs)
    try:
        suite.run(given.n)
    finally:
        quick.nest().close()
        _end_all()
        subprocess.run(["umount", "-l", str(scratch)], capture_output=True)  # where it was mounted
        shutil.rmtree(scratch, ignore_errors=True)
    for folder in sorted(_runtime_folders() - before):
        print(f"left behind, by a test or by somebody else: {folder}")
    if given.costs:
        costs.report(given.costs)
    return suite.sum_up()


if __name__ == "__main__":
    sys.exit(main())
