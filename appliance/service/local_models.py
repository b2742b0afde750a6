"""The models of the box itself: how much each can be left to decide, and what it is good for on this device.

`bench` measures speed and function calls (`model_check`) and puts the everyday set to it (`everyday_runs`), says in words what
that means, and keeps the tier that follows from it. Nobody is promoted for function calls alone: the set must go well in the next
tier too. Fetching another model is the matter of `model_offers`.
"""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec.structs import replace

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import OwlError
from appliance.models import catalogue
from appliance.models.client import Models
from appliance.models.tiers import BASES, TIERS, Measured, Tiers
from appliance.records import Route, Tier, to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config
from appliance.runtime.signatures import Range
from appliance.service.bench import everyday_runs, model_check
from appliance.service.bench.everyday_runs import Everyday, Way
from appliance.service.bench.model_check import Calls, Progress
from appliance.service.broker_process import Keeper

NUMBERS_S = 180.0  # that speed and calls may take, and at most half of the time given
GOOD, PASSABLE = 0.8, 0.5
ENOUGH = 15  # requests of the set, for a tier that is kept
NAMES = {
    "talk": "talk and plain questions",
    "notes": "questions about your notes",
    "unknown": "saying that it does not know",
    "state": "time, date and lists",
    "act": "remembering, tasks, reminders and writing notes",
    "text": "short work on a text",
    "calls": "calling tools by itself",
}
MEANING: dict[Tier, str] = {
    "tiny": "the program decides what is asked for, quotes your notes, and leaves it the talking",
    "small": "the program decides what is asked for, and leaves it to put what your notes say into words",
    "able": "it is left to decide by itself, with all tools",
}


class LocalModels:
    """Tiers and measurements of one core."""

    def __init__(self, home: Home, settings: Callable[[], Config], models: Models, broker: Keeper) -> None:
        self._home = home
        self._settings = settings
        self._models = models
        self._broker = broker
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
    def bench_for_caller(
        self,
        model: Annotated[str, "the file stem of a local model; empty is the one that answers"] = "",
        seconds: Annotated[float, Range(5, 3000), "longest wait; what does not fit is left out"] = 600,
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Measure a model on this device, put everyday requests to it in a home of their own, judge it, and keep its tier.

        `next` is a sentence about which other one to try, if any.

        Streams `progress` {step, done, steps}. Ends when the caller leaves.
        """

        def show(step: str, done: int, steps: int) -> None:
            call.notify("progress", {"step": step, "done": done, "steps": steps})

        found = self.bench(model, seconds, show, call.cancel)
        return {**found, "next": suggest_next(found, catalogue.listing(self._home))}

    def bench(
        self, model: str, seconds: float, progress: Progress, cancel: CancelToken, *, is_background: bool = False
    ) -> dict[str, Any]:
        """Numbers, the everyday set and a verdict about a local model, "" for the one that answers; its tier is kept.

        With `is_background` people's questions go first.
        """
        end_s = monotonic_s() + seconds
        route = self._models.plan(f"{LOCAL}/{model}" if model else "")[0]
        numbers = model_check.qualify(
            self._models, route, progress, cancel, seconds=min(seconds / 2, NUMBERS_S), is_background=is_background
        )
        path = None if route.provider != "llama" else self.tiers.file_of(route)
        if path is None:
            return {**to_plain(numbers), "everyday": [], "tier": "", "basis": "", "answers": []}
        way = Way(self._home.models, self._broker.socket, self._broker.token, route.model, is_background)
        notes = list(numbers.notes)

        def run(tier: Tier) -> Everyday:
            tell = lambda done, of, what: progress(f"everyday, as {tier}", done, of)  # noqa: E731
            return everyday_runs.run(way, tier, max(1.0, end_s - monotonic_s()), tell, cancel)

        guess = self.tiers.guessed(path)
        found = run(guess)
        if len(found.answers) >= ENOUGH:
            found = settle(found, numbers.calls, run)
            tried = Measured(
                found.tier, found.passed, len(found.answers), round(100 * numbers.calls.rate), found.words_per_s or 0.0
            )
            try:
                self.tiers.keep(path, tried)
            except OSError as error:
                notes.append(f"the tier is not kept: {error.strerror or error}")
        if not found.answers:
            notes.append("everyday: left out, the time was up")
        elif len(found.answers) < found.items:
            notes.append(f"everyday: {len(found.answers)} of {found.items} requests fit into the time")
        tier, basis = self.tiers.of_file(path)
        numbers = replace(numbers, notes=tuple(notes), verdict=(*told(found, numbers.calls, tier), *numbers.verdict))
        more = {"everyday": [to_plain(row) for row in found.rows()], "tier": tier, "basis": BASES[basis]}
        return {**to_plain(numbers), **more, "answers": [to_plain(one) for one in found.answers]}


def settle(found: Everyday, calls: Calls, run: Callable[[Tier], Everyday]) -> Everyday:
    """The run whose tier a model gets: the one above when it calls tools and its set goes as well, the one below when it fails."""
    place = TIERS.index(found.tier)
    if found.rate < PASSABLE and place > 0:
        return replace(found, tier=TIERS[place - 1])
    if found.rate >= GOOD and calls.rate >= GOOD and calls.asked >= model_check.ENOUGH_CALLS and place + 1 < len(TIERS):
        try:
            above = run(TIERS[place + 1])  # type: ignore[arg-type]
        except OwlError:
            return found
        if len(above.answers) >= ENOUGH and above.rate >= max(GOOD, found.rate - 0.05):
            return settle(above, calls, run)
    return found


def told(found: Everyday, calls: Calls, tier: Tier) -> tuple[str, ...]:
    """What a model is good for, in sentences."""
    rates = {row.category: row.passed / row.asked for row in found.rows()}
    if calls.asked >= model_check.ENOUGH_CALLS:
        rates["calls"] = calls.rate
    kinds = (
        ("Good for", [name for name, rate in rates.items() if rate >= GOOD]),
        ("Sometimes wrong", [name for name, rate in rates.items() if PASSABLE <= rate < GOOD]),
        ("Not to be relied on", [name for name, rate in rates.items() if rate < PASSABLE]),
    )
    said = [f"{word}: {'; '.join(NAMES[name] for name in names)}." for word, names in kinds if names]
    if not found.answers:
        return ()
    first = f"{found.passed} of {len(found.answers)} everyday requests went well"
    return (f"{first}. It is used as {tier}: {MEANING[tier]}.", *said)


def suggest_next(found: dict[str, Any], known: list[catalogue.Model]) -> str:
    """What to try next, by name: models of one family of formats are about as fast as they are small."""
    mine = next((m for m in known if m.file == f"{found['model']}.gguf"), None)
    others = [m for m in known if m.kind == "chat" and m.fits == "yes" and not m.problem and m.size_bytes]
    if mine is None or found["advice"] == "keep":
        return ""
    if found["advice"] == "smaller":
        less = [m for m in others if m.ram_mb < mine.ram_mb]
        return (
            _suggest_model(max(less, key=lambda m: m.ram_mb), "is smaller")
            if less
            else "There is no smaller model in the catalogue."
        )
    room_mb, speed = found["free_mb"] + mine.ram_mb, found["decode_tokens_per_s"]
    more = [
        m
        for m in others
        if m.size_bytes > mine.size_bytes and m.ram_mb <= room_mb and speed * mine.size_bytes / m.size_bytes >= model_check.TALKS
    ]
    if not more:
        return ""
    best = max(more, key=lambda m: m.size_bytes)
    return _suggest_model(best, f"is larger and may still write about {speed * mine.size_bytes / best.size_bytes:.0f} tokens/s")


def _suggest_model(model: catalogue.Model, why: str) -> str:
    fetch = "" if model.is_installed else f"owlbox model add {model.name}, then "
    return f"Next: {model.name} {why}: {fetch}owlbox model bench {model.name}"
