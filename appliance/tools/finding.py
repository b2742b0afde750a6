"""Tools that find by words and meaning, and make the index anew.

What a call within a run may not see is not found by it either. A query's vector is waited for a few seconds at most;
without one, words find what they can and the answer says so. Knows nothing about how results are ranked.
"""

from typing import Annotated, Literal, TypedDict

from msgspec.structs import replace

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, tool
from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled, Refused
from appliance.ingest.notes import Folder
from appliance.knowledge.drives import Drives
from appliance.knowledge.indexer import Indexer, IndexStatus
from appliance.knowledge.search import Hit, Search, SearchOptions, SearchScope
from appliance.runtime.signatures import Range
from appliance.text.references import display

INLINE_S = 45.0  # of the work that a command without a core does itself


class Results(TypedDict):
    """The hits, best first; `note` names what was not searched."""

    query: str
    hits: list[Hit]
    note: str


class VectorCounts(TypedDict):
    chunks: int
    vectors: int
    note: str


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
    folder: Folder,
    caller: Caller,
) -> Reply[Results]:
    """Find items by their words and their meaning, best first."""
    if not query.strip():
        raise BadInput("the query is blank", hint="say what it is about", outcome="invalid_arguments")
    is_model = bool(caller.run)
    inside = drives.find(path, drive, is_model=is_model)[0] if drive or path else ""
    where = SearchScope(folder=inside, hidden=drives.schemes.hidden() if is_model else ())
    vector, note = indexer.vector(finder.question(query))
    found = finder.search(query, vector, where=where, looks=SearchOptions(top_k, fusion, threshold))
    hits = [replace(hit, ref=display(hit.ref)) for hit in found.hits]
    note = "; ".join(filter(None, (found.note, note)))
    rows = []
    for hit in hits:
        title = f" ({hit.title})" if hit.title else ""
        rows.append(f"{hit.ref}{title}, line {hit.line}, {hit.kind} {hit.score:.3f}\n  {hit.snippet}")
    rows = rows or [f"Nothing found for {query!r}.", *filter(None, [folder.describe_unread()])]
    rows = [*rows, *([f"[{note}]"] if note else [])]
    return Reply({"query": query, "hits": hits, "note": note}, "\n".join(rows))


@tool(group="context", command="context reembed", menu=())
def context_reembed(*, indexer: Indexer, caller: Caller) -> Reply[VectorCounts]:
    """Make all vectors anew, after the embedding model was changed."""
    if caller.run:
        raise Refused("only a person may have all vectors made again", hint="owlbox context reembed")
    indexer.reembed()
    if indexer.is_running:
        counts = indexer.status()
        return _show_counts(counts, "the rest is made in the background: owlbox status shows how far it is")
    end_s = monotonic_s() + INLINE_S
    indexer.index_pending(lambda: caller.cancel.is_set() or monotonic_s() > end_s)
    if caller.cancel.is_set():
        raise Cancelled("stopped; what is left is made when the core runs")
    done = indexer.status()
    is_done = done.vectors == done.chunks
    why = "" if is_done else done.state if done.state != "not running" else "the rest is made when the core runs: owlbox serve"
    return _show_counts(done, why or f"by {done.model or 'no model'}")


def _show_counts(counts: IndexStatus, note: str) -> Reply[VectorCounts]:
    text = f"{counts.vectors} of {counts.chunks} passages have a vector; {note}"
    return Reply({"chunks": counts.chunks, "vectors": counts.vectors, "note": note}, text)
