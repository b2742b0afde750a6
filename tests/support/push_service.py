"""A push service on loopback for tests: devices with keys of their own, which read what was sent to them as RFC 8291 says.

Written from the RFCs with `cryptography`, without the product's code. Also answers as a server of ntfy does: a POST to `/` whose
body is JSON, and `/v1/health`.
"""

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def derive(salt: bytes, secret: bytes, about: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, about).derive(secret)


@dataclass
class Device:
    """What a browser holds of a subscription."""

    private: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    secret: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def point(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def keys(self) -> dict[str, str]:
        """As a browser tells them."""
        return {"key": encoded(self.point), "auth": encoded(self.secret)}

    def decrypt(self, body: bytes) -> bytes:
        """What was sent, without its padding."""
        salt, length = body[:16], body[20]
        assert int.from_bytes(body[16:20], "big") >= len(body) and length == 65
        sender = body[21 : 21 + length]
        shared = self.private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        secret = derive(self.secret, shared, b"WebPush: info\0" + self.point + sender, 32)
        key = derive(salt, secret, b"Content-Encoding: aes128gcm\0", 16)
        nonce = derive(salt, secret, b"Content-Encoding: nonce\0", 12)
        text, delimiter, padding = AESGCM(key).decrypt(nonce, body[21 + length :], None).rpartition(b"\2")
        assert delimiter and not padding.strip(b"\0")
        return text


@dataclass
class Pushed:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class PushService:
    """A server; `plan` are the statuses of its next answers with further headers, `always` that of all others."""

    url: str
    taken: list[Pushed] = field(default_factory=list)
    plan: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    always: int = 201
    body: bytes = b""

    def told(self, device: Device, path: str) -> list[dict[str, Any]]:
        """What a device has read."""
        return [json.loads(device.decrypt(one.body)) for one in list(self.taken) if one.path == path]

    def check_signature(self, pushed: Pushed) -> dict[str, Any]:
        """The claims of a request's signature (RFC 8292), which must be right."""
        scheme, _, rest = pushed.headers["authorization"].partition(" ")
        parts = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert scheme == "vapid" and set(parts) == {"t", "k"}
        head, claims, signature = parts["t"].split(".")
        assert json.loads(decoded(head)) == {"typ": "JWT", "alg": "ES256"}
        raw = decoded(signature)
        made = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decoded(parts["k"]))
        key.verify(made, f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
        return dict(json.loads(decoded(claims))) | {"key": parts["k"]}


@contextmanager
def serving(always: int = 201) -> Iterator[PushService]:
    """A service that listens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.taken.append(Pushed(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            status, headers = made.plan.pop(0) if made.plan else (made.always, {})
            self.send_response(status)
            for name, value in {"Content-Length": str(len(made.body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(made.body)
            except OSError:
                pass  # nobody reads it

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "16")
            self.end_headers()
            self.wfile.write(b'{"healthy":true}')

        def log_message(self, *about: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = PushService(f"http://127.0.0.1:{server.server_address[1]}", always=always)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
