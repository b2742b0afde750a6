"""Tools that run a command in the sandbox: exec, sh and env. They differ in what they answer, not in what holds them.

`exec` tells the exit code of whatever ran, or takes one other than 0 for an error; `sh` and `env` answer with the
channels of a run that is shown its entries, and `env` cannot write to the working folder.
"""

from typing import Annotated

from appliance.agent.command_runs import Executions, Ran
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import BadInput
from appliance.policy.taint import ToolReach
from appliance.records import Outcome
from appliance.runtime.signatures import Range

GROUP = "shell"
SANDBOXED = Needs(profile="exec", reach=ToolReach("exec", target="command"))
SHELL_S = 30.0
MAX_COMMAND = 100_000
Command = Annotated[str, Range(0, MAX_COMMAND), "a command line for bash"]
Seconds = Annotated[int | float | str | None, "seconds it may take"]


@tool(group=GROUP, name="exec", menu=(), needs=SANDBOXED)
def exec_command(
    command: Command,
    timeout: Seconds = None,
    strict: Annotated[bool, "an exit code other than 0 is an error"] = False,
    *,
    executions: Executions,
    caller: Caller,
) -> Outcome:
    """Run a command in the sandbox: no network, only the working folder can be written to."""
    ran = executions.run(caller, "exec", _require_command(command), _parse_seconds(timeout, SHELL_S if strict else 0))
    if isinstance(ran, Outcome):
        return ran
    if not strict:
        return _completed_outcome(ran)
    if (trouble := _trouble_outcome(ran)) is not None:
        return trouble
    if ran.execution.exit_code:
        return Outcome(500, "failed", f"Exit code {ran.execution.exit_code}:\n{_output_text(ran)}", data=ran.data)
    return Outcome(200, "ok", _output_text(ran) or "(no output)", data=ran.data)


@tool(group=GROUP, menu=("run",), needs=SANDBOXED)
def sh(command: Command, *, executions: Executions, caller: Caller) -> Outcome:
    """Run a command in the project."""
    ran = executions.run(caller, "sh", _require_command(command))
    return ran if isinstance(ran, Outcome) else _completed_outcome(ran)


@tool(group=GROUP, menu=("run",), needs=SANDBOXED)
def env(command: Command, *, executions: Executions, caller: Caller) -> Outcome:
    """Look around in the project with a command that changes nothing."""
    ran = executions.run(caller, "env", _require_command(command))
    return ran if isinstance(ran, Outcome) else _completed_outcome(ran)


def _completed_outcome(ran: Ran) -> Outcome:
    """A command that ended by itself is a call that was carried out, whatever its exit code."""
    if (trouble := _trouble_outcome(ran)) is not None:
        return trouble
    parts = (_output_text(ran), f"[exit code {ran.execution.exit_code}]")
    return Outcome(200, "ok", "\n".join(part for part in parts if part), data=ran.data)


def _trouble_outcome(ran: Ran) -> Outcome | None:
    """What did not end by itself; what it had said until then is part of the answer."""
    done, said = ran.execution, _output_text(ran)
    if done.status == "timeout":
        text = f"Command timed out after {ran.timeout_s:g}s"
        return Outcome(504, "timeout", "\n".join(part for part in (text, said) if part), "ask for less at once", ran.data)
    if done.status == "cancelled":
        return Outcome(499, "cancelled", "\n".join(part for part in ("Command was stopped", said) if part), data=ran.data)
    if done.exit_code < 0:
        text = f"Command was ended: {done.error}"
        return Outcome(500, "failed", "\n".join(part for part in (text, said) if part), "use less", ran.data)
    return None


def _output_text(ran: Ran) -> str:
    cut = "\n[the output was cut]" if ran.execution.is_cut else ""
    return ran.text.rstrip("\n") + cut


def _require_command(command: str) -> str:
    if not command.strip():
        raise BadInput("the command is empty", hint="give a command line", outcome="invalid_arguments")
    if "\0" in command:
        raise BadInput("the command holds a NUL byte", hint="remove it", outcome="invalid_arguments")
    return command


def _parse_seconds(value: int | float | str | None, default: float) -> float:
    """A number of seconds; the default for what is none."""
    try:
        number = float(value) if value is not None else default
    except ValueError:
        return default
    return number if 0 < number < 1e6 else default
