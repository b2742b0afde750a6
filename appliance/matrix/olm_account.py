"""The keys of our own device at a homeserver, and the encrypted connections (Olm) to single devices of others.

Owns `matrix_account` and `matrix_olm_sessions`. Each step loads what it needs, changes it and stores it again in one durable
transaction before any byte leaves, so that no state of a ratchet is used twice after a kill. Nor is it after a backup was
restored: a connection from before this process began reads, and does not write. What is stored is encrypted with `pickle_key`,
which lies in the vault. Knows nothing about rooms, and does not say whose device a key is.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

import vodozemac
from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import ConfigError, Conflict, OwlError
from appliance.matrix.homeserver import Homeserver
from appliance.matrix.signed_json import canonical
from appliance.matrix.unpadded_base64 import decode, encode
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
OLM, MEGOLM = "m.olm.v1.curve25519-aes-sha2", "m.megolm.v1.aes-sha2"
ONE_TIME = "signed_curve25519"
MAX_SESSIONS, MAX_ALL_SESSIONS = 4, 5000  # with one device, as the specification says; and with all of them
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)  # what data of others may come to


class Opened(Struct, frozen=True):
    """What another device has sent to ours alone: `curve` and `signing` are its keys, `content` what it says."""

    sender: str
    curve: str
    signing: str
    type: str
    content: dict[str, Any]


class Undecryptable(OwlError):
    """No connection to a device reads what it sent."""

    outcome = "undecryptable"


class BrokenConnection(Undecryptable):
    """The same, where there is a connection to the device, which is of no use any more."""

    outcome = "broken_connection"


class OlmAccount:
    """Our device. Safe for several threads: what it holds is in the database."""

    def __init__(self, store: Store, user: str, device: str, pickle_key: bytes) -> None:
        self.user = user
        self.device = device
        self.curve = self.signing = ""
        self._store = store
        self._key = pickle_key
        self._begun: set[tuple[str, str]] = set()  # connections of this process, by the key of the device and their own name

    # -- our keys -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Load the account of this device, or make it; ConfigError when the vault holds another key."""
        with self._store.write(durable=True) as execute:
            if not execute("SELECT 1 FROM matrix_account WHERE device = ? AND user = ?", (self.device, self.user)):
                account: Any = vodozemac.Account()
                curve, signing = account.curve25519_key.to_base64(), account.ed25519_key.to_base64()
                # Connections belong to the keys of a device: those of an earlier one are of no use.
                execute("DELETE FROM matrix_account")
                execute("DELETE FROM matrix_olm_sessions")
                sql = "INSERT INTO matrix_account (device, user, pickle, curve, signing, made_ms) VALUES (?, ?, ?, ?, ?, ?)"
                execute(sql, (self.device, self.user, account.pickle(self._key), curve, signing, now_ms()))
            account = self._load()
        self.curve, self.signing = account.curve25519_key.to_base64(), account.ed25519_key.to_base64()

    def own_keys(self) -> dict[str, Any]:
        """The public keys of this device, signed by themselves."""
        keys = {f"curve25519:{self.device}": self.curve, f"ed25519:{self.device}": self.signing}
        made = {"user_id": self.user, "device_id": self.device, "algorithms": [OLM, MEGOLM], "keys": keys}
        return self._signed(self._load(), made)

    def publish(self, server: Homeserver, known: Mapping[str, Any]) -> None:
        """Give the server the keys of this device that it lacks. ConfigError when `known`, those it has, are another program's."""
        keys = known.get("keys")
        theirs = keys.get(f"ed25519:{self.device}") if isinstance(keys, dict) else None
        if theirs is not None and theirs != self.signing:
            raise ConfigError(
                f"device {self.device} has keys of another program, so that others would refuse ours",
                key="channels.matrix.token",
                hint="log in for a token that no other program has used: docs/guides/matrix.md",
            )
        if theirs is None:
            server.call("POST", "/_matrix/client/v3/keys/upload", {"device_keys": self.own_keys()})
            self.replenish(server, {}, [])

    def replenish(self, server: Homeserver, counts: Mapping[str, Any], unused_fallbacks: Any) -> None:
        """Give the server keys with which others begin a connection, when it says that it has few."""
        count = counts.get(ONE_TIME, 0)
        needs_fallback = isinstance(unused_fallbacks, list) and ONE_TIME not in unused_fallbacks
        with self._store.write(durable=True) as execute:
            account = self._load()
            half = account.max_number_of_one_time_keys // 2
            missing = half - count - len(account.one_time_keys) if isinstance(count, int) else 0
            if missing <= 0 and not needs_fallback and not account.one_time_keys:
                return
            if missing > 0:
                account.generate_one_time_keys(missing)
            if needs_fallback and not account.fallback_key:
                account.generate_fallback_key()
            self._keep(execute, account)
        signed = {
            f"{ONE_TIME}:{name}": self._signed(account, {"key": key.to_base64()}) for name, key in account.one_time_keys.items()
        }
        spare = {
            f"{ONE_TIME}:{name}": self._signed(account, {"key": key.to_base64(), "fallback": True})
            for name, key in account.fallback_key.items()
        }
        try:
            server.call("POST", "/_matrix/client/v3/keys/upload", {"one_time_keys": signed, "fallback_keys": spare})
        except OwlError as error:
            if "already exists" not in str(error):
                raise
            LOG.warning("keys of the device are at the server under other values: new ones are made: %s", error)
        with self._store.write(durable=True) as execute:
            account = self._load()
            account.mark_keys_as_published()
            self._keep(execute, account)

    # -- to and from one device -----------------------------------------------------------------------

    def has_session(self, curve: str) -> bool:
        """Whether there is a connection to a device that can be written to."""
        return self._choose(curve) is not None

    def begin_session(self, curve: str, one_time_key: str) -> None:
        """Begin a connection with a key of the device, whose signature the caller has checked."""
        keys = (vodozemac.Curve25519PublicKey.from_base64(one) for one in (curve, one_time_key))
        with self._store.write(durable=True) as execute:
            session = self._load().create_outbound_session(*keys)
            self._keep_session(execute, curve, session)
        self._begun.add((curve, session.session_id))

    def encrypt(self, kind: str, content: Mapping[str, Any], user: str, curve: str, signing: str) -> dict[str, Any]:
        """A message for one device, over the connection that was used last; Conflict when there is none."""
        said = {
            "type": kind,
            "content": content,
            "sender": self.user,
            "recipient": user,
            "recipient_keys": {"ed25519": signing},
            "keys": {"ed25519": self.signing},
        }
        with self._store.write(durable=True) as execute:
            if (pickle := self._choose(curve)) is None:
                raise Conflict(f"there is no connection to a device of {user}")
            session = vodozemac.Session.from_pickle(pickle, self._key)
            number, body = session.encrypt(canonical(said)).to_parts()
            self._keep_session(execute, curve, session)
        ciphertext = {curve: {"type": number, "body": encode(body)}}
        return {"algorithm": OLM, "sender_key": self.curve, "ciphertext": ciphertext}

    def decrypt(self, event: Mapping[str, Any]) -> Opened:
        """What a device sent to ours. Call inside a durable write, which stores what comes of it too.

        Undecryptable when no connection reads it, or when it names another sender or receiver than it has.
        """
        try:
            content, sender = event["content"], str(event["sender"])
            curve, box = content["sender_key"], content["ciphertext"][self.curve]
            message = vodozemac.AnyOlmMessage.from_parts(box["type"], decode(box["body"]))
            vodozemac.Curve25519PublicKey.from_base64(curve)
        except UNREADABLE as error:
            raise Undecryptable(f"malformed: {type(error).__name__}") from None
        data = self._decrypt(curve, message)
        try:
            said = json.loads(data)
            named = (said["sender"], said["recipient"], said["recipient_keys"]["ed25519"])
            if named != (sender, self.user, self.signing):
                raise Undecryptable("it names another sender or receiver than it has")
            return Opened(sender, curve, str(said["keys"]["ed25519"]), str(said["type"]), dict(said["content"]))
        except UNREADABLE as error:
            raise Undecryptable(f"malformed inside: {type(error).__name__}") from None

    def _decrypt(self, curve: str, message: Any) -> bytes:
        first = message.to_pre_key()
        with self._store.write(durable=True) as execute:
            sql = "SELECT session, pickle FROM matrix_olm_sessions WHERE curve = ? ORDER BY used_ms DESC, session"
            rows = execute(sql, (curve,))
            for name, pickle in rows:
                if first is not None and first.session_id() != name:
                    continue
                session = vodozemac.Session.from_pickle(pickle, self._key)
                try:
                    data = session.decrypt(message)
                except ValueError as error:
                    if first is not None:  # of this connection and no other: a repeat, or changed
                        raise Undecryptable(str(error)) from None
                    continue
                self._keep_session(execute, curve, session)
                return bytes(data)
            if first is None:
                raise BrokenConnection("no connection to its device reads it")
            account = self._load()
            try:
                session, data = account.create_inbound_session(vodozemac.Curve25519PublicKey.from_base64(curve), first)
            except ValueError as error:
                raise BrokenConnection(str(error)) from None
            self._keep(execute, account)
            self._keep_session(execute, curve, session)
        self._begun.add((curve, session.session_id))
        return bytes(data)

    # -- inside ---------------------------------------------------------------------------------------

    def _choose(self, curve: str) -> str | None:
        """The state of the connection to write to, the one that was used last; None when there is none."""
        sql = "SELECT session, pickle FROM matrix_olm_sessions WHERE curve = ? ORDER BY used_ms DESC, session"
        return next((str(pickle) for name, pickle in self._store.rows(sql, (curve,)) if (curve, name) in self._begun), None)

    def _load(self) -> Any:
        pickle = self._store.value("SELECT pickle FROM matrix_account WHERE device = ?", (self.device,))
        try:
            return vodozemac.Account.from_pickle(pickle, self._key)
        except UNREADABLE:
            raise ConfigError(
                f"the keys of device {self.device} cannot be read with the key that the vault holds",
                key="channels.matrix.token",
                hint="put the vault of that time back, or log in again for another token: docs/guides/matrix.md",
            ) from None

    def _keep(self, execute: Any, account: Any) -> None:
        execute("UPDATE matrix_account SET pickle = ? WHERE device = ?", (account.pickle(self._key), self.device))

    def _keep_session(self, execute: Any, curve: str, session: Any) -> None:
        """Store the state of a connection, and drop those that are too many."""
        last = execute("SELECT COALESCE(MAX(used_ms), 0) FROM matrix_olm_sessions WHERE curve = ?", (curve,))[0][0]
        values = (curve, session.session_id, session.pickle(self._key), max(now_ms(), last + 1))
        sql = "UPDATE matrix_olm_sessions SET pickle = ?3, used_ms = ?4 WHERE curve = ?1 AND session = ?2 RETURNING 1"
        if execute(sql, values):
            return
        execute("INSERT INTO matrix_olm_sessions VALUES (?, ?, ?, ?)", values)
        for chosen, most in (("curve = ?1", MAX_SESSIONS), ("?1 = ?1", MAX_ALL_SESSIONS)):
            sql = (
                f"DELETE FROM matrix_olm_sessions WHERE {chosen} AND used_ms < "
                f"(SELECT used_ms FROM matrix_olm_sessions WHERE {chosen} ORDER BY used_ms DESC LIMIT 1 OFFSET ?2)"
            )
            execute(sql, (curve, most - 1))

    def _signed(self, account: Any, value: dict[str, Any]) -> dict[str, Any]:
        signature = account.sign(canonical(value)).to_base64()
        return {**value, "signatures": {self.user: {f"ed25519:{self.device}": signature}}}
