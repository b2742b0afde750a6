"""The commands about tasks: `owlbox task add`, `list`, `view`, `watch` and the rest, made from the tools' signatures.

Each but `watch` is one tool, called as `tool.call` whether a core runs or not. What is added here: numbers and
references that repeat or come in one word, tables, following a task until it ends, exit codes.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from appliance.cli.console import terminal, tool_command
from appliance.cli.console.connect import Reach, connected
from appliance.cli.console.terminal import say, say_json, say_line, show
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

ABOUT = "work that is done later, in the background"
WATCH = "follow a task until it ends; the exit code is 0 when it is complete, 1 when it failed, 5 when it waits for a person"
TEXT = 200  # characters of a tool's arguments or result that `watch` shows
WAITS = 5
ENDS = {"complete": 0, "failed": 1, "waiting": WAITS}

Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the group with one command for every tool that names one in it."""
    root = command("task", show_list, ABOUT)
    root.set_defaults(tool="list_tasks", fields=())
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    for made in tool_command.tool_commands("task"):
        word = made.command.partition(" ")[2]
        one = command(word, HANDLERS.get(word, call), made.description, known)
        one.set_defaults(tool=made.tool, fields=tuple(option.name for option in made.options))
        for field in made.options:
            if field.name in MANY:
                option, kind = MANY[field.name]
                one.add_argument(option, dest=field.name, action="append", type=kind, metavar="A,B", help=field.help)
            else:
                tool_command.add_option(one, field, many=("name",))
    known.choices["view"].set_defaults(handler=view, interval=500)
    known.choices["view"].add_argument("--follow", action="store_true", help="go on until it ends, as task watch does")
    watch = command("watch", show_until_it_ends, WATCH, known)
    watch.add_argument("id", type=int, help="the task's number")
    watch.add_argument("--interval", type=int, default=500, metavar="MS", help="pause between looks")


def _parse_numbers(text: str) -> list[int]:
    """Numbers of tasks in one word: `1,2`; an empty one is none."""
    try:
        return [int(part.strip().removeprefix("#")) for part in text.split(",") if part.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a task's number, or several with commas") from None


def _split_refs(text: str) -> list[str]:
    """References in one word, each of which may be the only one."""
    return [part.strip() for part in text.split(",") if part.strip()]


# Arguments that may be given several times, or several in one word.
MANY: dict[str, tuple[str, Callable[[str], list[Any]]]] = {
    "blocked_by": ("--blocked-by", _parse_numbers),
    "context_ids": ("--context", _split_refs),
}


# -- commands ---------------------------------------------------------------------------------------


def call(args: argparse.Namespace, home: Home) -> int:
    """Call the tool with the arguments and print what it answers."""
    outcome = tool_command.ask_once(home, args.tool, _tool_arguments(args))
    if outcome["data"] is None:
        raise NotFound(f"no task {args.id}", hint="owlbox task list shows them")
    return show(args, outcome["data"], outcome["message"])


def show_list(args: argparse.Namespace, home: Home) -> int:
    """Print tasks as a table."""
    from appliance.clock import local_time

    data = tool_command.ask_once(home, args.tool, _tool_arguments(args))["data"]
    if args.json:
        return say_json(data["tasks"])
    if not data["tasks"]:
        say("no tasks")
        return 0
    rows = []
    for task in data["tasks"]:
        state = "blocked" if task["status"] == "pending" and task["open_blockers"] else task["status"]
        rows.append([str(task["id"]), state.replace("_", " "), task["priority"], local_time(task["created_ms"])[:16], task["name"]])
    terminal.table(rows, HEADS, sys.stdout, cut=["name"])
    if data["has_more"]:
        say(f"there are more: --offset {getattr(args, 'offset', 0) + len(rows)}", sys.stderr)
    return 0


HEADS = ["id", "state", "priority", "created", "name"]
HANDLERS: dict[str, Callable[[argparse.Namespace, Home], int]] = {"list": show_list}


def view(args: argparse.Namespace, home: Home) -> int:
    """Print one task, or follow it."""
    return show_until_it_ends(args, home) if args.follow else call(args, home)


def show_until_it_ends(args: argparse.Namespace, home: Home) -> int:
    """Print how a task stands whenever that changes, and what happens in its threads; the exit code is how it ended."""
    from appliance.clock import sleep_s

    if not 50 <= args.interval <= 60_000:
        raise BadInput(f"interval {args.interval} ms", hint="use 50 to 60000")
    with connected(home) as way:
        last: dict[str, Any] = {}
        seen: dict[str, int] = {}
        while True:
            task = tool_command.ask(way, "view_task", {"id": args.id})["data"]
            if task is None:
                raise NotFound(f"no task {args.id}" if not last else f"task {args.id} was deleted")
            state = {name: task[name] for name in ("status", "claimed_by", "open_blockers", "cancel_ms")}
            news = [] if state == last else [{"kind": "task", "id": task["id"], **state, "text": _describe_outcome(task)}]
            last = state
            is_over = task["status"] in ENDS
            for line in (*_new_events(way, task, seen), *news) if is_over else (*news, *_new_events(way, task, seen)):
                _print_event(line, args.json)
            if is_over:
                return ENDS[task["status"]]
            sleep_s(args.interval / 1000)


def _new_events(way: Reach, task: dict[str, Any], seen: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Events of the task's threads that were not told yet; `seen` is how far each was read."""
    for one in task["attempts"]:
        thread = one["thread"]
        if not thread or (one["ended_ms"] is not None and seen.get(thread) == -1):
            continue
        try:
            for page in terminal.pages(way, thread, seen.get(thread, 0)):
                for event in page["events"]:
                    seen[thread] = event["seq"]
                    yield {**event, "attempt": one["number"]}
        except NotFound:
            pass  # a thread may be deleted, the task stays
        if one["ended_ms"] is not None:
            seen[thread] = -1


# -- inside -----------------------------------------------------------------------------------------


def _tool_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """What was given; an option that was not leaves the tool its default."""
    values = {name: getattr(args, name) for name in args.fields}
    for name, value in values.items():
        if name in MANY and value is not None:
            values[name] = [one for some in value for one in some]
        elif isinstance(value, list):
            values[name] = " ".join(value)
    return {name: value for name, value in values.items() if value is not None}


def _print_event(line: dict[str, Any], is_json: bool) -> None:
    if is_json:
        say_json(line)
    elif line["kind"] == "task":
        blocked = f", waits for {line['open_blockers']} other" if line["status"] == "pending" and line["open_blockers"] else ""
        stopping = ", to be cancelled" if line["cancel_ms"] is not None else ""
        worker = f" by worker {line['claimed_by']}" if line["claimed_by"] else ""
        say_line(f"task {line['id']} is {line['status'].replace('_', ' ')}{worker}{blocked}{stopping}")
        if line["text"]:
            say(line["text"])
    else:
        given = json.dumps(line["input"], ensure_ascii=False) if line["kind"] == "tool_use" and line["input"] else line["content"]
        mark = "" if line["status"] < 400 else f" [{line['outcome']}]"
        text = terminal.clipped(" ".join(given.split()), TEXT)
        say(f"  {line['attempt']}.{line['seq']} {line['tool'] or line['role']}{mark}: {text}")


def _describe_outcome(task: dict[str, Any]) -> str:
    """What a task's state has to say."""
    word = {"complete": "output", "failed": "failure", "waiting": "waiting_reason"}.get(task["status"])
    return str(task[word]) if word else ""
