"""The one database file: opening, migrating, reading, writing, taking back. Nobody else opens it.

Besides `store.sql_console` the only module that knows APSW. Reads fetch every row before they return, so no cursor
is left parked. Writes are IMMEDIATE transactions that either happen whole or not at all; nothing waits for
a model or a person inside one. A thread has a connection for as long as a statement or a transaction lasts.
Nobody may open, hash or copy the live file by other means: closing any descriptor on it drops this process's
locks. Not promised: that a NORMAL commit survives a power cut. Ask for `durable=True` before anything is
acknowledged, sent, started or billed.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import BadInput, Busy, Cancelled, DiskFault, DiskReadOnly, NotFound, OwlError, StoreError, Unavailable
from appliance.store import connection_settings, database_copy, disk_faults, durability, integrity, sql_console, storage_errors
from appliance.store.connection_settings import SETTINGS, WITH_LOG
from appliance.store.migrations import APPLICATION_ID, DERIVED, FIRST, MIGRATIONS, SETTLING, UNDOABLE, require_known, statements

MOST_IDLE = 5  # open connections that nobody uses: each holds the schema, its statements and CACHE_KB of pages
# Compiled ones that a connection keeps. With 100 four in ten were compiled again, which left fragments in the heap (2026-11-29).
STATEMENTS = 400
BUSY_DELAYS_MS = (100, 200, 400, 800, 1600, 3200, 6400, 12800)  # about 25 s in total (B-003)
READ_TIMEOUT_MS = 5000
TRANSLATED = (apsw.Error, UnicodeDecodeError, UnicodeEncodeError)

REASONS = {
    apsw.SQLITE_CHANGESET_DATA: "changed",
    apsw.SQLITE_CHANGESET_NOTFOUND: "gone",
    apsw.SQLITE_CHANGESET_CONFLICT: "taken",
    apsw.SQLITE_CHANGESET_CONSTRAINT: "taken",
}

Row = tuple[Any, ...]
Migrations = Sequence[str]


class Clash(Struct, frozen=True):
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
        self._working: dict[int, apsw.Connection] = {}  # by the thread that works with it
        self._idle: list[apsw.Connection] = []  # the last one used is used next: its pages are the newest
        self._written: tuple[Callable[[], None], ...] = ()
        self._has_log = True
        self.is_read_only = False  # opened so, because the disk takes no writes
        self.disk_fault: OwlError | None = None  # why the last write failed, when it was the disk; None after one that did not

    def on_commit(self, heard: Callable[[], None]) -> None:
        """Have something called after each commit, in the thread that wrote."""
        self._written = (*self._written, heard)

    @classmethod
    def create(cls, path: Path, *, migrations: Migrations = MIGRATIONS) -> "Store":
        """A new, empty, private (0600) database with all tables; an existing file is opened instead.

        It is made under another name and linked to its own when it is whole: an empty file there is never a new database.
        """
        part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        try:
            if not path.exists():
                os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                made = cls(part, migrations=migrations)
                made._has_log = False  # a log beside it would not come along
                try:
                    made._migrate_schema(is_new=True)
                finally:
                    made.close()
                os.link(part, path)
        except FileExistsError:
            pass  # another process was quicker
        except OSError as error:
            raise storage_errors.host_error(error, path) from None
        finally:
            if os.access(path.parent, os.X_OK):
                part.unlink(missing_ok=True)
        store = cls.open(path, migrations=migrations)
        store.rows("SELECT 1")  # the first connection gives the file its log
        return store

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
            hint = f"restore a backup: owlbox restore FILE; or make an empty one: owlbox init --force --home {path.parent}"
            raise NotFound(f"no database at {path}", hint=hint) from None
        except OSError as error:
            raise storage_errors.host_error(error, path) from None
        store = cls(path, busy_delays_ms=busy_delays_ms, mmap_mb=mmap_mb, migrations=migrations)
        try:
            store._migrate_schema()
        except BaseException:
            store.close()
            raise
        return store

    # -- reading ----------------------------------------------------------------------------------

    def rows(self, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        return self._execute_sql(sql, bindings)

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

        Inside another `write` of the same thread it joins that one. What a person asked for is always `durable`.
        With `run`, what it changed in undoable tables is kept as a changeset of that run, in the same transaction.
        `is_hurried` gives up after a second of waiting for another writer: for what can be done later.
        """
        with self._connection() as db:
            if db.in_transaction:
                if durable and not self._local.is_durable:
                    raise RuntimeError("a durable write joined one that is not: make the outer one durable")
                if run and run != self._local.run:
                    raise RuntimeError(f"a write of run {run} joined one that is not recorded for it: name it in the outer one")
                yield self._execute_sql
                return
            if self.is_read_only:
                raise self._read_only()
            durable = durable or durability.is_asked()
            self._local.is_durable, self._local.run = durable, run
            later: list[Callable[[], None]] = []
            self._local.later = later
            session = None
            try:
                with self._translate_errors():
                    db.pragma("synchronous", "full" if durable else "normal")
                    session = self._record_session(db) if run else None
                    self._begin_immediate(db, self._busy_delays_ms[:3] if is_hurried else self._busy_delays_ms)
                yield self._execute_sql
                with self._translate_errors():
                    if session is not None:
                        self._keep_changeset(db, run, session.changeset())
                    db.execute("COMMIT")
            except BaseException:
                self._roll_back(db)
                raise
            finally:
                if session is not None:
                    session.close()
        self.disk_fault = None
        for heard in self._written:
            heard()
        for work in later:
            work()

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """Overwrite what is deleted on this connection with zeros, for the length of a with block; not inside a write."""
        with self._connection() as db:
            db.pragma("secure_delete", 1)
            try:
                yield
            finally:
                db.pragma("secure_delete", 0)

    def blank_changesets(self, text: str) -> None:
        """Within a write, empty every changeset that holds a text: what it changed cannot be taken back any more."""
        self._execute_sql("UPDATE changesets SET change = x'' WHERE instr(change, CAST(? AS BLOB)) > 0", (text,))

    def _read_only(self) -> OwlError:
        """Why nothing is written: the disk, or that it was so when this process began."""
        if disk_faults.is_read_only(self.path.parent):
            return disk_faults.disk_fault(errno.EROFS, self.path)
        return DiskReadOnly(
            f"nothing was written to {self.path}: its disk was read-only when this process began",
            hint="the disk can be written again, and the core does so within seconds: try again",
        )

    def after(self, work: Callable[[], None]) -> None:
        """Have something done in this thread when the present write is committed, and not when it is not; else at once."""
        if self._is_writing():
            self._local.later.append(work)
        else:
            work()

    def _execute_sql(self, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        try:
            with self._connection() as db:
                return db.execute(sql, bindings).fetchall()
        except TRANSLATED as error:
            raise self._translated(error) from error

    def _begin_immediate(self, db: apsw.Connection, delays_ms: Sequence[int]) -> None:
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
            with self._translate_errors():
                db.execute("ROLLBACK")

    @staticmethod
    def _record_session(db: apsw.Connection) -> apsw.Session:
        session = apsw.Session(db, "main")
        for table in UNDOABLE:
            session.attach(table)
        return session

    @staticmethod
    def _keep_changeset(db: apsw.Connection, run: str, change: bytes) -> None:
        if change:
            db.execute(
                "INSERT INTO changesets (run, seq, change, at_ms) "
                "SELECT ?1, COALESCE(MAX(seq), 0) + 1, ?2, ?3 FROM changesets WHERE run = ?1",
                (run, change, now_ms()),
            )

    # -- asking freely --------------------------------------------------------------------------------

    def query(
        self, sql: str, *, limit: int, deadline_s: float, is_stopped: Callable[[], bool] = lambda: False
    ) -> sql_console.QueryAnswer:
        """What one query that somebody typed says, at most `limit` rows of it; BadInput for anything that would change something.

        On a connection of its own that can only read, with every SQL function of ours.
        """
        with self._translate_errors():
            db = self._connect_plain(apsw.SQLITE_OPEN_READONLY)
        try:
            db.set_busy_timeout(READ_TIMEOUT_MS)
            connection_settings.functions(db)
            connection_settings.vectors(db)
            with self._translate_errors():
                return sql_console.ask(db, sql, limit, deadline_s, is_stopped)
        finally:
            _close_connection(db)

    # -- taking back --------------------------------------------------------------------------------

    def changed_by(self, run: str) -> dict[str, list[int]]:
        """The keys of the rows that a run changed and that are not taken back, by table."""
        found: dict[str, set[int]] = {}
        for seq in self._standing_changesets(run):
            for row in apsw.Changeset.iter(self._read_changeset(run, seq)):
                found.setdefault(row.name, set()).add(_row_key(row.old or row.new))
        return {table: sorted(keys) for table, keys in found.items()}

    def undone_by(self, run: str) -> str:
        """The run that took this one back, and still does; "" when something of it stands, or it changed nothing."""
        by = self.value("SELECT undone_by FROM changesets WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,))
        return "" if self._standing_changesets(run) else str(by or "")

    def take_back(self, run: str, by: str, beside: Sequence[str] = ()) -> list[Clash]:
        """Within a write, invert everything that a run and those `beside` it changed, newest first, and mark it so, with `by`.

        What was changed since is left alone: with such clashes nothing is changed at all.
        """
        clashes: list[Clash] = []
        if not self._is_writing():
            raise RuntimeError("taking back outside of a write")
        with self._translate_errors(), self._connection() as db:
            db.execute("SAVEPOINT taking_back")
            for one, seq in self._newest_first((*beside, run)):
                clashes += self._invert_changeset(db, self._read_changeset(one, seq))
                db.execute("UPDATE changesets SET undone_by = ? WHERE run = ? AND seq = ?", (by, one, seq))
            if clashes:
                db.execute("ROLLBACK TO taking_back")
            else:
                for statement in SETTLING:
                    db.execute(statement)
            db.execute("RELEASE taking_back")
        return clashes

    def _standing_changesets(self, run: str) -> dict[int, int]:
        """The numbers of a run's changesets that are not taken back, in order, and when each was made."""
        rows = self.rows("SELECT seq, undone_by, at_ms FROM changesets WHERE run = ? AND change <> x'' ORDER BY seq", (run,))
        undone = {by: self._is_undone(by) for by in {str(by) for _, by, _ in rows}}
        return {int(seq): int(at_ms) for seq, by, at_ms in rows if not undone[by]}

    def _newest_first(self, runs: Sequence[str]) -> list[tuple[str, int]]:
        """What of these runs stands, the newest first; those of one run always in its own order, whatever its clock said."""
        left = {run: list(self._standing_changesets(run).items()) for run in runs}
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

    def _read_changeset(self, run: str, seq: int) -> bytes:
        return bytes(self.value("SELECT change FROM changesets WHERE run = ? AND seq = ?", (run, seq)))

    def _invert_changeset(self, db: apsw.Connection, change: bytes) -> list[Clash]:
        """Take one changeset back as far as nothing stands in the way; what does."""
        clashes: list[Clash] = []

        def decide(reason: int, row: apsw.TableChange) -> int:
            if reason == apsw.SQLITE_CHANGESET_FOREIGN_KEY:
                clashes.append(Clash("", 0, "foreign key", {}, {}))
                return apsw.SQLITE_CHANGESET_OMIT
            names = self._list_columns(row.name)
            left, wanted, now = (_recorded_values(names, values) for values in (row.old, row.new, row.conflict))
            if reason == apsw.SQLITE_CHANGESET_DATA and all(left[n] == now[n] for n in left if n not in DERIVED):
                return apsw.SQLITE_CHANGESET_REPLACE
            if reason == apsw.SQLITE_CHANGESET_NOTFOUND and row.name in ("blobs", "task_deps") and row.op == "DELETE":
                return apsw.SQLITE_CHANGESET_OMIT  # it went with its entry or task
            clashes.append(Clash(row.name, _row_key(row.old or row.new), REASONS.get(reason, "changed"), left, wanted))
            return apsw.SQLITE_CHANGESET_OMIT

        apsw.Changeset.apply(apsw.Changeset.invert(change), db, filter=lambda table: table in UNDOABLE, conflict=decide)
        return clashes

    def _list_columns(self, table: str) -> list[str]:
        return [str(row[1]) for row in self.rows(f"PRAGMA table_info({table})")]

    # -- care -------------------------------------------------------------------------------------

    def interrupt(self, thread: int) -> None:
        """Stop the query that another thread is in (by threading ident); its transaction is rolled back."""
        with self._guard:  # it cannot be given to another thread meanwhile
            if thread in self._working:
                self._working[thread].interrupt()

    def problems(self, *, is_quick: bool = False, limit_s: float | None = None) -> list[str]:
        """What SQLite's own checks find; empty when all is well. Whether the search index fits the entries: `passages`.

        With a limit it is `integrity.problems` that says what was looked at.
        """
        # A connection that has read the index before takes what others wrote since for damage (FTS5 in 3.54.1).
        fresh = Store(self.path, busy_delays_ms=self._busy_delays_ms)
        fresh.is_read_only = self.is_read_only
        try:
            with fresh._translate_errors(), fresh._connection() as db:
                return integrity.problems(db, is_quick=is_quick, limit_s=limit_s)
        except (Unavailable, Cancelled):
            raise
        except OwlError as error:
            return [error.message]
        finally:
            fresh.close()

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

    def snapshot(self, path: Path, progress: database_copy.Progress = database_copy.unheard) -> None:
        """A private copy of the whole database at `path`, of one moment although others write meanwhile."""
        with self._translate_errors(), self._connection() as db:
            database_copy.write(db, path, progress)

    def facts(self) -> database_copy.Facts:
        """The version, and how many rows there are of what people know."""
        with self._translate_errors(), self._connection() as db:
            return database_copy.Facts(self.version, database_copy.count(db))

    @property
    def version(self) -> int:
        """The number of the last migration applied."""
        return int(self.value("PRAGMA user_version"))

    def close(self) -> None:
        """Close every connection of every thread; the last one folds the log into the file."""
        with self._guard:
            connections = [*self._working.values(), *self._idle]
            self._working, self._idle = {}, []
        for db in connections:
            _close_connection(db)

    # -- inside -----------------------------------------------------------------------------------

    @contextmanager
    def _connection(self) -> Iterator[apsw.Connection]:
        """The connection that this thread works with, else one of the pool until the end of the block.

        With one for each thread a busy core held 34, of half a MB each (2026-11-28). Some stay open: a new one reads the whole
        schema, and twenty opened and closed a second left fragments in the heap (2026-11-23).
        """
        thread = threading.get_ident()
        db = self._working.get(thread)
        if db is not None:
            yield db
            return
        with self._guard:
            db = self._idle.pop() if self._idle else None
        db = db or self._open_connection()
        with self._guard:
            self._working[thread] = db
        try:
            yield db
        finally:
            with self._guard:
                is_open = self._working.pop(thread, None) is db  # else the store was closed meanwhile
                is_kept = is_open and len(self._idle) < MOST_IDLE and not db.in_transaction
                if is_kept:
                    self._idle.append(db)
            if not is_kept:
                _close_connection(db)

    def _is_writing(self) -> bool:
        return (db := self._working.get(threading.get_ident())) is not None and db.in_transaction

    def _open_connection(self) -> apsw.Connection:
        """A new connection with all settings."""
        with self._translate_errors():
            db = self._connect_plain()
            db.set_busy_timeout(READ_TIMEOUT_MS)
            try:
                for setting in WITH_LOG if self._has_log and not self.is_read_only else SETTINGS:
                    setting(db)
                if self._mmap_mb:
                    db.pragma("mmap_size", self._mmap_mb * 1024 * 1024)
            except BaseException:
                db.close()
                raise
        return db

    def _connect_plain(self, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
        """A connection without any setting.

        On a read-only disk the index of the log cannot be made: with one there SQLite reads it and the log, without one nobody
        writes, and the file is read as one that does not change.
        """
        if not self.is_read_only:
            return apsw.Connection(str(self.path), flags=flags, statementcachesize=STATEMENTS)
        is_fixed = not self.path.with_name(self.path.name + "-shm").exists()
        uri = f"file:{quote(str(self.path))}?mode=ro{'&immutable=1' if is_fixed else ''}"
        return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)

    def _migrate_schema(self, *, is_new: bool = False) -> None:
        found, latest = self._identify_version(), FIRST - 1 + len(self._migrations)
        if not found and not is_new:
            raise StoreError(f"database {self.path} is empty: it has lost everything in it", hint=storage_errors.AFTER_DAMAGE)
        require_known(self.path, found, latest)
        if self.is_read_only and found < latest:
            raise self._read_only()
        if 0 < found < latest:
            self.snapshot(database_copy.before_migration(self.path.parent / "backups", found + 1))
        for number in range(max(found + 1, FIRST), latest + 1):
            with self.write(durable=True) as execute:
                if int(execute("PRAGMA user_version")[0][0]) >= number:
                    continue  # another process was quicker
                for statement in statements(self._migrations[number - FIRST]):
                    execute(statement)
                execute(f"PRAGMA application_id = {APPLICATION_ID}")
                execute(f"PRAGMA user_version = {number}")

    def _identify_version(self) -> int:
        """The version of the file, seen before any setting is made: a file that is not ours stays as it is."""
        try:
            row, is_unwritable = self._read_header()
        except OwlError:
            if not disk_faults.is_read_only(self.path.parent):
                raise
            self.is_read_only = True
            row, is_unwritable = self._read_header()
        self.is_read_only = self.is_read_only or (is_unwritable and disk_faults.is_read_only(self.path.parent))
        version, application, tables = row
        if version == 0 and tables:
            raise StoreError(f"{self.path} is an SQLite file, but not an owlbox database", hint="choose another --home")
        if version and application != APPLICATION_ID:
            raise StoreError(f"{self.path} belongs to another application", hint="choose another --home")
        return int(version)

    def _read_header(self) -> tuple[Row, bool]:
        """Version, application and number of tables of the file, and whether it could only be opened for reading."""
        with self._translate_errors():
            db = self._connect_plain()
            try:
                db.set_busy_timeout(READ_TIMEOUT_MS)
                # One statement, one moment: another process may be creating the database just now.
                row: Row = db.execute(
                    "SELECT user_version, application_id, (SELECT COUNT(*) FROM sqlite_schema) "
                    "FROM pragma_user_version, pragma_application_id"
                ).fetchall()[0]
                return row, db.readonly("main")
            finally:
                _close_connection(db)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except TRANSLATED as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> OwlError:
        """What is told of an error of SQLite's, or of a text that is none; the cause tells a writer of rows which of its own."""
        if isinstance(error, UnicodeDecodeError):
            return StoreError(f"database {self.path} is damaged: a text in it is none", hint=storage_errors.AFTER_DAMAGE)
        if isinstance(error, UnicodeEncodeError):
            return BadInput(f"the text holds half a character at {error.start}", hint="leave it out")
        assert isinstance(error, apsw.Error)
        found = storage_errors.explain(error, self.path)
        if isinstance(found, DiskFault):
            self.disk_fault = found
        return found


def _recorded_values(names: Sequence[str], values: Sequence[Any] | None) -> dict[str, Any]:
    """The columns of a row in a changeset that are recorded."""
    return {name: value for name, value in zip(names, values or (), strict=False) if value is not apsw.no_change}


def _row_key(values: Sequence[Any] | None) -> int:
    """The key of a row in a changeset: undoable tables have it in front."""
    return int(values[0]) if values else 0


def _close_connection(db: apsw.Connection) -> None:
    try:
        db.close()
    except apsw.Error:
        pass  # a full disk keeps the log beside the file; nothing is lost by that
