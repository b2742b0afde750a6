"""Checks of a database that is open: SQLite's own, whole or bounded in time. Repairs nothing.

A bounded check first reads both ends of every table, which finds a file that is cut off or whose upper pages are gone, then
lets SQLite walk through every page until the time is up. What it has not reached by then is not looked at.
"""

import apsw

from appliance.clock import monotonic_s

STEPS = 10_000  # of SQLite's machine between two looks at the clock
LISTED = 20


def problems(
    db: apsw.Connection, *, is_quick: bool = False, limit_s: float | None = None, has_read_ends: bool = False
) -> list[str]:
    """What is wrong; empty when nothing was found. With a limit it is the quick check, and rows that refer to none are left out.

    `has_read_ends`: the caller has read both ends of every table but SQLite's own.
    """
    if limit_s is not None:
        return _check_tables(db, limit_s, has_read_ends)
    check = "quick_check" if is_quick else "integrity_check"
    found = [str(row[0]) for row in db.execute(f"PRAGMA {check}({LISTED})") if row[0] != "ok"]
    return found + [f"foreign key of {row[0]} row {row[1]} to {row[2]}" for row in db.execute("PRAGMA foreign_key_check")]


def _check_tables(db: apsw.Connection, limit_s: float, has_read_ends: bool) -> list[str]:
    end_s = monotonic_s() + limit_s
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND sql NOT LIKE '%WITHOUT ROWID%'"
    names = [str(row[0]) for row in db.execute(tables).fetchall()]
    names = [name for name in names if name.startswith("sqlite_")] if has_read_ends else names
    found: list[str] = []
    db.set_progress_handler(lambda: monotonic_s() > end_s, STEPS)
    try:
        for name in names:
            for order in ("ASC", "DESC"):
                db.execute(f'SELECT * FROM "{name}" ORDER BY rowid {order} LIMIT 1').fetchall()
        for row in db.execute(f"PRAGMA quick_check({LISTED})"):
            found += [str(row[0])] if row[0] != "ok" else []
    except apsw.InterruptError:
        pass  # the time is up: what was found until then counts
    finally:
        db.set_progress_handler(None)
    return found
