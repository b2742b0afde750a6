"""Messages for devices by Web Push: encrypted for one device (RFC 8291), and signed with the key of this installation (RFC 8292).

Whoever carries a message to a device sees how long it is, rounded up, and nothing of what it says. Keys travel as base64url without
padding, as browsers write them. Knows nothing about addresses and how messages are sent.
"""

import base64
import binascii
import json
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from appliance.errors import BadInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

AUTH_BYTES, SALT_BYTES, PRIVATE_BYTES = 16, 16, 32
RECORD_BYTES = 4096  # all that a push service has to take
MAX_TEXT_BYTES = RECORD_BYTES - 16 - 4 - 1 - 65 - 16 - 1  # less salt, record size, key and its length, tag, delimiter
STEP_BYTES = 512  # lengths are rounded up to these


class DeviceKeys(Struct, frozen=True):
    """What a device gave us to encrypt for it: its public key as a point of P-256, and a secret."""

    public: str
    auth: str

    def check(self) -> None:
        """BadInput for keys that are none: of another length, or no point of the curve."""
        _load_public(self.public)
        _decode(self.auth, AUTH_BYTES, "auth")


def new_key() -> str:
    """A new private key."""
    from cryptography.hazmat.primitives.asymmetric import ec

    number = ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value
    return _encode(number.to_bytes(PRIVATE_BYTES, "big"))


def public_key(private: str) -> str:
    """The public key that belongs to a private one."""
    return _encode(_point(_load_private(private).public_key()))


def encrypt(text: bytes, device: DeviceKeys, *, step: int = STEP_BYTES, private: str = "", salt: bytes = b"") -> bytes:
    """A text that this device alone can read, in one record of aes128gcm; a key and a salt are made anew unless given."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(text) > MAX_TEXT_BYTES:
        raise BadInput(f"{len(text)} bytes are too many for a device, {MAX_TEXT_BYTES} are allowed")
    receiver, own, salt = _load_public(device.public), _load_private(private or new_key()), salt or os.urandom(SALT_BYTES)
    ours, theirs = _point(own.public_key()), _point(receiver)
    shared = own.exchange(ec.ECDH(), receiver)
    secret = _expand(_decode(device.auth, AUTH_BYTES, "auth"), shared, b"WebPush: info\0" + theirs + ours, 32)
    key = _expand(salt, secret, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _expand(salt, secret, b"Content-Encoding: nonce\0", 12)
    length = min(MAX_TEXT_BYTES, -(-max(1, len(text)) // step) * step)
    sealed = AESGCM(key).encrypt(nonce, text + b"\2" + bytes(max(0, length - len(text))), None)
    return salt + RECORD_BYTES.to_bytes(4, "big") + bytes([len(ours)]) + ours + sealed


def authorization(private: str, origin: str, contact: str, expires_s: int) -> str:
    """The header by which a push service knows whose message it is: signed for this origin, until then."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    parts: tuple[dict[str, Any], ...] = (
        {"typ": "JWT", "alg": "ES256"},
        {"aud": origin, "exp": expires_s, **({"sub": contact} if contact else {})},
    )
    told = ".".join(_encode(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
    signed = _load_private(private).sign(told.encode(), ec.ECDSA(hashes.SHA256()))
    signature = b"".join(number.to_bytes(PRIVATE_BYTES, "big") for number in utils.decode_dss_signature(signed))
    return f"vapid t={told}.{_encode(signature)}, k={public_key(private)}"


def _expand(salt: bytes, secret: bytes, about: bytes, length: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, about).derive(secret)


def _point(key: "EllipticCurvePublicKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _load_private(private: str) -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        return ec.derive_private_key(int.from_bytes(_decode(private, PRIVATE_BYTES, "the key for push"), "big"), ec.SECP256R1())
    except ValueError:
        raise BadInput("the key for push is no private key", hint="owlbox secret remove channel/push; a new one is made") from None


def _load_public(public: str) -> "EllipticCurvePublicKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _decode(public, 65, "key"))
    except ValueError:
        raise BadInput("key is no public key of P-256", hint="give p256dh as the browser or app shows it") from None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str, length: int, what: str) -> bytes:
    """Bytes of this number; the text itself may be a secret and is not shown."""
    plain = text.strip().rstrip("=")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != length:
        raise BadInput(f"{what} has not {length} bytes in base64url", hint="give it as the browser or app shows it")
    return data
