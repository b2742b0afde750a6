"""The commands about workers: `owlbox worker run`, `start`, `list` and the rest, made from the definitions of their methods.

`run` works in this very process, as a worker that another command or the core has started does; the others ask the
core, or do the same in this process when none runs. Heavy parts are imported inside, because start-up time counts.
"""

import argparse
import os
import sys
from typing import Any, Literal

from appliance.clock import now_ms
from appliance.console import garbage, terminal
from appliance.console.connect import connected, refuse_root
from appliance.console.terminal import say, say_json
from appliance.console.verbs import Noun, Verb, cell
from appliance.errors import NotFound
from appliance.runtime.paths import Home

FOLLOW_S = 0.5


def run(args: argparse.Namespace, home: Home) -> int:
    """Work in this process until there is nothing to do, or a signal."""
    from appliance.work.worker_control import ID, READY, check

    mode: Literal["once", "persist"] = "persist" if args.persist else "once"
    check(mode, args.task_id)
    refuse_root(home)
    with garbage.loading():
        from appliance.clock import new_id
        from appliance.runtime.shutdown import TOTAL_S
        from appliance.service.core import Core
        from appliance.service.daemon import settle
        from appliance.store.process_registry import STOPPED
        from appliance.work.worker import WorkerOptions
        from appliance.work.worker_log import PhaseLog, Phases, Screen

    settle(home, os.environ, is_worker=True)
    given, ready = os.environ.pop(ID, ""), os.environ.pop(READY, "")
    core = Core(home, os.environ, process="worker", is_shared=False)
    path = home.logs / f"{given}.log" if given else None
    phases: Phases
    if path is not None:
        phases = PhaseLog(path, core.redactor.clean, is_output=True)
    else:
        phases = Screen(
            sys.stderr if args.json else sys.stdout, lambda text: terminal.fitting(core.redactor.clean(text), sys.stdout)
        )
    core.recover()
    core.box_folder.compare()
    post = WorkerOptions(given or new_id(), mode, args.task_id, path)
    shift = core.shift(post, phases, is_scheduling=args.is_scheduling)
    try:
        code = shift.run(lambda: _say_ready(ready), grace_s=TOTAL_S)
    finally:
        core.close(STOPPED)
    if args.json and not given:
        say_json({"id": post.id, "mode": mode, "task": args.task_id, "reason": shift.reason, "did_work": shift.did_work})
    if shift.has_failed_task and args.task_may_fail:
        code = 0
    if shift.is_left_behind:
        # Python would wait for its thread; what it holds is found and given back when we are gone.
        sys.stdout.flush()
        os._exit(code or 1)
    return code


def _say_ready(handle: str) -> None:
    """Tell whoever started us that we are registered."""
    if handle:
        try:
            with open(int(handle), "wb") as mouth:
                mouth.write(b"1")
        except BrokenPipeError:
            pass  # it has not waited for us


def log(args: argparse.Namespace, home: Home) -> int:
    """The end of a log, and what comes with --follow."""
    from appliance.clock import sleep_s

    with connected(home) as way:
        try:
            found = way.call("worker.log", {"id": args.id})
        except NotFound as error:
            if args.json or "no log file" not in error.message:
                raise
            say(f"{error.message}: {error.hint}")
            return 0
        if args.json and not args.follow:
            return say_json(found)
        if found["start"] and not args.json:
            say(f"[the last {found['size_bytes'] - found['start']} of {found['size_bytes']} bytes]")
        while True:
            if args.json and found["text"]:
                say_json(found)
            elif found["text"]:
                sys.stdout.write(terminal.fitting(found["text"], sys.stdout))
                sys.stdout.flush()
            if not args.follow or (found["status"] != "running" and not found["text"]):
                return 0
            sleep_s(0.0 if found["status"] != "running" else FOLLOW_S)
            found = way.call("worker.log", {"id": found["id"], "after": found["size_bytes"]})


def _add_run(made: argparse.ArgumentParser) -> None:
    made.add_argument("--persist", action="store_true", help="keep running until stopped")
    made.add_argument("--task-id", type=int, default=None, metavar="ID", help="only this task")
    made.add_argument("--no-eval-schedules", dest="is_scheduling", action="store_false", help="do not run schedules")
    made.add_argument("--task-may-fail", action="store_true", help="exit with 0 even if the task failed, for timers")


def _add_follow(made: argparse.ArgumentParser) -> None:
    made.add_argument("id", help="its id, or the beginning or end of it")
    made.add_argument("--follow", action="store_true", help="keep showing new lines until the worker ends")


def _describe_state(worker: dict[str, Any]) -> str:
    """As people say it: one whose process is gone and that nobody has marked as dead yet is no running one."""
    return "gone" if worker["status"] == "running" and not worker["is_alive"] else str(worker["status"])


def _format_heartbeat(worker: dict[str, Any]) -> str:
    """How long ago it gave a sign of life; "" for one that has ended."""
    return f"{max(0, now_ms() - worker['beat_ms']) // 1000} s ago" if worker["status"] == "running" else ""


def _tell_stopped(args: argparse.Namespace, worker: dict[str, Any]) -> str:
    if worker["state"] == "stopping":
        return f"worker {worker['id']} is stopping; owlbox worker kill ends it at once"
    return f"worker {worker['id']} has stopped"


def _tell_dead(args: argparse.Namespace, dead: list[dict[str, Any]]) -> list[str]:
    return [f"worker {one['id']} is dead: {one['reason'] or 'its process is gone'}" for one in dead] or ["no worker has died"]


# fmt: off
NOUNS = (
    Noun("worker", "workers: processes that do tasks", (
        Verb("run", text="do the next task here, then exit",
             handler=run, adds=_add_run),
        Verb("start", "worker.start", "--persist=is_persistent --task-id=task --no-eval-schedules=is_scheduling",
             text="start a worker in the background", says="{message}",
             helps={"persist": "keep running until stopped", "no_eval_schedules": "do not run schedules"}),
        Verb("list", "worker.list", text="newest first", rows="id mode state=status~ started=started_ms seen=beat_ms~",
             cells={"status": _describe_state, "beat_ms": _format_heartbeat,
                    "started_ms": lambda one: cell(one, "started_ms", {})[5:]}, empty="no {status} workers"),
        Verb("status", "worker.view", text="show one worker and its task",
             fields="id state=status pid mode started=started_ms last_seen=beat_ms ended=ended_ms works_on=claims log",
             cells={"status": lambda one: _describe_state(one) + (f": {one['reason']}" if one["reason"] else ""),
                    "pid": lambda one: f"{one['pid']} on {one['host']}",
                    "mode": lambda one: one["mode"] + (f", only task {one['task']}" if one["task"] else ""),
                    "claims": lambda one: "; ".join(
                        f"task {c['task']} ({c['name']}), thread {c['run'] or 'none yet'}" for c in one["claims"]),
                    "log": lambda one: one["log"] or "none: it runs in the foreground"}),
        Verb("stop", "worker.stop", "id", says=_tell_stopped),
        Verb("kill", "worker.stop", "id", text="kill a worker; its task is pending again", fixed={"is_forced": True},
             says="worker {id} was killed"),
        Verb("log", text="show the end of a worker's log", handler=log, adds=_add_follow),
        Verb("reap", "worker.reap", text="free the tasks of dead workers", says=_tell_dead),
    )),
)
