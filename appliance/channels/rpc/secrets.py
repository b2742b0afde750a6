"""The vault at the local socket: what people do with secrets. Values come sealed for the broker and pass unread.

Whoever may open the socket may set and remove secrets; a value is shown to the core's own user and to root alone, and a
provider's key to nobody. No model can call any of this. Beside `rpc` because one table would pass 600 lines.
"""

import os
from collections.abc import Callable
from typing import Annotated, Any

from appliance.errors import Refused
from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Name = Annotated[str, Range(1, 80), "its name, such as llm/openai"]
Sealed = Annotated[str, "sealed for the broker's letterbox"]
End = Annotated[int | None, "when it ends, in milliseconds since 1970; none for never"]


class Secrets:
    """The method table of the vault, forwarded to the broker."""

    def __init__(self, forward: Callable[[str, dict[str, Any]], Any]) -> None:
        self._forward = forward

    @method("secret.address")
    def address(self, call: Call) -> str:
        """The broker's letterbox, to seal values for."""
        return str(self._forward("secret.address", {}))

    @method("secret.list")
    def listing(self, call: Call) -> dict[str, Any]:
        """`secrets` without their values, and how the vault is kept."""
        return dict(self._forward("secret.list", {}))

    @method("secret.set")
    def set(self, call: Call, name: Name, sealed: Sealed, expires_ms: End = None) -> dict[str, Any]:
        """Keep a value, in place of the one before."""
        return dict(self._forward("secret.set", {"name": name, "sealed": sealed, "expires_ms": expires_ms}))

    @method("secret.remove")
    def remove(self, call: Call, name: Name) -> dict[str, Any]:
        """Forget a secret."""
        return dict(self._forward("secret.remove", {"name": name}))

    @method("secret.expire")
    def expire(self, call: Call, name: Name, expires_ms: End = None) -> dict[str, Any]:
        """Let a secret end at a time, or never."""
        return dict(self._forward("secret.expire", {"name": name, "expires_ms": expires_ms}))

    @method("secret.purge")
    def purge(self, call: Call) -> dict[str, Any]:
        """Remove what has expired; the names."""
        return dict(self._forward("secret.purge", {}))

    @method("secret.rotate")
    def rotate(
        self, call: Call, to: Annotated[str, "file, passphrase or credential; empty keeps the kind"] = "", sealed: Sealed = ""
    ) -> dict[str, Any]:
        """Encrypt everything anew under a new key, all or nothing."""
        return dict(self._forward("secret.rotate", {"to": to, "sealed": sealed}))

    @method("secret.unlock")
    def unlock(self, call: Call, sealed: Sealed) -> dict[str, Any]:
        """Give the broker the passphrase, until it ends."""
        return dict(self._forward("secret.unlock", {"sealed": sealed}))

    @method("secret.reveal")
    def reveal(self, call: Call, name: Name, address: Annotated[str, "the letterbox of who wants to see it"]) -> str:
        """The value of a secret that is no provider's key, sealed for the caller; for the core's own user and root."""
        if call.uid not in (os.getuid(), 0):
            raise Refused("values are shown to the owner of this box alone", hint="sudo -u owlbox owlbox secret show NAME --yes")
        return str(self._forward("secret.reveal", {"name": name, "address": address}))
