"""Every command of an answer: all are recorded first, then they are run in order, and each gets its result.

Owns the order of things and nothing else: recording before running, a failure that aborts the rest, an end after
which nothing is run, a change that waits for somebody's decision. Read-only commands of one answer run side by side,
and so do those next to each other that hand work to other runs.
It stores no event: whoever iterates does, before asking for the next. Knows nothing about models or prompts.
"""

import contextvars
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any, Protocol

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from appliance.agent.tool_results import as_text
from appliance.agent.toolbox import Caller
from appliance.clock import monotonic_s
from appliance.errors import NotFound
from appliance.knowledge.action_log import subject_of
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.policy.modes import FREE
from appliance.records import Cancel, Event, Outcome, Terms, ToolCall, ToolPort, ToolSpec
from appliance.runtime import hook_points
from appliance.runtime.hooks import Hooks
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.text import answer_parser

RECORDING = hook_points.RECORDING  # a filter over Recorded: it may change the call, or refuse it
PROPOSED = "proposed"
ABORTED = 424


class Recorded(Struct, frozen=True):
    """A command before it is run: `call` as the model made it, `meant` what will be run, `refusal` why nothing will."""

    call: ToolCall
    meant: ToolCall
    refusal: Outcome | None = None
    log: str = ""


class DispatchedCommand(Struct, frozen=True):
    """A command with its result."""

    call: ToolCall
    meant: ToolCall
    outcome: Outcome
    is_terminal: bool = False

    @property
    def text(self) -> str:
        """The result as a model reads it."""
        return as_text(self.outcome)


class Dispatched(Struct, frozen=True):
    """The outcome of an answer's commands; `waits` names what has to be decided before the rest is run."""

    done: tuple[DispatchedCommand, ...] = ()
    waits: tuple[str, ...] = ()


class Recorder(Protocol):
    """Keeps a log entry for each command, from before it is run."""

    def begin(self, run: str, calls: Sequence[ToolCall]) -> list[str]: ...
    def recorded(self, run: str, call: ToolCall) -> str: ...
    def finish(self, run: str, path: str, outcome: Outcome) -> None: ...
    def void(self, run: str, why: str) -> None: ...
    def trouble(self, run: str, kind: str, outcome: Outcome, turn: int = 0) -> None: ...


Approve = Callable[[str, Sequence[str]], Outcome]  # run, what waits: everything is accepted at once


class LoopEffects(Struct):
    """What was done in one loop, by call: the same effect with the same arguments is done once, and its result given again."""

    done: dict[str, Outcome] = struct_field(default_factory=dict)
    repeats: int = 0

    def earlier(self, call: ToolCall) -> Outcome | None:
        """The result that an effect had already, which counts as one repeat more."""
        found = self.done.get(_call_key(call))
        self.repeats += found is not None
        return found

    def keep(self, call: ToolCall, outcome: Outcome) -> None:
        """An effect was tried; only one that came about is kept."""
        if not outcome.is_error and outcome.status != 202:
            self.done[_call_key(call)] = outcome


class CommandScene(Struct, frozen=True):
    """In which run commands are run, and on what terms."""

    run: str
    cancel: Cancel
    session: str = ""
    terms: Terms = FREE
    specs: Sequence[ToolSpec] = ()
    correlation: str = ""
    effects: LoopEffects = struct_field(default_factory=LoopEffects)


class Dispatch:
    """Runs commands."""

    def __init__(
        self,
        tools: ToolPort,
        *,
        hooks: Hooks | None = None,
        recorder: Recorder | None = None,
        approve: Approve | None = None,
        is_wary: Callable[[str], bool] = lambda run: False,
    ) -> None:
        """`is_wary` says of which runs no commands go side by side, because one of them may have to wait."""
        self._tools = tools
        self._hooks = hooks or Hooks()
        self._recorder = recorder
        self._approve = approve
        self._is_wary = is_wary

    def run(self, scene: CommandScene, calls: Sequence[ToolCall]) -> Generator[Event, None, Dispatched]:
        """Record every command, then run them; the events of both."""
        recorded = self._record_calls(scene, calls)
        for one in recorded:
            yield Event(
                scene.run,
                "tool_use",
                "assistant",
                "",
                tool=one.call.name,
                input=one.call.arguments,
                call_id=one.call.id,
                correlation=scene.correlation,
            )
        return (yield from self._run_recorded(scene, recorded))

    def rest(self, scene: CommandScene, calls: Sequence[ToolCall]) -> Generator[Event, None, Dispatched]:
        """Run commands that were recorded earlier, when what they waited for was accepted."""
        found = [self._check_call(scene, call) for call in calls]
        if self._is_logged(scene) and self._recorder is not None:
            found = [replace(one, log=self._recorder.recorded(scene.run, one.meant)) for one in found]
        return (yield from self._run_recorded(scene, found))

    def done(self, call: ToolCall, outcome: Outcome) -> DispatchedCommand:
        """A command with a result that was recorded earlier."""
        meant = self._tools.meant(call)
        spec = self._tools.spec(meant.name)
        return DispatchedCommand(call, meant, outcome, spec is not None and spec.is_terminal)

    def void(self, scene: CommandScene, why: str) -> None:
        """The updates of this turn that claimed an end do not hold."""
        if self._is_logged(scene) and self._recorder is not None:
            self._recorder.void(scene.run, why)

    def trouble(self, scene: CommandScene, kind: str, outcome: Outcome, turn: int = 0) -> None:
        """Something failed that has no command of its own that could say so: an answer as such, or the call of the model."""
        if self._is_logged(scene) and self._recorder is not None:
            self._recorder.trouble(scene.run, kind, outcome, turn)

    # -- recording ----------------------------------------------------------------------------------

    def _record_calls(self, scene: CommandScene, calls: Sequence[ToolCall]) -> list[Recorded]:
        found = [self._hooks.filter(RECORDING, self._check_call(scene, call), scene) for call in calls]
        if self._is_logged(scene) and self._recorder is not None:
            paths = self._recorder.begin(scene.run, [one.meant for one in found])
            found = [replace(one, log=path) for one, path in zip(found, paths, strict=True)]
        return found

    def _check_call(self, scene: CommandScene, call: ToolCall) -> Recorded:
        meant = self._tools.meant(call)
        if reason := answer_parser.refusal(meant):
            text = f"{meant.name} was not run: {reason}"
            return Recorded(call, meant, Outcome(400, "bad_input", text, "call it again with a short, plain target"))
        spec = self._tools.spec(meant.name)
        if spec is not None and spec.is_terminal and all(s.name != meant.name for s in scene.specs):
            return Recorded(call, meant, Outcome(403, "permission", f"{meant.name} is not for this run", "do without it"))
        return Recorded(call, meant)

    @staticmethod
    def _is_logged(scene: CommandScene) -> bool:
        return scene.terms.layout == "entries"

    # -- running ------------------------------------------------------------------------------------

    def _run_recorded(self, scene: CommandScene, recorded: Sequence[Recorded]) -> Generator[Event, None, Dispatched]:
        done: list[DispatchedCommand] = []
        waiting: tuple[Recorded, Outcome, tuple[str, ...]] | None = None  # an edit whose file the next command edits, too
        for at, (one, (outcome, ms)) in enumerate(zip(recorded, self._time_calls(scene, recorded), strict=False)):
            if waiting is not None and outcome.status == 202 and _refs_of(outcome) == waiting[2]:
                joined = Outcome(200, "ok", f"{subject_of(one.meant)}: waits for a decision together with the next edit of it")
                yield from self._report_result(scene, waiting[0], joined, 0, done)
                waiting = None
            if outcome.status == 202:
                is_held = isinstance(outcome.data, dict) and bool(outcome.data.get("held"))  # a person's word is asked for
                if (refs := _refs_of(outcome)) and scene.terms.approval == "auto" and not is_held and self._approve is not None:
                    outcome = self._approve(scene.run, refs)
                elif refs:
                    waiting = one, outcome, refs
                    if at + 1 < len(recorded) and _is_same_file(one.meant, recorded[at + 1].meant):
                        continue
                    break
            yield from self._report_result(scene, one, outcome, ms, done)
            if waiting is not None and not outcome.is_error:
                break
        if waiting is None:
            return Dispatched(tuple(done))
        one, outcome, refs = waiting
        self._hooks.tell(hook_points.PREPARE, scene.run, one.meant, refs)
        yield _waiting_event(scene, one, outcome, refs)
        self._hooks.tell(hook_points.PENDING, scene.run, refs)
        return Dispatched(tuple(done), refs)

    def _report_result(
        self, scene: CommandScene, one: Recorded, outcome: Outcome, ms: int, done: list[DispatchedCommand]
    ) -> Iterator[Event]:
        """A command has this result."""
        if one.log and self._recorder is not None:
            self._recorder.finish(scene.run, one.log, outcome)
        spec = self._tools.spec(one.meant.name)
        done.append(DispatchedCommand(one.call, one.meant, outcome, spec is not None and spec.is_terminal))
        yield Event(
            scene.run,
            "tool_result",
            "tool",
            as_text(outcome),
            tool=one.call.name,
            input=outcome.beside,
            call_id=one.call.id,
            correlation=scene.correlation,
            status=outcome.status,
            outcome=outcome.outcome,
            duration_ms=ms,
        )

    def _time_calls(self, scene: CommandScene, recorded: Sequence[Recorded]) -> Iterator[tuple[Outcome, int]]:
        is_tags = scene.terms.layout == "entries"
        specs = [self._tools.spec(one.meant.name) for one in recorded]
        if len(recorded) > 1 and not is_tags and all(spec is not None and spec.is_read_only for spec in specs):
            if not self._is_wary(scene.run):
                return self._side_by_side(scene, recorded)
        return self._in_order(scene, recorded, specs)

    def _side_by_side(self, scene: CommandScene, recorded: Sequence[Recorded]) -> Iterator[tuple[Outcome, int]]:
        context = [contextvars.copy_context() for _ in recorded]
        with ThreadPoolExecutor(min(8, len(recorded)), thread_name_prefix="calls") as pool:
            yield from pool.map(lambda i: context[i].run(self._run_one, scene, recorded[i]), range(len(recorded)))

    def _in_order(
        self, scene: CommandScene, recorded: Sequence[Recorded], specs: Sequence[ToolSpec | None]
    ) -> Iterator[tuple[Outcome, int]]:
        failed, ended = False, ""
        ahead: Iterator[tuple[Outcome, int]] = iter(())  # of those that run side by side
        for at, (one, spec) in enumerate(zip(recorded, specs, strict=True)):
            name, is_end = one.meant.name, bool(spec is not None and spec.is_terminal) or bool(claim(one.meant))
            if (found := next(ahead, None)) is not None:
                yield found
                failed = failed or found[0].is_error
            elif ended:
                yield Outcome(ABORTED, "aborted", f"{name} was not run: {ended} before it ended the work"), 0
            elif failed and is_end:  # what claims the end is told that it is not the end
                yield Outcome(409, "conflict", f"{name} does not count: a call before it failed", "see that result first"), 0
            elif failed:
                text = f"{name} was not run: a call before it failed"
                yield Outcome(ABORTED, "aborted", text, "see that result first"), 0
            elif (count := _count_parallel(specs[at:])) > 1 and scene.terms.layout != "entries":
                ahead = self._side_by_side(scene, recorded[at : at + count])
                found = next(ahead)
                yield found
                failed = found[0].is_error
            else:
                outcome, ms = self._run_one(scene, one)
                yield outcome, ms
                failed = outcome.is_error
                ended = name if spec is not None and spec.is_terminal and not failed else ""

    def _run_one(self, scene: CommandScene, one: Recorded) -> tuple[Outcome, int]:
        if scene.cancel.is_set():
            return Outcome(499, "cancelled", f"{one.meant.name} was not run: stopped"), 0
        if one.refusal is not None:
            return one.refusal, 0
        if not self._hooks.handle(hook_points.HANDLING, one.meant, scene.run):
            return Outcome(403, "refused", f"{one.meant.name} was not run: a plugin says no", "do without it"), 0
        spec = self._tools.spec(one.meant.name)
        is_once = spec is not None and spec.is_once
        if is_once and (earlier := scene.effects.earlier(one.meant)) is not None:
            return earlier, 0
        self._hooks.tell(hook_points.TOOL_BEFORE, one.meant, scene.run)
        started_s = monotonic_s()
        outcome = self._tools.dispatch(one.meant, scene.run, scene.cancel, scene.session, terms=scene.terms, log=one.log)
        ms = round((monotonic_s() - started_s) * 1000)
        outcome = self._hooks.filter(hook_points.TOOL_AFTER, outcome, one.meant, scene.run)
        if is_once:
            scene.effects.keep(one.meant, outcome)
        return outcome, ms


def _call_key(call: ToolCall) -> str:
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)}"


def claim(call: ToolCall) -> int:
    """The end that an update claims, as its status; 0 for one that goes on and for any other call."""
    given = call.arguments.get("status", 102) if call.name == "update" else 0
    return given if given in (200, 204, 422) else 0


def _count_parallel(specs: Sequence[ToolSpec | None]) -> int:
    """The number of the next commands that may run at the same time."""
    return sum(1 for _ in takewhile(lambda spec: spec is not None and spec.is_beside, specs))


def _refs_of(outcome: Outcome) -> tuple[str, ...]:
    found = outcome.data.get("proposals", ()) if isinstance(outcome.data, dict) else ()
    return tuple(str(ref) for ref in found)


def _is_same_file(one: ToolCall, other: ToolCall) -> bool:
    """Whether both write to the same place: what they propose is one change (R-090)."""
    return (
        one.name == other.name == "set" and bool(one.arguments.get("path")) and one.arguments["path"] == other.arguments.get("path")
    )


def _waiting_event(scene: CommandScene, one: Recorded, outcome: Outcome, refs: Sequence[str]) -> Event:
    """The event that says that a command waits for somebody's decision."""
    given: dict[str, Any] = {"refs": list(refs), "action": one.meant.name, "subject": subject_of(one.meant)}
    given |= {"is_held": True} if isinstance(outcome.data, dict) and outcome.data.get("held") else {}
    return Event(
        scene.run,
        "proposal",
        "system",
        outcome.message,
        tool=one.call.name,
        input=given,
        call_id=one.call.id,
        correlation=scene.correlation,
        status=202,
        outcome=PROPOSED,
    )


# -- the log of a run ------------------------------------------------------------------------------------


def actor_of(runs: Runs, caller: Caller) -> Actor:
    """The model in its run, at the run's newest turn; a person when no run is named."""
    if not caller.run:
        return Actor("client")
    loop, turn = runs.moment(caller.run)
    return Actor("model", caller.run, loop, turn, log=caller.log, bars_files=caller.terms.bars_files)


def session_of(runs: Runs, caller: Caller) -> str:
    """The session of the run, or of the person outside of any."""
    return caller.session or (runs.get(caller.run).session if caller.run else "")


def person_of(runs: Runs, session: str) -> str:
    """The owner of the session; of one that has not begun, the person its id names."""
    return runs.person(session) or session.partition(":")[2]


class RunLog(Struct):
    """The log entries of runs that are shown their log: one for each command, `log://turn_N/NAME/SUBJECT`."""

    store: Store
    runs: Runs
    verbs: Verbs

    def begin(self, run: str, calls: Sequence[ToolCall]) -> list[str]:
        """Record every call; the paths of their entries."""
        self.mend(run)
        loop, turn = self.runs.moment(run)
        actor = Actor("model", run, loop, turn)
        with self.store.write(run=run, durable=True):
            return [self.verbs.actions.begin(actor, c.name, subject_of(c), {"arguments": c.arguments}) for c in calls]

    def recorded(self, run: str, call: ToolCall) -> str:
        """Where a call was recorded that has not been run; "" when nowhere."""
        return self.verbs.actions.recorded(run, call)

    def finish(self, run: str, path: str, outcome: Outcome) -> None:
        """The result of a call, where the verb it is has not noted it."""
        actor = Actor("model", run, *self.runs.moment(run), log=path)
        if self.verbs.actions.is_open(actor):
            with self.store.write(run=run, durable=True):
                self.verbs.actions.finish(actor, outcome)

    def void(self, run: str, why: str) -> None:
        """This turn's updates that claim an end are stored as a conflict."""
        loop, turn = self.runs.moment(run)
        self.verbs.override(Actor("model", run, loop, turn), why)

    def trouble(self, run: str, kind: str, outcome: Outcome, turn: int = 0) -> None:
        """An entry `error://turn_N/KIND/WHAT` for what failed and is no command, in the newest turn or one that did not begin."""
        loop, newest = self.runs.moment(run)
        actor = Actor("model", run, loop, turn or newest)
        with self.store.write(run=run, durable=True):
            self.verbs.actions.trouble(actor, kind, outcome.message, outcome)

    def mend(self, run: str) -> int:
        """Close the entries of calls that a process did not live to finish; how many there were."""
        left = self.verbs.actions.unfinished(run)
        for path in left:
            text = "it was not finished: interrupted; it may or may not have taken effect"
            try:
                self.finish(run, path, Outcome(499, "interrupted", text))
            except NotFound:
                continue  # undone meanwhile
        return len(left)
