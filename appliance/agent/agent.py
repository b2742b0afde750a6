"""One prompt's worth of thinking, as a generator of steps.

Asks for a packet, calls the model, has every command recorded and run (`agent.dispatch`), and goes on until the voters
(`agent.stop_conditions`) end it. A command that waits for somebody's decision puts the loop down with status 202; begun again, it
goes on behind that command. It stores nothing: whoever iterates commits each step before asking for the next. Route,
tools, packets and memory are arguments; it knows none of their makers.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import cached_property

from msgspec.structs import replace

from appliance.agent import stop_conditions
from appliance.agent.dispatch import Dispatch, Dispatched, DispatchedCommand, claim
from appliance.agent.instruction_echo import InstructionEcho
from appliance.agent.loop_state import WORK, LoopLimits, LoopTalk, with_fresh_ids
from appliance.agent.loop_state import Work as Work
from appliance.agent.stop_conditions import AnswerOutcome, CallEffect, Caps, Past, Verdict
from appliance.clock import new_id
from appliance.errors import Cancelled, ContextTooLong, OwlError, StoreError
from appliance.language.answer_kinds import says_what_is_asked
from appliance.language.planning.plans import Do, Grounded, ModelTalk, Plan, Say, handed_over
from appliance.language.program_or_model import MessagePlanner
from appliance.language.request_texts import strip_notes
from appliance.language.sentence_stream import ClaimGuard, SentenceStream
from appliance.language.work_planner import WorkPlanner
from appliance.models.failover import CallPatience, Chain, Chance, pauses
from appliance.policy import modes
from appliance.prompt.budget import Budget
from appliance.prompt.packet import Packets, data_of
from appliance.prompt.packet_types import Packet, PacketScene, Plain
from appliance.prompt.roles import CHAT, DIRECT, HEARTBEAT, Role
from appliance.records import (
    Ask,
    CallPreparing,
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
    Thinking,
    Tier,
    ToolCall,
    ToolPort,
    TurnBegun,
    TurnEnded,
)
from appliance.runtime import hook_points, log
from appliance.text import answer_parser, answer_stream
from appliance.text.answer_parser import ParsedAnswer

LOG = logging.getLogger(__name__)
SORRY = "I could not work that out: my answers were not usable. Please ask again in other words."
CIRCLING = "I stopped, because I was going round in circles. Please ask again in other words."
APOLOGIES = {"strikes": SORRY, "cycle": CIRCLING, "stagnation": CIRCLING}
# How the end of a planned task is called for, by its outcome: the tool, and what its text is called.
ENDS = {"": ("complete_task", "summary"), "unable": ("wait_task", "reason"), "failed": ("fail_task", "reason")}
MAX_REPEATS = 2  # of effects that were done already; after the first the model may still say something
OF_ENTRIES = "run"  # the menu of a run that is shown its entries
# Why an answer is not whole, and what is put under it then; the number is its length in tokens.
RECITED = ("instructions", "style", "tools", "skills")  # parts of the system text that are not a person's own
CUTS = {"length": " … [cut at {} tokens]", "repetition": " … [ended: it said the same over and over]"}
CUTS |= {"filtered": " … [ended: the provider's content filter stopped the answer]"}


class Agent:
    """Thinks; holds no state between loops."""

    def __init__(
        self,
        model: Model,
        tools: ToolPort,
        packets: Packets,
        memory: Memory,
        limits: LoopLimits,
        dispatch: Dispatch | None = None,
        budget: Budget | None = None,
        make_guide: Callable[[], WorkPlanner] | None = None,
    ) -> None:
        """`make_guide` makes what decides in place of tiny and small models; without it every model has the full loop."""
        self._make_guide = make_guide
        self._model = model
        self._tools = tools
        self._packets = packets
        self._memory = memory
        self._dispatch = dispatch or Dispatch(tools)
        self._budget = budget
        self.limits = limits
        self.hooks = packets.hooks

    @cached_property
    def _guide(self) -> WorkPlanner:
        """Made for the first message to a tiny or small model: files of four languages are read for it."""
        assert self._make_guide is not None
        return self._make_guide()

    def configure(self, limits: LoopLimits) -> None:
        """Work within these limits from the next loop on."""
        self.limits = limits

    def is_read_only(self, tool: str) -> bool:
        """Whether a tool changes nothing."""
        return self._tools.is_read_only(tool)

    def plan(self, pool: str) -> Sequence[Route]:
        """The routes of a pool, best first."""
        return self._model.plan(pool)

    def loop(
        self,
        run: str,
        routes: Sequence[Route],
        cancel: Cancel,
        person: str = "",
        *,
        session: str = "",
        role: Role = CHAT,
        work: Work = WORK,
    ) -> Iterator[Step]:
        """Answer the newest prompt of a run, for a person whose turn it is when several wait, or go on where it stopped.

        The last step is always a LoopEnded; our errors become one. Ended in the middle of an answer, the part
        that was streamed is in no event: the one who iterates has seen every delta and keeps it.
        """
        if role.preset == "delegating" and work.terms.layout == "chat" and self._tier_of(routes, work) != "able":
            work = replace(work, terms=replace(work.terms, tools=DIRECT))  # the program acts, and shows its model no tool
        talk = LoopTalk(run, routes, cancel, role, person, session, work, past=Past(turns=work.turns))
        menu, only = OF_ENTRIES if talk.is_shown_entries else role.menu, work.terms.tools
        try:
            for call, outcome in work.effects:
                talk.effects.keep(call, outcome)
            talk.specs = modes.menu(work.terms, self._tools.specs(menu, only))
            talk.messages = list(self._memory.recent(run, self.limits.history_messages))
            talk.prompt = next((m.content for m in reversed(talk.messages) if m.role == "user"), "")
            verdict = yield from self._run_turns(talk)
        except OwlError as error:
            self._note_failure(talk, error)
            verdict = stop_conditions.of_error(error, is_begun=bool(talk.said))
        yield LoopEnded(verdict.status, verdict.outcome, verdict.text)

    def _note_failure(self, talk: LoopTalk, error: OwlError) -> None:
        """An error entry for a prompt that does not fit or a model that does not answer, of which no command could tell."""
        if isinstance(error, (Cancelled, StoreError)):
            return
        try:
            turn = talk.work.turn + talk.past.turns + 1 - talk.work.turns
            self._dispatch.trouble(talk.commands, "model", Outcome(error.status, error.outcome, error.message), turn)
        except OwlError as other:
            LOG.warning("a failure could not be noted in its thread: %s", other)

    # -- turns --------------------------------------------------------------------------------------

    def _run_turns(self, talk: LoopTalk) -> Generator[Step, None, Verdict]:
        caps = self._caps_of(talk)
        verdict = yield from self._run_rest(talk, caps)
        if not verdict.is_over and self._tier_of(talk.routes, talk.work) != "able" and (plan := self._plan_work(talk)) is not None:
            return (yield from self._run_plan(talk, self._guide, plan))
        while not verdict.is_over:
            if talk.past.turns >= caps.turns:
                return Verdict(True, 499, "max_turns", f"Max turns exceeded ({caps.turns})")
            if talk.cancel.is_set():
                raise Cancelled("stopped")
            talk.work.source.begin_turn()
            for message in talk.work.source.arrived():
                talk.messages.append(message)
                talk.prompt += f"\n\n(Added meanwhile:) {message.content}" if talk.work.terms.layout == "entries" else ""
            answer = with_fresh_ids((yield from self._ask_model(talk, talk.past.turns + 1)), talk.messages)
            answer = self.hooks.filter(hook_points.TURN_RESPONSE, answer, talk.run)
            turn, waits = yield from self._act_on(talk, answer)
            if waits:
                return _suspend(waits)
            talk.past = talk.past.after(turn)
            verdict = stop_conditions.judge(talk.past, turn, caps)
            if talk.effects.repeats >= MAX_REPEATS and turn.effects and (not verdict.is_over or verdict.outcome == "cycle"):
                verdict = Verdict(True, stop_conditions.DONE, "ok", talk.messages[-1].content)  # what was done is the answer
            verdict = self.hooks.filter(hook_points.VERDICT, verdict, talk.run)
            yield from self._follow_verdict(talk, turn, verdict)
            self.hooks.tell(hook_points.TURN_COMPLETED, talk.run, talk.past.turns, verdict)
        return verdict

    def _caps_of(self, talk: LoopTalk) -> Caps:
        limits = self.limits
        caps = [most for most in (limits.max_turns, 0 if talk.is_shown_entries else talk.role.max_turns) if most]
        turns = min(caps, default=0)
        return Caps(turns, limits.max_loop_commands, limits.max_strikes, limits.max_cycles, limits.max_period)

    def _run_rest(self, talk: LoopTalk, caps: Caps) -> Generator[Step, None, Verdict]:
        """The commands behind one that waited for a decision: they are run now that it was accepted.

        The turn is judged as a whole: what claimed the end before the pause still does.
        """
        at = next((i for i in range(len(talk.messages) - 1, -1, -1) if talk.messages[i].tool_calls), None)
        if at is None or any(m.role == "user" for m in talk.messages[at:]):
            return stop_conditions.ON
        known = {m.tool_call_id for m in talk.messages[at:]}
        left = [call for call in talk.messages[at].tool_calls if call.id not in known]
        if not left and not talk.work.effects:
            return stop_conditions.ON
        commands = self._dispatch
        done = (yield from commands.rest(talk.commands, left)) if left else Dispatched()
        if done.waits:
            return _suspend(done.waits)
        before = tuple(commands.done(call, outcome) for call, outcome in talk.work.effects)
        turn = self._build_turn(talk, talk.messages[at].content, done, "", before)
        talk.past = replace(talk.past.after(turn), turns=talk.past.turns)
        verdict = stop_conditions.judge(talk.past, turn, caps)
        yield from self._follow_verdict(talk, turn, verdict)
        return verdict

    def _act_on(self, talk: LoopTalk, answer: ParsedAnswer) -> Generator[Step, None, tuple[AnswerOutcome, tuple[str, ...]]]:
        """Keep what an answer says, do what it asks for: the turn for the voters, and what has to be decided first."""
        base = Event(run=talk.run, kind="message", role="assistant", content="", correlation=log.correlation())
        is_of_use = not answer.is_malformed and bool(answer.text or answer.calls)
        if is_of_use and not answer.calls and (sources := self._packets.sources(answer.text, talk.prompt)):
            yield Delta(f" {sources}")
            answer = replace(answer, text=f"{answer.text} {sources}")
        text = answer.text if is_of_use else talk.said.strip()  # of a useless answer, what the person has seen
        if text:
            measured = talk.finish.output_tokens - talk.finish.reasoning_tokens
            yield replace(base, content=text, tokens=measured if is_of_use and not answer.calls and measured > 0 else None)
        calls = answer.calls if is_of_use else ()
        if text or calls:
            talk.messages.append(Message("assistant", text, tool_calls=calls, reasoning=talk.finish.reasoning if calls else ""))
        talk.said = ""
        if not is_of_use:
            trouble = "; ".join(answer.warnings) or "the answer was empty"
            return AnswerOutcome(text, trouble=trouble, is_malformed=True), ()
        done = (yield from self._dispatch.run(talk.commands, calls)) if calls else Dispatched()
        if calls:
            self.hooks.tell(hook_points.DISPATCHED, talk.run, done.done)
        trouble = "; ".join(w for w in answer.warnings if w not in answer_parser.ORDINARY)
        if calls and not done.waits and self._budget is not None and talk.scene is not None and talk.packet is not None:
            self._budget.dispatched(talk.scene, talk.packet, talk.finish)
        return self._build_turn(talk, text, done, trouble), done.waits

    def _build_turn(
        self, talk: LoopTalk, text: str, dispatched: Dispatched, trouble: str, before: Sequence[DispatchedCommand] = ()
    ) -> AnswerOutcome:
        """The turn that the voters judge; the results join the conversation, where those `before` are already."""
        for one in dispatched.done:
            talk.messages.append(Message("tool", one.text, tool_call_id=one.call.id, origin=one.outcome.origin))
        done = (*before, *dispatched.done)
        meant = [one.meant for one in done]
        effects = tuple(_effect_of(one) for one in done)
        return AnswerOutcome(text, effects, stop_conditions.fingerprint(meant), stop_conditions.touched(meant), trouble)

    def _follow_verdict(self, talk: LoopTalk, turn: AnswerOutcome, verdict: Verdict) -> Iterator[Step]:
        """Record what a turn's voters noticed and say what is left to be said, to the model or to the person."""
        base = Event(run=talk.run, kind="status_change", role="system", content="", correlation=log.correlation())
        if turn.trouble and not turn.effects:
            yield replace(base, content=turn.trouble, status=422, outcome="strike")
        if turn.trouble:
            self._dispatch.trouble(talk.commands, "answer", Outcome(422, "strike", turn.trouble))
        if verdict.is_overridden:
            text = "the update does not count: something failed in the same turn"
            self._dispatch.void(talk.commands, text)
            yield replace(base, content=text, status=409, outcome="conflict")
            _append_note(talk, text)
        apology = APOLOGIES.get(verdict.outcome, "") if verdict.is_over else ""
        left = verdict.text if verdict.is_over and verdict.status == stop_conditions.DONE and not turn.text else ""
        if apology or left:
            yield Delta(apology or left)
            said = replace(base, kind="message", role="assistant", content=apology or left)
            yield replace(said, status=422, outcome=verdict.outcome) if apology else said
        elif turn.trouble and not turn.effects:
            talk.messages.append(Message("user", f"({turn.trouble}. Answer in words, or with one tool call.)"))
        elif turn.trouble:
            _append_note(talk, turn.trouble)

    # -- the model ----------------------------------------------------------------------------------

    def _ask_model(self, talk: LoopTalk, seq: int) -> Generator[Step, None, ParsedAnswer]:
        """One answer of the model, from the first route that begins one; a failed one is asked again when nothing else is left."""
        patience = CallPatience(self.limits.deadline_s, self.limits.pause_s)
        chain = Chain(talk.routes, patience)
        while True:
            chance = chain.next()
            about = f"{chance.about} {seq}" if chance.wait_s else chance.about  # that another one is asked is said once
            if chance.why and (chance.wait_s or not chance.is_again) and about not in talk.told:
                talk.told.add(about)
                yield _describe_waiting(talk, chance)
            for _ in pauses(chance, talk.cancel, patience.pause_s):
                pass
            try:
                scene = self._build_scene(talk, chance.route, seq)
                self.hooks.tell(hook_points.CONTEXT, scene)
                packet = self._packets.assemble(scene) if self._budget is None else self._budget.assemble(scene)
                self.hooks.tell(hook_points.BUDGET, scene, packet)
                self.hooks.tell(hook_points.TURN_STARTED, talk.run, seq, chance.route.name)
                yield TurnBegun(seq, chance.route.name)
                ask = replace(self._build_request(talk, chance.route, packet), deadline_s=chain.left_s(), is_retry=chance.is_again)
                talk.scene, talk.packet = scene, packet
                return (yield from self._read_answer(talk, chance.route, ask, seq))
            except OwlError as error:
                if talk.said:
                    raise
                is_mendable = isinstance(error, ContextTooLong) or error.outcome == "model_not_supported"
                anew = self._refresh_route(chance.route) if is_mendable else None
                if anew is None or not chain.narrowed(anew):
                    chain.failed(error)
                else:
                    talk.routes = [anew if one.name == anew.name else one for one in talk.routes]

    def _refresh_route(self, route: Route) -> Route | None:
        """A route with the window and the dialect that are known by now; None where it cannot be had."""
        try:
            return next((one for one in self._model.plan(route.name) if one.name == route.name), None)
        except OwlError:
            return None  # what it answered says more

    def _build_request(self, talk: LoopTalk, route: Route, packet: Packet) -> Ask:
        settings, plain = talk.work.settings, talk.plain
        most = route.max_tokens or self.limits.max_output_tokens
        own = self.limits.temperature if plain is None else plain.temperature
        is_role = talk.role.is_temperature_set or (plain is None and settings.layout == "chat" and own == LoopLimits().temperature)
        return Ask(
            system=packet.system,
            messages=self.hooks.filter(hook_points.MESSAGES, packet.messages, talk.run),
            # An effect was asked for twice: the tools are taken away, where that changes no byte of the prompt.
            tools=() if plain is not None or (talk.effects.repeats and route.dialect != "native") else talk.specs,
            dialect=route.dialect,
            slot=talk.run,
            person=talk.person,
            is_background=talk.role.is_background,
            temperature=next(t for t in (settings.temperature, talk.role.temperature if is_role else None, own) if t is not None),
            repeat_penalty=0.0 if plain is None else plain.repeat_penalty,
            max_tokens=most if plain is None else min(most, plain.max_tokens),
            stop=() if plain is None else plain.stop,
            is_measured=plain is not None and plain.least_sure > 0,
            may_think=plain is None and self.limits.may_think,
            correlation=log.correlation(),
        )

    def _build_scene(self, talk: LoopTalk, route: Route, seq: int) -> PacketScene:
        """What the next packet is made for; the one before it is told if the same route made it."""
        work, before = talk.work, talk.packet
        is_same = before is not None and talk.scene is not None and talk.scene.route.name == route.name
        return PacketScene(
            run=talk.run,
            route=route,
            specs=talk.specs,
            messages=tuple(talk.messages),
            remembered=self.limits.history_messages,
            layout=work.terms.layout,
            role=talk.role.name,
            about=talk.role.text,
            documents=talk.role.documents,
            has_skills=talk.role.has_skills,
            is_child=talk.role.is_child,
            loop=work.loop,
            turn=work.turn + seq - work.turns,
            prompt=talk.prompt,
            person=talk.person,
            persona=work.settings.persona,
            mode=work.terms.mode,
            context_limit=work.settings.context_limit or 0,
            max_output_tokens=route.max_tokens or self.limits.max_output_tokens,
            measured=(talk.finish.prompt_tokens or None) if is_same else None,
            before=before if is_same else None,
            plain=None if talk.plain is None else Plain((Part("instructions", talk.plain.system),), talk.plain.messages),
        )

    def _read_answer(self, talk: LoopTalk, route: Route, ask: Ask, seq: int) -> Generator[Step, None, ParsedAnswer]:
        """Stream an answer: deltas as they come, then thoughts and cost, then what it means."""
        text, thoughts, finish = "", "", Finish("stop")
        specs = (*talk.specs, *(spec for spec in ask.tools if spec not in talk.specs))
        if talk.plain is not None:
            return (yield from self._listen_plainly(talk, talk.plain, route, ask, seq))
        others = self._tools.allowed(None)
        showing, echo = answer_stream.Showing(specs, others), InstructionEcho(_instructions_of(route, ask))
        self.hooks.tell(hook_points.REQUEST_STARTED, talk.run, ask)
        pieces = self._model.generate(route, ask, talk.cancel)
        with closing(pieces) if isinstance(pieces, Generator) else nullcontext():
            for piece in pieces:
                if talk.cancel.is_set():
                    raise Cancelled("stopped")
                if isinstance(piece, Finish):
                    finish = piece
                elif piece.is_reasoning or piece.tool:
                    thoughts += piece.text
                    yield CallPreparing(piece.tool) if piece.tool else Thinking(piece.text)
                else:
                    text += piece.text
                    if new := echo.feed(showing.more(piece.text)):
                        talk.said = echo.said
                        yield Delta(new)
                    elif tool := showing.begun_call():
                        yield CallPreparing(tool)
                if echo.is_over:  # closing the pieces stops the model, which then cannot say what it took
                    size = 0 if talk.packet is None else talk.packet.tokens
                    finish = Finish("repetition", (), "", route.provider, route.model, size, size, is_estimated=True)
                    break
        yield TurnEnded(seq, finish)
        self.hooks.tell(hook_points.REQUEST_COMPLETED, talk.run, finish)
        text = self.hooks.filter(hook_points.RESPONSE, text, talk.run)
        thoughts = thoughts or finish.reasoning
        talk.finish = replace(finish, reasoning=thoughts)
        if self._budget is not None and talk.scene is not None and talk.packet is not None:
            self._budget.answered(talk.scene, talk.packet, text, thoughts, finish)
        if thoughts:
            tokens = finish.reasoning_tokens or None
            yield Event(talk.run, "thinking", "assistant", thoughts, tokens=tokens, correlation=log.correlation())
        if echo.is_over:
            said = echo.said.strip()
            return ParsedAnswer(said, (), ("the answer recited the instructions",), is_malformed=not said)
        is_cut, limit = finish.reason in CUTS, self.limits.max_commands
        answer = answer_parser.read(
            text, finish.tool_calls, specs, limit, is_cut=is_cut, others=others, data=data_of(ask), thoughts=thoughts
        )
        if answer.warnings:
            LOG.warning("answer mended: %s", "; ".join(answer.warnings))
        if answer.is_malformed:
            if held := echo.finish():
                talk.said = echo.said
                yield Delta(held)
            return answer
        if rest := echo.feed(showing.rest(answer.text)) + echo.finish():
            yield Delta(rest)
        if is_cut and answer.text and not answer.calls:
            mark = CUTS[finish.reason].format(finish.output_tokens or ask.max_tokens)  # or it would look complete
            yield Delta(mark)
            answer = replace(answer, text=answer.text + mark)
        return answer

    def _listen_plainly(
        self, talk: LoopTalk, plain: ModelTalk, route: Route, ask: Ask, seq: int
    ) -> Generator[Step, None, ParsedAnswer]:
        """Stream the answer of a tiny or small model: whole sentences, none twice, nothing that is not meant for a person."""
        stream, finish, count = self._stream_of(talk, plain), Finish("stop"), 0
        size = 0 if talk.packet is None else talk.packet.tokens
        self.hooks.tell(hook_points.REQUEST_STARTED, talk.run, ask)
        pieces = self._model.generate(route, ask, talk.cancel)
        shown = ""
        with closing(pieces) if isinstance(pieces, Generator) else nullcontext():
            for piece in pieces:
                if talk.cancel.is_set():
                    raise Cancelled("stopped")
                if isinstance(piece, Finish):
                    finish = piece
                elif not piece.is_reasoning:
                    shown = stream.feed(piece.text)
                    if shown and not plain.is_silent:
                        talk.said = stream.said
                        yield Delta(shown)
                count += 1
                if stream.is_over:  # closing the pieces stops the model, which then cannot say what it took
                    who = route.provider, route.model
                    finish = Finish("repetition", (), "", *who, size, size, output_tokens=count, is_estimated=True)
                    break
        shown = stream.finish(is_cut=finish.reason in CUTS)
        if shown and not plain.is_silent:
            yield Delta(shown)
        yield TurnEnded(seq, finish)
        self.hooks.tell(hook_points.REQUEST_COMPLETED, talk.run, finish)
        talk.finish = finish
        text = self.hooks.filter(hook_points.RESPONSE, stream.said.strip(), talk.run)
        if self._budget is not None and talk.scene is not None and talk.packet is not None:
            self._budget.answered(talk.scene, talk.packet, text, "", finish)
        return ParsedAnswer(text, ())

    def _stream_of(self, talk: LoopTalk, plain: ModelTalk) -> SentenceStream | ClaimGuard:
        stream = SentenceStream(f"{plain.system}\n{plain.forbidden}", plain.echo)
        if not plain.may_claim:
            return stream
        return ClaimGuard(stream, self._guide.claims_effect, self._guide.honest_answer(talk.messages))

    # -- before a tiny or small model -----------------------------------------------------------------

    def _plan_work(self, talk: LoopTalk) -> Plan | None:
        """What the program does in place of a tiny or small model; None to leave it to the model.

        A prompt that waited for a decision ends with its outcome. In a run that is shown its entries only effects are planned.
        """
        tier, guide = self._tier_of(talk.routes, talk.work), self._guide
        if talk.messages and talk.messages[-1].role == "tool" and talk.past.turns:
            return Say(talk.messages[-1].content)
        if talk.is_work:
            return guide.plan_work(tier, strip_notes(talk.prompt), is_list=talk.role.name == HEARTBEAT)
        plan = guide.plan(tier, talk.messages, self._packets.override)
        return plan if talk.work.terms.layout == "chat" or isinstance(plan, Do) else None

    def _tier_of(self, routes: Sequence[Route], work: Work) -> Tier:
        return self.limits.tier(routes[0]) if routes and self._make_guide is not None else "able"

    def _run_plan(self, talk: LoopTalk, guide: MessagePlanner, plan: Plan) -> Generator[Step, None, Verdict]:
        """Carry out a plan."""
        while isinstance(plan, Do) or (isinstance(plan, Grounded) and plan.after is not None):
            if isinstance(plan, Grounded):
                assert plan.after is not None
                plan = plan.after((yield from self._answer_grounded(talk, plan, guide)))
                continue
            outcome, waits = yield from self._call_tool(talk, handed_over(plan.call, talk.role.preset, strip_notes(talk.prompt)))
            if waits:
                return _suspend(waits)
            plan = plan.then(outcome)
        if isinstance(plan, Say):
            text = self.hooks.filter(hook_points.RESPONSE, plan.text, talk.run)
            yield from self._turn_of_program(talk)
            yield Delta(text)
        elif isinstance(plan, ModelTalk):
            talk.plain = plan
            answer = yield from self._ask_model(talk, talk.past.turns + 1)
            text, rest = plan.completed(answer.text, talk.finish.sureness, guide.no_answer(talk.messages))
            if rest:
                yield Delta(rest)
        else:
            text = self.hooks.filter(hook_points.RESPONSE, (yield from self._answer_grounded(talk, plan, guide)), talk.run)
            yield Delta(text)
        talk.past = talk.past.after(AnswerOutcome(text))
        state = plan.state.kept if plan.state is not None else None
        yield Event(talk.run, "message", "assistant", text, input=state, correlation=log.correlation())
        end = Verdict(True, stop_conditions.DONE, "ok")
        if talk.is_work:
            end = yield from self._end_work(talk, text, plan.outcome if isinstance(plan, Say) else "")
        verdict = self.hooks.filter(hook_points.VERDICT, end, talk.run)
        self.hooks.tell(hook_points.TURN_COMPLETED, talk.run, talk.past.turns, verdict)
        return verdict

    def _end_work(self, talk: LoopTalk, text: str, outcome: str) -> Generator[Step, None, Verdict]:
        """How work ends: a task by its own tool; anything else, when it is not done, with that for its end."""
        tool, name = ENDS[outcome]
        if any(spec.name == tool for spec in talk.specs):
            yield from self._call_tool(talk, ToolCall(new_id(), tool, {name: text or "(no words)"}))
        elif outcome:
            return Verdict(True, stop_conditions.CANNOT, outcome, text)
        return Verdict(True, stop_conditions.DONE, "ok")

    def _answer_grounded(self, talk: LoopTalk, plan: Grounded, guide: MessagePlanner) -> Generator[Step, None, str]:
        """The model's sentence where the notes support it, else the notes' own."""
        talk.plain = plan.chat
        try:
            answer = yield from self._ask_model(talk, talk.past.turns + 1)
        except Cancelled:
            raise
        except OwlError as error:
            LOG.warning("a note is quoted, because the model did not answer: %s", error)
            return plan.otherwise
        is_right = bool(answer.text) and says_what_is_asked(plan.question, answer.text) and plan.is_held(answer.text, guide.ignored)
        return f"{answer.text} {plan.sources}".rstrip() if is_right else plan.otherwise

    def _call_tool(self, talk: LoopTalk, call: ToolCall) -> Generator[Step, None, tuple[Outcome, tuple[str, ...]]]:
        """Call a tool on the program's own account, recorded and checked like a model's call."""
        yield from self._turn_of_program(talk)
        talk.messages.append(Message("assistant", "", tool_calls=(call,)))
        commands = talk.commands
        done = yield from self._dispatch.run(replace(commands, terms=replace(commands.terms, is_planned=not talk.is_work)), (call,))
        turn = self._build_turn(talk, "", done, "")
        self.hooks.tell(hook_points.DISPATCHED, talk.run, done.done)
        talk.past = talk.past.after(turn)
        outcome = done.done[0].outcome if done.done else Outcome(202, "proposed", "")
        return outcome, done.waits

    @staticmethod
    def _turn_of_program(talk: LoopTalk) -> Iterator[Step]:
        """The one turn of a prompt in which no model is asked."""
        if talk.past.turns == talk.work.turns:
            yield TurnBegun(talk.past.turns + 1, talk.routes[0].name)
            yield TurnEnded(talk.past.turns + 1, Finish("stop", provider=talk.routes[0].provider, model=talk.routes[0].model))


def _describe_waiting(talk: LoopTalk, chance: Chance) -> Event:
    """What the person is told while no model can be asked, and when another one is asked than the one that should be."""
    outcome = "waiting" if chance.wait_s else "failover"
    return Event(talk.run, "status_change", "system", chance.why, status=102, outcome=outcome, correlation=log.correlation())


def _suspend(waits: Sequence[str]) -> Verdict:
    return Verdict(True, 202, "proposed", "; ".join(waits))


def _instructions_of(route: Route, ask: Ask) -> list[str]:
    """What a local model was told and nobody wants to hear: the program's own parts of the system text, and the tools."""
    if route.is_remote:
        return []
    return [*(part.text for part in ask.system if part.name in RECITED), *(tool.description for tool in ask.tools)]


def _effect_of(one: DispatchedCommand) -> CallEffect:
    """A command for the voters."""
    outcome, name = one.outcome, one.meant.name
    given = one.meant.arguments
    status = claim(one.meant) or 102 if name == "update" and not outcome.is_error else 0
    return CallEffect(name, outcome.status, outcome.outcome, one.is_terminal, status, str(given.get("body", "")) if status else "")


def _append_note(talk: LoopTalk, text: str) -> None:
    """Tell the model, at the end of the last message, which it has not seen yet."""
    last = talk.messages[-1]
    talk.messages[-1] = replace(last, content=f"{last.content}\n(Note: {text}.)")
