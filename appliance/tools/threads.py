"""Tools over earlier conversations: list_threads, view_thread, search_history."""

import re
from typing import Annotated, Literal, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, tool
from appliance.clock import iso, now_ms
from appliance.errors import BadInput, NotFound
from appliance.runtime.signatures import Range
from appliance.sessions.history import History, HistoryRecord, Mention
from appliance.sessions.runs import Runs

SHORT = 2000
EXCERPT, LEAD = 300, 60  # characters of a message that are shown, and of those before what was found
MOST = 50
DAY_MS = 86_400_000


class Mentions(TypedDict):
    query: str
    mentions: tuple[Mention, ...]


def _message_line(told: HistoryRecord, query: str, *, is_found: bool) -> str:
    """A message on one line, cut; the one that was found where it was found."""
    text = " ".join(told.text.split())
    place = re.search(re.escape(" ".join(query.split())), text, re.IGNORECASE) if is_found else None
    start = 0 if place is None or place.end() <= EXCERPT else place.start() - LEAD
    end = start + EXCERPT
    if place is not None:
        end = max(end, place.end())
        shown = f"{text[start : place.start()]}**{place[0]}**{text[place.end() : end]}"
    else:
        shown = text[start:end]
    return f"{told.role}: {'...' if start else ''}{shown}{'...' if end < len(text) else ''}"


@tool(group="threads", command="thread list", is_read_only=True, menu=())
def list_threads(
    type: Annotated[Literal["", "chat", "ask", "tick", "child"], "only this type"] = "",
    limit: Annotated[int, Range(1, 200), "how many to show"] = 20,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    *,
    runs: Runs,
    caller: Caller,
) -> str:
    """List earlier conversations, newest first."""
    found = runs.list_runs(kind=type, limit=limit, offset=offset, beside=caller.run)
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


@tool(group="threads", command="thread search", is_read_only=True, menu=())
def search_history(
    query: Annotated[str, Range(0, 1000), "letters to look for, in whatever case"],
    days: Annotated[int, "only messages of so many days; 0 for all"] = 0,
    max_results: Annotated[int, "how many to show, 1 to 50"] = 10,
    *,
    runs: Runs,
    history: History,
    caller: Caller,
) -> Reply[Mentions]:
    """Find what was said in earlier conversations."""
    if not query.strip():
        raise BadInput("the query is blank", hint="give some letters of what was said", outcome="invalid_arguments")
    context = str(runs.session(runs.get(caller.run).session)["context"]) if caller.run else ""
    since_ms = now_ms() - days * DAY_MS if days > 0 else 0
    limit = min(max(max_results, 1), MOST)
    mentions = tuple(history.search(query.strip(), context=context, since_ms=since_ms, limit=limit))
    parts = []
    for number, found in enumerate(mentions, 1):
        told = found.told
        lines = [f"## {number}. {told.label} {iso(told.at_ms)[:16]}, thread {told.run}"]
        lines += [_message_line(one, query, is_found=one is told) for one in (found.before, told, found.after) if one is not None]
        parts.append("\n".join(lines))
    return Reply({"query": query, "mentions": mentions}, "\n\n".join(parts) or f"No matches found for '{query}'.")
