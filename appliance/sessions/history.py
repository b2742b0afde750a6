"""History: what people asked and what they were answered, over all runs of one person or group.

A projection of the record, nothing is kept here: two records for each prompt that was answered, the message and the last
words of its answer; what tools said is not in it, nor what no model could answer (S-015). Read from the end, so that a
long history costs no more than a short one. Also how a message is labelled with its channel and sender, and what a model
is told when the record cannot be read. Knows nothing about packets.
"""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import OwlError
from appliance.records import Memory, Message
from appliance.store import visibility
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
ASSISTANT = "assistant"
PAGE = 500  # messages looked through at a time, so that a long history is never in memory
MESSAGES = (
    "SELECT e.id, e.run, e.seq, e.role, e.content, s.channel, e.sender_id, e.at_ms FROM events e "
    "CROSS JOIN runs r ON r.id = e.run CROSS JOIN sessions s ON s.id = r.session "
    "WHERE e.kind = 'message' AND e.role IN ('user', 'assistant') AND trim(e.content) <> '' "
    "AND NOT EXISTS (SELECT 1 FROM loops l WHERE l.run = e.run AND l.prompt = e.id AND l.status = 500) "
)


class HistoryRecord(Struct, frozen=True):
    """One record: who said what where, in which run; `seq` is the number of its event, `label` what it is shown with."""

    run: str
    seq: int
    role: str
    text: str
    channel: str
    sender: str
    at_ms: int
    label: str = ""


class Mention(Struct, frozen=True):
    """A message that holds what was looked for, with its neighbours in the thread."""

    told: HistoryRecord
    before: HistoryRecord | None = None
    after: HistoryRecord | None = None


class Owner(Struct, frozen=True):
    """An address of the owner; with a channel it counts only there (S-038)."""

    address: str
    channel: str = ""


class History:
    """Reads what was said."""

    def __init__(self, store: Store, owners: Sequence[Owner] = ()) -> None:
        self._store = store
        self.owners = tuple(owners)

    def last(self, context: str, count: int) -> list[HistoryRecord]:
        """The last `count` records of a person or group, oldest first; none for 0 or less."""
        if count <= 0:
            return []
        rows = self._store.rows(
            "SELECT l.run, p.seq, p.content, p.channel, p.sender_id, p.at_ms, a.seq, a.content, a.at_ms "
            "FROM loops l CROSS JOIN runs r ON r.id = l.run CROSS JOIN sessions s ON s.id = r.session "
            "CROSS JOIN events p ON p.id = l.prompt CROSS JOIN events a ON a.id = ("
            "SELECT e.id FROM events e JOIN turns t ON t.id = e.turn WHERE t.loop = l.id AND e.run = l.run AND e.seq > p.seq "
            "AND e.kind = 'message' AND e.role = 'assistant' AND trim(e.content) <> '' ORDER BY e.seq DESC LIMIT 1) "
            "WHERE s.context = ?1 AND l.status = 200 AND r.kind IN ('chat', 'ask') AND r.deleted_ms IS NULL"
            f"{visibility.own_sessions('r.session')} "
            "ORDER BY l.id DESC LIMIT ?2",
            (context, -(-count // 2)),
        )
        told: list[HistoryRecord] = []
        for run, seq, text, channel, sender, at_ms, answer_seq, answer, answered_ms in reversed(rows):
            asked, answered = (label(channel, who, self.owners) for who in (sender, ASSISTANT))
            told.append(HistoryRecord(run, seq, "user", text, channel, sender, at_ms, asked))
            told.append(HistoryRecord(run, answer_seq, "assistant", answer, channel, ASSISTANT, answered_ms, answered))
        return told[-count:]

    def elsewhere(self, session: str, person: str, count: int) -> list[HistoryRecord]:
        """The last `count` records of the same person or group on other channels, since something was said in this session."""
        found = self._store.row("SELECT context, last_active_ms FROM sessions WHERE id = ?", (session,))
        context, since_ms = (str(found[0]), int(found[1])) if found is not None else (f"user:{person}", 0)
        if not self._store.value("SELECT 1 FROM sessions WHERE context = ? AND id <> ? LIMIT 1", (context, session)):
            return []
        door = session.partition(":")[0]
        return [told for told in self.last(context, count) if told.at_ms > since_ms and told.channel != door]

    def search(self, query: str, *, context: str = "", since_ms: int = 0, limit: int = 10) -> list[Mention]:
        """The newest messages of a person or group ("" for everybody) that hold these letters, in whatever case."""
        needle, found, last = re.compile(re.escape(query), re.IGNORECASE), list[Mention](), 2**62
        while len(found) < limit:
            rows = self._store.rows(
                f"{MESSAGES} AND e.id < ?1 AND e.at_ms >= ?2 AND (?3 = '' OR s.context = ?3) "
                f"AND r.kind IN ('chat', 'ask') AND r.deleted_ms IS NULL{visibility.own_sessions('r.session')} "
                "ORDER BY e.id DESC LIMIT ?4",
                (last, since_ms, context, PAGE),
            )
            for _, *row in rows:
                if len(found) < limit and needle.search(row[3]):
                    told = _message_from_row(row)
                    told = replace(told, label=label(told.channel, told.sender, self.owners))
                    found.append(Mention(told, self._message_beside(told, "<", "DESC"), self._message_beside(told, ">", "ASC")))
            if len(rows) < PAGE:
                break
            last = rows[-1][0]
        return found

    def _message_beside(self, told: HistoryRecord, side: str, order: str) -> HistoryRecord | None:
        row = self._store.row(f"{MESSAGES} AND e.run = ? AND e.seq {side} ? ORDER BY e.seq {order} LIMIT 1", (told.run, told.seq))
        return None if row is None else _message_from_row(row[1:])


def _message_from_row(row: Sequence[Any]) -> HistoryRecord:
    run, seq, role, text, channel, sender, at_ms = row
    return HistoryRecord(run, seq, role, text, channel, ASSISTANT if role == "assistant" else sender, at_ms)


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
    who = ASSISTANT if sender == ASSISTANT else "owner" if is_one_of(channel, sender, owners) else sender or "unknown"
    return f"[{channel} / {who}]"


def is_one_of(channel: str, sender: str, owners: Sequence[Owner]) -> bool:
    """Whether an address in a channel is the owner's: letter by letter, and in its own channel where it has one (S-038)."""
    return any(owner.address == sender and owner.channel in ("", channel) for owner in owners if sender)
