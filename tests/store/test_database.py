"""The database file under load, crash, full disk, foreign hands and other versions: real files, real processes."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
import quick
from rooms import USE_ROOMS

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import BadInput, Busy, Cancelled, NotFound, OwlError, StoreError
from appliance.knowledge.entries import By, Entries
from appliance.records import Event, Inbound
from appliance.runtime.paths import Home
from appliance.sessions.runs import Runs
from appliance.store.database import BUSY_DELAYS_MS, MOST_IDLE, Store
from appliance.store.migrations import APPLICATION_ID, LATEST, MIGRATIONS

ROOT = Path(__file__).parents[2]
NEXT = (*MIGRATIONS, "CREATE TABLE later (x INTEGER) STRICT;\nINSERT INTO later VALUES (7);\n")
COUNT_TO_A_BILLION = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT MAX(i) FROM n"


# -- means, also for other test files ---------------------------------------------------------------


def child(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    """Another Python process running `code`, with `Store` and `path` (its first argument) at hand."""
    head = USE_ROOMS + "from pathlib import Path; from appliance.store.database import Store; path = Path(sys.argv[1])\n"
    command = [*prefix, sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return quick.popen(command, cwd=ROOT, env=quick.ENVIRON, text=True, **pipes)


def finished(process: "subprocess.Popen[str]", timeout_s: float = 120) -> str:
    """What a child printed; its whole error text when it failed."""
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, err
    return out.strip()


def killed(process: "subprocess.Popen[str]", after: str = "") -> None:
    """Kill -9 a child, once it has printed a line that begins with `after`."""
    assert process.stdout is not None
    for line in process.stdout if after else ():
        if line.startswith(after):
            break
    process.kill()
    err = process.communicate(timeout=180)[1]
    assert process.returncode == -signal.SIGKILL, err


def a_run(store: Store, sender: str = "ann") -> str:
    """A new chat of somebody."""
    runs = Runs(store, "")
    with store.write():
        inbound = Inbound("local", sender, "hi", "m", 1)
        runs.touch_session(inbound)
        return runs.begin(inbound.session, "chat").id


def said(run: str, content: str = "hi", **more: object) -> Event:
    """A message that is not stored yet."""
    return Event(run=run, kind="message", role="user", content=content, **more)  # type: ignore[arg-type]


def until(is_true: Callable[[], object], limit_s: float = 60) -> None:
    """Wait for something that happens elsewhere."""
    end_s, pause_s = monotonic_s() + limit_s, 0.005
    while not is_true():
        assert monotonic_s() < end_s, "it did not happen in time"
        sleep_s(pause_s)
        pause_s = min(0.05, 1.5 * pause_s)  # what takes long is looked at less often


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "owlbox.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    made = Store.create(path)
    yield made
    made.close()


HOLD = """
    store = Store.open(path)
    with store.write() as execute:
        print("held", flush=True)
        sys.stdin.read()  # until it is killed
"""


@pytest.fixture
def holder(store: Store) -> Iterator["subprocess.Popen[str]"]:
    """Another process that keeps the database locked until it is killed."""
    process = child(HOLD, store.path)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


# -- making and opening -----------------------------------------------------------------------------


def test_new_database_is_private_sound_and_ours(store: Store) -> None:
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert store.version == LATEST
    assert store.value("PRAGMA application_id") == APPLICATION_ID
    assert store.value("PRAGMA journal_mode") == "wal"
    assert store.value("PRAGMA foreign_keys") == 1
    assert store.problems() == []
    Entries(store).set("memory://owl", "hoot")
    Store.create(store.path).close()  # it is opened, not made anew
    assert Entries(store).get("memory://owl").body == "hoot"


def test_every_table_is_strict(store: Store) -> None:
    loose = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT strict"
    assert [row[0] for row in store.rows(f"{loose} AND name NOT GLOB 'chunks_*_*' AND name NOT GLOB 'sqlite_*'")] == []


def test_processes_that_make_the_database_at_once_share_one(path: Path) -> None:
    go = path.parent / "go"
    code = """
        import time
        while not Path(sys.argv[2]).exists():
            time.sleep(0.001)
        with Store.create(path).write(durable=True) as execute:
            execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES (?, 1, x'00', 1)", (sys.argv[3],))
    """
    crowd = [child(code, path, go, name) for name in "abcdef"]
    sleep_s(1)
    go.touch()
    for one in crowd:
        finished(one)
    store = Store.open(path)
    assert store.value("SELECT group_concat(run, '') FROM (SELECT run FROM changesets ORDER BY run)") == "abcdef"
    store.close()


def test_missing_database_says_how_to_make_one(path: Path) -> None:
    with pytest.raises(NotFound, match=f"no database at {path}") as caught:
        Store.open(path)
    assert "owlbox restore" in caught.value.hint and f"owlbox init --force --home {path.parent}" in caught.value.hint
    assert not path.exists()


def _sqlite_file(path: Path, version: int = 0, application: int = 0) -> bytes:
    db = apsw.Connection(str(path))
    db.execute(f"CREATE TABLE theirs (x); PRAGMA user_version = {version}; PRAGMA application_id = {application}")
    db.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("version", "application", "complaint"),
    [
        (0, 0, "not an owlbox database"),
        (1, 77, "belongs to another application"),
        (LATEST + 41, APPLICATION_ID, f"is of version {LATEST + 41}, this owlbox knows up to {LATEST}"),
    ],
)
def test_file_that_is_not_ours_is_refused_and_not_one_byte_changes(
    path: Path, version: int, application: int, complaint: str
) -> None:
    before = _sqlite_file(path, version, application)
    with pytest.raises(StoreError, match=complaint) as caught:
        Store.open(path)
    assert caught.value.hint
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_truncated_database_is_called_damaged(store: Store, keep: float) -> None:
    Entries(store).set("memory://owl", "hoot " * 20_000)
    store.close()
    data = store.path.read_bytes()
    store.path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(StoreError, match="is damaged or not a database") as caught:
        Store.open(store.path)
    assert "backups" in caught.value.hint


def test_garbage_is_called_not_a_database(path: Path) -> None:
    path.write_bytes(b"hoot" * 4000)
    with pytest.raises(StoreError, match="is damaged or not a database"):
        Store.open(path)
    assert path.read_bytes() == b"hoot" * 4000


@pytest.mark.parametrize("target", ["file", "home"])
def test_unreadable_file_or_home_names_the_user_and_the_next_step(runtime: Path, target: str) -> None:
    runtime.chmod(0o755)  # pytest's own folders are closed to others
    home = runtime / "home"
    home.mkdir(mode=0o755)
    Store.create(home / "owlbox.db").close()
    (home / "owlbox.db" if target == "file" else home).chmod(0)
    code = """
        import os
        from appliance.errors import StoreError
        if os.getuid() == 0:  # modes mean nothing to root
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
        for make in (Store.open, Store.create):
            try:
                make(path)
            except StoreError as error:
                assert f"user {os.getuid()}" in error.message, error.message
                print(error.hint)
    """
    assert finished(child(code, home / "owlbox.db")) == "\n".join(
        [f"ls -ld {home} {home}/owlbox.db shows whose they are, and their modes"] * 2
    )
    home.chmod(0o700)


def test_a_connection_left_in_a_transaction_is_used_by_nobody(store: Store) -> None:
    with store._connection() as left:
        left.execute("BEGIN IMMEDIATE")
    with store.write() as execute:
        execute("INSERT INTO mutes VALUES ('user:ada', 1, 1)")
    assert store.value("SELECT until_ms FROM mutes") == 1


def test_threads_that_only_wait_hold_no_connection(store: Store) -> None:
    """A core has forty threads, and what each connection holds grows with the database."""
    have_read, may_end = threading.Barrier(21), threading.Event()
    turn = threading.Lock()

    def work() -> None:
        with turn:
            store.value("SELECT 1")
            with store.write() as execute:
                execute("UPDATE mutes SET until_ms = 1")
        have_read.wait(60)
        may_end.wait(60)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for one in threads:
        one.start()
    have_read.wait(60)
    try:
        assert _open_files(store.path.with_name("owlbox.db-wal")) == 1
    finally:
        may_end.set()
        for one in threads:
            one.join()


def test_many_that_read_at_once_leave_few_connections(store: Store) -> None:
    barrier = threading.Barrier(20)

    def work() -> None:
        with store._connection():
            barrier.wait(30)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(store._idle) == MOST_IDLE and not store._working


def test_a_store_that_is_closed_while_it_is_read_keeps_no_closed_connection(store: Store) -> None:
    with store._connection():
        store.close()
    assert store.value("SELECT 1") == 1


# -- versions ---------------------------------------------------------------------------------------


def test_older_database_is_kept_as_a_snapshot_and_migrated(store: Store) -> None:
    Entries(store).set("memory://owl", "hoot")
    store.close()
    newer = Store.open(store.path, migrations=NEXT)
    assert (newer.version, newer.value("SELECT x FROM later")) == (LATEST + 1, 7)
    assert Entries(newer).get("memory://owl").body == "hoot"
    newer.close()
    [kept] = (store.path.parent / "backups").iterdir()
    assert kept.name.startswith(f"before-migration-{LATEST + 1}-")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    old = Store.open(kept)
    assert (old.version, Entries(old).get("memory://owl").body) == (LATEST, "hoot")
    old.close()


def test_of_copies_from_before_migrations_the_newest_three_stay(store: Store) -> None:
    store.close()
    folder = store.path.parent / "backups"
    folder.mkdir()
    for name in [f"before-migration-{number}-{number * 1000}.db" for number in (109, 110, 111, 112)] + ["before-repair.db"]:
        (folder / name).write_text("a database")
    Store.open(store.path, migrations=NEXT).close()
    made, *kept, other = sorted(path.name for path in folder.iterdir())
    assert kept == ["before-migration-111-111000.db", "before-migration-112-112000.db"] and other == "before-repair.db"
    assert made.startswith(f"before-migration-{LATEST + 1}-")


def test_database_of_a_newer_version_is_refused_untouched(path: Path) -> None:
    Store.create(path, migrations=NEXT).close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"is of version {LATEST + 1}, this owlbox knows up to {LATEST}") as caught:
        Store.open(path)
    assert "update owlbox" in caught.value.hint
    assert path.read_bytes() == before
    assert not (path.parent / "backups").exists()


def test_migration_that_fails_leaves_the_old_version_whole(store: Store) -> None:
    bad = (*MIGRATIONS, "CREATE TABLE half (x INTEGER) STRICT;\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(OwlError, match="no such table: nowhere"):
        Store.open(store.path, migrations=bad)
    assert store.version == LATEST
    assert store.value("SELECT COUNT(*) FROM sqlite_schema WHERE name = 'half'") == 0


# -- transactions -----------------------------------------------------------------------------------


def test_failed_write_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.write() as execute:
        execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, x'00', 1)")
        1 / 0  # noqa: B018
    assert store.rows("SELECT * FROM changesets") == []
    with store.write() as execute:
        execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, x'00', 1)")
    assert len(store.rows("SELECT * FROM changesets")) == 1


def test_nested_write_is_part_of_the_outer_one(store: Store) -> None:
    with pytest.raises(BadInput), store.write() as outer:
        with store.write() as inner:
            inner("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, x'00', 1)")
        assert outer("SELECT COUNT(*) FROM changesets") == [(1,)]
        raise BadInput("no")
    assert store.rows("SELECT * FROM changesets") == []


@pytest.mark.parametrize(("outer", "inner"), [({}, {"durable": True}), ({}, {"run": "a"}), ({"run": "b"}, {"run": "a"})])
def test_nested_write_that_wants_more_than_the_outer_one_gives_is_a_programming_error(
    store: Store, outer: dict[str, object], inner: dict[str, object]
) -> None:
    with pytest.raises(RuntimeError, match="joined one"), store.write(**outer), store.write(**inner):  # type: ignore[arg-type]
        pass
    with store.write(durable=True, run="a"), store.write(durable=True, run="a"), store.write():
        pass


def test_text_that_cannot_be_stored_is_bad_input(store: Store) -> None:
    with pytest.raises(BadInput, match="half a character"), store.write() as execute:
        execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES (?, 1, x'00', 1)", ("\ud800",))
    with store.write():
        pass  # the failed one has let go of the lock


@pytest.mark.covers("B-006")
def test_row_is_seen_by_another_process_as_soon_as_it_is_written(store: Store) -> None:
    code = """
        store = Store.open(path)
        for line in sys.stdin:
            print(store.value("SELECT COUNT(*) FROM entries"), flush=True)
    """
    reader, entries = child(code, store.path), Entries(store)
    assert reader.stdin is not None and reader.stdout is not None
    for number in range(1, 6):
        entries.set(f"memory://{number}", "hoot")
        reader.stdin.write("how many?\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == f"{number}\n"
    finished(reader)


# -- a busy database --------------------------------------------------------------------------------


@pytest.mark.covers("B-003")
def test_busy_schedule_is_eight_doubling_delays() -> None:
    assert BUSY_DELAYS_MS == (100, 200, 400, 800, 1600, 3200, 6400, 12800)


@pytest.mark.covers("B-003", "E-164")
@pytest.mark.parametrize(("tries", "is_enough"), [(4, False), (400, True)])
def test_busy_four_times_then_free_needs_the_fifth_try(
    holder: "subprocess.Popen[str]", path: Path, tries: int, is_enough: bool
) -> None:
    patient, start_s = Store.open(path, busy_delays_ms=(100,) * tries), monotonic_s()
    if is_enough:
        threading.Timer(0.47, holder.kill).start()
        with patient.write() as execute:
            assert monotonic_s() - start_s > 0.4
            execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, x'00', 1)")
    else:
        with pytest.raises(Busy), patient.write():
            pass
    patient.close()


@pytest.mark.covers("B-003", "E-164")
def test_busy_for_ever_is_a_clear_error_after_all_tries(holder: "subprocess.Popen[str]", path: Path) -> None:
    patient, start_s = Store.open(path, busy_delays_ms=(50,) * 8), monotonic_s()
    with pytest.raises(Busy, match=f"database busy: another process has kept {path} locked for 0.4 s") as caught, patient.write():
        pass
    assert 0.4 <= monotonic_s() - start_s < 20
    assert caught.value.hint
    assert patient.rows("SELECT * FROM changesets") == []  # reading goes on
    patient.close()


@pytest.mark.covers("B-003", "E-164")
@pytest.mark.parametrize(
    "sql", ["SELECT * FROM nowhere", "INSERT INTO changesets (run, seq, change, at_ms) VALUES (NULL, 1, x'00', 1)", "nonsense"]
)
def test_other_errors_come_at_once(store: Store, sql: str) -> None:
    start_s = monotonic_s()
    with pytest.raises(OwlError, match="database error") as caught, store.write() as execute:
        execute(sql)
    assert not isinstance(caught.value, Busy)
    assert monotonic_s() - start_s < sum(BUSY_DELAYS_MS) / 2000  # it was not tried again


@pytest.mark.covers("B-003")
def test_threads_of_one_process_never_fail_because_of_each_other(store: Store) -> None:
    def work(worker: int) -> None:
        for number in range(30):
            with store.write(durable=number % 2 == 0) as execute:
                execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES (?, ?, x'00', 1)", (f"w{worker}", number))
            assert store.value("SELECT COUNT(*) FROM changesets WHERE run = ?", (f"w{worker}",)) == number + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert store.value("SELECT COUNT(*) FROM changesets") == 240


# -- durability -------------------------------------------------------------------------------------

COUNT_SYNCS = """
    import apsw
    synced = []

    class Files(apsw.VFS):
        def __init__(self):
            super().__init__("watched", "", makedefault=True)
        def xOpen(self, name, flags):
            return File(name, flags)

    class File(apsw.VFSFile):
        def __init__(self, name, flags):
            self.name = name.filename() if hasattr(name, "filename") else str(name)
            super().__init__("unix", name, flags)
        def xSync(self, flags):
            synced.append(self.name)
            return super().xSync(flags)

    files = Files()
    from appliance.knowledge.entries import Entries
    from appliance.channels.inbox import Inbox
    from appliance.agent.loop import Loops
    from appliance.sessions.outbox import Outbox
    from appliance.records import Event, Inbound
    from appliance.sessions.runs import Loop, Runs
    store = Store.open(path)
    runs = Runs(store, "me")
    inbox = Inbox(store, runs, Loops(store, runs, None, status=None), relevant=lambda text: "", outbox=Outbox(store, "me"))
    run = runs.list_runs()[0].id
    event = Event(run=run, kind="message", role="user", content="hi")

    def write(durable):
        with store.write(durable=durable) as execute:
            execute("UPDATE runs SET title = title || 'x'")

    def check(wanted, function):
        synced.clear()
        result = function()
        found = any(name.endswith("-wal") for name in synced)
        assert found == wanted, (function, synced)
        return result

    for _ in range(2):  # the setting of one transaction does not leak into the next
        check(True, lambda: write(True))
        check(False, lambda: write(False))
        check(True, lambda: runs.append(event, durable=True))
        check(False, lambda: runs.append(event))
    accepted = check(True, lambda: inbox.accept(Inbound("local", "ann", "hi", "m1", 1), "c"))
    check(True, lambda: runs.start_loop(accepted.loop))
    check(False, lambda: runs.keep_draft(accepted.loop, "half"))
    check(True, lambda: runs.end_loop(runs.loop(accepted.loop), 200, "ok"))
    accepted = check(True, lambda: inbox.accept(Inbound("local", "ann", "again", "m2", 1), "c"))
    check(False, lambda: runs.start_loop(accepted.loop, is_synced=False))
    check(True, lambda: runs.start_turn(accepted.loop, 1, "local"))  # and with it that the loop has begun
    check(False, lambda: runs.start_turn(accepted.loop, 2, "local"))
    check(True, lambda: Entries(store).set("memory://owl", "hoot"))
    check(True, lambda: Entries(store).remove("memory://owl"))
    print("all synced as promised")
"""


def test_durable_commits_reach_the_disk_and_others_do_not_wait_for_it(store: Store) -> None:
    a_run(store)
    assert finished(child(COUNT_SYNCS, store.path)) == "all synced as promised"


CROWD = """
    from appliance.knowledge.entries import Entries
    from appliance.records import Event
    from appliance.sessions.runs import Runs
    store, run, number = Store.open(path), sys.argv[2], int(sys.argv[3])
    entries, runs = Entries(store), Runs(store, "")
    while True:
        number += 1
        with store.write(run=run, durable=True):
            entries.set("memory://left", f"hoot {number} " * 50, run=run)
            runs.append(Event(run=run, kind="message", role="user", content=str(number)))
            entries.set("memory://right", f"hoot {number} " * 50, run=run)
        print(number, flush=True)
"""


def test_kill_in_the_middle_of_many_writes_leaves_every_transaction_whole(store: Store) -> None:
    run = a_run(store)
    for number, round_s in enumerate((0.05, 0.11, 0.23)):
        writer = child(CROWD, store.path, run, number * 1_000_000)  # no text twice: that would change nothing
        assert writer.stdout is not None and writer.stdout.readline()
        sleep_s(round_s)
        writer.kill()
        told = [int(line) for line in writer.communicate()[0].split()]
        assert store.problems() == []
        left, right = (Entries(store).get(f"memory://{side}").body for side in ("left", "right"))
        events = Runs(store, "").events(run)
        assert left == right == f"hoot {events[-1].content} " * 50
        assert int(events[-1].content) >= max(told, default=1)  # what was reported is there
        assert [e.seq for e in events] == list(range(1, Runs(store, "").get(run).last_seq + 1))
        assert store.value("SELECT COUNT(*) FROM changesets WHERE run = ?", (run,)) == len(events)


# -- a full disk ------------------------------------------------------------------------------------

FILL = """
    import os
    from appliance.knowledge.entries import Entries
    from appliance.errors import DiskFull
    path.parent.mkdir(exist_ok=True)
    (path.parent / "ballast").write_bytes(bytes(400_000))
    store = Store.create(path)
    entries, kept = Entries(store), []
    try:
        for number in range(1000):
            entries.set(f"memory://{number}", os.urandom(5000).hex())
            kept.append(number)
    except DiskFull as error:
        print(error.message, "/", error.hint)
    else:
        sys.exit("the disk never filled up")
    assert entries.count() == len(kept), (entries.count(), len(kept))
    assert store.problems() == []
    try:
        store.snapshot(path.parent / "backups" / "copy.db")
    except DiskFull:
        print(os.listdir(path.parent / "backups") if (path.parent / "backups").exists() else [])
    (path.parent / "ballast").unlink()
    entries.set("memory://after", "there is space again")
    store.close()
    store = Store.open(path)
    assert Entries(store).count() == len(kept) + 1
    assert store.problems() == []
    print("well")
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[str, ...]:
    """What to put before a command so that tmp_path/disk is a disk of 1.5 MB for it alone."""
    disk = tmp_path / "disk"
    disk.mkdir()
    problems = []
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        prefix = (*unshare, "sh", "-c", 'mount -t tmpfs -o size=1536k small "$0" && exec "$@"', str(disk))
        tried = subprocess.run([*prefix, "true"], capture_output=True, text=True)
        if tried.returncode == 0:
            return prefix
        problems.append(f"{' '.join(unshare)}: {tried.stderr.strip()}")
    pytest.fail(f"a small disk cannot be mounted here, neither as root nor in a user namespace: {'; '.join(problems)}")


def test_full_disk_keeps_what_was_there_and_goes_on_when_there_is_space(small_disk: tuple[str, ...], tmp_path: Path) -> None:
    told, left, end = finished(child(FILL, tmp_path / "disk" / "owlbox.db", prefix=small_disk)).splitlines()
    assert told == f"disk full: nothing was written to {tmp_path}/disk/owlbox.db / free some space and try again"
    assert left == "[]"  # half a snapshot is no snapshot
    assert end == "well"


# -- changes of a run -------------------------------------------------------------------------------


def test_changeset_of_a_run_takes_its_change_back(store: Store) -> None:
    entries = Entries(store)
    entries.set("memory://kept", "before")
    before = store.rows("SELECT * FROM entries ORDER BY id")
    with store.write(run="r1", durable=True):
        entries.set("memory://kept", "after", run="r1")
        entries.set("memory://new", "hoot", run="r1")
    entries.remove("memory://new", By(run="r1"))
    changes = store.rows("SELECT seq, change FROM changesets WHERE run = 'r1' ORDER BY seq DESC")
    assert [seq for seq, _ in changes] == [2, 1]
    store.close()
    db = apsw.Connection(str(store.path))
    for _, change in changes:
        apsw.Changeset.apply(apsw.Changeset.invert(change), db)
    assert db.execute("SELECT * FROM entries ORDER BY id").fetchall() == before
    db.close()


def test_write_that_is_rolled_back_or_changes_nothing_leaves_no_changeset(store: Store) -> None:
    with pytest.raises(BadInput), store.write(run="r1", durable=True):
        Entries(store).set("memory://owl", "hoot", run="r1")
        raise BadInput("no")
    with store.write(run="r1"):
        pass
    Entries(store).set("memory://owl", "of nobody's run")
    assert store.rows("SELECT run FROM changesets") == []


# -- threads and copies -----------------------------------------------------------------------------


def test_interrupt_stops_a_long_query_of_another_thread_and_rolls_back(store: Store) -> None:
    caught: list[Exception] = []

    def work() -> None:
        try:
            with store.write() as execute:
                execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, x'00', 1)")
                execute(COUNT_TO_A_BILLION)
        except OwlError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    start_s = monotonic_s()
    while thread.is_alive() and monotonic_s() - start_s < 60:
        store.interrupt(thread.ident or 0)
        thread.join(0.05)
    assert isinstance(caught[0], Cancelled)
    assert store.rows("SELECT * FROM changesets") == []
    store.interrupt(threading.get_ident())  # nothing runs: nothing happens
    assert store.value("SELECT 1") == 1


def _open_files(path: Path) -> int:
    names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(name) == str(path.resolve()) for name in names)


def test_a_closed_store_holds_no_file_and_opens_again_when_asked(store: Store) -> None:
    crowd = [threading.Thread(target=store.value, args=("SELECT COUNT(*) FROM mutes",)) for _ in range(10)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    log = store.path.with_name("owlbox.db-wal")  # SQLite keeps descriptors of the file itself for the next connection
    assert 1 <= _open_files(log) <= MOST_IDLE
    store.close()
    assert _open_files(store.path) == _open_files(log) == 0
    assert store.value("SELECT 1") == 1


def test_snapshot_is_private_whole_and_of_one_moment(store: Store, tmp_path: Path) -> None:
    run = a_run(store)
    writer = child(CROWD, store.path, run, 0)
    assert writer.stdout is not None and writer.stdout.readline()
    copy = tmp_path / "deep" / "copy.db"
    for _ in range(3):  # an older copy is replaced
        store.snapshot(copy)
    killed(writer)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [p.name for p in copy.parent.iterdir()] == ["copy.db"]
    other = Store.open(copy)
    assert other.problems() == []
    left, right = (Entries(other).get(f"memory://{side}").body for side in ("left", "right"))
    assert left == right == f"hoot {Runs(other, '').events(run)[-1].content} " * 50
    other.close()


@pytest.mark.parametrize("is_quick", [True, False])
def test_what_another_connection_wrote_is_not_taken_for_damage(store: Store, is_quick: bool) -> None:
    other = Store.open(store.path)
    for round_ in "abc":
        for number in range(17):
            Entries(other).set("memory://owl", f"hoot {round_} {number} " * 50)
        assert store.problems(is_quick=is_quick) == []
    other.close()


def test_flipped_page_is_noticed(store: Store) -> None:
    for number in range(50):
        Entries(store).set(f"memory://{number}", "hoot " * 500)
    store.close()
    data = bytearray(store.path.read_bytes())
    page = data.index(b"hoot hoot") // 4096 * 4096  # one that opening the file does not read
    data[page : page + 4096] = bytes(4096)
    store.path.write_bytes(data)
    damaged = Store.open(store.path)
    assert damaged.problems() != []
    damaged.close()


# -- several processes, one database ----------------------------------------------------------------

ROLE = """
    from appliance.clock import monotonic_s, sleep_s
    from appliance.knowledge.entries import Entries
    from appliance.store.process_registry import Leases
    from appliance.records import Event, Inbound
    from appliance.sessions.runs import Runs
    from appliance.knowledge.search import Search
    role, others = sys.argv[2], sys.argv[3:]
    store = Store.open(path)
    leases, runs, entries, finder = Leases(store), Runs(store, role), Entries(store), Search(store)
    lease = leases.begin(role if role != "cli" else "worker")
    with store.write():
        runs.touch_session(Inbound(role, "ann", "hi", "m", 1))
        run = runs.begin(f"{role}:ann", "chat", title=role).id
    for number in range(20):
        runs.append(Event(run=run, kind="message", role="user", content=f"{role} {number}"), durable=True)
        entries.set(f"memory://{role}/{number}", f"{role} says hoot")
    end_s = monotonic_s() + 60
    for other in others:  # what the others do is seen without a restart
        while len(finder.find(other, limit=50)) < 20:
            assert monotonic_s() < end_s, f"{role} does not see {other}"
            sleep_s(0.02)
    leases.end(lease, "done")
    print(len(runs.events(run)))
"""


@pytest.mark.covers("B-001", "B-006")
@pytest.mark.parametrize("roles", [["core"], ["worker"], ["cli"], ["core", "worker", "cli"]], ids="+".join)
def test_every_process_works_alone_and_beside_the_others(store: Store, roles: list[str]) -> None:
    crowd = [child(ROLE, store.path, role, *(r for r in roles if r != role)) for role in roles]
    assert [finished(one) for one in crowd] == ["20"] * len(roles)
    assert Entries(store).count() == 20 * len(roles)
    assert store.problems() == []


SLOW_MODEL = """
    import json, threading
    from test_inbox import Desk
    from appliance.providers.scripted import Scripted
    script = path.parent / "slow.json"
    script.write_text(json.dumps({"turns": [{"text": "at last", "delay_s": 600}]}))
    desk = Desk(Store.open(path), Scripted(script, 8192))
    subscription = desk.ask("take your time")
    print("thinking", flush=True)
    for item in subscription:
        print(item, flush=True)
"""


@pytest.mark.covers("B-002")
def test_process_that_waits_for_a_model_keeps_nobody_from_writing(store: Store) -> None:
    waiting = child(
        textwrap.dedent(SLOW_MODEL),
        store.path,
    )
    assert waiting.stdout is not None and waiting.stdout.readline() == "thinking\n"
    until(lambda: store.value("SELECT COUNT(*) FROM turns") == 1)  # the model has been called
    start_s = monotonic_s()
    for number in range(20):
        Entries(store).set(f"memory://{number}", "hoot")
    assert monotonic_s() - start_s < 20
    assert waiting.poll() is None
    assert store.value("SELECT status FROM loops") == 102  # and it still waits
    killed(waiting)


@pytest.mark.covers("A-009")
def test_second_core_on_the_same_home_is_refused_until_the_first_is_gone(home: Home) -> None:
    code = """
        from appliance.upkeep.home_lock import Lock
        from appliance.errors import AlreadyRunning
        try:
            lock = Lock(path)
        except AlreadyRunning as error:
            print(error.message, flush=True)
        else:
            print("locked", flush=True)
            sys.stdin.read()
    """
    first = child(code, home.lock)
    assert first.stdout is not None and first.stdout.readline() == "locked\n"
    assert finished(child(code, home.lock)) == f"a core (pid {first.pid}) is already running on {home.root}"
    killed(first)
    assert finished(child(code, home.lock)) == "locked"  # the kernel released it
