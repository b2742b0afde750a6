"""The state of every table of a database: `python -m appliance.store.table_check FILE [SECONDS]`.

A process of its own, because damage may end or hang SQLite; its caller reads the last line `at TABLE` of one that ended early.
Prints one line of JSON: the version, problems in words, a state for each table (ok, empty, missing, corrupt), and whether all
was looked at. With a number of seconds it is the bounded check of `store.integrity`. Repairs nothing.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import apsw

from appliance.store import disk_faults, integrity
from appliance.store.connection_settings import SETTINGS
from appliance.store.migrations import up_to

State = Literal["ok", "empty", "missing", "corrupt"]
CHANGE = re.compile(r"^(CREATE(?: VIRTUAL)? TABLE|DROP TABLE)\s+(\w+)", re.MULTILINE)
MAPPED_BYTES = 1 << 40  # all of it: a tenth less is spent on reading. A page that cannot be read ends the process, as damage may
BUSY_MS = 5000  # who opens the file after a kill, or closes it as the last, holds it alone for a moment
EACH = "--each"  # without the check of the whole file: the last one was ended by it


def check(path: Path, limit_s: float | None, *, is_each: bool = False) -> dict[str, Any]:
    """What is printed."""
    db = _connect(path)
    try:
        if not is_each:
            db.pragma("mmap_size", MAPPED_BYTES)
        # All of one moment: FTS5 takes for damage what others wrote since its tables were read first (3.54.1).
        db.execute("BEGIN")
        version = int(str(db.pragma("user_version")))
        problems: list[str] = []
        states: dict[str, State] = {}
        owners = _owners(db)
        for table in owners:
            print("at", table, flush=True)
            try:
                is_filled = _read_ends(db, table)
            except apsw.Error as error:
                problems.append(f"table {owners[table]}: {error}")
                states[owners[table]] = "corrupt"
            else:
                states.setdefault(owners[table], "empty")
                if is_filled and owners[table] == table and states[table] == "empty":
                    states[table] = "ok"
        if not is_each:
            print("at *", flush=True)
            try:
                problems += integrity.problems(db, limit_s=limit_s, has_read_ends=True)
            except apsw.Error as error:
                problems.append(str(error))
        if is_each or problems:
            for table, owner in owners.items():
                print("at", table, flush=True)
                if found := _check_table(db, table):
                    states[owner] = "corrupt"
                    problems += found if is_each else ()
        lacking = [name for name in list_expected(version) if name not in states]
        problems += [f"table {name} is missing" for name in lacking]
        return {"version": version, "problems": problems, "tables": {**states, **dict.fromkeys(lacking, "missing")}}
    finally:
        db.close()


def list_expected(version: int) -> list[str]:
    """The tables that a database of a version has, as the migrations say."""
    names: dict[str, None] = {}
    for deed, name in CHANGE.findall("\n".join(up_to(version))):
        if deed.startswith("DROP"):
            names.pop(name, None)
        else:
            names[name] = None
    return list(names)


def _connect(path: Path) -> apsw.Connection:
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        db.set_busy_timeout(BUSY_MS)
        db.pragma("user_version")
    except apsw.Error:
        if not disk_faults.is_read_only(path.parent):
            raise
        uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
        db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    for setting in SETTINGS:
        setting(db)
    return db


def _owners(db: apsw.Connection) -> dict[str, str]:
    """Every table, and the one that people know it by: what a virtual table keeps its data in belongs to that."""
    listed = "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type <> 'view'"
    rows = db.execute(f"{listed} AND name NOT GLOB 'sqlite_*' ORDER BY name").fetchall()
    virtual = [str(name) for name, kind in rows if kind == "virtual"]
    owners = {}
    for name, _ in rows:
        above = [one for one in virtual if str(name).startswith(f"{one}_")]
        owners[str(name)] = max(above, key=len, default=str(name))
    return owners


def _read_ends(db: apsw.Connection, table: str) -> bool:
    """Read the first and the last row; whether there is one."""
    kind, is_without_rowid = db.execute("SELECT type, wr FROM pragma_table_list WHERE name = ?", (table,)).fetchall()[0]
    if kind != "table" or is_without_rowid:
        return bool(db.execute(f'SELECT {"rowid" if kind == "virtual" else "*"} FROM "{table}" LIMIT 1').fetchall())
    db.execute(f'SELECT * FROM "{table}" ORDER BY rowid DESC LIMIT 1').fetchall()
    return bool(db.execute(f'SELECT * FROM "{table}" ORDER BY rowid LIMIT 1').fetchall())


def _check_table(db: apsw.Connection, table: str) -> list[str]:
    try:
        rows = db.execute(f'PRAGMA integrity_check("{table}")').fetchall()
    except apsw.Error as error:
        return [f"table {table}: {error}"]
    return [str(row[0]) for row in rows if row[0] != "ok"]


def main(words: list[str]) -> int:
    """Print the states; 1 with a reason on stderr when the file cannot be read at all."""
    is_each, words = EACH in words, [word for word in words if word != EACH]
    try:
        found = check(Path(words[0]), float(words[1]) if words[1:] else None, is_each=is_each)
    except apsw.Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
