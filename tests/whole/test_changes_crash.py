"""kill -9 while four processes write at once: every change is whole or not there, and a cut-off run can be taken back."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_database import child
from test_undo import Bench

from appliance.clock import sleep_s
from appliance.errors import Conflict
from appliance.knowledge.contents import digest
from appliance.knowledge.verb_arguments import Write
from appliance.knowledge.views import Actor

ROUNDS = 3
LINES = 40
# A body repeats one word in every line, so that half an edit shows; the two of a pair are always written together.
WRITER = """
    import random
    from appliance.knowledge.entries import Content, Entries
    from appliance.knowledge.change_log import By
    from appliance.knowledge.verb_arguments import Look, Write
    from appliance.knowledge.schemes import Schemes
    from appliance.knowledge.verbs import Verbs
    from appliance.knowledge.views import Actor, Views
    store = Store.open(path)
    seed, folder, run = sys.argv[2:5]
    entries, views, dice = Entries(store), Views(store), random.Random(seed)
    verbs, actor = Verbs(store, entries, views, Schemes()), Actor("model" if run else "client", run, 1, 1)
    VERBS = ["set", "pair", "edit", "cp", "blob", "mv", "set", "edit", "pair", "rm"]
    dice.shuffle(VERBS)
    print("ready", flush=True)
    for number in range(100_000):
        word = f"{seed}-{number}"
        body = "".join(f"{line} {word}\\n" for line in range(40))
        one, other = (f"{folder}/{dice.randrange(8)}" for _ in "ab")
        verb = VERBS[number % len(VERBS)]
        if verb == "set":
            done = verbs.set(actor, one, Write(body, is_literal=True))
        elif verb == "edit":  # a line at a time, in one write
            done = verbs.set(actor, one, Write("".join(f"s/(?m)^{line} .*$/{line} {word}/r\\n" for line in range(40)).strip()))
        elif verb == "pair":
            done = verbs.set(actor, f"{folder}/pair/*", Write(body, is_literal=True))
        elif verb == "blob":
            with store.write(run=run, durable=True):
                for side in ("left", "right"):
                    entries.put(f"{folder}/bytes/{side}", Content(blob=word.encode() * 100), By(actor.tier, run))
            done = None
        elif verb == "rm":
            done = verbs.rm(actor, one, Look())
        else:
            done = (verbs.cp if verb == "cp" else verbs.mv)(actor, one, other)
        if done is not None and done.status not in (200, 400, 404, 409):
            sys.exit(f"{verb} {one} {other}: {done}")
        print(verb, number, flush=True)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "owlbox.db")
    for folder in ("memory://ours", "memory://mine"):
        for name in ("0", "1", "pair/left", "pair/right"):
            text = "".join(f"{line} first\n" for line in range(LINES))
            made.verbs.set(Actor("client"), f"{folder}/{name}", Write(text, is_literal=True))
    yield made
    made.store.close()


def words(body: str) -> set[str]:
    return {line.partition(" ")[2] for line in body.splitlines()}


def assert_whole(bench: Bench) -> None:
    """Nothing is damaged, half written, or different from what its history says."""
    assert bench.store.problems() == []
    rows = bench.store.rows(
        "SELECT scope, path, body, hash, data FROM entries LEFT JOIN blobs ON entry = id WHERE path GLOB 'memory:*' ORDER BY path"
    )
    for scope, path, body, known, data in rows:
        assert known == digest(body.encode() if data is None else data), path
        assert data is not None or (len(words(body)) == 1 and len(body.splitlines()) == LINES), f"half an edit: {scope} {path}"
    bodies = {path: (body, data) for _, path, body, _, data in rows}
    for folder in ("ours", "mine"):
        for pair in ("pair", "bytes"):
            left, right = (bodies.get(f"memory://{folder}/{pair}/{side}") for side in ("left", "right"))
            assert left == right, f"half of a pair in {folder}"
    bench.chains()


@pytest.mark.covers("S-128", "B-182")
def test_kills_among_four_writers_leave_every_change_whole_and_a_run_that_can_be_taken_back(bench: Bench) -> None:
    dice, shared = random.Random(7), bench.run()
    done: set[str] = set()
    for number in range(ROUNDS):
        before, mine = bench.content(), bench.run()
        own = [row for row in before[0] if row[2].startswith("memory://mine/")]
        own_bytes = bench.store.rows(
            "SELECT data FROM blobs JOIN entries ON id = entry WHERE path GLOB 'memory://mine/*' ORDER BY id"
        )
        plans = (
            ("a", "memory://mine", mine),
            ("b", "memory://ours", shared),
            ("c", "memory://ours", ""),
            ("d", "memory://ours", ""),
        )
        writers = [child(WRITER, bench.store.path, f"{name}{number}", folder, run) for name, folder, run in plans]
        told = [cut_off(writer, dice) for writer in start(writers)]
        for lines in told:
            done |= {line.split()[0] for line in lines}
        assert_whole(bench)
        for run, lines in ((mine, told[0]), (shared, told[1])):
            kept = bench.store.value("SELECT COUNT(*) FROM changesets WHERE run = ?", (run,))
            assert kept >= len(lines)  # what was reported is there: every verb of a run leaves something
        assert bench.undo(mine).by
        assert [row for row in bench.content()[0] if row[2].startswith("memory://mine/")] == own
        data = "SELECT data FROM blobs JOIN entries ON id = entry WHERE path GLOB 'memory://mine/*' ORDER BY id"
        assert bench.store.rows(data) == own_bytes
        left = bench.everything()
        try:
            bench.undo(shared)  # others wrote to the same entries
        except Conflict as error:
            # The first ten are named; those that are gone come first, and may be as many.
            assert ("memory://ours/" in error.message or "is gone (gone)" in error.message) and bench.everything() == left
        assert_whole(bench)
    assert done >= {"set", "edit", "pair", "cp", "mv", "rm", "blob"}


def start(writers: list["subprocess.Popen[str]"]) -> list["subprocess.Popen[str]"]:
    """The writers, once all are about to write."""
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n", writer.communicate()[1]
    return writers


def cut_off(writer: "subprocess.Popen[str]", dice: random.Random) -> list[str]:
    """Kill -9 a writer at some moment while it writes; what it had reported."""
    assert writer.stdout is not None
    first = [writer.stdout.readline() for _ in range(10)]  # one of everything at least
    sleep_s(dice.uniform(0, 0.3))
    writer.kill()
    out, err = writer.communicate(timeout=180)
    assert writer.returncode == -9, err
    return [*first, *out.splitlines()]
