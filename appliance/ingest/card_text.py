"""The text of calendar and contact files (iCalendar, vCard): a heading for each event or person, and a line for each fact.

Pure. Lines that were folded are joined, escapes and quoted-printable are undone, pictures and keys are left out. Times are shown as
they are written, with the zone they name; when a repeated event happens is not computed, its rule is shown.
"""

import quopri
import re
from collections.abc import Iterator

from msgspec import Struct

from appliance.text import charsets

# What a property is called here; others that hold text are shown by their own name, and those with a dash or in HIDDEN not at all.
NAMES = {
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "RRULE": "Repeats",
    "DESCRIPTION": "Description",
    "LOCATION": "Location",
    "TEL": "Phone",
    "ADR": "Address",
    "ORG": "Organization",
    "BDAY": "Birthday",
    "URL": "URL",
    "EMAIL": "Email",
}
HIDDEN = frozenset(
    "BEGIN END VERSION PRODID UID DTSTAMP CREATED LAST-MODIFIED SEQUENCE REV PHOTO LOGO SOUND KEY N FN SUMMARY CALSCALE METHOD "
    "TRANSP CLASS PRIORITY GEO ATTACH TRIGGER ACTION REFRESH-INTERVAL KIND".split()
)
HEADS = ("SUMMARY", "FN", "N", "ORG", "EMAIL", "TEL")  # what names an event or a person, the first that is there
KINDS = ("VEVENT", "VTODO", "VJOURNAL", "VCARD")
PROPERTY = re.compile(r"(?:[\w-]+\.)?(?P<name>[A-Za-z0-9-]+)(?P<given>(?:;(?:\"[^\"]*\"|[^\":;])*)*):(?P<value>.*)", re.DOTALL)
MOMENT = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?\d\d)?(Z?))?$")
ESCAPE = re.compile(r"\\([nN,;:\\])")


class Fact(Struct, frozen=True):
    """A line of a calendar or card: its name, what is said about it, and its value."""

    name: str
    given: dict[str, str]
    value: str


def read(text: str) -> str:
    """The events and people of a file."""
    return "\n".join(_sections(text)).strip() + "\n"


def organizer(text: str) -> str | None:
    """Who sent or organizes what stands in a calendar, "" where it does not say; None for a calendar or contacts of one's own.

    An invitation has a method, or somebody who organizes it; PUBLISH is that of a calendar which a person exported.
    """
    facts = list(_facts(text))
    found = next((_value(fact) for fact in facts if fact.name == "ORGANIZER"), None)
    is_sent = any(fact.name == "METHOD" and fact.value.strip().upper() != "PUBLISH" for fact in facts)
    return found or "" if is_sent else found


def _sections(text: str) -> Iterator[str]:
    kind, inner = "", 0
    facts: list[Fact] = []
    for fact in _facts(text):
        if fact.name == "BEGIN":
            if kind:
                inner += 1  # an alarm in an event
            elif fact.value.upper() in KINDS:
                kind, facts = fact.value.upper(), []
        elif fact.name == "END" and inner:
            inner -= 1
        elif fact.name == "END" and fact.value.upper() == kind:
            yield from _section(facts)
            kind = ""
        elif kind and not inner:
            facts.append(fact)


def _section(facts: list[Fact]) -> Iterator[str]:
    heads = {fact.name: _value(fact) for fact in reversed(facts) if fact.name in HEADS}
    named = next((name for name in HEADS if heads.get(name)), "")
    yield f"## {' '.join(heads[named].split()) if named else '-'}"
    for fact in facts:
        value = _value(fact)
        if fact.name in HIDDEN or fact.name.startswith("X-") or not value:
            continue
        kinds = [one for one in fact.given.get("TYPE", "").lower().split(",") if one and one not in ("pref", "internet", "voice")]
        label = NAMES.get(fact.name, fact.name.capitalize()) + (f" ({', '.join(kinds)})" if kinds else "")
        yield f"{label}: {value}"
    yield ""


def _value(fact: Fact) -> str:
    """The value of a property, on one line."""
    value = fact.value
    if fact.name == "RRULE":
        return value
    if moment := MOMENT.match(value.strip()):
        year, month, day, hour, minute, is_utc = moment.groups()
        zone = " UTC" if is_utc else f" {fact.given['TZID']}" if fact.given.get("TZID") else ""
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}{zone}" if hour else "")
    if fact.name in ("ATTENDEE", "ORGANIZER"):
        address = re.sub(r"^mailto:", "", value, flags=re.IGNORECASE)
        return f"{fact.given['CN']} <{address}>" if fact.given.get("CN") else address
    fields = re.split(r"(?<!\\);", value) if fact.name in ("N", "ADR", "ORG") else [value]
    if fact.name == "N":
        fields = [*fields[1:2], *fields[:1]]
    plain = (ESCAPE.sub(lambda at: "\n" if at[1] in "nN" else at[1], one) for one in fields)
    joint = " " if fact.name == "N" else ", "
    return joint.join(said for one in plain if (said := ", ".join(line.strip() for line in one.splitlines() if line.strip())))


def _facts(text: str) -> Iterator[Fact]:
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
