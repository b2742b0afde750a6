"""Every key of the configuration is read by something: one that nothing reads promises what it does not do."""

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from appliance.runtime.config_keys import PACKAGE
from appliance.runtime.config_reference import _inner_type
from appliance.runtime.settings import Config

DEFINING = ("settings.py", "tool_settings.py", "config_reference.py")
# Tables that are handed on whole: to the parameters of a function or the fields of a record in this place.
HANDED = {
    "Outbox": "sessions/outbox.py",
    "Bounds": "sandbox/workspace.py",
    "McpServer": "mcp/tools.py",
    **dict.fromkeys(("Matrix", "Email", "Slack", "Workspace"), "channels"),
}


@cache
def code_of(path: Path) -> tuple[CodeType, ...]:
    """The code of a module, of its classes and functions; of a module that defines keys, of functions alone."""
    found = [compile(path.read_bytes(), str(path), "exec")]
    for one in found:
        found += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return tuple(one for one in found if path.name not in DEFINING or one.co_flags & inspect.CO_OPTIMIZED)


def names_of(code: CodeType) -> tuple[str, ...]:
    """The names that it reads, and that of its class."""
    return (*code.co_names, code.co_qualname.partition(".")[0])


def words_of(code: CodeType) -> Iterator[str]:
    """The words that stand as strings in a module that defines keys: it looks some up by their names."""
    for one in code.co_consts if Path(code.co_filename).name in DEFINING else ():
        yield from (word for word in (one if isinstance(one, tuple) else (one,)) if isinstance(word, str))


def tables(cls: Any, known: dict[Any, set[str]]) -> dict[Any, set[str]]:
    """Every table below one, with the names under which it stands in others."""
    for item in fields(cls):
        for kind in filter(is_dataclass, (item.type, _inner_type(item.type))):
            is_new = kind not in known
            known.setdefault(kind, set()).add(item.name)
            if is_new:
                tables(kind, known)
    return known


@pytest.mark.covers("R-202", "S-028")
def test_every_key_is_read_where_its_table_is_named() -> None:
    modules = [(code_of(path), path) for path in PACKAGE.rglob("*.py")]
    read = [
        ({name for one in code for name in names_of(one)}, {word for one in code for word in words_of(one)}) for code, _ in modules
    ]
    unread, count = [], 0
    for table, names in tables(Config, {}).items():
        place = str(PACKAGE / HANDED.get(table.__name__, "?"))
        parts = [one for code, path in modules if str(path).startswith(place) for one in code]
        handed = {name for one in parts for name in (*one.co_names, *one.co_varnames)}
        for item in fields(table):
            count += 1
            is_read = any({table.__name__, *names} & named and item.name in named | words for named, words in read)
            if not is_read and not is_dataclass(item.type) and item.name not in handed:
                unread.append(f"{table.__name__}.{item.name}")
    assert not unread, " ".join(unread)
    assert count > 190
