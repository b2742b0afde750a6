"""Builds roles and delegated work: who there is, what they are told, what they do.

A role that is added becomes a profile that can be asked for, a run's role decides its tools. Owns no table.
"""

from functools import partial
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.loop import Loops
from appliance.agent.taint_gate import PEOPLE
from appliance.agent.toolbox import Caller, Toolbox
from appliance.clock import CancelToken
from appliance.errors import BadInput, NotFound, Refused
from appliance.policy import modes
from appliance.prompt import roles
from appliance.prompt.packet_types import PacketScene
from appliance.prompt.roles import ASSISTANT, HEARTBEAT, SHIPPED, Role, Roles
from appliance.records import Part, RunSettings, ToolSpec
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.service.parts.base import BaseParts
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Run
from appliance.work.delegation import Delegation
from appliance.work.jobs import Jobs
from appliance.work.work_events import OthersWrote

LOCAL = "local"  # the channel of whoever owns the box
PROFILES_AT = 35  # among the sections of the system text: behind the skills, before the tools


class RoleParts(Struct, frozen=True):
    """The roles of a home, and the work that is handed to them."""

    roles: Roles
    jobs: Jobs

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"jobs": self.jobs, "roles": self.roles}


def build_roles(base: BaseParts) -> RoleParts:
    """Roles are read from files; jobs publish what becomes of them."""
    return RoleParts(
        Roles(base.home.box, base.settings, partial(is_shared, base)), Jobs(base.store, base.runs.process, base.events)
    )


def is_shared(base: BaseParts) -> bool:
    """Whether several people or groups talk here. The channels of the box itself are its owner's, as are owner's addresses."""
    owners = {(one.channel, one.address) for one in base.settings().people.owner_aliases}
    found = set()
    for channel, sender, context in base.runs.people.talkers():
        is_group = context.startswith("group:")
        is_owner = channel == LOCAL or {(channel, sender), ("", sender)} & owners
        found.add("owner" if is_owner and not is_group else context)
    return len(found) > 1


class RoleService:
    """Has work done in roles, and says what each role may do."""

    def __init__(self, base: BaseParts, parts: RoleParts, outbox: Outbox, loops: Loops, toolbox: Toolbox) -> None:
        self._base, self._toolbox = base, toolbox
        self.roles, self.jobs = parts.roles, parts.jobs
        self.delegation = Delegation(
            *(base.runs, self.jobs, self.roles, loops, outbox, lambda: base.settings().delegation), is_lasting=base.is_shared
        )
        if not base.settings().delegation.spawn:
            toolbox.remove("spawn_await")
        toolbox.adapt("delegate", self._to_delegate)
        base.hooks.add("packet.system", self._profiled, PROFILES_AT)
        base.events.subscribe(OthersWrote, lambda wrote: self.delegation.begin_waiting())

    def recover(self) -> None:
        """Resume or end jobs of processes that are gone, and forget those that are too old to be asked for."""
        self.delegation.recover()
        self.jobs.forget(self._base.settings().runs.retention_days)

    def close(self) -> None:
        """Stop all work."""
        self.delegation.close()

    def menu(self, role: Role) -> tuple[ToolSpec, ...]:
        """The tools that a role is shown."""
        terms = replace(modes.terms("act", RunSettings(), role=role.name), is_child=role.is_child or role.name not in (ASSISTANT,))
        return modes.menu(terms, self._toolbox.specs(role.menu, role.tools))

    @property
    def problems(self) -> list[str]:
        """What is wrong with which role's file, tools that there are not included."""
        found = list(self.roles.problems)
        known = {name for tool in self._toolbox.tools() for name in (tool.mark.name, tool.mark.group)}
        for one in self.roles.list_roles():
            named = self._toolbox.ours((*(one.tools or ()), *(one.tasks or ())))
            strange = [name for name in named if one.is_own and name not in known]
            found += [f"{roles.FOLDER}/{one.name}.md: there is no tool or group {name}" for name in strange]
        return [*found, *self._kept()]

    # -- inside -------------------------------------------------------------------------------------

    def _to_delegate(self, spec: ToolSpec) -> ToolSpec:
        """What is told of `delegate`: who there is, and nothing of the other words that are understood too."""
        has_helpers = self._base.settings().delegation.spawn
        names = [one.name for one in (*self.roles.helpers(), *(self.roles.profiles() if has_helpers else ()))]
        hidden = ("target",) if has_helpers else ("target", "tools", "system_prompt")
        properties = {name: one for name, one in spec.schema["properties"].items() if name not in hidden}
        urgencies = ["normal", "background", *(["collect"] if has_helpers else [])]
        properties["priority"] = {**properties["priority"], "enum": urgencies}
        if names:
            properties["agent"] = {**properties["agent"], "enum": list(dict.fromkeys(names))}
        needed = ["task"] if has_helpers else ["agent", "task"]
        return replace(spec, schema={**spec.schema, "properties": properties, "required": needed})

    def _profiled(self, parts: tuple[Part, ...], scene: PacketScene) -> tuple[Part, ...]:
        """The kinds of helper that the home has added, where they can be asked for (S-093)."""
        can_ask = not scene.is_child and any(spec.name in ("use", "delegate") for spec in scene.specs)
        if not can_ask or not self._base.settings().delegation.spawn or not (profiles := self.roles.profiles()):
            return parts
        lines = [f'<profile name="{one.name}">{one.description}</profile>' for one in profiles]
        return (*parts, Part("profiles", "\n".join(["<profiles>", *lines, "</profiles>"])))

    def _assistant(self) -> Role:
        """The assistant with its tools by name where something is kept from it."""
        found = self.roles.assistant()
        return replace(found, tools=self._toolbox.allowed(found.tools)) if modes.bars(found.tools) else found

    def _kept(self) -> list[str]:
        """What the home's own file gives to the assistant, and its preset keeps from it all the same."""
        found, groups = self.roles.assistant(), {tool.mark.name: tool.mark.group for tool in self._toolbox.tools()}
        tools = None if found.tools is None else self._toolbox.ours(found.tools)
        named = (modes.unbarred(tools) or ()) if modes.bars(tools) else ()
        kept = [name for name in named if not modes.has(tools, name, groups.get(name, name))]
        return [f"{roles.FOLDER}/{ASSISTANT}.md: preset {found.preset} keeps {name} from it; open would not" for name in kept]

    def _require_delegating(self, run: Run, role: str) -> None:
        """Refused where the assistant may not hand work to others: nobody gets by another name what it is kept from."""
        assistant = self.roles.assistant()
        tools = assistant.unkept if run.settings.layout == "entries" else assistant.tools
        terms = replace(modes.terms("act", run.settings, role=ASSISTANT), tools=tools, sandbox=assistant.sandbox)
        refusal = self._toolbox.find_refusal("delegate", Caller(run.id, CancelToken(), run.session, terms))
        if refusal is not None:
            hint = f"the policy and {roles.FOLDER}/{ASSISTANT}.md say what it has; `delegate` must be among it"
            raise Refused(f"{role} may not answer here: the assistant hands it no work ({refusal.message})", hint=hint)

    # -- methods ------------------------------------------------------------------------------------

    @method("role.list", access="all")
    def list_roles(self) -> list[dict[str, Any]]:
        """Every role as it holds now: those that ship, then those of `box/roles/`."""
        found = []
        for one in self.roles.list_roles():
            current = self._assistant() if one.name == ASSISTANT else one
            more = {"is_shipped": one.name in SHIPPED, "may_answer": one.name != HEARTBEAT}
            found.append({**roles.role_data(replace(current, text="")), **more})
        return found

    @method("role.view", access="all")
    def view_role(self, name: Annotated[str, Range(1, 40), "the role's name"]) -> dict[str, Any]:
        """One role with its words, the tools it has and those it is shown, and what is wrong with its file."""
        found = self.roles.assistant() if name == ASSISTANT else self.roles.get(name)
        shown = {"tools": self._toolbox.allowed(found.tools), "menu": [spec.name for spec in self.menu(found)]}
        return {**roles.role_data(found), **shown, "problems": [one for one in self.problems if f"/{name}.md" in one]}

    @method("role.use", access="own")
    def use_role(
        self,
        run: Annotated[str, "its name or id, or the beginning or end of the id"],
        role: Annotated[str, Range(0, 40), "a role that work can be handed to; empty for the assistant"] = "",
    ) -> Run:
        """Let another role answer in a thread from its next message on: with its tools, its words and its pool."""
        found = self._base.runs.get(run)
        if found.kind not in PEOPLE:
            raise BadInput(f"thread {found.id} is of kind {found.kind}, whose role is fixed", hint="a chat may have another")
        names = [ASSISTANT, *(one.name for one in self.roles.helpers())]
        if role and role not in names:
            raise NotFound(f"no role {role!r} that talks with you", hint=f"there is {', '.join(names)}")
        if role not in ("", ASSISTANT):
            self._require_delegating(found, role)
        return self._base.runs.give_role(found.id, "" if role == ASSISTANT else role)
