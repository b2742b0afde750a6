"""Keys with which others encrypt what they write in rooms (Megolm sessions), and which of their messages were read.

Owns `matrix_room_keys` and `matrix_message_indexes`. A key belongs to the device that sent it, and reads messages of that user in
that room alone. Each number of a key is read for one event: a copy of a message under another event is a replay. Bounded: of one
sender the newest 200 keys are kept, of all 5000; what an older one has encrypted cannot be read again. Keys that somebody
forwards are not taken. Knows nothing about who is trusted.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

import vodozemac
from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import BadInput, NotFound, Refused
from appliance.matrix.olm_account import MEGOLM, UNREADABLE, Opened
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
MAX_OF_SENDER, MAX_KEYS = 200, 5000
MAX_NAME = 255


class RoomKey(Struct, frozen=True):
    """Where a key came from: the user, and the two keys of the device, as its encrypted connection to ours proves."""

    room: str
    session: str
    sender: str
    curve: str
    signing: str


class RoomKeys:
    """The keys that are known. Safe for several threads: all is in the database."""

    def __init__(self, store: Store, pickle_key: bytes) -> None:
        self._store = store
        self._key = pickle_key

    def take(self, opened: Opened) -> RoomKey | None:
        """Store the key in a message of a device; None for none, or one that brings nothing new. Call inside a write."""
        content = opened.content
        room, name, text = (content.get(one) for one in ("room_id", "session_id", "session_key"))
        if content.get("algorithm") != MEGOLM or not all(isinstance(one, str) for one in (room, name, text)):
            return None
        key = RoomKey(str(room), str(name), opened.sender, opened.curve, opened.signing)
        try:
            session = vodozemac.InboundGroupSession(vodozemac.SessionKey(str(text)))
        except UNREADABLE as error:
            LOG.info("matrix: a malformed key of a room from %.200s: %s", opened.sender, error)
            return None
        if session.session_id != name or len(key.room) > MAX_NAME:
            return None
        with self._store.write(durable=True) as execute:
            # Another device of theirs cannot take the place of the first; the same one may reach further back.
            known = self._load(key.room, key.session, key.sender)
            if known is not None:
                is_same = (known[0].curve, known[0].signing) == (key.curve, key.signing)
                if not is_same or known[1].first_known_index <= session.first_known_index:
                    return None
                execute("DELETE FROM matrix_room_keys WHERE room = ? AND session = ? AND sender = ?", (room, name, key.sender))
            values = (key.room, key.session, key.sender, key.curve, key.signing, session.pickle(self._key), now_ms())
            execute("INSERT INTO matrix_room_keys VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            for chosen, most in (("sender = ?1", MAX_OF_SENDER), ("?1 = ?1", MAX_KEYS)):
                sql = (
                    f"DELETE FROM matrix_room_keys WHERE {chosen} AND received_ms < "
                    f"(SELECT received_ms FROM matrix_room_keys WHERE {chosen} ORDER BY received_ms DESC LIMIT 1 OFFSET ?2)"
                )
                execute(sql, (key.sender, most - 1))
        return key

    def has(self, room: str, session: str, sender: str) -> bool:
        """Whether a key is known."""
        sql = "SELECT 1 FROM matrix_room_keys WHERE room = ? AND session = ? AND sender = ?"
        return self._store.value(sql, (room, session, sender)) is not None

    def decrypt(self, room: str, event: Mapping[str, Any]) -> tuple[dict[str, Any], RoomKey]:
        """What an encrypted event of a room says, as `type` and `content`, and whose key it was.

        NotFound when the key is not there yet, BadInput for what is malformed, Refused for a replay, for one that was written
        before we were given the key, and for what was encrypted for another room.
        """
        content = event["content"]
        if content.get("algorithm") != MEGOLM:
            raise BadInput(f"encrypted with {str(content.get('algorithm'))[:60]!r}, which this channel cannot read")
        name, text, sender = content.get("session_id"), content.get("ciphertext"), event["sender"]
        if not isinstance(name, str) or not isinstance(text, str):
            raise BadInput("malformed: an encrypted message without a key's name or a text")
        if (known := self._load(room, name, sender)) is None:
            raise NotFound("the key of this message is not here yet")
        key, session = known
        try:
            message = vodozemac.MegolmMessage.from_base64(text)
            if message.message_index() < session.first_known_index:
                raise Refused("it was written before the assistant was given the key")
            found = session.decrypt(message)
            said = json.loads(found.plaintext)
            inner = {"type": str(said["type"]), "content": dict(said["content"])}
        except UNREADABLE as error:
            raise BadInput(f"it cannot be decrypted: {type(error).__name__}") from None
        if said.get("room_id") != room:
            raise Refused("it was encrypted for another room")
        with self._store.write() as execute:
            numbered = (room, name, sender, found.message_index)
            sql = "INSERT INTO matrix_message_indexes VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
            execute(sql, (*numbered, event["event_id"]))
            sql = "SELECT event FROM matrix_message_indexes WHERE room = ? AND session = ? AND sender = ? AND number = ?"
            if execute(sql, numbered)[0][0] != event["event_id"]:
                raise Refused("it is a copy of an earlier message")
        return inner, key

    def _load(self, room: str, session: str, sender: str) -> tuple[RoomKey, Any] | None:
        sql = "SELECT curve, signing, pickle FROM matrix_room_keys WHERE room = ? AND session = ? AND sender = ?"
        row = self._store.row(sql, (room, session, sender))
        if row is None:
            return None
        try:
            found = vodozemac.InboundGroupSession.from_pickle(row[2], self._key)
        except UNREADABLE:  # of an earlier vault
            return None
        return RoomKey(room, session, sender, str(row[0]), str(row[1])), found
