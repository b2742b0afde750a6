"""The commands that begin services and look after them: init, serve, broker, status, reload, doctor, maintain, nuke."""

import argparse
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from appliance.console import garbage, terminal
from appliance.console.connect import connected, pending_lines, require_owner
from appliance.console.parser import Command
from appliance.console.terminal import say_json, say_line, show
from appliance.console.verbs import Verb
from appliance.errors import Refused, Unavailable
from appliance.runtime import paths
from appliance.runtime.paths import Home

SCOPES = ("context", "tasks", "schedules", "threads", "all")
TITLE = 40  # columns of a thread's title in `status`


def add(command: Command) -> None:
    """Add all of them."""
    command("status", status, "show what is running and waiting")
    made = command("init", init, "create a home")
    made.add_argument("--force", action="store_true", help="complete an existing home; nothing is overwritten")
    made.add_argument("--new-database", action="store_true", help="start with an empty database if the old one is gone")
    made = command("serve", serve, "run the core until it is stopped")
    made.add_argument("--init", action="store_true", help="first create what is missing in the home, as init --force")
    made = command("broker", broker, "run the model broker until it is stopped")
    made.add_argument("--socket", default="", metavar="PATH", help="where to listen")
    command("web", web, "serve the web page until stopped; off unless channels.web.enabled")
    made = command("doctor", doctor, "check the whole installation")
    made.add_argument("checks", nargs="*", metavar="CHECK", help="only these checks, in full; default: all")
    made.add_argument("--repair", action="store_true", help="rebuild what can be recovered")
    made = command("maintain", maintain, "run maintenance once, if it is due")
    made.add_argument("--now", action="store_true", help="check the database even if it was checked today")
    made = command("nuke", nuke, "delete everything of one kind; only counts without --yes")
    made.add_argument("scope", choices=SCOPES, help="what to delete; all: the four others, spending and approvals")
    made.add_argument("--yes", action="store_true", help="delete; only a backup brings it back")


def init(args: argparse.Namespace, home: Home) -> int:
    from appliance.upkeep import home_setup

    made = home_setup.init(home, is_forced=args.force, is_new_database=args.new_database)
    return show(
        args,
        {"home": str(home.root), "made": [str(p) for p in made]},
        [f"made {home.root}" if made else f"{home.root} is complete"],
    )


def serve(args: argparse.Namespace, home: Home) -> int:
    with garbage.loading():
        from appliance.service import daemon
        from appliance.upkeep import home_setup

    if args.init:
        home_setup.init(home, is_forced=True)
    return daemon.serve(home, os.environ)


def broker(args: argparse.Namespace, home: Home) -> int:
    with garbage.loading():
        from appliance.models import broker as service

    # A core killed while we were starting left us before we could ask the kernel to tell us (2026-11-21).
    if os.environ.pop("OWLBOX_PARENT", str(os.getppid())) != str(os.getppid()):
        return 0
    return service.serve(home, os.environ, socket_path=Path(args.socket) if args.socket else None)


def web(args: argparse.Namespace, home: Home) -> int:
    try:
        from appliance.http import process
    except ImportError as error:
        raise Unavailable(
            f"the web page needs a package that is missing: {error.name}",
            hint="run make in the folder of the sources, which installs it",
        ) from None
    return process.serve(home, os.environ)


def status(args: argparse.Namespace, home: Home) -> int:
    with connected(home) as way:
        status = way.call("core.status")
    status["core"] = "running" if way.is_remote else "not running"
    if not way.is_remote:  # what was asked is this process, which ends with the command
        status |= {"state": "not running", "pid": None, "uptime_s": 0}
    if args.json:
        return say_json(status)
    lines = [("problem", fault) for fault in status.get("faults", ())]
    lines += [("core", _describe_core(status)), *(_installation_lines(status) if "home" in status else _own_lines(status))]
    if status["last_thread"]:
        last = status["last_thread"]
        lines.append(("last thread", f"{last['id']} {terminal.state(last)} {terminal.clipped(last['title'], TITLE)}"))
    for name, value in lines:
        say_line(f"{name:<12} {value}")
    return 0


def _describe_core(status: dict[str, Any]) -> str:
    if status["core"] != "running":
        return "not running (commands work without it)"
    return f"running, pid {status['pid']}, up {status['uptime_s']} s"


def _own_lines(status: dict[str, Any]) -> list[tuple[str, str]]:
    """What a person with standard rights is told: the model, and their own sessions."""
    local = status["local"]
    sessions = [("session", f"{one['id']}, {one['status']}") for one in status["sessions"]]
    return [
        *([("model", "{model}, {tier} ({basis})".format(**local))] if local else []),
        ("pool", status["default_pool"]),
        *sessions,
    ]


def _installation_lines(status: dict[str, Any]) -> list[tuple[str, str]]:
    """What an admin is told of every part."""
    broker = status["broker"]
    model = broker.get("model") or "none loaded"
    lines = [
        ("home", status["home"]),
        ("owner", status["owner"]),
        ("broker", broker["state"] + (f", pid {broker['pid']}, model {model}" if broker.get("pid") else "")),
        *([("problem", f"the model process {broker['last_end']}, and starts again when needed")] if broker.get("last_end") else []),
        *([("model", "{model}, {tier} ({basis})".format(**local))] if (local := status["local"]) else []),
        *([("vault", terminal.vault(broker["vault"]))] if any(map(broker.get("vault", {}).get, ("count", "problem"))) else []),
        *(("pending", text) for text in pending_lines(status["pending"])),
        ("pools", "; ".join(f"{n} = {', '.join(r)}" for n, r in status["pools"].items()) + f" (in use: {status['default_pool']})"),
        ("channels", ", ".join(f"{n} {'on' if on is True else on or 'off'}" for n, on in status["channels"].items())),
        *([("web page", page)] if (page := status["page"]) else []),
        ("workspace", status["workspace"]),
        ("sandbox", _describe_sandbox(status["sandbox"])),
        ("stored", str(status["entries"])),
        ("search", "{vectors} of {chunks} passages have a vector; {state}".format(**status["search"])),
        ("answering", str(status["answering"])),
        *((name, _describe_counts(counts)) for name, counts in status["queue"].items()),
    ]
    if status["plugins"]:
        words = (f"{one['name']} {one['state']}" for one in status["plugins"])
        lines.append(("plugins", "; ".join(words)))
    lines += [("problem", text) for text in (*status["folder"]["problems"], *status["roles"]["problems"])]
    if remote := broker.get("remote", {}).get("providers"):
        from appliance.cli import usage

        lines.append(("providers", "; ".join(f"{one['name']} {usage.state(one)}" for one in remote)))
        lines.append(("spending", usage.spent(broker["remote"]["spending"])))
    return lines


def _describe_sandbox(health: dict[str, Any]) -> str:
    """How the sandboxes of tools are doing, in one line."""
    held = "system calls filtered" + (f", Landlock {health['landlock']}" if health["has_landlock"] else ", no Landlock")
    said = " ".join(health["reason"].split()) or f"{held}, {health['running']} of {health['max_concurrent']} in use"
    return f"{health['state']}: {said}"


def _describe_counts(counts: dict[str, int]) -> str:
    """Those of some counts that are not 0, in words."""
    return ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items() if count) or "none"


def doctor(args: argparse.Namespace, home: Home) -> int:
    from appliance.upkeep.checks import table_process

    require_owner(home)
    lock = None
    if args.repair:
        from appliance.upkeep.home_lock import Lock

        lock = Lock(home.lock)
    # Begun first: on two cores the tables are read while this process reads the doctor.
    tables = table_process.TableCheck(home, None if args.repair else table_process.BRIEF_S)
    with garbage.loading():
        from appliance.records import to_plain
        from appliance.upkeep.doctor import Doctor

    try:
        findings = Doctor(home, os.environ, is_repairing=args.repair, tables=tables).examine(args.checks)
    finally:
        tables.close()
        if lock is not None:
            lock.release()
    if args.json:
        say_json(to_plain(findings))
    else:
        for f in findings:
            say_line(f"{f.state:<8} {f.name:<14} {f.message}" + (f" ({f.hint})" if f.hint and f.state != "ok" else ""))
            for name, value in f.details.items() if args.checks else ():
                say_line(f"{'':<8} {name:<24} {value}")
    return 1 if any(f.state == "problem" for f in findings) else 0


def maintain(args: argparse.Namespace, home: Home) -> int:
    from appliance.records import to_plain
    from appliance.service import maintenance

    require_owner(home)
    done = maintenance.maintain(home, os.environ, is_forced=args.now)
    show(args, to_plain(done), "\n".join(done.lines()))
    return 1 if done.problems else 0


def nuke(args: argparse.Namespace, home: Home) -> int:
    """Delete everything of one kind, which a running worker keeps from happening; only count it without --yes."""
    from appliance.store import clearing
    from appliance.store.database import Store
    from appliance.store.process_registry import Leases, ProcessRegistry
    from appliance.upkeep.home_lock import Lock

    require_owner(home)
    with ExitStack() as held:
        if args.yes:
            held.callback(Lock(home.lock).release)
        store = Store.open(home.database)
        held.callback(store.close)
        if not args.yes:
            counts = clearing.count(store, args.scope)
            text = f"would delete {_describe_rows(counts)}; owlbox nuke {args.scope} --yes does it"
            show(args, {"deleted": False, "rows": counts}, text)
            return 1
        running = ProcessRegistry(store, Leases(store), paths.runtime_folder(home, os.environ) / "workers").running()
        if running:
            is_alive = any(worker.is_alive() for worker in running)
            hint = "owlbox worker stop ID, then again" if is_alive else "owlbox worker reap, then again: it died without saying so"
            names = ", ".join(worker.id[-8:] for worker in running[:3])
            raise Refused(f"{len(running)} workers count as running ({names}): nothing was deleted", hint=hint)
        counts = clearing.clear(store, args.scope)
    kept = "files in box/ stay and are read again at the next start" if args.scope in ("context", "all") else "files stay"
    text = f"deleted {_describe_rows(counts)}; {kept}; backups still hold it: {home.backups}"
    return show(args, {"deleted": True, "rows": counts}, text)


def _describe_rows(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {table}" for table, count in counts.items()) or "nothing"


NOUNS = (
    Verb("reload", "core.reload", text="reload the configuration of the running core",
         alone="the configuration is read at every start",
         says=lambda args, done: [f"changed: {done['changed'] or 'nothing'}", *pending_lines(done)]),
)  # fmt: skip
