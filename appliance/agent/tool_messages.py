"""Messages that a tool sends: to the person it works for, or to whom the policy names; so many a minute and no more.

A message becomes a letter in the outbox, in the conversation that it came from unless another one is named. Who may be
written to is for the policy's `ipc` lists; without any, only the person of the conversation. A file that goes with one is put
into the folder of the conversation, from where a channel takes it. Knows nothing about doors.
"""

import re
import threading
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path, PurePosixPath

from msgspec import Struct

from appliance.clock import monotonic_s, new_id
from appliance.errors import BadInput, Conflict, NotFound, TooLarge, Unavailable
from appliance.ingest.box_refs import SCHEME
from appliance.ingest.notes import Folder
from appliance.knowledge.entries import Entries
from appliance.policy.gate import Gate
from appliance.policy.mounts import Who
from appliance.policy.rules import CORE as CORE  # the default target
from appliance.policy.rules import PolicyRequest
from appliance.sandbox.session_files import INSIDE, read_attachment, write_inside
from appliance.sessions.outbox import Notification, Outbox
from appliance.text.references import scheme_of

OUTGOING = "outgoing"  # in the folder of a conversation
WORD = re.compile(r"[^\W_]+")
NOTIFICATION = "notification"
MAX_BYTES = 10_240
PER_MINUTE = 10  # of one conversation
MAX_TYPE = 64


class ToolMessage(Struct, frozen=True):
    """What is sent: to `target`, which is `core` or `person:NAME`; `session` names another conversation than the caller's.

    `file` is a file of the conversation (`/work/...`), a reference, or words of a name in the folder.
    """

    content: str
    target: str = CORE
    type: str = NOTIFICATION
    session: str = ""
    file: str = ""


class Posted(Struct, frozen=True):
    id: str
    target: str
    type: str
    person: str
    file: str = ""


class OutgoingFiles:
    """Finds files that are to be sent, of those that the present context may see, for the folder of a conversation."""

    def __init__(self, box: Folder, entries: Entries, folder: Callable[[str], Path]) -> None:
        self._box = box
        self._entries = entries
        self._folder = folder

    def find(self, session: str, what: str) -> tuple[str, bytes | None]:
        """Name and bytes of a file; None for the bytes of one that is in the conversation's folder. NotFound names what is near."""
        if what.startswith(INSIDE):
            return read_attachment(self._folder(session), what)[0], None
        if (scheme_of(what) or "box") != "box":
            entry = self._entries.get(what)
            name = PurePosixPath(entry.path).name or "file"
            if not entry.is_textual:
                return name, self._entries.blob(entry)
            return name if PurePosixPath(name).suffix else f"{name}.txt", entry.body.encode()
        named = self._named(what.removeprefix(SCHEME).removeprefix("box/"))
        if len(named) != 1:
            message = (
                f"several files are named like {what!r}: {', '.join(named[:5])}" if named else f"no file is named like {what!r}"
            )
            hint = "name one of them" if named else "files to send lie in the folder box/, and in /work/ of the conversation"
            raise (Conflict if named else NotFound)(message, hint=hint)
        return read_attachment(self._box.root, named[0])

    def keep(self, session: str, name: str, data: bytes) -> str:
        """Put a file where the channels of a conversation find it; its name there."""
        self._folder(session).mkdir(mode=0o770, parents=True, exist_ok=True)
        try:
            if read_attachment(self._folder(session), f"{OUTGOING}/{name}")[1] != data:  # that one may not be sent yet
                name = f"{sha256(data).hexdigest()[:8]}-{name}"
        except NotFound:
            pass
        try:
            write_inside(self._folder(session) / OUTGOING, name, data, f".{name}.part")
        except OSError as error:
            raise Unavailable(f"{name} could not be put aside for sending: {error.strerror or error}") from None
        return f"{INSIDE}{OUTGOING}/{name}"

    def _named(self, what: str) -> list[str]:
        """The file of the box with this path, else those whose path and title have all these words."""
        words, files = set(WORD.findall(what.casefold())), self._box.list_files()
        if what in dict(files):
            return [what]
        return [name for name, title in files if words and words <= set(WORD.findall(f"{name} {title}".casefold()))]


class Postbox:
    def __init__(
        self, outbox: Outbox, gate: Gate, person: Callable[[str], str], files: OutgoingFiles, *, per_minute: int = PER_MINUTE
    ) -> None:
        self._outbox = outbox
        self._gate = gate
        self._person = person
        self._files = files
        self._per_minute = per_minute
        self._guard = threading.Lock()
        self._sent: dict[str, deque[float]] = {}

    def send(self, message: ToolMessage, *, session: str, run: str = "", author: str = "", role: str = "") -> Posted:
        """Put a message into the outbox; Refused for whom the sender may not write to, rate_limited after too many.

        `run` is the thread it belongs to, `author` the run that wrote it when that is another one: it carries the marks of both.
        """
        self._check_message(message)
        mine = self._person(session) if session else ""
        person = mine if message.target == CORE else message.target.removeprefix("person:")
        if message.session:
            person = self._person(message.session)
        if not person:
            raise BadInput("nobody talks in this conversation", hint="name a target such as person:ada")
        target = f"person:{person}"
        request = PolicyRequest("message", Who(mine, role=role), session, run, target=target if person != mine else CORE)
        self._gate.judge(request).require()
        name, data = self._files.find(session, message.file) if message.file else ("", None)
        self._count_sent(session or run)
        made, where = new_id(), message.session or session
        kept = self._files.keep(where, name, data) if data is not None else message.file
        notification = Notification(
            f"message:{made}",
            person,
            message.content if message.content.strip() else name,
            session=where,
            run=run or None,
            attachment=kept or None,
            metadata={"type": message.type},
        )
        sources = tuple(f"run:{one}" for one in (run, author) if one)
        self._outbox.put(notification, sources=sources, durable=True)
        return Posted(made, message.target, message.type, person, name)

    @staticmethod
    def _check_message(message: ToolMessage) -> None:
        size = len(message.content.encode("utf-8", "replace"))
        if not message.content.strip() and not message.file:
            raise BadInput("the message is empty", hint="say something, or name a file", outcome="invalid_arguments")
        if size > MAX_BYTES:
            raise TooLarge(f"the message has {size} bytes, more than {MAX_BYTES}", hint="shorten it")
        if message.target != CORE and not message.target.removeprefix("person:").strip():
            raise BadInput(f"there is no target {message.target!r}", hint="use core or person:NAME", outcome="invalid_arguments")
        if message.target != CORE and not message.target.startswith("person:"):
            raise BadInput(f"there is no target {message.target!r}", hint="use core or person:NAME", outcome="invalid_arguments")
        if not message.type.isprintable() or not 1 <= len(message.type) <= MAX_TYPE:
            raise BadInput(f"{message.type!r} is not a type of message", hint=f"use {NOTIFICATION}", outcome="invalid_arguments")

    def _count_sent(self, session: str) -> None:
        now_s = monotonic_s()
        with self._guard:
            sent = self._sent.setdefault(session, deque())
            while sent and sent[0] <= now_s - 60:
                sent.popleft()
            if len(sent) >= self._per_minute:
                wait_s = round(60 - (now_s - sent[0])) + 1
                raise Unavailable(
                    f"more than {self._per_minute} messages a minute",
                    hint=f"wait {wait_s} s, or say it in one",
                    outcome="rate_limited",
                )
            sent.append(now_s)
            for idle in [name for name, times in self._sent.items() if not times or times[-1] <= now_s - 60]:
                del self._sent[idle]
