"""Measurements of the spine, each beside something to compare with. Run it with `make bench-spine`.

    python tests/bench/bench_spine.py [--rounds N] [--idle-seconds N] [--json FILE]

Prints one table and writes the numbers as JSON. Knows nothing about what is good enough: design.md
section 1 says that. Needs the bundled model; takes about two minutes, one of them idle.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
from benchmark_page import OTHER_PROMPTS
from process import Box, Core, standing_core

from appliance.clock import monotonic_s, sleep_s
from appliance.models import catalogue

HEAVY = "import textual, llama_cpp"
TICKS = os.sysconf("SC_CLK_TCK")


def prepare(box: Box) -> None:
    """The bundled model, and short answers; compiled files may be kept, as a person has them."""
    catalogue.add(box.home, "smollm2", lambda stage, done, total: None)
    box.environ["OWLBOX__MODELS__MAX_OUTPUT_TOKENS"] = "24"
    del box.environ["PYTHONDONTWRITEBYTECODE"]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--json", default="build/bench-spine.json", metavar="FILE")
    args = parser.parse_args()
    with standing_core(prepare) as core:
        numbers: dict[str, Any] = {"idle_before_use": idle(core, args.idle_seconds / 2)}
        numbers["prompt"] = prompt(core)
        numbers["turns"] = turns(core)
        numbers["start"] = start(core, args.rounds)
        numbers["idle"] = idle(core, args.idle_seconds)
    figures.write(args.json, numbers)
    show(numbers)
    return 0


# -- start-up -----------------------------------------------------------------------------------------


def start(core: Core, rounds: int) -> dict[str, float]:
    """`owlbox status` on a running core and the import of what it must not import, in turns."""
    status = [str(Path(sys.executable).with_name("owlbox")), "--home", str(core.box.home.root), "status"]
    both: dict[str, list[float]] = {"status_ms": [], "imports_ms": []}
    for _ in range(rounds + 1):
        both["status_ms"].append(timed(status, core.box.environ))
        both["imports_ms"].append(timed([sys.executable, "-c", HEAVY], core.box.environ))
    found = {name: round(statistics.median(times[1:]), 1) for name, times in both.items()}  # the first one warms the disk
    return {**found, "ratio": round(found["imports_ms"] / found["status_ms"], 1), "rounds": rounds}


def timed(command: list[str], environ: dict[str, str]) -> float:
    began_s = monotonic_s()
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    return (monotonic_s() - began_s) * 1000


# -- idle ---------------------------------------------------------------------------------------------


def idle(core: Core, seconds: float) -> dict[str, Any]:
    """What core and broker take while nobody asks: memory, CPU, wakeups, bytes written."""
    pids = {"core": core.child.pid, "broker": core.broker_pid()}
    sleep_s(2)  # let the last answer settle
    before = {name: reading(pid) for name, pid in pids.items()}
    sleep_s(seconds)
    found: dict[str, Any] = {"seconds": seconds}
    for name, pid in pids.items():
        after = reading(pid)
        found[name] = {key: round(after[key] - before[name][key], 3) for key in after}
        found[name] |= {"rss_mb": kilobytes(pid, "status", "VmRSS"), "pss_mb": kilobytes(pid, "smaps_rollup", "Pss")}
    return found


def reading(pid: int) -> dict[str, float]:
    """Counters of a process that only grow."""
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    wakeups = sum(
        int(line.split()[1])
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if "ctxt_switches" in line
    )
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS
    return {"cpu_s": cpu_s, "wakeups": wakeups, "written_bytes": int(io["wchar"]), "disk_bytes": int(io["write_bytes"])}


def kilobytes(pid: int, file: str, key: str) -> float:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return round(sum(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1000, 1)


# -- the model ----------------------------------------------------------------------------------------


def prompt(core: Core) -> dict[str, Any]:
    """Tokens of the static prompt, by part."""
    size = core.call("prompt.size", text="hi")
    return {"static": size["static"], "total": size["total"], "groups": size["groups"]}


def turns(core: Core) -> dict[str, Any]:
    """Two turns in one thread and one after a restart of the broker: tokens evaluated, time to the first word."""
    cold, run = ask(core, "hi")
    warm, _ = ask(core, "And what can you do?", run)
    spent = core.call("thread.view", id=run)["turns"]
    pick = [{key: t[key] for key in ("prompt_tokens", "evaluated_tokens", "output_tokens")} for t in (spent[0], spent[-1])]
    os.kill(core.broker_pid(), 15)
    sleep_s(1)
    again, _ = ask(core, "hi")
    return {"first": pick[0], "second": pick[1], "first_ms": cold, "second_ms": warm, "after_restart_ms": again}


def ask(core: Core, text: str, thread: str = "") -> tuple[int, str]:
    """Milliseconds to the first piece of the answer, and the thread."""
    began_s, first_ms = monotonic_s(), 0
    with core.client() as client:
        stream = client.stream("message.send", {"text": text, "thread": thread}, deadline_s=300)
        while True:
            try:
                name, _ = next(stream)
            except StopIteration as ended:
                return first_ms, str(ended.value["run"])
            if name == "delta":
                first_ms = first_ms or round((monotonic_s() - began_s) * 1000)


# -- telling ------------------------------------------------------------------------------------------


def show(numbers: dict[str, Any]) -> None:
    """The table."""
    row: Callable[[str, str], None] = lambda name, value: print(f"{name:<44} {value}")  # noqa: E731
    s = numbers["start"]
    row("owlbox status, core running, median", f"{s['status_ms']} ms of {s['rounds']} rounds")
    row(f"python -c '{HEAVY}', median", f"{s['imports_ms']} ms, {s['ratio']} times as long")
    for title, key in (("before the first answer", "idle_before_use"), ("model loaded", "idle")):
        for name in ("core", "broker"):
            i, seconds = numbers[key][name], numbers[key]["seconds"]
            row(f"idle {name}, {title}, {seconds:g} s", f"RSS {i['rss_mb']} MB, PSS {i['pss_mb']} MB, CPU {i['cpu_s']} s")
            row("", f"{i['wakeups']} wakeups, {i['written_bytes']} bytes written, {i['disk_bytes']} to disk")
    t = numbers["turns"]
    for name in ("first", "second"):
        row(f"{name} turn", f"{t[name]['evaluated_tokens']} of {t[name]['prompt_tokens']} tokens evaluated")
    row("first word: cold, warm, after broker restart", f"{t['first_ms']}, {t['second_ms']}, {t['after_restart_ms']} ms")
    p = numbers["prompt"]
    row("static prompt", f"{p['static']} tokens ({', '.join(f'{n} {v}' for n, v in p['groups'].items())})")
    for name, tokens in OTHER_PROMPTS.items():
        row(f"  {name} for the same 'hi'", f"{tokens} tokens, {tokens / p['static']:.1f} times as many")


if __name__ == "__main__":
    sys.exit(main())
