"""The file of audit rows: its lines, its mode, its switch, its end."""

import json
import logging
import os
import stat

import pytest
from stores import new_store

from appliance.errors import Unavailable
from appliance.policy import audit_file
from appliance.policy.audit_file import AuditFile
from appliance.policy.audit_log import Keep, Ledger
from appliance.runtime import log
from appliance.store import visibility


@pytest.fixture
def store(tmp_path):
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def wanted(tmp_path):
    """What the configuration says, changed by a test as a reload would."""
    return [Keep(file=tmp_path / "audit.jsonl")]


@pytest.fixture
def ledger(store, wanted):
    made = Ledger(store, log.Redactor(["hushhush"]).clean_all, lambda: wanted[0])
    yield made
    made.close()


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.covers("A-273")
def test_each_row_is_a_line_with_its_fields_and_no_secret(ledger, store, tmp_path):
    detail = {"message": "hushhush is not listed", "mode": "strict", "decision": "refused", "source": "/srv"}
    with visibility.asked_by("ada", "group:garden", None):
        ledger.note("mount_denied", severity="warning", session="s1", run="r1", actor="tool:exec", rule="mount.bind", detail=detail)
    with store.write(), pytest.raises(LookupError):
        ledger.note("policy_allowed", detail={"mode": "strict"})
        raise LookupError
    denied, allowed = lines_of(tmp_path / "audit.jsonl")
    assert denied.pop("timestamp").endswith("Z")
    assert denied.pop("detail")["source"] == "/srv"
    assert denied == {
        "type": "mount_denied",
        "severity": "warning",
        "user": "ada",
        "group": "garden",
        "session": "s1",
        "run": "r1",
        "process": "tool:exec",
        "rule": "mount.bind",
        "path": "/srv",
        "mode": "strict",
        "decision": "refused",
        "reason": "[hidden] is not listed",
    }
    assert allowed["decision"] == "allowed"


@pytest.mark.covers("A-273")
def test_file_is_appended_to_and_nobody_else_may_read_it(ledger, wanted, tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_text('{"type": "before"}\n')
    path.chmod(0o666)
    old = os.umask(0o077)
    try:
        ledger.note("first")
        wanted[0] = Keep(file=tmp_path / "other.jsonl")  # while it runs
        ledger.note("second")
        wanted[0] = Keep()
        ledger.note("third")
    finally:
        os.umask(old)
    assert [line["type"] for line in lines_of(path)] == ["before", "first"]
    assert [line["type"] for line in lines_of(tmp_path / "other.jsonl")] == ["second"]
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.glob("*.jsonl")} == {0o640}


@pytest.mark.covers("A-273")
def test_lines_are_synced_unless_that_is_switched_off(store, wanted, tmp_path):
    synced = []
    file = AuditFile(lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    ledger = Ledger(store, keep=lambda: wanted[0], file=file)
    ledger.note("first")
    wanted[0] = Keep(file=tmp_path / "audit.jsonl", is_synced=False)
    ledger.note("second")
    assert synced == [str(tmp_path / "audit.jsonl")] and len(lines_of(tmp_path / "audit.jsonl")) == 2
    ledger.close()


@pytest.mark.parametrize("how", ["renamed", "removed"])
def test_a_file_that_somebody_else_turned_over_is_begun_anew(how, ledger, tmp_path):
    path = tmp_path / "audit.jsonl"
    ledger.note("first", actor="user:ada")
    if how == "renamed":
        path.rename(tmp_path / "old.jsonl")
    else:
        path.unlink()
    ledger.note("second", actor="tool:exec")
    (line,) = lines_of(path)
    assert (line["type"], line["process"], line["user"]) == ("second", "tool:exec", "")


@pytest.mark.covers("A-273")
def test_a_person_who_acts_is_named_as_one(ledger, tmp_path):
    ledger.note("login_invited", actor="user:ada")
    assert [(one["user"], one["process"]) for one in lines_of(tmp_path / "audit.jsonl")] == [("ada", "")]


@pytest.mark.covers("A-273")
def test_nothing_is_written_after_the_end(ledger):
    ledger.close()
    with pytest.raises(Unavailable):
        ledger.note("late")


@pytest.mark.parametrize("what", ["link", "folder", "missing"])
def test_a_file_that_cannot_be_written_is_said_once_and_stops_nobody(what, ledger, tmp_path, wanted, caplog):
    path = tmp_path / "audit.jsonl"
    if what == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "folder":
        path.mkdir()
    else:
        wanted[0] = Keep(file=tmp_path / "none" / "audit.jsonl")
    with caplog.at_level(logging.ERROR, "appliance"):
        ledger.note("first")
        ledger.note("second")
    assert [line.kind for line in ledger.listing()] == ["second", "first"]
    assert len([one for one in caplog.records if "cannot be written" in one.message]) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_large_file_is_turned_over_and_ten_are_kept(ledger, tmp_path):
    path = tmp_path / "audit.jsonl"
    for number in range(audit_file.KEEP_FILES + 2):
        ledger.note(f"kind-{number}")
        with path.open("ab") as out:
            out.truncate(audit_file.MAX_BYTES)  # holes: nothing is really that large
        ledger.note("last of its file")
        assert not path.exists()
    assert len(list(tmp_path.glob("audit.jsonl.*"))) == audit_file.KEEP_FILES
    assert b"kind-11" in (tmp_path / "audit.jsonl.1").read_bytes()[:500]
