"""News, from feeds of RSS (0.9 to 2.0) and Atom: their titles, for the briefing and for questions.

Fetched at intervals and when somebody asks. A title is what a stranger wrote: one plain line without markup, shown with its feed,
and the conversation that shows it is marked. Articles and pictures are not fetched, links are not shown. Not kept over a restart.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Annotated
from xml.etree.ElementTree import Element

from appliance.channels.lookups import FetchConfigured, Lookup
from appliance.clock import CancelToken, monotonic_s, now_ms
from appliance.errors import BadInput, Cancelled, ConfigError, OwlError, Unavailable
from appliance.knowledge.lookups import NewsItem
from appliance.records import Cancel
from appliance.text import safe_xml
from appliance.text.plain_line import plain_line

MAX_BYTES, MAX_FEEDS, MAX_ITEMS, MAX_TITLE = 2 * 1024 * 1024, 30, 100, 200
ALL_S = 20.0  # for all feeds together, when somebody waits
SECRET = "secret:"


class Feeds(Lookup):
    """The configured feeds."""

    def __init__(self, feeds: Mapping[str, str], every_min: int, secret: Callable[[str], str], fetch: FetchConfigured) -> None:
        super().__init__(fetch)
        self._feeds = dict(list(feeds.items())[:MAX_FEEDS])
        self.every_s = self._fresh_s = every_min * 60.0
        self._secret = secret

    def refresh(self, cancel: Cancel) -> None:
        """Fetch them; fails where none can be fetched."""
        _, problems = self.news(cancel)
        if len(problems) == len(self._require_feeds()):
            raise Unavailable(next(iter(problems.values())))

    def names(self) -> list[str]:
        """What the feeds are called."""
        return list(self._feeds)

    def news(self, cancel: Cancel) -> tuple[list[NewsItem], dict[str, str]]:
        """The items of all feeds, the newest first, each title once; and what is wrong with which feed."""
        self._require_feeds()
        found: list[NewsItem] = []
        problems: dict[str, str] = {}
        by_s = monotonic_s() + ALL_S
        for name, address in self._feeds.items():
            try:
                if monotonic_s() > by_s:
                    raise Unavailable("there was no time for it", hint="try again")
                found += self.keep(name, self._fresh_s, partial(self._ask_feed, name, address, cancel))[0]
            except Cancelled:
                raise
            except OwlError as error:
                problems[name] = f"{name}: {error.message}"
        found.sort(key=lambda one: -one.at_ms)
        return list({one.title.casefold(): one for one in reversed(found)}.values())[::-1], problems

    def check(self) -> list[str]:
        """Fetch each of them."""
        return [f"{name}: {len(self._ask_feed(name, url, CancelToken()))} titles" for name, url in self._require_feeds().items()]

    def _require_feeds(self) -> Mapping[str, str]:
        if not self._feeds:
            hint = """owlbox config set channels.feeds.feeds '{"NAME": "https://..."}'"""
            raise ConfigError("channels.feeds.feeds has no feed", key="channels.feeds.feeds", hint=hint)
        return self._feeds

    def _ask_feed(self, name: str, address: str, cancel: Cancel) -> list[NewsItem]:
        url = self._secret(address.removeprefix(SECRET)) if address.startswith(SECRET) else address
        return read_feed(self.ask(url, cancel, MAX_BYTES), name)


def read_feed(data: bytes, name: str) -> list[NewsItem]:
    """The items of a feed; Unavailable for what is none."""
    root = safe_xml.parse(data, name)
    if _local(root) not in ("rss", "RDF", "feed"):
        raise Unavailable(f"{name} is no feed of RSS or Atom", hint="is it the address of the feed, not of its page?")
    items = [one for one in root.iter() if _local(one) in ("item", "entry")][:MAX_ITEMS]
    found = [NewsItem(plain_line(_text(item, "title"), MAX_TITLE), name, _time(item)) for item in items]
    return [one for one in found if one.title]


def _local(element: Element) -> str:
    """The name of an element without its namespace, in which versions of RSS differ."""
    return element.tag.rpartition("}")[2]


def _text(item: Element, *names: str) -> str:
    """The text of the first child of one of these names."""
    known = {_local(one): one for one in reversed(list(item))}
    found = next((known[name] for name in names if name in known), None)
    return "" if found is None else "".join(found.itertext())


def _time(item: Element) -> int:
    """When an item was published, in ms and never later than now; 0 where it does not say so."""
    text = _text(item, "pubDate", "published", "updated", "date").strip()[:64]
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = read(text)
            at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
            return max(0, min(int(at.timestamp() * 1000), now_ms()))
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return 0


def connect(
    feeds: Annotated[dict[str, str], "feeds by name: tagesschau = 'https://…/feed.xml', or 'secret:…'"] = {},  # noqa: B006
    every_min: Annotated[int, "minutes between two looks"] = 60,
    *,
    secret: Callable[[str], str],
    fetch_configured: FetchConfigured,
) -> Feeds:
    """The feeds of this table."""
    if not 5 <= every_min <= 1440:
        raise BadInput(f"every_min: {every_min} is not between 5 and 1440", hint="60 is usual")
    if len(feeds) > MAX_FEEDS:
        raise BadInput(f"feeds: {len(feeds)} are more than {MAX_FEEDS}", hint="leave some out")
    return Feeds(feeds, every_min, secret, fetch_configured)
