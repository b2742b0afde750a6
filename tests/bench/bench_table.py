"""Every measurement that has something to compare with, as one table in docs/background/benchmarks.md. Run it with `make bench`.

    python tests/bench/bench_table.py [--only ROW,ROW] [--peers FOLDER] [--list] [--dry]

A row is one of the scripts beside this one, in a process of its own, with few rounds: about 20 minutes in all on a quiet
machine. What it is compared with takes turns with it or follows it in the same run. Programs that are no part of the
checkout are installed into a virtual environment of `--peers`; a row without its alternative says why it was not measured.
The numbers are kept in docs/background/benchmarks.json, of which the page is made; `--only` replaces those rows alone and `--dry`
writes neither. Knows nothing about what is good enough.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import benchmark_page
import figures
from benchmark_page import Figure

from appliance import clock

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NUMBERS = ROOT / "docs/background/benchmarks.json"
PAGE = ROOT / "docs/background/benchmarks.md"
LOCOMO = ROOT.parent / "shared" / "data" / "locomo-dev.json"
PEERS = {"llm": ("llm", "openai"), "elia": ("elia-chat",)}  # a command, and the packages that bring it
ELIA_SHOWS = "Send message"  # in its last line, once its input line is there
LIMIT_S = 900


class NotMeasured(Exception):
    """A row has nothing to be compared with here; the text says why."""


class Peers:
    """Programs to compare with, installed on first use into a virtual environment of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, name: str) -> str:
        """The path of a command; NotMeasured when it cannot be installed."""
        bin_folder = self._folder / name / "bin"
        if not (bin_folder / name).exists():
            subprocess.run([sys.executable, "-m", "venv", str(bin_folder.parent)], check=True)
            done = subprocess.run(
                [str(bin_folder / "pip"), "install", "-q", *PEERS[name]], capture_output=True, text=True, check=False
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise NotMeasured(f"pip cannot install {PEERS[name][0]}: {last[:120]}")
        return str(bin_folder / name)


def script(name: str, *words: str) -> dict[str, Any]:
    """The numbers that a script beside this one writes; NotMeasured with its last line when it fails."""
    with tempfile.TemporaryDirectory(prefix="bench-table-") as folder:
        out = Path(folder) / "numbers.json"
        command = [sys.executable, str(HERE / f"bench_{name}.py"), *words, "--json", str(out)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        sys.stderr.write(done.stdout)
        if done.returncode or not out.exists():
            sys.stderr.write(done.stderr[-3000:])
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NotMeasured(f"bench_{name}.py failed: {last.replace(str(ROOT), '')[:120]}")
        return figures.read(out)


# -- rows ------------------------------------------------------------------------------------------------------


def start(peers: Peers) -> list[Figure]:
    found = script("start", "--llm", peers.command("llm"))
    llm = "llm --version"
    rows = [("owlbox --version", llm), ("owlbox --help", "llm --help"), ("owlbox status", llm), ("owlbox task list", llm)]
    return [Figure(f"`{ours}`, CPU", "s", found[ours], f"`{theirs}`", found[theirs]) for ours, theirs in rows]


def hello(peers: Peers) -> list[Figure]:
    found, rows, beside = script("hello", "--rounds", "5"), [], "llama-cpp-python alone, the same file"
    for case, what in (("never said before", "new words"), ("said before", "the same words again")):
        ours, theirs = found[case]["owlbox"], found[case]["llama-cpp-python"]
        rows.append(Figure(f'"hello", {what}, to the first word', "s", ours["first_s"], beside, theirs["first_s"]))
        rows.append(Figure(f'"hello", {what}, to the end', "s", ours["end_s"], beside, theirs["end_s"]))
    token_ms = [1000 * (one["end_s"] - one["first_s"]) / max(1, one["output_tokens"] - 1) for one in (ours, theirs)]
    return [
        *rows,
        Figure('"hello", each token of the answer', "ms", token_ms[0], beside, token_ms[1]),
        Figure('"hello", tokens of the prompt', "tokens", ours["prompt_tokens"], beside, theirs["prompt_tokens"]),
    ]


def prefix(peers: Peers) -> list[Figure]:
    found = script("engine", "--only", "prefix", "--sizes", "2000", "--rounds", "3")["prefix"]["2000"]
    if not (server := found["llama_server"]):
        raise NotMeasured("xllamacpp is not installed")
    cases = {
        "cold": ("cold", "llama-server, cold"),
        "warm": ("again in the same process", "llama-server, the prompt cached"),
        "restart": ("after a restart", "llama-server, its slot restored from disk"),
    }
    return [
        Figure(f"first token, prefix of 2,000 tokens, {what}", "ms", found[key]["ms"], beside, server[key]["ms"])
        for key, (what, beside) in cases.items()
    ]


def lookup(peers: Peers) -> list[Figure]:
    found = script("lookup", "--rounds", "3")["rows"]
    different = [title for title, one in found.items() if not one["is_same"]]
    if different:
        raise NotMeasured(f"the texts differ: {different[0]}")
    cases = ("a note, word for word, greedy", "a note, word for word, repeat penalty 1.1", "a story (nothing to look up), greedy")
    return [
        Figure(f"the answer: {case}, CPU", "s", found[case]["with_s"], "without guesses", found[case]["without_s"])
        for case in cases
    ]


def remote(peers: Peers) -> list[Figure]:
    found = script("remote", "--others", str(Path(peers.command("llm")).with_name("python")))
    ours = found["openai"]
    return [
        Figure("an answer of a remote model, CPU", "ms", ours["turn_cpu_ms"], "`llm`", found["llm"]["turn_cpu_ms"]),
        Figure("each further word of it, CPU", "µs", ours["word_cpu_us"], "`llm`", found["llm"]["word_cpu_us"]),
        Figure("each further word of it, CPU", "µs", ours["word_cpu_us"], "`openai`", found["openai client"]["word_cpu_us"]),
    ]


def queue(peers: Peers) -> list[Figure]:
    found = script("queue", "--tasks", "2000", "--rounds", "3")
    rows = []
    for what in ("claim", "claim and keep the result"):
        for processes in (1, 16):
            rates = found[f"{what}, {processes} processes"]["per_second"]
            title = f"{what}, {processes} process{'es' if processes > 1 else ''}"
            rows.append(Figure(title, "tasks/s", rates["owlbox"], "huey, as it comes", rates["huey, as it comes"], "more"))
    return rows


def search(peers: Peers) -> list[Figure]:
    found = script("retrieval", "--sizes", "10000", "--locomo", "")["10000"]
    ms = {name: one["p50_ms"] for name, one in found.items() if isinstance(one, dict)}
    both = ms["plain FTS5"] + ms["plain vec0 int8"]
    return [
        Figure("search by words among 10,000 passages, p50", "ms", ms["owlbox find (words)"], "FTS5 alone", ms["plain FTS5"]),
        Figure("search by words and meaning, p50", "ms", ms["owlbox search (both)"], "FTS5 and sqlite-vec alone", both),
    ]


def quality(peers: Peers) -> list[Figure]:
    file = Path(os.environ.get("LOCOMO") or LOCOMO)
    if not file.is_file():
        raise NotMeasured("no LoCoMo file (LOCOMO=FILE; github.com/snap-research/locomo)")
    found = script("retrieval", "--sizes", "", "--locomo", str(file))["locomo"]
    names = ("recall@5", "recall@10", "MRR")
    return [
        Figure(f"LoCoMo evidence, {name}", "", ours, "FTS5 alone", plain, "more")
        for name, ours, plain in zip(names, found["owlbox"], found["fts5"], strict=True)
    ]


def sandbox(peers: Peers) -> list[Figure]:
    pairs = script("sandbox")["pairs"]

    def beside(pair: str) -> tuple[float, float]:
        return pairs[pair]["wall_ms"], pairs[pair]["wall_ms"] / pairs[pair]["wall_ratio"]

    one, bubblewrap = beside("sandbox / bubblewrap")
    tool, bash = beside("tool / bare bash")
    return [
        Figure("a sandboxed command", "ms", one, "plain bubblewrap", bubblewrap),
        Figure("the tool `exec`", "ms", tool, "bare bash", bash),
    ]


def screen(peers: Peers) -> list[Figure]:
    words = ("--beside", peers.command("elia"), "--beside-shows", ELIA_SHOWS, "--idle", "2")
    found = script("screen", *words)
    ours, theirs = found["owlbox"], found["beside"]
    return [
        Figure("the screen over ssh, to the input line", "ms", ours["first_paint_ms"], "elia", theirs["first_paint_ms"]),
        Figure("the screen over ssh, a key until its letter, median", "ms", ours["echo_ms"], "elia", theirs["echo_ms"]),
    ]


def large(peers: Peers) -> list[Figure]:
    found = script("large", "--llm", str(Path(peers.command("llm")).with_name("python")))
    cpu_s, list_s, memory_mb = found["cpu_s"], found["list_s"], found["memory_mb"]
    count = f"{found['count']:,}"
    return [
        Figure(f"`owlbox doctor`, {count} entries, CPU", "s", cpu_s["doctor"], "`quick_check` alone", cpu_s["quick_check"]),
        Figure(f"100 of {count} schedules, CPU", "s", list_s["list_schedules"], "their rows from SQL alone", list_s["plain SQL"]),
        Figure("import of the core, CPU", "s", cpu_s["import of the core"], "import of `llm`", cpu_s["import of llm"]),
        Figure("memory of the model process without a model", "MB", memory_mb["broker"], "the core", memory_mb["core"]),
    ]


def entries(peers: Peers) -> list[Figure]:
    found = script("entries", "--quick")["sizes"]["1000"]
    return [
        Figure(f"{verb} an entry, CPU", "ms", found[verb]["cpu_ms"], "plain SQL", found[verb]["plain_cpu_ms"])
        for verb in ("set", "get", "edit")
    ]


def tools(peers: Peers) -> list[Figure]:
    found = script("mcp", "--calls", "200")
    return [
        Figure("a tool of an MCP server, median", "ms", found["call_ms"], "the protocol's own client", found["own_client_call_ms"])
    ]


def idle(peers: Peers) -> list[Figure]:
    found = script("idle", "--minutes", "2")
    beside = ("a process that sleeps", found["sleeping_process_wakes"] / found["seconds"])
    rows = [Figure(f"idle, wake-ups, {name}", "/s", one["wakes_per_s"], *beside) for name, one in found["ways"].items()]
    most = max(one["written_bytes"] for one in found["ways"].values())
    return [*rows, Figure("idle, written, the most of these", "bytes", most, "a process that sleeps", 0)]


LISTED = (start, hello, prefix, lookup, remote, queue, search, quality, sandbox, screen, entries, large, tools, idle)
ROWS: dict[str, Callable[[Peers], list[Figure]]] = {one.__name__: one for one in LISTED}


# -- the table -------------------------------------------------------------------------------------------------


def machine() -> str:
    """This machine in words that name nobody."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))), os.uname().machine)
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} cores, {memory_gb:.0f} GB, {os.uname().machine}, Python {sys.version.split()[0]}"


def measured(name: str, peers: Peers) -> dict[str, Any]:
    """One row: its figures, or why there are none."""
    print(f"... {name}", file=sys.stderr, flush=True)
    began_s = clock.monotonic_s()
    row: dict[str, Any] = {"date": clock.iso(clock.now_ms())[:10], "machine": machine(), "load": round(os.getloadavg()[0], 1)}
    try:
        row["figures"] = [figure.plain() for figure in ROWS[name](peers)]
    except NotMeasured as why:
        row["reason"] = str(why)
    except (KeyError, OSError, subprocess.SubprocessError) as error:
        traceback.print_exc()
        row["reason"] = f"{type(error).__name__} in its measurement"
    return {**row, "took_s": round(clock.monotonic_s() - began_s)}


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="ROW,ROW", help=f"some of {', '.join(ROWS)}")
    parser.add_argument("--peers", type=Path, default=ROOT / "build" / "peers", metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--dry", action="store_true", help="print the table and write nothing")
    args = parser.parse_args(words)
    if args.list:
        print("\n".join(ROWS))
        return 0
    chosen = list(filter(None, args.only.split(","))) or list(ROWS)
    if unknown := [name for name in chosen if name not in ROWS]:
        parser.error(f"no row {unknown[0]} (rows: {', '.join(ROWS)})")
    peers = Peers(args.peers)
    rows = {name: measured(name, peers) for name in chosen}
    known = figures.read(NUMBERS)["rows"] if NUMBERS.exists() else {}
    numbers = {"rows": {name: {**known, **rows}[name] for name in ROWS if name in rows or name in known}}
    print(benchmark_page.table(rows))
    if not args.dry:
        figures.write(NUMBERS, numbers)
        PAGE.write_text(benchmark_page.page(numbers), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
