"""Measurements of many skills: reading them, listing them, noticing one that changed, and what the list costs in a prompt.

    python tests/bench/bench_skills.py [--count N] [--rounds N] [--model FILE.gguf] [--json FILE]

Skills are written into a fresh home and read by the product's own catalogue over a real database. Tokens are those of the
model's own words where one is named, else the product's estimate. Knows nothing about what is good enough.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import figures
from stores import new_store

from appliance.clock import monotonic_s
from appliance.knowledge.entries import Entries
from appliance.runtime.paths import Home
from appliance.skills.catalog import SkillCatalog
from appliance.skills.skill_records import SkillRecords
from appliance.text import tokens

BODY = "1. Look at what is there.\n2. Say what is to be done, in one line each.\n" * 12


def write(folder: Path, number: int, more: str = "") -> Path:
    """One skill of about 900 characters."""
    path = folder / f"chore-{number:03}" / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: chore-{number:03}\ndescription: Do chore {number} of the house and garden.\n---\n{BODY}{more}")
    return path


def timed(act: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median and longest of some rounds, in milliseconds."""
    taken = []
    for _ in range(rounds):
        started_s = monotonic_s()
        act()
        taken.append((monotonic_s() - started_s) * 1000)
    return {"median_ms": round(statistics.median(taken), 2), "longest_ms": round(max(taken), 2)}


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", default="", metavar="FILE", help="whose words the list is counted in")
    parser.add_argument("--json", default="build/bench-skills.json", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        for number in range(args.count):
            write(home.box / "skills", number)
        store = new_store(home.database)
        names = [f"chore-{number:03}" for number in range(args.count)]
        found = SkillCatalog(home.box, Entries(store), SkillRecords(store), os.environ, trusted=names, most=args.count)
        numbers: dict[str, object] = {"skills": args.count, "first_read": timed(found.sync, 1)}
        numbers["unchanged"] = timed(found.sync, args.rounds)
        numbers["list"] = timed(found.listing, args.rounds)
        numbers["prompt_list"] = timed(found.lines, args.rounds)
        numbers["search"] = timed(lambda: found.search("chore 150 garden"), args.rounds)
        reads, turn = found.reads, iter(range(args.rounds))

        def touch() -> None:
            path = write(home.box / "skills", args.count // 2, f"Once more {next(turn)}.\n")
            found.take([path])

        numbers["touch_one"] = timed(touch, args.rounds)
        numbers["files_read_a_touch"] = (found.reads - reads) / args.rounds
        text = "\n".join(found.lines())
        numbers["list_chars"], numbers["list_tokens"] = len(text), count_tokens(text, args.model)
        store.close()
    figures.write(args.json, numbers)
    print(json.dumps(numbers, indent=1))
    return 0


def count_tokens(text: str, model: str) -> int:
    """Tokens of a text, as a model counts them or as the product estimates."""
    if not model:
        return tokens.estimate(text)
    from llama_cpp import Llama

    return len(Llama(model, vocab_only=True, verbose=False).tokenize(text.encode(), add_bos=False))


if __name__ == "__main__":
    raise SystemExit(main())
