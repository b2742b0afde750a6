"""`owlbox task`: real homes and processes; the same words with and without a core, tables that fit, exit codes that tell."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from process import ROOT, Box, Core, a_box, end, until  # noqa: F401
from test_database import a_run, said

from appliance.cli.task import ENDS
from appliance.clock import now_ms, process
from appliance.sessions.runs import Runs
from appliance.work.tasks import Claim, NewTask, TaskRows


@pytest.fixture
def core(box: Box) -> Iterator[Core]:
    running = box.serve()
    yield running
    running.stop()


@pytest.fixture
def worker(box: Box) -> Iterator[None]:
    """A process that is registered as worker w1 and lives; it only sleeps."""
    code = "import signal, sys; signal.signal(signal.SIGUSR1, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"
    made = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdout is not None and made.stdout.readline() == b"up\n"
    with box.store() as store, store.write() as execute:
        execute(
            "INSERT INTO workers (id, process, pid, host, mode, status, started_ms, beat_ms) "
            "VALUES ('w1', ?, ?, 'h', 'persist', 'running', ?3, ?3)",
            (process(made.pid).encode(), made.pid, now_ms()),
        )
    yield
    end(made)
    assert made.stdin is not None
    made.stdin.close()


def add(box: Box, *words: str) -> int:
    return int(box.json("task", "add", *words)["id"])


def claimed(box: Box, task: int) -> Claim:
    with box.store() as store:
        claim = TaskRows(store).claim("w1", task)
    assert claim is not None
    return claim


def ended(box: Box, claim: Claim, status: Any = "complete", text: str = "It is watered.") -> None:
    with box.store() as store:
        TaskRows(store).finish(claim, status, text)


@pytest.mark.covers("B-040", "B-042")
@pytest.mark.parametrize("is_served", [False, True])
def test_a_task_is_added_listed_viewed_changed_and_deleted(box: Box, is_served: bool) -> None:
    running = box.serve() if is_served else None
    done = box.run("task", "add", "water", "the", "garden", "--description", "all of it", "--priority", "high")
    assert done.returncode == 0 and done.stdout.splitlines() == [
        "Added task 1: water the garden (high)",
        "It waits until a worker runs. To start one: owlbox worker start --persist",
    ]
    second = add(
        box, "then rest", "--blocked-by", "1,7", "--blocked-by", "#8", "--context", "memory://a,box://b", "--deadline", "+2h"
    )
    seen = box.json("task", "view", str(second))
    assert (seen["blocked_by"], seen["context_ids"], seen["open_blockers"]) == ([1, 7, 8], ["memory://a", "box://b"], 3)
    assert 7_100_000 < seen["deadline_ms"] - seen["created_ms"] <= 7_200_000 and seen["person"]
    assert [task["id"] for task in box.json("task", "list")] == [2, 1] == [task["id"] for task in box.json("task")]
    assert [task["id"] for task in box.json("task", "list", "--priority", "high", "--status", "pending")] == [1]
    assert [task["id"] for task in box.json("task", "list", "--limit", "1", "--offset", "1")] == [1]
    changed = box.json("task", "update", "2", "--blocked-by", "", "--name", "rest", "--deadline", "")
    assert (changed["blocked_by"], changed["name"], changed["deadline_ms"]) == ([], "rest", None)
    assert box.json("task", "update", "2") == box.json("task", "view", "2")
    assert box.run("task", "cancel", "2").stdout == "Task 2 (rest): cancelled\n"
    assert box.run("task", "reset", "2").stdout == "Task 2 (rest): failed before, pending now\n"
    assert box.run("task", "delete", "2").stdout == "Deleted task 2\n"
    assert "1. water the garden\nstatus: pending\npriority: high\n" in box.run("task", "view", "1").stdout
    if running:
        assert running.stop() == 0


REFUSED = [
    ("view 99", 3, "no task 99 (owlbox task list shows them)"),
    ("delete 99", 3, "no task 99"),
    ("reset 99", 3, "no task 99"),
    ("cancel 99", 3, "no task 99"),
    ("watch 99", 3, "no task 99"),
    ("update 99 --name x", 3, "no task 99"),
    ("view one", 2, "id 'one' is no whole number"),
    ("add", 2, "name"),
    ("add x --priority urgent", 2, "urgent"),
    ("add x --blocked-by two", 2, "'two' is not a task's number"),
    ("add x --deadline soon", 2, "+30m"),
    ("list --status done", 2, "done"),
    ("list --limit 0", 2, "limit"),
    ("watch 1 --interval 1", 2, "use 50 to 60000"),
    ("explode 1", 2, "unknown command explode"),
]


@pytest.mark.covers("B-040")
def test_what_cannot_be_is_one_line_and_the_next_step(box: Box, core: Core) -> None:
    for words, code, part in REFUSED:
        refused = box.run("task", *words.split())
        assert (refused.returncode, refused.stdout) == (code, "") and part in refused.stderr, (words, refused)
        assert refused.stderr.startswith("owlbox: ") and refused.stderr.count("\n") == 1, words
    with box.store() as store:
        assert sum(TaskRows(store).counts().values()) == 0


@pytest.mark.usefixtures("worker")
def test_a_task_in_progress_is_neither_deleted_nor_updated(box: Box) -> None:
    task = add(box, "busy")
    claimed(box, task)
    gone, changed = box.run("task", "delete", "1"), box.run("task", "update", "1", "--name", "x", "--json")
    assert gone.returncode == 1 and "worker w1 (reset or cancel task 1 first)" in gone.stderr
    error = json.loads(changed.stderr)["error"]
    assert changed.returncode == 1 and error["status"] == 409 and "only a pending one" in error["message"]
    assert box.run("task", "cancel", "1").stdout == "Task 1 (busy): its worker is told to stop\n"
    assert "cancelled: wanted at" in box.run("task", "view", "1").stdout


@pytest.mark.covers("B-040", "E-179")
@pytest.mark.usefixtures("worker")
def test_the_table_fits_80_columns_whatever_the_names(box: Box) -> None:
    for number in range(3):
        add(box, f"{number} " + "a very long name " * 11, "--blocked-by", "50")
    claimed(box, add(box, "short"))
    whole, shown = box.run("task", "list"), box.run("task", "list", "--limit", "3", COLUMNS="80")
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) == 4 and "there are more: --offset 3" in shown.stderr
    assert lines[0].split() == ["id", "state", "priority", "created", "name"]
    assert [line.split()[:2] for line in lines[1:]] == [["4", "in"], ["3", "blocked"], ["2", "blocked"]]
    assert lines[2].endswith("…") and "…" not in whole.stdout  # in a pipe nothing is cut


@pytest.mark.usefixtures("worker")
def test_add_says_nothing_of_workers_while_one_runs(box: Box) -> None:
    assert box.run("task", "add", "x").stdout == "Added task 1: x (medium)\n"


# -- watching ---------------------------------------------------------------------------------------


class Watch:
    """`owlbox task watch` as somebody reads it."""

    def __init__(self, box: Box, *words: str) -> None:
        self.child = box.start("task", "watch", *words, "--interval", "50")
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    def sees(self, part: str) -> None:
        until(lambda: any(part in line for line in self.lines) or self.child.poll() is not None, f"watch shows {part}")
        assert any(part in line for line in self.lines), (self.lines, self.child.stderr and self.child.stderr.read())

    def end(self) -> int:
        code = self.child.wait(60)
        self._reader.join(60)
        return code


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("status", ["complete", "failed", "waiting"])
def test_watching_shows_states_and_events_and_ends_with_the_task(box: Box, core: Core, status: str) -> None:
    blocker, task = add(box, "first"), add(box, "second", "--blocked-by", "1")
    watch = Watch(box, str(task))
    watch.sees("task 2 is pending, waits for 1 other")
    ended(box, claimed(box, blocker))
    watch.sees("task 2 is pending")
    claim = claimed(box, task)
    watch.sees("task 2 is in progress by worker w1")
    with box.store() as store:
        run = a_run(store)
        TaskRows(store).attach(claim, run)
        Runs(store, "").append(said(run, "water it"))
    watch.sees("  1.1 user: water it")
    with box.store() as store:
        Runs(store, "").append(said(run, "more " * 100))
    watch.sees("  1.2 user: more more")
    ended(box, claim, status)
    assert watch.end() == ENDS[status]
    assert watch.lines[-2:] == [f"task 2 is {status}", "It is watered."]
    assert sum("water it" in line for line in watch.lines) == 1 and max(map(len, watch.lines)) < 230


@pytest.mark.usefixtures("worker")
def test_watching_goes_on_with_the_next_attempt_and_prints_json(box: Box) -> None:
    task = add(box, "once more")
    watch = Watch(box, str(task), "--json")
    for number in (1, 2):
        claim = claimed(box, task)
        with box.store() as store:
            run = a_run(store)
            TaskRows(store).attach(claim, run)
            Runs(store, "").append(said(run, f"try {number}"))
        watch.sees(f"try {number}")
        if number == 1:
            with box.store() as store:
                TaskRows(store).release("w1", "killed")
    ended(box, claim)
    assert watch.end() == 0
    told = [json.loads(line) for line in watch.lines]
    assert [(t["attempt"], t["content"]) for t in told if t["kind"] == "message"] == [(1, "try 1"), (2, "try 2")]
    assert [t["status"] for t in told if t["kind"] == "task"][-1] == "complete" and told[-1]["text"] == "It is watered."


@pytest.mark.parametrize("how", ["deleted", "cancelled"])
def test_watching_ends_when_the_task_is_given_up(box: Box, how: str) -> None:
    watch = Watch(box, str(add(box, "x")))
    watch.sees("task 1 is pending")
    action: dict[str, Callable[[], subprocess.CompletedProcess[str]]] = {
        "deleted": lambda: box.run("task", "delete", "1"),
        "cancelled": lambda: box.run("task", "cancel", "1"),
    }
    assert action[how]().returncode == 0
    assert watch.end() == (3 if how == "deleted" else 1)
    if how == "cancelled":
        assert watch.lines[-2:] == ["task 1 is failed", "cancelled"]


# -- taking back ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_undo_on_the_command_line_names_the_tasks(box: Box) -> None:
    with box.store() as store:
        run = a_run(store)
        for name in ("one", "two"):
            TaskRows(store).add(NewTask(name, person="ann", run=run))
    tried, kept = box.run("undo", run, "--dry-run"), len(box.json("task", "list"))
    assert tried.stdout.splitlines()[0] == "would take back 2 tasks" and "gone  task 1: one" in tried.stdout and kept == 2
    claim = claimed(box, 2)
    refused = box.run("undo", run)
    assert refused.returncode == 1 and "1 task was changed since: task 2: two (in progress by w1" in refused.stderr
    assert "task 2: two" in box.run("undo", run, "--dry-run").stdout
    with box.store() as store:
        TaskRows(store).give_back(claim, "x")
    assert box.run("undo", run).returncode == 1  # it was worked on, even so
    other = box.json("thread", "list")
    assert len(other) == 1 and [task["id"] for task in box.json("task", "list")] == [2, 1]


def test_the_commands_are_built_without_the_parts_that_start_slowly() -> None:
    code = "import sys; from appliance.cli import main as cli; cli.parser(['task', 'list']); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    assert "appliance.cli.task" in modules and not {"textual", "llama_cpp", "numpy", "appliance.service.core"} & set(modules)
