"""The change log: the last changes of every entry with their author, newest first.

Owns the `changes` table; a row is written in the transaction of the change it tells of. Knows nothing
about entries beyond scope, path and text. A text's patch is left out when it would be long, so what was
there before cannot always be read from here: taking a run back is done from changesets.
"""

from collections import Counter
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from appliance.clock import now_ms
from appliance.records import Marked
from appliance.store import visibility, wall_clock
from appliance.store.database import Row, Store
from appliance.text import edits

MAX_PATCH = 16_000  # characters
MAX_DIFFED = 1_000_000  # characters of both texts together; beyond, a small machine would take seconds
KEPT = 100  # changes remembered for one entry

Verb = Literal["set", "edit", "rm", "cp", "mv", "mirror", "undo"]
Execute = Callable[..., list[Row]]


class By(Struct, frozen=True):
    """Who changes something, and how: for the history and for an undo; `marks` are those of the words that are taken over."""

    writer: str = "client"
    run: str = ""
    verb: Verb = "set"
    marks: Marked = ()

    def doing(self, verb: Verb) -> "By":
        """The same, doing this, unless it was said to be doing something else than set."""
        return By(self.writer, self.run, verb, self.marks) if self.verb == "set" else self


CLIENT = By()


class Change(Struct, frozen=True):
    """One change. A hash is "" where there was nothing before, or is nothing after it."""

    verb: str
    writer: str
    run: str
    before_hash: str
    after_hash: str
    size_bytes: int
    patch: str
    at_ms: int


class Changes:
    """Reads and writes the history."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, execute: Execute, scope: str, path: str, change: Change) -> None:
        """Remember a change, within the transaction that makes it; the oldest beyond the limit are forgotten."""
        execute(
            "INSERT INTO changes (scope, path, verb, writer, run, before_hash, after_hash, size_bytes, patch, at_ms) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                scope,
                path,
                change.verb,
                change.writer,
                change.run or None,
                change.before_hash,
                change.after_hash,
                change.size_bytes,
                change.patch,
                change.at_ms,
            ),
        )
        execute(
            "DELETE FROM changes WHERE scope = ?1 AND path = ?2 AND id <= "
            "(SELECT id FROM changes WHERE scope = ?1 AND path = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)",
            (scope, path, KEPT),
        )

    def forget(self, execute: Execute, scope: str, path: str) -> None:
        """Remove everything that is remembered of a path, within the transaction that removes it."""
        execute("DELETE FROM changes WHERE scope = ? AND path = ?", (scope, path))

    def expire(self, before_ms: int) -> int:
        """Forget changes from before a time, but for the newest of each path; how many. Writes nothing when there are none."""
        if self._store.row(f"SELECT 1 FROM changes WHERE at_ms {wall_clock.OLD} ? LIMIT 1", (before_ms,)) is None:
            return 0
        with self._store.write() as execute:
            newest = "SELECT MAX(id) FROM changes GROUP BY scope, path"
            return len(
                execute(f"DELETE FROM changes WHERE at_ms {wall_clock.OLD} ? AND id NOT IN ({newest}) RETURNING 1", (before_ms,))
            )

    def left(self, run: str, after_hash: str) -> tuple[str, str] | None:
        """Scope and path of the newest change of a run that left this behind, or None."""
        row = self._store.row(
            "SELECT scope, path FROM changes WHERE run = ? AND after_hash = ? ORDER BY id DESC LIMIT 1", (run, after_hash)
        )
        return None if row is None else (str(row[0]), str(row[1]))

    def since(self, scope: str, path: str, hash_before: str) -> int | None:
        """When a path was changed that had this hash last; None where that is not known."""
        sql = "SELECT after_hash, at_ms FROM changes WHERE scope = ? AND path = ? ORDER BY id DESC"
        at_ms = None
        for after_hash, changed_ms in self._store.rows(sql, (scope, path)):
            if after_hash == hash_before:
                return at_ms
            at_ms = int(changed_ms)
        return None

    def has_taken_back(self, scope: str, path: str, run: str) -> bool:
        """Whether a run took changes of others back."""
        sql = "SELECT 1 FROM changes WHERE scope = ? AND path = ? AND run = ? AND verb = 'undo' LIMIT 1"
        return self._store.row(sql, (scope, path, run)) is not None

    def changes_of(self, scope: str, path: str, limit: int, *, is_own: bool = False) -> list[Change]:
        """The changes of one stored path, newest first, also of one that was removed; `is_own`: only by runs of whoever asks."""
        own = f" AND run IN (SELECT id FROM runs WHERE 1{visibility.own_sessions('session')})" if is_own else ""
        rows = self._store.rows(
            "SELECT verb, writer, COALESCE(run, ''), before_hash, after_hash, size_bytes, patch, at_ms FROM changes "
            f"WHERE scope = ? AND path = ?{own} ORDER BY id DESC LIMIT ?",
            (scope, path, limit),
        )
        return [Change(*row) for row in rows]


def changed(by: By, before_hash: str, after_hash: str, size_bytes: int, patch: str = "") -> Change:
    """A change that happens now."""
    return Change(by.verb, by.writer, by.run, before_hash, after_hash, size_bytes, patch, now_ms())


def patch(before: str, after: str, name: str) -> str:
    """The unified difference of two texts; "" when they are equal or it would be too long."""
    if before == after or len(before) + len(after) > MAX_DIFFED:
        return ""
    old, new = Counter(before.split("\n")), Counter(after.split("\n"))
    changed = (old - new) + (new - old)
    if sum(len(line) * times for line, times in changed.items()) > MAX_PATCH:
        return ""  # every one of these lines would be in it
    found = edits.diff(before, after, name)
    return found if len(found) <= MAX_PATCH else ""
