"""Answers shown while they are written, on a channel that declares it: one message for each, edited at a bounded rate.

Owns the `live_answers` table: which message of a channel shows an answer that is not delivered yet, so that the whole answer
replaces it, also after a kill. A row is written before the first call, without a name, and named after it: the beginning of an
answer may stand there under a name that nobody knows. What is shown may be lost or end early; the whole answer is the outbox's
business and comes all the same, as a message of its own where nothing is shown. One thread for a channel, which lives while
something is written.
"""

import logging
import threading
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.loop import MAX_WATCHED, Feed
from appliance.agent.loop_events import Shown
from appliance.channels.contract import UNCERTAIN, Connection
from appliance.clock import monotonic_s, now_ms
from appliance.errors import Busy, OwlError
from appliance.records import Delta, Event, LoopEnded, Outbound
from appliance.sessions.runs import PROPOSED, STOPPED
from appliance.store import wall_clock
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
GROWTH, SLOWEST_S = 1.5, 30.0  # each pause of an answer is so much longer than the one before: 13 edits in five minutes
KEPT_MS = 31 * 24 * 3600 * 1000
SETTLE_S = 60.0  # how long a delivery waits for a call that shows a part of it
UNFINISHED = " …"
MAX_CHARS = 8_000  # of an unfinished answer that are shown


class Pace(Struct, frozen=True):
    """How soon after its first word an answer is shown, when next, and the pause between any two calls of one channel."""

    first_s: float = 2.0
    every_s: float = 3.0
    gap_s: float = 1.0


class _Answer(Struct):
    """An answer that is being written; `shown` names the message that shows it."""

    message: Outbound
    pause_s: float
    due_s: float = 0.0
    text: str = ""
    is_new_turn: bool = False
    is_changed: bool = False
    is_ended: bool = False
    is_sending: bool = False


class LiveAnswers:
    """Answers in progress that one channel shows, edited as they grow."""

    def __init__(self, channel: str, connection: Connection, store: Store, feed: Feed, pace: Pace | None = None) -> None:
        self._channel = channel
        self._connection = connection
        self._store = store
        self._feed = feed
        self._pace = pace or Pace()
        self._state = threading.Condition()  # over what follows
        self._answers: dict[str, _Answer] = {}
        self._next_s = 0.0  # when the channel may be called again
        self._is_running = self._is_closed = False
        self._forget_old()

    # -- what is written ------------------------------------------------------------------------------

    def watch(self, loop: int, message: Outbound) -> None:
        """Show the answer of a loop from its first word on; `message` says where, under the key with which it will be sent."""
        with self._state:
            if self._is_closed:
                return
            for key in list(self._answers)[: max(0, len(self._answers) - MAX_WATCHED + 1)]:  # of loops that never ended
                del self._answers[key]
            self._answers[message.key] = _Answer(message, self._pace.every_s)
        self._feed.watch(loop, partial(self._hear, message.key))

    def _hear(self, key: str, item: Shown) -> None:
        """In the thread that drives the loop."""
        with self._state:
            answer = self._answers.get(key)
            if answer is None or answer.is_ended:
                return
            if isinstance(item, Delta):
                answer.text = item.text if answer.is_new_turn else answer.text + item.text
                answer.is_new_turn = False
                if not answer.text.strip():
                    return
                answer.is_changed = True
                answer.due_s = answer.due_s or monotonic_s() + self._pace.first_s
            elif isinstance(item, LoopEnded):
                self._end(answer, item)
            elif isinstance(item, Event) and item.kind == "message" and item.role == "assistant":
                answer.is_new_turn = True  # what is written next is another text, as in the answer that is sent
                return
            else:
                return
            if not self._is_running and answer.due_s and not self._is_closed:
                self._is_running = True
                threading.Thread(target=self._run, name=f"{self._channel}-live", daemon=True).start()
            self._state.notify_all()

    def _end(self, answer: _Answer, end: LoopEnded) -> None:
        """Nothing more is written. What no answer replaces, because it was stopped or waits for a decision, loses its mark."""
        is_left = end.status == PROPOSED or (end.status == STOPPED and end.outcome == "cancelled")
        answer.is_ended = True
        answer.is_changed = is_left and bool(answer.message.shown or answer.is_sending)
        answer.due_s = monotonic_s() if answer.is_changed else 0.0
        if not answer.is_changed and not answer.is_sending:
            self._answers.pop(answer.message.key, None)

    # -- showing ------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_more = True
        try:
            while is_more:
                is_more = self._show_next()
        finally:
            if is_more:  # a defect ended it; at the usual end another thread may have begun since
                with self._state:
                    self._is_running = False

    def _show_next(self) -> bool:
        """Wait for what is due next and show it; False when there is nothing more."""
        while True:
            with self._state:
                waiting = [one for one in self._answers.values() if one.is_changed]
                if self._is_closed or not waiting:
                    self._is_running = False  # with the lock held: who comes now begins another thread
                    return False
                answer = min(waiting, key=lambda one: one.due_s)
                pause_s = max(answer.due_s, self._next_s) - monotonic_s()
                if pause_s > 0:
                    self._state.wait(pause_s)
                    continue
                answer.is_sending, answer.is_changed = True, False
                text = answer.text[:MAX_CHARS] + ("" if answer.is_ended else UNFINISHED)
            self._show(answer, text)
            return True

    def _show(self, answer: _Answer, text: str) -> None:
        """Call the channel, outside the lock, and note the outcome."""
        message, retry_s, is_over, is_unknown = answer.message, 0.0, True, False
        try:
            if not message.shown:
                self._note(message.key, "", durable=True)
            shown = self._connection.show(replace(message, text=text))
            if shown != message.shown:
                self._note(message.key, shown)
                message = replace(message, shown=shown)
            is_over = False
        except Busy as error:
            retry_s, is_over = max(error.retry_s, self._pace.gap_s), False
        except (OwlError, OSError) as error:
            is_unknown = isinstance(error, (*UNCERTAIN, OSError))
            LOG.info("channel %s: an answer is not shown while it is written: %s", self._channel, error)
        finally:
            with self._state:
                answer.message, answer.is_sending = message, False
                now = monotonic_s()
                self._next_s = now + max(self._pace.gap_s, retry_s)
                answer.due_s, answer.pause_s = now + answer.pause_s, min(SLOWEST_S, answer.pause_s * GROWTH)
                answer.is_changed = (answer.is_changed or retry_s > 0) and not is_over
                answer.is_ended = answer.is_ended or is_over
                is_left = answer.is_ended and not answer.is_changed
                if is_left:
                    self._answers.pop(message.key, None)
                self._state.notify_all()
        if (is_left and not text.endswith(UNFINISHED)) or (is_over and not is_unknown and not message.shown):
            self._forget(message.key)  # it is whole, and nothing is to replace it; or nothing is shown

    # -- the whole answer -----------------------------------------------------------------------------

    def settle(self, key: str) -> str | None:
        """Show nothing more of an answer, which is to be sent: the name of the message that shows it.

        "" when there may be one whose name nobody knows, None when there is none.
        """
        with self._state:
            answer = self._answers.get(key)
            if answer is not None:
                answer.is_ended, answer.is_changed = True, False
                self._state.wait_for(lambda: not answer.is_sending, SETTLE_S)
                self._answers.pop(key, None)
        sql = "SELECT message FROM live_answers WHERE channel = ? AND key = ?"
        found = self._store.value(sql, (self._channel, key))
        return None if found is None else str(found)

    def forget(self, key: str) -> None:
        """The whole answer has been sent."""
        if self._store.value("SELECT 1 FROM live_answers WHERE channel = ? AND key = ?", (self._channel, key)):
            self._forget(key)

    def _note(self, key: str, shown: str, *, durable: bool = False) -> None:
        with self._store.write(durable=durable) as execute:
            execute(
                "INSERT INTO live_answers (channel, key, message, begun_ms) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (channel, key) DO UPDATE SET message = excluded.message",
                (self._channel, key, shown, now_ms()),
            )
            execute(f"DELETE FROM live_answers WHERE begun_ms {wall_clock.OLD} ?", (wall_clock.age_limit(self._store) - KEPT_MS,))

    def _forget(self, key: str) -> None:
        with self._store.write() as execute:
            execute("DELETE FROM live_answers WHERE channel = ? AND key = ?", (self._channel, key))

    def _forget_old(self) -> None:
        """Answers that nobody has sent or will."""
        before_ms = wall_clock.age_limit(self._store) - KEPT_MS
        if self._store.value(f"SELECT 1 FROM live_answers WHERE begun_ms {wall_clock.OLD} ?", (before_ms,)):
            with self._store.write() as execute:
                execute(f"DELETE FROM live_answers WHERE begun_ms {wall_clock.OLD} ?", (before_ms,))

    def close(self) -> None:
        """Show nothing more; what is shown stays for the answer to come."""
        with self._state:
            self._is_closed = True
            self._answers = {key: one for key, one in self._answers.items() if one.is_sending}
            self._state.notify_all()
