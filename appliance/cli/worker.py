"""The commands about workers: `owlbox worker run`, `start`, `list` and the rest.

`run` works in this very process, as a worker that another command or the core has started does; the others ask the
core, or do the same in this process when none runs. Heavy parts are imported inside, as in `cli.listings`.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

from appliance.cli.console import garbage, terminal
from appliance.cli.console.connect import connected, refuse_root
from appliance.cli.console.terminal import Table, say, say_json, show
from appliance.cli.console.tool_command import once
from appliance.errors import NotFound
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
FOLLOW_S = 0.5


def add(command: Command) -> None:
    """Add the group."""
    root = command("worker", list_workers, "processes that work through the queue")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    for name, handler, text in (
        ("run", run, "work here: do the next task that is due, then end; with nothing due, end at once"),
        ("start", start, "start such a worker in the background; it outlives this command"),
    ):
        made = command(name, handler, text, known)
        made.add_argument("--persist", action="store_true", help="go on until it is stopped")
        made.add_argument("--task-id", type=int, default=None, metavar="ID", help="only this task")
        made.add_argument("--no-eval-schedules", dest="is_scheduling", action="store_false", help="do not judge schedules")
    also = "exit with 0 also when the task failed: for timers"
    known.choices["run"].add_argument("--task-may-fail", action="store_true", help=also)
    made = command("list", list_workers, "newest first", known)
    made.add_argument("--status", default="", choices=["running", "stopped", "dead"], help="only in this state")
    made.add_argument("--limit", type=int, default=20)
    made.add_argument("--offset", type=int, default=0)
    for name, handler, text in (
        ("status", view, "everything about one worker, and what it works on"),
        ("stop", stop, "ask a worker to stop; it gives back what it holds"),
        ("kill", kill, "end a worker at once; what it held is pending again"),
        ("log", log, "the end of a worker's log"),
    ):
        made = command(name, handler, text, known)
        made.add_argument("id", help="its id, or the beginning or end of it")
    known.choices["log"].add_argument("--follow", action="store_true", help="go on showing it until the worker ends")
    command("reap", reap, "bury workers that have died, and give back what they held", known)


def run(args: argparse.Namespace, home: Home) -> int:
    """Work in this process until there is nothing to do, or a signal."""
    from appliance.work.worker_control import ID, READY, check

    mode: Literal["once", "persist"] = "persist" if args.persist else "once"
    check(mode, args.task_id)
    refuse_root(home)
    with garbage.loading():
        from appliance.clock import new_id
        from appliance.service.core import Core
        from appliance.service.daemon import settle
        from appliance.store.process_registry import STOPPED
        from appliance.work.worker import Post
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
    post = Post(given or new_id(), mode, args.task_id, path)
    shift = core.shift(post, phases, is_scheduling=args.is_scheduling)
    try:
        code = shift.run(lambda: _say_ready(ready), grace_s=core.live.current.system.shutdown_s)
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


def start(args: argparse.Namespace, home: Home) -> int:
    """Start a worker in the background."""
    from appliance.work.worker_control import check

    check("persist" if args.persist else "once", args.task_id)
    params = {"is_persistent": args.persist, "task": args.task_id, "is_scheduling": args.is_scheduling}
    made = once(home, "worker.start", params)
    return show(args, made, made["message"])


def list_workers(args: argparse.Namespace, home: Home) -> int:
    """Workers as a table."""
    params = {"status": getattr(args, "status", ""), "limit": getattr(args, "limit", 20), "offset": getattr(args, "offset", 0)}
    found = once(home, "worker.list", params)
    rows = [[w["id"], w["mode"], _describe_state(w), _format_time(w["started_ms"])[5:], _format_heartbeat(w)] for w in found]
    return show(
        args,
        found,
        Table(
            rows,
            ["id", "mode", "state", "started", "seen"],
            ["state", "seen"],
            empty="no workers" if not params["status"] else f"no {params['status']} workers",
        ),
    )


def view(args: argparse.Namespace, home: Home) -> int:
    """One worker, a line for each thing that is known."""
    worker = once(home, "worker.view", {"id": args.id})
    if args.json:
        return say_json(worker)
    facts = {
        "id": worker["id"],
        "state": _describe_state(worker) + (f": {worker['reason']}" if worker["reason"] else ""),
        "pid": f"{worker['pid']} on {worker['host']}",
        "mode": worker["mode"] + (f", only task {worker['task']}" if worker["task"] else ""),
        "started": _format_time(worker["started_ms"]),
        "last seen": _format_time(worker["beat_ms"]),
        "ended": _format_time(worker["ended_ms"]) if worker["ended_ms"] else "",
        "works on": "; ".join(f"task {c['task']} ({c['name']}), thread {c['run'] or 'none yet'}" for c in worker["claims"]),
        "log": worker["log"] or "none: it runs in the foreground",
    }
    for name, fact in facts.items():
        if fact:
            say(f"{name:<12} {fact}")
    return 0


def stop(args: argparse.Namespace, home: Home) -> int:
    """Ask a worker to stop."""
    worker = once(home, "worker.stop", {"id": args.id})
    if args.json:
        say_json(worker)
    elif worker["state"] == "stopping":
        say(f"worker {worker['id']} is stopping; owlbox worker kill ends it at once")
    else:
        say(f"worker {worker['id']} has stopped")
    return 0


def kill(args: argparse.Namespace, home: Home) -> int:
    """End a worker at once."""
    worker = once(home, "worker.kill", {"id": args.id})
    return show(args, worker, f"worker {worker['id']} was killed")


def reap(args: argparse.Namespace, home: Home) -> int:
    """Bury the dead."""
    buried = once(home, "worker.reap", {})
    if args.json:
        say_json(buried)
    for worker in [] if args.json else buried:
        say(f"worker {worker['id']} is dead: {worker['reason'] or 'its process is gone'}")
    if not buried and not args.json:
        say("no worker has died")
    return 0


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


def _describe_state(worker: dict[str, Any]) -> str:
    """As people say it: one whose process is gone and that nobody has buried yet is no running one."""
    return "gone" if worker["status"] == "running" and not worker["is_alive"] else str(worker["status"])


def _format_time(at_ms: int) -> str:
    from appliance.clock import local_time

    return local_time(at_ms)[:16]


def _format_heartbeat(worker: dict[str, Any]) -> str:
    """How long ago it gave a sign of life; "" for one that has ended."""
    from appliance.clock import now_ms

    return f"{max(0, now_ms() - worker['beat_ms']) // 1000} s ago" if worker["status"] == "running" else ""
