"""One prompt's worth of thinking: every port is a double here, so the order of things can be seen."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from stores import new_store

from appliance.agent.agent import SORRY, Agent, Work
from appliance.agent.loop import Loops
from appliance.agent.loop_state import LoopLimits, NothingArrives
from appliance.agent.toolbox import Toolbox, ToolRules, tool
from appliance.channels.delivery import OutboxSender
from appliance.channels.inbox import Inbox
from appliance.clock import CancelToken, now_ms, sleep_s, this_process
from appliance.errors import BadInput, Busy, DeadlineExceeded, Lost, OwlError, TooLarge, Unavailable
from appliance.policy.policy_file import Policy
from appliance.prompt.packet import INSTRUCTIONS, Packets
from appliance.prompt.roles import Role
from appliance.records import (
    Ask,
    CallPreparing,
    Cancel,
    Delta,
    Event,
    Finish,
    Inbound,
    LoopEnded,
    Measure,
    Message,
    Outbound,
    Outcome,
    Piece,
    Route,
    RunSettings,
    Step,
    Thinking,
    ToolCall,
    ToolSpec,
    TurnBegun,
    TurnEnded,
)
from appliance.runtime import log
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs

LOCAL = Route("local", "scripted", "small", 8192, "grammar")
FAR = Route("far", "scripted", "large", 8192, "native")
CALL = '{"name": "look", "arguments": {"at": "moon"}}'
Answer = Sequence[str | Piece | Finish | Exception]


@dataclass
class PlayedModel:
    """Model port: one list of pieces an answer; an error in it is raised, a missing Finish is added."""

    answers: list[Answer]
    asked: list[tuple[Route, Ask]] = field(default_factory=list)

    def plan(self, pool: str) -> Sequence[Route]:
        return (LOCAL,)

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        self.asked.append((route, ask))
        answer = self.answers.pop(0) if self.answers else ["done"]
        for item in answer:
            if isinstance(item, Exception):
                raise item
            yield Piece(item) if isinstance(item, str) else item
        if not any(isinstance(item, Finish) for item in answer):
            yield Finish("stop")

    def measure(self, route: Route, ask: Ask) -> Measure:
        return Measure(route.model, {}, 0)


@dataclass
class PlayedTools:
    """Tool port: remembers what was called and runs `act`."""

    act: Callable[[ToolCall], Outcome] = lambda call: Outcome(200, "ok", f"saw {call.arguments.get('at')}")
    names: Sequence[str] = ("look", "end")
    off: Sequence[str] = ()
    called: list[ToolCall] = field(default_factory=list)

    def specs(self, role: str = "chat", only: tuple[str, ...] | None = None) -> Sequence[ToolSpec]:
        schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
        return [ToolSpec(name, "Do it.", schema, is_terminal=name == "end") for name in self.names]

    def spec(self, name: str) -> ToolSpec | None:
        return next((s for s in self.specs() if s.name == name), None)

    def allowed(self, only: tuple[str, ...] | None) -> tuple[str, ...]:
        return (*self.names, *self.off)

    def meant(self, call: ToolCall) -> ToolCall:
        return call

    def dispatch(self, call: ToolCall, run: str, cancel: Cancel, session: str = "", **given: Any) -> Outcome:
        self.called.append(call)
        return self.act(call)


class Quiet:
    """Memory, skills, status and channel port that keep what they are told."""

    def __init__(self, *messages: Message) -> None:
        self.messages = messages or (Message("user", "What is up?"),)
        self.shown: list[tuple[str, str]] = []
        self.delivered: list[Outbound] = []

    def recent(self, run: str, limit: int) -> Sequence[Message]:
        return self.messages[-limit:]

    def lines(self) -> Sequence[str]:
        return ["knots: how to tie them"]

    is_idempotent = False

    def show(self, session: str, state: str) -> None:
        self.shown.append((session, state))

    def deliver(self, message: Outbound) -> None:
        self.delivered.append(message)

    def find(self, query: str, **options: Any) -> list[Any]:
        return []


def agent(model: PlayedModel, tools: Any, **limits: Any) -> Agent:
    quiet: Any = Quiet()
    return Agent(model, tools, Packets(lambda: (), quiet, quiet), quiet, LoopLimits(**limits))


def think(*answers: Answer, tools: Any = None, routes: Sequence[Route] = (LOCAL,), **limits: Any) -> tuple[list[Step], PlayedModel]:
    model = PlayedModel(list(answers))
    return list(agent(model, tools or PlayedTools(), **limits).loop("run", routes, CancelToken())), model


def native(*calls: ToolCall, reasoning: str = "") -> Finish:
    return Finish("tool_calls", tool_calls=calls, reasoning=reasoning)


def look(at: str, id: str = "", name: str = "look") -> ToolCall:
    return ToolCall(id or f"id-{at}", name, {"at": at})


def events(steps: Sequence[Step], kind: str) -> list[Event]:
    return [s for s in steps if isinstance(s, Event) and s.kind == kind]


def shown(steps: Sequence[Step]) -> str:
    return "".join(s.text for s in steps if isinstance(s, Delta))


# -- answers ------------------------------------------------------------------------------------------


def test_an_answer_streams_piece_by_piece_and_is_one_event() -> None:
    steps, model = think(["Hel", "lo ", "there."])
    assert [type(s) for s in steps] == [TurnBegun, Delta, Delta, Delta, TurnEnded, Event, LoopEnded]
    assert events(steps, "message")[0].content == shown(steps) == "Hello there." and steps[-1] == LoopEnded(200, "ok")
    assert model.asked[0][1].messages == (Message("user", "What is up?"),)


@pytest.mark.covers("S-003")
@pytest.mark.parametrize("reasoning", ["", "Let me think."])
def test_a_model_gives_text_then_calls_and_may_give_reasons(reasoning: str) -> None:
    tools = PlayedTools()
    first = ["I ", "look.", native(look("moon"), reasoning=reasoning)]
    steps, model = think(first, ["It is full."], tools=tools)
    assert [e.content for e in events(steps, "message")] == ["I look.", "It is full."]
    assert tools.called == [look("moon")] and events(steps, "tool_result")[0].content == "saw moon"
    assert [e.content for e in events(steps, "thinking")] == ([reasoning] if reasoning else [])
    assert [m.role for m in model.asked[1][1].messages] == ["user", "assistant", "tool"]


def test_streamed_thoughts_are_kept_and_never_shown() -> None:
    steps, _ = think([Piece("hm, ", True), Piece("owls", True), "Owls."])
    assert shown(steps) == "Owls." and [e.content for e in events(steps, "thinking")] == ["hm, owls"]


@pytest.mark.parametrize("text", [CALL, f"```json\n{CALL}\n```", f"<tool_call>{CALL}</tool_call>", f"\n\n{CALL}"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_call_written_as_text_is_run_once_and_never_shown(text: str, size: int) -> None:
    tools = PlayedTools()
    steps, _ = think([text[i : i + size] for i in range(0, len(text), size)], ["Full moon."], tools=tools)
    assert [c.arguments for c in tools.called] == [{"at": "moon"}]
    assert shown(steps) == "Full moon." and [e.content for e in events(steps, "message")] == ["Full moon."]


@pytest.mark.parametrize("text", ['{"colour": "red"}', "```python\nprint(1)\n```", "`code` first", "<b>bold</b>", "{", "`"])
@pytest.mark.parametrize("size", [1, 1000])
def test_what_only_looked_like_a_call_is_shown_whole(text: str, size: int) -> None:
    steps, _ = think([text[i : i + size] for i in range(0, len(text), size)])
    assert shown(steps) == text and steps[-1] == LoopEnded(200, "ok")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (CALL[:-4], "a tool call could not be read"),
        (CALL.replace("look", "fly"), "unknown tool fly"),
        ("", "the answer was empty"),
        (" \n", "the answer was empty"),
    ],
)
def test_an_unusable_answer_is_not_shown_and_the_model_is_told(text: str, note: str) -> None:
    tools = PlayedTools()
    steps, model = think(list(text), ["Better."], tools=tools)
    assert shown(steps) == "Better." and tools.called == []
    (strike,) = events(steps, "status_change")
    assert (strike.content, strike.outcome) == (note, "strike") and steps[-1] == LoopEnded(200, "ok")
    assert note in model.asked[1][1].messages[-1].content


def test_three_strikes_end_it_with_an_apology() -> None:
    steps, model = think([""], [CALL[:-4]], [CALL.replace("look", "fly")], ["never asked"])
    assert steps[-1] == LoopEnded(499, "strikes", "unknown tool fly") and len(model.asked) == 3
    assert events(steps, "message")[-1].content == SORRY and len(events(steps, "status_change")) == 3


@pytest.mark.covers("E-128", "E-127")
def test_a_call_that_cannot_be_read_beside_words_is_no_final_answer() -> None:
    tools = PlayedTools()
    steps, model = think(["I will look. ", "<tool_call>look at the moon</tool_call>"], ["It is full."], tools=tools)
    assert shown(steps) == "I will look. It is full." and tools.called == [] and len(model.asked) == 2
    assert [e.content for e in events(steps, "message")] == ["I will look.", "It is full."]
    assert [e.outcome for e in events(steps, "status_change")] == ["strike"] and steps[-1] == LoopEnded(200, "ok")
    assert model.asked[1][1].messages[-2] == Message("assistant", "I will look.")


@pytest.mark.covers("E-126")
def test_words_without_a_call_are_the_final_answer() -> None:
    steps, model = think(["o" * 600])
    assert steps[-1] == LoopEnded(200, "ok") and len(model.asked) == 1 and shown(steps) == "o" * 600


TAG = '<look at="moon"/>'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TAG, ""),
        (f"I look. {TAG}", "I look. "),
        (f"I look.\n{TAG}\nWait.", "I look.\nWait."),
        (f"a < b, <b>so</b> {TAG}", "a < b, <b>so</b> "),
        (f"Say `{TAG}` for it. {TAG}", f"Say `{TAG}` for it. "),
        (f"```xml\n{TAG}\n```\n{TAG}", f"```xml\n{TAG}\n```\n"),
        (f"I look.\n{CALL}", "I look.\n"),
        (f"I look.\n[TOOL_CALLS] [{CALL}]", "I look.\n"),
        (f"I look. <tool_call>{CALL}</tool_call>", "I look. "),
        (f"<think>Shall I? {TAG}</think>Yes. {TAG}", "Yes. "),
    ],
)
def test_a_call_among_words_is_never_seen_and_the_words_are(text: str, words: str, size: int) -> None:
    tools = PlayedTools()
    steps, _ = think([text[i : i + size] for i in range(0, len(text), size)], ["Full."], tools=tools)
    first = steps[: next(i for i, s in enumerate(steps) if isinstance(s, Event) and s.kind == "tool_use")]
    assert shown(first) == words or shown(first) == words.rstrip()
    assert [c.arguments for c in tools.called] == [{"at": "moon"}]


def test_prose_around_a_bracket_streams_on() -> None:
    steps, _ = think(["a <", " b and ", "<i", ">so</i> ", "on"])
    assert [s.text for s in steps if isinstance(s, Delta)] == ["a ", "< b and ", "<i>so</i> ", "on"]


@pytest.mark.covers("E-046", "E-047")
@pytest.mark.parametrize("target", ["x" * 600, "a\nb"])
def test_a_call_with_an_impossible_target_fails_without_being_run(target: str) -> None:
    tools = PlayedTools()
    calls = [ToolCall("1", "look", {"path": target}), look("moon")]
    steps, model = think([native(*calls)], ["done"], tools=tools)
    assert tools.called == [] and [e.call_id for e in events(steps, "tool_use")] == ["1", "id-moon"]
    assert [(e.status, e.outcome) for e in events(steps, "tool_result")] == [(400, "bad_input"), (424, "aborted")]
    assert "path" in model.asked[1][1].messages[-2].content


def test_what_was_mended_is_told_to_the_model() -> None:
    _, model = think(['<look at="moon/>'], [CALL], ["done"])
    assert model.asked[1][1].messages[-1].content == "saw moon\n(Note: a quote was missing in the tag look.)"
    assert model.asked[2][1].messages[-1].content == "saw moon"


@pytest.mark.covers("E-044")
def test_calls_past_the_cap_of_one_answer_are_cut() -> None:
    tools = PlayedTools()
    steps, model = think([f"{TAG}\n" * 20], ["done"], tools=tools, max_commands=5)
    assert len(tools.called) == 5 and steps[-1] == LoopEnded(200, "ok")
    assert "20 calls in one answer" in model.asked[1][1].messages[-1].content


def test_a_body_that_the_token_limit_cut_off_is_not_run() -> None:
    tools = PlayedTools()
    steps, _ = think(["<look>the moon and", Finish("length")], ["Better."], tools=tools)
    assert tools.called == [] and shown(steps) == "Better."


# -- caps ---------------------------------------------------------------------------------------------


def test_a_model_that_never_answers_is_ended_after_its_turns() -> None:
    steps, model = think(*[[native(look(str(n)))] for n in range(9)], max_turns=3)
    assert steps[-1] == LoopEnded(499, "max_turns", "Max turns exceeded (3)") and len(model.asked) == 3


def test_a_loop_of_too_many_commands_ends() -> None:
    tools = PlayedTools()
    steps, model = think([native(look("a"), look("b"))], [native(look("c"), look("d"))], tools=tools, max_loop_commands=3)
    assert steps[-1] == LoopEnded(499, "too_many_commands", "more than 3 commands")
    assert [c.arguments["at"] for c in tools.called] == ["a", "b", "c", "d"] and len(model.asked) == 2


def test_a_terminal_tool_ends_it_when_it_worked() -> None:
    steps, model = think([native(look("x", name="end"))], ["never asked"])
    assert steps[-1] == LoopEnded(200, "ok") and len(model.asked) == 1
    failing = PlayedTools(lambda call: Outcome(500, "failed", "no"))
    steps, model = think([native(look("x", name="end"))], ["I am sorry."], tools=failing)
    assert len(model.asked) == 2 and shown(steps) == "I am sorry."


# -- routes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Lost("gone"), Busy("busy"), Unavailable("down"), DeadlineExceeded("slow"), OwlError("odd")])
@pytest.mark.parametrize("before", [[], [Piece("hm", True)], ["{"]], ids=["nothing", "thought", "held"])
def test_a_route_that_fails_before_its_first_words_hands_over(error: OwlError, before: list[Any]) -> None:
    steps, model = think([*before, error], ["From afar."], routes=(LOCAL, FAR))
    assert [route.name for route, _ in model.asked] == ["local", "far"] and shown(steps) == "From afar."
    assert [s.route for s in steps if isinstance(s, TurnBegun)] == ["local", "far"]
    assert [ask.dialect for _, ask in model.asked] == ["grammar", "native"]


@pytest.mark.parametrize(
    ("error", "end"),
    [(Lost("gone"), (499, "interrupted")), (OwlError("odd"), (500, "failed")), (DeadlineExceeded("slow"), (500, "timeout"))],
)
def test_after_its_first_words_no_other_route_answers(error: OwlError, end: tuple[int, str]) -> None:
    steps, model = think(["It is ", error], ["never asked"], routes=(LOCAL, FAR))
    assert len(model.asked) == 1 and shown(steps) == "It is "
    assert isinstance(steps[-1], LoopEnded) and (steps[-1].status, steps[-1].outcome) == end


@pytest.mark.parametrize("error", [TooLarge("prompt of 9000 tokens"), BadInput("odd")])
def test_an_error_that_another_route_would_share_is_final(error: OwlError) -> None:
    steps, model = think([error], ["never asked"], routes=(LOCAL, FAR))
    assert len(model.asked) == 1 and steps[-1] == LoopEnded(500, error.outcome, error.message)


def test_without_a_route_it_says_what_to_do() -> None:
    steps, _ = think(routes=())
    assert steps == [LoopEnded(500, "unavailable", "no model can be asked (owlbox doctor says what is missing)")]


# -- stopping -----------------------------------------------------------------------------------------


def test_a_stop_between_turns_calls_the_model_no_more() -> None:
    cancel = CancelToken()

    def stop(call: ToolCall) -> Outcome:
        cancel.set()
        return Outcome(200, "ok", "stopped it")

    tools, model = PlayedTools(stop), PlayedModel([[native(look("a"), look("b"))], ["never asked"]])
    steps = list(agent(model, tools).loop("run", (LOCAL,), cancel))
    assert steps[-1] == LoopEnded(499, "cancelled", "stopped") and len(model.asked) == 1 and len(tools.called) == 1
    assert [(e.status, e.outcome) for e in events(steps, "tool_result")] == [(200, "ok"), (499, "cancelled")]


def test_a_stop_in_the_middle_of_an_answer_ends_it_there() -> None:
    cancel, model = CancelToken(), PlayedModel([["one ", "two ", "three"]])
    steps = []
    for step in agent(model, PlayedTools()).loop("run", (LOCAL,), cancel):
        steps.append(step)
        if shown(steps) == "one ":
            cancel.set()
    assert shown(steps) == "one " and steps[-1] == LoopEnded(499, "cancelled", "stopped")
    assert events(steps, "message") == []


# -- commands -----------------------------------------------------------------------------------------


def test_every_call_is_recorded_before_any_is_run() -> None:
    steps: list[Step] = []
    recorded: list[int] = []

    def act(call: ToolCall) -> Outcome:
        recorded.append(len(events(steps, "tool_use")))
        return Outcome(200, "ok", "seen")

    model = PlayedModel([[native(look("a"), look("b"), look("c"))]])
    for step in agent(model, PlayedTools(act)).loop("run", (LOCAL,), CancelToken()):
        steps.append(step)
    assert recorded == [3, 3, 3]
    assert [(e.tool, e.input, e.call_id) for e in events(steps, "tool_use")][0] == ("look", {"at": "a"}, "id-a")


@pytest.mark.covers("B-061")
def test_read_only_calls_run_side_by_side_with_their_results_in_order() -> None:
    meeting = threading.Barrier(3)

    @tool(group="test", is_read_only=True)
    def meet(name: str) -> str:
        """Return once all three are here."""
        meeting.wait(60)
        if name == "b":
            raise BadInput("b is no good")
        return f"{name} met"

    steps = run_with([meet], [ToolCall(n, "meet", {"name": n}) for n in "abc"])
    results = events(steps, "tool_result")
    assert [e.call_id for e in results] == ["a", "b", "c"]
    assert [e.content for e in results][::2] == ["a met", "c met"] and results[1].outcome == "bad_input"


@pytest.mark.covers("B-061")
def test_one_changing_call_makes_the_answer_sequential_and_a_failure_aborts_the_rest() -> None:
    busy, order = threading.Lock(), []

    @tool(group="test", is_read_only=True)
    def peek(name: str) -> str:
        """Look."""
        assert busy.acquire(blocking=False), "two at once"
        order.append(name)
        threading.Event().wait(0.05)
        busy.release()
        return name

    @tool(group="test")
    def change(name: str) -> str:
        """Change something."""
        order.append(name)
        raise OwlError("disk on fire")

    calls = [("peek", "1"), ("peek", "2"), ("change", "3"), ("peek", "4"), ("change", "5")]
    steps = run_with([peek, change], [ToolCall(n, name, {"name": n}) for name, n in calls])
    results = events(steps, "tool_result")
    assert order == ["1", "2", "3"] and len(events(steps, "tool_use")) == 5
    assert [(e.call_id, e.outcome) for e in results] == [
        ("1", "ok"), ("2", "ok"), ("3", "failed"), ("4", "aborted"), ("5", "aborted"),
    ]  # fmt: skip


def run_with(functions: list[Any], calls: list[ToolCall]) -> list[Step]:
    toolbox = Toolbox(functions, {}, rules=ToolRules(Policy()))
    steps, _ = think([native(*calls)], ["done"], tools=toolbox)
    toolbox.close()
    return steps


@pytest.mark.covers("B-059", "B-060", "S-019")
@pytest.mark.parametrize(
    ("call", "part"),
    [
        (ToolCall("1", "count", {"to": "x"}), "Invalid input for count: to: Expected `int`, got `str`"),
        (ToolCall("1", "count", {"to": 0}), "count failed: ZeroDivisionError"),
        (ToolCall("1", "fly", {}), "Unknown tool fly"),
    ],
)
def test_a_failed_call_is_told_to_the_model_and_the_loop_goes_on(call: ToolCall, part: str) -> None:
    @tool(group="test")
    def count(to: int) -> int:
        """Count."""
        return 1 // to

    toolbox = Toolbox([count], {}, rules=ToolRules(Policy()))
    steps, model = think([native(call)], ["I see."], tools=toolbox)
    told = model.asked[1][1].messages[-1]
    assert told.role == "tool" and part in told.content and '"is_error": true' in told.content
    assert steps[-1] == LoopEnded(200, "ok") and shown(steps) == "I see."


def test_ids_that_a_model_uses_again_are_told_apart() -> None:
    steps, model = think([CALL], [CALL], [native(look("a", "x"), look("b", "x"), ToolCall("", "look", {"at": "c"}))], ["done"])
    ids = [e.call_id for e in events(steps, "tool_use")]
    assert len(set(ids)) == 5 and all(ids) and [e.call_id for e in events(steps, "tool_result")] == ids
    told = [m for m in model.asked[-1][1].messages if m.role in ("assistant", "tool")]
    assert [c.id for m in told for c in m.tool_calls] == [m.tool_call_id for m in told if m.role == "tool"] == ids


@pytest.mark.covers("A-271")
def test_the_correlation_id_is_in_the_question_the_events_and_the_tools_log(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    @tool(group="test")
    def whoami() -> str:
        """Say for whom this is."""
        seen.append(log.correlation())
        return "ok"

    toolbox = Toolbox([whoami], {}, rules=ToolRules(Policy()))
    formatter = log.JsonLines("core", log.Redactor())
    handler = Kept(formatter)
    logging.getLogger(log.ROOT).addHandler(handler)
    logging.getLogger(log.ROOT).setLevel(logging.INFO)
    with log.correlated("4f9c"):
        steps, model = think([Piece("hm", True), native(ToolCall("1", "whoami", {}))], ["done"], tools=toolbox)
    logging.getLogger(log.ROOT).removeHandler(handler)
    assert seen == ["4f9c"] and {ask.correlation for _, ask in model.asked} == {"4f9c"}
    assert {s.correlation for s in steps if isinstance(s, Event)} == {"4f9c"}
    lines = [line for line in handler.lines if '"operation": "whoami"' in line]
    assert len(lines) == 1 and '"correlation": "4f9c"' in lines[0]


class Kept(logging.Handler):
    """Keeps formatted lines."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


# -- the ports ----------------------------------------------------------------------------------------


@pytest.mark.covers("S-002")
def test_a_whole_turn_runs_with_a_double_in_every_port(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    runs = Runs(store, this_process().encode())
    quiet: Any = Quiet(Message("user", "remembered question"))
    model, tools = PlayedModel([[native(look("moon"))], ["Full."]]), PlayedTools()
    packets = Packets(lambda: (), quiet, quiet)
    mind = Agent(model, tools, packets, quiet, LoopLimits())
    outbox = Outbox(store, runs.process)
    courier = OutboxSender(outbox)
    courier.register("local", quiet)
    courier.start()
    loops = Loops(store, runs, mind, status=quiet)
    inbox = Inbox(store, runs, loops, relevant=lambda said: packets.relevant(said.text), outbox=outbox)
    accepted = inbox.accept(Inbound("local", "ada", "real question", "m1", now_ms()), "corr")
    inbox.start(accepted.loop)
    while inbox.busy():
        sleep_s(0.01)
    inbox.close("test")
    while not quiet.delivered:
        sleep_s(0.01)
    courier.close()
    store.close()
    # Nobody listened, so the answer went to the door it belongs to.
    assert quiet.delivered == [
        Outbound("local:ada", "Full.", None, {"seq": 4}, f"answer:{accepted.loop}", "ada", accepted.run, "corr")
    ]
    assert tools.called == [look("moon")]
    assert quiet.shown == [("local:ada", "thinking"), ("local:ada", "idle")]
    first = model.asked[0][1]
    assert first.messages[0].content == "remembered question" and "knots: how to tie them" in "".join(p.text for p in first.system)


def test_an_answer_that_was_cut_off_says_so() -> None:
    steps, _ = think(["Once upon a", Finish("length", output_tokens=3)])
    assert shown(steps) == events(steps, "message")[0].content == "Once upon a … [cut at 3 tokens]"


def test_an_answer_that_went_in_circles_says_so() -> None:
    steps, _ = think(["Owls owls owls", Finish("repetition", output_tokens=3)])
    assert shown(steps) == events(steps, "message")[0].content == "Owls owls owls … [ended: it said the same over and over]"


def test_a_recital_of_the_instructions_reaches_nobody_and_is_asked_again() -> None:
    model = PlayedModel([[INSTRUCTIONS[:30], INSTRUCTIONS[30:], " And more."], ["An owl."]])
    tools = PlayedTools()
    steps = list(agent(model, tools).loop("run", (LOCAL,), CancelToken()))
    assert shown(steps) == "An owl." and len(model.asked) == 2


@pytest.mark.covers("B-015", "B-052")
def test_an_answer_and_its_thoughts_have_the_tokens_that_were_counted() -> None:
    steps, _ = think(["Owls.", Finish("stop", output_tokens=9, reasoning_tokens=6, reasoning="hm")])
    assert [(e.kind, e.tokens) for e in steps if isinstance(e, Event)] == [("thinking", 6), ("message", 3)]


@pytest.mark.covers("A-087")
@pytest.mark.parametrize(("role", "temperature"), [(Role(), 0.1), (Role(temperature=0.7), 0.7)])
def test_the_role_s_temperature_is_asked_for(role: Role, temperature: float) -> None:
    model = PlayedModel([["Hello."]])
    list(agent(model, PlayedTools()).loop("run", (LOCAL,), CancelToken(), role=role))
    assert model.asked[0][1].temperature == temperature


@pytest.mark.covers("R-199")
@pytest.mark.parametrize(
    ("layout", "usual", "asked"), [("entries", 0.1, 0.1), ("chat", 0.1, 0.7), ("chat", 0.3, 0.3), ("entries", 0.3, 0.3)]
)
def test_the_configured_temperature_holds_for_work_and_where_the_home_sets_it(layout: Any, usual: float, asked: float) -> None:
    model = PlayedModel([["Hello."]])
    work = Work(settings=RunSettings(layout=layout))
    made = agent(model, PlayedTools(), temperature=usual)
    list(made.loop("run", (LOCAL,), CancelToken(), work=work, role=Role(temperature=0.7)))
    assert model.asked[0][1].temperature == asked


# -- verdicts, through the agent ----------------------------------------------------------------------


@pytest.mark.covers("S-013")
def test_reasons_are_sent_back_with_the_calls_they_led_to() -> None:
    _, model = think([native(look("moon"), reasoning="I must look.")], ["It is full."])
    assert [m.reasoning for m in model.asked[1][1].messages] == ["", "I must look.", ""]


@pytest.mark.covers("R-073", "R-004", "E-135")
def test_three_failing_turns_in_a_row_end_a_chat_with_an_apology() -> None:
    failing = PlayedTools(lambda call: Outcome(404, "not_found", "no such thing"))
    steps, model = think(*[[native(look(str(n)))] for n in range(9)], tools=failing)
    assert steps[-1] == LoopEnded(499, "strikes", "look: not_found") and len(model.asked) == 3
    assert shown(steps) == SORRY == events(steps, "message")[-1].content


@pytest.mark.covers("R-072")
@pytest.mark.parametrize("text", ['<rm path="x"/>', "<tool_use>\n<name>look"])
def test_a_call_that_cannot_be_run_is_no_final_answer_and_not_shown(text: str) -> None:
    steps, model = think([text], ["There is none."], tools=PlayedTools(off=("rm",)))
    assert shown(steps) == "There is none." and len(model.asked) == 2 and "<" not in shown(steps)
    assert [e.outcome for e in events(steps, "status_change")] == ["strike"]


@pytest.mark.covers("E-129", "R-075")
def test_a_chat_that_goes_round_in_circles_is_ended_and_the_model_hears_nothing_of_it() -> None:
    steps, model = think(*[[native(look("moon", id=str(n)))] for n in range(9)])
    assert steps[-1].outcome == "cycle" and len(model.asked) == 3  # type: ignore[union-attr]
    assert not any("same" in m.content or "circle" in m.content for _, ask in model.asked for m in ask.messages)
    assert "circles" in shown(steps)


def test_calls_that_waited_are_run_when_a_loop_is_begun_again() -> None:
    tools, quiet = PlayedTools(), Quiet(
        Message("user", "Look at both."),
        Message("assistant", "", tool_calls=(look("moon"), look("sun"))),
        Message("tool", "allowed", tool_call_id="id-moon"),
    )  # fmt: skip
    model = PlayedModel([["Both are there."]])
    spoken: Any = quiet
    steps = list(
        Agent(model, tools, Packets(lambda: (), spoken, spoken), spoken, LoopLimits()).loop("run", (LOCAL,), CancelToken())
    )
    assert tools.called == [look("sun")] and [e.call_id for e in events(steps, "tool_result")] == ["id-sun"]
    assert [m.role for m in model.asked[0][1].messages] == ["user", "assistant", "tool", "tool"]


def test_what_arrives_meanwhile_is_shown_at_the_next_call() -> None:
    arrived = [[], [Message("user", "And the sun?")], []]

    class Meanwhile(NothingArrives):
        def arrived(self) -> list[Message]:
            return arrived.pop(0)

    quiet: Any = Quiet()
    model = PlayedModel([[native(look("moon"))], ["Both."]])
    mind = Agent(model, PlayedTools(), Packets(lambda: (), quiet, quiet), quiet, LoopLimits())
    steps = list(mind.loop("run", (LOCAL,), CancelToken(), work=Work(source=Meanwhile())))
    assert [m.role for m in model.asked[1][1].messages] == ["user", "assistant", "tool", "user"] and shown(steps) == "Both."


@pytest.mark.covers("B-156")
@pytest.mark.parametrize("text", [CALL, f"```json\n{CALL}\n```", f"<tool_call>{CALL}</tool_call>"])
def test_the_tool_of_a_call_is_told_once_while_its_arguments_come(text: str) -> None:
    steps, _ = think(list(text), ["Full moon."])
    told = [number for number, step in enumerate(steps) if step == CallPreparing("look")]
    assert len(told) == 1 and told[0] < steps.index(events(steps, "tool_use")[0])
    steps, _ = think(['{"look": "at the moon"} ', "is no call"])
    assert shown(steps) == '{"look": "at the moon"} is no call'


@pytest.mark.covers("B-156")
def test_thoughts_and_native_calls_are_told_as_they_come() -> None:
    steps, _ = think([Piece("hm, ", True), Piece("", tool="look"), native(look("moon"))], ["Full moon."])
    kinds = [step for step in steps if isinstance(step, Thinking | CallPreparing)]
    assert kinds == [Thinking("hm, "), CallPreparing("look")] and shown(steps) == "Full moon."
