"""What is looked up elsewhere when somebody asks: weather, news, exchange rates, the house. Each is off until its channel is on.

`channels.connectors` has a file for each. One object of it serves the questions and is what `channels.connections` runs, so that
nothing is fetched twice. Knows nothing about servers.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from appliance.errors import Conflict, OwlError
from appliance.records import Cancel
from appliance.runtime.settings import Channels

LOOKUPS = ("weather", "feeds", "exchange_rates", "home_assistant")
Connect = Callable[[str, Any, Mapping[str, Any]], Any]


class DayWeather(Struct, frozen=True):
    """A day: the code of the weather as the WMO numbers it, degrees, and how much rain is expected with which probability."""

    day: str
    code: int
    low: float
    high: float
    rain_mm: float
    rain_percent: int


class Forecast(Struct, frozen=True):
    """The days of a place, today first; `place` is what the person calls it, "" where only its coordinates are known."""

    place: str
    days: tuple[DayWeather, ...]
    at_ms: int


class NewsItem(Struct, frozen=True):
    """A title, the name of its feed, and when it was published in ms, 0 where the feed does not say."""

    title: str
    feed: str
    at_ms: int


class HomeAnswer(Struct, frozen=True):
    """What the house said, and whether that is an error: `code` says which, such as no_intent_match."""

    speech: str
    is_error: bool
    code: str


class Forecasts(Protocol):
    def forecast(self, place: str, cancel: Cancel) -> Forecast: ...


class NewsFeeds(Protocol):
    def names(self) -> Sequence[str]: ...

    def news(self, cancel: Cancel) -> tuple[list[NewsItem], dict[str, str]]: ...


class CurrencyRates(Protocol):
    def convert(self, amount: float, unit: str, other: str, cancel: Cancel) -> tuple[float, str]: ...


class House(Protocol):
    @property
    def people(self) -> Sequence[str]: ...

    def say(self, text: str, language: str, cancel: Cancel) -> HomeAnswer: ...


class Lookups:
    """Those that are switched on, each made once for its table."""

    def __init__(self, settings: Callable[[], Channels], connect: Connect, services: Mapping[str, Any]) -> None:
        """`connect` makes a channel of a table; `services` are what its file may ask for."""
        self._settings = settings
        self._connect = connect
        self._services = services
        self._made: dict[str, tuple[Any, Any]] = {}
        self._guard = threading.Lock()

    def is_on(self, name: str) -> bool:
        """Whether one is switched on."""
        table = self._settings().connectors.get(name)
        return table is not None and bool(table.enabled)

    def find(self, name: str) -> Any:
        """One that is switched on; Conflict for one that is not, ConfigError for a table with mistakes."""
        if not self.is_on(name):
            raise Conflict(f"{name} is switched off", hint=f"owlbox channel enable {name}")
        return self.make(name, self._settings().connectors[name], self._services)

    def names(self, name: str) -> Sequence[str]:
        """What one that is switched on knows by name: feeds, devices and rooms; none where it is off, or its table wrong."""
        try:
            found: Sequence[str] = self.find(name).names() if self.is_on(name) else ()
        except OwlError:
            return ()
        return found

    def make(self, name: str, table: Any, services: Mapping[str, Any]) -> Any:
        """What `connections` runs for a table: for one of these the same that answers questions."""
        if name not in LOOKUPS:
            return self._connect(name, table, services)
        with self._guard:
            known = self._made.get(name)
            if known is None or known[0] != table:
                known = self._made[name] = (table, self._connect(name, table, self._services))
            return known[1]
