"""The commands `owlbox document`, to read and change the prompt documents of box/ through the core, and `owlbox capabilities`.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from appliance.cli.console.terminal import Table, say, show
from appliance.cli.console.tool_command import once, run_tool
from appliance.errors import BadInput
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
NAME = "such as USER, HEARTBEAT, house for house.md, users/ID/USER or roles/NAME/SOUL"


def add(command: Command) -> None:
    """Add the group."""
    root = command("document", choose, "what every conversation is told, and what the heartbeat looks after")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    command("list", list_documents, "the documents: when each is loaded, and whether the assistant may change it", known)
    command("view", view, "one document", known).add_argument("name", help=NAME)
    command("edit", edit, "change one in $VISUAL or $EDITOR", known).add_argument("name", help=NAME)
    write = command("write", write_given, "put a text in the place of one", known)
    write.add_argument("name", help=NAME)
    write.add_argument("file", nargs="?", default="-", help="the text; standard input without it")
    made = command("capabilities", refresh_capabilities, "write CAPABILITIES.md anew: what this installation can do")
    made.add_argument("--no-mcp", action="store_true", help="do not ask servers of tools")


def refresh_capabilities(args: argparse.Namespace, home: Home) -> int:
    """Have the document written, and say how many tools it speaks of."""
    return run_tool(args, home, "capabilities_refresh", {"include_mcp": not args.no_mcp})


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint="list, view NAME, edit NAME, or write NAME < FILE")


def list_documents(args: argparse.Namespace, home: Home) -> int:
    """A table of the documents."""
    found = once(home, "document.list", {})
    rows = [
        [one["name"], one["loading"], "yes" if one["may_modify"] else "", str(one["words"]) if one["words"] else "", one["problem"]]
        for one in found
    ]
    return show(args, found, Table(rows, ["document", "loaded", "assistant may change", "words", "problem"], ["problem"]))


def view(args: argparse.Namespace, home: Home) -> int:
    """The text."""
    found = once(home, "document.view", {"name": args.name})
    return show(args, found, found["text"].rstrip("\n") or f"{found['name']} has no text yet: owlbox document edit {found['name']}")


def write_given(args: argparse.Namespace, home: Home) -> int:
    """Write what was given."""
    try:
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise BadInput(f"{args.file}: {error.strerror}", hint="name a file that you may read") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{args.file} is not UTF-8 at byte {error.start}", hint="convert it first") from None
    return _write_document(args, home, text)


def edit(args: argparse.Namespace, home: Home) -> int:
    """Let the person's editor change a copy, and write that."""
    found = once(home, "document.view", {"name": args.name})
    name, before = found["name"], found["text"]
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "nano"
    with tempfile.TemporaryDirectory(prefix="owlbox-") as folder:  # private: mode 0700
        path = Path(folder, f"{name.rpartition('/')[2]}.md")
        path.write_text(before, encoding="utf-8")
        try:
            done = subprocess.run(["sh", "-c", f'{editor} "$1"', "sh", str(path)], check=False)
        except OSError as error:
            raise BadInput(f"{editor}: {error.strerror}", hint="set EDITOR") from None
        after = path.read_text(encoding="utf-8", errors="replace")
    if done.returncode:
        raise BadInput(f"{editor} ended with {done.returncode}: nothing is changed", hint="set EDITOR, or use document write")
    if after == before:
        say("nothing was changed")
        return 0
    return _write_document(args, home, after)


def _write_document(args: argparse.Namespace, home: Home, text: str) -> int:
    done = once(home, "document.write", {"name": args.name, "text": text})
    return show(args, done, [f"wrote {done['path']}; it counts from the next message"])
