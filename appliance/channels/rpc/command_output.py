"""Tools and commands that run, at the local socket: a tool called for a person; what a command says grows, ends once, is stopped.

For clients that run a command themselves after accepting it, and for whoever wants one to end. Whoever may open the socket
may do this; no model can.
"""

from typing import Annotated, Any

from appliance.agent.command_output import CommandEnd, Streams
from appliance.agent.command_runs import Executions
from appliance.agent.toolbox import Toolbox
from appliance.policy.audit_log import Ledger
from appliance.records import Outcome, ToolCall, to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_session
from appliance.sessions.runs import Runs

Run = Annotated[str, "its name or id, or the beginning or end of the id"]
Path = Annotated[str, Range(1, 2048), "a channel, as the command's log entry names it"]


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


class CommandOutput:
    """Channels of commands by the names that people give their runs."""

    def __init__(self, runs: Runs, streams: Streams, executions: Executions, ledger: Ledger) -> None:
        self._runs = runs
        self._streams = streams
        self._executions = executions
        self._ledger = ledger

    @method("stream.append", access="own")
    def append(self, run: Run, path: Path, text: Annotated[str, Range(0, 1_000_000), "what it said"]) -> dict[str, Any]:
        """Let a channel grow; its size. A conflict once it has ended."""
        return {"bytes": self._streams.append(self._runs.get(run).id, path, text)}

    @method("stream.complete", access="own")
    def complete(
        self,
        run: Run,
        path: Path,
        exit_code: Annotated[int, Range(-255, 255), "what the system said"] = 0,
        duration_ms: Annotated[int, Range(0, 2**53), "how long it took"] = 0,
        reason: Annotated[str, "why the client gave it up"] = "",
    ) -> dict[str, Any]:
        """A command has ended, for all its channels: 200 for exit code 0, 499 where it was given up, else 500.

        Where it still runs here, it is stopped. A conflict the second time.
        """
        ended = CommandEnd(-1, 0, reason, is_stopped=True) if reason else CommandEnd(exit_code, duration_ms)
        self._executions.end(self._runs.get(run).id, path, ended)
        return {"path": path}

    @method("stream.cancel", access="own")
    def cancel(
        self,
        run: Run,
        path: Annotated[str, "a channel; empty for every command of the run"] = "",
        reason: Annotated[str, "why"] = "stopped",
    ) -> dict[str, Any]:
        """Stop a command that runs: 499. Not found when it does not run (any more)."""
        known = self._runs.get(run).id
        count = self._executions.cancel(known, path, reason or "stopped")
        self._ledger.note("exec_cancelled", run=known, detail={"path": path, "reason": reason, "stopped": count})
        return {"stopped": count + (0 if path else self._streams.clear(known))}

    @method("stream.list", access="own")
    def listing(self) -> list[dict[str, str]]:
        """The running commands, each with the last lines of its output."""
        return self._executions.tails()
