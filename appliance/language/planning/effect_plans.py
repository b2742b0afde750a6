"""Effects that a person asks for in so many words, as plans: what to keep, tasks, reminders and notes, made and changed.

Each plan is one call of a tool, or one that looks the thing up first. What is not there, or could be several, is said so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language import items, support, word_forms
from appliance.language.evidence import Sentence
from appliance.language.languages import Language, alternatives, words_in
from appliance.language.named_notes import NamedNotes, bare_title
from appliance.language.planning import conversation, errands, results
from appliance.language.planning.computed import NO_LOOKUPS, LookupPlans
from appliance.language.planning.errands import task_arguments
from appliance.language.planning.note_plans import Additions
from appliance.language.planning.plans import Do, Plan, Say, Scene, all_of, answer_of, ask_back, ask_which, both, tool_call
from appliance.language.planning.reminders_and_events import CalendarPlans, Reminders, meant_text
from appliance.language.planning.results import do, set_priority
from appliance.language.ports import EventCalendar, Notes, OutsideLookups
from appliance.language.router import LOOKED_UP, OF_CALENDAR, OF_DEVICES, REMINDING, Intent, Router, is_reason
from appliance.language.times import dates, recurrence
from appliance.records import Outcome
from appliance.text.references import display

# What may be asked again at its times.
RECURRING = (
    *("time", "date", "week", "day_of", "days_until", "list_note", "tasks", "reminders", "memories", "search", "about"),
    *LOOKED_UP,
)
MEMORIES = "memory://notes/"
MOST_ASKED = 5  # tasks of which it is asked which one is done, where somebody only says that it is
NAMED = 0.66  # share of the words that say what is done, which the name of a task must have
RAISED = {"priority_up": "high", "priority_down": "low"}


class Effects:
    """Makes the plans of effects; `ignored` are words that name nothing."""

    def __init__(
        self,
        router: Router,
        entries: Notes,
        now: Callable[[], datetime],
        collect: Callable[[str], Sequence[Sentence]],
        calendar: EventCalendar,
        lookups: OutsideLookups = NO_LOOKUPS,
    ) -> None:
        self._router = router
        self._entries = entries
        self._ignored = router.languages.function_words()
        self.notes = NamedNotes(entries, self._ignored)
        self.additions = Additions(entries, self.notes)
        self.calendar = CalendarPlans(calendar, now, self._ignored)
        self.reminders = Reminders(router, now, self._ignored, collect, self.calendar.find)
        self.lookups = LookupPlans(lookups, self._ignored, self.calendar.span, self.calendar.show_days)
        self._has_home = partial(lookups.is_on, "home_assistant")

    def make(self, scene: Scene, intent: Intent) -> Plan | None:
        """The plan of an effect, None for an intent that is none."""
        make = MAKERS.get(intent.name)
        return None if make is None else make(self, scene, intent)

    def plan_dated(self, scene: Scene) -> Plan | None:
        """What is asked or wanted of a calendar, also by a day alone behind such a question, or of a device; None for nothing."""
        asked = self._router.cue(scene.text, OF_DEVICES) if self._has_home() else None
        if asked is not None and (plan := self.make(scene, asked)) is not None:
            return plan
        if not self.calendar.is_known():
            return None
        intent = self._router.cue(scene.text, OF_CALENDAR) or self._ask_day_again(scene)
        return None if intent is None else self.make(scene, intent)

    def _ask_day_again(self, scene: Scene) -> Intent | None:
        """What is on on a day that is named alone behind a question which the calendar answered: "and on Friday?"."""
        language, last = self._router.languages.detect(scene.text, scene.last_question)[0], scene.last_question
        said = words_in(scene.text)
        day = " ".join(said[1:] if set(said[:1]) & language.words["links"] else said)
        if not last or not day or self.calendar.span(day, language) is None:
            return None
        is_asked = self._router.cue(last, ("agenda",)) is not None or self.calendar.answer(last, language) is not None
        return Intent("agenda", language, {"day": day}, scene.text) if is_asked else None

    def stored_memories(self) -> list[tuple[str, str]]:
        """What the person asked to be remembered, oldest first: references and texts."""
        lines = self._entries.list_lines(MEMORIES, limit=500)
        found = [entry for line in lines if (entry := self._entries.find(line.ref)) is not None and entry.body.strip()]
        return [(one.path, one.body) for one in sorted(found, key=lambda one: one.created_ms)]

    def _remember_fact(self, scene: Scene, intent: Intent) -> Plan:
        language = intent.language
        text = language.without_closing(intent.parts.get("fact") or intent.parts["clause"])
        duty = self._router.duty(text, language)
        is_duty = duty != text and not support.denies(duty) and language.words["remembering"].isdisjoint(words_in(intent.text))
        if is_duty:  # "note down that I must pay the rent", and not "that we should never water the cactus"
            return self._add_task(scene, replace(intent, parts={"task": duty}, context=""))
        if set(words_in(text)[:1]) & language.words["leading"]:  # "on the books", of "keep that on the books"
            return ask_back(language, "sure_remember", fact=intent.text.strip(" .!"))
        return do(tool_call("remember", text=text[:1].upper() + text[1:]), intent)

    def _do_that(self, scene: Scene, intent: Intent) -> Plan | None:
        """An effect on what is said around the request, or was said just before it; None where nothing was."""
        if not (text := meant_text(scene, intent)):
            return None
        part, make = POINTED[intent.name]
        text, several = intent.language.without_opening(text), {}
        if part in ("task", "items"):
            is_several = items.says_several(intent.text, intent.language)
            text = self._router.duty(text, intent.language, is_whole=is_several).strip(" .!")
            several = {"several": "yes"} if is_several and part == "task" else {}
        return make(self, scene, replace(intent, parts={**intent.parts, **several, part: text}, context=""))

    def _add_task(self, scene: Scene, intent: Intent) -> Plan:
        if "second" in intent.parts:
            given = [{"task": intent.parts[key]} for key in ("task", "second")]
            first, second = (replace(intent, parts=parts, context="") for parts in given)
            return both(self._add_task(scene, first), lambda: self._add_task(scene, second))
        named = items.tasks(intent.parts["task"], intent.language, is_several="several" in intent.parts)
        if len(named) > 1:
            return self._add_each(scene, intent, named)
        text, level = intent.parts["task"], intent.language.level(intent.parts.get("level", ""))
        for name in ("urgency", "urgent") if not level else ():
            found = intent.language.expression(name).search(text)
            if found is not None and not level and (said := intent.language.level(found["level"])):
                text, level = text[: found.start()], said
        if intent.context and set(words_in(text)) & (intent.language.words["again"] | intent.language.words["unnamed"]):
            text = f"{text} ({intent.context.strip(' .!')})"  # "buying some": what is in what was said around it
        arguments = task_arguments(text) | ({"priority": level} if level else {})
        is_errand = errands.is_errand(arguments["name"], self._router)

        call = tool_call("create_task", **arguments)

        def told(outcome: Outcome) -> Plan:
            said = results.told(call, outcome, intent)
            return said if is_errand else errands.with_hint(said, outcome)  # no worker would do it

        return Do(call, told)

    def _add_each(self, scene: Scene, intent: Intent, named: Sequence[str]) -> Plan:
        """A task for each thing, with what else was said of them."""
        kept = {key: value for key, value in intent.parts.items() if key not in ("task", "several")}
        ones = [replace(intent, parts={**kept, "task": one}, context="") for one in named]
        return all_of([lambda one=one: self._add_task(scene, one) for one in ones])  # type: ignore[misc]

    def _append(self, scene: Scene, intent: Intent) -> Plan | None:
        """More for a note; things for a list that is no note are tasks, "for the 11th" as well."""
        title, language = intent.parts["title"], intent.language
        when = _time_behind(title, language)

        def as_tasks() -> Plan | None:
            if when != bare_title(title, language) and set(words_in(title)).isdisjoint(language.words["todo"]):
                return None  # the shopping list may be that of the tasks, this one may not
            ones = items.listed(intent.parts["items"], language)
            return self._add_each(scene, intent, [f"{one} ({when})" if when else one for one in ones])

        if when and when == bare_title(title, language):
            return as_tasks()
        return self.additions.append(intent, as_tasks)

    def _recurring(self, scene: Scene, intent: Intent) -> Plan:
        """A request that is put again at its times; only one that the program itself answers then."""
        try:
            found = self.reminders.read(intent.text, intent)
        except BadInput:
            return Say(intent.language.say("no_recurring"))
        query = intent.parts["query"] if "query" in intent.parts and intent.language.name == "en" else found.text
        told = re.match(rf"(?:\W*\b(?:{'|'.join(intent.language.words['tell'])})\b)*[\s,:-]*", query, re.IGNORECASE)
        query = query[told.end() :] if told is not None else query
        asked = self._router.cue(query, RECURRING)
        if found.rule is None or found.rule.kind == "once" or asked is None:
            return Say(intent.language.say("no_recurring"))
        if asked.name in LOOKED_UP and isinstance(off := self.make(scene, asked), Say):
            return off  # what is switched off
        when = recurrence.written(found.rule)
        call = tool_call("create_schedule", name=query[:60], frequency=when, description=query, action="message")
        return do(call, intent)

    def _end_task(self, scene: Scene, intent: Intent) -> Plan:
        tool = "finish_task" if intent.name == "done" else "delete_task"
        return self._with_task(scene, intent, lambda task: do(tool_call(tool, id=task["id"]), intent, task["name"]))

    def _set_priority(self, scene: Scene, intent: Intent) -> Plan:
        level = RAISED.get(intent.name) or intent.language.level(intent.parts["level"])
        what = intent.parts["what"]
        if intent.context and not word_forms.content_words(what, self._ignored | intent.language.words["tasks"]):  # "that task"
            intent = replace(intent, parts={**intent.parts, "what": intent.context})
        return self._with_task(scene, intent, lambda task: set_priority(task, level, intent))

    def _change_that(self, scene: Scene, intent: Intent) -> Plan | None:
        """What a request points to with what is said around it: "the ferry is booked, mark that as done"."""
        if not word_forms.content_words(intent.context, self._ignored):
            return None
        name = {"done_it": "done", "cancel_it": "cancel", "priority_it": "priority"}[intent.name]
        return self.make(scene, replace(intent, name=name, parts={**intent.parts, "what": intent.context}))

    def is_listed(self, intent: Intent) -> Plan:
        """Whether something is on the list already."""
        what = intent.parts["what"]

        def told(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            known = [(one["name"], one["name"]) for one in _tasks_in(outcome)]
            found = self._find_meant(what, known, least=NAMED)
            return Say(
                intent.language.say("on_list", text="; ".join(found)) if found else intent.language.say("no_task", text=what)
            )

        return Do(tool_call("list_tasks", status="open", limit=1000), told)

    def change_perhaps(self, scene: Scene, intent: Intent, otherwise: Callable[[], Plan]) -> Plan:
        """What may be done to a task or reminder, when an open one is named; asked back when it is only told that it is done."""
        if intent.name.startswith("named"):
            return self._change_named(intent, otherwise)
        what = " ".join(intent.parts[key] for key in ("what", "deed") if key in intent.parts)
        what = intent.language.expression("acquired").sub("", what)
        is_abroad = intent.language.name != self._router.languages.english.name
        if is_abroad and "what" in intent.parts:  # "gewechselt" is no form of "wechseln lassen" that is known
            what = intent.parts["what"]

        def chosen(outcome: Outcome) -> Plan:
            tasks = _tasks_in(outcome)
            known = [(one["name"], one) for one in tasks]
            found = _in_list(scene, intent, known) or self._find_meant(what, known, least=NAMED)
            if 1 < len(found) <= MOST_ASKED:
                return _ask_which(intent, found)
            if len(found) != 1:
                return otherwise()
            if "deed" in intent.parts:
                return ask_back(intent.language, "sure_done", what=found[0]["name"])
            return do(tool_call("finish_task", id=found[0]["id"]), intent)

        return Do(tool_call("list_tasks", status="open", limit=1000), chosen)

    def _change_named(self, intent: Intent, otherwise: Callable[[], Plan]) -> Plan:
        """What is dropped, put off or made urgent by the name of the one open task or reminder that has it."""
        what = intent.parts["what"]

        def named(outcome: Outcome) -> list[Mapping[str, Any]]:
            ones = [*_tasks_in(outcome), *(outcome.data or {}).get("schedules", ())]
            return self._find_meant(what, [(one["name"], one) for one in ones], least=NAMED)

        def look_on(outcome: Outcome) -> Plan:
            tasks = named(outcome) if intent.name != "named_move" else []
            return Do(tool_call("list_schedules", status="active", limit=1000), partial(chosen, tasks))

        def chosen(tasks: Sequence[Mapping[str, Any]], outcome: Outcome) -> Plan:
            reminders = named(outcome) if intent.name != "named_level" else []
            if len(tasks) + len(reminders) != 1:
                return otherwise()
            if intent.name == "named_move":
                return self.reminders.move(reminders[0], intent.parts["change"], intent)
            if intent.name == "named_level":
                return set_priority(tasks[0], intent.language.level(intent.parts["level"]), intent)
            one, tool = (tasks[0], "delete_task") if tasks else (reminders[0], "delete_schedule")
            return do(tool_call(tool, id=one["id"]), intent, one["name"])

        return Do(tool_call("list_tasks", status="open", limit=1000), look_on)

    def _with_task(self, scene: Scene, intent: Intent, then: Callable[[Mapping[str, Any]], Plan]) -> Plan:
        """The one open task that is meant, by its words or its place in the list that was just shown, looked up first."""
        what = intent.parts["what"]

        def chosen(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            known = [(one["name"], one) for one in _tasks_in(outcome)]
            found = _in_list(scene, intent, known) or self._find_meant(what, known, number="id")
            if not found:
                return Say(intent.language.say("no_task", text=what))
            return _ask_which(intent, found) if len(found) > 1 else then(found[0])

        return Do(tool_call("list_tasks", status="open", limit=1000), chosen)

    def _cancel_reminder(self, scene: Scene, intent: Intent) -> Plan:
        what = intent.parts.get("what", "")

        def chosen(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            known = [(f"{one['name']} {one['text']} {one['words']}", one) for one in (outcome.data or {}).get("schedules", ())]
            found = self._find_meant(what, known) if what else []
            if not what or is_reason(intent.context, intent.language):
                found = found or [one for _, one in known]
            if not found:
                return Say(intent.language.say("no_reminder", text=what or "…"))
            if len(found) > 1:
                lines = results.reminder_lines(found[:8], intent.language)
                return ask_which(intent, {f"{one['name']} ({one['words']})": line for one, line in zip(found, lines)})
            return do(tool_call("delete_schedule", id=found[0]["id"]), intent, found[0]["name"])

        return Do(tool_call("list_schedules", status="active", limit=1000), chosen)

    def forget(self, scene: Scene, intent: Intent) -> Plan:
        """Forget what was to be remembered; that is a note too to whoever said it, by its title."""
        what = intent.parts.get("what") or intent.parts["title"]
        found = self._find_meant(what, [(text, (ref, text)) for ref, text in self.stored_memories()])
        if not found:
            said = conversation.meant(what, conversation.told(scene, partial(conversation.cue, self._router)), self._ignored)
            return Say(intent.language.say("forgotten", text=said[-1])) if said else self._offer_drop(intent, what)
        if len(found) > 1:
            return ask_which(intent, {text: f"- {text} [{display(ref)}]" for ref, text in found[:8]})
        ref, text = found[0]

        def told(outcome: Outcome) -> Plan:
            return answer_of(outcome, intent) if outcome.is_error else Say(intent.language.say("forgotten", text=text))

        return Do(tool_call("context_delete", path=display(ref)), told)

    def _offer_drop(self, intent: Intent, what: str) -> Plan:
        """What was never asked to be remembered may be a task that is open: "forget about the vicar"."""

        def told(outcome: Outcome) -> Plan:
            tasks = _tasks_in(outcome)
            found = self._find_meant(what, [(one["name"], one["name"]) for one in tasks], least=NAMED)
            if len(found) == 1:
                return ask_back(intent.language, "sure_drop_task", what=found[0])
            return Say(intent.language.say("no_memory", text=what))

        return Do(tool_call("list_tasks", status="open", limit=1000), told)

    def _find_meant(self, what: str, known: Sequence[tuple[str, Any]], number: str = "", least: float = 0.5) -> list[Any]:
        """Those of the known things that hold most of the words that name one; several when nothing tells them apart."""
        if number and (found := re.fullmatch(rf"(?:{alternatives('task_number')}|#)?\s*(\d{{1,9}})", what.strip(), re.IGNORECASE)):
            return [one for _, one in known if one[number] == int(found[1])]
        words = word_forms.content_words(what, self._ignored) or word_forms.content_words(what, ())
        counts = [(sum(word_forms.has_stem(word_forms.stem(word), text) for word in words), one) for text, one in known]
        most = max((count for count, _ in counts), default=0)
        return [one for count, one in counts if count == most] if most and most >= len(words) * least else []

    def _write_note(self, scene: Scene, intent: Intent) -> Plan:
        body, title = intent.parts["body"], intent.parts.get("title", "")
        return do(tool_call("write_note", text=body, title=title), intent)


Maker = Callable[[Effects, Scene, Intent], Plan | None]
POINTED: Mapping[str, tuple[str, Maker]] = {  # what points, by the part of the request that is meant
    "task_it": ("task", Effects._add_task),
    "remember_it": ("fact", Effects._remember_fact),
    "note_it": ("body", Effects._write_note),
    "append_it": ("items", Effects._append),
}


def _time_behind(title: str, language: Language) -> str:
    """The time that stands behind the name of a list: "the shopping list for Friday"; "" for none."""
    words = bare_title(title, language).split()
    rests = (" ".join(words[at:]) for at in range(len(words)))
    return next((rest for rest in rests if dates.is_moment(rest, language)), "")


MAKERS: Mapping[str, Maker] = {
    **dict.fromkeys(POINTED, Effects._do_that),
    "remember": Effects._remember_fact,
    "task": Effects._add_task,
    **dict.fromkeys(REMINDING, lambda self, scene, intent: self.reminders.set(scene, intent)),
    "remind_when": lambda self, scene, intent: self.reminders.ask_instead(intent),
    **dict.fromkeys(("remind_it", "remind_before"), lambda self, scene, intent: self.reminders.set_that(scene, intent)),
    **dict.fromkeys(("done_it", "cancel_it", "priority_it"), Effects._change_that),
    "recurring": Effects._recurring,
    **dict.fromkeys(("done", "drop_task"), Effects._end_task),
    **dict.fromkeys(("priority", "priority_up", "priority_down"), Effects._set_priority),
    "cancel": Effects._cancel_reminder,
    "agenda": lambda self, scene, intent: self.calendar.show_days(scene, intent),
    "event": lambda self, scene, intent: self.calendar.add(scene, intent),
    "event_move": lambda self, scene, intent: self.calendar.move(scene, intent),
    "event_gone": lambda self, scene, intent: self.calendar.remove(scene, intent),
    **dict.fromkeys(("weather", "rain"), lambda self, scene, intent: self.lookups.show_weather(scene, intent)),
    "news": lambda self, scene, intent: self.lookups.show_news(scene, intent),
    "rates": lambda self, scene, intent: self.lookups.convert(scene, intent),
    "briefing": lambda self, scene, intent: self.lookups.brief(scene, intent),
    **dict.fromkeys((*OF_DEVICES, "beyond_home"), lambda self, scene, intent: self.lookups.ask_home(scene, intent)),
    "forget": Effects.forget,
    **dict.fromkeys(("note", "titled_note"), Effects._write_note),
    **dict.fromkeys(("append", "append_bare"), Effects._append),
    "append_maybe": lambda self, scene, intent: self.additions.append_perhaps(intent),
}


def _tasks_in(outcome: Outcome) -> Sequence[Mapping[str, Any]]:
    """The tasks that were listed, none where that failed."""
    return () if outcome.is_error else (outcome.data or {}).get("tasks", ())


def _in_list(scene: Scene, intent: Intent, known: Sequence[tuple[str, Any]]) -> list[Any]:
    """The task that a request names by its place in the list that was just shown, "the second one"."""
    bare = intent.language.expression("article").sub("", intent.parts.get("what", ""))
    places = items.ordinal(bare, intent.language, len(scene.listed)) if scene.listed else ()
    return [one for _, one in known if places and str(one["id"]) == scene.listed[places[0]]]


def _ask_which(intent: Intent, tasks: Sequence[Mapping[str, Any]]) -> Say:
    """Which of these tasks is meant."""
    return ask_which(intent, {str(one["id"]): f"{one['id']}. {one['name']}" for one in tasks[:8]})
