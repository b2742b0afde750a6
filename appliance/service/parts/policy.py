"""Builds what decides about tools whatever they are, and who may log in: audit log, gate, rules, logins, ssh keys."""

from msgspec import Struct

from appliance.agent.tool_rules import ToolRules
from appliance.channels.rpc.policy import PolicyMethods
from appliance.http.site import page_address
from appliance.policy import policy_file
from appliance.policy.audit_log import Keep, Ledger
from appliance.policy.gate import Gate
from appliance.policy.policy_file import Policy
from appliance.service.parts.base import BaseParts
from appliance.sessions.logins import Logins, Validity
from appliance.sessions.people import PersonActivated
from appliance.sessions.ssh_keys import SshKeys
from appliance.store.wall_clock import Leap


class PolicyParts(Struct, frozen=True):
    """Audit log, gate and rules of one core, by its configuration as it is now."""

    ledger: Ledger
    gate: Gate
    rules: ToolRules
    methods: PolicyMethods
    logins: Logins
    ssh_keys: SshKeys


def build_policy(base: BaseParts) -> PolicyParts:
    """No tool is shown the runtime folder, whatever the policy says."""
    settings = base.settings

    def read_policy() -> Policy:
        return policy_file.of(base.home, settings(), base.environ, (base.runtime,))

    def read_validity() -> Validity:
        keys = settings().channels.web
        return Validity(page_address(keys) if keys.enabled else "")

    def read_keep() -> Keep:
        keys, days = settings().audit, settings().runs.retention_days
        return Keep(days, file=base.home.root / keys.file if keys.file else None, is_synced=keys.sync)

    ledger = Ledger(base.store, base.redactor.clean_all, read_keep)
    base.events.subscribe(PersonActivated, lambda decided: _note_decision(ledger, decided))
    gate = Gate(base.store, ledger, read_policy, groups=base.people.groups_of)
    rules = ToolRules(gate.policy, gate=gate, settings=lambda: settings().tools)
    logins = Logins(base.store, base.people, ledger, base.events, read_validity, page_user=base.environ.get("OWLBOX_WEB_USER", ""))
    base.events.subscribe(Leap, logins.move)
    keys = SshKeys(base.store, base.people, ledger, base.events, base.home.ssh_keys)
    return PolicyParts(ledger, gate, rules, PolicyMethods(gate), logins, keys)


def _note_decision(ledger: Ledger, decided: PersonActivated) -> None:
    kind = "person_activated" if decided.is_active else "person_deactivated"
    ledger.note(kind, actor=f"user:{decided.by}", detail={"person": decided.person}, durable=True)
