"""What the program writes itself where a tiny or small model would have to: a report of tasks, and the tasks of a text.

Pure, but for the list that a tool answered with. Nothing is added to the words of the tasks or of the text.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from appliance.language.languages import Language
from appliance.language.todo_lines import find_todos

MOST = 3  # tasks of each kind
RANKS = {"high": 0, "medium": 1, "low": 2}
STUCK = ("waiting", "failed")


def write_standup(tasks: Sequence[Mapping[str, Any]], now: datetime, language: Language) -> str:
    """Three lines: what was done since the last working day began, what comes next, what waits or failed."""
    since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days={0: 3, 6: 2}.get(now.weekday(), 1))
    done = [one for one in tasks if one["status"] == "complete" and (one["ended_ms"] or 0) >= since.timestamp() * 1000]
    stuck = [one for one in tasks if one["status"] in STUCK]
    ready = [one for one in tasks if one["status"] in ("pending", "in_progress") and not one["open_blockers"]]
    ready.sort(key=lambda one: (one["status"] != "in_progress", RANKS.get(one["priority"], 1), one["id"]))
    parts = (("done_line", done), ("next_line", ready), ("stuck_line", stuck))
    nothing = language.say("nothing_word")
    return "\n".join(language.say(key, text=", ".join(one["name"] for one in some[:MOST]) or nothing) for key, some in parts)


def write_todos(text: str, language: Language) -> str:
    """What a text says is to be done, numbered, and how to keep one of it."""
    found = find_todos(text)
    if not found:
        return language.say("no_todos")
    lines = (f"{number}. {one}" for number, one in enumerate(found, 1))
    return "\n".join([language.say("todos"), *lines, language.say("keep_todo")])
