"""Parts of a home laid out beside it, then put in place; what a command that was killed has left is found and cleaned.

What is to come is laid out in a folder `.restoring-…` of the home, or of another place where there is no home yet. A command
holds its folder locked, and the kernel lets go however it ends: one that nobody holds was left behind and is removed. Before
the first part changes places with the present one the folder is called `.restore-DATE`: from then on it holds parts of the home,
is never removed, and ends in `backups/before-restore-DATE`, by the same command or by whoever finds it.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from appliance.clock import now_ms
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import database_copy, storage_errors

LAID_OUT, REPLACED, ASIDE = ".restoring-", ".restore-", "before-restore-"
BEFORE = ".before"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


@contextmanager
def stage(folder: Path) -> Iterator[Path]:
    """An empty private folder in another one, removed afterwards unless `put_in_place` has taken it."""
    try:
        made = Path(tempfile.mkdtemp(prefix=LAID_OUT, dir=folder))
    except OSError as error:
        raise storage_errors.host_error(error, folder) from None
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(handle)


def is_left(path: Path) -> bool:
    """Whether no process holds a file or folder locked any more, as who is making it does."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def put_in_place(home: Home, made: Path, names: Iterable[str]) -> Path:
    """Let parts in a stage change places with those of the home, the database last; the folder with what was there before.

    Killed or failed in between, each part is the old or the new one. The caller holds the lock of the home.
    """
    database_copy.require_unused(home.database)
    held = paths.unused(home.root, f"{REPLACED}{datetime.fromtimestamp(now_ms() / 1000, UTC):%Y%m%dT%H%M%SZ}")
    os.rename(made, held)
    for name in sorted(names, key=lambda name: name == home.database.name):
        if name == home.database.name:
            database_copy.replace(home.database, held / name, held / (name + BEFORE))
        else:
            _exchange(held / name, home.root / name)
    return _put_aside(home, held)


def clean(home: Home) -> list[str]:
    """Remove what killed commands have left in a home, and put aside what holds parts of it; what that was, in words."""
    told = []
    for left in sorted(home.root.glob(f"{LAID_OUT}*")):
        if is_left(left):
            shutil.rmtree(left, ignore_errors=True)
            told.append(f"removed {left.name}, which a restore or import that was ended had left")
    for left in sorted(home.root.glob(f"{REPLACED}*")):
        if is_left(left):
            aside = _put_aside(home, left)
            told.append(f"a restore was ended halfway: run it again. What it had replaced is in {aside}")
    return told


def _put_aside(home: Home, held: Path) -> Path:
    """Bring a folder with old parts to where backups are; where those are on another disk it stays in the home."""
    before = held / f"{home.database.name}{BEFORE}"
    if before.exists() and home.database.exists() and before.samefile(home.database):
        before.unlink()  # a second name of the database in use, which nobody may open there
    for suffix in ("", "-wal", "-shm"):
        if (old := before.with_name(before.name + suffix)).exists():
            os.rename(old, held / f"{home.database.name}{suffix}")
    home.backups.mkdir(mode=0o700, exist_ok=True)
    name = f"{ASIDE}{held.name.removeprefix(REPLACED)}"
    try:
        os.rename(held, aside := paths.unused(home.backups, name))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        os.rename(held, aside := paths.unused(home.root, name))
    paths.flush(home.root)
    return aside


def _exchange(new: Path, place: Path) -> None:
    """Let two files or folders change places in one step; where there is nothing yet, the new one moves in."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not place.exists():
        os.rename(new, place)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(place), RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))
