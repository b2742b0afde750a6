"""What an installation with 50,000 entries and as many schedules costs: `doctor`, `list_schedules`, the import of the core, and
the memory of the model process without a model.

    python tests/bench/bench_large.py [--count N] [--llm FILE] [--rounds N] [--json FILE]

Each takes turns with what it is compared with, in one run, and the smallest number counts, because a busy machine only ever adds:
doctor with `PRAGMA quick_check` of the same file in a Python of its own, `list_schedules` with the same rows from SQL alone,
the core with the Python interface of `llm`, the model process with the core beside it. CPU seconds, and of processes those of their
children, too. Compiled files may be kept, as a person has them. Knows nothing about what is good enough.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import figures
from bench_entries import insert, text
from bench_start import cpu_s
from process import Box, boxed

from appliance.clock import CancelToken, now_ms
from appliance.knowledge.index import Passages
from appliance.language.times import recurrence
from appliance.records import ToolCall
from appliance.service.core import Core
from appliance.store.database import Store
from appliance.work.schedules import COLUMNS, Action, New, ScheduleRows

LISTED = 100
QUICK = "import apsw, sys; apsw.Connection(sys.argv[1]).execute('PRAGMA quick_check').fetchall()"
IMPORT = """
import gc
from appliance.__main__ import GC_THRESHOLD
from appliance.console import garbage
gc.set_threshold(GC_THRESHOLD)
with garbage.loading():
    import appliance.service.core
"""
COPY = f"""
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO schedules ({COLUMNS}) SELECT id + i, name || i, {COLUMNS.split(", ", 2)[2]} FROM schedules, n WHERE id = ?
"""
COPY_STATE = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO schedule_state SELECT id + i, {} FROM schedule_state, n WHERE id = ?
"""
PLAIN = "SELECT * FROM schedules LEFT JOIN schedule_state USING (id) ORDER BY created_ms, key, id LIMIT ?"


def fill(store: Store, count: int) -> None:
    """So many entries, their passages, and as many schedules that are due every day."""
    with store.write() as execute:
        for number in range(count):
            insert(execute, f"memory://notes/{number}", text(number))
    Passages(store).catch_up()
    daily = New("water the roses", recurrence.cron("0 9 * * *", "UTC"), Action("reminder", {"text": "water"}))
    first = ScheduleRows(store).add(daily, now_ms()).id
    with store.write() as execute:
        columns = [str(name) for (name,) in execute("SELECT name FROM pragma_table_info('schedule_state') WHERE name <> 'id'")]
        execute(COPY, (count - 1, first))
        execute(COPY_STATE.format(", ".join(columns)), (count - 1, first))


def least_s(rounds: int, ways: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The smallest number of each way, taken in turns; the first round warms the disk."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            found[name].append(way())
    return {name: min(times[1:]) for name, times in found.items()}


def spent_s(work: Callable[[], object]) -> float:
    """CPU seconds of some work in this process."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def command_s(command: list[str], environ: Mapping[str, str]) -> float:
    """CPU seconds of a command with its children, whatever it ends with: doctor ends with 1 where no model is installed."""
    return cpu_s(["/bin/sh", "-c", '"$@" >/dev/null 2>&1 || true', "sh", *command], environ)


def listing(box: Box, rounds: int) -> dict[str, float]:
    """The tool on a core in this process, and its rows from SQL alone."""
    core = Core(box.home, box.environ, process="cli", is_shared=False)
    store = Store.open(box.home.database)

    def ask() -> None:
        done = core.toolbox.dispatch(ToolCall("c", "list_schedules", {"limit": LISTED}), "", CancelToken(), "local:bench")
        assert done.status == 200, done

    try:
        ways = {"list_schedules": ask, "plain SQL": lambda: store.rows(PLAIN, (LISTED,))}
        return least_s(rounds, {name: lambda work=work: spent_s(work) for name, work in ways.items()})  # type: ignore[misc]
    finally:
        store.close()
        core.close("the measurement is over")


def memory_mb(box: Box) -> dict[str, float]:
    """Resident memory of a core and of its model process, which has no model."""
    core = box.serve(PYTHONHASHSEED="0")  # a new interpreter: a fork of this one has its memory, too
    found = {name: resident_mb(pid) for name, pid in (("broker", core.broker_pid()), ("core", core.child.pid))}
    core.stop()
    return found


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def measure(box: Box, count: int, llm: str, rounds: int) -> dict[str, Any]:
    """All of it."""
    box.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found: dict[str, Any] = {"count": count, "memory_mb": memory_mb(box)}
    store = Store.open(box.home.database)
    fill(store, count)
    store.close()
    found["list_s"] = listing(box, rounds)
    ways = {
        "doctor": box.command("doctor"),
        "quick_check": [sys.executable, "-c", QUICK, str(box.home.database)],
        "import of the core": [sys.executable, "-c", IMPORT],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    if llm:
        ways["import of llm"] = [llm, "-c", "import llm.cli"]
    found["cpu_s"] = least_s(rounds, {name: lambda words=words: command_s(words, box.environ) for name, words in ways.items()})  # type: ignore[misc]
    return found


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--llm", default="", metavar="FILE", help="a Python that has llm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", default="build/bench-large.json", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as runtime:
        with boxed(Path(place), Path(runtime)) as box:
            found = measure(box, args.count, args.llm, args.rounds)
    for name, seconds in {**found["cpu_s"], **found["list_s"]}.items():
        print(f"{name:<20} {seconds:.3f} s CPU")
    print("  ".join(f"{name} {mb:.1f} MB" for name, mb in found["memory_mb"].items()))
    figures.write(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
