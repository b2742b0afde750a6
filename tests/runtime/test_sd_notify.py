"""What goes to systemd, by its bytes: a real datagram socket, a real core and a real broker that think it is there."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import leave_out, needs
from process import Box, a_box, script, until

from appliance.clock import monotonic_s
from appliance.errors import DeadlineExceeded, Lost, OwlError, Unavailable
from appliance.runtime import sd_notify
from appliance.runtime.jsonrpc import connect
from appliance.runtime.rpc_client import Client

__all__ = ["a_box", "script"]
# What systemd does for a socket-activated service: the socket as descriptor 3, and our own pid in LISTEN_PID.
HAND_OVER = (
    "import os, sys\n"
    "os.dup2(int(sys.argv[1]), 3)\n"
    "os.environ['LISTEN_PID'], os.environ['LISTEN_FDS'] = str(os.getpid()), '1'\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'appliance', *sys.argv[2:]])\n"
)


class Listening:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.path = str(path)

    def next(self, limit_s: float = 60.0) -> list[str]:
        """The lines of the next datagram."""
        self.sock.settimeout(limit_s)
        return self.sock.recv(4096).decode().split("\n")

    def until(self, line: str) -> list[list[str]]:
        """Everything up to the datagram that has this line."""
        seen = [self.next()]
        while line not in seen[-1]:
            seen.append(self.next())
        return seen

    def is_silent(self, seconds: float) -> bool:
        """True when nothing comes for so long."""
        try:
            self.next(seconds)
        except TimeoutError:
            return True
        return False


@pytest.fixture
def manager(runtime: Path) -> Iterator[Listening]:
    """Where systemd would listen."""
    listening = Listening(runtime / "notify")
    yield listening
    listening.sock.close()


def test_the_words_are_those_of_sd_notify(manager: Listening):
    notifier = sd_notify.Notifier({"NOTIFY_SOCKET": manager.path})
    notifier.ready("serves\nme")
    notifier.reloading()
    notifier.stopping("asked to")
    assert manager.next() == ["READY=1", "STATUS=serves me"]
    word, moment = manager.next()
    assert word == "RELOADING=1"
    assert abs(int(moment.removeprefix("MONOTONIC_USEC=")) / 1e6 - monotonic_s()) < 10
    assert manager.next() == ["STOPPING=1", "STATUS=stopping: asked to"]


def test_an_abstract_socket_is_reached(runtime: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + str(runtime))
        sd_notify.Notifier({"NOTIFY_SOCKET": f"@{runtime}"}).status("here")
        assert sock.recv(100) == b"STATUS=here"


def test_without_systemd_or_with_a_dead_one_nothing_happens(runtime: Path):
    sd_notify.Notifier({}).ready("up")
    sd_notify.Notifier({"NOTIFY_SOCKET": str(runtime / "nobody")}).ready("up")


WITH_LIBRARY = """
import logging, os, sys
from pathlib import Path
from appliance.errors import OwlError
from appliance.runtime import log, sd_notify
assert sd_notify.daemon is not None
notifier = sd_notify.Notifier(os.environ)
notifier.ready("serves\\nme")
notifier.stopping("asked to")
redactor = log.Redactor()
redactor.add("hunter2-canary")
log.start("core", Path("/nowhere"), "info", redactor, is_service=True)
try:
    raise OwlError("hunter2-canary")
except OwlError:
    logging.getLogger("appliance.x").exception("the key is %s", "hunter2-canary")
os.environ["NOTIFY_SOCKET"] = "/nowhere"
sd_notify.Notifier(os.environ).ready("nobody hears it")
"""


def test_the_library_says_the_same_and_no_more_to_the_journal(manager: Listening, tmp_path: Path):
    """Debian's systemd-python, linked beside the packages as in images, and a socket in place of the journal's."""
    library = Path("/usr/lib/python3/dist-packages/systemd")
    if not list(library.glob(f"_daemon.{sys.implementation.cache_tag}-*.so")) or os.getuid() != 0:
        leave_out("needs python3-systemd of this Python, and root")
    (tmp_path / "systemd").symlink_to(library)
    (tmp_path / "journal").mkdir()
    Path("/run/systemd/journal").mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal/socket"))
        journal.settimeout(20)
        mounted = 'mount --bind "$1" /run/systemd/journal && shift && exec "$@"'
        words = ["unshare", "-m", "sh", "-c", mounted, "sh", str(tmp_path / "journal"), sys.executable, "-c", WITH_LIBRARY]
        path = f"{tmp_path}:{Path(sd_notify.__file__).parents[2]}"
        environ = {**os.environ, "NOTIFY_SOCKET": manager.path, "PYTHONPATH": path}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        said = journal.recv(1 << 16).decode()
    assert [manager.next(), manager.next()] == [["READY=1", "STATUS=serves me"], ["STOPPING=1", "STATUS=stopping: asked to"]]
    fields = dict(line.split("=", 1) for line in said.splitlines())
    assert (fields["SYSLOG_IDENTIFIER"], fields["PRIORITY"], fields["LOGGER"]) == ("owlbox-core", "3", "appliance.x")
    assert json.loads(fields["MESSAGE"])["message"] == "the key is [hidden]" and "hunter2-canary" not in said


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_ours_only_when_it_names_us(environ: dict[str, str], interval_s: float | None):
    assert sd_notify.Notifier(environ).interval_s == interval_s


def test_no_pulse_without_an_answer(manager: Listening, runtime: Path):
    notifier = sd_notify.Notifier({"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "1000000"})
    assert not notifier.pulse(str(runtime / "nobody"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind(str(runtime / "deaf"))
        deaf.listen(1)
        assert not notifier.pulse(str(runtime / "deaf"))
        with pytest.raises(DeadlineExceeded):
            sd_notify.ping(str(runtime / "deaf"), 0.1)
    with pytest.raises(Lost):
        sd_notify.ping(str(runtime / "deaf"), 0.1)
    assert manager.is_silent(0.1)


@pytest.mark.parametrize(
    "environ", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"}]
)
def test_no_socket_was_given(environ: dict[str, str]):
    assert sd_notify.given_socket(environ) is None


def test_two_sockets_are_one_too_many():
    with pytest.raises(OwlError, match="2 sockets"):
        sd_notify.given_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"})


def test_core_says_ready_lives_reloads_and_stops(box: Box, manager: Listening):
    core = box.serve(NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="400000")
    manager.until("READY=1")
    connect(str(box.runtime / "core.sock")).close()  # ready means that it answers
    manager.until("WATCHDOG=1")
    manager.until("WATCHDOG=1")
    core.child.send_signal(signal.SIGHUP)
    assert manager.until("RELOADING=1")[-1][1].startswith("MONOTONIC_USEC=")
    manager.until("READY=1")
    box.home.config.write_text("[models]\nscrpt = 1\n")
    core.child.send_signal(signal.SIGHUP)
    assert "keeps the old configuration" in manager.until("READY=1")[-1][1]
    assert [line for line in box.log("core") if line.get("operation") == "ping"] == []  # the card is spared
    core.child.terminate()
    assert manager.until("STOPPING=1")[-1] == ["STOPPING=1", "STATUS=stopping: signal SIGTERM"]
    assert core.child.wait(60) == 0


def test_no_watchdog_no_wake_up(box: Box, manager: Listening):
    box.serve(NOTIFY_SOCKET=manager.path)
    manager.until("READY=1")
    assert manager.is_silent(0.5)


def test_a_stopped_core_sends_no_pulse(box: Box, manager: Listening):
    core = box.serve(NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="400000")
    manager.until("WATCHDOG=1")
    core.child.send_signal(signal.SIGSTOP)
    try:
        while not manager.is_silent(1.0):
            pass  # what it had sent before
    finally:
        core.child.send_signal(signal.SIGCONT)
    manager.until("WATCHDOG=1")


def test_a_full_house_still_answers_its_watchdog(box: Box, manager: Listening):
    core = box.serve(NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="2000000")
    kept: list[Client] = []

    def is_full() -> bool:
        try:
            kept.append(core.client())
        except Unavailable:
            return bool(kept)
        return False

    until(is_full, "nobody else gets in")
    manager.until("WATCHDOG=1")
    manager.until("WATCHDOG=1")
    assert is_full()
    kept[0].close()


def test_broker_says_ready_lives_and_stops(box: Box, manager: Listening):
    path = box.runtime / "b.sock"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    child = box.start("broker", "--socket", str(path), NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="400000")
    assert manager.until("READY=1")[-1] == ["READY=1", f"STATUS=listens at {path}"]
    manager.until("WATCHDOG=1")
    child.terminate()
    assert manager.until("STOPPING=1")[-1][1] == "STATUS=stopping: SIGTERM"
    assert child.wait(60) == 0


@pytest.mark.parametrize("service", ["serve", "broker"])
def test_a_given_socket_outlives_the_service(box: Box, runtime: Path, service: str):
    path = runtime / "given.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as given:
        given.bind(str(path))
        given.listen(8)
        for _ in range(2):
            command = [sys.executable, "-c", HAND_OVER, str(given.fileno()), "--home", str(box.home.root), service]
            waiting = threading.Thread(target=sd_notify.ping, args=(str(path), 60.0))
            waiting.start()  # before anybody serves: it waits in the socket
            child = subprocess.Popen(command, env=box.environ, pass_fds=[given.fileno()], stderr=subprocess.DEVNULL)
            try:
                waiting.join(60)
                assert not waiting.is_alive()
                with Client(str(path), name="test", timeout_s=60) as client:
                    assert client.server["pid"] == child.pid
            finally:
                child.terminate()
                assert child.wait(60) == 0
            assert path.exists()


def test_core_with_a_given_broker_starts_none(box: Box, runtime: Path):
    path = runtime / "elsewhere.sock"
    broker = box.start("broker", "--socket", str(path), OWLBOX_CORE_USER="root")
    until(path.exists, "the broker listens")
    core = box.serve(OWLBOX_BROKER_SOCKET=str(path))
    assert box.json("ask", "hi")["answer"] == "Hoot hoot."
    status = box.json("status")
    assert (status["broker"]["state"], status["broker"]["pid"]) == ("running", broker.pid)
    assert [p["kind"] for p in status["processes"]] == ["core"]
    core.child.terminate()
    assert core.child.wait(60) == 0
    assert broker.poll() is None
    assert path.exists()


@needs(root=True)  # the broker shows nobody else its environment
def test_systemd_s_words_do_not_reach_the_broker_child(box: Box, manager: Listening):
    core = box.serve(NOTIFY_SOCKET=manager.path)
    environ = Path(f"/proc/{core.broker_pid()}/environ").read_bytes()
    assert b"NOTIFY_SOCKET" not in environ
    manager.until("READY=1")
    assert manager.is_silent(0.2)
