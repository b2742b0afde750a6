"""Tools over drives and folders: the items that the assistant keeps, by `drive:/path`.

A path may be a reference, a path beside a `drive`, or an item's id. A call within a run writes as the
model and sees what the model may see; any other is a person's. Nothing here touches a disk or a network:
what is on `disk:/` is a copy that somebody ingested.
"""

from typing import Annotated, Literal, TypedDict

from appliance.agent.tool_results import MAX_CHARS, Reply
from appliance.agent.toolbox import Caller, tool
from appliance.clock import iso
from appliance.errors import BadInput, NotFound
from appliance.knowledge.drives import NOTHING, Drive, DriveItem, Drives, DriveTree, counted, formatted, line_count
from appliance.knowledge.grep import GrepMatch, GrepPreview, GrepScope, Needle, Texts
from appliance.runtime.signatures import Range
from appliance.text.references import display, locator_of

PAGE_CHARS = MAX_CHARS - 300  # what a model reads at once; the rest is for the hints
READ_CHARS = 1_000_000  # what a program gets at once, unless a single line is longer
OPEN_LINES = 1_000_000_000

Path = Annotated[str, Range(1, 4096), "drive:/path, a path beside drive, or an item's id"]
Pattern = Annotated[str, Range(1, 1000), "what to look for in each line"]
DriveName = Annotated[str, Range(0, 64), "the drive, when path does not name it"]


# -- data of their results ------------------------------------------------------------------------------


class DriveList(TypedDict):
    drives: tuple[Drive, ...]
    hint: str


class DirSize(TypedDict):
    ref: str
    bytes: int
    formatted: str
    items: int


class Text(TypedDict):
    """Lines of an item from `offset` on, the first of them from `column` on; `next_offset` is 0 at the end."""

    ref: str
    content: str
    offset: int
    total_lines: int
    next_offset: int
    column: int


class Info(TypedDict):
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


class Existence(TypedDict):
    exists: bool
    ref: str
    is_folder: bool


class LineCount(TypedDict):
    ref: str
    lines: int


class Items(TypedDict):
    items: tuple[DriveItem, ...]
    total: int


class Previews(TypedDict):
    query: str
    hits: tuple[GrepPreview, ...]


class Matches(TypedDict):
    pattern: str
    matches: tuple[GrepMatch, ...]
    has_more: bool


# -- looking ------------------------------------------------------------------------------------------


@tool(group="context", command="context drives", is_read_only=True, menu=())
def context_list_drives(*, drives: Drives, caller: Caller) -> Reply[DriveList]:
    """Like df: list the drives that items are kept on, with how many are on each."""
    found = tuple(drives.list_drives(is_model=bool(caller.run)))
    hint = "" if found else NOTHING
    text = "\n".join(f"{d.drive}:/ ({counted(d.items)})" for d in found) or hint
    return Reply({"drives": found, "hint": hint}, text)


@tool(group="context", command="context tree", is_read_only=True, menu=())
def context_tree(
    drive: Annotated[str, Range(0, 64), "the drive; all drives are listed without one"] = "",
    path: Annotated[str, Range(0, 4096), "the folder, else the whole drive"] = "",
    max_depth: Annotated[int, Range(1, 50), "how many levels"] = 10,
    items_per_dir: Annotated[int, Range(1, 200), "how many things of each folder"] = 15,
    *,
    drives: Drives,
    caller: Caller,
) -> DriveTree:
    """Like tree: show folders and items of a drive as an indented tree."""
    if not drive and path in ("", "/"):
        return drives.overview(is_model=bool(caller.run))
    stored, found = drives.find(path, drive, is_model=bool(caller.run))
    if drives.is_folder(stored) or not locator_of(stored):
        return drives.tree(stored, max_depth=max_depth, items_per_dir=items_per_dir)
    if found is None:
        raise drives.missing(stored, "folder")
    return DriveTree(display(stored), 1, (), "it is an item, not a folder: context_read shows it")


@tool(group="context", command="context size", is_read_only=True, menu=())
def context_dir_size(
    drive: Annotated[str, Range(0, 64), "the drive, when path does not name it"] = "",
    path: Annotated[str, Range(0, 4096), "the folder, else the whole drive"] = "",
    recursive: Annotated[bool, "what lies in folders below"] = True,
    *,
    drives: Drives,
    caller: Caller,
) -> Reply[DirSize]:
    """Like du: how many bytes a folder, a drive or an item takes."""
    stored, found = drives.find(path, drive, is_model=bool(caller.run))
    size = drives.size(stored, is_recursive=recursive)
    if not size.items and found is None and locator_of(stored) and not drives.is_folder(stored):
        raise drives.missing(stored, "folder")
    ref, shown = display(stored), formatted(size.bytes)
    text = f"{ref}: {shown} ({size.bytes} bytes) in {counted(size.items)}"
    return Reply({"ref": ref, "bytes": size.bytes, "formatted": shown, "items": size.items}, text)


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
) -> Reply[Items]:
    """Like ls: list items by reference."""
    folder, entry = ("", None) if not drive and path in ("", "/") else drives.find(path, drive, is_model=bool(caller.run))
    found, total = drives.items(folder, is_recursive=recursive, limit=limit, offset=offset, is_model=bool(caller.run))
    if not total and folder and entry is None and locator_of(folder) and not drives.is_folder(folder):
        raise drives.missing(folder, "folder")
    lines = [f"{i.ref}{f' ({i.title})' if i.title else ''} {'folder' if i.is_folder else formatted(i.size_bytes)}" for i in found]
    more = f"\n[{len(found)} of {total} shown]" if total > len(found) else ""
    return Reply({"items": tuple(found), "total": total}, ("\n".join(lines) or "No items.") + more)


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
) -> Reply[Text]:
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
    data: Text = {
        "ref": display(found.path),
        "content": "\n".join(wanted),
        "offset": offset,
        "total_lines": total,
        "next_offset": following if has_more else 0,
        "column": column,
    }
    return Reply(data, _render_page(data))


def _render_page(data: Text) -> str:
    """As much as a model reads at once, and how to go on."""
    content, offset, column = data["content"], data["offset"], data["column"]
    if offset > max(data["total_lines"], 1):
        return f"[nothing at line {offset}: {data['ref']} has {data['total_lines']} lines]"
    if not content and column > 1:
        return f"[line {offset} has fewer than {column} characters]"
    if len(content) <= PAGE_CHARS:
        return content + (f"\n[more lines: offset={data['next_offset']}]" if data["next_offset"] else "")
    end = content.rfind("\n", 0, PAGE_CHARS)
    if end < 0:
        return f"{content[:PAGE_CHARS]}\n[line {offset} goes on: offset={offset}, column={column + PAGE_CHARS}]"
    following = offset + content.count("\n", 0, end) + 1
    return f"{content[:end]}\n[more lines: offset={following}, {data['total_lines']} lines in all]"


@tool(group="context", command="context info", is_read_only=True, menu=())
def context_info(path: Path, drive: DriveName = "", *, drives: Drives, caller: Caller) -> Reply[Info]:
    """Like stat: what is known about an item: id, title, type, size, lines, times."""
    e = drives.item(path, drive, is_model=bool(caller.run))
    data: Info = {
        "id": e.uid,
        "ref": display(e.path),
        "title": e.title,
        "description": e.description,
        "mime": e.mime,
        "is_textual": e.is_textual and not e.is_folder,
        "size_bytes": drives.bytes_of(e),
        "lines": line_count(e.body),
        "source_url": e.source_url,
        "writer": e.writer,
        "created_ms": e.created_ms,
        "updated_ms": e.updated_ms,
        "indexed_ms": e.indexed_ms,
    }
    facts = {
        "ref": data["ref"],
        "id": e.uid,
        "title": e.title,
        "description": e.description,
        "type": e.mime + ("" if data["is_textual"] else " (not text)"),
        "size": f"{formatted(data['size_bytes'])} ({data['size_bytes']} bytes)",
        "lines": data["is_textual"] and str(data["lines"]),
        "source": e.source_url,
        "written by": e.writer,
        "created": iso(e.created_ms),
        "updated": iso(e.updated_ms),
        "indexed": e.indexed_ms is not None and iso(e.indexed_ms),
    }
    return Reply(data, "\n".join(f"{name}: {fact}" for name, fact in facts.items() if fact))


@tool(group="context", command="context exists", is_read_only=True, menu=())
def context_exists(path: Path, drive: DriveName = "", *, drives: Drives, caller: Caller) -> Reply[Existence]:
    """Like test -e: whether an item or folder is there."""
    try:
        stored, found = drives.find(path, drive, is_model=bool(caller.run))
    except NotFound:
        return Reply({"exists": False, "ref": path, "is_folder": False}, f"no: {path}")
    is_folder, ref = drives.is_folder(stored) if found is None else found.is_folder, display(stored)
    exists = found is not None or is_folder
    text = f"{'yes' if exists else 'no'}: {ref}{' (a folder)' if is_folder else ''}"
    return Reply({"exists": exists, "ref": ref, "is_folder": is_folder}, text)


@tool(group="context", command="context lines", is_read_only=True, menu=())
def context_count_lines(path: Path, drive: DriveName = "", *, drives: Drives, caller: Caller) -> Reply[LineCount]:
    """Like wc -l: how many lines a text has."""
    found = drives.text(path, drive, is_model=bool(caller.run))
    ref, lines = display(found.path), line_count(found.body)
    return Reply({"ref": ref, "lines": lines}, f"{lines} {ref}")


# -- finding ------------------------------------------------------------------------------------------


@tool(group="context", command="context find", is_read_only=True, menu=())
def context_search(
    query: Annotated[str, Range(1, 1000), "letters to look for, in whatever case"],
    limit: Annotated[int, Range(1, 200), "how many to show"] = 20,
    *,
    texts: Texts,
    caller: Caller,
) -> Reply[Previews]:
    """Find items whose title or text holds some letters, newest first."""
    if not query.strip():
        raise BadInput("the query is blank", hint="give letters to look for", outcome="invalid_arguments")
    hits = tuple(texts.search(query, limit=limit, is_model=bool(caller.run), stop=caller.cancel.is_set))
    room = PAGE_CHARS // max(len(hits), 1)
    parts = []
    for hit in hits:
        head = f"{hit.ref}{f' ({hit.title})' if hit.title else ''}"
        parts.append(f"{head}\n  {' '.join(hit.preview.split())[: max(80, room - len(head) - 8)]}")
    return Reply({"query": query, "hits": hits}, "\n".join(parts) or f"Nothing holds {query!r}.")


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
) -> Reply[Matches]:
    """Like grep -rn: lines of items that match a regular expression, with their numbers."""
    folder = ""
    if drive or path:
        try:
            folder, _ = drives.find(path, drive, is_model=bool(caller.run))
        except BadInput as error:
            raise BadInput(error.message, hint=error.hint, outcome="invalid_arguments") from None
    where = GrepScope(folder, glob, context, max_results, bool(caller.run))
    found = texts.grep(Needle(pattern, kind, is_any_case=ignore_case), where, caller.cancel.is_set)
    matches, has_more = tuple(found[:max_results]), len(found) > max_results
    rows = []
    for m in matches:
        rows += [f"{m.ref}-{m.line - len(m.before) + n}- {line}" for n, line in enumerate(m.before)]
        rows.append(f"{m.ref}:{m.line}: {m.text}")
        rows += [f"{m.ref}-{m.line + n}- {line}" for n, line in enumerate(m.after, 1)]
        rows += ["--"] if m.before or m.after else []
    rows += [f"[only the first {len(matches)} matches: narrow path, glob or pattern]"] if has_more else []
    data: Matches = {"pattern": pattern, "matches": matches, "has_more": has_more}
    return Reply(data, "\n".join(rows) or f"No line matches {pattern!r}.")
