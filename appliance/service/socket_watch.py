"""Keeps a core's sockets where others look for them: a logout or a cleaner of /tmp may take the folder away under it.

Sleeps until the kernel tells of a change in the runtime folder. A socket that systemd holds is not made anew by systemd when its
name is gone, so that is done here too. `broker_process` renews the broker's when it is needed.
"""

import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from appliance.errors import OwlError
from appliance.ingest.inotify import Inotify
from appliance.runtime import paths
from appliance.runtime.rpc_server import listen
from appliance.service.core import Core

LOG = logging.getLogger(__name__)
RETRY_S = 3.0


class Server(Protocol):
    """What accepts at a socket, and can do so at another one."""

    def accept_at(self, sock: socket.socket) -> None: ...


class SocketWatch:
    """Binds the sockets of servers again when their names are gone, then calls `bound`."""

    def __init__(self, core: Core, servers: Mapping[Path, Server], bound: Callable[[], None]) -> None:
        self._core = core
        self._servers = servers
        self._bound = bound
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="socket-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the names to those who remove them."""
        self._stop.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join(RETRY_S * 2)

    def _run(self) -> None:
        is_told = False
        while not self._stop.is_set():
            try:
                paths.runtime_folder(self._core.home, self._core.base.environ, make=True)
                watch = Inotify(sorted({str(path.parent) for path in self._servers}), self._wake)
                try:
                    self._restore()
                    is_told = False
                    watch.wait(None)
                finally:
                    watch.close()
            except (OwlError, OSError) as error:
                if not is_told:
                    LOG.error("the sockets in %s cannot be made: %s", self._core.runtime, error)
                is_told = True
                self._stop.wait(RETRY_S)

    def _restore(self) -> None:
        gone = [] if self._stop.is_set() else [path for path in self._servers if not _is_open(path)]
        for path in gone:
            LOG.warning("%s is gone, and is made anew", path)
            self._servers[path].accept_at(listen(path))
        if gone:
            self._bound()


def _is_open(path: Path) -> bool:
    """Whether somebody listens under this name; a core that was killed may have left a socket in place of systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        return caller.connect_ex(str(path)) not in (errno.ENOENT, errno.ECONNREFUSED)
