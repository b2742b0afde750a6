"""Questions that count, add up, compare and order the rows of notes, and those that must not be taken for them."""

from datetime import date

import pytest

from appliance.language.languages import Languages
from appliance.language.planning import row_plans
from appliance.language.planning.row_plans import RowAnswer, read_request
from appliance.language.tables import RowTable, read_tables

TODAY = date(2026, 11, 28)
MONTHS = {"january": 1, "february": 2, "march": 3, "june": 6, "september": 9, "october": 10, "oktober": 10, "november": 11}


def month_of(word: str) -> int:
    return MONTHS.get(word, 0)


BUDGET = (
    "month,category,amount_eur,note\n2025-10,groceries,999,\n2026-09,groceries,512,\n2026-10,rent,1180,\n"
    "2026-10,groceries,547,\n2026-10,dentist,230,crown\n2026-11,groceries,498,\n"
)
BOOKS = "Name,Author,Status,Rating\nThe Overstory,Powers,Reading,\nPiranesi,Clarke,Finished,★★★★★\nHamnet,O’Farrell,Finished,★★★★\n"
HOUSE = """# Orders

| date | item | price |
|---|---|---|
| 2026-03-02 | lamp | 34 € |
| 2026-06-20 | carpet | 1,240.50 € |
| 2026-10-04 | hinges | 7,20 € |

## Birthdays
- Bea: 6 February
- Ingrid: 30 November
- Otto: 12 March

## To ask before winter
- [x] Petra asks the insurance about the shed
- [ ] Karl orders gravel

## Ingredients
- 3 eggs
- 200 g flour
"""
TABLES: list[RowTable] = [
    *read_tables("box://notes/budget.csv", "", BUDGET),
    *read_tables("box://notes/Reading list.csv", "", BOOKS),
    *read_tables("box://notes/house.md", "House", HOUSE),
]
ALL = Languages()
IGNORED = ALL.function_words()
KINDS = {("books", "Reading list: Name, Author, Status, Rating"): 0.4}


def ask(question: str) -> RowAnswer | None:
    for language in ALL.detect(question):
        request = read_request(question, language, IGNORED, month_of)
        if request is not None:
            return row_plans.answer(
                request, TABLES, TODAY, month_of, lambda noun, kind: KINDS.get((f"{noun.rstrip('s')}s", kind), 0.0)
            )
    return None


@pytest.mark.parametrize(
    ("question", "value", "lines"),
    [
        ("How much did we spend on groceries in October?", "547 (amount eur)",
         ["month: 2026-10; category: groceries; amount eur: 547"]),
        ("What did we spend on groceries in October 2025?", "999 (amount eur)", None),
        ("How much did we spend on groceries in total?", "2,556 (amount eur)", None),
        ("Wie viel haben wir im Oktober insgesamt für groceries ausgegeben?", "547 (amount eur)", None),
        ("What was the most expensive order?", "", ["date: 2026-06-20; item: carpet; price: 1,240.50 €"]),
        ("Which order was the cheapest?", "", ["date: 2026-10-04; item: hinges; price: 7,20 €"]),
        ("What was our last order?", "", ["date: 2026-10-04; item: hinges; price: 7,20 €"]),
        ("What did we order first?", "", ["date: 2026-03-02; item: lamp; price: 34 €"]),
        ("How many orders do we have?", "3", None),
        ("How much were the orders in total?", "1,281.7 €", None),
        ("Whose is the next birthday?", "", ["Ingrid: 30 November"]),
        ("Which books have I finished?", "", ["Name: Piranesi; Author: Clarke; Status: Finished; Rating: ★★★★★",
                                             "Name: Hamnet; Author: O’Farrell; Status: Finished; Rating: ★★★★"]),
        ("How many books have I finished?", "2", None),
        ("Which book has the best rating?", "", ["Name: Piranesi; Author: Clarke; Status: Finished; Rating: ★★★★★"]),
    ],
)  # fmt: skip
def test_rows_are_counted_added_up_compared_and_ordered(question: str, value: str, lines: list[str] | None) -> None:
    found = ask(question)
    assert found is not None and found.value == value
    assert lines is None or found.lines == lines


@pytest.mark.parametrize(
    ("question", "is_ticked"), [("Did Petra ask the insurance?", True), ("Has Karl ordered the gravel?", False)]
)
def test_a_ticked_box_says_yes(question: str, is_ticked: bool) -> None:
    found = ask(question)
    assert found is not None and found.is_ticked is is_ticked


@pytest.mark.parametrize(
    "question",
    [
        "How many eggs do I need for the apple cake?",
        "When is the next train to Berlin?",
        "What is the next step?",
        "How many tasks have I finished?",
        "How many stairs are there to the attic?",
        "When is my next haircut?",
        "Which bus goes to the clinic?",
        "What is the most beautiful bird?",
        "How much is the carpet?",
        "Did Anna ask the bank?",
        "Is the front door locked?",
        "How much did we spend on holidays?",
        "How much did we spend on groceries in June?",
        "What was the last thing that Petra said?",
        "How much do I earn in total?",
        "Who is the oldest president?",
    ],
)
def test_a_question_about_something_else_gets_no_rows(question: str) -> None:
    assert ask(question) is None


ORDERS = read_tables(
    "box://notes/orders.csv",
    "orders.csv",
    "no,customer,pieces,price,paid\n7,Morgenrot,24,336,yes\n8,Ines Faro,1,78,no\n9,Linde,60,1140,deposit\n10,Ines Faro,6,66,no\n",
)


@pytest.mark.parametrize(
    ("question", "value", "numbers"),
    [
        ("What's still unpaid?", "", ["8", "9", "10"]),
        ("Who hasn't paid?", "", ["8", "9", "10"]),
        ("Which orders are paid?", "", ["7"]),
        ("total of Ines' orders", "144 (price)", ["8", "10"]),
        ("How many Ines orders are there?", "2", ["8", "10"]),
        ("cheapest order", "", ["10"]),
    ],
)
def test_orders_are_chosen_by_what_is_paid_and_whose_they_are(question: str, value: str, numbers: list[str]) -> None:
    request = read_request(question, ALL.english, IGNORED, month_of)
    assert request is not None
    near = {("cheapest", "price"): 0.5}
    found = row_plans.answer(request, ORDERS, TODAY, month_of, lambda a, b: near.get((a, b), 0.0))
    assert found is not None and found.value == value
    assert [row.cells[0] for row in found.rows] == numbers


CARDS = "## Lena Brandt\nPhone (cell): +49 151 2233\nBirthday: 1988-03-07\n\n## Tobi Reuter\nBirthday: 1995-12-23\nNote: wasps\n"


@pytest.mark.parametrize("question", ["Whose birthday is next?", "Who has the next birthday?", "When is the next birthday?"])
def test_the_next_birthday_of_contacts(question: str) -> None:
    request = read_request(question, ALL.english, IGNORED, month_of)
    assert request is not None
    months = {**MONTHS, "december": 12}
    tables = read_tables("box://people/cards.vcf", "cards.vcf", CARDS)
    found = row_plans.answer(request, tables, TODAY, lambda word: months.get(word, 0), lambda a, b: 0.0)
    assert found is not None and found.lines == ["Tobi Reuter: Birthday: 1995-12-23; Note: wasps"]


def test_two_tables_that_could_both_be_meant_say_nothing() -> None:
    twice = [*TABLES, *read_tables("box://notes/orders-2.md", "Orders", "| item | price |\n|--|--|\n| a | 1 € |\n| b | 2 € |")]
    request = read_request("How many orders do we have?", ALL.english, IGNORED, month_of)
    assert request is not None
    assert row_plans.answer(request, twice, TODAY, month_of, lambda a, b: 0.0) is None


@pytest.mark.parametrize(
    ("question", "value"), [("groceries in october", "547"), ("dentist october 2026", "230"), ("what did we eat in october", "")]
)
def test_a_thing_and_a_month_are_the_sum_of_their_rows(question: str, value: str) -> None:
    found = ask(question)
    assert (found.value.split(" ")[0] if found is not None else "") == value


def test_columns_of_days_and_of_names_with_a_number_are_not_added_up() -> None:
    goods = "| thing | price until |\n|---|---|\n| washing machine | May 2028 |\n| fridge | Sept 2026 |\n| oven | Jan 2023 |\n"
    plots = "plot,name,joined\n19A,Maureen,2004\n19B,Joe,2011\n20,Samir,2022\n"
    for question, ref, text in (
        ("how much was the washing machine", "box://goods.md", goods),
        ("who has not paid for their plot", "box://plots.csv", plots),
        ("how much in total for the plots", "box://plots.csv", plots),
    ):
        request = read_request(question, ALL.english, ALL.english.function_words, month_of)
        tables = read_tables(ref, ref, text)
        assert tables and (request is None or row_plans.answer(request, tables, TODAY, month_of, lambda one, other: 0.0) is None)
