"""Routes and pools, broker side: which models can be asked, and whose turn it is.

Owns the provider objects; they are made when first needed, and one local language model is in memory at a
time, with the embedding model beside it. Knows nothing about sockets. A script (`models.script`) stands in
for every route, and then llama.cpp is never imported. Who goes first is the scheduler's matter; remote models wait for
nobody here, and are the matter of `remotes`.
"""

import difflib
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import BadInput, ConfigError, NotFound, OwlError, ProviderError, Unavailable
from appliance.models.cpu_scheduler import CpuScheduler, Rank, TurnRequest
from appliance.models.failover import is_away
from appliance.models.remote_models import Make, Remotes, RouteTarget, adapter
from appliance.models.spending import Spend
from appliance.providers import gguf
from appliance.providers.encoder import Encoder
from appliance.providers.llama import Llama, Options
from appliance.providers.scripted import Scripted
from appliance.records import Ask, Cancel, Dialect, Finish, Measure, Pause, Piece, Route
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config, ModelSettings

NAMED = f"{LOCAL}/"  # before the file stem of a local model: a route to it, whatever models.default says
ADD_ONE = "owlbox model add smollm2"
ADD_EMBEDDING = "owlbox model add minilm"
SCRIPT_WINDOW = 8192
EMBEDS = frozenset({"bert"})  # what `providers/encoder` can run
NOT_CHAT = frozenset(
    {"bert", "nomic-bert", "nomic-bert-moe", "modern-bert", "neo-bert", "jina-bert-v2", "jina-bert-v3", "t5encoder", "clip"}
)


class Provider(Protocol):
    """A plug behind the pool: a model, how much room it takes, and how to ask it."""

    name: str
    model: str

    @property
    def window(self) -> int: ...
    @property
    def is_loaded(self) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...
    def load(self, cancel: Cancel) -> None: ...
    def close(self) -> None: ...
    def count(self, text: str) -> int: ...
    def measure(self, route: Route, ask: Ask) -> Measure: ...
    def generate(self, route: Route, ask: Ask, cancel: Cancel, pause: Pause | None = None) -> Iterator[Piece | Finish]: ...


class Pool:
    """Every way to a model that the configuration allows."""

    def __init__(self, home: Home, config: Config, *, secret: Callable[[str], str] = str, make: Make = adapter) -> None:
        """`secret` gives the value that a key of the configuration stands for; `make` an adapter for a remote model."""
        self._home = home
        self.remotes = Remotes(config, Spend(home.spend, config.spending), secret=secret, make=make)
        self._config = config
        self._guard = threading.Lock()
        self._providers: dict[str, Provider] = {}
        self._retired: list[Provider] = []
        self._files: list[tuple[str, float]] = []
        self._scheduler = CpuScheduler()
        self._encoder: Encoder | None = None
        self._embed_files: list[tuple[str, float]] = []

    def plan(self, pool: str = "") -> tuple[Route, ...]:
        """The pool's routes that can be asked now, in order; Unavailable or NotFound says why there is none.

        A route is the pool of itself: one of the configuration, `local/STEM`, or `provider/model`. Providers that stand in
        for another one follow it; what failed too often just now is left out. Without failover there is only the first.
        """
        name = pool or self._config.models.pool
        models = self._config.models
        is_route = "/" in name or name == LOCAL or name in self._config.routes
        if name not in self._config.pools and not is_route:
            known = ", ".join(sorted({*self._config.pools, *self._config.routes, LOCAL}))
            raise NotFound(f"no pool named {name}", hint=f"there are: {known}; or local/FILE, or PROVIDER/MODEL")
        names: Sequence[str] = self._config.pools.get(name, (name,))
        if not names:
            raise ConfigError(f"pool {name} names no route", key=f"pools.{name}")
        if not models.script:
            names = self.remotes.expand(names)
        if not models.failover:
            return (self.route(names[0]),)
        routes, problems = [], []
        for route in names:
            try:
                routes.append(self.route(route, is_checked=True))
            except OwlError as error:
                problems.append(error)
        if not routes:
            raise _why_none(names, problems)
        return tuple(routes)

    def route(self, name: str, *, is_checked: bool = False) -> Route:
        """A route by name, with the window that its model really has; not one that is left alone now, when `is_checked`."""
        if (target := self._target_of(name)) is not None:
            return self.remotes.route(target, is_checked=is_checked)
        provider = self._provider_of(name)
        dialect: Dialect = provider.dialect if isinstance(provider, Llama) else "native"
        return Route(name, provider.name, provider.model, provider.window, dialect)

    def generate(self, name: str, ask: Ask, cancel: CancelToken) -> Generator[Piece | Finish, None, None]:
        """Pieces, then one Finish; a local model waits for its turn within the ask's deadline."""
        if (target := self._target_of(name)) is not None:
            yield from self.remotes.generate(target, ask, cancel)
            return
        end_s = monotonic_s() + ask.deadline_s
        route = self.route(name)
        rank = Rank.BACKGROUND if ask.is_background else Rank.PERSON
        while True:
            chosen = self._provider_of(name)
            wish = TurnRequest(rank, ask.person or ask.slot, chosen)
            with self._scheduler.turn(wish, cancel, max(0.0, end_s - monotonic_s())) as turn:
                if self._unload_others(name, chosen):
                    yield from chosen.generate(route, replace(ask, deadline_s=max(0.0, end_s - monotonic_s())), cancel, turn)
                    return

    def embed(
        self, texts: Sequence[str], cancel: CancelToken, *, deadline_s: float = 60, is_background: bool = False
    ) -> tuple[str, list[list[float]]]:
        """What made them, and a unit vector for each text; one text a turn, so that nobody waits longer. No texts load nothing."""
        end_s, model, found = monotonic_s() + deadline_s, "", []
        rank = Rank.GAP if is_background else Rank.QUICK
        for text in texts:
            with self._scheduler.turn(TurnRequest(rank), cancel, max(0.0, end_s - monotonic_s())):
                encoder = self._get_embedder()
                found.append(encoder.embed(text))
                model = encoder.model
        return model, found

    def measure(self, name: str, ask: Ask, cancel: CancelToken) -> Measure:
        """Size of the prompt as the route's own tokenizer counts it, an estimate for a remote one; loads the model."""
        if (target := self._target_of(name)) is not None:
            return self.remotes.measure(target, ask)
        return self._load_provider(name, cancel).measure(self.route(name), ask)

    def count(self, name: str, texts: list[str], cancel: CancelToken) -> list[int]:
        """Tokens of each text; loads the model."""
        if (target := self._target_of(name)) is not None:
            return self.remotes.count(target, texts)
        provider = self._load_provider(name, cancel)
        return [provider.count(text) for text in texts]

    def load(self, name: str, cancel: CancelToken, deadline_s: float = 600) -> Route:
        """The route, its model brought into memory."""
        if (target := self._target_of(name)) is not None:
            return self.remotes.route(target)
        end_s = monotonic_s() + deadline_s
        while True:
            chosen = self._provider_of(name)
            with self._scheduler.turn(TurnRequest(Rank.PERSON, place=chosen), cancel, max(0.0, end_s - monotonic_s())):
                if self._unload_others(name, chosen):
                    chosen.load(cancel)
                    return self.route(name)

    def status(self) -> dict[str, Any]:
        """What is in memory, what it takes, and whether it is answering; loads nothing.

        While nothing is in memory `window` is that of the local model which would be loaded.
        """
        with self._guard:
            loaded = [p for p in dict.fromkeys([*self._providers.values(), *self._retired]) if p.is_loaded]
            encoder = self._encoder if self._encoder is not None and self._encoder.is_loaded else None
        return {
            "is_busy": self._scheduler.is_taken,
            "waiting": self._scheduler.waiting,
            "model": loaded[0].model if loaded else "",
            "provider": loaded[0].name if loaded else "",
            "window": loaded[0].window if loaded else self._coming_window(),
            "memory_mb": round((sum(p.memory_bytes for p in loaded) + (encoder.memory_bytes if encoder else 0)) / 1_000_000),
            "embedding": encoder.model if encoder else "",
            "remote": self.remotes.status(),
        }

    def _coming_window(self) -> int:
        """The window of the local model that the default pool would load; 0 where there is none."""
        pool = self._config.models.pool
        name = next((one for one in self._config.pools.get(pool, (pool,)) if self._target_of(one) is None), "")
        try:
            return self._provider_of(name).window if name else 0
        except OwlError:
            return 0

    def close(self, wait_s: float = 10) -> None:
        """Give everything back once the running generation, which must be cancelled, has stopped."""
        with self._scheduler.turn(TurnRequest(Rank.QUICK, is_alone=True), CancelToken(), wait_s), self._guard:
            for provider in [*self._retired, *self._providers.values()]:
                provider.close()
            if self._encoder is not None:
                self._encoder.close()
            self._retired.clear()
            self._providers.clear()
        self.remotes.close()

    def _target_of(self, name: str) -> RouteTarget | None:
        """The remote model behind a name; None for a local one, and for all of them when a script stands in."""
        return None if self._config.models.script else self.remotes.target(name)

    # -- providers ---------------------------------------------------------------------------------

    def _provider_of(self, name: str) -> Provider:
        """The route's provider; made anew when files in models/ came, went or changed."""
        with self._guard:
            files = [] if self._config.models.script else _stamp_files(self._home)
            if files != self._files:
                # One of them may be answering: they are closed in the next turn.
                self._retired += self._providers.values()
                self._providers.clear()
                self._files = files
            if name not in self._providers:
                self._providers[name] = self._build_provider(name)
            return self._providers[name]

    def _load_provider(self, name: str, cancel: CancelToken) -> Provider:
        """The route's provider with its model in memory; waits for a turn only when it must be loaded."""
        if not self._provider_of(name).is_loaded:
            self.load(name, cancel)
        return self._provider_of(name)

    def _unload_others(self, name: str, chosen: Provider) -> bool:
        """True after every other local model has left the memory; False when the route has another provider by now.

        Only within a turn for `chosen`: then nobody is in the middle of an answer elsewhere. When its file was
        replaced while we waited, others may rest in the middle of theirs on it: queue up for the new one.
        """
        if self._provider_of(name) is not chosen:
            return False
        with self._guard:
            others = [p for p in [*self._retired, *self._providers.values()] if p is not chosen and p.is_loaded]
            self._retired.clear()
        for other in others:  # without the guard: it waits for a state that is being written
            other.close()
        return True

    def _get_embedder(self) -> Encoder:
        """The embedding model, made anew when its file changed. Only within a turn."""
        files = _stamp_files(self._home)
        with self._guard:
            if self._encoder is not None and files == self._embed_files:
                return self._encoder  # reading every header again takes longer than a short text
            path = find_encoder(self._home, self._config.models.embedding)
            if self._encoder is None or self._encoder.path != path or not self._encoder.is_fresh():
                if self._encoder is not None:
                    self._encoder.close()
                self._encoder = Encoder(path, self._config.models.embedding_dimension)
            self._embed_files = files
            return self._encoder

    def _build_provider(self, name: str) -> Provider:
        models = self._config.models
        if models.script:
            return Scripted(self._home.root / models.script, models.context or SCRIPT_WINDOW)
        table = self._config.routes.get(name)
        if name == LOCAL or (table is not None and table.provider == LOCAL):
            return self._local_provider(table.model if table is not None else models.default)
        if table is None and name.startswith(NAMED):
            return self._local_provider(name.removeprefix(NAMED))
        raise NotFound(f"no route {name}", hint=f"the local model is the route {LOCAL}")

    def _local_provider(self, name: str) -> Llama:
        """The local model of this name: one object for a file as long as it is unchanged, however many routes lead to it."""
        path = find_model(self._home, name)
        if name and _architecture_of(path) in NOT_CHAT:
            raise BadInput(f"{path.stem} cannot talk", hint="owlbox model list shows the kinds")
        made = [*self._providers.values(), *self._retired]
        same = (p for p in made if isinstance(p, Llama) and p.path == path and p.is_fresh())
        held = sum(p.memory_bytes for p in made if p.is_loaded)
        return next(same, None) or Llama(path, replace(_options_of(self._config.models), reclaim_bytes=held))


def _why_none(names: Sequence[str], problems: Sequence[OwlError]) -> OwlError:
    """Why no route of a pool can be asked: the first one's reason, or that none of several services is there."""
    if len(problems) > 1 and all(is_away(error) for error in problems):
        told = "; ".join(f"{name}: {error.message}" for name, error in zip(names, problems))
        return ProviderError(f"no model is available: {told}", hint=problems[0].hint, outcome="provider_not_available")
    return problems[0]


def _options_of(models: ModelSettings) -> Options:
    return Options(
        context=models.context,
        threads=models.threads,
        memory_mb=models.memory_mb,
        cache_type=models.cache_type,
    )


def find_encoder(home: Home, name: str) -> Path:
    """The embedding model of this name (file or stem); "" means the newest one in models/."""
    found = [p for p in _list_files(home) if _architecture_of(p) in EMBEDS]
    if not found:
        raise Unavailable(f"no embedding model in {home.models}", hint=ADD_EMBEDDING)
    wanted = name.removesuffix(".gguf").lower()
    exact = [p for p in found if not wanted or p.stem.lower() == wanted]
    fitting = exact or [p for p in found if p.stem.lower().startswith(wanted)]
    if not fitting:
        there = ", ".join(p.stem for p in found)
        raise NotFound(f"no embedding model {name} in {home.models}", hint=f"there is: {there}. Otherwise: {ADD_EMBEDDING}")
    return fitting[0]


def find_model(home: Home, name: str) -> Path:
    """The model file of this name (file, stem, or the beginning of one); "" means the newest usable chat model."""
    files = _list_files(home)
    if not files:
        raise Unavailable(f"no model in {home.models}", hint=ADD_ONE)
    if not name:
        usable = [p for p in files if _can_chat(p)]
        damaged = [p for p in files if not _architecture_of(p)]
        if not usable and not damaged:
            there = ", ".join(p.stem for p in files)
            raise Unavailable(f"no model that can talk in {home.models}: {there} only makes vectors", hint=ADD_ONE)
        return (usable or damaged)[0]  # the reader of a damaged file says what is wrong with it
    wanted = name.removesuffix(".gguf").lower()
    exact = [p for p in files if p.stem.lower() == wanted]
    similar = exact or [p for p in files if p.stem.lower().startswith(wanted)]
    if similar:
        if _architecture_of(similar[0]) in NOT_CHAT:
            raise Unavailable(f"the model {similar[0].stem} only makes vectors and cannot talk", hint=f"choose another: {ADD_ONE}")
        return similar[0]
    near = difflib.get_close_matches(name, [p.stem for p in files], 1, 0) or [files[0].stem]
    raise NotFound(f"no model {name} in {home.models}", hint=f"did you mean {near[0]}? Otherwise: {ADD_ONE}")


def _list_files(home: Home) -> list[Path]:
    """Model files, newest first."""
    return sorted((p for p in home.models.glob("*.gguf") if not p.name.startswith(".")), key=_modified_s, reverse=True)


def _stamp_files(home: Home) -> list[tuple[str, float]]:
    """What tells whether model files came, went or changed; asked for several times an answer."""
    try:
        with os.scandir(home.models) as found:
            names = sorted(one.name for one in found if one.name.endswith(".gguf") and not one.name.startswith("."))
    except OSError:
        return []
    return [(name, _modified_s(home.models / name)) for name in names]


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _can_chat(path: Path) -> bool:
    architecture = _architecture_of(path)
    return bool(architecture) and architecture not in NOT_CHAT


def _architecture_of(path: Path) -> str:
    """The architecture in a file's header; "" for one that cannot be used."""
    try:
        return gguf.read(path).architecture
    except OwlError:
        return ""
