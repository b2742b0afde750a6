"""What each run sees of what the assistant knows: one row per (run, entry), apart from the content.

Owns the `views` table. Content is shared; visibility, state, status, summary and the count of writes belong
to the run, so that a fork copies rows and no text. An entry without a row is simply not in the run's context.
Visibility and state vary independently. Knows nothing about texts, and never counts tokens: they are
computed when they are shown.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import NotFound
from appliance.knowledge.schemes import Tier
from appliance.runtime.events import Events
from appliance.runtime.hook_points import Change, EntryNews
from appliance.store import visibility
from appliance.store.database import Row, Store

Visibility = Literal["visible", "summarized", "archived"]
State = Literal["proposed", "streaming", "resolved", "failed", "cancelled"]
MAX_SUMMARY = 80
COLUMNS = (
    "v.run, v.entry, e.scope, e.path, v.visibility, v.state, v.status, v.outcome, v.summary, v.loop, v.turn, v.writes, v.updated_ms"
)
MAX_CODE = chr(0x10FFFF)  # sorts after everything that may follow a prefix


class Actor(Struct, frozen=True):
    """Who does something and where: a writer's tier, and the run with its loop and turn, "" for a person outside of one.

    `log` is the entry in which the action was recorded before it began, if it was. `bars_files` says why a model's
    run may change no file; "" when it may propose to.
    """

    tier: Tier
    run: str = ""
    loop: int = 0
    turn: int = 0
    project: int | None = 1
    log: str = ""
    bars_files: str = ""


class View(Struct, frozen=True):
    """How a run sees one entry; `outcome` says why where `state` is failed or cancelled."""

    run: str
    entry: int
    scope: str
    path: str
    visibility: Visibility
    state: State = "resolved"
    status: int = 200
    outcome: str = ""
    summary: str = ""
    loop: int = 0
    turn: int = 0
    writes: int = 0
    updated_ms: int = 0


class Touched(Struct, frozen=True):
    """An entry that a run has touched, with its text; `attributes` as JSON."""

    path: str
    state: str
    status: int
    visibility: str
    body: str
    attributes: str
    turn: int
    updated_ms: int


class Views:
    """Reads and writes what runs see."""

    def __init__(self, store: Store, events: Events | None = None) -> None:
        """`EntryNews` is published of how an entry is seen now, once it is committed."""
        self._store = store
        self._events = events or Events()

    # -- reading ------------------------------------------------------------------------------------

    def views_of(self, run: str, *, prefix: str = "", visibility: str = "", state: str = "") -> list[View]:
        """What a run sees, by path; only what begins with `prefix`, only of one visibility or state."""
        return self._select_views(
            "v.run = ?1 AND e.path >= ?2 AND e.path < ?3 AND ?4 IN ('', v.visibility) AND ?5 IN ('', v.state) "
            "ORDER BY e.path, e.scope",
            (run, prefix, prefix + MAX_CODE, visibility, state),
        )

    def touched(self, run: str, limit: int) -> list[Touched]:
        """The entries that a run has touched, in the order of time: the newest `limit`.

        A file that it merely could see is none, nor is the list of those files: with 1,500 of them it has 40 kB.
        """
        columns = "path, state, status, visibility, body, attributes, turn, updated_ms"
        rows = self._store.rows(
            f"SELECT {columns} FROM run_entries WHERE run = ? "
            "AND NOT (visibility = 'archived' AND writes = 0 AND instr(path, '://') = 0) AND path NOT GLOB 'log://turn_0/repo/*' "
            "ORDER BY updated_ms DESC, turn DESC, path DESC LIMIT ?",
            (run, limit),
        )
        return [Touched(*row) for row in reversed(rows)]

    def find(self, run: str, path: str) -> View | None:
        """How a run sees the entry with this path, its own one first; None when it does not."""
        found = self._select_views("v.run = ?1 AND e.path = ?2 ORDER BY e.scope <> 'run:' || ?1, e.scope LIMIT 1", (run, path))
        return found[0] if found else None

    def get(self, run: str, path: str) -> View:
        """The entry with this path as a run sees it; NotFound when it does not."""
        found = self.find(run, path)
        if found is None:
            raise NotFound(f"thread {run} does not see {path}", hint="get brings an entry into it")
        return found

    def proposals(self, run: str) -> list[View]:
        """The proposals of a run that wait for a decision, oldest first."""
        return self._select_views("v.run = ?1 AND v.state = 'proposed' ORDER BY v.id", (run,))

    def all_proposals(self, limit: int) -> list[View]:
        """The proposals of all runs that wait for a decision, oldest first."""
        return self._select_views("v.state = 'proposed' ORDER BY v.id LIMIT ?1", (limit,))

    def streaming(self, run: str = "") -> list[View]:
        """The entries that still grow, of one run or of all, oldest first."""
        return self._select_views("v.state = 'streaming' AND ?1 IN ('', v.run) ORDER BY v.id", (run,))

    def is_waiting(self, run: str, entry: int) -> bool:
        """Whether an entry waits for a decision in a run."""
        sql = "SELECT 1 FROM views WHERE run = ? AND entry = ? AND state = 'proposed'"
        return self._store.row(sql, (run, entry)) is not None

    def watchers(self, entry: int, *, beside: str = "") -> list[str]:
        """The runs that see an entry, without the one named."""
        return [
            str(row[0])
            for row in self._store.rows("SELECT run FROM views WHERE entry = ? AND run <> ? ORDER BY id", (entry, beside))
        ]

    # -- writing ------------------------------------------------------------------------------------

    def show(
        self, actor: Actor, entry: int, view: Visibility, state: State = "resolved", status: int = 200, outcome: str = ""
    ) -> None:
        """The actor's run sees an entry like this from now on; its summary and its count of writes stay."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO views (run, entry, visibility, state, status, outcome, loop, turn, updated_ms) "
                "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (run, entry) DO UPDATE SET "
                "visibility = ?3, state = ?4, status = ?5, outcome = ?6, loop = ?7, turn = ?8, updated_ms = ?9",
                (actor.run, entry, view, state, status, outcome, actor.loop, actor.turn, now_ms()),
            )
            self._announce_views(actor.run, [entry], "status")

    def promote(self, actor: Actor, entries: Sequence[int]) -> None:
        """Make entries visible: what the actor's run sees in full from its present turn on."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO views (run, entry, visibility, state, status, loop, turn, updated_ms) "
                "SELECT ?1, value, 'visible', 'resolved', 200, ?3, ?4, ?5 FROM json_each(?2) WHERE true "
                "ON CONFLICT (run, entry) DO UPDATE SET visibility = 'visible', loop = ?3, turn = ?4, updated_ms = ?5",
                (actor.run, json.dumps(list(entries)), actor.loop, actor.turn, now_ms()),
            )
            self._announce_views(actor.run, entries, "visibility")

    def demote(self, actor: Actor, entries: Sequence[int], to: Visibility = "archived") -> None:
        """Lower entries without touching their state, status or turn; those the run does not see stay unseen."""
        with self._store.write() as execute:
            execute(
                "UPDATE views SET visibility = ?3, updated_ms = ?4 WHERE run = ?1 AND entry IN (SELECT value FROM json_each(?2))",
                (actor.run, json.dumps(list(entries)), to, now_ms()),
            )
            self._announce_views(actor.run, entries, "visibility")

    def set_visibility(self, actor: Actor, entries: Sequence[int], visibility: Visibility) -> None:
        """Give entries a visibility, those that the run did not see included."""
        with self._store.write():
            self.promote(actor, entries) if visibility == "visible" else self._admit_entries(actor, entries)
            if visibility != "visible":
                self.demote(actor, entries, visibility)

    def summarize(self, actor: Actor, entries: Sequence[int], summary: str) -> None:
        """Describe entries in at most 80 characters; the text survives every change of visibility."""
        with self._store.write() as execute:
            self._admit_entries(actor, entries)
            execute(
                "UPDATE views SET summary = ?3, updated_ms = ?4 WHERE run = ?1 AND entry IN (SELECT value FROM json_each(?2))",
                (actor.run, json.dumps(list(entries)), summary, now_ms()),
            )
            self._announce_views(actor.run, entries, "summary")

    def wrote(self, actor: Actor, entry: int) -> None:
        """The actor's run has written an entry: one write more, its visibility stays, a new one is summarized."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO views (run, entry, visibility, state, status, loop, turn, writes, updated_ms) "
                "VALUES (?1, ?2, 'summarized', 'resolved', 200, ?3, ?4, 1, ?5) ON CONFLICT (run, entry) DO UPDATE SET "
                "writes = writes + 1, state = 'resolved', status = 200, outcome = '', loop = ?3, turn = ?4, updated_ms = ?5",
                (actor.run, entry, actor.loop, actor.turn, now_ms()),
            )

    def resolve(self, run: str, entry: int, state: State, status: int, outcome: str = "") -> None:
        """Record the end of a proposal or stream; visibility and summary stay."""
        with self._store.write() as execute:
            execute(
                "UPDATE views SET state = ?, status = ?, outcome = ?, updated_ms = ? WHERE run = ? AND entry = ?",
                (state, status, outcome, now_ms(), run, entry),
            )
            self._announce_views(run, [entry], "status")

    def remove_views(self, run: str, entries: Sequence[int]) -> None:
        """A run sees these entries no longer."""
        with self._store.write() as execute:
            self._announce_views(run, entries, "visibility")
            execute(
                "DELETE FROM views WHERE run = ? AND entry IN (SELECT value FROM json_each(?))", (run, json.dumps(list(entries)))
            )

    def repoint(self, run: str, old: int, new: int) -> None:
        """A run sees another entry in the place of one, in the same way; nothing happens when it did not see it."""
        with self._store.write() as execute:
            execute(
                "DELETE FROM views WHERE run = ?1 AND entry = ?3 AND EXISTS (SELECT 1 FROM views WHERE run = ?1 AND entry = ?2)",
                (run, old, new),
            )
            execute("UPDATE views SET entry = ? WHERE run = ? AND entry = ?", (new, run, old))

    def fork(self, parent: str, child: str) -> int:
        """A new run sees what another one sees, turns included; rows are copied, texts are not. Returns how many."""
        with self._store.write() as execute:
            return len(
                execute(
                    "INSERT INTO views (run, entry, visibility, state, status, outcome, summary, loop, turn, writes, updated_ms, "
                    "since_ms, since_turn) "
                    "SELECT ?2, entry, visibility, state, status, outcome, summary, loop, turn, writes, ?3, since_ms, since_turn "
                    "FROM views WHERE run = ?1 AND state <> 'proposed' ORDER BY id RETURNING id",
                    (parent, child, now_ms()),
                )
            )

    # -- inside -------------------------------------------------------------------------------------

    def _announce_views(self, run: str, entries: Sequence[int], kind: Change) -> None:
        """Paths are looked up now, while those that are about to go are there."""
        if not self._events.has(EntryNews):
            return
        for scope, path in self._store.rows(
            "SELECT scope, path FROM entries WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(entries)),)
        ):
            self._store.after(partial(self._events.publish, EntryNews(str(path), kind, run, str(scope))))

    def _admit_entries(self, actor: Actor, entries: Sequence[int]) -> None:
        """Rows for the entries that the run does not see yet, as archived."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO views (run, entry, visibility, state, status, loop, turn, updated_ms) "
                "SELECT ?1, value, 'archived', 'resolved', 200, ?3, ?4, ?5 FROM json_each(?2) WHERE true "
                "ON CONFLICT (run, entry) DO NOTHING",
                (actor.run, json.dumps(list(entries)), actor.loop, actor.turn, now_ms()),
            )

    def _select_views(self, where: str, bindings: Sequence[object]) -> list[View]:
        own = visibility.own_sessions("(SELECT session FROM runs WHERE id = v.run)").removeprefix(" AND ")
        own = f"{own} AND " if own else ""
        rows = self._store.rows(f"SELECT {COLUMNS} FROM views v JOIN entries e ON e.id = v.entry WHERE {own}{where}", bindings)
        return [_view_from_row(row) for row in rows]


def _view_from_row(row: Row) -> View:
    return View(*row)
