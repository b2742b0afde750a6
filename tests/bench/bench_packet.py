"""Measurements of packets: how long assembling takes, how many bytes a turn changes, what twenty turns cost.

    python tests/bench/bench_packet.py [--quick] [--rounds N] [--json FILE]

A run sees so many entries, of which a few change or are opened in a turn. Assembling is measured with what is
remembered of the turn before and without, beside rendering everything anew. Bytes that changed are those behind the
common beginning with the turn before: what a model has to read again. The session of twenty turns is priced beside the
same session with its whole history as messages. Needs no model; knows nothing about what is good enough.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures
from record_tools import replace
from test_budget import TEXT, Desk

from appliance.clock import monotonic_s
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import Content, digest
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.verbs import Write
from appliance.prompt.entry_blocks import Blocks
from appliance.prompt.packet_types import Packet, PacketScene
from appliance.records import Event, Message
from appliance.runtime.paths import FOLDERS, Home

SIZES = (10, 100, 1_000, 10_000)
SHOWN = 20  # entries in the summary where the rest is archived, as a workspace's files are
WORKED = 3  # entries that change again and again, and as many that are opened
TURNS = 20


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="turns of each kind")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", default="build/bench-packet.json", metavar="FILE")
    args = parser.parse_args()
    sizes, rounds = ((10, 100), 5) if args.quick else (SIZES, args.rounds)
    numbers: dict[str, Any] = {"rounds": rounds, "sizes": {}}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            numbers["sizes"][size] = {
                "archived": at_size(Path(folder) / f"archived-{size}", size, rounds, is_archived=True),
                "summarized": at_size(Path(folder) / f"summarized-{size}", size, rounds, is_archived=False),
            }
        numbers["session"] = session(Path(folder) / "session")
    figures.write(args.json, numbers)
    show(numbers)
    return 0


def desk(root: Path) -> Desk:
    """A home with an empty run."""
    home = Home(root)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    return Desk(home)


def fill(made: Desk, size: int, *, is_archived: bool) -> None:
    """So many entries in one transaction, all but a few archived, or all summarized."""
    with made.store.write() as execute:
        for n in range(size):
            body = f"Fact {n}. " + TEXT * 20
            key = execute(
                "INSERT INTO entries (scope, path, body, hash, writer, created_ms, updated_ms, uid, mime) "
                "VALUES (?, ?, ?, ?, 'model', ?, ?, ?, 'text/plain') RETURNING id",
                (f"run:{made.run}", f"known://f{n}", body, digest(body.encode()), n + 1, n + 1, f"uid-{n}"),
            )[0][0]
            execute(
                "INSERT INTO views (run, entry, visibility, state, status, turn, updated_ms) "
                "VALUES (?, ?, ?, 'resolved', 200, 1, ?)",
                (made.run, key, "archived" if is_archived and n >= SHOWN else "summarized", n + 1),
            )


def at_size(root: Path, size: int, rounds: int, *, is_archived: bool) -> dict[str, float]:
    """Milliseconds to assemble, and bytes to read again, for a turn that changes one entry and opens another."""
    made = desk(root)
    fill(made, size, is_archived=is_archived)
    made.packets.relevant("the owl")  # words that wait are indexed once, by whoever searches first
    began_s = monotonic_s()
    before = made.packets.assemble(scene(made, 2))
    first_ms = (monotonic_s() - began_s) * 1000
    warm, anew, changed = [], [], []
    for turn in range(3, 3 + rounds):
        made.verbs.set(made.actor(turn), f"known://f{turn % WORKED}", Write(body=f"Changed in {turn}. " + TEXT))
        made.views.promote(made.actor(turn), [made.views.get(made.run, f"known://f{WORKED + turn % WORKED}").entry])
        began_s = monotonic_s()
        packet = made.packets.assemble(scene(made, turn, before))
        warm.append((monotonic_s() - began_s) * 1000)
        began_s = monotonic_s()
        Blocks(made.store, made.entries, Schemes()).visible_items(made.run)
        anew.append((monotonic_s() - began_s) * 1000)
        changed.append(len(packet.messages[0].content) - shared(before, packet))
        before = packet
    total = len(before.messages[0].content) + sum(len(part.text) for part in before.system)
    made.store.close()
    return {
        "first_ms": first_ms,
        "warm_ms": statistics.median(warm),
        "anew_ms": statistics.median(anew),
        "bytes": total,
        "changed_bytes": statistics.median(changed),
    }


def scene(made: Desk, turn: int, before: Packet | None = None) -> PacketScene:
    """A turn of the run, in a window that nothing overflows."""
    return replace(made.scene(100_000_000, turn=turn), before=before)


def shared(before: Packet, after: Packet) -> int:
    """Characters of the second packet's message that are as in the first, from the beginning."""
    a, b = before.messages[0].content, after.messages[0].content
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


def session(root: Path) -> dict[str, int]:
    """Tokens of twenty turns, each reading one entry of 4,000 characters and keeping a fact of 200 from it."""
    made = desk(root)
    ours = ours_anew = full = full_anew = last = 0
    before: Packet | None = None
    history = [Message("user", "Where is the owl?")]
    event = made.runs.append(Event(run=made.run, kind="message", role="user", content="Where is the owl?"))
    made.runs.start_loop(made.runs.enqueue(made.run, event.id, ""))
    for turn in range(1, TURNS + 1):
        packet = made.packets.assemble(scene(made, turn, before))
        ours += packet.tokens
        ours_anew += packet.tokens if before is None else (len(packet.messages[0].content) - shared(before, packet)) // 2
        sent = sum(len(m.content) for m in history) + sum(len(p.text) for p in packet.system)
        full_anew += (sent - last) // 2
        full, last, before = full + sent // 2, sent, packet
        page = f"Page {turn}. " + (TEXT * 200)[:4000]
        entry = made.entries.put(f"known://page{turn}", Content(body=page), By("model"), scope=f"run:{made.run}")
        made.views.show(made.actor(turn), entry.id, "visible")
        if turn > 1:  # what is no longer needed is closed, as the budget block asks for
            old = made.views.get(made.run, f"known://page{turn - 1}").entry
            made.views.set_visibility(made.actor(turn), [old], "archived")
        made.verbs.set(made.actor(turn), f"known://fact{turn}", Write(body=(f"Fact {turn}: " + TEXT * 8)[:200]))
        history += [
            Message("assistant", f"<get path='known://page{turn}'/>"),
            Message("tool", page),
            Message("assistant", TEXT * 8),
        ]
    made.store.close()
    return {"entries": ours, "entries_anew": ours_anew, "history": full, "history_anew": full_anew}


def show(numbers: dict[str, Any]) -> None:
    """One table, for people."""
    print(f"{'entries':>8} {'the rest is':>12} {'first ms':>9} {'warm ms':>8} {'anew ms':>8} {'bytes':>9} {'to read again':>14}")
    for size, kinds in numbers["sizes"].items():
        for kind, found in kinds.items():
            print(
                f"{size:>8} {kind:>12} {found['first_ms']:>9.1f} {found['warm_ms']:>8.2f} {found['anew_ms']:>8.1f} "
                f"{found['bytes']:>9.0f} {found['changed_bytes']:>14.0f}"
            )
    found = numbers["session"]
    part = found["entries"] / found["history"]
    print(f"\n{TURNS} turns, tokens sent: {found['entries']} in entries, {found['history']} with the whole history ({part:.0%})")
    print(f"of these not shared with the turn before: {found['entries_anew']} and {found['history_anew']}")


if __name__ == "__main__":
    sys.exit(main())
