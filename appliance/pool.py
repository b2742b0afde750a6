"""Routes and pools, broker side: which models can be asked, and one generation at a time on the CPU.

Owns the provider objects; they are made when first needed, and one local model is in memory at a time.
Knows nothing about sockets. A script (`models.script`) stands in for every route, and then llama.cpp is
never imported. Interactive requests are served before waiting background ones.
"""

import difflib
import heapq
import itertools
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from appliance import gguf
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, ConfigError, DeadlineExceeded, NotFound, OwlError, Unavailable
from appliance.places import Home
from appliance.providers.llama import Llama, Options
from appliance.providers.scripted import Scripted
from appliance.records import Ask, Cancel, Dialect, Finish, Measure, Piece, Route
from appliance.settings import LOCAL, Config

ADD_ONE = "owlbox model add smollm2"
SCRIPT_WINDOW = 8192
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
    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]: ...


class Turns:
    """One at a time: interactive before background, then first come first served. Waiting is parked, not polled."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[bool, int]] = []
        self._numbers = itertools.count()
        self._is_taken = False

    @property
    def is_taken(self) -> bool:
        """True while somebody's turn lasts."""
        return self._is_taken

    @contextmanager
    def take(self, cancel: CancelToken, deadline_s: float, is_background: bool = False) -> Iterator[None]:
        """Hold the turn for a with block; Cancelled or DeadlineExceeded when it did not come in time."""
        ticket = (is_background, next(self._numbers))
        cancel.then(self._wake)
        with self._changed:
            heapq.heappush(self._waiting, ticket)
            self._changed.wait_for(lambda: cancel.is_set() or (not self._is_taken and self._waiting[0] == ticket), deadline_s)
            is_mine = not cancel.is_set() and not self._is_taken and self._waiting[0] == ticket
            self._waiting.remove(ticket)
            heapq.heapify(self._waiting)
            self._is_taken = self._is_taken or is_mine
            self._changed.notify_all()
        if cancel.is_set():
            if is_mine:
                self._give_back()
            raise Cancelled("stopped while waiting for the model")
        if not is_mine:
            raise DeadlineExceeded(f"the model was busy for {deadline_s:g} s", hint="try again when the other answer is done")
        try:
            yield
        finally:
            self._give_back()

    def _give_back(self) -> None:
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Pool:
    """Every way to a model that the configuration allows."""

    def __init__(self, home: Home, config: Config) -> None:
        self._home = home
        self._config = config
        self._guard = threading.Lock()
        self._providers: dict[str, Provider] = {}
        self._retired: list[Provider] = []
        self._files: list[tuple[str, float]] = []
        self._turns = Turns()

    def plan(self, pool: str = "") -> tuple[Route, ...]:
        """The pool's routes that can be asked now, in order; Unavailable or NotFound says why there is none."""
        name = pool or self._config.models.pool
        if name not in self._config.pools:
            raise NotFound(f"no pool named {name}", hint=f"there are: {', '.join(sorted(self._config.pools))}")
        routes, problems = [], []
        for route in self._config.pools[name]:
            try:
                routes.append(self.route(route))
            except OwlError as error:
                problems.append(error)
        if not routes:
            raise problems[0] if problems else ConfigError(f"pool {name} names no route", key=f"pools.{name}")
        return tuple(routes)

    def route(self, name: str) -> Route:
        """A route by name, with the window that its model really has."""
        provider = self._provider(name)
        dialect: Dialect = "grammar" if isinstance(provider, Llama) else "native"
        return Route(name, provider.name, provider.model, provider.window, dialect)

    def generate(self, name: str, ask: Ask, cancel: CancelToken) -> Generator[Piece | Finish, None, None]:
        """Pieces, then one Finish; waits for its turn within the ask's deadline."""
        end_s = monotonic_s() + ask.deadline_s
        route = self.route(name)
        with self._turns.take(cancel, ask.deadline_s, ask.is_background):
            provider = self._only(name)
            yield from provider.generate(route, replace(ask, deadline_s=max(0.0, end_s - monotonic_s())), cancel)

    def measure(self, name: str, ask: Ask, cancel: CancelToken) -> Measure:
        """Size of the prompt as the route's own tokenizer counts it; loads the model."""
        return self._ready(name, cancel).measure(self.route(name), ask)

    def count(self, name: str, texts: list[str], cancel: CancelToken) -> list[int]:
        """Tokens of each text; loads the model."""
        provider = self._ready(name, cancel)
        return [provider.count(text) for text in texts]

    def load(self, name: str, cancel: CancelToken, deadline_s: float = 600) -> Route:
        """The route, its model brought into memory."""
        with self._turns.take(cancel, deadline_s):
            self._only(name).load(cancel)
        return self.route(name)

    def status(self) -> dict[str, Any]:
        """What is in memory, what it takes, and whether it is answering; loads nothing."""
        with self._guard:
            loaded = [p for p in self._providers.values() if p.is_loaded]
        return {
            "is_busy": self._turns.is_taken,
            "model": loaded[0].model if loaded else "",
            "provider": loaded[0].name if loaded else "",
            "window": loaded[0].window if loaded else 0,
            "memory_mb": round(sum(p.memory_bytes for p in loaded) / 1_000_000),
        }

    def close(self, wait_s: float = 10) -> None:
        """Give everything back once the running generation, which must be cancelled, has stopped."""
        with self._turns.take(CancelToken(), wait_s), self._guard:
            for provider in [*self._retired, *self._providers.values()]:
                provider.close()
            self._retired.clear()
            self._providers.clear()

    # -- providers ---------------------------------------------------------------------------------

    def _provider(self, name: str) -> Provider:
        """The route's provider; made anew when files in models/ came, went or changed."""
        with self._guard:
            files = [] if self._config.models.script else [(p.name, _modified(p)) for p in _files(self._home)]
            if files != self._files:
                # One of them may be answering: they are closed in the next turn.
                self._retired += self._providers.values()
                self._providers.clear()
                self._files = files
            if name not in self._providers:
                self._providers[name] = self._build(name)
            return self._providers[name]

    def _ready(self, name: str, cancel: CancelToken) -> Provider:
        """The route's provider with its model in memory; waits for a turn only when it must be loaded."""
        if not self._provider(name).is_loaded:
            self.load(name, cancel)
        return self._provider(name)

    def _only(self, name: str) -> Provider:
        """The route's provider, after every other local model has left the memory. Only within a turn."""
        chosen = self._provider(name)
        with self._guard:
            for other in [*self._retired, *self._providers.values()]:
                if other is not chosen and other.is_loaded:
                    other.close()
            self._retired.clear()
        return chosen

    def _build(self, name: str) -> Provider:
        models = self._config.models
        if models.script:
            return Scripted(self._home.root / models.script, models.context or SCRIPT_WINDOW)
        table = self._config.routes.get(name)
        if name == LOCAL or (table is not None and table.provider == LOCAL):
            path = find_model(self._home, table.model if table is not None else models.default)
            return Llama(path, Options(context=models.context, threads=models.threads, memory_mb=models.memory_mb))
        if models.local_only:
            raise Unavailable(
                f"route {name} is remote and models.local_only is true", hint="set models.local_only = false to allow it"
            )
        raise Unavailable(f"route {name} has no provider in this version", hint=f"the local model is the route {LOCAL}")


def find_model(home: Home, name: str) -> Path:
    """The model file of this name (file, stem, or the beginning of one); "" means the newest usable chat model."""
    files = _files(home)
    if not files:
        raise Unavailable(f"no model in {home.models}", hint=ADD_ONE)
    if not name:
        usable = [p for p in files if _can_chat(p)]
        return usable[0] if usable else files[0]  # the reader of a damaged file says what is wrong with it
    wanted = name.removesuffix(".gguf").lower()
    exact = [p for p in files if p.stem.lower() == wanted]
    similar = exact or [p for p in files if p.stem.lower().startswith(wanted)]
    if similar:
        return similar[0]
    near = difflib.get_close_matches(name, [p.stem for p in files], 1, 0) or [files[0].stem]
    raise NotFound(f"no model {name} in {home.models}", hint=f"did you mean {near[0]}? Otherwise: {ADD_ONE}")


def _files(home: Home) -> list[Path]:
    """Model files, newest first."""
    return sorted((p for p in home.models.glob("*.gguf") if not p.name.startswith(".")), key=_modified, reverse=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _can_chat(path: Path) -> bool:
    try:
        return gguf.read(path).architecture not in NOT_CHAT
    except OwlError:
        return False
