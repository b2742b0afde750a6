"""Many processes race for the tasks of one file: each task is had by exactly one, in order, and nobody meets "locked"."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_database import child, finished

from appliance.store.database import Store
from appliance.work.tasks import NewTask, TaskRows

PROCESSES = 16
TASKS = 2000
# Waits for the starting gun, then works until nothing can begin; writes down what it did, in order.
WORKER = """
    import json
    from appliance.clock import sleep_s
    from appliance.work.tasks import TaskRows
    store, name = Store.open(path), sys.argv[2]
    tasks, done, idle = TaskRows(store), [], 0
    print("ready", flush=True)
    sys.stdin.readline()
    while store.value("SELECT EXISTS (SELECT 1 FROM tasks WHERE status IN ('pending', 'in_progress') AND name <> 'never')"):
        claim = tasks.claim(name)
        if claim is None:
            sleep_s(0.01)  # another one works on what the rest waits for
            continue
        seen = [(p.id, p.output) for p in tasks.predecessors(claim.task.id)]
        tasks.finish(claim, "complete", f"{claim.task.id} by {name}")
        done.append([claim.task.id, claim.number, seen])
    print(json.dumps(done))
"""
# One shot: claims once and says what it got.
ONCE = """
    from appliance.work.tasks import TaskRows
    tasks = TaskRows(Store.open(path))
    print("ready", flush=True)
    sys.stdin.readline()
    claim = tasks.claim(sys.argv[2])
    print(claim.task.id if claim else None)
"""


def blockers_of(number: int) -> list[int]:
    """Which tasks one waits for: most for none; some are long chains, diamonds, or for many."""
    if number % 100 == 0:
        return list(range(number - 20, number))  # many
    if number % 10 == 3:
        return [number - 1, number - 2]  # a diamond with the one before
    if number % 10 == 2:
        return [number - 1]
    if number % 50 == 49:
        return [number - 45] if number < 60 else [number - 45, number - 50]  # a chain through all
    return []


def planted(path: Path, count: int) -> Store:
    """A queue of so many tasks with dependencies, and one that can never begin."""
    store = Store.create(path)
    tasks = TaskRows(store)
    with store.write(durable=True):
        for number in range(1, count + 1):
            made = tasks.add(
                NewTask(f"t{number}", priority=("low", "medium", "high")[number % 3], blocked_by=blockers_of(number), person="ann")
            )
            assert made.id == number
        tasks.add(NewTask("never", blocked_by=[count + 99]))
    return store


def raced(code: str, path: Path, processes: int, limit_s: float = 900) -> list[str]:
    """What each of so many processes printed that began at the same moment."""
    runners = [child(code, path, f"w{n}") for n in range(processes)]
    try:
        for runner in runners:
            assert runner.stdout is not None and runner.stdout.readline() == "ready\n"
        for runner in runners:
            assert runner.stdin is not None
            runner.stdin.write("go\n")
            runner.stdin.flush()
        return [finished(runner, limit_s) for runner in runners]
    finally:
        for runner in runners:
            if runner.poll() is None:
                runner.kill()
                runner.communicate()


def checked(store: Store, printed: list[str], count: int) -> dict[str, int]:
    """That every task ran once and after all it waited for; how many each worker had."""
    done: dict[int, Any] = {}
    shares = {}
    for number, text in enumerate(printed):
        mine = json.loads(text)
        shares[f"w{number}"] = len(mine)
        for task, attempt, seen in mine:
            assert task not in done, f"task {task} ran twice"
            done[task] = (attempt, seen)
    assert sorted(done) == list(range(1, count + 1))
    assert {attempt for attempt, _ in done.values()} == {1}
    outputs = dict(store.rows("SELECT id, output FROM tasks WHERE status = 'complete'"))
    assert len(outputs) == count and Counter(text.split(" by ")[1] for text in outputs.values()) == Counter(
        {name: n for name, n in shares.items() if n}
    )
    for task, (_, seen) in done.items():
        assert [(p, text) for p, text in seen] == [(p, outputs[p]) for p in blockers_of(task)], task
    attempts = store.rows("SELECT task, number, worker, outcome FROM task_attempts ORDER BY task")
    assert [(t, 1, outputs[t].split(" by ")[1], "complete") for t in sorted(outputs)] == attempts
    assert store.rows("SELECT status FROM tasks WHERE name = 'never'") == [("pending",)]
    assert store.problems() == []
    return shares


@pytest.mark.covers("B-029", "B-183", "E-156")
def test_sixteen_processes_run_every_task_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "owlbox.db"
    store = planted(path, TASKS)
    shares = checked(store, raced(WORKER, path, PROCESSES), TASKS)
    assert sum(n > 0 for n in shares.values()) > 1  # it was a race
    store.close()


@pytest.mark.covers("B-029", "B-183", "E-157")
def test_sixteen_processes_race_for_one_task_and_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "owlbox.db"
    store = Store.create(path)
    task = TaskRows(store).add(NewTask("the only one"))
    assert sorted(raced(ONCE, path, PROCESSES)) == [str(task.id), *["None"] * (PROCESSES - 1)]
    assert store.value("SELECT COUNT(*) FROM task_attempts") == 1
    store.close()


@pytest.mark.covers("E-156", "E-164")
def test_a_worker_that_is_killed_in_its_claim_leaves_the_task_to_another(tmp_path: Path) -> None:
    path = tmp_path / "owlbox.db"
    store = Store.create(path)
    tasks = TaskRows(store)
    made = tasks.add(NewTask("x"))
    code = """
        from appliance.work.tasks import TaskRows
        store = Store.open(path)
        with store.write():
            claim = TaskRows(store).claim("w1")
            print("claimed", claim.task.id, flush=True)
            sys.stdin.readline()
    """
    holder = child(code, path)
    assert holder.stdout is not None and holder.stdout.readline() == f"claimed {made.id}\n"
    holder.kill()
    holder.communicate()
    claim = tasks.claim("w2")
    assert claim is not None and (claim.task.id, claim.number) == (made.id, 1)
    store.close()
