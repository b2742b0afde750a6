"""Commands made from definitions: a `Noun` such as `owlbox people` has `Verb`s, and each names the method or tool that it calls.

Arguments with their kinds, choices, defaults and words come from the definition, by the table that `owlbox docs --table` writes, so
that no definition is imported to start. A verb says only what a definition cannot: how its arguments are typed, and how people are
told the outcome. With `--json` the result is printed as it is. Errors carry their exit codes.

`Verb.args` has a word for each argument that can be typed: `person` and `person?` stand by place, `text+` and `text*` take all the
words that are left, `--limit` is an option; `--days=max_days` is called otherwise than the parameter, `--limit@20` has another
default. A flag is the opposite of the parameter's default, where that is none what its name says; a list may be given several
times, or takes several words with `--add+`.
Without `args` needed parameters stand by place and all others are options.

`Verb.rows` has a word for each column of a table, `Verb.fields` one for each line of a record: `name`, `head=name`, `part.name`; a
`~` behind it lets the column be cut. Names that end in `_ms` are moments. Without any of them a list is a table of everything that
is short, a record is a line for each of its fields, and a text is printed.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from appliance.clock import local_time
from appliance.console.connect import connected
from appliance.console.parser import Command, CommandActions
from appliance.console.terminal import Table, say, say_json, says_yes, show
from appliance.console.tool_command import Option, ask, method_options, once
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home
from appliance.text.references import for_people

Told = str | list[str] | Table
Says = Callable[[argparse.Namespace, Any], Told]
ARGUMENT = re.compile(r"(--)?([\w-]+)(?:=(\w+))?(?:@([\w:-]+))?([?+*]?)$")
COLUMN = re.compile(r"(?:([^=~]+)=)?([\w.]+)(~?)$")
NONE = "-"  # as `Verb.args`: nothing is typed that is sent by itself
TOOL = "tool "  # before the name of a tool in `Verb.calls`
KINDS: dict[str, type] = {"int": int, "float": float}


class Verb(NamedTuple):
    """One command: the method it calls, its arguments, and how the result is printed.

    `word` may hold several names of the same. `text` is its line of help, the beginning of the definition's where it says nothing.
    `says` is a sentence with names of arguments and of the result's fields in braces, or a function of both, which leaves it to the
    tool's own words by saying nothing; `empty` is said in place of a table without rows. `fixed` are parameters that are not typed,
    `reads` turns what was typed into what is sent, `cells` makes columns that are no field, `helps` are other words for arguments.
    `part` is the field of the result that is printed alone, when it is a page of something. `asks` is a method and a sentence with
    fields of its result: without `--yes` a person has to agree. `code` is the exit code for a result. `alone` is the next step
    where no core runs, for what only a running one can do. A verb with a `handler` is written by hand, and `adds` its arguments.
    """

    word: str
    calls: str = ""
    args: str = ""
    text: str = ""
    says: str | Says = ""
    rows: str = ""
    fields: str = ""
    empty: str = ""
    fixed: Mapping[str, Any] = {}
    reads: Mapping[str, Callable[[Any], Any]] = {}
    cells: Mapping[str, Callable[[dict[str, Any]], str]] = {}
    helps: Mapping[str, str] = {}
    part: str = ""
    asks: tuple[str, str] | None = None
    code: Callable[[Any], int] = lambda found: 0
    alone: str = ""
    handler: Callable[[argparse.Namespace, Home], int] | None = None
    adds: Callable[[Any], Any] | None = None


class Noun(NamedTuple):
    """A group of commands; `first` is done where no action is named, if there is such a one."""

    word: str
    about: str
    verbs: tuple[Verb, ...]
    first: str = "list"


class VerbArgument(NamedTuple):
    """One word of `Verb.args`: where its value is found among what was parsed, and the parameter that it is for."""

    dest: str
    parameter: Option
    is_option: bool
    default: Any
    many: str


def takes(*names: str, **given: Any) -> Callable[[Any], Any]:
    """One argument of a command that no definition has, for `Verb.adds`."""
    return lambda made: made.add_argument(*names, **given)


def add(command: Command, made: Noun | Verb) -> None:
    """Add a group with its actions, or a command that has none."""
    if isinstance(made, Verb):
        _add_verb(command, made, method_options(list(calls(made))))
        return
    root = command(made.word, _choose, made.about)
    root.set_defaults(noun=made.word)
    root.first = made.first
    add_verbs(command, made.verbs, root.add_subparsers(metavar="ACTION", parser_class=type(root), action=CommandActions))


def add_verbs(command: Command, made: Sequence[Verb], below: Any) -> None:
    """Add actions below a group that has others of its own."""
    known = method_options([verb.calls for verb in made if verb.calls])
    for verb in made:
        _add_verb(command, verb, known, below)


def calls(made: Noun | Verb) -> Iterable[str]:
    """The methods and tools that commands call, a tool with `tool` before its name."""
    return (verb.calls for verb in (made.verbs if isinstance(made, Noun) else (made,)) if verb.calls)


def declared(module: ModuleType) -> Iterable[Noun | Verb]:
    """What a module declares, by whatever name: groups, commands, and actions of a group that has others."""
    for value in vars(module).values():
        for one in value if isinstance(value, tuple) and not isinstance(value, Noun | Verb) else (value,):
            if isinstance(one, Noun | Verb):
                yield one


def _choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint=f"owlbox {args.noun} --help lists the actions")


def _add_verb(command: Command, verb: Verb, known: Mapping[str, tuple[str, list[Option]]], *below: Any) -> None:
    text, options = known.get(verb.calls, ("", []))
    arguments = list(_arguments(verb, options))

    def make(word: str) -> None:
        made = command(word, verb.handler or _call, verb.text or text, *below)
        made.set_defaults(verb=verb, typed=arguments, chosen=word)
        for one in arguments:
            _add_argument(made, one, verb.helps.get(one.dest, one.parameter.help), verb.reads.get(one.dest))
        if verb.asks:
            made.add_argument("--yes", action="store_true", help="ask nothing")
        if verb.adds:
            verb.adds(made)

    for word in verb.word.split():
        if below and isinstance(below[0], CommandActions):
            below[0].add_later(word, verb.text or text, partial(make, word))
        else:
            make(word)


def _arguments(verb: Verb, options: list[Option]) -> Iterable[VerbArgument]:
    """The arguments of a verb, in their order."""
    of = {option.name: option for option in options}
    typed = verb.args.split() if verb.args != NONE else []
    if not verb.args:
        typed = [
            o.name if o.is_required else f"--{o.name.removeprefix('is_').replace('_', '-')}={o.name}"
            for o in options
            if o.name not in verb.fixed
        ]
    for word in typed:
        found = ARGUMENT.match(word)
        if found is None or (found[3] or found[2].replace("-", "_")) not in of:
            raise ValueError(f"{verb.word}: {word} is no parameter of {verb.calls}")
        parameter = of[found[3] or found[2].replace("-", "_")]
        default = parameter.default if found[4] is None else KINDS.get(parameter.kind, str)(found[4])
        yield VerbArgument(found[2].replace("-", "_"), parameter, bool(found[1]), default, found[5])


def _add_argument(made: Any, one: VerbArgument, text: str, read: Callable[[str], Any] | None) -> None:
    kind, many = one.parameter.kind, one.many
    given: dict[str, Any] = {"help": text} if text else {}
    name = f"--{one.dest.replace('_', '-')}" if one.is_option else one.dest
    if kind == "bool" and one.default is None:
        made.add_argument(name, action="store_const", const=one.dest == one.parameter.name, **given)
        return
    if kind == "bool":
        made.add_argument(name, action="store_false" if one.default else "store_true", **given)
        return
    given["type"] = str if read else KINDS.get(kind, str)
    if one.parameter.choices:
        given["type"] = read or given["type"]  # a choice by another of its names is one
        given["choices"] = [choice for choice in one.parameter.choices if choice or not one.is_option]
    if one.is_option and kind == "list":
        given |= {"nargs": "+"} if many else {"action": "append"}
        made.add_argument(name, default=None if one.default is None else [], metavar=one.dest.upper(), **given)
    elif one.is_option:
        made.add_argument(name, default=one.default, required=one.parameter.is_required, **given)
    else:
        given |= {"nargs": many, "default": one.default if many == "?" else []} if many in ("?", "*") else {}
        made.add_argument(name, **given, **({"nargs": "+"} if many == "+" else {}))


# -- calling ----------------------------------------------------------------------------------------


def _call(args: argparse.Namespace, home: Home) -> int:
    """Call the verb's method with the typed arguments, and print the outcome."""
    params = parameters(args)
    if args.verb.asks:
        _ask(args, home, params)
    return call(args, home, args.verb, params)


def call(args: argparse.Namespace, home: Home, verb: Verb, params: dict[str, Any]) -> int:
    """Call a verb's method and print the outcome; the exit code."""
    if verb.calls.startswith(TOOL):
        with connected(home) as way:
            outcome = ask(way, verb.calls.removeprefix(TOOL), params)
        found, message = outcome["data"], outcome["message"]
        if found is None and hasattr(args, "id"):
            raise NotFound(f"no {args.noun} {args.id}", hint=f"owlbox {args.noun} list shows them")
        found = message if found is None else found
    else:
        found, message = once(home, verb.calls, params, alone=verb.alone), ""
    has_more = bool(verb.part and found["has_more"])
    found = found[verb.part] if verb.part else found
    if args.json:
        say_json(found)
    else:
        is_told = verb.says or verb.rows or verb.fields or not message
        show(args, found, (is_told and tell(args, verb, found)) or for_people(message))
    if has_more and not args.json:
        say(f"there are more: --offset {args.offset + len(found)}", sys.stderr)
    return verb.code(found)


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """What is sent: what was typed, as far as it is not what the definition has by itself, and what is fixed."""
    verb: Verb = args.verb
    params = dict(verb.fixed)
    for one in args.typed:
        value = getattr(args, one.dest)
        if one.many in ("+", "*") and one.parameter.kind != "list":
            value = " ".join(value)
        if one.parameter.is_required or value != one.parameter.default:
            is_raw = one.dest in verb.reads and not one.parameter.choices
            params[one.parameter.name] = _read(one, verb.reads[one.dest], value) if is_raw else value
    return params


def _read(one: VerbArgument, read: Callable[[str], Any], text: str) -> Any:
    """What was typed as what is sent: not before it is called, because files and pipes are read here."""
    try:
        return read(text)
    except ValueError:
        raise BadInput(f"{one.dest} {text[:60]!r} is not a valid value", hint=one.parameter.help) from None


def _ask(args: argparse.Namespace, home: Home, params: dict[str, Any]) -> None:
    """Refuse what nobody said yes to; programs, which cannot be asked, give --yes or ask for JSON."""
    method, question = args.verb.asks
    found = once(home, method, params)
    if args.yes or args.json:
        return
    if not says_yes(question.format_map(found)):
        raise BadInput("nothing was done", hint="--yes does it without asking")


# -- telling ----------------------------------------------------------------------------------------


def tell(args: argparse.Namespace, verb: Verb, found: Any) -> Told:
    """A result as text for people."""
    if callable(verb.says):
        return verb.says(args, found)
    given = {name: value for name, value in vars(args).items() if name != "typed"}
    typed = {name: " ".join(value) if isinstance(value, list) else value for name, value in given.items()}
    if verb.says:
        record = found if isinstance(found, dict) else {"result": found}
        known = {**typed, **{name: cell(record, name, verb.cells) for name in record}}
        return [line.format_map(known) for line in verb.says.split("\n")]
    if isinstance(found, str):
        return found.rstrip("\n")
    empty = " ".join(verb.empty.format_map(typed).split()) or "nothing"
    if isinstance(found, list | tuple) and all(isinstance(one, dict) for one in found):
        return table(found, verb.rows or _short_columns(found), verb.cells, empty)
    if isinstance(found, dict):
        return lines(found, verb.fields or " ".join(found), verb.cells)
    return [str(one) for one in found] or empty if isinstance(found, list | tuple) else str(found)


def table(found: Sequence[dict[str, Any]], columns: str, cells: Mapping[str, Callable[..., str]], empty: str) -> Table:
    """Records as rows."""
    known = _columns(columns)
    rows = [[cell(one, path, cells) for _, path, _ in known] for one in found]
    return Table(rows, [head for head, _, _ in known], [head for head, _, is_cut in known if is_cut], empty)


def lines(found: dict[str, Any], fields: str, cells: Mapping[str, Callable[..., str]]) -> list[str]:
    """A record as lines: those of its fields that say something."""
    told = [f"{head}: {text}" for head, path, _ in _columns(fields) if (text := cell(found, path, cells))]
    return [line for text in told for line in text.splitlines()]


def cell(record: dict[str, Any], path: str, cells: Mapping[str, Callable[..., str]]) -> str:
    """One value of a table as text."""
    if path in cells:
        return cells[path](record)
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    if path.endswith("_ms"):
        return local_time(value)[:16] if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple) and not any(isinstance(one, dict | list | tuple) for one in value):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else str(value)


def _columns(text: str) -> list[tuple[str, str, bool]]:
    """Heads, the fields that they are for, and whether they may be cut."""
    found = []
    for word in text.split():
        if (read := COLUMN.match(word)) is None:
            raise ValueError(f"{word} is no column")
        found.append(((read[1] or _head(read[2])).replace("_", " "), read[2], bool(read[3])))
    return found


def _head(path: str) -> str:
    """A field's name as people read it."""
    name = path.rpartition(".")[2].removeprefix("is_").removeprefix("has_")
    for end in ("_ms", "_bytes"):
        name = name.removesuffix(end)
    return name


def _short_columns(found: Sequence[dict[str, Any]]) -> str:
    """The fields of records that fit into a table."""
    return " ".join(f"{name}~" for name, value in (found[0] if found else {}).items() if not isinstance(value, dict | list | tuple))
