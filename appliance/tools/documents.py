"""Tools that write the documents in everybody's prompt: memory_write, update_beliefs, update_goals."""

from typing import Annotated

from appliance.agent.toolbox import Caller, Needs, tool
from appliance.ingest.own_documents import Documents
from appliance.policy.taint import Reach
from appliance.records import Event
from appliance.sessions.runs import Runs

Whole = Annotated[str, "the whole document in Markdown; empty clears it"]


@tool(group="memory", menu=(), needs=Needs(reach=Reach("document", named="MEMORY")))
def memory_write(content: Whole, *, documents: Documents, runs: Runs, caller: Caller) -> str:
    """Replace the document of what to remember always."""
    return _write_document("MEMORY", content, documents, runs, caller)


@tool(group="memory", menu=(), needs=Needs(reach=Reach("document", named="BELIEFS")))
def update_beliefs(content: Whole, *, documents: Documents, runs: Runs, caller: Caller) -> str:
    """Replace the document of what you have learnt about the world and the person."""
    return _write_document("BELIEFS", content, documents, runs, caller)


@tool(group="memory", menu=(), needs=Needs(reach=Reach("document", named="GOALS")))
def update_goals(content: Whole, *, documents: Documents, runs: Runs, caller: Caller) -> str:
    """Replace the document of what you are to reach."""
    return _write_document("GOALS", content, documents, runs, caller)


def _write_document(name: str, content: str, documents: Documents, runs: Runs, caller: Caller) -> str:
    path = documents.replace(name, content, caller.run)
    told = f"{path.name} {'has' if content.strip() else 'is empty:'} {len(content.split())} words"
    if caller.run:
        runs.append(Event(caller.run, "context_update", "system", told, tool=name), durable=True)
    return told
