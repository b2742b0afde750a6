"""Encrypted rooms: takes keys that arrive, reads what others write, and encrypts what we write.

Brings the parts of this package together for one device. A message is read when its key is here and the device that the key came
from is one of its sender's; whether that device is verified is said with it. Owns no table, and does not decide what a
message may do.

Messages whose key is not here yet wait in `matrix_waiting`, which is owned here, also over a restart, until it comes or a day has
passed: 50 messages of one sender, 500 of all.
"""

import hmac
import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from appliance.clock import monotonic_s, now_ms
from appliance.errors import NotFound, OwlError, Refused
from appliance.matrix.cross_signing import CrossSigning
from appliance.matrix.device_book import Device
from appliance.matrix.device_list import DeviceList
from appliance.matrix.encrypted_rooms import Rotation
from appliance.matrix.homeserver import Homeserver
from appliance.matrix.olm_account import OLM, BrokenConnection, OlmAccount, Opened, Undecryptable
from appliance.matrix.outbound import RoomEncryptor
from appliance.matrix.room_keys import RoomKey, RoomKeys
from appliance.store import wall_clock
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
AGAIN_S = 3600.0  # between two new connections to a device whose old one is broken
ASK_S = 60.0  # between two questions about the devices of one user
MAX_NOTED = 1000
MAX_OF_SENDER, MAX_EVENTS = 50, 500
KEPT_MS = 24 * 3600 * 1000


class Decrypted(Struct, frozen=True):
    """An event as it reads, and the device that wrote it."""

    event: dict[str, Any]
    device: Device


class RoomEncryption:
    """Our device in encrypted rooms. Safe for several threads."""

    def __init__(self, store: Store, server: Homeserver, user: str, device: str, secret: bytes) -> None:
        """`secret` is the value of the vault under which everything is stored."""
        # The secret is random, so that one keyed hash for each purpose is enough.
        pickle_key, sealing_key = (
            hmac.digest(secret, f"{what} of {user}".encode(), "sha256") for what in ("pickles", "signing keys")
        )
        self.account = OlmAccount(store, user, device, pickle_key)
        self.devices = DeviceList(store, server)
        self._cross_signing = CrossSigning(store, self.account, sealing_key)
        self._keys = RoomKeys(store, pickle_key)
        self._waiting = WaitingEvents(store)
        self._outbound = RoomEncryptor(store, server, self.account, self.devices)
        self._store = store
        self._server = server
        self._guard = threading.Lock()  # one thread at a time encrypts
        self._members: dict[str, tuple[str, ...]] = {}
        self._noted: dict[str, float] = {}  # what is not done again before a time

    def open(self) -> None:
        """Load or make the keys of our device and give the server what it lacks of them."""
        self.account.open()
        known = self.devices.query([self.account.user])
        listed = known.get("device_keys")
        own = listed.get(self.account.user) if isinstance(listed, dict) else None
        ours = own.get(self.account.device) if isinstance(own, dict) else None
        self.account.publish(self._server, ours if isinstance(ours, dict) else {})
        self._cross_signing.ensure(self._server, known)

    # -- receiving ------------------------------------------------------------------------------------

    def note_sync(self, found: Mapping[str, Any]) -> None:
        """Take up what an answer to /sync says of keys and devices. What a device sent is stored before this returns."""
        self.devices.note_changes(found.get("device_lists"))
        sent = found.get("to_device")
        events = sent.get("events") if isinstance(sent, dict) else None
        for event in events if isinstance(events, list) else ():
            if isinstance(event, dict) and event.get("type") == "m.room.encrypted":
                self._take_sent(event)
        counts = found.get("device_one_time_keys_count")
        if isinstance(counts, dict):
            try:
                self.account.replenish(self._server, counts, found.get("device_unused_fallback_key_types"))
            except OwlError as error:  # the next answer says again that there are few
                LOG.warning("matrix: no new keys could be given to the server: %s", error)

    def _take_sent(self, event: dict[str, Any]) -> None:
        content = event.get("content")
        if not isinstance(content, dict) or content.get("algorithm") != OLM:
            return
        try:
            with self._store.write(durable=True):
                opened: Opened = self.account.decrypt(event)
                if opened.type == "m.room_key":
                    self._keys.take(opened)
        except Undecryptable as error:
            LOG.info("matrix: what a device of %.200s sent cannot be read: %s", event.get("sender"), error)
            if isinstance(error, BrokenConnection):
                self._mend(str(event.get("sender")), str(content.get("sender_key")))

    def _mend(self, user: str, curve: str) -> None:
        """Begin a new connection to a device that uses one which we cannot read."""
        if not self._may(f"mend {curve}", AGAIN_S):
            return
        try:
            self.devices.refresh([user])
            for device in self.devices.list_devices(user):
                if device.curve == curve:
                    with self._guard:
                        self._outbound.greet(device)
        except OwlError as error:
            LOG.info("matrix: no new connection to a device of %.200s: %s", user, error)

    def read(self, room: str, event: dict[str, Any]) -> Decrypted | None:
        """What an encrypted event says; None when its key is not here yet, for which it waits.

        Refused and BadInput say why it is never read.
        """
        try:
            inner, key = self._keys.decrypt(room, event)
        except NotFound as error:
            if not self._waiting.put(room, event):
                raise Refused(f"{error.message}, and too many wait for theirs") from None
            return None
        device = self._find_device(event["sender"], key)
        content, outer = inner["content"], event["content"]
        if "m.relates_to" in outer:
            content = {**content, "m.relates_to": outer["m.relates_to"]}
        return Decrypted({**event, "type": inner["type"], "content": content}, device)

    def list_due(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events that waited for a key which is here by now, each with its room."""
        for room, session, sender in self._waiting.list_keys():
            if self._keys.has(room, session, sender):
                yield from self._waiting.of_key(room, session, sender)

    def drop(self, event_id: str) -> None:
        """An event does not wait any more: it was read, or never will be."""
        self._waiting.remove(event_id)

    def _find_device(self, user: str, key: RoomKey) -> Device:
        """The device of a user from which a key came; Refused when none of theirs has its keys."""
        self.devices.refresh([user])
        found = self.devices.find(user, key.curve, key.signing)
        if found is None and self._may(f"ask {user}", ASK_S):
            self.devices.refresh([user], is_forced=True)
            found = self.devices.find(user, key.curve, key.signing)
        if found is None:
            raise Refused("no device of its sender has the keys with which it was encrypted")
        return found

    # -- sending --------------------------------------------------------------------------------------

    def sent(self, room: str, key: str) -> dict[str, Any] | None:
        """The ciphertext of an earlier attempt of this send, which may have been cut off."""
        return self._outbound.sent(room, key)

    def encrypt(self, room: str, key: str, content: Mapping[str, Any], rotation: Rotation) -> dict[str, Any]:
        """A message for a room; `key` names the send as far as it may be repeated."""
        with self._guard:
            return self._outbound.encrypt(room, key, "m.room.message", content, self._list_members(room), rotation)

    def forget_members(self, room: str) -> None:
        """Somebody may have come or gone."""
        self._members.pop(room, None)

    def _list_members(self, room: str) -> Sequence[str]:
        if room not in self._members:
            self._members[room] = self._server.members(room)
        return self._members[room]

    def _may(self, what: str, pause_s: float) -> bool:
        """Whether something may be done again; notes that it is."""
        now = monotonic_s()
        if self._noted.get(what, 0.0) > now:
            return False
        while len(self._noted) >= MAX_NOTED:
            self._noted.pop(next(iter(self._noted)))
        self._noted[what] = now + pause_s
        return True


class WaitingEvents:
    """Events that cannot be decrypted before a key arrives."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, room: str, event: Mapping[str, Any]) -> bool:
        """Keep an event; False when there are too many."""
        with self._store.write(durable=True) as execute:
            execute(
                f"DELETE FROM matrix_waiting WHERE received_ms {wall_clock.OLD} ?", (wall_clock.age_limit(self._store) - KEPT_MS,)
            )
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
