"""What a conversation says that is worth remembering, found by phrases: preferences, decisions, facts, context.

At most one of each kind in a message, ten in a conversation; messages under ten characters, what is less sure than the limit, and
topics that are not wanted are left out. It reads what people say, never what a model says. A model may find more; this works
without one.
"""

import re
from collections.abc import Sequence

import msgspec

from appliance.language.language_files import expression
from appliance.memory.memory_record import Kind, topic_folder

LEAST_CHARS = 10
MOST = 10
LEAST_CONFIDENCE = 0.6
TITLE_CHARS = 50


class Rule(msgspec.Struct, frozen=True):
    """What finding a phrase of one kind is worth; the phrases are the expressions `says_KIND` of the language files."""

    kind: Kind
    confidence: float
    importance: int


RULES = (Rule("preference", 0.65, 5), Rule("decision", 0.70, 7), Rule("fact", 0.75, 6), Rule("context", 0.60, 5))
SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")


class Candidate(msgspec.Struct, frozen=True):
    """Something that a message says that may be remembered."""

    kind: Kind
    title: str
    text: str
    confidence: float
    importance: int
    topic: str


def extract_candidates(
    messages: Sequence[str],
    *,
    least: float = LEAST_CONFIDENCE,
    most: int = MOST,
    allowed: Sequence[str] = (),
    denied: Sequence[str] = (),
) -> list[Candidate]:
    """What messages of one person say that is worth remembering, in their order; `allowed` empty lets every topic through."""
    found: list[Candidate] = []
    for message in messages:
        if len(message.strip()) < LEAST_CHARS or message.lstrip().startswith("/"):
            continue
        for rule in RULES:
            match = expression(f"says_{rule.kind}").search(message)
            topic = topic_folder(f"{rule.kind}s")
            if match is None or rule.confidence < least or topic in denied or (allowed and topic not in allowed):
                continue
            text = _sentence(message, match.start())
            if text.endswith("?") or any(one.text == text for one in found):
                continue  # a question says nothing, and a sentence is remembered once
            found.append(Candidate(rule.kind, title_of(text, rule.kind), text, rule.confidence, rule.importance, topic))
    return found[: max(0, most)]


def title_of(text: str, kind: str) -> str:
    """The first fifty characters, cut with dots, and the kind."""
    short = " ".join(text.split())
    return f"{short if len(short) <= TITLE_CHARS else short[: TITLE_CHARS - 3] + '...'} ({kind})"


def _sentence(message: str, at: int) -> str:
    """The sentence of a message that holds a position."""
    for match in SENTENCE.finditer(message):
        if match.start() <= at < match.end():
            return match[0].strip()
    return message.strip()
