"""The tool unit in a real systemd: orders cross to a user that owns nothing, and come back, from a core with all its hardening."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import pytest
from machine import UNITS, Machine
from needs import needs

from appliance.errors import BadInput, Refused, Unavailable
from appliance.sandbox import runner, tool_unit
from appliance.sandbox.bubblewrap import Bind, Limits, SandboxOrder
from appliance.sandbox.launcher import Plan, Sandbox

pytestmark = needs("bwrap", "perl")
PEOPLE = 'u alice - "In the group" /home/alice /bin/sh\nm alice owlbox\n'
NEVER = threading.Event()
LIMIT_S = 120.0

# A core that does nothing but have tools run: its unit is the core's own, so that whatever that forbids is forbidden here.
PROBE = """
import json, pathlib, sys, threading
from appliance.sandbox.launcher import Bind, Limits, SandboxOrder, Plan, Sandbox
sessions = pathlib.Path("/var/lib/owlbox/sessions")
sandbox, said = Sandbox(Plan(unit=pathlib.Path("/run/owlbox-tool/tool.sock"))), {"health": None}
def run(name, script, session="s1", **more):
    folder = sessions / session / "data"
    folder.mkdir(parents=True, exist_ok=True)
    cancel = threading.Event()
    shown = []
    def show(stream, data):
        shown.append(data.decode())
        if "CANCEL" in shown[-1]:
            cancel.set()
    order = SandboxOrder("exec", session, ("bash", "-c", script), folder=folder, **more)
    done = sandbox.run(order, cancel, show)
    said[name] = {"status": done.status, "exit_code": done.exit_code, "error": done.error, "shown": "".join(shown),
                  "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}
run("first", "id -u; id -un; echo kept > a; mkdir d; echo deep > d/b; echo out; echo err >&2; exit 3")
run("second", "cat a d/b; rm -r d")
run("other", "ls -A", session="s2")
run("late", "echo begun; sleep 600", limits=Limits(timeout_s=1))
run("cancelled", "echo CANCEL; sleep 600")
run("hog", "head -c 300M /dev/zero | tail -c 290M > /dev/null", limits=Limits(memory_bytes=100 << 20))
look = "cat /var/lib/owlbox/owlbox.db /run/owlbox/core.sock; ls /var/lib /run; ls /proc | grep -c '^[0-9]'"
run("looks", look + "; cat /proc/self/status")
run("stdin", "wc -c", stdin=bytes(3 << 20))
data = sessions / "s1/data"
said["files"] = {path.name: [path.stat().st_uid, oct(path.stat().st_mode), path.read_text()] for path in data.iterdir()}
(data / "a").write_text("changed by the core")
(data / "a").unlink()
said["health"] = sandbox.health()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Machine]:
    """A machine with the tool socket up, and a core's unit that runs the probe."""
    with machine.folder() as root:
        machine.make_root(root)
        (root / "etc/sysusers.d").mkdir()
        (root / "etc/sysusers.d/people.conf").write_text(PEOPLE)
        machine.install(root)
        (root / "opt/owlbox/probe.py").write_text(PROBE)
        unit = (UNITS / "owlbox.service").read_text()
        unit = re.sub(r"(?m)^(ExecStart|ExecStartPre|ExecReload|WatchdogSec|Restart|RestartSec|Also|Requires)=.*\n", "", unit)
        unit = unit.replace("Type=notify\n", f"Type=oneshot\nExecStart={machine.PYTHON} -I /opt/owlbox/probe.py\n")
        (root / "etc/systemd/system/probe.service").write_text(unit.replace("NotifyAccess=main\n", ""))
        machine.enable(root, "owlbox-tool.socket")
        with machine.booted(root) as made:
            yield made


@pytest.fixture(scope="module")
def said(up: Machine) -> dict[str, Any]:
    """What the probe saw."""
    up.ok("systemctl", "start", "probe.service")
    lines = up.ok("journalctl", "--no-pager", "-o", "cat", "-u", "probe.service").splitlines()
    return dict(json.loads(next(line for line in lines if line.startswith("{"))))


@pytest.mark.covers("A-003", "A-065")
def test_tools_run_as_a_user_of_their_own(up: Machine, said: dict[str, Any]):
    core, tool, broker = (machine.user_id(up.root, name) for name in ("owlbox", "owlbox-tool", "owlbox-broker"))
    assert len({core, tool, broker, 0}) == 4
    assert (said["health"]["runner"], said["health"]["uid"], said["health"]["state"]) == ("unit", tool, "ok")
    # The core's own unit lets it ask the kernel, or status would say otherwise than doctor, which runs in no unit.
    ask = "from appliance.sandbox import landlock; print(landlock.version())"
    assert said["health"]["landlock"] == int(up.ok(machine.PYTHON, "-I", "-c", ask)), said["health"]
    assert said["first"]["stdout"] == "1000\nowl\nout\n"
    assert said["files"]["a"][0] == tool  # written with that user's rights, read by the core


def test_what_it_says_comes_back_as_from_a_child(said: dict[str, Any]):
    first = said["first"]
    assert (first["status"], first["exit_code"], first["stderr"], first["error"]) == ("failed", 3, "err\n", "exit code 3")
    assert sorted(first["shown"].split()) == sorted(first["stdout"].split() + first["stderr"].split())
    assert said["stdin"]["stdout"] == f"{3 << 20}\n"
    assert (said["late"]["status"], said["late"]["exit_code"], said["late"]["stdout"]) == ("timeout", -1, "begun\n")
    assert (said["cancelled"]["status"], said["cancelled"]["stdout"]) == ("cancelled", "CANCEL\n")
    assert said["hog"]["status"] == "failed" and "100 MB of memory" in said["hog"]["error"]


@pytest.mark.covers("A-056", "A-057", "A-073")
def test_a_session_s_folder_is_shared_by_core_and_tool_and_by_no_other_session(up: Machine, said: dict[str, Any]):
    assert said["second"]["stdout"] == "kept\ndeep\n" and said["other"]["stdout"] == ""
    assert said["files"]["a"][1:] == ["0o100660", "kept\n"]
    sessions = "/var/lib/owlbox/sessions"
    assert up.ok("stat", "-c", "%a %U %G", sessions) == "2710 owlbox owlbox-tool"
    assert up.ok("stat", "-c", "%a %U %G", f"{sessions}/s1/data") == "770 owlbox owlbox-tool"
    # People may talk to the owl, which does not make the sessions theirs.
    for path in (sessions, f"{sessions}/s1", f"{sessions}/s1/data"):
        assert "Permission denied" in up.run("ls", path, user="alice").stderr


@pytest.mark.covers("A-003", "A-057", "A-067")
def test_there_is_nothing_of_core_and_broker_to_see(said: dict[str, Any]):
    looks = said["looks"]
    assert "Permission denied" not in looks["stderr"] and looks["stderr"].count("No such file") == 3
    assert int(next(line for line in looks["stdout"].splitlines() if line.isdigit())) <= 6
    assert re.search(r"CapBnd:\s0+$", looks["stdout"], re.MULTILINE) and "NoNewPrivs:\t1" in looks["stdout"]


@pytest.mark.covers("A-003")
def test_only_the_core_may_have_tools_run(up: Machine):
    talk = (
        "import pathlib, threading; from appliance.sandbox import tool_unit as porter; "
        "from appliance.sandbox.bubblewrap import SandboxOrder as Order;"
        "print(porter.send(pathlib.Path('/run/owlbox-tool/tool.sock'), Order('exec', 's1', ('id',)), 'x', threading.Event()))"
    )
    for user in ("alice", "owlbox-broker", "owlbox-tool"):
        assert "Permission denied" in up.run(machine.PYTHON, "-I", "-c", talk, user=user).stderr
    # Root gets past the file's mode, and is refused by the runner.
    assert "user 0 may not have tools run" in up.run(machine.PYTHON, "-I", "-c", talk).stderr
    assert "status='completed'" in up.ok(machine.PYTHON, "-I", "-c", talk, user="owlbox")


@pytest.mark.covers("A-280", "A-020")
def test_the_unit_and_all_it_started_end_with_the_core(up: Machine):
    script = (
        "import pathlib, threading; from appliance.sandbox.launcher import *;"
        "s = Sandbox(Plan(unit=pathlib.Path('/run/owlbox-tool/tool.sock')));"
        "order = SandboxOrder('exec', 's1', ('bash', '-c', 'setsid sleep 4321 & echo x; sleep 4321'));"
        "s.run(order, threading.Event(), lambda *_: print(flush=True))"
    )
    inside = ["nsenter", "-t", str(up.leader), "-a", "--", "setpriv", "--reuid=owlbox", "--regid=owlbox", "--init-groups"]
    core = subprocess.Popen([*inside, machine.PYTHON, "-I", "-c", script], stdout=subprocess.PIPE, env={"PATH": "/usr/bin:/bin"})
    try:
        assert core.stdout is not None and core.stdout.readline() == b"\n"
        up.until(lambda: len(up.run("pgrep", "-x", "sleep").stdout.split()) >= 2, "both sleep")
        pids = up.ok("pgrep", "-f", "sleep 4321", user="owlbox-tool").split()
        owners = {up.ok("stat", "-c", "%U", f"/proc/{pid}") for pid in up.ok("pgrep", "-x", "sleep").split()}
        assert pids and owners == {"owlbox-tool"}
        python = up.ok("pgrep", "-u", "owlbox", "-f", "tool.sock").split()
        up.ok("kill", "-9", *python)
    finally:
        core.kill()
        core.wait(LIMIT_S)
        core.stdout.close()
    up.until(lambda: up.run("pgrep", "-x", "sleep").stdout == "", "every sleep is gone")
    up.until(lambda: "owlbox-tool@" not in up.ok("systemctl", "list-units", "--no-legend", "owlbox-tool@*"), "the unit is gone")


# -- the two ends, without systemd ----------------------------------------------------------------------


@pytest.fixture
def unit(runtime: Path) -> Iterator[Path]:
    """A socket that does what owlbox-tool.socket does: a runner of its own for each connection."""
    path, runners = runtime / "tool.sock", []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    runners.append(
                        subprocess.Popen([sys.executable, "-m", "appliance.sandbox.tool_unit"], stdin=connection, cwd=machine.ROOT)
                    )

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in runners:
        assert one.wait(LIMIT_S) == 0


def test_an_order_crosses_whole(unit: Path, tmp_path: Path):
    work, read = tmp_path / "work", tmp_path / "read"
    for folder in (work, read):
        folder.mkdir()
    (read / "a").write_text("bound\n")
    script = "cat; cat /project/a; cat /skills/x/scripts/b; echo $X $TOOL_NAME; pwd; ulimit -u; exit 5"
    more = {"binds": (Bind(read, "/project"),), "stdin": "ü\n".encode(), "environ": {"X": "1"}, "limits": Limits(pids=7)}
    more["files"] = {"/skills/x/scripts/b": b"\xff\0handed\n"}
    made = SandboxOrder("grep", "s1", ("bash", "-c", script), profile="project", folder=work, **more)  # type: ignore[arg-type]
    done = Sandbox(Plan(unit=unit)).run(made, NEVER)
    assert (done.id, done.status, done.exit_code) == (made.execution, "failed", 5)
    assert done.stdout == "ü\nbound\n".encode() + b"\xff\0handed\n1 grep\n/work\n7\n"


def test_the_other_end_checks_again(unit: Path, tmp_path: Path):
    with pytest.raises(BadInput, match="cannot be a label"):
        tool_unit.send(unit, SandboxOrder("a b", "s1", ("true",)), "x", NEVER)
    os.environ["OWLBOX_CORE_USER"] = "nobody"
    try:
        with pytest.raises(Refused, match="may not have tools run"):
            tool_unit.send(unit, SandboxOrder("exec", "s1", ("true",)), "x", NEVER)
    finally:
        del os.environ["OWLBOX_CORE_USER"]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(unit))
        sock.sendall(b'{"order": {"tool": 3}}\n')
        assert b"an order that cannot be read" in sock.recv(4096)


@pytest.mark.covers("A-011", "A-018")
def test_a_unit_that_does_not_answer_was_not_started_and_is_tried_again(runtime: Path):
    path, calls = runtime / "tool.sock", []
    with pytest.raises(Unavailable) as absent:
        tool_unit.send(path, SandboxOrder("exec", "s1", ("true",)), "x", NEVER)
    assert absent.value.outcome == runner.NOT_STARTED
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def hang_up() -> None:
            for _ in range(2):
                connection, _address = server.accept()
                with connection:
                    calls.append(connection.recv(1 << 16))

        thread = threading.Thread(target=hang_up)
        thread.start()
        sandbox = Sandbox(Plan(unit=path))
        with pytest.raises(Unavailable, match="hung up"):
            sandbox.run(SandboxOrder("exec", "s1", ("true",)), NEVER)
        thread.join(LIMIT_S)
    assert len(calls) == 2 and sandbox.health()["is_degraded"]


def test_a_runner_that_dies_after_it_began_is_not_tried_again(runtime: Path):
    path = runtime / "tool.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def die() -> None:
            connection, _address = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b'{"taken": "x"}\n{"stream": 1, "data": "aGFsZg=="}\n')

        thread = threading.Thread(target=die)
        thread.start()
        done = Sandbox(Plan(unit=path)).run(SandboxOrder("exec", "s1", ("true",)), NEVER)
        thread.join(LIMIT_S)
    assert (done.status, done.exit_code, done.stdout) == ("failed", -1, b"half")
    assert done.error == "the tool unit ended before the command did"
