"""What people and models may do with schedules: make, look, pause, resume, delete, each only with their own.

A text about time becomes a rule here (`language.times`), and a schedule a thing with words and its next times. What a schedule
itself began may make none: a few of those would beget a heap that never ends. Owns no table; rows are those of `schedules`.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import BadInput, Exhausted, NotFound, Refused
from appliance.language.languages import Languages
from appliance.language.times import frequencies, recurrence, time_expression
from appliance.language.times.lexicon import Lexicon
from appliance.language.times.recurrence import Rule
from appliance.language.times.time_expression import TimeExpression
from appliance.policy.taint_marks import Marks
from appliance.runtime.events import Events
from appliance.runtime.settings import System
from appliance.store import visibility
from appliance.store.database import Store
from appliance.work import rules_in_words, schedules
from appliance.work.lineage import Lineage
from appliance.work.schedules import New, Schedule, ScheduleRows
from appliance.work.work_events import ScheduleChanged

Found = TypeVar("Found", Rule, TimeExpression)
MAX_PER_PERSON = 100  # active schedules of one person
EVERYBODY = ""  # whose schedules somebody outside of every thread sees
NEXT = 5
MOST = 1_000_000


class ScheduleCaller(Struct, frozen=True):
    """Who asks: the thread, "" outside of any; the person, `EVERYBODY` for who may see all."""

    run: str = ""
    person: str = EVERYBODY


class ScheduleView(Struct, frozen=True):
    """A schedule as people see it; times in milliseconds, `next` the next of them."""

    id: str
    name: str
    status: str
    frequency: str
    words: str
    kind: str
    spec: str
    zone: str
    condition: str
    is_judged: bool
    action: str
    text: str
    type: str
    mode: str
    person: str
    session: str
    source: str
    role: str
    description: str
    notify: str
    tell: str
    is_enabled: bool
    next_ms: int | None
    next: tuple[int, ...]
    last_run_ms: int | None
    failures: int
    said: str
    created_by: str
    created_ms: int
    updated_ms: int
    metadata: dict[str, Any] = {}


class Timetable:
    """Makes, shows and changes schedules. Publishes `ScheduleChanged` after each change."""

    def __init__(
        self,
        store: Store,
        rows: ScheduleRows,
        marks: Marks,
        system: Callable[[], System] = System,
        trigger: Callable[[Schedule], str] | None = None,
        events: Events | None = None,
        languages: Callable[[], Languages] = Languages,
    ) -> None:
        """`trigger` does at once what a schedule is for; without it nobody does in this process.

        `languages`: in which times are read.
        """
        self._store = store
        self.rows = rows
        self._marks = marks
        self._system = system
        self.lineage = Lineage(store)
        self._trigger = trigger
        self._events = events or Events()
        self._make_languages = languages

    @cached_property
    def _languages(self) -> Languages:
        """Loaded when the first text about time is read."""
        return self._make_languages()

    # -- rules --------------------------------------------------------------------------------------

    def read(self, text: str, zone: str = "", *, is_frequency: bool = True, now: int | None = None) -> Rule:
        """Parse a text about time, or a rule as `recurrence.written` writes it."""
        at, zone = now_ms() if now is None else now, zone or self._system().timezone
        if (rule := recurrence.read_written(text, zone)) is not None:
            return rule
        return self._in_languages(text, lambda one: frequencies.read(text, one, at, zone, is_frequency=is_frequency))

    def split(self, text: str, zone: str = "", *, now: int | None = None) -> TimeExpression:
        """What a sentence is about and when that is to be; no rule where it has no time in it."""
        at, zone = now_ms() if now is None else now, zone or self._system().timezone
        return self._in_languages(text, lambda one: time_expression.split(text, one, at, zone))

    def _in_languages(self, text: str, read: Callable[[Lexicon], Found]) -> Found:
        """What the likeliest language reads in a text; another only where that reads no time."""
        found: list[Found] = []
        failure: BadInput | None = None
        for language in sorted(self._languages.detect(text), key=lambda one: -one.lexicon.count_words(text)):
            try:
                found.append(read(language.lexicon))
            except BadInput as error:
                failure = failure or (error if not found else None)
                continue
            if not isinstance(found[-1], TimeExpression) or found[-1].rule is not None:
                return found[-1]
        if failure is not None:
            raise failure
        return found[0]

    def simple(self, text: str, zone: str = "") -> Rule:
        """Five fields of cron, or `every N`."""
        return recurrence.simple(text, zone or self._system().timezone)

    # -- looking ------------------------------------------------------------------------------------

    def view(self, known: Schedule, now: int | None = None) -> ScheduleView:
        """A schedule with its words and next times."""
        rule, state = known.rule, known.state
        ahead: list[int] = []
        try:
            spec = rule.spec
            if rule.is_counted and state.next_ms is not None:  # it may have moved with a clock that was set
                spec = recurrence.once(state.next_ms, rule.zone).spec
            said = rules_in_words.words(recurrence.make_rule(rule.kind, spec, rule.zone, rule.condition))
            if known.status == "active" and state.next_ms is not None:
                ahead = [state.next_ms]
                if rule.kind != "text":
                    ahead += recurrence.upcoming(rule, max(state.next_ms, now_ms() if now is None else now), NEXT - 1)
        except BadInput as error:
            said = f"never: {error.message}"
        same = {name: getattr(known, name) for name in ScheduleView.__struct_fields__ if name in SAME}
        return ScheduleView(
            **same,
            notify=known.notify.channel,
            tell=known.notify.word,
            id=known.ref,
            action=known.action.kind,
            text=known.action.text,
            words=said,
            is_judged=rule.is_judged,
            next_ms=ahead[0] if ahead else None,
            kind=rule.kind,
            spec=rule.spec,
            zone=rule.zone,
            condition=rule.condition,
            last_run_ms=state.last_run_ms,
            failures=state.failures,
            said=state.said,
            next=tuple(ahead),
        )

    def get(self, ref: str, who: ScheduleCaller) -> Schedule:
        """A schedule by its id, or by its name when only one has that; NotFound when it is none of theirs."""
        named = self.list_schedules(who, name=ref, limit=2) if ref else []
        if len(named) == 1:
            return named[0]
        found = self.rows.find(schedules.number(ref))
        if found is None or not self._is_theirs(found, who):
            raise NotFound(f"no schedule {ref}", hint="list_schedules shows them" if who.run else "owlbox schedule list shows them")
        return found

    def list_schedules(self, who: ScheduleCaller, *, limit: int = 1000, **which: Any) -> list[Schedule]:
        """Their schedules; which of them and in what order is said as to `Schedules.list_schedules`."""
        person = "" if self.sees_all(who) else who.person
        if not person and not self.sees_all(who):
            return []
        return self.rows.list_schedules(person=person, limit=limit, **which)

    # -- changing -------------------------------------------------------------------------------------

    def add(self, new: New, who: ScheduleCaller) -> Schedule:
        """A new schedule; Refused when a schedule wants to make one, Exhausted for one too many."""
        self._require_free(who)
        limit = MAX_PER_PERSON
        with self._store.write(run=new.run, durable=True):
            if new.created_by == "user" and self.rows.count(new.person) >= limit:
                raise Exhausted(f"{new.person or 'nobody'} has {limit} schedules already", hint="delete one that is not needed")
            made = self.rows.add(new)
            if who.run:
                self._marks.inherit(f"schedule:{made.ref}", f"run:{who.run}")
        self._events.publish(ScheduleChanged())
        return made

    def change(self, known: Schedule, who: ScheduleCaller, **given: Any) -> Schedule:
        """Change one: see `Schedules.change`."""
        self._require_free(who)
        with self._store.write(run=who.run, durable=True):
            found = self.rows.change(known.id, run=who.run, **given)
            if who.run:
                self._marks.inherit(f"schedule:{found.ref}", f"run:{who.run}")
        self._events.publish(ScheduleChanged())
        return found

    def enable(self, known: Schedule, is_enabled: bool, who: ScheduleCaller) -> Schedule:
        """Pause or resume one; what a schedule began resumes none."""
        if is_enabled:
            self._require_free(who)
        found = self.rows.enable(known.id, is_enabled, run=who.run)
        self._events.publish(ScheduleChanged())
        return found

    def delete(self, known: Schedule, who: ScheduleCaller) -> Schedule:
        gone = self.rows.delete(known.id, run=who.run)
        self._events.publish(ScheduleChanged())
        return gone

    def fire(self, known: Schedule, who: ScheduleCaller) -> str:
        """Run one now and return its outcome."""
        self._require_free(who)
        if self._trigger is None:
            raise Refused("nobody fires schedules in this process", hint="owlbox schedule trigger does")
        return self._trigger(known)

    # -- the assistant's own ----------------------------------------------------------------------------------

    def ensure(self, new: New) -> Schedule:
        """The schedule of a key as it should be: made, changed, or left alone. The same hash keeps its rule and times."""
        known = self.rows.by_key(new.key)
        if known is None:
            made = self.rows.add(replace(new, created_by="system"))
            self._events.publish(ScheduleChanged())
            return made
        rule = known.rule if new.hash and new.hash == known.hash else new.rule
        wanted: dict[str, Any] = {"name": new.name, "description": new.description, "rule": rule, "action": new.action}
        wanted["hash"] = new.hash
        differs = {name: value for name, value in wanted.items() if value != getattr(known, name)}
        if not differs:
            return known
        found = self.rows.change(known.id, **differs)
        self._events.publish(ScheduleChanged())
        return found

    def remove_keyed(self, prefix: str, keep: Collection[str] = ()) -> int:
        """Remove the assistant's own schedules whose key begins so, but for some; how many."""
        gone = [one for one in self.rows.list_schedules(prefix=prefix, limit=MOST) if one.key not in keep]
        for one in gone:
            self.rows.delete(one.id)
        if gone:
            self._events.publish(ScheduleChanged())
        return len(gone)

    def sees_all(self, who: ScheduleCaller) -> bool:
        """Whether everybody's schedules are theirs to see and change."""
        return visibility.asking() is None and (not who.run or who.person in self._system().admin_users)

    # -- inside -------------------------------------------------------------------------------------

    def _is_theirs(self, known: Schedule, who: ScheduleCaller) -> bool:
        return self.sees_all(who) or (bool(who.person) and known.person == who.person)

    def _require_free(self, who: ScheduleCaller) -> None:
        if who.run and self.lineage.is_scheduled(who.run):
            what = "what a schedule began makes, changes and fires no schedules"
            raise Refused(what, hint="tell the person, who may", outcome="scheduled")


SAME = {
    *("name", "status", "frequency", "type", "mode", "person", "session", "source", "role", "description", "is_enabled"),
    *("created_by", "created_ms", "updated_ms", "metadata"),
}
