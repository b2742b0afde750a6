"""The HTTP client of every program here: a session of requests on an adapter of our own, which stands on urllib3 as requests does.

A name is resolved once, whoever asks may judge its addresses, and the connection goes to one of exactly these; TLS is
for the name. Every wait (look-up, connection, handshake, request, headers, each part of the body) ends at the deadline,
after too long a silence, and a tenth of a second after a cancellation, however the server drips. Headers are limited in
size, and so is what a packed body may unpack to. Certificates are always verified. A redirect is an answer: whoever
follows it judges and asks anew. There are no cookies and no passwords of a file, and a proxy only for a session that
wants the environment's. Failures are HttpError; neither their text nor their traceback holds a header of the request.
Knows nothing about which addresses may be reached. Importing this imports requests (0.15 s).
"""

import http.client
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import requests
import urllib3
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection, HTTPSConnection, ProxyConfig

from appliance.clock import monotonic_s
from appliance.errors import BadInput, HttpError, HttpStage, OwlError
from appliance.runtime.host_lookup import Deadline, Resolve, addresses_of, look_up, proxy_of
from appliance.runtime.watched_socket import ConnectionWatch, WatchedContext, dial, trusting
from appliance.text import urls
from appliance.text.urls import Target

CHUNK_BYTES = 1 << 16
HEADER_BYTES = 1 << 16  # of all header lines of an answer, with what is read ahead
KEPT_S = 45.0  # a connection that rested longer may have been cut by something on the way, which would look like silence

T = TypeVar("T")
Judge = Callable[[list[str]], None]  # raises for addresses that may not be connected to


class HttpSession(requests.Session):
    """Asks servers; several threads may, each gets a connection of its own. Its options are those of `PinnedAdapter`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.trust_env = False
        self.headers.clear()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.adapters.clear()
        self.mount("", PinnedAdapter(**options))

    def ask(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        by: Deadline,
        judge: Judge | None = None,
        method: str = "",
    ) -> "Answer":
        """The answer once its headers have come, whatever its status; to be closed by the caller.

        Without a `body` it is a GET, with one a POST, unless `method` says otherwise.
        """
        lines = {name: _header_line(value) for name, value in headers.items()}
        method = method or ("GET" if body is None else "POST")
        prepared = self.prepare_request(requests.Request(method, target.url, lines, data=body))
        prepared.url = target.url  # as it was judged
        return cast(Answer, self.send(prepared, stream=True, timeout=cast(Any, (by, judge))))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Nowhere: a redirect is an answer, whose body nobody reads unasked."""


class PinnedAdapter(BaseAdapter):
    """Sends the requests of a session over connections to addresses that were judged; `timeout` is a deadline and a judge.

    `authorities` is a file of certificates to be trusted beside the usual ones, or instead of them with `only_these`. So
    many connections as `kept` rest for another request. With `is_proxied` the environment names a proxy.
    """

    def __init__(
        self,
        *,
        authorities: Path | None = None,
        only_these: bool = False,
        kept: int = 0,
        is_proxied: bool = False,
        resolve: Resolve = look_up,
    ) -> None:
        super().__init__()
        self._authorities = authorities
        self._only_these = only_these
        self._kept = kept
        self._is_proxied = is_proxied
        self._resolve = resolve
        self._context: WatchedContext | None = None
        self._idle: list[tuple[float, _WatchedConnection]] = []
        self._is_closed = False
        self._guard = threading.Lock()

    def send(
        self, request: requests.PreparedRequest, stream: bool = False, timeout: Any = None, *rest: Any, **more: Any
    ) -> "Answer":
        """The answer once its headers have come."""
        deadline, judge = timeout
        target = urls.parse(str(request.url))
        deadline.left_s()
        while True:
            rested = self._take_idle(target.origin, deadline)
            line = rested or self._connect_line(target, deadline, judge)
            try:
                return Answer(self, line, request, line.exchange(target, request))
            except HttpError as error:
                line.connection.close()
                if rested is None or error.stage != "hang-up":
                    raise
                # It was closed while it rested, and has answered nothing: another is asked without a word.
            except BaseException:
                line.connection.close()
                raise

    def close(self) -> None:
        """Close the connections that rest; those in use are closed when they are done."""
        with self._guard:
            self._is_closed, idle, self._idle = True, self._idle, []
        for _, line in idle:
            line.connection.close()

    def keep(self, line: "_WatchedConnection") -> None:
        """Let a connection rest whose last answer was read to its end."""
        with self._guard:
            if not self._is_closed and len(self._idle) < self._kept and not line.connection.is_closed:
                self._idle.append((monotonic_s(), line))
                return
        line.connection.close()

    def _take_idle(self, origin: str, deadline: Deadline) -> "_WatchedConnection | None":
        """A connection that rested, if it is still good: nothing has come on it unasked."""
        oldest_s = monotonic_s() - KEPT_S
        while True:
            with self._guard:
                found = next((one for one in reversed(self._idle) if one[1].origin == origin), None)
                if found is None:
                    return None
                self._idle.remove(found)
            since_s, line = found
            if since_s >= oldest_s and line.connection.is_connected:
                line.watch.deadline = deadline
                return line
            line.connection.close()

    def _connect_line(self, target: Target, deadline: Deadline, judge: Judge | None) -> "_WatchedConnection":
        """A new connection to the host itself or to its proxy, with TLS where it is wanted."""
        proxy = _Proxy.of(target) if self._is_proxied else None
        place = proxy.target if proxy else target
        found = addresses_of(place, self._resolve, deadline)
        if judge is not None and proxy is None:
            judge(found)
        watch = ConnectionWatch(deadline)
        watch.allowed_bytes = HEADER_BYTES  # of a proxy
        is_secure = "https" in (target.scheme, place.scheme)
        context = self._trust_context() if is_secure else None
        connection = _build_connection(target, place, proxy, context)
        connection.dial = lambda: dial(found, place.port, watch)
        try:
            told(target.origin, "connect", connection.connect)
        except BaseException:
            connection.close()
            raise
        return _WatchedConnection(target.origin, connection, watch, proxy if target.scheme == "http" else None)

    def _trust_context(self) -> WatchedContext:
        with self._guard:
            if self._context is None:
                self._context = trusting(self._authorities, only_these=self._only_these)
            return self._context


class Answer(requests.Response):
    """An answer whose headers have come; `mime` and `charset` are "" when not said.

    Closing it before its end closes the connection.
    """

    def __init__(
        self, adapter: PinnedAdapter, line: "_WatchedConnection", request: requests.PreparedRequest, raw: urllib3.HTTPResponse
    ) -> None:
        super().__init__()
        self._adapter = adapter
        self._line = line
        self._is_over = False
        self.request, self.raw, self.url = request, raw, str(request.url)
        self.status_code, self.reason = raw.status, raw.reason or ""
        self.headers = CaseInsensitiveDict(raw.headers)
        self.mime, self.charset = _parse_type(self.headers.get("content-type", ""))

    @property
    def deadline(self) -> Deadline:
        """When the rest of the body must have come; may be replaced."""
        return self._line.watch.deadline

    @deadline.setter
    def deadline(self, deadline: Deadline) -> None:
        self._line.watch.deadline = deadline

    @property
    def location(self) -> str:
        """Where a redirect leads, "" when it does not say."""
        return self.headers.get("location", "").encode("latin-1", "replace").decode("utf-8", "replace").strip()

    def iter_content(self, chunk_size: int | None = CHUNK_BYTES, decode_unicode: bool = False) -> Iterator[Any]:
        """The unpacked body as it comes, in parts of at most CHUNK_BYTES."""
        origin = self._line.origin
        unpack = _Unpacker(self.headers.get("content-encoding", "").strip().lower(), origin)
        while True:
            data = told(origin, "body", lambda: self.raw.read1(CHUNK_BYTES, decode_content=False))
            if not data:
                unpack.check_ended()
                self._content_consumed = True
                return
            yield from unpack.parts(data)
            self.deadline.left_s()

    def body(self, limit: int) -> tuple[bytes, bool]:
        """The unpacked body, as far as it may go, and whether there was more."""
        if self.headers.get("content-encoding"):
            self._line.watch.allowed_bytes = limit + 2 * CHUNK_BYTES  # packed bytes that unpack to nothing are bytes too
        body = bytearray()
        for data in self.iter_content():
            body += data
            if len(body) > limit:
                break
        return bytes(body[:limit]), len(body) > limit

    def close(self) -> None:
        """Let the connection rest when all of the answer was read, else close it."""
        if self._is_over:
            return
        self._is_over = True
        self.raw.close()
        if self._content_consumed:
            self._adapter.keep(self._line)
        else:
            self._line.connection.close()


# -- one connection ---------------------------------------------------------------------------------


class _Dialled:
    """A connection of urllib3 to one of the addresses that were resolved for it."""

    dial: Callable[[], socket.socket]

    def _new_conn(self) -> socket.socket:
        return self.dial()


class _Http(_Dialled, HTTPConnection):
    """Without TLS."""


class _Https(_Dialled, HTTPSConnection):
    """With TLS."""


@dataclass(frozen=True)
class _Proxy:
    """A proxy of the environment and what it is told of us."""

    target: Target
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, target: Target) -> "_Proxy | None":
        named = proxy_of(target)
        if not named:
            return None
        parts = urlsplit(named)
        try:
            found = urls.parse(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/")
        except OwlError as error:
            text = f"the proxy of the environment cannot be used: {error.message}"
            raise BadInput(text, hint="unset it, or name an http proxy") from None
        who = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        return cls(found, urllib3.make_headers(proxy_basic_auth=who) if parts.username else {})


def _build_connection(target: Target, place: Target, proxy: _Proxy | None, context: WatchedContext | None) -> _Http | _Https:
    """What speaks to `place`, through a tunnel where that is a proxy and the target wants TLS."""
    if context is None:
        return _Http(place.host, place.port)
    if proxy is None or target.scheme == "http":
        return _Https(place.host, place.port, ssl_context=context)
    config = ProxyConfig(context, False, None, None)
    made = _Https(place.host, place.port, ssl_context=context, proxy=urllib3.util.parse_url(place.url), proxy_config=config)
    made.set_tunnel(target.host, target.port, dict(proxy.headers), place.scheme)
    return made


@dataclass
class _WatchedConnection:
    """A connection, whom it leads to, and what watches it; `proxy` is asked for whole URLs."""

    origin: str
    connection: _Http | _Https
    watch: ConnectionWatch
    proxy: _Proxy | None

    def exchange(self, target: Target, request: requests.PreparedRequest) -> urllib3.HTTPResponse:
        """Send a request; its answer once the headers have come."""
        connection, method, body = self.connection, str(request.method), cast(Any, request.body)
        lines: dict[str, Any] = {"Host": target.authority, **request.headers, **(self.proxy.headers if self.proxy else {})}
        lines.pop("Content-Length", None)  # urllib3 says it before the rest: half a head is not taken for a request without a body
        where = target.url if self.proxy else target.path
        self.watch.allowed_bytes = HEADER_BYTES

        def send() -> None:
            try:
                connection.request(method, where, body, lines, preload_content=False, decode_content=False)
            except BrokenPipeError:
                pass  # it may have answered before it took everything

        told(target.origin, "request", send)
        response = told(target.origin, "answer", connection.getresponse)
        self.watch.allowed_bytes = None
        return response


# -- the outcome --------------------------------------------------------------------------------


def told(origin: str, stage: HttpStage, act: Callable[[], T]) -> T:
    """What `act` returns; HttpError for a failure of the library, raised where nothing leads to the request."""
    try:
        return act()
    except (OSError, ValueError, http.client.HTTPException, urllib3.exceptions.HTTPError) as error:
        problem = _explain_failure(origin, stage, error)
    raise problem


def _explain_failure(place: str, stage: HttpStage, error: Exception) -> HttpError:
    """What a failure of the library means; its own text may hold a header of the request and is not shown."""
    inner = error.args[-1] if isinstance(error, urllib3.exceptions.HTTPError) and error.args else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        why = inner.verify_message
        text, hint = f"{place}: its certificate is not accepted: {why}", "if no host's is, check the clock of this machine"
        return HttpError(text, stage="tls", why=why, hint=hint, outcome="bad_certificate")
    if isinstance(inner, ssl.SSLError):
        why = inner.reason or "it broke off"
        return HttpError(f"{place}: TLS failed: {why}", stage="tls", why=why, hint="try again, or ask another server")
    is_gone = isinstance(inner, (ConnectionError, http.client.RemoteDisconnected))
    if stage in ("request", "answer") and is_gone:
        return HttpError(f"the answer of {place} ended early", stage="hang-up", why="it hung up", hint="try again")
    if stage == "body" or isinstance(inner, http.client.IncompleteRead):
        is_strange = isinstance(inner, http.client.HTTPException) and not isinstance(inner, http.client.IncompleteRead)
        why = f"is not HTTP: {type(inner).__name__}" if is_strange else "ended early"
        return HttpError(f"the answer of {place} {why}", stage="body", why=why, hint="try again, or ask another server")
    if isinstance(inner, http.client.HTTPException):
        why = f"is not HTTP: {type(inner).__name__}"
        return HttpError(f"the answer of {place} {why}", stage="answer", why=why, hint="ask another server")
    if isinstance(inner, OSError):
        why = inner.strerror or str(inner)
        return HttpError(f"no connection to {place}: {why}", stage="connect", why=why, hint="try again later")
    return HttpError(f"{place} cannot be asked: {type(inner).__name__}", stage="request", why=type(inner).__name__)


def _header_line(value: str) -> str:
    """A header's value on one line, whatever a server or a configuration says."""
    plain = "".join(c for c in value if c >= " " and c != "\x7f")
    return plain.encode("latin-1", "replace").decode("latin-1")


def _parse_type(said: str) -> tuple[str, str]:
    """MIME type and charset, "" where nothing is said."""
    if not said:
        return "", ""
    about = Message()
    about["Content-Type"] = said
    charset = about.get_content_charset() or ""
    return said.partition(";")[0].strip().lower()[:100], charset if charset.isascii() and len(charset) < 40 else ""


class _Unpacker:
    """Takes a body out of its packing in small parts, so that a little data cannot become all memory."""

    def __init__(self, coding: str, origin: str) -> None:
        self._coding = "" if coding == "identity" else coding
        self._origin = origin
        if self._coding not in ("", "gzip", "x-gzip", "deflate"):
            text = f"{origin} sends its answer packed as {coding[:40]}"
            raise HttpError(text, stage="body", hint="ask another server")
        self._inflate = zlib.decompressobj(31)
        self._is_new = True
        self._rest = b""  # half of what marks another member

    def parts(self, data: bytes) -> Iterator[bytes]:
        """Decompress these bytes, as far as the caller reads."""
        if not self._coding:
            yield data
            return
        if self._is_new and self._coding == "deflate":  # with or without a zlib header: servers do both
            self._inflate = zlib.decompressobj(15 if data[0] & 0x0F == 8 else -15)
        self._is_new = False
        data, self._rest = self._rest + data, b""
        while True:
            if self._inflate.eof:
                if data == b"\x1f":
                    self._rest = data
                if not data.startswith(b"\x1f\x8b"):
                    return  # padding after the last member, or nothing
                self._inflate = zlib.decompressobj(31)
            try:
                part = self._inflate.decompress(data, CHUNK_BYTES)
            except zlib.error:
                raise self._describe_broken() from None
            if part:
                yield part
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if not data and len(part) < CHUNK_BYTES:
                return

    def check_ended(self) -> None:
        """HttpError when the packed data were not whole."""
        if self._coding and not self._is_new and not self._inflate.eof:
            raise self._describe_broken()

    def _describe_broken(self) -> HttpError:
        return HttpError(f"the answer of {self._origin} cannot be unpacked", stage="body", hint="ask another server")
