"""Moves keys and passwords that stand in plain in owlbox.toml or in the environment into the vault.

Owns finding them, the names they are kept under, and the file with `secret:NAME` in their place: nothing else in it
changes, and it is replaced whole or not at all. The vault has each value before the file loses it. Knows nothing about how
values get there. Not promised: copies that others made of the file, and what the process that reads them keeps in memory.
"""

import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from appliance.errors import ConfigError
from appliance.runtime import config, config_edit
from appliance.runtime.config_keys import TELLING, about
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config

LOG = logging.getLogger(__name__)
PREFIX = "secret:"
LONG = 8  # shorter values are looked for as a whole only: a part of a text may be one by chance
# Entries of a table of variables that hold something secret, by their names.
UNFIT = re.compile(r"[^\w.-]")
# Variables that programs of providers read: whatever we start must not see them.
VARIABLES = frozenset(
    "OPENAI_API_KEY ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN GEMINI_API_KEY GOOGLE_API_KEY OPENROUTER_API_KEY GROQ_API_KEY "
    "DEEPSEEK_API_KEY XAI_API_KEY MISTRAL_API_KEY AZURE_OPENAI_API_KEY TOGETHER_API_KEY FIREWORKS_API_KEY COHERE_API_KEY "
    "PERPLEXITY_API_KEY BRAVE_API_KEY HF_TOKEN AWS_SECRET_ACCESS_KEY AWS_BEARER_TOKEN_BEDROCK".split()
)

Place = tuple[str, ...]


@dataclass(frozen=True)
class PlainSecret:
    """A value in plain: where in the configuration it counts, and the name to keep it under."""

    place: Place
    name: str
    value: str

    @property
    def key(self) -> str:
        """The place as people write it."""
        return ".".join(self.place)


@dataclass(frozen=True)
class MovedSecrets:
    """What was done: a line for each key, and the environment to go on with."""

    notices: tuple[str, ...]
    environ: dict[str, str]


def found(home: Home, environ: Mapping[str, str]) -> list[PlainSecret]:
    """Every plain secret of a configuration, wherever it comes from; nothing for one that cannot be read."""
    try:
        settings = config.load(home, environ)
    except ConfigError:
        return []  # whoever needs it says so
    return [PlainSecret(place, f"{kind}/{UNFIT.sub('_', name)[:64]}", value) for place, kind, name, value in _find_plain(settings)]


def spare(home: Home, environ: Mapping[str, str]) -> list[str]:
    """Variables with keys of providers that a service of ours must not hand on: those that no configuration needs."""
    names = sorted(VARIABLES & {name for name, value in environ.items() if value})
    if not names:
        return []
    try:
        config.load(home, {name: value for name, value in environ.items() if name not in names})
    except ConfigError:
        return []
    return names


def move(home: Home, environ: Mapping[str, str], put: Callable[[str, str], bool]) -> MovedSecrets:
    """Put what is found into the vault with `put` and blank it; ConfigError when that cannot be done in the file."""
    finds = found(home, environ)
    _check_distinct(finds)
    clean = {name: _blank_variable(name, value, finds) for name, value in environ.items()}
    gone = {name for name in environ if not name.startswith(config.PREFIX) and clean[name] != environ[name]}
    notices = []
    for find in finds:
        is_new = put(find.name, find.value)
        variable = next((name for name in environ if clean[name] != environ[name] and find.value in environ[name]), "")
        where = f"variable {variable}" if variable else str(home.config)
        notices.append(f"{find.key} of {where} {'was moved into' if is_new else 'is already in'} the vault, as {find.name}")
    if finds and home.config.exists():
        _blank_values(home, environ, finds)
    left = {name: value for name, value in clean.items() if name not in gone}
    config.load(home, left)  # a variable that is needed for something else too must stay
    unused = spare(home, left)
    notices += [f"not handed on: {', '.join(unused)}"] if unused else []
    return MovedSecrets(tuple(notices), {name: value for name, value in left.items() if name not in unused})


def _check_distinct(finds: list[PlainSecret]) -> None:
    """ConfigError for two values that would be kept under one name: the first of them would be lost."""
    first: dict[str, PlainSecret] = {}
    for find in finds:
        other = first.setdefault(find.name, find)
        if other.value != find.value:
            text = f"{other.key} and {find.key} would both be {find.name} in the vault"
            raise ConfigError(text, key=find.key, hint=f'keep one yourself: owlbox secret set NAME, then "{PREFIX}NAME" there')


# -- where they are ---------------------------------------------------------------------------------


def _find_plain(settings: Config) -> Iterator[tuple[Place, str, str, str]]:
    """Place, kind, name and value of each plain secret."""
    for place, value, is_listed in _walk_secrets(settings, ()):
        if not value.strip() or value.startswith(PREFIX) or "{key}" in value:
            continue
        if is_listed and (not TELLING.search(place[-1]) or place[-2] == "headers"):
            continue  # a table of variables holds harmless ones too
        yield place, *_name_secret(place, settings), value


def _walk_secrets(table: Any, place: Place) -> Iterator[tuple[Place, str, bool]]:
    for item in fields(table):
        value, here = getattr(table, item.name), place if about(item).is_rest else (*place, item.name)
        if is_dataclass(value):
            yield from _walk_secrets(value, here)
        elif isinstance(value, Mapping):
            for name, entry in value.items():
                if is_dataclass(entry):
                    yield from _walk_secrets(entry, (*here, name))
                elif about(item).is_secret and isinstance(entry, str):
                    yield (*here, name), entry, True
        elif about(item).is_secret and isinstance(value, str):
            yield here, value, False


def _name_secret(place: Place, settings: Config) -> tuple[str, str]:
    """The kind and name that the vault keeps it under."""
    if place[0] == "providers":
        return "llm", place[1]
    if place[:2] == ("tools", "web_search"):
        return "search", settings.tools.web_search.provider
    if place[:2] == ("tools", "mcp"):
        return "mcp", f"{place[2]}-{place[-1]}"
    return "channel", "-".join(place[1:]) if place[0] == "channels" else "-".join(place)


# -- the environment --------------------------------------------------------------------------------


def _blank_variable(name: str, value: str, finds: list[PlainSecret]) -> str:
    """A variable without the values found: named in ours, the variable of others no longer as it was."""
    for find in sorted(finds, key=lambda find: len(find.value), reverse=True):
        given = json.dumps(find.value, ensure_ascii=False)[1:-1]  # as it stands in a table given as JSON
        if value == find.value:
            return PREFIX + find.name
        if name.startswith(config.PREFIX) and len(find.value) >= LONG:
            value = value.replace(given, PREFIX + find.name)
    return value


# -- the file ---------------------------------------------------------------------------------------


def _blank_values(home: Home, environ: Mapping[str, str], finds: list[PlainSecret]) -> None:
    """Write the names in place of the values; comments with a value in them lose it too."""
    path = home.config.resolve()
    whole = path.read_bytes().decode("utf-8")
    old = whole.removeprefix(config_edit.MARK)
    text = old
    for find in finds:
        raw = config_edit.at(tomllib.loads(text), find.place)
        if isinstance(raw, str) and not raw.startswith(PREFIX):
            wanted = tomllib.loads(text)
            config_edit.put(wanted, find.place, PREFIX + find.name)
            text = config_edit.edited(text, find.place, PREFIX + find.name, wanted, path)
    for find in finds:
        text = _scrub_copies(text, find)
    if text != old:
        config_edit.replace(home, environ, path, whole[: len(whole) - len(old)] + text)


def _scrub_copies(text: str, find: PlainSecret) -> str:
    """The file without further copies of a value, where they mean nothing, as in comments."""
    new = text.replace(find.value, PREFIX + find.name) if len(find.value) >= LONG else text
    return new if new != text and config_edit.reads_as(new, tomllib.loads(text)) else text
