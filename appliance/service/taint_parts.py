"""The parts about texts of strangers, built once for a core and tied together: marks, the gate, what was let pass, grants.

Owns no table and decides nothing. Apart from `service.core`, which builds everything else, as `service.command_parts`
is for commands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.agent.approvals import ACCEPTED
from appliance.agent.released_calls import Clearance, Means
from appliance.agent.taint_gate import Checkpoint, Post
from appliance.agent.taint_tracking import Origins, Sight
from appliance.agent.toolbox import Caller, Guard, Toolbox
from appliance.channels.inbox import Inbox
from appliance.channels.rpc import grants as doors
from appliance.ingest.skills import Skills
from appliance.knowledge.action_log import Waiting
from appliance.knowledge.entries import Entries
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Views
from appliance.mcp.offers import Offers
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import Grant, Grants, lasting
from appliance.policy.taint import TOOL
from appliance.records import Outcome, ToolCall, to_plain
from appliance.runtime.hooks import Hooks
from appliance.runtime.users import user_name
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store

SHOWN = "packet.user"  # the filter through which all goes that a run is shown as entries
LAST = 95  # after every other one
PROJECT = "place:project"
COMMANDS = ("exec", "project")  # profiles that see the project
Result = Callable[[str, str], Outcome | None]
IsRunning = Callable[[str, str], bool]


@dataclass(frozen=True)
class Ground:
    """What the customs stand on. `go_on` takes up a run's loop that waited."""

    store: Store
    runs: Runs
    entries: Entries
    views: Views
    verbs: Verbs
    skills: Skills
    ledger: Ledger
    outbox: Outbox
    go_on: Callable[[str], object]
    commands: Callable[[Caller, str, str], tuple[str, dict[str, str]]]


class Customs:
    """Marks, gate and grants of one core."""

    def __init__(self, ground: Ground, toolbox: Toolbox, hooks: Hooks) -> None:
        self._ground, self._toolbox = ground, toolbox
        self.grants = Grants(ground.store)
        self.origins = Origins(ground.runs.marks, is_ours=ground.skills.is_ours, server_of=self._server_of, places=_places)
        post = Post(
            ground.runs,
            ground.entries,
            ground.verbs,
            self.grants,
            ground.ledger,
            ground.outbox,
            self.origins,
            self._kinds,
            self._names,
            lambda server: Offers(ground.store).counts().get(server.removeprefix("mcp:"), 0),
            toolbox.meant,
            ground.commands,
            ground.skills.strange_always,
        )
        checkpoint = Checkpoint(post)
        toolbox.guard = Guard(checkpoint.before, checkpoint.after)
        means = Means(ground.runs, ground.entries, ground.views, self.grants, toolbox, ground.go_on)
        self.clearance = Clearance(means)
        hooks.add(ACCEPTED, self.clearance.accepted)
        hooks.add(SHOWN, self.origins.packet, LAST)
        self.door = doors.Grants(doors.Acts(self._add, self._revoke, self._listing))

    def is_wary(self, run: str) -> bool:
        """Whether commands of a run go one by one, because one of them may have to wait."""
        return self._ground.runs.marks.since(run) is not None

    def attend(self, inbox: Inbox) -> None:
        """Look at what is shown with messages."""
        inbox.shown = self.origins.relevant

    def is_running(self, beside: IsRunning) -> IsRunning:
        """Whether something that was accepted still runs: a call that was held, or what else there is."""
        return lambda run, ref: self.clearance.is_running(run, ref) or beside(run, ref)

    def result(self, beside: Result) -> Result:
        """What came of something that was accepted."""
        return lambda run, ref: self.clearance.result(run, ref) or beside(run, ref)

    def remember(self, find: Callable[[str, str], Waiting]) -> Callable[[str, str, str, int], object]:
        """What lets the like of a call that waits pass for a while; `find` knows what waits."""

        def kept(ref: str, run: str, lasts: str, uid: int) -> Grant:
            waiting = find(ref, self._ground.runs.get(run).id if run else "")
            return self.clearance.remember(waiting.ref, waiting.run, lasts, user_name(uid))

        return kept

    def close(self) -> None:
        """Stop what was let pass."""
        self.clearance.close()

    def _kinds(self) -> dict[str, str]:
        """How tools reach out, those that do."""
        marks = (one.mark for one in self._toolbox.tools())
        return {mark.name: mark.needs.reach.kind for mark in marks if mark.needs.reach is not None}

    def _names(self, call: ToolCall) -> frozenset[str]:
        """The arguments that a tool has; of a call that names a server's tool, those of that."""
        reach = next((one.mark.needs.reach for one in self._toolbox.tools() if one.mark.name == call.name), None)
        if reach is not None and reach.within:
            wares = Offers(self._ground.store).wares(str(call.arguments.get(reach.target) or "-"))
            found = next((ware for ware in wares if ware.name == call.arguments.get(TOOL)), None)
            return found.arguments if found is not None else frozenset()
        spec = self._toolbox.spec(call.name)
        known = spec.schema.get("properties") if spec is not None else None
        return frozenset(known) if isinstance(known, dict) else frozenset()

    def _server_of(self, tool: str) -> str:
        """The origin of what a tool says of itself: the server's that offers it; "" for one of ours."""
        reach = next((one.mark.needs.reach for one in self._toolbox.tools() if one.mark.name == tool), None)
        return reach.named if reach is not None and reach.kind == "call" and reach.named.startswith("mcp:") else ""

    # -- for the door -------------------------------------------------------------------------------

    def _add(self, given: doors.Wanted) -> dict[str, Any]:
        made = self.grants.add(given.person, given.kind, given.target, given.origins, lasting(given.lasts), given.by)
        return dict(to_plain(made))

    def _revoke(self, grant: int, by: str) -> dict[str, Any]:
        taken = self.grants.revoke(grant)
        self._ground.ledger.note("grant_revoked", actor=by, detail={"grant": grant, "target": taken.target})
        return dict(to_plain(taken))

    def _listing(self, is_all: bool) -> list[dict[str, Any]]:
        return [to_plain(one) for one in self.grants.listing(is_all=is_all)]


def _places(sight: Sight) -> tuple[str, ...]:
    """The folders that a call may read or write: its conversation's, and the project's where its run may see that."""
    own = (f"place:{sight.session}",) if sight.session else ()
    return (*own, PROJECT) if sight.terms.has_repo and sight.profile in COMMANDS else own
