"""The commands about workers, as people type them: `owlbox worker ...`, with a core and without."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from process import Box, a_box, is_gone, script, send, until  # noqa: F401

from appliance.clock import new_id
from appliance.runtime import paths
from appliance.sessions.runs import Runs
from appliance.store.process_registry import Leases, ProcessRegistry
from appliance.work.tasks import NewTask, TaskRows
from appliance.work.worker_control import LOG_BYTES

PLAY = """
[[turns]]
match = "slow"
repeat = true
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
delay_s = 600
[[turns]]
repeat = true
text = "Hoot hoot."
"""
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture
def owl(box: Box) -> Iterator[Box]:
    """A box whose model plays PLAY; workers that were started in the background are ended with it."""
    script(box, PLAY)
    yield box
    with box.store() as store:
        roster = ProcessRegistry(store, Leases(store), box.runtime / "workers")
        for worker in roster.running():
            roster.send(worker, signal.SIGKILL)


def add(box: Box, name: str) -> int:
    with box.store() as store:
        return TaskRows(store).add(NewTask(name, person="ann")).id


def record(box: Box, count: int = 1, *, log: Path | None = None) -> list[str]:
    """Rows of workers that have stopped."""
    made = []
    with box.store() as store:
        roster = ProcessRegistry(store, Leases(store), paths.runtime_folder(box.home, box.environ, make=True) / "workers")
        for _ in range(count):
            made.append(new_id())
            roster.begin(made[-1], "once", log=log).end()
            roster.end(made[-1], "stopped", "done")
    return made


@pytest.mark.covers("B-024")
@pytest.mark.parametrize("action", ["run", "start"])
def test_persist_and_a_task_exclude_each_other(owl: Box, action: str) -> None:
    number = add(owl, "anything")
    done = owl.run("worker", action, "--persist", "--task-id", str(number))
    assert done.returncode == 1 and "--persist and --task-id" in done.stderr and done.stderr.count("\n") == 1
    assert owl.json("worker", "list") == []


@pytest.mark.covers("B-024")
@pytest.mark.parametrize("has_core", [True, False])
def test_a_worker_is_started_listed_seen_and_stopped(owl: Box, has_core: bool) -> None:
    if has_core:
        owl.serve()
    number = add(owl, "a slow one")
    started = owl.run("worker", "start", "--persist", "--no-eval-schedules")
    found = ID.search(started.stdout)
    assert started.returncode == 0 and found is not None
    worker = found[0]

    def is_working() -> bool:
        return bool(owl.json("worker", "status", worker[-6:])["claims"])

    until(is_working, "it has the task")
    shown = owl.run("worker", "list", COLUMNS="80").stdout
    assert worker in shown and "running" in shown and max(len(line) for line in shown.splitlines()) <= 80
    about = owl.run("worker", "status", worker[:13]).stdout
    assert f"task {number} (a slow one)" in about and f"{worker}.log" in about
    stopped = owl.run("worker", "stop", worker)
    assert (stopped.returncode, stopped.stdout) == (0, f"worker {worker} has stopped\n")
    again = owl.run("worker", "stop", worker)
    assert again.returncode == 1 and f"worker {worker} is stopped since" in again.stderr


@pytest.mark.covers("B-024")
def test_a_killed_worker_is_dead_and_its_task_pending(owl: Box) -> None:
    core = owl.serve()
    number = add(owl, "a slow one")
    worker = owl.json("worker", "start", "--task-id", str(number))
    until(lambda: bool(core.call("thread.list")), "it works")
    assert owl.run("worker", "kill", worker["id"]).stdout == f"worker {worker['id']} was killed\n"
    until(lambda: is_gone(worker["pid"]), "it is gone")
    assert owl.json("worker", "status", worker["id"])["status"] == "dead"
    with owl.store() as store:
        found = TaskRows(store).get(number)
        assert (found.status, found.deaths) == ("pending", 0)
        assert Runs(store, "").get(found.run).outcome == "interrupted"
    assert owl.run("worker", "reap").stdout == "no worker has died\n"


@pytest.mark.covers("B-024")
def test_reap_names_who_died(owl: Box) -> None:
    add(owl, "a slow one")
    worker = owl.json("worker", "start", "--persist")
    # A core of its own: a command without one would bury it before it is asked to.
    core = owl.serve()
    send(worker["pid"], signal.SIGKILL)
    until(lambda: is_gone(worker["pid"]), "it is gone")
    assert "gone" in owl.run("worker", "list").stdout
    assert owl.run("worker", "reap").stdout.startswith(f"worker {worker['id']} is dead")
    assert core.call("worker.view", id=worker["id"])["status"] == "dead"


@pytest.mark.covers("B-024")
def test_pages_of_the_list_are_consistent_and_filtered(owl: Box) -> None:
    made = record(owl, 5)
    pages = [w["id"] for offset in (0, 2, 4) for w in owl.json("worker", "list", "--limit", "2", "--offset", str(offset))]
    assert pages == [w["id"] for w in owl.json("worker", "list")] and set(pages) == set(made)
    assert owl.run("worker", "list", "--status", "dead").stdout == "no dead workers\n"
    assert len(owl.json("worker", "list", "--status", "stopped")) == 5


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("status", "0000-none"), 3, "no worker 0000-none"),
        (("stop", "0000-none"), 3, "no worker 0000-none"),
        (("start", "--task-id", "99"), 3, "no task 99"),
        (("run", "--task-id", "many"), 2, "'many' is no whole number"),
        (("list", "--status", "idle"), 2, "is none of running, stopped, dead"),
    ],
)
def test_errors_are_one_line_with_the_value(owl: Box, words: tuple[str, ...], code: int, why: str) -> None:
    done = owl.run("worker", *words)
    assert done.returncode == code and why in done.stderr and done.stderr.count("\n") == 1


def test_a_worker_that_cannot_start_says_why(owl: Box) -> None:
    core = owl.serve()
    owl.home.config.write_text("[workers]\nheartbeat_s = 0\n")
    with core.client() as client, pytest.raises(Exception, match="heartbeat_s"):
        client.call("worker.start", {}, deadline_s=60)


@pytest.mark.covers("E-166")
def test_of_a_long_log_the_end_is_shown_with_its_whole_size(owl: Box) -> None:
    path = owl.home.logs / "long.log"
    path.write_text("first\n" + "x" * LOG_BYTES + "\nlast line\n")
    [worker] = record(owl, log=path)
    found = owl.json("worker", "log", worker)
    assert (found["size_bytes"], len(found["text"])) == (path.stat().st_size, LOG_BYTES) and LOG_BYTES == 131_072
    shown = owl.run("worker", "log", worker).stdout
    assert "first" not in shown and shown.endswith("last line\n") and f"of {path.stat().st_size} bytes" in shown
    path.unlink()
    empty = owl.json("worker", "log", worker)
    assert (empty["size_bytes"], empty["text"]) == (0, "")


@pytest.mark.covers("E-165")
def test_a_worker_without_a_log_says_so(owl: Box) -> None:
    [worker] = record(owl)
    done = owl.run("worker", "log", worker)
    assert done.returncode == 0 and f"worker {worker} has no log file" in done.stdout
    assert owl.run("worker", "log", worker, "--json").returncode == 3


def test_a_log_is_followed_until_its_worker_ends(owl: Box) -> None:
    add(owl, "greet me")
    worker = owl.json("worker", "start")
    done = owl.run("worker", "log", worker["id"], "--follow")
    assert done.returncode == 0 and "didWork=true" in done.stdout and done.stdout.count("tick-start") == 1
    told = owl.run("worker", "log", worker["id"], "--follow", "--json").stdout.splitlines()
    assert "didWork=true" in "".join(json.loads(line)["text"] for line in told)


def test_run_tells_programs_what_it_did(owl: Box) -> None:
    idle = owl.json("worker", "run")
    assert (idle["did_work"], idle["mode"], idle["reason"]) == (False, "once", "there was nothing to do")
    number = add(owl, "greet me")
    assert owl.json("worker", "run", "--task-id", str(number))["did_work"] is True


def test_run_fails_when_its_task_has_failed(owl: Box) -> None:
    script(owl, '[[turns]]\nrepeat = true\ntool_calls = [{name = "fail_task", arguments = {reason = "no owls"}}]\n')
    number = add(owl, "count owls")
    done = owl.run("worker", "run", "--json")
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (1, f"task {number} failed")
    assert owl.run("worker", "run").returncode == 0  # nothing to do is no failure
    owl.json("task", "reset", str(number))
    assert owl.run("worker", "run", "--task-may-fail").returncode == 0, "a timer's unit has done its work"
    assert owl.json("task", "view", str(number))["status"] == "failed"


def test_status_and_doctor_tell_of_the_queue(owl: Box) -> None:
    add(owl, "greet me")
    shown = owl.run("status").stdout
    assert "tasks        1 pending" in shown and "workers      none" in shown
    told = owl.run("doctor").stdout
    assert "tasks wait and no worker runs" in told and "owlbox worker start --persist" in told
    owl.run("worker", "run")
    assert "0 workers run" in owl.run("doctor").stdout
