"""Answers that the program computes or looks up, because a small model makes them up: the time, the calendar, sums, units; and
weather, news, money, the devices of the house, and a day's briefing.

Where a lookup is switched off its answer says how to switch it on; a question that notes may answer goes to them then. What devices
are called is what Home Assistant lists: a sentence is for it when it names one of those, or has the form of `beyond_home`.
Titles of news are shown and nothing else: no word of them decides anything. Knows no servers.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import Any

from appliance.clock import now_ms
from appliance.language import arithmetic, word_forms
from appliance.language.languages import FIRST, Language, read_shipped, words_in
from appliance.language.planning import rewriting
from appliance.language.planning.plans import Do, Plan, Say, Scene, all_of, answer_of, tool_call
from appliance.language.ports import OutsideLookups
from appliance.language.router import Intent, is_days
from appliance.language.times import dates, timezones
from appliance.language.times.dates import Moment
from appliance.records import Outcome


def _say_time(intent: Intent, now: datetime) -> Plan:
    return Say(intent.language.say("time", time=now.strftime("%H:%M")))


def _say_date(intent: Intent, now: datetime) -> Plan:
    language = intent.language
    weekday, month = language.phrase("weekdays").split()[now.weekday()], language.phrase("months").split()[now.month - 1]
    return Say(intent.language.say("date", weekday=weekday, day=str(now.day), month=month, year=str(now.year)))


def _say_time_in(intent: Intent, now: datetime) -> Plan:
    """The time in a place; that of several zones in a country that has them, one on each line."""
    language, place = intent.language, intent.parts["place"].strip(" .!?")
    found = timezones.times(place, now, {**read_shipped(FIRST)["places"], **language.places})
    if not found:
        return Say(language.say("no_place", text=place))
    days = language.phrase("weekdays").split()
    is_city = len(found) > 1 or found[0][0].lower() == place.lower()
    names = [zone for zone, _ in found] if is_city else [f"{place[:1].upper()}{place[1:]}"]
    lines = [
        language.say("time_in", time=there.strftime("%H:%M"), place=name, weekday=days[there.weekday()])
        for name, (_, there) in zip(names, found)
    ]
    return Say("\n".join(lines))


Maker = Callable[[Intent, datetime], Plan | None]


def answer(intent: Intent, now: datetime) -> Plan | None:
    """What is computed for an intent; None for one that nothing is computed for."""
    make = MAKERS.get(intent.name)
    return None if make is None else make(intent, now)


def _say_sum(intent: Intent, now: datetime) -> Plan:
    said = intent.parts["sum"]
    return Say(intent.language.say("sum", sum=said, result=arithmetic.result(said, intent.language.signs)))


def _say_spelling(intent: Intent, now: datetime) -> Plan | None:
    """How a word is written, letter by letter; a typing error in it is mended first."""
    word = rewriting.mended(intent.parts["word"].strip(" \"'“”„«».?!"), intent.language)
    return Say(intent.language.say("spelled", text=word, letters="-".join(word))) if word.isalpha() else None


def _say_units(intent: Intent, now: datetime) -> Plan:
    said, result = arithmetic.converted(intent.parts["units"], intent.language)
    return Say(intent.language.say("sum", sum=said, result=result))


def _say_week(intent: Intent, now: datetime) -> Plan:
    year, week, _ = now.isocalendar()
    return Say(intent.language.say("week", week=str(week), year=str(year)))


def _say_day(intent: Intent, now: datetime) -> Plan | None:
    moment = dates.read(intent.parts["date"], intent.language, now)
    if moment is None:
        return None
    clock = f" {moment.at:%H:%M}" if moment.has_clock else ""
    return Say(f"{dates.spelled(moment.at, intent.language)}{clock}.")


def _say_distance(intent: Intent, now: datetime) -> Plan | None:
    """How long until or since a day; which of the two, the day itself says."""
    moment = dates.read(intent.parts["date"], intent.language, now, may_be_named=True)
    if moment is None:
        return None
    in_weeks = bool(set(words_in(intent.text)) & set(intent.language.phrase("week_words").split()))
    count = dates.distance(Moment(now), moment, intent.language, in_weeks=in_weeks)
    is_past = moment.at < now if moment.has_clock else moment.at.date() < now.date()
    if intent.name == "days_since" and not is_past:
        moment = _year_before(moment)
        count, is_past = dates.distance(Moment(now), moment, intent.language, in_weeks=in_weeks), True
    day = dates.spelled(moment.at, intent.language) + (f" {moment.at:%H:%M}" if moment.has_clock else "")
    return Say(intent.language.say("days_since" if is_past else "days_until", count=count, day=day))


def _year_before(moment: Moment) -> Moment:
    """The same day of the year before: "since the 3rd of May" means the last one."""
    try:
        return Moment(moment.at.replace(year=moment.at.year - 1), moment.has_clock)
    except ValueError:  # the 29th of February
        return Moment(moment.at.replace(year=moment.at.year - 1, day=28), moment.has_clock)


def _say_between(intent: Intent, now: datetime) -> Plan | None:
    first, second = (dates.read(intent.parts[key], intent.language, now) for key in ("date", "second"))
    if first is None or second is None:
        return None
    count = dates.distance(first, second, intent.language)
    days = [dates.spelled(one.at, intent.language) for one in (first, second)]
    return Say(intent.language.say("days_between", count=count, first=days[0], second=days[1]))


MAKERS: dict[str, Maker] = {
    "time": _say_time,
    "time_in": _say_time_in,
    "date": _say_date,
    "spell": _say_spelling,
    "sum": _say_sum,
    "units": _say_units,
    "week": _say_week,
    "day_of": _say_day,
    "days_until": _say_distance,
    "days_since": _say_distance,
    "days_between": _say_between,
}


# -- looked up elsewhere ------------------------------------------------------------------------------

Span = Callable[[str, Language], tuple[datetime, datetime] | None]
WET, DAMP = (50, 1.0), (25, 0.3)  # percent and mm from which rain is expected, and possible
OLD_MS = 3 * 3600 * 1000  # from which it is said how old the weather is
MOST_NEWS, BRIEF_NEWS, MOST_TASKS = 10, 5, 8
MOST_OF_FEED = 3  # titles of one feed where several have some


class NoLookups:
    """Where everything is off."""

    def is_on(self, name: str) -> bool:
        return False

    def names(self, name: str) -> Sequence[str]:
        return ()


NO_LOOKUPS = NoLookups()


class LookupPlans:
    """Makes them; `ignored` are words that name nothing, `span` reads days, `show_day` says what is on at one."""

    def __init__(
        self,
        lookups: OutsideLookups,
        ignored: Collection[str],
        span: Span,
        show_day: Callable[[Scene, Intent], Plan | None],
    ) -> None:
        self._lookups = lookups
        self._ignored = frozenset(ignored)
        self._span = span
        self._show_day = show_day

    # -- weather --------------------------------------------------------------------------------------

    def show_weather(self, scene: Scene, intent: Intent) -> Plan | None:
        """The weather of the days that are named, and whether it rains where that is asked; None for days that it cannot read."""
        language = intent.language
        if not self._lookups.is_on("weather"):
            return Say(language.say("weather_off"))
        place, day = intent.parts.get("place", "").strip(" .!?"), intent.parts.get("day", "")
        words = place.split()
        for at in range(1, len(words) if not day else 0):  # "Oslo tomorrow"
            if is_days(" ".join(words[at:]), language):
                place, day = " ".join(words[:at]), " ".join(words[at:])
                break
        span = self._span(day, language)
        if span is None:
            return None
        first, last = (f"{one:%Y-%m-%d}" for one in span)

        def told(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            data = outcome.data or {}
            days = [one for one in data.get("days", ()) if first <= one["day"] < last]
            if not days:
                return Say(language.say("weather_far"))
            verdict = [language.say(_rain(days))] if intent.name == "rain" else []
            place = f"{data['place']}, " if data.get("place") else ""
            lines = [f"{place}{_weather_line(one, language)}" for one in days]
            old = [language.say("weather_old", time=_clock(data["fetched_ms"]))] if now_ms() - data["fetched_ms"] > OLD_MS else []
            return Say("\n".join([*verdict, *lines, *old]))

        return Do(tool_call("get_weather", place=place), told)

    # -- news -----------------------------------------------------------------------------------------

    def show_news(self, scene: Scene, intent: Intent, otherwise: Callable[[], Plan] | None = None) -> Plan | None:
        """Titles of the feeds: the newest, those of a feed, or those that name something; `otherwise` where none does."""
        language, of = intent.language, intent.parts.get("source", intent.parts.get("topic", ""))
        if not self._lookups.is_on("feeds"):
            return otherwise() if of and otherwise is not None else Say(language.say("news_off"))
        feeds = [name for name in self._lookups.names("feeds") if of and self._is_named(of, name)]
        wanted = [] if feeds else word_forms.content_words(of, self._ignored)
        most = BRIEF_NEWS if intent.name == "briefing" else MOST_NEWS

        def told(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            data = outcome.data or {}
            items = [one for one in data.get("items", ()) if not feeds or one["feed"] in feeds]
            items = [one for one in items if all(word_forms.has_stem(word_forms.stem(word), one["title"]) for word in wanted)]
            if not items and wanted and otherwise is not None:
                return otherwise()
            lines = [f"- {one['title']} ({one['feed']})" for one in _spread(items, most)]
            lines = [language.say("news"), *lines] if lines else [language.say("news_none")]
            problems = data.get("problems", ())
            return Say("\n".join([*lines, *([language.say("news_missing", text="; ".join(problems))] if problems else [])]))

        return Do(tool_call("list_news", limit=100), told)

    # -- money ----------------------------------------------------------------------------------------

    def convert(self, scene: Scene, intent: Intent) -> Plan | None:
        """An amount of money in another currency."""
        language = intent.language
        asked = (arithmetic.money if "money" in intent.parts else arithmetic.rate)([*intent.parts.values()][0], language)
        if asked is None:
            return None
        if not self._lookups.is_on("exchange_rates"):
            return Say(language.say("rates_off"))
        amount, unit, other = asked

        def told(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            data = outcome.data or {}
            day = dates.spelled(datetime.fromisoformat(data["day"]), language)
            sums = f"{_amount(amount)} {unit}", f"{data['amount']:.2f} {other}"
            return Say(language.say("rates", sum=sums[0], result=sums[1], day=day))

        return Do(tool_call("convert_currency", amount=float(amount), unit=unit, other=other), told)

    # -- devices --------------------------------------------------------------------------------------

    def ask_home(self, scene: Scene, intent: Intent) -> Plan | None:
        """A sentence for Home Assistant, whose answer is told as it comes; None where it names no device or room of it."""
        language = intent.language
        is_on = self._lookups.is_on("home_assistant")
        if intent.name == "beyond_home":
            if not is_on:
                return Say(language.say("beyond_home"))
        elif not is_on or not self._is_device(intent.parts["what"], language):
            return None

        def told(outcome: Outcome) -> Plan:
            if outcome.is_error or "held" in (outcome.data or {}):
                return answer_of(outcome, intent)
            return Say((outcome.data or {}).get("speech") or language.say("home_done"))

        text = language.without_closing(language.without_opening(intent.text)).strip(" .!")
        return Do(tool_call("control_home", text=text, language=language.name), told)

    def _is_device(self, what: str, language: Language) -> bool:
        """Whether a text names a device or a room: each of its words that says something is in the name of one."""
        words = word_forms.content_words(what, self._ignored)
        own = language.words["tasks"] | language.words["notes"] | language.words["lists"] | language.words["files"]
        if not words or not own.isdisjoint(words_in(what)):
            return False
        stems = [word_forms.stem(word) for word in words]
        return any(all(word_forms.has_stem(stem, name) for stem in stems) for name in self._lookups.names("home_assistant"))

    # -- the day --------------------------------------------------------------------------------------

    def brief(self, scene: Scene, intent: Intent) -> Plan:
        """What today holds: events and reminders, open tasks, and weather and news where they are on."""

        def tasks() -> Plan:
            call = tool_call("list_tasks", status="open", limit=MOST_TASKS)
            return Do(call, partial(_tell_tasks, intent))

        plans: list[Callable[[], Plan]] = [lambda: self._show_day(scene, intent) or Say(""), tasks]
        if self._lookups.is_on("weather"):
            plans.append(lambda: self.show_weather(scene, intent) or Say(""))
        if self._lookups.is_on("feeds"):
            plans.append(lambda: self.show_news(scene, intent) or Say(""))
        return all_of(plans)

    def _is_named(self, text: str, name: str) -> bool:
        words = [word_forms.stem(word) for word in word_forms.content_words(text, self._ignored)] or words_in(text)
        return bool(words) and all(word_forms.has_stem(word, name) for word in words)


def _rain(days: Sequence[dict[str, Any]]) -> str:
    """The phrase that says whether it rains on any of these days."""
    for phrase, (percent, rain) in (("rain_yes", WET), ("rain_maybe", DAMP)):
        if any(one["rain_percent"] >= percent or one["rain_mm"] >= rain for one in days):
            return phrase
    return "rain_no"


def _weather_line(one: dict[str, Any], language: Language) -> str:
    day = dates.spelled(datetime.fromisoformat(one["day"]), language)
    low, high = (f"{one[key]:.0f}".replace("-0", "0") for key in ("low", "high"))
    amounts = {"rain": f"{one['rain_mm']:g}", "percent": str(one["rain_percent"])}
    return language.say("weather_day", day=day, kind=_weather_kind(one["code"], language), low=low, high=high, **amounts)


def _weather_kind(code: int, language: Language) -> str:
    """What a code of the WMO means: the phrase lists codes before their words, "61 63 rain, 71 snow"."""
    for one in language.phrase("weather_codes").split(","):
        words = one.split()
        if str(code) in words:
            return " ".join(word for word in words if not word.isdigit())
    return "?"


def _spread(items: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The first of the items, so that no feed that says much hides the others."""
    several = len({one["feed"] for one in items}) > 1
    found: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for one in items:
        counts[one["feed"]] = counts.get(one["feed"], 0) + 1
        if not several or counts[one["feed"]] <= MOST_OF_FEED:
            found.append(one)
    return found[:most]


def _tell_tasks(intent: Intent, outcome: Outcome) -> Plan:
    tasks = () if outcome.is_error else (outcome.data or {}).get("tasks", ())
    lines = [f"- {one['name']}" for one in tasks]
    return Say("\n".join([intent.language.say("briefing_tasks"), *lines]) if lines else intent.language.say("no_tasks"))


def _amount(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"{float(number):.2f}"


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).strftime("%H:%M")
