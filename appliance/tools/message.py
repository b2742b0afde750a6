"""The tool that sends a message to a person, beside the answer: message."""

from typing import Annotated

from appliance.agent.tool_messages import CORE, NOTIFICATION, Postbox, Posted, ToolMessage
from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.policy.taint import ToolReach
from appliance.work.jobs import Jobs


@tool(group="messages", menu=(), needs=Needs(reach=ToolReach("send", target="target")))
def message(
    content: Annotated[str, "what to say, at most 10240 bytes"] = "",
    target: Annotated[str | None, "core for the person of this conversation, or person:NAME"] = CORE,
    type: Annotated[str, "what kind of message it is"] = NOTIFICATION,
    session_id: Annotated[str, "another conversation to send it in"] = "",
    file: Annotated[str, "a file to send: its path, or words of its name"] = "",
    *,
    postbox: Postbox,
    jobs: Jobs,
    caller: Caller,
) -> Reply[Posted]:
    """Send a message or a file to the person beside your answer."""
    made = ToolMessage(content, target or CORE, type or NOTIFICATION, session_id, file)
    job = jobs.of_run(caller.run) if caller.terms.is_child else None
    run = caller.run if job is None else job.parent  # what a helper says belongs where it was asked for
    sent = postbox.send(made, session=caller.session, run=run, author=caller.run, role=caller.terms.role)
    to = "" if sent.target == CORE and not session_id else f" to {sent.person}"
    kind = "" if sent.type == NOTIFICATION else f" as {sent.type}"
    return Reply(sent, f"Sent{f' the file {sent.file}' if sent.file else ''}{to}{kind}.")
