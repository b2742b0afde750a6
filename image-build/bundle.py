#!/usr/bin/env python3
"""Makes a signed bundle of this checkout, for `owlbox update apply`: docs/guides/upgrade.md.

    .venv/bin/python image-build/bundle.py key PRIVATE_FILE
    .venv/bin/python image-build/bundle.py make PRIVATE_FILE FOLDER [--for arm64|amd64] [--days 90] [--extra web] [--wheels FOLDER]

`key` writes a new private key (mode 0600) and prints the public one, which installations keep as update.pub. `make` collects the
wheels of this checkout and of all that it needs and signs them; nothing is downloaded when it is applied. With `--for` they are
those of an image: what is committed, for that machine and the image's Python. Without it they are for the kind of machine and the
Python that run this. It writes the bundle, its digest, and `latest.json` with `latest.sig` for a source over HTTPS: a folder for
each target.
"""

import argparse
import base64
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from appliance import __version__  # noqa: E402
from appliance.clock import now_ms  # noqa: E402
from appliance.secrets import encryption  # noqa: E402
from appliance.store.migrations import LATEST  # noqa: E402
from appliance.upkeep.updates import bundle  # noqa: E402

DAY_MS = 86_400_000
IMAGE_PYTHON = "3.13"  # of Debian trixie, as packages.sh fetches wheels for
IMAGES = {"arm64": bundle.BundleTarget("linux_aarch64", IMAGE_PYTHON), "amd64": bundle.BundleTarget("linux_x86_64", IMAGE_PYTHON)}


def make_key(path: Path) -> int:
    private, public = encryption.new_signing_key()
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(base64.b64encode(private) + b"\n")
    print(base64.b64encode(public).decode())
    return 0


def collect(folder: Path, extras: list[str], known: list[Path]) -> list[Path]:
    """Wheels of this checkout and of everything it needs."""
    wanted = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    links = [word for place in known for word in ("--find-links", str(place))]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder), *links, wanted]
    subprocess.run(command, check=True)
    return sorted(folder.glob("*.whl"))


def collect_image(arch: str) -> list[Path]:
    """The wheels that an image of this machine has, of what is committed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox/image/wheels" / arch
    subprocess.run([str(ROOT / "image-build/packages.sh"), arch, str(cache)], check=True)
    return sorted(cache.glob("*.whl"))


def make(args: argparse.Namespace) -> int:
    private = base64.b64decode(Path(args.private).read_text("ascii"))
    folder = Path(args.target)
    folder.mkdir(parents=True, exist_ok=True)
    made_ms = int(os.environ["SOURCE_DATE_EPOCH"]) * 1000 if "SOURCE_DATE_EPOCH" in os.environ else now_ms()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        if args.image:
            target, wheels = IMAGES[args.image], collect_image(args.image)
        else:
            target, wheels = bundle.this_target(), collect(Path(scratch), args.extra, [Path(place) for place in args.wheels])
        told = bundle.describe(__version__, LATEST, wheels, target, made_ms, made_ms + args.days * DAY_MS)
        path = bundle.build(folder, told, wheels, private)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB, {len(wheels)} wheels, {target})")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Signed bundles of this checkout.")
    known = parser.add_subparsers(required=True)
    key = known.add_parser("key", help="make a key for signing")
    key.add_argument("private", help="where the private key is written")
    key.set_defaults(run=lambda args: make_key(Path(args.private)))
    made = known.add_parser("make", help="make a bundle")
    made.add_argument("private", help="the private key")
    made.add_argument("target", help="the folder that it is written to")
    made.add_argument("--for", dest="image", choices=sorted(IMAGES), help="the image that it is for; without, this kind of machine")
    made.add_argument("--days", type=int, default=90, help="how long it may be applied")
    made.add_argument("--extra", action="append", default=[], help="an extra of the package, such as web; may be repeated")
    made.add_argument("--wheels", action="append", default=[], help="a folder with wheels that were built before")
    made.set_defaults(run=make)
    args = parser.parse_args()
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())
