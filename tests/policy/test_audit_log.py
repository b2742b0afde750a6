"""Audit rows: written, cleaned, listed, bounded."""

import logging

import pytest

from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.policy.audit_log import DAY_MS, AuditQuery, Keep, Ledger
from appliance.records import Inbound
from appliance.runtime import log
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.store.wall_clock import CLOCKLESS_MS


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def ledger(store):
    return Ledger(store, log.Redactor(["hushhush"]).clean_all)


@pytest.mark.covers("A-063", "A-207")
def test_row_says_what_happened_and_to_whom(ledger, caplog):
    before = now_ms()
    with log.correlated("c-1"), caplog.at_level(logging.INFO, "appliance"):
        ledger.note(
            "fetch",
            severity="warning",
            session="local:ada",
            run="r1",
            actor="fetch_url",
            rule="x.y",
            detail={"status": 200, "bytes": 7},
        )
    (line,) = ledger.listing()
    assert before <= line.at_ms <= now_ms()
    assert (line.kind, line.severity, line.session, line.run, line.actor) == ("fetch", "warning", "local:ada", "r1", "fetch_url")
    assert (line.rule, line.correlation, line.detail) == ("x.y", "c-1", {"status": 200, "bytes": 7})
    assert "audit fetch" in caplog.text and caplog.records[-1].levelname == "WARNING"


def test_secrets_never_reach_the_table(ledger, store):
    ledger.note("exec", actor="hushhush", detail={"command": "login hushhush", "more": ["hushhush", {"hushhush": 1}]})
    ledger.note("exec", detail={"command": "x" * 1990 + " hushhush " + "y" * 100})  # not even the half before the cut
    rows = store.rows("SELECT actor, detail FROM audit")
    assert "hush" not in str(rows) and log.HIDDEN in rows[0][1] and "cut: " in rows[1][1]


def test_any_value_can_be_noted(ledger, tmp_path):
    ledger.note("exec", session="a\udc80", detail={"path": tmp_path, "half": "\udc80", "none": None, "flag": True, "set": {"a"}})
    (line,) = ledger.listing()
    assert line.detail == {"path": str(tmp_path), "half": "\\udc80", "none": None, "flag": True, "set": ["a"]}


def test_detail_is_bounded(ledger):
    ledger.note("exec", detail={f"key{i}": ["z" * 5000] * 60 for i in range(60)})
    assert len(str(ledger.listing()[0].detail)) < 20_000


def test_unknown_severity_is_refused(ledger):
    with pytest.raises(BadInput, match="fatal"):
        ledger.note("exec", severity="fatal")
    assert ledger.listing() == []


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        (AuditQuery(), ["fetch", "mount_allowed", "mount_denied"]),
        (AuditQuery(kind="mount_"), ["mount_allowed", "mount_denied"]),
        (AuditQuery(kind="mount%"), []),
        (AuditQuery(severity="warning"), ["mount_denied"]),
        (AuditQuery(session="s2"), ["fetch"]),
        (AuditQuery(run="r1"), ["mount_allowed"]),
        (AuditQuery(rule="bind.den"), ["mount_denied"]),
        (AuditQuery(limit=1), ["fetch"]),
        (AuditQuery(before=3), ["mount_allowed", "mount_denied"]),
    ],
)
def test_listing_is_newest_first_and_filtered(ledger, asked, kinds):
    ledger.note("mount_denied", severity="warning", session="s1", rule="mount.bind.denied")
    ledger.note("mount_allowed", session="s1", run="r1")
    ledger.note("fetch", session="s2")
    assert [line.kind for line in ledger.listing(asked)] == kinds


def test_old_and_surplus_rows_go(store):
    ledger = Ledger(store, keep=lambda: Keep(days=2, max_rows=5))
    for number in range(12):
        ledger.note("exec", detail={"number": number})
    now = now_ms()
    assert ledger.sweep(now) == 7
    assert [line.detail["number"] for line in ledger.listing()] == [11, 10, 9, 8, 7]
    with store.write() as execute:
        execute("UPDATE audit SET at_ms = ? WHERE id < 10", (now - 3 * DAY_MS,))
        execute("UPDATE audit SET at_ms = 5 WHERE id = 12")  # a clock that was not set yet
    assert CLOCKLESS_MS < now and ledger.sweep(now) == 2
    assert [line.detail["number"] for line in ledger.listing()] == [11, 10, 9]


def test_a_busy_ledger_stays_bounded_between_sweeps(store):
    ledger = Ledger(store, keep=lambda: Keep(max_rows=100))
    with store.write():
        for _ in range(600):
            ledger.note("exec")
    assert len(ledger.listing(AuditQuery(limit=1000))) < 400


@pytest.mark.parametrize("statement", ["DELETE FROM runs", "UPDATE runs SET deleted_ms = 1"])
def test_what_was_said_in_a_deleted_run_is_forgotten(ledger, store, statement):
    runs = Runs(store, "")
    with store.write():
        runs.touch_session(Inbound("local", "ada", "hi", "m", 1))
    run = runs.begin("local:ada", "chat").id
    ledger.note("exec", detail={"command": "ls"})
    ledger.note("exec", run=run, detail={"command": "cat diary"})
    with store.write() as execute:
        execute(statement)  # how a run without forks goes, and one with forks
    newest, oldest = ledger.listing()
    assert (newest.kind, newest.run, newest.detail, oldest.detail) == ("exec", run, {}, {"command": "ls"})
