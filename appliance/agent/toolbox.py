"""Tools: typed functions with a docstring, and the one way to call them.

`@tool` only marks. A `Toolbox` is built from marked functions and from the services they may ask for by
name (keyword-only parameters): a tool has no other reach (B-067). `dispatch` checks policy and input,
enforces the deadline, and turns every error into a result of bounded length: it never raises. What is switched off
is there and not to be had. Knows nothing about models.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.result_pages import Overflow
from appliance.agent.tool_counts import Tallies
from appliance.agent.tool_manuals import Manual, ManualIndex, nearest, told
from appliance.agent.tool_results import Reply, cut, outcome_of
from appliance.agent.tool_rules import ToolRules as ToolRules
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import BadInput, Conflict, NotFound, OwlError, Refused
from appliance.policy import modes, taint
from appliance.policy.modes import FREE
from appliance.policy.policy_file import Policy
from appliance.policy.taint import ToolReach
from appliance.records import Cancel, Outcome, Terms, ToolCall, ToolSpec
from appliance.runtime import log as logs
from appliance.runtime.signatures import Signature, schema_of, signature
from appliance.sessions.runs import Runs
from appliance.store import disk_faults, durability, visibility
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])
EVERY = ("chat", "worker")
MAX_NAMED = 2  # tools of a group that a menu names
OF_RUNS = ("run", "tools")  # groups that mean nothing outside of the roles that are shown them
MAX_SHOWN = 8  # tools of a role's menu; the others it has are reached through `use`
LEADING = "tools"  # the group that leads to the others
BESIDE = ("results",)  # groups that whoever has any tool but one has too: they show the rest of a long result
ONCE = ("knowledge", "planning", "schedules", "notes", "memory")  # groups whose effects a second call would only double
SANDBOXES = ("db", "files", "project", "exec")  # each holds what those before it do
GRACE_S = 2.0  # how long a stopped tool may take to notice
SANDBOX_S = 5.0  # beyond a tool's deadline, for the sandbox that ends it to say what there was


class Needs(Struct, frozen=True):
    """The services a tool needs, and the callers that may have it.

    `deadline_s` 0 leaves it to the configuration, no `roles` means all, `network` is how it reaches the web, `profile`
    the sandbox it works in ("db": none, it has only the services it names), `mounts` more folders that it wants to see.
    """

    version: str = "1"
    deadline_s: float = 0
    network: Literal["none", "proxy"] = "none"
    roles: tuple[str, ...] = ()
    profile: Literal["db", "files", "project", "exec", "net"] = "db"
    mounts: tuple[str, ...] = ()
    is_waiting: bool = False  # for other runs, which need tools meanwhile: it gets a thread of its own
    is_beside: bool = False  # calls of it in one answer run side by side; never for one that may be held
    reach: ToolReach | None = None  # how a call acts on the world beyond its run; None for one that does not
    is_inside: bool = False  # a plugin's tool says so when it acts on nothing beyond its run; one that says nothing might


class ToolMark(Struct, frozen=True):
    """What `@tool` notes about a function. `command` is the command line's words for it.

    `menu` names the roles whose model is told of it; the prompt is small. Whoever knows a tool may call it.
    """

    name: str
    group: str
    command: str
    is_read_only: bool
    is_terminal: bool
    menu: tuple[str, ...] = EVERY
    is_detour: bool = False  # it returns the call that is meant, which is run in its place
    needs: Needs = Needs()


def tool(
    *,
    group: str,
    name: str = "",
    command: str = "",
    is_read_only: bool = False,
    is_terminal: bool = False,
    menu: tuple[str, ...] = EVERY,
    is_detour: bool = False,
    needs: Needs = Needs(),
) -> Callable[[F], F]:
    """Mark a function as a tool. Its docstring is a prompt: the first paragraph is what the model reads."""

    def mark(function: F) -> F:
        function.tool = ToolMark(  # type: ignore[attr-defined]
            name or function.__name__, group, command, is_read_only, is_terminal, menu, is_detour, needs
        )
        return function

    return mark


class Tool(Struct, frozen=True, dict=True):
    """One definition, many faces: the model's schema, the command, the socket method, the docs line.

    `origin` is who wrote its description when strangers did, as with tools of servers; `shown` is what menus say of it then.
    """

    mark: ToolMark
    function: Callable[..., Any]
    signature: Signature
    description: str
    origin: str = ""
    shown: ToolSpec | None = None

    @cached_property
    def spec(self) -> ToolSpec:
        """What a model is told; made once, since each call asks for it several times and a schema takes half a millisecond."""
        return ToolSpec(
            name=self.mark.name,
            description=self.description,
            schema=self.signature.schema(),
            group=self.mark.group,
            is_read_only=self.mark.is_read_only,
            is_terminal=self.mark.is_terminal,
            is_beside=self.mark.needs.is_beside and self.mark.needs.reach is None,
            is_once=self.mark.group in ONCE and not self.mark.is_read_only and not self.mark.is_terminal,
        )

    def result_schema(self) -> dict[str, Any]:
        """JSON schema of the data of its results; {} where each outcome says what it holds."""
        returns = self.signature.returns
        if get_origin(returns) is Reply:
            return schema_of(get_args(returns)[0])
        return {} if returns is Outcome else schema_of(returns)

    def told(self, manual: Manual) -> str:
        """The tool's whole help text in a fixed order."""
        return told(self.mark.name, self.function.__doc__ or "", self.signature, manual)


class Caller(Struct, frozen=True):
    """Who calls and when to stop: a tool that declares `caller` gets this as a service.

    `session` is the one of the run, or of the person who calls outside of any. `terms` say what the run may do,
    `log` is the entry in which the call was recorded, "" where none was. `deadline_s` is how long the call may take.
    """

    run: str
    cancel: Cancel
    session: str = ""
    terms: Terms = FREE
    log: str = ""
    deadline_s: float = 60.0
    is_cleared: bool = False  # a person has said yes to this very call
    is_vouched: bool = False  # and was shown every letter of it


class Guard(Protocol):
    """Looks at each call of a run, with the toolbox that is about to run it."""

    def heard(self, call: ToolCall, caller: Caller) -> Outcome | None:
        """Look at what a run wrote in a call, whatever becomes of it; the result of one that may not be looked into further."""

    def before(self, toolbox: "Toolbox", mark: ToolMark, call: ToolCall, caller: Caller) -> Outcome | None:
        """The result of a call that is held; None for one that may be run."""

    def after(self, toolbox: "Toolbox", mark: ToolMark, call: ToolCall, caller: Caller, outcome: Outcome) -> Outcome:
        """Return the outcome of a call, marked with its origin."""


@lru_cache(maxsize=256)  # a third of a millisecond each, for a hundred of them, for every toolbox of a process
def read_tool(function: Callable[..., Any]) -> Tool:
    """The definition in a marked function; BadInput when it is not marked or says nothing about itself."""
    mark = getattr(function, "tool", None)
    if not isinstance(mark, ToolMark):
        raise BadInput(f"{function.__name__} is not marked with @tool")
    text = (function.__doc__ or "").strip().split("\n\n")[0]
    if not text:
        raise BadInput(f"tool {mark.name} has no docstring", hint="the model reads it")
    return Tool(mark, function, signature(function), " ".join(text.split()))


class Toolbox:
    """The tools of a core, and the dispatch."""

    def __init__(
        self,
        functions: Sequence[Callable[..., Any]],
        services: Mapping[str, Any],
        *,
        rules: ToolRules,
        guard: Guard | None = None,
        runs: Runs | None = None,
        store: Store | None = None,
        threads: int = 4,
    ) -> None:
        """The service `overflow` keeps a run's result that is too long; without it, it is cut.

        With `runs` the tools of a run are shown what its context may see, with `store` a query is interrupted at its deadline.
        """
        self._overflow: Overflow | None = services.get("overflow")
        self._services = {**services, "toolbox": self}
        self._rules = rules
        self._store = store
        self._runs = runs
        self.guard = guard
        self._tallies = Tallies()
        self.manuals = ManualIndex()
        self._tools: dict[str, Tool] = {}
        self._specs: dict[tuple[str, tuple[str, ...] | None], tuple[ToolSpec, ...]] = {}
        self._narrow: dict[str, Callable[[ToolSpec], ToolSpec]] = {}
        self._lent: frozenset[str] = frozenset()
        self._untold: frozenset[str] = frozenset()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        for function in functions:
            self.add(function)

    def add(self, function: Callable[..., Any], reach: ToolReach | None = None) -> Tool:
        """Offer one more tool, with this reach if it does not say how far it reaches; Conflict when its name is taken."""
        made = read_tool(function)
        if made.mark.needs.reach is None and not made.mark.needs.is_inside:
            made = replace(made, mark=replace(made.mark, needs=replace(made.mark.needs, reach=reach)))
        if made.mark.name in self._tools:
            raise Conflict(f"tool {made.mark.name} is offered twice", hint="rename one of them")
        self._tools[made.mark.name], self._specs = made, {}
        return made

    def remove(self, name: str) -> None:
        """Offer a tool no longer; NotFound when there is none."""
        if self._tools.pop(name, None) is None:
            raise NotFound(f"no tool {name}", hint=f"there are {', '.join(self._tools)}")
        self._tallies.forget(name)
        self._specs = {}

    def lend(self, tools: Sequence[Tool], untold: Collection[str] = ()) -> list[str]:
        """Offer tools of others beside ours, in place of those lent before; names that ours have already are left out, and told.

        `untold` are groups that no menu mentions, although their tools can be called.
        """
        own = {name: one for name, one in self._tools.items() if name not in self._lent}
        lent = {one.mark.name: one for one in tools if one.mark.name not in own}
        # Another dictionary: whoever goes through the old one in another thread is not disturbed.
        self._tools, self._lent, self._untold, self._specs = {**own, **lent}, frozenset(lent), frozenset(untold), {}
        return [one.mark.name for one in tools if one.mark.name in own]

    @property
    def policy(self) -> Policy:
        return self._rules.policy

    def use(self, policy: Policy) -> None:
        """Another policy from now on; calls that run already go on."""
        self._rules.use(policy)
        self._specs = {}

    def specs(self, role: str = "chat", only: tuple[str, ...] | None = None) -> Sequence[ToolSpec]:
        """A role's menu, as far as the policy allows, in the one order of `modes`; made once and again after `add`.

        With `only`, the names and groups that it has at all, what of its menu is among them, then those named, at most eight.
        """
        if (role, only) not in self._specs:
            menu = [t for t in self._tools.values() if role in t.mark.menu and self._is_offered(t.mark, role, only)]
            if only is not None:
                menu = self._select_shown(menu, role, only)
            self._specs[role, only] = modes.menu(FREE, [self._menu_spec(t, role, only) for t in menu])
        specs = self._specs[role, only]
        return tuple(map(self._told_now, specs)) if self._narrow else specs

    def _select_shown(self, menu: list[Tool], role: str, only: tuple[str, ...]) -> list[Tool]:
        """What a role is shown of the tools it has: its usual menu, those named, those of groups, as far as there is room."""
        only = self.ours(only)
        named = [self._tools[name] for name in only if name in self._tools]
        grouped = [t for t in self._tools.values() if t.mark.group in only and not t.mark.is_terminal]
        leading = [t for t in self._tools.values() if t.mark.group == LEADING and self._is_offered(t.mark, role, only)]
        made = dict.fromkeys(t.mark.name for t in (*menu, *named, *grouped) if t not in leading)
        shown = [t for name in made if self._is_offered((t := self._tools[name]).mark, role, only)]
        return [*shown[: MAX_SHOWN - len(leading)], *leading]

    def allowed(self, only: tuple[str, ...] | None) -> tuple[str, ...]:
        """The tools that names and groups come to, in the order of the toolbox; all of them for None."""
        only = None if only is None else self.ours(only)
        return tuple(name for name, found in self._tools.items() if modes.has(only, name, found.mark.group))

    def ours(self, names: Iterable[str]) -> tuple[str, ...]:
        """A list of tools and groups as we call them, whoever's names it has; what is barred stays barred."""
        # A group may have the name that a design gives to one of its tools, such as shell: then all of it is meant.
        known = {*self._tools, *(found.mark.group for found in self._tools.values())}
        return tuple(name if name.removeprefix(modes.BAR) in known else self.manuals.ours(name) for name in names)

    def adapt(self, name: str, narrow: Callable[[ToolSpec], ToolSpec]) -> None:
        """Have what a model is told of a tool looked over each time: what it may be given changes with the home."""
        self._narrow[name] = narrow

    def spec(self, name: str) -> ToolSpec | None:
        """What a model may be told about one tool, whatever its menu; None for one that does not exist."""
        found = self._tools.get(name)
        return None if found is None else self._told_now(found.spec)

    def meant(self, call: ToolCall) -> ToolCall:
        """The call that is to be run: another tool's for a detour such as `use`, or for a name that others have for it."""
        found = self._tools.get(call.name)
        if found is None and self.manuals.meant(call.name) in self._tools:
            return self.manuals.translate(call)
        if found is None or not found.mark.is_detour or not self.policy.check(call.name).allowed:
            return call
        try:
            inner: ToolCall = found.function(**found.signature.bind(call.arguments))
        except BadInput:
            return call  # dispatch says what is wrong with it
        inner = replace(inner, id=call.id)
        return inner if inner.name in self._tools else self.meant(inner)

    def groups(self, role: str, only: tuple[str, ...] | None = None) -> dict[str, list[str]]:
        """The tools beside a role's menu that it may use all the same, as far as the policy allows, by group."""
        found: dict[str, list[str]] = {}
        for mark in (one.mark for one in self._tools.values()):
            is_ours = role in mark.menu or mark.is_terminal or mark.group in OF_RUNS
            if not is_ours and mark.group not in self._untold and self._is_offered(mark, role, only):
                found.setdefault(mark.group, []).append(mark.name)
        return found

    def manual(self, name: str, caller: Caller | None = None) -> str:
        """Everything a caller needs to know about one tool, or a line about each of a group; NotFound for neither.

        Nothing is told of what the caller may not have (R-192): Refused for a tool, and a group does without it.
        """
        found = self._tools.get(name) or self._tools.get(self.manuals.meant(name))
        if found is None and (same := [t for t in self._tools.values() if t.mark.group == name]):
            return "\n".join(f"{t.mark.name}: {t.description}" for t in same if not self._explain_exclusion(t.mark, caller))
        if found is None:
            raise NotFound(f"no tool {name}", hint=self._hint_for(name, caller))
        if why := self._explain_exclusion(found.mark, caller):
            raise Refused(f"nothing is told about {found.mark.name}: {why}", hint="do without it")
        return found.told(self.manuals.of(found.mark.name, found.mark.group))

    def origin(self, name: str) -> str:
        """The plugin or server that wrote the description of a tool or group, "" for ours."""
        found = self._tools.get(name)
        return found.origin if found is not None else next((t.origin for t in self._tools.values() if t.mark.group == name), "")

    def _hint_for(self, name: str, caller: Caller | None) -> str:
        """What a name that no tool has may have meant, of what the caller may have."""
        names = [t.mark.name for t in self._tools.values() if not self._explain_exclusion(t.mark, caller)]
        return f"use one of: {', '.join(nearest(name, names) or [s.name for s in self.specs()])}"

    def _explain_exclusion(self, mark: ToolMark, caller: Caller | None) -> str:
        """The reason why a caller may not have a tool; "" when it may."""
        if caller is None:
            return ""
        refusal = self._find_refusal(mark, caller)
        return refusal.message if refusal is not None else modes.refusal(caller.terms, mark.name, mark.group)

    def tools(self) -> Sequence[Tool]:
        return tuple(self._tools.values())

    def registry(self) -> list[dict[str, Any]]:
        """Every tool with its state, whether it is switched on, what it needs, and how often and how well it was called."""
        off = self.ours(self._rules.switched_off())
        return [self._describe_tool(found, off) for found in self._tools.values()]

    def _describe_tool(self, found: Tool, off: Collection[str]) -> dict[str, Any]:
        mark, tally = found.mark, self._tallies.of(found.mark.name)
        is_enabled = not {mark.name, mark.group} & set(off)
        state = "disabled" if not is_enabled else "busy" if tally.running else "error" if tally.is_broken else "available"
        if state == "available" and self._missing_services(found):
            state = "registered"
        counts = {name: getattr(tally, name) for name in ("total", "success", "failed", "timeout", "cancelled", "duration_ms")}
        return {
            "name": mark.name,
            "group": mark.group,
            "state": state,
            "version": mark.needs.version,
            "is_enabled": is_enabled,
            "last_ms": tally.last_ms,
            "aliases": list(self.manuals.also(mark.name)),
            "calls": {**counts, "average_ms": tally.average_ms},
            "needs": msgspec.to_builtins(mark.needs),
            "deadline_s": self._deadline_s(mark),
        }

    def is_read_only(self, name: str) -> bool:
        """True when the tool exists and changes nothing."""
        found = self._tools.get(name)
        return found is not None and found.mark.is_read_only

    def is_terminal(self, name: str) -> bool:
        """True when the tool exists and its call ends the loop."""
        found = self._tools.get(name)
        return found is not None and found.mark.is_terminal

    def dispatch(
        self,
        call: ToolCall,
        run: str,
        cancel: Cancel,
        session: str = "",
        *,
        terms: Terms = FREE,
        log: str = "",
        is_cleared: bool = False,
    ) -> Outcome:
        """The result of a call, good or bad; `is_cleared` for one that a person has said yes to."""
        started_s = monotonic_s()
        is_vouched = is_cleared and not taint.is_cut(call.arguments)
        caller = Caller(run, cancel, session, terms, log, is_cleared=is_cleared, is_vouched=is_vouched)
        outcome = self._dispatch_call(self.meant(call), caller)
        outcome = replace(outcome, duration_ms=round((monotonic_s() - started_s) * 1000))
        if run and self._overflow is not None and not outcome.is_error:
            outcome = replace(outcome, message=self._overflow.shorten(run, outcome.message, outcome.origin))
        outcome = replace(outcome, message=cut(outcome.message))
        LOG.info(
            "tool",
            extra={"operation": call.name, "result": outcome.outcome, "run": run, "ms": outcome.duration_ms},
        )
        return outcome

    def whole(self, call: ToolCall, caller: Caller) -> Outcome:
        """What a call comes to for another tool that made it, however long: policy, input and deadline are the same."""
        return self._dispatch_call(self.meant(call), caller)

    def close(self) -> None:
        """Take no more calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _told_now(self, spec: ToolSpec) -> ToolSpec:
        """The description of a tool, as the home is now."""
        return self._narrow[spec.name](spec) if spec.name in self._narrow else spec

    def _menu_spec(self, found: Tool, role: str, only: tuple[str, ...] | None = None) -> ToolSpec:
        """A tool as its menu shows it: a detour names what it leads to, of larger groups the group alone."""
        if not found.mark.is_detour:
            return found.shown or found.spec
        groups = self.groups(role, only)
        lines = [", ".join(name for names in groups.values() if len(names) <= MAX_NAMED for name in names)]
        if many := [group for group, names in groups.items() if len(names) > MAX_NAMED]:
            lines.append(f"tool_help lists: {', '.join(many)}")
        if away := [group for group in modes.AWAY if modes.instead(only, group)]:
            lines.append(f"{', '.join(away)}: not yours; delegate to coder, researcher or worker")
        return replace(found.spec, description="\n".join([found.description, *lines]))

    def _dispatch_call(self, call: ToolCall, caller: Caller) -> Outcome:
        guard = self.guard if caller.run else None
        if guard is not None and (held := guard.heard(call, caller)):
            return held
        found = self._tools.get(call.name)
        if found is None:
            return Outcome(404, "not_found", f"Unknown tool {call.name}", self._hint_for(call.name, caller))
        if refusal := self._find_refusal(found.mark, caller):
            return refusal
        try:
            arguments = found.signature.bind(call.arguments)
        except BadInput as error:
            text, hint = f"Invalid input for {call.name}: {error.message}", "correct the input and call it again"
            # What a server calls its arguments is its word.
            return Outcome(400, "invalid_arguments", text, hint, origin=found.origin, source=call.name if found.origin else "")
        if found.mark.is_detour:
            return Outcome(400, "bad_input", f"{call.name} does not lead to itself", "name another tool")
        if reason := modes.refusal(caller.terms, call.name, found.mark.group):
            return Outcome(403, "permission", f"{call.name} is not allowed here: {reason}", "do without it")
        if missing := self._missing_services(found):
            return Outcome(503, "unavailable", f"{call.name} is not available here: no {', '.join(missing)}", "do without it")
        caller = replace(caller, deadline_s=self._deadline_s(found.mark))
        if guard is not None and (held := guard.before(self, found.mark, call, caller)):
            return held
        self._tallies.begin(call.name)
        outcome, started_s = Outcome(500, "failed", f"{call.name} did not end"), monotonic_s()
        try:
            outcome = _told_apart(found.mark, self._run_tool(found, arguments, caller))
        finally:
            self._tallies.end(call.name, outcome, round((monotonic_s() - started_s) * 1000))
        return outcome if guard is None else guard.after(self, found.mark, call, caller, outcome)

    def find_refusal(self, name: str, caller: Caller) -> Outcome | None:
        """The error for a caller that may not use a tool at all; None when it may."""
        return self._find_refusal(self._tools[name].mark, caller)

    def _find_refusal(self, mark: ToolMark, caller: Caller) -> Outcome | None:
        """Why a call is not even looked at: none of the role's, switched off, refused by the policy, or for other roles."""
        if (outside := self._refuse_outside(mark, caller.terms)) is not None:
            return outside
        if {mark.name, mark.group} & set(self.ours(self._rules.switched_off())):
            return Outcome(503, "unavailable", f"{mark.name} is switched off", "do without it")
        role = caller.terms.role
        names = (mark.name, *self.manuals.also(mark.name))
        verdict = self._rules.check(names, role, caller.session, caller.run, mark.needs.network)
        if not verdict.allowed:
            return Outcome(403, "permission", f"{mark.name} is not allowed here ({verdict.rule})", "tell the person instead")
        if role and mark.needs.roles and role not in mark.needs.roles:
            text = f"{mark.name} is for {' and '.join(mark.needs.roles)}, not for {role}"
            return Outcome(403, "permission", text, "do without it")
        return None

    def _refuse_outside(self, mark: ToolMark, terms: Terms) -> Outcome | None:
        """The error for a tool that a role does not include (A-085); None when it does."""
        if not self._is_among(mark, terms.tools):
            text = f"{mark.name} is not a tool of role {terms.role or 'assistant'}"
            away = "" if terms.is_child else modes.instead(terms.tools, mark.group)
            hint = away or f"it has {', '.join(self.allowed(terms.tools)) or 'none'}"
            return Outcome(403, "permission", text, hint)
        profile = mark.needs.profile
        if terms.sandbox in SANDBOXES and profile in SANDBOXES and SANDBOXES.index(profile) > SANDBOXES.index(terms.sandbox):
            text = f"{mark.name} needs the sandbox {profile}, role {terms.role} has {terms.sandbox}"
            return Outcome(403, "permission", text, "do without it")
        return None

    def _is_offered(self, mark: ToolMark, role: str, only: tuple[str, ...] | None = None) -> bool:
        """Whether the menu of a role shows a tool."""
        is_off = bool({mark.name, mark.group} & set(self.ours(self._rules.switched_off())))
        is_for = not mark.needs.roles or role in mark.needs.roles
        is_allowed = self.policy.check(mark.name, role, mark.needs.network, self.manuals.also(mark.name)).allowed
        return not is_off and is_for and is_allowed and self._is_among(mark, only)

    def _is_among(self, mark: ToolMark, only: tuple[str, ...] | None) -> bool:
        """Whether a tool is among these names and groups, or leads to those of them that no menu has room for."""
        if only is None or modes.has(self.ours(only), mark.name, mark.group):
            return True
        is_leading = mark.group == LEADING and len(self.allowed(only)) > MAX_SHOWN
        return is_leading or (mark.group in BESIDE and len(only) > 1)

    def _missing_services(self, found: Tool) -> list[str]:
        return [name for name in found.signature.services if name not in self._services and name != "caller"]

    def _deadline_s(self, mark: ToolMark) -> float:
        return self._rules.deadline_s((mark.name, *self.manuals.also(mark.name)), mark.group, mark.needs.deadline_s)

    def _run_tool(self, found: Tool, arguments: dict[str, Any], caller: Caller) -> Outcome:
        """Run in a pool thread, so that a deadline or a stop is honoured even inside a long query."""
        stop, thread, correlation, asking = CancelToken(), [0], logs.correlation(), visibility.asking()
        services = {name: self._services[name] for name in found.signature.services if name != "caller"}
        if "caller" in found.signature.services:
            services["caller"] = replace(caller, cancel=stop)

        # A run's tools are shown what its context may see; outside of any run what the caller may.
        of_run = self._runs.context_of(caller.run) if caller.run and self._runs is not None else ""
        whose, is_asked = of_run if caller.run else visibility.current(), durability.is_asked()

        def work() -> Outcome:
            thread[0] = threading.get_ident()
            with logs.correlated(correlation), visibility.showing(whose), visibility.restricted(asking), durability.asked(is_asked):
                return outcome_of(found.function(**arguments, **services))

        name, over, deadline_s = found.mark.name, threading.Event(), caller.deadline_s
        pool = ThreadPoolExecutor(1, thread_name_prefix="waiting") if found.mark.needs.is_waiting else self._pool
        try:
            future = pool.submit(work)
        except RuntimeError:
            return Outcome(503, "unavailable", f"{name} was not run: the core is shutting down", "ask again later")
        if pool is not self._pool:
            pool.shutdown(wait=False)
        future.add_done_callback(lambda _: over.set())
        stop.then(over.set)
        stop.then(lambda: self._stop_call(future, thread[0]))
        if isinstance(caller.cancel, CancelToken):
            caller.cancel.then(stop.set)
        over.wait(deadline_s + (0 if found.mark.needs.profile == "db" else SANDBOX_S))
        try:
            # Asked for, not raised: this also keeps a tool's SystemExit from ending the turn's thread.
            error = future.exception(GRACE_S if stop.is_set() else 0)
        except CancelledError:
            return Outcome(499, "cancelled", f"{name} was stopped before it began")
        except FutureTimeout:
            if stop.is_set():
                return Outcome(499, "cancelled", f"{name} was stopped")
            stop.set()
            text = f"{name} took longer than {deadline_s:g} s and was stopped"
            return Outcome(504, "timeout", text, "ask for less at once")
        return future.result() if error is None else self._outcome_of_error(name, error, stop)

    @staticmethod
    def _outcome_of_error(name: str, error: BaseException, stop: CancelToken) -> Outcome:
        error = disk_faults.explain_fault(error) or error
        if isinstance(error, OwlError):
            return Outcome(error.status, error.outcome, error.message, error.hint, origin=error.origin, source=error.source)
        if stop.is_set():
            return Outcome(499, "cancelled", f"{name} was stopped")
        LOG.error("tool %s failed", name, exc_info=error)
        text = f"{name} failed: {type(error).__name__}: {error}"
        return Outcome(500, "failed", text, "try again with other input, or go on without it")

    def _stop_call(self, future: "Future[Any]", thread: int) -> None:
        if not future.cancel() and not future.done() and thread and self._store is not None:
            self._store.interrupt(thread)


def _told_apart(mark: ToolMark, outcome: Outcome) -> Outcome:
    """The outcome with its origin, where a sandbox gave it what it says: what ran there and what was read is not ours."""
    has_said = not outcome.is_error or outcome.data is not None
    if outcome.origin or outcome.status == 202 or not has_said or mark.needs.profile == "db":
        return outcome
    if mark.needs.profile == "exec":
        return replace(outcome, origin="command")
    return replace(outcome, origin="file") if mark.is_read_only and mark.needs.profile != "net" else outcome
