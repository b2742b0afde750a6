"""What a conversation says that is worth remembering, found by phrases: preferences, decisions, facts, context.

At most one of each kind in a message, ten in a conversation; messages under ten characters, what is less sure than the limit, and
topics that are not wanted are left out. It reads what people say, never what a model says. A model may find more; this works
without one. Phrases are English, German, French and Spanish.
"""

import re
from collections.abc import Sequence

import msgspec

from appliance.memory.memory_record import Kind, topic_folder

LEAST_CHARS = 10
MOST = 10
LEAST_CONFIDENCE = 0.6
TITLE_CHARS = 50


class Rule(msgspec.Struct, frozen=True):
    """Phrases of one kind and what finding one is worth."""

    kind: Kind
    confidence: float
    importance: int
    pattern: str


RULES = (
    Rule(
        "preference",
        0.65,
        5,
        r"\b(?:i (?:prefer|like|love|hate|dislike|don't like|do not like|always want|never want)|my favou?rite"
        r"|ich (?:mag|bevorzuge|liebe|hasse|trinke lieber|esse lieber)|mein\w* lieblings\w+|je préfère|j'aime|je n'aime pas|"
        r"prefiero|me gusta"
        r"|no me gusta|mi \w+ favorit[oa])\b",
    ),
    Rule(
        "decision",
        0.70,
        7,
        r"\b(?:(?:we|i)(?:'ve| have)? decided|(?:we|i) (?:will|shall) go with|let's go with|(?:wir|ich) ha(?:ben|be) (?:uns|"
        r"mich)? ?(?:entschieden|beschlossen)"
        r"|(?:nous avons|j'ai) décidé|(?:hemos|he) decidido)\b",
    ),
    Rule(
        "fact",
        0.75,
        6,
        r"\b(?:my (?:name|birthday|address|phone|number|wife|husband|son|daughter|mother|father|doctor|car|boss|partner|dog|"
        r"cat)\b.{0,40}\b(?:is|are)"
        r"|i (?:am|was) born|i (?:live|work) (?:in|at|for)|i'm allergic|i am allergic|mein\w* \w+ (?:heißt|ist|wohnt)|"
        r"ich (?:heiße|wohne|arbeite|bin allergisch)"
        r"|je m'appelle|j'habite|je travaille|me llamo|vivo en|trabajo en)\b",
    ),
    Rule(
        "context",
        0.60,
        5,
        r"\b(?:i(?:'m| am) (?:currently |now )?(?:working on|planning|preparing|learning|building|looking for)|(?:we|"
        r"i) (?:are|am) moving"
        r"|ich (?:arbeite gerade an|plane|lerne gerade)|je travaille sur|je prépare|estoy (?:trabajando en|preparando|"
        r"aprendiendo))\b",
    ),
)
PATTERNS = tuple((rule, re.compile(rule.pattern, re.IGNORECASE)) for rule in RULES)
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
        for rule, pattern in PATTERNS:
            match = pattern.search(message)
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
