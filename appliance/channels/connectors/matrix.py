"""Matrix: rooms, mentions, threads, reactions, typing and files, of an account at a homeserver.

Each answer is sent under a transaction of its own, so that the server takes it once. What came while nobody listened is taken at
the next start, at most 5000 events a room; what is older than the first start is not. In encrypted rooms a message proves its
sender when the device that wrote it is verified, elsewhere when its server is one of `trusted_servers`.
"""

import hashlib
import json
import logging
import mimetypes
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from appliance.channels.contract import Attached, Connection, Received, Running
from appliance.clock import monotonic_s, new_id, now_ms
from appliance.errors import BadInput, Busy, Cancelled, NotFound, OwlError, Refused, TooLarge
from appliance.matrix.encrypted_files import decrypt_file, encrypt_file
from appliance.matrix.encrypted_rooms import KIND as ENCRYPTION
from appliance.matrix.homeserver import Homeserver
from appliance.matrix.media_headers import film_size, length_ms, picture_size
from appliance.matrix.setup import EncryptionSetup
from appliance.records import Outbound
from appliance.runtime.settings import Matrix
from appliance.sandbox.session_files import MAX_ATTACHMENT_BYTES, read_attachment
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
SECRET = "secret:"
USER = re.compile(r"@[^:\s]{1,255}:[^\s]{1,255}")
MEDIA = {"m.image", "m.file", "m.audio", "m.video"}
TYPING_MS, TYPING_S = 30_000, 25.0
OWN_EVENTS = 2000  # of ours that are remembered, to know what a reaction is about
LATE_MS = 10 * 60 * 1000  # clocks of servers differ
LATER_S = 5.0
MALFORMED = (TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError)  # of JSON of strangers
EVENT_BYTES = 50_000  # of a message, of which servers take 65,536 with all that they add
EDIT_BYTES = 24_000  # of one in place of another, which holds it twice
ENCRYPTED = 0.7  # of either, which encryption makes longer
MAX_EVENTS = 5000  # of a room that are caught up with
FINAL = (BadInput, NotFound, Refused, TooLarge)  # errors that the same event meets again


class MatrixChannel(Connection):
    """An account at a homeserver."""

    is_idempotent = is_streaming = True

    def __init__(
        self, settings: Matrix, server: Homeserver, encryption: EncryptionSetup, data_folder: Callable[[str], Path]
    ) -> None:
        self._settings = settings
        self._server = server
        self._encryption = encryption
        self._data_folder = data_folder
        self._since = ""
        self._handled: set[str] = set()  # events of an answer of which something is kept for later
        self._rooms: dict[str, tuple[int, str]] = {}  # members and name of those we are in
        self._own: OrderedDict[str, None] = OrderedDict()
        self._writer = TypingWriter(self._server)
        self._first_ms = now_ms()

    # -- receiving ------------------------------------------------------------------------------------

    def receive(self, running: Running) -> None:
        """Wait for events and hand in what people say."""
        known = running.intake.last_taken_ms()
        oldest_ms = known - LATE_MS if known else self._first_ms
        is_first = is_new = True
        if self._encryption.is_needed():
            self._encryption.open()  # what is sent to our device is lost to a core that cannot read it
        while not running.stop.is_set():
            try:
                found = self._server.sync(self._since, running.stop)
            except Cancelled:
                return
            if is_first:
                running.connected()
                is_first = False
            if is_new:
                self._note_state(found, running)
            if is_new := self._take_batch(found, running, oldest_ms):
                self._since = str(found.get("next_batch", "")) or self._since
                self._handled.clear()
            else:
                running.stop.wait(LATER_S)  # the same again: what is taken is known

    def _note_state(self, found: dict[str, Any], running: Running) -> None:
        """Take up what an answer says of rooms, keys and devices, before anything in it is read or answered."""
        rooms = _table(found.get("rooms"))
        for room, joined in _table(rooms.get("join")).items():
            try:
                self._note_room(str(room), joined)
            except MALFORMED as error:
                running.intake.refuse("somebody", f"malformed state of a room: {type(error).__name__}")
        if self._encryption.is_needed() and (encryption := self._encryption.open()) is not None:
            encryption.note_sync(found)

    def _take_batch(self, found: dict[str, Any], running: Running, oldest_ms: int) -> bool:
        """Everything of one answer; False when something is kept for later, of whoever writes too much and of nobody else."""
        busy: set[str] = set()
        rooms = _table(found.get("rooms"))
        for room, invited in _table(rooms.get("invite")).items():
            try:
                self._answer_invitation(str(room), invited, running)
            except MALFORMED as error:
                running.intake.refuse("somebody", f"a malformed invitation: {type(error).__name__}")
        for room, event in self._list_waiting():  # admitted when they came
            if not running.stop.is_set() and self._take_event(room, event, 0, running, busy):
                self._drop_waiting(event)
        for room, joined in _table(rooms.get("join")).items():
            try:
                events = self._list_events(str(room), _table(_table(joined).get("timeline")), oldest_ms)
            except MALFORMED as error:
                running.intake.refuse("somebody", f"a malformed room: {type(error).__name__}")
                continue
            for event in events:
                if running.stop.is_set():
                    return False
                self._take_event(str(room), event, oldest_ms, running, busy)
        return not busy

    def _take_event(self, room: str, event: dict[str, Any], oldest_ms: int, running: Running, busy: set[str]) -> bool:
        """Hand in one event, unless it was before; False when it is kept for later, as are others of senders who are `busy`."""
        sender, event_id = str(event.get("sender")), str(event.get("event_id"))
        if sender in busy:
            return False
        if event_id in self._handled:
            return True
        try:
            received = self._read_event(room, event, oldest_ms, running)
            if received is not None:
                running.intake.take(received)
        except MALFORMED as error:  # again it would come for ever
            running.intake.refuse(sender, f"malformed: {type(error).__name__}")
        except FINAL as error:
            running.intake.refuse(sender, error.message)
        except Busy as error:
            LOG.info("messages of %s are kept for later: %s", sender[:200], error)
            busy.add(sender)
            return False
        self._handled.add(event_id)
        return True

    def _list_waiting(self) -> list[tuple[str, dict[str, Any]]]:
        """Encrypted events that came before their keys, which are here now."""
        encryption = self._encryption.open() if self._encryption.is_needed() else None
        return list(encryption.list_due()) if encryption is not None else []

    def _drop_waiting(self, event: dict[str, Any]) -> None:
        if (encryption := self._encryption.open()) is not None:
            encryption.drop(str(event.get("event_id")))

    def _list_events(self, room: str, timeline: dict[str, Any], oldest_ms: int) -> list[dict[str, Any]]:
        """The events of a room since the last time, also those that an answer has no room for."""
        events = _list_dicts(timeline.get("events"))
        start = str(timeline.get("prev_batch", ""))
        while timeline.get("limited") and start and len(events) < MAX_EVENTS:
            try:
                earlier, start = self._server.messages(room, start, self._since)
            except FINAL as error:
                LOG.warning("earlier messages of %.200s cannot be read: %s", room, error)
                break
            events = [*earlier[::-1], *events]
            if not earlier or int(earlier[-1].get("origin_server_ts", 0)) < oldest_ms:
                break
        return events

    def _answer_invitation(self, room: str, invited: dict[str, Any], running: Running) -> None:
        events = _list_dicts(_table(_table(invited).get("invite_state")).get("events"))
        ours = [one for one in events if one.get("type") == "m.room.member" and one.get("state_key") == self._server.user]
        sender = str(ours[-1].get("sender", "")) if ours else ""
        if self._settings.rooms and room not in self._settings.rooms:
            running.intake.refuse(sender, f"an invitation to {room}, which is not listed")
        elif not sender or not running.intake.is_welcome(sender):
            running.intake.refuse(sender or "somebody", "an invitation of somebody who is not listed")
        else:
            try:
                for event in events:
                    if event.get("type") == ENCRYPTION:  # whoever sees us come in finds our keys
                        self._encryption.rooms.note(room, event.get("content"))
                        self._encryption.open()
                self._server.join(room)
            except OwlError as error:
                LOG.warning("the invitation to %s could not be accepted: %s", room, error)

    def _note_room(self, room: str, joined: dict[str, Any]) -> None:
        """Store the member count and the name of a room."""
        is_known = room in self._rooms
        members, name = self._rooms.get(room, (0, ""))
        timeline = _table(joined.get("timeline"))
        is_changed = bool(timeline.get("limited"))  # what is left out may be that somebody left
        for event in (*_list_dicts(_table(joined.get("state")).get("events")), *_list_dicts(timeline.get("events"))):
            if event.get("type") == "m.room.name" and "state_key" in event:
                name = str(_table(event.get("content")).get("name", ""))[:200]
            if event.get("type") == ENCRYPTION and event.get("state_key") == "":
                self._encryption.rooms.note(room, event.get("content"))
            if event.get("type") == "m.room.member":
                members, is_changed = 0, True  # somebody came or went
        if is_changed and is_known and self._encryption.is_needed() and (encryption := self._encryption.open()) is not None:
            encryption.forget_members(room)
        count = (joined.get("summary") or {}).get("m.joined_member_count")
        self._rooms[room] = (count if isinstance(count, int) else members, name)

    def _read_event(self, room: str, event: dict[str, Any], oldest_ms: int, running: Running) -> Received | None:
        """The message that an event is; None for one that is none, is ours, or is too old."""
        sender, event_id, at_ms = event.get("sender"), event.get("event_id"), event.get("origin_server_ts")
        content, kind = event.get("content"), event.get("type")
        if not (isinstance(sender, str) and isinstance(event_id, str) and isinstance(at_ms, int) and isinstance(content, dict)):
            return None
        if "state_key" in event or sender == self._server.user or at_ms < oldest_ms:
            return None
        is_proven, doubt = sender.partition(":")[2] in self._settings.trusted_servers, ""
        if kind == "m.room.encrypted":
            if self._encryption.rooms.find(room) is None:
                raise Refused(f"it is encrypted, and the room {room} is not")
            if (encryption := self._encryption.open()) is None:
                raise Refused(f"the room {room} is encrypted: {self._encryption.problem}")
            if (found := encryption.read(room, event)) is None:
                return None
            event, device = found.event, found.device
            content, kind, is_proven = event["content"], event["type"], device.is_verified and not device.is_gone
            doubt = "" if is_proven else f"device {device.device} is not verified: owlbox channel verify '{device.signing}'"
        elif self._encryption.rooms.find(room) is not None:
            if kind == "m.room.message":
                raise Refused(f"it is not encrypted, and the room {room} is")
            is_proven = False  # reactions are not encrypted by most clients
        relation = content.get("m.relates_to")
        relation = relation if isinstance(relation, dict) else {}
        if kind == "m.reaction":
            return self._read_reaction(room, event, relation, is_proven=is_proven, doubt=doubt)
        if kind != "m.room.message" or not USER.fullmatch(sender) or relation.get("rel_type") == "m.replace":
            return None
        if content.get("msgtype") not in ("m.text", *MEDIA):
            return None  # notices are those of programs, which are not answered
        return replace(self._read_message(room, event, content, relation), is_proven=is_proven, doubt=doubt)

    def _read_message(self, room: str, event: dict[str, Any], content: dict[str, Any], relation: dict[str, Any]) -> Received:
        root = str(relation.get("event_id", "")) if relation.get("rel_type") == "m.thread" else ""
        said = _without_fallback(str(content.get("body", ""))) if "m.in_reply_to" in relation else str(content.get("body", ""))
        mentions = content.get("m.mentions")
        named = mentions.get("user_ids") if isinstance(mentions, dict) else ()
        replied = str((relation.get("m.in_reply_to") or {}).get("event_id", "")) if not relation.get("is_falling_back") else ""
        is_file = content.get("msgtype") in MEDIA
        attachments = (self._read_file(content),) if is_file else ()
        name = str(content.get("filename") or "")
        said = "" if is_file and (not name or name == said) else said
        is_addressed = self._server.user in said or (isinstance(named, list) and self._server.user in named) or replied in self._own
        made = self._place(room, event, root)
        return replace(
            made,
            text=said.replace(self._server.user, "").lstrip(" :,") or ("" if is_file else said),
            is_addressed=is_addressed or not made.room,
            attachments=attachments,
            references=(root,) if root else (),
            thread=root,
        )

    def _read_reaction(
        self, room: str, event: dict[str, Any], relation: dict[str, Any], *, is_proven: bool, doubt: str
    ) -> Received | None:
        """A reaction to something that we said."""
        about, key = str(relation.get("event_id", "")), str(relation.get("key", ""))[:40]
        if about not in self._own or not key:
            return None
        made = self._place(room, event, "")
        made = replace(made, reaction=key, is_about_newest=about == next(reversed(self._own)))
        return replace(made, text=f"[reacts with {key}]", is_proven=is_proven, doubt=doubt)

    def _place(self, room: str, event: dict[str, Any], root: str) -> Received:
        """The fields that every message of a room carries."""
        members, name = self._rooms.get(room, (0, ""))
        if not members:
            members = len(self._server.members(room))
            self._rooms[room] = (members, name)
        return Received(
            event["event_id"],
            event["sender"],
            "",
            event["origin_server_ts"],
            room=room if members > 2 else "",
            room_name=name,
            metadata={"matrix": {"room": room, "event": event["event_id"], "thread": root}},
        )

    def _read_file(self, content: dict[str, Any]) -> Attached:
        info = content.get("info")
        mime = str(info.get("mimetype", "")) if isinstance(info, dict) else ""
        name = str(content.get("filename") or content.get("body") or "unnamed")[:200]
        if isinstance(file := content.get("file"), dict):
            return Attached(name, mime, fetch=partial(self._fetch_encrypted, file))
        address = str(content.get("url", ""))
        return Attached(name, mime, fetch=partial(self._server.download, address, MAX_ATTACHMENT_BYTES))

    def _fetch_encrypted(self, file: dict[str, Any]) -> bytes:
        return decrypt_file(self._server.download(str(file.get("url", "")), MAX_ATTACHMENT_BYTES), file)

    # -- sending --------------------------------------------------------------------------------------

    def deliver(self, message: Outbound) -> None:
        """Send an answer or a notification into its room and thread, behind its file."""
        room, place = _find_room(message)
        relation = _relation(place, is_answer="seq" in message.metadata)
        key = _transaction(message)
        if message.attachment:
            name, data = read_attachment(self._data_folder(message.files_of or message.session), message.attachment)
            self._note_own(self._send(room, f"{key}f", lambda: {**self._keep_file(room, name, data), **relation}))
        rest, number = message.text if message.text.strip() else "", 0
        while rest:
            is_edit = number == 0 and bool(message.shown)
            content, rest = fit_text(rest, self._most_bytes(room, is_edit=is_edit))
            content = _edit(message.shown, content) if is_edit else {**content, **relation}
            sent = self._send(room, f"{key}p{number}" if number else key, partial(dict, content))
            self._note_own(message.shown if is_edit else sent)
            number += 1

    def show(self, message: Outbound) -> str:
        """Send the beginning of an answer, or put more of it in its place."""
        room, place = _find_room(message)
        content, _ = fit_text(message.text, self._most_bytes(room, is_edit=True))
        if message.shown:
            self._send(room, new_id(), partial(_edit, message.shown, content), is_repeatable=False)
            return message.shown
        content |= _relation(place, is_answer=True)
        event = self._send(room, f"{_transaction(message)}s", partial(dict, content))
        self._note_own(event)
        return event

    def _send(self, room: str, key: str, build: Callable[[], dict[str, Any]], *, is_repeatable: bool = True) -> str:
        """Send a message under a transaction, encrypted where the room is; its id. One that is repeated is encrypted once."""
        if (rotation := self._encryption.rooms.find(room)) is None:
            return self._server.send(room, "m.room.message", key, build())
        if (encryption := self._encryption.open()) is None:
            raise Refused(f"the room {room} is encrypted: {self._encryption.problem}")
        content = encryption.sent(room, key) or encryption.encrypt(room, key if is_repeatable else "", build(), rotation)
        return self._server.send(room, "m.room.encrypted", key, content)

    def _most_bytes(self, room: str, *, is_edit: bool) -> int:
        """The largest text that fits into one event of this room, in bytes."""
        most = EDIT_BYTES if is_edit else EVENT_BYTES
        return most if self._encryption.rooms.find(room) is None else int(most * ENCRYPTED)

    def _keep_file(self, room: str, name: str, data: bytes) -> dict[str, Any]:
        mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
        kind = {"image": "m.image", "video": "m.video", "audio": "m.audio"}.get(mime.partition("/")[0], "m.file")
        size = picture_size(data) if kind == "m.image" else film_size(data) if kind == "m.video" else None
        lasts_ms = length_ms(data) if kind in ("m.video", "m.audio") else None
        info = {"mimetype": mime, "size": len(data), **({"w": size[0], "h": size[1]} if size else {})}
        info |= {"duration": lasts_ms} if lasts_ms else {}
        content = {"msgtype": kind, "body": name, "filename": name, "info": info}
        if self._encryption.rooms.find(room) is None:
            return {**content, "url": self._server.upload(name, mime, data)}
        sealed, file = encrypt_file(data)
        return {**content, "file": {**file, "url": self._server.upload("file", "application/octet-stream", sealed)}}

    def _note_own(self, event_id: str) -> None:
        self._own.pop(event_id, None)  # it is the newest now
        self._own[event_id] = None
        while len(self._own) > OWN_EVENTS:
            self._own.popitem(last=False)

    # -- the rest -------------------------------------------------------------------------------------

    def typing(self, metadata: dict[str, Any], is_on: bool) -> None:
        """Show it in the room of a message."""
        place = metadata.get("matrix")
        if isinstance(place, dict) and place.get("room"):
            self._writer.show(str(place["room"]), is_on)

    def check(self) -> list[str]:
        """Ask the server whose token this is."""
        found = self._server.whoami()
        if found != self._settings.user:
            raise BadInput(f"the token is that of {found}, not of {self._settings.user}", hint="set channels.matrix.user or token")
        device, fingerprint = self._encryption.fingerprint()
        own = [f"in encrypted rooms it is device {device} with the fingerprint {fingerprint}"] if device else []
        return [f"{self._settings.homeserver} knows the token as {found}", *own]

    def warnings(self) -> list[str]:
        """Settings that let others read messages or forge a sender, as warnings."""
        is_plain = self._settings.homeserver.startswith("http://")
        found = ["the homeserver is not asked over TLS (channels.matrix.homeserver)"] if is_plain else []
        if not self._settings.trusted_servers:
            found.append("no sender can be proven: channels.matrix.trusted_servers is empty")
        if self._encryption.problem:
            found.append(f"messages of encrypted rooms cannot be read: {self._encryption.problem}")
        return found

    def close(self) -> None:
        """End the connections."""
        self._writer.close()
        self._server.close()


class TypingWriter:
    """Renews what is shown while the assistant writes, in a thread that lives as long as it does anywhere."""

    def __init__(self, server: Homeserver) -> None:
        self._server = server
        self._state = threading.Condition()
        self._due: dict[str, float] = {}  # when it is to be shown again, by room
        self._ended: list[str] = []
        self._is_running = self._is_closed = False

    def show(self, room: str, is_on: bool) -> None:
        """Begin or end it in a room; never waits."""
        with self._state:
            if self._is_closed or (not is_on and room not in self._due):
                return
            if is_on:
                self._due.setdefault(room, monotonic_s())
            else:
                del self._due[room]
                self._ended.append(room)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="matrix-typing", daemon=True).start()
            self._state.notify_all()

    def close(self) -> None:
        """Show nothing more."""
        with self._state:
            self._is_closed = True
            self._state.notify_all()

    def _run(self) -> None:
        while True:
            with self._state:
                now = monotonic_s()
                rooms = [(room, TYPING_MS) for room, due_s in self._due.items() if due_s <= now]
                self._due.update({room: now + TYPING_S for room, _ in rooms})
                ended, self._ended = [(room, 0) for room in self._ended], []
                if self._is_closed or not (rooms or ended or self._due):
                    self._is_running = False
                    return
                if not rooms and not ended:
                    self._state.wait(max(0.0, min(self._due.values()) - now))
                    continue
            for room, timeout_ms in (*rooms, *ended):
                self._say(room, timeout_ms)

    def _say(self, room: str, timeout_ms: int) -> None:
        try:
            self._server.typing(room, timeout_ms)
        except Busy as error:
            with self._state:
                if room in self._due:
                    self._due[room] = monotonic_s() + error.retry_s
        except OwlError as error:
            LOG.debug("typing in %s: %s", room, error)


def format_text(text: str) -> dict[str, Any]:
    """A text as a message with HTML made from its Markdown."""
    from appliance.text.markdown_html import render  # with the parser, which only answers need

    return {"msgtype": "m.text", "body": text, "format": "org.matrix.custom.html", "formatted_body": render(text).strip()}


def fit_text(text: str, most_bytes: int) -> tuple[dict[str, Any], str]:
    """The beginning of a text as a message of at most so many bytes, up to the end of a line where there is one, and the rest."""
    size = len(text)
    while len(json.dumps(content := format_text(text[:size]))) > most_bytes and size > 1:
        size = size * 2 // 3
        at = text.rfind("\n", size // 2, size)
        size = at if at > 0 else size
    return content, text[size:].lstrip("\n")


def _find_room(message: Outbound) -> tuple[str, dict[str, Any]]:
    """The room that a message goes to, and what came from there."""
    place = message.metadata.get("matrix")
    place = place if isinstance(place, dict) else {}
    if not (room := str(place.get("room", ""))):
        raise BadInput("no room to send to: it is dropped", hint="whoever has written in a room can be answered there")
    return room, place


def _transaction(message: Outbound) -> str:
    """The name under which the server takes a message once."""
    return hashlib.sha256(message.key.encode("utf-8", "replace")).hexdigest()[:32]


def _edit(event: str, content: dict[str, Any]) -> dict[str, Any]:
    """A text in place of an earlier one; programs that know no edits show it with a star."""
    relation = {"rel_type": "m.replace", "event_id": event}
    return {**content, "body": f"* {content['body']}", "m.new_content": content, "m.relates_to": relation}


def _relation(place: dict[str, Any], *, is_answer: bool) -> dict[str, Any]:
    """How an answer hangs on its message: in the same thread, or as a reply to it."""
    root, event = str(place.get("thread", "")), str(place.get("event", ""))
    if not is_answer or not event:
        return {}
    reply = {"m.in_reply_to": {"event_id": event}}
    if root:
        return {"m.relates_to": {"rel_type": "m.thread", "event_id": root, "is_falling_back": True, **reply}}
    return {"m.relates_to": reply}


def _without_fallback(body: str) -> str:
    """A reply without the quotation that old clients put before it."""
    lines = body.split("\n")
    while lines and lines[0].startswith("> "):
        lines.pop(0)
    return "\n".join(lines).lstrip("\n")


def _table(value: Any) -> dict[str, Any]:
    """A table of what a server sent; an empty one for what is none."""
    return value if isinstance(value, dict) else {}


def _list_dicts(value: Any) -> list[dict[str, Any]]:
    """The tables in a list of what a server sent."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def connect(
    settings: Matrix,
    *,
    secret: Callable[[str], str],
    keep_secret: Callable[[str, str], object],
    store: Store,
    data_folder: Callable[[str], Path],
) -> MatrixChannel:
    """The channel of this table."""
    token = settings.token
    server = Homeserver(
        settings.homeserver, settings.user, secret(token.removeprefix(SECRET)) if token.startswith(SECRET) else token
    )
    return MatrixChannel(settings, server, EncryptionSetup(store, server, secret, keep_secret), data_folder)
