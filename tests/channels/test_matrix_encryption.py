"""Encrypted rooms of Matrix from end to end: a real Synapse, matrix-nio as the other client, a core with a scripted model."""

import json
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import channel_rig
import pytest
from channel_rig import LONG, SAID, Rig
from homeserver import Someone, Synapse, synapse
from needs import leave_out
from nio_client import Client, client
from process import until
from stores import new_store

from appliance.channels.connections import connect
from appliance.clock import new_id
from appliance.matrix.device_book import DeviceBook
from appliance.matrix.homeserver import Homeserver
from appliance.records import Outbound
from appliance.runtime.settings import Matrix
from appliance.sessions.outbox import Notification

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (7).to_bytes(4, "big") + (5).to_bytes(4, "big") + b"rest"


class Place:
    """The server, the core, and Ann, who is linked and writes with a device that encrypts."""

    def __init__(self, rig: Rig, server: Synapse, owl: Someone, ann: Client) -> None:
        self.rig, self.server, self.owl, self.ann = rig, server, owl, ann

    def answers(self, who: Client, room: str, count: int) -> list[Any]:
        """Wait for so many answers in a room."""
        until(lambda: len(who.heard(room, self.owl.user)) >= count, f"{count} answers: {self.rig.state('matrix')}")
        until(self.rig.quiet, "nothing more is sent")
        return who.heard(room, self.owl.user)

    def taken(self, text: str) -> None:
        """Wait until a message is taken, and its answer sent."""
        until(lambda: text in self.rig.messages() and self.rig.quiet(), f"{text} is taken: {self.rig.messages()}")


@pytest.fixture(scope="module", name="place")
def a_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if find_spec("vodozemac") is None:
        leave_out("vodozemac is not there: make dev")
    folder = tmp_path_factory.mktemp("matrix")
    with synapse(folder / "synapse") as server:
        owl, ann = (server.someone(name) for name in ("owl", "ann"))
        given = {"enabled": True, "homeserver": server.url, "user": owl.user, "token": owl.token, "policy": "open"}
        environ = channel_rig.settings("channels.matrix", given) | {"OWLBOX__OUTBOX__RETRY_S": "0.2"}

        def prepare(core: Any) -> None:
            core.base.people.add_person("ann")
            core.base.people.link_identity(f"matrix/{ann.user}", "ann")

        with channel_rig.running(folder, environ, prepare=prepare) as rig, client(server, ann.user, folder / "ann") as device:
            rig.until_connected("matrix")
            yield Place(rig, server, owl, device)


class Raw:
    """A device that is driven step by step, to send what no client would."""

    def __init__(self, place: Place, name: str, folder: Path) -> None:
        import vodozemac

        from appliance.matrix.room_encryption import RoomEncryption

        self.me = place.server.someone(name)
        self.owl = place.owl
        self.server = Homeserver(place.server.url, self.me.user, self.me.token)
        device = self.me.call("GET", "account/whoami")["device_id"]
        self.store = new_store(folder / "raw.db")
        self.encryption = RoomEncryption(self.store, self.server, self.me.user, device, b"secret")
        self.encryption.open()
        state = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        self.room = self.me.room(self.owl.user, initial_state=[state])
        members = f"rooms/{self.room}/joined_members"
        until(lambda: self.owl.user in self.me.call("GET", members)["joined"], "the assistant is there")
        self.session = vodozemac.GroupSession()

    def give_key(self) -> None:
        """Send the key of the room to the assistant's device."""
        self.encryption.devices.refresh([self.owl.user], is_forced=True)
        devices = self.encryption.devices.list_devices(self.owl.user)
        content = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": self.room, "session_id": self.session.session_id}
        content["session_key"] = self.first_key
        outbound = self.encryption._outbound
        outbound._claim([one for one in devices if not self.encryption.account.has_session(one.curve)])
        outbound._send_each([(one, "m.room_key", content) for one in devices])

    def encrypt(self, text: str, **more: Any) -> dict[str, Any]:
        """The content of an event."""
        self.first_key = getattr(self, "first_key", "") or self.session.session_key.to_base64()
        said = {"type": "m.room.message", "room_id": self.room, "content": {"msgtype": "m.text", "body": text}, **more}
        made = {"algorithm": "m.megolm.v1.aes-sha2", "session_id": self.session.session_id}
        return made | {"ciphertext": self.session.encrypt(json.dumps(said).encode()).to_base64()}

    def send(self, content: dict[str, Any], kind: str = "m.room.encrypted") -> str:
        """Send it into the room."""
        return str(self.me.call("PUT", f"rooms/{self.room}/send/{kind}/{new_id()}", content)["event_id"])

    def owl_curve(self) -> str:
        """The key of the assistant's device."""
        return self.encryption.devices.list_devices(self.owl.user)[0].curve

    def close(self) -> None:
        """Release what it holds."""
        self.server.close()
        self.store.close()


@pytest.fixture(name="raw")
def a_raw_device(place: Place, tmp_path: Path) -> Iterator[Raw]:
    made = Raw(place, f"raw{new_id()[-8:]}", tmp_path)
    yield made
    made.close()


def test_a_message_is_decrypted_and_answered_encrypted_in_one_message_as_it_grows(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    room = place.ann.room(place.owl.user)
    asked = place.ann.say(room, "in secret")
    [one] = place.answers(place.ann, room, 1)
    assert one.body == SAID and one.decrypted
    assert one.source["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": asked}}
    place.ann.say(room, "something long", **{"m.relates_to": {"rel_type": "m.thread", "event_id": asked}})
    _, first, *_, last = place.answers(place.ann, room, 3)
    assert first.body.endswith(" …") and last.source["content"]["m.new_content"]["body"] == LONG
    assert last.source["content"]["m.relates_to"] == {"rel_type": "m.replace", "event_id": first.event_id}
    assert first.source["content"]["m.relates_to"]["event_id"] == asked
    assert place.ann.me.heard(room, place.owl.user) == []  # nothing of it goes in plain
    assert caplog.text.count(f"channel verify '{place.ann.fingerprint}'") == 1  # of two messages


def test_a_linked_person_has_their_rights_from_a_verified_device_alone(place: Place) -> None:
    room = place.ann.room(place.owl.user)
    place.ann.say(room, "as a guest")
    place.taken("as a guest")
    guest = f"{place.ann.me.user}/guest"
    assert place.rig.session_of("as a guest")[0] == f"matrix:{guest}"
    assert place.rig.marks("as a guest") == [f"person:{guest.replace(':', '_').replace('/', '_')}"]
    spaced = " ".join(place.ann.fingerprint[at : at + 4] for at in range(0, 44, 4))
    book = DeviceBook(place.rig.core.store)
    assert book.verify(spaced).device == place.ann.device
    place.ann.say(room, "as myself")
    place.taken("as myself")
    assert place.rig.session_of("as myself")[:2] == ("local:ann", "user:ann") and place.rig.marks("as myself") == []
    assert [one.is_verified for one in book.list_fingerprints(f"matrix/{place.ann.me.user}")] == [True]
    book.verify(spaced, is_verified=False)
    place.ann.say(room, "a guest again")
    place.taken("a guest again")
    assert place.rig.session_of("a guest again")[0] == f"matrix:{guest}"


def test_the_owls_own_device_is_signed_by_keys_of_its_account(place: Place) -> None:
    found = place.ann.me.call("POST", "keys/query", {"device_keys": {place.owl.user: []}})
    [device] = found["device_keys"][place.owl.user].values()
    [self_signing] = found["self_signing_keys"][place.owl.user]["keys"].values()
    assert f"ed25519:{self_signing}" in device["signatures"][place.owl.user]
    fingerprint = device["keys"][f"ed25519:{device['device_id']}"]
    assert place.rig.core.connections.test("matrix")["tried"][1].endswith(fingerprint)


@pytest.mark.covers("S-109", "E-293")
def test_files_are_encrypted_both_ways_and_a_changed_one_is_not_taken(place: Place) -> None:
    from nio.crypto.attachments import decrypt_attachment, encrypt_attachment

    room = place.ann.room(place.owl.user)
    sealed, keys = encrypt_attachment(PNG)
    uri = place.server.call("POST", "/_matrix/media/v3/upload", sealed, place.ann.me.token)["content_uri"]
    base = {"msgtype": "m.image", "info": {"mimetype": "image/png"}}
    place.ann.send(room, {**base, "body": "a.png", "file": {**keys, "url": uri}})
    place.ann.send(room, {**base, "body": "b.png", "file": {**keys, "url": uri, "hashes": {"sha256": "A" * 43}}})
    place.ann.send(room, {**base, "body": "c.png", "file": {"url": uri, "key": "x"}})
    place.answers(place.ann, room, 3)
    one, two, three = (text for text in place.rig.messages() if "[attachment" in text)
    assert one.endswith(".png]") and "was changed on its way" in two and "key of the encrypted file is malformed" in three
    session = place.rig.session_of("a.png")[0]
    folder = place.rig.core.commands.bench.folder(session)
    assert [file.read_bytes() for file in (folder / "incoming").iterdir()] == [PNG]
    (folder / "d.png").write_bytes(PNG)
    person = place.rig.core.base.people.resolve("matrix", f"{place.ann.me.user}/guest")
    there = {"matrix": {"room": room}}
    more = {"session": session, "channel": "matrix", "attachment": "d.png", "metadata": there}
    place.rig.core.outbox.put(Notification("file", person, "behind it", **more), durable=True)
    *_, picture, text = place.answers(place.ann, room, 5)
    kept = place.server.download(picture.url, place.ann.me.token)
    assert PNG not in kept and decrypt_attachment(kept, picture.key["k"], picture.hashes["sha256"], picture.iv) == PNG
    assert (picture.body, text.body) == ("d.png", "behind it")


def test_a_message_waits_for_its_key_and_is_answered_once(place: Place, raw: Raw) -> None:
    raw.send(raw.encrypt("patience"))
    until(lambda: place.rig.core.store.value("SELECT COUNT(*) FROM matrix_waiting") == 1, "it waits")
    raw.give_key()
    place.taken("patience")
    assert place.rig.core.store.value("SELECT COUNT(*) FROM matrix_waiting") == 0
    assert place.rig.messages().count("patience") == 1


def test_copies_other_rooms_plain_text_and_nonsense_are_refused_and_the_channel_stays(
    place: Place, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    state = place.rig.state("matrix")
    with caplog.at_level(logging.WARNING):
        content = raw.encrypt("said once")
        raw.give_key()
        raw.send(content)
        place.taken("said once")
        raw.send(content)
        raw.send(raw.encrypt("for another room", room_id="!other:home.test"))
        raw.send({"msgtype": "m.text", "body": "in plain"}, "m.room.message")
        for more in (
            {"ciphertext": "!"},
            {"ciphertext": 5},
            {"session_id": ["x"]},
            {"algorithm": "m.none"},
            {"ciphertext": "A" * 90},
        ):
            raw.send(content | more)
        raw.send(raw.encrypt("deep", content="x"))
        for sent in ({"sender_key": "x"}, {"ciphertext": {}}, {"ciphertext": {raw.owl_curve(): {"type": 0, "body": "AwAA"}}}):
            box = {"algorithm": "m.olm.v1.curve25519-aes-sha2", "sender_key": raw.encryption.account.curve, **sent}
            raw.me.call("PUT", f"sendToDevice/m.room.encrypted/{new_id()}", {"messages": {raw.owl.user: {"*": box}}})
        raw.send(raw.encrypt("still there"))
        place.taken("still there")
    said = (
        "copy of an earlier message",
        "encrypted for another room",
        "it is not encrypted",
        "malformed",
        "cannot be decrypted",
        "m.none",
    )
    assert [text for text in said if text not in caplog.text] == []
    assert not {"for another room", "in plain", "deep"} & set(place.rig.messages())
    assert place.rig.messages().count("said once") == 1 and place.rig.state("matrix").restarts == state.restarts


def test_a_key_of_a_device_that_its_sender_never_showed_reads_nothing(
    place: Place, raw: Raw, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import vodozemac

    from appliance.matrix.room_encryption import RoomEncryption

    own, store = raw.encryption, new_store(tmp_path / "ghost.db")
    raw.encryption = RoomEncryption(store, raw.server, raw.me.user, own.account.device, b"other")
    raw.encryption.account.open()  # and not published: the same name with other keys
    with caplog.at_level(logging.WARNING):
        content = raw.encrypt("from a ghost")
        raw.give_key()
        raw.send(content)
        raw.encryption, raw.session, raw.first_key = own, vodozemac.GroupSession(), ""
        content = raw.encrypt("from the device")
        raw.give_key()
        raw.send(content)
        place.taken("from the device")
    store.close()
    assert "no device of its sender has the keys" in caplog.text and "from a ghost" not in place.rig.messages()


def test_who_comes_later_reads_what_is_written_then_and_whoever_left_nothing_more(place: Place, tmp_path: Path) -> None:
    room = place.ann.room(place.owl.user)
    place.ann.say(room, "before")
    place.answers(place.ann, room, 1)
    with client(place.server, place.ann.me.user, tmp_path / "second") as second:
        second.until_there(room, place.owl.user)
        place.ann.say(room, "after")
        old, new = place.answers(second, room, 2)
        assert getattr(new, "body", "") == SAID and not hasattr(old, "body")
        second.me.call("POST", "logout", {})
    place.ann.say(room, "alone again")
    place.answers(place.ann, room, 3)
    events = place.ann.me.call("GET", f"rooms/{room}/messages?dir=b&limit=50")["chunk"][::-1]
    keys = [one["content"]["session_id"] for one in events if one["sender"] == place.owl.user and one["type"] == "m.room.encrypted"]
    assert keys[0] == keys[1] != keys[2]


class Another:
    """A second assistant at the same server, whose core is started by the test."""

    def __init__(self, place: Place, name: str) -> None:
        self.owl = place.server.someone(name)
        given = {"enabled": True, "homeserver": place.server.url, "user": self.owl.user, "token": self.owl.token, "policy": "open"}
        self.environ = channel_rig.settings("channels.matrix", given) | {"OWLBOX__OUTBOX__RETRY_S": "0.2"}
        self.ann = place.ann

    def greet(self, folder: Path) -> None:
        """Go into an encrypted room and answer once."""
        with channel_rig.running(folder, self.environ) as rig:
            self.room = self.ann.room(self.owl.user)
            self.ann.say(self.room, "hello")
            until(lambda: self.stands() == [SAID] and rig.quiet(), f"it answers: {self.stands()}")

    def stands(self) -> list[str]:
        """What it has said, as the other client reads it."""
        return [getattr(one, "body", "cannot be read") for one in self.ann.heard(self.room, self.owl.user)]

    def device(self) -> dict[str, Any]:
        """Its device, as the server tells it."""
        found = self.ann.me.call("POST", "keys/query", {"device_keys": {self.owl.user: []}})
        return dict(found["device_keys"][self.owl.user])


@pytest.mark.parametrize("step", ["ACCEPTED", "LETTER_DELIVERED"])
def test_killed_between_receive_and_mark_it_is_answered_once_with_the_same_device(place: Place, step: str, tmp_path: Path) -> None:
    another = Another(place, step.lower())
    another.greet(tmp_path)
    device = another.device()
    another.ann.say(another.room, "kill")
    channel_rig.kill_at(step, tmp_path, another.environ)
    with channel_rig.running(tmp_path, another.environ) as rig:
        until(lambda: len(another.stands()) > 1 and rig.quiet(), f"it is answered: {another.stands()}")
        rig.until_connected("matrix")
        assert rig.messages() == ["hello", "kill"]
    assert another.stands() == [SAID, SAID] and another.device() == device


def test_a_repeated_send_is_the_same_ciphertext_and_arrives_once(place: Place) -> None:
    room = place.ann.room(place.owl.user)
    place.ann.say(room, "hello")
    place.answers(place.ann, room, 1)
    channel = place.rig.core.connections._runners["matrix"].connection
    for _ in range(2):
        channel.deliver(Outbound("matrix:@ann", "only once", metadata={"matrix": {"room": room}}, key="same"))
    assert [one.body for one in place.ann.heard(room, place.owl.user)] == [SAID, "only once"]
    assert place.rig.core.store.value("SELECT COUNT(*) FROM matrix_sent WHERE room = ?", (room,)) == 2


def test_a_device_of_another_program_is_left_alone(place: Place, tmp_path: Path) -> None:
    store = new_store(tmp_path / "other.db")
    vault: dict[str, str] = {}
    services = {"secret": vault.__getitem__, "keep_secret": vault.__setitem__, "store": store, "data_folder": Path}
    table = Matrix(homeserver=place.server.url, user=place.ann.me.user, token=place.ann.me.token)
    made: Any = connect("matrix", table, services)
    vault["channel/matrix-keys"] = "x" * 64
    assert made._encryption.open() is None and "has keys of another program" in made._encryption.problem
    made.close()
    store.close()
