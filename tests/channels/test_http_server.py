"""The HTTP server by its bytes: requests that are wrong in every way are refused, and the right ones reach their routes."""

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from appliance.clock import monotonic_s
from appliance.errors import ConfigError, NotFound, Refused
from appliance.http.message import HttpMessage, Response
from appliance.http.process import build_server
from appliance.http.server import HttpServer, listen, route
from appliance.http.site import build_site
from appliance.runtime.paths import Home
from appliance.runtime.settings import WebSettings

COOKIE = "Cookie: owlbox=right\r\n"


class Routes:
    """What tests ask for."""

    def __init__(self) -> None:
        self.seen: list[HttpMessage] = []

    @route("GET", "/open/", access="open")
    def show(self, request: HttpMessage) -> Response:
        self.seen.append(request)
        return Response.of_json({"path": request.path, "query": dict(request.query)})

    @route("POST", "/change", max_body=100)
    def change(self, request: HttpMessage) -> Response:
        self.seen.append(request)
        return Response.of_json({"person": request.person, "given": request.json()})

    @route("GET", "/stream", access="open")
    def stream(self, request: HttpMessage) -> Response:
        return Response(200, iter((b"one ", b"two")), "text/event-stream")

    @route("GET", "/broken", access="open")
    def fail(self, request: HttpMessage) -> Response:
        raise ValueError("a secret of the inside")

    @route("GET", "/missing", access="open")
    def miss(self, request: HttpMessage) -> Response:
        raise NotFound("no such thing", hint="look elsewhere")

    @route("GET", "/hold", upgrades=True)
    def hold(self, request: HttpMessage, sock: socket.socket) -> None:
        self.take(request, sock)
        sock.recv(1)

    @route("GET", "/raw", upgrades=True)
    def take(self, request: HttpMessage, sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + request.person.encode())


def check_login(session: str) -> str:
    if session not in ("right", "of ben"):
        raise Refused("nobody is logged in")
    return "ann" if session == "right" else "ben"


@pytest.fixture(scope="module")
def routes() -> Routes:
    return Routes()


@pytest.fixture(scope="module")
def port(routes: Routes) -> Iterator[int]:
    sock = listen("127.0.0.1", 0)
    port = int(sock.getsockname()[1])
    server = HttpServer(sock, build_site("127.0.0.1", port, has_tls=False), [routes], check_login=check_login)
    server.start()
    yield port
    server.close()


def ask(port: int, text: str | bytes) -> str:
    """Everything that comes back for these bytes; `HOST` and `OURS` stand for what is right."""
    data = text.encode("latin-1") if isinstance(text, str) else text
    data = data.replace(b"HOST", b"Host: 127.0.0.1:%d" % port).replace(b"OURS", b"Origin: http://127.0.0.1:%d" % port)
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR) if data.endswith(b"CUT") else None
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    return answer.decode("latin-1")


def status(answer: str) -> int:
    return int(answer.split(" ", 2)[1])


BODY = 'Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a": 12}'
WRONG = {
    "no host": ("GET /open/ HTTP/1.1\r\n\r\n", 421),
    "another host": ("GET /open/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
    "our name at another port": ("GET /open/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", 421),
    "two hosts": ("GET /open/ HTTP/1.1\r\nHOST\r\nHOST\r\n\r\n", 400),
    "another origin": ("GET /open/ HTTP/1.1\r\nHOST\r\nOrigin: http://evil.example\r\n\r\n", 403),
    "origin null": ("GET /open/ HTTP/1.1\r\nHOST\r\nOrigin: null\r\n\r\n", 403),
    "nothing there": ("GET /nowhere HTTP/1.1\r\nHOST\r\n\r\n", 404),
    "a way up": ("GET /open/../change HTTP/1.1\r\nHOST\r\n\r\n", 404),
    "a hidden way up": ("GET /open/%2e%2e/x HTTP/1.1\r\nHOST\r\n\r\n", 404),
    "another method": ("POST /open/ HTTP/1.1\r\nHOST\r\nOURS\r\nContent-Length: 0\r\n\r\n", 405),
    "a method that is none": ("get /open/ HTTP/1.1\r\nHOST\r\n\r\n", 400),
    "an absolute address": ("GET http://evil.example/open/ HTTP/1.1\r\nHOST\r\n\r\n", 400),
    "another version": ("GET /open/ HTTP/2.0\r\nHOST\r\n\r\n", 400),
    "a folded header": ("GET /open/ HTTP/1.1\r\nHOST\r\nA: b\r\n c\r\n\r\n", 400),
    "a space before the colon": ("GET /open/ HTTP/1.1\r\nHOST\r\nContent-Length : 3\r\n\r\n", 400),
    "a bare line feed": ("GET /open/ HTTP/1.1\r\nHOST\r\nA: b\nC: d\r\n\r\n", 400),
    "a zero byte": ("GET /open/ HTTP/1.1\r\nHOST\r\nA: \x00\r\n\r\n", 400),
    "a chunked body": ("POST /change HTTP/1.1\r\nHOST\r\nOURS\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": ("POST /change HTTP/1.1\r\nHOST\r\nOURS\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "a length that is none": ("POST /change HTTP/1.1\r\nHOST\r\nContent-Length: +1\r\n\r\na", 400),
    "a head too large": ("GET /open/ HTTP/1.1\r\nHOST\r\nA: " + "b" * 20000 + "\r\n\r\n", 413),
    "too many headers": ("GET /open/ HTTP/1.1\r\nHOST\r\n" + "A: b\r\n" * 100 + "\r\n", 413),
    "nobody logged in": (f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\n{BODY}", 403),
    "a cookie that is none": (f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\nCookie: owlbox=old\r\n{BODY}", 403),
    "a cookie without an origin": (f"POST /change HTTP/1.1\r\nHOST\r\n{COOKIE}{BODY}", 403),
    "a cookie from another site": (f"POST /change HTTP/1.1\r\nHOST\r\nOrigin: http://evil.example\r\n{COOKIE}{BODY}", 403),
    "fetched by another site": (f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\nSec-Fetch-Site: cross-site\r\n{COOKIE}{BODY}", 403),
    "an upgrade without an origin": (f"GET /raw HTTP/1.1\r\nHOST\r\n{COOKIE}\r\n", 403),
    "a form": (f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\n{COOKIE}{BODY}".replace("application/json", "text/plain"), 400),
    "a body that is no JSON": (f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\n{COOKIE}{BODY}".replace("{", "["), 400),
    "a body too large": (f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\n{COOKIE}Content-Length: 101\r\n\r\n", 413),
    "a second request behind it": (f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\n{COOKIE}{BODY}GET /open/ HTTP/1.1\r\n\r\n", 400),
    "an error of ours": ("GET /broken HTTP/1.1\r\nHOST\r\n\r\n", 500),
    "an error of the tree": ("GET /missing HTTP/1.1\r\nHOST\r\n\r\n", 404),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_request_that_is_wrong_is_refused_and_reaches_no_route(port: int, routes: Routes, name: str) -> None:
    text, expected = WRONG[name]
    routes.seen.clear()
    answer = ask(port, text)
    assert status(answer) == expected, answer
    assert "secret of the inside" not in answer and "Content-Security-Policy: default-src 'none'" in answer
    assert name in ("a form", "a body that is no JSON") or routes.seen == []


def test_what_is_right_reaches_its_route_with_the_person_of_the_cookie(port: int, routes: Routes) -> None:
    shown = ask(port, "GET /open/deep%20er?a=1&b=%C3%A4 HTTP/1.1\r\nHOST\r\n\r\n")
    assert status(shown) == 200 and shown.endswith('{"path":"/open/deep er","query":{"a":"1","b":"Ã¤"}}')
    head = ask(port, "HEAD /open/ HTTP/1.1\r\nHOST\r\n\r\n")
    assert status(head) == 200 and head.endswith("\r\n\r\n")
    changed = ask(port, f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\n{COOKIE}{BODY}")
    assert changed.endswith('{"person":"ann","given":{"a":12}}')
    waited = ask(port, f"POST /change HTTP/1.1\r\nHOST\r\nOURS\r\n{COOKIE}Expect: 100-continue\r\n{BODY}")
    assert status(waited) in (100, 200)
    assert ask(port, "GET /stream HTTP/1.1\r\nHOST\r\n\r\n").endswith("\r\n\r\none two")
    assert ask(port, f"GET /raw HTTP/1.1\r\nHOST\r\nOURS\r\n{COOKIE}\r\n").endswith("ann")
    assert "no such thing" in ask(port, WRONG["an error of the tree"][0])


@pytest.mark.covers("A-179")
def test_who_says_nothing_keeps_nobody_out(port: int) -> None:
    held = [socket.create_connection(("127.0.0.1", port), 5, (f"127.0.1.{n % 3}", 0)) for n in range(72)]
    began_s = monotonic_s()
    assert _is_served(port) and monotonic_s() - began_s < 2
    assert held[0].recv(10) == b"", "the oldest gave their places to the next"
    for one in held:
        one.close()


@pytest.mark.covers("A-179")
def test_one_person_has_so_many_connections_from_wherever_and_others_are_served(port: int) -> None:
    text = b"GET /hold HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://127.0.0.1:%d\r\nCookie: owlbox=%s\r\n\r\n"

    def hold(number: int, session: bytes) -> tuple[socket.socket, bytes]:
        made = socket.create_connection(("127.0.0.1", port), 5, (f"127.0.2.{number // 10}", 0))
        made.sendall(text % (port, port, session))
        return made, made.recv(100)

    held = [hold(number, b"right") for number in range(30)]
    assert [said[:12] for _, said in held] == [b"HTTP/1.1 101"] * 24 + [b"HTTP/1.1 503"] * 6
    ben, said = hold(100, b"of ben")
    assert said.endswith(b"ben")
    for one, _ in (*held, (ben, b"")):
        one.close()


def _is_served(port: int) -> bool:
    try:
        return status(ask(port, "GET /open/ HTTP/1.1\r\nHOST\r\n\r\n")) == 200
    except (OSError, IndexError):
        return False


def test_a_site_knows_its_names_and_when_the_cookie_must_be_encrypted() -> None:
    local = build_site("127.0.0.1", 8420, has_tls=False)
    assert local.address == "http://localhost:8420" and "localhost:8420" in local.hosts and local.cookie == "owlbox"
    proxied = build_site("127.0.0.1", 8420, has_tls=False, address="https://Owl.lan/")
    assert proxied.address == "https://owl.lan" and "https://owl.lan" in proxied.origins
    assert proxied.is_proxied and proxied.cookie == "__Host-owlbox"
    own = build_site("192.0.2.7", 443, has_tls=True)
    assert own.hosts == {"192.0.2.7"} and own.cookie == "__Host-owlbox" and not own.is_proxied
    with pytest.raises(ConfigError, match="channels.web.address"):
        build_site("127.0.0.1", 8420, has_tls=False, address="owl.lan")


def self_signed(folder: Path) -> None:
    """A certificate for localhost, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1)
    )
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "web.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM) + private)


def test_a_certificate_encrypts_and_without_one_only_this_machine_is_served(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(ConfigError, match="nothing is encrypted"):
        build_server(home, {}, WebSettings(host="0.0.0.0", port=0), folder=tmp_path)
    with pytest.raises(ConfigError, match="channels.web.certificate"):
        build_server(home, {}, WebSettings(port=0, certificate="none.pem"), folder=tmp_path)
    self_signed(tmp_path)
    server = build_server(home, {}, WebSettings(port=0, certificate="web.pem"), folder=tmp_path)
    port = int(server.sock.getsockname()[1])
    server.start()
    try:
        assert server.site.address == f"https://localhost:{port}" and server.site.cookie == "__Host-owlbox"
        trust = ssl.create_default_context(cafile=tmp_path / "web.pem")
        wire = HTTPSConnection("localhost", port, context=trust, timeout=60)
        wire.request("GET", "/")
        answer = wire.getresponse()
        assert answer.status == 200 and b"<title>Owlbox</title>" in answer.read()
        with socket.create_connection(("127.0.0.1", port), 60) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            try:
                assert b"Owlbox" not in plain.recv(1000)
            except ConnectionResetError:
                pass  # hung up on, without a word
    finally:
        server.close()
