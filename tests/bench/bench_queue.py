"""Measurements of the queue beside huey's SqliteHuey, on the same disk in the same run. `make bench-queue`.

    python tests/bench/bench_queue.py [--tasks N] [--rounds N] [--folder DIR] [--json FILE]

Three things, in turns so that both sides meet the same machine: claiming alone; claiming, working off and
keeping the result safe against a power cut; and 16 processes over tasks with dependencies, each checked to
have run exactly once, which the other one cannot do and has no number for. huey takes a task by deleting it:
it keeps no attempts, no order by dependencies, and a worker that dies takes its task along. Both run with 1
and with 16 processes. Knows nothing about what is good enough. Takes about two minutes.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import figures
from test_database import child, finished
from test_race import PROCESSES, WORKER, checked, planted, raced

from appliance.clock import monotonic_s
from appliance.store.database import Store
from appliance.work.tasks import NewTask, TaskRows

# What each side does with one task; both count what they got and how long it took, from the starting gun.
OURS = """
    from appliance.clock import monotonic_s
    from appliance.work.tasks import TaskRows
    name = sys.argv[2]
    store = Store.open(path)
    tasks, count = TaskRows(store), 0
    tasks.is_work()
    print("ready", flush=True)
    sys.stdin.readline()
    began_s = monotonic_s()
    while (got := tasks.claim(name)) is not None:
        count += 1
        AFTER
    print(count, began_s, monotonic_s())
"""
HUEY = """
    from appliance.clock import monotonic_s
    from huey.storage import SqliteStorage
    name, count = sys.argv[2], 0
    storage = SqliteStorage(filename=str(path), fsync=FSYNC, timeout=60)
    storage.queue_size()
    print("ready", flush=True)
    sys.stdin.readline()
    began_s = monotonic_s()
    while (got := storage.dequeue()) is not None:
        count += 1
        AFTER
    print(count, began_s, monotonic_s())
"""
FILL = """
    from huey.storage import SqliteStorage
    storage = SqliteStorage(filename=str(path), fsync=False)
    with storage.db(commit=True) as cursor:
        for number in range(int(sys.argv[2])):
            cursor.execute("insert into task (queue, data, priority) values (?, ?, ?)", (storage.name, b"x" * 200, number % 3))
"""
SIDES = {
    "claim": (
        ("owlbox", OURS.replace("AFTER", "pass")),
        ("huey, never synced", HUEY.replace("FSYNC", "False").replace("AFTER", "pass")),
        ("huey, as it comes", HUEY.replace("FSYNC", "None").replace("AFTER", "pass")),
    ),
    "claim and keep the result": (
        ("owlbox", OURS.replace("AFTER", "tasks.finish(got, 'complete', 'done')")),
        ("huey, as it comes", HUEY.replace("FSYNC", "None").replace("AFTER", "storage.put_data(f'{name}-{count}', b'done')")),
    ),
}


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default="build", metavar="DIR", help="where the files lie while they are measured")
    parser.add_argument("--json", default="build/bench-queue.json", metavar="FILE")
    args = parser.parse_args()
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        numbers: dict[str, Any] = {"tasks": args.tasks, "rounds": args.rounds}
        for what, sides in SIDES.items():
            for processes in (1, PROCESSES):
                numbers[f"{what}, {processes} processes"] = beside(Path(folder), sides, args.tasks, processes, args.rounds)
        numbers["race"] = race(Path(folder), args.tasks)
    figures.write(args.json, numbers)
    show(numbers)
    return 0


def beside(folder: Path, sides: Sequence[tuple[str, str]], tasks: int, processes: int, rounds: int) -> dict[str, Any]:
    """TaskRows a second of each side, the median of rounds taken in turns, and ours over each other one."""
    found: dict[str, list[float]] = {name: [] for name, _ in sides}
    for number in range(rounds):
        for name, code in sides:
            path = folder / f"{number}-{name.replace(' ', '-')}-{processes}.db"
            (fill_ours if name == "owlbox" else fill_huey)(path, tasks)
            found[name].append(rate(raced(code, path, processes), tasks))
            for left in folder.glob(f"{path.name}*"):
                left.unlink()
    medians = {name: round(statistics.median(rates)) for name, rates in found.items()}
    ratios = {name: round(medians["owlbox"] / other, 2) for name, other in medians.items() if name != "owlbox"}
    return {"per_second": medians, "ratio": ratios}


def rate(printed: Sequence[str], tasks: int) -> float:
    """TaskRows a second from the first start to the last end."""
    rows = [tuple(map(float, text.split())) for text in printed]
    assert sum(count for count, _, _ in rows) == tasks, "not every task was had once"
    return tasks / (max(end for _, _, end in rows) - min(begin for _, begin, _ in rows))


def fill_ours(path: Path, tasks: int) -> None:
    """So many tasks that can begin, of three priorities."""
    store = Store.create(path)
    with store.write(durable=True):
        for number in range(tasks):
            TaskRows(store).add(NewTask(f"t{number}", "x" * 200, ("low", "medium", "high")[number % 3]))
    store.close()


def fill_huey(path: Path, tasks: int) -> None:
    """The same for huey."""
    finished(child(FILL, path, tasks))


def race(folder: Path, tasks: int) -> dict[str, Any]:
    """Processes over tasks with dependencies; an AssertionError when one ran twice, too early, or not at all."""
    path = folder / "race.db"
    store = planted(path, tasks)
    began_s = monotonic_s()
    printed = raced(WORKER, path, PROCESSES)
    seconds = monotonic_s() - began_s
    shares = checked(store, printed, tasks)
    store.close()
    return {"processes": PROCESSES, "exactly_once": True, "per_second": round(tasks / seconds), "shares": sorted(shares.values())}


def show(numbers: dict[str, Any]) -> None:
    """The numbers as a table."""
    for what, found in numbers.items():
        if not isinstance(found, dict):
            continue
        if what == "race":
            how = f"{found['processes']} processes, with dependencies: each task exactly once"
            print(f"{how}, {found['per_second']}/s, shares {found['shares'][0]} to {found['shares'][-1]}")
            continue
        print(what)
        for name, per_second in found["per_second"].items():
            ratio = found["ratio"].get(name)
            print(f"  {name:<22} {per_second:>8}/s" + (f"   owlbox is {ratio} times as fast" if ratio else ""))


if __name__ == "__main__":
    raise SystemExit(main())
