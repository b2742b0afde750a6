"""Completion for bash, zsh and fish, written from the command line: words, options and values of every command as tables.

The scripts hold all that is fixed, so that completing starts no process; names of threads, tasks and so on are asked of
`owlbox completion names KIND`, which answers when a core runs. The three differ in their language alone (`completion.bash` and so
on, beside this module): each walks the words that were typed, and looks the place that it comes to up in the same tables.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from appliance.console import help_pages

FILE = "file"
# Whose names an argument takes: by its own name wherever it stands, or by the command and its name.
KINDS = {
    "thread": "thread",
    "run": "thread",
    "person": "person",
    "user": "person",
    "role": "role",
    "server": "server",
    "session": "session",
    "model": "model",
    "task_id": "task",
    "blocked_by": "task",
    "tool": "tool",
    "ref": "entry",
    "keyfile": FILE,
    "inputs": FILE,
    "file": FILE,
    "output": FILE,
    "socket": FILE,
    "home": FILE,
    "all": FILE,
    "write": FILE,
    "thread id": "thread",
    "task id": "task",
    "schedule id": "schedule",
    "cron id": "schedule",
    "job id": "job",
    "worker id": "worker",
    "session id": "session",
    "session path": FILE,
    "role name": "role",
    "skill name": "skill",
    "secret name": "secret",
    "mcp name": "server",
    "policy name": "tool",
    "people name": "group",
    "people add": "person",
    "people leave": "person",
    "people key": FILE,
    "document name": "document",
    "config key": "key",
    "call method": "method",
    "help words": "command",
    "restore path": FILE,
    "context path": "entry",
}
SHELLS = ("bash", "zsh", "fish")


class CompletionPlace(NamedTuple):
    """What may follow the words of a command: actions with their lines of help, options, and values of both kinds of arguments.

    `options` are names, those that take a value with `=` behind them. `values` are words, or `@KIND`, by an option's name or by
    the number of an argument from 1, `+` for all further ones.
    """

    words: dict[str, str]
    options: list[str]
    values: dict[str, str]


def places(parser: argparse.ArgumentParser) -> dict[str, CompletionPlace]:
    """Every place of the command line by the words that lead there, "" for none; other words for it lead there too."""
    found = dict(_walk(parser, ""))
    for name, meant in reversed(help_pages.ALIASES.items()):
        found |= {name + path.removeprefix(meant): place for path, place in found.items() if f"{path} ".startswith(f"{meant} ")}
    return found


def _walk(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, CompletionPlace]]:
    """A command and all below it."""
    words: dict[str, str] = {}
    options: list[str] = []
    values: dict[str, str] = {}
    below: list[tuple[str, argparse.ArgumentParser]] = []
    number = 0
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words = {one.dest: str(one.help) for one in action._choices_actions}
            below = list(action.choices.items())
        elif action.option_strings:
            is_valued = action.nargs != 0
            options += [f"{name}=" if is_valued else name for name in action.option_strings]
            values |= {name: given for name in action.option_strings if is_valued and (given := _values(path, action))}
        elif given := _values(path, action):
            number += 1
            values["+" if action.nargs in ("*", "+") else str(number)] = given
        else:
            number += 1
    yield path, CompletionPlace(words, options, values)
    for word, sub in below:
        yield from _walk(sub, f"{path} {word}".strip())


def _values(path: str, action: argparse.Action) -> str:
    """The words that an argument takes, or `@` and the kind of their names; "" for free text."""
    if action.choices is not None:
        return " ".join(str(one) for one in action.choices if one)
    kind = KINDS.get(f"{path.split(' ')[0]} {action.dest}") or KINDS.get(action.dest)
    if action.dest == "acting":
        kind = "group" if "--group" in action.option_strings else "person"
    return f"@{kind}" if kind else ""


def scripts(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The script of each shell, by the shell."""
    found = places(parser)
    tables = {"bash": _bash_tables(found), "zsh": _zsh_tables(found), "fish": _fish_tables(found)}
    return {
        shell: Path(__file__).with_name(f"completion.{shell}").read_text("utf-8").replace("@TABLES@", tables[shell])
        for shell in SHELLS
    }


def _quoted(text: str) -> str:
    """A text as one word of bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _arrays(rows: Iterator[tuple[str, str]], name: str) -> str:
    """An associative array of bash and zsh, a row a line."""
    lines = (f"  [{_quoted(key)}]={_quoted(value)}" for key, value in rows if value)
    return f"{name}=(\n" + "\n".join(lines) + "\n)"


def _bash_tables(found: dict[str, CompletionPlace]) -> str:
    words = _arrays(((path or ".", " ".join(one.words)) for path, one in found.items()), "declare -gA _owlbox_words")
    options = _arrays(((path or ".", " ".join(one.options)) for path, one in found.items()), "declare -gA _owlbox_options")
    rows = ((f"{path or '.'} {key}", given) for path, one in found.items() for key, given in one.values.items())
    return "\n".join([words, options, _arrays(rows, "declare -gA _owlbox_values")])


def _zsh_tables(found: dict[str, CompletionPlace]) -> str:
    def pairs(name: str, rows: Iterator[tuple[str, str]]) -> str:
        lines = (f"  {_quoted(key)} {_quoted(value)}" for key, value in rows if value)
        return f"typeset -gA {name}\n{name}=(\n" + "\n".join(lines) + "\n)"

    told = ((path or ".", "\n".join(f"{w}:{t.replace(':', ' ')}" for w, t in one.words.items())) for path, one in found.items())
    options = ((path or ".", " ".join(one.options)) for path, one in found.items())
    rows = ((f"{path or '.'} {key}", given) for path, one in found.items() for key, given in one.values.items())
    return "\n".join([pairs("_owlbox_words", told), pairs("_owlbox_options", options), pairs("_owlbox_values", rows)])


def _fish_tables(found: dict[str, CompletionPlace]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def function(name: str, rows: Iterator[tuple[str, list[str]]]) -> str:
        cases = ((quoted(key), " ".join(map(quoted, given))) for key, given in rows if given)
        lines = [f"        case {key}\n            printf '%s\\n' {given}" for key, given in cases]
        return f"function {name}\n    switch $argv[1]\n" + "\n".join(lines) + "\n    end\nend"

    words = ((path or ".", [f"{w}\t{t}" for w, t in one.words.items()]) for path, one in found.items())
    options = ((path or ".", one.options) for path, one in found.items())
    rows = ((f"{path or '.'} {key}", given.split()) for path, one in found.items() for key, given in one.values.items())
    return "\n".join([function("__owlbox_words", words), function("__owlbox_options", options), function("__owlbox_values", rows)])
