"""The commands about entries by their addresses: `owlbox entry`, made from the definitions of their methods."""

import argparse
import sys
from typing import Any

from appliance.console.inputs import read_object, read_text
from appliance.console.terminal import say
from appliance.console.tool_command import once
from appliance.console.verbs import Noun, Verb, call, parameters, takes
from appliance.errors import BadInput
from appliance.runtime.paths import Home
from appliance.text.invisible import escape_invisible

MAX_TEXT_BYTES = 2 * 1024 * 1024  # what an entry holds; `entries` has the word, and is not imported to start quickly


def _tell_view(args: argparse.Namespace, found: dict[str, Any]) -> str:
    if found["marks"]:
        step = f"owlbox entry trust {args.ref} {found['hash'][:16]}" if found["hash"] else "a look at all of it, and entry trust,"
        title = ": ".join(filter(None, (found["title"], found["description"])))
        marks = f"untrusted text is in it: {'; '.join(found['marks'])}; {step} takes the mark off"
        for line in (f"its title: {title}", marks):
            say(f"({escape_invisible(line, 'exact')})", sys.stderr)
    return "\n".join(found["lines"])


def _tell_trust(args: argparse.Namespace, taken: list[str]) -> str:
    return f"{args.ref} is yours now, not {'; '.join(taken)}" if taken else f"{args.ref} has no marks"


def _tell_done(args: argparse.Namespace, done: dict[str, Any]) -> str:
    return str(done["message"]).removesuffix("\n")  # the line is ended when it is printed


def change(args: argparse.Namespace, home: Home) -> int:
    """Do something to an entry; to more than the one that was named only with --yes."""
    if args.chosen == "set" or not args.preview:
        _require_yes(args, home, "changes" if args.chosen == "set" else "removes")
    return call(args, home, args.verb, parameters(args))


def _require_yes(args: argparse.Namespace, home: Home, what: str) -> None:
    """Refuse what would touch more than the one entry that was named, unless --yes was given."""
    if args.yes or not (args.wanted or any(letter in args.ref for letter in "*?[{!")):
        return
    params = {"ref": args.ref, "run": args.thread, "wanted": args.wanted, "is_preview": True}
    data = once(home, "entry.rm", params)["data"]
    found, count = data["paths"], data["count"]
    if found != [args.ref]:
        near = ", ".join(found[:3]) + (" and more" if len(found) > 3 else "")
        many = "1 entry" if count == 1 else f"{count} entries"
        hint = f"--yes {what} them, owlbox entry rm --preview lists them"
        raise BadInput(f"{args.ref} matches {many}: {near}", hint=hint)


def _read_body(text: str) -> str:
    """The text of an entry, `-` for standard input."""
    return read_text("-", MAX_TEXT_BYTES) if text == "-" else text


def _read_attributes(text: str) -> dict[str, Any]:
    return read_object(text, '{"tags": ["garden"]}')


def _tell_waiting(args: argparse.Namespace, found: list[dict[str, Any]]) -> list[str]:
    lines = []
    for one in found:
        lines.append(f"{one['action']} {one['subject']}")
        lines += [f"  held because of {one['because']}"] if one.get("because") else []
        lines.append(f"  {one['ref']} --thread {one['run']}")
    return [*lines, "(entry get REF --thread ID shows one; approve or reject decides)"] if found else ["nothing waits"]


LISTED = {"ref": "its reference, as `entry list` shows it"}
PATTERN = {"ref": "scheme://path, or a pattern with * or **"}
SET = ("ref text=body? --search --replace --literal=is_literal --title --description --mime --source-url --summary --attributes "
       "--expected-hash --visibility --wanted --thread=run")  # fmt: skip
WORDS = {
    **PATTERN,
    "text": "its text, or edits such as s/old/new/; - reads it from a pipe",
    "title": "what it is called",
    "description": "what it is, in a sentence",
    "mime": "its type, such as text/markdown",
    "source_url": "where it is from",
    "attributes": 'an object, such as {"tags": ["garden"]}',
}
# fmt: off
NOUNS = (
    Noun("entry", "entries: list, view, edit, decide about changes", (
        Verb("list", "entry.list", "prefix? --limit --offset", text="entries by reference", empty="no entries",
             rows="reference=ref bytes=size_bytes changed=updated_ms title~"),
        Verb("view", "entry.view", text="the text of one entry", says=_tell_view,
             helps={"ref": "its reference, as `entry list` or `search` shows it"}),
        Verb("set", "entry.set", SET, text="write or edit an entry, or every entry of a pattern", handler=change, says=_tell_done,
             reads={"text": _read_body, "attributes": _read_attributes}, helps=WORDS,
             adds=takes("--yes", action="store_true", help="do it to everything that a pattern matches")),
        Verb("get", "entry.get", "ref --line --limit --persist --preview=is_preview --wanted --thread=run", says=_tell_done,
             text="the text of an entry; of a pattern a list of what matches", helps=PATTERN),
        Verb("rm", "entry.rm", "ref --preview=is_preview --wanted --thread=run", handler=change, says=_tell_done,
             text="remove an entry, or every entry of a pattern", helps=PATTERN,
             adds=takes("--yes", action="store_true", help="do it to everything that a pattern matches")),
        Verb("cp", "entry.cp", "ref target --visibility --thread=run", text="copy an entry", says=_tell_done,
             helps={**LISTED, "target": "the reference that it has then"}),
        Verb("mv", "entry.mv", "ref target --visibility --thread=run", text="move an entry", says=_tell_done,
             helps={**LISTED, "target": "the reference that it has then"}),
        Verb("waiting", "entry.waiting", "--limit --thread=run", says=_tell_waiting,
             text="changes that need your approval"),
        Verb("trust", "entry.trust", text="mark an entry that you have read as trusted",
             says=_tell_trust, helps={**LISTED, "hash": "of what you have read, as `entry view` shows it"}),
        Verb("update", "entry.update", "text --status --thread=run", text="report the progress of a thread's work", says=_tell_done,
             helps={"text": "the progress, in a sentence",
                    "status": "102 goes on, 200 done, 204 done without an answer, 422 cannot be done"}),
    )),
)
