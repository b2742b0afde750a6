"""What the program answers to questions about the notes of a household, before a tiny model: right, near, wrong, nothing.

    python tests/bench/bench_answers.py [--set bees|boat|coast] [--half even|odd] [--show] [--json FILE]

Three households, written without knowledge of the program. `answers_boat.json`: 50 notes, 200 questions that they answer and
70 that they do not. `answers_bees.json`: 53 notes with more lists, tables and headings, some in German or French, 129 questions
as people type them, follow-ups among them, 50 that come near and have no answer, 20 about the world. The even ones were used to
set thresholds; the odd ones say how well the program does. `answers_coast.json`: 27 files with tables and mail, 35 and 15, none of
them used. The notes are indexed with the real embedding model; no language model is asked, for what it would say is not counted.
A question is answered when one of its strings (`any`) or all (`all`) are there.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import figures
from bench_hello import EMBEDDING, serving

from appliance.knowledge.search import Search
from appliance.language.planning.plans import Do, Grounded, ModelTalk, Plan, Say
from appliance.language.work_planner import WorkPlanner
from appliance.records import Message
from appliance.service.parts.agent import build_guide

HERE = Path(__file__).parent
NO_WORLD = ("Das kann ich mit diesem Modell", "Avec ce modèle", "Con este modelo")  # the model knows English only
NO_ANSWER = ("I find nothing", "Ich finde nichts dazu", "Je ne trouve rien", "No encuentro nada")


def said_by(plan: Plan) -> str:
    """What a person would read of the program."""
    if isinstance(plan, ModelTalk):
        return plan.beside
    return plan.otherwise if isinstance(plan, Grounded) else getattr(plan, "text", "")


def judge(plan: Plan, row: Mapping[str, Any]) -> str:
    """What a plan comes to: `answer`, `near` or `beside`, "+" where it holds what is looked for, `nothing`, `talk`, `effect`."""
    if isinstance(plan, Do):
        return "effect"
    said = said_by(plan).lower()
    if isinstance(plan, ModelTalk):
        kind = "beside" if plan.beside else "talk"
    else:
        kind = "near" if isinstance(plan, Say) and plan.is_near else "answer"
    if said.startswith(tuple(text.lower() for text in NO_ANSWER)):
        return "nothing"
    if said.startswith(tuple(text.lower() for text in NO_WORLD)):
        return "talk"
    if kind == "talk" or not ("any" in row or "all" in row):
        return kind
    is_held = any(text in said for text in row.get("any", ())) or ("all" in row and all(text in said for text in row["all"]))
    return kind + ("+" if is_held else "-")


def asked(guide: WorkPlanner, row: Mapping[str, Any]) -> Plan:
    """The plan for a question, in a conversation that began with `before` where it has one."""
    messages = []
    if before := row.get("before"):
        first = Message("user", before)
        messages = [first, Message("assistant", said_by(guide.plan("tiny", [first])))]
    return guide.plan("tiny", [*messages, Message("user", row["q"])])


def measure(household: str, half: str, is_shown: bool) -> dict[str, Any]:
    """How many of each, by whether the notes have an answer."""
    given = json.loads((HERE / f"answers_{household}.json").read_text(encoding="utf-8"))
    model = next(EMBEDDING.parent.glob("SmolLM2*.gguf"))
    numbers: dict[str, Any] = {}
    with serving(model, given["notes"]) as core:
        finder = Search(core.store, embed=core.indexer.brief)
        guide = build_guide(core.home.root, finder, core.entries, core.models, core.knowledge.folder, core.knowledge.calendars)
        for table in ("questions", "nothing", "world"):
            rows = given.get(table, [])[{"even": 0, "odd": 1}.get(half, 0) :: 1 if half == "all" else 2]
            counts: Counter[str] = Counter()
            for row in rows:
                plan = asked(guide, row)
                kind = judge(plan, row)
                counts[kind] += 1
                if is_shown:
                    print(f"{kind:9} {row['q']}\n          {said_by(plan)[:160]!r}")
            if rows:
                numbers[table] = {"of": len(rows), **dict(sorted(counts.items()))}
                print(f"{household} {table}: {numbers[table]}")
    return numbers


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--set", choices=("bees", "boat", "coast", "all"), default="all")
    parser.add_argument("--half", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--show", action="store_true", help="each question with what came of it")
    parser.add_argument("--json", default="build/bench-answers.json", metavar="FILE")
    args = parser.parse_args()
    households = ("bees", "boat") if args.set == "all" else (args.set,)
    figures.write(args.json, {one: measure(one, args.half, args.show) for one in households})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
