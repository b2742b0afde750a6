"""Encrypted rooms, and how often each rotates its keys.

Owns `matrix_encrypted_rooms`. A room that was encrypted once stays so, whatever its server says later. Needs no library.
"""

import threading
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import NotFound
from appliance.matrix.homeserver import ROOT, Homeserver
from appliance.store.database import Store

KIND = "m.room.encryption"
WEEK_MS, MESSAGES = 7 * 24 * 3600 * 1000, 100  # what the specification says where a room does not
LEAST_MS = 3600 * 1000


class Rotation(Struct, frozen=True):
    """The age and number of messages after which the key of a room is replaced."""

    after_ms: int = WEEK_MS
    after_messages: int = MESSAGES


class EncryptedRooms:
    """The rooms. Safe for several threads."""

    def __init__(self, store: Store, server: Homeserver) -> None:
        self._store = store
        self._server = server
        self._guard = threading.Lock()
        self._plain: set[str] = set()  # as their server said; told when that changes

    def note(self, room: str, content: Any) -> None:
        """A room is encrypted from now on, as the content of its state says."""
        given = content if isinstance(content, dict) else {}
        after_ms = _between(given.get("rotation_period_ms"), LEAST_MS, WEEK_MS)
        after_messages = _between(given.get("rotation_period_msgs"), 1, MESSAGES)
        with self._guard:
            self._plain.discard(room)
        sql = "SELECT 1 FROM matrix_encrypted_rooms WHERE room = ? AND rotation_ms = ? AND rotation_messages = ?"
        if self._store.value(sql, (room, after_ms, after_messages)) is None:
            with self._store.write(durable=True) as execute:
                sql = (
                    "INSERT INTO matrix_encrypted_rooms VALUES (?1, ?2, ?3, ?4) "
                    "ON CONFLICT DO UPDATE SET rotation_ms = ?2, rotation_messages = ?3"
                )
                execute(sql, (room, after_ms, after_messages, now_ms()))

    def find(self, room: str) -> Rotation | None:
        """How often an encrypted room wants new keys; None for one that is not encrypted. Asks the server about an unknown one."""
        sql = "SELECT rotation_ms, rotation_messages FROM matrix_encrypted_rooms WHERE room = ?"
        if (row := self._store.row(sql, (room,))) is not None:
            return Rotation(row[0], row[1])
        with self._guard:
            if room in self._plain:
                return None
        try:
            content = self._server.call("GET", f"{ROOT}/rooms/{quote(room, safe='')}/state/{KIND}/")
        except NotFound:
            with self._guard:
                self._plain.add(room)
            return None
        self.note(room, content)
        return self.find(room)

    def are_there_any(self) -> bool:
        """Whether any room is encrypted."""
        return self._store.value("SELECT 1 FROM matrix_encrypted_rooms LIMIT 1") is not None


def _between(value: Any, least: int, most: int) -> int:
    """A number of a room, brought into our bounds; the upper one for none."""
    return max(least, min(value, most)) if isinstance(value, int) and not isinstance(value, bool) else most
