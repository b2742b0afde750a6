"""The only way out to the web: one GET after another, each to an address that was checked, none for longer than allowed.

Owns what every request goes through: the URL and every redirect are judged by `hosts`, a name is resolved once and
all its addresses are judged, the connection goes to a judged address and nowhere else. Redirects, bytes (as they are
after unpacking), time and requests per minute are limited. No proxy of the environment, no cookies, no credentials.
Each request is noted. Pages that can be asked about again are kept in the table `fetches`, a few hundred at most. Knows
nothing about models, nor what a page says. Not promised: that a URL of a public server carries no secret out.
"""

import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance import __version__
from appliance.clock import monotonic_s, now_ms
from appliance.errors import NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.records import Cancel
from appliance.runtime.host_lookup import SLICE_S, Deadline, Resolve, look_up
from appliance.store.database import Store
from appliance.text import urls
from appliance.text.urls import Target
from appliance.web import addresses
from appliance.web.hosts import HostRules

if TYPE_CHECKING:
    from appliance.runtime.http_client import Answer, HttpSession

REDIRECTS = (301, 302, 303, 307, 308)
WIDE = (b"\xff\xfe", b"\xfe\xff")  # how texts begin that have zero bytes in them
MINUTE_S = 60.0
DAY_MS = 24 * 3600 * 1000
MAX_KEPT, MAX_KEPT_BYTES = 300, 16 * 1024 * 1024  # pages of the cache, and bytes of all their bodies, packed
FILE_S = 300.0  # for a document that a person adds
TEXTUAL = (
    "application/json application/xml application/javascript application/x-javascript application/ecmascript application/yaml "
    "application/x-yaml application/toml application/x-ndjson application/x-sh application/sql application/graphql"
).split()
ACCEPT = "text/html,application/xhtml+xml,text/plain,application/json;q=0.9,*/*;q=0.5"

Note = Callable[..., None]  # an audit's `note(kind, severity=, session=, run=, rule=, detail=)`


class FetchCaps(Struct, frozen=True):
    """Upper limits that no caller can exceed."""

    per_minute: int = 60  # requests of one session
    at_once: int = 10
    max_redirects: int = 5
    max_bytes: int = 1 << 20
    file_bytes: int = 16 << 20  # of a document that a person adds
    max_s: float = 30.0


class Want(Struct, frozen=True):
    """What a request wants beside the page: `headers` go to the URL's own origin only, never along with a redirect.

    `kind` "file" takes any type, whole or not at all. `trusted` is one origin that a person configured, which may be
    reached wherever it is; what it redirects to is judged like everything else. With a `body` it is a POST, which no redirect
    repeats.
    """

    kind: Literal["text", "file"] = "text"
    headers: Mapping[str, str] = {}
    trusted: str = ""
    accept: str = ACCEPT
    body: bytes | None = None
    is_secret: bool = False  # whoever knows the address may read what is there: it is not noted

    @property
    def is_plain(self) -> bool:
        """Whether the answer is a page as anybody gets it."""
        return self.body is None and self.kind == "text" and not self.headers and self.accept == ACCEPT


class Fetched(Struct, frozen=True):
    """An answer: `url` is where the last redirect led, `hops` every URL that was asked, `headers` have lower-case names."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes
    content_type: str = ""
    charset: str = ""
    is_cut: bool = False
    hops: tuple[str, ...] = ()
    from_cache: bool = False
    reason: str = ""


class CachedPage(Struct, frozen=True):
    """A page as it was, and what asks whether it still is so."""

    url: str
    etag: str
    modified: str
    content_type: str
    charset: str
    body: bytes


class Visits:
    """Pages as they were fetched last, in the table `fetches`; what is there may be lost without harm. `days` 0 keeps nothing."""

    def __init__(self, store: Store, days: float = 7) -> None:
        self._store = store
        self._days = days

    def find(self, url: str) -> CachedPage | None:
        """The page that was at a URL, None when it was not kept or too long ago."""
        row = self._store.row(
            "SELECT etag, modified, content_type, charset, body FROM fetches WHERE url = ? AND used_ms > ?",
            (url, now_ms() - round(self._days * DAY_MS)),
        )
        if row is None:
            return None
        etag, modified, content_type, charset, body = row
        return CachedPage(url, str(etag), str(modified), str(content_type), str(charset), zlib.decompress(bytes(body)))

    def store_copy(self, copy: CachedPage) -> None:
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
            self._remove_old(now)

    def forget(self) -> int:
        """Keep no page any longer; how many there were."""
        with self._store.write() as execute:
            return len(execute("DELETE FROM fetches RETURNING 1"))

    def _remove_old(self, now: int) -> None:
        with self._store.write() as execute:
            execute("DELETE FROM fetches WHERE used_ms <= ?", (now - round(self._days * DAY_MS),))
            execute(
                "DELETE FROM fetches WHERE url IN (SELECT url FROM (SELECT url, ROW_NUMBER() OVER newest AS place, "
                "SUM(LENGTH(body)) OVER newest AS size FROM fetches WINDOW newest AS (ORDER BY used_ms DESC, url)) "
                "WHERE place > ? OR size > ?)",
                (MAX_KEPT, MAX_KEPT_BYTES),
            )


PAGE = Want()


class Fetch:
    """Fetches for sessions. One for a whole process: its limits are of all callers together."""

    def __init__(
        self,
        rules: HostRules,
        *,
        caps: FetchCaps | None = None,
        note: Note = lambda kind, **about: None,
        cache: Visits | None = None,
        resolve: Resolve = look_up,
        authorities: Path | None = None,
    ) -> None:
        """`rules` and `authorities` (a file of certificates, beside the system's) are set by a person alone."""
        self._rules = rules
        self._caps = caps or FetchCaps()
        self._note = note
        self._cache = cache
        self._resolve = resolve
        self._authorities = authorities
        self._session: HttpSession | None = None
        self._guard = threading.Lock()
        self._free = threading.BoundedSemaphore(self._caps.at_once)
        self._asked: dict[str, deque[float]] = {}

    def use(self, rules: HostRules) -> None:
        """Other rules from now on; requests that run already go on."""
        self._rules = rules

    def get(
        self,
        url: str,
        *,
        session: str,
        run: str = "",
        timeout_s: float = 20.0,
        max_bytes: int = 1 << 19,
        cancel: Cancel | None = None,
        want: Want = PAGE,
    ) -> Fetched:
        """The page at a URL, whatever its status; an error of our tree when there is none to be had. Noted either way."""
        started_s = monotonic_s()
        about: dict[str, Any] = {"url": urls.parse(url).origin if want.is_secret else url[: urls.MAX_URL]}
        most_s, most = (self._caps.max_s, self._caps.max_bytes) if want.kind == "text" else (FILE_S, self._caps.file_bytes)
        deadline = Deadline(started_s + min(max(timeout_s, 0.05), most_s), f"fetching {url[:200]!r}", cancel)
        limit = min(max(1, max_bytes), most)
        try:
            found = self._get_page(url, session, deadline, limit, want, about)
        except OwlError as error:
            self._log_fetch(session, run, about, started_s, error)
            if (
                "address" in about and not want.is_secret
            ):  # where it redirects to, what it calls its page: from then on an error quotes a stranger
                error.saying("web", url[: urls.MAX_URL])
            raise
        about |= {"to": found.url} if len(found.hops) > 1 and not want.is_secret else {}
        about |= {"status": found.status, "bytes": len(found.body), "type": found.content_type, "hops": len(found.hops)}
        self._log_fetch(session, run, about | ({"cached": True} if found.from_cache else {}), started_s)
        return found

    def check(self, url: str) -> Target:
        """What an address means, if it may be reached: without TLS only in a network that a person allowed. Nothing is asked.

        The path may be a secret: no error shows it.
        """
        target = urls.parse(url)
        self._rules.check(urls.parse(target.origin))
        is_near = target.address is not None and any(target.address in network for network in self._rules.networks)
        if target.scheme != "https" and not is_near:
            raise Refused(f"{target.origin} is not encrypted", hint="give an address that begins with https")
        return target

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, session: str, timeout_s: float = 15.0) -> tuple[int, str]:
        """Post to an address that is a secret itself; the status, and for how long to wait then. Noted without its path.

        Nothing of the answer is read but its head, and no redirect is followed.
        """
        target, started_s = urls.parse(url), monotonic_s()
        about: dict[str, Any] = {"url": target.origin, "method": "POST"}

        def judge(found: list[str]) -> None:
            addresses.check(self._rules, urls.parse(target.origin), found)
            about["address"] = found[0]

        deadline = Deadline(started_s + timeout_s, f"posting to {target.origin}")
        try:
            self.check(url)
            self._count_request(session)
            while not self._free.acquire(timeout=min(SLICE_S, deadline.left_s())):
                pass
            try:
                with self._open_session().ask(target, headers, body, by=deadline, judge=judge) as answer:
                    status, after = answer.status_code, answer.headers.get("retry-after", "")
            finally:
                self._free.release()
        except OwlError as error:
            self._log_fetch(session, "", about, started_s, error)
            raise
        self._log_fetch(session, "", about | {"status": status}, started_s)
        return status, after

    # -- limits -------------------------------------------------------------------------------------

    def _log_fetch(self, session: str, run: str, about: dict[str, Any], started_s: float, error: OwlError | None = None) -> None:
        about["ms"] = round(1000 * (monotonic_s() - started_s))
        is_refused = isinstance(error, Refused) or (error is not None and error.outcome == "rate_limited")
        if error is not None:
            about["error"] = error.message
        rule = error.outcome if error is not None and is_refused else ""
        self._note("fetch", severity="warning" if is_refused else "info", session=session, run=run, rule=rule, detail=about)

    def _count_request(self, session: str) -> None:
        """One request more of this session; Unavailable when it had too many within a minute."""
        now_s = monotonic_s()
        with self._guard:
            for name in [name for name, times in self._asked.items() if times[-1] < now_s - MINUTE_S]:
                del self._asked[name]
            times = self._asked.setdefault(session, deque(maxlen=self._caps.per_minute))
            if len(times) == self._caps.per_minute and times[0] > now_s - MINUTE_S:
                wait_s = round(times[0] + MINUTE_S - now_s) + 1
                text = f"more than {self._caps.per_minute} web requests in a minute"
                raise Unavailable(text, hint=f"wait {wait_s} s, or ask for less", outcome="rate_limited")
            times.append(now_s)

    # -- a request ----------------------------------------------------------------------------------

    def _get_page(self, url: str, session: str, deadline: Deadline, limit: int, want: Want, about: dict[str, Any]) -> Fetched:
        target = urls.parse(url)
        self._check_target(target, want)  # what is refused anyway costs nothing of the minute
        if want.kind == "text":
            self._count_request(session)  # what a person adds is no part of a conversation
        while not self._free.acquire(timeout=min(SLICE_S, deadline.left_s())):
            pass
        try:
            return self._follow_redirects(target, deadline, limit, want, about)
        finally:
            self._free.release()

    def _follow_redirects(self, target: Target, deadline: Deadline, limit: int, want: Want, about: dict[str, Any]) -> Fetched:
        hops: list[str] = []
        headers, origin = want.headers, target.origin
        while True:
            self._check_target(target, want)
            hops.append(target.url)
            if target.origin != origin:
                headers = {}
            found = self._ask_server(target, deadline, limit, replace(want, headers=headers), about)
            if isinstance(found, Fetched):
                return replace(found, hops=tuple(hops))
            if want.body is not None:
                raise Unavailable(f"{hops[0]} redirects what was sent to it", hint="name where it leads", outcome="bad_redirect")
            if len(hops) > self._caps.max_redirects:
                raise Unavailable(
                    f"{hops[0]} redirects more than {self._caps.max_redirects} times",
                    hint="fetch another page",
                    outcome="too_many_redirects",
                )
            target = urls.follow(target, found)

    def _check_target(self, target: Target, want: Want) -> None:
        if not self._is_trusted(target, want):
            self._rules.check(target)

    @staticmethod
    def _is_trusted(target: Target, want: Want) -> bool:
        return bool(want.trusted) and urls.parse(want.trusted).origin == target.origin

    def _ask_server(self, target: Target, deadline: Deadline, limit: int, want: Want, about: dict[str, Any]) -> Fetched | str:
        """The answer of one server, or where it redirects to."""
        known = self._cache.find(target.url) if self._cache is not None and want.is_plain else None

        def judge(found: list[str]) -> None:
            if not self._is_trusted(target, want):
                addresses.check(self._rules, target, found)
            about["address"] = found[0]

        with self._open_session().ask(target, _build_headers(want, known), want.body, by=deadline, judge=judge) as answer:
            if answer.status_code in REDIRECTS:
                if not answer.location:
                    text = f"{target.url} redirects ({answer.status_code}) without saying where"
                    raise Unavailable(text, hint="fetch another page", outcome="bad_redirect")
                return answer.location
            found = self._unchanged_page(answer, known, target, limit) if known is not None else None
            return found or self._accept_answer(answer, target, limit, want)

    def _open_session(self) -> "HttpSession":
        from appliance.runtime.http_client import HttpSession  # TLS: most commands fetch nothing

        with self._guard:
            if self._session is None:
                self._session = HttpSession(authorities=self._authorities, resolve=self._resolve)
            return self._session

    # -- an answer ----------------------------------------------------------------------------------

    @staticmethod
    def _unchanged_page(answer: "Answer", known: CachedPage, target: Target, limit: int) -> Fetched | None:
        """What is kept of a page, when it is still so."""
        if answer.status_code != 304:
            return None
        body, is_cut = known.body[:limit], len(known.body) > limit
        kind = (known.content_type, known.charset)
        return Fetched(200, target.url, answer.headers, body, *kind, is_cut, from_cache=True, reason="OK")

    def _accept_answer(self, answer: "Answer", target: Target, limit: int, want: Want) -> Fetched:
        """What a server says, if it is of a kind that is wanted."""
        is_page = want.kind == "text" and answer.status_code < 400
        if is_page and answer.mime and not _is_text(answer.mime):
            raise Refused(f"{target.url} is {answer.mime}, not a text", hint="fetch a page of text", outcome="bad_type")
        body, is_cut = answer.body(limit)
        if is_page and not answer.mime and b"\0" in body[:1024] and not body.startswith(WIDE):
            raise Refused(f"{target.url} is of no known type, and not a text", hint="fetch a page of text", outcome="bad_type")
        if want.kind == "file" and is_cut:
            raise TooLarge(f"{target.url} has more than {limit} bytes", hint="save it, then add the file")
        kind = (answer.mime, answer.charset)
        found = Fetched(answer.status_code, target.url, answer.headers, body, *kind, is_cut, reason=answer.reason)
        self._keep_copy(found, want)
        return found

    def _keep_copy(self, found: Fetched, want: Want) -> None:
        """Remember a page that can be asked about again."""
        etag, modified = found.headers.get("etag", ""), found.headers.get("last-modified", "")
        is_kept = found.status == 200 and not found.is_cut and (etag or modified) and want.is_plain
        if self._cache is not None and is_kept and "no-store" not in found.headers.get("cache-control", "").lower():
            self._cache.store_copy(CachedPage(found.url, etag, modified, found.content_type, found.charset, found.body))


def check_found(found: Fetched) -> Fetched:
    """The same; NotFound or Unavailable when the server had no page to give."""
    if found.status < 400:
        return found
    text = f"{found.url} answered {found.status} {found.reason}".strip()
    if found.status in (404, 410):
        raise NotFound(text, hint="check the URL, or search for the page").saying("web", found.url)
    raise Unavailable(text, hint="try again later, or fetch another page", outcome="http_error").saying("web", found.url)


def _build_headers(want: Want, known: CachedPage | None) -> dict[str, str]:
    """The headers of the request for a page, or for whether a known one is still so."""
    lines = {"User-Agent": f"Mozilla/5.0 (compatible; owlbox/{__version__})", "Accept": want.accept, **want.headers}
    if known is not None and known.etag:
        lines["If-None-Match"] = known.etag
    if known is not None and known.modified:
        lines["If-Modified-Since"] = known.modified
    return {**lines, "Accept-Encoding": "gzip, deflate", "Connection": "close"}


def _is_text(mime: str) -> bool:
    if mime.startswith(("image/", "audio/", "video/", "font/")):
        return False
    return mime.startswith("text/") or mime in TEXTUAL or mime.endswith(("+xml", "+json", "+yaml"))
