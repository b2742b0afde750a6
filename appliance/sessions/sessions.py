"""Sessions: one person on one channel, from the first message to the archive.

Owns the `sessions` and `attachments` tables. A session is created, active, idle after some silence, archived after a
day of it, and active again with the next message; a closed one takes no more messages and may be deleted. Silence is
judged when somebody looks, and written down by `settle`: nothing polls. "stopped" is an idle one whose work was cut
off. Which change of status is possible is kept by the database too. Knows nothing about runs: deleting a
session with everything said in it is `channels.session_control`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import asdict as struct_asdict

from appliance.clock import is_alive, now_ms
from appliance.errors import BadInput, Conflict, NotFound, TooLarge
from appliance.records import Inbound
from appliance.store import visibility
from appliance.store.database import Row, Store
from appliance.store.disk_room import DiskRoom

Status = Literal["created", "active", "idle", "stopped", "archived", "closing", "closed"]
NEXT: dict[str, tuple[str, ...]] = {
    "created": ("active", "archived", "closed"),
    "active": ("idle", "stopped", "archived", "closing", "closed"),
    "idle": ("active", "stopped", "archived", "closing", "closed"),
    "stopped": ("active", "idle", "archived", "closing", "closed"),
    "archived": ("active", "closing", "closed"),
    "closing": ("closed",),
    "closed": (),
}
COLUMNS = "id, channel, sender_id, person, context, status, process, created_ms, last_active_ms, archived_ms, metadata"
NO_DOOR = "task"  # the channel of sessions that the queue opens: they do not count as somebody's


IDLE_S = 600.0  # silence after which a session is idle


class SessionRules(Struct, frozen=True):
    """The limits of silence and of open sessions; 0 for none."""

    archive_s: float = 24 * 3600
    disk_warn: float = 0.90
    disk_refuse: float = 0.95
    idle_s: float = IDLE_S
    max_sessions: int = 100  # open at a time
    max_processes: int = 0  # that may work in one session at a time


class Session(Struct, frozen=True):
    id: str
    channel: str
    sender_id: str
    person: str
    context: str
    status: str
    process: str = ""
    created_ms: int = 0
    last_active_ms: int = 0
    archived_ms: int | None = None
    metadata: dict[str, Any] = {}

    @property
    def context_type(self) -> str:
        """user or group (A-010)."""
        return self.context.partition(":")[0]


class SessionFilter(Struct, frozen=True):
    """Which sessions a listing shows; what is empty does not matter."""

    person: str = ""
    group: str = ""
    context_type: Literal["", "user", "group"] = ""
    status: str = ""
    created_after_ms: int = 0
    created_before_ms: int = 0


class Identities(Protocol):
    """Says to which person the address of a channel belongs."""

    def resolve(self, channel: str, address: str) -> str: ...
    def find_linked(self, channel: str, address: str) -> str: ...
    def is_active(self, person: str) -> bool: ...
    def require_active(self, person: str) -> None: ...
    def note_reply(self, channel: str, address: str, reply: Mapping[str, Any]) -> None: ...


class AllApart:
    """Every address is a person of its own, by the address itself."""

    def resolve(self, channel: str, address: str) -> str:
        """The address."""
        return address

    def find_linked(self, channel: str, address: str) -> str:
        """Nobody."""
        return ""

    def is_active(self, person: str) -> bool:
        """Everybody is."""
        return True

    def require_active(self, person: str) -> None:
        """Everybody is."""

    def note_reply(self, channel: str, address: str, reply: Mapping[str, Any]) -> None:
        """Nothing is kept."""


ALL_APART = AllApart()


class Sessions:
    """Reads and writes sessions."""

    def __init__(
        self, store: Store, process: str, rules: Callable[[], SessionRules] = SessionRules, identities: Identities = ALL_APART
    ) -> None:
        self._store = store
        self._process = process
        self._rules = rules
        self._disk = DiskRoom(store.path.parent, lambda: (self._rules().disk_warn, self._rules().disk_refuse))
        self._identities = identities

    # -- reading ------------------------------------------------------------------------------------

    def find(self, session: str) -> Session | None:
        """The session with this id as it stands now; None when there is none."""
        row = self._store.row(f"SELECT {COLUMNS} FROM sessions WHERE id = ?{visibility.own_sessions('id')}", (session,))
        return None if row is None else self._session_from_row(row, now_ms())

    def get(self, session: str) -> Session:
        """The session with this id, or the only one of a sender."""
        if (found := self.find(session)) is not None:
            return found
        whose = visibility.own_sessions("id")
        sql = f"SELECT {COLUMNS} FROM sessions WHERE sender_id = ? AND channel <> ?{whose} LIMIT 2"
        rows = self._store.rows(sql, (session, NO_DOOR))
        if len(rows) != 1:
            raise NotFound(f"no session {session}", hint="owlbox session list shows them")
        return self._session_from_row(rows[0], now_ms())

    def list_sessions(
        self, wanted: SessionFilter = SessionFilter(), *, limit: int = 100, offset: int = 0, now: int = 0
    ) -> list[Session]:
        """Sessions, the newest activity first, by what they are now."""
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM sessions WHERE ?1 IN ('', person) AND ?2 IN ('', context) "
            "AND (?3 = '' OR context GLOB ?3 || ':*') AND created_ms > ?4 AND (?5 = 0 OR created_ms < ?5)"
            f"{visibility.own_sessions('id')} "
            "ORDER BY last_active_ms DESC, id",
            (
                *(wanted.person, f"group:{wanted.group}" if wanted.group else ""),
                *(wanted.context_type, wanted.created_after_ms or -1, wanted.created_before_ms),
            ),
        )
        found = [self._session_from_row(row, now or now_ms()) for row in rows]
        return [one for one in found if wanted.status in ("", one.status)][offset : offset + limit]

    def talkers(self) -> list[tuple[str, str, str]]:
        """Who has talked on a channel: channel, sender and context of each session."""
        sql = "SELECT DISTINCT channel, sender_id, context FROM sessions WHERE channel <> ? LIMIT 1000"
        rows = self._store.rows(sql, (NO_DOOR,))
        return [(str(channel), str(sender), str(context)) for channel, sender, context in rows]

    def contexts(self) -> int:
        """The number of people and groups that use channels."""
        return int(self._store.value("SELECT COUNT(DISTINCT context) FROM sessions WHERE channel <> ?", (NO_DOOR,)) or 0)

    def attached(self, session: str) -> list[str]:
        """The processes that work in a session."""
        sql = "SELECT process FROM attachments WHERE session = ? ORDER BY attached_ms, process"
        return [str(row[0]) for row in self._store.rows(sql, (session,))]

    def resolve(self, channel: str, address: str) -> str:
        """The person who writes from an address."""
        return self._identities.resolve(channel, address)

    def is_served(self, session: str) -> bool:
        """Whether a session is anybody's but that of a deactivated person."""
        row = self._store.row("SELECT person, context FROM sessions WHERE id = ?", (session,))
        return row is None or row[1] != f"user:{row[0]}" or self._identities.is_active(str(row[0]))

    # -- a session's life ---------------------------------------------------------------------------

    def add(self, made: Session) -> None:
        """A session that does not exist yet, as given: before its first message, or out of an export."""
        with self._store.write() as execute:
            execute(
                f"INSERT INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(made.id, made.channel, made.sender_id, made.person, made.context, made.status, made.process),
                    *(made.created_ms, made.last_active_ms, made.archived_ms, json.dumps(made.metadata)),
                ),
            )

    def began(self, session: str) -> None:
        """A restored session began with its first message and was last active with its newest one (A-025)."""
        with self._store.write() as execute:
            execute(
                "UPDATE sessions SET (created_ms, last_active_ms) = (SELECT MIN(e.at_ms), MAX(e.at_ms) FROM events e "
                "JOIN runs r ON r.id = e.run WHERE r.session = ?1 AND e.kind = 'message') WHERE id = ?1 AND EXISTS "
                "(SELECT 1 FROM events e JOIN runs r ON r.id = e.run WHERE r.session = ?1 AND e.kind = 'message')",
                (session,),
            )

    def touch(self, inbound: Inbound) -> None:
        """A message has come: its session exists and is active.

        Conflict for a closed one, TooLarge for one too many, Refused for a message of a deactivated person.
        """
        with self._store.write() as execute:
            channel, sender, reply = inbound.channel, inbound.sender_id, inbound.metadata
            person = self._identities.resolve(channel, sender)
            self._identities.require_active(person)
            if inbound.shared_session:  # where each of its channels is answered stands with the addresses
                self._identities.note_reply(channel, sender, reply)
                channel, _, sender = inbound.shared_session.partition(":")
                reply = {}
            row = execute("SELECT status FROM sessions WHERE id = ?", (inbound.session,))
            if not row:
                self._require_room(now_ms())
            elif row[0][0] in ("closing", "closed"):
                raise _closed_error(inbound.session, str(row[0][0]))
            execute(
                "INSERT INTO sessions "
                "(id, channel, sender_id, person, context, status, process, created_ms, last_active_ms, metadata) "
                "VALUES (?1, ?2, ?3, ?7, ?8, 'active', ?4, ?5, ?5, ?6) "
                "ON CONFLICT (id) DO UPDATE "
                "SET status = 'active', process = ?4, last_active_ms = ?5, archived_ms = NULL, "
                # What the channel says of the sender is new; until when the session was looked through stays.
                "metadata = json_patch(?6, json_object('reviewed_ms', json_extract(metadata, '$.reviewed_ms')))",
                (
                    *(inbound.session, channel, sender, self._process, now_ms(), json.dumps(reply)),
                    *(person, inbound.context or f"user:{person}"),
                ),
            )
            self._join_session(inbound.session)

    def open(self, session: str, person: str, context: str) -> None:
        """A session without a channel, such as a task's, for a person or group; active from now on. DiskFull for a new one then."""
        if self._store.value("SELECT 1 FROM sessions WHERE id = ?", (session,)) is None:
            self._disk.require("no session was opened")
        channel, _, sender = session.partition(":")
        with self._store.write() as execute:
            execute(
                "INSERT INTO sessions (id, channel, sender_id, person, context, status, process, created_ms, last_active_ms) "
                "VALUES (?1, ?2, ?3, ?4, ?5, 'active', ?6, ?7, ?7) "
                "ON CONFLICT (id) DO UPDATE SET status = 'active', process = ?6, last_active_ms = ?7, archived_ms = NULL",
                (session, channel, sender, person, context, self._process, now_ms()),
            )

    def rest(self, session: str, status: Literal["active", "idle", "stopped"] = "active") -> None:
        """Nobody works in this session any more; one that was to be closed is."""
        with self._store.write() as execute:
            # Also of one that died there.
            worked = "(?2, (SELECT process FROM sessions WHERE id = ?1))"
            execute(f"DELETE FROM attachments WHERE session = ?1 AND process IN {worked}", (session, self._process))
            execute(
                "UPDATE sessions SET process = '', status = CASE WHEN status = 'closing' THEN 'closed' "
                "WHEN status = 'idle' AND ?2 = 'active' THEN status WHEN status IN ('active', 'idle') THEN ?2 ELSE status END "
                "WHERE id = ?1 AND (process <> '' OR status = 'closing' OR status IN ('active', 'idle') AND status <> ?2)",
                (session, status),
            )

    def annotate(self, session: str, key: str, value: str | int) -> None:
        """Keep a fact about a session in its metadata. Durable."""
        with self._store.write(durable=True) as execute:
            execute("UPDATE sessions SET metadata = json_set(metadata, '$.' || ?, ?) WHERE id = ?", (key, value, session))

    def due_for_archive(self, now: int = 0) -> list[Session]:
        """Sessions that have been silent so long that `settle` will archive them, and are not archived yet."""
        stored = {str(row[0]) for row in self._store.rows("SELECT id FROM sessions WHERE status IN ('active', 'idle', 'stopped')")}
        found = self.list_sessions(limit=1_000_000, now=now or now_ms())
        return [one for one in found if one.status == "archived" and one.id in stored]

    def move(self, session: str, status: Status) -> Session:
        """Change a session's status; the same one again changes nothing, an impossible one is BadInput."""
        with self._store.write(durable=True) as execute:
            found = self.get(session)
            stored = str(execute("SELECT status FROM sessions WHERE id = ?", (found.id,))[0][0])
            if status == stored == found.status:
                return found
            if status not in (stored, *NEXT[stored]):
                raise BadInput(f"session {found.id} is {stored} and cannot become {status}", hint=_status_hint(stored))
            archived_ms = now_ms() if status == "archived" else None
            execute(
                "UPDATE sessions SET status = ?1, archived_ms = ?2, last_active_ms = IIF(?1 = 'active', ?3, last_active_ms) "
                "WHERE id = ?4",
                (status, archived_ms, now_ms(), found.id),
            )
            return self.get(found.id)

    def require_open(self, session: str) -> Session:
        """The session; Conflict when it is closed."""
        found = self.get(session)
        if found.status in ("closing", "closed"):
            raise _closed_error(found.id, found.status)
        return found

    def delete(self, session: str) -> None:
        """Delete a closed session whose runs are gone; Conflict while it is not closed."""
        found = self.get(session)
        if found.status != "closed":
            raise Conflict(f"session {found.id} is {found.status}", hint=f"close it first: owlbox session close {found.id}")
        with self._store.write(durable=True) as execute:
            execute("DELETE FROM sessions WHERE id = ?", (found.id,))

    def store_statuses(self, now: int = 0) -> tuple[int, int]:
        """Write down which sessions have become idle and archived; how many of each. Writes nothing when none has."""
        now = now or now_ms()
        due = [one for one in self.list_sessions(limit=1_000_000, now=now) if one.status in ("idle", "archived")]
        stored: dict[str, str] = dict(
            self._store.rows("SELECT id, status FROM sessions WHERE status IN ('active', 'idle', 'stopped')")
        )
        changed = [one for one in due if stored.get(one.id, one.status) != one.status]
        for one in changed:
            with self._store.write() as execute:
                execute(
                    "UPDATE sessions SET status = ?, archived_ms = ?, process = '' WHERE id = ? AND last_active_ms = ?",
                    (one.status, now if one.status == "archived" else None, one.id, one.last_active_ms),
                )
                execute("DELETE FROM attachments WHERE session = ?", (one.id,))
        archived = sum(one.status == "archived" for one in changed)
        return len(changed) - archived, archived

    def stop(self) -> None:
        """At shutdown: sessions this process is working in are marked stopped (A-276)."""
        for (session,) in self._store.rows("SELECT id FROM sessions WHERE status = 'active' AND process = ?", (self._process,)):
            self.rest(str(session), "stopped")

    # -- processes ----------------------------------------------------------------------------------

    def attach(self, session: str, process: str) -> None:
        """A process works in a session; Conflict when it does already or the session is closed, TooLarge over the cap."""
        with self._store.write() as execute:
            found = self.require_open(session)
            if execute("SELECT 1 FROM attachments WHERE session = ? AND process = ?", (found.id, process)):
                raise Conflict(f"process {process} works in session {found.id} already", hint="attach each process once")
            self._require_place(found.id, process)
            execute("INSERT INTO attachments (session, process, attached_ms) VALUES (?, ?, ?)", (found.id, process, now_ms()))

    def detach(self, session: str, process: str) -> None:
        """A process has left a session; NotFound when it did not work there."""
        with self._store.write() as execute:
            if not execute("DELETE FROM attachments WHERE session = ? AND process = ? RETURNING 1", (session, process)):
                raise NotFound(f"process {process} does not work in session {session}", hint="owlbox session view lists who does")

    # -- inside -------------------------------------------------------------------------------------

    def _join_session(self, session: str) -> None:
        """This process works in a session, if it did not already."""
        if not self._process or self._process in self.attached(session):
            return
        self._require_place(session, self._process)
        with self._store.write() as execute:
            execute("INSERT INTO attachments (session, process, attached_ms) VALUES (?, ?, ?)", (session, self._process, now_ms()))

    def _require_place(self, session: str, process: str) -> None:
        most = self._rules().max_processes
        others = [one for one in self.attached(session) if one != process] if most else []
        if most and len(others) >= most:
            alive = [one for one in others if is_alive(one)]
            with self._store.write() as execute:
                execute(
                    "DELETE FROM attachments WHERE session = ? AND process NOT IN (SELECT value FROM json_each(?))",
                    (session, json.dumps(alive)),
                )
            if len(alive) >= most:
                raise TooLarge(
                    f"{len(alive)} processes work in session {session}, the limit is {most}", hint="wait until one of them is done"
                )

    def _require_room(self, now: int) -> None:
        self._disk.require("no session was opened")
        most = self._rules().max_sessions
        count = int(self._store.value("SELECT COUNT(*) FROM sessions WHERE status NOT IN ('archived', 'closed')"))
        if most and count >= most:
            is_open = [one for one in self.list_sessions(limit=1_000_000, now=now) if one.status not in ("archived", "closed")]
            is_somebodys = [one for one in is_open if one.channel != NO_DOOR]
            if len(is_somebodys) >= most:
                raise TooLarge(
                    f"{len(is_somebodys)} sessions are open, the limit is {most}", hint="archive one: owlbox session archive ID"
                )

    def _session_from_row(self, row: Row, now: int) -> Session:
        values = [*row[:-1], json.loads(row[-1])]
        values[5] = self._status_after(str(row[5]), str(row[6]), int(row[8]), now)
        return Session(*values)

    def _status_after(self, stored: str, process: str, last_active_ms: int, now: int) -> str:
        """What a session is after so much silence; one in which somebody works is not silent."""
        rules, silent_s = self._rules(), (now - last_active_ms) / 1000
        if stored not in ("active", "idle", "stopped") or (stored == "active" and process and is_alive(process)):
            return stored
        if rules.archive_s and silent_s >= rules.archive_s:
            return "archived"
        return "idle" if stored == "active" and silent_s >= rules.idle_s else stored


def session_data(found: Session) -> dict[str, Any]:
    """A session as JSON-ready values."""
    return {**struct_asdict(found), "context_type": found.context_type}


def _closed_error(session: str, status: str) -> Conflict:
    return Conflict(
        f"session {session} is {status}", hint="it takes no more messages; owlbox session delete makes room for a new one"
    )


def _status_hint(stored: str) -> str:
    possible: Sequence[str] = NEXT[stored]
    return f"from there it can become {' or '.join(possible)}" if possible else "a closed session stays closed"
