"""Tools for calendars: what is on, and events of the connected account that are added, changed and removed."""

from datetime import datetime, timedelta, tzinfo
from typing import Annotated, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.clock import now_ms
from appliance.errors import BadInput, NotFound
from appliance.knowledge.calendar import Appointment, Calendars, find_named
from appliance.policy.taint import ToolReach
from appliance.runtime.signatures import Range
from appliance.text.icalendar import CalendarEvent
from appliance.text.references import display

SENDS = Needs(reach=ToolReach("schedule", named="calendar"))
DAY = timedelta(days=1)
DAYS, MINUTES = (1, 366), (1, 60 * 24 * 14)
Start = Annotated[str, Range(10, 16), "YYYY-MM-DD HH:MM, or YYYY-MM-DD for a whole day"]
Which = Annotated[str, Range(1, 300), "the event: its reference, or its title"]


class ShownEvent(TypedDict):
    ref: str
    title: str
    start: str
    end: str
    is_day: bool
    place: str
    state: str


class ListedEvents(TypedDict):
    events: list[ShownEvent]


class WrittenEvent(TypedDict):
    event: ShownEvent
    is_new: bool


@tool(group="calendar", is_read_only=True, menu=())
def list_events(
    day: Annotated[str, Range(0, 10), "the first day, YYYY-MM-DD; empty for today"] = "",
    days: Annotated[int, Range(*DAYS), "how many days"] = 1,
    *,
    calendars: Calendars,
) -> Reply[ListedEvents]:
    """List what is in the calendars, repeated events at each of their times."""
    first = _read(day, calendars.zone()) if day else _today(calendars.zone())
    found = calendars.between(first, first + days * DAY)
    lines = [_line(one) for one in found] or [f"Nothing is in the calendars from {first:%Y-%m-%d} on for {days} days."]
    return Reply({"events": [_shown(one) for one in found]}, "\n".join(lines))


@tool(group="calendar", menu=(), needs=SENDS)
def add_event(
    title: Annotated[str, Range(1, 200), "what it is, such as Lunch with Ada"],
    start: Start,
    minutes: Annotated[int, Range(*MINUTES), "how long it takes"] = 60,
    place: Annotated[str, Range(0, 200), "where"] = "",
    *,
    calendars: Calendars,
    caller: Caller,
) -> Reply[WrittenEvent]:
    """Add an event to the connected calendar, and with it to its server."""
    begin, is_day = _read(start, calendars.zone()), len(start.strip()) == len("YYYY-MM-DD")
    end = begin + (DAY if is_day else timedelta(minutes=minutes))
    made, is_new = calendars.add(CalendarEvent("", "VEVENT", title.strip(), begin, end, is_day, place.strip()), caller.run)
    return Reply({"event": _shown(made), "is_new": is_new}, f"{'Added' if is_new else 'Already there'}: {_line(made)}")


@tool(group="calendar", menu=(), needs=SENDS)
def change_event(
    ref: Which,
    start: Annotated[str, Range(0, 16), "another time, as for add_event; empty for the same"] = "",
    title: Annotated[str, Range(0, 200), "another title; empty for the same"] = "",
    *,
    calendars: Calendars,
    caller: Caller,
) -> Reply[WrittenEvent]:
    """Move an event of the connected calendar, or give it another title; its length stays."""
    found = _find(ref, calendars)
    if not start and not title:
        raise BadInput("nothing to change", hint="give start or title")
    begin = _read(start, calendars.zone()) if start else found.start
    is_day = len(start.strip()) == len("YYYY-MM-DD") if start else found.is_day
    if is_day != found.is_day:
        raise BadInput(f"{found.title!r} {'takes the whole day' if found.is_day else 'has an hour'}", hint="give start in its form")
    made = calendars.change(found, begin, begin + (found.end - found.start), title, caller.run)
    return Reply({"event": _shown(made), "is_new": False}, f"Changed: {_line(made)}")


@tool(group="calendar", menu=(), needs=SENDS)
def remove_event(ref: Which, *, calendars: Calendars, caller: Caller) -> Reply[WrittenEvent]:
    """Take an event out of the connected calendar, and off its server."""
    found = _find(ref, calendars)
    calendars.remove(found, caller.run)
    return Reply({"event": _shown(found), "is_new": False}, f"Removed: {_line(found)}")


def _find(ref: str, calendars: Calendars) -> Appointment:
    """The coming event that a reference or a title names."""
    known = calendars.coming()
    found = [one for one in known if ref in (one.ref, display(one.ref))] or find_named(known, ref)
    if len(found) != 1:
        hint = f"give a reference: {', '.join(display(one.ref) for one in found[:5])}" if found else "list_events shows them"
        raise NotFound(f"{len(found)} events are called {ref!r}", hint=hint)
    return found[0]


def _read(text: str, zone: tzinfo) -> datetime:
    for form in ("%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=zone)
        except ValueError:
            continue
    raise BadInput(f"{text!r} is no day", hint="write it as 2026-12-04 12:00, or 2026-12-04 for a whole day")


def _today(zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(now_ms() / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0)


def _shown(one: Appointment) -> ShownEvent:
    form = "%Y-%m-%d" if one.is_day else "%Y-%m-%d %H:%M"
    return {
        "ref": display(one.ref),
        "title": one.title,
        "start": one.start.strftime(form),
        "end": one.end.strftime(form),
        "is_day": one.is_day,
        "place": one.place,
        "state": one.state,
    }


def _line(one: Appointment) -> str:
    when = f"{one.start:%a %Y-%m-%d}" + ("" if one.is_day else f" {one.start:%H:%M}–{one.end:%H:%M}")
    waits = " (not on the server yet)" if one.state else ""
    return f"{when} {one.title}{f' ({one.place})' if one.place else ''}{waits} [{display(one.ref)}]"
