"""Messages that a tool sends: to the person it works for, or to whom the policy names; so many a minute and no more.

A message becomes a letter in the outbox, in the conversation that it came from unless another one is named. Who may be
written to is for the policy's `ipc` lists; without any, only the person of the conversation. Knows nothing about doors.
"""

import threading
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from appliance.clock import monotonic_s, new_id
from appliance.errors import BadInput, TooLarge, Unavailable
from appliance.policy.gate import Gate
from appliance.policy.mounts import Who
from appliance.policy.rules import CORE as CORE  # the default target
from appliance.policy.rules import Request
from appliance.sessions.outbox import Notification, Outbox

NOTIFICATION = "notification"
MAX_BYTES = 10_240
PER_MINUTE = 10  # of one conversation
MAX_TYPE = 64


class Message(Struct, frozen=True):
    """What is sent: to `target`, which is `core` or `person:NAME`; `session` names another conversation than the caller's."""

    content: str
    target: str = CORE
    type: str = NOTIFICATION
    session: str = ""


class Posted(Struct, frozen=True):
    id: str
    target: str
    type: str
    person: str


class Postbox:
    def __init__(self, outbox: Outbox, gate: Gate, person: Callable[[str], str], *, per_minute: int = PER_MINUTE) -> None:
        self._outbox = outbox
        self._gate = gate
        self._person = person
        self._per_minute = per_minute
        self._guard = threading.Lock()
        self._sent: dict[str, deque[float]] = {}

    def send(self, message: Message, *, session: str, run: str = "", author: str = "", role: str = "") -> Posted:
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
        request = Request("message", Who(mine, role=role), session, run, target=target if person != mine else CORE)
        self._gate.judge(request).require()
        self._count_sent(session or run)
        made = new_id()
        session, metadata = message.session or session, {"type": message.type}
        notification = Notification(f"message:{made}", person, message.content, session=session, run=run or None, metadata=metadata)
        sources = tuple(f"run:{one}" for one in (run, author) if one)
        self._outbox.put(notification, sources=sources, durable=True)
        return Posted(made, message.target, message.type, person)

    @staticmethod
    def _check_message(message: Message) -> None:
        size = len(message.content.encode("utf-8", "replace"))
        if not size or not message.content.strip():
            raise BadInput("the message is empty", hint="say something", outcome="invalid_arguments")
        if size > MAX_BYTES:
            raise TooLarge(f"the message has {size} bytes, more than {MAX_BYTES}", hint="shorten it")
        if message.target != CORE and not message.target.removeprefix("person:").strip():
            raise BadInput(f"there is no target {message.target!r}", hint="use core or person:NAME", outcome="invalid_arguments")
        if message.target != CORE and not message.target.startswith("person:"):
            raise BadInput(f"there is no target {message.target!r}", hint="use core or person:NAME", outcome="invalid_arguments")
        if not message.type.isprintable() or not 1 <= len(message.type) <= MAX_TYPE:
            raise BadInput(f"{message.type!r} is no type of message", hint=f"use {NOTIFICATION}", outcome="invalid_arguments")

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
