"""The inventory of our processes: who started, on which boot, with which pid, and how it ended (A-212).

Owns the `processes` and `workers` tables, and the workers' signs of life. Whether a process still lives is asked
of the kernel, never of a row, so nothing is written while everybody is idle: an idle worker touches a file in
memory and holds a lock on it, and only one that holds a claim beats its row. A process that ended without saying
so was killed; a worker that lives and is silent for too long is taken for dead, and what it beats afterwards
changes nothing.
"""

import fcntl
import os
import signal
import socket
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from appliance import clock
from appliance.clock import Process, boot_id, monotonic_s, new_id, now_ms, this_process
from appliance.errors import AlreadyRunning, BadInput, NotFound, Refused
from appliance.store import wall_clock
from appliance.store.database import Row, Store

Mode = Literal["once", "persist"]
RUNNING, STOPPED, DEAD = "running", "stopped", "dead"
WORKER_COLUMNS = "id, process, pid, host, mode, task, status, started_ms, beat_ms, ended_ms, log, reason"
KEEP_MS = 31 * 24 * 3600 * 1000


class Lease(Struct, frozen=True):
    """One process of ours, past or present; `ended_ms` is None while it runs or when it was killed."""

    id: str
    kind: str
    process: Process
    started_ms: int
    ended_ms: int | None
    reason: str

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values, with what the kernel says about it now."""
        p = self.process
        return {
            "kind": self.kind,
            "pid": p.pid,
            "boot_id": p.boot_id,
            "is_alive": p.is_alive(),
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "reason": self.reason,
        }


class Leases:
    """Reads and writes the process inventory."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self, kind: str, process: Process | None = None, lease_id: str = "") -> str:
        """Record that a process has started; returns the id for `end`. Forgets ended ones after 31 days."""
        process = process or this_process()
        lease_id = lease_id or new_id()
        with self._store.write() as execute:
            execute("DELETE FROM processes WHERE ended_ms < ?", (wall_clock.age_limit(self._store) - KEEP_MS,))
            execute(
                "INSERT INTO processes (id, kind, boot_id, pid, start_ticks, started_ms) VALUES (?, ?, ?, ?, ?, ?)",
                (lease_id, kind, process.boot_id, process.pid, process.start_ticks, now_ms()),
            )
        return lease_id

    def end(self, lease_id: str, reason: str) -> None:
        """Record that a process has ended, and why."""
        with self._store.write() as execute:
            execute("UPDATE processes SET ended_ms = ?, reason = ? WHERE id = ? AND ended_ms IS NULL", (now_ms(), reason, lease_id))

    def mark_dead(self) -> list[Lease]:
        """Mark processes that are gone without having said so; returns them. Writes nothing when there are none."""
        dead = [lease for lease in self.listing() if lease.ended_ms is None and not lease.process.is_alive()]
        for lease in dead:
            self.end(lease.id, "power lost or restarted" if lease.process.boot_id != boot_id() else "killed")
        return dead

    def forget(self) -> int:
        """Delete processes that ended more than 31 days ago; how many. Writes nothing when there are none."""
        before_ms = wall_clock.age_limit(self._store) - KEEP_MS
        count = int(self._store.value("SELECT COUNT(*) FROM processes WHERE ended_ms < ?", (before_ms,)))
        if count:
            with self._store.write() as execute:
                execute("DELETE FROM processes WHERE ended_ms < ?", (before_ms,))
        return count

    def listing(self, limit: int = 50) -> list[Lease]:
        """The newest processes first."""
        rows = self._store.rows(
            "SELECT id, kind, boot_id, pid, start_ticks, started_ms, ended_ms, reason FROM processes "
            "ORDER BY ended_ms IS NOT NULL, started_ms DESC LIMIT ?",
            (limit,),
        )
        return [Lease(r[0], r[1], Process(r[2], r[3], r[4]), r[5], r[6], r[7]) for r in rows]


class Worker(Struct, frozen=True):
    """A worker, past or present; `beat_ms` is the last heartbeat in its row, which an idle one does not renew."""

    id: str
    process: str
    pid: int
    host: str
    mode: Mode
    task: int | None
    status: str
    started_ms: int
    beat_ms: int
    ended_ms: int | None
    log: str | None
    reason: str

    def is_alive(self) -> bool:
        """True while its process exists, as the kernel says."""
        return clock.is_alive(self.process)


class Pulse:
    """A worker's heartbeat: a file that it keeps locked, and into which it writes the clock that never jumps.

    With it stands since when it has held its claim, 0 for none. A wall clock that is set (a Pi has no battery) must
    neither make every worker look silent nor every claim look old.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise AlreadyRunning(f"worker {path.name} is registered already", hint="each worker has an id of its own") from None
        self._since_s = 0.0
        self.beat()

    def beat(self) -> None:
        """Writes another heartbeat."""
        os.pwrite(self._fd, f"{monotonic_s():018.3f} {self._since_s:018.3f}".encode(), 0)

    def hold(self, is_held: bool) -> None:
        """It begins to work on a claim, or holds none any more."""
        self._since_s = monotonic_s() if is_held else 0.0
        self.beat()

    def end(self) -> None:
        """No more of them."""
        self.path.unlink(missing_ok=True)
        os.close(self._fd)


class ProcessRegistry:
    """Reads and writes the list of workers; `folder` is where their signs of life are."""

    def __init__(self, store: Store, leases: Leases, folder: Path) -> None:
        self._store = store
        self._leases = leases
        self._folder = folder

    # -- what a worker says of itself -----------------------------------------------------------------

    def begin(self, worker: str, mode: Mode, *, task: int | None = None, log: Path | None = None) -> Pulse:
        """Register this process as a worker; AlreadyRunning when the id has been used."""
        pulse, me, now = Pulse(self._folder / worker), this_process(), now_ms()
        try:
            with self._store.write() as execute:
                if execute("SELECT 1 FROM workers WHERE id = ?1 UNION SELECT 1 FROM processes WHERE id = ?1", (worker,)):
                    raise AlreadyRunning(f"worker {worker} is registered already", hint="each worker has an id of its own")
                self._leases.begin("worker", me, worker)
                execute(
                    "INSERT INTO workers (id, process, pid, host, mode, task, status, started_ms, beat_ms, log) "
                    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?7, ?8)",
                    (worker, me.encode(), me.pid, socket.gethostname(), mode, task, now, None if log is None else str(log)),
                )
        except BaseException:
            pulse.end()
            raise
        return pulse

    def beat(self, worker: str) -> bool:
        """Writes a heartbeat into the row, for one that holds a claim; False when it does not count as running any more."""
        with self._store.write() as execute:
            beaten = "UPDATE workers SET beat_ms = ? WHERE id = ? AND status = 'running' RETURNING id"
            return bool(execute(beaten, (now_ms(), worker)))

    def end(self, worker: str, status: Literal["stopped", "dead"], reason: str) -> bool:
        """It works no more; False when that was on record already. What it held is not touched."""
        with self._store.write() as execute:
            ended = "UPDATE workers SET status = ?, reason = ?, ended_ms = ? WHERE id = ? AND status = 'running' RETURNING id"
            is_new = bool(execute(ended, (status, reason, now_ms(), worker)))
            if is_new:
                self._leases.end(worker, reason)
        if is_new and status == DEAD:
            (self._folder / worker).unlink(missing_ok=True)
        return is_new

    # -- what others see ------------------------------------------------------------------------------

    def get(self, ref: str) -> Worker:
        """The worker with this id, or the only one whose id starts or ends with it (at least 4 characters)."""
        rows = self._store.rows(f"SELECT {WORKER_COLUMNS} FROM workers WHERE id = ?", (ref,))
        if not rows and len(ref) >= 4 and ref.replace("-", "").isalnum():
            like = f"SELECT {WORKER_COLUMNS} FROM workers WHERE id LIKE ?1 || '%' OR id LIKE '%' || ?1 LIMIT 2"
            rows = self._store.rows(like, (ref,))
        if len(rows) > 1:
            raise BadInput(f"worker {ref} is ambiguous", hint="give more of its id; owlbox worker list shows them")
        if not rows:
            raise NotFound(f"no worker {ref}", hint="owlbox worker list shows them")
        return _worker_of(rows[0])

    def listing(self, status: str = "", *, limit: int = 20, offset: int = 0) -> list[Worker]:
        """Workers, newest first; only those of a status."""
        rows = self._store.rows(
            f"SELECT {WORKER_COLUMNS} FROM workers WHERE ?1 IN ('', status) ORDER BY started_ms DESC, id DESC LIMIT ?2 OFFSET ?3",
            (status, limit, offset),
        )
        return [_worker_of(row) for row in rows]

    def counts(self) -> dict[str, int]:
        """The number of workers in each state."""
        found: dict[str, int] = dict(self._store.rows("SELECT status, COUNT(*) FROM workers GROUP BY status"))
        return {status: int(found.get(status, 0)) for status in (RUNNING, STOPPED, DEAD)}

    def running(self) -> list[Worker]:
        """Those that have not said or been found to have ended, oldest first."""
        return [
            _worker_of(r) for r in self._store.rows(f"SELECT {WORKER_COLUMNS} FROM workers WHERE status = 'running' ORDER BY id")
        ]

    def silent_s(self, worker: Worker, now: int | None = None) -> float:
        """For how long its heartbeat has been missing: by the clock that never jumps, without its file by the wall clock."""
        seen = self._read_heartbeat(worker.id)
        if seen is not None:
            return monotonic_s() - seen[0]
        return ((now_ms() if now is None else now) - max(worker.beat_ms, self._claimed_ms(worker.id) or 0)) / 1000

    def held_s(self, worker: str) -> float | None:
        """For how long a worker has held its claim, by the clock that never jumps; None where that cannot be seen."""
        seen = self._read_heartbeat(worker)
        return None if seen is None or not seen[1] else max(0.0, monotonic_s() - seen[1])

    def gone(self, dead_after_s: float | None, now: int | None = None) -> list[tuple[Worker, str]]:
        """Workers that count as running and are dead, with the reason; the silent ones only with a limit."""
        found = []
        for worker in self.running():
            if not worker.is_alive() and not self._is_held(worker.id):
                why = "killed" if worker.process.startswith(f"{boot_id()}/") else "power lost or restarted"
                found.append((worker, why))
            elif dead_after_s is not None and (silent_s := self.silent_s(worker, now)) > dead_after_s:
                # Its file may be where we do not look (another XDG_RUNTIME_DIR) or gone (a logout clears the folder),
                # and an idle one does not beat its row: as it holds nothing, it harms nobody.
                if self._read_heartbeat(worker.id) is not None or self._claimed_ms(worker.id) is not None:
                    found.append((worker, f"silent for {silent_s:.0f} s"))
        return found

    def strays(self) -> list[str]:
        """Ids that hold a claim and belong to no running worker."""
        rows = self._store.rows(
            "SELECT DISTINCT t.claimed_by FROM tasks t LEFT JOIN workers w ON w.id = t.claimed_by "
            "WHERE t.status = 'in_progress' AND w.status IS NOT 'running' ORDER BY 1"
        )
        return [str(row[0]) for row in rows]

    def prune(self, retention_s: float, now: int | None = None) -> int:
        """Forget stopped workers of long ago, dead ones are kept; how many. Writes nothing when there are none."""
        before_ms = wall_clock.age_limit(self._store, now) - round(retention_s * 1000)
        old = "status = 'stopped' AND ended_ms < ?"
        count = int(self._store.value(f"SELECT COUNT(*) FROM workers WHERE {old}", (before_ms,)))
        if count:
            with self._store.write() as execute:
                execute(f"DELETE FROM workers WHERE {old}", (before_ms,))
        return count

    def send(self, worker: Worker, number: signal.Signals) -> bool:
        """Signal exactly this worker, never to a later process with its pid; False when it is gone."""
        try:
            handle = os.pidfd_open(worker.pid)
        except OSError:
            return False
        try:
            if not worker.is_alive():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            raise Refused(f"worker {worker.id} belongs to another user", hint="ask as its user, or the core") from None
        finally:
            os.close(handle)
        return True

    def _read_heartbeat(self, worker: str) -> tuple[float, float] | None:
        """Reads its file: the last heartbeat, and since when it has held its claim; None without one."""
        try:
            beat_s, since_s, *_ = [*map(float, (self._folder / worker).read_text("ascii").split()), 0.0]
        except (OSError, ValueError):
            return None
        return beat_s, since_s

    def _claimed_ms(self, worker: str) -> int | None:
        """When it claimed the last of the tasks it holds; None when it holds none."""
        sql = "SELECT MAX(claimed_ms) FROM tasks WHERE claimed_by = ? AND status = 'in_progress'"
        found = self._store.value(sql, (worker,))
        return None if found is None else int(found)

    def _is_held(self, worker: str) -> bool:
        """True while somebody holds the lock of a heartbeat file: also a process that we cannot see from here."""
        try:
            with open(self._folder / worker, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass  # there is none
        return False


def _worker_of(row: Row) -> Worker:
    return Worker(*row)
