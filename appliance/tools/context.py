"""Tools over drives and folders: the items that the assistant keeps, by `drive:/path`.

A path may be a reference, a path beside a `drive`, or an item's id. A call within a run writes as the
model and sees what the model may see; any other is a person's. Nothing here touches a disk or a network:
what is on `disk:/` is a copy that somebody ingested.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, TypedDict

from msgspec import Struct

from appliance.agent.tool_results import MAX_CHARS, Reply
from appliance.agent.toolbox import Caller, tool
from appliance.clock import iso
from appliance.errors import BadInput, NotFound
from appliance.knowledge.drives import DriveItem, Drives, DriveSize, DriveTree, counted, formatted, line_count
from appliance.knowledge.entries import Entry
from appliance.knowledge.grep import GrepMatch, GrepPreview, GrepScope, Needle, Texts
from appliance.knowledge.search import Search
from appliance.runtime.signatures import Range
from appliance.text.references import display, locator_of

PAGE_CHARS = MAX_CHARS - 300  # what a model reads at once; the rest is for the hints
READ_CHARS = 1_000_000  # what a program gets at once, unless a single line is longer
OPEN_LINES = 1_000_000_000
SAME = ("title", "description", "mime", "source_url", "writer", "created_ms", "updated_ms", "indexed_ms")

Path = Annotated[str, Range(1, 4096), "drive:/path, a path beside drive, or an item's id"]
Pattern = Annotated[str, Range(1, 1000), "what to look for in each line"]
DriveName = Annotated[str, Range(0, 64), "the drive, when path does not name it"]


# -- data of their results ------------------------------------------------------------------------------


class Text(TypedDict):
    """Lines of an item from `offset` on, the first of them from `column` on; `next_offset` is 0 at the end."""

    ref: str
    content: str
    offset: int
    total_lines: int
    next_offset: int
    column: int


class Passage(TypedDict):
    number: int
    first_line: int
    last_line: int
    words: int
    preview: str
    heading: str


class Info(Struct, frozen=True, kw_only=True):
    """What is known about an item or a folder; `items` lie at or below it, `passages` are those of its text in the index."""

    ref: str
    exists: bool = True
    is_folder: bool = False
    id: str = ""
    title: str = ""
    description: str = ""
    mime: str = ""
    is_textual: bool = False
    size_bytes: int = 0
    formatted: str = ""
    items: int = 0
    lines: int = 0
    source_url: str = ""
    writer: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    indexed_ms: int | None = None
    passages: tuple[Passage, ...] = ()
    note: str = ""


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
def context_info(
    path: Annotated[str, Range(0, 4096), "drive:/path, a path beside drive, or an item's id; the whole drive without one"] = "",
    drive: DriveName = "",
    recursive: Annotated[bool, "with what lies in folders below a folder"] = True,
    passages: Annotated[bool, "also the passages under which search knows the item"] = False,
    missing_ok: Annotated[bool, "it is no error when nothing is there"] = False,
    *,
    drives: Drives,
    finder: Search,
    caller: Caller,
) -> Reply[Info]:
    """Like stat: what is known about an item or a folder: whether it is there, id, title, type, size, lines, times."""
    try:
        stored, e = drives.find(path, drive, is_model=bool(caller.run))
        is_folder = drives.is_folder(stored) if e is None else e.is_folder
        if e is None and not is_folder and locator_of(stored):
            raise drives.missing(stored)
    except NotFound:
        if not missing_ok:
            raise
        return Reply(Info(ref=path, exists=False), f"There is no {path}.")
    if e is None or is_folder:
        size = drives.size(stored, is_recursive=recursive)
    else:
        size = DriveSize(drives.bytes_of(e), 1)
    shown: tuple[Passage, ...] = ()
    note = ""
    if passages:
        finder.catch_up()
        found = drives.text(path, drive, is_model=bool(caller.run))
        shown = tuple(_passages_of(found, finder))
        note = f"{len(shown)} in the index, {finder.passages.vectors_of(found)} with a vector."
        note = note if shown else "It is not indexed: search does not find it."
    data = Info(
        ref=display(stored),
        is_folder=is_folder,
        id=e.uid if e else "",
        is_textual=e is not None and e.is_textual and not is_folder,
        size_bytes=size.bytes,
        formatted=formatted(size.bytes),
        items=size.items,
        lines=line_count(e.body) if e else 0,
        passages=shown,
        note=note,
        **({name: getattr(e, name) for name in SAME} if e else {}),
    )
    return Reply(data, "\n".join([*_fact_lines(data), *map(_passage_line, shown), *filter(None, [note])]))


def _fact_lines(data: Info) -> list[str]:
    """What is known, one fact a line, as far as it says something."""
    facts = {
        "ref": data.ref + (" (a folder)" if data.is_folder else ""),
        "id": data.id,
        "title": data.title,
        "description": data.description,
        "type": not data.is_folder and data.mime + ("" if data.is_textual else " (not text)"),
        "size": f"{data.formatted} ({data.size_bytes} bytes)" + (f" in {counted(data.items)}" if data.is_folder else ""),
        "lines": data.is_textual and str(data.lines),
        "source": data.source_url,
        "written by": data.writer,
        "created": data.created_ms and iso(data.created_ms),
        "updated": data.updated_ms and iso(data.updated_ms),
        "indexed": data.indexed_ms is not None and iso(data.indexed_ms),
    }
    return [f"{name}: {fact}" for name, fact in facts.items() if fact]


def _passage_line(one: Passage) -> str:
    heading = f" [{one['heading']}]" if one["heading"] else ""
    return f"{one['number']}. lines {one['first_line']}-{one['last_line']}, {one['words']} words:{heading} {one['preview']}"


def _passages_of(found: Entry, finder: Search) -> Iterator[Passage]:
    """The passages under which search knows a text, with their lines."""
    for chunk in finder.passages.chunks_of(found):
        part = found.body[chunk.start : chunk.stop]
        first = found.body.count("\n", 0, chunk.start) + 1
        words = len("".join(c if c.isalnum() else " " for c in part).split())
        yield {
            "number": chunk.seq + 1,
            "first_line": first,
            "last_line": first + part.count("\n"),
            "words": words,
            "preview": " ".join(part[:200].split()),
            "heading": chunk.heading,
        }


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
