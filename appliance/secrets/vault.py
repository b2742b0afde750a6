"""Secrets at rest: one file of encrypted values in a folder of the broker's user, and the key that opens them.

Only the broker opens it. Each value is AES-256-GCM under one key, bound to its name and dates; the key is derived from a
credential of systemd or from a passphrase, or lies in a file beside the values, which `upkeep.doctor` warns of. The file is
replaced whole: a kill at any moment leaves the old state or the new one. How often a secret was read is written at most
once an hour and at an orderly end, so a killed broker forgets up to an hour of that. Knows nothing about who may ask.
Not promised: that nobody deletes a line of the file unnoticed, or that a value never reaches swap.
"""

import base64
import fcntl
import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import boot_id, iso, now_ms, up_ms
from appliance.errors import BadInput, NotFound, OwlError, Refused, Unavailable
from appliance.runtime import paths
from appliance.secrets import encryption
from appliance.secrets.process_secrets import HANDED as HANDED
from appliance.store import disk_faults

Kind = Literal["file", "passphrase", "credential"]
KINDS: tuple[Kind, ...] = ("file", "passphrase", "credential")
CREDENTIAL = "owlbox-vault.key"  # its name among the credentials of the broker's unit
PREFIX = "secret:"  # before a name, where the configuration means a secret
OWN = "llm"  # secrets of this kind never leave the broker
NAME = re.compile(rf"({'|'.join((OWN, *HANDED))})/([\w-][\w.-]{{0,63}})")
ITERATIONS = 600_000  # of PBKDF2-HMAC-SHA256
KEY, SALT = encryption.KEY, 16  # bytes
MAX_BYTES = 65_536  # of a value: private keys fit
MIN_PASSPHRASE = 8
SOON_MS = 7 * 24 * 3600 * 1000
LEAP_MS = 5000  # a clock that differs by less was only trimmed
FLUSH_MS = 3600 * 1000
LAST_MS = 253_402_300_799_999  # the end of the year 9999
VALUES, USES = "secrets", "uses"


class Secret(Struct, frozen=True):
    """What is known of a secret, without its value; `uses` and `used_ms` count since it was first set."""

    name: str
    created_ms: int
    expires_ms: int | None = None
    used_ms: int = 0
    uses: int = 0
    is_expired: bool = False
    is_expiring: bool = False  # within seven days


class _Lock(Struct, frozen=True):
    """How the key is come by: the first line of the file. `check` is something sealed with it, to tell a wrong key."""

    kind: Kind
    id: str
    salt: bytes
    iterations: int
    check: bytes = b""

    @property
    def about(self) -> bytes:
        """What its seal is bound to."""
        return json.dumps([1, self.kind, self.id, self.salt.hex(), self.iterations]).encode()


class _Record(Struct, frozen=True):
    """One line of the file; of one that cannot be understood, `raw` is what there is.

    An end that was counted from when it was set, as "in 90 days" is, has with it the machine's start as the clock showed it then.
    """

    name: str
    created_ms: int
    expires_ms: int | None
    sealed: bytes
    raw: bytes = b""
    boot: str = ""
    start_ms: int = 0

    @property
    def about(self) -> bytes:
        """What its seal is bound to: a value cannot be given another name or date."""
        counted = [self.boot, self.start_ms] if self.boot else []
        return json.dumps([1, self.name, self.created_ms, self.expires_ms, *counted]).encode()


Records = dict[str, _Record]


class Vault:
    """The secrets of one folder. Safe for several threads, and beside another broker on the same folder."""

    def __init__(
        self,
        folder: Path,
        *,
        credential: bytes = b"",
        now: Callable[[], int] = now_ms,
        up: Callable[[], int] = up_ms,
        learn: Callable[[str], None] = lambda value: None,
        iterations: int = ITERATIONS,
    ) -> None:
        """`learn` is told every value as it becomes known, to hide it. Nothing is made before the first secret is set."""
        self._folder = folder
        self._credential = credential
        self._now, self._up = now, up
        self._learn = learn
        self._iterations = iterations
        self._guard = threading.RLock()
        self._stamp: tuple[int, int, int] | None = None
        self._lock: _Lock | None = None
        self._records: Records = {}
        self._keys: dict[str, bytes] = {}
        self._fresh: dict[str, tuple[int, int]] = {}  # reads that are not on disk: how many, the last one
        self._flushed_ms = 0

    # -- secrets ------------------------------------------------------------------------------------

    def set(self, name: str, value: str, expires_ms: int | None = None, lasts_ms: int | None = None) -> bool:
        """Keep a value under a name, in place of the one before; False when it is there already, with this date."""
        check_name(name)
        data = _encode_value(value)
        expires_ms, boot, start_ms = self._parse_end(expires_ms, lasts_ms)
        if expires_ms is not None and expires_ms <= self._now():
            raise BadInput(f"{iso(expires_ms)} has passed already", hint="give a time to come")
        with self._change_records() as records:
            key = self._current_key(make=True)
            old = records.get(name)
            if old is not None and old.expires_ms == expires_ms and self._is_value(old, key, data):
                return False
            record = _Record(name, self._now(), expires_ms, b"", b"", boot, start_ms)
            records[name] = replace(record, sealed=encryption.seal(key, data, record.about))
            self._learn(value)
            return True

    def get(self, name: str) -> str:
        """The value, counted as a use; NotFound, Refused when it has expired, OwlError when it was tampered with."""
        check_name(name)
        with self._guard:
            self._follow_clock()
            record = self._find_record(self._records, name)
            if record.expires_ms is not None and record.expires_ms <= self._now():
                raise Refused(
                    f"secret {name} expired at {iso(record.expires_ms)}", hint=f"owlbox secret set {name}, or owlbox secret purge"
                )
            value = _decode_record(record, self._current_key())
            self._learn(value)
            self._count_use(name)
            return value

    def resolve(self, text: str) -> str:
        """The value that a text of the configuration means: of the secret it names, else the text itself."""
        return self.get(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else text

    def has(self, name: str) -> bool:
        """Whether there is such a secret, of whatever age; needs no key."""
        with self._guard:
            self._refresh_records()
            return name in self._records

    def listing(self) -> list[Secret]:
        """All secrets by name, without values; needs no key."""
        with self._guard:
            self._follow_clock()
            told, now = self._collect_uses(), self._now()
            return [_describe_record(record, *told.get(name, (0, 0)), now) for name, record in sorted(self._records.items())]

    def remove(self, name: str) -> None:
        """Forget a secret; NotFound when there is none."""
        with self._change_records() as records:
            del records[self._find_record(records, name).name]

    def expire(self, name: str, expires_ms: int | None, lasts_ms: int | None = None) -> int | None:
        """Let a secret end at a time, which may have passed, or after a while, or never; when that is."""
        expires_ms, boot, start_ms = self._parse_end(expires_ms, lasts_ms)
        with self._change_records() as records:
            old, key = self._find_record(records, name), self._current_key()
            data = _decode_record(old, key).encode()
            record = replace(old, expires_ms=expires_ms, boot=boot, start_ms=start_ms)
            records[name] = replace(record, sealed=encryption.seal(key, data, record.about))
        return expires_ms

    def purge(self) -> list[str]:
        """Remove what has expired; the names."""
        with self._guard:
            gone = [secret.name for secret in self.listing() if secret.is_expired]
        if gone:
            with self._change_records() as records:
                for name in gone:
                    records.pop(name, None)
        return gone

    def values(self) -> list[str]:
        """Every value that can be read, expired or not, to hide them in logs; not counted. Nothing while it is locked."""
        with self._guard:
            self._refresh_records()
            found = []
            for record in self._records.values():
                try:
                    found.append(_decode_record(record, self._current_key()))
                except OwlError:
                    continue  # reading it says why
            return found

    def close(self) -> None:
        """Write down what was counted."""
        with self._guard:
            self._follow_clock()
            self._flush_uses()

    # -- the key ------------------------------------------------------------------------------------

    @property
    def is_locked(self) -> bool:
        """True while a passphrase is needed and nobody has given it."""
        with self._guard:
            self._refresh_records()
            return self._lock is not None and self._lock.kind == "passphrase" and self._lock.id not in self._keys

    def status(self) -> dict[str, Any]:
        """How the key is kept, whether it is there, how many secrets there are and how many end soon. No names."""
        secrets = self.listing()
        return {
            "key": self._lock.kind if self._lock else "",
            "is_locked": self.is_locked,
            "count": len(secrets),
            "expiring": sum(secret.is_expiring for secret in secrets),
            "expired": sum(secret.is_expired for secret in secrets),
        }

    def unlock(self, passphrase: str) -> None:
        """Take the passphrase into memory until this process ends; Refused when it is wrong."""
        with self._guard:
            self._refresh_records()
            if self._lock is None or self._lock.kind != "passphrase":
                raise BadInput("the vault has no passphrase", hint="owlbox secret rotate --to passphrase gives it one")
            key = encryption.derived(passphrase, self._lock.salt, self._lock.iterations)
            if not _fits_lock(self._lock, key):
                raise Refused("this is not the vault's passphrase", hint="owlbox secret unlock")
            self._keys[self._lock.id] = key
            for value in self.values():
                self._learn(value)

    def rotate(self, to: Kind | None = None, passphrase: str = "") -> int:
        """Encrypt every secret anew under a new key, of the same kind or another; how many. All of them or none."""
        with self._change_records() as records:
            kind: Kind = to or (self._lock.kind if self._lock else self._usual_kind())
            old = self._current_key() if records else b""
            values = {name: _decode_record(record, old) for name, record in records.items()}
            self._lock, key = self._make_key(kind, passphrase)
            for name, value in values.items():
                records[name] = replace(records[name], sealed=encryption.seal(key, value.encode(), records[name].about))
        with self._guard, self._lock_folder():
            self._refresh_records()
            self._remove_leftovers()
        return len(values)

    def _usual_kind(self) -> Kind:
        return "credential" if self._credential else "file"

    def _current_key(self, *, make: bool = False) -> bytes:
        """The key in force; Unavailable says what is missing."""
        if self._lock is None:
            if not make:
                raise Unavailable("the vault has no key yet", hint="the first secret makes one: owlbox secret set NAME")
            self._lock, key = self._make_key(self._usual_kind(), "")
            return key
        if self._lock.id not in self._keys:
            key = self._open_key(self._lock)
            if not _fits_lock(self._lock, key):
                raise Unavailable(f"the {self._lock.kind} does not open the vault", hint="put the right one back")
            self._keys[self._lock.id] = key
        return self._keys[self._lock.id]

    def _open_key(self, lock: _Lock) -> bytes:
        """The key as its kind has it."""
        if lock.kind == "passphrase":
            raise Unavailable("the vault is locked", hint="owlbox secret unlock")
        if lock.kind == "credential":
            return encryption.stretched(self._credential_key(), lock.salt, b"owlbox vault")
        path = self._key_file(lock.id)
        try:
            with paths.naming(path):
                return path.read_bytes()
        except OSError as error:
            hint = f"put it back from a copy; if there is none, move {self._folder / VALUES} away and set the secrets again"
            raise Unavailable(f"the key of the vault cannot be read: {path}: {error.strerror}", hint=hint) from None

    def _make_key(self, kind: Kind, passphrase: str) -> tuple[_Lock, bytes]:
        """A new key, on disk where it is one of a file."""
        lock = _Lock(kind, os.urandom(8).hex(), os.urandom(SALT), self._iterations if kind == "passphrase" else 0)
        if kind == "passphrase":
            if len(passphrase) < MIN_PASSPHRASE:
                raise BadInput(f"a passphrase of {len(passphrase)} characters is too short", hint=f"{MIN_PASSPHRASE} at least")
            key = encryption.derived(passphrase, lock.salt, lock.iterations)
        elif kind == "credential":
            key = encryption.stretched(self._credential_key(), lock.salt, b"owlbox vault")
        else:
            key = os.urandom(KEY)
            _write_private(self._key_file(lock.id), key)
        lock = replace(lock, check=encryption.seal(key, b"owlbox", lock.about))
        self._keys[lock.id] = key
        return lock, key

    def _credential_key(self) -> bytes:
        if len(self._credential) < KEY:
            what = "no credential" if not self._credential else f"a credential of {len(self._credential)} bytes"
            raise Unavailable(f"the broker has {what}", hint=f"set {CREDENTIAL} to {KEY} random bytes: docs/guides/secrets.md")
        return self._credential

    def _key_file(self, name: str) -> Path:
        return self._folder / f"key-{name}"

    # -- the files ----------------------------------------------------------------------------------

    def _find_record(self, records: Mapping[str, _Record], name: str) -> _Record:
        if name in records:
            return records[name]
        near = get_close_matches(name, records, 1)
        raise NotFound(f"no secret {name}", hint=f"did you mean {near[0]}?" if near else f"owlbox secret set {name}")

    def _is_value(self, record: _Record, key: bytes, data: bytes) -> bool:
        try:
            return _decode_record(record, key).encode() == data
        except OwlError:
            return False

    @contextmanager
    def _change_records(self) -> Iterator[Records]:
        """The records, to be changed; put on disk as a whole when the block ends well, and untouched when it does not."""
        with self._guard, self._lock_folder():
            self._refresh_records()
            lock, records = self._lock, dict(self._records)
            try:
                yield records
                if records != self._records or lock != self._lock:
                    _write_private(self._folder / VALUES, _format_file(self._lock, records))
                    self._stamp = None
            except BaseException:
                self._stamp = None  # whatever is on disk holds
                raise
            finally:
                self._refresh_records()
            self._flush_uses()

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Hold the folder itself locked against another broker; made when it is missing."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(folder).st_uid != os.geteuid():
                raise Refused(f"{self._folder} belongs to another user", hint="the vault is its broker's alone")
            if stat.S_IMODE(os.fstat(folder).st_mode) != 0o700:
                os.fchmod(folder, 0o700)
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _refresh_records(self) -> None:
        """Read the file when it is not the one that was read last."""
        path = self._folder / VALUES
        try:
            found = path.stat()
        except FileNotFoundError:
            self._stamp, self._lock, self._records = None, None, {}
            return
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._lock, self._records = _read_file(path)
            self._stamp = stamp

    def _parse_end(self, expires_ms: int | None, lasts_ms: int | None) -> tuple[int | None, str, int]:
        """When a secret ends that is set now, and what an end that is counted from now goes by."""
        if lasts_ms is None:
            _check_end(expires_ms)
            return expires_ms, "", 0
        if expires_ms is not None or lasts_ms < 0:
            raise BadInput("a secret ends at a time or after a while", hint="give one of expires_ms and lasts_ms")
        now = self._now()
        _check_end(now + lasts_ms)
        return now + lasts_ms, boot_id(), max(0, now - self._up())

    def _follow_clock(self) -> None:
        """Read the file, and let what was counted by a clock that was set since then last as long as it was to.

        In memory alone where nothing can be written, or while the vault is locked; the next look tries again.
        """
        self._refresh_records()
        start_ms = max(0, self._now() - self._up())
        old = {name: one for name, one in self._records.items() if one.boot and abs(start_ms - one.start_ms) >= LEAP_MS}
        moved = {name: _move_record(one, start_ms) for name, one in old.items() if one.boot == boot_id()}
        if not moved:
            return
        with suppress(OwlError):
            key = self._current_key()
            for name, one in moved.items():
                with suppress(OwlError):  # a damaged one stays so
                    moved[name] = replace(one, sealed=encryption.seal(key, _decode_record(old[name], key).encode(), one.about))
            with self._change_records() as records:
                records |= {name: one for name, one in moved.items() if records.get(name) == old[name]}
            return
        self._records |= moved
        self._stamp = None

    def _remove_leftovers(self) -> None:
        """Remove keys that open nothing any more, and what a killed process left half written."""
        keep = self._key_file(self._lock.id) if self._lock else None
        for path in self._folder.iterdir():
            if path != keep and (path.name.startswith("key-") or path.name.endswith(".part")):
                path.unlink(missing_ok=True)

    # -- counting -----------------------------------------------------------------------------------

    def _count_use(self, name: str) -> None:
        now = self._now()
        self._fresh[name] = (self._fresh.get(name, (0, 0))[0] + 1, now)
        if not self._flushed_ms:
            self._flushed_ms = now  # the first hour begins with the first use
        elif not 0 <= now - self._flushed_ms < FLUSH_MS:
            self._flush_uses()

    def _collect_uses(self) -> dict[str, tuple[int, int]]:
        """Uses and last use of every secret, those on disk and those since."""
        try:
            told = {str(n): (int(uses), int(at)) for n, (uses, at) in json.loads((self._folder / USES).read_bytes()).items()}
        except (OSError, ValueError, AttributeError, TypeError):
            told = {}
        for name, (uses, at) in self._fresh.items():
            before = told.get(name, (0, 0))
            told[name] = (before[0] + uses, max(before[1], at))
        return told

    def _flush_uses(self) -> None:
        if self._fresh:
            told = {name: uses for name, uses in self._collect_uses().items() if name in self._records}
            try:
                _write_private(self._folder / USES, json.dumps(told).encode() + b"\n")
            except OwlError:
                return  # a full disk is no reason to withhold a key; counted on
            self._fresh.clear()
            self._flushed_ms = self._now()


def credential(environ: Mapping[str, str]) -> bytes:
    """What systemd gave the broker's unit to open the vault with; empty without."""
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    try:
        return (Path(folder) / CREDENTIAL).read_bytes() if folder else b""
    except OSError:
        return b""


def check_name(name: str) -> str:
    """The name, when it can be one: KIND/NAME."""
    if not NAME.fullmatch(name):
        kind, _, rest = name.partition("/")
        wrong = "no name" if kind in (OWN, *HANDED) and not rest else f"{name[:80]!r}"
        kinds = ", ".join(f"{kind}/NAME" for kind in (OWN, *HANDED))
        raise BadInput(f"{wrong} cannot name a secret", hint=f"one of {kinds}; letters, digits, . _ and -")
    return name


def _check_end(expires_ms: int | None) -> None:
    if expires_ms is not None and not 0 <= expires_ms <= LAST_MS:
        raise BadInput("a secret cannot end then", hint="give a time between 1970 and 9999")


def _encode_value(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise BadInput("the value is not UTF-8 text", hint="owlbox secret set reads it from a pipe or a prompt") from None
    if not value.strip():
        raise BadInput("the value is empty", hint="owlbox secret rm removes a secret")
    if len(data) > MAX_BYTES:
        raise BadInput(f"a value of {len(data)} bytes is too long", hint=f"{MAX_BYTES} at most")
    return data


def _decode_record(record: _Record, key: bytes) -> str:
    if record.raw:
        raise OwlError(f"{record.name} of the vault is damaged", hint=f"owlbox secret rm {record.name}", outcome="damaged")
    try:
        return encryption.unseal(key, record.sealed, record.about).decode()
    except encryption.Broken as error:
        why = f"secret {record.name} cannot be read: {error.message}"
        raise OwlError(why, hint=f"set it again: owlbox secret set {record.name}", outcome="damaged") from None


def _describe_record(record: _Record, uses: int, used_ms: int, now: int) -> Secret:
    end = record.expires_ms
    is_expired = end is not None and end <= now
    is_expiring = end is not None and now < end <= now + SOON_MS
    return Secret(record.name, record.created_ms, end, used_ms, uses, is_expired, is_expiring)


def _move_record(record: _Record, start_ms: int) -> _Record:
    """The record by a clock that was set since, with the seal of before."""
    by_ms = start_ms - record.start_ms
    end = None if record.expires_ms is None else min(max(0, record.expires_ms + by_ms), LAST_MS)
    return replace(record, created_ms=max(0, record.created_ms + by_ms), expires_ms=end, start_ms=start_ms)


def _fits_lock(lock: _Lock, key: bytes) -> bool:
    """Whether it is the key of this lock."""
    try:
        return len(key) == encryption.KEY and encryption.unseal(key, lock.check, lock.about) == b"owlbox"
    except encryption.Broken:
        return False


# -- lines ------------------------------------------------------------------------------------------


def _format_file(lock: _Lock | None, records: Records) -> bytes:
    """The whole file: how to open it, then a line for each secret."""
    if lock is None:
        return b""
    head = {"vault": 1, "kind": lock.kind, "id": lock.id, "salt": lock.salt.hex(), "iterations": lock.iterations}
    lines = [json.dumps({**head, "check": base64.b64encode(lock.check).decode()}).encode()]
    for record in records.values():
        dates: dict[str, Any] = {"created_ms": record.created_ms, "expires_ms": record.expires_ms}
        dates |= {"boot": record.boot, "start_ms": record.start_ms} if record.boot else {}
        told = {"name": record.name, **dates, "sealed": base64.b64encode(record.sealed).decode()}
        lines.append(record.raw or json.dumps(told).encode())
    return b"".join(line + b"\n" for line in lines)


def _read_file(path: Path) -> tuple[_Lock, Records]:
    """What the file says; a line that cannot be read costs that secret alone, the first line all of them."""
    with paths.naming(path):
        head, *lines = path.read_bytes().split(b"\n")
    try:
        raw = json.loads(head)
        salt, check, iterations = bytes.fromhex(raw["salt"]), base64.b64decode(raw["check"], validate=True), int(raw["iterations"])
        if raw["vault"] != 1 or raw["kind"] not in KINDS or not re.fullmatch("[0-9a-f]{16}", raw["id"]):
            raise ValueError("unknown")
        if raw["kind"] == "passphrase" and not 1 <= iterations <= 100_000_000:
            raise ValueError("iterations")
        lock = _Lock(raw["kind"], raw["id"], salt, iterations, check)
    except (ValueError, KeyError, TypeError, OverflowError):
        hint = "restore it from a copy, or move it away and set the secrets again"
        raise OwlError(f"{path} is damaged in its first line", hint=hint, outcome="damaged") from None
    records: Records = {}
    for number, line in enumerate(lines, 2):
        if line:
            record = _parse_record(line, number)
            if record.name in records:
                record = _Record(f"line-{number}", 0, None, b"", line)
            records[record.name] = record
    return lock, records


def _parse_record(line: bytes, number: int) -> _Record:
    try:
        raw = json.loads(line)
        name, end = check_name(raw["name"]), raw["expires_ms"]
        boot, start_ms = str(raw.get("boot", "")), _check_moment(raw.get("start_ms", 0))
        created_ms, end = _check_moment(raw["created_ms"]), None if end is None else _check_moment(end)
        return _Record(name, created_ms, end, base64.b64decode(raw["sealed"], validate=True), b"", boot, start_ms)
    except (ValueError, KeyError, TypeError, BadInput):
        return _Record(f"line-{number}", 0, None, b"", line)


def _check_moment(value: Any) -> int:
    """A time in milliseconds; ValueError for what is none, as a changed byte may make `1e99` of one."""
    if type(value) is not int or not 0 <= value <= LAST_MS:
        raise ValueError("no time")
    return value


def _write_private(path: Path, data: bytes) -> None:
    """A whole private file or none, there after a power cut."""
    try:
        paths.put(path, data)
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
        raise disk_faults.explain_fault(error) or Unavailable(why, hint="nothing was changed; check owner and mode") from None
