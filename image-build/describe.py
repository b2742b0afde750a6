"""What is in an image, for people who have to know: a list of parts (CycloneDX) and an entry for Raspberry Pi Imager.

describe.py ROOT.tar WHEELS MODELS OUT.json
describe.py --imager IMAGE IMAGE.zst OUT.json
"""

import hashlib
import json
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

PIS = ["pi3-64bit", "pi4-64bit", "pi5-64bit"]


def main(words: list[str]) -> int:
    """Write one of the two."""
    if words[0] == "--imager":
        image, packed, out = map(Path, words[1:])
        out.write_text(json.dumps(list_for_imager(image, packed), indent=2) + "\n")
    else:
        tar, wheels, models, out = map(Path, words)
        out.write_text(json.dumps(list_parts(tar, wheels, models), indent=1) + "\n")
    return 0


def list_parts(tar: Path, wheels: Path, models: Path) -> dict[str, Any]:
    """Every Debian package, Python package and model with its version, as CycloneDX 1.6."""
    parts: list[dict[str, Any]] = []
    with tarfile.open(tar) as root:
        packages = root.extractfile("./usr/share/owlbox-packages.tsv")
        for line in packages.read().decode().splitlines() if packages else []:
            name, version, arch = line.split("\t")
            purl = f"pkg:deb/debian/{name}@{version}?arch={arch}&distro=trixie"
            parts.append({"type": "library", "name": name, "version": version, "purl": purl})
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            said = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
            head = HeaderParser().parsestr(packed.read(said).decode())
        name, version = head["Name"], head["Version"]
        parts.append({"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name.lower()}@{version}"})
    for model in sorted(models.glob("*.gguf")):
        parts.append(
            {"type": "machine-learning-model", "name": model.name, "hashes": [{"alg": "SHA-256", "content": hash_of(model)}]}
        )
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": parts}


def list_for_imager(image: Path, packed: Path) -> dict[str, Any]:
    """An entry of Raspberry Pi Imager's list; `url` is the file's name, to be made whole by who publishes it."""
    entry = {
        "name": f"Owlbox {image.stem.split('-')[1]}",
        "description": "A private assistant with a local model",
        "url": packed.name,
        "extract_size": image.stat().st_size,
        "extract_sha256": hash_of(image),
        "image_download_size": packed.stat().st_size,
        "image_download_sha256": hash_of(packed),
        "devices": PIS if image.stem.endswith("arm64") else [],
        "init_format": "cloudinit",
    }
    return {"os_list": [entry]}


def hash_of(file: Path) -> str:
    """SHA-256 in hexadecimal digits."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
