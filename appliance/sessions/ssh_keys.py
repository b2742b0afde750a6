"""Keys of people who come over ssh: whose a key is, and the list of keys that sshd lets in.

A key is an identity of the channel `ssh` whose address is its fingerprint (`people` owns the table); the key itself is stored with
it. `ssh/authorized_keys` in the home is written from these after each change and at the core's start: sshd reads it through
`AuthorizedKeysCommand`. Who may say that a caller has proved a key is decided in `service.daemon`. Knows nothing about sshd's
configuration.
"""

import base64
import binascii
import hashlib
import json
import logging
import struct
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Struct

from appliance.errors import BadInput, NotFound, Refused
from appliance.policy.audit_log import Ledger
from appliance.runtime import paths
from appliance.runtime.events import Events
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.sessions.logins import LoginsEnded
from appliance.sessions.people import People, PersonActivated
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
CHANNEL = "ssh"
KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)
MIN_RSA_BITS = 2048
MAX_COMMENT = 60
HEAD = "# Written by Owlbox from its list of keys (owlbox people keys); what is written here by hand is lost.\n"
GIVE = "give the line of the .pub file, such as ~/.ssh/id_ed25519.pub"
WhichKey = Annotated[str, Range(1, 16_384), "a line of a .pub file; to remove one also its fingerprint, or the beginning of it"]


class SshKey(Struct, frozen=True):
    """A key as people see it; `comment` is what stood behind it in its file."""

    fingerprint: str
    person: str
    kind: str
    comment: str


class Parsed(NamedTuple):
    """A public key that sshd would take."""

    kind: str
    data: str
    comment: str
    fingerprint: str


class Proved(NamedTuple):
    """Somebody who has proved a key, by its fingerprint."""

    person: str
    fingerprint: str


class SshKeys:
    """Adds, lists and removes keys; `file` is the list that sshd reads."""

    def __init__(self, store: Store, people: People, ledger: Ledger, events: Events, file: Path) -> None:
        self._store = store
        self._people = people
        self._ledger = ledger
        self._events = events
        self._file = file
        events.subscribe(PersonActivated, lambda decided: self._rewrite_file())

    @method("people.keys", access="own")
    def list_keys(self, person: Annotated[str, "only of this person"] = "") -> list[SshKey]:
        """The keys with which people come over ssh, by person."""
        return [SshKey(print_, name, kind, comment) for print_, name, kind, _, comment in self._rows() if person in ("", name)]

    @method("people.key")
    def change_key(
        self,
        key: WhichKey,
        person: Annotated[str, "who comes in with it; empty removes it"] = "",
    ) -> SshKey:
        """Add an ssh key for a person, who is created if needed, or let nobody in with it any more. Refused if another has it."""
        return self.add_key(person, key) if person else self.remove_key(key)

    def add_key(self, person: str, key: str) -> SshKey:
        """Add an ssh key for a person; creates the person if needed."""
        found = parse_key(key)
        given = {"kind": found.kind, "key": found.data, "comment": found.comment}
        with self._store.write(durable=True):
            self._people.ensure_person(person)
            self._people.link_identity(f"{CHANNEL}/{found.fingerprint}", person)
            self._people.note_reply(CHANNEL, found.fingerprint, given)
        self._ledger.note("ssh_key_added", actor=f"user:{person}", detail={"key": found.fingerprint})
        self.write_file()
        return SshKey(found.fingerprint, person, found.kind, found.comment)

    def remove_key(self, key: str) -> SshKey:
        """Let nobody in with a key any more, and hang up on whoever came with it."""
        wanted = key.strip()
        if not wanted.startswith("SHA256:"):
            wanted = parse_key(key).fingerprint
        fits = [one for one in self.list_keys() if one.fingerprint.startswith(wanted)]
        exact = [one for one in fits if one.fingerprint == wanted] or fits
        if len(exact) != 1:
            problem = f"{len(fits)} keys begin with {wanted}" if fits else f"no key {wanted}"
            raise NotFound(problem, hint="owlbox people keys shows them")
        self._people.link_identity(f"{CHANNEL}/{exact[0].fingerprint}")
        self._ledger.note("ssh_key_removed", actor=f"user:{exact[0].person}", detail={"key": exact[0].fingerprint})
        self.write_file()
        self._events.publish(LoginsEnded((exact[0].fingerprint,)))
        return exact[0]

    def find_person(self, key: str) -> Proved:
        """Whose key it is that a caller has proved; Refused for one that is nobody's, or of somebody who is deactivated."""
        found = parse_key(key)
        person = self._people.find_linked(CHANNEL, found.fingerprint)
        if not person:
            raise Refused(f"the key {found.fingerprint} is nobody's", hint="an admin adds it: owlbox people add-key PERSON KEYFILE")
        self._people.require_active(person)
        return Proved(person, found.fingerprint)

    def write_file(self) -> None:
        """Bring the list that sshd reads up to date."""
        rows = [row for row in self._rows() if self._people.is_active(row[1])]
        if not rows and not self._file.exists():
            return
        text = HEAD + "".join(f"restrict,pty {kind} {data} {print_}\n" for print_, _, kind, data, _ in rows)
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        paths.put(self._file, text.encode())

    def _rewrite_file(self) -> None:
        """Somebody is let in again, or not any more; without a disk that takes it `find_person` refuses them all the same."""
        try:
            self.write_file()
        except OSError as error:
            LOG.error("%s is not written: %s", self._file, error.strerror or error)

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        """Fingerprint, person, kind, key and comment of each."""
        sql = "SELECT address, person, reply FROM identities WHERE channel = ? ORDER BY person, linked_ms, address"
        rows: list[tuple[str, str, str, str, str]] = []
        for address, person, reply in self._store.rows(sql, (CHANNEL,)):
            stored: dict[str, Any] = json.loads(reply)
            if stored.get("key"):  # one that was linked by hand has none
                rows.append((str(address), str(person), *(str(stored.get(name, "")) for name in ("kind", "key", "comment"))))  # type: ignore[arg-type]
        return rows


def parse_key(text: str) -> Parsed:
    """One public key of a kind that is let in; BadInput says what else was given. Options before a key are refused."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if "PRIVATE KEY" in text:
        raise BadInput("that is a private key, which belongs to nobody but its owner", hint=GIVE)
    if len(lines) != 1:
        raise BadInput(f"{len(lines)} lines are not one public key", hint=GIVE)
    kind, _, rest = lines[0].strip().partition(" ")
    data, _, comment = rest.strip().partition(" ")
    if kind not in KINDS:
        raise BadInput(f"{kind[:40]!r} is not a kind of key that is let in", hint=f"{GIVE}; kinds: {', '.join(KINDS)}")
    try:
        raw = base64.b64decode(data, validate=True)
        inside = _fields(raw)
    except (binascii.Error, struct.error, ValueError):
        raise BadInput(f"the {kind} key is damaged", hint=GIVE) from None
    if not inside or inside[0] != kind.encode() or len(inside) < 2:
        raise BadInput(f"the key is not of the kind {kind} that stands before it", hint=GIVE)
    if kind == "ssh-rsa" and (bits := int.from_bytes(inside[-1], "big").bit_length()) < MIN_RSA_BITS:
        raise BadInput(f"an RSA key of {bits} bits is too short", hint="ssh-keygen -t ed25519 makes a good one")
    digest = base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
    shown = "".join(letter for letter in comment.strip() if letter.isprintable())[:MAX_COMMENT]
    return Parsed(kind, data, shown, f"SHA256:{digest}")


def _fields(raw: bytes) -> list[bytes]:
    """The fields of a key: each its length in four bytes, then as many; ValueError when they do not end where the key does."""
    found = []
    at = 0
    while at < len(raw):
        (size,) = struct.unpack_from(">I", raw, at)
        found.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    if at != len(raw):
        raise ValueError("a field goes beyond the end")
    return found
