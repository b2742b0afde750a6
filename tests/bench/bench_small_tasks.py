"""Twenty tasks for a worker with a tiny or small model: how many are done, honestly declined, or wrong.

    python tests/bench/bench_small_tasks.py --model FILE.gguf [--model ...] [--items FILE] [--json FILE]

Each model gets a home of its own with the notes of the items file, and one `owlbox worker run` a task. Judged by program: a task
that can be done is done when it is complete and its result, or the file, schedule or memory that it was to make, holds what it
must and nothing that it must not. It is declined when it is not complete and says why; anything else is wrong, above all a task
that cannot be done and is complete. The embedding model of the download cache is used where there is one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import figures

from appliance.clock import monotonic_s

ITEMS = Path(__file__).with_name("small_tasks.json")
EMBEDDING = Path.home() / ".cache" / "owlbox" / "models" / "all-MiniLM-L6-v2.Q8_0.gguf"
TASK_S = 300
KINDS = ("collect", "summary", "find", "note", "remind", "cannot")


class Home:
    """A home of its own, with commands."""

    def __init__(self, folder: Path, model: Path, notes: dict[str, str]) -> None:
        self.root = folder / "home"
        (folder / "run").mkdir(mode=0o700)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OWLBOX")}
        self._env = kept | {"OWLBOX_HOME": str(self.root), "XDG_RUNTIME_DIR": str(folder / "run"), "NO_COLOR": "1"}
        self.owlbox("init")
        (self.root / "models").mkdir(exist_ok=True)
        for file in (model, EMBEDDING):
            if file.is_file():
                (self.root / "models" / file.name).symlink_to(file.resolve())
        self.notes = self.root / "box" / "notes"
        self.notes.mkdir(parents=True, exist_ok=True)
        for name, text in notes.items():
            (self.notes / name).write_text(text, encoding="utf-8")

    def owlbox(self, *words: str) -> str:
        """The output of a command, and what it complained about when it failed."""
        command = [sys.executable, "-m", "appliance", *words]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=TASK_S, check=False)
        if done.returncode:
            print(f"owlbox {' '.join(words)}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return done.stdout

    def json(self, *words: str) -> Any:
        """What a command prints for programs."""
        said = self.owlbox(*words, "--json")
        try:
            return json.loads(said)
        except ValueError:
            return {}


def run(home: Home, item: dict[str, Any]) -> tuple[str, str, str]:
    """How one task ended: done, declined or wrong, its status, and what it says."""
    more = ["--description", item["description"]] if "description" in item else []
    number = str(home.json("task", "add", item["task"], *more)["id"])
    home.owlbox("worker", "run", "--task-id", number)
    task = home.json("task", "view", number)
    text = task.get("output") or task.get("waiting_reason") or task.get("failure") or ""
    status = str(task.get("status"))
    if status != "complete":
        is_told = status in ("waiting", "failed") and bool(text.strip())
        return "declined" if is_told else "wrong", status, text
    return "done" if item["kind"] != "cannot" and holds(home, item, text) else "wrong", status, text


def holds(home: Home, item: dict[str, Any], text: str) -> bool:
    """Whether what was to come of a task has come of it."""
    if "schedule" in item:
        return item["schedule"] in home.owlbox("schedule", "list", "--json")
    if "memory" in item:
        return item["memory"] in home.owlbox("search", item["memory"], "--json")
    if "file" in item:
        files = [path for path in home.root.glob("box/**/notes/*.md") if path.match(item["file"]) and path.name not in ITEMS_NOTES]
        text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return all(re.search(one, text) for one in item.get("has", ())) and not any(one in text for one in item.get("not", ()))


ITEMS_NOTES: frozenset[str] = frozenset(json.loads(ITEMS.read_text(encoding="utf-8"))["notes"])


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", required=True, type=Path, metavar="FILE")
    parser.add_argument("--items", type=Path, default=ITEMS, metavar="FILE")
    parser.add_argument("--json", default="", metavar="FILE")
    args = parser.parse_args()
    given = json.loads(args.items.read_text(encoding="utf-8"))
    results = []
    for model in args.model:
        counts: Counter[tuple[str, str]] = Counter()
        with tempfile.TemporaryDirectory(prefix="small-tasks-") as folder:
            home = Home(Path(folder), model, given["notes"])
            for item in given["tasks"]:
                began_s = monotonic_s()
                verdict, status, text = run(home, item)
                counts[item["kind"], verdict] += 1
                results.append({"model": model.name, **item, "verdict": verdict, "status": status, "text": text})
                print(
                    f"{verdict:9}{status:10}{monotonic_s() - began_s:6.1f}s  {item['task'][:60]:60}  {' '.join(text.split())[:90]}"
                )
        print(f"\n{model.name}\n{'':10}{'done':>9}{'declined':>9}{'wrong':>9}")
        for kind in KINDS:
            print(f"{kind:10}" + "".join(f"{counts[kind, verdict]:9}" for verdict in ("done", "declined", "wrong")))
        totals = [sum(n for (_, one), n in counts.items() if one == verdict) for verdict in ("done", "declined", "wrong")]
        print(f"{'all':10}" + "".join(f"{n:9}" for n in totals) + "\n")
    figures.write(args.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
