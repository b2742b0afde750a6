"""The models of the box itself: how much each can be left to decide, and what it is good for on this device.

`bench` measures speed and function calls (`model_check`) and keeps the tier that follows from the calls.
"""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec.structs import replace

from appliance.models import catalogue
from appliance.models.client import Models
from appliance.models.tiers import BASES, TIERS, Measured, Tiers
from appliance.records import Route, Tier, to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config
from appliance.runtime.signatures import Range
from appliance.service import model_check
from appliance.service.model_check import Calls

GOOD, PASSABLE = 0.8, 0.5  # of the function calls
MEANING: dict[Tier, str] = {
    "tiny": "the program decides what is asked for, quotes your notes, and leaves it the talking",
    "small": "the program decides what is asked for, and leaves it to put what your notes say into words",
    "able": "it is left to decide by itself, with all tools",
}


class LocalModels:
    """Tiers and measurements of one core."""

    def __init__(self, home: Home, settings: Callable[[], Config], models: Models) -> None:
        self._home = home
        self._settings = settings
        self._models = models
        self.tiers = Tiers(home.models, lambda: settings().models.tier)

    def is_able(self, route: Route) -> bool:
        """Whether a route's model is left to decide by itself."""
        return self.tiers.of(route) == "able"

    def status(self) -> dict[str, Any]:
        """Which file of models/ answers, what tier it has and why; empty where a script or a remote model does. Asks no broker."""
        settings = self._settings()
        names = catalogue.local_names(settings)
        path = catalogue.in_use(self._home, names[0]) if names and not settings.models.script else None
        if path is None:
            return {}
        tier, basis = self.tiers.of_file(path)
        return {"model": path.stem, "tier": tier, "basis": BASES[basis]}

    def names(self) -> list[str]:
        """The local models that can be asked for by name, the one that answers first."""
        settings = self._settings()
        used = catalogue.in_use(self._home, (catalogue.local_names(settings) or [""])[0])
        usable = [path for path in sorted(self._home.models.glob("*.gguf")) if not path.name.startswith(".")]
        chats = [path.stem for path in usable if (seen := catalogue.described(path)).kind == "chat" and not seen.problem]
        return sorted(chats, key=lambda name: (used is None or name != used.stem, name))

    @method("model.bench", is_long=True)
    def bench(
        self,
        model: Annotated[str, "the file stem of a local model; empty is the one that answers"] = "",
        seconds: Annotated[float, Range(5, 3000), "longest wait; what does not fit is left out"] = model_check.SECONDS,
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Measure a model on this device, judge it, and keep its tier.

        Streams `progress` {step, done, steps}. Ends when the caller leaves.
        """

        def show(step: str, done: int, steps: int) -> None:
            call.notify("progress", {"step": step, "done": done, "steps": steps})

        route = self._models.plan(f"{LOCAL}/{model}" if model else "")[0]
        found = model_check.qualify(self._models, route, show, call.cancel, seconds=seconds)
        path = None if route.provider != "llama" else self.tiers.file_of(route)
        if path is not None and found.calls.asked >= model_check.ENOUGH_CALLS:
            try:
                self.tiers.keep(path, Measured(settle(self.tiers.guessed(path), found.calls), round(100 * found.calls.rate)))
            except OSError as error:
                found = replace(found, notes=(*found.notes, f"the tier is not kept: {error.strerror or error}"))
        more = {"tier": "", "basis": ""}
        if path is not None:
            tier, basis = self.tiers.of_file(path)
            more = {"tier": tier, "basis": BASES[basis]}
            found = replace(found, verdict=(f"It is used as {tier}: {MEANING[tier]}.", *found.verdict))
        return {**to_plain(found), **more}


def settle(expected: Tier, calls: Calls) -> Tier:
    """The tier of a model that was expected to have another: one above if it calls tools well, below able if it does not."""
    if expected == "able":
        return "small" if calls.rate < PASSABLE else "able"
    return TIERS[TIERS.index(expected) + 1] if calls.rate >= GOOD else expected
