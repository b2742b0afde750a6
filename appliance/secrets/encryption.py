"""Encryption: bytes sealed under a key, keys out of passphrases, and texts sealed for one process alone.

AES-256-GCM, PBKDF2-HMAC-SHA256, HKDF-SHA256 and X25519 of the cryptography package, which is imported at the first use,
because most processes need none of it. What is sealed is bound to what it is about, so that one seal cannot stand for
another. Knows nothing about secrets or files. Not promised: that who forwards a public key is honest.
"""

import base64
import binascii
import json
import os
import threading
from typing import TYPE_CHECKING

from appliance.errors import BadInput, OwlError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

NONCE, TAG, KEY = 12, 16, 32  # bytes


class Broken(OwlError):
    """What is sealed was changed, cut, or sealed under another key."""

    outcome = "damaged"


def seal(key: bytes, data: bytes, about: bytes) -> bytes:
    """A random nonce and the encrypted bytes."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, data, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """Decrypt; Broken when a single bit or the context differs."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(sealed) < NONCE + TAG:
        raise Broken(f"ciphertext too short: {len(sealed)} bytes")
    try:
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], about)
    except InvalidTag:
        raise Broken("ciphertext was changed, or sealed under another key") from None


def encrypt_ctr(key: bytes, counter: bytes, data: bytes) -> bytes:
    """Bytes encrypted with AES-CTR, as files of encrypted rooms are; the same again decrypts. Shows no changes."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    return Cipher(AES(key), CTR(counter)).encryptor().update(data)


def derived(passphrase: str, salt: bytes, iterations: int) -> bytes:
    """A key out of a passphrase, slowly."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

    return PBKDF2HMAC(SHA256(), KEY, salt, iterations).derive(passphrase.encode("utf-8", "surrogatepass"))


def stretched(secret: bytes, salt: bytes, about: bytes) -> bytes:
    """A key out of random bytes, which need no slow derivation."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY, salt, about).derive(secret)


class Letterbox:
    """A pair of keys of one process: whoever knows `address` seals texts that only this process opens."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._private: X25519PrivateKey | None = None

    @property
    def address(self) -> str:
        """The public key, the same for as long as the process lives."""
        return base64.b64encode(_public_bytes(self._key_pair())).decode()

    def open(self, sealed: str, about: str) -> str:
        """The text; BadInput when it was not sealed for us, or about something else."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            data = base64.b64decode(sealed, validate=True)
            theirs, body = data[:KEY], data[KEY:]
            shared = self._key_pair().exchange(X25519PublicKey.from_public_bytes(theirs))
            key = stretched(shared, theirs + _public_bytes(self._key_pair()), about.encode())
            return unseal(key, body, about.encode()).decode()
        except (Broken, ValueError, binascii.Error):
            raise BadInput("this was not sealed for this process", hint="try again: it may have been restarted") from None

    def _key_pair(self) -> "X25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        with self._guard:
            if self._private is None:
                self._private = X25519PrivateKey.generate()
            return self._private


def post(address: str, text: str, about: str) -> str:
    """A text sealed for the letterbox with this address."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        theirs = base64.b64decode(address, validate=True)
        own = X25519PrivateKey.generate()
        shared = own.exchange(X25519PublicKey.from_public_bytes(theirs))
    except (ValueError, binascii.Error):
        raise BadInput(f"{json.dumps(address[:60])} is not an address of a letterbox") from None
    key = stretched(shared, _public_bytes(own) + theirs, about.encode())
    return base64.b64encode(_public_bytes(own) + seal(key, text.encode(), about.encode())).decode()


def _public_bytes(private: "X25519PrivateKey") -> bytes:
    return private.public_key().public_bytes_raw()


def new_signing_key() -> tuple[bytes, bytes]:
    """The private and the public half of a key for signatures (Ed25519), 32 bytes each."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def sign(private: bytes, data: bytes) -> bytes:
    """The signature of some bytes, 64 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private).sign(data)


def is_signed(public: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of a key signed exactly these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
