"""Base64 without its padding, as Matrix writes keys and hashes."""

import base64
import binascii


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
