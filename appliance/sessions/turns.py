"""Loops and turns: the prompts of runs in their order, and every call of the model that they took.

Owns the `loops` and `turns` tables, and the status of runs, which follows from their loops. A loop answers one prompt,
first come first served and one at a time in a run; a turn is one call of the model. Status numbers: 100 waiting, 102
running, 200 done, 202 put down until somebody decides, 499 stopped, 500 failed; which may follow which in a run is
kept by the database. What a dead process left half done is mended by `recover`. Knows nothing about models or channels.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import is_alive, now_ms
from appliance.errors import Busy, Conflict, NotFound
from appliance.records import Event, Finish, Mode
from appliance.runtime.events import Events as PartEvents
from appliance.sessions.events import EventRows
from appliance.sessions.sessions import ALL_APART, Identities, SessionRules, Sessions
from appliance.sessions.uploads import UploadFiles
from appliance.store.database import Row, Store

WAITING, RUNNING, DONE, PROPOSED, STOPPED, FAILED = 100, 102, 200, 202, 499, 500
OPEN = "l.status IN (100, 102)"  # as the index loops_open has it: a long past costs nothing
OF_TASK = "(r.kind = 'tick' AND l.seq = 1)"  # the loop that works on a task; later ones of its run answer people
# What may follow a status at once; whatever else is wanted goes through 102.
COST_COLUMNS = (
    "provider, model, reason, prompt_tokens, evaluated_tokens, output_tokens, "
    "cached_tokens, cache_write_tokens, reasoning_tokens, is_estimated, cost_micros"
)
TURN_COLUMNS = f"id, seq, route, {COST_COLUMNS}, started_ms, ended_ms"
NEXT = {100: (102, 499), 102: (200, 202, 500, 499), 202: (102, 200, 499), 200: (102, 499), 500: (102, 499), 499: (102,)}


class Loop(Struct, frozen=True):
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
    mode: Mode = "act"


class RunStateChanged(Struct, frozen=True):
    """A run has another status."""

    run: str
    status: int
    outcome: str


class LoopOrphaned(Struct, frozen=True):
    """The end of a loop whose process died is being stored, within that transaction."""

    loop: Loop


class Turns:
    """Reads and writes loops and turns; `Runs` builds on it."""

    def __init__(
        self,
        store: Store,
        process: str,
        rules: Callable[[], SessionRules] = SessionRules,
        events: PartEvents | None = None,
        identities: Identities = ALL_APART,
        uploads: UploadFiles | None = None,
    ) -> None:
        """New runs and their changes are published once they are committed.

        `identities` says whose the addresses of channels are; without it each address is a person of that name.
        `uploads` has the pictures that came with messages; without it models are told their names alone.
        """
        self._store = store
        self.process = process
        self.record = EventRows(store)
        self._uploads = uploads
        self.people = Sessions(store, process, rules, identities)
        self.news = events or PartEvents()
        self._begun: set[int] = set()  # what this process is answering now, whatever the rows say
        self._unsynced: set[int] = set()  # of these, those of which a power cut would forget that they have begun

    def is_answering(self, run: str) -> bool:
        """True while somebody works on an answer in a run; not for one whose process died."""
        busy = self._store.rows("SELECT id, process FROM loops WHERE run = ? AND status = 102", (run,))
        return any(self._is_answered(int(loop), str(process)) for loop, process in busy)

    # -- loops and turns ----------------------------------------------------------------------------

    def enqueue(self, run: str, prompt: int, correlation: str, mode: Mode = "act") -> int:
        """A prompt waits to be answered, by this process as long as it lives; returns the loop's id."""
        with self._store.write() as execute:
            return int(
                execute(
                    "INSERT INTO loops (run, seq, prompt, status, process, correlation, created_ms, mode) "
                    "SELECT ?1, COALESCE(MAX(seq), 0) + 1, ?2, 100, ?3, ?4, ?5, ?6 FROM loops WHERE run = ?1 RETURNING id",
                    (run, prompt, self.process, correlation, now_ms(), mode),
                )[0][0]
            )

    def absorb(self, loop_id: int) -> int | None:
        """A prompt that waits becomes part of the answer that is being given: its event; None when it waits no longer."""
        with self._store.write(durable=True) as execute:
            sql = (
                "UPDATE loops SET status = 200, outcome = 'injected', started_ms = ?2, ended_ms = ?2 "
                "WHERE id = ?1 AND status = 100 RETURNING prompt"
            )
            rows = execute(sql, (loop_id, now_ms()))
        return int(rows[0][0]) if rows else None

    def release(self, loop_id: int) -> None:
        """This process will not answer it: whoever starts next may."""
        with self._store.write() as execute:
            execute("UPDATE loops SET process = '' WHERE id = ? AND status = 100 AND process = ?", (loop_id, self.process))

    def loop(self, loop_id: int) -> Loop:
        found = self._select_loops("l.id = ?", loop_id)
        if not found:
            raise NotFound(f"no loop {loop_id}")
        return found[0]

    def waiting(self) -> list[Loop]:
        """Prompts that were accepted and not begun, oldest first; not those of tasks, which workers go on with."""
        return self._select_loops(f"{OPEN} AND l.status = ? AND NOT {OF_TASK}", WAITING)

    def queue(self, run: str) -> list[Loop]:
        """The prompts of one run that are not done with, the active one and those put down included, in their order."""
        return self._select_loops("l.status IN (100, 102, 202) AND l.run = ?", run)

    def cut_off(self) -> int:
        """How many answers a process that is gone left unfinished; `recover` mends them."""
        return sum(not is_alive(loop.process) for loop in self._running_loops())

    def start_loop(self, loop_id: int, *, is_synced: bool = True) -> None:
        """This process begins to answer, until `leave`.

        Conflict when it is not waiting, Busy while another one of its run is answered: there is one at a time. Without
        `is_synced` that it has begun survives a power cut from its first turn on.
        """
        for other in self._select_loops("l.status = 102 AND l.run = (SELECT run FROM loops WHERE id = ?)", loop_id):
            if other.id != loop_id and self._end_orphan(other) is None:
                raise Busy(f"thread {other.run} is being answered", hint="its prompts are answered one after another")
        self._begun.add(loop_id)
        if not is_synced:
            self._unsynced.add(loop_id)
        try:
            with self._store.write(durable=is_synced) as execute:
                rows = execute(
                    "UPDATE loops SET status = 102, process = ?, started_ms = COALESCE(started_ms, ?) "
                    "WHERE id = ? AND status = 100 RETURNING run",
                    (self.process, now_ms(), loop_id),
                )
                if not rows:
                    raise Conflict(f"loop {loop_id} is not waiting")
                execute("UPDATE runs SET status = 102, outcome = '', updated_ms = ? WHERE id = ?", (now_ms(), rows[0][0]))
                if self.news.has(RunStateChanged):
                    self._store.after(partial(self.news.publish, RunStateChanged(str(rows[0][0]), RUNNING, "")))
        except BaseException:
            self.leave(loop_id)
            raise

    def is_awaited(self, session: str) -> bool:
        """Whether something that a person has written in a session waits to be answered."""
        sql = f"SELECT 1 FROM loops l JOIN runs r ON r.id = l.run WHERE {OPEN} AND l.status = 100 AND r.session = ? "
        return self._store.row(sql + "AND r.kind IN ('chat', 'ask') LIMIT 1", (session,)) is not None

    def leave(self, loop_id: int) -> None:
        """This process answers it no longer, even if the end cannot be recorded yet."""
        self._begun.discard(loop_id)
        self._unsynced.discard(loop_id)

    def is_unsynced(self, loop_id: int) -> bool:
        """Whether a power cut would forget that this process has begun to answer a loop."""
        return loop_id in self._unsynced

    def _is_answered(self, loop_id: int, process: str) -> bool:
        """True while somebody works on a loop that is marked as running."""
        return loop_id in self._begun if process == self.process else is_alive(process)

    def answer_text(self, loop_id: int) -> str:
        """The last words of an answer; "" when there are none."""
        return self.last_words(loop_id)[1]

    def last_words(self, loop_id: int) -> tuple[int, str]:
        """The last words of an answer and the number of their event; 0 and "" when there are none."""
        row = self._store.row(
            "SELECT e.seq, e.content FROM loops l CROSS JOIN events p ON p.id = l.prompt "
            "CROSS JOIN events e ON e.run = l.run AND e.seq > p.seq "
            "WHERE l.id = ? AND e.kind = 'message' AND e.role = 'assistant' AND e.turn IN (SELECT id FROM turns WHERE loop = l.id) "
            "ORDER BY e.seq DESC LIMIT 1",
            (loop_id,),
        )
        return (0, "") if row is None else (int(row[0]), str(row[1]))

    def unfinished_words(self, loop: Loop) -> str:
        """What was kept of an answer that did not come to its end; "" when nothing was."""
        sql = (
            "SELECT content FROM events WHERE run = ?1 AND seq > ?2 AND kind = 'message' AND role = 'assistant' AND status = 499 "
            "AND correlation = ?3 ORDER BY seq DESC LIMIT 1"
        )
        return str(self._store.value(sql, (loop.run, self.record.seq(loop.prompt), loop.correlation)) or "")

    def end_loop(self, loop: Loop, status: int, outcome: str) -> None:
        """The answer is complete, stopped or failed; one that has ended already stays as it is."""
        with self._store.write(durable=True) as execute:
            now = now_ms()
            ended_loop = execute(
                "UPDATE loops SET status = ?, outcome = ?, draft = '', ended_ms = ? "
                "WHERE id = ? AND status IN (100, 102, 202) RETURNING id",
                (status, outcome, now, loop.id),
            )
            if not ended_loop:
                return  # it ended before, or its run was deleted
            if execute("SELECT 1 FROM loops WHERE run = ? AND status IN (102, 202)", (loop.run,)):
                return  # it had not begun, and another one of its run goes on
            self._change_status(loop.run, status, outcome, now if self._is_once(loop.run) else None)

    def paused_loop(self, run: str) -> Loop | None:
        """The loop of a run that waits for somebody's decision; None when none does."""
        found = self._select_loops("l.status = 202 AND l.run = ?", run)
        return found[-1] if found else None

    def paused_runs(self) -> list[str]:
        """The runs that have a loop which waits for somebody's decision."""
        return [str(row[0]) for row in self._store.rows("SELECT DISTINCT run FROM loops WHERE status = 202 ORDER BY id")]

    def pause_loop(self, loop: Loop) -> None:
        """The loop waits for somebody's decision, and no process works on it."""
        with self._store.write(durable=True) as execute:
            sql = "UPDATE loops SET status = 202, process = '', draft = '' WHERE id = ? AND status = 102 RETURNING 1"
            if execute(sql, (loop.id,)):
                self._change_status(loop.run, PROPOSED, "proposed", None)

    def is_of_task(self, loop: Loop) -> bool:
        """Whether a loop is a worker's, and not a person's."""
        return bool(self._store.value(f"SELECT {OF_TASK} FROM loops l JOIN runs r ON r.id = l.run WHERE l.id = ?", (loop.id,)))

    def take_up(self, loop_id: int, *, is_ours: bool = True) -> None:
        """What a loop waited for is decided: it waits to be gone on with, by this process as long as it lives, or by another."""
        with self._store.write(durable=True) as execute:
            sql = "UPDATE loops SET status = 100, process = ? WHERE id = ? AND status = 202 RETURNING run"
            for (run,) in execute(sql, (self.process if is_ours else "", loop_id)):
                self._change_status(str(run), RUNNING, "", None)

    def end_paused(self, loop: Loop, status: int, outcome: str) -> None:
        """A loop that waited for a decision has ended with it."""
        with self._store.write(durable=True) as execute:
            sql = "UPDATE loops SET status = ?, outcome = ?, ended_ms = ? WHERE id = ? AND status = 202 RETURNING 1"
            if execute(sql, (status, outcome, now_ms(), loop.id)):
                self._change_status(loop.run, status, outcome, now_ms() if self._is_once(loop.run) else None)

    def last_turn(self, loop_id: int) -> int | None:
        """The id of a loop's newest turn; None for one that has had none."""
        found = self._store.value("SELECT MAX(id) FROM turns WHERE loop = ?", (loop_id,))
        return None if found is None else int(found)

    def turns_of(self, loop_id: int) -> int:
        return int(self._store.value("SELECT COALESCE(MAX(seq), 0) FROM turns WHERE loop = ?", (loop_id,)) or 0)

    def keep_draft(self, loop_id: int, text: str) -> None:
        """Keep what was streamed so far, so that a power cut loses at most the last moments of an answer."""
        with self._store.write() as execute:
            execute("UPDATE loops SET draft = ?1 WHERE id = ?2 AND draft <> ?1", (text, loop_id))

    def start_turn(self, loop_id: int, seq: int, route: str) -> int:
        """The model is about to be called; returns the turn's id. The next route for the same turn takes its place.

        With the first turn of a loop that has begun unsynced, this survives a power cut too.
        """
        with self._store.write(durable=self.is_unsynced(loop_id)) as execute:
            turn = int(
                execute(
                    "INSERT INTO turns (loop, seq, route, started_ms) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (loop, seq) DO UPDATE SET route = excluded.route RETURNING id",
                    (loop_id, seq, route, now_ms()),
                )[0][0]
            )
        self._unsynced.discard(loop_id)
        return turn

    def end_turn(self, turn: int, finish: Finish) -> None:
        """The model has answered: who, and what it cost."""
        with self._store.write() as execute:
            names = COST_COLUMNS.split(", ")
            values = (getattr(finish, name) for name in names)
            execute(f"UPDATE turns SET {' = ?, '.join(names)} = ?, ended_ms = ? WHERE id = ?", (*values, now_ms(), turn))

    def turns(self, run: str) -> list[dict[str, Any]]:
        """Every call of the model in a run with its cost, and its number, those before its fork counted too."""
        columns = ", ".join(f"t.{name}" for name in TURN_COLUMNS.split(", "))
        rows = self._store.rows(
            f"SELECT {columns} FROM turns t JOIN loops l ON l.id = t.loop WHERE l.run = ? ORDER BY t.id", (run,)
        )
        names = [c.removeprefix("t.") for c in columns.split(", ")]
        before = int(self._store.value("SELECT turn_base FROM runs WHERE id = ?", (run,)) or 0)
        return [{**dict(zip(names, row, strict=True)), "number": n} for n, row in enumerate(rows, before + 1)]

    def moment(self, run: str) -> tuple[int, int]:
        """Where a run stands: the number of its newest loop, and of its newest turn, those before its fork counted too."""
        row = self._store.row(
            "SELECT COALESCE(MAX(l.seq), 0), COUNT(t.id) + COALESCE((SELECT turn_base FROM runs WHERE id = ?1), 0) "
            "FROM loops l LEFT JOIN turns t ON t.loop = l.id WHERE l.run = ?1",
            (run,),
        )
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def note_model(self, turn: int, correlation: str = "") -> Event | None:
        """Record that another model answers than the last time in this run, or where it was forked; None when not so."""
        row = self._store.row(
            "SELECT l.run, t.provider, t.model FROM turns t JOIN loops l ON l.id = t.loop WHERE t.id = ?", (turn,)
        )
        if row is None or not row[2]:
            return None
        before = self._store.row(
            "WITH RECURSIVE line (id, up) AS (SELECT id, parent FROM runs WHERE id = ?1 "
            "UNION SELECT r.id, r.parent FROM line JOIN runs r ON r.id = line.up) "
            "SELECT t.provider, t.model FROM turns t JOIN loops l ON l.id = t.loop JOIN line ON line.id = l.run "
            "WHERE t.id < ?2 AND t.model <> '' ORDER BY t.id DESC LIMIT 1",
            (row[0], turn),
        )
        if before is None or tuple(before) == (row[1], row[2]):
            return None
        names = {"previous": "/".join(before), "new": f"{row[1]}/{row[2]}"}
        text = f"another model answers: {names['new']} instead of {names['previous']}"
        return self.record.append(
            Event(str(row[0]), "model_change", "system", text, turn=turn, input=names, correlation=correlation)
        )

    def recover(self, say: Callable[[Event], None]) -> list[Loop]:
        """End the loops whose process died: status 499 "interrupted", the part that was said is kept.

        Transcripts stay valid: a call without a result gets one. `say` is told each event written.
        Writes nothing when there is nothing to mend.
        """
        mended = []
        for loop in self._running_loops():
            events = self._end_orphan(loop)
            if events is None:
                continue
            for event in events:
                say(event)
            mended.append(loop)
        return mended

    def _end_orphan(self, loop: Loop) -> list[Event] | None:
        """End a loop whose process died; what was written, None when somebody works on it or another was quicker."""
        if self._is_answered(loop.id, loop.process):
            return None
        with self._store.write(durable=True) as execute:
            if execute("SELECT status FROM loops WHERE id = ?", (loop.id,))[0][0] != RUNNING:
                return None  # another process was quicker
            draft = str(execute("SELECT draft FROM loops WHERE id = ?", (loop.id,))[0][0])
            events = self.close_open(loop, draft, "interrupted")
            self.end_loop(loop, STOPPED, "interrupted")
            self.people.rest(loop.session, "stopped")
            self.news.publish(LoopOrphaned(loop))
        return events

    def close_open(self, loop: Loop, draft: str, outcome: str) -> list[Event]:
        """Events that make a stopped loop's transcript whole: missing results, the unfinished text, the reason.

        Calls are run one after another, so only the first without a result can have begun; those that run side by
        side only look.
        """
        said = self.record.events_of(loop.run, after=self.record.seq(loop.prompt))
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
            turn=self._store.value("SELECT MAX(id) FROM turns WHERE loop = ?", (loop.id,)),
            correlation=loop.correlation,
            status=STOPPED,
            outcome=outcome,
        )
        written: list[Event] = []
        for call in missing.values():
            text = f"{call.tool} was not finished: {outcome}. It may or may not have taken effect."
            text = f"{call.tool} was not run: {outcome}." if written else text
            written.append(replace(base, kind="tool_result", role="tool", content=text, tool=call.tool, call_id=call.call_id))
        if draft:
            written.append(replace(base, content=draft))
        written.append(replace(base, kind="status_change", role="system", content=outcome))
        return [self.record.append(event) for event in written]

    # -- out of an export, and into it --------------------------------------------------------------

    def loops_of(self, run: str) -> list[dict[str, Any]]:
        """Every loop of a run with its turns, oldest first, as plain values."""
        columns = "id, seq, prompt, status, outcome, mode, correlation, created_ms, started_ms, ended_ms"
        loops = [dict(zip(columns.split(", "), row, strict=True)) for row in self._select_rows(columns, "loops", "run", run)]
        for loop in loops:
            loop["turns"] = [
                dict(zip(TURN_COLUMNS.split(", "), row, strict=True))
                for row in self._select_rows(TURN_COLUMNS, "turns", "loop", loop["id"])
            ]
        return loops

    def _select_rows(self, columns: str, table: str, owner: str, value: Any) -> list[Row]:
        return self._store.rows(f"SELECT {columns} FROM {table} WHERE {owner} = ? ORDER BY seq", (value,))

    def restore_loop(self, run: str, plain: dict[str, Any]) -> bool:
        """A loop out of an export with its turns, its prompt unknown as yet; False when it is here already."""
        names = ("outcome", "mode", "correlation", "created_ms", "started_ms", "ended_ms")
        turn_names = TURN_COLUMNS.split(", ")[1:]
        with self._store.write() as execute:
            rows = execute(
                f"INSERT INTO loops (run, seq, status, {', '.join(names)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (run, seq) DO NOTHING RETURNING id",
                (run, plain["seq"], plain["status"], *(plain[name] for name in names)),
            )
            for turn in plain["turns"] if rows else ():
                execute(
                    f"INSERT INTO turns (loop, {', '.join(turn_names)}) VALUES (?{', ?' * len(turn_names)})",
                    (rows[0][0], *(turn.get(name, 0 if name == "is_estimated" else None) for name in turn_names)),
                )
        return bool(rows)

    def link_prompt(self, run: str, seq: int, event: int) -> None:
        """Tell a restored loop which event its prompt is."""
        with self._store.write() as execute:
            execute("UPDATE loops SET prompt = ? WHERE run = ? AND seq = ? AND prompt IS NULL", (event, run, seq))

    def turn_id(self, run: str, name: str) -> int | None:
        """The turn that is called LOOP.TURN in a run; None when there is none."""
        loop, _, seq = name.partition(".")
        sql = "SELECT t.id FROM turns t JOIN loops l ON l.id = t.loop WHERE l.run = ? AND l.seq = ? AND t.seq = ?"
        found = self._store.value(sql, (run, int(loop), int(seq)))
        return None if found is None else int(found)

    # -- inside -------------------------------------------------------------------------------------

    def _change_status(self, run: str, status: int, outcome: str, ended_ms: int | None) -> None:
        """Another status, on the way that the database allows."""
        with self._store.write() as execute:
            now = int(execute("SELECT status FROM runs WHERE id = ?", (run,))[0][0])
            if status != now and status not in NEXT[now]:
                execute("UPDATE runs SET status = 102 WHERE id = ?", (run,))
            execute(
                "UPDATE runs SET status = ?, outcome = ?, updated_ms = ?, ended_ms = ? WHERE id = ?",
                (status, outcome, now_ms(), ended_ms, run),
            )
            if status != now and self.news.has(RunStateChanged):
                self._store.after(partial(self.news.publish, RunStateChanged(run, status, outcome)))

    def _is_once(self, run: str) -> bool:
        """Whether a run is over with its answer."""
        return self._store.value("SELECT kind FROM runs WHERE id = ?", (run,)) in ("ask", "tick", "child")

    def _running_loops(self) -> list[Loop]:
        """The loops that are marked as running."""
        return self._select_loops(f"{OPEN} AND l.status = ?", RUNNING)

    def _select_loops(self, where: str, value: Any) -> list[Loop]:
        rows = self._store.rows(
            "SELECT l.id, l.run, r.session, l.seq, l.prompt, l.status, l.process, l.correlation, l.outcome, l.mode "
            f"FROM loops l JOIN runs r ON r.id = l.run WHERE {where} ORDER BY l.id",
            (value,),
        )
        return [Loop(*row) for row in rows]


def telemetry(turns: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What a run's calls took: `context_tokens` of the last one that was counted, `prompt_tokens` and `output_tokens` of all."""
    prompts = [int(turn.get("prompt_tokens") or 0) for turn in turns]
    return {
        "context_tokens": next((tokens for tokens in reversed(prompts) if tokens), 0),  # one that was stopped has none
        "prompt_tokens": sum(prompts),
        "output_tokens": sum(int(turn.get("output_tokens") or 0) for turn in turns),
    }
