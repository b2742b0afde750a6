"""The tools that ship: one file per family. A new file is found by itself."""

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


@functools.cache  # for every core of a process
def load() -> tuple[Callable[..., Any], ...]:
    """Every function marked with `@tool` in this folder, modules by name, functions in the order written."""
    found: list[Callable[..., Any]] = []
    for name in sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py")):
        space = vars(importlib.import_module(f"{__name__}.{name}"))
        found += [f for f in space.values() if hasattr(f, "tool") and getattr(f, "__module__", "") == space["__name__"]]
    return tuple(found)
