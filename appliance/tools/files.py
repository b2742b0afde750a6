"""Tools for the files of a conversation: read_file, write_file, edit_file, list_dir, grep, find.

Each call is one small program in a sandbox of its own; nothing here opens a file. Paths are relative to the working folder.
"""

from typing import Annotated, Any

from appliance.agent.command_runs import Executions, written
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.clock import iso
from appliance.errors import BadInput
from appliance.records import Outcome
from appliance.runtime.signatures import Range
from appliance.sandbox.workspace import Workbench, WorkspaceJob

GROUP = "files"
SANDBOXED = Needs(profile="files")
Path = Annotated[str, Range(0, 4096), "relative to the working folder"]


@tool(group=GROUP, is_read_only=True, menu=(), needs=SANDBOXED)
def read_file(
    path: Path,
    offset: Annotated[int | None, "first line, from 1"] = None,
    limit: Annotated[int | None, "how many lines"] = None,
    *,
    workbench: Workbench,
    caller: Caller,
) -> Outcome:
    """Like cat: read a file of the working folder."""
    name = _require_text(path, "path")
    if (offset or 0) < 0 or (limit is not None and limit < 1):
        raise BadInput(f"offset {offset}, limit {limit}", hint="lines count from 1", outcome="invalid_arguments")
    done = workbench.touch(_build_job(caller, "read_file"), "read", name, offset=offset, limit=limit)
    text = done["text"]
    if done["has_more"]:
        text += f"\n[the file goes on: lines {done['first']} to {done['first'] + done['lines'] - 1} shown; use offset]"
    if not text:
        text = f"(no line {done['first']})" if done["size_bytes"] else "(empty file)"
    return Outcome(200, "ok", text, data=done)


@tool(group=GROUP, menu=(), needs=SANDBOXED)
def write_file(
    path: Path,
    content: Annotated[str, "the whole text"],
    *,
    executions: Executions,
    caller: Caller,
) -> Outcome:
    """Like tee: write a file of the working folder, in place of one that is there; folders are made."""
    name = _require_text(path, "path")
    return _file_outcome("write_file", name, executions.write(caller, "write_file", name, {"content": content}))


@tool(group=GROUP, menu=(), needs=SANDBOXED)
def edit_file(
    path: Path,
    old_text: Annotated[str, "text in the file, exactly as it stands there"],
    new_text: Annotated[str, "what takes its place"],
    *,
    executions: Executions,
    caller: Caller,
) -> Outcome:
    """Like sed: replace a text in a file, at every place where it stands."""
    name, old = _require_text(path, "path"), _require_text(old_text, "old_text")
    return _file_outcome("edit_file", name, executions.write(caller, "edit_file", name, {"old_text": old, "new_text": new_text}))


@tool(group=GROUP, is_read_only=True, menu=(), needs=SANDBOXED)
def list_dir(
    path: Annotated[str | None, "a folder, relative to the working folder"] = ".",
    brief: Annotated[bool, "only names: d for folders, f for files"] = False,
    *,
    workbench: Workbench,
    caller: Caller,
) -> Outcome:
    """Like ls -l: list a folder with types, sizes and times."""
    done = workbench.touch(_build_job(caller, "list_dir"), "list", path or ".")
    width = max((len(one["name"]) for one in done["entries"]), default=0)
    lines = [f"{one['type']}  {one['name']}" if brief else _file_line(one, min(width, 60)) for one in done["entries"]]
    return Outcome(200, "ok", _join_listing(lines, done["total"]), data=done)


@tool(group=GROUP, is_read_only=True, menu=(), needs=SANDBOXED)
def grep(
    pattern: Annotated[str, "a regular expression"],
    path: Annotated[str, "a file, or a folder with all that is below it"],
    ignore_case: bool = False,
    *,
    workbench: Workbench,
    caller: Caller,
) -> Outcome:
    """Like grep -rn: find the lines of files that match a regular expression."""
    wanted, name = _require_text(pattern, "pattern"), _require_text(path, "path")
    done = workbench.touch(_build_job(caller, "grep"), "grep", name, pattern=wanted, ignore_case=ignore_case)
    lines = [f"{one['path']}:{one['line']}: {one['text']}" for one in done["matches"]]
    if not lines:
        return Outcome(200, "no_results", f"No match for {wanted} in {name} ({done['files']} files looked at).", data=done)
    more = [f"[only the first {len(lines)} matches]"] if done["has_more"] else []
    return Outcome(200, "ok", "\n".join([*lines, *more]), data=done)


@tool(group=GROUP, is_read_only=True, menu=(), needs=SANDBOXED)
def find(
    path: Annotated[str, "a folder, relative to the working folder"],
    pattern: Annotated[str, "a glob over names such as *.py; with a slash over paths"],
    *,
    workbench: Workbench,
    caller: Caller,
) -> Outcome:
    """Like find: find files and folders by their names, in a folder and below it."""
    name, wanted = _require_text(path, "path"), _require_text(pattern, "pattern")
    done = workbench.touch(_build_job(caller, "find"), "find", name, pattern=wanted)
    if not done["total"]:
        return Outcome(200, "no_results", f"Nothing called {wanted} in {name}.", data=done)
    more = [f"[only the first {len(done['paths'])} of them]"] if len(done["paths"]) < done["total"] else []
    return Outcome(200, "ok", "\n".join([f"{done['total']} found", *done["paths"], *more]), data=done)


def _build_job(caller: Caller, name: str) -> WorkspaceJob:
    return WorkspaceJob(name, GROUP, caller.cancel, caller.session, caller.run, caller.terms, caller.deadline_s)


def _require_text(value: str, name: str) -> str:
    """A text that may not be empty."""
    if not value:
        raise BadInput(f"{name} is empty", hint=f"give {name}", outcome="invalid_arguments")
    return value


def _file_outcome(name: str, path: str, done: dict[str, Any] | Outcome) -> Outcome:
    return done if isinstance(done, Outcome) else Outcome(200, "ok", written(name, path, done), data=done)


def _file_line(one: dict[str, Any], width: int) -> str:
    arrow = f" -> {one['target']}" if one["target"] else ""
    changed = iso(1000 * one["changed_s"])[:16].replace("T", " ") if one["changed_s"] > 0 else ""
    size = "-" if one["type"] == "d" else str(one["size_bytes"])
    return f"{one['type']}  {one['name']:<{width}}  {size:>10}  {changed}{arrow}".rstrip()


def _join_listing(lines: list[str], total: int) -> str:
    more = [f"[{total - len(lines)} more]"] if total > len(lines) else []
    return "\n".join([*lines, *more]) or "(empty)"
