"""Runs: pieces of the agent's work in a session; the record of every conversation as one thing.

Owns the `runs` table but for the status, which follows from its loops. session > run > loop > turn > event: the
tables below are `sessions`, `turns` and `events`, and are reached through here. A run has a name, what it is set to,
and the branch on which it goes on; one that was forked begins where it left another one, without a copy. A deleted
run stays as far as its forks need it, out of sight. Knows nothing about models or channels; telling people what happened
is `channels.inbox`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict as struct_asdict
from msgspec.structs import replace

from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.policy.taint_marks import Marks
from appliance.records import Event, Image, Inbound, Message, RunSettings, from_plain, to_plain
from appliance.sessions.events import SPOKEN, as_messages, compacted
from appliance.sessions.sessions import COLUMNS as SESSION_COLUMNS
from appliance.sessions.turns import DONE, FAILED, PROPOSED, RUNNING, STOPPED, WAITING, Loop, Turns
from appliance.store import visibility, wall_clock
from appliance.store.database import Row
from appliance.text.fences import is_origin

__all__ = ["DONE", "FAILED", "PROPOSED", "RUNNING", "STOPPED", "WAITING", "Loop", "Run", "Runs", "Start", "as_messages"]

RUN_COLUMNS = (
    "id, session, parent, kind, task, title, status, outcome, metadata, last_seq, created_ms, updated_ms, ended_ms, "
    "alias, role, settings, head, turn_base, is_branched, deleted_ms"
)
ALIAS = re.compile(r"[a-zA-Z0-9_]+")
ID_CHARS = 36  # of the id of a thread


class Run(Struct, frozen=True):
    """One thread of work (B-052 calls it a thread); `head` is the event under which the next one hangs."""

    id: str
    session: str
    parent: str | None
    kind: str
    task: str | None
    title: str
    status: int
    outcome: str
    metadata: dict[str, Any] = {}
    last_seq: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    ended_ms: int | None = None
    alias: str = ""
    role: str = ""
    settings: RunSettings = RunSettings()
    head: int | None = None
    turn_base: int = 0
    is_branched: bool = False
    is_hidden: bool = False  # deleted, but for what its forks need

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins of the untrusted text in it, or in what it came from; a run with any is tainted."""
        return tuple(sorted(self.metadata.get("origins") or ()))


class Start(Struct, frozen=True):
    """How a run begins when it is not just a new one: its name, what it is set to, where it was forked."""

    alias: str = ""
    role: str = ""
    settings: RunSettings = RunSettings()
    head: int | None = None
    turn_base: int = 0


class RunCreated(Struct, frozen=True):
    """A run began."""

    run: Run


class Runs(Turns):
    """Reads and writes the record."""

    # -- sessions -----------------------------------------------------------------------------------

    def touch_session(self, inbound: Inbound) -> None:
        """Make sure the message's session exists and is active. Call inside a transaction."""
        self.people.touch(inbound)

    def open_session(self, session: str, person: str, context: str) -> None:
        """A session without a channel, such as a task's, for a person or group; active from now on. Call inside a transaction."""
        self.people.open(session, person, context)

    def session(self, session: str) -> dict[str, Any]:
        """One session: `channel`, `person`, `context`, `status`, and `metadata`, the return address of its last message."""
        found = self.people.find(session)
        if found is None:
            raise NotFound(f"no session {session}")
        return struct_asdict(found)

    def rest_session(self, session: str, status: Literal["active", "idle", "stopped"] = "active") -> None:
        """Nobody works in this session any more."""
        self.people.rest(session, status)

    def sessions(self) -> list[dict[str, Any]]:
        """All sessions with the state needed to recover them as it was written down, newest first."""
        columns = SESSION_COLUMNS.removesuffix(", metadata")
        rows = self._store.rows(
            f"SELECT {columns} FROM sessions WHERE 1{visibility.own_sessions('id')} ORDER BY last_active_ms DESC"
        )
        return [dict(zip(columns.split(", "), row, strict=True)) for row in rows]

    def origin(self, event: int) -> tuple[str, dict[str, Any]]:
        """The channel from which a message came, and what that wants back with the answer; "" for an event that is none."""
        row = self._store.row("SELECT channel, json_extract(input, '$.metadata') FROM events WHERE id = ?", (event,))
        return ("", {}) if row is None else (str(row[0] or ""), json.loads(row[1]) if row[1] else {})

    def person(self, session: str) -> str:
        """Whose session it is; "" for one that does not exist."""
        return str(self._store.value("SELECT person FROM sessions WHERE id = ?", (session,)) or "")

    def context_of(self, run: str) -> str:
        """The person or group that a run works for; "" for one that does not exist."""
        sql = "SELECT s.context FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id = ?"
        return str(self._store.value(sql, (run,)) or "")

    def stop_sessions(self) -> None:
        """At shutdown: sessions this process is working in are marked stopped (A-276)."""
        self.people.stop()

    # -- runs ---------------------------------------------------------------------------------------

    def begin(
        self,
        session: str,
        kind: str,
        *,
        parent: str | None = None,
        title: str = "",
        run_id: str = "",
        task: int | None = None,
        start: Start = Start(),
    ) -> Run:
        """A new run in a session that exists; with a new id and name of its own when none are given."""
        run_id, now = run_id or new_id(), now_ms()
        check_settings(start.settings)
        with self._store.write() as execute:
            alias = self._free_alias(start.settings.model or kind, now) if not start.alias else self._own_alias(start.alias)
            execute(
                "INSERT INTO runs (id, session, parent, kind, task, title, status, created_ms, updated_ms, alias, role, settings, "
                "head, turn_base) VALUES (?, ?, ?, ?, ?, ?, 100, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(run_id, session, parent, kind, None if task is None else str(task), title, now, now),
                    *(alias, start.role, json.dumps(_changed_settings(start.settings)), start.head, start.turn_base),
                ),
            )
            for source in (f"run:{parent}" if parent else "", "" if task is None else f"task:{task}"):
                if source:
                    self.marks.inherit(f"run:{run_id}", source)
        made = self.get(run_id)
        if self.news.has(RunCreated):
            self._store.after(partial(self.news.publish, RunCreated(made)))
        return made

    @property
    def marks(self) -> Marks:
        """From where runs, entries and tasks are marked."""
        return self.record.marks

    def taint(self, run: str, origin: str, source: str = "") -> None:
        """Mark a run as tainted by untrusted text, where no result of a tool says so."""
        self.marks.add(f"run:{run}", origin, source, self.get(run).last_seq)

    def get(self, ref: str) -> Run:
        """The run with this id or name, or the only one whose id starts or ends with it (at least 4 characters)."""
        rows = self._select_runs("id = ?1 OR alias = ?1", ref)
        if len(rows) > 1:
            rows = [row for row in rows if row[0] == ref]
        if not rows and 4 <= len(ref) <= ID_CHARS and ref.replace("-", "").isalnum():
            rows = self._select_runs("id LIKE ?1 || '%' OR id LIKE '%' || ?1", ref)
        if len(rows) > 1:
            raise BadInput(f"thread {ref} is ambiguous", hint="give more of its id; owlbox thread list shows them")
        if not rows:
            raise NotFound(f"no thread {ref}", hint="owlbox thread list shows them")
        return _run_from_row(rows[0])

    def list_runs(self, *, kind: str = "", limit: int = 20, offset: int = 0, beside: str = "", session: str = "") -> list[Run]:
        """Runs, newest first; with `beside`, only those of the same person or group as that run; only of one session."""
        rows = self._store.rows(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE ?1 IN ('', kind) AND ?5 IN ('', session) AND deleted_ms IS NULL "
            "AND (?4 = '' OR session IN (SELECT id FROM sessions "
            "WHERE context = (SELECT s.context FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id = ?4)))"
            f"{visibility.own_sessions('session')} "
            "ORDER BY created_ms DESC, id DESC LIMIT ?2 OFFSET ?3",
            (kind, limit, offset, beside, session),
        )
        return [_run_from_row(row) for row in rows]

    def forks(self, run: str) -> list[Run]:
        """The runs that were forked off a run, oldest first."""
        return [_run_from_row(row) for row in self._select_runs("parent = ?1", run, limit=100_000)]

    def rename(self, run: str, alias: str) -> Run:
        """Give a run another name; its id stays. Conflict when the name is taken."""
        found = self.get(run)
        if alias != found.alias:
            with self._store.write() as execute:
                execute("UPDATE runs SET alias = ?, updated_ms = ? WHERE id = ?", (self._own_alias(alias), now_ms(), found.id))
        return self.get(found.id)

    def configure(self, run: str, changes: dict[str, Any]) -> Run:
        """Change what a run is set to, from its next turn on; its persona stays what it was when the run began."""
        found = self.get(run)
        if "persona" in changes and changes["persona"] != found.settings.persona:
            raise BadInput("a run keeps the persona it began with", hint="begin another run with this persona")
        if strange := set(changes) - set(RunSettings.__struct_fields__):
            known = ", ".join(RunSettings.__struct_fields__)
            raise BadInput(f"a run has no setting {min(strange)}", hint=f"it has {known}")
        settings = check_settings(replace(found.settings, **changes))
        if settings == found.settings:
            return found  # whoever only looks changes nothing, not even the age
        with self._store.write() as execute:
            execute(
                "UPDATE runs SET settings = ?, updated_ms = ? WHERE id = ?",
                (json.dumps(_changed_settings(settings)), now_ms(), found.id),
            )
        return self.get(found.id)

    def give_role(self, run: str, role: str) -> Run:
        """Let another role answer in a run from its next prompt on; the assistant for ""."""
        found = self.get(run)
        if role != found.role:
            with self._store.write() as execute:
                execute("UPDATE runs SET role = ?, updated_ms = ? WHERE id = ?", (role, now_ms(), found.id))
        return self.get(found.id)

    def any(self, run: str) -> Run:
        """The run with this id, also one that is deleted but for its forks."""
        row = self._store.row(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?", (run,))
        if row is None:
            raise NotFound(f"no thread {run}", hint="owlbox thread list shows them")
        return _run_from_row(row)

    def is_shown(self, run: str) -> bool:
        """Whether a run may be shown to whoever asks."""
        return bool(visibility.asked_for(self.context_of(run)))

    def has_run(self, run: str) -> bool:
        """Whether there is a run with this id, deleted but for its forks or not."""
        return self._store.row("SELECT 1 FROM runs WHERE id = ?", (run,)) is not None

    def restore(self, run: Run, start: Start, *, is_hidden: bool = False) -> None:
        """A run out of an export, without its events; under a name of its own when the wanted one is taken."""
        check_settings(start.settings)
        with self._store.write() as execute:
            try:
                alias = self._own_alias(start.alias)
            except (BadInput, Conflict):
                alias = self._free_alias(start.alias or run.kind, run.created_ms)
            execute(
                "INSERT INTO runs (id, session, parent, kind, task, title, status, outcome, metadata, created_ms, updated_ms, "
                "ended_ms, alias, role, settings, head, turn_base, is_branched, deleted_ms) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(run.id, run.session, run.parent, run.kind, run.task, run.title, run.status, run.outcome),
                    *(json.dumps(run.metadata), run.created_ms, run.updated_ms, run.ended_ms, alias, start.role),
                    *(json.dumps(_changed_settings(start.settings)), start.head, start.turn_base, run.is_branched),
                    now_ms() if is_hidden else None,
                ),
            )
            known = run.metadata.get("origins")
            for origin, seq in known.items() if isinstance(known, dict) else ():
                if is_origin(origin) and isinstance(seq, int):
                    self.marks.add(f"run:{run.id}", origin, "", seq)

    def set_head(self, run: str, event: int | None) -> None:
        """The next event of a run hangs under this one; from now on the run has branches."""
        with self._store.write() as execute:
            execute("UPDATE runs SET head = ?, is_branched = 1, updated_ms = ? WHERE id = ?", (event, now_ms(), run))

    def is_beside(self, run: str, other: str) -> bool:
        """True when two runs belong to the same person or group."""
        contexts = "SELECT COUNT(DISTINCT s.context) FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id IN (?, ?)"
        return bool(self._store.value(contexts, (run, other)) == 1)

    def end(self, run: str, outcome: str, status: int = DONE) -> None:
        """A run that had nothing to answer is over."""
        with self._store.write():
            self._change_status(run, status, outcome, now_ms())

    def leave_off(self, run: str) -> bool:
        """A person has left a thread: it is marked as ended, until its next answer. False while it is being answered."""
        found = self.get(run)
        with self._store.write() as execute:
            if self.is_answering(found.id):
                return False
            execute("UPDATE runs SET ended_ms = ? WHERE id = ? AND ended_ms IS NULL", (now_ms(), found.id))
        return True

    def entitle(self, run: str, title: str, *, instead_of: str | None = None) -> bool:
        """Give a run a title, only `instead_of` that one where it is given; whether it has it now."""
        with self._store.write() as execute:
            rows = execute(
                "UPDATE runs SET title = ?, updated_ms = ? WHERE id = ? AND (?4 IS NULL OR title = ?4) RETURNING 1",
                (title, now_ms(), run, instead_of),
            )
        return bool(rows)

    def delete(self, run: str) -> int:
        """Delete a run with its events, but those where its forks began; Conflict while it is being answered.

        Returns the number of events it had. What its forks need goes with the last of them.
        """
        found = self.get(run)
        with self._store.write(durable=True) as execute:
            if self.is_answering(found.id):
                raise Conflict(f"thread {found.id} is being answered right now", hint="wait for it, or stop it first")
            count = int(execute("SELECT COUNT(*) FROM events WHERE run = ?", (found.id,))[0][0])
            self._remove_run(found.id, found.parent)
        return count

    def _remove_run(self, run: str, parent: str | None) -> None:
        """Delete a run, or what of it no fork needs; then those it was forked off, if only this one still needed them."""
        gone: str | None = run
        while gone:
            gone, parent = self._remove_one(gone, parent)

    def _remove_one(self, run: str, parent: str | None) -> tuple[str | None, str | None]:
        """The same with one run; which one comes next, and what that was forked off."""
        with self._store.write() as execute:
            below = (
                "WITH RECURSIVE below (id) AS (SELECT id FROM runs WHERE parent = ?1 "
                "UNION SELECT r.id FROM below JOIN runs r ON r.parent = below.id) "
            )
            starts = execute(
                below + "SELECT e.parent FROM events e JOIN below ON below.id = e.run "
                "UNION SELECT r.head FROM runs r JOIN below ON below.id = r.id WHERE r.head IS NOT NULL",
                (run,),
            )
            needed = self.record.ancestors([row[0] for row in starts if row[0] is not None])
            marks = json.dumps(needed)
            if execute("SELECT 1 FROM events WHERE run = ? AND id IN (SELECT value FROM json_each(?)) LIMIT 1", (run, marks)):
                self.record.remove_events(run, needed)
                execute("DELETE FROM loops WHERE run = ? AND prompt NOT IN (SELECT value FROM json_each(?))", (run, marks))
                execute(
                    "UPDATE runs SET deleted_ms = ?, title = '', settings = '{}', metadata = '{}' WHERE id = ?", (now_ms(), run)
                )
                return None, None
            execute("UPDATE runs SET parent = ? WHERE parent = ?", (parent, run))
            execute("DELETE FROM runs WHERE id = ?", (run,))
            above = execute("SELECT parent FROM runs WHERE id = ? AND deleted_ms IS NOT NULL", (parent,)) if parent else []
            return (parent, above[0][0]) if above else (None, None)

    # -- events -------------------------------------------------------------------------------------

    def append(self, event: Event, *, durable: bool = False) -> Event:
        """Store an event; returns it with id, sequence, parent and time. Committed before it returns."""
        return self.record.append(event, durable=durable)

    def events(
        self, run: str, *, after: int = 0, roles: Sequence[str] = (), limit: int = 100_000, is_branch: bool = False
    ) -> list[Event]:
        """A run's events in order, only those after a sequence number or of some roles, on all branches or on the present one."""
        if is_branch and (found := self.get(run)).is_branched:
            path = self.record.path(found.head, has_texts=False)
            wanted = [e.id for e in path if e.run == found.id and e.seq > after and (not roles or e.role in roles)]
            return self.record.some(wanted[:limit])
        return self.record.events_of(run, after=after, roles=roles, limit=limit)

    def recent(self, run: str, limit: int) -> list[Message]:
        """Memory port: the last `limit` messages, as the model saw and said them, oldest first."""
        head = self._store.value("SELECT head FROM runs WHERE id = ?", (run,))
        events = self.record.path(head, kinds=(*SPOKEN, "thinking"), limit=2 * max(limit, 0))
        spoken = [at for at, event in enumerate(events) if event.kind != "thinking"]
        first = spoken[-limit] if 0 < limit <= len(spoken) else 0
        while first and events[first - 1].kind == "thinking":
            first -= 1
        shown = compacted(self._as_answered(events[first:]), self.record.compaction(run, head))
        return as_messages(shown, self._images(run, shown))

    def question(self, run: str) -> list[Message]:
        """Only the newest prompt of a run, for when nothing else of it can be read."""
        prompt = self._store.value("SELECT prompt FROM loops WHERE run = ? AND status <> 100 ORDER BY seq DESC LIMIT 1", (run,))
        event = None if prompt is None else self.record.get(int(prompt))
        return [] if event is None else as_messages([event], self._images(run, [event]))

    def _images(self, run: str, events: Sequence[Event]) -> Mapping[int, tuple[Image, ...]]:
        """The pictures that came with these messages."""
        has_images = self._uploads is not None and any(event.input and event.input.get("images") for event in events)
        return self._uploads.load_images(self.get(run).session, events) if self._uploads is not None and has_images else {}

    def _as_answered(self, events: list[Event]) -> list[Event]:
        """Each prompt right before its answer: one that arrived during another's answer is not part of that one."""
        prompts = json.dumps([event.id for event in events if event.role == "user"])
        loops = self._store.rows(
            "SELECT l.prompt, l.status, MIN(t.id) FROM loops l LEFT JOIN turns t ON t.loop = l.id WHERE l.run IN "
            "(SELECT value FROM json_each(?)) AND l.prompt IN (SELECT value FROM json_each(?)) GROUP BY l.id",
            (json.dumps(sorted({event.run for event in events})), prompts),
        )
        begun = {prompt: (status, turn) for prompt, status, turn in loops}
        end, free = len(events), _between_calls(events)
        placed = []
        for at, event in enumerate(events):
            status, turn = begun.get(event.id, (DONE, None))
            if status == WAITING:
                continue
            answers = (n for n, e in enumerate(events) if turn is not None and e.turn is not None and e.turn >= turn)
            before = next(answers, end if status == RUNNING else free[at] if event.id in begun else at)
            placed.append((before, event.id not in begun, at, event))
        return [event for *_, event in sorted(placed, key=lambda p: p[:3])]

    def expired(self, before_ms: int) -> list[str]:
        """Runs that have come to an end and were not touched since then; those that are deleted but for their forks too."""
        sql = f"SELECT id FROM runs WHERE status IN (200, 499, 500) AND updated_ms {wall_clock.OLD} ? ORDER BY id"
        rows = self._store.rows(sql, (before_ms,))
        return [str(row[0]) for row in rows]

    # -- inside -------------------------------------------------------------------------------------

    def _select_runs(self, where: str, value: str, limit: int = 2) -> list[Row]:
        whose = visibility.own_sessions("session")
        sql = f"SELECT {RUN_COLUMNS} FROM runs WHERE ({where}) AND deleted_ms IS NULL{whose} ORDER BY created_ms, id LIMIT {limit}"
        return self._store.rows(sql, (value,))

    def _own_alias(self, alias: str) -> str:
        """A name that somebody wants; BadInput for one that cannot be, Conflict for one that another run has."""
        if not ALIAS.fullmatch(alias):
            raise BadInput(f"{alias!r} cannot be a run's name", hint="use letters, digits and _")
        if self._store.row("SELECT 1 FROM runs WHERE alias = ? OR id = ?", (alias, alias)):
            raise Conflict(f"another run is called {alias}", hint="choose another name, owlbox thread list shows them")
        return alias

    def _free_alias(self, model: str, now: int) -> str:
        """The name of a run that was given none: its model and when it began (R-032)."""
        stem = f"{re.sub(r'[^a-zA-Z0-9]+', '_', model).strip('_')}_{now}"
        rows = self._store.rows("SELECT alias FROM runs WHERE alias GLOB ? || '*'", (stem,))
        taken = {row[0] for row in rows}
        return next(name for n in range(1, len(taken) + 3) if (name := stem if n == 1 else f"{stem}_{n}") not in taken)


def check_settings(settings: RunSettings) -> RunSettings:
    """The settings themselves; BadInput names the first that is out of its range (R-034)."""
    if settings.temperature is not None and not 0 <= settings.temperature <= 2:
        raise BadInput(f"temperature {settings.temperature}", hint="use 0 to 2")
    if settings.context_limit is not None and settings.context_limit < 1024:
        raise BadInput(f"context_limit {settings.context_limit}", hint="use at least 1024 tokens")
    for name, words in (("approval", ("ask", "review", "auto")), ("layout", ("chat", "entries"))):
        if getattr(settings, name) not in words:
            raise BadInput(f"{name} {getattr(settings, name)}", hint=f"use {', '.join(words)}")
    return settings


def _changed_settings(settings: RunSettings) -> dict[str, Any]:
    """The settings that differ from the defaults, which a later version may change."""
    default = to_plain(RunSettings())
    return {name: value for name, value in to_plain(settings).items() if value != default[name]}


def _between_calls(events: Sequence[Event]) -> list[int]:
    """For each place the next one, or itself, at which every call has its result."""
    found, waiting = [], set[str]()
    closed = []
    for event in events:
        closed.append(not waiting)
        if event.kind == "tool_use":
            waiting.add(event.call_id)
        elif event.kind == "tool_result":
            waiting.discard(event.call_id)
    after = len(events)
    for at in reversed(range(len(events))):
        after = at if closed[at] else after
        found.append(after)
    return found[::-1]


def _run_from_row(row: Row) -> Run:
    values = list(row)
    values[8] = json.loads(values[8])
    values[15] = from_plain(RunSettings, json.loads(values[15]))
    values[18], values[19] = bool(values[18]), values[19] is not None
    return Run(*values)
