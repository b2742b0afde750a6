"""History: what people asked and what they were answered, over all runs of one person or group.

A projection of the record, nothing is kept here: two records for each prompt that was answered, the message and the last
words of its answer; what tools said is not in it. Read from the end, so that a long history costs no more than a
short one. Also how a message is labelled with its channel and sender, and what a model is told when the record
cannot be read. Knows nothing about packets.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.errors import OwlError
from appliance.records import Memory, Message
from appliance.store import Store

LOG = logging.getLogger(__name__)
ASSISTANT = "assistant"


@dataclass(frozen=True)
class Told:
    """One record: who said what where, in which run; `seq` is the number of its event."""

    run: str
    seq: int
    role: str
    text: str
    channel: str
    sender: str
    at_ms: int


@dataclass(frozen=True)
class Owner:
    """An address of the owner; with a channel it counts only there (S-038)."""

    address: str
    channel: str = ""


class History:
    """Reads what was said."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def last(self, context: str, count: int) -> list[Told]:
        """The last `count` records of a person or group, oldest first; none for 0 or less."""
        if count <= 0:
            return []
        rows = self._store.rows(
            "SELECT l.run, p.seq, p.content, p.channel, p.sender_id, p.at_ms, a.seq, a.content, a.at_ms "
            "FROM loops l CROSS JOIN runs r ON r.id = l.run CROSS JOIN sessions s ON s.id = r.session "
            "CROSS JOIN events p ON p.id = l.prompt CROSS JOIN events a ON a.id = ("
            "SELECT e.id FROM events e JOIN turns t ON t.id = e.turn WHERE t.loop = l.id AND e.run = l.run AND e.seq > p.seq "
            "AND e.kind = 'message' AND e.role = 'assistant' AND trim(e.content) <> '' ORDER BY e.seq DESC LIMIT 1) "
            "WHERE s.context = ?1 AND l.status = 200 AND r.kind IN ('chat', 'ask') AND r.deleted_ms IS NULL "
            "ORDER BY l.id DESC LIMIT ?2",
            (context, -(-count // 2)),
        )
        told: list[Told] = []
        for run, seq, text, channel, sender, at_ms, answer_seq, answer, answered_ms in reversed(rows):
            told.append(Told(run, seq, "user", text, channel, sender, at_ms))
            told.append(Told(run, answer_seq, "assistant", answer, channel, ASSISTANT, answered_ms))
        return told[-count:]


class Recall:
    """Memory port over another one: when that cannot be read, the prompt alone is remembered (S-014)."""

    def __init__(self, memory: Memory, prompt: Callable[[str], Sequence[Message]]) -> None:
        self._memory = memory
        self._prompt = prompt

    def recent(self, run: str, limit: int) -> Sequence[Message]:
        """Memory port: the last messages of a run, or at least its prompt."""
        try:
            return self._memory.recent(run, limit)
        except (OwlError, ValueError) as error:  # ValueError: a row that is no JSON any more
            LOG.error("answering without what was said before: %s", error, extra={"run": run})
            return self._prompt(run)


def label(channel: str, sender: str, owners: Sequence[Owner] = ()) -> str:
    """Who said it where, such as `[local / owner]`; "" for a record without a channel (S-037)."""
    if not channel:
        return ""
    is_owner = any(owner.address == sender and owner.channel in ("", channel) for owner in owners if sender)
    who = ASSISTANT if sender == ASSISTANT else "owner" if is_owner else sender or "unknown"
    return f"[{channel} / {who}]"
