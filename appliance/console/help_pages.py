"""What `owlbox --help` and `owlbox help --all` show: commands in groups, those that people need first before all others.

The line of each command is that of the table of commands (`tool_command.TABLE`), so that no command is imported to be named. A
command that is another name for a part of a listed one stands in `OTHER_NAMES`, with what it stands for; `ALIASES` have no code.
"""

import json
import textwrap
from collections.abc import Iterable, Mapping

from appliance.console import tool_command

WIDTH = 79
LEAD = 15  # columns of a command's name with what is before it
FIRST = (
    ("Talk", ("ask", "chat", "thread")),
    ("Keep and find", ("remember", "search", "context")),
    ("Have things done", ("task", "schedule")),
    ("Maintain it", ("status", "onboard")),
)
REST = (
    ("Answers and conversations", ("approve", "reject", "session", "prompt-size", "packet")),
    ("Notes, files and memory", ("memory", "skill", "document", "capabilities", "history", "undo")),
    ("Work", ("worker", "job", "role", "heartbeat", "mute")),
    ("Models and tools", ("model", "usage", "tool", "mcp")),
    ("People and limits", ("people", "channel", "policy", "grants", "secret")),
    ("The installation", tuple("init config reload doctor backup restore export import update maintain nuke".split())),
    ("Watch and run it", ("metrics", "logs", "serve", "broker", "door", "web")),
    ("For programs", ("completion", "call", "sql", "docs")),
)
# Names of the designs and of earlier versions that still work, and what says the same.
OTHER_NAMES = {
    "tui": "chat, full screen only",
    "cron": "schedule, for messages to the assistant",
    "remind": "schedule, in one sentence: owlbox remind call mum at six",
    "entry": "context, by whole addresses and patterns",
    "read": "context read, for one note",
    "note": "remember, as a file in box/notes",
}
# Words that stand for others wherever they begin a command line.
ALIASES = {"run view": "thread status", "run": "thread", "entry accept": "approve", "entry reject": "reject"}
FOOT = """\
owlbox alone opens the screen; every command takes --json and --home DIR.
owlbox help COMMAND explains one, owlbox help --all lists every command."""
FOOT_OF_ALL = "owlbox help COMMAND [ACTION] explains one and lists its actions."


def first_page() -> str:
    """The ten commands that people need first, in groups: one screen of a terminal of 80 by 24."""
    texts = dict(tool_command.commands())
    return "\n".join(["usage: owlbox [COMMAND] ...", "", *_group_lines(FIRST, texts), FOOT]) + "\n"


def all_pages() -> str:
    """Every command in groups, other names last."""
    texts = dict(tool_command.commands())
    lines = ["usage: owlbox [COMMAND] ...", "", *_group_lines((*FIRST, *REST), texts), "Other names that work"]
    names = {**OTHER_NAMES, **{name: meant for name, meant in ALIASES.items() if " " not in name}}
    return "\n".join([*lines, *(_row(name, text) for name, text in names.items()), "", FOOT_OF_ALL]) + "\n"


def groups() -> str:
    """The command names of each group, for programs."""
    return json.dumps({**{title: list(names) for title, names in (*FIRST, *REST)}, "Other names": list(OTHER_NAMES)})


def meant(words: list[str]) -> list[str]:
    """A command line as it is meant: with the words that one of `ALIASES` stands for in its place."""
    at = next(
        (n for n, (before, word) in enumerate(zip(["", *words], words)) if not word.startswith("-") and before != "--home"), 0
    )
    for length in (2, 1):
        if found := ALIASES.get(" ".join(words[at : at + length])):
            return [*words[:at], *found.split(), *words[at + length :]]
    return words


def _group_lines(groups: Iterable[tuple[str, Iterable[str]]], texts: Mapping[str, str]) -> list[str]:
    """Each group under its title, an empty line after each."""
    return [line for title, names in groups for line in (title, *(_row(name, _plain(texts[name])) for name in names), "")]


def _plain(text: str) -> str:
    """A tool's line, which is a sentence, as lines of other commands are."""
    return (text if text[1:2].isupper() else text[0].lower() + text[1:]).removesuffix(".")  # MCP stays MCP


def _row(name: str, text: str) -> str:
    """One command with what it is for; what is longer than a line goes on below its beginning."""
    lines = textwrap.wrap(text, WIDTH - LEAD)
    return "\n".join([f"  {name:<{LEAD - 2}}{lines[0]}", *(" " * LEAD + line for line in lines[1:])])
