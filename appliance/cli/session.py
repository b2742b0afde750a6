"""The commands about sessions and runs: `owlbox session`, `owlbox run`, and the words of `owlbox thread`.

Each takes the parsed arguments and the home and returns the exit code, as in `listings`. Files of transcripts are
written and read here, with the rights of whoever types: only lines go to the core and come from it.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from appliance.cli import listings
from appliance.cli.console import terminal, tool_command
from appliance.cli.console.connect import Reach, connected
from appliance.cli.console.terminal import Table, fitting, say, say_json, say_line, show
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

CONVERSATIONS = "conversations: list, view, follow, search, rename, fork, export"
RUN = "its name or id, or the beginning or end of the id"
THREAD = "its id, or the beginning or end of it"
Command = Callable[..., Any]
SUFFIX = ".jsonl"
SESSIONS = 1000  # asked for at a time
PART_LINES, PART_CHARS, MAX_LINE = 200, 400_000, 3_000_000
STATES = ("created", "active", "idle", "stopped", "archived", "closing", "closed")
FOLLOW = "show a thread as it grows; ends when the thread ends; a chat stays open (Ctrl+C ends the showing)"
KINDS = ("chat", "ask", "tick", "child")
OTHER_KINDS = {"chat_session": "chat", "worker_tick": "tick"}
FLAGS = ("no-repo", "no-web", "no-interaction", "no-proposals")


def _thread_kind(word: str) -> str:
    """A type of threads, by either of its names."""
    return OTHER_KINDS.get(word, word)


# -- the words --------------------------------------------------------------------------------------


def add(command: Command) -> None:
    """The words of `owlbox thread`, `session` and `run`."""

    def below(made: Any) -> Any:
        return made.add_subparsers(metavar="ACTION", parser_class=type(made))

    _add_threads(command, below(command("thread", listings.threads, CONVERSATIONS)))
    _add_sessions(command, below(command("session", sessions, "who talks to Owlbox, and in which channel")))
    _add_runs(command, below(command("run", listings.threads, "thread, with the settings of its work")))


def _add_threads(command: Command, known: Any) -> None:
    listing = command("list", listings.threads, "newest first", known)
    listing.add_argument(
        "--type", type=_thread_kind, default="", choices=KINDS, help="only this type; worker_tick and chat_session too"
    )
    listing.add_argument("--limit", type=int, default=20)
    listing.add_argument("--offset", type=int, default=0)
    view = command("view", listings.thread_view, "everything in one thread", known)
    view.add_argument("id", help=THREAD)
    view.add_argument("--only", default="", metavar="ROLE,ROLE", help="user, assistant, system, tool")
    view.add_argument("--follow", action="store_true", help="go on as it grows, as thread follow does")
    view.set_defaults(interval=500)
    search = command("search", thread_search, "find text in what was said, exactly as it was written, the newest first", known)
    search.add_argument("query", nargs="+", help="letters to look for, in whatever case")
    search.add_argument("--days", type=int, default=0, help="only messages of so many days")
    search.add_argument("--limit", type=int, default=10, dest="max_results", help="how many to show, 1 to 50")
    delete = command("delete", listings.thread_delete, "delete a thread and everything said in it", known)
    delete.add_argument("id", help=THREAD)
    follow = command("follow", listings.thread_follow, FOLLOW, known)
    follow.add_argument("id", nargs="?", default="", help="default: the newest one that has not ended")
    follow.add_argument("--interval", type=int, default=500, metavar="MS", help="pause between looks")
    _add_work(command, known)
    export = command("export", thread_export, "a thread as JSON lines, after those it was forked off", known)
    export.add_argument("id", help=THREAD)
    export.add_argument("-o", "--output", default="", metavar="FILE", help="write this file instead of standard output")


def _add_sessions(command: Command, known: Any) -> None:
    listing = command("list", sessions, "sessions, the newest activity first", known)
    listing.add_argument("--user", default="", metavar="NAME", help="only this person's")
    listing.add_argument("--group", default="", metavar="NAME", help="only this group's")
    listing.add_argument("--type", default="", choices=["user", "group"], dest="context_type", help="only of people, or of groups")
    listing.add_argument("--status", default="", choices=STATES, help="only in this state")
    listing.add_argument("--after", default="", metavar="DATE", help="created after this, such as 2026-11-22")
    listing.add_argument("--before", default="", metavar="DATE", help="created before this")
    listing.add_argument("--limit", type=int, default=100)
    listing.add_argument("--offset", type=int, default=0)
    words = {
        "view": "one session and its threads",
        "archive": "put a session away until a person says something in it",
        "resume": "make a session active again",
        "close": "let a session take no more messages",
        "delete": "delete a closed session with everything said in it",
    }
    for name, text in words.items():
        made = command(name, session_view if name == "view" else session_do, text, known)
        made.set_defaults(verb=name)
        made.add_argument("id", help="channel:sender, or the sender")
        if name == "close":
            made.add_argument("--final", action="store_true", help="also your own, which then takes nothing more that you say")
    export = command("export", session_export, "a session as JSON lines", known)
    export.add_argument("id", nargs="?", default="", help="channel:sender; none with --all")
    export.add_argument("-o", "--output", default="", metavar="FILE", help="write this file instead of standard output")
    export.add_argument("--all", default="", metavar="DIR", help="every session into a file of its own below this folder")
    restore = command("import", session_import, "read exported sessions; what is here already stays as it is", known)
    restore.add_argument("path", nargs="+", help=f"files, or folders with {SUFFIX} files; - reads a pipe")


def _add_runs(command: Command, known: Any) -> None:
    listing = command("list", listings.threads, "newest first", known)
    listing.add_argument("--limit", type=int, default=20)
    listing.add_argument("--offset", type=int, default=0)
    command("view", run_view, "what a thread is set to, and what waits in it", known).add_argument("run", help=RUN)
    _add_work(command, known)


def _add_work(command: Command, known: Any) -> None:
    """What can be done with a thread as work, by `owlbox thread` and by its other name `owlbox run`."""
    words: dict[str, tuple[Any, str]] = {
        "tree": (run_tree, "every branch of a thread and of its forks"),
        "abort": (run_do, "end only what is being answered; what is queued comes next"),
        "rename": (run_do, "give a thread another name"),
        "inject": (run_do, "say something to a thread, also while it is answering"),
        "fork": (run_do, "a new thread that begins where this one stands"),
        "jump": (run_do, "go on after another event of a thread"),
        "config": (run_config, "what a thread is set to; change it"),
    }
    made = {}
    for name, (handler, text) in words.items():
        made[name] = command(name, handler, text, known)
        made[name].set_defaults(verb=name)
        made[name].add_argument("run", help=RUN)
    made["rename"].add_argument("alias", help="letters, digits and _")
    made["inject"].add_argument("text", nargs="+", help="what is said")
    made["fork"].add_argument("--at", type=int, default=0, metavar="NUMBER", help="after this event (default: where it stands)")
    made["fork"].add_argument("--name", default="", help="what the new run is called")
    made["jump"].add_argument("at", type=int, metavar="NUMBER", help="after this event; 0 is the beginning")
    config = made["config"]
    config.add_argument("--model", help="a pool or a route")
    config.add_argument("--role", help="who answers from the next message on; assistant for the usual one")
    config.add_argument("--temperature", type=float, help="0 to 2")
    config.add_argument("--context-limit", type=int, help="tokens, at least 1024")
    config.add_argument("--approval", choices=["ask", "review", "auto"], help="reading only, changes wait for you, or they happen")
    for flag in FLAGS:
        dest, what = flag.replace("-", "_"), flag.removeprefix("no-")
        config.add_argument(f"--{flag}", action="store_const", const=True, dest=dest, help=f"work without {what}")
        config.add_argument(f"--{what}", action="store_const", const=False, dest=dest, help=f"work with {what} again")
    config.add_argument(
        "--yolo", action=argparse.BooleanOptionalAction, dest="is_yolo", help="whatever waits for you happens at once"
    )


def thread_search(args: argparse.Namespace, home: Home) -> int:
    """Print the messages that hold some letters."""
    given = {"query": " ".join(args.query), "days": args.days, "max_results": args.max_results}
    return tool_command.run_tool(args, home, "search_history", given)


# -- sessions ---------------------------------------------------------------------------------------


def sessions(args: argparse.Namespace, home: Home) -> int:
    """List sessions."""
    from appliance.clock import local_time

    params = {name: getattr(args, name, "") for name in ("user", "group", "context_type", "status")}
    params |= {"limit": getattr(args, "limit", 100), "offset": getattr(args, "offset", 0)}
    params |= {f"created_{name}_ms": _at_ms(getattr(args, name, "")) for name in ("after", "before")}
    found = tool_command.once(home, "session.list", params)
    rows = []
    for one in found:
        since, active = (local_time(one[name])[:16] for name in ("created_ms", "last_active_ms"))
        rows.append([one["id"], one["status"], str(one["messages"]), since, active, one["context"]])
    head = ["session", "state", "messages", "since", "last active", "of"]
    return show(args, found, Table(rows, head, ["of"], empty="no sessions"))


def session_view(args: argparse.Namespace, home: Home) -> int:
    """Show one session."""
    from appliance.clock import local_time

    found = tool_command.once(home, "session.view", {"id": args.id})
    if args.json:
        return say_json(found)
    say_line(f"{found['id']} of {found['context']}, {found['status']}")
    say(f"since {local_time(found['created_ms'])[:16]}, last active {local_time(found['last_active_ms'])[:16]}")
    listings.print_threads(found["runs"])
    return 0


def session_do(args: argparse.Namespace, home: Home) -> int:
    """Change a session's state, or delete it."""
    more = {"is_final": True} if getattr(args, "final", False) else {}
    done = tool_command.once(home, f"session.{args.verb}", {"id": args.id, **more})
    if args.json:
        say_json(done)
    elif args.verb == "delete":
        say_line(f"deleted session {args.id} with {done['events']} events")
    else:
        say_line(f"{done['id']} is {done['status']}")
    return 0


def session_export(args: argparse.Namespace, home: Home) -> int:
    """Write one session, or each into a file of its own."""
    if bool(args.id) == bool(args.all):
        raise BadInput("name one session, or a folder for all", hint="owlbox session export ID, or --all DIR")
    with connected(home) as way:
        if args.id:
            return write_stream(way, "session.export", args.id, args.output)
        made = []
        Path(args.all).mkdir(mode=0o700, parents=True, exist_ok=True)
        known: list[dict[str, Any]] = []
        while page := way.call("session.list", {"limit": SESSIONS, "offset": len(known)}):
            known += page
        for found in known:
            folder = Path(args.all) / quote(found["context"], safe="@.")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = folder / f"{quote(found['id'], safe='@.')}{SUFFIX}"
            write_stream(way, "session.export", found["id"], str(path))
            made.append(str(path))
    return show(args, made, "\n".join(made) or "no sessions")


def thread_export(args: argparse.Namespace, home: Home) -> int:
    """Write one thread."""
    with connected(home) as way:
        return write_stream(way, "thread.export", args.id, args.output)


def write_stream(way: Reach, method: str, ref: str, path: str) -> int:
    """What a method streams, to standard output or whole into a private file, or not at all."""
    if not path:

        def write(name: str, value: dict[str, Any]) -> None:
            if name == "line":
                print(fitting(value["text"], sys.stdout), end="")

        way.call(method, {"id": ref}, write)
        return 0
    target = Path(path)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mode 0600
    try:
        with open(handle, "w", encoding="utf-8") as file:

            def keep(name: str, value: dict[str, Any]) -> None:
                if name == "line":
                    file.write(value["text"])

            way.call(method, {"id": ref}, keep)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return 0


def session_import(args: argparse.Namespace, home: Home) -> int:
    """Read files; damaged lines are skipped and counted."""
    total: dict[str, int] = {}
    with connected(home) as way:
        for path in files(args.path):
            if path != "-" and not Path(path).exists():
                raise NotFound(f"no file {path}", hint="owlbox session export writes some")
            for part, damaged in parts(sys.stdin.buffer if path == "-" else open(path, "rb")):
                done = way.call("session.import", {"lines": part}) if part else {}
                done["damaged"] = done.get("damaged", 0) + damaged
                total = {name: total.get(name, 0) + count for name, count in {**dict.fromkeys(total, 0), **done}.items()}
    if args.json:
        say_json(total)
    elif not total:
        say("nothing to restore")
    else:
        counts = {name: total.get(name, 0) for name in ("sessions", "runs", "events", "known")}
        say("restored {sessions} sessions, {runs} threads, {events} events; {known} lines were here already".format(**counts))
    if total.get("damaged"):
        print(f"owlbox: {total['damaged']} damaged lines were skipped", file=sys.stderr)
    return 0


def files(paths: list[str]) -> list[str]:
    """The files that these name: of folders those that end in `.jsonl`, at any depth; a folder that is not there has none."""
    found = []
    for path in paths:
        if path == "-" or Path(path).is_file() or path.endswith(SUFFIX):
            found.append(path)
        else:
            found += [str(one) for one in sorted(Path(path).rglob(f"*{SUFFIX}")) if one.is_file()]
    return found


def parts(file: Any) -> Iterator[tuple[list[str], int]]:
    """The lines of a file in pieces that fit into a call, each with how many were no text or too long."""
    lines: list[str] = []
    size = damaged = 0
    with file:
        for raw in file:
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError:
                damaged += 1
                continue
            if len(line) > MAX_LINE:
                damaged += 1
                continue
            if lines and (len(lines) >= PART_LINES or size + len(line) > PART_CHARS):
                yield lines, damaged
                lines, size, damaged = [], 0, 0
            lines.append(line)
            size += len(line)
    if lines or damaged:
        yield lines, damaged


def _at_ms(text: str) -> int:
    """A day, or a moment, as milliseconds; 0 for none."""
    from datetime import datetime

    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
    except ValueError:
        raise BadInput(f"{text!r} is no date", hint="write it like 2026-11-22 or 2026-11-22T10:00") from None


# -- runs -------------------------------------------------------------------------------------------


def run_view(args: argparse.Namespace, home: Home) -> int:
    """Show a run."""
    found = tool_command.once(home, "run.view", {"run": args.run})
    if args.json:
        return say_json(found)
    run = found["run"]
    say_line(f"{run['alias']} ({run['id']}) {terminal.state(run)}: {run['title'] or '(untitled)'}")
    say_line(f"session {run['session']}, {run['last_seq']} events, turn {found['turn']}")
    if run["parent"]:
        say_line(f"forked off {run['parent']}")
    if origins := terminal.strangers(run):
        say_line(f"it was shown texts from {origins}, which strangers may have written")
    if settings := _format_settings(run["settings"]):
        say(settings)
    for loop in found["queue"]:
        state = {100: "waits", 102: "is answered", 202: "waits for you"}[loop["status"]]
        say_line(f"prompt {loop['seq']} {state}")
    for fork in found["forks"]:
        say_line(f"fork {fork['alias']} ({fork['id']})")
    return 0


def _format_settings(settings: dict[str, Any]) -> str:
    given = {name: value for name, value in settings.items() if value not in (None, "", False)}
    return ", ".join(name.replace("_", " ") if value is True else f"{name} {value}" for name, value in given.items())


def run_tree(args: argparse.Namespace, home: Home) -> int:
    """Show the branches of a run and of its forks."""
    found = tool_command.once(home, "run.tree", {"run": args.run})
    if args.json:
        return say_json(found)
    for branch in found:
        mark = "*" if branch["is_head"] else " "
        where = f" after {branch['from_seq']} of {branch['from_run'][-8:]}" if branch["from_seq"] else ""
        say_line(f"{'  ' * branch['depth']}{mark} {branch['alias']} up to {branch['seq']}{where}: {branch['text']}")
    return 0


def run_do(args: argparse.Namespace, home: Home) -> int:
    """Abort, rename, fork or jump, or say something."""
    params: dict[str, Any] = {"run": args.run}
    if args.verb == "inject":
        params["text"] = " ".join(args.text)
    else:
        names = {"alias": "alias", "at": "seq", "name": "alias"}
        params |= {name: getattr(args, word) for word, name in names.items() if hasattr(args, word)}
    done = tool_command.once(home, f"run.{args.verb}", params)
    if args.json:
        say_json(done)
    elif args.verb == "abort":
        say_line(f"stops {done['run']}" if done["aborted"] else f"nothing is being answered in {done['run']}")
    elif args.verb == "inject":
        say_line(f"handed in to {done['run']}")
    else:
        say_line(f"{done['alias']} ({done['id']})")
    return 0


def run_config(args: argparse.Namespace, home: Home) -> int:
    """Show or change what a run is set to."""
    names = ("model", "temperature", "context_limit", "approval", "is_yolo", *(flag.replace("-", "_") for flag in FLAGS))
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.role is not None:
        tool_command.once(home, "role.use", {"run": args.run, "role": args.role})
    done = tool_command.once(home, "run.config", {"run": args.run, "settings": given})
    return show(args, done, _format_settings({"role": done["role"] or "assistant", **done["settings"]}))
