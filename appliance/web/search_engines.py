"""Who searches the web for us: a SearXNG of one's own, Brave, or DuckDuckGo, all with one answer: a list of hits.

Owns the three wire formats and the check of their configuration. Every request goes through `fetch`. The engine's own
address is a person's choice and may be private; no hit is trusted. Keys go to their engine alone. Knows nothing
about models.
"""

import json
import re
from collections.abc import Callable, Iterable
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct

from appliance.errors import BadInput, ConfigError, OwlError, Unavailable
from appliance.records import Cancel
from appliance.text import urls
from appliance.web.fetch import Fetch, Want
from appliance.web.page_text import clean

PROVIDERS = ("searxng", "duckduckgo", "brave")
BRAVE = "https://api.search.brave.com/res/v1/web/search"
DUCKDUCKGO = "https://html.duckduckgo.com/html/"
TIMEOUT_S = 20.0
MAX_BYTES = 1 << 20
MAX_RESULTS = 50
TITLE_CHARS, SNIPPET_CHARS = 200, 400
KEY = "tools.web_search"
TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class WebHit(Struct, frozen=True):
    """One result."""

    title: str
    url: str
    snippet: str = ""


class Engine:
    """One way to search. `secret` gives a key by its name, at the moment of the search."""

    def __init__(
        self,
        fetch: Fetch,
        provider: str,
        *,
        url: str = "",
        key: str = "",
        secret: Callable[[str], str] | None = None,
        address: str = "",
    ) -> None:
        """ConfigError for an unknown provider and whatever it lacks; `address` stands in for a provider's own."""
        if provider not in PROVIDERS:
            text = f"{KEY}.provider = {provider!r}: nobody searches so"
            raise ConfigError(text, key=f"{KEY}.provider", hint=f"use {', '.join(PROVIDERS)}")
        if provider == "searxng" and not url:
            text = f"{KEY}.url is empty: searxng needs the address of an instance"
            raise ConfigError(text, key=f"{KEY}.url", hint='such as "http://localhost:8888"')
        if provider == "brave" and not key:
            raise ConfigError(f"{KEY}.key is empty: brave needs a key", key=f"{KEY}.key", hint="get one at brave.com/search/api")
        if key.startswith("secret:") and secret is None and provider == "brave":
            raise ConfigError(
                f"{KEY}.key names a secret, and there is nobody to ask for it", key=f"{KEY}.key", hint="give the key itself"
            )
        self.provider = provider
        self._fetch = fetch
        self._key = key
        self._secret = secret
        own = {"searxng": url.rstrip("/").removesuffix("/search") + "/search", "brave": BRAVE, "duckduckgo": DUCKDUCKGO}
        self._address = address or own[provider]
        try:
            urls.parse(self._address)
        except OwlError as error:
            raise ConfigError(f"{KEY}.url: {error.message}", key=f"{KEY}.url", hint=error.hint) from None

    def search(self, query: str, count: int, *, session: str, run: str = "", cancel: Cancel | None = None) -> list[WebHit]:
        """At most `count` hits, best first; an empty list is an answer, an engine that has none is an error."""
        words = " ".join(query.split())
        if not words:
            raise BadInput("the query is empty", hint="say what to look for", outcome="invalid_arguments")
        asked, headers = {"q": words}, {}
        if self.provider == "searxng":
            asked["format"] = "json"
        elif self.provider == "brave":
            asked["count"] = "20"  # the most: how many a model wants could say something
            headers["X-Subscription-Token"] = self._given_key()
        accept = "text/html" if self.provider == "duckduckgo" else "application/json"
        # Only an instance of one's own may be where nothing else may be reached.
        trusted = self._address if self.provider == "searxng" else ""
        want = Want(headers=headers, accept=accept, trusted=trusted)
        url = f"{self._address}?{urlencode(asked)}"
        get = self._fetch.get
        found = get(url, session=session, run=run, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES, cancel=cancel, want=want)
        if found.status != 200:
            text = f"{self.provider} answered {found.status} {found.reason}".strip()
            raise Unavailable(text, hint=self._suggest_remedy(found.status), outcome="http_error").saying("web", found.url)
        hits = _parse_duckduckgo(found.body) if self.provider == "duckduckgo" else self._parse_json(found.body)
        return _distinct_hits(hits)[: min(max(count, 1), MAX_RESULTS)]

    def _given_key(self) -> str:
        if self._key.startswith("secret:") and self._secret is not None:
            return self._secret(self._key.removeprefix("secret:"))
        return self._key

    def _suggest_remedy(self, status: int) -> str:
        if self.provider == "searxng" and status == 403:
            return "the instance must allow json among search.formats in its settings.yml"
        if status in (401, 403) and self.provider == "brave":
            return f"check {KEY}.key"
        return "try again later" if status in (202, 429) or status >= 500 else "ask the person to check the search engine"

    def _parse_json(self, body: bytes) -> list[WebHit]:
        try:
            told: Any = json.loads(body)
            listed = told["results"] if self.provider == "searxng" else (told.get("web") or {}).get("results", [])
            snippet = "content" if self.provider == "searxng" else "description"
            return [WebHit(_plain_line(r.get("title")), str(r.get("url") or ""), _plain_line(r.get(snippet))) for r in listed]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise Unavailable(f"{self.provider} gave an answer that is not a list of results", hint="try again later") from None


def _parse_duckduckgo(body: bytes) -> list[WebHit]:
    page = _Results()
    page.feed(body.decode("utf-8", "replace"))
    page.close()
    if not page.hits and b"anomaly" in body:
        raise Unavailable("duckduckgo takes us for a robot and shows no results", hint="try again later, or use another engine")
    return page.hits


class _Results(HTMLParser):
    """The hits of DuckDuckGo's page without scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hits: list[WebHit] = []
        self._into = ""
        self._words: list[str] = []
        self._url = ""
        self._is_ad = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A link or a box opens."""
        given = dict(attrs)
        names = (given.get("class") or "").split()
        if "result" in names:
            self._is_ad = "result--ad" in names
        if tag == "a" and "result__a" in names and not self._is_ad:
            self._into, self._words, self._url = "title", [], _direct_address(given.get("href") or "")
        elif "result__snippet" in names and not self._is_ad and self.hits:
            self._into, self._words = "snippet", []

    def handle_endtag(self, tag: str) -> None:
        """A link or a box closes."""
        if self._into == "title" and tag == "a":
            self.hits.append(WebHit(_plain_line("".join(self._words)), self._url))
            self._into = ""
        elif self._into == "snippet" and tag in ("a", "div", "td"):
            self.hits[-1] = WebHit(self.hits[-1].title, self.hits[-1].url, _plain_line("".join(self._words)))
            self._into = ""

    def handle_data(self, data: str) -> None:
        """Words of a title or a snippet."""
        if self._into:
            self._words.append(data)


def _direct_address(href: str) -> str:
    """The address that a link of DuckDuckGo's leads to in the end."""
    try:
        parts = urlsplit(href)
        return parse_qs(parts.query).get("uddg", [href])[0]
    except ValueError:
        return ""


def _plain_line(value: object) -> str:
    """A text of an engine as one line, without markup."""
    text = value if isinstance(value, str) else ""
    return " ".join(clean(unescape(TAG.sub("", text[:4000]))).split())


def _distinct_hits(hits: Iterable[WebHit]) -> list[WebHit]:
    """Each page once, in the form in which it can be fetched; what is none is left out."""
    found: dict[str, WebHit] = {}
    for hit in hits:
        try:
            url = urls.parse(hit.url).url
        except OwlError:
            continue
        title = hit.title[:TITLE_CHARS] or url
        found.setdefault(url, WebHit(title, url, hit.snippet[:SNIPPET_CHARS]))
    return list(found.values())
