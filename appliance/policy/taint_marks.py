"""Marks: where untrusted text entered a run, an entry, a task or a schedule, and in which page, mail or server's answer.

Owns the `marks` table. A subject is `KIND:ID`, such as `run:018f…`, `entry:12`, `task:3`, `schedule:7`, `place:FOLDER` or
`text:HASH`. Once marked it stays so, until a person trusts it, and whatever comes of it is marked as well: entries that a
marked run writes and tasks that it makes are marked by triggers, in the transaction that writes them. What a marked run
writes is also known by the hashes of its text and of its longer lines, so that a file that was renamed, copied, restored or
edited is marked when it is read again. Knows nothing about what follows from a mark: `taint` does.
Not promised: short lines alone, and words that a person writes anew, are not known again.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence

from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.policy.taint import Mark
from appliance.records import Marked
from appliance.store.database import Store
from appliance.text.fences import is_origin

MAX_SOURCE = 500  # characters
LEAST_LINE = 16  # letters and digits of a line that is known again by itself: shorter ones stand in many texts
MAX_LINES = 2000  # of a text that are kept
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

    def keep_text(self, text: str, marks: Iterable[Mark]) -> None:
        """Mark a text as a whole, wherever it stands from now on, however it is set."""
        self._keep([_plain_text(text)], marks)

    def keep_lines(self, texts: Iterable[str], marks: Iterable[Mark], own: str) -> None:
        """Mark the longer lines of texts that are about to be written, wherever they stand; not those that a person said, `own`."""
        known = _plain_text(own)
        lines = [line for text in texts for line in _long_lines(text) if line not in known]
        self._keep(lines[:MAX_LINES], marks, durable=True)

    def _keep(self, texts: Sequence[str], marks: Iterable[Mark], *, durable: bool = False) -> None:
        with self._store.write(durable=durable):
            for subject in _text_subjects(texts):
                for mark in marks:
                    self.add(subject, mark.origin, mark.source)

    def recognize(self, target: str, text: str) -> None:
        """Mark a subject that holds a text or a line which was marked earlier."""
        if self._store.row("SELECT 1 FROM marks WHERE subject >= 'text:' AND subject < 'text;' LIMIT 1") is not None:
            self.inherit(target, *_text_subjects([_plain_text(text), *_long_lines(text)]))

    def trust(self, subject: str, text: str) -> tuple[Mark, ...]:
        """Take the marks off a subject and the text that it holds: a person answers for it; which ones they were."""
        with self._store.write(durable=True) as execute:
            found = self.of(subject)
            execute(
                "DELETE FROM marks WHERE subject IN (SELECT value FROM json_each(?))",
                (json.dumps([subject, *_text_subjects([_plain_text(text), *_long_lines(text)])]),),
            )
        return found

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


def _text_subjects(texts: Iterable[str]) -> list[str]:
    """Plain texts as subjects; those without a letter are none."""
    return [f"text:{hashlib.sha256(one.encode('utf-8', 'replace')).hexdigest()[:32]}" for one in dict.fromkeys(texts) if one]


def _long_lines(text: str) -> list[str]:
    """The lines that are long enough to be known again by themselves."""
    return [line for line in map(_plain_text, text.splitlines()) if len(line) >= LEAST_LINE]


def _plain_text(text: str) -> str:
    """The letters and digits of a text in their order, small: how it is set, listed, quoted or wrapped is not part of it."""
    return "".join(filter(str.isalnum, text.casefold()))


def read_marks(value: object) -> Marked:
    """The marks in a value that was read from JSON; what is none is left out."""
    pairs = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return tuple(
        (pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, Sequence) and len(pair) == 2 and all(isinstance(part, str) for part in pair) and is_origin(pair[0])
    )
