"""Builds the tools of a core, and what decides about their calls: approvals, released calls, dispatch."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from appliance import tools
from appliance.agent.approvals import ACCEPTED, Approvals
from appliance.agent.dispatch import Dispatch, RunLog
from appliance.agent.loop_events import CallsAbandoned
from appliance.agent.released_calls import ReleasedCalls
from appliance.agent.toolbox import Toolbox
from appliance.mcp.hub import Hub
from appliance.mcp.tools import DirectTools
from appliance.runtime.settings import ConfigReloaded
from appliance.service.parts.base import BaseParts
from appliance.service.parts.commands import CommandParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.policy import PolicyParts
from appliance.service.parts.taint import TaintParts
from appliance.service.parts.workspace import WorkspaceParts


class ToolParts(Struct, frozen=True):
    """Tools, and the way of a call from a model's answer to its result."""

    toolbox: Toolbox
    released: ReleasedCalls
    approvals: Approvals
    recorder: RunLog
    dispatch: Dispatch


def build_toolbox(base: BaseParts, policy: PolicyParts, taint: TaintParts, hub: Hub, services: Mapping[str, Any]) -> Toolbox:
    """The tools that ship, and those of servers beside them; the policy says who has which."""
    settings = base.settings
    toolbox = Toolbox(
        tools.load(),
        services,
        rules=policy.rules,
        guard=taint.checkpoint,
        runs=base.runs,
        store=base.store,
    )
    policy.gate.tell(toolbox.use)
    DirectTools(hub, toolbox, lambda: settings().tools.mcp_direct, base.events)
    # Also when only what is switched off has changed, which the gate does not tell.
    base.events.subscribe(ConfigReloaded, lambda reloaded: toolbox.use(policy.gate.policy))
    return toolbox


def build_tools(
    base: BaseParts,
    policy: PolicyParts,
    knowledge: KnowledgeParts,
    workspace: WorkspaceParts,
    commands: CommandParts,
    taint: TaintParts,
    toolbox: Toolbox,
) -> ToolParts:
    """What waits for a person goes on when they accept it; what a run abandoned is marked so in its log."""
    released = ReleasedCalls(base.runs, knowledge.entries, knowledge.views, taint.grants, toolbox, base.events)
    base.hooks.add(ACCEPTED, released.accepted)
    background = released, commands.executions
    approvals = Approvals(base.store, base.runs, workspace.verbs, base.hooks, base.events, policy.rules, background)
    recorder = RunLog(base.store, base.runs, workspace.verbs)
    base.events.subscribe(CallsAbandoned, lambda abandoned: recorder.mend(abandoned.run))
    dispatch = Dispatch(toolbox, hooks=base.hooks, recorder=recorder, approve=approvals.accept_now, is_wary=taint.is_wary)
    return ToolParts(toolbox, released, approvals, recorder, dispatch)
