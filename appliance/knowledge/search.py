"""Finding entries by their words and their meaning, best first, with a snippet: one shape for every way of looking.

Words are full text over passages, with stop words dropped; meaning is the nearness of vectors, when there is one of the
query: handed in, or from `embed`, which is given and must not let anybody wait. Both lists are joined by their scaled scores,
or by their ranks (`fusion="rrf"`). What was committed is found: what waits for its words is indexed first. Every query is
limited to the scopes given. Vectors that do not fit the query's, or none, leave the words, and `Found.note` says so. Nothing
here knows a model or writes anything but the index.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Busy, Conflict, DiskFault, StoreError
from appliance.knowledge.entries import PROJECT
from appliance.knowledge.index import REEMBED, Passages, packed
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.vss_index import Vss
from appliance.language.answer_kinds import kind_of
from appliance.language.languages import all_words
from appliance.store import visibility
from appliance.store.database import Row, Store
from appliance.text.invisible import normalized

SNIPPET_CHARS = 300
DEPTH = 100  # of each list that counts (B-106)
POOL = 200  # of each list that is looked at
WEIGHTS = "2.0, 1.0, 0.5"  # of a word in the head, the text and what is near
BY_WORDS, BY_MEANING = 0.6, 0.4  # measured: tests/bench/bench_retrieval.py
NAMED_WORDS, NAMED_MEANING = 1.6, 0.2  # what a message of the one person a query names is worth more
# What speaks for a message beside its own words, measured likewise: the message before it, more when that is a question and this
# one a sentence, the best of its conversation, its length, and that it holds a time, a place or what else is asked for; a question
# seldom says what is looked for.
BEFORE, REPLYING, REPLY_CHARS = 0.1, 0.2, 60
TOGETHER, TOGETHER_BEST, LENGTH, LENGTH_CHARS, ASKING, SAYING = 0.5, 3, 0.5, 200, 0.8, 1.2
JUDGED = 15  # messages of each list whose text is judged, which takes some 20 microseconds each
LEAST_COSINE = 0.25  # below it a vector alone finds nothing: the nearest of what has nothing to do with the query is none
RANK_CONSTANT = 60  # usual for ranks that are joined; measured beside scores: docs/background/finding.md
MAX_POOL = 100_000  # hits by words, beyond which one long text may keep others out (B-107)
PATIENCE_S = 20.0  # for words that are not indexed yet: hundreds of thousands, after an update
AFTER_SLASH = "0"  # sorts after whatever lies in a folder
ENDINGS = ("ingly", "edly", "ings", "ing", "ies", "ied", "ers", "est", "es", "ed", "er", "ly", "e", "s", "y")

Kind = Literal["words", "meaning", "both"]
Fusion = Literal["convex", "rrf"]
Scores = dict[int, float]


class Hit(Struct, frozen=True):
    """Something that was found; a higher score is better, comparable within one search only.

    `ref` is a stored path; `line` is where the passage begins in its text, from 1.
    """

    ref: str
    title: str
    score: float
    snippet: str
    kind: Kind = "words"
    line: int = 1
    at_ms: int = 0


class Found(Struct, frozen=True):
    """The hits of a search, best first, with notes for the person."""

    hits: tuple[Hit, ...]
    note: str = ""


class SearchScope(Struct, frozen=True):
    """What a search looks through. `folder` is a stored path, "" for everything; times are of the last change.

    Without `has_documents`, entries that have a place of their own in the prompt are left out. `hidden` names schemes.
    """

    scopes: Sequence[str] = (PROJECT,)
    schemes: Sequence[str] = ()
    hidden: Sequence[str] = ()
    folder: str = ""
    since_ms: int = 0
    until_ms: int = 0
    has_documents: bool = True

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves out most entries rather than few."""
        return bool(self.schemes or self.folder or self.since_ms or self.until_ms)


class SearchOptions(Struct, frozen=True):
    """The options that decide how results are joined and shown.

    `marks` go around the words that were found, `least` is the lowest score shown, `per_item` how many passages of one
    item may be found, each as a hit of its own. `has_context` fills what a passage leaves of `snippet_chars` with the text
    around it; a passage that is shown so already is no hit of its own.
    """

    limit: int = 10
    fusion: Fusion = "convex"
    least: float = 0.0
    marks: tuple[str, str] = ("", "")
    snippet_chars: int = SNIPPET_CHARS
    per_item: int = 1
    has_context: bool = False


class Vector(Struct, frozen=True):
    """A query's vector and the model that made it."""

    model: str
    values: Sequence[float]


class _Lists(Struct):
    """Scores of chunks by words and by meaning, and what is known of each chunk."""

    words: Scores = field(default_factory=dict)
    meaning: Scores = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)  # (entry, who, updated_ms, seq, chars)
    worth: Scores = field(default_factory=dict)  # of messages: what their text makes of their score
    replies: set[int] = field(default_factory=set)  # messages that follow a question


def words_of(query: str, limit: int = 32) -> list[str]:
    """The words of a query that carry meaning, in order, each once, at most `limit`."""
    text = normalized("NFC", query)
    words = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in text).split()
    stop = all_words("stop")
    return list(dict.fromkeys(w.lower() for w in words if w.lower() not in stop and (len(w) > 1 or w.isdigit())))[:limit]


class Search:
    """Search over passages. `names` are those of known people, `embed` gives a query's vector or, soon, None."""

    def __init__(
        self,
        store: Store,
        passages: Passages | None = None,
        names: Callable[[], Iterable[str]] = lambda: (),
        patience_s: float = PATIENCE_S,
        embed: "Callable[[str], Vector | None]" = lambda question: None,
        schemes: Schemes | None = None,
        beside: Vss | None = None,
    ) -> None:
        """`patience_s` is for words that are not indexed yet; `beside` is asked first for what is near, and may not know."""
        self._store = store
        self._patience_s = patience_s
        self._embed = embed
        self._schemes = schemes or Schemes()
        self._beside = beside
        self.passages = passages or Passages(store)
        self._names = names

    def find_passages(
        self, query: str, *, limit: int, without: Sequence[str], has_meaning: bool = True, chars: int = 0
    ) -> list[Hit]:
        """The best passages of entries, at most two of one, each with the text around it up to so many characters."""
        looks = SearchOptions(snippet_chars=chars, per_item=2, has_context=True) if chars else SearchOptions()
        return self.find(query, limit=limit, has_documents=False, without=without, has_meaning=has_meaning, looks=looks)

    def count_passages(self) -> int:
        return self.passages.counts().chunks

    def frequencies(self, words: Iterable[str]) -> dict[str, int]:
        """In how many passages each of these words is, in any of its forms."""
        return self.passages.frequencies(words)

    def find(
        self,
        query: str,
        *,
        limit: int = 5,
        scopes: Sequence[str] = (PROJECT,),
        has_documents: bool = True,
        is_model: bool = True,
        without: Sequence[str] = (),
        has_meaning: bool = True,
        looks: SearchOptions = SearchOptions(),
    ) -> list[Hit]:
        """The best entries by words, and by meaning when the query's vector comes in time; none for stop words only.

        Takes milliseconds, and never longer than `embed` does. What models may not see is found for a person alone;
        schemes of `without` for nobody. Without `has_meaning` words alone are looked for, which asks for no vector.
        Entries marked blank are never found: their words are hints for the person who fills them in.
        """
        if not words_of(query):
            return []
        hidden = (*(self._schemes.hidden() if is_model else ()), *without)
        where = SearchScope(scopes=scopes, hidden=hidden, has_documents=has_documents)
        vector = self._embed(self.question(query)) if has_meaning and self.has_vectors() else None
        return list(self.search(query, vector, where=where, looks=replace(looks, limit=limit)).hits)

    def search(
        self,
        query: str,
        vector: Vector | None = None,
        *,
        where: SearchScope = SearchScope(),
        looks: SearchOptions = SearchOptions(),
    ) -> Found:
        """The best entries by words and, with the query's vector, by meaning; each with its best passage, or passages."""
        late = self.catch_up()
        words, names = words_of(query), self.names()
        note, nearest = self._by_meaning(vector, where, is_filtered=where.is_narrow)
        size = POOL
        while True:
            found = self._by_words(words, where, size) if words else {}
            lists = self._load_lists(query, found, nearest, where, names)
            if not where.is_narrow and len(nearest) == POOL and len(lists.meaning) < DEPTH:
                # Others' entries are nearer: look again among those that count, which takes longer.
                note, nearest = self._by_meaning(vector, where, is_filtered=True)
                lists = self._load_lists(query, found, nearest, where, names)
            best = _by_entry(lists, _fuse_lists(lists, looks.fusion), looks.per_item)
            if len(best) >= looks.limit or len(found) < size or size >= MAX_POOL:
                break
            size *= 8  # one long text must not keep others out: more words never find fewer entries (B-107)
        chosen = [(key, score) for key, score in best if round(score, 3) >= looks.least]
        hits = tuple(islice(self._build_hits(chosen, lists, words, looks), looks.limit))
        return Found(hits, "; ".join(filter(None, (late, note))))

    def ranked(self, query: str, vector: Vector | None = None, *, fusion: Fusion = "convex") -> list[tuple[int, float]]:
        """Chunks by their score, best first, several of one entry too: for measuring."""
        words = words_of(query)
        found = self._by_words(words, SearchScope(), POOL) if words else {}
        return _fuse_lists(
            self._load_lists(query, found, self._by_meaning(vector, SearchScope())[1], SearchScope(), self.names()), fusion
        )

    def names(self) -> list[str]:
        """Names of people: those that the assistant knows, and those who speak in what it keeps."""
        return list(dict.fromkeys([*self._names(), *self.passages.speakers()]))

    def question(self, query: str) -> str:
        """A query as it is to be embedded: without names, which would lead to whatever names the same people."""
        text = query
        for name in (name for name in self.names() if name in query):
            text = re.sub(rf"\b{re.escape(name)}\b('s)?", "", text)
        return " ".join(text.split()) or query

    def has_vectors(self) -> bool:
        """Whether a query's vector would be of any use."""
        return self.passages.embedder() is not None

    # -- inside -----------------------------------------------------------------------------------

    def catch_up(self) -> str:
        """Index what waits for its words, so that all that was committed is found; else why not, at once."""
        try:
            end_s = monotonic_s() + self._patience_s
            self.passages.catch_up(lambda: monotonic_s() > end_s, is_hurried=True)
            late = self.passages.counts().pending if monotonic_s() > end_s else 0
            return f"{late} items are not looked at: their words are not indexed yet" if late else ""
        except (Busy, DiskFault, StoreError) as error:
            return f"what was written last is not looked at: {error.message}"  # what is indexed can be found all the same

    def _by_words(self, words: Sequence[str], where: SearchScope, size: int) -> Scores:
        """Chunks that hold any of the words, by BM25; those outside of `where` are already left out when it is narrow."""
        match = " OR ".join(f'"{word}"' for word in words)
        if not where.is_narrow:
            rows = self._store.rows(
                f"SELECT rowid, -bm25(chunks_fts, {WEIGHTS}) AS score FROM chunks_fts WHERE chunks_fts MATCH ? "
                "ORDER BY score DESC, rowid DESC LIMIT ?",
                (match, size),
            )
            return {int(key): float(score) for key, score in rows}
        condition, bindings = _sql_condition(where)
        rows = self._store.rows(
            f"SELECT f.rowid, -bm25(chunks_fts, {WEIGHTS}) AS score "
            "FROM chunks_fts f CROSS JOIN chunks c ON c.id = f.rowid CROSS JOIN entries e ON e.id = c.entry "
            f"WHERE chunks_fts MATCH :match AND {condition} ORDER BY score DESC, f.rowid DESC LIMIT :size",
            bindings | {"match": match, "size": size},
        )
        return {int(key): float(score) for key, score in rows}

    def _by_meaning(self, vector: Vector | None, where: SearchScope, *, is_filtered: bool = False) -> tuple[str, Scores]:
        """The chunks nearest to a vector, by cosine, and why there are none when something is wrong."""
        if vector is None or self.passages.embedder() is None:
            return "", {}
        try:
            self.passages.check(vector.model, len(vector.values))
        except Conflict as error:
            return f"found by words alone: {error.message}; {REEMBED}", {}
        values = packed(vector.values)
        if self._beside is not None and not is_filtered:
            nearest = self._beside.nearest(self.passages.state(), values, POOL)
            if nearest is not None:
                return "", nearest
        sql = "SELECT rowid, distance FROM chunks_vec WHERE embedding MATCH vec_int8(:vector) AND k = :size"
        bindings: dict[str, object] = {"vector": values, "size": POOL}
        if is_filtered:
            condition, more = _sql_condition(where)
            sql += f" AND rowid IN (SELECT c.id FROM entries e JOIN chunks c ON c.entry = e.id WHERE {condition})"
            bindings |= more
        rows = self._store.rows(sql, bindings)
        return "", {int(key): 1.0 - distance for key, distance in rows if distance is not None}

    def _load_lists(self, query: str, words: Scores, meaning: Scores, where: SearchScope, names: Sequence[str]) -> _Lists:
        """Both lists with what is known of each chunk, without chunks outside of `where`."""
        lists = _Lists(words, meaning)
        condition, bindings = _sql_condition(where)
        rows = self._store.rows(
            "SELECT c.id, c.entry, c.who, e.updated_ms, c.seq, c.stop - c.start "
            "FROM json_each(:keys) k CROSS JOIN chunks c ON c.id = k.value "
            f"CROSS JOIN entries e ON e.id = c.entry WHERE {condition}",
            bindings | {"keys": json.dumps(list(lists.words.keys() | lists.meaning.keys()))},
        )
        lists.rows = {int(key): tuple(rest) for key, *rest in rows}
        lists.words = {key: score for key, score in lists.words.items() if key in lists.rows}
        lists.meaning = {key: score for key, score in lists.meaning.items() if key in lists.rows}
        self._prefer_sender(lists, query, names)
        self._judge_messages(lists, query)
        return lists

    def _judge_messages(self, lists: _Lists, query: str) -> None:
        """Set what the text of each message among the best of both lists makes of its score, and which follow a question."""
        best = {key for scores in (lists.words, lists.meaning) for key in nlargest(JUDGED, scores, key=scores.__getitem__)}
        keys, kind = [key for key in best if lists.rows[key][1]], kind_of(query)
        if not keys:
            return
        rows = self._store.rows(
            "SELECT c.id, substr(e.body, c.start + 1, c.stop - c.start), substr(e.body, b.stop, 1) "
            "FROM json_each(?) k CROSS JOIN chunks c ON c.id = k.value CROSS JOIN entries e ON e.id = c.entry "
            "LEFT JOIN chunks b ON b.entry = c.entry AND b.seq = c.seq - 1",
            (json.dumps(keys),),
        )
        lists.worth = {
            int(key): (ASKING if text.endswith("?") else 1.0)
            * (SAYING if kind is not None and kind.holds(text.partition(": ")[2]) else 1.0)
            for key, text, _ in rows
        }
        lists.replies = {int(key) for key, _, end in rows if end == "?"}

    def _prefer_sender(self, lists: _Lists, query: str, names: Sequence[str]) -> None:
        """Raise the messages of the person that the query names, when it names one."""
        named = [name for name in names if name in query and re.search(rf"\b{re.escape(name)}\b", query)]
        if len({name.split()[0] for name in named}) != 1:
            return
        theirs = {key for key, row in lists.rows.items() if row[1] in named}
        lists.words = {key: score * (NAMED_WORDS if key in theirs else 1) for key, score in lists.words.items()}
        lists.meaning = {key: score + (NAMED_MEANING if key in theirs else 0) for key, score in lists.meaning.items()}

    def _build_hits(
        self, chosen: Sequence[tuple[int, float]], lists: _Lists, words: Sequence[str], looks: SearchOptions
    ) -> Iterator[Hit]:
        """The hits for the best chunks, in order."""
        kinds, seen = _hit_kinds(lists), dict[int, list[tuple[int, int]]]()
        for key, score in chosen:
            row = self._store.row(
                "SELECT e.id, e.path, e.title, e.updated_ms, c.start, c.stop, "
                "length(substr(e.body, 1, c.start)) - length(replace(substr(e.body, 1, c.start), char(10), '')) + 1 "
                "FROM chunks c JOIN entries e ON e.id = c.entry WHERE c.id = ?",
                (key,),
            )
            if row is None:
                continue  # it has gone since
            entry, path, title, at_ms, start, stop, line = row
            if any(first <= start and stop <= last for first, last in seen.get(entry, ())):
                continue
            spare = max(0, looks.snippet_chars - (stop - start)) // 2 if looks.has_context else 0
            place = max(0, start - spare), stop + spare
            seen.setdefault(entry, []).append(place)
            text, line = self._read_snippet(entry, place, (start, stop), line)
            # Two digits: how rare a word is depends on what others keep, too, and a third one would tell them.
            yield Hit(path, title, float(f"{score:.2g}"), snippet(text, words, looks), kinds[entry], line, at_ms)

    def _read_snippet(self, entry: int, place: tuple[int, int], chunk: tuple[int, int], line: int) -> tuple[str, int]:
        """What an entry says at a place around a chunk, in whole words, and the chunk's line."""
        sql = "SELECT substr(body, ? + 1, ?), length(body) FROM entries WHERE id = ?"
        text, length = self._store.row(sql, (place[0], place[1] - place[0], entry)) or ("", 0)
        if len(text) < min(place[1], length) - place[0] or length < chunk[1]:  # SQLite's functions end at a NUL character
            body = str(self._store.value("SELECT body FROM entries WHERE id = ?", (entry,)) or "")
            text, length, line = body[place[0] : place[1]], len(body), body.count("\n", 0, chunk[0]) + 1
        first, last = chunk[0] - place[0], chunk[1] - place[0]
        before = text[:first].partition(" ")[2] if place[0] > 0 else text[:first]
        behind = text[last:].rpartition(" ")[0] if place[1] < length else text[last:]
        text = before + text[first:last] + behind
        return text, line


def snippet(text: str, words: Sequence[str], looks: SearchOptions = SearchOptions()) -> str:
    """The part of a text in which most of the words are, on one line, with marks around them."""
    flat = " ".join(text.split())
    stems = {_stem_word(word) for word in words}
    starts = {stem[:2] for stem in stems}  # most words are not even looked at: this runs for every hit
    places = [
        found.span()
        for found in re.finditer(r"\w+", flat)
        if (found[0][:2].lower() in starts or not found[0].isascii()) and _stem_word(found[0].lower()) in stems
    ]
    start = 0
    if len(flat) > looks.snippet_chars:
        start = _place_window(flat, places, looks.snippet_chars)
    end = min(len(flat), start + looks.snippet_chars)
    if end < len(flat) and (space := flat.rfind(" ", start + looks.snippet_chars // 2, end)) > 0:
        end = space
    shown, last = "", start
    if any(looks.marks):
        for first, after in places:
            if start <= first and after <= end:
                shown += flat[last:first] + looks.marks[0] + flat[first:after] + looks.marks[1]
                last = after
    shown += flat[last:end]
    return f"{'… ' if start else ''}{shown}{' …' if end < len(flat) else ''}"


def _place_window(flat: str, places: Sequence[tuple[int, int]], size: int) -> int:
    """Where to begin so that most different places fit, with a few words before the first."""
    best, start, last = 0, 0, 0
    for n, (first, _) in enumerate(places):
        while last < len(places) and places[last][1] <= first + size * 4 // 5:
            last += 1
        distinct = len({_stem_word(flat[a:b].lower()) for a, b in places[n:last]})
        if distinct > best:
            best, start = distinct, first
    start = max(0, min(start - size // 8, len(flat) - size))
    if start:
        start = flat.rfind(" ", 0, start + 1) + 1
    return start


def _stem_word(word: str) -> str:
    """About what full text takes a word for; only what is marked and shown depends on it."""
    word = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
    for ending in ENDINGS:
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def _sql_condition(where: SearchScope) -> tuple[str, dict[str, object]]:
    """The SQL for an entry `e` to be looked at."""
    parts = [f"e.scope IN (SELECT value FROM json_each(:scopes)){visibility.only('e')}"]
    bindings: dict[str, object] = {"scopes": json.dumps(list(where.scopes))}
    if where.folder:
        start = where.folder if where.folder.endswith("/") else f"{where.folder}/"
        bindings |= {"path": where.folder, "start": start, "end": start[:-1] + AFTER_SLASH}
        parts.append("(e.path = :path OR (e.path >= :start AND e.path < :end))")
    for name in ("schemes", "hidden"):
        if chosen := getattr(where, name):
            bindings[name] = json.dumps(list(chosen))
            scheme = "CASE instr(e.path, '://') WHEN 0 THEN 'file' ELSE substr(e.path, 1, instr(e.path, '://') - 1) END"
            parts.append(f"{scheme} {'NOT ' * (name == 'hidden')}IN (SELECT value FROM json_each(:{name}))")
    if where.since_ms:
        bindings["since"] = where.since_ms
        parts.append("e.updated_ms >= :since")
    if where.until_ms:
        bindings["until"] = where.until_ms
        parts.append("e.updated_ms < :until")
    if not where.has_documents:
        parts.append("e.id NOT IN (SELECT id FROM entries WHERE attributes ->> 'is_document' IS 1)")
    return " AND ".join(parts), bindings


def _scale_scores(scores: Scores, floor: float) -> Scores:
    """The best so many scores as 0 to 1; what a list that is not full leaves out counts as the floor."""
    top = sorted(scores.items(), key=lambda item: -item[1])[:DEPTH]
    if not top:
        return {}
    low = top[-1][1] if len(top) == DEPTH else min(floor, top[-1][1])
    span = top[0][1] - low
    return {key: (score - low) / span if span > 0 else 1.0 for key, score in top}


def _rank_scores(scores: Scores) -> Scores:
    top = sorted(scores.items(), key=lambda item: -item[1])[:DEPTH]
    return {key: 1 / (RANK_CONSTANT + rank) for rank, (key, _) in enumerate(top, 1)}


def _fuse_lists(lists: _Lists, fusion: Fusion) -> list[tuple[int, float]]:
    """Chunks by their joined score, best first; of equal ones the newest."""
    if fusion == "rrf":
        words, meaning = _rank_scores(lists.words), _rank_scores(lists.meaning)
        shares = (1.0, 1.0)
    elif fusion == "convex":
        words, meaning = _scale_scores(lists.words, 0.0), _scale_scores(lists.meaning, 0.0)
        shares = (BY_WORDS, BY_MEANING) if lists.meaning else (1.0, 0.0)
    else:
        raise BadInput(f"there is no fusion {fusion!r}", hint="use convex or rrf")
    rest = dict.fromkeys(lists.words, 0.0)  # more than DEPTH: found, and last
    keys = {k for k in words.keys() | meaning.keys() if k in lists.words or lists.meaning[k] >= LEAST_COSINE}
    joined = {**rest, **{k: shares[0] * words.get(k, 0) + shares[1] * meaning.get(k, 0) for k in keys}}
    if fusion == "convex":
        joined |= _weigh_messages(lists, joined)
    return sorted(joined.items(), key=lambda item: (-item[1], -lists.words.get(item[0], 0), -lists.rows[item[0]][2], -item[0]))


def _weigh_messages(lists: _Lists, joined: Scores) -> Scores:
    """The messages of conversations with what speaks for each beside its own words; the best score stays what it was.

    So they change places among themselves, and hardly with other passages.
    """
    own = {key: score for key, score in joined.items() if lists.rows[key][1] and score > 0}
    if not own:
        return {}
    places = {(lists.rows[key][0], lists.rows[key][3]): score for key, score in own.items()}
    worth, talks = dict[int, float](), dict[int, list[float]]()
    for key, score in own.items():
        entry, _, _, seq, chars = lists.rows[key]
        share = BEFORE + (REPLYING * min(1.0, chars / REPLY_CHARS) if key in lists.replies else 0.0)
        worth[key] = (score + share * places.get((entry, seq - 1), 0.0)) * lists.worth.get(key, 1.0)
        talks.setdefault(entry, []).append(worth[key])
    best = {entry: sum(sorted(scores)[-TOGETHER_BEST:]) / TOGETHER_BEST for entry, scores in talks.items()}
    for key in worth:
        entry, chars = lists.rows[key][0], lists.rows[key][4]
        worth[key] = (worth[key] + TOGETHER * best[entry]) * (1 + LENGTH * min(1.0, chars / LENGTH_CHARS))
    scale = max(own.values()) / max(worth.values())
    return {key: score * scale for key, score in worth.items()}


def _by_entry(lists: _Lists, ranked: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """The best chunks of each entry, so many of one at most."""
    counts: dict[int, int] = {}
    best = []
    for key, score in ranked:
        entry = lists.rows[key][0]
        counts[entry] = counts.get(entry, 0) + 1
        if counts[entry] <= most:
            best.append((key, score))
    return best


def _hit_kinds(lists: _Lists) -> Mapping[int, Kind]:
    """The kind of match of each entry: by words, by meaning, or by both."""
    by_words = {lists.rows[key][0] for key in lists.words}
    by_meaning = {lists.rows[key][0] for key, cosine in lists.meaning.items() if cosine >= LEAST_COSINE}
    kinds: dict[int, Kind] = dict.fromkeys(by_words, "words")
    kinds |= {entry: "both" if entry in by_words else "meaning" for entry in by_meaning}
    return kinds
