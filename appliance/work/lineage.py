"""Whose doing something is: whether a schedule began it, at any remove.

What a schedule began may make no schedules: each would begin more of them, and they would never end. Reads the record of
others and owns no table. Not promised: that a person's word in the same thread is told from a schedule's while both wait.
"""

from appliance.store.database import Store
from appliance.work.schedules import parsed

HEARTBEAT = "heartbeat"  # the role whose work nobody asked for


class Lineage:
    """Looks up who began what."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def is_scheduled(self, run: str) -> bool:
        """True when a schedule began what is being done in a thread, at any remove: through tasks, children, jobs."""
        seen: set[str] = set()
        waiting: list[tuple[str, int]] = [(run, 2**62)]
        while waiting:
            current, before_ms = waiting.pop()
            if not current or current in seen:
                continue
            seen.add(current)
            row = self._store.row("SELECT session, parent, task, kind, created_ms FROM runs WHERE id = ?", (current,))
            if row is None:
                continue
            session, parent, task, kind, created_ms = row
            if kind == "heartbeat" or str(session).startswith("schedule:") or self._loop_is_scheduled(current, before_ms):
                return True
            sql = "SELECT correlation, role, parent, created_ms FROM jobs WHERE run = ?"
            if (job := self._store.row(sql, (current,))) is not None:
                if str(job[0] or "").startswith("schedule:") or job[1] == HEARTBEAT:
                    return True
                waiting.append((str(job[2] or ""), int(job[3])))  # when it was asked for: it may have waited for its turn
            else:
                waiting.append((str(parent or ""), int(created_ms)))
            sql = "SELECT key, origin, created_ms FROM tasks WHERE id = ?"
            if task is not None and (made := self._store.row(sql, (int(task),))):
                if str(made[0] or "").startswith("schedule:"):
                    return True
                waiting.append((str(made[1] or ""), int(made[2])))
        return False

    def _loop_is_scheduled(self, run: str, before_ms: int) -> bool:
        """Whether the loop that was going on in a thread at a moment answers a schedule's message."""
        row = self._store.row(
            "SELECT (SELECT i.message_id FROM inbox i WHERE i.loop = l.id AND i.run = l.run) FROM loops l "
            "WHERE l.run = ? AND l.started_ms <= ? ORDER BY l.started_ms DESC, l.id DESC LIMIT 1",
            (run, before_ms),
        )
        return row is not None and str(row[0] or "").startswith("schedule:")

    def of_task(self, task: int) -> tuple[int, int] | None:
        """The schedule and due time that made a task; None when none did."""
        return parsed(str(self._store.value("SELECT key FROM tasks WHERE id = ?", (task,)) or ""))

    def of_loop(self, loop: int) -> tuple[int, int] | None:
        """The schedule and due time whose message a loop answers; None for others."""
        sql = "SELECT i.message_id FROM loops l JOIN inbox i ON i.loop = l.id AND i.run = l.run WHERE l.id = ?"
        return parsed(str(self._store.value(sql, (loop,)) or ""))

    @staticmethod
    def parsed(text: str) -> tuple[int, int] | None:
        """The schedule and due time that a key names; None for other texts."""
        return parsed(text)

    def are_complete(self, key: str) -> bool:
        """Whether every task of a firing is complete."""
        sql = "SELECT 1 FROM tasks WHERE key >= ?1 || ':' AND key < ?1 || ';' AND status <> 'complete' LIMIT 1"
        return self._store.row(sql, (key,)) is None

    def has_job(self, key: str) -> bool:
        """Whether a firing has handed its work out already."""
        return self._store.row("SELECT 1 FROM jobs WHERE correlation = ? LIMIT 1", (key,)) is not None
