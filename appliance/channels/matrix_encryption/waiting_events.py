"""Encrypted messages whose key is not here yet: they wait, also over a restart, until it comes or a day has passed.

Owns `matrix_waiting`. Bounded: 50 messages of one sender, 500 of all.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.clock import now_ms
from appliance.store import wall_clock
from appliance.store.database import Store

MAX_OF_SENDER, MAX_EVENTS = 50, 500
KEPT_MS = 24 * 3600 * 1000


class WaitingEvents:
    """What waits for a key."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, room: str, event: Mapping[str, Any]) -> bool:
        """Keep an event; False when there are too many."""
        with self._store.write(durable=True) as execute:
            execute("DELETE FROM matrix_waiting WHERE received_ms < ?", (wall_clock.age_limit(self._store) - KEPT_MS,))
            sql = "SELECT COUNT(*), COALESCE(SUM(sender = ?1), 0), COALESCE(SUM(event = ?2), 0) FROM matrix_waiting"
            [(count, of_sender, is_known)] = execute(sql, (event["sender"], event["event_id"]))
            if is_known:
                return True
            if count >= MAX_EVENTS or of_sender >= MAX_OF_SENDER:
                return False
            values = (event["event_id"], room, event["content"]["session_id"], event["sender"], json.dumps(event), now_ms())
            execute("INSERT INTO matrix_waiting VALUES (?, ?, ?, ?, ?, ?)", values)
        return True

    def of_key(self, room: str, session: str, sender: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events that wait for a key, the oldest first, each with its room."""
        sql = "SELECT body FROM matrix_waiting WHERE room = ? AND session = ? AND sender = ? ORDER BY received_ms, event"
        for (body,) in self._store.rows(sql, (room, session, sender)):
            yield room, json.loads(body)

    def list_keys(self) -> list[tuple[str, str, str]]:
        """Room, session and sender of every key that something waits for."""
        rows = self._store.rows("SELECT DISTINCT room, session, sender FROM matrix_waiting")
        return [(str(room), str(session), str(sender)) for room, session, sender in rows]

    def remove(self, event: str) -> None:
        """Keep an event no longer."""
        with self._store.write() as execute:
            execute("DELETE FROM matrix_waiting WHERE event = ?", (event,))
