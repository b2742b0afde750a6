"""The socket or the runtime folder goes away under a running core: it is there again within seconds, or it is said who runs."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from process import Box, a_box, send, until

from appliance.clock import monotonic_s

__all__ = ["a_box"]


@pytest.mark.parametrize("what", ["socket", "folder", "again"])
def test_a_core_whose_socket_is_gone_makes_it_anew(box: Box, what: str) -> None:
    core = box.serve()
    with core.client() as standing:
        for _ in range(2 if what == "again" else 1):
            shutil.rmtree(box.runtime) if what == "folder" else (box.runtime / "core.sock").unlink()
            until(lambda: (box.runtime / "core.sock").exists() and core.is_up(), "the core listens again", 5)
        assert standing.call("ping")["pid"] == core.child.pid  # who was connected still is
    assert box.json("status")["pid"] == core.child.pid
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    assert core.stop() == 0 and not (box.runtime / "core.sock").exists()


def test_who_runs_is_said_when_the_socket_cannot_come_back(box: Box) -> None:
    core = box.serve()
    send(core.child.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{core.child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
    (box.runtime / "core.sock").unlink()
    try:
        began_s = monotonic_s()
        done = box.run("status")
        runs = f"a core (pid {core.child.pid}) runs on" in done.stderr and f"kill {core.child.pid}" in done.stderr
        assert done.returncode == 5 and (runs or "a core is starting" in done.stderr)  # it has begun a moment ago
        assert monotonic_s() - began_s < 15
        done = box.run("serve")
        assert done.returncode == 5 and (f"pid {core.child.pid}" in done.stderr or "a core is starting" in done.stderr)
    finally:
        os.kill(core.child.pid, signal.SIGCONT)
    until(core.is_up, "the core listens again", 5)
    assert core.stop() == 0


def test_a_broker_that_is_not_there_yet_is_starting(box: Box) -> None:
    core = box.serve()
    until(lambda: (box.runtime / "broker.sock").exists(), "the broker listens")
    (box.runtime / "broker.sock").unlink()
    assert box.json("status")["broker"]["state"] == "starting"
    assert core.stop() == 0
