"""HTTP connections to one provider: opened when needed, used by one request at a time, kept for a short while.

Certificates are verified, redirects are not followed, cookies and .netrc are not read. A stop sign ends a request in any
phase but the look-up of a name: the connection is shut down under whoever waits for it. Knows nothing about
formats. Importing this imports requests, which takes a tenth of a second.
"""

import errno
import http.cookiejar
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.connection import HTTPConnection

from appliance import __version__
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded, OwlError, ProviderError
from appliance.models.providers.error_mapping import Heard, clean, fault
from appliance.models.providers.remote_settings import Remote, is_near
from appliance.records import Cancel

CONNECT_S = 10.0
SLICE_S = 0.05  # how often somebody who connects looks at the stop sign
KEPT_S = 45.0  # a line that rested longer may have been cut by something on the way, which would look like silence
KEPT_LINES = 4
CHUNK_BYTES = 1 << 16
ERROR_BYTES = 1 << 16
DRAIN_S = 0.2


@dataclass(frozen=True)
class Request:
    """What is asked: `body` None means GET. `what` names it in messages."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Limits:
    """When a request must end: by a stop sign, at a moment, or after so long a silence."""

    cancel: Cancel
    end_s: float
    silence_s: float

    def left_s(self) -> float:
        """How long the next wait may be."""
        return max(0.001, min(self.silence_s, self.end_s - monotonic_s()))

    def check(self, remote: Remote) -> None:
        """Cancelled or DeadlineExceeded when it must end now."""
        if self.cancel.is_set():
            raise Cancelled(f"stopped while {remote.provider} was answering")
        if monotonic_s() >= self.end_s:
            raise DeadlineExceeded(f"{remote.provider} ({remote.model}) did not finish in time", hint="allow more time")


class Lines:
    """The connections of one adapter; several threads may ask at once, each gets one of its own."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._guard = threading.Lock()
        self._idle: list[tuple[float, Line]] = []
        self._is_closed = False

    def open(self, request: Request, limits: Limits) -> "Reply":
        """The answer from its first byte on; ProviderError for anything but success."""
        limits.check(self._remote)
        line = self._take()
        while True:
            was_used = line.is_used
            problem: OwlError | None = None
            reply = Reply(self, line, self._remote, request, limits)
            try:
                reply.begin()
            except _Gone as gone:
                problem = gone.error
                reply.close()
                if was_used and gone.is_silent and not limits.cancel.is_set():
                    line = Line(self._remote)  # it was closed while it rested: nothing was answered
                    continue
            except OwlError as error:
                problem = error
                reply.close()
            if problem is None:
                return reply
            limits.check(self._remote)
            # Outside of the handler, so that no traceback leads to the request and its headers.
            raise problem

    def read(self, request: Request, limits: Limits, most_bytes: int = 8_000_000) -> Any:
        """The whole answer to a request as JSON."""
        with self.open(request, limits) as reply:
            data = reply.whole(most_bytes)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            said = clean(data[:2000].decode("utf-8", "replace"), request.headers.values())
        raise ProviderError(f"{self._remote.provider} sent no JSON: {said}", outcome="invalid_response")

    def close(self) -> None:
        """Close the connections that rest; those in use are closed when they are done."""
        with self._guard:
            self._is_closed, idle, self._idle = True, self._idle, []
        for _, line in idle:
            line.close()

    def _take(self) -> "Line":
        oldest_s = monotonic_s() - KEPT_S
        with self._guard:
            stale = [line for since_s, line in self._idle if since_s < oldest_s]
            self._idle = [(since_s, line) for since_s, line in self._idle if since_s >= oldest_s]
            found = self._idle.pop()[1] if self._idle else None
        for line in stale:
            line.close()
        return found or Line(self._remote)

    def put(self, line: "Line") -> None:
        """Keep a line whose last answer was read to its end."""
        with self._guard:
            if not self._is_closed and len(self._idle) < KEPT_LINES:
                self._idle.append((monotonic_s(), line))
                return
        line.close()


class _Gone(Exception):
    """The connection broke; `is_silent`: before a byte of an answer."""

    def __init__(self, error: OwlError, *, is_silent: bool) -> None:
        super().__init__()
        self.error = error
        self.is_silent = is_silent


class Line:
    """One connection with the session that owns it."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.is_used = False
        self.sock: socket.socket | None = None
        self.limits: Limits | None = None
        self._plug: socket.socket | None = None  # a second handle of the same connection, to pull it from another thread
        self._guard = threading.Lock()
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = remote.verify
        if not is_near(urlsplit(remote.base_url).hostname or ""):
            self._session.proxies.update(get_environ_proxies(remote.base_url, no_proxy=None))
        self._session.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        self._session.headers.clear()
        self._session.headers.update({"User-Agent": f"owlbox/{__version__}", "Accept-Encoding": "identity"})
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _adapter(self))

    def send(self, request: Request, limits: Limits) -> requests.Response:
        """Send it and wait for the head of the answer."""
        self.limits = limits
        data = None if request.body is None else json.dumps(request.body, ensure_ascii=False).encode("utf-8", "replace")
        head = dict(request.headers)
        if data is not None:
            head |= {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        method = "GET" if data is None else "POST"
        waits = (min(CONNECT_S, limits.left_s()), limits.left_s())
        return self._session.request(
            method, request.url, data=data, headers=head, stream=True, allow_redirects=False, timeout=waits
        )

    def allow(self, seconds: float) -> None:
        """How long the next read may take."""
        if self.sock is not None and self.sock.fileno() >= 0:  # closed: all of the answer is here already
            self.sock.settimeout(seconds)

    def pull(self) -> None:
        """End whatever waits on the connection; any thread may."""
        with self._guard:
            if self._plug is not None:
                try:
                    self._plug.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is gone already

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
        with self._guard:
            if self._plug is not None:
                self._plug.close()
                self._plug = None

    def dial(self, host: str, port: int) -> socket.socket:
        """A connected socket, within time; the stop sign is looked at meanwhile."""
        limits, last = self.limits, "no address"
        assert limits is not None
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self._unreachable(f"the name {host} cannot be looked up ({error.strerror or error})") from None
        end_s = min(limits.end_s, monotonic_s() + CONNECT_S)
        for i, (family, kind, protocol, _, address) in enumerate(addresses):
            try_s = (end_s - monotonic_s()) / (len(addresses) - i)
            sock = socket.socket(family, kind, protocol)
            code = self._connect(sock, address, monotonic_s() + try_s, limits)
            if code == 0:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(max(0.001, end_s - monotonic_s()))
                with self._guard:
                    if self._plug is not None:
                        self._plug.close()
                    self._plug = sock.dup()
                return sock
            sock.close()
            last = errno.errorcode.get(code, str(code)) if code else "no answer"
            limits.check(self._remote)
        raise self._unreachable(f"nobody answers at {host}:{port} ({last})")

    @staticmethod
    def _connect(sock: socket.socket, address: Any, end_s: float, limits: Limits) -> int:
        """0 when it is connected, else why not."""
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code not in (errno.EINPROGRESS, errno.EWOULDBLOCK):
            return code
        waiting = select.poll()
        waiting.register(sock, select.POLLOUT)
        while not limits.cancel.is_set():
            left_s = end_s - monotonic_s()
            if left_s <= 0:
                return errno.ETIMEDOUT
            if waiting.poll(round(min(SLICE_S, left_s) * 1000) + 1):
                return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return errno.ECANCELED

    def _unreachable(self, why: str) -> ProviderError:
        return ProviderError(
            f"{self._remote.provider} cannot be reached: {why}",
            hint="is there a network, and is base_url right?",
            outcome="provider_not_available",
            kind="network",
        )


class Reply:
    """An answer while it comes. Closing it before its end closes the connection."""

    def __init__(self, lines: Lines, line: Line, remote: Remote, request: Request, limits: Limits) -> None:
        self._lines = lines
        self._line = line
        self._remote = remote
        self._request = request
        self._limits = limits
        self._guard = threading.Lock()
        self._is_over = self._is_read = False
        self._forget: Callable[[], object] = bool  # the stop sign, which may outlive this answer
        self._response: requests.Response | None = None

    def __enter__(self) -> "Reply":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def media_type(self) -> str:
        """What the answer says it is, such as text/event-stream."""
        assert self._response is not None
        return self._response.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def hidden(self) -> tuple[str, ...]:
        """What no message may show: the values of the request's headers, its key among them."""
        return tuple(self._request.headers.values())

    def begin(self) -> None:
        """Send the request; its answer's head is here afterwards, and it was a success."""
        if isinstance(self._limits.cancel, CancelToken):
            self._forget = self._limits.cancel.then(self._stop)
        try:
            self._response = self._line.send(self._request, self._limits)
        except requests.RequestException as error:
            problem = self._broken(error)
        except OSError as error:  # the file of authorities: it is read with each new connection
            problem = ProviderError(
                f"{self._remote.provider}: its certificate cannot be checked: {error}",
                hint=f"is providers.{self._remote.provider}.ca_file right?",
                outcome="provider_not_available",
            )
        else:
            self._line.is_used = True
            status = self._response.status_code
            if 200 <= status < 300:
                return
            heard = Heard(status, self._response.headers, self._complaint())
            raise fault(self._remote, heard, self._request.headers.values())
        raise problem

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the answer as they come."""
        assert self._response is not None
        raw = self._response.raw
        while True:
            self._line.allow(self._limits.left_s())
            problem = None
            try:
                data = raw.read1(CHUNK_BYTES, decode_content=True)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                problem = self._torn(error)
            if problem is not None:
                raise problem
            if not data:
                self._is_read = True
                return
            yield data
            self._limits.check(self._remote)

    def whole(self, most_bytes: int) -> bytes:
        """All of the answer; ProviderError when it is larger than `most_bytes`."""
        parts, size = [], 0
        for data in self.chunks():
            size += len(data)
            if size > most_bytes:
                raise ProviderError(f"{self._remote.provider} sent more than {most_bytes} bytes", outcome="invalid_response")
            parts.append(data)
        return b"".join(parts)

    def hasten(self, silence_s: float) -> None:
        """Wait no longer than so long for more from now on."""
        self._limits = replace(self._limits, silence_s=min(silence_s, self._limits.silence_s))

    def drain(self) -> None:
        """Read the few bytes behind the last event, so that the connection can be used again."""
        self._limits = Limits(self._limits.cancel, monotonic_s() + DRAIN_S, DRAIN_S)
        try:
            for _ in self.chunks():
                pass
        except OwlError:
            pass  # then it is closed

    def close(self) -> None:
        """Keep the connection when all of the answer was read, else close it."""
        with self._guard:
            if self._is_over:
                return
            self._is_over = True
        self._forget()
        if self._response is not None:
            self._response.close()
        if self._is_read:
            self._lines.put(self._line)
        else:
            self._line.close()

    def _stop(self) -> None:
        with self._guard:
            if not self._is_over:
                self._line.pull()

    def _complaint(self) -> bytes:
        """The beginning of an error's body, as far as it comes."""
        parts: list[bytes] = []
        try:
            for data in self.chunks():
                parts.append(data)
                if sum(map(len, parts)) > ERROR_BYTES:
                    break
        except ProviderError:
            pass
        return b"".join(parts)

    def _broken(self, error: requests.RequestException) -> Exception:
        """What a failure before the head of the answer means."""
        self._limits.check(self._remote)
        name, place = self._remote.provider, self._remote.place
        if isinstance(error, requests.exceptions.SSLError):
            why = _certificate(error)
            return ProviderError(
                f"{name}: no safe connection to {place}: {why}",
                hint=f"if it is yours, providers.{name}.ca_file names the file of its authority",
                outcome="provider_not_available",
            )
        if isinstance(error, requests.Timeout):
            return self._silent()
        if isinstance(error, requests.ConnectionError):
            hung_up = ProviderError(f"{name}: {place} hung up without an answer", outcome="upstream_error", kind="gateway")
            return _Gone(hung_up, is_silent=True)
        return ProviderError(f"{name}: the request cannot be sent ({type(error).__name__})", outcome="invalid_request")

    def _torn(self, error: Exception) -> ProviderError:
        """What a failure within the answer means."""
        self._limits.check(self._remote)
        if isinstance(error, (urllib3.exceptions.TimeoutError, TimeoutError)):
            return self._silent()
        return ProviderError(
            f"{self._remote.provider} ({self._remote.model}): the answer broke off", outcome="stream_error", kind="network"
        )

    def _silent(self) -> ProviderError:
        what = f"{self._remote.provider} ({self._remote.model}) was silent for {self._limits.silence_s:g} s"
        return ProviderError(what, hint="try again, or allow more time", outcome="provider_timeout", kind="network")


def _adapter(line: Line) -> HTTPAdapter:
    """What tells a line about its sockets, and lets it make them."""

    class Adapter(HTTPAdapter):
        """Pools whose connections are made by the line."""

        def get_connection_with_tls_context(self, *args: Any, **named: Any) -> Any:
            """The pool for a request."""
            pool: Any = super().get_connection_with_tls_context(*args, **named)
            if not hasattr(pool.ConnectionCls, "of_line"):
                pool.ConnectionCls = _tracked(pool.ConnectionCls, line)
            return pool

    return Adapter(pool_connections=1, pool_maxsize=1, max_retries=0)


def _tracked(kind: type[HTTPConnection], line: Line) -> type[HTTPConnection]:
    class Tracked(kind):  # type: ignore[misc, valid-type]
        """A connection that its line can end."""

        of_line = line

        def _new_conn(self) -> socket.socket:
            return line.dial(self._dns_host, self.port)

        def connect(self) -> None:
            """Connect, with TLS if need be."""
            super().connect()
            line.sock = self.sock

    return Tracked


def _certificate(error: BaseException) -> str:
    """Why a certificate was not accepted, in the words of the TLS library."""
    seen: BaseException | None = error
    while seen is not None:
        inner = seen.args[0] if seen.args and isinstance(seen.args[0], BaseException) else getattr(seen, "reason", None)
        if isinstance(seen, ssl.SSLCertVerificationError):
            return str(seen.verify_message)
        seen = inner if isinstance(inner, BaseException) else None
    return "the other side does not speak TLS as we do"
