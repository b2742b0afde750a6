"""The policy at the local socket: what it says, what it would say to a request, reading it again, one for a conversation.

Whoever may open the socket may change a conversation's policy; no model can.
"""

from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from appliance.errors import BadInput, Refused
from appliance.policy.gate import Gate
from appliance.policy.rules import Policy, PolicyRequest
from appliance.records import to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.users import caller_name
from appliance.store import visibility

Session = Annotated[str, "the conversation, as `session list` shows it; empty is for everybody"]


class PolicyMethods:
    """Asks and changes a gate on behalf of people."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @method("policy.show", access="own")
    def show(self, session: Session = "") -> dict[str, Any]:
        """The policy that holds, its state, and the conversations that have one of their own."""
        gate = self._gate
        found = {"session": session, "state": gate.state, "policy": _policy_data(gate.of(session))}
        return {**found, "sessions": gate.sessions()}

    @method("policy.test", access="all")
    def test(self, request: Annotated[dict[str, Any], "component, who, mounts, usage, network, target, command"]) -> dict[str, Any]:
        """What the policy would say to a request; nothing is started and nothing is written down."""
        try:
            asked = msgspec.convert({"component": "test", **request}, PolicyRequest, strict=False)
        except msgspec.ValidationError as error:
            raise BadInput(f"not a request: {error}", hint="owlbox policy test --help") from None
        contexts = visibility.asking()
        if contexts is not None and (asked.session or asked.who.user) and f"user:{asked.who.user}" not in contexts:
            raise Refused("a request of somebody else is tested by admins alone", hint="name yourself as its user, and no session")
        if not asked.who.groups:
            asked = replace(asked, who=replace(asked.who, groups=self._gate.groups_of(asked.who.user)))
        rules = self._gate.of(asked.session)
        judgement = rules.judge(asked)
        verdict = rules.check(asked.component, asked.who.role)
        return {
            **to_plain(judgement),
            "is_allowed": judgement.is_allowed and verdict.allowed,
            "text": "; ".join(text for text in (verdict.rule, judgement.text) if text),
        }

    @method("policy.reload", is_long=True)
    def reload(self) -> dict[str, Any]:
        """Read the policy again: reloaded, unchanged, or skipped while that is being done; an error keeps the old one."""
        return {"result": self._gate.reload()}

    @method("policy.set")
    def set(
        self,
        session: str,
        document: Annotated[str | None, "the text of a policy file; none: that for everybody"] = None,
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Give a conversation a policy of its own, over the one for everybody, or take it away; what holds there now."""
        if document is None:
            self._gate.lift_session(session, caller_name(call))
            return {"session": session}
        policy = _policy_data(self._gate.set_session(session, document, caller_name(call)))
        return {"session": session, "policy": policy, "is_known": self._gate.is_known(session)}


def _policy_data(rules: Policy) -> dict[str, Any]:
    """A policy for programs, with what is blocked whatever it says and without what its object keeps made up."""
    found: dict[str, Any] = to_plain(rules)
    return {**found, "blocked": list(rules.forbidden.patterns), "has_binds": rules.has_binds}
