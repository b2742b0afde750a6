"""Calendars: the events of every calendar that is known, files and accounts alike, and events on their way to a server.

An entry that ends in `.ics` is a calendar, with the bytes of its file beside its text: files of the folder (`box://`), added
documents (`disk://`), and what an account has (`calendar://NAME/UID.ics`, one event or task each; `channels.connectors.calendar`
mirrors them). An event that is added or changed here is written to its entry with a state and waits for the account, which sends it
under the UID that stands there already: sent twice it is still one event. Events are computed when they are asked for, from what
was parsed once of each entry. Knows nothing about servers.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import Content, Entry
from appliance.knowledge.entries import Entries
from appliance.text import icalendar
from appliance.text.event_recurrence import RuleWork
from appliance.text.icalendar import CalendarEvent
from appliance.text.references import slug

SCHEME = "calendar://"
FOLDERS = ("box://", "disk://", SCHEME)
ENDING = ".ics"
STATE = "state"  # attribute of an entry that waits for its account
EventState = Literal["", "new", "changed", "gone"]
MAX_PARSED = 5000  # entries whose events are kept in memory
MAX_FOUND = 500  # events of one answer
AHEAD = timedelta(days=400)  # how far the next time of an event is looked for
ALIKE_MS = 60_000  # an equal event that was added so short a time ago is the same request again


class Appointment(Struct, frozen=True):
    """One time of an event as people are shown it, in their zone; `ref` is that of its calendar."""

    title: str
    start: datetime
    end: datetime
    ref: str
    is_day: bool = False
    place: str = ""
    is_repeated: bool = False
    state: EventState = ""


class CalendarAccount(Struct, frozen=True):
    """Where added events go: the name of the account and whose it is, "" for everybody's."""

    name: str
    audience: str = ""


class Calendars:
    """Finds events, and writes those of the account."""

    def __init__(self, entries: Entries, zone: Callable[[], tzinfo], account: Callable[[], CalendarAccount | None]) -> None:
        """`zone` is that of the box, `account` the one that is switched on."""
        self._entries = entries
        self.zone = zone

        self._account = account
        self._parsed: OrderedDict[str, tuple[str, list[CalendarEvent]]] = OrderedDict()
        self._guard = threading.Lock()
        self.waiting = threading.Event()  # set when something waits for the account

    # -- reading --------------------------------------------------------------------------------------

    def is_known(self) -> bool:
        """Whether there is any calendar that may be shown here, or an account."""
        return self._account() is not None or any(self._entries.ending(folder, ENDING) for folder in FOLDERS)

    def has_account(self) -> bool:
        """Whether events can be added."""
        return self._account() is not None

    def between(self, first: datetime, last: datetime, *, most: int = 0) -> list[Appointment]:
        """The events that happen between two moments, in order, those of whole days first; of each at most so many times."""
        zone, work = self.zone(), RuleWork()
        found: list[Appointment] = []
        for path, (state, known) in self._calendars(zone).items():
            for one in icalendar.occurrences([event for event in known if event.kind == "VEVENT"], first, last, work, most=most):
                place, is_repeated = one.event.place, bool(one.event.rule)
                times = (one.start, one.end) if one.event.is_day else (one.start.astimezone(zone), one.end.astimezone(zone))
                found.append(Appointment(one.event.title, *times, path, one.event.is_day, place, is_repeated, state))
        found.sort(key=lambda one: (one.start.date(), not one.is_day, one.start, one.title))
        return found[: None if most else MAX_FOUND]

    def coming(self) -> list[Appointment]:
        """The next time of each event that has not ended, soonest first."""
        now = datetime.fromtimestamp(now_ms() / 1000, self.zone())
        first: dict[tuple[str, str], Appointment] = {}
        for one in self.between(now, now + AHEAD, most=1):
            first.setdefault((one.ref, one.title), one)
        return list(first.values())

    def _calendars(self, zone: tzinfo) -> Mapping[str, tuple[EventState, list[CalendarEvent]]]:
        """The events of each calendar that may be shown, by its entry; those that are to be deleted are gone."""
        known: dict[str, tuple[EventState, list[CalendarEvent]]] = {}
        for path in (one for folder in FOLDERS for one in self._entries.ending(folder, ENDING)):
            entry = self._entries.find(path)
            state: EventState = "gone" if entry is None else entry.attributes.get(STATE, "")
            if entry is not None and state != "gone":
                known[path] = (state, self._events_of(path, f"{entry.id} {entry.updated_ms} {entry.hash} {zone}", zone))
        return known

    def _events_of(self, path: str, version: str, zone: tzinfo) -> list[CalendarEvent]:
        with self._guard:
            if (parsed := self._parsed.get(path)) is not None and parsed[0] == version:
                self._parsed.move_to_end(path)
                return parsed[1]
        known = icalendar.events(self._source(path), zone)
        with self._guard:
            self._parsed[path] = (version, known)
            while len(self._parsed) > MAX_PARSED:
                self._parsed.popitem(last=False)
        return known

    def _source(self, path: str) -> str:
        """What stands in a calendar; "" for one that has nothing but its text."""
        try:
            return self._entries.blob(self._entries.get(path)).decode("utf-8", "replace")
        except NotFound:
            return ""

    # -- writing --------------------------------------------------------------------------------------

    def add(self, event: CalendarEvent, run: str = "") -> tuple[Appointment, bool]:
        """Put an event into the account's calendar, and whether it is new: the same one that was just added is not added again."""
        account = self._require_account()
        if not event.title.strip():
            raise BadInput("the event has no title", hint="say what it is, such as lunch with Ada")
        for one in self.between(event.start - timedelta(seconds=1), event.start + timedelta(seconds=1)):
            found = self._entries.find(one.ref) if one.ref.startswith(SCHEME) else None
            is_same = (one.title, one.start, one.end) == (event.title, event.start, event.end)
            if found is not None and is_same and now_ms() - found.created_ms < ALIKE_MS:
                return one, False
        event = replace(event, uid=event.uid or f"{new_id()}@owlbox")
        number = hashlib.sha256(event.uid.encode()).hexdigest()[:12]
        path = f"{SCHEME}{slug(account.name)}/{slug(event.title)[:40] or 'event'}-{number}{ENDING}"
        self._write(path, event, icalendar.written(event, _now()), {STATE: "new"}, run, account.audience)
        return self._shown(path, event, "new"), True

    def change(self, appointment: Appointment, start: datetime, end: datetime, title: str = "", run: str = "") -> Appointment:
        """Move an event of the account, or call it otherwise; Conflict for one that is repeated or in no account."""
        entry, event, account = self._require_own(appointment)
        event = replace(event, start=start, end=end, title=title or event.title)
        state = "new" if entry.attributes.get(STATE) == "new" else "changed"
        text = icalendar.changed(self._source(entry.path), event, _now())
        self._write(entry.path, event, text, {**entry.attributes, STATE: state}, run, account.audience)
        return self._shown(entry.path, event, "changed")

    def remove(self, appointment: Appointment, run: str = "") -> None:
        """Take an event out of the account's calendar."""
        entry, _, _ = self._require_own(appointment)
        self._entries.put(entry.path, Content(attributes={**entry.attributes, STATE: "gone"}), By("system", run))
        self.waiting.set()

    def _require_own(self, appointment: Appointment) -> tuple[Entry, CalendarEvent, CalendarAccount]:
        account = self._require_account()
        entry = self._entries.get(appointment.ref)
        if not appointment.ref.startswith(SCHEME) or not (entry.attributes.get("url") or entry.attributes.get(STATE)):
            raise Conflict(f"{appointment.title!r} is in a calendar that is only read", hint="change it where it comes from")
        known = self._events_of(appointment.ref, "", self.zone())
        if appointment.is_repeated or len(known) != 1:
            raise Conflict(f"{appointment.title!r} comes again and again", hint="change it in a calendar program")
        return entry, known[0], account

    def _require_account(self) -> CalendarAccount:
        if (account := self._account()) is None:
            raise Conflict("no calendar is connected", hint="docs/guides/calendar.md says how: owlbox channel enable calendar")
        return account

    def _write(self, path: str, event: CalendarEvent, text: str, attributes: Mapping[str, Any], run: str, audience: str) -> None:
        body = describe(event)
        content = Content(body, title=event.title, mime="text/calendar", attributes=attributes, original=text.encode())
        self._entries.put(path, content, By("system", run), audience=audience)
        self.waiting.set()

    def _shown(self, path: str, event: CalendarEvent, state: EventState) -> Appointment:
        zone = self.zone()
        times = (event.start, event.end) if event.is_day else (event.start.astimezone(zone), event.end.astimezone(zone))
        return Appointment(event.title, *times, path, event.is_day, event.place, bool(event.rule), state)


def describe(event: CalendarEvent) -> str:
    """The text of an event that is added here, in the form that `ingest.card_text` gives to one of a file."""
    form = "%Y-%m-%d" if event.is_day else "%Y-%m-%d %H:%M"
    lines = [f"## {event.title}", f"Start: {event.start:{form}}", f"End: {event.end:{form}}"]
    return "\n".join((*lines, *([f"Location: {event.place}"] if event.place else []))) + "\n"


def find_named(known: Sequence[Appointment], title: str) -> list[Appointment]:
    """Those whose title is this one, in whatever case."""
    return [one for one in known if one.title.casefold() == title.strip().casefold()]


def _now() -> datetime:
    return datetime.fromtimestamp(now_ms() / 1000, UTC)
