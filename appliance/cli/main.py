"""The `owlbox` command: reads arguments, reaches the core, prints for people or as JSON.

Exit codes: 0 ok, 1 failed, 2 bad usage, 3 not found, 4 refused, 5 busy or unavailable. Every error is one
line with the value and the next step. Imports of a command's heavy parts stand inside it, because
start-up time is a feature: `owlbox status` must not pay for the model or the terminal interface.
"""

import argparse
import io
import json
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

from appliance.cli import talk
from appliance.console import help_pages, terminal, tool_command, watch
from appliance.console.parser import Command, Handler, Parser, root_parser
from appliance.console.terminal import say
from appliance.errors import BadInput, OwlError
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import CONTEXT, SSH_KEY
from appliance.text.invisible import escape_invisible
from appliance.text.references import as_typed

# The modules of commands by the commands that they add: only those of the one that is asked for are imported, because start-up
# time counts. A module has `NOUNS`, a function `add(command)`, or both.
GROUPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("ask", "chat", "tui"), ("talk",)),
    (("status", "reload", "init", "serve", "broker", "web", "doctor", "maintain", "nuke"), ("service",)),
    (("config", "onboard"), ("config", "onboard")),
    (("backup", "restore"), ("backup",)),
    (("update",), ("update",)),
    (("metrics", "logs"), ("logs",)),
    (("export", "import"), ("export",)),
    (("entry",), ("knowledge.entry",)),
    (("search",), ("knowledge.search",)),
    (("skill",), ("knowledge.skill",)),
    (("memory",), ("knowledge.memory",)),
    (("model",), ("model",)),
    (("usage",), ("usage",)),
    (("thread", "session"), ("session",)),
    (("people",), ("people",)),
    (("channel",), ("channel",)),
    (("context",), ("knowledge.context",)),
    (("task",), ("task",)),
    (("schedule", "cron", "remind"), ("schedule",)),
    (("worker",), ("worker",)),
    (("packet", "prompt-size"), ("packet",)),
    (("undo", "history", "sql"), ("knowledge.history",)),
    (("approve", "reject", "grants"), ("approve",)),
    (("policy", "tool"), ("policy",)),
    (("secret",), ("secret",)),
    (("role", "job"), ("role",)),
    (("document", "capabilities"), ("knowledge.document",)),
    (("mcp",), ("mcp",)),
    (("call",), ("call",)),
    (("completion",), ("completion",)),
    (("heartbeat", "mute"), ("heartbeat",)),
    (("help", "door", "docs"), ()),
)


LOG_LEVEL = "OWLBOX__SYSTEM__LOG_LEVEL"


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = help_pages.meant(sys.argv[1:] if argv is None else argv)
    is_json = "--json" in words
    _open_streams()
    try:
        for word in words:
            if any("\udc80" <= letter <= "\udcff" for letter in word):
                raise BadInput(f"argument {os.fsencode(word)!r} is not UTF-8 text", hint="set the terminal to UTF-8")
        args = parser(words).parse_args(words)
        handler: Handler = args.handler
        os.environ |= {CONTEXT: args.acting} if args.acting else {}
        os.environ |= {LOG_LEVEL: args.log_level} if args.log_level else {}
        home = paths.find_home(args.home, os.environ)
        code = watch.repeat(lambda: handler(args, home), args.watch) if args.watch else handler(args, home)
        sys.stdout.flush()
        return code
    except OwlError as error:
        found = _find_fault(error) or error
        _print_error(found, is_json)
        return found.exit_code
    except KeyboardInterrupt:
        print("owlbox: stopped", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output left (`owlbox ask ... | head`): nobody to complain to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if fault := _find_fault(error):
            _print_error(fault, is_json)
            return fault.exit_code
        where, hint = f"{error.filename}: " if error.filename else "", "owlbox doctor checks the home"
        if where and isinstance(error, PermissionError):
            hint = f"ls -ld {error.filename} shows whose it is, and its mode"
        _print_error(OwlError(f"{where}{error.strerror or error}", hint=hint), is_json)
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


def _find_fault(error: Exception) -> OwlError | None:
    """What the disk has to do with an error that was made of one of the system's, in whatever words."""
    from appliance.store import disk_faults

    return disk_faults.explain_fault(error, has_terminal=True)


def _print_error(error: OwlError, is_json: bool) -> None:
    if is_json:
        print(escape_invisible(json.dumps({"error": terminal.plain(error)}, ensure_ascii=False)), file=sys.stderr)
    else:
        terminal.complain(error)


def parser(words: list[str]) -> Parser:
    """The command line as far as `words` need it: the group of the command that they choose, else what commands there are.

    Start-up time counts: no module of a command is imported but that of the chosen one; those of tools for a word that is none.
    """
    root, command, found = root_parser(talk.open_screen)
    chosen = next((w for before, w in zip(["", *words], words) if not w.startswith("-") and before != "--home"), "")
    group = next((modules for names, modules in GROUPS if chosen in names), None)
    if group is not None:
        _add_group(command, group)
        return root
    if chosen:  # a tool's command, also of a tool that is not in the table, or a wrong word
        _add_tools(command, {name for names, _ in GROUPS for name in names}, chosen)
    for name, text in tool_command.commands():
        if name not in found.choices:
            found.add_later(name, text, partial(command, name, talk.open_screen, text))
    return root


def whole_parser() -> Parser:
    """The command line with every command and all of its arguments, for the reference pages."""
    root, command, names = root_parser(talk.open_screen)
    for _, modules in GROUPS:
        _add_group(command, modules)
    _add_tools(command, set(names.choices))
    return root


def _add_group(command: Command, modules: tuple[str, ...]) -> None:
    """Add the commands of some modules; of none, those of this one."""
    from appliance.console import verbs  # nothing of it is needed for --version and --help

    for module in map(_load, modules):
        for made in getattr(module, "NOUNS", ()):
            verbs.add(command, made)
        if hasattr(module, "add"):
            module.add(command)
    if not modules:
        _add_own(command)


def _load(name: str) -> ModuleType:
    """A module of commands: it has `NOUNS`, made from definitions, or a function `add(command)`, or both."""
    return import_module(f"appliance.cli.{name}")


def called_methods() -> set[str]:
    """The methods and tools that commands are made from."""
    from appliance.console import verbs

    made = (one for _, modules in GROUPS for module in map(_load, modules) for one in verbs.declared(module))
    return {name for one in made for name in verbs.calls(one)}


def _add_own(command: Command) -> None:
    made = command("help", _show_help, "how to use a command; with --all, every command")
    made.add_argument("words", nargs="*", metavar="COMMAND", help="a command, or one with its action")
    made.add_argument("--all", action="store_true", help="every command, in groups")
    command("door", _serve_ssh, "run by sshd for user owl: the screen, or one allowed command")
    docs = command("docs", _write_docs, "write the reference documents from the code")
    docs.add_argument("--write", default="", metavar="DIR", help="write them into this folder")
    docs.add_argument("--table", action="store_true", help="update the table of commands of this checkout first")


def _add_tools(command: Command, taken: set[str], chosen: str = "") -> None:
    """One command for every tool that names one, or the chosen one; arguments are those of the tool's signature (B-058)."""
    from appliance.console import verbs

    for made in tool_command.tool_commands():
        if made.command in taken or chosen not in ("", made.command):
            continue
        # The last needed argument takes all remaining words, so that nobody has to quote.
        needed = [option.name for option in made.options if option.is_required]
        args = [*needed[:-1], *(f"{name}+" for name in needed[-1:])]
        args += [f"--{option.name.replace('_', '-')}" for option in made.options if not option.is_required]
        reads = {"ref": as_typed} if "ref" in needed else {}
        verbs.add(command, verbs.Verb(made.command, f"{verbs.TOOL}{made.tool}", " ".join(args), made.description, reads=reads))


def _show_help(args: argparse.Namespace, home: Home) -> int:
    """The first page, every command, or how one is used."""
    if args.words:
        words = help_pages.meant(args.words)
        parser(words).parse_args([*words, "--help"])
    if args.json:
        print(help_pages.groups())
    else:
        say((help_pages.all_pages() if args.all else help_pages.first_page()).rstrip())
    return 0


def _serve_ssh(args: argparse.Namespace, home: Home) -> int:
    from appliance.channels import ssh_command

    os.environ.pop(CONTEXT, None)  # said by nobody but us, whatever sshd lets clients send
    os.environ |= {SSH_KEY: "", **ssh_command.read_key(os.environ)}
    words = ssh_command.admit(os.environ.get("SSH_ORIGINAL_COMMAND", ""))
    if words and not ssh_command.is_fed(sys.stdin.fileno()):
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    return main([*(["--home", args.home] if args.home else []), *words])


def _write_docs(args: argparse.Namespace, home: Home) -> int:
    from appliance.reference import docs

    if args.table:
        docs.write_table(whole_parser, called_methods())
    pages = docs.pages(whole_parser())
    if args.write:
        for name, text in pages.items():
            path = Path(args.write) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        say(f"wrote {', '.join(sorted(pages))}")
    else:
        say("\n".join(pages.values()))
    return 0
