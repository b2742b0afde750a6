"""What a model file answers when it is asked plainly, without this product: the third column of the everyday set.

    python tests/bench/bench_plain.py --model FILE.gguf [--everyday FOLDER] [--json FILE]

Each item of the kinds talk, knowledge, notes and text goes to `create_chat_completion` with the template of the file, no tools and
no system text; for notes every note is pasted before the question, as far as the window allows, as somebody would do it with a
command line for models. Judged by the set's own checks of the text (`run.py`), which are in the folder of the set.
"""

import argparse
import importlib.util
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import figures

from appliance.clock import monotonic_s
from appliance.providers.llama_library import BATCH, SPIN_ROUNDS

EVERYDAY = Path(__file__).parents[3] / "shared" / "lab" / "everyday"
KINDS = ("talk", "knowledge", "notes", "text")
WINDOW, MAX_TOKENS = 8192, 256
ROOM = 0.8  # of the window, for the notes
CHARS_PER_TOKEN = 3.2


def loaded(folder: Path) -> Any:
    """The set's own program, for its judge."""
    spec = importlib.util.spec_from_file_location("everyday_run", folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(model: Path, folder: Path, file: Path) -> int:
    """Every item of the kinds; rows by kind."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_ROUNDS)
    import llama_cpp

    threads = len(os.sched_getaffinity(0))
    llama: Any = llama_cpp.Llama(
        str(model), n_ctx=WINDOW, n_batch=BATCH, n_ubatch=BATCH, n_threads=threads, n_threads_batch=threads, verbose=False, seed=1
    )
    run = loaded(folder)
    notes = "\n\n".join(json.loads((folder / "notes.json").read_text(encoding="utf-8")).values())
    notes = notes[: int(llama.n_ctx() * ROOM * CHARS_PER_TOKEN)]
    items = [json.loads(line) for line in (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines() if line]
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    told, began_s = [], monotonic_s()
    for item in sorted((one for one in items if one["category"] in KINDS), key=lambda one: KINDS.index(one["category"])):
        said = [*item["before"], item["prompt"]]
        if item["category"] == "notes":
            said[0] = f"My notes:\n\n{notes}\n\nQuestion: {said[0]}"
        messages: list[dict[str, str]] = []
        text = ""
        for one in said:
            messages.append({"role": "user", "content": one})
            answer = llama.create_chat_completion(messages, temperature=0, max_tokens=MAX_TOKENS)
            text = str(answer["choices"][0]["message"]["content"] or "")
            messages.append({"role": "assistant", "content": text})
        nothing: tuple[dict[str, Any], ...] = ({}, {}, {})
        faults = run.judge(None, item, text, nothing, nothing, 0.0)
        rows[item["category"]][0] += not faults
        rows[item["category"]][1] += 1
        told.append({"id": item["id"], "prompt": item["prompt"], "answer": text, "faults": faults})
        print(
            f"{item['id']} {item['category']:<10}{', '.join(faults) or 'ok':<16}{item['prompt'][:50]!r} -> {text[:80]!r}",
            flush=True,
        )
    print(f"{model.stem}: " + ", ".join(f"{kind} {right}/{of}" for kind, (right, of) in rows.items()))
    numbers = {"model": model.stem, "rows": rows, "seconds": round(monotonic_s() - began_s), "answers": told}
    figures.write(file, numbers)
    return 0


def main() -> int:
    """Ask, judge, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--everyday", type=Path, default=EVERYDAY)
    parser.add_argument("--json", type=Path, default=Path("build/bench-plain.json"))
    args = parser.parse_args()
    if not (args.everyday / "run.py").is_file():
        print(f"plain asking: left out, {args.everyday} is missing")
        return 0
    return measure(args.model, args.everyday, args.json)


if __name__ == "__main__":
    sys.exit(main())
