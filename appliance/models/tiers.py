"""How much a model can be left to decide: tiny, small or able.

A remote model is able. A local one is what was measured of it on this device, else what its number of parameters lets expect;
`models.tier` overrides both. What was measured is kept in `models/tiers.json`, by file, and holds as long as the file is the
same and prompts are made as they were then. Measures nothing itself.
"""

import glob
import json
import logging
from collections.abc import Callable
from pathlib import Path

from appliance.errors import BadInput
from appliance.models import gguf
from appliance.records import Route, Tier

LOG = logging.getLogger(__name__)
FILE = "tiers.json"
VERSION = 1  # of the prompts that a measurement was made with
# Parameters below which a model is expected to be tiny or small. Of 135 million none followed a menu of tools, of 0.5 billion
# none used it rightly (2026-11-22); from about three billion on instruct models call tools as they should.
TINY, SMALL = 300_000_000, 2_500_000_000


class Tiers:
    """The tiers of routes."""

    def __init__(self, models: Path, override: Callable[[], str]) -> None:
        """`models` is the folder of model files, `override` the configured tier or "auto"."""
        self._models = models
        self._override = override
        self._known: dict[tuple[str, int, int], Tier] = {}

    def of(self, route: Route) -> Tier:
        """The tier of a route's model. A script is able: it does what it was written for."""
        chosen = self._override()
        if route.provider not in ("llama", "scripted") or (route.provider == "scripted" and chosen == "auto"):
            return "able"
        if chosen in ("tiny", "small", "able"):
            return chosen  # type: ignore[return-value]
        path = self.file_of(route)
        if path is None:
            return "able"
        return self.measured(path) or self._guessed(path)

    def file_of(self, route: Route) -> Path | None:
        """The file of a local route's model."""
        found = sorted(self._models.glob(f"{glob.escape(route.model)}.gguf"))
        return found[0] if found else None

    def measured(self, path: Path) -> Tier | None:
        """What was measured of a file, None where nothing holds any more."""
        try:
            kept = json.loads((self._models / FILE).read_text(encoding="utf-8")).get(path.name)
        except (OSError, ValueError, AttributeError):
            return None
        if not isinstance(kept, dict) or kept.get("stamp") != list(_stamp(path)) or kept.get("version") != VERSION:
            return None
        tier = kept.get("tier")
        return tier if tier in ("tiny", "small", "able") else None

    def keep(self, path: Path, tier: Tier) -> None:
        """Note what was measured of a file."""
        place = self._models / FILE
        try:
            known = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        known = known if isinstance(known, dict) else {}
        known[path.name] = {"tier": tier, "stamp": _stamp(path), "version": VERSION}
        written = place.with_suffix(".new")
        written.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        written.replace(place)

    def _guessed(self, path: Path) -> Tier:
        """By the number of parameters; tiny for a file that cannot be read."""
        key = (path.name, *_stamp(path))
        if key not in self._known:
            try:
                count = gguf.read(path).parameters
            except BadInput as error:
                LOG.warning("the tier of %s is not known: %s", path.name, error)
                count = 0
            self._known[key] = "tiny" if count < TINY else "small" if count < SMALL else "able"
        return self._known[key]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        info = path.stat()
    except OSError:
        return (0, 0)
    return (info.st_size, info.st_mtime_ns // 1_000_000)
