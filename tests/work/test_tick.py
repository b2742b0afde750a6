"""One tick: what is claimed, what the model is told, and how a task ends, whatever happens on the way."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from record_tools import replace
from spoken import spoken
from stores import new_store
from test_database import child, killed, until
from ticks import Silent

from appliance.agent.agent import Agent
from appliance.agent.loop import Loops
from appliance.agent.loop_events import LoopStored
from appliance.agent.loop_state import LoopLimits
from appliance.agent.toolbox import Toolbox, ToolRules, tool
from appliance.clock import Alarms, now_ms, this_process
from appliance.errors import BadInput, Lost, ProviderError, Unavailable
from appliance.knowledge.entries import Entries
from appliance.knowledge.search import Search
from appliance.language.request_texts import EARLIER, NEEDS_MODEL, PREDECESSORS
from appliance.policy import policy_file
from appliance.prompt.packet import Packets
from appliance.records import Ask, Cancel, Event, Finish, LoopEnded, Measure, Piece, Route, ToolCall
from appliance.runtime.crash_points import CrashPoint
from appliance.runtime.events import Events
from appliance.runtime.settings import WorkerSettings
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.tools import planning
from appliance.work.briefing import Briefing, shortened
from appliance.work.tasks import NewTask, Task, TaskRows, TaskSettled
from appliance.work.tick import LOST, NO_CALL, STOPPED, TickParts, Ticks

Speech = Callable[[Ask, Cancel], Iterator[Piece | Finish]]
ME = "worker-1"


def say(text: str) -> Speech:
    """Says it, whatever is asked."""

    def speech(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        yield Piece(text)
        yield Finish("stop", prompt_tokens=7, output_tokens=3, provider="double", model="d")

    return speech


def call(*calls: tuple[str, dict[str, Any]], then: str = "done so") -> Speech:
    """Makes all of these calls in one answer, then says something."""

    def speech(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        if ask.messages[-1].role == "user":
            made = tuple(ToolCall(f"call_{i}", name, given) for i, (name, given) in enumerate(calls))
            yield Finish("tool_calls", made, provider="double", model="d")
        else:
            yield Piece(then)
            yield Finish("stop")

    return speech


def one_by_one(*calls: tuple[str, dict[str, Any]]) -> Speech:
    """A call an answer."""
    left = list(calls)

    def speech(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        name, given = left.pop(0)
        yield Finish("tool_calls", (ToolCall(f"c{len(left)}", name, given),))

    return speech


def until_stopped(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
    """Begins to speak and goes on until it is stopped."""
    yield Piece("Once upon")
    while not cancel.wait(0.02):
        yield Piece(" a time")
    yield Finish("stop")


def cut_off(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
    """The model's process goes away in the middle of an answer."""
    yield Piece("Once upon")
    raise Lost("the model process is gone")


def fails(error: Exception) -> Speech:
    def speech(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        if ask.messages:
            raise error
        yield Piece("never said")

    return speech


@dataclass
class Voice:
    """Model port: one way of speaking, and a record of what was asked."""

    speech: Speech
    is_there: bool = True
    asks: list[Ask] = field(default_factory=list)

    def plan(self, pool: str) -> Sequence[Route]:
        if not self.is_there:
            raise Unavailable("no model can be asked", hint="owlbox model add smollm2")
        return [Route("double", "double", "d", 8192, "native")]

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        self.asks.append(ask)
        yield from self.speech(ask, cancel)

    def measure(self, route: Route, ask: Ask) -> Measure:
        return Measure("d", {}, 0)


class Quiet:
    """Skills and status port with nothing to say."""

    def lines(self) -> Sequence[str]:
        return ()

    def show(self, session: str, state: str) -> None:
        pass


class Spy(Silent):
    """Keeps what a worker says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, phase: str, text: str = "") -> None:
        self.said.append(f"[[{phase}]] {text}".rstrip())

    def note(self, text: str) -> None:
        self.said.append(text)


class Diary:
    """What a tool has done in the world."""

    def __init__(self) -> None:
        self.lines: list[str] = []


@tool(group="test")
def write(line: Annotated[str, "what"], *, diary: Diary) -> str:
    """Write a line."""
    diary.lines.append(line)
    return f"written: {line}"


@tool(group="test", is_read_only=True)
def peek(at: Annotated[int, "how deep"], *, gate: threading.Barrier) -> str:
    """Look; waits for another one that looks too."""
    gate.wait(10)
    return f"seen {at}"


@tool(group="test")
def break_down(*, diary: Diary) -> str:
    """Fail."""
    raise ValueError("boom")


class Packing(Packets):
    """Packets that something happens to before they are made."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def relevant(self, prompt: str) -> str:
        self.before()
        return super().relevant(prompt)


@dataclass
class Held:
    """For how long workers have held their claims."""

    seconds: dict[str, float]

    def held_s(self, worker: str) -> float | None:
        return self.seconds.get(worker)


@dataclass
class Evaluated:
    """Schedules that note when they are evaluated."""

    judged: list[str]
    is_there: bool = True

    def is_due(self) -> bool:
        return self.is_there

    def round(self) -> int:
        self.judged.append("judged")
        return 0


@dataclass
class Tiers:
    tier: str

    def of(self, route: Route) -> str:
        return self.tier


class Desk:
    """A worker's desk with everything on it; `held` is what it sees of how long claims are held."""

    def __init__(
        self,
        store: Store,
        speech: Speech,
        pace: WorkerSettings | None = None,
        schedules: Evaluated | None = None,
        held: Held | None = None,
    ) -> None:
        self.store, self.model = store, Voice(speech)
        self.passed: list[CrashPoint] = []
        self.runs = Runs(store, this_process().encode())
        self.outbox = Outbox(store, this_process().encode())
        events = Events()
        self.tasks = TaskRows(store, events)
        events.subscribe(TaskSettled, lambda settled: self._settled(settled.task))
        self.entries, self.diary, self.spy = Entries(store), Diary(), Spy()
        services = {"tasks": self.tasks, "runs": self.runs, "diary": self.diary, "gate": threading.Barrier(2)}
        functions = [f for f in vars(planning).values() if hasattr(f, "tool")]
        self.toolbox = Toolbox([*functions, write, peek, break_down], services, rules=ToolRules(policy_file.load(None)))
        self.packets = Packing(list, Search(store), Quiet())
        self.limits = LoopLimits()
        agent = Agent(self.model, self.toolbox, self.packets, self.runs, self.limits)
        self.loops = Loops(store, self.runs, agent, status=Quiet())
        self.loops.events.subscribe(LoopStored, lambda stored: self._ended())
        briefing = Briefing(self.tasks, self.runs, self.entries)
        parts = TickParts(store, self.tasks, self.runs, self.loops, self.model, self.packets, briefing, held)  # type: ignore[arg-type]
        self.pace = pace or WorkerSettings()
        self.ticks = Ticks(
            parts, lambda: self.pace, self.spy, schedules=schedules, alarms=Alarms(), passed=lambda step: self.passed.append(step)
        )

    def _settled(self, task: Task) -> None:
        self.outbox.put(Notification(f"task:{task.id}:{task.attempts}:{task.status}", task.person or "ann", task.text or "-"))

    def _ended(self) -> None:
        """A loop has ended, before the tick hears of it."""

    def add(self, name: str = "count owls", description: str = "", **more: Any) -> int:
        return self.tasks.add(NewTask(name, description, person="ann", **more)).id

    def tick(self, only: int | None = None) -> bool:
        return self.ticks.tick(ME, only)

    def done(self, speech: Speech | None = None, **more: Any) -> Task:
        """One new task, worked on once."""
        self.model.speech = speech or self.model.speech
        task = self.add(**more)
        assert self.tick()
        return self.tasks.get(task)

    def events(self, task: Task) -> list[Event]:
        return self.runs.events(task.run)

    def told(self) -> list[str]:
        return [posting.notification.text for posting in self.outbox.list_postings()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def desk(store: Store) -> Iterator[Callable[..., Desk]]:
    """Makes desks; each is closed when the test ends."""
    made: list[Desk] = []

    def make(speech: Speech | None = None, **more: Any) -> Desk:
        made.append(Desk(store, speech or say("Hoot."), **more))
        return made[-1]

    yield make
    for one in made:
        one.toolbox.close()


def test_what_takes_a_more_capable_model_waits_until_one_can_be_asked(desk: Callable[..., Desk]):
    made = desk()
    tiers = Tiers("small")
    made.ticks._parts = replace(made.ticks._parts, tiers=tiers)  # type: ignore[arg-type]
    task = made.done(call(("wait_task", {"reason": f"It takes a larger model {NEEDS_MODEL}."}))).id
    other = made.done(call(("wait_task", {"reason": "Which of the two gates?"}))).id
    assert not made.tick() and not made.tick() and made.tasks.get(task).attempts == 1  # looked at, not tried again
    tiers.tier = "able"
    made.model.speech = call(("complete_task", {"summary": "planned"}))
    assert made.tick() and made.tasks.get(task).output == "planned"
    assert made.tasks.get(other).status == "waiting"


# -- the order of a tick ------------------------------------------------------------------------------


@pytest.mark.covers("B-009", "B-015")
def test_a_tick_opens_a_thread_of_its_own_and_ends_it_with_the_task(desk: Callable[..., Desk]) -> None:
    here = desk(call(("complete_task", {"summary": "three owls"})))
    task = here.done(name="count owls", description="Those in the barn.")
    run = here.runs.get(task.run)
    assert (run.kind, run.title, run.task, run.outcome, run.ended_ms is not None) == (
        "tick",
        "Working: count owls",
        str(task.id),
        "ok",
        True,
    )
    assert [(e.kind, e.role) for e in here.events(task)] == [
        ("message", "user"),
        ("tool_use", "assistant"),
        ("tool_result", "tool"),
        ("status_change", "system"),
    ]
    assert here.events(task)[-1].content == f"task {task.id}: in_progress -> complete"
    assert (task.status, task.output, task.claimed_by) == ("complete", "three owls", None)
    assert here.told() == ["three owls"]
    assert here.runs.turns(task.run)[0]["provider"] == "double"
    assert here.events(task)[2].duration_ms is not None


@pytest.mark.covers("B-009", "B-013")
def test_stale_claims_and_schedules_come_before_the_claim(desk: Callable[..., Desk]) -> None:
    judged: list[str] = []
    here = desk(schedules=Evaluated(judged))
    stale = here.add("left over")
    assert here.tasks.claim("worker-0", now=now_ms() - 400_000) is not None
    assert here.tick()
    assert judged == ["judged"] and here.tasks.get(stale).status == "complete"
    assert [line.split(" ")[0] for line in here.spy.said] == [
        "[[tick-start]]",
        "[[evaluating-schedules]]",
        "[[claiming-task]]",
        "[[tick-end]]",
    ]
    assert here.spy.said[0] == "[[tick-start]] #1" and here.spy.said[-1].endswith("didWork=true")


@pytest.mark.covers("B-009", "B-013")
@pytest.mark.parametrize("is_enabled", [True, False])
def test_schedules_are_not_judged_for_a_pinned_task_nor_named_when_there_are_none(
    desk: Callable[..., Desk], is_enabled: bool
) -> None:
    judged: list[str] = []
    here = desk(schedules=Evaluated(judged, is_enabled))
    task = here.add()
    assert here.tick(task if is_enabled else None)
    assert judged == [] and "[[evaluating-schedules]]" not in here.spy.said


@pytest.mark.covers("B-010", "B-011")
def test_without_work_there_is_no_thread_and_no_write(desk: Callable[..., Desk], store: Store) -> None:
    here = desk()
    before = store.value("PRAGMA data_version"), store.value("SELECT total_changes()")
    assert here.tick() is False
    assert (store.value("PRAGMA data_version"), store.value("SELECT total_changes()")) == before
    assert here.runs.list_runs() == [] and here.model.asks == []


@pytest.mark.covers("B-026")
def test_only_the_pinned_task_is_claimed_and_what_is_in_the_way_is_said(desk: Callable[..., Desk]) -> None:
    here = desk()
    urgent, pinned = here.add("first", priority="high"), here.add("second")
    assert here.tick(pinned)
    assert (here.tasks.get(pinned).status, here.tasks.get(urgent).status) == ("complete", "pending")
    blocked = here.add("third", blocked_by=(urgent,))
    for only, why in ((pinned, "is complete"), (99, "there is no task 99"), (blocked, "waits for 1 others")):
        assert here.tick(only) is False
        assert why in here.spy.said[-2] and "nothing claimed" in here.spy.said[-2]


@pytest.mark.covers("B-023")
def test_only_claims_older_than_three_ticks_are_stale(desk: Callable[..., Desk]) -> None:
    here = desk(pace=WorkerSettings(max_tick_s=100))
    old, young = here.add("old"), here.add("young")
    here.tasks.claim("w-1", only=old, now=now_ms() - 301_000)
    here.tasks.claim("w-2", only=young, now=now_ms() - 290_000)
    here.model.is_there = False
    with pytest.raises(Unavailable):
        here.tick()
    assert (here.tasks.get(old).status, here.tasks.get(young).status) == ("pending", "in_progress")


@pytest.mark.covers("B-023")
def test_a_clock_that_was_set_makes_no_claim_stale_and_hides_none(desk: Callable[..., Desk]) -> None:
    here = desk(held=Held({"quick": 5.0, "slow": 400.0}))
    quick, slow, unseen = here.add("a"), here.add("b"), here.add("c")
    here.tasks.claim("quick", only=quick, now=now_ms() - 10**12)
    here.tasks.claim("slow", only=slow, now=now_ms() + 10**12)
    here.tasks.claim("unseen", only=unseen, now=now_ms() - 400_000)
    here.ticks.is_due()
    assert [here.tasks.get(n).status for n in (quick, slow, unseen)] == ["in_progress", "pending", "pending"]


def test_whoever_looks_is_told_while_a_claim_is_held(desk: Callable[..., Desk]) -> None:
    here, told = desk(), list[bool]()
    here.add()
    assert here.ticks.tick(ME, hold=told.append)
    assert told == [True, False]


@pytest.mark.covers("B-184")
def test_a_task_that_cannot_be_begun_does_not_hold_up_the_others_for_ever(desk: Callable[..., Desk]) -> None:
    here = desk()

    def stumble() -> None:
        raise BadInput("it is too odd")

    here.packets.before = stumble
    first, second = here.add("odd", priority="high"), here.add("plain")
    for _ in range(3):
        assert here.tasks.get(first).status == "pending"
        with pytest.raises(BadInput):
            here.tick()
    found = here.tasks.get(first)
    assert (found.status, found.failure) == ("failed", "it could not be begun: it is too odd")
    here.packets.before = lambda: None
    assert here.tick() and here.tasks.get(second).status == "complete"


def test_a_claim_is_given_back_whatever_breaks_before_it_is_begun(desk: Callable[..., Desk]) -> None:
    here = desk()

    def crash() -> None:
        raise RuntimeError("a mistake of ours")

    here.packets.before = crash
    task = here.add()
    with pytest.raises(RuntimeError):
        here.tick()
    assert here.tasks.get(task).status == "pending" and not here.ticks.is_busy()


def test_a_claim_that_a_busy_database_does_not_take_back_is_given_back_with_the_next_tick(store: Store) -> None:
    impatient = Store.open(store.path, busy_delays_ms=(10,))
    here, held = Desk(impatient, say("Hoot.")), ExitStack()

    def lock() -> None:
        held.enter_context(store.write())

    here.packets.before = lock
    task = here.add()
    with pytest.raises(Unavailable):
        here.tick()
    held.close()
    here.packets.before = lambda: None
    assert here.tasks.get(task).status == "in_progress" and here.ticks.is_busy()
    assert here.tick() and here.tasks.get(task).status == "complete" and not here.ticks.is_busy()
    here.toolbox.close()
    impatient.close()


# -- how a task ends ------------------------------------------------------------------------------------


@pytest.mark.covers("B-032", "B-053")
@pytest.mark.parametrize(
    ("name", "given", "status", "text"),
    [
        ("complete_task", {"summary": "found"}, "complete", "found"),
        ("fail_task", {"reason": "no owls"}, "failed", "no owls"),
        ("wait_task", {"reason": "need a key"}, "waiting", "need a key"),
    ],
)
def test_terminal_tools_end_the_loop_and_nothing_after_them_counts(
    desk: Callable[..., Desk], name: str, given: dict[str, str], status: str, text: str
) -> None:
    here = desk()
    task = here.done(call((name, given), ("write", {"line": "too late"}), ("fail_task", {"reason": "no"})))
    assert (task.status, task.text) == (status, text)
    changes = [event.content for event in here.events(task) if event.kind == "status_change"]
    assert changes == [f"task {task.id}: in_progress -> {status}"]
    assert here.diary.lines == [] and len(here.model.asks) == 1
    assert here.told() == [text]


@pytest.mark.covers("B-033", "E-173")
def test_an_answer_without_a_call_completes_the_task_and_says_so(desk: Callable[..., Desk]) -> None:
    task = desk(say("There are three owls.")).done()
    assert (task.status, task.output) == ("complete", f"There are three owls.\n\n{NO_CALL}")


@pytest.mark.covers("B-034", "E-174")
def test_too_many_turns_fail_the_task(desk: Callable[..., Desk]) -> None:
    here = desk(one_by_one(*[("write", {"line": str(n)}) for n in range(9)]), pace=WorkerSettings(max_turns=3))
    task = here.done()
    assert (task.status, task.failure) == ("failed", "Max turns exceeded")
    assert here.diary.lines == ["0", "1", "2"] and here.runs.get(task.run).outcome == "max_turns"


@pytest.mark.covers("B-012")
@pytest.mark.parametrize("error", [Unavailable("the provider is down"), BadInput("wrong"), ValueError("a bug")])
def test_an_error_of_the_provider_fails_the_task_and_ends_its_thread(desk: Callable[..., Desk], error: Exception) -> None:
    here = desk(fails(error))
    task = here.add()
    try:
        here.tick()
    except ValueError:
        pass  # the worker's loop logs it and goes on
    found = here.tasks.get(task)
    assert found.status == "failed" and found.claimed_by is None
    assert here.runs.get(found.run).ended_ms is not None
    here.model.speech = say("better")
    assert here.done().status == "complete"


def test_a_change_that_waits_for_a_person_lets_the_task_wait_too(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    task = here.add()

    def propose() -> None:
        found = here.tasks.get(task)
        [loop] = [here.runs.loop(n) for (n,) in here.store.rows("SELECT id FROM loops WHERE run = ?", (found.run,))]
        with here.store.write(durable=True):
            here.loops.events.publish(LoopStored(loop, LoopEnded(202, "proposed", "edit file:a.txt")))
        here.ticks.interrupt("cancelled")

    interrupted(here, propose)
    found = here.tasks.get(task)
    assert found.status == "waiting" and "edit file:a.txt" in found.waiting_reason
    assert here.told() == [found.waiting_reason]


def test_the_claim_is_given_back_when_the_model_goes_away_and_after_three_times_the_task_is_failed(
    desk: Callable[..., Desk],
) -> None:
    here = desk(cut_off)
    task = here.add()
    for _ in range(2):
        assert here.tick() and here.ticks.was_interrupted
        assert here.tasks.get(task).status == "pending"
    assert here.tick()
    assert here.tasks.get(task).status == "failed" and "interrupted 3 times" in here.tasks.get(task).failure
    here.tasks.reset(task)
    assert here.tick() and here.tasks.get(task).status == "pending"


@pytest.mark.parametrize(
    ("outcome", "ends"), [("provider_not_available", "pending"), ("provider_timeout", "failed"), ("stream_error", "failed")]
)
def test_a_task_waits_for_the_network_without_end_but_not_for_an_answer_that_never_comes(
    desk: Callable[..., Desk], outcome: str, ends: str
) -> None:
    def silent(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        raise ProviderError("away", outcome=outcome, kind="network", retry_after_s=3600)
        yield Piece("")

    here = desk(silent)
    task = here.add()
    for _ in range(2):
        assert here.tick() and here.tasks.get(task).status == "pending"
    assert here.tick() and here.tasks.get(task).status == ends


def test_nothing_is_claimed_when_no_model_can_be_asked(desk: Callable[..., Desk]) -> None:
    here = desk()
    task = here.add()
    here.model.is_there = False
    with pytest.raises(Unavailable, match="no model"):
        here.tick()
    assert (here.tasks.get(task).status, here.tasks.get(task).attempts) == ("pending", 0)


def interrupted(here: Desk, do: Callable[[], object]) -> bool:
    """One tick during which something happens while the model speaks."""
    did: list[bool] = []
    thread = threading.Thread(target=lambda: did.append(here.tick()))
    thread.start()
    until(lambda: bool(here.model.asks))
    do()
    thread.join(60)
    assert did, "the tick did not end"
    return did[0]


def test_a_worker_that_is_stopped_gives_its_claim_back(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    task = here.add()

    def stop() -> None:
        here.loops.is_closing = True
        here.ticks.interrupt(STOPPED)

    assert interrupted(here, stop)
    found = here.tasks.get(task)
    assert (found.status, found.deaths, here.runs.get(found.run).outcome) == ("pending", 0, "stopped")
    assert here.tick() is False, "it begins nothing more"
    assert here.told() == []


class Late(Desk):
    """Its worker is asked to stop when the answer is whole."""

    def _ended(self) -> None:
        self.ticks.interrupt(STOPPED)


def test_what_was_finished_when_the_stop_came_is_not_done_again(store: Store) -> None:
    here = Late(store, say("Three owls."))
    task = here.done()
    assert task.status == "complete" and task.output.startswith("Three owls.")
    here.toolbox.close()


def test_a_task_that_is_cancelled_stops_its_worker(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    task = here.add()

    def cancel() -> None:
        here.tasks.cancel(task)
        here.ticks.check_claim()

    interrupted(here, cancel)
    found = here.tasks.get(task)
    assert (found.status, found.failure, here.runs.get(found.run).status) == ("failed", "cancelled", 499)


def test_a_worker_whose_claim_was_taken_stops_and_changes_nothing(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    task = here.add()

    def reset() -> None:
        here.tasks.reset(task)
        here.ticks.check_claim()

    interrupted(here, reset)
    found = here.tasks.get(task)
    assert (found.status, found.attempts) == ("pending", 1)
    assert here.events(found)[-1].content.endswith("in_progress -> pending") or LOST in here.events(found)[-1].content
    assert here.told() == []


@pytest.mark.parametrize("kind", ["tick", "deadline"])
def test_a_tick_ends_before_its_claim_is_stale_and_at_the_deadline(desk: Callable[..., Desk], kind: str) -> None:
    here = desk(until_stopped, pace=WorkerSettings(max_tick_s=0.1 if kind == "tick" else 120))
    task = here.add(deadline_ms=now_ms() + 4000 if kind == "deadline" else None)
    assert here.tick()
    found = here.tasks.get(task)
    assert found.status == "failed" and found.failure.startswith("its deadline" if kind == "deadline" else "it took longer")


@pytest.mark.covers("E-175")
def test_an_unknown_tool_is_an_error_result_and_the_model_goes_on(desk: Callable[..., Desk]) -> None:
    task = desk().done(one_by_one(("fly", {}), ("complete_task", {"summary": "walked"})))
    assert (task.status, task.output) == ("complete", "walked")


@pytest.mark.covers("E-176")
def test_a_tool_that_raises_is_an_error_result_and_the_next_turn_succeeds(desk: Callable[..., Desk]) -> None:
    here = desk()
    task = here.done(one_by_one(("break_down", {}), ("complete_task", {"summary": "mended"})))
    assert task.output == "mended"
    [result] = [e for e in here.events(task) if e.tool == "break_down" and e.kind == "tool_result"]
    assert result.status == 500 and "boom" in result.content


@pytest.mark.covers("E-177")
def test_two_reading_calls_of_one_answer_run_at_the_same_time_and_answer_in_order(desk: Callable[..., Desk]) -> None:
    here = desk()
    task = here.done(call(("peek", {"at": 1}), ("peek", {"at": 2})))
    assert [e.content for e in here.events(task) if e.kind == "tool_result"] == ["seen 1", "seen 2"]


# -- what the model is told -----------------------------------------------------------------------------


def first_message(here: Desk) -> str:
    return here.model.asks[-1].messages[0].content


@pytest.mark.covers("B-035", "E-172")
def test_outputs_of_predecessors_are_in_the_first_message(desk: Callable[..., Desk]) -> None:
    here = desk()
    one = here.done(say("x"), name="count owls").id
    here.store.rows("SELECT 1")
    two = here.add("write a report", "About the owls.", blocked_by=(one,))
    assert here.tick() and here.tasks.get(two).status == "complete"
    text = first_message(here)
    assert spoken(text).startswith("Task: write a report\n\nAbout the owls.")
    assert f"{PREDECESSORS}:\n[task {one}: count owls]\nx" in text


def test_texts_of_a_task_and_fitting_notes_are_in_the_first_message(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.entries.set("note://barn", "Five owls live in the barn.")
    here.done(name="owls of the barn", context_ids=("note://barn", "note://nowhere"))
    text = first_message(here)
    assert "[note://barn]\nFive owls live in the barn." in text and "note://nowhere" in text
    assert spoken(text).startswith("Notes:"), "what search found comes first"


def test_a_worker_is_told_how_to_end_and_has_its_own_menu(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.done()
    ask = here.model.asks[-1]
    assert "complete_task" in "\n".join(part.text for part in ask.system) and ask.is_background
    names = {spec.name for spec in ask.tools}
    assert {"complete_task", "fail_task", "wait_task"} <= names and "create_task" not in names


def test_what_an_earlier_attempt_has_done_is_told_so_that_it_is_not_done_again(desk: Callable[..., Desk], store: Store) -> None:
    here = desk()
    task = here.add("write twice")
    code = """
        from test_tick import *
        here = Desk(Store.open(path), one_by_one(("write", {"line": "one"}), ("write", {"line": "two"})))
        here.diary.lines = type("Loud", (list,), {"append": lambda self, line: line == "two" and (print("at two", flush=True),
            sys.stdin.read())})()
        here.tick()
    """
    killed(child(code, store.path), "at two")
    here.tasks.release(ME, "its worker died: killed")
    here.runs.recover(lambda event: None)
    here.model.speech = say("finished")
    assert here.tick()
    found, text = here.tasks.get(task), first_message(here)
    assert (found.status, found.attempts, found.deaths) == ("complete", 2, 1)
    assert EARLIER in text and '- write {"line": "one"}: written: one' in text
    assert "may or may not have taken effect" in text


@pytest.mark.covers("B-041")
@pytest.mark.parametrize(
    ("end", "status"), [(("complete_task", {"summary": "done"}), "complete"), (("fail_task", {"reason": "no water"}), "failed")]
)
def test_an_ended_task_that_is_reset_begins_anew(desk: Callable[..., Desk], end: Any, status: str) -> None:
    here = desk()
    ended = ("complete_task", {"summary": "done"})
    task = here.done(one_by_one(("write", {"line": "one"}), end), name="water the plants")
    assert (task.status, here.diary.lines) == (status, ["one"])
    here.tasks.reset(task.id)
    here.model.speech = one_by_one(("write", {"line": "two"}), ended)
    assert here.tick()
    found = here.tasks.get(task.id)
    assert (found.status, found.attempts, here.diary.lines) == ("complete", 2, ["one", "two"])
    assert EARLIER not in first_message(here) and '"one"' not in first_message(here)


def test_long_texts_are_cut_to_what_the_model_can_read(desk: Callable[..., Desk]) -> None:
    here = desk()
    one = here.done(say("x" * 90_000), name="long").id
    here.add("next", "d" * 50_000, blocked_by=(one,))
    here.model.speech = say("y")
    assert here.tick()
    assert len(first_message(here)) < 14_000 and "[cut: 50" in first_message(here)
    assert shortened("short", 10) == "short" and len(shortened("x" * 100, 40)) == 40


# -- trouble with the database --------------------------------------------------------------------------


def test_a_thread_that_was_deleted_under_the_worker_ends_its_task_all_the_same(desk: Callable[..., Desk]) -> None:
    here = desk(until_stopped)
    task = here.add()

    def delete() -> None:
        run = here.tasks.get(task).run
        with here.store.write() as execute:
            execute("DELETE FROM runs WHERE id = ?", (run,))
        here.ticks.interrupt("cancelled")

    interrupted(here, delete)
    assert here.tasks.get(task).status == "failed" and not here.ticks.is_busy()


@pytest.mark.covers("B-184")
def test_a_malformed_row_does_not_keep_the_others_from_being_done(desk: Callable[..., Desk], store: Store) -> None:
    here = desk()
    bad, good = here.add("bad", priority="high"), here.add("good")
    with store.write() as execute:
        execute("UPDATE tasks SET name = ' ' WHERE id = ?", (bad,))
    assert here.tick() and here.tasks.get(good).status == "complete"
    assert here.tick() is False


def test_steps_of_a_tasks_life_are_passed_in_order(desk: Callable[..., Desk]) -> None:
    here = desk()
    here.done()
    assert here.passed == [CrashPoint.TASK_ATTACHED, CrashPoint.TICK_ENDED]
