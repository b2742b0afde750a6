"""One loop of a run, driven to its end: each step of the agent is committed, then shown, then the next one asked for.

The same for a message at a door (`channels.inbox`) and a task of the queue (`work.tick`). Owns no table; knows nothing about
queues, locks or doors. What a busy or full database keeps it from writing is owed, and made good by `pay`.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from msgspec.structs import replace

from appliance.agent.agent import Agent, Work
from appliance.agent.loop_events import LoopProgress, LoopStored, Shown, TurnStarting
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import NotFound, OwlError, StoreError, Unavailable
from appliance.policy import modes
from appliance.prompt.roles import CHAT, Role, Roles
from appliance.records import (
    CallPreparing,
    Delta,
    Event,
    Finish,
    LoopEnded,
    Message,
    Outcome,
    Status,
    Terms,
    Thinking,
    ToolCall,
    TurnBegun,
    TurnEnded,
)
from appliance.records import Step as AgentStep
from appliance.runtime import hook_points
from appliance.runtime.crash_points import CrashPoint, Passed, nobody
from appliance.runtime.events import Events
from appliance.runtime.subscriptions import Box
from appliance.sessions.events import as_messages
from appliance.sessions.runs import DONE, FAILED, PROPOSED, RUNNING, WAITING, Loop, Runs
from appliance.store import visibility
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
DRAFT_EVERY_S = 2.0
RECORDING = 4  # threads, made at need: so many turns at a time are recorded while their models evaluate
MAX_WATCHED = 2000  # loops that are shown elsewhere at a time: one that waits for a decision may never end
MOMENTS = {"message": CrashPoint.ANSWERED, "tool_use": CrashPoint.CALL_RECORDED, "tool_result": CrashPoint.RESULT_RECORDED}


class Subscription(Box[Shown]):
    """A mailbox of one listener: stored events all, deltas and thoughts joined while it is slow, then the end.

    A loop that waits for a decision (202) says so and has not ended: a listener who stays hears how it goes on.
    """

    def __iter__(self) -> Iterator[Shown]:
        for item in super().__iter__():
            yield item
            if isinstance(item, LoopEnded) and item.status != PROPOSED:
                return

    def _add_item(self, item: Shown) -> None:
        last = self._items[-1] if self._items else None
        if isinstance(item, Delta) and isinstance(last, Delta):
            self._items[-1] = Delta(last.text + item.text)
        elif isinstance(item, Thinking) and isinstance(last, Thinking):
            self._items[-1] = Thinking(last.text + item.text)
        else:
            self._items.append(item)


class Feed:
    """Delivers each loop's events to its listeners and watchers."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._listeners: dict[int, list[Subscription]] = {}
        self._watchers: dict[int, Callable[[Shown], None]] = {}

    def watch(self, loop: int, watcher: Callable[[Shown], None]) -> None:
        """Everything about one loop until it ends, for one who shows it elsewhere and is no listener: the answer is sent as well.

        The watcher is called by whoever drives the loop and must not wait. The oldest of too many hears nothing more.
        """
        with self._guard:
            while len(self._watchers) >= MAX_WATCHED:
                del self._watchers[next(iter(self._watchers))]
            self._watchers[loop] = watcher

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
            watcher = self._watchers.get(loop)
            if watcher is not None and isinstance(item, LoopEnded) and item.status != PROPOSED:
                del self._watchers[loop]
        for listener in listeners:
            listener.put(item)
        if watcher is not None:
            watcher(item)

    def is_heard(self, loop: int) -> bool:
        """True when somebody listens."""
        with self._guard:
            return loop in self._listeners


class Loops:
    """Drives loops. Publishes `TurnStarting`, and `LoopStored` inside the transaction that ends one."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        agent: Agent,
        *,
        status: Status,
        events: Events | None = None,
        roles: Roles | None = None,
        passed: Passed = nobody,
    ) -> None:
        """Without `roles` every run is a chat's; `passed` is called after each step of a loop's life."""
        self._store = store
        self._runs = runs
        self._agent = agent
        self._status = status
        self._roles = roles
        self.events = events or Events()
        self._passed = passed
        self._owed: dict[str, list[Callable[[], None]]] = {}
        self._guard = threading.Lock()
        self._injected: dict[str, list[int]] = {}
        self._recording = ThreadPoolExecutor(RECORDING, thread_name_prefix="turn-begun")
        self.is_closing = False
        self.feed = Feed()
        self.events.subscribe(LoopProgress, lambda progress: self.feed.put(progress.loop, progress.item))

    def answer(self, loop: Loop, cancel: CancelToken, role: Role | None = None) -> LoopEnded:
        """Drive the agent through a loop that `Runs.start_loop` has begun; how it ended. The end is recorded, or owed.

        With status 202 it has not ended: it waits for a decision, and whoever hears of that starts it again. Without a
        role it is that of its run.
        """
        with visibility.showing(self._runs.context_of(loop.run)):
            return self._run_loop(loop, cancel, role)

    def _run_loop(self, loop: Loop, cancel: CancelToken, role: Role | None) -> LoopEnded:
        self._passed(CrashPoint.LOOP_STARTED)
        is_child = role is not None and role.is_child
        if not is_child:
            self._status.show(loop.session, "thinking")
        self._tell_begun(loop)
        draft = TurnDraft(self._runs, loop.id)
        end, turn = LoopEnded(FAILED, "failed", "the agent ended without a verdict"), TurnRow(None)
        try:
            role = role or (CHAT if self._roles is None else self._roles.role_of(self._runs.get(loop.run).role))
            work = self._build_work(loop, role)
            routes = self._agent.plan(work.settings.model or role.pool)
            turn = TurnRow(self._runs.last_turn(loop.id))
            person = self._runs.person(loop.session)
            for step in self._agent.loop(loop.run, routes, cancel, person, session=loop.session, role=role, work=work):
                turn, ended = self._commit_step(loop, step, turn, draft)
                end = ended or end
        except OwlError as error:
            end = LoopEnded(FAILED, error.outcome, str(error))
        finally:
            turn.settle()
            if end.outcome == "cancelled" and self.is_closing:
                end = replace(end, outcome="stopped", message="the owl was shut down")
            self._runs.leave(loop.id)
            self.pay(loop.session)  # what was said before how it ended
            self.settle(loop.session, partial(self.finish, loop, draft.text, end))
            if not is_child:
                self._status.show(loop.session, "idle")
            self._tell_over(loop, end)
        return end

    def _tell_begun(self, loop: Loop) -> None:
        """Tell plugins that a loop begins."""
        self._agent.hooks.tell(hook_points.LOOP_STARTED, loop)
        self._agent.hooks.tell(hook_points.ASK_STARTED if loop.mode == "ask" else hook_points.ACT_STARTED, loop.run)

    def _tell_over(self, loop: Loop, end: LoopEnded) -> None:
        """Tell plugins that it has ended, or waits."""
        self._agent.hooks.tell(hook_points.ASK_COMPLETED if loop.mode == "ask" else hook_points.ACT_COMPLETED, loop.run, end)
        self._agent.hooks.tell(hook_points.LOOP_COMPLETED, loop, end)

    def _build_work(self, loop: Loop, role: Role) -> Work:
        """Where a loop stands, and on what terms: they are fixed with its mode and what its run is set to now."""
        run = self._runs.get(loop.run)
        run = replace(run, settings=self._agent.hooks.filter(hook_points.RUN_CONFIG, run.settings, run))
        is_attended = not (role.is_background or role.is_child)
        terms = modes.terms(loop.mode, run.settings, is_attended=is_attended, role=role.name)
        # A run that is shown its entries has its own tools, whatever a preset keeps from the assistant of a chat.
        tools = role.unkept if run.settings.layout == "entries" else role.tools
        terms = replace(terms, tools=tools, sandbox=role.sandbox, is_child=role.is_child)
        turn, turns = self._runs.moment(loop.run)[1], self._runs.turns_of(loop.id)
        return Work(terms, run.settings, loop.seq, turn, turns, LoopTurns(self, loop.run, terms), effects=self._effects_of(loop))

    def _effects_of(self, loop: Loop) -> tuple[tuple[ToolCall, Outcome], ...]:
        """What the calls came to of the turn in which a loop that is gone on with was put down."""
        if (turn := self._runs.last_turn(loop.id)) is None:
            return ()
        events = self._runs.record.of_turn(loop.run, turn, self._runs.record.seq(loop.prompt))
        calls = {event.call_id: event for event in events if event.kind == "tool_use"}
        return tuple(
            (
                ToolCall(event.call_id, event.tool, calls[event.call_id].input or {}),
                Outcome(event.status, event.outcome, event.content),
            )
            for event in events
            if event.kind == "tool_result" and event.call_id in calls
        )

    def is_read_only(self, tool: str) -> bool:
        """Whether a tool changes nothing."""
        return self._agent.is_read_only(tool)

    def begin_close(self) -> None:
        """Record every stop from now on as caused by the end of this process."""
        self.is_closing = True

    def inject(self, run: str, loop_id: int) -> None:
        """A prompt of a run is shown to the model at its next call, if one comes before its own turn."""
        with self._guard:
            self._injected.setdefault(run, []).append(loop_id)

    def take_injected(self, run: str) -> list[Message]:
        """What was added to a run's answer since the last call: prompts that are answered with it."""
        with self._guard:
            loops = self._injected.pop(run, [])
        found = []
        for loop_id in loops:
            prompt = self._runs.absorb(loop_id)
            event = None if prompt is None else self._runs.record.get(prompt)
            if event is not None:
                found += as_messages([event])
                self.feed.put(loop_id, LoopEnded(DONE, "injected", "it is answered with the one before"))
        return found

    def finish(self, loop: Loop, draft: str, end: LoopEnded) -> None:
        """Record how a loop ended, in one transaction; nothing when it was mended meanwhile."""
        events: list[Event] = []
        draft = draft and self._agent.hooks.filter(hook_points.RESPONSE, draft, loop.run)  # what was said until it was stopped
        with self._store.write(durable=True):
            if self._runs.loop(loop.id).status not in (WAITING, RUNNING):
                return
            if end.status == PROPOSED:
                self._runs.pause_loop(loop)
            elif end.status != DONE:
                why = end.outcome if not end.message else f"{end.outcome}: {end.message}"
                events = self._runs.close_open(loop, draft, why)
            if end.status != PROPOSED:
                self._runs.end_loop(loop, end.status, end.outcome)
            if self._runs.get(loop.run).kind != "child":  # in its session somebody else works
                self._runs.rest_session(loop.session, "stopped" if self.is_closing else "active")
            self.events.publish(LoopStored(loop, end))
        self._passed(CrashPoint.LOOP_ENDED)
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
        """Make every write that could not be made before."""
        for session in list(self._owed):
            self.pay(session)

    def close(self) -> None:
        """No loop of a person is driven any more: the last chance to write what is owed."""
        self._recording.shutdown()
        self.pay_all()

    def _commit_step(self, loop: Loop, step: AgentStep, turn: "TurnRow", draft: "TurnDraft") -> "tuple[TurnRow, LoopEnded | None]":
        if isinstance(step, LoopEnded):
            return turn, step
        if isinstance(step, TurnBegun):
            turn.id()  # of another route, which did not answer: the row is the same
            return self._begin_turn(loop, step), None
        if isinstance(step, TurnEnded):
            if (turn_id := turn.id()) is not None:
                self.settle(loop.session, partial(self._end_turn, loop, turn_id, step.finish))
            return turn, None
        if isinstance(step, Delta | Thinking | CallPreparing):
            turn.id()
            if isinstance(step, Delta):
                draft.add(step.text)
            self.feed.put(loop.id, step)
            return turn, None
        if step.kind == "tool_result":
            self._passed(CrashPoint.CALL_DONE)
        # A tool may act as soon as its record is committed: that commit must survive a power cut.
        is_message = step.kind == "message"
        stored = replace(step, turn=turn.id())
        try:
            with self._store.write(durable=is_message or step.kind == "tool_use"):
                stored = self._runs.append(stored)
                if is_message:  # together, or a crash in between would keep the text twice
                    self._runs.keep_draft(loop.id, "")
        except (StoreError, Unavailable) as error:
            if not is_message:
                raise
            # The person has the answer all the same (S-014); nothing is done on the strength of it.
            LOG.error("an answer is shown and kept for later: %s", error, extra={"session": loop.session})
            self._owed.setdefault(loop.session, []).append(partial(self._record_event, stored))
        if is_message:
            draft.clear()
        if step.kind in MOMENTS:
            self._passed(MOMENTS[step.kind])
        self.feed.put(loop.id, stored)
        self._agent.hooks.tell(hook_points.STEP_COMPLETED, stored)
        if (about := stored.tool or (stored.content if stored.kind == "status_change" else "")) and stored.kind != "tool_result":
            self._agent.hooks.tell(hook_points.RUN_PROGRESS, loop.run, about)
        return turn, None

    def _begin_turn(self, loop: Loop, step: TurnBegun) -> "TurnRow":
        """Record that the model is about to be called; where that takes a sync, while it evaluates, and before its first word."""

        def record() -> int:
            begun = self._runs.start_turn(loop.id, step.seq, step.route)
            self._passed(CrashPoint.TURN_BEGUN)
            return begun

        # Not a thread of its own: on a busy machine its start is waited for as long as a sync.
        turn = TurnRow(self._recording.submit(record) if self._runs.is_unsynced(loop.id) else record())
        self._agent.hooks.tell(hook_points.RUN_PROGRESS, loop.run, f"turn {step.seq}")
        return turn

    def _end_turn(self, loop: Loop, turn: int, finish: Finish) -> None:
        """Record what a call of the model took, and that another model answers than before."""
        self._runs.end_turn(turn, finish)
        if changed := self._runs.note_model(turn, loop.correlation):
            self.feed.put(loop.id, changed)

    def _record_event(self, event: Event) -> None:
        """Record what was shown already."""
        self._runs.append(event, durable=True)


class TurnRow:
    """The row of a turn: its id, or what is being written by another thread."""

    def __init__(self, row: "int | Future[int] | None") -> None:
        """None is that of a loop which has had no turn yet."""
        self._row = row

    def id(self) -> int | None:
        """Its id, once it is written; what kept it from being written is raised."""
        return self._row.result() if isinstance(self._row, Future) else self._row

    def settle(self) -> None:
        """Wait until it is written, or cannot be."""
        if isinstance(self._row, Future):
            wait([self._row])


class LoopTurns:
    """Drains the inbox and checks limits between two model calls of one loop."""

    def __init__(self, loops: Loops, run: str, terms: Terms) -> None:
        self._loops = loops
        self._run = run
        self._terms = terms

    def begin_turn(self) -> None:
        """Publish that the model is about to be asked."""
        self._loops.events.publish(TurnStarting(self._run, self._terms))

    def arrived(self) -> list[Message]:
        """The prompts that were handed in while this one is answered, and are answered with it."""
        return self._loops.take_injected(self._run)


class TurnDraft:
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
