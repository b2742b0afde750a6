"""What a conversation leaves behind: before a session is archived, what its person said is looked through for things to remember.

By phrases, without a model, so that it works on every box. Only what people said since the last look counts; what was forgotten
meanwhile does not come back. A group's conversation gives memories of the group alone, never of its members. What another than
the owner said is kept with the name of who said it, and with the marks of the message in which it stood. Texts that came from
elsewhere (pages, documents, skills) are not looked at, and neither is what a model said.

What is worth remembering is found by phrases: preferences, decisions, facts, context; at most one of each kind in a message, ten in
a conversation. Messages under ten characters, what is less sure than the limit, and topics that are not wanted are left out.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from appliance.knowledge.change_log import By
from appliance.language.languages import expression
from appliance.memory.memories import SAID_BY, Memories
from appliance.memory.memory_record import Kind, topic_folder
from appliance.policy.taint_marks import CARRIED, read_marks
from appliance.records import Event, Marked
from appliance.sessions.people import LOCAL
from appliance.sessions.runs import Runs
from appliance.sessions.sessions import Session, Sessions
from appliance.store import visibility

MOST_RUNS, MOST_EVENTS = 50, 2000
REVIEWED = "reviewed_ms"  # in the metadata of a session
PREFERENCES = ("timezone", "language", "theme")  # of a session, which say something about the person
SURE = 0.9  # confidence of what was set rather than said
# Of a message that is read, of memories that one session gives, and of a memory that is kept; a title is cut.
LEAST_CHARS, MOST, LEAST_CONFIDENCE, TITLE_CHARS = 10, 10, 0.6, 50


class PhraseRule(msgspec.Struct, frozen=True):
    """What finding a phrase of one kind is worth; the phrases are the expressions `says_KIND` of the language files."""

    kind: Kind
    confidence: float
    importance: int


RULES = (
    PhraseRule("preference", 0.65, 5),
    PhraseRule("decision", 0.70, 7),
    PhraseRule("fact", 0.75, 6),
    PhraseRule("context", 0.60, 5),
)
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


class SessionReview:
    """Looks through sessions that are about to be archived."""

    def __init__(self, sessions: Sessions, runs: Runs, memories: Memories, is_on: Callable[[], bool]) -> None:
        """`is_on` says whether conversations are looked through at all (`sessions.archival.memory_extraction`)."""
        self._is_on = is_on
        self._sessions = sessions
        self._runs = runs
        self._memories = memories

    def review(self, session: Session, now: int) -> int:
        """Remember what a session says; how many records are new. The session's context owns them."""
        if not self._is_on():
            return 0
        since_ms = int(session.metadata.get(REVIEWED) or 0)
        owner = session.context if session.context.startswith(("user:", "group:")) else f"user:{session.person}"
        count = 0
        with visibility.showing(""):
            source = f"session:{session.id}"
            left = MOST
            for (who, marks), messages in self._sayings(session, owner, since_ms):
                found = extract_candidates(messages, most=left)
                left -= len(found)
                for one in found:
                    _, is_new = self._memories.write(
                        *(owner, f"{who}: {one.text}" if who else one.text),
                        title=f"{who}: {one.title}" if who else one.title,
                        topic=one.topic,
                        kind=one.kind,
                        importance=one.importance,
                        confidence=one.confidence,
                        source=source,
                        by=By("system", marks=marks),
                        attributes={SAID_BY: who} if who else None,
                    )
                    count += is_new
            for key in PREFERENCES:
                if (value := session.metadata.get(key)) and not since_ms:
                    text = f"Preferred {key}: {value}"
                    count += self._memories.write(
                        owner, text, topic="preferences", kind="preference", confidence=SURE, source=source, by=By("system")
                    )[1]
        self._sessions.annotate(session.id, REVIEWED, now)
        return count

    def _sayings(self, session: Session, owner: str, since_ms: int) -> list[tuple[tuple[str, Marked], list[str]]]:
        """What people said in a session since then, by who said it, "" for the owner, and its marks; what has none comes first."""
        found: list[Event] = []
        for run in self._runs.list_runs(session=session.id, limit=MOST_RUNS):
            if run.updated_ms >= since_ms:
                found += [event for event in self._runs.events(run.id, limit=MOST_EVENTS) if _is_said(event, since_ms)]
        sayings: dict[tuple[str, Marked], list[str]] = {}
        for event in sorted(found, key=lambda event: event.at_ms):
            person = self._sessions.resolve(event.channel or LOCAL, event.sender_id or session.person)
            who = "" if owner == f"user:{person}" else person
            sayings.setdefault((who, read_marks((event.input or {}).get(CARRIED))), []).append(event.content)
        return sorted(sayings.items(), key=lambda item: bool(item[0][1]))


def _is_said(event: Event, since_ms: int) -> bool:
    given = event.input or {}
    is_own = event.kind == "message" and event.role == "user" and "own" not in given and "rendered" not in given
    return is_own and event.at_ms > since_ms
