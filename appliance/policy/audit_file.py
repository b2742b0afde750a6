"""Audit rows once more as lines of JSON in a file, for programs that read files: only appended to, mode 0640, synced line by line.

Owns the open descriptor. One that reaches `MAX_BYTES` is turned over, and `KEEP_FILES` are kept. Knows nothing about what a row
means beyond its fields. A file that cannot be written costs a line in the log, never the act: the row stands in the table.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from appliance.clock import iso, now_ms
from appliance.errors import Unavailable

LOG = logging.getLogger(__name__)
MODE = 0o640
MAX_BYTES = 100_000_000
KEEP_FILES = 10
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe there must not hold us up


def as_line(kind: str, detail: Mapping[str, Any], **fields: str) -> dict[str, Any]:
    """One event with its time in UTC; path, mode, decision and reason are lifted out of the detail where it has them."""
    decision = detail.get("decision") or ("allowed" if kind.endswith("_allowed") else "")
    lifted = {
        "path": detail.get("path") or detail.get("source") or "",
        "mode": detail.get("mode", ""),
        "decision": decision,
        "reason": detail.get("message") or detail.get("reason") or "",
    }
    return {"timestamp": iso(now_ms()), "type": kind, **fields, **lifted, "detail": dict(detail)}


class AuditFile:
    """Appends lines to the file that is named with each: another name closes the one before."""

    def __init__(self, sync: Callable[[int], None] = os.fsync) -> None:
        self._sync = sync
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._handle = -1
        self._is_closed = False
        self._complained = False

    def append(self, path: Path, line: Mapping[str, Any], *, is_synced: bool = True) -> None:
        """One line, on disk when this returns if `is_synced`. Unavailable after `close`."""
        text = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        with self._lock:
            if self._is_closed:
                raise Unavailable("the audit file is closed")
            try:
                self._open(path)
                if os.write(self._handle, text) != len(text):
                    raise OSError(f"only a part of a line fitted into {path}")
                if is_synced:
                    self._sync(self._handle)
                if os.fstat(self._handle).st_size >= MAX_BYTES:
                    self._turn_over(path)
                self._complained = False
            except OSError as error:
                self._let_go()
                if not self._complained:
                    LOG.error("the audit file %s cannot be written: %s", path, error)
                self._complained = True

    def close(self) -> None:
        """Nothing is written from here on."""
        with self._lock:
            self._let_go()
            self._is_closed = True

    def _open(self, path: Path) -> None:
        if self._handle >= 0 and path == self._path and self._is_at(path):
            return  # nobody has turned it over or removed it
        self._let_go()
        handle = os.open(path, FLAGS, MODE)
        self._handle, self._path = handle, path
        os.fchmod(handle, MODE)

    def _is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(self._handle))
        except FileNotFoundError:
            return False

    def _let_go(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._path = -1, None

    def _turn_over(self, path: Path) -> None:
        self._let_go()
        for number in range(KEEP_FILES - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))
