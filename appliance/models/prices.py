"""Prices of models: the shipped table, overridden by the configuration.

Amounts are whole millionths of a US dollar, so that sums are exact. A model of this machine or of the network around
it costs nothing unless the configuration says so; of any other one without a price, nobody knows what it costs.
"""

import re
import tomllib
from collections.abc import Mapping
from importlib import resources

from msgspec import Struct

from appliance.runtime.settings import LOCAL, Config, Price

MICROS = 1_000_000
# What may follow a name of the table: the same model at another date. Any other word may mean a dearer one (o3, o3-pro).
VERSION = re.compile(r"(?:-(?:v?[0-9][0-9a-z.]*|latest|preview|exp|chat|codex|instruct|it))*(?:[@:].*)?")


class TokenCounts(Struct, frozen=True):
    """What one request took: `prompt` holds `cached` and `cache_write` too, `output` holds what was only thought."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0


FREE = Price()


class Prices:
    """Prices by provider and model."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._shipped: Mapping[str, Mapping[str, float]] | None = None

    def of(self, provider: str, model: str) -> Price | None:
        """The price of a model, None when nobody knows it."""
        for name in (f"{provider}/{model}", model):
            if name in self._config.prices:
                return self._config.prices[name]
        service = self._config.providers.get(provider)
        if provider == LOCAL or service is None or not service.is_remote:
            return FREE
        found = self._find_known(model)
        if found is None:
            return None
        return Price(found["input"], found["output"], found.get("cached"), found.get("cache_write"))

    def window(self, model: str) -> int:
        """How many tokens a model reads, as the table that ships has it; 0 when it does not."""
        found = self._find_known(model)
        return 0 if found is None else int(found.get("window", 0))

    def _find_known(self, model: str) -> Mapping[str, float] | None:
        if self._shipped is None:
            text = resources.files("appliance").joinpath("models", "prices.toml").read_text("utf-8")
            self._shipped = tomllib.loads(text)["models"]
        name = model.rpartition("/")[2]
        begins = [known for known in self._shipped if name.startswith(known) and VERSION.fullmatch(name, len(known))]
        return self._shipped[max(begins, key=len)] if begins else None


def cost(price: Price, tokens: TokenCounts) -> int:
    """The price of a request, in millionths of a dollar, rounded up."""
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    plain = max(0, tokens.prompt - tokens.cached - tokens.cache_write)
    parts = (plain * price.input, tokens.cached * cached, tokens.cache_write * written, tokens.output * price.output)
    total = sum(round(part * 1000) for part in parts)  # of thousandths of a micro: prices have few digits
    return -(-total // 1000)


def dollars(micros: int) -> str:
    """An amount for people, such as $1.25 or $0.0004."""
    value = micros / MICROS
    return f"${value:.2f}" if micros == 0 or value >= 0.1 else f"${value:.4f}"
