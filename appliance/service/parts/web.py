"""Builds what reaches servers of tools and the web, and takes in what is fetched there; the first call starts a server."""

import os
from typing import Any

from msgspec import Struct

from appliance.ingest.receiver import Intake
from appliance.knowledge.indexer import embedding
from appliance.mcp.bridge_client import BridgeClient
from appliance.mcp.hub import Hub, HubParts
from appliance.mcp.offers import Offers
from appliance.mcp.page_loader import PageLoader
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.policy import PolicyParts
from appliance.web.web_tools import WebAccess, WebContext


class McpServers:
    """The servers of tools of one core."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"mcp": self.hub}

    def close(self) -> None:
        """End every server; safe at any time, also twice."""
        self.hub.close()


def build_mcp_servers(base: BaseParts, policy: PolicyParts, models: ModelParts) -> McpServers:
    """The hub of the configured servers; `appliance.mcp.tools` offers their tools once there is a toolbox."""
    socket = base.runtime / f"bridge-{os.getpid()}.sock"
    ferry = BridgeClient(socket, base.environ, base.home.logs / "bridge", lambda: base.settings().tools.mcp_idle_s)
    parts = HubParts(base.home, base.environ, Offers(base.store), ferry, models.vault, policy.ledger.note, base.events)
    return McpServers(Hub(parts, base.settings, embedding(models.models, models.patient, lambda: False)))


class WebParts(Struct, frozen=True):
    """The web, and what adds pages and files to what is known."""

    web: WebAccess
    intake: Intake

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {**self.web.services(), "intake": self.intake}


def build_web(base: BaseParts, policy: PolicyParts, models: ModelParts, knowledge: KnowledgeParts, servers: McpServers) -> WebParts:
    """A page that somebody adds is loaded through servers of tools where there are any."""
    given = WebContext(base.store, knowledge.entries, knowledge.views, base.environ, policy.ledger.note, models.vault.get)
    web = WebAccess(given, base.settings().tools)
    load = PageLoader(servers.hub, models.models, web.page, models.local.is_able).page
    return WebParts(web, Intake(knowledge.sources, base.home, base.environ, fetch=load, load=load))
