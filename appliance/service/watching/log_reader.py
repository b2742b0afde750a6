"""Lines of the logs of all processes, in the order of their times: of one run, of one process, from a level on; also as they come.

Reads the files in logs/ of a home, and the journal on the appliance. A line belongs to a run when it carries a correlation id under
which the run was worked on, or names the run.
"""

import gzip
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from appliance.clock import sleep_s
from appliance.errors import NotFound, Unavailable
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store.database import Store

LEVELS = ("debug", "info", "warning", "error", "critical")
EVERY_S = 0.5  # between two looks for new lines
UNIT = "owlbox*"
Line = dict[str, Any]


class LogFilter:
    """Which lines are wanted; `ids` are those of runs and correlations, any of which a line must carry."""

    def __init__(self, ids: Sequence[str] = (), level: str = "", process: str = "") -> None:
        self._ids = tuple(ids)
        self._levels = LEVELS[LEVELS.index(level) :] if level else LEVELS
        self._process = process

    def parse(self, text: str) -> Line | None:
        """A line as it was written, None for one that is not wanted or none of ours."""
        if self._ids and not any(one in text for one in self._ids):
            return None
        try:
            line = json.loads(text)
        except ValueError:
            return None
        is_ours = isinstance(line, dict) and {"at", "level", "message"} <= line.keys()
        if not is_ours or line["level"] not in self._levels or self._process not in ("", line.get("process")):
            return None
        return dict(line)


def find_ids(home: Home, ref: str) -> list[str]:
    """A run's id and the correlation ids under which it was worked on; `ref` is the id, its end, or a correlation id."""
    store = Store.open(home.database)
    try:
        runs = [str(row[0]) for row in store.rows("SELECT id FROM runs WHERE id = ?1 OR id LIKE '%' || ?1", (ref,))]
        if len(runs) > 1:
            raise NotFound(f"{len(runs)} runs end in {ref}", hint="give more of the id: owlbox thread list")
        if not runs:
            known = store.row(
                "SELECT 1 FROM events WHERE correlation = ?1 UNION SELECT 1 FROM loops WHERE correlation = ?1", (ref,)
            )
            if known is None:
                raise NotFound(f"no run {ref}", hint="owlbox thread list, or a correlation id from a log")
            return [ref]
        sql = "SELECT correlation FROM loops WHERE run = ?1 UNION SELECT correlation FROM events WHERE run = ?1"
        return [runs[0], *(str(row[0]) for row in store.rows(sql, (runs[0],)) if row[0])]
    finally:
        store.close()


def read(home: Home, wanted: LogFilter, limit: int) -> list[Line]:
    """The newest lines that are wanted, oldest first."""
    found = [line for text in _read_texts(home) if (line := wanted.parse(text)) is not None]
    return sorted(found, key=lambda line: str(line["at"]))[-limit:]


def follow(home: Home, wanted: LogFilter) -> Iterator[Line]:
    """Lines as they come, without an end."""
    if _has_journal(home):
        yield from _follow_journal(wanted)
        return
    ends = {path: path.stat().st_size for path in _list_files(home)}
    while True:
        for path in _list_files(home):
            begin, size = ends.get(path, 0), path.stat().st_size
            if size == begin:
                continue
            with paths.naming(path), path.open("rb") as file:
                file.seek(begin if size > begin else 0)  # a smaller one was turned over
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            ends[path] = (begin if size > begin else 0) + len(whole)
            yield from (line for text in whole.decode("utf-8", "replace").splitlines() if (line := wanted.parse(text)) is not None)
        sleep_s(EVERY_S)


def _read_texts(home: Home) -> Iterator[str]:
    if _has_journal(home):
        yield from _run_journal("--no-pager").splitlines()
        return
    for path in [*home.logs.rglob("*.log.[0-9]"), *_list_files(home)]:
        with paths.naming(path), path.open(encoding="utf-8", errors="replace") as file:
            yield from file
    for path in home.logs.rglob("*.log.[0-9].gz"):
        with paths.naming(path), gzip.open(path, "rt", encoding="utf-8", errors="replace") as packed:
            yield from packed


def _list_files(home: Home) -> list[Path]:
    return sorted(home.logs.rglob("*.log"))


def _has_journal(home: Home) -> bool:
    return home.root == paths.SERVICE_HOME and Path("/run/systemd/system").is_dir()


def _journal_words(*words: str) -> list[str]:
    return ["journalctl", "--output=cat", f"--unit={UNIT}", *words]


def _run_journal(*words: str) -> str:
    done = subprocess.run(_journal_words(*words), capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"the journal cannot be read: {done.stderr.strip()}", hint="sudo adduser YOU systemd-journal, or sudo")
    return done.stdout


def _follow_journal(wanted: LogFilter) -> Iterator[Line]:
    with subprocess.Popen(_journal_words("--follow", "--lines=0"), stdout=subprocess.PIPE, text=True) as process:
        try:
            for text in process.stdout or ():
                if (line := wanted.parse(text)) is not None:
                    yield line
        finally:
            process.kill()
