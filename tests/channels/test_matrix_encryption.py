"""Encrypted rooms of Matrix from end to end: a real Synapse, matrix-nio as the other client, a core with a scripted model."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import channel_rig
import pytest
from channel_rig import SAID, Rig
from homeserver import Someone, Synapse, synapse
from needs import leave_out
from nio_client import Client, client
from process import until


class Place:
    """The server, the core, and Ann, who is linked and writes with a device that encrypts."""

    def __init__(self, rig: Rig, server: Synapse, owl: Someone, ann: Client) -> None:
        self.rig, self.server, self.owl, self.ann = rig, server, owl, ann

    def answers(self, who: Client, room: str, count: int) -> list[Any]:
        """Wait for so many answers in a room."""
        until(lambda: len(who.heard(room, self.owl.user)) >= count, f"{count} answers: {self.rig.state('matrix')}", 20)
        until(self.rig.quiet, "nothing more is sent", 20)
        return who.heard(room, self.owl.user)


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


def test_a_message_is_decrypted_and_answered_encrypted(place: Place) -> None:
    room = place.ann.room(place.owl.user)
    place.ann.say(room, "in secret")
    [one] = place.answers(place.ann, room, 1)
    assert one.body == SAID and one.decrypted and one.source["content"]["m.relates_to"]
    assert "in secret" in place.rig.messages()
    assert place.ann.me.heard(room, place.owl.user) == []  # nothing of it goes in plain
