"""The passages of entries and their index: chunks, their words (FTS5) and their vectors (sqlite-vec).

The one writer of `chunks`, `chunks_fts`, `chunks_vec`, `embedders` and `pending`. Triggers note in `pending` whose text,
title, path or description changed, also where no Python sees it (undo, the end of a run), and take a removed entry's
rows away; `index` is handed to `Entries`, so that words are findable at commit, and `catch_up` takes the rest. A chunk is a
place in an entry's text; its vector is kept as long as the text it stands for stays the same. Vectors come later, from
`knowledge.indexer`, all of one model. Knows nothing about queries or about models.
"""

import hashlib
import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import Conflict
from appliance.knowledge import chunking
from appliance.knowledge.change_log import Execute
from appliance.knowledge.chunking import Chunk
from appliance.knowledge.contents import MARKDOWN, TEXT, Entry
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.vss_index import VectorState
from appliance.store.database import Row, Store
from appliance.text.references import display, scheme_of

BATCH = 64  # entries indexed in one transaction
BATCH_BYTES = 512 * 1024  # of their texts
DIMENSION = 384  # of the vectors that a new database has room for
VECTOR_SLOTS = 256  # of a part of the vector table
SPARE_SLOTS = 1024  # of deleted vectors that are not worth the work
SCALE = 400  # from the numbers of a unit vector of that dimension to -127..127; hardly one is clipped
STRUCTURE = "structure-500"  # with the length that chunks are cut to
EARLIER = "structure"  # of longer chunks: they stay until their text changes, or the index is made anew
SUSPECTS = 50  # entries and words that are looked at again when the index seems wrong
BESIDE = (  # an index of the same kind that lives as long as a check
    """CREATE VIRTUAL TABLE temp.expected USING fts5(
        head, text, near, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
    )""",
    "CREATE VIRTUAL TABLE temp.expected_words USING fts5vocab(temp, expected, instance)",
    "CREATE VIRTUAL TABLE temp.indexed_words USING fts5vocab(main, chunks_fts, instance)",
)
WORD = re.compile(r"(?<!\w)[A-Za-z]{3,20}(?!\w)")  # one that every tokenizer sees as one
UNFOUND = ("logging", "audit")  # categories of schemes that nobody looks for anything in
REEMBED = "owlbox context reembed makes all vectors again"


class Embedder(Struct, frozen=True):
    """The model that made the vectors, and how long they are."""

    id: int
    model: str
    dimension: int


class ChunkToEmbed(Struct, frozen=True):
    """A chunk without a vector: the text to embed, and a hash that tells whether it is still that text."""

    id: int
    hash: bytes
    text: str


class IndexCounts(Struct, frozen=True):
    """How much is indexed: chunks, those with a vector, and entries whose words are not indexed yet."""

    chunks: int
    vectors: int
    pending: int


class Passages:
    """Keeps the index in line with the entries."""

    def __init__(self, store: Store, wake: Callable[[], None] = lambda: None, chunk_chars: int = chunking.TARGET_CHARS) -> None:
        """`chunk_chars` is about how long a chunk gets; only a measurement asks for another length."""
        self._store = store
        self._wake = wake
        self._chunk_chars = chunk_chars
        self._unfound = frozenset(scheme.name for scheme in Schemes().list_schemes() if scheme.category in UNFOUND)

    # -- words ------------------------------------------------------------------------------------

    def index(self, execute: Execute, entry: Entry) -> int | None:
        """Index an entry as it now is, within the transaction that changed it; when that was, None for what has no text."""
        found = self._chunk_by_structure(entry)
        return self._replace_chunks(execute, entry, found, STRUCTURE)

    def replace(self, entry: Entry, found: Sequence[Chunk], chunker: str) -> bool:
        """Give an entry other chunks, in one transaction; False when its text is not the same any more."""
        with self._store.write() as execute:
            if self._store.value("SELECT hash FROM entries WHERE id = ?", (entry.id,)) != entry.hash:
                return False
            self._replace_chunks(execute, entry, found, chunker)
            return True

    def catch_up(self, is_stopped: Callable[[], bool] = lambda: False, *, is_hurried: bool = False) -> int:
        """Index the words of every entry that waits for it, in bounded transactions; how many there were.

        `is_hurried` does not wait long for another writer: Busy.
        """
        count = 0
        while not is_stopped():
            if self._store.row("SELECT 1 FROM pending LIMIT 1") is None:
                break
            with self._store.write(is_hurried=is_hurried) as execute:
                size = 0
                for entry in self._load_entries(self._pending_keys()):
                    self.index(execute, entry)
                    count, size = count + 1, size + len(entry.body)
                    if size > BATCH_BYTES:
                        break
        return count

    def wait_for_writers(self) -> None:
        """Wait until whoever is writing at this moment has committed."""
        with self._store.write():
            pass

    def _pending_keys(self) -> list[int]:
        return [int(row[0]) for row in self._store.rows("SELECT entry FROM pending ORDER BY entry DESC LIMIT ?", (BATCH,))]

    def _chunk_by_structure(self, entry: Entry) -> list[Chunk]:
        """An entry's chunks by structure; an entry of words in its name alone has one that is empty."""
        if not entry.is_textual or entry.is_folder or entry.attributes.get("is_blank") is True:
            return []
        if scheme_of(entry.path) in self._unfound:
            return []
        found = chunking.structured(entry.body, is_prose=is_prose(entry), target_chars=self._chunk_chars)
        return found or [Chunk(0, 0, 0)]

    def _replace_chunks(self, execute: Execute, entry: Entry, found: Sequence[Chunk], chunker: str) -> int | None:
        """New rows for an entry; a chunk of the same text as before keeps its number, and with it its vector."""
        old: dict[bytes, list[int]] = {}
        for key, digest in execute("SELECT id, hash FROM chunks WHERE entry = ? ORDER BY seq DESC", (entry.id,)):
            old.setdefault(bytes(digest), []).append(int(key))
        if old:
            execute("UPDATE chunks SET seq = -1 - seq WHERE entry = ?", (entry.id,))
        is_waiting = False
        for chunk in found:
            digest = hash_of(embedded(entry, found, chunk.seq))
            values = (chunk.seq, chunk.start, chunk.stop, chunk.heading, chunk.who, chunker)
            if old.get(digest):
                key = old[digest].pop()
                execute(
                    "UPDATE chunks SET seq = ?, start = ?, stop = ?, heading = ?, who = ?, chunker = ? WHERE id = ?", (*values, key)
                )
                execute("DELETE FROM chunks_fts WHERE rowid = ?", (key,))
            else:
                is_waiting = True
                key = execute(
                    "INSERT INTO chunks (seq, start, stop, heading, who, chunker, entry, hash) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
                    (*values, entry.id, digest),
                )[0][0]
            execute("INSERT INTO chunks_fts (rowid, head, text, near) VALUES (?, ?, ?, ?)", (key, *words(entry, found, chunk.seq)))
        if old:
            execute("DELETE FROM chunks WHERE entry = ? AND seq < 0", (entry.id,))
        return self._note_pending(execute, entry, is_waiting)

    def _note_pending(self, execute: Execute, entry: Entry, is_waiting: bool) -> int | None:
        execute("DELETE FROM pending WHERE entry = ?", (entry.id,))
        if not entry.is_textual:
            return None
        at_ms = now_ms()
        execute("UPDATE entries SET indexed_ms = ? WHERE id = ?", (at_ms, entry.id))
        if is_waiting:
            self._wake()
        return at_ms

    # -- reading ----------------------------------------------------------------------------------

    def chunks_of(self, entry: Entry) -> list[Chunk]:
        """The chunks of an entry as they are indexed, in order."""
        return [chunk for chunk, _ in self._chunk_rows(entry.id)]

    def vectors_of(self, entry: Entry) -> int:
        """The number of an entry's chunks that have a vector."""
        return int(self._store.value("SELECT COUNT(embedder) FROM chunks WHERE entry = ?", (entry.id,)))

    def counts(self) -> IndexCounts:
        """The numbers of indexed entries, chunks and vectors."""
        sql = (
            "SELECT (SELECT COUNT(*) FROM chunks), (SELECT COUNT(*) FROM chunks WHERE embedder IS NULL), "
            "(SELECT COUNT(*) FROM pending)"
        )
        total, waiting, pending = (int(number) for number in self._store.rows(sql)[0])
        return IndexCounts(total, total - waiting, pending)

    def frequencies(self, words: Iterable[str]) -> dict[str, int]:
        """In how many chunks each of these words is, in any of its forms."""
        sql = "SELECT COUNT(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT 10000)"
        quoted = {word: word.replace('"', " ") for word in words}
        return {word: int(self._store.value(sql, (f'"{text}"',))) for word, text in quoted.items() if text.strip()}

    def speakers(self) -> list[str]:
        """Everybody whose messages are among the chunks, by name; the first thousand."""
        # From one name to the next by the index: DISTINCT would read it whole.
        rows = self._store.rows(
            "WITH RECURSIVE names(who) AS (SELECT MIN(who) FROM chunks WHERE who <> '' UNION ALL "
            "SELECT (SELECT MIN(who) FROM chunks WHERE who <> '' AND who > names.who) FROM names WHERE names.who IS NOT NULL "
            "LIMIT 1000) SELECT who FROM names WHERE who IS NOT NULL"
        )
        return [str(row[0]) for row in rows]

    def to_propose(self, chunker: str, limit: int) -> list[Entry]:
        """Texts of more than one chunk that are chunked by structure and not by this chunker, newest first."""
        rows = self._store.rows(
            "SELECT DISTINCT entry FROM chunks WHERE chunker IN (?, ?) AND seq = 1 ORDER BY entry DESC LIMIT ?",
            (STRUCTURE, EARLIER, limit),
        )
        return list(self._load_entries(int(row[0]) for row in rows)) if chunker != STRUCTURE else []

    def undescribed(self, chars: int) -> Iterator[Entry]:
        """Texts longer than this that nobody has described, newest first, the first thousand; read one by one."""
        rows = self._store.rows(
            "SELECT DISTINCT c.entry FROM chunks c JOIN entries e ON e.id = c.entry "
            "WHERE e.description = '' AND c.stop > ? ORDER BY c.entry DESC LIMIT 1000",
            (chars,),
        )
        return self._load_entries(int(row[0]) for row in rows)

    def _chunk_rows(self, entry: int) -> list[tuple[Chunk, Row]]:
        rows = self._store.rows(
            "SELECT seq, start, stop, heading, who, id, hash, embedder, chunker FROM chunks WHERE entry = ? ORDER BY seq", (entry,)
        )
        return [(Chunk(*row[:5]), row[5:]) for row in rows]

    def _load_entries(self, keys: Iterable[int]) -> Iterator[Entry]:
        return (entry for key in keys if (entry := self._load_entry(key)) is not None)

    def _load_entry(self, key: int) -> Entry | None:
        """The fields of an entry that an index needs; None when it was deleted meanwhile."""
        names = ("id", "scope", "path", "title", "body", "attributes", "hash", "description", "mime", "is_textual")
        row = self._store.row(f"SELECT {', '.join(names)} FROM entries WHERE id = ?", (key,))
        if row is None:
            return None
        values = dict(zip(names, row)) | {"attributes": json.loads(row[5]), "is_textual": bool(row[9])}
        return Entry(**values)

    # -- vectors ----------------------------------------------------------------------------------

    def embedder(self) -> Embedder | None:
        """The model that made the stored vectors; None when there are none."""
        row = self._store.row("SELECT id, model, dimension FROM embedders")
        return None if row is None else Embedder(*row)

    def state(self) -> VectorState:
        """Which vectors there are, so that an index beside can tell whether it stands for them."""
        row = self._store.rows(
            "SELECT COALESCE((SELECT MAX(id) FROM embedders), 0), COUNT(*), COALESCE(MAX(rowid), 0), COALESCE(SUM(rowid), 0) "
            "FROM chunks_vec_rowids"
        )[0]
        return VectorState(*row)

    def vectors(self) -> tuple[VectorState, list[tuple[int, bytes]]]:
        """Every vector by its chunk, packed, with the numbers of the chunks."""
        known = self.embedder()
        rows = [(int(key), bytes(packed)) for key, packed in self._store.rows("SELECT rowid, embedding FROM chunks_vec")]
        keys = [key for key, _ in rows]
        is_same = known == self.embedder()  # else they are of two models: a state that never is
        return VectorState(known.id if known and is_same else -1, len(rows), max(keys, default=0), sum(keys)), rows

    def check(self, model: str, dimension: int) -> None:
        """Conflict when vectors of another model or length are stored; it tells to make them anew."""
        known = self.embedder()
        if known is not None and (known.model, known.dimension) != (model, dimension):
            mine, others = f"{model} ({dimension} numbers)", f"{known.model} ({known.dimension})"
            raise Conflict(f"the stored vectors are of {others}, the embedding model is {mine}", hint=REEMBED)

    def has_waiting(self) -> bool:
        """Whether a chunk has no vector, or words wait to be indexed."""
        sql = "SELECT 1 WHERE EXISTS (SELECT 1 FROM chunks WHERE embedder IS NULL) OR EXISTS (SELECT 1 FROM pending)"
        return self._store.row(sql) is not None

    def waiting(self, limit: int = 32) -> list[ChunkToEmbed]:
        """Chunks that have no vector yet, newest first; without those that change at this moment."""
        rows = self._store.rows("SELECT id, entry FROM chunks WHERE embedder IS NULL ORDER BY id DESC LIMIT ?", (limit,))
        found: dict[int, ChunkToEmbed] = {}
        for key in dict.fromkeys(int(row[1]) for row in rows):
            entry, known = self._load_entry(key), self._chunk_rows(key)
            if entry is None:
                continue
            all_of_it = [chunk for chunk, _ in known]
            wanted = {int(row[0]) for row in rows if row[1] == key}
            for chunk, (number, digest, _, _) in known:
                # Text and chunks are read one after the other: only the hash tells that they belong together.
                if number in wanted and hash_of(text := embedded(entry, all_of_it, chunk.seq)) == bytes(digest):
                    found[number] = ChunkToEmbed(number, bytes(digest), text)
        return [found[int(row[0])] for row in rows if row[0] in found]

    def store_vectors(self, model: str, found: Sequence[tuple[ChunkToEmbed, Sequence[float]]]) -> int:
        """Store vectors, in one transaction; how many were still wanted. Conflict for another model than before."""
        if not found:
            return 0
        dimension, kept = len(found[0][1]), 0
        with self._store.write() as execute:
            self.check(model, dimension)
            known = self.embedder()
            if known is None:
                self._make_room(execute, dimension)
                execute("INSERT INTO embedders (model, dimension) VALUES (?, ?)", (model, dimension))
                known = self.embedder()
            for chunk, vector in found:
                sql = "UPDATE chunks SET embedder = ? WHERE id = ? AND hash = ? AND embedder IS NULL RETURNING id"
                if execute(sql, (known and known.id, chunk.id, chunk.hash)):
                    execute("INSERT INTO chunks_vec (rowid, embedding) VALUES (?, vec_int8(?))", (chunk.id, packed(vector)))
                    kept += 1
        return kept

    def purge_words(self) -> None:
        """Write the index of words anew, so that no word of a removed passage is left in it: about a second for 100,000."""
        with self._store.overwriting(), self._store.write(durable=True) as execute:
            execute("INSERT INTO chunks_fts(chunks_fts) VALUES ('optimize')")

    def forget_vectors(self) -> int:
        """Forget every vector and whose they are; how many chunks now wait for one."""
        with self._store.write() as execute:
            self._make_room(execute, DIMENSION)
            execute("UPDATE chunks SET embedder = NULL WHERE embedder IS NOT NULL")
            execute("DELETE FROM embedders")
        return self.counts().chunks

    def tidy(self) -> bool:
        """Get back the room of deleted vectors when it is most of the table: sqlite-vec never uses it again. Whether it did."""
        used = int(self._store.value("SELECT COUNT(*) FROM chunks_vec_rowids"))
        slots = int(self._store.value("SELECT COALESCE(SUM(size), 0) FROM chunks_vec_chunks"))
        known = self.embedder()
        if known is None or slots <= 2 * used + SPARE_SLOTS:
            return False
        # The newest part takes what comes; the others are emptied into it, one after the other, and then go.
        sparse = "SELECT chunk_id FROM chunks_vec_rowids GROUP BY chunk_id HAVING COUNT(*) <= ? ORDER BY chunk_id"
        for (part,) in self._store.rows(sparse, (VECTOR_SLOTS // 2,)):
            with self._store.write() as execute:
                kept = execute(
                    "SELECT rowid, embedding FROM chunks_vec "
                    "WHERE rowid IN (SELECT rowid FROM chunks_vec_rowids WHERE chunk_id = ?)",
                    (part,),
                )
                for key, _ in kept:
                    execute("DELETE FROM chunks_vec WHERE rowid = ?", (key,))
                for row in kept:
                    execute("INSERT INTO chunks_vec (rowid, embedding) VALUES (?, vec_int8(?))", row)
        return True

    def _make_room(self, execute: Execute, dimension: int) -> None:
        """An empty vector table for vectors of this length."""
        execute("DROP TABLE IF EXISTS chunks_vec")
        execute(
            f"CREATE VIRTUAL TABLE chunks_vec USING vec0(embedding int8[{int(dimension)}] distance_metric=cosine, "
            f"chunk_size={VECTOR_SLOTS})"
        )

    # -- care -------------------------------------------------------------------------------------

    def size(self) -> int:
        """The number of entries to index."""
        return int(self._store.value("SELECT COUNT(*) FROM entries"))

    def problems(self, sample: int = 0) -> list[str]:
        """Where words, vectors and entries do not agree; empty when all do. Takes a while: every text is indexed beside.

        With a sample the texts of so many entries are looked at, chosen by chance, and a word of each looked up.
        """
        self.catch_up()
        every, words, embedded = "SELECT id FROM chunks", "SELECT id FROM chunks_fts_docsize", "SELECT rowid FROM chunks_vec_rowids"
        with_vector = f"{every} WHERE embedder IS NOT NULL"
        checks = {
            "chunks without words": f"{every} EXCEPT {words}",
            "words of no chunk": f"{words} EXCEPT {every}",
            "chunks without their vector": f"{with_vector} EXCEPT {embedded}",
            "vectors of no chunk": f"{embedded} EXCEPT {with_vector}",
        }
        found = []
        for what, sql in checks.items():
            if count := int(self._store.value(f"SELECT COUNT(*) FROM ({sql})")):
                found.append(f"the search index does not agree with the entries: {count} {what}")
        if wrong := self._wrong_among(sample) if sample else self._wrongly_indexed():
            found.append(f"the search index does not agree with the entries: {len(wrong)} indexed otherwise, as {wrong[0]}")
        return found

    def _wrongly_indexed(self) -> list[str]:
        """Paths of entries that are indexed otherwise than their texts ask for; of very many, some.

        All words are indexed once more beside, and both indexes compared as wholes: to look up each text would take
        time by the square of their number. What differs is looked at again while nobody writes.
        """
        rows = self._store.rows("SELECT id, path, octet_length(body) FROM entries ORDER BY id")
        paths, suspects = {int(row[0]): str(row[1]) for row in rows}, set[int]()
        try:
            for statement in BESIDE:
                self._store.rows(statement)
            for keys in _batch_keys(rows):
                with self._store.write() as execute:
                    suspects |= self._index_expected(execute, keys)
            terms = self._odd_terms()
            some = sorted(suspects | self._odd_entries(terms))[:SUSPECTS]
            with self._store.write() as execute:
                execute("INSERT INTO temp.expected(expected) VALUES ('delete-all')")
                wrong = self._index_expected(execute, some) | (self._odd_entries(terms) & set(some))
                wrong -= {int(row[0]) for row in execute("SELECT entry FROM pending")}
        finally:
            for name in ("expected_words", "indexed_words", "expected"):
                self._store.rows(f"DROP TABLE IF EXISTS temp.{name}")
        return [paths[key] for key in sorted(wrong)]

    def _wrong_among(self, count: int) -> list[str]:
        """Paths of entries, of so many by chance, whose chunks are not what their texts give or are not found by a word."""
        rows = self._store.rows("SELECT id, path FROM entries ORDER BY random() LIMIT ?", (count,))
        suspects = [row for row in rows if not self._is_right(int(row[0]))]
        if not suspects:
            return []
        with self._store.write() as execute:  # once more, while nobody writes
            waiting = {int(row[0]) for row in execute("SELECT entry FROM pending")}
            return [str(path) for key, path in suspects if key not in waiting and not self._is_right(int(key))]

    def _is_right(self, key: int) -> bool:
        entry, rows = self._load_entry(key), self._chunk_rows(key)
        if entry is None:
            return True
        known = [chunk for chunk, _ in rows]
        if known != self._chunk_by_structure(entry) and all(row[3] == STRUCTURE for _, row in rows):
            return False
        for chunk, (number, digest, _, _) in rows:
            if bytes(digest) != hash_of(embedded(entry, known, chunk.seq)):
                return False
            word = max(WORD.findall(entry.body[chunk.start : chunk.stop]), key=len, default="")
            sql = "SELECT 1 FROM chunks_fts WHERE rowid = ? AND chunks_fts MATCH ?"
            if word and self._store.row(sql, (number, f'text : "{word}"')) is None:
                return False
        return True

    def _index_expected(self, execute: Execute, keys: Iterable[int]) -> set[int]:
        """Index the words of entries beside; those whose chunks are not what their texts give."""
        wrong = set()
        for key in keys:
            entry, rows = self._load_entry(key), self._chunk_rows(key)
            if entry is None:
                continue
            known = [chunk for chunk, _ in rows]
            is_right = known == self._chunk_by_structure(entry) or any(row[3] != STRUCTURE for _, row in rows)
            for chunk, (number, digest, _, _) in rows:
                is_right = is_right and bytes(digest) == hash_of(embedded(entry, known, chunk.seq))
                values = (number, *words(entry, known, chunk.seq))
                execute("INSERT INTO temp.expected (rowid, head, text, near) VALUES (?, ?, ?, ?)", values)
            wrong |= set() if is_right else {key}
        return wrong

    def _odd_terms(self) -> list[str]:
        """Words that are not at the same places in both indexes; of very many, some."""
        sql = (
            "SELECT term, COUNT(*), SUM((doc * 1000003 + offset * 4 + instr('tn', substr(col, 1, 1))) % 2147483647) "
            "FROM temp.{} GROUP BY term"
        )
        indexed, expected = (set(self._store.rows(sql.format(name))) for name in ("indexed_words", "expected_words"))
        return sorted({str(row[0]) for row in indexed ^ expected})[:SUSPECTS]

    def _odd_entries(self, terms: Iterable[str]) -> set[int]:
        """Entries in whose chunks one of these words is not at the same places in both indexes."""
        odd = set[int]()
        for term in terms:
            sql = "SELECT doc, col, offset FROM temp.{} WHERE term = ?"
            indexed, expected = (set(self._store.rows(sql.format(n), (term,))) for n in ("indexed_words", "expected_words"))
            odd |= {int(row[0]) for row in indexed ^ expected}
        sql = "SELECT DISTINCT entry FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
        return {int(row[0]) for row in self._store.rows(sql, (json.dumps(sorted(odd)),))}

    def rebuild(self) -> None:
        """Make the index anew from the entries, in one transaction for what is gone and bounded ones for what comes.

        Vectors whose text is the same stay.
        """
        with self._store.write() as execute:
            execute("INSERT INTO chunks_fts(chunks_fts) VALUES ('delete-all')")
            execute("DELETE FROM chunks_vec WHERE rowid IN (SELECT rowid FROM chunks_vec_rowids EXCEPT SELECT id FROM chunks)")
            execute("UPDATE chunks SET embedder = NULL WHERE id NOT IN (SELECT rowid FROM chunks_vec_rowids)")
            execute("DELETE FROM chunks_vec WHERE rowid IN (SELECT id FROM chunks WHERE embedder IS NULL)")
            execute("INSERT INTO pending (entry) SELECT id FROM entries WHERE 1 ON CONFLICT DO NOTHING")
        self.catch_up()


def is_prose(entry: Entry) -> bool:
    """Whether lines of an entry's text may be headings or messages."""
    return entry.mime in (MARKDOWN, TEXT, "")


def embedded(entry: Entry, found: Sequence[Chunk], n: int) -> str:
    """The text that a chunk's vector stands for: title, description, source, then the chunk after the end of the one before.

    A message stands for itself: who said what before it is in the words of the index alone.
    """
    chunk = found[n]
    overlap = "" if chunk.who else chunking.before(entry.body, found, n)
    parts = (entry.title, entry.description, f"Source: {display(entry.path)}", overlap, entry.body[chunk.start : chunk.stop])
    return "\n".join(part for part in parts if part)


def words(entry: Entry, found: Sequence[Chunk], n: int) -> tuple[str, str, str]:
    """What full text knows of a chunk: what it is about, what it says, what is said around it."""
    chunk = found[n]
    head = (entry.title, entry.description, entry.path, chunk.heading)
    near = (chunking.before(entry.body, found, n), chunking.after(entry.body, found, n))
    return " ".join(filter(None, head)), entry.body[chunk.start : chunk.stop], "\n".join(filter(None, near))


def hash_of(text: str) -> bytes:
    """Tells one embedded text from another."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def packed(vector: Sequence[float]) -> bytes:
    """A unit vector in one byte a number; cosine does not mind the scale."""
    scale = max(127.0, SCALE * math.sqrt(len(vector) / DIMENSION))
    return array("b", [max(-127, min(127, round(x * scale))) for x in vector]).tobytes()


def _batch_keys(rows: Iterable[Row]) -> Iterator[list[int]]:
    """Keys of entries (key, path, bytes) as they are indexed in one transaction."""
    batch, size = list[int](), 0
    for key, _, size_bytes in rows:
        batch, size = [*batch, int(key)], size + int(size_bytes)
        if size > BATCH_BYTES or len(batch) == BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
