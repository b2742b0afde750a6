"""The state that an answer of the program left, read from its words: for talks that a test writes down as texts."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from appliance.language.planning.plans import SOURCE
from appliance.language.router import ORDER, Router
from appliance.language.times import dates
from appliance.records import Asked, Message, ThreadState

KINDS = ("when", "of_what")
REF = re.compile(r"\[([a-z]+:/{1,2}[^\[\]\n]+)\]")


def _key(line: str) -> str:
    """What names one of those that were listed: the number of a task, or the line."""
    number = re.match(r"(\d+)\. ", line)
    return number[1] if number else re.sub(r" \[[a-z]+:/.*\]$", "", line.removeprefix("- "))


def with_questions(messages: Sequence[Message], router: Router) -> list[Message]:
    """The messages, each answer with the notes that it quotes and the question of a language file that it ends with, as data."""
    found: list[Message] = []
    for message in messages:
        asked = _asked(message.content, found[-1].content, router) if message.role == "assistant" and found else None
        quoted = tuple(one.replace(":/", "://") if "://" not in one else one for one in REF.findall(message.content))
        is_state = message.role == "assistant" and (asked or quoted)
        found.append(replace(message, state=ThreadState(asked, quoted, SOURCE.sub("", message.content)) if is_state else None))
    return found


def _asked(text: str, before: str, router: Router) -> Asked | None:
    for language in router.languages.all:
        for name, phrase in language.phrases.items():
            made = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(phrase))
            if name.startswith("sure_") and (fits := re.search(rf"{made}\Z", text, re.DOTALL)):
                parts = fits.groupdict()
                if name == "sure_remind":
                    moment = dates.read(parts["time"], language, datetime.now(UTC))
                    assert moment is not None
                    parts["rule"] = moment.at.isoformat()
                return Asked("sure", name.removeprefix("sure_"), language.name, parts)
            if name in KINDS and (fits := re.fullmatch(made, text, re.DOTALL)):
                return Asked(name, "", language.name, fits.groupdict())
        if text.startswith(language.phrases.get("which", "\0")):
            intent = router.cue(before, ORDER, can_point=True)
            parts = {} if intent is None else intent.parts
            options = tuple(_key(line) for line in text.splitlines()[1:])
            return Asked("which", "" if intent is None else intent.name, language.name, parts, options)
    return None
