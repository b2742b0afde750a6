"""What "hello" costs: the whole product beside llama-cpp-python alone, with the same model file, in turns, in one run.

    python tests/bench/bench_hello.py [--model FILE.gguf] [--rounds N] [--words TEXT] [--json FILE]

Ours is a core in this process with its broker beside it, from the moment a message is handed in to its first words and to the end
of the loop, each time in a thread of its own. Theirs is `create_chat_completion` with the template of the file, the same threads,
batch, window, temperature, repeat penalty and longest answer. Both are warm: each has answered once before. Asked twice: the same
words every time, of which llama-cpp-python evaluates one token and ours none, and words that neither was asked before. Knows
nothing about what is good enough. The embedding model of the download cache is used where there is one.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
from process import clean_environ

from appliance.clock import monotonic_s, new_id, now_ms
from appliance.language.program_or_model import SAMPLING
from appliance.models import catalogue
from appliance.models.tiers import SMALL, TINY
from appliance.providers import gguf
from appliance.providers.llama_library import BATCH, SPIN_ROUNDS
from appliance.records import Delta, Inbound, LoopEnded, RunSettings, Tier
from appliance.runtime.paths import Home
from appliance.service.core import Core
from appliance.upkeep import home_setup

EMBEDDING = Path.home() / ".cache" / "owlbox" / "models" / "all-MiniLM-L6-v2.Q8_0.gguf"
WINDOW = 4096
FRESH = (
    "hi",
    "good morning",
    "hey there",
    "good evening",
    "hello again",
    "nice to see you",
    "how are you today?",
    "good afternoon",
    "is anybody there?",
    "tell me a joke",
    "who are you?",
    "how is life?",
)
THREADS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Answer:
    """One answer: its text, how long it took, and tokens read and written."""

    text: str
    first_s: float
    end_s: float
    prompt_tokens: int
    output_tokens: int
    thread: str = ""


@contextmanager
def serving(model: Path, notes: Mapping[str, str] | None = None, **settings: str) -> Iterator[Core]:
    """A core with this model, and these notes, in a home of its own; `settings` are keys of its configuration."""
    with tempfile.TemporaryDirectory(prefix="bench-hello-") as folder:
        runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
        runtime.mkdir(mode=0o700)
        home = Home(Path(folder) / "home")
        home_setup.init(home)
        home.models.mkdir(exist_ok=True)
        for file in (model, EMBEDDING):
            if file.is_file():
                (home.models / file.name).symlink_to(file.resolve())
        for name, text in (notes or {}).items():
            note = home.box / "notes" / name
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(text, encoding="utf-8")
        keys = {"MODELS__CONTEXT": str(WINDOW), "MODELS__THREADS": str(THREADS), "RUNS__TITLES": "words", **settings}
        environ = clean_environ(Path(folder), runtime) | {f"OWLBOX__{key}": value for key, value in keys.items()}
        core = Core(home, environ, process="cli", is_shared=False)
        core.recover()
        core.box_folder.compare()
        core.indexer.index_pending()
        core.indexer.start()
        try:
            yield core
        finally:
            core.close("the measurement is over")
            shutil.rmtree(runtime, ignore_errors=True)


def ask_ours(core: Core, words: str, thread: str = "") -> Answer:
    """Ask the product, in a new thread unless one is named; `thread` of the answer is the one it was asked in."""
    began_s, first_s, text = monotonic_s(), 0.0, ""
    inbound = Inbound("local", "ada", words, new_id(), now_ms(), thread, settings=None if thread else RunSettings())
    accepted = core.inbox.accept(inbound, new_id())
    subscription = core.inbox.feed.subscribe(accepted.loop)
    try:
        core.inbox.start(accepted.loop)
        for item in subscription:
            if isinstance(item, Delta):
                first_s, text = first_s or monotonic_s() - began_s, text + item.text
            elif isinstance(item, LoopEnded):
                break
    finally:
        core.inbox.feed.leave(accepted.loop, subscription)
    end_s, turns = monotonic_s() - began_s, core.runs.turns(accepted.run)
    read, written = (sum(turn[key] or 0 for turn in turns) for key in ("prompt_tokens", "output_tokens"))
    return Answer(text, first_s, end_s, read, written, accepted.run)


def ask_theirs(llama: Any, words: str, tier: Tier) -> Answer:
    """Ask llama-cpp-python, with the samplers of the tier."""
    sampling = SAMPLING[tier]
    began_s, first_s, text, count = monotonic_s(), 0.0, "", 0
    stream = llama.create_chat_completion(
        [{"role": "user", "content": words}],
        stream=True,
        temperature=sampling.temperature,
        repeat_penalty=sampling.repeat_penalty,
        max_tokens=sampling.max_tokens,
    )
    for piece in stream:
        if new := piece["choices"][0]["delta"].get("content"):
            first_s, text, count = first_s or monotonic_s() - began_s, text + new, count + 1
    return Answer(text, first_s, monotonic_s() - began_s, int(llama.n_tokens) - count, count)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="another model file than the bundled one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--words", default="hello")
    parser.add_argument("--json", default="build/bench-hello.json", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model
        if model is None:
            home = Home(Path(folder))
            catalogue.add(home, "smollm2", lambda stage, done, total: None)
            model = home.models / catalogue.entries()["smollm2"].file
        numbers = measure(model.resolve(), args.words, args.rounds)
    figures.write(args.json, numbers)
    return 0


def measure(model: Path, words: str, rounds: int) -> dict[str, Any]:
    """Both in turns; the medians and their ratios."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_ROUNDS)  # as the broker: else theirs suffers more on a busy machine
    import llama_cpp

    count = gguf.read(model).parameters
    tier: Tier = "tiny" if count < TINY else "small"
    if count >= SMALL:
        print("an able model gets its whole loop: this compares a plain answer", file=sys.stderr)
    llama = llama_cpp.Llama(
        str(model), n_ctx=WINDOW, n_batch=BATCH, n_ubatch=BATCH, n_threads=THREADS, n_threads_batch=THREADS, verbose=False, seed=1
    )
    numbers: dict[str, Any] = {"model": model.stem, "words": words, "rounds": rounds, "threads": THREADS}
    with serving(model) as core:
        ask_ours(core, words), ask_theirs(llama, words, tier)
        for title, said in (("said before", [words] * rounds), ("never said before", FRESH[:rounds])):
            pairs = [(ask_ours(core, one), ask_theirs(llama, one, tier)) for one in said]
            print(f"{title}: {said[-1]!r}, {model.stem}, {len(said)} rounds in turns, {THREADS} threads, medians")
            numbers[title] = compare([pair for pair in pairs if pair[0].output_tokens])
    return numbers


def compare(pairs: list[tuple[Answer, Answer]]) -> dict[str, Any]:
    """Medians of ours and theirs, and their ratios; what the program answers without a model is no pair."""
    numbers: dict[str, Any] = {"pairs": len(pairs)}
    print(f"{'':<18}{'prompt':>8}{'output':>8}{'first s':>10}{'least':>8}{'end s':>8}  answer")
    for title, answers in (("owlbox", [a for a, _ in pairs]), ("llama-cpp-python", [b for _, b in pairs])):
        first_s, end_s = (round(statistics.median(values), 3) for values in zip(*((a.first_s, a.end_s) for a in answers)))
        one, least_s = answers[-1], round(min(a.first_s for a in answers), 4)
        numbers[title] = {**vars_of(one), "first_s": first_s, "least_s": least_s, "end_s": end_s}
        tokens = f"{one.prompt_tokens:>8}{one.output_tokens:>8}"
        print(f"{title:<18}{tokens}{first_s:>10.3f}{least_s:>8.4f}{end_s:>8.3f}  {one.text[:60]!r}")
    ours, theirs = numbers["owlbox"], numbers["llama-cpp-python"]
    # The answers have other lengths: what one token takes can be compared.
    each = [(one["end_s"] - one["first_s"]) / max(1, one["output_tokens"] - 1) for one in (ours, theirs)]
    numbers["ratios"] = {
        "first": round(ours["first_s"] / theirs["first_s"], 2),
        "first, least of each": round(ours["least_s"] / theirs["least_s"], 2),  # a busy machine only ever adds
        "end": round(ours["end_s"] / theirs["end_s"], 2),
        "a token": round(each[0] / each[1], 2) if each[1] else None,
    }
    print("ratios: " + ", ".join(f"{name} {value}" for name, value in numbers["ratios"].items()))
    return numbers


def vars_of(answer: Answer) -> dict[str, Any]:
    """An answer as JSON."""
    return {"text": answer.text, "prompt_tokens": answer.prompt_tokens, "output_tokens": answer.output_tokens}


if __name__ == "__main__":
    sys.exit(main())
