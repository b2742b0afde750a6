"""Remote models, broker side: which there are, and one request to one of them, within all its bounds.

Owns for each configured provider its breaker, its throttle and its adapters, which are made when first needed, and
what is spent. Several requests run at once. A provider without key or table of its own is inert: nothing ever asks it.
Which route is asked after another is the asker's matter. Keys are looked up at each request and never kept here.

A service that failed several times in a row is left alone for a while: a `Breaker` for each counts failures of requests, not of
their repetitions, and forgets everything when its process ends.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded, NotFound, OwlError, ProviderError, Refused
from appliance.models.failover import denied
from appliance.models.prices import FREE, Prices, TokenCounts, cost, dollars
from appliance.models.rate_limit import Throttle
from appliance.models.spending import Amount, Reserved, Spend, person_hash
from appliance.providers import formats
from appliance.providers.remote_settings import WINDOW, ListedModel, Remote
from appliance.records import Ask, Cancel, Dialect, Finish, Measure, Pause, Piece, Route
from appliance.runtime.settings import LOCAL, PROVIDERS, Config, Price, ProviderSettings, RouteTable
from appliance.text.tokens import estimate

LOG = logging.getLogger(__name__)
AGGREGATORS = frozenset({"openrouter"})  # providers whose names of models begin with who made them: `anthropic/claude`
ANSWER_PART = 4  # of a window, for the longest answer: the rest is for the question
DISCOVERY_S, SILENT_S = 5.0, 60.0
# A refusal says nothing about whether the service works, and one that is only busy says itself when to come back.
NO_FAILURES = frozenset(
    {"rate_limited", "context_too_long", "invalid_request", "model_not_found", "model_not_supported", "authentication_failed"}
)

UNSURE = frozenset({"stream_error", "provider_timeout", "invalid_response"})  # a service may well have answered, and count it
FAILURES, OPEN_S = 3, 60.0  # so many in a row leave a service out for so long


class Standing(Struct, frozen=True):
    """What is known of a service: failures in a row, until when it is skipped, and what the last one said."""

    failures: int = 0
    until_s: float = 0.0
    why: str = ""


class Breaker:
    """Decides whether a service is asked."""

    def __init__(self, failures: int = FAILURES, open_s: float = OPEN_S) -> None:
        self._limit = failures
        self._open_s = open_s
        self.standing = Standing()

    def left_s(self, now_s: float) -> float:
        """For how long it is still skipped; 0 when it may be asked."""
        return max(0.0, self.standing.until_s - now_s)

    def failed(self, now_s: float, why: str) -> bool:
        """A request has failed; True when that opened it. After a pause one failure more opens it again."""
        count = self.standing.failures + 1
        is_open = count >= self._limit
        until_s = now_s + self._open_s if is_open else self.standing.until_s
        self.standing = replace(self.standing, failures=count, until_s=until_s, why=why)
        return is_open

    def succeeded(self) -> None:
        """A request was answered: everything is forgotten."""
        self.standing = Standing()

    reset = succeeded


class Adapter(Protocol):
    """One model of one provider, as `providers` has them."""

    name: str
    model: str

    @property
    def window(self) -> int: ...
    def load(self, cancel: Cancel) -> None: ...
    def close(self) -> None: ...
    def count(self, text: str) -> int: ...
    def measure(self, route: Route, ask: Ask) -> Measure: ...
    def generate(self, route: Route, ask: Ask, cancel: Cancel, pause: Pause | None = None) -> Iterator[Piece | Finish]: ...
    def listing(self, cancel: Cancel | None = None) -> Sequence[ListedModel]: ...


Make = Callable[[Remote], Adapter]


def adapter(remote: Remote) -> Adapter:
    """The adapter for a wire format."""
    return formats.load(remote.kind)(remote)


class RouteTarget(Struct, frozen=True):
    """The provider and model of a route; `context` 0 is not configured."""

    name: str
    provider: str
    model: str
    context: int = 0
    max_tokens: int = RouteTable().max_output_tokens


@dataclass
class RemoteService:
    """One provider: its settings and its state."""

    name: str
    settings: ProviderSettings
    breaker: Breaker
    throttle: Throttle
    adapters: dict[str, Adapter] = field(default_factory=dict)
    windows: dict[str, int] = field(default_factory=dict)
    toolless: set[str] = field(default_factory=set)  # models that have said that they cannot call tools
    silent_s: dict[str, float] = field(default_factory=dict)  # when it last did not say how much a model reads


class Remotes:
    """Every remote model that the configuration allows; several threads may ask."""

    def __init__(
        self, config: Config, spend: Spend, *, secret: Callable[[str], str] = str, make: Make = adapter, open_s: float = 60.0
    ) -> None:
        self._config = config
        self._spend = spend
        self._secret = secret
        self._make = make
        self._guard = threading.Lock()
        self._is_denied = config.models.local_only
        self.prices = Prices(config)
        self._named = _named_providers(config)
        self._services = {
            name: RemoteService(name, one, Breaker(open_s=open_s), Throttle(name, one.requests_per_minute, one.concurrent))
            for name, one in config.providers.items()
        }

    def deny(self) -> None:
        """Begin no other request, for good; what is being answered is finished."""
        self._is_denied = True

    # -- names ------------------------------------------------------------------------------------------

    def target(self, name: str) -> RouteTarget | None:
        """What a name stands for: a route of the configuration, or provider/model; None for what is local or unknown."""
        table = self._config.routes.get(name)
        if table is not None:
            return None if table.provider == LOCAL else _target_of(name, table.provider, table.model, table)
        provider, _, model = name.partition("/")
        if not model or provider == LOCAL:
            return None
        if provider not in self._services:
            known = ", ".join((LOCAL, *self._services))
            raise ProviderError(f"no provider {provider}", hint=f"there are: {known}", outcome="provider_not_found")
        like = next((table for table in self._config.routes.values() if name in table.also), RouteTable())
        return _target_of(name, provider, model, like)

    def expand(self, names: Sequence[str]) -> list[str]:
        """The routes to try for these, in order: of an alias the cheapest first, each before those that stand in for it."""
        found: list[str] = []
        for name in names:
            table = self._config.routes.get(name)
            members = [name, *table.also] if table is not None else [name]
            for member in sorted(members, key=self._rank_model) if len(members) > 1 else members:
                found += [member, *(other for other in self._stand_ins(member) if other not in names)]
        return list(dict.fromkeys(found))

    def is_inert(self, provider: str) -> bool:
        """True for a provider that nobody has configured: without the key it needs, or built in and named nowhere."""
        settings = self._config.providers[provider]
        is_as_built_in = settings == PROVIDERS.get(provider) and provider not in self._named
        return self._lacks_key(provider) or (not settings.key and is_as_built_in)

    def _lacks_key(self, provider: str) -> bool:
        settings = self._config.providers[provider]
        return settings.is_remote and not settings.key

    def _rank_model(self, name: str) -> tuple[float, int]:
        """Cheaper first, unknown prices last; then as the providers' priorities have it."""
        target = self.target(name)
        if target is None:
            return (0, 0)
        price = self.prices.of(target.provider, target.model)
        per = float("inf") if price is None else price.input + price.output
        return (float("inf") if self._lacks_key(target.provider) else per, self._config.providers[target.provider].priority)

    def _stand_ins(self, name: str) -> list[str]:
        """The same model at the providers that stand in for its own, those with a key only, by priority."""
        target = self.target(name)
        if target is None:
            return []
        own = self._config.providers[target.provider]
        others = [other for other in own.fallback if not self._lacks_key(other)]
        others.sort(key=lambda other: self._config.providers[other].priority)
        return [f"{other}/{self._named_at(other, target)}" for other in others]

    def _named_at(self, other: str, target: RouteTarget) -> str:
        """The name of a model at another provider."""
        here, there = (name in AGGREGATORS for name in (target.provider, other))
        if there and not here:
            return f"{target.provider}/{target.model}"
        return target.model.partition("/")[2] or target.model if here and not there else target.model

    # -- one route --------------------------------------------------------------------------------------

    def route(self, target: RouteTarget, *, is_checked: bool = False) -> Route:
        """The route as askers see it; ProviderError while its provider is skipped, when `is_checked`."""
        service = self._open_service(target)
        if is_checked:
            self._require_closed(service)
        window = target.context or self._window_of(service, target)
        most = min(target.max_tokens, max(1, window // ANSWER_PART))
        dialect: Dialect = "native" if service.settings.tools and target.model not in service.toolless else "tags"
        return Route(target.name, target.provider, target.model, window, dialect, most, True)

    def measure(self, target: RouteTarget, ask: Ask) -> Measure:
        """About how large a prompt is."""
        return self._adapter_of(self._open_service(target), target).measure(self.route(target), ask)

    def count(self, target: RouteTarget, texts: Sequence[str]) -> list[int]:
        """About how many tokens each text has."""
        one = self._adapter_of(self._open_service(target), target)
        return [one.count(text) for text in texts]

    def generate(self, target: RouteTarget, ask: Ask, cancel: CancelToken) -> Iterator[Piece | Finish]:
        """Pieces, then one Finish with what it cost. A malformed answer is asked for once more, if nothing was said yet."""
        end_s = monotonic_s() + ask.deadline_s
        service, route = self._open_service(target), self.route(target)
        if self._config.models.failover and not ask.is_retry:
            self._require_closed(service)
        ask = replace(ask, max_tokens=min(ask.max_tokens, route.max_tokens))
        one = self._adapter_of(service, target)
        for is_last in (False, True):
            with self._bill_request(target, one, route, ask) as bill:
                with service.throttle.turn(cancel, max(0.0, end_s - monotonic_s())):
                    self._require_allowed(target)  # it may have been denied while this one waited in line
                    bill.is_free = False
                    try:
                        left = replace(ask, deadline_s=max(0.1, end_s - monotonic_s()))
                        for piece in one.generate(route, left, cancel):
                            yield bill.take(piece)
                    except OwlError as error:
                        bill.failed(error)
                        if not isinstance(error, ProviderError):
                            raise
                        if error.outcome == "invalid_response" and not bill.has_begun and not is_last:
                            LOG.info("%s answered in no form that we know, asked once more: %s", target.name, error)
                            continue
                        if error.outcome == "model_not_supported" and ask.tools and ask.dialect == "native":
                            service.toolless.add(target.model)  # its route is another one from now on
                        self._record_failure(service, ask, error)
                        raise
            service.breaker.succeeded()
            return

    def _record_failure(self, service: RemoteService, ask: Ask, error: ProviderError) -> None:
        if error.outcome in NO_FAILURES or error.kind in ("rate", "warm-up") or ask.is_retry:
            return
        if service.breaker.failed(monotonic_s(), error.message):
            LOG.warning("%s is left alone for a while after %d failures", service.name, service.breaker.standing.failures)

    def _require_closed(self, service: RemoteService) -> None:
        left_s = service.breaker.left_s(monotonic_s())
        if left_s > 0:
            known = service.breaker.standing
            raise ProviderError(
                f"{service.name} is not asked for another {left_s:.0f} s after {known.failures} failures; the last: {known.why}",
                hint=f"owlbox model reset {service.name} asks at once",
                outcome="provider_not_available",
            )

    # -- what it costs ----------------------------------------------------------------------------------

    @contextmanager
    def _bill_request(self, target: RouteTarget, one: Adapter, route: Route, ask: Ask) -> Iterator["_Bill"]:
        """What a request may cost is put down before it, and what it did cost after it, however it ended."""
        price = self.prices.of(target.provider, target.model)
        if price is None and self._spend.limits_money:
            raise Refused(
                f"nobody knows what {target.provider}/{target.model} costs, and [spending] limits money",
                hint=f'[prices."{target.model}"] in owlbox.toml says what it costs',
            )
        prompt = one.measure(route, ask).total
        has_thoughts = self._config.providers[target.provider].reasoning  # they may come on top of the answer
        output = max(ask.max_tokens, target.max_tokens) if has_thoughts else ask.max_tokens
        dearest = max(cost(price or FREE, TokenCounts(prompt, output, cache_write=written)) for written in (0, prompt))
        reserved = self._spend.reserve(ask.person, Amount(dearest, prompt + output))
        bill = _Bill(price, reserved, prompt)
        try:
            yield bill
        finally:
            try:
                self._spend.settle(reserved, bill.spent())
            except OwlError as error:  # the answer is none the worse, and the most that it may cost stays put down
                LOG.error("what %s cost is not put down: %s", target.name, error)

    # -- looking and mending ----------------------------------------------------------------------------

    def listing(self, cancel: CancelToken) -> list[dict[str, Any]]:
        """Every model of every configured provider, with prices; a provider that cannot say has one line with its problem."""
        found: list[dict[str, Any]] = []
        for name, service in self._services.items():
            if self._is_denied or self.is_inert(name):
                continue
            try:
                one = self._adapter_of(service, RouteTarget(f"{name}/", name, ""))
                models = one.listing(cancel)
            except OwlError as error:
                found.append({"provider": name, "model": "", "problem": error.message})
                continue
            found += [self._describe_listed(name, model) for model in models]
        return found

    def _describe_listed(self, provider: str, listed: ListedModel) -> dict[str, Any]:
        price = self.prices.of(provider, listed.model)
        window = listed.window or self.prices.window(listed.model)
        plain = {"provider": provider, "model": listed.model, "name": f"{provider}/{listed.model}", "window": window}
        return {**plain, "input_usd": None if price is None else price.input, "output_usd": None if price is None else price.output}

    def reset(self, provider: str) -> None:
        """Ask a provider again although it failed; "" means all of them."""
        if provider and provider not in self._services:
            raise NotFound(f"no provider {provider}", hint=f"there are: {', '.join(self._services)}")
        for name, service in self._services.items():
            if provider in ("", name):
                service.breaker.reset()

    def status(self) -> dict[str, Any]:
        """The state and the spending of each configured provider; sends no request."""
        if self._is_denied:
            return {"is_local_only": True, "providers": [], "spending": {}}
        mine = [self._health_of(service) for name, service in self._services.items() if not self.is_inert(name)]
        return {"is_local_only": False, "providers": mine, "spending": self._spend.plain() if mine else {}}

    def _health_of(self, service: RemoteService) -> dict[str, Any]:
        left_s, load, standing = service.breaker.left_s(monotonic_s()), service.throttle.load(), service.breaker.standing
        state: Literal["ok", "failing", "skipped"] = "skipped" if left_s else "failing" if standing.failures else "ok"
        return {
            "name": service.name,
            "state": state,
            "failures": standing.failures,
            "retry_s": round(left_s, 1),
            "problem": standing.why,
            "minute": load.minute,
            "per_minute": service.settings.requests_per_minute,
            "open": load.open,
            "waiting": load.waiting,
        }

    def close(self) -> None:
        """Let all connections go."""
        with self._guard:
            made = [one for service in self._services.values() for one in service.adapters.values()]
            for service in self._services.values():
                service.adapters.clear()
        for one in made:
            one.close()

    # -- inside -----------------------------------------------------------------------------------------

    def _open_service(self, target: RouteTarget) -> RemoteService:
        """The service of a route, if it may be asked at all."""
        self._require_allowed(target)
        if self._lacks_key(target.provider):
            raise ProviderError(
                f"provider {target.provider} is not configured",
                hint=f"owlbox secret set llm/{target.provider}, then [providers.{target.provider}] key = "
                f'"secret:llm/{target.provider}" in owlbox.toml',
                outcome="provider_not_available",
            )
        return self._services[target.provider]

    def _require_allowed(self, target: RouteTarget) -> None:
        if self._is_denied:
            raise denied(target.name)

    def _adapter_of(self, service: RemoteService, target: RouteTarget) -> Adapter:
        key = f"{target.model}\n{target.context}\n{target.max_tokens}"
        with self._guard:
            if key not in service.adapters:
                service.adapters[key] = self._make(self._remote_of(service, target))
            return service.adapters[key]

    def _remote_of(self, service: RemoteService, target: RouteTarget) -> Remote:
        settings = service.settings
        return Remote(
            provider=service.name,
            kind=settings.kind,
            base_url=settings.base_url,
            model=target.model,
            key=lambda: self._secret(settings.key) if settings.key else "",
            window=target.context,
            max_tokens=target.max_tokens,
            timeout_s=settings.timeout_s,
            headers=settings.headers,
            has_reasoning=settings.reasoning,
            has_tools=settings.tools,
            has_images=settings.images,
            verify=settings.ca_file or True,
            learnt=self._spend.path.with_name(f"thoughts-{person_hash(f'{service.name}/{target.model}')}"),
        )

    def _window_of(self, service: RemoteService, target: RouteTarget) -> int:
        """How much a model reads: what the price list says, else what the provider says, asked once, else a guess."""
        one = self._adapter_of(service, target)
        if target.model not in service.windows:
            known = self.prices.window(target.model) if service.settings.is_remote else 0
            is_told = bool(known) or self._discover_window(service, one)
            if not is_told:
                return one.window
            service.windows[target.model] = known or one.window
        learnt = one.window
        return learnt if learnt != WINDOW else service.windows[target.model]  # a refusal may have said more since

    def _discover_window(self, service: RemoteService, one: Adapter) -> bool:
        """Ask a provider how much a model reads, and wait some seconds for it; False when it cannot be asked just now."""
        now_s = monotonic_s()
        if now_s - service.silent_s.get(one.model, -SILENT_S) < SILENT_S:
            return False
        stop = CancelToken()
        alarm = threading.Timer(DISCOVERY_S, stop.set)
        alarm.daemon = True
        alarm.start()
        try:
            one.load(stop)
        except OwlError as error:
            LOG.info("%s does not say how much %s reads: %s", service.name, one.model, error)
            service.silent_s[one.model] = now_s
            return False
        finally:
            alarm.cancel()
        return True


@dataclass
class _Bill:
    """The cost of one running request, counted as it comes."""

    price: Price | None
    reserved: Reserved
    prompt: int
    said: str = ""
    finish: Finish | None = None
    is_free: bool = True  # until it leaves: nobody asks money for waiting in line

    @property
    def has_begun(self) -> bool:
        """True when anything was heard."""
        return bool(self.said) or self.finish is not None

    def take(self, piece: Piece | Finish) -> Piece | Finish:
        """Count a piece; a finish gets what it cost, None when nobody knows."""
        if isinstance(piece, Piece):
            self.said += piece.text
            return piece
        self.finish = piece
        found = None if self.price is None else cost(self.price, _tokens_of(piece))
        LOG.debug("cost %s", "unknown" if found is None else dollars(found))
        self.finish = replace(piece, cost_micros=found)
        return self.finish

    def failed(self, error: OwlError) -> None:
        """It ended with an error. A refusal costs nothing; what was stopped, or fell silent in the middle, may."""
        self.is_free = not self.said and not isinstance(error, Cancelled | DeadlineExceeded) and error.outcome not in UNSURE

    def spent(self) -> Amount:
        """The cost of a request, estimated where the response had no end."""
        if self.is_free:
            return Amount()
        used = TokenCounts(self.prompt, estimate(self.said)) if self.finish is None else _tokens_of(self.finish)
        return Amount(cost(self.price or FREE, used), used.prompt + used.output)


def _tokens_of(finish: Finish) -> TokenCounts:
    return TokenCounts(finish.prompt_tokens, finish.output_tokens, finish.cached_tokens, finish.cache_write_tokens)


def _target_of(name: str, provider: str, model: str, table: RouteTable) -> RouteTarget:
    return RouteTarget(name, provider, model, table.context, table.max_output_tokens)


def _named_providers(config: Config) -> frozenset[str]:
    """The providers that some pool, route or role names."""
    names = [name for pool in config.pools.values() for name in pool] + [agent.model for agent in config.agents.values()]
    names += [other for table in config.routes.values() for other in (f"{table.provider}/", *table.also)]
    return frozenset(name.partition("/")[0] for name in names if "/" in name)
