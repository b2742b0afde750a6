"""Our errors for what SQLite says: a busy or damaged file, a mode that forbids it; what the disk says is `disk_faults`'s."""

import errno
import os
from pathlib import Path

import apsw

from appliance.errors import Busy, Cancelled, OwlError, StoreError
from appliance.store.disk_faults import ON_A_DISK, disk_fault, explain_fault, write_fault

AFTER_DAMAGE = (
    "owlbox backup list shows the backups, owlbox restore FILE restores one; else owlbox doctor --repair saves what it can"
)


def explain(error: apsw.Error, path: Path) -> OwlError:
    """Our error for SQLite's about the database at `path`."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Busy(f"database busy: {path}", hint="owlbox status shows who is running; try again")
    if isinstance(error, apsw.InterruptError):
        return Cancelled("the query was stopped")
    is_closed = path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK)
    if isinstance(error, apsw.CantOpenError) and not is_closed and not path.exists():
        return missing(path)
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError | apsw.ReadOnlyError):
        if fault := write_fault(path.parent, path):
            return fault
        if isinstance(error, apsw.FullError):
            return disk_fault(errno.ENOSPC, path)
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return StoreError(f"database {path} is damaged or not a database: {error}", hint=AFTER_DAMAGE)
    if isinstance(error, apsw.IOError):
        return disk_fault(errno.EIO, path)
    if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError):
        return StoreError(f"database {path} cannot be read or written by user {os.getuid()}: {error}", hint=_owner_hint(path))
    return OwlError(f"database error: {error}")


def missing(path: Path) -> StoreError:
    """Our error for a database that was there and is not any more."""
    hint = (
        f"put it back; or stop this core (kill {os.getpid()}), then start owlbox where the home is now: --home DIR, or OWLBOX_HOME"
    )
    return StoreError(f"database {path} is not there any more: its folder was moved, or the disk taken away", hint=hint)


def host_error(error: OSError, path: Path) -> OwlError:
    """Our error for the operating system's about the file or folder at `path`."""
    if error.errno in ON_A_DISK:
        return explain_fault(error, path) or disk_fault(error.errno, path)
    hint = (
        _owner_hint(path)
        if error.errno in (errno.EACCES, errno.EPERM)
        else f"ls -ld {path} shows what is there; name another place"
    )
    return StoreError(f"cannot open or make {path} as user {os.getuid()}: {error.strerror}", hint=hint)


def _owner_hint(path: Path) -> str:
    return f"ls -ld {path.parent} {path} shows whose they are, and their modes"
