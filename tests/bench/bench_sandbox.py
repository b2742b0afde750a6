"""What a sandboxed call costs beside plain bubblewrap and a bare subprocess, in one run. `make bench-sandbox`.

    python tests/bench/bench_sandbox.py [--calls N] [--unit] [--json FILE]

Two ways run /bin/true right after each other, now the one first and now the other, so that both meet the same machine; what
counts is the median of the ratios of such pairs, with the middle half of them, of the time that passes and of the processor's
time. Plain bubblewrap beside itself says what the machine makes of it: far from 1.00, nothing else here is worth reading.
"tool" is what a model gets: the tool `exec` of a core, with the policy asked and the audit written, and a bash that runs true;
"bare bash" is that without any of it. `--unit` also boots a machine with systemd and measures the tool unit there, where each
call starts a process as another user; needs root. Knows nothing about what is good enough. Takes about half a minute.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import figures
from process import clean_environ
from stores import new_home

from appliance.clock import CancelToken, monotonic_s
from appliance.records import ToolCall
from appliance.runtime.paths import Home
from appliance.sandbox import bubblewrap as jail
from appliance.sandbox import landlock
from appliance.sandbox.launcher import Plan, Sandbox, SandboxOrder
from appliance.service.core import Core

NEVER = threading.Event()
UNIT = """
import json, pathlib, sys, threading
from appliance.clock import monotonic_s
from appliance.sandbox.launcher import SandboxOrder, Plan, Sandbox
sandbox, took = Sandbox(Plan(unit=pathlib.Path("/run/owlbox-tool/tool.sock"))), []
for _ in range(int(sys.argv[1])):
    began_s = monotonic_s()
    done = sandbox.run(SandboxOrder("bench", "s1", ("/bin/true",)), threading.Event())
    took.append(1000 * (monotonic_s() - began_s))
    assert done.status == "completed", done
print(json.dumps(took))
"""


def bare() -> None:
    subprocess.run(["/bin/true"], capture_output=True, check=True)


def bubblewrap() -> None:
    """The same walls without our limits: no filter, no Landlock, nothing watched."""
    order = SandboxOrder("bench", "s1", ("/bin/true",))
    words, skipped = [], 0
    for word, following in zip(listed := jail.options(order), [*listed[1:], ""], strict=True):
        skipped = {"--file": 3, "--seccomp": 2}.get(str(word), skipped)
        if word == "--perms" and following == "0644":
            skipped = 2
        if skipped:
            skipped -= 1
        else:
            words.append(str(word))
    subprocess.run([jail.BWRAP, *words, "/bin/true"], capture_output=True, check=True)


def whole(sandbox: Sandbox) -> Callable[[], None]:
    def call() -> None:
        done = sandbox.run(SandboxOrder("bench", "s1", ("/bin/true",)), NEVER)
        assert done.status == "completed", done

    return call


def bare_bash() -> None:
    subprocess.run(["/bin/bash", "-c", "true"], capture_output=True, check=True)


@contextmanager
def core() -> Iterator[Core]:
    """A core in this process, on a home of its own."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as runtime:
        home = Home(Path(place) / "home")
        new_home(home)
        made = Core(home, clean_environ(Path(place), Path(runtime)), process="cli", is_shared=False)
        try:
            yield made
        finally:
            made.close("the measurement is over")


def tool(made: Core) -> Callable[[], None]:
    def call() -> None:
        done = made.toolbox.dispatch(ToolCall("c", "exec", {"command": "true"}), "", CancelToken(), "local:bench")
        assert done.status == 200, done

    return call


PAIRS = (
    ("bubblewrap", "bubblewrap"),
    ("bubblewrap", "bare"),
    ("sandbox", "bubblewrap"),
    ("tool", "bare bash"),
    ("tool", "sandbox"),
)


def took_ms(way: Callable[[], None]) -> tuple[float, float]:
    """Milliseconds of one call: that passed, and of the processor for us and all that it started."""

    def spent_s() -> float:
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in both)

    began_s, before_s = monotonic_s(), spent_s()
    way()
    return 1000 * (monotonic_s() - began_s), 1000 * (spent_s() - before_s)


def compared(first: Callable[[], None], second: Callable[[], None], calls: int) -> dict[str, float]:
    """How long one way takes beside another, by the middle of what pairs of calls say."""
    took: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for number in range(calls):
        for one in (0, 1) if number % 2 else (1, 0):
            took[one].append(took_ms((first, second)[one]))
    found: dict[str, float] = {}
    for at, name in enumerate(("wall", "cpu")):
        ratios = [one[at] / max(two[at], 1e-3) for one, two in zip(*took, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found |= {f"{name}_ratio": middle, f"{name}_low": low, f"{name}_high": high}
        found |= {f"{name}_ms": statistics.median(one[at] for one in took[0])}
    return found


def in_unit(calls: int) -> list[float]:
    import machine

    with machine.folder() as root:
        machine.make_root(root)
        machine.install(root)
        machine.enable(root, "owlbox-tool.socket")
        with machine.booted(root) as up:
            return list(json.loads(up.ok(machine.PYTHON, "-I", "-c", UNIT, str(calls), user="owlbox")))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--unit", action="store_true")
    parser.add_argument("--json", default="", metavar="FILE")
    args = parser.parse_args()
    sandbox = Sandbox(Plan())
    print(f"Landlock {landlock.version()}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {args.calls} calls each")
    with core() as made:
        ways = {"bare": bare, "bare bash": bare_bash, "bubblewrap": bubblewrap, "sandbox": whole(sandbox), "tool": tool(made)}
        for way in ways.values():
            way()  # files are read once
        found = {f"{one} / {other}": compared(ways[one], ways[other], args.calls) for one, other in PAIRS}
    print(f"{'':24}{'ms':>8}{'ratio':>8}  middle half{'CPU ms':>10}{'ratio':>8}  middle half")
    for name, of in found.items():
        print(f"{name:24}", end="")
        for kind in ("wall", "cpu"):
            ms, ratio, low, high = (of[f"{kind}_{what}"] for what in ("ms", "ratio", "low", "high"))
            print(f"{ms:8.1f}{ratio:8.2f}  {low:.2f}-{high:.2f}", end="  ")
        print()
    if args.unit:
        times = sorted(in_unit(min(args.calls, 50)))
        print(f"through the unit: {times[0]:.1f} ms at least, {statistics.median(times):.1f} as a rule")
    figures.write(args.json, {"load": os.getloadavg(), "calls": args.calls, "pairs": found})


if __name__ == "__main__":
    main()
