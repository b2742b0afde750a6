"""Fits what the program knows of language by numbers, and writes it into the package.

    python tests/bench/train_language.py [--only requests|evidence] [--show]

`requests.json`: the classifier that says whether a message that fits no sentence is likely a request (`router.likely_request`). It
learns from sentences made of the templates of the language files, the files of `requests`, every second line of `not_asking.txt`
and the questions of the households; the other lines say how often it asks back needlessly. What says when is one mark. The
same data give the same file.

`evidence.json`: how much each feature of a sentence says about whether it answers a question (`language.evidence`). It is
fitted on the households of `bench_answerable`, by maximum likelihood: of the sentences of a question and "none of them" the right
one. The numbers that were set by hand are the prior, so that a feature that hardly occurs keeps its weight. It is cross-validated
by household.
"""

import argparse
import json
import math
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_answerable import BY_HAND, FITTED, Candidates, area, embedder, household

from appliance.language.languages import Language, Languages
from appliance.language.router import (
    ASKED,
    EFFECTS,
    KINDS,
    MAX_EXAMPLE_CHARS,
    REMINDING,
    RequestWeights,
    ngrams,
    probabilities,
    with_time_marked,
)
from appliance.language.sentence_templates import TOKEN

HERE = Path(__file__).parent
REQUESTS = HERE.parent / "language" / "requests"
WEIGHTS = HERE.parents[1] / "appliance" / "language" / "weights" / "requests.json"
SLOTS = {"rest": "when", "second": "when", "moment": "when", "what": "thing", "query": "thing", "title": "thing", "clause": "fact"}
SLOTS |= {"body": "fact", "why": "thing", "x": "thing", "y": "thing", "z": "thing", "items": "item", "more": "item", "deed": "task"}
OF_TEMPLATES, OF_COLLOQUIAL = 6, 30  # sentences made of each template
OF_SPOKEN = 4  # how often what people said counts
OPTIONAL = 0.4  # how often a part that may be left out is there
ROUNDS, RATE, DECAY, STRENGTH, OF_BIAS = 220, 0.2, 1e-4, 3.0, 5.0  # of the descent
MOST_NGRAMS, LEAST_WEIGHT = 5000, 10
DIMENSIONS, MEANING = 384, 3.0  # of a vector, and its strength
SCALE = 0.01
NOW_MS = 1_796_000_000_000  # at which the times of the sentences are read
LEAST = 0.6  # from which to ask back: 3 % of the sentences held back reach it, and half of those fit some other sentence
EVIDENCE = HERE.parents[1] / "appliance" / "language" / "weights" / "evidence.json"
PRIOR, STEPS, STEP = 3.0, 400, 0.01  # strength of the numbers set by hand, and of the descent
OPTIONS = {"]": "[", ")": "("}


def fill(template: str, rules: Mapping[str, str], slots: Mapping[str, Sequence[str]], dice: random.Random, depth: int = 0) -> str:
    """A sentence of a template, its choices made by chance."""
    stack: list[tuple[str, list[list[str]]]] = [("(", [[]])]
    for token in TOKEN.findall(template):
        if token in ("[", "("):
            stack.append((token, [[]]))
        elif token in OPTIONS and len(stack) > 1:
            opened, ways = stack.pop()
            if opened == "(" or dice.random() < OPTIONAL:
                stack[-1][1][-1].append(" ".join(dice.choice(ways)))
        elif token == "|":
            stack[-1][1].append([])
        elif token.startswith("<"):
            stack[-1][1][-1].append(fill(rules.get(token[1:-1], ""), rules, slots, dice, depth + 1) if depth < 6 else "")
        elif token.startswith("{"):
            name = SLOTS.get(token[1:-1], token[1:-1])
            stack[-1][1][-1].append("high" if name == "level" else dice.choice(slots.get(name, slots["thing"])))
        else:
            stack[-1][1][-1].append(token)
    return re.sub(r"\s+", " ", " ".join(dice.choice(stack[0][1]))).strip()


def kind_of_intent(name: str) -> str:
    """The kind of request of an intent."""
    if name in (*REMINDING, "remind_it", "recurring"):
        return "remind"
    named = {"task": "task", "task_it": "task", "needed": "task", "remember": "remember", "remember_it": "remember"}
    return named.get(name, "other" if name in EFFECTS else "none")


def examples(languages: Languages) -> Iterator[tuple[str, str]]:
    """Texts with their kinds."""
    dice = random.Random(41)
    given = tomllib.loads((REQUESTS / "colloquial.toml").read_text(encoding="utf-8"))
    for language in languages.all:
        slots = given["slots"].get(language.name, given["slots"]["en"])
        yield from _of_templates(language, slots, dice)
        for kind, templates in given.get(language.name, {}).items():
            yield from ((fill(one, {}, slots, dice), kind) for one in templates for _ in range(OF_COLLOQUIAL))
    for line in (REQUESTS / "asking.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        kind = {"recurring": "remind", "note": "remember"}.get(row["effect"], row["effect"])
        yield from [(row["text"], kind if kind in KINDS else "other")] * 3
    for line in (REQUESTS / "spoken.tsv").read_text(encoding="utf-8").splitlines():
        kind, text = line.split("\t")
        yield from [(text, kind)] * OF_SPOKEN
    yield from ((text, "none") for text in not_asking()[::2] for _ in range(6))
    for house in ("boat", "bees"):
        tables = json.loads((HERE / f"answers_{house}.json").read_text(encoding="utf-8"))
        yield from ((row["q"], "none") for key in ("questions", "nothing", "world") for row in tables.get(key, ()))


def _of_templates(language: Language, slots: Mapping[str, Sequence[str]], dice: random.Random) -> Iterator[tuple[str, str]]:
    for name, templates in language.sentences.items():
        count = OF_TEMPLATES if kind_of_intent(name) in KINDS[1:4] else 1
        for template in templates if name not in ("claim", "duty", "aside", "near", "too") else ():
            yield from ((fill(template, language.rules, slots, dice), kind_of_intent(name)) for _ in range(count))
    yield from ((text, "none") for texts in language.examples.values() for text in texts)


def not_asking() -> list[str]:
    """Sentences that ask for nothing."""
    return [line for line in (REQUESTS / "not_asking.txt").read_text(encoding="utf-8").splitlines() if line]


def fit(given: Sequence[tuple[str, str]], marked: Mapping[str, str], embed: Callable[[str], Sequence[float]]) -> RequestWeights:
    """Weights by logistic regression (Adam on all texts at once), of the n-grams that occur most and of the vector; a text said n
    times counts as its square root."""
    counts = Counter(given)
    found = {text: set(ngrams(marked[text])) for text, _ in counts}
    seen = Counter(one for text, _ in counts for one in sorted(found[text]))
    known = {one: at for at, one in enumerate(one for one, count in seen.most_common(MOST_NGRAMS) if count > 2)}
    texts = [*counts, *counts]  # with their vectors, and without them for a home that has no such model
    rows = np.zeros((len(texts), len(known) + DIMENSIONS), np.float32)
    for at, (text, _) in enumerate(texts):
        rows[at, [known[one] for one in found[text] if one in known]] = STRENGTH / math.sqrt(len(found[text]))
        if at < len(counts):
            rows[at, len(known) :] = MEANING * np.array(embed(text[:MAX_EXAMPLE_CHARS]))
    kinds = np.array([KINDS.index(kind) for _, kind in texts])
    of_kind = Counter(kinds.tolist())
    worth = np.array([math.sqrt(counts[one] * len(kinds) / of_kind[kind]) for one, kind in zip(texts, kinds.tolist())])
    worth = (worth / worth.sum())[:, None]
    right = np.eye(len(KINDS))[kinds]
    weights, bias = np.zeros((rows.shape[1], len(KINDS)), np.float32), np.zeros(len(KINDS))
    mean, spread = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, ROUNDS + 1):
        scores = rows @ weights + bias
        shares = np.exp(scores - scores.max(1, keepdims=True))
        error = (shares / shares.sum(1, keepdims=True) - right) * worth
        slope = rows.T @ error.astype(np.float32) + DECAY * weights
        mean, spread = 0.9 * mean + 0.1 * slope, 0.99 * spread + 0.01 * slope**2
        weights -= RATE * (mean / (1 - 0.9**step)) / (np.sqrt(spread / (1 - 0.99**step)) + 1e-8)
        bias -= OF_BIAS * error.sum(0)
    kept = {one: _whole(STRENGTH * weights[known[one]]) for one in sorted(known)}
    kept = {one: values for one, values in kept.items() if max(map(abs, values)) >= LEAST_WEIGHT}
    return RequestWeights(SCALE, LEAST, _whole(bias), kept, tuple(_whole(MEANING * row) for row in weights[len(known) :]))


def _whole(values: "np.typing.NDArray[np.floating[Any]]") -> tuple[int, ...]:
    return tuple(round(float(value) / SCALE) for value in values)


def written(weights: RequestWeights) -> str:
    """The file: an n-gram a line, so that a change can be read."""
    compact = [json.dumps(found, separators=(",", ":")) for found in weights.ngrams.values()]
    lines = ",\n".join(f"{json.dumps(one, ensure_ascii=False)}:{found}" for one, found in zip(weights.ngrams, compact))
    head = json.dumps({"scale": weights.scale, "least": weights.least, "bias": weights.bias})[:-1]
    meaning = ",\n".join(json.dumps(row, separators=(",", ":")) for row in weights.meaning)
    return f'{head}, "ngrams": {{\n{lines}\n}}, "meaning": [\n{meaning}\n]}}\n'


def fit_evidence(found: Sequence[Candidates]) -> dict[str, float]:
    """Weights near those set by hand under which the right sentence, or none, is likeliest (Adam, a fixed number of steps).

    They are scaled so that a sentence with all words and the nearest meaning scores 1, as before.
    """
    names = list(BY_HAND)
    found = [one for one in found if one.features and (any(one.holds) or not one.is_answerable)]
    most = max(len(one.features) for one in found)
    rows = np.zeros((len(found), most, len(names)))
    is_there, holds = np.zeros((len(found), most), bool), np.zeros((len(found), most), bool)
    for at, one in enumerate(found):
        rows[at, : len(one.features)] = [[features[name] for name in names] for features in one.features]
        is_there[at, : len(one.features)] = True
        holds[at, : len(one.features)] = one.holds if one.is_answerable else False
    answerable = np.array([one.is_answerable for one in found])
    worth = np.where(answerable, 1 / answerable.sum(), 1 / max(1, (~answerable).sum()))
    prior = np.array([*BY_HAND.values(), 0.5, math.log(0.1)])  # then the score of "none of them", and the logarithm of the scale
    values, mean, spread = prior.copy(), np.zeros(len(prior)), np.zeros(len(prior))
    for step in range(1, STEPS + 1):
        margin = (rows @ values[:-2] - values[-2]) / math.exp(values[-1])
        odds = np.where(is_there, np.exp(np.clip(margin, -30, 30)), 0.0)
        share = odds / (1 + odds.sum(1, keepdims=True))
        right = np.where(holds, odds, 0.0)
        error = (share - right / np.maximum(right.sum(1, keepdims=True), 1e-30)) * worth[:, None]
        slope = np.zeros(len(prior))
        slope[:-2] = np.einsum("qs,qsf->f", error, rows) / math.exp(values[-1]) + PRIOR * (values - prior)[:-2]
        slope[-2:] = -error.sum() / math.exp(values[-1]), -(error * margin).sum()
        mean, spread = 0.9 * mean + 0.1 * slope, 0.99 * spread + 0.01 * slope**2
        values -= STEP * (mean / (1 - 0.9**step)) / (np.sqrt(spread / (1 - 0.99**step)) + 1e-8)
    fitted = dict(zip(names, values.tolist()))
    size = fitted["coverage"] + fitted["similarity"]
    return {name: round(value / size, 3) for name, value in fitted.items()}


def train_evidence() -> None:
    """Fit on the households, each once on the others alone to say how well that carries, and write the weights."""
    embed = embedder()
    houses = {name: household(name, embed) for name in FITTED}
    for name, held in houses.items():
        weights = fit_evidence([one for other, found in houses.items() if other != name for one in found])
        areas = (area(held, lambda one: one.score(BY_HAND)), area(held, lambda one, known=weights: one.score(known)))
        print(f"{name}: area under the curve {areas[0]:.3f} by hand, {areas[1]:.3f} fitted on the others")
    weights = fit_evidence([one for found in houses.values() for one in found])
    lines = ",\n".join(f"{json.dumps(name)}:{value}" for name, value in weights.items())
    EVIDENCE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(weights)


def marked(text: str, languages: Languages) -> str:
    """A text as the classifier gets it."""
    return with_time_marked(text, languages.detect(text)[0], NOW_MS)


def _asks(text: str, weights: RequestWeights, vector: Sequence[float]) -> float:
    return sum(share for share, kind in zip(probabilities(text, weights, vector), KINDS) if kind in ASKED)


def train_requests(is_shown: bool) -> None:
    """Fit the classifier, write it, say how good it is."""
    languages = Languages()
    given, embed = list(examples(languages)), embedder()
    weights = fit(given, {text: marked(text, languages) for text, _ in given}, embed)
    WEIGHTS.write_text(written(weights), encoding="utf-8")
    held = not_asking()[1::2]
    asked = [(text, _asks(marked(text, languages), weights, embed(text[:MAX_EXAMPLE_CHARS]))) for text in held]
    needless = [one for one in asked if one[1] >= weights.least]
    print(f"{len(given)} texts: {dict(Counter(kind for _, kind in given))}")
    print(f"of {len(held)} held back {len(needless)} would be asked back")
    if is_shown:
        print(*needless, sep="\n")


def main() -> int:
    """Fit what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("requests", "evidence"), help="one of the two files")
    parser.add_argument("--show", action="store_true", help="what would be asked back needlessly")
    args = parser.parse_args()
    if args.only != "evidence":
        train_requests(args.show)
    if args.only != "requests":
        train_evidence()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
