"""kill -9 at every step of a message's, a letter's, a task's and a dropped file's life: the next start makes it good.

The cases are made from `appliance/runtime/crash_points.py` and from what each life really passes: a step that is declared and never
passed fails here, and so does one that a life passes and that is not written down in LIVES.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from process import clean_environ, end, until
from proof import IS_WHOLE
from stepping import DONE, LIVES, Given, Nursery
from stores import new_home
from test_crash import DANGLING, HOLES

from appliance.channels.contract import REPEAT
from appliance.clock import is_alive
from appliance.errors import OwlError
from appliance.runtime.crash_points import CrashPoint
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.work.tasks import TaskRows

S = CrashPoint
TURN = (S.LOOP_STARTED, S.TURN_BEGUN)
CALL = (S.CALL_RECORDED, S.CALL_DONE, S.RESULT_RECORDED)
SENT = (S.LETTER_TAKEN, S.LETTER_DELIVERED, S.LETTER_SENT)
# What each life passes, in no order: threads are at work.
PASSED: dict[str, tuple[CrashPoint, ...]] = {
    "message": (S.RECEIVED, S.ACCEPTED, *TURN, S.TASK_ADDED, *CALL, S.TURN_BEGUN, S.ANSWERED, S.LOOP_ENDED, *SENT),
    "letter": SENT,
    "task": (S.TASK_ADDED, S.TASK_CLAIMED, S.TASK_ATTACHED, *TURN, S.TASK_SETTLED, *CALL, S.LOOP_ENDED, S.TICK_ENDED),
    "spoken": (S.TASK_ADDED, S.TASK_CLAIMED, S.TASK_ATTACHED, *TURN, S.ANSWERED, S.TASK_SETTLED, S.LOOP_ENDED, S.TICK_ENDED),
    "drop": (S.TASK_ADDED, *(S.DROP_TAKEN, S.DROP_REMOVED) * 3),
}
PLANS = """
[[turns]]
match = "^please plan {}$"
tool_calls = [{{name = "create_task", arguments = {{name = "say it later"}}}}]
"""
PLAY = """
[[turns]]
match = "(?m)^.*call it"
repeat = true
tool_calls = [{name = "complete_task", arguments = {summary = "all done"}}]
[[turns]]
repeat = true
text = "Hoot hoot."
"""
UNFINISHED = {
    "loops": "SELECT id FROM loops WHERE status IN (100, 102)",
    "tasks": "SELECT id FROM tasks WHERE status IN ('pending', 'in_progress')",
    "attempts": "SELECT task FROM task_attempts WHERE ended_ms IS NULL",
    "letters": "SELECT id FROM outbox WHERE status NOT IN ('sent', 'logged')",
    "calls": "SELECT call_id FROM events WHERE kind IN ('tool_use', 'tool_result') GROUP BY run, call_id "
    "HAVING SUM(kind = 'tool_use') <> 1 OR SUM(kind = 'tool_result') <> 1",
}


def moments() -> Iterator[tuple[str, str, int]]:
    """Every step of every life, and each time it is passed."""
    for life, steps in PASSED.items():
        for step, times in Counter(steps).items():
            yield from ((life, step.name, n) for n in range(1, times + 1))


MOMENTS = list(moments())
# Every point at which a kill may come, in the first of the lives that pass it, and the last of each life.
FEW = {*{step: (life, step, nth) for life, step, nth in reversed(MOMENTS)}.values(), *{one[0]: one for one in MOMENTS}.values()}


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Starts processes that have imported the product already."""
    made = Nursery(clean_environ(tmp_path_factory.mktemp("nursery"), Path("/nowhere")))
    yield made
    made.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of one broker for all, as systemd keeps it: it outlives every core. It has a plan for each case."""
    root, runtime = tmp_path_factory.mktemp("broker"), Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    home, path = Home(root / "home"), runtime / "broker.sock"
    new_home(home)
    script = runtime / "script.toml"
    names = ["-".join(map(str, moment)) for moment in [*MOMENTS, *((life,) for life in PASSED)]]
    script.write_text("".join(PLANS.format(name) for name in names) + PLAY)
    environ = {**clean_environ(root, runtime), "OWLBOX__MODELS__SCRIPT": str(script)}
    command = [sys.executable, "-m", "appliance", "--home", str(home.root), "broker", "--socket", str(path)]
    child = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up() -> bool:
        try:
            Client(str(path), name="test").close()
        except OwlError:
            return False
        return True

    until(is_up, "the broker listens")
    yield path
    end(child)
    shutil.rmtree(runtime, ignore_errors=True)


class Place:
    """A home on which processes live and die."""

    def __init__(self, root: Path, runtime: Path, broker: Path, nursery: Nursery) -> None:
        self.root, self.home = root, Home(root / "home")
        new_home(self.home)
        self.environ = {**clean_environ(root, runtime), "OWLBOX_BROKER_SOCKET": str(broker)}
        self.nursery = nursery
        self.name = ""

    def go(self, life: str, step: str = "", nth: int = 1) -> int:
        """Go through a life to its end or to a step, "" to recover; the exit code."""
        given = Given(str(self.home.root), self.environ, str(self.root / "steps.txt"), f"please plan {self.name}", step, nth)
        return self.nursery.raise_up(given, life)

    def steps(self) -> list[str]:
        """What was passed so far."""
        trace = self.root / "steps.txt"
        return trace.read_text().split() if trace.exists() else []

    def lines(self) -> list[str]:
        """What went through the door that remembers nothing."""
        path = self.root / "lines.txt"
        return path.read_text().splitlines() if path.exists() else []

    def prepare(self, life: str) -> None:
        """What must be there before: for files, a thread whose caller died in the middle of a tool call."""
        if life != "drop":
            return
        assert self.go("message", "CALL_RECORDED") == -signal.SIGKILL
        (self.root / "steps.txt").unlink()
        with self.store() as store:
            run, call_id = store.rows("SELECT run, call_id FROM events WHERE kind = 'tool_use'")[0]
        folder = self.home.drop / "users" / "ann"
        folder.mkdir(parents=True)
        requests = [
            {"kind": "task", "name": "say it later"},
            {"kind": "message", "text": "The backup is done.", "id": "backup"},
            {"kind": "result", "run": run, "call_id": call_id, "content": "it was done after all"},
        ]
        for number, request in enumerate(requests):
            (folder / f"{number}.json").write_text(json.dumps(request))
            os.utime(folder / f"{number}.json", (1_700_000_000 + number,) * 2)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The database."""
        store = Store.open(self.home.database)
        try:
            yield store
        finally:
            store.close()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, runtime: Path, broker: Path, nursery: Nursery) -> Place:
    """A home for a test, whose parameters name its plan."""
    made = Place(tmp_path, runtime, broker, nursery)
    made.name = "-".join(map(str, request.node.callspec.params.values()))
    return made


def test_every_step_belongs_to_a_life() -> None:
    assert {step for steps in PASSED.values() for step in steps} == set(CrashPoint)
    assert set(PASSED) == set(LIVES)


@pytest.mark.parametrize("life", PASSED)
def test_a_life_passes_exactly_the_steps_that_are_written_down(place: Place, life: str) -> None:
    place.prepare(life)
    assert place.go(life) == 0
    *steps, last = place.steps()
    assert last == DONE and Counter(steps) == Counter(step.name for step in PASSED[life])
    assert place.go("") == 0
    assert_well(place)


@pytest.mark.covers("A-021")
@pytest.mark.parametrize(("life", "step", "nth"), MOMENTS if IS_WHOLE else sorted(FEW), ids=lambda value: str(value))
def test_killed_at_a_step_and_made_good_by_the_next_start(place: Place, life: str, step: str, nth: int) -> None:
    place.prepare(life)
    assert place.go(life, step, nth) == -signal.SIGKILL
    passed = place.steps()
    assert passed.count(step) == nth and DONE not in passed
    assert place.go("") == 0
    assert_well(place)
    LEFT[life](place, passed)


# -- what must hold then --------------------------------------------------------------------------------


def assert_well(place: Place) -> None:
    """Whatever happened: nothing is half done, nothing twice, the database is intact."""
    with place.store() as store:
        assert store.problems() == [] and store.rows(HOLES) == [] and store.rows(DANGLING) == []
        assert {name: store.rows(sql) for name, sql in UNFINISHED.items() if store.rows(sql)} == {}
        assert [pid for (pid,) in store.rows("SELECT process FROM turn_locks") if not is_alive(str(pid))] == []
        for letter, run in store.rows("SELECT key, run FROM outbox WHERE run IS NOT NULL AND key NOT LIKE 'answer:%'"):
            told = store.value("SELECT COUNT(*) FROM events WHERE run = ? AND input ->> 'letter' = ?", (run, letter))
            assert told == 1, letter
        tasks = TaskRows(store)
        for task in tasks.list_tasks():
            ends = [one.outcome for one in tasks.attempts(task.id)].count("complete")
            letters = store.rows("SELECT key FROM outbox WHERE key LIKE ?", (f"task:{task.id}:%",))
            assert (task.status, ends, letters) == ("complete", 1, [(f"task:{task.id}:{task.attempts}:complete",)])


def answered(place: Place, passed: list[str]) -> None:
    """The question is there once, and answered or marked; the next one is answered."""
    with place.store() as store:
        if "ACCEPTED" not in passed:  # whoever said it was not told that it had arrived, and says it again
            [following] = Runs(store, "").list_runs(kind="chat")
            assert following.outcome == "ok" and store.value("SELECT COUNT(*) FROM tasks") == 0
            return
        following, question = Runs(store, "").list_runs(kind="chat")
        assert following.outcome == "ok"
        # The letter is put as the loop ends, and may be taken before that step is written down.
        is_begun, is_ended = "LOOP_STARTED" in passed, not {"LOOP_ENDED", *(step.name for step in SENT)}.isdisjoint(passed)
        wanted = {(499, "interrupted")} if is_begun and not is_ended else {(200, "ok")}
        assert {(question.status, question.outcome)} == wanted
        letters = store.value("SELECT COUNT(*) FROM outbox WHERE key LIKE 'answer:%' AND run = ?", (question.id,))
        assert letters == (0 if (499, "interrupted") in wanted else 1)
        assert store.value("SELECT COUNT(*) FROM tasks") == (0 if is_begun and "TASK_ADDED" not in passed else 1)


def marked(place: Place, passed: list[str]) -> None:
    """Delivered, and what may have been delivered before says so."""
    first, repeat = "Good morning.", f"{REPEAT} Good morning."
    told = {"LETTER_TAKEN": [repeat], "LETTER_DELIVERED": [first, repeat], "LETTER_SENT": [first]}
    assert place.lines() == told[passed[-1]]
    with place.store() as store:
        is_sure = passed[-1] == "LETTER_SENT"
        assert store.rows("SELECT status, may_repeat FROM outbox WHERE key = 'greeting'") == [("sent", int(not is_sure))]


def worked(place: Place, passed: list[str]) -> None:
    """One task, complete, and each attempt before with the reason for its end."""
    with place.store() as store:
        [task] = TaskRows(store).list_tasks()
        *lost, last = TaskRows(store).attempts(task.id)
        assert last.outcome == "complete" and {one.outcome for one in lost} <= {"its worker died: killed"}
        assert task.deaths == len(lost) <= 1
        assert store.value("SELECT COUNT(*) FROM workers WHERE status = 'running'") == 0
        is_lost = "TASK_CLAIMED" in passed and not is_settled(passed)
        assert len(lost) == int(is_lost)


def is_settled(passed: list[str]) -> bool:
    """Whether the task's end was on record: at the step itself not when it stands or falls with the end of the loop."""
    after = passed.index("TASK_SETTLED") + 1 if "TASK_SETTLED" in passed else len(passed)
    return "TASK_SETTLED" in passed and (after < len(passed) or "ANSWERED" not in passed)


def taken(place: Place, passed: list[str]) -> None:
    """Each file has had its effect once, and is gone."""
    with place.store() as store:
        assert store.value("SELECT COUNT(*) FROM tasks") == 1
        assert store.rows("SELECT status, text FROM outbox WHERE key LIKE 'drop:%'") == [("sent", "The backup is done.")] or (
            store.rows("SELECT status, text FROM outbox WHERE key LIKE 'drop:%'") == [("logged", "The backup is done.")]
        )
        assert store.rows("SELECT content FROM events WHERE kind = 'tool_result'") == [("it was done after all",)]
    assert [path for path in place.home.drop.rglob("*") if path.is_file()] == []


LEFT = {"message": answered, "letter": marked, "task": worked, "spoken": worked, "drop": taken}
