"""Slack by Socket Mode: talks with one person, mentions in channels, threads, reactions and files, in one workspace.

An event is confirmed after its message is stored: killed in between, Slack sends it again, and its id says that it is known. A
sender is who Slack says; it carries its workspace, `T024/U061`, so that the same id in two workspaces is two persons. Each further
workspace is a channel of its own, with another object of this class. Needs the package websockets.

Messages that could not be handed in yet, because their sender writes too much or the queue is full, wait in a `Backlog` in memory,
bounded, in the order of each sender; Slack sends again what was not confirmed, but only a few times.
"""

import json
import logging
import re
import socket
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as open_socket

from appliance.channels.contract import MAX_ATTACHMENTS, REPEAT, Attached, ChannelIntake, Connection, Received, Running
from appliance.channels.slack_api import SlackApi
from appliance.clock import monotonic_s
from appliance.errors import BadInput, Busy, Lost, NotFound, Refused
from appliance.records import Outbound
from appliance.runtime.settings import Workspace
from appliance.sandbox.session_files import MAX_ATTACHMENT_BYTES, read_attachment
from appliance.text.patterns import Pattern

LOG = logging.getLogger(__name__)
SECRET = "secret:"
MAX_FRAME = 1024 * 1024
HELLO_S = 20.0
PING_S = 600.0  # each wakes three times, and Slack asks by itself every few seconds
# Whether the other end is still there the kernel asks, which wakes nobody: after a minute, then three times.
KEPT_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
MAX_PART = 11_000  # characters of one message, of which Slack takes 12,000
OWN_POSTS = 2000
MAX_FORWARDED, MAX_FORWARDED_CHARS = 10, 10_000
ANGLES = re.compile(r"<([^<>|\n]{1,2000})(?:\|([^<>\n]{1,500}))?>")
EMOJI = re.compile(r"[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?")
ID = re.compile(r"[A-Z0-9]{2,30}")
PLAIN = (None, "", "file_share", "thread_broadcast")  # kinds of messages that people write
PAUSE_S = 1.0
MOST, MOST_CHARS = 2000, 8_000_000
TRIES = 20  # in vain, in one round: a full queue is not asked for every message


class _Held(Struct, frozen=True):
    received: Received
    confirm: Callable[[], None]


class Backlog:
    """The undelivered messages of one channel."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._chars = 0
        self._next_s = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def hand_in(self, key: str, received: Received, intake: ChannelIntake, confirm: Callable[[], None]) -> None:
        """Hand a message in and confirm it, now or later; one that does not fit is neither. `key` names it to the service."""
        held = _Held(received, confirm)
        if key in self._held:
            self._held[key] = held  # sent again: the way to confirm it is another
        elif any(one.received.sender == received.sender for one in self._held.values()) or not self._try(held, intake):
            if len(self._held) < MOST and self._chars + len(received.text) <= MOST_CHARS:
                self._held[key] = held
                self._chars += len(received.text)

    def pause_s(self) -> float | None:
        """Until `retry` has something to do; None while nothing waits."""
        return max(0.0, self._next_s - monotonic_s()) if self._held else None

    def retry(self, intake: ChannelIntake) -> None:
        """Hand in what can be by now; nothing before its pause is over."""
        if self._next_s > monotonic_s():
            return
        busy: set[str] = set()
        for key, held in list(self._held.items()):
            if held.received.sender in busy:
                continue
            if self._try(held, intake):
                del self._held[key]
                self._chars -= len(held.received.text)
            else:
                busy.add(held.received.sender)
                if len(busy) >= TRIES:
                    break
        self._next_s = monotonic_s() + PAUSE_S

    def _try(self, held: _Held, intake: ChannelIntake) -> bool:
        try:
            intake.take(held.received)
        except Busy:
            return False
        held.confirm()
        return True


class SlackChannel(Connection):
    """An app in a workspace."""

    is_streaming = True

    def __init__(self, settings: Workspace, secret: Callable[[str], str], data_folder: Callable[[str], Path]) -> None:
        self._settings = settings
        self._secret = secret
        self._data_folder = data_folder
        self._api = SlackApi(settings.api_url)
        self._team = self._user = ""
        self._backlog = Backlog()
        self._own: OrderedDict[str, str] = OrderedDict()  # of what we posted: the thread, to know where a reaction belongs
        self._trigger = Pattern("/" + settings.trigger.replace("/", r"\/") + "/i")

    # -- receiving ------------------------------------------------------------------------------------

    def receive(self, running: Running) -> None:
        """Take events until told to stop; Slack ends a connection every few hours and is asked for another."""
        found = self._api.call("auth.test", self._bot_token())
        self._team, self._user = str(found.get("team_id", "")), str(found.get("user_id", ""))
        is_first = True
        while not running.stop.is_set():
            address = str(self._api.call("apps.connections.open", self._app_token()).get("url", ""))
            try:
                with open_socket(address, open_timeout=HELLO_S, ping_interval=PING_S, max_size=MAX_FRAME, compression=None) as link:
                    for option in KEPT_ALIVE:
                        link.socket.setsockopt(*option)
                    forget = running.stop.then(link.close)
                    try:
                        if json.loads(link.recv(HELLO_S)).get("type") != "hello":
                            raise Lost("Slack does not say hello")
                        if is_first:
                            running.connected()
                            is_first = False
                        self._take_events(link, running)
                    finally:
                        forget()
            except (WebSocketException, OSError, ValueError, EOFError, AttributeError) as error:
                if not running.stop.is_set():
                    raise Lost(f"the socket to Slack ended: {error}") from None

    def _take_events(self, link: ClientConnection, running: Running) -> None:
        """Until Slack wants another connection."""
        while not running.stop.is_set():
            try:
                given = json.loads(link.recv(self._backlog.pause_s()))
            except TimeoutError:
                self._backlog.retry(running.intake)
                continue
            if not isinstance(given, dict) or given.get("type") == "disconnect":
                return
            envelope = given.get("envelope_id")
            if not isinstance(envelope, str):
                continue
            confirm = partial(_confirm, link, envelope)
            try:
                received = self._read_envelope(given, running)
            except (TypeError, ValueError, AttributeError, OverflowError) as error:  # not confirmed it would come for ever
                running.intake.refuse("somebody", f"malformed: {error}")
                received = None
            if received is None:
                confirm()
                continue
            event_id = str(given["payload"].get("event_id") or envelope)
            self._backlog.hand_in(event_id, received, running.intake, confirm)
            self._backlog.retry(running.intake)

    def _read_envelope(self, given: dict[str, Any], running: Running) -> Received | None:
        """The message that an event is; None for one that is none, is ours, or is refused."""
        payload = given.get("payload")
        event = payload.get("event") if isinstance(payload, dict) else None
        if given.get("type") != "events_api" or not isinstance(event, dict) or not isinstance(payload, dict):
            return None
        item = event.get("item") if event.get("type") == "reaction_added" else event
        item = item if isinstance(item, dict) else {}
        sender, place, at = str(event.get("user") or ""), str(item.get("channel") or ""), str(item.get("ts") or "")
        is_plain = event.get("subtype") in PLAIN and not event.get("bot_id")
        if event.get("type") not in ("message", "app_mention", "reaction_added") or not is_plain or sender in ("", self._user):
            return None
        team = str(event.get("user_team") or event.get("team") or payload.get("team_id") or "")
        if not all(ID.fullmatch(one) for one in (sender, place, team)) or payload.get("team_id") != self._team:
            running.intake.refuse(f"{team[:40]}/{sender[:40]}", "malformed, or of another workspace")
            return None
        made = Received(f"{place}/{at}", f"{team}/{sender}", "", _moment_ms(at), is_proven=team == self._team, room_name=place)
        if event.get("type") == "reaction_added":
            return self._read_reaction(made, event, place, at)
        return self._read_message(made, event, place, at)

    def _read_message(self, made: Received, event: dict[str, Any], place: str, at: str) -> Received:
        """What somebody writes. A mention comes twice, as a message and as a mention: the moment names both."""
        is_direct = event.get("channel_type") == "im"
        text = str(event.get("text") or "")
        is_addressed = is_direct or event.get("type") == "app_mention" or f"<@{self._user}>" in text
        is_addressed = is_addressed or self._trigger.matches(text[:1000])
        root = str(event.get("thread_ts") or "")
        files, forwarded = event.get("files"), _forwarded(event)
        own = plain_text(text.replace(f"<@{self._user}>", "")).strip(" :,") or ("" if files or forwarded else text)
        return replace(
            made,
            text=f"{own}\n\n{forwarded}".strip() if forwarded else own,
            own_chars=len(own) if forwarded else None,
            room="" if is_direct else place,
            is_addressed=is_addressed,
            thread=root,
            attachments=tuple(self._read_file(one) for one in (files if isinstance(files, list) else ())[: MAX_ATTACHMENTS + 1]),
            metadata={"slack": {"channel": place, "thread": root if root else "" if is_direct else at}},
        )

    def _read_reaction(self, made: Received, event: dict[str, Any], place: str, at: str) -> Received | None:
        """A reaction to something that we said, in the thread of that."""
        name = str(event.get("reaction") or "")
        if event.get("item_user") != self._user or not EMOJI.fullmatch(name):
            return None
        moment = str(event.get("event_ts") or "")
        is_direct = place.startswith("D")
        thread = self._own.get(f"{place}/{at}", "")
        return replace(
            made,
            message_id=f"{place}/{at}/{name}/{moment}",
            at_ms=_moment_ms(moment),
            text=f"[reacts with :{name}:]",
            references=(f"{place}/{thread}",) if thread else (),  # the message under which we answered
            reaction=name.partition("::")[0],
            is_about_newest=f"{place}/{at}" == next(reversed(self._own), ""),
            room="" if is_direct else place,
            thread=thread,
            metadata={"slack": {"channel": place, "thread": thread or ("" if is_direct else at)}},
        )

    def _read_file(self, file: object) -> Attached:
        known = file if isinstance(file, dict) else {}
        name, mime = str(known.get("name") or "unnamed")[:200], str(known.get("mimetype") or "")
        size = known.get("size")
        if isinstance(size, int) and size > MAX_ATTACHMENT_BYTES:
            return Attached(name, mime, problem=f"{size} bytes are too many")
        url = str(known.get("url_private_download") or known.get("url_private") or "")
        return Attached(name, mime, fetch=lambda: self._api.download(url, self._bot_token(), MAX_ATTACHMENT_BYTES))

    # -- sending --------------------------------------------------------------------------------------

    def deliver(self, message: Outbound) -> None:
        """Send an answer or a notification into its channel and thread, behind its file."""
        place, thread = _find_place(message), ""
        if "seq" in message.metadata:
            thread = str(place.get("thread", ""))
        if message.attachment:
            name, data = read_attachment(self._data_folder(message.files_of or message.session), message.attachment)
            self._send_file(place["channel"], thread, name, data)
        text = message.text.strip()
        if message.shown and text:
            text = self._replace_shown(message, place["channel"], text)
        for start in range(0, len(text), MAX_PART):
            self._post(place["channel"], text[start : start + MAX_PART], thread)

    def show(self, message: Outbound) -> str:
        """Post the beginning of an answer, or put more of it in its place."""
        place = _find_place(message)
        if message.shown:
            self._update(place["channel"], message.shown, message.text[:MAX_PART])
            return message.shown
        return self._post(place["channel"], message.text[:MAX_PART], str(place.get("thread", "")))

    def _replace_shown(self, message: Outbound, channel: str, text: str) -> str:
        """Put an answer in place of what was shown of it; what is still to be posted. Done again it changes nothing more."""
        if len(text) <= MAX_PART + len(REPEAT):
            text = text.removeprefix(REPEAT).lstrip()
        try:
            self._update(channel, message.shown, text[:MAX_PART])
        except (NotFound, Refused) as error:  # somebody deleted it, or the workspace lets nobody edit any more
            LOG.info("the answer is posted again: %s", error)
            return text
        return text[MAX_PART:]

    def _post(self, channel: str, text: str, thread: str) -> str:
        # Slack would ask every address in an answer for a preview, whoever wrote it there: nothing leaves without a click.
        quiet = {"unfurl_links": False, "unfurl_media": False}
        given = {"channel": channel, "markdown_text": text, "thread_ts": thread, **quiet}
        posted = self._api.call("chat.postMessage", self._bot_token(), **given)
        moment = str(posted.get("ts", ""))
        self._own[f"{channel}/{moment}"] = thread  # the newest last: an edit is not a post
        while len(self._own) > OWN_POSTS:
            self._own.popitem(last=False)
        return moment

    def _update(self, channel: str, moment: str, text: str) -> None:
        self._api.call("chat.update", self._bot_token(), channel=channel, ts=moment, markdown_text=text)

    def _send_file(self, channel: str, thread: str, name: str, data: bytes) -> None:
        token = self._bot_token()
        place = self._api.form("files.getUploadURLExternal", token, filename=name, length=str(len(data)))
        self._api.upload(str(place.get("upload_url", "")), data)
        files = [{"id": str(place.get("file_id", "")), "title": name}]
        self._api.call("files.completeUploadExternal", token, files=files, channel_id=channel, thread_ts=thread)

    # -- the rest -------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Ask whose the tokens are, and for a socket."""
        found = self._api.call("auth.test", self._bot_token())
        tried = [f"the bot is {found.get('user')} in {found.get('team')}"]
        self._api.call("apps.connections.open", self._app_token())
        return [*tried, "the app may open a socket"]

    def warnings(self) -> list[str]:
        """An API that is asked without encryption."""
        return [] if self._settings.api_url.startswith("https://") else ["Slack is not asked over TLS (channels.slack.api_url)"]

    def close(self) -> None:
        """Close the connections that rest."""
        self._api.close()

    def _bot_token(self) -> str:
        return self._find(self._settings.bot_token)

    def _app_token(self) -> str:
        return self._find(self._settings.app_token)

    def _find(self, token: str) -> str:
        return self._secret(token.removeprefix(SECRET)) if token.startswith(SECRET) else token


def _confirm(link: ClientConnection, envelope: str) -> None:
    """Tell Slack that an event has arrived; on a connection that has ended it is sent again, and known."""
    try:
        link.send(json.dumps({"envelope_id": envelope}))
    except ConnectionClosed:
        LOG.debug("an event could not be confirmed and comes again")


def _moment_ms(moment: str) -> int:
    """The time of a message, 0 for what is none."""
    return int(float(moment) * 1000) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", moment) else 0


def _find_place(message: Outbound) -> dict[str, Any]:
    """Where a message goes: its channel at least."""
    place = message.metadata.get("slack")
    if not isinstance(place, dict) or not place.get("channel"):
        raise BadInput("no channel to send to: it is dropped", hint="whoever has written there can be answered there")
    return {**place, "channel": str(place["channel"])}


def plain_text(text: str) -> str:
    """Slack's own marks as they were written: links, mentions, rooms, dates, and the three letters that it escapes."""
    return ANGLES.sub(_written, text).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _written(found: "re.Match[str]") -> str:
    """A Slack link `<target|label>` as plain text."""
    target, label = found[1], found[2] or ""
    if target[0] in "@#":
        return f"{target[0]}{label.removeprefix(target[0])}" if label else target
    if target[0] == "!":
        return label or f"@{target[1:].partition('^')[0]}"
    plain = target.removeprefix("mailto:").removeprefix("tel:")
    is_same = label in ("", plain) or label.rstrip("/") == plain.partition("://")[2].rstrip("/")
    return (label or plain) if is_same else f"{label} ({plain})"


def _forwarded(event: dict[str, Any]) -> str:
    """Messages of others that a message shares, each below the name of who wrote it."""
    shared = event.get("attachments")
    texts = []
    for one in (shared if isinstance(shared, list) else [])[:MAX_FORWARDED]:
        if not isinstance(one, dict) or not (one.get("is_share") or one.get("is_msg_unfurl")):
            continue
        said = plain_text(str(one.get("text") or one.get("fallback") or "")[:MAX_FORWARDED_CHARS])
        name = plain_text(str(one.get("author_name") or one.get("author_subname") or "somebody")[:100])
        texts.append("\n".join([f"[forwarded from {' '.join(name.split())}]", *(f"> {line}" for line in said.splitlines())]))
    return "\n\n".join(texts)


def connect(settings: Workspace, *, secret: Callable[[str], str], data_folder: Callable[[str], Path]) -> SlackChannel:
    """The channel of this table."""
    return SlackChannel(settings, secret, data_folder)
