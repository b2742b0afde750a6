"""Pages as they were fetched last, and what asks a server whether they still are so.

Owns the `fetches` table: bodies packed, a few hundred of them at most, those fetched longest ago going first. What is here
may be lost without harm. Knows nothing about HTTP.
"""

import zlib

from appliance.clock import now_ms
from appliance.store.database import Store
from appliance.web.fetch import Copy

MAX_PAGES = 300
MAX_BYTES = 16 * 1024 * 1024  # of all bodies, packed
DAY_MS = 24 * 3600 * 1000


class Visits:
    """The cache that `fetch` is given; `days` 0 keeps nothing."""

    def __init__(self, store: Store, days: float = 7) -> None:
        self._store = store
        self._days = days

    def find(self, url: str) -> Copy | None:
        """The page that was at a URL, None when it was not kept or too long ago."""
        row = self._store.row(
            "SELECT etag, modified, content_type, charset, body FROM fetches WHERE url = ? AND used_ms > ?",
            (url, now_ms() - round(self._days * DAY_MS)),
        )
        if row is None:
            return None
        etag, modified, content_type, charset, body = row
        return Copy(url, str(etag), str(modified), str(content_type), str(charset), zlib.decompress(bytes(body)))

    def keep(self, copy: Copy) -> None:
        """Keep a page in the place of what was at its URL; old ones make way."""
        if not self._days:
            return
        body, now = zlib.compress(copy.body, 6), now_ms()
        with self._store.write() as execute:
            execute(
                "INSERT INTO fetches (url, etag, modified, content_type, charset, body, used_ms) VALUES (?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (url) DO UPDATE SET etag = excluded.etag, modified = excluded.modified, "
                "content_type = excluded.content_type, charset = excluded.charset, body = excluded.body, "
                "used_ms = excluded.used_ms",
                (copy.url, copy.etag, copy.modified, copy.content_type, copy.charset, body, now),
            )
            self._crop(now)

    def forget(self) -> int:
        """Keep no page any longer; how many there were."""
        with self._store.write() as execute:
            return len(execute("DELETE FROM fetches RETURNING 1"))

    def _crop(self, now: int) -> None:
        with self._store.write() as execute:
            execute("DELETE FROM fetches WHERE used_ms <= ?", (now - round(self._days * DAY_MS),))
            execute(
                "DELETE FROM fetches WHERE url IN (SELECT url FROM (SELECT url, ROW_NUMBER() OVER newest AS place, "
                "SUM(LENGTH(body)) OVER newest AS size FROM fetches WINDOW newest AS (ORDER BY used_ms DESC, url)) "
                "WHERE place > ? OR size > ?)",
                (MAX_PAGES, MAX_BYTES),
            )
