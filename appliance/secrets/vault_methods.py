"""The vault at the broker's socket: set, list, remove, rotate, and which values are handed to whom.

A key of a provider is never handed out. Other values go to the core's user alone, as the kernel says who asks. Values that
people give come sealed for this process, so that the core, which forwards them, does not read them.
"""

import json
import logging
from collections.abc import Collection
from typing import Annotated, Any

from appliance.errors import BadInput, OwlError, Refused
from appliance.records import to_plain
from appliance.runtime.log import marks
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.secrets.encryption import Letterbox, post
from appliance.secrets.vault import HANDED, KINDS, OWN, Kind, Vault

LOG = logging.getLogger(__name__)
Name = Annotated[str, Range(1, 80), "its name, such as llm/openai"]
Which = Annotated[str, Range(0, 80), "its name; empty: all that have expired"]
Sealed = Annotated[str, "sealed for the address that secret.address gives"]
End = Annotated[int | None, "when it ends, in milliseconds since 1970; none for never"]
Lasts = Annotated[int | None, "in place of that: for how many milliseconds from now, whatever the clock is set to meanwhile"]


class Custody:
    """The method table of the vault; `users` are the core's."""

    def __init__(self, vault: Vault, users: Collection[int]) -> None:
        self._vault = vault
        self._users = frozenset(users)
        self._letterbox = Letterbox()

    @method("secret.address")
    def address(self, call: Call) -> str:
        """The public key to seal values for; a new one after a restart."""
        return self._letterbox.address

    @method("secret.list")
    def listing(self, call: Call) -> dict[str, Any]:
        """`secrets` without their values, and how the vault is kept."""
        return {"secrets": [to_plain(secret) for secret in self._vault.listing()], **self._vault.status()}

    @method("secret.set")
    def set(self, call: Call, name: Name, sealed: Sealed = "", expires_ms: End = None, lasts_ms: Lasts = None) -> dict[str, Any]:
        """Keep a value, in place of the one before; without one let the one there is end at a time, after a while, or never."""
        if not sealed:
            end_ms = self._vault.expire(name, expires_ms, lasts_ms)
            LOG.info("secret expires", extra={"secret": name, "at_ms": end_ms})
            return {"name": name, "expires_ms": end_ms}
        is_new = self._vault.set(name, self._letterbox.open(sealed, f"set {name}"), expires_ms, lasts_ms)
        LOG.info("secret set" if is_new else "secret kept", extra={"secret": name})
        return {"name": name, "is_changed": is_new}

    @method("secret.remove")
    def remove(self, call: Call, name: Which = "") -> dict[str, Any]:
        """Forget a secret, or all that have expired; the names."""
        gone = [name] if name else self._vault.purge()
        if name:
            self._vault.remove(name)
        LOG.info("secrets removed", extra={"secrets": gone})
        return {"removed": gone}

    @method("secret.rotate")
    def rotate(
        self, call: Call, to: Annotated[str, "file, passphrase or credential; empty keeps the kind"] = "", sealed: Sealed = ""
    ) -> dict[str, Any]:
        """Encrypt everything anew under a new key, all or nothing."""
        kind: Kind | None = next((kind for kind in KINDS if kind == to), None)
        if to and kind is None:
            raise BadInput(f"{to!r} is not a way to keep a key", hint=f"one of {', '.join(KINDS)}")
        count = self._vault.rotate(kind, self._letterbox.open(sealed, "rotate") if sealed else "")
        LOG.info("vault has a new key", extra={"kind": self._vault.status()["key"], "secrets": count})
        return {"count": count, "key": self._vault.status()["key"]}

    @method("secret.unlock")
    def unlock(self, call: Call, sealed: Sealed) -> dict[str, Any]:
        """Take the passphrase into memory until the broker ends."""
        self._vault.unlock(self._letterbox.open(sealed, "unlock"))
        LOG.info("vault unlocked")
        return self._vault.status()

    @method("secret.get")
    def get(self, call: Call, name: Name) -> str:
        """The value of a secret that the core needs itself; never the key of a provider."""
        self._require_core(call, name)
        return self._vault.get(name)

    @method("secret.reveal")
    def reveal(self, call: Call, name: Name, address: Annotated[str, "the letterbox of who wants to see it"]) -> str:
        """The same, sealed for somebody else than the core."""
        self._require_core(call, name)
        return post(address, self._vault.get(name), f"reveal {name}")

    @method("secret.marks", is_quiet=True)
    def marks(self, call: Call) -> list[dict[str, Any]]:
        """What the core finds secrets by in texts, to hide them there without knowing them (A-204)."""
        return [to_plain(mark) for value in self._vault.values() for mark in marks(value)]

    def status(self) -> dict[str, Any]:
        """How the vault is kept, for the broker's status; of one that cannot be read, why."""
        try:
            return self._vault.status()
        except OwlError as error:
            return {"key": "", "is_locked": False, "count": 0, "expiring": 0, "expired": 0, "problem": str(error)}

    def _require_core(self, call: Call, name: str) -> None:
        kind = name.partition("/")[0]
        if kind == OWN or kind not in HANDED:
            raise Refused(f"the value of {json.dumps(name)} never leaves the broker", hint="owlbox secret show tells the rest")
        if call.uid not in self._users:
            LOG.warning("refused a secret", extra={"secret": name, "uid": call.uid})
            raise Refused(f"secrets are handed to the core's user alone, not to {call.uid}")
