"""Builds what works with files and commands: sandbox, workbench, command output, messages of tools.

A command that is accepted begins, one whose run is stopped ends, a chat that waited for one goes on. Owns no table.
"""

import logging
from typing import Any

from appliance.agent.approvals import ACCEPTED, VETO
from appliance.agent.command_output import Streams
from appliance.agent.command_runs import Executions
from appliance.agent.loop_events import CommandStopped, LoopStored
from appliance.agent.tool_messages import OutgoingFiles, Postbox
from appliance.channels.rpc.command_output import CommandOutput
from appliance.channels.session_control import SessionDeleted
from appliance.errors import OwlError
from appliance.runtime import paths
from appliance.runtime.subscriptions import Notice, Signal
from appliance.sandbox.launcher import Plan, Sandbox
from appliance.sandbox.workspace import Workbench
from appliance.service import skill_parts
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.policy import PolicyParts
from appliance.service.parts.queue import QueueParts
from appliance.service.parts.workspace import WorkspaceParts
from appliance.sessions.runs import STOPPED
from appliance.skills.environments import SkillEnvironments

LOG = logging.getLogger(__name__)
SLOTS = "sandboxes"  # in the runtime folder: one lock file for each that runs


class CommandParts:
    """Sandbox, workbench, commands and channels of one core."""

    def __init__(
        self,
        base: BaseParts,
        policy: PolicyParts,
        models: ModelParts,
        knowledge: KnowledgeParts,
        workspace: WorkspaceParts,
        queue: QueueParts,
    ) -> None:
        self._base = base
        self._notices = queue.notices
        ledger, gate, runs, events = policy.ledger, policy.gate, base.runs, base.events
        entries, person = knowledge.entries, base.runs.person
        sandbox = base.settings().sandbox
        slots = base.runtime / SLOTS
        slots.mkdir(mode=0o700, exist_ok=True)
        plan = Plan(sandbox.max_concurrent, slots=slots, unit=paths.tool_socket(base.home, base.environ))
        self.sandbox = Sandbox(plan)
        environments = skill_parts.environments_folder(base.home)
        self.packages = SkillEnvironments(environments, knowledge.skills, self.sandbox, base.environ, ledger)
        given = self.packages.scripts, models.vault.get
        self.bench = Workbench(base.home.root / "sessions", base.settings, gate, ledger, self.sandbox, person, *given)
        self.streams = Streams(base.store, entries, knowledge.views, runs.process, base.redactor.clean)
        self.executions = Executions(self.bench, self.streams, workspace.verbs, runs, entries, events)
        events.subscribe(CommandStopped, self._tell)
        events.subscribe(LoopStored, self._loop_stored)
        events.subscribe(SessionDeleted, lambda deleted: self.bench.forget(deleted.session))
        self.postbox = Postbox(queue.outbox, gate, person, OutgoingFiles(knowledge.folder, entries, self.bench.folder))
        base.hooks.add(VETO, self.executions.check)
        base.hooks.add(ACCEPTED, self.executions.accepted)
        self.methods = CommandOutput(runs, self.streams, self.executions, ledger)

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"workbench": self.bench, "executions": self.executions, "postbox": self.postbox}

    def status(self) -> dict[str, Any]:
        """Where tools work, and how the sandboxes of this process are doing."""
        workspace = self._base.settings().sandbox.workspace or str(self._base.home.root / "sessions")
        return {"workspace": workspace, "sandbox": self.sandbox.health()}

    def recover(self, *, is_shared: bool = True) -> None:
        """End output streams whose command is gone, and as the one core also commands that dead processes left running."""
        if is_shared:
            self.sandbox.sweep()
        try:
            if count := self.streams.clear():
                LOG.warning("%d commands were interrupted and are marked so", count)
        except OwlError as error:
            LOG.warning("output streams that were left open were not ended: %s", error)

    def _loop_stored(self, stored: LoopStored) -> None:
        """A loop of a run has ended; what was begun in it does not outlive its being stopped."""
        if stored.end.status == STOPPED:
            self.executions.abandon(stored.loop.run)

    def close(self) -> None:
        """Stop every command."""
        self.executions.close()

    def _tell(self, stopped: CommandStopped) -> None:
        person = self._base.runs.person(self._base.runs.get(stopped.run).session)
        if stopped.command:
            self._notices.put(Notice(person, f"stopped: {stopped.command}", stopped.run))
        told = {"run": stopped.run, "path": stopped.path, "reason": stopped.reason}
        self._notices.put(Signal(person, "stream.cancelled", told))
