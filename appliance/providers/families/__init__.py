"""The families of local models: one file each, with one class below `family.Family`. A new file is found by itself."""

import importlib
import pkgutil

from appliance.providers.family import Family


def load() -> list[Family]:
    """One of each family, by name."""
    found: list[Family] = []
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda one: one.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found += [
            one()
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, Family) and one.__module__ == module.__name__
        ]
    return found


def find(template: str) -> Family | None:
    """The family of a chat template; None when it knows no tools, or none of ours."""
    return next((family for family in load() if family.is_meant(template)), None) if "tool" in template else None
