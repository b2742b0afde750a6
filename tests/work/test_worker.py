"""Workers as processes: on record while they live, their claims back when they die, stopped in good order."""

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from model_fixtures import ONE_THREAD, shallow_file, shallow_home
from process import Box, Core, a_box, is_gone, script, send, until
from record_tools import asdict
from stores import new_store

from appliance.clock import monotonic_s, new_id, now_ms, process, sleep_s, this_process
from appliance.errors import AlreadyRunning, NotFound, Refused
from appliance.records import Delta, Event
from appliance.runtime import paths
from appliance.runtime.events import Events
from appliance.runtime.methods import LocalCall
from appliance.runtime.paths import Home
from appliance.runtime.settings import WorkerSettings
from appliance.runtime.signals import Signals
from appliance.service.parts.queue import QueueParts
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.store.process_registry import Leases, Mode, ProcessRegistry, Pulse, Worker
from appliance.work.tasks import NewTask, TaskChanged, TaskRows
from appliance.work.worker_control import WorkerManager
from appliance.work.worker_log import INPUT_CHARS, PhaseLog, Screen

__all__ = ["a_box", "shallow_file", "shallow_home"]
LONG = " ".join(f"owl {number}" for number in range(500))
PLAY = """
[[turns]]
match = "slow"
repeat = true
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
chunk_size = 4
chunk_delay_s = 0.25
[[turns]]
match = "stuck"
repeat = true
text = "at last"
delay_s = 600
[[turns]]
match = "fails"
repeat = true
error = "unavailable"
[[turns]]
match = "at length"
text = "LONG"
[[turns]]
match = "call"
repeat = true
tool_calls = [{name = "complete_task", arguments = {summary = "all done"}}]
[[turns]]
match = "sum up"
tool_calls = [{name = "complete_task", arguments = {summary = "LONG"}}]
[[turns]]
repeat = true
text = "Hoot hoot."
""".replace("LONG", LONG)
ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture
def owl(box: Box) -> Iterator[Box]:
    """A box whose model plays PLAY; workers that were started in the background are ended with it."""
    script(box, PLAY)
    yield box
    with box.store() as store:
        roster = ProcessRegistry(store, Leases(store), box.runtime / "workers")
        for worker in roster.running():
            roster.send(worker, signal.SIGKILL)


@contextmanager
def crew(box: Box, pace: WorkerSettings | None = None) -> Iterator[WorkerManager]:
    """The workers of a box from here: a command for each look would take a second."""
    folder = paths.runtime_folder(box.home, box.environ, make=True) / "workers"
    with box.store() as store:
        yield WorkerManager(
            box.home,
            box.environ,
            store,
            ProcessRegistry(store, Leases(store), folder),
            TaskRows(store),
            lambda: pace or WorkerSettings(),
        )


def workers(box: Box) -> list[dict[str, Any]]:
    with crew(box) as found:
        return found.listing()


def add(box: Box, name: str) -> int:
    """A task that is just there: nobody is told of it."""
    with box.store() as store:
        return TaskRows(store).add(NewTask(name, person="ann")).id


def ask(box: Box, name: str) -> int:
    """A task that idle workers are told of."""
    with crew(box) as found:
        number = add(box, name)
        found.wake()
    return number


def outcome(box: Box, run: str) -> str:
    with box.store() as store:
        return Runs(store, "").get(run).outcome


def task(box: Box, number: int) -> dict[str, Any]:
    with box.store() as store:
        return asdict(TaskRows(store).get(number))


def status(box: Box, number: int) -> str:
    """Looked at many times a test, so without all that opening the store does."""
    db = apsw.Connection(str(box.home.database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        db.set_busy_timeout(10_000)
        return str(db.execute("SELECT status FROM tasks WHERE id = ?", (number,)).fetchall()[0][0])
    finally:
        db.close()


def start(box: Box, mode: Mode = "once") -> dict[str, Any]:
    with crew(box) as found:
        return found.start(mode == "persist")


# -- the list of workers --------------------------------------------------------------------------------


class Yard:
    """A roster and a crew on one database, and other processes that stand for workers."""

    def __init__(self, home: Home, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.leases = Leases(store)
        self.roster = ProcessRegistry(store, self.leases, folder)
        self.tasks = TaskRows(store)
        self.pace = WorkerSettings()
        self.crew = WorkerManager(home, {}, store, self.roster, self.tasks, lambda: self.pace)
        self.children: list[subprocess.Popen[bytes]] = []

    def hire(self, *, silent_s: float = 0.0, is_alive: bool = True, status: str = "running", ended_s: float = 0) -> str:
        """A row of a worker whose process lives (a child that sleeps) or not, without a sign of life but its row."""
        one = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        self.children.append(one)
        found = process(one.pid)
        if not is_alive:
            one.kill()
            one.wait()
        worker, now = new_id(), now_ms()
        with self.store.write() as execute:
            self.leases.begin("worker", found, worker)
            execute(
                "INSERT INTO workers (id, process, pid, host, mode, status, started_ms, beat_ms, ended_ms) "
                "VALUES (?, ?, ?, 'here', 'persist', ?, ?, ?, ?)",
                (
                    worker,
                    found.encode(),
                    one.pid,
                    status,
                    now - 10_000_000,
                    now - round(silent_s * 1000),
                    now - round(ended_s * 1000),
                ),
            )
        return worker

    def claim(self, worker: str, ago_s: float = 0.0) -> int:
        self.tasks.add(NewTask("work"))
        claim = self.tasks.claim(worker, now=now_ms() - round(ago_s * 1000))
        assert claim is not None
        return claim.task.id

    def state(self, worker: str) -> str:
        return self.roster.get(worker).status


@pytest.fixture
def yard(home: Home, tmp_path: Path) -> Iterator[Yard]:
    store = new_store(tmp_path / "owlbox.db")
    made = Yard(home, store, tmp_path / "workers")
    yield made
    for one in made.children:
        one.kill()
        one.communicate()
    store.close()


@pytest.mark.covers("B-016")
def test_a_worker_is_on_record_with_everything_that_is_known_of_it(yard: Yard) -> None:
    worker = new_id()
    pulse = yard.roster.begin(worker, "once", task=7, log=Path("/x/y.log"))
    [found] = yard.roster.listing()
    assert (found.id, found.pid, found.mode, found.task, found.status, found.log) == (
        worker,
        os.getpid(),
        "once",
        7,
        "running",
        "/x/y.log",
    )
    assert found.host == os.uname().nodename and found.process == this_process().encode() and re.fullmatch(ID, found.id)
    assert abs(found.started_ms - now_ms()) < 60_000 and found.beat_ms == found.started_ms and found.ended_ms is None
    assert yard.roster.end(worker, "stopped", "done") and not yard.roster.end(worker, "dead", "again")
    pulse.end()
    assert yard.roster.get(worker[-8:]).ended_ms is not None
    assert yard.leases.listing()[0].reason == "done"


@pytest.mark.covers("A-278")
def test_a_second_registration_under_one_id_is_refused(yard: Yard) -> None:
    worker = new_id()
    pulse = yard.roster.begin(worker, "persist")
    with pytest.raises(AlreadyRunning):
        yard.roster.begin(worker, "persist")
    yard.roster.end(worker, "stopped", "done")
    pulse.end()
    with pytest.raises(AlreadyRunning):
        yard.roster.begin(worker, "persist")
    assert len(yard.roster.listing()) == 1 and not (yard.folder / worker).exists()


@pytest.mark.covers("B-018", "E-162")
@pytest.mark.parametrize("how", ["stopped", "dead"])
def test_a_late_beat_revives_nobody(yard: Yard, how: Any) -> None:
    worker = yard.hire()
    assert yard.roster.beat(worker) and yard.roster.end(worker, how, "over")
    before = yard.roster.get(worker)
    assert yard.roster.beat(worker) is False and yard.roster.get(worker) == before


@pytest.mark.covers("B-019", "E-160")
def test_a_silent_worker_is_dead_and_its_tasks_are_pending_again(yard: Yard) -> None:
    silent, slow = yard.hire(silent_s=61), yard.hire(silent_s=59)
    first, second, kept = yard.claim(silent, 99), yard.claim(silent, 61), yard.claim(slow, 99)
    assert [worker.id for worker in yard.crew.reap()] == [silent]
    assert (yard.state(silent), yard.state(slow)) == ("dead", "running")
    for number in (first, second):
        found = yard.tasks.get(number)
        assert (found.status, found.claimed_by, found.claimed_ms, found.deaths) == ("pending", None, None, 1)
    assert yard.tasks.get(kept).claimed_by == slow
    assert yard.crew.reap() == []


@pytest.mark.covers("B-019")
def test_a_worker_out_of_sight_is_dead_only_if_it_holds_something_and_does_not_beat(yard: Yard) -> None:
    idle, beginner = yard.hire(silent_s=9999), yard.hire(silent_s=9999)
    yard.claim(beginner, 59)
    assert yard.crew.reap() == []
    yard.claim(idle, 61)
    assert [worker.id for worker in yard.crew.reap()] == [idle]


def test_nobody_is_silent_who_need_not_beat_yet(yard: Yard) -> None:
    yard.pace = WorkerSettings(heartbeat_s=100, dead_after_s=60)
    young, old = yard.hire(silent_s=199), yard.hire(silent_s=201)
    yard.claim(young, 300)
    yard.claim(old, 300)
    assert [worker.id for worker in yard.crew.reap()] == [old]


def test_how_long_a_claim_is_held_is_told_by_the_clock_that_never_jumps(yard: Yard) -> None:
    worker = new_id()
    pulse = yard.roster.begin(worker, "persist")
    assert yard.roster.held_s(worker) is None and yard.roster.held_s("nobody") is None
    pulse.hold(True)
    pulse.beat()
    held_s = yard.roster.held_s(worker)
    assert held_s is not None and 0 <= held_s < 60
    pulse.path.write_text(f"{monotonic_s():018.3f} {monotonic_s() - 400:018.3f}")
    assert (yard.roster.held_s(worker) or 0) > 399 and yard.crew.reap() == []
    pulse.hold(False)
    assert yard.roster.held_s(worker) is None
    pulse.end()


def test_a_worker_whose_process_is_gone_is_dead_at_once(yard: Yard) -> None:
    gone = yard.hire(is_alive=False)
    held = yard.claim(gone)
    assert yard.crew.counts() == {"running": 0, "stopped": 0, "dead": 1}
    assert [worker.id for worker in yard.crew.recover()] == [gone]
    assert yard.tasks.get(held).status == "pending" and yard.roster.get(gone).reason == "killed"


def test_a_worker_of_an_earlier_boot_has_lost_its_power(yard: Yard) -> None:
    gone = yard.hire()
    with yard.store.write() as execute:
        execute("UPDATE workers SET process = 'an-earlier-boot/1/1' WHERE id = ?", (gone,))
    yard.crew.recover()
    assert yard.roster.get(gone).reason == "power lost or restarted"


def test_a_clock_that_jumps_makes_nobody_silent(yard: Yard) -> None:
    worker = new_id()
    pulse = yard.roster.begin(worker, "persist")
    assert yard.crew.reap(now=now_ms() + 10**9) == [] and yard.state(worker) == "running"
    pulse.end()


def test_a_worker_that_hangs_is_told_by_the_clock_that_never_jumps(yard: Yard) -> None:
    worker = new_id()
    pulse = yard.roster.begin(worker, "persist")
    pulse.path.write_text(f"{monotonic_s() - 61:018.3f}")
    assert [one.id for one in yard.crew.reap(now=now_ms() - 10**9)] == [worker]
    pulse.end()


def test_a_process_we_cannot_see_lives_as_long_as_it_holds_its_lock(yard: Yard) -> None:
    gone = yard.hire(is_alive=False)
    pulse = Pulse(yard.folder / gone)
    assert yard.roster.gone(None) == []
    pulse.end()
    assert [worker.id for worker, _ in yard.roster.gone(None)] == [gone]


@pytest.mark.covers("B-020", "E-161")
def test_stopped_workers_are_forgotten_after_an_hour_and_dead_ones_kept(yard: Yard) -> None:
    old, young = yard.hire(status="stopped", ended_s=3601), yard.hire(status="stopped", ended_s=1800)
    dead = yard.hire(status="dead", ended_s=3601)
    yard.crew.reap()
    assert {worker.id for worker in yard.roster.listing()} == {young, dead}
    with pytest.raises(NotFound):
        yard.roster.get(old)


def test_a_claim_of_nobody_on_record_is_given_back(yard: Yard) -> None:
    held = yard.claim("whoever")
    yard.crew.recover()
    assert yard.tasks.get(held).status == "pending"


def test_nothing_is_written_when_there_is_nobody_to_bury(yard: Yard) -> None:
    worker = new_id()
    pulse = yard.roster.begin(worker, "persist")
    before = yard.store.value("SELECT total_changes()")
    assert yard.crew.reap() == [] and yard.crew.recover() == []
    pulse.beat()
    assert yard.store.value("SELECT total_changes()") == before
    pulse.end()


def test_a_signal_reaches_that_very_process_only(yard: Yard) -> None:
    worker = yard.hire()
    [found] = yard.roster.running()
    later = Worker(**{**asdict(found), "process": found.process.rpartition("/")[0] + "/1"})
    assert yard.roster.send(later, signal.SIGKILL) is False and yard.children[0].poll() is None
    assert yard.roster.send(found, signal.SIGKILL) and yard.children[0].wait(60) == -9
    assert yard.roster.send(found, signal.SIGKILL) is False
    assert yard.state(worker) == "running"


def test_a_worker_that_died_three_times_with_a_task_leaves_it_to_a_person(yard: Yard) -> None:
    for _ in range(3):
        gone = yard.hire(is_alive=False)
        if yard.tasks.counts()["pending"] == 0:
            yard.claim(gone)
        else:
            assert yard.tasks.claim(gone) is not None
        yard.crew.recover()
    found = yard.tasks.get(1)
    assert (found.status, found.deaths) == ("waiting", 3) and "died 3 times" in found.waiting_reason


# -- what a worker says while it works ------------------------------------------------------------------


@pytest.mark.covers("B-013", "B-014")
def test_lines_of_a_log_begin_with_the_time_and_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    log = PhaseLog(path, lambda text: text.replace("secret", "[hidden]"))
    log.say("tick-start", "#1")
    log.show(Delta("never shown"))
    log.show(Event("r", "message", "assistant", "two\nlines of a secret"))
    log.show(Event("r", "tool_use", "assistant", "", tool="write", input={"text": "x" * 900}))
    log.show(Event("r", "tool_result", "tool", "y" * 900, tool="write", duration_ms=1234))
    log.show(Event("r", "tool_result", "tool", "no", tool="write", status=500))
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d \[\[", line) for line in lines)
    assert [line[9:] for line in (*lines[:2], *lines[3:])] == [
        "[[tick-start]] #1",
        "[[assistant]] two lines of a [hidden]",
        "[[tool-result]] ok in 1.2s",
        "[[tool-result]] err in 0.0s",
    ]
    assert len(lines[2]) == len("00:00:00 [[tool-call]] write ") + INPUT_CHARS
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_is_turned_over_at_its_size(tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    log = PhaseLog(path, str, max_bytes=1000)
    for number in range(100):
        log.note(f"line {number:03d} {'x' * 50}")
    assert path.stat().st_size < 1100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["w.log", "w.log.1", "w.log.2"]
    kept = "".join((tmp_path / name).read_text() for name in ("w.log.2", "w.log.1", "w.log"))
    assert [int(n) for n in re.findall(r"line (\d+)", kept)] == list(range(100))[-kept.count("\n") :]


def test_a_screen_that_nobody_looks_at_any_more_ends_nothing() -> None:
    gone = open("/dev/full", "w")
    screen = Screen(gone, str)
    screen.note("x" * 100_000)
    screen.show(Delta("more"))
    with pytest.raises(OSError):
        gone.close()


def test_a_screen_shows_addresses_as_people_type_them_however_they_come() -> None:
    out = io.StringIO()
    screen = Screen(out, str)
    for piece in ("It is in [b", "ox:", "//notes/x.md] an", "d bo"):
        screen.show(Delta(piece))
    screen.note("The end, of a box\n")
    assert out.getvalue() == "It is in [notes/x.md] and bo\nThe end, of a box\n\n"


def test_a_bell_may_be_rung_when_nobody_waits_any_more() -> None:
    signals = Signals(())
    signals.ring()
    assert signals.wait(1) == 0
    signals.close()
    signals.ring()


# -- once -----------------------------------------------------------------------------------------------


@pytest.mark.covers("B-008", "B-010", "B-011")
def test_a_worker_does_one_task_a_start_and_nothing_when_nothing_is_due(owl: Box) -> None:
    done = owl.run("worker", "run")
    assert (done.returncode, done.stdout) == (0, "nothing to do\n")
    with owl.store() as store:
        assert Runs(store, "").list_runs() == []
    assert workers(owl) == [], "a timer that starts it every minute leaves no rows"
    one, two = add(owl, "first"), add(owl, "second")
    assert owl.run("worker", "run").returncode == 0
    assert [status(owl, one), status(owl, two)] == ["complete", "pending"]
    assert {worker["status"] for worker in workers(owl)} == {"stopped"}


@pytest.mark.covers("B-014", "B-016", "E-165")
def test_a_foreground_worker_shows_text_with_markers_and_has_no_log(owl: Box) -> None:
    add(owl, "please call it")
    shown = owl.run("worker", "run").stdout
    assert "→ complete_task" in shown and "← complete_task ok" in shown and "[[" not in shown
    [worker] = workers(owl)
    assert worker["log"] is None
    told = owl.run("worker", "log", worker["id"])
    assert told.returncode == 0 and "has no log file" in told.stdout


@pytest.mark.covers("B-014")
def test_signals_that_come_to_the_end_kill_nobody_and_text_is_shown(owl: Box) -> None:
    add(owl, "greet me")
    child = owl.start("worker", "run")
    until(lambda: bool(workers(owl)), "it is on record")
    while child.poll() is None:
        child.send_signal(signal.SIGUSR1)
        sleep_s(0.01)
    assert child.returncode == 0 and child.stdout is not None and "Hoot hoot." in child.stdout.read().decode()


@pytest.mark.covers("B-026")
def test_a_worker_with_a_task_of_its_own_takes_that_one_or_says_why_not(owl: Box) -> None:
    first, second = add(owl, "first"), add(owl, "second")
    assert owl.run("worker", "run", "--task-id", str(second)).returncode == 0
    assert [status(owl, first), status(owl, second)] == ["pending", "complete"]
    again = owl.run("worker", "run", "--task-id", str(second))
    assert again.returncode == 0 and f"task {second} is complete: nothing claimed" in again.stdout


@pytest.mark.covers("B-012")
def test_without_a_model_nothing_is_claimed_and_the_worker_says_so(owl: Box) -> None:
    number = add(owl, "anything")
    done = owl.run("worker", "run", OWLBOX__MODELS__SCRIPT="")
    assert done.returncode == 5 and "nothing done" in done.stdout
    assert (status(owl, number), task(owl, number)["attempts"]) == ("pending", 0)


def test_a_persistent_worker_waits_while_no_model_can_be_asked_and_then_goes_on(owl: Box) -> None:
    number, there = add(owl, "please call it"), owl.environ.pop("OWLBOX__MODELS__SCRIPT")
    made = start(owl, "persist")
    log = Path(made["log"])
    until(lambda: "[[sleeping]] 10s" in log.read_text(), "it tried again after 5 seconds")
    assert (status(owl, number), task(owl, number)["attempts"]) == ("pending", 0)
    assert "[[sleeping]] 5s" in log.read_text()
    owl.environ["OWLBOX__MODELS__SCRIPT"] = there
    owl.serve().call("queue.changed")
    until(lambda: status(owl, number) == "complete", "the core that came has a model")


# -- in the background ----------------------------------------------------------------------------------


@pytest.mark.covers("B-013", "B-015", "B-016", "B-024")
def test_a_worker_in_the_background_has_a_log_and_its_thread_has_everything(owl: Box) -> None:
    number = add(owl, "please call it")
    made = start(owl)
    until(lambda: status(owl, number) == "complete", "the task is done")
    until(lambda: is_gone(made["pid"]), "the worker ends")
    log = Path(made["log"])
    assert log == owl.home.logs / f"{made['id']}.log" and log.stat().st_mode & 0o777 == 0o600
    phases = re.findall(r"\[\[([a-z-]+)\]\]", log.read_text())
    assert phases == ["tick-start", "claiming-task", "tool-call", "tool-result", "tick-end"]
    with owl.store() as store:
        [call] = [e for e in Runs(store, "").events(task(owl, number)["run"]) if e.kind == "tool_use"]
    assert call.input == {"summary": "all done"}
    assert made["message"] == f"worker {made['id']} has started, for one task"


@pytest.mark.covers("B-015", "B-052", "B-053")
def test_what_the_log_shortens_is_whole_in_the_thread_with_its_time_and_tokens(owl: Box) -> None:
    said, called = add(owl, "tell it at length"), add(owl, "sum up")
    logged = []
    for _ in range(2):
        made = start(owl)
        until(lambda: is_gone(made["pid"]), "the worker ends")  # noqa: B023
        logged.append(Path(made["log"]).read_text())
    with owl.store() as store:
        runs = Runs(store, "")
        answer = next(e for e in runs.events(task(owl, said)["run"]) if e.role == "assistant")
        use, result = (e for e in runs.events(task(owl, called)["run"]) if e.kind in ("tool_use", "tool_result"))
    assert answer.content == LONG and (answer.tokens or 0) > 500
    assert use.input == {"summary": LONG} and result.duration_ms is not None
    assert [(e.kind, e.tool) for e in (use, result)] == [("tool_use", "complete_task"), ("tool_result", "complete_task")]
    assert all("owl 3 owl" in text and LONG not in text for text in logged)


@pytest.mark.covers("B-010", "B-013", "B-025")
def test_a_persistent_worker_sleeps_when_idle_and_begins_at_once_when_a_task_is_added(owl: Box) -> None:
    made = start(owl, "persist")
    log = Path(made["log"])
    until(lambda: "[[sleeping]] 300s" in log.read_text(), "it sleeps")
    one = int(owl.json("task", "add", "please call it")["id"])
    until(lambda: status(owl, one) == "complete", "it was woken")
    until(lambda: log.read_text().count("[[tick-start]]") > 2, "it looks again at once")
    text = log.read_text()
    assert text.index("didWork=false") < text.index("[[sleeping]]") < text.index("didWork=true")
    after = text[text.index("didWork=true") :].splitlines()[1]
    assert "[[tick-start]]" in after, "no sleep after a tick with work"
    assert os.getsid(made["pid"]) == made["pid"], "a session of its own"
    with crew(owl) as found:
        assert found.stop(made["id"])["state"] == "stopped"


def test_a_task_that_is_reset_or_no_longer_waits_wakes_an_idle_worker(owl: Box) -> None:
    first, second = add(owl, "never done"), add(owl, "please call it")
    with owl.store() as store:
        TaskRows(store).update(second, blocked_by=[first])
        TaskRows(store).cancel(first)
    made = start(owl, "persist")
    until(lambda: "[[sleeping]] 300s" in Path(made["log"]).read_text(), "it sleeps")
    assert owl.run("task", "update", str(second), "--blocked-by", "").returncode == 0
    until(lambda: status(owl, second) == "complete", "it was woken by the change")
    assert owl.run("task", "reset", str(first)).returncode == 0
    until(lambda: status(owl, first) == "complete", "it was woken by the reset")


@pytest.mark.covers("B-012", "B-184")
def test_a_failing_model_does_not_end_a_persistent_worker(owl: Box) -> None:
    made = start(owl, "persist")
    bad = ask(owl, "this fails")
    until(lambda: status(owl, bad) == "failed", "the task failed")
    assert "the script says: unavailable" in task(owl, bad)["failure"]
    good = ask(owl, "please call it")
    until(lambda: status(owl, good) == "complete", "the next is done")
    assert not is_gone(made["pid"])


@pytest.mark.covers("B-021")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_worker_gives_its_task_back_and_says_when_it_ended(owl: Box, number: signal.Signals) -> None:
    held = add(owl, "a stuck one")
    made = start(owl, "persist")
    until(lambda: status(owl, held) == "in_progress" and bool(task(owl, held)["run"]), "it works")
    send(made["pid"], number)
    until(lambda: is_gone(made["pid"]), "it ends")
    [worker] = workers(owl)
    assert worker["status"] == "stopped" and worker["ended_ms"] and worker["reason"] == number.name
    found = task(owl, held)
    assert (found["status"], found["deaths"]) == ("pending", 0)
    assert outcome(owl, found["run"]) == "stopped"


@pytest.mark.covers("B-022")
def test_a_killed_workers_task_is_done_by_another(owl: Box) -> None:
    held = add(owl, "a slow one")
    made = start(owl, "persist")
    until(lambda: bool(task(owl, held)["run"]), "it works")
    send(made["pid"], signal.SIGKILL)
    until(lambda: is_gone(made["pid"]), "it is gone")
    other = start(owl, "persist")
    until(lambda: status(owl, held) == "complete", "the other has done it")
    found = task(owl, held)
    assert (found["attempts"], found["deaths"]) == (2, 1)
    assert {w["id"]: w["status"] for w in workers(owl)} == {made["id"]: "dead", other["id"]: "running"}


@pytest.mark.covers("B-017", "B-022")
def test_a_living_worker_reaps_a_dead_one_while_it_works_itself(owl: Box) -> None:
    owl.environ |= {"OWLBOX__WORKERS__REAP_INTERVAL_S": "1", "OWLBOX__WORKERS__HEARTBEAT_S": "1"}
    held = add(owl, "a stuck one")
    first = start(owl)
    until(lambda: bool(task(owl, held)["run"]), "it works")
    mine = add(owl, "another stuck one")
    second = start(owl, "persist")
    until(lambda: bool(task(owl, mine)["run"]), "so does the other")
    with owl.store() as store:
        roster = ProcessRegistry(store, Leases(store), owl.runtime / "workers")
        before = roster.get(second["id"]).beat_ms
        until(lambda: roster.get(second["id"]).beat_ms > before, "it beats during the model's call")
    send(first["pid"], signal.SIGKILL)
    until(lambda: status(owl, held) == "pending", "its task came back")
    assert status(owl, mine) == "in_progress" and task(owl, held)["deaths"] == 1


def idle_beside_a_dead_one(box: Box) -> tuple[int, str]:
    """A task whose worker was killed, and a worker that has found nothing to do; nobody has looked since."""
    held = add(box, "a stuck one")
    dead = start(box, "persist")
    until(lambda: bool(task(box, held)["run"]), "it works")
    idle = start(box, "persist")
    until(lambda: "[[sleeping]]" in Path(idle["log"]).read_text(), "the other sleeps")
    send(dead["pid"], signal.SIGKILL)
    until(lambda: is_gone(dead["pid"]), "it is gone")
    return held, idle["id"]


@pytest.mark.covers("B-019", "B-022")
@pytest.mark.parametrize("way", ["a command", "the core", "another worker"])
def test_whoever_gives_work_back_wakes_the_idle(owl: Box, way: str) -> None:
    owl.environ |= {"OWLBOX__WORKERS__REAP_INTERVAL_S": "3600"}
    held, idle = idle_beside_a_dead_one(owl)
    if way == "a command":
        assert owl.run("worker", "list").returncode == 0
    elif way == "the core":
        owl.serve().stop()
    else:
        owl.environ |= {"OWLBOX__WORKERS__REAP_INTERVAL_S": "1", "OWLBOX__WORKERS__HEARTBEAT_S": "1"}
        assert owl.run("worker", "run", "--task-id", "99").returncode == 0
    until(lambda: task(owl, held)["claimed_by"] == idle, "the idle one has begun with it")
    assert task(owl, held)["deaths"] == 1


@pytest.mark.covers("B-019", "B-022")
def test_an_idle_worker_finds_the_dead_one_by_itself_within_what_is_promised(owl: Box) -> None:
    pace = WorkerSettings()
    assert (pace.dead_after_s, pace.reap_interval_s) == (60, 30), "90 s until the task is pending again"
    owl.environ |= {"OWLBOX__WORKERS__REAP_INTERVAL_S": "1", "OWLBOX__WORKERS__HEARTBEAT_S": "1"}
    held, idle = idle_beside_a_dead_one(owl)
    until(lambda: task(owl, held)["claimed_by"] == idle, "the idle one has looked for itself")
    assert task(owl, held)["deaths"] == 1


def test_a_task_of_a_worker_that_hangs_wakes_the_idle(yard: Yard) -> None:
    told: list[int] = []
    events = Events()
    events.subscribe(TaskChanged, lambda changed: told.append(changed.task.id))
    tasks = TaskRows(yard.store, events)
    held = yard.claim(yard.hire(), 99)
    assert [task.id for task in tasks.release_stale(now_ms())] == [held] == told


def test_a_worker_that_was_taken_for_dead_ends_and_changes_nothing(owl: Box) -> None:
    owl.environ |= {"OWLBOX__WORKERS__HEARTBEAT_S": "1", "OWLBOX__WORKERS__DEAD_AFTER_S": "2"}
    held = add(owl, "a stuck one")
    made = start(owl, "persist")
    until(lambda: bool(task(owl, held)["run"]), "it works")
    send(made["pid"], signal.SIGSTOP)
    sleep_s(2.5)
    with crew(owl, WorkerSettings(heartbeat_s=1, dead_after_s=2)) as seen:
        assert [w.id for w in seen.reap()] == [made["id"]]
    assert status(owl, held) == "pending"
    send(made["pid"], signal.SIGCONT)
    until(lambda: is_gone(made["pid"]), "it ends when it learns of it")
    assert (status(owl, held), task(owl, held)["attempts"]) == ("pending", 1)
    assert workers(owl)[0]["status"] == "dead"


def test_cancelling_a_task_reaches_its_worker_at_once(owl: Box) -> None:
    held = add(owl, "a stuck one")
    start(owl, "persist")
    until(lambda: bool(task(owl, held)["run"]), "it works")
    owl.json("task", "cancel", str(held))
    until(lambda: status(owl, held) == "failed", "it stops")
    assert task(owl, held)["failure"] == "cancelled"


def test_several_workers_share_one_home(owl: Box) -> None:
    numbers = [add(owl, f"call {n}") for n in range(8)]
    children = [owl.start("worker", "run", "--persist") for _ in range(3)]
    until(lambda: {status(owl, n) for n in numbers} == {"complete"}, "all are done")
    assert {task(owl, n)["attempts"] for n in numbers} == {1}
    for one in children:
        one.terminate()
        assert one.wait(60) == 0
        assert "locked" not in (one.stderr.read().decode() if one.stderr else "")


# -- with a core ----------------------------------------------------------------------------------------


def test_a_worker_uses_the_broker_of_the_core_and_its_result_is_told_there(owl: Box) -> None:
    core = owl.serve()
    broker = core.broker_pid()
    number = add(owl, "please call it")
    made = core.call("worker.start")
    until(lambda: status(owl, number) == "complete", "the task is done")
    until(lambda: is_gone(made["pid"]), "the worker ends")
    brokers = [line for line in owl.log("broker/broker") if line["message"] == "listening"]
    assert len(brokers) == 1 and core.broker_pid() == broker

    def is_told() -> bool:
        return [letter["status"] for letter in core.call("outbox.list")] in (["sent"], ["logged"])

    until(is_told, "the core was told to send it")
    [letter] = core.call("outbox.list")
    assert letter["letter"]["key"] == f"task:{number}:1:complete" and "all done" in letter["letter"]["text"]


@pytest.mark.covers("B-025")
def test_a_worker_outlives_the_core_that_started_it_and_goes_on_without(owl: Box) -> None:
    core = owl.serve()
    made = core.call("worker.start", is_persistent=True)
    core.stop()
    assert not is_gone(made["pid"])
    number = ask(owl, "please call it")
    until(lambda: status(owl, number) == "complete", "it has a broker of its own")
    again = owl.serve()
    until(lambda: again.call("worker.list", status="running")[0]["id"] == made["id"], "the next core knows it")
    assert again.call("worker.stop", id=made["id"])["state"] == "stopped"


@pytest.mark.covers("B-025")
def test_the_tool_starts_a_worker_with_a_task(owl: Box) -> None:
    core = owl.serve()
    number = add(owl, "please call it")
    made = core.call("tool.call", name="spawn_worker", arguments={"task_id": number})["data"]
    assert set(made) == {"worker_id", "worker_pid", "mode", "message"} and made["mode"] == "once"
    until(lambda: status(owl, number) == "complete", "the task is done")
    both = core.call("tool.call", name="spawn_worker", arguments={"task_id": number, "persist": True})
    assert both["status"] == 409


@pytest.mark.covers("A-186")
def test_the_broker_is_lent_to_the_cores_own_user_alone_and_its_token_is_in_no_file(owl: Box) -> None:
    core = owl.serve()
    core.broker_pid()
    lent = core.call("core.broker")
    assert lent["socket"] == str(paths.broker_socket(owl.runtime)) and len(lent["token"]) >= 32
    with pytest.raises(Refused):
        QueueParts.lend_broker(None, call=LocalCall(uid=4711))  # type: ignore[arg-type]
    core.stop()
    token = lent["token"].encode()
    assert [p for p in owl.home.root.rglob("*") if p.is_file() and token in p.read_bytes()] == []


def test_a_core_that_starts_gives_back_what_a_dead_worker_held(owl: Box) -> None:
    held = add(owl, "a stuck one")
    made = start(owl)
    until(lambda: bool(task(owl, held)["run"]), "it works")
    send(made["pid"], signal.SIGKILL)
    until(lambda: is_gone(made["pid"]), "it is gone")
    core: Core = owl.serve()
    assert status(owl, held) == "pending"
    assert core.call("core.status")["queue"]["workers"] == {"running": 0, "stopped": 0, "dead": 1}
    assert outcome(owl, task(owl, held)["run"]) == "interrupted"


# -- from the question to the answer ----------------------------------------------------------------------


LATER = """
[[turns]]
match = "later"
tool_calls = [{name = "create_task", arguments = {name = "count the owls"}}]
[[turns]]
match = "Task: count the owls"
tool_calls = [{name = "complete_task", arguments = {summary = "there are three"}}]
[[turns]]
repeat = true
text = "I will."
"""


def test_what_was_asked_for_in_a_talk_is_told_there_when_it_is_done(owl: Box) -> None:
    script(owl, LATER)
    core = owl.serve()
    run = owl.json("ask", "count the owls later")["run"]
    core.call("tool.call", name="spawn_worker", arguments={})

    def told() -> list[str]:
        return [e["content"] for e in owl.events(run) if e["role"] == "assistant" and e["kind"] == "message"]

    until(lambda: "Task 1 (count the owls) done:\nthere are three" in told(), "the thread was told")
    assert [letter["status"] for letter in core.call("outbox.list")] == ["sent"]


def test_the_bundled_model_does_a_task_from_the_queue(box: Box, shallow_file: Path) -> None:
    os.link(shallow_file, box.home.models / shallow_file.name)
    box.environ |= ONE_THREAD
    box.environ.pop("OWLBOX__MODELS__SCRIPT")
    core = box.serve()
    number = ask(box, "What is 2 plus 3?")
    made = core.call("worker.start")
    until(lambda: is_gone(made["pid"]), "the worker ends", 180)
    found = task(box, number)
    # How it ends is up to a small model, and what it says to the processor's rounding: what was kept is what is told.
    kept = {"complete": "output", "failed": "failure", "waiting": "waiting_reason"}
    said = found[kept[found["status"]]]
    until(lambda: core.call("outbox.list")[0]["status"] != "waiting", "it is told")
    assert said.strip() and core.call("outbox.list")[0]["letter"]["text"].endswith(f":\n{said}")
