"""The socket or the runtime folder goes away under a running core: it is there again within seconds, or it is said who runs."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from process import Box, Core, a_box, send, until
from stores import new_home
from test_sd_notify import HAND_OVER

from appliance.clock import monotonic_s
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.service.core import Core as ServiceCore
from appliance.service.daemon import SocketWatch

__all__ = ["a_box"]


@pytest.mark.parametrize("what", ["socket", "folder", "again"])
def test_a_core_whose_socket_is_gone_makes_it_anew(box: Box, what: str) -> None:
    core = box.serve()
    with core.client() as standing:
        for _ in range(2 if what == "again" else 1):
            shutil.rmtree(box.runtime) if what == "folder" else (box.runtime / "core.sock").unlink()
            until(lambda: (box.runtime / "core.sock").exists() and core.is_up(), "the core listens again")
        assert standing.call("ping")["pid"] == core.child.pid  # who was connected still is
    assert box.json("status")["pid"] == core.child.pid
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    assert core.stop() == 0 and not (box.runtime / "core.sock").exists()


def test_a_socket_of_systemd_that_is_gone_is_made_anew_by_the_core(box: Box, tmp_path: Path) -> None:
    path = box.runtime / "core.sock"
    box.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(str(path))
        given.listen()
        for _ in range(2):  # the second is begun with the socket of before, whose name is gone
            words = [sys.executable, "-c", HAND_OVER, str(given.fileno()), "--home", str(box.home.root), "serve"]
            core = Core(box, subprocess.Popen(words, env=box.environ, pass_fds=[given.fileno()]))
            box.children.append(core.child)
            until(lambda core=core: path.exists() and core.is_up(), "the core listens")
            path.unlink()
            until(lambda core=core: path.exists() and core.is_up(), "the core listens again")
            assert core.stop() == 0 and not path.exists()


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_core_that_is_stopped_is_named_with_what_lets_it_go_on(box: Box, is_gone: bool) -> None:
    core = box.serve()
    until(lambda: "core.sock" in box.home.lock.read_text(), "it has said where it listens")
    send(core.child.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{core.child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
    if is_gone:
        (box.runtime / "core.sock").unlink()
    try:
        began_s = monotonic_s()
        for words in (["status"], ["task", "list"], ["ask", "hi"]):
            done = box.run(*words)
            assert done.returncode == 5, done.stderr
            assert f"a core (pid {core.child.pid}) runs on {box.home.root} and is stopped" in done.stderr
            assert f"kill -CONT {core.child.pid} lets it go on" in done.stderr
        assert monotonic_s() - began_s < 15
        for words in (["serve"], ["doctor", "--repair"]):
            done = box.run(*words)
            assert done.returncode == 5 and f"kill -CONT {core.child.pid}" in done.stderr, done.stderr
        found = json.loads(box.run("doctor", "runtime", "--json").stdout)[0]
        assert found["state"] == "problem" and "is stopped" in found["message"]
    finally:
        os.kill(core.child.pid, signal.SIGCONT)
    until(core.is_up, "the core listens again")
    assert core.stop() == 0


def test_a_core_whose_folder_cannot_be_made_is_named(box: Box) -> None:
    core = box.serve()
    until(lambda: "core.sock" in box.home.lock.read_text(), "it has said where it listens")
    folder = box.runtime
    shutil.rmtree(folder)
    folder.write_text("in the way\n")
    done = box.run("status", XDG_RUNTIME_DIR=str(box.home.root))
    assert done.returncode == 5 and f"a core (pid {core.child.pid}) runs on {box.home.root}, and its socket" in done.stderr
    assert f"if it does not: kill {core.child.pid}, then start it again" in done.stderr
    folder.unlink()
    until(core.is_up, "the core listens again")
    assert core.stop() == 0


def test_a_broker_that_is_not_there_yet_is_starting(box: Box) -> None:
    core = box.serve()
    until(lambda: (box.runtime / "broker.sock").exists(), "the broker listens")
    (box.runtime / "broker.sock").unlink()
    assert box.json("status")["broker"]["state"] == "starting"
    assert core.stop() == 0


def test_a_home_that_is_moved_under_its_core_is_named(box: Box, tmp_path: Path) -> None:
    """The core ends at its next write, or says it in status until then; either way the home works where it is now."""
    core = box.serve()
    until(lambda: "core.sock" in box.home.lock.read_text(), "it has said where it listens")
    there = Box(Home(box.home.root.rename(tmp_path / "moved")), box.environ)
    done = there.run("status")
    said = done.stdout + done.stderr
    if core.child.poll() is None:
        core.child.kill()
    assert core.child.stderr is not None
    said += core.child.stderr.read().decode()
    assert f"database {box.home.database} is not there any more" in said and "start owlbox where the home is now" in said, said
    core.child.wait()
    core = there.serve()
    assert there.json("status")["faults"] == [] and core.stop() == 0


class Listening:
    """A server that keeps the sockets it is given."""

    def __init__(self) -> None:
        self.given: list[socket.socket] = []

    def accept_at(self, sock: socket.socket) -> None:
        self.given.append(sock)


def test_a_socket_that_goes_while_it_is_looked_at_is_made_at_the_next_look(tmp_path: Path, runtime: Path) -> None:
    home = Home(tmp_path / "home")
    new_home(home)
    core = ServiceCore(home, {**os.environ, "XDG_RUNTIME_DIR": str(runtime)})
    path, server = paths.core_socket(core.runtime), Listening()
    try:
        watch = SocketWatch(core, {path: server}, lambda: path.unlink() if len(server.given) == 1 else None)
        watch.look()
        assert not path.exists()
        watch.look()
        assert path.exists() and len(server.given) == 2
        watch.look()
        assert len(server.given) == 2
    finally:
        for one in server.given:
            one.close()
        core.close("the test is over")
