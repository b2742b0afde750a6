"""Watches a folder tree and names the files that changed, once each has come to rest; reads them whole.

Owns the thread and what was last told about each file; `ingest.inotify` waits for the kernel's notifications.
Notifications are only hints where to look: what is told is the difference between the tree and what was
told before, so a burst, a lost notification or a change made while nobody watched all end the same way.
A file is told when its size and times have been still for `SETTLE_S`, or it has been gone for that long.
Knows nothing about what the files mean. Not promised: a file that never stops growing is never told.

While nothing happens the thread sleeps without a clock: no wake-up at all. The library used until 2026-11 woke up twice a
second, which was all that an idle core did.
"""

import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from appliance.clock import monotonic_s, now_ms
from appliance.errors import BadInput, Conflict, OwlError
from appliance.ingest.inotify import Inotify

LOG = logging.getLogger(__name__)
IGNORED = (".*", "*~", "*.part", "*.tmp", "*.swp", "*.swx", "#*#", "4913")
SETTLE_S = 0.6
BUSY_STEP_S = 0.1  # between looks while something happens
STOP_S = 2.0  # that the thread has to end
HEAD_BYTES = 8192  # of a file, by which its form is known
POLL_S = 4.0  # between looks when the kernel has no notifications left
MISSING_S = 2.0  # between looks for a folder that is not there
RETRY_S = 5.0  # after what was told could not be taken

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
    found = os.path.realpath(path)
    return _is_below(found, root) and not os.path.islink(found)  # a loop of links leads nowhere and is left as it is


def _is_below(path: str, root: Path) -> bool:
    """Whether a path without links is `root` or lies in it."""
    top = os.path.realpath(root)
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
    try:
        if path.is_symlink():
            if is_inside(root, path):
                return None
            raise BadInput("a link that leads out of the folder is not followed")
        if not is_inside(root, path.parent):
            raise BadInput("not in the folder")
        # Without waiting for the other end of a pipe, and not through a link put there this moment.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                return None
            # A folder above it may have become a link since it was looked at: what counts is where the file was opened.
            if not _is_below(os.readlink(f"/proc/self/fd/{file.fileno()}"), root):
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
        self._wake = -1  # an eventfd, which ends a sleep that has no clock
        self._thread: threading.Thread | None = None
        self._told: dict[str, Mark] = {}
        self._moving: dict[str, tuple[Mark | None, float]] = {}  # path: how it looked, since when
        self._retry_s = 0.0
        self._has_first = False
        self.state = "off"

    def start(self) -> None:
        """Begin with a full look, then follow changes."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run_loop, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; changes in progress are reported at the next start."""
        self._stop.set()
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join(STOP_S)
            if not self._thread.is_alive():
                os.close(self._wake)
            self._thread = None
        self.state = "off"

    @property
    def is_idle(self) -> bool:
        """True when the first scan is over and every change has been reported."""
        return self._has_first and not self._moving

    # -- the thread ---------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        has_warned = False
        while not self._stop.is_set():
            if not self._root.is_dir():
                self._note_missing()
                continue
            tree = self._poll_trees()
            try:
                notified = Inotify(tree.folders, self._wake)
            except (FileNotFoundError, NotADirectoryError):
                continue  # a folder went while we looked
            except OSError as error:
                if not has_warned:
                    LOG.warning("no change notifications for %s, looking every %g s instead: %s", self._root, POLL_S, error)
                has_warned = True
                self._poll_after("polling", POLL_S)
                continue
            with closing(notified):
                self.state, has_warned = "watching", False
                if self._poll_trees().folders == tree.folders:  # nothing slipped in before the watch was set
                    self._follow_notifications(notified, tree)

    def _follow_notifications(self, notified: Inotify, tree: WalkedTree) -> None:
        """Follow notifications until the set of folders has changed."""
        while not self._stop.is_set():
            self._report_settled()
            refused_s = self._retry_s - monotonic_s()
            limit_s = max(refused_s, BUSY_STEP_S) if self._moving else None
            if not notified.wait(limit_s) or self._stop.wait(BUSY_STEP_S):  # what belongs together comes at once
                continue
            changes = notified.read()
            for path in changes:
                self._note_path(path)
            if any(path in tree.folders or os.path.isdir(path) for path in changes):
                return

    def _note_missing(self) -> None:
        """The folder is not there: what it held is kept until it is back, for a mount may come late."""
        if self.state != "missing":
            LOG.warning("folder %s is missing; what was read from it is kept", self._root)
        self.state = "missing"
        self._moving.clear()
        self._stop.wait(MISSING_S)

    def _poll_after(self, state: str, seconds: float) -> None:
        """Without notifications: settle what moves, then wait until the next look."""
        self.state = state
        end_s = monotonic_s() + seconds
        self._report_settled()
        while self._moving and monotonic_s() < end_s and not self._stop.wait(BUSY_STEP_S):
            self._report_settled()
        self._stop.wait(max(0.0, end_s - monotonic_s()))

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
