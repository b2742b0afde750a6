"""Tools that find by words and meaning, and show what the index holds of an item.

What a call within a run may not see is not found by it either. A query's vector is waited for a few seconds at most;
without one, words find what they can and the answer says so. Knows nothing about how results are ranked.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from appliance.agent.toolbox import Caller, tool
from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled, Refused
from appliance.knowledge.drives import Drives
from appliance.knowledge.indexer import Indexer
from appliance.knowledge.search import Kind, Looks, Search, Where
from appliance.runtime.signatures import Range
from appliance.text.references import display

INLINE_S = 45.0  # of the work that a command without a core does itself

Path = Annotated[str, Range(1, 4096), "drive:/path, a path beside drive, or an item's id"]
DriveName = Annotated[str, Range(0, 64), "the drive, when path does not name it"]


@dataclass(frozen=True)
class Passage:
    """A part of a text as the index knows it."""

    number: int
    first_line: int
    last_line: int
    words: int
    preview: str
    heading: str = ""


@dataclass(frozen=True)
class Parts:
    """The parts of an item that search looks at."""

    ref: str
    passages: tuple[Passage, ...]
    note: str

    def text(self) -> str:
        """One line a passage, then how it is indexed."""
        rows = []
        for p in self.passages:
            heading = f" [{p.heading}]" if p.heading else ""
            rows.append(f"{p.number}. lines {p.first_line}-{p.last_line}, {p.words} words:{heading} {p.preview}")
        return "\n".join([*rows, self.note])


@dataclass(frozen=True)
class Result:
    """An item that was found; `line` is where its best passage begins."""

    ref: str
    title: str
    score: float
    snippet: str
    kind: Kind
    line: int


@dataclass(frozen=True)
class Results:
    """What was found, best first; `note` says what was not looked at."""

    query: str
    hits: tuple[Result, ...]
    note: str = ""

    def text(self) -> str:
        """Two lines an item."""
        rows = []
        for hit in self.hits:
            title = f" ({hit.title})" if hit.title else ""
            rows.append(f"{hit.ref}{title}, line {hit.line}, {hit.kind} {hit.score:.3f}\n  {hit.snippet}")
        rows += [] if rows else [f"Nothing found for {self.query!r}."]
        return "\n".join([*rows, *([f"[{self.note}]"] if self.note else [])])


@dataclass(frozen=True)
class Again:
    """How far the vectors are."""

    chunks: int
    vectors: int
    note: str

    def text(self) -> str:
        """One line."""
        return f"{self.vectors} of {self.chunks} passages have a vector; {self.note}"


@tool(group="context", command="context search", is_read_only=True, menu=())
def search_semantic(
    query: Annotated[str, Range(1, 1000), "what it is about, in words or as a question"],
    top_k: Annotated[int, Range(1, 200), "how many to show"] = 10,
    threshold: Annotated[float, Range(0, 1), "the lowest score to show"] = 0.0,
    drive: Annotated[str, Range(0, 64), "only this drive"] = "",
    path: Annotated[str, Range(0, 4096), "only this folder or item"] = "",
    fusion: Annotated[Literal["convex", "rrf"], "how words and meaning are joined: by scores or by ranks"] = "convex",
    *,
    finder: Search,
    drives: Drives,
    indexer: Indexer,
    caller: Caller,
) -> Results:
    """Find items by their words and their meaning, best first."""
    if not query.strip():
        raise BadInput("the query is blank", hint="say what it is about", outcome="invalid_arguments")
    is_model = bool(caller.run)
    folder = drives.find(path, drive, is_model=is_model)[0] if drive or path else ""
    where = Where(folder=folder, hidden=drives.schemes.hidden() if is_model else ())
    vector, note = indexer.vector(finder.question(query))
    found = finder.search(query, vector, where=where, looks=Looks(top_k, fusion, threshold))
    hits = tuple(Result(display(h.ref), h.title, h.score, h.snippet, h.kind, h.line) for h in found.hits)
    return Results(query, hits, "; ".join(filter(None, (found.note, note))))


@tool(group="context", command="context chunks", is_read_only=True, menu=())
def context_chunks(path: Path, drive: DriveName = "", *, drives: Drives, finder: Search, caller: Caller) -> Parts:
    """Show the passages under which search knows an item."""
    finder.catch_up()
    found = drives.text(path, drive, is_model=bool(caller.run))
    chunks, body = finder.passages.of(found), found.body
    rows = []
    for chunk in chunks:
        part = body[chunk.start : chunk.stop]
        first = body.count("\n", 0, chunk.start) + 1
        words = len("".join(c if c.isalnum() else " " for c in part).split())
        preview = " ".join(part[:200].split())
        rows.append(Passage(chunk.seq + 1, first, first + part.count("\n"), words, preview, chunk.heading))
    if not rows:
        return Parts(display(found.path), (), "It is not indexed: search does not find it.")
    done = finder.passages.vectors_of(found)
    return Parts(display(found.path), tuple(rows), f"{len(rows)} in the index, {done} with a vector.")


@tool(group="context", command="context reembed", menu=())
def context_reembed(*, indexer: Indexer, caller: Caller) -> Again:
    """Make all vectors anew, after the embedding model was changed."""
    if caller.run:
        raise Refused("only a person may have all vectors made anew", hint="owlbox context reembed")
    indexer.reembed()
    if indexer.is_running:
        counts = indexer.status()
        return Again(counts.chunks, counts.vectors, "the rest is made in the background: owlbox status shows how far it is")
    end_s = monotonic_s() + INLINE_S
    indexer.work(lambda: caller.cancel.is_set() or monotonic_s() > end_s)
    if caller.cancel.is_set():
        raise Cancelled("stopped; what is left is made when the core runs")
    done = indexer.status()
    is_done = done.vectors == done.chunks
    why = "" if is_done else done.state if done.state != "not running" else "the rest is made when the core runs: owlbox serve"
    return Again(done.chunks, done.vectors, why or f"by {done.model or 'no model'}")
