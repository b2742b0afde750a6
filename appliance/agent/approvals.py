"""What waits for somebody's word, and what follows from it: accept, reject, or say that it went wrong.

A proposal is an entry of a run's log (`actions`); the loop that made it is put down with status 202 and no thread of
ours waits. When its last proposal is decided, the result of the call that made it becomes an event, and the loop is
taken up again where it stopped, or has ended; a task's waits for the next worker. Before anything is accepted, vetoes
are heard; then what is stored may be changed; what was decided is told after it is safe. Knows nothing about models,
and answers no prompt itself.
"""

import threading
from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.loop_events import BackgroundWorkEnded, LoopPaused, LoopProgress, LoopReady, RunFreed, TaskDecided, TaskReady
from appliance.agent.tool_results import as_text
from appliance.agent.tool_rules import ToolRules
from appliance.errors import BadInput, Conflict, NotFound
from appliance.knowledge.action_log import ShownChange, Waiting
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.records import Event, LoopEnded, Outcome, ToolCall
from appliance.runtime import hook_points
from appliance.runtime.events import Events
from appliance.runtime.hooks import Hooks
from appliance.sessions.runs import DONE, PROPOSED, RUNNING, STOPPED, WAITING, Loop, Runs
from appliance.store.database import Store
from appliance.text.references import parse_ref

Decision = Literal["accept", "reject", "error"]
VETO, CONTENT = hook_points.VETO, hook_points.CONTENT  # a chain over a Ballot; a filter over the text that is stored
ACCEPTED, REJECTED, WAITS = hook_points.ACCEPTED, hook_points.REJECTED, "proposal"  # events over a Waiting
APPROVED = "approved_files"  # the attribute with the hashes of the files that a command named when it was proposed
MAX_OUTPUT = 400_000
STATES: dict[str, Decision] = {"resolved": "accept", "cancelled": "reject", "failed": "error"}  # written to what waits
WORDS: dict[Decision, str] = {"accept": "accepted", "reject": "rejected", "error": "failed"}


class Ballot(Struct):
    """What is about to be accepted; a handler that speaks against it sets `veto` and returns False."""

    waiting: Waiting
    output: str
    veto: Outcome | None = None


class Resolved(Struct, frozen=True):
    """What a decision came to: the run's status now, 102 while its loop goes on, and what still waits in it.

    100 says that the loop is a task's: a worker goes on with it.
    """

    run: str
    ref: str
    outcome: Outcome
    status: int
    loop: int = 0
    waits: tuple[str, ...] = ()


class Paused(Struct, frozen=True):
    """A loop that waits: the call that made the proposals, as its event says, and the calls after it."""

    loop: Loop
    event: Event
    later: tuple[Event, ...] = ()

    @property
    def refs(self) -> tuple[str, ...]:
        """The proposals of the call."""
        return tuple((self.event.input or {}).get("refs", ()))


class BackgroundWork(Protocol):
    """What runs in the background once it was accepted, and holds up the loop that proposed it: calls, and commands."""

    def is_running(self, run: str, ref: str) -> bool:
        """Whether what was accepted under this reference still runs, and the loop waits for it."""
        ...

    def result(self, run: str, ref: str) -> Outcome | None:
        """The result of a decided call; None for another kind of entry, or one that has not ended."""
        ...

    def abandon(self, run: str) -> int:
        """Stop what does not outlive its run's being stopped; how many."""
        ...


class Approvals:
    """Lists what waits, and decides. Publishes what follows for loops and tasks; hears of work that ended."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        verbs: Verbs,
        hooks: Hooks,
        events: Events,
        rules: ToolRules,
        background: Sequence[BackgroundWork] = (),
    ) -> None:
        self._store = store
        self._runs = runs
        self._verbs = verbs
        self._hooks = hooks
        self._events = events
        self._rules = rules
        self._background = tuple(background)
        self._deciding = threading.RLock()
        events.subscribe(BackgroundWorkEnded, lambda ended: self.go_on(ended.run))
        events.subscribe(LoopPaused, lambda paused: self.go_on(paused.run))

    def waiting(self, run: str = "", limit: int = 100) -> list[Waiting]:
        """The requests that wait for a decision, oldest first: of one run, or of all."""
        return self._verbs.waiting(run, limit)

    def find(self, ref: str, run: str = "") -> Waiting:
        """What waits under a reference, or under the only one that ends so; of which run may be left out where it is plain."""
        ref = parse_ref(ref)
        found = [one for one in self.waiting(run, 1000) if one.ref == ref or one.ref.endswith(f"/{ref}")]
        if not found and run and self._runs.is_shown(run):
            self._verbs.actions.open(run, ref)
        if not found:
            raise NotFound(f"nothing to approve under {ref}", hint="owlbox entry waiting lists what does")
        if len(found) > 1:
            raise BadInput(f"{ref} waits in {len(found)} threads", hint="name the thread")
        return found[0]

    def show(self, ref: str, run: str = "") -> ShownChange:
        """Everything about one waiting request, named as in `find`."""
        return self._verbs.actions.show(self.find(ref, run))

    def resolve(self, ref: str, run: str, decision: Decision, output: str = "") -> Resolved:
        """Decide about a proposal; its loop goes on, or ends, when it was the last of its call. Once decided it stays so."""
        if len(output) > MAX_OUTPUT:
            raise BadInput(f"the output has {len(output)} characters, more than {MAX_OUTPUT}", hint="give its end")
        waiting = self.find(ref, run)
        with self._deciding:  # a loop that is put down only now goes on when what follows has begun
            outcome = self._decide_waiting(self._actor_of(waiting.run), waiting, decision, output)
            paused = self._find_paused(waiting.run, waiting.ref)  # afterwards: one that is put down only now finds it decided
            if decision == "reject" or not outcome.is_error:
                self._hooks.tell(REJECTED if decision == "reject" else ACCEPTED, waiting, outcome)
            if paused is None:
                return Resolved(waiting.run, waiting.ref, outcome, self._runs.get(waiting.run).status)
            if self._list_open(paused):
                undecided = self._list_undecided(paused)
                status = PROPOSED if undecided else RUNNING  # what was accepted runs, and the loop goes on after it
                return Resolved(waiting.run, waiting.ref, outcome, status, paused.loop.id, undecided)
            return Resolved(waiting.run, waiting.ref, outcome, self._settle_loop(paused), paused.loop.id)

    def as_outcome(self, ref: str, run: str, decision: Decision, output: str = "") -> Outcome:
        """A decision as the outcome of a verb: an error only for what was to be done and could not be."""
        resolved = self.resolve(ref, run, decision, output)
        data = {"paths": [resolved.ref], "warnings": [], "status": resolved.status}
        if decision == "accept" and resolved.outcome.is_error:
            return replace(resolved.outcome, data=data)
        return Outcome(200, "ok", f"{resolved.ref}: {WORDS[decision]}", data=data)

    def recover(self) -> int:
        """Make loops wait their turn whose last decision was recorded by a process that did not live to go on; how many."""
        count = 0
        for run in self._runs.paused_runs():
            paused = self._find_paused(run, "")
            if paused is not None and not self._list_open(paused):
                self._settle_loop(paused, is_begun=False)
                count += 1
        return count

    def go_on(self, run: str) -> bool:
        """Go on with a run's loop if all it waits for was decided before it was put down; False when it really waits."""
        with self._deciding:
            paused = self._find_paused(run, "")
            if paused is None or self._list_open(paused):
                return False
            self._settle_loop(paused)
        return True

    def accept_now(self, run: str, refs: Sequence[str]) -> Outcome:
        """Accept what a run that needs no approval has just proposed, by the same steps."""
        texts, worst, actor = [], None, self._actor_of(run)
        for ref in refs:
            waiting = self.find(ref, run)
            try:
                outcome = self._decide_waiting(actor, waiting, "accept", "")
            except Conflict as error:  # a person was quicker
                outcome = Outcome(error.status, error.outcome, error.message, error.hint)
            if not outcome.is_error:
                self._hooks.tell(ACCEPTED, waiting, outcome)
            texts.append(outcome.message)
            worst = outcome if outcome.is_error else worst
        if worst is not None:
            return Outcome(worst.status, worst.outcome, "\n".join(texts), worst.hint)
        return Outcome(200, "ok", "\n".join(texts))

    def abandon(self, run: str) -> bool:
        """Stop the commands that a run waits for, and drop its loop that waits; False when there is neither."""
        count = sum(work.abandon(run) for work in self._background)
        return self.drop(run) or count > 0

    def drop(self, run: str, why: str = "cancelled") -> bool:
        """A run's loop waits no longer: what it proposed is void, and it has ended as stopped. False when none waits."""
        paused = self._find_paused(run, "")
        if paused is None:
            return False
        for ref in self._list_open(paused):
            try:
                self._verbs.refuse(self._actor_of(run), ref, Outcome(499, why, f"not decided: {why}"))
            except Conflict:
                continue  # decided in this very moment
        with self._store.write(run=run, durable=True):
            if self._runs.loop(paused.loop.id).status != PROPOSED:
                return False  # and gone on with
            calls = (paused.event, *paused.later)
            events = [self._append_result(paused, call, Outcome(499, why, f"{call.tool} was not run: {why}")) for call in calls]
            events += self._runs.close_open(paused.loop, "", why)
            self._runs.end_paused(paused.loop, STOPPED, why)
            if self._runs.is_of_task(paused.loop):
                self._is_task_released(run, why)
        for event in events:
            self._events.publish(LoopProgress(paused.loop.id, event))
        self._events.publish(LoopProgress(paused.loop.id, LoopEnded(STOPPED, why)))
        self._events.publish(RunFreed(run))
        return True

    def loop_of(self, ref: str, run: str = "") -> int:
        """The loop that a proposal holds up; 0 for none."""
        waiting = self.find(ref, run)
        paused = self._find_paused(waiting.run, waiting.ref)
        return 0 if paused is None else paused.loop.id

    # -- deciding -----------------------------------------------------------------------------------

    def _decide_waiting(self, actor: Actor, waiting: Waiting, decision: Decision, output: str) -> Outcome:
        if decision == "reject":
            done = self._verbs.resolve(actor, waiting.ref, False, output or None)
            if done.is_error:
                raise Conflict(done.message, hint=done.hint)  # somebody else was quicker
            return Outcome(403, "rejected", f"{waiting.subject}: rejected" + (f": {output}" if output else ""))
        if decision == "error":
            failed = Outcome(500, "failed", output or f"{waiting.subject}: it went wrong")
            self._verbs.refuse(actor, waiting.ref, failed)
            return failed
        ballot = Ballot(waiting, output)
        veto = self._find_veto(ballot)
        if veto is None:
            text = self._hooks.filter(CONTENT, ballot.output, waiting)
            is_file = self._is_file(waiting)
            done = self._verbs.resolve(actor, waiting.ref, True, None if is_file and not text else text)
            if not done.is_error:
                return Outcome(200, "ok", text if text and not is_file else done.message)
            if done.data is not None:
                return done  # the verb has noted why it could not be done
            veto = done
        self._verbs.refuse(actor, waiting.ref, veto)  # a conflict when somebody else was quicker
        return veto

    def _find_veto(self, ballot: Ballot) -> Outcome | None:
        """What speaks against it: first the policy as it is now, then whoever listens, until the first veto."""
        policy = self._rules.policy_of(self._runs.get(ballot.waiting.run).session)
        verdict = policy.check(ballot.waiting.action)
        if not verdict.allowed:
            return Outcome(403, "permission", f"{ballot.waiting.action} is not allowed here ({verdict.rule})")
        self._hooks.handle(VETO, ballot)
        return ballot.veto

    def _is_file(self, waiting: Waiting) -> bool:
        return self._verbs.actions.proposal(self._verbs.actions.open(waiting.run, waiting.ref)) is not None

    # -- what follows -------------------------------------------------------------------------------

    def _find_paused(self, run: str, ref: str) -> Paused | None:
        """The loop that waits in a run, if it waits for this."""
        loop = self._runs.paused_loop(run)
        if loop is None:
            return None
        events = self._runs.record.of_turn(run, self._runs.last_turn(loop.id), self._runs.record.seq(loop.prompt))
        at = next((i for i in range(len(events) - 1, -1, -1) if events[i].kind == "proposal"), -1)
        if at < 0 or (ref and ref not in (events[at].input or {}).get("refs", ())):
            return None
        event = events[at]
        done = {e.call_id for e in events if e.kind == "tool_result"}
        calls = [e for e in events if e.kind == "tool_use" and e.call_id not in done]
        return Paused(loop, event, tuple(c for c in calls if c.call_id != event.call_id))

    def _list_open(self, paused: Paused) -> tuple[str, ...]:
        """What the loop still waits for: decisions, and commands that were accepted and run."""
        undecided = self._list_undecided(paused)
        return tuple(ref for ref in paused.refs if ref in undecided or self._is_running(paused.loop.run, ref))

    def _is_running(self, run: str, ref: str) -> bool:
        return any(work.is_running(run, ref) for work in self._background)

    def _is_task_released(self, run: str, failure: str) -> bool:
        """Whether a task waits for this run; it may begin again now, or has failed. Call inside a transaction."""
        decided = TaskDecided(run, failure)
        self._events.publish(decided)
        return decided.is_found

    def _list_undecided(self, paused: Paused) -> tuple[str, ...]:
        known = self._verbs.actions.open_paths(paused.loop.run)
        return tuple(ref for ref in paused.refs if ref in known)

    def _settle_loop(self, paused: Paused, *, is_begun: bool = True) -> int:
        """Everything is decided: the call has its result, and so have those after it that are not to be run.

        The loop is gone on with, or, after a rejection, it has ended: the run's status from now on.
        """
        result, loop = self._combine_decisions(paused), paused.loop
        is_over, is_of_task = (result.status, result.outcome) == (403, "rejected"), self._runs.is_of_task(loop)
        end = LoopEnded(DONE, "rejected", result.message) if is_over else None
        with self._store.write(run=loop.run, durable=True):
            if (now := self._runs.loop(loop.id).status) != PROPOSED:
                if now == WAITING and is_begun and not is_of_task:
                    self._events.publish(LoopReady(loop.id))  # whoever was quicker may have left that to us
                return now
            written = [self._append_result(paused, paused.event, result)]
            if result.is_error:
                why = "a call before it was rejected" if is_over else "a call before it failed"
                for call in paused.later:
                    written.append(self._append_result(paused, call, Outcome(424, "aborted", f"{call.tool} was not run: {why}")))
            if is_of_task and not self._is_task_released(loop.run, f"rejected: {result.message}" if is_over else ""):
                end = end or LoopEnded(STOPPED, "cancelled", "its task does not wait for this any more")
            if end is None:
                self._runs.take_up(loop.id, is_ours=not is_of_task)
            else:
                self._runs.end_paused(loop, end.status, end.outcome)
        for event in written:
            self._events.publish(LoopProgress(loop.id, event))
        if end is not None:
            self._events.publish(LoopProgress(loop.id, end))
            self._events.publish(RunFreed(loop.run))
            return end.status
        if is_of_task:
            self._events.publish(TaskReady())
            return WAITING
        if is_begun:
            self._events.publish(LoopReady(loop.id))
        return RUNNING

    def _combine_decisions(self, paused: Paused) -> Outcome:
        """What the decisions about a call's proposals come to: a rejection before a failure before success."""
        texts, found, origin, source = [], Outcome(200, "ok", ""), "", ""
        for ref in paused.refs:
            known = self._verbs.actions.result(paused.loop.run, ref)
            if known is None:
                continue
            view, body = known
            if (done := self._background_result(paused.loop.run, ref)) is not None:
                texts.append(done.message)
                origin, source = done.origin or origin, done.source or source
                if done.is_error and found.outcome != "rejected":
                    found = Outcome(done.status, done.outcome, "", "go on without it")
                continue
            label = ""
            is_rejected = (view.status, view.outcome) == (403, "rejected")
            if view.state != "resolved":
                label = "rejected" if is_rejected else view.outcome.partition(":")[0] or "failed"
            if label and (is_rejected or found.outcome != "rejected"):
                found = Outcome(view.status, label, "", "ask what should be different" if is_rejected else "go on without it")
            texts.append(": ".join(word for word in (ref, label, body) if word) if label else body)
        message = "\n".join(text for text in texts if text) or ("done" if not found.is_error else found.outcome)
        return Outcome(found.status, found.outcome, message, found.hint, origin=origin, source=source)

    def _background_result(self, run: str, ref: str) -> Outcome | None:
        """The result of a call that ran in the background."""
        return next((done for work in self._background if (done := work.result(run, ref)) is not None), None)

    def _append_result(self, paused: Paused, call: Event, outcome: Outcome) -> Event:
        """The result of a call, in its log entry too, if it has one that is open."""
        run = paused.loop.run
        if path := self._verbs.actions.recorded(run, ToolCall(call.call_id, call.tool, call.input or {})):
            self._verbs.actions.finish(replace(self._actor_of(run), log=path), outcome)
        return self._runs.append(
            Event(
                paused.loop.run,
                "tool_result",
                "tool",
                as_text(outcome),
                turn=paused.event.turn,
                tool=call.tool,
                input=outcome.beside,
                call_id=call.call_id,
                correlation=paused.loop.correlation,
                status=outcome.status,
                outcome=outcome.outcome,
            )
        )

    def _actor_of(self, run: str) -> Actor:
        return Actor("client", run, *self._runs.moment(run))
