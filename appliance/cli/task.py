"""The commands about tasks: `owlbox task add`, `list`, `view` and the rest, made from the tools for them.

What is added here: numbers and references that repeat or come in one word, and following a task until it ends.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

from appliance.console import terminal, tool_command
from appliance.console.connect import Reach, connected
from appliance.console.terminal import say, say_json, say_line
from appliance.console.verbs import Noun, Verb, call
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

WATCH = "follow a task until it ends; exit code 0 complete, 1 failed, 5 waits for you"
TEXT = 200  # characters of a tool's arguments or result that `watch` shows
WAITS = 5
ENDS = {"complete": 0, "failed": 1, "waiting": WAITS}


def _parse_numbers(words: list[str]) -> list[int]:
    """Numbers of tasks, several of which may stand in one word: `1,2`; an empty one is none."""
    parts = [part.strip().removeprefix("#") for word in words for part in word.split(",") if part.strip()]
    if wrong := [part for part in parts if not part.isdecimal()]:
        raise BadInput(f"{wrong[0]!r} is not a task's number", hint="give numbers, several with commas")
    return [int(part) for part in parts]


def _split_refs(words: list[str]) -> list[str]:
    """References, several of which may stand in one word."""
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


def _describe_state(task: dict[str, Any]) -> str:
    is_blocked = task["status"] == "pending" and task["open_blockers"]
    return "blocked" if is_blocked else str(task["status"]).replace("_", " ")


# -- following --------------------------------------------------------------------------------------


def view(args: argparse.Namespace, home: Home) -> int:
    """Print one task, or follow it."""
    return show_until_it_ends(args, home) if args.follow else call(args, home, args.verb, {"id": args.id})


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
    for one in task["tries"]:
        thread = one["run"]
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


def _add_follow(made: argparse.ArgumentParser) -> None:
    made.add_argument("--follow", action="store_true", help="keep showing changes until it ends")
    made.set_defaults(interval=500)


def _add_watch(made: argparse.ArgumentParser) -> None:
    made.add_argument("id", type=int, help="the task's number")
    made.add_argument("--interval", type=int, default=500, metavar="MS", help="milliseconds between checks")


MANY: dict[str, Callable[[Any], Any]] = {"blocked_by": _parse_numbers, "context": _split_refs}
# fmt: off
NOUNS = (
    Noun("task", "background tasks", (
        Verb("add", "tool create_task", "name+ --description --priority --blocked-by --deadline --context=context_ids", reads=MANY),
        Verb("update", "tool update_task", "id --name --description --priority --blocked-by --deadline", reads=MANY),
        Verb("delete", "tool delete_task"),
        Verb("list", "tool list_tasks", part="tasks", rows="id state=status priority created=created_ms name~", empty="no tasks",
             cells={"status": _describe_state}),
        Verb("view", "tool view_task", handler=view, adds=_add_follow),
        Verb("reset", "tool update_task", "id", text="begin a task anew", fixed={"status": "pending"}),
        Verb("cancel", "tool update_task", "id", text="give a task up, even one at work", fixed={"status": "cancelled"}),
        Verb("done", "tool update_task", "id", text="mark a task as done by yourself", fixed={"status": "complete"}),
        Verb("watch", text=WATCH, handler=show_until_it_ends, adds=_add_watch),
    )),
)
