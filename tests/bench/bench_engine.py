"""Measurements of the local engine, each beside something to compare with. Run it with `make bench-engine`.

    python tests/bench/bench_engine.py [--rounds N] [--sizes 1000,2000] [--only prefix,people,calls,answers,embedding] [--json FILE]

One run, one model, the same threads and batch for everybody. llama-server is the one in xllamacpp; without it that comparison
is left out. The function-calling sample when its data is (OWLBOX_BFCL). Knows
nothing about what is good enough. Takes about ten minutes on two cores.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import figures
import urllib3
from peer import HAS_PEER, llama_process
from test_broker import TOKEN, Running, started

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import OwlError
from appliance.models import catalogue
from appliance.providers.llama_library import SPIN_ROUNDS
from appliance.records import Ask, Finish, Message, Part, from_plain, to_plain
from appliance.runtime.paths import Home

WINDOW = 8192
BATCH = 256
THREADS = len(os.sched_getaffinity(0))
SIZES = "1000,2000"
SENTENCE = "Note {}: the owl that lives in the old oak saw {} mice and told {} of them a story about the moon. "
STORY = "Write a very long story about an owl, a mouse and the moon, with many chapters."
HERE = Path(__file__).parent
WAIT_S = 120.0


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="prefix,people,calls,answers,embedding", metavar="PART,PART")
    parser.add_argument("--sizes", default=SIZES, help="tokens of the prefixes")
    parser.add_argument("--answers", type=int, default=1_000_000, help="mutated answers to read")
    parser.add_argument("--items", type=int, default=60, help="items of the function-calling sample")
    parser.add_argument("--json", default="build/bench-engine.json", metavar="FILE")
    args = parser.parse_args()
    parts: dict[str, Callable[[Home, argparse.Namespace], Any]] = {
        "prefix": prefix,
        "people": people,
        "embedding": embedding,
        "calls": calls,
        "answers": answers,
    }
    numbers: dict[str, Any] = {"threads": THREADS, "batch": BATCH, "window": WINDOW, "rounds": args.rounds}
    with tempfile.TemporaryDirectory(prefix="bench-engine-") as folder:
        home = Home(Path(folder))
        catalogue.add(home, "smollm2", lambda stage, done, total: None)
        home.config.write_text(f"[models]\ncontext = {WINDOW}\nthreads = {THREADS}\n", encoding="utf-8")
        for name in args.only.split(","):
            print(f"... {name}", file=sys.stderr, flush=True)
            numbers[name] = parts[name](home, args)
    figures.write(args.json, numbers)
    show(numbers)
    return 0


# -- asking ----------------------------------------------------------------------------------------------


def ask(words: str, system: str = "", **more: Any) -> Ask:
    parts = (Part("system", system),) if system else ()
    return Ask(**{"system": parts, "messages": (Message("user", words),), "temperature": 0.0, "max_tokens": 4, **more})


def timed(broker: Running, request: Ask) -> tuple[float, Finish, str]:
    """Milliseconds to the first piece (or the end), the Finish, and the text."""
    began_s, first_ms, text = monotonic_s(), 0.0, ""
    with broker.client() as client:
        stream = client.stream("generate", {"route": "local", "ask": to_plain(request)}, deadline_s=600)
        while True:
            try:
                name, value = next(stream)
            except StopIteration as end:
                return first_ms or (monotonic_s() - began_s) * 1000, from_plain(Finish, end.value), text
            if name == "piece":
                first_ms = first_ms or (monotonic_s() - began_s) * 1000
                text += value["text"]


@contextmanager
def broker_of(home: Home) -> Iterator[Running]:
    """A broker with its model in memory; how long that took is `load_ms`."""
    with started(home, OWLBOX_TOKEN=TOKEN) as running:
        began_s = monotonic_s()
        with running.client() as client:
            client.call("load", {"route": "local"}, deadline_s=WAIT_S)
        running.load_ms = (monotonic_s() - began_s) * 1000  # type: ignore[attr-defined]
        yield running


def system_of(broker: Running, tokens: int) -> str:
    """A system text of about so many tokens."""
    count, text = 8, ""
    while True:
        text = "You are Owlbox. " + "".join(SENTENCE.format(n, n * 3, n * 2) for n in range(count))
        with broker.client() as client:
            (size,) = client.call("count", {"route": "local", "texts": [text]})
        if size >= tokens - 20:
            return text
        count += max(1, (tokens - size) // 40)


def middle(values: list[float]) -> float:
    return round(statistics.median(values), 1)


# -- prefixes ----------------------------------------------------------------------------------------------


def prefix(home: Home, args: argparse.Namespace) -> dict[str, Any]:
    """First token with a prefix of so many tokens: cold, warm, after a restart, after a reboot."""
    found: dict[str, Any] = {}
    for size in map(int, args.sizes.split(",")):
        rows: dict[str, list[tuple[float, int]]] = {"cold": [], "warm": [], "restart": [], "reboot": []}
        loads: list[float] = []
        with broker_of(home) as broker:
            system = system_of(broker, size)
        for _ in range(args.rounds):
            shutil.rmtree(home.models / "prefix", ignore_errors=True)
            with broker_of(home) as broker:
                rows["cold"].append(first(broker, system, "a"))
                rows["warm"].append(first(broker, system, "b"))
                sleep_s(1)
            with broker_of(home) as broker:
                rows["restart"].append(first(broker, system, "c"))
                broker.child.send_signal(signal.SIGKILL)
                broker.child.wait()
            forget(home)
            with broker_of(home) as broker:
                loads.append(broker.load_ms)  # type: ignore[attr-defined]
                rows["reboot"].append(first(broker, system, "d"))
        summary: dict[str, Any] = {name: {"ms": middle([r[0] for r in row]), "evaluated": row[0][1]} for name, row in rows.items()}
        for name in ("warm", "restart", "reboot"):
            summary[name]["ratio"] = round(summary["cold"]["ms"] / summary[name]["ms"], 1)
        summary["load_after_reboot_ms"] = middle(loads)
        summary["state_mb"] = round(max(p.stat().st_size for p in (home.models / "prefix").glob("*.state")) / 1e6, 1)
        summary["llama_server"] = server_prefix(home, args, system) if HAS_PEER else None
        found[str(size)] = summary
    return found


def first(broker: Running, system: str, slot: str) -> tuple[float, int]:
    ms, finish, _ = timed(broker, ask(f"What did the owl in note {ord(slot)} see?", system, slot=slot))
    return ms, finish.evaluated_tokens


def forget(home: Home) -> None:
    """Nothing of the home in the page cache: by the kernel's own switch where we may, else file by file."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        for path in home.models.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def server_of(home: Home, folder: Path) -> Iterator[str]:
    """llama-server with the same model, threads, batch and window; its address."""
    (model,) = home.models.glob("Smol*.gguf")
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_ROUNDS)  # as the broker: else theirs suffers more on a busy machine
    same = {"cpuparams.n_threads": THREADS, "cpuparams_batch.n_threads": THREADS, "n_batch": BATCH, "n_ubatch": BATCH}
    with llama_process(model, n_ctx=WINDOW, n_parallel=1, slot_save_path=f"{folder}/", **same) as (address, _):
        yield address


def server_prefix(home: Home, args: argparse.Namespace, system: str) -> dict[str, Any]:
    """The same in llama-server: cold, warm, and after a restart with its slot restored from disk."""
    rows: dict[str, list[float]] = {"cold": [], "warm": [], "restart": []}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(args.rounds):
            with server_of(home, Path(name)) as address:
                rows["cold"].append(complete(address, system, "a"))
                rows["warm"].append(complete(address, system, "b"))
                post(f"{address}/slots/0?action=save", {"filename": "p.bin"})
            with server_of(home, Path(name)) as address:
                began_s = monotonic_s()
                post(f"{address}/slots/0?action=restore", {"filename": "p.bin"})
                restored_ms = (monotonic_s() - began_s) * 1000
                rows["restart"].append(restored_ms + complete(address, system, "c"))
    summary: dict[str, Any] = {key: {"ms": middle(values)} for key, values in rows.items()}
    for key in ("warm", "restart"):
        summary[key]["ratio"] = round(summary["cold"]["ms"] / summary[key]["ms"], 1)
    return summary


def complete(address: str, system: str, name: str) -> float:
    """Milliseconds to one token."""
    prompt = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nWhat did the owl in note {ord(name)} see?<|im_end|>\n"
    began_s = monotonic_s()
    body = {"prompt": prompt + "<|im_start|>assistant\n", "n_predict": 1, "cache_prompt": True, "id_slot": 0, "temperature": 0}
    post(f"{address}/completion", body)
    return (monotonic_s() - began_s) * 1000


def post(url: str, body: dict[str, Any]) -> None:
    """Ask the server for something; an error when it does not do it."""
    answer = urllib3.request("POST", url, json=body, timeout=WAIT_S, retries=False)
    if answer.status >= 400:
        raise OwlError(f"{url} answered {answer.status}")


# -- people beside background work -----------------------------------------------------------------------------


def people(home: Home, args: argparse.Namespace) -> dict[str, Any]:
    """A person's first token: idle, beside a job that writes, beside a job that reads; and what the job said."""
    rounds = max(5, args.rounds)
    reading = "Sum this up. " + "".join(SENTENCE.format(n, n, n) for n in range(150))
    with broker_of(home) as broker:
        system = system_of(broker, 300)
        timed(broker, ask("Hello.", system, slot="chat"))
        idle = [person(broker, system, n) for n in range(rounds)]
    alone = job_alone(home, system)
    with broker_of(home) as broker:
        timed(broker, ask("Hello.", system, slot="chat"))
        job = Job(broker, ask(STORY, slot="job", is_background=True, max_tokens=300))
        job.wait_for_text()
        writing = []
        for n in range(rounds):
            writing.append(person(broker, system, n))
            if not job.is_running:
                break
        said = job.result()
    beside_reading = []
    with broker_of(home) as broker:
        timed(broker, ask("Hello.", system, slot="chat"))
        for n in range(rounds):
            job = Job(broker, ask(f"{n} {reading}", slot=f"job{n}", is_background=True, max_tokens=2))
            sleep_s(0.3)
            ms = person(broker, system, n)
            if job.is_running and not job.text:
                beside_reading.append(ms)
            job.cancel()
    return {
        "idle_ms": middle(idle),
        "beside_writing_ms": middle(writing),
        "beside_reading_ms": middle(beside_reading) if beside_reading else None,
        "writing_ratio": round(middle(writing) / middle(idle), 2),
        "reading_ratio": round(middle(beside_reading) / middle(idle), 2) if beside_reading else None,
        "samples": [len(idle), len(writing), len(beside_reading)],
        "is_output_identical": said == alone,
        "output_chars": len(said),
    }


def person(broker: Running, system: str, n: int) -> float:
    return timed(broker, ask(f"What did owl number {n} see in the night, and what did it say?", system, slot="chat"))[0]


def job_alone(home: Home, system: str) -> str:
    with broker_of(home) as broker:
        timed(broker, ask("Hello.", system, slot="chat"))
        return timed(broker, ask(STORY, slot="job", is_background=True, max_tokens=300))[2]


class Job:
    """A background generation in a thread of its own."""

    def __init__(self, broker: Running, request: Ask) -> None:
        self.text = ""
        self._has_text = threading.Event()
        self._client = broker.client()
        self._thread = threading.Thread(target=self._work, args=(request,), daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait_for_text(self) -> None:
        self._has_text.wait(WAIT_S)

    def result(self) -> str:
        self._thread.join(600)
        return self.text

    def cancel(self) -> None:
        self._client.close()
        self._thread.join(WAIT_S)

    def _work(self, request: Ask) -> None:
        try:
            for name, value in self._client.stream("generate", {"route": "local", "ask": to_plain(request)}, deadline_s=600):
                if name == "piece":
                    self.text += value["text"]
                    self._has_text.set()
        except (OwlError, OSError, ValueError):
            pass  # cancelled: the measurement is over
        self._has_text.set()


# -- the rest ---------------------------------------------------------------------------------------------------


def embedding(home: Home, args: argparse.Namespace) -> dict[str, Any] | None:
    """Texts a second alone, and one look-up beside a job that writes."""
    try:
        catalogue.add(home, "minilm", lambda stage, done, total: None)
    except OwlError as error:
        print(f"no embedding model: {error}", file=sys.stderr)
        return None
    texts = [SENTENCE.format(n, n, n) for n in range(200)]
    with broker_of(home) as broker, broker.client() as client:
        client.call("embed", {"texts": texts[:1]})
        began_s = monotonic_s()
        client.call("embed", {"texts": texts}, deadline_s=WAIT_S)
        rate = len(texts) / (monotonic_s() - began_s)
        alone = [embed_ms(broker, f"alone {n}") for n in range(11)]
        job = Job(broker, ask(STORY, slot="job", is_background=True, max_tokens=200))
        job.wait_for_text()
        beside = [embed_ms(broker, f"beside {n}") for n in range(11)]
        job.cancel()
    return {"texts_per_s": round(rate, 1), "alone_ms": middle(alone), "beside_ms": middle(beside)}


def embed_ms(broker: Running, text: str) -> float:
    with broker.client() as client:
        began_s = monotonic_s()
        client.call("embed", {"texts": [text]}, deadline_s=WAIT_S)
        return (monotonic_s() - began_s) * 1000


def calls(home: Home, args: argparse.Namespace) -> Any:
    """The function-calling sample, by its own script."""
    return script("bench_calls.py", "--count", str(args.items))


def answers(home: Home, args: argparse.Namespace) -> Any:
    """Mutated answers, by their own script."""
    command = [
        sys.executable,
        str(HERE.parent / "support/fuzz_answers.py"),
        "--count",
        str(args.answers),
        "--processes",
        str(THREADS),
        "--json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return {**json.loads(done.stdout), "is_passed": done.returncode == 0}


def script(name: str, *words: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        done = subprocess.run([sys.executable, str(HERE / name), *words, "--json", str(out)], check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed with {done.returncode}")
        return json.loads(out.read_text()) if out.exists() else None


def show(numbers: dict[str, Any]) -> None:
    """One table on the terminal."""
    print(
        f"{numbers['threads']} threads, batch {numbers['batch']}, window {numbers['window']}, {numbers['rounds']} rounds, medians"
    )
    for size, row in (numbers.get("prefix") or {}).items():
        print(f"first token with a prefix of {size} tokens (state of {row['state_mb']} MB on disk):")
        for name in ("cold", "warm", "restart", "reboot"):
            ratio = f"  {row[name]['ratio']} times quicker" if name != "cold" else ""
            print(f"  {name:<8} {row[name]['ms']:>8} ms, {row[name]['evaluated']:>5} tokens evaluated{ratio}")
        print(f"  (loading the model after the reboot: {row['load_after_reboot_ms']} ms)")
        for name, other in (row["llama_server"] or {}).items():
            ratio = f"  {other['ratio']} times quicker" if "ratio" in other else ""
            print(f"  llama-server {name:<8} {other['ms']:>8} ms{ratio}")
    if found := numbers.get("people"):
        print(f"a person's first token: idle {found['idle_ms']} ms")
        print(f"  beside a job that writes {found['beside_writing_ms']} ms ({found['writing_ratio']} times)")
        print(f"  beside a job that reads  {found['beside_reading_ms']} ms ({found['reading_ratio']} times)")
        print(f"  the job's {found['output_chars']} characters are the same as undisturbed: {found['is_output_identical']}")
    if found := numbers.get("answers"):
        print(f"mutated answers: {json.dumps(found)}")
    if found := numbers.get("embedding"):
        print(f"embedding: {found['texts_per_s']} texts/s; one text {found['alone_ms']} ms, beside a job {found['beside_ms']} ms")


if __name__ == "__main__":
    sys.exit(main())
