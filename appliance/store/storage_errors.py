"""Our errors for what SQLite and the disk say: a damaged file, a full or read-only disk, a mode that forbids it.

Why a write failed is found by trying one: a file without a name is made and written in the same folder. SQLite
reports a read-only disk, a full one and one without inodes all as "disk I/O error" or "unable to open database
file", and a disk that the kernel has stopped writing to after an error still claims to be writable (Linux 6.18).
"""

import errno
import os
from pathlib import Path

import apsw

from appliance.errors import Busy, Cancelled, DiskFull, DiskReadOnly, OwlError, StoreError

RESERVE_BYTES = 256 * 1024  # with less than this left, a transaction does not fit
PROBE = bytes(4096)
ON_A_DISK = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
OWN_FAULT = "check owner and mode of the home folder"
AFTER_DAMAGE = "owlbox backup list shows the backups, owlbox restore FILE takes one; else owlbox doctor --repair saves what it can"


def explain(error: apsw.Error, path: Path) -> OwlError:
    """Our error for SQLite's about the database at `path`."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Busy(f"database busy: {path}", hint="owlbox status shows who is running; try again")
    if isinstance(error, apsw.InterruptError):
        return Cancelled("the query was stopped")
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError | apsw.ReadOnlyError):
        if fault := write_fault(path.parent, path):
            return fault
        if isinstance(error, apsw.FullError):
            return disk_fault(errno.ENOSPC, path)
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return StoreError(f"database {path} is damaged or not a database: {error}", hint=AFTER_DAMAGE)
    if isinstance(error, apsw.IOError):
        return StoreError(f"database {path}: {error}", hint=f"the disk may be failing, dmesg shows it; {AFTER_DAMAGE}")
    if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError):
        return StoreError(f"database {path} cannot be read or written by user {os.getuid()}: {error}", hint=OWN_FAULT)
    return OwlError(f"database error: {error}")


def host_error(error: OSError, path: Path) -> OwlError:
    """Our error for the operating system's about the database at `path`."""
    if error.errno in ON_A_DISK:
        return disk_fault(error.errno, path)
    return StoreError(f"cannot open or make {path} as user {os.getuid()}: {error.strerror}", hint=OWN_FAULT)


def disk_fault(number: int, path: Path) -> DiskFull | DiskReadOnly:
    """The error for one of ON_A_DISK, when `path` was to be written."""
    if number == errno.EROFS:
        return DiskReadOnly(
            f"the disk is read-only: nothing was written to {path}",
            hint="what is stored can be read; dmesg says why the kernel stopped writing; save a copy: owlbox backup --to DIR",
        )
    if number == errno.EDQUOT:
        return DiskFull(
            f"a disk quota is used up (user {os.getuid()}): nothing was written to {path}",
            hint="free some space or ask for a larger quota",
        )
    if not _free_inodes(path.parent):
        return DiskFull(
            f"no more files can be made on this disk, its inodes are used up: nothing was written to {path}",
            hint="remove files that nobody needs: df -i shows how many there are",
        )
    return DiskFull(f"disk full: nothing was written to {path}", hint="free some space and try again")


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
