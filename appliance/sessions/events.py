"""Events: the finest record of what happens in a run, appended and never changed.

Owns the `events` table, and with each append the run's counter and its head: the event under which the next one
hangs. Numbers are gap-free per run; parents make a tree, so a run may have several branches, and a fork begins
where it left another run without a copy of anything. What belongs to a run is the path from the first event to
its head, whichever runs it leads through. Knows nothing about loops or models.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import NotFound
from appliance.policy.taint_marks import CARRIED, Marks
from appliance.records import Event, Image, Message, ShortForm, ThreadState, ToolCall, from_plain
from appliance.store import visibility
from appliance.store.database import Row, Store
from appliance.text import tokens
from appliance.text.fences import is_origin
from appliance.text.urls import show_addresses

NO_IMAGES: Mapping[int, tuple[Image, ...]] = {}
COLUMNS = (
    "id, run, seq, parent, turn, kind, role, content, tool, input, call_id, duration_ms, tokens, "
    "status, outcome, channel, sender_id, correlation, at_ms"
)
CHARS_PER_TOKEN = 4  # about, of an event that nobody measured
CUT, CUT_SHORT = 499, " … [it was stopped here]"  # an answer whose end was never said, and what a model is told of that
NO_RESULT = "no result is known; it may or may not have taken effect"
SPOKEN = ("message", "tool_use", "tool_result")  # what a conversation is made of
# From the head to the first event, newest first. CROSS JOIN keeps that order, so that a LIMIT ends the walk.
PATH = (
    "WITH RECURSIVE path (at, up) AS (SELECT id, parent FROM events WHERE id = ?1 "
    "UNION ALL SELECT e.id, e.parent FROM path CROSS JOIN events e ON e.id = path.up) "
)


class EventRows:
    """Reads and writes events."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.marks = Marks(store)

    def append(self, event: Event, *, durable: bool = False) -> Event:
        """Store an event under its run's head; returns it with id, sequence, parent and time. Committed before it returns.

        In an answer of a marked run links show their addresses: what nobody is to know could stand in one.
        """
        if event.kind == "message" and event.role == "assistant" and self.marks.since(event.run) is not None:
            event = replace(event, content=show_addresses(event.content))
        with self._store.write(durable=durable) as execute:
            rows = execute(
                "UPDATE runs SET last_seq = last_seq + 1, updated_ms = ? WHERE id = ? AND deleted_ms IS NULL "
                "RETURNING last_seq, head",
                (now_ms(), event.run),
            )
            if not rows:
                raise NotFound(f"no thread {event.run}")
            parent = rows[0][1] if event.parent is None else event.parent
            count = _estimate_tokens(event) if event.tokens is None else event.tokens
            event = replace(event, seq=int(rows[0][0]), parent=parent, at_ms=event.at_ms or now_ms(), tokens=count)
            marks = ", ".join("?" * 18)
            row_id = int(
                execute(
                    f"INSERT INTO events ({COLUMNS.removeprefix('id, ')}) VALUES ({marks}) RETURNING id",
                    _row_values(event),
                )[0][0]
            )
            execute("UPDATE runs SET head = ? WHERE id = ?", (row_id, event.run))
            self._taint_run(event)
        return replace(event, id=row_id)

    def _taint_run(self, event: Event) -> None:
        """Mark the run with what an event carries: the origin of a result, or the marks of the texts it was made of."""
        subject, given = f"run:{event.run}", event.input or {}
        if origin := origin_of(event):
            self.marks.add(subject, origin, str(given.get("source") or ""), event.seq)
        if event.kind != "tool_use":  # whose input are the arguments of a call
            self.marks.take(subject, given.get(CARRIED), event.seq)

    def restore(self, event: Event) -> int:
        """Store an event of an export as it is, its number and parent included; its new id. Its run goes on from its newest."""
        with self._store.write() as execute:
            marks = ", ".join("?" * 18)
            sql = f"INSERT INTO events ({COLUMNS.removeprefix('id, ')}) VALUES ({marks}) RETURNING id"
            row_id = int(execute(sql, _row_values(event))[0][0])
            self._taint_run(event)
            execute(
                "UPDATE runs SET last_seq = MAX(last_seq, ?1), head = IIF(?1 > last_seq, ?2, head) WHERE id = ?3",
                (event.seq, row_id, event.run),
            )
        return row_id

    def set_head(self, run: str, event: int | None) -> None:
        """The next event of a run hangs under this one."""
        with self._store.write() as execute:
            execute("UPDATE runs SET head = ? WHERE id = ?", (event, run))

    def has_call(self, run: str, call_id: str) -> bool:
        """Whether an event of a run has this id from outside."""
        return bool(self._store.value("SELECT 1 FROM events WHERE run = ? AND call_id = ? LIMIT 1", (run, call_id)))

    def get(self, event_id: int) -> Event | None:
        row = self._store.row(f"SELECT {COLUMNS} FROM events WHERE id = ?", (event_id,))
        return None if row is None else _event_from_row(row)

    def events_of(self, run: str, *, after: int = 0, roles: Sequence[str] = (), limit: int = 100_000) -> list[Event]:
        """What was appended to a run, in order, on all its branches; only after a number, or of some roles."""
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM events WHERE run = ?1 AND seq > ?2 "
            "AND (?3 = '[]' OR role IN (SELECT value FROM json_each(?3))) ORDER BY seq LIMIT ?4",
            (run, after, json.dumps(list(roles)), limit),
        )
        return [_event_from_row(row) for row in rows]

    def stored_after(self, event_id: int, limit: int) -> list[Event]:
        """What was appended to any thread that whoever asks may be shown, after the event with this id, in order."""
        columns = ", ".join(f"e.{name}" for name in COLUMNS.split(", "))
        rows = self._store.rows(
            f"SELECT {columns} FROM events e JOIN runs r ON r.id = e.run "
            f"WHERE e.id > ? AND r.deleted_ms IS NULL{visibility.own_sessions('r.session')} ORDER BY e.id LIMIT ?",
            (event_id, limit),
        )
        return [_event_from_row(row) for row in rows]

    def count_messages(self, sessions: Sequence[str]) -> dict[str, int]:
        """The number of messages that people sent in each of these sessions."""
        rows = self._store.rows(
            "SELECT r.session, COUNT(*) FROM runs r CROSS JOIN events e ON e.run = r.id "
            "WHERE r.session IN (SELECT value FROM json_each(?)) AND e.role = 'user' AND e.kind = 'message' GROUP BY r.session",
            (json.dumps(list(sessions)),),
        )
        return {str(session): int(count) for session, count in rows}

    def newest(self) -> int:
        """The id of the event that was appended last, in whatever thread; 0 for none."""
        return int(self._store.value("SELECT MAX(id) FROM events") or 0)

    def some(self, ids: Sequence[int]) -> list[Event]:
        """These events, oldest first."""
        sql = f"SELECT {COLUMNS} FROM events WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
        return [_event_from_row(row) for row in self._store.rows(sql, (json.dumps(list(ids)),))]

    def of_turn(self, run: str, turn: int | None, after: int) -> list[Event]:
        """What was appended to a run in one turn, in order; the turn is known to have begun after a number."""
        sql = f"SELECT {COLUMNS} FROM events WHERE run = ? AND seq > ? AND turn = ? ORDER BY seq"
        return [_event_from_row(row) for row in self._store.rows(sql, (run, after, turn))]

    def seq(self, event_id: int | None) -> int:
        """The number of an event in its run; 0 for none."""
        return int(self._store.value("SELECT seq FROM events WHERE id = ?", (event_id,)) or 0)

    def path(self, head: int | None, *, kinds: Sequence[str] = (), limit: int = 100_000, has_texts: bool = True) -> list[Event]:
        """The branch that ends at an event, from its beginning on; only some kinds, only the last `limit` of them.

        Without texts (contents and inputs) a long one costs little: `some` gives those that are wanted.
        """
        if head is None or limit <= 0:
            return []
        light = {} if has_texts else {"content": "''", "input": "NULL"}
        columns = ", ".join(light.get(name, f"e.{name}") for name in COLUMNS.split(", "))
        rows = self._store.rows(
            f"{PATH} SELECT {columns} FROM path CROSS JOIN events e ON e.id = path.at "
            "WHERE ?2 = '[]' OR e.kind IN (SELECT value FROM json_each(?2)) LIMIT ?3",
            (head, json.dumps(list(kinds)), limit),
        )
        return [_event_from_row(row) for row in reversed(rows)]

    def compaction(self, run: str, head: int | None) -> Event | None:
        """The newest summary of older events on a run's branch; None when none was made."""
        made = self._store.value(
            "WITH RECURSIVE line (id) AS (SELECT ?1 UNION SELECT r.parent FROM line JOIN runs r ON r.id = line.id "
            "WHERE r.parent IS NOT NULL) SELECT 1 FROM events WHERE kind = 'compaction' AND run IN (SELECT id FROM line) LIMIT 1",
            (run,),
        )
        found = self.path(head, kinds=("compaction",), limit=1) if made else []
        return found[0] if found else None

    def links(self, run: str) -> list[tuple[int, int, int | None, str, str]]:
        """The tree of a run without its texts: id, number, parent, kind and role of each event, in order."""
        rows = self._store.rows("SELECT id, seq, parent, kind, role FROM events WHERE run = ? ORDER BY seq", (run,))
        return [(int(r[0]), int(r[1]), r[2], str(r[3]), str(r[4])) for r in rows]

    def ancestors(self, heads: Sequence[int]) -> list[int]:
        """The ids of all events on the branches that end at these."""
        rows = self._store.rows(
            "WITH RECURSIVE above (at) AS (SELECT value FROM json_each(?1) "
            "UNION SELECT e.parent FROM above JOIN events e ON e.id = above.at WHERE e.parent IS NOT NULL) SELECT at FROM above",
            (json.dumps(list(heads)),),
        )
        return [int(row[0]) for row in rows]

    def remove_events(self, run: str, keep: Sequence[int] = ()) -> int:
        """Delete a run's events but those; how many. Call inside a transaction."""
        with self._store.write() as execute:
            return len(
                execute(
                    "DELETE FROM events WHERE run = ? AND id NOT IN (SELECT value FROM json_each(?)) RETURNING id",
                    (run, json.dumps(list(keep))),
                )
            )


def compacted(events: Sequence[Event], summary: Event | None) -> list[Event]:
    """The events with those that a summary covers replaced by it."""
    if summary is None:
        return list(events)
    covered = {*(summary.input or {}).get("covers", ()), summary.id}
    return [summary, *(event for event in events if event.id not in covered)]


def origin_of(event: Event) -> str:
    """Where the text of a tool's result came from when strangers may have written it; "" for every other event."""
    origin = str((event.input or {}).get("origin")) if event.kind == "tool_result" else ""
    return origin if is_origin(origin) else ""


def as_messages(events: Sequence[Event], images: Mapping[int, tuple[Image, ...]] = NO_IMAGES) -> list[Message]:
    """The conversation a model is shown, thoughts with what they led to, `images` by the id of the message they came with.

    A result whose call was cut off by a limit is left out.
    """
    messages: list[Message] = []
    known: set[str] = set()
    waiting: set[str] = set()  # calls without their results yet: nothing may come between
    later: list[Message] = []
    thought = ""

    def give_up() -> None:
        """Calls that never got a result, as in a record from elsewhere, get one: without it no model can be asked."""
        calls = next(m.tool_calls for m in reversed(messages) if m.tool_calls)
        for call in (one for one in calls if one.id in waiting):
            messages.append(Message("tool", f"{call.name}: {NO_RESULT}", tool_call_id=call.id))
        messages.extend(later)
        waiting.clear()
        later.clear()

    for event in events:
        is_next = event.role == "assistant" and event.kind in ("message", "tool_use")
        if waiting and is_next and (event.kind == "message" or messages[-1].role != "assistant"):
            give_up()
        if event.kind == "thinking":
            thought = event.content
        elif event.kind == "tool_use":
            known.add(event.call_id)
            waiting.add(event.call_id)
            call = ToolCall(event.call_id, event.tool, event.input or {})
            last = messages[-1] if messages else None
            if last is not None and last.role == "assistant":
                messages[-1] = replace(last, tool_calls=(*last.tool_calls, call))
            else:
                messages.append(Message("assistant", "", tool_calls=(call,), reasoning=thought, at_ms=event.at_ms))
            thought = ""
        elif event.kind == "tool_result" and event.call_id in known:
            result = Message("tool", event.content, tool_call_id=event.call_id, at_ms=event.at_ms, origin=origin_of(event))
            messages.append(replace(result, made=(event.input or {}).get("made", ""), is_error=event.status >= 400))
            waiting.discard(event.call_id)
            if not waiting:
                messages.extend(later)
                later.clear()
        elif event.kind == "compaction":
            said = f"(What was said before, in short: {event.content})"
            messages.append(Message("user", said, at_ms=event.at_ms, own_chars=0))  # the program's words, not the person's
        elif event.kind == "message" and event.role in ("user", "assistant"):
            text = (event.input or {}).get("rendered") or event.content  # of a skill that was called by its name
            if event.role == "user" and event.input and event.input.get("relevant"):
                text = f"{event.input['relevant']}\n\nQuestion: {text}"
            text += CUT_SHORT if event.role == "assistant" and event.status == CUT and text else ""
            role: Any = event.role
            reasoning = thought if event.role == "assistant" else ""
            (later if waiting and role == "user" else messages).append(
                Message(
                    *(role, text, (), "", reasoning, event.at_ms, event.channel, event.sender_id),
                    own_chars=(event.input or {}).get("own") if event.role == "user" else None,
                    images=images.get(event.id, ()),
                    short_form=_short_form(event) if event.role == "user" else None,
                    state=_state_of(event),
                )
            )
            thought = ""
    if later:
        give_up()
    return messages


def _state_of(event: Event) -> ThreadState | None:
    """What an answer of the program left to the messages behind it; a model's answer leaves nothing, whatever it says."""
    given = (event.input or {}).get("state")
    return None if given is None else from_plain(ThreadState, given)


def _short_form(event: Event) -> ShortForm | None:
    """What a skill that was called by its name asks of a small model; None for a message that called none."""
    given = (event.input or {}).get("short")
    return None if given is None else ShortForm(tuple(given["sentences"]), given["instruction"])


def _estimate_tokens(event: Event) -> int:
    """About how many tokens an event takes, where nobody has measured it."""
    given = "" if event.input is None else json.dumps(event.input, ensure_ascii=False)
    return tokens.estimate(event.content, CHARS_PER_TOKEN) + tokens.estimate(given, CHARS_PER_TOKEN)


def _row_values(event: Event) -> tuple[Any, ...]:
    given = None if event.input is None else json.dumps(event.input, ensure_ascii=False)
    return (
        *(event.run, event.seq, event.parent, event.turn, event.kind, event.role, event.content, event.tool, given, event.call_id),
        *(event.duration_ms, event.tokens, event.status, event.outcome, event.channel, event.sender_id),
        *(event.correlation, event.at_ms),
    )


def _event_from_row(row: Row) -> Event:
    values: dict[str, Any] = dict(zip(COLUMNS.split(", "), row, strict=True))
    values["input"] = None if values["input"] is None else json.loads(values["input"])
    return Event(**values)
