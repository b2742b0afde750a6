"""The formats in which providers are asked: one file each, whose name is the `kind` of a provider's table.

A file holds one class below `http_provider.Hosted`. A new file is found by itself: `runtime.settings` offers its name, and
`load` imports it when a provider of its kind is asked for the first time.
"""

import importlib

from appliance.providers.http_provider import Hosted


def load(kind: str) -> type[Hosted]:
    """The class of a format, imported when it is first needed."""
    module = importlib.import_module(f"{__name__}.{kind}")
    (found,) = (
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Hosted) and one.__module__ == module.__name__
    )
    return found
