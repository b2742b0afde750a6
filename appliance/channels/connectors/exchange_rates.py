"""Exchange rates, from the European Central Bank: one file a working day, with what a euro is in about thirty currencies.

The whole file is fetched whatever is asked, so that nobody learns it. https://www.ecb.europa.eu/stats/eurofxref describes the form.
"""

import re
from typing import Annotated

from msgspec import Struct

from appliance.channels.lookups import FetchConfigured, Lookup, is_day
from appliance.clock import CancelToken
from appliance.errors import NotFound, Unavailable
from appliance.records import Cancel
from appliance.text import safe_xml

DAILY = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml"
FRESH_S = 4 * 3600.0
MAX_BYTES = 256 * 1024
BASE = "EUR"
CODE, RATE = re.compile(r"[A-Z]{3}"), re.compile(r"\d{1,9}(?:\.\d{1,9})?")


class DailyRates(Struct, frozen=True):
    """What a euro was on a day, by the codes of currencies."""

    day: str
    rates: dict[str, float]


class ExchangeRates(Lookup):
    """The rates of the newest file."""

    def __init__(self, url: str, fetch: FetchConfigured) -> None:
        super().__init__(fetch)
        self._url = url

    def convert(self, amount: float, unit: str, other: str, cancel: Cancel) -> tuple[float, str]:
        """An amount in another currency, and the day of the rate; NotFound for a currency that has none."""
        known = self.keep(self._url, FRESH_S, lambda: self._ask_rates(cancel))[0]
        for code in (unit, other):
            if code not in known.rates:
                raise NotFound(f"there is no rate for {code}", hint=f"there are {', '.join(sorted(known.rates))}")
        return amount / known.rates[unit] * known.rates[other], known.day

    def refresh(self, cancel: Cancel) -> None:
        """Fetch the file."""
        self.keep(self._url, FRESH_S, lambda: self._ask_rates(cancel))

    def check(self) -> list[str]:
        """Fetch the file."""
        found = self._ask_rates(CancelToken())
        return [f"{len(found.rates)} currencies of {found.day}"]

    def _ask_rates(self, cancel: Cancel) -> DailyRates:
        root = safe_xml.parse(self.ask(self._url, cancel, MAX_BYTES), "the bank")
        days = [one for one in root.iter() if is_day(one.get("time", ""))]
        for day in days[:1]:
            given = [(one.get("currency", ""), one.get("rate", "")) for one in day]
            rates = {code: float(rate) for code, rate in given if CODE.fullmatch(code) and RATE.fullmatch(rate) and float(rate) > 0}
            if rates:
                return DailyRates(day.get("time", ""), {BASE: 1.0, **rates})
        raise Unavailable("the bank answers without rates")


def connect(
    url: Annotated[str, "the file of the rates"] = DAILY,
    *,
    fetch_configured: FetchConfigured,
) -> ExchangeRates:
    """The rates of this table."""
    return ExchangeRates(url, fetch_configured)
