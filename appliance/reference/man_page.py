"""The man page owlbox(1), written from the command line: every command in its group, with its actions and arguments.

`docs --table` writes it; a test compares it, and reads it with the formatters that are there.
"""

import argparse
from collections.abc import Iterator

from appliance.console import help_pages

DATE = "2026-11-23"  # when the form of the page was last changed
EXITS = (("0", "done"), ("1", "failed"), ("2", "bad usage"), ("3", "not found"), ("4", "refused"), ("5", "busy or unavailable"))
ENVIRONMENT = (
    ("OWLBOX_HOME", "The home folder, where --home is not given."),
    ("OWLBOX__TABLE__KEY", "One key of the configuration, over what owlbox.toml says."),
    ("NO_COLOR", "Show no colours."),
    ("COLUMNS", "How wide tables are."),
)
FILES = (
    ("~/.local/share/owlbox", "The home of a person; that of the appliance is /var/lib/owlbox."),
    ("owlbox.toml", "The configuration, in the home."),
    ("box/", "Notes, skills and documents that people write, in the home."),
)
ABOUT = """\
Owlbox is a private assistant that runs on a small computer of your own, with a language model of its own. Without a command,
owlbox opens the screen. A command asks the core, which runs as a service; where none runs, it does the work itself. Text that
comes through a pipe is read where a text is asked for, and what is printed on standard output is the answer alone: notices and
progress go to standard error."""


def man_page(parser: argparse.ArgumentParser) -> str:
    """The page as roff."""
    (root,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    lines = [f'.TH OWLBOX 1 {DATE} "Owlbox" "User Commands"', ".SH NAME", "owlbox \\- a private assistant in a small box"]
    lines += [".SH SYNOPSIS", ".B owlbox", "[\\fICOMMAND\\fR]", "[\\fIargument\\fR ...]"]
    lines += [".SH DESCRIPTION", *_filled(ABOUT), ".SH OPTIONS"]
    for action in parser._actions:
        if action.option_strings:
            lines += _argument(action)
    listed = set[str]()
    for title, names in (*help_pages.FIRST, *help_pages.REST, ("Other names", tuple(help_pages.OTHER_NAMES))):
        lines += [f".SH {_escape(title.upper())}"]
        for name in names:
            listed.add(name)
            lines += _command(root.choices[name], name)
    lines += [".SH HELP"]
    for name in sorted(set(root.choices) - listed):
        lines += _command(root.choices[name], name)
    for title, rows in (("EXIT STATUS", EXITS), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        lines += [f".SH {title}"]
        for name, text in rows:
            lines += [".TP", f"\\fB{_escape(name)}\\fR", _escape(text)]
    lines += [".SH SEE ALSO", *_filled("Pages about each part are in docs/ of the source. owlbox help --all lists every command.")]
    return "\n".join(lines) + "\n"


def _command(made: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """A command with its arguments, then each of its actions."""
    usage = [_usage(action) for action in made._actions if _is_shown(action) and not isinstance(action, argparse._SubParsersAction)]
    yield f".SS owlbox {_escape(name)}"
    yield _escape(_sentence(made.description or ""))
    if usage:
        yield ".PP"
        yield f"\\fBowlbox {_escape(name)}\\fR {' '.join(usage)}"
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from _command(below, f"{name} {word}")
        elif _is_shown(action):
            yield from _argument(action)


def _is_shown(action: argparse.Action) -> bool:
    """Whether an argument is the command's own, and not one that every command has."""
    return action.dest not in ("help", "home", "json", "version") and action.help != argparse.SUPPRESS


def _usage(action: argparse.Action) -> str:
    """An argument in the line that shows how a command is called."""
    value = "" if action.nargs == 0 else f"\\fI{_escape(_value(action))}\\fR"
    if action.option_strings:
        text = f"\\fB{_escape(action.option_strings[-1])}\\fR {value}".strip()
        return text if action.required else f"[{text}]"
    many = " ..." if action.nargs in ("*", "+") else ""
    return f"[{value}{many}]" if action.nargs in ("?", "*") else f"{value}{many}"


def _argument(action: argparse.Action) -> Iterator[str]:
    """An argument with what it is."""
    yield ".TP"
    value = "" if action.nargs == 0 else f" \\fI{_escape(_value(action))}\\fR"
    names = ", ".join(f"\\fB{_escape(name)}\\fR" for name in action.option_strings)
    yield f"{names}{value}".strip()
    yield _escape(_sentence((action.help or "").replace("%%", "%")))


def _value(action: argparse.Action) -> str:
    """What stands for an argument's value."""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.choices is not None and action.metavar is None:
        return "|".join(str(one) for one in action.choices if one)
    return action.metavar or (action.dest.upper() if action.option_strings else action.dest)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".") + "."


def _filled(text: str) -> list[str]:
    return [_escape(line) for line in text.split("\n")]


def _escape(text: str) -> str:
    """A text that roff reads as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text
