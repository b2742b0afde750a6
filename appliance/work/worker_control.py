"""Workers as seen from outside: started, listed, stopped, and marked dead when they have died.

Owns no table: the rows are those of `store.process_registry`, what the dead held is given back by `tasks`. A worker that is started
here has a session of its own, so it outlives the command, the chat or the screen that asked for it; under systemd
it ends with the unit that started it, and gives its claim back. Knows nothing about what a worker does.
"""

import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from appliance.clock import iso, monotonic_s, new_id, now_ms, sleep_s
from appliance.errors import BadInput, Conflict, NotFound, Unavailable
from appliance.runtime import sd_notify
from appliance.runtime.methods import method
from appliance.runtime.paths import Home
from appliance.runtime.settings import WorkerSettings
from appliance.runtime.signatures import Range
from appliance.store import disk_faults
from appliance.store.database import Store
from appliance.store.process_registry import DEAD, RUNNING, STOPPED, Mode, ProcessRegistry, Worker
from appliance.work.tasks import Claim, Task, TaskRows

LOG = logging.getLogger(__name__)
READY_S = 30.0  # how long a worker may take to register: a Pi reads Python from a card
STOP_S = 10.0
LOG_BYTES = 128 * 1024  # of a log that are shown
Named = Annotated[str, Range(1, 64), "its id, or the beginning or end of it"]
ID, READY = "OWLBOX_WORKER_ID", "OWLBOX_READY_FD"  # told to a worker by whoever starts it


class WorkerManager:
    """Starts and watches the workers of a home."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str],
        store: Store,
        roster: ProcessRegistry,
        tasks: TaskRows,
        settings: Callable[[], WorkerSettings],
    ) -> None:
        self._home = home
        self._environ = environ
        self._store = store
        self._roster = roster
        self._tasks = tasks
        self._settings = settings

    # -- looking --------------------------------------------------------------------------------------

    @method("worker.list", access="all")
    def listing(
        self,
        status: Annotated[Literal["", "running", "stopped", "dead"], "only in this state"] = "",
        limit: Annotated[int, Range(1, 1000), "how many to show"] = 20,
        offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    ) -> list[dict[str, Any]]:
        """Workers, newest first."""
        if status not in ("", RUNNING, STOPPED, DEAD):
            raise BadInput(f"status {status!r}", hint=f"use {RUNNING}, {STOPPED} or {DEAD}")
        return [self._worker_data(worker) for worker in self._roster.listing(status, limit=limit, offset=offset)]

    @method("worker.view")
    def view(self, id: Named) -> dict[str, Any]:
        """One worker, with the tasks it holds in `claims`."""
        worker = self._roster.get(id)
        return {
            **self._worker_data(worker),
            "claims": [{"task": t.id, "name": t.name, "run": t.run} for t in self._held_tasks(worker.id)],
        }

    def counts(self) -> dict[str, int]:
        """How many workers there are in each state, those that died unnoticed among the dead."""
        counts = self._roster.counts()
        gone = len(self._roster.gone(None))
        return {**counts, RUNNING: counts[RUNNING] - gone, DEAD: counts[DEAD] + gone}

    @method("worker.log", is_quiet=True)
    def log(
        self, id: Named, after: Annotated[int, Range(-1, 2**62), "only from this byte on; -1 is the end of it"] = -1
    ) -> dict[str, Any]:
        """At most the last 128 KB of a worker's log as `text`, with the whole size in bytes; a foreground worker has none."""
        worker = self._roster.get(id)
        if worker.log is None:
            raise NotFound(f"worker {worker.id} has no log file", hint="it ran in the foreground of a terminal")
        size_bytes, data, start = 0, b"", 0
        try:
            with open(worker.log, "rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                start = max(0, size_bytes - LOG_BYTES)
                if 0 <= after <= size_bytes:
                    start = max(start, after)
                file.seek(start)
                data = file.read(size_bytes - start)
        except FileNotFoundError:
            pass  # cleared away: empty
        text = data.decode("utf-8", "replace")
        return {
            "id": worker.id,
            "path": worker.log,
            "size_bytes": size_bytes,
            "start": start,
            "text": text,
            "status": worker.status,
        }

    # -- starting and ending --------------------------------------------------------------------------

    @method("worker.start")
    def start(
        self,
        is_persistent: Annotated[bool, "goes on until it is stopped; otherwise it does one task"] = False,
        task: Annotated[int | None, "only this task"] = None,
        is_scheduling: Annotated[bool, "judge due schedules first"] = True,
    ) -> dict[str, Any]:
        """Start a worker that outlives its caller; returns when it is registered: `id`, `pid`, `mode`, `log`, `message`."""
        mode: Mode = "persist" if is_persistent else "once"
        check(mode, task)
        if task is not None:
            self._tasks.get(task)
        worker = new_id()
        path = self._home.logs / f"{worker}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        ready_reader, ready_writer = os.pipe()
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600), "ab") as output:
                words = ["--persist"] if mode == "persist" else []
                words += [] if task is None else ["--task-id", str(task)]
                words += [] if is_scheduling else ["--no-eval-schedules"]
                child = subprocess.Popen(
                    [sys.executable, "-P", "-m", "appliance", "--home", str(self._home.root), "worker", "run", *words],
                    env={**self._child_environment(), ID: worker, READY: str(ready_writer)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=(ready_writer,),
                    cwd="/",
                )
            os.close(ready_writer)
            ready_writer = -1
            # Collected when it ends: a dead child that nobody waits for stays in the table of processes.
            threading.Thread(target=child.wait, name=f"worker-{child.pid}", daemon=True).start()
            try:
                self._await_ready(ready_reader, path)
            except Unavailable:
                child.terminate()  # or it would work all the same, after we have said that it does not
                raise
        finally:
            os.close(ready_reader)
            if ready_writer >= 0:
                os.close(ready_writer)
        what = f"for task {task}" if task is not None else "which runs until you stop it" if mode == "persist" else "for one task"
        message = f"worker {worker} has started, {what}"
        LOG.info("%s", message, extra={"pid": child.pid})
        return {"id": worker, "pid": child.pid, "mode": mode, "task": task, "log": str(path), "message": message}

    def stop(self, ref: str) -> dict[str, Any]:
        """Ask a worker to stop: it gives back what it holds. Waits for it a moment; "stopping" when it takes longer."""
        worker = self._require_running(ref)
        if self._roster.send(worker, signal.SIGTERM):
            end_s = monotonic_s() + STOP_S
            while monotonic_s() < end_s and worker.is_alive() and self._roster.get(worker.id).status == RUNNING:
                sleep_s(0.05)
        if not worker.is_alive():
            # It ended without a word, or was gone already.
            self._give_back(worker, "stopped", "stopped")
        now = self._roster.get(worker.id)
        return {**self._worker_data(now), "state": "stopping" if now.status == RUNNING else now.status}

    def kill(self, ref: str) -> dict[str, Any]:
        """End a worker at once. What it held is pending again, and that does not count as a death of the task's making."""
        worker = self._require_running(ref)
        self._roster.send(worker, signal.SIGKILL)
        end_s = monotonic_s() + STOP_S
        while worker.is_alive() and monotonic_s() < end_s:
            sleep_s(0.02)
        self._give_back(worker, "dead", "killed on request")
        return self._worker_data(self._roster.get(worker.id))

    def wake(self) -> int:
        """Let idle workers look for work now; how many were told."""
        return sum(self._roster.send(worker, signal.SIGUSR1) for worker in self._roster.running() if worker.mode == "persist")

    def nudge(self, task: Task) -> None:
        """Let a task's worker see at once that the task is to be stopped."""
        for worker in self._roster.running():
            if worker.id == task.claimed_by:
                self._roster.send(worker, signal.SIGUSR1)

    # -- the dead -------------------------------------------------------------------------------------

    def reap(self, *, now: int | None = None) -> list[Worker]:
        """Mark dead and silent workers as dead, give back what they held, forget those stopped long ago; those marked."""
        settings = self._settings()
        # Nobody can be heard more often than they beat.
        dead = self._remove_dead(max(settings.dead_after_s, 2 * settings.heartbeat_s), now)
        self._roster.prune(settings.stopped_retention_s, now)
        return dead

    def recover(self) -> list[Worker]:
        """Bury the workers whose process is gone, by the kernel's word alone, and forget stopped ones of long ago.

        Writes nothing when there are none.
        """
        self._roster.prune(self._settings().stopped_retention_s)
        return self._remove_dead(None, None)

    def _remove_dead(self, dead_after_s: float | None, now: int | None) -> list[Worker]:
        dead = []
        for worker, why in self._roster.gone(dead_after_s, now):
            with self._store.write(durable=True):
                if self._roster.end(worker.id, "dead", why):
                    back = self._tasks.release(worker.id, f"its worker died: {why}")
                    dead.append(worker)
                    LOG.warning("worker %s is dead: %s; %d tasks given back", worker.id, why, len(back))
        for holder in self._roster.strays():
            back = self._tasks.release(holder, "its worker is gone")
            LOG.warning("worker %s is gone; %d tasks given back", holder, len(back))
        return dead

    # -- inside ---------------------------------------------------------------------------------------

    def _give_back(self, worker: Worker, status: Literal["stopped", "dead"], why: str) -> None:
        with self._store.write(durable=True):
            self._roster.end(worker.id, status, why)
            for task in self._held_tasks(worker.id):
                self._tasks.give_back(Claim(task, worker.id, task.attempts), f"its worker was {why}")

    def _held_tasks(self, worker: str) -> list[Task]:
        return [task for task in self._tasks.list_tasks(status="in_progress", limit=10_000) if task.claimed_by == worker]

    def _require_running(self, ref: str) -> Worker:
        worker = self._roster.get(ref)
        if worker.status != RUNNING:
            raise Conflict(
                f"worker {worker.id} is {worker.status} since {iso(worker.ended_ms or 0)[:16]}", hint="owlbox worker list"
            )
        return worker

    def _worker_data(self, worker: Worker) -> dict[str, Any]:
        is_running = worker.status == RUNNING
        return {
            "id": worker.id,
            "pid": worker.pid,
            "host": worker.host,
            "mode": worker.mode,
            "task": worker.task,
            "status": worker.status,
            "is_alive": is_running and worker.is_alive(),
            "started_ms": worker.started_ms,
            "beat_ms": now_ms() - round(max(0.0, self._roster.silent_s(worker)) * 1000) if is_running else worker.beat_ms,
            "ended_ms": worker.ended_ms,
            "log": worker.log,
            "reason": worker.reason,
        }

    def _child_environment(self) -> dict[str, str]:
        """What a worker needs to know of our environment: nothing that was meant for this process alone."""
        private = (*sd_notify.PRIVATE, ID, READY, "OWLBOX_TOKEN", "OWLBOX_CHILD", "OWLBOX_PARENT", "OWLBOX_CONFIG")
        return {name: value for name, value in self._environ.items() if name not in private}

    def _await_ready(self, ready_reader: int, log: Path) -> None:
        """Wait for a worker's word that it is registered; its last line of log when it ends before."""
        if select.select([ready_reader], [], [], READY_S)[0] and os.read(ready_reader, 1):
            return
        try:
            lines = log.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        if not lines and (fault := disk_faults.write_fault(log.parent)):
            raise fault
        why = lines[-1].removeprefix("owlbox: ") if lines else "it said nothing"
        raise Unavailable(f"the worker did not start: {why}", hint=f"its log is {log}")


def check(mode: str, task: int | None) -> None:
    """Conflict for a worker that goes on for ever with one task alone."""
    if mode == "persist" and task is not None:
        raise Conflict("a worker for one task ends with it: --persist and --task-id exclude each other", hint="leave one out")
