"""The core's way to the vault, which its broker keeps: forwards what people do with secrets, fetches what it needs itself.

People's values come sealed for the broker and pass unread. Whoever may open the socket may set and remove secrets; a value is
shown to the core's own user and to root alone, and a provider's key to nobody. No model can call any of this.

What is fetched is hidden by the core from then on. A provider's key is never fetched; it is hidden all the same, by a mark
that finds it in a text and does not tell it. Knows nothing about how the
vault keeps anything.
"""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from appliance.errors import OwlError, Refused
from appliance.records import from_plain
from appliance.runtime.log import HIDDEN, Redactor, SecretMark
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.signatures import Range
from appliance.secrets import plaintext_migration
from appliance.secrets.encryption import post

LOG = logging.getLogger(__name__)
PREFIX = "secret:"
CHANGING = ("secret.set", "secret.remove", "secret.unlock")

Name = Annotated[str, Range(1, 80), "its name, such as llm/openai"]
Which = Annotated[str, Range(0, 80), "its name; empty: all that have expired"]
Sealed = Annotated[str, "sealed for the broker's letterbox"]
End = Annotated[int | None, "when it ends, in milliseconds since 1970; none for never"]
Lasts = Annotated[int | None, "in place of that: for how many milliseconds from now, whatever the clock is set to meanwhile"]


class VaultClient:
    """The vault of a core's broker; `call` is any short method of the broker, which is started for it."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any], redactor: Redactor) -> None:
        self._call = call
        self._redactor = redactor

    # -- what people do ---------------------------------------------------------------------------

    @method("secret.address")
    def address(self) -> str:
        """The broker's letterbox, to seal values for."""
        return str(self._forward_call("secret.address"))

    @method("secret.list")
    def listing(self) -> dict[str, Any]:
        """`secrets` without their values, which are told as hidden, and how the vault is kept."""
        found = dict(self._forward_call("secret.list"))
        return found | {"secrets": [{**one, "value": HIDDEN} for one in found["secrets"]]}

    @method("secret.set")
    def set(self, name: Name, sealed: Sealed = "", expires_ms: End = None, lasts_ms: Lasts = None) -> dict[str, Any]:
        """Keep a value, in place of the one before."""
        return dict(self._forward_call("secret.set", name=name, sealed=sealed, expires_ms=expires_ms, lasts_ms=lasts_ms))

    @method("secret.remove")
    def remove(self, name: Which = "") -> dict[str, Any]:
        """Forget a secret, or all that have expired; the names."""
        return dict(self._forward_call("secret.remove", name=name))

    @method("secret.rotate")
    def rotate(
        self, to: Annotated[str, "file, passphrase or credential; empty keeps the kind"] = "", sealed: Sealed = ""
    ) -> dict[str, Any]:
        """Encrypt everything anew under a new key, all or nothing."""
        return dict(self._forward_call("secret.rotate", to=to, sealed=sealed))

    @method("secret.unlock")
    def unlock(self, sealed: Sealed) -> dict[str, Any]:
        """Give the broker the passphrase, until it ends."""
        return dict(self._forward_call("secret.unlock", sealed=sealed))

    @method("secret.reveal")
    def reveal(self, name: Name, address: Annotated[str, "the letterbox of who wants to see it"], *, call: Call) -> str:
        """The value of a secret that is no provider's key, sealed for the caller; for the core's own user and root."""
        if call.uid not in (os.getuid(), 0):
            raise Refused("values are shown to the owner of this box alone", hint="sudo -u owlbox owlbox secret show NAME --yes")
        return str(self._forward_call("secret.reveal", name=name, address=address))

    def _forward_call(self, name: str, /, **params: Any) -> Any:
        """What the broker answers to a method of the vault; what is sealed in it stays so."""
        answer = self._call(name, params)
        if name in CHANGING:
            self.learn(self._call)
        return answer

    # -- what the core needs itself ---------------------------------------------------------------

    def put(self, name: str, value: str) -> bool:
        """Keep a value that was found in plain; False when it was kept already."""
        sealed = post(self._call("secret.address", {}), value, f"set {name}")
        return bool(self._forward_call("secret.set", name=name, sealed=sealed)["is_changed"])

    def settle(self, home: Home, environ: Mapping[str, str]) -> plaintext_migration.MovedSecrets | None:
        """Move plain keys of a configuration into the vault; None when there are none, or when it could not be done."""
        if not plaintext_migration.found(home, environ):
            return None
        try:
            moved = plaintext_migration.move(home, environ, self.put)
        except (OwlError, OSError) as error:
            LOG.error("keys stay in plain: %s", error)
            return None
        for notice in moved.notices:
            LOG.warning("%s", notice)
        return moved

    def resolve(self, text: str) -> str:
        """The value that a text of the configuration means: of the secret it names, else the text itself."""
        if not text.startswith(PREFIX):
            return text
        return self.get(text.removeprefix(PREFIX))

    def get(self, name: str) -> str:
        """The value of a secret that the core needs itself; Refused for a provider's key."""
        value = str(self._call("secret.get", {"name": name}))
        self._redactor.add(value)
        return value

    def learn(self, call: Callable[[str, dict[str, Any]], Any]) -> None:
        """Take up what the vault's secrets can be found by, so that the core hides those too that it does not know (A-204)."""
        try:
            self._redactor.know(from_plain(SecretMark, mark) for mark in call("secret.marks", {}))
        except OwlError as error:
            LOG.warning("secrets of the vault are not hidden here: %s", error)
