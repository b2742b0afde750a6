"""From a message that a channel received to the inbox: who may write, whose it is, in which session and thread.

The same for every channel. A message is refused before anything of it is stored when its sender is a stranger under the
channel's policy, claims an address of a person without proof, is deactivated, writes in a room that is not listed or to a
deactivated group, or is malformed or too large. A refusal is logged once for a sender and reason, and no model is called. Marks say
whose words are untrusted: all but those of a person whose address is linked and proven. What cannot be stored now is left to
the channel, which keeps it for later. Owns no table.

Who might write before counts too: what came under stricter rules is judged by those as well. The only writer of `admissions`, which
has a row for each change of a channel's rules.
"""

import hashlib
import logging
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from appliance.channels.contract import MAX_ATTACHMENTS, Attached, Received
from appliance.channels.inbox import MAX_TEXT, UNFIT, Inbox, answer_key
from appliance.channels.live_answers import LiveAnswers
from appliance.clock import correlation_id, monotonic_s, now_ms
from appliance.errors import BadInput, Busy, Conflict, NotFound, OwlError, Refused, TooLarge
from appliance.policy.taint_marks import CARRIED
from appliance.records import Event, Inbound, Marked, Outbound
from appliance.runtime import log
from appliance.runtime.events import Events
from appliance.sandbox.session_files import MAX_ATTACHMENT_BYTES, write_inside
from appliance.sessions.people import LOCAL, People
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.text.invisible import escape_invisible

LOG = logging.getLogger(__name__)
INSIDE = "/work"  # the folder of a session's data, as tools see it
INCOMING = "incoming"
MAX_LOGGED = 1000  # senders whose refusals are remembered, so that each is logged once
BURST, PER_MINUTE = 120, 60  # messages of one sender that are taken at once, and then in a minute
MAX_ID = 500
GUEST = "/guest"  # behind an address, for messages that have no rights of its person
CONTINUES_MS = 12 * 3600 * 1000  # a chat goes on after this silence in a new thread
OVERFULL = ("too_large", "context_too_long")  # outcomes of a chat in which nothing more can be said
SIGNS = {"👍": "yes", "+1": "yes", "thumbsup": "yes", "👎": "no", "-1": "no", "thumbsdown": "no"}  # all that mean something
MOST_SAID = 20  # messages of one answer, the prompt included
SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")
SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")
FINAL = (BadInput, Conflict, NotFound, Refused, TooLarge)  # errors of the inbox that the same message meets again
MOST = 20  # changes of one channel that are remembered
UNLISTED, ASIDE = "the sender is not listed", "it came from a room with other people"


class Admission(Struct, frozen=True):
    """Who may write in a channel, besides persons whose address is linked and proven.

    `policy` "allowlist" takes listed senders, "mention" also everybody in a room who addresses the assistant, "open" everybody.

    `rooms`, where any are given, are the only ones. `folds_case`: addresses that differ in their case alone are the same.
    """

    policy: str = "allowlist"
    allow_from: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    folds_case: bool = False

    def find_fault(self, received: Received, *, is_linked: bool) -> str:
        """Why a message is kept out, "" when it is not; ASIDE where people talk among themselves.

        An unknown policy lets nobody in.
        """
        if received.room and self.policy == "mention" and not received.is_addressed:
            return ASIDE
        if received.room and self.rooms and received.room not in self.rooms:
            return f"the room {received.room} is not listed"
        sender, allowed = received.sender, self.allow_from
        if self.folds_case:
            sender, allowed = sender.casefold(), tuple(one.casefold() for one in allowed)
        if self.policy == "open" or (self.policy == "mention" and received.room):
            return ""
        return "" if self.policy in ("mention", "allowlist") and (is_linked or sender in allowed) else UNLISTED


def note_admission(store: Store, channel: str, admission: Admission) -> tuple[tuple[int, Admission], ...]:
    """Remember that these are the rules of a channel from now on; those before, each with the moment at which it ended."""
    rows = store.rows("SELECT since_ms, admission FROM admissions WHERE channel = ? ORDER BY since_ms", (channel,))
    known = [(int(since_ms), msgspec.json.decode(str(text), type=Admission)) for since_ms, text in rows]
    if not known or known[-1][1] != admission:
        now = max(now_ms(), known[-1][0] + 1 if known else 0)
        with store.write(durable=True) as execute:
            given = (channel, now, msgspec.json.encode(admission).decode())
            execute("INSERT INTO admissions (channel, since_ms, admission) VALUES (?, ?, ?)", given)
            for since_ms, _ in known[: 1 - MOST]:
                execute("DELETE FROM admissions WHERE channel = ? AND since_ms = ?", (channel, since_ms))
        known.append((now, admission))
    return tuple((until_ms, before) for (_, before), (until_ms, _) in zip(known, known[1:], strict=False))


class MessageCounted(Struct, frozen=True):
    """The outcome of a message of a channel: taken, repeated or refused when it came; sent, or failed to be, when it goes."""

    channel: str
    outcome: str


class ChannelChanged(Struct, frozen=True):
    """A channel that is on is connected from now on, or not any more; None when it was switched off."""

    channel: str
    is_connected: bool | None


class Parts(Struct, frozen=True):
    """What every gateway works with; `data_folder` is where the tools of a session find files."""

    store: Store
    runs: Runs
    people: People
    inbox: Inbox
    data_folder: Callable[[str], Path]
    events: Events = field(default_factory=Events)


class Typist(Protocol):
    """Interface that shows or hides a typing mark."""

    def typing(self, metadata: dict[str, Any], is_on: bool) -> None: ...


class Gateway:
    """Takes the messages of one channel. Publishes `MessageCounted` and `ChannelChanged`."""

    def __init__(
        self,
        channel: str,
        admission: Admission,
        parts: Parts | None,
        typist: Typist | None = None,
        live: LiveAnswers | None = None,
    ) -> None:
        """`live` shows answers while they are written, on a channel that can."""
        self.channel = channel
        self._admission = admission
        self._earlier = () if parts is None else note_admission(parts.store, channel, admission)
        self._given = parts
        self._typist = typist
        self._live = live
        self._guard = threading.Lock()
        self._refused: set[tuple[str, str]] = set()
        self._budgets: dict[str, tuple[float, float]] = {}  # of a sender: messages left, and when that was counted
        self._typed: dict[int, dict[str, Any]] = {}
        self.counts = dict.fromkeys(("taken", "repeated", "refused", "sent", "failed"), 0)

    def count(self, outcome: str) -> None:
        """Count the outcome of a message, and publish it."""
        with self._guard:
            self.counts[outcome] += 1
        if self._given is not None:
            self._given.events.publish(MessageCounted(self.channel, outcome))

    def note_state(self, is_connected: bool | None) -> None:
        """Publish whether the channel is connected."""
        if self._given is not None:
            self._given.events.publish(ChannelChanged(self.channel, is_connected))

    @property
    def _parts(self) -> Parts:
        if self._given is None:
            raise Busy("this process accepts no messages")
        return self._given

    # -- taking ---------------------------------------------------------------------------------------

    def take(self, received: Received) -> bool:
        """Commit a message and begin its answer; True also for a repeat, False for a refusal. An error keeps it for later."""
        named = (received.message_id, received.sender, received.room, received.thread, *received.references)
        if any(_fit(one) != one for one in named):
            self.refuse(received.sender, "malformed: a name in it is no text")
            return False
        received = replace(
            received, text=_fit(received.text), room_name=_fit(received.room_name), metadata=_fit_all(received.metadata)
        )
        message_id = received.message_id
        if len(message_id) > MAX_ID:
            message_id = hashlib.sha256(message_id.encode("utf-8", "replace")).hexdigest()
        # Ids are chosen by senders in some services: one person's must not swallow another's message.
        key = f"{received.sender}/{message_id}"
        if self._is_known(key):
            self.count("repeated")
            return True
        why = self._find_fault(received)
        if why == ASIDE:  # that is not ours to read, and no news
            return False
        if why:
            self.refuse(received.sender, why)
            return False
        self._spend(received.sender)
        person = self._parts.people.find_linked(self.channel, received.sender)
        if person and received.doubt:
            self._note_doubt(received)
            person, received = "", replace(received, sender=f"{received.sender}{GUEST}")
        group = ""
        if received.room:
            group = self._parts.people.open_room(self.channel, received.room, received.room_name)
            if not self._parts.people.is_group_active(group):
                self.refuse(received.sender, f"the group {group} is deactivated")
                return False
        if received.reaction:
            answer = self._answer_of(received, person, group)
            if not answer:
                return self._record_reaction(received, key, person, group)
            received = replace(received, text=answer)
        inbound = self._build_inbound(received, key, person, group)
        try:
            with log.correlated(correlation := correlation_id()):
                accepted = self._parts.inbox.accept(inbound, correlation, lambda: self._find_thread(received, inbound))
        except FINAL as error:
            self.refuse(received.sender, error.message)
            return False
        if not accepted.is_new:
            self.count("repeated")
            return True
        self.count("taken")
        if self._typist is not None:
            with self._guard:
                self._typed[accepted.loop] = inbound.metadata
            self._typist.typing(inbound.metadata, True)
        if self._live is not None:
            message = Outbound(inbound.session, "", metadata=inbound.metadata, key=answer_key(accepted.loop), run=accepted.run)
            self._live.watch(accepted.loop, message)
        self._parts.inbox.start(accepted.loop)
        return True

    def refuse(self, sender: str, why: str) -> None:
        """Log a refusal, once for a sender and reason."""
        self.count("refused")
        with self._guard:
            if (sender, why) in self._refused or len(self._refused) >= MAX_LOGGED:
                return
            self._refused.add((sender, why))
        LOG.warning("channel %s: refused a message of %s: %s", self.channel, _plain(sender)[:200], _plain(why)[:300])

    def _note_doubt(self, received: Received) -> None:
        """Log, once for an address and reason, that a person is taken for a guest."""
        with self._guard:
            if (received.sender, received.doubt) in self._refused or len(self._refused) >= MAX_LOGGED:
                return
            self._refused.add((received.sender, received.doubt))
        plain = _plain(received.sender)[:200]
        LOG.warning("channel %s: a message of %s is that of a guest: %s", self.channel, plain, _plain(received.doubt)[:300])

    def end_typing(self, loop: int) -> None:
        """An answer is complete, or waits for a decision."""
        with self._guard:
            metadata = self._typed.pop(loop, None)
            is_last = metadata is not None and metadata not in self._typed.values()
        if self._typist is not None and metadata is not None and is_last:
            self._typist.typing(metadata, False)

    def is_welcome(self, sender: str) -> bool:
        """Whether a sender may lead the assistant into a room: the policy is open, or the sender is listed or linked."""
        if self._admission.policy == "open" or sender in self._admission.allow_from:
            return True
        person = self._parts.people.find_linked(self.channel, sender)
        return bool(person) and self._parts.people.is_active(person)

    def last_taken_ms(self) -> int:
        """When a message of this channel was taken last; 0 for never."""
        return int(self._parts.store.value("SELECT MAX(received_ms) FROM inbox WHERE channel = ?", (self.channel,)) or 0)

    # -- judging --------------------------------------------------------------------------------------

    def _is_known(self, key: str) -> bool:
        """Whether the inbox has this message, so that a repeat costs one read."""
        sql = "SELECT 1 FROM inbox WHERE channel = ? AND message_id = ?"
        return self._parts.store.value(sql, (self.channel, key)) is not None

    def _find_fault(self, received: Received) -> str:
        """The reason to refuse a message; "" to accept it."""
        if self._admission.find_fault(received, is_linked=True) == ASIDE:
            return ASIDE
        if not received.message_id or not received.sender.strip():
            return "malformed: it has no id or no sender"
        if len(received.text) > MAX_TEXT:
            return f"{len(received.text)} characters are too many, the limit is {MAX_TEXT}"
        if not received.text.strip() and not received.attachments:
            return "it is empty"
        return self.find_refusal(received)

    def find_refusal(self, received: Received) -> str:
        """Why a message is refused for who sent it and where, whatever it says; "" when it is not."""
        person = self._parts.people.find_linked(self.channel, received.sender)
        if person and not received.is_proven and not received.doubt:
            return f"it is not proven to come from {received.sender}, which is an address of {person}"
        if person and not self._parts.people.is_active(person):
            return f"{person} is deactivated"
        # What was refused when it came stays so: more may be let in since, but nobody is answered to what was said before.
        said_ms = received.at_ms or now_ms()  # a mail that tells no time is read once
        said_ms += 0 if said_ms % 1000 else 999  # whole seconds are those that have begun
        judges = (self._admission, *(one for until_ms, one in self._earlier if said_ms < until_ms))
        return next((why for one in judges if (why := one.find_fault(received, is_linked=bool(person)))), "")

    def _spend(self, sender: str) -> None:
        """Busy when a sender has written more than is taken at a time: the channel keeps the message for later."""
        now = monotonic_s()
        with self._guard:
            left, at_s = self._budgets.pop(sender, (float(BURST), now))
            left = min(float(BURST), left + (now - at_s) * PER_MINUTE / 60)
            while len(self._budgets) >= MAX_LOGGED:
                self._budgets.pop(next(iter(self._budgets)))
            self._budgets[sender] = (left - 1 if left >= 1 else left, now)  # a try in vain costs nothing
        if left < 1:
            raise Busy(f"{sender} writes more than {PER_MINUTE} messages a minute", hint="they are taken one after the other")

    # -- reactions ------------------------------------------------------------------------------------

    def _answer_of(self, received: Received, person: str, group: str) -> str:
        """What a reaction answers to the question that we asked this person last, in their thread: "yes", "no", or ""."""
        sign = SIGNS.get(SKIN_TONES.sub("", received.reaction), "")
        run = self._reacted_run(received, person, group) if sign and received.is_about_newest else ""
        if not run or self._parts.runs.paused_loop(run) is not None:  # what waits for a decision is not decided by a sign
            return ""
        said = self._parts.runs.record.path(self._parts.runs.get(run).head, kinds=("message",), limit=MOST_SAID)
        prompt = next((one for one in reversed(said) if one.role == "user"), None)
        if prompt is None or said[-1].role != "assistant" or not said[-1].content.rstrip().endswith("?"):
            return ""
        sql = (  # the newest that this channel has sent must be that question: a reminder may have come behind it
            "SELECT run = ? AND metadata ->> 'seq' = ? FROM outbox WHERE via = ? AND status = 'sent' "
            "ORDER BY ended_ms DESC, id DESC LIMIT 1"
        )
        if not self._parts.store.value(sql, (run, said[-1].seq, self.channel)):
            return ""
        resolve = self._parts.people.resolve
        is_theirs = resolve(prompt.channel, prompt.sender_id) == resolve(self.channel, received.sender)
        return sign if is_theirs else ""

    def _record_reaction(self, received: Received, key: str, person: str, group: str) -> bool:
        """Put a reaction that answers nothing on the record of its thread, where there is one; no model is asked."""
        run = self._reacted_run(received, person, group)
        if run and not self._parts.runs.record.has_call(run, key):
            marks = self._list_marks(received, person)
            event = Event(run, "status_change", "system", received.text, input={CARRIED: marks} if marks else None, call_id=key)
            self._parts.runs.append(
                replace(
                    event, outcome="reaction", channel=self.channel, sender_id=received.sender, at_ms=received.at_ms or now_ms()
                ),
                durable=True,
            )
        self.count("taken")
        return True

    def _reacted_run(self, received: Received, person: str, group: str) -> str:
        """The thread that a reaction belongs to; "" where there is none, for a reaction begins nothing."""
        return self._known_thread(received, self._build_inbound(received, "", person, group))

    # -- what is stored -------------------------------------------------------------------------------

    def _build_inbound(self, received: Received, key: str, person: str, group: str) -> Inbound:
        own = received.text.strip() or "(no text)"
        quoted_from = min(len(own), len(own) if received.own_chars is None else max(0, received.own_chars))
        inbound = Inbound(
            self.channel,
            received.sender,
            own,
            key,
            received.at_ms or now_ms(),
            metadata={**received.metadata, "reply_to": received.message_id},
            own_chars=quoted_from,
            marks=self._list_marks(received, person),
            context=f"group:{group}" if group else "",
            shared_session=f"{LOCAL}:{person}" if person and not group else "",
        )
        if not received.attachments:
            return inbound
        lines = [self._save_attachment(inbound.session, one) for one in received.attachments[:MAX_ATTACHMENTS]]
        if len(received.attachments) > MAX_ATTACHMENTS:
            lines.append(f"[{len(received.attachments) - MAX_ATTACHMENTS} more attachments were left out]")
        return replace(inbound, text=f"{own}\n\n" + "\n".join(lines))

    def _list_marks(self, received: Received, person: str) -> Marked:
        """From whom untrusted words are: everybody but a person whose address is linked and proven."""
        if person and received.is_proven:
            return received.marks
        whose = f"person:{UNFIT.sub('_', received.sender)[:128]}"
        return (*received.marks, (whose, self.channel))

    def _save_attachment(self, session: str, attached: Attached) -> str:
        """Keep a file where the session's tools find it, under the hash of its bytes; the line that tells of it."""
        name = _plain(attached.name)[:120] or "unnamed"
        said = f"{name!r} ({_plain(attached.mime)[:80]}"
        data, problem = _fetch(attached)
        if problem or len(data) > MAX_ATTACHMENT_BYTES:
            return f"[attachment {said}) is not there: {problem or 'it is too large'}]"
        suffix = SUFFIX.fullmatch(Path(name).suffix)
        kept = f"owlbox-{hashlib.sha256(data).hexdigest()[:8]}{suffix[0].lower() if suffix else ''}"
        try:
            write_inside(self._parts.data_folder(session) / INCOMING, kept, data, f".{kept}.{self.channel}.part")
        except OSError as error:
            return f"[attachment {said}) is not there: {error.strerror or error}]"
        return f"[attachment {said}, {len(data)} bytes): {INSIDE}/{INCOMING}/{kept}]"

    def _find_thread(self, received: Received, inbound: Inbound) -> str:
        """The thread that a message continues, or a new one; within the transaction that accepts it."""
        own = _thread_id(self.channel, inbound.session, received.thread) if received.thread else ""
        return self._known_thread(received, inbound) or self._parts.runs.begin(inbound.session, "chat", run_id=own).id

    def _known_thread(self, received: Received, inbound: Inbound) -> str:
        """The thread that a message continues; "" for none."""
        own = _thread_id(self.channel, inbound.session, received.thread) if received.thread else ""
        for reference in (*received.references, *([own] if own else [])):
            if (run := self._thread_of(reference, inbound)) is not None:
                return run
        if not received.is_new_thread and not received.references and not own:
            known = self._parts.runs.list_runs(kind="chat", session=inbound.session, limit=20)
            latest = next((run for run in known if not is_of_thread(run.id)), None)
            is_usable = latest is not None and latest.outcome not in OVERFULL and latest.updated_ms > now_ms() - CONTINUES_MS
            if latest is not None and is_usable:
                return latest.id
        return ""

    def _thread_of(self, reference: str, inbound: Inbound) -> str | None:
        """The thread of an earlier message of this session, by the id of that message or of our answer to it."""
        sql = (
            "SELECT r.id FROM runs r WHERE r.session = ?1 AND r.deleted_ms IS NULL AND (r.id = ?2 OR r.id IN "
            "(SELECT run FROM inbox WHERE channel = ?3 AND message_id = ?4)) LIMIT 1"
        )
        key = f"{inbound.sender_id}/{reference}"
        found = self._parts.store.value(sql, (inbound.session, reference, self.channel, key))
        return None if found is None else str(found)


def _thread_id(channel: str, session: str, thread: str) -> str:
    """The id of the run that is a thread of a service: a UUID of version 8, always the same."""
    made = uuid.UUID(bytes=hashlib.sha256(f"{channel}/{session}/{thread}".encode()).digest()[:16])
    return str(uuid.UUID(int=(made.int & ~(0xF << 76) & ~(3 << 62)) | 8 << 76 | 2 << 62))


def is_of_thread(run: str) -> bool:
    """Whether a run is a thread of a service, beside what is said in the room itself."""
    return run[14:15] == "8"


def _fit(text: str) -> str:
    """A text that can be stored: halves of characters, which JSON and mails may hold, become question marks."""
    return text.encode("utf-8", "replace").decode()


def _fit_all(value: Any) -> Any:
    """The same for everything in it."""
    if isinstance(value, str):
        return _fit(value)
    if isinstance(value, dict):
        return {_fit(name): _fit_all(one) for name, one in value.items()}
    return [_fit_all(one) for one in value] if isinstance(value, list | tuple) else value


def _fetch(attached: Attached) -> tuple[bytes, str]:
    """The bytes of a file, or why there are none; Busy when the service gives them later."""
    if attached.problem or attached.fetch is None:
        return attached.data, attached.problem
    try:
        return attached.fetch(), ""
    except Busy:
        raise
    except OwlError as error:
        return b"", error.message


def _plain(text: str) -> str:
    """An untrusted text on one line, without characters that cannot be seen."""
    return escape_invisible(" ".join(_fit(text).split()))
