"""What the program answers to questions about fifty notes of a household, before a tiny model: right, near, wrong, nothing.

    python tests/bench/bench_answers.py [--half even|odd] [--show] [--json FILE]

The notes, 200 questions that they answer and 70 that they do not are in `answers.json`, written without knowledge of the program.
The even ones were used to set its thresholds; the odd ones say how well it does. The notes are indexed with the real embedding
model; no language model is asked, for what it would say is not counted. A question is answered when one of its strings is there.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import figures
from bench_hello import EMBEDDING, serving

from appliance.agent.planning.plans import Chat, Do, Grounded, Plan, Say
from appliance.knowledge.search import Search
from appliance.records import Message
from appliance.service import small_models

HERE = Path(__file__).parent
NO_ANSWER = ("I find nothing", "Dazu finde ich nichts", "Je ne trouve rien", "No encuentro nada")


def judge(plan: Plan, held: Sequence[str]) -> str:
    """What a plan comes to: `answer`, `near` or `beside`, "+" where it holds what is looked for, `nothing`, `talk`, `effect`."""
    if isinstance(plan, Do):
        return "effect"
    if isinstance(plan, Chat):
        said, kind = plan.beside, "beside" if plan.beside else "talk"
    elif isinstance(plan, Grounded):
        said, kind = plan.otherwise, "answer"
    else:
        assert isinstance(plan, Say)
        said, kind = plan.text, "near" if plan.is_near else "answer"
    if said.startswith(NO_ANSWER):
        return "nothing"
    if kind == "talk" or not held:
        return kind
    return kind + ("+" if any(text in said.lower() for text in held) else "-")


def measure(half: str, is_shown: bool) -> dict[str, Any]:
    """How many of each, by whether the notes have an answer."""
    given = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
    model = next(EMBEDDING.parent.glob("SmolLM2*.gguf"))
    numbers: dict[str, Any] = {}
    with serving(model, given["notes"]) as core:
        finder = Search(core.store, embed=core.indexer.brief)
        guide = small_models.guide(core.home.root, finder, core.entries, core.models, lambda: "UTC")
        for table in ("questions", "nothing"):
            rows = given[table][{"even": 0, "odd": 1}.get(half, 0) :: 1 if half == "all" else 2]
            counts: Counter[str] = Counter()
            for row in rows:
                plan = guide.plan("tiny", [Message("user", row["q"])])
                kind = judge(plan, row.get("any", ()))
                counts[kind] += 1
                if is_shown:
                    print(f"{kind:9} {row['q']}\n          {getattr(plan, 'text', getattr(plan, 'beside', ''))[:160]!r}")
            numbers[table] = {"of": len(rows), **dict(sorted(counts.items()))}
            print(f"{table}: {numbers[table]}")
    return numbers


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--show", action="store_true", help="each question with what came of it")
    parser.add_argument("--json", default="build/bench-answers.json", metavar="FILE")
    args = parser.parse_args()
    figures.write(args.json, measure(args.half, args.show))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
