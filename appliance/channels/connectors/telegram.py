"""Telegram by its Bot API: talks with one person, mentions in groups, files and photos both ways, buttons for approvals.

Asks for messages with one long request (long polling), so that no port is open. A message is confirmed by asking for those behind
it, which is done once it is stored: killed in between, Telegram sends it again, and its id says that it is known. A message of
somebody who writes too much waits at Telegram, and is asked for again every second. A sender is who Telegram says. Telegram's
servers read along. The token is part of every address: no error names one.

A press of a button decides what waits for approval, where the message went to one person alone: that person presses it, and what
they were shown must still be what waits. Which button means what is known until the next start.
"""

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Struct

from appliance.channels.contract import MAX_ATTACHMENTS, Attached, Connection, Received, Running
from appliance.clock import monotonic_s, new_id
from appliance.errors import (
    BadInput,
    Busy,
    ConfigError,
    DeadlineExceeded,
    HttpError,
    Lost,
    NotFound,
    OwlError,
    Refused,
    Unavailable,
)
from appliance.records import Cancel, Outbound, to_plain
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import HttpSession
from appliance.runtime.methods import LocalCall
from appliance.sandbox.session_files import MAX_ATTACHMENT_BYTES, read_attachment
from appliance.text import urls

LOG = logging.getLogger(__name__)
SECRET = "secret:"
API = "https://api.telegram.org"
CALL_S, FILE_S = 30.0, 120.0
POLL_S = 50  # that Telegram holds a request without messages
MAX_ANSWER = 8 * 1024 * 1024
MAX_PART = 4000  # characters of one message, of which Telegram takes 4,096
MAX_SHOWN = 1500  # of what is to be approved
PAUSE_S = 1.0
ASKED = 200  # buttons that are known
GROUPS = ("group", "supergroup")
FILES = ("document", "video", "audio", "voice", "animation", "video_note", "sticker")


class TelegramApi:
    """The Bot API at one address."""

    def __init__(self, address: str, token: Callable[[], str]) -> None:
        self._address = address.rstrip("/")
        self._token = token
        self._http = HttpSession(kept=2)
        home = urls.parse(self._address)
        self.name, self.is_encrypted = home.authority, home.scheme == "https"

    def has_token(self) -> bool:
        """Whether there is a token to ask with."""
        return bool(self._token())

    def close(self) -> None:
        """Close the connections that rest."""
        self._http.close()

    def call(
        self, method: str, given: dict[str, Any] | None = None, *, cancel: Cancel | None = None, limit_s: float = CALL_S
    ) -> Any:
        """One call; an error of our tree says whether it may be tried again, Lost whether it may have been done."""
        body = json.dumps({name: value for name, value in (given or {}).items() if value is not None}).encode()
        headers = {"Content-Type": "application/json"}
        return self._result(method, *self._ask(f"bot{self._token()}/{method}", method, headers, body, cancel, limit_s))

    def send_file(self, chat: int, thread: int | None, name: str, data: bytes) -> Any:
        """Send a file."""
        mark = new_id()
        fields = {"chat_id": str(chat), **({"message_thread_id": str(thread)} if thread else {})}
        lines = [f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
        safe = name.replace('"', "_").replace("\r", "_").replace("\n", "_")
        head = f'--{mark}\r\nContent-Disposition: form-data; name="document"; filename="{safe}"\r\n'
        begin = "".join(lines) + f"{head}Content-Type: application/octet-stream\r\n\r\n"
        body = begin.encode("utf-8", "replace") + data + f"\r\n--{mark}--\r\n".encode()
        headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return self._result("a file", *self._ask(f"bot{self._token()}/sendDocument", "a file", headers, body, None, FILE_S))

    def download(self, file_id: str) -> bytes:
        """The bytes of a file that somebody sent."""
        path = str(self.call("getFile", {"file_id": file_id}).get("file_path") or "")
        if not path or ".." in path.split("/"):
            raise Unavailable("Telegram does not say where the file is")
        where = f"file/bot{self._token()}/{quote(path)}"
        status, data = self._ask(where, "a file", {}, None, None, FILE_S, MAX_ATTACHMENT_BYTES)
        if status != 200:
            raise Unavailable(f"{self.name} answers {status} to a file")
        return data

    def _ask(
        self,
        where: str,
        what: str,
        headers: dict[str, str],
        body: bytes | None,
        cancel: Cancel | None,
        limit_s: float,
        most: int = MAX_ANSWER,
    ) -> tuple[int, bytes]:
        by = Deadline(monotonic_s() + limit_s, f"{self.name} ({what})", cancel)
        try:
            with self._http.ask(urls.parse(f"{self._address}/{where}"), headers, body, by=by) as answer:
                data, is_cut = answer.body(most)
                status = answer.status_code
        except HttpError as error:
            if not error.may_have_arrived:
                raise Busy(f"{self.name} cannot be reached: {error.stage}", retry_s=60) from None
            raise Lost(f"{self.name} may have {what}: it broke off ({error.stage})") from None
        except DeadlineExceeded:
            raise Lost(f"{self.name} may have {what}: no answer in {limit_s:g} s") from None
        if is_cut:
            raise Unavailable(f"{self.name} sends more than {most} bytes for {what}")
        return status, data

    def _result(self, what: str, status: int, data: bytes) -> Any:
        try:
            given = json.loads(data)
        except (ValueError, RecursionError):
            given = {}
        given = given if isinstance(given, dict) else {}
        if status == 200 and given.get("ok"):
            return given.get("result")
        why = f"{self.name} answers {status} to {what}: {str(given.get('description') or '')[:200]}"
        if status == 429:
            after = given.get("parameters", {}).get("retry_after") if isinstance(given.get("parameters"), dict) else None
            raise Busy(why, retry_s=float(after) if isinstance(after, int) else 5.0)
        if status in (401, 404):
            raise Refused(why, hint="look at channels.telegram.token")
        if status == 409:
            raise Unavailable(why, hint="another program asks with the same token: stop it")
        if status >= 500:
            raise Lost(why)
        raise (NotFound if status == 400 else Refused)(why)


class AskedDecision(Struct, frozen=True):
    """What a button decides, and who may press it."""

    user: int
    person: str
    run: str
    ref: str
    digest: str


class TelegramChannel(Connection):
    """A bot."""

    def __init__(self, api: TelegramApi, data_folder: Callable[[str], Path], listener: Any) -> None:
        """`listener` serves the methods of the local socket, None where nobody does."""
        self._api = api
        self._data_folder = data_folder
        self._listener = listener
        self._id, self._name = 0, ""
        self._asked: OrderedDict[str, AskedDecision] = OrderedDict()
        self._guard = threading.Lock()

    # -- receiving ------------------------------------------------------------------------------------

    def receive(self, running: Running) -> None:
        """Ask for messages until told to stop."""
        if not self._api.has_token():
            raise ConfigError("channels.telegram.token is not set", key="channels.telegram.token", hint="@BotFather gives one")
        me = self._api.call("getMe", cancel=running.stop)
        self._id, self._name = int(me.get("id") or 0), str(me.get("username") or "")
        running.connected()
        offset, done = 0, set[int]()
        while not running.stop.is_set():
            began_s = monotonic_s()
            wanted = {"offset": offset, "timeout": POLL_S, "allowed_updates": ["message", "callback_query"]}
            try:
                found = self._api.call("getUpdates", wanted, cancel=running.stop, limit_s=POLL_S + CALL_S)
            except OwlError:
                if running.stop.is_set():
                    return
                raise
            updates = [one for one in found if isinstance(one, dict) and isinstance(one.get("update_id"), int)]
            waiting = self._take_all([one for one in updates if one["update_id"] not in done], running, done)
            if waiting:
                offset = min(waiting)
                running.stop.wait(PAUSE_S)
            elif updates:
                offset = max(one["update_id"] for one in updates) + 1
            elif monotonic_s() - began_s < PAUSE_S:
                running.stop.wait(PAUSE_S)  # a server that does not hold the request
            done = {one for one in done if one >= offset}

    def _take_all(self, updates: list[dict[str, Any]], running: Running, done: set[int]) -> list[int]:
        """Hand updates in; the numbers of those that have to wait, in the order of each sender."""
        waiting: dict[int, str] = {}
        for update in updates:
            number = int(update["update_id"])
            try:
                received = self._read(update)
            except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
                running.intake.refuse("somebody", f"malformed: {error}")
                received = None
            if received is not None:
                try:
                    if received.sender in waiting.values():
                        raise Busy("one of the same sender waits")
                    running.intake.take(received)
                except Busy:
                    waiting[number] = received.sender
                    continue
            done.add(number)
        return list(waiting)

    def _read(self, update: dict[str, Any]) -> Received | None:
        """The message of an update; None for one that is none, is a bot's, or is a press of a button."""
        if isinstance(pressed := update.get("callback_query"), dict):
            threading.Thread(target=self._decide, args=(pressed,), name="telegram-button", daemon=True).start()
            return None
        message = update.get("message")
        if not isinstance(message, dict):
            return None
        sender, chat = message.get("from"), message["chat"]
        if not isinstance(sender, dict) or sender.get("is_bot") or message.get("sender_chat"):
            return None  # a channel's post, or an administrator without a name
        is_group = chat.get("type") in GROUPS
        if not is_group and chat.get("type") != "private":
            return None
        text = str(message.get("text") or message.get("caption") or "")
        own = self._without_mention(text)
        attachments = self._attached(message)
        is_forwarded = bool(message.get("forward_origin") or message.get("forward_date"))
        own = f"[forwarded]\n{own}" if is_forwarded else own
        if not own.strip() and not attachments:
            return None
        replied = message.get("reply_to_message")
        replied = replied if isinstance(replied, dict) else {}
        is_reply = (replied.get("from") or {}).get("id") == self._id
        topic = {"thread": int(message["message_thread_id"])} if message.get("is_topic_message") else {}
        place = {"chat": int(chat["id"]), **topic}
        return Received(
            f"{chat['id']}/{int(message['message_id'])}",
            str(int(sender["id"])),
            own,
            int(message.get("date") or 0) * 1000,
            own_chars=0 if is_forwarded else None,
            is_proven=True,
            room=str(chat["id"]) if is_group else "",
            room_name=str(chat.get("title") or "")[:100] if is_group else "",
            is_addressed=not is_group or is_reply or own != text or text.startswith("/"),
            references=(f"{chat['id']}/{replied.get('message_id')}",) if is_reply else (),
            attachments=attachments,
            metadata={"telegram": place},
        )

    def _without_mention(self, text: str) -> str:
        """A text without the name of the bot, by which a message in a group is addressed."""
        name = f"@{self._name}"
        at = text.casefold().find(name.casefold()) if self._name else -1
        behind = text[at + len(name) : at + len(name) + 1]
        if at < 0 or behind.isalnum() or behind == "_":
            return text
        return f"{text[:at]}{text[at + len(name) :]}".strip(" ,:")

    def _attached(self, message: dict[str, Any]) -> tuple[Attached, ...]:
        """The files of a message; of a photo the largest of its sizes."""
        given = [(kind, message[kind]) for kind in FILES if isinstance(message.get(kind), dict)]
        if isinstance(photo := message.get("photo"), list) and photo and isinstance(photo[-1], dict):
            given.append(("photo", photo[-1]))
        return tuple(self._file(kind, one) for kind, one in given[:MAX_ATTACHMENTS])

    def _file(self, kind: str, file: dict[str, Any]) -> Attached:
        mime = str(file.get("mime_type") or ("image/jpeg" if kind == "photo" else ""))[:100]
        endings = {"photo": ".jpg", "voice": ".ogg", "video": ".mp4", "video_note": ".mp4", "sticker": ".webp"}
        name = str(file.get("file_name") or f"{kind}{endings.get(kind, '')}")[:200]
        size = file.get("file_size")
        if isinstance(size, int) and size > MAX_ATTACHMENT_BYTES:
            return Attached(name, mime, problem=f"{size} bytes are too many")
        number = str(file["file_id"])
        return Attached(name, mime, fetch=lambda: self._api.download(number))

    # -- sending --------------------------------------------------------------------------------------

    def deliver(self, message: Outbound) -> None:
        """Send an answer or a notification into its chat, behind its file; with buttons where it asks for a decision."""
        place = message.metadata.get("telegram")
        if not isinstance(place, dict) or not isinstance(place.get("chat"), int):
            raise BadInput("no chat to send to: it is dropped", hint="whoever has written there can be answered there")
        chat, thread = place["chat"], place.get("thread")
        if message.attachment:
            name, data = read_attachment(self._data_folder(message.files_of or message.session), message.attachment)
            self._api.send_file(chat, thread, name, data)
        text, buttons = message.text.strip(), None
        if text and message.key.startswith("proposal:"):
            text, buttons = self._with_buttons(message, text, chat)
        parts = [text[start : start + MAX_PART] for start in range(0, len(text), MAX_PART)]
        for number, part in enumerate(parts, 1):
            given = {"chat_id": chat, "message_thread_id": thread, "text": part, "link_preview_options": {"is_disabled": True}}
            self._api.call("sendMessage", {**given, "reply_markup": buttons if number == len(parts) else None})

    def _with_buttons(self, message: Outbound, text: str, chat: int) -> tuple[str, dict[str, Any] | None]:
        """What waits for a person's approval, with what they decide about; no buttons in a group, or where several things wait."""
        if chat <= 0 or not message.person or self._listener is None:
            return text, None
        try:
            call = LocalCall(person=message.person)
            waiting = to_plain(self._listener.table.call(call, "entry.waiting", {"run": message.run}))
            if len(waiting) != 1:
                return text, None
            shown = to_plain(self._listener.table.call(call, "run.proposal", {"ref": waiting[0]["ref"], "run": message.run}))
        except (OwlError, KeyError, TypeError) as error:
            LOG.warning("a decision is asked for without buttons: %s", error)
            return text, None
        number = new_id()[-12:]
        with self._guard:
            self._asked[number] = AskedDecision(chat, message.person, message.run, waiting[0]["ref"], str(shown["digest"]))
            while len(self._asked) > ASKED:
                self._asked.popitem(last=False)
        what = str(shown.get("patch") or shown.get("text") or "")[:MAX_SHOWN]
        keys = [{"text": "Approve", "callback_data": f"accept:{number}"}, {"text": "Reject", "callback_data": f"reject:{number}"}]
        return f"{text}\n\n{what}".strip(), {"inline_keyboard": [keys]}

    def _decide(self, pressed: dict[str, Any]) -> None:
        """Decide what a button asks about, and say on it what became of it."""
        action, _, number = str(pressed.get("data") or "").partition(":")
        with self._guard:
            asked = self._asked.get(number)
        try:
            said = self._resolve(asked, action, (pressed.get("from") or {}).get("id"))
        except OwlError as error:
            said = error.message
        try:
            self._api.call("answerCallbackQuery", {"callback_query_id": str(pressed.get("id") or ""), "text": said[:200]})
            origin = pressed.get("message")
            if isinstance(origin, dict) and asked is not None:
                where = {"chat_id": asked.user, "message_id": origin.get("message_id")}
                self._api.call("editMessageReplyMarkup", {**where, "reply_markup": {"inline_keyboard": []}})
        except OwlError as error:
            LOG.info("a button was pressed and not answered: %s", error)

    def _resolve(self, asked: AskedDecision | None, action: str, user: object) -> str:
        if asked is None or action not in ("accept", "reject"):
            return "This button is too old. Run owlbox approve."
        if user != asked.user:
            return "This is not yours to decide."
        given = {"ref": asked.ref, "run": asked.run, "action": action, "digest": asked.digest}
        self._listener.table.call(LocalCall(person=asked.person), "run.resolve", given)
        return "Approved." if action == "accept" else "Rejected."

    # -- the rest -------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Ask whose the token is."""
        if not self._api.has_token():
            return ["there is nothing to try: set channels.telegram.token"]
        me = self._api.call("getMe")
        return [f"the bot is @{me.get('username')}"]

    def warnings(self) -> list[str]:
        """An API that is asked without encryption."""
        return [] if self._api.is_encrypted else ["Telegram is not asked over TLS (channels.telegram.api_url)"]

    def close(self) -> None:
        """Close the connections that rest."""
        self._api.close()


def connect(
    token: Annotated[str, "the bot's token, from @BotFather, such as secret:channel/telegram"] = "",
    policy: Annotated[Literal["open", "mention", "allowlist"], "who may write: docs/guides/channels.md"] = "allowlist",
    allow_from: Annotated[tuple[str, ...], "senders read beside linked persons, by their numbers"] = (),
    rooms: Annotated[tuple[str, ...], "only these groups, by their numbers; none means all"] = (),
    api_url: Annotated[str, "the address of the Bot API, for a server of one's own"] = API,
    *,
    secret: Callable[[str], str],
    data_folder: Callable[[str], Path],
    listener: Any,
) -> TelegramChannel:
    """The channel of this table; who may write is decided by the gateway."""
    find = (lambda: secret(token.removeprefix(SECRET))) if token.startswith(SECRET) else (lambda: token)
    return TelegramChannel(TelegramApi(api_url, find), data_folder, listener)
