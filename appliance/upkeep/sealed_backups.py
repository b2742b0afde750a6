"""Backups that leave this machine: sealed under a passphrase or the content of a key file.

A sealed file begins with a line of JSON (salt and rounds of the key, nothing about the home), then has pieces of AES-256-GCM, each
bound to its number and to whether it is the last: a file that was cut, joined or changed is refused.
"""

import json
import os
import re
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from appliance.errors import BadInput, Refused, StoreError
from appliance.runtime import paths
from appliance.secrets import encryption
from appliance.store import disk_faults, storage_errors
from appliance.upkeep.backups import Progress

SUFFIX = ".sealed"
NAME = re.compile(r"owlbox-\d{8}T\d{6}Z(-\d+)?\.zip(\.sealed)?")
MAGIC, FORMAT, ROUNDS = "owlbox sealed backup", 1, 600_000
PIECE, LONGEST_HEAD = 1 << 20, 1024
LARGEST_PIECE = PIECE + encryption.NONCE + encryption.TAG
SHORTEST = 8  # characters of a passphrase


class SealedHead(Struct, frozen=True):
    """The first line of a sealed file, which anybody may have written: what deriving its key costs is bounded here."""

    what: str
    format: int
    salt: Annotated[str, Meta(pattern="^(?:[0-9a-f]{2}){16,64}$")]
    rounds: Annotated[int, Meta(ge=1, le=10 * ROUNDS)]


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


def list_folder(folder: Path) -> list[str]:
    """The backups in a folder, newest first; those dated in the future last, as `backups.listing` has them."""
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    wanted = (path.name for path in folder.glob("owlbox-*") if NAME.fullmatch(path.name))
    return sorted(wanted, key=lambda name: ((stamp := in_order(name))[0] <= now, stamp), reverse=True)


def in_order(name: str) -> tuple[str, int]:
    """What sorts the names of backups by age: of the same second the one with the higher number is newer."""
    stem = name.partition(".")[0]
    stamp, _, number = stem.removeprefix("owlbox-").partition("-")
    return stamp, int(number) if number.isdecimal() else 1


def rotate(folder: Path, new: str, keep: int) -> list[str]:
    """Remove the last sealed backup of a folder if they are too many, never the `new` one; its name.

    At most one goes for one that is made, however wrong the clock is.
    """
    others = [name for name in list_folder(folder) if name.endswith(SUFFIX) and name != new]
    old = others[-1:] if len(others) >= keep else []
    for name in old:
        (folder / name).unlink(missing_ok=True)
    return old


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
