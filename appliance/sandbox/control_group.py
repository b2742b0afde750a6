"""A control group of its own for each sandboxed call, where the system has given us one to divide: limits that the kernel keeps.

systemd gives a unit with `Delegate=yes` its group (version 2) and says so by an attribute of the folder. A group with others in it
may hold no process itself, so `find` moves those of ours one down. A call's group has memory, swap and processes limited; whatever
the kernel needs for it counts as well: pages of shared memory and files in memory, pipes, sockets, areas, locks, tables of pages.
Without such a group `sandbox.resource_usage` looks at all of that from outside.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from appliance.clock import monotonic_s, sleep_s

CONTROLLERS = ("memory", "pids")
OURS, CALL = "owlbox", "call-"  # where our own processes are, and how the names of calls' groups begin
DELEGATED = ("user.delegate", "trusted.delegate")  # the attributes; only root reads the second
END_S = 5.0  # how long a group may take to be left by processes that the kernel has ended


def find(proc: Path = Path("/proc/self")) -> Path | None:
    """The group in which calls may have theirs, made ready; None where the system has given us none or keeps no limits in it."""
    try:
        mounts = [line.split(" ") for line in (proc / "mounts").read_text().splitlines()]
        top = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
        own = next((line[3:] for line in (proc / "cgroup").read_text().splitlines() if line.startswith("0::/")), "")
        if top is None or not own:
            return None
        folder = top / own.lstrip("/")
        folder = folder.parent if folder.name == OURS else folder
        return prepare(folder) if _is_delegated(folder) else None
    except OSError:
        return None


def prepare(folder: Path, wanted: tuple[str, ...] = CONTROLLERS) -> Path | None:
    """Make a group ready to be divided; None when these controllers are not to be had in it."""
    if not set(wanted) <= set((folder / "cgroup.controllers").read_text().split()):
        return None
    for left in folder.glob(f"{CALL}*"):  # by somebody who was killed
        with suppress(OSError):
            left.rmdir()
    if not set(wanted) <= set((folder / "cgroup.subtree_control").read_text().split()):
        (folder / OURS).mkdir(exist_ok=True)
        for pid in (folder / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (folder / OURS / "cgroup.procs").write_text(pid)
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
    return folder


def _is_delegated(folder: Path) -> bool:
    for name in DELEGATED:
        with suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


class CallGroup:
    """The group of one call, from before its first process until after its last."""

    def __init__(self, above: Path, execution: str, memory_bytes: int, pids: int) -> None:
        """OSError where there can be none now."""
        self._folder = above / f"{CALL}{execution}"
        self._memory_bytes = memory_bytes
        self._folder.mkdir()
        try:
            for name, value in _limits(memory_bytes, pids):
                if (self._folder / name).exists():  # of swap only where the kernel counts it
                    (self._folder / name).write_text(value)
        except OSError:
            self._folder.rmdir()
            raise

    def take(self, pid: int) -> None:
        """Everything that this process starts from now on is in the group; OSError where it cannot be, or is gone."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def complaint(self) -> str:
        """The limit for which the kernel has ended it, in words, or ""."""
        events = dict(line.split() for line in (self._folder / "memory.events").read_text().splitlines())
        return f"used more than {self._memory_bytes >> 20} MB of memory" if int(events["oom_kill"]) else ""

    def remove(self) -> None:
        """End what is still in it and give it back; one that does not end in time stays, until the next `find`."""
        end_s = monotonic_s() + END_S
        with suppress(OSError):  # kernels before 5.14 do not know it; then nothing is left that would have to be ended
            (self._folder / "cgroup.kill").write_text("1")
        while self._folder.exists() and monotonic_s() < end_s:
            try:
                self._folder.rmdir()
            except OSError:  # still held, or somebody else was quicker
                sleep_s(0.001)


def _limits(memory_bytes: int, pids: int) -> Iterator[tuple[str, str]]:
    yield "memory.max", str(memory_bytes)
    yield "memory.oom.group", "1"  # all of it ends, not the process that the kernel takes for the largest
    yield "memory.swap.max", "0"
    yield "pids.max", str(pids + 1)  # the sandbox's own first process
