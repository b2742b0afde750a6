"""Matrix from end to end: a real Synapse, people with accounts there, a core with a scripted model."""

import logging
import re
import threading
import wave
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import channel_rig
import pytest
from channel_rig import LONG, SAID, Rig
from cutting import LOST_ANSWER, relay
from homeserver import Someone, Synapse, synapse
from msgspec.structs import replace
from process import until

from appliance.clock import sleep_s
from appliance.errors import BadInput
from appliance.records import Outbound
from appliance.sessions.outbox import Notification

NOT_ANSWERED = "This could not be answered (interrupted)."
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (7).to_bytes(4, "big") + (5).to_bytes(4, "big") + b"rest"


class Place:
    """The server, the core, and three people: Ann is linked and owner, Ben is listed, Eve is nobody."""

    def __init__(self, rig: Rig, server: Synapse, owl: Someone, people: list[Someone]) -> None:
        self.rig, self.server, self.owl = rig, server, owl
        self.ann, self.ben, self.eve = people

    def meet(self, who: Someone, *others: Someone, **more: Any) -> str:
        """A room with the assistant in it."""
        room = who.room(self.owl.user, *(one.user for one in others), **more)
        for one in others:
            one.join(room)
        until(lambda: self.owl.user in who.call("GET", f"rooms/{room}/joined_members")["joined"], "the assistant is there")
        return room

    def answers(self, who: Someone, room: str, count: int) -> list[dict[str, Any]]:
        """Wait for so many answers in a room."""
        until(lambda: len(who.heard(room, self.owl.user)) >= count, lambda: f"{count} answers: {self.rig.state('matrix')}")
        until(self.rig.quiet, "nothing more is sent")
        return who.heard(room, self.owl.user)


@pytest.fixture(scope="module", name="place")
def a_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("matrix")
    with synapse(folder / "synapse") as server:
        owl, *people = (server.someone(name) for name in ("owl", "ann", "ben", "eve"))
        given = {"enabled": True, "homeserver": server.url, "user": owl.user, "token": owl.token}
        given |= {"allow_from": [people[1].user], "trusted_servers": [server.name]}

        def prepare(core: Any) -> None:
            core.base.people.add_person("ann")
            core.base.people.link_identity(f"matrix/{people[0].user}", "ann")

        environ = channel_rig.settings("channels.matrix", given) | {"OWLBOX__OUTBOX__RETRY_S": "0.2"}
        with channel_rig.running(folder, environ, prepare=prepare) as rig:
            rig.until_connected("matrix")
            yield Place(rig, server, owl, people)


@pytest.mark.covers("S-107", "A-266")
def test_a_person_who_is_linked_is_answered_in_the_shared_session_with_markdown(place: Place) -> None:
    room = place.meet(place.ann)
    place.ann.say(room, "what is up")
    [one] = place.answers(place.ann, room, 1)
    assert one["content"]["body"] == SAID and one["content"]["formatted_body"] == "<p><strong>Hoot</strong> hoot &lt;b&gt;.</p>"
    assert place.rig.session_of("what is up")[:2] == ("local:ann", "user:ann") and place.rig.marks("what is up") == []
    assert place.rig.state("matrix").problem == ""


@pytest.mark.covers("S-012")
def test_a_long_answer_is_shown_while_it_is_written_in_one_message(place: Place) -> None:
    room = place.meet(place.ben)
    place.ben.say(room, "something long")
    first, *_, last = place.answers(place.ben, room, 2)
    assert first["content"]["body"].endswith(" …") and last["content"]["m.new_content"]["body"] == LONG
    assert last["content"]["m.relates_to"] == {"rel_type": "m.replace", "event_id": first["event_id"]}
    heard = place.ben.heard(room, place.owl.user)
    assert len(heard) <= 5 and all("m.new_content" in one["content"] for one in heard[1:])


@pytest.mark.covers("S-106", "E-292", "A-181")
def test_in_a_room_mentions_are_answered_in_their_threads_and_nothing_else(place: Place) -> None:
    room = place.meet(place.ben, place.eve, name="Tea")
    before = len(place.rig.messages())
    place.eve.say(room, "only among us")
    root = place.eve.say(room, f"{place.owl.user}: in the main line")
    [main] = place.answers(place.eve, room, 1)
    assert main["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": root}}
    thread = {"rel_type": "m.thread", "event_id": root}
    asked = place.ben.say(room, "in a thread", **{"m.relates_to": thread, "m.mentions": {"user_ids": [place.owl.user]}})
    [_, answer] = place.answers(place.ben, room, 2)
    assert answer["content"]["m.relates_to"] == {**thread, "is_falling_back": True, "m.in_reply_to": {"event_id": asked}}
    place.ben.say(room, "again", **{"m.relates_to": thread, "m.mentions": {"user_ids": [place.owl.user]}})
    place.answers(place.ben, room, 3)
    assert place.rig.messages()[before:] == ["in the main line", "in a thread", "again"]
    one, two, three = (place.rig.session_of(text) for text in ("in the main line", "in a thread", "again"))
    assert one[1].startswith("group:tea-") and one[:2] == two[:2] and two[2] == three[2] != one[2]
    assert place.rig.marks("in the main line") == [f"person:{place.eve.user.replace(':', '_')}"]


@pytest.mark.covers("S-104", "E-292")
def test_strangers_their_invitations_and_what_is_encrypted_in_a_plain_room_are_refused_without_a_model(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    before = len(place.rig.messages())
    with caplog.at_level(logging.WARNING):
        uninvited = place.eve.room(place.owl.user)
        room = place.meet(place.ben)
        place.ben.say(room, "secret", kind="m.room.encrypted", algorithm="m.megolm.v1.aes-sha2", ciphertext="x", session_id="s")
        place.ben.say(room, "a notice", msgtype="m.notice")
        place.owl.say(room, "said by the assistant's own account")
        place.ben.say(room, "x" * 30_000 + "too much for the model")
        own, one = place.answers(place.ben, room, 2)
        assert own["content"]["body"].startswith("said by") and one["content"]["body"] == "This could not be answered (too_large)."
        until(lambda: "an invitation of somebody" in caplog.text, "the invitation was refused")
    assert "it is encrypted, and the room" in caplog.text
    assert len(place.rig.messages()) == before + 1
    assert place.owl.user not in place.eve.call("GET", f"rooms/{uninvited}/joined_members")["joined"]


@pytest.mark.covers("S-108", "S-109", "S-112", "E-293")
def test_files_come_and_go(place: Place) -> None:
    room = place.meet(place.ben)
    uri = place.server.call("POST", "/_matrix/media/v3/upload?filename=a.png", PNG, place.ben.token)["content_uri"]
    place.ben.say(room, "a.png", msgtype="m.image", url=uri, info={"mimetype": "image/png"})
    place.ben.say(room, "gone.pdf", msgtype="m.file", url="mxc://home.test/nothing")
    place.answers(place.ben, room, 2)
    one, two = (text for text in place.rig.messages() if "[attachment" in text)
    assert "'a.png' (image/png, " in one and one.endswith(".png]") and "is not there: the homeserver says 404" in two
    session = place.rig.session_of("a.png")[0]
    folder = place.rig.core.commands.bench.folder(session)
    assert [file.read_bytes() for file in (folder / "incoming").iterdir()] == [PNG]
    (folder / "b.png").write_bytes(PNG)
    there = {"matrix": {"room": room}}
    note = Notification(
        "file",
        place.rig.core.base.people.resolve("matrix", place.ben.user),
        "behind it",
        session=session,
        channel="matrix",
        attachment="b.png",
        metadata=there,
    )
    place.rig.core.outbox.put(note, durable=True)
    *_, picture, text = place.answers(place.ben, room, 4)
    assert picture["content"]["info"] == {"mimetype": "image/png", "size": len(PNG), "w": 7, "h": 5}
    assert (picture["content"]["msgtype"], text["content"]["body"]) == ("m.image", "behind it")
    with wave.open(str(folder / "c.wav"), "wb") as sound:
        sound.setparams((1, 1, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(12_000))
    place.rig.core.outbox.put(replace(note, key="sound", attachment="c.wav"), durable=True)
    *_, heard, _ = place.answers(place.ben, room, 6)
    size = (folder / "c.wav").stat().st_size
    mime = heard["content"]["info"].pop("mimetype")  # of which systems have several
    assert heard["content"]["msgtype"] == "m.audio" and mime.startswith("audio/")
    assert heard["content"]["info"] == {"size": size, "duration": 1500}


@pytest.mark.covers("S-108")
@pytest.mark.parametrize(("tier", "said"), [("tiny", "Sent the file Boiler manual.pdf."), ("able", "It is on its way.")])
def test_a_file_that_is_asked_for_is_uploaded(place: Place, tier: str, said: str) -> None:
    data, room = place.rig.put_manual(), place.meet(place.ben)
    with place.rig.tier(tier):
        place.ben.say(room, "Send me the boiler manual")
        heard = [one["content"] for one in place.answers(place.ben, room, 2)]
    [file] = [one for one in heard if one["msgtype"] == "m.file"]
    assert (file["body"], file["info"]) == ("Boiler manual.pdf", {"mimetype": "application/pdf", "size": len(data)})
    assert place.server.download(file["url"], place.ben.token) == data
    assert sorted(one["body"] for one in heard) == sorted(["Boiler manual.pdf", said])


def test_waiting_for_messages_wakes_nobody(place: Place) -> None:
    [thread] = [one for one in threading.enumerate() if one.name == "channel-matrix"]
    counts = []
    for _ in range(6):  # the server answers once a minute, and what other tests did may still come
        counts.append(count_wakes(thread))
        sleep_s(4)
    assert 0 in [later - earlier for earlier, later in pairwise(counts)], counts


def count_wakes(thread: threading.Thread) -> int:
    """How often a thread of ours has woken up by itself."""
    lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.covers("S-110")
def test_a_reaction_to_an_answer_is_recorded_without_a_model(place: Place) -> None:
    room = place.meet(place.ben)
    place.ben.say(room, "react to this")
    [one] = place.answers(place.ben, room, 1)
    relation = {"rel_type": "m.annotation", "event_id": one["event_id"], "key": "👍"}
    place.ben.say(room, "", kind="m.reaction", **{"m.relates_to": relation})
    sql = "SELECT run, content FROM events WHERE outcome = 'reaction'"
    until(lambda: place.rig.core.store.rows(sql) != [], "it is recorded")
    assert place.rig.core.store.rows(sql) == [(place.rig.session_of("react to this")[2], "[reacts with 👍]")]
    assert place.rig.messages()[-1] == "react to this"


@pytest.mark.covers("S-111")
def test_it_shows_that_it_writes_and_stops(place: Place) -> None:
    room = place.meet(place.ben)
    place.ben.say(room, "something long")
    until(lambda: place.ben.typing(room) == [place.owl.user], "it writes")
    place.answers(place.ben, room, 1)
    until(lambda: place.ben.typing(room) == [], "it does not write any more")


@pytest.mark.covers("A-015", "A-184")
def test_a_restart_of_the_server_loses_nothing_and_a_repeated_send_arrives_once(place: Place) -> None:
    room = place.meet(place.ben)
    place.ben.say(room, "before")
    place.answers(place.ben, room, 1)
    place.server.stop()
    until(lambda: place.rig.state("matrix").state == "failing", "the loss is noticed")
    there = {"matrix": {"room": room}}
    note = Notification(
        "kept", f"matrix:{place.ben.user}", "kept", session=f"matrix:{place.ben.user}", channel="matrix", metadata=there
    )
    place.rig.core.outbox.put(note, durable=True)
    place.server.start()
    for i in range(60):  # more than one answer of the server holds
        place.ben.say(room, f"burst {i}")
    assert [one["content"]["body"] for one in place.answers(place.ben, room, 62)].count("kept") == 1
    said = [text for text in place.rig.messages() if text.startswith("burst ")]
    assert said == [f"burst {i}" for i in range(60)]
    channel = place.rig.core.connections._runners["matrix"].connection
    for _ in range(2):
        channel.deliver(Outbound(f"matrix:{place.ben.user}", "only once", metadata=there, key="same"))
    assert [one["content"]["body"] for one in place.ben.heard(room, place.owl.user)].count("only once") == 1
    with pytest.raises(BadInput, match="no room"):
        channel.deliver(Outbound("matrix:@x:y", "nowhere"))


MALFORMED: tuple[dict[str, Any], ...] = (
    {"m.relates_to": {"m.in_reply_to": "x"}},
    {"m.relates_to": {"m.in_reply_to": ["x"], "rel_type": ["m.thread"], "event_id": {"a": 1}}},
    {"m.relates_to": "x"},
    {"m.mentions": {"user_ids": "x"}},
    {"m.mentions": {"user_ids": {"a": 1}}},
    {"body": ["x"]},
    {"body": {"a": "b"}, "filename": ["x"], "msgtype": "m.image", "url": ["mxc://x"], "info": ["x"]},
    {"body": "a", "msgtype": "m.file", "url": "mxc://../../x", "info": {"mimetype": {"a": 1}}},
    {"msgtype": ["m.text"]},
)


def test_malformed_events_are_refused_or_read_and_the_channel_stays(place: Place) -> None:
    room = place.meet(place.ben, place.eve)
    before, state = len(place.rig.messages()), place.rig.state("matrix")
    sent = 0
    for more in MALFORMED:
        with suppress(HTTPError):  # the server takes some of them, which of them is its business
            place.eve.say(room, "malformed", **more)
            sent += 1
    assert sent > 3
    place.ben.say(room, f"{place.owl.user} sound")
    place.answers(place.ben, room, 1)
    assert place.rig.messages()[before:] == ["sound"] and place.rig.state("matrix").restarts == state.restarts


def test_a_text_that_no_event_holds_is_sent_in_parts_also_where_it_was_shown(place: Place) -> None:
    room = place.meet(place.ben)
    channel = place.rig.core.connections._runners["matrix"].connection
    text = "\n".join(f"{number} {'🦉<' * 40}" for number in range(300))
    there = {"matrix": {"room": room}}
    shown = channel.show(Outbound(f"matrix:{place.ben.user}", f"{text} …", metadata=there, key="long"))
    for name in (shown, ""):
        before = len(place.ben.heard(room, place.owl.user))
        message = Outbound(f"matrix:{place.ben.user}", text, metadata=there, key=f"long{name}", shown=name)
        channel.deliver(message)
        channel.deliver(message)
        heard = place.ben.heard(room, place.owl.user)[before:]
        assert "\n".join(one["content"].get("m.new_content", one["content"])["body"] for one in heard) == text
        assert ("m.new_content" in heard[0]["content"]) is bool(name)


class Another:
    """A second assistant at the same server, whose core is started by the test."""

    def __init__(self, place: Place, name: str, port: int = 0) -> None:
        self.owl = place.server.someone(name)
        given = {"enabled": True, "homeserver": f"http://127.0.0.1:{port or place.server.port}", "user": self.owl.user}
        given |= {"token": self.owl.token, "allow_from": [place.ben.user]}
        self.environ = channel_rig.settings("channels.matrix", given) | {"OWLBOX__OUTBOX__RETRY_S": "0.2"}
        self.ben = place.ben
        self.room = place.ben.room(self.owl.user)

    def greet(self, folder: Path) -> None:
        """Go into the room and answer once: what is older than the first start of a channel is not heard."""
        with channel_rig.running(folder, self.environ) as rig:
            until(
                lambda: self.owl.user in self.ben.call("GET", f"rooms/{self.room}/joined_members")["joined"],
                "it is there",
                20,
            )
            self.ben.say(self.room, "hello")
            until(lambda: self.stands() == [SAID] and rig.quiet(), "it answers")

    def stands(self) -> list[str]:
        """What the assistant has said, each message as it was sent or edited last."""
        texts: dict[str, str] = {}
        for one in self.ben.heard(self.room, self.owl.user):
            content = one["content"]
            edited = content.get("m.relates_to", {}).get("event_id") if "m.new_content" in content else None
            texts[edited or one["event_id"]] = content.get("m.new_content", content)["body"]
        return list(texts.values())


@pytest.mark.parametrize("step", ["RECEIVED", "ACCEPTED", "LETTER_DELIVERED"])
def test_killed_between_receive_and_send_it_is_answered_exactly_once(place: Place, step: str, tmp_path: Path) -> None:
    another = Another(place, step.lower())
    another.greet(tmp_path)
    another.ben.say(another.room, "kill")
    channel_rig.kill_at(step, tmp_path, another.environ)
    with channel_rig.running(tmp_path, another.environ) as rig:
        until(lambda: len(another.stands()) > 1 and rig.quiet(), lambda: f"it is answered: {another.stands()}")
        rig.until_connected("matrix")
        assert rig.messages() == ["hello", "kill"]
    assert another.stands() == [SAID, SAID]


@pytest.mark.covers("S-104", "S-105")
def test_what_was_said_before_the_policy_was_widened_is_never_answered(place: Place, tmp_path: Path) -> None:
    another = Another(place, "widened")
    another.greet(tmp_path)
    another.ben.call("POST", f"rooms/{another.room}/invite", {"user_id": place.eve.user})
    place.eve.join(another.room)
    with channel_rig.running(tmp_path, another.environ | {"OWLBOX__CHANNELS__MATRIX__POLICY": "allowlist"}) as rig:
        for number in range(3):
            place.eve.say(another.room, f"chatter {number}")
        until(lambda: rig.state("matrix").refused == 3, "they are refused")
    place.eve.say(another.room, "said while nobody listened")
    sleep_s(0.01)
    for _ in range(2):
        with channel_rig.running(tmp_path, another.environ | {"OWLBOX__CHANNELS__MATRIX__POLICY": "open"}) as rig:
            until(lambda: rig.state("matrix").refused >= 4, "what is old is refused again")
            assert rig.messages()[:2] == ["hello", "now"][: len(rig.messages())]
            if len(rig.messages()) == 1:
                place.eve.say(another.room, "now")
                until(lambda: rig.messages() == ["hello", "now"] and rig.quiet(), "what is new is answered")
    assert another.stands() == [SAID, SAID]


def is_ended(shown: list[str]) -> bool:
    """Whether one answer stands there which says that it was interrupted, behind what was kept of it."""
    return (
        len(shown) == 1
        and re.fullmatch(r"(one two.*\n\n\(The answer ends here|This could not be answered \().*\.\)?", shown[0], re.S) is not None
    )


def test_killed_while_an_answer_is_shown_its_end_takes_the_place_of_what_was_shown(place: Place, tmp_path: Path) -> None:
    another = Another(place, "shown")
    another.greet(tmp_path)
    another.ben.say(another.room, "something long")
    with channel_rig.serving(tmp_path, another.environ) as child:
        until(lambda: len(another.stands()) > 1, "it is shown")
        child.kill()
    with channel_rig.running(tmp_path, another.environ):
        until(lambda: is_ended(another.stands()[1:]), "it ends")


def test_a_network_that_is_cut_in_the_middle_of_a_send_costs_no_answer_and_makes_no_repeat(place: Place, tmp_path: Path) -> None:
    with relay(place.server.port) as wire:
        another = Another(place, "cut", wire.port)
        another.greet(tmp_path)
        with channel_rig.running(tmp_path, another.environ) as rig:
            for number, count in enumerate((0, 300, LOST_ANSWER), 2):
                wire.cuts.append((b"/send/m.room.message/", count))
                another.ben.say(another.room, "cut it")
                until(lambda: len(another.stands()) >= number and rig.quiet(), lambda: f"{count}: {another.stands()}", 20)  # noqa: B023
        assert another.stands() == [SAID] * 4 and len(wire.done) == 3


def test_the_test_of_the_channel_says_whose_the_token_is(place: Place) -> None:
    assert place.rig.core.connections.test("matrix")["tried"] == [f"{place.server.url} knows the token as {place.owl.user}"]
