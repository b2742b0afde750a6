"""Tools that change what is kept on drives: write, edit, delete, copy and move items, and make folders.

Beside `context`, which reads, with the same way of naming an item. A call within a run writes as the model,
any other as a person, and what a scheme allows is asked first. Nothing here touches a disk or a network.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal, TypedDict

from msgspec import Struct

from appliance.agent.dispatch import actor_of
from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, tool
from appliance.errors import BadInput, NotFound, PathConflict, Refused, TooLarge
from appliance.knowledge.drives import Drives, counted, formatted, line_count, stored_path
from appliance.knowledge.entries import PROJECT, By, Content, Entries
from appliance.knowledge.schemes import is_file
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.text.edits import LinePatch, exact, patch_lines
from appliance.text.references import display, is_under, locator_of

MAX_REFS = 20  # named after a removal
MAX_CARRIED = 5000  # items copied or moved at once

Path = Annotated[str, Range(1, 4096), "drive:/path, a path beside drive, or an item's id"]
DriveName = Annotated[str, Range(0, 64), "the drive, when path does not name it"]


class Saved(TypedDict):
    """An item or a folder as it is kept now, and the tree of its drive; `created` is false when it was there before."""

    ref: str
    id: str
    size_bytes: int
    tree: str
    verb: str
    created: bool


class EditedItem(TypedDict):
    ref: str
    id: str
    lines: int
    applied: int


class DeletedItems(TypedDict):
    """The removed items; only the first are named."""

    deleted: int
    refs: tuple[str, ...]


def _show_saved(ref: str, uid: str, size_bytes: int, path: str, drives: Drives, verb: str, is_new: bool = True) -> Reply[Saved]:
    """Programs get the drive as a tree, models the folder that the path is in: a tree of one level."""
    drive = path.removesuffix(locator_of(path))
    folder = path.rstrip("/").rpartition("/")[0] + "/"
    tree = drives.tree(drive).tree
    data: Saved = {"ref": ref, "id": uid, "size_bytes": size_bytes, "tree": tree, "verb": verb, "created": is_new}
    return Reply(data, f"{verb} {ref} ({formatted(size_bytes)})\n{drives.tree(folder, max_depth=1).tree}")


def _show_deleted(paths: Sequence[str]) -> Reply[DeletedItems]:
    refs = tuple(display(path) for path in paths[:MAX_REFS])
    more = [f"… (+{len(paths) - MAX_REFS} more)"] if len(paths) > MAX_REFS else []
    return Reply({"deleted": len(paths), "refs": refs}, "\n".join([f"Deleted {counted(len(paths))}", *refs, *more]))


def _may_write(paths: Sequence[str], drives: Drives, caller: Caller) -> None:
    for path in paths:
        drives.schemes.check_write(path, "model" if caller.run else "client")
        if caller.run and is_file(path):  # reached by its id
            raise Refused(f"{path} is a file: a change of it waits for a decision", hint="use set, rm, cp or mv on it")


def _may_make(path: str, drives: Drives, caller: Caller) -> None:
    """Refused for what the caller may not write, BadInput for a place that these tools do not keep things in."""
    _may_write([path], drives, caller)
    if drives.schemes.is_of_runs(path):
        hint = "write to agent:/, or use set in the thread"
        raise BadInput(f"{display(path)} belongs to a thread", hint=hint, outcome="invalid_arguments")


@contextmanager
def _translate_collision(hint: str) -> Iterator[None]:
    """Says what to do here about something that is there already."""
    try:
        yield
    except PathConflict as error:
        raise PathConflict(error.message.replace("://", ":/", 1), uid=error.uid, hint=hint) from None


# -- changing -----------------------------------------------------------------------------------------


@tool(group="context", command="context write", menu=())
def context_write(
    path: Path,
    content: Annotated[str, "the text"] = "",
    drive: Annotated[str, Range(1, 64), "the drive"] = "agent",
    title: Annotated[str, Range(0, 200), "a few words that name it"] = "",
    description: Annotated[str, Range(0, 2000), "what it is"] = "",
    content_base64: Annotated[str, "bytes instead of text, in base64"] = "",
    on_conflict: Annotated[Literal["error", "overwrite"], "when an item is there already"] = "error",
    folder: Annotated[bool, "make a folder instead, which may be there already"] = False,
    *,
    entries: Entries,
    drives: Drives,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Reply[Saved]:
    """Like tee: keep a text under a path; an item that is there is only replaced with on_conflict=overwrite."""
    stored = stored_path(path, drive)
    if not locator_of(stored):
        raise BadInput(f"{display(stored)} is a drive", hint="name an item on it", outcome="invalid_arguments")
    _may_make(stored, drives, caller)
    if folder and (content or content_base64):
        raise BadInput("a folder has no content", hint="leave out folder, or the content", outcome="invalid_arguments")
    if folder:
        with _translate_collision("choose another path"):
            made, is_new = entries.make_folder(stored, By("model" if caller.run else "client", caller.run))
        reply = _show_saved(display(made.path), made.uid, 0, made.path, drives, "Made" if is_new else "Already there:", is_new)
        return reply._replace(text=f"{reply.data['verb']} {reply.data['ref']}")
    blob = _decode_content(content_base64, content)
    verbs.writes.look_at(stored)
    there = entries.find(stored)
    name = title or (None if there else stored.rstrip("/").rpartition("/")[2][:200])
    wanted = Content(body=content if blob is None else None, blob=blob, title=name, description=description or None)
    with _translate_collision("set on_conflict to overwrite, or choose another path"), drives.together(caller.run):
        saved = verbs.writes.put(actor_of(runs, caller), stored, there, wanted, "set", scope=PROJECT, if_exists=on_conflict)
    return _show_saved(display(saved.path), saved.uid, drives.bytes_of(saved), saved.path, drives, "Wrote", there is None)


def _decode_content(text: str, content: str) -> bytes | None:
    """The bytes that were given in base64, None when there are none."""
    if not text:
        return None
    if content:
        raise BadInput("both content and content_base64 are given", hint="give one of them", outcome="invalid_arguments")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"content_base64 is not base64: {error}", hint="encode the bytes", outcome="invalid_arguments") from None


class Exact(Struct, frozen=True):
    """Text that becomes other text, as it is, wherever it stands."""

    old: str
    new: str


@tool(group="context", command="context edit", menu=())
def context_edit(
    path: Path,
    patches: Annotated[tuple[LinePatch, ...], "lines from 1, both included; end_line 0 inserts, empty content deletes"] = (),
    drive: DriveName = "",
    edits: Annotated[tuple[Exact, ...], "exact text to replace, made after patches"] = (),
    *,
    entries: Entries,
    drives: Drives,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Reply[EditedItem]:
    """Like patch: change some lines of an item; all line numbers mean the text as it was before."""
    found = drives.text(path, drive, is_model=bool(caller.run))
    if not patches and not edits:
        raise BadInput("no patch is given", hint="give patches, or edits with old and new", outcome="invalid_arguments")
    _may_write([found.path], drives, caller)
    body, count = patch_lines(found.body, patches), len(patches)
    for edit in edits:
        done = exact(body, edit.old, edit.new)
        body, count = done.text, count + done.count
    actor = actor_of(runs, caller)
    saved = verbs.writes.put(actor, found.path, found, Content(body=body), "edit", scope=PROJECT, expected_hash=found.hash)
    ref, lines = display(saved.path), line_count(saved.body)
    text = f"Edited {ref}: {count} change{'s' if count != 1 else ''}, {lines} line{'s' if lines != 1 else ''} now"
    return Reply({"ref": ref, "id": saved.uid, "lines": lines, "applied": count}, text)


@tool(group="context", command="context delete", menu=())
def context_delete(
    path: Path,
    drive: DriveName = "",
    recursive: Annotated[bool, "a folder with everything in it"] = False,
    force: Annotated[bool, "it is no error when nothing is there"] = False,
    *,
    entries: Entries,
    drives: Drives,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Reply[DeletedItems]:
    """Like rm: remove an item, or a folder with recursive=true."""
    try:
        stored, found = drives.find(path, drive, is_model=bool(caller.run))
    except NotFound:
        if force:
            return _show_deleted([])
        raise
    _may_write([stored], drives, caller)
    below = drives.count(stored)
    if below and not recursive and (found is None or found.is_folder):
        raise BadInput(
            f"{display(stored)} is a folder with {counted(below)}",
            hint="set recursive to remove them all",
            outcome="invalid_arguments",
        )
    removed: list[str] = []
    with drives.together(caller.run):
        for path in entries.under(stored) if recursive else [stored] if found is not None else []:
            verbs.writes.remove(actor_of(runs, caller), entries.get(path))
            removed.append(path)
    if not removed and not force:
        raise drives.missing(stored)
    return _show_deleted(removed)


@tool(group="context", command="context copy", menu=())
def context_copy(
    src_path: Path,
    dst_path: Annotated[str, Range(1, 4096), "where to, as drive:/path or beside dst_drive"],
    src_drive: DriveName = "",
    dst_drive: DriveName = "",
    overwrite: Annotated[bool, "replace what is there"] = False,
    move: Annotated[bool, "it is only there afterwards"] = False,
    *,
    entries: Entries,
    drives: Drives,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Reply[Saved]:
    """Like cp -r: copy or move an item, or a folder with everything in it, to another path or drive."""
    source = _find_source(src_path, src_drive, drives, caller)
    target = stored_path(dst_path, dst_drive)
    if move:
        _may_write([source], drives, caller)
    _may_make(target, drives, caller)
    verb: Literal["cp", "mv"] = "mv" if move else "cp"
    saved = _transfer_items(verb, source, target, overwrite, *(actor_of(runs, caller), entries, drives, verbs))
    return _show_saved(*saved, target, drives, "Moved to" if move else "Copied to")


def _find_source(path: str, drive: str, drives: Drives, caller: Caller) -> str:
    """The stored path of an item or folder that is there."""
    stored, found = drives.find(path, drive, is_model=bool(caller.run))
    if found is None and not drives.is_folder(stored):
        raise drives.missing(stored)
    return stored


def _transfer_items(
    verb: Literal["cp", "mv"],
    source: str,
    target: str,
    is_overwrite: bool,
    actor: Actor,
    entries: Entries,
    drives: Drives,
    verbs: Verbs,
) -> tuple[str, str, int]:
    """Copy or move an item, or all that is in a folder at once; reference, id ("" without one) and size of the result."""
    paths = drives.paths(source, MAX_CARRIED + 1) if drives.is_folder(source) else [source]
    if source in paths and not drives.is_folder_row(source):
        paths = [source]  # an item, though it may share its name with a folder
        if not locator_of(target):
            raise BadInput(f"{display(target)} is a drive", hint="name the item on it", outcome="invalid_arguments")
    elif is_under(target, source):
        raise BadInput(f"{display(target)} lies in {display(source)}", hint="choose another path", outcome="invalid_arguments")
    elif len(paths) > MAX_CARRIED:
        raise TooLarge(f"{display(source)} holds more than {counted(MAX_CARRIED)}", hint="take its folders one by one")
    hint = "set overwrite, or choose another path"
    verbs.writes.look_at(source, target)
    with _translate_collision(hint), drives.together(actor.run):
        if paths != [source] and not is_overwrite and drives.is_folder(target):
            raise PathConflict(f"{display(target)} is there already: a folder", hint=hint)
        moved = ((entries.get(path), _moved_path(path, source, target)) for path in paths)
        saved = [verbs.writes.carry(actor, verb, entry, to, is_overwrite=is_overwrite) for entry, to in moved]
    uid = saved[0].uid if saved[0].path == target else ""
    return display(target), uid, drives.size(target).bytes if paths != [source] else drives.bytes_of(saved[0])


def _moved_path(path: str, source: str, target: str) -> str:
    """Where a path under the source comes to lie under the target."""
    rest = path[len(source) :].removeprefix("/")
    return f"{target.rstrip('/') if locator_of(target) else target[:-1]}/{rest}" if rest else target
