"""What we write in encrypted rooms: the key of a room, whom it is given to, and what was encrypted with it.

Owns `matrix_sent`: the ciphertext of what is sent, for a day, so that a send that is repeated sends the same bytes. The keys
themselves (outbound Megolm sessions) live in memory alone: after a restart, a power cut or a restored backup a new one begins, so
that no number of a key is ever used for two texts. A key is given to all devices of all who are in the room, verified or not,
which is what other clients do; it is made anew as often as the room says, and when somebody or a device has left.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import vodozemac

from appliance.clock import monotonic_s, new_id, now_ms
from appliance.matrix.device_book import Device
from appliance.matrix.device_list import DeviceList
from appliance.matrix.encrypted_rooms import Rotation
from appliance.matrix.homeserver import Homeserver
from appliance.matrix.olm_account import MEGOLM, ONE_TIME, OlmAccount
from appliance.matrix.signed_json import is_signed_by
from appliance.store import wall_clock
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
KEPT_MS = 24 * 3600 * 1000
CLAIM_DEVICES, SEND_DEVICES = 100, 100  # in one call
AGAIN_S = 600.0  # until a device that gave no key is asked again
FAILED = (ValueError, TypeError, KeyError, AttributeError)


class _RoomSession:
    """The key of one room, and the devices that have it, by their keys."""

    def __init__(self) -> None:
        self.session: Any = vodozemac.GroupSession()
        self.begun_s = monotonic_s()
        self.shared: set[tuple[str, str]] = set()

    def is_stale(self, rotation: Rotation, devices: Sequence[Device]) -> bool:
        """Whether it is used up, or somebody has it who is not in the room any more."""
        is_old = monotonic_s() - self.begun_s >= rotation.after_ms / 1000
        is_used_up = self.session.message_index >= rotation.after_messages
        return is_old or is_used_up or not self.shared <= {(one.user, one.curve) for one in devices}


class RoomEncryptor:
    """Encrypts for rooms. One thread at a time: the caller holds a lock."""

    def __init__(self, store: Store, server: Homeserver, account: OlmAccount, devices: DeviceList) -> None:
        self._store = store
        self._server = server
        self._account = account
        self._devices = devices
        self._sessions: dict[str, _RoomSession] = {}
        self._silent: dict[str, float] = {}  # devices without a connection, and when they are asked again

    def sent(self, room: str, key: str) -> dict[str, Any] | None:
        """The ciphertext that an earlier attempt of this send made."""
        text = self._store.value("SELECT content FROM matrix_sent WHERE room = ? AND key = ?", (room, key))
        return None if text is None else dict(json.loads(text))

    def encrypt(
        self, room: str, key: str, kind: str, content: Mapping[str, Any], members: Sequence[str], rotation: Rotation
    ) -> dict[str, Any]:
        """The content of an `m.room.encrypted` event; the key of the room is given before to all who are to read it.

        `key` names the send that may be repeated, "" for one that is not.
        """
        self._devices.refresh(members)
        devices = [one for user in members for one in self._devices.list_devices(user) if one.curve != self._account.curve]
        known = self._sessions.get(room)
        if known is None or known.is_stale(rotation, devices):
            known = self._sessions[room] = _RoomSession()
        self._share(room, known, [one for one in devices if (one.user, one.curve) not in known.shared])
        said = json.dumps({"type": kind, "content": content, "room_id": room}).encode()
        made = {
            "algorithm": MEGOLM,
            "sender_key": self._account.curve,
            "device_id": self._account.device,
            "session_id": known.session.session_id,
            "ciphertext": known.session.encrypt(said).to_base64(),
        }
        if "m.relates_to" in content:  # servers group threads and edits by it
            made["m.relates_to"] = content["m.relates_to"]
        if not key:
            return made
        with self._store.write(durable=True) as execute:
            execute(f"DELETE FROM matrix_sent WHERE sent_ms {wall_clock.OLD} ?", (wall_clock.age_limit(self._store) - KEPT_MS,))
            execute("INSERT INTO matrix_sent VALUES (?, ?, ?, ?)", (room, key, json.dumps(made), now_ms()))
        return made

    def greet(self, device: Device) -> None:
        """Begin a new connection to a device whose old one reads nothing any more, and let it know."""
        self._claim([device])
        if self._account.has_session(device.curve):
            self._send_each([(device, "m.dummy", {})])

    def _share(self, room: str, known: _RoomSession, devices: Sequence[Device]) -> None:
        """Give the key to devices; those that cannot be reached read nothing until they can."""
        if not devices:
            return
        self._claim([one for one in devices if not self._account.has_session(one.curve)])
        reached = [one for one in devices if self._account.has_session(one.curve)]
        content = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": known.session.session_id,
            "session_key": known.session.session_key.to_base64(),
        }
        for start in range(0, len(reached), SEND_DEVICES):
            some = reached[start : start + SEND_DEVICES]
            self._send_each([(one, "m.room_key", content) for one in some])
            known.shared |= {(one.user, one.curve) for one in some}

    def _claim(self, devices: Sequence[Device]) -> None:
        """Begin connections, each with a key of the device that it has signed."""
        now = monotonic_s()
        wanted = [one for one in devices if self._silent.get(one.curve, 0.0) <= now]
        for start in range(0, len(wanted), CLAIM_DEVICES):
            some = wanted[start : start + CLAIM_DEVICES]
            asked: dict[str, dict[str, str]] = {}
            for one in some:
                asked.setdefault(one.user, {})[one.device] = ONE_TIME
            found = self._server.call("POST", "/_matrix/client/v3/keys/claim", {"one_time_keys": asked})
            for one in some:
                try:
                    [given] = found["one_time_keys"][one.user][one.device].values()
                    if not is_signed_by(given, one.user, one.signing, one.device):
                        raise ValueError("its key for new connections is not signed by it")
                    self._account.begin_session(one.curve, given["key"])
                    self._silent.pop(one.curve, None)
                except FAILED as error:
                    if one.curve not in self._silent:
                        LOG.warning("matrix: device %.100r of %.200s cannot read the assistant: %s", one.device, one.user, error)
                    self._silent[one.curve] = now + AGAIN_S

    def _send_each(self, messages: Sequence[tuple[Device, str, Mapping[str, Any]]]) -> None:
        """Send each device what is for it alone."""
        boxes: dict[str, dict[str, Any]] = {}
        for one, kind, content in messages:
            boxes.setdefault(one.user, {})[one.device] = self._account.encrypt(kind, content, one.user, one.curve, one.signing)
        path = f"/_matrix/client/v3/sendToDevice/m.room.encrypted/{new_id()}"
        self._server.call("PUT", path, {"messages": boxes})
