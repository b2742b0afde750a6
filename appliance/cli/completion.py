"""`owlbox completion`: the script that completes command lines in a shell, and the names that it asks for.

The scripts and the man page are made from the command line when they are asked for (`reference.shells`). Names come
from a core that runs; none is started for them, and where none runs nothing is completed.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.console.parser import Command
from appliance.console.terminal import say, say_json
from appliance.errors import BadInput, OwlError
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client, read_identity
from appliance.text.invisible import escape_invisible

SHELLS = ("bash", "zsh", "fish")
ANSWER_S = 2.0  # nobody waits longer for a key
ABOUT_CHARS = 60
Call = Callable[[str, dict[str, Any]], Any]
Rows = list[tuple[str, str]]  # names, and what they are
Names = Callable[[Home], Rows]


def add(command: Command) -> None:
    """Add the command."""
    made = command("completion", complete, "completion script for bash, zsh or fish, and the man page")
    made.add_argument("what", choices=[*SHELLS, "man", "names"], help="a shell; man for the page of `man`; names for the scripts")
    made.add_argument("kind", nargs="?", default="", help="whose names: thread, task, role and so on")


def complete(args: argparse.Namespace, home: Home) -> int:
    """Print a script, the man page, or names with what they are, a line each."""
    if args.what != "names":
        say(make_texts()[args.what].rstrip("\n"))
        return 0
    if args.kind not in KINDS:
        raise BadInput(f"unknown kind {args.kind!r}", hint=f"there are {', '.join(sorted(KINDS))}")
    rows = KINDS[args.kind](home)
    if args.json:
        return say_json(dict(rows))
    for name, about in rows:
        shown = escape_invisible(" ".join(about.split()), "line")[:ABOUT_CHARS]
        print(f"{escape_invisible(name, 'line')}\t{shown}".rstrip())
    return 0


def make_texts() -> dict[str, str]:
    """The script of each shell, and the man page under `man`."""
    from appliance.cli import main
    from appliance.reference import man_page, shells

    whole = main.whole_parser()
    return {**shells.scripts(whole), "man": man_page.man_page(whole)}


def write_texts(folder: str) -> None:
    """Write all of them into a folder, for `systemd/install.sh`."""
    for name, text in make_texts().items():
        Path(folder, name).write_text(text, encoding="utf-8")


def _asked(read: Callable[[Call], Rows]) -> Callable[[Home], Rows]:
    """Names that a running core is asked for; none without one, or when it does not answer in time."""

    def names(home: Home) -> Rows:
        try:
            path = paths.find_core(home, os.environ)
            with Client(str(path), name="cli", timeout_s=ANSWER_S, identity=read_identity(os.environ)) as client:
                return read(lambda method, params: client.call(method, params, deadline_s=ANSWER_S))
        except (OwlError, OSError):
            return []

    return names


def _listing(
    method: str, name: str, about: str = "", params: dict[str, Any] | None = None, within: str = ""
) -> Callable[[Home], Rows]:
    """Names of a method that lists things."""

    def read(call: Call) -> Rows:
        found = call(method, params or {})
        return [(str(one[name]), str(one[about] or "") if about else "") for one in (found[within] if within else found)]

    return _asked(read)


def _tool_listing(tool: str, within: str, name: str) -> Callable[[Home], Rows]:
    """Names of a tool that lists things."""

    def read(call: Call) -> Rows:
        found = call("tool.call", {"name": tool, "arguments": {}})["data"][within]
        return [(str(one["id"]), str(one[name])) for one in found]

    return _asked(read)


def _read_keys(home: Home) -> Rows:
    """Keys of the configuration."""
    from appliance.runtime import config

    return [(key, known.doc) for key, _, _, known in config.listed(config.load(home, os.environ))]


def _read_commands(home: Home) -> Rows:
    from appliance.console import tool_command

    return tool_command.commands()


KINDS: dict[str, Callable[[Home], Rows]] = {
    "thread": _listing("thread.list", "id", "title", {"limit": 50}),
    "task": _tool_listing("list_tasks", "tasks", "name"),
    "schedule": _tool_listing("list_schedules", "schedules", "name"),
    "role": _listing("role.list", "name", "description"),
    "job": _listing("job.list", "id", "", {"limit": 50}),
    "worker": _listing("worker.list", "id"),
    "session": _listing("session.list", "id", "context"),
    "person": _listing("people.list", "name", "rights"),
    "group": _asked(lambda call: [(name, " ".join(members)) for name, members in call("group.list", {}).items()]),
    "skill": _listing("skill.list", "name", "description"),
    "server": _listing("mcp.servers", "name", within="servers"),
    "secret": _listing("secret.list", "name", within="secrets"),
    "tool": _listing("tool.list", "name", "group"),
    "document": _listing("document.list", "name"),
    "entry": _listing("entry.list", "ref", "title", {"limit": 200}),
    "method": _asked(lambda call: [(name, one["doc"].split("\n")[0]) for name, one in call("discover", {})["methods"].items()]),
    "model": lambda home: [(path.stem, "") for path in sorted(home.models.glob("*.gguf"))],
    "key": _read_keys,
    "command": _read_commands,
}
