"""`owlbox metrics` and `owlbox logs`: figures for programs, and what all processes wrote about a run."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from appliance.console.connect import require_owner
from appliance.console.terminal import say_json, say_line
from appliance.console.verbs import Verb
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
KNOWN = ("at", "level", "process", "pid", "where", "correlation", "message")


def add(command: Command) -> None:
    """Add what reads files of the home."""
    made = command("logs", logs, "show the logs of all processes, oldest first")
    made.add_argument("--run", default="", metavar="ID", help="only of this run, or of a correlation id")
    made.add_argument("--level", default="", choices=["", "info", "warning", "error"], help="this level and above")
    made.add_argument("--process", default="", metavar="NAME", help="only of this process, such as core or broker")
    made.add_argument("--limit", type=int, default=200)
    made.add_argument("--follow", action="store_true", help="show new lines too, until Ctrl+C")


def logs(args: argparse.Namespace, home: Home) -> int:
    from appliance.service.watching import log_reader

    require_owner(home)
    ids = log_reader.find_ids(home, args.run) if args.run else []
    wanted = log_reader.LogFilter(ids, args.level, args.process)
    for line in log_reader.read(home, wanted, args.limit):
        _show_line(args, line)
    for line in log_reader.follow(home, wanted) if args.follow else ():
        _show_line(args, line)
        sys.stdout.flush()
    return 0


def _show_line(args: argparse.Namespace, line: dict[str, Any]) -> None:
    if args.json:
        say_json(line)
        return
    rest = " ".join(f"{name}={value}" for name, value in line.items() if name not in KNOWN and value not in ("", None, []))
    said = str(line["message"]) + (f"  {rest}" if rest else "")
    say_line(f"{line['at'][11:23]} {line['level']:<7} {line['process']:<8} {line.get('where', '')}: {said}")


NOUNS = (
    Verb(
        "metrics",
        "core.metrics",
        text="show metrics in the format of Prometheus",
        says=lambda args, told: told["text"].splitlines(),
    ),
)
