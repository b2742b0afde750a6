"""What a sandbox uses right now: processes, memory, bytes in its folder. Looked at from outside, by sampling.

Where there is a control group for the call (`sandbox.control_group`) the kernel keeps those of processes and memory, and what it
needs itself counts as memory; only the folder and what is counted for the user outside are looked at. Elsewhere looking a few
times a second is what remains, so a limit may be passed for a moment: what is promised is that whoever stays above it is noticed,
not that nobody ever gets there.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.clock import monotonic_s
from appliance.sandbox import folder_tree

_COUNTED = ("RssAnon", "RssShmem", "VmSwap")  # not file pages, which the kernel takes back when it needs them
# The part of its memory that the tables of its pages may take: reading where nothing is fills them, and where there are
# millions, counting pages well would take minutes. Of memory that is used they are a five hundredth.
_TABLES = 8
_IN_MEMORY = ("tmp", "dev/shm")  # folders of every sandbox
_SOCKETS = 256  # what waits in one to be read is memory of the kernel's, up to two megabytes each
_SHARED = "/dev/zero (deleted)"  # how the kernel calls memory shared with nobody, which stays when no process shows it
_OBJECT_BYTES = 200  # what the kernel needs at least for one area of memory, or for one lock on a part of a file
# More areas of memory and locks than ordinary programs have. Counting further takes seconds on a busy machine, in which a call
# goes on taking; that the kernel uses too much is known before anybody counts.
_MANY_OBJECTS = 40_000
# Files that a call has open, pipes among them: what they hold, and who waits for them, is counted for the user outside as well.
_OPEN_FILES = 2000
_KNOWN_FILES = 50_000  # of a folder, that are told from those that a call makes
_OF_OTHERS = ("incoming", "uploads")  # folders in it that the core writes to meanwhile
_TRIES = 3  # to see all of a folder that somebody moves about
_MEMORY_FILES = 50_000  # in each folder that is memory: the kernel keeps a kilobyte for each, beyond the folder's size
_MACHINE = "/proc/meminfo"  # "Shmem" is shared memory, with the files in memory
_KERNEL = "SUnreclaim"  # there: what the kernel needs for itself
MEMORY_S, DISK_S = 0.05, 0.25


@dataclass(frozen=True)
class Use:
    """Threads of all processes, and their memory; pages shared after a fork count for each. Tables of pages are apart."""

    threads: int
    memory_bytes: int
    table_bytes: int = 0


class UsageWatch:
    """Looks at one sandbox now and then and says which limit it has passed."""

    def __init__(
        self, init: int, folder: Path | None, memory_bytes: int, pids: int, disk_bytes: int, *, has_group: bool = False
    ) -> None:
        self._has_group = has_group
        self._net = f"/proc/{init}/net/unix"
        self._root = f"/proc/{init}/root"
        self._proc = f"{self._root}/proc"
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._pids = pids + 1  # the sandbox's own first process
        self._disk_bytes = disk_bytes
        self._free_bytes = _measure_free(folder) if folder else 0
        self._machine = _read_fields(_MACHINE)
        self._disk_due_s = monotonic_s() + DISK_S
        self._before: set[tuple[int, int]] = set()  # the files in the folder when the call begins
        self._before_bytes = _bytes_before(folder, disk_bytes, self._before) if folder else 0
        self._has_filled = False
        # Whether what fills it may have lain there before this call; not if there is room now.
        self._may_be_old = self._was_full = self._before_bytes > disk_bytes

    def complaint(self) -> str:
        """The limit that is passed now, in words, or ""."""
        if not self._has_group and (said := self._check_memory()):
            return said
        if _count_open(self._proc) > _OPEN_FILES:
            return f"opened more than {_OPEN_FILES} files at once"
        began_s = monotonic_s()
        if self._folder is None or began_s < self._disk_due_s:
            return ""
        said = self._check_disk(self._folder)
        now_s = monotonic_s()
        self._disk_due_s = now_s + max(DISK_S, 10 * (now_s - began_s))  # a large folder may not keep us busy
        return said

    def _check_memory(self) -> str:
        """The same of processes and memory, that of the kernel included."""
        if _has_more(self._proc, self._pids) or (use := tree(self._proc)).threads > self._pids:
            return f"started more than {self._pids - 1} processes"
        machine = _read_fields(_MACHINE)
        if self._has_filled_kernel(machine, self._memory_bytes):
            return f"made the kernel use more than {self._memory_bytes >> 20} MB for areas of memory and locks"
        is_over = use.table_bytes > self._memory_bytes // _TABLES or self._is_over(use.memory_bytes, machine)
        if is_over or self._has_hidden(machine):
            return f"used more than {self._memory_bytes >> 20} MB of memory"
        if _count_lines(self._net) > _SOCKETS:
            return f"opened more than {_SOCKETS} sockets"
        if _count_files(self._root) > _MEMORY_FILES:
            return f"made more than {_MEMORY_FILES} files in memory"
        return ""

    def _is_over(self, at_most: int, machine: Mapping[str, int]) -> bool:
        """Whether it uses too much memory; counting well is slow, so only where counting badly says so.

        Where areas of memory grow by the ten thousand it would take seconds, in which they grow on: there counting badly has to do.
        """
        part = self._memory_bytes // 4
        if at_most <= self._memory_bytes:
            return False
        if self._has_filled_kernel(machine, part):
            return True
        most = part + self._grown_bytes(machine, _KERNEL)
        used = shared_fairly(self._proc, at_most, lambda: self._grown_bytes(_read_fields(_MACHINE), _KERNEL) > most)
        if used is None:
            if self._has_filled_kernel(_read_fields(_MACHINE), part):
                return True
            used = shared_fairly(self._proc, at_most)
        return used is None or used > self._memory_bytes

    def _grown_bytes(self, machine: Mapping[str, int], field: str) -> int:
        """Bytes by which the whole machine uses more of this since the call began."""
        return 1024 * (machine.get(field, 0) - self._machine.get(field, 0))

    def _has_hidden(self, machine: Mapping[str, int]) -> bool:
        """Whether it keeps memory that no process shows: shared, and put out of sight.

        The kernel counts that for the whole machine only, so whoever has none of the kind is not meant.
        """
        grown = self._grown_bytes(machine, "Shmem")
        if grown <= self._memory_bytes:
            return False
        return grown - _held_bytes(self._root) > self._memory_bytes and has_mapped(self._proc, _is_shared)

    def _has_filled_kernel(self, machine: Mapping[str, int], most_bytes: int) -> bool:
        """Whether the kernel uses more for it: it knows that for the machine only, so whoever has few objects is not meant.

        Nothing of it runs while they are counted: it would go on, and counting would wait for it.
        """
        if self._grown_bytes(machine, _KERNEL) <= most_bytes:
            return False
        many = min(self._memory_bytes // 2 // _OBJECT_BYTES, _MANY_OBJECTS)
        with stopped(self._proc):
            return kernel_objects(self._proc, many) >= many

    def _may_hide(self, grown: int, written: int) -> bool:
        """Whether a disk that has less room by that much may have lost it to files of theirs that nobody sees.

        They have written that much, or map a file without a name; one on its way through a socket is seen nowhere, and
        sockets are ordinary, so there must be twice as much.
        """
        if written > self._disk_bytes or has_mapped(self._proc, _is_nameless):
            return True
        return grown > 2 * self._disk_bytes and _count_lines(self._net) > 0

    def _most_written(self, to_disks: int) -> int:
        """What it has written at most: a folder that lies in memory is no disk."""
        return max(to_disks, written_bytes(self._proc, "wchar"))

    def _check_disk(self, folder: Path) -> str:
        size = folder_tree.measure(folder, self._disk_bytes)
        used, grown = size.seen_bytes, self._free_bytes - _measure_free(folder)
        if not size.is_whole:  # what we could not see is what lay there before, and what the disk has less room for
            used = max(used, self._before_bytes) + max(0, grown)
        used += deleted_bytes(self._proc, folder)
        written = written_bytes(self._proc) if max(used, grown) > self._disk_bytes else 0
        if used <= self._disk_bytes < grown and self._may_hide(grown, written):
            used = grown
        over = used - self._disk_bytes
        if size.seen_bytes > self._disk_bytes and self._may_be_old and min(grown, self._most_written(written)) < over:
            # It was too full before this call, which may still work and delete, and must not add.
            self._disk_bytes = folder_tree.measure(folder, 1 << 62).seen_bytes
            used = 0
        self._may_be_old = False
        self._has_filled = used > self._disk_bytes
        return f"filled its folder with more than {self._disk_bytes >> 20} MB" if self._has_filled else ""

    def clean(self) -> str:
        """After its end: remove what it has written where it filled its folder, too quickly to be seen or not; what is said then.

        A folder that was too full before, or too large to know what lay in it, is left as it is: it counts for the next call.
        """
        if self._folder is None or self._was_full or len(self._before) > _KNOWN_FILES:
            return ""
        grown = self._free_bytes - _measure_free(self._folder)
        if not self._has_filled and self._before_bytes + grown <= self._disk_bytes:
            return ""
        if folder_tree.measure(self._folder, self._disk_bytes, is_opening=True).seen_bytes <= self._disk_bytes:
            return ""
        kept = _identities(self._folder / name for name in _OF_OTHERS)
        folder_tree.measure(self._folder, 1 << 62, is_opening=True, visit=lambda *seen: self._keep_or_remove(kept, *seen))
        return f"filled its folder with more than {self._disk_bytes >> 20} MB; the files that it had made were removed"

    def _keep_or_remove(self, kept: set[tuple[int, int]], place: int, entry: "os.DirEntry[str]", info: os.stat_result) -> bool:
        if folder_tree.identity_of(info) in self._before or folder_tree.identity_of(os.fstat(place)) in kept:
            return True
        try:
            os.unlink(entry.name, dir_fd=place)
        except OSError:
            return True
        return False


def tree(proc: str) -> Use:
    """The joint usage of the processes listed in a /proc."""
    threads = memory = tables = 0
    for pid in _list_pids(proc):
        fields = _read_fields(f"{proc}/{pid}/status")
        threads += fields.get("Threads", 0)
        memory += 1024 * sum(fields.get(name, 0) for name in _COUNTED)
        tables += 1024 * fields.get("VmPTE", 0)
    return Use(threads, memory, tables)


@contextmanager
def stopped(proc: str) -> Iterator[None]:
    """None of the processes listed in a /proc runs meanwhile, but for the first, which starts none."""
    with ExitStack() as opened:
        found: dict[str, int] = {}
        while new := [pid for pid in _list_pids(proc) if pid != "1" and pid not in found]:
            for pid in new:
                found[pid] = -1
                with suppress(OSError):
                    found[pid] = os.open(f"{proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    opened.callback(os.close, found[pid])
            _send_signal(found.values(), signal.SIGSTOP)
        try:
            yield
        finally:
            _send_signal(found.values(), signal.SIGCONT)


def _send_signal(handles: Iterable[int], number: int) -> None:
    for handle in handles:
        with suppress(OSError):
            signal.pidfd_send_signal(handle, number)


def shared_fairly(proc: str, otherwise: int, is_enough: Callable[[], bool] | None = None) -> int | None:
    """Memory in bytes with shared pages counted once; slow to ask, and `otherwise` where the kernel does not say.

    None where `is_enough` said so on the way.
    """
    total = 0
    for pid in _list_pids(proc):
        if is_enough is not None and is_enough():
            return None
        fields = _read_fields(f"{proc}/{pid}/smaps_rollup")
        if "Rss" not in fields:
            if _read_fields(f"{proc}/{pid}/status").get("RssAnon"):
                return otherwise
            continue  # it has ended
        names = ("Pss_Anon", "Pss_Shmem", "SwapPss") if "Pss_Anon" in fields else ("Pss",)
        total += 1024 * sum(fields.get(name, 0) for name in names)
    return total


def _identities(folders: Iterable[Path]) -> set[tuple[int, int]]:
    found = set()
    for folder in folders:
        try:
            found.add(folder_tree.identity_of(folder.stat()))
        except OSError:
            continue
    return found


def _bytes_before(folder: Path, enough: int, files: set[tuple[int, int]]) -> int:
    """Bytes that lie in a folder when a call begins; more than enough when they cannot be counted. Its files are added."""

    def see(place: int, entry: "os.DirEntry[str]", info: os.stat_result) -> bool:
        if len(files) <= _KNOWN_FILES:
            files.add(folder_tree.identity_of(info))
        return True

    for _ in range(_TRIES):
        size = folder_tree.measure(folder, enough, is_opening=True, visit=see)
        if size.is_whole:
            return size.seen_bytes
    return max(size.seen_bytes, enough)


def kernel_objects(proc: str, enough: int) -> int:
    """Areas of memory that the processes listed in a /proc have mapped, and locks they hold; stops counting at `enough`."""
    found = 0
    for path in (f"{proc}/locks", *(f"{proc}/{pid}/maps" for pid in _list_pids(proc))):
        try:
            with open(path, "rb") as file:
                while found < enough and (data := file.read(1 << 16)):
                    found += data.count(b"\n")
        except OSError:
            continue
    return found


def _held_bytes(root: str) -> int:
    """Bytes in a sandbox's folders that are memory."""
    total = 0
    for name in _IN_MEMORY:
        try:
            info = os.statvfs(f"{root}/{name}")
        except OSError:
            continue
        total += (info.f_blocks - info.f_bfree) * info.f_frsize
    return total


def _is_shared(line: str) -> bool:
    return line.endswith(_SHARED)


def _is_nameless(line: str) -> bool:
    return line.endswith(" (deleted)") and not line.endswith(_SHARED)


def has_mapped(proc: str, is_meant: Callable[[str], bool]) -> bool:
    """Whether a process has something of that kind in its memory, by a line of the kernel's list, or does not let us see."""
    for pid in _list_pids(proc):
        try:
            with open(f"{proc}/{pid}/maps", encoding="utf-8", errors="replace") as file:
                if any(is_meant(line.rstrip()) for line in file):
                    return True
        except PermissionError:
            return True
        except OSError:
            continue
    return False


def written_bytes(proc: str, field: str = "write_bytes") -> int:
    """What all processes have written to disks, and those that have ended; without end where one does not let us see.

    `wchar` is what they have written to anything.
    """
    total = 0
    for pid in _list_pids(proc):
        try:
            with open(f"{proc}/{pid}/io", encoding="utf-8") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith(field))
        except PermissionError:
            return 1 << 62
        except (OSError, StopIteration):
            continue
    return total


def _count_lines(path: str) -> int:
    """The number of lines of a kernel file below its heading."""
    try:
        with open(path, "rb") as file:
            return max(0, file.read().count(b"\n") - 1)
    except OSError:
        return 0


def _count_open(proc: str) -> int:
    """How many files all processes have open; the kernel says it since 6.2, before that they are listed."""
    total = 0
    for pid in _list_pids(proc):
        try:
            total += os.stat(f"{proc}/{pid}/fd").st_size or len(os.listdir(f"{proc}/{pid}/fd"))
        except OSError:
            continue
    return total


def _count_files(root: str) -> int:
    """Files in the fullest of a sandbox's folders that are memory."""
    most = 0
    for name in _IN_MEMORY:
        try:
            info = os.statvfs(f"{root}/{name}")
        except OSError:
            continue
        most = max(most, info.f_files - info.f_ffree)
    return most


def _measure_free(folder: Path) -> int:
    try:
        info = os.statvfs(folder)
    except OSError:
        return 0
    return info.f_bavail * info.f_frsize


def deleted_bytes(proc: str, folder: Path) -> int:
    """Bytes of files that have no name any more and are held open, on the disk of a folder."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return 0
    found: dict[int, int] = {}
    for pid in _list_pids(proc):
        try:
            handles = os.listdir(f"{proc}/{pid}/fd")
        except OSError:
            continue
        for handle in handles:
            try:
                info = os.stat(f"{proc}/{pid}/fd/{handle}")
            except OSError:
                continue
            if info.st_nlink == 0 and info.st_dev == device:
                found[info.st_ino] = info.st_blocks * 512
    return sum(found.values())


def _has_more(proc: str, count: int) -> bool:
    """Whether there are more processes than so many; stops counting there.

    Listing tens of thousands, let alone reading each, takes long enough among them for whoever has to end them to starve.
    """
    found = 0
    try:
        with os.scandir(proc) as entries:
            for entry in entries:
                found += entry.name.isdigit()
                if found > count:
                    return True
    except OSError:
        return False
    return False


def _list_pids(proc: str) -> list[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []


def _read_fields(path: str) -> dict[str, int]:
    """The numbers of a file of "Name: number" lines; empty when it is gone."""
    try:
        with open(path, "rb") as file:
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        number = value.split()[:1]
        if number and number[0].isdigit():
            found[name] = int(number[0])
    return found
