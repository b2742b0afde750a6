"""Our own cross-signing keys: with them other clients see that our device belongs to its account.

Owns `matrix_cross_signing`. Made where the account has none yet; some clients give keys to no device without it. Where the account
has such keys of another program, our device is left to be verified there.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.matrix.homeserver import Homeserver
from appliance.matrix.olm_account import OlmAccount
from appliance.matrix.signed_json import is_signed_by, signable
from appliance.matrix.unpadded_base64 import encode
from appliance.secrets import encryption
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
USAGES = ("master", "self_signing", "user_signing")
HINT = "verify it with a client of the same account where your client asks for that: docs/guides/matrix.md"


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
            public = self._find_keys(may_make=master is None)
            if not public or (master is not None and public["master"] not in master["keys"].values()):
                LOG.warning("matrix: the account has cross-signing keys of another program: %s", HINT)
                return
            if master is None:
                self._upload(server, public)
            ours = devices.get(user, {}).get(device) if isinstance(devices, dict) else None
            if ours is None or not is_signed_by(ours, user, public["self_signing"]):
                keys = self._sign(self._account.own_keys(), "self_signing", public)
                server.call("POST", "/_matrix/client/v3/keys/signatures/upload", {user: {device: keys}})
        except (OwlError, TypeError, AttributeError, KeyError) as error:
            LOG.warning("matrix: the device is not cross-signed (%s): %s", error, HINT)

    def _upload(self, server: Homeserver, public: Mapping[str, str]) -> None:
        made: dict[str, Any] = {}
        for usage in USAGES:
            key = {"user_id": self._account.user, "usage": [usage], "keys": {f"ed25519:{public[usage]}": public[usage]}}
            made[f"{usage}_key"] = key if usage == "master" else self._sign(key, "master", public)
        server.call("POST", "/_matrix/client/v3/keys/device_signing/upload", made)

    def _sign(self, value: dict[str, Any], usage: str, public: Mapping[str, str]) -> dict[str, Any]:
        """The value with a signature of one of our keys."""
        user = self._account.user
        sealed = self._store.value("SELECT sealed FROM matrix_cross_signing WHERE user = ?", (user,))
        private = bytes.fromhex(json.loads(encryption.unseal(self._key, sealed, user.encode()))[usage])
        signature = {f"ed25519:{public[usage]}": encode(encryption.sign(private, signable(value)))}
        return {**value, "signatures": {user: signature}}

    def _find_keys(self, *, may_make: bool) -> dict[str, str]:
        """The public keys; empty where there are none and none may be made."""
        user = self._account.user
        text = self._store.value("SELECT public FROM matrix_cross_signing WHERE user = ?", (user,))
        if text is not None:
            return dict(json.loads(text))
        if not may_make:
            return {}
        pairs = {usage: encryption.new_signing_key() for usage in USAGES}
        private = json.dumps({usage: pair[0].hex() for usage, pair in pairs.items()})
        public = {usage: encode(pair[1]) for usage, pair in pairs.items()}
        sealed = encryption.seal(self._key, private.encode(), user.encode())
        with self._store.write(durable=True) as execute:
            execute("INSERT INTO matrix_cross_signing VALUES (?, ?, ?, ?)", (user, json.dumps(public), sealed, now_ms()))
        return public
