"""The core's way to its bridge: starts the child when it is first needed, asks it, notices when it has gone.

A call is a connection of its own, so that calls run side by side and hanging up stops one. The child ends itself when it
is idle, and when we end: the kernel closes its input. On the appliance systemd starts it instead, and we only know where
it listens. Retrying what a server did not do is nobody's business here; only a call that never began is asked again.
"""

import contextlib
import logging
import os
import secrets
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Lost, ServerError
from appliance.runtime import jsonrpc
from appliance.runtime.rpc_client import Client

LOG = logging.getLogger(__name__)
LINGER_S = 30.0  # a bridge without servers ends within that
START_S = 60.0  # the protocol's library takes seconds to load, on a Pi many
STOP_S = 8.0
GIVEN = "OWLBOX_BRIDGE_SOCKET"  # where systemd listens for it
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR")
KEPT_TOO = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy", "OWLBOX_LINGER_S")
MISSING = "servers of tools need the package mcp: run make in the folder of the sources, which installs it"

Listen = Callable[[str, dict[str, Any]], None]


class BridgeClient:
    """The bridge of one core; safe to call from many threads."""

    def __init__(self, path: Path, environ: Mapping[str, str], logs: Path, idle_s: Callable[[], float]) -> None:
        self._given = environ.get(GIVEN, "")
        self._path = Path(self._given) if self._given else path
        self._environ = {name: environ[name] for name in (*KEPT, *KEPT_TOO) if name in environ} | {"PYTHONSAFEPATH": "1"}
        self._logs = logs
        self._idle_s = idle_s
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._asked_s = -inf
        self._token = ""
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    @property
    def is_given(self) -> bool:
        """Whether systemd starts the bridge, as another user."""
        return bool(self._given)

    @property
    def is_up(self) -> bool:
        """Whether there may be a bridge that still has connections; of systemd's we only know when we asked it last."""
        return self.pid is not None or monotonic_s() - self._asked_s < self._idle_s() + LINGER_S

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        deadline_s: float,
        cancel: CancelToken | None = None,
        listen: Listen | None = None,
    ) -> dict[str, Any]:
        """What the bridge answers; ServerError and others of our tree as it raised them, retryable when it is lost."""
        client = self._connect_client()
        if self._given:
            self._asked_s = monotonic_s()
        try:
            stream = client.stream(method, {"idle_s": self._idle_s(), **params}, deadline_s=deadline_s, cancel=cancel)
            while True:
                try:
                    name, told = next(stream)
                except StopIteration as end:
                    return dict(end.value)
                if listen is not None:
                    listen(name, told)
        except Lost as error:
            raise ServerError(f"the bridge ended during the call: {error.message}", outcome="retryable", hint="try again") from None
        finally:
            client.close()

    def stop(self) -> None:
        """End the child and every server with it; twice, or before it was ever started, is safe."""
        with self._guard:
            self._is_closed = True
            self._end_child()

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            assert child.stdin is not None
            child.stdin.close()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            LOG.error("bridge %d does not end by itself", child.pid)
            child.kill()
            child.wait()

    def _connect_client(self) -> Client:
        """A connection to a bridge that runs, started if need be."""
        for attempt in (1, 2, 3):
            self._start_bridge()
            try:
                return Client(str(self._path), name="core", token=self._token, timeout_s=START_S)
            except Lost:
                if attempt == 3:
                    raise
                # It may just have ended for want of work, or have been killed.
                with self._guard:
                    if self._child is not None:
                        self._end_child()
        raise AssertionError("unreachable")

    def _start_bridge(self) -> None:
        if self._given:
            return
        with self._guard:
            if self._is_closed:
                raise ServerError("the core is shutting down", outcome="retryable", hint="ask again later")
            if self._child is not None and self._child.poll() is None and self._path.exists():
                return
            self._end_child()
            self._spawn_bridge()

    def _spawn_bridge(self) -> None:
        jsonrpc.check_path(str(self._path))
        self._path.unlink(missing_ok=True)
        self._token = secrets.token_urlsafe(32)
        mine = {"OWLBOX_CHILD": "1", "OWLBOX_TOKEN": self._token}
        self._logs.mkdir(parents=True, exist_ok=True)
        output = self._logs / "output.log"
        with output.open("wb") as said:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "appliance.mcp.bridge", str(self._path)],
                env={**self._environ, **mine},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
                cwd="/",
            )
        child = self._child
        try:
            is_ready = self._is_ready(child)
        except BaseException:
            child.kill()
            raise
        if not is_ready:
            self._end_child()
            words = output.read_text("utf-8", "replace").strip().splitlines()
            last = words[-1] if words else "it said nothing"
            if "No module named 'mcp" in last or "No module named 'httpx2" in last:
                raise ServerError(MISSING, hint="then try again")
            raise ServerError(f"the bridge did not start: {last}", hint=f"{output} says more")
        threading.Thread(target=child.wait, name="bridge-keeper", daemon=True).start()  # so that its end leaves no trace

    def _is_ready(self, child: "subprocess.Popen[bytes]") -> bool:
        """Wait for the byte that says that it listens; False when it ended instead, or takes too long."""
        assert child.stdout is not None
        end_s = monotonic_s() + START_S
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        while (left_s := end_s - monotonic_s()) > 0:
            if poll.poll(1000 * left_s):
                return bool(os.read(child.stdout.fileno(), 1))
        return False
