"""Measurements of the folder: 500 files at once, one edit, and the cost of waiting. Run with `make bench-folder`.

    python tests/bench/bench_folder.py [--files N] [--idle-seconds N] [--json FILE]

Prints one table and writes the numbers as JSON. The files arrive by rsync when it is there, else by a
plain copy. Knows nothing about what is good enough: design.md section 1 and docs/guides/folder.md say that.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
from process import PLAY, Box, Core, script, standing_core

from appliance.clock import monotonic_s, sleep_s

WORDS = "heron stork crane ibis spoonbill egret bittern plover curlew snipe".split()


def prepare(box: Box) -> None:
    """No model is needed."""
    script(box, PLAY)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--json", default="build/bench-folder.json", metavar="FILE")
    args = parser.parse_args()
    with standing_core(prepare) as core:
        wait(lambda: count(core, "box://") > 0)
        rss_kb = status(core, "VmRSS")
        numbers: dict[str, Any] = {"files": args.files, **many(core, args.files)}
        numbers["rss_before_mb"], numbers["rss_peak_mb"] = round(rss_kb / 1024, 1), round(status(core, "VmHWM") / 1024, 1)
        sleep_s(3)
        numbers |= idle(core, args.idle_seconds)
        numbers["edit_to_found_s"] = edits(core)
    width = max(map(len, numbers))
    for name, value in numbers.items():
        print(f"{name:<{width}}  {value}")
    figures.write(args.json, numbers)
    return 0


def many(core: Core, number: int) -> dict[str, Any]:
    """Seconds for the copy alone, and from its start until every file is an entry that a search finds."""
    source, target = core.box.home.root.parent / "source", core.box.home.box / "notes"
    size = 0
    for i in range(number):
        path = source / f"part{i % 10}" / f"note-{i}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"# Note {i}\n\nWhat we know about {WORDS[i % 10]}{i}.\n\n" + f"A {WORDS[i % 7]} and a {WORDS[i % 3]}. " * 80
        size += path.write_text(text)
    before = count(core)
    started_s = monotonic_s()
    if shutil.which("rsync"):
        subprocess.run(["rsync", "-a", f"{source}/", f"{target}/"], check=True)
    else:
        shutil.copytree(source, target, dirs_exist_ok=True)
    copied_s = monotonic_s() - started_s
    wait(lambda: count(core) == before + number)
    wait(lambda: found(core, f"{WORDS[(number - 1) % 10]}{number - 1}"))
    return {"size_kb": size // 1024, "copied_s": round(copied_s, 2), "all_found_s": round(monotonic_s() - started_s, 2)}


def edits(core: Core, rounds: int = 7) -> float:
    """Median seconds from an edit until a search finds it."""
    took = []
    for i in range(rounds):
        started_s = monotonic_s()
        (core.box.home.box / "notes/edit.md").write_text(f"the word is zyzzyva{i}")
        wait(lambda word=f"zyzzyva{i}": found(core, word))  # type: ignore[misc]
        took.append(monotonic_s() - started_s)
        sleep_s(0.3 * i)
    return round(statistics.median(took), 2)


def idle(core: Core, seconds: float) -> dict[str, Any]:
    """What waiting costs: bytes written, wake-ups and CPU time of the whole core."""
    before = written(core), wakeups(core), ticks(core)
    sleep_s(seconds)
    after = written(core), wakeups(core), ticks(core)
    return {
        "idle_s": seconds,
        "idle_bytes_written": after[0] - before[0],
        "idle_wakeups_per_s": round((after[1] - before[1]) / seconds, 2),
        "idle_cpu_ms_per_minute": round((after[2] - before[2]) * 10 * 60 / seconds),
    }


def count(core: Core, prefix: str = "box://notes/") -> int:
    pages = iter(range(0, 10_000_000, 1000))
    return sum(iter(lambda: len(core.call("entry.list", prefix=prefix, limit=1000, offset=next(pages))), 0))


def found(core: Core, word: str) -> bool:
    return bool(core.call("tool.call", name="search", arguments={"query": word})["data"]["hits"])


def status(core: Core, key: str) -> int:
    text = Path(f"/proc/{core.child.pid}/status").read_text()
    return int(text.split(f"{key}:")[1].split()[0])


def written(core: Core) -> int:
    return int(Path(f"/proc/{core.child.pid}/io").read_text().split("write_bytes: ")[1].split()[0])


def wakeups(core: Core) -> int:
    paths = Path(f"/proc/{core.child.pid}/task").glob("*/status")
    return sum(int(p.read_text().split("voluntary_ctxt_switches:")[1].split()[0]) for p in paths)


def ticks(core: Core) -> int:
    fields = Path(f"/proc/{core.child.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait(is_so: Callable[[], bool], limit_s: float = 120) -> None:
    end_s = monotonic_s() + limit_s
    while not is_so():
        if monotonic_s() > end_s:
            sys.exit("it never came to be so")
        sleep_s(0.02)


if __name__ == "__main__":
    sys.exit(main())
