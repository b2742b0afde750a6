"""Tables, lists and lines of notes as rows."""

from datetime import date

import pytest

from appliance.language.tables import Day, TableRow, day_of, number_of, parse_number, read_tables

MONTHS = {"march": 3, "mar": 3, "märz": 3, "february": 2}


def month_of(word: str) -> int:
    return MONTHS.get(word, 0)


def test_a_file_of_values_is_one_table_with_its_columns() -> None:
    (found,) = read_tables("box://notes/budget.csv", "", "\ufeffmonth;category;amount\n2026-10;rent;1.180,50\n2026-10;food;98,20\n")
    assert (found.title, found.columns) == ("budget", ("month", "category", "amount"))
    assert found.rows[0] == TableRow(("2026-10", "rent", "1.180,50"), "month: 2026-10; category: rent; amount: 1.180,50")
    assert (found.numeric(), found.dated(month_of)) == ([2], [0])


def test_a_markdown_table_a_list_and_a_log_are_tables_below_their_headings() -> None:
    text = (
        "# Orders\n\n| item | price |\n|---|---|\n| lamp | **34 €** |\n\n## Open\n- [x] ask the [shop](http://x)\n- [ ] pay: 20\n"
    )
    text += "\nLog\n2026-03-14 sowed\n2026-05-16: planted 9\n"
    orders, boxes, log = read_tables("box://notes/shop-list.md", "Shop", text)
    assert (orders.title, orders.columns, orders.rows[0].cells) == ("Orders Shop shop list", ("item", "price"), ("lamp", "34 €"))
    assert [(row.line, row.is_ticked) for row in boxes.rows] == [("ask the shop", True), ("pay: 20", False)]
    assert boxes.rows[1].cells == ("pay", "20") and boxes.title.startswith("Open")
    assert [row.cells for row in log.rows] == [("2026-03-14", "sowed"), ("2026-05-16", "planted 9")]


def test_one_item_and_prose_are_no_table() -> None:
    assert read_tables("box://notes/a.md", "A", "Some words, with a comma, and more.\n- one item\n\nMore, and more.") == []


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1,610", 1610),
        ("1.610,50", 1610.5),
        ("3,000", 3000),
        ("2.3", 2.3),
        ("0.125", 0.125),
        ("1 180", 1180),
        ("-4,5", -4.5),
        ("12", 12),
    ],
)
def test_numbers_are_read_as_people_write_them(written: str, number: float) -> None:
    assert parse_number(written) == number


@pytest.mark.parametrize(
    ("cell", "number"),
    [("34 €", 34), ("€ 34.50", 34.5), ("850 mg", 850), ("★★★", 3), ("3 to 5", None), ("bed 2 and more", None), ("", None)],
)
def test_a_cell_is_a_number_only_as_a_whole(cell: str, number: float | None) -> None:
    assert number_of(cell) == number


@pytest.mark.parametrize(
    ("cell", "day"),
    [
        ("2026-10", Day(10, None, 2026)),
        ("2026-10-11", Day(10, 11, 2026)),
        ("3.12.2026", Day(12, 3, 2026)),
        ("on 6. März", Day(3, 6, None)),
        ("March 6th, 2027", Day(3, 6, 2027)),
        ("6 February (Bea)", Day(2, 6, None)),
        ("31 February", None),
        ("12 eggs", None),
    ],
)
def test_days_are_read_as_notes_have_them(cell: str, day: Day | None) -> None:
    assert day_of(cell, month_of) == day


def test_a_day_without_a_year_comes_back() -> None:
    assert Day(2, 6, None).next(date(2026, 3, 5)) == date(2027, 2, 6)
    assert Day(3, 6, None).next(date(2026, 3, 5)) == date(2026, 3, 6)
    assert Day(3, 6, None).first() is None
