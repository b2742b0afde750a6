"""The devices of others at one homeserver, which is asked for what is new and believed in nothing that is not signed."""

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from appliance.matrix.device_book import MAX_DEVICES, MAX_LISTED, Device, DeviceBook
from appliance.matrix.homeserver import Homeserver
from appliance.matrix.signed_json import is_signed_by
from appliance.matrix.unpadded_base64 import decode, encode
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
QUERY_USERS = 100  # of whom one call asks
KEY_BYTES = 32
ID = re.compile(r"[\x21-\x7e]{1,255}")
MALFORMED = (TypeError, ValueError, AttributeError, KeyError, RecursionError)


class DeviceList(DeviceBook):
    """What is known, kept up to date with one homeserver. Safe for several threads."""

    def __init__(self, store: Store, server: Homeserver) -> None:
        super().__init__(store)
        self._server = server
        self._guard = threading.Lock()
        self._fresh: set[str] = set()  # users whose devices the server would tell us of if they changed
        self._warned: set[tuple[str, str]] = set()

    def note_changes(self, lists: Any) -> None:
        """Take up from an answer to /sync whose devices have changed."""
        if isinstance(lists, dict):
            users = [one for name in ("changed", "left") if isinstance(lists.get(name), list) for one in lists[name]]
            with self._guard:
                self._fresh -= {one for one in users if isinstance(one, str)}

    def refresh(self, users: Iterable[str], *, is_forced: bool = False) -> None:
        """Ask for the devices of those users of whom we may not know the newest. A server that is away changes nothing."""
        with self._guard:
            wanted = sorted({one for one in users if is_forced or one not in self._fresh})
        for start in range(0, len(wanted), QUERY_USERS):
            some = wanted[start : start + QUERY_USERS]
            with self._guard:
                self._fresh |= set(some)  # before the answer: a change that is told meanwhile counts
            try:
                found = self.query(some)
            except BaseException:
                with self._guard:
                    self._fresh -= set(some)
                raise
            for user in some:
                if not self._take_user(user, found):
                    with self._guard:
                        self._fresh.discard(user)

    def query(self, users: Iterable[str]) -> dict[str, Any]:
        """The device keys of users, as the server returns them."""
        return self._server.call("POST", "/_matrix/client/v3/keys/query", {"device_keys": {one: [] for one in users}})

    def _take_user(self, user: str, found: Mapping[str, Any]) -> bool:
        """Store what an answer says of a user; False when it says nothing of them."""
        listed = found.get("device_keys")
        devices = listed.get(user) if isinstance(listed, dict) else None
        if not isinstance(devices, dict):
            return False
        master, self_signing = self._read_signing_keys(user, found)
        keys = {}
        for name, given in list(devices.items())[:MAX_DEVICES]:
            try:
                keys[name] = self._read_device(user, name, given, master, self_signing)
            except MALFORMED as error:
                self._warn(user, name, f"its keys are not signed by themselves, or malformed: {error}")
        for name, why in self.keep(user, master, keys):
            self._warn(user, name, why)
        return True

    def _read_signing_keys(self, user: str, found: Mapping[str, Any]) -> tuple[str, str]:
        """The master key of a user and the self-signing key that it vouches for; both "" where one is missing or not signed.

        A master key that has signed nothing could be another user's, copied.
        """
        try:
            master, given = found["master_keys"][user], found["self_signing_keys"][user]
            [root], [key] = master["keys"].values(), given["keys"].values()
            is_valid = {master["user_id"], given["user_id"]} == {user} and len(decode(root)) == len(decode(key)) == KEY_BYTES
        except MALFORMED:
            return "", ""
        return (root, key) if is_valid and is_signed_by(given, user, root) else ("", "")

    def _read_device(self, user: str, name: str, given: Any, master: str, self_signing: str) -> Device:
        """A device as its own signature proves it; ValueError when it does not."""
        curve, signing = given["keys"][f"curve25519:{name}"], given["keys"][f"ed25519:{name}"]
        if (given["user_id"], given["device_id"]) != (user, name) or not ID.fullmatch(name):
            raise ValueError("it has another name than it says")
        if any(len(decode(one)) != KEY_BYTES or encode(decode(one)) != one for one in (curve, signing)):
            raise ValueError("a key has another length")
        if not is_signed_by(given, user, signing, name):
            raise ValueError("the signature is wrong")
        vouched = bool(self_signing) and is_signed_by(given, user, self_signing)
        about = given.get("unsigned")
        shown = str(about.get("device_display_name") or "")[:100] if isinstance(about, dict) else ""
        return Device(user, name, curve, signing, shown, signed_by=master if vouched else "")

    def _warn(self, user: str, device: str, why: str) -> None:
        with self._guard:
            if (user, device) in self._warned or len(self._warned) >= MAX_LISTED:
                return
            self._warned.add((user, device))
        LOG.warning("matrix: device %.100r of %.200s is refused: %.200s", device, user, why)
