"""The commands about tasks: `owlbox task add`, `list`, `view` and the rest, made from the tools for them.

What is added here: numbers and references that repeat or come in one word.
"""

from collections.abc import Callable
from typing import Any

from appliance.console.verbs import Noun, Verb
from appliance.errors import BadInput


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


MANY: dict[str, Callable[[Any], Any]] = {"blocked_by": _parse_numbers, "context": _split_refs}
# fmt: off
NOUNS = (
    Noun("task", "background tasks", (
        Verb("add", "tool create_task", "name+ --description --priority --blocked-by --deadline --context=context_ids", reads=MANY),
        Verb("update", "tool update_task", "id --name --description --priority --blocked-by --deadline", reads=MANY),
        Verb("delete", "tool delete_task"),
        Verb("list", "tool list_tasks", part="tasks", rows="id state=status priority created=created_ms name~", empty="no tasks",
             cells={"status": _describe_state}),
        Verb("view", "tool view_task"),
        Verb("reset", "tool update_task", "id", text="begin a task anew", fixed={"status": "pending"}),
        Verb("cancel", "tool update_task", "id", text="give a task up, even one at work", fixed={"status": "cancelled"}),
        Verb("done", "tool update_task", "id", text="mark a task as done by yourself", fixed={"status": "complete"}),
    )),
)
