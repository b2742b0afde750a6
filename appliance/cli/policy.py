"""The commands about the policy and the tools: `owlbox policy show`, `check`, `test` and the rest, `owlbox tool list`.

`check` reads a file in this process; the others ask the core, or do the same here when none runs. Each takes the parsed
arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.cli.console import terminal
from appliance.cli.console.terminal import say, say_json, say_line, show
from appliance.cli.console.tool_command import once
from appliance.clock import local_time
from appliance.errors import BadInput, ConfigError, NotFound, Refused
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
MAX_BYTES = 1_000_000
LONG = 120  # columns of one value of an audit row


def add(command: Command) -> None:
    """Add both groups."""
    root = command("policy", show_policy, "what tools may do at all")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    made = command("show", show_policy, "the policy that holds", known)
    made.add_argument("--session", default="", metavar="ID", help="in this conversation")
    check = command("check", check_file, "look a policy file over; without one, that of the configuration", known)
    check.add_argument("file", nargs="?", default="", help="the file")
    command("reload", reload, "make the running core read the policy again", known)
    setting = command("set", set_session, "give a conversation a policy of its own, over the one for all", known)
    setting.add_argument("session", help="the conversation, as `session list` shows it")
    setting.add_argument("file", help="a policy file; - reads it from a pipe")
    command("unset", unset, "let the policy for all hold in a conversation again", known).add_argument(
        "session", help="the conversation, as `session list` shows it"
    )
    _add_test_options(command("test", test, "what the policy would say; nothing is started and nothing is written down", known))
    log = command("log", audit, "what was allowed, refused and done, newest first", known)
    for name, text in (
        ("kind", "only kinds that begin so, such as mount_ or policy_denied"),
        ("session", "only of this conversation"),
        ("run", "only of this thread, by its whole id"),
        ("rule", "only rules with this in their name"),
    ):
        log.add_argument(f"--{name}", default="", help=text)
    log.add_argument("--severity", default="", choices=["info", "warning", "error"], help="only of this one")
    log.add_argument("--limit", type=int, default=50)
    log.add_argument("--before", type=int, default=0, metavar="ID", help="only rows before this one")
    tools = command("tool", tool_list, "tools: which there are, and how their calls ended")
    command("list", tool_list, "every tool with its state", tools.add_subparsers(metavar="ACTION", parser_class=type(tools)))


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


def show_policy(args: argparse.Namespace, home: Home) -> int:
    """The policy, a line for each key that says something."""
    session = getattr(args, "session", "")
    found = once(home, "policy.show", {"session": session})
    if args.json:
        return say_json(found)
    rules = found["policy"]
    say_line(f"mode: {rules['mode']}{f' (in session {session})' if session else ''}, {found['state']}")
    say_line(f"tools: {_format_lists({'allow': rules['tools_allow'], 'deny': rules['tools_deny']})}")
    for role, lists in rules["roles"].items():
        say_line(f"role {role}: {_format_lists(lists)}")
    quotas = ", ".join(f"{name} {_format_amount(name, value)}" for name, value in rules["quotas"].items() if value != 0)
    _print_folded(f"quotas: {quotas}")
    kinds = [name for name, is_on in (("binds", rules["has_binds"]), ("volumes", rules["mounts"]["volumes"])) if is_on]
    say_line(f"mounts: {', '.join([*kinds, *(['tmpfs'] if rules['mounts']['tmpfs'] else [])]) or 'none'}")
    for rule in (*rules["mounts"]["rules"], *rules["ground"]["rules"]):
        whose = f", only {rule['user'] or rule['group']}" if rule["user"] or rule["group"] else ""
        say_line(f"  {rule['path']}: {rule['mode']}, {rule['kind']}{whose}")
    say_line(f"network: {', '.join(name for name, is_on in rules['network'].items() if is_on) or 'none'}")
    also = f"; {_format_lists(rules['ipc'])}" if rules["ipc"]["allow"] or rules["ipc"]["deny"] else ""
    say_line(f"messages: the person of the conversation{also}")
    _print_folded(f"blocked commands: {', '.join(rules['blocked'])}")
    say_line(f"root: {_format_switch(rules['security']['root'])}, privileged: {_format_switch(rules['security']['privileged'])}")
    say(f"runtimes: {'pinned' if rules['runtime']['pinned'] else 'any'}")
    for own in found["sessions"]:
        say_line(f"session {own['session']} has its own, set by {own['set_by']} at {local_time(own['set_ms'])[:16]}")
    return 0


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


def test(args: argparse.Namespace, home: Home) -> int:
    """What the policy would say to a request; exit code 4 when it says no."""
    found = once(home, "policy.test", {"request": _build_request(args)})
    if args.json:
        say_json(found)
        return 0 if found["is_allowed"] else Refused.exit_code
    broken = f"; it breaks {found['text']}" if found["text"] and found["is_allowed"] else ""
    say_line(f"allowed ({found['mode']}{broken})" if found["is_allowed"] else f"refused: {found['text']}")
    for warning in found["warnings"]:
        say_line(f"  note: {warning['rule']}: {warning['message']}")
    for mounted in found["mounts"]:
        mode = "writable" if mounted["is_writable"] else "read-only"
        say_line(f"  {mounted['source']} is {mode} at {mounted['inside']}")
    return 0 if found["is_allowed"] else Refused.exit_code


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


def reload(args: argparse.Namespace, home: Home) -> int:
    """Read the policy again."""
    done = once(home, "policy.reload", {}, alone="the policy is read at every start; owlbox policy check looks it over")
    return show(args, done, f"policy {done['result']}")


def set_session(args: argparse.Namespace, home: Home) -> int:
    """Give a conversation a policy of its own."""
    try:
        with sys.stdin.buffer if args.file == "-" else open(args.file, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise NotFound(f"{args.file} cannot be read: {error.strerror}", hint="owlbox policy check FILE") from None
    except UnicodeDecodeError:
        raise BadInput(f"{args.file} is not UTF-8 text", hint="owlbox policy check FILE") from None
    if len(data) > MAX_BYTES:  # a part of a policy would be another policy
        raise BadInput(f"{args.file} has more than {MAX_BYTES} bytes", hint="shorten it")
    done = once(home, "policy.set", {"session": args.session, "document": text})
    show(args, done, f"session {args.session}: {done['policy']['mode']}")
    if not done["is_known"]:
        say(f"nobody has talked in {args.session} yet: it holds from the first word (owlbox session list)", sys.stderr)
    return 0


def unset(args: argparse.Namespace, home: Home) -> int:
    """Let the policy for all hold in a conversation again."""
    done = once(home, "policy.lift", {"session": args.session})
    return show(args, done, f"session {args.session} has the policy for all again")


def audit(args: argparse.Namespace, home: Home) -> int:
    """Audit rows as a table."""
    names = ("kind", "severity", "session", "run", "rule", "before", "limit")
    found = once(home, "audit.list", {name: getattr(args, name) for name in names})
    if args.json:
        return say_json(found)
    if not found:
        say("nothing was written down")
        return 0
    has_end = terminal.columns(sys.stdout) > 0  # in a pipe each row is one line
    for row in found:
        parts = (str(row["id"]), local_time(row["at_ms"])[:19], row["severity"], row["kind"], row["actor"], row["session"])
        head, detail = "  ".join(filter(None, parts)), _row_details(row)
        for line in (head, f"    {detail}" if detail else "") if has_end else (f"{head}  {detail}".rstrip(),):
            _print_folded(line)
    return 0


def tool_list(args: argparse.Namespace, home: Home) -> int:
    """Tools as a table; the numbers are those of the running core."""
    found = once(home, "tool.list", {})
    if args.json:
        names = ("name", "group", "state", "version", "is_enabled", "last_ms", "deadline_s", "calls", "needs")
        return say_json([{name: tool[name] for name in names} for tool in found])
    rows = [
        [
            t["name"],
            t["group"],
            t["state"],
            *(str(t["calls"][n]) for n in ("total", "failed", "timeout", "average_ms")),
            _format_time(t),
        ]
        for t in found
    ]
    terminal.table(rows, ["tool", "group", "state", "calls", "failed", "timeout", "ms", "last used"], sys.stdout)
    return 0


def _format_time(tool: dict[str, Any]) -> str:
    return local_time(tool["last_ms"])[:19] if tool["last_ms"] else ""


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


def _format_switch(is_on: bool) -> str:
    return "yes" if is_on else "no"


def _row_details(row: dict[str, Any]) -> str:
    """What an audit row says beside its heading: the rule and all values, each cut where it is long."""
    said = {name: " ".join(str(value).split()) for name, value in row["detail"].items() if value not in ("", None, [])}
    return ", ".join([*filter(None, [row["rule"]]), *(f"{name} {terminal.clipped(value, LONG)}" for name, value in said.items())])


def _print_folded(text: str) -> None:
    """A line, on as many as it takes where lines have an end."""
    for line in terminal.folded(text, sys.stdout) if text else ():
        say(line)
