"""The question that an answer of the program ended with, read from its words: for talks that a test writes down as texts."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from appliance.language.router import ORDER, Router
from appliance.records import Asked, Message

KINDS = ("when", "of_what")


def with_questions(messages: Sequence[Message], router: Router) -> list[Message]:
    """The messages, each answer with the question of a language file that it ends with, as the program keeps it."""
    found: list[Message] = []
    for message in messages:
        asked = _asked(message.content, found[-1].content, router) if message.role == "assistant" and found else None
        found.append(replace(message, asked=asked))
    return found


def _asked(text: str, before: str, router: Router) -> Asked | None:
    for language in router.languages.all:
        for name, phrase in language.phrases.items():
            made = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(phrase))
            if name.startswith("sure_") and (fits := re.search(rf"{made}\Z", text, re.DOTALL)):
                return Asked("sure", name.removeprefix("sure_"), language.name, fits.groupdict())
            if name in KINDS and (fits := re.fullmatch(made, text, re.DOTALL)):
                return Asked(name, "", language.name, fits.groupdict())
        if text.startswith(language.phrases.get("which", "\0")):
            intent = router.cue(before, ORDER, can_point=True)
            parts = {} if intent is None else intent.parts
            return Asked("which", "" if intent is None else intent.name, language.name, parts, tuple(text.splitlines()[1:]))
    return None
