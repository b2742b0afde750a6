"""What short commands cost: CPU seconds of `owlbox`, with a core running, beside the same of `llm` and of Python alone.

    python tests/bench/bench_start.py [--llm FILE] [--rounds N] [--json FILE]

All take turns in one run; the smallest of the rounds counts, because a busy machine only ever adds. Compiled files may be
kept, as a person has them. Knows nothing about what is good enough.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import figures
from process import PLAY, Box, script, standing_core

COMMANDS = {
    "owlbox --version": ("--version",),
    "owlbox --help": ("--help",),
    "owlbox status": ("status",),
    "owlbox task list": ("task", "list"),
    "owlbox search": ("search", "owl"),
}


def prepare(box: Box) -> None:
    """No model is needed."""
    script(box, PLAY)
    box.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def cpu_s(command: list[str], environ: Mapping[str, str]) -> float:
    """CPU seconds of one run of a command."""
    child = subprocess.Popen(command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, f"{command} ended with {child.returncode}"
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llm", default="", metavar="FILE", help="the command llm")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", default="build/bench-start.json", metavar="FILE")
    args = parser.parse_args()
    with standing_core(prepare) as core:
        owlbox = [str(Path(sys.executable).with_name("owlbox")), "--home", str(core.box.home.root)]
        ways = {name: [*owlbox, *words] for name, words in COMMANDS.items()}
        ways["python -c pass"] = [sys.executable, "-c", "pass"]
        if args.llm:
            ways |= {f"llm {word}": [args.llm, word] for word in ("--version", "--help")}
        took: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(args.rounds + 1):
            for name, command in ways.items():
                took[name].append(cpu_s(command, core.box.environ))
    found = {name: min(times[1:]) for name, times in took.items()}  # the first one warms the disk
    for name, seconds in found.items():
        print(f"{name:<20} {seconds:.3f} s CPU")
    figures.write(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
