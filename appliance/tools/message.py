"""The tool that sends a message to a person, beside the answer: message."""

from typing import Annotated

from appliance.postbox import CORE, NOTIFICATION, Message, Postbox, Posted
from appliance.toolbox import Caller, tool


@tool(group="messages", menu=())
def message(
    content: Annotated[str, "what to say, at most 10240 bytes"] = "",
    target: Annotated[str | None, "core for the person of this conversation, or person:NAME"] = CORE,
    type: Annotated[str | None, "what kind of message it is"] = NOTIFICATION,
    session_id: Annotated[str | None, "another conversation to send it in"] = None,
    *,
    postbox: Postbox,
    caller: Caller,
) -> Posted:
    """Send a message to the person beside your answer."""
    made = Message(content, target or CORE, type or NOTIFICATION, session_id or "")
    return postbox.send(made, session=caller.session, run=caller.run, role=caller.terms.role)
