"""Tools at the local socket: what there are, and one called on behalf of a person, as the command line does."""

from typing import Any

from appliance.agent.toolbox import Toolbox
from appliance.records import Outcome, ToolCall, to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.users import caller_session


class ToolMethods:
    """The tools of a toolbox."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    @method("tool.list", access="all")
    def tools(self) -> list[dict[str, Any]]:
        """Every tool with its schemas."""
        return [
            {**state, **to_plain(t.spec), "result_schema": t.result_schema(), "command": t.mark.command, "menu": list(t.mark.menu)}
            for t, state in zip(self._toolbox.tools(), self._toolbox.registry())
        ]

    @method("tool.call", access="own")
    def call_tool(self, name: str, arguments: dict[str, Any], *, call: Call) -> Outcome:
        """Run one tool on behalf of a person: the same validation and policy as for the model."""
        asked = ToolCall(call.correlation, name, arguments)
        return self._toolbox.dispatch(asked, "", call.cancel, caller_session(call))
