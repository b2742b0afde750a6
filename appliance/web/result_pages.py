"""Pages behind search results, kept as entries of the run that searched: there to be read, not in its way.

Owns what a prefetched page looks like to a run: data under its own URL, summarized, with no record of a `get` that
nobody made (R-103). A page that cannot be had is left out: the search does not fail for it. Knows nothing about
search engines.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from appliance.errors import OwlError
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import Entries
from appliance.knowledge.views import MAX_SUMMARY, Actor, Views
from appliance.records import Cancel
from appliance.text.references import MAX_PATH
from appliance.web.fetch import Fetch, check_found
from appliance.web.page_text import Readable
from appliance.web.search_engines import WebHit

LOG = logging.getLogger(__name__)
MAX_CHARS = 100_000  # of one page
ORIGIN = "web"


class Harvest:
    """Fetches pages for runs."""

    def __init__(self, fetch: Fetch, readable: Readable, entries: Entries, views: Views, count: int = 3) -> None:
        """`count` pages of a search are fetched."""
        self._fetch = fetch
        self._readable = readable
        self._entries = entries
        self._views = views
        self._count = count

    def gather(self, hits: Sequence[WebHit], actor: Actor, *, session: str, timeout_s: float, cancel: Cancel) -> list[str]:
        """Keep what the first hits say as entries of the actor's run; their paths, those that came in time."""
        chosen = [hit for hit in hits if len(hit.url) <= MAX_PATH][: self._count]
        if not chosen or not actor.run:
            return []
        with ThreadPoolExecutor(len(chosen), thread_name_prefix="harvest") as pool:
            texts = list(pool.map(lambda hit: self._fetch_text(hit, session, actor.run, timeout_s, cancel), chosen))
        return [path for hit, text in zip(chosen, texts) if text and (path := self._store_page(hit, text, actor))]

    def _fetch_text(self, hit: WebHit, session: str, run: str, timeout_s: float, cancel: Cancel) -> str:
        try:
            found = self._fetch.get(hit.url, session=session, run=run, timeout_s=timeout_s, cancel=cancel)
            return self._readable.words(check_found(found)).text[:MAX_CHARS]
        except OwlError as error:
            LOG.info("not prefetched: %s", error, extra={"url": hit.url})
            return ""

    def _store_page(self, hit: WebHit, text: str, actor: Actor) -> str:
        scope = f"run:{actor.run}"
        content = Content(body=text, title=hit.title, source_url=hit.url, attributes={"origin": ORIGIN, "snippet": hit.snippet})
        try:
            entry = self._entries.put(hit.url, content, By("plugin", actor.run), scope=scope)
            self._views.show(actor, entry.id, "summarized")
            self._views.summarize(actor, [entry.id], (hit.snippet or hit.title)[:MAX_SUMMARY])
        except OwlError as error:
            LOG.warning("not kept: %s", error, extra={"url": hit.url})
            return ""
        return entry.path
