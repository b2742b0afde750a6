"""A bundle: one file with everything another version needs, and the signature of who made it.

An uncompressed tar file: `manifest.json`, its Ed25519 signature `manifest.sig`, then the wheels that the manifest names with
size and SHA-256. Nothing of it is used before the signature, and no wheel before its digest, was checked. Refused, with words:
another key, a changed or cut file, a version that is not newer, one that has expired, another platform.
"""

import base64
import binascii
import hashlib
import json
import platform
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from appliance.clock import iso, now_ms
from appliance.errors import BadInput, DiskFault, NotFound, Refused
from appliance.secrets import encryption
from appliance.store import disk_faults
from appliance.text import tar_reader
from appliance.text.tar_reader import Member
from appliance.upkeep.updates.last_check import order

FORMAT = 1
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
NAME = re.compile(r"owlbox-[0-9][0-9a-z.]*-[a-z0-9_]+\.bundle")
WHEEL = re.compile(r"wheels/[A-Za-z0-9_.+!-]+\.whl")
VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){1,3}")
LARGEST_MANIFEST, LARGEST = 1_000_000, 8 << 30  # bytes
PIECE = 1 << 20
ELSEWHERE = "take one from where this installation is maintained"


class BundleTarget(Struct, frozen=True):
    """The machines that a bundle is for: `platform` such as linux_aarch64, `python` such as 3.13."""

    platform: str
    python: str

    def __str__(self) -> str:
        return f"{self.platform} with Python {self.python}"


class Manifest(Struct, frozen=True):
    """What a bundle says of itself, under its signature; `files` are size and SHA-256 by name."""

    version: str
    platform: str
    python: str
    made_ms: int
    expires_ms: int
    database: int
    files: dict[str, tuple[int, str]]
    format: int = 0

    @property
    def target(self) -> BundleTarget:
        """The machines that it is for."""
        return BundleTarget(self.platform, self.python)

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(size for size, _ in self.files.values())


def this_target() -> BundleTarget:
    """The machine type that an update bundle must fit."""
    return BundleTarget(f"{sys.platform}_{platform.machine()}", f"{sys.version_info.major}.{sys.version_info.minor}")


def read_key(text: str) -> bytes:
    """A public key from its base64 text."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise BadInput("the key for updates is not an Ed25519 key in base64", hint="updates.key, or update.pub beside the versions")
    return key


def read_manifest(data: bytes, signature: bytes, key: bytes, name: str) -> Manifest:
    """The manifest in some bytes; Refused unless the owner of the key signed them."""
    if not encryption.is_signed(key, data, signature):
        raise Refused(f"{name}: its signature is not that of updates.key", hint=f"it was changed or made by another: {ELSEWHERE}")
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{name}: its manifest cannot be read: {error}", hint=ELSEWHERE) from None
    if found.format != FORMAT or not VERSION.fullmatch(found.version) or not all(WHEEL.fullmatch(one) for one in found.files):
        raise Refused(f"{name}: its manifest is of another kind than this version knows", hint=ELSEWHERE)
    return found


def require_usable(found: Manifest, current: str, name: str) -> None:
    """Refused for a version that is not newer, has expired, or is for another machine."""
    if order(found.version) <= order(current):
        words = "is the one that runs" if found.version == current else f"is older than {current}, which runs"
        raise Refused(f"{name}: version {found.version} {words}", hint="owlbox update rollback goes back to the version before")
    if now_ms() > found.expires_ms:
        raise Refused(f"{name}: it expired on {iso(found.expires_ms)[:10]}", hint=f"is the clock right? Else {ELSEWHERE}")
    if found.target != this_target():
        raise Refused(f"{name}: it is made for {found.target}, this is {this_target()}", hint=ELSEWHERE)


@contextmanager
def opened(path: Path, key: bytes) -> Iterator[tuple[Manifest, Iterator[Member]]]:
    """A bundle whose signature was checked, and what else is in it, which is checked when it is unpacked."""
    try:
        with disk_faults.naming(path), path.open("rb") as file:
            members = tar_reader.members(file, LARGEST)
            data, signature = (_read_first(members, name, path) for name in (MANIFEST, SIGNATURE))
            yield read_manifest(data, signature, key, path.name), members
    except FileNotFoundError:
        raise NotFound(f"no bundle {path}", hint="give a file that ends in .bundle, or a folder with one") from None
    except tar_reader.UNREADABLE as error:
        damaged = Refused(f"{path.name}: it is cut off, damaged or no bundle: {error}", hint="copy or download it again")
        raise disk_faults.explain_fault(error) or damaged from None


def unpack(found: Manifest, members: Iterator[Member], folder: Path, name: str) -> list[Path]:
    """Write the wheels into a folder; Refused unless they are exactly those that were signed."""
    made, left = [], dict(found.files)
    try:
        for member in members:
            if member.name not in left or not member.is_file:
                raise Refused(f"{name}: it holds {member.name}, which was not signed", hint=ELSEWHERE)
            size, digest = left.pop(member.name)
            target = folder / Path(member.name).name
            if member.size_bytes != size or _copy_file(member, target) != digest:
                raise Refused(f"{name}: {member.name} is not what was signed", hint="copy or download it again")
            made.append(target)
    except tarfile.TarError as error:
        raise Refused(f"{name}: it is cut off or damaged: {error}", hint="copy or download it again") from None
    if left:
        raise Refused(f"{name}: it lacks {next(iter(left))}", hint="copy or download it again")
    return made


def find(place: Path, key: bytes) -> Path:
    """The bundle that is meant: a file, or the newest one for this machine in a folder, such as a USB stick."""
    if not place.is_dir():
        return place
    known: list[tuple[tuple[int, ...], Path]] = []
    fault: DiskFault | None = None
    for path in sorted(path for path in place.glob("owlbox-*.bundle") if path.is_file()):
        try:
            with opened(path, key) as (found, _):
                if found.target == this_target():
                    known.append((order(found.version), path))
        except Refused:
            continue
        except DiskFault as error:
            fault = error  # another one may be well
    if not known:
        if fault is not None:
            raise fault
        raise NotFound(f"{place} has no bundle for this machine with the right signature", hint=ELSEWHERE)
    return max(known)[1]


def describe(version: str, database: int, wheels: list[Path], target: BundleTarget, made_ms: int, expires_ms: int) -> Manifest:
    """What the manifest of a bundle with these wheels says; `database` is the version that it migrates to."""
    files = {f"wheels/{path.name}": (path.stat().st_size, digest_file(path)) for path in sorted(wheels)}
    return Manifest(version, target.platform, target.python, made_ms, expires_ms, database, files, FORMAT)


def build(folder: Path, manifest: Manifest, wheels: list[Path], private: bytes) -> Path:
    """Write and sign a bundle, with its digest and the index of a source beside it; the bundle's path.

    The same manifest, wheels and key give the same bytes.
    """

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode, member.mtime = 0o644, manifest.made_ms // 1000
        return member

    path = folder / f"owlbox-{manifest.version}-{manifest.platform}.bundle"
    data = json.dumps(msgspec.to_builtins(manifest), indent=1).encode()
    index = (
        (MANIFEST, folder / "latest.json", data),
        (SIGNATURE, folder / "latest.sig", encryption.sign(private, data)),
    )
    with tarfile.open(path, "w") as archive:
        for name, part, content in index:
            part.write_bytes(content)
            archive.add(part, name, filter=plain)
        for wheel in sorted(wheels):
            archive.add(wheel, f"wheels/{wheel.name}", recursive=False, filter=plain)
    path.with_name(f"{path.name}.sha256").write_text(f"{digest_file(path)}  {path.name}\n")
    return path


def _read_first(members: Iterator[Member], name: str, path: Path) -> bytes:
    member = next(members, None)
    if member is None or member.name != name or not member.is_file or member.size_bytes > LARGEST_MANIFEST:
        raise Refused(f"{path.name}: it does not begin as a bundle does", hint=ELSEWHERE)
    return member.read(LARGEST_MANIFEST)


def _copy_file(source: Member, target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while piece := source.read(PIECE):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def digest_file(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()
