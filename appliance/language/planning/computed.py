"""Answers that the program computes, because a small model makes them up: the time, the calendar, sums, units."""

from collections.abc import Callable
from datetime import datetime

from appliance.language import arithmetic
from appliance.language.languages import FIRST, read_shipped, words_in
from appliance.language.planning import rewriting
from appliance.language.planning.plans import Plan, Say
from appliance.language.router import Intent
from appliance.language.times import dates, timezones
from appliance.language.times.dates import Moment


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
