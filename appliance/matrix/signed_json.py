"""JSON as Matrix signs it: one form for equal values, signed with Ed25519 keys. Knows nothing about whose keys those are.

Signatures are checked with the library that is loaded for the ciphers anyway: the cryptography package takes 7 MB more.
"""

import json
from collections.abc import Mapping
from typing import Any

import vodozemac

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
        given = vodozemac.Ed25519Signature.from_base64(signature)
        vodozemac.Ed25519PublicKey.from_base64(key).verify_signature(signable(value), given)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return False
    return True
