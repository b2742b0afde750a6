"""Builds what reaches the web and takes in what is fetched there."""

from typing import Any

from msgspec import Struct

from appliance.ingest.receiver import Intake
from appliance.mcp.page_loader import PageLoader
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.mcp_servers import McpServers
from appliance.service.parts.models import ModelParts
from appliance.service.parts.policy import PolicyParts
from appliance.web.web_tools import Web, WebContext


class WebParts(Struct, frozen=True):
    """The web, and what adds pages and files to what is known."""

    web: Web
    intake: Intake

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {**self.web.services(), "intake": self.intake}


def build_web(base: BaseParts, policy: PolicyParts, models: ModelParts, knowledge: KnowledgeParts, servers: McpServers) -> WebParts:
    """A page that somebody adds is loaded through servers of tools where there are any."""
    given = WebContext(base.store, knowledge.entries, knowledge.views, base.environ, policy.ledger.note, models.vault.get)
    web = Web(given, base.settings().tools)
    load = PageLoader(servers.hub, models.models, web.page, models.local.is_able).page
    return WebParts(web, Intake(knowledge.sources, base.home, base.environ, fetch=load, load=load))
