#!/usr/bin/env python3
"""Builds the folder of a release: what `make release` runs. docs/guides/release.md says what is in it.

    .venv/bin/python release/release.py KEY [--arch arm64|amd64]... [--url ADDRESS] [--no-updates]

What is committed is built, with the time of the commit, into build/release/VERSION, which is replaced as a whole. Images are
taken from build/image, where `make image` leaves them, if they are newer than the commit. KEY is the private key of the update
bundles (image-build/bundle.py key): it signs them and the list of digests.
"""

import argparse
import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "image-build")]

import describe  # noqa: E402
import published  # noqa: E402

from appliance import __version__  # noqa: E402
from appliance.secrets import encryption  # noqa: E402

ARCHES = ("arm64", "amd64")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox/image/wheels"
COMPILERS = {"arm64": "aarch64-linux-gnu-g++", "amd64": "g++"}
UPDATE_DAYS = 365  # how long a bundle of a release may be applied


def main() -> int:
    """Build the release."""
    parser = argparse.ArgumentParser(description="A folder with everything that a release page holds.")
    parser.add_argument("key", type=Path, help="the private key that signs it")
    parser.add_argument("--arch", action="append", choices=ARCHES, help="for this machine; may be repeated; default: both")
    parser.add_argument("--url", default="", help="the address that the files will have, for Raspberry Pi Imager")
    parser.add_argument("--no-updates", action="store_true", help="without the update bundles, which fetch every dependency")
    args = parser.parse_args()
    if changed := git("status", "--porcelain", "--untracked-files=no"):
        print(f"release: what is committed is built, and these are changed:\n{changed}", file=sys.stderr)
        return 1
    os.environ["SOURCE_DATE_EPOCH"] = git("log", "-1", "--format=%ct")
    target = ROOT / "build/release" / __version__
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch) / "release"
        folder.mkdir()
        arches = args.arch or list(ARCHES)
        parts = add_wheels(folder, arches)
        for arch in [] if args.no_updates else arches:
            parts += add_update(folder, arch, args.key)
        add_images(folder, arches, args.url)
        add_texts(folder, parts, arches)
        sign(folder, base64.b64decode(args.key.read_text("ascii")))
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        print(f"{path.stat().st_size:>12,}  {path.relative_to(ROOT)}")
    return 0


def git(*words: str) -> str:
    """What git says of this checkout."""
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()


def add_wheels(folder: Path, arches: list[str]) -> list[dict[str, Any]]:
    """Owlbox and the engine, and the page that pip --find-links reads; their parts."""
    subprocess.run([str(ROOT / "image-build/own-wheel.sh"), sys.executable, str(folder)], check=True)
    for arch in arches:
        subprocess.run([str(ROOT / "image-build/engine-wheel.sh"), arch, str(CACHE / arch)], check=True)
        (wheel,) = (CACHE / arch).glob("llama_cpp_python-*.whl")
        shutil.copyfile(wheel, folder / wheel.name)
    lines = [
        f'<a href="{html.escape(wheel.name)}#sha256={describe.hash_of(wheel)}">{html.escape(wheel.name)}</a><br>'
        for wheel in sorted(folder.glob("*.whl"))
    ]
    (folder / "index.html").write_text("\n".join(["<!DOCTYPE html>", f"<title>Owlbox {__version__}</title>", *lines, ""]))
    return describe.list_wheels(folder)


def add_update(folder: Path, arch: str, key: Path) -> list[dict[str, Any]]:
    """The bundle for images of a machine, as it lies at a source of updates; the parts in it."""
    bundle = [sys.executable, str(ROOT / "image-build/bundle.py"), "make", "--for", arch, "--days", str(UPDATE_DAYS)]
    subprocess.run([*bundle, str(key), str(folder / "updates" / arch)], check=True)
    return describe.list_wheels(CACHE / arch)


def add_images(folder: Path, arches: list[str], url: str) -> None:
    """The images that `make image` has built of this commit, with the list for Raspberry Pi Imager."""
    entries = []
    for arch in arches:
        image = ROOT / f"build/image/owlbox-{__version__}-{arch}.img"
        packed = image.with_name(f"{image.name}.zst")
        if not packed.exists() or packed.stat().st_mtime < int(os.environ["SOURCE_DATE_EPOCH"]):
            print(f"release: no image for {arch} of this commit: sudo make image ARCH={arch}", file=sys.stderr)
            continue
        for path in (packed, image.with_suffix(".sbom.json")):
            shutil.copyfile(path, folder / path.name)
        if arch == "arm64":
            address = f"{url.rstrip('/')}/{packed.name}" if url else packed.name
            entries.append(describe.entry_for_imager(image, packed, address))
    if entries:
        (folder / "os_list.json").write_text(json.dumps({"os_list": entries}, indent=2) + "\n")


def add_texts(folder: Path, parts: list[dict[str, Any]], arches: list[str]) -> None:
    """The list of parts, their versions as constraints of pip, and the notes."""
    said = {json.dumps(part): part for part in parts}
    bill = describe.document(sorted(said.values(), key=lambda part: str(part["purl"])))
    compilers = [(COMPILERS[arch], run_version(COMPILERS[arch])) for arch in arches]
    bill["metadata"] = {
        "component": {"type": "application", "name": "owlbox", "version": __version__},
        "properties": [{"name": f"owlbox:compiler:{name}", "value": version} for name, version in compilers],
    }
    (folder / "parts.json").write_text(json.dumps(bill, indent=1) + "\n")
    pins = sorted({f"{part['name']}=={part['version']}" for part in parts if part["name"] != "owlbox"})
    (folder / "constraints.txt").write_text("\n".join([*pins, ""]))
    (folder / "NOTES.md").write_text(cut_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), __version__), encoding="utf-8")


def run_version(compiler: str) -> str:
    """The first line of what a compiler says of itself."""
    if shutil.which(compiler) is None:
        return "not here: the engine was made elsewhere"
    return subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout.partition("\n")[0]


def cut_notes(changelog: str, version: str) -> str:
    """The section of a version, as a document of its own."""
    found = re.search(rf"^## ({re.escape(version)}\b[^\n]*)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"release: CHANGELOG.md has no section ## {version}")
    return f"# Owlbox {found[1]}\n\n{found[2].strip()}\n"


def sign(folder: Path, private: bytes) -> None:
    """Write the list of digests of all files, and its signature."""
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    data = "".join(f"{describe.hash_of(folder / path)}  {path}\n" for path in paths).encode()
    (folder / published.SUMS).write_bytes(data)
    (folder / published.SIGNATURE).write_bytes(encryption.sign(private, data))


if __name__ == "__main__":
    sys.exit(main())
