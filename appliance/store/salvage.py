"""Rows of a damaged database, read as far as they can be and written into a new one: `python -m appliance.store.salvage OLD NEW`.

A process of its own, because damage may end or hang SQLite. Reads each table in the order of its row numbers; where a page is
damaged it looks, first in growing and then in halving steps, for the next row that can be read. A table without row numbers is
read from both ends. What the new table refuses, and rows that refer to rows that are gone, is left out and counted. Not read,
because it is made anew from the rest: the search index, and what servers of tools have listed. When the first page, with the
names of the tables, is damaged, nothing can be read.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import apsw

from appliance.store.connection_settings import SETTINGS
from appliance.store.database import Store
from appliance.store.migrations import MIGRATIONS, SETTLING, up_to

DERIVED = ("chunks", "pending", "server_offers", "server_tools")
LAST = 2**63 - 1
BATCH = 500
DAMAGE = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, apsw.FormatError, apsw.SQLError, UnicodeDecodeError)


@dataclass
class Count:
    """Rows of one table: written to the new database, and lost; `is_exact` is False when more may be lost than is known."""

    kept: int = 0
    lost: int = 0
    is_exact: bool = True


def salvage(old: Path, new: Path) -> dict[str, Count]:
    """Make the new database; how much of each table is in it."""
    source = apsw.Connection(str(old), flags=apsw.SQLITE_OPEN_READWRITE)
    for setting in SETTINGS:
        setting(source)
    if not source.execute("SELECT 1 FROM sqlite_schema WHERE name = 'entries'").fetchall():
        raise apsw.CorruptError("it has lost its tables")
    version = int(str(source.pragma("user_version")))
    store = Store.create(new, migrations=up_to(version) or MIGRATIONS)
    store.close()
    target = apsw.Connection(str(new), flags=apsw.SQLITE_OPEN_READWRITE)
    for setting in SETTINGS:
        setting(target)
    target.pragma("foreign_keys", False)
    triggers = target.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        target.execute(f'DROP TRIGGER "{name}"')
    counts = {table: _copy_table(source, target, table) for table in _list_tables(target)}
    _drop_orphans(target, counts)
    for statement in SETTLING:
        target.execute(statement)
    for _, sql in triggers:
        target.execute(str(sql))
    _continue_numbers(source, target)
    target.close()
    source.close()
    return counts


def _list_tables(db: apsw.Connection) -> list[str]:
    """The tables whose content cannot be rebuilt from elsewhere."""
    shadows = {str(row[0]) for row in db.execute("SELECT name FROM pragma_table_list WHERE type <> 'table'")}
    names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*' ORDER BY rowid").fetchall()
    return [str(row[0]) for row in names if row[0] not in DERIVED and row[0] not in shadows]


def _copy_table(source: apsw.Connection, target: apsw.Connection, table: str) -> Count:
    """Copy the rows of one table, a batch in each transaction."""
    columns = [
        str(row[1]) for row in target.execute(f'PRAGMA table_xinfo("{table}")') if row[6] == 0
    ]  # generated ones are not written
    names = ", ".join(f'"{name}"' for name in columns)
    has_rowid = not target.execute("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (table,)).fetchall()[0][0]
    count = Count()
    rows = _read_rows(source, table, names, count) if has_rowid else _rows_of_both_ends(source, table, names, count)
    insert = f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(columns))})'
    target.execute("BEGIN")
    for row in rows:
        try:
            target.execute(insert, row)
            count.kept += 1
        except (apsw.ConstraintError, apsw.MismatchError):
            count.lost += 1
        if count.kept % BATCH == 0:
            target.execute("COMMIT; BEGIN")
    target.execute("COMMIT")
    if not count.is_exact and (total := _count_indexed(source, table)) is not None:
        count.lost, count.is_exact = max(total - count.kept, count.lost), True
    return count


def _read_rows(db: apsw.Connection, table: str, names: str, count: Count) -> Iterator[tuple[Any, ...]]:
    """The rows of a table with row numbers that can be read, by their numbers."""
    last = -LAST - 1
    sql = f'SELECT rowid, {names} FROM "{table}" NOT INDEXED WHERE rowid > ? ORDER BY rowid'
    while True:
        try:
            for row in db.execute(sql, (last,)):
                if row[0] <= last:
                    raise apsw.CorruptError("row numbers go backwards")
                last = int(row[0])
                yield row[1:]
            return
        except DAMAGE:
            count.is_exact = False
            found = _next_readable(db, sql, max(last, 0))
            if found is None:
                return
            last = found


def _next_readable(db: apsw.Connection, sql: str, last: int) -> int | None:
    """The smallest number after which a row can be read again, None when there is none."""

    def read(number: int) -> bool | None:
        """Whether a row after this number can be read; None when there is no more row."""
        try:
            found: list[tuple[Any, ...]] = db.execute(f"{sql} LIMIT 1", (number,)).fetchall()
        except DAMAGE:
            return False
        return found[0][0] > number if found else None

    low, step = last, 1
    while read(last + step) is False:
        low, step = last + step, step * 2
        if last + step > LAST:
            return None
    high = last + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if read(middle) is False else (low, middle)
    return high if read(high) else None


def _rows_of_both_ends(db: apsw.Connection, table: str, names: str, count: Count) -> Iterator[tuple[Any, ...]]:
    """The rows of a table without row numbers, forwards and, where that ends at damage, backwards."""
    keys = db.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,)).fetchall()
    seen: set[tuple[Any, ...]] = set()
    for order in ("ASC", "DESC"):
        by = ", ".join(f'"{key[0]}" {order}' for key in keys)
        try:
            for row in db.execute(f'SELECT {names} FROM "{table}" ORDER BY {by}'):
                if row in seen:
                    break
                seen.add(row)
                yield row
            return
        except DAMAGE:
            count.is_exact = False


def _count_indexed(db: apsw.Connection, table: str) -> int | None:
    """The number of rows in an intact index of a damaged table; None without one."""
    found = []
    indexes = db.execute("SELECT name FROM pragma_index_list(?) WHERE partial = 0", (table,)).fetchall()
    for (name,) in indexes:
        try:
            found.append(int(str(db.execute(f'SELECT COUNT(*) FROM "{table}" INDEXED BY "{name}"').fetchall()[0][0])))
        except DAMAGE:
            continue
    return max(found, default=None)


def _drop_orphans(db: apsw.Connection, counts: dict[str, Count]) -> None:
    """Leave out rows that refer to rows that are gone, and those that refer to them."""
    while orphans := db.execute('SELECT DISTINCT "table", rowid FROM pragma_foreign_key_check WHERE rowid IS NOT NULL').fetchall():
        for table, number in orphans:
            db.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (number,))
            counts[str(table)].kept -= 1
            counts[str(table)].lost += 1


def _continue_numbers(source: apsw.Connection, target: apsw.Connection) -> None:
    """Let new rows get numbers that none has had."""
    try:
        used = source.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    except DAMAGE:
        return
    for name, number in used:
        target.execute("UPDATE sqlite_sequence SET seq = MAX(seq, ?) WHERE name = ?", (number, name))


def main() -> int:
    """Print the counts as JSON."""
    try:
        counts = salvage(Path(sys.argv[1]), Path(sys.argv[2]))
    except apsw.Error as error:
        print(f"nothing can be read: {error}", file=sys.stderr)
        return 1
    print(json.dumps({table: asdict(count) for table, count in counts.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
