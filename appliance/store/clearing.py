"""Deleting everything of one kind at once, whatever it means: the rows of a scope's tables, in one transaction.

Each table still has its one writer; this empties tables as `store.salvage` fills them. Schema, version and what the tables do not
hold (files, the vault, the audit log, persons and groups) stay. What is deleted is overwritten, and the file gets smaller.
"""

from typing import Literal, get_args

from appliance.store.database import Store
from appliance.store.wall_clock import OLD

Scope = Literal["context", "tasks", "schedules", "threads", "all"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
# In this order: rows before those that they refer to. The first one of a scope is what people count.
TABLES: dict[Scope, tuple[str, ...]] = {
    "context": ("entries", "changes", "constraints", "fetches", "embedders"),
    "tasks": ("tasks", "task_attempts", "task_deps"),
    "schedules": ("schedules", "schedule_state", "firings"),
    "threads": (
        *("sessions", "runs", "events", "jobs", "outbox", "inbox", "copies", "copied_texts", "changesets", "turn_locks", "calls"),
        *("session_policies", "attachments", "loops", "turns", "matrix_waiting", "matrix_sent"),
    ),
}
MORE = ("requests", "usage", "grants", "mutes")  # of "all": what models were asked, approvals that stand, who is muted
ENDED = ("DELETE FROM workers WHERE status <> 'running'", "DELETE FROM processes WHERE ended_ms IS NOT NULL")


def list_tables(scope: Scope) -> tuple[str, ...]:
    """The tables of a scope."""
    return TABLES[scope] if scope != "all" else (*(table for tables in TABLES.values() for table in tables), *MORE)


def count(store: Store, scope: Scope) -> dict[str, int]:
    """The number of rows of each table that has any."""
    counts = {table: int(store.value(f"SELECT COUNT(*) FROM {table}")) for table in list_tables(scope)}
    return {table: rows for table, rows in counts.items() if rows}


def clear(store: Store, scope: Scope) -> dict[str, int]:
    """Delete them; how many there were by table."""
    with store.overwriting(), store.write(durable=True) as execute:
        counts = count(store, scope)
        for table in reversed(list_tables(scope)):
            execute(f"DELETE FROM {table}")
        if scope in ("threads", "all"):
            execute("DELETE FROM marks WHERE subject LIKE 'run:%'")
        for statement in ENDED if scope == "all" else ():
            execute(statement)
    store.rows("VACUUM")
    store.checkpoint()
    return counts


def expire_changesets(store: Store, before_ms: int) -> int:
    """Drop what taking back a run needs when its last change is from before a time; how many runs."""
    old = store.rows(f"SELECT run FROM changesets GROUP BY run HAVING MAX(at_ms) {OLD} ?", (before_ms,))
    for (run,) in old:
        with store.write() as execute:
            execute("DELETE FROM changesets WHERE run = ?", (run,))
    return len(old)
