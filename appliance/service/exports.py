"""Everything that a home knows as files that can be read without Owlbox, and a home made of them again.

`sessions/` has a file of JSON lines for each run, `memory/` and `entries/` are Markdown, `tasks.csv`, `persons.csv` and
`schedules.json` what their names say, `owlbox.toml` and `box/` copies. `tables/` has every row of every table, which is what is
read again. Not in it: secrets, models, logs, and files that tools made in `sessions/` of the home.
"""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.clock import iso, now_ms
from appliance.errors import BadInput, Conflict, NotFound, OwlError
from appliance.knowledge.index import Passages
from appliance.prompt.sent_copies import Copies
from appliance.runtime.paths import Home
from appliance.service import home_setup
from appliance.store import storage_errors, table_lines
from appliance.store.database import Store

MANIFEST, TABLES = "manifest.json", "tables"
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
RUN = "id, session, kind, title, status, outcome, created_ms, ended_ms"
EVENT = "seq, kind, role, content, tool, input, call_id, duration_ms, status, outcome, channel, sender_id, correlation, at_ms"


def write(home: Home, folder: Path) -> dict[str, int]:
    """Write everything into a folder that is empty or not there; rows by table."""
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty", hint="choose another folder")
    store = Store.open(home.database)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / TABLES).mkdir()
        counts = {}
        for table in table_lines.list_tables(store):
            lines = list(table_lines.write_lines(store, table))
            counts[table] = len(lines)
            _write_lines(folder / TABLES / f"{table}.jsonl", lines)
        _write_sessions(store, folder / "sessions")
        _write_entries(store, folder)
        _write_rest(store, folder)
        if home.config.exists():
            shutil.copyfile(home.config, folder / home.config.name)
        shutil.copytree(home.box, folder / "box", symlinks=True, dirs_exist_ok=True)
        told = {"owlbox": __version__, "database": store.version, "at": iso(now_ms()), "rows": counts}
        (folder / MANIFEST).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        return counts
    except OSError as error:
        raise storage_errors.host_error(error, folder) from None
    finally:
        store.close()


def write_turns(home: Home, ref: str, folder: Path) -> list[Path]:
    """A text file for each turn of one run, "" for the newest: what the model was sent, what it said, and what failed."""
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty", hint="choose another folder")
    store = Store.open(home.database)
    try:
        sql = "SELECT id FROM runs WHERE id LIKE '%' || ? AND deleted_ms IS NULL ORDER BY created_ms DESC LIMIT 1"
        run = store.value(sql, (ref,)) if store.row(sql, (ref,)) else None
        if run is None:
            raise NotFound(f"no run {ref}".rstrip(), hint="owlbox run list")
        copies, made = Copies(store), []
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = copies.turns(str(run))
        turns = store.rows("SELECT DISTINCT turn FROM events WHERE run = ? AND turn IS NOT NULL ORDER BY turn", (run,))
        for number, (turn,) in enumerate(turns, start=1):
            parts = [("run", f"{run}, turn {number}")]
            if number in known:
                copy = copies.get(str(run), number)
                parts += [(name, copy.text(name)) for name in ("system", "user", "answer", "reasoning")]
            events = "SELECT role, kind, tool, content, status, outcome FROM events WHERE run = ? AND turn = ? ORDER BY seq"
            for role, kind, tool, content, status, outcome in store.rows(events, (run, turn)):
                what = f"{'error' if int(status) >= 400 else role} {kind} {tool}".strip()
                parts.append((f"{what} ({status} {outcome})", str(content)))
            path = folder / f"turn-{number:03}.txt"
            text = "".join(f"== {name}\n{text}\n\n" for name, text in parts if text)
            path.write_text(text, encoding="utf-8", errors="replace")
            made.append(path)
        return made
    finally:
        store.close()


def read(home: Home, folder: Path) -> dict[str, int]:
    """Make a home of what `write` wrote; Conflict when there is one already that holds anything."""
    try:
        told = json.loads((folder / MANIFEST).read_text("utf-8"))
        version, rows = int(told["database"]), dict(told["rows"])
    except FileNotFoundError:
        raise NotFound(f"{folder} is no export: it has no {MANIFEST}", hint="owlbox export DIR makes one") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / MANIFEST} cannot be read: {error}", hint="owlbox export DIR makes one") from None
    if home.database.exists():
        _require_empty(home)
    home_setup.init(home, is_forced=True, is_new_database=True)
    shutil.copytree(folder / "box", home.box, symlinks=True, dirs_exist_ok=True)
    if (config := folder / home.config.name).exists():
        shutil.copyfile(config, home.config)
    store = Store.open(home.database)
    try:
        if store.version != version:
            said = f"{folder} is of database version {version}, this owlbox makes {store.version}"
            raise BadInput(said, hint=f"import it with owlbox {told.get('owlbox')}, then update")
        known = table_lines.list_tables(store)
        if unknown := sorted(set(rows) - set(known)):
            raise BadInput(f"{folder} has a table {unknown[0]}, which there is not", hint="was it changed by hand?")
        given = ((table, _read_lines(folder / TABLES / f"{table}.jsonl")) for table in known)
        counts = table_lines.read_lines(store, given)
        if counts != {table: rows.get(table, 0) for table in known}:
            raise BadInput(f"{folder} holds other rows than its {MANIFEST} says", hint="copy it again; nothing of it is used")
        Passages(store).catch_up()
        if problems := store.problems():
            raise BadInput(f"{folder} does not fit together: {problems[0]}", hint="was it changed by hand?")
        return counts
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"a line in {folder / TABLES} cannot be read: {error}", hint="was it changed by hand?") from None
    finally:
        store.close()


def _require_empty(home: Home) -> None:
    store = Store.open(home.database)
    try:
        if count := sum(rows for table, rows in store.facts().counts.items() if table in ("runs", "tasks", "sessions")):
            raise Conflict(f"{home.root} holds {count} sessions, threads and tasks", hint="import into a new home: --home DIR")
    finally:
        store.close()


def _write_sessions(store: Store, folder: Path) -> None:
    folder.mkdir()
    names, events = [word.strip() for word in RUN.split(",")], [word.strip() for word in EVENT.split(",")]
    for row in store.rows(f"SELECT {RUN} FROM runs ORDER BY created_ms, id"):
        run = dict(zip(names, row, strict=True))
        lines = [json.dumps({**run, "created": iso(int(run["created_ms"]))}, ensure_ascii=False)]
        for event in store.rows(f"SELECT {EVENT} FROM events WHERE run = ? ORDER BY seq", (run["id"],)):
            told = dict(zip(events, event, strict=True))
            lines.append(json.dumps({"at": iso(int(told["at_ms"])), **told}, ensure_ascii=False))
        _write_lines(folder / f"{_safe_name(str(run['id']))}.jsonl", lines)


def _write_entries(store: Store, folder: Path) -> None:
    """Each entry with a text as a Markdown file, below the name of its scheme; those of box/ are there as they are."""
    sql = "SELECT scope, path, title, body, writer, updated_ms FROM entries ORDER BY path, scope"
    for scope, path, title, body, writer, updated_ms in store.rows(sql):
        scheme, _, rest = str(path).partition("://")
        if scheme == "box":
            continue
        place = folder / ("memory" if scheme == "memory" else f"entries/{_safe_name(scheme)}")
        name = "/".join(_safe_name(part) for part in rest.split("/") if part) or "entry"
        target = place / _safe_name(str(scope)) / f"{name.removesuffix('.md')}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        head = {"path": path, "title": title, "scope": scope, "writer": writer, "updated": iso(int(updated_ms))}
        lines = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in head.items())
        target.write_text(f"---\n{lines}---\n{body}\n", encoding="utf-8", errors="replace")


def _write_rest(store: Store, folder: Path) -> None:
    for table in ("tasks", "persons"):
        lines = [json.loads(line) for line in table_lines.write_lines(store, table)]
        with (folder / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]) if lines else ["id"])
            writer.writeheader()
            writer.writerows(lines)
    schedules: list[Any] = [json.loads(line) for line in table_lines.write_lines(store, "schedules")]
    (folder / "schedules.json").write_text(json.dumps(schedules, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogatepass")


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="surrogatepass").split("\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OwlError(f"{path} cannot be read: {error.strerror}") from None


def _safe_name(text: str) -> str:
    return UNSAFE.sub("_", text).strip(".")[:100] or "_"
