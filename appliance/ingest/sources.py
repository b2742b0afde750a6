"""Where entries were read from, and how what is there looked then: what a second reading is compared with.

Owns the `sources` table, one row for each entry that was read from a file or a page; a row goes with its
entry. Takes what somebody has read (`gather.Item`) and keeps it as entries, in short transactions. Opens no file
and no connection: who reads is who asked, with that person's rights, and the user's number is kept with the row.
"""

import json
from collections.abc import Sequence
from typing import Any

from appliance.clock import now_ms
from appliance.errors import BadInput, Conflict, NotFound, Refused, TooLarge
from appliance.ingest.file_reader import Chosen, Kept, KnownFile, ReadItem
from appliance.knowledge.contents import Content
from appliance.knowledge.drives import LAST, Drives
from appliance.knowledge.entries import PROJECT, By, Entries, Entry
from appliance.store import visibility
from appliance.store.database import Store
from appliance.text.references import display, parse_ref, scheme_of

FETCHED = ("disk", "url", "google-docs", "github", "http", "https")  # drives whose items are copies of something elsewhere
PAGE = 500  # items told at a time
ONE_ITEM = (BadInput, Conflict, NotFound, Refused, TooLarge)  # what is wrong with one item; anything else ends them all
COLUMNS = "e.path, e.hash, e.source_url, s.hash, s.sha256, s.mark, s.reader, s.file, s.uid"


class Sources:
    """Stores added items, and answers which ones exist."""

    def __init__(self, store: Store, entries: Entries, drives: Drives, *, scope: str = PROJECT) -> None:
        self._store = store
        self.entries = entries
        self._drives = drives
        self._scope = scope

    def find_known(self, refs: Sequence[str]) -> dict[str, KnownFile]:
        """The stored items among these paths."""
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM entries e LEFT JOIN sources s ON s.entry = e.id "
            f"WHERE e.scope = ? AND e.path IN (SELECT value FROM json_each(?)){visibility.only('e')}",
            (self._scope, json.dumps(list(refs))),
        )
        return {str(row[0]): self._known_from_row(row) for row in rows}

    def select_items(self, ref: str, after: str = "", *, is_model: bool = False) -> Chosen:
        """The items that an id, a `drive:/path` or a folder means; every drive's for "". NotFound when there are none."""
        if not ref:
            return self._select_page("", "", LAST, after, is_model)
        stored, found = self._drives.find(ref, is_model=is_model)
        if found is not None and not found.is_folder and not self._drives.is_folder(found.path):
            return Chosen(tuple(self.find_known([found.path]).values()), folder=found.path)
        if found is None and not self._drives.is_folder(stored):
            raise self._drives.missing(stored)
        start = stored if stored.endswith("/") else f"{stored}/"
        return self._select_page(stored, start, start[:-1] + "0", after, is_model)

    def tree(self, folder: str, *, is_model: bool = False) -> str:
        """A picture of a folder, or of an item alone; of all drives for ""."""
        if not folder:
            return self._drives.overview(is_model=is_model).tree
        return self._drives.tree(folder).tree if self._drives.is_folder(folder) else display(folder)

    def store_items(self, items: Sequence[ReadItem], by: By, uid: int) -> list[Kept]:
        """Make an entry of each of these, all in one transaction; what is wrong with one does not stop the others."""
        with self._store.write(run=by.run, durable=True):
            return [self._store_item(item, by, uid) for item in items]

    def looked(self, item: ReadItem) -> None:
        """A file was read and says what it said before: remember how it looks now, nothing else."""
        found = self.entries.find(item.ref, scope=self._scope)
        if found is not None and item.mark:
            with self._store.write() as execute:
                execute("UPDATE sources SET mark = ?2 WHERE entry = ?1 AND mark <> ?2", (found.id, item.mark))

    def check_write(self, ref: str, tier: str) -> None:
        """Refused for a path that a writer of this tier may not write."""
        self._drives.schemes.check_write(parse_ref(ref), tier)

    def _store_item(self, item: ReadItem, by: By, uid: int) -> Kept:
        try:
            path = parse_ref(item.ref)
            before = self.entries.find(path, scope=self._scope)
            after = self.entries.put(path, _build_content(item), by, scope=self._scope)
        except ONE_ITEM as error:
            return Kept(item.ref, "error", str(error))
        self.note_file(item, after, uid)
        count = int(self._store.value("SELECT COUNT(*) FROM chunks WHERE entry = ?", (after.id,)))
        if before is None:
            return Kept(after.path, "added", item.note, count)
        is_same = (before.hash, before.title, before.description) == (after.hash, after.title, after.description)
        return Kept(after.path, "unchanged" if is_same else "updated", item.note, count)

    def note_file(self, item: ReadItem, entry: Entry, uid: int) -> None:
        """An entry says what this file says, as it looks now."""
        values = (item.file, item.mark, item.sha256, entry.hash, item.reader, uid)
        with self._store.write() as execute:
            execute(
                "INSERT INTO sources (entry, file, mark, sha256, hash, reader, uid, read_ms) "
                "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (entry) DO UPDATE SET "
                "file = ?2, mark = ?3, sha256 = ?4, hash = ?5, reader = ?6, uid = ?7, read_ms = ?8 "
                "WHERE (file, mark, sha256, hash, reader, uid) IS NOT (?2, ?3, ?4, ?5, ?6, ?7)",
                (entry.id, *values, now_ms()),
            )

    def _select_page(self, folder: str, start: str, end: str, after: str, is_model: bool) -> Chosen:
        where = "e.path > ?3" if after else "e.path >= ?3"
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM entries e LEFT JOIN sources s ON s.entry = e.id "
            f"WHERE e.scope = ?1 AND e.path >= ?2 AND {where} AND e.path < ?4 AND e.mime <> 'inode/directory'"
            f"{visibility.only('e')} "
            "ORDER BY e.path LIMIT ?5",
            (self._scope, start, after or start, end, PAGE + 1),
        )
        shown = [self._known_from_row(row) for row in rows[:PAGE] if self._drives.is_visible(str(row[0]), is_model)]
        return Chosen(tuple(shown), str(rows[PAGE - 1][0]) if len(rows) > PAGE else "", folder)

    def _known_from_row(self, row: Sequence[Any]) -> KnownFile:
        path, entry_hash, url, kept, sha256, mark, reader, file, uid = row
        scheme = scheme_of(path)
        is_copy = scheme in FETCHED or (scheme is not None and scheme not in {s.name for s in self._drives.schemes.list_schemes()})
        if kept is None:
            return KnownFile(path, entry_hash, source_url=url, is_copy=is_copy)
        return KnownFile(path, entry_hash, kept, sha256, mark, reader, file, url, uid, is_copy)


class Desk:
    """The shelf of this process, for one asker: who writes, with which user's rights things were read, what may be seen."""

    def __init__(self, sources: Sources, by: By, uid: int, *, is_model: bool = False) -> None:
        self._sources = sources
        self._by = by
        self._uid = uid
        self._is_model = is_model

    def find_known(self, refs: Sequence[str]) -> dict[str, KnownFile]:
        """The stored items among these paths."""
        return self._sources.find_known(refs)

    def select_items(self, ref: str, after: str = "") -> Chosen:
        """A page of the items that a reference means."""
        return self._sources.select_items(ref, after, is_model=self._is_model)

    def store_items(self, items: Sequence[ReadItem]) -> list[Kept]:
        """Make an entry of each of these."""
        return self._sources.store_items(items, self._by, self._uid)

    def tree(self, folder: str) -> str:
        """A picture of a folder."""
        return self._sources.tree(folder, is_model=self._is_model)


def _build_content(item: ReadItem) -> Content:
    return Content(
        body=item.body,
        blob=item.blob,
        title=item.title or None,
        description=item.description or None,
        mime=item.mime or None,
        source_url=item.source_url or None,
        original=item.original,
    )
