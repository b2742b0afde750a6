"""What an idle owl costs: the heartbeat on with an empty checklist and 20 schedules that are not due. `make bench-idle`.

    python tests/bench/bench_idle.py [--minutes N] [--json FILE]

Two boxes side by side for ten minutes: the one above, and one with the heartbeat off and no schedules at all. Counted are
requests to models, bytes by which the database and its log grew or changed, and how often any thread of core and broker
woke up. Beside them sleeps a process that does nothing. Knows nothing about what is good enough.
"""

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
from process import Box, Core, boxed

from appliance.clock import monotonic_s, sleep_s
from appliance.runtime.rpc_client import Client

FUTURE = "on 5 January 2035 at 9am"
SCHEDULES = 20


@dataclass(frozen=True)
class Cost:
    """What was counted until a moment, or between two."""

    wakes: int
    written: dict[str, tuple[int, int]]  # size and time of change of each file of the database
    calls: int

    def since(self, before: "Cost") -> dict[str, Any]:
        changed = sum(size for name, (size, at) in self.written.items() if before.written.get(name) != (size, at))
        return {"wakes": self.wakes - before.wakes, "database_bytes": changed, "model_calls": self.calls - before.calls}


def wakes(pid: int) -> int:
    """How often the threads of a process have gone to sleep and woken up by themselves."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            lines = status.read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return total


def look(box: Box, pids: list[int]) -> Cost:
    """What has been counted so far; reads only."""
    files = {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in box.home.root.glob("owlbox.db*")}
    calls = sum("generated" in line for line in (box.home.logs / "broker/broker.log").read_text().splitlines())
    return Cost(sum(map(wakes, pids)), files, calls)


def laden(core: Core) -> None:
    """Twenty schedules that are not due."""
    with core.client() as client:
        for number in range(SCHEDULES):
            _add(client, number)


def _add(client: Client, number: int) -> None:
    given = {"name": f"number {number}", "frequency": FUTURE}
    outcome = client.call("tool.call", {"name": "create_schedule", "arguments": given}, deadline_s=30)
    assert outcome["status"] < 300, outcome


def settled(box: Box, pids: list[int], still_s: float) -> Cost:
    """What has been counted once nothing was written for a while: a start has its own work to do."""
    before = look(box, pids)
    while True:
        sleep_s(still_s)
        after = look(box, pids)
        if after.written == before.written and after.calls == before.calls:
            return after
        before = after


def measure(minutes: float) -> dict[str, Any]:
    """Counts of the idle time for both boxes, and of a process that sleeps."""
    places = [Path(tempfile.mkdtemp(prefix="owl-idle-", dir="/tmp")) for _ in range(4)]
    nothing = subprocess.Popen(["sleep", str(minutes * 60 + 300)])
    try:
        with boxed(places[0], places[1]) as full, boxed(places[2], places[3]) as bare:
            bare.environ["OWLBOX__HEARTBEAT__ENABLED"] = "false"
            cores = [full.serve(), bare.serve()]
            laden(cores[0])
            pids = [[core.child.pid, core.broker_pid()] for core in cores]
            before = [settled(box, known, 5) for box, known in zip((full, bare), pids, strict=True)]
            began_s, slept = monotonic_s(), wakes(nothing.pid)
            sleep_s(minutes * 60)
            after = [look(box, known) for box, known in zip((full, bare), pids, strict=True)]
            seconds = monotonic_s() - began_s
            found = [b.since(a) for a, b in zip(before, after, strict=True)]
            for one in found:
                one["wakes_per_s"] = round(one["wakes"] / seconds, 3)
            quiet = wakes(nothing.pid) - slept
            return {"seconds": round(seconds), "laden": found[0], "bare": found[1], "sleeping_process_wakes": quiet}
    finally:
        nothing.terminate()
        nothing.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--json", default="", metavar="FILE")
    args = parser.parse_args()
    found = measure(args.minutes)
    for name in ("laden", "bare"):
        one = found[name]
        print(
            f"{name:6} {found['seconds']} s: {one['model_calls']} model calls, {one['database_bytes']} database bytes, "
            f"{one['wakes_per_s']} wake-ups a second"
        )
    print(f"a process that sleeps: {found['sleeping_process_wakes']} wake-ups")
    figures.write(args.json, found)


if __name__ == "__main__":
    main()
