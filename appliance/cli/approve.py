"""The commands `owlbox approve` and `owlbox reject`: decide about what a thread proposed, and see how it goes on; and
`owlbox grants`: what such threads may do without asking.

Without a reference they decide about the only thing that waits; the exit code is 5 when the thread then waits for another decision.
"""

import argparse
import sys
from typing import Any

from appliance.clock import local_time, now_ms
from appliance.console import terminal
from appliance.console.connect import Reach, connected
from appliance.console.terminal import say, say_json
from appliance.console.verbs import Noun, Verb
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

WAITS = 5
WAITING = 100  # for a worker


def decide(args: argparse.Namespace, home: Home) -> int:
    """Decide, then show how the answer goes on."""
    answer = terminal.AnswerPrinter(None if args.json else sys.stdout, None if args.json else sys.stderr)
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
        said = (done["outcome"]["message"] or done["outcome"]["outcome"]).removeprefix(f"{done['ref']}: ")
        say(f"{done['ref']}: {said}{more}")
    elif is_undone:
        terminal.complain(done["outcome"]["message"])
    if done["status"] == 202:
        return WAITS
    return 1 if is_undone or done["status"] in (499, 500) else 0


def _find_only(way: Reach, thread: str) -> tuple[str, str]:
    """The one thing that waits."""
    found = way.call("entry.waiting", {"run": thread, "limit": 2})
    if not found:
        raise NotFound("nothing to approve", hint="owlbox entry waiting lists what does")
    if len(found) > 1:
        raise BadInput("several things wait for a decision", hint="owlbox entry waiting lists them: name one")
    return found[0]["ref"], found[0]["run"]


def _describe_end(one: dict[str, Any]) -> str:
    if one["revoked_ms"]:
        return f"revoked {local_time(one['revoked_ms'])[:16]}"
    return f"{'expired' if one['expires_ms'] <= now_ms() else 'until'} {local_time(one['expires_ms'])[:16]}"


def _add_options(made: argparse.ArgumentParser) -> None:
    is_approval = made.prog.endswith("approve")
    made.set_defaults(action="accept" if is_approval else "reject")
    made.add_argument("ref", nargs="?", default="", help="its reference as `entry waiting` shows it, or the end of it")
    made.add_argument("--thread", default="", metavar="ID", help="the thread it waits in; needed when it is in several")
    made.add_argument("--output", default="", metavar="TEXT", help="the answer to a question, or the reason")
    made.add_argument("--failed", dest="action", action="store_const", const="error", help="it was tried and went wrong")
    if is_approval:
        made.add_argument("--remember", default="", metavar="TIME", help="allow similar calls for this long: 7d")
    made.add_argument("--no-wait", action="store_true", help="do not wait for the rest of the answer")


def _tell_grant(args: argparse.Namespace, one: dict[str, Any]) -> list[str]:
    word = "granted" if args.chosen == "add" else "revoked"
    return [f"{word}: grant {one['id']}, {one['kind']} {one['target']}, from {', '.join(one['origins'])}, {_describe_end(one)}"]


# fmt: off
NOUNS = (
    Verb("approve", text="approve what a thread waits for, or answer its question", handler=decide, adds=_add_options),
    Verb("reject", text="reject what a thread waits for; its answer ends", handler=decide, adds=_add_options),
    Noun("grants", "what threads with untrusted text may do without asking", (
        Verb("list", "grant.list", text="list grants", cells={"until": _describe_end},
             rows="grant=id kind target~ from=origins~ person until",
             empty="no grants: what threads with untrusted text want to do waits for you"),
        Verb("add", "grant.add", "kind target --from=origins --for=lasts --person", text="allow such calls for a while",
             says=_tell_grant),
        Verb("revoke", "grant.revoke", says=_tell_grant, helps={"id": "its number, as `grants list` shows it"}),
    )),
)
