"""The `owlbox` command: reads arguments, reaches the core, prints for people or as JSON.

Exit codes: 0 ok, 1 failed, 2 bad usage, 3 not found, 4 refused, 5 busy or unavailable. Every error is one
line with the value and the next step. Imports of a command's heavy parts stand inside it, because
start-up time is a feature: `owlbox status` must not pay for the model or the terminal interface.
"""

import argparse
import difflib
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.cli import listings, service
from appliance.cli.console import terminal, tool_command
from appliance.cli.console.connect import CONTEXT, Reach, connected, reach
from appliance.cli.console.terminal import say, say_json
from appliance.clock import new_id
from appliance.errors import BadInput, Lost, OwlError
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.text.invisible import escape_invisible

Handler = Callable[[argparse.Namespace, Home], int]
DESCRIPTION = "A private assistant that lives in a small box."


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    is_json = "--json" in words
    _open_streams()
    try:
        for word in words:
            if any("\udc80" <= letter <= "\udcff" for letter in word):
                raise BadInput(f"argument {os.fsencode(word)!r} is not UTF-8 text", hint="set the terminal to UTF-8")
        args = parser(words).parse_args(words)
        handler: Handler = args.handler
        os.environ |= {CONTEXT: args.acting} if args.acting else {}
        code = handler(args, paths.find_home(args.home, os.environ))
        sys.stdout.flush()
        return code
    except OwlError as error:
        _print_error(error, is_json)
        return error.exit_code
    except KeyboardInterrupt:
        print("owlbox: stopped", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output left (`owlbox ask ... | head`): nobody to complain to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _print_error(OwlError(f"{where}{error.strerror or error}", hint="owlbox doctor looks the home over"), is_json)
        return 1
    except Exception as error:  # the last boundary: a person never sees a traceback
        if os.environ.get("OWLBOX__SYSTEM__DEBUG"):
            raise
        _print_error(
            OwlError(f"internal error: {type(error).__name__}: {error}", hint="OWLBOX__SYSTEM__DEBUG=true shows more"), is_json
        )
        return 1


def _open_streams() -> None:
    """Output that never fails on a letter, and streams that the caller closed (`owlbox ... >&-`) lead nowhere."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _print_error(error: OwlError, is_json: bool) -> None:
    if is_json:
        print(escape_invisible(json.dumps({"error": terminal.plain(error)}, ensure_ascii=False)), file=sys.stderr)
    else:
        terminal.complain(error)


# What an argument of this name is wherever it says nothing else.
WORDS = {
    "limit": "how many at most",
    "offset": "how many to leave out first",
    "timezone": "the time zone: local, UTC, +05:30, Europe/Berlin",
    "server": "its name, as `mcp servers` shows it",
}


class Parser(argparse.ArgumentParser):
    """argparse with our one-line errors."""

    def add_argument(self, *names: Any, **given: Any) -> argparse.Action:
        """The same, with words for what says nothing of itself."""
        if words := WORDS.get(str(names[-1]).lstrip("-")):
            given.setdefault("help", words)
        return super().add_argument(*names, **given)

    def error(self, message: str) -> Any:
        """Bad usage, with the next step."""
        wrong = re.match(r"argument (?:COMMAND|ACTION): invalid choice: ('.*?') \(choose from (.*)\)$", message)
        if wrong:
            asked, offered = wrong[1][1:-1], wrong[2].replace("'", "").split(", ")  # some Pythons quote what they offer
            near = difflib.get_close_matches(asked, offered, 1)
            guess = f"did you mean {near[0]}? " if near else ""
            raise BadInput(f"unknown command {asked}", hint=f"{guess}{self.prog} --help lists them")
        raise BadInput(message, hint=f"{self.prog} --help")


def parser(words: list[str]) -> Parser:
    """The command line as far as `words` need it: the group of the command that they choose, else what commands there are.

    Start-up time counts: no module of a command is imported but that of the chosen one; those of tools for a word that is none.
    """
    root, command, found = _root_parser()
    chosen = next((w for before, w in zip(["", *words], words) if not w.startswith("-") and before != "--home"), "")
    group = next((add for names, add in GROUPS if chosen in names), None)
    if group is not None:
        group(command)
        return root
    if chosen:  # a tool's command, also of a tool that is not in the table, or a wrong word
        _add_tools(command, {name for names, _ in GROUPS for name in names})
    for name, text in tool_command.commands():
        if name not in found.choices:
            command(name, _open_screen, text)
    return root


def whole_parser() -> Parser:
    """The command line with every command and all of its arguments, for the reference pages."""
    root, command, names = _root_parser()
    for _, add in GROUPS:
        add(command)
    _add_tools(command, set(names.choices))
    return root


def _root_parser() -> "tuple[Parser, Command, argparse._SubParsersAction[Parser]]":
    """The command line without commands, how one is added, and those that were."""
    root = _add_common(Parser(prog="owlbox", description=DESCRIPTION), None, False)
    root.add_argument("--version", action="version", version=f"owlbox {__version__}")
    root.set_defaults(handler=_open_screen, thread="", prompt="", plain=False, acting="")
    words_of_all = root.add_subparsers(metavar="COMMAND", parser_class=Parser)

    def command(name: str, handler: Handler, text: str, where: Any = words_of_all) -> Parser:
        made = _add_common(where.add_parser(name, help=text, description=text), argparse.SUPPRESS, argparse.SUPPRESS)
        made.set_defaults(handler=handler)
        tool_command.add_acting(made)
        return made

    return root, command, words_of_all


Command = Callable[..., Parser]


def _add_common(made: Parser, home: Any, is_json: Any) -> Parser:
    """The options that may stand before or after the command: only the root has defaults for them."""
    made.add_argument("--home", default=home, metavar="DIR", help="the home folder (or OWLBOX_HOME)")
    made.add_argument("--json", action="store_true", default=is_json, help="print JSON for programs")
    return made


def _add_talk(command: Command) -> None:
    ask = command("ask", _ask_once, "ask one question; text from a pipe is added to it")
    ask.add_argument("text", nargs="*", help="the question")
    ask.add_argument("--thread", default="", metavar="ID", help="continue this thread")
    ask.add_argument("--later", action="store_true", help="only hand it in: it is answered when the core runs")
    for name, text in (("chat", "talk, on the full screen of a terminal or line by line"), ("tui", "the full screen")):
        chat = command(name, _open_talk if name == "chat" else _open_screen, text)
        chat.add_argument("--thread", "--thread-id", default="", metavar="ID", help="continue this thread")
        chat.add_argument("-p", "--prompt", default="", metavar="TEXT", help="say this first")
        chat.add_argument("--plain", action="store_true", help="lines instead of the full screen")
    size = command("prompt-size", _prompt_size, "tokens of the prompt by part, counted by the broker")
    size.add_argument("text", nargs="?", default="hi", help="the message to measure with")
    size.add_argument("--role", default="", metavar="NAME", help="as this role would send it; the assistant without")


def _add_services(command: Command) -> None:
    service.add(command)
    command("door", _serve_ssh, "what sshd runs for user owl: the terminal interface, or the command that was asked for")
    docs = command("docs", _write_docs, "the reference documents, made from the code")
    docs.add_argument("--write", default="", metavar="DIR", help="write them into this folder")
    docs.add_argument("--table", action="store_true", help="renew the table of commands in this checkout first")


def _add_status(command: Command) -> None:
    command("status", service.status, "what runs and what it is doing")
    command("reload", service.reload, "make the running core read its configuration again")


def _add_entries(command: Command) -> None:
    known = command("entry", listings.entries, "what Owlbox knows").add_subparsers(metavar="ACTION", parser_class=Parser)
    listing = command("list", listings.entries, "entries by reference", known)
    listing.add_argument("prefix", nargs="?", default="", help="only references that begin so, such as box://notes/")
    listing.add_argument("--limit", type=int, default=100)
    listing.add_argument("--offset", type=int, default=0)
    view = command("view", listings.entry_view, "the text of one entry", known)
    view.add_argument("ref", help="its reference, as `entry list` or `search` shows it")
    view.add_argument("--line", type=int, default=1, help="first line to show")
    view.add_argument("--limit", type=int, default=1000, help="how many lines")
    _add_verbs(command, known)


def _add_verbs(command: Command, known: Any) -> None:
    write = command("set", listings.entry_set, "write or edit an entry, or every entry of a pattern", known)
    write.add_argument("ref", help="scheme://path, or a pattern with * or **")
    write.add_argument("text", nargs="?", help="its text, or edits such as s/old/new/; - reads it from a pipe")
    write.add_argument("--search", metavar="TEXT", help="text to replace; an empty one appends")
    write.add_argument("--replace", metavar="TEXT", help="what takes its place")
    write.add_argument("--literal", dest="is_literal", action="store_true", help="the text holds no edits, whatever it looks like")
    for name, text in (
        ("title", "what it is called"),
        ("description", "what it is, in a sentence"),
        ("mime", "its type, such as text/markdown"),
        ("source-url", "where it is from"),
        ("summary", "its text in short"),
    ):
        write.add_argument(f"--{name}", metavar="TEXT", help=text)
    write.add_argument("--attributes", metavar="JSON", help='an object, such as {"tags": ["garden"]}')
    write.add_argument("--expected-hash", metavar="HASH", help="only if it is still the one with this hash")
    write.add_argument("--yes", action="store_true", help="change everything that a pattern matches")
    get = command("get", listings.entry_get, "the text of an entry; of a pattern a list of what matches", known)
    get.add_argument("--line", type=int, help="first line to show, a negative one counts from the end")
    get.add_argument("--limit", type=int, help="how many lines")
    kinds = ["add", "readonly", "ignore", "none"]
    get.add_argument("--persist", choices=kinds, help="how files of the workspace that fit are followed, in every thread")
    rm = command("rm", listings.entry_rm, "remove an entry, or every entry of a pattern", known)
    rm.add_argument("--yes", action="store_true", help="remove everything that a pattern matches")
    for made in (get, rm):
        made.add_argument("ref", help="scheme://path, or a pattern with * or **")
        made.add_argument("--preview", action="store_true", help="only list what matches")
    for made in (write, get, rm):
        made.add_argument("--wanted", default="", metavar="PATTERN", help="only entries with this in their text")
    for name, text in (("cp", "copy an entry"), ("mv", "move an entry")):
        made = command(name, listings.entry_transfer, text, known)
        made.set_defaults(verb=name)
        made.add_argument("ref", help="its reference, as `entry list` shows it")
        made.add_argument("target", help="the reference that it has then")
    waiting = command("waiting", listings.entry_waiting, "what models want to change and may not without a word from you", known)
    waiting.add_argument("--limit", type=int, default=100)
    for name, text in (("accept", "let a change happen that waits"), ("reject", "refuse a change that waits")):
        made = command(name, listings.entry_decide, text, known)
        made.set_defaults(is_accepted=name == "accept")
        made.add_argument("ref", help="its reference, as `entry waiting` shows it")
        made.add_argument("--thread", default="", metavar="ID", help="the thread it waits in; needed when it is in several")
    waiting.add_argument("--thread", default="", metavar="ID", help="only in this thread")
    update = command("update", listings.entry_update, "note how a thread's work stands", known)
    update.add_argument("text", help="how it stands, in a sentence")
    codes = "102 goes on, 200 done, 204 done without an answer, 422 cannot be done"
    update.add_argument("--status", type=int, default=102, choices=[102, 200, 204, 422], help=codes)
    for name in ("set", "get", "rm", "cp", "mv", "update"):
        known.choices[name].add_argument("--thread", default="", metavar="ID", help="act in this thread: what it sees changes")
    for name in ("set", "cp", "mv"):
        words = ["visible", "summarized", "archived"]
        known.choices[name].add_argument("--visibility", choices=words, help="how the thread sees it")


def _add_models(command: Command) -> None:
    from appliance.cli import model, usage

    usage.add_remote(command, model.commands(command, Parser))


def _add_sessions(command: Command) -> None:
    from appliance.cli import session

    session.add(command, Parser)


def _add_context(command: Command) -> None:
    from appliance.cli import context, people

    people.add(command)
    context.add(command)


def _add_tasks(command: Command) -> None:
    from appliance.cli import task

    task.add(command)


def _add_schedules(command: Command) -> None:
    from appliance.cli import schedule

    schedule.add(command)


def _add_workers(command: Command) -> None:
    from appliance.cli import worker

    worker.add(command)


def _add_packets(command: Command) -> None:
    from appliance.cli import packet, usage

    packet.add(command)
    usage.add(command)


def _add_policy(command: Command) -> None:
    from appliance.cli import policy, secret

    policy.add(command)
    secret.add(command)


def _add_mcp(command: Command) -> None:
    from appliance.cli import mcp

    mcp.add(command)


def _add_approvals(command: Command) -> None:
    from appliance.cli import approve

    approve.add(command)
    approve.add_grants(command)


def _mcp_serve(command: Command) -> None:
    from appliance.cli import mcp_serve

    mcp_serve.add(command)


def _add_memory(command: Command) -> None:
    from appliance.cli import memory

    memory.add(command)


def _add_skills(command: Command) -> None:
    from appliance.cli import skill

    skill.add(command)


def _add_roles(command: Command) -> None:
    from appliance.cli import role

    role.add(command)


def _add_config(command: Command) -> None:
    from appliance.cli import config, onboard

    config.add(command)
    onboard.add(command)


def _add_documents(command: Command) -> None:
    from appliance.cli import document

    document.add(command)


def _add_history(command: Command) -> None:
    from appliance.cli import history as past

    undo = command("undo", past.undo, "take back everything a thread changed in entries, or nothing of it")
    undo.add_argument("thread", help="its id, or the beginning or end of it")
    undo.add_argument("--dry-run", action="store_true", help="only say what would change, and what is in the way")
    undo.add_argument("--alone", action="store_true", help="without what was changed by those to whom it handed work")
    history = command("history", past.history, "who changed an entry, newest first; also of one that is gone")
    history.add_argument("ref", help="its reference, as `entry list` or `search` shows it")
    history.add_argument("--limit", type=int, default=20, help="how many changes, at most 100")
    history.add_argument("--patch", action="store_true", help="with what changed in the text")
    history.add_argument("--thread", default="", metavar="ID", help="as this thread sees it")
    sql = command("sql", past.sql, "ask the database in SQL, reading only; without a query, its tables and columns")
    sql.add_argument("query", nargs="*", help="one SELECT, with hedmatch() and the other functions; - reads it from a pipe")
    sql.add_argument("--limit", type=int, default=1000, help="how many rows")


def _add_heartbeat(command: Command) -> None:
    from appliance.cli import heartbeat

    beat = command("heartbeat", heartbeat.heartbeat, "look after what HEARTBEAT.md says, as far as it is due")
    beat.add_argument("--now", action="store_true", help="look after all of it, whatever the time")
    beat.add_argument("--list", action="store_true", help="only show when what is looked after, and what is wrong with the file")
    mute = command("mute", heartbeat.mute, "hear of nothing unasked for a while")
    mute.add_argument("length", nargs="*", help="30m, 2h, 1d, or off; nothing shows until when")


def _add_backup(command: Command) -> None:
    from appliance.cli import backup

    backup.add(command)


# The groups of commands by their words: only the one that is asked for is built, because start-up time counts.
GROUPS: tuple[tuple[tuple[str, ...], Callable[[Command], None]], ...] = (
    (("ask", "chat", "tui", "prompt-size"), _add_talk),
    (("status", "reload"), _add_status),
    (("config", "onboard"), _add_config),
    (("init", "serve", "broker", "web", "doctor", "maintain", "nuke", "door", "docs"), _add_services),
    (("backup", "restore"), _add_backup),
    (("entry",), _add_entries),
    (("skill",), _add_skills),
    (("memory",), _add_memory),
    (("model",), _add_models),
    (("thread", "session", "run"), _add_sessions),
    (("people", "context"), _add_context),
    (("task",), _add_tasks),
    (("schedule", "cron", "remind"), _add_schedules),
    (("worker",), _add_workers),
    (("packet", "usage"), _add_packets),
    (("undo", "history", "sql"), _add_history),
    (("approve", "reject", "grants"), _add_approvals),
    (("policy", "tool", "secret"), _add_policy),
    (("role", "job"), _add_roles),
    (("document", "capabilities"), _add_documents),
    (("mcp",), _add_mcp),
    (("mcp-serve",), _mcp_serve),
    (("heartbeat", "mute"), _add_heartbeat),
)


def _add_tools(command: Command, taken: set[str]) -> None:
    """One command for every tool that names one; arguments are those of the tool's signature (B-058)."""
    for made in tool_command.tool_commands():
        if made.command in taken:
            continue
        made_parser = command(made.command, listings.tool, made.description)
        made_parser.set_defaults(tool=made.tool, fields=[option.name for option in made.options])
        needed = [option for option in made.options if option.is_required]
        for field in made.options:
            if field.is_required:
                # The last needed argument takes all remaining words, so that nobody has to quote.
                made_parser.add_argument(field.name, nargs="+" if field is needed[-1] else None, help=field.help)
            else:
                kind = int if isinstance(field.default, int) else str
                made_parser.add_argument(
                    f"--{field.name.replace('_', '-')}", dest=field.name, type=kind, default=field.default, help=field.help
                )


def _read_pipe() -> str:
    """What comes through a pipe or a file, "" on a terminal."""
    if sys.stdin.isatty():
        return ""
    return sys.stdin.buffer.read(2_000_000).decode("utf-8", "replace")


def _ask_once(args: argparse.Namespace, home: Home) -> int:
    typed, piped = " ".join(args.text).strip(), _read_pipe().strip()
    text = "\n\n".join(part for part in (typed, piped) if part)
    if not text:
        raise BadInput("nothing to ask", hint='owlbox ask "your question"')
    out, aside = None if args.json else sys.stdout, sys.stderr if sys.stderr.isatty() else None
    params = {"text": text, "thread": args.thread, "kind": "ask", "wait": not args.later, "message_id": new_id()}
    params |= {"own_chars": len(typed)} if piped else {}
    with connected(home) as way:
        told = terminal.announce(way, None if args.json else sys.stderr)
        try:
            answer, result = terminal.ask(way, params, out, aside)
        except Lost as lost:
            way = _reach_again(lost, home)
            answer, result = terminal.ask(way, params, out, aside)
        if not args.json and not args.later and sys.stderr.isatty():
            terminal.offer(way, sys.stderr)
    if args.json:
        say_json({**result, "answer": answer.text, "notices": told})
    elif args.later:
        say(f"handed in as thread {answer.run}")
    error = terminal.verdict(result)
    if error is not None and not args.json:
        raise error
    return 0 if error is None else error.exit_code


def _reach_again(error: Lost, home: Home) -> Reach:
    """Who answers now that the core is gone; the error that said so when nobody does."""
    try:
        return reach(home, os.environ)
    except OwlError:
        raise error from None


def _open_talk(args: argparse.Namespace, home: Home) -> int:
    """The full screen or lines, once something can answer (B-136); the bare screen opens without, to look around."""
    _require_model(home)
    return _open_screen(args, home)


def _require_model(home: Home) -> None:
    """Unavailable, with the next step, when no model could answer: asked of the core, else seen in the home's files."""
    try:
        is_running = paths.find_core(home, os.environ).exists()
    except PermissionError:
        is_running = True  # reaching it says why not
    if is_running:
        tool_command.once(home, "model.plan", {})
    elif os.access(home.config, os.R_OK) or not home.root.exists():
        from appliance.models import catalogue
        from appliance.runtime import config

        catalogue.require_model(home.require(), config.load(home, os.environ))


def _open_screen(args: argparse.Namespace, home: Home) -> int:
    """The full screen; lines where there is no terminal for it, and for a program that reads them as JSON."""
    is_screen = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if args.plain or args.json or not is_screen:
        return _open_chat(args, home)
    from appliance.cli import screen

    return screen.screen(home, os.environ, thread=args.thread, prompt=args.prompt)


def _open_chat(args: argparse.Namespace, home: Home) -> int:
    _require_model(home)
    is_person = sys.stdin.isatty() and sys.stdout.isatty() and not (args.json or args.prompt or args.thread)
    with connected(home) as way:
        if is_person and os.access(home.box / "BOOTSTRAP.md", os.F_OK) and os.access(home.config, os.F_OK):
            terminal.interview(way, input, sys.stderr)  # the screen asks by itself (S-046)
        if args.thread:
            args.thread = terminal.retell(way, args.thread, sys.stderr)
        if sys.stdin.isatty():
            import readline  # line editing and history come with the import

            readline.set_history_length(1000)
        paper = terminal.Paper(sys.stdout, sys.stderr, args.json)
        if args.prompt:
            args.thread = terminal.converse(way, args.prompt, args.thread, paper)
        return terminal.chat(way, args.thread, input if sys.stdin.isatty() else _read_line, paper)


def _read_line(prompt: str) -> str:
    """A line of a pipe, without a prompt."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _prompt_size(args: argparse.Namespace, home: Home) -> int:
    size = tool_command.once(home, "prompt.size", {"text": args.text, "role": args.role})
    if args.json:
        return say_json(size)
    say(f"{size['static']} tokens of static prompt on route {size['route']} ({size['dialect']}), {size['total']} in all")
    for name, tokens in size["groups"].items():
        say(f"  {name:<14}{tokens:>6}")
    return 0


# -- services ---------------------------------------------------------------------------------------


def _serve_ssh(args: argparse.Namespace, home: Home) -> int:
    from appliance.channels import ssh_command

    words = ssh_command.admit(os.environ.get("SSH_ORIGINAL_COMMAND", ""))
    if words and words[0] not in ssh_command.TALKING and not ssh_command.is_fed(sys.stdin.fileno()):
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    return main([*(["--home", args.home] if args.home else []), *words])


def _write_docs(args: argparse.Namespace, home: Home) -> int:
    from appliance.cli import docs

    if args.table:
        docs.write_table(whole_parser)
    pages = docs.pages(whole_parser())
    if args.write:
        for name, text in pages.items():
            (Path(args.write) / name).write_text(text, encoding="utf-8")
        say(f"wrote {', '.join(sorted(pages))}")
    else:
        say("\n".join(pages.values()))
    return 0
