"""What "cancel that", "make it 9 instead" and "mark it done" mean: the last effect of a conversation, and its change.

The last effect is read from the calls and results that the conversation recorded, never from what a model said. What was made is
looked up before it is changed, so that nothing is done to a thing that is gone. Only a recent effect is meant: one of the turn
before, or of a few turns before when it is asked for in so many words.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.language import items, word_forms
from appliance.language.languages import words_in
from appliance.language.planning.errands import task_arguments
from appliance.language.planning.note_plans import Additions
from appliance.language.planning.plans import Do, Plan, Say, Scene, all_of, answer_of, ask_back, is_of, tool_call
from appliance.language.planning.reminders_and_events import Reminders, rule_of
from appliance.language.planning.results import do, set_priority
from appliance.language.router import LAST, Intent
from appliance.language.times.time_expression import TimeExpression
from appliance.records import Message, Outcome
from appliance.text.references import display

MADE = ("create_task", "remind", "create_schedule", "remember", "write_note", "append_note")
CHANGED = ("finish_task", "update_task", "update_schedule", "delete_task", "delete_schedule", "context_delete", "reset_task")
TIMED = ("remind", "create_schedule", "update_schedule", "delete_schedule")
THINGS = ("items", "task", "what", "fact", "body", "text", "content", "name")  # parts of requests, and arguments of calls
SCHEDULES = ("remind", "create_schedule", "update_schedule")
MOST_TURNS = 3  # of the person since the effect
ENDED = {"finish_task": "done", "delete_task": "drop_task", "delete_schedule": "cancel"}


class Effect(Struct, frozen=True):
    """A call that changed something, and what it made or changed. `turns`: how often the person spoke since."""

    tool: str
    arguments: Mapping[str, Any]
    made: str
    turns: int
    before: "tuple[Effect, ...]" = ()  # the others of the same turn, the newest first


def last_effect(messages: Sequence[Message], sender: str = "") -> Effect | None:
    """The newest effect of a conversation that `sender` may still mean; None when there is none, or another person asked for it."""
    results = {m.tool_call_id: m for m in messages if m.role == "tool" and m.content and not m.is_error}
    turns = 1
    found: list[Effect] = []
    for at, message in reversed([*enumerate(messages)]):
        for call in reversed(message.tool_calls):
            if call.name in MADE + CHANGED and call.id in results:
                if not is_of(sender, messages[:at]):
                    return None
                found.append(Effect(call.name, call.arguments, results[call.id].made, turns))
        if found and message.role == "user":
            return replace(found[0], before=tuple(found[1:]))
        turns += message.role == "user"
        if turns > MOST_TURNS + 1:
            break
    return replace(found[0], before=tuple(found[1:])) if found else None


def pointing(effect: Effect | None) -> tuple[str, ...]:
    """The intents with which the message right behind an effect may mean it."""
    if effect is None or effect.turns != 1:
        return ()
    left_out = (
        {"more_it", "also_it"} if effect.tool == "remember" else {"and_fact", "more_it" if effect.tool in ENDED else "also_it"}
    )
    return (*(name for name in LAST if name not in left_out), "list_it")


def thing_of(parts: Mapping[str, Any]) -> str:
    """What a request, or the call that it became, is about."""
    return next((str(parts[key]) for key in THINGS if parts.get(key)), "")


def last_thing(effect: Effect, messages: Sequence[Message]) -> str:
    """What an effect is about; of one that changed something, what that was made with."""
    calls = (call for message in reversed(messages) for call in reversed(message.tool_calls) if call.name in MADE)
    return thing_of(effect.arguments) or next((thing_of(call.arguments) for call in calls), "")


def again(intent: Intent, effect: Effect) -> Intent:
    """The same for another thing, where the last effect ended or removed one: "the screws too"; of a list, which one is meant."""
    if intent.name == "list_it":
        is_note = effect.made.startswith("box://")
        name = "list_note" if is_note else "reminders" if effect.tool in TIMED else "tasks"
        return replace(intent, name=name, parts={"title": effect.made} if is_note else {})
    name = ENDED.get(effect.tool, "")
    more = intent.parts.get("more", "")
    return replace(intent, name=name, parts={"what": more}) if name and more and effect.turns == 1 else intent


class References:
    """Plans for what points to the last effect."""

    def __init__(self, additions: Additions, reminders: Reminders) -> None:
        self._additions = additions
        self._reminders = reminders

    def make(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        """The plan of an intent that points to an effect; None where it can have nothing to do with it."""
        make = MAKERS.get(intent.name)
        return None if make is None else make(self, scene, intent, effect)

    def _undo(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        """What the last turn did is taken back, all of it or what is named ("not the eggs"), the newest first."""
        ones = (effect, *effect.before)
        if what := intent.parts.get("what", ""):
            stems = [word_forms.stem(word) for word in word_forms.content_words(what, ())]
            said = [" ".join(map(str, one.arguments.values())) for one in ones]
            named = [one for one, text in zip(ones, said) if any(word_forms.has_stem(stem, text) for stem in stems)]
            if not named or effect.turns > 1:
                return None
            ones = tuple(named)
        plans = [lambda one=one: self._undo_one(intent, one) for one in ones]
        return all_of(plans)

    def _undo_one(self, intent: Intent, effect: Effect) -> Plan:
        if effect.tool == "create_task":
            return _with_made(intent, effect, lambda task: do(tool_call("delete_task", id=task["id"]), intent, task["name"]))
        if effect.tool in SCHEDULES:
            return _with_made(intent, effect, lambda one: do(tool_call("delete_schedule", id=one["id"]), intent))
        if effect.tool == "finish_task":
            return do(tool_call("reset_task", id=effect.arguments.get("id", 0)), intent)
        if effect.tool == "remember" and effect.made:
            text = str(effect.arguments.get("text", ""))
            gone = tool_call("context_delete", path=display(effect.made))
            return Do(
                gone, lambda done: answer_of(done, intent) if done.is_error else Say(intent.language.say("forgotten", text=text))
            )
        if effect.tool == "append_note":
            gone = tool_call("shorten_note", name=effect.arguments.get("name", ""), text=effect.arguments.get("text", ""))
            return do(gone, intent)
        if effect.tool == "write_note" and effect.made:
            file = effect.made.replace("://", "/")  # what mirrors a file no tool of a model may delete
            return Say(intent.language.say("note_stays", file=file))
        return Say(intent.language.say("not_taken_back"))

    def _finish(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        if effect.tool in ("create_task", "update_task", "reset_task"):
            return _with_made(intent, effect, lambda task: do(tool_call("finish_task", id=task["id"]), intent, task["name"]))
        if effect.tool in ("remind", "update_schedule"):
            return self._undo(scene, intent, effect)
        return None

    def _set_priority(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        level = intent.language.level(intent.parts.get("level", intent.parts.get("change", "")))
        if effect.tool not in ("create_task", "update_task") or not level:
            return None
        return _with_made(intent, effect, lambda task: set_priority(task, level, intent))

    def _change(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        change = (intent.parts.get("change") or intent.parts["moment"]).strip(" .!?")
        if effect.tool in ("create_task", "update_task"):
            return self._set_priority(scene, intent, effect)
        if effect.tool not in SCHEDULES or intent.language.level(change):
            return None

        return _with_made(intent, effect, lambda one: self._reminders.move(one, change, intent))

    def _again(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        """Another of the same kind: the same thing at another time, or another thing."""
        more = intent.parts["more"].strip(" .!?")
        if effect.tool in ("append_note", "write_note"):
            is_there = self._additions.is_there(effect.made)
            return self._additions.add_to(effect.made, more, intent) if is_there else Say(intent.language.say("not_there"))
        if effect.tool == "create_task" and not set(words_in(more)) & intent.language.lexicon.naming:
            ones = items.tasks(items.without_article(more, intent.language), intent.language)
            return all_of([partial(do, tool_call("create_task", **task_arguments(one)), intent) for one in ones])
        if effect.tool not in ("remind", "update_schedule"):
            return None

        def asked(one: Mapping[str, Any]) -> Plan:
            known = TimeExpression(one["text"] or one["name"], "", rule_of(one))
            return self._reminders.again(more, intent, known, one.get("next_ms") or 0)

        return _with_made(intent, effect, asked)

    def _add(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        """Something is added to what was just written down: "add that Hugh turns pages", "eggs too"."""
        if effect.turns != 1 or effect.tool not in ("create_task", "append_note", "write_note"):
            return None
        return self._again(scene, intent, effect)

    def _and_fact(self, scene: Scene, intent: Intent, effect: Effect) -> Plan | None:
        """More about what was just remembered, which somebody may only tell: asked back."""
        if effect.tool != "remember" or effect.turns != 1:
            return None
        return ask_back(intent.language, "sure_remember", fact=intent.parts["clause"])


def _with_made(intent: Intent, effect: Effect, then: Callable[[Mapping[str, Any]], Plan]) -> Plan:
    """What is done with the task or the reminder that an effect made or changed, which must still be there."""
    rows = "schedules" if effect.tool in SCHEDULES else "tasks"
    number = effect.made or str(effect.arguments.get("id", ""))  # never by its name, which another may have too

    def chosen(outcome: Outcome) -> Plan:
        one = next((one for one in (outcome.data or {}).get(rows, ()) if str(one["id"]) == number), None)
        return Say(intent.language.say("not_there")) if one is None else then(one)

    return Do(tool_call(f"list_{rows}", status="active" if rows == "schedules" else "open", limit=1000), chosen)


Maker = Callable[[References, Scene, Intent, Effect], Plan | None]
MAKERS: Mapping[str, Maker] = {
    "cancel_it": References._undo,
    "forget_it": References._undo,
    "undo_now": References._undo,
    "done_it": References._finish,
    "did_it": References._finish,
    "priority_it": References._set_priority,
    "change_it": References._change,
    "more_it": References._again,
    "add_it": References._add,
    "and_fact": References._and_fact,
}
