"""Builds what a model is sent: the packet, its budget, summaries of what was said, and copies to look at."""

from typing import Any

from msgspec import Struct

from appliance.agent.capabilities import Capabilities
from appliance.ingest.prompt_documents import ShownDocuments
from appliance.prompt.budget import Budget, BudgetRows
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

LOGGED = 400  # newest events of a run that its log may be made of


class PromptParts(Struct, frozen=True):
    """What is sent, and what keeps it small."""

    blocks: Blocks
    packets: Packets
    copies: Copies
    compactor: Compactor
    budget: Budget
    capabilities: Capabilities

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"capabilities": self.capabilities}


def build_prompt(base: BaseParts, models: ModelParts, knowledge: KnowledgeParts) -> PromptParts:
    """A reloaded configuration holds from the next packet on."""
    settings = base.settings()

    def read_branch(run: str) -> list[Event]:
        """The events on the branch of a run."""
        return base.runs.record.path(base.runs.get(run).head, kinds=SPOKEN, limit=LOGGED)

    def count_tokens(route: Route, ask: Ask) -> int:
        """Tokens of a prompt, as the broker counts them on what it is sent."""
        return models.models.measure(route, ask).total

    blocks = Blocks(base.store, knowledge.entries, knowledge.schemes, settings.budget.token_divisor, base.hooks)
    shown = ShownDocuments(base.home.box)

    def read_documents() -> list[Part]:
        """The documents of box/ that every prompt begins with, and skills that are always shown."""
        return [*shown.present(), *knowledge.skills.always()]

    more = More(base.hooks, blocks, Chronicle(base.store, read_branch), shown, str(base.home.box))
    packets = Packets(read_documents, knowledge.finder, knowledge.skills, more=more)
    copies = Copies(base.store, settings.runs.copies)

    def use(settings: Config) -> None:
        packets.configure(settings.prompt, settings.budget, knowledge.history.owners, settings.system.timezone)
        blocks.configure(settings.budget.token_divisor)
        copies.configure(settings.runs.copies)

    use(settings)
    base.events.subscribe(ConfigReloaded, lambda reloaded: use(reloaded.settings))
    compactor = Compactor(base.runs, models.models)
    rows = BudgetRows(knowledge.views, knowledge.entries, copies)
    budget = Budget(packets, rows, count=count_tokens, full=compactor.start)
    capabilities = Capabilities(models.models, lambda: base.settings().models.pool, models.local.is_able)
    return PromptParts(blocks, packets, copies, compactor, budget, capabilities)
