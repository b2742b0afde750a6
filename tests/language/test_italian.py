"""A fifth language made of a file alone: Italian reads times, reminders, notes, questions and courtesies."""

import re
from datetime import datetime
from pathlib import Path

import pytest
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.planning.plans import Do, Say
from appliance.language.program_or_model import MessagePlanner
from appliance.language.router import COURTESIES, ORDER, Router
from appliance.records import Message

LANGUAGES = Languages()
ROUTER = Router(LANGUAGES, lambda texts: ())
NOW = datetime(2026, 3, 5, 12, 0)  # a Thursday
NOTES = {
    "garage.md": ("Garage", "Il codice del garage è 4471. Ada, la vicina, ha la chiave di riserva.\n"),
    "casa.md": ("Casa", "La valvola dell'acqua sta in cantina. La caldaia è stata controllata il 12 maggio.\n"),
}


@pytest.fixture
def planner(tmp_path: Path) -> MessagePlanner:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    for name, (title, body) in NOTES.items():
        entries.set(f"box://notes/{name}", f"# {title}\n\n{body}", title=title, writer="folder")
    finder = Finder(
        Search(store, passages),
        entries,
        lambda texts: (),
        LANGUAGES.function_words(),
        LANGUAGES.pointing_words(),
        LANGUAGES.alike_words,
    )
    return MessagePlanner(ROUTER, finder, entries, lambda: NOW)


@pytest.mark.parametrize(
    ("said", "when", "text"),
    [
        ("Ricordami domani alle 9 di chiamare l'idraulico", "2026-03-06T09:00", "chiamare l'idraulico"),
        ("ricordami tra 20 minuti di togliere il pane", "2026-03-05T12:20", "togliere il pane"),
        ("Ricordami stasera alle 8 di annaffiare le piante", "2026-03-05T20:00", "annaffiare le piante"),
        ("Ricordami venerdì alle 18:30 di prendere Marco", "2026-03-06T18:30", "prendere Marco"),
        ("per favore ricordami ogni lunedì alle 7 di portare fuori il vetro", "7", "portare fuori il vetro"),
        ("Ricordami il 12 aprile alle 10 di pagare l'affitto", "2026-04-12T10:00", "pagare l'affitto"),
        ("Ricordami dopodomani a mezzogiorno di chiamare Ada", "2026-03-07T12:00", "chiamare Ada"),
    ],
)
def test_reminders_are_read_with_their_times(planner: MessagePlanner, said: str, when: str, text: str) -> None:
    plan = planner.plan("tiny", [Message("user", said)])
    assert isinstance(plan, Do) and plan.call.name == "remind", plan
    assert plan.call.arguments["text"] == text
    assert when in plan.call.arguments["when"]


@pytest.mark.parametrize(
    ("said", "intent"),
    [
        ("che ore sono?", "time"),
        ("che giorno è oggi?", "date"),
        ("aggiungi un'attività: pulire la grondaia", "task"),
        ("Ricorda che la chiave di riserva ce l'ha Ada", "remember"),
        ("scrivi una nota: la tenda è in cantina", "note"),
        ("quali attività ho da fare?", "tasks"),
        ("i miei promemoria", "reminders"),
        ("metti un timer di 10 minuti", "timer"),
        ("buongiorno", "greeting"),
        ("grazie mille", "thanks"),
        ("buonanotte", "night"),
        ("come stai?", "how"),
        ("chi sei?", "who"),
    ],
)
def test_requests_and_courtesies_are_understood(said: str, intent: str) -> None:
    found = ROUTER.cue(said, (*COURTESIES, *ORDER))
    assert found is not None and (found.name, found.language.name) == (intent, "it")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Qual è il codice del garage?", "4471"),
        ("Chi ha la chiave di riserva?", "Ada"),
        ("Dove sta la valvola dell'acqua?", "cantina"),
        ("Quando è stata controllata la caldaia?", "12 maggio"),
    ],
)
def test_questions_are_answered_from_notes(planner: MessagePlanner, question: str, answer: str) -> None:
    said = planner.plan("tiny", [Message("user", question)])
    assert isinstance(said, Say) and answer in said.text


def test_what_the_notes_do_not_say_is_said_so_in_italian(planner: MessagePlanner) -> None:
    said = planner.plan("tiny", [Message("user", "Qual è la password del wifi?")])
    assert isinstance(said, Say) and "non trovo niente" in said.text


def test_no_line_of_code_knows_the_language() -> None:
    """Neither its name nor the path of its file stands in a module."""
    sources = [path.read_text("utf-8") for path in (Path(__file__).parents[2] / "appliance").rglob("*.py")]
    assert not [one for one in sources if re.search(r"\bit\.toml\b|\"it\"|italian", one, re.IGNORECASE)]
