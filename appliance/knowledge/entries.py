"""What the assistant knows: one row per (scope, path), searchable by its words the moment it is committed.

Owns the `entries` and `blobs` tables; the history follows through `changes` and the search index by what is
handed in as `index`, in the same transaction; without that, a trigger notes what waits to be indexed. Paths are
`scheme://locator` or a bare file path; the display form `drive:/path` is accepted everywhere. Writes are
durable, so a transaction they join must be durable too.
Knows nothing about runs' views or about chunks, nor who may write what: `schemes` tells, callers ask.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, Conflict, NotFound, PathConflict, Refused
from appliance.knowledge.change_log import CLIENT, By, Change, Changes, Execute, changed, patch
from appliance.knowledge.contents import FOLDER, MAX_BODY_BYTES, Content, Entry, attributes_text, check, digest, is_same, merged
from appliance.knowledge.entry_marks import EntryMarks, hash_shown
from appliance.knowledge.schemes import check_scope
from appliance.policy.taint import Mark
from appliance.runtime.events import Events
from appliance.runtime.hook_points import Change as Kind
from appliance.runtime.hook_points import EntryNews
from appliance.store import visibility, wall_clock
from appliance.store.database import Row, Store
from appliance.text.references import MAX_PATH, folder_of, locator_of, parse_ref, scheme_of

__all__ = [
    "FOLDER",
    "MAX_BODY_BYTES",
    "MAX_PATH",
    "PROJECT",
    "By",
    "Change",
    "Content",
    "Draft",
    "Entries",
    "Entry",
    "EntryLine",
    "parse_ref",
]

PROJECT = "project:1"  # one home, one project
COLUMNS = (
    "id, scope, path, title, body, attributes, hash, writer, run, created_ms, updated_ms, "
    "uid, description, mime, source_url, is_textual, indexed_ms"
)
MAX_CODE = chr(0x10FFFF)  # sorts after everything that may follow a prefix
MAX_HELD = 32_000_000  # characters of texts that are kept in memory for the history of an undo
EMPTY = digest(b"")

Index = Callable[[Execute, Entry], int | None]  # indexes an entry as it now is; when that was


class EntryLine(Struct, frozen=True):
    """An entry in a list: everything but its text."""

    ref: str
    title: str
    size_bytes: int
    updated_ms: int


class Draft(Struct, frozen=True):
    """An entry as a mirrored thing wants it to be; the title may not be empty."""

    path: str
    title: str
    body: str
    attributes: Mapping[str, Any]
    audience: str = ""  # the context that may see it, "" for everybody
    source: str = ""  # what stands in a file whose text is read out of it
    keeps_source: bool = False  # which is kept as its bytes


class Entries:
    """Reads and writes entries."""

    def __init__(self, store: Store, index: Index | None = None, events: Events | None = None) -> None:
        """`EntryNews` is published of what changed, once it is committed."""
        self._store = store
        self.marks = EntryMarks(store)
        self._changes = Changes(store)
        self._index = index
        self._events = events or Events()

    def age_limit(self) -> int:
        """The time by which entries with an end are over (`wall_clock.age_limit`)."""
        return wall_clock.age_limit(self._store)

    # -- reading one ------------------------------------------------------------------------------

    def find(self, ref: str, *, scope: str = PROJECT) -> Entry | None:
        return self._find_where("scope = ? AND path = ?", scope, parse_ref(ref))

    def get(self, ref: str, *, scope: str = PROJECT) -> Entry:
        """The entry; NotFound names up to five neighbours."""
        entry = self.find(ref, scope=scope)
        if entry is None:
            near = self.neighbours(parse_ref(ref), scope)
            hint = f"nearby: {', '.join(near)}" if near else "search finds entries by their words"
            raise NotFound(f"no entry {ref}", hint=hint)
        return entry

    def is_taken(self, ref: str, scope: str = PROJECT) -> bool:
        """Whether something is there, also what may not be shown: nothing can be made under its path."""
        return self._store.row("SELECT 1 FROM entries WHERE scope = ? AND path = ?", (scope, parse_ref(ref))) is not None

    def by_uid(self, uid: str) -> Entry | None:
        """The entry with this uid, in whatever scope, or None."""
        return self._find_where("uid = ?", uid)

    def by_ids(self, ids: Iterable[int]) -> dict[int, Entry]:
        """Those of these entries that exist, by id; of very much text a part is left out."""
        found, left = {}, MAX_HELD
        for key in ids:
            entry = self._find_where("id = ?", key)
            if entry is not None:
                left -= len(entry.body)
                found[key] = entry if left >= 0 else replace(entry, body="")
        return found

    def blob(self, entry: Entry) -> bytes:
        """The bytes of an entry that is not text, or those its text was read from; NotFound for one that has none."""
        data = self._store.value("SELECT data FROM blobs WHERE entry = ?", (entry.id,))
        if data is None:
            raise NotFound(f"{entry.path} holds no bytes", hint="read its text")
        return bytes(data)

    def changes(self, ref: str, *, scope: str = PROJECT, limit: int = 50) -> list[Change]:
        """The last changes under a reference, newest first, also when nothing is there any more."""
        is_gone = visibility.asking() is not None and self.find(ref, scope=scope) is None
        return self._changes.changes_of(scope, parse_ref(ref), limit, is_own=is_gone)

    # -- writing one ------------------------------------------------------------------------------

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
        """Create an entry or replace its text; attributes and title are kept when not given."""
        return self.put(ref, Content(body=body, title=title or None, attributes=attributes), By(writer, run), scope=scope)

    def put(
        self,
        ref: str,
        content: Content,
        by: By = CLIENT,
        *,
        scope: str = PROJECT,
        expected_hash: str | None = None,
        if_exists: Literal["overwrite", "error"] = "overwrite",
        audience: str = "",
    ) -> Entry:
        """Create or change an entry; id, uid and time of birth stay. Writes nothing when nothing changes.

        `audience` is the context whose it is to be where that is not the run's; "" leaves it.

        `expected_hash` is that of the entry as the caller read it, "" for none: Conflict when it is another by now.
        """
        path = parse_ref(ref)
        check_scope(scope)
        check(path, content)
        seen = self.find(path, scope=scope)
        difference = _diff_text(path, seen, content)
        with self._store.write(run=by.run, durable=True) as execute:
            before = self.find(path, scope=scope)
            if before is not None and if_exists == "error":
                raise _path_conflict(before)
            _check_unchanged(path, before, expected_hash)
            after = merged(before or self._new_entry(scope, path), content)
            if before is not None and is_same(before, after) and content.original in (None, self._stored_bytes(before)):
                return before
            if before != seen:
                difference = _diff_text(path, before, content)  # somebody was quicker
            keeps_bytes = content.body is None and content.blob is None
            self._save_row(execute, after, by, content.original if content.blob is None else content.blob, keeps_bytes=keeps_bytes)
            if audience:
                execute("UPDATE entries SET audience = ? WHERE scope = ? AND path = ?", (audience, scope, path))
            return self._record_change(execute, path, scope, by, before, difference)

    def make_folder(self, ref: str, by: By = CLIENT, *, scope: str = PROJECT) -> tuple[Entry, bool]:
        """A folder and whether it is new; PathConflict when something else is there."""
        path = folder_of(parse_ref(ref))
        check_scope(scope)
        with self._store.write(run=by.run, durable=True) as execute:
            found = self.find(path, scope=scope)
            if found is not None and not found.is_folder:
                raise _path_conflict(found)
            if found is not None:
                return found, False
            made = replace(self._new_entry(scope, path), mime=FOLDER, is_textual=False)
            self._save_row(execute, made, by, None)
            return self._record_change(execute, path, scope, by, None, ""), True

    def copy(self, source: str, target: str, by: By = CLIENT, *, scope: str = PROJECT, is_overwrite: bool = False) -> Entry:
        """Another entry with the same content; PathConflict when the target is there and may not be overwritten."""
        by = by.doing("cp")
        path = parse_ref(target)
        with self._store.write(run=by.run, durable=True) as execute:
            found, there = self._transfer_pair(source, path, scope, is_overwrite)
            kept = there or self._new_entry(scope, path)
            names = ("title", "body", "attributes", "hash", "description", "mime", "source_url", "is_textual")
            made = replace(kept, **{name: getattr(found, name) for name in names})
            data = self._stored_bytes(found)
            if there is not None and is_same(there, made) and self._stored_bytes(there) == data:
                return there
            self._save_row(execute, replace(made, indexed_ms=None), by, data)
            difference = patch(kept.body, found.body, path)
            return self.marks.inherit(self._record_change(execute, path, scope, by, there, difference), found)

    def move(self, source: str, target: str, by: By = CLIENT, *, scope: str = PROJECT, is_overwrite: bool = False) -> Entry:
        """The same entry under another path, with its id, uid, birth and views; a folder without what is in it."""
        by = by.doing("mv")
        path = parse_ref(target)
        with self._store.write(run=by.run, durable=True) as execute:
            found, there = self._transfer_pair(source, path, scope, is_overwrite)
            if there is not None:
                execute("DELETE FROM entries WHERE id = ?", (there.id,))
            return self._rename_row(execute, found, path, by, there)

    def trust(self, ref: str, shown: str, *, scope: str = PROJECT) -> tuple[Mark, ...]:
        """Take the marks of strangers off an entry as a person was shown it (`EntryMarks.trust`); which ones they were."""
        with self._store.write(durable=True):
            return self.marks.trust(self.get(ref, scope=scope), shown)

    def remove(self, ref: str, by: By = CLIENT, *, scope: str = PROJECT) -> None:
        """Remove an entry; NotFound when there is none."""
        by = by.doing("rm")
        with self._store.write(run=by.run, durable=True) as execute:
            self._remove_row(execute, self.get(ref, scope=scope), by)

    def forget(self, ref: str, *, scope: str = PROJECT) -> None:
        """Remove an entry with its history, its passages and vectors, and what could bring it back.

        Runs that changed it cannot be taken back any more where their changeset holds its text. Free pages are overwritten.
        Conversations and backups keep what they hold.
        """
        path = parse_ref(ref)
        found = self.get(path, scope=scope)
        with self._store.overwriting(), self._store.write(durable=True) as execute:
            execute("DELETE FROM entries WHERE id = ?", (found.id,))
            self._changes.forget(execute, scope, path)
            if found.body:
                self._store.blank_changesets(found.body)
            self._announce_change(path, scope, CLIENT, "removed")

    def owned(self, prefix: str, audience: str, *, scope: str = PROJECT) -> list[Entry]:
        """The entries under a prefix that belong to exactly this context, by path; "" for everybody's."""
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM entries WHERE scope = ? AND path >= ? AND path < ? AND audience = ?{visibility.only()} "
            "ORDER BY path",
            (scope, prefix, prefix + MAX_CODE, audience),
        )
        return [_entry_from_row(row) for row in rows]

    def restored(self, before: Mapping[int, Entry], ids: Iterable[int], by: By, runs: Sequence[str] = ()) -> list[Entry]:
        """Follow up on rows that were brought back to what they were: within the transaction that did so.

        Puts it into the history, as `undo`, and has them indexed anew. `before` is what they were before that, `runs` made the
        changes that were taken back: an entry loses the marks that it got for them;
        the answer is each entry that is now another one, as it is now, or as it was when it is gone.
        """
        by = By(by.writer, by.run, "undo")
        pairs = [(before.get(key), self._find_where("id = ?", key)) for key in ids]
        pairs = [(old, new) for old, new in pairs if _is_other(old, new)]
        with self._store.write(run=by.run, durable=True) as execute:
            for old, new in pairs:  # first what goes, so that its name is free for what comes
                if old is not None and (new is None or new.path != old.path):
                    self._changes.add(execute, old.scope, old.path, changed(by, old.hash, "", 0, _undone_patch(old, new)))
            for old, new in pairs:
                if new is not None:
                    if (since_ms := self._changes.since(new.scope, new.path, new.hash)) is not None:
                        undone = [run for run in runs if self._changes.has_taken_back(new.scope, new.path, run)]
                        self.marks.taken_back(new, since_ms, undone, by.run)
                    was = old.hash if old is not None and old.path == new.path else ""
                    told = changed(by, was, new.hash, self._size_bytes(new), _undone_patch(old, new))
                    self._changes.add(execute, new.scope, new.path, told)
                    execute("UPDATE entries SET indexed_ms = NULL WHERE id = ? AND indexed_ms IS NOT NULL", (new.id,))
                    if self._index is not None:
                        self._index(execute, new)
                    self.marks.recognize(new, old)
            for entry in (new or old for old, new in pairs):
                if entry is not None:
                    self._announce_change(entry.path, entry.scope, by, "restored")
        return [new or old for old, new in pairs if new or old]  # type: ignore[misc]

    # -- many -------------------------------------------------------------------------------------

    def mirror(
        self,
        drafts: Sequence[Draft],
        gone: Sequence[str] = (),
        *,
        writer: str,
        scope: str = PROJECT,
        run: str = "",
        written: Sequence[str] = (),
    ) -> None:
        """Bring entries in line with what they mirror, in one transaction; `gone` are stored paths.

        Not durable: the original is the truth and is compared again at the next start. The time of an
        entry whose text and title stay the same is kept, and its history says nothing. An undo of `run` takes it back; `written`
        are the paths whose texts are that run's, which are marked as it is, also where somebody mirrored them before.
        """
        by = By(writer, verb="mirror")
        with self._store.write(run=run, durable=bool(written)) as execute:
            new = {digest(draft.body.encode()): draft.path for draft in drafts if gone and not self.is_taken(draft.path, scope)}
            for path in gone:
                found = self.find(path, scope=scope)
                if found is not None and (target := new.pop(found.hash, "")):  # a file was renamed
                    self._rename_row(execute, found, target, by)
                elif found is not None:
                    self.marks.keep_own(found)
                    self._remove_row(execute, found, by)
            before = {path: found.body for path in written if (found := self.find(path, scope=scope)) is not None}
            for draft in drafts:
                self._mirror_one(execute, draft, by, scope)
            self._keep_marks(drafts, {path: before.get(path, "") for path in written}, run, scope)

    def ending(self, prefix: str, ending: str, *, scope: str = PROJECT) -> list[str]:
        """The stored paths that begin and end so; found in an index, however much is stored."""
        where = f"scope = ? AND path >= ? AND path < ? AND path LIKE ?{visibility.only()} ORDER BY path"
        rows = self._store.rows(f"SELECT path FROM entries WHERE {where}", (scope, prefix, prefix + MAX_CODE, f"%{ending}"))
        return [str(row[0]) for row in rows]

    def under(self, prefix: str, *, scope: str = PROJECT) -> list[str]:
        """The stored paths of an entry and of everything in it as a folder, sorted."""
        path = folder_of(parse_ref(prefix))
        inside = path if path.endswith("/") else f"{path}/"
        where = f"scope = ?1 AND (path = ?2 OR (path >= ?3 AND path < ?4)){visibility.only()} ORDER BY path"
        rows = self._store.rows(f"SELECT path FROM entries WHERE {where}", (scope, path, inside, inside + MAX_CODE))
        return [str(row[0]) for row in rows]

    def attributes(self, prefix: str, *, scope: str = PROJECT) -> dict[str, dict[str, Any]]:
        """The attributes of every entry under a prefix, by stored path."""
        rows = self._store.rows(
            f"SELECT path, attributes FROM entries WHERE scope = ? AND path >= ? AND path < ?{visibility.only()}",
            (scope, prefix, prefix + MAX_CODE),
        )
        return {str(path): json.loads(text) for path, text in rows}

    def attributes_of(self, paths: Sequence[str], *, scope: str = PROJECT) -> dict[str, dict[str, Any]]:
        """The attributes of those of these entries that exist, by stored path."""
        rows = self._store.rows(
            "SELECT path, attributes FROM entries WHERE scope = ? AND path IN (SELECT value FROM json_each(?))",
            (scope, json.dumps(paths)),
        )
        return {str(path): json.loads(text) for path, text in rows}

    def list_lines(self, prefix: str = "", *, limit: int = 100, offset: int = 0, scope: str = PROJECT) -> list[EntryLine]:
        """Entries whose reference begins with `prefix`, sorted by reference."""
        start = parse_ref(prefix) if prefix.strip() else ""
        rows = self._store.rows(
            "SELECT path, title, octet_length(body) + COALESCE(octet_length(data), 0), updated_ms "
            "FROM entries LEFT JOIN blobs ON entry = id WHERE scope = ? AND path >= ? AND path < ?"
            f"{visibility.only()} ORDER BY path LIMIT ? OFFSET ?",
            (scope, start, start + MAX_CODE, limit, offset),
        )
        return [EntryLine(str(path), str(title), int(size), int(updated)) for path, title, size, updated in rows]

    def view(self, ref: str, line: int, limit: int, *, scope: str = PROJECT) -> dict[str, Any]:
        """Some lines of an entry and what is known about it, ready for JSON; lines count from 1."""
        found = self.get(ref, scope=scope)
        lines = found.body.split("\n")
        return {
            "ref": found.path,
            "title": found.title,
            "description": found.description,
            "lines": lines[line - 1 : line - 1 + limit],
            "line": line,
            "total_lines": len(lines),
            "size_bytes": self._size_bytes(found),
            "attributes": found.attributes,
            "mime": found.mime,
            "writer": found.writer,
            "created_ms": found.created_ms,
            "updated_ms": found.updated_ms,
            "marks": [mark.text for mark in self.marks.of(found)],
            "hash": hash_shown(found) if line == 1 and len(lines) <= limit else "",
        }

    def count(self) -> int:
        return int(self._store.value("SELECT COUNT(*) FROM entries"))

    def neighbours(self, path: str, scope: str = PROJECT) -> list[str]:
        """Up to five stored paths in the nearest ancestor that has any; none when only the root would do."""
        scheme = scheme_of(path)
        root = f"{scheme}://" if scheme else ""
        parts = locator_of(path).split("/")[:-1]
        while True:
            start = root + "".join(f"{part}/" for part in parts)
            if start:
                rows = self._store.rows(
                    f"SELECT path FROM entries WHERE scope = ? AND path >= ? AND path < ?{visibility.only()} ORDER BY path LIMIT 5",
                    (scope, start, start + MAX_CODE),
                )
                if rows:
                    return [str(row[0]) for row in rows]
            if not parts:
                return []
            parts.pop()

    # -- inside -----------------------------------------------------------------------------------

    def _find_where(self, where: str, *bindings: str | int) -> Entry | None:
        row = self._store.row(f"SELECT {COLUMNS} FROM entries WHERE {where}{visibility.only()}", bindings)
        return None if row is None else _entry_from_row(row)

    def _new_entry(self, scope: str, path: str) -> Entry:
        """An empty entry that is not stored; BadInput without a name, Refused for a run's own copy of what is the same for all."""
        if not locator_of(path):
            raise BadInput(f"{path} names no entry", hint="add a name, as in memory://notes/garden")
        if scope.startswith("run:") and self.find(path, scope="global") is not None:
            raise Refused(f"{path} is the same for every run", hint="keep yours under another path")
        if self.is_taken(path, scope):
            raise Refused(f"{path} cannot be used", hint="choose another path", outcome="path_taken")
        return Entry(0, scope, path, "", "", hash=digest(b""))

    def _transfer_pair(self, source: str, target: str, scope: str, is_overwrite: bool) -> tuple[Entry, Entry | None]:
        """The entry to copy or move, and what is at the target and will be replaced."""
        check_scope(scope)
        found, there = self.get(source, scope=scope), self.find(target, scope=scope)
        if found.path == target:
            raise BadInput(f"{target} is source and target", hint="name another target")
        if there is not None and (not is_overwrite or there.is_folder != found.is_folder):
            raise _path_conflict(there)
        if there is None:
            self._new_entry(scope, target)  # refuses what may not be made
        return found, there

    def _save_row(self, execute: Execute, entry: Entry, by: By, blob: bytes | None, *, keeps_bytes: bool = False) -> None:
        """Write the row of an entry, a new one when its id is 0, and its bytes; a text loses those of the text before it."""
        names = ("scope", "path", "title", "body", "hash", "description", "mime", "source_url", "indexed_ms")
        values = {name: getattr(entry, name) for name in names} | {
            "attributes": attributes_text(entry.path, entry.attributes),
            "is_textual": int(entry.is_textual),
            "writer": by.writer,
            "run": by.run or None,
            "updated_ms": now_ms(),
        }
        if entry.id:
            assignments = ", ".join(f"{name} = :{name}" for name in values)
            execute(f"UPDATE entries SET {assignments} WHERE id = :id", values | {"id": entry.id})
        else:
            values |= {"uid": new_id(), "created_ms": values["updated_ms"]}
            places = ", ".join(f":{name}" for name in values)
            columns = ", ".join(values)
            values["owner"] = "" if visibility.asking() is None else visibility.current()
            owner = "COALESCE((SELECT s.context FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id = :run), :owner)"
            execute(f"INSERT INTO entries ({columns}, audience) VALUES ({places}, {owner})", values)
        if entry.is_textual and blob is None and not keeps_bytes:
            execute(
                "DELETE FROM blobs WHERE entry = (SELECT id FROM entries WHERE scope = ? AND path = ?)", (entry.scope, entry.path)
            )
        elif blob is not None:
            execute(
                "INSERT INTO blobs (entry, data) SELECT id, ?3 FROM entries WHERE scope = ?1 AND path = ?2 "
                "ON CONFLICT (entry) DO UPDATE SET data = ?3",
                (entry.scope, entry.path, blob),
            )

    def _rename_row(self, execute: Execute, entry: Entry, path: str, by: By, there: Entry | None = None) -> Entry:
        """The same entry under another path, at which the row of `there` was removed; its marks are those that it had."""
        execute(
            "UPDATE entries SET path = ?, writer = ?, run = ?, updated_ms = ? WHERE id = ?",
            (path, by.writer, by.run or None, now_ms(), entry.id),
        )
        renamed = f"rename from {entry.path}\nrename to {path}\n"
        self._changes.add(execute, entry.scope, entry.path, changed(by, entry.hash, "", 0, renamed))
        self._announce_change(entry.path, entry.scope, by, "moved")
        return self.marks.inherit(self._record_change(execute, path, entry.scope, by, there or entry, renamed), entry)

    def _record_change(
        self, execute: Execute, path: str, scope: str, by: By, before: Entry | None, difference: str, source: str = ""
    ) -> Entry:
        """The entry as it now is, after its change has been put into the history."""
        after = self.get(path, scope=scope)
        was = before if before is not None and before.path == path else None
        told = changed(by, was.hash if was else "", after.hash, self._size_bytes(after), difference)
        self._changes.add(execute, scope, path, replace(told, at_ms=after.updated_ms))  # not after the marks that it brings
        is_text = was is not None and was.hash != after.hash
        self._announce_change(path, scope, by, "created" if was is None else "body" if is_text else "attributes")
        self.marks.recognize(after, before, source)
        if by.marks:
            self.marks.take(after, by.marks, before)
        if by.run and was is not None and is_text:
            self.marks.added(after, by.run, was.body)
        if self._index is None:
            return after
        return replace(after, indexed_ms=self._index(execute, after))

    def _remove_row(self, execute: Execute, entry: Entry, by: By) -> None:
        execute("DELETE FROM entries WHERE id = ?", (entry.id,))
        self._changes.add(execute, entry.scope, entry.path, changed(by, entry.hash, "", 0, patch(entry.body, "", entry.path)))
        self._announce_change(entry.path, entry.scope, by, "removed")

    def _announce_change(self, path: str, scope: str, by: By, kind: Kind) -> None:
        if self._events.has(EntryNews):
            self._store.after(partial(self._events.publish, EntryNews(path, kind, by.run, scope, by.writer)))

    def _keep_marks(self, drafts: Sequence[Draft], written: Mapping[str, str], run: str, scope: str) -> None:
        """Mark mirrored entries as the run that wrote them, with the texts before, and know the texts of marked ones again."""
        sources = dict.fromkeys(written, "") | {draft.path: draft.source for draft in drafts}
        for path, source in sources.items() if self.marks.is_needed(run if written else "") else ():
            if (found := self.find(path, scope=scope)) is not None:
                if path in written:
                    self.marks.written(found, run, written[path])
                self.marks.keep_text(found, source)

    def _mirror_one(self, execute: Execute, draft: Draft, by: By, scope: str) -> None:
        before = self.find(draft.path, scope=scope)
        old = before or self._new_entry(scope, draft.path)
        after = merged(replace(old, mime="") if old.is_folder else old, Content(draft.body, title=draft.title))
        original = draft.source.encode() if draft.keeps_source else None  # of a calendar more counts than its text
        if before and (before.hash, before.title, self._stored_bytes(before)) == (after.hash, after.title, original):
            text = attributes_text(draft.path, draft.attributes)
            if text != attributes_text(draft.path, before.attributes):
                execute("UPDATE entries SET attributes = ? WHERE id = ?", (text, before.id))
                self.marks.of_author(replace(before, attributes=dict(draft.attributes)), before.attributes)
                self._announce_change(draft.path, scope, by, "attributes")
            return
        self._save_row(execute, replace(after, attributes=dict(draft.attributes)), by, original)
        if draft.audience:
            execute("UPDATE entries SET audience = ? WHERE scope = ? AND path = ?", (draft.audience, scope, draft.path))
        # A new file's text is in the file; what a text was before is nowhere else.
        difference = patch(old.body, draft.body, draft.path) if before else ""
        self.marks.of_author(self._record_change(execute, draft.path, scope, by, before, difference, draft.source), {})

    def _stored_bytes(self, entry: Entry) -> bytes | None:
        """The bytes that are kept of an entry, None when there are none."""
        data = self._store.value("SELECT data FROM blobs WHERE entry = ?", (entry.id,)) if entry.id else None
        return None if data is None else bytes(data)

    def _size_bytes(self, entry: Entry) -> int:
        if entry.is_textual:
            return len(entry.body.encode())
        return int(self._store.value("SELECT octet_length(data) FROM blobs WHERE entry = ?", (entry.id,)) or 0)


def _entry_from_row(row: Row) -> Entry:
    values = list(row)
    values[5] = json.loads(values[5])
    values[8] = values[8] or ""
    values[15] = bool(values[15])
    return Entry(*values)


def _is_other(old: Entry | None, new: Entry | None) -> bool:
    """Whether two states of an entry differ in anything but what an index knows of it."""
    if old is None or new is None:
        return old is not new
    return replace(old, body="", indexed_ms=None) != replace(new, body="", indexed_ms=None)


def _undone_patch(old: Entry | None, new: Entry | None) -> str:
    """The patch of an undo: changes of the text and the name."""
    if old is not None and new is not None and old.path != new.path:
        return f"rename from {old.path}\nrename to {new.path}\n"
    if old is not None and not old.body and old.is_textual and old.hash != EMPTY:
        return ""  # it was too much to keep in memory
    path = new.path if new is not None else old.path if old is not None else ""
    return patch(old.body if old else "", new.body if new else "", path)


def _diff_text(path: str, before: Entry | None, content: Content) -> str:
    """The difference between the stored text and the new content, as a patch."""
    old = before.body if before else ""
    new = old if content.body is None and content.blob is None else content.body or ""
    return patch(old, new, path)


def _path_conflict(there: Entry) -> PathConflict:
    what = "a folder" if there.is_folder else "an entry"
    return PathConflict(
        f"{there.path} is there already: {what} with id {there.uid}",
        uid=there.uid,
        hint="choose another path, or say that it may be overwritten",
    )


def _check_unchanged(path: str, before: Entry | None, expected_hash: str | None) -> None:
    """Conflict when an entry is not the one that the caller read."""
    if expected_hash is None or expected_hash == (before.hash if before else ""):
        return
    what = "was removed" if before is None else "changed" if expected_hash else "was made"
    raise Conflict(f"{path} {what} since it was read", hint="read it again and repeat the change on what is there now")
