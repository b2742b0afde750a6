"""Everything that a home knows as files that can be read without Owlbox, and a home made of them again.

`sessions/` has a file of JSON lines for each run, `memory/` and `entries/` are Markdown, `tasks.csv`, `persons.csv` and
`schedules.json` what their names say, `owlbox.toml` and `box/` copies. `tables/` has every row of every table, which is what is
read again. Not in it: secrets, models, logs, links, and files that tools made in `sessions/` of the home. A file UNFINISHED lies in
it until it is whole. What is read may come from anybody: only plain files of these names are looked at.
"""

import csv
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from appliance import __version__
from appliance.clock import iso, now_ms
from appliance.errors import BadInput, Conflict, NotFound, OwlError
from appliance.knowledge.index import Passages
from appliance.prompt.sent_copies import Copies
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import disk_faults, storage_errors, table_lines
from appliance.store.database import Store
from appliance.upkeep import backups, home_setup, staging

MANIFEST, TABLES, UNFINISHED = "manifest.json", "tables", "UNFINISHED"
PARTS = re.compile(
    r"sessions|memory|entries|tables|box|tasks\.csv|persons\.csv|(schedules|manifest)\.json|owlbox\.toml|turn-\d+\.txt"
)
SAYS = "This export is not whole: it is being written, or it was cut off. Run the same command again.\n"
LARGEST_TEXT = 4_000_000  # bytes of the manifest, and of the configuration
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
RUN = "id, session, kind, title, status, outcome, created_ms, ended_ms"
EVENT = "seq, kind, role, content, tool, input, call_id, duration_ms, status, outcome, channel, sender_id, correlation, at_ms"


class ExportManifest(Struct, frozen=True):
    """What an export says of itself."""

    owlbox: str
    database: int
    at: str
    rows: dict[str, int]


@contextmanager
def _unfinished(folder: Path) -> Iterator[None]:
    """A folder to write to, empty but for what an export that was cut off has left in it, which goes; marked until it is whole."""
    mark = folder / UNFINISHED
    try:
        left = list(folder.iterdir()) if folder.exists() else []
        if left and not (mark.is_file() and all(path == mark or PARTS.fullmatch(path.name) for path in left)):
            raise Conflict(f"{folder} is not empty", hint="choose another folder")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.write_text(SAYS)
        for path in left:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != mark:
                path.unlink()
        yield
        _flush(folder)
        mark.unlink()
        paths.flush(folder)
    except OSError as error:
        raise storage_errors.host_error(error, folder) from None


def _flush(folder: Path) -> None:
    """Have all files of a folder on the disk, and know of one that does not take them, before they are said to be whole."""
    for place, _, names in os.walk(folder):
        for name in names:
            with paths.naming(Path(place, name)), open(Path(place, name), "rb") as file:
                os.fsync(file.fileno())
        paths.flush(Path(place))


def write(home: Home, folder: Path) -> dict[str, int]:
    """Write everything into a folder that is empty, not there, or holds an export that was cut off; rows by table."""
    with _unfinished(folder):
        return _write(home, folder)


def _write(home: Home, folder: Path) -> dict[str, int]:
    store = Store.open(home.database)
    try:
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
        _copy_documents(home.root, folder)
        told = {"owlbox": __version__, "database": store.version, "at": iso(now_ms()), "rows": counts}
        (folder / MANIFEST).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        return counts
    finally:
        store.close()


def write_turns(home: Home, ref: str, folder: Path) -> list[Path]:
    """A text file for each turn of one run, "" for the newest: what the model was sent, what it said, and what failed."""
    store = Store.open(home.database)
    try:
        sql = "SELECT id FROM runs WHERE id LIKE '%' || ? AND deleted_ms IS NULL ORDER BY created_ms DESC LIMIT 1"
        run = store.value(sql, (ref,)) if store.row(sql, (ref,)) else None
        if run is None:
            raise NotFound(f"no run {ref}".rstrip(), hint="owlbox thread list")
        with _unfinished(folder):
            return _write_turns(store, str(run), folder)
    finally:
        store.close()


def _write_turns(store: Store, run: str, folder: Path) -> list[Path]:
    copies, made = Copies(store), []
    known = copies.turns(run)
    turns = store.rows("SELECT DISTINCT turn FROM events WHERE run = ? AND turn IS NOT NULL ORDER BY turn", (run,))
    for number, (turn,) in enumerate(turns, start=1):
        parts = [("run", f"{run}, turn {number}")]
        if number in known:
            copy = copies.get(run, number)
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


def read(home: Home, folder: Path) -> dict[str, int]:
    """Make a home of what `write` wrote, whole or not at all; Conflict when there is one already that holds anything."""
    told = _read_manifest(folder)
    if (folder / home.box.name).is_symlink():
        raise BadInput(f"{folder / home.box.name} is a link", hint="an export holds plain files")
    if home.database.exists():
        _require_empty(home)
    is_new = not home.config.exists()
    try:
        with staging.stage(home.root) as made:
            new = Home(made)
            home_setup.init(new, is_forced=True, is_new_database=True)
            _copy_documents(folder, made)
            if (data := _read_plain(folder / home.config.name)) is not None:
                paths.put(new.config, data)
            counts = _read_tables(new, folder, told)
            aside = staging.put_in_place(home, made, (home.box.name, home.config.name, home.database.name))
        home_setup.init(home, is_forced=True)
    except OSError as error:
        raise storage_errors.host_error(error, home.root) from None
    if is_new:
        shutil.rmtree(aside, ignore_errors=True)  # folders of a home that nobody had used
    return counts


def _read_manifest(folder: Path) -> ExportManifest:
    if (folder / UNFINISHED).exists():
        raise BadInput(
            f"{folder} is not whole: its export was cut off, or is still running", hint=f"make it again: owlbox export {folder}"
        )
    try:
        data = _read_plain(folder / MANIFEST)
        if data is None:
            raise NotFound(f"{folder} is not an export: it has no {MANIFEST}", hint="owlbox export DIR makes one")
        return msgspec.json.decode(data, type=ExportManifest)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{folder / MANIFEST} cannot be read: {error}", hint="owlbox export DIR makes one") from None


def _read_tables(home: Home, folder: Path, told: ExportManifest) -> dict[str, int]:
    """Fill the database of a new home; rows by table."""
    store = Store.open(home.database)
    try:
        if store.version != told.database:
            said = f"{folder} is of database version {told.database}, this owlbox makes {store.version}"
            raise BadInput(said, hint=f"import it with owlbox {told.owlbox}, then update")
        known = table_lines.list_tables(store)
        if unknown := sorted(set(told.rows) - set(known)):
            raise BadInput(f"{folder} has a table {unknown[0]}, which there is not", hint="was it changed by hand?")
        given = ((table, _read_lines(folder / TABLES / f"{table}.jsonl")) for table in known)
        counts = table_lines.read_lines(store, given)
        if counts != {table: told.rows.get(table, 0) for table in known}:
            raise BadInput(f"{folder} holds other rows than its {MANIFEST} says", hint="copy it again; nothing of it is used")
        Passages(store).catch_up()
        if problems := store.problems():
            raise BadInput(f"{folder} does not fit together: {problems[0]}", hint="was it changed by hand?")
        return counts
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BadInput(f"a line in {folder / TABLES} cannot be read: {error}", hint="was it changed by hand?") from None
    finally:
        store.close()


def _copy_documents(source: Path, target: Path) -> None:
    """The plain files of box/, with their times and what holds here of their modes."""
    for name, path in backups.documents(source):
        if backups.belongs(name):
            (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with disk_faults.naming(path):
                shutil.copy2(path, target / name)
                os.chmod(target / name, backups.mode_here(path.stat().st_mode))


def _read_plain(path: Path) -> bytes | None:
    """What is in a small plain file, None without one; BadInput for a link, a pipe or a large file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", hint="an export holds plain files") from None
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST_TEXT:
            raise BadInput(f"{path} is not a plain file of at most {LARGEST_TEXT} bytes", hint="an export holds plain files")
        with disk_faults.naming(path):
            return file.read()


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
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BadInput(f"{path} is not a plain file", hint="an export holds plain files")
    try:
        return path.read_text("utf-8", errors="surrogatepass").split("\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OwlError(f"{path} cannot be read: {error.strerror}") from None


def _safe_name(text: str) -> str:
    return UNSAFE.sub("_", text).strip(".")[:100] or "_"
