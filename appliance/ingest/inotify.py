"""Waits for changes in folders with the kernel's inotify, and wakes up for nothing else. Linux, through ctypes.

Owns one instance of inotify with a watch on each given folder; nothing below them is watched by itself, and no link is
followed. What comes out are paths that something happened to, in no order and without what it was: whoever asks looks there.
OSError where the kernel has no watches left or a folder is not there. Knows nothing about which files matter.
"""

import ctypes
import os
import select
import struct
from collections.abc import Iterable

# From <sys/inotify.h>; the same numbers on every Linux.
MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
Q_OVERFLOW, IGNORED = 0x4000, 0x8000
ONLYDIR, DONT_FOLLOW, EXCL_UNLINK = 0x1000000, 0x2000000, 0x4000000
MASK = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
FLAGS = ONLYDIR | DONT_FOLLOW | EXCL_UNLINK
HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
READ_BYTES = 64 * 1024


class Inotify:
    """Watches on folders. `wake` is an eventfd of the caller's: a wait ends when it is written to."""

    def __init__(self, folders: Iterable[str], wake: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._folders: dict[int, str] = {}
        self._file = self._check(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)
        self._poll.register(wake, select.POLLIN)
        try:
            for folder in folders:
                number = self._libc.inotify_add_watch(self._file, os.fsencode(folder), MASK | FLAGS)
                self._folders[self._check(number, folder)] = folder
        except OSError:
            self.close()
            raise

    def wait(self, limit_s: float | None) -> bool:
        """Sleep until something happened, `wake` was written to, or the limit is over; whether anything is to be read."""
        found = self._poll.poll(None if limit_s is None else round(limit_s * 1000))
        return any(file == self._file for file, _ in found)

    def read(self) -> set[str]:
        """The paths that something happened to since the last call; every folder where the kernel lost count."""
        changed: set[str] = set()
        while True:
            try:
                data = os.read(self._file, READ_BYTES)
            except BlockingIOError:
                return changed
            place = 0
            while place < len(data):
                watch, mask, _, length = HEAD.unpack_from(data, place)
                place += HEAD.size
                name = os.fsdecode(data[place : place + length].rstrip(b"\0"))
                place += length
                if mask & Q_OVERFLOW:
                    changed.update(self._folders.values())
                elif watch in self._folders:
                    folder = self._folders[watch]
                    changed.add(os.path.join(folder, name) if name else folder)
                if mask & IGNORED:  # the folder is gone, and its number may be given again
                    self._folders.pop(watch, None)

    def close(self) -> None:
        """Give the watches back."""
        os.close(self._file)

    def _check(self, number: int, path: str) -> int:
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
        return number
