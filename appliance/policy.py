"""The policy: may this tool be used at all? First form; mounts, quotas and networks come with the sandbox.

Owns the policy file and its verdicts. Knows nothing about roles, people or approval, and enforces
nothing: `toolbox` asks before it calls. Without a file the default policy holds, which allows every tool.
"""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

from appliance.errors import ConfigError

Mode = Literal["strict", "permissive", "disabled"]


@dataclass(frozen=True)
class Verdict:
    """Whether a tool may be used, and the rule that speaks against it ("" when none does)."""

    allowed: bool
    rule: str = ""


@dataclass(frozen=True)
class Policy:
    """Strict refuses what breaks a rule, permissive only names the rule, disabled looks at none.

    Names are globs. An empty `tools_allow` allows every tool; `tools_deny` always wins (E-303).
    """

    mode: Mode = "strict"
    tools_allow: tuple[str, ...] = ()
    tools_deny: tuple[str, ...] = ()

    def check(self, tool: str) -> Verdict:
        """The verdict on one tool, by its name."""
        if self.mode == "disabled":
            return Verdict(True)
        rule = self._broken_rule(tool)
        return Verdict(not rule or self.mode == "permissive", rule)

    def _broken_rule(self, tool: str) -> str:
        for pattern in self.tools_deny:
            if fnmatchcase(tool, pattern):
                return f"tools.deny: {pattern}"
        if self.tools_allow and not any(fnmatchcase(tool, pattern) for pattern in self.tools_allow):
            return "tools.allow: not listed"
        return ""


def load(path: Path | None, mode: Mode = "strict") -> Policy:
    """The policy of a file, or the default one without a path; `mode` holds where the file names none."""
    if path is None:
        return Policy(mode)
    raw = _read(path)
    _known(path, raw, ("mode", "tools"), "")
    chosen = raw.get("mode", mode)
    if chosen not in get_args(Mode):
        raise ConfigError(f"{path}: mode = {chosen!r}: must be one of {', '.join(get_args(Mode))}", key="mode")
    tools = raw.get("tools", {})
    if not isinstance(tools, dict):
        raise ConfigError(f"{path}: tools must be a table, not {tools!r}", key="tools")
    _known(path, tools, ("allow", "deny"), "tools.")
    return Policy(chosen, _globs(path, tools, "allow"), _globs(path, tools, "deny"))


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        raw = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"policy file {path}: {error.strerror}", key="policy.path", hint="empty policy.path to do without"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"policy file {path} is not TOML: {error}", key="policy.path") from None
    if not text.strip():
        raise ConfigError(f"policy file {path} is empty", key="policy.path", hint="empty policy.path for the default policy")
    return raw


def _known(path: Path, table: dict[str, Any], names: tuple[str, ...], prefix: str) -> None:
    for name in table:
        if name not in names:
            raise ConfigError(f"{path}: unknown key {prefix}{name}, expected {' or '.join(names)}", key=f"{prefix}{name}")


def _globs(path: Path, tools: dict[str, Any], name: str) -> tuple[str, ...]:
    value = tools.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ConfigError(f"{path}: tools.{name} = {value!r}: must be a list of tool names", key=f"tools.{name}")
    return tuple(value)
