"""The commands about conversations: `owlbox thread`, `session` and `run`, made from the definitions of their methods.

Files of transcripts are written and read here, with the rights of whoever types: only lines go to the core and come from it.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from appliance.clock import sleep_s
from appliance.console import terminal
from appliance.console.connect import Reach, connected
from appliance.console.terminal import fitting, say, say_json, say_line, show
from appliance.console.verbs import Noun, Verb, lines, table, takes
from appliance.errors import BadInput, NotFound
from appliance.runtime import paths
from appliance.runtime.paths import Home

RUN = "its name or id, or the beginning or end of the id"
THREAD = "its id, or the beginning or end of it"
SUFFIX = ".jsonl"
SESSIONS = 1000  # asked for at a time
PART_LINES, PART_CHARS, MAX_LINE = 200, 400_000, 3_000_000
OTHER_KINDS = {"chat_session": "chat", "worker_tick": "tick"}
SETTINGS = (
    "model=POOL, temperature=0.5, context_limit=4096, approval=ask|review|auto, "
    "no_repo=true, no_web=true, no_interaction=true, no_proposals=true, is_yolo=true"
)
STATES = {100: "waits", 102: "is answered", 202: "waits for you"}


def _thread_kind(word: str) -> str:
    """A type of threads, by either of its names."""
    return OTHER_KINDS.get(word, word)


# -- threads ----------------------------------------------------------------------------------------


def _print_event(event: dict[str, Any]) -> None:
    name = f"{event['role']} {event['tool']}".strip()
    mark = "" if event["status"] < 400 else f" [{event['outcome']}]"
    given = " " + json.dumps(event["input"], ensure_ascii=False) if event["kind"] == "tool_use" and event["input"] else ""
    say_line(f"{event['seq']:>4} {name} · {event['kind']}{mark}{given}")
    for line in event["content"].splitlines():
        say(f"     {line}")


def thread_view(args: argparse.Namespace, home: Home) -> int:
    """Everything in one thread."""
    if args.follow:
        return thread_follow(args, home)

    only = [role.strip() for role in args.only.split(",") if role.strip()]
    with connected(home) as way:
        pages = terminal.pages(way, args.id, only=only)
        found = next(pages)
        if args.json:
            for page in pages:
                found["events"] += page["events"]
            return say_json({k: v for k, v in found.items() if k != "has_more"})
        thread = found["thread"]
        say_line(f"{thread['id']} {thread['kind']} {terminal.state(thread)}: {thread['title'] or '(untitled)'}")
        if origins := terminal.strangers(thread):
            say_line(f"it was shown texts from {origins}, which strangers may have written")
        for page in (found, *pages):
            for event in page["events"]:
                _print_event(event)
    return 0


def thread_follow(args: argparse.Namespace, home: Home) -> int:
    """A thread as it grows, until it ends."""
    if not 50 <= args.interval <= 60_000:
        raise BadInput(f"interval {args.interval} ms", hint="use 50 to 60000")
    with connected(home) as way:
        thread = args.id
        if not thread:
            open_ones = [t for t in way.call("thread.list", {"limit": 50}) if t["ended_ms"] is None]
            if not open_ones:
                raise NotFound("no thread is open", hint="owlbox thread list shows the ended ones")
            thread = open_ones[0]["id"]
        after = 0
        while True:
            for found in terminal.pages(way, thread, after):
                for event in found["events"]:
                    after = event["seq"]
                    if args.json:
                        say_json(event)
                    else:
                        _print_event(event)
            if found["thread"]["ended_ms"] is not None:
                return 0
            sleep_s(args.interval / 1000)


# -- sessions ---------------------------------------------------------------------------------------


def session_export(args: argparse.Namespace, home: Home) -> int:
    """Write one session, or each into a file of its own."""
    if bool(args.id) == bool(args.all):
        raise BadInput("name one session, or a folder for all", hint="owlbox session export ID, or --all DIR")
    with connected(home) as way:
        if args.id:
            return write_stream(way, {"id": args.id}, args.output)
        made = []
        Path(args.all).mkdir(mode=0o700, parents=True, exist_ok=True)
        known: list[dict[str, Any]] = []
        while page := way.call("session.list", {"limit": SESSIONS, "offset": len(known)}):
            known += page
        for found in known:
            folder = Path(args.all) / quote(found["context"], safe="@.")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = folder / f"{quote(found['id'], safe='@.')}{SUFFIX}"
            write_stream(way, {"id": found["id"]}, str(path))
            made.append(str(path))
    return show(args, made, "\n".join(made) or "no sessions")


def thread_export(args: argparse.Namespace, home: Home) -> int:
    """Write one thread."""
    with connected(home) as way:
        return write_stream(way, {"thread": args.id}, args.output)


def write_stream(way: Reach, what: dict[str, Any], path: str) -> int:
    """An export of a session or a thread, to standard output or whole into a private file, or not at all."""
    if not path:

        def write(name: str, value: dict[str, Any]) -> None:
            if name == "line":
                print(fitting(value["text"], sys.stdout), end="")

        way.call("session.export", what, write)
        return 0
    target = Path(path)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mode 0600
    try:
        with open(handle, "w", encoding="utf-8") as file:

            def keep(name: str, value: dict[str, Any]) -> None:
                if name == "line":
                    file.write(value["text"])

            way.call("session.export", what, keep)
            with paths.naming(target):
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


def moment(text: str) -> int:
    """A day, or a moment, as milliseconds."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise BadInput(f"{text!r} is not a date", hint="write it like 2026-11-22 or 2026-11-22T10:00") from None


def _tell_session(args: argparse.Namespace, found: dict[str, Any]) -> terminal.Table:
    """One session and its threads."""
    when = lines(found, "since=created_ms last_active=last_active_ms", {})
    return table(found["runs"], THREADS, CELLS, "no threads")._replace(
        lead=[f"{found['id']} of {found['context']}, {found['status']}", ", ".join(when).replace(":", "", 2)]
    )


# -- runs -------------------------------------------------------------------------------------------


def _format_settings(settings: dict[str, Any]) -> str:
    given = {name: value for name, value in settings.items() if value not in (None, "", False)}
    return ", ".join(name.replace("_", " ") if value is True else f"{name} {value}" for name, value in given.items())


def _tell_tree(args: argparse.Namespace, found: list[dict[str, Any]]) -> list[str]:
    """The branches of a run and of its forks."""
    told = []
    for branch in found:
        where = f" after {branch['from_seq']} of {branch['from_run'][-8:]}" if branch["from_seq"] else ""
        mark = "*" if branch["is_head"] else " "
        told.append(f"{'  ' * branch['depth']}{mark} {branch['alias']} up to {branch['seq']}{where}: {branch['text']}")
    return told


def _tell_aborted(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    return [f"stops {done['run']}" if done["stopped"] else f"nothing is being answered in {done['run']}"]


def _read_settings(text: str) -> dict[str, Any]:
    """Settings of a run out of words such as `approval=auto no_web=true`; text as it is, all else as JSON."""
    given: dict[str, Any] = {}
    for word in text.split():
        name, mark, value = word.partition("=")
        if not mark:
            raise BadInput(f"{word!r} sets nothing", hint="write it as approval=auto; owlbox thread config --help has the names")
        try:
            given[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            given[name.replace("-", "_")] = value
    return given


def _tell_settings(args: argparse.Namespace, found: dict[str, Any]) -> str:
    return _format_settings({"role": found["role"] or "assistant", **found["settings"]})


def _add_view(made: argparse.ArgumentParser) -> None:
    made.add_argument("id", help=THREAD)
    made.add_argument("--only", default="", metavar="ROLE,ROLE", help="user, assistant, system, tool")
    made.add_argument("--follow", action="store_true", help="keep showing new events")
    made.set_defaults(interval=500)


def _add_follow(made: argparse.ArgumentParser) -> None:
    made.add_argument("id", nargs="?", default="", help="default: the newest one that has not ended")
    made.add_argument("--interval", type=int, default=500, metavar="MS", help="milliseconds between checks")


def _add_output(made: argparse.ArgumentParser) -> None:
    is_session = made.prog.endswith("session export")
    if is_session:
        made.add_argument("id", nargs="?", default="", help="channel:sender; none with --all")
        made.add_argument("--all", default="", metavar="DIR", help="every session into a file of its own below this folder")
    else:
        made.add_argument("id", help=THREAD)
    made.add_argument("-o", "--output", default="", metavar="FILE", help="write this file instead of standard output")


RUN_FIELDS = (
    "thread=run.alias id=run.id state title=run.title session=run.session events=run.last_seq turn forked_off=run.parent "
    "untrusted_text=origins settings waiting=queue forks"
)
RUN_CELLS = {
    "state": lambda found: terminal.state(found["run"]),
    "origins": lambda found: terminal.strangers(found["run"]),
    "settings": lambda found: _format_settings(found["run"]["settings"]),
    "queue": lambda found: ", ".join(f"prompt {one['seq']} {STATES[one['status']]}" for one in found["queue"]),
    "forks": lambda found: ", ".join(f"{one['alias']} ({one['id']})" for one in found["forks"]),
}
THREADS = "id started=created_ms type=kind state title~"
CELLS = {"state": terminal.state}
SEARCH = Verb("search", "tool search_history", "query+ --days --limit=max_results",
              text="find text in what was said, exactly as it was written, the newest first",
              helps={"query": "letters to look for, in whatever case"})  # fmt: skip
# fmt: off
NOUNS = (
    Noun("thread", "conversations: list, view, follow, search, rename, fork, export", (
        Verb("list", "thread.list", "--type --limit --offset", text="newest first", rows=THREADS, cells=CELLS, empty="no threads",
             reads={"type": _thread_kind}, helps={"type": "only this type; worker_tick and chat_session too"}),
        Verb("view", text="show everything in one thread", handler=thread_view, adds=_add_view),
        Verb("status", "run.view", text="how a thread stands: its settings, what waits in it, its forks",
             fields=RUN_FIELDS, cells=RUN_CELLS),
        SEARCH,
        Verb("delete", "thread.delete", text="delete a thread and everything said in it", helps={"id": THREAD},
             says="deleted thread {run} with {events} events"),
        Verb("follow", text="show a thread as it grows, until it ends or Ctrl+C",
             handler=thread_follow, adds=_add_follow),
        Verb("tree", "run.tree", text="show all branches and forks of a thread", says=_tell_tree),
        Verb("abort", "run.stop", "run", text="stop the current answer; queued messages follow", fixed={"is_queue_kept": True},
             says=_tell_aborted),
        Verb("rename", "run.config", "run alias", text="rename a thread", says="{alias} ({id})"),
        Verb("inject", "run.inject", "run text+", text="tell a thread something, even while it is answering",
             says="handed in to {run}", helps={"text": "what is said"}),
        Verb("fork", "run.fork", "run --at=seq --name=alias", text="start a new thread from here",
             says="{alias} ({id})"),
        Verb("jump", "run.jump", "run at=seq", text="continue a thread after another event", says="{alias} ({id})"),
        Verb("config", "run.config", "run settings*", text="show or change the settings of a thread", says=_tell_settings,
             reads={"settings": _read_settings}, helps={"run": RUN, "settings": SETTINGS}),
        Verb("role", "role.use", "run role", text="let another role answer from the next message on", says=_tell_settings),
        Verb("export", text="export a thread and those it was forked from", handler=thread_export, adds=_add_output),
    )),
    Noun("session", "sessions: one for each person or group in a channel", (
        Verb("list", "session.list", "--user --group --type=context_type --status --after=created_after_ms "
             "--before=created_before_ms --limit --offset", text="sessions, the newest activity first", empty="no sessions",
             reads={"after": moment, "before": moment},
             helps={"type": "only of people, or of groups", "status": "only in this state",
                    "after": "created after this, such as 2026-11-22", "before": "created before this"},
             rows="session=id state=status messages since=created_ms last_active=last_active_ms of=context~"),
        Verb("view", "session.view", text="one session and its threads", says=_tell_session),
        Verb("archive", "session.change", "id", text="archive a session until somebody writes in it", fixed={"status": "archived"},
             says="{id} is {status}"),
        Verb("resume", "session.change", "id", text="make a session active again", fixed={"status": "active"},
             says="{id} is {status}"),
        Verb("close", "session.change", "id --final=is_final", text="close a session: it takes no more messages",
             fixed={"status": "closed"}, says="{id} is {status}",
             helps={"final": "close even your own session"}),
        Verb("delete", "session.delete", says="deleted session {id} with {events} events"),
        Verb("export", text="export a session as JSON lines", handler=session_export, adds=_add_output),
        Verb("import", text="import exported sessions; existing data stays as it is", handler=session_import,
             adds=takes("path", nargs="+", help=f"files, or folders with {SUFFIX} files; - reads a pipe")),
    )),
)
