"""A clock that is set: what was counted by it moves, dates stay, and a clock that was ahead for a while consumes nothing."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from needs import needs
from process import Box, a_box
from stores import new_store

from appliance.channels.quiet_hours import Quiet
from appliance.clock import iso, now_ms, up_ms
from appliance.language.languages import Languages
from appliance.language.times import frequencies
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import Grants
from appliance.runtime.events import Events
from appliance.runtime.methods import LocalCall
from appliance.runtime.settings import Notifications, SchedulerSettings
from appliance.sessions.logins import Logins, Validity
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.people import People
from appliance.sessions.runs import Runs
from appliance.store import wall_clock
from appliance.store.database import Store
from appliance.store.wall_clock import DAY_MS, HOLD_MS, Leap
from appliance.work.conditions import ConditionVerdict
from appliance.work.effects import ScheduleEffects
from appliance.work.firing import Firing, FiringEffect
from appliance.work.schedules import Action, New, Schedule, ScheduleRows
from appliance.work.tasks import NewTask, TaskRows

__all__ = ["a_box"]
LEXICON = Languages().english.lexicon
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
NOW = 1_779_600_000_000  # 2026-05-24 05:20 UTC
SEVEN = 1_779_606_000_000  # 07:00 of that day
YEARS = 10 * 365 * DAY_MS


@dataclass
class Machine:
    """A machine that has been up for a while, by a wall clock that can be set."""

    store: Store
    wall_ms: int = NOW
    up_ms: int = HOUR

    def __post_init__(self) -> None:
        self.outbox, self.events = Outbox(self.store, "me"), Events()
        effects = ScheduleEffects(self.outbox, TaskRows(self.store), Runs(self.store, "me"))
        kinds = {"reminder": FiringEffect(effects.remind, is_inside=True)}
        self.rows = ScheduleRows(self.store, "me")
        judge = lambda known, now: ConditionVerdict(True)  # noqa: E731
        self.firing = Firing(self.store, self.rows, kinds, lambda: SchedulerSettings(min_interval_s=0), judge, self.events)  # type: ignore[arg-type]
        self.look()

    def look(self) -> int:
        """What the timekeeper does, and `owlbox` beside it: how many fired."""
        if self.firing.follow_clock(self.wall_ms, self.up_ms):
            return 0
        return self.firing.round(self.wall_ms)

    def go_on(self, passed_ms: int, set_ms: int = 0) -> int:
        self.up_ms += passed_ms
        self.wall_ms += passed_ms + set_ms
        return self.look()

    def add(self, when: str) -> Schedule:
        rule = frequencies.read(when, LEXICON, self.wall_ms, "UTC", is_frequency=False)
        return self.rows.add(New(when, rule, Action("reminder", {"text": when}), frequency=when, person="ada"), self.wall_ms)

    def next_ms(self, known: Schedule) -> int | None:
        return self.rows.get(known.id).state.next_ms


@pytest.fixture(name="machine")
def a_machine(tmp_path: Path) -> Machine:
    return Machine(new_store(tmp_path / "owlbox.db"))


@pytest.mark.covers("A-257")
@pytest.mark.parametrize("set_ms", [3 * DAY_MS, 40 * SECOND, -40 * SECOND, -3 * DAY_MS, YEARS])
def test_in_20_minutes_and_every_2_hours_move_with_the_clock(machine: Machine, set_ms: int) -> None:
    soon, often = machine.add("in 20 minutes"), machine.add("every 2 hours")
    assert machine.go_on(SECOND, set_ms) == 0 and machine.go_on(HOLD_MS) == 0
    assert machine.next_ms(soon) == NOW + 20 * MINUTE + set_ms and machine.next_ms(often) == NOW + 2 * HOUR + set_ms
    assert machine.go_on(18 * MINUTE) == 0 and machine.go_on(2 * MINUTE) == 1
    assert machine.go_on(HOUR + 39 * MINUTE) == 0 and machine.go_on(MINUTE) == 1


def test_every_day_at_7_does_not_fire_for_days_that_the_leap_left_out(machine: Machine) -> None:
    daily = machine.add("every day at 7")
    assert machine.go_on(SECOND, 3 * DAY_MS) == 0 and machine.go_on(2 * HOLD_MS) == 0
    assert machine.next_ms(daily) == SEVEN + 3 * DAY_MS
    assert machine.go_on(2 * HOUR) == 1


def test_a_date_stays_and_is_made_up_for_when_the_clock_has_leapt_over_it(machine: Machine) -> None:
    dated = machine.add("tomorrow at 7")
    assert machine.go_on(SECOND, 3 * DAY_MS) == 0 and machine.next_ms(dated) == SEVEN + DAY_MS
    assert machine.go_on(HOLD_MS) == 1


def test_a_clock_that_is_ahead_for_seconds_consumes_nothing(machine: Machine) -> None:
    known = [machine.add(when) for when in ("tomorrow at 7", "in 20 minutes", "every day at 7", "every 2 hours")]
    before = [machine.next_ms(one) for one in known]
    assert [machine.go_on(SECOND, YEARS), machine.go_on(20 * SECOND), machine.go_on(SECOND, -YEARS)] == [0, 0, 0]
    assert [machine.next_ms(one) for one in known] == before
    assert machine.go_on(20 * MINUTE) == 1


def test_what_was_due_before_the_leap_is_told(machine: Machine) -> None:
    machine.add("in 20 minutes")
    machine.up_ms += 21 * MINUTE
    machine.wall_ms += 21 * MINUTE  # and nobody has looked yet
    assert machine.go_on(SECOND, 3 * DAY_MS) == 0 and machine.go_on(HOLD_MS) == 1


def test_a_leap_is_followed_once_however_many_processes_look(machine: Machine) -> None:
    soon, other = machine.add("in 20 minutes"), Machine(machine.store)
    seen: list[Leap] = []
    for one in (machine, other):
        one.events.subscribe(Leap, seen.append)
        one.go_on(SECOND, 3 * DAY_MS)
    assert machine.next_ms(soon) == NOW + 20 * MINUTE + 3 * DAY_MS
    assert seen == [Leap(3 * DAY_MS, NOW - HOUR, NOW + SECOND)]


# Every column of a time to come, and what the leaps below do to it; a new one belongs here and into a `move`.
TO_COME = {
    "mutes.until_ms": 2 * HOUR,
    "tasks.deadline_ms": 2 * HOUR,
    "logins.expires_ms": 30 * DAY_MS,
    "invites.expires_ms": DAY_MS,
    "grants.expires_ms": HOUR,
    "schedule_state.next_ms": 20 * MINUTE,
    "outbox.held_ms": None,  # looked at anew
    "outbox.due_ms": 0,  # tried at once
}
OTHER_CLOCK = {"wall_clock.held_until_ms", "firings.due_ms", "schedule_state.last_due_ms"}  # since the start; what has been


def test_every_column_of_a_time_to_come_is_in_the_table(machine: Machine) -> None:
    tables = [str(row[0]) for row in machine.store.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    columns = {f"{table}.{row[1]}" for table in tables for row in machine.store.rows(f"SELECT * FROM pragma_table_info('{table}')")}
    names = re.compile(r"\.\w*(until|expires|deadline|due|next|held)\w*_ms$")
    assert {one for one in columns if names.search(one)} == {*TO_COME, *OTHER_CLOCK}


@pytest.mark.parametrize(
    ("began_ms", "set_ms"),
    [(NOW, 40 * SECOND), (NOW, -40 * SECOND), (NOW, 3 * DAY_MS), (NOW, -3 * DAY_MS), (2 * HOUR, NOW - 2 * HOUR)],
)
def test_what_was_counted_moves_with_every_leap_and_dates_stay(tmp_path: Path, began_ms: int, set_ms: int) -> None:
    machine = Machine(new_store(tmp_path / "owlbox.db"), began_ms)
    store, people, now = machine.store, People(machine.store), began_ms + SECOND
    logins = Logins(store, people, Ledger(store), machine.events, lambda: Validity(invite_h=24, session_days=30), cost=2**8)
    grants, quiet, tasks = Grants(store, Ledger(store)), Quiet(store, Notifications), TaskRows(store)
    for move in (logins.move, grants.move, quiet.move, tasks.move, machine.outbox.move):
        machine.events.subscribe(Leap, move)
    soon = machine.add("in 20 minutes")
    machine.go_on(SECOND)
    quiet.mute("user:ada", now + 2 * HOUR, now)
    date_ms = NOW + 30 * DAY_MS
    counted, dated = (tasks.add(NewTask("sweep", deadline_ms=None)).id for _ in range(2))
    machine.outbox.put(Notification("told", "ada", "hoot"))
    with store.write() as execute:
        people.ensure_person("ada")
        execute("UPDATE tasks SET deadline_ms = ?, counted_ms = ? WHERE id = ?", (now + 2 * HOUR, now, counted))
        execute("UPDATE tasks SET deadline_ms = ? WHERE id = ?", (date_ms, dated))
        execute("UPDATE outbox SET held_ms = ?, due_ms = ?", (now + HOUR, now + HOUR))
        for name, made in ((b"before", now - 5 * DAY_MS), (b"now", now)):  # one of before the machine started, one of this hour
            execute("INSERT INTO logins VALUES (?, 'ada', ?, '', '', ?, ?, ?)", (name.hex(), name, made, made, made + 30 * DAY_MS))
            execute("INSERT INTO invites VALUES (?, 'ada', ?)", (name, made + DAY_MS))
            sql = "INSERT INTO grants (person, kind, target, origins, made_by, made_ms, expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?)"
            execute(sql, ("ada", "command", name.hex(), "[]", "ada", made, made + HOUR))
    machine.go_on(2 * SECOND, set_ms)
    left = {"mutes.until_ms": quiet.muted_until("user:ada", machine.wall_ms)}
    left |= {"tasks.deadline_ms": tasks.get(counted).deadline_ms or 0, "schedule_state.next_ms": machine.next_ms(soon) or 0}
    for table in ("logins", "invites", "grants"):
        before, after = sorted(row[0] for row in store.rows(f"SELECT expires_ms FROM {table}"))
        left[f"{table}.expires_ms"] = after
        assert before == now - 5 * DAY_MS + (TO_COME[f"{table}.expires_ms"] or 0), table
    for column, at_ms in left.items():
        assert at_ms == now + set_ms + (TO_COME[column] or 0) - (SECOND if column == "schedule_state.next_ms" else 0), column
    assert tasks.get(dated).deadline_ms == date_ms
    [posting] = machine.outbox.list_postings()
    assert posting.held_ms is None and posting.due_ms <= machine.wall_ms


def test_a_clock_that_is_ahead_for_seconds_gives_no_task_up(machine: Machine) -> None:
    tasks = TaskRows(machine.store)
    wanted = tasks.add(NewTask("sweep", deadline_ms=now_ms() + DAY_MS))
    with machine.store.write() as execute:
        execute("UPDATE wall_clock SET held_until_ms = ?", (up_ms() + HOLD_MS,))
    claim = tasks.claim("me", now=now_ms() + YEARS)
    assert claim is None or claim.task.id == wanted.id
    assert tasks.get(wanted.id).status in ("pending", "in_progress")


def test_an_expired_invitation_is_not_used_up_by_being_tried(machine: Machine) -> None:
    logins = Logins(machine.store, People(machine.store), Ledger(machine.store), Events(), Validity, cost=2**8)
    logins.invite_person("ada", call=LocalCall())
    with machine.store.write() as execute:
        execute("UPDATE invites SET expires_ms = 1")
    logins.invite_person("ben", call=LocalCall())
    assert machine.store.value("SELECT COUNT(*) FROM invites") == 1  # long over, by every clock
    with machine.store.write() as execute:
        execute("UPDATE wall_clock SET aged_ms = ?", (NOW - 100 * DAY_MS,))
        execute("UPDATE invites SET expires_ms = ?", (NOW,))
    logins.invite_person("cleo", call=LocalCall())
    assert machine.store.value("SELECT COUNT(*) FROM invites") == 2


def test_the_time_of_forgetting_moves_by_two_days_at_most_and_never_back(machine: Machine) -> None:
    with machine.store.write() as execute:
        execute("UPDATE wall_clock SET aged_ms = ?", (NOW,))
    moments = [NOW + HOUR, NOW + DAY_MS, NOW + YEARS, NOW + 2 * DAY_MS, 60 * MINUTE, NOW + 30 * DAY_MS]
    limits = [wall_clock.advance(machine.store, at_ms) - NOW for at_ms in moments]
    assert limits == [HOUR, DAY_MS, 3 * DAY_MS, 2 * DAY_MS, 60 * MINUTE - NOW, 5 * DAY_MS]


@needs("faketime")
def test_maintenance_under_a_clock_that_is_ahead_forgets_nothing(box: Box) -> None:
    with box.store() as store:
        Outbox(store, "").put(Notification("told", "ann", "hoot"))
    (log := box.home.logs / "core.log.1").write_text("line\n")
    command = ["faketime", "-f", "+3652d", *box.command("maintain", "--now")]
    done = subprocess.run(command, env=box.environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "forgot" not in done.stdout, (done.stdout, done.stderr)
    with box.store() as store:
        assert [one.status for one in Outbox(store, "").list_postings()] == ["waiting"]
    assert log.exists()


def test_what_moved_with_the_clock_is_listed_at_its_new_time(box: Box) -> None:
    assert box.run("remind", "feed the owl", "in 20 minutes").returncode == 0
    with box.store() as store, store.write() as execute:
        [(moment,)] = execute("UPDATE schedule_state SET next_ms = next_ms + ? RETURNING next_ms", (3 * DAY_MS,))
    [line] = [line for line in box.run("schedule", "list").stdout.splitlines() if "feed the owl" in line]
    day = iso(moment)[:10]
    assert line.count(day) == 2, line
