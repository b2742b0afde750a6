"""Loading the configuration: defaults, then `owlbox.toml`, then `OWLBOX__...` variables, then checks.

Owns reading, `${VAR}`, overrides, types, ranges, cross references, and keeping the old configuration
when a new one is bad. What keys there are is in `settings`; what a value means is known to whoever
uses it. Stops at the first problem and names its key. A value that may be a secret is never repeated.
"""

import ipaddress
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, get_args, get_origin

from appliance.errors import ConfigError
from appliance.runtime import trusted_files
from appliance.runtime.config_keys import TELLING, About, Keys, about, default_of, rest_of
from appliance.runtime.config_reference import default_toml as default_toml
from appliance.runtime.config_reference import reference as reference
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Alias, Config, Price
from appliance.runtime.tool_settings import McpServer

PREFIX = "OWLBOX__"
NAME = re.compile(r"[\w.-]+")
MODEL_NAME = re.compile(r"[\w.:/@+-]+")
PLACEHOLDER = re.compile(r"\$(\$)?\{(?:([A-Za-z_]\w*)(:-([^}]*))?\})?")
HOUR = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00")
TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
SCALARS = frozenset((bool, int, float, str, type(None)))


def load(home: Home, environ: Mapping[str, str], *, path: Path | None = None) -> Config:
    """The configuration of a home, or of a copy at `path`; ConfigError names the first key or variable that cannot be."""
    if why := trusted_files.problem(path or home.config, home=home.root):
        raise ConfigError(f"configuration is not used: {why}", key=str(path or home.config))
    raw = _read_toml(path or home.config)
    _expand_variables(raw, "", environ)
    reader = _SettingsReader(_apply_overrides(raw, environ))
    try:
        config: Config = reader.table(raw, Config(), "")
        _check_config(config)
    except ConfigError as error:
        if path is None and not reader.find_variable(error.key):
            error.message = f"{home.config}: {error.message}"
        raise
    return config


class Live:
    """The configuration in force; a reload that fails leaves it as it was."""

    def __init__(self, home: Home, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ
        self._seen = self._file_stamp()
        self.current = load(home, environ)
        self.built = self.current  # what the parts of this process were made with

    def reload(self) -> tuple[str, ...]:
        """Read again; the keys that differ from those in force until now, ConfigError for a bad file."""
        self._seen = self._file_stamp()
        new = load(self._home, self._environ)
        changed = tuple(_walk_differences(self.current, new, ""))
        self.current = new
        return changed

    def restore(self, old: Config) -> None:
        """Put a configuration back in force: taking the newer one into use has failed."""
        self.current = old

    def is_outdated(self) -> bool:
        """True when the file has changed since it was read last."""
        return self._file_stamp() != self._seen

    def _file_stamp(self) -> tuple[int, int, int]:
        try:
            found = self._home.config.stat()
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_size, found.st_mtime_ns

    def waiting(self) -> tuple[str, ...]:
        """Keys that were changed since the start and hold only after the next one."""
        return tuple(key for key in _walk_differences(self.built, self.current, "") if described(key).is_restart)


def described(key: str) -> About:
    """What is known of a dotted key; tables hand down whether a change waits, and whether anything uses them."""
    kind: Any = Config
    known = About()
    for step in key.split("."):
        found = {item.name: item for item in fields(kind)} if is_dataclass(kind) else {}
        if found and (rest := rest_of(kind)) and step not in found:
            return about(rest).within_table(known)
        if step not in found:
            break  # below a table whose names people chose
        known = about(found[step]).within_table(known)
        kind = found[step].type
    return known


def servers(raw: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, McpServer]:
    """Servers of tools that are written elsewhere, read and checked as `tools.mcp` is; ConfigError says what is wrong."""
    whole: dict[str, Any] = {"tools": {"mcp": dict(raw)}}
    _expand_variables(whole, "", environ)
    config = _SettingsReader({}).table(whole, Config(), "")
    _check_tools(config)
    found: Mapping[str, McpServer] = config.tools.mcp
    return found


def typed(home: Home, key: str, text: str) -> tuple[tuple[str, ...], Any]:
    """Where a dotted key lies, names spelled as the file does, and the value that a text means for it."""
    variable = _variable_of(key)
    try:
        raw = _read_toml(home.config)
        (found,) = _apply_overrides(raw, {variable: text})
    except ConfigError as error:
        raise ConfigError(error.message.replace(f"{variable}: ", "").replace(variable, key), key=key, hint=error.hint) from None
    return _locate_key(raw, found)


def _locate_key(raw: Mapping[str, Any], key: str) -> tuple[tuple[str, ...], Any]:
    """The steps of a dotted key that is there, and its value; a name may hold dots itself."""
    for name, inner in raw.items():
        if key == name:
            return (name,), inner
        if key.startswith(f"{name}.") and isinstance(inner, Mapping):
            try:
                rest, value = _locate_key(inner, key[len(name) + 1 :])
            except LookupError:
                continue
            return (name, *rest), value
    raise LookupError(key)


def listed(config: Config) -> Iterator[tuple[str, Any, bool, About]]:
    """Every key with its value, whether that differs from what holds without a file, and what is known of it; no secret."""
    usual = {key: value for key, value, _, _ in _walk_keys(Config())}
    for key, value, default, known in _walk_keys(config):
        is_hidden = known.is_secret and value and not (isinstance(value, str) and value.startswith("secret:"))
        yield key, "[hidden]" if is_hidden else value, value != usual.get(key, default), known


def _walk_keys(config: Config) -> Iterator[tuple[str, Any, Any, About]]:
    """Every key with its value, the default of its field, and what is known of it."""
    for key, table in _tables_in(config, ""):
        for item in type(table).own_fields:
            value = vars(table)[item.name]
            entries = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
            if not any(isinstance(entry, Keys) for entry in entries):  # which are tables of their own
                yield _named_in(key, item), value, default_of(item), about(item)


def secrets(config: Config) -> tuple[str, ...]:
    """Every secret value that stands in the configuration itself, for the log to hide."""
    found: list[str] = []
    for _, table in _tables_in(config, ""):
        for item in type(table).own_fields:
            value = vars(table)[item.name]
            if about(item).is_secret:
                names = value.items() if isinstance(value, Mapping) else [(item.name, value)]
                found += [v for n, v in names if isinstance(v, str) and (TELLING.search(n) or not about(item).is_rest)]
    return tuple(value for value in found if value and not value.startswith("secret:"))


def named_secrets(config: Config) -> Iterator[tuple[str, str]]:
    """Every key whose value stands for a secret of the vault, and the secret's name."""
    for key, value, _, known in _walk_keys(config):
        if known.is_secret:
            yield from (
                (inner, text.removeprefix("secret:")) for inner, text in _walk_texts(key, value) if text.startswith("secret:")
            )


def _walk_texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text in a value, with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walk_texts(_join_key(key, name), inner)


# -- the file -------------------------------------------------------------------------------------


def _read_toml(path: Path) -> dict[str, Any]:
    """The file as TOML; empty when there is none."""
    try:
        # People write this file on any system: accept the byte order mark that Windows adds.
        text = path.read_bytes().decode("utf-8-sig")
        return tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", key=str(path), hint="it must be readable by the owlbox user") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{path}, line {line}, column {column}: not UTF-8 text", key=str(path)) from None
    except RecursionError:
        raise ConfigError(f"{path}, line 1, column 1: nested too deeply", key=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        hint = "correct that line; docs/reference/configuration.md shows every key"
        raise ConfigError(_where_broken(path, text, str(error)), key=str(path), hint=hint) from None


def _where_broken(path: Path, text: str, message: str) -> str:
    """A TOML error with file, line and column; tomllib has no line for errors at the very end."""
    problem, _, place = message.rpartition(" (at ")
    numbers = re.findall(r"\d+", place)
    line, column = numbers if len(numbers) == 2 else (text.count("\n") + 1, len(text) - text.rfind("\n"))
    return f"{path}, line {line}, column {column}: {problem}"


def _expand_variables(node: Any, key: str, environ: Mapping[str, str]) -> Any:
    """Replace ${NAME} in every text below a node; tables and lists are changed in place."""
    if isinstance(node, dict):
        for name in node:
            node[name] = _expand_variables(node[name], _join_key(key, name), environ)
    elif isinstance(node, list):
        node[:] = [_expand_variables(item, f"{key}[{i}]", environ) for i, item in enumerate(node)]
    elif isinstance(node, str):
        return PLACEHOLDER.sub(lambda match: _expand_match(match, key, environ), node)
    return node


def _expand_match(match: re.Match[str], key: str, environ: Mapping[str, str]) -> str:
    escaped, name, has_fallback, fallback = match.groups()
    if escaped:
        return match[0][1:]
    if not name:
        raise ConfigError(f"{key}: broken ${{...}}", key=key, hint="write ${NAME}, ${NAME:-text}, or $${ for the characters")
    value = environ.get(name)
    if value is None and not has_fallback:
        raise ConfigError(f"{key}: variable {name} is not set", key=key, hint=f"set {name}, or write ${{{name}:-}}")
    # As in a shell, ":-" also covers a variable that is set but empty.
    return (value or fallback) if has_fallback else value or ""


# -- overrides ------------------------------------------------------------------------------------


def _apply_overrides(raw: dict[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Put OWLBOX__ variables into the tree, whole tables first; gives the variable behind each dotted key."""
    origins = {}
    for variable in sorted((v for v in environ if v.startswith(PREFIX)), key=lambda v: (v.count("__"), v)):
        table, kind, key = raw, Config, ""
        *steps, last = variable.removeprefix(PREFIX).lower().split("__")
        for step in steps:
            name, kind = _step_down(table, kind, step, key, variable)
            key = _join_key(key, name)
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{key} must be a table, not {type(inner).__name__}", key=key)
            table = inner
        name, kind = _step_down(table, kind, last, key, variable)
        table[name] = _from_text(environ[variable], kind, variable)
        origins[_join_key(key, name)] = variable
    return origins


def _step_down(table: Mapping[str, Any], kind: Any, step: str, key: str, variable: str) -> tuple[str, Any]:
    """One step down: the name as the file spells it, and the type of what is there."""
    if is_dataclass(kind):
        found, rest = {item.name: item.type for item in fields(kind)}, rest_of(kind)
        if rest and (step == rest.name or step not in found) and _takes_name(rest, step):
            return step, get_args(rest.type)[1]
        if step not in found or (rest and step == rest.name):
            raise ConfigError(f"{variable}: unknown key {_join_key(key, step)}", key=variable, hint=_nearest_key(step, kind, key))
        return step, found[step]
    if get_origin(kind) is Mapping:
        return next((name for name in table if name.lower() == step), step), get_args(kind)[1]
    raise ConfigError(f"{variable}: {key} has no parts here", key=variable, hint=f"set it as a whole: {_variable_of(key)}")


def _from_text(text: str, kind: Any, variable: str) -> Any:
    """The value that an environment text means for a type; ranges are checked later."""
    origin = get_origin(kind)
    if origin is UnionType:
        kind = get_args(kind)[0]
    try:
        if kind is bool:
            return TRUTH[text.strip().lower()]
        if kind is int or kind is float:
            return kind(text)
        if kind is str or origin is Literal:
            return text
        value = json.loads(text)
        if kind is Any:
            return value
    except json.JSONDecodeError as error:
        if kind is Any:
            return text
        raise ConfigError(f"{variable}: not JSON: {error.msg} at column {error.colno}", key=variable) from None
    except (KeyError, ValueError, RecursionError):
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "flat JSON")
        raise ConfigError(f"{variable} = {text[:80]!r}: must be {expected}", key=variable) from None
    wanted = list if origin is tuple else dict
    if not isinstance(value, wanted):
        example = '["a", "b"]' if wanted is list else '{"name": "value"}'
        raise ConfigError(f"{variable}: must be a JSON {'array' if wanted is list else 'object'} like {example}", key=variable)
    return value


# -- from values to settings ----------------------------------------------------------------------


@dataclass(frozen=True)
class _SettingsReader:
    """Turns the raw tree into settings; `origins` tells which keys came from which variable."""

    origins: Mapping[str, str]

    def table(self, raw: Any, base: Any, key: str) -> Any:
        """`base` with what the table says."""
        if not isinstance(raw, dict):
            raise ConfigError(f"{self._name_key(key)} must be a table, not {type(raw).__name__}", key=key)
        items, rest = {item.name: item for item in type(base).own_fields}, rest_of(base)
        changed, others = {}, {}
        for name, value in raw.items():
            inner = _join_key(key, name)
            if rest and (name == rest.name or name not in items) and _takes_name(rest, name):
                others[name] = value
                continue
            if name not in items or items[name] is rest:
                raise ConfigError(f"unknown key {self._name_key(inner)}", key=inner, hint=_nearest_key(name, type(base), key))
            changed[name] = self.value(value, items[name].type, getattr(base, name), inner, about(items[name]))
        if rest and others:
            changed[rest.name] = self.value(others, rest.type, getattr(base, rest.name), key, about(rest))
        return replace(base, **changed)

    def value(self, raw: Any, kind: Any, base: Any, key: str, known: About) -> Any:
        """One value, checked against its type and range."""
        origin, args = get_origin(kind), get_args(kind)
        if is_dataclass(kind):
            if kind is Alias and isinstance(raw, str):
                raw = {"address": raw}
            return self.table(raw, base, key)
        if origin is tuple:
            if not isinstance(raw, list):
                self._fail_key(key, raw, "a list", known)
            start = args[0]() if is_dataclass(args[0]) and isinstance(args[0], type) else None
            return tuple(self.value(item, args[0], start, f"{key}[{i}]", known) for i, item in enumerate(raw))
        if origin is Mapping:
            return self._read_names(raw, args[1], base, key, known)
        return self._read_value(raw, args[0] if origin is UnionType else kind, key, known)

    def _read_names(self, raw: Any, kind: Any, base: Mapping[str, Any], key: str, known: About) -> dict[str, Any]:
        """A table whose names people choose, laid over the entries that are built in."""
        if not isinstance(raw, dict):
            self._fail_key(key, raw, "a table", known)
        result = dict(base)
        for name, value in raw.items():
            inner = _join_key(key, name)
            if not (MODEL_NAME if kind is Price else NAME).fullmatch(name):
                raise ConfigError(f"{self._name_key(inner)}: names have letters, digits, . _ and - only", key=inner)
            start = result.get(name) or (kind() if is_dataclass(kind) and isinstance(kind, type) else None)
            result[name] = self.value(value, kind, start, inner, known)
        return result

    def _read_value(self, raw: Any, kind: Any, key: str, known: About) -> Any:
        if kind is Any:
            return raw
        if allowed := known.choices or (get_args(kind) if get_origin(kind) is Literal else ()):
            if raw not in allowed:
                close = get_close_matches(str(raw).lower(), allowed, 1)
                hint = f'did you mean "{close[0]}"?' if close else ""
                self._fail_key(key, raw, "one of " + ", ".join(f'"{word}"' for word in allowed), known, hint)
            return raw
        if kind is float and type(raw) is int:
            raw = float(raw)
        if type(raw) is not kind or (kind is float and not math.isfinite(raw)):
            self._fail_key(key, raw, {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind], known)
        if known.within and not known.within[0] <= raw <= known.within[1]:
            self._fail_key(key, raw, f"between {known.within[0]:.10g} and {known.within[1]:.10g}", known)
        return raw

    def _fail_key(self, key: str, raw: Any, expected: str, known: About, hint: str = "") -> NoReturn:
        what = f"{self._name_key(key)} = {'[hidden]' if known.is_secret else repr(raw)[:80]}"
        raise ConfigError(f"{what}: must be {expected}", key=key, hint=hint)

    def _name_key(self, key: str) -> str:
        """The key, with the variable that it came from."""
        return f"{key} (from {variable})" if (variable := self.find_variable(key)) else key

    def find_variable(self, key: str) -> str:
        """The variable that a key came from, "" for none."""
        return next((v for k, v in self.origins.items() if key == k or key.startswith((f"{k}.", f"{k}["))), "")


def _nearest_key(name: str, cls: Any, key: str) -> str:
    """A hint with the key that a wrong one most likely means: a sibling, or the same name elsewhere; else where all are shown."""
    rest = rest_of(cls)
    siblings = [item.name for item in fields(cls) if item is not rest] + list(about(rest).choices if rest else ())
    if close := get_close_matches(name.lower(), siblings, 1):
        return f"did you mean {_join_key(key, close[0])}?"
    same = [path for path, table in _tables_in(Config(), "") for one in fields(table) if one.name == name and one is not rest]
    return f"did you mean {_join_key(same[0], name)}?" if same else "owlbox config list shows every key"


# -- checks across keys ---------------------------------------------------------------------------


def _check_config(config: Config) -> None:
    """Everything that one key alone cannot show."""
    for key, table in _tables_in(config, ""):
        _check_needed(key, table)
    _check_models(config)
    for key, pool in _pools_named(config):
        _require(not pool or pool in config.pools, key, pool, f"one of the pools {_list_of(config.pools)}")
    _check_tools(config)
    _check_mounts(config)
    name = config.audit.file
    _require(not name or name.endswith(".jsonl"), "audit.file", name, "a name that ends in .jsonl")
    for key in ("active_from", "active_until"):
        hour = getattr(config.heartbeat, key)
        _require(bool(HOUR.fullmatch(hour)), f"heartbeat.{key}", hour, "HH:MM between 00:00 and 24:00")
    told = config.notifications
    hours = [("quiet_from", told.quiet_from), ("quiet_until", told.quiet_until)]
    for key, hour in hours:
        _require(bool(HOUR.fullmatch(hour)), f"notifications.{key}", hour, "HH:MM between 00:00 and 24:00")
    dead, beat = config.workers.dead_after_s, config.workers.heartbeat_s
    _require(dead > beat, "workers.dead_after_s", dead, f"more than workers.heartbeat_s ({beat:g})")
    refuse, warn = config.orchestrator.disk_refuse, config.orchestrator.disk_warn
    _require(refuse >= warn, "orchestrator.disk_refuse", refuse, f"at least orchestrator.disk_warn ({warn:g})")
    _check_address("channels.matrix.homeserver", config.channels.matrix.homeserver)


def _check_needed(key: str, table: Any) -> None:
    """Mandatory keys of a table that is in use."""
    if not getattr(table, "enabled", True):
        return
    for item in type(table).own_fields:
        if about(item).is_needed and getattr(table, item.name) == "":
            _fail_missing(_join_key(key, item.name), f"{key} is enabled" if hasattr(table, "enabled") else "")


def _check_models(config: Config) -> None:
    for section in ("routes", "providers"):
        is_free = LOCAL not in getattr(config, section)
        _require(is_free, f"{section}.{LOCAL}", LOCAL, "another name: this one always means the local model")
    for name, provider in config.providers.items():
        _check_address(f"providers.{name}.base_url", provider.base_url)
        for i, other in enumerate(provider.fallback):
            _require(other in config.providers, f"providers.{name}.fallback[{i}]", other, f"one of {_list_of(config.providers)}")
    known = (LOCAL, *config.providers)
    for name, route in config.routes.items():
        _require(route.provider in known, f"routes.{name}.provider", route.provider, f"one of {_list_of(known)}")
        for i, other in enumerate(route.also):
            maker, _, model = other.partition("/")
            _require(bool(model) and maker in known, f"routes.{name}.also[{i}]", other, f"provider/model ({_list_of(known)})")
    for pool, names in config.pools.items():
        _require(bool(names), f"pools.{pool}", [], "a list of at least one route")
    missing: dict[str, str] = {}
    for key, name in _routes_named(config):
        table = config.routes.get(name)
        provider_name = table.provider if table else name.partition("/")[0]
        is_known = table is not None or name == LOCAL or ("/" in name and provider_name in known and not name.endswith("/"))
        _require(is_known, key, name, f"a route ({_list_of((LOCAL, *config.routes))}) or provider/model ({_list_of(known)})")
        used = config.providers.get(provider_name)
        if used and used.is_remote and not used.key:
            missing.setdefault(provider_name, f"providers.{provider_name}.key is missing: {key} names {name}")
    if missing:
        one = next(iter(missing))
        key = f"providers.{one}.key"
        hint = f'owlbox secret set llm/{one}, then in [providers.{one}]: key = "secret:llm/{one}"; or set {_variable_of(key)}'
        raise ConfigError("; ".join(missing.values()), key=key, hint=hint)


def _routes_named(config: Config) -> Iterator[tuple[str, str]]:
    """Every key that names a route, and the route."""
    for pool, names in config.pools.items():
        yield from ((f"pools.{pool}[{i}]", name) for i, name in enumerate(names))
    yield from ((f"agents.{role}.model", agent.model) for role, agent in config.agents.items() if agent.model)


def _pools_named(config: Config) -> Iterator[tuple[str, str]]:
    """Every key that names a pool, and the pool ("" for the usual one)."""
    yield "models.pool", config.models.pool
    yield "heartbeat.pool", config.heartbeat.pool
    yield from ((f"agents.{role}.pool", agent.pool) for role, agent in config.agents.items())


def _check_tools(config: Config) -> None:
    search = config.tools.web_search
    if search.enabled and search.provider == "brave" and not search.key:
        _fail_missing("tools.web_search.key", 'tools.web_search.provider is "brave"')
    if search.enabled and search.provider == "searxng" and not search.url:
        _fail_missing("tools.web_search.url", 'tools.web_search.provider is "searxng"')
    _check_address("tools.web_search.url", search.url)
    for i, network in enumerate(config.tools.web.private_networks):
        _require(_is_network(network), f"tools.web.private_networks[{i}]", network, "a network such as 192.168.1.0/24")
    for i, pattern in enumerate(config.tools.blocked_patterns):
        _require(bool(pattern.strip()), f"tools.blocked_patterns[{i}]", pattern, "a command or a part of one")
    for name, server in config.tools.mcp.items():
        transport = server.transport or ("http" if server.url and not server.command else "stdio")
        key = "command" if transport == "stdio" else "url"
        if not getattr(server, key):
            _fail_missing(f"tools.mcp.{name}.{key}", f'its transport is "{transport}"')
        _check_address(f"tools.mcp.{name}.url", server.url)
        _check_address(f"tools.mcp.{name}.issuer", server.issuer)
        for key in ("client_id", "client_secret"):
            if server.issuer and not getattr(server, key):
                _fail_missing(f"tools.mcp.{name}.{key}", f"tools.mcp.{name}.issuer is {server.issuer}")


def _check_mounts(config: Config) -> None:
    for i, mount in enumerate(config.sandbox.mounts):
        key = f"sandbox.mounts[{i}]"
        _require(mount.path.startswith("/"), f"{key}.path", mount.path, "an absolute path")
        _require(not (mount.user and mount.group), key, f"{mount.user} and {mount.group}", "for a user or for a group, not both")


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _check_address(key: str, value: str) -> None:
    is_fine = not value or value.startswith(("http://", "https://"))
    _require(is_fine, key, value, "an address that starts with https:// or http://")


def _require(is_fine: bool, key: str, value: Any, expected: str) -> None:
    if not is_fine:
        raise ConfigError(f"{key} = {value!r}: must be {expected}", key=key)


def _fail_missing(key: str, why: str) -> NoReturn:
    message = f"{key} is missing: {why}" if why else f"{key} is missing"
    raise ConfigError(message, key=key, hint=f"set it in owlbox.toml, or set {_variable_of(key)}")


# -- walking: by `vars`, so that looking a tree over does not count as using its keys ---------------


def _tables_in(table: Any, key: str) -> Iterator[tuple[str, Any]]:
    """This table and every table below it, with dotted keys."""
    yield key, table
    for item in type(table).own_fields:
        if type(value := vars(table)[item.name]) in SCALARS:
            continue  # most are, and a tree is walked several times at each start
        inner = _named_in(key, item)
        if isinstance(value, Keys):
            yield from _tables_in(value, inner)
        elif isinstance(value, Mapping):
            for name, entry in value.items():
                if isinstance(entry, Keys):
                    yield from _tables_in(entry, _join_key(inner, name))
        elif isinstance(value, tuple):
            for i, entry in enumerate(value):
                if isinstance(entry, Keys):
                    yield from _tables_in(entry, f"{inner}[{i}]")


def _walk_differences(old: Any, new: Any, key: str) -> Iterator[str]:
    """Dotted keys whose values differ."""
    for item in type(old).own_fields:
        before, after, inner = vars(old)[item.name], vars(new)[item.name], _named_in(key, item)
        if before == after:
            continue
        if isinstance(before, Keys):
            yield from _walk_differences(before, after, inner)
        elif isinstance(before, Mapping):
            yield from (f"{inner}.{name}" for name in sorted({*before, *after}) if before.get(name) != after.get(name))
        else:
            yield inner


def _takes_name(rest: Field[Any], name: str) -> bool:
    """Whether a table takes a name that is no key of it."""
    return not about(rest).folder or name in about(rest).choices


def _named_in(key: str, item: Field[Any]) -> str:
    """The dotted key of a field; of one for the rest of a table, the table's own."""
    return key if about(item).is_rest else _join_key(key, item.name)


def _list_of(names: Any) -> str:
    return ", ".join(names)


def _variable_of(key: str) -> str:
    return PREFIX + key.upper().replace(".", "__")


def _join_key(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
