"""Measurements of delegation: what handing work over costs with a model that answers at once, and what it saves in tokens.

    python tests/bench/bench_roles.py [--rounds N] [--json FILE]

An answer that calls a tool which does nothing is timed beside one that delegates to a role whose model answers at once,
in the same core: the difference is a run, its record, its end, and the way home. Then a task of ten steps, each of which
reads a page of text, is done by the one who talks, and by a role that is asked to: counted is what the model is sent,
during the task and in the ten turns of small talk after it. Knows nothing about what is good enough.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures
from stores import let_chats_do_all
from test_delegation import call, opened, use
from test_scenarios import CHAT, Stage

from appliance.clock import monotonic_s
from appliance.records import RunSettings

STEPS, TALKS = 10, 10
PAGE = "Owls sleep by day, hunt by night and moult in summer. " * 30  # about 1,600 characters
EVERY: dict[str, Any] = {"repeat": True}


def steps() -> list[Any]:
    return [call("read_file", path=f"page{n}.txt") for n in range(STEPS)]


def answers(rounds: int) -> dict[str, list[Any]]:
    """What the model says to which prompt."""
    alone = [use("read_file", path=f"page{n}.txt") for n in range(STEPS)]
    pages = [use("write_file", path=f"page{n}.txt", content=PAGE) for n in range(STEPS)]
    return {
        "warm": [use("list_tasks"), "Done.", use("delegate", agent="worker", task="[at-once] Say it."), "Done."],
        "tool": [use("list_tasks"), "Done."] * rounds,
        "delegated": [use("delegate", agent="worker", task="[at-once] Say it."), "Done."] * rounds,
        "at-once": [{"text": "Done.", **EVERY}],
        "pages": [*pages, "Written."],
        "alone": [*alone, "They moult in summer."],
        "handed": [use("delegate", agent="worker", task="[ten-steps] Read them: when do they moult?"), "They moult in summer."],
        "ten-steps": [*steps(), "They moult in summer."],
        "talk": [{"text": "Hoot.", **EVERY}],
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="delegations, and as many plain calls")
    parser.add_argument("--json", default="build/bench-roles.json", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), answers(args.rounds)) as stage:
        numbers = {"rounds": args.rounds, "overhead": overhead(stage, args.rounds), "tokens": tokens(stage)}
    figures.write(args.json, numbers)
    show(numbers)
    return 0


def overhead(stage: Stage, rounds: int) -> dict[str, float]:
    """Milliseconds of an answer with a plain call, and with a delegation, in turns."""
    took: dict[str, list[float]] = {"tool": [], "delegated": []}
    for _ in range(2):
        stage.ask("[warm] Go.", CHAT)
    for _ in range(rounds):
        for name, times in took.items():
            begun_s = monotonic_s()
            assert stage.ask(f"[{name}] Go.", CHAT).said == "Done."
            times.append((monotonic_s() - begun_s) * 1000)
    plain, handed = (statistics.median(times) for times in took.values())
    return {"tool_ms": plain, "delegated_ms": handed, "overhead_ms": handed - plain, "ratio": handed / plain}


def tokens(stage: Stage) -> dict[str, Any]:
    """What the model was sent for ten steps done in one context, and handed over; and in the talk that follows."""
    let_chats_do_all(stage.core.home)
    stage.ask("[pages] Write them.", RunSettings(approval="auto"))
    found: dict[str, Any] = {}
    for name in ("alone", "handed"):
        told = stage.ask(f"[{name}] When do owls moult?", CHAT)
        assert told.said == "They moult in summer.", told.items
        runs = [told.run, *(job.run for job in stage.core.jobs.jobs_of(told.run))]
        task = sum(sent(stage, run) for run in runs)
        own = sent(stage, told.run)
        for n in range(TALKS):
            stage.ask(f"[talk] And {n}?", CHAT, thread=told.run)
        found[name] = {"task": task, "parent": own, "talk": sent(stage, told.run) - own}
    return found


def sent(stage: Stage, run: str) -> int:
    return sum(int(turn["prompt_tokens"]) for turn in stage.core.runs.turns(run))


def show(numbers: dict[str, Any]) -> None:
    """The tables."""
    cost = numbers["overhead"]
    print(f"{'an answer with':<28}{'median':>10}")
    print(f"{'a call that does little':<28}{cost['tool_ms']:>7.1f} ms")
    print(f"{'a delegation':<28}{cost['delegated_ms']:>7.1f} ms")
    print(f"{'more':<28}{cost['overhead_ms']:>7.1f} ms  ({cost['ratio']:.2f} times)\n")
    alone, handed = numbers["tokens"]["alone"], numbers["tokens"]["handed"]
    print(f"{'tokens sent':<28}{'one context':>14}{'delegated':>14}{'ratio':>8}")
    lines = {"task": f"a task of {STEPS} steps", "parent": "of that by who talks", "talk": f"{TALKS} turns of talk after it"}
    for name, text in lines.items():
        print(f"{text:<28}{alone[name]:>14}{handed[name]:>14}{handed[name] / alone[name]:>8.2f}")


if __name__ == "__main__":
    sys.exit(main())
