"""The policy at the local socket: what it says, what it would say, reading it again, and what was written down.

Whoever may open the socket may change a conversation's policy; no model can. Beside `rpc` because one table would pass 600
lines.
"""

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Session = Annotated[str, "the conversation, as `session list` shows it; empty is for everybody"]


@dataclass(frozen=True)
class Acts:
    """What the core does for these methods."""

    show: Callable[[str], dict[str, Any]]
    judge: Callable[[dict[str, Any]], dict[str, Any]]
    reload: Callable[[], str]
    set: Callable[[str, str, str], dict[str, Any]]  # session, text, who
    lift: Callable[[str, str], None]
    audit: Callable[[dict[str, Any]], list[dict[str, Any]]]


class Rules:
    """The method table of the policy."""

    def __init__(self, acts: Acts) -> None:
        self._acts = acts

    @method("policy.show", access="own")
    def show(self, call: Call, session: Session = "") -> dict[str, Any]:
        """The policy that holds, its state, and the conversations that have one of their own."""
        return self._acts.show(session)

    @method("policy.test", access="all")
    def test(
        self, call: Call, request: Annotated[dict[str, Any], "component, who, mounts, usage, network, target, command"]
    ) -> dict[str, Any]:
        """What the policy would say to a request; nothing is started and nothing is written down."""
        return self._acts.judge(request)

    @method("policy.reload", is_long=True)
    def reload(self, call: Call) -> dict[str, Any]:
        """Read the policy again: reloaded, unchanged, or skipped while that is being done; an error keeps the old one."""
        return {"result": self._acts.reload()}

    @method("policy.set")
    def set(self, call: Call, session: str, document: Annotated[str, "the text of a policy file"]) -> dict[str, Any]:
        """Give a conversation a policy of its own, over the one for everybody; what holds there now."""
        return self._acts.set(session, document, _user(call.uid))

    @method("policy.lift")
    def lift(self, call: Call, session: str) -> dict[str, Any]:
        """Let the policy for everybody hold in a conversation again."""
        self._acts.lift(session, _user(call.uid))
        return {"session": session}

    @method("audit.list")
    def audit(
        self,
        call: Call,
        kind: Annotated[str, "only kinds that begin so, such as mount_"] = "",
        severity: str = "",
        session: str = "",
        run: str = "",
        rule: Annotated[str, "only rules with this in their name"] = "",
        before: Annotated[int, Range(0, 2**62), "only rows with a smaller id; 0 for the newest"] = 0,
        limit: Annotated[int, Range(1, 1000), "how many to show"] = 50,
    ) -> list[dict[str, Any]]:
        """What was allowed, refused and done, newest first."""
        asked = {"kind": kind, "severity": severity, "session": session, "run": run, "rule": rule}
        return self._acts.audit({**asked, "before": before, "limit": limit})


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid) if uid != os.getuid() else "owner"
