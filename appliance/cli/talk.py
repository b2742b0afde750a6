"""The commands that talk: `owlbox ask`, `owlbox chat`, and the full screen.

Each takes the parsed arguments and the home.
"""

import argparse
import os
import sys

from appliance.clock import new_id
from appliance.console import terminal, tool_command
from appliance.console.connect import Reach, connected, reach
from appliance.console.parser import Command
from appliance.console.terminal import say, say_json
from appliance.errors import BadInput, Lost, OwlError
from appliance.runtime import paths
from appliance.runtime.paths import Home


def add(command: Command) -> None:
    """Add the commands."""
    ask = command("ask", ask_once, "ask one question; text from a pipe is added to it")
    ask.add_argument("text", nargs="*", help="the question")
    ask.add_argument("--thread", default="", metavar="ID", help="continue this thread")
    ask.add_argument("--later", action="store_true", help="only queue it: it is answered when the core runs")
    for name, text in (("chat", "chat on the full screen or line by line"), ("tui", "the full screen")):
        chat = command(name, _open_talk if name == "chat" else open_screen, text)
        chat.add_argument("--thread", "--thread-id", default="", metavar="ID", help="continue this thread")
        chat.add_argument("-p", "--prompt", default="", metavar="TEXT", help="start with this message")
        chat.add_argument(
            "--plain",
            action="store_true",
            help="plain lines without escape codes, for screen readers",
        )


def _read_pipe() -> str:
    """What comes through a pipe or a file, "" on a terminal."""
    if sys.stdin.isatty():
        return ""
    return sys.stdin.buffer.read(2_000_000).decode("utf-8", "replace")


def ask_once(args: argparse.Namespace, home: Home) -> int:
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
    return open_screen(args, home)


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


def open_screen(args: argparse.Namespace, home: Home) -> int:
    """The full screen; lines where there is no terminal for it, and for a program that reads them as JSON."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if args.plain or args.json or not is_terminal:
        return _open_chat(args, home)
    from appliance.cli import screen

    return screen.screen(home, os.environ, thread=args.thread, prompt=args.prompt)


def _open_chat(args: argparse.Namespace, home: Home) -> int:
    from appliance.console import line_talk

    _require_model(home)
    is_person = sys.stdin.isatty() and sys.stdout.isatty() and not (args.json or args.prompt or args.thread)
    with connected(home) as way:
        if is_person and os.access(home.box / "BOOTSTRAP.md", os.F_OK) and os.access(home.config, os.F_OK):
            line_talk.interview(way, input, sys.stderr)  # the screen asks by itself (S-046)
        if args.thread:
            args.thread = line_talk.retell(way, args.thread, sys.stderr)
        if sys.stdin.isatty() and not args.plain:  # its editing draws lines anew, with escape codes
            import readline  # line editing and history come with the import

            readline.set_history_length(1000)
            # By itself it completes names of files and people of this computer, which is not always that of who types.
            readline.set_completer(lambda text, state: None)
            readline.parse_and_bind(r'"\e&": self-insert')
        paper = line_talk.Paper(sys.stdout, sys.stderr, args.json, args.plain and not args.json)
        read_line = _read_line if not sys.stdin.isatty() else _read_spoken if paper.is_plain else input
        return line_talk.chat(way, args.thread, read_line, paper, args.prompt)


def _read_spoken(prompt: str) -> str:
    """A line of a person who hears what is asked for."""
    return input("You: " if prompt.startswith(">") else "More: ")


def _read_line(prompt: str) -> str:
    """A line of a pipe, without a prompt."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
