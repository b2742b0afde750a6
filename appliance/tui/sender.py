"""Messages on their way: sent one after the other, resent until the core has them, their answers followed.

A message keeps its `message_id` whatever happens, so the core accepts it once. When the connection goes
after that, the answer is read from the record, event by event, until its loop has ended. `run` works in
a thread of its own; what happens goes to `tell` as one of the classes below. A decision is not queued, because
what is queued may wait for it: `decide` and `follow` work in the thread of their caller. Nothing here is on
disk: what was not accepted when the screen is left is lost. While an answer sleeps, the next message of its conversation is
handed in at once: it ends the sleep.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import correlation_id, monotonic_s, new_id
from appliance.errors import Conflict, DeadlineExceeded, Lost, NotFound, OwlError
from appliance.tui.connection import Link

ANSWER_S = 3600.0
HAND_IN_S = 30.0
DRAW_EVERY_S = 0.15
LOOK_EVERY_S = 0.5
WAITING, RUNNING, PROPOSED = 100, 102, 202
SLEEP = "sleep"  # the tool that the next message ends


@dataclass(eq=False)
class Talk:
    """A conversation of this screen: its thread once there is one, the last event that was shown, who answers."""

    thread: str = ""
    title: str = ""
    seq: int = 0
    role: str = ""


@dataclass(eq=False)
class Outgoing:
    """A message; an empty text only follows what is being answered in its thread. `seq` is the last event it was told."""

    text: str
    talk: Talk
    seq: int = 0
    message_id: str = field(default_factory=new_id)
    correlation: str = field(default_factory=correlation_id)
    is_accepted: bool = False
    is_decision: bool = False  # its answer streams, though nothing was said
    is_handed_in: bool = False  # before its turn
    has_reply: bool = False


@dataclass(frozen=True)
class Decision:
    """What somebody decided about what waits: accept, reject or error, and the answer or the reason. `about` names it.

    `remember` says for how long the like of a held call may pass, `digest` what was looked at.
    """

    ref: str
    action: str
    output: str = ""
    about: str = ""
    remember: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Taken:
    """The message's turn has come."""

    message: Outgoing


@dataclass(frozen=True)
class Accepted:
    """The message is safe in the core."""

    message: Outgoing


@dataclass(frozen=True)
class Grew:
    """More text of the answer, or of the thoughts before it, a few times a second."""

    message: Outgoing
    text: str
    is_thought: bool = False


@dataclass(frozen=True)
class Prepares:
    """A call of a tool has begun, whose arguments are still being written."""

    message: Outgoing
    tool: str


@dataclass(frozen=True)
class Happened:
    """A stored event."""

    message: Outgoing
    event: dict[str, Any]


@dataclass(frozen=True)
class Held:
    """The connection went; it goes on when the core is back."""

    message: Outgoing


@dataclass(frozen=True)
class Ended:
    """The answer is complete, stopped or failed; `why` is one line for a person."""

    message: Outgoing
    status: int
    outcome: str
    why: str = ""


@dataclass(frozen=True)
class DecisionMade:
    """The result of a decision; `is_late` when somebody else decided first."""

    message: Outgoing
    decision: Decision
    why: str = ""
    is_error: bool = False
    is_late: bool = False


News = Taken | Accepted | Grew | Prepares | Happened | Held | Ended | DecisionMade


class Sender:
    """The queue of one screen."""

    def __init__(self, link: Link, tell: Callable[[News], None]) -> None:
        self._link = link
        self._tell = tell
        self._queue: deque[Outgoing | None] = deque()
        self._asleep: set[Talk] = set()
        self._has_news = threading.Condition()

    def queue_message(self, message: Outgoing) -> None:
        """Send it when all before it are answered, or at once where the answer before it sleeps."""
        self._put(message)
        self._wake_answer(message.talk)

    def take_back(self, message: Outgoing) -> bool:
        """Do not send it; False when its turn has come already."""
        with self._has_news:
            if message not in self._queue or message.is_handed_in:
                return False
            self._queue.remove(message)
            return True

    def close(self) -> None:
        """End `run`; the link must be closed too."""
        self._put(None)

    def run(self) -> None:
        """Work through the queue until `close`."""
        while (message := self._take()) is not None and not self._link.is_closing:
            self._tell(Taken(message))
            if message.is_accepted and message.text:
                self._tell(Accepted(message))
            self._deliver_message(message)

    def _wake_answer(self, talk: Talk) -> None:
        """Hand in the next message of a conversation whose answer sleeps; it is followed when its turn comes."""
        with self._has_news:
            message = next((one for one in self._queue if one is not None and one.talk is talk), None)
            if talk not in self._asleep or message is None or message.is_handed_in:
                return
            message.is_handed_in = True
        threading.Thread(target=self._hand_in, args=(message,), name="hand in", daemon=True).start()

    def _hand_in(self, message: Outgoing) -> None:
        try:
            with self._link.client() as client:
                params = {**self._params_of(message), "wait": False}
                message.seq = int(client.call("message.send", params, deadline_s=HAND_IN_S, correlation=message.correlation)["seq"])
        except OwlError:
            message.is_handed_in = False  # its turn will come
            return
        message.is_accepted = True
        self._tell(Accepted(message))

    def _put(self, message: Outgoing | None) -> None:
        with self._has_news:
            self._queue.append(message)
            self._has_news.notify()

    def _take(self) -> Outgoing | None:
        with self._has_news:
            self._has_news.wait_for(lambda: bool(self._queue))
            return self._queue.popleft()

    def decide(self, talk: Talk, decision: Decision) -> None:
        """Decide about something that waits in a talk, and follow its answer until it ends or waits again."""
        message = Outgoing("", talk, talk.seq, is_decision=True)
        self._tell(Taken(message))
        self._attempt_message(message, lambda: self._send_resolution(message, decision))

    def follow(self, talk: Talk) -> None:
        """Follow what somebody else has set going in a talk."""
        message = Outgoing("", talk, talk.seq, is_accepted=True)
        self._tell(Taken(message))
        self._deliver_message(message)

    def _deliver_message(self, message: Outgoing) -> None:
        message.seq = max(message.seq, message.talk.seq)
        self._attempt_message(message, lambda: self._send_message(message))

    def _attempt_message(self, message: Outgoing, begin: Callable[[], Ended | None]) -> None:
        """Begin, and once that is done only follow, until the answer has ended."""
        while self._link.wait():
            try:
                end = self._follow_record(message) if message.is_accepted else begin()
            except (Lost, DeadlineExceeded):
                self._tell(Held(message))
                if not self._link.pause(LOOK_EVERY_S):
                    return
                continue
            except OwlError as error:
                end = Ended(message, error.status, error.outcome, str(error))
            if end is not None:
                self._asleep.discard(message.talk)
                self._tell(end)
                return

    def _send_message(self, message: Outgoing) -> Ended | None:
        """The end of the answer, or None when it has to be followed."""
        result = self._stream_answer(message, "message.send", self._params_of(message))
        status = int(result.get("status", WAITING))
        if status in (WAITING, RUNNING):
            return None  # known before, or the core is being restarted: the record tells the rest
        return Ended(message, status, str(result.get("outcome", "")), str(result.get("message", "")))

    @staticmethod
    def _params_of(message: Outgoing) -> dict[str, Any]:
        return {"text": message.text, "thread": message.talk.thread, "kind": "chat", "message_id": message.message_id}

    def _send_resolution(self, message: Outgoing, decision: Decision) -> Ended | None:
        """The end of the answer that waited, or None when it has to be followed."""
        params = {"ref": decision.ref, "run": message.talk.thread, "action": decision.action, "output": decision.output}
        params |= {name: value for name in ("remember", "digest") if (value := getattr(decision, name))}  # not all cores know them
        try:
            result = self._stream_answer(message, "run.resolve", {**params, "wait": True}, decision)
        except Lost:
            message.is_accepted = True  # or not: then the record says that it waits
            raise
        except (NotFound, Conflict) as error:
            self._tell(DecisionMade(message, decision, str(error), is_late=True))
            message.is_accepted = True
            return None
        if not message.is_accepted:
            self._take_resolution(message, decision, result)
        end, status = result.get("end") or {}, int(result["status"])
        if status == RUNNING or (end and status == WAITING):
            return None  # otherwise waiting means that a worker goes on with it, in its time
        return Ended(message, status, str(end.get("outcome", "")), str(end.get("message", "")))

    def _take_resolution(self, message: Outgoing, decision: Decision, known: dict[str, Any]) -> None:
        message.is_accepted = True
        outcome = known["outcome"]
        is_undone = int(outcome["status"]) >= 400 and outcome["outcome"] != "rejected"
        self._tell(DecisionMade(message, decision, str(outcome["message"]), is_error=is_undone))

    def _stream_answer(
        self, message: Outgoing, method: str, params: dict[str, Any], decision: Decision | None = None
    ) -> dict[str, Any]:
        """The result of a call whose answer is drawn as it comes."""
        text = Buffer(lambda grown, is_thought: self._tell(Grew(message, grown, is_thought)))
        with self._link.client() as client:
            stream = client.stream(
                method,
                params,
                deadline_s=ANSWER_S,
                correlation=message.correlation,
                idle=(DRAW_EVERY_S, text.flush),
            )
            while True:
                try:
                    name, value = next(stream)
                except StopIteration as end:
                    text.flush()
                    return dict(end.value or {})
                if name == "accepted":
                    message.talk.thread = value["run"]
                    message.seq = max(message.seq, value["seq"])
                    message.talk.seq = max(message.talk.seq, message.seq)
                    message.is_accepted = True
                    self._tell(Accepted(message))
                elif name == "resolved" and decision is not None:
                    self._take_resolution(message, decision, value)
                elif name in ("delta", "thinking"):
                    text.add(value["text"], name == "thinking")
                elif name == "preparing":
                    text.flush()
                    self._tell(Prepares(message, str(value["tool"])))
                elif name == "event":
                    text.flush()
                    self._show_event(message, value)

    def _follow_record(self, message: Outgoing) -> Ended | None:
        """Read the record until the loop has ended."""
        while True:
            found = self._link.call("thread.view", {"id": message.talk.thread, "after": message.seq})
            for event in found["events"]:
                self._show_event(message, event)
            status = int(found["thread"]["status"])
            if status not in (WAITING, RUNNING) and (message.has_reply or not message.text):
                return Ended(message, status, str(found["thread"]["outcome"]))
            if not self._link.pause(LOOK_EVERY_S):
                return None

    def _show_event(self, message: Outgoing, event: dict[str, Any]) -> None:
        if event["seq"] <= message.seq:
            return
        message.seq = event["seq"]
        message.talk.seq = max(message.talk.seq, message.seq)
        is_mine = event["correlation"] == message.correlation
        if event["role"] == "user" and is_mine:
            return  # it is on the screen since it was typed
        message.has_reply = message.has_reply or is_mine
        self._tell(Happened(message, event))
        if event["kind"] == "tool_result":
            self._asleep.discard(message.talk)
        elif event["kind"] == "tool_use" and SLEEP in (event["tool"], (event["input"] or {}).get("tool")):
            self._asleep.add(message.talk)
            self._wake_answer(message.talk)


class Buffer:
    """Text that is passed on at most every DRAW_EVERY_S, and before text of the other kind comes: an answer, or thoughts."""

    def __init__(self, write: Callable[[str, bool], None]) -> None:
        self._write = write
        self._text = ""
        self._is_thought = False
        self._written_s = 0.0

    def add(self, text: str, is_thought: bool = False) -> None:
        """More text."""
        if is_thought is not self._is_thought:
            self.flush()
            self._is_thought = is_thought
        self._text += text
        if monotonic_s() - self._written_s >= DRAW_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Pass on what is there."""
        if self._text:
            text, self._text = self._text, ""
            self._written_s = monotonic_s()
            self._write(text, self._is_thought)
