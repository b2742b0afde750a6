"""Two real llama-servers on loopback behind one pool, one killed in the middle of an answer: what is said then and afterwards.

Takes a minute or two of two cores and is no part of the suite: `make two-servers`. Needs xllamacpp and the bundled model.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from peer import llama_process

from appliance.clock import monotonic_s, sleep_s

MODELS = Path.home() / ".cache/owlbox/models"
TABLES = """
[providers.north]
base_url = "{north}/v1"
[providers.south]
base_url = "{south}/v1"
[pools]
default = ["north/one", "south/one"]
[models]
local_only = false
"""
STORY = "Write a long story about an owl, of five hundred words."


def command(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "appliance", "--home", str(home), *words]


def run(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(home, *words), capture_output=True, text=True, timeout=300)


def main() -> int:
    model = next(iter(sorted(MODELS.glob("SmolLM2*.gguf"))), None)
    if model is None:
        print("no SmolLM2 in the cache: make model", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, llama_process(model) as (north, first), llama_process(model) as (south, _):
        home = Path(folder) / "home"
        run(home, "init")
        (home / "owlbox.toml").write_text(TABLES.format(north=north, south=south))
        core = subprocess.Popen(command(home, "serve"), stderr=subprocess.DEVNULL)
        try:
            end_s = monotonic_s() + 60
            while '"running"' not in run(home, "status", "--json").stdout and monotonic_s() < end_s:
                sleep_s(0.5)
            asked = subprocess.Popen(command(home, "ask", STORY), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert asked.stdout is not None
            begun = asked.stdout.read(20)
            first.kill()
            _, said = asked.communicate(timeout=300)
            print(f"begun with {begun!r}; then: {said.strip()}")
            assert begun and asked.returncode == 5, asked.returncode
            for text in ("Say hello.", "Say goodbye."):
                done = run(home, "ask", text)
                print(f"{text} {done.stdout.strip()[:60]!r}")
                assert done.returncode == 0 and done.stdout.strip(), done.stderr
            rows = run(home, "sql", "SELECT provider FROM turns WHERE ended_ms IS NOT NULL ORDER BY id DESC LIMIT 2").stdout
            assert rows.split().count("south") == 2, rows
        finally:
            core.terminate()
            core.wait(60)
    print("the pool went on with the other server")
    return 0


if __name__ == "__main__":
    sys.exit(main())
