"""Devices of others as their homeserver tells them: whose keys are taken, which are refused, and what vouches for which."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import vodozemac
import wire
from process import ROOT
from stores import new_store

from appliance.channels.connections import connect
from appliance.channels.contract import Received, Running
from appliance.clock import CancelToken, now_ms
from appliance.errors import Conflict, NotFound, Refused
from appliance.matrix.device_list import DeviceList
from appliance.matrix.encrypted_files import decrypt_file, encrypt_file
from appliance.matrix.encrypted_rooms import EncryptedRooms, Rotation
from appliance.matrix.homeserver import Homeserver
from appliance.matrix.olm_account import MEGOLM, Opened
from appliance.matrix.room_encryption import MAX_EVENTS, MAX_OF_SENDER, WaitingEvents
from appliance.matrix.room_keys import MAX_OF_SENDER as MAX_OF_ONE
from appliance.matrix.room_keys import RoomKeys
from appliance.matrix.setup import EncryptionSetup
from appliance.matrix.signed_json import signable
from appliance.matrix.unpadded_base64 import encode
from appliance.runtime.paths import Home
from appliance.runtime.settings import Matrix
from appliance.secrets import encryption
from appliance.store.database import Store

ANN = "@ann:home.test"


@pytest.fixture(name="store")
def a_store(home: Home) -> Iterator[Store]:
    made = new_store(home.database)
    yield made
    made.close()


class Keys:
    """A key for signatures."""

    def __init__(self) -> None:
        self.private, public = encryption.new_signing_key()
        self.public = encode(public)

    def sign(self, value: dict[str, Any], user: str = ANN, name: str = "") -> dict[str, Any]:
        """The value with one signature more."""
        signature = {f"ed25519:{name or self.public}": encode(encryption.sign(self.private, signable(value)))}
        return {**value, "signatures": {user: {**value.get("signatures", {}).get(user, {}), **signature}}}


def device(name: str, keys: Keys, user: str = ANN) -> dict[str, Any]:
    """The keys of a device, signed by themselves."""
    curve = encode(b"c" * 32)
    made = {
        "user_id": user,
        "device_id": name,
        "algorithms": [],
        "keys": {f"curve25519:{name}": curve, f"ed25519:{name}": keys.public},
    }
    return keys.sign(made, user, name)


def signing_keys(master: Keys, own: Keys, user: str = ANN) -> dict[str, Any]:
    """A master key and a self-signing key that it vouches for."""
    root = {"user_id": user, "usage": ["master"], "keys": {f"ed25519:{master.public}": master.public}}
    leaf = {"user_id": user, "usage": ["self_signing"], "keys": {f"ed25519:{own.public}": own.public}}
    return {"master_keys": {user: root}, "self_signing_keys": {user: master.sign(leaf, user)}}


def listen(store: Store, *answers: Mapping[str, Any]) -> DeviceList:
    """A list that has heard these answers about Ann, one after the other."""
    with wire.playing(*(wire.Status(200, dict(one)) for one in answers)) as server:
        found = DeviceList(store, Homeserver(server.url, "@owl:home.test", "token"))
        for _ in answers:
            found.refresh([ANN], is_forced=True)
    return found


def listed(*devices: dict[str, Any]) -> dict[str, Any]:
    """An answer with these devices of Ann."""
    return {"device_keys": {ANN: {one["device_id"]: one for one in devices}}}


def test_a_device_with_a_wrong_signature_or_another_name_is_refused_and_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    forged = {**device("FORGED", Keys()), "algorithms": ["changed"]}
    moved = {**device("MOVED", Keys()), "device_id": "ELSEWHERE"}
    answer = listed(device("GOOD", Keys()), forged)
    answer["device_keys"][ANN] |= {
        "MOVED": moved,
        "NONE": None,
        "EMPTY": {"keys": {}},
        "THEIRS": device("THEIRS", Keys(), "@eve:x"),
    }
    with caplog.at_level(logging.WARNING):
        found = listen(store, answer, answer)
    assert [one.device for one in found.list_devices(ANN)] == ["GOOD"]
    assert caplog.text.count("'FORGED' of @ann:home.test is refused") == 1


def test_other_keys_under_the_same_name_are_refused_also_after_a_logout(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Keys(), Keys()
    with caplog.at_level(logging.WARNING):
        found = listen(store, listed(device("PHONE", first)), listed(), listed(device("PHONE", second)))
    [kept] = found.list_devices(ANN, with_gone=True)
    assert kept.signing == first.public and kept.is_gone and found.list_devices(ANN) == []
    assert f"shows the key {second.public} in place of {first.public}" in caplog.text
    with pytest.raises(NotFound, match="no device has the fingerprint"):
        found.verify(second.public)


def test_a_verified_master_key_vouches_for_the_devices_that_its_user_has_signed(store: Store) -> None:
    master, own, phone, thief = Keys(), Keys(), Keys(), Keys()
    answer = listed(own.sign(device("PHONE", phone)), device("THIEF", thief)) | signing_keys(master, own)
    found = listen(store, answer)
    assert [one.is_verified for one in found.list_devices(ANN)] == [False, False]
    assert found.verify(master.public).device == ""
    assert {one.device: one.is_verified for one in found.list_devices(ANN)} == {"PHONE": True, "THIEF": False}
    stolen = Keys()  # the server shows a master key of its own
    again = listed(stolen.sign(device("PHONE", phone)), stolen.sign(device("THIEF", thief))) | signing_keys(Keys(), stolen)
    assert [one.is_verified for one in listen(store, again).list_devices(ANN)] == [False, False]


def test_a_master_key_that_has_signed_nothing_is_not_known(store: Store) -> None:
    master, own = Keys(), Keys()
    answer = listed(own.sign(device("PHONE", Keys()))) | signing_keys(master, own)
    answer["self_signing_keys"][ANN]["signatures"] = {}
    with pytest.raises(NotFound):
        listen(store, answer).verify(master.public)


def test_a_fingerprint_of_two_users_is_trusted_for_none(store: Store) -> None:
    keys = Keys()
    found = listen(store, listed(device("PHONE", keys)))
    [one] = found.list_devices(ANN)
    found.keep("@eve:x", "", {"PHONE": one})
    with pytest.raises(Conflict):
        found.verify(keys.public)
    assert not found.list_devices(ANN)[0].is_verified


def test_a_room_that_was_encrypted_stays_so_and_bounds_what_it_asks_for(store: Store) -> None:
    with wire.playing(wire.Status(404, {"errcode": "M_NOT_FOUND"})) as server:
        rooms = EncryptedRooms(store, Homeserver(server.url, "@owl:home.test", "token"))
        assert rooms.find("!plain") is None and rooms.find("!plain") is None and len(server.seen) == 1
        rooms.note("!secret", {"rotation_period_msgs": 5, "rotation_period_ms": 1})
        rooms.note("!odd", ["x"])
        assert (rooms.find("!secret"), rooms.find("!odd")) == (Rotation(3_600_000, 5), Rotation())
        rooms.note("!plain", {})
        assert rooms.find("!plain") == Rotation() and len(server.seen) == 1


def test_what_waits_for_keys_is_bounded_for_each_sender(store: Store) -> None:
    waiting = WaitingEvents(store)

    def put(sender: str, number: int) -> bool:
        return waiting.put("!r", {"sender": sender, "event_id": f"${sender}{number}", "content": {"session_id": "s"}})

    with store.write(durable=True):
        assert all(put("@eve:x", number) for number in range(MAX_OF_SENDER)) and put("@eve:x", 0)
        assert not put("@eve:x", MAX_OF_SENDER)
        assert all(put(f"@{number}:x", number) for number in range(MAX_EVENTS - MAX_OF_SENDER))
        assert not put(ANN, 0)


def test_a_file_comes_out_as_it_went_in() -> None:
    sealed, file = encrypt_file(b"leaves" * 1000)
    assert sealed != b"leaves" * 1000 and decrypt_file(sealed, file) == b"leaves" * 1000
    assert encrypt_file(b"")[0] == b""


def test_without_the_library_the_reason_and_the_next_step_are_said(home: Home) -> None:
    new_store(home.database).close()
    program = (
        "import sys, pathlib; sys.modules['vodozemac'] = None\n"
        "from appliance.matrix.homeserver import Homeserver\n"
        "from appliance.matrix.setup import EncryptionSetup\n"
        "from appliance.store.database import Store\n"
        "store = Store.open(pathlib.Path(sys.argv[1]))\n"
        "made = EncryptionSetup(store, Homeserver('http://127.0.0.1:1', '@o:x', 't'), str, print)\n"
        "print(made.is_needed(), made.open(), made.problem)\n"
        "store.close()\n"
    )
    words = [sys.executable, "-c", program, str(home.database)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    wanted = "False None the package vodozemac is not installed (run make in the folder of the sources, which installs it)\n"
    assert done.stdout == wanted


class Heard:
    """An intake that keeps what it is handed, and ends the channel at the first message."""

    def __init__(self) -> None:
        self.stop = CancelToken()
        self.taken: list[str] = []
        self.refused: list[tuple[str, str]] = []

    def take(self, received: Received) -> bool:
        self.taken.append(received.text)
        self.stop.set()
        return True

    def refuse(self, sender: str, why: str) -> None:
        self.refused.append((sender, why))

    def find_refusal(self, received: Received) -> str:
        return ""

    def is_welcome(self, sender: str) -> bool:
        return True

    def last_taken_ms(self) -> int:
        return 0


def test_rooms_invitations_and_events_of_another_kind_do_not_end_the_connection(store: Store) -> None:
    event = {"sender": ANN, "event_id": "$1", "origin_server_ts": now_ms() + 60_000, "type": "m.room.message"}
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    events = [5, None, {**event, "content": "x"}, {**event, "event_id": "$2", "content": {"msgtype": "m.text", "body": deep}}]
    state = [{"type": "m.room.name", "state_key": "", "content": "x"}, {"type": "m.room.encryption", "state_key": ["x"]}, 7]
    sound = {**event, "event_id": "$3", "content": {"msgtype": "m.text", "body": "sound"}}
    joined: dict[str, Any] = {
        "!a": "x",
        "!b": ["y"],
        "!c": {"timeline": "x", "state": 5},
        "!d": {"timeline": {"events": events}},
    }
    joined |= {"!e": {"timeline": {"events": {"a": 1}, "limited": True, "prev_batch": ["x"]}, "state": {"events": state}}}
    joined |= {"!z": {"timeline": {"events": [sound]}, "summary": {"m.joined_member_count": 2}}}
    invited = {"!f": "x", "!g": {"invite_state": {"events": ["x", {"type": "m.room.member", "state_key": {"a": 1}}]}}}
    answer = {"next_batch": "s1", "rooms": {"join": joined, "invite": invited}, "device_lists": 5, "to_device": {"events": ["x"]}}
    heard = Heard()
    with wire.playing() as server:
        server.pages["/_matrix/client/v3/sync"] = answer
        table = Matrix(homeserver=server.url, user="@owl:home.test", token="t")
        services = {"secret": str, "keep_secret": print, "store": store, "data_folder": Path}
        channel = connect("matrix", table, services)
        channel.receive(Running(heard, heard.stop, lambda: None))
        channel.close()
    assert heard.taken == ["sound"]


def test_a_vault_without_the_key_of_our_device_is_named_and_nothing_is_made_anew(store: Store) -> None:
    def look_up(name: str) -> str:
        raise NotFound(f"no secret {name}")

    with store.write() as execute:
        execute("INSERT INTO matrix_account VALUES ('BOX', '@owl:home.test', 'p', 'c', 's', 1)")
    with wire.playing() as server:
        server.pages["/_matrix/client/v3/account/whoami"] = {"user_id": "@owl:home.test", "device_id": "BOX"}
        setup = EncryptionSetup(store, Homeserver(server.url, "@owl:home.test", "t"), look_up, pytest.fail)
        assert setup.open() is None and "the vault has no channel/matrix-keys" in setup.problem
    assert setup.fingerprint() == ("BOX", "s")


def test_keys_of_rooms_are_bounded_for_each_sender_and_belong_to_who_sent_them(store: Store) -> None:
    keys = RoomKeys(store, b"k" * 32)

    def give(sender: str, curve: str, session: Any) -> Any:
        content = {"algorithm": MEGOLM, "room_id": "!r", "session_id": session.session_id}
        content["session_key"] = session.session_key.to_base64()
        return keys.take(Opened(sender, curve, "signing", "m.room_key", content))

    session = vodozemac.GroupSession()
    with store.write(durable=True):
        assert give(ANN, "curve", session) is not None and give(ANN, "curve", session) is None
        assert give(ANN, "another device", session) is None  # it cannot take the first one's place
        assert give("@eve:x", "curve", session) is not None  # and reads what Eve writes alone
        for _ in range(MAX_OF_ONE + 20):
            give("@eve:x", "curve", vodozemac.GroupSession())
            execute_later(store)
    counted = store.rows("SELECT sender, COUNT(*) FROM matrix_room_keys GROUP BY sender ORDER BY sender")
    assert counted == [(ANN, 1), ("@eve:x", MAX_OF_ONE)]
    event: dict[str, Any] = {"event_id": "$1", "sender": ANN, "content": {"algorithm": MEGOLM, "session_id": session.session_id}}
    said = json.dumps({"type": "m.room.message", "content": {}, "room_id": "!r"}).encode()
    event["content"]["ciphertext"] = session.encrypt(said).to_base64()
    assert keys.decrypt("!r", event)[1].curve == "curve"
    with pytest.raises(Refused, match="copy"):
        keys.decrypt("!r", {**event, "event_id": "$2"})
    assert keys.decrypt("!r", event)[0]["type"] == "m.room.message"  # the same again is no replay
    with pytest.raises(NotFound):
        keys.decrypt("!other", event)


def execute_later(store: Store) -> None:
    """Make the last key a millisecond newer than all before."""
    with store.write(durable=True) as execute:
        execute("UPDATE matrix_room_keys SET received_ms = received_ms - 1 WHERE sender = '@eve:x'")
