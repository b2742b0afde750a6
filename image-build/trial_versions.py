"""Later versions made of an image's own wheels, for image_test.py: one that is well, and others that are broken on purpose."""

import base64
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from bundle import IMAGES
from emulator import Box, Card

from appliance import __version__
from appliance.clock import now_ms
from appliance.store.migrations import LATEST
from appliance.upkeep.updates import bundle

WEEK_MS = 7 * 86_400_000
ONE_TABLE_MORE = '    "CREATE TABLE trial_{n} (id INTEGER PRIMARY KEY) STRICT;",\n)\n\nLATEST = '
Edit = Callable[[str], str]


def make(wheels: Path, folder: Path, arch: str, private: bytes, number: int, edits: dict[str, Edit]) -> Path:
    """A bundle of version 0.1.NUMBER, which has `number` tables more than this one and these edits."""
    version = f"{__version__.rsplit('.', 1)[0]}.{number}"
    tables = "".join(ONE_TABLE_MORE.format(n=n).removesuffix(")\n\nLATEST = ") for n in range(1, number + 1))
    edits = {
        "appliance/__init__.py": lambda text: text.replace(f'"{__version__}"', f'"{version}"'),
        "appliance/store/migrations.py": lambda text: text.replace(")\n\nLATEST = ", f"{tables})\n\nLATEST = "),
        **edits,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        own = next(wheels.glob(f"owlbox-{__version__}-*.whl"))
        mine = _rewrite(own, Path(scratch) / own.name.replace(__version__, version), version, edits)
        kept = [mine, *(path for path in wheels.glob("*.whl") if path != own)]
        told = bundle.describe(version, LATEST + number, kept, IMAGES[arch], now_ms(), now_ms() + WEEK_MS)
        return bundle.build(folder, told, kept, private)


def put(box: Box, card: Card, private: bytes, number: int, edits: dict[str, Edit]) -> str:
    """Put a later version, made of the wheels in the cache, into a box; its place there."""
    wheels = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox/image/wheels" / card.arch
    path = make(wheels, card.folder / "updates", card.arch, private, number, edits)
    box.put(path, f"/var/tmp/{path.name}")
    path.unlink()
    return f"/var/tmp/{path.name}"


def broken_at_its_trial(text: str) -> str:
    """An edit of `__main__`: no command of this version works."""
    return f"raise RuntimeError('broken on purpose')\n{text}"


def broken_as_a_service(text: str) -> str:
    """An edit of the core's module: it works for a command, and not under systemd."""
    return f"{text}\nimport os\n\nif os.environ.get('NOTIFY_SOCKET'):\n    raise RuntimeError('broken on purpose')\n"


def _rewrite(wheel: Path, target: Path, version: str, edits: dict[str, Edit]) -> Path:
    """The same wheel under another version, with edits of its files."""
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        record = []
        for info in old.infolist():
            name = info.filename.replace(f"owlbox-{__version__}.", f"owlbox-{version}.")
            data = old.read(info)
            if name.endswith("/RECORD"):
                continue
            if name.endswith("/METADATA"):
                data = data.replace(f"\nVersion: {__version__}\n".encode(), f"\nVersion: {version}\n".encode())
            if edit := edits.get(name):
                text = edit(data.decode())
                assert text.encode() != data, f"{name}: nothing to edit"
                data = text.encode()
            new.writestr(info.filename.replace(f"owlbox-{__version__}.", f"owlbox-{version}."), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        name = f"owlbox-{version}.dist-info/RECORD"
        new.writestr(name, "".join([*record, f"{name},,\n"]))
    return target
