"""Rows of notes before a tiny model: answered by the program, with the rows and their source, and no model asked."""

from collections.abc import Iterator
from datetime import datetime

import pytest
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.planning.plans import Say
from appliance.language.program_or_model import MessagePlanner
from appliance.language.router import Router
from appliance.records import Message

LANGUAGES = Languages()
NOTES = {
    "box://notes/budget.csv": "month,category,amount_eur\n2026-09,groceries,512\n2026-10,groceries,547\n2026-10,rent,1180\n",
    "box://notes/birthdays.md": "# Birthdays\n\n- Bea: 6 February\n- Ingrid: 30 November\n",
    "box://notes/family.md": "# Family\n\nBirthdays:\n- Otto: 12 March 1984\n- Mina: 2 December 2019\n",
    "box://notes/bins.md": "# Bins\n\n- 2026-11-24: glass\n- 2026-12-01: paper\n",
    "box://notes/orders.md": "# Orders\n\n| date | item | price |\n|---|---|---|\n"
    "| 2026-03-02 | lamp | 34 € |\n| 2026-06-20 | carpet | 240 € |\n",
    "box://notes/winter.md": "# Before winter\n\n- [x] Petra asks the insurance\n- [ ] Karl orders gravel\n",
    "box://notes/soup.md": "# Soup\n\n- 300 g lentils\n- 2 onions\n",
}


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagePlanner]:
    store = new_store(tmp_path_factory.mktemp("rows") / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    for ref, body in NOTES.items():
        entries.set(ref, body, title=ref.rpartition("/")[2].partition(".")[0].title(), writer="folder")
    words = LANGUAGES.function_words(), LANGUAGES.pointing_words(), LANGUAGES.alike_words
    finder = Finder(Search(store, passages), entries, lambda texts: (), *words)
    yield MessagePlanner(Router(LANGUAGES, lambda texts: ()), finder, entries, lambda: datetime(2026, 11, 28, 9, 5))
    store.close()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "How much did we spend on groceries in October?",
            "547 (amount eur) in all: month: 2026-10; category: groceries; amount eur: 547 [box://notes/budget.csv]",
        ),
        ("What was the most expensive order?", "date: 2026-06-20; item: carpet; price: 240 € [box://notes/orders.md]"),
        ("Whose is the next birthday?", "Ingrid: 30 November [box://notes/birthdays.md]"),
        ("Whose birthday comes next?", "Ingrid: 30 November [box://notes/birthdays.md]"),
        ("Who had the last birthday?", "Otto: 12 March 1984 [box://notes/family.md]"),
        ("Which bin is next?", "2026-12-01: paper [box://notes/bins.md]"),
        (
            "How much was rent in October?",
            "1,180 (amount eur) in all: month: 2026-10; category: rent; amount eur: 1180 [box://notes/budget.csv]",
        ),
        (
            "How many orders do we have?",
            "2:\n- date: 2026-03-02; item: lamp; price: 34 €\n- date: 2026-06-20; item: carpet; price: 240 €\n[box://notes/orders.md]",
        ),
        ("Did Petra ask the insurance?", "Yes, it is ticked: Petra asks the insurance [box://notes/winter.md]"),
        ("Has Karl ordered the gravel?", "Not yet: Karl orders gravel [box://notes/winter.md]"),
        (
            "Wie viel haben wir im Oktober insgesamt für groceries ausgegeben?",
            "Zusammen 547 (amount eur): month: 2026-10; category: groceries; amount eur: 547 [box://notes/budget.csv]",
        ),
    ],
)
def test_a_question_of_rows_is_worked_out_with_its_source(guide: MessagePlanner, question: str, said: str) -> None:
    assert guide.plan("tiny", [Message("user", question)]) == Say(said)


@pytest.mark.parametrize("question", ["How many onions are in the soup?", "When is my next haircut?", "Did Anna ask the bank?"])
def test_a_question_of_something_else_is_not_worked_out(guide: MessagePlanner, question: str) -> None:
    plan = guide.plan("tiny", [Message("user", question)])
    assert not (isinstance(plan, Say) and plan.text.startswith(("Yes", "Not yet", "1:", "2:", "Ingrid")))
