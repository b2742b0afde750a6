"""What a command prints about things: threads, entries, skills, models, and any tool.

Each function takes the parsed arguments and the home and returns the exit code. Heavy parts are imported
inside, as in `cli`, which knows the words and options.
"""

import argparse
import json
import os
import sys
from typing import Any

from appliance import terminal
from appliance.errors import BadInput, NotFound
from appliance.places import Home
from appliance.reach import reach
from appliance.terminal import say


def once(home: Home, method: str, params: dict[str, Any]) -> Any:
    """One call of the method table."""
    way = reach(home, os.environ)
    try:
        return way.call(method, params)
    finally:
        way.close()


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
    say(json.dumps(outcome, ensure_ascii=False) if args.json else outcome["message"])
    return 0


def threads(args: argparse.Namespace, home: Home) -> int:
    from appliance.clock import iso

    params = {"type": getattr(args, "type", ""), "limit": getattr(args, "limit", 20), "offset": getattr(args, "offset", 0)}
    found = once(home, "thread.list", params)
    if args.json:
        say(json.dumps(found, ensure_ascii=False))
    elif not found:
        say("no threads")
    else:
        rows = [[t["id"], iso(t["created_ms"])[:16], t["kind"], terminal.state(t), t["title"]] for t in found]
        terminal.table(rows, ["id", "started", "type", "state", "title"], sys.stdout)
    return 0


def _print_event(event: dict[str, Any]) -> None:
    name = f"{event['role']} {event['tool']}".strip()
    mark = "" if event["status"] < 400 else f" [{event['outcome']}]"
    given = " " + json.dumps(event["input"], ensure_ascii=False) if event["kind"] == "tool_use" and event["input"] else ""
    say(f"{event['seq']:>4} {name} · {event['kind']}{mark}{given}")
    for line in event["content"].splitlines():
        say(f"     {line}")


def thread_view(args: argparse.Namespace, home: Home) -> int:

    only = [role.strip() for role in args.only.split(",") if role.strip()]
    way = reach(home, os.environ)
    try:
        pages = terminal.pages(way, args.id, only=only)
        found = next(pages)
        if args.json:
            for page in pages:
                found["events"] += page["events"]
            say(json.dumps({k: v for k, v in found.items() if k != "has_more"}, ensure_ascii=False))
            return 0
        thread = found["thread"]
        say(f"{thread['id']} {thread['kind']} {terminal.state(thread)}: {thread['title'] or '(untitled)'}")
        for page in (found, *pages):
            for event in page["events"]:
                _print_event(event)
    finally:
        way.close()
    return 0


def thread_delete(args: argparse.Namespace, home: Home) -> int:
    done = once(home, "thread.delete", {"id": args.id})
    say(json.dumps(done) if args.json else f"deleted thread {done['run']} with {done['events']} events")
    return 0


def thread_follow(args: argparse.Namespace, home: Home) -> int:
    from appliance.clock import sleep_s

    if not 50 <= args.interval <= 60_000:
        raise BadInput(f"interval {args.interval} ms", hint="use 50 to 60000")
    way = reach(home, os.environ)
    try:
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
                        say(json.dumps(event, ensure_ascii=False))
                    else:
                        _print_event(event)
            if found["thread"]["ended_ms"] is not None:
                return 0
            sleep_s(args.interval / 1000)
    finally:
        way.close()


def entries(args: argparse.Namespace, home: Home) -> int:
    from appliance.clock import iso

    params = {"prefix": getattr(args, "prefix", ""), "limit": getattr(args, "limit", 100), "offset": getattr(args, "offset", 0)}
    found = once(home, "entry.list", params)
    if args.json:
        say(json.dumps(found, ensure_ascii=False))
    elif not found:
        say("no entries")
    else:
        rows = [[e["ref"], str(e["size_bytes"]), iso(e["updated_ms"])[:16], e["title"]] for e in found]
        terminal.table(rows, ["reference", "bytes", "changed", "title"], sys.stdout)
    return 0


def entry_view(args: argparse.Namespace, home: Home) -> int:
    found = once(home, "entry.view", {"ref": args.ref, "line": args.line, "limit": args.limit})
    say(json.dumps(found, ensure_ascii=False) if args.json else "\n".join(found["lines"]))
    return 0


def skills(args: argparse.Namespace, home: Home) -> int:
    found = once(home, "skill.list", {})
    if args.json:
        say(json.dumps(found, ensure_ascii=False))
        return 0
    for s in found:
        words = ["[-]" if s["missing"] else "[+]", s["name"], "[always]" if s["always"] else "", s["description"]]
        say(" ".join(word for word in [*words, f"({s['missing']})" if s["missing"] else ""] if word))
    if not found:
        say("No skills found.")
    return 0


def models(args: argparse.Namespace, home: Home) -> int:
    from dataclasses import asdict

    from appliance import catalogue

    home.require()
    found = catalogue.listing(home)
    if args.json:
        say(json.dumps([asdict(m) for m in found], ensure_ascii=False))
        return 0
    rows = []
    for m in found:
        state = m.problem or ("installed" if m.is_installed else f"owlbox model add {m.name}")
        rows.append([m.name, f"{m.size_bytes // 1_000_000} MB", m.licence or "", state])
    terminal.table(rows, ["model", "size", "licence", "state"], sys.stdout)
    return 0


def model_add(args: argparse.Namespace, home: Home) -> int:
    from appliance import catalogue

    home.require()
    progress = terminal.Progress()
    try:
        path = catalogue.add(home, args.model, progress.show)
    finally:
        progress.end()
    say(json.dumps({"model": path.stem, "path": str(path)}) if args.json else f"{path.stem} is ready: {path}")
    return 0
