"""JSON as Matrix signs it: one form for equal values, signed with Ed25519 keys. Knows nothing about whose keys those are."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from appliance.secrets import encryption

UNSIGNED = ("signatures", "unsigned")


def canonical(value: Any) -> bytes:
    """The bytes that a signature is over; ValueError for what JSON cannot hold."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def signable(value: Mapping[str, Any]) -> bytes:
    """The bytes of an object without its signatures."""
    return canonical({name: one for name, one in value.items() if name not in UNSIGNED})


def is_signed_by(value: Mapping[str, Any], user: str, key: str, name: str = "") -> bool:
    """Whether an object carries a valid signature of a user's key, which is named `ed25519:NAME` there, else like itself."""
    try:
        signature = value["signatures"][user][f"ed25519:{name or key}"]
        return encryption.is_signed(decode(key), signable(value), decode(signature))
    except (KeyError, TypeError, AttributeError, ValueError):
        return False


def decode(text: str) -> bytes:
    """The bytes of unpadded base64; ValueError for what is none."""
    if not isinstance(text, str):
        raise ValueError(f"{type(text).__name__} is no base64")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def encode(data: bytes) -> str:
    """Unpadded base64."""
    return base64.b64encode(data).decode().rstrip("=")
