"""`owlbox backup` and `owlbox restore`: real homes, with and without a core, full disks and damaged archives."""

import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from process import Box, a_box, tree, until
from stores import new_store

from appliance.clock import now_ms
from appliance.errors import NotFound, OwlError, StoreError
from appliance.knowledge.entries import Entries
from appliance.policy.taint import Mark
from appliance.policy.taint_marks import Marks
from appliance.runtime.paths import Home
from appliance.runtime.settings import DAY_MS, Backups, Config
from appliance.runtime.tool_settings import PolicyKeys
from appliance.store import database_copy
from appliance.store.connection_settings import SETTINGS
from appliance.store.database import Store
from appliance.upkeep import backups, restore, staging

__all__ = ["a_box"]


def saved(box: Box) -> Path:
    """A new backup of the home."""
    told = box.json("backup")
    assert told["is_new"], told
    return Path(told["file"])


def remember(box: Box, text: str) -> None:
    assert box.run("remember", text, "--title", text.split()[0]).returncode == 0


def test_a_backup_holds_database_configuration_and_documents_and_nothing_else(box: Box) -> None:
    remember(box, "well water is cold")
    (box.home.box / "notes/garden.md").write_text("# Garden\n")
    (box.home.box / "notes/link.md").symlink_to("/etc/hostname")
    box.home.vault.mkdir()
    (box.home.vault / "key-file").write_text("hush")
    (box.home.models / "x.gguf").write_text("model")
    path = saved(box)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.parent == box.home.backups
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    assert {"manifest.json", "owlbox.db", "owlbox.toml", "box/notes/garden.md", "box/SOUL.md"} <= names
    assert not [name for name in names if name.startswith(("vault", "models", "logs")) or name.endswith(("link.md", "-wal"))]
    assert [p for p in box.home.backups.iterdir() if p != path] == []


def test_nothing_is_written_while_nothing_has_changed(box: Box) -> None:
    path = saved(box)
    before = {p: p.stat().st_mtime_ns for p in box.home.root.rglob("*")}
    done = box.run("backup")
    assert done.stdout == f"nothing has changed since {path}\n"
    assert {p: p.stat().st_mtime_ns for p in box.home.root.rglob("*")} == before
    (box.home.box / "notes/new.md").write_text("new")
    assert saved(box) != path
    remember(box, "one thing more")
    saved(box)
    assert len(box.json("backup", "list")) == 3


def test_an_idle_core_is_backed_up_once(box: Box) -> None:
    core = box.serve()
    assert box.run("ask", "hi").returncode == 0
    saved(box)
    # What follows an answer, such as the title of its thread, is written a moment later: then nothing changes any more.
    until(lambda: not box.json("backup")["is_new"], "an idle core is not backed up again")
    path = backups.listing(box.home.backups)[0].path
    assert core.stop() == 0
    store = Store.open(_database_of(path))
    assert store.value("SELECT COUNT(*) FROM runs") == 1 and store.problems() == []
    store.close()


def test_copies_from_before_a_migration_go_when_they_are_old(box: Box) -> None:
    box.home.backups.mkdir(exist_ok=True)
    old, new = (box.home.backups / f"before-migration-9-{at_ms}.db" for at_ms in (now_ms() - 61 * DAY_MS, now_ms() - 59 * DAY_MS))
    for path in (old, new):
        path.write_text("a database")
    made = backups.make(box.home, Config(), box.home.root / "stick", backups.unheard)
    assert made.removed == ()  # there is no backup yet of what came after them
    (box.home.box / "notes/n.md").write_text("x")
    made = backups.make(box.home, Config(), box.home.root / "stick", backups.unheard)
    assert (made.removed, old.exists(), new.exists()) == ((old.name,), False, True)


def _database_of(path: Path) -> Path:
    with zipfile.ZipFile(path) as archive:
        return Path(archive.extract("owlbox.db", path.parent / "out"))


def test_a_copy_is_of_one_moment_while_others_write(box: Box) -> None:
    """Pairs of entries are written in one transaction each: a copy never holds half of one, and comes to an end."""
    is_over = threading.Event()
    store = Store.open(box.home.database)

    def write() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            with store.write() as execute:
                for half in "ab":
                    execute(
                        "INSERT INTO changesets (run, seq, change, at_ms) VALUES (?, 1, zeroblob(3000), 1)", (f"{number}{half}",)
                    )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for name in ("one", "two", "three"):
            made = backups.make(box.home, Config(), box.home.root / name, backups.unheard)
            copy = Store.open(_database_of(made.backup.path))
            assert copy.value("SELECT COUNT(*) % 2 FROM changesets") == 0 and copy.problems(is_quick=True) == []
            copy.close()
    finally:
        is_over.set()
        writer.join()
        store.close()


def test_too_many_and_too_old_ones_go_and_the_newest_stays(box: Box) -> None:
    settings, folder = Config(backups=Backups(keep=2)), box.home.backups
    folder.mkdir(exist_ok=True)
    others = [folder / "before-repair.db", folder / "before-update-0.0.9-20250101T120000Z.db"]
    for path in others:
        path.write_text("not ours to remove")
    for number in range(4):
        (box.home.box / "notes/n.md").write_text("x" * number)
        made = backups.make(box.home, settings, folder, backups.unheard)
        assert len(made.removed) == (1 if number > 1 else 0)
    assert len(backups.listing(folder)) == 2 and all(path.exists() for path in others)
    newest, oldest = backups.listing(folder)
    _age(oldest.path, now_ms() - 70 * 24 * 3600 * 1000)
    (box.home.box / "notes/n.md").write_text("once more")
    made = backups.make(box.home, Config(backups=Backups(keep=9)), folder, backups.unheard)
    assert [one.path for one in backups.listing(folder)] == [made.backup.path, newest.path]


def _age(path: Path, at_ms: int) -> None:
    """Let an archive say that it was made then."""
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    kept["manifest.json"] = json.dumps({**json.loads(kept["manifest.json"]), "made_ms": at_ms}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)


def test_restoring_brings_everything_back_and_keeps_what_was_there(box: Box) -> None:
    remember(box, "well water is cold")
    (box.home.box / "notes/garden.md").write_text("# Garden\n")
    path = saved(box)
    remember(box, "later thoughts")
    (box.home.box / "notes/garden.md").write_text("# Changed\n")
    (box.home.box / "notes/new.md").write_text("# New\n")
    box.home.config.write_text(box.home.config.read_text() + "\n[runs]\nmax_turns = 9\n")
    before = tree(box.home.root)
    told = box.json("restore", path.name, "--dry-run")
    assert tree(box.home.root) == before and not told["is_restored"]
    assert (told["added"], told["replaced"], told["removed"]) == ([], ["box/notes/garden.md", "owlbox.toml"], ["box/notes/new.md"])
    assert told["rows_now"]["entries"] - told["rows"]["entries"] >= 1 and told["database_version"] == told["database_version_now"]
    done = box.run("restore", path.name)
    assert done.returncode == 0 and "before-restore-" in done.stdout
    assert "cold" in box.run("search", "well").stdout and "thoughts" not in box.run("search", "later").stdout
    assert (box.home.box / "notes/garden.md").read_text() == "# Garden\n" and not (box.home.box / "notes/new.md").exists()
    assert "max_turns = 9" not in box.home.config.read_text()
    [aside] = box.home.backups.glob("before-restore-*")
    assert (aside / "box/notes/new.md").exists() and "max_turns = 9" in (aside / "owlbox.toml").read_text()
    old = Store.open(aside / "owlbox.db")
    assert Entries(old).get("memory://notes/later").body == "later thoughts"
    old.close()
    assert [p.name for p in box.home.root.glob(".restore-*")] == [] and box.run("doctor").returncode in (0, 1)
    assert {f["name"]: f["state"] for f in json.loads(box.run("doctor", "--json").stdout)}["home"] == "ok"


def test_restoring_into_a_home_that_is_lost(box: Box, tmp_path: Path) -> None:
    remember(box, "well water is cold")
    told = box.json("backup", "--to", str(tmp_path / "stick"))
    other = Box(Home(tmp_path / "other"), box.environ)
    assert other.run("restore", told["file"]).returncode == 0
    assert "cold" in other.run("search", "well").stdout


def test_a_single_database_is_restored_alone(box: Box) -> None:
    remember(box, "well water is cold")
    with box.store() as store:
        store.snapshot(box.home.backups / "before-migration-9-1.db")
    remember(box, "later thoughts")
    (box.home.box / "notes/new.md").write_text("# New\n")
    assert box.run("restore", "before-migration-9-1.db").returncode == 0
    assert (box.home.box / "notes/new.md").exists() and "thoughts" not in box.run("search", "later").stdout


@pytest.mark.parametrize("who", ["core", "worker", "command"])
def test_restoring_is_refused_while_somebody_works_with_the_home(box: Box, who: str) -> None:
    path = saved(box)
    if who == "core":
        box.serve()
    elif who == "worker":
        box.start("worker", "run", "--persist")
        until(lambda: bool(list((box.runtime / "workers").glob("*"))), "the worker works")
    else:
        box.start("ask", "stuck")
        until(lambda: bool(box.home.database.with_name("owlbox.db-shm").exists()), "it has the database open")
    before = tree(box.home.root)
    done = box.run("restore", path.name)
    assert done.returncode == 5 and done.stdout == "" and done.stderr.splitlines()[-1].startswith("owlbox: ")
    assert tree(box.home.root) == before
    assert box.run("restore", path.name, "--dry-run").returncode == 0


def spoil(path: Path, how: str) -> None:
    if how == "cut off":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "one bit":
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 3)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 4]))
    elif how == "climbs out":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("../outside.txt", "hoot")
    elif how == "something else":
        path.write_text("Dear diary")


@pytest.mark.parametrize("how", ["cut off", "one bit", "climbs out", "something else"])
def test_a_damaged_archive_is_refused_and_nothing_changes(box: Box, how: str) -> None:
    path = saved(box)
    spoil(path, how)
    before = tree(box.home.root)
    for words in (["restore", path.name, "--dry-run"], ["restore", path.name]):
        done = box.run(*words)
        assert done.returncode == 1 and path.name in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
    assert tree(box.home.root) == before


def test_a_backup_of_a_newer_version_is_refused(box: Box) -> None:
    path = box.home.backups / "newer.db"
    with box.store() as store:
        store.snapshot(path)
    copy = Store(path)
    with copy.write() as execute:
        execute("PRAGMA user_version = 999")
    copy.close()
    done = box.run("restore", "newer.db")
    assert done.returncode == 1 and "version 999" in done.stderr and "update owlbox" in done.stderr


def test_a_damaged_database_makes_no_backup(box: Box) -> None:
    remember(box, "well water is cold " * 3000)
    data = bytearray(box.home.database.read_bytes())
    for page in random.Random(4).sample(range(20, len(data) // 4096), 20):
        data[page * 4096 : page * 4096 + 4096] = os.urandom(4096)
    box.home.database.write_bytes(data)
    done = box.run("backup")
    assert done.returncode == 1 and "damaged" in done.stderr and list(box.home.backups.iterdir()) == []
    with pytest.raises(StoreError):
        backups.make(box.home, Config(), box.home.backups, backups.unheard)


def test_a_disk_that_changes_a_byte_makes_no_backup(box: Box) -> None:
    remember(box, "well water is cold")
    spoilt = set()

    def change(step: str, done: int, total: int) -> None:
        for part in box.home.backups.glob(f".*{backups.PART}"):
            if step == "packing" and not spoilt and part.stat().st_size > 2000:
                spoilt.add(part)
                with part.open("r+b") as file:
                    file.seek(1000)
                    [byte] = file.read(1)
                    file.seek(1000)
                    file.write(bytes([byte ^ 4]))

    with pytest.raises(StoreError, match="no backup was made, what was written is not what is read back") as caught:
        backups.make(box.home, Config(), box.home.backups, change)
    assert spoilt and "--to DIR" in caught.value.hint and list(box.home.backups.iterdir()) == []


KILLED = """
import os, sys
from pathlib import Path
from appliance.runtime.paths import Home
from appliance.upkeep import restore
home, path, limit = Home(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
count = 0
def count_renames(event, args):
    global count
    if event in ("os.rename", "os.link", "ctypes.call_function", "os.remove"):
        count += 1
        if count == limit:
            os.kill(os.getpid(), 9)
sys.addaudithook(count_renames)
restore.restore(home, path)
print("done", count)
"""


def test_a_killed_restore_leaves_whole_parts_and_another_finishes(box: Box) -> None:
    remember(box, "well water is cold")
    path = saved(box)
    remember(box, "later thoughts")
    for limit in range(1, 40):
        words = [sys.executable, "-c", KILLED, str(box.home.root), str(path), str(limit)]
        done = subprocess.run(words, env=box.environ, capture_output=True, text=True)
        assert done.returncode in (0, -9), done.stderr
        if box.home.database.exists():
            store = Store.open(box.home.database)
            assert store.problems(is_quick=True) == []
            store.close()
        assert box.home.config.read_text().startswith("#") and (box.home.box / "SOUL.md").exists()
        if done.returncode == 0:
            break
    assert limit > 3 and "thoughts" not in box.run("search", "later").stdout and "cold" in box.run("search", "well").stdout
    assert box.run("restore", path.name).returncode == 0


FULL = 'mount -t tmpfs -o size=1300k small "$0" && exec "$@"'


def test_a_full_disk_keeps_the_old_backups_and_leaves_no_half(box: Box, tmp_path: Path) -> None:
    place = tmp_path / "stick"
    place.mkdir()
    (box.home.box / "notes/big.bin").write_bytes(random.Random(1).randbytes(1_000_000))
    command = ["unshare", "-rm", "sh", "-c", FULL + ' ; ls -A "$0"', str(place), *box.command("backup", "--to", str(place))]
    command[4] = 'mount -t tmpfs -o size=1300k small "$0" && "$@"; echo "code $? left $(ls -A "$0")"'
    done = subprocess.run(command, env=box.environ, capture_output=True, text=True)
    assert done.stdout == "code 5 left \n", done.stdout + done.stderr
    assert "disk full" in done.stderr and str(place) in done.stderr and "Traceback" not in done.stderr


def with_files(source: Path, target: Path, *, extra: dict[str, bytes], manifest: dict[str, object] | None = None) -> Path:
    """A backup that holds more than it should, or says something else of itself, all of it rightly digested."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as made:
        told = json.loads(archive.read("manifest.json"))
        told["digests"] |= {name: hashlib.sha256(data).hexdigest() for name, data in extra.items()}
        kept = {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}
        for name, data in {**kept, **extra}.items():
            made.writestr(name, data)
        made.writestr("manifest.json", json.dumps({**told, **(manifest or {})}))
    return target


FOREIGN = [
    *({"vault/secrets": b"x"}, {"backups": b"x"}, {"sessions/a/data/x": b"x"}, {"logs/core.log": b"x"}, {"models/x.gguf": b"x"}),
    *({"drop/users/a": b"x"}, {"ssh/authorized_keys": b"x"}, {"spend/spend.jsonl": b"x"}, {"mcp.json": b"x"}, {"box": b"x"}),
    *({"owlbox.db-wal": b"x"}, {"owlbox.lock": b"x"}, {".gitignore": b"x"}, {"vault/x.toml": b"x"}, {"box/../vault/x": b"x"}),
    *({"one.toml": b"x", "two.toml": b"x"}, {"box/" + "a/" * 1500 + "x.md": b"x"}, {"/etc/x.toml": b"x"}, {"skill-envs/x": b"x"}),
]


def test_a_restore_takes_what_a_backup_holds_and_nothing_that_the_archive_decides(box: Box, tmp_path: Path) -> None:
    path, home = saved(box), box.home
    home.vault.mkdir()
    (home.vault / "secrets").write_text("mine")
    before = tree(home.root)
    for number, extra in enumerate(FOREIGN):
        hostile = with_files(path, tmp_path / f"{number}.zip", extra=extra)
        with pytest.raises(StoreError, match="no backup holds|name too long"):
            restore.preview(home, Config(), hostile, backups.unheard)
        with pytest.raises(StoreError):
            restore.restore(home, hostile)
    assert tree(home.root) == before


@pytest.mark.parametrize(("said", "holds"), [(0o666, 0o664), (0o4777, 0o775), (0o001, 0o601), (0, 0o600), (0o640, 0o640)])
def test_an_archive_does_not_say_who_else_may_write_or_run_a_file(box: Box, tmp_path: Path, said: int, holds: int) -> None:
    path = tmp_path / "modes.zip"
    with zipfile.ZipFile(saved(box)) as archive, zipfile.ZipFile(path, "w") as made:
        for info in archive.infolist():
            data = archive.read(info)
            info.external_attr = (stat.S_IFREG | said) << 16
            made.writestr(info, data)
    (tmp_path / "box").mkdir()
    before = os.umask(0)
    try:
        backups.verify(backups.read(path), backups.unheard, tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "owlbox.toml").stat().st_mode) == holds
    assert stat.S_IMODE((tmp_path / "owlbox.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "manifest",
    [
        *({"made_ms": 10**18}, {"made_ms": -1}, {"made_ms": "now"}, {"database": 0}, {"database": 2**70}, {"version": "9" * 1000}),
        *({"digests": []}, {"digests": {"owlbox.db": 5}}, {"counts": {"runs": "many"}}, {"digests": {}}, {"home": None}),
    ],
)
def test_what_an_archive_says_of_itself_has_a_form(box: Box, tmp_path: Path, manifest: dict[str, object]) -> None:
    hostile = with_files(saved(box), tmp_path / "owlbox-20260101T000000Z.zip", extra={}, manifest=manifest)
    with pytest.raises(StoreError):
        restore.preview(box.home, Config(), hostile, backups.unheard)


def test_deep_and_large_manifests_and_foreign_archives_cost_no_listing(box: Box, tmp_path: Path) -> None:
    good = saved(box)
    spoilt = {"1": b"[" * 300_000, "2": b'{"x":' * 300_000, "3": b" " * (backups.LARGEST_MANIFEST + 1), "4": b"\xff\xfe"}
    for number, data in spoilt.items():
        with zipfile.ZipFile(good.parent / f"owlbox-2026010{number}T000000Z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", data)
    assert [one.path for one in backups.listing(good.parent)] == [good]
    assert not box.json("backup")["is_new"]


def test_archives_with_any_byte_changed_are_read_or_refused_with_words(box: Box, tmp_path: Path) -> None:
    data, chance, path = saved(box).read_bytes(), random.Random(7), tmp_path / "owlbox-20260101T000000Z.zip"
    tail = data.rindex(b"PK\x01\x02")  # the directory of the archive, where most of what can go wrong stands
    for _ in range(300):
        spoilt = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            spoilt[chance.choice((chance.randrange(len(data)), chance.randrange(tail - 2000, len(data))))] = chance.randrange(256)
        path.write_bytes(spoilt)
        try:
            backups.verify(backups.read(path), backups.unheard)
        except (StoreError, NotFound) as error:
            assert str(path) in error.message


WRITABLE = "PRAGMA writable_schema = ON"
PLANT = "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES (%r, %r, %r, 0, %r)"
SPY = "CREATE TRIGGER %s AFTER INSERT ON entries BEGIN DELETE FROM marks; END"
# What a database may hold besides ours, by what it is named: SQLite would run some of it at the first write, or read.
PLANTED: dict[str, tuple[str, ...]] = {
    "trigger spy": (SPY % "spy",),
    "trigger sqlite_spy": (WRITABLE, PLANT % ("trigger", "sqlite_spy", "entries", SPY % "sqlite_spy")),
    "trigger entries_marked": ("DROP TRIGGER entries_marked", SPY % "entries_marked"),
    "trigger of_words": ("CREATE TRIGGER of_words AFTER INSERT ON marked_words BEGIN DELETE FROM marked_words; END",),
    "trigger chunks_fts_spy": ("CREATE TRIGGER chunks_fts_spy AFTER INSERT ON tasks BEGIN DELETE FROM marks; END",),
    "view people_too": ("CREATE VIEW people_too AS SELECT * FROM people",),
    "view run_entries": ("DROP VIEW run_entries", "CREATE VIEW run_entries AS SELECT 1"),
    "view chunks_fts_content": (
        WRITABLE,
        PLANT % ("view", "chunks_fts_content", "chunks_fts_content", "CREATE VIEW chunks_fts_content AS SELECT 1"),
    ),
    "table notes": ("CREATE TABLE notes (body TEXT)",),
    "table words": ("CREATE VIRTUAL TABLE words USING fts5(body)",),
    "table entries": ("ALTER TABLE entries ADD COLUMN spy TEXT GENERATED ALWAYS AS (upper(body)) VIRTUAL",),
    "table marks": ("ALTER TABLE marks ADD COLUMN spy TEXT CHECK (1)",),
    "table chunks_vec": ("DROP TABLE chunks_vec", "CREATE TABLE chunks_vec (embedding)"),
    "index spy": ("CREATE INDEX spy ON entries(lower(body))",),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of ours that nobody uses, with vectors of another length and what SQLite itself keeps."""
    path = tmp_path_factory.mktemp("ours") / "owlbox.db"
    with closing(new_store(path)) as store, store.write() as execute:
        execute("DROP TABLE chunks_vec")
        execute("CREATE VIRTUAL TABLE chunks_vec USING vec0(embedding int8[768] distance_metric=cosine, chunk_size=256)")
        execute("ANALYZE")
    return path


def spoilt_by(database: Path, path: Path, statements: Iterable[str]) -> Path:
    """A copy of a database in which somebody ran these."""
    shutil.copy(database, path)
    db = apsw.Connection(str(path))
    for setting in SETTINGS:
        setting(db)
    for statement in statements:
        db.execute(statement)
    db.pragma("journal_mode", "delete")
    db.close()
    return path


@pytest.mark.parametrize("name", PLANTED)
def test_a_database_with_more_than_ours_is_refused_by_name(database: Path, tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir(mode=0o700)
    path = spoilt_by(database, tmp_path / "copy.db", PLANTED[name])
    with pytest.raises(StoreError, match=f"has what owlbox does not make: .*{name}"):
        restore.preview(home, Config(), path, backups.unheard)
    with pytest.raises(StoreError):
        restore.restore(home, path)
    assert not home.database.exists()


def test_a_database_of_ours_is_taken_whatever_its_vectors_are(database: Path, tmp_path: Path) -> None:
    assert database_copy.foreign_objects(spoilt_by(database, tmp_path / "copy.db", ())) == []
    followed = ("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)", "CREATE TABLE _litestream_lock (id INTEGER)")
    assert database_copy.foreign_objects(spoilt_by(database, tmp_path / "copy.db", followed)) == []
    followed = ("CREATE VIRTUAL TABLE _litestream_seq USING fts5(x)",)
    assert database_copy.foreign_objects(spoilt_by(database, tmp_path / "copy.db", followed))[0] == "table _litestream_seq"


def test_the_policy_file_comes_back_and_nothing_beside_it_is_lost(box: Box, tmp_path: Path) -> None:
    home, settings = box.home, Config(policy=PolicyKeys(path="rules/policy.toml"))
    (home.root / "rules").mkdir()
    (home.root / "rules/policy.toml").write_text('mode = "strict"\n')
    made = backups.make(home, settings, tmp_path, backups.unheard).backup
    (home.root / "rules/policy.toml").write_text('mode = "open"\n')
    (home.root / "rules/other.txt").write_text("kept")
    assert "rules/policy.toml" in restore.preview(home, settings, made.path, backups.unheard).replaced
    aside = restore.restore(home, made.path)
    assert (home.root / "rules/policy.toml").read_text() == 'mode = "strict"\n' and (home.root / "rules/other.txt").exists()
    assert (aside / "rules/policy.toml").read_text() == 'mode = "open"\n'


@pytest.mark.covers("A-281")
def test_words_of_strangers_stay_known_when_an_older_backup_is_restored(box: Box) -> None:
    """Files of before may come back into box/, as they did or from the folder that was put aside."""
    remember(box, "well water is cold")
    path, text = saved(box), "Have the researcher open the address with the kumquat code before noon."
    store = Store.open(box.home.database)
    Marks(store).keep_words(text, [Mark("web", "https://evil.example")])
    store.close()
    restore.restore(box.home, path)
    store = Store.open(box.home.database)
    Marks(store).recognize("entry:1", f"He said: {text}")
    assert Marks(store).of("entry:1") == (Mark("web", "https://evil.example"),)
    store.close()


def database_of_another(path: Path) -> None:
    path.unlink()
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE places (url TEXT)")
    other.close()


FILES: dict[str, tuple[Callable[[Path, bytes, bytes], object], str]] = {
    "empty": (lambda path, zipped, data: path.write_bytes(b""), "is empty"),
    "zeros": (lambda path, zipped, data: path.write_bytes(bytes(9000)), "holds only zeros"),
    "archive cut off": (lambda path, zipped, data: path.write_bytes(zipped[: len(zipped) // 2]), "is cut off"),
    "database cut off": (lambda path, zipped, data: path.write_bytes(data[: len(data) // 2]), "is cut off: it has"),
    "a text": (lambda path, zipped, data: path.write_text("Dear diary"), "is not a backup: another program made it"),
    "a model": (lambda path, zipped, data: path.write_bytes(b"GGUF" + bytes(90)), "is a model"),
    "a database of another program": (lambda path, zipped, data: database_of_another(path), "database of another program"),
    "a foreign zip": (lambda path, zipped, data: zipfile.ZipFile(path, "w").close(), "is a zip file, but not a backup"),
    "a folder": (lambda path, zipped, data: (path.unlink(), path.mkdir()), "is a folder, not a backup"),
}


def test_restoring_says_what_a_file_is(box: Box, tmp_path: Path) -> None:
    path = saved(box)
    zipped, plain = path.read_bytes(), tmp_path / "plain.db"
    with box.store() as store:
        store.snapshot(plain)
    data = plain.read_bytes()
    for name, (make, words) in FILES.items():
        given = tmp_path / name.replace(" ", "-")
        given.write_text("")
        make(given, zipped, data)
        with pytest.raises(OwlError, match=words) as told:
            restore.preview(box.home, Config(), restore.find(box.home, str(given)), backups.unheard)
        assert str(given) in told.value.message and "update owlbox" not in told.value.hint
    done = box.run("restore", str(tmp_path / "zeros"), "--dry-run")
    assert done.returncode == 1 and "holds only zeros" in done.stderr


HELD = """
import os, sys
from pathlib import Path
from appliance.upkeep import staging
with staging.stage(Path(sys.argv[1])) as made:
    (made / "opened.zip").write_text("everything in plain")
    os.kill(os.getpid(), 9)
"""


def test_what_killed_commands_left_is_named_and_removed_by_the_next_and_by_maintenance(box: Box) -> None:
    path = saved(box)
    home, folder = box.home, box.home.backups
    for round in ("restore", "maintain"):
        subprocess.run([sys.executable, "-c", HELD, str(home.root)], env=box.environ)
        [left] = home.root.glob(".restoring-*")
        (home.root / ".restore-20260101T000000Z/box").mkdir(parents=True)
        with staging.stage(home.root) as held:
            told = box.run("restore", path.name).stderr if round == "restore" else box.run("maintain").stdout
            assert held.is_dir() and not left.exists()  # one that somebody works in stays
        assert f"removed {left.name}" in told and "a restore was ended halfway: run it again" in told, told
        assert list(home.root.glob(".resto*")) == []
    assert (folder / "before-restore-20260101T000000Z/box").is_dir()
    for name in (".owlbox-20260101T000000Z.77.zip.part", ".owlbox-20260101T000000Z.78.zip.part.db"):
        (folder / name).write_text("half")
    told = box.run("maintain").stdout
    assert told.count("which a backup that was ended had left") == 2 and not list(folder.glob(".owlbox*"))
