"""HTTP/1.1 requests and responses: what one is, reading one from a socket, writing the other.

Reads strictly, so that a proxy before us cannot see another request in the same bytes: lines end in CRLF, names and values hold
only what RFC 9112 allows, no folded lines, no Transfer-Encoding, one Content-Length, one Host, and one request for each
connection. Sizes and the time for the whole head are bounded. Knows nothing about routes, logins or what a path means.
"""

import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from appliance.clock import monotonic_s
from appliance.errors import BadInput, DeadlineExceeded, Lost, OwlError, TooLarge, Unavailable
from appliance.runtime.jsonrpc import Peer

MAX_HEAD_BYTES = 16 * 1024
MAX_HEADERS = 64
HEAD_S = 10.0  # for the whole head, however slowly it comes
BODY_S = 60.0
MAX_BODY_BYTES = 64 * 1024  # a route may allow more
METHOD = re.compile(rb"[A-Z]{3,10}")
TARGET = re.compile(rb"/[\x21-\x7e]{0,4095}")
NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,64}")
VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
LENGTH = re.compile(r"[0-9]{1,12}")
SINGLE = ("host", "content-length", "content-type", "origin", "authorization", "cookie", "upgrade", "sec-websocket-key")
Body = bytes | Iterator[bytes]


class HttpMessage(Struct, frozen=True):
    """One request; `headers` by lower-case name, several of a name joined by ", "."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    target: str = "/"
    body: bytes = b""
    address: str = ""  # of the peer, or the one that a trusted proxy names
    person: str = ""  # who is logged in, where the route asks for a login
    session: str = ""  # the token in the cookie, "" for none
    peer: Peer | None = None  # as the kernel says, where the connection is a Unix socket

    def header(self, name: str) -> str:
        """A header's value, "" for none."""
        return self.headers.get(name.lower(), "")

    def cookies(self) -> dict[str, str]:
        """The cookies of the request; the first of a name counts."""
        found: dict[str, str] = {}
        for part in self.header("cookie").split(";"):
            name, _, value = part.strip().partition("=")
            found.setdefault(name, value)
        return found

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; BadInput for anything else, or when it is not declared as JSON."""
        if self.header("content-type").partition(";")[0].strip().lower() != "application/json":
            raise BadInput("the body must be declared as application/json")
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise BadInput(f"the body must be an object, got {type(found).__name__}")
        return found


class Response(Struct, frozen=True):
    """What is answered. A body of pieces is sent as they come, until the connection closes."""

    status: int = 200
    body: Body = b""
    kind: str = "text/plain; charset=utf-8"
    headers: Sequence[tuple[str, str]] = ()

    @classmethod
    def of_json(cls, value: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> "Response":
        """A value as JSON."""
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return cls(status, body, "application/json; charset=utf-8", headers)

    @classmethod
    def of_error(cls, error: OwlError, status: int = 0) -> "Response":
        """An error as JSON: `error` with message, outcome and hint."""
        told = {"message": error.message, "outcome": error.outcome, "hint": error.hint}
        return cls.of_json({"error": told}, status or error.status)


def read_head(sock: socket.socket) -> tuple[HttpMessage, bytes]:
    """A request without its body, and the outcome of the body with it; Lost when nothing is asked, BadInput when it is wrong."""
    end_s, buffer = monotonic_s() + HEAD_S, bytearray()
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        if len(buffer) > MAX_HEAD_BYTES:
            raise TooLarge(f"the head of a request is over {MAX_HEAD_BYTES} bytes")
        buffer += _receive(sock, end_s, is_begun=bool(buffer))
    if end > MAX_HEAD_BYTES:
        raise TooLarge(f"the head of a request is over {MAX_HEAD_BYTES} bytes")
    return _parse_head(bytes(buffer[:end])), bytes(buffer[end + 4 :])


def _receive(sock: socket.socket, end_s: float, *, is_begun: bool) -> bytes:
    left_s = end_s - monotonic_s()
    if left_s <= 0:
        raise DeadlineExceeded("the request did not come in time")
    sock.settimeout(left_s)
    try:
        data = sock.recv(65536)
    except TimeoutError:
        raise DeadlineExceeded("the request did not come in time") from None
    except OSError as error:
        raise Lost(f"connection lost: {error.strerror or error}") from None
    if not data:
        raise BadInput("the request is cut off") if is_begun else Lost("nothing was asked")
    return data


def _parse_head(head: bytes) -> HttpMessage:
    first, *lines = head.split(b"\r\n")
    method, _, rest = first.partition(b" ")
    target, _, version = rest.partition(b" ")
    if not METHOD.fullmatch(method) or not TARGET.fullmatch(target) or version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadInput("the first line is not an HTTP/1.1 request")
    if len(lines) > MAX_HEADERS:
        raise TooLarge(f"over {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        raw, colon, value = line.partition(b":")
        if not colon or not NAME.fullmatch(raw) or not VALUE.fullmatch(value):
            raise BadInput("a header is not well formed")
        name, text = raw.decode("ascii").lower(), value.decode("latin-1").strip()
        if name in headers and name in SINGLE:
            raise BadInput(f"header {name} is given twice")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    if "transfer-encoding" in headers:
        raise BadInput("a body must have a Content-Length", hint="transfer codings are not read")
    if not LENGTH.fullmatch(headers.get("content-length", "0")):
        raise BadInput("Content-Length is not a number")
    text = target.decode("ascii")
    parts = urlsplit(text if not text.startswith("//") else "/" + text.lstrip("/"))
    query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=32))
    return HttpMessage(method.decode("ascii"), unquote(parts.path), query, headers, text)


def read_body(sock: socket.socket, request: HttpMessage, begun: bytes, limit: int) -> bytes:
    """The body that a request declares; TooLarge before a byte of one over `limit` is read."""
    length = int(request.header("content-length") or 0)
    if length > limit:
        raise TooLarge(f"the body has {length} bytes, {limit} are allowed")
    if len(begun) > length:
        raise BadInput("the body is longer than its Content-Length")
    if length > len(begun) and request.header("expect").lower() == "100-continue":
        send(sock, b"HTTP/1.1 100 Continue\r\n\r\n")
    end_s, body = monotonic_s() + BODY_S, bytearray(begun)
    while len(body) < length:
        body += _receive(sock, end_s, is_begun=True)
    if len(body) > length:
        raise BadInput("the body is longer than its Content-Length")
    return bytes(body)


def write_response(sock: socket.socket, response: Response, fixed: Sequence[tuple[str, str]], *, has_body: bool) -> None:
    """Send a response whole, or piece by piece; Lost when nobody takes it. `fixed` are headers of every response."""
    lines = [f"HTTP/1.1 {response.status} {_phrase(response.status)}", f"Content-Type: {response.kind}", "Connection: close"]
    if isinstance(response.body, bytes):
        lines.append(f"Content-Length: {len(response.body)}")
    own = {name.lower() for name, _ in response.headers}
    for name, value in (*response.headers, *(one for one in fixed if one[0].lower() not in own)):
        if not VALUE.fullmatch(value.encode("latin-1", "replace")):
            raise ValueError(f"header {name} holds a line end")
        lines.append(f"{name}: {value}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
    if isinstance(response.body, bytes):
        send(sock, head + (response.body if has_body else b""))
        return
    send(sock, head)
    for piece in response.body if has_body else ():
        send(sock, piece)


def send(sock: socket.socket, data: bytes) -> None:
    """Send all of it; Lost when the other end is gone or takes nothing."""
    try:
        sock.sendall(data)
    except OSError as error:
        raise Lost(f"connection lost while sending: {error.strerror or error}") from None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def status_of(error: OwlError) -> int:
    """The HTTP status of an error; what only says that a part is away is 503."""
    if error.outcome == "not_logged_in":
        return 401
    return 503 if isinstance(error, Unavailable) else error.status if 400 <= error.status < 600 else 500
