"""Delegated work and processes that are killed: what had ended is told, what was begun says what it completed, the rest is done."""

import textwrap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from spoken import spoken
from stores import new_store
from test_database import child, killed
from test_inbox import Glass, Quiet, Speech, Voice, echo

from appliance.agent.agent import Agent
from appliance.agent.loop import Loops
from appliance.agent.loop_state import LoopLimits
from appliance.clock import CancelToken, this_process
from appliance.errors import Conflict
from appliance.knowledge.search import Search
from appliance.prompt.packet import Packets
from appliance.prompt.roles import Roles
from appliance.records import Ask, Cancel, Event, Finish, Inbound, Piece, ToolCall, ToolSpec
from appliance.runtime.events import Events
from appliance.runtime.settings import Config, DelegationSettings
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store import wall_clock
from appliance.store.database import Store
from appliance.work.delegation import Delegation
from appliance.work.jobs import CANCELLED, DONE, FAILED, RUNNING, WAITING, JobOrder, Jobs, JobTerms

SESSION = "local:ann"


def call_then_hang(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
    """Calls a tool, then says nothing for ever."""
    if ask.messages[-1].role == "user":
        yield Finish("tool_calls", (ToolCall("c", "look", {"at": "the owl"}),))
    else:
        print("hanging", flush=True)
        cancel.wait(60)
        yield Finish("stop")


class Looking(Glass):
    """A tool that every role has."""

    def specs(self, role: str = "chat", only: tuple[str, ...] | None = None) -> Sequence[ToolSpec]:
        return super().specs(role)


class OneEach(Delegation):
    """One piece of work at a time that somebody waits for, and one beside it."""

    places = (1, 1)


class Shop:
    """Delegation with everything it needs and a model that is made for the test, without doors."""

    def __init__(self, store: Store, speech: Speech = echo, *, is_lasting: bool = True, is_narrow: bool = False) -> None:
        self.store, me = store, this_process().encode()
        events = Events()
        self.runs, self.outbox, self.jobs = Runs(store, me), Outbox(store, me), Jobs(store, me, events)
        voice = Voice(speech)
        agent = Agent(voice, Looking(), Packets(list, Search(store), Quiet()), self.runs, LoopLimits())
        loops = Loops(store, self.runs, agent, status=Quiet(), events=events)
        roles = Roles(store.path.parent / "box", Config)
        made = OneEach if is_narrow else Delegation
        self.desk = made(self.runs, self.jobs, roles, loops, self.outbox, DelegationSettings, is_lasting=is_lasting)

    def parent(self) -> str:
        """A thread of somebody that asks for work."""
        with self.store.write():
            self.runs.touch_session(Inbound("local", "ann", "hi", "m", 1))
            return self.runs.begin(SESSION, "chat").id

    def recovered(self) -> "Shop":
        """As a process that starts does it."""
        self.runs.recover(lambda event: None)
        self.desk.recover()
        return self

    def letters(self) -> list[str]:
        return [posting.notification.text for posting in self.outbox.list_postings()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


def another(code: str, store: Store, *arguments: object):
    """Another process with a Shop at hand."""
    head = "from test_delegation_crash import *\nstore = Store.open(path)\n"
    return child(head + textwrap.dedent(code), store.path, *arguments)


def notes(shop: Shop, run: str) -> list[Event]:
    return [event for event in shop.runs.events(run) if event.kind == "delegate"]


@pytest.mark.covers("A-017")
@pytest.mark.parametrize("priority", ["normal", "background"])
def test_a_child_that_is_killed_says_what_it_had_completed(store: Store, priority: str) -> None:
    parent = Shop(store).parent()
    code = """
        shop = Shop(store, call_then_hang)
        shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, parent=sys.argv[2], priority=sys.argv[3], tool="delegate"))
        threading.Event().wait(60)
        """
    killed(another(code, store, parent, priority), "hanging")
    shop = Shop(store).recovered()
    (job,) = shop.jobs.jobs_of(parent)
    assert (job.status, job.outcome) == (FAILED, "interrupted")
    said = "it was cut off when the owl ended. Completed before that, and not taken back: look(the owl)."
    assert job.result == said
    (note,) = notes(shop, parent)
    assert note.content == job.describe_end() and note.status == 500
    assert shop.letters() == [job.describe_end()]
    assert shop.runs.get(job.run).status != 102
    assert Shop(store).recovered().letters() == [job.describe_end()]  # once


@pytest.mark.covers("S-089")
def test_the_result_of_a_child_outlives_a_parent_that_is_killed_before_it_hears_of_it(store: Store) -> None:
    parent = Shop(store).parent()
    code = """
        shop = Shop(store)
        job = shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, parent=sys.argv[2], tool=sys.argv[3]))
        shop.jobs.wait([job.id], CancelToken())
        print("ended", flush=True)
        threading.Event().wait(60)
        """
    killed(another(code, store, parent, "delegate"), "ended")
    killed(another(code, store, parent, "spawn"), "ended")
    shop = Shop(store).recovered()
    delegated, spawned = shop.jobs.jobs_of(parent)
    assert [(job.status, job.result) for job in (delegated, spawned)] == [(DONE, ".kooL")] * 2
    assert shop.letters() == [delegated.describe_end()]  # the other waits until it is asked for
    assert [note.content for note in notes(shop, parent)] == [delegated.describe_end(), spawned.describe_end()]


def test_work_that_was_not_begun_is_done_by_the_next_process_that_stays(store: Store) -> None:
    parent = Shop(store).parent()
    code = """
        shop = Shop(store, call_then_hang, is_narrow=True)
        for n in range(3):
            order = JobOrder("worker", f"Look {n}.", session=SESSION, parent=sys.argv[2], priority="background", tool="delegate")
            shop.jobs.add(order)
        threading.Event().wait(60)
        """
    killed(another(code, store, parent), "hanging")
    passing = Shop(store, is_lasting=False).recovered()
    assert sorted(job.status for job in passing.jobs.jobs_of(parent)) == [FAILED, WAITING, WAITING]
    shop = Shop(store).recovered()
    ended = shop.jobs.wait([job.id for job in shop.jobs.jobs_of(parent)], CancelToken(), 60)
    assert [job.result for job in ended[1:]] == [".1 kooL", ".2 kooL"]
    assert len(shop.letters()) == 3
    shop.desk.close()


def test_a_process_that_ends_leaves_what_nobody_waits_for_to_one_that_stays(store: Store) -> None:
    shop = Shop(store, is_lasting=False)
    job = shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, parent=shop.parent(), priority="background"))
    assert (shop.jobs.get(job.id).status, shop.jobs.get(job.id).process) == (WAITING, "")
    there = Shop(store)
    there.desk.begin_waiting()
    (ended,) = there.jobs.wait([job.id], CancelToken(), 60)
    assert ended.result == ".kooL"


def test_a_shutdown_stops_work_and_says_so(store: Store) -> None:
    begun = threading.Event()

    def speech(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        begun.set()
        cancel.wait(60)
        yield Finish("stop")

    shop = Shop(store, speech, is_narrow=True)
    parent = shop.parent()
    first = shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, parent=parent, priority="background", tool="delegate"))
    second = shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, parent=parent, priority="background", tool="delegate"))
    assert begun.wait(60)
    shop.desk.close()
    ended = shop.jobs.get(first.id)
    assert ended.is_over and "the owl was shut down" in ended.result
    assert shop.jobs.get(second.id).status == WAITING  # the next process begins it
    assert shop.letters() == [ended.describe_end()]


@pytest.mark.covers("A-093")
def test_of_work_that_waits_the_most_urgent_begins_first(store: Store) -> None:
    said: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def speech(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        said.append(spoken(ask.messages[-1].content))
        begun.set()
        assert go.wait(60)
        yield Piece("Done.")
        yield Finish("stop")

    shop = Shop(store, speech, is_narrow=True)
    parent = shop.parent()

    def add(name: str, rank: int) -> str:
        return shop.jobs.add(JobOrder("worker", name, JobTerms(rank=rank), SESSION, parent, tool="delegate")).id

    jobs = [add("first", 2)]
    assert begun.wait(60)
    jobs += [add(name, rank) for name, rank in (("low", 1), ("usual", 2), ("critical", 4), ("high", 3), ("also usual", 2))]
    go.set()
    assert {job.status for job in shop.jobs.wait(jobs, CancelToken(), 60)} == {DONE}
    assert said == ["first", "critical", "high", "usual", "also usual", "low"]
    shop.desk.close()


def test_work_that_nobody_has_begun_is_stopped_at_once_and_never_begins(store: Store) -> None:
    shop = Shop(store, is_lasting=False)
    left = shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, parent=shop.parent(), priority="background", tool="delegate"))
    assert shop.jobs.cancel(left.id).status == CANCELLED
    there = Shop(store, call_then_hang, is_narrow=True).recovered()
    first, second = (there.jobs.add(JobOrder("worker", f"{n}", session=SESSION, priority="background")) for n in "ab")
    stopped = there.jobs.cancel(second.id)  # it waits behind the first
    assert (stopped.status, stopped.outcome, stopped.attempts) == (CANCELLED, "cancelled", 0)
    with pytest.raises(Conflict), store.write():
        there.jobs.begin(second.id, "")
    there.jobs.cancel(first.id)
    assert there.jobs.wait([first.id], CancelToken(), 60)[0].status == CANCELLED
    there.desk.close()
    assert [there.jobs.get(one.id) for one in (left, second)] == [shop.jobs.get(left.id), stopped]
    assert len(there.letters()) == 3


def test_work_that_is_stopped_has_ended_when_that_is_said_and_is_not_stopped_twice(store: Store) -> None:
    hears = threading.Event()

    def speech(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        hears.set()
        cancel.wait(60)
        yield Finish("stop")

    shop = Shop(store, speech)
    job = shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, parent=shop.parent(), priority="background"))
    assert hears.wait(60)
    assert shop.jobs.cancel(job.id).status == CANCELLED
    with pytest.raises(Conflict, match="has ended: cancelled"):
        shop.jobs.cancel(job.id)
    shop.desk.close()


def test_work_of_another_process_is_not_said_to_be_stopped(store: Store) -> None:
    code = """
        shop = Shop(store, call_then_hang)
        shop.jobs.add(JobOrder("worker", "Look.", session=SESSION, priority="background"))
        threading.Event().wait(60)
        """
    other = another(code, store)
    assert other.stdout is not None and "hanging" in other.stdout.readline()
    shop = Shop(store)
    (job,) = shop.jobs.list_jobs()
    with pytest.raises(Conflict, match="another process"):
        shop.jobs.cancel(job.id)
    assert shop.jobs.get(job.id).status == RUNNING
    other.kill()
    other.wait()


def test_what_has_ended_long_ago_is_forgotten(store: Store) -> None:
    shop = Shop(store)
    job = shop.jobs.add(JobOrder("worker", "Look.", JobTerms(), SESSION, shop.parent()))
    (ended,) = shop.jobs.wait([job.id], CancelToken(), 60)
    assert shop.jobs.forget(31) == 0 and shop.jobs.find(job.id) == ended
    for day in range(1, 33):
        wall_clock.advance(store, (ended.ended_ms or 0) + day * wall_clock.DAY_MS)
    assert shop.jobs.forget(31, (ended.ended_ms or 0) + 32 * wall_clock.DAY_MS) == 1 and shop.jobs.find(job.id) is None
