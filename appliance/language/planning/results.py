"""What the program writes itself: what a tool has done, a report of tasks, the tasks of a text, its summary.

What was done is told in the language of the person: a tool's own words are for models, and English; a result whose tool is not
known here is told in them. Nothing is added to the words of the tasks or of the text: a summary is made of its own sentences, those
that hold the words which the text uses most, in their order.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from appliance.clock import now_ms
from appliance.language import sentences
from appliance.language.items import find_todos
from appliance.language.languages import Language
from appliance.language.planning.plans import Do, Plan, Say, answer_of, shown_source, tool_call
from appliance.language.router import Intent
from appliance.language.times import dates, recurrence, timezones
from appliance.language.word_forms import stem
from appliance.records import Outcome, ToolCall

MOST_LISTED = 30
MOST_TIMES = 3  # of what repeats, so that a person sees how often it comes
Told = Callable[[Language, Mapping[str, Any], Mapping[str, Any]], str]


def do(call: ToolCall, intent: Intent, name: str = "", said: Plan | None = None) -> Do:
    """A call whose result is told, to the thing of this name; `said` is told instead where it went well and is done."""

    def say(outcome: Outcome) -> Plan:
        is_done = not outcome.is_error and "held" not in (outcome.data or {})
        return said if said is not None and is_done else told(call, outcome, intent, name)

    return Do(call, say)


def set_priority(task: Mapping[str, Any], level: str, intent: Intent) -> Do:
    """A task becomes as urgent as was said."""
    call = tool_call("update_task", id=task["id"], priority=level)
    return do(call, intent, said=Say(intent.language.say("priority_set", text=task["name"], level=level)))


def told(call: ToolCall, outcome: Outcome, intent: Intent, name: str = "") -> Say:
    """What a call has done, to the thing of this name where the result does not say it; why it failed, in a sentence."""
    tell, data = TOLD.get(call.name), {"name": name, **(outcome.data or {})}
    if outcome.is_error or tell is None or not (outcome.data or name) or "held" in data:
        return answer_of(outcome, intent)
    return Say(tell(intent.language, call.arguments, data))


def spelled_time(at_ms: int, zone: str, language: Language) -> str:
    """A moment in words: "Monday, 30 November 2026, 09:00", with its zone where that is not the box's own."""
    at = datetime.fromtimestamp(at_ms / 1000, timezones.find(zone))
    said = f"{dates.spelled(at, language)}, {at:%H:%M:%S}".removesuffix(":00" if not at.second else "")
    return said if zone == timezones.LOCAL else f"{said} ({zone})"


def reminder_lines(schedules: Sequence[Mapping[str, Any]], language: Language) -> list[str]:
    """What is set, each on a line with its next time."""
    again = f" {language.say('and_again')}"
    return [
        f"- {_next_time(one, language)}{again if one['kind'] in recurrence.REPEATED else ''}: {one['name']}" for one in schedules
    ]


def say_reminders(outcome: Outcome, intent: Intent) -> Say:
    """What is set, soonest first."""
    lines = reminder_lines((outcome.data or {}).get("schedules", ()), intent.language)
    if outcome.is_error:
        return answer_of(outcome, intent)
    return Say("\n".join(lines) or intent.language.say("no_reminders"))


# -- inside -----------------------------------------------------------------------------------------


def _next_time(one: Mapping[str, Any], language: Language) -> str:
    return spelled_time(one["next_ms"], one["zone"], language) if one["next_ms"] else str(one["words"])


def _tell_schedule(language: Language, said: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    one = data["schedule"]
    if one["kind"] == "once" and one["next_ms"]:
        return language.say("reminder_set", when=_next_time(one, language), text=one["name"])
    if one["kind"] not in recurrence.REPEATED:
        return language.say("reminder_repeats", text=one["name"], times=one["words"])
    rule = recurrence.make_rule(one["kind"], one["spec"], one["zone"], one["condition"])
    ahead = [spelled_time(ms, one["zone"], language) for ms in recurrence.upcoming(rule, now_ms(), MOST_TIMES)]
    return language.say("reminder_repeats", text=one["name"], times="; ".join(ahead))


def _tell_note(phrase: str) -> Told:
    return lambda language, said, data: language.say(
        phrase, ref=shown_source(data["path"]), text="; ".join(said["text"].split("\n"))
    )


TOLD: Mapping[str, Told] = {
    **dict.fromkeys(("remind", "create_schedule", "update_schedule"), _tell_schedule),
    "create_task": lambda language, said, data: language.say("task_added", text=data["name"]),
    "finish_task": lambda language, said, data: language.say("done_line", text=data["name"]),
    "delete_task": lambda language, said, data: language.say("task_gone", text=data["name"]),
    "delete_schedule": lambda language, said, data: language.say("reminder_gone", text=data["name"]),
    "remember": lambda language, said, data: language.say("kept", text=said["text"]),
    "write_note": _tell_note("note_written"),
    "append_note": _tell_note("note_added"),
}

# -- reports ----------------------------------------------------------------------------------------

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


WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
HEADING = re.compile(r"^#{1,6}\s.*$", re.MULTILINE)
FIRST = 1.3  # what the first sentence counts, which often says what the text is about
MAX_CHARS = 400


def summary(text: str, ignored: Collection[str], most: int = 3, max_chars: int = MAX_CHARS) -> str:
    """At most so many sentences of a text, and as many characters; always one, "" for a text without any."""
    said = [one for one in dict.fromkeys(sentences.split(HEADING.sub("", text))) if WORD.search(one) and not one.endswith(",")]
    if len(said) <= 1:
        return "".join(said)
    words = [[stem(w.lower()) for w in WORD.findall(one) if w.lower() not in ignored] for one in said]
    counts = Counter(word for line in words for word in set(line))

    def weight(place: int) -> float:
        line = words[place]
        own = sum(counts[word] for word in set(line)) / (len(line) + 3) if line else 0.0  # 3: a sentence of one word says little
        return own * (FIRST if place == 0 else 1.0)

    chosen: list[int] = []
    for place in sorted(range(len(said)), key=lambda one: (-weight(one), one)):
        if chosen and sum(len(said[one]) + 1 for one in (*chosen, place)) > max_chars:
            continue
        chosen.append(place)
        if len(chosen) == most:
            break
    return " ".join(_close_sentence(said[place]) for place in sorted(chosen))


def _close_sentence(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", "…", ":", ";")) else f"{sentence}."
