"""Measures and removes folders that a tool filled, however deep: paths in them may be longer than the kernel takes.

Goes down and up by descriptors, one open at a time, follows no link and uses no path below the folder it is given.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_BYTES = 4096  # an empty file costs the disk something, too


@dataclass(frozen=True)
class FolderSize:
    """Bytes below a folder that could be seen, and whether that is all of them."""

    seen_bytes: int
    is_whole: bool


Visit = Callable[[int, "os.DirEntry[str]", os.stat_result], bool]  # folder, entry; False for one that is gone now


def measure(folder: Path, enough: int, *, is_opening: bool = False, visit: Visit | None = None) -> FolderSize:
    """What everything below a folder takes on the disk; stops counting above `enough`.

    Not whole where a folder is shut to us, or was moved while we were in it. `is_opening`: folders of ours that are shut
    are opened for their owner first. `visit` is told of each file, and may remove it.
    """
    total, linked, is_whole = 0, set[tuple[int, int]](), True
    try:
        handle = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return FolderSize(0, True)
    except OSError:
        return FolderSize(0, False)
    # Of each folder on the way down to the one that is open: which it is, and which of its folders are not looked at yet.
    way: list[tuple[tuple[int, int], list[str]]] = []
    try:
        while total <= enough:
            names: list[str] = []
            for entry, info in list(_scan_entries(handle)) if visit else _scan_entries(handle):
                if stat.S_ISDIR(info.st_mode):
                    names.append(entry.name)
                elif visit is not None and not visit(handle, entry, info):
                    continue
                elif info.st_nlink > 1:
                    if identity_of(info) in linked:
                        continue
                    linked.add(identity_of(info))
                total += max(info.st_blocks * 512, _FILE_BYTES)
            way.append((identity_of(os.fstat(handle)), names))
            inner = -1
            while inner < 0:
                if way[-1][1]:
                    inner, is_seen = _open_inner(handle, way[-1][1].pop(), is_opening)
                    is_whole = is_whole and is_seen
                    continue
                way.pop()
                if not way:
                    return FolderSize(total, is_whole)
                above = os.open("..", _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = above
                if identity_of(os.fstat(handle)) != way[-1][0]:
                    return FolderSize(total, False)
            os.close(handle)
            handle = inner
    except OSError:
        return FolderSize(total, False)
    finally:
        os.close(handle)
    return FolderSize(total, is_whole)


def remove(folder: Path) -> int:
    """Remove a folder with all that is in it; how many files and folders are left because they could not be."""
    try:
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return 0
    except OSError:
        return 1
    left, has_changed = 0, True
    try:
        while has_changed:
            left, has_changed = 0, False
            for entry, info in list(_scan_entries(top)):
                try:
                    if stat.S_ISDIR(info.st_mode):
                        _lift_folders(entry.name, top)
                        os.rmdir(entry.name, dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=top)
                    has_changed = True
                except OSError:
                    left += 1
    finally:
        os.close(top)
    try:
        os.rmdir(folder)
    except OSError:
        return max(1, left)
    return 0


def _lift_folders(name: str, top: int) -> None:
    """Remove the files of a folder and move its folders up beside it, so that nothing ever lies deep."""
    inner = _open_required(top, name)
    try:
        for number, (entry, info) in enumerate(list(_scan_entries(inner))):
            if not stat.S_ISDIR(info.st_mode):
                os.unlink(entry.name, dir_fd=inner)
                continue
            os.close(_open_required(inner, entry.name))  # one that is shut cannot be moved
            os.rename(entry.name, f".removed-{os.urandom(8).hex()}-{number}", src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)


def _open_required(handle: int, name: str) -> int:
    inner, _ = _open_inner(handle, name, is_opening=True)
    if inner < 0:
        raise PermissionError(name)
    return inner


def _scan_entries(handle: int) -> "Iterator[tuple[os.DirEntry[str], os.stat_result]]":
    with os.scandir(handle) as entries:
        for entry in entries:
            try:
                yield entry, entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it is gone


def _open_inner(handle: int, name: str, is_opening: bool) -> tuple[int, bool]:
    """A descriptor of a folder in one that is open, -1 when it cannot be opened, and whether there was nothing to miss."""
    try:
        return os.open(name, _FOLDER, dir_fd=handle), True
    except (FileNotFoundError, NotADirectoryError):
        return -1, True
    except OSError:
        if not is_opening:
            return -1, False
    try:
        place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        try:
            path = f"/proc/self/fd/{place}"
            os.chmod(path, stat.S_IMODE(os.fstat(place).st_mode) | stat.S_IRWXU)
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), True
        finally:
            os.close(place)
    except OSError:
        return -1, False


def identity_of(info: os.stat_result) -> tuple[int, int]:
    """Which file or folder it is."""
    return info.st_dev, info.st_ino
