"""The rules of a policy, and what they say to a request: five categories, stable rule ids, warnings that never block.

Owns the judgement: mounts, quotas, network mode, who may send what to whom, and commands; beside these tools by name,
root, and runtimes. A judgement is made before anything is started and starts nothing. What is granted may be less than was
asked for. Knows nothing about files, sessions or how a policy is changed: `policy` reads one, `policy.gate` keeps it.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from appliance.errors import BadInput, ConfigError, Refused
from appliance.policy.blocked_commands import Forbidden
from appliance.policy.mounts import Allowlist, MountRule, Who, listed

Mode = Literal["strict", "permissive", "disabled"]
Network = Literal["none", "proxy", "host"]
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
MAX_SHOWN = 3  # violations in the text of a refusal
NO_PROXY = "network.proxy.disabled"
CORE = "core"  # as a target: whoever talks in the conversation
SAME_ROLE = {"assistant": "chat", "chat": "assistant"}  # whom people talk with; a policy may call it either


# -- what is allowed ------------------------------------------------------------------------------


class Quotas(Struct, frozen=True):
    """What one call may ask for at most, and at least; None is without limit. Sizes are in bytes."""

    min_cpus: float = 0
    max_cpus: float = 4
    min_memory: int = 0
    max_memory: int = 8 * GB
    max_swap: int | None = 8 * GB
    max_pids: int = 1024
    max_tmpfs: int = 256 * MB
    max_disk: int | None = None


class Mounts(Struct, frozen=True):
    """Which folders may be shown. `binds` None: on when folders are listed at all.

    `allow` and `deny` are lists of paths beside the allowlist's `rules`.
    """

    binds: bool | None = None
    volumes: bool = True
    tmpfs: bool = True
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    rules: tuple[MountRule, ...] = ()


class Networks(Struct, frozen=True):
    """Which ways to the network a tool may have: none of its own, through the core, or the machine's."""

    proxy: bool = True
    host: bool = False


class Lists(Struct, frozen=True):
    """Globs: an empty `allow` allows everything, and `deny` always wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def verdict(self, *names: str) -> str:
        """The rule that refuses what has these names: "deny: GLOB" or "allow: not listed"; "" when none does."""
        for pattern in self.deny:
            if any(fnmatchcase(name, pattern) for name in names):
                return f"deny: {pattern}"
        is_listed = not self.allow or any(fnmatchcase(name, pattern) for name in names for pattern in self.allow)
        return "" if is_listed else "allow: not listed"


class Security(Struct, frozen=True):
    """Settings of a call that cancel the protection of the sandbox."""

    root: bool = False
    privileged: bool = False


class Runtimes(Struct, frozen=True):
    """Programs that run tools. `pins` name the SHA-256 that one has to have."""

    pinned: bool = True
    latest: bool = False
    pins: Mapping[str, str] = {}


class BuiltinRules(Struct, frozen=True):
    """What holds whatever the policy says: the product's own folders, and what the configuration lists."""

    rules: tuple[MountRule, ...] = ()
    blocked: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    is_open: bool = False


# -- what is asked --------------------------------------------------------------------------------


class WantedFolder(Struct, frozen=True):
    """A folder for a tool: a `bind` of one on the disk, a `volume` the core keeps for it, or a `tmpfs` in memory."""

    source: str
    inside: str = ""
    is_writable: bool = False
    kind: Literal["bind", "volume", "tmpfs"] = "bind"


class Usage(Struct, frozen=True):
    """The resources that a call requests; 0 requests none in particular."""

    cpus: float = 0
    memory_bytes: int = 0
    swap_bytes: int = 0
    pids: int = 0
    tmp_bytes: int = 0
    disk_bytes: int = 0


class Runtime(Struct, frozen=True):
    """The program that would run a tool, as it is on the disk now."""

    name: str
    version: str = ""
    sha256: str = ""


class PolicyRequest(Struct, frozen=True):
    """What a tool, the `component`, is about to do. `target` is whom it would send something, such as `person:ada`."""

    component: str
    who: Who = Who()
    session: str = ""
    run: str = ""
    mounts: tuple[WantedFolder, ...] = ()
    usage: Usage = Usage()
    network: Network = "none"
    target: str = ""
    command: str = ""
    runtime: Runtime | None = None
    is_root: bool = False
    is_privileged: bool = False


# -- what is said to it ---------------------------------------------------------------------------


class PolicyVerdict(Struct, frozen=True):
    """Whether a tool may be used, and the rule that speaks against it ("" when none does)."""

    allowed: bool
    rule: str = ""


class RuleFinding(Struct, frozen=True):
    """A rule that speaks against something, or a remark."""

    rule: str
    component: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} ({self.component}): {self.message}"


class Mounted(Struct, frozen=True):
    """A folder that is granted: as it is to be mounted, links followed, and what stands in the way of more."""

    source: str
    inside: str
    is_writable: bool
    kind: Literal["bind", "volume", "tmpfs"] = "bind"
    note: str = ""


class Judgement(Struct, frozen=True):
    """The answer to a request. Warnings never block; `mounts` is what is granted, in the order in which it was asked for."""

    mode: Mode
    violations: tuple[RuleFinding, ...] = ()
    warnings: tuple[RuleFinding, ...] = ()
    mounts: tuple[Mounted, ...] = ()
    network: Network = "none"

    @property
    def is_allowed(self) -> bool:
        """Whether the request may be carried out."""
        return not self.violations or self.mode != "strict"

    @property
    def text(self) -> str:
        """At most three violations, and how many more there are; "" when there are none."""
        shown = "; ".join(str(one) for one in self.violations[:MAX_SHOWN])
        more = len(self.violations) - MAX_SHOWN
        return f"{shown} (and {more} more violation(s))" if more > 0 else shown

    def require(self) -> "Judgement":
        """This judgement; Refused with its text when it does not allow the request."""
        if not self.is_allowed:
            raise Refused(self.text, hint="do without it, or tell the person; owlbox policy show")
        return self


# -- the policy -----------------------------------------------------------------------------------


class Policy(Struct, frozen=True, dict=True):
    """Strict refuses what breaks a rule, permissive only names the rule, disabled looks at none.

    Names are globs. An empty `tools_allow` allows every tool; `tools_deny` always wins (E-303).
    """

    mode: Mode = "strict"
    tools_allow: tuple[str, ...] = ()
    tools_deny: tuple[str, ...] = ()
    roles: Mapping[str, Lists] = {}
    quotas: Quotas = Quotas()
    mounts: Mounts = Mounts()
    network: Networks = Networks()
    ipc: Lists = Lists()
    commands: tuple[str, ...] = ()
    security: Security = Security()
    runtime: Runtimes = struct_field(default_factory=Runtimes)
    ground: BuiltinRules = BuiltinRules()

    @cached_property
    def allowlist(self) -> Allowlist:
        """The folders that may be seen: those of the policy, then those of the configuration."""
        return Allowlist((*self.mounts.rules, *self.ground.rules), self.ground.closed, self.ground.is_open)

    @cached_property
    def forbidden(self) -> Forbidden:
        """Commands that are refused: the built-in ones, those of the configuration and those of the policy."""
        return Forbidden((*self.ground.blocked, *self.commands))

    @property
    def has_binds(self) -> bool:
        """Whether folders of the disk may be shown at all."""
        is_listed = bool(self.mounts.rules or self.ground.rules or self.ground.is_open)
        return is_listed if self.mounts.binds is None else self.mounts.binds

    def check(self, tool: str, role: str = "", network: str = "none", also: Sequence[str] = ()) -> PolicyVerdict:
        """The verdict on one tool, by its name and what it is called also, in a role, and by how it reaches the web."""
        if self.mode == "disabled":
            return PolicyVerdict(True)
        rule = Lists(self.tools_allow, self.tools_deny).verdict(tool, *also)
        rule = f"tools.{rule}" if rule else ""
        for name in (role, SAME_ROLE.get(role, "")) if not rule else ():
            if (lists := self.roles.get(name)) is not None and (found := lists.verdict(tool, *also)):
                rule = f"roles.{name}.{found}"
                break
        if not rule and network == "proxy" and not self.network.proxy:
            rule = NO_PROXY
        return PolicyVerdict(not rule or self.mode == "permissive", rule)

    def judge(self, request: PolicyRequest) -> Judgement:
        """The decision of the rules for a request; starts nothing."""
        mounts, notes = self._judge_mounts(request)
        if self.mode == "disabled":
            kept = tuple(one for one, found in mounts if found is None or found.rule != "mount.bind.blocked")
            blocked = tuple(found for _, found in mounts if found is not None and found.rule == "mount.bind.blocked")
            return Judgement(self.mode, (), blocked, kept, request.network)
        against = [found for _, found in mounts if found is not None]
        against += [RuleFinding(rule, request.component, message) for rule, message in self._judge_rest(request)]
        if against and self.mode == "strict":
            return Judgement(self.mode, tuple(against), tuple(notes))
        kept = tuple(mounted for mounted, found in mounts if found is None or found.rule != "mount.bind.blocked")
        return Judgement(self.mode, tuple(against), tuple(notes), kept, request.network)

    def _judge_mounts(self, request: PolicyRequest) -> tuple[list[tuple[Mounted, RuleFinding | None]], list[RuleFinding]]:
        """Each wanted folder as it would be granted, with what speaks against it; remarks about what is narrowed."""
        found: list[tuple[Mounted, RuleFinding | None]] = []
        notes: list[RuleFinding] = []
        for wanted in request.mounts:
            mounted, rule, why = self._judge_mount(wanted, request.who)
            if rule:
                found.append((mounted, RuleFinding(rule, request.component, why)))
                continue
            found.append((mounted, None))
            if wanted.is_writable and not mounted.is_writable:
                notes.append(RuleFinding("mount.bind.downgraded", request.component, f"{wanted.source} is shown read-only: {why}"))
        return found, notes

    def _judge_mount(self, wanted: WantedFolder, who: Who) -> tuple[Mounted, str, str]:
        """How a folder would be mounted, the rule against it or "", and why it is less than was asked for."""
        asked = Mounted(wanted.source, wanted.inside or wanted.source, wanted.is_writable, wanted.kind)
        if wanted.kind != "bind":
            is_on = self.mounts.volumes if wanted.kind == "volume" else self.mounts.tmpfs
            return asked, "" if is_on else f"mount.{wanted.kind}.disabled", f"{wanted.kind} mounts are switched off"
        plain = replace(asked, is_writable=wanted.is_writable and self.mode == "disabled")
        try:
            resolved = self.allowlist.resolve(wanted.source, who, is_writable=wanted.is_writable)
            is_listed = listed(wanted.source, self.mounts.allow, self.mounts.deny)
        except BadInput as error:
            return plain, "mount.bind.blocked", error.message
        if resolved.rule == "mount.bind.blocked":
            return plain, resolved.rule, resolved.why
        if not self.has_binds:
            return plain, "mount.bind.disabled", f"folders of the disk are not shown, not even {wanted.source}"
        if resolved.mode == "denied":
            return plain, resolved.rule, resolved.why
        if not is_listed:
            return plain, "mount.path.denied", f"{wanted.source} is kept out by mounts.allow or mounts.deny"
        granted = replace(asked, source=resolved.path, is_writable=resolved.mode == "readwrite", note=resolved.why)
        return (asked if self.mode == "disabled" else granted), "", resolved.why

    def _judge_rest(self, request: PolicyRequest) -> Iterator[tuple[str, str]]:
        """Rule and message of everything but mounts."""
        yield from self._judge_quota(request.usage)
        if request.network == "host" and not self.network.host:
            yield "network.host.disabled", "the network of this machine is not for tools"
        if request.network == "proxy" and not self.network.proxy:
            yield NO_PROXY, "fetching through the core is switched off"
        if request.target and (rule := self._judge_ipc(request)):
            yield f"ipc.{rule.partition(':')[0]}", f"{request.who.role or 'it'} may not send to {request.target} ({rule})"
        if request.command and (pattern := self.forbidden.match(request.command)):
            yield "command.blocked", f"the command matches {pattern!r}, which is blocked"
        if request.is_root and not self.security.root:
            yield "security.root.disabled", "it would run as root"
        if request.is_privileged and not self.security.privileged:
            yield "security.privileged.disabled", "it would run with privileges"
        if request.runtime is not None:
            yield from self._judge_runtime(request.runtime)

    def _judge_quota(self, usage: Usage) -> Iterator[tuple[str, str]]:
        quotas = self.quotas
        most = (
            ("cpu", usage.cpus, quotas.max_cpus, "CPUs"),
            ("memory", usage.memory_bytes, quotas.max_memory, "bytes of memory"),
            ("swap", usage.swap_bytes, quotas.max_swap, "bytes of swap"),
            ("pids", usage.pids, quotas.max_pids, "processes"),
            ("tmpfs", usage.tmp_bytes, quotas.max_tmpfs, "bytes of tmpfs"),
            ("disk", usage.disk_bytes, quotas.max_disk, "bytes of disk"),
        )
        for name, asked, limit, unit in most:
            if limit is not None and not asked <= limit:  # what is no number is refused too
                yield f"quota.{name}.max", f"{asked:.15g} {unit} are more than {limit:.15g}"
        if 0 < usage.cpus < quotas.min_cpus:
            yield "quota.cpu.min", f"{usage.cpus:g} CPUs are less than {quotas.min_cpus:g}"
        if 0 < usage.memory_bytes < quotas.min_memory:
            yield "quota.memory.min", f"{usage.memory_bytes} bytes of memory are less than {quotas.min_memory}"

    def _judge_ipc(self, request: PolicyRequest) -> str:
        """What speaks against a target. A pattern is a target's, or `ROLE -> TARGET`.

        The person of the conversation may be written to unless that is denied, everybody else only when listed.
        """

        def mine(patterns: tuple[str, ...]) -> tuple[str, ...]:
            halves = ((p, *(half.strip() for half in p.rpartition("->")[::2])) for p in patterns)
            return tuple(target for _, role, target in halves if not role or fnmatchcase(request.who.role, role))

        denied = Lists(deny=mine(self.ipc.deny)).verdict(request.target)
        if denied or request.target == CORE:
            return denied
        allowed = mine(self.ipc.allow)
        return Lists(allowed).verdict(request.target) if allowed else "allow: not listed"

    def _judge_runtime(self, runtime: Runtime) -> Iterator[tuple[str, str]]:
        if runtime.version == "latest" and not self.runtime.latest:
            yield "image.latest_tag", f"{runtime.name} of version latest may be anything"
        elif self.runtime.pinned and not runtime.sha256 and runtime.version in ("", "latest"):
            yield "runtime.unpinned", f"{runtime.name} has no version and no hash"
        pin = self.runtime.pins.get(runtime.name, "").removeprefix("sha256:").lower()
        if pin and pin != runtime.sha256.lower():
            yield "runtime.mismatch", f"{runtime.name} is not the one that is pinned ({pin[:12]}...)"


STRICT = Policy()
PERMISSIVE = Policy(
    "permissive",
    quotas=Quotas(max_cpus=16, max_memory=16 * GB, max_swap=None, max_pids=4096),
    mounts=Mounts(binds=True),
    security=Security(root=True),
)


def check_sane(policy: Policy) -> Policy:
    """The policy; ConfigError for limits that contradict themselves."""
    quotas = policy.quotas
    for name in ("cpus", "memory"):
        least, most = getattr(quotas, f"min_{name}"), getattr(quotas, f"max_{name}")
        if least < 0 or most < 0:
            raise ConfigError(f"quotas.max_{name} and min_{name} must be 0 or more", key=f"quotas.max_{name}")
        if least > most:
            raise ConfigError(f"quotas.min_{name} = {least:g}: must be at most max_{name} ({most:g})", key=f"quotas.min_{name}")
    if quotas.max_pids < 1:
        raise ConfigError(f"quotas.max_pids = {quotas.max_pids}: must be at least 1", key="quotas.max_pids")
    for name in ("max_tmpfs", "max_swap", "max_disk"):
        if (getattr(quotas, name) or 0) < 0:
            raise ConfigError(f"quotas.{name} = {getattr(quotas, name)}: must not be negative", key=f"quotas.{name}")
    return policy


def laid_over(base: Policy, own: Policy) -> Policy:
    """A session's own policy over the one for all: lists and tables that hold something replace, single values always do.

    What the configuration lists stays, but folders where the session lists its own.
    """
    found: Policy = _laid_over(base, own)
    ground = replace(base.ground, rules=()) if own.mounts.rules else base.ground
    return replace(found, ground=ground)


def _laid_over(base: Any, own: Any) -> Any:
    changed: dict[str, Any] = {}
    for name in own.__struct_fields__:
        before, after = getattr(base, name), getattr(own, name)
        if isinstance(after, Struct):
            changed[name] = _laid_over(before, after)
        elif isinstance(after, tuple | Mapping):
            changed[name] = after or before
        else:
            changed[name] = after
    return replace(base, **changed)
