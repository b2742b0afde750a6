"""docs/background/benchmarks.md, made of the numbers of docs/background/benchmarks.json: no number of the page is typed by hand."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

Better = Literal["less", "more"]


class Board(Struct, frozen=True):
    """Tokens a second that somebody has published for a model on a board: read and written, None where nobody says."""

    name: str
    read: float
    written: float | None


# Qwen3.5-2B Q4_K_M, as the makers of Potato OS publish it; TinyLlama-1.1B Q8_0 under llama.cpp of 26 March 2024, from SOURCE.
LARGE = (Board("Raspberry Pi 5", 30, 7.8), Board("Raspberry Pi 4", 4, None))
SMALL = (Board("Raspberry Pi 5", 35, 9), Board("Raspberry Pi 4", 10, 3))
SOURCE = "https://justine.lol/matmul/"
SMALL_PARAMETERS = 1.1e9
SCALED = {"SmolLM2-135M, which is bundled": 0.135e9, "a model of 0.5 billion": 0.494e9}
# Tokens of prompt that others send for "hi", measured on 2026-11-21.
OTHER_PROMPTS = {"pi 0.85": 1223, "nanobot 0.3": 6858, "hermes 0.19": 11104, "openclaw 2026.9": 13397}

HEAD = """# Benchmarks

Written by `make bench` from [benchmarks.json](benchmarks.json), which it measured; `make bench ONLY=queue,sandbox` measures some
rows anew. Each figure was taken beside its alternative in the same run, on the same machine and files. The ratio is ours over
theirs; where less is better, one below 1 says that ours takes less. Times of a busy machine say little, their ratios more;
CPU seconds are those of the process.

"""
DERIVED = """
## On a Raspberry Pi, derived

Nothing was measured on one. Published rates of a model and the tokens of a prompt, none of which was evaluated before, give the
seconds until the first word. The rates are those of Qwen3.5-2B Q4_K_M, as the makers of Potato OS publish them, and those of
TinyLlama-1.1B Q8_0 under llama.cpp of 26 March 2024, from Justine Tunney's [LLaMA Now Goes Faster on CPUs]({source}). The
assistants beside it are told the same; their prompts were measured on 2026-11-21.

| asked | tokens | 2 billion, Raspberry Pi 5 | Raspberry Pi 4 | 1.1 billion, Raspberry Pi 5 | Raspberry Pi 4 |
|---|---|---|---|---|---|
"""
SCALES = """
Smaller models are taken to be as much quicker as they have fewer parameters. That is the most that can be hoped for, because what
a turn takes besides does not shrink with them. `owlbox model bench` measures what a board really does. Have you one? Report what
this prints, and the board gets its line here:

```
ssh admin@owlbox.local 'tr -d "\\0" </proc/device-tree/model; echo; owlbox model bench'
```

| tokens a second | {boards} |
|---|---|---|---|---|
"""


class Figure(Struct, frozen=True):
    """One measured number beside that of an alternative."""

    what: str
    unit: str
    ours: float
    beside: str
    theirs: float
    better: Better = "less"

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def page(numbers: Mapping[str, Any]) -> str:
    """The whole page."""
    rows = numbers["rows"]
    return HEAD + when(rows) + "\n" + table(rows) + derived(rows)


def when(rows: Mapping[str, Any]) -> str:
    """Where and when; a row that was measured on another day or machine says so itself."""
    date, machine = newest(rows)
    loads = [row["load"] for row in rows.values() if (row["date"], row["machine"]) == (date, machine)]
    return f"Measured {date} on {machine}, at loads from {min(loads):g} to {max(loads):g}.\n"


def newest(rows: Mapping[str, Any]) -> tuple[str, str]:
    return max((row["date"], row["machine"]) for row in rows.values())


def table(rows: Mapping[str, Any]) -> str:
    """The figures, a line each."""
    lines = ["| row | what | owlbox | beside | takes | ratio | better |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        place = "" if (row["date"], row["machine"]) == newest(rows) else f" ({row['date']})"
        if "reason" in row:
            lines.append(f"| {name}{place} | not measured: {row['reason'].replace('|', '/')} | | | | | |")
        for number, one in enumerate(row.get("figures", ())):
            head = f"{name}{place}" if not number else ""
            sizes = (shown(one["ours"], one["unit"]), one["beside"], shown(one["theirs"], one["unit"]))
            lines.append(f"| {' | '.join((head, one['what'], *sizes, ratio(one), one['better']))} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def ratio(figure: Mapping[str, Any]) -> str:
    return f"{figure['ours'] / figure['theirs']:.2f}" if figure["theirs"] else "–"


def shown(number: float, unit: str) -> str:
    """A number with three digits that count, and its unit."""
    digits = 0 if number >= 100 or number == int(number) else 1 if number >= 10 else 2 if number >= 1 else 3
    return f"{number:,.{digits}f} {unit}".strip().replace(" /s", "/s")


def derived(rows: Mapping[str, Any]) -> str:
    """Seconds until the first word on boards that were not measured; nothing when the tokens of a prompt are not known."""
    known = [one for one in rows.get("hello", {}).get("figures", ()) if one["unit"] == "tokens"]
    if not known:
        return ""
    prompts = {'owlbox, "hello"': known[0]["ours"], **{f'{name}, "hi"': tokens for name, tokens in OTHER_PROMPTS.items()}}
    lines = []
    for name, tokens in prompts.items():
        seconds = " | ".join(f"{tokens / board.read:,.0f} s" for board in (*LARGE, *SMALL))
        lines.append(f"| {name} | {tokens:,.0f} | {seconds} |\n")
    boards = " | ".join(f"{board.name}, {verb}" for board in SMALL for verb in ("read", "written"))
    rates = [f"| TinyLlama-1.1B Q8_0, published | {rates_of(SMALL_PARAMETERS)} |\n"]
    rates += [f"| {name}, scaled | {rates_of(parameters)} |\n" for name, parameters in SCALED.items()]
    return DERIVED.format(source=SOURCE) + "".join(lines) + SCALES.format(boards=boards) + "".join(rates)


def rates_of(parameters: float) -> str:
    """Tokens a second of a model of that size on each board, read and written, scaled from those of the published one."""
    rates = [rate for board in SMALL for rate in (board.read, board.written) if rate is not None]
    return " | ".join(f"{rate * SMALL_PARAMETERS / parameters:,.0f}" for rate in rates)
