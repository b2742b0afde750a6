"""Builds the taint gate: marks of untrusted texts, the check of calls that they may have caused, and grants.

Owns no table and decides nothing.
"""

from appliance.agent.loop_events import MessageAccepted
from appliance.agent.taint_gate import Checkpoint, HeldCalls
from appliance.agent.taint_tracking import Origins
from appliance.knowledge.verbs import Verbs
from appliance.mcp.offers import Offers
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import Grants
from appliance.runtime import hook_points
from appliance.service.parts.base import BaseParts
from appliance.service.parts.commands import CommandParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.policy import PolicyParts
from appliance.service.parts.queue import QueueParts
from appliance.skills.catalog import SkillCatalog
from appliance.store.wall_clock import Leap
from appliance.work.work_events import TaskRunBegun

LAST = 95  # after every other one


class TaintParts:
    """Marks, gate and grants of one core."""

    def __init__(self, base: BaseParts, ledger: Ledger, skills: SkillCatalog, held_calls: HeldCalls) -> None:
        self._runs = base.runs
        self.grants = Grants(base.store, ledger)
        base.events.subscribe(Leap, self.grants.move)
        self.origins = Origins(base.runs.marks, skills)
        self.checkpoint = Checkpoint(base.runs, self.grants, self.origins, held_calls, Offers(base.store))
        base.hooks.add(hook_points.USER, self.origins.packet, LAST)
        base.hooks.add(hook_points.SYSTEM, self.origins.documents, LAST)
        base.hooks.add(hook_points.RESPONSE, self.origins.quoted, LAST)
        base.hooks.add(hook_points.RESPONSE, self.checkpoint.answered, LAST)
        base.events.subscribe(MessageAccepted, self._note_message)
        base.events.subscribe(TaskRunBegun, self._note_task)

    def is_wary(self, run: str) -> bool:
        """Whether commands of a run go one by one, because one of them may have to wait."""
        return self._runs.marks.since(run) is not None

    def _note_message(self, accepted: MessageAccepted) -> None:
        """Mark a run with what is shown with its message."""
        if accepted.relevant:
            self.origins.relevant(accepted.run, accepted.relevant)

    def _note_task(self, begun: TaskRunBegun) -> None:
        """Mark the run of a task with what its first message holds."""
        task = begun.task
        self.origins.task(begun.run, task.id, task.blocked_by, task.context_ids, begun.relevant)


def build_taint(
    base: BaseParts, policy: PolicyParts, knowledge: KnowledgeParts, verbs: Verbs, queue: QueueParts, commands: CommandParts
) -> TaintParts:
    """A call that is held waits as an entry and tells its person."""
    held_calls = HeldCalls(base.runs, verbs, policy.ledger, queue.outbox, commands.executions)
    return TaintParts(base, policy.ledger, knowledge.skills, held_calls)
