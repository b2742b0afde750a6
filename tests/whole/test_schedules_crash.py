"""A core's thread and a timer's processes fire together, are killed without warning, and the clock is set: no double, no loss.

Real processes and kill -9; the wall clock is a file, because that of the machine is not ours to set, and runs fast.
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from process import until
from stores import new_store
from ticking import Clock, build

from appliance.clock import monotonic_s, sleep_s
from appliance.language.times import recurrence
from appliance.store.database import Store
from appliance.work.schedules import Action, New, Schedule, key

ZONE = "Europe/Berlin"
START = int(datetime(2026, 3, 28, 20, 0, tzinfo=ZoneInfo(ZONE)).timestamp() * 1000)  # the night of summer time is ahead
SPEED = 2400.0  # forty minutes in a second
MINUTE = 60_000
HOUR = 60 * MINUTE
TICKING = str(Path(__file__).parents[1] / "support/ticking.py")


@dataclass
class Bench:
    """A database, a clock, and processes that fire."""

    store: Store
    folder: Path
    set_ms: int = 0
    start_s: float = field(default_factory=monotonic_s)
    children: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file = self.folder / "clock"
        self.write()
        self.clock = Clock(self.file)
        self.firing = build(self.store)

    def write(self) -> None:
        part = self.file.with_name("clock.part")
        part.write_text(f"{START} {self.start_s} {SPEED} {self.set_ms}")
        part.rename(self.file)

    def leap(self, by_ms: int) -> None:
        """Set the wall clock."""
        self.set_ms += by_ms
        self.write()

    def begin(self, mode: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, TICKING, str(self.store.path), str(self.file), mode]
        child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        self.children.append(child)
        return child

    def end(self, child: "subprocess.Popen[bytes]") -> None:
        """kill -9, and wait until it is gone."""
        if child.poll() is None:
            child.kill()
        child.wait(60)
        assert child.stdout is not None
        child.stdout.close()

    def add(self, line: str, kind: str) -> Schedule:
        action = Action("reminder", {"text": line}) if kind == "reminder" else Action("tasks")
        return self.firing.schedules.add(New(line, recurrence.cron(line, ZONE), action, person="ada"), self.clock.now())

    def settle(self) -> None:
        """Until everything that is due has been fired."""
        until(lambda: (self.firing.schedules.next_ms() or 0) > self.clock.now() - MINUTE, "all is fired")

    def fired(self, known: Schedule) -> list[int]:
        rows = self.store.rows("SELECT due_ms FROM firings WHERE schedule = ? ORDER BY due_ms", (known.id,))
        return [int(row[0]) for row in rows]

    def did(self, known: Schedule) -> list[str]:
        """The keys of everything that was done for a schedule."""
        table = "outbox" if known.action.kind == "reminder" else "tasks"
        rows = self.store.rows(f"SELECT key FROM {table} WHERE key GLOB ? ORDER BY key", (f"schedule:{known.ref}:*",))
        return sorted(str(row[0]) for row in rows)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = new_store(tmp_path / "owlbox.db")
    made = Bench(store, tmp_path)
    yield made
    for child in made.children:
        made.end(child)
    store.close()


def check(bench: Bench, known: Schedule) -> list[int]:
    """Each firing is a time of the rule and has exactly one effect; there is no effect without a firing. The firings."""
    fired = bench.fired(known)
    suffix = "" if known.action.kind == "reminder" else ":0"
    assert bench.did(known) == sorted(f"{key(known.id, due_ms)}{suffix}" for due_ms in fired)
    for due_ms in fired:
        assert recurrence.after(known.rule, due_ms - 1) == due_ms
    return fired


def wait(virtual_ms: float) -> None:
    sleep_s(virtual_ms / 1000 / SPEED)


@pytest.mark.covers("B-044", "A-257", "E-180")
def test_a_thread_and_timers_together_fire_each_time_once_and_none_is_left_out(bench: Bench) -> None:
    made = [bench.add("*/20 * * * *", "reminder"), bench.add("7,37 * * * *", "tasks")]
    for mode in ("thread", "rounds", "rounds"):
        bench.begin(mode)
    since = bench.clock.now()
    wait(4 * HOUR)
    bench.settle()
    for known in made:
        fired = check(bench, known)
        expected = [due_ms for due_ms in recurrence.upcoming(known.rule, since, 100) if due_ms <= max(fired)]
        assert [due_ms for due_ms in fired if due_ms > since] == expected and len(expected) >= 6


@pytest.mark.covers("A-254", "A-257")
def test_killed_at_any_moment_with_the_clock_set_nothing_is_doubled_and_nothing_stands_still(bench: Bench) -> None:
    dice = random.Random(7)
    made = [bench.add("*/5 * * * *", "reminder"), bench.add("*/15 * * * *", "tasks"), bench.add("30 2 * * *", "reminder")]
    running = [bench.begin("thread"), bench.begin("rounds")]
    leaps = [3 * HOUR, -40 * MINUTE, 26 * HOUR, -2 * HOUR, 0, 0]
    dice.shuffle(leaps)
    for leap_ms in leaps:
        wait(dice.uniform(2, 30) * MINUTE)
        place = dice.randrange(2)
        bench.end(running[place])
        if leap_ms:
            bench.leap(leap_ms)
        running[place] = bench.begin("thread" if place == 0 else "rounds")
    bench.firing.schedules.correct_due(bench.clock.now())
    wait(30 * MINUTE)
    bench.settle()
    for known in made:
        fired = check(bench, known)
        assert fired or known is made[2]  # a leap may have left out the one time of a day
        following = bench.firing.schedules.get(known.id).state.next_ms
        assert following is not None and following > bench.clock.now() - 10 * MINUTE
    assert len(bench.fired(made[0])) > 10
