"""Copies of what a model was sent and what it said, turn by turn, for people to look at; no model ever sees them.

Owns the tables `copies` and `copied_texts`. A copy is a list of named texts, each in pieces of some lines; equal pieces
are kept once, compressed, so what did not change costs its bytes once, however many turns it is sent in. Kept for runs in
the layout `knowledge.entries`, or for all, or for none; gone with their run, and after a time. A copy is an aid: one that cannot be
written is logged.
"""

import hashlib
import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import NotFound, OwlError
from appliance.prompt.packet_types import Packet, PacketScene
from appliance.records import Message, Part, ToolCall, to_plain
from appliance.store import wall_clock
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
DAY_MS = 86_400_000
PIECE_CHARS, MOST_CHARS = 2_048, 16_384  # of a piece of a text, when it is made of lines
ENDS = 4  # every so many lines, by what they say, one ends a piece: the same ones in the next turn
Kept = Literal["entries", "all", "none"]


class SentCopy(Struct, frozen=True):
    """One turn: its texts by name, `system/...` and `user/...` as they were sent, then `answer` and `reasoning`."""

    run: str
    turn: int
    route: str
    tokens: int
    at_ms: int
    parts: tuple[Part, ...]

    def text(self, name: str) -> str:
        """The whole `system` or `user` message, the `answer` or the `reasoning`, as it was."""
        sep = "\n\n"
        return sep.join(part.text for part in self.parts if part.name == name or part.name.startswith(f"{name}/"))


class Copies:
    """Writes and reads copies."""

    def __init__(self, store: Store, kept: Kept = "entries") -> None:
        self._store = store
        self.kept: Kept = kept

    def configure(self, kept: Kept) -> None:
        """Keep the turns of these runs from now on."""
        self.kept = kept

    def store_turn(self, scene: PacketScene, packet: Packet, answer: str, reasoning: str, tokens: int) -> None:
        """Keep a turn, if turns of its kind are kept; the last one of a turn that was asked twice stays."""
        if self.kept == "none" or (self.kept == "entries" and scene.layout != "entries"):
            return
        parts = [*_sent_parts(packet), Part("answer", answer), *([Part("reasoning", reasoning)] if reasoning else [])]
        try:
            with self._store.write() as execute:
                known = [[name, self._store_text(text)] for part in parts for name, text in _split_pieces(part)]
                execute(
                    "INSERT INTO copies (run, turn, route, parts, tokens, at_ms) VALUES (?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (run, turn) DO UPDATE SET route = excluded.route, parts = excluded.parts, "
                    "tokens = excluded.tokens, at_ms = excluded.at_ms",
                    (scene.run, scene.turn, scene.route.name, json.dumps(known), tokens, now_ms()),
                )
        except OwlError as error:
            LOG.warning("no copy of turn %d of run %s: %s", scene.turn, scene.run, error)

    def turns(self, run: str) -> list[int]:
        return [int(row[0]) for row in self._store.rows("SELECT turn FROM copies WHERE run = ? ORDER BY turn", (run,))]

    def get(self, run: str, turn: int) -> SentCopy:
        """One turn; NotFound where none was kept."""
        row = self._store.row("SELECT route, tokens, at_ms, parts FROM copies WHERE run = ? AND turn = ?", (run, turn))
        if row is None:
            raise NotFound(f"no copy of turn {turn} of {run}", hint="runs.copies says which runs have them")
        named = json.loads(str(row[3]))
        rows = self._store.rows(
            "SELECT id, data FROM copied_texts WHERE id IN (SELECT value FROM json_each(?))", (json.dumps([n[1] for n in named]),)
        )
        texts = {int(key): zlib.decompress(bytes(data)).decode("utf-8", "surrogatepass") for key, data in rows}
        parts: list[Part] = []
        for name, key in named:
            if name or not parts:
                parts.append(Part(name, texts[key]))
            else:
                parts[-1] = Part(parts[-1].name, parts[-1].text + texts[key])
        return SentCopy(run, turn, str(row[0]), int(row[1]), int(row[2]), tuple(parts))

    def expire(self, days: float) -> int:
        """Drop copies older than so many days, and the texts that no copy has any more; how many copies went."""
        before_ms = wall_clock.age_limit(self._store) - int(days * DAY_MS)
        with self._store.write() as execute:
            gone = len(execute(f"DELETE FROM copies WHERE at_ms {wall_clock.OLD} ? RETURNING id", (before_ms,)))
            execute("DELETE FROM copied_texts WHERE id NOT IN (SELECT p.value ->> 1 FROM copies, json_each(copies.parts) p)")
        return gone

    def _store_text(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(data).digest()
        found = self._store.value("SELECT id FROM copied_texts WHERE hash = ?", (digest,))
        if found is not None:
            return int(found)
        with self._store.write() as execute:
            packed = zlib.compress(data, 6)
            sql = "INSERT INTO copied_texts (hash, chars, data) VALUES (?, ?, ?) RETURNING id"
            return int(execute(sql, (digest, len(text), packed))[0][0])


def _sent_parts(packet: Packet) -> Iterator[Part]:
    """The sent messages, split into the pieces that stay the same from turn to turn."""
    for part in packet.system:
        yield Part(f"system/{part.name}", part.text)
    if packet.blocks:
        yield from (Part(f"user/{part.name}", part.text) for part in packet.blocks)
        return
    for number, message in enumerate(packet.messages, 1):
        yield Part(f"user/{number} {message.role}", _message_text(message))


def _split_pieces(part: Part) -> Iterator[tuple[str, str]]:
    """A text in pieces, the first with its name: where one ends depends on its lines, not on what stands before them."""
    name, lines, size = part.name, [], 0
    for line in part.text.splitlines(keepends=True):
        lines.append(line)
        size += len(line)
        if size >= MOST_CHARS or (size >= PIECE_CHARS and zlib.crc32(line.encode("utf-8", "surrogatepass")) % ENDS == 0):
            yield name, "".join(lines)
            name, lines, size = "", [], 0
    if lines or name:
        yield name, "".join(lines)


def _message_text(message: Message) -> str:
    calls: Sequence[ToolCall] = message.tool_calls
    return message.content + "".join(f"\n{json.dumps(to_plain(call), ensure_ascii=False)}" for call in calls)
