"""Backups that leave this machine: sealed under a passphrase or the content of a key file, to a folder or by SFTP.

A sealed file begins with a line of JSON (salt and rounds of the key, nothing about the home), then has pieces of AES-256-GCM, each
bound to its number and to whether it is the last: a file that was cut, joined or changed is refused. SFTP is the `sftp` program of
OpenSSH, with the keys and known hosts of the user who runs it; it asks nothing.
"""

import json
import os
import re
import struct
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from appliance.errors import BadInput, NotFound, Refused, StoreError, Unavailable
from appliance.runtime import paths
from appliance.secrets import encryption
from appliance.store import disk_faults, storage_errors
from appliance.upkeep.backups import Progress

SUFFIX = ".sealed"
NAME = re.compile(r"owlbox-\d{8}T\d{6}Z(-\d+)?\.zip(\.sealed)?")
MAGIC, FORMAT, ROUNDS = "owlbox sealed backup", 1, 600_000
PIECE, LONGEST_HEAD = 1 << 20, 1024
LARGEST_PIECE = PIECE + encryption.NONCE + encryption.TAG
LIMIT_S = 4 * 3600.0
BRIEF_S = 8.0  # of a look whether a server lets us in
SSH_CONFIG = "OWLBOX_SSH_CONFIG"  # names another configuration of ssh than the user's
SHORTEST = 8  # characters of a passphrase
PLACES = "a folder, or sftp://user@host/folder with an SSH key"


class SealedHead(Struct, frozen=True):
    """The first line of a sealed file, which anybody may have written: what deriving its key costs is bounded here."""

    what: str
    format: int
    salt: Annotated[str, Meta(pattern="^(?:[0-9a-f]{2}){16,64}$")]
    rounds: Annotated[int, Meta(ge=1, le=10 * ROUNDS)]


class SftpFolder(Struct, frozen=True):
    """A folder of an SFTP server."""

    host: str
    folder: str
    port: int = 22


def is_remote(text: str) -> bool:
    """Whether a target is a server and not a folder."""
    return "://" in text


def parse_place(text: str) -> SftpFolder:
    """`sftp://user@host:port/folder`; a folder that begins with /~/ is in the user's home there."""
    parts = urlsplit(text)
    try:
        port = parts.port or 22
    except ValueError:
        port = 0
    if parts.scheme != "sftp" or not parts.hostname or parts.password or not port:
        raise BadInput(f"{text} is not a place for backups", hint=PLACES)
    folder = parts.path.removeprefix("/~/") if parts.path.startswith("/~/") else parts.path
    if re.search(r"[\x00-\x1f\"\\*?\[]", folder) or parts.hostname.startswith("-"):
        raise BadInput(f"{text} has signs in its folder that sftp would take otherwise", hint="use letters, digits, - and /")
    return SftpFolder(f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname, folder or ".", port)


def read_key_file(path: Path) -> str:
    """The content of a key file without its final line break."""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        hint = "put it back, or name another file with a line of text: owlbox config set backups.key_file PATH"
        raise BadInput(f"the key file {path} cannot be read: {reason}", hint=hint) from None
    if len(text) < SHORTEST:
        hint = "write four words into it that nobody else would put together"
        raise BadInput(f"the key file {path} holds {len(text)} characters, at least {SHORTEST} are needed", hint=hint)
    return text


def require_long(text: str) -> str:
    """The passphrase, if it is long enough to be one."""
    if len(text) < SHORTEST:
        raise BadInput(f"a passphrase has at least {SHORTEST} characters", hint="four words that nobody else would put together")
    return text


def is_sealed(path: Path) -> bool:
    """Whether a file begins as sealed ones do."""
    return _read_head(path) is not None


def seal(source: Path, target: Path, passphrase: str, progress: Progress) -> None:
    """Write a sealed copy, flushed; it appears whole or not at all."""
    salt = os.urandom(16)
    key = encryption.derived(passphrase, salt, ROUNDS)
    head = json.dumps({"what": MAGIC, "format": FORMAT, "salt": salt.hex(), "rounds": ROUNDS}).encode() + b"\n"
    total, done = source.stat().st_size, 0
    part = target.with_name(f".{target.name}.part")
    try:
        with source.open("rb") as file, open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as out:
            out.write(head)
            number, piece = 0, file.read(PIECE)
            while True:
                following = file.read(PIECE)
                sealed = encryption.seal(key, piece, _about(head, number, is_last=not following))
                out.write(struct.pack("<I", len(sealed)) + sealed)
                done += len(piece)
                progress("sealing", done, total)
                if not following:
                    break
                number, piece = number + 1, following
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, target)
        paths.flush(target.parent)
    except OSError as error:
        raise storage_errors.host_error(error, target) from None
    finally:
        part.unlink(missing_ok=True)


def unseal(source: Path, target: Path, passphrase: str, progress: Progress) -> None:
    """Write what was sealed; Refused for a wrong passphrase, StoreError for a damaged file."""
    found = _read_head(source)
    if found is None:
        raise StoreError(f"{source} is not a sealed backup", hint="owlbox backup list shows the backups")
    head, told = found
    key = encryption.derived(passphrase, bytes.fromhex(told.salt), told.rounds)
    total, number, is_last, is_whole = source.stat().st_size, 0, False, False
    damaged = StoreError(f"{source} is damaged or cut off", hint="take another one: owlbox backup list")
    try:
        with source.open("rb") as file, open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
            file.seek(len(head))
            while not is_last:
                prefix = file.read(4)
                size = struct.unpack("<I", prefix)[0] if len(prefix) == 4 else 0
                if not 0 < size <= LARGEST_PIECE or file.tell() + size > total:
                    raise damaged
                is_last = file.tell() + size == total
                out.write(encryption.unseal(key, file.read(size), _about(head, number, is_last=is_last)))
                number += 1
                progress("opening", file.tell(), total)
            is_whole = True
    except encryption.Broken:
        if number:
            raise damaged from None
        hint = "try that of the day it was made; if none opens it, the file is damaged: choose another backup"
        raise Refused(f"{source} does not open with this passphrase", hint=hint) from None
    finally:
        if not is_whole:
            target.unlink(missing_ok=True)


def send(path: Path, place: SftpFolder, keep: int) -> list[str]:
    """Put a file into the folder of a server, whole or not at all, and remove the one that is too many; its name."""
    part = f"{place.folder}/.{path.name}.part"
    _run(place, f'-mkdir "{place.folder}"', f'put "{path}" "{part}"', f'rename "{part}" "{place.folder}/{path.name}"')
    old = _find_surplus(list_files(place), path.name, keep)
    if old:
        _run(place, *(f'-rm "{place.folder}/{name}"' for name in old))
    return old


def list_files(place: SftpFolder) -> list[str]:
    """The backups in the folder of a server, newest first."""
    lines = _run(place, f'ls -1 "{place.folder}"').splitlines()
    names = (line.strip().rpartition("/")[2] for line in lines if not line.startswith("sftp>"))
    return _sort_names(names)


def list_folder(folder: Path) -> list[str]:
    """The sealed backups in a folder, newest first."""
    return _sort_names(path.name for path in folder.glob("owlbox-*"))


def in_order(name: str) -> tuple[str, int]:
    """What sorts the names of backups by age: of the same second the one with the higher number is newer."""
    stem = name.partition(".")[0]
    stamp, _, number = stem.removeprefix("owlbox-").partition("-")
    return stamp, int(number) if number.isdecimal() else 1


def rotate(folder: Path, new: str, keep: int) -> list[str]:
    """Remove the sealed backup of a folder that is one too many, never the `new` one; its name."""
    old = _find_surplus([name for name in list_folder(folder) if name.endswith(SUFFIX)], new, keep)
    for name in old:
        (folder / name).unlink(missing_ok=True)
    return old


def _sort_names(names: Iterable[str]) -> list[str]:
    """The names that are those of backups, newest first; those dated in the future last, as `backups.listing` has them."""
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    wanted = (name for name in names if NAME.fullmatch(name))
    return sorted(wanted, key=lambda name: ((stamp := in_order(name))[0] <= now, stamp), reverse=True)


def _find_surplus(names: list[str], new: str, keep: int) -> list[str]:
    """The last of the names but `new`, if they are too many: at most one goes for one that is made, however wrong the clock is."""
    others = [name for name in names if name != new]
    return others[-1:] if len(others) >= keep else []


def fetch(place: SftpFolder, target: Path) -> None:
    """Bring one file: the folder of the place is its path."""
    _run(place, f'get "{place.folder}" "{target}"')
    if not target.exists():
        raise NotFound(f"no backup {place.folder} on {place.host}", hint="owlbox backup list --to sftp://... shows them")


def require_answer(place: SftpFolder) -> None:
    """Unavailable when a server does not let us in; asks for a few seconds at most."""
    _run(place, "pwd", limit_s=BRIEF_S)


def _run(place: SftpFolder, *commands: str, limit_s: float = LIMIT_S) -> str:
    given, patience_s = os.environ.get(SSH_CONFIG, ""), min(20, int(limit_s / 2))
    options = [*(["-F", given] if given else []), "-oBatchMode=yes", f"-oConnectTimeout={patience_s}", "-oLogLevel=ERROR"]
    words = ["sftp", *options, "-b", "-", "-P", str(place.port), "--", place.host]
    try:
        done = subprocess.run(words, input="\n".join(commands), capture_output=True, text=True, timeout=limit_s)
    except FileNotFoundError:
        raise Unavailable("the program sftp is not installed", hint="sudo apt install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{place.host} did not answer in time", hint="try again when the network is better") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("Connection closed")]
        said = (lines or ["it hung up"])[-1].strip()
        hint = f"try it by hand: sftp -P {place.port} {place.host}"
        raise Unavailable(f"{place.host} cannot be used for backups: {said}", hint=hint)
    return done.stdout


def _read_head(path: Path) -> tuple[bytes, SealedHead] | None:
    """The first line and what it says, None when the file is no sealed backup."""
    with disk_faults.naming(path), path.open("rb") as file:
        head = file.readline(LONGEST_HEAD)
    try:
        told = msgspec.json.decode(head, type=SealedHead)
    except (ValueError, RecursionError):
        return None
    return (head, told) if (told.what, told.format) == (MAGIC, FORMAT) else None


def _about(head: bytes, number: int, *, is_last: bool) -> bytes:
    """What a piece is bound to."""
    return head + struct.pack("<Q?", number, is_last)
