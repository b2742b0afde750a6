"""Schedules as rows and what becomes of them: claimed once, made up for at most once, judged, paused after failures."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from record_tools import replace
from stores import new_store

from appliance.clock import Process, boot_id, this_process
from appliance.errors import BadInput, Conflict, NotFound, OwlError, Unavailable
from appliance.language.times import recurrence, timezones
from appliance.runtime.events import Events
from appliance.runtime.settings import Config, SchedulerSettings
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.store.wall_clock import CLOCKLESS_MS, Leap
from appliance.work import conditions, schedules
from appliance.work.conditions import ConditionVerdict, WantedTask
from appliance.work.effects import MAX_WAITING, ScheduleEffects
from appliance.work.firing import Done, Due, Firing, FiringEffect
from appliance.work.lineage import Lineage
from appliance.work.schedule_service import Timetable
from appliance.work.schedules import JUDGE_MS, Action, New, Schedule, ScheduleRows
from appliance.work.tasks import NewTask, TaskRows
from appliance.work.timer import Timekeeper
from appliance.work.work_events import ScheduleFailed, SchedulePaused

ZONE = "Europe/Berlin"
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
ME = this_process().encode()
GONE = Process(boot_id(), 1, 1).encode()  # no process of that start time


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezones.find(ZONE)).timestamp() * 1000)


NOW = ms("2026-11-23 06:00")
SEVEN = ms("2026-11-23 07:00")
DAILY = recurrence.cron("0 7 * * *", ZONE)


@dataclass
class Desk:
    """One process's schedules on a database; others have desks of their own."""

    store: Store
    process: str = ME
    keys: SchedulerSettings = SchedulerSettings()
    verdict: ConditionVerdict | OwlError = ConditionVerdict(True)
    judged: int = 0
    paused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    trouble: list[OwlError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = ScheduleRows(self.store, self.process)
        self.runs = Runs(self.store, self.process)
        self.outbox, self.tasks = Outbox(self.store, self.process), TaskRows(self.store)
        effects, events = ScheduleEffects(self.outbox, self.tasks, self.runs), Events()
        events.subscribe(SchedulePaused, lambda paused: self.paused.append(paused.why))
        events.subscribe(ScheduleFailed, lambda failed: self.failed.append(failed.why))
        self.firing = Firing(
            self.store,
            self.rows,
            {
                "reminder": FiringEffect(effects.remind, is_inside=True),
                "tasks": FiringEffect(effects.plan, is_inside=True),
                "system": FiringEffect(self._begin, is_inside=False),
            },
            lambda: self.keys,
            self._judge,
            events,
        )

    def _begin(self, due: Due) -> Done:
        if self.trouble:
            raise self.trouble.pop(0)
        self.begun.append(due.key)
        return Done("begun", "running")

    def _judge(self, known: Schedule, now: int) -> ConditionVerdict:
        self.judged += 1
        if isinstance(self.verdict, OwlError):
            raise self.verdict
        return self.verdict

    def add(self, rule: recurrence.Rule = DAILY, kind: schedules.Act = "reminder", now: int = NOW, **more: Any) -> Schedule:
        name = str(more.pop("name", "roses"))
        return self.rows.add(New(name, rule, Action(kind, more.pop("details", {"text": "water"})), person="ada", **more), now)

    def round(self, now: int) -> int:
        return self.firing.round(now)

    def state(self, known: Schedule) -> schedules.ScheduleState:
        return self.rows.get(known.id).state

    def letters(self) -> list[str]:
        return [one.notification.text for one in reversed(self.outbox.list_postings(limit=1000))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


# -- rows -------------------------------------------------------------------------------------------


@pytest.mark.covers("B-043", "A-243", "S-008", "S-065")
def test_a_schedule_is_kept_as_it_was_made(desk: Desk) -> None:
    made = desk.add(frequency="every day at 7am", description="the roses", session="local:ada", source="", role="worker")
    assert len(made.ref) == 8 and int(made.ref, 16) == made.id
    found = ScheduleRows(desk.store, "another").get(made.id)
    assert found == made
    assert (found.name, found.frequency, found.description, found.is_enabled) == ("roses", "every day at 7am", "the roses", True)
    assert (found.type, found.mode, found.status, found.created_by) == ("scheduled", "isolated", "active", "user")
    assert (found.state.next_ms, found.state.last_run_ms, found.state.claimed_by) == (SEVEN, None, None)


@pytest.mark.covers("A-241")
@pytest.mark.parametrize(("type", "mode"), [("heartbeat", "session"), ("scheduled", "isolated"), ("system", "silent")])
def test_each_type_has_a_mode_of_its_own(desk: Desk, type: schedules.Type, mode: str) -> None:
    assert desk.add(type=type).mode == mode


def test_listing_is_in_the_order_of_making_and_filtered(desk: Desk) -> None:
    made = [desk.add(name=f"n{i}", now=NOW + i) for i in range(4)]
    desk.rows.enable(made[1].id, False)
    assert [one.name for one in desk.rows.list_schedules()] == ["n0", "n1", "n2", "n3"]
    assert [one.name for one in desk.rows.list_schedules(is_enabled=False)] == ["n1"]
    assert [one.name for one in desk.rows.list_schedules(is_enabled=True, limit=2, offset=1)] == ["n2", "n3"]
    assert desk.rows.list_schedules(person="bob") == []


def test_the_same_key_is_the_same_schedule(desk: Desk) -> None:
    assert desk.add(key="system:upkeep").id == desk.add(key="system:upkeep", name="other").id


@pytest.mark.parametrize("ref", ["", "xyz", "123456789", "ffffffff"])
def test_what_is_no_id_is_not_found(desk: Desk, ref: str) -> None:
    with pytest.raises(NotFound):
        desk.rows.get(schedules.number(ref))


def test_one_that_is_never_due_is_not_made(desk: Desk) -> None:
    with pytest.raises(BadInput, match="never due"):
        desk.add(recurrence.once(NOW - 1))


# -- once, and only once ------------------------------------------------------------------------------


@pytest.mark.covers("E-259", "S-060", "A-244", "S-062")
def test_a_daily_one_is_fired_once_at_its_time(desk: Desk) -> None:
    known = desk.add()
    assert desk.round(SEVEN - MINUTE) == 0
    assert desk.round(SEVEN + 30_000) == 1
    assert desk.round(SEVEN + MINUTE) == 0
    state = desk.state(known)
    assert (state.last_run_ms, state.next_ms) == (SEVEN + 30_000, SEVEN + DAY)
    assert desk.letters() == ["Reminder: water"]


@pytest.mark.covers("A-244", "A-242")
def test_a_one_shot_is_completed_and_never_due_again(desk: Desk) -> None:
    known = desk.add(recurrence.once(SEVEN))
    assert desk.round(SEVEN) == 1
    assert desk.rows.get(known.id).status == "completed" and desk.rows.next_ms() is None
    with pytest.raises(Conflict, match="for the last time"):
        desk.rows.enable(known.id, True, now=SEVEN + 1)


@pytest.mark.covers("A-242")
@pytest.mark.parametrize("rule", [DAILY, recurrence.interval(DAY // 1000, ZONE), recurrence.cadence("1 days", SEVEN, 0, ZONE)])
def test_what_repeats_is_completed_behind_its_last_time(desk: Desk, rule: recurrence.Rule) -> None:
    known = desk.add(recurrence.ending(rule, SEVEN + DAY), first_ms=SEVEN)
    assert [desk.round(SEVEN), desk.round(SEVEN + DAY)] == [1, 1]
    assert desk.rows.get(known.id).status == "completed" and desk.rows.next_ms() is None
    assert desk.round(SEVEN + 2 * DAY) == 0
    with pytest.raises(Conflict, match="for the last time"):
        desk.rows.enable(known.id, True, now=SEVEN + 2 * DAY)


@pytest.mark.covers("B-044", "E-180")
def test_of_two_processes_one_fires(store: Store) -> None:
    one, other = Desk(store), Desk(store, "other")
    known = one.add()
    seen = other.rows.get(known.id)  # both have seen it due
    assert one.firing.fire(known, SEVEN) is True
    assert other.firing.fire(seen, SEVEN) is False
    assert one.letters() == ["Reminder: water"]


@pytest.mark.covers("A-257", "A-254")
def test_what_was_missed_is_made_up_for_once(store: Store, tmp_path: Path) -> None:
    known = Desk(store).add()
    store.close()
    again = Store.open(tmp_path / "owlbox.db")
    desk = Desk(again)
    assert desk.rows.get(known.id) == known  # the same id and next time
    assert desk.round(SEVEN + 5 * DAY + HOUR) == 1 and desk.round(SEVEN + 5 * DAY + 2 * HOUR) == 0
    assert desk.state(known).next_ms == SEVEN + 6 * DAY
    assert desk.letters() == ["Reminder: water\n(It was due on Mon 2026-11-23 07:00.)"]
    again.close()


@pytest.mark.covers("S-059", "E-260")
def test_every_n_is_due_when_never_run_and_n_seconds_after_a_run(desk: Desk) -> None:
    known = desk.add(recurrence.interval(60), first_ms=NOW)
    assert desk.round(NOW) == 1
    assert desk.round(NOW + 30_000) == 0
    assert desk.round(NOW + 61_000) == 1
    assert desk.state(known).next_ms == NOW + 120_000  # in step with its beginning


def test_an_interval_that_was_late_begins_anew(desk: Desk) -> None:
    known = desk.add(recurrence.interval(60), first_ms=NOW)
    desk.round(NOW + 10 * HOUR)
    assert desk.state(known).next_ms == NOW + 10 * HOUR + 60_000


@pytest.mark.covers("B-044", "E-181")
def test_no_run_within_a_minute_of_the_last(desk: Desk) -> None:
    known = desk.add(recurrence.interval(10), first_ms=NOW)
    assert [desk.round(NOW + second * 1000) for second in (0, 10, 30, 59, 60, 70)] == [1, 0, 0, 0, 1, 0]
    assert len(desk.rows.firings(known.id)) == 2


@pytest.mark.covers("S-063")
def test_disabled_ones_never_run_and_resume_without_a_backlog(desk: Desk) -> None:
    known = desk.add()
    desk.rows.enable(known.id, False)
    assert desk.round(SEVEN) == 0 and desk.rows.next_ms() is None
    desk.rows.enable(known.id, True, now=SEVEN + HOUR)
    assert desk.round(SEVEN + HOUR) == 0 and desk.state(known).next_ms == SEVEN + DAY


@pytest.mark.covers("S-063")
def test_a_changed_rule_holds_at_once(desk: Desk) -> None:
    known = desk.add()
    desk.rows.change(known.id, rule=recurrence.cron("30 6 * * *", ZONE), now=NOW)
    assert desk.round(NOW + 30 * MINUTE) == 1 and desk.round(SEVEN) == 0


@pytest.mark.covers("E-262", "S-062", "B-048", "E-185")
def test_one_that_fails_keeps_no_other_from_its_time(desk: Desk) -> None:
    bad = desk.add(kind="message", name="bad")  # nobody does messages here
    good = desk.add(name="good")
    assert desk.round(SEVEN) == 2
    assert desk.rows.firings(bad.id)[0].status == "failed" and desk.state(bad).last_run_ms == SEVEN
    assert desk.rows.firings(good.id)[0].status == "done" and desk.letters() == ["Reminder: water"]


def test_an_idle_look_writes_nothing(desk: Desk) -> None:
    for number in range(20):
        desk.add(name=f"n{number}")
    before = desk.store.value("PRAGMA data_version"), desk.store.value("SELECT total_changes()")
    assert desk.round(NOW + MINUTE) == 0 and desk.rows.correct_due(NOW + MINUTE) == 0
    assert (desk.store.value("PRAGMA data_version"), desk.store.value("SELECT total_changes()")) == before


# -- tasks ------------------------------------------------------------------------------------------


def test_a_rule_without_a_model_makes_one_task_of_its_name(desk: Desk) -> None:
    desk.add(kind="tasks", details={}, description="all of them", source="")
    desk.round(SEVEN)
    [task] = desk.tasks.list_tasks()
    assert (task.name, task.description, task.person) == ("roses", "all of them", "ada")


@pytest.mark.covers("B-046")
def test_tasks_of_an_action_wait_for_each_other(desk: Desk) -> None:
    desk.add(kind="tasks", details={"tasks": [{"name": "a"}, {"name": "b", "depends_on": [0], "priority": "high"}]})
    desk.round(SEVEN)
    second, first = desk.tasks.list_tasks()
    assert (second.blocked_by, second.priority, first.open_blockers) == ((first.id,), "high", 0)


# -- judged -----------------------------------------------------------------------------------------


@pytest.mark.covers("B-045", "B-046", "E-182")
def test_due_by_a_models_word_makes_its_tasks(desk: Desk) -> None:
    known = desk.add(recurrence.text("every full moon", ZONE), "tasks", details={})
    desk.verdict = ConditionVerdict(True, "it is full", (WantedTask("look"), WantedTask("howl", "loud", "high", (0,))))
    assert desk.round(NOW) == 1
    howl, look = desk.tasks.list_tasks()
    assert (howl.name, howl.blocked_by) == ("howl", (look.id,))
    state = desk.state(known)
    assert (state.last_run_ms, state.claimed_by, state.next_ms) == (NOW, None, NOW + JUDGE_MS)


@pytest.mark.covers("B-046", "E-182")
def test_not_due_leaves_the_last_run_alone_and_gives_the_claim_back(desk: Desk) -> None:
    known = desk.add(recurrence.text("every full moon", ZONE), "tasks", details={})
    desk.verdict = ConditionVerdict(False, "it is new")
    assert desk.round(NOW) == 0 and desk.tasks.list_tasks() == []
    state = desk.state(known)
    assert (state.last_run_ms, state.claimed_by, state.said) == (None, None, "it is new")


@pytest.mark.covers("B-051", "B-045")
def test_a_condition_is_judged_once_in_each_due_window(desk: Desk) -> None:
    known = desk.add(replace(DAILY, condition="unless I am away"), frequency="every day at 7 unless I am away")
    desk.verdict = ConditionVerdict(False, "away")
    for minute in range(0, 120, 10):
        desk.round(SEVEN + minute * MINUTE)
    assert desk.judged == 1 and desk.state(known).next_ms == SEVEN + DAY and desk.letters() == []
    desk.verdict = ConditionVerdict(True)
    desk.round(SEVEN + DAY)
    assert desk.judged == 2 and desk.letters() == ["Reminder: water"]


@pytest.mark.covers("B-048", "E-185", "B-046")
def test_an_error_of_the_model_gives_the_claim_back_and_the_next_is_judged(desk: Desk) -> None:
    first = desk.add(recurrence.text("every full moon", ZONE), "tasks", name="a", details={})
    desk.verdict = Unavailable("no model")
    desk.add(name="b", now=NOW)
    assert desk.round(SEVEN) == 1  # the reminder
    state = desk.state(first)
    assert state.claimed_by is None and state.last_run_ms is None and state.next_ms is not None and state.next_ms > SEVEN
    assert "no model" in state.said


@pytest.mark.covers("B-046")
def test_a_claim_is_given_back_when_it_was_paused_while_it_was_judged(store: Store) -> None:
    class Paused(Desk):
        def _judge(self, known: Schedule, now: int) -> ConditionVerdict:
            self.rows.enable(known.id, False)
            return ConditionVerdict(True)

    desk = Paused(store)
    known = desk.add(recurrence.text("every full moon"))
    assert desk.round(NOW) == 0
    assert desk.state(known).claimed_by is None and desk.rows.firings(known.id) == []


@pytest.mark.covers("B-044", "E-181", "E-180")
def test_a_claim_shuts_others_out_until_it_is_stale_or_its_process_gone(store: Store) -> None:
    mine, other, dead = Desk(store), Desk(store, "other"), Desk(store, GONE)
    known = mine.add(recurrence.text("every full moon", ZONE), "tasks", details={})
    assert mine.rows.claim(known, NOW, mine.keys)
    assert not other.rows.claim(known, NOW + 299_000, other.keys)
    other.rows.release(known.id)  # somebody else's: ignored
    assert other.state(known).claimed_by == ME
    assert other.rows.claim(known, NOW + 301_000, other.keys)
    other.rows.release(known.id)
    assert dead.rows.claim(known, NOW, dead.keys) and mine.rows.claim(known, NOW, mine.keys)


@pytest.mark.covers("B-044", "E-181")
def test_a_disabled_one_and_one_that_just_ran_cannot_be_claimed(desk: Desk) -> None:
    known = desk.add(recurrence.text("every full moon", ZONE), "tasks", details={})
    assert desk.firing.judge(known, NOW)
    assert not desk.rows.claim(known, NOW + 30_000, desk.keys) and desk.rows.claim(known, NOW + 60_000, desk.keys)
    desk.rows.release(known.id)
    desk.rows.enable(known.id, False)
    assert not desk.rows.claim(known, NOW + DAY, desk.keys)


@pytest.mark.covers("B-049", "E-186")
def test_a_trigger_makes_the_tasks_although_the_model_says_not_due(desk: Desk) -> None:
    known = desk.add(recurrence.text("every full moon", ZONE), "tasks", details={})
    desk.verdict = ConditionVerdict(False, "it is new", (WantedTask("look"),))
    desk.firing.trigger(known, NOW + 5)
    assert [task.name for task in desk.tasks.list_tasks()] == ["look"] and desk.state(known).last_run_ms == NOW + 5
    desk.verdict = Unavailable("no model")
    assert "no model" in desk.firing.trigger(known, NOW + 6)
    assert [task.name for task in desk.tasks.list_tasks()] == ["roses", "look"]


@pytest.mark.covers("B-049")
def test_a_trigger_changes_nothing_about_the_next_time(desk: Desk) -> None:
    known = desk.add()
    desk.firing.trigger(known, NOW + 5)
    assert desk.state(known).next_ms == SEVEN and desk.letters() == ["Reminder: water"]
    assert desk.round(SEVEN) == 1


@pytest.mark.covers("B-045", "B-047", "E-183", "E-184")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"isDue": true, "reasoning": "r", "tasks": []}', ConditionVerdict(True, "r")),
        ('Sure!\n```json\n{"isDue": false, "reasoning": "r"}\n```', ConditionVerdict(False, "r")),
        ('{"name": "decide", "arguments": {"isDue": true, "reasoning": "r"}}', ConditionVerdict(True, "r")),
        ('{"isDue": true, "tasks": [{"priority": "highest"}]}', ConditionVerdict(True, "", (WantedTask("Untitled"),))),
        (
            '{"isDue": true, "tasks": [{"name": "a"}, {"name": "b", "priority": "HIGH", "depends_on": [0, 7, "x", 1, -1]}]}',
            ConditionVerdict(True, "", (WantedTask("a"), WantedTask("b", "", "high", (0,)))),
        ),
    ],
)
def test_answers_of_a_model(answer: str, expected: ConditionVerdict) -> None:
    assert conditions.read(answer) == expected


@pytest.mark.covers("B-047", "E-183")
@pytest.mark.parametrize("answer", ["", "yes", "{", '{"isDue": "yes"}', "[1]", '{"due": true}', "{}{}"])
def test_an_answer_without_sense_is_not_due(answer: str) -> None:
    assert conditions.read(answer).is_due is False


# -- failures -----------------------------------------------------------------------------------------


@pytest.mark.covers("A-245")
def test_a_start_that_fails_is_tried_once_more(desk: Desk) -> None:
    known = desk.add(kind="system")
    desk.trouble = [Conflict("not now")]
    desk.round(SEVEN)
    assert desk.begun == [schedules.key(known.id, SEVEN)] and desk.state(known).failures == 0


@pytest.mark.covers("A-245")
def test_five_failures_in_a_row_pause_and_are_told_until_a_person_resumes(desk: Desk) -> None:
    known = desk.add(kind="system")
    for day in range(5):
        assert desk.rows.get(known.id).status == "active"
        desk.trouble = [Conflict("not now")] * 2
        assert desk.round(SEVEN + day * DAY) == 1
    assert (desk.rows.get(known.id).status, desk.paused, len(desk.failed)) == ("paused", ["not now"], 4)
    assert desk.round(SEVEN + 9 * DAY) == 0
    desk.rows.enable(known.id, True, now=SEVEN + 9 * DAY)
    assert desk.rows.get(known.id).status == "active" and desk.state(known).failures == 0
    assert desk.round(SEVEN + 10 * DAY) == 1


@pytest.mark.covers("A-245")
def test_a_success_forgets_failures(desk: Desk) -> None:
    known = desk.add(kind="system")
    for day in range(4):
        desk.round(SEVEN + day * DAY)
        desk.firing.ended(known.id, SEVEN + day * DAY, False, "no")
    assert desk.state(known).failures == 4
    desk.round(SEVEN + 4 * DAY)
    desk.firing.ended(known.id, SEVEN + 4 * DAY, True, "ok")
    desk.firing.ended(known.id, SEVEN + 4 * DAY, False, "too late: it has ended")
    assert desk.state(known).failures == 0 and desk.paused == []


class Cut(BaseException):
    """The power goes."""


@pytest.mark.covers("A-257", "A-254")
@pytest.mark.parametrize("kind", ["reminder", "tasks"])
def test_a_claim_and_what_it_does_stand_or_fall_together(desk: Desk, kind: schedules.Act) -> None:
    known = desk.add(kind=kind, details={"text": "water"})
    whole = desk.firing._effects[kind]

    def cut(due: Due) -> Done:
        whole.make(due)
        raise Cut

    cutting = Firing(desk.store, desk.rows, {kind: FiringEffect(cut, is_inside=True)}, SchedulerSettings, desk._judge)
    with pytest.raises(Cut):
        cutting.round(SEVEN)
    assert desk.rows.firings(known.id) == [] and desk.letters() == [] and desk.tasks.list_tasks() == []
    assert desk.state(known).next_ms == SEVEN and desk.round(SEVEN + MINUTE) == 1
    assert len(desk.letters()) + len(desk.tasks.list_tasks()) == 1


@pytest.mark.covers("A-257")
def test_the_power_goes_between_the_claim_and_the_beginning_of_what_is_begun_after_it(store: Store) -> None:
    dead, mine = Desk(store, GONE), Desk(store)
    known = mine.add(kind="system")
    dead.trouble = [Cut()]  # type: ignore[list-item]
    with pytest.raises(Cut):
        dead.round(SEVEN)
    assert [one.status for one in mine.rows.firings(known.id)] == ["running"] and mine.round(SEVEN) == 0
    assert (mine.firing.recover(SEVEN), mine.begun) == (1, [schedules.key(known.id, SEVEN)])


def test_what_a_dead_process_had_claimed_is_begun_again_once(store: Store) -> None:
    dead, mine, other = Desk(store, GONE), Desk(store), Desk(store, "other")
    known = mine.add(kind="system")
    assert dead.rows.take_firing(known, SEVEN, SEVEN, dead.keys)  # and died before it began
    assert (mine.firing.recover(SEVEN), mine.firing.recover(SEVEN)) == (1, 0)
    assert mine.begun == [schedules.key(known.id, SEVEN)] and other.begun == []


# -- clocks -----------------------------------------------------------------------------------------


@pytest.mark.covers("A-257")
def test_a_clock_that_starts_in_1970_and_leaps_fires_no_backlog_and_misses_nothing_next(desk: Desk) -> None:
    boot = 5 * MINUTE
    daily = desk.add(now=boot)
    old = desk.add(name="made before the power cut")
    assert desk.round(boot + HOUR) == 0
    assert desk.rows.correct_due(NOW, Leap(NOW - boot - HOUR, 0, boot + HOUR)) == 1
    assert desk.round(NOW) == 0 and desk.state(daily).next_ms == SEVEN
    assert desk.round(SEVEN) == 2 and desk.state(old).next_ms == SEVEN + DAY


def test_in_20_minutes_is_in_20_minutes_although_the_clock_leaps(desk: Desk) -> None:
    boot = 5 * MINUTE
    known = desk.add(recurrence.once(boot + 20 * MINUTE), now=boot)
    desk.rows.correct_due(NOW, Leap(NOW - boot - MINUTE, 0, boot + MINUTE))
    assert desk.state(known).next_ms == NOW + 19 * MINUTE
    assert desk.round(NOW) == 0 and desk.round(NOW + 19 * MINUTE) == 1


def test_without_ever_the_time_a_box_still_counts_minutes(desk: Desk) -> None:
    known = desk.add(recurrence.once(25 * MINUTE), now=5 * MINUTE)
    assert desk.round(25 * MINUTE) == 1 and desk.rows.get(known.id).status == "completed"
    assert CLOCKLESS_MS > 25 * MINUTE
    desk.rows.prune(NOW)
    assert desk.rows.get(known.id).status == "completed", "how old it is nobody knows"


def test_a_clock_set_back_fires_nothing_twice_and_misses_nothing(desk: Desk) -> None:
    known = desk.add()
    assert desk.round(SEVEN) == 1
    back = SEVEN - 30 * MINUTE
    desk.rows.correct_due(back)
    assert desk.state(known).next_ms == SEVEN  # it will be seven again
    assert desk.round(SEVEN) == 0 and desk.state(known).next_ms == SEVEN + DAY
    assert desk.round(SEVEN + DAY) == 1


def test_a_clock_set_back_and_forth_misses_nothing_in_between(desk: Desk) -> None:
    known = desk.add()
    assert desk.round(SEVEN) == 1
    desk.rows.correct_due(SEVEN - 30 * MINUTE)
    late = SEVEN + DAY + HOUR
    desk.rows.correct_due(late)
    assert desk.round(late) == 0 and desk.round(late) == 1  # today's was, tomorrow's was not
    assert [one.due_ms for one in desk.rows.firings(known.id)] == [SEVEN + DAY, SEVEN]


def test_a_clock_that_was_years_ahead_keeps_nothing_waiting_for_years(desk: Desk) -> None:
    known = desk.add()
    beat = desk.add(recurrence.interval(3600), name="beat")
    assert desk.round(NOW + 4 * 365 * DAY) == 2
    desk.rows.correct_due(NOW)
    assert (desk.state(known).next_ms, desk.state(beat).next_ms) == (SEVEN, NOW + HOUR)
    assert desk.round(SEVEN) == 2
    assert all(one.fired_ms <= NOW + DAY for one in desk.rows.firings(known.id))


class Counting(ScheduleRows):
    """Counts the schedules that are looked at one by one."""

    looked = 0

    def _corrected_due(self, *given: Any) -> int | None:
        self.looked += 1
        return super()._corrected_due(*given)


def test_of_many_schedules_only_those_that_may_be_wrong_are_counted_anew(desk: Desk) -> None:
    for number in range(30):
        desk.add(name=f"n{number}")
    desk.add(recurrence.once(NOW + DAY), name="once")
    rows = Counting(desk.store, ME)
    assert rows.correct_due(NOW + MINUTE) == 0 and rows.looked == 0  # the clock went on
    assert rows.correct_due(NOW - MINUTE) == 0 and rows.looked == 31  # it was set back
    assert rows.correct_due(SEVEN - 3 * DAY) == 30
    assert {one.state.next_ms for one in rows.list_schedules() if one.name != "once"} == {SEVEN - 3 * DAY + DAY}
    rows.looked = 0
    assert rows.correct_due(SEVEN - 2 * DAY + 1) == 0 and rows.looked == 1  # what was not changed is looked at again


def test_what_was_done_once_long_ago_is_forgotten_and_the_rest_stays(desk: Desk) -> None:
    done = desk.add(recurrence.once(NOW + MINUTE), name="done")
    desk.add(recurrence.once(NOW + 90 * DAY), name="to come")
    daily = desk.add(name="daily")
    desk.round(NOW + MINUTE)
    later = NOW + schedules.KEEP_MS
    assert desk.rows.find(done.id) is not None
    desk.rows.prune(later)
    assert desk.rows.find(done.id) is not None  # not yet
    desk.rows.prune(later + DAY)
    assert desk.rows.find(done.id) is not None  # nor for a clock alone that is so far ahead
    with desk.store.write() as execute:
        execute("UPDATE wall_clock SET aged_ms = ?", (later + DAY,))
    desk.rows.prune(later + DAY)
    assert {one.name for one in desk.rows.list_schedules()} == {"to come", "daily"} and desk.rows.firings(done.id) == []
    before = desk.store.value("SELECT total_changes()")
    desk.rows.prune(later + 2 * DAY)
    assert desk.store.value("SELECT total_changes()") == before and desk.rows.find(daily.id) is not None


def test_times_of_an_older_database_are_counted_once(desk: Desk) -> None:
    known = desk.add()
    with desk.store.write() as execute:
        execute("UPDATE schedule_state SET counted_ms = NULL, next_ms = ?", (SEVEN + 9 * DAY,))
    rows = Counting(desk.store, ME)
    assert [rows.correct_due(NOW), rows.correct_due(NOW)] == [1, 0] and rows.looked == 1
    assert desk.state(known).next_ms == SEVEN


def test_a_time_that_somebody_else_has_set_meanwhile_stays(desk: Desk) -> None:
    known = desk.add()
    stale = desk.rows.get(known.id)
    assert desk.round(SEVEN) == 1
    desk.rows._set_state(known.id, known.rule, SEVEN + HOUR, SEVEN, was=stale.state)
    assert desk.state(known).next_ms == SEVEN + DAY


def test_a_lost_state_is_counted_anew_by_itself(desk: Desk) -> None:
    known = desk.add()
    with desk.store.write() as execute:
        execute("DELETE FROM schedule_state")
    assert desk.rows.next_ms() == 0 and desk.round(NOW) == 0
    assert desk.state(known).next_ms == SEVEN and desk.round(SEVEN) == 1


# -- the thread's two clocks --------------------------------------------------------------------------


@dataclass
class Clocks:
    """A wall clock that may be set, and one that only ever goes on."""

    wall_ms: int
    steady_s: float = 1000.0

    def keeper(self, desk: Desk) -> Timekeeper:
        return Timekeeper(desk.firing, lambda: 60.0, now=lambda: self.wall_ms, up=lambda: round(self.steady_s * 1000))

    def go_on(self, seconds: float, *, set_ms: int = 0) -> None:
        self.steady_s += seconds
        self.wall_ms += round(seconds * 1000) + set_ms


def test_a_thread_that_starts_in_1970_sees_the_leap_and_fires_no_backlog(desk: Desk) -> None:
    clocks = Clocks(5 * MINUTE)
    soon = desk.add(recurrence.once(25 * MINUTE), now=clocks.wall_ms, name="in 20 minutes")
    daily = desk.add(now=clocks.wall_ms, name="daily")
    keeper = clocks.keeper(desk)
    assert keeper.fire_due() == 60.0  # it looks now and then, because the clock may be set
    clocks.go_on(60, set_ms=NOW - 6 * MINUTE)
    assert keeper.fire_due() is not None and desk.letters() == []
    assert (desk.state(soon).next_ms, desk.state(daily).next_ms) == (NOW + 19 * MINUTE, SEVEN)
    clocks.go_on(19 * 60)
    keeper.fire_due()
    assert desk.rows.get(soon.id).status == "completed" and len(desk.letters()) == 1
    clocks.go_on((SEVEN + 4000 - clocks.wall_ms) / 1000)
    keeper.fire_due()
    assert desk.state(daily).last_due_ms == SEVEN
    keeper.close()


def test_a_clock_that_is_set_back_keeps_nothing_from_its_time(desk: Desk) -> None:
    clocks = Clocks(NOW + 400 * DAY)
    known = desk.add(recurrence.interval(3600), now=clocks.wall_ms)
    keeper = clocks.keeper(desk)
    keeper.fire_due()
    clocks.go_on(1, set_ms=-400 * DAY)
    keeper.fire_due()
    assert desk.state(known).next_ms == NOW + HOUR
    keeper.close()


def test_small_corrections_of_the_clock_are_no_leap_until_they_add_up(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks(NOW)
    desk.add()
    keeper = clocks.keeper(desk)
    for seen in ([], [], ["the clock was set by +6.0 s"], ["the clock was set by +6.0 s"]):
        keeper.fire_due()
        assert [record.getMessage() for record in caplog.records if "was set" in record.getMessage()] == seen
        clocks.go_on(30, set_ms=3000)
    keeper.close()


def test_with_nothing_to_come_a_thread_sleeps_until_it_is_woken(desk: Desk) -> None:
    clocks = Clocks(NOW)
    keeper = clocks.keeper(desk)
    assert keeper.fire_due() is None
    desk.add(recurrence.once(NOW + 5000))
    assert keeper.fire_due() == 5.0
    keeper.close()


# -- whose doing --------------------------------------------------------------------------------------


def test_what_a_schedule_began_is_known_at_any_remove(desk: Desk) -> None:
    desk.add(kind="tasks", details={})
    desk.round(SEVEN)
    [task] = desk.tasks.list_tasks()
    with desk.store.write():
        desk.runs.open_session("task:1", "ada", "user:ada")
        first = desk.runs.begin("task:1", "tick", task=task.id)
        child = desk.runs.begin("task:1", "chat", parent=first.id)
        free = desk.runs.begin("task:1", "chat")
    lineage = Lineage(desk.store)
    assert [lineage.is_scheduled(run) for run in (first.id, child.id, free.id, "none")] == [True, True, False, False]


def test_details_are_json(desk: Desk) -> None:
    known = desk.add(details={"text": "für später"}, metadata={"matrix_room_id": "!x"})
    row = desk.store.row("SELECT details, metadata FROM schedules WHERE id = ?", (known.id,))
    assert row is not None and json.loads(row[0])["text"] == "für später" and known.metadata == {"matrix_room_id": "!x"}


@pytest.mark.covers("S-064", "E-263")
@pytest.mark.parametrize(("column", "value"), [("spec", "61 * * * *"), ("spec", "nonsense"), ("zone", "Mars/Base")])
def test_a_row_that_makes_no_sense_is_left_out_and_kept_and_the_others_run(desk: Desk, column: str, value: str) -> None:
    odd = desk.add(name="odd")
    desk.add(name="even")
    with desk.store.write() as execute:
        execute(f"UPDATE schedules SET {column} = ? WHERE id = ?", (value, odd.id))
    for _ in range(3):
        desk.round(SEVEN + HOUR)
    is_lost = column == "spec"
    assert desk.letters().count("Reminder: water\n(It was due on Mon 2026-11-23 07:00.)") == 1
    found = desk.rows.get(odd.id)
    assert getattr(found.rule, column) == value and (found.state.next_ms is None) == is_lost
    assert desk.rows.correct_due(SEVEN + HOUR) == 0  # said once, written once
    view = Timetable(desk.store, desk.rows, desk.runs.marks).view(found)
    assert view.words.startswith("never:") == is_lost
    assert is_lost or "(Mars/Base is not known: UTC)" in view.words


# -- executor facts -----------------------------------------------------------------------------------


@pytest.mark.covers("A-258", "E-315")
def test_the_queue_that_schedules_fill_is_by_priority_then_age_and_can_be_changed(desk: Desk) -> None:
    names = ("low", "medium", "high")
    made = {name: [desk.tasks.add(NewTask(f"{name}{i}", priority=name)) for i in (1, 2)] for name in names}
    desk.tasks.update(made["low"][1].id, priority="high")
    desk.tasks.cancel(made["high"][1].id)
    claimed = [desk.tasks.claim("w") for _ in range(6)]
    assert [one.task.name for one in claimed if one is not None] == ["low2", "high1", "medium1", "medium2", "low1"]
    assert desk.tasks.cancel(made["high"][0].id).cancel_ms is not None  # running: marked
    assert desk.tasks.get(made["high"][1].id).failure == "cancelled"
    with pytest.raises(NotFound):
        desk.tasks.cancel(999)


@pytest.mark.covers("A-258", "E-315")
def test_into_a_full_queue_a_schedule_puts_nothing_and_that_is_a_failure(desk: Desk) -> None:
    with desk.store.write(durable=True):
        waiting = [desk.tasks.add(NewTask(f"n{number}")) for number in range(MAX_WAITING)]
    known = desk.add(kind="tasks", details={})
    assert desk.round(SEVEN) == 1 and desk.tasks.counts()["pending"] == MAX_WAITING
    assert desk.state(known).failures == 1 and f"{MAX_WAITING} tasks wait already" in desk.failed[0]
    desk.tasks.cancel(waiting[0].id)
    desk.round(SEVEN + DAY)
    assert desk.tasks.list_tasks(limit=1)[0].name == "roses"


@pytest.mark.covers("A-192", "A-244")
def test_the_pauses_between_looks_are_keys() -> None:
    keys = Config()
    assert (keys.orchestrator.result_poll_ms, keys.scheduler.poll_ms) == (1000, 60_000)
    assert (keys.scheduler.min_interval_s, keys.scheduler.claim_stale_s, keys.scheduler.max_failures) == (60, 300, 5)
