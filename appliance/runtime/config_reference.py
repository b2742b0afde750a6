"""The configuration written out: the Markdown reference, and the file that `owlbox init` writes.

Both are printed from the tree in `settings`, so neither can drift from what is read. Knows nothing
about any file in use. `python -m appliance.runtime.config_reference > docs/reference/configuration.md` renews the reference.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from appliance.runtime.config_keys import About, about, default_of
from appliance.runtime.settings import Config


@dataclass(frozen=True)
class ConfigTable:
    """One table of the file: its name, what it is, its keys, and the entries that exist without a file."""

    name: str
    doc: str
    items: tuple[Field[Any], ...]
    presets: Mapping[str, Any]
    is_list: bool = False
    known: About = About()


def reference() -> str:
    """docs/reference/configuration.md: every key with type, default, meaning and the seed's name."""
    parts = [_read("configuration_head.md")]
    listed: dict[tuple[Field[Any], ...], str] = {}
    for table in tables(Config, ""):
        heading = f"[[{table.name}]]" if table.is_list else f"[{table.name}]"
        parts.append(f"## `{heading}`\n\n{table.doc}\n")
        if table.items and table.items in listed:
            parts.append(f"Its keys are those of `{listed[table.items]}`.\n")
            continue
        listed[table.items] = heading
        rows = [_format_row(table, item) for item in table.items]
        if rows:
            parts.append("| key | type | default | meaning | stands for |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n")
        if table.presets:
            lines = [f"- `{name}`: {_describe_preset(preset)}" for name, preset in table.presets.items()]
            parts.append("Built in:\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def default_toml() -> str:
    """A commented owlbox.toml with the keys a person would change; loading it gives the defaults."""
    parts = [_read("new_home_head.toml")]
    for table in tables(Config, ""):
        if "NAME" in table.name or table.is_list:
            continue
        lines = [line for item in table.items if about(item).is_shown for line in _comment_lines(item)]
        if lines:
            parts.append(f"[{table.name}]\n" + "\n".join(lines) + "\n")
    return "\n".join([*parts, _read("new_home_examples.toml")])


def _read(name: str) -> str:
    """The hand-written text that is stored beside this module."""
    return Path(__file__).with_name(name).read_text("utf-8")


def tables(cls: Any, prefix: str, above: About = About()) -> Iterator[ConfigTable]:
    """Every table below a class, in the order of the file; entries named by people appear as NAME."""
    for item in fields(cls):
        kind: Any = item.type
        name = f"{prefix}{item.name}"
        inner = _inner_type(kind)
        is_list = get_origin(kind) is tuple
        known = about(item).within_table(above)
        if is_dataclass(kind):
            yield ConfigTable(name, cleandoc(kind.__doc__ or ""), _plain_fields(kind), {}, known=known)
            yield from tables(kind, f"{name}.", known)
        elif is_dataclass(inner):
            presets = {} if is_list else default_of(item)
            heading = name if is_list else f"{prefix}NAME" if known.is_rest else f"{name}.NAME"
            yield ConfigTable(heading, cleandoc(inner.__doc__ or ""), _plain_fields(inner), presets, is_list, known)
        elif cls is Config:
            yield ConfigTable(name, "Names chosen by you.", (item,), {}, known=known)


def _inner_type(kind: Any) -> Any:
    """The type of the items of a list or table; None for anything else."""
    origin = get_origin(kind)
    return get_args(kind)[0 if origin is tuple else 1] if origin in (tuple, Mapping) else None


def _plain_fields(cls: Any) -> tuple[Field[Any], ...]:
    """The keys of a class that have no heading of their own."""
    return tuple(item for item in fields(cls) if not is_dataclass(item.type) and not is_dataclass(_inner_type(item.type)))


def toml(value: Any) -> str:
    """A value as TOML text."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _format_row(table: ConfigTable, item: Field[Any]) -> str:
    known = about(item)
    name = f"{table.name}.NAME" if table.name == item.name or known.is_rest else f"{table.name}.{item.name}"
    meaning = known.doc + (" *Needed.*" if known.is_needed else "")
    waits = known.within_table(table.known)
    meaning += " *After a restart.*" if waits.is_restart else " *By the next broker.*" if waits.is_broker else ""
    default = default_of(item)
    shown = "unset" if default is None else f"`{toml(default)}`"
    return f"| `{name}` | {_describe_type(item)} | {shown} | {meaning} | {known.seed} |"


def _describe_type(item: Field[Any]) -> str:
    """The values that a key takes, with the range."""
    words = {bool: "true or false", int: "whole number", float: "number", str: "text", tuple[str, ...]: "list of text"}
    words[Any] = "any"
    within = about(item).within
    span = f" {within[0]:.10g} to {within[1]:.10g}" if within else ""
    kind: Any = item.type
    origin, args = get_origin(kind), get_args(kind)
    if choices := about(item).choices or (args if origin is Literal else ()):
        return ", ".join(f"`{toml(word)}`" for word in choices)
    if origin is tuple:
        return f"list of {words[args[0]]}{span}"
    if origin is Mapping:
        return f"table of {words[args[1]]}{span}"
    return words[args[0] if args else kind] + span


def _comment_lines(item: Field[Any]) -> list[str]:
    """A key as a line to uncomment; for a table of names, one line for each of its entries."""
    default, doc = default_of(item), about(item).doc.rstrip(".")
    values = default if isinstance(default, Mapping) else {item.name: default}
    return [f"#{name} = {toml(value)}{f'  # {doc}' if i == 0 else ''}" for i, (name, value) in enumerate(values.items())]


def _describe_preset(preset: Any) -> str:
    """The settings of a built-in entry."""
    changed = [item.name for item in fields(preset) if getattr(preset, item.name) != default_of(item)]
    return ", ".join(f"{name} = `{toml(getattr(preset, name))}`" for name in changed) or "the values above"


if __name__ == "__main__":
    sys.stdout.write(reference())
