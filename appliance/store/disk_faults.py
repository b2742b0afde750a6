"""Our errors for what the disk says, wherever something was read or written: full, read-only, out of inodes, failing.

Why a write failed is found by trying one: a file without a name is made and written in the same folder. SQLite
reports a read-only disk, a full one and one without inodes all as "disk I/O error" or "unable to open database
file", and a disk that the kernel has stopped writing to after an error still claims to be writable (Linux 6.18).
Every boundary asks `explain_fault` before it calls an error of the system something else; `storage_errors` has SQLite's.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.errors import DiskFailing, DiskFault, DiskFull, DiskReadOnly, OwlError

RESERVE_BYTES = 256 * 1024  # with less than this left, a transaction does not fit
PROBE = bytes(4096)
FAILING = (errno.EIO, errno.EUCLEAN, errno.EBADMSG)  # the last two are ext4's, for what it finds damaged
ON_A_DISK = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, *FAILING)
SAVE = "dmesg shows it; save what can be read to another disk: owlbox backup --to DIR; then take a new disk or card"
CHAIN = 6  # errors that were raised from each other


def explain_fault(error: BaseException | None, place: Path | None = None, *, has_terminal: bool = False) -> OwlError | None:
    """Our error for the system's, or for the one that it was raised from, when it is the disk's fault; None for others.

    Where the system names no file, as for a write to an open one, `place` is named, or none. A terminal that is gone gives EIO,
    too: who has one needs a file for that, or an error of ours that was made of it. One that names the disk's fault already stays.
    """
    ours = error if isinstance(error, OwlError) else None
    for _ in range(CHAIN):
        if error is None or isinstance(error, DiskFault):
            return None
        if isinstance(error, OSError) and error.errno in ON_A_DISK:
            # Of a copy that failed the first is what was read: a full disk is that of the second, a failing one may be either's.
            names = (error.filename, error.filename2) if error.errno in FAILING else (error.filename2, error.filename)
            name = next((one for one in names if one), None)
            path = Path(os.fsdecode(name)) if isinstance(name, str | bytes) and name else None
            if path is None and error.errno in FAILING and (ours is not None or has_terminal):
                return DiskFailing(f"the disk is failing: {ours.message}", hint=SAVE) if ours is not None else None
            return disk_fault(error.errno, path or place)
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """While a file is read: let an error of a failing disk name it, as the system does only where a file is opened."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in FAILING:
            error.filename = str(path)
        raise


def disk_fault(number: int, path: Path | None) -> DiskFull | DiskReadOnly | DiskFailing:
    """The error for one of ON_A_DISK, when `path` was to be written; None where nobody knows which file."""
    what = f"nothing was written to {path}" if path is not None else "a file could not be written"
    if number in FAILING:
        why = os.strerror(number).lower()
        return DiskFailing(f"the disk is failing: {path or 'a file'} could not be read or written ({why})", hint=SAVE)
    if number == errno.EROFS:
        return DiskReadOnly(
            f"the disk is read-only: {what}",
            hint="what is stored can be read; dmesg says why the kernel stopped writing; save a copy: owlbox backup --to DIR",
        )
    if number == errno.EDQUOT:
        return DiskFull(
            f"a disk quota is used up (user {os.getuid()}): {what}",
            hint="free some space or ask for a larger quota",
        )
    if path is not None and not _free_inodes(path.parent):
        return DiskFull(
            f"no more files can be made on this disk, its inodes are used up: {what}",
            hint="remove files that nobody needs: df -i shows how many there are",
        )
    return DiskFull(f"disk full: {what}", hint="free some space and try again")


def write_fault(folder: Path, path: Path | None = None) -> OwlError | None:
    """Why nothing can be written in a folder now, None when it can; `path` is what the message names."""
    try:
        if is_full(folder):
            return disk_fault(errno.ENOSPC, path or folder)
        file = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, PROBE)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in ON_A_DISK:
            return disk_fault(error.errno, path or folder)  # others have their own words: a mode, a folder that is gone
    return None


def standing_fault(file: Path) -> OwlError | None:
    """Why nothing can be written to the disk of an existing file, as far as that shows without writing anything."""
    try:
        if is_full(file.parent) or not _free_inodes(file.parent):
            return disk_fault(errno.ENOSPC, file.parent)
        os.close(os.open(file, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        return disk_fault(errno.EROFS, file.parent) if error.errno == errno.EROFS else None
    return None


def is_read_only(folder: Path) -> bool:
    """Whether the disk of a folder takes no writes."""
    return isinstance(write_fault(folder), DiskReadOnly)


def is_full(folder: Path) -> bool:
    """Whether a transaction would not fit on the disk of a folder any more."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < RESERVE_BYTES and not space.f_flag & os.ST_RDONLY


def _free_inodes(folder: Path) -> int:
    """How many files can still be made; 1 where the file system does not count them."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return 1
    return space.f_favail if space.f_files else 1
