"""`owlbox maintain`: real homes and databases, with and without a core; what it must not touch above all."""

import fcntl
import os
import random
from pathlib import Path

import pytest
from process import Box, a_box, tree

from appliance.agent.result_pages import Overflow
from appliance.clock import Process, boot_id, new_id, now_ms
from appliance.errors import AlreadyRunning
from appliance.knowledge.entries import Entries
from appliance.records import Event, Inbound
from appliance.service import maintenance
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.runs import Runs
from appliance.store.process_registry import Leases

__all__ = ["a_box"]
DAY_MS = 24 * 3600 * 1000


def written(box: Box) -> dict[str, int]:
    """When each file of the home was last written, by name; the live database is only looked at from outside."""
    return {str(p): p.stat().st_mtime_ns for p in sorted(box.home.root.rglob("*")) if p.is_file() and not p.name.endswith("-shm")}


def test_a_first_round_checks_and_the_next_finds_nothing_due(box: Box):
    assert maintenance.maintain(box.home, box.environ).is_due
    before = written(box), tree(box.home.root, skip=())
    assert maintenance.maintain(box.home, box.environ) == maintenance.Round(is_due=False)
    assert box.run("maintain").stdout == "nothing is due\n"
    assert (written(box), tree(box.home.root, skip=())) == before


def test_a_due_round_with_nothing_to_mend_writes_nothing(box: Box):
    maintenance.maintain(box.home, box.environ)
    with box.store():  # holds the journal files in place, as a running core does
        before = written(box)
        done = maintenance.maintain(box.home, box.environ, is_forced=True)
        assert done == maintenance.Round(is_due=True)
        assert done.lines() == ["the database is well; nothing to do"]
        assert written(box) == before


def test_it_is_due_again_after_a_day_and_when_the_clock_has_jumped(box: Box):
    now = now_ms()
    maintenance.maintain(box.home, box.environ, now=now)
    assert not maintenance.maintain(box.home, box.environ, now=now + DAY_MS - 1).is_due
    assert maintenance.maintain(box.home, box.environ, now=now - DAY_MS).is_due
    assert maintenance.maintain(box.home, box.environ, now=now + DAY_MS).is_due


def test_it_works_beside_a_running_core(box: Box):
    core = box.serve()
    assert box.run("maintain", "--now").returncode == 0
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    assert box.json("maintain", "--now")["problems"] == []
    assert core.stop() == 0


def test_two_at_once_are_one_too_many(box: Box):
    folder = os.open(box.home.root, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        done = box.run("maintain")
        assert (done.returncode, done.stdout) == (5, "")
        with pytest.raises(AlreadyRunning):
            maintenance.maintain(box.home, box.environ)
    finally:
        os.close(folder)
    assert box.run("maintain").returncode == 0


def test_a_damaged_database_is_said_every_time(box: Box):
    pages, dice = bytearray(box.home.database.read_bytes()), random.Random(7)
    for start in range(8192, len(pages) - 4096, 4096):
        pages[start : start + 40] = dice.randbytes(40)
    box.home.database.write_bytes(pages)
    for _ in range(2):
        done = box.run("maintain")
        assert done.returncode == 1
        assert "problem: " in done.stdout or done.stderr.startswith("owlbox: database ")
        assert "Traceback" not in done.stderr


def test_notifications_of_last_month_are_forgotten_or_given_up(box: Box):
    with box.store() as store:
        outbox = Outbox(store, "")
        outbox.end(outbox.put(Notification("told", "ann", "hoot")), "logged")
        outbox.put(Notification("never told", "ann", "hoot"))
        with store.write() as execute:
            long_ago = now_ms() - 32 * 24 * 3600 * 1000
            execute("UPDATE outbox SET created_ms = ?1, ended_ms = ended_ms - ended_ms + ?1", (long_ago,))
    done = maintenance.maintain(box.home, box.environ, is_forced=True)
    assert done.notifications == 2 and "forgot 2 old notifications" in done.lines()
    with box.store() as store:
        assert [(p.notification.key, p.status) for p in Outbox(store, "").list_postings()] == [("never told", "failed")]


def test_processes_of_last_year_are_forgotten(box: Box):
    with box.store() as store:
        leases = Leases(store)
        old, new = (leases.begin("worker", Process(boot_id(), 1, 1)) for _ in range(2))
        leases.end(old, "done")
        leases.end(new, "done")
        with store.write() as execute:
            execute("UPDATE processes SET ended_ms = ? WHERE id = ?", (now_ms() - 32 * DAY_MS, old))
    done = maintenance.maintain(box.home, box.environ)
    assert done.processes == 1 and "forgot 1 ended processes" in done.lines()
    with box.store() as store:
        assert [lease.id for lease in Leases(store).listing()] == [new]


def test_old_logs_go_and_a_long_output_is_turned_over(box: Box):
    logs = box.home.logs
    (logs / "broker").mkdir(exist_ok=True)
    for name, age in (("core.log", 40), ("core.log.1", 10), ("core.log.2.gz", 40), ("broker/broker.log.1", 40)):
        (logs / name).write_text("line\n")
        os.utime(logs / name, (now_ms() / 1000 - age * 86400,) * 2)
    output = logs / "broker/output.log"
    with output.open("ab") as child:
        child.write(b"x" * (maintenance.LONGEST_OUTPUT + 1))
        child.flush()
        done = maintenance.maintain(box.home, box.environ)
        child.write(b"goes on\n")
    assert done.logs == ("broker/broker.log.1", "core.log.2.gz", "broker/output.log")
    left = {str(p.relative_to(logs)) for p in logs.rglob("*") if p.is_file()}
    assert left == {"core.log", "core.log.1", "broker/output.log", "broker/output.log.1"}
    assert output.read_bytes() == b"goes on\n"
    assert Path(f"{output}.1").stat().st_size == maintenance.LONGEST_OUTPUT + 1


def test_logs_of_workers_of_long_ago_are_removed(box: Box) -> None:
    old, young = (box.home.logs / f"{new_id()}.log" for _ in range(2))
    for path in (old, young):
        path.write_text("12:00:00 [[tick-start]] #1\n")
    os.utime(old, (1, 1))
    box.run("maintain")
    assert not old.exists() and young.exists()


@pytest.mark.covers("R-042", "A-221")
def test_inner_records_of_old_runs_go_and_what_was_said_stays(box: Box):
    now = now_ms()
    with box.store() as store:
        runs, overflow = Runs(store, "gone"), Overflow(store, Entries(store))
        with store.write():
            runs.touch_session(Inbound("local", "ann", "hi", "m", 1))
        old, new = (runs.begin("local:ann", "chat", title=name).id for name in ("old", "new"))
        for run in (old, new):
            runs.append(Event(run, "message", "user", "what was said"))
            runs.append(Event(run, "tool_result", "tool", "and done"))
            overflow.keep(run, "x" * 20_000)
            runs.end(run, "ok")
        with store.write() as execute:
            execute("UPDATE runs SET updated_ms = ? WHERE id = ?", (now - 32 * DAY_MS, old))
            execute("UPDATE sessions SET last_active_ms = ?", (now - 2 * DAY_MS,))
    done = maintenance.maintain(box.home, box.environ, now=now)
    assert (done.records, done.sessions) == (1, 1)
    assert "put 1 silent sessions to rest" in done.lines()
    with box.store() as store:
        assert store.value("SELECT status FROM sessions") == "archived"
        assert [(r[0], r[1]) for r in store.rows("SELECT run, COUNT(*) FROM events GROUP BY run ORDER BY run")] == sorted(
            [(old, 2), (new, 2)]
        )
        assert store.rows("SELECT DISTINCT scope FROM entries WHERE scope LIKE 'run:%'") == [(f"run:{new}",)]
    assert maintenance.maintain(box.home, box.environ, now=now, is_forced=True).records == 0


def test_the_log_is_taken_into_the_database(box: Box):
    with box.store() as store:
        with store.write() as execute:
            execute("INSERT INTO mutes (context, until_ms) VALUES ('user:ann', 1)")
        assert maintenance.maintain(box.home, box.environ, is_forced=True).log_bytes > 0
        assert store.path.with_name(store.path.name + "-wal").stat().st_size == 0
        assert maintenance.maintain(box.home, box.environ, is_forced=True).log_bytes == 0
