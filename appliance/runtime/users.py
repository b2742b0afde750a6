"""Names of the users of this machine, and who asks in a call."""

import pwd

from appliance.runtime.methods import Call
from appliance.store import visibility


def user_name(uid: int) -> str:
    """The name of a user, the number of one without."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def caller_name(call: Call) -> str:
    """The person who makes a call: whom the caller's user stands for, or for whom an admin acts."""
    return visibility.person() or call.person or user_name(call.uid)


def caller_session(call: Call) -> str:
    """The session in which a caller works outside of any thread: their own, or that of the group they work for."""
    context = visibility.current()
    return f"local:{context if context.startswith('group:') else caller_name(call)}"


def group_context() -> str:
    """The group that the present call works for, `group:NAME`; "" for none."""
    context = visibility.current()
    return context if context.startswith("group:") else ""
