"""Rows of Markdown tables as sentences."""

from appliance.language.sentences import split_markdown


def test_each_cell_stands_with_the_heading_of_its_column() -> None:
    text = "Before. And more.\n\n| Bed | 2026 | |\n|:--|---|--|\n| A | peas. Then beans | old |\n| B | | |\n\nAfter."
    assert split_markdown(text) == ["Before.", "And more.", "Bed: A; 2026: peas. Then beans; old", "Bed: B", "After."]


def test_lines_with_bars_that_are_no_table_stay_as_they_are() -> None:
    assert split_markdown("| a | b |\n| c | d |") == ["| a | b |", "| c | d |"]
    assert split_markdown("") == []


def test_a_bar_inside_a_cell_and_more_cells_than_headings() -> None:
    assert split_markdown("| a |\n|---|\n| x \\| y | z |") == ["a: x | y; z"]
