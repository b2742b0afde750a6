"""Finding, measured: how well on LoCoMo, how quickly and how large at 1,000 to 100,000 chunks, beside plain SQL and numpy.

`make bench-retrieval LOCOMO=path/to/locomo.json`, or the variable LOCOMO. The file: conversations of LoCoMo (Maharana et
al., ACL 2024; github.com/snap-research/locomo) as {name: {turns: [{id, session, date, speaker, text}], questions:
[{question, evidence}]}}. Without it that part is left out. Sizes: `--sizes 1000,10000,100000`.
`--chunks 300,500,800` compares lengths of passages: how much of what answers a question its reader gets to see.
"""

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages, packed
from appliance.knowledge.search import Search, SearchOptions, Vector
from appliance.models import catalogue
from appliance.models.pool import find_encoder
from appliance.providers.encoder import Encoder
from appliance.runtime.paths import Home
from appliance.store.database import Store

K = 10
ROWS = ("fts5", "words", "vectors", "rrf", "owlbox")
LEAST = (0.74, 0.82, 0.63)  # of what is delivered
MOST_BYTES = 1500  # bytes of index a passage, at 10,000 and more


def main() -> None:
    """Every measurement that there is material for."""
    options = argparse.ArgumentParser()
    options.add_argument("--locomo", default=os.environ.get("LOCOMO", ""))
    options.add_argument("--sizes", default="1000,10000,100000")
    options.add_argument("--chunks", default="")
    options.add_argument("--json", default="build/bench-retrieval.json", metavar="FILE")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for chars in filter(None, given.chunks.split(",")):
            seen(Path(given.locomo), Path(folder), int(chars))
        if given.chunks:
            return
        numbers: dict[str, Any] = {}
        if given.locomo:
            numbers["locomo"] = locomo(Path(given.locomo), Path(folder))
        else:
            print("LoCoMo left out: no file given (--locomo, LOCOMO; github.com/snap-research/locomo)")
        for size in filter(None, given.sizes.split(",")):
            numbers[size] = speed(int(size), Path(folder))
    figures.write(given.json, numbers)


# -- quality ----------------------------------------------------------------------------------------


def locomo(path: Path, folder: Path) -> dict[str, list[float]]:
    """Recall of the turns that answer a question, per conversation, then the mean."""
    encoder = made_ready(folder)
    sums: dict[str, list[list[float]]] = {row: [] for row in ROWS}
    for name, conversation in json.loads(path.read_text()).items():
        store = Store.create(folder / f"{name}.db")
        passages = Passages(store)
        entries, search = Entries(store, passages.index), Search(store, passages)
        places = ingest(store, entries, name, conversation["turns"])
        plain = plain_fts(store, [f"{turn['speaker']}: {turn['text']}" for turn in conversation["turns"]], 200)
        ids = [turn["id"] for turn in conversation["turns"]]
        started = time.perf_counter()
        embed_all(passages, encoder)
        took, turns = time.perf_counter() - started, len(conversation["turns"])
        print(f"  {name}: {turns} turns, embedded in {took:.1f} s, {len(conversation['questions'])} questions", file=sys.stderr)
        asked = [question for question in conversation["questions"] if question["evidence"]]
        found = [judged(search, encoder, places, question) for question in asked]
        for one, question in zip(found, asked, strict=True):
            one["fts5"] = scores([ids[row - 1] for (row,) in plain(question["question"])], set(question["evidence"]))
        for row in ROWS:
            sums[row].append([statistics.mean(one[row][n] for one in found) for n in range(3)])
        store.close()
    encoder.close()
    print("LoCoMo            recall@5  recall@10       MRR")
    means = {row: [statistics.mean(one[n] for one in sums[row]) for n in range(3)] for row in ROWS}
    for row in ROWS:
        print(f"{row:18}" + "".join(f"{mean:9.3f}" for mean in means[row]))
    if any(mean < least for mean, least in zip(means["owlbox"], LEAST)):
        sys.exit(f"less than {LEAST} is a mistake in what changed")
    return means


def made_ready(folder: Path) -> Encoder:
    """The embedding model, in a home of its own."""
    home = Home(folder / "home")
    home.root.mkdir(exist_ok=True)
    catalogue.add(home, "minilm", lambda stage, done, total: None)
    return Encoder(find_encoder(home, ""), 384)


def embed_all(passages: Passages, encoder: Encoder) -> None:
    """A vector for every passage."""
    while batch := passages.waiting():
        passages.store_vectors(encoder.model, [(chunk, encoder.embed(chunk.text)) for chunk in batch])


def ingest(store: Store, entries: Entries, name: str, turns: Sequence[dict[str, Any]]) -> dict[int, str]:
    """Each session as an entry, one chunk a turn; the turn of each chunk."""
    places: dict[int, str] = {}
    for session in dict.fromkeys(turn["session"] for turn in turns):
        said = [turn for turn in turns if turn["session"] == session]
        lines = [f"# {said[0]['date']}", *(f"{turn['speaker']}: {' '.join(turn['text'].split())}" for turn in said)]
        made = entries.set(f"memory://{name}/{session}", "\n".join(lines))
        rows = store.rows("SELECT id FROM chunks WHERE entry = ? ORDER BY seq", (made.id,))
        assert len(rows) == len(said), (session, len(rows), len(said))
        places |= {int(row[0]): turn["id"] for row, turn in zip(rows, said)}
    return places


def judged(search: Search, encoder: Encoder, places: dict[int, str], asked: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """Recall at 5 and 10 and the reciprocal rank of one question, by each way of looking."""
    question, gold = asked["question"], set(asked["evidence"])
    vector = Vector(encoder.model, encoder.embed(search.question(question)))
    found = {
        "words": search.ranked(question),
        "vectors": search.ranked("", vector),
        "rrf": search.ranked(question, vector, fusion="rrf"),
        "owlbox": search.ranked(question, vector),
    }
    return {row: scores([places[key] for key, _ in ranked], gold) for row, ranked in found.items()}


def scores(ranked: Sequence[str], gold: set[str]) -> tuple[float, ...]:
    """Recall at 5, at 10, and one over the rank of the first that is right."""
    first = next((rank for rank, turn in enumerate(ranked, 1) if turn in gold), 0)
    return len(gold & set(ranked[:5])) / len(gold), len(gold & set(ranked[:10])) / len(gold), 1 / first if first else 0.0


# -- length of passages -----------------------------------------------------------------------------

# Hits, characters of each, passages of one item at most.
READERS = {
    **{f"a chat's notes, {most} of an item": (3, 400, most) for most in (1, 2, 3)},
    **{f"a task's block, {most} of an item": (5, 1000, most) for most in (1, 2, 3)},
    "the tool": (10, 300, 1),
}
BUDGETS = (1200, 3000, 5000)  # characters of whole passages, best first


def seen(path: Path, folder: Path, chars: int) -> None:
    """Conversations as prose, a session an entry: the share of the turns that answer a question which its reader sees."""
    encoder = made_ready(folder)
    columns = [*READERS, *(f"{budget} characters" for budget in BUDGETS)]
    sums: dict[str, list[float]] = {column: [] for column in columns}
    count = size = 0
    for name, conversation in json.loads(path.read_text()).items():
        store = Store.create(folder / f"{name}-{chars}.db")
        passages = Passages(store, chunk_chars=chars)
        entries, search = Entries(store, passages.index), Search(store, passages)
        turns = written(entries, name, conversation["turns"])
        embed_all(passages, encoder)
        count, size = count + passages.counts().chunks, size + index_bytes(store)
        found: dict[str, list[float]] = {column: [] for column in columns}
        for asked in conversation["questions"]:
            if asked["evidence"]:
                question = asked["question"]
                vector = Vector(encoder.model, encoder.embed(search.question(question)))
                gold = [turns[turn] for turn in asked["evidence"] if turn in turns]
                for reader, (limit, shown_chars, most) in READERS.items():
                    looks = SearchOptions(limit, snippet_chars=shown_chars, per_item=most, has_context=reader != "the tool")
                    hits = search.search(question, vector, looks=looks).hits
                    places = [(hit.ref, place(entries.get(hit.ref).body, hit.snippet)) for hit in hits]
                    found[reader].append(share(gold, places))
                for budget in BUDGETS:
                    found[f"{budget} characters"].append(share(gold, whole(store, search.ranked(question, vector), budget)))
        for column, values in found.items():
            sums[column].append(statistics.mean(values))
        store.close()
    encoder.close()
    print(f"passages of {chars}: {count}, {size / count:.0f} bytes each in the index")
    for column, one in sums.items():
        print(f"  {column:28} {statistics.mean(one):.3f}")


def written(entries: Entries, name: str, turns: Sequence[dict[str, Any]]) -> dict[str, tuple[str, tuple[int, int]]]:
    """Each session as an entry of paragraphs; where each turn is: the entry and its place in the text on one line."""
    places = {}
    for session in dict.fromkeys(turn["session"] for turn in turns):
        said = [turn for turn in turns if turn["session"] == session]
        ref, flat, paragraphs = f"memory://{name}/{session}", f"# {said[0]['date']}", [f"# {said[0]['date']}"]
        for turn in said:
            text = " ".join(f"{turn['text']} ({turn['speaker']})".split())
            places[turn["id"]] = (ref, (len(flat) + 1, len(flat) + 1 + len(text)))
            flat += f" {text}"
            paragraphs.append(text)
        entries.set(ref, "\n\n".join(paragraphs))
    return places


def place(body: str, snippet: str) -> tuple[int, int]:
    """Where a snippet is in a text on one line."""
    text = snippet.removeprefix("… ").removesuffix(" …")
    start = " ".join(body.split()).index(text)
    return start, start + len(text)


def whole(store: Store, ranked: Sequence[tuple[int, float]], budget: int) -> list[tuple[str, tuple[int, int]]]:
    """The places of the best passages that fit a budget of characters together."""
    places = []
    for key, _ in ranked:
        ref, body, start, stop = store.rows(
            "SELECT e.path, e.body, c.start, c.stop FROM chunks c JOIN entries e ON e.id = c.entry WHERE c.id = ?", (key,)
        )[0]
        text = " ".join(body[start:stop].split())
        begin = " ".join(body.split()).index(text)
        places.append((ref, (begin, begin + min(len(text), budget))))
        budget -= len(text)
        if budget <= 0:
            break
    return places


def share(gold: Sequence[tuple[str, tuple[int, int]]], places: Sequence[tuple[str, tuple[int, int]]]) -> float:
    """The share of these places of which at least half is within one of those."""
    held = 0
    for ref, (start, end) in gold:
        held += any(2 * (min(end, stop) - max(start, begin)) >= end - start for other, (begin, stop) in places if other == ref)
    return held / len(gold) if gold else 0.0


# -- speed and size ---------------------------------------------------------------------------------


def speed(size: int, folder: Path) -> dict[str, Any]:
    """Latency (median and 95th percentile), ingest rate and bytes at so many chunks, with vectors that mean nothing."""
    dice, numbers = random.Random(7), np.random.default_rng(7)
    words = [
        f"{a}{b}{c}"
        for a in ("ba", "ko", "mi", "ru", "te", "lo", "sa")
        for b in ("ran", "tel", "mos", "kin", "dar")
        for c in ("", "a", "en", "is", "or", "um", "ta", "li", "so", "pe")
    ]
    weights = [1 / (rank + 3) for rank in range(len(words) * 40)]
    vocabulary = [f"{word}{n}" if n else word for n in range(40) for word in words]
    store = Store.create(folder / f"{size}.db")
    passages = Passages(store)
    entries, search = Entries(store, passages.index), Search(store, passages)
    vectors = numbers.standard_normal((size, 384), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [" ".join(dice.choices(vocabulary, weights, k=60)) for _ in range(size)]
    started = time.perf_counter()
    for start in range(0, size, 100):
        with store.write(durable=True):
            for n in range(start, min(start + 100, size)):
                entries.set(f"memory://bench/{n}", texts[n])
    words_s = time.perf_counter() - started
    bodies = sum(len(text.encode()) for text in texts)
    before = file_bytes(store)
    done, started = 0, time.perf_counter()
    while batch := passages.waiting(256):
        passages.store_vectors("bench", [(chunk, [float(x) for x in vectors[done + n]]) for n, chunk in enumerate(batch)])
        done += len(batch)
    vectors_s = time.perf_counter() - started
    index = index_bytes(store)
    print(f"{size} chunks of {bodies // size} bytes: words {size / words_s:.0f} chunks/s, vectors {size / vectors_s:.0f} chunks/s")
    print(f"  file {file_bytes(store) / 1e6:.1f} MB (without vectors {before / 1e6:.1f}), index {index / size:.0f} bytes a chunk")
    if size >= 10_000 and index / size > MOST_BYTES:
        sys.exit(f"more than {MOST_BYTES} bytes a passage is a mistake in what changed")
    queries = [" ".join(dice.sample(vocabulary[:2000], 4)) for _ in range(60)]
    asked = [Vector("bench", [float(x) for x in vectors[dice.randrange(size)]]) for _ in queries]
    plain = plain_fts(store, texts)
    pairs = list(zip(queries, asked))
    found: dict[str, Any] = {"words_per_s": size / words_s, "vectors_per_s": size / vectors_s, "index_bytes": index / size}
    for name, call in {
        "owlbox find (words)": lambda q, v: search.find(q, limit=K),
        "owlbox search (both)": lambda q, v: search.search(q, v, looks=SearchOptions(limit=K)),
        "plain FTS5": lambda q, v: plain(q),
        "plain vec0 int8": lambda q, v: nearest(store, v),
        "numpy float32": lambda q, v: np.argpartition(vectors @ np.asarray(v.values, dtype=np.float32), -K)[-K:],
    }.items():
        found[name] = {"p50_ms": percentile(call, pairs, 50), "p95_ms": percentile(call, pairs, 95)}
        print(f"  {name:22} p50 {found[name]['p50_ms']:8.2f} ms   p95 {found[name]['p95_ms']:8.2f} ms")
    store.close()
    return found


def plain_fts(store: Store, texts: Sequence[str], limit: int = K) -> Callable[[str], list[Any]]:
    """The same texts in an FTS5 table without anything else, in memory: the rows, from 1, that any word of a query finds."""
    with store.write() as execute:
        execute("CREATE VIRTUAL TABLE temp.plain USING fts5(text, tokenize='porter unicode61')")
        for text in texts:
            execute("INSERT INTO temp.plain(text) VALUES (?)", (text,))
    sql = f"SELECT rowid FROM temp.plain WHERE plain MATCH ? ORDER BY rank LIMIT {limit}"
    return lambda query: store.rows(sql, (" OR ".join(f'"{word}"' for word in re.findall(r"\w+", query)),))


def nearest(store: Store, vector: Vector) -> object:
    """The nearest ten, and nothing else."""
    return store.rows(
        "SELECT rowid, distance FROM chunks_vec WHERE embedding MATCH vec_int8(?) AND k = 10", (packed(vector.values),)
    )


def percentile(call: Callable[[str, Vector], object], pairs: Sequence[tuple[str, Vector]], percent: int) -> float:
    """Milliseconds of one call that so many percent stay below."""
    times = []
    for query, vector in pairs:
        started = time.perf_counter()
        call(query, vector)
        times.append((time.perf_counter() - started) * 1000)
    return float(np.percentile(times, percent))


def file_bytes(store: Store) -> int:
    """The size of the database with its log folded in."""
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    return store.path.stat().st_size


def index_bytes(store: Store) -> int:
    """The pages of chunks, words and vectors."""
    return int(store.value("SELECT SUM(pgsize) FROM dbstat WHERE name GLOB 'chunks*' OR name GLOB 'sqlite_autoindex_chunks*'"))


if __name__ == "__main__":
    main()
