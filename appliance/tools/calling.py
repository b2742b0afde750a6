"""Tools that lead to other tools: use, tool_help. With them a menu of eight opens all the rest."""

from typing import Annotated, Any

from appliance.agent.toolbox import Caller, Toolbox
from appliance.agent.toolbox import tool as a_tool
from appliance.records import Outcome, ToolCall
from appliance.runtime.signatures import Range

Name = Annotated[str, Range(1, 100), "the other tool's name"]
Arguments = Annotated[dict[str, Any] | None, "its arguments by name"]


@a_tool(group="tools", is_detour=True)
def use(tool: Name, arguments: Arguments = None) -> ToolCall:
    """Call another tool, after tool_help:"""
    return ToolCall("", tool, arguments or {})


@a_tool(group="tools", is_read_only=True)
def tool_help(name: Name, *, toolbox: Toolbox, caller: Caller) -> Outcome:
    """Explain another tool, or list a group."""
    return Outcome(200, "ok", toolbox.manual(name, caller), origin=toolbox.origin(name))
