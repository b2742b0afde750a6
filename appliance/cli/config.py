"""`owlbox config`: every key of the configuration with its value, and changing one in owlbox.toml.

Each function takes the parsed arguments and the home.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

from appliance.console.connect import connected, require_owner
from appliance.console.terminal import Table, show
from appliance.errors import BadInput, NotFound, OwlError
from appliance.runtime import config, config_edit
from appliance.runtime.config_reference import toml
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the group."""
    root = command("config", choose, "show or change configuration keys")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    made = command("list", list_keys, "every key with its value; those you set are marked *", known)
    made.add_argument("word", nargs="?", default="", help="only keys with this word in name or description")
    made.add_argument("--changed", action="store_true", help="only those that differ from their default")
    made = command("set", change, "change one key in owlbox.toml; everything else in the file stays as it is", known)
    made.add_argument("key", help="full name, such as heartbeat.enabled")
    made.add_argument("value", help="a list or a table as JSON")


def choose(args: argparse.Namespace, home: Home) -> int:
    """Bad usage: no action was named."""
    raise BadInput("name an action", hint="owlbox config list, or owlbox config set KEY VALUE")


def list_keys(args: argparse.Namespace, home: Home) -> int:
    """The keys in force, by the file and the environment."""
    word = args.word.lower()
    found = [
        (key, value, is_set, known.doc)
        for key, value, is_set, known in config.listed(config.load(home, os.environ))
        if (word in key.lower() or word in known.doc.lower()) and (is_set or not args.changed)
    ]
    if not found and not args.json:
        raise NotFound(f"no key has {args.word!r} in it" if args.word else "every key is at its default", hint="owlbox config list")
    rows = [[f"{key} *" if is_set else key, "unset" if value is None else toml(value), doc] for key, value, is_set, doc in found]
    data = {key: value for key, value, _, _ in found}
    return show(args, data, Table(rows, ["key", "value", "meaning"], cut=["meaning", "value"]))


def change(args: argparse.Namespace, home: Home) -> int:
    """Change one key once the whole configuration with it is right."""
    from appliance.upkeep.checks.unworkable import require_workable

    require_owner(home)
    place, value = config.typed(home, args.key, args.value)
    key = ".".join(place)
    check = lambda settings: require_workable(home, settings, [key], _Asking(home))  # noqa: E731
    is_changed = config_edit.set_value(home, os.environ, place, value, check)
    meaning = config.described(key)
    shown = "[hidden]" if meaning.is_secret else toml(value)
    lines = [f"{key} = {shown}" + ("" if is_changed else " already")]
    if is_changed:
        lines.append(
            "it holds after a restart of the core" if meaning.is_restart else "a running core takes it up with owlbox reload"
        )
    return show(args, {"key": key, "is_changed": is_changed}, lines)


class _Asking:
    """Asks a core, of this process where none runs; None when it cannot be asked: this command is to mend that perhaps."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def list_secrets(self) -> list[str] | None:
        told = self._ask("secret.list")
        return None if told is None else [one["name"] for one in told["secrets"]]

    def list_people(self) -> list[str] | None:
        told = self._ask("people.list")
        return None if told is None else [one["name"] for one in told]

    def list_groups(self) -> list[str] | None:
        told = self._ask("group.list")
        return None if told is None else list(told)

    def _ask(self, method: str) -> Any:
        try:
            with connected(self._home) as way:
                return way.call(method)
        except OwlError:
            return None
