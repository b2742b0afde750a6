"""Tools for what is to happen at its time: reminders, schedules in plain English, cron jobs.

A model sees and changes what belongs to the person it talks with; a person on the command line sees all. What a schedule
began makes none. Every schedule is shown back in words with its next times, so that a misunderstanding is seen at once.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from msgspec.structs import replace

from appliance.agent.dispatch import person_of, session_of
from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.clock import now_ms
from appliance.errors import BadInput, Refused
from appliance.language.times import recurrence
from appliance.policy.taint import ToolReach
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.store import visibility
from appliance.work import rules_in_words
from appliance.work.schedule_service import NEXT, ScheduleCaller, ScheduleView, Timetable
from appliance.work.schedules import Act, Action, FiringRecord, New, Notify, Schedule

PREFIX = "[owlbox]"  # before the subject of a mail (S-067)
WRITES = Needs(reach=ToolReach("schedule"))
JUDGES = Needs(reach=ToolReach("schedule"), deadline_s=300)
LOCALS = ("cli", "local")
CHANNEL = re.compile(r"[A-Za-z][\w.-]{0,40}(/[\w.@:#-]{1,100})?")
Id = Annotated[str, Range(1, 200), "the schedule's id, 8 hex digits, or its name"]
Name = Annotated[str, Range(1, 200), "what it is for, in a few words"]
Frequency = Annotated[
    str, Range(1, 500), "when, such as: every weekday at 7am, last Friday of the month at 5pm, every 2 hours between 9 and 17"
]
Zone = Annotated[str, "time zone: local, UTC, +05:30 or Europe/Berlin; empty for the box's own"]


class MadeSchedule(TypedDict):
    schedule: ScheduleView
    verb: str


class SchedulePreview(TypedDict):
    frequency: str
    words: str
    kind: str
    spec: str
    zone: str
    is_judged: bool
    next: tuple[int, ...]


class ListedSchedules(TypedDict):
    schedules: tuple[ScheduleView, ...]
    has_more: bool


class ViewedSchedule(TypedDict):
    schedule: ScheduleView
    firings: list[FiringRecord]


class Changed(TypedDict):
    id: str
    name: str
    status: str
    note: str


# -- reminders and schedules --------------------------------------------------------------------------


@tool(group="schedules", command="remind", menu=())
def remind(
    text: Annotated[str, Range(1, 2000), "what to be reminded of"],
    when: Annotated[str, "when: in 20 minutes, tomorrow at noon, every Monday at 9"] = "",
    timezone: Zone = "",
    *,
    timetable: Timetable,
    runs: Runs,
    caller: Caller,
) -> Reply[MadeSchedule]:
    """Remind the person of something at a time, in this conversation."""
    if when.strip():
        rule: recurrence.Rule | None = timetable.read(when, timezone, is_frequency=False)
    else:
        found = timetable.split(text, timezone)
        text, when, rule = found.text, found.when, found.rule
    if rule is None or rule.kind == "text":
        raise BadInput(f"{when or text!r} has no time in it", hint="say it as: in 20 minutes, tomorrow at noon, every Monday at 9")
    if not text:
        raise BadInput(f"{when!r} says when, but not of what", hint="say it as: remind me to call Ada at 6pm")
    new = New(text[:100].strip(), rule, Action("reminder", {"text": text}), frequency=_frequency(when, rule), mode="session")
    return _show_made(_add_schedule(new, timetable, runs, caller), "Reminder")


@tool(group="schedules", command="schedule add", menu=(), needs=WRITES)
def create_schedule(
    name: Name,
    frequency: Frequency,
    description: Annotated[str, Range(0, 20_000), "everything needed to do it"] = "",
    action: Annotated[Literal["tasks", "prompt", "message", "reminder"], "add tasks, run a prompt, say it, or remind"] = "tasks",
    mode: Annotated[Literal["", "session", "isolated", "silent"], "of a prompt: in this conversation, apart, or unheard"] = "",
    role: Annotated[str, "as whom a prompt works"] = "",
    timezone: Zone = "",
    notify: Annotated[str, "by which channel the result is told: tui, email, slack/dm, none; empty for the usual one"] = "",
    tell: Annotated[Literal["all", "success", "failure", "nothing"], "of which results"] = "all",
    channel: Annotated[str, "of a message: the conversation, such as local:ada; empty for this one"] = "",
    enabled: Annotated[bool, "whether it is on"] = True,
    *,
    timetable: Timetable,
    runs: Runs,
    caller: Caller,
) -> Reply[MadeSchedule]:
    """Have something done again and again, or at a time."""
    words = description or name
    told = Notify(_normalize_channel(notify), tell in ("all", "success"), tell in ("all", "failure"))
    is_message = action == "message"
    if channel and not is_message:
        raise BadInput("a channel is where a message goes", hint="give action=message, or notify", outcome="invalid_arguments")
    session, metadata = _channel_target(channel, runs, caller) if is_message else ("", {})
    rule = _message_rule(frequency, timezone, timetable) if is_message else timetable.read(frequency, timezone)
    details: dict[str, Any] = {} if action == "tasks" else {"prompt" if action == "prompt" else "text": words}
    about = "" if is_message else description
    made = New(name, rule, Action(action, details), _frequency(frequency, rule), about, mode=mode, role=role, notify=told)
    if is_message:
        _require_own(session, timetable, runs, caller)
        if session.startswith("email:"):
            metadata["email_subject"] = f"{PREFIX} {name}"
        first_ms = now_ms() if rule.kind == "interval" else _first_due(rule, now_ms())
        made = replace(made, mode=mode or "session", session=session, metadata=metadata, first_ms=first_ms)
    return _show_made(_add_schedule(replace(made, is_enabled=enabled), timetable, runs, caller), "Added")


@tool(group="schedules", command="schedule preview", is_read_only=True, menu=())
def preview_schedule(frequency: Frequency, timezone: Zone = "", *, timetable: Timetable) -> Reply[SchedulePreview]:
    """Show what a text about time means, without adding anything."""
    rule = timetable.read(frequency, timezone)
    ahead = tuple(recurrence.upcoming(rule, now_ms(), NEXT))
    words = rules_in_words.words(rule)
    data: SchedulePreview = {
        "frequency": frequency,
        "words": words,
        "kind": rule.kind,
        "spec": rule.spec,
        "zone": rule.zone,
        "is_judged": rule.is_judged,
        "next": ahead,
    }
    return Reply(data, "\n".join([words, *_times_lines(ahead, rule.zone)]))


@tool(group="schedules", command="schedule list", is_read_only=True, menu=())
def list_schedules(
    enabled: Annotated[bool | None, "only those that are on, or off"] = None,
    status: Annotated[Literal["", "active", "paused", "completed", "failed"], "only in this state"] = "",
    type: Annotated[Literal["", "scheduled", "heartbeat", "system", "cron"], "only of this type; cron: messages"] = "",
    limit: Annotated[int, Range(1, 1000), "how many to show"] = 100,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    soonest: Annotated[bool, "what is due next first, what is over last; else in the order of making"] = False,
    *,
    timetable: Timetable,
    runs: Runs,
    caller: Caller,
) -> Reply[ListedSchedules]:
    """List schedules and reminders with their next times."""
    kind: dict[str, Any] = {"act": "message"} if type == "cron" else {"type": type}
    which = {"is_enabled": enabled, "status": status, "soonest": soonest, **kind}
    known = timetable.list_schedules(_caller_of(runs, caller), **which, limit=limit + 1, offset=offset)
    found = tuple(timetable.view(one) for one in known[:limit])
    lines = [_schedule_line(one) for one in found] or ["No schedules."]
    lines += ["(there are more: offset)"] if len(known) > limit else []
    return Reply({"schedules": found, "has_more": len(known) > limit}, "\n".join(lines))


@tool(group="schedules", command="schedule view", is_read_only=True, menu=())
def view_schedule(id: Id, *, timetable: Timetable, runs: Runs, caller: Caller) -> Reply[ViewedSchedule]:
    """Read everything about a schedule: its next times, and how it went."""
    schedule = timetable.get(id, _caller_of(runs, caller))
    found = timetable.view(schedule)
    told = " ".join(word for word in (f"of {found.tell}", found.notify and f"by {found.notify}") if word)
    facts = {
        "status": found.status + (f" after {found.failures} failures" if found.failures else ""),
        "frequency": found.frequency,
        "when": found.words,
        "rule": f"{found.kind} {found.spec}" if found.kind != "text" else "",
        "does": f"{found.action}{f': {found.text}' if found.text else ''}",
        "about": found.description,
        "for": found.person,
        "in": found.session,
        "role": found.role,
        "mode": found.mode,
        "told": told if found.notify or found.tell != "all" else "",
        "last run": found.last_run_ms and rules_in_words.moment(found.last_run_ms, found.zone),
        "last said": found.said,
    }
    lines = [f"{found.id} {found.name}", *(f"{name}: {fact}" for name, fact in facts.items() if fact), *_ahead_lines(found)]
    firings = list(timetable.rows.firings(schedule.id))
    for one in firings:
        outcome = f", {one.outcome}" if one.outcome else ""
        lines.append(f"due {rules_in_words.moment(one.due_ms, found.zone)}: {one.status}{outcome}")
    return Reply({"schedule": found, "firings": firings}, "\n".join(lines))


@tool(group="schedules", command="schedule update", menu=(), needs=WRITES)
def update_schedule(
    id: Id,
    name: Annotated[str | None, "another name"] = None,
    frequency: Annotated[str | None, "another time, as create_schedule takes it"] = None,
    description: Annotated[str | None, "another description"] = None,
    enabled: Annotated[bool | None, "resume it, or pause it; what it missed stays missed"] = None,
    *,
    timetable: Timetable,
    runs: Runs,
    caller: Caller,
) -> Reply[MadeSchedule]:
    """Change what a schedule is for, or when; pause or resume it."""
    who = _caller_of(runs, caller)
    known = timetable.get(id, who)
    if enabled is not None:
        known = timetable.enable(known, enabled, who)
    given: dict[str, Any] = {"name": name, "description": description, "frequency": frequency}
    given = {key: value for key, value in given.items() if value is not None}
    if not given and enabled is not None:
        view = timetable.view(known)
        note = known.status + (f", next {rules_in_words.moment(view.next_ms, view.zone)}" if view.next_ms else "")
        return Reply({"schedule": view, "verb": known.status}, f"Schedule {known.ref} ({known.name}): {note}")
    if not given:
        raise BadInput("nothing to change", hint="give name, frequency, description or enabled")
    if frequency is not None:
        given["rule"] = timetable.read(frequency, known.rule.zone)
        given["frequency"] = _frequency(frequency, given["rule"])
    if description is not None and known.action.kind != "tasks":
        given["action"] = Action(known.action.kind, {**known.action.details, _text_key(known.action.kind): description})
    return _show_made(timetable.view(timetable.change(known, who, **given)), "Changed")


@tool(group="schedules", command="schedule delete", menu=(), needs=WRITES)
def delete_schedule(id: Id, *, timetable: Timetable, runs: Runs, caller: Caller) -> Reply[Changed]:
    """Delete a schedule or a reminder."""
    who = _caller_of(runs, caller)
    gone = timetable.delete(timetable.get(id, who), who)
    return _show_changed(gone, "deleted", "deleted")


@tool(group="schedules", command="schedule trigger", menu=(), needs=JUDGES)
def trigger_schedule(id: Id, *, timetable: Timetable, runs: Runs, caller: Caller) -> Reply[Changed]:
    """Do now what a schedule is for, whatever its time."""
    who = _caller_of(runs, caller)
    known = timetable.get(id, who)
    said = timetable.fire(known, who)
    return _show_changed(known, known.status, said)


def _message_rule(frequency: str, zone: str, timetable: Timetable) -> recurrence.Rule:
    """The times of a message: five fields of cron, `every N`, or words about time that no model has to judge."""
    try:
        return timetable.simple(frequency, zone)
    except BadInput as error:
        if (rule := timetable.read(frequency, zone)).kind == "text":
            raise error from None
        return rule


# -- whose ----------------------------------------------------------------------------------------------


def _caller_of(runs: Runs, caller: Caller) -> ScheduleCaller:
    is_apart = bool(caller.run) or visibility.asking() is not None
    return ScheduleCaller(caller.run, person_of(runs, session_of(runs, caller)) if is_apart else "")


def _add_schedule(new: New, timetable: Timetable, runs: Runs, caller: Caller) -> ScheduleView:
    """A schedule of the caller, told in the thread that it was made in."""
    session = session_of(runs, caller)
    known = runs.people.find(session) if session else None
    made = replace(
        new,
        person=person_of(runs, session),
        context=known.context if known is not None else "",
        session=new.session or session,
        source=_reading_thread(runs, caller.run),
        run=caller.run,
    )
    return timetable.view(timetable.add(made, _caller_of(runs, caller)))


def _reading_thread(runs: Runs, run: str) -> str:
    """The thread that a person reads: of a helper's work the one in which that was asked for."""
    while run and (found := runs.get(run)).kind == "child" and found.parent:
        run = found.parent
    return run


def _channel_target(channel: str, runs: Runs, caller: Caller) -> tuple[str, dict[str, Any]]:
    """The session that a cron job talks in, with what its channel wants back."""
    here = session_of(runs, caller)
    session = channel.strip() or (here if here.partition(":")[0] not in LOCALS or caller.run else "")
    if not session:
        raise BadInput("channel is needed here", hint="name a conversation such as local:ada; owlbox session list shows them")
    door, _, sender = session.partition(":")
    if not (door and sender):
        raise BadInput(f"channel {session!r}", hint="name a conversation as CHANNEL:NAME, such as local:ada")
    if door == "cli":
        session = here if here else f"local:{sender}"
    known = runs.people.find(session)
    metadata: dict[str, Any] = dict(known.metadata) if known is not None and (not channel or session == here) else {}
    if door == "matrix" and not metadata.get("matrix_room_id"):
        raise BadInput(f"the room of {session} is not known", hint="add the job from a conversation in that room")
    return session, metadata


def _require_own(session: str, timetable: Timetable, runs: Runs, caller: Caller) -> None:
    """What is said in a conversation is said as its person: in that of another only whoever manages everybody's may."""
    who = _caller_of(runs, caller)
    if session != session_of(runs, caller) and not timetable.sees_all(who) and person_of(runs, session) != who.person:
        raise Refused(f"{session} is the conversation of somebody else", hint="leave out the channel, or name one of your own")


# -- inside ---------------------------------------------------------------------------------------------


def _normalize_channel(text: str) -> str:
    """A channel or a place of one as people name it, in the letters of its own names."""
    name, slash, place = text.strip().partition("/")
    if text.strip() and not CHANNEL.fullmatch(text.strip()):
        raise BadInput(f"notify {text!r} is not a channel", hint="name one such as tui, email, slack/dm or none")
    return f"{name.lower()}{slash}{place}"


def _frequency(said: str, rule: recurrence.Rule) -> str:
    """The words with which a time was said; those of the rule where the rule itself was handed in."""
    is_value = (rule.kind in ("once", "cadence") or rule.end_ms is not None) and said.startswith(recurrence.written(rule))
    return rules_in_words.words(rule) if is_value else said


def _first_due(rule: recurrence.Rule, now: int) -> int | None:
    """A cron line that fits the minute which has just begun is due at once (S-060)."""
    return recurrence.after(rule, now - 60_000)


def _show_changed(found: Schedule, status: str, note: str) -> Reply[Changed]:
    data: Changed = {"id": found.ref, "name": found.name, "status": status, "note": note}
    return Reply(data, f"Schedule {found.ref} ({found.name}): {note}")


def _show_made(found: ScheduleView, verb: str) -> Reply[MadeSchedule]:
    """A schedule's name, its times in words, and the next of them."""
    what = " ".join(word for word in (verb, _kind_word(found), found.id) if word)
    return Reply({"schedule": found, "verb": verb}, "\n".join([f"{what} ({found.name}): {found.words}.", *_ahead_lines(found)]))


def _text_key(kind: Act) -> str:
    return "prompt" if kind == "prompt" else "text"


def _kind_word(found: ScheduleView) -> str:
    return {"message": "cron job", "reminder": ""}.get(found.action, "schedule")


def _schedule_line(found: ScheduleView) -> str:
    ahead = f", next {rules_in_words.moment(found.next_ms, found.zone)}" if found.next_ms else ""
    return f"{found.id} {found.name} ({found.status}): {found.words}{ahead}"


def _ahead_lines(found: ScheduleView) -> list[str]:
    """The next times on one line; that a model decides, where it does."""
    if found.is_judged and found.kind == "text":
        return ["The small model judges when it is due."]
    if found.kind == "once":
        return []  # its words say it
    return _times_lines(found.next, found.zone)


def _times_lines(ahead: Sequence[int], zone: str) -> list[str]:
    return ["Next: " + ", ".join(rules_in_words.moment(at_ms, zone) for at_ms in ahead)] if ahead else []
