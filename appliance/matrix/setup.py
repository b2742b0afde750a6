"""Opening of the encryption when it is needed: the library, the key in the vault, and the device of the token.

Nothing is imported, made or asked before the first encrypted room. A channel whose encryption cannot be opened for a reason that
stays (the library is missing, the device is another program's) goes on in rooms without it, and `problem` says why.
"""

import logging
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from appliance.errors import ConfigError, NotFound
from appliance.matrix.encrypted_rooms import EncryptedRooms
from appliance.matrix.homeserver import ROOT, Homeserver
from appliance.store.database import Store

if TYPE_CHECKING:
    from appliance.matrix.room_encryption import RoomEncryption

LOG = logging.getLogger(__name__)
SECRET = "channel/matrix-keys"
LIBRARY = "vodozemac"


class EncryptionSetup:
    """Holds the encryption of a channel, once there is one. Safe for several threads."""

    def __init__(
        self, store: Store, server: Homeserver, secret: Callable[[str], str], keep_secret: Callable[[str, str], object]
    ) -> None:
        self.rooms = EncryptedRooms(store, server)
        self.problem = ""
        self._store = store
        self._server = server
        self._secret = secret
        self._keep_secret = keep_secret
        self._guard = threading.Lock()
        self._opened: RoomEncryption | None = None

    def is_needed(self) -> bool:
        """Whether there is an encrypted room, or a device of ours that others may write to."""
        return self.rooms.are_there_any() or self._store.value("SELECT 1 FROM matrix_account LIMIT 1") is not None

    def open(self) -> "RoomEncryption | None":
        """The encryption, made when it is asked for first; None when `problem` says why there is none. Other errors may go away."""
        with self._guard:
            if self._opened is None and not self.problem:
                try:
                    self._opened = self._make()
                except ConfigError as error:
                    self.problem = str(error)
                    LOG.error("matrix: messages of encrypted rooms cannot be read: %s", error)
            return self._opened

    def fingerprint(self) -> tuple[str, str]:
        """Name and fingerprint of our device, as it was stored; empty where there is none."""
        row = self._store.row("SELECT device, signing FROM matrix_account LIMIT 1")
        return (str(row[0]), str(row[1])) if row is not None else ("", "")

    def _make(self) -> "RoomEncryption":
        try:
            from appliance.matrix.room_encryption import RoomEncryption
        except ModuleNotFoundError as error:
            if error.name != LIBRARY:
                raise
            hint = "run make in the folder of the sources, which installs it"
            raise ConfigError(f"the package {LIBRARY} is not installed", key="channels.matrix", hint=hint) from None
        found = self._server.call("GET", f"{ROOT}/account/whoami")
        user, device = str(found.get("user_id", "")), str(found.get("device_id") or "")
        if not device or user != self._server.user:
            hint = "log in for another token: docs/guides/matrix.md"
            raise ConfigError("the token has no device of this user", key="channels.matrix.token", hint=hint)
        made = RoomEncryption(self._store, self._server, user, device, self._find_secret(device))
        made.open()
        return made

    def _find_secret(self, device: str) -> bytes:
        """What is stored is encrypted under this; made when there is nothing stored yet."""
        try:
            return self._secret(SECRET).encode()
        except NotFound:
            if self._store.value("SELECT 1 FROM matrix_account WHERE device = ?", (device,)) is not None:
                hint = "put the vault of that time back, or log in again for another token: docs/guides/matrix.md"
                raise ConfigError(f"the vault has no {SECRET}, so that our own keys cannot be read", hint=hint) from None
        value = secrets.token_hex(32)
        self._keep_secret(SECRET, value)
        return value.encode()
