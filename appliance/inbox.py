"""From a message at a door to a finished answer: accept once, one turn per session at a time, tell everybody.

Owns the `inbox` and `turn_locks` tables. A message is acknowledged after it is committed; the same
message id of a channel is accepted once. Turns run in threads of their own and commit every step before
it is shown, so a slow or gone listener changes nothing. Knows nothing about sockets.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from appliance import log
from appliance.agent import Agent
from appliance.clock import CancelToken, is_alive, monotonic_s, now_ms
from appliance.errors import BadInput, Cancelled, Conflict, NotFound, OwlError
from appliance.records import Channel, Delta, Event, Inbound, LoopEnded, Model, Outbound, Status, Step, TurnBegun, TurnEnded
from appliance.runs import DONE, FAILED, RUNNING, STOPPED, WAITING, Loop, Runs, TurnCost
from appliance.store import Store

LOG = logging.getLogger(__name__)
MAX_TEXT = 100_000
TITLE_CHARS = 60
DRAFT_EVERY_S = 2.0
LOCK_POLL_S = 0.2
FOLLOW_S = 0.3

LATER = LoopEnded(WAITING, "waiting", "it will be answered after the restart")

Shown = Delta | Event | LoopEnded  # what a listener is told


@dataclass(frozen=True)
class Accepted:
    """A message that is safely in the database; `is_new` is False when it was there already."""

    run: str
    loop: int
    seq: int
    is_new: bool


class Subscription:
    """A mailbox of one listener: stored events all, deltas joined while it is slow, then the end."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._items: list[Shown] = []
        self._is_closed = False

    def put(self, item: Shown) -> None:
        """Never blocks."""
        with self._wake:
            last = self._items[-1] if self._items else None
            if isinstance(item, Delta) and isinstance(last, Delta):
                self._items[-1] = Delta(last.text + item.text)
            else:
                self._items.append(item)
            self._wake.notify()

    def close(self) -> None:
        """Wake the listener for the last time."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def __iter__(self) -> Iterator[Shown]:
        while True:
            with self._wake:
                while not self._items and not self._is_closed:
                    self._wake.wait()
                if not self._items:
                    return
                items, self._items = self._items, []
            for item in items:
                yield item
                if isinstance(item, LoopEnded):
                    return


class Feed:
    """Who listens to which loop."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._listeners: dict[int, list[Subscription]] = {}

    def subscribe(self, loop: int) -> Subscription:
        """Everything from now on about one loop."""
        subscription = Subscription()
        with self._guard:
            self._listeners.setdefault(loop, []).append(subscription)
        return subscription

    def leave(self, loop: int, subscription: Subscription) -> None:
        """No longer interested."""
        subscription.close()
        with self._guard:
            left = [s for s in self._listeners.get(loop, []) if s is not subscription]
            self._listeners[loop] = left
            if not left:
                del self._listeners[loop]

    def put(self, loop: int, item: Shown) -> None:
        """Tell everybody who listens."""
        with self._guard:
            listeners = list(self._listeners.get(loop, ()))
        for listener in listeners:
            listener.put(item)

    def is_heard(self, loop: int) -> bool:
        """True when somebody listens."""
        with self._guard:
            return loop in self._listeners


class Inbox:
    """Accepts messages and works through them."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        model: Model,
        agent: Agent,
        *,
        relevant: Callable[[str], str],
        status: Status,
        channel: Channel,
    ) -> None:
        self._store = store
        self._runs = runs
        self._model = model
        self._agent = agent
        self._relevant = relevant
        self._status = status
        self._channel = channel
        self._guard = threading.Lock()
        self._cancels: dict[int, CancelToken] = {}
        self._queues: dict[str, list[Loop]] = {}
        # What a busy or full database kept us from, by session: prompts not begun, and writes not made.
        self._late: dict[str, list[Loop]] = {}
        self._owed: dict[str, list[Callable[[], None]]] = {}
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="turn")
        self._is_closing = False
        self.feed = Feed()

    # -- accepting ----------------------------------------------------------------------------------

    def accept(self, inbound: Inbound, correlation: str) -> Accepted:
        """Commit a message durably and queue its answer; nothing is run yet."""
        if not inbound.text.strip():
            raise BadInput("the message is empty", hint="type a question")
        if len(inbound.text) > MAX_TEXT:
            raise BadInput(
                f"the message has {len(inbound.text)} characters, the limit is {MAX_TEXT}", hint="put it in a note and ask about it"
            )
        # Kept with the message: the notes as the model is shown them, and what the door wants back.
        shown = {k: v for k, v in (("relevant", self._relevant(inbound.text)), ("metadata", inbound.metadata)) if v}
        with self._store.write(durable=True) as execute:
            seen = execute(
                "SELECT run, loop FROM inbox WHERE channel = ? AND message_id = ?", (inbound.channel, inbound.message_id)
            )
            if seen:
                return Accepted(seen[0][0], seen[0][1], 0, is_new=False)
            self._runs.touch_session(inbound)
            run = self._run_for(inbound)
            event = self._runs.append(
                Event(
                    run=run,
                    kind="message",
                    role="user",
                    content=inbound.text,
                    input=shown or None,
                    channel=inbound.channel,
                    sender_id=inbound.sender_id,
                    correlation=correlation,
                    at_ms=inbound.at_ms,
                )
            )
            loop = self._runs.enqueue(run, event.id, correlation)
            execute(
                "INSERT INTO inbox (channel, message_id, run, loop, received_ms) VALUES (?, ?, ?, ?, ?)",
                (inbound.channel, inbound.message_id, run, loop, now_ms()),
            )
        return Accepted(run, loop, event.seq, is_new=True)

    def _run_for(self, inbound: Inbound) -> str:
        title = " ".join(inbound.text.split())
        title = title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…"
        if not inbound.thread:
            return self._runs.begin(inbound.session, inbound.kind, title=title).id
        run = self._runs.get(inbound.thread)
        if run.session != inbound.session:
            raise Conflict(f"thread {run.id} belongs to {run.session}", hint="start one of your own")
        if not run.title:
            self._runs.entitle(run.id, title)
        return run.id

    # -- working ------------------------------------------------------------------------------------

    def start(self, loop_id: int) -> None:
        """Answer a queued prompt in a thread of its own, after what its session has before it."""
        loop = self._runs.loop(loop_id)
        with self._guard:
            is_closing = self._is_closing
            if not is_closing and loop_id not in self._cancels:
                queue = self._queues.setdefault(loop.session, [])
                is_idle = not queue
                late = [one for one in self._late.pop(loop.session, ()) if one.id != loop_id]
                for one in (*late, loop):
                    self._cancels[one.id] = CancelToken()
                    queue.append(one)
                if is_idle:
                    self._pool.submit(self._work, queue[0])
        if is_closing:
            self._settle(loop.session, partial(self._runs.release, loop_id))
            self.feed.put(loop_id, LATER)

    def start_waiting(self) -> int:
        """Begin everything that was accepted and never answered; returns how many.

        Not what another living process has accepted: a command without a core answers its own question.
        """
        loops = [w for w in self._runs.waiting() if w.process == self._runs.process or not is_alive(w.process)]
        for loop in loops:
            self.start(loop.id)
        return len(loops)

    def stop(self, run: str) -> bool:
        """Stop what runs or waits in a thread; False when there is nothing."""
        with self._guard:
            tokens = dict(self._cancels)
        hit = [token for loop_id, token in tokens.items() if self._runs.loop(loop_id).run == run]
        for token in hit:
            token.set()
        return bool(hit)

    def busy(self) -> int:
        """How many prompts are being answered or wait for their turn in this process."""
        with self._guard:
            return len(self._cancels)

    def close(self, reason: str) -> None:
        """Stop every answer and wait until its transcript is whole."""
        with self._guard:
            self._is_closing = True
            tokens = list(self._cancels.values())
        LOG.info("stopping %d answers: %s", len(tokens), reason)
        for token in tokens:
            token.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for session in list(self._owed):
            self._pay(session)
        for loop_id in list(self._cancels):
            self.feed.put(loop_id, LATER)

    def _work(self, loop: Loop) -> None:
        with self._guard:
            cancel = self._cancels[loop.id]
        end = LoopEnded(FAILED, "failed", "internal error")
        with log.correlated(loop.correlation):
            try:
                self._pay(loop.session)
                end = self._locked(loop, cancel)
            except OwlError as error:
                end = LoopEnded(FAILED, error.outcome, str(error))
                LOG.error("loop %d of run %s: %s", loop.id, loop.run, error)
            except Exception:
                LOG.exception("loop %d of run %s failed", loop.id, loop.run)
            finally:
                if end.status == DONE and not self.feed.is_heard(loop.id):
                    self._deliver(loop)
                self._next(loop, is_late=end is LATER)
                self.feed.put(loop.id, end)

    def _deliver(self, loop: Loop) -> None:
        """Nobody listens to this answer: hand it to the door it belongs to."""
        try:
            if said := self._runs.said(loop.id):
                self._channel.deliver(Outbound(loop.session, said, metadata={"run": loop.run}))
        except Exception:
            LOG.exception("the answer of loop %d was not delivered", loop.id)

    def _next(self, loop: Loop, *, is_late: bool) -> None:
        """This prompt is done with, or put off: begin the session's next one."""
        with self._guard:
            del self._cancels[loop.id]
            if is_late:
                self._late.setdefault(loop.session, []).append(loop)
            queue = self._queues[loop.session]
            queue.remove(loop)
            if not queue:
                del self._queues[loop.session]
            elif not self._is_closing:
                self._pool.submit(self._work, queue[0])

    def _locked(self, loop: Loop, cancel: CancelToken) -> LoopEnded:
        try:
            try:
                is_ours = self._begin(loop, cancel)
            except OwlError as error:
                return self._unbegun(loop, error)
            return self._answer(loop, cancel) if is_ours else self._follow(loop, cancel)
        finally:
            self._settle(loop.session, partial(self._unlock, loop))

    def _begin(self, loop: Loop, cancel: CancelToken) -> bool:
        """Take the session's turn, then the prompt; False when somebody else has taken that.

        One turn per session across processes; here the queue saw to it already. A dead holder is passed
        over, and so are we ourselves: a full disk may have kept us from unlocking.
        """
        if cancel.is_set():
            raise Cancelled("stopped before it began")
        while not self._take(loop):
            if self._runs.loop(loop.id).status != WAITING:
                return False
            if cancel.wait(LOCK_POLL_S):
                raise Cancelled("stopped before it began")
        try:
            self._runs.start_loop(loop.id)
        except Conflict:
            return False
        return True

    def _unbegun(self, loop: Loop, error: OwlError) -> LoopEnded:
        """How a prompt ends that was not begun: "failed" only once that is on record, or it would be answered after all."""
        if isinstance(error, Cancelled):
            if self._is_closing:
                return LATER
            self._settle(loop.session, partial(self._runs.end_loop, loop, STOPPED, "cancelled"))
            return LoopEnded(STOPPED, "cancelled", error.message)
        LOG.error("loop %d of run %s could not begin: %s", loop.id, loop.run, error)
        end = LoopEnded(FAILED, error.outcome, str(error))
        try:
            self._finish(loop, "", end)
        except NotFound:
            pass  # its thread was deleted
        except OwlError:
            return LATER
        return end

    def _follow(self, loop: Loop, cancel: CancelToken) -> LoopEnded:
        """Show an answer that another process gives, as it is stored."""
        seen = 0
        while True:
            now = self._runs.loop(loop.id)
            for event in self._runs.events(loop.run, after=seen):
                seen = event.seq
                if event.correlation != loop.correlation or event.id == loop.prompt:
                    continue
                if event.kind == "message" and event.role == "assistant":
                    self.feed.put(loop.id, Delta(event.content))
                self.feed.put(loop.id, event)
            if now.status not in (WAITING, RUNNING):
                return LoopEnded(now.status, now.outcome)
            if now.status == RUNNING and not is_alive(now.process):
                self._runs.recover(lambda event: None)
            if cancel.wait(FOLLOW_S):
                return LATER if self._is_closing else LoopEnded(STOPPED, "cancelled", "another process goes on answering")

    def _answer(self, loop: Loop, cancel: CancelToken) -> LoopEnded:
        """Drive the agent: each step is committed, then shown, then the next one is asked for."""
        self._status.show(loop.session, "thinking")
        draft = Draft(self._runs, loop.id)
        end = LoopEnded(FAILED, "failed", "the agent ended without a verdict")
        try:
            routes = self._model.plan("")  # the pool that models.pool names
            turn: int | None = None
            for step in self._agent.loop(loop.run, routes, cancel, self._runs.person(loop.session)):
                turn, ended = self._commit(loop, step, turn, draft)
                end = ended or end
        except OwlError as error:
            end = LoopEnded(FAILED, error.outcome, str(error))
        finally:
            if end.outcome == "cancelled" and self._is_closing:
                end = replace(end, outcome="stopped", message="the owl was shut down")
            self._runs.leave(loop.id)
            self._settle(loop.session, partial(self._finish, loop, draft.text, end))
            self._status.show(loop.session, "idle")
        return end

    def _finish(self, loop: Loop, draft: str, end: LoopEnded) -> None:
        """Record how a loop ended, in one transaction; nothing when it was mended meanwhile."""
        events: list[Event] = []
        with self._store.write(durable=True):
            if self._runs.loop(loop.id).status not in (WAITING, RUNNING):
                return
            if end.status != DONE:
                why = end.outcome if not end.message else f"{end.outcome}: {end.message}"
                events = self._runs.close_open(loop, draft, why)
            self._runs.end_loop(loop, end.status, end.outcome)
            self._runs.rest_session(loop.session, "stopped" if self._is_closing else "idle")
        for event in events:
            self.feed.put(loop.id, event)

    def _settle(self, session: str, work: Callable[[], None]) -> None:
        """Write something now, or, when the database does not let us, before the session's next turn and at the end."""
        try:
            work()
        except NotFound:
            pass  # its thread was deleted
        except OwlError as error:
            LOG.error("kept for later: %s", error, extra={"session": session})
            self._owed.setdefault(session, []).append(work)

    def _pay(self, session: str) -> None:
        """Make the writes that could not be made before."""
        for work in self._owed.pop(session, []):
            self._settle(session, work)

    def _commit(self, loop: Loop, step: Step, turn: int | None, draft: "Draft") -> tuple[int | None, LoopEnded | None]:
        if isinstance(step, LoopEnded):
            return turn, step
        if isinstance(step, TurnBegun):
            return self._runs.start_turn(loop.id, step.seq, step.route), None
        if isinstance(step, TurnEnded):
            f = step.finish
            if turn is not None:
                cost = TurnCost(f.provider, f.model, f.reason, f.prompt_tokens, f.evaluated_tokens, f.output_tokens)
                self._runs.end_turn(turn, cost)
            return turn, None
        if isinstance(step, Delta):
            draft.add(step.text)
            self.feed.put(loop.id, step)
            return turn, None
        # A tool may act as soon as its record is committed: that commit must survive a power cut.
        is_message = step.kind == "message"
        with self._store.write(durable=is_message or step.kind == "tool_use"):
            stored = self._runs.append(replace(step, turn=turn))
            if is_message:  # together, or a crash in between would keep the text twice
                self._runs.keep_draft(loop.id, "")
        if is_message:
            draft.clear()
        self.feed.put(loop.id, stored)
        return turn, None

    # -- the turn lock ------------------------------------------------------------------------------

    def _take(self, loop: Loop) -> bool:
        held = "SELECT process FROM turn_locks WHERE session = ?"
        found = self._store.value(held, (loop.session,))
        if found and found != self._runs.process and is_alive(str(found)):
            return False
        with self._store.write() as execute:
            again = execute(held, (loop.session,))
            if again and again[0][0] != found:
                return False  # another process was quicker
            execute(
                "INSERT INTO turn_locks (session, process, loop, taken_ms) VALUES (?1, ?2, ?3, ?4) "
                "ON CONFLICT (session) DO UPDATE SET process = ?2, loop = ?3, taken_ms = ?4",
                (loop.session, self._runs.process, loop.id, now_ms()),
            )
        return True

    def _unlock(self, loop: Loop) -> None:
        with self._store.write() as execute:
            execute(
                "DELETE FROM turn_locks WHERE session = ? AND loop = ? AND process = ?", (loop.session, loop.id, self._runs.process)
            )


class Draft:
    """The unfinished text of an answer, kept in the database every few seconds while it streams."""

    def __init__(self, runs: Runs, loop: int) -> None:
        self._runs = runs
        self._loop = loop
        self._kept_s = monotonic_s()
        self.text = ""

    def add(self, text: str) -> None:
        """More was streamed."""
        self.text += text
        if monotonic_s() - self._kept_s >= DRAFT_EVERY_S:
            self._runs.keep_draft(self._loop, self.text)
            self._kept_s = monotonic_s()

    def clear(self) -> None:
        """The text has become an event."""
        self.text = ""
