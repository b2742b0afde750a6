"""What a command prints about things: threads, entries, skills, and any tool.

Each function takes the parsed arguments and the home and returns the exit code. Heavy parts are imported
inside, as in `cli`, which knows the words and options.
"""

import argparse
import json
import sys
from typing import Any

from appliance.cli.console import terminal
from appliance.cli.console.connect import connected
from appliance.cli.console.terminal import Table, say, say_json, say_line, show
from appliance.cli.console.tool_command import once
from appliance.errors import BadInput, NotFound, TooLarge
from appliance.runtime.paths import Home
from appliance.text.invisible import escape_invisible

MAX_TEXT_BYTES = 2 * 1024 * 1024  # what an entry holds; `entries` has the word, and is not imported to start quickly


def tool(args: argparse.Namespace, home: Home) -> int:
    arguments = {}
    for name in args.fields:
        value = getattr(args, name)
        arguments[name] = " ".join(value) if isinstance(value, list) else value
    outcome = once(home, "tool.call", {"name": args.tool, "arguments": arguments})
    if outcome["status"] >= 400:
        from appliance.errors import from_outcome

        if outcome["status"] == 400:
            raise BadInput(outcome["message"], hint=outcome["hint"])
        raise from_outcome(outcome["outcome"], outcome["message"], outcome["hint"])
    return show(args, outcome, outcome["message"])


def threads(args: argparse.Namespace, home: Home) -> int:
    params = {"type": getattr(args, "type", ""), "limit": getattr(args, "limit", 20), "offset": getattr(args, "offset", 0)}
    found = once(home, "thread.list", params)
    if args.json:
        say_json(found)
    elif not found:
        say("no threads")
    else:
        print_threads(found)
    return 0


def print_threads(found: list[dict[str, Any]]) -> None:
    """Threads as a table."""
    from appliance.clock import iso

    rows = [[t["id"], iso(t["created_ms"])[:16], t["kind"], terminal.state(t), t["title"]] for t in found]
    terminal.table(rows, ["id", "started", "type", "state", "title"], sys.stdout, cut=["title"])


def _print_event(event: dict[str, Any]) -> None:
    name = f"{event['role']} {event['tool']}".strip()
    mark = "" if event["status"] < 400 else f" [{event['outcome']}]"
    given = " " + json.dumps(event["input"], ensure_ascii=False) if event["kind"] == "tool_use" and event["input"] else ""
    say_line(f"{event['seq']:>4} {name} · {event['kind']}{mark}{given}")
    for line in event["content"].splitlines():
        say(f"     {line}")


def thread_view(args: argparse.Namespace, home: Home) -> int:

    only = [role.strip() for role in args.only.split(",") if role.strip()]
    with connected(home) as way:
        pages = terminal.pages(way, args.id, only=only)
        found = next(pages)
        if args.json:
            for page in pages:
                found["events"] += page["events"]
            return say_json({k: v for k, v in found.items() if k != "has_more"})
        thread = found["thread"]
        say_line(f"{thread['id']} {thread['kind']} {terminal.state(thread)}: {thread['title'] or '(untitled)'}")
        if origins := terminal.strangers(thread):
            say_line(f"it was shown texts from {origins}, which strangers may have written")
        for page in (found, *pages):
            for event in page["events"]:
                _print_event(event)
    return 0


def thread_delete(args: argparse.Namespace, home: Home) -> int:
    done = once(home, "thread.delete", {"id": args.id})
    return show(args, done, f"deleted thread {done['run']} with {done['events']} events")


def thread_follow(args: argparse.Namespace, home: Home) -> int:
    from appliance.clock import sleep_s

    if not 50 <= args.interval <= 60_000:
        raise BadInput(f"interval {args.interval} ms", hint="use 50 to 60000")
    with connected(home) as way:
        thread = args.id
        if not thread:
            open_ones = [t for t in way.call("thread.list", {"limit": 50}) if t["ended_ms"] is None]
            if not open_ones:
                raise NotFound("no thread is open", hint="owlbox thread list shows the ended ones")
            thread = open_ones[0]["id"]
        after = 0
        while True:
            for found in terminal.pages(way, thread, after):
                for event in found["events"]:
                    after = event["seq"]
                    if args.json:
                        say_json(event)
                    else:
                        _print_event(event)
            if found["thread"]["ended_ms"] is not None:
                return 0
            sleep_s(args.interval / 1000)


def entries(args: argparse.Namespace, home: Home) -> int:
    from appliance.clock import iso

    params = {"prefix": getattr(args, "prefix", ""), "limit": getattr(args, "limit", 100), "offset": getattr(args, "offset", 0)}
    found = once(home, "entry.list", params)
    rows = [[e["ref"], str(e["size_bytes"]), iso(e["updated_ms"])[:16], e["title"]] for e in found]
    return show(args, found, Table(rows, ["reference", "bytes", "changed", "title"], ["title"], empty="no entries"))


def entry_view(args: argparse.Namespace, home: Home) -> int:
    found = once(home, "entry.view", {"ref": args.ref, "line": args.line, "limit": args.limit})
    return show(args, found, "\n".join(found["lines"]))


def entry_set(args: argparse.Namespace, home: Home) -> int:
    names = ("search", "replace", "title", "description", "mime", "source_url", "summary", "visibility", "expected_hash")
    params = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.text is not None:
        params["body"] = _given_text() if args.text == "-" else args.text
    if args.attributes is not None:
        params["attributes"] = _parse_object(args.attributes)
    _require_yes(args, home, "changes")
    return _call_verb(args, home, "set", {**params, "wanted": args.wanted, "is_literal": args.is_literal})


def entry_get(args: argparse.Namespace, home: Home) -> int:
    if args.persist:
        return _call_verb(args, home, "get", {"persist": args.persist})
    return _call_verb(
        args, home, "get", {"wanted": args.wanted, "line": args.line, "limit": args.limit, "is_preview": args.preview}
    )


def entry_rm(args: argparse.Namespace, home: Home) -> int:
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


def entry_transfer(args: argparse.Namespace, home: Home) -> int:
    return _call_verb(args, home, args.verb, {"target": args.target, "visibility": args.visibility})


def entry_update(args: argparse.Namespace, home: Home) -> int:
    done = once(home, "entry.update", {"run": args.thread, "text": args.text, "status": args.status})
    return show(args, done, done["message"])


def entry_waiting(args: argparse.Namespace, home: Home) -> int:
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


def entry_decide(args: argparse.Namespace, home: Home) -> int:
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
