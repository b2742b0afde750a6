"""What somebody wants to be reminded of, and when: "remind me to call mum tomorrow at noon", parted in two.

The words that say when stand behind "remind me", or at either end of the text; the rest is kept as it was written. In doubt no
time is found: a reminder at a wrong time is worse than a question. Pure; rules are those of `language.times.english_rules`.
"""

import re
from collections.abc import Iterator

from appliance.errors import BadInput
from appliance.language.times import english_rules, english_spelling, recurrence
from appliance.language.times.english_times import DAY, MONTH, UNIT, normal
from appliance.language.times.timezones import LOCAL

UNLIKELY_MS = 61_000
MAX_MENDED = 100  # words of a text whose spelling is looked at
BEHIND = 3  # words before a time that may say that it has passed
MAX_WORDS = 24  # that may say when, at one end of a text
POLITE = r"(?:please |(?:can|could|would|will) you (?:please )?)*"
WHO = r"(?:me|us)"
ASKED = re.compile(
    rf"^{POLITE}(?:(?:remind|tell|ping|nudge|alert|notify) {WHO}|wake {WHO}(?: up)?"
    rf"|(?:set|add|make|create) (?:{WHO} )?an? reminder(?: for {WHO}\b)?(?: for\b)?|reminder)(?:,? please)?[:,]? ?",
    re.IGNORECASE,
)
WAKE = re.compile(rf"^{POLITE}wake {WHO}(?: up)? (?P<when>.+)$", re.IGNORECASE)
ALARM = re.compile(rf"^{POLITE}(?:(?:set|start|make) )?(?:an? |the )?(?P<what>alarm|timer)(?P<when> .+)$", re.IGNORECASE)
HOUR = re.compile(r"(?:at )?\d{1,2}")
LINK = re.compile(r"^(?:to|that|about|of)\s+", re.IGNORECASE)
LINKS = re.compile(r",? (?:to|that|about|of) |: ", re.IGNORECASE)
# Words beside which a time belongs to something else: "a gift for | Monday", "30 minutes before | 3pm", "at six | thirty".
BESIDE = (
    rf"for|before|after|until|till|since|from|between|and|or|except|unless|than|about|by|at|on|in|every|each|the|{DAY}s?|{MONTH}"
)
LAST = re.compile(rf"(?:^|.*\s)(?:{BESIDE})[,.]?$", re.IGNORECASE | re.DOTALL)
FIRST = re.compile(rf"^(?:and|or|before|after|until|till|except|unless|but|\d+|fifteen|thirty|forty-five|{DAY}s?)\b", re.IGNORECASE)
RELATIVE = re.compile(
    rf"\b(?:\d+|an?|half an|one|two|three|five|ten|fifteen|twenty|thirty) {UNIT} (?:before|after)\b", re.IGNORECASE
)


def split(said: str, now_ms: int, zone: str = LOCAL) -> tuple[str, str]:
    """What a text says, and the words of it that say when; "" for the second where none do, for the first where nothing else is.

    BadInput for a time that has passed, or that cannot be, and for one that would be another if it were spelled rightly.
    """
    found = _split_reminder(said, now_ms, zone)
    meant = english_spelling.mended(said) if len(said.split()) <= MAX_MENDED else said
    if meant != said:
        what, when = _split_reminder(meant, now_ms, zone)
        if len(when.split()) > len(found[1].split()):
            raise BadInput(f"{said!r} says no time that is known", hint=f"did you mean: {f'{what} {when}'.strip()}")
    what, when = found
    english_rules.require_ahead(normal(f"{' '.join(what.split()[-BEHIND:])} {when}" if when else said))
    return found


def _split_reminder(said: str, now_ms: int, zone: str) -> tuple[str, str]:
    said = " ".join(said.split()).rstrip(" .!?")
    for pattern, what in ((WAKE, "wake up"), (ALARM, "")):
        if (found := pattern.match(said)) and (when := _alarm_time(found, now_ms, zone)):
            return what or found["what"].lower(), when
    asked = ASKED.match(said)
    rest = said[asked.end() :] if asked else said
    if asked and not LINK.match(rest):
        if (parted := _split_head(rest, now_ms, zone)) is not None:
            what, when = parted
            is_early = "wake" in asked[0].lower() and HOUR.fullmatch(when)
            return what, f"{when} in the morning" if is_early else when
    return _split_ends(LINK.sub("", rest), now_ms, zone)


def _split_head(said: str, now_ms: int, zone: str) -> tuple[str, str] | None:
    """The time right behind "remind me": as much of it as is one, before "to", "of" and the like; None when it stands elsewhere."""
    if said and english_rules.compiled(said, now_ms, zone) is not None:
        return "", said
    links = [link for link in LINKS.finditer(said) if len(said[: link.start()].split()) <= MAX_WORDS]
    for link in reversed(links):
        if english_rules.compiled(said[: link.start()], now_ms, zone) is not None:
            return said[link.end() :], said[: link.start()]
    for link in links:
        if _has_condition(said[: link.start()], now_ms, zone):
            return said[link.end() :], said[: link.start()]
    return None


def _split_ends(said: str, now_ms: int, zone: str) -> tuple[str, str]:
    """The time at the end of a text, or at its beginning."""
    failure: BadInput | None = None
    for what, when in _possible_cuts(said):
        try:
            if english_rules.compiled(when, now_ms, zone) is not None and not RELATIVE.search(what):
                return what, when
        except BadInput as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return said, ""


def _possible_cuts(said: str) -> Iterator[tuple[str, str]]:
    """What and when, the longest time first."""
    words = said.split(" ")
    count, most = len(words), min(len(words) - 1, MAX_WORDS)
    for place in range(count - most, count):
        what, when = " ".join(words[:place]).strip(" ,"), " ".join(words[place:]).strip(" ,")
        if not LAST.match(what):
            yield LINK.sub("", ASKED.sub("", what)), when
    for place in range(most, 0, -1):
        what = LINK.sub("", ASKED.sub("", " ".join(words[place:]).strip(" ,")))
        if not FIRST.match(what):
            yield what, " ".join(words[:place]).strip(" ,")


def _has_condition(when: str, now_ms: int, zone: str) -> bool:
    """Whether a text says when, with a condition: every day at 7 unless I am away."""
    try:
        return bool(english_rules.read(when, now_ms, zone, is_frequency=False).condition)
    except BadInput:
        return False


def _alarm_time(found: "re.Match[str]", now_ms: int, zone: str) -> str:
    """When an alarm is wanted; "" for never. For 10 minutes is in 10 minutes, at 7 in the morning."""
    when = found["when"].strip().removeprefix("for ").removeprefix("of ")
    early = (f"{when} in the morning", f"at {when} in the morning") if HOUR.fullmatch(when) else ()
    forms = (*early, when, f"in {when}", f"at {when}")
    return next((one for one in forms if english_rules.compiled(one, now_ms, zone) is not None), "")


def is_counted(when: str, now_ms: int, zone: str) -> bool:
    """True for a moment that is counted from now, as "in 20 minutes"; False for a date.

    What is counted moves with the moment at which it is read; nothing else does so by a minute and a second.
    """
    try:
        rules = [english_rules.read(when, at_ms, zone, is_frequency=False) for at_ms in (now_ms, now_ms + UNLIKELY_MS)]
    except BadInput:
        return False
    first, second = (recurrence.at(rule) if rule.kind == "once" else 0 for rule in rules)
    return second - first == UNLIKELY_MS
