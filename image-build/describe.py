"""What is in an image or a release, for people who have to know: a list of parts (CycloneDX) and a list for Raspberry Pi Imager.

describe.py ROOT.tar WHEELS MODELS OUT.json
describe.py --imager IMAGE IMAGE.zst OUT.json
"""

import datetime
import hashlib
import json
import os
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

PIS = ["pi3-64bit", "pi4-64bit", "pi5-64bit"]
CATALOGUE = Path(__file__).resolve().parents[1] / "appliance/models/catalogue.toml"
SHORT = 60  # characters: what is longer in a License field is its whole text


def main(words: list[str]) -> int:
    """Write one of the two."""
    if words[0] == "--imager":
        image, packed, out = map(Path, words[1:])
        out.write_text(json.dumps({"os_list": [entry_for_imager(image, packed, packed.name)]}, indent=2) + "\n")
    else:
        tar, wheels, models, out = map(Path, words)
        out.write_text(json.dumps(document([*list_packages(tar), *list_wheels(wheels), *list_models(models)]), indent=1) + "\n")
    return 0


def document(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A list of parts in CycloneDX 1.6."""
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": parts}


def list_packages(tar: Path) -> list[dict[str, Any]]:
    """Every Debian package of a root filesystem with its version; their licences lie in its /usr/share/doc."""
    with tarfile.open(tar) as root:
        packages = root.extractfile("./usr/share/owlbox-packages.tsv")
        lines = packages.read().decode().splitlines() if packages else []
    parts = []
    for name, version, arch in (line.split("\t") for line in lines):
        purl = f"pkg:deb/debian/{name}@{version}?arch={arch}&distro=trixie"
        parts.append({"type": "library", "name": name, "version": version, "purl": purl})
    return parts


def list_wheels(folder: Path) -> list[dict[str, Any]]:
    """Every wheel of a folder with its version, licence and digest."""
    parts = []
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            said = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
            head = HeaderParser().parsestr(packed.read(said).decode())
        part = {"type": "library", "name": head["Name"], "version": head["Version"], "licenses": [licence_of(head)]}
        purl = f"pkg:pypi/{head['Name'].lower()}@{head['Version']}?file_name={wheel.name}"
        parts.append({**part, "hashes": digests(wheel), "purl": purl})
    return parts


def list_models(folder: Path) -> list[dict[str, Any]]:
    """Every model file of a folder with its digest, and its licence where it is one of the catalogue."""
    catalogue = tomllib.loads(CATALOGUE.read_text("utf-8")).values()
    known = {entry["file"]: entry["licence"] for entry in catalogue if "licence" in entry}
    return [
        {
            "type": "machine-learning-model",
            "name": model.name,
            "licenses": [{"license": {"name": known.get(model.name, "not in the catalogue")}}],
            "hashes": digests(model),
        }
        for model in sorted(folder.glob("*.gguf"))
    ]


def licence_of(head: Message) -> dict[str, Any]:
    """What a wheel's metadata say of its licence: an expression, a short name, or what it is classified as."""
    if expression := head["License-Expression"]:
        return {"expression": expression}
    classified = [one.split(" :: ")[-1] for one in head.get_all("Classifier", []) if one.startswith("License :: ")]
    short = (head["License"] or "").strip()
    return {"license": {"name": short if 0 < len(short) <= SHORT and "\n" not in short else ", ".join(classified) or "not said"}}


def entry_for_imager(image: Path, packed: Path, url: str) -> dict[str, Any]:
    """An entry of Raspberry Pi Imager's list."""
    day = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or packed.stat().st_mtime), datetime.UTC)
    return {
        "name": f"Owlbox {image.stem.split('-')[1]}",
        "description": "A private assistant with a local model",
        "icon": "",
        "url": url,
        "extract_size": image.stat().st_size,
        "extract_sha256": hash_of(image),
        "image_download_size": packed.stat().st_size,
        "image_download_sha256": hash_of(packed),
        "release_date": day.strftime("%Y-%m-%d"),
        "devices": PIS if image.stem.endswith("arm64") else [],
        "init_format": "cloudinit",
    }


def digests(file: Path) -> list[dict[str, str]]:
    """The digest of a file as CycloneDX has it."""
    return [{"alg": "SHA-256", "content": hash_of(file)}]


def hash_of(file: Path) -> str:
    """SHA-256 in hexadecimal digits."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
