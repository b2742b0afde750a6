"""The tool that waits: sleep. A message of the person ends it early."""

from typing import Annotated

from appliance.agent.dispatch import session_of
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs

LOOK_S = 0.25
LONGEST_S = 3600


@tool(group="waiting", is_read_only=True, menu=(), needs=Needs(deadline_s=LONGEST_S + 60, is_waiting=True))
def sleep(seconds: Annotated[int, Range(1, LONGEST_S), "how long, in seconds"], *, runs: Runs, caller: Caller) -> str:
    """Wait for a while; a message of the person ends it early."""
    if not caller.run:
        raise BadInput("nobody sleeps here: this is no thread", hint="a model waits in its thread")
    session = session_of(runs, caller)
    began_s = monotonic_s()
    while (left_s := began_s + seconds - monotonic_s()) > 0:
        if runs.is_awaited(session):
            spent_s = round(monotonic_s() - began_s)
            return f"Woken after {spent_s} s: the person has written. End your answer, then it is read."
        if caller.cancel.wait(min(LOOK_S, left_s)):
            raise Cancelled("stopped")
    return f"Slept {seconds} s."
