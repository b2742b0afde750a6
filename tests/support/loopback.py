"""A web of one's own on loopback: HTTP and HTTPS servers, an authority, a name server. All of them are real.

Pages are functions of a request by path; what was asked is kept. Everything ends with the `with` block.
"""

import datetime
import ipaddress
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from appliance.errors import NotFound

HERE = "127.0.0.0/8"


@dataclass
class Request:
    """What was asked, and how to answer."""

    handler: "Handler"
    path: str
    headers: dict[str, str]

    def answer(self, body: bytes = b"", status: int = 200, *, length: bool = True, **headers: str) -> None:
        """A whole answer; `content_type` becomes Content-Type. Without `length` the end of the connection ends it."""
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        if length:
            self.handler.send_header("Content-Length", str(len(body)))
        self.handler.end_headers()
        self.raw(body)

    def raw(self, data: bytes) -> bool:
        """Bytes as they are; False when the other side has hung up."""
        try:
            self.handler.wfile.write(data)
            return True
        except OSError:
            return False


Page = Callable[[Request], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        request = Request(self, self.path, {name.lower(): value for name, value in self.headers.items()})
        self.server.asked.append(request)
        page = self.server.pages.get(self.path) or self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            request.answer(b"nothing here", 404, content_type="text/plain")
        else:
            page(request)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, Page] = {}
        self.asked: list[Request] = []
        self.scheme = "http" if context is None else "https"
        self._context = context

    def finish_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        """In the thread of the request: a handshake that fails costs nobody else."""
        if self._context is not None:
            try:
                request = self._context.wrap_socket(request, server_side=True)
            except OSError:
                return
        super().finish_request(request, client_address)
        request.close()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients hang up here all the time

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def page(self, path: str, body: bytes | str, content_type: str = "text/html; charset=utf-8", **headers: str) -> str:
        """A page that is always the same; its URL."""
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = lambda request: request.answer(data, content_type=content_type, **headers)
        return self.url(path)

    def redirect(self, path: str, to: str | None, status: int = 302) -> str:
        """A page that leads elsewhere, to nowhere for None; its URL."""
        headers = {} if to is None else {"location": to}
        self.pages[path] = lambda request: request.answer(status=status, **headers)
        return self.url(path)


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server for as long as the block lasts."""
    server = Server(context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def raw_serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that says whatever `answer` writes, HTTP or not; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    over = threading.Event()

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                answer(connection)
            except OSError:
                pass

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            connection.settimeout(None)
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        over.set()
        thread.join()
        listener.close()


# -- certificates ---------------------------------------------------------------------------------


class Authority:
    """Vouches for servers; `file` is what a client must trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback authority")])
        built = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"), False)
        usage |= dict.fromkeys(("key_agreement", "crl_sign", "encipher_only", "decipher_only"), False)
        built = built.add_extension(x509.KeyUsage(key_cert_sign=True, **usage), critical=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def context(self, *names: str, days: int = 30) -> ssl.SSLContext:
        """A server's side of TLS with a certificate for these names or addresses; negative `days`: it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        alternatives: list[x509.GeneralName] = []
        for name in names:
            is_address = name.replace(".", "").isdigit()
            alternatives.append(x509.IPAddress(ipaddress.ip_address(name)) if is_address else x509.DNSName(name))
        made = self._builder(subject, key, days).add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        path = self._folder / f"{names[0]}-{days}.pem"
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.write_bytes(private + made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 30) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .not_valid_before(now - datetime.timedelta(days=60))
            .not_valid_after(now + datetime.timedelta(days=days))
        )


# -- names ------------------------------------------------------------------------------------------


@dataclass
class Names:
    """A name server: each name has answers that it gives one after another, the last one for ever."""

    port: int
    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def resolve(self, host: str) -> list[str]:
        """What this server says, asked over UDP."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(10)
            labels = b"".join(bytes([len(part)]) + part.encode() for part in host.split("."))
            question = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
            client.sendto(question, ("127.0.0.1", self.port))
            data = client.recv(4096)
        count, start = struct.unpack(">H", data[6:8])[0], len(question)
        found = []
        for _ in range(count):
            kind, _, _, size = struct.unpack(">HHIH", data[start + 2 : start + 12])
            raw = data[start + 12 : start + 12 + size]
            found.append(str(ipaddress.ip_address(raw)))
            start += 12 + size
        if not found:
            raise NotFound(f"there is no host {host}")
        return found


@contextmanager
def naming() -> Iterator[Names]:
    """A name server for as long as the block lasts."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    names = Names(server.getsockname()[1])

    def serve() -> None:
        while True:
            data, client = server.recvfrom(4096)
            if data == b"over":
                return
            labels, at = [], 12
            while data[at]:
                labels.append(data[at + 1 : at + 1 + data[at]].decode())
                at += 1 + data[at]
            host = ".".join(labels)
            names.asked.append(host)
            known = names.answers.get(host, [()])
            now = known.pop(0) if len(known) > 1 else known[0]
            reply = data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(now), 0, 0) + data[12 : at + 5]
            for text in now:
                raw = ipaddress.ip_address(text).packed
                reply += struct.pack(">HHHIH", 0xC00C, 1 if len(raw) == 4 else 28, 1, 0, len(raw)) + raw
            server.sendto(reply, client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield names
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"over", ("127.0.0.1", names.port))
        thread.join()
        server.close()
