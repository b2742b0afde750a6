"""The text of calendar and contact files (iCalendar, vCard): a heading for each event or person, and a line for each fact.

Pure; the lines are read by `text.icalendar`. Times are shown as they are written, with the zone they name; when a repeated event
happens is not computed here, its rule is shown.
"""

import re
from collections.abc import Iterator, Sequence

from appliance.text import icalendar
from appliance.text.icalendar import MOMENT, Fact

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


def read(text: str) -> str:
    """The events and people of a file."""
    return "\n".join(_sections(text)).strip() + "\n"


def organizer(text: str) -> str | None:
    """Who sent or organizes what stands in a calendar, "" where it does not say; None for a calendar or contacts of one's own.

    An invitation has a method, or somebody who organizes it; PUBLISH is that of a calendar which a person exported.
    """
    facts = list(icalendar.facts(text))
    found = next((_value(fact) for fact in facts if fact.name == "ORGANIZER"), None)
    is_sent = any(fact.name == "METHOD" and fact.value.strip().upper() != "PUBLISH" for fact in facts)
    return found or "" if is_sent else found


def _sections(text: str) -> Iterator[str]:
    for _, found in icalendar.components(text, KINDS):
        yield from _section(found)


def _section(facts: Sequence[Fact]) -> Iterator[str]:
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
        year, month, day, hour, minute, _, is_utc = moment.groups()
        zone = " UTC" if is_utc else f" {fact.given['TZID']}" if fact.given.get("TZID") else ""
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}{zone}" if hour else "")
    if fact.name in ("ATTENDEE", "ORGANIZER"):
        address = re.sub(r"^mailto:", "", value, flags=re.IGNORECASE)
        return f"{fact.given['CN']} <{address}>" if fact.given.get("CN") else address
    fields = re.split(r"(?<!\\);", value) if fact.name in ("N", "ADR", "ORG") else [value]
    if fact.name == "N":
        fields = [*fields[1:2], *fields[:1]]
    joint = " " if fact.name == "N" else ", "
    lines = (one.splitlines() for one in map(icalendar.plain, fields))
    return joint.join(said for some in lines if (said := ", ".join(line.strip() for line in some if line.strip())))
