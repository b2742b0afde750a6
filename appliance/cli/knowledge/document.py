"""The commands `owlbox document`, to read and change the prompt documents of box/ through the core, and `owlbox capabilities`."""

import argparse
from typing import Any

from appliance.console.inputs import edit_text, read_text
from appliance.console.terminal import say, show
from appliance.console.tool_command import once
from appliance.console.verbs import Noun, Verb, takes
from appliance.runtime.paths import Home

NAME = "such as USER, HEARTBEAT, house for house.md, users/ID/USER or roles/NAME/SOUL"
WROTE = "wrote {path}; it counts from the next message"


def _tell_document(args: argparse.Namespace, found: dict[str, Any]) -> str:
    return found["text"].rstrip("\n") or f"{found['name']} has no text yet: owlbox document edit {found['name']}"


def edit(args: argparse.Namespace, home: Home) -> int:
    """Let the person's editor change a copy, and write that."""
    found = once(home, "document.view", {"name": args.name})
    after = edit_text(found["text"], f"{found['name'].rpartition('/')[2]}.md")
    if after == found["text"]:
        say("nothing was changed")
        return 0
    done = once(home, "document.write", {"name": args.name, "text": after})
    return show(args, done, [WROTE.format_map(done)])


# fmt: off
NOUNS = (
    Noun("document", "documents in every prompt, and HEARTBEAT.md", (
        Verb("list", "document.list", text="list documents: when each is loaded, and whether the assistant may change it",
             rows="document=name loaded=loading assistant_may_change=may_modify words problem~",
             cells={"words": lambda one: str(one["words"] or "")}),
        Verb("view", "document.view", text="show one document", says=_tell_document, helps={"name": NAME}),
        Verb("edit", text="edit a document in $VISUAL or $EDITOR", handler=edit, adds=takes("name", help=NAME)),
        Verb("write", "document.write", "name file=text@-?", text="replace a document", reads={"file": read_text},
             says=WROTE, helps={"name": NAME, "file": "a file; default: standard input"}),
    )),
    Verb("capabilities", "tool capabilities_refresh", "--no-mcp=include_mcp",
         text="rewrite CAPABILITIES.md: what this installation can do", helps={"no_mcp": "do not ask MCP servers"}),
)
