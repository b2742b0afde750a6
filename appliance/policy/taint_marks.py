"""Marks: where untrusted text entered a run, an entry, a task or a schedule, and in which page, mail or server's answer.

Owns the tables `marks` and `marked_words`. A subject is `KIND:ID`, such as `run:018f…`, `entry:12`, `task:3`, `schedule:7`,
`place:FOLDER` or `words:NUMBER`. Once marked it stays so, until a person trusts it, and whatever comes of it is marked as well:
entries that a marked run writes and tasks that it makes are marked by triggers, in the transaction that writes them. What a
marked run writes or says is also known by the hashes of its words (`text.word_hashes`), each with the number of its marks, so that
a file that was renamed, copied, restored, converted or edited is marked when it is read again. Knows nothing about what follows
from a mark: `taint` does. Not promised: short lines alone, and words that a person writes anew, are not known again.
"""

import json
from collections.abc import Iterable, Sequence

from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.policy.taint import Mark, of_path
from appliance.records import Marked
from appliance.store.database import Store
from appliance.text import word_hashes
from appliance.text.fences import is_origin

MAX_SOURCE = 500  # characters
MAX_WORDS = 1_000_000  # hashes that are kept of all texts together, about 20 MB
MONTH_MS = 30 * 86_400_000
OWN = 0  # the number of texts without marks, in `marked_words`
WORDS = "words:"  # of the subjects that are the marks of texts, by number
CARRIED = "marks"  # where the input of an event and the metadata of a letter hold theirs


class Marks:
    """Reads and writes marks."""

    def __init__(self, store: Store, max_words: int = MAX_WORDS) -> None:
        self._store = store
        self._max_words = max_words

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
            raise BadInput(f"{origin!r} is not an origin of a text", hint="use one of fences.ORIGINS, or mcp:NAME, person:NAME")
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
        self._keep(word_hashes.whole(text), marks)

    def keep_words(self, texts: str | Sequence[str], marks: Iterable[Mark], own: str = "", *, durable: bool = False) -> None:
        """Mark the words of one text or several, wherever they stand from now on; not those that stand in `own`."""
        texts = [texts] if isinstance(texts, str) else texts
        hashes = word_hashes.kept("\n".join(texts), own)
        self._keep(hashes.union(*map(word_hashes.whole, texts)) if hashes else hashes, marks, durable=durable)

    def keep_own(self, text: str) -> None:
        """Remember that a text as a whole was nobody's but the person's, when the entry that held it goes."""
        with self._store.write() as execute:
            execute(
                "INSERT OR IGNORE INTO marked_words SELECT value, ? FROM json_each(?)",
                (OWN, json.dumps([*word_hashes.whole(text)])),
            )

    def _keep(self, hashes: set[int], marks: Iterable[Mark], *, durable: bool = False) -> None:
        """Keep hashes under the number of these marks in this month; `seq` of its marks counts them."""
        pairs = sorted({(mark.origin, mark.source) for mark in marks}) if hashes else []
        if not pairs:
            return
        number = word_hashes.number_of(json.dumps([now_ms() // MONTH_MS, pairs]))
        with self._store.write(durable=durable) as execute:
            for origin, source in pairs:
                self.add(f"{WORDS}{number}", origin, source)
            execute("INSERT OR IGNORE INTO marked_words SELECT value, ? FROM json_each(?)", (number, json.dumps(sorted(hashes))))
            if new := int(execute("SELECT changes()")[0][0]):
                execute("UPDATE marks SET seq = seq + ? WHERE subject = ?", (new, f"{WORDS}{number}"))
                self._prune_words(number)

    def _prune_words(self, newest: int) -> None:
        """Forget the words that were kept first when there are too many; not those that were just kept."""
        sql = "SELECT subject, MAX(seq) FROM marks WHERE subject GLOB 'words:*' GROUP BY subject ORDER BY MIN(at_ms), subject"
        kept = [(str(subject), int(count)) for subject, count in self._store.rows(sql)]
        excess = sum(count for _, count in kept) - self._max_words
        if excess <= 0:
            return
        with self._store.write() as execute:
            execute("DELETE FROM marked_words WHERE source = ?", (OWN,))
            for subject, count in kept:
                if excess <= 0 or subject == f"{WORDS}{newest}":
                    return
                execute("DELETE FROM marked_words WHERE source = ?", (int(subject.removeprefix(WORDS)),))
                execute("DELETE FROM marks WHERE subject = ?", (subject,))
                excess -= count

    def recognize(self, target: str, *texts: str, own: Sequence[str] = ()) -> None:
        """Mark a subject that holds words which were marked earlier, and do not stand in `own`."""
        if self._store.row("SELECT 1 FROM marked_words LIMIT 1") is None:
            return
        found = {source for text in texts for source in self._sources(text, own)}
        self.inherit(target, *(f"{WORDS}{source}" for source in sorted(found)))

    def _sources(self, text: str, own: Sequence[str]) -> set[int]:
        """The numbers of the marks whose words a text holds."""
        places: dict[int, int] = {}
        for at, piece in word_hashes.pieces(text):
            places.setdefault(piece, at)
        all_of_it = word_hashes.whole(text)
        sql = "SELECT hash, source FROM json_each(?) CROSS JOIN marked_words ON hash = value"
        known = [(int(one), int(source)) for one, source in self._store.rows(sql, (json.dumps([*places, *all_of_it]),))]
        if not known or any(one in all_of_it and source == OWN for one, source in known):
            return set()
        letters = word_hashes.letters_of(text)
        if any(letters in word_hashes.letters_of(one) for one in own):
            return set()
        mine = word_hashes.kept("\n".join(own)).union(*map(word_hashes.whole, own))
        found = {source for one, source in known if one in all_of_it and one not in mine}
        begun: dict[int, list[int]] = {}
        for one, source in known:
            if one in places and one not in mine:
                begun.setdefault(source, []).append(places[one])
        return found | {source for source, at in begun.items() if word_hashes.is_enough(sorted(at))}

    def trust(self, subject: str, *texts: str) -> tuple[Mark, ...]:
        """Take the marks off a subject and the texts that it holds: a person answers for it; which ones they were."""
        with self._store.write(durable=True) as execute:
            found = self.of(subject)
            execute("DELETE FROM marks WHERE subject = ?", (subject,))
            self.forget_words(*texts)
        return found

    def take_off(self, subject: str, since_ms: int, keeper: str) -> None:
        """Take off the marks that a subject got since a time: `keeper` has them from now on."""
        with self._store.write() as execute:
            got = execute("SELECT origin, source FROM marks WHERE subject = ? AND at_ms >= ?", (subject, since_ms))
            for origin, source in got:
                self.add(keeper, str(origin), str(source))
            execute("DELETE FROM marks WHERE subject = ? AND at_ms >= ?", (subject, since_ms))

    def forget_words(self, *texts: str) -> None:
        """No words of these texts are known again: a person answers for them."""
        hashes = {one for text in texts for _, one in word_hashes.pieces(text)}.union(*map(word_hashes.whole, texts))
        with self._store.write() as execute:
            execute("DELETE FROM marked_words WHERE hash IN (SELECT value FROM json_each(?))", (json.dumps(list(hashes)),))

    def clean_texts(self, paths: Iterable[str], scope: str) -> list[str]:
        """The texts of those of these entries that are not marked, and of the documents of prompts that are not."""
        rows = self._store.rows(
            "SELECT e.path, e.body FROM entries e WHERE e.scope = ?2 AND (e.attributes ->> 'is_document' IS 1 "
            "OR e.path IN (SELECT value FROM json_each(?1))) AND NOT EXISTS (SELECT 1 FROM marks WHERE subject = 'entry:' || e.id) "
            "AND length(e.body) < 200000 LIMIT 200",
            (json.dumps(list(paths)), scope),
        )
        return [str(body) for path, body in rows if of_path(str(path)) is None]

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
