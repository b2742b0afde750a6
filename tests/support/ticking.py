"""A process that fires the schedules of a database by a clock which runs fast and may be set: the child of the tests of crashes.

`python ticking.py DATABASE CLOCK [thread|rounds]`: CLOCK is a file with a start of the wall clock in milliseconds, a start of the
steady clock in seconds, a speed, and by how much the wall clock was set meanwhile; tests write it anew. "thread" is what a
core does, "rounds" what a timer's processes do. It ends when it is killed.
"""

import sys
import threading
from pathlib import Path

from appliance.clock import monotonic_s, sleep_s, this_process
from appliance.errors import Busy
from appliance.runtime.settings import SchedulerSettings
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.work.conditions import ConditionVerdict
from appliance.work.effects import ScheduleEffects
from appliance.work.firing import Firing, FiringEffect
from appliance.work.schedules import Schedule, ScheduleRows
from appliance.work.tasks import TaskRows
from appliance.work.timer import Timekeeper

KEYS = SchedulerSettings(min_interval_s=0)


class Clock:
    """A fast clock, as the file says."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now(self) -> int:
        start_ms, start_s, speed, set_ms = map(float, self._path.read_text().split())
        return int(start_ms + (monotonic_s() - start_s) * 1000 * speed + set_ms)

    def steady_s(self) -> float:
        _, start_s, speed, _ = map(float, self._path.read_text().split())
        return (monotonic_s() - start_s) * speed


def build(store: Store) -> Firing:
    """What a core fires with, as far as reminders and tasks go."""
    me = this_process().encode()
    runs = Runs(store, me)

    def judge(known: Schedule, now: int) -> ConditionVerdict:
        return ConditionVerdict(True)

    effects = ScheduleEffects(Outbox(store, me), TaskRows(store), runs)
    kinds = {"reminder": FiringEffect(effects.remind, is_inside=True), "tasks": FiringEffect(effects.plan, is_inside=True)}
    return Firing(store, ScheduleRows(store, me), kinds, lambda: KEYS, judge)  # type: ignore[arg-type]


def main(database: str, clock_file: str, mode: str) -> None:
    store, clock = Store.open(Path(database)), Clock(Path(clock_file))
    firing = build(store)
    if mode == "thread":
        Timekeeper(firing, lambda: 0.05, now=clock.now, up=lambda: int(clock.steady_s() * 1000)).start()
        print("up", flush=True)
        threading.Event().wait()
    print("up", flush=True)
    while True:
        try:
            firing.schedules.correct_due(clock.now())
            firing.round(clock.now())
        except Busy:
            pass  # as a timer: the next one
        sleep_s(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
