"""The commands about drives: `owlbox context read`, `write`, `tree` and the rest, made from the tools' signatures.

Each is one tool, called as `tool.call` whether a core runs or not, so a person has the words and the limits
of the model. What is added here: content from a pipe or a file, whole texts instead of pages, exit codes.
"""

import argparse
import base64
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from appliance.cli.console import terminal, tool_command
from appliance.cli.console.terminal import say, say_json
from appliance.errors import BadInput, NotFound, TooLarge
from appliance.runtime.paths import Home

ABOUT = "what Owlbox stores, as drives and folders"
PLACED = {"tree": "path", "size": "path", "list": "path"}  # arguments that need no option although they may be left out
DRIVE = re.compile("[a-z][a-z0-9_-]*")
MANY = ("query", "pattern")  # arguments of many words, so that nobody has to quote
BINARY = 2_500_000  # bytes that fit into one call as base64; what is text may be as long as an entry
DEEPER = "there is more: name a folder, or give --max-depth or --items-per-dir"  # what a tool's hint is to people
DRIVE_NEXT = "owlbox context tree DRIVE shows one of them"
Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the group with one command for every tool that names one in it."""
    root = command("context", call, ABOUT)
    root.set_defaults(tool="context_list_drives", fields=(), action="drives")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    for made in tool_command.tool_commands("context"):
        word = made.command.partition(" ")[2]
        fields = [f for f in made.options if (word, f.name) not in TAKEN]
        one = command(word, HANDLERS.get(word, call), made.description, known)
        one.set_defaults(tool=made.tool, fields=tuple(f.name for f in fields), action=word)
        one.set_defaults(**{f.name: f.default for f in made.options if (word, f.name) in TAKEN})
        for field in fields:
            tool_command.add_option(one, field, is_placed=PLACED.get(word) == field.name, many=MANY)
        for name, options in MORE.get(word, ()):
            one.add_argument(name, **options)
    _add_reading(command, known)


# Arguments that have a form of their own on the command line, and what stands for them.
TAKEN = {("write", "content"), ("write", "content_base64"), ("edit", "patches"), ("edit", "edits")}
MORE: dict[str, Sequence[tuple[str, dict[str, Any]]]] = {
    "write": (
        ("text", {"nargs": "?", "default": None, "help": "the text; - or nothing reads standard input"}),
        ("--file", {"default": "", "metavar": "PATH", "help": "the content of this file instead"}),
        ("--overwrite", {"action": "store_const", "const": "overwrite", "dest": "on_conflict", "help": "replace what is there"}),
    ),
    "list": (("--path", {"dest": "folder", "default": "", "metavar": "PATH", "help": "the same"}),),
    "search": (("-k", {"dest": "top_k", "type": int, "default": argparse.SUPPRESS, "metavar": "N", "help": "the same"}),),
    "edit": (
        ("start", {"nargs": "?", "type": int, "default": None, "help": "first line to change, from 1"}),
        ("end", {"nargs": "?", "type": int, "default": None, "help": "last line to change; 0 inserts before the first"}),
        ("text", {"nargs": "?", "default": None, "help": 'the new lines; "" deletes, - or nothing reads standard input'}),
        (
            "--patches",
            {"default": argparse.SUPPRESS, "metavar": "JSON", "help": "several at once: [{start_line, end_line, content}]"},
        ),
        ("--replace", {"nargs": 2, "action": "append", "metavar": ("OLD", "NEW"), "help": "exact text"}),
    ),
}


def _add_reading(command: Command, known: Any) -> None:
    """The two commands that read files; what they need is loaded when they run."""
    made = command("add", _read_files, "read files, folders and pages, and keep what they say", known)
    made.add_argument("inputs", nargs="+", metavar="PATH|URL", help="a file, a folder with everything in it, or a page")
    made.add_argument(
        "--on-conflict",
        choices=["skip", "overwrite", "error"],
        default="skip",
        help="what is kept already: leave it (skip), read it again, or do nothing at all",
    )
    made.add_argument("--hidden", action="store_true", help="hidden files of folders too")
    made.add_argument("--no-ignore", action="store_true", help="what .gitignore leaves out too")
    made.add_argument(
        "--prompt-addition", default="", metavar="TEXT", help="your words for the agent that loads pages through MCP servers"
    )
    made = command("refresh", _read_again, "read what was added again, and keep what has changed", known)
    made.add_argument("refs", nargs="*", metavar="REF", help="an id, drive:/path, a folder, or a path on this disk")
    made.add_argument("--all", dest="is_all", action="store_true", help="everything that was read from somewhere")


def _read_files(args: argparse.Namespace, home: Home) -> int:
    from appliance.cli.knowledge import context_add

    return context_add.add(args, home)


def _read_again(args: argparse.Namespace, home: Home) -> int:
    from appliance.cli.knowledge import context_add

    return context_add.refresh(args, home)


# -- commands ---------------------------------------------------------------------------------------


def call(args: argparse.Namespace, home: Home) -> int:
    """Call the tool with the arguments and print what it answers."""
    return _print_outcome(args, tool_command.ask_once(home, args.tool, _tool_arguments(args)))


def read(args: argparse.Namespace, home: Home) -> int:
    """Print a text exactly as it is kept, however long; a terminal gets a line break after it."""
    given, parts, left = _tool_arguments(args), [], args.limit
    while True:
        data = tool_command.ask_once(home, args.tool, given)["data"]
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
    given = _tool_arguments(args)
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
    return _print_outcome(args, tool_command.ask_once(home, args.tool, given))


def edit(args: argparse.Namespace, home: Home) -> int:
    """Change some lines: one place as arguments, several as JSON, or exact text."""
    given = _tool_arguments(args)
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
    return _print_outcome(args, tool_command.ask_once(home, args.tool, {**given, "patches": patches, "edits": edits}))


def exists(args: argparse.Namespace, home: Home) -> int:
    """Print whether it is there; the exit code says so too."""
    outcome = tool_command.ask_once(home, args.tool, _tool_arguments(args))
    _print_outcome(args, outcome)
    return 0 if outcome["data"]["exists"] else NotFound.exit_code


HANDLERS: dict[str, Callable[[argparse.Namespace, Home], int]] = {"read": read, "write": write, "edit": edit, "exists": exists}


# -- inside -----------------------------------------------------------------------------------------


def _tool_arguments(args: argparse.Namespace) -> dict[str, Any]:
    values = {name: getattr(args, name) for name in args.fields}
    values = {name: " ".join(value) if isinstance(value, list) else value for name, value in values.items()}
    if getattr(args, "folder", ""):
        values["path"] = args.folder
    path = values.get("path")
    if args.action in PLACED and path and not values.get("drive") and DRIVE.fullmatch(path):
        values.update(drive=path, path="")  # `context tree memory`: what has no slash is a drive
    return values


def _print_outcome(args: argparse.Namespace, outcome: dict[str, Any]) -> int:
    """What a tool answered: as data, or as text for people, which is not cut as the model's is."""
    data = outcome["data"]
    if args.json:
        say_json(data)
    elif args.action == "list" and data["items"]:
        from appliance.clock import local_time

        rows = [[i["ref"], str(i["size_bytes"]), local_time(i["updated_ms"])[:16], i["title"]] for i in data["items"]]
        terminal.table(rows, ["reference", "bytes", "changed", "title"], sys.stdout, cut=["title"])
    elif args.action == "tree":
        told = DRIVE_NEXT if data["tree"] and data["hint"] else tool_command.as_commands(data["hint"])
        hint = DEEPER if data["truncated_dirs"] else told
        say("\n".join(line for line in (data["tree"], hint and f"({hint})") if line))
    elif args.action == "grep" and data["matches"] and not args.context:
        say("\n".join(f"{m['ref']}:{m['line']}: {m['text']}" for m in data["matches"]))
        if data["has_more"]:
            say(f"only the first {len(data['matches'])} matches: --max-results shows more", sys.stderr)
    elif args.action == "search" and data["hits"]:
        say(
            "\n".join(
                f"{h['ref']}{h['title'] and ' ({})'.format(h['title'])} {h['score']:.3f}\n  {h['snippet']}" for h in data["hits"]
            )
        )
        if data["note"]:
            say(data["note"], sys.stderr)
    elif args.action == "find" and data["hits"]:
        say(
            "\n".join(
                f"{h['ref']}{h['title'] and ' ({})'.format(h['title'])}\n  {' '.join(h['preview'].split())}" for h in data["hits"]
            )
        )
    else:
        say(outcome["message"])
    return 0


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
