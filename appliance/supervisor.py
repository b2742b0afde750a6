"""Keeps the broker running: starts it as a child, waits for it without polling, starts it again when it ends.

Each child gets a fresh random token in its environment, valid for its lifetime and written nowhere
(A-186). Its output goes to a folder of its own (A-211). It is started from a thread that lives as long
as we do, because the kernel ends it when the thread that started it ends. A broker that systemd looks after instead is a `Given`.
"""

import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from appliance import jsonrpc, notify
from appliance.clock import monotonic_s, process
from appliance.errors import Lost
from appliance.leases import Leases
from appliance.places import Home

LOG = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 5.0
READY_S = 30.0


class Keeper(Protocol):
    """Whoever looks after the broker."""

    socket: Path
    token: str
    restarts: int

    def is_running(self) -> bool: ...
    def start(self) -> None: ...
    def revive(self, reason: str) -> None: ...
    def stop(self) -> None: ...


class Given:
    """A broker that systemd starts, watches and stops: we only know where it is. It knows us by our user, not by a token."""

    token = ""
    restarts = 0

    def __init__(self, socket: Path) -> None:
        self.socket = Path(jsonrpc.check_path(str(socket)))

    def is_running(self) -> bool:
        """True: the socket is there, and asking at it starts the broker if need be."""
        return True

    def start(self) -> None:
        """Nothing to do: the first question starts it."""

    def revive(self, reason: str) -> None:
        """Nothing we may do; its own watchdog ends it when it hangs."""
        if reason != "needed":
            LOG.error("broker is left to its watchdog: %s", reason)

    def stop(self) -> None:
        """Nothing to do: it is not ours to stop."""


class Broker:
    """A broker child on its own socket."""

    def __init__(self, home: Home, socket: Path, environ: Mapping[str, str], leases: Leases) -> None:
        self.socket = socket
        self.token = ""
        self.restarts = 0
        self._home = home
        self._environ = environ
        self._leases = leases
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._born_s = monotonic_s()

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def is_running(self) -> bool:
        """True while the child lives."""
        return self.pid is not None

    def start(self) -> None:
        """Start it if it was never started; returns at once."""
        with self._guard:
            if self._thread is None and not self._stop.is_set():
                jsonrpc.check_path(str(self.socket))
                # A killed core's broker may still listen there for a moment, and would refuse our token.
                self.socket.unlink(missing_ok=True)
                self._thread = threading.Thread(target=self._keep, name="broker-keeper", daemon=True)
                self._thread.start()

    def revive(self, reason: str) -> None:
        """Make sure it runs; any reason but "needed" means it is sick, and it is killed first."""
        self.start()
        if reason == "needed" and monotonic_s() - self._born_s > READY_S and not self.socket.exists():
            reason = f"its socket {self.socket} is gone"  # a cleaner of /tmp took it
        if reason != "needed" and (child := self._child) is not None and child.poll() is None:
            LOG.error("broker is killed to be restarted: %s", reason)
            child.kill()

    def stop(self) -> None:
        """End it: asked first, killed after 5 s."""
        self._stop.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
        if self._thread is not None:
            self._thread.join(10)
        self.socket.unlink(missing_ok=True)

    def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            started_s = monotonic_s()
            try:
                child = self._spawn()
            except OSError as error:
                LOG.error("broker cannot be started: %s", error)
            else:
                lease = self._leases.begin("broker", process(child.pid))
                if self._stop.is_set():
                    child.terminate()  # stop came while it was being born
                code = child.wait()
                self._leases.end(lease, f"exit {code}")
                LOG.log(logging.INFO if self._stop.is_set() else logging.ERROR, "broker ended with %d", code)
            self.restarts += 1
            pause_s = FIRST_PAUSE_S if monotonic_s() - started_s > HEALTHY_S else min(LONGEST_PAUSE_S, pause_s * 2)
            self._stop.wait(pause_s)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        folder = self._home.logs / "broker"
        folder.mkdir(parents=True, exist_ok=True)
        environ = {k: v for k, v in self._environ.items() if not k.startswith("OWLBOX_") or k.startswith("OWLBOX__")}
        for name in notify.PRIVATE:
            environ.pop(name, None)
        # Before the child exists: whoever finds it listening already has its token.
        self.token, self._born_s = secrets.token_urlsafe(32), monotonic_s()
        environ |= {"OWLBOX_TOKEN": self.token, "OWLBOX_CHILD": "1", "OWLBOX_PARENT": str(os.getpid())}
        command = [sys.executable, "-m", "appliance", "--home", str(self._home.root), "broker", "--socket", str(self.socket)]
        with (folder / "output.log").open("ab") as output:
            self._child = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
            )
        return self._child


def wait_until_ready(path: Path, limit_s: float = READY_S) -> None:
    """Return as soon as somebody listens on the socket; Lost when nobody does in time."""
    end_s, pause = monotonic_s() + limit_s, threading.Event()
    while True:
        try:
            jsonrpc.connect(str(path)).close()
            return
        except Lost:
            if monotonic_s() > end_s:
                raise
            pause.wait(0.03)
