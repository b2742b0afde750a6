"""Which servers of tools there are: the tables `[tools.mcp.NAME]` of owlbox.toml, and `servers.json` beside it.

Owns `servers.json`, which has the form that other programs use for theirs (`mcpServers`), and what both mean as one
list. Commands write that file and nobody else does; values that look like secrets are not left in it (`plain_secrets`).
Starts nothing, and knows nothing about what the servers offer.
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from appliance.errors import BadInput, ConfigError, NotFound, Refused
from appliance.mcp import sandbox
from appliance.runtime import config, paths, trusted_files
from appliance.runtime.config_keys import TELLING
from appliance.runtime.paths import Home
from appliance.runtime.tool_settings import McpServer
from appliance.sandbox.bubblewrap import Bind

FILE = "servers.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
PREFIX = "secret:"
Transport = Literal["stdio", "http"]
OWN = "servers"  # in the home: a folder for each
# What other programs call the same, and what they write that means nothing to us.
OTHERS = {"type": "transport"}
TRANSPORTS = {"streamable-http": "http", "streamable_http": "http", "streamableHttp": "http"}
PASSED_OVER = ("description", "icon", "alwaysAllow", "autoApprove", "trust", "tools")


class Server(Struct, frozen=True):
    """One server as it is configured; `source` is the file that says so."""

    name: str
    transport: Transport
    keys: McpServer
    source: str

    @property
    def key(self) -> str:
        """What it is made of, in short: another one when anything that matters to what it offers changes."""
        said = asdict(self.keys)
        for name in ("timeout_s", "expose", "enabled", "memory_mb"):
            said.pop(name)
        if not said["issuer"]:  # what was listed before there was such a key is not old for that
            said.pop("issuer")
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=list).encode()).hexdigest()[:32]

    @property
    def where(self) -> str:
        """Its command line or its address, for people."""
        return self.keys.url if self.transport == "http" else " ".join((self.keys.command, *self.keys.args))

    @property
    def tokens(self) -> str:
        """The name under which the vault keeps what a login brought."""
        return f"mcp/{self.name}-login"


def read(home: Home, settings: Mapping[str, McpServer], environ: Mapping[str, str]) -> dict[str, Server]:
    """Every server by name, those of owlbox.toml first; ConfigError for a file that cannot be used and for a name twice."""
    found = {name: _build_server(name, keys, home.config.name) for name, keys in settings.items()}
    raw = load(home)
    try:
        written = config.servers({name: ours(entry) for name, entry in raw.items()}, environ)
    except ConfigError as error:
        raise ConfigError(f"{home.root / FILE}: {error.message}", key=error.key, hint=error.hint) from None
    for name, keys in written.items():
        if name in found:
            text = f"server {name} is in {home.config.name} and in {FILE}"
            raise ConfigError(text, key=f"tools.mcp.{name}", hint="remove it from one of them")
        found[name] = _build_server(name, keys, FILE)
    return found


def load(home: Home) -> dict[str, Any]:
    """The entries of `servers.json` as they are written; none when there is no file."""
    path = home.root / FILE
    if why := trusted_files.problem(path, home=home.root):
        raise ConfigError(f"servers are not used: {why}", key=FILE)
    try:
        raw = json.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", key=FILE, hint="fix it, or move it away and add them again") from None
    entries = raw.get("mcpServers", raw.get("servers", {})) if isinstance(raw, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise ConfigError(f"{path} has no table of servers", key=FILE, hint='write {"mcpServers": {"NAME": {"command": "..."}}}')
    return dict(entries)


def stamp(home: Home) -> tuple[int, ...]:
    """What tells one state of `servers.json` from another without reading it; () where there is none."""
    try:
        found = (home.root / FILE).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def save(home: Home, entries: Mapping[str, Any]) -> None:
    """Write `servers.json` whole or not at all; for the owner's eyes."""
    path = home.root / FILE
    text = json.dumps({"mcpServers": dict(entries)}, ensure_ascii=False, indent=2) + "\n"
    paths.put(path, text.encode())


def ours(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry in our words: other programs call some keys differently, and have some that mean nothing here."""
    found = {OTHERS.get(name, name): value for name, value in entry.items() if name not in PASSED_OVER}
    if "disabled" in found:
        found.setdefault("enabled", not found.pop("disabled"))
    if found.get("transport") in TRANSPORTS:
        found["transport"] = TRANSPORTS[found["transport"]]
    return found


def check_name(name: str) -> str:
    """A name that may become a part of the names of tools; BadInput for any other."""
    if not NAME.fullmatch(name):
        raise BadInput(f"{name[:60]!r} cannot be a server's name", hint="letters, digits, _ and -, at most 32")
    return name


def check(name: str, entry: Mapping[str, Any], environ: Mapping[str, str]) -> Server:
    """The server that an entry means; ConfigError and BadInput say what it lacks."""
    return _build_server(check_name(name), config.servers({name: ours(entry)}, environ)[name], FILE)


def plain_secrets(name: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Values of an entry that belong into the vault: table, key, name to keep it under, value."""
    for table in ("env", "headers", ""):
        # "" stands for the entry itself, which has one such key.
        values = (entry.get(table) or {}) if table else {"client_secret": entry.get("client_secret")}
        for key, value in values.items():
            is_held = isinstance(value, str) and (value.startswith(PREFIX) or "${" in value)
            if isinstance(value, str) and value and not is_held and TELLING.search(key):
                yield table, key, f"mcp/{name}-{re.sub(r'[^A-Za-z0-9_.-]', '_', key)}"[:64], value


def without(entry: Mapping[str, Any], held: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """The entry with the names of secrets in the place of their values."""
    made = copy.deepcopy(dict(entry))
    for (table, key), name in held.items():
        (made[table] if table else made)[key] = PREFIX + name
    return made


def named(server: Server) -> list[str]:
    """The names of the secrets that a server's entry refers to."""
    values = (*server.keys.env.values(), *server.keys.headers.values(), server.keys.client_secret)
    return sorted({value.removeprefix(PREFIX) for value in values if value.startswith(PREFIX)})


def binds(server: Server, home: Path) -> tuple[list[str], list[Bind]]:
    """The words that start a server's program, and what of this machine it sees; Refused for what holds the assistant's home."""
    path = sandbox.program(server.keys.command)
    named = [
        *(sandbox.bind(text) for text in server.keys.mounts),
        *(sandbox.bind(text, is_writable=True) for text in server.keys.writable),
    ]
    worked_in = [Path(server.keys.cwd).expanduser().resolve()] if server.keys.cwd else []
    for place in (*(bind.source for bind in named), *worked_in):
        _check_apart(place, home.resolve())
    inner: dict[str, Bind] = {bind.inside: bind for bind in (*sandbox.needed(path), *named)}
    return sandbox.words_of(path), list(inner.values())


def _check_apart(place: Path, home: Path) -> None:
    """Refused for a folder in which a server would find everything that the assistant knows; its own are below `servers`."""
    is_own = home / OWN in (place, *place.parents)
    if not is_own and (place in (home, *home.parents) or home in place.parents):
        raise Refused(f"{place} holds the home of owlbox, which no server sees", hint="name the folders that the server needs")


def pick_server(found: Mapping[str, Server], name: str) -> Server:
    """A server by name; NotFound names those there are."""
    if name in found:
        return found[name]
    hint = f"there are {', '.join(found)}" if found else NONE
    raise NotFound(f"no server {name}", hint=hint)


NONE = "no servers are configured: owlbox mcp add NAME --command PROGRAM, or --url ADDRESS"


def _build_server(name: str, keys: McpServer, source: str) -> Server:
    transport: Transport = "http" if keys.transport == "http" or not keys.transport and keys.url and not keys.command else "stdio"
    return Server(name, transport, keys, source)


def imported(path: Path) -> dict[str, Any]:
    """Entries that another program keeps in a file of the same form, at its top or below `mcp`."""
    try:
        raw = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: {error}", hint="name a JSON file with mcpServers in it") from None
    inner = raw.get("mcp") if isinstance(raw, dict) and isinstance(raw.get("mcp"), dict) else raw
    entries = (inner.get("mcpServers") or inner.get("servers")) if isinstance(inner, dict) else None
    if not isinstance(entries, dict):
        raise BadInput(f"{path} has no servers in it", hint="they are looked for below mcpServers")
    return {str(name): entry for name, entry in entries.items() if isinstance(entry, dict)}
