"""Builds what a model is sent: the packet, its budget, summaries of what was said, and copies to look at."""

import logging
from functools import partial

from msgspec import Struct

from appliance.ingest import notes
from appliance.prompt.budget import Budget, Rows
from appliance.prompt.compaction import Compactor
from appliance.prompt.entry_blocks import Blocks
from appliance.prompt.packet import More, Packets
from appliance.prompt.run_log import Chronicle
from appliance.prompt.sent_copies import Copies
from appliance.records import Ask, Event, Part, Route
from appliance.runtime.settings import Config, ConfigReloaded
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.sessions.events import SPOKEN

LOG = logging.getLogger(__name__)
LOGGED = 400  # newest events of a run that its log may be made of


class PromptParts(Struct, frozen=True):
    """What is sent, and what keeps it small."""

    blocks: Blocks
    packets: Packets
    copies: Copies
    compactor: Compactor
    budget: Budget


def build_prompt(base: BaseParts, models: ModelParts, knowledge: KnowledgeParts) -> PromptParts:
    """A reloaded configuration holds from the next packet on."""
    settings = base.settings()

    def read_branch(run: str) -> list[Event]:
        """What was said and done on the branch that a run is on."""
        return base.runs.record.path(base.runs.get(run).head, kinds=SPOKEN, limit=LOGGED)

    def count_tokens(route: Route, ask: Ask) -> int:
        """Tokens of a prompt, as the broker counts them on what it is sent."""
        return models.models.measure(route, ask).total

    blocks = Blocks(base.store, knowledge.entries, knowledge.schemes, settings.budget.token_divisor, base.hooks)
    more = More(base.hooks, blocks, Chronicle(base.store, read_branch), partial(notes.contextual, base.home.box))
    packets = Packets(partial(read_documents, base, knowledge), knowledge.finder, knowledge.skills, more=more)
    copies = Copies(base.store, settings.runs.copies)

    def use(settings: Config) -> None:
        packets.configure(settings.prompt, settings.budget, knowledge.history.owners)
        blocks.configure(settings.budget.token_divisor)
        copies.configure(settings.runs.copies)

    use(settings)
    base.events.subscribe(ConfigReloaded, lambda reloaded: use(reloaded.settings))
    compactor = Compactor(base.runs, models.models, is_automatic=lambda: base.settings().budget.compact)
    rows = Rows(knowledge.views, knowledge.entries, copies)
    return PromptParts(blocks, packets, copies, compactor, Budget(packets, rows, count=count_tokens, full=compactor.start))


def read_documents(base: BaseParts, knowledge: KnowledgeParts) -> list[Part]:
    """The documents of box/ that every prompt begins with, and skills that are always shown."""
    parts, problems = notes.documents(base.home.box)
    for problem in problems:
        LOG.warning("prompt document left out: %s", problem)
    return [*parts, *knowledge.skills.always()]
