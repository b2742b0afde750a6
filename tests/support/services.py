"""Providers that do as they are told, for tests of pools: an adapter that plays steps, and the pool that asks it.

No network and no format: what an adapter makes of a wire is tested with the adapters.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from record_tools import replace

from appliance.clock import monotonic_s
from appliance.errors import Cancelled, OwlError, ProviderError
from appliance.models.pool import Pool
from appliance.providers.remote_settings import WINDOW, ListedModel, Remote
from appliance.records import Ask, Cancel, Finish, Measure, Message, Pause, Piece, Route
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, ModelSettings, ProviderSettings

Step = Sequence[object]  # texts, a Finish, an error, or seconds to wait

LIMITED = ProviderError("too many", outcome="rate_limited", kind="rate")
LOADING = ProviderError("the model is loading", outcome="upstream_error", kind="warm-up")
GATEWAY = ProviderError("502 bad gateway", outcome="upstream_error", kind="gateway")
BROKEN = ProviderError("500 oops", outcome="upstream_error", kind="server")
OFFLINE = ProviderError("no route to host", outcome="provider_not_available", kind="network")
DENIED = ProviderError("401 wrong key", outcome="authentication_failed", hint="owlbox secret set llm/a")
GARBLED = ProviderError("that is no JSON", outcome="invalid_response")
CUT = ProviderError("it broke off", outcome="stream_error")
SLOW = ProviderError("nothing for 120 s", outcome="provider_timeout")
UNKNOWN = ProviderError("no such model", outcome="model_not_found")


@dataclass
class Played:
    """An adapter; each request takes the next step of its model, the last one again and again."""

    remote: Remote
    stage: "Stage"
    is_loaded: bool = True
    memory_bytes: int = 0

    @property
    def name(self) -> str:
        return self.remote.provider

    @property
    def model(self) -> str:
        return self.remote.model

    @property
    def window(self) -> int:
        return self.remote.window or self.stage.windows.get(self.model, WINDOW)

    def load(self, cancel: Cancel) -> None:
        self.stage.heard.append(f"{self.name}/{self.model}?")

    def close(self) -> None: ...

    def count(self, text: str) -> int:
        return len(text)

    def measure(self, route: Route, ask: Ask) -> Measure:
        return Measure(self.model, {}, sum(len(m.content) for m in ask.messages))

    def listing(self, cancel: Cancel | None = None) -> tuple[ListedModel, ...]:
        if self.name in self.stage.silent:
            raise OFFLINE
        return tuple(ListedModel(name.partition("/")[2], 1000) for name in self.stage.plays if name.startswith(f"{self.name}/"))

    def generate(self, route: Route, ask: Ask, cancel: Cancel, pause: Pause | None = None) -> Iterator[Piece | Finish]:
        name = f"{self.name}/{self.model}"
        with self.stage.guard:
            self.stage.heard.append(name)
            self.stage.asks.append(ask)
            self.stage.keys.append(self.remote.key())
            self.stage.at_s.append(monotonic_s())
            steps = self.stage.plays.get(name, [["hoot"]])
            step = steps.pop(0) if len(steps) > 1 else steps[0]
        for one in step:
            if isinstance(one, OwlError):
                raise one
            if isinstance(one, float) and cancel.wait(one):
                raise Cancelled("stopped")
            if isinstance(one, threading.Barrier):
                one.wait(60)
            if isinstance(one, str):
                yield Piece(one)
        usual = Finish("stop", prompt_tokens=100, output_tokens=10, evaluated_tokens=100)
        finish = next((one for one in step if isinstance(one, Finish)), usual)
        yield replace(finish, provider=finish.provider or self.name, model=finish.model or self.model)


@dataclass
class Stage:
    """What every adapter plays, by provider/model, and what was asked of whom."""

    plays: dict[str, list[Step]] = field(default_factory=dict)
    windows: dict[str, int] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    heard: list[str] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def make(self, remote: Remote) -> Played:
        """An adapter for a model."""
        return Played(remote, self)


def service(**more: object) -> ProviderSettings:
    """A provider on another machine, with a key."""
    return ProviderSettings(**{"base_url": "https://api.example.com/v1", "key": "k", **more})  # type: ignore[arg-type]


def pooled(
    folder: Path,
    stage: Stage,
    *,
    providers: Mapping[str, ProviderSettings] | None = None,
    models: ModelSettings = ModelSettings(local_only=False),
    **more: object,
) -> Pool:
    """A pool whose remote models are played; providers a, b and c unless others are named."""
    known = {**Config().providers, **(providers or {name: service() for name in "abc"})}
    pools = {"default": ("a/m", "b/m"), "small": ("local",), **more.pop("pools", {})}  # type: ignore[dict-item]
    config = replace(Config(), models=models, providers=known, pools=pools, **more)  # type: ignore[arg-type]
    return Pool(Home(folder), config, make=stage.make)


def asked(words: str = "hi", **more: object) -> Ask:
    """A question."""
    return Ask((), (Message("user", words),), **more)  # type: ignore[arg-type]
