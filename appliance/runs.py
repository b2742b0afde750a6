"""The record of every conversation: sessions, runs, loops, turns and events.

Owns those five tables. session > run > loop > turn > event: a session is one person at one door, a run
is one thread of work in it, a loop answers one prompt, a turn is one call of the model, an event is
the finest record. Events are appended with a gap-free sequence per run, each pointing at its parent,
and never changed. Status numbers: 100 waiting, 102 running, 200 done, 202 proposal, 499 stopped,
500 failed. Knows nothing about models or doors; telling people what happened is `inbox`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.clock import is_alive, new_id, now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.records import Event, Inbound, Message, ToolCall
from appliance.store import Row, Store

WAITING, RUNNING, DONE, PROPOSED, STOPPED, FAILED = 100, 102, 200, 202, 499, 500
EVENT_COLUMNS = (
    "id, run, seq, parent, turn, kind, role, content, tool, input, call_id, duration_ms, tokens, "
    "status, outcome, channel, sender_id, correlation, at_ms"
)
RUN_COLUMNS = "id, session, parent, kind, task, title, status, outcome, metadata, last_seq, created_ms, updated_ms, ended_ms"


@dataclass(frozen=True)
class Run:
    """One thread of work (B-052 calls it a thread)."""

    id: str
    session: str
    parent: str | None
    kind: str
    task: str | None
    title: str
    status: int
    outcome: str
    metadata: dict[str, Any] = field(default_factory=dict)
    last_seq: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    ended_ms: int | None = None


@dataclass(frozen=True)
class Loop:
    """One prompt being answered; `prompt` is the id of its event."""

    id: int
    run: str
    session: str
    seq: int
    prompt: int
    status: int
    process: str
    correlation: str
    outcome: str = ""


@dataclass(frozen=True)
class TurnCost:
    """What one call of the model took, in tokens, and who answered."""

    provider: str
    model: str
    reason: str
    prompt_tokens: int
    evaluated_tokens: int
    output_tokens: int


class Runs:
    """Reads and writes the record."""

    def __init__(self, store: Store, process: str) -> None:
        self._store = store
        self.process = process
        self._begun: set[int] = set()  # what this process is answering now, whatever the rows say

    # -- sessions and runs --------------------------------------------------------------------------

    def touch_session(self, inbound: Inbound) -> None:
        """Make sure the message's session exists and is active. Call inside a transaction."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO sessions "
                "(id, channel, sender_id, person, context, status, process, created_ms, last_active_ms, metadata) "
                "VALUES (?1, ?2, ?3, ?3, 'user:' || ?3, 'active', ?4, ?5, ?5, ?6) "
                "ON CONFLICT (id) DO UPDATE "
                "SET status = 'active', process = ?4, last_active_ms = ?5, archived_ms = NULL, metadata = ?6",
                (inbound.session, inbound.channel, inbound.sender_id, self.process, now_ms(), json.dumps(inbound.metadata)),
            )

    def open_session(self, session: str, person: str, context: str) -> None:
        """A session of nobody's door, such as a task's, for a person or group; active from now on. Call inside a transaction."""
        channel, _, sender = session.partition(":")
        with self._store.write() as execute:
            execute(
                "INSERT INTO sessions (id, channel, sender_id, person, context, status, process, created_ms, last_active_ms) "
                "VALUES (?1, ?2, ?3, ?4, ?5, 'active', ?6, ?7, ?7) "
                "ON CONFLICT (id) DO UPDATE SET status = 'active', process = ?6, last_active_ms = ?7, archived_ms = NULL",
                (session, channel, sender, person, context, self.process, now_ms()),
            )

    def session(self, session: str) -> dict[str, Any]:
        """One session: `channel`, `person`, `context`, `status`, and `metadata`, the return address of its last message."""
        columns = "id, channel, sender_id, person, context, status, last_active_ms, metadata"
        row = self._store.row(f"SELECT {columns} FROM sessions WHERE id = ?", (session,))
        if row is None:
            raise NotFound(f"no session {session}")
        found = dict(zip(columns.split(", "), row, strict=True))
        return {**found, "metadata": json.loads(found["metadata"])}

    def rest_session(self, session: str, status: str = "idle") -> None:
        """Nobody works in this session any more."""
        with self._store.write() as execute:
            execute("UPDATE sessions SET status = ?, process = '' WHERE id = ? AND status <> ?", (status, session, status))

    def sessions(self) -> list[dict[str, Any]]:
        """All sessions with the state needed to recover them, newest first."""
        columns = "id, channel, sender_id, person, context, status, process, created_ms, last_active_ms, archived_ms"
        rows = self._store.rows(f"SELECT {columns} FROM sessions ORDER BY last_active_ms DESC")
        return [dict(zip(columns.split(", "), row, strict=True)) for row in rows]

    def person(self, session: str) -> str:
        """Whose session it is; "" for one that does not exist."""
        return str(self._store.value("SELECT person FROM sessions WHERE id = ?", (session,)) or "")

    def begin(
        self, session: str, kind: str, *, parent: str | None = None, title: str = "", run_id: str = "", task: int | None = None
    ) -> Run:
        """A new run in a session that exists; with a new id of its own when none is given."""
        run_id, now = run_id or new_id(), now_ms()
        with self._store.write() as execute:
            execute(
                "INSERT INTO runs (id, session, parent, kind, task, title, status, created_ms, updated_ms) "
                "VALUES (?, ?, ?, ?, ?, ?, 100, ?, ?)",
                (run_id, session, parent, kind, None if task is None else str(task), title, now, now),
            )
        return self.get(run_id)

    def get(self, ref: str) -> Run:
        """The run with this id, or the only one whose id starts or ends with it (at least 4 characters)."""
        rows = self._store.rows(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?", (ref,))
        if not rows and len(ref) >= 4 and ref.replace("-", "").isalnum():
            rows = self._store.rows(f"SELECT {RUN_COLUMNS} FROM runs WHERE id LIKE ?1 || '%' OR id LIKE '%' || ?1 LIMIT 2", (ref,))
        if len(rows) > 1:
            raise BadInput(f"thread {ref} is ambiguous", hint="give more of its id; owlbox thread list shows them")
        if not rows:
            raise NotFound(f"no thread {ref}", hint="owlbox thread list shows them")
        return _run(rows[0])

    def listing(self, *, kind: str = "", limit: int = 20, offset: int = 0, beside: str = "") -> list[Run]:
        """Runs, newest first; with `beside`, only those of the same person or group as that run."""
        rows = self._store.rows(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE ?1 IN ('', kind) AND (?4 = '' OR session IN (SELECT id FROM sessions "
            "WHERE context = (SELECT s.context FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id = ?4))) "
            "ORDER BY created_ms DESC, id DESC LIMIT ?2 OFFSET ?3",
            (kind, limit, offset, beside),
        )
        return [_run(row) for row in rows]

    def is_beside(self, run: str, other: str) -> bool:
        """True when two runs belong to the same person or group."""
        contexts = "SELECT COUNT(DISTINCT s.context) FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id IN (?, ?)"
        return bool(self._store.value(contexts, (run, other)) == 1)

    def is_answering(self, run: str) -> bool:
        """True while somebody works on an answer in a run; not for one whose process died."""
        busy = self._store.rows("SELECT id, process FROM loops WHERE run = ? AND status = 102", (run,))
        return any(self._is_answered(int(loop), str(process)) for loop, process in busy)

    def end(self, run: str, outcome: str, status: int = DONE) -> None:
        """A run that had nothing to answer is over."""
        with self._store.write() as execute:
            now = now_ms()
            execute(
                "UPDATE runs SET status = ?, outcome = ?, updated_ms = ?, ended_ms = ? WHERE id = ?",
                (status, outcome, now, now, run),
            )

    def entitle(self, run: str, title: str) -> None:
        """Name a run."""
        with self._store.write() as execute:
            execute("UPDATE runs SET title = ?, updated_ms = ? WHERE id = ?", (title, now_ms(), run))

    def delete(self, run: str) -> int:
        """Delete a run with its events; Conflict while it is being answered. Returns the number of events."""
        found = self.get(run)
        with self._store.write(durable=True) as execute:
            if self.is_answering(found.id):
                raise Conflict(f"thread {found.id} is being answered right now", hint="wait for it, or stop it first")
            count = int(execute("SELECT COUNT(*) FROM events WHERE run = ?", (found.id,))[0][0])
            execute("UPDATE runs SET parent = NULL WHERE parent = ?", (found.id,))
            execute("DELETE FROM runs WHERE id = ?", (found.id,))
        return count

    # -- events -------------------------------------------------------------------------------------

    def append(self, event: Event, *, durable: bool = False) -> Event:
        """Store an event; returns it with id, sequence, parent and time. Committed before it returns."""
        with self._store.write(durable=durable) as execute:
            rows = execute(
                "UPDATE runs SET last_seq = last_seq + 1, updated_ms = ? WHERE id = ? RETURNING last_seq", (now_ms(), event.run)
            )
            if not rows:
                raise NotFound(f"no thread {event.run}")
            seq = int(rows[0][0])
            parent = event.parent
            if parent is None and seq > 1:
                parent = execute("SELECT id FROM events WHERE run = ? AND seq = ?", (event.run, seq - 1))[0][0]
            event = replace(event, seq=seq, parent=parent, at_ms=event.at_ms or now_ms())
            given = None if event.input is None else json.dumps(event.input, ensure_ascii=False)
            values = (event.run, seq, parent, event.turn, event.kind, event.role, event.content, event.tool, given, event.call_id)
            more = (event.duration_ms, event.tokens, event.status, event.outcome, event.channel, event.sender_id)
            marks = ", ".join("?" * 18)
            row_id = execute(
                f"INSERT INTO events ({EVENT_COLUMNS.removeprefix('id, ')}) VALUES ({marks}) RETURNING id",
                (*values, *more, event.correlation, event.at_ms),
            )[0][0]
        return replace(event, id=int(row_id))

    def events(self, run: str, *, after: int = 0, roles: Sequence[str] = (), limit: int = 100_000) -> list[Event]:
        """A run's events in order, optionally only those after a sequence number or of some roles."""
        rows = self._store.rows(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE run = ?1 AND seq > ?2 "
            "AND (?3 = '[]' OR role IN (SELECT value FROM json_each(?3))) ORDER BY seq LIMIT ?4",
            (run, after, json.dumps(list(roles)), limit),
        )
        return [_event(row) for row in rows]

    def recent(self, run: str, limit: int) -> list[Message]:
        """Memory port: the last `limit` messages, as the model saw and said them, oldest first."""
        rows = self._store.rows(
            f"SELECT {EVENT_COLUMNS} FROM (SELECT * FROM events WHERE run = ? AND kind IN ('message', 'tool_use', 'tool_result') "
            "ORDER BY seq DESC LIMIT ?) ORDER BY seq",
            (run, limit),
        )
        return as_messages(self._as_answered(run, [_event(row) for row in rows]))

    def _as_answered(self, run: str, events: list[Event]) -> list[Event]:
        """Each prompt right before its answer: one that arrived during another's answer is not part of that one."""
        loops = self._store.rows(
            "SELECT l.prompt, l.status, MIN(t.id) FROM loops l LEFT JOIN turns t ON t.loop = l.id WHERE l.run = ? GROUP BY l.id",
            (run,),
        )
        begun = {prompt: (status, turn) for prompt, status, turn in loops}
        end = events[-1].seq + 1 if events else 0
        placed = []
        for event in events:
            status, turn = begun.get(event.id, (DONE, None))
            if status == WAITING:
                continue
            answers = (e.seq for e in events if turn is not None and e.turn is not None and e.turn >= turn)
            at = next(answers, end if status == RUNNING else event.seq)
            placed.append((at, event.id not in begun, event.seq, event))
        return [event for *_, event in sorted(placed, key=lambda p: p[:3])]

    # -- loops and turns ----------------------------------------------------------------------------

    def enqueue(self, run: str, prompt: int, correlation: str) -> int:
        """A prompt waits to be answered, by this process as long as it lives; returns the loop's id."""
        with self._store.write() as execute:
            return int(
                execute(
                    "INSERT INTO loops (run, seq, prompt, status, process, correlation, created_ms) "
                    "SELECT ?1, COALESCE(MAX(seq), 0) + 1, ?2, 100, ?3, ?4, ?5 FROM loops WHERE run = ?1 RETURNING id",
                    (run, prompt, self.process, correlation, now_ms()),
                )[0][0]
            )

    def release(self, loop_id: int) -> None:
        """This process will not answer it: whoever starts next may."""
        with self._store.write() as execute:
            execute("UPDATE loops SET process = '' WHERE id = ? AND status = 100 AND process = ?", (loop_id, self.process))

    def loop(self, loop_id: int) -> Loop:
        """One loop."""
        found = self._loops("l.id = ?", loop_id)
        if not found:
            raise NotFound(f"no loop {loop_id}")
        return found[0]

    def waiting(self) -> list[Loop]:
        """Prompts that were accepted and not begun, oldest first."""
        return self._loops("l.status = ?", WAITING)

    def cut_off(self) -> int:
        """How many answers a process that is gone left unfinished; `recover` mends them."""
        return sum(not is_alive(loop.process) for loop in self._loops("l.status = ?", RUNNING))

    def start_loop(self, loop_id: int) -> None:
        """This process begins to answer, until `leave`."""
        self._begun.add(loop_id)
        try:
            with self._store.write(durable=True) as execute:
                rows = execute(
                    "UPDATE loops SET status = 102, process = ?, started_ms = ? WHERE id = ? AND status = 100 RETURNING run",
                    (self.process, now_ms(), loop_id),
                )
                if not rows:
                    raise Conflict(f"loop {loop_id} is not waiting")
                execute("UPDATE runs SET status = 102, outcome = '', updated_ms = ? WHERE id = ?", (now_ms(), rows[0][0]))
        except BaseException:
            self._begun.discard(loop_id)
            raise

    def leave(self, loop_id: int) -> None:
        """This process answers it no longer, even if the end cannot be recorded yet."""
        self._begun.discard(loop_id)

    def _is_answered(self, loop_id: int, process: str) -> bool:
        """True while somebody works on a loop that is marked as running."""
        return loop_id in self._begun if process == self.process else is_alive(process)

    def said(self, loop_id: int) -> str:
        """The last words of an answer; "" when there are none."""
        found = self._store.value(
            "SELECT e.content FROM events e JOIN turns t ON t.id = e.turn "
            "WHERE t.loop = ? AND e.kind = 'message' AND e.role = 'assistant' ORDER BY e.seq DESC LIMIT 1",
            (loop_id,),
        )
        return str(found or "")

    def end_loop(self, loop: Loop, status: int, outcome: str) -> None:
        """The answer is complete, stopped or failed; one that has ended already stays as it is."""
        with self._store.write(durable=True) as execute:
            now = now_ms()
            ended_loop = execute(
                "UPDATE loops SET status = ?, outcome = ?, draft = '', ended_ms = ? "
                "WHERE id = ? AND status IN (100, 102) RETURNING id",
                (status, outcome, now, loop.id),
            )
            if not ended_loop:
                return  # it ended before, or its run was deleted
            ended = now if self.get(loop.run).kind in ("ask", "tick") else None
            execute(
                "UPDATE runs SET status = ?, outcome = ?, updated_ms = ?, ended_ms = ? WHERE id = ?",
                (status, outcome, now, ended, loop.run),
            )

    def keep_draft(self, loop_id: int, text: str) -> None:
        """Keep what was streamed so far, so that a power cut loses at most the last moments of an answer."""
        with self._store.write() as execute:
            execute("UPDATE loops SET draft = ?1 WHERE id = ?2 AND draft <> ?1", (text, loop_id))

    def start_turn(self, loop_id: int, seq: int, route: str) -> int:
        """The model is about to be called; returns the turn's id. The next route for the same turn takes its place."""
        with self._store.write() as execute:
            return int(
                execute(
                    "INSERT INTO turns (loop, seq, route, started_ms) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (loop, seq) DO UPDATE SET route = excluded.route RETURNING id",
                    (loop_id, seq, route, now_ms()),
                )[0][0]
            )

    def end_turn(self, turn: int, cost: TurnCost) -> None:
        """The model has answered."""
        with self._store.write() as execute:
            execute(
                "UPDATE turns SET provider = ?, model = ?, reason = ?, prompt_tokens = ?, evaluated_tokens = ?, output_tokens = ?, "
                "ended_ms = ? WHERE id = ?",
                (
                    cost.provider,
                    cost.model,
                    cost.reason,
                    cost.prompt_tokens,
                    cost.evaluated_tokens,
                    cost.output_tokens,
                    now_ms(),
                    turn,
                ),
            )

    def turns(self, run: str) -> list[dict[str, Any]]:
        """Every call of the model in a run with its cost."""
        columns = (
            "t.id, t.seq, route, provider, model, reason, prompt_tokens, evaluated_tokens, output_tokens, t.started_ms, t.ended_ms"
        )
        rows = self._store.rows(
            f"SELECT {columns} FROM turns t JOIN loops l ON l.id = t.loop WHERE l.run = ? ORDER BY t.id", (run,)
        )
        names = [c.removeprefix("t.") for c in columns.split(", ")]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def moment(self, run: str) -> tuple[int, int]:
        """Where a run stands: the number of its newest loop, and how many turns it has had; 0 for none."""
        row = self._store.row(
            "SELECT COALESCE(MAX(l.seq), 0), COUNT(t.id) FROM loops l LEFT JOIN turns t ON t.loop = l.id WHERE l.run = ?", (run,)
        )
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def recover(self, say: Callable[[Event], None]) -> list[Loop]:
        """End the loops whose process died: status 499 "interrupted", the part that was said is kept.

        Transcripts stay valid: a call without a result gets one. `say` is told each event written.
        Writes nothing when there is nothing to mend.
        """
        mended = []
        for loop in self._loops("l.status = ?", RUNNING):
            if self._is_answered(loop.id, loop.process):
                continue
            with self._store.write(durable=True) as execute:
                if execute("SELECT status FROM loops WHERE id = ?", (loop.id,))[0][0] != RUNNING:
                    continue  # another process was quicker
                draft = str(execute("SELECT draft FROM loops WHERE id = ?", (loop.id,))[0][0])
                events = self.close_open(loop, draft, "interrupted")
                self.end_loop(loop, STOPPED, "interrupted")
                self.rest_session(loop.session, "stopped")
            for event in events:
                say(event)
            mended.append(loop)
        return mended

    def close_open(self, loop: Loop, draft: str, outcome: str) -> list[Event]:
        """Events that make a stopped loop's transcript whole: missing results, the unfinished text, the reason."""
        said = self.events(loop.run)
        missing: dict[str, Event] = {}  # models use an id again in a later answer
        for event in said:
            if event.kind == "tool_use":
                missing[event.call_id] = event
            elif event.kind == "tool_result":
                missing.pop(event.call_id, None)
        base = Event(
            run=loop.run,
            kind="message",
            role="assistant",
            content="",
            correlation=loop.correlation,
            status=STOPPED,
            outcome=outcome,
        )
        written = []
        for call in missing.values():
            text = f"{call.tool} was not finished: {outcome}. It may or may not have taken effect."
            written.append(replace(base, kind="tool_result", role="tool", content=text, tool=call.tool, call_id=call.call_id))
        if draft:
            written.append(replace(base, content=draft))
        written.append(replace(base, kind="status_change", role="system", content=outcome))
        return [self.append(event) for event in written]

    def stop_sessions(self) -> None:
        """At shutdown: sessions this process was active in are marked stopped (A-276)."""
        mine = self._store.rows("SELECT id FROM sessions WHERE status = 'active' AND process = ?", (self.process,))
        for (session,) in mine:
            self.rest_session(str(session), "stopped")

    def _loops(self, where: str, value: Any) -> list[Loop]:
        rows = self._store.rows(
            "SELECT l.id, l.run, r.session, l.seq, l.prompt, l.status, l.process, l.correlation, l.outcome "
            f"FROM loops l JOIN runs r ON r.id = l.run WHERE {where} ORDER BY l.id",
            (value,),
        )
        return [Loop(*row) for row in rows]


def as_messages(events: Sequence[Event]) -> list[Message]:
    """The conversation a model is shown; a result whose call was cut off by a limit is left out."""
    messages: list[Message] = []
    known: set[str] = set()
    for event in events:
        if event.kind == "tool_use":
            known.add(event.call_id)
            call = ToolCall(event.call_id, event.tool, event.input or {})
            last = messages[-1] if messages else None
            if last is not None and last.role == "assistant":
                messages[-1] = replace(last, tool_calls=(*last.tool_calls, call))
            else:
                messages.append(Message("assistant", "", tool_calls=(call,), at_ms=event.at_ms))
        elif event.kind == "tool_result" and event.call_id in known:
            messages.append(Message("tool", event.content, tool_call_id=event.call_id, at_ms=event.at_ms))
        elif event.kind == "message" and event.role in ("user", "assistant"):
            text = event.content
            if event.role == "user" and event.input and event.input.get("relevant"):
                text = f"{event.input['relevant']}\n\nQuestion: {text}"
            role: Any = event.role
            messages.append(Message(role, text, at_ms=event.at_ms, channel=event.channel, sender_id=event.sender_id))
    return messages


def _run(row: Row) -> Run:
    values = list(row)
    values[8] = json.loads(values[8])
    return Run(*values)


def _event(row: Row) -> Event:
    values: dict[str, Any] = dict(zip(EVENT_COLUMNS.split(", "), row, strict=True))
    values["input"] = None if values["input"] is None else json.loads(values["input"])
    return Event(**values)
