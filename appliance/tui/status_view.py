"""What `/status` says: what runs and what it takes, channels, sessions, the queue, and what is wrong. Asks nobody itself.

A person with standard rights is told less by the core, and sees what there is.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PROC = Path("/proc")


def status_lines(status: Mapping[str, Any], waiting: int, thread: str, proc: Path = PROC) -> list[str]:
    """One fact a line, what is wrong first."""
    broker = status.get("broker") or {}
    problems = [
        *status.get("faults", ()),
        *status.get("folder", {}).get("problems", ()),
        *status.get("roles", {}).get("problems", ()),
    ]
    if end := broker.get("last_end"):
        problems.append(f"the model process {end}, and starts again when needed")
    lines = [("problem", problem) for problem in problems]
    lines.append(
        ("core", f"version {status['version']}, up {status['uptime_s']} s, pid {status['pid']}{_takes(status['pid'], proc)}")
    )
    if broker:
        where = f", pid {broker['pid']}{_takes(broker['pid'], proc)}" if broker.get("pid") else ""
        lines.append(("broker", f"{broker['state']}, {broker.get('model') or 'no model loaded yet'}{where}"))
    if local := status.get("local"):
        lines.append(("model", f"{local['model']}, {local['tier']} ({local['basis']})"))
    facts: dict[str, Callable[[], str]] = {
        "home": lambda: str(status["home"]),
        "entries": lambda: str(status["entries"]),
        "answering": lambda: str(status["answering"]),
        "sandbox": lambda: f"{status['sandbox']['state']}: {status['sandbox']['reason']}" if status["sandbox"]["reason"] else "",
        "channels": lambda: ", ".join(f"{name} {_state_of(state)}" for name, state in status["channels"].items()),
        "page": lambda: str(status["page"]),
        "queue": lambda: _counts(status["queue"]["tasks"]),
        "workers": lambda: _counts(status["queue"]["workers"]),
    }
    keys = {"workers": "queue"}
    lines += [(name, fact()) for name, fact in facts.items() if keys.get(name, name) in status]
    for one in status.get("sessions", ())[:5]:
        lines.append(("session", f"{one['id']}, {one['status']}"))
    for one in status.get("processes", ()):
        if one["is_alive"] and one["kind"] not in ("core", "broker"):
            lines.append((str(one["kind"]), f"pid {one['pid']}{_takes(one['pid'], proc)}"))
    lines += [("waiting", f"{waiting} for your decision"), ("thread", thread or "none yet")]
    return [f"{name:<9} {value}" for name, value in lines if value]


def _state_of(state: object) -> str:
    return {True: "open", False: "off"}.get(state, str(state)) if isinstance(state, bool) else str(state)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count) or "nothing"


def _takes(pid: int, proc: Path) -> str:
    """The memory and the processor time of a process of this computer; nothing for one that cannot be seen."""
    try:
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        times = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    except (OSError, IndexError, ValueError):
        return ""
    memory_mb = pages * os.sysconf("SC_PAGE_SIZE") // 2**20
    return f", {memory_mb} MB, {sum(map(int, times)) / os.sysconf('SC_CLK_TCK'):.0f} s of CPU"
