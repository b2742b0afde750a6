"""Writes and removes files below one folder: whole or not at all, durably, and only where they are as they were seen.

A file is written beside its place, synced, and put there by a rename once what stands there was compared again. No link is
followed on the way, so nothing outside of the folder is reached. Left out: folders that are closed, and git's own.
Not promised: that nobody writes between the last look and the rename, which is microseconds. Knows nothing about entries.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from appliance.errors import Conflict, Refused
from appliance.ingest.file_reader import is_within

MODE = 0o644  # of a new file, less the umask
GIT = ".git"
PART = ".owlbox-part"  # always the same name: what a killed process left is written over (writes of ours never overlap)


class WorkspaceFiles:
    """The files of a folder, by their path in it."""

    def __init__(self, root: Path, closed: Sequence[str] = ()) -> None:
        self._root = root
        self._closed = tuple(closed)

    def read(self, path: str) -> tuple[bytes, os.stat_result] | None:
        """What a file holds and how it looks; None when there is none. Refused for what is no plain file."""
        with self._translate_errors(path):
            try:
                with self._open_folder(path, is_made=False) as (folder, name):
                    return _read_content(folder, name)
            except FileNotFoundError:
                return None

    def write(self, path: str, data: bytes, seen: bytes | None, mode: int = 0) -> os.stat_result:
        """Put a file in place of what was `seen` there, None for nothing; Conflict when something else is there now."""
        with self._translate_errors(path), self._open_folder(path, is_made=True) as (folder, name):
            part = f".{name}{PART}"
            try:
                handle = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, MODE, dir_fd=folder)
                with open(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    if mode:
                        os.fchmod(file.fileno(), stat.S_IMODE(mode))
                    os.fsync(file.fileno())
                _require_content(path, folder, name, seen)
                os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _remove_file(part, folder)
                raise
            os.fsync(folder)
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def remove(self, path: str, seen: bytes) -> None:
        """Remove a file that holds what was seen; nothing when it is gone already, Conflict when it holds something else."""
        with self._translate_errors(path):
            try:
                with self._open_folder(path, is_made=False) as (folder, name):
                    _require_content(path, folder, name, seen)
                    os.unlink(name, dir_fd=folder)
                    os.fsync(folder)
            except FileNotFoundError:
                pass

    @contextmanager
    def _open_folder(self, path: str, *, is_made: bool) -> Iterator[tuple[int, str]]:
        """The folder of a file, open, and the file's name in it."""
        *folders, name = path.split("/")
        whole = f"{self._root}/{path}"
        if name in ("", ".", "..") or {"", ".", "..", GIT} & {*folders} or name == GIT:
            raise Refused(f"{path} is not a file of the workspace", hint="name a file below it, outside of .git")
        if any(is_within(whole, folder) for folder in self._closed):
            raise Refused(f"{path} lies in a folder of the installation itself", hint="choose another place")
        handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                if is_made:
                    try:
                        os.mkdir(folder, dir_fd=handle)
                        os.fsync(handle)
                    except FileExistsError:
                        pass
                inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle, name
        finally:
            os.close(handle)

    @contextmanager
    def _translate_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = str(self._root / path), None  # not the one beside it that is written first
            why = (
                "it is not a plain file, or goes through a link" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
            )
            raise Refused(f"{path} was not changed: {why}", hint=f"see {self._root}/{path}") from None


def _read_content(folder: int, name: str) -> tuple[bytes, os.stat_result] | None:
    """What a file in an open folder holds; None when it is not there, ELOOP for what is no plain file."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return file.read(), info


def _require_content(path: str, folder: int, name: str, seen: bytes | None) -> None:
    now = _read_content(folder, name)
    if (None if now is None else now[0]) != seen:
        raise Conflict(
            f"{path} has changed on the disk meanwhile and is left as it is", hint="look at it, then ask for the change again"
        )


def _remove_file(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
