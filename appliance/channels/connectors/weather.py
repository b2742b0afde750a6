"""The weather, from Open-Meteo: sixteen days of a place, in numbers. No key; the place is rounded to a tenth of a degree.

What a place is called is asked of its geocoding, unless the configuration has coordinates. Only numbers of the answers are used, so
that nothing a server writes is shown. https://open-meteo.com/en/docs describes the form.
"""

import math
import re
from typing import Annotated
from urllib.parse import urlencode

from msgspec import Struct

from appliance.channels.lookups import FetchConfigured, Lookup, is_day, read_json
from appliance.clock import CancelToken
from appliance.errors import ConfigError, NotFound, Unavailable
from appliance.knowledge.lookups import DayWeather, Forecast
from appliance.records import Cancel

FORECAST, GEOCODING = "https://api.open-meteo.com/v1/forecast", "https://geocoding-api.open-meteo.com/v1/search"
VALUES = ("weather_code", "temperature_2m_min", "temperature_2m_max", "precipitation_sum", "precipitation_probability_max")
DAYS = 16
FRESH_S, PLACE_S = 1800.0, 30 * 86400.0
MAX_BYTES = 256 * 1024
COORDINATES = re.compile(r"\s*(-?\d{1,2}(?:\.\d+)?)\s*[,; ]\s*(-?\d{1,3}(?:\.\d+)?)\s*")
LIMITS = {"weather_code": (0, 99), "precipitation_sum": (0, 2000), "precipitation_probability_max": (0, 100)}
COLDEST, HOTTEST = -90, 70


class DailyValues(Struct):
    time: list[str]
    weather_code: list[float | None]
    temperature_2m_min: list[float | None]
    temperature_2m_max: list[float | None]
    precipitation_sum: list[float | None]
    precipitation_probability_max: list[float | None]


class ForecastAnswer(Struct):
    daily: DailyValues


class FoundPlace(Struct):
    latitude: float
    longitude: float


class FoundPlaces(Struct):
    results: list[FoundPlace] = []


class Weather(Lookup):
    """Forecasts of places."""

    def __init__(self, place: str, url: str, geocoding_url: str, fetch: FetchConfigured) -> None:
        super().__init__(fetch)
        self._place = place.strip()
        self._url = url
        self._geocoding_url = geocoding_url

    def forecast(self, place: str, cancel: Cancel) -> Forecast:
        """The days ahead in a place, "" for the configured one; NotFound for a place that nobody knows."""
        name = " ".join(place.split())[:80] or self._place
        if not name:
            hint = "owlbox config set channels.weather.place 'Berlin', or '52.5, 13.4'"
            raise ConfigError("channels.weather.place is not set", key="channels.weather.place", hint=hint)
        at = self._find(name, cancel)
        days, at_ms = self.keep(f"{at}", FRESH_S, lambda: self._ask_days(at, cancel))
        return Forecast("" if COORDINATES.fullmatch(name) else name, days, at_ms)

    def refresh(self, cancel: Cancel) -> None:
        """Ask for the weather of the configured place."""
        self.forecast("", cancel)

    def check(self) -> list[str]:
        """Ask for the weather of the configured place."""
        found = self.forecast("", CancelToken())
        return [f"{len(found.days)} days of {found.place or self._place}"]

    def _find(self, name: str, cancel: Cancel) -> tuple[float, float]:
        """Where a place is, to a tenth of a degree: about 10 km."""
        if (given := COORDINATES.fullmatch(name)) is not None:
            return _rounded(float(given[1]), float(given[2]), name)

        def ask() -> tuple[float, float]:
            query = urlencode({"name": name, "count": 1, "format": "json"})
            found = read_json(self.ask(f"{self._geocoding_url}?{query}", cancel, MAX_BYTES), FoundPlaces, "the geocoding")
            if not found.results:
                raise NotFound(f"no place is called {name!r}", hint="say it in another way, or set coordinates")
            return _rounded(found.results[0].latitude, found.results[0].longitude, name)

        return self.keep(f"place {name.casefold()}", PLACE_S, ask)[0]

    def _ask_days(self, at: tuple[float, float], cancel: Cancel) -> tuple[DayWeather, ...]:
        given = {"latitude": at[0], "longitude": at[1], "daily": ",".join(VALUES), "timezone": "auto", "forecast_days": DAYS}
        daily = read_json(
            self.ask(f"{self._url}?{urlencode(given)}", cancel, MAX_BYTES), ForecastAnswer, "the weather service"
        ).daily
        rows = zip(daily.time, *(getattr(daily, name) for name in VALUES))
        days = [_read_day(day, dict(zip(VALUES, values))) for day, *values in list(rows)[:DAYS]]
        if not (found := tuple(one for one in days if one is not None)):
            raise Unavailable("the weather service answers without a day")
        return found


def _read_day(day: str, values: dict[str, float | None]) -> DayWeather | None:
    """A day whose numbers can be; None for one without, as the last ones may be."""
    if not is_day(day):
        return None
    numbers = []
    for name in VALUES:
        least, most = LIMITS.get(name, (COLDEST, HOTTEST))
        value = values[name]
        if value is None and name == "precipitation_probability_max":
            value = 0.0
        if value is None or not least <= value <= most:  # also what is no number
            return None
        numbers.append(float(value))
    code, low, high, rain, percent = numbers
    return DayWeather(day, int(code), low, high, rain, int(percent))


def _rounded(latitude: float, longitude: float, name: str) -> tuple[float, float]:
    if not (math.isfinite(latitude) and abs(latitude) <= 90 and math.isfinite(longitude) and abs(longitude) <= 180):
        raise ConfigError(f"{name!r} is no place on Earth", key="channels.weather.place", hint="latitude and longitude: 52.5, 13.4")
    return round(latitude, 1), round(longitude, 1)


def connect(
    place: Annotated[str, "where: the name of a town, or latitude and longitude such as '52.5, 13.4'"] = "",
    url: Annotated[str, "the service of forecasts, or one of your own"] = FORECAST,
    geocoding_url: Annotated[str, "what finds places by their names"] = GEOCODING,
    *,
    fetch_configured: FetchConfigured,
) -> Weather:
    """The weather of this table."""
    return Weather(place, url, geocoding_url, fetch_configured)
