"""A disk that remembers every write and every flush, so that what a power cut would have left can be made again for any moment.

A file system of one file is served to the kernel over /dev/fuse, and a loop device on that file is the disk. Between two flushes a
real disk may keep writes in a cache of its own and lose any of them: `crash` gives the bytes for a moment with a random part of
the writes since the last flush missing, the last one perhaps torn between two sectors. Writes are served one after the other, so
a flush covers what came before it. Needs root. Knows nothing of what is on the disk.

The process that serves the disk must not map files of it into its memory: it would wait for itself with Python's lock held. When
it is killed while the disk is mounted, whoever calls sync waits for it until `echo 1 >/sys/fs/fuse/connections/N/abort`.
"""

import ctypes
import errno
import os
import random
import struct
import subprocess
import threading
from pathlib import Path

SECTOR = 512
WRITE_MOST = 131_072
NAME = b"disk"
ROOT_NODE, FILE_NODE = 1, 2
# Operations of <linux/fuse.h>; others are answered with "not known here", which the kernel takes well.
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS = 1, 2, 3, 4, 14, 15, 16, 17
RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 18, 20, 25, 26, 36, 42
HEAD = struct.Struct("<IIQQIIII")
MNT_DETACH = 2
CLONE_NEWNS = 0x20000
LIBC = ctypes.CDLL(None, use_errno=True)


def hide_mounts() -> None:
    """Mount for this process alone: a sandbox that another one starts meanwhile would keep a disk in use after it was unmounted."""
    if LIBC.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


class RecordedDisk:
    """A disk in memory, seen as the file `path`; `log` grows with what is written to it."""

    def __init__(self, place: Path, content: bytes) -> None:
        """Serve `content` below an empty folder."""
        self.place, self.path = place, place / NAME.decode()
        self.log: list[tuple[int, bytes] | None] = []  # a write with its offset, or None for a flush
        self._first, self._now = content, bytearray(content)
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0".encode()
        if LIBC.mount(b"recorded", os.fsencode(place), b"fuse", 0, options):
            os.close(self._fd)
            raise OSError(ctypes.get_errno(), f"cannot mount at {place}")
        self._thread = threading.Thread(target=self._serve, name="recorded-disk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Unmount it; nobody may use it any more."""
        LIBC.umount2(os.fsencode(self.place), MNT_DETACH)
        self._thread.join(10)
        os.close(self._fd)

    def crash(self, moment: int, dice: random.Random) -> bytearray:
        """What the disk holds when the power fails after so many entries of the log."""
        flushed = max((number for number in range(moment) if self.log[number] is None), default=0)
        found = bytearray(self._first)
        cached = [entry for entry in self.log[flushed:moment] if entry is not None]
        for entry in self.log[:flushed]:
            if entry is not None:
                found[entry[0] : entry[0] + len(entry[1])] = entry[1]
        share = dice.choice((0.0, 0.5, 0.9, 1.0))
        kept = [entry for entry in cached if dice.random() < share]
        for number, (offset, data) in enumerate(kept):
            if number + 1 == len(kept) and dice.random() < 0.5:  # the power fails while this one is written
                data = data[: dice.randrange(0, len(data) + 1, SECTOR)]
            found[offset : offset + len(data)] = data
        return found

    # -- the kernel's questions ---------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                asked = os.read(self._fd, WRITE_MOST + 8192)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                raise
            _, operation, unique, node, *_ = HEAD.unpack_from(asked)
            if operation in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            code, reply = self._answer(operation, node, asked[HEAD.size :])
            try:
                os.write(self._fd, struct.pack("<IiQ", 16 + len(reply), -code, unique) + reply)
            except FileNotFoundError:  # nobody waits for it any more
                continue

    def _answer(self, operation: int, node: int, body: bytes) -> tuple[int, bytes]:
        if operation == INIT:
            return 0, struct.pack("<IIIIHHIIHH8I", 7, 31, WRITE_MOST, 1 << 5 | 1 << 22, 12, 9, WRITE_MOST, 1, 32, 0, *[0] * 8)
        if operation == LOOKUP:
            if body.rstrip(b"\0") != NAME:
                return errno.ENOENT, b""
            return 0, struct.pack("<4Q2I", FILE_NODE, 0, 3600, 3600, 0, 0) + self._attributes(FILE_NODE)
        if operation in (GETATTR, SETATTR):
            return 0, struct.pack("<QII", 3600, 0, 0) + self._attributes(node)
        if operation == OPEN:
            return 0, struct.pack("<QII", 0, 0, 0)
        if operation == READ:
            offset, size = struct.unpack_from("<QI", body, 8)
            return 0, bytes(self._now[offset : offset + size])
        if operation == WRITE:
            offset, size = struct.unpack_from("<QI", body, 8)
            data = body[40 : 40 + size]
            self._now[offset : offset + size] = data
            self.log.append((offset, data))
            return 0, struct.pack("<II", size, 0)
        if operation == FSYNC:
            self.log.append(None)
            return 0, b""
        if operation == STATFS:
            return 0, struct.pack("<5Q4I6I", *[0] * 5, 4096, 255, 4096, 0, *[0] * 6)
        return (0, b"") if operation in (RELEASE, FLUSH) else (errno.ENOSYS, b"")

    def _attributes(self, node: int) -> bytes:
        size, mode = (0, 0o040700) if node == ROOT_NODE else (len(self._now), 0o100600)
        return struct.pack("<6Q10I", node, size, size // 512, *[0] * 3, *[0] * 3, mode, 1, 0, 0, 0, 4096, 0)
