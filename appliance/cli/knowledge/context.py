"""The commands about drives: `owlbox context read`, `write`, `tree` and the rest, made from the tools for them.

What is added here: content from a pipe or a file, whole texts instead of pages.
"""

import argparse
import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

from appliance.console import terminal, tool_command
from appliance.console.terminal import say, say_json
from appliance.console.verbs import Noun, Verb, call, parameters, table, takes
from appliance.errors import BadInput, NotFound, TooLarge
from appliance.runtime.paths import Home
from appliance.text.references import as_typed, for_people

DRIVE = re.compile("[a-z][a-z0-9_-]*")
BINARY = 2_500_000  # bytes that fit into one call as base64; what is text may be as long as an entry
DEEPER = "there is more: name a folder, or give --max-depth or --items-per-dir"  # what a tool's hint is to people
DRIVE_NEXT = "owlbox context tree DRIVE shows one of them"


def _read_files(args: argparse.Namespace, home: Home) -> int:
    from appliance.cli.knowledge import context_add

    return context_add.add(args, home)


def _read_again(args: argparse.Namespace, home: Home) -> int:
    from appliance.cli.knowledge import context_add

    return context_add.refresh(args, home)


# -- commands ---------------------------------------------------------------------------------------


def call_below(args: argparse.Namespace, home: Home) -> int:
    """Call the tool for a folder; `context tree memory`: what has no slash is a drive."""
    given = parameters(args)
    path = args.folder or args.path
    if path:
        is_drive = not args.drive and DRIVE.fullmatch(path)
        given |= {"drive": path, "path": ""} if is_drive else {"path": path if args.drive else as_typed(path)}
    return call(args, home, args.verb, given)


def call_for_item(args: argparse.Namespace, home: Home) -> int:
    """Call the tool for items that are named as a person does: `notes/x.md` lies in box/, `/srv/a.txt` on the disk."""
    return call(args, home, args.verb, _parameters(args))


def read(args: argparse.Namespace, home: Home) -> int:
    """Print a text exactly as it is kept, however long; a terminal gets a line break after it."""
    given, parts, left = _parameters(args), [], args.limit
    while True:
        data = tool_command.ask_once(home, "context_read", given)["data"]
        parts.append(data["content"])
        if args.limit:
            left -= data["content"].count("\n") + 1
        if not data["next_offset"] or (args.limit and left <= 0):
            break
        given |= {"offset": data["next_offset"], "limit": left, "column": 1}
    text = "\n".join(parts)
    if args.json:
        return say_json({**data, "content": text, "offset": args.offset})
    is_open = sys.stdout.isatty() and not text.endswith("\n")
    sys.stdout.write(terminal.fitting(text, sys.stdout) + ("\n" if is_open else ""))
    sys.stdout.flush()
    return 0


def write(args: argparse.Namespace, home: Home) -> int:
    """Keep what was given as an argument, by a pipe or in a file; what is not UTF-8 text is kept as bytes."""
    given = parameters(args)
    if args.file and args.text is not None:
        raise BadInput("both a text and --file are given", hint="give one of them")
    data = Path(args.file).read_bytes() if args.file else _read_content(args.text)
    text = data if isinstance(data, str) else _as_text(data)
    if text is not None:
        given["content"] = text
    elif len(data) > BINARY:
        raise TooLarge(f"{len(data)} bytes that are not text, the limit is {BINARY}", hint="keep a smaller file")
    else:
        given["content_base64"] = base64.b64encode(data if isinstance(data, bytes) else b"").decode()
    return call(args, home, args.verb, given)


def edit(args: argparse.Namespace, home: Home) -> int:
    """Change some lines: one place as arguments, several as JSON, or exact text."""
    given = _parameters(args)
    patches: list[Any] = []
    if args.patches:
        try:
            patches = json.loads(args.patches)
        except ValueError as error:
            raise BadInput(f"--patches is not JSON: {error}", hint='[{"start_line": 2, "end_line": 3, "content": "new"}]') from None
    elif args.start is not None:
        if args.end is None:
            raise BadInput("the last line is missing", hint="owlbox context edit REF FIRST LAST TEXT; LAST 0 inserts before FIRST")
        content = _read_content(args.text)
        text = content if isinstance(content, str) else _as_text(content)
        if text is None:
            raise BadInput("what was read is not UTF-8 text", hint="only text can be edited in")
        patches = [{"start_line": args.start, "end_line": args.end, "content": text}]
    edits = [{"old": old, "new": new} for old, new in args.replace or ()]
    return call(args, home, args.verb, {**given, "patches": patches, "edits": edits})


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    given = parameters(args)
    for name in ("path", "src_path", "dst_path"):
        if given.get(name) and not getattr(args, name.replace("path", "drive"), ""):
            given[name] = as_typed(given[name])
    return given


# -- what is said -----------------------------------------------------------------------------------


def _tell_tree(args: argparse.Namespace, found: dict[str, Any]) -> str:
    told = DRIVE_NEXT if found["tree"] and found["hint"] else tool_command.as_commands(found["hint"])
    hint = DEEPER if found["truncated_dirs"] else told
    return "\n".join(part for part in (found["tree"], hint and f"({hint})") if part)


def _tell_items(args: argparse.Namespace, found: dict[str, Any]) -> Any:
    items = [{**item, "ref": for_people(item["ref"])} for item in found["items"]]
    return table(items, ITEMS, {}, "") if items else ""


def _tell_matches(args: argparse.Namespace, found: dict[str, Any]) -> str:
    if args.context:
        return ""  # the tool's own words have what stands around them
    if found["has_more"]:
        say(f"only the first {len(found['matches'])} matches: --max-results shows more", sys.stderr)
    return "\n".join(f"{for_people(match['ref'])}:{match['line']}: {match['text']}" for match in found["matches"])


def _tell_hits(args: argparse.Namespace, found: dict[str, Any]) -> str:
    if found["hits"] and found.get("note"):
        say(found["note"], sys.stderr)
    lines = []
    for hit in found["hits"]:
        title = f" ({hit['title']})" if hit["title"] else ""
        is_scored, ref = "score" in hit, for_people(hit["ref"])
        lines.append(f"{ref}{title} {hit['score']:.3f}" if is_scored else f"{ref}{title}")
        lines.append(f"  {hit['snippet'] if is_scored else ' '.join(hit['preview'].split())}")
    return "\n".join(lines)


# -- inside -----------------------------------------------------------------------------------------


def _read_content(given: str | None) -> str | bytes:
    """The content that was given as an argument, else what comes through standard input."""
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise BadInput("no content", hint="give it as an argument, by a pipe, or with --file PATH")
    return sys.stdin.buffer.read()


def _as_text(data: bytes) -> str | None:
    """Bytes as text, None for what is not UTF-8 text."""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _add_text(made: argparse.ArgumentParser) -> None:
    made.add_argument("text", nargs="?", default=None, help="the text; - or nothing reads standard input")
    made.add_argument("--file", default="", metavar="PATH", help="the content of this file instead")
    made.add_argument("--overwrite", action="store_const", const="overwrite", dest="on_conflict", help="replace what is there")


def _add_lines(made: argparse.ArgumentParser) -> None:
    made.add_argument("start", nargs="?", type=int, default=None, help="first line to change, from 1")
    made.add_argument("end", nargs="?", type=int, default=None, help="last line to change; 0 inserts before the first")
    made.add_argument("text", nargs="?", default=None, help='the new lines; "" deletes, - or nothing reads standard input')
    made.add_argument("--patches", default="", metavar="JSON", help="several at once: [{start_line, end_line, content}]")
    made.add_argument("--replace", nargs=2, action="append", metavar=("OLD", "NEW"), help="exact text")


def _add_folder(made: argparse.ArgumentParser) -> None:
    made.set_defaults(folder="")
    if made.prog.endswith("list"):
        made.add_argument("--path", dest="folder", default="", metavar="PATH", help="the same")


def _add_sources(made: argparse.ArgumentParser) -> None:
    made.add_argument("inputs", nargs="+", metavar="PATH|URL", help="a file, a folder with everything in it, or a page")
    made.add_argument(
        "--on-conflict",
        choices=["skip", "overwrite", "error"],
        default="skip",
        help="if it exists: skip it, overwrite it, or stop with an error",
    )
    made.add_argument("--hidden", action="store_true", help="include hidden files")
    made.add_argument("--no-ignore", action="store_true", help="include files that .gitignore leaves out")
    made.add_argument(
        "--prompt-addition", default="", metavar="TEXT", help="a hint for the agent that loads pages through MCP servers"
    )


def _add_refs(made: argparse.ArgumentParser) -> None:
    made.add_argument("refs", nargs="*", metavar="REF", help="an id, drive:/path, a folder, or a path on this disk")
    made.add_argument("--all", dest="is_all", action="store_true", help="everything that was added")


ITEMS = "reference=ref bytes=size_bytes changed=updated_ms title~"
SHALLOW = {"non_recursive": "not what lies in folders below"}
# fmt: off
NOUNS = (
    Noun("context", "files, notes and pages that Owlbox knows", (
        Verb("tree", "tool context_tree", "--drive path? --max-depth --items-per-dir", handler=call_below, adds=_add_folder,
             says=_tell_tree),
        Verb("list", "tool context_list", "--drive path? --non-recursive=recursive --limit --offset", handler=call_below,
             adds=_add_folder, helps=SHALLOW,
             says=_tell_items),
        Verb("read", "tool context_read", handler=read),
        Verb("info", "tool context_info", "path? --drive --non-recursive=recursive --passages --missing-ok", handler=call_for_item,
             helps=SHALLOW, code=lambda found: 0 if found["exists"] else NotFound.exit_code),
        Verb("find", "tool context_search", "query+ --limit", says=_tell_hits),
        Verb("grep", "tool context_grep", "pattern+ --drive --path --glob --kind --ignore-case --context --max-results",
             says=_tell_matches),
        Verb("mkdir", "tool context_write", "path --drive", text="make a folder; it may be there already", fixed={"folder": True}),
        Verb("write", "tool context_write", "path --drive --title --description --on-conflict", handler=write, adds=_add_text),
        Verb("edit", "tool context_edit", "path --drive", handler=edit, adds=_add_lines),
        Verb("delete", "tool context_delete", handler=call_for_item),
        Verb("copy", "tool context_copy", "src_path dst_path --src-drive --dst-drive --overwrite", handler=call_for_item),
        Verb("move", "tool context_copy", "src_path dst_path --src-drive --dst-drive --overwrite", handler=call_for_item,
             text="move an item, or a folder with everything in it", fixed={"move": True}),
        Verb("search", "tool search_semantic", "query+ --top-k --threshold --drive --path --fusion", says=_tell_hits,
             adds=takes("-k", dest="top_k", type=int, default=argparse.SUPPRESS, metavar="N", help="the same")),
        Verb("reembed", "tool context_reembed"),
        Verb("add", text="add files, folders and pages", handler=_read_files, adds=_add_sources),
        Verb("refresh", text="read added files and pages again", handler=_read_again, adds=_add_refs),
    )),
)
