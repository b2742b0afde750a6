"""One prompt's worth of thinking, as a generator of steps.

Calls the model, records every command before any is run, dispatches them in order (read-only ones of
one answer side by side), and goes on until there is an answer, a stop, or a cap. It stores nothing:
whoever iterates commits each step before asking for the next. Route, tools, packet and memory are
arguments; it knows none of their makers.
"""

import contextvars
import logging
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from appliance import answers, log
from appliance.answers import Answer
from appliance.clock import monotonic_s, new_id
from appliance.errors import BadInput, Cancelled, OwlError, TooLarge, Unavailable
from appliance.packet import Packets
from appliance.records import (
    Ask,
    Cancel,
    Delta,
    Event,
    Finish,
    LoopEnded,
    Memory,
    Message,
    Model,
    Outcome,
    Part,
    Route,
    Step,
    ToolCall,
    Tools,
    ToolSpec,
    TurnBegun,
    TurnEnded,
)
from appliance.toolbox import as_text

LOG = logging.getLogger(__name__)
SORRY = "I could not work that out: my answers were not usable. Please ask again in other words."


@dataclass(frozen=True)
class Limits:
    """Caps of one loop, and how the model is asked."""

    max_turns: int = 99
    max_commands: int = 99
    max_strikes: int = 3
    history_messages: int = 80
    temperature: float = 0.1
    max_output_tokens: int = 512
    deadline_s: float = 600.0


@dataclass(frozen=True)
class Role:
    """As whom the model works: which menu it is offered, who answers, and how long it may take.

    `max_turns` 0 leaves it to the limits. In the background people's questions go first.
    """

    name: str = "chat"
    pool: str = ""
    max_turns: int = 0
    is_background: bool = False


CHAT = Role()


@dataclass
class Talk:
    """One loop's working state: the conversation as the model sees it, and what is counted."""

    run: str
    routes: Sequence[Route]
    cancel: Cancel
    messages: list[Message]
    specs: tuple[ToolSpec, ...]
    role: Role = CHAT
    person: str = ""
    session: str = ""
    prompt: str = ""
    said: str = ""
    strikes: int = 0
    commands: int = 0


class Agent:
    """Thinks; holds no state between loops."""

    def __init__(self, model: Model, tools: Tools, packets: Packets, memory: Memory, limits: Limits) -> None:
        self._model = model
        self._tools = tools
        self._packets = packets
        self._memory = memory
        self.limits = limits

    def loop(
        self, run: str, routes: Sequence[Route], cancel: Cancel, person: str = "", *, session: str = "", role: Role = CHAT
    ) -> Iterator[Step]:
        """Answer the newest prompt of a run, for a person whose turn it is when several wait.

        The last step is always a LoopEnded; our errors become one. Ended in the middle of an answer, the part
        that was streamed is in no event: the one who iterates has seen every delta and keeps it.
        """
        talk = Talk(run, routes, cancel, [], (), role, person, session)
        try:
            talk.specs = tuple(self._tools.specs(role.name))
            talk.messages = list(self._memory.recent(run, self.limits.history_messages))
            talk.prompt = next((m.content for m in reversed(talk.messages) if m.role == "user"), "")
            yield from self._turns(talk)
        except Cancelled as error:
            yield LoopEnded(499, "cancelled", error.message)
        except OwlError as error:
            # Words were shown and then the model went away: that is an interruption, not a bad request.
            is_cut = bool(talk.said) and isinstance(error, Unavailable)
            yield LoopEnded(499, "interrupted", str(error)) if is_cut else LoopEnded(500, error.outcome, str(error))

    def _turns(self, talk: Talk) -> Iterator[Step]:
        system = {r.name: self._packets.system(talk.specs, r.dialect, r.window, talk.role.name) for r in talk.routes}
        base = Event(run=talk.run, kind="message", role="assistant", content="", correlation=log.correlation())
        max_turns = talk.role.max_turns or self.limits.max_turns
        for seq in range(1, max_turns + 1):
            if talk.cancel.is_set():
                raise Cancelled("stopped")
            answer = _told_apart((yield from self._ask(talk, system, seq)), talk.messages)
            if answer.is_malformed or (not answer.text and not answer.calls):
                if (yield from self._strike(talk, base, answer)):
                    return
                continue
            if answer.text and not answer.calls:
                if sources := self._packets.sources(answer.text, talk.prompt):
                    yield Delta(f" {sources}")
                    answer = replace(answer, text=f"{answer.text} {sources}")
            if answer.text:
                yield replace(base, content=answer.text)
            talk.messages.append(Message("assistant", answer.text, tool_calls=answer.calls))
            talk.said = ""
            if not answer.calls:
                yield LoopEnded(200, "ok")
                return
            talk.commands += len(answer.calls)
            if talk.commands > self.limits.max_commands:
                yield LoopEnded(499, "too_many_commands", f"more than {self.limits.max_commands} commands")
                return
            results = yield from self._act(talk, answer.calls)
            if mended := [w for w in answer.warnings if w not in answers.ORDINARY]:
                last = talk.messages[-1]
                talk.messages[-1] = replace(last, content=f"{last.content}\n(Note: {'; '.join(mended)}.)")
            names = {s.name for s in talk.specs if s.is_terminal}
            if any(c.name in names and not r.is_error for c, r in zip(answer.calls, results, strict=True)):
                yield LoopEnded(200, "ok")
                return
        yield LoopEnded(499, "max_turns", f"Max turns exceeded ({max_turns})")

    def _strike(self, talk: Talk, base: Event, answer: Answer) -> Generator[Step, None, bool]:
        """Count an answer of no use and tell the model; True when that was one too many."""
        talk.strikes += 1
        if said := talk.said.strip():  # the person has seen it
            yield replace(base, content=said)
            talk.messages.append(Message("assistant", said))
            talk.said = ""
        note = "; ".join(answer.warnings) or "the answer was empty"
        yield replace(base, kind="status_change", role="system", content=note, status=422, outcome="strike")
        if talk.strikes >= self.limits.max_strikes:
            yield Delta(SORRY)
            yield replace(base, content=SORRY, status=422, outcome="strikes")
            yield LoopEnded(499, "strikes", note)
            return True
        talk.messages.append(Message("user", f"({note}. Answer in words, or with one tool call.)"))
        return False

    def _ask(self, talk: Talk, system: dict[str, tuple[Part, ...]], seq: int) -> Generator[Step, None, Answer]:
        """One answer of the model, from the first route that begins one."""
        for number, route in enumerate(talk.routes):
            yield TurnBegun(seq, route.name)
            ask = Ask(
                system=system[route.name],
                messages=tuple(self._packets.fit(talk.messages, system[route.name], talk.specs, route)),
                tools=talk.specs,
                dialect=route.dialect,
                slot=talk.run,
                person=talk.person,
                is_background=talk.role.is_background,
                temperature=self.limits.temperature,
                max_tokens=self.limits.max_output_tokens,
                deadline_s=self.limits.deadline_s,
                correlation=log.correlation(),
            )
            try:
                return (yield from self._listen(talk, route, ask, seq))
            except (BadInput, Cancelled, TooLarge):
                raise  # another route would not help, or must not be asked
            except OwlError as error:
                if talk.said or number + 1 == len(talk.routes):
                    raise
                LOG.warning("route %s failed before it answered, trying the next: %s", route.name, error)
        raise Unavailable("no model can be asked", hint="owlbox doctor says what is missing")

    def _listen(self, talk: Talk, route: Route, ask: Ask, seq: int) -> Generator[Step, None, Answer]:
        """Stream an answer: deltas as they come, then thoughts and cost, then what it means."""
        text, thoughts, finish = "", "", Finish("stop")
        showing = answers.Showing(talk.specs)
        for piece in self._model.generate(route, ask, talk.cancel):
            if talk.cancel.is_set():
                raise Cancelled("stopped")
            if isinstance(piece, Finish):
                finish = piece
            elif piece.is_reasoning:
                thoughts += piece.text
            else:
                text += piece.text
                if new := showing.more(piece.text):
                    talk.said = showing.said
                    yield Delta(new)
        yield TurnEnded(seq, finish)
        thoughts = thoughts or finish.reasoning
        if thoughts:
            yield Event(run=talk.run, kind="thinking", role="assistant", content=thoughts, correlation=log.correlation())
        answer = answers.read(text, finish.tool_calls, talk.specs, self.limits.max_commands, is_cut=finish.reason == "length")
        if answer.warnings:
            LOG.warning("answer mended: %s", "; ".join(answer.warnings))
        if answer.is_malformed:
            return answer
        if rest := showing.rest(answer.text):
            yield Delta(rest)
        if finish.reason == "length" and answer.text and not answer.calls:
            mark = f" … [cut at {finish.output_tokens or ask.max_tokens} tokens]"  # or it would look complete
            yield Delta(mark)
            answer = replace(answer, text=answer.text + mark)
        return answer

    def _act(self, talk: Talk, calls: Sequence[ToolCall]) -> Generator[Step, None, list[Outcome]]:
        """Record every call, run them, record every result in the order of the calls.

        Read-only calls run side by side; one that changes something makes the answer sequential, and a
        failure there aborts the calls after it.
        """
        base = Event(run=talk.run, kind="tool_use", role="assistant", content="", correlation=log.correlation())
        for call in calls:
            yield replace(base, tool=call.name, input=call.arguments, call_id=call.id)
        quiet = {s.name for s in talk.specs if s.is_read_only}
        if len(calls) > 1 and all(c.name in quiet for c in calls):
            timed = self._side_by_side(talk, calls)
        else:
            timed = self._in_order(talk, calls)
        results = []
        for call, (result, ms) in zip(calls, timed, strict=True):
            results.append(result)
            text, given = as_text(result), replace(base, kind="tool_result", role="tool", tool=call.name, call_id=call.id)
            yield replace(given, content=text, status=result.status, outcome=result.outcome, duration_ms=ms)
            talk.messages.append(Message("tool", text, tool_call_id=call.id))
        return results

    def _side_by_side(self, talk: Talk, calls: Sequence[ToolCall]) -> Iterator[tuple[Outcome, int]]:
        context = [contextvars.copy_context() for _ in calls]
        with ThreadPoolExecutor(min(8, len(calls)), thread_name_prefix="calls") as pool:
            yield from pool.map(lambda i: context[i].run(self._timed, talk, calls[i]), range(len(calls)))

    def _in_order(self, talk: Talk, calls: Sequence[ToolCall]) -> Iterator[tuple[Outcome, int]]:
        why, terminal = "", {s.name for s in talk.specs if s.is_terminal}
        for call in calls:
            if why:
                yield Outcome(424, "aborted", f"{call.name} was not run: {why}", "see that result first"), 0
                continue
            result, ms = self._timed(talk, call)
            if result.is_error:
                why = "a call before it failed"
            elif call.name in terminal:
                why = f"{call.name} before it ended the work"
            yield result, ms

    def _timed(self, talk: Talk, call: ToolCall) -> tuple[Outcome, int]:
        if talk.cancel.is_set():
            return Outcome(499, "cancelled", f"{call.name} was not run: stopped"), 0
        if reason := answers.refusal(call):
            return Outcome(400, "bad_input", f"{call.name} was not run: {reason}", "call it again with a short, plain target"), 0
        started_s = monotonic_s()
        result = self._tools.dispatch(call, talk.run, talk.cancel, talk.session)
        return result, round((monotonic_s() - started_s) * 1000)


def _told_apart(answer: Answer, before: Sequence[Message]) -> Answer:
    """The answer with a fresh id for every call that has none, or one already used in this conversation.

    A model's own ids start over with every answer; results are matched with calls by id, so they may not.
    """
    used = {call.id for message in before for call in message.tool_calls} | {""}
    calls = []
    for call in answer.calls:
        calls.append(replace(call, id=new_id()) if call.id in used else call)
        used.add(call.id)
    return replace(answer, calls=tuple(calls))
