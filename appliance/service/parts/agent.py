"""Builds what answers: the agent with its limits, what decides for small models, the loops that drive it, titles of chats."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent import titles
from appliance.agent.agent import Agent
from appliance.agent.loop import Loops
from appliance.agent.loop_events import LoopStored
from appliance.agent.loop_state import LoopLimits
from appliance.agent.titles import Titles
from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.ingest.notes import Folder
from appliance.knowledge.calendar import Calendars
from appliance.knowledge.entries import Entries
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.planning.computed import NO_LOOKUPS
from appliance.language.ports import OutsideLookups
from appliance.language.router import Router
from appliance.language.work_planner import WorkPlanner
from appliance.models.client import Models
from appliance.prompt.roles import Roles
from appliance.runtime.settings import Config, ConfigReloaded
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.prompt import PromptParts
from appliance.service.parts.queue import QueueParts
from appliance.service.parts.tools import ToolParts
from appliance.sessions.history import Recall

EMBED_S = 5.0  # for sentences that an answer waits for; words must do when it takes longer


def build_guide(
    home: Path,
    search: Search,
    entries: Entries,
    models: Models,
    folder: Folder,
    calendars: Calendars,
    lookups: OutsideLookups = NO_LOOKUPS,
) -> WorkPlanner:
    """The guide of a home; `folder` knows its files and what could not be read, `calendars` the time zone of the box."""
    languages = Languages(home)

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, or none for any."""
        try:
            return models.embed(texts, deadline_s=EMBED_S).vectors if search.has_vectors() else ()
        except OwlError:
            return ()

    finder = Finder(search, entries, embed, languages.function_words(), languages.pointing_words(), languages.alike_words)
    now = lambda: datetime.fromtimestamp(now_ms() / 1000, calendars.zone())  # noqa: E731
    given = Router(languages, embed), finder, entries, now
    return WorkPlanner(*given, lambda: folder.unread, folder.list_files, calendars, lookups)


def limits(settings: Config) -> LoopLimits:
    """The agent's caps from the configuration."""
    return LoopLimits(
        max_turns=settings.runs.max_turns,
        max_commands=settings.runs.max_commands,
        max_strikes=settings.runs.max_strikes,
        max_cycles=settings.runs.max_cycles,
        max_period=settings.runs.max_period,
        history_messages=settings.budget.history_messages,
        temperature=settings.models.temperature,
        max_output_tokens=settings.models.max_output_tokens,
        deadline_s=settings.llm.deadline_ms / 1000,
        may_think=settings.models.thinking,
        pause_s=settings.llm.max_backoff_ms / 1000,
    )


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
    lookups: OutsideLookups,
) -> AgentParts:
    """The limits follow the configuration."""
    settings, client, runs = base.settings, models.models, base.runs

    def read_limits() -> LoopLimits:
        return replace(limits(settings()), tier=models.local.tiers.of)

    def name_chat(stored: LoopStored) -> None:
        if stored.end.status == 200:
            chats.ended(stored.loop.run)

    known = knowledge.finder, knowledge.entries
    agent = Agent(
        *(client, tools.toolbox, prompt.packets, Recall(runs, runs.question), read_limits(), tools.dispatch),
        budget=prompt.budget,
        make_guide=partial(build_guide, base.home.root, *known, client, knowledge.folder, knowledge.calendars, lookups),
    )
    base.events.subscribe(ConfigReloaded, lambda reloaded: agent.configure(read_limits()))
    chats = Titles(runs, client, lambda: settings().runs.titles, partial(titles.is_able, folder=base.home.models))
    base.events.subscribe(LoopStored, name_chat)
    loops = Loops(base.store, runs, agent, status=queue.channel, events=base.events, roles=roles, passed=base.passed)
    return AgentParts(agent, loops, chats)
