"""The core's way to the vault, which its broker keeps: forwards what people do with secrets, fetches what it needs itself.

What is fetched is hidden by the core from then on. A provider's key is never fetched; it is hidden all the same, by a mark
that finds it in a text and does not tell it. Knows nothing about how the
vault keeps anything.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from appliance.errors import OwlError
from appliance.records import from_plain
from appliance.runtime.log import Mark, Redactor
from appliance.runtime.paths import Home
from appliance.secrets import plaintext_migration
from appliance.secrets.encryption import post

LOG = logging.getLogger(__name__)
PREFIX = "secret:"
CHANGING = ("secret.set", "secret.remove", "secret.purge", "secret.unlock")


class Strongbox:
    """The vault of a core's broker; `call` is any short method of the broker, which is started for it."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any], redactor: Redactor) -> None:
        self._call = call
        self._redactor = redactor

    def forward(self, method: str, params: dict[str, Any]) -> Any:
        """What the broker answers to a method of the vault; what is sealed in it stays so."""
        answer = self._call(method, params)
        if method in CHANGING:
            self.learn(self._call)
        return answer

    def put(self, name: str, value: str) -> bool:
        """Keep a value that was found in plain; False when it was kept already."""
        sealed = post(self._call("secret.address", {}), value, f"set {name}")
        return bool(self.forward("secret.set", {"name": name, "sealed": sealed})["is_changed"])

    def settle(self, home: Home, environ: Mapping[str, str]) -> plaintext_migration.Moved | None:
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
            self._redactor.know(from_plain(Mark, mark) for mark in call("secret.marks", {}))
        except OwlError as error:
            LOG.warning("secrets of the vault are not hidden here: %s", error)
