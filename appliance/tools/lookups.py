"""Tools that look something up elsewhere, or have Home Assistant do something. Each works where its channel is switched on."""

from typing import Annotated, Any, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import Refused
from appliance.knowledge.lookups import CurrencyRates, Forecasts, House, Lookups, NewsFeeds
from appliance.policy.taint import ToolReach
from appliance.records import Outcome
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.web.result_pages import ORIGIN

PLACES = Needs(reach=ToolReach("search", named="weather", data=("place",)))
DEVICES = Needs(reach=ToolReach("device", named="home_assistant"))
NEWS = 15
Code = Annotated[str, Range(3, 3), "its code, such as EUR"]


class ShownWeather(TypedDict):
    place: str
    fetched_ms: int
    days: list[dict[str, Any]]


class ConvertedAmount(TypedDict):
    amount: float
    day: str


@tool(group="lookups", is_read_only=True, menu=(), needs=PLACES)
def get_weather(
    place: Annotated[str, Range(0, 80), "a town; empty for here"] = "",
    *,
    lookups: Lookups,
    caller: Caller,
) -> Reply[ShownWeather]:
    """Show the weather of the days ahead, today first."""
    weather: Forecasts = lookups.find("weather")
    found = weather.forecast(place, caller.cancel)
    days = [{name: getattr(one, name) for name in one.__struct_fields__} for one in found.days]
    lines = [
        f"{one.day}: WMO code {one.code}, {one.low:.0f} to {one.high:.0f} °C, {one.rain_mm:g} mm ({one.rain_percent} %)"
        for one in found.days
    ]
    return Reply({"place": found.place, "fetched_ms": found.at_ms, "days": days}, "\n".join([found.place or "here", *lines]))


@tool(group="lookups", is_read_only=True, menu=())
def list_news(
    feed: Annotated[str, Range(0, 100), "of one feed; empty for all"] = "",
    limit: Annotated[int, Range(1, 100), "how many"] = NEWS,
    *,
    lookups: Lookups,
    caller: Caller,
) -> Outcome:
    """List the newest titles of the configured feeds."""
    feeds: NewsFeeds = lookups.find("feeds")
    items, problems = feeds.news(caller.cancel)
    items = [one for one in items if not feed or one.feed.casefold() == feed.casefold()]
    shown = [{"title": one.title, "feed": one.feed, "at_ms": one.at_ms} for one in items[:limit]]
    text = "\n".join([*(f"- {one.title} ({one.feed})" for one in items[:limit]), *problems.values()]) or "No news."
    data = {"items": shown, "problems": list(problems.values())}
    return Outcome(200, "ok", text, data=data, origin=ORIGIN, source=f"feeds {', '.join(feeds.names())}"[:200])


@tool(group="lookups", is_read_only=True, menu=())
def convert_currency(
    amount: Annotated[float, "how much"],
    unit: Code,
    other: Annotated[str, Range(3, 3), "the code of the currency that is wanted"],
    *,
    lookups: Lookups,
    caller: Caller,
) -> Reply[ConvertedAmount]:
    """Convert an amount at the newest rate of the European Central Bank."""
    rates: CurrencyRates = lookups.find("exchange_rates")
    result, day = rates.convert(amount, unit.upper(), other.upper(), caller.cancel)
    return Reply({"amount": result, "day": day}, f"{amount:g} {unit.upper()} = {result:.2f} {other.upper()} ({day})")


@tool(group="lookups", menu=(), needs=DEVICES)
def control_home(
    text: Annotated[str, Range(1, 300), "one sentence: turn off the kitchen light"],
    language: Annotated[str, Range(2, 5), "the code of its language"] = "en",
    *,
    lookups: Lookups,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Tell or ask Home Assistant something about devices of the house."""
    home: House = lookups.find("home_assistant")
    person = runs.person(caller.session)
    is_known = bool(person) and ":" not in person  # an address that nobody has linked is a stranger's
    if not is_known or (home.people and person not in home.people):
        hint = "channels.home_assistant.people names who may; owlbox people link makes an address somebody's"
        raise Refused(f"{person or 'nobody'} may not speak to Home Assistant", hint=hint)
    found = home.say(text, language, caller.cancel)
    data = {"speech": found.speech, "is_error": found.is_error, "code": found.code}
    return Outcome(200, "ok", found.speech or found.code or "Done.", data=data, origin=ORIGIN, source="Home Assistant")
