"""The tool that keeps what another tool answers, without showing it: pipe_to_context.

The other tool is called as if it had been called directly, and so is the one that keeps the text: whatever the policy
says of either holds. A result that strangers may have written stays marked as such, here and in the item.
"""

from typing import Annotated, Any

from msgspec.structs import replace

from appliance.agent.toolbox import Caller, Needs, Toolbox
from appliance.agent.toolbox import tool as a_tool
from appliance.errors import Refused
from appliance.records import Outcome, ToolCall
from appliance.runtime.signatures import Range

PREVIEW_CHARS = 200
KEEPER = "context_write"
# What answers nothing worth keeping, waits for somebody, or is about the conversation itself.
EXCLUDED = frozenset(
    {"pipe_to_context", "use", "tool_help", "read_large_result", "think", "ask_user", "update", "sleep", "message", KEEPER}
)
EXCLUDED_GROUPS = frozenset({"run", "tools", "delegation", "workers"})


@a_tool(group="context", menu=(), needs=Needs(is_waiting=True))
def pipe_to_context(
    tool: Annotated[str, Range(1, 100), "the tool whose result is kept"],
    path: Annotated[str, Range(1, 4096), "where, as drive:/path or a path on the drive agent"],
    arguments: Annotated[dict[str, Any] | None, "the tool's arguments by name"] = None,
    title: Annotated[str, Range(0, 200), "a few words that name it"] = "",
    overwrite: Annotated[bool, "replace what is there"] = False,
    *,
    toolbox: Toolbox,
    caller: Caller,
) -> Outcome:
    """Keep the whole result of another tool as an item, and see only its beginning."""
    call = toolbox.meant(ToolCall("", tool, arguments or {}))
    spec = toolbox.spec(call.name)
    if call.name in EXCLUDED or (spec is not None and (spec.is_terminal or spec.group in EXCLUDED_GROUPS)):
        raise Refused(f"the result of {call.name} is not kept this way", hint="call it directly")
    made = toolbox.whole(call, caller)
    if made.is_error or made.status == 202:
        return made
    keep = {"path": path, "content": made.message, "title": title, "on_conflict": "overwrite" if overwrite else "error"}
    kept = toolbox.whole(ToolCall("", KEEPER, keep), caller)
    if kept.is_error:
        return kept
    ref = kept.data["ref"] if isinstance(kept.data, dict) else path
    text = made.message
    more = f"\n[{len(text) - PREVIEW_CHARS} more characters: context_read shows them]" if len(text) > PREVIEW_CHARS else ""
    told = f"Kept {len(text)} characters of {call.name} as {ref}. They begin:\n{text[:PREVIEW_CHARS]}{more}"
    return replace(made, message=told, data={"ref": ref, "characters": len(text)})
