"""The commands `owlbox approve` and `owlbox reject`: decide about what a thread proposed, and see how it goes on; and
`owlbox grants`: what such threads may do without asking.

Without a reference they decide about the only thing that waits. Each takes the parsed arguments and the home and
returns the exit code, as in `cli.listings`; 5 when the thread then waits for another decision.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from appliance.cli.console import terminal
from appliance.cli.console.connect import Reach, connected
from appliance.cli.console.terminal import Table, say, say_json, show
from appliance.cli.console.tool_command import once
from appliance.clock import local_time, now_ms
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
WAITS = 5
WAITING = 100  # for a worker
KINDS = ("exec", "web", "search", "send", "call", "secret", "schedule", "skill", "document", "plugin")


def add(command: Command) -> None:
    """Add the commands."""
    for name, text in (
        ("approve", "let happen what a thread waits for, or answer its question"),
        ("reject", "refuse what a thread waits for, which ends its answer"),
    ):
        made = command(name, decide, text)
        made.set_defaults(action="accept" if name == "approve" else "reject")
        made.add_argument("ref", nargs="?", default="", help="its reference as `entry waiting` shows it, or the end of it")
        made.add_argument("--thread", default="", metavar="ID", help="the thread it waits in; needed when it is in several")
        made.add_argument("--output", default="", metavar="TEXT", help="the answer to a question, or the reason")
        made.add_argument("--failed", dest="action", action="store_const", const="error", help="it was tried and went wrong")
        if name == "approve":
            made.add_argument("--remember", default="", metavar="TIME", help="let the like of a held call pass for so long: 7d")
        made.add_argument("--no-wait", action="store_true", help="do not show how the answer goes on")
    _add_grants(command)


def decide(args: argparse.Namespace, home: Home) -> int:
    """Decide, then show how the answer goes on."""
    answer = terminal.Answer(None if args.json else sys.stdout, None if args.json else sys.stderr)
    with connected(home) as way:
        ref, run = (args.ref, args.thread) if args.ref else _find_only(way, args.thread)
        params = {"ref": ref, "run": run, "action": args.action, "output": args.output, "wait": not args.no_wait}
        params |= {"remember": args.remember} if getattr(args, "remember", "") else {}
        done: dict[str, Any] = way.call("run.resolve", params, answer.listen)
    answer.end_line()
    is_undone = args.action == "accept" and done["outcome"]["status"] >= 400
    if args.json:
        say_json(done)
    elif not answer.events:
        more = "; its task goes on with the next free worker" if done["status"] == WAITING else ""
        say(f"{done['ref']}: {done['outcome']['message'] or done['outcome']['outcome']}{more}")
    elif is_undone:
        terminal.complain(done["outcome"]["message"])
    if done["status"] == 202:
        return WAITS
    return 1 if is_undone or done["status"] in (499, 500) else 0


def _find_only(way: Reach, thread: str) -> tuple[str, str]:
    """The one thing that waits."""
    found = way.call("entry.waiting", {"run": thread, "limit": 2})
    if not found:
        raise NotFound("nothing waits for a decision", hint="owlbox entry waiting lists what does")
    if len(found) > 1:
        raise BadInput("several things wait for a decision", hint="owlbox entry waiting lists them: name one")
    return found[0]["ref"], found[0]["run"]


def _add_grants(command: Command) -> None:
    """Add `owlbox grants`."""
    root = command("grants", list_grants, "what threads tainted by untrusted text may do without asking")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    shown = command("list", list_grants, "the grants that hold", known)
    shown.add_argument("--all", action="store_true", help="those that were revoked or have expired, too")
    made = command("add", grant, "let such calls pass for a while", known)
    made.add_argument("kind", choices=KINDS, help="what is approved")
    made.add_argument("target", help="a host, mcp:NAME, person:NAME or a command; may be a pattern, * for all")
    made.add_argument("--from", dest="origins", action="append", required=True, metavar="ORIGIN",
                      help="on account of whose texts: web:HOST, web, mcp:NAME, mail, document, skill:NAME, any")  # fmt: skip
    made.add_argument("--for", dest="lasts", default="7d", metavar="TIME", help="for how long, such as 12h or 7d (7d)")
    made.add_argument("--person", default="", help="in whose threads; else yours")
    gone = command("revoke", revoke, "ask again from now on", known)
    gone.add_argument("id", type=int, help="its number, as `grants list` shows it")


def list_grants(args: argparse.Namespace, home: Home) -> int:
    """The grants."""
    found = once(home, "grant.list", {"all": bool(getattr(args, "all", False))})
    heads = ["grant", "kind", "target", "from", "person", "until"]
    rows = [
        [str(one["id"]), one["kind"], one["target"], ", ".join(one["origins"]), one["person"], _describe_end(one)] for one in found
    ]
    return show(
        args,
        found,
        Table(rows, heads, ["target", "from"], empty="no grants: what threads with texts of strangers want to do waits for you"),
    )


def grant(args: argparse.Namespace, home: Home) -> int:
    """A new one."""
    names = ("kind", "target", "origins", "lasts", "person")
    return _print_decision(args, once(home, "grant.add", {name: getattr(args, name) for name in names}), "granted")


def revoke(args: argparse.Namespace, home: Home) -> int:
    """One less."""
    return _print_decision(args, once(home, "grant.revoke", {"id": args.id}), "revoked")


def _print_decision(args: argparse.Namespace, one: dict[str, Any], word: str) -> int:
    what = f"{one['kind']} {one['target']}, from {', '.join(one['origins'])}"
    return show(args, one, f"{word}: grant {one['id']}, {what}, {_describe_end(one)}")


def _describe_end(one: dict[str, Any]) -> str:
    if one["revoked_ms"]:
        return f"revoked {local_time(one['revoked_ms'])[:16]}"
    return f"{'expired' if one['expires_ms'] <= now_ms() else 'until'} {local_time(one['expires_ms'])[:16]}"
