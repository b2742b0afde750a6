"""What an idle owl costs, whatever is switched on: wake-ups, bytes written, calls of models. `make bench-idle`.

    python tests/bench/bench_idle.py [--minutes N] [--only WAY,WAY] [--json FILE]

Boxes side by side: one with nothing switched on, one with the heartbeat on, an empty checklist and 20 schedules that are not due,
and one for each channel or part, which has those, too. Counted are requests to models, bytes by
which the database and its log grew or changed, what all of a box's processes wrote anywhere, how often any of their threads
woke up, and how much memory they have for themselves, without the model process. Mail, Matrix and Slack have servers of their own,
as in the tests. Beside them sleeps a process that does nothing. Knows nothing about what is good enough.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import channel_rig
import figures
from homeserver import python, synapse
from mail_servers import dovecot, receiver
from needs import lack
from process import Box, Core, boxed, until
from slack_server import workspace

from appliance.clock import monotonic_s, sleep_s
from appliance.runtime.rpc_client import Client

FUTURE = "on 5 January 2035 at 9am"
SCHEDULES = 20
START_S = 70  # a minute after its start a core looks at its model process for the last time
BARE, LADEN = "nothing", "heartbeat and schedules"
WEB = {"CHANNELS__WEB__ENABLED": "true", "CHANNELS__WEB__PORT": "0"}
ENCRYPTED = "Matrix with an encrypted room"
WAYS: dict[str, dict[str, str]] = {
    BARE: {"HEARTBEAT__ENABLED": "false"},
    LADEN: {},
    "web page": WEB,
    "web page and programs": {**WEB, "CHANNELS__PROGRAMS__ENABLED": "true"},
    "mail": {"CHANNELS__EMAIL__ENABLED": "true"},
    "Matrix": {"CHANNELS__MATRIX__ENABLED": "true"},
    ENCRYPTED: {"CHANNELS__MATRIX__ENABLED": "true"},
    "Slack": {"CHANNELS__SLACK__ENABLED": "true"},
    "webhooks": {"CHANNELS__WEBHOOK__ENABLED": "true", "CHANNELS__WEBHOOK__URL": "http://127.0.0.1:9/"},
    "figures for Prometheus": {"METRICS__PORT": "19817"},
    "two MCP servers": {f"TOOLS__MCP__{name}__COMMAND": "/bin/cat" for name in ("ONE", "TWO")},
    "audit in a file": {"AUDIT__FILE": "audit.jsonl"},
    "another folder of skills": {"SKILLS__FOLDERS": '["/srv"]'},
}


def connect_mail(stack: ExitStack) -> dict[str, Any]:
    """The table of a channel at servers of its own, which end with the stack."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="owlmail-", dir="/tmp")))
    folder.chmod(0o755)
    server, sink = stack.enter_context(dovecot(folder / "d")), stack.enter_context(receiver())
    given = {"imap_host": "127.0.0.1", "imap_port": server.port, "smtp_host": "127.0.0.1", "smtp_port": sink.port}
    return {**given, "user": "owl", "password": "secret", "from_address": "owl@example.org", "tls": False}


def connect_matrix(stack: ExitStack) -> dict[str, Any]:
    """The same; the account is in no room."""
    server = stack.enter_context(synapse(Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))))
    owl = server.someone("owl")
    return {"homeserver": server.url, "user": owl.user, "token": owl.token}


def connect_encrypted(stack: ExitStack) -> dict[str, Any]:
    """The same, invited to an encrypted room: it joins by itself, and makes its keys."""
    server = stack.enter_context(synapse(Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))))
    owl, ann = server.someone("owl"), server.someone("ann")
    state = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    ann.room(owl.user, initial_state=[state])
    return {"homeserver": server.url, "user": owl.user, "token": owl.token, "policy": "open"}


def connect_slack(stack: ExitStack) -> dict[str, Any]:
    """The same; the server here sends a ping every 20 seconds."""
    space = stack.enter_context(workspace())
    return {"api_url": space.url, "bot_token": "xoxb", "app_token": "xapp"}


def list_ways() -> list[str]:
    """The ways whose servers are on this machine."""
    matrix = "" if python() else "make servers"
    lacking = {"mail": lack("dovecot"), "Matrix": matrix, ENCRYPTED: matrix}
    return [name for name in WAYS if not lacking.get(name)]


SERVERS = {
    "mail": ("email", connect_mail),
    "Matrix": ("matrix", connect_matrix),
    ENCRYPTED: ("matrix", connect_encrypted),
    "Slack": ("slack", connect_slack),
}


@dataclass(frozen=True)
class Cost:
    """What was counted until a moment, or between two."""

    wakes: int
    written: dict[str, tuple[int, int]]  # size and time of change of each file of the database
    calls: int
    bytes: int = 0  # handed to the kernel, to whatever file

    def since(self, before: "Cost") -> dict[str, Any]:
        changed = sum(size for name, (size, at) in self.written.items() if before.written.get(name) != (size, at))
        counts = {"wakes": self.wakes - before.wakes, "written_bytes": self.bytes - before.bytes}
        return {**counts, "database_bytes": changed, "model_calls": self.calls - before.calls}


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


def written(pid: int) -> int:
    """Bytes that a process has handed to the kernel so far; 0 of one that lets nobody but root look at it, as the broker."""
    try:
        lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    except PermissionError:
        return 0
    return int(lines["wchar"])


def memory_mb(pid: int) -> float:
    """The memory that a process has for itself: what of its program's files it shares with others is left out."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += family(int(child))
    return found


def look(box: Box, pids: list[int]) -> Cost:
    """What has been counted so far; reads only."""
    files = {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in box.home.root.glob("owlbox.db*")}
    calls = sum("generated" in line for line in (box.home.logs / "broker/broker.log").read_text().splitlines())
    return Cost(sum(map(wakes, pids)), files, calls, sum(map(written, pids)))


def laden(core: Core) -> None:
    """Twenty schedules that are not due."""
    with core.client() as client:
        for number in range(SCHEDULES):
            _add(client, number)


def _add(client: Client, number: int) -> None:
    given = {"name": f"number {number}", "frequency": FUTURE}
    outcome = client.call("tool.call", {"name": "create_schedule", "arguments": given}, deadline_s=30)
    assert outcome["status"] < 300, outcome


def is_connected(core: Core, channel: str) -> bool:
    """Whether a channel is."""
    return any(one["name"] == channel and one["state"] == "connected" for one in core.call("channel.list"))


def settled(box: Box, pids: list[int], still_s: float) -> Cost:
    """What has been counted once nothing was written for a while: a start has its own work to do."""
    before = look(box, pids)
    while True:
        sleep_s(still_s)
        after = look(box, pids)
        if after.written == before.written and after.calls == before.calls:
            return after
        before = after


def opened(stack: ExitStack) -> Box:
    """A box that is gone at the end."""
    place, runtime = (Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp"))) for _ in range(2))
    return stack.enter_context(boxed(place, runtime))


def measure(minutes: float, names: Sequence[str]) -> dict[str, Any]:
    """Counts of the idle time for each way, and of a process that sleeps."""
    nothing = subprocess.Popen(["sleep", str(minutes * 60 + 900)])
    try:
        with ExitStack() as stack:
            boxes = {name: opened(stack) for name in names}
            pids, models = {}, set[int]()
            for name, box in boxes.items():
                box.environ.update({f"OWLBOX__{key}": value for key, value in WAYS[name].items()})
                box.environ["PYTHONHASHSEED"] = "random"  # a process from its first line on: a forked one has its parent's memory
                if name in SERVERS:
                    table, connect = SERVERS[name]
                    box.environ.update(channel_rig.settings(f"channels.{table}", connect(stack)))
                core = box.serve()
                models.add(core.broker_pid())
                if name != BARE:
                    laden(core)
                pids[name] = core.child.pid
                if name in SERVERS:
                    until(lambda: is_connected(core, SERVERS[name][0]), f"{name} is connected", 60)  # noqa: B023
            for name, box in boxes.items():
                settled(box, family(pids[name]), 5)
            sleep_s(START_S)
            known = {name: family(pid) for name, pid in pids.items()}
            before = {name: look(box, known[name]) for name, box in boxes.items()}
            began_s, slept = monotonic_s(), wakes(nothing.pid)
            sleep_s(minutes * 60)
            after = {name: look(box, known[name]) for name, box in boxes.items()}
            seconds = monotonic_s() - began_s
            found = {name: after[name].since(before[name]) for name in names}
            for name, one in found.items():
                one["wakes_per_s"] = round(one["wakes"] / seconds, 3)
                one["processes"] = len(known[name])
                one["memory_mb"] = round(sum(memory_mb(pid) for pid in known[name] if pid not in models), 1)
            return {"seconds": round(seconds), "ways": found, "sleeping_process_wakes": wakes(nothing.pid) - slept}
    finally:
        nothing.terminate()
        nothing.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", default=",".join(list_ways()), metavar="WAY,WAY")
    parser.add_argument("--json", default="", metavar="FILE")
    args = parser.parse_args()
    found = measure(args.minutes, args.only.split(","))
    print(f"{found['seconds']} s; a process that sleeps woke up {found['sleeping_process_wakes']} times")
    print(f"{'':<28}{'processes':>10}{'wake-ups':>10}{'a second':>10}{'database':>10}{'written':>10}{'model calls':>12}{'MB':>8}")
    for name, one in found["ways"].items():
        sizes = f"{one['database_bytes']:>10}{one['written_bytes']:>10}{one['model_calls']:>12}{one['memory_mb']:>8}"
        print(f"{name:<28}{one['processes']:>10}{one['wakes']:>10}{one['wakes_per_s']:>10}{sizes}")
    figures.write(args.json, found)


if __name__ == "__main__":
    main()
