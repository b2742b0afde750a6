"""Another client in encrypted rooms: matrix-nio with its own store, one call after the other."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nio
from homeserver import Someone, Synapse
from process import until


class Client:
    """A device of its own for an account."""

    def __init__(self, server: Synapse, user: str, folder: Path) -> None:
        folder.mkdir()
        login = {"type": "m.login.password", "identifier": {"type": "m.id.user", "user": user}, "password": "secret"}
        made = server.call("POST", "/_matrix/client/v3/login", login)
        self.me = Someone(server, user, made["access_token"])
        self.device = str(made["device_id"])
        self._loop = asyncio.new_event_loop()
        config = nio.AsyncClientConfig(encryption_enabled=True, store_sync_tokens=False)
        self.nio = self._run(self._make(server.url, user, folder, config))
        self.nio.restore_login(user, self.device, self.me.token)
        self.sync()

    async def _make(self, url: str, user: str, folder: Path, config: Any) -> Any:
        return nio.AsyncClient(url, user, store_path=str(folder), config=config)

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    @property
    def fingerprint(self) -> str:
        """The key by which people compare this device."""
        return str(self.nio.olm.account.identity_keys["ed25519"])

    def sync(self) -> Any:
        """Take what is new, and give the server the keys that it wants."""
        found = self._run(self.nio.sync(timeout=0, full_state=False))
        if self.nio.should_upload_keys:
            self._run(self.nio.keys_upload())
        if self.nio.should_query_keys:
            self._run(self.nio.keys_query())
        if self.nio.should_claim_keys:
            self._run(self.nio.keys_claim(self.nio.get_users_for_key_claiming()))
        self._run(self.nio.send_to_device_messages())
        return found

    def room(self, owl: str, *others: str) -> str:
        """An encrypted room with the assistant in it."""
        state = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        room = self.me.room(owl, *others, initial_state=[state])
        self.until_there(room, owl)
        return room

    def until_there(self, room: str, user: str) -> None:
        """Wait until somebody is in a room, and this client knows a device of theirs."""

        def is_there() -> bool:
            self.sync()
            there = user in self.me.call("GET", f"rooms/{room}/joined_members")["joined"]
            return there and room in self.nio.rooms and any(self.nio.device_store.active_user_devices(user))

        until(is_there, f"{user} is there")

    def say(self, room: str, text: str, **more: Any) -> str:
        """Say something encrypted; the id of the event."""
        return self.send(room, {"msgtype": "m.text", "body": text, **more})

    def send(self, room: str, content: dict[str, Any]) -> str:
        """Send the content of a message encrypted; the id of the event."""
        self.sync()
        answer = self._run(self.nio.room_send(room, "m.room.message", content, ignore_unverified_devices=True))
        assert isinstance(answer, nio.RoomSendResponse), answer
        return answer.event_id

    def heard(self, room: str, sender: str) -> list[Any]:
        """The messages of somebody in a room as this client reads them, oldest first; those it cannot read as MegolmEvent."""
        self.sync()
        found = self._run(self.nio.room_messages(room, "", limit=200))
        assert isinstance(found, nio.RoomMessagesResponse), found
        kinds = (nio.RoomMessage, nio.RoomEncryptedMedia, nio.MegolmEvent)
        return [one for one in found.chunk[::-1] if one.sender == sender and isinstance(one, kinds)]

    def close(self) -> None:
        """End the connections."""
        self._run(self.nio.close())
        self._loop.close()


@contextmanager
def client(server: Synapse, user: str, folder: Path) -> Iterator[Client]:
    """A client for as long as a block."""
    made = Client(server, user, folder)
    try:
        yield made
    finally:
        made.close()
