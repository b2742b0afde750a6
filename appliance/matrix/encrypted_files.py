"""Files of encrypted rooms: AES-256-CTR under a key of their own, which stands with their hash in the encrypted message."""

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Any

from appliance.errors import BadInput, Refused
from appliance.matrix.unpadded_base64 import decode, encode
from appliance.secrets import encryption

KEY, COUNTER = 32, 16  # bytes


def encrypt_file(data: bytes) -> tuple[bytes, dict[str, Any]]:
    """The bytes to upload, and what the message says of them beside their address."""
    key, counter = os.urandom(KEY), os.urandom(COUNTER // 2) + bytes(COUNTER // 2)  # the lower half counts blocks
    sealed = encryption.encrypt_ctr(key, counter, data)
    web_key = {
        "kty": "oct",
        "key_ops": ["encrypt", "decrypt"],
        "alg": "A256CTR",
        "k": base64.urlsafe_b64encode(key).decode().rstrip("="),
        "ext": True,
    }
    hashes = {"sha256": encode(hashlib.sha256(sealed).digest())}
    return sealed, {"v": "v2", "key": web_key, "iv": encode(counter), "hashes": hashes}


def decrypt_file(sealed: bytes, file: Mapping[str, Any]) -> bytes:
    """The file; Refused when its bytes are not those that the message means, BadInput when that is malformed."""
    try:
        key = decode(file["key"]["k"].replace("-", "+").replace("_", "/"))
        counter, digest = decode(file["iv"]), decode(file["hashes"]["sha256"])
        is_whole = len(key) == KEY and len(counter) == COUNTER and file["key"]["alg"] == "A256CTR"
    except (KeyError, TypeError, AttributeError, ValueError):
        is_whole = False
    if not is_whole:
        raise BadInput("the key of the encrypted file is malformed")
    if not hmac.compare_digest(hashlib.sha256(sealed).digest(), digest):
        raise Refused("the encrypted file was changed on its way")
    return encryption.encrypt_ctr(key, counter, sealed)
