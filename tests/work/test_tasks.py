"""TaskRows: who gets one, what they wait for, what a lost claim can still do, and what models may know of them."""

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_tools import replace
from stores import new_store
from test_database import a_run, child, finished, said

from appliance import tools
from appliance.agent.toolbox import Toolbox, ToolRules
from appliance.clock import CancelToken, now_ms, this_process
from appliance.errors import BadInput, Conflict, NotFound, OwlError, StoreError
from appliance.knowledge.entries import Entries
from appliance.policy.policy_file import Policy
from appliance.records import Outcome, ToolCall
from appliance.runtime.crash_points import CrashPoint
from appliance.runtime.events import Events
from appliance.service.undo import Undo
from appliance.sessions.runs import Runs
from appliance.work.tasks import Claim, NewTask, Task, TaskChanged, TaskRows, TaskSettled

STATES = ("pending", "in_progress", "waiting", "complete", "failed")


class Bench:
    """A queue, what it told, and the tools over it."""

    def __init__(self, path: Path) -> None:
        self.store = new_store(path)
        self.told: list[Task] = []
        self.nudged: list[int] = []
        self.steps: list[CrashPoint] = []
        events = Events()
        events.subscribe(TaskSettled, lambda settled: self.told.append(settled.task))
        events.subscribe(TaskChanged, lambda changed: self.nudged.append(changed.task.id))
        self.tasks = TaskRows(self.store, events, passed=self.steps.append)
        self.runs = Runs(self.store, this_process().encode())
        services = {"tasks": self.tasks, "runs": self.runs}
        self.toolbox = Toolbox(tools.load(), services, rules=ToolRules(Policy()), store=self.store)

    def add(self, name: str = "water the garden", **more: Any) -> int:
        return self.tasks.add(NewTask(name, **more)).id

    def claim(self, worker: str = "w1", only: int | None = None) -> Claim:
        claim = self.tasks.claim(worker, only)
        assert claim is not None
        return claim

    def claimed(self, worker: str = "w1", only: int | None = None) -> int | None:
        claim = self.tasks.claim(worker, only)
        return claim and claim.task.id

    def done(self, task: int, text: str = "done") -> Task:
        return self.tasks.finish(self.claim(only=task), "complete", text)

    def status(self, task: int) -> str:
        return self.tasks.get(task).status

    def in_state(self, status: str, name: str = "a task") -> int:
        """A new task in this state."""
        task = self.add(name)
        if status != "pending":
            claim = self.claim(only=task)
            if status != "in_progress":
                self.tasks.finish(claim, status, "because")  # type: ignore[arg-type]
        return task

    def call(self, tool: str, run: str = "", session: str = "", /, **arguments: Any) -> Outcome:
        return self.toolbox.dispatch(ToolCall("c1", tool, arguments), run, CancelToken(), session)

    def everything(self) -> list[Any]:
        tables = ("tasks", "task_deps", "task_attempts")
        return [self.store.rows(f"SELECT * FROM {table} ORDER BY id") for table in tables]

    def open_blockers(self) -> dict[int, int]:
        return dict(self.store.rows("SELECT id, open_blockers FROM tasks"))

    def counted(self) -> dict[int, int]:
        """What `open_blockers` must be."""
        rows = self.store.rows(
            "SELECT t.id, (SELECT COUNT(*) FROM task_deps d WHERE d.task = t.id AND NOT EXISTS "
            "(SELECT 1 FROM tasks b WHERE b.id = d.blocker AND b.status = 'complete')) FROM tasks t"
        )
        return dict(rows)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "owlbox.db")
    yield made
    made.toolbox.close()
    made.store.close()


# -- adding and changing ----------------------------------------------------------------------------


@pytest.mark.covers("B-027")
def test_a_task_has_all_its_fields(bench: Bench) -> None:
    before_ms, later_ms = now_ms(), now_ms() + 60_000
    first = bench.add("first")
    new = NewTask(
        "  second\n task ", "words", "high", (first, first), ("memory://a", "box://b"), later_ms, "ann", "local:ann", "run-1"
    )
    task = bench.tasks.add(new)
    assert (task.name, task.description, task.priority, task.status) == ("second task", "words", "high", "pending")
    assert (task.blocked_by, task.open_blockers, task.context_ids) == ((first,), 1, ("memory://a", "box://b"))
    assert (task.deadline_ms, task.person, task.session, task.origin) == (later_ms, "ann", "local:ann", "run-1")
    assert (task.waiting_reason, task.failure, task.output, task.claimed_by, task.claimed_ms, task.run) == (
        "",
        "",
        "",
        None,
        None,
        "",
    )
    assert before_ms <= task.created_ms == task.updated_ms <= now_ms() and task.ended_ms is None
    assert bench.tasks.get(task.id) == task and bench.tasks.get(first).priority == "medium"


@pytest.mark.parametrize(
    "new",
    [
        NewTask(""),
        NewTask(" \n"),
        NewTask("x" * 201),
        NewTask("x", priority="urgent"),
        NewTask("x", blocked_by=(0,)),
        NewTask("x", blocked_by=(2**70,)),
        NewTask("x", blocked_by=range(1, 1002)),
        NewTask("x", description="x" * 100_001),
        NewTask("x", deadline_ms=1),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_row(bench: Bench, new: NewTask) -> None:
    with pytest.raises(BadInput) as caught:
        bench.tasks.add(new)
    assert caught.value.hint and sum(bench.tasks.counts().values()) == 0


def test_the_same_key_gives_the_first_task_again(bench: Bench) -> None:
    first = bench.tasks.add(NewTask("once", key="users/ann/a.json"))
    assert bench.tasks.add(NewTask("twice", key="users/ann/a.json")) == first
    assert bench.tasks.add(NewTask("other", key="users/bob/a.json")).id != first.id


def test_a_number_is_never_used_again(bench: Bench) -> None:
    first = bench.add()
    bench.tasks.delete(first)
    assert bench.add() > first


@pytest.mark.covers("B-037", "E-170")
def test_only_a_pending_task_is_updated(bench: Bench) -> None:
    other, task = bench.add("other"), bench.add()
    changed = bench.tasks.update(task, name="new", description="d", priority="low", blocked_by=[other], deadline_ms=now_ms() + 9000)
    assert (changed.name, changed.description, changed.priority, changed.blocked_by) == ("new", "d", "low", (other,))
    assert changed.deadline_ms and bench.tasks.update(task, deadline_ms=0).deadline_ms is None
    assert bench.tasks.update(task, blocked_by=[]).open_blockers == 0
    for status in STATES[1:]:
        task = bench.in_state(status)
        with pytest.raises(Conflict, match=f"task {task} is {status}"):
            bench.tasks.update(task, name="x")
        assert bench.tasks.get(task).name == "a task"


@pytest.mark.covers("B-037", "E-170")
@pytest.mark.parametrize("status", STATES)
def test_an_empty_update_gives_the_task_as_it_is(bench: Bench, status: str) -> None:
    task = bench.in_state(status)
    before = bench.tasks.get(task)
    assert bench.tasks.update(task) == before == bench.tasks.get(task)
    with pytest.raises(NotFound, match="no task 99"):
        bench.tasks.update(99)


@pytest.mark.covers("B-038", "E-171")
@pytest.mark.parametrize("status", STATES)
def test_any_task_is_deleted_but_one_in_progress(bench: Bench, status: str) -> None:
    task = bench.in_state(status)
    waiting = bench.add(blocked_by=[task])
    if status == "in_progress":
        with pytest.raises(Conflict, match="by worker w1") as caught:
            bench.tasks.delete(task)
        assert "reset" in caught.value.hint and bench.status(task) == status
    else:
        assert bench.tasks.delete(task) == [waiting]
        assert bench.tasks.find(task) is None and bench.tasks.attempts(task) == []
        assert bench.open_blockers() == bench.counted() == {waiting: 1}
    with pytest.raises(NotFound):
        bench.tasks.delete(99)


@pytest.mark.covers("B-041", "E-178")
@pytest.mark.parametrize("status", STATES)
def test_reset_begins_anew_from_any_state(bench: Bench, status: str) -> None:
    task = bench.in_state(status)
    after = bench.add(blocked_by=[task])
    now = bench.tasks.reset(task)
    assert (now.status, now.claimed_by, now.claimed_ms, now.waiting_reason, now.output, now.failure, now.ended_ms) == (
        "pending",
        None,
        None,
        "",
        "",
        "",
        None,
    )
    assert [one.ended_ms is None for one in bench.tasks.attempts(task)].count(True) == 0
    assert bench.tasks.get(after).open_blockers == 1 and bench.claimed() == task
    with pytest.raises(NotFound):
        bench.tasks.reset(99)


def test_reset_forgets_a_deadline_that_has_passed_and_earlier_deaths(bench: Bench) -> None:
    task, later = bench.add(deadline_ms=now_ms() + 50), bench.add(deadline_ms=now_ms() + 10**9)
    assert bench.tasks.claim("w1", now=now_ms() + 100) is not None and bench.status(task) == "failed"
    with bench.store.write() as execute:
        execute("UPDATE tasks SET deadline_ms = 5, deaths = 3 WHERE id = ?", (task,))
    now = bench.tasks.reset(task)
    assert (now.deadline_ms, now.deaths) == (None, 0) and bench.tasks.reset(later).deadline_ms is not None


@pytest.mark.parametrize("status", STATES)
def test_a_person_says_that_a_task_is_done(bench: Bench, status: str) -> None:
    task = bench.in_state(status)
    after = bench.add(blocked_by=[task])
    if status in ("complete", "failed", "in_progress"):
        with pytest.raises(Conflict):
            bench.tasks.complete(task)
        return
    assert bench.tasks.complete(task).status == "complete"
    assert bench.tasks.get(after).open_blockers == 0


@pytest.mark.parametrize("status", STATES)
def test_cancel_ends_what_waits_and_asks_what_runs_to_stop(bench: Bench, status: str) -> None:
    task = bench.in_state(status)
    told = len(bench.told)
    if status in ("complete", "failed"):
        with pytest.raises(Conflict, match=f"is {status} already"):
            bench.tasks.cancel(task)
        return
    now = bench.tasks.cancel(task)
    if status == "in_progress":
        assert now.status == "in_progress" and now.cancel_ms is not None and bench.nudged == [task] and len(bench.told) == told
    else:
        assert (now.status, now.failure, bench.nudged) == ("failed", "cancelled", []) and bench.told[-1] == now


def test_a_worker_sees_that_its_task_is_to_be_cancelled_and_ends_it(bench: Bench) -> None:
    task = bench.add()
    claim = bench.claim()
    assert bench.tasks.get(task).cancel_ms is None
    bench.tasks.cancel(task)
    assert bench.tasks.holds(claim) and bench.tasks.get(task).cancel_ms is not None
    assert bench.tasks.finish(claim, "failed", "cancelled").failure == "cancelled"
    assert bench.tasks.attempts(task)[0].outcome == "cancelled" and not bench.tasks.holds(claim)


@pytest.mark.parametrize("way", ["give_back", "release", "release_stale"])
def test_a_task_that_was_to_be_cancelled_does_not_begin_again_without_its_worker(bench: Bench, way: str) -> None:
    task = bench.add()
    claim = bench.claim()
    bench.tasks.cancel(task)
    if way == "give_back":
        bench.tasks.give_back(claim, "stopped")
    elif way == "release":
        bench.tasks.release("w1", "killed")
    else:
        bench.tasks.release_stale(now_ms() + 1)
    assert (bench.tasks.get(task).failure, bench.told[-1].id, bench.claimed()) == ("cancelled", task, None)


# -- lists ------------------------------------------------------------------------------------------


@pytest.mark.covers("B-039", "B-040", "E-179")
def test_lists_are_newest_first_and_pages_fit_together(bench: Bench) -> None:
    made = [bench.add(f"t{n}", priority=("low", "medium", "high")[n % 3], person="ab"[n % 2]) for n in range(25)]
    with bench.store.write() as execute:
        execute("UPDATE tasks SET created_ms = 5000 + id / 4 - (id = 20) * 1000")  # ties, and one from before the clock was set
    ids = [t.id for t in bench.tasks.list_tasks(limit=100)]
    assert ids == [*sorted(set(made) - {20}, reverse=True), 20]
    assert [t.id for page in range(0, 30, 7) for t in bench.tasks.list_tasks(limit=7, offset=page)] == ids
    assert {t.priority for t in bench.tasks.list_tasks(priority="high")} == {"high"}
    assert {t.person for t in bench.tasks.list_tasks(person="a", limit=100)} == {"a"}
    bench.done(made[0])
    assert [t.id for t in bench.tasks.list_tasks(status="complete")] == [made[0]]
    assert bench.tasks.counts() == {"pending": 24, "in_progress": 0, "waiting": 0, "complete": 1, "failed": 0}


# -- claims -----------------------------------------------------------------------------------------


@pytest.mark.covers("B-028")
def test_the_most_urgent_then_the_oldest_is_claimed_first(bench: Bench) -> None:
    made = {name: bench.add(name, priority=name.rstrip("12")) for name in ("low1", "medium1", "high1", "low2", "medium2", "high2")}
    order = [made[name] for name in ("high1", "high2", "medium1", "medium2", "low1", "low2")]
    assert [bench.claimed() for _ in range(6)] == order and bench.claimed() is None


@pytest.mark.covers("B-028", "B-030", "E-168")
def test_a_task_begins_when_all_it_waits_for_exists_and_is_complete(bench: Bench) -> None:
    first, second = bench.add("first", priority="low"), bench.add("second", priority="low")
    both = bench.add("both", priority="high", blocked_by=[first, second])
    never = bench.add("never", priority="high", blocked_by=[9999])
    assert [bench.claimed(only=task) for task in (both, never)] == [None, None]
    bench.done(first)
    assert bench.claimed(only=both) is None
    claim = bench.claim(only=second)
    for status in ("failed", "waiting"):
        bench.tasks.finish(claim, status, "no")  # type: ignore[arg-type]
        assert bench.claimed(only=both) is None
        bench.tasks.reset(second)
        claim = bench.claim(only=second)
    bench.tasks.finish(claim, "complete", "yes")
    assert bench.claimed() == both and bench.claimed() is None and bench.status(never) == "pending"
    assert not bench.tasks.is_work()


@pytest.mark.covers("B-030")
def test_a_task_whose_blocker_is_deleted_waits_until_it_is_told_otherwise(bench: Bench) -> None:
    blocker = bench.add()
    task = bench.add(blocked_by=[blocker])
    bench.done(blocker)
    bench.tasks.delete(blocker)
    assert bench.claimed() is None
    bench.tasks.update(task, blocked_by=[])
    assert bench.claimed() == task


@pytest.mark.covers("B-026", "E-158", "E-159")
@pytest.mark.parametrize("status", STATES)
def test_a_task_is_claimed_by_its_number_only_while_it_is_pending(bench: Bench, status: str) -> None:
    task, other = bench.in_state(status), bench.add("other", priority="high")
    assert bench.claimed("w2", only=task) == (task if status == "pending" else None)
    assert bench.claimed("w2", only=999) is None
    assert bench.status(other) == "pending"
    while bench.claimed("w3"):
        pass
    assert bench.claimed("w4") is None and not bench.tasks.is_work()


@pytest.mark.covers("B-029", "E-156")
def test_two_workers_never_get_the_same_task(bench: Bench) -> None:
    first, second = bench.add(), bench.add()
    assert [bench.claimed("w1"), bench.claimed("w2"), bench.claimed("w3")] == [first, second, None]
    assert bench.tasks.get(first).claimed_by == "w1" and bench.tasks.get(second).claimed_by == "w2"


def test_a_claim_is_told_after_it_is_kept_and_an_attempt_is_noted(bench: Bench) -> None:
    task = bench.add()
    claim = bench.claim()
    assert (claim.task.id, claim.worker, claim.number, claim.task.attempts) == (task, "w1", 1, 1)
    bench.tasks.attach(claim, "run-1")
    assert bench.tasks.claim_of("run-1") == replace(claim, task=bench.tasks.get(task)) and bench.tasks.get(task).run == "run-1"
    assert bench.tasks.claim_of("run-2") is None
    bench.tasks.finish(claim, "complete", "ok")
    [attempt] = bench.tasks.attempts(task)
    assert (attempt.number, attempt.worker, attempt.run, attempt.outcome) == (1, "w1", "run-1", "complete") and attempt.ended_ms
    assert bench.steps == [CrashPoint.TASK_ADDED, CrashPoint.TASK_CLAIMED, CrashPoint.TASK_SETTLED]


def test_claiming_costs_no_write_while_there_is_nothing_to_do(bench: Bench) -> None:
    bench.add(blocked_by=[99])
    before = bench.store.value("SELECT total_changes()")
    assert bench.tasks.claim("w1") is None and bench.tasks.release_stale(now_ms()) == []
    assert bench.store.value("SELECT total_changes()") == before


LOST: dict[str, Callable[[Bench, Claim], object]] = {
    "reset": lambda b, c: b.tasks.reset(c.task.id),
    "its worker was taken for dead": lambda b, c: b.tasks.release(c.worker, "silent"),
    "it took too long": lambda b, c: b.tasks.release_stale(now_ms() + 1),
    "given back": lambda b, c: b.tasks.give_back(c, "stopping"),
    "ended": lambda b, c: b.tasks.finish(c, "waiting", "x"),
    "deleted": lambda b, c: (b.tasks.reset(c.task.id), b.tasks.delete(c.task.id)),
    "claimed by another": lambda b, c: (b.tasks.reset(c.task.id), b.claim("w2")),
    "claimed again by the same worker": lambda b, c: (b.tasks.reset(c.task.id), b.claim(c.worker)),
}


@pytest.mark.parametrize("how", LOST)
def test_a_lost_claim_changes_nothing(bench: Bench, how: str) -> None:
    bench.add()
    claim = bench.claim()
    bench.tasks.attach(claim, "run-1")
    LOST[how](bench, claim)
    before, told = bench.everything(), len(bench.told)
    for status in ("complete", "failed", "waiting"):
        with pytest.raises(Conflict, match="not worked on here any more"):
            bench.tasks.finish(claim, status, "late")  # type: ignore[arg-type]
    with pytest.raises(Conflict):
        bench.tasks.attach(claim, "run-9")
    assert not bench.tasks.holds(claim) and not bench.tasks.give_back(claim, "late")
    assert bench.everything() == before and len(bench.told) == told


def test_giving_back_is_nobodys_fault(bench: Bench) -> None:
    task = bench.add()
    assert bench.tasks.give_back(bench.claim(), "the worker stops")
    now = bench.tasks.get(task)
    assert (now.status, now.deaths, now.attempts) == ("pending", 0, 1) and bench.told == []
    assert bench.tasks.attempts(task)[0].outcome == "the worker stops" and bench.claim().number == 2


@pytest.mark.covers("B-032", "E-172")
@pytest.mark.parametrize(("status", "field"), [("complete", "output"), ("failed", "failure"), ("waiting", "waiting_reason")])
def test_an_end_is_kept_and_told_in_one_transaction(bench: Bench, status: Any, field: str) -> None:
    task = bench.add()
    done = bench.tasks.finish(bench.claim(), status, "the words")
    assert (done.status, getattr(done, field), done.text, done.claimed_by) == (status, "the words", "the words", None)
    assert bench.told == [done] and (done.ended_ms is None) == (status == "waiting") and bench.tasks.get(task) == done


def test_what_cannot_be_told_has_not_happened(tmp_path: Path) -> None:
    def refuse(settled: TaskSettled) -> None:
        raise StoreError("the outbox is full")

    store = new_store(tmp_path / "owlbox.db")
    events = Events()
    events.subscribe(TaskSettled, refuse)
    tasks = TaskRows(store, events)
    task = tasks.add(NewTask("x")).id
    claim = tasks.claim("w1")
    assert claim is not None
    with pytest.raises(StoreError):
        tasks.finish(claim, "complete", "done")
    assert tasks.get(task).status == "in_progress" and tasks.holds(claim)
    store.close()


@pytest.mark.covers("B-035", "E-172")
def test_a_task_gets_what_its_predecessors_found_out(bench: Bench) -> None:
    b, a, c = (bench.add(name, person="ann") for name in ("b", "a", "c"))
    foreign = bench.add("foreign", person="bob")
    task = bench.add("sum", person="ann", blocked_by=[a, b, foreign, c, 99])
    for one in (b, a, foreign):
        bench.done(one, f"output of {one}")
    assert [(p.name, p.output) for p in bench.tasks.predecessors(task)] == [("a", f"output of {a}"), ("b", f"output of {b}")]
    assert bench.tasks.predecessors(a) == [] and bench.tasks.blocking(a) == [task]


# -- deadlines, dead and slow workers ---------------------------------------------------------------


def test_a_task_whose_deadline_has_passed_fails_instead_of_beginning(bench: Bench) -> None:
    due_ms = now_ms() + 60_000
    task, blocked = bench.add(deadline_ms=due_ms), bench.add(deadline_ms=due_ms, blocked_by=[99])
    fine = bench.add(deadline_ms=due_ms + 1)
    assert bench.tasks.is_work(due_ms)
    claim = bench.tasks.claim("w1", now=due_ms)
    assert claim is not None and claim.task.id == fine and [t.id for t in bench.told] == [task, blocked]
    assert {(t.status, t.failure) for t in bench.told} == {("failed", "its deadline passed before it was begun")}
    assert bench.tasks.claim("w1", now=due_ms + 10) is None


@pytest.mark.covers("B-023", "E-163")
def test_a_task_that_takes_three_times_too_long_is_pending_again(bench: Bench) -> None:
    now, limit_ms = now_ms(), 3 * 120_000
    slow, quick, done = (bench.add(name) for name in ("slow", "quick", "done"))
    bench.tasks.claim("w1", slow, now=now - 600_000)
    bench.tasks.claim("w1", quick, now=now - 120_000)
    claim = bench.tasks.claim("w1", done, now=now - 900_000)
    assert claim is not None
    finished_one, quick_one = bench.tasks.finish(claim, "complete", "ok"), bench.tasks.get(quick)
    [again] = bench.tasks.release_stale(now - limit_ms)
    assert (again.id, again.status, again.claimed_by, again.claimed_ms, again.deaths) == (slow, "pending", None, None, 1)
    assert bench.tasks.get(quick) == quick_one and bench.tasks.get(done) == finished_one
    assert bench.tasks.release_stale(now - limit_ms) == []


def test_a_dead_worker_leaves_all_its_tasks_and_nobody_elses(bench: Bench) -> None:
    mine, also, theirs = bench.add(), bench.add(), bench.add()
    for worker in ("w1", "w1", "w2"):
        bench.claim(worker)
    assert [t.id for t in bench.tasks.release("w1", "killed")] == [mine, also]
    assert [bench.status(t) for t in (mine, also, theirs)] == ["pending", "pending", "in_progress"]
    assert bench.tasks.get(mine).deaths == 1 and bench.tasks.release("w1", "killed") == []


def test_a_task_that_kills_three_workers_waits_for_a_person_with_the_evidence(bench: Bench) -> None:
    task, runs = bench.add(), []
    for worker in ("w1", "w2", "w3"):
        assert bench.status(task) == "pending" and bench.told == []
        claim = bench.claim(worker)
        runs.append(a_run(bench.store))
        bench.tasks.attach(claim, runs[-1])
        bench.runs.append(said(runs[-1]))
        bench.runs.append(replace(said(runs[-1]), kind="tool_use", role="assistant", tool="search"))
        bench.tasks.release(worker, f"{worker} was killed")
    now = bench.tasks.get(task)
    assert (now.status, now.deaths) == ("waiting", 3) and bench.told == [now] and "died 3 times" in now.waiting_reason
    for number, run in enumerate(runs, 1):
        part = f"attempt {number}: thread {run}, step 2 (tool_use search), then w{number} was killed"
        assert part in now.waiting_reason
    assert bench.claimed() is None
    bench.tasks.reset(task)
    assert bench.tasks.release(bench.claim("w4").worker, "killed")[0].status == "pending"


def test_a_task_at_which_three_workers_hang_waits_for_a_person(bench: Bench) -> None:
    task = bench.add()
    for worker in ("w1", "w2", "w3"):
        bench.claim(worker)
        bench.tasks.release_stale(now_ms() + 1)
    now = bench.tasks.get(task)
    assert now.status == "waiting" and now.waiting_reason.count("it took too long") == 3 and bench.told == [now]


def test_attempts_that_ended_well_do_not_count_as_deaths(bench: Bench) -> None:
    bench.add()
    for _ in range(5):
        bench.tasks.give_back(bench.claim(), "stopping")
    assert bench.tasks.release(bench.claim().worker, "killed")[0].status == "pending"


# -- dependencies -----------------------------------------------------------------------------------


@pytest.mark.covers("B-031", "E-167")
def test_no_task_may_wait_for_itself_however_far_around(bench: Bench) -> None:
    a, b, c, d = (bench.add(name) for name in "abcd")
    with pytest.raises(Conflict, match=f": {a} → {a} ") as caught:
        bench.tasks.update(a, blocked_by=[a])
    assert caught.value.hint
    bench.tasks.update(a, blocked_by=[b])
    with pytest.raises(Conflict, match=f"{b} → {a} → {b}"):
        bench.tasks.update(b, blocked_by=[a])
    bench.tasks.update(b, blocked_by=[c])
    before = bench.everything()
    with pytest.raises(Conflict, match=f"{c} → {a} → {b} → {c}"):
        bench.tasks.update(c, blocked_by=[d, a])
    assert bench.everything() == before


@pytest.mark.covers("B-031", "E-167")
def test_a_diamond_and_a_missing_task_are_no_circle(bench: Bench) -> None:
    top = bench.add("top")
    left, right = bench.add("left", blocked_by=[top, 77]), bench.add("right", blocked_by=[top, 77])
    bottom = bench.add("bottom", blocked_by=[left, right])
    assert bench.tasks.get(bottom).blocked_by == (left, right)


@pytest.mark.covers("B-031")
def test_a_circle_is_not_closed_by_the_number_a_task_is_about_to_get(bench: Bench) -> None:
    first = bench.add()
    bench.tasks.update(first, blocked_by=[first + 1])
    with pytest.raises(Conflict, match="would wait for itself"):
        bench.add("second", blocked_by=[first])
    assert sum(bench.tasks.counts().values()) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 7), st.lists(st.integers(1, 9), max_size=4)), max_size=14))
def test_dependencies_never_form_a_circle_and_are_always_counted(tmp_path: Path, changes: list[tuple[int, list[int]]]) -> None:
    path = tmp_path / "owlbox.db"
    path.unlink(missing_ok=True)
    bench = Bench(path)
    for n in range(7):
        bench.add(str(n))
    for number, (task, blockers) in enumerate(changes):
        try:
            bench.tasks.update(task, blocked_by=blockers)
        except Conflict as error:
            assert bench.status(task) != "pending" or "itself" in error.message
        if number % 4 == 3:
            claim = bench.tasks.claim("w")
            if claim:
                bench.tasks.finish(claim, "complete" if number % 8 == 3 else "failed", "x")
    assert bench.open_blockers() == bench.counted()
    deps = bench.store.rows("SELECT task, blocker FROM task_deps")
    while deps:  # whoever nobody waits for may go; in a circle there is none
        left = [(t, b) for t, b in deps if t in {blocker for _, blocker in deps}]
        assert len(left) < len(deps)
        deps = left
    bench.toolbox.close()
    bench.store.close()


# -- rows that make no sense ------------------------------------------------------------------------


BAD = {
    "references that are no texts": "UPDATE tasks SET context_ids = '[1, {}]' WHERE id = 1",
    "a name of spaces": "UPDATE tasks SET name = '  ' WHERE id = 1",
    "bytes that are no text": "UPDATE tasks SET description = CAST(x'41ff' AS TEXT) WHERE id = 1",
}


@pytest.mark.covers("B-184")
@pytest.mark.parametrize("what", BAD)
def test_a_malformed_task_is_skipped_with_a_warning(bench: Bench, what: str, caplog: pytest.LogCaptureFixture) -> None:
    bad = bench.add("bad", priority="high", deadline_ms=now_ms() + 600_000)
    with bench.store.write() as execute:
        execute(BAD[what])
    good, also = bench.add("good"), bench.add("also")
    caplog.set_level(logging.WARNING, "appliance")
    assert [bench.claimed() for _ in range(3)] == [good, also, None] and not bench.tasks.is_work()
    assert bench.tasks.claim("w1", now=now_ms() + 700_000) is None
    assert [t.id for t in bench.tasks.list_tasks()] == [also, good]
    assert [r.message.partition(": ")[2].partition(": ")[0] for r in caplog.records] == ["task 1 is malformed"]
    assert bench.store.row("SELECT status, attempts FROM tasks WHERE id = 1") == ("pending", 0)
    with pytest.raises(StoreError, match="task 1 is malformed") as caught:
        bench.tasks.get(bad)
    assert caught.value.hint == "owlbox task delete 1, then add it again"
    bench.tasks.delete(bad)
    assert bench.tasks.find(bad) is None


@pytest.mark.covers("B-184")
def test_a_malformed_blocker_or_lost_task_does_not_stop_the_others(bench: Bench) -> None:
    bad, good = bench.add(person="a"), bench.add(person="a")
    task = bench.add(person="a", blocked_by=[bad, good])
    for one in (bad, good):
        bench.done(one)
    with bench.store.write() as execute:
        execute("UPDATE tasks SET context_ids = '[null]' WHERE id = ?", (bad,))
    assert [p.id for p in bench.tasks.predecessors(task)] == [good]
    assert bench.claimed() == task


@pytest.mark.covers("B-184")
@pytest.mark.parametrize("way", ["release", "release_stale"])
def test_a_claimed_task_that_has_become_malformed_can_be_got_rid_of(bench: Bench, way: str) -> None:
    bad, good = bench.add(), bench.add()
    assert {bench.claimed(), bench.claimed()} == {bad, good}
    with bench.store.write() as execute:
        execute("UPDATE tasks SET context_ids = '[null]' WHERE id = ?", (bad,))
    freed = bench.tasks.release("w1", "killed") if way == "release" else bench.tasks.release_stale(now_ms() + 1)
    assert [task.id for task in freed] == [good] and bench.claimed() == good
    assert bench.tasks.delete(bad) == [] and bench.tasks.counts()["in_progress"] == 1


# -- busy -------------------------------------------------------------------------------------------


@pytest.mark.covers("E-164")
def test_a_claim_waits_while_another_process_writes(bench: Bench) -> None:
    task = bench.add()
    code = """
        store = Store.open(path)
        with store.write() as execute:
            execute("UPDATE tasks SET description = 'held'")
            print("held", flush=True)
            sys.stdin.readline()
    """
    holder = child(code, bench.store.path)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    waiting = child(
        "from appliance.work.tasks import TaskRows\nprint(TaskRows(Store.open(path)).claim('w2').task.id)", bench.store.path
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=1.5)
    finally:
        finished(holder)  # its standard input is closed, which lets go
    assert finished(waiting) == str(task)


# -- the tools --------------------------------------------------------------------------------------


@pytest.mark.covers("B-036", "E-169")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "name: is required"),
        ({"name": ""}, "name: "),
        ({"name": "x", "priority": "urgent"}, "priority: Invalid enum value 'urgent'"),
        ({"name": "x", "blocked_by": ["one"]}, "blocked_by"),
        ({"name": " "}, "name has 0 characters"),
        ({"name": "x", "deadline": "soon"}, "deadline 'soon'"),
        ({"name": "x", "deadline": "2001-01-01T10:00"}, "has passed"),
    ],
)
def test_create_task_says_what_is_wrong_and_leaves_no_row(bench: Bench, arguments: dict[str, Any], part: str) -> None:
    refused = bench.call("create_task", a_run(bench.store), **arguments)
    assert refused.status == 400 and part in refused.message and refused.hint
    assert sum(bench.tasks.counts().values()) == 0


@pytest.mark.covers("B-036", "B-042")
def test_a_task_made_by_a_model_or_on_the_command_line_is_the_same_row(bench: Bench) -> None:
    run = a_run(bench.store, "ann")
    asked = bench.call("create_task", run, name="Sum up", description="all", priority="high", blocked_by=[7])
    typed = bench.call("create_task", "", "local:ann", name="Sum up", description="all", priority="high", blocked_by=[7])
    assert asked.status == typed.status == 200
    one, two = (bench.tasks.get(outcome.data["id"]) for outcome in (asked, typed))
    assert (one.person, one.session, one.origin) == ("ann", "local:ann", run) and two.origin is None
    same = {"id": 0, "created_ms": 0, "updated_ms": 0, "origin": None}
    assert replace(one, **same) == replace(two, **same)
    assert "It cannot begin: there is no task 7." in asked.message and "owlbox worker start" in asked.message


@pytest.mark.parametrize(("text", "least_ms"), [("+30m", 30 * 60_000), ("+2h", 7_200_000), ("+3d", 3 * 86_400_000)])
def test_a_deadline_is_given_as_so_long_from_now(bench: Bench, text: str, least_ms: int) -> None:
    before_ms = now_ms()
    made = bench.tasks.get(bench.call("create_task", name="x", deadline=text).data["id"])
    assert made.deadline_ms is not None and before_ms + least_ms <= made.deadline_ms <= now_ms() + least_ms
    assert bench.call("update_task", id=made.id, deadline="").data["deadline_ms"] is None
    assert bench.call("update_task", id=made.id, deadline="2100-01-01T00:00:00Z").data["deadline_ms"] == 4102444800000


def test_a_worker_that_runs_is_known_by_the_kernels_word(bench: Bench) -> None:
    columns = "id, process, pid, host, mode, status, started_ms, beat_ms"
    for name, process, mode, status in (
        ("dead", "x/1/1", "persist", "running"),
        ("once", this_process().encode(), "once", "running"),
        ("old", this_process().encode(), "persist", "stopped"),
    ):
        with bench.store.write() as execute:
            execute(f"INSERT INTO workers ({columns}) VALUES (?, ?, 1, 'h', ?, ?, 1, 1)", (name, process, mode, status))
        assert "It waits until a worker runs" in bench.call("create_task", name="x").message
    with bench.store.write() as execute:
        execute("UPDATE workers SET status = 'running' WHERE id = 'old'")
    assert bench.call("create_task", name="x").message == "Added task 4: x (medium)"


@pytest.mark.covers("B-037", "E-170")
def test_update_task_changes_a_pending_one_and_says_why_not(bench: Bench) -> None:
    task, done = bench.in_state("pending"), bench.in_state("complete")
    assert bench.call("update_task", id=task).data["name"] == "a task"
    assert bench.call("update_task", id=task, priority="low", blocked_by=[done]).data["blocked_by"] == (done,)
    refused, unknown = bench.call("update_task", id=done, name="x"), bench.call("update_task", id=99, name="x")
    assert (refused.status, unknown.status) == (
        409,
        404,
    ) and refused.message == f"task {done} is complete, only a pending one can be changed"
    assert bench.call("update_task", id=task, name="  ").status == 400
    assert bench.call("update_task", id=task, blocked_by=[task]).status == 409


@pytest.mark.covers("B-038", "E-171")
def test_delete_task_refuses_one_in_progress_and_names_who_waited(bench: Bench) -> None:
    busy, idle = bench.in_state("in_progress"), bench.in_state("waiting")
    waiting = bench.add(blocked_by=[idle])
    refused = bench.call("delete_task", id=busy)
    assert refused.status == 409 and "worker w1" in refused.message and "reset" in refused.hint
    gone = bench.call("delete_task", id=idle)
    assert gone.message == f"Deleted task {idle}\nTask {waiting} waited for it and cannot begin now."
    assert bench.call("delete_task", id=idle).status == 404


@pytest.mark.covers("B-039")
def test_list_tasks_and_view_task(bench: Bench) -> None:
    assert bench.call("list_tasks").message == "No tasks."
    first = bench.in_state("complete", "first")
    second = bench.add("second", description="about it", priority="high", blocked_by=[first, 50], context_ids=("memory://a",))
    lines = bench.call("list_tasks").message.splitlines()
    assert lines == [f"{second}. second (pending, high, after {first}, 50)", f"{first}. first (complete, medium)"]
    waiting = bench.in_state("waiting", "third")
    assert [t["id"] for t in bench.call("list_tasks", status="open").data["tasks"]] == [waiting, second]
    listed = bench.call("list_tasks", status="waiting").message
    assert listed == f"{waiting}. third (waits for you, medium)\nWhat a task waits for: view it."
    bench.call("delete_task", id=waiting)
    assert bench.call("list_tasks", limit=1).message.splitlines()[1] == "(there are more: offset)"
    assert [t["id"] for t in bench.call("list_tasks", status="complete").data["tasks"]] == [first]
    assert [t["id"] for t in bench.call("list_tasks", priority="high", offset=0).data["tasks"]] == [second]
    seen, kept = bench.call("view_task", id=second).data, bench.tasks.get(second)
    for name in set(Task.__struct_fields__) - {"attempts", "run", "session"}:
        assert seen[name] == getattr(kept, name), name
    text = bench.call("view_task", id=first).message
    assert "output: because" in text and f"before: {second}" in text and "attempt 1: " in text and "None" not in text
    unknown = bench.call("view_task", id=99)
    assert (unknown.status, unknown.message, unknown.data) == (200, "null", None)


@pytest.mark.covers("B-032", "B-041", "E-178")
def test_the_tools_that_end_a_task_end_it_once(bench: Bench) -> None:
    for name, status, field, words in (
        ("complete_task", "complete", "output", {"summary": "42"}),
        ("fail_task", "failed", "failure", {"reason": "42"}),
        ("wait_task", "waiting", "waiting_reason", {"reason": "42"}),
    ):
        task, run = bench.add(person="ann"), a_run(bench.store)
        bench.tasks.attach(bench.claim(), run)
        assert bench.call("reset_task", run, id=task).status == bench.call("cancel_task", run, id=task).status == 409
        done = bench.call(name, run, **words)
        assert done.status == 200 and bench.toolbox.is_terminal(name)
        now = bench.tasks.get(task)
        assert (now.status, getattr(now, field), bench.told[-1]) == (status, "42", now)
        again = [bench.call(n, run, **g).status for n, g in (("complete_task", {"summary": "x"}), ("fail_task", {"reason": "x"}))]
        again += [bench.call(n, run, id=task).status for n in ("reset_task", "cancel_task")]
        assert again == [409] * 4 and bench.tasks.get(task) == now
    outside = bench.call("complete_task", a_run(bench.store), summary="x")
    assert outside.status == 409 and "no task is being worked on here" in outside.message
    assert bench.call("complete_task", summary="x").status == 409


def test_tasks_are_reset_and_cancelled_by_their_tools(bench: Bench) -> None:
    waiting, busy = bench.in_state("waiting"), bench.in_state("in_progress")
    assert bench.call("reset_task", id=waiting).message == f"Task {waiting} (a task): waiting before, pending now"
    assert bench.call("cancel_task", id=waiting).message == f"Task {waiting} (a task): cancelled"
    assert bench.call("cancel_task", id=busy).message == f"Task {busy} (a task): its worker is told to stop"
    assert bench.call("reset_task", id=99).status == bench.call("cancel_task", id=99).status == 404


def test_only_what_a_role_needs_is_in_its_menu(bench: Bench) -> None:
    planning = {t.mark.name for t in bench.toolbox.tools() if t.mark.group == "planning"}
    assert {s.name for s in bench.toolbox.specs("chat")} & planning == {"create_task"}
    assert {s.name for s in bench.toolbox.specs("worker")} & planning == {"complete_task", "fail_task", "wait_task"}
    assert len(planning) == 8


def test_a_model_knows_nothing_of_somebody_elses_tasks(bench: Bench) -> None:
    ann, bob = a_run(bench.store, "ann"), a_run(bench.store, "bob")
    theirs = bench.call("create_task", bob, name="secret").data["id"]
    mine = bench.call("create_task", ann, name="mine", blocked_by=[theirs]).data
    before = bench.everything()
    assert mine["missing"] == (theirs,)  # as if it were not there
    assert [t["id"] for t in bench.call("list_tasks", ann).data["tasks"]] == [mine["id"]]
    assert bench.call("view_task", ann, id=theirs).data is None
    tried = {name: bench.call(name, ann, id=theirs) for name in ("update_task", "delete_task", "reset_task", "cancel_task")}
    assert {name: o.status for name, o in tried.items()} == dict.fromkeys(tried, 404)
    assert {o.message for o in tried.values()} == {f"no task {theirs}"} and bench.everything() == before
    assert bench.call("view_task", bob, id=theirs).data["blocking"] == ()
    assert len(bench.call("list_tasks", "", "local:eve").data["tasks"]) == 2  # a person on the box sees all


# -- taking a run back ------------------------------------------------------------------------------


@pytest.fixture
def undo(bench: Bench) -> Callable[..., Any]:
    return Undo(bench.store, Entries(bench.store), bench.runs).undo


def test_undo_takes_back_the_tasks_a_chat_created(bench: Bench, undo: Callable[..., Any]) -> None:
    old = bench.done(bench.add("old"))
    entry = Entries(bench.store).set("memory://note", "kept")
    assert entry.id == old.id  # numbers of tasks and of entries have nothing to do with each other
    before, run = bench.everything(), a_run(bench.store)
    first = bench.call("create_task", run, name="first", blocked_by=[old.id]).data["id"]
    bench.call("create_task", run, name="second", blocked_by=[first])
    bench.call("update_task", run, id=first, priority="high", blocked_by=[old.id, 99])
    tried = undo(run, is_dry_run=True)
    assert [(c.kind, c.path, c.how) for c in tried.changes] == [
        ("task", "task 2: first", "gone"),
        ("task", "task 3: second", "gone"),
    ]
    done = undo(run)
    assert done.changes == tried.changes and bench.everything() == before
    assert bench.open_blockers() == bench.counted()
    back = undo(done.by)  # and that can be taken back
    assert [(c.path, c.how) for c in back.changes] == [("task 2: first", "back"), ("task 3: second", "back")]
    assert bench.tasks.get(first).blocked_by == (old.id, 99) and bench.open_blockers() == bench.counted() == {1: 0, 2: 1, 3: 1}
    assert Entries(bench.store).changes("memory://note")[0].verb == "set"


@pytest.mark.parametrize("how", ["claimed", "worked on", "updated", "cancelled", "deleted"])
def test_undo_refuses_with_a_list_when_a_task_was_touched_since(bench: Bench, undo: Callable[..., Any], how: str) -> None:
    run = a_run(bench.store)
    Entries(bench.store).set("memory://note", "kept", run=run)
    quiet = bench.call("create_task", run, name="quiet", priority="low").data["id"]
    task = bench.call("create_task", run, name="busy", blocked_by=[]).data["id"]
    touch: dict[str, Callable[[], object]] = {
        "claimed": lambda: bench.claim(),
        "worked on": lambda: bench.done(task),
        "updated": lambda: bench.tasks.update(task, name="other"),
        "cancelled": lambda: bench.tasks.cancel(task),
        "deleted": lambda: bench.tasks.delete(task),
    }
    touch[how]()
    before = bench.everything()
    with pytest.raises(Conflict, match=f"1 task was changed since: task {task}") as caught:
        undo(run)
    assert str(quiet) not in caught.value.message.partition("since: ")[2].partition(":")[0]
    assert bench.everything() == before and Entries(bench.store).get("memory://note").body == "kept"
    [later] = undo(run, is_dry_run=True).later
    assert later.kind == "task" and later.path.startswith(f"task {task}")


def test_what_undo_brings_back_waits_for_what_is_so_now(bench: Bench, undo: Callable[..., Any]) -> None:
    """The counts that a changeset remembers are those of then."""
    done, open_one = bench.add("done", person="ann"), bench.add("open", person="ann")
    waiting = bench.add("waiting", person="ann", blocked_by=[done, open_one])
    bench.done(done)
    run = a_run(bench.store)
    assert bench.call("delete_task", run, id=done).status == 200
    bench.done(open_one)
    assert bench.claimed() is None
    undo(run)
    assert bench.open_blockers() == bench.counted() and bench.claimed() == waiting


def test_undo_never_closes_a_circle(bench: Bench, undo: Callable[..., Any]) -> None:
    one, two = bench.add("one", person="ann"), bench.add("two", person="ann")
    bench.tasks.update(one, blocked_by=[two])
    run = a_run(bench.store)
    bench.call("update_task", run, id=one, blocked_by=[])
    bench.tasks.update(two, blocked_by=[one])
    with pytest.raises(Conflict, match=r"task 1: one \(waits for itself"):
        undo(run)
    assert bench.tasks.get(one).blocked_by == () and bench.open_blockers() == bench.counted()


def test_undo_never_brings_a_lost_claim_back(bench: Bench, undo: Callable[..., Any]) -> None:
    task, run = bench.add(person="ann"), a_run(bench.store)
    claim = bench.claim()
    assert bench.call("reset_task", run, id=task).status == 200
    assert undo(run).changes == () and bench.status(task) == "pending" and not bench.tasks.holds(claim)


def test_every_error_names_the_next_step(bench: Bench) -> None:
    done = bench.in_state("complete")
    for name, arguments in (("update_task", {"name": "x"}), ("cancel_task", {}), ("delete_task", {})):
        outcome = bench.call(name, id=done if name != "delete_task" else 99, **arguments)
        assert outcome.is_error and outcome.hint, name
    for action in (lambda: bench.tasks.get(99), lambda: bench.tasks.update(done, name="x"), lambda: bench.tasks.delete(99)):
        with pytest.raises(OwlError) as caught:
            action()
        assert caught.value.hint
