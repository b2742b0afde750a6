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
from appliance.cli.console.terminal import say, say_json, say_line, show
from appliance.cli.console.tool_command import as_commands, once
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

MAX_TEXT_BYTES = 2 * 1024 * 1024  # what an entry holds; `entries` has the word, and is not imported to start quickly


def tool(args: argparse.Namespace, home: Home) -> int:
    arguments = {}
    for name in args.fields:
        value = getattr(args, name)
        arguments[name] = " ".join(value) if isinstance(value, list) else value
    outcome = once(home, "tool.call", {"name": args.tool, "arguments": arguments})
    if outcome["status"] >= 400:
        from appliance.errors import from_outcome

        hint = as_commands(outcome["hint"])
        if outcome["status"] == 400:
            raise BadInput(outcome["message"], hint=hint)
        raise from_outcome(outcome["outcome"], outcome["message"], hint)
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
    from appliance.clock import local_time

    rows = [[t["id"], local_time(t["created_ms"])[:16], t["kind"], terminal.state(t), t["title"]] for t in found]
    terminal.table(rows, ["id", "started", "type", "state", "title"], sys.stdout, cut=["title"])


def _print_event(event: dict[str, Any]) -> None:
    name = f"{event['role']} {event['tool']}".strip()
    mark = "" if event["status"] < 400 else f" [{event['outcome']}]"
    given = " " + json.dumps(event["input"], ensure_ascii=False) if event["kind"] == "tool_use" and event["input"] else ""
    say_line(f"{event['seq']:>4} {name} · {event['kind']}{mark}{given}")
    for line in event["content"].splitlines():
        say(f"     {line}")


def thread_view(args: argparse.Namespace, home: Home) -> int:
    if args.follow:
        return thread_follow(args, home)

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
