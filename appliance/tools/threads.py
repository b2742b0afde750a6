"""Tools over earlier conversations: list_threads, view_thread."""

from typing import Annotated, Literal

from appliance.clock import iso
from appliance.errors import NotFound
from appliance.runs import Runs
from appliance.signatures import Range
from appliance.toolbox import Caller, tool

SHORT = 2000


@tool(group="threads", command="thread list", is_read_only=True, menu=())
def list_threads(
    type: Annotated[Literal["", "chat", "ask", "tick"], "only this type"] = "",
    limit: Annotated[int, Range(1, 200), "how many to show"] = 20,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    *,
    runs: Runs,
    caller: Caller,
) -> str:
    """List earlier conversations, newest first."""
    found = runs.listing(kind=type, limit=limit, offset=offset, beside=caller.run)
    if not found:
        return "No threads."
    return "\n".join(f"{r.id} {iso(r.created_ms)[:16]} {r.kind} {r.outcome or r.status} {r.title or '(untitled)'}" for r in found)


@tool(group="threads", is_read_only=True, menu=())
def view_thread(
    id: Annotated[str, Range(4, 64), "the thread's id"],
    after: Annotated[int, Range(0, 10_000_000), "only what came after this number"] = 0,
    *,
    runs: Runs,
    caller: Caller,
) -> str:
    """Read an earlier conversation."""
    run = runs.get(id)
    if caller.run and not runs.is_beside(run.id, caller.run):
        raise NotFound(f"no thread {id}", hint="list_threads shows them")  # somebody else's: not even its being there is told
    lines = [f"{run.title or '(untitled)'}, {run.kind}, {run.outcome or run.status}"]
    for event in runs.events(run.id, after=after, limit=100):
        text = event.content if len(event.content) <= SHORT else event.content[:SHORT] + " …"
        lines.append(f"{event.seq}. {event.role}{f' ({event.tool})' if event.tool else ''}: {text}")
    return "\n".join(lines)
