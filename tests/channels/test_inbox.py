"""From an accepted message to a finished answer: once, in order, side by side, stopped, killed and taken up again."""

import os
import re
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from spoken import spoken
from stores import new_store
from test_database import child, finished, killed, until

from appliance.agent.agent import Agent
from appliance.agent.loop import Feed, Loops, Shown, Subscription
from appliance.agent.loop_state import LoopLimits
from appliance.agent.toolbox import Caller
from appliance.channels.inbox import Inbox
from appliance.channels.rpc.threads import ThreadMethods
from appliance.clock import CancelToken, monotonic_s, process, this_process
from appliance.errors import BadInput, Busy, Conflict, NotFound, OwlError, Unavailable
from appliance.knowledge.search import Search
from appliance.prompt.packet import Packets
from appliance.records import (
    Ask,
    Cancel,
    Delta,
    Event,
    Finish,
    Inbound,
    LoopEnded,
    Measure,
    Message,
    Model,
    Outcome,
    Piece,
    Route,
    ToolCall,
    ToolSpec,
)
from appliance.runtime.methods import LocalCall
from appliance.sessions.outbox import DeliveryPatience, Notification, Outbox, OutboxFilled
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.tools import threads

Speech = Callable[[Ask, Cancel], Iterator[Piece | Finish]]


# -- doubles of the ports, and a core without doors -------------------------------------------------


def echo(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
    """Says the last message of the person, backwards, without the line that says when it was sent."""
    yield Piece(spoken(ask.messages[-1].content)[::-1])
    yield Finish("stop")


def call_then_echo(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
    """Thinks, calls the tool, then tells its result. Like our local models it uses the same call id for ever."""
    if ask.messages[-1].role == "user":
        yield Piece("let me look", is_reasoning=True)
        yield Finish("tool_calls", (ToolCall("call_1", "look", {"at": "the 🦉 'owl'"}),), provider="double", model="d")
    else:
        yield Piece(f"I saw {ask.messages[-1].content}")
        yield Finish("stop", prompt_tokens=7, evaluated_tokens=5, output_tokens=3, provider="double", model="d")


def until_stopped(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
    """Begins to speak and goes on until it is stopped."""
    yield Piece("Once upon")
    while not cancel.wait(0.02):
        yield Piece(" a time")
    yield Finish("stop")


@dataclass
class Voice:
    """Model port: one way of speaking, and a record of what was asked."""

    speech: Speech = echo
    routes: Sequence[str] = ("double",)
    asks: list[Ask] = field(default_factory=list)

    def plan(self, pool: str) -> Sequence[Route]:
        return [Route(name, "double", "d", 8192, "native") for name in self.routes]

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        self.asks.append(ask)
        if route.name == "broken":
            raise Unavailable("this route is down")
        yield from self.speech(ask, cancel)

    def measure(self, route: Route, ask: Ask) -> Measure:
        return Measure("d", {}, 0)


@dataclass
class Glass:
    """Tool port with one tool, which takes as long as it is told to."""

    look: Callable[[Cancel], str] = lambda cancel: "an owl"

    def specs(self, role: str = "chat", only: tuple[str, ...] | None = None) -> Sequence[ToolSpec]:
        return [ToolSpec("look", "Look.", {"type": "object"})]

    def spec(self, name: str) -> ToolSpec | None:
        return next((s for s in self.specs() if s.name == name), None)

    def allowed(self, only: tuple[str, ...] | None) -> tuple[str, ...]:
        return ("look",)

    def meant(self, call: ToolCall) -> ToolCall:
        return call

    def dispatch(self, call: ToolCall, run: str, cancel: Cancel, session: str = "", **given: Any) -> Outcome:
        return Outcome(200, "ok", self.look(cancel))


class Quiet:
    """Skills and status port with nothing to say."""

    def lines(self) -> Sequence[str]:
        return ()

    def show(self, session: str, state: str) -> None:
        pass


class Planned:
    """Adds a plan to a model of the broker's side, which has none."""

    def __init__(self, model: object) -> None:
        self.generate, self.measure = model.generate, model.measure  # type: ignore[attr-defined]

    def plan(self, pool: str) -> Sequence[Route]:
        return [Route("local", "scripted", "s", 8192, "native")]


class Desk:
    """An inbox with everything it needs, and short ways to use it."""

    def __init__(self, store: Store, model: object, tools: Glass | None = None) -> None:
        self.store, self.me = store, this_process().encode()
        self.runs = Runs(store, self.me)
        self.model: Model = model if hasattr(model, "plan") else Planned(model)  # type: ignore[assignment]
        packets = Packets(list, Search(store), Quiet())
        self.tools = tools or Glass()
        agent = Agent(self.model, self.tools, packets, self.runs, LoopLimits())
        self.outbox = Outbox(store, self.me)
        self.loops = Loops(store, self.runs, agent, status=Quiet())
        self.inbox = Inbox(store, self.runs, self.loops, relevant=lambda said: packets.relevant(said.text), outbox=self.outbox)

    def accept(self, text: str, sender: str = "ann", message_id: str = "", thread: str = "", kind: str = "chat"):
        inbound = Inbound("local", sender, text, message_id or text, 5, thread=thread, kind=kind)  # type: ignore[arg-type]
        return self.inbox.accept(inbound, f"c-{text}")

    def ask(self, text: str, **more: str) -> Subscription:
        accepted = self.accept(text, **more)
        subscription = self.inbox.feed.subscribe(accepted.loop)
        limit = threading.Timer(60, subscription.close)  # an answer that never ends fails its test
        limit.daemon = True
        limit.start()
        self.inbox.start(accepted.loop)
        return subscription

    def answer(self, text: str, **more: str) -> list[Shown]:
        return list(self.ask(text, **more))

    def said(self, run: str = "") -> list[tuple[str, str, int]]:
        run = run or self.runs.list_runs()[-1].id
        return [(e.kind, e.content, e.status) for e in self.runs.events(run)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def desk(store: Store) -> Iterator[Callable[..., Desk]]:
    """Makes desks; each is closed when the test ends."""
    made: list[Desk] = []

    def make(speech: Speech = echo, look: Callable[[Cancel], str] | None = None, routes: Sequence[str] = ("double",)) -> Desk:
        made.append(Desk(store, Voice(speech, routes), Glass(look) if look else None))
        return made[-1]

    yield make
    for one in made:
        one.inbox.close("the test is over")


def office(code: str, store: Store, *arguments: object):
    """Another process with a Desk class at hand."""
    head = "from test_inbox import *\nstore = Store.open(path)\n"
    return child(head + textwrap.dedent(code), store.path, *arguments)


def is_whole(messages: Sequence[Message]) -> bool:
    """True when every call has exactly one result, right after it."""
    open_calls: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                return False
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            return False
        open_calls += [call.id for call in message.tool_calls]
    return not open_calls


# -- accepting --------------------------------------------------------------------------------------


def test_same_message_id_is_accepted_once_per_channel(desk: Callable[..., Desk]) -> None:
    here = desk()
    first, again = here.accept("hoot", message_id="m1"), here.accept("hoot again", message_id="m1")
    assert (first.is_new, again.is_new, again.run, again.loop) == (True, False, first.run, first.loop)
    other = here.inbox.accept(Inbound("matrix", "ann", "hoot", "m1", 1), "c")
    assert other.is_new and other.run != first.run
    assert here.said(first.run) == [("message", "hoot", 200)]


def test_same_message_at_two_processes_at_once_is_accepted_once(store: Store) -> None:
    code = """
        desk, news = Desk(store, Voice()), 0
        sys.stdin.readline()
        for number in range(40):
            news += desk.accept("hoot", message_id=str(number)).is_new
        print(news)
    """
    crowd = [office(code, store) for _ in range(3)]
    for one in crowd:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    assert sum(int(finished(one)) for one in crowd) == 40
    assert store.value("SELECT COUNT(*) FROM events") == store.value("SELECT COUNT(*) FROM inbox") == 40


def test_accepted_is_told_only_after_the_commit(desk: Callable[..., Desk], store: Store) -> None:
    here, seen = desk(), []

    def notify(name: str, value: dict[str, object]) -> None:
        if name == "accepted":
            other = Store.open(store.path)  # what anybody else would find now
            seen.append(other.value("SELECT content FROM events WHERE run = ? AND seq = ?", (value["run"], value["seq"])))
            other.close()

    door = ThreadMethods(here.inbox, here.runs)
    result = door.send(LocalCall(notify), "hoot")
    assert seen == ["hoot"]
    assert (result["status"], result["outcome"]) == (200, "ok")


@pytest.mark.parametrize(
    ("text", "thread", "error"),
    [
        ("", "", BadInput),
        (" \n ", "", BadInput),
        ("x" * 100_001, "", BadInput),
        ("half \ud800", "", BadInput),
        ("hoot", "no-such-thread", NotFound),
    ],
    ids=["empty", "blank", "too long", "half a character", "no such thread"],
)
def test_message_that_cannot_be_accepted_leaves_nothing(
    desk: Callable[..., Desk], store: Store, text: str, thread: str, error: type[OwlError]
) -> None:
    with pytest.raises(error) as caught:
        desk().accept(text, thread=thread)
    assert caught.value.hint
    tables = ("sessions", "runs", "events", "loops", "inbox")
    assert [store.value(f"SELECT COUNT(*) FROM {table}") for table in tables] == [0] * 5


def test_somebody_elses_thread_is_refused(desk: Callable[..., Desk]) -> None:
    here = desk()
    run = here.accept("mine").run
    with pytest.raises(Conflict, match="belongs to local:ann"):
        here.accept("hoot", sender="bob", thread=run)
    assert here.said(run) == [("message", "mine", 200)]


@pytest.mark.covers("S-006")
def test_session_is_channel_and_sender(desk: Callable[..., Desk]) -> None:
    here = desk()
    run = here.accept("hoot", sender="ann@example.org").run
    assert here.runs.get(run).session == "local:ann@example.org"
    assert [s["id"] for s in here.runs.sessions()] == ["local:ann@example.org"]


# -- answering --------------------------------------------------------------------------------------


@pytest.mark.covers("B-053")
def test_every_step_of_an_answer_is_a_row_and_is_shown_after_it_is_stored(desk: Callable[..., Desk]) -> None:
    here = desk(call_then_echo)
    shown = here.answer("what is there?")
    run = here.runs.list_runs()[0]
    events = here.runs.events(run.id)
    assert [(e.kind, e.role, e.content, e.tool, e.input) for e in events] == [
        ("message", "user", "what is there?", "", None),
        ("thinking", "assistant", "let me look", "", None),
        ("tool_use", "assistant", "", "look", {"at": "the 🦉 'owl'"}),
        ("tool_result", "tool", "an owl", "look", None),
        ("message", "assistant", "I saw an owl", "", None),
    ]
    assert [item for item in shown if isinstance(item, Event)] == events[1:]
    assert shown[-1] == LoopEnded(200, "ok")
    assert {e.correlation for e in events} == {"c-what is there?"}
    assert [(t["route"], t["model"], t["prompt_tokens"]) for t in here.runs.turns(run.id)] == [
        ("double", "d", 0),
        ("double", "d", 7),
    ]
    assert (run.status, run.outcome, run.last_seq) == (200, "ok", 5)


def test_every_port_of_a_turn_takes_a_double(desk: Callable[..., Desk]) -> None:
    here = desk(call_then_echo, look=lambda cancel: "two owls")
    assert here.answer("how many?")[-1] == LoopEnded(200, "ok")
    assert isinstance(here.model, Voice)
    assert [spoken(m.content) for m in here.model.asks[-1].messages] == ["how many?", "", "two owls"]
    assert {a.person for a in here.model.asks} == {here.runs.sessions()[0]["person"]} != {""}


def test_route_that_fails_before_it_speaks_gives_way_to_the_next(desk: Callable[..., Desk]) -> None:
    here = desk(echo, routes=("broken", "double"))
    assert here.answer("hoot")[-1] == LoopEnded(200, "ok")
    assert [t["route"] for t in here.runs.turns(here.runs.list_runs()[0].id)] == ["double"]


def test_model_that_fails_ends_the_answer_with_its_reason(desk: Callable[..., Desk]) -> None:
    here = desk(echo, routes=("broken",))
    assert here.answer("hoot")[-1] == LoopEnded(500, "unavailable", "this route is down")
    assert here.said()[-1] == ("status_change", "unavailable: this route is down", 499)
    assert here.runs.list_runs()[0].status == 500
    assert here.inbox.busy() == 0


def test_bug_in_a_port_ends_only_its_own_answer(desk: Callable[..., Desk]) -> None:
    def broken(cancel: Cancel) -> str:
        raise ZeroDivisionError

    here = desk(call_then_echo, look=broken)
    assert here.answer("hoot")[-1].status == 500  # type: ignore[union-attr]
    run = here.runs.list_runs()[0].id
    assert is_whole(here.runs.recent(run, 80))
    here.tools.look = lambda cancel: "an owl"
    assert here.answer("again", thread=run)[-1] == LoopEnded(200, "ok")


@pytest.mark.covers("E-322")
def test_two_messages_of_one_thread_are_answered_one_after_the_other(desk: Callable[..., Desk]) -> None:
    go = threading.Event()

    def slow(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        go.wait(60)
        yield from echo(ask, cancel)

    here = desk(slow)
    first = here.ask("one")
    run = here.runs.list_runs()[0].id
    second, third = here.ask("two", thread=run), here.ask("three", thread=run)
    until(lambda: len(here.model.asks) == 1)  # type: ignore[attr-defined]
    go.set()
    assert [list(s)[-1] for s in (first, second, third)] == [LoopEnded(200, "ok")] * 3
    said = [e.content for e in here.runs.events(run)]
    assert (said[:1], said[3:]) == (["one"], ["eno", "owt", "eerht"])
    asked = [[spoken(m.content) for m in a.messages] for a in here.model.asks]  # type: ignore[attr-defined]
    assert asked == [["one"], ["one", "eno", "two"], ["one", "eno", "two", "owt", "three"]]


def test_prompt_that_waits_is_not_part_of_the_answer_before_it(desk: Callable[..., Desk]) -> None:
    here = desk()
    run = here.accept("one").run
    here.accept("two", thread=run)
    assert here.inbox.start_waiting() == 2
    until(lambda: here.inbox.busy() == 0)
    assert [e.content for e in here.runs.events(run)] == ["one", "two", "eno", "owt"]
    assert [m.content for m in here.runs.recent(run, 80)] == ["one", "eno", "two", "owt"]


def test_two_sessions_are_answered_side_by_side(desk: Callable[..., Desk]) -> None:
    both = threading.Barrier(2, timeout=180)

    def meet(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        both.wait()  # breaks unless both are here at once
        yield from echo(ask, cancel)

    here = desk(meet)
    one, two = here.ask("one", sender="ann"), here.ask("two", sender="bob")
    assert [list(one)[-1], list(two)[-1]] == [LoopEnded(200, "ok")] * 2


@pytest.mark.covers("E-322")
def test_turns_of_one_session_in_two_processes_follow_each_other(desk: Callable[..., Desk], store: Store) -> None:
    code = """
        desk = Desk(store, Voice(until_stopped))
        subscription = desk.ask("theirs")
        print(next(iter(subscription)), flush=True)
        sys.stdin.readline()
        desk.inbox.stop(next(r.id for r in desk.runs.list_runs() if r.title == "theirs"))
        print(list(subscription)[-1])
    """
    there, here = office(code, store), desk()
    assert there.stdout is not None and there.stdout.readline()
    mine = here.ask("mine")
    threading.Event().wait(0.5)
    assert here.model.asks == []  # type: ignore[attr-defined]  # it waits for the session
    there.communicate("stop\n", timeout=180)
    assert list(mine)[-1] == LoopEnded(200, "ok")
    assert sorted(r.status for r in here.runs.list_runs()) == [200, 499]
    assert store.rows("SELECT * FROM turn_locks") == []


def test_lock_of_a_killed_process_is_passed_over(desk: Callable[..., Desk], store: Store) -> None:
    there = office('print(next(iter(Desk(store, Voice(until_stopped)).ask("theirs"))), flush=True); sys.stdin.read()', store)
    assert there.stdout is not None and there.stdout.readline()
    mine = desk().ask("mine")
    killed(there)
    assert list(mine)[-1] == LoopEnded(200, "ok")


def test_lock_that_we_could_not_give_back_does_not_shut_us_out(desk: Callable[..., Desk], store: Store) -> None:
    here = desk()
    with store.write() as execute:
        execute("INSERT INTO turn_locks VALUES ('local:ann', ?, 99, 1)", (here.me,))
    assert here.answer("hoot")[-1] == LoopEnded(200, "ok")


def test_turns_of_the_dead_are_taken_away_and_those_of_the_living_are_not(desk: Callable[..., Desk], store: Store) -> None:
    here = desk()
    living = process(os.getppid()).encode()
    dead = living.rpartition("/")[0] + "/1"
    with store.write() as execute:
        for session, holder in (("dead", dead), ("living", living), ("own", here.me)):
            execute("INSERT INTO turn_locks VALUES (?, ?, 99, 1)", (session, holder))
    here.inbox.release_dead()
    assert [session for (session,) in store.rows("SELECT session FROM turn_locks ORDER BY session")] == ["living", "own"]


@pytest.mark.parametrize("step", ["INSERT ON turn_locks", "UPDATE ON loops", "INSERT ON events", "DELETE ON turn_locks"])
def test_no_turn_is_left_whichever_write_fails(desk: Callable[..., Desk], store: Store, step: str) -> None:
    here = desk()
    here.answer("before")
    with store.write() as execute:
        execute(f"CREATE TRIGGER no BEFORE {step} BEGIN SELECT RAISE(ABORT, 'no'); END")
    try:
        here.answer("hoot")
    except OwlError:
        pass  # not accepted at all
    with store.write() as execute:
        execute("DROP TRIGGER no")
    here.inbox.close("the test ends")
    assert store.rows("SELECT * FROM turn_locks") == []


# -- stopping ---------------------------------------------------------------------------------------


def test_stop_keeps_what_was_said_and_the_thread_goes_on(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    subscription = here.ask("tell me")
    run = here.runs.list_runs()[0].id
    assert next(iter(subscription))  # it speaks
    assert here.inbox.stop(run)
    end = list(subscription)[-1]
    assert (end.status, end.outcome) == (499, "cancelled")  # type: ignore[union-attr]
    _, partial, reason = here.said(run)
    assert partial[0] == "message" and partial[1].startswith("Once upon") and partial[2] == 499
    assert reason == ("status_change", "cancelled: stopped", 499)
    assert not here.inbox.stop(run)
    here.model.speech = echo  # type: ignore[attr-defined]
    assert here.answer("go on", thread=run)[-1] == LoopEnded(200, "ok")


def test_stop_during_a_tool_leaves_a_result_for_every_call(desk: Callable[..., Desk]) -> None:
    begun = threading.Event()

    def look(cancel: Cancel) -> str:
        begun.set()
        cancel.wait(60)
        return "half an owl"

    here = desk(call_then_echo, look=look)
    subscription = here.ask("look")
    assert begun.wait(60)
    run = here.runs.list_runs()[0].id
    here.inbox.stop(run)
    assert list(subscription)[-1].status == 499  # type: ignore[union-attr]
    assert is_whole(here.runs.recent(run, 80))
    assert "half an owl" in str(here.said(run))


def test_stopped_prompt_that_waits_is_never_asked(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    first = here.ask("one")
    until(lambda: len(here.model.asks) == 1)  # type: ignore[attr-defined]
    second = here.ask("two")
    waiting = next(r.id for r in here.runs.list_runs() if r.title == "two")
    assert here.inbox.stop(waiting)
    here.inbox.stop(next(r.id for r in here.runs.list_runs() if r.title == "one"))
    assert [list(s)[-1].outcome for s in (first, second)] == ["cancelled", "cancelled"]  # type: ignore[union-attr]
    assert len(here.model.asks) == 1  # type: ignore[attr-defined]
    assert here.runs.waiting() == []


def test_close_ends_what_runs_and_keeps_what_waits_for_the_next_inbox(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    running = here.ask("one")
    until(lambda: len(here.model.asks) == 1)  # type: ignore[attr-defined]
    waiting = here.ask("two")
    start_s = monotonic_s()
    here.inbox.close("restart")
    assert monotonic_s() - start_s < 20
    assert [list(s)[-1].outcome for s in (running, waiting)] == ["stopped", "waiting"]  # type: ignore[union-attr]
    late = here.ask("three", sender="bob")  # accepted, and its listener is not left hanging
    assert list(late) == [LoopEnded(100, "waiting", "it will be answered after the restart")]
    assert [here.runs.loop(w.id).status for w in here.runs.waiting()] == [100, 100]
    after = desk()
    assert after.inbox.start_waiting() == 2
    until(lambda: after.inbox.busy() == 0)
    assert {r.title: r.status for r in after.runs.list_runs()} == {"one": 499, "two": 200, "three": 200}


def test_close_leaves_a_prompt_that_waits_for_another_process(desk: Callable[..., Desk], store: Store) -> None:
    here = desk()
    with store.write() as execute:
        execute("INSERT INTO turn_locks VALUES ('local:ann', ?, 99, 1)", (process(os.getppid()).encode(),))
    waiting = here.ask("hoot")
    threading.Event().wait(0.3)
    here.inbox.close("restart")
    assert list(waiting)[-1].outcome == "waiting"  # type: ignore[union-attr]
    assert [loop.status for loop in here.runs.waiting()] == [100]


# -- killed -----------------------------------------------------------------------------------------


def test_accepted_message_survives_a_kill_and_is_answered_by_the_next_process(desk: Callable[..., Desk], store: Store) -> None:
    killed(office('Desk(store, Voice()).accept("hoot"); print("accepted", flush=True); sys.stdin.read()', store), "accepted")
    here = desk()
    assert here.runs.recover(lambda event: None) == []
    assert here.inbox.start_waiting() == 1
    until(lambda: here.inbox.busy() == 0)
    assert here.said() == [("message", "hoot", 200), ("message", "tooh", 200)]


def test_draft_of_a_killed_answer_becomes_an_event(desk: Callable[..., Desk], store: Store) -> None:
    there = office('for item in Desk(store, Voice(until_stopped)).ask("tell me"): pass', store)
    until(lambda: store.value("SELECT draft FROM loops"))
    killed(there)
    draft, told = store.value("SELECT draft FROM loops"), []
    here = desk()
    [loop] = here.runs.recover(told.append)
    assert draft.startswith("Once upon a time")
    assert here.said() == [("message", "tell me", 200), ("message", draft, 499), ("status_change", "interrupted", 499)]
    assert told == here.runs.events(loop.run)[1:]
    assert (here.runs.get(loop.run).status, here.runs.get(loop.run).outcome) == (499, "interrupted")
    assert here.runs.sessions()[0]["status"] == "stopped"
    assert here.runs.recover(told.append) == []  # once
    assert here.answer("go on", thread=loop.run)[-1] == LoopEnded(200, "ok")


def test_open_call_of_a_killed_answer_gets_a_result(desk: Callable[..., Desk], store: Store) -> None:
    code = """
        slow = iter([False, True])
        def look(cancel):
            if next(slow):
                print("looking", flush=True)
                cancel.wait(60)
            return "an owl"
        desk = Desk(store, Voice(call_then_echo), Glass(look))
        desk.answer("first")
        list(desk.ask("second", thread=desk.runs.list_runs()[0].id))
    """
    killed(office(code, store), "looking")
    here = desk(call_then_echo)
    [loop] = here.runs.recover(lambda event: None)
    call, result = here.runs.events(loop.run)[-3:-1]
    assert (result.kind, result.tool, result.call_id, result.status) == ("tool_result", "look", call.call_id, 499)
    assert "may or may not have taken effect" in result.content
    assert is_whole(here.runs.recent(loop.run, 80))
    assert here.answer("third", thread=loop.run)[-1] == LoopEnded(200, "ok")


def test_killed_between_an_answer_and_its_draft_keeps_the_text_once(desk: Callable[..., Desk], store: Store) -> None:
    code = """
        import os
        class Mortal(Runs):
            def keep_draft(self, loop, text):
                os.kill(os.getpid(), 9)  # the answer has just become an event
        desk = Desk(store, Voice())
        desk.inbox._runs = desk.loops._runs = Mortal(store, desk.me)
        accepted = desk.accept("hoot")
        desk.runs.keep_draft(accepted.loop, "too")
        desk.inbox.start(accepted.loop)
        sys.stdin.read()
    """
    there = office(code, store)
    until(lambda: there.poll() is not None)
    killed(there)
    here = desk()
    [loop] = here.runs.recover(lambda event: None)
    assert [content for kind, content, _ in here.said() if kind == "message"] == ["hoot", "too"]


# -- listening --------------------------------------------------------------------------------------


def _event(content: str) -> Event:
    return Event(run="r", kind="message", role="assistant", content=content)


def test_slow_listener_gets_deltas_joined_and_every_event() -> None:
    subscription = Subscription()
    for item in (Delta("a"), Delta("b"), _event("1"), _event("2"), Delta("c"), Delta("d"), LoopEnded(200, "ok"), Delta("e")):
        subscription.put(item)
    assert list(subscription) == [Delta("ab"), _event("1"), _event("2"), Delta("cd"), LoopEnded(200, "ok")]


def test_listener_beside_a_fast_speaker_loses_nothing() -> None:
    subscription, heard = Subscription(), []
    listener = threading.Thread(target=lambda: heard.extend(subscription))
    listener.start()
    for number in range(2000):
        subscription.put(Delta(f"{number} "))
        if number % 100 == 0:
            subscription.put(_event(str(number)))
    subscription.put(LoopEnded(200, "ok"))
    listener.join(60)
    assert "".join(i.text for i in heard if isinstance(i, Delta)) == "".join(f"{n} " for n in range(2000))
    assert [i.content for i in heard if isinstance(i, Event)] == [str(n) for n in range(0, 2000, 100)]


def test_everybody_who_listens_hears_it_and_nobody_else() -> None:
    feed = Feed()
    one, two, other = feed.subscribe(1), feed.subscribe(1), feed.subscribe(2)
    feed.put(1, Delta("hoot"))
    feed.leave(1, one)
    feed.leave(1, one)  # leaving twice is no harm
    feed.put(1, LoopEnded(200, "ok"))
    feed.leave(2, other)
    assert list(one) == [Delta("hoot")]
    assert list(two) == [Delta("hoot"), LoopEnded(200, "ok")]
    assert list(other) == []


def test_listener_that_leaves_does_not_stop_the_answer(desk: Callable[..., Desk]) -> None:
    go = threading.Event()

    def slow(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield Piece("ho")
        go.wait(60)
        yield Piece("ot")
        yield Finish("stop")

    here = desk(slow)
    accepted = here.accept("say it")
    subscription = here.inbox.feed.subscribe(accepted.loop)
    here.inbox.start(accepted.loop)
    assert next(iter(subscription)) == Delta("ho")
    here.inbox.feed.leave(accepted.loop, subscription)
    go.set()
    until(lambda: here.inbox.busy() == 0)
    assert here.said() == [("message", "say it", 200), ("message", "hoot", 200)]


@pytest.mark.covers("S-007")
def test_metadata_of_a_message_is_kept_with_it(desk: Callable[..., Desk]) -> None:
    inbound = Inbound("local", "ann", "hi", "m-meta", 5, metadata={"room": "!a:b", "thread": 7})
    made = desk(Voice())
    accepted = made.inbox.accept(inbound, "corr")
    first = made.runs.events(accepted.run)[0]
    assert first.input is not None and first.input["metadata"] == {"room": "!a:b", "thread": 7}


def test_same_name_at_another_door_is_somebody_else(desk: Callable[..., Desk]) -> None:
    here = desk()
    run = here.accept("mine").run
    with pytest.raises(Conflict, match="belongs to local:ann"):
        here.inbox.accept(Inbound("mail", "ann", "hoot", "m-mail", 5, thread=run), "corr")


def test_a_model_sees_only_the_threads_of_its_own_person(desk: Callable[..., Desk]) -> None:
    here = desk()
    mine, more, other = here.accept("mine").run, here.accept("more").run, here.accept("secret plan", sender="bob").run
    caller = Caller(mine, CancelToken())
    assert set(re.findall(r"^\S+", threads.list_threads(runs=here.runs, caller=caller), re.MULTILINE)) == {mine, more}
    assert "more" in threads.view_thread(more, runs=here.runs, caller=caller)
    with pytest.raises(NotFound, match="no thread"):
        threads.view_thread(other, runs=here.runs, caller=caller)
    everything = Caller("", CancelToken())  # a person at the command line: trusted with the box
    assert "secret plan" in threads.view_thread(other, runs=here.runs, caller=everything)


# -- a busy database, and other processes -------------------------------------------------------------


def jammed(store: Store) -> Desk:
    """A desk whose first answer breaks off while another connection keeps the database."""
    other, hold = Store.open(store.path), ExitStack()

    def jam(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield Piece("Once")
        hold.enter_context(other.write())
        raise Unavailable("the model is gone")

    here = Desk(Store.open(store.path, busy_delays_ms=[20]), Voice(jam))
    assert here.answer("one")[-1].status == 499  # type: ignore[union-attr]
    assert here.runs.loop(1).status == 102
    hold.close()
    here.model.speech = echo  # type: ignore[attr-defined]
    return here


def test_end_that_could_not_be_recorded_is_recorded_before_the_next_turn(store: Store) -> None:
    here = jammed(store)
    run = here.runs.loop(1).run
    assert here.answer("two", thread=run)[-1] == LoopEnded(200, "ok")
    assert [here.runs.loop(n).status for n in (1, 2)] == [499, 200]
    assert ("message", "Once", 499) in here.said(run) and store.rows("SELECT * FROM turn_locks") == []
    here.inbox.close("the test is over")


@pytest.mark.parametrize("mend", ["close", "recover", "delete"])
def test_end_that_could_not_be_recorded_is_mended_once(store: Store, mend: str) -> None:
    here = jammed(store)
    run = here.runs.loop(1).run
    if mend == "recover":
        assert len(here.runs.recover(lambda event: None)) == 1
    elif mend == "delete":
        assert here.runs.delete(run) > 0
    here.inbox.close("the test is over")
    if mend != "delete":
        assert here.runs.loop(1).status == 499
        assert [e.kind for e in here.runs.events(run)].count("status_change") == 1


def test_prompt_that_a_busy_database_keeps_waiting_is_answered_later_and_once(store: Store) -> None:
    here, other = Desk(Store.open(store.path, busy_delays_ms=[20]), Voice()), Store.open(store.path)
    accepted = here.accept("hoot")
    with other.write():
        subscription = here.inbox.feed.subscribe(accepted.loop)
        here.inbox.start(accepted.loop)
        assert list(subscription)[-1].status == 100  # type: ignore[union-attr]
        until(lambda: here.inbox.busy() == 0)
    assert here.runs.loop(accepted.loop).status == 100
    assert here.answer("again", thread=accepted.run)[-1] == LoopEnded(200, "ok")
    assert [e.content for e in here.runs.events(accepted.run) if e.role == "assistant"] == ["tooh", "niaga"]
    here.inbox.close("the test is over")


def test_prompt_that_is_told_to_have_failed_is_not_answered_after_all(desk: Callable[..., Desk], store: Store) -> None:
    with store.write() as execute:
        execute("CREATE TRIGGER no BEFORE INSERT ON turn_locks BEGIN SELECT RAISE(ABORT, 'no'); END")
    here = desk()
    assert here.answer("hoot")[-1].status == 500  # type: ignore[union-attr]
    assert here.runs.waiting() == [] and here.runs.list_runs()[0].status == 500


def test_prompt_of_a_living_process_is_left_to_it(desk: Callable[..., Desk], store: Store) -> None:
    there = office('Desk(store, Voice()).accept("hoot"); print("accepted", flush=True); sys.stdin.read()', store)
    assert there.stdout is not None and there.stdout.readline()
    here = desk()
    assert here.inbox.start_waiting() == 0
    killed(there)
    assert here.inbox.start_waiting() == 1


def test_prompt_that_another_process_took_is_followed_to_its_end(desk: Callable[..., Desk], store: Store) -> None:
    code = """
        def slow(ask, cancel):
            print("begun", flush=True)
            sys.stdin.readline()
            yield from echo(ask, cancel)
        desk = Desk(store, Voice(slow))
        desk.inbox.start(1)
        until(lambda: desk.inbox.busy() == 0)
    """
    here = desk()
    accepted = here.accept("hoot")
    there = office(code, store)
    assert there.stdout is not None and there.stdout.readline()
    subscription = here.inbox.feed.subscribe(accepted.loop)
    here.inbox.start(accepted.loop)
    there.communicate("go\n", timeout=180)
    first, event, end = list(subscription)
    assert (first, end) == (Delta("tooh"), LoopEnded(200, "ok")) and isinstance(event, Event)
    assert here.model.asks == []  # type: ignore[attr-defined]


def test_answer_that_nobody_heard_is_put_into_the_outbox_in_the_transaction_that_ends_it(desk: Callable[..., Desk]) -> None:
    here = desk()
    accepted = here.accept("hoot")
    ends: list[tuple[str, int]] = []
    # Within that transaction both are there already, or neither is: whoever looks sees the bell before the commit.
    here.outbox.events.subscribe(OutboxFilled, lambda filled: ends.append(("rung", here.runs.loop(accepted.loop).status)))
    here.inbox.start_waiting()
    until(lambda: here.inbox.busy() == 0)
    (posting,) = here.outbox.list_postings()
    letter = posting.notification
    assert (letter.key, letter.person, letter.text, letter.run) == (f"answer:{accepted.loop}", "ann", "tooh", accepted.run)
    assert (letter.context, letter.session, letter.channel, letter.correlation) == ("user:ann", "local:ann", "local", "c-hoot")
    assert here.runs.events(accepted.run)[letter.metadata["seq"] - 1].content == "tooh" and ends == [("rung", 200)]


def test_answers_that_are_heard_or_fail_are_no_letters(desk: Callable[..., Desk]) -> None:
    here = desk(routes=("broken",))
    here.accept("hoot")
    here.inbox.start_waiting()
    until(lambda: here.inbox.busy() == 0)
    there = desk()
    list(there.ask("heard"))
    until(lambda: there.inbox.busy() == 0)
    assert here.outbox.list_postings() == there.outbox.list_postings() == []


def test_the_end_of_a_tasks_loop_that_was_written_late_is_no_letter(desk: Callable[..., Desk]) -> None:
    """A full disk keeps the end back until the task is settled; its session has no door to which a letter could go."""
    here = desk()
    here.runs.open_session("task:7", "ann", "user:ann")
    run = here.runs.begin("task:7", "tick", title="Working: hoot", task=7)
    prompt = here.runs.append(Event(run.id, "message", "user", "hoot", channel="task"))
    loop = here.runs.loop(here.runs.enqueue(run.id, prompt.id, "c-hoot"))
    here.runs.start_loop(loop.id)
    turn = here.runs.start_turn(loop.id, 1, "double")
    here.runs.append(Event(run.id, "message", "assistant", "tooh", turn=turn))
    here.loops.finish(loop, "", LoopEnded(200, "ok"))
    assert here.runs.loop(loop.id).status == 200 and here.outbox.list_postings() == []


class Slow(Voice):
    """A model; the database is kept busy from before it is asked until it is. `known`: the newest turn on record when it was."""

    def __init__(self, path: Path, *, is_freed: bool = False) -> None:
        super().__init__(self._speak)
        self.path, self.is_freed = path, is_freed
        self.known: list[Any] = []
        self.free = threading.Event()

    def plan(self, pool: str) -> Sequence[Route]:
        held = threading.Event()
        threading.Thread(target=self._keep_busy, args=(held,), daemon=True).start()
        assert held.wait(30)
        if self.is_freed:
            threading.Timer(0.3, self.free.set).start()
        return super().plan(pool)

    def _keep_busy(self, held: threading.Event) -> None:
        store = Store.open(self.path)
        with store.write():
            held.set()
            self.free.wait(30)
        store.close()

    def _speak(self, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        store = Store.open(self.path)
        self.known.append(store.value("SELECT MAX(id) FROM turns"))
        store.close()
        self.free.set()
        yield from echo(ask, cancel)


def test_the_model_is_asked_while_that_is_recorded_and_heard_afterwards(store: Store) -> None:
    model = Slow(store.path)
    here = Desk(store, model)
    first = next(item for item in here.ask("hoot") if isinstance(item, Delta))
    assert first.text == "tooh" and model.known == [None] and store.value("SELECT COUNT(*) FROM turns") == 1
    here.inbox.close("the test is over")


def test_what_a_process_before_left_is_on_record_as_begun_before_the_model_is_asked(store: Store) -> None:
    """A box that loses its power under load is asked the same once more, and not at every start."""
    model = Slow(store.path, is_freed=True)
    here = Desk(store, model)
    accepted = here.accept("hoot")
    with store.write() as execute:
        execute("UPDATE loops SET process = ''")
    heard = here.inbox.feed.subscribe(accepted.loop)
    here.inbox.start(accepted.loop)
    assert [item.text for item in heard if isinstance(item, Delta)] == ["tooh"] and model.known == [1]
    here.inbox.close("the test is over")


@pytest.mark.covers("A-193")
def test_prompts_that_wait_in_a_session_are_listed_and_cleared(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    first = here.ask("first")
    assert next(iter(first))  # being answered
    run = here.accept("second").run
    here.accept("third"), here.accept("of another", sender="bob")
    here.inbox.start(here.inbox.waiting("local:ann")[0].id)  # one in our queue, one that nobody has begun to queue
    assert [here.runs.events(loop.run)[0].content for loop in here.inbox.waiting("local:ann")] == ["second", "third"]
    assert here.inbox.clear("local:ann") == 2 and here.inbox.waiting("local:ann") == []
    assert len(here.inbox.waiting("local:bob")) == 1 and here.inbox.busy() == 2
    assert here.inbox.clear("local:bob") == 1
    here.inbox.stop(here.runs.list_runs(limit=10)[-1].id)
    until(lambda: here.inbox.busy() == 0)
    assert here.runs.get(run).status == 499 and here.runs.waiting() == []


@pytest.mark.covers("A-193")
def test_a_full_queue_accepts_nothing_more_but_knows_what_it_has(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.outbox.patience = DeliveryPatience(max_waiting=2)
    for number in range(9):  # reminders that wait for a channel lock nobody out
        here.outbox.put(Notification(f"reminder {number}", "ann", "hoot"))
    here.accept("one"), here.accept("two")
    with pytest.raises(Busy, match="queue full: 2"):
        here.accept("three")
    assert not here.accept("two").is_new and len(here.runs.waiting()) == 2
