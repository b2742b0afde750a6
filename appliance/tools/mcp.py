"""Tools that reach servers of tools: which there are, what they can do, and calling one. Every text comes from a server."""

from typing import Annotated, Any

from msgspec.structs import replace

from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import OwlError
from appliance.mcp import tools
from appliance.mcp.hub import FoundTools, Hub
from appliance.mcp.offers import RemoteTool, ServerOffer
from appliance.policy.taint import ToolReach
from appliance.records import Outcome
from appliance.runtime.signatures import Range

GROUP = tools.GROUP
SHOWN = 10
ASKING = Needs(deadline_s=120, network="proxy", is_waiting=True)
# Each server has a deadline of its own; this one only ends what nobody else would.
CALLING = Needs(deadline_s=3600, network="proxy", is_waiting=True, reach=ToolReach("call", target="server", within="args"))

Server = Annotated[str, Range(1, 64), "the server's name"]
Name = Annotated[str, Range(1, 200), "the tool's name, without its server's"]


@tool(group=GROUP, command="mcp list", is_read_only=True, menu=(), needs=ASKING)
def mcp_list_tools(
    server: Annotated[str, Range(0, 64), "only of this server"] = "",
    fresh: Annotated[bool, "ask them again"] = False,
    query: Annotated[str, Range(0, 1000), "only those for this, best first: what the tool should do"] = "",
    keyword_only: Annotated[bool, "go by words of the query alone"] = False,
    semantic_only: Annotated[bool, "go by its meaning alone"] = False,
    limit: Annotated[int, Range(1, 100), "how many for a query"] = SHOWN,
    *,
    mcp: Hub,
) -> Outcome:
    """List the tools of the servers that are connected, or find those for a purpose."""
    try:
        if query:
            found = mcp.search(query, keyword_only=keyword_only, semantic_only=semantic_only, limit=limit)
            found = replace(found, wares=tuple(ware for ware in found.wares if server in ("", ware.server)))
            return _tools_outcome(found, f"No tool for {query!r}.")
        found = mcp.listing(server, fresh)
    except OwlError as error:
        return _error_outcome(error, server)
    return _tools_outcome(found, "" if found.note else "The servers have no tools.")


@tool(group=GROUP, command="mcp info", is_read_only=True, menu=(), needs=ASKING)
def mcp_info(
    server: Server,
    tool: Annotated[str, Range(0, 200), "the tool's name, without its server's; empty for the server itself"] = "",
    *,
    mcp: Hub,
) -> Outcome:
    """Show what a tool of a server does and which arguments it takes; without one, what the server says of itself."""
    try:
        if not tool:
            return _offer_outcome(mcp.offer(server))
        ware = mcp.info(server, tool)
    except OwlError as error:
        return _error_outcome(error, server)
    hint = f"Call it with mcp_exec, server {server}, tool {tool}."
    return Outcome(200, "ok", f"{ware.text()}\n{hint}", data=_tool_data(ware), origin=f"mcp:{server}", source=f"{server}/{tool}")


@tool(group=GROUP, command="mcp exec", menu=(), needs=CALLING)
def mcp_exec(
    server: Server, tool: Name, args: Annotated[dict[str, Any] | None, "its arguments by name"] = None, *, mcp: Hub, caller: Caller
) -> Outcome:
    """Call a tool of a server."""
    try:
        return tools.call(mcp, server, tool, args or {}, caller)
    except OwlError as error:
        return _error_outcome(error, server)


def _tools_outcome(found: FoundTools, none: str) -> Outcome:
    """Tools as lines; marked as the words of the servers whose they are."""
    lines = [ware.line for ware in found.wares] or ([none] if none else [])
    text = "\n".join([*lines, *([f"[{found.note}]"] if found.note else [])])
    data = {"tools": [_tool_data(ware) for ware in found.wares], "note": found.note}
    return Outcome(200, "ok", text, data=data, origin=_taint_origin(found))


def _offer_outcome(offer: ServerOffer) -> Outcome:
    """What a server says of itself, with its resources and prompts."""
    about = offer.about
    named = (("resources", "uri"), ("templates", "uriTemplate"), ("prompts", "name"))
    lines = [
        f"{offer.server}: {about.get('title') or '?'} {about.get('version') or ''}, protocol {about.get('protocol')}",
        *(about.get("instructions") or "").splitlines(),
        *(f"left out {one}" for one in about.get("left_out") or ()),
        *(
            f"{kind[:-1]} {one.get(key)}: {' '.join((one.get('description') or one.get('name') or '').split())[:100]}"
            for kind, key in named
            for one in about.get(kind) or ()
        ),
    ]
    data = {"server": offer.server, "about": about, "listed_ms": offer.listed_ms, "has_login": offer.has_login}
    return Outcome(200, "ok", "\n".join(lines), data=data, origin=f"mcp:{offer.server}", source=offer.server)


def _taint_origin(found: FoundTools) -> str:
    names = sorted({*(ware.server for ware in found.wares), *found.blamed})
    return "" if not names else f"mcp:{names[0]}" if len(names) == 1 else "mcp"


def _tool_data(ware: RemoteTool) -> dict[str, Any]:
    return {"server": ware.server, "name": ware.name, "description": ware.description, "schema": ware.schema}


def _error_outcome(error: OwlError, server: str = "") -> Outcome:
    return tools.failed(error, server) if server else Outcome(error.status, error.outcome, error.message, error.hint)
