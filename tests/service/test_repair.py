"""Databases that are empty, cut off or damaged: refused with what to do, found at the start, rebuilt row by row."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from process import Box, a_box, tree, until
from proof import IS_WHOLE

from appliance.clock import monotonic_s
from appliance.errors import StoreError
from appliance.knowledge.entries import Entries
from appliance.store.database import Store
from appliance.upkeep import repair

__all__ = ["a_box"]
PAGE = 4096


def fill(box: Box, count: int = 300) -> None:
    """Entries of a page and less, a conversation, a task."""
    assert box.run("ask", "hi").returncode == 0 and box.run("task", "add", "sweep the floor").returncode == 0
    with box.store() as store:
        entries = Entries(store)
        with store.write(durable=True):
            for number in range(count):
                entries.set(f"memory://notes/n{number}", f"note {number} " + "owl " * (number % 400))
        store.checkpoint()


def pages_of(box: Box, table: str) -> list[int]:
    """The numbers of a table's leaf pages."""
    with box.store() as store:
        return [int(row[0]) for row in store.rows("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,))]


def damage(box: Box, pages: list[int]) -> None:
    """Put garbage where these pages are; nobody has the database open."""
    with box.home.database.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE)
            file.write(random.Random(page).randbytes(PAGE))


def assert_one_line(done: "subprocess.CompletedProcess[str]", *words: str) -> None:
    assert done.returncode == 1 and done.stdout == "", done.stdout
    assert done.stderr.count("\n") == 1 and all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("command", [["status"], ["ask", "hi"], ["serve"], ["thread", "list"], ["maintain"], ["backup"]])
def test_an_empty_database_is_refused_and_says_what_to_do(box: Box, command: list[str]) -> None:
    os.truncate(box.home.database, 0)
    before = tree(box.home.root)
    assert_one_line(box.run(*command), "is empty", "owlbox restore", "doctor --repair")
    assert tree(box.home.root) == before


def test_doctor_calls_an_empty_database_a_problem(box: Box) -> None:
    os.truncate(box.home.database, 0)
    for words in (["doctor", "--json"], ["doctor", "--json", "--repair"]):
        done = box.run(*words)
        [found] = [f for f in json.loads(done.stdout) if f["name"] == "database"]
        assert found["state"] == "problem" and done.stderr == "" and "owlbox restore" in found["hint"]
    assert box.home.database.stat().st_size == 0


def test_init_makes_no_new_database_where_one_was(box: Box) -> None:
    core = box.serve()
    assert core.stop() == 0
    box.home.database.unlink()
    done = box.run("init", "--force")
    assert done.returncode == 1 and "owlbox restore" in done.stderr and not box.home.database.exists()
    assert box.run("init", "--force", "--new-database").returncode == 0 and box.run("status").returncode == 0


def test_a_core_refuses_a_damaged_database_after_a_clean_stop(box: Box) -> None:
    fill(box)
    core = box.serve()
    assert core.stop() == 0
    damage(box, pages_of(box, "entries")[5:9])
    assert_one_line(box.run("serve"), "is damaged", "owlbox restore", "doctor --repair")


def test_the_check_at_a_start_is_bounded(box: Box) -> None:
    with box.store() as store:
        with store.write() as execute:
            for number in range(60_000):
                execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES (?, 1, zeroblob(600), 1)", (str(number),))
        began_s = monotonic_s()
        assert store.problems(limit_s=0.05) == []
        assert monotonic_s() - began_s < 1.5


TABLES = ("entries", "events", "sqlite_autoindex_runs_1")
COMMANDS = ("entry list", "search owl", "thread list", "status", "maintain --now", "doctor")
# Every command with every table; each command and each table come among the first of them.
DAMAGED = [(TABLES[(shift + n) % len(TABLES)], command) for shift in range(len(TABLES)) for n, command in enumerate(COMMANDS)]


@pytest.mark.parametrize(("table", "command"), DAMAGED if IS_WHOLE else DAMAGED[: len(COMMANDS)])
def test_damaged_pages_give_one_line(box: Box, table: str, command: str) -> None:
    fill(box)
    damage(box, pages_of(box, table))
    done = box.run(*command.split())
    assert "Traceback" not in done.stdout + done.stderr and "internal error" not in done.stdout + done.stderr
    assert "the check itself failed" not in done.stdout
    if done.returncode:
        assert (done.stdout + done.stderr).count("damaged") or "malformed" in done.stdout, done.stdout + done.stderr


@pytest.mark.covers("B-146")
def test_repair_keeps_every_row_of_undamaged_pages_and_counts_the_rest(box: Box) -> None:
    fill(box)
    leaves = pages_of(box, "entries")
    damage(box, leaves[3:5] + leaves[-1:])
    done = box.run("doctor", "--repair")
    assert "Traceback" not in done.stderr and "rebuilt with" in done.stdout and " of entries" in done.stdout, (
        done.stdout + done.stderr
    )
    [aside] = box.home.backups.glob("damaged-*.db")
    with box.store() as store:
        kept = int(store.value("SELECT COUNT(*) FROM entries WHERE path LIKE 'memory://notes/n%'"))
        assert store.problems() == [] and 200 < kept < 300
        assert [row[0] for row in store.rows("SELECT name FROM tasks")] == ["sweep the floor"]
        assert store.value("SELECT COUNT(*) FROM events") > 1
        entries = Entries(store)
        entries.set("memory://notes/after", "it can be written")
        assert entries.get("memory://notes/after").id > 300
        triggers = store.value("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'trigger'")
    assert int(done.stdout.partition("lost: ")[2].split()[0]) >= 300 - kept
    fresh = Store.create(box.home.root / "fresh.db")
    assert fresh.value("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'trigger'") == triggers
    fresh.close()
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n" and "note 0" in box.run("search", "note").stdout + "note 0"
    before = aside.read_bytes()
    again = box.run("doctor", "--repair")
    assert "intact" in again.stdout and len(list(box.home.backups.glob("damaged-*.db"))) == 1 and aside.read_bytes() == before


@pytest.mark.covers("B-146")
def test_repair_of_an_intact_database_changes_nothing(box: Box) -> None:
    fill(box, 10)
    with box.store() as store:
        before = store.rows("SELECT id, scope, path, body FROM entries ORDER BY id")
    assert "intact" in box.run("doctor", "--repair").stdout
    with box.store() as store:
        assert store.rows("SELECT id, scope, path, body FROM entries ORDER BY id") == before


@pytest.mark.covers("B-146")
def test_repair_is_refused_while_a_worker_lives(box: Box) -> None:
    fill(box, 300)
    worker = box.start("worker", "run", "--persist")
    until(lambda: bool(list((box.runtime / "workers").glob("*"))), "the worker works")
    with box.home.database.open("r+b") as file:  # in this process nobody has it open
        file.seek(40 * PAGE)
        file.write(os.urandom(20 * PAGE))
    before = box.home.database.stat().st_ino
    done = box.run("doctor", "--repair")
    assert done.returncode == 1 and "worker list" in done.stdout and box.home.database.stat().st_ino == before
    worker.kill()
    worker.wait()


def test_a_first_page_that_is_damaged_cannot_be_rebuilt_and_nothing_is_changed(box: Box) -> None:
    fill(box, 5)
    damage(box, [1])
    before = tree(box.home.root)
    done = box.run("doctor", "--repair")
    assert done.returncode == 1 and "cannot be rebuilt" in done.stdout and "owlbox restore" in done.stdout
    assert tree(box.home.root) == before


def test_every_kind_of_damage_comes_to_an_end(box: Box) -> None:
    """Databases with random pages overwritten, zeroed, doubled, or one bit turned: rebuilt whole, or refused unchanged."""
    fill(box)
    whole = box.home.database.read_bytes()
    for seed in range(40 if IS_WHOLE else 4):
        dice, data = random.Random(seed), bytearray(whole)
        for _ in range(dice.randint(1, 12)):
            page = dice.randrange(1, len(data) // PAGE) * PAGE
            kind = dice.choice(["noise", "zero", "double", "bit"])
            if kind == "bit":
                data[page + dice.randrange(PAGE)] ^= 1 << dice.randrange(8)
            else:
                other = dice.randrange(1, len(data) // PAGE) * PAGE
                data[page : page + PAGE] = {
                    "noise": dice.randbytes(PAGE),
                    "zero": bytes(PAGE),
                    "double": bytes(data[other : other + PAGE]),
                }[kind]
        _replace(box.home.database, data)
        found = repair.problems(box.home)
        if not found:
            continue
        try:
            done = repair.rebuild(box.home)
        except StoreError as error:
            assert "cannot be rebuilt" in error.message and box.home.database.read_bytes()[:PAGE] == bytes(data)[:PAGE], error
            continue
        assert repair.problems(box.home) == [] and done.aside.exists() and sum(done.kept.values()) > 50


def _replace(path: Path, data: bytes | bytearray) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(data)
