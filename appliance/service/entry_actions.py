"""What people do with entries through a door: the verbs outside of threads or at a thread's newest turn, lists, queries.

Everything is asked of its owner; what is decided here is only who acts, and for which run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.agent.approvals import STATES, Approvals, Decision
from appliance.channels import session_control
from appliance.channels.session_control import Control
from appliance.clock import CancelToken
from appliance.ingest.workspace_sync import Project
from appliance.knowledge.entries import PROJECT, Entries
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.records import Outcome, to_plain
from appliance.service.undo import Undo
from appliance.sessions.runs import Runs
from appliance.store import sql_console, visibility
from appliance.store.database import Store

QUERY_S = 10.0  # for a query that somebody typed


@dataclass(frozen=True)
class Acting:
    """A person's hands on the entries."""

    store: Store
    entries: Entries
    runs: Runs
    verbs: Verbs
    project: Project
    approvals: Approvals
    undoing: Undo
    control: Control

    def listing(self, prefix: str, limit: int, offset: int) -> list[dict[str, Any]]:
        """Entries whose references begin so."""
        return [to_plain(line) for line in self.entries.listing(prefix, limit=limit, offset=offset)]

    def act(self, run: str, verb: str, given: dict[str, Any]) -> Outcome:
        """A verb on behalf of a person, outside of any thread or, with what it may be shown, at the newest turn of one."""
        with visibility.showing(self.runs.context_of(self.runs.get(run).id) if run else ""):
            return self._act(run, verb, given)

    def _act(self, run: str, verb: str, given: dict[str, Any]) -> Outcome:
        if verb == "set" and given["ref"].startswith(session_control.RUN):
            return self.control.start(given["ref"], given.get("body") or "", given.get("attributes") or {})
        if verb == "persist":
            known = self.runs.get(run) if run else None
            actor = Actor("client") if known is None else Actor("client", known.id, *self.runs.moment(known.id))
            has_repo = known is None or not known.settings.no_repo
            return self.project.follow(actor, given["ref"], given["kind"], has_repo=has_repo)
        if not run:
            return self.verbs.perform(Actor("client"), verb, given)
        found = self.runs.get(run).id
        if verb == "resolve":
            return self.approvals.as_outcome(given["ref"], found, "accept" if given["is_accepted"] else "reject")
        state = (given.get("attributes") or {}).get("state") if verb == "set" and given["ref"].startswith("log:") else None
        if state in STATES:
            return self.approvals.as_outcome(given["ref"], found, STATES[state], given.get("body") or "")
        return self.verbs.perform(Actor("client", found, *self.runs.moment(found)), verb, given)

    def decide(self, ref: str, run: str, decision: Decision, output: str) -> dict[str, Any]:
        """What became of a proposal that a person decided."""
        resolved = self.approvals.resolve(ref, self.runs.get(run).id if run else "", decision, output)
        plain: dict[str, Any] = to_plain(resolved)
        return plain

    def waiting(self, run: str, limit: int) -> list[dict[str, Any]]:
        """What waits for a decision, in one thread or in all."""
        return [to_plain(one) for one in self.verbs.waiting(self.runs.get(run).id if run else "", limit)]

    def history(self, ref: str, limit: int, run: str) -> list[dict[str, Any]]:
        """The changes of an entry as a thread or a person sees it; NotFound when there never was one."""
        with visibility.showing(self.runs.context_of(self.runs.get(run).id) if run else ""):
            for scope in [f"run:{self.runs.get(run).id}", PROJECT] if run else [PROJECT]:
                found = self.entries.changes(ref, scope=scope, limit=limit)
                is_hidden = self.entries.is_taken(ref, scope) and self.entries.find(ref, scope=scope) is None
                if not is_hidden and (found or self.entries.find(ref, scope=scope)):
                    return [to_plain(change) for change in found]
            self.entries.get(ref)
            return []

    def undo(self, run: str, who: str, is_dry_run: bool, is_alone: bool = False) -> Any:
        """What taking back a run did, or would do."""
        return to_plain(self.undoing.undo(run, who, is_dry_run=is_dry_run, is_alone=is_alone))

    def query(self, sql: str, limit: int, cancel: CancelToken) -> tuple[Sequence[str], Sequence[Sequence[Any]], bool]:
        """What somebody's own query says."""
        found = self.store.query(sql.strip() or sql_console.TABLES, limit=limit, deadline_s=QUERY_S, is_stopped=cancel.is_set)
        return found.columns, found.rows, found.has_more
