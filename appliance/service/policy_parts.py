"""The parts of containment that a core builds whatever its tools: ledger, policy gate, and what the door says of them.

`service.core` asks for `rules` when it makes its toolbox, and for `reload`. Decides nothing itself.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from appliance.agent.tool_rules import ToolRules
from appliance.channels.rpc.policy import Acts, Rules
from appliance.errors import BadInput
from appliance.policy import policy_file
from appliance.policy.audit_log import Asked, Keep, Ledger
from appliance.policy.gate import Gate, Groups
from appliance.policy.rules import Policy, Request
from appliance.records import to_plain
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.runtime.tool_settings import groups_of
from appliance.store.database import Store

Clean = Callable[[object], object]


class Warden:
    """Ledger and gate of one core, by its configuration as it is now."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str],
        settings: Callable[[], Config],
        store: Store,
        clean: Clean,
        *,
        closed: Iterable[Path] = (),
        groups: Groups | None = None,
    ) -> None:
        """`closed` are folders beside the home that no tool is shown, `groups` says who is in which, if not `sandbox.groups`."""
        shut = tuple(closed)
        self._settings = settings
        self.ledger = Ledger(store, clean, lambda: Keep(settings().audit.keep_days, settings().audit.max_rows))
        self.gate = Gate(store, self.ledger, lambda: policy_file.of(home, settings(), environ, shut), groups=groups or self._groups)
        self.rules = ToolRules(self.gate.policy, gate=self.gate, settings=lambda: settings().tools)
        acts = Acts(self._show, self._judge, self.gate.reload, self._set, self.gate.lift_session, self._audit)
        self.door = Rules(acts)

    def _groups(self, user: str) -> tuple[str, ...]:
        return groups_of(self._settings().sandbox, user)

    def _show(self, session: str) -> dict[str, Any]:
        found = {"session": session, "state": self.gate.state, "policy": plain(self.gate.of(session))}
        return {**found, "sessions": [to_plain(one) for one in self.gate.sessions()]}

    def _judge(self, given: dict[str, Any]) -> dict[str, Any]:
        try:
            request = msgspec.convert({"component": "test", **given}, Request, strict=False)
        except msgspec.ValidationError as error:
            raise BadInput(f"not a request: {error}", hint="owlbox policy test --help") from None
        if not request.who.groups:
            request = replace(request, who=replace(request.who, groups=self.gate.groups_of(request.who.user)))
        rules = self.gate.of(request.session)
        judgement = rules.judge(request)
        verdict = rules.check(request.component, request.who.role)
        return {
            **to_plain(judgement),
            "is_allowed": judgement.is_allowed and verdict.allowed,
            "text": "; ".join(text for text in (verdict.rule, judgement.text) if text),
        }

    def _set(self, session: str, document: str, by: str) -> dict[str, Any]:
        policy = plain(self.gate.set_session(session, document, by))
        return {"session": session, "policy": policy, "is_known": self.gate.is_known(session)}

    def _audit(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        return [asdict(line) for line in self.ledger.listing(Asked(**given))]


def plain(rules: Policy) -> dict[str, Any]:
    """A policy for programs, with what is blocked whatever it says and without what its object keeps made up."""
    found: dict[str, Any] = to_plain(rules)
    return {**found, "blocked": list(rules.forbidden.patterns), "has_binds": rules.has_binds}
