"""The parts about texts of strangers, built once for a core and tied together: marks, the gate, what was let pass, grants.

Owns no table and decides nothing. Apart from `service.core`, which builds everything else, as `service.parts.commands`
is for commands.
"""

from appliance.agent.loop_events import MessageAccepted
from appliance.agent.taint_gate import Checkpoint, HeldCalls
from appliance.agent.taint_tracking import Origins
from appliance.mcp.offers import Offers
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import Grants
from appliance.runtime.hooks import Hooks
from appliance.sessions.runs import Runs
from appliance.skills.catalog import Skills
from appliance.store.database import Store
from appliance.work.work_events import TaskRunBegun

SHOWN = "packet.user"  # the filter through which all goes that a run is shown as entries
LAST = 95  # after every other one


class TaintParts:
    """Marks, gate and grants of one core."""

    def __init__(self, store: Store, runs: Runs, skills: Skills, held_calls: HeldCalls, ledger: Ledger, hooks: Hooks) -> None:
        self._runs = runs
        self.grants = Grants(store, ledger)
        self.origins = Origins(runs.marks, skills)
        self.checkpoint = Checkpoint(runs, self.grants, self.origins, held_calls, Offers(store))
        hooks.add(SHOWN, self.origins.packet, LAST)

    def is_wary(self, run: str) -> bool:
        """Whether commands of a run go one by one, because one of them may have to wait."""
        return self._runs.marks.since(run) is not None

    def note_message(self, accepted: MessageAccepted) -> None:
        """Mark a run with what is shown with its message."""
        if accepted.relevant:
            self.origins.relevant(accepted.run, accepted.relevant)

    def note_task(self, begun: TaskRunBegun) -> None:
        """Mark the run of a task with what its first message holds."""
        task = begun.task
        self.origins.task(begun.run, task.id, task.blocked_by, task.context_ids, begun.relevant)
