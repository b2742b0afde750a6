"""Schedules as rows: what people want done when, how each stands, and every time that one was due.

Owns `schedules` (what was decided; undo takes it back), `schedule_state` (what follows from that and the clock) and
`firings`, whose key (schedule, due time) is what makes a thing happen once. `take_firing` is one transaction of the caller:
whatever it does for the schedule stands or falls with the firing. `correct_due` follows a clock that was set.
"""

import json
import logging
import os
from collections.abc import Collection
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from appliance.clock import is_alive, now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.language.times import recurrence
from appliance.language.times.recurrence import Rule
from appliance.runtime.settings import SchedulerSettings
from appliance.store import visibility, wall_clock
from appliance.store.database import Row, Store
from appliance.store.wall_clock import CLOCKLESS_MS, DAY_MS, OLD, Leap
from appliance.work.task_values import named

JUDGE_MS = 3_600_000  # after which a frequency in words is judged again
LOG = logging.getLogger(__name__)
Act = Literal["message", "tasks", "prompt", "reminder", "system"]
Type = Literal["heartbeat", "scheduled", "system"]
Mode = Literal["session", "isolated", "silent"]
Status = Literal["active", "paused", "completed", "failed"]
MODES: dict[str, Mode] = {"heartbeat": "session", "scheduled": "isolated", "system": "silent"}
KEEP_MS = 62 * DAY_MS
SLACK_MS = 5000  # two runs a minute apart may be a little less
COLUMNS = (
    "id, name, description, frequency, kind, spec, zone, condition, act, details, type, mode, is_enabled, person, context, "
    "session, source, role, channel, on_success, on_failure, metadata, created_by, key, hash, created_ms, updated_ms"
)
STATE = "rule, next_ms, last_run_ms, last_due_ms, failures, halt, claimed_by, claimed_ms, said, counted_ms"
FROM = "FROM schedules LEFT JOIN schedule_state s USING (id)"
ROWS = f"SELECT {COLUMNS}, {', '.join(f's.{name}' for name in STATE.split(', '))} {FROM}"
PRINT = "kind || '|' || spec || '|' || zone"  # of a rule, as its state was made for
OPEN = "is_enabled = 1 AND COALESCE(s.halt, '') = ''"
# Those of a deactivated person wait until the person is active again. No name has a colon, so none of a group does.
WHOSE = "IIF(context = '', person, substr(context, 6))"
SERVED = f"NOT EXISTS (SELECT 1 FROM persons WHERE name = {WHOSE} AND deactivated_ms IS NOT NULL)"
STATUS = f"IIF({OPEN}, 'active', IIF(s.halt IN ('completed', 'failed'), s.halt, 'paused'))"  # as `Schedule.status`


class Action(Struct, frozen=True):
    """What is done: a `message` for a session, new `tasks`, a `prompt` for a role, a `reminder`, or a job of the `system`."""

    kind: Act
    details: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """Its text: the message, the prompt, what to be reminded of."""
        return str(self.details.get("text") or self.details.get("prompt") or "")


class Notify(Struct, frozen=True):
    """Who is told by which channel ("" leaves it to the outbox), and of what."""

    channel: str = ""
    on_success: bool = True
    on_failure: bool = True

    @property
    def word(self) -> str:
        """Of what, in a word: all, success, failure or nothing."""
        return {(True, True): "all", (True, False): "success", (False, True): "failure"}.get(
            (self.on_success, self.on_failure), "nothing"
        )


class ScheduleOrder(Struct, frozen=True):
    """What a schedule is. The same `key` names the same one for ever.

    `session` is where a message goes, `source` the thread in which it was asked for, `mode` "" is its type's own.
    """

    name: str
    rule: Rule
    action: Action
    frequency: str = ""
    description: str = ""
    type: Type = "scheduled"
    mode: Mode | Literal[""] = ""
    person: str = ""
    context: str = ""
    session: str = ""
    source: str = ""
    role: str = ""
    notify: Notify = Notify()
    metadata: dict[str, Any] = {}
    created_by: Literal["user", "system"] = "user"
    key: str = ""
    hash: str = ""
    is_enabled: bool = True


class New(ScheduleOrder, frozen=True):
    """A schedule to be added; due first at `first_ms` whatever its rule says. `run` is the thread whose undo takes it back."""

    first_ms: int | None = None
    run: str = ""


class ScheduleState(Struct, frozen=True):
    """How a schedule stands, by its `rule`; without `next_ms` it is never due again."""

    rule: str = ""
    next_ms: int | None = None
    last_run_ms: int | None = None
    last_due_ms: int | None = None
    failures: int = 0
    halt: str = ""
    claimed_by: str | None = None
    claimed_ms: int | None = None
    said: str = ""
    counted_ms: int | None = None


class Schedule(ScheduleOrder, frozen=True, kw_only=True):
    """One schedule and its state."""

    id: int
    created_ms: int
    updated_ms: int
    state: ScheduleState = ScheduleState()

    @property
    def ref(self) -> str:
        """Its number as people see it: 8 hex digits (S-065)."""
        return f"{self.id:08x}"

    @property
    def status(self) -> Status:
        """active, paused by a person or after failures, or at its end."""
        if self.state.halt in ("completed", "failed"):
            return self.state.halt  # type: ignore[return-value]
        return "active" if self.is_enabled and not self.state.halt else "paused"


class FiringRecord(Struct, frozen=True):
    """One time that a schedule was due."""

    schedule: int
    due_ms: int
    fired_ms: int
    status: str
    outcome: str
    ended_ms: int | None


class ScheduleRows:
    """Reads and writes schedules."""

    def __init__(self, store: Store, process: str = "") -> None:
        self._store = store
        self._process = process

    # -- reading ------------------------------------------------------------------------------------

    def find(self, schedule: int) -> Schedule | None:
        row = self._store.row(f"{ROWS} WHERE id = ?{visibility.own_people('person')}", (schedule,))
        return None if row is None else _schedule_from_row(row)

    def get(self, schedule: int) -> Schedule:
        found = self.find(schedule)
        if found is None:
            raise NotFound(f"no schedule {schedule:08x}", hint="owlbox schedule list shows them")
        return found

    def by_key(self, key: str) -> Schedule | None:
        found = self._store.row(f"{ROWS} WHERE key = ?", (key,))
        return None if found is None else _schedule_from_row(found)

    def list_schedules(
        self,
        *,
        person: str = "",
        type: str = "",
        name: str = "",
        prefix: str = "",
        act: str = "",
        status: str = "",
        is_enabled: bool | None = None,
        soonest: bool = False,
        limit: int = 1000,
        offset: int = 0,
    ) -> list[Schedule]:
        """Schedules in the order in which they were made, or by when they are due; only those that all of this says."""
        order = f"{STATUS} != 'active', NULLIF(s.next_ms, 0) NULLS LAST, updated_ms DESC" if soonest else "created_ms, key"
        rows = self._store.rows(
            f"{ROWS} WHERE ?1 IN ('', person) AND ?2 IN ('', act) AND ?3 IN ('', type) AND (?4 IS NULL OR is_enabled = ?4) "
            f"AND ?7 IN ('', name) AND (?8 = '' OR substr(key, 1, length(?8)) = ?8) AND ?9 IN ('', {STATUS})"
            f"{visibility.own_people('person')} "
            f"ORDER BY {order}, id LIMIT ?5 OFFSET ?6",
            (person, act, type, is_enabled, limit, offset, name, prefix, status),
        )
        return [_schedule_from_row(row) for row in rows]

    def count(self, person: str) -> int:
        """The number of a person's schedules that can still become due."""
        return int(self._store.value(f"SELECT COUNT(*) {FROM} WHERE person = ? AND key IS NULL AND {OPEN}", (person,)))

    def due(self, now: int) -> list[Schedule]:
        """Those that are due, and those whose state does not fit their rule any more; the longest overdue first."""
        rows = self._store.rows(
            f"{ROWS} WHERE {OPEN} AND {SERVED} AND (s.next_ms <= ? OR s.rule IS NOT {PRINT}) ORDER BY s.next_ms, created_ms, id",
            (now,),
        )
        return [_schedule_from_row(row) for row in rows]

    def next_ms(self, but: Collection[int] = ()) -> int | None:
        """When something is due next, leaving out some; None for never. 0 when the state of one has to be mended first."""
        mended = f"IIF(s.rule IS {PRINT}, s.next_ms, 0)"
        sql = f"SELECT MIN({mended}) {FROM} WHERE {OPEN} AND {SERVED} AND id NOT IN (SELECT value FROM json_each(?))"
        found = self._store.value(sql, (json.dumps(list(but)),))
        return None if found is None else int(found)

    def firings(self, schedule: int, limit: int = 20) -> list[FiringRecord]:
        """When a schedule was due, newest first."""
        sql = f"SELECT {', '.join(FiringRecord.__struct_fields__)} FROM firings WHERE schedule = ? ORDER BY due_ms DESC LIMIT ?"
        return [FiringRecord(*row) for row in self._store.rows(sql, (schedule, limit))]

    # -- what people decide ---------------------------------------------------------------------------

    def add(self, new: New, now: int | None = None) -> Schedule:
        """A new schedule; the one of the same key when there is one. BadInput for one that is never due."""
        now = now_ms() if now is None else now
        name = named(new.name)
        first = self._first_due(new.rule, now) if new.first_ms is None else new.first_ms
        if first is None:
            raise BadInput(f"{new.frequency or new.rule.spec!r} is never due", hint="say a later time")
        with self._store.write(run=new.run, durable=True) as execute:
            if new.key and (known := self.by_key(new.key)) is not None:
                return known
            schedule = int.from_bytes(os.urandom(4), "big") or 1
            while execute("SELECT 1 FROM schedules WHERE id = ?1 UNION SELECT 1 FROM firings WHERE schedule = ?1", (schedule,)):
                schedule = int.from_bytes(os.urandom(4), "big") or 1
            rule, action, notify = new.rule, new.action, new.notify
            values: tuple[Any, ...] = (
                schedule,
                name,
                new.description,
                new.frequency,
                rule.kind,
                rule.spec,
                rule.zone,
                rule.condition,
            )
            values = (*values, action.kind, _to_json(action.details), new.type, new.mode or MODES[new.type], int(new.is_enabled))
            values = (*values, new.person, new.context, new.session, new.source, new.role, notify.channel, int(notify.on_success))
            values = (*values, int(notify.on_failure), _to_json(new.metadata), new.created_by, new.key or None, new.hash, now, now)
            execute(f"INSERT INTO schedules ({COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
            self._set_state(schedule, rule, first, now)
        return self.get(schedule)

    def change(self, schedule: int, *, run: str = "", now: int | None = None, **given: Any) -> Schedule:
        """Change what was decided: `name`, `description`, `frequency`, `rule`, `action`, `hash`; a new rule is counted anew."""
        now = now_ms() if now is None else now
        with self._store.write(run=run, durable=True) as execute:
            old = self.get(schedule)
            values: dict[str, Any] = {name: value for name, value in given.items() if name not in ("rule", "action")}
            if "name" in values:
                values["name"] = named(values["name"])
            rule = given.get("rule", old.rule)
            if rule != old.rule:
                values |= asdict(rule)
            if "action" in given:
                values |= {"act": given["action"].kind, "details": _to_json(given["action"].details)}
            values = {name: value for name, value in values.items() if value is not None}
            if not values:
                return old
            values["updated_ms"] = max(now, old.updated_ms + 1)
            words = ", ".join(f"{name} = ?" for name in values)
            execute(f"UPDATE schedules SET {words} WHERE id = ?", (*values.values(), schedule))
            if rule != old.rule:
                first = self._first_due(rule, now)
                if first is None:
                    raise BadInput(f"{rule.spec!r} is never due", hint="say a later time")
                self._set_state(schedule, rule, first, now)
                execute("UPDATE schedule_state SET halt = '', failures = 0 WHERE id = ?", (schedule,))
        return self.get(schedule)

    def enable(self, schedule: int, is_enabled: bool, *, run: str = "", now: int | None = None) -> Schedule:
        """Pause or resume one. Resumed, its failures are forgotten, and what was missed stays missed (A-245)."""
        now = now_ms() if now is None else now
        with self._store.write(run=run, durable=True) as execute:
            old = self.get(schedule)
            if old.is_enabled is is_enabled and (not is_enabled or not old.state.halt):
                return old
            if is_enabled:
                first = old.state.next_ms if old.rule.kind == "once" and old.state.halt != "completed" else None
                first = first or self._first_due(old.rule, now)
                if first is None:
                    raise Conflict(f"schedule {old.ref} was due for the last time", hint="add a new one")
                self._set_state(schedule, old.rule, first, now)
                sql = "UPDATE schedule_state SET halt = '', failures = 0, claimed_by = NULL, claimed_ms = NULL WHERE id = ?"
                execute(sql, (schedule,))
            if old.is_enabled is not is_enabled:
                sql = "UPDATE schedules SET is_enabled = ?, updated_ms = ? WHERE id = ?"
                execute(sql, (int(is_enabled), max(now, old.updated_ms + 1), schedule))
        return self.get(schedule)

    def delete(self, schedule: int, *, run: str = "") -> Schedule:
        """Remove one; its firings stay until they are old."""
        with self._store.write(run=run, durable=True) as execute:
            old = self.get(schedule)
            execute("DELETE FROM schedules WHERE id = ?", (schedule,))
            execute("DELETE FROM schedule_state WHERE id = ?", (schedule,))
        return old

    # -- when it is due -------------------------------------------------------------------------------

    def take_firing(self, known: Schedule, due_ms: int, now: int, keys: SchedulerSettings, *, is_asked: bool = False) -> bool:
        """Within a write of the caller: this time is ours alone, and the next one is set. False when it is not, or not yet.

        `is_asked`: a person wants it now, whatever the rule says.
        """
        with self._store.write(durable=True) as execute:
            current = self.find(known.id)
            if current is None or (not is_asked and (current.status != "active" or current.state.next_ms != known.state.next_ms)):
                return False
            state = current.state
            sql = "SELECT 1 FROM firings WHERE schedule = ? AND due_ms = ?"
            if not is_asked and not self._is_rested(state, due_ms, now, keys) and not execute(sql, (known.id, due_ms)):
                return False  # a little later, under the same key
            rows = execute(
                "INSERT INTO firings (schedule, due_ms, fired_ms, process, status) VALUES (?, ?, ?, ?, 'running') "
                "ON CONFLICT DO NOTHING RETURNING 1",
                (known.id, due_ms, now, self._process),
            )
            is_ahead = is_asked and (state.next_ms or 0) > now
            following = state.next_ms if is_ahead else self._following_due(current.rule, due_ms, now)
            halt = state.halt if is_asked or (following and current.rule.kind != "once") else "completed"
            if rows:
                execute(
                    "UPDATE schedule_state SET next_ms = ?1, last_run_ms = ?2, last_due_ms = ?3, halt = ?4, claimed_by = NULL, "
                    "claimed_ms = NULL, counted_ms = IIF(?5, counted_ms, ?2) WHERE id = ?6",
                    (following, now, due_ms, halt, is_ahead, known.id),
                )
            elif not is_asked:  # it happened already, before the clock was set back; what comes next may have not
                following = self._unfired_due(current, due_ms, now)
                sql = "UPDATE schedule_state SET next_ms = ?, halt = ?, counted_ms = ? WHERE id = ?"
                execute(sql, (following, halt, now, known.id))
        return bool(rows)

    def end(self, schedule: int, due_ms: int, status: str, outcome: str, keys: SchedulerSettings) -> Schedule | None:
        """How it went, once; the schedule when that failed as often as it may and is paused now, else None."""
        with self._store.write(durable=True) as execute:
            sql = (
                "UPDATE firings SET status = ?, outcome = ?, ended_ms = ? WHERE schedule = ? AND due_ms = ? AND status = 'running'"
            )
            if not execute(f"{sql} RETURNING 1", (status, outcome[:1000], now_ms(), schedule, due_ms)):
                return None
            if status != "failed":
                if status == "done":
                    execute("UPDATE schedule_state SET failures = 0, said = ? WHERE id = ?", (outcome[:1000], schedule))
                return None
            execute(
                "UPDATE schedule_state SET failures = failures + 1, said = ?1, halt = CASE WHEN halt = 'completed' THEN 'failed' "
                "WHEN halt = '' AND failures + 1 >= ?2 THEN 'failures' ELSE halt END WHERE id = ?3",
                (outcome[:1000], keys.max_failures, schedule),
            )
            found = self.find(schedule)
        is_paused = found is not None and found.state.halt == "failures" and found.state.failures == keys.max_failures
        return found if is_paused else None

    def claim(self, known: Schedule, now: int, keys: SchedulerSettings) -> bool:
        """Judge it: nobody else may meanwhile. False when it ran or is judged just now, or is not active (B-044)."""
        with self._store.write() as execute:
            current = self.find(known.id)
            if current is None or current.status != "active":
                return False
            state = current.state
            is_stale = abs(now - (state.claimed_ms or 0)) > keys.claim_stale_s * 1000
            is_free = state.claimed_by is None or is_stale or not is_alive(state.claimed_by)
            if not is_free or (state.last_run_ms is not None and 0 <= now - state.last_run_ms < keys.min_interval_s * 1000):
                return False
            execute("UPDATE schedule_state SET claimed_by = ?, claimed_ms = ? WHERE id = ?", (self._process, now, known.id))
        return True

    def release(self, schedule: int, *, next_ms: int | None = None, said: str = "", now: int | None = None) -> None:
        """Give back our own claim, and nobody else's; with when it is looked at again, as counted at `now`."""
        with self._store.write() as execute:
            execute(
                "UPDATE schedule_state SET claimed_by = NULL, claimed_ms = NULL, next_ms = COALESCE(?1, next_ms), "
                "said = IIF(?2 = '', said, ?2), counted_ms = COALESCE(?5, counted_ms) WHERE id = ?3 AND claimed_by = ?4",
                (next_ms, said[:1000], schedule, self._process, now),
            )

    def pass_over(self, known: Schedule, due_ms: int, now: int, why: str) -> None:
        """It was judged not to be due: our claim is given back, the last run stays what it was (B-046)."""
        with self._store.write(durable=True) as execute:
            execute(
                "INSERT INTO firings (schedule, due_ms, fired_ms, process, status, outcome, ended_ms) "
                "VALUES (?, ?, ?, ?, 'not due', ?, ?) ON CONFLICT DO NOTHING",
                (known.id, due_ms, now, self._process, why[:1000], now),
            )
            following = self._following_due(known.rule, due_ms, now)
            self.release(known.id, next_ms=following, said=why, now=now)
            if following is None or known.rule.kind == "once":
                execute("UPDATE schedule_state SET halt = 'completed' WHERE id = ?", (known.id,))

    def left_running(self) -> list[tuple[Schedule, int]]:
        """What was claimed by processes that are gone and has not ended, with its due time."""
        rows = self._store.rows("SELECT schedule, due_ms, process FROM firings WHERE status = 'running' ORDER BY fired_ms")
        gone = [(self.find(int(row[0])), int(row[1])) for row in rows if row[2] != self._process and not is_alive(row[2])]
        return [(found, due_ms) for found, due_ms in gone if found is not None]

    def adopt(self, schedule: int, due_ms: int) -> bool:
        """A running firing of a dead process is ours; False when another process was quicker."""
        sql = "SELECT process FROM firings WHERE schedule = ? AND due_ms = ? AND status = 'running'"
        with self._store.write() as execute:
            row = execute(sql, (schedule, due_ms))
            if not row or row[0][0] == self._process or is_alive(row[0][0]):
                return False
            execute("UPDATE firings SET process = ? WHERE schedule = ? AND due_ms = ?", (self._process, schedule, due_ms))
        return True

    def correct_due(self, now: int, leap: Leap | None = None) -> int:
        """Put right what does not fit the clock or the rule; how many. Writes nothing when all is well.

        After a `leap` each is looked at. Else what was counted by this clock when it showed less cannot lie too far ahead.
        """
        sql = f"{ROWS} WHERE {OPEN} AND (kind = 'text' OR s.rule IS NOT {PRINT} OR s.next_ms IS NULL OR s.counted_ms IS NULL "
        sql += "OR s.counted_ms > ?1 OR (?1 > ?2 AND (s.next_ms < ?2 OR s.counted_ms < ?2)) OR ?3)"
        wanted: list[tuple[Schedule, int | None]] = []
        for one in map(_schedule_from_row, self._store.rows(sql, (now, CLOCKLESS_MS, leap is not None))):
            try:
                wanted.append((one, self._corrected_due(one, now, leap)))
            except BadInput as error:
                self._warn_once(one, error, now)
        differs = [(one, at) for one, at in wanted if one.state.rule != one.rule.fingerprint or at != one.state.next_ms]
        count = len(differs)
        if wanted and (differs or self._store.row(f"SELECT 1 {FROM} WHERE {OPEN} AND s.counted_ms IS NULL LIMIT 1")):
            with self._store.write() as execute:
                for one, following in differs:
                    self._set_state(one.id, one.rule, following, now, was=one.state)
                execute("UPDATE schedule_state SET counted_ms = ? WHERE counted_ms IS NULL", (now,))
        self.prune(now)
        return count

    def prune(self, now: int) -> None:
        """Forget old firings, and what people wanted done once and was done long ago. Writes nothing when there is none."""
        if now < CLOCKLESS_MS:
            return
        limit_ms = wall_clock.age_limit(self._store, now)
        old, ahead = limit_ms - KEEP_MS, max(now, limit_ms) + 2 * DAY_MS
        once = f"SELECT id {FROM} WHERE kind = 'once' AND key IS NULL AND s.halt <> '' AND updated_ms {OLD} ?1 AND "
        gone = json.dumps([row[0] for row in self._store.rows(f"{once} COALESCE(s.last_run_ms, updated_ms) {OLD} ?1", (old,))])
        if gone != "[]" or self._store.row("SELECT 1 FROM firings WHERE fired_ms < ? OR fired_ms > ? LIMIT 1", (old, ahead)):
            with self._store.write() as execute:
                execute("DELETE FROM firings WHERE fired_ms < ? OR fired_ms > ?", (old, ahead))
                for table in ("schedules", "schedule_state"):
                    execute(f"DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (gone,))

    # -- inside ---------------------------------------------------------------------------------------

    @staticmethod
    def _first_due(rule: Rule, now: int) -> int | None:
        """When a new one is due first; a text is judged at once."""
        return now if rule.kind == "text" else recurrence.after(rule, now)

    @staticmethod
    def _following_due(rule: Rule, due_ms: int, now: int) -> int | None:
        """When it is due after this time: never in the past, however much was missed."""
        if rule.kind == "text":
            return now + JUDGE_MS
        if rule.kind == "interval":  # in step with its beginning, as long as it was on time
            step_ms = int(rule.base) * 1000
            return recurrence.within(rule, (due_ms if due_ms <= now < due_ms + step_ms else now) + step_ms)
        return recurrence.after(rule, max(now, due_ms))

    def _unfired_due(self, known: Schedule, due_ms: int, now: int) -> int | None:
        """The first time after this one that was not fired yet, also when it has passed."""
        moment: int | None = due_ms
        while moment is not None:
            moment = now + JUDGE_MS if known.rule.kind == "text" else recurrence.after(known.rule, moment)
            if not self._store.row("SELECT 1 FROM firings WHERE schedule = ? AND due_ms = ?", (known.id, moment)):
                break
        return moment

    @staticmethod
    def _is_rested(state: ScheduleState, due_ms: int, now: int, keys: SchedulerSettings) -> bool:
        """Whether the last run is long enough ago, by the clock, or by what was due when that was punctual."""
        if state.last_run_ms is None or not 0 <= now - state.last_run_ms < keys.min_interval_s * 1000:
            return True
        if state.last_due_ms is None or state.last_run_ms - state.last_due_ms > SLACK_MS:
            return False
        return due_ms - state.last_due_ms >= keys.min_interval_s * 1000 - SLACK_MS

    def _corrected_due(self, one: Schedule, now: int, leap: Leap | None) -> int | None:
        """When one should be due next, as the clock is now. What the leap alone made due is not; a date stays where it is."""
        rule, known = one.rule, one.state.next_ms
        if rule.kind == "text":
            return known if known is not None and known <= now + JUDGE_MS else now
        first = recurrence.after(rule, now)
        if leap is not None and known is not None and known > leap.until_ms:
            if rule.kind == "interval" or (rule.kind == "once" and self._is_counted(one, leap)):
                return known + leap.by_ms
            if rule.kind != "once" and known <= now:
                return first
        if rule.kind == "once":
            if known is None or not known < CLOCKLESS_MS < now:
                return recurrence.at(rule) if known is None else known
            return known + leap.by_ms if leap is not None and leap.by_ms > 0 else now
        if known is None or (known < CLOCKLESS_MS < now):
            return first
        return first if first is not None and known > first else known

    @staticmethod
    def _is_counted(one: Schedule, leap: Leap) -> bool:
        """Whether its moment was counted from the time of the clock that was wrong, and is no date."""
        counted_ms = one.state.counted_ms or 0
        return leap.since_ms <= counted_ms <= leap.until_ms and one.rule.is_counted

    def _warn_once(self, one: Schedule, error: BadInput, now: int) -> None:
        """One that makes no sense is left out with a warning, and kept as it is; once."""
        if one.state.next_ms is not None or not one.state.rule:
            LOG.error("schedule %s (%s) is left out: %s", one.ref, one.name, error)
            self._set_state(one.id, one.rule, None, now)

    def _set_state(self, schedule: int, rule: Rule, following: int | None, now: int, was: ScheduleState | None = None) -> None:
        """When it is due next, as counted now; nothing when somebody else was quicker than who saw it as it `was`."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO schedule_state (id, rule, next_ms, counted_ms) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE "
                "SET rule = ?2, next_ms = ?3, counted_ms = ?4 WHERE ?5 OR (next_ms IS ?6 AND rule = ?7)",
                (schedule, rule.fingerprint, following, now, was is None, was and was.next_ms, was and was.rule),
            )


def key(schedule: int, due_ms: int) -> str:
    """What a thing that a schedule did is known by, for ever."""
    return f"schedule:{schedule:08x}:{due_ms}"


def parsed(text: str) -> tuple[int, int] | None:
    """Schedule and due time of such a key, which may go on behind another colon; None for other texts."""
    word, *parts = text.split(":")
    try:
        return (int(parts[0], 16), int(parts[1])) if word == "schedule" and len(parts) >= 2 else None
    except ValueError:
        return None


def number(ref: str) -> int:
    """The number of a schedule as people write it; NotFound for what cannot be one."""
    try:
        if not 1 <= len(ref) <= 8:
            raise ValueError(ref)
        return int(ref, 16)
    except ValueError:
        raise NotFound(f"no schedule {ref!r}", hint="ids have 8 hex digits; owlbox schedule list shows them") from None


def _schedule_from_row(row: Row) -> Schedule:
    names = COLUMNS.split(", ")
    values = dict(zip(names, row, strict=False))
    rule = Rule(*(values.pop(name) for name in ("kind", "spec", "zone", "condition")))
    action = Action(values.pop("act"), json.loads(values.pop("details")))
    notify = Notify(values.pop("channel"), bool(values.pop("on_success")), bool(values.pop("on_failure")))
    state = [*row[len(names) :]]
    known = dict(zip(STATE.split(", "), state, strict=True))
    if known["halt"] is None:
        known = {}
    values["metadata"], values["is_enabled"] = json.loads(values["metadata"]), bool(values["is_enabled"])
    values["key"] = values["key"] or ""
    return Schedule(**values, rule=rule, action=action, notify=notify, state=ScheduleState(**known))


def _to_json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
