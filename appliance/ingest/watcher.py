"""Watches a folder tree and names the files that changed, once each has come to rest; reads them whole.

Owns the thread and what was last told about each file; watchfiles gathers the kernel's notifications, or compares
times by itself where there are none: on a network disk, and when the kernel has no watches left.
Notifications are only hints where to look: what is told is the difference between the tree and what was
told before, so a burst, a lost notification or a change made while nobody watched all end the same way.
A file is told when its size and times have been still for `SETTLE_S`, or it has been gone for that long.
Knows nothing about what the files mean. Not promised: a file that never stops growing is never told.

While nothing happens the thread wakes up once in `STEP_S`. The library sleeps where no stop can end it, so it is asked for
what it has gathered and told to wait for nothing (`step`, `debounce`), and this thread does the sleeping. Each folder is
watched by itself: told to watch a tree, the library would follow links out of it.
"""

import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from appliance.clock import monotonic_s, now_ms
from appliance.errors import BadInput, Conflict, OwlError

if TYPE_CHECKING:
    from watchfiles import Change

LOG = logging.getLogger(__name__)
IGNORED = (".*", "*~", "*.part", "*.tmp", "*.swp", "*.swx", "#*#", "4913")
SETTLE_S = 0.6
STEP_S = 1.05  # between looks at what was notified: with all else an idle core wakes up once a second
BUSY_STEP_S = 0.1  # the same while something happens
MANY = 1000  # notifications at once: where so many come the kernel may have dropped some, and the library does not say so
STOP_S = 2.0  # that the thread has to end
HEAD_BYTES = 8192  # of a file, by which its form is known
POLL_S = 4.0  # between the library's own looks where the kernel notifies of nothing
POLLED_S = 60.0  # between walks then: a file in place of a newer one is not seen by the library
NOTIFIED_S = 3600.0  # between walks otherwise: a notification that comes in the moment in which it clears its list is lost
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "afs", "fuse")  # kinds of file systems that others write to
MOUNTS = Path("/proc/self/mountinfo")
MISSING_S = 2.0  # between looks for a folder that is not there
RETRY_S = 5.0  # after what was told could not be taken

Changes: TypeAlias = "Generator[set[tuple[Change, str]], None, None]"  # what happened, which is not relied on, and a path
Mark = tuple[int, int, int, int]  # inode, size, time of change, time of any change


def is_ignored(name: str) -> bool:
    """True for names of temporary and hidden files."""
    return any(fnmatchcase(name, pattern) for pattern in IGNORED)


def is_text(name: str) -> bool:
    """False for a file name whose bytes are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_inside(root: Path, path: Path) -> bool:
    """True when `path`, every link of it followed, lies in `root`, compared component by component."""
    found, top = os.path.realpath(path), os.path.realpath(root)
    return _is_below(found, top) and not os.path.islink(found)  # a loop of links leads nowhere and is left as it is


def _is_below(path: str, top: str) -> bool:
    """Whether a path is `top` or lies in it, both without links."""
    return path == top or path.startswith(os.path.join(top, ""))


class WalkedTree(Struct, frozen=True):
    """What a walk found: folders with their inodes; files and links; folders that cannot be entered."""

    folders: dict[str, int]
    files: tuple[str, ...]
    closed: tuple[str, ...]


def walk(root: Path) -> WalkedTree:
    """Everything under `root` that is not ignored. Links are listed and never followed."""
    folders: dict[str, int] = {}
    files: list[str] = []
    closed: list[str] = []
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                folders[folder] = os.stat(folder).st_ino
                for item in found:
                    if is_ignored(item.name):
                        continue
                    if item.is_dir(follow_symlinks=False):
                        (waiting if is_text(item.name) else closed).append(item.path)
                    elif item.is_symlink() or item.is_file(follow_symlinks=False):
                        files.append(item.path)
        except (FileNotFoundError, NotADirectoryError):
            folders.pop(folder, None)  # gone while we looked
        except OSError:
            folders.pop(folder, None)
            closed.append(folder)
    return WalkedTree(folders, tuple(sorted(files)), tuple(sorted(closed)))


class FileBytes(Struct, frozen=True):
    """A file read whole: its bytes, and how it looked at that moment."""

    data: bytes
    size_bytes: int
    mtime_ns: int
    mark: str


def mark_of(info: os.stat_result) -> str:
    """The identity and change times of a file, from stat alone: inode, size, mtime, ctime."""
    return f"{info.st_ino}:{info.st_size}:{info.st_mtime_ns}:{info.st_ctime_ns}"


def read_bytes(root: Path, path: Path, max_bytes: Callable[[bytes], int]) -> FileBytes | None:
    """The bytes of a file in `root`; None for what is no file; BadInput says why it cannot be taken whole.

    `max_bytes` is asked with the first `HEAD_BYTES` of the file. Conflict when it changes meanwhile. Links are never followed: one
    that stays inside is None, for its target is read under its own name.
    """
    top = os.path.realpath(root)
    try:
        if path.is_symlink():
            if is_inside(root, path):
                return None
            raise BadInput("a link that leads out of the folder is not followed")
        if not _is_below(os.path.realpath(path.parent), top):
            raise BadInput("not in the folder")
        # Without waiting for the other end of a pipe, and not through a link put there this moment.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                return None
            # A folder above it may have become a link since it was looked at: what counts is where the file was opened.
            if not _is_below(os.readlink(f"/proc/self/fd/{file.fileno()}"), top):
                raise BadInput("not in the folder")
            head = file.read(HEAD_BYTES)
            if before.st_size > (limit := max_bytes(head)):
                raise BadInput(f"too large: {before.st_size} bytes, the limit is {limit}")
            raw = head + file.read(max(0, before.st_size - len(head)) + 1)
            after = os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}") from None
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or len(raw) != before.st_size:
        raise Conflict(f"{path.name} changed while it was read")
    return FileBytes(raw, before.st_size, before.st_mtime_ns, mark_of(before))


def read_text(root: Path, path: Path, max_bytes: int) -> str | None:
    """The text of a file in `root` with "\n" as its line ends, as `read_bytes` reads it; BadInput for what is no UTF-8."""
    found = read_bytes(root, path, lambda head: max_bytes)
    if found is None:
        return None
    if b"\0" in found.data:
        raise BadInput("binary, not text")
    try:
        return found.data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 text (byte {error.start})") from None


class Watch:
    """Tells `take` about changed paths, in batches, from a thread of its own.

    `known` names the paths that the taker believes exist: those that do not are told at the start. What
    `take` cannot accept (OwlError) is told again after a while. Trees `beside` the root are watched along with it;
    they have to be there at the start.
    """

    def __init__(
        self,
        root: Path,
        known: Callable[[], Iterable[Path]],
        take: Callable[[Sequence[Path]], None],
        beside: Sequence[Path] = (),
    ) -> None:
        self._root = root.resolve()
        self._roots = (self._root, *(other.resolve() for other in beside))
        self._known = known
        self._take = take
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._told: dict[str, Mark] = {}
        self._moving: dict[str, tuple[Mark | None, float]] = {}  # path: how it looked, since when
        self._retry_s = 0.0
        self._has_first = False
        self.state = "off"

    def start(self, each_look: Callable[[], None] = lambda: None) -> None:
        """Begin with a full look, then follow changes; `each_look` is called at every look, at least every `MISSING_S`."""
        self._thread = threading.Thread(target=self._run_loop, args=(each_look,), name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; changes in progress are reported at the next start."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._thread = None
        self.state = "off"

    @property
    def is_idle(self) -> bool:
        """True when the first scan is over and every change has been reported."""
        return self._has_first and not self._moving

    # -- the thread ---------------------------------------------------------------------------------

    def _run_loop(self, each_look: Callable[[], None]) -> None:
        while not self._stop.is_set():
            each_look()
            if not self._root.is_dir():
                self._note_missing()
                continue
            folders = self._poll_trees().folders
            try:
                changes = self._open_changes(folders)
            except FileNotFoundError:
                continue  # a folder went while we looked
            except OSError as error:
                LOG.error("%s cannot be watched, trying again in %g s: %s", self._root, RETRY_S, error)
                self._stop.wait(RETRY_S)
                continue
            with closing(changes):
                self._follow_changes(changes, folders, each_look)

    def _open_changes(self, folders: Iterable[str]) -> Changes:
        """Begin to gather notifications, the library's own where the kernel has none."""
        if self.state != "polling" and not is_on_network(self._root):
            try:
                changes = _gather_changes(folders, self._stop, is_polling=False)
                self.state = "watching"
                return changes
            except FileNotFoundError:
                raise
            except OSError as error:  # no watches, or no instances, are left
                LOG.warning("no change notifications for %s, looking every %g s instead: %s", self._root, POLL_S, error)
        self.state = "polling"  # from now on, until the folder is missing or the core starts again
        return _gather_changes(folders, self._stop, is_polling=True)

    def _follow_changes(self, changes: Changes, folders: Mapping[str, int], each_look: Callable[[], None]) -> None:
        """Follow notifications until the set of folders has changed, or may have."""
        walk_s = 0.0  # at once: something may have slipped in before the watch was set
        for found in changes:
            for _, path in found:
                self._note_path(path)
            if len(found) >= MANY or any(path in folders or os.path.isdir(path) for _, path in found):
                return
            if monotonic_s() >= walk_s:
                if self._poll_trees().folders != folders:
                    return
                walk_s = monotonic_s() + (POLLED_S if self.state == "polling" else NOTIFIED_S)
            self._report_settled()
            each_look()
            self._stop.wait(BUSY_STEP_S if self._moving and monotonic_s() >= self._retry_s else STEP_S)

    def _note_missing(self) -> None:
        """The folder is not there: what it held is kept until it is back, for a mount may come late."""
        if self.state != "missing":
            LOG.warning("folder %s is missing; what was read from it is kept", self._root)
        self.state = "missing"
        self._moving.clear()
        self._stop.wait(MISSING_S)

    # -- what changed -------------------------------------------------------------------------------

    def _poll_trees(self) -> WalkedTree:
        """Walk the trees and queue every difference to the last report."""
        trees = [walk(root) for root in self._roots]
        tree = WalkedTree(
            {folder: inode for one in trees for folder, inode in one.folders.items()},
            tuple(path for one in trees for path in one.files),
            tuple(path for one in trees for path in one.closed),
        )
        here = {*tree.files, *tree.closed}
        for path in here:
            self._note_path(path, is_known=True)
        gone = set(self._told) - here
        if not self._has_first:
            gone |= {str(path) for path in self._known()} - here
            self._has_first = True
        for path in gone:
            self._note_path(path, is_known=True)
        return tree

    def _note_path(self, path: str, *, is_known: bool = False) -> None:
        """Poll this path until it stops changing, if it differs from the last report."""
        mark = _mark_of(path)
        if path in self._moving or (path in self._told and self._told[path] == mark):
            return
        if path not in self._told and not is_known and (mark is None or not self._is_ours(path)):
            return
        self._moving[path] = (mark, monotonic_s())

    def _is_ours(self, path: str) -> bool:
        """True for a file or link of a tree no part of whose name is ignored; folders are walked instead."""
        root = next((root for root in self._roots if Path(path).is_relative_to(root)), None)
        if root is None:
            return False
        parts = Path(path).relative_to(root).parts
        is_folder = os.path.isdir(path) and not os.path.islink(path)
        return bool(parts) and not is_folder and not any(map(is_ignored, parts))

    def _report_settled(self) -> None:
        """Tell about everything that has been still for long enough."""
        now_s = monotonic_s()
        if not self._moving or now_s < self._retry_s:
            return
        ready: dict[str, Mark | None] = {}
        for path, (before, since_s) in self._moving.items():
            mark = _mark_of(path)
            if mark != before:
                self._moving[path] = (mark, now_s)
            elif now_s - since_s >= SETTLE_S or _is_old(mark):
                ready[path] = mark
        if not ready:
            return
        try:
            self._take([Path(path) for path in sorted(ready)])
        except OwlError as error:
            LOG.error("%d changed files could not be taken, trying again in %g s: %s", len(ready), RETRY_S, error)
            self._retry_s = monotonic_s() + RETRY_S
            return
        for path, mark in ready.items():
            del self._moving[path]
            if mark is None:
                self._told.pop(path, None)
            else:
                self._told[path] = mark


def is_on_network(path: Path, mounts: Path = MOUNTS) -> bool:
    """True when other machines or programs may change files at this path, of which the kernel notifies nobody here."""
    point, kind = "", ""
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        place, _, file_system = line.partition(" - ")
        here = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), place.split()[4])
        if len(here) >= len(point) and path.is_relative_to(here):  # of two at one point the later lies above
            point, kind = here, file_system.split()[0]
    return kind.partition(".")[0] in NETWORK


def _gather_changes(folders: Iterable[str], stop: threading.Event, *, is_polling: bool) -> Changes:
    """Begin to gather changes; each `next` is what came since the last one, at once. OSError where the kernel refuses."""
    from watchfiles import watch  # 70 ms, for the watch of a service alone

    changes = watch(
        *folders,
        watch_filter=None,
        debounce=0,
        step=0,
        rust_timeout=1,  # ms; with no step it is spent awake, and one wake-up a second costs 1 ms
        yield_on_timeout=True,
        stop_event=stop,
        force_polling=is_polling,
        poll_delay_ms=round(POLL_S * 1000),
        recursive=False,
        ignore_permission_denied=False,
    )
    try:
        first: set[tuple[Change, str]] = next(changes, set())
    except RuntimeError as error:
        raise OSError(str(error)) from None
    return _until_lost(first, changes)


def _until_lost(first: "set[tuple[Change, str]]", changes: Changes) -> Changes:
    """All that is gathered, until a name that is no text comes: the library gives up then, and a walk sees what it was."""
    with closing(changes):
        yield first
        try:
            yield from changes
        except RuntimeError as error:
            LOG.debug("changes are gathered anew: %s", error)


def _mark_of(path: str) -> Mark | None:
    """How a path looks now; None when there is nothing, or something that holds no text, or a link is on the way to it."""
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != folder:
        return None
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return (0, 0, 0, 0)  # there, and not for us
    if stat.S_ISDIR(info.st_mode):
        return (info.st_ino, 0, 0, info.st_ctime_ns)
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISLNK(info.st_mode):
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _is_old(mark: Mark | None) -> bool:
    """True when the kernel says that nothing happened to it for a while; a clock that jumped says nothing."""
    if mark is None or not mark[3]:
        return False
    return now_ms() - mark[3] // 1_000_000 >= SETTLE_S * 1000
