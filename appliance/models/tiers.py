"""Tiers: how much the program leaves to a model: tiny, small or able.

A remote model is able. A local one is what was measured of it on this device, else what its number of parameters lets expect;
`models.tier` overrides both. What was measured is kept in `models/tiers.json`, by file, and holds as long as the file is the
same, prompts are made as they were then, and the computer has the same processor. Measures nothing itself.
"""

import glob
import hashlib
import json
import logging
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from appliance.errors import BadInput
from appliance.providers import gguf
from appliance.records import Route, Tier

LOG = logging.getLogger(__name__)
FILE = "tiers.json"
VERSION = 3  # of the prompts that a measurement was made with
TIERS: tuple[Tier, ...] = ("tiny", "small", "able")
# Parameters below which a model is expected to be tiny or small. Of 135 million none followed a menu of tools, of 0.5 billion
# none used it rightly (2026-11-22); from about three billion on instruct models call tools as they should.
TINY, SMALL = 300_000_000, 2_500_000_000
END_BYTES = 1 << 20  # of the beginning and of the end of a file, which tell it from others: all of it would take seconds

Basis = Literal["set", "measured", "expected"]
BASES = {"set": "set by models.tier", "measured": "measured on this device", "expected": "expected from its size, not measured"}


class Measured(Struct, frozen=True):
    """What a measurement on this device came to: the tier, and how many of the function calls were right, in percent."""

    tier: Tier
    calls: int = 0


class Tiers:
    """The tiers of routes."""

    def __init__(self, models: Path, override: Callable[[], str]) -> None:
        """`models` is the folder of model files, `override` the configured tier or "auto"."""
        self._models = models
        self._override = override
        self._guesses: dict[tuple[str, int, int], Tier] = {}
        self._marks: dict[tuple[str, int, int], str] = {}

    def of(self, route: Route) -> Tier:
        """The tier of a route's model. A script is able: it does what it was written for."""
        chosen = self._override()
        if route.provider not in ("llama", "scripted") or (route.provider == "scripted" and chosen == "auto"):
            return "able"
        if chosen in TIERS:
            return chosen
        path = self.file_of(route)
        return "able" if path is None else self.of_file(path)[0]

    def of_file(self, path: Path) -> tuple[Tier, Basis]:
        """The tier of a model's file, and what that rests on."""
        chosen = self._override()
        if chosen in TIERS:
            return chosen, "set"
        measured = self.measured(path)
        return (measured.tier, "measured") if measured is not None else (self.guessed(path), "expected")

    def file_of(self, route: Route) -> Path | None:
        """The file of a local route's model."""
        found = sorted(self._models.glob(f"{glob.escape(route.model)}.gguf"))
        return found[0] if found else None

    def measured(self, path: Path) -> Measured | None:
        """The stored measurement of a file, None when it is no longer valid."""
        kept = self._kept().get(path.name)
        if not isinstance(kept, dict) or kept.get("version") != VERSION or kept.get("cpu") != cpu():
            return None
        if kept.get("file") != self._mark(path) or kept.get("tier") not in TIERS:
            return None
        try:
            return Measured(kept["tier"], int(kept["calls"]))
        except (KeyError, TypeError, ValueError):
            return None

    def keep(self, path: Path, measured: Measured) -> None:
        """Note what was measured of a file."""
        place, known = self._models / FILE, self._kept()
        known[path.name] = asdict(measured) | {"file": self._mark(path), "version": VERSION, "cpu": cpu()}
        written = place.with_suffix(".new")
        written.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        written.replace(place)

    def guessed(self, path: Path) -> Tier:
        """By the number of parameters; tiny for a file that cannot be read."""
        key = (path.name, *_stamp(path))
        if key not in self._guesses:
            try:
                count = gguf.read(path).parameters
            except BadInput as error:
                LOG.warning("the tier of %s is not known: %s", path.name, error)
                count = 0
            self._guesses[key] = "tiny" if count < TINY else "small" if count < SMALL else "able"
        return self._guesses[key]

    def _kept(self) -> dict[str, Any]:
        try:
            known = json.loads((self._models / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _mark(self, path: Path) -> str:
        """What tells this file from others, whatever it is called and whenever it was written."""
        key = (path.name, *_stamp(path))
        if key not in self._marks:
            self._marks[key] = _ends(path, key[1])
        return self._marks[key]


def cpu() -> str:
    """What tells this computer's processor from others: what it is called, and how many cores it has."""
    names = {"model name", "Model", "CPU implementer", "CPU part"}
    said: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in names:
                said.setdefault(name.strip(), value.strip())
    except OSError:
        pass  # the machine's kind and its cores must do
    return " ".join([*(said[name] for name in sorted(said)), platform.machine(), str(os.cpu_count() or 1)])


def _ends(path: Path, size: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    try:
        with path.open("rb") as file:
            digest.update(file.read(END_BYTES))
            file.seek(max(0, size - END_BYTES))
            digest.update(file.read(END_BYTES))
    except OSError:
        return ""
    return digest.hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        info = path.stat()
    except OSError:
        return (0, 0)
    return (info.st_size, info.st_mtime_ns)
