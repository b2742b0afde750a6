"""The place of `backups.target`: whether it is where it is said to be, and the outcome of the last backup that went there.

A folder below a mount point with nothing mounted lies on the machine's own disk: a backup there would be lost with it. The disk of
the first backup is recorded beside the home's own backups, and another one is not taken for it without being asked. Knows no disk
that is not in the kernel's table of mounts, and does not ask servers.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import BadInput, OwlError, Unavailable
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.upkeep import sealed_backups

RECORD = "target.json"
ROOT = Path("/")
MOUNT_PLACES = (Path("/media"), Path("/mnt"), Path("/run/media"))  # where desktops and people mount disks


class Delivery(Struct, frozen=True):
    """What is known of a target: its disk, when a backup came there last, and why the last try failed ("" for none)."""

    place: str
    disk: str = ""
    at_ms: int = 0
    problem: str = ""


def expand(place: str) -> Path:
    """The folder of a target that is no server; BadInput for one that scp would take for a server, such as nas:/backups."""
    if re.match(r"[^/]+:(?!//)", place) and not os.path.exists(place):
        raise BadInput(f"{place} is not a place for backups", hint=sealed_backups.PLACES)
    return Path(place).expanduser().absolute()


def require_disk(home: Home, folder: Path, root: Path = ROOT) -> None:
    """Unavailable when a folder is where a disk belongs and no disk is mounted there."""
    device = _device(folder)  # first: looking is what lets systemd mount what it mounts on demand
    point = _missing_mount(folder.resolve(), root)
    if point is not None and device in (_device(ROOT), _device(home.root)):
        raise Unavailable(
            f"no disk is mounted at {point}: a backup in {folder} would be on the disk of this machine",
            hint="connect the disk and mount it (lsblk shows disks), or name another place: owlbox config set backups.target DIR",
        )


def require_same_disk(home: Home, place: str) -> None:
    """Unavailable when the target is on another disk than the backups that went there before."""
    known, disk = read(home, place), find_disk(expand(place))
    if known is not None and known.disk and known.disk != disk:
        raise Unavailable(
            f"{place} is not on the disk that took the last backup: that was {known.disk}, this is {disk}",
            hint=f"connect that disk; or take this one from now on: owlbox backup --to {place}",
        )


def is_same_disk(home: Home, place: str) -> bool:
    """Whether a target lies on the disk of the home."""
    return _device(expand(place)) == _device(home.root)


def read(home: Home, place: str) -> Delivery | None:
    """What is recorded of a target; None when nothing went there, or it is another one now."""
    try:
        found = msgspec.json.decode((home.backups / RECORD).read_bytes(), type=Delivery)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.place == place else None


def record(home: Home, place: str, error: OwlError | None = None) -> None:
    """Record that a backup came to the target, or why it did not. A home whose disk takes no writes keeps no record."""
    known = read(home, place) or Delivery(place)
    if error is not None:
        made = msgspec.structs.replace(known, problem=error.message)
    else:
        made = Delivery(place, "" if sealed_backups.is_remote(place) else find_disk(expand(place)), now_ms())
    with suppress(OSError):
        home.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths.put(home.backups / RECORD, msgspec.json.encode(made))


def find_disk(folder: Path, root: Path = ROOT) -> str:
    """What tells a folder's disk from others: its UUID, else what is mounted (`nas:/backups`)."""
    table = _mounts(root)
    folder = folder.resolve()
    nearest = max((point for point in table if folder.is_relative_to(point)), key=lambda point: len(point.parts), default=None)
    source = table[nearest] if nearest is not None else ""
    if source.startswith("/dev/"):
        for link in (root / "dev/disk/by-uuid").glob("*"):
            if link.resolve() == Path(source).resolve():
                return link.name
    return source


def _missing_mount(folder: Path, root: Path) -> Path | None:
    """The mount point that a folder is meant to lie on, when nothing is mounted there; None otherwise."""
    mounted = _mounts(root)
    wanted = [Path(*folder.parts[: len(place.parts) + 1]) for place in MOUNT_PLACES if place in folder.parents]
    try:
        lines = (root / "etc/fstab").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    fields = [line.split() for line in lines if not line.lstrip().startswith("#")]
    named = (Path(_plain(field[1])) for field in fields if len(field) > 2 and field[1].startswith("/"))
    wanted += [point for point in named if point != ROOT and folder.is_relative_to(point)]
    # /run/media/NAME/DISK has a folder for each person: any mount between the place and the folder will do.
    is_held = any(folder.is_relative_to(point) and any(point.is_relative_to(one) for one in wanted) for point in mounted)
    return None if is_held or not wanted else wanted[0]


def _mounts(root: Path) -> dict[Path, str]:
    """The mounted file systems by mount point."""
    found = {}
    for line in (root / "proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
        words = line.split()
        sort, source = words[words.index("-") + 1 :][:2]
        if sort != "autofs":
            found[Path(_plain(words[4]))] = _plain(source)
    return found


def _plain(text: str) -> str:
    """A field of the kernel's tables, which write a space as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _device(path: Path) -> int:
    """The device of a folder, or of the nearest one above that is there."""
    while True:
        try:
            return os.stat(path).st_dev
        except OSError:
            path = path.parent
