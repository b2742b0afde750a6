"""The tool that brings CAPABILITIES.md up to date: capabilities_refresh."""

from collections import Counter
from typing import Annotated, TypedDict

from appliance.agent.capabilities import Ability, Capabilities
from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, Toolbox, tool
from appliance.errors import OwlError
from appliance.ingest.own_documents import Documents
from appliance.mcp.hub import Hub
from appliance.policy.taint import ToolReach
from appliance.records import Event
from appliance.sessions.runs import Runs

NAME = "CAPABILITIES"


class RefreshedCapabilities(TypedDict):
    internal_tools: int
    mcp_tools: int
    created: bool
    by: str
    note: str


@tool(
    group="documents",
    menu=(),
    needs=Needs(deadline_s=300, is_waiting=True, reach=ToolReach("document", named=NAME, data=("include_mcp",))),
)
def capabilities_refresh(
    include_mcp: Annotated[bool, "count the tools of servers too"] = True,
    *,
    capabilities: Capabilities,
    documents: Documents,
    toolbox: Toolbox,
    mcp: Hub,
    runs: Runs,
    caller: Caller,
) -> Reply[RefreshedCapabilities]:
    """Write CAPABILITIES.md anew: what you can do, by subject."""
    own = [Ability(one.mark.name, one.mark.group, one.description) for one in toolbox.tools() if not one.origin]
    servers, troubles = _count_tools(mcp) if include_mcp else (Counter[str](), [])
    found = capabilities.summary(own, servers, caller.cancel)
    is_new = documents.replace(NAME, found.text, caller.run, is_own=False, is_vouched=True)
    note = "; ".join(filter(None, [found.note, *troubles]))
    counts = f"{len(own)} tools of its own and {servers.total()} of servers"
    text = f"{'Created' if is_new else 'Rewrote'} {NAME}.md: {counts}, worded by the {found.by}" + (f" ({note})" if note else "")
    if caller.run:
        runs.append(Event(caller.run, "context_update", "system", text, tool=NAME), durable=True)
    data = RefreshedCapabilities(internal_tools=len(own), mcp_tools=servers.total(), created=is_new, by=found.by, note=note)
    return Reply(data, text)


def _count_tools(mcp: Hub) -> tuple[Counter[str], list[str]]:
    """How many tools each server has, and what was in the way of asking; nothing is asked where none is configured."""
    if not mcp.has_servers:
        return Counter(), []
    try:
        found = mcp.listing()
    except OwlError as error:
        return Counter(), [f"servers of tools: {error.message}"]
    # Why a server did not answer is the server's word, and not repeated.
    troubles = [f"could not be asked: {', '.join(found.blamed)}"] if found.blamed else []
    return Counter(ware.server for ware in found.wares if ware.server), troubles
