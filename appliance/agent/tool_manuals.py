"""Manuals of tools: examples, rules and the reason of each, out of `tools/manuals/GROUP.toml`; other names, out of `ALIASES`.

A tool's header and the words about its arguments come from its function; what is told here is how it is used. Every
line has its reason beside it, for people who want to change it: a model never reads those. Read when somebody asks
for a manual, never before. Whether an example is a valid call is for a test to say.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from msgspec import Struct, field, structs

from appliance.errors import ConfigError
from appliance.policy import modes
from appliance.records import ToolCall
from appliance.runtime.signatures import Signature

FOLDER = "tools/manuals"
ALIASES = "tools/aliases.toml"
KEYS = {"why", "examples", "rules"}
MUST = ("must", "should", "may")
LEAST = 2  # examples, and rules
NEAR = 6  # names that are told in place of one that no tool has


class ManualRule(Struct, frozen=True):
    """A sentence of a manual and why it is there."""

    text: str
    why: str


class Example(Struct, frozen=True):
    """Arguments of a good call and why it is shown."""

    arguments: Mapping[str, Any]
    why: str


class ToolAlias(Struct, frozen=True):
    """A tool as one of the four designs calls it: whose name, the name, our arguments by theirs, and those that the name implies.

    It has no code: a call under this name is our tool's call with these arguments.
    """

    design: str
    name: str
    arguments: Mapping[str, str] = {}
    implied: Mapping[str, Any] = {}

    def __str__(self) -> str:
        told = [f"{theirs} is {ours}" for theirs, ours in self.arguments.items()]
        told += [f"{ours}={json.dumps(value)}" for ours, value in self.implied.items()]
        return f"{self.design} {self.name}" + (f" ({', '.join(told)})" if told else "")


class Manual(Struct, frozen=True):
    """What is told about one tool beside its header."""

    why: str = ""
    examples: tuple[Example, ...] = ()
    rules: tuple[ManualRule, ...] = ()

    def text(self, name: str) -> str:
        """Examples and rules as a model reads them, in this order; "" when there are none."""
        shown = [f"{name} {json.dumps(one.arguments, ensure_ascii=False)}" for one in self.examples]
        rules = [f"- {one.text}" for one in self.rules]
        return "\n".join([*(["Examples:"] if shown else []), *shown, *(["Rules:"] if rules else []), *rules])

    def problems(self) -> list[str]:
        """The parts that a manual must have and this one lacks (R-196)."""
        found = [] if self.why else ["no reason for its header"]
        found += [f"{len(self.examples)} examples, {LEAST} are needed"] * (len(self.examples) < LEAST)
        found += [f"{len(self.rules)} rules, {LEAST} are needed"] * (len(self.rules) < LEAST)
        found += [f"no must, should or may: {one.text}" for one in self.rules if not _is_ruling(one.text)]
        found += [f"no reason: {rule}" for rule in self.rules if not rule.why.strip()]
        return found + [f"no reason: {example}" for example in self.examples if not example.why.strip()]


class ManualIndex(Struct):
    """Manuals of tools, those that ship read by group when asked for, and what others call our tools."""

    added: dict[str, Manual] = field(default_factory=dict)
    _groups: dict[str, dict[str, Manual]] = field(default_factory=dict)
    _aliases: dict[str, tuple[str, ToolAlias]] | None = None

    def of(self, name: str, group: str) -> Manual:
        """The manual of a tool; an empty one when nobody has written any."""
        return self.added.get(name) or self._read_group(group).get(name, Manual())

    def meant(self, name: str) -> str:
        """The tool of ours that one of the four designs calls so; "" for none, or for several."""
        return self._find_alias(name)[0]

    def ours(self, name: str) -> str:
        """What we call the tool that a list names, behind its bar if it has one; the same for what is none of others' names."""
        bare = name.removeprefix(modes.BAR)
        return name.removesuffix(bare) + (self.meant(bare) or bare)

    def also(self, name: str) -> tuple[str, ...]:
        """What the four designs call a tool, as far as it means no other one."""
        return tuple(theirs for theirs, (ours, _) in self._known_aliases().items() if ours == name)

    def translate(self, call: ToolCall) -> ToolCall:
        """The call of our tool that is meant by one under another name; the same call for a name that means nothing else."""
        ours, alias = self._find_alias(call.name)
        if alias is None:
            return call
        given = {alias.arguments.get(name, name): value for name, value in call.arguments.items()}
        return structs.replace(call, name=ours, arguments={**given, **alias.implied})

    def _find_alias(self, name: str) -> tuple[str, ToolAlias | None]:
        return self._known_aliases().get(name, ("", None))

    def _known_aliases(self) -> dict[str, tuple[str, ToolAlias]]:
        if self._aliases is None:
            self._aliases = only_meanings(read_aliases())
        return self._aliases

    def add(self, name: str, manual: Manual) -> None:
        """Add a manual; it replaces a shipped one of the same name."""
        self.added[name] = manual

    def _read_group(self, group: str) -> dict[str, Manual]:
        if group not in self._groups:
            self._groups[group] = read(group)
        return self._groups[group]


def groups() -> list[str]:
    """The groups of tools that have manuals, by name."""
    folder = files("appliance") / FOLDER
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def read(group: str) -> dict[str, Manual]:
    """The manuals of a group's tools; none when the group has no file, ConfigError when the file cannot be understood."""
    if group not in groups():
        return {}
    try:
        raw = tomllib.loads((files("appliance") / FOLDER / f"{group}.toml").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"the manual of {group} is not TOML: {error}", hint=f"see {FOLDER}/{group}.toml") from None
    return {name: parse(name, table) for name, table in raw.items()}


def parse(name: str, table: object) -> Manual:
    """A manual out of its table; ConfigError names what is wrong with it."""
    if not isinstance(table, dict) or (strange := set(table) - KEYS):
        wrong = f"has {', '.join(sorted(strange))}" if isinstance(table, dict) else "is not a table"
        raise ConfigError(f"the manual of {name} {wrong}", hint=f"it may have {', '.join(sorted(KEYS))}")
    try:
        return Manual(
            _require_text(table.get("why", "")),
            tuple(Example(_require_table(given), _require_text(why)) for given, why in table.get("examples", ())),
            tuple(ManualRule(_require_text(line), _require_text(why)) for line, why in table.get("rules", ())),
        )
    except (TypeError, ValueError) as error:
        hint = "examples are [{arguments}, reason], rules [line, reason]"
        raise ConfigError(f"the manual of {name}: {error}", hint=hint) from None


def told(name: str, about: str, sign: Signature, manual: Manual) -> str:
    """All about a tool in one order: header with syntax, arguments, examples, rules, schema."""
    fields = [f"- {f.name}{'' if f.is_required else ' (may be left out)'}: {f.help}" for f in sign.fields if f.help]
    schema = json.dumps(sign.schema(), ensure_ascii=False)
    header = f"{syntax(name, sign)}: {' '.join(about.split())}"
    lines = [header, *fields, manual.text(name), f"Schema of its arguments: {schema}"]
    return "\n".join(line for line in lines if line)


def syntax(name: str, sign: Signature) -> str:
    """A tool's name and what it takes, in brackets what may be left out: `read(ref, [line, limit])`."""
    needed = [f.name for f in sign.fields if f.is_required]
    more = [f.name for f in sign.fields if not f.is_required]
    if more:
        needed.append(f"[{', '.join(more)}]")
    return f"{name}({', '.join(needed)})"


def read_aliases() -> dict[str, tuple[ToolAlias, ...]]:
    """What the four designs call each of our tools, their names for it that are ours as well among them."""
    raw = tomllib.loads((files("appliance") / ALIASES).read_text(encoding="utf-8"))
    return {name: tuple(map(_read_alias, theirs)) for name, theirs in raw.items()}


def only_meanings(known: Mapping[str, Sequence[ToolAlias]]) -> dict[str, tuple[str, ToolAlias]]:
    """Our tool by each name that others have for it, but not by those that two tools answer to, nor by our own names."""
    found: dict[str, dict[str, ToolAlias]] = {}
    for name, theirs in known.items():
        for alias in theirs:
            found.setdefault(alias.name, {})[name] = alias
    return {name: next(iter(ours.items())) for name, ours in found.items() if len(ours) == 1 and name not in known}


def _read_alias(value: object) -> ToolAlias:
    """`LETTER NAME`, or a list of that, our arguments by theirs, and what the name implies."""
    said, *more = value if isinstance(value, list) else [value]
    design, _, name = _require_text(said).partition(" ")
    return ToolAlias(design, name, *map(_require_table, more))


def _is_ruling(text: str) -> bool:
    return any(word.strip(".,;:()") in MUST for word in text.lower().split())


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _require_table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not a table of arguments")
    return value


def nearest(name: str, names: Sequence[str]) -> list[str]:
    """The names that one which no tool has may have meant, nearest first: alike in letters, or with one of its words."""
    words = {word for word in name.casefold().split("_") if len(word) > 2}
    alike = get_close_matches(name.casefold(), names, NEAR, 0.6)
    return [*alike, *(one for one in names if one not in alike and words & set(one.split("_")))][:NEAR]
