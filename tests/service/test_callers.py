"""With admin users set, others call what is marked for them and are shown what is theirs; over the socket, as another user."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import pytest
from process import ROOT, Box, Core, a_box  # noqa: F401

from appliance.runtime import paths

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
DAEMON, BIN = 1, 2  # users that every system has
CHILD = """
import json, os, sys
from appliance.errors import OwlError
from appliance.runtime.rpc_client import Client
path, uid, calls = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
import appliance.runtime.jsonrpc, encodings.idna
os.setgroups([]); os.setgid(0); os.setuid(uid)
told = []
with Client(path, name="test", timeout_s=60) as client:
    for name, params in calls:
        try:
            told.append(client.call(name, params, deadline_s=60))
        except OwlError as error:
            told.append(f"{error.outcome}: {error.message}")
print(json.dumps(told))
"""


def ask(box: Box, uid: int, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What a user of the core's group is answered."""
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as door:  # the runtime folder of a checkout is private
        os.chmod(door, 0o755)
        os.link(paths.core_socket(box.runtime), f"{door}/core.sock")
        given = [f"{door}/core.sock", str(uid), json.dumps(calls)]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *given], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def serve(box: Box, *admins: str) -> Core:
    box.environ["OWLBOX__SYSTEM__ADMIN_USERS"] = json.dumps(admins)
    return box.serve()


@pytest.mark.covers("A-269")
def test_standard_user_neither_sees_nor_steers_what_is_anothers(box: Box) -> None:
    core = serve(box, "root")
    theirs = core.call("message.send", text="hello, for my eyes only")["run"]
    session = core.call("run.view", run=theirs)["run"]["session"]
    strict = "mode = 'permissive'"
    threads, *answers = ask(
        box,
        DAEMON,
        ("thread.list", {}),
        ("thread.view", {"id": theirs}),
        ("thread.delete", {"id": theirs}),
        ("run.path", {"run": theirs}),
        ("message.send", {"text": "go on", "thread": theirs}),
        ("entry.get", {"ref": "log://turn_1", "run": theirs}),
        ("session.view", {"id": session}),
        ("history.list", {"context": "user:root"}),
        ("policy.set", {"session": session, "document": strict}),
        ("policy.show", {"session": session}),
        ("policy.set", {"session": session}),
        ("audit.list", {}),
        ("secret.list", {}),
        ("core.shutdown", {}),
        ("grant.add", {"kind": "web", "target": "*", "origins": ["web"], "lasts": "7d", "person": "root"}),
    )
    assert threads == []
    kinds = [str(answer).partition(":")[0] for answer in answers]
    assert kinds == ["not_found"] * 6 + ["permission"] + ["permission", "not_found", *["permission"] * 5], answers
    assert "admins of this box" in answers[7] and core.is_up()
    assert [one["id"] for one in core.call("thread.list")] == [theirs]


@pytest.mark.covers("A-269")
def test_standard_user_keeps_what_is_their_own(box: Box) -> None:
    core = serve(box, "root")
    core.call("message.send", text="hello")
    made, threads = ask(box, DAEMON, ("message.send", {"text": "hello"}), ("thread.list", {}))
    assert [one["id"] for one in threads] == [made["run"]]
    viewed, sessions, status = ask(box, DAEMON, ("thread.view", {"id": made["run"]}), ("session.list", {}), ("core.status", {}))
    assert [event["content"] for event in viewed["events"] if event["role"] == "user"] == ["hello"]
    assert [one["person"] for one in sessions] == ["daemon"] and status["last_thread"]["id"] == made["run"]
    assert ask(box, BIN, ("thread.list", {}), ("session.list", {})) == [[], []]
    assert len(core.call("thread.list")) == 2


@pytest.mark.covers("A-269")
@pytest.mark.parametrize("admins", [(), ("daemon",)])
def test_admin_and_everybody_without_admins_see_all(box: Box, admins: tuple[str, ...]) -> None:
    core = serve(box, *admins)
    theirs = core.call("message.send", text="hello")["run"]
    threads, audit = ask(box, DAEMON, ("thread.list", {}), ("audit.list", {}))
    assert [one["id"] for one in threads] == [theirs] and isinstance(audit, list)
