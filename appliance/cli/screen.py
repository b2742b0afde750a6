"""Opens the screen, with a core as its child: started when nobody answers at the socket, stopped when the screen is left.

Only for people at a terminal of a checkout; on the appliance systemd runs the core and nothing is started
here. The core starts its broker itself. Apart from `service.broker_process`, whose imports would cost the screen
7 MB and the time of opening. Not promised: a core whose screen was killed with -9 goes on running.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from appliance.errors import AlreadyRunning, BadInput, Lost, Refused
from appliance.runtime import jsonrpc, log, paths
from appliance.runtime.paths import Home

LOG = logging.getLogger(__name__)
# As systemd/owlbox.service: else the C library keeps freed blocks for each of a core's 40 threads, 2.5 MB of them (2026-11-29).
TUNABLES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
STOP_S = 15.0


def screen(home: Home, environ: Mapping[str, str], *, thread: str = "", prompt: str = "") -> int:
    """Show the full screen until the person leaves; the exit code. NotFound says how to make a home."""
    socket = paths.find_core(home, environ)
    core = CoreChild(home, socket, environ)
    if not core.is_answering():
        try:
            if home.require().root.stat().st_uid != os.geteuid():
                raise Refused(f"{home.root} belongs to another user and its core is not running", hint="start the core")
            core.start()  # first, so that it comes up while the screen is being loaded
        except (BadInput, Refused):
            if not os.access(socket.parent, os.X_OK):
                raise
            # Somebody else's home: its core is being restarted, and the screen waits for it.
    try:
        if is_terminal := sys.stdout.isatty():
            sys.stdout.write("(-,-) opening")  # at once: loading the screen takes a second on a Pi
            sys.stdout.flush()
        from appliance.tui import app

        if is_terminal:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()
        if os.access(home.logs, os.W_OK):
            log.start("tui", home.logs / "tui", "info", log.Redactor())
        app.run(str(socket), str(home.root), core.revive, thread=thread, prompt=prompt)
    finally:
        core.stop()
    return 0


class CoreChild:
    """The core of a home, if it is ours."""

    def __init__(self, home: Home, socket: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._socket = socket
        self._environ = environ
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._read_bytes = 0
        self._is_stopping = False

    def is_answering(self) -> bool:
        """True when a core is there, whoever started it."""
        try:
            jsonrpc.connect(str(self._socket)).close()
        except Lost:
            return False
        return True

    def start(self) -> None:
        """Start a core of our own; the home must be there."""
        self._spawn_core()

    def revive(self) -> str:
        """Start it again if it was ours and ended; returns what it said when it ended badly."""
        with self._guard:
            if self._is_stopping or self._child is None or (code := self._child.poll()) is None:
                return ""
            why = self._last_words() if code > 0 else ""
            LOG.warning("the core we started ended with %d: %s", code, why)
            if code == AlreadyRunning.exit_code:
                self._child = None  # somebody else's core has the home: it is not ours to look after
            else:
                self._spawn_core()
            return why

    def stop(self) -> None:
        """End it if it is ours: asked first, killed after 15 s."""
        with self._guard:
            self._is_stopping = True
            child = self._child
        if child is None or child.poll() is not None:
            return
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            LOG.error("the core did not stop within %g s and is killed", STOP_S)
            child.kill()
            child.wait()

    def _spawn_core(self) -> None:
        folder = self._home.logs / "core"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "appliance", "--home", str(self._home.root), "serve"]
        with (folder / "output.log").open("ab") as output:
            self._read_bytes = output.tell()
            self._child = subprocess.Popen(
                command,
                env={**TUNABLES, **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a hang-up of the terminal is for us: we stop it in order
                cwd="/",
            )

    def _last_words(self) -> str:
        with (self._home.logs / "core/output.log").open("rb") as output:
            output.seek(self._read_bytes)
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("owlbox: ") if lines else ""
