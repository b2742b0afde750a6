"""The one database file: opening, migrating, reading, writing, taking back. Nobody else opens it.

Besides `store.sql_console` the only module that knows APSW. Reads fetch every row before they return, so no cursor
is left parked. Writes are IMMEDIATE transactions that either happen whole or not at all; nothing waits for
a model or a person inside one. Each thread has its own connection. Nobody may open, hash or copy the live
file by other means: closing any descriptor on it drops this process's locks. Not promised: that a NORMAL
commit survives a power cut. Ask for `durable=True` before anything is acknowledged, sent, started or billed.
"""

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from appliance.clock import monotonic_s, now_ms, sleep_s
from appliance.errors import BadInput, Busy, Cancelled, DiskFull, NotFound, OwlError, StoreError, Unavailable
from appliance.store import sql_console
from appliance.store.migrations import APPLICATION_ID, DERIVED, MIGRATIONS, SETTLING, UNDOABLE
from appliance.store.sql_functions import FUNCTIONS

BUSY_DELAYS_MS = (100, 200, 400, 800, 1600, 3200, 6400, 12800)  # about 25 s in total (B-003)
READ_TIMEOUT_MS = 5000
WAL_WAIT_S = 10

REASONS = {
    apsw.SQLITE_CHANGESET_DATA: "changed",
    apsw.SQLITE_CHANGESET_NOTFOUND: "gone",
    apsw.SQLITE_CHANGESET_CONFLICT: "taken",
    apsw.SQLITE_CHANGESET_CONSTRAINT: "taken",
}

Row = tuple[Any, ...]
Migrations = Sequence[Sequence[str]]


def _wal(db: apsw.Connection) -> None:
    # While another process makes the database, SQLite refuses this at once instead of waiting (3.54.1).
    end_s = monotonic_s() + WAL_WAIT_S
    while True:
        try:
            db.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if monotonic_s() > end_s:
                raise
            sleep_s(0.05)


def _foreign_keys(db: apsw.Connection) -> None:
    db.pragma("foreign_keys", True)


def _normal(db: apsw.Connection) -> None:
    db.pragma("synchronous", "normal")


def _temporary_in_memory(db: apsw.Connection) -> None:
    db.pragma("temp_store", "memory")


def _functions(db: apsw.Connection) -> None:
    for function in FUNCTIONS:
        db.create_scalar_function(function.name, function.call, function.value_count, deterministic=function.is_deterministic)


def _vectors(db: apsw.Connection) -> None:
    """Load sqlite-vec: its library alone, because its package imports sqlite3."""
    found = next((place for path in sys.path if (place := Path(path or ".", "sqlite_vec")).is_dir()), None)
    if found is None:
        raise StoreError("the package sqlite-vec is not installed", hint="pip install sqlite-vec")
    db.enable_load_extension(True)
    try:
        db.load_extension(str(found / "vec0"))
    except apsw.ExtensionLoadingError as error:
        raise StoreError(f"sqlite-vec does not load: {error}", hint="pip install --force-reinstall sqlite-vec") from None
    finally:
        db.enable_load_extension(False)


SETTINGS: tuple[Callable[[apsw.Connection], None], ...] = (
    _wal,
    _foreign_keys,
    _normal,
    _temporary_in_memory,
    _functions,
    _vectors,
)


@dataclass(frozen=True)
class Clash:
    """A row that is not as a run left it: `left` is what the run left, `wanted` what would be there again.

    Both hold only the columns that differ, and the key; `reason` is SQLite's.
    """

    table: str
    key: int
    reason: str
    left: Mapping[str, Any]
    wanted: Mapping[str, Any]


class Store:
    """Reads and writes of one database file, from any thread of this process."""

    def __init__(
        self,
        path: Path,
        *,
        busy_delays_ms: Sequence[int] = BUSY_DELAYS_MS,
        mmap_mb: int = 0,
        migrations: Migrations = MIGRATIONS,
    ) -> None:
        self.path = path
        self._migrations = migrations
        self._busy_delays_ms = tuple(busy_delays_ms)
        self._mmap_mb = mmap_mb
        self._local = threading.local()
        self._guard = threading.Lock()
        self._connections: dict[int, apsw.Connection] = {}
        self.written: Callable[[], None] = _unheard  # called after each commit, in the thread that wrote

    @classmethod
    def create(cls, path: Path, *, migrations: Migrations = MIGRATIONS) -> "Store":
        """A new, empty, private (0600) database with all tables; an existing file is opened instead."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise _host_error(error, path) from None
        return cls.open(path, migrations=migrations)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        busy_delays_ms: Sequence[int] = BUSY_DELAYS_MS,
        mmap_mb: int = 0,
        migrations: Migrations = MIGRATIONS,
    ) -> "Store":
        """The database at `path`, migrated to this version; a clear error when that is impossible.

        `migrations` are all that this version knows; a file that has had more of them is not touched.
        """
        try:
            path.stat()
        except FileNotFoundError:
            raise NotFound(f"no database at {path}", hint=f"make one: owlbox init --force --home {path.parent}") from None
        except OSError as error:
            raise _host_error(error, path) from None
        store = cls(path, busy_delays_ms=busy_delays_ms, mmap_mb=mmap_mb, migrations=migrations)
        try:
            store._migrate()
        except BaseException:
            store.close()
            raise
        return store

    # -- reading ----------------------------------------------------------------------------------

    def rows(self, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """All rows of a query."""
        with self._errors():
            return self._connection().execute(sql, bindings).fetchall()

    def row(self, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> Row | None:
        """The first row of a query, or None."""
        found = self.rows(sql, bindings)
        return found[0] if found else None

    def value(self, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> Any:
        """The first column of the first row, or None."""
        found = self.row(sql, bindings)
        return None if found is None else found[0]

    # -- writing ----------------------------------------------------------------------------------

    @contextmanager
    def write(self, *, run: str = "", durable: bool = False, is_hurried: bool = False) -> Iterator[Callable[..., list[Row]]]:
        """One IMMEDIATE transaction; yields `execute(sql, bindings) -> rows`.

        Inside another `write` of the same thread it joins that one. With `run`, what it changed in
        undoable tables is kept as a changeset of that run, in the same transaction. `is_hurried` gives up
        after a second of waiting for another writer: for what can be done later.
        """
        db = self._connection()
        if db.in_transaction:
            if durable and not self._local.is_durable:
                raise RuntimeError("a durable write joined one that is not: make the outer one durable")
            if run and run != self._local.run:
                raise RuntimeError(f"a write of run {run} joined one that is not recorded for it: name the run in the outer one")
            yield self._execute
            return
        self._local.is_durable, self._local.run = durable, run
        later: list[Callable[[], None]] = []
        self._local.later = later
        session = None
        try:
            with self._errors():
                db.pragma("synchronous", "full" if durable else "normal")
                session = self._record(db) if run else None
                self._begin(db, self._busy_delays_ms[:3] if is_hurried else self._busy_delays_ms)
            yield self._execute
            with self._errors():
                if session is not None:
                    self._keep(db, run, session.changeset())
                db.execute("COMMIT")
        except BaseException:
            self._roll_back(db)
            raise
        finally:
            if session is not None:
                session.close()
        self.written()
        for work in later:
            work()

    def after(self, work: Callable[[], None]) -> None:
        """Have something done in this thread when the present write is committed, and not when it is not; else at once."""
        if self._connection().in_transaction:
            self._local.later.append(work)
        else:
            work()

    def _execute(self, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        with self._errors():
            return self._connection().execute(sql, bindings).fetchall()

    def _begin(self, db: apsw.Connection, delays_ms: Sequence[int]) -> None:
        """BEGIN IMMEDIATE, waiting longer each time; SQLite polls within each wait, so a short lock costs little."""
        try:
            for delay_ms in delays_ms:
                db.set_busy_timeout(delay_ms)
                try:
                    db.execute("BEGIN IMMEDIATE")
                    return
                except apsw.BusyError:
                    continue
        finally:
            db.set_busy_timeout(READ_TIMEOUT_MS)
        raise Busy(
            f"database busy: another process has kept {self.path} locked for {sum(delays_ms) / 1000:g} s",
            hint="owlbox status shows who is running; try again",
        )

    def _roll_back(self, db: apsw.Connection) -> None:
        """Undo the open transaction; a full disk or an interrupt may have done so already."""
        if db.in_transaction:
            with self._errors():
                db.execute("ROLLBACK")

    @staticmethod
    def _record(db: apsw.Connection) -> apsw.Session:
        session = apsw.Session(db, "main")
        for table in UNDOABLE:
            session.attach(table)
        return session

    @staticmethod
    def _keep(db: apsw.Connection, run: str, change: bytes) -> None:
        if change:
            db.execute(
                "INSERT INTO changesets (run, seq, change, at_ms) "
                "SELECT ?1, COALESCE(MAX(seq), 0) + 1, ?2, ?3 FROM changesets WHERE run = ?1",
                (run, change, now_ms()),
            )

    # -- asking freely --------------------------------------------------------------------------------

    def query(
        self, sql: str, *, limit: int, deadline_s: float, is_stopped: Callable[[], bool] = lambda: False
    ) -> sql_console.Answer:
        """What one query that somebody typed says, at most `limit` rows of it; BadInput for anything that would change something.

        On a connection of its own that can only read, with every SQL function of ours.
        """
        with self._errors():
            db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            db.set_busy_timeout(READ_TIMEOUT_MS)
            _functions(db)
            _vectors(db)
            with self._errors():
                return sql_console.ask(db, sql, limit, deadline_s, is_stopped)
        finally:
            _shut(db)

    # -- taking back --------------------------------------------------------------------------------

    def changed_by(self, run: str) -> dict[str, list[int]]:
        """The keys of the rows that a run changed and that are not taken back, by table."""
        found: dict[str, set[int]] = {}
        for seq in self._standing(run):
            for row in apsw.Changeset.iter(self._change(run, seq)):
                found.setdefault(row.name, set()).add(_key(row.old or row.new))
        return {table: sorted(keys) for table, keys in found.items()}

    def undone_by(self, run: str) -> str:
        """The run that took this one back, and still does; "" when something of it stands, or it changed nothing."""
        by = self.value("SELECT undone_by FROM changesets WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,))
        return "" if self._standing(run) else str(by or "")

    def take_back(self, run: str, by: str, beside: Sequence[str] = ()) -> list[Clash]:
        """Within a write, invert everything that a run and those `beside` it changed, newest first, and mark it so, with `by`.

        What was changed since is left alone: with such clashes nothing is changed at all.
        """
        db, clashes = self._connection(), []
        if not db.in_transaction:
            raise RuntimeError("taking back outside of a write")
        with self._errors():
            db.execute("SAVEPOINT taking_back")
            for one, seq in self._newest_first((*beside, run)):
                clashes += self._invert(db, self._change(one, seq))
                db.execute("UPDATE changesets SET undone_by = ? WHERE run = ? AND seq = ?", (by, one, seq))
            if clashes:
                db.execute("ROLLBACK TO taking_back")
            else:
                for statement in SETTLING:
                    db.execute(statement)
            db.execute("RELEASE taking_back")
        return clashes

    def _standing(self, run: str) -> dict[int, int]:
        """The numbers of a run's changesets that are not taken back, in order, and when each was made."""
        rows = self.rows("SELECT seq, undone_by, at_ms FROM changesets WHERE run = ? AND change <> x'' ORDER BY seq", (run,))
        undone = {by: self._is_undone(by) for by in {str(by) for _, by, _ in rows}}
        return {int(seq): int(at_ms) for seq, by, at_ms in rows if not undone[by]}

    def _newest_first(self, runs: Sequence[str]) -> list[tuple[str, int]]:
        """What of these runs stands, the newest first; those of one run always in its own order, whatever its clock said."""
        left = {run: list(self._standing(run).items()) for run in runs}
        found = []
        while left := {run: rest for run, rest in left.items() if rest}:
            run = max(left, key=lambda one: left[one][-1][1])
            found.append((run, left[run].pop()[0]))
        return found

    def _is_undone(self, by: str) -> bool:
        """Whether a change that was taken back by a run still is: that run may have been taken back too, and so on."""
        is_undone = False
        while by:
            is_undone = not is_undone
            by = str(self.value("SELECT undone_by FROM changesets WHERE run = ? AND seq = 1", (by,)) or "")
        return is_undone

    def _change(self, run: str, seq: int) -> bytes:
        return bytes(self.value("SELECT change FROM changesets WHERE run = ? AND seq = ?", (run, seq)))

    def _invert(self, db: apsw.Connection, change: bytes) -> list[Clash]:
        """Take one changeset back as far as nothing stands in the way; what does."""
        clashes: list[Clash] = []

        def decide(reason: int, row: apsw.TableChange) -> int:
            if reason == apsw.SQLITE_CHANGESET_FOREIGN_KEY:
                clashes.append(Clash("", 0, "foreign key", {}, {}))
                return apsw.SQLITE_CHANGESET_OMIT
            names = self._columns(row.name)
            left, wanted, now = (_values(names, values) for values in (row.old, row.new, row.conflict))
            if reason == apsw.SQLITE_CHANGESET_DATA and all(left[n] == now[n] for n in left if n not in DERIVED):
                return apsw.SQLITE_CHANGESET_REPLACE
            if reason == apsw.SQLITE_CHANGESET_NOTFOUND and row.name in ("blobs", "task_deps") and row.op == "DELETE":
                return apsw.SQLITE_CHANGESET_OMIT  # it went with its entry or task
            clashes.append(Clash(row.name, _key(row.old or row.new), REASONS.get(reason, "changed"), left, wanted))
            return apsw.SQLITE_CHANGESET_OMIT

        apsw.Changeset.apply(apsw.Changeset.invert(change), db, filter=lambda table: table in UNDOABLE, conflict=decide)
        return clashes

    def _columns(self, table: str) -> list[str]:
        return [str(row[1]) for row in self.rows(f"PRAGMA table_info({table})")]

    # -- care -------------------------------------------------------------------------------------

    def interrupt(self, thread: int) -> None:
        """Stop the query that another thread is in (by threading ident); its transaction is rolled back."""
        with self._guard:
            db = self._connections.get(thread)
        if db is not None:
            db.interrupt()

    def problems(self, *, is_quick: bool = False) -> list[str]:
        """What SQLite's own checks find; empty when all is well. Whether the search index fits the entries: `passages`."""
        # A connection that has read the index before takes what others wrote since for damage (FTS5 in 3.54.1).
        fresh = Store(self.path, busy_delays_ms=self._busy_delays_ms)
        try:
            return fresh._problems(is_quick)
        finally:
            fresh.close()

    def _problems(self, is_quick: bool) -> list[str]:
        check = "quick_check" if is_quick else "integrity_check"
        try:
            found = [str(row[0]) for row in self.rows(f"PRAGMA {check}(20)") if row[0] != "ok"]
            found += [f"foreign key of {row[0]} row {row[1]} to {row[2]}" for row in self.rows("PRAGMA foreign_key_check")]
        except (Unavailable, Cancelled):
            raise
        except OwlError as error:
            return [error.message]  # damage has many names, "malformed JSON" is one
        return found

    def optimize(self) -> list[str]:
        """Refresh the planner's statistics where they are stale; which tables. Writes nothing when none is."""
        plans = [str(row[0]) for row in self.rows("PRAGMA optimize(0x10003)")]  # says what it would do, does nothing
        names = [plan.rpartition(".")[2] for plan in plans if plan.startswith("ANALYZE")]
        # An empty table is listed every time, because its analysis leaves no row behind.
        stale = [name.strip('"') for name in names if self.row(f"SELECT 1 FROM {name} LIMIT 1")]
        if stale:
            self.rows("PRAGMA optimize(0x10012)")
        return stale

    def checkpoint(self) -> int:
        """Bring what is in the log into the file and empty the log; its size in bytes, 0 while others read or write."""
        try:
            size = self.path.with_name(self.path.name + "-wal").stat().st_size
        except FileNotFoundError:
            return 0
        return size if size and not int(self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]) else 0

    def snapshot(self, path: Path) -> None:
        """A compact copy of the whole database at `path`, consistent although others write meanwhile."""
        temporary = path.with_name(path.name + ".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # never readable for others
            with self._errors():
                self._connection().execute("VACUUM INTO ?", (str(temporary),))
            os.replace(temporary, path)
        except OSError as error:
            raise _host_error(error, path) from None
        finally:
            temporary.unlink(missing_ok=True)

    @property
    def version(self) -> int:
        """The number of the last migration applied."""
        return int(self.value("PRAGMA user_version"))

    def close(self) -> None:
        """Close every connection of every thread; the last one folds the log into the file."""
        with self._guard:
            connections, self._connections = self._connections, {}
        for db in connections.values():
            _shut(db)
        self._local = threading.local()

    # -- inside -----------------------------------------------------------------------------------

    def _connection(self) -> apsw.Connection:
        db: apsw.Connection | None = getattr(self._local, "db", None)
        if db is None:
            with self._errors():
                db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
                db.set_busy_timeout(READ_TIMEOUT_MS)
                try:
                    for setting in SETTINGS:
                        setting(db)
                    if self._mmap_mb:
                        db.pragma("mmap_size", self._mmap_mb * 1024 * 1024)
                except BaseException:
                    db.close()
                    raise
            self._local.db = db
            with self._guard:
                self._close_orphans()
                self._connections[threading.get_ident()] = db
        return db

    def _close_orphans(self) -> None:
        """Close the connections of threads that have ended; one of them may have had this thread's ident."""
        alive = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        for ident in [i for i in self._connections if i not in alive]:
            _shut(self._connections.pop(ident))

    def _migrate(self) -> None:
        found, latest = self._identify(), len(self._migrations)
        if found > latest:
            raise StoreError(
                f"database {self.path} is of version {found}, this owlbox knows up to {latest}",
                hint="update owlbox, or restore a backup made by this version",
            )
        if 0 < found < latest:
            self.snapshot(self.path.parent / "backups" / f"before-migration-{found + 1}-{now_ms()}.db")
        for number in range(found + 1, latest + 1):
            with self.write(durable=True) as execute:
                if int(execute("PRAGMA user_version")[0][0]) >= number:
                    continue  # another process was quicker
                for statement in self._migrations[number - 1]:
                    execute(statement)
                execute(f"PRAGMA application_id = {APPLICATION_ID}")
                execute(f"PRAGMA user_version = {number}")

    def _identify(self) -> int:
        """The version of the file, seen before any setting is made: a file that is not ours stays as it is."""
        with self._errors():
            db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                db.set_busy_timeout(READ_TIMEOUT_MS)
                # One statement, one moment: another process may be creating the database just now.
                row: Row = db.execute(
                    "SELECT user_version, application_id, (SELECT COUNT(*) FROM sqlite_schema) "
                    "FROM pragma_user_version, pragma_application_id"
                ).fetchall()[0]
            finally:
                _shut(db)
        version, application, tables = row
        if version == 0 and tables:
            raise StoreError(f"{self.path} is an SQLite file, but not an owlbox database", hint="choose another --home")
        if version and application != APPLICATION_ID:
            raise StoreError(f"{self.path} belongs to another application", hint="choose another --home")
        return int(version)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self._explain(error) from error
        except UnicodeEncodeError as error:
            raise BadInput(f"the text holds half a character at {error.start}", hint="leave it out") from None

    def _explain(self, error: apsw.Error) -> OwlError:
        """Our error for SQLite's."""
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return Busy(f"database busy: {self.path}", hint="owlbox status shows who is running; try again")
        if isinstance(error, apsw.InterruptError):
            return Cancelled("the query was stopped")
        if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError | apsw.CantOpenError) and _is_full(self.path)):
            return DiskFull(f"disk full: nothing was written to {self.path}", hint="free some space and try again")
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            return StoreError(
                f"database {self.path} is damaged or not a database: {error}",
                hint=f"keep the file, then restore a copy from {self.path.parent / 'backups'}",
            )
        if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError | apsw.IOError):
            return StoreError(
                f"database {self.path} cannot be read or written by user {os.getuid()}: {error}",
                hint="check owner and mode of the home folder",
            )
        return OwlError(f"database error: {error}")


def _unheard() -> None:
    """Nobody wants to know."""


def _values(names: Sequence[str], values: Sequence[Any] | None) -> dict[str, Any]:
    """The columns of a row in a changeset that are recorded."""
    return {name: value for name, value in zip(names, values or (), strict=False) if value is not apsw.no_change}


def _key(values: Sequence[Any] | None) -> int:
    """The key of a row in a changeset: undoable tables have it in front."""
    return int(values[0]) if values else 0


def _shut(db: apsw.Connection) -> None:
    try:
        db.close()
    except apsw.Error:
        pass  # a full disk keeps the log beside the file; nothing is lost by that


def _is_full(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < 256 * 1024


def _host_error(error: OSError, path: Path) -> OwlError:
    if error.errno == errno.ENOSPC:
        return DiskFull(f"disk full: cannot make {path}", hint="free some space and try again")
    message = f"cannot open or make {path} as user {os.getuid()}: {error.strerror}"
    return StoreError(message, hint="check owner and mode of the home folder")
