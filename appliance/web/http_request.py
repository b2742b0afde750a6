"""One request and its answer over one connection to a judged address: HTTP/1.1, spoken as little as possible.

Owns the bytes of a request, the reading of an answer's headers, and the unpacking of its body in small parts. Every
failure is an error of our tree. Loaded when something is first fetched, for TLS takes a while. Knows nothing about
redirects, rules or what a page says.
"""

import http.client
import ssl
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from pathlib import Path

from appliance.errors import OwlError, Unavailable
from appliance.text.urls import Target
from appliance.web import connection
from appliance.web.connection import Wire
from appliance.web.dns import Deadline

CHUNK_BYTES = 1 << 16
HEADER_BYTES = 1 << 16  # of all header lines of an answer, with what is read ahead
TRY_S = 5.0  # for one of several addresses


class Answer:
    """An answer whose headers have come; `headers` have lower-case names, `mime` and `charset` are "" when not said."""

    def __init__(self, response: http.client.HTTPResponse, connection: Wire, target: Target) -> None:
        self._response = response
        self._connection = connection
        self._target = target
        self.status = response.status
        self.reason = response.reason or ""
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.mime, self.charset = _type(response.headers)

    @property
    def location(self) -> str:
        """Where a redirect leads, "" when it does not say."""
        return self.headers.get("location", "").encode("latin-1", "replace").decode("utf-8", "replace").strip()

    def body(self, limit: int) -> tuple[bytes, bool]:
        """The unpacked body, as far as it may go, and whether there was more."""
        coding = self.headers.get("content-encoding", "").strip().lower()
        unpack = _Unpacker(coding, self._target)
        if coding:
            self._connection.allow(limit + 2 * CHUNK_BYTES)  # packed bytes that unpack to nothing are bytes too
        body = bytearray()
        while len(body) <= limit:
            data = self._response.read1(CHUNK_BYTES)
            if not data:
                if self._response.length:
                    raise http.client.IncompleteRead(b"", self._response.length)
                unpack.check_ended()
                break
            for part in unpack.parts(data, limit + 1):
                body += part
                if len(body) > limit:
                    break
        return bytes(body[:limit]), len(body) > limit


class Exchange:
    """Asks servers; `authorities` is a file of certificates to be trusted beside the system's."""

    def __init__(self, authorities: Path | None = None) -> None:
        self._authorities = authorities
        self._context: ssl.SSLContext | None = None
        self._guard = threading.Lock()

    @contextmanager
    def ask(self, target: Target, addresses: Sequence[str], lines: Mapping[str, str], deadline: Deadline) -> Iterator[Answer]:
        """The answer of the first address that takes the connection; it ends with the block."""
        try:
            with self._connected(target, addresses, deadline) as connection:
                connection.send_all(_request(target, lines))
                connection.allow(HEADER_BYTES)
                response = http.client.HTTPResponse(connection, method="GET")  # type: ignore[arg-type]
                response.begin()
                connection.allow(None)
                yield Answer(response, connection, target)
        except ssl.SSLError as error:
            raise _insecure(target, error) from None
        except http.client.HTTPException as error:
            what = "ended early" if isinstance(error, http.client.IncompleteRead) else f"is not HTTP: {type(error).__name__}"
            raise Unavailable(f"the answer of {target.origin} {what}", hint="try again, or fetch another page") from None
        except zlib.error:
            raise Unavailable(f"the answer of {target.origin} cannot be unpacked", hint="fetch another page") from None
        except OSError as error:
            raise Unavailable(f"no connection to {target.origin}: {error.strerror or error}", hint="try again later") from None

    def _connected(self, target: Target, addresses: Sequence[str], deadline: Deadline) -> Wire:
        failure: OSError | OwlError = OSError("no address")
        for i, address in enumerate(addresses):
            is_last = i == len(addresses) - 1
            try:
                made = Wire(address, target.port, deadline, None if is_last else TRY_S)
            except OSError as error:
                failure = error
                continue
            try:
                if target.scheme == "https":
                    made.secure(self._trust(), target.host)
                return made
            except BaseException:
                made.close()
                raise
        raise failure

    def _trust(self) -> ssl.SSLContext:
        with self._guard:
            if self._context is None:
                self._context = connection.trust(self._authorities)
            return self._context


def _request(target: Target, lines: Mapping[str, str]) -> bytes:
    """The bytes that ask for a page."""
    given = {"Host": target.authority, **lines, "Accept-Encoding": "gzip, deflate", "Connection": "close"}
    head = "".join(f"{name}: {_line(value)}\r\n" for name, value in given.items())
    return f"GET {target.path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace")


def _line(value: str) -> str:
    """A header's value on one line, whatever a server or a configuration says."""
    return "".join(c for c in value if c >= " " and c != "\x7f")


def _type(headers: Message) -> tuple[str, str]:
    """MIME type and charset, "" where nothing is said."""
    said = headers.get("Content-Type", "")
    if not said:
        return "", ""
    charset = headers.get_content_charset() or ""
    return said.partition(";")[0].strip().lower()[:100], charset if charset.isascii() and len(charset) < 40 else ""


def _insecure(target: Target, error: ssl.SSLError) -> Unavailable:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{target.origin}: its certificate is not accepted: {error.verify_message}"
        return Unavailable(text, hint="if no host's is, check the clock of this machine", outcome="bad_certificate")
    return Unavailable(f"{target.origin}: TLS failed: {error.reason or error}", hint="try again, or fetch another page")


class _Unpacker:
    """Takes a body out of its packing in small parts, so that a little data cannot become all memory."""

    def __init__(self, coding: str, target: Target) -> None:
        self._coding = "" if coding == "identity" else coding
        if self._coding not in ("", "gzip", "x-gzip", "deflate"):
            raise Unavailable(f"{target.origin} sends its page packed as {coding[:40]}", hint="fetch another page")
        self._inflate = zlib.decompressobj(31)
        self._is_new = True
        self._rest = b""  # half of what marks another member

    def parts(self, data: bytes, most: int) -> "deque[bytes]":
        """What these bytes unpack to, in parts; at most about `most` bytes."""
        if not self._coding:
            return deque([data])
        if self._is_new and self._coding == "deflate":  # with or without a zlib header: servers do both
            self._inflate = zlib.decompressobj(15 if data[0] & 0x0F == 8 else -15)
        self._is_new = False
        data, self._rest = self._rest + data, b""
        made: deque[bytes] = deque()
        size = 0
        while size <= most:
            if self._inflate.eof:
                if data == b"\x1f":
                    self._rest = data
                if not data.startswith(b"\x1f\x8b"):
                    break  # padding after the last member, or nothing
                self._inflate = zlib.decompressobj(31)
            part = self._inflate.decompress(data, CHUNK_BYTES)
            made.append(part)
            size += len(part)
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if not data and len(part) < CHUNK_BYTES:
                break
        return made

    def check_ended(self) -> None:
        """zlib.error when the packed data were not whole."""
        if self._coding and not self._is_new and not self._inflate.eof:
            raise zlib.error("it ended early")
