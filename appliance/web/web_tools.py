"""The web's parts tied together: what the core builds once, and hands to tools and to whoever adds pages.

Owns what the configuration keys mean to `fetch`, `hosts` and `web.search_engines`, and how an added page is fetched. Knows
nothing about tools.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from appliance.ingest import pipeline
from appliance.knowledge.entries import Entries
from appliance.knowledge.views import Views
from appliance.runtime.host_lookup import Resolve, look_up
from appliance.runtime.tool_settings import ToolSettings
from appliance.store.database import Store
from appliance.web import fetch, hosts
from appliance.web.fetch import Fetch, FetchCaps, Note, Visits, Want, check_found
from appliance.web.git_fetch import SkillFetch
from appliance.web.hosts import HostRules
from appliance.web.page_text import Readable
from appliance.web.result_pages import Harvest
from appliance.web.search_engines import Engine

ADDING = "adding"  # the session whose minute the pages count in that people add
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


def rules(tools: ToolSettings) -> HostRules:
    """The addresses that may be reached, from the configuration."""
    keys = tools.web
    return hosts.rules(keys.block_hosts, keys.allow_hosts, keys.private_networks)


def engine(through: fetch.Fetch, tools: ToolSettings, secret: Callable[[str], str] | None = None) -> Engine | None:
    """The search engine that is configured, None when searching is switched off."""
    keys = tools.web_search
    return Engine(through, keys.provider, url=keys.url, key=keys.key, secret=secret) if keys.enabled else None
