"""A clock that is set: what was counted by it moves, dates stay, and a clock that was ahead for a while consumes nothing."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from needs import needs
from process import Box, a_box
from stores import new_store

from appliance.language.languages import Languages
from appliance.language.times import time_expression
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import Grants
from appliance.runtime.events import Events
from appliance.sessions.logins import Logins, Validity
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.people import People
from appliance.sessions.runs import Runs
from appliance.store import wall_clock
from appliance.store.database import Store
from appliance.store.wall_clock import DAY_MS, HOLD_MS, Leap
from appliance.work.conditions import Verdict
from appliance.work.effects import Effects
from appliance.work.firing import Effect, Firing
from appliance.work.schedules import Action, Gates, New, Schedule, Schedules
from appliance.work.tasks import Tasks

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
        effects = Effects(self.outbox, Tasks(self.store), Runs(self.store, "me"))
        kinds = {"reminder": Effect(effects.remind, is_inside=True)}
        self.rows = Schedules(self.store, "me")
        judge = lambda known, now: Verdict(True)  # noqa: E731
        self.firing = Firing(self.store, self.rows, kinds, lambda: Gates(0), judge, self.events)  # type: ignore[arg-type]
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
        rule = time_expression.read(when, LEXICON, self.wall_ms, "UTC", is_frequency=False)
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


def test_tokens_invitations_and_grants_hold_as_long_as_they_were_to(machine: Machine) -> None:
    store, people = machine.store, People(machine.store)
    ledger = Ledger(store)
    logins = Logins(store, people, ledger, machine.events, lambda: Validity(invite_h=24, session_days=30), cost=2**8)
    grants = Grants(store, ledger)
    machine.events.subscribe(Leap, logins.move)
    machine.events.subscribe(Leap, grants.move)
    with store.write() as execute:
        people.ensure_person("ada")
        for day, name in ((0, b"before"), (1, b"now")):  # one of before the machine started, one of this hour
            made = NOW + SECOND - (1 - day) * 5 * DAY_MS
            execute("INSERT INTO logins VALUES (?, 'ada', ?, '', '', ?, ?, ?)", (name.hex(), name, made, made, made + 30 * DAY_MS))
            execute("INSERT INTO invites VALUES (?, 'ada', ?)", (name, made + DAY_MS))
            values = ("ada", "command", name.hex(), "[]", "ada", made, made + HOUR)
            sql = "INSERT INTO grants (person, kind, target, origins, made_by, made_ms, expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?)"
            execute(sql, values)
    machine.go_on(2 * SECOND, 31 * DAY_MS)
    for table, lasts in (("logins", 30 * DAY_MS), ("invites", DAY_MS), ("grants", HOUR)):
        ends = [row[0] for row in store.rows(f"SELECT expires_ms FROM {table} ORDER BY expires_ms")]
        assert ends == [NOW + SECOND - 5 * DAY_MS + lasts, NOW + SECOND + 31 * DAY_MS + lasts], table


def test_an_expired_invitation_is_not_used_up_by_being_tried(machine: Machine) -> None:
    logins = Logins(machine.store, People(machine.store), Ledger(machine.store), Events(), Validity, cost=2**8)
    logins.invite_person("ada")
    with machine.store.write() as execute:
        execute("UPDATE invites SET expires_ms = 1")
    logins.invite_person("ben")
    assert machine.store.value("SELECT COUNT(*) FROM invites") == 1  # long over, by every clock
    with machine.store.write() as execute:
        execute("UPDATE wall_clock SET aged_ms = ?", (NOW - 100 * DAY_MS,))
        execute("UPDATE invites SET expires_ms = ?", (NOW,))
    logins.invite_person("cleo")
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
