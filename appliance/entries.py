"""What the owl knows: one row per (scope, path), searchable by its words the moment it is committed.

Owns the `entries` table; the full-text index follows it by triggers in the same transaction. Paths are
`scheme://locator` or a bare file path; the display form `drive:/path` is accepted everywhere. Knows
nothing about runs' views, chunks or vectors.
"""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, NotFound, TooLarge
from appliance.store import Row, Store

MAX_PATH = 2048
MAX_BODY_BYTES = 2 * 1024 * 1024
PROJECT = "project:1"  # one home, one project
COLUMNS = "id, scope, path, title, body, attributes, hash, writer, run, created_ms, updated_ms"
MAX_CODE = chr(0x10FFFF)  # sorts after everything that may follow a prefix


@dataclass(frozen=True)
class Entry:
    """One thing the owl knows. `hash` is the SHA-256 of the body."""

    id: int
    scope: str
    path: str
    title: str
    body: str
    attributes: dict[str, Any] = field(default_factory=dict)
    hash: str = ""
    writer: str = ""
    run: str = ""
    created_ms: int = 0
    updated_ms: int = 0


@dataclass(frozen=True)
class Line:
    """An entry in a list: everything but its text."""

    ref: str
    title: str
    size_bytes: int
    updated_ms: int


@dataclass(frozen=True)
class Draft:
    """An entry as a mirrored thing wants it to be; the title may not be empty."""

    path: str
    title: str
    body: str
    attributes: Mapping[str, Any]


def parse_ref(ref: str) -> str:
    """The stored path of a reference: `drive:/path` becomes `drive://path`; BadInput for what cannot be a path."""
    ref = unicodedata.normalize("NFC", ref.strip())
    if not ref:
        raise BadInput("the reference is empty", hint="use scheme://path, for example memory://notes/garden")
    if len(ref) > MAX_PATH:
        raise BadInput(f"the reference has {len(ref)} characters, the limit is {MAX_PATH}", hint="shorten it")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in ref):
        raise BadInput(f"the reference holds a control character or half a character: {ref!r}", hint="remove it")
    drive, colon, rest = ref.partition(":")
    if colon and rest.startswith("/") and not rest.startswith("//") and drive.isidentifier():
        ref = f"{drive}://{rest.lstrip('/')}"
    locator = ref.partition("://")[2] or ref
    if ".." in locator.split("/"):
        raise BadInput(f"the reference may not go up: {ref}", hint="give the full path without ..")
    return ref


class Entries:
    """Reads and writes entries."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def set(
        self,
        ref: str,
        body: str,
        *,
        title: str = "",
        scope: str = PROJECT,
        writer: str = "client",
        run: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Create or replace an entry, durably; attributes and title are kept when not given."""
        path = parse_ref(ref)
        try:
            data = body.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"{path}: the body holds half a character at {error.start}", hint="leave it out") from None
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge(f"{path}: the body has {len(data)} bytes, the limit is {MAX_BODY_BYTES}", hint="split it")
        digest = hashlib.sha256(data).hexdigest()
        wanted = None if attributes is None else json.dumps(dict(attributes), ensure_ascii=False, sort_keys=True)
        found = self.find(path, scope=scope)
        if found and found.hash == digest and (not title or title == found.title) and wanted is None:
            return found  # nothing changed: nothing is written
        with self._store.write(run=run, durable=True) as execute:
            execute(
                "INSERT INTO entries (uid, scope, path, title, body, attributes, hash, writer, run, created_ms, updated_ms) "
                "VALUES (:uid, :scope, :path, :title, :body, COALESCE(:attributes, '{}'), :hash, :writer, :run, :now, :now) "
                "ON CONFLICT (scope, path) DO UPDATE SET title = CASE :title WHEN '' THEN title ELSE :title END, body = :body, "
                "attributes = COALESCE(:attributes, attributes), hash = :hash, writer = :writer, run = :run, updated_ms = :now",
                {
                    "uid": new_id(),
                    "scope": scope,
                    "path": path,
                    "title": title,
                    "body": body,
                    "attributes": wanted,
                    "hash": digest,
                    "writer": writer,
                    "run": run or None,
                    "now": now_ms(),
                },
            )
        return self.get(path, scope=scope)

    def find(self, ref: str, *, scope: str = PROJECT) -> Entry | None:
        """The entry, or None."""
        row = self._store.row(f"SELECT {COLUMNS} FROM entries WHERE scope = ? AND path = ?", (scope, parse_ref(ref)))
        return None if row is None else _entry(row)

    def get(self, ref: str, *, scope: str = PROJECT) -> Entry:
        """The entry; NotFound names up to five neighbours."""
        entry = self.find(ref, scope=scope)
        if entry is None:
            near = self._neighbours(parse_ref(ref), scope)
            hint = f"nearby: {', '.join(near)}" if near else "search finds entries by their words"
            raise NotFound(f"no entry {ref}", hint=hint)
        return entry

    def remove(self, ref: str, *, scope: str = PROJECT, run: str = "") -> None:
        """Remove an entry; NotFound when there is none."""
        entry = self.get(ref, scope=scope)
        with self._store.write(run=run, durable=True) as execute:
            execute("DELETE FROM entries WHERE id = ?", (entry.id,))

    def mirror(self, drafts: Sequence[Draft], gone: Sequence[str] = (), *, writer: str, scope: str = PROJECT) -> None:
        """Bring entries in line with what they mirror, in one transaction; `gone` are stored paths.

        Not durable: the original is the truth and is compared again at the next start. The time of an
        entry whose text and title stay the same is kept.
        """
        now = now_ms()
        with self._store.write() as execute:
            for path in gone:
                execute("DELETE FROM entries WHERE scope = ? AND path = ?", (scope, path))
            for draft in drafts:
                digest = hashlib.sha256(draft.body.encode()).hexdigest()
                attributes = json.dumps(dict(draft.attributes), ensure_ascii=False, sort_keys=True)
                known = execute("SELECT hash, title FROM entries WHERE scope = ? AND path = ?", (scope, draft.path))
                if known == [(digest, draft.title)]:
                    execute("UPDATE entries SET attributes = ? WHERE scope = ? AND path = ?", (attributes, scope, draft.path))
                    continue
                execute(
                    "INSERT INTO entries (scope, path, title, body, attributes, hash, writer, created_ms, updated_ms, uid) "
                    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9) ON CONFLICT (scope, path) DO UPDATE SET "
                    "title = ?3, body = ?4, attributes = ?5, hash = ?6, writer = ?7, run = NULL, updated_ms = ?8",
                    (scope, draft.path, draft.title, draft.body, attributes, digest, writer, now, new_id()),
                )

    def attributes(self, prefix: str, *, scope: str = PROJECT) -> dict[str, dict[str, Any]]:
        """The attributes of every entry under a prefix, by stored path."""
        rows = self._store.rows(
            "SELECT path, attributes FROM entries WHERE scope = ? AND path >= ? AND path < ?", (scope, prefix, prefix + MAX_CODE)
        )
        return {str(path): json.loads(text) for path, text in rows}

    def attributes_of(self, paths: Sequence[str], *, scope: str = PROJECT) -> dict[str, dict[str, Any]]:
        """The attributes of those of these entries that exist, by stored path."""
        rows = self._store.rows(
            "SELECT path, attributes FROM entries WHERE scope = ? AND path IN (SELECT value FROM json_each(?))",
            (scope, json.dumps(paths)),
        )
        return {str(path): json.loads(text) for path, text in rows}

    def listing(self, prefix: str = "", *, limit: int = 100, offset: int = 0, scope: str = PROJECT) -> list[Line]:
        """Entries whose reference begins with `prefix`, sorted by reference."""
        start = parse_ref(prefix) if prefix.strip() else ""
        rows = self._store.rows(
            "SELECT path, title, octet_length(body), updated_ms FROM entries "
            "WHERE scope = ? AND path >= ? AND path < ? ORDER BY path LIMIT ? OFFSET ?",
            (scope, start, start + MAX_CODE, limit, offset),
        )
        return [Line(str(path), str(title), int(size), int(updated)) for path, title, size, updated in rows]

    def view(self, ref: str, line: int, limit: int, *, scope: str = PROJECT) -> dict[str, Any]:
        """Some lines of an entry and what is known about it, ready for JSON; lines count from 1."""
        found = self.get(ref, scope=scope)
        lines = found.body.split("\n")
        return {
            "ref": found.path,
            "title": found.title,
            "lines": lines[line - 1 : line - 1 + limit],
            "line": line,
            "total_lines": len(lines),
            "size_bytes": len(found.body.encode()),
            "attributes": found.attributes,
            "writer": found.writer,
            "created_ms": found.created_ms,
            "updated_ms": found.updated_ms,
        }

    def count(self) -> int:
        """How many entries there are."""
        return int(self._store.value("SELECT COUNT(*) FROM entries"))

    def _neighbours(self, path: str, scope: str) -> list[str]:
        """Up to five entries under the nearest ancestor that has any."""
        scheme, _, locator = path.rpartition("://")
        parts = locator.split("/")[:-1]
        while True:
            prefix = "/".join([*parts, ""]) if parts else ""
            start = f"{scheme}://{prefix}" if scheme else prefix
            rows = self._store.rows(
                "SELECT path FROM entries WHERE scope = ? AND substr(path, 1, ?) = ? ORDER BY path LIMIT 5",
                (scope, len(start), start),
            )
            if rows or not parts:
                return [str(row[0]) for row in rows] if start else []
            parts.pop()


def _entry(row: Row) -> Entry:
    values = list(row)
    values[5] = json.loads(values[5])
    values[8] = values[8] or ""
    return Entry(*values)
