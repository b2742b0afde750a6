"""Keeps the broker running: starts it as a child, waits for it without polling, starts it again when it ends.

Each child gets a fresh random token in its environment, valid for its lifetime and written nowhere
(A-186). Its output goes to a folder of its own (A-211). It is started from a thread that lives as long
as we do, because the kernel ends it when the thread that started it ends. One that ends at once three times
is started again only when it is needed. A broker that systemd looks after instead is an `ExternalBroker`.
"""

import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from appliance.clock import monotonic_s, process, sleep_s
from appliance.errors import ConfigError, OwlError
from appliance.runtime import config, jsonrpc, sd_notify
from appliance.runtime.paths import Home
from appliance.store import disk_faults
from appliance.store.process_registry import Leases

LOG = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 5.0
READY_S = 30.0
ENDING_S = 1.0
QUICK_ENDS = 3  # so many ends right after the start mean that the next start would end the same way


class BrokerHandle(Protocol):
    """Keeps a broker: names its socket and token, restarts it when it is sick."""

    @property
    def socket(self) -> Path: ...
    @property
    def token(self) -> str: ...
    @property
    def restarts(self) -> int: ...
    @property
    def last_end(self) -> str: ...
    def is_running(self) -> bool: ...
    def start(self) -> None: ...
    def revive(self, reason: str) -> str: ...
    def ended(self) -> str: ...
    def stop(self) -> None: ...


class ExternalBroker:
    """A broker that another process starts, watches and stops: systemd, which asks for no token."""

    restarts = 0
    last_end = ""

    def __init__(self, socket: Path, token: str = "") -> None:
        self.socket = Path(jsonrpc.check_path(str(socket)))
        self.token = token

    def is_running(self) -> bool:
        """True: the socket is there, and asking at it starts the broker if need be."""
        return True

    def start(self) -> None:
        """Nothing to do: the first question starts it."""

    def revive(self, reason: str) -> str:
        """Nothing we may do; its own watchdog ends it when it hangs."""
        if reason != "needed":
            LOG.error("broker is left to its watchdog: %s", reason)
        return ""

    def ended(self) -> str:
        """Nothing that we know."""
        return ""

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
        self._wanted = threading.Event()
        self._quick_ends = 0
        self._read_bytes = 0
        self._config = b""
        self.last_end, self._is_meant = "", False  # how it ended when nobody meant it to
        self._oom_kills = _oom_kills()

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

    def revive(self, reason: str) -> str:
        """Make sure it runs; any reason but "needed" means it is sick, and it is killed first.

        Returns its last words when it ends at every start; the disk's fault is raised at the first end.
        """
        if self._quick_ends and (fault := disk_faults.write_fault(self._home.root)):
            raise fault
        self.start()
        self._wanted.set()
        if reason == "needed" and monotonic_s() - self._born_s > READY_S and not self.socket.exists():
            reason = f"its socket {self.socket} is gone"  # a cleaner of /tmp took it
        if reason != "needed" and (child := self._child) is not None and child.poll() is None:
            LOG.error("broker is killed to be restarted: %s", reason)
            self._is_meant = True
            child.kill()
        return self._last_words() if self._quick_ends >= QUICK_ENDS else ""

    def ended(self) -> str:
        """Why it ended the last time, when nobody meant it to: waits a moment for one that is just ending."""
        child = self._child
        if child is not None:
            try:
                child.wait(ENDING_S)
            except subprocess.TimeoutExpired:
                return ""
            sleep_s(0.05)  # the thread that waits for it has a word to say
        return self.last_end

    def stop(self) -> None:
        """End it: asked first, killed after 5 s."""
        self._stop.set()
        self._wanted.set()
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
            started_s, code = monotonic_s(), 1
            try:
                child = self._spawn()
            except OSError as error:
                LOG.error("broker cannot be started: %s", error)
            else:
                if self._stop.is_set():
                    child.terminate()  # stop came while it was being born
                lease = self._begin_lease(child.pid)
                code = child.wait()
                is_orderly = self._stop.is_set() or code == 0
                self.last_end = "" if is_orderly or self._is_meant else self._why(code)
                self._is_meant = False
                LOG.log(logging.INFO if is_orderly else logging.ERROR, "broker ended with %d", code)
                self._end_lease(lease, f"exit {code}")
            self.restarts += 1
            is_quick = code != 0 and monotonic_s() - started_s <= HEALTHY_S
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2) if is_quick else FIRST_PAUSE_S
            self._quick_ends = self._quick_ends + 1 if is_quick else 0
            self._wanted.clear()
            self._stop.wait(pause_s)
            if self._quick_ends >= QUICK_ENDS and not self._stop.is_set():
                LOG.error("broker ends at every start and waits until it is needed: %s", self._last_words())
                self._wanted.wait()

    def _why(self, code: int) -> str:
        """What its exit code says: a signal nobody of ours sent is most often the kernel's, which lacks memory."""
        before, self._oom_kills = self._oom_kills, _oom_kills()
        if code == -signal.SIGKILL:
            sure = "because memory ran out" if self._oom_kills > before else "most likely because memory ran out"
            return f"was killed, {sure}"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}: {self._last_words()}"
        return f"ended with {code}: {self._last_words()}"

    def _begin_lease(self, pid: int) -> str:
        """Put it on record, "" when the database does not let us: that must not cost us the broker."""
        try:
            return self._leases.begin("broker", process(pid))
        except OwlError as error:
            LOG.error("broker %d is not on record: %s", pid, error)
            return ""

    def _end_lease(self, lease: str, reason: str) -> None:
        try:
            self._leases.end(lease, reason)
        except OwlError as error:
            LOG.error("the end of a broker is not on record: %s", error)

    def _configuration(self) -> int:
        """A descriptor of the last configuration that could be used: a file broken meanwhile does not stop a restart."""
        try:
            config.load(self._home, self._environ)
            self._config = self._home.config.read_bytes()
        except FileNotFoundError:
            self._config = b""
        except (ConfigError, OSError) as error:
            LOG.error("broker starts with the configuration from before: %s", error)
        fd = os.memfd_create("owlbox.toml")
        os.write(fd, self._config)
        return fd

    def _last_words(self) -> str:
        try:
            with (self._home.logs / "broker/output.log").open("rb") as output:
                output.seek(self._read_bytes)
                lines = output.read().decode("utf-8", "replace").strip().splitlines()
        except OSError as error:
            fault = disk_faults.write_fault(self._home.root)  # why there is none
            lines = [fault.message if fault is not None else f"its output cannot be kept: {error.strerror}"]
        return lines[-1].removeprefix("owlbox: ") if lines else "the log of the core says why"

    def _open_output(self) -> BinaryIO:
        """Where the broker's output goes; nowhere while the disk takes no writes, which its answers need not wait for."""
        folder = self._home.logs / "broker"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / "output.log").open("ab")
        except OSError as error:
            if disk_faults.explain_fault(error) is None:
                raise
            LOG.warning("output of the broker is not kept: %s", error)
            return open(os.devnull, "ab")

    def _spawn(self) -> "subprocess.Popen[bytes]":
        environ = {k: v for k, v in self._environ.items() if not k.startswith("OWLBOX_") or k.startswith("OWLBOX__")}
        for name in sd_notify.PRIVATE:
            environ.pop(name, None)
        # Before the child exists: whoever finds it listening already has its token.
        self.token, self._born_s = secrets.token_urlsafe(32), monotonic_s()
        environ |= {"OWLBOX_TOKEN": self.token, "OWLBOX_CHILD": "1", "OWLBOX_PARENT": str(os.getpid())}
        command = [sys.executable, "-P", "-m", "appliance", "--home", str(self._home.root), "broker", "--socket", str(self.socket)]
        given = self._configuration()
        try:
            with self._open_output() as output:
                self._read_bytes = output.tell()
                self._child = subprocess.Popen(
                    command,
                    env={**environ, "OWLBOX_CONFIG": f"/proc/self/fd/{given}"},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=(given,),
                    cwd="/",
                )
        finally:
            os.close(given)
        return self._child


def _oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory since it started; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
