"""The process that reads every table (`store.table_check`), as its caller sees it.

Imports little, so that it can be begun before the doctor itself is read.
"""

import json
import signal
import subprocess
import sys
from typing import Any

from msgspec import Struct

from appliance.runtime.paths import Home

BRIEF_S, SAMPLE = 0.1, 200  # of a database with more entries than this: the time of its check, and the entries that are looked at
LIMIT_S = 3600.0


class Tables(Struct, frozen=True):
    """What the process said: the state of each table, and what is wrong in words."""

    states: dict[str, str] = {}
    problems: tuple[str, ...] = ()


class TableCheck:
    """The check of the tables, begun at once and read later: it runs beside whatever else is looked at meanwhile."""

    def __init__(self, home: Home, limit_s: float | None) -> None:
        self._path = home.database
        self._limit_s = limit_s
        self._process = self._start() if home.database.exists() else None

    def result(self) -> Tables:
        """What it found; a process that was ended by the damage names the table at which it was."""
        if self._process is None:
            return Tables()
        told, at = self._read(self._process)
        if told is None:
            again, _ = self._read(self._start("--each"))
            broken = at if at != "*" else ""
            states = dict((again or {}).get("tables", {})) | ({broken: "corrupt"} if broken else {})
            where = f"table {broken}" if broken else "the file"
            return Tables(states, (f"{where} is damaged so that reading it ends the process", *(again or {}).get("problems", ())))
        return Tables(told["tables"], tuple(told["problems"]))

    def close(self) -> None:
        """End it if nobody has read it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        limit = [] if self._limit_s is None else [str(self._limit_s)]
        command = [sys.executable, "-P", "-X", "utf8", "-m", "appliance.store.table_check", str(self._path), *limit, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _read(self, process: "subprocess.Popen[str]") -> tuple[dict[str, Any] | None, str]:
        """What it printed, None when it did not get to that, and the table at which it was."""
        out, errors = process.communicate(timeout=LIMIT_S)
        lines = out.splitlines()
        at = next((line.removeprefix("at ") for line in reversed(lines) if line.startswith("at ")), "")
        if process.returncode == 0:
            return json.loads(lines[-1]), at
        if process.returncode > 0 or process.returncode == -signal.SIGTERM:
            said = (errors.strip().splitlines() or [f"the check ended with {process.returncode}"])[-1]
            return {"tables": {}, "problems": [said]}, at
        return None, at
