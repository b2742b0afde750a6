"""Tools over what the assistant knows: search, read, remember."""

from typing import Annotated, TypedDict

from appliance.agent.tool_results import MAX_CHARS, Reply
from appliance.agent.toolbox import Caller, tool
from appliance.errors import BadInput
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import Content
from appliance.knowledge.drives import Drives
from appliance.knowledge.entries import Entries
from appliance.knowledge.search import Hit, Search, words_of
from appliance.language.word_forms import find_same
from appliance.runtime.signatures import Range
from appliance.store import visibility
from appliance.text.references import parse_ref

READ_LINES = 200
MOST_COMPARED, COMPARED_CHARS = 1000, 2000  # memories, and the length of those, that a new one may say the same as
READ_CHARS = MAX_CHARS - 200  # the rest is for the hints


class WrittenEntry(TypedDict):
    path: str


class SearchResult(TypedDict):
    query: str
    hits: tuple[Hit, ...]


@tool(group="knowledge", command="search", is_read_only=True)
def search(
    query: Annotated[str, Range(1, 1000), "words to look for"],
    limit: Annotated[int, Range(1, 50), "how many to show"] = 5,
    *,
    finder: Search,
    caller: Caller,
) -> Reply[SearchResult]:
    """Find notes by their words."""
    if not words_of(query):
        raise BadInput(f"nothing to search for in {query!r}", hint="use words that name the thing")
    hits = finder.find(query, limit=limit, is_model=bool(caller.run))
    lines = [f"{hit.ref}{f' ({hit.title})' if hit.title else ''}: {hit.snippet}" for hit in hits]
    return Reply({"query": query, "hits": tuple(hits)}, "\n".join(lines) or f"Nothing found for {query!r}.")


@tool(group="knowledge", command="read", is_read_only=True)
def read(
    ref: Annotated[str, Range(1, 2048), "reference of the note, as search shows it"],
    line: Annotated[int, Range(1, 10_000_000), "first line to show"] = 1,
    limit: Annotated[int, Range(1, 2000), "how many lines"] = READ_LINES,
    *,
    entries: Entries,
    drives: Drives,
) -> str:
    """Read a note by its reference."""
    if (found := entries.find(ref)) is None:
        raise drives.missing(parse_ref(ref), "entry")
    lines = found.body.split("\n")
    if line > len(lines):
        raise BadInput(f"line {line} is past the end of {ref}", hint=f"it has {len(lines)} lines")
    shown: list[str] = []
    room = READ_CHARS
    for text in lines[line - 1 : line - 1 + limit]:
        if shown and len(text) >= room:
            break
        if len(text) > room:  # a single line that is longer than a page
            text = f"{text[:room]}\n[line {line}: {room} of {len(text)} characters shown]"
        shown.append(text)
        room -= len(text) + 1
    rest = len(lines) - (line - 1 + len(shown))
    more = f"\n[{rest} more lines: read again with line={line + len(shown)}]" if rest > 0 else ""
    return "\n".join(shown) + more


@tool(group="knowledge", command="remember")
def remember(
    text: Annotated[str, Range(1, 100_000), "what to keep"],
    title: Annotated[str, Range(0, 200), "a few words that name it"] = "",
    *,
    entries: Entries,
    caller: Caller,
) -> Reply[WrittenEntry]:
    """Keep a fact or note for later."""
    writer = "model" if caller.run else "client"
    # A long text is a note of its own, and comparing many of them would take seconds.
    is_short = not title and len(text) <= COMPARED_CHARS
    stored = entries.owned("memory://", visibility.current() if caller.run else "") if is_short else []
    known = [entry for entry in stored if len(entry.body) <= COMPARED_CHARS][:MOST_COMPARED]
    if (number := find_same(text, [entry.body for entry in known])) is not None:
        entries.put(known[number].path, Content(body=text), By(writer, caller.run))
        ref = known[number].path
        return Reply({"path": ref}, f"Kept as {ref}")
    name = title or text.split("\n")[0]
    slug = "-".join(words_of(name)[:8]) or "note"
    ref, number = f"memory://notes/{slug[:60]}", 1
    while entries.is_taken(ref) and ((found := entries.find(ref)) is None or found.body != text):
        number += 1
        ref = f"memory://notes/{slug[:60]}-{number}"
    entries.set(ref, text, title=title or name[:80], writer=writer, run=caller.run)
    return Reply({"path": ref}, f"Kept as {ref}")
