"""The commands about entries by their addresses: `owlbox entry`.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import json
import sys
from typing import Any

from appliance.cli.console.connect import connected
from appliance.cli.console.parser import Command
from appliance.cli.console.terminal import Table, say, say_json, show
from appliance.cli.console.tool_command import once
from appliance.errors import BadInput, NotFound, TooLarge
from appliance.runtime.paths import Home
from appliance.text.invisible import escape_invisible

MAX_TEXT_BYTES = 2 * 1024 * 1024  # what an entry holds; `entries` has the word, and is not imported to start quickly


def add(command: Command) -> None:
    """Add the group."""
    root = command("entry", list_entries, "what Owlbox knows")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    listing = command("list", list_entries, "entries by reference", known)
    listing.add_argument("prefix", nargs="?", default="", help="only references that begin so, such as box://notes/")
    listing.add_argument("--limit", type=int, default=100)
    listing.add_argument("--offset", type=int, default=0)
    made = command("view", view, "the text of one entry", known)
    made.add_argument("ref", help="its reference, as `entry list` or `search` shows it")
    made.add_argument("--line", type=int, default=1, help="first line to show")
    made.add_argument("--limit", type=int, default=1000, help="how many lines")
    _add_verbs(command, known)


def _add_verbs(command: Command, known: Any) -> None:
    setting = command("set", write, "write or edit an entry, or every entry of a pattern", known)
    setting.add_argument("ref", help="scheme://path, or a pattern with * or **")
    setting.add_argument("text", nargs="?", help="its text, or edits such as s/old/new/; - reads it from a pipe")
    setting.add_argument("--search", metavar="TEXT", help="text to replace; an empty one appends")
    setting.add_argument("--replace", metavar="TEXT", help="what takes its place")
    setting.add_argument(
        "--literal", dest="is_literal", action="store_true", help="the text holds no edits, whatever it looks like"
    )
    for name, text in (
        ("title", "what it is called"),
        ("description", "what it is, in a sentence"),
        ("mime", "its type, such as text/markdown"),
        ("source-url", "where it is from"),
        ("summary", "its text in short"),
    ):
        setting.add_argument(f"--{name}", metavar="TEXT", help=text)
    setting.add_argument("--attributes", metavar="JSON", help='an object, such as {"tags": ["garden"]}')
    setting.add_argument("--expected-hash", metavar="HASH", help="only if it is still the one with this hash")
    setting.add_argument("--yes", action="store_true", help="change everything that a pattern matches")
    getting = command("get", get, "the text of an entry; of a pattern a list of what matches", known)
    getting.add_argument("--line", type=int, help="first line to show, a negative one counts from the end")
    getting.add_argument("--limit", type=int, help="how many lines")
    kinds = ["add", "readonly", "ignore", "none"]
    getting.add_argument("--persist", choices=kinds, help="how files of the workspace that fit are followed, in every thread")
    rm = command("rm", remove, "remove an entry, or every entry of a pattern", known)
    rm.add_argument("--yes", action="store_true", help="remove everything that a pattern matches")
    for made in (getting, rm):
        made.add_argument("ref", help="scheme://path, or a pattern with * or **")
        made.add_argument("--preview", action="store_true", help="only list what matches")
    for made in (setting, getting, rm):
        made.add_argument("--wanted", default="", metavar="PATTERN", help="only entries with this in their text")
    for name, text in (("cp", "copy an entry"), ("mv", "move an entry")):
        made = command(name, transfer, text, known)
        made.set_defaults(verb=name)
        made.add_argument("ref", help="its reference, as `entry list` shows it")
        made.add_argument("target", help="the reference that it has then")
    waiting = command("waiting", list_waiting, "what models want to change and may not without a word from you", known)
    waiting.add_argument("--limit", type=int, default=100)
    made = command("trust", trust, "take the marks of strangers off an entry that you have read", known)
    made.add_argument("ref", help="its reference, as `entry list` shows it")
    made.add_argument("hash", help="of what you have read, as `entry view` shows it")
    for name, text in (("accept", "let a change happen that waits"), ("reject", "refuse a change that waits")):
        made = command(name, decide, text, known)
        made.set_defaults(is_accepted=name == "accept")
        made.add_argument("ref", help="its reference, as `entry waiting` shows it")
        made.add_argument("--thread", default="", metavar="ID", help="the thread it waits in; needed when it is in several")
    waiting.add_argument("--thread", default="", metavar="ID", help="only in this thread")
    made = command("update", update, "note how a thread's work stands", known)
    made.add_argument("text", help="how it stands, in a sentence")
    codes = "102 goes on, 200 done, 204 done without an answer, 422 cannot be done"
    made.add_argument("--status", type=int, default=102, choices=[102, 200, 204, 422], help=codes)
    for name in ("set", "get", "rm", "cp", "mv", "update"):
        known.choices[name].add_argument("--thread", default="", metavar="ID", help="act in this thread: what it sees changes")
    for name in ("set", "cp", "mv"):
        words = ["visible", "summarized", "archived"]
        known.choices[name].add_argument("--visibility", choices=words, help="how the thread sees it")


def list_entries(args: argparse.Namespace, home: Home) -> int:
    from appliance.clock import local_time

    params = {"prefix": getattr(args, "prefix", ""), "limit": getattr(args, "limit", 100), "offset": getattr(args, "offset", 0)}
    found = once(home, "entry.list", params)
    rows = [[e["ref"], str(e["size_bytes"]), local_time(e["updated_ms"])[:16], e["title"]] for e in found]
    return show(args, found, Table(rows, ["reference", "bytes", "changed", "title"], ["title"], empty="no entries"))


def view(args: argparse.Namespace, home: Home) -> int:
    found = once(home, "entry.view", {"ref": args.ref, "line": args.line, "limit": args.limit})
    told = show(args, found, "\n".join(found["lines"]))
    if found["marks"] and not args.json:
        step = f"owlbox entry trust {args.ref} {found['hash'][:16]}" if found["hash"] else "a look at all of it, and entry trust,"
        title = ": ".join(filter(None, (found["title"], found["description"])))
        marks = f"texts of strangers are in it: {'; '.join(found['marks'])}; {step} takes the mark off"
        for line in (f"its title: {title}", marks):
            say(f"({escape_invisible(line, 'exact')})", sys.stderr)
    return told


def trust(args: argparse.Namespace, home: Home) -> int:
    taken = once(home, "entry.trust", {"ref": args.ref, "hash": args.hash})
    return show(args, taken, f"{args.ref} is yours now, not {'; '.join(taken)}" if taken else f"{args.ref} has no marks")


def write(args: argparse.Namespace, home: Home) -> int:
    names = ("search", "replace", "title", "description", "mime", "source_url", "summary", "visibility", "expected_hash")
    params = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.text is not None:
        params["body"] = _given_text() if args.text == "-" else args.text
    if args.attributes is not None:
        params["attributes"] = _parse_object(args.attributes)
    _require_yes(args, home, "changes")
    return _call_verb(args, home, "set", {**params, "wanted": args.wanted, "is_literal": args.is_literal})


def get(args: argparse.Namespace, home: Home) -> int:
    if args.persist:
        return _call_verb(args, home, "get", {"persist": args.persist})
    return _call_verb(
        args, home, "get", {"wanted": args.wanted, "line": args.line, "limit": args.limit, "is_preview": args.preview}
    )


def remove(args: argparse.Namespace, home: Home) -> int:
    if not args.preview:
        _require_yes(args, home, "removes")
    return _call_verb(args, home, "rm", {"wanted": args.wanted, "is_preview": args.preview})


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


def transfer(args: argparse.Namespace, home: Home) -> int:
    return _call_verb(args, home, args.verb, {"target": args.target, "visibility": args.visibility})


def update(args: argparse.Namespace, home: Home) -> int:
    done = once(home, "entry.update", {"run": args.thread, "text": args.text, "status": args.status})
    return show(args, done, done["message"])


def list_waiting(args: argparse.Namespace, home: Home) -> int:
    found = once(home, "entry.waiting", {"run": args.thread, "limit": args.limit})
    if args.json:
        say_json(found)
    elif not found:
        say("nothing waits")
    else:
        for one in found:
            say(" ".join(escape_invisible(one[name], "exact") for name in ("action", "subject")))
            if one.get("because"):
                say(f"  held because of {escape_invisible(one['because'], 'exact')}")
            say(f"  {escape_invisible(one['ref'], 'exact')} --thread {one['run']}")
        say("(entry get REF --thread ID shows one; entry accept or entry reject decides)")
    return 0


def decide(args: argparse.Namespace, home: Home) -> int:
    from appliance.text.references import parse_ref

    with connected(home) as way:
        if not args.thread:
            found, ref = way.call("entry.waiting", {"limit": 1000}), parse_ref(args.ref)
            threads = [one["run"] for one in found if one["ref"] == ref]
            if len(threads) > 1:
                raise BadInput(
                    f"{args.ref} waits in {len(threads)} threads: {', '.join(threads[:3])}", hint="name one with --thread"
                )
            if not threads:
                raise NotFound(f"nothing waits as {args.ref}", hint="owlbox entry waiting lists what does")
            args.thread = threads[0]
        done = way.call("entry.resolve", {"ref": args.ref, "run": args.thread, "is_accepted": args.is_accepted})
    return show(args, done, done["message"])


def _call_verb(args: argparse.Namespace, home: Home, verb: str, params: dict[str, Any]) -> int:
    done = once(home, f"entry.{verb}", {"ref": args.ref, "run": args.thread, **params})
    return show(args, done, done["message"].removesuffix("\n"))  # say ends the line


def _given_text() -> str:
    """Standard input as it is; what is not text, or more than an entry holds, is refused before it is sent."""
    data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise TooLarge(f"standard input has more than {MAX_TEXT_BYTES} bytes", hint="an entry holds no more: split it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is not UTF-8 at byte {error.start}", hint="convert it first") from None


def _parse_object(text: str) -> dict[str, Any]:
    """A JSON object in an argument."""
    hint = 'give an object such as {"tags": ["garden"]}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--attributes {text[:60]} is not JSON: {error}", hint=hint) from None
    if not isinstance(found, dict):
        raise BadInput(f"--attributes {text[:60]} is no JSON object", hint=hint)
    return found
