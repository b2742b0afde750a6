"""Asks the small model whether a schedule that is written in free words is due, and what is to be done then.

One question for each due window. An answer that makes no sense means that it is not due; what is missing in a task is
made up as far as that is harmless. Owns nothing and records nothing; who may ask, and how often, is `schedules`.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import CancelToken
from appliance.models import failover
from appliance.policy.taint_marks import Marks
from appliance.records import Ask, Cancel, Finish, Marked, Message, Model, Part
from appliance.text.fences import fenced
from appliance.work import rules_in_words
from appliance.work.schedules import Schedule

POOL = "small"
PRIORITIES = ("low", "medium", "high")
UNTITLED = "Untitled"
MAX_TASKS = 20
MAX_TOKENS = 400
DEADLINE_S = 240.0  # less than a claim may be old
KNOWN_CHARS = 1500
ASKED = """You decide whether a schedule is due now. Answer with one JSON object and nothing else:
{"isDue": true or false, "reasoning": "one sentence", "tasks": [
  {"name": "...", "description": "...", "priority": "medium", "depends_on": []}]}
It is due when the current time fits its frequency, it was not done for this time already, and no exception of it holds.
"tasks" are what is to be done when it is due; depends_on holds the places, from 0, of tasks in this list that come before."""


class WantedTask(Struct, frozen=True):
    """A task that is to be made; `depends_on` are places in the list that it stands in."""

    name: str
    description: str = ""
    priority: str = "medium"
    depends_on: tuple[int, ...] = ()


class ConditionVerdict(Struct, frozen=True):
    """Whether a schedule is due, why, and which tasks it makes; `marks` are those of what the model was shown."""

    is_due: bool
    reasoning: str = ""
    tasks: tuple[WantedTask, ...] = ()
    marks: Marked = ()


def nothing(text: str) -> str:
    """Nothing is known about it."""
    return ""


class Judge:
    """Asks a model; `known` gives passages that are known about a text, `marked` the marks of such passages."""

    def __init__(
        self,
        model: Model,
        known: Callable[[str], str] = nothing,
        marked: Callable[[str], Marked] = lambda text: (),
        marks: Marks | None = None,
    ) -> None:
        """With `marks` a verdict's marks are recorded."""
        self._model = model
        self._known = known
        self._marked = marked
        self._marks = marks
        self._cancel = CancelToken()

    def judge(self, schedule: Schedule, now: int) -> ConditionVerdict:
        """The verdict on a schedule that is due, with its marks recorded: its reason is stored as the outcome of the firing."""
        verdict = self.ask(schedule, now, self._cancel)
        if self._marks is not None:
            self._marks.take(f"firing:{schedule.ref}", verdict.marks)
        return verdict

    def close(self) -> None:
        """Give up what is being judged."""
        self._cancel.set()

    def ask(self, schedule: Schedule, now: int, cancel: Cancel | None = None) -> ConditionVerdict:
        """The verdict on a schedule; an error of ours when no model can be asked."""
        routes = self._model.plan(POOL)
        known = self._known(f"{schedule.rule.condition or schedule.frequency} {schedule.name}"[:500]).strip()
        ask = Ask(
            system=(Part("instructions", ASKED),),
            messages=(Message("user", self.question(schedule, now, known[:KNOWN_CHARS])),),
            dialect=routes[0].dialect,
            slot="schedules",
            purpose="schedule",
            is_background=True,
            temperature=0.0,
            max_tokens=MAX_TOKENS,
            deadline_s=DEADLINE_S,
            person=schedule.person,
        )
        text = ""
        for piece in failover.generate(self._model, routes, ask, cancel or CancelToken()):
            if not isinstance(piece, Finish) and not piece.is_reasoning:
                text += piece.text
        return replace(read(text), marks=self._marked(known) if known else ())

    def question(self, schedule: Schedule, now: int, known: str = "") -> str:
        """What is asked about a schedule; `known` are passages about it."""
        zone, state = schedule.rule.zone, schedule.state
        last = "never" if state.last_run_ms is None else rules_in_words.moment(state.last_run_ms, zone)
        lines = [
            f"Schedule: {schedule.name}",
            f"Description: {schedule.description or '-'}",
            f"Frequency: {schedule.frequency or schedule.rule.condition or schedule.rule.spec}",
            f"Last done: {last}",
            f"Current time: {rules_in_words.moment(now, zone)}",
        ]
        if schedule.rule.condition:
            lines.append("The time of day and the day fit already; only the exception or condition is to be judged.")
        return "\n".join([*lines, *(["What is known:", fenced("notes", known)] if known else [])])


def read(answer: str) -> ConditionVerdict:
    """The verdict in a model's answer, with a code fence or words around it or not; not due when there is none."""
    found = _first_object(answer)
    if found is None or not isinstance(found.get("isDue"), bool):
        return ConditionVerdict(False, "the answer of the model could not be used")
    tasks = found.get("tasks")
    wanted = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    made = tuple(_parse_task(task, place, len(wanted[:MAX_TASKS])) for place, task in enumerate(wanted[:MAX_TASKS]))
    return ConditionVerdict(found["isDue"], str(found.get("reasoning") or ""), made)


def _parse_task(task: dict[str, Any], place: int, count: int) -> WantedTask:
    name = " ".join(str(task.get("name") or "").split())[:200] or UNTITLED
    priority = str(task.get("priority") or "").lower()
    after = task.get("depends_on")
    places = [one for one in after if type(one) is int and 0 <= one < count and one != place] if isinstance(after, list) else []
    earlier = tuple(dict.fromkeys(one for one in places if one < place))  # a later one may wait for this: no circles
    return WantedTask(name, str(task.get("description") or ""), priority if priority in PRIORITIES else "medium", earlier)


def _first_object(answer: str) -> dict[str, Any] | None:
    """The first JSON object of a text."""
    decoder = json.JSONDecoder()
    for start in re.finditer(r"\{", answer):
        try:
            value, _ = decoder.raw_decode(answer, start.start())
        except ValueError:
            continue
        if isinstance(value, dict):
            inner = value.get("arguments")
            return inner if isinstance(inner, dict) and "isDue" not in value else value
    return None
