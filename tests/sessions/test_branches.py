"""Branches: the tree that parents make, forks without copies, jumps, and what of it stays when a run is deleted."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_tools import replace
from stores import new_store
from test_database import a_run, said

from appliance.clock import this_process
from appliance.errors import BadInput, Conflict, NotFound
from appliance.knowledge.change_log import By
from appliance.knowledge.entries import Content, Entries
from appliance.knowledge.views import Actor, Views
from appliance.records import Event, RunSettings
from appliance.sessions.branches import Branches
from appliance.sessions.runs import Loop, Runs, Start
from appliance.store.database import Store


class Wood:
    """Runs, their branches, and short ways to make some."""

    def __init__(self, store: Store) -> None:
        self.store, self.views = store, Views(store)
        self.runs = Runs(store, this_process().encode())
        self.branches = Branches(store, self.runs, self.views)

    def ask(self, run: str, text: str, *calls: str) -> Loop:
        """A prompt that is being answered, with calls that have their results."""
        loop = self.runs.loop(self.runs.enqueue(run, self.runs.append(said(run, text)).id, "c"))
        self.runs.start_loop(loop.id)
        turn = self.runs.start_turn(loop.id, 1, "local")
        for name in calls:
            call = Event(run, "tool_use", "assistant", "", turn=turn, tool="look", input={}, call_id=name)
            self.runs.append(call)
            self.runs.append(replace(call, kind="tool_result", role="tool", content=f"saw {name}", input=None))
        return loop

    def exchange(self, run: str, text: str, *calls: str) -> int:
        """A prompt and its answer; the answer's number."""
        loop = self.ask(run, text, *calls)
        turn = self.runs.turns(run)[-1]["id"]
        event = self.runs.append(replace(said(run, f"re: {text}"), role="assistant", turn=turn))
        self.runs.end_loop(loop, 200, "ok")
        self.runs.leave(loop.id)
        return event.seq

    def shown(self, run: str) -> list[str]:
        """What the model is shown."""
        return [m.content for m in self.runs.recent(run, 80)]

    def path(self, run: str, seq: int = 0) -> list[str]:
        return [e.content for e in self.branches.path(run, seq) if e.kind == "message"]


@pytest.fixture
def wood(tmp_path: Path) -> Iterator[Wood]:
    store = new_store(tmp_path / "owlbox.db")
    yield Wood(store)
    store.close()


# -- in one run -------------------------------------------------------------------------------------


@pytest.mark.covers("A-215", "A-216")
def test_events_of_one_parent_are_branches_and_reading_one_leaves_out_the_other(wood: Wood) -> None:
    run = a_run(wood.store)
    first = wood.exchange(run, "one")
    left = wood.exchange(run, "left")
    wood.branches.jump(run, first)
    right = wood.exchange(run, "right")
    assert wood.path(run) == wood.path(run, right) == ["one", "re: one", "right", "re: right"]
    assert wood.path(run, left) == ["one", "re: one", "left", "re: left"]
    assert wood.shown(run) == wood.path(run)
    tree = wood.branches.tree(run)
    assert [(b.seq, b.from_seq, b.text, b.is_head) for b in tree] == [(left, 0, "one", False), (right, first, "right", True)]
    wood.branches.jump(run, left)  # to any leaf, and back
    assert wood.shown(run) == ["one", "re: one", "left", "re: left"]
    assert [e.content for e in wood.runs.events(run, is_branch=True)] == wood.shown(run)
    assert len(wood.runs.events(run)) == 6  # nothing has gone


@pytest.mark.covers("A-216")
def test_jump_to_the_beginning_starts_afresh(wood: Wood) -> None:
    run = a_run(wood.store)
    wood.exchange(run, "one")
    wood.branches.jump(run, 0)
    assert wood.shown(run) == []
    wood.exchange(run, "two")
    assert wood.shown(run) == ["two", "re: two"]


def test_jump_waits_for_open_prompts_and_knows_its_numbers(wood: Wood) -> None:
    run = a_run(wood.store)
    seq = wood.exchange(run, "one")
    loop = wood.ask(run, "two")
    with pytest.raises(Conflict, match="not done with"):
        wood.branches.jump(run, seq)
    wood.runs.end_loop(loop, 200, "ok")
    with pytest.raises(NotFound, match="no event 99"):
        wood.branches.jump(run, 99)


@pytest.mark.parametrize("how", ["jump", "fork"])
def test_nobody_goes_on_between_a_call_and_its_result(wood: Wood, how: str) -> None:
    run = a_run(wood.store)
    wood.exchange(run, "one", "a", "b")
    kinds = {e.seq: e.kind for e in wood.runs.events(run)}
    assert kinds[2] == "tool_use"
    with pytest.raises(BadInput, match="between a call and its result .1 is the last place"):
        getattr(wood.branches, how)(run, 2)
    assert getattr(wood.branches, how)(run, 3).head is not None


# -- forks ------------------------------------------------------------------------------------------


@pytest.mark.covers("A-216", "R-041")
def test_fork_begins_where_the_run_stands_and_copies_no_event(wood: Wood) -> None:
    run = a_run(wood.store)
    wood.exchange(run, "one")
    before = wood.store.value("SELECT COUNT(*) FROM events")
    fork = wood.branches.fork(run, alias="other_way")
    assert (fork.parent, fork.alias, fork.session) == (run, "other_way", wood.runs.get(run).session)
    assert wood.store.value("SELECT COUNT(*) FROM events") == before
    wood.exchange(run, "old")
    wood.exchange(fork.id, "new")
    assert wood.shown(fork.id) == ["one", "re: one", "new", "re: new"]
    assert wood.shown(run) == ["one", "re: one", "old", "re: old"]
    assert [e.seq for e in wood.runs.events(fork.id)] == [1, 2]
    for ref in (run, fork.id):
        branches = wood.branches.tree(ref)
        assert [(b.run, b.seq, b.from_run, b.from_seq, b.depth) for b in branches] == [(run, 4, "", 0, 0), (fork.id, 2, run, 2, 1)]


@pytest.mark.covers("R-041", "E-119")
def test_fork_copies_views_with_their_turns_and_no_text(wood: Wood) -> None:
    run = a_run(wood.store)
    entries = Entries(wood.store)
    entry = entries.put("known://owl", Content(body="nocturnal"), By("model", run), scope=f"run:{run}")
    wood.views.show(Actor("model", run, 1, 7), entry.id, "visible")
    count = wood.store.value("SELECT COUNT(*) FROM entries")
    fork = wood.branches.fork(run).id
    assert wood.store.value("SELECT COUNT(*) FROM entries") == count
    assert [(v.path, v.turn, v.visibility) for v in wood.views.views_of(fork)] == [("known://owl", 7, "visible")]
    wood.views.remove_views(fork, [entry.id])
    assert wood.views.find(run, "known://owl") is not None
    wood.views.show(Actor("model", run, 2, 9), entry.id, "archived")
    assert wood.views.find(fork, "known://owl") is None


@pytest.mark.covers("R-039")
def test_turn_numbers_go_on_in_a_fork(wood: Wood) -> None:
    run = a_run(wood.store)
    early = wood.exchange(run, "one")
    wood.exchange(run, "two")
    wood.exchange(run, "three")
    late, soon = wood.branches.fork(run).id, wood.branches.fork(run, early).id
    for fork, turn in ((late, 4), (soon, 2)):
        assert wood.runs.moment(fork) == (0, turn - 1)
        wood.exchange(fork, "next")
        assert wood.runs.moment(fork) == (1, turn)
        assert [t["number"] for t in wood.runs.turns(fork)] == [turn]
    below = wood.branches.fork(late).id
    assert wood.runs.moment(below)[1] == 4
    assert wood.runs.moment(run) == (3, 3)


def test_fork_of_a_run_that_is_answered_begins_before_its_prompt(wood: Wood) -> None:
    run = a_run(wood.store)
    wood.exchange(run, "one")
    wood.ask(run, "two", "a")
    wood.runs.enqueue(run, wood.runs.append(said(run, "three")).id, "c")
    assert wood.shown(wood.branches.fork(run).id) == ["one", "re: one"]
    fresh = a_run(wood.store)
    wood.ask(fresh, "first")
    assert wood.shown(wood.branches.fork(fresh).id) == []


def test_prompt_that_came_during_an_answer_splits_no_call_of_a_fork(wood: Wood) -> None:
    run = a_run(wood.store)
    loop = wood.ask(run, "one")
    turn = wood.runs.turns(run)[-1]["id"]
    call = Event(run, "tool_use", "assistant", "", turn=turn, tool="look", input={}, call_id="a")
    wood.runs.append(call)
    later = wood.runs.enqueue(run, wood.runs.append(said(run, "two")).id, "c")
    wood.runs.append(replace(call, kind="tool_result", role="tool", content="saw", input=None))
    seq = wood.runs.append(replace(said(run, "re: one"), role="assistant", turn=turn)).seq
    wood.runs.end_loop(loop, 200, "ok")
    wood.runs.start_loop(later)
    wood.runs.start_turn(later, 1, "local")
    wood.runs.append(replace(said(run, "re: two"), role="assistant", turn=wood.runs.turns(run)[-1]["id"]))
    wood.runs.end_loop(wood.runs.loop(later), 200, "ok")
    fork = wood.branches.fork(run, seq).id
    roles = [m.role for m in wood.runs.recent(fork, 80)]
    assert roles.index("tool") == roles.index("assistant") + 1
    assert [m.role for m in wood.runs.recent(run, 80)] == ["user", "assistant", "tool", "assistant", "user", "assistant"]


def test_fork_keeps_what_its_run_was_set_to(wood: Wood) -> None:
    session = wood.runs.get(a_run(wood.store)).session
    chosen = RunSettings(model="local", temperature=0.5, persona="a poet", no_web=True)
    run = wood.runs.begin(session, "chat", title="Owls", start=Start("first", settings=chosen))
    fork = wood.branches.fork(run.id)
    assert (fork.settings, fork.title) == (chosen, "Owls")


# -- deleting ---------------------------------------------------------------------------------------


def test_deleted_run_stays_as_far_as_its_forks_need_it_and_goes_with_the_last(wood: Wood) -> None:
    run = a_run(wood.store)
    first = wood.exchange(run, "shared")
    wood.exchange(run, "only its own")
    fork = wood.branches.fork(run, first)
    wood.exchange(fork.id, "new")
    below = wood.branches.fork(fork.id)
    assert wood.runs.delete(run) == 4
    with pytest.raises(NotFound):
        wood.runs.get(run)
    assert run not in [r.id for r in wood.runs.list_runs()]
    assert wood.shown(fork.id) == ["shared", "re: shared", "new", "re: new"] == wood.shown(below.id)
    assert wood.store.value("SELECT COUNT(*) FROM events WHERE content LIKE '%only its own%'") == 0
    assert [b.run for b in wood.branches.tree(below.id)] == [fork.id, below.id]
    with pytest.raises(NotFound):
        wood.runs.append(said(run, "too late"))
    wood.runs.delete(fork.id)
    assert wood.shown(below.id) == ["shared", "re: shared", "new", "re: new"]
    wood.runs.delete(below.id)
    assert [wood.store.value(f"SELECT COUNT(*) FROM {t}") for t in ("runs", "events", "loops", "turns")] == [0, 0, 0, 0]


def test_fork_of_nothing_does_not_hold_its_run(wood: Wood) -> None:
    run = a_run(wood.store)
    fork = wood.branches.fork(run)
    wood.exchange(run, "later")
    wood.runs.delete(run)
    assert wood.runs.get(fork.id).parent is None
    assert wood.store.value("SELECT COUNT(*) FROM runs") == 1


STEPS = st.tuples(st.sampled_from(["say", "jump", "fork", "delete"]), st.integers(0, 30), st.integers(0, 5))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=14))
def test_whatever_is_done_every_branch_reads_as_it_grew(wood: Wood, steps: list[tuple[str, int, int]]) -> None:
    grown: dict[str, list[str]] = {a_run(wood.store): []}
    points = {run: {0: list[str]()} for run in grown}
    for kind, number, which in steps:
        if not grown:
            break
        run = sorted(grown)[which % len(grown)]
        if kind == "say":
            event = wood.runs.append(said(run, f"{run[-4:]}-{wood.runs.get(run).last_seq}"))
            grown[run] = [*grown[run], event.content]
            points[run][event.seq] = grown[run]
        elif kind == "jump":
            seq = sorted(points[run])[number % len(points[run])]
            wood.branches.jump(run, seq)
            grown[run] = points[run][seq]
        elif kind == "fork":
            made = wood.branches.fork(run).id
            grown[made], points[made] = grown[run], {0: grown[run]}
        else:
            wood.runs.delete(run)
            del grown[run], points[run]
        assert {one: [e.content for e in wood.branches.path(one)] for one in grown} == grown
    for run in grown:
        wood.runs.delete(run)
    assert wood.store.value("SELECT (SELECT COUNT(*) FROM runs) + (SELECT COUNT(*) FROM events)") == 0


def test_a_long_line_of_forks_is_shown_and_deleted(wood: Wood) -> None:
    run = first = a_run(wood.store)
    wood.exchange(run, "one")
    line = [run]
    for _ in range(100):
        run = wood.branches.fork(run).id
        line.append(run)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 80)
    try:
        assert [branch.depth for branch in wood.branches.tree(first)] == list(range(len(line)))
        for one in line:
            wood.runs.delete(one)
    finally:
        sys.setrecursionlimit(before)
    assert wood.store.value("SELECT COUNT(*) FROM runs") == 0 == wood.store.value("SELECT COUNT(*) FROM events")
