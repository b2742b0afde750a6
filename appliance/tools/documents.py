"""Tools for the documents in prompts."""

from typing import Annotated, Literal, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import BadInput
from appliance.ingest.own_documents import Documents
from appliance.policy.taint import ToolReach
from appliance.records import Event
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.text.edits import LinePatch

Name = Annotated[str, Range(1, 200), "such as GOALS, or house for house.md"]
WRITES = Needs(reach=ToolReach("document", target="name"))


class ListedDocument(TypedDict):
    name: str
    loading: str
    may_modify: bool
    words: int


class DocumentText(TypedDict):
    ref: str
    text: str


@tool(group="documents", menu=(), needs=WRITES)
def document_write(
    name: Annotated[Literal["MEMORY", "BELIEFS", "GOALS"], "what to remember always, what you have learnt, what you are to reach"],
    content: Annotated[str, "the whole document in Markdown; empty clears it"],
    *,
    documents: Documents,
    runs: Runs,
    caller: Caller,
) -> str:
    """Replace one of your own documents that stand in every prompt."""
    documents.replace(name, content, caller.run, is_vouched=caller.is_vouched)
    return _note_change(name, f"{name}.md {'has' if content.strip() else 'is empty:'} {len(content.split())} words", runs, caller)


@tool(group="documents", is_read_only=True, menu=())
def document_list(*, documents: Documents) -> Reply[list[ListedDocument]]:
    """List the documents that stand in prompts, and which of them you may change."""
    data = [
        ListedDocument(name=one.name, loading=one.loading, may_modify=one.may_modify, words=one.words)
        for one in documents.listing()
        if one.words or one.may_modify or one.problem
    ]
    lines = []
    for one in data:
        whose = ", yours to change" if one["may_modify"] else ""
        lines.append(f"{one['name']}: {one['words']} words, {one['loading'] or 'cannot be read'}{whose}")
    return Reply(data, "\n".join(lines))


@tool(group="documents", is_read_only=True, menu=())
def document_read(name: Name, *, documents: Documents) -> Reply[DocumentText]:
    """Read a document of the prompts with its front matter."""
    text = documents.read(name)
    return Reply(DocumentText(ref=documents.ref(name), text=text), text)


@tool(group="documents", menu=(), needs=WRITES)
def document_create(
    name: Name,
    content: Annotated[str, Range(1, 20_000), "the document in Markdown, without front matter"],
    loading: Annotated[Literal["always", "contextual"], "in every prompt, or where a word of it is said"] = "contextual",
    *,
    documents: Documents,
    runs: Runs,
    caller: Caller,
) -> str:
    """Write a new document for prompts; it counts from the next message."""
    path = documents.create(name, content, loading, caller.run, is_vouched=caller.is_vouched)
    return _note_change(path.stem, f"created {path.name}, {len(content.split())} words, loaded {loading}", runs, caller)


@tool(group="documents", menu=(), needs=WRITES)
def document_edit(
    name: Name,
    patches: Annotated[tuple[LinePatch, ...], "lines from 1, both included; end_line 0 inserts, empty content deletes"],
    *,
    documents: Documents,
    runs: Runs,
    caller: Caller,
) -> str:
    """Change lines of a document of the prompts; refused when its front matter is not right afterwards."""
    if not patches:
        raise BadInput("no patch is given", outcome="invalid_arguments")
    path = documents.edit(name, patches, caller.run, is_vouched=caller.is_vouched)
    return _note_change(path.stem, f"changed {path.name}", runs, caller)


@tool(group="documents", menu=(), needs=WRITES)
def document_delete(name: Name, *, documents: Documents, runs: Runs, caller: Caller) -> str:
    """Delete a document of the prompts."""
    path = documents.delete(name, caller.run)
    return _note_change(path.stem, f"deleted {path.name}", runs, caller)


def _note_change(name: str, text: str, runs: Runs, caller: Caller) -> str:
    """Note a change in the thread that made it, and say so."""
    if caller.run:
        runs.append(Event(caller.run, "context_update", "system", text, tool=name), durable=True)
    return text
