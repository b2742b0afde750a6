"""What a command asks: one method, or one tool with its arguments as words and options, its outcome or its error.

A person has the words and the limits of the model, because both call the same definition. Knows nothing about
what a tool does; the groups of commands say which tools are theirs and how they print.
"""

import argparse
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from appliance.console.connect import Reach, connected
from appliance.errors import (
    BadInput,
    Cancelled,
    Conflict,
    DeadlineExceeded,
    NotFound,
    Refused,
    TooLarge,
    Unavailable,
    from_outcome,
)
from appliance.runtime.paths import Home

# Every command with its line of help, and what those made from tools take, so that neither is imported to know it: that took
# `task list` a tenth of a second. `owlbox docs --table` writes it from the code, and a test compares them.
TABLE = Path(__file__).with_name("command_table.json")
ERRORS = {
    400: BadInput,
    403: Refused,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    499: Cancelled,
    503: Unavailable,
    504: DeadlineExceeded,
}


NAME = re.compile(r"(?<![\w`/.-])[a-z]+(?:_[a-z]+)+(?![\w`/.-]*[\w/])")  # of a tool: one of a single word may be any word


class Option(NamedTuple):
    """One argument of a tool or a method; `default` says nothing of one that is required."""

    name: str
    help: str
    is_required: bool
    default: Any
    kind: str  # text, int, float, bool, list; json for all else
    choices: list[str]


class ToolCommand(NamedTuple):
    """A tool that is a command: its words, what it does, its arguments in their order."""

    tool: str
    command: str
    description: str
    options: list[Option]


# Commands with which an admin acts for a person or a group.
ACTING = frozenset(
    """ask chat tui entry context task schedule remind thread history memory document search read remember note""".split()
)


def once(home: Home, method: str, params: dict[str, Any], *, alone: str = "") -> Any:
    """One call of the method table. `alone` says what to do where no core runs, for what only a running one can do."""
    with connected(home) as way:
        if alone and not way.is_remote:
            raise NotFound("no core is running", hint=alone)
        return way.call(method, params)


def ask(way: Reach, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a tool; its error when it has one."""
    outcome: dict[str, Any] = way.call("tool.call", {"name": tool, "arguments": arguments})
    if outcome["status"] >= 400:
        hint = as_commands(outcome["hint"])
        if (kind := ERRORS.get(outcome["status"])) is None:
            raise from_outcome(outcome["outcome"], outcome["message"], hint)
        raise kind(outcome["message"], hint=hint, outcome=outcome["outcome"])
    return outcome


def as_commands(hint: str) -> str:
    """A hint with the commands that a person types in place of the tools that a model calls."""
    if NAME.search(hint) is None:
        return hint
    known = {tool: command for tool, command, *_ in read_table()["tools"]}
    return NAME.sub(lambda found: f"`owlbox {known[found[0]]}`" if found[0] in known else found[0], hint)


def ask_once(home: Home, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Connect, call one tool, and disconnect."""
    with connected(home) as way:
        return ask(way, tool, arguments)


# -- the table --------------------------------------------------------------------------------------


def commands() -> list[tuple[str, str]]:
    """Every command with its line of help, in the order of `--help`."""
    return [(name, text) for name, text in read_table()["commands"]]


def tool_commands() -> list[ToolCommand]:
    """The tools that are commands by themselves."""
    return [
        ToolCommand(tool, command, description, [Option(*option) for option in options])
        for tool, command, description, options in read_table()["tools"]
        if " " not in command
    ]


def method_options(names: list[str]) -> dict[str, tuple[str, list[Option]]]:
    """What methods do, in a sentence, and what they take; of tools, which have `tool` before their names, as well."""
    table = read_table()
    rows = {f"tool {tool}": (text, options) for tool, _, text, options in table["tools"]}
    rows |= {name: (text, options) for name, text, options in table["methods"]}
    return {name: (rows[name][0], [Option(*option) for option in rows[name][1]]) for name in names}


@functools.cache
def read_table() -> Any:
    """The table of commands that ships as `command_table.json`."""
    return json.loads(TABLE.read_bytes())


def add_acting(made: argparse.ArgumentParser) -> None:
    """Add both options to a command of `ACTING`, before and after its action."""
    if made.prog.split()[1] not in ACTING:
        return

    def named(kind: str) -> Callable[[str], str]:
        return lambda name: f"{kind}:{name}"

    given: dict[str, Any] = {"dest": "acting", "metavar": "NAME", "default": argparse.SUPPRESS}
    made.add_argument("--user", type=named("user"), help="as this person, for an admin", **given)
    made.add_argument("--group", type=named("group"), help="in this group", **given)
