"""The commands about roles and delegated work: `owlbox role` and `owlbox job`.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
from collections.abc import Callable
from typing import Any

from appliance.cli.console.terminal import Table, say, say_json, say_line, show
from appliance.cli.console.tool_command import once
from appliance.errors import BadInput
from appliance.runtime.paths import Home

JOB = "its id, as `job list` shows it"
Command = Callable[..., argparse.ArgumentParser]
STATES = ("waiting", "running", "done", "failed", "cancelled")


def add(command: Command) -> None:
    """Add both groups."""
    root = command("role", choose, "as whom models work")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    command("list", roles, "every role as it holds now", known)
    command("view", role, "one role: tools, caps, words", known).add_argument("name", help="as `role list` shows it")
    root = command("job", choose, "work that was handed to a role")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    listing = command("list", jobs, "newest first", known)
    listing.add_argument("--status", default="", choices=STATES, help="only in this state")
    listing.add_argument("--limit", type=int, default=20)
    command("view", job, "what was asked and what came of it", known).add_argument("id", help=JOB)
    command("stop", stop, "end the work on it; what it has completed stays", known).add_argument("id", help=JOB)


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint="list, or view and the name of a role or job")


def roles(args: argparse.Namespace, home: Home) -> int:
    """A table of the roles."""
    found = once(home, "role.list", {})
    rows = [
        [
            one["name"],
            "yours" if one["is_own"] else "",
            one["pool"] or "-",
            str(one["max_turns"]),
            _count_tools(one),
            one["description"],
        ]
        for one in found
    ]
    return show(args, found, Table(rows, ["role", "file", "pool", "turns", "tools", "about"], ["about"]))


def role(args: argparse.Namespace, home: Home) -> int:
    """Everything about one role."""
    found = once(home, "role.view", {"name": args.name})
    if args.json:
        return say_json(found)
    say_line(": ".join(part for part in (found["name"], found["description"]) if part))
    facts = {
        "file": f"box/roles/{found['name']}.md" if found["is_own"] else "the one that ships",
        "preset": found["preset"] if found["name"] == "assistant" else "",
        "pool": found["pool"] or "the default one",
        "turns": found["max_turns"] or "as runs.max_turns says",
        "temperature": "as models.temperature says" if found["temperature"] is None else f"{found['temperature']:g}",
        "seconds": f"{found['timeout_s']:g}" if found["timeout_s"] else "",
        "tools": ", ".join(found["tools"]),
        "shown": ", ".join(found["menu"]),
        "documents": "all" if found["documents"] is None else ", ".join(found["documents"]),
        "sandbox": found["sandbox"],
    }
    for name, fact in facts.items():
        if fact:
            say_line(f"{name}: {fact}")
    for problem in found["problems"]:
        say_line(f"problem: {problem}")
    if found["text"]:
        say(f"\n{found['text']}")
    return 0


def jobs(args: argparse.Namespace, home: Home) -> int:
    """A table of jobs."""
    found = once(home, "job.list", {"status": args.status, "limit": args.limit})
    rows = [[j["id"], j["role"], j["status"], f"{j['duration_s']:.1f} s", " ".join(j["task"].split())] for j in found]
    return show(args, found, Table(rows, ["job", "role", "state", "took", "task"], ["task"], empty="no jobs"))


def job(args: argparse.Namespace, home: Home) -> int:
    """Everything about one job."""
    return _print_role(args, once(home, "job.view", {"id": args.id}))


def stop(args: argparse.Namespace, home: Home) -> int:
    """Stop one."""
    return _print_role(args, once(home, "job.stop", {"id": args.id}))


def _print_role(args: argparse.Namespace, found: dict[str, Any]) -> int:
    if args.json:
        return say_json(found)
    tries = f"{found['attempts']} attempt{'s' if found['attempts'] != 1 else ''}"
    say_line(f"job {found['id']}: {found['role']}, {found['status']} after {found['duration_s']:.1f} s, {tries}")
    say(f"asked: {found['task']}")
    if found["run"]:
        say_line(f"thread: {found['run']}")
    if found["result"]:
        say(f"result: {found['result']}")
    return 0


def _count_tools(one: dict[str, Any]) -> str:
    return "all" if one["tools"] is None else str(len(one["tools"]))
