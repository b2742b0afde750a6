"""The commands about the policy and the tools: `owlbox policy show`, `check`, `test` and the rest, `owlbox tool list`.

`check` reads a file in this process; the others are made from their methods.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from appliance.clock import local_time
from appliance.console import terminal
from appliance.console.inputs import read_text
from appliance.console.terminal import say, show
from appliance.console.verbs import Noun, Verb, call, takes
from appliance.errors import BadInput, ConfigError, NotFound, Refused
from appliance.runtime.paths import Home

MODES = {True: "writable", False: "read-only"}
LONG = 120  # columns of one value of an audit row


def _add_test_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("command", nargs="?", default="", metavar="COMMAND", help="a command line, quoted")
    made.add_argument("--tool", default="exec", help="the tool that would be called (exec)")
    made.add_argument("--role", default="", help="in this role")
    made.add_argument("--user", default="", help="on behalf of this person")
    made.add_argument("--group", action="append", default=[], help="who is in this group")
    made.add_argument("--admin", action="store_true", help="who is an admin")
    made.add_argument("--session", default="", metavar="ID", help="in this conversation")
    made.add_argument("--mount", action="append", default=[], metavar="PATH", help="with this folder")
    made.add_argument("--write", action="store_true", help="and write there")
    made.add_argument("--network", default="none", choices=["none", "proxy", "host"], help="which network (none)")
    made.add_argument("--target", default="", help="sending something to it, such as person:ada")
    made.add_argument("--cpus", type=float, default=0, help="so many processors")
    for name in ("memory", "swap", "tmpfs", "disk"):
        made.add_argument(f"--{name}", default="0", metavar="SIZE", help="such as 512m")
    made.add_argument("--pids", type=int, default=0, help="so many processes")


def _tell_policy(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    """The policy, a line for each key that says something."""
    rules = found["policy"]
    whose = f" (in session {args.session})" if args.session else ""
    folders = (*rules["mounts"]["rules"], *rules["ground"]["rules"])
    kinds = {"binds": rules["has_binds"], "volumes": rules["mounts"]["volumes"], "tmpfs": rules["mounts"]["tmpfs"]}
    lists = {"tools": {"allow": rules["tools_allow"], "deny": rules["tools_deny"]}}
    lists |= {f"role {role}": given for role, given in rules["roles"].items()}
    lists |= {"messages beside the person of the conversation": rules["ipc"]} if any(rules["ipc"].values()) else {}
    quotas = ", ".join(f"{name} {_format_amount(name, value)}" for name, value in rules["quotas"].items() if value != 0)
    switches = {"mounts": kinds, "network": rules["network"], "extra rights": rules["security"]}
    told = [f"mode: {rules['mode']}{whose}, {found['state']}"]
    told += [f"{name}: {_format_lists(given)}" for name, given in lists.items()] + [f"quotas: {quotas}"]
    told += [f"{name}: {', '.join(one for one, is_on in given.items() if is_on) or 'none'}" for name, given in switches.items()]
    told += [f"  {one['path']}: {one['mode']}, {one['kind']} {one['user'] or one['group']}".rstrip() for one in folders]
    told += [f"blocked commands: {', '.join(rules['blocked'])}"]
    told += [f"runtimes: {'pinned' if rules['runtime']['pinned'] else 'any'}"]
    own = "session {session} has its own, set by {set_by} at {at}"
    told += [own.format(**one, at=local_time(one["set_ms"])[:16]) for one in found["sessions"]]
    return [line for text in told for line in _fold(text)]


def check_file(args: argparse.Namespace, home: Home) -> int:
    """Read a policy file; ConfigError says what is wrong."""
    from appliance.policy import policy_file
    from appliance.runtime import config

    if args.file:
        path = Path(args.file)
        if not path.exists():
            raise NotFound(f"no file {path}", hint="owlbox policy check FILE")
        rules = policy_file.load(path, environ=os.environ)
    else:
        loaded = config.load(home.require(), os.environ)
        name = loaded.policy.path
        if name and not (home.root / name).exists():
            told = f"{home.root / name} is not there yet: the core makes it from the default policy"
            return show(args, {"is_fine": True, "is_missing": True}, told)
        rules = policy_file.of(home, loaded, os.environ)
    facts = {"mode": rules.mode, "mounts": len(rules.mounts.rules) + len(rules.ground.rules), "is_fine": True}
    where = args.file or "the policy of the configuration"
    return show(args, facts, f"{where} is fine: {rules.mode}, {facts['mounts']} folders listed")


def _tell_test(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    """What the policy would say."""
    broken = f"; it breaks {found['text']}" if found["text"] and found["is_allowed"] else ""
    return [
        f"allowed ({found['mode']}{broken})" if found["is_allowed"] else f"refused: {found['text']}",
        *(f"  note: {warning['rule']}: {warning['message']}" for warning in found["warnings"]),
        *(f"  {one['source']} is {MODES[one['is_writable']]} at {one['inside']}" for one in found["mounts"]),
    ]


def test(args: argparse.Namespace, home: Home) -> int:
    """What the policy would say to a request; exit code 4 when it says no."""
    return call(args, home, args.verb, {"request": _build_request(args)})


def _build_request(args: argparse.Namespace) -> dict[str, Any]:
    from appliance.policy.policy_file import size_bytes

    sizes = {}
    for name, field in (("memory", "memory_bytes"), ("swap", "swap_bytes"), ("tmpfs", "tmp_bytes"), ("disk", "disk_bytes")):
        text = getattr(args, name)
        try:
            found = size_bytes(text)
        except ConfigError as error:
            raise BadInput(f"--{name} {text}: must be {error.message}", hint="owlbox policy test --help") from None
        if found is None:
            raise BadInput(f"--{name} unlimited cannot be asked for", hint="give a size such as 512m")
        sizes[field] = found
    for name in ("cpus", "pids"):
        if getattr(args, name) < 0:
            raise BadInput(f"--{name} {getattr(args, name):g}: must be 0 or more", hint="owlbox policy test --help")
    return {
        "component": args.tool,
        "who": {"user": args.user, "groups": args.group, "role": args.role, "is_admin": args.admin},
        "session": args.session,
        "mounts": [{"source": path, "is_writable": args.write} for path in args.mount],
        "usage": {"cpus": args.cpus, "pids": args.pids, **sizes},
        "network": args.network,
        "target": args.target,
        "command": args.command,
    }


def _tell_set(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    if not done["is_known"]:
        say(f"nobody has talked in {args.session} yet: it holds from the first word (owlbox session list)", sys.stderr)
    return [f"session {args.session}: {done['policy']['mode']}"]


def _tell_audit(args: argparse.Namespace, found: list[dict[str, Any]]) -> list[str]:
    """Audit rows, newest first."""
    has_end = terminal.columns(sys.stdout) > 0  # in a pipe each row is one line
    lines = []
    for row in found:
        parts = (str(row["id"]), local_time(row["at_ms"])[:19], row["severity"], row["kind"], row["actor"], row["session"])
        head, detail = "  ".join(filter(None, parts)), _row_details(row)
        for line in (head, f"    {detail}" if detail else "") if has_end else (f"{head}  {detail}".rstrip(),):
            lines += _fold(line)
    return lines or ["nothing was written down"]


def _format_lists(lists: dict[str, Any]) -> str:
    said = [f"{name} {', '.join(lists[name])}" for name in ("allow", "deny") if lists[name]]
    return "; ".join(said) or "all"


def _format_amount(name: str, value: Any) -> str:
    if value is None:
        return "unlimited"
    if name.endswith(("cpus", "pids")):
        return f"{value:g}"
    for unit, size in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _row_details(row: dict[str, Any]) -> str:
    """What an audit row says beside its heading: the rule and all values, each cut where it is long."""
    said = {name: " ".join(str(value).split()) for name, value in row["detail"].items() if value not in ("", None, [])}
    return ", ".join([*filter(None, [row["rule"]]), *(f"{name} {terminal.clipped(value, LONG)}" for name, value in said.items())])


def _fold(text: str) -> list[str]:
    """A line, as many as it takes where lines have an end."""
    return terminal.folded(text, sys.stdout) if text else []


SESSION = {"session": "the conversation, as `session list` shows it", "file": "a policy file; - reads it from a pipe"}
# fmt: off
NOUNS = (
    Noun("policy", "what tools are allowed to do", (
        Verb("show", "policy.show", text="show the current policy", says=_tell_policy),
        Verb("check", text="check a policy file; default: the configured one", handler=check_file,
             adds=takes("file", nargs="?", default="", help="the file")),
        Verb("reload", "policy.reload", text="reload the policy of the running core", says="policy {result}",
             alone="the policy is read at every start; owlbox policy check tests it"),
        Verb("set", "policy.set", "session file=document", text="set a policy for one conversation",
             reads={"file": read_text}, says=_tell_set, helps=SESSION),
        Verb("unset", "policy.set", "session", text="remove the policy of a conversation", helps=SESSION,
             says="session {session} has the policy for all again"),
        Verb("test", "policy.test", "-", text="show what the policy would decide; nothing is started",
             handler=test, adds=_add_test_options, says=_tell_test,
             code=lambda found: 0 if found["is_allowed"] else Refused.exit_code),
        Verb("log", "audit.list", "--kind --session --run --rule --severity --limit --before", says=_tell_audit,
             helps={"run": "only of this thread, by its whole id", "session": "only of this conversation"}),
    ), first="show"),
    Noun("tool", "list tools", (
        Verb("list", "tool.list", text="list tools with their state",
             rows="tool=name group state calls=calls.total failed=calls.failed timeout=calls.timeout ms=calls.average_ms "
                  "last_used=last_ms also=aliases~"),
    )),
)
