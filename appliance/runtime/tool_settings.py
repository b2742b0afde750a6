"""The configuration keys of containment: what tools there are, what holds them, and what is written down about them.

Part of the tree in `runtime.settings`. Knows nothing about policies, sandboxes or the web: `mounts`,
`policy.policy_file`, `sandbox` and `web.fetch` take plain values, which the core makes out of these.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Literal

from appliance.runtime.config_keys import DAY_S, Keys, setting

Modes = Literal["strict", "permissive", "disabled"]


class Mount(Keys):
    """A folder that tools may see, or may not. `path` may hold `*`, which stands for any characters, also `/`."""

    path: str = setting("", "Absolute path.", seed="A mount allowlist path", mark="needed")
    mode: Literal["readonly", "readwrite", "denied"] = setting("readonly", "What is allowed there.", seed="A mount allowlist mode")
    kind: Literal["project", "reference"] = setting(
        "reference", "Projects are for the coder; references stay read-only.", seed="A entry type"
    )
    user: str = setting("", "Only for this person.", seed="A mount allowlist user")
    group: str = setting("", "Only for this group.", seed="A mount allowlist group")


class Bounds(Keys):
    """What a call may use instead of what `sandbox` says; an unset key leaves it to that."""

    cpus: float | None = setting(None, "CPUs.", seed="A resource_limits.cpu", within=(0.01, 256))
    memory_mb: int | None = setting(None, "Memory.", seed="A resource_limits.memory", within=(16, 1_048_576))
    disk_mb: int | None = setting(None, "Disk.", seed="A resource_limits.disk", within=(1, 1_048_576))
    pids: int | None = setting(None, "Processes and threads.", seed="A resource_limits.pids", within=(1, 4_194_304))


class SandboxSettings(Keys):
    """What a call of a tool may use."""

    cpus: float = setting(1.0, "CPUs.", seed="A container.resource_limits.cpu", within=(0.01, 256))
    memory_mb: int = setting(512, "Memory; more ends the call.", seed="A container.resource_limits.memory", within=(16, 1_048_576))
    disk_mb: int = setting(
        1024, "Disk that the writable folder may take.", seed="A container.resource_limits.disk", within=(1, 1_048_576)
    )
    pids: int = setting(64, "Processes and threads.", seed="A container.resource_limits.pids", within=(1, 4_194_304))
    max_concurrent: int = setting(
        10, "Sandboxes at a time; more wait.", seed="A container.max_concurrent", within=(1, 1000), mark="restart"
    )
    workspace: str = setting(
        "", "Working folder of the file tools; empty means the session's data folder.", seed="S workspace", mark="restart"
    )
    restrict_to_workspace: bool = setting(
        True,
        "Only the working folder and `mounts` are seen; false adds every other path, read-only.",
        seed="S restrict_to_workspace",
    )
    mounts: tuple[Mount, ...] = setting((), "Folders that may be seen; with none, none.", seed="A mount allowlist")
    groups: Mapping[str, tuple[str, ...]] = setting(
        {}, "Who is in a group, for folders that are listed for one: names of people.", seed="A group membership"
    )
    roles: Mapping[str, Bounds] = setting({}, "What a role's calls may use.", seed="A container.resource_limits by role")


class PolicyKeys(Keys):
    """What roles may do at all."""

    path: str = setting(
        "", "Policy file, `.toml`, relative to the home, made when missing; empty means the default policy.", seed="A policy path"
    )
    mode: Modes = setting("strict", "What a violation does, where the file does not say.", seed="A enforcement mode")


class Audit(Keys):
    """What is written down about verdicts, mounts, commands and fetches."""

    file: str = setting(
        "", "File, relative to the home, that gets each row as a line of JSON, too; empty for none.", seed="A audit log file"
    )
    sync: bool = setting(True, "Each line of that file is on disk before the next step.", seed="A fsync per event")


class WebToolSettings(Keys):
    """Fetching pages."""

    timeout_s: float = setting(
        20, "Longest time of one fetch.", seed="S fetch_url.timeout_seconds", within=(1, 300), mark="restart"
    )
    requests_per_minute: int = setting(
        60, "Fetches of one session in a minute.", seed="A 60 per minute", within=(1, 100_000), mark="restart"
    )
    allow_hosts: tuple[str, ...] = setting((), "Only these hosts and those below them; none means all.", seed="A URL allow list")
    block_hosts: tuple[str, ...] = setting((), "Never these hosts and those below them.", seed="A URL block list")
    private_networks: tuple[str, ...] = setting(
        (), "Networks such as `192.168.1.0/24` that may be reached although they are private."
    )


class WebSearch(Keys):
    """Searching the web."""

    enabled: bool = setting(False, "Offer a search of the web.", seed="S tools.web_search.enabled", mark="shown")
    provider: Literal["searxng", "duckduckgo", "brave"] = setting(
        "searxng", "Who searches.", seed="S tools.web_search.provider", mark="shown"
    )
    url: str = setting("", "Address of your searxng.", seed="S tools.web_search.url", mark="shown")
    key: str = setting("", "API key, needed for brave; better `secret:NAME`.", seed="S tools.web_search.api_key", mark="secret")


class McpServer(Keys):
    """A server of tools that speaks MCP; `owlbox mcp add` writes the same into `servers.json`."""

    transport: Literal["", "stdio", "http"] = setting("", "How it is reached; empty goes by what is given.", seed="S mcp transport")
    command: str = setting("", "Program to start, for stdio.", seed="S mcp command")
    args: tuple[str, ...] = setting((), "Its arguments.", seed="S mcp args")
    env: Mapping[str, str] = setting({}, "Its environment; `secret:mcp/NAME` stands for a secret.", seed="S mcp env", mark="secret")
    cwd: str = setting("", "Folder of this machine that it works in, instead of one of its own.", seed="S mcp cwd")
    url: str = setting("", "Its address, for http.", seed="S mcp url")
    headers: Mapping[str, str] = setting({}, "Sent with each request, for http.", seed="B mcp headers", mark="secret")
    client_id: str = setting("", "Our name at its login, where it gave us one; empty registers by itself.")
    client_secret: str = setting("", "What goes with that name.", mark="secret")
    issuer: str = setting("", "Address of who gave us both: we log in with them alone there, without a person.")
    network: bool = setting(False, "Whether a program that is started has this machine's network.", seed="A mcp network policy")
    mounts: tuple[str, ...] = setting((), "Folders it may read: `/path`, or `/path:/inside`.", seed="A mcp mount policy")
    writable: tuple[str, ...] = setting((), "Folders it may write to.", seed="A mcp mount policy")
    memory_mb: int = setting(512, "Memory of each of its processes.", within=(16, 1_048_576))
    timeout_s: float = setting(60, "Longest time of one call.", within=(0.1, 3600))
    expose: Literal["auto", "direct", "meta"] = setting(
        "auto", "Its tools by their names, or only through `mcp_exec`; `auto` goes by `tools.mcp_direct`."
    )
    enabled: bool = setting(True, "Offer it.")


# What calls of a tool, or of a group of tools, may use at most: as the design measured them.
LIMITS = {
    "files": Bounds(cpus=0.1, memory_mb=64, pids=10),
    "grep": Bounds(cpus=0.2, memory_mb=128, pids=20),
    "find": Bounds(cpus=0.2, memory_mb=128, pids=20),
    "web": Bounds(cpus=0.2, memory_mb=128, pids=10),
}


class ToolSettings(Keys):
    """Which tools exist, and their limits."""

    deadline_s: float = setting(60, "Longest time of one call.", seed="A tools.default_timeout", within=(0.1, 3600))
    deadlines_s: Mapping[str, float] = setting(
        {"exec": 60.0, "web_search": 30.0, "fetch_url": 30.0, "files": 30.0, "grep": 60.0, "find": 60.0},
        "The same for single tools or groups of tools.",
        seed="A tools.timeouts",
        within=(0.1, 3600),
    )
    blocked_patterns: tuple[str, ...] = setting((), "Commands refused beside the built-in ones.", seed="A tools.blocked_patterns")
    disabled: tuple[str, ...] = setting((), "Tools or groups of tools that are not offered.", seed="A tool enabled flag")
    shell: bool = setting(True, "Offer the shell.", seed="S tools.shell.enabled")
    files: bool = setting(True, "Offer files.", seed="S tools.files.enabled")
    fetch_url: bool = setting(True, "Offer web pages.", seed="S tools.fetch_url.enabled")
    search_history: bool = setting(True, "Offer a search of earlier messages.", seed="S tools.search_history.enabled")
    web: WebToolSettings = WebToolSettings()
    web_search: WebSearch = setting(WebSearch(), "", mark="restart")
    mcp: Mapping[str, McpServer] = setting({}, "Servers whose tools are offered.", seed="S tools.mcp_servers")
    mcp_direct: int = setting(
        20, "So many tools of servers are offered by their names; when there are more, through `mcp_exec`.", within=(0, 1000)
    )
    mcp_idle_s: float = setting(300, "A server that nobody asked for so long is ended.", within=(1, 86_400))

    def switched_off(self) -> frozenset[str]:
        """Tools and groups of tools that this configuration takes away."""
        switches = {
            "shell": ("shell", "exec", "sh", "env"),
            "files": ("files",),
            "fetch_url": ("fetch_url",),
            "search_history": ("search_history",),
        }
        names = {name for switch, named in switches.items() if not getattr(self, switch) for name in named}
        return frozenset({*names, *self.disabled, *(() if self.web_search.enabled else ("web_search",))})

    def deadline_of(self, tool: str, group: str, own_s: float = 0) -> float:
        """The longest time of a call: what is set for the tool, what it says of itself, its group's, then anybody's."""
        return self.deadlines_s.get(tool) or own_s or self.deadlines_s.get(group) or self.deadline_s


def bounds_of(sandbox: SandboxSettings, tool: str, group: str, role: str = "") -> SandboxSettings:
    """What one call may use: what is set for the tool, else for its group, else for the role, else for all."""
    chain = (sandbox.roles.get(role), LIMITS.get(group), LIMITS.get(tool))
    found = sandbox
    for bounds in filter(None, chain):
        given = {item.name: getattr(bounds, item.name) for item in fields(bounds)}
        found = replace(found, **{name: value for name, value in given.items() if value is not None})
    return found


class SkillSettings(Keys):
    """Skills beside those in box/skills."""

    enabled: bool = setting(True, "Offer skills.", seed="A skills.enabled", mark="restart")
    folders: tuple[str, ...] = setting((), "More folders of skills, searched first.", seed="S skills.extra_dirs", mark="restart")
    trusted: tuple[str, ...] = setting(
        (), "Your own skills by name: prompts hold their descriptions, reading one marks no thread.", mark="restart"
    )
    rescan_s: float = setting(
        300,
        "Pause between looks at `skills.folders`, which nobody watches; box/skills is watched.",
        seed="A re-scan interval",
        within=(1, DAY_S),
    )
