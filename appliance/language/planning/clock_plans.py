"""The time and the date, as plans: here, and elsewhere by the zones of a place."""

from collections.abc import Callable, Mapping
from datetime import datetime

from appliance.language.languages import Language
from appliance.language.planning.plans import Plan, Say
from appliance.language.router import Intent
from appliance.language.times import world_clock


def say_time(intent: Intent, now: datetime, english: Language) -> Plan:
    return Say(intent.language.say("time", time=now.strftime("%H:%M")))


def say_date(intent: Intent, now: datetime, english: Language) -> Plan:
    language = intent.language
    weekday, month = language.phrase("weekdays").split()[now.weekday()], language.phrase("months").split()[now.month - 1]
    return Say(intent.language.say("date", weekday=weekday, day=str(now.day), month=month, year=str(now.year)))


def say_time_in(intent: Intent, now: datetime, english: Language) -> Plan:
    """The time in a place; that of several zones in a country that has them, one on each line."""
    language, place = intent.language, intent.parts["place"].strip(" .!?")
    found = world_clock.times(place, now, {**english.places, **language.places})
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


MAKERS: Mapping[str, Callable[[Intent, datetime, Language], Plan]] = {"time": say_time, "time_in": say_time_in, "date": say_date}
