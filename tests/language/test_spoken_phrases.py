"""What the program itself says to a person is complete in the four languages of the first questions, and has the same gaps to fill.

Phrases that only help to read a request, or that only a model is sent, may be left out; each is named here with its reason. Every
phrase is used somewhere. Italian is a small file: what it lacks is said in English, as its first line says.
"""

import re
import tomllib
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest

from appliance.language.languages import Languages, read_shipped, shipped_names
from appliance.language.planning.plans import Say, Scene
from appliance.language.planning.reminders_and_events import Reminders
from appliance.language.router import Router
from appliance.language.times.reductions import STEP

APPLIANCE = Path(__file__).parents[2] / "appliance"
INTERVIEW = tomllib.loads((resources.files("appliance") / "channels" / "interview.toml").read_text(encoding="utf-8"))
COMPLETE = ("de", "en", "es", "fr")
MAY_BE_ENGLISH = {
    "hello": "no sentence of the other files has this intent: theirs is `greeting`",
    "at_time": "how a time is glued to a task before it is read again; without it as it stands",
    "to_do": "how a task is glued to a time before it is read again; without it as it stands",
    "units_of": "a pattern of questions about units; other languages need none",
    "polite": "an instruction to a model that knows English alone",
    "spelling": "an instruction to a model that knows English alone",
    "politely": "a rewriting of an English sentence",
    "politely_not": "a rewriting of an English sentence",
    "refusing": "a rewriting of an English sentence",
}
NOT_ENGLISH = {"no_talk", "no_world"}  # what a model that knows English alone says in another language
GAP = re.compile(r"\{\w+\}")
PHRASES = {name: read_shipped(name)["phrases"] for name in shipped_names()}


def test_the_languages_of_the_first_questions_are_those_that_are_complete() -> None:
    assert tuple(sorted(name for name, table in INTERVIEW.items() if isinstance(table, dict))) == COMPLETE


@pytest.mark.parametrize("name", [one for one in COMPLETE if one != "en"])
def test_every_phrase_that_a_person_reads_is_there(name: str) -> None:
    assert set(PHRASES["en"]) - set(PHRASES[name]) <= set(MAY_BE_ENGLISH)
    assert set(PHRASES[name]) - set(PHRASES["en"]) == NOT_ENGLISH
    assert set(INTERVIEW[name]) == set(INTERVIEW["en"])


@pytest.mark.parametrize("name", shipped_names())
def test_phrases_have_the_gaps_of_the_english_ones(name: str) -> None:
    gaps = {key: set(GAP.findall(text)) for key, text in PHRASES[name].items() if key not in NOT_ENGLISH}
    assert gaps == {key: set(GAP.findall(PHRASES["en"][key])) for key in gaps}
    said = {key: set(GAP.findall(str(text))) for key, text in INTERVIEW.get(name, {}).items()}
    assert said == {key: set(GAP.findall(str(INTERVIEW["en"][key]))) for key in said}


@pytest.mark.parametrize("name", [one for one in COMPLETE if one != "en"])
def test_no_phrase_of_another_language_is_the_english_one(name: str) -> None:
    same = {key for key, text in PHRASES[name].items() if text == PHRASES["en"].get(key) and re.search(r"\w", GAP.sub("", text))}
    assert same <= {"minute_words"}  # "minute minutes" is French as well


def test_every_english_phrase_is_used() -> None:
    sources = " ".join(path.read_text() for path in sorted(APPLIANCE.glob("language/**/*.py")))
    intents = {key for name in shipped_names() for key in read_shipped(name)["sentences"]}
    made = re.compile(r"(sure|rows|units)_\w+|(week|day|hour|minute)_words|months|weekdays")
    unread = [key for key in PHRASES["en"] if key not in intents and not made.fullmatch(key)]
    used = r"[\"']{}[\"']|UnclearTime\(\s*[^()]*[\"']{}[\"']"
    unused = {key for key in unread if not re.search(used.format(key, key.removeprefix("time_")), sources)}
    assert unused == set()


ROUTER = Router(Languages(), lambda texts: ())
NOW = datetime(2026, 11, 24, 9, 5, tzinfo=UTC)
REFUSED = {
    "de": "erinnere mich gestern um 9 an den Müll; erinnere mich am 31. Februar an die Miete; "
    "erinnere mich um 25 Uhr an die Katze; "
    "erinnere mich am Montag und Dienstag um 9 an den Müll; erinnere mich zweimal am Tag um 8, 12 und 20 Uhr an die Tropfen; "
    "erinnere mich morgn um 9 an den Zahnarzt; erinnere mich am 3/4 an den Kuchen; "
    "erinnere mich um Mitternacht am 3. März an den Ofen",
    "fr": "rappelle-moi hier à 9 h de payer; rappelle-moi le 31 février de payer; "
    "rappelle-moi lundi et mardi à 9 h de payer; rappelle-moi le 3/4 de faire le gâteau; rappelle-moi demian à 9 h de payer",
    "es": "recuérdame ayer a las 9 pagar; recuérdame el 31 de febrero pagar; recuérdame a las 25 llamar a Ana; "
    "recuérdame el lunes y el martes a las 9 pagar; recuérdame el 3/4 hacer la tarta; recuérdame mañaan a las 9 pagar",
}


@pytest.mark.parametrize(("name", "said"), [(name, one) for name, all_said in REFUSED.items() for one in all_said.split("; ")])
def test_a_time_that_is_not_understood_is_refused_in_the_language_of_the_request(name: str, said: str) -> None:
    intent = ROUTER.cue(said)
    assert intent is not None and intent.language.name == name
    plan = Reminders(ROUTER, lambda: NOW, (), lambda text: [], lambda text: []).set(Scene("tiny", said, ()), intent)
    assert isinstance(plan, Say)
    steps = {
        one: {text.partition(STEP)[2].partition("{")[0] for key, text in PHRASES[one].items() if STEP in text} for one in COMPLETE
    }
    assert {one for one, given in steps.items() if any(step in plan.text for step in given)} == {name}


@pytest.mark.parametrize("name", COMPLETE)
def test_what_is_said_of_a_time_has_a_next_step(name: str) -> None:
    assert all(text.count(STEP) == 1 for key, text in PHRASES[name].items() if key.startswith("time_") and key != "time_in")
