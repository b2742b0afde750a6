"""The page of benchmarks is what its numbers give, and each of them stands beside an alternative."""

from pathlib import Path

import benchmark_page
import figures
from benchmark_page import Figure

DOCS = Path(__file__).parents[2] / "docs/background"


def row(*figures: Figure, **more: object) -> dict[str, object]:
    return {"date": "2026-11-24", "machine": "a box", "load": 0.5, "figures": [one.plain() for one in figures], **more}


def test_the_page_is_made_of_its_numbers() -> None:
    numbers = figures.read(DOCS / "benchmarks.json")
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == benchmark_page.page(numbers), "run: make bench"
    assert numbers["rows"] and all(one.get("figures") or one.get("reason") for one in numbers["rows"].values())


def test_a_figure_is_told_with_its_ratio_to_the_alternative() -> None:
    rows = {"queue": row(Figure("claim", "tasks/s", 5400, "huey", 3600, "more"))}
    assert "| queue | claim | 5,400 tasks/s | huey | 3,600 tasks/s | 1.50 | more |" in benchmark_page.page({"rows": rows})


def test_a_row_without_its_alternative_says_why() -> None:
    rows = {"screen": row(reason="pip cannot install it"), "old": row(Figure("x", "s", 1, "y", 0), date="2026-11-20")}
    page = benchmark_page.page({"rows": rows})
    assert "| screen | not measured: pip cannot install it |" in page
    assert "| old (2026-11-20) | x | 1 s | y | 0 s | – | less |" in page


def test_boards_that_were_not_measured_are_told_as_derived() -> None:
    rows = {"hello": row(Figure("tokens of the prompt", "tokens", 300, "alone", 30))}
    page = benchmark_page.page({"rows": rows})
    assert "derived" in page and '| owlbox, "hello" | 300 | 10 s | 75 s | 9 s | 30 s |' in page
    assert (
        "| TinyLlama-1.1B Q8_0, published | 35 | 9 | 10 | 3 |" in page
        and "135M, which is bundled, scaled | 285 | 73 | 81 | 24 |" in page
    )
