"""Everything that can go wrong to a box, at random and at once, while messages, tasks, files, notes and reminders flow.

A real home on a small disk of its own, `owlbox serve` with a web process and a server of tools, workers in the background, and
a clock that somebody sets (libfaketime). What may never be so is looked for all the time. Then all is calm, and what was promised
is counted: nothing lost, nothing done twice, no more forgiven than was done to it, what is uncertain marked, the database whole,
the notes as their files are, backups that are some, every word about a fault a sentence of ours, no process or mount left.
A seed gives the same dice; threads and kernels do not roll them, so a failure also shows what was done.

    python tests/support/chaos.py --seed 7 --length 600
    python tests/support/chaos.py --sabotage            # ten broken builds, each of which has to be noticed
"""

import argparse
import faulthandler
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from chaos_arena import COMMAND_S, FAKETIME, Arena  # noqa: E402
from chaos_disk import small_disk  # noqa: E402
from chaos_drills import Drills  # noqa: E402
from chaos_faults import Faults  # noqa: E402
from chaos_parts import browse, change_minds, configure, remember, save, type_commands  # noqa: E402
from chaos_rules import differences, unfinished, violations, watch  # noqa: E402
from chaos_sabotage import SABOTAGES, sabotaged  # noqa: E402
from chaos_traffic import add_documents, ask_to_be_reminded, drop, edit_notes, plan, run_commands, talk  # noqa: E402
from recorded_disk import LIBC  # noqa: E402

from appliance.clock import monotonic_s  # noqa: E402

SABOTAGE_S = 120.0  # in which a broken build has to be noticed
PR_SET_PDEATHSIG = 1
FAULTS = 3  # by dice, between two drills


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
        (browse, (f"{seed}/web",)),
        (change_minds, (f"{seed}/undo",)),
        (remember, (f"{seed}/memory",)),
        (save, (f"{seed}/backups",)),
        (configure, (f"{seed}/settings",)),
        (type_commands, (f"{seed}/typed",)),
        (watch, ()),
    ]
    with kept(arena):
        threads = [threading.Thread(target=work, args=(arena, *args), name=work.__name__) for work, args in people]
        for thread in threads:
            thread.start()
        faults, begun_s = Faults(arena), monotonic_s()
        drills = Drills(arena, faults)
        arena.is_over.wait(min(4.0, length_s / 4))
        waited_s = arena.wait_for_words()
        while monotonic_s() < begun_s + waited_s + length_s:
            for _ in range(FAULTS):
                faults.hurt()
                arena.is_over.wait(arena.dice.uniform(0.5, 3.5))
            drills.hold()
        arena.note("all is calm")
        arena.is_over.set()
        for thread in threads:
            thread.join(COMMAND_S)
        arena.settle(unfinished(arena), lambda arena: not differences(arena))
    problems = [*arena.stop(), *arena.broken, *violations(arena)]
    print(f"counted after {monotonic_s() - begun_s:.0f} s")
    return problems


def drill(arena: Arena, length_s: float) -> list[str]:
    """Each drill in turn, with nobody there beside, until something is violated, or for a while; what was violated."""
    begun_s = monotonic_s()
    with kept(arena):
        drills = Drills(arena, Faults(arena))
        while not arena.broken and monotonic_s() < begun_s + length_s:
            drills.hold()
    print(f"noticed after {monotonic_s() - begun_s:.0f} s" if arena.broken else f"done: {arena.counts}")
    return list(arena.broken)


@contextmanager
def kept(arena: Arena) -> Iterator[None]:
    """A core and workers, for as long as this lasts."""
    keeper = threading.Thread(target=arena.keep, name="keeper")
    # What asks or watches goes on to the end: a thread that fails would leave something unproven.
    threading.excepthook = lambda args: arena.broken.update(
        {f"{args.thread and args.thread.name} failed: {args.exc_value!r}": None}
    )
    keeper.start()
    try:
        yield
    finally:
        arena.is_over.set()
        arena.is_closed.set()
        keeper.join(60)


def run(seed: int, length_s: float, sabotage: str = "", *, has_people: bool = True) -> int:
    """The whole of it on a disk; the exit code."""
    root, runtime = Path(tempfile.mkdtemp(prefix="chaos-")), Path(tempfile.mkdtemp(prefix="owl-"))
    place = root / "disk"
    place.mkdir()
    disk, problems = small_disk(place), ["it did not come to an end"]
    print(
        f"chaos: seed {seed}, {length_s:g} s{'' if disk.can_lose else ', no power cuts: they need root and /dev/fuse'}", flush=True
    )
    arena = None
    try:
        product = sabotaged(sabotage, root) if sabotage else ROOT
        arena = Arena(product, root, runtime, disk, random.Random(seed))
        problems = play(arena, length_s, seed) if has_people else drill(arena, length_s)
        made = arena.promises
        print(f"kept: {len(made.messages)} messages, {len(made.tasks)} tasks, {len(made.dropped) + len(made.letters)} files")
        more = (made.commands, made.documents, made.reminders, made.memories, made.kept, made.questions)
        print("and: {} commands, {} documents, {} reminders, {} + {} memories, {} questions".format(*map(len, more)))
        print(f"and: {made.backups} backups, {made.setting} settings; told: {len(arena.told)} sentences")
        print(f"done: {arena.counts}")
        if has_people and not (made.messages and (made.tasks or made.dropped)):
            problems.append("nothing was kept at all")
    finally:
        if arena is not None:
            arena.kill()
        for problem in problems:
            print(f"VIOLATED: {problem}")
        if problems and not sabotage and arena is not None:
            print(f"the last {len(arena.actions)} actions:", *arena.actions, sep="\n  ")
            shutil.copytree(arena.box.home.root, root / "home")
            shutil.copy(runtime / "output.txt", root / "output.txt")
            print(f"the home is kept in {root}; again: python tests/support/chaos.py --seed {seed} --length {length_s:g}")
        disk.close()
        if not problems or sabotage:
            shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    return 1 if problems else 0


def sabotage_all(names: list[str], seed: int) -> int:
    """Each of the broken builds, and after how long it was noticed by what; 1 when one was not."""
    missed = 0
    for name in names:
        words = [sys.executable, __file__, "--inside", "--seed", str(seed), "--length", str(SABOTAGE_S), "--build", name]
        done = subprocess.run(words, capture_output=True, text=True)
        found = [line.removeprefix("VIOLATED: ") for line in done.stdout.splitlines() if line.startswith("VIOLATED: ")]
        if not found or "it did not come to an end" in found:
            missed += 1
            found = [f"NOT NOTICED {done.stderr[-2000:]}"]
        took = "".join(re.findall(r"noticed after (\d+) s", done.stdout))
        print(f"{name:24} {took:>4} s  {found[0][:150]}", flush=True)
    print(f"{len(names) - missed} of {len(names)} sabotaged builds were noticed")
    return 1 if missed else 0


def in_a_namespace(words: list[str]) -> int:
    """This program again, in namespaces of its own, as root or as a user who is root there.

    What it mounts is seen by no other process, and when this one ends, however it does, the kernel ends all that it started: a
    disk that nobody serves any more would let whoever calls sync wait for ever.
    """
    tried = ""
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        # The shell stays, to take note of orphans that end. What libfaketime leaves in /dev/shm goes with the namespace.
        mount = 'mount -t tmpfs shm /dev/shm && "$@"; exit $?'
        inside = [*unshare, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", mount, "sh"]
        probe = subprocess.run([*inside, "true"], capture_output=True, text=True)
        if probe.returncode == 0:
            break
        tried += probe.stderr
    else:
        print(f"a small disk cannot be mounted here: {tried}", file=sys.stderr)
        return 2
    place = tempfile.mkdtemp(prefix="chaos-", dir="/tmp")  # short: sockets lie below it
    child = subprocess.Popen(
        [*inside, sys.executable, __file__, "--inside", *words],
        env={**os.environ, "TMPDIR": place},
        preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.kill())
    code = child.wait()
    if code < 0 or not os.listdir(place):
        shutil.rmtree(place, ignore_errors=True)
    return code


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="chaos, then calm, then the count")
    parser.add_argument("--seed", type=int, default=None, help="for the same dice again")
    parser.add_argument("--length", type=float, default=600, metavar="S", help="seconds of chaos")
    parser.add_argument("--sabotage", nargs="*", metavar="NAME", help=f"broken builds, all of them or some: {', '.join(SABOTAGES)}")
    parser.add_argument("--drills", action="store_true", help="only what is done on purpose, with nobody there beside")
    parser.add_argument("--build", default="", help=argparse.SUPPRESS)
    faulthandler.register(signal.SIGUSR1)  # where each thread is, when it does not come to an end
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not FAKETIME.exists():
        print(f"no {FAKETIME}: apt-get install faketime", file=sys.stderr)
        return 2
    if not args.inside:
        return in_a_namespace(sys.argv[1:])
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    if args.sabotage is not None:
        return sabotage_all(args.sabotage or list(SABOTAGES), seed)
    return run(seed, args.length, args.build, has_people=not (args.drills or args.build))


if __name__ == "__main__":
    sys.exit(main())
