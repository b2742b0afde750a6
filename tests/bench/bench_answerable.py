"""Whether the score that decides tells questions that notes answer from those that they do not: the area under the curve.

    python tests/bench/bench_answerable.py [--data squad2-dev.jsonl] [--json FILE]

The households of `answers_boat.json` and `answers_bees.json`, which the weights are fitted on, and `answers_coast.json`, which they
never saw: each question against all notes. `--data` takes paragraphs of SQuAD 2.0 (Rajpurkar et al., 2018; rajpurkar.github.io)
as {title, context, questions: [{question, answers, is_answerable}]}, each question against its paragraph. "Before" are the weights
that were set by hand. The notes are indexed with the real embedding model; no language model is asked. `train_language.py` fits on
the same rows.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import figures
from bench_hello import EMBEDDING
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search, Vector
from appliance.language.evidence import Evidence, Finder, Sentence, weigh
from appliance.language.languages import Languages
from appliance.providers.encoder import Encoder

HERE = Path(__file__).parent
FITTED, UNSEEN = ("boat", "bees"), ("coast",)
BY_HAND = {
    "coverage": 0.6,
    "similarity": 0.4,
    "missing_kind_penalty": -2.0,
    "doubtful_kind_penalty": -0.15,
    "denial_match": 0.05,
    "missing_person_penalty": -0.5,
    "missing_thing_penalty": -0.15,
    "missing_word_penalty": -0.05,
    "missing_name_penalty": -0.3,
    "missing_likely_name_penalty": -0.2,
    "other_day_penalty": -0.5,
    "discussed_note": 0.12,
    "distant_context_penalty": -0.4,
    "single_word_penalty": -0.05,
    "inflected_word_penalty": -0.2,
}


@dataclass
class Candidates:
    """A question with the features of each sentence that was weighed for it, and whether that holds the answer."""

    is_answerable: bool
    features: list[dict[str, float]] = field(default_factory=list)
    holds: list[bool] = field(default_factory=list)

    def score(self, weights: Mapping[str, float]) -> float:
        """That of the best sentence."""
        return max((sum(weights[name] * value for name, value in one.items()) for one in self.features), default=0.0)


class RecordingFinder(Finder):
    """A finder that keeps the features of each sentence it weighs."""

    rows: list[tuple[dict[str, float], Sentence]]

    def _measure_features(self, asked: Any, one: Sentence, is_subject: bool) -> dict[str, float]:
        features = super()._measure_features(asked, one, is_subject)
        self.rows.append((features | Evidence((one,), tuple(asked.words)).around, one))
        return features


def find_all(notes: Mapping[str, str], rows: Sequence[Mapping[str, Any]], embed: Callable[[str], list[float]]) -> list[Candidates]:
    """The candidates of each question, a row with `q` and `any` or `all` where the notes answer it."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        store = new_store(Path(folder) / "owlbox.db")
        passages, languages = Passages(store), Languages()
        entries = Entries(store, passages.index)
        for name, text in notes.items():
            heading = re.search(r"^# (.+)$", text, re.MULTILINE)
            entries.set(f"box://notes/{name}", text, title=heading[1] if heading else Path(name).stem, writer="folder")
        while batch := passages.waiting():
            passages.store_vectors("bench", [(chunk, embed(chunk.text)) for chunk in batch])
        words = languages.function_words(), languages.pointing_words(), languages.alike_words
        search = Search(store, passages, embed=lambda text: Vector("bench", embed(text)))
        finder = RecordingFinder(search, entries, lambda texts: [embed(text) for text in texts], *words)
        for row in rows:
            finder.rows = []
            finder.find_evidence(row["q"])
            candidates = Candidates("any" in row or "all" in row)
            for features, one in finder.rows:
                text = one.quoted.lower()
                candidates.features.append(features)
                is_held = any(said in text for said in row.get("any", ())) or all(said in text for said in row.get("all", ("\0",)))
                candidates.holds.append(is_held)
            found.append(candidates)
        store.close()
    return found


def household(name: str, embed: Callable[[str], list[float]]) -> list[Candidates]:
    """The candidates of a household's questions, those about the world left out."""
    given = json.loads((HERE / f"answers_{name}.json").read_text(encoding="utf-8"))
    rows = [row for row in (*given["questions"], *given["nothing"]) if "before" not in row]
    return find_all(given["notes"], rows, embed)


def squad(path: Path, embed: Callable[[str], list[float]]) -> Iterator[Candidates]:
    """Those of each question against its paragraph."""
    for line in path.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        rows = []
        for one in given["questions"]:
            texts = [text["text"] if isinstance(text, dict) else text for text in one["answers"]]
            rows.append({"q": one["question"]} | ({"any": [text.lower() for text in texts]} if one["is_answerable"] else {}))
        yield from find_all({"paragraph.md": f"# {given['title'].replace('_', ' ')}\n\n{given['context']}"}, rows, embed)


def area(candidates: Sequence[Candidates], score: Callable[[Candidates], float]) -> float:
    """The share of pairs of an answerable and an unanswerable question in which the first has the higher score."""
    yes = [score(one) for one in candidates if one.is_answerable]
    no = [score(one) for one in candidates if not one.is_answerable]
    return sum((a > b) + (a == b) / 2 for a in yes for b in no) / max(1, len(yes) * len(no))


def embedder() -> Callable[[str], list[float]]:
    """The vector of a text by the embedding model of the download cache; each text is embedded once."""
    return lru_cache(maxsize=100_000)(Encoder(EMBEDDING, 384).embed)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", metavar="FILE", help="paragraphs of SQuAD 2.0 with their questions; left out without it")
    parser.add_argument("--json", default="build/bench-answerable.json", metavar="FILE")
    args = parser.parse_args()
    embed, numbers = embedder(), {}
    sets: dict[str, list[Candidates]] = {name: household(name, embed) for name in (*FITTED, *UNSEEN)}
    if args.data:
        sets["squad2"] = list(squad(Path(args.data), embed))
    for name, found in sets.items():
        before = area(found, lambda one: one.score(BY_HAND))
        now = area(found, lambda one: max((weigh(features) for features in one.features), default=0.0))
        numbers[name] = {"questions": len(found), "before": round(before, 3), "now": round(now, 3)}
        print(f"{name:8} {len(found):4} questions, area under the curve before {before:.3f}, now {now:.3f}", flush=True)
    figures.write(args.json, numbers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
