"""What holds for every call of a tool: the policy, how long a call may take, and what is switched off.

Several toolboxes may share one object. Asked at each call, so that a changed policy or configuration counts at once.
"""

from collections.abc import Callable, Collection, Sequence

from appliance.policy.gate import Gate
from appliance.policy.policy_file import Policy
from appliance.policy.rules import Network, PolicyVerdict
from appliance.runtime.tool_settings import ToolSettings


class ToolRules:
    """The rules of one core, or of one test."""

    def __init__(
        self,
        policy: Policy,
        *,
        deadline_s: float = 60.0,
        gate: Gate | None = None,
        settings: Callable[[], ToolSettings] | None = None,
    ) -> None:
        """With a `gate` conversations have policies of their own and refusals are audited; `settings` go before `deadline_s`."""
        self.policy = policy
        self._own_deadline_s = deadline_s
        self._gate = gate
        self._settings = settings

    def use(self, policy: Policy) -> None:
        """Another policy for everybody from now on."""
        self.policy = policy

    def policy_of(self, session: str) -> Policy:
        return self.policy if self._gate is None else self._gate.of(session, self.policy)

    def check(self, names: Sequence[str], role: str, session: str, run: str, network: Network) -> PolicyVerdict:
        """The policy's word on a call of a tool, which is the first of `names`."""
        tool, *also = names
        if self._gate is not None:
            return self._gate.check(self.policy, tool, role, session, run, network, also)
        return self.policy.check(tool, role, network, also)

    def deadline_s(self, names: Sequence[str], group: str, own_s: float) -> float:
        """The longest time of a call; `own_s` is what the tool says of itself, 0 for nothing."""
        if self._settings is not None:
            settings = self._settings()
            named = next((name for name in names if name in settings.deadlines_s), names[0])
            return settings.deadline_of(named, group, own_s)
        return own_s or self._own_deadline_s

    def switched_off(self) -> Collection[str]:
        return self._settings().switched_off() if self._settings is not None else ()
