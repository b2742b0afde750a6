"""The policy file: reading it, checking it, and writing the first one.

Owns the file's keys. A file starts from a preset and says what differs; a session's own policy is such a text too. Without
a path the default policy holds. What the rules mean is in `rules`, which of several policies holds is known to `policy.gate`.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import ConfigError
from appliance.policy import mounts
from appliance.policy.rules import (
    GB,
    KB,
    MB,
    PERMISSIVE,
    STRICT,
    BuiltinRules,
    Lists,
    Mode,
    Mounts,
    Networks,
    Quotas,
    Runtimes,
    Security,
    check_sane,
)
from appliance.policy.rules import Policy as Policy
from appliance.runtime import trusted_files
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config

PRESETS = {"default": STRICT, "permissive": PERMISSIVE}
SIZE = re.compile(r"(\d{1,15})([kmg]?)")
UNITS = {"": 1, "k": KB, "m": MB, "g": GB}
VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
TABLES = ("tools", "roles", "quotas", "mounts", "network", "ipc", "commands", "security", "runtime")
MAX_BYTES = 1_000_000
FIRST = """\
# The policy of this owlbox: what tools may do at all. docs/guides/policy.md explains every key.
# Change it, then: owlbox policy check FILE, owlbox policy reload

mode = "strict"          # or permissive: violations are only written down; or disabled

[quotas]                 # of one call; sizes as 512m or 8g
max_cpus = 4
max_memory = "8g"
max_swap = "8g"
max_pids = 1024
max_tmpfs = "256m"

[mounts]
# binds = false          # whether folders are shown to tools; without this line, when some are listed
volumes = true
tmpfs = true

# [[mounts.rules]]
# path = "/srv/library"
# mode = "readonly"      # readwrite, denied
# kind = "reference"     # project: for the coder, and may be readwrite
# user = ""              # only for this person; or group = ""

[network]
proxy = true             # pages through the core
host = false

[commands]
blocked = []             # beside those that are built in

[security]
root = false
privileged = false

[runtime]
pinned = true
latest = false
"""


class _Table(Struct, frozen=True):
    """A table of the file: where it is, for messages, and what it says."""

    path: str
    name: str
    raw: Mapping[str, Any]

    def fail(self, key: str, value: Any, expected: str) -> ConfigError:
        full = f"{self.name}.{key}" if self.name else key
        return ConfigError(f"{self.path}: {full} = {value!r}: must be {expected}", key=full)

    def only(self, *names: str) -> None:
        """ConfigError for a key that is none of these."""
        for name in self.raw:
            if name not in names:
                full = f"{self.name}.{name}" if self.name else name
                raise ConfigError(f"{self.path}: unknown key {full}, expected {' or '.join(names)}", key=full)

    def table(self, name: str) -> "_Table":
        found = self.raw.get(name, {})
        full = f"{self.name}.{name}" if self.name else name
        if not isinstance(found, dict):
            raise ConfigError(f"{self.path}: {full} must be a table, not {found!r}", key=full)
        return _Table(self.path, full, found)

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        found = self.raw.get(name)
        if found is None:
            return default
        if not isinstance(found, list) or not all(isinstance(item, str) and item for item in found):
            raise self.fail(name, found, "a list of texts")
        return tuple(found)

    def word(self, name: str, default: str, among: tuple[str, ...]) -> str:
        found = self.raw.get(name, default)
        if found not in among:
            raise self.fail(name, found, f"one of {', '.join(among)}")
        return str(found)

    def text(self, name: str) -> str:
        found = self.raw.get(name, "")
        if not isinstance(found, str):
            raise self.fail(name, found, "a text")
        return found

    def switch(self, name: str, default: bool) -> bool:
        found = self.raw.get(name, default)
        if not isinstance(found, bool):
            raise self.fail(name, found, "true or false")
        return found

    def number(self, name: str, default: float) -> float:
        found = self.raw.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e12:
            raise self.fail(name, found, "a number")
        return found

    def size(self, name: str, default: int | None) -> int | None:
        found = self.raw.get(name)
        if found is None:
            return default
        try:
            return size_bytes(found)
        except ConfigError as error:
            raise self.fail(name, found, error.message) from None


def size_bytes(value: Any) -> int | None:
    """Bytes of `100`, `1k`, `512m` or `1g`; None for `unlimited`; ConfigError says what it must be."""
    if value == "unlimited":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = SIZE.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise ConfigError("a size such as 512m, or unlimited")
    return int(found[1]) * UNITS[found[2]]


def load(
    path: Path | None, mode: Mode = "strict", ground: BuiltinRules | None = None, environ: Mapping[str, str] | None = None
) -> Policy:
    """The policy of a file, which is made when it is missing, or the default one without a path.

    `mode` holds where the file names none, `ground` whatever it says.
    """
    if path is None:
        return check_sane(Policy(mode, ground=ground or BuiltinRules()))
    if path.suffix != ".toml":
        raise ConfigError(f"policy file {path}: its name must end in .toml", key="policy.path")
    text = _read_text(path)
    return parse(text, str(path), mode, ground, environ)


def of(home: Home, config: Config, environ: Mapping[str, str], closed: Iterable[Path] = ()) -> Policy:
    """The policy that a configuration asks for. The home and the folders in `closed` are never shown to a tool."""
    path = home.root / config.policy.path if config.policy.path else None
    if path is not None and (why := trusted_files.problem(path, home=home.root)):
        raise ConfigError(f"policy file is not used: {why}", key="policy.path")
    rules = [mounts.MountRule(one.path, one.mode, one.kind, one.user, one.group) for one in config.sandbox.mounts]
    is_open = not config.sandbox.restrict_to_workspace
    allowed = mounts.Allowlist.of(rules, closed=(home.root, *closed), is_open=is_open)
    ground = BuiltinRules(allowed.rules, config.tools.blocked_patterns, allowed.closed, is_open)
    return load(path, config.policy.mode, ground, environ)


def parse(
    text: str, name: str, mode: Mode = "strict", ground: BuiltinRules | None = None, environ: Mapping[str, str] | None = None
) -> Policy:
    """The policy that a text says; ConfigError names the text and the key."""
    if not text:
        raise ConfigError(f"{name} is empty", key="policy.path", hint="write at least a mode")
    if not text.strip():
        raise ConfigError(f"{name} holds only white space", key="policy.path", hint="write at least a mode")
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{name} is not TOML: {error}", key="policy.path") from None
    top = _Table(name, "", _expand_variables(raw, os.environ if environ is None else environ))
    top.only("mode", "preset", *TABLES)
    base = PRESETS[top.word("preset", "default", tuple(PRESETS))]
    usual = base.mode if "preset" in raw else mode
    found = replace(
        base,
        mode=cast(Mode, top.word("mode", usual, get_args(Mode))),
        tools_allow=_parse_lists(top.table("tools")).allow,
        tools_deny=_parse_lists(top.table("tools")).deny,
        roles={role: _parse_lists(top.table("roles").table(role)) for role in top.table("roles").raw},
        quotas=_parse_quotas(top.table("quotas"), base.quotas),
        mounts=_parse_mounts(top.table("mounts"), base.mounts),
        network=_parse_network(top.table("network"), base.network),
        ipc=_parse_lists(top.table("ipc")),
        commands=_parse_commands(top.table("commands")),
        security=_parse_security(top.table("security"), base.security),
        runtime=_parse_runtime(top.table("runtime"), base.runtime),
        ground=ground or BuiltinRules(),
    )
    try:
        return check_sane(found)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}", key=error.key) from None


def _read_text(path: Path) -> str:
    """The text of the file, which is made from the default policy when there is none."""
    try:
        if not path.exists():
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(FIRST)
        if not path.is_file() and not path.is_dir():  # a pipe would be waited for without end
            raise ConfigError(f"policy file {path} is not a file", key="policy.path", hint="empty policy.path to do without")
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"policy file {path} has more than {MAX_BYTES} bytes", key="policy.path")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"policy file {path}: {error.strerror}", key="policy.path", hint="empty policy.path to do without"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"policy file {path} is not TOML: it is not UTF-8 text", key="policy.path") from None


def _expand_variables(node: Any, environ: Mapping[str, str]) -> Any:
    """The tree with `${NAME}` and `${NAME:-default}` replaced in every text; nothing where a name is not set."""
    if isinstance(node, dict):
        return {name: _expand_variables(item, environ) for name, item in node.items()}
    if isinstance(node, list):
        return [_expand_variables(item, environ) for item in node]
    if isinstance(node, str):
        return VARIABLE.sub(lambda m: m[0][1:] if m[1] else environ.get(m[2], "") or m[3] or "", node)
    return node


def _parse_lists(table: _Table) -> Lists:
    table.only("allow", "deny")
    return Lists(table.texts("allow"), table.texts("deny"))


def _parse_quotas(table: _Table, base: Quotas) -> Quotas:
    table.only("min_cpus", "max_cpus", "min_memory", "max_memory", "max_swap", "max_pids", "max_tmpfs", "max_disk")
    pids = table.number("max_pids", base.max_pids)
    if pids != int(pids):
        raise table.fail("max_pids", pids, "a whole number")

    def sized(name: str, default: int) -> int:
        found = table.size(name, default)
        if found is None:
            raise table.fail(name, "unlimited", "a size such as 512m")
        return found

    return Quotas(
        min_cpus=table.number("min_cpus", base.min_cpus),
        max_cpus=table.number("max_cpus", base.max_cpus),
        min_memory=sized("min_memory", base.min_memory),
        max_memory=sized("max_memory", base.max_memory),
        max_swap=table.size("max_swap", base.max_swap),
        max_pids=int(pids),
        max_tmpfs=sized("max_tmpfs", base.max_tmpfs),
        max_disk=table.size("max_disk", base.max_disk),
    )


def _parse_mounts(table: _Table, base: Mounts) -> Mounts:
    table.only("binds", "volumes", "tmpfs", "allow", "deny", "rules")
    rules = table.raw.get("rules", [])
    if not isinstance(rules, list):
        raise table.fail("rules", rules, "tables, [[mounts.rules]]")
    for name in ("allow", "deny"):
        for pattern in table.texts(name):
            if not pattern.startswith(("/", "*")):
                raise table.fail(name, pattern, "absolute paths")
    return Mounts(
        binds=table.switch("binds", bool(base.binds)) if "binds" in table.raw else base.binds,
        volumes=table.switch("volumes", base.volumes),
        tmpfs=table.switch("tmpfs", base.tmpfs),
        allow=table.texts("allow"),
        deny=table.texts("deny"),
        rules=_parse_rules(table, rules),
    )


def _parse_rules(table: _Table, raw: list[Any]) -> tuple[mounts.MountRule, ...]:
    """The entries, cleaned; ConfigError names a wrong one by its number."""
    given = [_parse_rule(table, i, item) for i, item in enumerate(raw)]
    try:
        return mounts.Allowlist.of(given).rules
    except ConfigError as error:
        raise ConfigError(
            f"{table.path}: mounts.rules{error.message.removeprefix('mounts')}", key=f"mounts.rules{error.key[6:]}"
        ) from None


def _parse_rule(table: _Table, index: int, raw: Any) -> mounts.MountRule:
    entry = _Table(table.path, f"mounts.rules[{index}]", raw if isinstance(raw, dict) else {})
    if not isinstance(raw, dict):
        raise table.fail(f"rules[{index}]", raw, "a table")
    entry.only("path", "mode", "kind", "user", "group")
    mode = cast(mounts.Mode, entry.word("mode", "readonly", get_args(mounts.Mode)))
    kind = cast(mounts.Kind, entry.word("kind", "reference", get_args(mounts.Kind)))
    return mounts.MountRule(entry.text("path"), mode, kind, entry.text("user"), entry.text("group"))


def _parse_network(table: _Table, base: Networks) -> Networks:
    table.only("proxy", "host")
    return Networks(table.switch("proxy", base.proxy), table.switch("host", base.host))


def _parse_commands(table: _Table) -> tuple[str, ...]:
    table.only("blocked")
    return table.texts("blocked")


def _parse_security(table: _Table, base: Security) -> Security:
    table.only("root", "privileged")
    return Security(table.switch("root", base.root), table.switch("privileged", base.privileged))


def _parse_runtime(table: _Table, base: Runtimes) -> Runtimes:
    table.only("pinned", "latest", "pins")
    pins = table.table("pins")
    for name, value in pins.raw.items():
        if not isinstance(value, str) or not re.fullmatch(r"(sha256:)?[0-9a-fA-F]{64}", value):
            raise pins.fail(name, value, "a SHA-256")
    return Runtimes(table.switch("pinned", base.pinned), table.switch("latest", base.latest), dict(pins.raw))
