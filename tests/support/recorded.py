"""A configuration that notes which of its keys are read: what a process is built with, and what it looks up each time."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from appliance.runtime import config
from appliance.runtime.settings import Config


def recorded(settings: Config, seen: set[str]) -> Config:
    """The same settings; the dotted name of each key that somebody reads is put into `seen`."""
    made: Config = _recorded(settings, "", seen)
    return made


def _recorded(value: Any, path: str, seen: set[str]) -> Any:
    base = type(value)
    names = {item.name for item in dataclasses.fields(base)}

    def read(self: Any, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name in names and not dataclasses.is_dataclass(found):
            seen.add(path + name)
        return found

    made = object.__new__(type(base.__name__, (base,), {"__getattribute__": read}))
    for name in names:
        inner = vars(value)[name]
        is_table = dataclasses.is_dataclass(inner)
        object.__setattr__(made, name, _recorded(inner, f"{path}{name}.", seen) if is_table else inner)
    return made


def keys(table: Any = Config(), path: str = "") -> Iterator[str]:
    """Every key of the tree; a table of names that people choose is one key."""
    for item in dataclasses.fields(table):
        value = vars(table)[item.name]
        if dataclasses.is_dataclass(value):
            yield from keys(value, f"{path}{item.name}.")
        else:
            yield path + item.name


class Recording(config.Live):
    """A configuration in force whose reads are noted: `built` before the first reload, `renewed` since."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.read_first: set[str] = set()
        self.read_again: set[str] = set()
        self.current = self.built = recorded(self.current, self.read_first)

    def reload(self) -> tuple[str, ...]:
        changed = super().reload()
        self.current = recorded(self.current, self.read_again)
        return changed
