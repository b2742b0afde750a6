"""What the core's memory does under a mixed load: questions, searches, entries, tasks and lists by several clients at once.

`python tests/bench/bench_soak.py --minutes 60`; the table has the core's private memory, its threads and its open connections to
the database at equal distances. What it grows by after the first tenth counts: that one fills caches and starts threads. More
than 3 MB is an error. There are RATE requests a second, however fast the machine is, so that it does not matter what else it does.
The model is a script, so nothing else takes time. `OWLBOX_SOAK_ENV="MALLOC_ARENA_MAX=2"` gives the core
more environment, to compare.
"""

import argparse
import itertools
import os
import random
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import figures
from process import Box, Core, boxed

from appliance.cli.screen import TUNABLES
from appliance.clock import monotonic_s, sleep_s
from appliance.errors import OwlError

CLIENTS = 6
RATE = 10.0
SAMPLES = 20
MOST_GROWTH_MB = 3


def private_kb(pid: int) -> tuple[int, int, int, int]:
    """Resident, anonymous memory, threads, and connections to the database: each holds its log open."""
    names = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed
            names.append(os.readlink(fd))
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return (
        int(lines["VmRSS"].split()[0]),
        int(lines["RssAnon"].split()[0]),
        int(lines["Threads"]),
        sum(name.endswith("-wal") for name in names),
    )


def work(core: Core, stop: threading.Event, number: int, counts: list[int]) -> None:
    """One client: now and then a new connection, and always something else to ask."""
    chance = random.Random(number)
    thread, next_s = "", monotonic_s()
    for turn in itertools.count():
        if stop.is_set():
            return
        try:
            with core.client() as client:
                for _ in range(chance.randrange(1, 8)):
                    next_s = max(next_s + CLIENTS / RATE, monotonic_s() - 1)
                    sleep_s(max(0.0, next_s - monotonic_s()))
                    what, words = chance.randrange(8), f"owl {turn} of {number} " + "barn " * chance.randrange(40)
                    if what < 2:
                        done = client.call("message.send", {"text": words, "thread": thread if turn % 40 else ""}, deadline_s=60)
                        thread = str(done.get("run", "")) or thread
                    elif what == 2:
                        arguments = {"title": f"note {turn % 300}", "text": words * 5}
                        client.call("tool.call", {"name": "remember", "arguments": arguments}, deadline_s=60)
                    elif what == 3:
                        client.call("tool.call", {"name": "search", "arguments": {"query": words[:60]}}, deadline_s=60)
                    elif what == 4:
                        client.call("tool.call", {"name": "create_task", "arguments": {"name": words[:80]}}, deadline_s=60)
                    elif what == 5:
                        client.call("entry.list", {"limit": 100}, deadline_s=60)
                        client.call("thread.list", {"limit": 50}, deadline_s=60)
                    elif what == 6:
                        client.call("tool.call", {"name": "list_tasks", "arguments": {}}, deadline_s=60)
                    else:
                        client.call("core.status", {}, deadline_s=60)
                    counts[number] += 1
        except (OwlError, OSError, TimeoutError):
            sleep_s(0.2)


def measure(box: Box, minutes: float) -> list[tuple[float, int, int, int, int, int]]:
    """Samples: seconds, requests, resident and anonymous kB, threads, connections."""
    more = TUNABLES | {"PYTHONHASHSEED": "0"}  # a new interpreter: a fork of the tests' own has their memory, too
    more |= dict(pair.split("=", 1) for pair in os.environ.get("OWLBOX_SOAK_ENV", "").split())
    core = box.serve(**more)
    stop, counts = threading.Event(), [0] * CLIENTS
    clients = [threading.Thread(target=work, args=(core, stop, n, counts), daemon=True) for n in range(CLIENTS)]
    for one in clients:
        one.start()
    began_s, found = monotonic_s(), []
    for step in range(1, SAMPLES + 1):
        sleep_s(max(0.0, began_s + minutes * 60 * step / SAMPLES - monotonic_s()))
        rss, anonymous, threads, connections = private_kb(core.child.pid)
        found.append((monotonic_s() - began_s, sum(counts), rss, anonymous, threads, connections))
        sizes = f"rss {rss / 1024:6.1f} MB  anonymous {anonymous / 1024:6.1f} MB  threads {threads}  connections {connections}"
        print(f"{found[-1][0]:6.0f} s {sum(counts):7d} requests  {sizes}", flush=True)
    stop.set()
    for one in clients:
        one.join(70)
    core.stop()
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=4)
    options.add_argument("--json", default="build/bench-soak.json", metavar="FILE")
    given = options.parse_args()
    place, runtime = Path(tempfile.mkdtemp(prefix="soak-")), Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    try:
        with boxed(place, runtime) as box:
            found = measure(box, given.minutes)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    warm, last = found[SAMPLES // 10 - 1], found[-1]
    grown_mb = (last[3] - warm[3]) / 1024
    keys = ("seconds", "requests", "rss_kb", "anonymous_kb", "threads", "connections")
    figures.write(given.json, {"samples": [dict(zip(keys, one)) for one in found], "grown_mb": grown_mb})
    length = f"{(last[0] - warm[0]) / 60:.0f} minutes, {last[1] - warm[1]} requests"
    print(f"after {warm[0] / 60:.0f} minutes: {grown_mb:+.1f} MB in {length}")
    if grown_mb > MOST_GROWTH_MB:
        raise SystemExit(f"it grew by more than {MOST_GROWTH_MB} MB")


if __name__ == "__main__":
    main()
