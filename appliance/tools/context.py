"""Tools over drives and folders: the items that the owl keeps, by `drive:/path`.

A path may be a reference, a path beside a `drive`, or an item's id. A call within a run writes as the
model and sees what the model may see; any other is a person's. Nothing here touches a disk or a network:
what is on `disk:/` is a copy that somebody ingested.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from appliance.agent.toolbox import MAX_CHARS, Caller, tool
from appliance.clock import iso
from appliance.errors import BadInput, NotFound
from appliance.knowledge.drives import NOTHING, Drive, Drives, Item, Tree, counted, formatted, line_count
from appliance.knowledge.grep import Match, Needle, Preview, Texts, Where
from appliance.runtime.signatures import Range
from appliance.text.references import display, locator_of

PAGE_CHARS = MAX_CHARS - 300  # what a model reads at once; the rest is for the hints
READ_CHARS = 1_000_000  # what a program gets at once, unless a single line is longer
OPEN_LINES = 1_000_000_000

Path = Annotated[str, Range(1, 4096), "drive:/path, a path beside drive, or an item's id"]
Pattern = Annotated[str, Range(1, 1000), "what to look for in each line"]
DriveName = Annotated[str, Range(0, 64), "the drive, when path does not name it"]


# -- what they return ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class DriveList:
    """The drives."""

    drives: tuple[Drive, ...]
    hint: str = ""

    def text(self) -> str:
        """One line a drive."""
        return "\n".join(f"{d.drive}:/ ({counted(d.items)})" for d in self.drives) or self.hint


@dataclass(frozen=True)
class DirSize:
    """How large something is."""

    ref: str
    bytes: int
    formatted: str
    items: int

    def text(self) -> str:
        """One line."""
        return f"{self.ref}: {self.formatted} ({self.bytes} bytes) in {counted(self.items)}"


@dataclass(frozen=True)
class Text:
    """Lines of an item from `offset` on, the first of them from `column` on; `next_offset` is 0 at the end."""

    ref: str
    content: str
    offset: int
    total_lines: int
    next_offset: int
    column: int = 1

    def text(self) -> str:
        """As much as a model reads at once, and how to go on."""
        if self.offset > max(self.total_lines, 1):
            return f"[nothing at line {self.offset}: {self.ref} has {self.total_lines} lines]"
        if not self.content and self.column > 1:
            return f"[line {self.offset} has fewer than {self.column} characters]"
        if len(self.content) <= PAGE_CHARS:
            return self.content + (f"\n[more lines: offset={self.next_offset}]" if self.next_offset else "")
        end = self.content.rfind("\n", 0, PAGE_CHARS)
        if end < 0:
            rest = f"column={self.column + PAGE_CHARS}"
            return f"{self.content[:PAGE_CHARS]}\n[line {self.offset} goes on: offset={self.offset}, {rest}]"
        following = self.offset + self.content.count("\n", 0, end) + 1
        return f"{self.content[:end]}\n[more lines: offset={following}, {self.total_lines} lines in all]"


@dataclass(frozen=True)
class Info:
    """Everything about an item but its content."""

    id: str
    ref: str
    title: str
    description: str
    mime: str
    is_textual: bool
    size_bytes: int
    lines: int
    source_url: str
    writer: str
    created_ms: int
    updated_ms: int
    indexed_ms: int | None

    def text(self) -> str:
        """One line a fact; facts that are not known are left out."""
        rows = [
            ("ref", self.ref),
            ("id", self.id),
            ("title", self.title),
            ("description", self.description),
            ("type", self.mime + ("" if self.is_textual else " (not text)")),
            ("size", f"{formatted(self.size_bytes)} ({self.size_bytes} bytes)"),
            ("lines", str(self.lines) if self.is_textual else ""),
            ("source", self.source_url),
            ("written by", self.writer),
            ("created", iso(self.created_ms)),
            ("updated", iso(self.updated_ms)),
            ("indexed", "" if self.indexed_ms is None else iso(self.indexed_ms)),
        ]
        return "\n".join(f"{name}: {value}" for name, value in rows if value)


@dataclass(frozen=True)
class Existence:
    """Whether something is there."""

    exists: bool
    ref: str
    is_folder: bool = False

    def text(self) -> str:
        """Yes or no."""
        return f"{'yes' if self.exists else 'no'}: {self.ref}{' (a folder)' if self.is_folder else ''}"


@dataclass(frozen=True)
class Lines:
    """How many lines a text has."""

    ref: str
    lines: int

    def text(self) -> str:
        """The number and the item."""
        return f"{self.lines} {self.ref}"


@dataclass(frozen=True)
class Items:
    """Items by reference."""

    items: tuple[Item, ...]
    total: int

    def text(self) -> str:
        """One line an item."""
        lines = [
            f"{i.ref}{f' ({i.title})' if i.title else ''} {'folder' if i.is_folder else formatted(i.size_bytes)}"
            for i in self.items
        ]
        more = f"\n[{len(self.items)} of {self.total} shown]" if self.total > len(self.items) else ""
        return ("\n".join(lines) or "No items.") + more


@dataclass(frozen=True)
class Previews:
    """What a search found, newest first."""

    query: str
    hits: tuple[Preview, ...]

    def text(self) -> str:
        """Each item with the beginning of its text, or with what stands around the words."""
        room = PAGE_CHARS // max(len(self.hits), 1)
        parts = []
        for hit in self.hits:
            head = f"{hit.ref}{f' ({hit.title})' if hit.title else ''}"
            parts.append(f"{head}\n  {' '.join(hit.preview.split())[: max(80, room - len(head) - 8)]}")
        return "\n".join(parts) or f"Nothing holds {self.query!r}."


@dataclass(frozen=True)
class Matches:
    """Lines that match a pattern."""

    pattern: str
    matches: tuple[Match, ...]
    has_more: bool

    def text(self) -> str:
        """`ref:line: text`, lines around it with dashes."""
        rows = []
        for m in self.matches:
            rows += [f"{m.ref}-{m.line - len(m.before) + n}- {line}" for n, line in enumerate(m.before)]
            rows.append(f"{m.ref}:{m.line}: {m.text}")
            rows += [f"{m.ref}-{m.line + n}- {line}" for n, line in enumerate(m.after, 1)]
            if m.before or m.after:
                rows.append("--")
        more = [f"[only the first {len(self.matches)} matches: narrow path, glob or pattern]"] if self.has_more else []
        return "\n".join(rows + more) or f"No line matches {self.pattern!r}."


# -- looking ------------------------------------------------------------------------------------------


@tool(group="context", command="context drives", is_read_only=True, menu=())
def context_list_drives(*, drives: Drives, caller: Caller) -> DriveList:
    """Like df: list the drives that items are kept on, with how many are on each."""
    found = tuple(drives.listing(is_model=bool(caller.run)))
    return DriveList(found, "" if found else NOTHING)


@tool(group="context", command="context tree", is_read_only=True, menu=())
def context_tree(
    drive: Annotated[str, Range(0, 64), "the drive; all drives are listed without one"] = "",
    path: Annotated[str, Range(0, 4096), "the folder, else the whole drive"] = "",
    max_depth: Annotated[int, Range(1, 50), "how many levels"] = 10,
    items_per_dir: Annotated[int, Range(1, 200), "how many things of each folder"] = 15,
    *,
    drives: Drives,
    caller: Caller,
) -> Tree:
    """Like tree: show folders and items of a drive as an indented tree."""
    if not drive and path in ("", "/"):
        return drives.overview(is_model=bool(caller.run))
    stored, found = drives.find(path, drive, is_model=bool(caller.run))
    if drives.is_folder(stored) or not locator_of(stored):
        return drives.tree(stored, max_depth=max_depth, items_per_dir=items_per_dir)
    if found is None:
        raise drives.missing(stored, "folder")
    return Tree(display(stored), 1, (), "it is an item, not a folder: context_read shows it")


@tool(group="context", command="context size", is_read_only=True, menu=())
def context_dir_size(
    drive: Annotated[str, Range(0, 64), "the drive, when path does not name it"] = "",
    path: Annotated[str, Range(0, 4096), "the folder, else the whole drive"] = "",
    recursive: Annotated[bool, "what lies in folders below"] = True,
    *,
    drives: Drives,
    caller: Caller,
) -> DirSize:
    """Like du: how many bytes a folder, a drive or an item takes."""
    stored, found = drives.find(path, drive, is_model=bool(caller.run))
    size = drives.size(stored, is_recursive=recursive)
    if not size.items and found is None and locator_of(stored) and not drives.is_folder(stored):
        raise drives.missing(stored, "folder")
    return DirSize(display(stored), size.bytes, formatted(size.bytes), size.items)


@tool(group="context", command="context list", is_read_only=True, menu=())
def context_list(
    drive: Annotated[str, Range(0, 64), "only this drive"] = "",
    path: Annotated[str, Range(0, 4096), "only this folder"] = "",
    recursive: Annotated[bool, "what lies in folders below"] = True,
    limit: Annotated[int, Range(1, 1000), "how many to show"] = 100,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    *,
    drives: Drives,
    caller: Caller,
) -> Items:
    """Like ls: list items by reference."""
    folder, entry = ("", None) if not drive and path in ("", "/") else drives.find(path, drive, is_model=bool(caller.run))
    found, total = drives.items(folder, is_recursive=recursive, limit=limit, offset=offset, is_model=bool(caller.run))
    if not total and folder and entry is None and locator_of(folder) and not drives.is_folder(folder):
        raise drives.missing(folder, "folder")
    return Items(tuple(found), total)


@tool(group="context", command="context read", is_read_only=True, menu=())
def context_read(
    path: Path,
    drive: DriveName = "",
    offset: Annotated[int, Range(1, OPEN_LINES), "first line to show, from 1"] = 1,
    limit: Annotated[int, Range(0, OPEN_LINES), "how many lines, 0 for all"] = 0,
    column: Annotated[int, Range(1, 100_000_000), "first character of the first line, to read a long line on"] = 1,
    *,
    drives: Drives,
    caller: Caller,
) -> Text:
    """Like cat: read the text of an item, or some lines of it."""
    found = drives.text(path, drive, is_model=bool(caller.run))
    lines = found.body.split("\n")
    wanted = lines[offset - 1 : offset - 1 + limit] if limit else lines[offset - 1 :]
    wanted[:1] = [line[column - 1 :] for line in wanted[:1]]
    size = 0
    for count, line in enumerate(wanted):
        size += len(line) + 1
        if size > READ_CHARS and count:
            wanted = wanted[:count]
            break
    following = offset + len(wanted)
    total = line_count(found.body)
    # A final newline belongs to the whole text, so the empty line after it is a page of its own there.
    has_more = bool(wanted) and following <= (total if limit else len(lines))
    return Text(display(found.path), "\n".join(wanted), offset, total, following if has_more else 0, column)


@tool(group="context", command="context info", is_read_only=True, menu=())
def context_info(path: Path, drive: DriveName = "", *, drives: Drives, caller: Caller) -> Info:
    """Like stat: what is known about an item: id, title, type, size, lines, times."""
    e = drives.item(path, drive, is_model=bool(caller.run))
    return Info(
        id=e.uid,
        ref=display(e.path),
        title=e.title,
        description=e.description,
        mime=e.mime,
        is_textual=e.is_textual and not e.is_folder,
        size_bytes=drives.bytes_of(e),
        lines=line_count(e.body),
        source_url=e.source_url,
        writer=e.writer,
        created_ms=e.created_ms,
        updated_ms=e.updated_ms,
        indexed_ms=e.indexed_ms,
    )


@tool(group="context", command="context exists", is_read_only=True, menu=())
def context_exists(path: Path, drive: DriveName = "", *, drives: Drives, caller: Caller) -> Existence:
    """Like test -e: whether an item or folder is there."""
    try:
        stored, found = drives.find(path, drive, is_model=bool(caller.run))
    except NotFound:
        return Existence(False, path)
    is_folder = drives.is_folder(stored) if found is None else found.is_folder
    return Existence(found is not None or is_folder, display(stored), is_folder)


@tool(group="context", command="context lines", is_read_only=True, menu=())
def context_count_lines(path: Path, drive: DriveName = "", *, drives: Drives, caller: Caller) -> Lines:
    """Like wc -l: how many lines a text has."""
    found = drives.text(path, drive, is_model=bool(caller.run))
    return Lines(display(found.path), line_count(found.body))


# -- finding ------------------------------------------------------------------------------------------


@tool(group="context", command="context find", is_read_only=True, menu=())
def context_search(
    query: Annotated[str, Range(1, 1000), "letters to look for, in whatever case"],
    limit: Annotated[int, Range(1, 200), "how many to show"] = 20,
    *,
    texts: Texts,
    caller: Caller,
) -> Previews:
    """Find items whose title or text holds some letters, newest first."""
    if not query.strip():
        raise BadInput("the query is blank", hint="give letters to look for", outcome="invalid_arguments")
    return Previews(query, tuple(texts.search(query, limit=limit, is_model=bool(caller.run), stop=caller.cancel.is_set)))


@tool(group="context", command="context grep", is_read_only=True, menu=())
def context_grep(
    pattern: Pattern,
    drive: Annotated[str, Range(0, 64), "only this drive"] = "",
    path: Annotated[str, Range(0, 4096), "only this folder or item"] = "",
    glob: Annotated[str, Range(0, 500), "only items with such a name, as *.md"] = "",
    kind: Annotated[Literal["regex", "glob", "literal"], "what the pattern is"] = "regex",
    ignore_case: Annotated[bool, "large and small letters are the same"] = False,
    context: Annotated[int, Range(0, 20), "how many lines around each match"] = 0,
    max_results: Annotated[int, Range(1, 1000), "how many matches"] = 100,
    *,
    drives: Drives,
    texts: Texts,
    caller: Caller,
) -> Matches:
    """Like grep -rn: lines of items that match a regular expression, with their numbers."""
    folder = ""
    if drive or path:
        try:
            folder, _ = drives.find(path, drive, is_model=bool(caller.run))
        except BadInput as error:
            raise BadInput(error.message, hint=error.hint, outcome="invalid_arguments") from None
    where = Where(folder, glob, context, max_results, bool(caller.run))
    found = texts.grep(Needle(pattern, kind, is_any_case=ignore_case), where, caller.cancel.is_set)
    return Matches(pattern, tuple(found[:max_results]), len(found) > max_results)


@tool(group="context", is_read_only=True, menu=())
def search_grep(
    pattern: Pattern,
    drive: Annotated[str, Range(0, 64), "only this drive"] = "",
    path: Annotated[str, Range(0, 4096), "only this folder or item"] = "",
    glob: Annotated[str, Range(0, 500), "only items with such a name, as *.md"] = "",
    ignore_case: Annotated[bool, "large and small letters are the same"] = False,
    context: Annotated[int, Range(0, 20), "how many lines around each match"] = 0,
    max_results: Annotated[int, Range(1, 1000), "how many matches"] = 100,
    *,
    drives: Drives,
    texts: Texts,
    caller: Caller,
) -> Matches:
    """Like grep -rn: the same as context_grep."""
    more = (ignore_case, context, max_results)
    return context_grep(pattern, drive, path, glob, "regex", *more, drives=drives, texts=texts, caller=caller)
