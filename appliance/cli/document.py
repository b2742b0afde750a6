"""The command `owlbox document`: read and change USER.md, HEARTBEAT.md and the other documents of box/ through the core.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from appliance.cli.console.terminal import say, show
from appliance.cli.console.tool_command import once
from appliance.errors import BadInput
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
NAME = "such as USER or HEARTBEAT, as `document list` shows it"


def add(command: Command) -> None:
    """Add the group."""
    root = command("document", choose, "what every conversation is told, and what the heartbeat looks after")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    command("list", list_documents, "the names of the documents", known)
    command("view", view, "one document", known).add_argument("name", help=NAME)
    command("edit", edit, "change one in $VISUAL or $EDITOR", known).add_argument("name", help=NAME)
    write = command("write", write_given, "put a text in the place of one", known)
    write.add_argument("name", help=NAME)
    write.add_argument("file", nargs="?", default="-", help="the text; standard input without it")


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint="list, view NAME, edit NAME, or write NAME < FILE")


def list_documents(args: argparse.Namespace, home: Home) -> int:
    """The names."""
    found = once(home, "document.list", {})
    return show(args, found, "\n".join(found))


def view(args: argparse.Namespace, home: Home) -> int:
    """The text."""
    found = once(home, "document.view", {"name": _document_name(args.name)})
    return show(args, found, found["text"].rstrip("\n"))


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
    name = _document_name(args.name)
    before = once(home, "document.view", {"name": name})["text"]
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "nano"
    with tempfile.TemporaryDirectory(prefix="owlbox-") as folder:  # private: mode 0700
        path = Path(folder, f"{name}.md")
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
    done = once(home, "document.write", {"name": _document_name(args.name), "text": text})
    return show(args, done, [f"wrote {done['path']}; it counts from the next message"])


def _document_name(given: str) -> str:
    """A document by its name or the name of its file."""
    return given.removesuffix(".md").upper()
