"""The reference documents, written from the code: commands, tools, methods, tables, configuration, names.

Also the table of commands that the command line itself reads. A test fails when a page in docs/ or the table differs from what
this makes. Knows nothing about a running core.
"""

import argparse
import ast
import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from inspect import getsource
from pathlib import Path
from textwrap import dedent
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, structs, to_builtins

import appliance
from appliance import tools
from appliance.agent import tool_manuals
from appliance.agent.toolbox import read_tool
from appliance.console import help_pages, tool_command
from appliance.console.tool_command import TABLE, Option, ToolCommand
from appliance.console.verbs import TOOL
from appliance.prompt.packet import tool_line
from appliance.runtime import config, hook_points
from appliance.runtime.methods import Method, find_marks
from appliance.runtime.rpc.notifications import describe_notifications
from appliance.runtime.signatures import Field, Signature
from appliance.store.migrations import FIRST, LATEST, MIGRATIONS
from appliance.text import tokens

PACKAGE = Path(appliance.__file__).parent
MADE = "<!-- Made by `make docs` from the code; do not edit. -->\n"
# The four designs' names for what we have; one line a thing, ours first.
NAMES = (
    ("thread", "B thread, R run, A session tree", "run: one thread of work in a session"),
    ("event", "B interaction, R entry log, A tree entry, S history line", "the finest record of a run"),
    ("owlbox ask TEXT", "B chat -p, S agent -m", "one question, streamed to standard output"),
    ("owlbox chat", "B chat, S agent", "talk, line by line"),
    ("owlbox serve", "S gateway, A orchestrator, R service", "the core"),
    ("owlbox broker", "A llm gateway", "the model process"),
    ("remember", "B context_write, R set, S memory_write", "tool: keep a note"),
)
# Characters per token of tools and their manuals in the bundled model's vocabulary; tests/agent/test_tool_manuals.py measures it.
DIVISOR = 3.3
BROKER = ("appliance.models.broker", "appliance.secrets.vault_methods")  # whose methods are offered at a socket of its own

KINDS = {str: "text", int: "int", float: "float", bool: "bool"}
RELAYED = ("delta", "thinking", "preparing", "event", "proposal")
# Functions that send notifications for the methods that call them.
SENT_BY = {
    "relay": RELAYED,
    "_follow_prompt": ("accepted", *RELAYED),
    "prompted": ("accepted", *RELAYED, "state"),
    "send_news": ("thread", "event"),
    "_send_events": ("event",),
    "look_out": ("published", "stream.cancelled"),
    "_stream_lines": ("line",),
}


def pages(parser: Any) -> dict[str, str]:
    """Every page by its path in docs/; `parser` is the whole command line."""
    return {
        "reference/configuration.md": config.reference(),
        "reference/commands.md": _write_commands(parser),
        "reference/tools.md": _write_tools(),
        "reference/methods.md": _write_methods(),
        "reference/tables.md": _write_tables(),
        "reference/names.md": _write_names(),
        "reference/moments.md": _write_moments(),
    }


def _write_moments() -> str:
    lines = ["# Moments\n", MADE, "What plugins may listen to, decide or change; [plugins.md](../guides/plugins.md) shows how.\n"]
    lines.append("| name | kind | handed over | when |\n|---|---|---|---|")
    lines += [f"| `{one.name}` | {one.kind} | {one.given} | {one.when} |" for one in hook_points.MOMENTS]
    return "\n".join(lines) + "\n"


def _write_commands(parser: Any) -> str:
    lines = ["# Commands\n", MADE, "Every command takes `--home DIR` and `--json`.\n"]
    lines.append("Exit codes: 0 ok, 1 failed, 2 bad usage, 3 not found, 4 refused by policy, 5 busy or unavailable.\n")
    for name, sub in _walk_commands(parser, "owlbox"):
        lines.append(f"## `{name}`\n\n{sub.description or ''}\n")
        rows = [
            _describe_argument(a)
            for a in sub._actions
            if a.dest not in ("help", "home", "json", "version") and not a.choices_are_commands
        ]
        lines += [row for row in rows if row]
        if any(rows):
            lines.append("")
    lines.append("\n## Other names\n")
    lines += [f"- `owlbox {name}` is `owlbox {meant}`" for name, meant in help_pages.ALIASES.items()]
    return "\n".join(lines).rstrip() + "\n"


def _walk_commands(parser: Any, name: str) -> Iterator[tuple[str, Any]]:
    for action in parser._actions:
        action.choices_are_commands = isinstance(action.choices, dict)
    if name != "owlbox":
        yield name, parser
    for action in parser._actions:
        if action.choices_are_commands:
            for word, sub in action.choices.items():
                yield from _walk_commands(sub, f"{name} {word}")


def _describe_argument(action: Any) -> str:
    name = ", ".join(action.option_strings) or action.dest
    text = action.help or ""
    has_default = action.option_strings and action.nargs != 0 and action.default and action.default != "==SUPPRESS=="
    default = f" (default {action.default})" if has_default else ""
    return f"- `{name}` {text}{default}".rstrip()


def _write_tools() -> str:
    made = sorted(map(read_tool, tools.load()), key=lambda tool: (tool.mark.group, tool.mark.name))
    shelf = tool_manuals.ManualIndex()
    lines = ["# Tools\n", MADE]
    lines.append(
        "One definition each: the model's schema, the command, the socket method `tool.call`. "
        "What a changing one does is recorded with its run.\n\n"
        "`tokens` is what a model reads of a tool that is in its menu, `help` what `tool_help` tells it: examples and rules. "
        "The reason behind each example and rule is for people who change it; no model reads it.\n"
    )
    heads = ("tool", "group", "command", "changes something", "tokens", "help", "what the model reads")
    lines.append(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for one in made:
        m, line = one.mark, tool_line(one.spec)
        command, size = f"`owlbox {m.command}`" if m.command else "", one.told(shelf.of(m.name, m.group))
        changes = "no" if m.is_read_only else "yes"
        counts = f"{tokens.estimate(line, DIVISOR)} | {tokens.estimate(size, DIVISOR)}"
        lines.append(f"| `{m.name}` | {m.group} | {command} | {changes} | {counts} | `{line}` |")
    for one in made:
        lines.append(f"\n## `{one.mark.name}`\n\n`{tool_manuals.syntax(one.mark.name, one.signature)}`\n\n{one.description}\n")
        if also := shelf.also(one.mark.name):
            lines.append(f"Also called {', '.join(f'`{name}`' for name in also)}.\n")
        lines += _argument_rows(one.signature)
        lines += _manual_lines(shelf.of(one.mark.name, one.mark.group))
    return "\n".join(lines) + "\n"


def _manual_lines(manual: tool_manuals.Manual) -> list[str]:
    """Examples and rules of a tool, each with its reason."""
    lines = [f"\nWhy it is there: {manual.why}."] if manual.why else []
    if manual.examples:
        lines.append("\nExamples:\n")
        lines += [f"- `{json.dumps(one.arguments, ensure_ascii=False)}` ({one.why})" for one in manual.examples]
    if manual.rules:
        lines.append("\nRules:\n")
        lines += [f"- {one.text} *({one.why})*" for one in manual.rules]
    return lines


def _write_methods() -> str:
    head = Path(__file__).with_name("methods_head.md").read_text("utf-8")
    lines = ["# Methods of the sockets\n", MADE, head.replace("{notifications}", _list_notifications())]
    title = ""
    rows = [*((name.partition(".")[0], method) for name, method in methods().items())]
    rows += [("the broker", method) for method in methods(is_broker=True).values()]
    for section, method in rows:
        lines += [f"## {section}\n"] if section != title else []
        title = section
        access = {"admin": ""}.get(method.mark.access, f" · {method.mark.access}")
        lines.append(f"### `{method.mark.name}`{access}\n\n{method.doc}\n")
        lines += [*_argument_rows(method.signature), *_describe_answer(method), ""]
    return "\n".join(lines).rstrip() + "\n"


def methods(*, is_broker: bool = False) -> dict[str, Method]:
    """Every method of the core's socket, or of the broker's, by its name; those of subclasses once.

    Only modules with the mark in their text are imported: all of them take seconds.
    """
    found: dict[str, Method] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("appliance", *path.relative_to(PACKAGE).with_suffix("").parts))
        if (name in BROKER) is is_broker and "@method" in path.read_text("utf-8"):
            classes = (one for one in vars(import_module(name)).values() if isinstance(one, type) and one.__module__ == name)
            found |= {mark.name: Method(mark, getattr(one, at)) for one in classes for at, mark in find_marks(one).items()}
    return dict(sorted(found.items()))


def _list_notifications() -> str:
    """The table of notifications."""
    rows = ["| notification | parameters | when |", "|---|---|---|"]
    for name, known in describe_notifications().items():
        fields = ", ".join(f"`{field}`" for field in known["params"]["properties"])
        rows.append(f"| `{name}` | {'an event as `thread.view` shows it' if name == 'event' else fields} | {known['doc']} |")
    return "\n".join(rows)


def _describe_answer(method: Method) -> list[str]:
    """The notifications that a method sends before its result, and what the result is, read from its code and annotation."""
    tree = ast.parse(dedent(getsource(method.function)))
    sent: list[str] = []
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        sent += SENT_BY.get(name, ())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "notify":
            sent += [str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    told = [f"- *sends* {', '.join(f'`{name}`' for name in dict.fromkeys(sent))}"] if sent else []
    return [*told, f"- *result* {_describe_result(method.signature.returns, tree)}"]


def _describe_result(returns: Any, tree: ast.AST) -> str:
    """What a result is: the keys of the dictionary that the code returns, or the fields of the record that is annotated."""
    is_list = get_origin(returns) in (list, tuple)
    kind = get_args(returns)[0] if is_list else returns
    is_record = isinstance(kind, type) and kind.__module__.startswith("appliance.")
    what = "a text" if kind is str else "an object"
    what = {"a text": "a list", "an object": "a list of objects"}[what] if is_list else what
    made = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict)]
    keys = _record_keys(kind) if is_record else [str(k.value) for one in made for k in one.keys if isinstance(k, ast.Constant)]
    is_open = any(None in one.keys for one in made)
    named = ", ".join(f"`{key}`" for key in dict.fromkeys(keys))
    return f"{what} with {named}{' and more' if is_open else ''}" if named else what


def _record_keys(kind: Any) -> list[str]:
    """The names that a record's fields have in JSON."""
    return [f.encode_name for f in structs.fields(kind)] if issubclass(kind, Struct) else list(get_type_hints(kind))


def _argument_rows(sign: Signature) -> list[str]:
    schema = sign.schema()["properties"]
    rows = []
    for f in sign.fields:
        kind = schema[f.name].get("type") or " or ".join(
            sorted({str(o.get("type", o.get("enum", ""))) for o in schema[f.name].get("anyOf", [])})
        )
        kind = kind or " or ".join(repr(v) for v in schema[f.name].get("enum", [])) or "any"
        need = "needed" if f.is_required else f"default {f.default!r}"
        rows.append(f"- `{f.name}` ({kind}, {need}) {f.help}".rstrip())
    return rows


def _write_tables() -> str:
    lines = ["# Tables\n", MADE, f"The database is of version {LATEST}; `PRAGMA user_version` says so in the file.\n"]
    for number, text in enumerate(MIGRATIONS, FIRST):
        lines.append(f"## Version {number}\n\n```sql\n{text.rstrip()}\n```")
    return "\n".join(lines) + "\n"


def _write_names() -> str:
    lines = [
        "# Names\n",
        MADE,
        "What the four designs call what we have. Configuration keys: the last column of configuration.md.\n",
    ]
    lines.append("| ours | theirs | what it is |\n|---|---|---|")
    lines += [f"| `{ours}` | {theirs} | {what} |" for ours, theirs, what in NAMES]
    lines.append(
        "\n## Tools\n\nA tool may be called by another name it has here, where only one tool has it. In the policy, in a role, in\n"
        "`tools.disabled` and in `tools.deadlines_s` such a name stands for the whole tool.\n"
        "Behind `earlier` is a name of ours that went.\n"
    )
    lines.append("| ours | theirs | what it does |\n|---|---|---|")
    known = tool_manuals.read_aliases()
    for one in sorted(map(read_tool, tools.load()), key=lambda tool: tool.mark.name):
        if theirs := known.get(one.mark.name):
            lines.append(f"| `{one.mark.name}` | {', '.join(map(str, theirs))} | {one.description} |")
    return "\n".join(lines) + "\n"


# -- the table of commands --------------------------------------------------------------------------


def tool_rows() -> list[ToolCommand]:
    """The tools that name a command, as their signatures are now."""
    made = (read_tool(function) for function in tools.load())
    return [
        ToolCommand(one.mark.name, one.mark.command, one.description, [_option(field) for field in one.signature.fields])
        for one in made
        if one.mark.command
    ]


def command_rows(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """The commands as they say themselves."""
    names = next(action for action in parser._actions if action.metavar == "COMMAND")
    return [(one.dest, str(one.help)) for one in names._choices_actions]  # type: ignore[attr-defined]


def method_rows(called: set[str]) -> list[tuple[str, str, list[Option]]]:
    """What commands call, besides tools that name a command: its name, what it does in a sentence, its arguments."""
    found: dict[str, Any] = {**methods()}
    made = [read_tool(function) for function in tools.load()]
    found |= {f"{TOOL}{one.mark.name}": one for one in made if not one.mark.command}
    rows = [(name, found[name]) for name in sorted(called & set(found))]
    return [(name, _first_sentence(_doc_of(one)), [_option(field) for field in one.signature.fields]) for name, one in rows]


def _doc_of(one: Any) -> str:
    """What a method or a tool does, in words."""
    return one.doc if isinstance(one, Method) else str(one.description)


def _first_sentence(text: str) -> str:
    """How a line of help is written: without what follows, and without a capital letter and a full stop."""
    first = text.split("\n\n")[0].replace("\n", " ").partition(". ")[0].removesuffix(".")
    return first[:1].lower() + first[1:]


def write_table(whole_parser: Callable[[], argparse.ArgumentParser], called: set[str]) -> None:
    """Write the table of commands: what they call first, because the command line is made with it."""
    tools, methods = tool_rows(), method_rows(called)
    _write([], tools, methods)
    _write(command_rows(whole_parser()), tools, methods)


def _write(commands: list[tuple[str, str]], tools: list[ToolCommand], methods: list[tuple[str, str, list[Option]]]) -> None:
    """One command a line, so that a change is seen in a diff."""
    parts = {"commands": _lines(commands), "tools": _lines(tools), "methods": _lines(methods)}
    TABLE.write_text("{" + ",\n".join(f'"{name}": [\n{lines}\n]' for name, lines in parts.items()) + "}\n", encoding="utf-8")
    tool_command.read_table.cache_clear()


def _lines(rows: Any) -> str:
    return ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def _option(field: Field) -> Option:
    """What a command line must know of an argument."""
    kind = field.type
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        kind = next((one for one in get_args(kind) if one is not type(None)), str)
    words = [word for part in (field.type, *get_args(field.type)) if get_origin(part) is Literal for word in get_args(part)]
    default = None if field.is_required else to_builtins(field.default)
    origin = get_origin(kind) or kind
    name = KINDS.get(type(words[-1]) if words else origin) or ("list" if origin in (list, tuple, Sequence) else "json")
    return Option(field.name, field.help, field.is_required, default, name, [word for word in words if word])
