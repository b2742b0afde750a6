"""The parser of the command line: one-line errors that name what was meant, help that names the same, and options of every command.

Knows no command. `cli.main` has the table of them; what is shown first of them is in `help_pages`.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from appliance import __version__
from appliance.console import help_pages, tool_command, watch
from appliance.errors import BadInput, OwlError
from appliance.runtime.paths import Home

Handler = Callable[[argparse.Namespace, Home], int]
Command = Callable[..., "Parser"]
DESCRIPTION = "A private assistant that lives in a small box."
# What an argument of this name is wherever it says nothing else.
WORDS = {
    "limit": "how many at most",
    "offset": "how many to skip",
    "timezone": "the time zone: local, UTC, +05:30, Europe/Berlin",
    "server": "its name, as `mcp servers` shows it",
}
CHOICE = re.compile(r"argument (.*?): invalid choice: ('.*?'|\".*?\"|\S+) \(choose from (.*)\)$")
NUMBER = re.compile(r"argument (.*?): invalid (int|float) value: (.*)$")
MISSING = "the following arguments are required: "
EVERYWHERE = ("help", "home", "json")
TITLES = {"positional arguments": "arguments"}
LONG_LISTS = ("owlbox config",)  # hundreds of lines, which nobody meant
LEVELS = {
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warn",
    "ERROR": "error",
    "CRITICAL": "silent",
}  # nothing logs more than errors
LOGGING = ("serve", "broker", "web", "worker run")


class Parser(argparse.ArgumentParser):
    """argparse with our one-line errors."""

    first = "list"  # the action of a group where none is named

    def add_argument(self, *names: Any, **given: Any) -> argparse.Action:
        """Add an argument; a common name without help gets its standard text."""
        if words := WORDS.get(str(names[-1]).lstrip("-")):
            given.setdefault("help", words)
        return super().add_argument(*names, **given)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The same, refusing what is left over here, where the options are known that may have been meant.

        A group does the first of its actions where none is named.
        """
        words: list[str] = sys.argv[1:] if args is None else list(args)
        if self._has_first() and all(word.startswith("-") and word not in ("-h", "--help") for word in words):
            words = [self.first, *words]
        found, rest = super().parse_known_args(words, namespace)
        if rest:
            self._refuse(rest)
        return found, rest

    def format_help(self) -> str:
        """The help of a command: what is its own, and in the end what every command has."""
        shown = [action for action in self._actions if action.dest not in EVERYWHERE]
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, shown, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(TITLES.get(group.title or "", group.title))
            formatter.add_arguments([action for action in group._group_actions if action in shown])
            formatter.end_section()
        formatter.add_text("Every command takes --json and --home DIR.")
        return formatter.format_help()

    def error(self, message: str) -> Any:
        """Bad usage, with the next step."""
        if message.startswith(MISSING):
            raise BadInput(f"{message.removeprefix(MISSING)} is missing", hint=f"{self._brief_usage()}; {self.prog} --help")
        if found := NUMBER.match(message):
            kind = "whole number" if found[2] == "int" else "number"
            raise BadInput(f"{found[1]} {found[3]} is no {kind}", hint=f"{self.prog} --help")
        wrong = CHOICE.match(message)
        if not wrong:
            raise BadInput(message, hint=f"{self.prog} --help")
        asked = wrong[2].strip("'\"")
        offered = [one for one in wrong[3].replace("'", "").split(", ") if one]  # some Pythons quote what they offer
        guess = did_you_mean(asked, offered)
        if wrong[1] in ("COMMAND", "ACTION"):
            raise BadInput(f"unknown command {asked}", hint=f"{guess}{self.prog} --help lists them")
        about = "" if wrong[1] in offered else f"{wrong[1]} "  # a word that may be left out, such as `list`
        raise BadInput(f"{about}{asked!r} is none of {', '.join(offered)}", hint=f"{guess}{self.prog} --help")

    def _has_first(self) -> bool:
        below = next((action for action in self._actions if isinstance(action, argparse._SubParsersAction)), None)
        return below is not None and self.first in below.choices and self.prog not in LONG_LISTS

    def _brief_usage(self) -> str:
        """The command with its required arguments only."""
        needed = [action for action in self._actions if action.required and action.dest not in EVERYWHERE]
        words = [
            f"{action.option_strings[0]} {action.metavar or action.dest.upper()}"
            if action.option_strings
            else str(action.dest).upper()
            for action in needed
        ]
        return " ".join([self.prog, *words])

    def _refuse(self, rest: list[str]) -> None:
        """Raise an error for an unexpected argument, with the option that may have been meant."""
        wrong = next((word for word in rest if word.startswith("-")), rest[0])
        if not wrong.startswith("-"):
            raise BadInput(f"unexpected word: {wrong}", hint=f'quote "what belongs together"; {self.prog} --help')
        name = wrong.partition("=")[0]
        offered = [option for option in self._option_string_actions if option.startswith("--")]
        guess = did_you_mean(name.lstrip("-"), [option.removeprefix("--") for option in offered]).replace("mean ", "mean --")
        raise BadInput(f"unknown option {name}", hint=f"{guess}{self.prog} --help lists them")


class Parsers(dict[str, Any]):
    """Parsers by the word that chooses them, each made when it is looked at first."""

    def __getitem__(self, word: str) -> Any:
        if not isinstance(found := super().__getitem__(word), Parser):
            found()
        return super().__getitem__(word)

    def items(self) -> Any:
        """All of them, made."""
        return [(word, self[word]) for word in self]

    def values(self) -> Any:
        """The same without their words."""
        return [self[word] for word in self]


class CommandActions(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The actions of a group: only the chosen one gets a parser. Thirty of them took a quarter of a command's start."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._name_parser_map = self.choices = Parsers()

    def add_later(self, word: str, text: str, make: Any) -> None:
        """Offer an action; `make` adds its parser when that is wanted."""
        self._name_parser_map[word] = make
        self._choices_actions.append(self._ChoicesPseudoAction(word, (), text))

    def add_parser(self, name: str, **given: Any) -> Any:
        """The parser of an action, in its place among the others."""
        if name not in self._name_parser_map:
            return super().add_parser(name, **given)
        offered, self._name_parser_map = self._name_parser_map, {}
        try:
            del given["help"]  # it is listed already
            offered[name] = made = super().add_parser(name, **given)
        finally:
            self._name_parser_map = offered
        return made


class Root(Parser):
    """The whole command line; its help is a page of its own."""

    def format_help(self) -> str:
        """The page that fits one screen."""
        return help_pages.first_page()


def read_level(text: str) -> str:
    """A log level as the configuration spells it."""
    if (level := LEVELS.get(text.upper())) is None:
        raise OwlError(f"log level {text!r}", hint=f"{did_you_mean(text.upper(), LEVELS)}use {', '.join(LEVELS)}")
    return level


def did_you_mean(asked: str, offered: Iterable[str]) -> str:
    """`did you mean NAME? ` for the nearest name, "" where none is near. A beginning that fits one name alone counts as near."""
    names = list(offered)
    begins = [name for name in names if asked and name.startswith(asked)]
    near = (
        begins
        if len(begins) == 1
        else difflib.get_close_matches(asked, names, 1) or difflib.get_close_matches(asked.lower(), names, 1)
    )
    return f"did you mean {near[0]}? " if near else ""


def root_parser(handler: Handler) -> tuple[Parser, Command, CommandActions]:
    """The command line without commands, how one is added, and those that were."""
    root = _add_common(Root(prog="owlbox", description=DESCRIPTION), None, False)
    root.add_argument("--version", action="version", version=f"owlbox {__version__}")
    root.set_defaults(handler=handler, thread="", prompt="", plain=False, acting="", watch=0.0, log_level="")
    words_of_all = root.add_subparsers(metavar="COMMAND", parser_class=Parser, action=CommandActions)

    def command(name: str, handler: Handler, text: str, where: Any = words_of_all) -> Parser:
        made: Parser = _add_common(where.add_parser(name, help=text, description=text), argparse.SUPPRESS, argparse.SUPPRESS)
        made.set_defaults(handler=handler)
        tool_command.add_acting(made)
        if made.prog.removeprefix("owlbox ") in LOGGING:
            made.add_argument(
                "--log-level", type=read_level, default=argparse.SUPPRESS, metavar="LEVEL", help=f"{', '.join(LEVELS)} in any case"
            )
        if made.prog.removeprefix("owlbox ") in watch.WATCHED:
            given = {"type": float, "const": watch.PAUSE_S, "default": argparse.SUPPRESS, "metavar": "SECONDS"}
            made.add_argument("--watch", nargs="?", help=f"repeat every so many seconds ({watch.PAUSE_S:g})", **given)
        return made

    return root, command, words_of_all


def _add_common(made: Any, home: Any, is_json: Any) -> Any:
    """The options that may stand before or after the command: only the root has defaults for them."""
    made.add_argument("--home", default=home, metavar="DIR", help="the home folder (or OWLBOX_HOME)")
    made.add_argument("--json", action="store_true", default=is_json, help="print JSON for programs")
    return made
