"""Copies of a database: made with SQLite's backup API while others write, checked, and described.

The source's connection holds one read transaction for the whole copy, so that a write of another process does not begin it
anew. A copy is one file without a log beside it. Knows nothing of archives, of what else belongs to a backup, or of schedules.
"""

import fcntl
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import apsw
from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import AlreadyRunning, StoreError
from appliance.store import disk_faults, storage_errors
from appliance.store.connection_settings import SETTINGS
from appliance.store.migrations import statements, up_to

LOG = logging.getLogger(__name__)
Progress = Callable[[int, int], None]  # bytes copied, of how many
STEP_PAGES = 256
IN_USE = 128  # the byte of the -shm file that SQLite locks for each open connection (UNIX_SHM_DMS in os_unix.c)
ANOTHER = "choose another backup: owlbox backup list"
COPY = re.compile(r"before-migration-\d+-(?P<at_ms>\d{1,15})\.db")
KEPT_COPIES = 3  # from before migrations
OBJECTS = "SELECT type, name, sql FROM sqlite_schema"
# Tables that SQLite makes itself, and Litestream in a database that it copies.
BESIDE = ("sqlite_sequence", "sqlite_stat1", "sqlite_stat4", "_litestream_seq", "_litestream_lock")
# What a person knows a database by: tables whose rows are counted for backups and repairs.
COUNTED = ("entries", "sessions", "runs", "events", "tasks", "schedules")


def unheard(done: int, total: int) -> None:
    """For whom progress means nothing."""


class Facts(Struct, frozen=True):
    """What is in a database that nobody uses: its version, and rows by table of COUNTED."""

    version: int
    counts: dict[str, int]


def write(source: apsw.Connection, path: Path, progress: Progress = unheard) -> None:
    """Copy what a connection sees to a new private file, whole or not at all; what stood there before is replaced."""
    part = path.with_name(path.name + ".part")
    is_inside = source.in_transaction
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # never readable for others
        if not is_inside:
            source.execute("BEGIN")
        try:
            _copy_pages(source, part, progress)
        finally:
            if not is_inside:
                source.execute("ROLLBACK")
        os.replace(part, path)
    except OSError as error:
        raise storage_errors.host_error(error, path) from None
    except (apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
        if fault := disk_faults.write_fault(path.parent, path):
            raise fault from error
        raise
    finally:
        part.unlink(missing_ok=True)


def _copy_pages(source: apsw.Connection, part: Path, progress: Progress) -> None:
    source.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()  # only a read makes BEGIN hold its moment
    page_bytes = int(str(source.pragma("page_size")))
    target = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with target.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(STEP_PAGES)
                progress((backup.page_count - backup.remaining) * page_bytes, backup.page_count * page_bytes)
        target.pragma("journal_mode", "delete")  # the copied header says that there is a log
    finally:
        target.close()


def before_migration(folder: Path, number: int) -> Path:
    """Where the copy from before a migration goes. Only the newest ones stay: of those that are there the others are removed."""
    for _, old in migration_copies(folder)[KEPT_COPIES - 1 :]:
        old.unlink(missing_ok=True)
    return folder / f"before-migration-{number}-{now_ms()}.db"


def migration_copies(folder: Path) -> list[tuple[int, Path]]:
    """The copies from before a migration, each with the moment it was made, newest first."""
    found = ((COPY.fullmatch(path.name), path) for path in folder.glob("before-migration-*.db"))
    return sorted(((int(name["at_ms"]), path) for name, path in found if name), reverse=True)


def check(path: Path) -> Facts:
    """What is in a copy, after SQLite has looked at every page of it; StoreError when it is damaged. The copy is not changed."""
    db = apsw.Connection(f"{path.absolute().as_uri()}?mode=ro&immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        for setting in SETTINGS:
            setting(db)
        problems = [str(row[0]) for row in db.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
        if problems:
            raise StoreError(f"{path} is damaged: {problems[0]}", hint=ANOTHER)
        return Facts(int(str(db.pragma("user_version"))), count(db))
    except apsw.Error as error:
        raise StoreError(f"{path} is damaged or not a database: {error}", hint=ANOTHER) from None
    finally:
        db.close()


def foreign_objects(path: Path) -> list[str]:
    """What the schema of a database holds that ours of its version does not, by kind and name: nothing of it is run.

    Tables that a virtual table of ours keeps for itself are known by its name alone: versions of SQLite write them differently.
    """
    db = apsw.Connection(f"{path.absolute().as_uri()}?mode=ro&immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    ours = apsw.Connection(":memory:")
    try:
        for setting in SETTINGS:
            setting(ours)
        db.pragma("trusted_schema", False)
        for migration in up_to(int(str(db.pragma("user_version")))):
            for statement in statements(migration):
                ours.execute(statement)
        known = {(kind, name): _normal_sql(sql) for kind, name, sql in ours.execute(OBJECTS)}
        owners = "|".join(name for (_, name), sql in known.items() if sql.startswith("CREATE VIRTUAL"))
        inner = re.compile(rf"(?:{owners or '(?!)'})_\w+")
        return [
            f"{kind} {name}"
            for kind, name, sql in db.execute(OBJECTS)
            if known.get((kind, name)) != _normal_sql(sql)
            and not (kind == "index" and sql is None)
            and not (kind == "table" and (name in BESIDE or inner.fullmatch(name)) and _normal_sql(sql).startswith("CREATE TABLE "))
        ]
    except apsw.Error as error:
        raise StoreError(f"{path} is damaged or not a database: {error}", hint=ANOTHER) from None
    finally:
        ours.close()
        db.close()


def _normal_sql(sql: str | None) -> str:
    """The text of a statement in one form: the length of vectors depends on the model."""
    return re.sub(r"int8\[\d+\]", "int8[]", " ".join((sql or "").split()))


def carry(source: Path, target: Path, tables: Mapping[str, str]) -> None:
    """Add rows of one database that nobody uses to another, table by table, where they are not; nothing of one that cannot be read.

    The values of `tables` are conditions on their rows, in SQL.
    """
    db = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    try:
        db.execute("ATTACH ? AS source", (f"{source.absolute().as_uri()}?mode=ro",))
        with db:
            for table, condition in tables.items():
                db.execute(f"INSERT OR IGNORE INTO main.{table} SELECT * FROM source.{table} WHERE {condition}")
    except apsw.Error as error:  # damaged, or of another version
        LOG.warning("nothing was taken over from %s: %s", source, error)
    finally:
        db.close()


def count(db: apsw.Connection) -> dict[str, int]:
    """Rows by table of COUNTED, as far as there are such tables."""
    tables = {str(row[0]) for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {name: int(str(db.execute(f"SELECT COUNT(*) FROM {name}").fetchall()[0][0])) for name in COUNTED if name in tables}


def replace(path: Path, new: Path, aside: Path) -> None:
    """Let `new` be the database at `path`, with the old one, if there is one, at `aside`; AlreadyRunning while it is in use.

    An intact old one is there until the moment the new one is. A damaged one whose log cannot be folded into it is moved away
    with its log first, because SQLite would apply the log to the new one.
    """
    require_unused(path)
    if path.exists():
        if _fold_log(path):
            os.link(path, aside)
        else:
            for suffix in ("", "-wal", "-shm"):
                if (old := path.with_name(path.name + suffix)).exists():
                    os.rename(old, aside.with_name(aside.name + suffix))
    with open(new, "rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)


def require_unused(path: Path) -> None:
    """AlreadyRunning when any process has the database open, as the lock says that each holds on the index of the log.

    This process must have no connection to it.
    """
    try:
        index = os.open(path.with_name(path.name + "-shm"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # without one nobody has it open
    try:
        fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, IN_USE)
    except OSError:
        raise AlreadyRunning(
            f"a process works with {path}", hint="owlbox worker list shows workers; end them and other commands, then try again"
        ) from None
    finally:
        os.close(index)


def _fold_log(path: Path) -> bool:
    """Fold the log into the file; False when that cannot be done."""
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.pragma("journal_mode", "delete")
        finally:
            db.close()
    except apsw.Error:
        pass  # damaged
    return not path.with_name(path.name + "-wal").exists()
