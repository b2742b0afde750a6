"""One loop of a run, driven to its end: each step of the agent is committed, then shown, then the next one asked for.

The same for a message at a door (`inbox`) and a task of the queue (`ticks`). Owns no table; knows nothing about
queues, locks or doors. What a busy or full database keeps it from writing is owed, and made good by `pay`.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from appliance.agent import CHAT, Agent, Role
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import NotFound, OwlError
from appliance.records import Delta, Event, LoopEnded, Model, Status, TurnBegun, TurnEnded
from appliance.records import Step as AgentStep
from appliance.runs import DONE, FAILED, RUNNING, WAITING, Loop, Runs, TurnCost
from appliance.steps import Passed, Step, nobody
from appliance.store import Store

LOG = logging.getLogger(__name__)
DRAFT_EVERY_S = 2.0
MOMENTS = {"message": Step.ANSWERED, "tool_use": Step.CALL_RECORDED, "tool_result": Step.RESULT_RECORDED}

Shown = Delta | Event | LoopEnded  # what a listener is told
Ended = Callable[[Loop, LoopEnded], None]


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


class Loops:
    """Drives loops; `ended` is called inside the transaction that ends one, `passed` after each step of its life."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        model: Model,
        agent: Agent,
        *,
        status: Status,
        ended: Ended | None = None,
        passed: Passed = nobody,
    ) -> None:
        self._store = store
        self._runs = runs
        self._model = model
        self._agent = agent
        self._status = status
        self._ended = ended
        self._passed = passed
        self._owed: dict[str, list[Callable[[], None]]] = {}
        self.is_closing = False
        self.feed = Feed()

    def answer(self, loop: Loop, cancel: CancelToken, role: Role = CHAT) -> LoopEnded:
        """Drive the agent through a loop that `Runs.start_loop` has begun; how it ended. The end is recorded, or owed."""
        self._passed(Step.LOOP_STARTED)
        self._status.show(loop.session, "thinking")
        draft = Draft(self._runs, loop.id)
        end = LoopEnded(FAILED, "failed", "the agent ended without a verdict")
        try:
            routes = self._model.plan(role.pool)
            turn: int | None = None
            person = self._runs.person(loop.session)
            for step in self._agent.loop(loop.run, routes, cancel, person, session=loop.session, role=role):
                turn, ended = self._commit(loop, step, turn, draft)
                end = ended or end
        except OwlError as error:
            end = LoopEnded(FAILED, error.outcome, str(error))
        finally:
            if end.outcome == "cancelled" and self.is_closing:
                end = replace(end, outcome="stopped", message="the owl was shut down")
            self._runs.leave(loop.id)
            self.settle(loop.session, partial(self.finish, loop, draft.text, end))
            self._status.show(loop.session, "idle")
        return end

    def finish(self, loop: Loop, draft: str, end: LoopEnded) -> None:
        """Record how a loop ended, in one transaction; nothing when it was mended meanwhile."""
        events: list[Event] = []
        with self._store.write(durable=True):
            if self._runs.loop(loop.id).status not in (WAITING, RUNNING):
                return
            if end.status != DONE:
                why = end.outcome if not end.message else f"{end.outcome}: {end.message}"
                events = self._runs.close_open(loop, draft, why)
            self._runs.end_loop(loop, end.status, end.outcome)
            self._runs.rest_session(loop.session, "stopped" if self.is_closing else "idle")
            if self._ended is not None:
                self._ended(loop, end)
        self._passed(Step.LOOP_ENDED)
        for event in events:
            self.feed.put(loop.id, event)

    def settle(self, session: str, work: Callable[[], None]) -> None:
        """Write something now, or, when the database does not let us, before the session's next turn and at the end."""
        try:
            work()
        except NotFound:
            pass  # its thread was deleted
        except OwlError as error:
            LOG.error("kept for later: %s", error, extra={"session": session})
            self._owed.setdefault(session, []).append(work)

    def pay(self, session: str) -> None:
        """Make the writes that could not be made before."""
        for work in self._owed.pop(session, []):
            self.settle(session, work)

    def pay_all(self) -> None:
        """The last chance to write what is owed."""
        for session in list(self._owed):
            self.pay(session)

    def _commit(self, loop: Loop, step: AgentStep, turn: int | None, draft: "Draft") -> tuple[int | None, LoopEnded | None]:
        if isinstance(step, LoopEnded):
            return turn, step
        if isinstance(step, TurnBegun):
            begun = self._runs.start_turn(loop.id, step.seq, step.route)
            self._passed(Step.TURN_BEGUN)
            return begun, None
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
        if step.kind == "tool_result":
            self._passed(Step.CALL_DONE)
        # A tool may act as soon as its record is committed: that commit must survive a power cut.
        is_message = step.kind == "message"
        with self._store.write(durable=is_message or step.kind == "tool_use"):
            stored = self._runs.append(replace(step, turn=turn))
            if is_message:  # together, or a crash in between would keep the text twice
                self._runs.keep_draft(loop.id, "")
        if is_message:
            draft.clear()
        if step.kind in MOMENTS:
            self._passed(MOMENTS[step.kind])
        self.feed.put(loop.id, stored)
        return turn, None


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
