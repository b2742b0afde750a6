"""Entries at the local socket: the verbs outside of threads or at a thread's newest turn, lists, and the history of one.

Everything is asked of its owner; what is decided here is who acts, for which thread, and how much of an answer is sent.
Whoever may open the socket is trusted with every entry of the box; what a model may see on a person's behalf is narrower.

What people do with the workspace is here too: have files followed, protected or ignored, in a run or in all; a pattern that is
followed in a run is promoted there, as long as the run has room for what fits.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from appliance.agent.approvals import STATES, Approvals
from appliance.channels import session_control
from appliance.channels.session_control import Control
from appliance.errors import BadInput, NotFound, TooLarge, from_outcome
from appliance.ingest.workspace_sync import Kind, Project
from appliance.knowledge.action_log import Waiting
from appliance.knowledge.change_log import Change
from appliance.knowledge.entries import PROJECT, Entries, EntryLine
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.policy.audit_log import Ledger
from appliance.records import Outcome, to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.sessions.runs import Runs
from appliance.store import visibility

PAGE_CHARS = 400_000
Limit = Annotated[int, Range(1, 1000), "how many to show"]
Offset = Annotated[int, Range(0, 10_000_000), "how many to leave out first"]
Seen = Annotated[Literal["visible", "summarized", "archived"] | None, "how the thread sees it; needs one"]
Thread = Annotated[str, "act in this thread: what it sees changes; empty acts on content alone"]
Filter = Annotated[str, "only entries whose text matches: words, a glob or /regex/"]


class WorkspaceControl:
    """Sets constraints as a person gives them."""

    def __init__(self, project: Project, verbs: Verbs, require_room: Callable[[str, int], object]) -> None:
        """`require_room` raises TooLarge when a run has no room for so many tokens more."""
        self._project = project
        self._verbs = verbs
        self._require_room = require_room

    def follow(self, actor: Actor, pattern: str, kind: Kind | Literal["none"], *, has_repo: bool = True) -> Outcome:
        """A constraint as a person gives it: `none` removes one; in a run, what fits is promoted there."""
        try:
            if kind == "none":
                self._project.release(pattern)
                return Outcome(200, "ok", f"{pattern}: no constraint any more")
            if actor.run:
                return self.persist(actor, pattern, kind, has_repo=has_repo)
            return Outcome(200, "ok", f"{self._project.constrain(pattern, kind).pattern}: {kind} from now on")
        except (BadInput, NotFound, TooLarge) as error:
            return Outcome(error.status, error.outcome, error.message, error.hint)

    def persist(self, actor: Actor, pattern: str, kind: Kind, *, has_repo: bool = True) -> Outcome:
        """Set a constraint and promote what fits the pattern in the actor's run; a run without room keeps the constraint."""
        path = self._project.constrain(pattern, kind).pattern
        if self._project.root is None:
            return Outcome(404, "not_found", "there is no workspace", "set sandbox.workspace in owlbox.toml")
        fitting = self._project.sync_fitting(path, is_all=has_repo)
        if kind == "ignore":
            return Outcome(200, "ok", f"{path}: ignored from now on")
        self._require_room(actor.run, self._project.count_new_tokens(actor.run, fitting))
        return self._verbs.get(actor, path)


class EntryMethods:
    """Entries for people: by their verbs, as a thread sees them, and as they were."""

    def __init__(
        self,
        entries: Entries,
        runs: Runs,
        verbs: Verbs,
        workspace: WorkspaceControl,
        approvals: Approvals,
        control: Control,
        ledger: Ledger,
    ) -> None:
        self._entries = entries
        self._runs = runs
        self._verbs = verbs
        self._workspace = workspace
        self._approvals = approvals
        self._control = control
        self._ledger = ledger

    @method("entry.list", access="own")
    def entries(
        self,
        prefix: Annotated[str, "only references that begin so, such as box://notes/"] = "",
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> list[EntryLine]:
        """Entries sorted by reference: `ref`, `title`, `size_bytes`, `updated_ms`."""
        return self._entries.list_lines(prefix, limit=limit, offset=offset)

    @method("entry.view", access="own")
    def entry(
        self,
        ref: str,
        line: Annotated[int, Range(1, 10_000_000), "first line to show"] = 1,
        limit: Annotated[int, Range(1, 100_000), "how many lines"] = 1000,
    ) -> dict[str, Any]:
        """Some lines of an entry, with `total_lines` and what is known about it; `hash` is that of all, "" of a part."""
        return self._entries.view(ref, line, limit)

    @method("entry.set", access="own")
    def set_entry(
        self,
        ref: Annotated[str, "a reference or a pattern; may be empty for kind known"],
        body: Annotated[str | None, "the whole text, or edit markers"] = None,
        search: Annotated[str | None, "text to replace; empty appends"] = None,
        replace: Annotated[str | None, "what takes its place"] = None,
        title: str | None = None,
        description: str | None = None,
        mime: str | None = None,
        source_url: str | None = None,
        attributes: Annotated[dict[str, Any] | None, "replaces the stored ones"] = None,
        visibility: Seen = None,
        summary: Annotated[str | None, "at most 80 characters; needs a thread"] = None,
        wanted: Filter = "",
        expected_hash: Annotated[str | None, "only when the entry still has this hash; empty: only when there is none"] = None,
        kind: Annotated[Literal["entry", "known"], "known: a bare path means known://path"] = "entry",
        is_literal: Annotated[bool, "the body is text, whatever it looks like"] = False,
        run: Thread = "",
    ) -> Outcome:
        """Write an entry or all of a pattern; what is not given stays. `data.paths` names what changed."""
        given = {name: value for name, value in locals().items() if name not in ("self", "run") and value is not None}
        return self._act_as_person(run, "set", given)

    @method("entry.get", access="own")
    def get_entry(
        self,
        ref: str,
        wanted: Filter = "",
        line: Annotated[int | None, "first line, negative from the end"] = None,
        limit: Annotated[int | None, "how many lines"] = None,
        is_preview: Annotated[bool, "only list what matches"] = False,
        persist: Annotated[
            Literal["add", "readonly", "ignore", "none"] | None, "how files that fit are followed from now on"
        ] = None,
        run: Thread = "",
    ) -> Outcome:
        """The text of an entry as `message`, its hash in `data`; of a pattern a listing."""
        if persist is not None:
            return self._act_as_person(run, "persist", {"ref": ref, "kind": persist})
        return self._act_as_person(
            run, "get", {"ref": ref, "wanted": wanted, "line": line, "limit": limit, "is_preview": is_preview}
        )

    @method("entry.rm", access="own")
    def remove_entry(
        self,
        ref: str,
        wanted: Filter = "",
        is_preview: Annotated[bool, "only list what would be removed"] = False,
        run: Thread = "",
    ) -> Outcome:
        """Remove an entry or all of a pattern; in a thread content that others see stays."""
        return self._act_as_person(run, "rm", {"ref": ref, "wanted": wanted, "is_preview": is_preview})

    @method("entry.cp", access="own")
    def copy_entry(self, ref: str, target: str, visibility: Seen = None, run: Thread = "") -> Outcome:
        """Copy an entry; one that is overwritten is named in `data.warnings`."""
        return self._act_as_person(run, "cp", {"ref": ref, "target": target, "visibility": visibility})

    @method("entry.mv", access="own")
    def move_entry(self, ref: str, target: str, visibility: Seen = None, run: Thread = "") -> Outcome:
        """Move an entry; one that is overwritten is named in `data.warnings`."""
        return self._act_as_person(run, "mv", {"ref": ref, "target": target, "visibility": visibility})

    @method("entry.update", access="own")
    def update(self, text: str, run: Thread = "", status: Literal[102, 200, 204, 422] = 102) -> Outcome:
        """Record how a thread's work stands."""
        return self._act_as_person(run, "update", {"text": text, "status": status})

    @method("entry.trust")
    def trust(self, ref: str, hash: Annotated[str, "what entry.view says, or its first 16 digits"], *, call: Call) -> list[str]:
        """Take the marks of strangers off an entry as you have read it; in words, which ones. A conflict when it has changed."""
        taken = [mark.text for mark in self._entries.trust(ref, hash)]
        self._ledger.note("entry_trusted", actor=caller_name(call), detail={"ref": ref, "marks": taken})
        return taken

    @method("entry.waiting", access="own")
    def waiting(self, run: Annotated[str, "only in this thread"] = "", limit: Limit = 100) -> list[Waiting]:
        """What waits for a decision, oldest first: `ref` in the log of `run`, `action`, `subject`, `updated_ms`."""
        return self._verbs.waiting(self._runs.get(run).id if run else "", limit)

    @method("entry.history", access="own")
    def history(
        self,
        ref: str,
        limit: Annotated[int, Range(1, 100), "how many changes"] = 20,
        patch: Annotated[bool, "with what changed in the text"] = False,
        run: Annotated[str, "as this thread sees it"] = "",
    ) -> list[dict[str, Any]]:
        """The last changes of an entry, newest first, also of one that is gone.

        A patch is empty where it would be long; `is_cut` says that it was left out because the answer got too large.
        """
        room, changes = PAGE_CHARS, []
        for found in self._visible_changes(ref, limit, run):
            change = to_plain(found)
            if not patch:
                changes.append({name: value for name, value in change.items() if name != "patch"})
                continue
            room -= len(change["patch"])
            changes.append(change if room >= 0 else {**change, "patch": "", "is_cut": True})
        return changes

    # -- inside -------------------------------------------------------------------------------------

    def _act_as_person(self, run: str, verb: str, given: dict[str, Any]) -> Outcome:
        """A verb on behalf of a person, outside of any thread or, with what it may be shown, at the newest turn of one."""
        with visibility.showing(self._runs.context_of(self._runs.get(run).id) if run else ""):
            outcome = self._perform_verb(run, verb, given)
        if outcome.is_error:
            raise from_outcome(outcome.outcome.partition(":")[0], outcome.message, outcome.hint)
        return outcome

    def _perform_verb(self, run: str, verb: str, given: dict[str, Any]) -> Outcome:
        if verb == "set" and given["ref"].startswith(session_control.RUN):
            return self._control.start(given["ref"], given.get("body") or "", given.get("attributes") or {})
        if verb == "persist":
            known = self._runs.get(run) if run else None
            actor = Actor("client") if known is None else Actor("client", known.id, *self._runs.moment(known.id))
            has_repo = known is None or not known.settings.no_repo
            return self._workspace.follow(actor, given["ref"], given["kind"], has_repo=has_repo)
        if not run:
            return self._verbs.perform(Actor("client"), verb, given)
        found = self._runs.get(run).id
        state = (given.get("attributes") or {}).get("state") if verb == "set" and given["ref"].startswith("log:") else None
        if state in STATES:
            return self._approvals.as_outcome(given["ref"], found, STATES[state], given.get("body") or "")
        return self._verbs.perform(Actor("client", found, *self._runs.moment(found)), verb, given)

    def _visible_changes(self, ref: str, limit: int, run: str) -> list[Change]:
        """The changes of an entry as a thread or a person sees it; NotFound when there never was one."""
        with visibility.showing(self._runs.context_of(self._runs.get(run).id) if run else ""):
            for scope in [f"run:{self._runs.get(run).id}", PROJECT] if run else [PROJECT]:
                found = self._entries.changes(ref, scope=scope, limit=limit)
                is_hidden = self._entries.is_taken(ref, scope) and self._entries.find(ref, scope=scope) is None
                if not is_hidden and (found or self._entries.find(ref, scope=scope)):
                    return found
            self._entries.get(ref)
            return []
