"""Deleting by scope, what is forgotten by age, and what is refused while the disk is nearly full."""

import json
from pathlib import Path

import pytest
from process import Box, a_box, tree, until  # noqa: F401
from stores import new_home, new_store

from appliance.channels.session_control import rules
from appliance.clock import now_ms
from appliance.errors import DiskFull
from appliance.knowledge.entries import Entries
from appliance.records import Inbound
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, Orchestrator
from appliance.service import maintenance
from appliance.sessions.runs import Runs
from appliance.sessions.sessions import SessionRules
from appliance.store import clearing, disk_room, wall_clock
from appliance.store.migrations import LATEST


def counts(box: Box) -> dict[str, int]:
    with box.store() as store:
        return {scope: sum(clearing.count(store, scope).values()) for scope in ("context", "tasks", "schedules", "threads")}


@pytest.mark.covers("B-144", "E-238")
def test_each_scope_is_counted_first_and_then_deleted_alone(box: Box) -> None:
    for words in (["ask", "hi"], ["task", "add", "sweep"], ["remind", "in 2 hours", "tea"], ["remember", "the well is deep"]):
        assert box.run(*words).returncode == 0, words
    before, files = counts(box), tree(box.home.box)
    assert all(before.values()), before
    done = box.run("nuke", "tasks")
    assert done.returncode == 1 and "would delete 1 tasks" in done.stdout and "--yes" in done.stdout and counts(box) == before
    left = dict(before)
    for scope in ("tasks", "schedules", "threads", "context"):
        done = box.run("nuke", scope, "--yes", "--json")
        assert done.returncode == 0 and sum(json.loads(done.stdout)["rows"].values()) == before[scope], done.stdout
        left[scope] = 0
        assert counts(box) == left, scope
    assert box.run("nuke", "all", "--yes").returncode == 0 and tree(box.home.box) == files
    with box.store() as store:
        assert store.version == LATEST and store.problems() == []
        assert store.value("SELECT COUNT(*) FROM workers") == 0
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n" and box.run("doctor", "database").returncode == 0


@pytest.mark.covers("B-144", "E-238")
def test_nothing_is_deleted_while_a_worker_or_a_core_runs(box: Box) -> None:
    assert box.run("task", "add", "sweep").returncode == 0
    with box.store() as store, store.write() as execute:
        execute(
            "INSERT INTO workers (id, process, pid, host, mode, status, started_ms, beat_ms) "
            "VALUES ('w1', 'x:1:1', 1, 'here', 'persist', 'running', 1, 1)"
        )
    done = box.run("nuke", "all", "--yes")
    assert done.returncode == 4 and "worker reap" in done.stderr and counts(box)["tasks"] == 1
    with box.store() as store, store.write() as execute:
        execute("UPDATE workers SET status = 'dead'")
    core = box.serve()
    assert box.run("nuke", "all", "--yes").returncode == 5 and counts(box)["tasks"] == 1
    assert core.stop() == 0
    assert box.run("nuke", "all", "--yes").returncode == 0 and counts(box)["tasks"] == 0


LONG_AGO_MS = wall_clock.CLOCKLESS_MS + 5


def test_old_changes_are_forgotten_but_for_the_newest(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    new_home(home)
    store = new_store(home.database)
    entries = Entries(store)
    for text in ("one", "two", "three"):
        entries.set("memory://notes/a", text)
    with store.write() as execute:
        execute(
            "INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r1', 1, x'00', ?), ('r2', 1, x'00', ?)",
            (LONG_AGO_MS, now_ms()),
        )
        execute("UPDATE changes SET at_ms = ?", (LONG_AGO_MS,))
    done = maintenance.maintain(home, {"XDG_RUNTIME_DIR": str(tmp_path)}, is_forced=True)
    assert done.changes == 3 and "forgot 3 old changes" in done.lines()
    assert store.value("SELECT COUNT(*) FROM changes WHERE path LIKE '%notes/a'") == 1
    assert [row[0] for row in store.rows("SELECT run FROM changesets")] == ["r2"]
    store.close()


@pytest.mark.covers("A-016")
def test_a_disk_that_is_nearly_full_warns_first_and_then_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    part = disk_room.used_part(tmp_path)
    assert 0 < part < 1 and disk_room.used_part(tmp_path / "gone") == 0
    with caplog.at_level("WARNING", logger="appliance"):
        room = disk_room.DiskRoom(tmp_path, lambda: (part / 2, 1.0))
        room.require("nothing was made")
        room.require("nothing was made")
    assert [record.getMessage() for record in caplog.records] == [f"the disk is {part * 100:.0f} % full"]
    with pytest.raises(DiskFull, match="% full: nothing was made"):
        disk_room.DiskRoom(tmp_path, lambda: (0.0, part / 2)).require("nothing was made")
    keys = Orchestrator()
    assert (keys.disk_warn, keys.disk_refuse) == (0.90, 0.95) == (SessionRules().disk_warn, SessionRules().disk_refuse)


@pytest.mark.covers("A-016")
def test_no_session_is_opened_on_a_full_disk_and_idle_ones_are_archived(tmp_path: Path) -> None:
    store, found = new_store(tmp_path / "owlbox.db"), [SessionRules()]
    runs = Runs(store, "", lambda: found[0])
    runs.people.touch(Inbound("cli", "ada", "hello", "m1", now_ms()))
    found[0] = SessionRules(disk_refuse=0.0)
    with pytest.raises(DiskFull, match="no session was opened"):
        runs.people.touch(Inbound("cli", "bob", "hello", "m2", now_ms()))
    with pytest.raises(DiskFull, match="no session was opened"):
        runs.open_session("task:bob", "bob", "user:bob")
    runs.people.touch(Inbound("cli", "ada", "hello", "m3", now_ms()))  # one that exists goes on
    runs.open_session("cli:ada", "ada", "user:ada")
    found[0] = rules(Config(), is_full=True)
    later = now_ms() + 11 * 60_000
    assert found[0].archive_s == 600 and runs.people.store_statuses(later)[1] == 1
    store.close()
