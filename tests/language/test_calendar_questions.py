"""What people ask and want of calendars, in English and German: answered from real events, and nothing else is taken for it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from stores import new_store

from appliance.clock import now_ms
from appliance.knowledge.calendar import CalendarAccount, Calendars
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import Entries
from appliance.language.languages import Languages
from appliance.language.planning.effect_plans import Effects
from appliance.language.planning.plans import Do, Plan, Say, Scene
from appliance.language.planning.reminders_and_events import CalendarPlans, Reminders
from appliance.language.router import OF_CALENDAR, ORDER, Router
from appliance.records import Message, Outcome

ZONE = ZoneInfo("Europe/Berlin")
ROUTER = Router(Languages(), lambda texts: ())
TODAY = datetime.fromtimestamp(now_ms() / 1000, ZONE).replace(hour=0, minute=0, second=0, microsecond=0)
NOW = TODAY + timedelta(hours=8)
TOMORROW, LATER = TODAY + timedelta(days=1), TODAY + timedelta(days=2)
EVENTS = f"""BEGIN:VCALENDAR
BEGIN:VEVENT
UID:a
DTSTART;TZID=Europe/Berlin:{TOMORROW:%Y%m%d}T100000
DTEND;TZID=Europe/Berlin:{TOMORROW:%Y%m%d}T104500
SUMMARY:Dentist
LOCATION:Gray Street 4
END:VEVENT
BEGIN:VEVENT
UID:b
DTSTART;VALUE=DATE:{LATER:%Y%m%d}
SUMMARY:Zoo trip
END:VEVENT
BEGIN:VEVENT
UID:c
DTSTART;TZID=Europe/Berlin:20250101T193000
RRULE:FREQ=DAILY;INTERVAL=1;BYHOUR=19
DURATION:PT1H
SUMMARY:Choir
END:VEVENT
END:VCALENDAR
"""


@pytest.fixture
def entries(tmp_path: Path) -> Iterator[Entries]:
    store = new_store(tmp_path / "owlbox.db")
    made = Entries(store)
    made.put("box://family.ics", Content(body="family", original=EVENTS.encode()))
    yield made
    store.close()


@pytest.fixture
def calendars(entries: Entries) -> Calendars:
    return Calendars(entries, lambda: ZONE, lambda: CalendarAccount("home"))


def plan_of(said: str, calendars: Calendars) -> Plan | None:
    plans = CalendarPlans(calendars, lambda: NOW, ROUTER.languages.function_words())
    intent = ROUTER.cue(said, (*OF_CALENDAR, *ORDER))
    makers = {
        "agenda": plans.show_days,
        "event": plans.add,
        "event_move": plans.move,
        "event_gone": plans.remove,
    }
    assert intent is not None and intent.name in makers, f"{said}: {intent and intent.name}"
    return makers[intent.name](Scene("tiny", said, ()), intent)


def told(plan: Plan | None, **data: object) -> str:
    if isinstance(plan, Do):
        plan = plan.then(Outcome(200, "ok", "done", data=data or {"schedules": []}))
    assert isinstance(plan, Say)
    return plan.text


DAYS = (
    """
What's on tomorrow?|what is on tomorrow|What do I have on tomorrow?|Do I have anything tomorrow?
show me my calendar for tomorrow
what's in my calendar for tomorrow?|which appointments do I have tomorrow|Was steht morgen an?
Was habe ich morgen vor?|Was ist morgen los?
Habe ich morgen etwas vor?|Welche Termine habe ich morgen?|Zeig mir meinen Kalender für morgen|Was steht morgen im Kalender?
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.mark.parametrize("said", DAYS)
def test_what_is_on_is_answered_from_calendars(calendars: Calendars, said: str) -> None:
    lines = told(plan_of(said, calendars)).split("\n")
    assert lines[1:] == ["- 10:00–10:45: Dentist (Gray Street 4) [box://family.ics]", "- 19:30–20:30: Choir [box://family.ics]"]


def test_a_whole_day_comes_first_and_a_reminder_of_that_day_last(calendars: Calendars) -> None:
    at = int((LATER + timedelta(hours=9)).timestamp() * 1000)
    due = {"next_ms": at, "zone": "Europe/Berlin", "kind": "once", "name": "pay", "words": "", "action": "reminder"}
    plan = plan_of(f"what's on on {LATER:%A}?", calendars)
    lines = told(plan, schedules=[due, {**due, "next_ms": at + 86_400_000}]).split("\n")
    assert [line.partition(":")[0] for line in lines[1:]] == ["- all day", "- 19", "- reminder"]


WHEN = (
    *("When is the dentist?", "what time is my dentist", "when's the dentist on?", "when does the dentist start?"),
    *("Wann ist Dentist?", "Wann habe ich Dentist?", "Wann fängt Dentist an?", "Um wie viel Uhr muss ich zum Dentist?"),
    *("Quand est le Dentist ?", "À quelle heure est mon Dentist ?", "¿Cuándo es el Dentist?", "¿A qué hora tengo Dentist?"),
)


@pytest.mark.parametrize("said", WHEN)
def test_when_something_is_is_its_next_time(calendars: Calendars, said: str) -> None:
    plans = CalendarPlans(calendars, lambda: NOW, ROUTER.languages.function_words())
    found = plans.answer(said, ROUTER.languages.detect(said)[0])
    assert (
        found is not None and not found.is_near and found.text.endswith("10:00–10:45: Dentist (Gray Street 4) [box://family.ics]")
    )


ADDED = (
    ("add lunch with Ada on Friday at 12 to my calendar", "Lunch with Ada", "12:00"),
    ("put dinner with Ben tomorrow at 7pm in the calendar please", "Dinner with Ben", "19:00"),
    ("Trag am Freitag um 12 Mittagessen mit Ada in meinen Kalender ein", "Mittagessen mit Ada", "12:00"),
    ("Schreib Zahnarzt morgen um 15 Uhr in den Kalender", "Zahnarzt", "15:00"),
    ("add holiday on Friday to my calendar", "Holiday", ""),
)


@pytest.mark.parametrize(("said", "title", "clock"), ADDED)
def test_an_event_is_added_with_its_day_and_hour(calendars: Calendars, said: str, title: str, clock: str) -> None:
    plan = plan_of(said, calendars)
    assert isinstance(plan, Do) and plan.call.name == "add_event", plan
    assert (plan.call.arguments["title"], plan.call.arguments["start"][10:].strip()) == (title, clock)
    assert title in told(plan, event={})


def test_what_has_no_time_or_repeats_is_asked_back_and_nothing_is_done(calendars: Calendars) -> None:
    assert "When is" in told(plan_of("add lunch with Ada to my calendar", calendars))
    assert "happen once" in told(plan_of("add choir every Tuesday at 7pm to my calendar", calendars))
    none = Calendars(calendars._entries, lambda: ZONE, lambda: None)
    assert "docs/guides/calendar.md" in told(plan_of("add lunch on Friday at 12 to my calendar", none))


def test_an_event_is_moved_and_taken_out_by_its_name(calendars: Calendars) -> None:
    moved = plan_of(f"move the dentist to {LATER:%A} at 3pm", calendars)
    assert isinstance(moved, Do) and moved.call.arguments == {"ref": "box://family.ics", "start": f"{LATER:%Y-%m-%d} 15:00"}
    hour = plan_of("Verschieb Dentist auf 15 Uhr", calendars)
    assert isinstance(hour, Do) and hour.call.arguments["start"] == f"{TOMORROW:%Y-%m-%d} 15:00"
    gone = plan_of("delete the dentist from my calendar", calendars)
    assert isinstance(gone, Do) and gone.call.name == "remove_event"
    assert plan_of("move the piano to the hall", calendars) is None


def test_a_reminder_goes_by_the_next_time_in_a_calendar(calendars: Calendars) -> None:
    said = "remind me half an hour before the dentist"
    intent = ROUTER.cue(said)
    plans = CalendarPlans(calendars, lambda: NOW, ROUTER.languages.function_words())
    assert intent is not None
    plan = Reminders(ROUTER, lambda: NOW, (), lambda text: [], plans.find).set(Scene("tiny", said, ()), intent)
    assert isinstance(plan, Do)
    assert datetime.fromisoformat(plan.call.arguments["when"]) == TOMORROW + timedelta(hours=9, minutes=30)


def test_of_two_things_that_have_the_name_neither_is_guessed(calendars: Calendars, tmp_path: Path) -> None:
    other = EVENTS.replace("UID:a", "UID:d").replace("SUMMARY:Dentist", "SUMMARY:Dentist of the cat").replace("T100000", "T080000")
    store = new_store(tmp_path / "two.db")
    entries = Entries(store)
    for name, text in (("family", EVENTS), ("cat", other)):
        entries.put(f"box://{name}.ics", Content(body=name, original=text.encode()))
    plans = CalendarPlans(Calendars(entries, lambda: ZONE, lambda: None), lambda: NOW, ROUTER.languages.function_words())
    intent = ROUTER.cue("remind me half an hour before the dentist")
    assert intent is not None
    plan = Reminders(ROUTER, lambda: NOW, (), lambda text: [], plans.find).set(Scene("tiny", intent.text, ()), intent)
    assert isinstance(plan, Say) and "When should I remind you" in plan.text
    store.close()


def test_without_a_calendar_nothing_is_looked_at_first(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    none = Calendars(Entries(store), lambda: ZONE, lambda: None)
    assert not CalendarPlans(none, lambda: NOW, ()).is_known()
    store.close()


@pytest.mark.parametrize(
    ("question", "said", "is_near"),
    [
        (f"is the zoo on {LATER:%A}", f"{LATER:%Y}: Zoo trip", False),
        (f"does Ben join the zoo thing on {LATER:%A}?", "Zoo trip", True),
        (f"whens choir after {LATER:%A}", f" {(LATER + timedelta(days=1)).day} ", False),
        ("wheres my dentist", "Gray Street 4", False),
        (f"Wann geht am {LATER:%d.%m.%Y} der Zoo los?", "Zoo trip", True),
    ],
)
def test_events_answer_questions_in_any_words(calendars: Calendars, question: str, said: str, is_near: bool) -> None:
    plans = CalendarPlans(calendars, lambda: NOW, ROUTER.languages.function_words())
    found = plans.answer(question, ROUTER.languages.detect(question)[0])
    assert found is not None and said in found.text and found.is_near == is_near, found


@pytest.mark.parametrize("question", [f"who cooks on {TOMORROW:%A}?", "When is the carnival?", "how tall is the dentist?"])
def test_events_that_are_not_asked_for_answer_nothing(calendars: Calendars, question: str) -> None:
    plans = CalendarPlans(calendars, lambda: NOW, ROUTER.languages.function_words())
    assert plans.answer(question, ROUTER.languages.english) is None


@pytest.mark.parametrize("last", ["what's on today?", f"is the zoo on {LATER:%A}"])
def test_a_day_alone_behind_what_the_calendar_answered_asks_again(calendars: Calendars, entries: Entries, last: str) -> None:
    effects = Effects(ROUTER, entries, lambda: NOW, lambda text: (), calendars)
    asked = (Message("user", last), Message("assistant", "Nothing."))
    plan = effects.plan_dated(Scene("tiny", f"and on {TOMORROW:%A}?", asked))
    assert isinstance(plan, Do) and "Dentist" in plan.then(Outcome(200, "ok", "", data={"schedules": []})).text  # type: ignore[union-attr]
    assert effects.plan_dated(Scene("tiny", "and the soup?", asked)) is None
    other = (Message("user", "who has the key?"), Message("assistant", "Ada."))
    assert effects.plan_dated(Scene("tiny", f"and on {TOMORROW:%A}?", other)) is None
