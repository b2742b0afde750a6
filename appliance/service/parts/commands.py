"""The parts that work with files and commands, built once and tied together: sandbox, workbench, channels, messages.

Here stands what follows from what: a command that is accepted begins, one whose run is stopped ends, a chat that waited for
one goes on. Owns no table. Apart from `service.core`, which builds everything else, as `service.parts.queue` is for the queue.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.agent.approvals import ACCEPTED, VETO
from appliance.agent.command_output import Streams
from appliance.agent.command_runs import Executions
from appliance.agent.loop_events import CommandStopped, LoopStored
from appliance.agent.tool_messages import Postbox
from appliance.channels.rpc.command_output import CommandOutput
from appliance.errors import OwlError
from appliance.knowledge.entries import Entries
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Views
from appliance.runtime import paths
from appliance.runtime.events import Events
from appliance.runtime.hooks import Hooks
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.runtime.subscriptions import Notice, Notices
from appliance.sandbox.launcher import Plan, Sandbox
from appliance.sandbox.workspace import Workbench
from appliance.service.parts.policy import Warden
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import STOPPED, Runs
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
SLOTS = "sandboxes"  # in the runtime folder: one lock file for each that runs


class Floor(Struct, frozen=True):
    """What the workshop stands on."""

    home: Home
    environ: Mapping[str, str]
    runtime: Path
    settings: Callable[[], Config]
    store: Store
    runs: Runs
    entries: Entries
    views: Views
    verbs: Verbs
    warden: Warden


class Workshop:
    """Sandbox, workbench, commands and channels of one core."""

    def __init__(
        self,
        floor: Floor,
        hooks: Hooks,
        outbox: Outbox,
        notices: Notices,
        scripts: Callable[[str], Path | None],
        events: Events,
        *,
        clean: Callable[[str], str],
    ) -> None:
        """`scripts` says where a skill's are; `clean` hides secrets."""
        self._floor = floor
        self._notices = notices
        sandbox = floor.settings().sandbox
        slots = floor.runtime / SLOTS
        slots.mkdir(mode=0o700, exist_ok=True)
        plan = Plan(sandbox.max_concurrent, slots=slots, unit=paths.tool_socket(floor.home, floor.environ))
        self.sandbox = Sandbox(plan)
        ledger, gate = floor.warden.ledger, floor.warden.gate
        person = floor.runs.person
        self.bench = Workbench(floor.home.root / "sessions", floor.settings, gate, ledger, self.sandbox, person, scripts)
        self.streams = Streams(floor.store, floor.entries, floor.views, floor.runs.process, clean)
        self.executions = Executions(self.bench, self.streams, floor.verbs, floor.runs, floor.entries, events)
        events.subscribe(CommandStopped, self._tell)
        events.subscribe(LoopStored, self._loop_stored)
        self.postbox = Postbox(outbox, gate, person)
        hooks.add(VETO, self.executions.check)
        hooks.add(ACCEPTED, self.executions.accepted)
        self.methods = CommandOutput(floor.runs, self.streams, self.executions, ledger)

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        return {"workbench": self.bench, "executions": self.executions, "postbox": self.postbox}

    def status(self) -> dict[str, Any]:
        """Where tools work, and how the sandboxes of this process are doing."""
        workspace = self._floor.settings().sandbox.workspace or str(self._floor.home.root / "sessions")
        return {"workspace": workspace, "sandbox": self.sandbox.health(is_tried=False)}

    def recover(self, *, is_shared: bool = True) -> None:
        """End the channels that nobody fills any more, and as the one core also what others have left running."""
        if is_shared:
            self.sandbox.sweep()
        try:
            if count := self.streams.clear():
                LOG.warning("%d commands were interrupted and are marked so", count)
        except OwlError as error:
            LOG.warning("what commands left open was not ended: %s", error)

    def _loop_stored(self, stored: LoopStored) -> None:
        """A loop of a run has ended; what was begun in it does not outlive its being stopped."""
        if stored.end.status == STOPPED:
            self.executions.abandon(stored.loop.run)

    def close(self) -> None:
        """Stop every command."""
        self.executions.close()

    def _tell(self, stopped: CommandStopped) -> None:
        person = self._floor.runs.person(self._floor.runs.get(stopped.run).session)
        self._notices.put(Notice(person, f"stopped: {stopped.command}", stopped.run))
