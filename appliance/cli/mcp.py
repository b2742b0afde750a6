"""The commands about servers of tools: `owlbox mcp servers`, `add`, `exec`, `auth` and the rest.

Each asks the core, or does the same in this process when none runs; a command without a core ends the servers it needed
when it is done.
"""

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from appliance.console import terminal
from appliance.console.connect import connected
from appliance.console.inputs import read_object
from appliance.console.terminal import say, say_json, say_line, show
from appliance.console.tool_command import ask, ask_once, once
from appliance.console.verbs import Noun, Verb, parameters, table
from appliance.errors import BadInput, NotFound, OwlError
from appliance.runtime.paths import Home
from appliance.text.invisible import escape_invisible

# Where other programs keep theirs, below the person's home folder.
ELSEWHERE = (".config/mcpx/servers.json", ".mcpx/servers.json", ".config/Claude/claude_desktop_config.json", ".claude.json",
             ".cursor/mcp.json", ".config/Code/User/mcp.json")  # fmt: skip


def _add_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("name", help="its name: letters, digits, - and _")
    made.add_argument("--command", dest="program", default="", metavar="PROGRAM", help="a program to start: its name or path")
    made.add_argument("--url", default="", metavar="ADDRESS", help="or its address")
    made.add_argument("--args", default="", metavar="A,B", help="its arguments, comma-separated; --args=-x,B if it begins with -")
    made.add_argument("--arg", action="append", default=[], metavar="A", help="one argument that may contain commas; repeatable")
    made.add_argument("--env", default="", metavar="K=V,K=V", help="its variables; keys and tokens go into the vault")
    made.add_argument("--header", action="append", default=[], metavar="K: V", help="a header of each request; repeatable")
    made.add_argument("--client-id", default="", help="client id, if the server gave you one")
    made.add_argument("--client-secret-env", default="", metavar="VARIABLE", help="environment variable with the client secret")
    made.add_argument("--issuer", default="", metavar="ADDRESS", help="issuer of both: then nobody needs to log in")
    made.add_argument("--cwd", default="", metavar="DIR", help="work in this folder instead of one of its own")
    made.add_argument("--mount", action="append", default=[], metavar="DIR", help="a folder it may read; repeatable")
    made.add_argument("--writable", action="append", default=[], metavar="DIR", help="a folder it may write to; repeatable")
    made.add_argument("--network", action="store_true", help="allow this machine's network")
    made.add_argument("--expose", default="auto", choices=["auto", "direct", "meta"], help="tools by name, or through mcp_exec")
    made.add_argument("--timeout", type=float, default=0, metavar="SECONDS", help="longest time of a call")
    made.add_argument("--transport", default="", help="stdio or http; default: from the other options")
    made.add_argument("--replace", action="store_true", help="replace the server of this name")
    made.add_argument("--no-index", action="store_true", help="do not list its tools now")


# -- looking ----------------------------------------------------------------------------------------


def _tell_servers(args: argparse.Namespace, found: dict[str, Any]) -> terminal.Table:
    """A table of servers, and what was left out of them."""
    running = found["running"].get("servers", {})
    cells = {
        "state": lambda one: "running" if running.get(one["name"], {}).get("is_open") else _shorten_text(one["state"]),
    }
    rows = table(found["servers"], "name by=transport tools state~ listed=listed_ms where~", cells, "")
    left_out = [f"{one['name']}: left out {text}" for one in found["servers"] for text in one["left_out"]]
    return rows._replace(empty="no servers; owlbox mcp add NAME --command PROGRAM, or --url ADDRESS", foot=left_out)


def _tell_pings(args: argparse.Namespace, found: list[dict[str, Any]]) -> list[str]:
    """Servers, one a line, each with how fast it answers or why it does not."""
    said = [one.get("error") or f"{one['ms']} ms, {one.get('title')} {one.get('version')}".rstrip() for one in found]
    return [f"{one['server']}: {text}" for one, text in zip(found, said)] or ["no servers"]


def _tell_offered(args: argparse.Namespace, found: dict[str, Any]) -> str | list[str]:
    """The text that was asked for, else what there is."""
    if "offers" not in found:
        return str(found["text"])
    lines = [f"{one['name']}: {_shorten_text(one['about'], 100)}" for one in found["offers"]]
    return lines or [f"{args.server} has none"]


def execute(args: argparse.Namespace, home: Home) -> int:
    """Call a tool; its text goes to stdout, an error is ours."""
    done = ask_once(home, "mcp_exec", parameters(args))
    return show(args, done, str(done["message"]))


# -- managing ---------------------------------------------------------------------------------------


def add_server(args: argparse.Namespace, home: Home) -> int:
    """Configure a server, and ask it what it offers."""
    if bool(args.program) == bool(args.url):
        raise BadInput("give either --command or --url", hint="a program that is started, or an address that is asked")
    entry: dict[str, Any] = {"command": args.program} if args.program else {"url": args.url}
    if args.transport:
        entry["transport"] = args.transport
    listed = [*_split_list(args.args), *args.arg]
    headers = dict(_split_pair(text, ":", "--header") for text in args.header)
    environ = dict(_split_pair(text, "=", "--env") for text in _split_list(args.env))
    folders = {"mounts": _absolute_paths(args.mount), "writable": _absolute_paths(args.writable)}
    secret = os.environ.get(args.client_secret_env, "") if args.client_secret_env else ""
    if args.client_secret_env and not secret:
        raise BadInput(f"variable {args.client_secret_env} is not set", hint="export it first")
    if args.issuer and not (args.client_id and secret):
        raise BadInput("--issuer needs what it gave us", hint="give --client-id and --client-secret-env, too")
    entry |= {"client_id": args.client_id} if args.client_id else {}
    entry |= {"client_secret": secret} if secret else {}
    entry |= {"issuer": args.issuer} if args.issuer else {}
    given = {"args": listed, "env": environ, "headers": headers, "cwd": args.cwd, **folders, "network": args.network}
    entry |= {name: value for name, value in given.items() if value}
    entry |= {"expose": args.expose} if args.expose != "auto" else {}
    entry |= {"timeout_s": args.timeout} if args.timeout else {}
    with connected(home) as way:
        made = way.call("mcp.add", {"name": args.name, "entry": entry, "replace": args.replace})
        listed_tools, problem = _count_tools(way, args.name) if not args.no_index else (None, "")
    if args.json:
        return say_json({**made, "tools": listed_tools, "problem": problem})
    say_line(f"{args.name} is configured" + (f": {listed_tools} tools" if listed_tools is not None else ""))
    if problem:
        say_line(f"it gives no tools yet: {problem}")
    say("a thread that it has answered asks you before it tells a server what you have not said; this lets it go on:")
    say_line(f"  owlbox grants add call mcp:{args.name} --from mcp:{args.name} --for 30d")
    return 0


def _count_tools(way: Any, name: str) -> tuple[int | None, str]:
    try:
        return len(ask(way, "mcp_list_tools", {"server": name})["data"]["tools"]), ""
    except OwlError as error:
        return None, str(error)


def import_servers(args: argparse.Namespace, home: Home) -> int:
    """Add what another program has; those whose names are taken are left alone."""
    from appliance.mcp import server_config as known

    if args.file:
        paths = [Path(args.file)]
    else:
        paths = [path for path in (Path.home() / place for place in ELSEWHERE) if path.is_file()]
        if not paths:
            raise NotFound("no file with servers was found", hint=f"name one; looked for {', '.join(ELSEWHERE)} in {Path.home()}")
    lines: list[dict[str, str]] = []
    with connected(home) as way:
        taken = {one["name"] for one in way.call("mcp.servers")["servers"]}
        for path in paths:
            try:
                entries = known.imported(path)
            except BadInput:
                if args.file:
                    raise
                continue
            for name, entry in entries.items():
                lines.append({"name": name, "file": str(path), "result": _import_server(way, name, entry, taken, args.dry_run)})
                taken.add(name)
    if args.json:
        return say_json(lines)
    for line in lines:
        say_line(f"{line['name']}: {line['result']} ({line['file']})")
    if not lines:
        say("there is nothing to add")
    return 0


def _import_server(way: Any, name: str, entry: dict[str, Any], taken: set[str], is_trial: bool) -> str:
    if name in taken:
        return "is there already"
    if is_trial:
        return "would be added"
    try:
        way.call("mcp.add", {"name": name, "entry": entry})
    except OwlError as error:
        return f"not added: {error}"
    return "added"


# -- logging in -------------------------------------------------------------------------------------


def login(args: argparse.Namespace, home: Home) -> int:
    """Log in with the person's browser; where that is another machine, its last address is pasted here."""
    if args.answer:
        once(home, "mcp.auth", {"server": args.server, "address": args.answer})
        return show(args, {"server": args.server}, "handed over")
    with connected(home) as way:
        done = way.call("mcp.auth", {"server": args.server}, lambda name, told: _show_address(home, name, told, args.json))
    return show(args, done, f"logged in to {args.server}" if done["is_needed"] else f"{args.server} wants no login")


def _show_address(home: Home, name: str, told: dict[str, Any], is_json: bool) -> None:
    if name != "mcp.authorize":
        return
    if is_json:
        print(json.dumps(told), file=sys.stderr, flush=True)
        return
    print(f"open this address and log in:\n\n  {escape_invisible(told['address'], 'exact')}\n", file=sys.stderr, flush=True)
    if sys.stdin.isatty():
        print("if the browser runs elsewhere, paste the address here that it shows after the login:", file=sys.stderr, flush=True)
        threading.Thread(target=_read_answer, args=(home, told["server"]), daemon=True).start()


def _read_answer(home: Home, server: str) -> None:
    line = sys.stdin.readline().strip()
    if line:
        try:
            once(home, "mcp.auth", {"server": server, "address": line})
        except OwlError as error:
            terminal.complain(error)


# -- helpers of all of them -------------------------------------------------------------------------


def _parse_texts(text: str) -> dict[str, str]:
    return {name: str(value) for name, value in read_object(text).items()}


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _split_pair(text: str, mark: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    if not found or not name.strip():
        raise BadInput(f"{option} {text[:40]!r} has no {mark}", hint=f"write NAME{mark}VALUE")
    return name.strip(), value.strip()


def _absolute_paths(paths: list[str]) -> list[str]:
    return [path if path.startswith("/") else os.path.abspath(os.path.expanduser(path)) for path in paths]


def _shorten_text(text: str, limit: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _tell_removed(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    return [f"{'would remove' if args.dry_run else 'removed'} {line}" for line in done["removed"]]


def _tell_index(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    note = [done["note"]] if done["note"] else []
    return [f"{done['tools']} tools of {done['servers']} servers, {done['vectors']} vectors made", *note]


def _tell_logout(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    return [f"the login to {args.server} is gone" if done["is_changed"] else f"there was no login to {args.server}"]


def _add_login(made: argparse.ArgumentParser) -> None:
    made.add_argument("server")
    made.add_argument("--answer", default="", metavar="ADDRESS", help="the final address, for a login that waits elsewhere")


def _add_import(made: argparse.ArgumentParser) -> None:
    made.add_argument("file", nargs="?", default="", help="its file; default: the usual places")
    made.add_argument("--dry-run", action="store_true", help="only show what would be added")


WORDS = {
    "tool": "its name there; without one, the server",
    "name": "as `mcp servers` shows it",
    "dry_run": "only show what would be removed",
    "keep_auth": "keep its secrets and its login",
}
SEARCH = Verb("search", "tool mcp_list_tools", "query+ --keyword-only --semantic-only --limit", text="search tools for a purpose")
# fmt: off
NOUNS = (
    Noun("mcp", "MCP tool servers", (
        Verb("servers", "mcp.servers", text="list servers with their state", says=_tell_servers),
        Verb("list", "tool mcp_list_tools", "server? --fresh", text="list tools of servers"),
        Verb("ping", "mcp.ping", "server?", text="check whether servers answer", says=_tell_pings,
             code=lambda found: int(any("error" in one for one in found))),
        Verb("add", text="add a server", handler=add_server, adds=_add_options),
        Verb("remove", "mcp.remove", text="remove a server with its index and secrets", says=_tell_removed, helps=WORDS),
        Verb("auth", text="log in to a remote server", handler=login, adds=_add_login),
        Verb("deauth", "mcp.deauth", text="log out of a server", says=_tell_logout),
        SEARCH,
        Verb("info", "tool mcp_info", "server tool?", text="show a tool with its arguments, or what a server says of itself",
             helps=WORDS),
        Verb("exec", "tool mcp_exec", "server tool arguments=args?", text="call a tool of a server", handler=execute,
             reads={"arguments": read_object},
             helps={"tool": "its name there, as `mcp list` shows it", "arguments": "a JSON object; - reads it from a pipe"}),
        Verb("import-global", text="import servers from another program's configuration", handler=import_servers, adds=_add_import),
        Verb("index", "mcp.index", text="refresh the index of tools", says=_tell_index),
        Verb("resource", "mcp.read", "server uri=name?", fixed={"kind": "resource"}, says=_tell_offered,
             text="read a resource of a server; without an address, list them"),
        Verb("prompt", "mcp.read", "server name? arguments?", fixed={"kind": "prompt"},
             text="fill in a prompt of a server; without a name, list them", says=_tell_offered,
             reads={"arguments": _parse_texts}, helps={"arguments": "a JSON object of texts"}),
        Verb("task", "mcp.task", "action server task?", text="long-running tasks of a server",
             says=lambda args, found: json.dumps(found, ensure_ascii=False, indent=2),
             helps={"action": "what to do with them", "task": "its id"}),
    ), first="servers"),
)
