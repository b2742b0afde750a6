"""Measurements of entries: what set, get, edit, undo recording and a fork cost beside plain SQL on the same tables.

    python tests/bench/bench_entries.py [--quick] [--rounds N] [--json FILE]

Plain SQL is one INSERT, UPDATE or SELECT on the same table with the same triggers, in a transaction that is as
durable; it keeps no history, checks nothing and makes no patch. Both are measured in turns, in one process, on
one file. Prints one table and writes the numbers as JSON. Knows nothing about what is good enough.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import figures

from appliance.clock import monotonic_s, new_id, now_ms, this_process
from appliance.knowledge.contents import digest
from appliance.knowledge.entries import By, Content, Entries
from appliance.knowledge.views import Actor, Views
from appliance.records import Inbound
from appliance.service.undo import Undo
from appliance.sessions.runs import Runs
from appliance.store.database import Store

SIZES = (1_000, 10_000, 100_000)
VIEWS = 10_000
WORDS = "owl barn night field mouse feather moon oak branch quiet".split()
INSERT = (
    "INSERT INTO entries (scope, path, body, hash, writer, created_ms, updated_ms, uid, mime) "
    "VALUES ('project:1', ?, ?, ?, 'client', ?, ?, ?, 'text/plain')"
)
UPDATE = "UPDATE entries SET body = ?, hash = ?, updated_ms = ? WHERE scope = 'project:1' AND path = ?"
SELECT = "SELECT * FROM entries WHERE scope = 'project:1' AND path = ?"
Work = Callable[[int], object]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="operations of each kind")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", default="build/bench-entries.json", metavar="FILE")
    args = parser.parse_args()
    sizes, views, rounds = ((300, 1_000), 500, 20) if args.quick else (SIZES, VIEWS, args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        numbers: dict[str, Any] = {"rounds": rounds, "sizes": {}}
        for size in sizes:
            numbers["sizes"][size] = at_size(Path(folder) / f"{size}.db", size, rounds)
        numbers["recording"] = recording(Path(folder) / "recording.db", rounds)
        numbers["undo"] = undoing(Path(folder) / "undo.db", rounds)
        numbers["fork"] = fork(Path(folder) / "fork.db", views)
    figures.write(args.json, numbers)
    show(numbers)
    return 0


def text(number: int) -> str:
    """About 500 bytes in ten lines."""
    return "\n".join(f"{number} {line} " + " ".join(WORDS[(number + line + k) % 10] for k in range(8)) for line in range(10))


def filled(path: Path, size: int) -> Store:
    """A database with so many entries, made in one transaction."""
    store = Store.create(path)
    with store.write() as execute:
        for number in range(size):
            insert(execute, f"memory://notes/{number}", text(number))
    return store


def insert(execute: Callable[..., Any], path: str, body: str) -> None:
    execute(INSERT, (path, body, digest(body.encode()), now_ms(), now_ms(), new_id()))


def in_turns(works: Sequence[Work], rounds: int) -> list[tuple[float, float]]:
    """Median milliseconds of each piece of work, on the clock and on the CPU, taking turns so that all see the same machine."""
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    for number in range(rounds + 3):  # the first ones warm up
        for work, found in zip(works, times, strict=True):
            began_s, cpu_s = monotonic_s(), time.thread_time()
            work(number)
            found.append(((monotonic_s() - began_s) * 1000, (time.thread_time() - cpu_s) * 1000))
    return [(statistics.median(t[0] for t in found[3:]), statistics.median(t[1] for t in found[3:])) for found in times]


# -- beside plain SQL ---------------------------------------------------------------------------------


def at_size(path: Path, size: int, rounds: int) -> dict[str, Any]:
    """Operations per second among so many entries, ours and plain."""
    store = filled(path, size)
    entries, fresh = Entries(store), count(size)

    def plain_set(number: int) -> None:
        with store.write(durable=True) as execute:
            insert(execute, f"memory://plain/{number}", text(next(fresh)))

    def plain_edit(number: int) -> None:
        body = text(next(fresh))
        with store.write(durable=True) as execute:
            execute(UPDATE, (body, digest(body.encode()), now_ms(), note(number * 2)))

    def note(number: int) -> str:
        return f"memory://notes/{number * 7919 % size}"

    def edit(number: int) -> None:
        ref = note(number * 2 + 1)
        entries.put(ref, Content(body=entries.get(ref).body.replace("owl", f"owl{number}", 1)), By(verb="edit"))

    pairs: dict[str, tuple[Work, Work]] = {
        "set": (lambda number: entries.set(f"memory://ours/{number}", text(next(fresh))), plain_set),
        "get": (lambda number: entries.get(note(number)), lambda number: store.row(SELECT, (note(number),))),
        "edit": (edit, plain_edit),
    }
    found = {}
    for name, pair in pairs.items():
        (ours_ms, ours_cpu), (plain_ms, plain_cpu) = in_turns(pair, rounds)
        found[name] = {"per_s": round(1000 / ours_ms), "plain_per_s": round(1000 / plain_ms), "ratio": round(ours_ms / plain_ms, 2)}
        found[name] |= {
            "cpu_ms": round(ours_cpu, 3),
            "plain_cpu_ms": round(plain_cpu, 3),
            "cpu_ratio": round(ours_cpu / plain_cpu, 2),
        }
    store.close()
    return found


# -- what it takes to be able to undo -----------------------------------------------------------------


def recording(path: Path, rounds: int) -> dict[str, float]:
    """Milliseconds of a transaction that is recorded for a run, and of one that is not."""
    store = filled(path, 1_000)
    run = a_run(store)

    def work(run: str, offset: int) -> Work:
        def update(number: int) -> None:
            body = text(number + offset + 1_000_000)
            with store.write(run=run) as execute:
                execute(UPDATE, (body, digest(body.encode()), now_ms(), f"memory://notes/{number % 500 + offset}"))

        return update

    (without_ms, _), (with_ms, _) = in_turns((work("", 0), work(run, 500)), rounds * 2)
    kept = store.row("SELECT COUNT(*), SUM(octet_length(change)) FROM changesets")
    store.close()
    assert kept is not None
    return {"without_ms": round(without_ms, 3), "with_ms": round(with_ms, 3), "bytes_each": round(kept[1] / kept[0])}


def undoing(path: Path, rounds: int) -> dict[str, float]:
    """Milliseconds to take back a run of so many changes, and to bring it back."""
    store = filled(path, 1_000)
    entries, runs = Entries(store), Runs(store, this_process().encode())
    run, undo = a_run(store), Undo(store, entries, runs)
    for number in range(rounds):
        entries.put(f"memory://notes/{number}", Content(body=text(number + 1)), By("model", run))
    began_s = monotonic_s()
    done = undo.undo(run)
    middle_s = monotonic_s()
    undo.undo(done.by)
    end_s = monotonic_s()
    store.close()
    return {"changes": rounds, "undo_ms": round((middle_s - began_s) * 1000, 1), "redo_ms": round((end_s - middle_s) * 1000, 1)}


def a_run(store: Store) -> str:
    runs, inbound = Runs(store, ""), Inbound("local", "bench", "hi", "m", now_ms())
    with store.write():
        runs.touch_session(inbound)
        return runs.begin(inbound.session, "chat").id


# -- a fork -------------------------------------------------------------------------------------------


def fork(path: Path, size: int) -> dict[str, Any]:
    """What a fork of a run that sees so many entries takes, beside the texts that it does not copy."""
    store = filled(path, size)
    views, parent, child = Views(store), a_run(store), a_run(store)
    with store.write():
        for (entry,) in store.rows("SELECT id FROM entries ORDER BY id"):
            views.show(Actor("model", parent, 1, 1), entry, "visible")
    before = used(store)
    began_s = monotonic_s()
    copied = views.fork(parent, child)
    took_ms = (monotonic_s() - began_s) * 1000
    after = used(store)
    texts = store.value("SELECT SUM(octet_length(body)) FROM entries")
    count = store.value("SELECT COUNT(*) FROM entries")
    store.close()
    assert (copied, count) == (size, size)
    return {"views": copied, "ms": round(took_ms, 1), "bytes_added": after - before, "text_bytes": texts, "file_bytes": before}


def used(store: Store) -> int:
    """Bytes of the database that hold something."""
    pages, free, size = (store.value(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size"))
    return int((pages - free) * size)


# -- telling ------------------------------------------------------------------------------------------


def show(numbers: dict[str, Any]) -> None:
    """The table."""
    heads = ("entries", "", "ours/s", "plain SQL/s", "times as long", "CPU ms", "plain CPU ms", "times")
    print("{:>8}  {:<5}{:>9}{:>13}{:>15}{:>9}{:>14}{:>7}".format(*heads))
    for size, found in numbers["sizes"].items():
        for name, one in found.items():
            cells = (one[key] for key in ("per_s", "plain_per_s", "ratio", "cpu_ms", "plain_cpu_ms", "cpu_ratio"))
            print("{:>8}  {:<5}{:>9}{:>13}{:>15}{:>9}{:>14}{:>7}".format(size, name, *cells))
    r, u, f = numbers["recording"], numbers["undo"], numbers["fork"]
    print(f"recording for undo: {r['without_ms']} ms without, {r['with_ms']} ms with, {r['bytes_each']} bytes each")
    print(f"undo of {u['changes']} changes: {u['undo_ms']} ms; taken back itself: {u['redo_ms']} ms")
    print(
        f"fork of {f['views']} views: {f['ms']} ms, {f['bytes_added']} bytes added "
        f"({f['bytes_added'] / f['views']:.0f} a view); texts of {f['text_bytes']} bytes not copied"
    )


if __name__ == "__main__":
    sys.exit(main())
