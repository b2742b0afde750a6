"""Transcripts: sessions as JSON lines, out of the record and into it again.

A file begins with a header that says whose session it is; then come its runs, each with its loops and turns, and its
events, forks after the run they left. Every line names itself and its parent, so that the parents are a tree whose
root is the session. Reading is forgiving: what is no line of ours is skipped and counted, what is here already stays
as it is, and the same file twice changes nothing the second time. What was under way when it was written out
is stopped when it is read. Who wrote a file is not known: a run out of one is marked as a document, and nothing in it counts as
typed by its person. Only a run that came in this way, and has not been gone on with here, takes further lines;
what a line names as its parent must be of its own run, or of one that it was forked off. Owns no table; knows nothing
about files: the command line reads and writes those.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from appliance.clock import iso
from appliance.errors import BadInput, NotFound, OwlError
from appliance.records import Event, RunSettings, from_plain, to_plain
from appliance.runtime.methods import method
from appliance.sessions.runs import DONE, FAILED, STOPPED, Run, Runs, Start
from appliance.sessions.sessions import Session
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
VERSION = 1
KINDS = (
    *("message", "thinking", "tool_use", "tool_result", "context_update", "status_change"),
    *("delegate", "compaction", "model_change", "proposal"),
)
# What an event of these kinds is made of, told by name and not as its input.
PARTS = {"delegate": ("agent", "task", "result"), "model_change": ("previous", "new")}
BATCH = 200
PREVIEW = 30  # characters of a damaged line that the log shows
IMPORTED = "imported"  # in a run's metadata: 1 while lines may be missing, 2 once its head is known
REFUSED = re.compile("constraint|cannot store", re.IGNORECASE)  # by the database, for what stands in a line
ID = re.compile(r"[0-9A-Za-z_-]{4,64}")
MAX_NUMBER, MAX_LEVELS, MAX_NAME = 2**53, 100, 500
PLAIN = Event("", "", "", "")
OWN = "own"  # in the input of a message: how much of it its person typed
MARK = ("document", "an imported transcript")


class Restored(Struct, frozen=True):
    """The outcome of lines that were read; `damaged` ones could not be understood, `known` ones were here already."""

    sessions: int = 0
    runs: int = 0
    events: int = 0
    known: int = 0
    damaged: int = 0
    strange: int = 0

    def plus(self, other: "Restored") -> "Restored":
        """Both together."""
        return Restored(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Damaged(Exception):
    """A line that cannot be read; only this module sees it."""


class Transcripts:
    """Writes sessions out and reads them in."""

    def __init__(self, store: Store, runs: Runs) -> None:
        self._store = store
        self._runs = runs

    # -- out ----------------------------------------------------------------------------------------

    def session(self, ref: str) -> Iterator[str]:
        """A session, line by line."""
        found = self._runs.people.get(ref)
        rows = self._store.rows("SELECT id, parent FROM runs WHERE session = ? ORDER BY created_ms, id", (found.id,))
        order = _forks_after([(str(row[0]), row[1]) for row in rows])
        yield _encode_line(self._session_header(found, order))
        for run in order:
            yield from self._run_lines(run)

    def thread(self, ref: str) -> Iterator[str]:
        """One run, after those it was forked off."""
        run = self._runs.get(ref)
        line, above = [run.id], run.parent
        while above is not None:
            line.insert(0, above)
            above = self._store.value("SELECT parent FROM runs WHERE id = ?", (above,))
        yield _encode_line(self._session_header(self._runs.people.get(run.session), line))
        for one in line:
            yield from self._run_lines(one)

    def _session_header(self, session: Session, runs: list[str]) -> dict[str, Any]:
        first = self._store.row(
            "SELECT MIN(e.at_ms) FROM events e WHERE e.kind = 'message' AND e.run IN (SELECT value FROM json_each(?))",
            (json.dumps(runs),),
        )
        title = self._store.value("SELECT title FROM runs WHERE id = ?", (runs[0],)) if runs else ""
        kind, _, name = session.context.partition(":")
        return {
            "type": "session",
            "id": session.id,
            "version": VERSION,
            "created": iso((first[0] if first else None) or session.created_ms),
            "user_id": session.person if kind == "user" else "",
            "group_id": name if kind == "group" else "",
            "context_type": kind,
            "title": title or "",
            "status": "archived" if session.status in ("archived", "closed") else "active",
            "channel_type": session.channel,
            "sender": session.sender_id,
            "metadata": session.metadata,
        }

    def _run_lines(self, run_id: str) -> Iterator[str]:
        run = self._runs.any(run_id)
        names: dict[int, str] = {}  # of turns
        yield _encode_line(_run_plain(run))
        prompts = {}
        for loop in self._runs.loops_of(run.id):
            prompts[loop["prompt"]] = loop["seq"]
            for turn in loop["turns"]:
                names[turn["id"]] = f"{loop['seq']}.{turn['seq']}"
            turns = [{k: v for k, v in turn.items() if k != "id"} for turn in loop["turns"]]
            kept = {k: v for k, v in loop.items() if k not in ("id", "prompt", "turns")}
            yield _encode_line({"type": "loop", "run": run.id, "id": f"{run.id}/loop/{loop['seq']}", **kept, "turns": turns})
        after, last = 0, 0
        while events := self._runs.record.events_of(run.id, after=after, limit=BATCH):
            for event in events:
                above = run.session
                if event.parent is not None:  # most often the one before
                    above = f"{run.id}/{after}" if event.parent == last else self._event_name(event.parent)
                yield _encode_line(self._event_as_json(above, event, names.get(event.turn or 0, ""), prompts.get(event.id)))
                last, after = event.id, event.seq
        if run.head is not None and run.head != last:
            yield _encode_line({"type": "head", "run": run.id, "id": f"{run.id}/head", "head": self._event_name(run.head)})

    def _event_as_json(self, parent: str, event: Event, turn: str, loop: int | None) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "type": event.kind,
            "id": f"{event.run}/{event.seq}",
            "parent_id": parent,
            "timestamp": iso(event.at_ms),
            "role": event.role,
            "content": event.content,
        }
        given = dict(event.input or {})
        given.pop(OWN, None)  # whoever reads it in decides what its person typed
        if event.kind == "compaction":
            plain["summary"] = plain.pop("content")
            plain["covered_ids"] = [name for at in given.pop("covers", ()) if (name := self._event_name(at))]
        plain |= {name: given.pop(name) for name in PARTS.get(event.kind, ()) if name in given}
        more = {
            "channel_type": event.channel,
            "sender": event.sender_id,
            "tool": event.tool,
            "call_id": event.call_id,
            "turn": turn,
            "correlation": event.correlation,
        }
        plain |= {name: value for name, value in more.items() if value}
        optional = {"input": given or None if event.input else event.input, "loop": loop}
        optional |= {"duration_ms": event.duration_ms, "tokens": event.tokens}
        plain |= {name: value for name, value in optional.items() if value is not None}
        plain |= {n: v for n, v, usual in (("status", event.status, DONE), ("outcome", event.outcome, "ok")) if v != usual}
        return plain

    def _event_name(self, event_id: int | None) -> str:
        """An event as its run and number; "" for one that is gone."""
        row = self._store.row("SELECT run, seq FROM events WHERE id = ?", (event_id,))
        return f"{row[0]}/{row[1]}" if row else ""

    # -- in -----------------------------------------------------------------------------------------

    @method("session.import")
    def restore_part(self, lines: Annotated[list[str], "of an export, in their order; a file may come in parts"]) -> Restored:
        """Take exported lines in; what is here already stays as it is, and damaged lines are counted."""
        return self.restore(lines)

    def restore(self, lines: Iterable[str | bytes]) -> Restored:
        """Take lines in, in one transaction; those of a file may come in several parts, in their order."""
        done, bad, sessions = Restored(), [], set[str]()
        with self._store.write(durable=True):
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    plain = _parse_line(line)
                    done = done.plus(self._restore_line(plain, sessions))
                except Damaged as error:
                    done = done.plus(Restored(damaged=1))
                    bad.append(f"{number} ({error}: {_preview_line(line)})")
            for session in sorted(sessions):
                self._runs.people.began(session)
        if bad:
            LOG.warning("%d damaged lines were skipped: %s", len(bad), ", ".join(bad[:10]))
        return done

    def _restore_line(self, plain: dict[str, Any], sessions: set[str]) -> Restored:
        kind = plain["type"]
        takers = {"session": self._take_session, "run": self._take_run, "loop": self._take_loop, "head": self._take_head}
        taker = takers.get(kind, self._take_event if kind in KINDS else None)
        if taker is None:
            return Restored(strange=1)
        try:
            with self._store.write() as execute:
                execute("SAVEPOINT line")
                try:
                    done = taker(plain, sessions)
                except BaseException:
                    execute("ROLLBACK TO line")
                    raise
                finally:
                    execute("RELEASE line")
                return done
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:  # the last two: dates
            raise Damaged(f"{kind}: {type(error).__name__} {error}") from None
        except (BadInput, NotFound) as error:
            raise Damaged(f"{kind}: {error.message}") from None
        except OwlError as error:
            if not REFUSED.search(error.message):
                raise
            raise Damaged(f"{kind}: {error.message}") from None

    def _take_session(self, plain: dict[str, Any], sessions: set[str]) -> Restored:
        session = _check_text(plain["id"])
        if self._runs.people.find(session) is not None:
            return Restored(known=1)
        channel, _, sender = session.partition(":")
        if not channel or not sender or len(session) > MAX_NAME or not session.isprintable():
            raise BadInput(f"{session[:60]!r} is not a session")
        person = _check_text(plain.get("user_id", "")) or sender
        group = _check_text(plain.get("group_id", ""))
        context = f"group:{group}" if plain.get("context_type") == "group" and group else f"user:{person}"
        status = "archived" if plain.get("status") == "archived" else "idle"
        created = _at_ms(_check_text(plain["created"]))
        made = Session(
            *(
                session,
                _check_text(plain.get("channel_type", channel)),
                _check_text(plain.get("sender", sender)),
                person,
                context,
                status,
            ),
            created_ms=created,
            last_active_ms=created,
            archived_ms=created if status == "archived" else None,
            metadata=dict(plain.get("metadata") or {}),
        )
        self._runs.people.add(made)
        sessions.add(session)
        return Restored(sessions=1)

    def _take_run(self, plain: dict[str, Any], sessions: set[str]) -> Restored:
        run, session = _check_text(plain["id"]), _check_text(plain["session"])
        if self._runs.has_run(run):
            return Restored(known=1)
        if not ID.fullmatch(run) or self._store.row("SELECT 1 FROM runs WHERE alias = ?", (run,)):
            raise BadInput(f"{run[:60]!r} cannot be a run's id")
        if self._runs.people.find(session) is None:  # its header was damaged
            self._take_session({"id": session, "created": plain["timestamp"]}, sessions)
        parent = plain.get("parent_id")
        beside = self._store.value("SELECT session FROM runs WHERE id = ?", (parent,)) if isinstance(parent, str) else None
        above = parent if beside == session else None
        settings = from_plain(RunSettings, plain.get("settings", {}))
        start = Start(
            _check_text(plain.get("alias", "")),
            _check_text(plain.get("role", "")),
            settings,
            None,
            _check_number(plain.get("turn_base", 0)),
        )
        self._runs.restore(
            Run(
                *(run, session, above, plain["kind"], plain.get("task"), _check_text(plain.get("title", ""))),
                _ended_status(plain.get("status", DONE)),
                _check_text(plain.get("outcome", "")),
                {**(plain.get("metadata") or {}), IMPORTED: 1},
                created_ms=_at_ms(plain["timestamp"]),
                updated_ms=_at_ms(plain.get("updated", plain["timestamp"])),
                ended_ms=_at_ms(plain["ended"]) if plain.get("ended") else None,
                is_branched=bool(plain.get("is_branched", False)),
            ),
            start,
            is_hidden=bool(plain.get("is_deleted", False)),
        )
        self._runs.marks.add(f"run:{run}", *MARK)
        sessions.add(session)
        return Restored(runs=1)

    def _take_loop(self, plain: dict[str, Any], sessions: set[str]) -> Restored:
        run = _check_text(plain["run"])
        if self._store.row("SELECT 1 FROM loops WHERE run = ? AND seq = ?", (run, _check_number(plain["seq"]))):
            return Restored(known=1)
        self._require_foreign(run)
        self._runs.restore_loop(run, {**plain, "status": _ended_status(plain["status"])})
        return Restored()

    def _take_head(self, plain: dict[str, Any], sessions: set[str]) -> Restored:
        head, run = self._find_id(plain["head"]), _check_text(plain["run"])
        if head is None or self._imported_mark(run) != 1:
            return Restored(known=1)
        self._require_line(run, plain["head"])
        self._runs.record.set_head(run, head)
        with self._store.write() as execute:
            execute("UPDATE runs SET metadata = json_set(metadata, '$.' || ?, 2) WHERE id = ?", (IMPORTED, run))
        return Restored()

    def _take_event(self, plain: dict[str, Any], sessions: set[str]) -> Restored:
        run, _, number = _check_text(plain["id"]).rpartition("/")
        seq = _check_number(int(number), 1)
        if self._find_id(plain["id"]) is not None:
            return Restored(known=1)
        row = self._store.row("SELECT session FROM runs WHERE id = ?", (run,)) or self._restore_bare(run, plain)
        self._require_foreign(run)
        parent = self._find_parent(run, seq, _check_text(plain["parent_id"]), str(row[0]))
        given, text = dict(plain.get("input") or {}), plain.get("content", "")
        if plain["type"] == "compaction":
            text = plain["summary"]
            given["covers"] = [at for name in plain.get("covered_ids", ()) if (at := self._find_id(name)) is not None]
        given |= {name: plain[name] for name in PARTS.get(plain["type"], ()) if name in plain}
        given |= {OWN: 0} if plain["type"] == "message" and plain["role"] == "user" else {}
        turn = self._runs.turn_id(run, plain["turn"]) if plain.get("turn") else None
        names = ("tool", "call_id", "correlation", "status", "outcome", "duration_ms", "tokens")
        event = replace(PLAIN, **{name: plain[name] for name in names if name in plain})
        event = replace(
            event, run=run, kind=plain["type"], role=plain["role"], content=_check_text(text), seq=seq, parent=parent, turn=turn
        )
        event = replace(event, input=given if given or "input" in plain else None, at_ms=_at_ms(_check_text(plain["timestamp"])))
        event = replace(event, channel=_check_text(plain.get("channel_type", "")), sender_id=_check_text(plain.get("sender", "")))
        made = self._runs.record.restore(event)
        if plain.get("loop") is not None:
            self._runs.link_prompt(run, int(plain["loop"]), made)
        sessions.add(str(row[0]))
        return Restored(events=1)

    def _restore_bare(self, run: str, plain: dict[str, Any]) -> tuple[str]:
        """A run whose own line was damaged, as far as its first event tells; its session."""
        parent = _check_text(plain["parent_id"])
        session = self._store.value("SELECT session FROM runs WHERE id = ?", (parent.rpartition("/")[0],)) or parent
        if not run or self._runs.people.find(session) is None:
            raise NotFound(f"no run {run}")
        at = _at_ms(plain["timestamp"])
        title = _check_text(plain.get("content", ""))[:60]
        if not ID.fullmatch(run):
            raise BadInput(f"{run[:60]!r} cannot be a run's id")
        above = parent.rpartition("/")[0] if parent != session else None
        made = Run(run, session, above, "chat", None, title, STOPPED, "damaged", {IMPORTED: 1}, created_ms=at, updated_ms=at)
        self._runs.restore(made, Start(head=self._find_id(parent)))
        self._runs.marks.add(f"run:{run}", *MARK)
        return (session,)

    def _imported_mark(self, run: str) -> int:
        """The mark of a run that came in as lines and was not gone on with here; 0 for any other."""
        own = "EXISTS (SELECT 1 FROM loops l WHERE l.run = r.id AND l.process <> '')"
        sql = f"SELECT json_extract(metadata, '$.' || ?) FROM runs r WHERE id = ? AND NOT {own}"
        return int(self._store.value(sql, (IMPORTED, run)) or 0)

    def _require_foreign(self, run: str) -> None:
        if not self._imported_mark(run):
            raise BadInput(f"run {run} goes on here, and takes no lines from elsewhere")

    def _require_line(self, run: str, name: str) -> None:
        """BadInput unless an event is of a run, or of one that it was forked off: no run shows what others said."""
        line = (
            "WITH RECURSIVE line (id, up) AS (SELECT id, parent FROM runs WHERE id = ?1 "
            "UNION SELECT r.id, r.parent FROM line JOIN runs r ON r.id = line.up) SELECT 1 FROM line WHERE id = ?2"
        )
        if self._store.row(line, (run, name.rpartition("/")[0])) is None:
            raise BadInput(f"run {run} does not lead to {name}")

    def _find_parent(self, run: str, seq: int, named: str, session: str) -> int | None:
        """The event that a line names as its parent; when that line was damaged the one before, or where the run began."""
        if (known := self._find_id(named)) is not None:
            self._require_line(run, named)
            return known
        if named == session:
            return None
        row = self._store.row("SELECT id FROM events WHERE run = ? AND seq < ? ORDER BY seq DESC LIMIT 1", (run, seq))
        row = row or self._store.row("SELECT head FROM runs WHERE id = ?", (run,))
        return row[0] if row else None

    def _find_id(self, name: object) -> int | None:
        run, _, seq = str(name).rpartition("/")
        if not seq.isdecimal():
            return None
        found = self._store.value("SELECT id FROM events WHERE run = ? AND seq = ?", (run, int(seq)))
        return None if found is None else int(found)


def _run_plain(run: Run) -> dict[str, Any]:
    plain = {
        "type": "run",
        "id": run.id,
        "parent_id": run.parent or run.session,
        "timestamp": iso(run.created_ms),
        "session": run.session,
        "kind": run.kind,
        "alias": run.alias,
        "status": run.status,
        "updated": iso(run.updated_ms),
    }
    more: dict[str, Any] = {
        "title": run.title,
        "outcome": run.outcome,
        "role": run.role,
        "turn_base": run.turn_base,
        "task": run.task,
        "metadata": _run_metadata(run),
    }
    more |= {"is_branched": run.is_branched, "ended": iso(run.ended_ms) if run.ended_ms else ""}
    more["is_deleted"] = run.is_hidden
    default = to_plain(RunSettings())
    more["settings"] = {name: value for name, value in to_plain(run.settings).items() if value != default[name]}
    return plain | {name: value for name, value in more.items() if value}


def _run_metadata(run: Run) -> dict[str, Any]:
    """What is told of a run beside its columns: not that it was imported, which whoever imports it says again."""
    plain = {name: value for name, value in run.metadata.items() if name != IMPORTED}
    if IMPORTED in run.metadata and "origins" in plain:
        plain["origins"] = {name: seq for name, seq in plain["origins"].items() if (name, seq) != (MARK[0], 0)}
    return {name: value for name, value in plain.items() if name != "origins" or value}


def _forks_after(runs: list[tuple[str, str | None]]) -> list[str]:
    """Runs by age, but each fork, and its forks, right after the run it left."""
    below: dict[str | None, list[str]] = {}
    known = {run for run, _ in runs}
    for run, parent in runs:
        below.setdefault(parent if parent in known else None, []).append(run)
    order: list[str] = []
    waiting = below.get(None, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += below.get(order[-1], [])[::-1]
    return order


def _encode_line(plain: dict[str, Any]) -> str:
    return json.dumps(plain, ensure_ascii=False) + "\n"


def _parse_line(line: str | bytes) -> dict[str, Any]:
    try:
        plain = json.loads(line if isinstance(line, str) else line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Damaged("no JSON") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        raise Damaged("no type")
    level: list[Any] = [plain]
    for _ in range(MAX_LEVELS):
        inner = (value for one in level for value in (one.values() if isinstance(one, dict) else one))
        if not (level := [value for value in inner if isinstance(value, (dict, list))]):
            return plain
    raise Damaged("nested beyond reason")


def _preview_line(line: str | bytes) -> str:
    """The beginning of a damaged line, for the log."""
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    return repr(text.strip()[:PREVIEW])


def _ended_status(status: object) -> int:
    """The status of an interrupted step that nobody continues here."""
    return status if status in (DONE, STOPPED, FAILED) and isinstance(status, int) else STOPPED


def _at_ms(text: str) -> int:
    return round(datetime.fromisoformat(_check_text(text)).timestamp() * 1000)


def _check_number(value: object, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_NUMBER:
        raise ValueError(f"{value!r} is not a number")
    return value


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
