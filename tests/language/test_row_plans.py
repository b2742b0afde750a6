"""Rows of notes before a tiny model: answered by the program, with the rows and their source, and no model asked."""

from collections.abc import Iterator, Sequence
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
    "box://notes/repairs.csv": "date,customer,job,price,paid\n2026-11-03,Ann Pell,cables,38.00,yes\n"
    "2026-11-12,Ann Pell,tyre,41.00,no\n2026-11-18,Gita Rao,service,120.00,no\n",
    "box://notes/lamps.md": "# Bike lights\n\n| Model | Lux | Price |\n|---|---|---|\n| Luma | 40 | £34 |\n"
    "| Firefly | 15 | £12 |\n",
    "box://notes/soup.md": "# Soup\n\n- 300 g lentils\n- 2 onions\n",
}


REPAIRS = (
    "date: 2026-11-03; customer: Ann Pell; job: cables; price: 38.00; paid: yes",
    "date: 2026-11-12; customer: Ann Pell; job: tyre; price: 41.00; paid: no",
    "date: 2026-11-18; customer: Gita Rao; job: service; price: 120.00; paid: no",
)
# How near a few words are in meaning, as MiniLM says: a vector each, of as many numbers as there are pairs.
NEAR = [{"brightest", "lux"}, {"cheapest", "price"}, {"pay", "paid"}]


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[float(text.lower() in pair) for pair in NEAR] for text in texts]


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagePlanner]:
    store = new_store(tmp_path_factory.mktemp("rows") / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    for ref, body in NOTES.items():
        entries.set(ref, body, title=ref.rpartition("/")[2].partition(".")[0].title(), writer="folder")
    words = LANGUAGES.function_words(), LANGUAGES.pointing_words(), LANGUAGES.alike_words
    finder = Finder(Search(store, passages), entries, embed, *words)
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
        ("Which repairs did Ann Pell pay?", f"{REPAIRS[0]} [box://notes/repairs.csv]"),
        ("Which repairs are unpaid?", f"- {REPAIRS[1]}\n- {REPAIRS[2]}\n[box://notes/repairs.csv]"),
        ("Who has not paid yet?", f"- {REPAIRS[1]}\n- {REPAIRS[2]}\n[box://notes/repairs.csv]"),
        ("How many repairs are paid?", f"1: {REPAIRS[0]} [box://notes/repairs.csv]"),
        (
            "How much did we earn from repairs in November?",
            f"199 (price) in all:\n- {REPAIRS[0]}\n- {REPAIRS[1]}\n- {REPAIRS[2]}\n[box://notes/repairs.csv]",
        ),
        ("Which light is the brightest?", "Model: Luma; Lux: 40; Price: £34 [box://notes/lamps.md]"),
        ("What is the cheapest light?", "Model: Firefly; Lux: 15; Price: £12 [box://notes/lamps.md]"),
        ("Did Petra ask the insurance?", "Yes, it is ticked: Petra asks the insurance [box://notes/winter.md]"),
        ("Has Karl ordered the gravel?", "Not yet: Karl orders gravel [box://notes/winter.md]"),
        (
            "Wie viel haben wir im Oktober insgesamt für groceries ausgegeben?",
            "Zusammen 547 (amount eur): month: 2026-10; category: groceries; amount eur: 547 [box://notes/budget.csv]",
        ),
    ],
)
def test_a_question_of_rows_is_worked_out_with_its_source(guide: MessagePlanner, question: str, said: str) -> None:
    plan = guide.plan("tiny", [Message("user", question)])
    assert isinstance(plan, Say) and plan.text == said and plan.quoted == (said.rpartition("[")[2].rstrip("]"),)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("How much is that in total?", f"161 (price) in all:\n- {REPAIRS[1]}\n- {REPAIRS[2]}\n[box://notes/repairs.csv]"),
        ("Which is the most expensive?", f"{REPAIRS[2]} [box://notes/repairs.csv]"),
    ],
)
def test_a_question_that_names_nothing_asks_of_the_rows_before(guide: MessagePlanner, question: str, said: str) -> None:
    before = [Message("user", "Which repairs are unpaid?"), Message("assistant", "..."), Message("user", question)]
    plan = guide.plan("tiny", before)
    assert isinstance(plan, Say) and plan.text == said
    alone = guide.plan("tiny", [Message("user", "Who is Gita Rao?"), *before[1:]])
    assert not (isinstance(alone, Say) and alone.text == said)


@pytest.mark.parametrize("question", ["What is the price of a repair for Ann Pell?", "What did Ann Pell say about the tyre?"])
def test_a_row_that_may_be_another_or_says_nothing_of_the_kind_is_no_answer(guide: MessagePlanner, question: str) -> None:
    plan = guide.plan("tiny", [Message("user", question)])
    assert isinstance(plan, Say) and (plan.is_near or "Ann Pell" not in plan.text)


@pytest.mark.parametrize("question", ["How many onions are in the soup?", "When is my next haircut?", "Did Anna ask the bank?"])
def test_a_question_of_something_else_is_not_worked_out(guide: MessagePlanner, question: str) -> None:
    plan = guide.plan("tiny", [Message("user", question)])
    assert not (isinstance(plan, Say) and plan.text.startswith(("Yes", "Not yet", "1:", "2:", "Ingrid")))
