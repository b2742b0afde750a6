"""How a run stands, in one shape whoever asks and however it ended: what was asked, what it touched, what it took.

Everything is computed from what is stored, so that a run that was stopped or cut off by a crash has the same shape as any other.
"""

import json
from typing import Any

from appliance.channels.inbox import Notify
from appliance.knowledge.views import Touched, Views
from appliance.records import Event
from appliance.sessions.runs import RUNNING, Runs
from appliance.sessions.turns import telemetry

MAX_HISTORY = 500  # entries, the newest
MAX_BODY = 4000  # characters of each
MAX_SUMMARY = 500  # characters of an answer that ended without an update
UPDATE, UNKNOWN = "update://", "unknown://"


class RunStates:
    """Describes runs."""

    def __init__(self, runs: Runs, views: Views) -> None:
        self._runs = runs
        self._views = views

    def describe(self, run: str, *, is_under_way: bool = False) -> dict[str, Any]:
        """The state of a run; `is_under_way`: a command was carried out and the turn goes on, which has no telemetry yet."""
        found = self._runs.get(run)
        touched = self._views.touched(found.id, MAX_HISTORY)
        updates = [one.body for one in touched if one.path.startswith(UPDATE)]
        said = self._runs.record.path(found.head, kinds=("message",), limit=MAX_HISTORY)
        answers = [event.content for event in said if event.role == "assistant" and event.run == found.id]
        history = [*map(_describe_entry, touched), *(_describe_prompt(event) for event in said if event.role == "user")]
        unknowns = [{"path": one.path, "body": one.body} for one in touched if one.path.startswith(UNKNOWN)]
        return {
            "run": found.id,
            "alias": found.alias,
            "turn": self._runs.moment(found.id)[1],
            "status": RUNNING if is_under_way else found.status,
            "outcome": found.outcome,
            "summary": updates[-1] if updates else answers[-1][:MAX_SUMMARY] if answers else "",
            "history": sorted(history, key=lambda one: int(one["at_ms"]))[-MAX_HISTORY:],
            "unknowns": unknowns,
            "telemetry": None if is_under_way else telemetry(self._runs.turns(found.id)),
        }

    def follow(self, run: str, notify: Notify) -> Notify:
        """The same `notify`, which also sends `state` after each command's result and after each turn."""
        turn: int | None = None

        def tell(name: str, params: dict[str, Any]) -> None:
            nonlocal turn
            notify(name, params)
            if name != "event":
                return
            is_result = params["kind"] == "tool_result"
            if turn is not None and params["turn"] is not None and params["turn"] != turn and not is_result:
                notify("state", {**self.describe(run), "status": RUNNING})
            turn = params["turn"] if params["turn"] is not None else turn
            if is_result:
                notify("state", self.describe(run, is_under_way=True))

        return tell


def _describe_prompt(event: Event) -> dict[str, Any]:
    """A person's message as a line of the history."""
    body = event.content if len(event.content) <= MAX_BODY else f"{event.content[:MAX_BODY]}…"
    return {
        "tool": "prompt",
        "path": f"prompt://{event.seq}",
        "status": 200,
        "body": body,
        "turn": event.turn or 0,
        "attributes": "{}",
        "at_ms": event.at_ms,
    }


def _describe_entry(one: Touched) -> dict[str, Any]:
    """One line of the history; of an action's log entry the tool is in its path."""
    attributes = json.loads(one.attributes)
    scheme = one.path.partition("://")[0] if "://" in one.path else "file"
    return {
        "tool": str(attributes.get("action") or attributes.get("tool") or scheme),
        "path": one.path,
        "status": one.status,
        "body": one.body if len(one.body) <= MAX_BODY else f"{one.body[:MAX_BODY]}…",
        "turn": one.turn,
        "attributes": one.attributes,
        "at_ms": one.updated_ms,
    }
