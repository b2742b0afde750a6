"""The tools that ship: one file per family. A new file is found by itself."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


def load() -> list[Callable[..., Any]]:
    """Every function marked with `@tool` in this folder, modules by name, functions in the order written."""
    found: list[Callable[..., Any]] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        space = vars(importlib.import_module(f"{__name__}.{module.name}"))
        found += [f for f in space.values() if hasattr(f, "tool") and getattr(f, "__module__", "") == space["__name__"]]
    return found
