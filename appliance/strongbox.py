"""The core's way to the vault, which its broker keeps: forwards what people do with secrets, fetches what it needs itself.

What is fetched is hidden in the core's log from then on. A provider's key is never fetched. Knows nothing about how the
vault keeps anything.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance import moving
from appliance.errors import OwlError
from appliance.log import Redactor
from appliance.places import Home
from appliance.seals import post

LOG = logging.getLogger(__name__)
PREFIX = "secret:"


class Strongbox:
    """The vault of a core's broker; `call` is any short method of the broker, which is started for it."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any], redactor: Redactor, is_running: Callable[[], bool]) -> None:
        self._call = call
        self._redactor = redactor
        self._is_running = is_running

    def forward(self, method: str, params: dict[str, Any]) -> Any:
        """What the broker answers to a method of the vault; what is sealed in it stays so."""
        return self._call(method, params)

    def put(self, name: str, value: str) -> bool:
        """Keep a value that was found in plain; False when it was kept already."""
        sealed = post(self._call("secret.address", {}), value, f"set {name}")
        return bool(self._call("secret.set", {"name": name, "sealed": sealed})["is_changed"])

    def settle(self, home: Home, environ: Mapping[str, str]) -> moving.Moved | None:
        """Move plain keys of a configuration into the vault; None when there are none, or when it could not be done."""
        if not moving.found(home, environ):
            return None
        try:
            moved = moving.move(home, environ, self.put)
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
        value = str(self._call("secret.get", {"name": text.removeprefix(PREFIX)}))
        self._redactor.add(value)
        return value

    def clean(self, texts: Sequence[str]) -> list[str]:
        """Texts without secrets: those the core knows, and, while the broker runs, those that only the broker knows (A-204)."""
        found = [self._redactor.clean(text) for text in texts]
        if any(found) and self._is_running():
            try:
                found = [str(text) for text in self._call("secret.clean", {"texts": found})]
            except OwlError as error:
                LOG.warning("texts were cleaned without the vault: %s", error)
        return found
