"""The tool that reads kept files and pages again; adding is for people, who have files, at the command line."""

from typing import Annotated

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import NotFound
from appliance.ingest.pipeline import Refreshed
from appliance.ingest.receiver import Intake
from appliance.policy.taint import ToolReach
from appliance.runtime.signatures import Range

# Pages are asked again: which of them, and how often, is seen by whose they are.
ASKS = Needs(reach=ToolReach("web", target="ref"))


@tool(group="context", menu=(), needs=ASKS)
def context_refresh(
    ref: Annotated[str, Range(0, 4096), "an item's id, drive:/path, or a folder"] = "",
    all: Annotated[bool, "everything that was read from somewhere"] = False,
    *,
    intake: Intake,
    caller: Caller,
) -> Reply[Refreshed]:
    """Read items again from where they came, and keep what has changed; give either ref or all."""
    done = intake.refresh([ref] if ref else [], all, caller.run, caller.cancel.is_set)
    if done.unresolved:
        raise NotFound(done.unresolved[0], hint="context_tree shows what there is")
    return Reply(done, done.text())
