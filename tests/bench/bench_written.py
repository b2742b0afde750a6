"""What is written to the card: an idle hour, and a hundred messages, beside a naive configuration. `make bench-written`.

    python tests/bench/bench_written.py [--minutes N] [--messages N] [--json FILE]

Two boxes side by side with the same scripted model, on the same disk: ours, and one whose database is as SQLite would have it by
itself (a rollback journal, `synchronous` full) and which logs everything. Counted are the bytes that core and broker had the kernel
write to the disk (/proc/PID/io). Not counted is what a file system adds. The homes must lie on a disk: on tmpfs nothing is written.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures
from process import Box, Core, boxed, script, until

from appliance.clock import monotonic_s, sleep_s

ANSWER = "The barn owl hunts at night over fields and finds its way by what it hears. " * 4
PLAY = f'[[turns]]\nrepeat = true\ntext = "{ANSWER}"\nchunk_size = 4\n'
# A core whose connections are set as SQLite has them by itself; the rest of it is ours.
NAIVE = """
import sys
from appliance.store import connection_settings as own
def by_itself(db):
    db.pragma("journal_mode", "delete")
    db.pragma("synchronous", "full")
kept = tuple(one for one in own.SETTINGS if one not in (own._set_synchronous, own._temporary_in_memory))
own.SETTINGS = (by_itself, *kept)
own.WITH_LOG = own.SETTINGS
from appliance.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def serve_naive(box: Box) -> Core:
    """A naive core that accepts connections."""
    words = [sys.executable, "-c", NAIVE, "--home", str(box.home.root), "serve"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(words, env={**box.environ, "OWLBOX__SYSTEM__LOG_LEVEL": "debug"}, **pipes)
    box.children.append(child)
    core = Core(box, child)
    until(core.is_up, "the core listens")
    return core


def written(pids: list[int]) -> int:
    """Bytes that these processes had the kernel write to the disk so far."""
    os.sync()
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/io").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def measure(minutes: float, messages: int) -> dict[str, Any]:
    """Bytes of both boxes: for the messages, and for the time in which nothing is asked."""
    places = [Path(tempfile.mkdtemp(prefix="owl-written-", dir="/tmp")) for _ in range(4)]
    with boxed(places[0], places[1]) as ours, boxed(places[2], places[3]) as naive:
        script(ours, PLAY)
        script(naive, PLAY)
        cores = {"ours": ours.serve(), "naive": serve_naive(naive)}
        pids = {name: [core.child.pid, core.broker_pid()] for name, core in cores.items()}
        for core in cores.values():  # what a first question has to set up
            core.call("message.send", text="hoot")
        begun = {name: written(known) for name, known in pids.items()}
        for number in range(messages):
            for core in cores.values():
                core.call("message.send", text=f"What of question {number}?", thread="" if number % 10 == 0 else core_thread(core))
        asked = {name: written(known) for name, known in pids.items()}
        sleep_s(10)  # what follows the last answer
        before, began_s = {name: written(known) for name, known in pids.items()}, monotonic_s()
        sleep_s(minutes * 60)
        after, seconds = {name: written(known) for name, known in pids.items()}, monotonic_s() - began_s
    per = {
        name: {
            "per_100_messages": round((asked[name] - begun[name]) * 100 / messages),
            "per_idle_hour": round((after[name] - before[name]) * 3600 / seconds),
        }
        for name in cores
    }
    return {"messages": messages, "idle_seconds": round(seconds), **per}


def core_thread(core: Core) -> str:
    """The newest thread."""
    return str(core.call("thread.list")[0]["id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--json", default="", metavar="FILE")
    args = parser.parse_args()
    found = measure(args.minutes, args.messages)
    for name in ("ours", "naive"):
        print(f"{name:6} {found[name]['per_100_messages']} bytes per 100 messages, {found[name]['per_idle_hour']} per idle hour")
    figures.write(args.json, found)


if __name__ == "__main__":
    main()
