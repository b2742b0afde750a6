"""Everything that can go wrong to a box, at random and at once, while messages, tasks, files, notes and reminders flow.

A real home on a small disk of its own, `owlbox serve`, workers in the background, and a clock that somebody sets
(libfaketime). Core, workers and broker are killed, hung and stopped, the disk runs full or takes no writes, the model
fails. What may never be so is looked for all the time. Then all is calm, and what was promised is counted: nothing lost,
nothing done twice, what is uncertain marked, the database whole, the notes as their files are, no process or mount left.
A seed gives the same dice; threads and kernels do not roll them, so a failure also shows what was done.

    python tests/support/chaos.py --seed 7 --length 600
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from chaos_arena import FAKETIME, Arena  # noqa: E402
from chaos_rules import differences, unfinished, violations, watch  # noqa: E402
from chaos_traffic import add_documents, ask_to_be_reminded, drop, edit_notes, plan, run_commands, talk  # noqa: E402

from appliance.clock import monotonic_s  # noqa: E402

DISK = "48m"


def play(arena: Arena, length_s: float, seed: int) -> list[str]:
    """Chaos for a while, then calm, then the count; what was violated."""
    people: list[tuple[Callable[..., None], tuple[str, ...]]] = [
        (talk, ("a", f"{seed}/a")),
        (talk, ("b", f"{seed}/b")),
        (talk, ("c", f"{seed}/c")),
        (plan, (f"{seed}/plan",)),
        (drop, (f"{seed}/drop",)),
        (run_commands, (f"{seed}/commands",)),
        (add_documents, (f"{seed}/documents",)),
        (edit_notes, (f"{seed}/notes",)),
        (ask_to_be_reminded, (f"{seed}/reminders",)),
        (watch, ()),
    ]
    keeper = threading.Thread(target=arena.keep, name="keeper")
    # What asks or watches goes on to the end: a thread that fails would leave something unproven.
    threading.excepthook = lambda args: arena.broken.update(
        {f"{args.thread and args.thread.name} failed: {args.exc_value!r}": None}
    )
    threads = [threading.Thread(target=work, args=(arena, *args), name=work.__name__) for work, args in people]
    for thread in (keeper, *threads):
        thread.start()
    begun_s = monotonic_s()
    try:
        arena.is_over.wait(min(4.0, length_s / 4))
        waited_s = arena.wait_for_words()
        while monotonic_s() < begun_s + waited_s + length_s:
            arena.hurt()
            arena.is_over.wait(arena.dice.uniform(0.5, 3.5))
        arena.note("all is calm")
        arena.is_over.set()
        for thread in threads:
            thread.join(60)
        arena.settle(unfinished(arena), lambda arena: not differences(arena))
    finally:
        arena.is_over.set()
        arena.is_closed.set()
        keeper.join(60)
    return [*arena.stop(), *arena.broken, *violations(arena)]


def run(seed: int, length_s: float, disk: Path) -> int:
    """The whole of it on a disk; the exit code."""
    root, runtime = Path(tempfile.mkdtemp(prefix="chaos-")), Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    print(f"chaos: seed {seed}, {length_s:g} s", flush=True)
    arena = Arena(root, runtime, disk, random.Random(seed))
    problems = ["it did not come to an end"]
    try:
        problems = play(arena, length_s, seed)
        made = arena.promises
        print(f"kept: {len(made.messages)} messages, {len(made.tasks)} tasks, {len(made.dropped) + len(made.letters)} files")
        more = (made.commands, made.documents, made.reminders)
        print("and: {} commands, {} documents, {} reminders".format(*map(len, more)))
        print(f"done: {arena.counts}")
    finally:
        arena.kill()
        for problem in problems:
            print(f"VIOLATED: {problem}")
        if problems:
            print("the last 30 actions:", *arena.actions, sep="\n  ")
            shutil.copytree(arena.box.home.root, root / "home")
            shutil.copy(runtime / "output.txt", root / "output.txt")
            print(f"the home is kept in {root}; again: python tests/support/chaos.py --seed {seed} --length {length_s:g}")
        else:
            shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    return 1 if problems else 0


def on_a_small_disk(words: list[str]) -> int:
    """This program again, with a disk of its own that no other process sees; as root, or in a user namespace."""
    disk, tried = Path(tempfile.mkdtemp(prefix="disk-")), ""
    # libfaketime leaves files of killed processes in /dev/shm: these go with the namespace.
    mount = f'mount -t tmpfs -o size={DISK},mode=0700 small "$0" && mount -t tmpfs shm /dev/shm && exec "$@"'
    try:
        for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
            inside = [*unshare, "sh", "-c", mount, str(disk)]
            probe = subprocess.run([*inside, "true"], capture_output=True, text=True)
            if probe.returncode == 0:
                return subprocess.run([*inside, sys.executable, __file__, *words, "--disk", str(disk)]).returncode
            tried += probe.stderr
    finally:
        disk.rmdir()
    print(f"a small disk cannot be mounted here: {tried}", file=sys.stderr)
    return 2


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="chaos, then calm, then the count")
    parser.add_argument("--seed", type=int, default=None, help="for the same dice again")
    parser.add_argument("--length", type=float, default=600, metavar="S", help="seconds of chaos")
    parser.add_argument("--disk", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not FAKETIME.exists():
        print(f"no {FAKETIME}: apt-get install faketime", file=sys.stderr)
        return 2
    if args.disk is None:
        return on_a_small_disk(sys.argv[1:])
    return run(random.SystemRandom().randrange(10**6) if args.seed is None else args.seed, args.length, args.disk)


if __name__ == "__main__":
    sys.exit(main())
