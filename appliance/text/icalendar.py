"""Calendars and contacts as files hold them (iCalendar, RFC 5545; vCard): their lines, the events in them, and when these happen.

Pure, and the one reader of both. Folded lines are joined, escapes and quoted-printable are undone. An event keeps the zone that it
names: one of the zone database, else the rules that its file has for it. Repeated events, exceptions (EXDATE), added days (RDATE)
and moved instances (RECURRENCE-ID) are taken into account. How many events are read and how much is computed is limited; what
cannot be read is left out. Knows nothing about where a file comes from. Not promised: RANGE=THISANDFUTURE, rules by the hour.
"""

import heapq
import quopri
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from appliance.text import charsets, event_recurrence
from appliance.text.event_recurrence import RuleWork

PROPERTY = re.compile(r"(?:[\w-]+\.)?(?P<name>[A-Za-z0-9-]+)(?P<given>(?:;(?:\"[^\"]*\"|[^\":;])*)*):(?P<value>.*)", re.DOTALL)
MOMENT = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?(\d\d))?(Z?))?$")
SPAN = re.compile(r"([+-]?)P(?:(\d{1,5})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?$")
OFFSET = re.compile(r"([+-])(\d\d)(\d\d)(\d\d)?$")
ESCAPE = re.compile(r"\\([nN,;:\\])")
KINDS = ("VEVENT", "VTODO")
MAX_EVENTS = 20_000  # of one file
MAX_DAYS = 5000  # EXDATE and RDATE of one event
MAX_TITLE, MAX_TEXT = 200, 2000  # characters
FOLDED = 73  # bytes of a line that is written, as servers want it
DAY = timedelta(days=1)


class Fact(Struct, frozen=True):
    """A line of a calendar or card: its name, what is said about it, and its value."""

    name: str
    given: dict[str, str]
    value: str


class CalendarEvent(Struct, frozen=True):
    """An event or a task (VTODO). `start` has the zone that it names; of a whole day it is the midnight of the reader's zone.

    `instance` is the time of the repeated event in whose place it is, `rule` how it comes again.
    """

    uid: str
    kind: str
    title: str
    start: datetime
    end: datetime
    is_day: bool = False
    place: str = ""
    text: str = ""
    rule: str = ""
    added: tuple[datetime, ...] = ()
    without: tuple[datetime, ...] = ()
    without_days: tuple[str, ...] = ()
    instance: datetime | None = None
    status: str = ""
    has_start: bool = True


class Occurrence(Struct, frozen=True):
    """One time at which an event happens."""

    event: CalendarEvent
    start: datetime
    end: datetime


# -- lines ------------------------------------------------------------------------------------------


def facts(text: str) -> Iterator[Fact]:
    """The properties of a file in order, BEGIN and END among them; pictures and keys are left out."""
    for line in _lines(text):
        if (found := PROPERTY.fullmatch(line)) is None:
            continue
        several: dict[str, list[str]] = {}
        for one in re.findall(r';((?:"[^"]*"|[^";])*)', found["given"]):
            name, equals, value = one.partition("=")
            key = name.upper() if equals else "TYPE"  # vCard 2.1 writes TEL;HOME
            if not equals and name.upper() in ("QUOTED-PRINTABLE", "BASE64"):
                key = "ENCODING"
            several.setdefault(key, []).append((value if equals else name).strip('"'))
        given = {key: ",".join(values) for key, values in several.items()}
        value, encoding = found["value"], given.get("ENCODING", "").upper()
        if encoding in ("B", "BASE64"):
            continue
        if encoding == "QUOTED-PRINTABLE":
            data = quopri.decodestring(value.encode("utf-8", "replace"))
            value = charsets.decode(data, given.get("CHARSET", "utf-8")).replace("\r\n", "\\n").replace("\n", "\\n")
        yield Fact(found["name"].upper(), given, value)


def components(text: str, kinds: Sequence[str]) -> Iterator[tuple[str, list[Fact]]]:
    """The facts of each component of these kinds, without those of alarms and other components within it."""
    kind, inner = "", 0
    found: list[Fact] = []
    for fact in facts(text):
        if fact.name == "BEGIN":
            if kind:
                inner += 1
            elif fact.value.strip().upper() in kinds:
                kind, found = fact.value.strip().upper(), []
        elif fact.name == "END" and inner:
            inner -= 1
        elif fact.name == "END" and fact.value.strip().upper() == kind:
            yield kind, found
            kind = ""
        elif kind and not inner:
            found.append(fact)


def plain(value: str) -> str:
    """A value without escapes."""
    return ESCAPE.sub(lambda at: "\n" if at[1] in "nN" else at[1], value)


def _lines(text: str) -> Iterator[str]:
    """The lines of a file, those that were folded joined again."""
    parts, is_quoted = list[str](), False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if parts and line[:1] in (" ", "\t"):
            parts.append(line[1:])
        elif is_quoted and parts[-1].endswith("="):
            parts[-1] = parts[-1][:-1]
            parts.append(line)
        else:
            yield "".join(parts)
            parts, is_quoted = [line], "QUOTED-PRINTABLE" in line.upper()
    yield "".join(parts)


# -- events -----------------------------------------------------------------------------------------


def events(text: str, local: tzinfo) -> list[CalendarEvent]:
    """The events and tasks of a calendar; times without a zone are those of `local`."""
    zones = FileZones(text, local)
    found: list[CalendarEvent] = []
    for kind, given in components(text, KINDS):
        if len(found) == MAX_EVENTS:
            break
        if (event := _event(kind, given, zones)) is not None:
            found.append(event)
    return found


def _event(kind: str, given: Sequence[Fact], zones: "FileZones") -> CalendarEvent | None:
    known = {fact.name: fact for fact in reversed(given)}
    first = known.get("DTSTART") or (known.get("DUE") if kind == "VTODO" else None)
    start, is_day = zones.moment(first) if first is not None else (datetime.min.replace(tzinfo=UTC), False)
    if start is None or (first is None and kind == "VEVENT"):
        return None
    end, _ = zones.moment(known["DTEND" if kind == "VEVENT" else "DUE"]) if _has_end(kind, known) else (None, False)
    if end is None and "DURATION" in known:
        end = _later(start, _span(known["DURATION"].value))
    if end is None or end < start:
        end = _later(start, DAY) if is_day else start
    instance, _ = zones.moment(known["RECURRENCE-ID"]) if "RECURRENCE-ID" in known else (None, False)
    without, without_days = zones.several(given, "EXDATE")
    added, added_days = zones.several(given, "RDATE")
    return CalendarEvent(
        *(_line(known, "UID"), kind, _line(known, "SUMMARY"), start, end, is_day, _line(known, "LOCATION")),
        text=plain(known["DESCRIPTION"].value)[:MAX_TEXT] if "DESCRIPTION" in known else "",
        rule=known["RRULE"].value.strip() if "RRULE" in known and instance is None else "",
        added=added + tuple(datetime.strptime(one, "%Y%m%d").replace(tzinfo=zones.local) for one in added_days),
        without=without,
        without_days=without_days,
        instance=instance,
        status=_line(known, "STATUS").upper(),
        has_start=first is not None,
    )


def _has_end(kind: str, known: Mapping[str, Fact]) -> bool:
    return ("DTEND" if kind == "VEVENT" else "DUE") in known


def _line(known: Mapping[str, Fact], name: str) -> str:
    """A value on one line, without characters that nobody sees."""
    value = plain(known[name].value) if name in known else ""
    return " ".join("".join(one if one.isprintable() else " " for one in value).split())[:MAX_TITLE]


def _later(start: datetime, span: timedelta) -> datetime:
    """So long after a moment, whole days by the calendar and hours by the clock; the moment itself where that is no time."""
    try:
        if span % DAY:
            return (start.astimezone(UTC) + span).astimezone(start.tzinfo)
        return start + span
    except (OverflowError, ValueError):
        return start


def _span(text: str) -> timedelta:
    found = SPAN.match(text.strip().upper())
    if found is None or found[1] == "-":
        return timedelta()
    weeks, days, hours, minutes, seconds = (int(one or 0) for one in found.groups()[1:])
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)


# -- zones ------------------------------------------------------------------------------------------


class FileZones:
    """The zones of one file: names of the zone database, and those whose rules stand in the file (VTIMEZONE)."""

    def __init__(self, text: str, local: tzinfo) -> None:
        self.local = local
        self._text = text
        self._known: dict[str, tzinfo] = {}

    def moment(self, fact: Fact) -> tuple[datetime | None, bool]:
        """The moment of a value, and whether it is a whole day; None for what is no time."""
        found = MOMENT.match(fact.value.strip())
        if found is None:
            return None, False
        year, month, day, hour, minute, second, is_utc = found.groups()
        zone = UTC if is_utc else self.find(fact.given.get("TZID", ""))
        try:
            if hour is None:
                return datetime(int(year), int(month), int(day), tzinfo=self.local), True
            at = datetime(int(year), int(month), int(day), int(hour), int(minute), min(59, int(second or 0)), tzinfo=zone)
            at.astimezone(UTC)  # OverflowError at either end of the calendar
        except (ValueError, OverflowError):
            return None, False
        return at, False

    def several(self, given: Sequence[Fact], name: str) -> tuple[tuple[datetime, ...], tuple[str, ...]]:
        """The moments of all properties of this name, and the whole days among them as `20261224`."""
        moments: list[datetime] = []
        days: list[str] = []
        for fact in given:
            for value in fact.value.split(",") if fact.name == name else ():
                at, is_day = self.moment(Fact(name, fact.given, value.partition("/")[0]))
                if at is not None and len(moments) + len(days) < MAX_DAYS:
                    days += [f"{at:%Y%m%d}"] if is_day else []
                    moments += [] if is_day else [at]
        return tuple(moments), tuple(days)

    def find(self, name: str) -> tzinfo:
        """The zone of this name; the local one where nobody knows it."""
        if name not in self._known:
            self._known[name] = _database_zone(name) or self._file_zone(name) or self.local
        return self._known[name]

    def _file_zone(self, name: str) -> "FileZone | None":
        kind, inside, is_ours = "", False, False
        observances: list[Observance] = []
        parts: dict[str, str] = {}
        for fact in facts(self._text) if name else ():
            value = fact.value.strip().upper()
            if (fact.name, value) == ("BEGIN", "VTIMEZONE"):
                inside, is_ours, observances = True, False, []
            elif (fact.name, value) == ("END", "VTIMEZONE"):
                if is_ours and observances:
                    return FileZone(name, tuple(observances))
                inside = False
            elif not inside:
                continue
            elif fact.name == "BEGIN" and value in ("STANDARD", "DAYLIGHT"):
                kind, parts = value, {}
            elif fact.name == "END" and value == kind:
                observances += _observance(parts)
                kind = ""
            elif kind:
                parts[fact.name] = fact.value.strip()
            elif fact.name == "TZID":
                is_ours = fact.value.strip() == name
        return None


class Observance(Struct, frozen=True):
    """Since when a zone of a file has this offset, and when it has it again."""

    start: datetime
    offset: timedelta
    rule: event_recurrence.RecurrenceRule | None


class FileZone(tzinfo):
    """A zone by the rules of its file."""

    def __init__(self, name: str, observances: tuple[Observance, ...]) -> None:
        self._name = name
        self._observances = observances
        self._years: dict[int, list[tuple[datetime, timedelta]]] = {}

    def utcoffset(self, at: datetime | None) -> timedelta:
        if at is None:
            return self._observances[0].offset
        at, found = at.replace(tzinfo=None), self._observances[0].offset
        for onset, offset in self._onsets(at.year):
            if onset > at:
                break
            found = offset
        return found

    def dst(self, at: datetime | None) -> timedelta:
        return timedelta()

    def tzname(self, at: datetime | None) -> str:
        return self._name

    def _onsets(self, year: int) -> list[tuple[datetime, timedelta]]:
        """When its offset changes, as far as that counts in a year."""
        if year not in self._years:
            first, last = datetime(max(1, year - 1), 1, 1), datetime(min(9998, year) + 1, 1, 1)
            found = [(one.start, one.offset) for one in self._observances if one.start < last]
            for one in self._observances:
                if one.rule is not None:
                    found += [(at, one.offset) for at in event_recurrence.times(one.rule, one.start, first, last, RuleWork(20_000))]
            self._years[year] = sorted(found)
        return self._years[year]


def _observance(parts: Mapping[str, str]) -> list[Observance]:
    offset, start = OFFSET.match(parts.get("TZOFFSETTO", "")), MOMENT.match(parts.get("DTSTART", ""))
    if offset is None or start is None or int(offset[2]) > 23:
        return []
    span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    try:
        year, month, day, hour, minute = (int(one or 0) for one in start.groups()[:5])
        at = datetime(year, month, day, hour, minute)
    except ValueError:
        return []
    return [Observance(at, -span if offset[1] == "-" else span, event_recurrence.read(parts.get("RRULE", "")))]


def _database_zone(name: str) -> tzinfo | None:
    """A zone of the database, also where a program has put its own name before it: `/mozilla.org/2007/Europe/Berlin`."""
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    parts = name.strip("/").split("/")
    for count in range(len(parts), 0, -1):
        try:
            return ZoneInfo("/".join(parts[-count:])) if parts[-1] else None
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return None


# -- when they happen -------------------------------------------------------------------------------


def occurrences(
    known: Sequence[CalendarEvent], first: datetime, last: datetime, work: RuleWork, *, most: int = 0
) -> list[Occurrence]:
    """When the events of one file happen between two moments, in order; those that last into it count, cancelled ones do not.

    Of each event at most so many times, 0 for all.
    """
    moved = {(one.uid, one.instance.astimezone(UTC)) for one in known if one.instance is not None}
    found: list[Occurrence] = []
    for event in known:
        if event.status == "CANCELLED" or not event.has_start:
            continue
        count = len(found)
        length = event.end - event.start if event.is_day else event.end.astimezone(UTC) - event.start.astimezone(UTC)
        for start in _starts(event, first - length, last, work):
            if event.instance is None and ((event.uid, start.astimezone(UTC)) in moved or f"{start:%Y%m%d}" in event.without_days):
                continue
            end = _later(start, length)
            if start < last and (end > first or (end == start and start >= first)):
                found.append(Occurrence(event, start, end))
            if most and len(found) - count == most:
                break
    return sorted(found, key=lambda one: (one.start, not one.event.is_day, one.event.title))


def _starts(event: CalendarEvent, first: datetime, last: datetime, work: RuleWork) -> Iterator[datetime]:
    """When an event begins, its exceptions left out; at most once at a time."""
    zone = event.start.tzinfo
    rule = event_recurrence.read(event.rule, _until(event)) if event.rule else None
    fixed = sorted({*event.added, *([event.start] if rule is None else [])})
    repeated: Iterator[datetime] = iter(())
    if rule is not None:
        start, begin, end = (one.astimezone(zone).replace(tzinfo=None) for one in (event.start, first, last))
        repeated = (at.replace(tzinfo=zone) for at in event_recurrence.times(rule, start, begin, end, work))
    left_out = {one.astimezone(UTC) for one in event.without}
    before: datetime | None = None
    for one in heapq.merge(fixed, repeated):
        if one != before and not (left_out and one.astimezone(UTC) in left_out):
            yield one
        before = one


def _until(event: CalendarEvent) -> datetime | None:
    """The last moment of a rule in the local time of its event."""
    said = re.search(r"(?:^|;)UNTIL=([0-9TZ-]+)", event.rule.upper())
    found = MOMENT.match(said[1]) if said else None
    if found is None:
        return None
    try:
        year, month, day, hour, minute, second = (int(one or 0) for one in found.groups()[:6])
        at = datetime(year, month, day, hour, minute, min(59, second))
    except ValueError:
        return None
    if found[4] is None:
        return at + DAY - timedelta(seconds=1)
    return at.replace(tzinfo=UTC).astimezone(event.start.tzinfo).replace(tzinfo=None) if found[7] else at


# -- writing ----------------------------------------------------------------------------------------


def written(event: CalendarEvent, stamp: datetime) -> str:
    """A calendar of one event or task, as it is sent to a server; times in UTC, whole days as days."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Owlbox//EN", f"BEGIN:{event.kind}"]
    lines += [f"UID:{event.uid}", f"DTSTAMP:{_stamp(stamp)}", f"SUMMARY:{_escaped(event.title)}"]
    if event.has_start:
        lines += _when(event)
    lines += [f"LOCATION:{_escaped(event.place)}"] if event.place else []
    lines += [f"DESCRIPTION:{_escaped(event.text)}"] if event.text else []
    lines += [f"STATUS:{event.status}"] if event.status else []
    return "".join(f"{_folded(line)}\r\n" for line in (*lines, f"END:{event.kind}", "END:VCALENDAR"))


def changed(text: str, event: CalendarEvent, stamp: datetime) -> str:
    """The calendar of one event with its title, time and state changed, and all else as it stands: alarms, people, colours."""
    new = {"SUMMARY": [f"SUMMARY:{_escaped(event.title)}"], "DTSTAMP": [f"DTSTAMP:{_stamp(stamp)}"]}
    new |= {"LAST-MODIFIED": [f"LAST-MODIFIED:{_stamp(stamp)}"], "STATUS": [f"STATUS:{event.status}"] if event.status else []}
    if event.has_start:
        new |= dict.fromkeys(("DTSTART", "DTEND", "DURATION", "DUE"), []) | {"DTSTART": _when(event)}
    lines: list[str] = []
    depth = 0
    is_ours = False
    for line in _lines(text):
        name = re.split(r"[;:]", line, maxsplit=1)[0].upper()
        if name == "BEGIN" and (is_ours or line.upper().strip() == f"BEGIN:{event.kind}"):
            is_ours, depth = True, depth + 1
        if name == "SEQUENCE" and depth == 1 and (number := re.search(r"(\d{1,9})\s*$", line)):
            line = f"SEQUENCE:{int(number[1]) + 1}"
        if name == "END" and is_ours:
            depth -= 1
            is_ours = depth > 0
            lines += [] if depth else [one for some in new.values() for one in some]
            new = {} if not depth else new
        if line and not (depth == 1 and name in new):
            lines.append(line)
    return "".join(f"{_folded(line)}\r\n" for line in lines)


def _when(event: CalendarEvent) -> list[str]:
    ending = "DTEND" if event.kind == "VEVENT" else "DUE"
    if event.is_day:
        days = [f"DTSTART;VALUE=DATE:{event.start:%Y%m%d}", f"{ending};VALUE=DATE:{event.end:%Y%m%d}"]
        return days if event.kind == "VEVENT" else [f"DUE;VALUE=DATE:{event.start:%Y%m%d}"]
    if event.kind == "VTODO":
        return [f"DUE:{_stamp(event.start)}"]
    return [f"DTSTART:{_stamp(event.start)}", f"DTEND:{_stamp(event.end)}"]


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    kept = "".join(one if one.isprintable() or one == "\n" else " " for one in text)
    return re.sub(r"([\\;,])", r"\\\1", kept).replace("\n", "\\n")


def _folded(line: str) -> str:
    """A line in parts of at most so many bytes, cut between characters."""
    parts, part = [], b""
    for one in line:
        letter = one.encode("utf-8", "replace")
        if len(part) + len(letter) > FOLDED:
            parts.append(part)
            part = b" "
        part += letter
    return b"\r\n".join((*parts, part)).decode()
