"""Builds what decides about tools whatever they are: the audit log, the policy gate, the rules, and their methods."""

from msgspec import Struct

from appliance.agent.tool_rules import ToolRules
from appliance.channels.rpc.policy import PolicyMethods
from appliance.policy import policy_file
from appliance.policy.audit_log import Keep, Ledger
from appliance.policy.gate import Gate
from appliance.policy.policy_file import Policy
from appliance.service.parts.base import BaseParts


class PolicyParts(Struct, frozen=True):
    """Audit log, gate and rules of one core, by its configuration as it is now."""

    ledger: Ledger
    gate: Gate
    rules: ToolRules
    methods: PolicyMethods


def build_policy(base: BaseParts) -> PolicyParts:
    """No tool is shown the runtime folder, whatever the policy says."""
    settings = base.settings

    def read_policy() -> Policy:
        return policy_file.of(base.home, settings(), base.environ, (base.runtime,))

    ledger = Ledger(base.store, base.redactor.clean_all, lambda: Keep(settings().audit.keep_days, settings().audit.max_rows))
    gate = Gate(base.store, ledger, read_policy, groups=base.people.groups_of)
    return PolicyParts(ledger, gate, ToolRules(gate.policy, gate=gate, settings=lambda: settings().tools), PolicyMethods(gate))
