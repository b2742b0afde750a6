"""Our own cross-signing keys: with them other clients see that our device belongs to its account.

Owns `matrix_cross_signing`. Made where the account has none yet; some clients give keys to no device without it. Where the account
has such keys of another program, our device is left to be verified there.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from appliance.channels.matrix_api import Homeserver
from appliance.channels.matrix_encryption.olm_account import OlmAccount
from appliance.channels.matrix_encryption.signed_json import encode, is_signed_by, signable
from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.secrets import encryption
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
USAGES = ("master", "self_signing", "user_signing")
HINT = "verify it with a client of the same account where your client asks for that: docs/matrix.md"


class CrossSigning:
    """The three keys of our account."""

    def __init__(self, store: Store, account: OlmAccount, key: bytes) -> None:
        self._store = store
        self._account = account
        self._key = key

    def ensure(self, server: Homeserver, known: Mapping[str, Any]) -> None:
        """Sign our device, with keys made for that where the account has none. `known` is what the server says of the account."""
        user, device = self._account.user, self._account.device
        try:
            masters, devices = known.get("master_keys"), known.get("device_keys")
            master = masters.get(user) if isinstance(masters, dict) else None
            private, public = self._keys(may_make=master is None)
            if not public or (master is not None and public["master"] not in master["keys"].values()):
                LOG.warning("matrix: the account has cross-signing keys of another program: %s", HINT)
                return
            if master is None:
                self._upload(server, private, public)
            ours = devices.get(user, {}).get(device) if isinstance(devices, dict) else None
            if ours is None or not is_signed_by(ours, user, public["self_signing"]):
                keys = self._sign(self._account.own_keys(), private["self_signing"], public["self_signing"])
                server.call("POST", "/_matrix/client/v3/keys/signatures/upload", {user: {device: keys}})
        except (OwlError, TypeError, AttributeError, KeyError) as error:
            LOG.warning("matrix: the device is not cross-signed (%s): %s", error, HINT)

    def _upload(self, server: Homeserver, private: Mapping[str, bytes], public: Mapping[str, str]) -> None:
        made: dict[str, Any] = {}
        for usage in USAGES:
            key = {"user_id": self._account.user, "usage": [usage], "keys": {f"ed25519:{public[usage]}": public[usage]}}
            made[f"{usage}_key"] = key if usage == "master" else self._sign(key, private["master"], public["master"])
        server.call("POST", "/_matrix/client/v3/keys/device_signing/upload", made)

    def _sign(self, value: dict[str, Any], private: bytes, public: str) -> dict[str, Any]:
        signature = {f"ed25519:{public}": encode(encryption.sign(private, signable(value)))}
        return {**value, "signatures": {self._account.user: signature}}

    def _keys(self, *, may_make: bool) -> tuple[dict[str, bytes], dict[str, str]]:
        """The private and public keys; none where there are none and none may be made."""
        user = self._account.user
        sealed = self._store.value("SELECT sealed FROM matrix_cross_signing WHERE user = ?", (user,))
        if sealed is None:
            if not may_make:
                return {}, {}
            pairs = {usage: encryption.new_signing_key() for usage in USAGES}
            text = json.dumps({usage: [half.hex() for half in pair] for usage, pair in pairs.items()})
            sealed = encryption.seal(self._key, text.encode(), user.encode())
            with self._store.write(durable=True) as execute:
                execute("INSERT INTO matrix_cross_signing VALUES (?, ?, ?)", (user, sealed, now_ms()))
        found = json.loads(encryption.unseal(self._key, sealed, user.encode()))
        private = {usage: bytes.fromhex(found[usage][0]) for usage in USAGES}
        return private, {usage: encode(bytes.fromhex(found[usage][1])) for usage in USAGES}
