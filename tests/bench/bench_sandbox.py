"""What a sandboxed call costs beside a bare subprocess and plain bubblewrap, in one run. `make bench-sandbox`.

    python tests/bench/bench_sandbox.py [--calls N] [--unit] [--json FILE]

Each way runs /bin/true in turns, so that all meet the same machine; the smallest time is what the work itself
takes, p50 and p95 are what this machine made of it. "tool" is what a model gets: the tool `exec` of a core, with the
policy asked and the audit written, and a bash that runs true; "bare bash" is that without any of it. `--unit` also
boots a machine with systemd and measures the tool unit there, where each call starts a process as another user;
needs root. Knows nothing about what is good enough. Takes about half a minute.
"""

import argparse
import json
import os
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
from appliance.sandbox.launcher import Order, Plan, Sandbox
from appliance.service.core import Core

NEVER = threading.Event()
UNIT = """
import json, pathlib, sys, threading
from appliance.clock import monotonic_s
from appliance.sandbox.launcher import Order, Plan, Sandbox
sandbox, took = Sandbox(Plan(unit=pathlib.Path("/run/owlbox-tool/tool.sock"))), []
for _ in range(int(sys.argv[1])):
    began_s = monotonic_s()
    done = sandbox.run(Order("bench", "s1", ("/bin/true",)), threading.Event())
    took.append(1000 * (monotonic_s() - began_s))
    assert done.status == "completed", done
print(json.dumps(took))
"""


def bare() -> None:
    subprocess.run(["/bin/true"], capture_output=True, check=True)


def bubblewrap() -> None:
    """The same walls without our limits: no filter, no Landlock, nothing watched."""
    order = Order("bench", "s1", ("/bin/true",))
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
        done = sandbox.run(Order("bench", "s1", ("/bin/true",)), NEVER)
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


def measured(ways: dict[str, Callable[[], None]], calls: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # files are read once
    for _ in range(calls):
        for name, way in ways.items():
            began_s = monotonic_s()
            way()
            took[name].append(1000 * (monotonic_s() - began_s))
    return took


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
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--unit", action="store_true")
    parser.add_argument("--json", default="", metavar="FILE")
    args = parser.parse_args()
    sandbox = Sandbox(Plan())
    print(f"Landlock {landlock.version()}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {args.calls} calls each")
    with core() as made:
        ways = {"bare": bare, "bare bash": bare_bash, "bubblewrap": bubblewrap, "sandbox": whole(sandbox), "tool": tool(made)}
        took = measured(ways, args.calls)
    if args.unit:
        took["unit"] = in_unit(min(args.calls, 50))
    found = {}
    for name, times in took.items():
        times.sort()
        found[name] = {"min_ms": times[0], "p50_ms": times[len(times) // 2], "p95_ms": times[int(len(times) * 0.95)]}
    least = found["bare"]
    print(f"{'':12}{'min':>8}{'p50':>8}{'p95':>8}   ms; what it adds to a bare call, at least and at p50")
    for name, of in found.items():
        added = f"+{of['min_ms'] - least['min_ms']:.1f}  +{of['p50_ms'] - least['p50_ms']:.1f}" if name != "bare" else ""
        print(f"{name:12}{of['min_ms']:8.1f}{of['p50_ms']:8.1f}{of['p95_ms']:8.1f}   {added}")
    figures.write(args.json, {"load": os.getloadavg(), "calls": args.calls, **found})


if __name__ == "__main__":
    main()
