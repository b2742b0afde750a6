"""Builds what answers: the agent with its limits, the loops that drive it, and titles of conversations."""

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent import titles
from appliance.agent.agent import Agent, Limits
from appliance.agent.loop import Loops
from appliance.agent.loop_events import LoopStored
from appliance.agent.titles import Titles
from appliance.prompt.roles import Roles
from appliance.runtime.settings import ConfigReloaded
from appliance.service import small_models
from appliance.service.agent_limits import limits
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.prompt import PromptParts
from appliance.service.parts.queue import QueueParts
from appliance.service.parts.tools import ToolParts
from appliance.sessions.history import Recall


class AgentParts(Struct, frozen=True):
    """What answers, and what names the conversation afterwards."""

    agent: Agent
    loops: Loops
    titles: Titles


def build_agent(
    base: BaseParts,
    models: ModelParts,
    knowledge: KnowledgeParts,
    prompt: PromptParts,
    tools: ToolParts,
    queue: QueueParts,
    roles: Roles,
) -> AgentParts:
    """The limits follow the configuration."""
    settings, client, runs = base.settings, models.models, base.runs

    def read_limits() -> Limits:
        return replace(limits(settings()), tier=models.local.tiers.of)

    def name_chat(stored: LoopStored) -> None:
        if stored.end.status == 200:
            chats.ended(stored.loop.run)

    zone = lambda: settings().system.timezone  # noqa: E731
    agent = Agent(
        *(client, tools.toolbox, prompt.packets, Recall(runs, runs.question), read_limits(), tools.dispatch),
        budget=prompt.budget,
        make_guide=partial(small_models.guide, base.home.root, knowledge.finder, knowledge.entries, client, zone, knowledge.folder),
    )
    base.events.subscribe(ConfigReloaded, lambda reloaded: agent.configure(read_limits()))
    chats = Titles(runs, client, lambda: settings().runs.titles, partial(titles.is_able, folder=base.home.models))
    base.events.subscribe(LoopStored, name_chat)
    loops = Loops(base.store, runs, agent, status=queue.channel, events=base.events, roles=roles, passed=base.passed)
    return AgentParts(agent, loops, chats)
