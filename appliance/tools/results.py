"""Reading on in what was too long to be shown: read_large_result."""

from typing import Annotated

from appliance.agent.result_pages import Overflow
from appliance.agent.toolbox import Caller, tool
from appliance.errors import BadInput
from appliance.records import Outcome
from appliance.runtime.signatures import Range


@tool(group="results", is_read_only=True, menu=())
def read_large_result(
    id: Annotated[str, Range(1, 20), "the id that the shortened result names, such as lr_1"],
    page: Annotated[int, Range(1, 1_000_000), "which page, from 1"] = 1,
    *,
    overflow: Overflow,
    caller: Caller,
) -> Outcome:
    """Read a page of a result that was too long to be shown at once."""
    if not caller.run:
        raise BadInput("large results belong to a thread", hint="call it within one")
    found = overflow.page(caller.run, id, page)
    return Outcome(200, "ok", f"[{id}, page {found.page} of {found.total_pages}]\n{found.content}", origin=found.origin)
