"""The parts of containment that a core builds whatever its tools: ledger, policy gate, and their methods.

`service.core` asks for `rules` when it makes its toolbox, and for `reload`. Decides nothing itself.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from appliance.agent.tool_rules import ToolRules
from appliance.channels.rpc.policy import PolicyMethods
from appliance.policy import policy_file
from appliance.policy.audit_log import Keep, Ledger
from appliance.policy.gate import Gate, Groups
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
        self.methods = PolicyMethods(self.gate)

    def _groups(self, user: str) -> tuple[str, ...]:
        return groups_of(self._settings().sandbox, user)
