"""The device book: other people's devices, and which of them are verified.

Owns `matrix_devices` and `matrix_master_keys`. A device is known by the keys that it was first seen with; other keys under the same
name are refused. It is verified when somebody here has compared its fingerprint, or when it is signed by the self-signing key of
a user whose master key was compared. Not covered: the emoji comparison of two devices. Asks no server.
"""

import logging
from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import Conflict, NotFound
from appliance.runtime.methods import method
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
MAX_DEVICES = 100  # of one user that are known at a time; twice as many with those that were logged out
MAX_LISTED = 10_000
Fingerprint = Annotated[str, "as channel.devices or the device itself shows it; blanks do not count"]


class Device(Struct, frozen=True):
    """A device of a user: `curve` and `signing` are its public keys, the second of them its fingerprint.

    `is_verified` says that somebody here has compared it, itself or the master key that vouches for it.
    """

    user: str
    device: str
    curve: str
    signing: str
    name: str = ""
    is_verified: bool = False
    is_gone: bool = False
    signed_by: str = ""


class Fingerprinted(Struct, frozen=True):
    """A device, or the master key of a user for all of their devices, as people see it."""

    address: str
    device: str
    fingerprint: str
    name: str
    is_verified: bool
    is_gone: bool
    signed_by: str = ""


class DeviceBook:
    """Stores devices and their verification. Asks no server."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, user: str, curve: str, signing: str) -> Device | None:
        """The device of a user that has these two keys; None when there is none."""
        found = [one for one in self.list_devices(user, with_gone=True) if (one.curve, one.signing) == (curve, signing)]
        return found[0] if found else None

    def list_devices(self, user: str, *, with_gone: bool = False) -> list[Device]:
        """The devices of a user; those that were logged out only when asked for."""
        sql = (
            "SELECT d.user, d.device, d.curve, d.signing, d.name, d.is_verified OR COALESCE(m.is_verified, 0), "
            "d.gone_ms IS NOT NULL, d.signed_by FROM matrix_devices d "
            "LEFT JOIN matrix_master_keys m ON m.user = d.user AND m.signing = d.signed_by "
            "WHERE d.user = ? AND (? OR d.gone_ms IS NULL) ORDER BY d.seen_ms, d.device"
        )
        rows = self._store.rows(sql, (user, with_gone))
        return [Device(u, d, c, s, n, bool(v), bool(g), by) for u, d, c, s, n, v, g, by in rows]

    def keep(self, user: str, master: str, keys: Mapping[str, Device]) -> list[tuple[str, str]]:
        """Store the devices that a user has now, with the master key that vouches for those that say so.

        Returns those that are refused, because they show other keys than before, and why.
        """
        refused = []
        with self._store.write(durable=True) as execute:
            if master:
                sql = "INSERT INTO matrix_master_keys (user, signing, seen_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
                execute(sql, (user, master, now_ms()))
            known = {one.device: one for one in self.list_devices(user, with_gone=True)}
            for name, one in keys.items():
                old = known.get(name)
                if old is None and len(known) < 2 * MAX_DEVICES:
                    sql = (
                        "INSERT INTO matrix_devices (user, device, curve, signing, name, signed_by, seen_ms) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?)"
                    )
                    execute(sql, (user, name, one.curve, one.signing, one.name, one.signed_by, now_ms()))
                elif old is not None and (old.curve, old.signing) == (one.curve, one.signing):
                    sql = "UPDATE matrix_devices SET name = ?, signed_by = ?, gone_ms = NULL WHERE user = ? AND device = ?"
                    execute(sql, (one.name, one.signed_by, user, name))
                elif old is not None:
                    refused.append((name, f"it shows the key {one.signing} in place of {old.signing}"))
            for name, old in known.items():
                if name not in keys and not old.is_gone:
                    execute("UPDATE matrix_devices SET gone_ms = ? WHERE user = ? AND device = ?", (now_ms(), user, name))
        return refused

    @method("channel.devices")
    def list_fingerprints(
        self, address: Annotated[str, "only of this address, such as matrix/@ann:example.org"] = ""
    ) -> list[Fingerprinted]:
        """Devices that write in encrypted rooms, and master keys that vouch for all devices of a user, with their fingerprints."""
        user = address.removeprefix("matrix/")
        sql = "SELECT DISTINCT user FROM matrix_devices WHERE ? IN ('', user) ORDER BY user LIMIT ?"
        found = []
        for (name,) in self._store.rows(sql, (user, MAX_LISTED)):
            where = f"matrix/{name}"
            sql = "SELECT signing, is_verified FROM matrix_master_keys WHERE user = ? ORDER BY seen_ms"
            found += [Fingerprinted(where, "", key, "", bool(on), False) for key, on in self._store.rows(sql, (name,))]
            found += [
                Fingerprinted(where, one.device, one.signing, one.name, one.is_verified, one.is_gone, one.signed_by)
                for one in self.list_devices(name, with_gone=True)
            ]
        return found

    @method("channel.verify")
    def verify(
        self, fingerprint: Fingerprint, is_verified: Annotated[bool, "false: it is not trusted any more"] = True
    ) -> Fingerprinted:
        """Say that a device, or a master key, is whose it says: you have compared its fingerprint there."""
        key = "".join(fingerprint.split()).rstrip("=")
        with self._store.write(durable=True) as execute:
            changed = [
                *execute("UPDATE matrix_devices SET is_verified = ? WHERE signing = ? RETURNING user", (is_verified, key)),
                *execute("UPDATE matrix_master_keys SET is_verified = ? WHERE signing = ? RETURNING user", (is_verified, key)),
            ]
            if not changed:
                hint = "owlbox channel devices lists those that are known: of whoever has written in an encrypted room"
                raise NotFound(f"no device has the fingerprint {fingerprint[:80]!r}", hint=hint)
            if len({user for (user,) in changed}) > 1:
                raise Conflict(f"several users say that {key} is theirs", hint="trust none of them")
        return next(one for one in self.list_fingerprints(f"matrix/{changed[0][0]}") if one.fingerprint == key)
