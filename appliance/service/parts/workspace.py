"""Builds what changes entries: the workspace whose files some of them are, and the verbs."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.agent.loop_events import TurnStarting
from appliance.ingest.receiver import Intake
from appliance.ingest.workspace_sync import Project
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts


class WorkspaceParts(Struct, frozen=True):
    """The files that are followed, and the verbs on entries."""

    project: Project
    verbs: Verbs

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"verbs": self.verbs}


def build_workspace(base: BaseParts, knowledge: KnowledgeParts, intake: Intake) -> WorkspaceParts:
    """A run that is shown its entries sees the workspace at the beginning of each turn as it is then."""
    folder = base.settings().sandbox.workspace
    root = Path(folder).expanduser() if folder else None
    project = Project(root, base.store, knowledge.sources, intake.gather, closed=[base.home.root])

    def follow(starting: TurnStarting) -> None:
        run, terms = starting.run, starting.terms
        if terms.layout == "entries":
            project.before_turn(Actor("plugin", run, *base.runs.moment(run)), has_repo=terms.has_repo)

    base.events.subscribe(TurnStarting, follow)
    limit = base.settings().budget.entry_token_limit
    of_entries = (base.store, knowledge.entries, knowledge.views, knowledge.schemes)
    return WorkspaceParts(project, Verbs(*of_entries, files=project, knowledge_tokens=limit))
