#!/usr/bin/env python3
"""Takes a wheel from a published release, or checks a whole one: every file by the SHA-256 of a list that is signed.

    python3 release/published.py check FOLDER KEY
    python3 release/published.py take PACKAGE VERSION BUILD KEY INTO PLACE

A release has `SHA256SUMS` (`DIGEST  NAME` lines, as sha256sum writes them) and its Ed25519 signature `SHA256SUMS.sig`. KEY is a
file with the public key in base64, as image-build/bundle.py prints it. `take` puts the wheel of PACKAGE in exactly this VERSION and
BUILD (its build tag) that fits this machine into the folder INTO and prints its path; PLACE is a folder or an https address.

Exit codes: 0 done; 3 the place has nothing for this machine; 1 what is there cannot be trusted or reached, which stderr says.

Standard library only, for `make` calls it before anything is installed. The signature is therefore checked here (RFC 8032, section
5.1.7), which takes a few milliseconds. It checks what is public and signs nothing, so that time tells nobody anything.
"""

import base64
import binascii
import hashlib
import os
import platform
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
LARGEST_LIST, LARGEST_WHEEL = 1 << 20, 1 << 28  # bytes
LIMIT_S = 60
LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_.+-]+(?:/[A-Za-z0-9_.+-]+)*)")
NOTHING_FITS = 3

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)
BASE_Y = 4 * pow(5, -1, P) % P
Point = tuple[int, int, int, int]  # extended homogeneous coordinates
NEUTRAL: Point = (0, 1, 1, 0)


class Untrusted(Exception):
    """What is there is not what was signed, or cannot be had."""


def main(words: list[str]) -> int:
    """Do what the words say."""
    try:
        if words[:1] == ["check"] and len(words) == 3:
            count = check(Path(words[1]), Path(words[2]))
            print(f"{count} files are what was signed")
            return 0
        if words[:1] == ["take"] and len(words) == 7:
            package, version, build, key, into, place = words[1:]
            found = take(f"{package}-{version}-{build}", Path(key), Path(into), place)
            if found is None:
                print(f"{place} has no wheel {package}-{version}-{build} for {machine()}", file=sys.stderr)
                return NOTHING_FITS
            print(found)
            return 0
    except (Untrusted, OSError) as error:
        print(f"published: {error}", file=sys.stderr)
        return 1
    print((__doc__ or "").partition("\n\n")[2].partition("\n\n")[0], file=sys.stderr)
    return 2


def check(folder: Path, key: Path) -> int:
    """How many files a release has that are what was signed; Untrusted if one is not, is missing, or was not signed."""
    sums = read_sums(str(folder), read_key(key))
    for name, digest in sums.items():
        if not (folder / name).is_file():
            raise Untrusted(f"{folder / name} is missing")
        with (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise Untrusted(f"{folder / name} is not what was signed")
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    if extra := sorted(there - set(sums) - {SUMS, SIGNATURE}):
        raise Untrusted(f"{folder / extra[0]} was not signed")
    return len(sums)


def take(stem: str, key: Path, into: Path, place: str) -> Path | None:
    """The path of the wheel whose name begins so and that fits this machine, put into a folder; None if the place has none."""
    sums = read_sums(place, read_key(key))
    name = next((one for one in sums if one.startswith(f"{stem}-") and fits(one)), None)
    if name is None:
        return None
    data = fetch(place, name, LARGEST_WHEEL)
    if hashlib.sha256(data).hexdigest() != sums[name]:
        raise Untrusted(f"{place}: {name} is not what was signed")
    into.mkdir(parents=True, exist_ok=True)
    part = into / f".{name}.{os.getpid()}"
    part.write_bytes(data)
    return part.replace(into / name)


def machine() -> str:
    """This machine as a wheel's name tells it, with the newest C library that it has."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    return f"{'many' if name == 'glibc' else 'other '}linux_{version.replace('.', '_')}_{platform.machine()}"


def fits(name: str) -> bool:
    """True for a wheel for any Python 3 whose machine is this one and whose C library is not newer."""
    wanted = re.fullmatch(r"[^/]+-py3-none-manylinux_(\d+)_(\d+)_(\w+)\.whl", name)
    here = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", machine())
    return bool(wanted and here and wanted[3] == here[3] and (int(wanted[1]), int(wanted[2])) <= (int(here[1]), int(here[2])))


def read_key(path: Path) -> bytes:
    """The public key in a file."""
    try:
        key = base64.b64decode(path.read_text("ascii").strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise Untrusted(f"{path} is no public key: image-build/bundle.py key prints one")
    return key


def read_sums(place: str, key: bytes) -> dict[str, str]:
    """Digest by name, of a list whose signature was checked."""
    data, signature = fetch(place, SUMS, LARGEST_LIST), fetch(place, SIGNATURE, 64)
    if not is_signed(key, data, signature):
        raise Untrusted(f"{place}: the signature of {SUMS} is not that of this key")
    lines = [LINE.fullmatch(line) for line in data.decode("ascii", "replace").splitlines()]
    return {line[2]: line[1] for line in lines if line is not None and ".." not in line[2].split("/")}


def fetch(place: str, name: str, largest: int) -> bytes:
    """A file of a release; Untrusted if it cannot be had or is larger than it may be."""
    try:
        if "://" in place:
            address = urllib.parse.urljoin(place.rstrip("/") + "/", name)
            scheme, host = urllib.parse.urlsplit(address).scheme, urllib.parse.urlsplit(address).hostname
            if scheme != "https" and (scheme, host) != ("http", "127.0.0.1"):
                raise Untrusted(f"{place}: an address has to begin with https://")
            with urllib.request.urlopen(address, timeout=LIMIT_S) as answer:
                data: bytes = answer.read(largest + 1)
        else:
            with (Path(place) / name).open("rb") as file:
                data = file.read(largest + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise Untrusted(f"{place}: {name} cannot be read: {error}") from None
    if len(data) > largest:
        raise Untrusted(f"{place}: {name} is larger than it may be")
    return data


def is_signed(public: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of a key signed exactly these bytes (Ed25519)."""
    key, point = decode(public), decode(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or point is None or len(signature) != 64 or scalar >= ORDER:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + data).digest(), "little") % ORDER
    base = decode(BASE_Y.to_bytes(32, "little"))
    if base is None:
        return False
    x1, y1, z1, _ = multiply(scalar, base)
    x2, y2, z2, _ = add(point, multiply(challenge, key))
    return (x1 * z2 - x2 * z1) % P == 0 and (y1 * z2 - y2 * z1) % P == 0


def add(one: Point, other: Point) -> Point:
    """The sum of two points."""
    a, b = (one[1] - one[0]) * (other[1] - other[0]) % P, (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * one[3] * other[3] * D % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar: int, point: Point) -> Point:
    """A point added to itself so often."""
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point, scalar = add(point, point), scalar >> 1
    return total


def decode(data: bytes) -> Point | None:
    """The point in 32 bytes; None if they are none."""
    y, sign = int.from_bytes(data, "little") & (1 << 255) - 1, data[-1] >> 7 if data else 0
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_1 % P
    if len(data) != 32 or y >= P or (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
