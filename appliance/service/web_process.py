"""Keeps the process of the HTTP server running beside a core that no systemd looks after, when it is switched on.

Started as a child and started again when it ends, more and more slowly. It ends by itself when its standard input does, which is
a pipe that nobody writes to: so it never outlives a core that was killed. Its output goes to `logs/web/output.log`.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Mapping

from appliance.clock import monotonic_s
from appliance.runtime import sd_notify
from appliance.runtime.paths import Home

LOG = logging.getLogger(__name__)
FIRST_S, LONGEST_S, HEALTHY_S = 1.0, 60.0, 10.0
STARTED_S = 3.0  # after which a server that had ended is taken to be there again
CHILD = "OWLBOX_WEB_CHILD"  # tells it, as `http.process` reads it, that we started it


class WebProcess:
    """The server as a child."""

    def __init__(self, home: Home, environ: Mapping[str, str]) -> None:
        self._home = home
        kept = {k: v for k, v in environ.items() if not k.startswith("OWLBOX_") or k.startswith("OWLBOX__")}
        self._environ = {**{k: v for k, v in kept.items() if k not in sd_notify.PRIVATE}, CHILD: "1"}
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0
        self._why = ""  # it ended last
        self._thread = threading.Thread(target=self._keep, name="web-keeper", daemon=True)

    def start(self) -> None:
        """Start it; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        if (child := self._child) is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(3)
            except subprocess.TimeoutExpired:
                child.kill()
        if self._thread.is_alive():
            self._thread.join(5)

    @property
    def problem(self) -> str:
        """The reason why the page is not served, "" while it is."""
        child = self._child
        is_there = child is not None and child.poll() is None and monotonic_s() - self._began_s > STARTED_S
        return "" if is_there else self._why

    def _keep(self) -> None:
        pause_s = FIRST_S
        while not self._stop.is_set():
            self._began_s = monotonic_s()
            try:
                self._child = self._spawn()
                if self._stop.is_set():
                    self._child.terminate()
                code = self._child.wait()
            except OSError as error:
                LOG.error("the web page cannot be started: %s", error)
                code = 1
            if self._stop.is_set():
                return
            self._why = self._last_words()
            LOG.error("the web page ended with %d: %s", code, self._why)
            pause_s = FIRST_S if monotonic_s() - self._began_s > HEALTHY_S else min(LONGEST_S, pause_s * 2)
            self._stop.wait(pause_s)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        folder = self._home.logs / "web"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "appliance", "--home", str(self._home.root), "web"]
        with (folder / "output.log").open("wb") as output:
            return subprocess.Popen(
                command, env=self._environ, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True, cwd="/"
            )

    def _last_words(self) -> str:
        try:
            lines = (self._home.logs / "web/output.log").read_text("utf-8", "replace").strip().splitlines()
        except OSError as error:
            lines = [f"its output cannot be read: {error.strerror}"]
        return lines[-1].removeprefix("owlbox: ") if lines else "it said nothing"


def build_web_process(home: Home, environ: Mapping[str, str], *, is_enabled: bool) -> WebProcess | None:
    """The server of a core; None when it is off, or systemd runs it as a unit of its own."""
    return WebProcess(home, environ) if is_enabled and not environ.get("OWLBOX_WEB_USER") else None
