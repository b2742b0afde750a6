"""Answers that say again what the prompt says: with guesses (prompt-lookup decoding) and without, in turns, in one run.

    python tests/bench/bench_lookup.py [--model FILE.gguf] [--rounds N] [--json FILE]

The same model twice in this process, one thread each, CPU seconds from the first token to the end: the machine may be busy. The
texts have to be the same. Knows nothing about what is good enough.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from appliance.models import catalogue
from appliance.providers.llama import Llama, Options
from appliance.records import Ask, Finish, Message, Part, Route
from appliance.runtime.paths import Home

NOTE = (
    "The boiler in the cellar was serviced on the third of March by Ms Okafor of Northgate Heating. She replaced the pressure "
    "valve and the ignition electrode, cleaned the burner, and left the pressure at 1.6 bar. The next service is due in March of "
    "next year."
)
CODE = (
    "def total(items, tax):\n    result = 0\n    for item in items:\n        result += item.price\n    return result * (1 + tax)\n"
)
PROMPTS = {
    "a note, word for word": f"Repeat this note word for word:\n\n{NOTE}",
    "a text, corrected": f"Correct the spelling and give back the whole text:\n\n{NOTE.replace('replaced', 'replased')}",
    "a summary": f"Summarise this note in two sentences:\n\n{NOTE}",
    "code": f"Repeat this code:\n\n{CODE}",
    "a story (nothing to look up)": "Tell me a story about an owl.",
}
SAMPLERS: dict[str, dict[str, float]] = {"greedy": {}, "repeat penalty 1.1": {"repeat_penalty": 1.1}}
ROUTE = Route("local", "llama", "bench", 2048, "grammar")


def said(llama: Llama, prompt: str, sampler: dict[str, float]) -> tuple[str, float, int]:
    """An answer, the CPU seconds from its first piece to its end, and its tokens."""
    ask = Ask((Part("core", "You are a helpful AI assistant named Owlbox"),), (Message("user", prompt),), slot=prompt)
    text, began_s, tokens = "", 0.0, 0
    more = {"temperature": 0.0, "max_tokens": 100, **sampler}
    for piece in llama.generate(ROUTE, replace(ask, **more), threading.Event()):
        if isinstance(piece, Finish):
            tokens = piece.output_tokens
        else:
            began_s, text = began_s or time.thread_time(), text + piece.text
    return text, time.thread_time() - began_s, tokens


def measure(model: Path, rounds: int) -> dict[str, Any]:
    """Both in turns; medians and ratios."""
    plain, guessing = (Llama(model, Options(context=2048, threads=1, seed=7, is_guessing=is_on)) for is_on in (False, True))
    numbers: dict[str, Any] = {"model": model.stem, "rounds": rounds, "rows": {}}
    for title, prompt in PROMPTS.items():
        for how, sampler in SAMPLERS.items():
            pairs = [(said(plain, prompt, sampler), said(guessing, prompt, sampler)) for _ in range(rounds + 1)][1:]
            without_s, with_s = (statistics.median(one[1] for one in side) for side in zip(*pairs))
            row = {
                "tokens": pairs[0][0][2],
                "without_s": round(without_s, 3),
                "with_s": round(with_s, 3),
                "times": round(without_s / with_s, 2),
                "is_same": all(a[0] == b[0] for a, b in pairs),
            }
            numbers["rows"][f"{title}, {how}"] = row
            print(
                f"{title + ', ' + how:<52}{row['tokens']:>4} tokens  {row['times']:>5} times, same text: {row['is_same']}",
                flush=True,
            )
    plain.close()
    guessing.close()
    return numbers


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="another model file than the bundled one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("build/bench-lookup.json"), metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model
        if model is None:
            home = Home(Path(folder))
            catalogue.add(home, "smollm2", lambda stage, done, total: None)
            model = home.models / catalogue.entries()["smollm2"].file
        numbers = measure(model.resolve(), args.rounds)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
