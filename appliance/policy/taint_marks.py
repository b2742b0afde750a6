"""Marks: where untrusted text entered a run, an entry, a task or a schedule, and in which page, mail or server's answer.

Owns the `marks` table. A subject is `KIND:ID`, such as `run:018f…`, `entry:12`, `task:3`, `schedule:7` or `place:FOLDER`.
Once marked it stays so, and whatever comes of it is marked as well: entries that a marked run writes and tasks that it
makes are marked by triggers, in the transaction that writes them. Knows nothing about what follows from a mark: `taint`
does.
"""

import json
from collections.abc import Iterable, Sequence

from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.policy.taint import Mark
from appliance.records import Marked
from appliance.store.database import Store
from appliance.text.fences import is_origin

MAX_SOURCE = 500  # characters
CARRIED = "marks"  # where the input of an event and the metadata of a letter hold theirs


class Marks:
    """Reads and writes marks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, *subjects: str) -> tuple[Mark, ...]:
        """The marks of these subjects, oldest first; each once."""
        rows = self._store.rows(
            "SELECT origin, source, MIN(seq), MIN(at_ms) FROM marks WHERE subject IN (SELECT value FROM json_each(?)) "
            "GROUP BY origin, source ORDER BY 4, 3, 1, 2",
            (json.dumps(subjects),),
        )
        return tuple(Mark(str(origin), str(source)) for origin, source, *_ in rows)

    def since(self, run: str) -> int | None:
        """The number of the event since which a run is marked, 0 for one that began so; None for one that is not."""
        found = self._store.value("SELECT MIN(seq) FROM marks WHERE subject = ?", (f"run:{run}",))
        return None if found is None else int(found)

    def add(self, subject: str, origin: str, source: str = "", seq: int = 0) -> None:
        """Mark a subject; nothing when it is marked so already. BadInput for an origin that there is not."""
        if not is_origin(origin):
            raise BadInput(f"{origin!r} is no origin of a text", hint="use one of fences.ORIGINS, or mcp:NAME, person:NAME")
        source = " ".join(source.split())[:MAX_SOURCE]
        with self._store.write() as execute:
            execute("INSERT INTO marks VALUES (?, ?, ?, ?, ?)", (subject, origin, source, seq, now_ms()))

    def carried(self, *subjects: str) -> Marked:
        """The marks of these subjects, as a message or an event that is made of their texts carries them."""
        return tuple((mark.origin, mark.source) for mark in self.of(*subjects))

    def take(self, subject: str, marks: object, seq: int = 0) -> None:
        """Mark a subject with what a message or an event carries; what is no mark is left out."""
        for pair in read_marks(marks):
            self.add(subject, *pair, seq)

    def inherit(self, target: str, *sources: str, seq: int = 0) -> None:
        """Mark a subject with every mark of others; writes nothing when they have none that it has not."""
        found = self.of(*sources)
        new = [mark for mark in found if mark not in set(self.of(target))] if found else []
        if new:
            with self._store.write():
                for mark in new:
                    self.add(target, mark.origin, mark.source, seq)

    def entries(self, paths: Iterable[str], scope: str) -> dict[str, tuple[Mark, ...]]:
        """The marks of those of these entries that have any, by stored path or, where one was asked for, by uid."""
        rows = self._store.rows(
            "SELECT asked.value, m.origin, m.source FROM json_each(?1) AS asked "
            "CROSS JOIN entries e ON (e.scope = ?2 AND e.path = asked.value) OR e.uid = asked.value "
            "CROSS JOIN marks m ON m.subject = 'entry:' || e.id ORDER BY m.at_ms LIMIT 500",
            (json.dumps(list(paths)), scope),
        )
        found: dict[str, tuple[Mark, ...]] = {}
        for path, origin, source in rows:
            found[str(path)] = (*found.get(str(path), ()), Mark(str(origin), str(source)))
        return found

    def below(self, folder: str, scope: str) -> tuple[Mark, ...]:
        """The marks of entries in a folder, whose stored path ends with a slash; each once."""
        rows = self._store.rows(
            "SELECT DISTINCT m.origin, m.source FROM entries e CROSS JOIN marks m ON m.subject = 'entry:' || e.id "
            "WHERE e.scope = ?1 AND e.path >= ?2 AND e.path < ?2 || char(1114111) LIMIT 500",
            (scope, folder),
        )
        return tuple(Mark(str(origin), str(source)) for origin, source in rows)

    def runs_of(self, tasks: Iterable[int]) -> list[str]:
        """The runs that worked on these tasks, as subjects."""
        sql = "SELECT id FROM runs WHERE task IN (SELECT CAST(value AS TEXT) FROM json_each(?))"
        return [f"run:{run}" for (run,) in self._store.rows(sql, (json.dumps(list(tasks)),))]

    def seq(self, run: str) -> int:
        """The number of a run's newest event; 0 for a run that there is not."""
        return int(self._store.value("SELECT last_seq FROM runs WHERE id = ?", (run,)) or 0)

    def has_entries(self) -> bool:
        """Whether any entry is marked."""
        return self._store.row("SELECT 1 FROM marks WHERE subject >= 'entry:' AND subject < 'entry;' LIMIT 1") is not None


def read_marks(value: object) -> Marked:
    """The marks in a value that was read from JSON; what is none is left out."""
    pairs = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return tuple(
        (pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, Sequence) and len(pair) == 2 and all(isinstance(part, str) for part in pair) and is_origin(pair[0])
    )
