"""Builds what reaches servers of tools and the web, and takes in what is fetched there; the first call starts a server.

Owns what the keys of `tools.web` mean to `web.fetch`, `web.hosts` and `web.search_engines`, and how an added page is fetched.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from appliance.channels.connections import connect
from appliance.ingest import pipeline
from appliance.ingest.receiver import Intake
from appliance.knowledge.entries import Entries
from appliance.knowledge.indexer import embedding
from appliance.knowledge.lookups import Lookups
from appliance.knowledge.views import Views
from appliance.mcp.bridge_client import BridgeClient
from appliance.mcp.hub import Hub, HubParts
from appliance.mcp.offers import Offers
from appliance.mcp.page_loader import PageLoader
from appliance.records import Cancel
from appliance.runtime.host_lookup import Resolve, look_up
from appliance.runtime.tool_settings import ToolSettings
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.policy import PolicyParts
from appliance.store.database import Store
from appliance.web import fetch, hosts
from appliance.web.fetch import Fetch, FetchCaps, Note, Visits, Want, check_found
from appliance.web.git_fetch import SkillFetch
from appliance.web.hosts import HostRules
from appliance.web.page_text import Readable
from appliance.web.result_pages import Harvest
from appliance.web.search_engines import Engine

ADDING = "adding"  # the session whose minute the pages count in that people add
CONFIGURED = "configured"  # as which addresses of the configuration are fetched
FILE_S = 30.0  # for one of them


class WebContext(Struct, frozen=True):
    """What the parts need of a core: its store, where audit rows go, what a child may know, who knows secrets."""

    store: Store
    entries: Entries
    views: Views
    environ: Mapping[str, str]
    note: Note
    secret: Callable[[str], str] | None = None
    resolve: Resolve = look_up


class WebAccess:
    """What there is of the web in one process."""

    def __init__(self, given: WebContext, tools: ToolSettings) -> None:
        """ConfigError for a search engine that cannot be asked and for hosts and networks that are none."""
        keys = tools.web
        caps = FetchCaps(keys.requests_per_minute, max_s=keys.timeout_s)
        cache = Visits(given.store)
        self.fetch = Fetch(rules(tools), caps=caps, note=given.note, cache=cache, resolve=given.resolve)
        self.skills = SkillFetch(self.fetch)
        self.readable = Readable(given.environ)
        self.harvest = Harvest(self.fetch, self.readable, given.entries, given.views)
        self.engine = engine(self.fetch, tools, given.secret)

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        found = {"fetch": self.fetch, "readable": self.readable, "harvest": self.harvest}
        return found if self.engine is None else {**found, "engine": self.engine}

    def reload(self, tools: ToolSettings) -> None:
        """Take changed lists of hosts and networks into use; ConfigError leaves everything as it was."""
        self.fetch.use(rules(tools))

    def page(self, url: str) -> pipeline.FetchedPage:
        """A page or a file that a person adds, of any type and whole."""
        found = check_found(self.fetch.get(url, session=ADDING, timeout_s=FILE_S, max_bytes=1 << 30, want=Want(kind="file")))
        return pipeline.FetchedPage(found.body, found.content_type, found.charset)

    def configured(
        self, url: str, cancel: Cancel, *, headers: Mapping[str, str] | None = None, body: bytes | None = None, most: int = 1 << 24
    ) -> fetch.Fetched:
        """What is at an address that a person configured, also within this network; where it redirects to is judged."""
        want = Want("file", headers or {}, trusted=url, body=body, is_secret=True)
        return self.fetch.get(url, session=CONFIGURED, timeout_s=FILE_S, max_bytes=most, cancel=cancel, want=want)

    def file(self, url: str, cancel: Cancel) -> bytes:
        """The same of a file, whole."""
        return check_found(self.configured(url, cancel)).body


def rules(tools: ToolSettings) -> HostRules:
    """The addresses that may be reached, from the configuration."""
    keys = tools.web
    return hosts.rules(keys.block_hosts, keys.allow_hosts, keys.private_networks)


def engine(through: fetch.Fetch, tools: ToolSettings, secret: Callable[[str], str] | None = None) -> Engine | None:
    """The search engine that is configured, None when searching is switched off."""
    keys = tools.web_search
    return Engine(through, keys.provider, url=keys.url, key=keys.key, secret=secret) if keys.enabled else None


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
    lookups: Lookups

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {**self.web.services(), "intake": self.intake, "lookups": self.lookups}


def build_web(base: BaseParts, policy: PolicyParts, models: ModelParts, knowledge: KnowledgeParts, servers: McpServers) -> WebParts:
    """A page that somebody adds is loaded through servers of tools where there are any."""
    given = WebContext(base.store, knowledge.entries, knowledge.views, base.environ, policy.ledger.note, models.vault.get)
    web = WebAccess(given, base.settings().tools)
    load = PageLoader(servers.hub, models.models, web.page, models.local.is_able).page
    services = {"secret": models.vault.get, "fetch_configured": web.configured}
    lookups = Lookups(lambda: base.settings().channels, connect, services)
    return WebParts(web, Intake(knowledge.sources, base.home, base.environ, fetch=load, load=load), lookups)
