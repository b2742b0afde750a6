"""A year of schedules in two zones with summer time: what was fired is what zoneinfo and cronsim say, each once.

The list that it is held to is made here, with nothing of ours: cronsim on times of zoneinfo. The clock is an argument,
so a year takes seconds; the database is real, and every firing is one of its transactions.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from stores import new_store

from appliance.language.times import recurrence
from appliance.runtime.events import Events
from appliance.runtime.settings import SchedulerSettings
from appliance.store.database import Store
from appliance.work.conditions import ConditionVerdict
from appliance.work.firing import Done, Due, Firing, FiringEffect
from appliance.work.schedules import Action, New, Schedule, ScheduleRows
from appliance.work.work_events import ScheduleFailed, SchedulePaused

LINES = ("30 2 * * *", "0 7 * * 1-5", "0 17 * * 5L", "15 3 1,15 * *", "*/30 1-3 * * 0", "0 0 L * *", "59 23 * * 6", "0 9 * * 1#1")
FIRST = {"Europe/Berlin": datetime(2026, 1, 1), "America/New_York": datetime(2026, 1, 1)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


def refuse(failed: ScheduleFailed | SchedulePaused) -> None:
    raise AssertionError(f"{failed.schedule.name} failed: {failed.why}")


def never(known: Schedule, now: int) -> ConditionVerdict:
    raise AssertionError("no model is needed")


def expected(line: str, zone: str, start: datetime, end: datetime) -> list[int]:
    """The independent list: in UTC order, each moment once."""
    found: list[int] = []
    for one in CronSim(line, start.astimezone(ZoneInfo(zone))):
        if one.astimezone(UTC) >= end:
            return found
        moment = int(one.timestamp() * 1000)
        if moment not in found[-3:] and moment > start.timestamp() * 1000:
            found.append(moment)
    return found


@pytest.mark.covers("A-244", "S-060", "S-061", "S-063")
@pytest.mark.parametrize("zone", FIRST)
def test_a_year_of_firings_is_what_zoneinfo_and_cronsim_say(store: Store, zone: str) -> None:
    start = FIRST[zone].replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    end = start + timedelta(days=365)
    rows = ScheduleRows(store, "me")
    fired: dict[int, list[int]] = {}

    def note(due: Due) -> Done:
        fired.setdefault(due.schedule.id, []).append(due.due_ms)
        assert due.now_ms - due.due_ms < 1000
        return Done("noted")

    events = Events()
    events.subscribe(ScheduleFailed, refuse)
    events.subscribe(SchedulePaused, refuse)
    firing = Firing(store, rows, {"reminder": FiringEffect(note, is_inside=True)}, SchedulerSettings, never, events)
    now = int(start.timestamp() * 1000)
    made = {line: rows.add(New(line, recurrence.cron(line, zone), Action("reminder")), now) for line in LINES}
    while (next_ms := rows.next_ms()) is not None and next_ms < end.timestamp() * 1000:
        now = next_ms + 7  # a thread is never exactly on time
        assert firing.round(now) >= 1
    for line, schedule in made.items():
        assert fired.get(schedule.id, []) == expected(line, zone, start, end), line
    assert sum(map(len, fired.values())) > 1000
