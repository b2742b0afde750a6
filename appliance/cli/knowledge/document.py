"""The commands `owlbox document`, to read and change the prompt documents of box/ through the core, and `owlbox capabilities`."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from appliance.console.terminal import say, show
from appliance.console.tool_command import once
from appliance.console.verbs import Noun, Verb
from appliance.errors import BadInput
from appliance.runtime.paths import Home

NAME = "such as USER, HEARTBEAT, house for house.md, users/ID/USER or roles/NAME/SOUL"
WROTE = "wrote {path}; it counts from the next message"


def _tell_document(args: argparse.Namespace, found: dict[str, Any]) -> str:
    return found["text"].rstrip("\n") or f"{found['name']} has no text yet: owlbox document edit {found['name']}"


def _read_file(path: str) -> str:
    """The text of a file, or of standard input."""
    try:
        return (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode("utf-8")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", hint="name a file that you may read") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 at byte {error.start}", hint="convert it first") from None


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
    done = once(home, "document.write", {"name": args.name, "text": after})
    return show(args, done, [WROTE.format_map(done)])


def _add_name(made: argparse.ArgumentParser) -> None:
    made.add_argument("name", help=NAME)


# fmt: off
NOUNS = (
    Noun("document", "documents in every prompt, and HEARTBEAT.md", (
        Verb("list", "document.list", text="list documents: when each is loaded, and whether the assistant may change it",
             rows="document=name loaded=loading assistant_may_change=may_modify words problem~",
             cells={"words": lambda one: str(one["words"] or "")}),
        Verb("view", "document.view", text="show one document", says=_tell_document, helps={"name": NAME}),
        Verb("edit", text="edit a document in $VISUAL or $EDITOR", handler=edit, adds=_add_name),
        Verb("write", "document.write", "name file=text@-?", text="replace a document", reads={"file": _read_file},
             says=WROTE, helps={"name": NAME, "file": "a file; default: standard input"}),
    )),
    Verb("capabilities", "tool capabilities_refresh", "--no-mcp=include_mcp",
         text="rewrite CAPABILITIES.md: what this installation can do", helps={"no_mcp": "do not ask MCP servers"}),
)
