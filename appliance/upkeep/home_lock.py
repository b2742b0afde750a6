"""The lock of a home: one process works on it, a core or what repairs, restores, exports or updates it."""

import errno
import fcntl
import logging
import os
from pathlib import Path
from typing import IO

from appliance.errors import AlreadyRunning
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import storage_errors

LOG = logging.getLogger(__name__)


class Lock:
    """One core per home: a lock on a file of the home, which the kernel releases however we end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = _opened(path)
        except OSError as error:
            raise storage_errors.host_error(error, path) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            pid = self._file.readline(32).decode("ascii", "replace").strip() or "?"
            self._file.close()
            is_stopped = paths.is_core_stopped(Home(path.parent))
            hint = f"it is stopped: kill -CONT {pid} lets it go on" if is_stopped else "owlbox status shows it"
            raise AlreadyRunning(
                f"a core (pid {pid}) is already running on {path.parent}",
                hint=f"{hint}; end it first: systemctl stop owlbox, or kill {pid}",
            ) from None
        self.tell("")

    def tell(self, socket_path: str) -> None:
        """Write down who holds it and where it listens, for `places.find_core`."""
        self._write(os.fsencode(f"{os.getpid()}\n{socket_path}"))

    def release(self) -> None:
        """Let another core start."""
        self._write(b"")
        self._file.close()

    def _write(self, text: bytes) -> None:
        """What stands in the file is a help for others: a disk that takes no writes must not keep us from starting or ending."""
        try:
            self._file.truncate(0)
            self._file.write(text)
        except OSError as error:
            LOG.info("%s is not written: %s", self._path, error.strerror or error)


def _opened(path: Path) -> IO[bytes]:
    """The lock file, made when it is missing; on a read-only disk it is opened for reading, which is enough for a lock."""
    try:
        return open(path, "a+b", buffering=0)
    except OSError as error:
        if error.errno != errno.EROFS or not path.exists():
            raise
        return open(path, "rb", buffering=0)
