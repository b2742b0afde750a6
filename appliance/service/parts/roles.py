"""The parts about roles and delegated work, built once and tied together: who there is, what they are told, what they do.

Here stands what follows from what: a role that is added becomes a profile to be asked for, a run's role decides its
tools, a job that ends is told. Owns no table. Apart from `service.core`, which builds everything else, as
`service.parts.queue` is for the queue.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.loop import Loops
from appliance.agent.toolbox import Toolbox
from appliance.policy import modes
from appliance.prompt import roles
from appliance.prompt.packet_types import Scene
from appliance.prompt.roles import ASSISTANT, SHIPPED, Role, Roles
from appliance.records import Part, RunSettings, ToolSpec
from appliance.runtime.events import Events
from appliance.runtime.hooks import Hooks
from appliance.runtime.methods import method
from appliance.runtime.settings import Config
from appliance.runtime.signatures import Range
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.work.delegation import Delegation
from appliance.work.jobs import Jobs

LOCAL = "local"  # the door of whoever owns the box
PROFILES_AT = 35  # among the sections of the system text: behind the skills, before the tools


class Stage(Struct, frozen=True):
    """What it stands on. `is_lasting` is for the process that stays."""

    box: Path
    settings: Callable[[], Config]
    store: Store
    runs: Runs
    outbox: Outbox
    hooks: Hooks
    events: Events
    is_lasting: bool = True


class Troupe:
    """Roles, jobs and those who do them, of one core."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.roles = Roles(stage.box, stage.settings, self._is_shared)
        self.jobs = Jobs(stage.store, stage.runs.process, stage.events)
        self.delegation: Delegation | None = None
        self._toolbox: Toolbox | None = None

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"jobs": self.jobs, "roles": self.roles, "bounds": self._stage.settings().delegation}

    def tie(self, loops: Loops, toolbox: Toolbox) -> None:
        """Have work done with these."""
        stage, self._toolbox = self._stage, toolbox
        self.delegation = Delegation(
            *(stage.runs, self.jobs, self.roles, loops, stage.outbox, lambda: stage.settings().delegation),
            is_lasting=stage.is_lasting,
        )
        if not stage.settings().delegation.spawn:
            toolbox.remove("spawn")
            toolbox.remove("spawn_await")
        toolbox.adapt("delegate", lambda spec: _to_delegate(spec, [one.name for one in self.roles.helpers()]))
        toolbox.adapt("spawn", lambda spec: _among(spec, "profile", [one.name for one in self.roles.profiles()]))
        stage.hooks.add("packet.system", self._profiled, PROFILES_AT)

    def recover(self) -> None:
        """See to jobs that a process left behind which is gone, and forget those that nobody asks for any more."""
        if self.delegation is not None:
            self.delegation.recover()
            self.jobs.forget(self._stage.settings().delegation.keep_days)

    def look(self) -> None:
        """Another process may have left work to us."""
        if self.delegation is not None:
            self.delegation.look()

    def close(self) -> None:
        """Stop all work."""
        if self.delegation is not None:
            self.delegation.close()

    def menu(self, role: Role) -> tuple[ToolSpec, ...]:
        """The tools that a role is shown."""
        assert self._toolbox is not None
        terms = replace(modes.terms("act", RunSettings(), role=role.name), is_child=role.is_child or role.name not in (ASSISTANT,))
        return modes.menu(terms, self._toolbox.specs(role.menu, role.tools))

    @property
    def problems(self) -> list[str]:
        """What is wrong with which role's file, tools that there are not included."""
        assert self._toolbox is not None
        found = list(self.roles.problems)
        known = {name for tool in self._toolbox.tools() for name in (tool.mark.name, tool.mark.group)}
        for one in self.roles.listing():
            strange = [name for name in (*(one.tools or ()), *(one.tasks or ())) if one.is_own and name not in known]
            found += [f"{roles.FOLDER}/{one.name}.md: there is no tool or group {name}" for name in strange]
        return [*found, *self._kept()]

    # -- inside -------------------------------------------------------------------------------------

    def _is_shared(self) -> bool:
        """Whether several people or groups talk here. The doors of the box itself are its owner's, as are owner's addresses."""
        owners = {(one.channel, one.address) for one in self._stage.settings().people.owner_aliases}
        found = set()
        for channel, sender, context in self._stage.runs.people.talkers():
            is_group = context.startswith("group:")
            is_owner = channel == LOCAL or {(channel, sender), ("", sender)} & owners
            found.add("owner" if is_owner and not is_group else context)
        return len(found) > 1

    def _profiled(self, parts: tuple[Part, ...], scene: Scene) -> tuple[Part, ...]:
        """The kinds of helper that the home has added, where they can be asked for (S-093)."""
        can_ask = not scene.is_child and any(spec.name in ("use", "spawn") for spec in scene.specs)
        if not can_ask or not self._stage.settings().delegation.spawn or not (profiles := self.roles.profiles()):
            return parts
        lines = [f'<profile name="{one.name}">{one.description}</profile>' for one in profiles]
        return (*parts, Part("profiles", "\n".join(["<profiles>", *lines, "</profiles>"])))

    def _assistant(self) -> Role:
        """The assistant with its tools by name where something is kept from it."""
        assert self._toolbox is not None
        found = self.roles.assistant()
        return replace(found, tools=self._toolbox.allowed(found.tools)) if modes.bars(found.tools) else found

    def _kept(self) -> list[str]:
        """What the home's own file gives to the assistant, and its preset keeps from it all the same."""
        assert self._toolbox is not None
        found, groups = self.roles.assistant(), {tool.mark.name: tool.mark.group for tool in self._toolbox.tools()}
        named = (modes.unbarred(found.tools) or ()) if modes.bars(found.tools) else ()
        kept = [name for name in named if not modes.has(found.tools, name, groups.get(name, name))]
        return [f"{roles.FOLDER}/{ASSISTANT}.md: preset {found.preset} keeps {name} from it; open would not" for name in kept]

    # -- methods ------------------------------------------------------------------------------------

    @method("role.list", access="all")
    def list_roles(self) -> list[dict[str, Any]]:
        """Every role as it holds now: those that ship, then those of `box/roles/`."""
        found = []
        for one in self.roles.listing():
            current = self._assistant() if one.name == ASSISTANT else one
            found.append({**roles.plain(replace(current, text="")), "is_shipped": one.name in SHIPPED})
        return found

    @method("role.view", access="all")
    def view_role(self, name: Annotated[str, Range(1, 40), "the role's name"]) -> dict[str, Any]:
        """One role with its words, the tools it has and those it is shown, and what is wrong with its file."""
        assert self._toolbox is not None
        found = self.roles.assistant() if name == ASSISTANT else self.roles.get(name)
        shown = {"tools": self._toolbox.allowed(found.tools), "menu": [spec.name for spec in self.menu(found)]}
        return {**roles.plain(found), **shown, "problems": [one for one in self.problems if f"/{name}.md" in one]}


def _to_delegate(spec: ToolSpec, helpers: list[str]) -> ToolSpec:
    """What is told of `delegate`: who there is, and nothing of the other words that are understood too."""
    properties = {name: one for name, one in spec.schema["properties"].items() if name != "target"}
    properties["priority"] = {**properties["priority"], "enum": ["normal", "background"]}
    made = replace(spec, schema={**spec.schema, "properties": properties, "required": ["agent", "task"]})
    return _among(made, "agent", helpers)


def _among(spec: ToolSpec, argument: str, names: list[str]) -> ToolSpec:
    """What is told of a tool, one of whose arguments has only these values; as it was where there are none."""
    if not names:
        return spec
    properties = {**spec.schema["properties"]}
    properties[argument] = {**properties[argument], "enum": names}
    return replace(spec, schema={**spec.schema, "properties": properties})
