"""A reminder so long before something that the notes date, or that was just answered: never at another day than that."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.planning.plans import Do, Plan, Say
from appliance.language.program_or_model import MessagePlanner
from appliance.language.router import Router
from appliance.records import Message, Outcome, ThreadState

NOTES = {
    "box://notes/chor.md": "# Chor\n\nKonzert am 19. Dezember um 17 Uhr, Einsingen 15:45.\nProben donnerstags 19:30.\n",
    "box://notes/arzt.md": "# Gesundheit\n\nZahnarzt: Termin 2. Dezember 2026, 8:20 Uhr. Letzte Impfung: 14.10.2026.\n",
    "box://notes/people.md": "# People\n\nLena's birthday is 30 August, Omar's 2 February 1981.\n",
    "box://notes/trip.md": "# Lisbon\n\nFlight on 12 February at 06:40, back on the 17th.\n",
    "box://notes/market.md": "# Market\n\nThe market is on 5 May.\nThe market is on 6 June.\n",
    "box://notes/work.md": "# Work\n\nThe report is due on 11 December. Standup at 9:15.\n",
}
DENTIST = "Zahnarzt: Termin 2. Dezember 2026, 8:20 Uhr."


@pytest.fixture(scope="module", name="planner")
def a_planner(tmp_path_factory: pytest.TempPathFactory) -> MessagePlanner:
    store = new_store(Path(tmp_path_factory.mktemp("home")) / "owlbox.db")
    passages = Passages(store)
    entries, languages = Entries(store, passages.index), Languages()
    for ref, body in NOTES.items():
        entries.set(ref, body, title=body.split("\n")[0].strip("# "), writer="folder")
    finder = Finder(Search(store, passages), entries, lambda texts: (), languages.function_words(), languages.pointing_words())
    return MessagePlanner(Router(languages, lambda texts: ()), finder, entries, lambda: datetime(2026, 11, 29, 7, tzinfo=UTC))


def made(plan: Plan) -> tuple[str, str] | None:
    """What is reminded of and when; None where it is asked back."""
    if not isinstance(plan, Do):
        assert isinstance(plan, Say) and plan.text
        return None
    assert plan.call.name == "remind"
    return plan.call.arguments["text"], plan.call.arguments["when"][:16]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("remind me the day before the report to print it", ("print it", "2026-12-10T09:00")),
        ("remind me to print it two days before the report", ("print it", "2026-12-09T09:00")),
        ("remind me the evening before the flight to pack", ("pack", "2027-02-11T18:00")),
        ("remind me two hours before the flight", ("the flight", "2027-02-12T04:40")),
        ("remind me a week before Omar's birthday", ("Omar's birthday", "2027-01-26T09:00")),
        ("remind me a week before Lena's birthday", ("Lena's birthday", "2027-08-23T09:00")),
        ("Erinnere mich eine Stunde vor dem Konzert an den Schal", ("den Schal", "2026-12-19T16:00")),
        ("erinner mich eine Stunde vor dem Einsingen", ("dem Einsingen", "2026-12-19T14:45")),
        ("erinner mich am Abend vor dem Konzert", ("dem Konzert", "2026-12-18T18:00")),
        ("Rappelle-moi une heure avant Einsingen", ("Einsingen", "2026-12-19T14:45")),
        ("recuérdame dos días antes del Konzert", ("Konzert", "2026-12-17T09:00")),
        ("remind me an hour before the report", None),  # of which hour of that day?
        ("remind me a day before the market", None),  # there are two
        ("remind me a day before my wedding", None),
        ("erinner mich eine Stunde vor der Probe", None),  # each Thursday
        ("erinner mich einen Tag vor der Impfung", None),  # it is over
    ],
)
def test_what_the_notes_date_is_counted_from_and_nothing_else(
    planner: MessagePlanner, said: str, wanted: tuple[str, str] | None
) -> None:
    assert made(planner.plan("tiny", [Message("user", said)])) == wanted


def test_the_answer_shows_from_which_sentence_it_was_counted(planner: MessagePlanner) -> None:
    plan = planner.plan("tiny", [Message("user", "remind me the day before the report")])
    assert isinstance(plan, Do)
    told = plan.then(Outcome(200, "ok", "Reminder 1"))
    assert isinstance(told, Say) and told.quoted == ("box://notes/work.md",), "what it quotes is known, with its marks"
    assert told.text == "Reminder 1\n\nThe report is due on 11 December. [box://notes/work.md]"


@pytest.mark.parametrize(
    ("question", "answer", "said", "when"),
    [
        ("Quand est mon rendez-vous ?", DENTIST, "rappelle-moi une demi-heure avant", "2026-12-02T07:50"),
        ("When is the dentist?", DENTIST, "remind me two hours before", "2026-12-02T06:20"),
        (
            "When is Omar's birthday?",
            "Lena's birthday is 30 August, Omar's 2 February 1981.",
            "remind me a day before",
            "2027-02-01T09:00",
        ),
        (
            "When does it leave?",
            "Flight on 12 February at 06:40, back on the 17th.",
            "remind me an hour before",
            "2027-02-12T05:40",
        ),
        ("Wann ist Probe?", "Proben donnerstags 19:30.", "erinner mich eine Stunde vorher", None),
        ("Wann war die Impfung?", "Letzte Impfung: 14.10.2026.", "erinner mich einen Tag vorher", None),
    ],
)
def test_a_day_that_was_answered_is_read_in_the_language_of_the_note(
    planner: MessagePlanner, question: str, answer: str, said: str, when: str | None
) -> None:
    before = Message("assistant", answer, state=ThreadState(quoted=("box://notes/a.md",), said=answer))
    found = made(planner.plan("tiny", [Message("user", question), before, Message("user", said)]))
    assert found == (when and (answer.rstrip("."), when))
