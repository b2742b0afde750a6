"""Every table as lines of JSON, and back into a new database: lossless, for programs and for people with a text viewer.

Not among them, because it is made anew from the rest: the search index, and what servers of tools have listed.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from appliance.store.database import Store
from appliance.store.salvage import DERIVED

BYTES = "$base64"
BATCH = 500


def list_tables(store: Store) -> list[str]:
    """The tables whose rows are written out, in the order in which they were made."""
    rows = store.rows(
        "SELECT s.name FROM sqlite_schema s JOIN pragma_table_list l ON l.name = s.name AND l.schema = 'main' "
        "WHERE s.type = 'table' AND l.type = 'table' AND s.name NOT GLOB 'sqlite_*' AND s.name NOT GLOB '_*' ORDER BY s.rowid"
    )
    virtual = [str(row[0]) for row in store.rows("SELECT name FROM pragma_table_list WHERE type = 'virtual'")]
    names = [str(row[0]) for row in rows if not any(str(row[0]).startswith(f"{one}_") for one in virtual)]
    return [name for name in names if name not in DERIVED and name != "embedders"]


def write_lines(store: Store, table: str) -> Iterator[str]:
    """The rows of a table, a JSON object each."""
    columns = _list_columns(store, table)
    order = ", ".join(str(number + 1) for number in range(len(columns)))
    for row in store.rows(f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY {order}'):
        yield json.dumps({name: _to_json(value) for name, value in zip(columns, row, strict=True)}, ensure_ascii=False)


def read_lines(store: Store, tables: Iterable[tuple[str, Iterable[str]]]) -> dict[str, int]:
    """Fill an empty database, in one transaction and without its triggers, whose rows are among the lines; rows by table."""
    counts: dict[str, int] = {}
    with store.write(durable=True) as execute:
        execute("PRAGMA defer_foreign_keys = 1")
        triggers = execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        for name, _ in triggers:
            execute(f'DROP TRIGGER "{name}"')
        for table, lines in tables:
            columns = _list_columns(store, table)
            execute(f'DELETE FROM "{table}"')
            insert = f'INSERT INTO "{table}" ({", ".join(columns)}) VALUES ({", ".join("?" * len(columns))})'
            counts[table] = 0
            for line in lines:
                row: dict[str, Any] = json.loads(line)
                execute(insert, [_from_json(row[name]) for name in columns])
                counts[table] += 1
        for _, sql in triggers:
            execute(str(sql))
        execute("INSERT INTO pending (entry) SELECT id FROM entries WHERE true ON CONFLICT DO NOTHING")
    return counts


def _list_columns(store: Store, table: str) -> list[str]:
    return [str(row[0]) for row in store.rows("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))]


def _to_json(value: Any) -> Any:
    return {BYTES: base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _from_json(value: Any) -> Any:
    return base64.b64decode(value[BYTES]) if isinstance(value, dict) else value
