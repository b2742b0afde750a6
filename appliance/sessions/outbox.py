"""What people are to be told: put in the transaction of what it is about, kept until a channel has it.

Owns the `outbox` table. A notification is put once by its key, and waits; where it goes is chosen when it is sent, never
out of its context. Notifications put for the same context, session and channel go in the order in which they were put.
Here are rows and rules; `channels.delivery` sends. Not promised: that something was delivered once when a channel cannot
tell. A notification whose sender died in the middle is sent again, marked, unless its channel knows it by its key.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from appliance.clock import is_alive, now_ms
from appliance.errors import BadInput, Busy, Conflict, NotFound
from appliance.policy.taint_marks import CARRIED, Marks, read_marks
from appliance.records import Marked
from appliance.runtime.events import Events
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.store import visibility, wall_clock
from appliance.store.database import Row, Store
from appliance.store.wall_clock import CLOCKLESS_MS, OLD, Leap
from appliance.text.urls import show_addresses

WAITING, SENDING, SENT, LOGGED, FAILED, CANCELLED = "waiting", "sending", "sent", "logged", "failed", "cancelled"
COLUMNS = (
    "id, key, person, text, context, session, channel, run, attachment, metadata, correlation, "
    "status, via, attempts, may_repeat, error, process, due_ms, created_ms, ended_ms, held_ms"
)
OPEN = "status IN ('waiting', 'sending')"  # as the index has it
UNSEEN = "status = 'sent' AND via = 'local' AND seen_ms IS NULL"  # likewise
# Of notifications put for the same context, session and channel only the oldest may go.
# One that is held back is out of the row: what comes after it goes first.
HEADS = f"SELECT MIN(id) FROM outbox WHERE {OPEN} AND (held_ms IS NULL OR held_ms <= ?) GROUP BY context, session, channel"
DAY_MS = 24 * 3600 * 1000


class Notification(Struct, frozen=True):
    """A text for somebody. `person` may name a group as `group:ID`; `context` follows from it unless given.

    `channel` insists on one, `session` says in which conversation it was asked for, `run` in which thread. `marks` are
    those of untrusted texts that it was made of.
    """

    key: str
    person: str
    text: str
    context: str = ""
    session: str = ""
    channel: str = ""
    run: str | None = None
    attachment: str | None = None
    metadata: dict[str, Any] = {}
    correlation: str = ""
    marks: Marked = ()


class Posting(Struct, frozen=True):
    """A notification and what has become of it; `via` is the channel that had it last, `held_ms` until when it is held back."""

    id: int
    notification: Notification = field(name="letter")  # the name that clients of outbox.list know
    status: str
    via: str
    attempts: int
    may_repeat: bool
    error: str
    process: str
    due_ms: int
    created_ms: int
    ended_ms: int | None
    held_ms: int | None = None


class Address(Struct, frozen=True):
    """A conversation on a channel, with what the channel wants back."""

    channel: str
    session: str = ""
    metadata: dict[str, Any] = {}


class DeliveryPatience(Struct, frozen=True):
    """How long it is tried, how much may wait, and how long what has ended is kept."""

    retry_s: float = 5
    retry_max_s: float = 3600
    max_attempts: int = 24  # a day, as the pauses grow to an hour
    max_waiting: int = 1000
    keep_days: float = 31

    def delay_ms(self, attempts: int) -> int:
        """The pause after so many attempts."""
        return int(min(self.retry_max_s, self.retry_s * 2.0 ** min(max(attempts, 1) - 1, 60)) * 1000)


def context_of(person: str) -> str:
    """The context of a person, or of a group named `group:ID`."""
    return person if person.startswith("group:") else f"user:{person}"


class OutboxFilled(Struct, frozen=True):
    """There is something new to send, once this transaction is committed."""


class NotificationPut(Struct, frozen=True):
    """A new notification is put: published within its transaction, so that what is put along with it stands or falls with it."""

    notification: Notification


class Outbox:
    """Reads and writes notifications. `OutboxFilled` is published within a transaction in which there is something new to send."""

    def __init__(self, store: Store, process: str, patience: DeliveryPatience | None = None, events: Events | None = None) -> None:
        self._store = store
        self._marks = Marks(store)
        self.process = process
        self.patience = patience or DeliveryPatience()
        self.events = events or Events()

    # -- putting ------------------------------------------------------------------------------------

    def put(self, notification: Notification, *, sources: Sequence[str] = (), durable: bool = False) -> int:
        """Keep a notification until it is delivered; its id. The same key a second time changes nothing.

        `sources` are the subjects of marks (`run:ID`, `task:3`, `schedule:7`) whose texts it tells of: it carries their marks.

        Inside a transaction of the caller it stands or falls with that. Never refused for want of room, because
        the end of a task cannot be: whoever can be told to come back asks `require_room` first.
        """
        missing = [name for name in ("key", "person", "text") if not getattr(notification, name).strip()]
        if missing:
            raise BadInput(
                f"a notification needs {' and '.join(missing)}", hint="say who is to be told what, and once by which key"
            )
        context, now = notification.context or context_of(notification.person), now_ms()
        with self._store.write(durable=durable) as execute:
            marks = [*notification.marks, *(self._marks.carried(*sources) if sources else ())]
            text = show_addresses(notification.text) if marks else notification.text
            said = (notification.key, notification.person, text, context, notification.session, notification.channel)
            metadata = notification.metadata | ({CARRIED: marks} if marks else {})
            rows = execute(
                "INSERT INTO outbox (key, person, text, context, session, channel, run, attachment, metadata, correlation, "
                "status, due_ms, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'waiting', ?11, ?11) "
                "ON CONFLICT (key) DO NOTHING RETURNING id",
                (
                    *said,
                    notification.run,
                    notification.attachment,
                    json.dumps(metadata, ensure_ascii=False),
                    notification.correlation,
                    now,
                ),
            )
            if rows:
                self.events.publish(OutboxFilled())
                if self.events.has(NotificationPut):
                    self.events.publish(NotificationPut(replace(notification, text=text, context=context, marks=tuple(marks))))
                return int(rows[0][0])
            return int(execute("SELECT id FROM outbox WHERE key = ?", (notification.key,))[0][0])

    def require_room(self, *, is_person: bool = False) -> None:
        """Busy "queue full" when as many prompts and notifications wait as may; for a person who asks, when as many prompts do."""
        waiting = int(self._store.value("SELECT COUNT(*) FROM loops WHERE status IN (100, 102) AND status = 100"))  # by their index
        if not is_person:
            waiting += int(self._store.value(f"SELECT COUNT(*) FROM outbox WHERE {OPEN}"))
        if waiting >= self.patience.max_waiting:
            raise Busy(
                f"queue full: {waiting} messages wait to be answered or delivered",
                hint="try again when some are done; owlbox status shows what is being done",
            )

    # -- looking ------------------------------------------------------------------------------------

    def get(self, notification_id: int) -> Posting:
        found = self._select_postings("id = ?", (notification_id,))
        if not found:
            raise NotFound(f"no notification {notification_id}")
        return found[0]

    def find(self, key: str) -> Posting | None:
        return next(iter(self._select_postings("key = ?", (key,))), None)

    def list_postings(
        self, *, status: str = "", context: str = "", session: str = "", limit: int = 20, offset: int = 0
    ) -> list[Posting]:
        """Notifications, newest first."""
        where = "?1 IN ('', status) AND ?2 IN ('', context) AND ?3 IN ('', session) ORDER BY id DESC LIMIT ?4 OFFSET ?5"
        return self._select_postings(where, (status, context, session, limit, offset))

    @method("outbox.list")
    def list_by_status(
        self,
        status: Annotated[Literal["", "waiting", "sending", "sent", "logged", "failed", "cancelled"], "only in this state"] = "",
        limit: Annotated[int, Range(1, 1000), "how many to show"] = 20,
        offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    ) -> list[Posting]:
        """The notifications, newest first; of one status or of all."""
        return self.list_postings(status=status, limit=limit, offset=offset)

    def counts(self) -> dict[str, int]:
        """The number of notifications in each status that has any."""
        own = visibility.own_contexts("context")
        sql = f"SELECT status, COUNT(*) FROM outbox WHERE 1{own} GROUP BY status ORDER BY status"
        return {str(s): int(n) for s, n in self._store.rows(sql)}

    # -- by hand ------------------------------------------------------------------------------------

    def cancel(self, notification_id: int) -> Posting:
        """Never send it; Conflict when a channel has it already, or it has ended."""
        return self._decide_status(notification_id, (WAITING,), "status = 'cancelled', ended_ms = ?2", "cancelled")

    def clear(self, session: str, *, is_gone: bool = False) -> int:
        """Cancel everything that waits to be told in a session, of one that is gone also what is being sent; how many."""
        with self._store.write(durable=True) as execute:
            sql = "UPDATE outbox SET status = 'cancelled', ended_ms = ?1 WHERE session = ?2 AND (status = 'waiting' OR ?3 AND "
            return len(execute(f"{sql}status = 'sending') RETURNING id", (now_ms(), session, is_gone)))

    def retry(self, notification_id: int) -> Posting:
        """Send it now, with all attempts before it again; Conflict when it was sent or is being sent."""
        change = "status = 'waiting', attempts = 0, error = '', due_ms = ?2, ended_ms = NULL"
        return self._decide_status(notification_id, (WAITING, LOGGED, FAILED, CANCELLED), change, "sent again")

    def _decide_status(self, notification_id: int, wanted: Sequence[str], change: str, what: str) -> Posting:
        with self._store.write(durable=True) as execute:
            known = self.get(notification_id)
            if known.status not in wanted:
                raise Conflict(f"notification {notification_id} is {known.status} and cannot be {what}")
            execute(f"UPDATE outbox SET {change} WHERE id = ?1", (notification_id, now_ms()))
            self.events.publish(OutboxFilled())
        return self.get(notification_id)

    # -- where to -----------------------------------------------------------------------------------

    def addresses(self, context: str, *, channel: str = "", session: str = "") -> list[Address]:
        """The conversations of a context, last used first; only those of a channel, or one session, when given."""
        rows = self._store.rows(
            # A task's session has no channel: a hundred of them would hide the one that is.
            "SELECT channel, id, metadata FROM sessions "
            "WHERE context = ?1 AND channel <> 'task' AND ?2 IN ('', channel) AND ?3 IN ('', id) "
            "ORDER BY last_active_ms DESC, id LIMIT 100",
            (context, channel, session),
        )
        return [Address(str(row[0]), str(row[1]), json.loads(row[2])) for row in rows]

    def unseen(self, person: str, limit: int = 20) -> list[Posting]:
        """What stands in a thread for a person who has not been shown it yet, oldest first."""
        return self._select_postings(f"person = ? AND {UNSEEN} ORDER BY id LIMIT ?", (person, limit))

    def told(self, person: str, limit: int) -> list[Posting]:
        """The notifications that a person received, newest first, without the copies on their devices."""
        where = "person = ? AND status IN ('sent', 'logged') AND metadata ->> 'subscription' IS NULL ORDER BY id DESC LIMIT ?"
        return self._select_postings(where, (person, limit))

    def see(self, person: str, keys: Sequence[str]) -> int:
        """A person has been shown these; how many of them were new to them."""
        with self._store.write(durable=True) as execute:
            new = f"person = ?2 AND {UNSEEN} AND key IN (SELECT value FROM json_each(?3))"
            return len(
                execute(f"UPDATE outbox SET seen_ms = ?1 WHERE {new} RETURNING id", (now_ms(), person, json.dumps(list(keys))))
            )

    def thread(self, notification: Notification) -> str:
        """The thread a notification belongs to; "" for none, one that is gone, and one of another context."""
        sql = "SELECT r.id FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id = ? AND s.context = ?"
        return str(self._store.value(sql, (notification.run, notification.context)) or "")

    # -- holding back -------------------------------------------------------------------------------

    def hold(self, notification_id: int, until_ms: int) -> None:
        """Do not send it before then; what comes after it may go."""
        with self._store.write() as execute:
            execute("UPDATE outbox SET held_ms = ? WHERE id = ? AND status = 'waiting'", (until_ms, notification_id))

    def free(self, context: str) -> int:
        """What is held back for a context may be looked at again; how many notifications."""
        with self._store.write() as execute:
            held = f"{OPEN} AND status = 'waiting' AND context = ?2 AND held_ms > ?1"
            count = len(execute(f"UPDATE outbox SET held_ms = ?1 WHERE {held} RETURNING id", (now_ms(), context)))
            if count:
                self.events.publish(OutboxFilled())
        return count

    def move(self, leap: Leap) -> None:
        """The clock was set: look anew until when to hold what is held back, and try again now what failed."""
        with self._store.write() as execute:
            waiting = f"{OPEN} AND status = 'waiting'"
            execute(f"UPDATE outbox SET held_ms = NULL WHERE {waiting} AND held_ms IS NOT NULL")
            execute(f"UPDATE outbox SET due_ms = ?1 WHERE {waiting} AND due_ms > ?1", (leap.until_ms + leap.by_ms,))

    def released(self, now: int) -> list[Posting]:
        """Notifications that were held back and may go now, oldest first."""
        return self._select_postings(f"{OPEN} AND status = 'waiting' AND held_ms <= ? ORDER BY id", (now,))

    def join(self, notifications: Sequence[Posting], text: str) -> None:
        """Let the first of these notifications say what all of them do, with their marks; the others are not sent any more."""
        first, rest = notifications[0].id, [one.id for one in notifications[1:]]
        marks = json.dumps(list(dict.fromkeys(mark for one in notifications for mark in one.notification.marks)))
        with self._store.write(durable=True) as execute:
            sql = (
                "UPDATE outbox SET text = ?, metadata = json_set(metadata, '$.' || ?, json(?)) WHERE id = ? AND status = 'waiting'"
            )
            execute(sql, (text, CARRIED, marks, first))
            for one in rest:
                execute(
                    "UPDATE outbox SET status = 'cancelled', error = ?, ended_ms = ? WHERE id = ? AND status = 'waiting'",
                    (f"told together with notification {first}", now_ms(), one),
                )

    # -- sending ------------------------------------------------------------------------------------

    def due(self, now: int | None = None) -> tuple[list[Posting], int | None]:
        """The notifications to be sent now, oldest first, and when the next of the others is due; None for never.

        Begins with the write lock, so that a notification is seen whose bell has rung and whose transaction is not over.
        One due later than the longest pause says that the clock was set back: it is due now.
        """
        now = now_ms() if now is None else now
        with self._store.write():
            heads = self._select_postings(f"id IN ({HEADS}) AND status = 'waiting' ORDER BY id", (now,))
            held = f"SELECT MIN(held_ms) FROM outbox WHERE {OPEN} AND status = 'waiting' AND held_ms > ?"
            released = self._store.value(held, (now,))
        limit_ms = now + int(self.patience.retry_max_s * 1000)
        ready = [head for head in heads if head.due_ms <= now or head.due_ms > limit_ms]
        later = [head.due_ms for head in heads if now < head.due_ms <= limit_ms] + ([int(released)] if released else [])
        return ready, min(later, default=None)

    def begin_sending(self, notification_id: int, via: str, *, durable: bool = True) -> bool:
        """This process begins to send it; False when it does not wait any more."""
        with self._store.write(durable=durable) as execute:
            sql = "UPDATE outbox SET status = 'sending', via = ?, process = ?, attempts = attempts + 1 "
            return bool(execute(f"{sql} WHERE id = ? AND status = 'waiting' RETURNING id", (via, self.process, notification_id)))

    def end(self, notification_id: int, status: str, error: str = "") -> None:
        """It is sent, logged or failed; nothing when it was decided otherwise."""
        with self._store.write(durable=True) as execute:
            execute(
                "UPDATE outbox SET status = ?1, error = ?2, process = '', ended_ms = ?3 "
                "WHERE id = ?4 AND (status = 'waiting' OR status = 'sending' AND process = ?5)",
                (status, error, now_ms(), notification_id, self.process),
            )

    def put_off(
        self, notification_id: int, error: str, *, is_free: bool = False, may_repeat: bool = False, pause_s: float = 0
    ) -> Posting:
        """It could not be sent: later again, longer each time, or failed after the last attempt.

        `is_free` counts no attempt, `may_repeat` says that it may have arrived, `pause_s` is the shortest pause.
        """
        with self._store.write() as execute:
            known = self.get(notification_id)
            if known.status not in (WAITING, SENDING) or (known.status == SENDING and known.process != self.process):
                return known
            attempts = max(0, known.attempts + (known.status == WAITING) - is_free)
            is_over = attempts >= self.patience.max_attempts
            now = now_ms()
            due = now + max(self.patience.delay_ms(attempts), int(min(pause_s, self.patience.retry_max_s) * 1000))
            execute(
                "UPDATE outbox SET status = ?, attempts = ?, error = ?, due_ms = ?, ended_ms = ?, may_repeat = may_repeat OR ?, "
                "process = '' WHERE id = ?",
                (FAILED if is_over else WAITING, attempts, error, due, now if is_over else None, may_repeat, notification_id),
            )
        return self.get(notification_id)

    @contextmanager
    def handing_over(self, key: str, status: str = SENT) -> Iterator[bool]:
        """One durable transaction for a channel of this database, in which a notification is delivered and becomes `status`.

        Yields whether it is to be delivered: not when that was done before, or the notification is gone.
        """
        with self._store.write(durable=True) as execute:
            rows = execute(
                "UPDATE outbox SET status = ?1, error = '', process = '', ended_ms = ?2 WHERE key = ?3 AND status = 'sending' "
                "RETURNING id",
                (status, now_ms(), key),
            )
            yield bool(rows)

    def recover(self, mine: Collection[int], is_idempotent: Callable[[str], bool]) -> list[Posting]:
        """Take back notifications whose sender is gone; they are sent again, marked unless their channel refuses repeats.

        `mine` are those that this process is busy with. Writes nothing when there are none.
        """
        left = []
        for posting in self._select_postings(f"{OPEN} AND status = 'sending' ORDER BY id"):
            if posting.id in mine or (posting.process != self.process and is_alive(posting.process)):
                continue
            may_repeat = posting.may_repeat or not is_idempotent(posting.via)
            is_over = posting.attempts >= self.patience.max_attempts
            error = f"its sender ended in the middle of attempt {posting.attempts}"
            status, now = (FAILED if is_over else WAITING), now_ms()
            with self._store.write(durable=True) as execute:
                rows = execute(
                    "UPDATE outbox SET status = ?, may_repeat = ?, error = ?, due_ms = ?, ended_ms = ?, process = '' "
                    "WHERE id = ? AND status = 'sending' AND process = ? RETURNING id",
                    (status, may_repeat, error, now, now if is_over else None, posting.id, posting.process),
                )
            if rows:
                left.append(replace(posting, status=status, may_repeat=may_repeat, error=error))
        return left

    def hasten(self, channel: str) -> int:
        """A channel is open now: what insists on it need not wait any longer; how many notifications."""
        later = f"{OPEN} AND status = 'waiting' AND channel = ?2 AND due_ms > ?1"
        if self._store.is_read_only or not self._store.value(f"SELECT 1 FROM outbox WHERE {later}", (now_ms(), channel)):
            return 0
        with self._store.write() as execute:
            return len(execute(f"UPDATE outbox SET due_ms = ?1 WHERE {later} RETURNING id", (now_ms(), channel)))

    # -- care ---------------------------------------------------------------------------------------

    def forget(self, now: int | None = None) -> int:
        """Give up what has waited for too long, delete what ended as long ago; how many. Writes nothing for none."""
        now = wall_clock.age_limit(self._store) if now is None else now
        before_ms = now - int(self.patience.keep_days * DAY_MS)
        old = f"status = 'waiting' AND created_ms < ?1 OR ended_ms {OLD} ?1"
        if not self._store.value(f"SELECT 1 FROM outbox WHERE {old}", (before_ms,)):
            return 0
        with self._store.write() as execute:
            # Put before the clock was set (a Pi without a battery begins in 1970): nobody knows how old they are.
            execute(
                "UPDATE outbox SET created_ms = ?1 WHERE status = 'waiting' AND created_ms < ?2 AND ?1 > ?2", (now, CLOCKLESS_MS)
            )
            gone = execute(f"DELETE FROM outbox WHERE ended_ms {OLD} ? RETURNING id", (before_ms,))
            error = f"not delivered within {self.patience.keep_days:g} days"
            given_up = execute(
                "UPDATE outbox SET status = 'failed', error = ?, ended_ms = ? "
                "WHERE status = 'waiting' AND created_ms < ? RETURNING id",
                (error, now, before_ms),
            )
        return len(gone) + len(given_up)

    def _select_postings(self, where: str, bindings: Sequence[Any] = ()) -> list[Posting]:
        sql = f"SELECT {COLUMNS} FROM outbox WHERE 1{visibility.own_contexts('context')} AND {where}"
        return [_posting_from_row(row) for row in self._store.rows(sql, bindings)]


def _posting_from_row(row: Row) -> Posting:
    values: dict[str, Any] = dict(zip(COLUMNS.split(", "), row, strict=True))
    metadata = json.loads(values["metadata"])
    values |= {"marks": read_marks(metadata.pop(CARRIED, ())), "metadata": metadata, "may_repeat": bool(values["may_repeat"])}
    notification = Notification(**{name: values.pop(name) for name in Notification.__struct_fields__})
    return Posting(notification=notification, **values)
