"""Tools for the documents in prompts."""

from typing import Annotated, Literal, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import BadInput
from appliance.ingest.document_methods import Described
from appliance.ingest.own_documents import Documents
from appliance.policy.taint import ToolReach
from appliance.records import Event
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.text.edits import LinePatch

Name = Annotated[str, Range(1, 200), "such as GOALS, or house for house.md"]
OWN = ("MEMORY", "BELIEFS", "GOALS")  # the assistant's own: they may be empty
WRITES = Needs(reach=ToolReach("document", target="name"))


class DocumentText(TypedDict):
    ref: str
    text: str


@tool(group="documents", menu=(), needs=WRITES)
def document_write(
    name: Annotated[str, Range(1, 200), "MEMORY, BELIEFS, GOALS, or house for house.md"],
    content: Annotated[str | None, "the whole document in Markdown, without front matter; empty clears it"] = None,
    patches: Annotated[
        tuple[LinePatch, ...], "instead lines from 1, both included; end_line 0 inserts, empty content deletes"
    ] = (),
    loading: Annotated[
        Literal["always", "contextual"], "of a new one: in every prompt, or where a word of it is said"
    ] = "contextual",
    on_conflict: Annotated[Literal["error", "overwrite"], "when there is one of this name"] = "overwrite",
    *,
    documents: Documents,
    runs: Runs,
    caller: Caller,
) -> str:
    """Write a document that stands in prompts, new or in place of what it said, or change lines of it."""
    if (content is None) == (not patches):
        raise BadInput("give either content or patches", hint="patches change lines", outcome="invalid_arguments")
    if content is None:
        path = documents.edit(name, patches, caller.run, is_vouched=caller.is_vouched)
        return _note_change(path.stem, f"changed {path.name}", runs, caller)
    words = len(content.split())
    if on_conflict == "error" or (name not in OWN and not documents.exists(name)):
        if not words:
            raise BadInput(f"the new document {name} would be empty", hint="give content", outcome="invalid_arguments")
        path = documents.create(name, content, loading, caller.run, is_vouched=caller.is_vouched)
        return _note_change(path.stem, f"created {path.name}, {words} words, loaded {loading}", runs, caller)
    documents.replace(name, content, caller.run, is_vouched=caller.is_vouched)
    return _note_change(name, f"{name}.md {'has' if content.strip() else 'is empty:'} {words} words", runs, caller)


@tool(group="documents", is_read_only=True, menu=())
def document_list(*, documents: Documents) -> Reply[list[Described]]:
    """List the documents that stand in prompts, and which of them you may change."""
    data = [one for one in documents.listing() if one.words or one.may_modify or one.problem]
    lines = [
        f"{one.name}: {one.words} words, {one.loading or 'cannot be read'}{', yours to change' if one.may_modify else ''}"
        for one in data
    ]
    return Reply(data, "\n".join(lines))


@tool(group="documents", is_read_only=True, menu=())
def document_read(name: Name, *, documents: Documents) -> Reply[DocumentText]:
    """Read a document of the prompts with its front matter."""
    text = documents.read(name)
    return Reply(DocumentText(ref=documents.ref(name), text=text), text)


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
