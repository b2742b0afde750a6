"""Entries as drives and folders: what is on a drive, in which folder, how large, and where a text stands.

A drive is a scheme, a folder is implied by the paths below it or is a row of its own (`inode/directory`).
Names count whole: `/ab` is not in `/a`. Reads only, in one scope; sizes, lists and trees never load a text.
Whoever asks as the model sees no drive of a scheme that is hidden from it. Knows nothing about runs' views,
tools or files. Not promised: that a tree of more than some hundred lines is shown whole.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from msgspec import Struct, field

from appliance.errors import BadInput, NotFound
from appliance.knowledge.contents import FOLDER
from appliance.knowledge.entries import PROJECT, Entries, Entry
from appliance.knowledge.schemes import Schemes
from appliance.store import visibility
from appliance.store.database import Store
from appliance.text.references import AS_WRITTEN, DRIVE, display, is_ref, locator_of, parse_ref, route_url, scheme_of

NOTHING = "nothing is kept yet: context_write keeps something"
NEAR = 5  # siblings named where something is missing
MAX_LINES = 400  # of a tree
MAX_TREE_CHARS = 8_000
MAX_NAME_CHARS = 120
WEB = ("http://", "https://")
HEXADECIMAL = "0123456789abcdefABCDEF"
AFTER_SLASH = "0"  # the letter after "/": what lies in a folder sorts before it
LAST = chr(0x10FFFF)  # sorts after every path
BYTES = "octet_length(body) + COALESCE((SELECT octet_length(data) FROM blobs WHERE entry = e.id), 0)"
IS_FOLDER = f"(octet_length(body) = 0 AND mime = '{FOLDER}')"  # the length comes first: it costs no page of text
# Where the name at the beginning of a path ends, 0 at the last one. The beginning of a URL is one name.
CUT = (
    "CASE WHEN rest GLOB 'https://?*' THEN 8 WHEN rest GLOB 'http://?*' THEN 7 "
    "ELSE instr(substr(rest, 1, length(rest) - 1), '/') END"
)
# CASE, because OR would look at the row of every path: the index alone is enough for what lies deeper. Made
# first, because a GROUP BY over it would carry the texts along (2026-11-22: 2 s instead of 0.2 s for 100 000).
CHILDREN = f"""
    WITH listed AS MATERIALIZED (
        SELECT CASE WHEN cut THEN substr(rest, 1, cut - 1) ELSE rest END AS name,
            CASE WHEN cut THEN 1 ELSE {IS_FOLDER} END AS is_in, cut > 0 AS is_below
        FROM (SELECT rest, body, mime, {CUT} AS cut
            FROM (SELECT substr(path, ?) AS rest, body, mime FROM entries WHERE scope = ? AND path > ? AND path < ?{{only}})))
    SELECT name, is_in, SUM(is_below), COUNT(*) OVER () FROM listed GROUP BY name, is_in ORDER BY is_in DESC, name LIMIT ?"""


class Drive(Struct, frozen=True):
    """A drive and how many items are on it."""

    drive: str
    items: int


class FolderChild(Struct, frozen=True):
    """What stands in a folder: `path` as stored, a folder's with its slash; `items` is what lies below it."""

    name: str
    path: str
    is_folder: bool
    items: int


class DriveItem(Struct, frozen=True):
    """An item in a list: everything but its content."""

    ref: str
    id: str
    title: str
    mime: str
    is_folder: bool
    size_bytes: int
    updated_ms: int


class DriveSize(Struct, frozen=True):
    """Bytes of texts and of what is not text, and how many items have them."""

    bytes: int
    items: int


class DriveTree(Struct, frozen=True):
    """A drive or folder as lines; `truncated_dirs` are the folders of which not everything is shown."""

    tree: str
    total_items: int
    truncated_dirs: tuple[str, ...] = ()
    hint: str = ""


class _Node(Struct):
    """A folder of a tree being made."""

    child: FolderChild
    depth: int
    children: list["_Node"] = field(default_factory=list)
    hidden: int = 0
    is_open: bool = False


class Drives:
    """Questions about drives and folders; `is_model` hides what the model may not see."""

    def __init__(
        self,
        store: Store,
        entries: Entries,
        schemes: Schemes,
        *,
        scope: str = PROJECT,
        why_unread: Callable[[str], str] = lambda path: "",
    ) -> None:
        """`why_unread` tells why there is no item for a file that is there."""
        self._store = store
        self._why_unread = why_unread
        self._entries = entries
        self.schemes = schemes
        self._scope = scope

    def is_visible(self, path: str, is_model: bool) -> bool:
        """Whether the asker may know of what is stored under a path."""
        return not is_model or self.schemes.find_scheme(path).is_visible_to_model

    # -- what a path means --------------------------------------------------------------------------

    def find(self, path: str, drive: str = "", *, is_model: bool = False) -> tuple[str, Entry | None]:
        """The stored path that is meant and the item there; NotFound for an unknown id and what the asker may not see."""
        entry = None
        if not drive and is_id(path):
            entry = self._entries.by_uid(path.strip().lower())
            if entry is None or entry.scope != self._scope or not self.is_visible(entry.path, is_model):
                raise NotFound(f"no item with the id {path}", hint="context_search and context_list find items")
            return entry.path, entry
        stored = stored_path(path, drive)
        if not drive and path.strip().startswith(WEB):  # what is kept under the URL itself comes first
            entry = self._entries.find(path, scope=self._scope)
            stored = entry.path if entry else stored
        if not self.is_visible(stored, is_model):
            raise NotFound(f"no drive {scheme_of(stored)}", hint="context_tree shows what there is")
        return stored, self._entries.find(stored, scope=self._scope) if locator_of(stored) else None

    def item(self, path: str, drive: str = "", *, is_model: bool = False) -> Entry:
        """The item; NotFound names its neighbours."""
        stored, found = self.find(path, drive, is_model=is_model)
        if found is None:
            raise self.missing(stored)
        return found

    def text(self, path: str, drive: str = "", *, is_model: bool = False) -> Entry:
        """The item, which is text; BadInput for a folder and for bytes."""
        found = self.item(path, drive, is_model=is_model)
        shown = display(found.path)
        if found.is_folder:
            raise BadInput(f"{shown} is a folder", hint="context_tree shows what is in it", outcome="no_text_content")
        if not found.is_textual:
            kind = found.mime or "of unknown type"
            raise BadInput(f"{shown} is not text: {kind}", hint="context_info describes it", outcome="no_text_content")
        return found

    # -- drives and folders -------------------------------------------------------------------------

    def list_drives(self, *, is_model: bool = False) -> list[Drive]:
        """Every drive with how many items it has, by name."""
        rows = self._store.rows(
            "SELECT substr(path, 1, instr(path, '://') - 1) AS drive, COUNT(*) FROM entries "
            f"WHERE scope = ? AND instr(path, '://') > 1{visibility.only()} GROUP BY drive ORDER BY drive",
            (self._scope,),
        )
        return [Drive(str(name), int(items)) for name, items in rows if self.is_visible(f"{name}://", is_model)]

    def count(self, folder: str) -> int:
        """The number of items below a folder."""
        sql = f"SELECT COUNT(*) FROM entries WHERE scope = ? AND path > ? AND path < ?{visibility.only()}"
        return int(self._store.value(sql, self._path_bounds(folder)))

    def is_folder(self, path: str) -> bool:
        """Whether something lies below this path, or it is marked as a folder."""
        sql = f"SELECT 1 FROM entries WHERE scope = ? AND path > ? AND path < ?{visibility.only()} LIMIT 1"
        if self._store.row(sql, self._path_bounds(path)):
            return True
        return self.is_folder_row(path)

    def is_folder_row(self, path: str) -> bool:
        """Whether what is stored at the very path is a folder that somebody made."""
        sql = f"SELECT {IS_FOLDER} FROM entries WHERE scope = ? AND path = ?{visibility.only()}"
        return bool(self._store.value(sql, (self._scope, path.rstrip("/"))))

    def paths(self, path: str, limit: int) -> list[str]:
        """The first so many stored paths at or below a path."""
        scope, start, end = self._path_bounds(path)
        rows = self._store.rows(
            "SELECT path FROM entries "
            f"WHERE scope = ?1 AND path >= ?2 AND path < ?3 AND (path = ?2 OR path > ?4){visibility.only()} ORDER BY path LIMIT ?5",
            (scope, path, end, start, limit),
        )
        return [str(row[0]) for row in rows]

    def together(self, run: str = "") -> AbstractContextManager[object]:
        """One durable transaction around several changes that `Entries` makes in this thread: all of them or none."""
        return self._store.write(run=run, durable=True)

    def children(self, folder: str, limit: int) -> tuple[list[FolderChild], int]:
        """The first so many things in a folder, folders first, and how many there are."""
        scope, start, end = self._path_bounds(folder)
        rows = self._store.rows(CHILDREN.format(only=visibility.only()), (len(start) + 1, scope, start, end, limit))
        found = []
        for name, is_in, items, _ in rows:
            full = f"{name}/" if is_in else str(name)
            found.append(FolderChild(full, f"{start}{full}", bool(is_in), int(items)))
        return found, int(rows[0][3]) if rows else 0

    def siblings(self, path: str) -> list[str]:
        """Up to five references in the nearest folder above a path that has anything in it."""
        while "/" in locator_of(path.rstrip("/")):
            path = path.rstrip("/").rpartition("/")[0]
            found, _ = self.children(path, NEAR)
            if found:
                return [display(child.path) for child in found]
        found, _ = self.children(f"{scheme_of(path)}://", NEAR) if scheme_of(path) else ([], 0)
        return [display(child.path) for child in found]

    def _namesakes(self, path: str) -> list[str]:
        """References of what has the same name elsewhere: a model remembers that, and not where it was."""
        name = "/" + path.rstrip("/").rpartition("/")[2]
        where = f"scope = ?1 AND substr(path, -length(?2)) = ?2{visibility.only()}"
        sql = f"SELECT path FROM entries WHERE {where} ORDER BY path LIMIT ?3"
        found = [str(path) for (path,) in self._store.rows(sql, (self._scope, name, NEAR))] if len(name) > 1 else []
        return [display(one) for one in found if self.is_visible(one, is_model=True)]

    def missing(self, path: str, kind: str = "item") -> NotFound:
        """The error for a path with nothing under it: it names what is near."""
        near = self._namesakes(path) or self.siblings(path)
        if self.is_folder(path):
            inside, _ = self.children(path, NEAR)
            return NotFound(f"{display(path)} is a folder", hint=f"it holds {', '.join(display(child.path) for child in inside)}")
        if reason := self._why_unread(path):
            return NotFound(f"{display(path)} could not be read: {reason}", hint="its file is in the folder")
        hint = f"nearby: {', '.join(near)}" if near else "context_tree shows what there is"
        return NotFound(f"no {kind} {display(path)}", hint=hint)

    def size(self, path: str, *, is_recursive: bool = True) -> DriveSize:
        """The size of an item or of everything in a folder; zero where nothing is."""
        scope, start, end = self._path_bounds(path)
        only = "" if is_recursive else self._direct_children(start)
        row = self._store.row(
            f"SELECT COALESCE(SUM({BYTES}), 0), COUNT(*) FROM entries e "
            f"WHERE scope = ?1 AND path >= ?2 AND path < ?3 AND (path IN (?2, ?4) OR (path > ?5 {only})){visibility.only()}",
            (scope, path.rstrip("/"), end, path, start),
        )
        total, items = row or (0, 0)
        return DriveSize(int(total), int(items))

    def bytes_of(self, entry: Entry) -> int:
        """The size of an item: of its text in UTF-8, or of its bytes."""
        return len(entry.body.encode()) if entry.is_textual else self.size(entry.path, is_recursive=False).bytes

    def items(
        self, folder: str = "", *, is_recursive: bool = True, limit: int = 100, offset: int = 0, is_model: bool = False
    ) -> tuple[list[DriveItem], int]:
        """Items below a folder or at its very path, by path, and how many there are; on every drive without a folder."""
        scope, start, end = self._path_bounds(folder) if folder else (self._scope, "", LAST)
        only = "" if is_recursive or not folder else self._direct_children(start)
        hidden = json.dumps(self.schemes.hidden() if is_model else [])
        where = (
            f"scope = ?1 AND path >= ?2 AND path < ?3 AND (path = ?2 OR (path > ?4 {only})) "
            f"AND substr(path, 1, instr(path, '://') - 1) NOT IN (SELECT value FROM json_each(?5)){visibility.only()}"
        )
        bindings = (scope, folder, end, start, hidden)
        rows = self._store.rows(
            f"SELECT path, uid, title, mime, {IS_FOLDER}, {BYTES}, updated_ms FROM entries e WHERE {where} "
            "ORDER BY path LIMIT ?6 OFFSET ?7",
            (*bindings, limit, offset),
        )
        total = self._store.value(f"SELECT COUNT(*) FROM entries WHERE {where}", bindings)
        found = [
            DriveItem(display(path), uid, title, mime, bool(is_in), size, updated)
            for path, uid, title, mime, is_in, size, updated in rows
        ]
        return found, int(total)

    def _direct_children(self, start: str) -> str:
        """The condition that a path is in a folder itself, not in one below."""
        return f"AND NOT {CUT.replace('rest', f'substr(path, {len(start) + 1})')}"

    def _path_bounds(self, folder: str) -> tuple[str, str, str]:
        """Scope and the bounds of the paths below a folder."""
        start = folder if folder.endswith("/") else f"{folder}/"
        return self._scope, start, start[:-1] + AFTER_SLASH

    # -- trees --------------------------------------------------------------------------------------

    def tree(self, folder: str, *, max_depth: int = 10, items_per_dir: int = 15) -> DriveTree:
        """A folder with what is in it, nearest levels first as far as there is room."""
        total = self.count(folder)
        name = display(folder)
        root = _Node(FolderChild(name if name.endswith("/") else f"{name}/", folder, True, total), 0)
        waiting, lines, room = deque([root]), 1, MAX_TREE_CHARS
        while waiting:
            node = waiting.popleft()
            if node.depth >= max_depth or not node.child.items or lines > MAX_LINES or room <= 0:
                continue
            found, all_of_them = self.children(node.child.path, items_per_dir)
            node.is_open, node.hidden = True, all_of_them - len(found)
            node.children = [_Node(child, node.depth + 1) for child in found]
            waiting += [child for child in node.children if child.child.is_folder]
            lines += len(found) + 1
            room -= sum(min(len(child.name), MAX_NAME_CHARS) + 2 * node.depth + 3 for child in found)
        cut = tuple(_cut_folders(root))
        hint = "ask again with path set to one of truncated_dirs, or with larger items_per_dir or max_depth" if cut else ""
        return DriveTree("\n".join(_tree_lines(root)), total, cut, hint)

    def overview(self, *, is_model: bool = False) -> DriveTree:
        """Every drive as a line."""
        found = self.list_drives(is_model=is_model)
        hint = "ask again with drive set to one of these" if found else NOTHING
        lines = [f"{drive.drive}:/ ({counted(drive.items)})" for drive in found]
        return DriveTree("\n".join(lines), sum(drive.items for drive in found), (), hint)


def stored_path(path: str, drive: str = "") -> str:
    """The stored path of a reference, a URL, or a path on a drive (the drive itself when it is empty)."""
    text = path.strip()
    if text.startswith(WEB) and drive != "url":
        return parse_ref(route_url(text))
    if DRIVE.match(text) and not text.startswith(WEB):
        stored = parse_ref(text)
    elif not drive:
        hint = "give the drive as well, or a reference such as agent:/notes/a.md"
        raise BadInput(f"{path!r} names no drive", hint=hint, outcome="missing_drive")
    elif not is_ref(f"{drive}:/x"):
        hint = "use small letters, digits, - and _, as in agent"
        raise BadInput(f"{drive!r} cannot be a drive", hint=hint, outcome="invalid_arguments")
    else:
        stored = parse_ref(f"{drive}:/{text.lstrip('/')}")
    is_kept = scheme_of(stored) in AS_WRITTEN or stored.endswith("://")
    return stored if is_kept else stored.rstrip("/")


def is_id(text: str) -> bool:
    """Whether this has the form of an item's id."""
    parts = text.strip().split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(letter in HEXADECIMAL for part in parts for letter in part)


def line_count(body: str) -> int:
    """Lines as an editor counts them: a newline at the end begins no other line."""
    return body.count("\n") + (0 if body.endswith("\n") or not body else 1)


def counted(items: int) -> str:
    """A number of items in words."""
    return f"{items} item" if items == 1 else f"{items} items"


def formatted(size_bytes: int) -> str:
    """A size for people, in powers of 1024."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size, units = float(size_bytes), iter(("KB", "MB", "GB", "TB"))
    unit = "B"
    while size >= 1024 and unit != "TB":
        size, unit = size / 1024, next(units)
    return f"{size:.1f} {unit}"


def _cut_folders(node: _Node) -> Iterator[str]:
    if node.hidden or (node.child.items and not node.is_open):
        yield display(node.child.path)
    for child in node.children:
        yield from _cut_folders(child)


def _tree_lines(node: _Node) -> Iterator[str]:
    """The lines of a tree, each level indented by two."""
    margin = "  " * node.depth
    name = node.child.name
    name = name if len(name) <= MAX_NAME_CHARS or not node.depth else f"{name[: MAX_NAME_CHARS - 1]}…"
    is_shut = node.child.is_folder and node.child.items and not node.is_open
    yield f"{margin}{name}{f' ({counted(node.child.items)})' if is_shut else ''}"
    for child in node.children:
        yield from _tree_lines(child)
    if node.hidden:
        yield f"{margin}  … (+{node.hidden} more)"
