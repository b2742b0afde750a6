"""How much memory a model may take: what the kernel has left, and what our cgroup allows us.

Reads /proc and /sys only. Page cache counts as free: the kernel gives it back when asked.
"""

from pathlib import Path

KIB = 1024


def free_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes this process may still take before the machine, or a cgroup above us, runs out."""
    return min([_available_bytes(proc), *_cgroup_rooms(proc, cgroups)])


def _available_bytes(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    return 0


def _cgroup_rooms(proc: Path, cgroups: Path) -> list[int]:
    """The room left in every cgroup (version 2) that limits us, from ours up to the root."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder, rooms = cgroups / path.strip("/"), []
    while True:
        room = _room_in(folder)
        if room is not None:
            rooms.append(room)
        if folder == cgroups or cgroups not in folder.parents:
            return rooms
        folder = folder.parent


def _room_in(folder: Path) -> int | None:
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(0, int(limit) - used + int(stat.get("inactive_file", 0)))
