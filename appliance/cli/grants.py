"""The commands about grants: `owlbox grants list`, `add` and `revoke`.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
from collections.abc import Callable
from typing import Any

from appliance.cli.terminal import Table, show
from appliance.cli.tool_command import once
from appliance.clock import iso, now_ms
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
KINDS = ("exec", "web", "search", "send", "call", "secret", "schedule", "skill", "document", "plugin")


def add(command: Command) -> None:
    """Add the group."""
    root = command("grants", listing, "what threads tainted by untrusted text may do without asking")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    shown = command("list", listing, "the grants that hold", known)
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


def listing(args: argparse.Namespace, home: Home) -> int:
    """The grants."""
    found = once(home, "grant.list", {"all": bool(getattr(args, "all", False))})
    heads = ["grant", "kind", "target", "from", "person", "until"]
    rows = [[str(one["id"]), one["kind"], one["target"], ", ".join(one["origins"]), one["person"], _until(one)] for one in found]
    return show(
        args,
        found,
        Table(rows, heads, ["target", "from"], empty="no grants: what threads with texts of strangers want to do waits for you"),
    )


def grant(args: argparse.Namespace, home: Home) -> int:
    """A new one."""
    names = ("kind", "target", "origins", "lasts", "person")
    return _said(args, once(home, "grant.add", {name: getattr(args, name) for name in names}), "granted")


def revoke(args: argparse.Namespace, home: Home) -> int:
    """One less."""
    return _said(args, once(home, "grant.revoke", {"id": args.id}), "revoked")


def _said(args: argparse.Namespace, one: dict[str, Any], word: str) -> int:
    what = f"{one['kind']} {one['target']}, from {', '.join(one['origins'])}"
    return show(args, one, f"{word}: grant {one['id']}, {what}, {_until(one)}")


def _until(one: dict[str, Any]) -> str:
    if one["revoked_ms"]:
        return f"revoked {iso(one['revoked_ms'])[:16]}"
    return f"{'expired' if one['expires_ms'] <= now_ms() else 'until'} {iso(one['expires_ms'])[:16]}"
