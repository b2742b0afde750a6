"""The inventory of our processes: who started, on which boot, with which pid, and how it ended (A-212).

Owns the `processes` table. Whether a process still lives is asked of the kernel, never of a row, so
nothing is written while everybody is idle. A process that ended without saying so was killed.
"""

from dataclasses import dataclass
from typing import Any

from appliance.clock import Process, boot_id, new_id, now_ms, this_process
from appliance.store import Store

KEEP_MS = 31 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Lease:
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

    def begin(self, kind: str, process: Process | None = None) -> str:
        """Record that a process has started; returns the id for `end`. Forgets ended ones after 31 days."""
        process = process or this_process()
        lease_id = new_id()
        with self._store.write() as execute:
            execute("DELETE FROM processes WHERE ended_ms < ?", (now_ms() - KEEP_MS,))
            execute(
                "INSERT INTO processes (id, kind, boot_id, pid, start_ticks, started_ms) VALUES (?, ?, ?, ?, ?, ?)",
                (lease_id, kind, process.boot_id, process.pid, process.start_ticks, now_ms()),
            )
        return lease_id

    def end(self, lease_id: str, reason: str) -> None:
        """Record that a process has ended, and why."""
        with self._store.write() as execute:
            execute("UPDATE processes SET ended_ms = ?, reason = ? WHERE id = ? AND ended_ms IS NULL", (now_ms(), reason, lease_id))

    def bury(self) -> list[Lease]:
        """Mark processes that are gone without having said so; returns them. Writes nothing when there are none."""
        dead = [lease for lease in self.listing() if lease.ended_ms is None and not lease.process.is_alive()]
        for lease in dead:
            self.end(lease.id, "power lost or restarted" if lease.process.boot_id != boot_id() else "killed")
        return dead

    def forget(self) -> int:
        """Delete processes that ended more than 31 days ago; how many. Writes nothing when there are none."""
        before_ms = now_ms() - KEEP_MS
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
