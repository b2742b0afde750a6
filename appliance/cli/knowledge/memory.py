"""The commands about memory: `owlbox memory`.

Each function takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from appliance.cli.console.terminal import Table, say, say_json, show
from appliance.cli.console.tool_command import once
from appliance.clock import local_time
from appliance.errors import BadInput
from appliance.runtime.paths import Home

KEY = "its id or reference, as `memory list` shows it"
Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the group."""
    root = command("memory", choose, "what is remembered of people and groups")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    listing = command("list", list_records, "what is remembered, newest first", known)
    listing.add_argument("--topic", default="", help="only of this topic")
    listing.add_argument(
        "--kind", default="", choices=["note", "preference", "decision", "fact", "context"], help="only of this kind"
    )
    listing.add_argument("--tag", default="", help="only with this tag")
    listing.add_argument("--limit", type=int, default=100, help="how many")
    made = command("add", write, "remember something; what says the same already is brought up to date", known)
    made.add_argument("text", nargs="+", help="what")
    made.add_argument("--topic", default="", help="of which topic")
    made.add_argument("--tag", action="append", default=[], help="a tag; may be given more than once")
    made.add_argument("--importance", type=int, default=5, help="1 to 10 (5)")
    made.add_argument("--days", type=float, default=0, help="forget it after so many days")
    found = command("search", search, "what is remembered that fits some words", known)
    found.add_argument("query", nargs="+", help="words")
    shown = command("show", view, "one record as a file", known)
    shown.add_argument("key", help=KEY)
    gone = command("forget", forget, "forget one: its text, passages, vectors and history", known)
    gone.add_argument("key", help=KEY)
    gone.add_argument("--yes", action="store_true", help="ask nothing")
    topics = command("topics", list_topics, "the topics and how much each has", known)
    for one in (listing, made, found, shown, gone, topics):
        one.add_argument("--owner", default="", help="user:ID or group:ID; yours and everybody's without")


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint="list, search, show, add, forget or topics")


def list_records(args: argparse.Namespace, home: Home) -> int:
    """A table of records."""
    wanted = {"topic": args.topic, "kind": args.kind, "tag": args.tag, "limit": args.limit, "owner": args.owner}
    return _print_table(args, once(home, "memory.list", wanted), "nothing is remembered")


def search(args: argparse.Namespace, home: Home) -> int:
    """The records that words find."""
    words = " ".join(args.query)
    found = once(home, "memory.search", {"query": words, "owner": args.owner})
    return _print_table(args, found, f"nothing that is remembered has {words!r} in it")


def view(args: argparse.Namespace, home: Home) -> int:
    """One record."""
    if args.json:
        return say_json(once(home, "memory.view", {"key": args.key, "owner": args.owner}))
    say(once(home, "memory.export", {"key": args.key, "owner": args.owner}).rstrip("\n"))
    return 0


def write(args: argparse.Namespace, home: Home) -> int:
    """Remember something."""
    given: dict[str, Any] = {"text": " ".join(args.text), "topic": args.topic, "tags": args.tag, "importance": args.importance}
    done = once(home, "memory.write", {**given, "ttl_s": round(args.days * 86400), "owner": args.owner})
    return show(args, done, [f"{'Kept as' if done['is_new'] else 'Brought up to date:'} {done['ref']}"])


def forget(args: argparse.Namespace, home: Home) -> int:
    """Forget one record after a yes."""
    found = once(home, "memory.view", {"key": args.key, "owner": args.owner})
    if not args.yes and not args.json:
        if not sys.stdin.isatty() or input(f"Forget {found['record']['title']!r}? [y/N] ").strip().lower() not in ("y", "yes"):
            raise BadInput("nothing was forgotten", hint="--yes forgets it without asking")
    gone = once(home, "memory.forget", {"key": args.key, "owner": args.owner})
    return show(args, gone, [f"Forgot {gone['title']}. Conversations and backups keep what they hold."])


def list_topics(args: argparse.Namespace, home: Home) -> int:
    """The topics."""
    found = once(home, "memory.topics", {"owner": args.owner})
    return show(
        args, found, Table([[one["name"], str(one["count"])] for one in found], ["topic", "records"], [], "nothing is remembered")
    )


def _print_table(args: argparse.Namespace, found: list[dict[str, Any]], none: str) -> int:
    rows = [
        [
            one["ref"].removeprefix("memory://"),
            one["record"]["kind"],
            str(one["record"]["importance"]),
            local_time(one["record"]["updated_ms"])[:10],
            one["record"]["owner"],
            " ".join(one["record"]["text"].split()),
        ]
        for one in found
    ]
    return show(args, found, Table(rows, ["memory", "kind", "importance", "changed", "whose", "text"], ["text"], none))
